//! The environment, the table, and their files.

use std::fmt::Write as _;

use serde::Serialize;
use toroid_ring::simd::SimdLevel;

use crate::Error;
use crate::machine::Machine;
use crate::measure::{Measurement, best, median};
use crate::rows::{Limit, Row, Unit};

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
pub struct Environment {
    machine: Machine,
    processor: String,
    processors: usize,
    kernel: String,
    simd: SimdLevel,
    huge_pages: String,
    /// Load averages of 1, 5 and 15 minutes before the measurement.
    load_before: String,
    /// The same after it.
    pub load_after: String,
}

impl Environment {
    /// What stands around `machine` now.
    pub fn look(machine: Machine) -> Environment {
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
        Environment {
            machine,
            processor,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            simd: SimdLevel::best(),
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

    /// Machine and compiler, one a line.
    pub fn lines(&self) -> String {
        let Machine {
            clock,
            read,
            read_by_two,
        } = self.machine;
        format!(
            "- Processor: {}, {} cores visible; kernels of ours: {}; the peer chooses its own (built with AVX-512)\n\
             - Measured at the start: {:.2} GHz; {:.1} GB/s read from memory by one thread, {:.1} by two\n\
             - Transparent huge pages: {}; Linux {}\n\
             - Compiler: {}, release with thin LTO for both sides, no target-cpu\n\
             - Load averages before: {}\n",
            self.processor,
            self.processors,
            self.simd,
            clock / 1e9,
            read / 1e9,
            read_by_two / 1e9,
            self.huge_pages,
            self.kernel,
            env!("RUSTC_VERSION"),
            self.load_before,
        )
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
    pub row: &'static str,
    /// Best time of ours, in `unit`.
    pub ours: f64,
    pub unit: &'static str,
    /// None for rows without one, as in all that is compared with it.
    pub peer: Option<&'static str>,
    /// Best time of the peer, in `unit`.
    pub peer_value: Option<f64>,
    /// Best of ours over best of the peer.
    pub ratio: Option<f64>,
    /// The largest ratio that meets the target; none for rows without one.
    pub bar: Option<f64>,
    /// The largest best of ours that meets the target, in `unit`; none for rows without one.
    pub limit: Option<f64>,
    /// Whether bar and limit are met; none for rows without either.
    pub holds: Option<bool>,
    /// The least that this machine allows, in `unit`.
    pub bound: Option<f64>,
    /// The bound over best of ours.
    bound_over_ours: Option<f64>,
    bound_by: Option<String>,
    ours_median: f64,
    peer_median: Option<f64>,
    ratio_of_medians: Option<f64>,
    runs: usize,
    /// None for rows of several threads.
    waited: Option<f64>,
    our_peak_bytes: Option<u64>,
    note: String,
    title: &'static str,
}

impl Outcome {
    /// The figures of a measurement, after `earlier` rows.
    pub fn new(
        row: &Row,
        machine: &Machine,
        measurement: Measurement,
        earlier: &[Outcome],
    ) -> Outcome {
        let (unit, scale) = match row.unit {
            Unit::Seconds => ("s", 1.0),
            Unit::Milliseconds => ("ms", 1e3),
            Unit::Microseconds => ("us", 1e6),
            Unit::Gigabytes => ("GB", 1e-9),
            Unit::Megabytes => ("MB", 1e-6),
        };
        let ours = &measurement.ours;
        let peer = row.peer.map(|_| &measurement.peer);
        let ratio = peer.map(|peer| best(ours) / best(peer));
        let limit = match row.limit {
            Some(Limit::Value(value)) => Some(value),
            Some(Limit::Row(name)) => earlier
                .iter()
                .find(|outcome| outcome.row == name)
                .map(|outcome| outcome.ours),
            None => None,
        };
        let judged = [
            ratio.zip(row.bar),
            limit.map(|limit| (best(ours) * scale, limit)),
        ];
        let bound = row.bound.map(|bound| bound(machine, &measurement));
        Outcome {
            row: row.name,
            ours: best(ours) * scale,
            unit,
            peer: row.peer,
            peer_value: peer.map(|peer| best(peer) * scale),
            ratio,
            bar: row.bar,
            limit,
            holds: judged
                .into_iter()
                .flatten()
                .map(|(value, largest)| value <= largest)
                .reduce(|all, holds| all && holds),
            bound: bound.as_ref().map(|bound| bound.seconds * scale),
            bound_over_ours: bound.as_ref().map(|bound| bound.seconds / best(ours)),
            bound_by: bound.map(|bound| bound.by),
            ours_median: median(ours) * scale,
            peer_median: peer.map(|peer| median(peer) * scale),
            ratio_of_medians: peer.map(|peer| median(ours) / median(peer)),
            runs: ours.len(),
            waited: measurement.waited(),
            our_peak_bytes: measurement.our_peak,
            note: measurement.note,
            title: row.title,
        }
    }

    /// One line of the table.
    pub fn line(&self) -> String {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let value = |value: f64| format!("{} {}", figure(value), self.unit);
        let ratio = |ratio: Option<f64>| or_none(ratio.map(|ratio| format!("{ratio:.3}")));
        let cells = [
            self.row.to_owned(),
            self.title.to_owned(),
            value(self.ours),
            value(self.ours_median),
            or_none(self.peer.map(str::to_owned)),
            or_none(self.peer_value.map(value)),
            or_none(self.peer_median.map(value)),
            ratio(self.ratio),
            ratio(self.ratio_of_medians),
            or_none(self.bar.map(|bar| bar.to_string())),
            or_none(self.limit.map(value)),
            or_none(
                self.holds
                    .map(|holds| if holds { "yes" } else { "no" }.to_owned()),
            ),
            or_none(self.bound.map(value)),
            or_none(self.bound_over_ours.map(percent)),
            or_none(
                self.our_peak_bytes
                    .map(|bytes| format!("{} MB", figure(bytes as f64 / 1e6))),
            ),
            self.runs.to_string(),
            or_none(self.waited.map(percent)),
        ];
        format!("| {} |", cells.join(" | "))
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// Four digits.
pub fn figure(value: f64) -> String {
    let decimals = match value {
        value if value >= 1000.0 => 0,
        value if value >= 100.0 => 1,
        value if value >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// The table.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "\n| row | what | ours, best | ours, median | peer | peer, best | peer, median | ratio of bests | ratio of medians | bar | limit | holds | bound | bound / ours | memory of ours | runs | waited |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for outcome in outcomes {
        let _ = writeln!(text, "{}", outcome.line());
    }
    text
}

/// What stands below the table.
pub fn notes(environment: &Environment, outcomes: &[Outcome]) -> String {
    let mut text = format!("\nLoad averages after: {}.\n", environment.load_after);
    text.push_str("\n## What bounds each row\n\n");
    for outcome in outcomes {
        if let (Some(bound), Some(near), Some(by)) =
            (outcome.bound, outcome.bound_over_ours, &outcome.bound_by)
        {
            let _ = writeln!(
                text,
                "- {}: {} {}, of which ours reaches {}: {by}",
                outcome.row,
                figure(bound),
                outcome.unit,
                percent(near)
            );
        }
    }
    text.push_str("\n## Notes\n\n");
    let mut told: Vec<(&str, Vec<&str>)> = Vec::new();
    for outcome in outcomes.iter().filter(|outcome| !outcome.note.is_empty()) {
        match told.iter_mut().find(|(note, _)| *note == outcome.note) {
            Some((_, rows)) => rows.push(outcome.row),
            None => told.push((&outcome.note, vec![outcome.row])),
        }
    }
    for (note, rows) in told {
        let _ = writeln!(text, "- {}: {note}", rows.join(", "));
    }
    text
}

/// The Markdown file; with a link to what was tried, where that is written down.
pub fn markdown(environment: &Environment, outcomes: &[Outcome], designs: bool) -> String {
    let met = outcomes
        .iter()
        .filter(|outcome| outcome.holds == Some(true))
        .count();
    let designs = if designs {
        " What was tried on the way, with figures, stands in [cpu-designs.md](cpu-designs.md)."
    } else {
        ""
    };
    let bars = outcomes
        .iter()
        .filter(|outcome| outcome.holds.is_some())
        .count();
    format!(
        "# CPU benchmarks against peers\n\n\
         Written by `bench` (see `bench/README.md`). The bars and limits of {met} of {bars} rows hold in this run.{designs}\n\n\
         ![Ours, peer, limit and bound of the rows](cpu.svg)\n\n\
         Both sides ran in one process, in turn; a ratio below 1 says that ours is faster. Times are those of the thread on a \
         processor, or on the wall for rows of several threads. \"Waited\" is the share of the time in which the thread had \
         no processor: above a few percent the machine was not quiet. \"Bar\" is the ratio of bests to reach, \"limit\" what \
         the best of ours must not exceed whatever a peer takes. \"Bound\" is the least that this machine allows by the \
         model of `bench/src/machine.rs`. \"Memory\" is the peak of the row's process (VmHWM) once our side had run, before \
         the peer's was there.\n\n{}{}{}",
        environment.lines(),
        table(outcomes),
        notes(environment, outcomes),
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

    const MACHINE: Machine = Machine {
        clock: 1e9,
        read: 1e9,
        read_by_two: 1e9,
    };

    fn measured(ours: f64) -> Measurement {
        Measurement {
            ours: vec![9.0, ours],
            peer: vec![1.0, 5.0],
            ..Measurement::default()
        }
    }

    #[test]
    fn bars_are_judged_on_the_ratio_of_bests() -> Result<(), Error> {
        let row = rows::ALL
            .iter()
            .find(|row| row.bar.is_some())
            .ok_or("no row with a bar")?;
        let bar = row.bar.ok_or("no bar")?;
        let outcome = |ours: f64| Outcome::new(row, &MACHINE, measured(ours), &[]);
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
            "limit",
            "holds",
        ] {
            assert!(values[0].get(key).is_some(), "{key}");
        }
        Ok(())
    }

    #[test]
    fn limits_are_judged_on_the_best_of_ours() {
        let row = |name, bar, limit| Row {
            name,
            bar,
            limit,
            unit: Unit::Seconds,
            bound: None,
            ..rows::ALL[0]
        };
        let earlier = Outcome::new(&row("earlier", None, None), &MACHINE, measured(0.5), &[]);
        assert_eq!(earlier.holds, None);
        let earlier = [earlier];
        let holds = |bar, limit, ours| {
            let row = row("judged", bar, Some(limit));
            Outcome::new(&row, &MACHINE, measured(ours), &earlier).holds
        };
        for limit in [Limit::Value(0.5), Limit::Row("earlier")] {
            assert_eq!(holds(None, limit, 0.49), Some(true));
            assert_eq!(holds(None, limit, 0.51), Some(false));
            assert_eq!(holds(Some(0.4), limit, 0.49), Some(false));
        }
        assert_eq!(holds(None, Limit::Row("not measured"), 0.49), None);
    }

    #[test]
    fn a_row_without_a_peer_is_compared_with_nothing() {
        let row = Row {
            peer: None,
            ..rows::ALL[0]
        };
        let alone = Measurement {
            peer: Vec::new(),
            ..measured(1.0)
        };
        let outcome = Outcome::new(&row, &MACHINE, alone, &[]);
        assert_eq!((outcome.ratio, outcome.holds), (None, None));
        assert_eq!(
            table(&[outcome]).matches('|').count(),
            3 * (1 + table(&[]).matches("---").count())
        );
    }
}
