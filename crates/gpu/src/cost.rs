//! What a blind rotation costs a device: counts that follow from the parameter set, and a model of its time.
//!
//! Counts are those of the kernels' code: six multiply-adds a butterfly of complex points, four a product, an addition for each
//! coefficient that becomes a point or comes from one. Over the Goldilocks field a butterfly has 29 instructions and a product with its sum
//! 21. No device has confirmed the model.

use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::params::ParamSet;

use crate::error::GpuError;
use crate::shape::Shape;

/// Operations that a processor does in a cycle: f64 multiply-adds, and instructions of the field.
const DOUBLES: f64 = 64.0;
const INSTRUCTIONS: f64 = 128.0;
/// The share of them that a kernel comes to.
const EFFICIENCY: f64 = 0.6;
/// Bytes that a processor exchanges with others in a cycle, and the part of the exchange that nothing hides.
const EXCHANGED: f64 = 48.0;
const VISIBLE: f64 = 0.6;
/// Cycles that a step waits for barriers and first words: within a block, and of a group.
const SOLO_WAIT: f64 = 900.0;
const GROUP_WAIT: f64 = 3630.0;
/// Cycles a millisecond of the device that the model is of, at 1.9 GHz.
const CYCLES: f64 = 1.9e6;

/// The cost of a blind rotation under a parameter set.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// External products, one after another.
    pub steps: usize,
    /// f64 multiply-adds in all of them; `None`: it computes by integers.
    pub multiply_adds: Option<u64>,
    /// Bytes of the bootstrapping key on the device, all of which a rotation reads.
    pub key_bytes: u64,
    /// Cycles of one step's arithmetic on one processor.
    cycles: f64,
    exchange: f64,
}

impl Cost {
    /// The cost under a set with programmable bootstraps.
    ///
    /// # Errors
    /// [`GpuError::Unsupported`] for a set that the kernels are not made for.
    pub fn new(params: &ParamSet, arithmetic: ArithmeticKind) -> Result<Cost, GpuError> {
        let shape = Shape::new(params, arithmetic)?;
        let points = shape.points() as f64;
        let transforms = (params.ggsw_rows() + shape.sums()) as f64;
        let products = (params.ggsw_rows() * shape.sums()) as f64 * points;
        let butterflies = transforms * points / 2.0 * points.log2();
        let steps = params.lwe_dimension;
        let (operations, rate) = if shape.is_complex() {
            let coefficients = transforms * params.ring_degree as f64;
            (6.0 * butterflies + 4.0 * products + coefficients, DOUBLES)
        } else {
            (29.0 * butterflies + 21.0 * products, INSTRUCTIONS)
        };
        Ok(Cost {
            steps,
            multiply_adds: shape
                .is_complex()
                .then_some((operations * steps as f64) as u64),
            key_bytes: shape.key_bytes() as u64,
            cycles: operations / rate / EFFICIENCY,
            exchange: 2.0 * shape.exchange_bytes() as f64 / EXCHANGED * VISIBLE,
        })
    }

    /// Milliseconds that a step of one rotation takes a group of so many blocks, each on a processor of its own, by the model.
    #[must_use]
    pub fn step_ms(&self, group: u32) -> f64 {
        let blocks = f64::from(group.max(1));
        let cycles = if group > 1 {
            (self.cycles + self.exchange) / blocks + GROUP_WAIT
        } else {
            self.cycles + SOLO_WAIT
        };
        cycles / CYCLES
    }
}

#[cfg(test)]
mod tests {
    use toroid_tfhe::params::{GATE, MESSAGE4, MESSAGE7, PAPER};

    use super::*;
    use crate::launch::{CHUNK_MS, FIRST_STEPS};

    /// A call that is cancelled waits for at most two launches, so for two milliseconds. The first launches of a pass have a fixed number of
    /// steps and must be shorter, alone and where each block of an H200 has several rotations; those that follow have as many as come to a
    /// millisecond, which are these.
    #[test]
    fn launches_are_short_enough_to_be_cancelled() {
        let steps = |params, arithmetic, group, rounds| {
            let step = Cost::new(params, arithmetic).unwrap().step_ms(group) * f64::from(rounds);
            assert!(step * f64::from(FIRST_STEPS) < f64::from(CHUNK_MS));
            (f64::from(CHUNK_MS) / step) as u32
        };
        // Alone, and in a full pass of 64 or 512 rotations.
        let sets: [(&ParamSet, [(u32, u32); 2]); 4] = [
            (&PAPER, [(16, 1), (4, 2)]),
            (&MESSAGE7, [(16, 1), (4, 2)]),
            (&MESSAGE4, [(1, 1), (1, 4)]),
            (&GATE, [(1, 1), (1, 4)]),
        ];
        let found = sets.map(|(params, launches)| {
            [ArithmeticKind::Fft, ArithmeticKind::Ntt].map(|arithmetic| {
                launches.map(|(group, rounds)| steps(params, arithmetic, group, rounds))
            })
        });
        let expected = [
            [[138, 21], [116, 17]],
            [[246, 47], [95, 13]],
            [[400, 100], [94, 23]],
            [[410, 102], [314, 78]],
        ];
        assert_eq!(found, expected);
    }
}
