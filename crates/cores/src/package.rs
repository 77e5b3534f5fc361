//! A core as a folder that needs nothing else: sources, ROMs, a testbench that checks itself, a FuseSoC file, a README.

use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value as Variable;
use minijinja::{Environment, UndefinedBehavior, context};

use crate::error::CoreError;
use crate::interface::{Core, Values};
use crate::vectors::{Field, Input, Pipeline, Streams, Vectors};
use toroid_sim::model::{Design, Value};
use toroid_sim::stream::Beat;

/// Files by their paths in the folder.
pub type Files = Vec<(String, Vec<u8>)>;

/// Templates by the files that they make; `parameters.j2` is part of others.
const TEMPLATES: [(&str, &str); 5] = [
    ("README.md", include_str!("package/templates/README.md.j2")),
    (
        "fusesoc.core",
        include_str!("package/templates/fusesoc.core.j2"),
    ),
    (
        "parameters.j2",
        include_str!("package/templates/parameters.j2"),
    ),
    (
        "pipeline_tb.sv",
        include_str!("package/templates/pipeline_tb.sv.j2"),
    ),
    (
        "streams_tb.sv",
        include_str!("package/templates/streams_tb.sv.j2"),
    ),
];

fn environment() -> Result<Environment<'static>, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_syntax(
        SyntaxConfig::builder()
            .keep_trailing_newline(true)
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()?,
    );
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    for (name, template) in TEMPLATES {
        environment.add_template(name, template)?;
    }
    Ok(environment)
}

/// The files of a core with about `count` vectors.
///
/// # Errors
/// If the values do not go together, or the core has no vectors.
pub fn files(core: &Core, values: &Values, count: usize, seed: u64) -> Result<Files, CoreError> {
    let name = core.name;
    let configured = core.configure(values)?;
    let design = configured.design()?;
    let vectors = configured
        .vectors(count, seed)
        .ok_or(CoreError::NoVectors(name))?;
    let (template, stimuli, tables) = match &vectors {
        Vectors::Pipeline(pipeline) => of_pipeline(pipeline),
        Vectors::Streams(streams) => of_streams(&design, streams, &[]),
        Vectors::Joined(joined) => of_streams(&design, &joined.streams, &joined.others),
    };
    let rtl = design.sources.iter().map(|(path, text)| {
        let file = path.rsplit('/').next().unwrap_or(path);
        (format!("rtl/{file}"), text.clone().into_bytes())
    });
    let roms = design.files.iter();
    let roms = roms.map(|(file, contents)| (format!("data/{file}"), contents.clone()));
    let tables = tables.into_iter();
    let tables = tables.map(|(file, table)| (format!("tb/{file}"), table.into_bytes()));
    let rtl: Files = rtl.collect();
    let data: Files = roms.chain(tables).collect();
    let paths =
        |files: &Files| -> Vec<Variable> { files.iter().map(|(path, _)| path.into()).collect() };
    let bench = format!("tb/{name}_tb.sv");
    let parameters = core.parameters.iter().map(|parameter| {
        context! {
            name => parameter.name,
            value => values[parameter.name],
            low => *parameter.range.start(),
            high => *parameter.range.end(),
            doc => parameter.doc,
        }
    });
    let settings = design.parameters.iter().map(|(name, value)| {
        context! {
            name,
            literal => value.literal(Path::new("data")),
            is_file => matches!(value, Value::File(_)),
        }
    });
    let timing = configured.timing();
    let cycles = timing.rows().map(|row| {
        context! { what => row.what, formula => row.formula, cycles => row.cycles }
    });
    let context = context! {
        name,
        version => env!("CARGO_PKG_VERSION"),
        summary => core.summary,
        parameters => parameters.collect::<Variable>(),
        has_list => values.list().is_some(),
        settings => settings.collect::<Variable>(),
        cycles => cycles.collect::<Variable>(),
        structure => configured.structure(),
        header => header(&design),
        sources => paths(&rtl),
        data => paths(&data),
        bench => &bench,
        vectors => vectors.len(),
        ..stimuli
    };
    let environment = environment()?;
    let text = |template: &str| -> Result<Vec<u8>, CoreError> {
        let text = environment.get_template(template)?.render(&context)?;
        Ok(text.into_bytes())
    };
    let texts = [
        (bench, text(template)?),
        (format!("{name}.core"), text("fusesoc.core")?),
        ("README.md".to_owned(), text("README.md")?),
    ];
    Ok(rtl.into_iter().chain(data).chain(texts).collect())
}

/// Writes the files into a folder, which must be empty or not there, or with `force` hold no other core.
///
/// # Errors
/// If it is not so, or the folder cannot be written.
pub fn write(files: &Files, folder: &Path, force: bool) -> Result<(), CoreError> {
    let fail = |path: &Path| {
        let path = path.display().to_string();
        move |reason| CoreError::File { path, reason }
    };
    let exists = |text: String| std::io::Error::new(std::io::ErrorKind::AlreadyExists, text);
    let found = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let found: Vec<String> = found
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    if !found.is_empty() && !force {
        let text = "the folder is not empty; --force replaces the files of the core in it";
        return Err(fail(folder)(exists(text.to_owned())));
    }
    let is_ours = |file: &&String| files.iter().any(|(name, _)| name == *file);
    let mut others = found.iter().filter(|name| name.ends_with(".core"));
    if let Some(other) = others.find(|file| !is_ours(file)) {
        let text = format!("the folder holds another core, {other}, whose files would stay");
        return Err(fail(folder)(exists(text)));
    }
    for (name, contents) in files {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).map_err(fail(parent))?;
        std::fs::write(&path, contents).map_err(fail(&path))?;
    }
    Ok(())
}

/// A template of a testbench, what it says of its vectors, and these as files.
type Testbench = (&'static str, Variable, Vec<(String, String)>);

/// A line for each row: a hexadecimal number, every field of it in whole digits, the first highest.
fn table(rows: impl Iterator<Item = String>) -> String {
    rows.map(|row| row + "\n").collect()
}

fn digits(bits: u32) -> usize {
    bits.div_ceil(4) as usize
}

fn of_pipeline(pipeline: &Pipeline) -> Testbench {
    let Pipeline {
        inputs,
        outputs,
        latency,
        rows,
    } = pipeline;
    let fields = || inputs.iter().chain(outputs);
    let width: usize = fields().map(|field| 4 * digits(field.bits)).sum();
    let mut low = width;
    let mut ports = |fields: &[Field]| -> Variable {
        let ports = fields.iter().map(|field| {
            low -= 4 * digits(field.bits);
            context! { name => field.name, bits => field.bits, low }
        });
        ports.collect()
    };
    let stimuli = context! {
        inputs => ports(inputs),
        outputs => ports(outputs),
        width,
        rows => rows.len(),
        latency => *latency,
    };
    let vectors = table(rows.iter().map(|(inputs, outputs)| {
        let values = inputs.iter().chain(outputs);
        fields()
            .zip(values)
            .map(|(field, value)| format!("{value:0width$x}", width = digits(field.bits)))
            .collect()
    }));
    // The testbench sees by the last row that the table is whole.
    let vectors = vec![("vectors.hex".to_owned(), vectors + "1\n")];
    ("pipeline_tb.sv", stimuli, vectors)
}

/// The parameters and ports of the module on top, as it states them.
fn header(design: &Design) -> &str {
    let text = design.sources.last().map_or("", |(_, text)| text.as_str());
    let start = text.find("\nmodule ").map_or(0, |start| start + 1);
    let end = text[start..]
        .find(");")
        .map_or(text.len(), |end| start + end + 2);
    &text[start..end]
}

/// A stream of a testbench.
struct Lane<'a> {
    /// What the testbench calls it.
    name: &'a str,
    /// What the core's ports begin with.
    prefix: &'a str,
    /// Suffixes of ports in the direction of the data, and against it.
    suffixes: [char; 2],
    beats: &'a [Beat],
    bytes: usize,
    user_bits: u32,
}

impl<'a> Lane<'a> {
    fn of(input: &'a Input) -> Lane<'a> {
        Lane {
            name: input.name,
            prefix: input.name,
            suffixes: ['i', 'o'],
            beats: &input.sent,
            bytes: input.bytes,
            user_bits: input.user_bits,
        }
    }

    fn user_digits(&self) -> usize {
        digits(self.user_bits).max(1)
    }

    /// What templates know of the stream. `words` are those of the [`header`], where ports have a suffix or none.
    fn context(&self, words: &[&str]) -> Variable {
        let is_there = |port: &String| words.contains(&port.as_str());
        let port = |signal: &str, direction: usize| {
            let plain = format!("{}_{signal}", self.prefix);
            let full = format!("{plain}_{}", self.suffixes[direction]);
            Some(full).filter(is_there).unwrap_or(plain)
        };
        let bits = 8 * self.bytes;
        let user_high = bits + 3 + self.user_bits.max(1) as usize;
        context! {
            name => self.name,
            valid => port("tvalid", 0),
            ready => port("tready", 1),
            data => port("tdata", 0),
            last => Some(port("tlast", 0)).filter(is_there),
            user => Some(port("tuser", 0)).filter(is_there),
            user_range => format!("[{user_high}:{}]", bits + 4),
            bits,
            high => bits + 3 + 4 * self.user_digits(),
            count => self.beats.len(),
            rows => self.beats.len().max(1),
        }
    }

    /// A row for each beat: `tuser`, a digit for `tlast` alone, and the data. The table of an empty stream has one that is never sent.
    fn table(&self) -> String {
        let width = self.user_digits();
        let row = |beat: &Beat| {
            let data = beat.data.iter().rev();
            let data: String = data.map(|byte| format!("{byte:02x}")).collect();
            let user = beat.user & ((1 << (4 * width)) - 1);
            format!("{user:0width$x}{}{data}", u8::from(beat.last))
        };
        let never = Beat {
            data: vec![0; self.bytes],
            ..Beat::default()
        };
        let never = self.beats.is_empty().then_some(&never);
        table(self.beats.iter().chain(never).map(row))
    }
}

fn of_streams(design: &Design, streams: &Streams, others: &[Input]) -> Testbench {
    let words: Vec<&str> = header(design)
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .collect();
    let lane = |name, prefix, suffixes, beats| {
        let bytes = <[Beat]>::first(beats).map_or(1, |beat| beat.data.len());
        let user_bits = streams.user_bits;
        Lane {
            name,
            prefix,
            suffixes,
            beats,
            bytes,
            user_bits,
        }
    };
    let input = lane("in", streams.input, ['i', 'o'], &streams.sent);
    let output = lane("out", streams.output, ['o', 'i'], &streams.expected);
    let others: Vec<Lane> = others.iter().map(Lane::of).collect();
    let stimuli = context! {
        input => input.context(&words),
        output => output.context(&words),
        others => others.iter().map(|other| other.context(&words)).collect::<Variable>(),
        limit => 100 + 8 * streams.cycles,
        has_error => words.contains(&"error_o"),
    };
    let mut tables = vec![
        ("sent.hex".to_owned(), input.table()),
        ("expected.hex".to_owned(), output.table()),
    ];
    tables.extend(
        others
            .iter()
            .map(|other| (format!("{}_sent.hex", other.name), other.table())),
    );
    ("streams_tb.sv", stimuli, tables)
}
