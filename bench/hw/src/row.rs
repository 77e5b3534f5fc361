//! One figure beside a published one and its bar.

use serde::{Deserialize, Serialize};
use toroid_cores::synthesis::Resources;

/// A figure of ours.
#[derive(Deserialize, Serialize)]
pub struct Row {
    row: String,
    ours: f64,
    unit: String,
    /// What is published.
    reference: Option<f64>,
    /// Ours over the reference.
    ratio: Option<f64>,
    bar: Option<String>,
    holds: Option<bool>,
    note: String,
}

impl Row {
    /// A figure alone.
    pub fn new(row: impl Into<String>, ours: f64, unit: &str) -> Row {
        Row {
            row: row.into(),
            ours,
            unit: unit.to_owned(),
            reference: None,
            ratio: None,
            bar: None,
            holds: None,
            note: String::new(),
        }
    }

    /// Whether the name begins so.
    pub fn is_of(&self, group: &str) -> bool {
        self.row.starts_with(group)
    }

    /// Beside a published figure.
    pub fn beside(mut self, reference: f64) -> Row {
        self.reference = Some(reference);
        self.ratio = Some(self.ours / reference);
        self
    }

    /// With a bar.
    pub fn at_most(mut self, most: f64) -> Row {
        self.bar = Some(format!("at most {most}"));
        self.holds = Some(self.ours <= most);
        self
    }

    /// With what a reader must know about it.
    pub fn noted(mut self, note: impl Into<String>) -> Row {
        self.note = note.into();
        self
    }
}

/// What a page shows of the resources of a Xilinx 7.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Area {
    /// Look-up tables of logic.
    pub lut: u64,
    /// Look-up tables that are shift registers or small memories.
    pub lutram: u64,
    pub ff: u64,
    /// DSP48E1.
    pub dsp: u64,
    /// Block memories of 36 Kbit, of which two of 18 make one.
    pub bram: f64,
}

impl Area {
    /// All look-up tables.
    pub fn luts(&self) -> f64 {
        (self.lut + self.lutram) as f64
    }

    /// Adds `count` times `one`.
    pub fn add(&mut self, count: u64, one: Area) {
        self.lut += count * one.lut;
        self.lutram += count * one.lutram;
        self.ff += count * one.ff;
        self.dsp += count * one.dsp;
        self.bram += count as f64 * one.bram;
    }

    /// DSP slices, LUTs, flip-flops and block memories, named after `what`.
    pub fn rows(&self, what: &str) -> [Row; 4] {
        [
            Row::new(format!("{what}: DSP48E1"), self.dsp as f64, "slices"),
            Row::new(format!("{what}: LUT"), self.luts(), "LUTs"),
            Row::new(format!("{what}: FF"), self.ff as f64, "flip-flops"),
            Row::new(format!("{what}: BRAM of 36 Kbit"), self.bram, "blocks"),
        ]
    }
}

impl From<Resources> for Area {
    fn from(found: Resources) -> Area {
        Area {
            lut: found.lut,
            lutram: found.lutram,
            ff: found.ff,
            dsp: found.dsp,
            bram: found.ramb36 as f64 + found.ramb18 as f64 / 2.0,
        }
    }
}
