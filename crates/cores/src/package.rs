//! A core as a folder that needs nothing else: sources, ROMs, a testbench that checks itself, files for FuseSoC, Bender and Yosys, a README.

mod library;
mod ports;

use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value as Variable;
use minijinja::{Environment, UndefinedBehavior, context};

use crate::error::CoreError;
use crate::interface::{Core, Values};
use crate::ports::Field;
use crate::vectors::{Input, Pipeline, Streams, Vectors};
use library::{folder_of, folders};
use ports::{Border, axis};
use toroid_sim::model::{Design, Value};
use toroid_sim::stream::Beat;
use toroid_sim::toolchain::hash;

/// Files by their paths in the folder.
pub type Files = Vec<(String, Vec<u8>)>;

/// Templates by the files that they make; `parameters.j2` is part of others.
const TEMPLATES: [(&str, &str); 10] = [
    (
        "Bender.yml",
        include_str!("package/templates/Bender.yml.j2"),
    ),
    ("README.md", include_str!("package/templates/README.md.j2")),
    (
        "folder.core",
        include_str!("package/templates/folder.core.j2"),
    ),
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
    ("sources.f", include_str!("package/templates/sources.f.j2")),
    (
        "streams_tb.sv",
        include_str!("package/templates/streams_tb.sv.j2"),
    ),
    ("synth.ys", include_str!("package/templates/synth.ys.j2")),
    (
        "wrapper.sv",
        include_str!("package/templates/wrapper.sv.j2"),
    ),
];

/// The licence of everything that is made, as SPDX writes it, and the texts of both.
const LICENSE: &str = "Apache-2.0 OR MIT";
const LICENSES: [(&str, &str); 2] = [
    ("LICENSE-APACHE", include_str!("../LICENSE-APACHE")),
    ("LICENSE-MIT", include_str!("../LICENSE-MIT")),
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

/// The module that is made of a core with these values, and its FuseSoC core: no other setting has the name.
pub fn module(core: &Core, values: &Values) -> String {
    let values = format!(
        "{:?} {:?}",
        values.iter().collect::<Vec<_>>(),
        values.list()
    );
    format!("{}_{}", core.name, &hash([values.as_bytes()])[..8])
}

/// A table of hexadecimal numbers, as `$readmemh` takes it, under its licence.
fn licensed(table: &[u8]) -> Vec<u8> {
    let line = format!("// SPDX-License-Identifier: {LICENSE}\n");
    [line.as_bytes(), table].concat()
}

/// The files of a core with about `count` vectors, and of one without vectors those without a testbench.
///
/// # Errors
/// If the values do not go together.
pub fn files(core: &Core, values: &Values, count: usize, seed: u64) -> Result<Files, CoreError> {
    let (name, top) = (core.name, module(core, values));
    let configured = core.configure(values)?;
    let design = configured.design()?;
    let header = header(&design);
    let words: Vec<&str> = header
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .collect();
    let vectors = configured.vectors(count, seed);
    let (template, stimuli, tables) = match &vectors {
        Some(Vectors::Pipeline(pipeline)) => of_pipeline(pipeline),
        Some(Vectors::Streams(streams)) => of_streams(&words, streams, &[]),
        Some(Vectors::Joined(joined)) => of_streams(&words, &joined.streams, &joined.others),
        None => ("", context! {}, Vec::new()),
    };
    let ports = vectors.as_ref().map(Vectors::ports);
    let ports = ports.or_else(|| configured.ports());
    let border = Border::new(&ports.ok_or(CoreError::NoPorts(name))?, &words);

    // Modules that no folder of hw/ holds are the core's own.
    let place = |path: &str| match folder_of(path) {
        Some(_) => format!("hw/{path}"),
        None => format!("rtl/{path}"),
    };
    let wrapper = format!("rtl/{top}.sv");
    let sources = design.sources.iter().map(|(path, _)| place(path));
    let sources: Vec<String> = sources.chain([wrapper.clone()]).collect();
    let paths = || design.sources.iter().map(|(path, _)| path.as_str());
    let folders = folders(paths())?;
    let roms = format!("data/{top}");
    let data = design.files.iter();
    let data: Files = data
        .map(|(file, contents)| (format!("{roms}/{file}"), licensed(contents)))
        .collect();
    let tables = tables.into_iter();
    let tables: Files = tables
        .map(|(file, table)| (format!("tb/{file}"), licensed(table.as_bytes())))
        .collect();
    let names =
        |files: &Files| -> Vec<String> { files.iter().map(|(path, _)| path.clone()).collect() };
    let bench = vectors.as_ref().map(|_| format!("tb/{top}_tb.sv"));
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
            literal => value.literal(Path::new(&roms)),
            is_file => matches!(value, Value::File(_)),
        }
    });
    let timing = configured.timing();
    let cycles = timing.rows().map(|row| {
        context! { what => row.what, formula => row.formula, cycles => row.cycles }
    });
    let own = sources.iter().filter(|path| path.starts_with("rtl/"));
    let context = context! {
        name,
        top => &top,
        license => LICENSE,
        version => env!("CARGO_PKG_VERSION"),
        summary => core.summary,
        parameters => parameters.collect::<Variable>(),
        has_list => values.list().is_some(),
        settings => settings.collect::<Variable>(),
        cycles => cycles.collect::<Variable>(),
        structure => configured.structure(),
        own => own.cloned().collect::<Vec<_>>(),
        folder => paths().next_back().and_then(folder_of),
        sources => sources.clone(),
        data => names(&data),
        tables => names(&tables),
        bench => &bench,
        vectors => vectors.as_ref().map_or(0, Vectors::len),
        is_pipeline => matches!(vectors, Some(Vectors::Pipeline(_))),
        border => border.context(),
        ..stimuli
    };
    let environment = environment()?;
    let text = |template: &str, context: &Variable| -> Result<Vec<u8>, CoreError> {
        let text = environment.get_template(template)?.render(context)?;
        Ok(text.into_bytes())
    };
    let mut files: Files = Vec::new();
    for (path, contents) in &design.sources {
        if folder_of(path).is_none() {
            files.push((place(path), contents.clone().into_bytes()));
        }
    }
    for folder in folders {
        let about = context! {
            license => LICENSE,
            version => env!("CARGO_PKG_VERSION"),
            folder => &folder.name,
            files => names(&folder.files),
            depends => folder.depends.iter().cloned().collect::<Vec<_>>(),
        };
        let path = format!("hw/{}.core", folder.name);
        files.push((path, text("folder.core", &about)?));
        let sources = folder.files.into_iter();
        files.extend(sources.map(|(path, text)| (format!("hw/{path}"), text)));
    }
    files.extend(data);
    files.extend(tables);
    files.push((wrapper.clone(), text("wrapper.sv", &context)?));
    if let Some(bench) = &bench {
        files.push((bench.clone(), text(template, &context)?));
    }
    files.push((format!("{top}.core"), text("fusesoc.core", &context)?));
    // The README shows the module's ports as they are written.
    let module = String::from_utf8_lossy(
        &files[files.iter().position(|file| file.0 == wrapper).unwrap_or(0)].1,
    );
    let module = module.split_once(");").map_or("", |(head, _)| head);
    let readme = context! { header => module.lines().skip(2).collect::<Vec<_>>().join("\n"), ..context.clone() };
    files.push(("README.md".to_owned(), text("README.md", &readme)?));
    for name in ["Bender.yml", "sources.f", "synth.ys"] {
        files.push((name.to_owned(), text(name, &context)?));
    }
    files.extend(LICENSES.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())));
    Ok(files)
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
    is_input: bool,
    beats: &'a [Beat],
    bytes: usize,
    user_bits: u32,
}

impl<'a> Lane<'a> {
    fn of(input: &'a Input) -> Lane<'a> {
        Lane {
            name: input.name,
            prefix: input.name,
            is_input: true,
            beats: &input.sent,
            bytes: input.bytes,
            user_bits: input.user_bits,
        }
    }

    fn user_digits(&self) -> usize {
        digits(self.user_bits).max(1)
    }

    /// What templates know of the stream. `words` are those of the [`header`].
    fn context(&self, words: &[&str]) -> Variable {
        let port = |signal: &str| format!("{}_{signal}", axis(self.prefix, self.is_input));
        let is_there = |signal: &str| {
            let plain = format!("{}_{signal}", self.prefix);
            let ports = [&plain, &format!("{plain}_i"), &format!("{plain}_o")];
            ports.iter().any(|port| words.contains(&port.as_str()))
        };
        let bits = 8 * self.bytes;
        let user_high = bits + 3 + self.user_bits.max(1) as usize;
        context! {
            name => self.name,
            valid => port("tvalid"),
            ready => port("tready"),
            data => port("tdata"),
            last => is_there("tlast").then(|| port("tlast")),
            user => is_there("tuser").then(|| port("tuser")),
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

fn of_streams(words: &[&str], streams: &Streams, others: &[Input]) -> Testbench {
    let lane = |name, prefix, is_input, beats| {
        let bytes = <[Beat]>::first(beats).map_or(1, |beat| beat.data.len());
        let user_bits = streams.user_bits;
        Lane {
            name,
            prefix,
            is_input,
            beats,
            bytes,
            user_bits,
        }
    };
    let input = lane("in", streams.input, true, &streams.sent);
    let output = lane("out", streams.output, false, &streams.expected);
    let others: Vec<Lane> = others.iter().map(Lane::of).collect();
    let stimuli = context! {
        input => input.context(words),
        output => output.context(words),
        others => others.iter().map(|other| other.context(words)).collect::<Variable>(),
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
