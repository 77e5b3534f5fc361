//! Synthesis runs for the explorer's resource model: settings of each family, mapped and written down.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use toroid_bench_common::Error;
use toroid_cores::synthesis::synthesize;
use toroid_cores::technology::Technology as Device;
use toroid_cores::{Core, Values, families};
use toroid_explore::model::{Run, is_held_out};
use toroid_task::{CancelToken, Progress};

/// The result of work, which is cancelled if it takes longer than `limit`.
fn within<T>(limit: Duration, work: impl FnOnce(&Progress) -> T) -> T {
    let cancel = CancelToken::new();
    let (done, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let timer = cancel.clone();
        scope.spawn(move || {
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                timer.cancel();
            }
        });
        let result = work(&Progress::from(cancel));
        drop(done);
        result
    })
}

fn parameters(values: &Values) -> BTreeMap<String, u64> {
    values
        .iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// A setting to be synthesized.
struct Sample {
    core: &'static Core,
    values: Values,
    device: Device,
    held_out: bool,
    is_large: bool,
}

impl Sample {
    fn is_of(&self, run: &Run) -> bool {
        run.core == self.core.name
            && run.device == self.device.name()
            && run.parameters == parameters(&self.values)
    }

    fn name(&self) -> String {
        let values: Vec<String> = self
            .values
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        format!(
            "{} {} on {}",
            self.core.name,
            values.join(" "),
            self.device.name()
        )
    }
}

/// Every sample of every family.
fn samples() -> Vec<Sample> {
    let pairs = families().flat_map(|each| Device::ALL.map(|device| (each, device)));
    pairs
        .flat_map(|((core, family), device)| {
            let settings = (family.samples)(device).into_iter().enumerate();
            let settings = settings.map(move |(place, values)| Sample {
                core,
                values,
                device,
                held_out: is_held_out(place),
                is_large: false,
            });
            let large = (family.large_samples)(device).into_iter();
            settings.chain(large.map(move |values| Sample {
                core,
                values,
                device,
                held_out: true,
                is_large: true,
            }))
        })
        .collect()
}

/// Synthesizes the samples that the file lacks, all of them with `again`, and writes the file after each; large ones only with
/// `large`. It drops runs that are not samples any more.
pub fn write(path: &Path, limit: Duration, again: bool, large: bool) -> Result<(), Error> {
    let before: Vec<Run> = match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(format!("{}: {error}", path.display()).into()),
    };
    let samples = samples();
    let mut runs: Vec<Run> = samples
        .iter()
        .filter_map(|sample| {
            let run = before.iter().find(|run| sample.is_of(run))?.clone();
            if again && (large || !sample.is_large) {
                return None;
            }
            let held_out = sample.held_out;
            Some(Run { held_out, ..run })
        })
        .collect();
    keep(path, &mut runs)?;
    let bar = ProgressBar::new(samples.len() as u64);
    bar.set_style(ProgressStyle::with_template(
        "{bar:30} {pos} of {len} {elapsed} {msg}",
    )?);
    bar.enable_steady_tick(Duration::from_millis(500));
    let mut failed = Vec::new();
    for sample in &samples {
        bar.set_message(sample.name());
        let is_wanted = large || !sample.is_large;
        if is_wanted && !runs.iter().any(|run| sample.is_of(run)) {
            let start = Instant::now();
            let synthesized = within(limit, |progress| {
                synthesize(sample.core, &sample.values, sample.device, progress)
            });
            match synthesized {
                Ok(found) => {
                    let seconds = start.elapsed().as_secs();
                    bar.suspend(|| eprintln!("{}: {seconds} s", sample.name()));
                    runs.push(Run {
                        core: sample.core.name.to_owned(),
                        parameters: parameters(&sample.values),
                        device: sample.device.name().to_owned(),
                        lut: found.lut,
                        ff: found.ff,
                        lutram: found.lutram,
                        dsp: found.dsp,
                        ramb18: found.ramb18,
                        ramb36: found.ramb36,
                        held_out: sample.held_out,
                    });
                    keep(path, &mut runs)?;
                }
                Err(error) => failed.push(format!("{}: {error}", sample.name())),
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    println!("{}: {} runs", path.display(), runs.len());
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("not all could be synthesized:\n{}", failed.join("\n")).into()),
    }
}

/// Writes the runs in order, a line each.
fn keep(path: &Path, runs: &mut [Run]) -> Result<(), Error> {
    runs.sort_by(|a, b| {
        let key = |run: &Run| (run.core.clone(), run.device.clone(), run.parameters.clone());
        key(a).cmp(&key(b))
    });
    let lines = runs
        .iter()
        .map(serde_json::to_string)
        .collect::<Result<Vec<_>, _>>()?;
    let text = match lines.is_empty() {
        true => "[]\n".to_owned(),
        false => format!("[\n{}\n]\n", lines.join(",\n")),
    };
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()).into())
}
