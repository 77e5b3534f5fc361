//! What wide functions are made of, whatever arithmetic does them: constants, test vectors and tables.

use std::marker::PhantomData;

use crate::TfheError;
use crate::encoding::Encoding;
use crate::glwe;
use crate::modulus::Modulus;
use crate::params::{Gadget, ParamSet, WopbsParams};

use super::digits::Digits;

/// The words of a set's wide functions, but for those of its keys.
#[derive(Clone, Copy, Debug)]
pub struct Plan<M> {
    params: ParamSet,
    stages: &'static WopbsParams,
    modulus: PhantomData<M>,
}

impl<M: Modulus> Plan<M> {
    /// Of a set.
    ///
    /// # Errors
    /// [`TfheError::NotWopbs`], [`TfheError::ModulusMismatch`].
    pub fn new(params: &ParamSet) -> Result<Self, TfheError> {
        if params.modulus != M::KIND {
            return Err(TfheError::ModulusMismatch(params.name));
        }
        Ok(Plan {
            params: *params,
            stages: super::stages(params)?,
            modulus: PhantomData,
        })
    }

    /// The stages.
    #[must_use]
    pub fn stages(&self) -> &'static WopbsParams {
        self.stages
    }

    /// Refuses messages of so many bits where the set has none.
    ///
    /// # Errors
    /// [`TfheError::MessageBits`], [`TfheError::MessageTooWide`].
    pub fn check_bits(&self, count: u32) -> Result<(), TfheError> {
        glwe::expect_width(&self.params, Encoding::new(count, false)?)
    }

    /// Half of what bit `bit` is worth in its place of a message of `count` bits: what an extraction's value is off the bit's.
    #[must_use]
    pub fn place(&self, count: u32, bit: u32) -> M::Word {
        M::encode(1 << bit, count + 2)
    }

    /// By how many bits a sample is shifted, so that bit `bit` of `count` is at 1/2 of the torus and what is above it gone.
    #[must_use]
    pub fn shift(&self, count: u32, bit: u32) -> u32 {
        count - bit
    }

    /// Added to the body of an extraction's sample: brings 0 to 1/4 and 1 to 3/4, the halves of a test vector.
    #[must_use]
    pub fn quarter(&self) -> M::Word {
        M::encode(1, 2)
    }

    /// The test vector of an extraction ((k+1)·N words): half of every level of the circuit's gadget, then `place`
    /// ([`Self::place`]), over and over.
    #[must_use]
    pub fn slots(&self, place: M::Word) -> Vec<M::Word> {
        let levels = self.stages.circuit.gadget.levels;
        let mut slots = vec![M::Word::default(); 1 << self.stages.log2_slots()];
        for (level, slot) in slots.iter_mut().enumerate() {
            if level < levels {
                *slot = self.half_level(level);
            } else if level == levels {
                *slot = place;
            }
        }
        let mut vector = vec![M::Word::default(); self.params.glwe_words()];
        for (index, word) in vector[self.params.extracted_dimension()..]
            .iter_mut()
            .enumerate()
        {
            *word = slots[index % slots.len()];
        }
        vector
    }

    /// Half of a level of the circuit's gadget.
    #[must_use]
    pub fn half_level(&self, level: usize) -> M::Word {
        // In base 2, one level further down.
        let bits = self.stages.circuit.gadget.log2_base as usize * (level + 1);
        let halves = Gadget {
            levels: bits + 1,
            log2_base: 1,
        };
        M::gadget_value(halves, bits)
    }

    /// The exponents by which the bits of a message of `count` bits turn the polynomial that the bits above have selected, from the lowest
    /// bit up.
    #[must_use]
    pub fn turns(&self, count: u32) -> Vec<usize> {
        let n = self.params.ring_degree;
        (0..count.min(n.trailing_zeros()))
            .map(|bit| 2 * n - (1 << bit))
            .collect()
    }

    /// How many bits of a message of `count` bits select a polynomial of its table.
    #[must_use]
    pub fn depth(&self, count: u32) -> u32 {
        count.saturating_sub(self.params.ring_degree.trailing_zeros())
    }

    /// The function of a test vector (2^p words) of messages of `count` bits, 1 to p, in digits.
    #[must_use]
    pub fn function(&self, test_vector: &[M::Word], count: u32) -> Digits<M> {
        // Each message's own entry, in the middle of those about its place.
        let step = 1 << (self.params.message_bits - count);
        Digits::new(&self.params, self.stages, test_vector.iter().step_by(step))
    }
}
