//! The table and its files.

use std::fmt::Write as _;

use serde::Serialize;

use crate::Error;

/// What a row counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Commands a second.
    Iops,
    /// Bytes a second.
    Bytes,
    /// A share of something.
    Share,
}

/// One row: the best of its runs against its bar.
#[derive(Serialize)]
pub(crate) struct Row {
    row: String,
    ours: f64,
    median: f64,
    unit: &'static str,
    /// The bar's value.
    reference: Option<f64>,
    /// Ours to the reference.
    ratio: Option<f64>,
    bar: Option<String>,
    holds: Option<bool>,
    note: String,
}

impl Row {
    /// A row where more is better.
    pub(crate) fn throughput(name: &str, unit: Unit, mut rates: Vec<f64>, bar: Option<f64>) -> Row {
        rates.sort_by(f64::total_cmp);
        Row::new(
            name,
            unit,
            rates.last().copied(),
            &rates,
            bar,
            |ours, bar| ours >= bar,
            "at least",
        )
    }

    /// A row where less is better.
    pub(crate) fn cost(name: &str, mut shares: Vec<f64>, bar: f64, note: String) -> Row {
        shares.sort_by(f64::total_cmp);
        let median = shares.get(shares.len() / 2).copied();
        let mut row = Row::new(
            name,
            Unit::Share,
            median,
            &shares,
            Some(bar),
            |ours, bar| ours <= bar,
            "at most",
        );
        row.note = note;
        row
    }

    fn new(
        name: &str,
        unit: Unit,
        ours: Option<f64>,
        sorted: &[f64],
        bar: Option<f64>,
        holds: impl Fn(f64, f64) -> bool,
        word: &str,
    ) -> Row {
        let ours = ours.unwrap_or(f64::NAN);
        Row {
            row: name.to_owned(),
            ours,
            median: sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN),
            unit: match unit {
                Unit::Iops => "commands/s",
                Unit::Bytes => "bytes/s",
                Unit::Share => "of a bootstrap",
            },
            reference: bar,
            ratio: bar.map(|bar| ours / bar),
            bar: bar.map(|bar| format!("{word} {bar}")),
            holds: bar.map(|bar| holds(ours, bar)),
            note: String::new(),
        }
    }
}

/// The load averages of the machine.
pub(crate) fn load_average() -> String {
    read("/proc/loadavg")
        .split(' ')
        .take(3)
        .collect::<Vec<_>>()
        .join(" ")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

pub(crate) fn markdown(rows: &[Row], load: &str) -> String {
    let processor = read("/proc/cpuinfo")
        .lines()
        .find_map(|line| {
            line.strip_prefix("model name")?
                .split_once(':')
                .map(|(_, name)| name.trim().to_owned())
        })
        .unwrap_or_else(|| "unknown processor".to_owned());
    let mut text = format!(
        "# The drive over NVMe/TCP\n\n\
         `cd bench && cargo run --release -p toroid-nvme-bench -- --write` wrote this page and nvme.json on a machine with {} processors ({processor}), Linux {}, \
         load before {load}.\n\n\
         Client and target are one thread each, on a processor each, over one connection on loopback; the image lies in the page cache. \
         Ours is the best of the runs, of costs the median.\n\n\
         | row | ours | median | unit | bar | holds |\n| --- | ---: | ---: | --- | --- | --- |\n",
        std::thread::available_parallelism().map_or(1, usize::from),
        read("/proc/sys/kernel/osrelease").trim(),
    );
    for row in rows {
        let number = |value: f64| match row.unit {
            "of a bootstrap" => format!("{value:.5}"),
            _ => format!("{value:.0}"),
        };
        let holds = row
            .holds
            .map_or("", |holds| if holds { "yes" } else { "no" });
        let bar = row.bar.as_deref().unwrap_or("");
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {bar} | {holds} |",
            row.row,
            number(row.ours),
            number(row.median),
            row.unit
        );
    }
    for row in rows.iter().filter(|row| !row.note.is_empty()) {
        let _ = write!(text, "\n{}: {}\n", row.row, row.note);
    }
    text
}

pub(crate) fn json(rows: &[Row]) -> Result<String, Error> {
    Ok(serde_json::to_string_pretty(rows)? + "\n")
}
