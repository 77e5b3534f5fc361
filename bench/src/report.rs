//! The machine, the table, and their files.

use std::fmt::Write as _;

use serde::Serialize;
use toroid_ring::simd::Isa;

use crate::Error;
use crate::measure::{Measurement, best, median};
use crate::rows::{Row, Unit};

const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// glibc (2.35 and later) then asks for huge pages for everything that it allocates.
const TUNABLE: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

/// What a launch needs in its environment: where the kernel gives huge pages only when asked, an allocator that asks. Our
/// keys ask for themselves, and the peer's must have the same.
pub fn launch_environment() -> Option<(&'static str, &'static str)> {
    let wanted = chosen(&read(HUGE_PAGES)) == "madvise" && std::env::var_os(TUNABLE.0).is_none();
    wanted.then_some(TUNABLE)
}

/// What the figures depend on.
pub struct Machine {
    processor: String,
    processors: usize,
    kernel: String,
    isa: Isa,
    huge_pages: String,
    /// Load averages of 1, 5 and 15 minutes before the measurement.
    load_before: String,
    /// The same after it.
    pub load_after: String,
}

impl Machine {
    /// This machine now.
    pub fn look() -> Machine {
        let processor = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| {
                Some(
                    line.strip_prefix("model name")?
                        .split_once(':')?
                        .1
                        .trim()
                        .to_owned(),
                )
            })
            .unwrap_or_else(|| "unknown".to_owned());
        let tunable = launch_environment()
            .map(|(_, value)| value.to_owned())
            .or_else(|| std::env::var(TUNABLE.0).ok())
            .unwrap_or_default();
        Machine {
            processor,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            isa: Isa::best(),
            huge_pages: format!(
                "{}{}",
                chosen(&read(HUGE_PAGES)),
                if tunable.is_empty() {
                    String::new()
                } else {
                    format!(", {}={tunable}", TUNABLE.0)
                }
            ),
            load_before: load_average(),
            load_after: String::new(),
        }
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The word in brackets.
fn chosen(line: &str) -> &str {
    line.split_once('[')
        .and_then(|(_, rest)| Some(rest.split_once(']')?.0))
        .unwrap_or("unknown")
}

/// The kernel's load averages.
pub fn load_average() -> String {
    read("/proc/loadavg")
        .split_whitespace()
        .take(3)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A row with its figures.
#[derive(Serialize)]
pub struct Outcome {
    row: &'static str,
    /// Best time of ours, in `unit`.
    ours: f64,
    unit: &'static str,
    peer: &'static str,
    /// Best time of the peer, in `unit`.
    peer_value: f64,
    /// Best of ours over best of the peer.
    ratio: f64,
    /// The largest ratio that meets the target; none for rows without one.
    bar: Option<f64>,
    holds: Option<bool>,
    ours_median: f64,
    peer_median: f64,
    ratio_of_medians: f64,
    runs: usize,
    waited: f64,
    our_peak_bytes: Option<u64>,
    note: String,
    #[serde(skip)]
    title: &'static str,
}

impl Outcome {
    /// The figures of a measurement.
    pub fn new(row: &Row, measurement: Measurement) -> Outcome {
        let (unit, scale) = match row.unit {
            Unit::Seconds => ("s", 1.0),
            Unit::Milliseconds => ("ms", 1e3),
            Unit::Microseconds => ("us", 1e6),
        };
        let (ours, peer) = (&measurement.ours, &measurement.peer);
        let ratio = best(ours) / best(peer);
        Outcome {
            row: row.name,
            ours: best(ours) * scale,
            unit,
            peer: row.peer,
            peer_value: best(peer) * scale,
            ratio,
            bar: row.bar,
            holds: row.bar.map(|bar| ratio <= bar),
            ours_median: median(ours) * scale,
            peer_median: median(peer) * scale,
            ratio_of_medians: median(ours) / median(peer),
            runs: ours.len(),
            waited: measurement.waited(),
            our_peak_bytes: measurement.our_peak,
            note: measurement.note,
            title: row.title,
        }
    }

    /// One line of the table.
    pub fn line(&self) -> String {
        let (bar, holds) = match (self.bar, self.holds) {
            (Some(bar), Some(holds)) => (format!("{bar}"), if holds { "yes" } else { "no" }),
            _ => ("-".to_owned(), "-"),
        };
        format!(
            "| {} | {} | {} {unit} | {} {unit} | {} | {} {unit} | {} {unit} | {:.3} | {:.3} | {bar} | {holds} | {} | {:.0} % |",
            self.row,
            self.title,
            figure(self.ours),
            figure(self.ours_median),
            self.peer,
            figure(self.peer_value),
            figure(self.peer_median),
            self.ratio,
            self.ratio_of_medians,
            self.runs,
            100.0 * self.waited,
            unit = self.unit,
        )
    }
}

/// Four digits.
fn figure(value: f64) -> String {
    let decimals = match value {
        value if value >= 1000.0 => 0,
        value if value >= 100.0 => 1,
        value if value >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// Machine and compiler, one a line.
pub fn machine_lines(machine: &Machine) -> String {
    format!(
        "- Processor: {}, {} cores visible, one used; kernels of ours: {}; the peer chooses its own (built with AVX-512)\n\
         - Transparent huge pages: {}; Linux {}\n\
         - Compiler: {}, release with fat LTO for both sides, no target-cpu\n\
         - Load averages before: {}\n",
        machine.processor,
        machine.processors,
        machine.isa,
        machine.huge_pages,
        machine.kernel,
        env!("RUSTC_VERSION"),
        machine.load_before,
    )
}

/// The table.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "\n| row | what | ours, best | ours, median | peer | peer, best | peer, median | ratio of bests | ratio of medians | bar | holds | runs | waited |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for outcome in outcomes {
        let _ = writeln!(text, "{}", outcome.line());
    }
    text
}

/// What stands below the table.
pub fn notes(machine: &Machine, outcomes: &[Outcome]) -> String {
    let mut text = format!("\nLoad averages after: {}.\n\n", machine.load_after);
    let mut told = Vec::new();
    for outcome in outcomes {
        if !outcome.note.is_empty() && !told.contains(&&outcome.note) {
            let _ = writeln!(text, "- {}: {}", outcome.row, outcome.note);
            told.push(&outcome.note);
        }
        if let Some(bytes) = outcome.our_peak_bytes {
            let gigabytes = bytes as f64 / 1e9;
            let _ = writeln!(
                text,
                "- {}: peak resident memory of our side {gigabytes:.3} GB (VmHWM)",
                outcome.row
            );
        }
    }
    text
}

/// The Markdown file.
pub fn markdown(machine: &Machine, outcomes: &[Outcome]) -> String {
    format!(
        "# CPU benchmarks against peers\n\n\
         Written by `bench` (see `bench/README.md`). Both sides ran in one process, on one thread, in turn; a ratio below 1 \
         says that ours is faster. Times are those of the thread on a processor. \"Waited\" is the share of the time in which \
         it had none: above a few percent the machine was not quiet. \"Bar\" is the ratio of bests to reach.\n\n{}{}{}",
        machine_lines(machine),
        table(outcomes),
        notes(machine, outcomes),
    )
}

/// The JSON file.
pub fn json(outcomes: &[Outcome]) -> Result<String, Error> {
    Ok(serde_json::to_string_pretty(outcomes)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows;

    #[test]
    fn the_chosen_setting_stands_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen(""), "unknown");
    }

    #[test]
    fn bars_are_judged_on_the_ratio_of_bests() -> Result<(), Error> {
        let row = rows::ALL
            .iter()
            .find(|row| row.bar.is_some())
            .ok_or("no row with a bar")?;
        let bar = row.bar.ok_or("no bar")?;
        let outcome = |ours: f64| {
            Outcome::new(
                row,
                Measurement {
                    ours: vec![9.0, ours],
                    peer: vec![1.0, 5.0],
                    ..Measurement::default()
                },
            )
        };
        assert_eq!(outcome(bar * 0.99).holds, Some(true));
        assert_eq!(outcome(bar * 1.01).holds, Some(false));
        let values: serde_json::Value = serde_json::from_str(&json(&[outcome(bar)])?)?;
        for key in [
            "row",
            "ours",
            "unit",
            "peer",
            "peer_value",
            "ratio",
            "bar",
            "holds",
        ] {
            assert!(values[0].get(key).is_some(), "{key}");
        }
        Ok(())
    }
}
