//! What synthesis makes of a core: Yosys with slang for Xilinx 7 series and Lattice ECP5, and nextpnr, which places and routes it on a device.

use std::path::Path;
use std::process::Command;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::CoreError;
use crate::interface::{Core, Values};
use crate::technology::Technology;
use toroid_sim::model::{Design, ModelError};
use toroid_sim::process::run;
use toroid_sim::toolchain::{debian, debian_command, python};

use crate::tools::{NEXTPNR, SYNTHESIS};
use toroid_task::Progress;

/// Counts of cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    /// Look-up tables; on ECP5 those of four inputs.
    pub lut: u64,
    /// Flip-flops.
    pub ff: u64,
    /// Look-up tables that are shift registers or small memories.
    pub lutram: u64,
    /// DSP slices: DSP48E1 or MULT18X18D.
    pub dsp: u64,
    /// Block memories of 18 Kbit: RAMB18E1 or DP16KD.
    pub ramb18: u64,
    /// Block memories of 36 Kbit.
    pub ramb36: u64,
}

/// The longest path between two registers of a routed core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Critical {
    /// Delay of its logic, in nanoseconds.
    pub logic_ns: f64,
    /// Delay of its wires, in nanoseconds.
    pub routing_ns: f64,
    /// Cells that it goes through, carry chains by their cells of four bits.
    pub levels: u64,
    /// The first net of it that the source names, and the last.
    pub from: String,
    /// See [`Critical::from`].
    pub to: String,
}

/// A core that is placed and routed between the registers of a harness.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Routed {
    /// The device with package and speed grade.
    pub part: String,
    /// The highest clock rate by the router's timing, in MHz.
    pub clock_mhz: f64,
    /// What limits it.
    pub critical: Critical,
    /// Look-up tables after routing, small memories among them.
    pub lut: u64,
    /// Flip-flops, those of the harness among them.
    pub ff: u64,
    /// DSP slices.
    pub dsp: u64,
    /// Block memories of 18 Kbit.
    pub ramb18: u64,
    /// Block memories of 36 Kbit.
    pub ramb36: u64,
    /// Flip-flops of the harness.
    pub harness_ff: u64,
    /// Where the placer's random choices begin.
    pub seed: u32,
    /// The command of Yosys.
    pub synthesis: String,
    /// The options of nextpnr.
    pub options: String,
    /// What the clock rate leaves out, if anything.
    pub untimed: String,
}

impl Routed {
    /// What so many cycles take at its clock rate, in microseconds.
    pub fn microseconds(&self, cycles: u64) -> f64 {
        cycles as f64 / self.clock_mhz
    }
}

/// What does the work, two Python programs: the first prints results as JSON after a mark.
pub const SCRIPTS: [(&str, &str); 2] = [
    ("synth.py", include_str!("../hw/tools/synth.py")),
    ("route.py", include_str!("../hw/tools/route.py")),
];

/// What the script's results follow.
const MARK: &str = "== toroid ==";

/// Synthesizes a core. Large ones keep their modules, each of which is mapped once.
///
/// # Errors
/// If the tools cannot be had, or refuse the core.
pub fn synthesize(
    core: &Core,
    values: &Values,
    device: Technology,
    progress: &Progress,
) -> Result<Resources, CoreError> {
    let design = core.configure(values)?.design()?;
    synthesize_design(core.name, &design, core.is_large, device, progress)
}

/// [`synthesize`] for any design; `name` is for errors.
///
/// # Errors
/// If the tools cannot be had, or refuse the design.
pub fn synthesize_design(
    name: &'static str,
    design: &Design,
    is_large: bool,
    device: Technology,
    progress: &Progress,
) -> Result<Resources, CoreError> {
    let more: &[&str] = if is_large { &["--hierarchical"] } else { &[] };
    called(name, design, device, more, "synthesizing", progress)
}

/// Places and routes a core on the largest device of a technology that the router knows, between the registers of a harness, which
/// `hw/tools/route.py` describes.
///
/// # Errors
/// If the tools cannot be had, or refuse the core, for example because the device is too small.
pub fn route(
    core: &Core,
    values: &Values,
    device: Technology,
    seed: u32,
    progress: &Progress,
) -> Result<Routed, CoreError> {
    let design = core.configure(values)?.design()?;
    route_design(core.name, &design, device, seed, progress)
}

/// [`route`] for any design; `name` is for errors.
///
/// # Errors
/// As of [`route`].
pub fn route_design(
    name: &'static str,
    design: &Design,
    device: Technology,
    seed: u32,
    progress: &Progress,
) -> Result<Routed, CoreError> {
    let mut more = vec!["--route".to_owned(), seed.to_string()];
    if device == Technology::Xc7 {
        let folder = debian(NEXTPNR, progress).map_err(ModelError::from)?;
        let words = debian_command(&folder, "nextpnr-himbaechel-xilinx");
        // Its Python finds its library there.
        let home = format!("PYTHONHOME={}", folder.join("usr").display());
        let words = ["env".to_owned(), home].into_iter().chain(words);
        more.extend(words.map(|word| format!("--nextpnr={word}")));
    }
    called(name, design, device, &more, "placing and routing", progress)
}

/// What the scripts say of a design.
fn called<T: DeserializeOwned>(
    name: &'static str,
    design: &Design,
    device: Technology,
    more: &[impl AsRef<std::ffi::OsStr>],
    what: &str,
    progress: &Progress,
) -> Result<T, CoreError> {
    let python = python(SYNTHESIS, progress).map_err(ModelError::from)?;
    let failed = |path: &str| {
        let path = path.to_owned();
        move |reason| CoreError::File { path, reason }
    };
    let folder = tempfile::tempdir().map_err(failed("a temporary folder"))?;
    let sources = design.sources.iter();
    let sources = sources.map(|(name, text)| (name.as_str(), text.as_bytes()));
    let files = design.files.iter();
    let files = files.map(|(name, contents)| (name.as_str(), contents.as_slice()));
    let scripts = SCRIPTS.iter();
    let scripts = scripts.map(|(name, text)| (*name, text.as_bytes()));
    for (name, contents) in sources.chain(files).chain(scripts) {
        let path = folder.path().join(name);
        let parent = path.parent().unwrap_or(folder.path());
        std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::write(&path, contents))
            .map_err(failed(name))?;
    }
    let mut command = Command::new(python);
    command.current_dir(folder.path()).arg("synth.py").args([
        "--top",
        &design.top,
        "--device",
        device.name(),
    ]);
    command.args(more);
    for (name, value) in &design.parameters {
        command.arg(format!(
            "--parameter={name}={}",
            value.literal(Path::new(""))
        ));
    }
    command.args(design.sources.iter().map(|(name, _)| name));
    progress.report(what, 0, 1);
    let finished = run(&mut command, progress).map_err(ModelError::from)?;
    let failed = |output: &str| {
        let lines: Vec<&str> = output.lines().collect();
        CoreError::Synthesis {
            core: name,
            output: lines[lines.len().saturating_sub(12)..].join("\n"),
        }
    };
    if !finished.status.success() {
        return Err(failed(&finished.output));
    }
    progress.report(what, 1, 1);
    let results = finished.output.split_once(MARK);
    let results = results.and_then(|(_, results)| serde_json::from_str(results).ok());
    results.ok_or_else(|| failed(&finished.output))
}
