//! `toroid core`: the SystemVerilog cores, listed, chosen, written, tested and synthesized.

mod explore;

use std::num::IntErrorKind;
use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::{Value, json};
use toroid_cores::synthesis::{Resources, Routed, route, synthesize};
use toroid_cores::technology::Technology;
use toroid_cores::{Core, CoreError, Cycles, Values, cores, find, package};

use crate::output::{Output, usage};
use crate::progress::Steps;

/// Arguments of `toroid core`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// List the cores with their parameters and cycle counts.
    List,
    /// Write a core into a folder: sources, ROMs, a testbench that checks itself, a FuseSoC file, a README.
    #[command(
        after_help = "Examples:\n  toroid core make butterfly_integrated --param TILE_A=18 --param TILE_B=18 --out butterfly\n  toroid core make permutation --param KIND=3 --param LOG_LANES=3 --param LOG_BEATS=5 --permutation order.txt --out order"
    )]
    Make(MakeArgs),
    /// Simulate a core and compare it with the library.
    #[command(
        after_help = "Examples:\n  toroid core test goldilocks_mul\n  toroid core test butterfly_integrated --vectors 100000 --seed 7 --waves butterfly.vcd"
    )]
    Test(TestArgs),
    /// Find the settings of cores that compute a transform best on a device.
    #[command(
        after_help = "Examples:\n  toroid core explore --n 4096 --q 18446744069414584321\n  toroid core explore --n 1024 --q 268369921 --device xc7vx980t --input-order natural --output-order natural\n  toroid core explore --n 16384 --q 18446744069414584321 --device xcu280 --bandwidth 100 --goal throughput --html explore.html"
    )]
    Explore(explore::ExploreArgs),
    /// Synthesize a core and count what it takes, or place and route it for a clock rate.
    #[command(
        after_help = "Examples:\n  toroid core synth butterfly_integrated\n  toroid core synth ntt_sdf --param LOG_N=10 --param Q=12289 --route\n  toroid core synth goldilocks_mul --param TILE_A=18 --param TILE_B=18 --device ecp5 --route"
    )]
    Synth(SynthArgs),
}

/// Which core.
#[derive(clap::Args)]
pub struct Chosen {
    /// A core that `toroid core list` names.
    name: String,
    /// A parameter's value; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_param)]
    param: Vec<(String, u64)>,
    /// For permutation with KIND=3, the order in which words leave: line n of the file is the place in the input frame,
    /// from 0, of the word at place n of the output frame. Blank lines do not count, nor what follows a #.
    #[arg(long, value_name = "FILE")]
    permutation: Option<PathBuf>,
}

/// Arguments of `toroid core make`.
#[derive(clap::Args)]
pub struct MakeArgs {
    #[command(flatten)]
    core: Chosen,
    /// Folder to write, which must be empty or not there.
    #[arg(long, short)]
    out: PathBuf,
    /// Replace files of the core in a folder that is not empty.
    #[arg(long)]
    force: bool,
    /// Vectors of the testbench, at least, extreme ones among them; one with streams always has a few polynomials.
    #[arg(long, default_value_t = 1000)]
    vectors: usize,
    /// Seed of the random vectors.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Arguments of `toroid core test`.
#[derive(clap::Args)]
pub struct TestArgs {
    #[command(flatten)]
    core: Chosen,
    /// Write waveforms (VCD) to this file.
    #[arg(long, value_name = "FILE")]
    waves: Option<PathBuf>,
    /// Replace an existing file of waveforms.
    #[arg(long, requires = "waves")]
    force: bool,
    /// Vectors, at least; extreme ones always are among them.
    #[arg(long, default_value_t = 10_000)]
    vectors: usize,
    /// Seed of the random vectors, stalls and initial contents of registers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Arguments of `toroid core synth`.
#[derive(clap::Args)]
pub struct SynthArgs {
    #[command(flatten)]
    core: Chosen,
    /// What the core is mapped to: xc7 (Xilinx 7 series) or ecp5 (Lattice ECP5).
    #[arg(long, value_enum, default_value_t = DeviceName::Xc7)]
    device: DeviceName,
    /// Place and route the core with nextpnr, on an Artix-7 200T or an ECP5-85, which gives a clock rate and takes minutes.
    #[arg(long)]
    route: bool,
    /// Where the placer's random choices begin.
    #[arg(long, default_value_t = 1, requires = "route")]
    seed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum DeviceName {
    Xc7,
    Ecp5,
}

fn parse_param(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("expected NAME=VALUE, for example TILE_A=18")?;
    Ok((name.to_owned(), parse_number(value)?))
}

/// A number below 2^64, decimal or hexadecimal.
fn parse_number(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|error| match error.kind() {
        IntErrorKind::PosOverflow => format!("{text} is too large: expected a number below 2^64"),
        _ => {
            format!(
                "{text:?} is not a number: expected decimal digits, or hexadecimal ones after 0x"
            )
        }
    })
}

fn refused(error: CoreError) -> anyhow::Error {
    match error.is_usage() {
        true => usage(error.to_string()),
        false => error.into(),
    }
}

impl Chosen {
    fn find(&self) -> anyhow::Result<(&'static Core, Values)> {
        let core = find(&self.name).map_err(refused)?;
        let given = self
            .param
            .iter()
            .map(|(name, value)| (name.as_str(), *value));
        let values = Values::new(core, given).map_err(refused)?;
        let Some(path) = &self.permutation else {
            return Ok((core, values));
        };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let list =
            parse_list(&text).map_err(|message| usage(format!("{}: {message}", path.display())))?;
        let values = values.with_list(core, list).map_err(refused)?;
        Ok((core, values))
    }
}

/// A decimal number a line.
fn parse_list(text: &str) -> Result<Vec<usize>, String> {
    let lines = text.lines().enumerate().filter_map(|(i, line)| {
        let number = line.split('#').next().unwrap_or_default().trim();
        (!number.is_empty()).then_some((i + 1, number))
    });
    lines
        .map(|(line, number)| {
            number.parse().map_err(|_| {
                format!("line {line}: expected the decimal number of a word, found {number:?}")
            })
        })
        .collect()
}

fn parameters(values: &Values) -> Value {
    values
        .iter()
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// The name of the core and its values, for people.
fn shown(core: &Core, values: &Values) -> String {
    let list: Vec<String> = values
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    match list.is_empty() {
        true => core.name.to_owned(),
        false => format!("{} ({})", core.name, list.join(", ")),
    }
}

fn list(output: &Output) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    let mut text = String::new();
    for core in cores() {
        let values = Values::new(core, []).map_err(refused)?;
        let timing = core.configure(&values).map_err(refused)?.timing();
        if !text.is_empty() {
            text.push('\n');
        }
        text += &format!("{:<22} {}", core.name, core.summary);
        for parameter in core.parameters {
            let range = format!("{}..{}", parameter.range.start(), parameter.range.end());
            text += &format!(
                "\n  {:<20} {:>8} in {:<10} {}",
                parameter.name, parameter.default, range, parameter.doc
            );
        }
        for cycles in timing.rows() {
            text += &format!(
                "\n  {:<20} {:>8} = {}",
                cycles.what, cycles.cycles, cycles.formula
            );
        }
        let parameters: Vec<Value> = core
            .parameters
            .iter()
            .map(|parameter| {
                json!({
                    "name": parameter.name,
                    "doc": parameter.doc,
                    "default": parameter.default,
                    "min": parameter.range.start(),
                    "max": parameter.range.end(),
                })
            })
            .collect();
        let cycles: Vec<Value> = timing
            .rows()
            .map(|cycles| json!({ "what": cycles.what, "formula": cycles.formula, "cycles": cycles.cycles }))
            .collect();
        rows.push(json!({
            "name": core.name,
            "summary": core.summary,
            "parameters": parameters,
            "cycles": cycles,
        }));
    }
    output.result(&json!({ "cores": rows }), || text)
}

fn make(args: &MakeArgs, output: &Output) -> anyhow::Result<()> {
    let (core, values) = args.core.find()?;
    let files = package::files(core, &values, args.vectors, args.seed).map_err(refused)?;
    package::write(&files, &args.out, args.force)?;
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    let folder = args.out.display().to_string();
    let module = package::module(core, &values);
    let value = json!({ "core": core.name, "module": module, "parameters": parameters(&values), "folder": folder, "files": names });
    output.result(&value, || {
        format!(
            "{folder}: {}, module {module}, {} files; README.md says how to use it",
            shown(core, &values),
            files.len()
        )
    })
}

fn test(args: &TestArgs, output: &Output) -> anyhow::Result<()> {
    let (core, values) = args.core.find()?;
    if let Some(waves) = &args.waves {
        anyhow::ensure!(
            args.force || !waves.exists(),
            "{} exists; --force replaces it",
            waves.display()
        );
    }
    let steps = Steps::new(output);
    let tested = toroid_cores::test(
        core,
        &values,
        args.vectors,
        args.seed,
        args.waves.as_deref(),
        &steps.progress(),
    );
    steps.finish();
    let outcome = tested.map_err(refused)?;
    let Cycles { what, formula, .. } = core.configure(&values).map_err(refused)?.timing().checked;
    anyhow::ensure!(
        outcome.measured == outcome.expected,
        "{}: the results are right, but {what} is {} cycles, where {formula} says {}",
        shown(core, &values),
        outcome.measured,
        outcome.expected
    );
    let value = json!({
        "core": core.name,
        "parameters": parameters(&values),
        "compared": outcome.compared,
        "simulated_cycles": outcome.simulated,
        "what": what,
        "cycles": outcome.measured,
        "expected_cycles": outcome.expected,
        "formula": formula,
    });
    output.result(&value, || {
        format!(
            "{}: {} results equal to the library's, in {} cycles\n{what} {} = {formula}",
            shown(core, &values),
            outcome.compared,
            outcome.simulated,
            outcome.measured
        )
    })
}

fn synth(args: &SynthArgs, output: &Output) -> anyhow::Result<()> {
    let (core, values) = args.core.find()?;
    let device = match args.device {
        DeviceName::Xc7 => Technology::Xc7,
        DeviceName::Ecp5 => Technology::Ecp5,
    };
    if args.route {
        return routed(core, &values, device, args.seed, output);
    }
    let steps = Steps::new(output);
    let synthesized = synthesize(core, &values, device, &steps.progress());
    steps.finish();
    let found = synthesized.map_err(refused)?;
    let Resources {
        lut,
        ff,
        lutram,
        dsp,
        ramb18,
        ramb36,
    } = found;
    let paper = core.paper;
    let value = json!({
        "core": core.name,
        "parameters": parameters(&values),
        "device": device.name(),
        "lut": lut,
        "ff": ff,
        "lutram": lutram,
        "dsp": dsp,
        "ramb18": ramb18,
        "ramb36": ramb36,
        "paper": paper.map(|paper| json!({
            "source": paper.source,
            "lut": paper.lut,
            "ff": paper.ff,
            "dsp": paper.dsp,
            "ramb36": paper.ramb36,
        })),
    });
    output.result(&value, || {
        let mut text = format!(
            "{}, {}, Yosys 0.70\n{:<12} {:>9} {:>9} {:>8} {:>6} {:>8} {:>8}",
            shown(core, &values),
            device.name(),
            "",
            "LUT",
            "FF",
            "LUT RAM",
            "DSP",
            "RAMB18",
            "RAMB36"
        );
        text += &format!(
            "\n{:<12} {lut:>9} {ff:>9} {lutram:>8} {dsp:>6} {ramb18:>8} {ramb36:>8}",
            "this core"
        );
        if let Some(paper) = paper {
            text += &format!(
                "\n{:<12} {:>9} {:>9} {:>8} {:>6} {:>8} {:>8}  {}",
                "paper", paper.lut, paper.ff, "", paper.dsp, "", paper.ramb36, paper.source
            );
        }
        text
    })
}

/// Places and routes a core; its cycles become microseconds.
fn routed(
    core: &Core,
    values: &Values,
    device: Technology,
    seed: u32,
    output: &Output,
) -> anyhow::Result<()> {
    let steps = Steps::new(output);
    let routed = route(core, values, device, seed, &steps.progress());
    steps.finish();
    let found = routed.map_err(refused)?;
    let timing = core.configure(values).map_err(refused)?.timing();
    let cycles: Vec<Value> = timing
        .rows()
        .map(|row| {
            let microseconds = found.microseconds(row.cycles);
            json!({ "what": row.what, "formula": row.formula, "cycles": row.cycles, "microseconds": microseconds })
        })
        .collect();
    let value = json!({
        "core": core.name,
        "parameters": parameters(values),
        "device": device.name(),
        "routed": &found,
        "cycles": cycles,
    });
    output.result(&value, || {
        let Routed {
            part,
            clock_mhz,
            critical,
            lut,
            ff,
            dsp,
            ramb18,
            ramb36,
            harness_ff,
            seed,
            synthesis,
            options,
            untimed,
        } = &found;
        let mut text = format!(
            "{}, placed and routed on {part}\n{clock_mhz} MHz; longest path {:.2} ns of logic in {} cells and {:.2} ns of wires, from {} to {}",
            shown(core, values),
            critical.logic_ns,
            critical.levels,
            critical.routing_ns,
            critical.from,
            critical.to
        );
        text += &format!(
            "\n{lut} LUT, {ff} FF ({harness_ff} of a harness around the core), {dsp} DSP, {ramb18} RAMB18, {ramb36} RAMB36"
        );
        for row in timing.rows() {
            text += &format!(
                "\n{}: {} cycles, {:.3} us",
                row.what,
                row.cycles,
                found.microseconds(row.cycles)
            );
        }
        text += &format!("\nseed {seed}; Yosys: {synthesis}; nextpnr: {options}");
        if !untimed.is_empty() {
            text += &format!("\n{untimed} This clock rate is no vendor's sign-off.");
        }
        text
    })
}

/// Runs `toroid core`.
pub fn run(command: &Command, output: &Output) -> anyhow::Result<()> {
    match command {
        Command::List => list(output),
        Command::Make(args) => make(args, output),
        Command::Test(args) => test(args, output),
        Command::Explore(args) => explore::run(args, output),
        Command::Synth(args) => synth(args, output),
    }
}
