//! The families of cores that the explorer chooses from.

use super::transform::{Order, Transform};
use crate::core::synthesis::Device as Technology;
use crate::core::{Core, Values};

/// The parts of a core, each with its count, by the resource whose amount they explain. Every setting of a family lists the
/// same parts in the same order.
#[derive(Clone, Debug, Default)]
pub struct Features {
    /// Of look-up tables, memories and shift registers among them.
    pub lut: Vec<(&'static str, f64)>,
    /// Of flip-flops.
    pub ff: Vec<(&'static str, f64)>,
    /// Of block memories.
    pub bram36: Vec<(&'static str, f64)>,
}

/// Cycles of vectors in a simulation of a core, to hold figures against: of all, and of the first of so many transforms alone.
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test panics")]
pub(super) fn measured(core: &dyn Core, values: &Values, transforms: usize) -> (u64, u64) {
    use crate::core::vectors::{Joined, Streams, Vectors};
    use crate::model::{Model, Options};

    let model = Model::build(&core.design(values).unwrap(), &Options::quick_random()).unwrap();
    let mut simulation = model.start_random(1).unwrap();
    simulation.reset(4).unwrap();
    let mut run = |vectors: &Vectors| vectors.run(&mut simulation, 1, &()).unwrap().measured;
    let mut vectors = core.vectors(values, transforms, 1).unwrap();
    let all = run(&vectors);
    let first = |streams: &mut Streams| {
        let rest = streams.sent.len() - streams.sent.len() / transforms;
        streams.sent.truncate(streams.sent.len() - rest);
        streams.expected.truncate(streams.expected.len() - rest);
        rest
    };
    match &mut vectors {
        Vectors::Streams(streams) => {
            first(streams);
        }
        // The others have a beat for each of these, behind what comes before the first transform.
        Vectors::Joined(Joined { streams, others }) => {
            let rest = first(streams);
            for other in others {
                other.sent.truncate(other.sent.len() - rest);
            }
        }
        Vectors::Pipeline(_) => unreachable!("transforms come as streams"),
    }
    let alone = run(&vectors);
    (all, alone)
}

/// What is known of a setting without synthesis.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Cycles from the first beat in to the last beat out, both counted, without stalls.
    pub latency: u64,
    /// Cycles from the first beat of a transform to the first of the next, without stalls.
    pub interval: u64,
    /// Transforms side by side.
    pub transforms: u64,
    /// Butterflies.
    pub butterflies: u64,
    /// Words that enter in a cycle: of a beat, and of factors beside it.
    pub words_in: u64,
    /// Words of a beat that leaves.
    pub words_out: u64,
    /// Bits of a word on the streams.
    pub word_bits: u64,
    /// The orders of the words that enter and of those that leave.
    pub orders: (Order, Order),
    /// DSP slices, exactly.
    pub dsp: u64,
    /// What the other resources depend on.
    pub features: Features,
}

/// Settings of a core that compute the same transform in different ways.
///
/// A new family is a `Family` in a file beside this one, and a line in [`families`].
pub trait Family: Sync {
    /// Its core.
    fn core(&self) -> &'static dyn Core;

    /// Every setting that computes a transform on a technology.
    ///
    /// # Errors
    /// Why there is none, as the end of a sentence that begins with the core's name.
    fn settings(
        &self,
        transform: &Transform,
        technology: Technology,
    ) -> Result<Vec<Values>, String>;

    /// What is known of a setting, cycles by the functions that [`Core::cycles`] has them from; `None` for values that do not
    /// go together.
    ///
    /// `transform` says which of its directions is meant where a setting has both: forward without one.
    fn figures_of(
        &self,
        values: &Values,
        technology: Technology,
        transform: Option<&Transform>,
    ) -> Option<Figures>;

    /// [`figures_of`](Family::figures_of) a forward transform.
    fn figures(&self, values: &Values, technology: Technology) -> Option<Figures> {
        self.figures_of(values, technology, None)
    }

    /// The settings that are synthesized for the resource model.
    fn samples(&self, technology: Technology) -> Vec<Values>;

    /// Settings that are synthesized only to hold the model against them, as they are larger than what it is fitted to.
    fn large_samples(&self, _technology: Technology) -> Vec<Values> {
        Vec::new()
    }
}

/// Every family.
pub fn families() -> &'static [&'static dyn Family] {
    &[
        &super::ntt_elastic::Elastic,
        &super::ntt_inplace::InPlace,
        &super::ntt_rader::Rader,
        &super::ntt_sdf::Feedback,
        &super::ntt_streaming::Streaming,
    ]
}

/// Whether the sample of this place among a family's [`samples`](Family::samples) is kept from fitting: the second and every
/// fourth after it.
pub fn is_held_out(place: usize) -> bool {
    place % 4 == 1
}

/// The parameters that say how many bits the operands of a DSP tile have.
pub(super) fn tiles(technology: Technology) -> [(&'static str, u64); 2] {
    match technology {
        Technology::Xc7 => [("TILE_A", 24), ("TILE_B", 17)],
        Technology::Ecp5 => [("TILE_A", 18), ("TILE_B", 18)],
    }
}

/// A memory's blocks, in units of 36 Kbit.
///
/// The least over the shapes that a block can have, as tools without other constraints choose: of Xilinx 7 series 512 x 72 to
/// 4096 x 9 and half blocks of 512 x 36 to 4096 x 4 (AMD UG473, tables 1-7 to 1-9), of ECP5 half blocks alone
/// (Lattice FPGA-TN-02204).
pub fn memory_blocks(depth: u64, width: u64, technology: Technology) -> f64 {
    const HALVES: [(u64, u64); 6] = [
        (512, 36),
        (1024, 18),
        (2048, 9),
        (4096, 4),
        (8192, 2),
        (16384, 1),
    ];
    const WHOLE: [(u64, u64); 7] = [
        (512, 72),
        (1024, 36),
        (2048, 18),
        (4096, 9),
        (8192, 4),
        (16384, 2),
        (32768, 1),
    ];
    let halves = |shapes: &[(u64, u64)], each: u64| {
        let counts = shapes
            .iter()
            .map(|(rows, bits)| each * depth.div_ceil(*rows) * width.div_ceil(*bits));
        counts.min().unwrap_or(0)
    };
    let least = match technology {
        Technology::Xc7 => halves(&HALVES, 1).min(halves(&WHOLE, 2)),
        Technology::Ecp5 => halves(&HALVES, 1),
    };
    least as f64 / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_take_the_cheapest_shape() {
        // As Yosys maps a bank and the twiddles of 2^14 words on 32 lanes.
        assert_eq!(memory_blocks(512, 64, Technology::Xc7), 1.0);
        assert_eq!(memory_blocks(2644, 1024, Technology::Xc7), 85.5);
        assert_eq!(memory_blocks(1024, 18, Technology::Ecp5), 0.5);
        assert_eq!(memory_blocks(32768, 2, Technology::Xc7), 2.0);
    }
}
