//! A row of the table.

use serde::Serialize;

/// What a row counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Commands per second.
    Iops,
    /// Bytes per second.
    Bytes,
    /// A share of a bootstrap.
    Share,
}

/// One row: the best of its runs against its bar.
#[derive(Serialize)]
pub struct Row {
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
    pub fn throughput(name: &str, unit: Unit, mut rates: Vec<f64>, bar: Option<f64>) -> Row {
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
    pub fn cost(name: &str, mut shares: Vec<f64>, bar: f64, note: String) -> Row {
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
