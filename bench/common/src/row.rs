//! A row of a page's table.

use serde::Serialize;

/// What was measured, beside what it is compared with.
#[derive(Debug, Serialize)]
pub struct Row<Part> {
    part: Part,
    row: String,
    ours: f64,
    unit: &'static str,
    peer: Option<String>,
    peer_value: Option<f64>,
    /// Ours to the peer's.
    ratio: Option<f64>,
    bar: Option<String>,
    holds: Option<bool>,
    note: String,
}

impl<Part> Row<Part> {
    /// Ours, in a unit, in a part of the page.
    pub fn new(part: Part, row: impl Into<String>, ours: f64, unit: &'static str) -> Self {
        Row {
            part,
            row: row.into(),
            ours,
            unit,
            peer: None,
            peer_value: None,
            ratio: None,
            bar: None,
            holds: None,
            note: String::new(),
        }
    }

    /// Compares with something of the same unit.
    pub fn beside(mut self, peer: impl Into<String>, value: f64) -> Self {
        self.peer = Some(peer.into());
        self.peer_value = Some(value);
        self.ratio = Some(self.ours / value);
        self
    }

    /// A word about it.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// A bar for ours.
    pub fn at_most(self, bar: f64) -> Self {
        let holds = self.ours <= bar;
        let text = format!("at most {bar} {}", self.unit);
        self.judged(text, holds)
    }

    /// The same, where more is better.
    pub fn at_least(self, bar: f64) -> Self {
        let holds = self.ours >= bar;
        let text = format!("at least {bar} {}", self.unit);
        self.judged(text, holds)
    }

    /// A bar for the ratio.
    pub fn ratio_at_most(self, bar: f64) -> Self {
        let holds = self.ratio.is_some_and(|ratio| ratio <= bar);
        self.judged(format!("at most {} x", shown(bar)), holds)
    }

    /// The same, where more is better.
    pub fn ratio_at_least(self, bar: f64) -> Self {
        let holds = self.ratio.is_some_and(|ratio| ratio >= bar);
        self.judged(format!("at least {} x", shown(bar)), holds)
    }

    fn judged(mut self, bar: String, holds: bool) -> Self {
        self.bar = Some(bar);
        self.holds = Some(holds);
        self
    }
}

/// The bar of a ratio as a page shows it: one over some factor may have no last digit.
fn shown(bar: f64) -> f64 {
    (bar * 1e3).round() / 1e3
}
