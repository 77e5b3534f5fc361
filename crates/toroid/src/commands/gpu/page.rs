//! Figures of `toroid gpu bench` for people, and in the files from which the page of results is made.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;
use serde::Serialize;
use serde_json::json;

use super::bench::Figures;
use crate::commands::{refuse_existing, write_file};

/// What times of fast arithmetic should be on an H200, by set: the latency of one, and the time of each in the best batch, in milliseconds.
const BARS: [(&str, f64, f64); 5] = [
    ("paper", 8.0, 1.0),
    ("message7", 6.0, 0.6),
    ("message4", 3.0, 0.02),
    ("gate", 2.0, 0.013),
    ("message16", 40.0, 0.5),
];

/// A row of the page's table, in the form that all results have.
#[derive(Debug, Serialize)]
pub struct Row {
    part: &'static str,
    row: String,
    ours: f64,
    unit: &'static str,
    peer: Option<String>,
    peer_value: Option<f64>,
    ratio: Option<f64>,
    bar: Option<String>,
    holds: Option<bool>,
    note: String,
}

/// Times beside the processor's of the same run, with the bars where there are some.
pub fn rows(figures: &[Figures]) -> Vec<Row> {
    let mut rows = Vec::new();
    for each in figures {
        let bars = BARS
            .iter()
            .find(|(set, ..)| *set == each.set && each.arithmetic == "fft");
        let cpu = each.cpu.iter().map(super::bench::Batch::each_ms);
        for (part, ours, theirs, bar) in [
            (
                "latency",
                each.latency_ms(),
                cpu.clone().next(),
                bars.map(|bars| bars.1),
            ),
            (
                "amortized",
                each.amortized_ms(),
                cpu.reduce(f64::min),
                bars.map(|bars| bars.2),
            ),
        ] {
            let Some(ours) = ours else { continue };
            rows.push(Row {
                part,
                row: format!("{}, {}", each.set, each.arithmetic),
                ours,
                unit: "ms",
                peer: theirs.map(|_| "this machine's processor".to_owned()),
                peer_value: theirs,
                ratio: theirs.map(|theirs| ours / theirs),
                bar: bar.map(|bar| format!("at most {bar} ms")),
                holds: bar.map(|bar| ours <= bar),
                note: String::new(),
            });
        }
    }
    rows
}

/// Everything that a run found.
#[derive(Debug, Serialize)]
pub struct Page {
    pub date: String,
    pub machine: String,
    pub devices: Vec<String>,
    /// Whether devices computed, and not the driver of the tests.
    pub is_device: bool,
    pub driver: String,
    pub processors: u32,
    pub clock_ghz: f64,
    pub tflops: f64,
    pub bandwidth_tbps: f64,
    pub kernels: String,
    pub kernels_sha256: String,
    pub figures: Vec<Figures>,
    pub skipped: Vec<String>,
    pub rows: Vec<Row>,
}

impl Page {
    /// Keeps the rows as `gpu.json` and all else as `data/gpu.json`, in place of others only with `force`.
    pub fn write(&self, folder: &Path, force: bool) -> anyhow::Result<()> {
        let mut data = serde_json::to_value(self)?;
        if let Some(data) = data.as_object_mut() {
            data.remove("rows");
        }
        for (path, value) in files(folder).iter().zip([json!(self.rows), data]) {
            let text = serde_json::to_string_pretty(&value)? + "\n";
            write_file(path, force, false, |writer| {
                Ok(writer.write_all(text.as_bytes())?)
            })?;
        }
        Ok(())
    }

    /// What holds of the bars.
    pub fn summary(&self) -> String {
        let judged: Vec<bool> = self.rows.iter().filter_map(|row| row.holds).collect();
        let hold = judged.iter().filter(|holds| **holds).count();
        format!(
            "{}, driver {}, kernels for {} (SHA-256 {}); {hold} of {} bars hold",
            self.devices.join(", "),
            self.driver,
            self.kernels,
            &self.kernels_sha256[..16],
            judged.len(),
        )
    }
}

/// What is written to a folder.
fn files(folder: &Path) -> [PathBuf; 2] {
    ["gpu.json", "data/gpu.json"].map(|file| folder.join(file))
}

/// Makes the folders of what will be written, and refuses files that are there, unless they may be replaced.
pub fn prepare(folder: &Path, force: bool) -> anyhow::Result<()> {
    let inner = folder.join("data");
    fs::create_dir_all(&inner).with_context(|| format!("cannot make {}", inner.display()))?;
    for file in files(folder) {
        refuse_existing(&file, force)?;
    }
    Ok(())
}

/// The figures of a set, for people.
pub fn text(figures: &Figures) -> String {
    let mut text = format!(
        "{}, {}: keys in {:.1} s, {:.1} MB on the device; an H200 takes {:.3} ms by the model\n{:>8} {:>12} {:>12} {:>12}",
        figures.set,
        figures.arithmetic,
        figures.keys_s,
        figures.key_bytes as f64 / 1e6,
        figures.model_ms,
        "at once",
        "best, ms",
        "median, ms",
        "each, ms",
    );
    for (where_, batches) in [("GPU", &figures.gpu), ("processor", &figures.cpu)] {
        for batch in batches {
            let _ = write!(
                text,
                "\n{:>8} {:>12.4} {:>12.4} {:>12.5}  {where_}",
                batch.size,
                batch.best_ms,
                batch.median_ms,
                batch.each_ms()
            );
        }
    }
    for (share, what) in [
        (figures.arithmetic_share, "of the device's f64 rate"),
        (figures.bandwidth_share, "of its memory's bandwidth"),
    ] {
        if let Some(share) = share {
            let _ = write!(text, "\n  {:.1} % {what} in the best batch", 100.0 * share);
        }
    }
    let _ = write!(
        text,
        "\n  {} of {} results wrong, {} of {} repetitions different",
        figures.wrong, figures.checked, figures.different, figures.repeated
    );
    if figures.chain_steps > 0 {
        let steps = figures.chain_steps;
        let _ = write!(text, ", chains of {steps} steps as the processor's");
    }
    if let Some(noise) = figures.noise {
        let _ = write!(
            text,
            "\n  noise 2^{:.2}, 2^{:.2} by the formula: variances {:.3}, 1 ± {:.3} expected at most",
            noise.log2_measured, noise.log2_formula, noise.ratio, noise.interval
        );
    }
    text
}

/// The date and time in UTC.
pub fn date() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs());
    let (days, minutes) = (seconds / 86_400, seconds % 86_400 / 60);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02} UTC",
        minutes / 60,
        minutes % 60
    )
}

/// The day so many days after 1970-01-01, in the Gregorian calendar.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (20_453, (2025, 12, 31)),
        ] {
            assert_eq!(civil(days), date);
        }
    }
}
