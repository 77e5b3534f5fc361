//! Cycles of an engine, from its shape: what `hw/engine` or `hw/engine_streaming` takes where main memory keeps up.

use toroid_tfhe::params::ModulusKind;

use super::layout::{Form, Shape};
use crate::ntt_inplace::transform_beats;
use crate::stream_transform;

/// Cycles from a beat until another may read what it wrote: 7 to the operands, 13 in the butterflies, 5 back to memory.
pub const HAZARD: u64 = 25;

/// Cycles after the last beat of an operation until the next that waits for it: the beat's way, 4 for rotations and digits,
/// and the cycle that takes the operation.
const DRAIN: u64 = HAZARD + 4 + 1;

/// Cycles of one step of blind rotation, by what they are spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepCycles {
    /// Transforms: l forward, one back, each on both polynomials; of the streaming engine, the way of a word there and back.
    pub transforms: u64,
    /// Products with the bootstrapping key, which the streaming engine makes while rows are transformed.
    pub products: u64,
    /// Rotation, difference, digits, accumulation; of the streaming engine, the way of a word through all but the transform.
    pub vectors: u64,
}

impl StepCycles {
    /// All of them.
    #[must_use]
    pub fn total(self) -> u64 {
        self.transforms + self.products + self.vectors
    }
}

/// One step of blind rotation (a CMux).
#[must_use]
pub fn step(shape: Shape) -> StepCycles {
    match shape.form {
        Form::InPlace => step_in_place(shape),
        Form::Streaming => step_streaming(shape),
    }
}

fn step_streaming(shape: Shape) -> StepCycles {
    let latency = stream_transform::latency(shape.log_n(), shape.log_core_lanes());
    // A single row of the mask waits for the sums of the body in the step before.
    let wait = if shape.params.gadget.levels == 1 {
        2
    } else {
        0
    };
    StepCycles {
        transforms: 2 * latency,
        products: (shape.params.ggsw_rows() * shape.rows()) as u64,
        vectors: 2 * stream_transform::PRODUCT + 26 + wait,
    }
}

fn step_in_place(shape: Shape) -> StepCycles {
    let (rows, levels) = (shape.rows() as u64, shape.levels() as u64);
    let (log_n, log_lanes) = (shape.log_n(), shape.log_lanes);
    let forward = transform_beats(log_n, log_lanes, false, HAZARD);
    let inverse = transform_beats(log_n, log_lanes, true, HAZARD);
    StepCycles {
        transforms: levels * (forward + DRAIN) + inverse + DRAIN,
        products: levels * 2 * (rows + DRAIN),
        // The rotation reads one row more, and waits a cycle for its exponent.
        vectors: (rows + 1 + DRAIN + 1) + (rows + DRAIN) + levels * (rows + DRAIN) + (rows + DRAIN),
    }
}

/// Cycles of a bootstrap, by what they are spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootstrapCycles {
    /// Blind rotation.
    pub steps: StepCycles,
    /// Steps of it.
    pub count: u64,
    /// Loading, modulus switch and the first rotation.
    pub start: u64,
    /// Sample extraction and key switch; of the streaming engine, with the end of the last step.
    pub switch: u64,
}

impl BootstrapCycles {
    /// All of them.
    #[must_use]
    pub fn total(self) -> u64 {
        self.count * self.steps.total() + self.start + self.switch
    }
}

/// A bootstrap, but for the memory's latency before its first beat and after its last.
#[must_use]
pub fn bootstrap(shape: Shape) -> BootstrapCycles {
    match shape.form {
        Form::InPlace => bootstrap_in_place(shape),
        Form::Streaming => bootstrap_streaming(shape),
    }
}

fn bootstrap_streaming(shape: Shape) -> BootstrapCycles {
    let params = shape.params;
    let (rows, lwe_rows) = (shape.rows() as u64, shape.lwe_rows() as u64);
    // An operation on the rows of a sample, and the cycle that takes it.
    let pass = lwe_rows + PASS;
    // Descriptors, the sample, its words row by row, the test vector, which is turned and copied.
    let start = 5 + pass + lwe_rows * 3 + params.lwe_words() as u64 + 4 * rows;
    // Two words at a time.
    let digits = params.key_switching_samples() as u64 / 2 * lwe_rows.max(4);
    BootstrapCycles {
        steps: step(shape),
        count: params.lwe_dimension as u64,
        start,
        // No step hides the last one's body.
        switch: rows + 17 + digits + 2 * pass + lwe_rows + STORE,
    }
}

fn bootstrap_in_place(shape: Shape) -> BootstrapCycles {
    let params = shape.params;
    let (rows, vector, lanes) = (
        shape.rows() as u64,
        shape.vector() as u64,
        shape.lanes() as u64,
    );
    let (lwe_rows, words) = (shape.lwe_rows() as u64, params.lwe_words() as u64);
    let levels = params.key_switch.levels as u64;
    let pass = |rows: u64| rows + DRAIN;
    // Descriptors, the sample, its words row by row, the test vector, the first rotation.
    let feeds = lwe_rows * (FEED + 1).max((DRAIN + 1).saturating_sub(lanes)) + words;
    let start = 4 + pass(lwe_rows) + feeds + pass(rows) + pass(rows + 1);
    // Two cycles make a digit and five a word's first one, where the rows of a digit do not take longer.
    let word = (levels - 1) * lwe_rows.max(2) + lwe_rows.max(5);
    // The last word of a row is followed by the next row's way to the scalar unit instead.
    let row = vector * word - lwe_rows.max(5) + lwe_rows + FEED + 5;
    let is_expanded = u64::from(params.modulus == ModulusKind::Goldilocks);
    let ends = 2 * shape.switch_sets() as u64 + 2 + is_expanded;
    let switch = rows * row + ends * pass(lwe_rows);
    BootstrapCycles {
        steps: step(shape),
        count: params.lwe_dimension as u64,
        start,
        switch,
    }
}

/// Cycles from the last row of an operation on a sample in the streaming engine to the next operation.
const PASS: u64 = stream_transform::PRODUCT + 8;

/// The same of a store, until main memory has the row but for its latency.
const STORE: u64 = 19;

/// Cycles from the operation that fetches a row for the scalar unit until its words are there.
const FEED: u64 = 9;
