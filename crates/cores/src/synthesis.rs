//! What synthesis makes of a core: Yosys with slang for Xilinx 7 series and Lattice ECP5, nextpnr for a clock rate on the
//! latter.

use std::path::Path;
use std::process::Command;

use crate::error::CoreError;
use crate::interface::{Core, Values};
use crate::technology::Technology;
use toroid_sim::model::{Design, ModelError};
use toroid_sim::process::run;
use toroid_sim::toolchain::python;

use crate::tools::SYNTHESIS;
use toroid_task::Progress;

/// Counts of cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
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
    /// The clock rate after place and route, in MHz.
    pub fmax_mhz: Option<f64>,
}

/// What does the work, a Python program: it prints `name value` lines after a mark.
pub const SCRIPT: &str = include_str!("../hw/tools/synth.py");

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
    for (name, contents) in sources
        .chain(files)
        .chain([("synth.py", SCRIPT.as_bytes())])
    {
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
    if is_large {
        command.arg("--hierarchical");
    }
    for (name, value) in &design.parameters {
        command.arg(format!(
            "--parameter={name}={}",
            value.literal(Path::new(""))
        ));
    }
    command.args(design.sources.iter().map(|(name, _)| name));
    progress.report("synthesizing", 0, 1);
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
    progress.report("synthesizing", 1, 1);
    let results = finished.output.split_once(MARK).map(|(_, results)| results);
    let results = results.ok_or_else(|| failed(&finished.output))?;
    let value = |name: &str| {
        let mut lines = results.lines().filter_map(|line| line.split_once(' '));
        lines
            .find(|(key, _)| *key == name)
            .and_then(|(_, value)| value.parse::<f64>().ok())
    };
    let count = |name: &str| value(name).unwrap_or(0.0) as u64;
    Ok(Resources {
        lut: count("lut"),
        ff: count("ff"),
        lutram: count("lutram"),
        dsp: count("dsp"),
        ramb18: count("ramb18"),
        ramb36: count("ramb36"),
        fmax_mhz: value("fmax_mhz"),
    })
}
