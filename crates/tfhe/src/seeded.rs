//! Seeded public keys: a seed replaces the masks, which expand from it.
//!
//! A seeded key is [`SEED_BYTES`] of seed, then the bodies of its samples in the order of the expanded key: n·l·(k+1)
//! polynomials of N coefficients for a bootstrapping key, t·k·N words of the 32-bit torus for a key-switching key. A coefficient is as many bits
//! as its body is rounded to ([`crate::bodies`]), without gaps, the lowest bit first. Before bodies were rounded it was a whole word: [`KeyForm::SeededWords`]. Masks are keystreams of
//! ChaCha20 (64-bit block counter from 0, 64-bit nonce) under the seed, one for every GGSW row and every key-switching
//! sample, so that any of them can be expanded alone. The nonce has the purpose in its top byte (1: rows, 2: samples) and
//! the position of the row or sample below. A mask is as many little-endian words of its keystream, in the coefficient
//! domain and in their order; over the Goldilocks prime, words not below p are replaced, in the order of their places, by
//! the next words of the keystream that are.
//!
//! Fresh chunks of columns ([`crate::column`]) have seeded masks too, with purpose 3, and polynomials over other moduli, with
//! purpose 4. Chunks that were encrypted together have seeds that one seed gives, with purpose 5: each the first bytes of a keystream of its own.
//!
//! A seed is public and belongs to one key, or to one chunk. It comes from the stream of the client's generator that gives what is published
//! ([`crate::random`]).

use chacha20::rand_core::Rng as _;

use crate::bits;
use crate::modulus::{Modulus, Torus32};
use crate::params::{ParamSet, StageParams};
use crate::random::{self, Csprng};

/// Bytes of a seed.
pub const SEED_BYTES: usize = 32;

const PURPOSE_ROW: u64 = 1 << 56;
const PURPOSE_SAMPLE: u64 = 2 << 56;
const PURPOSE_CHUNK: u64 = 3 << 56;
const PURPOSE_RESIDUES: u64 = 4 << 56;
const PURPOSE_SEED: u64 = 5 << 56;

/// The form of a public key's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyForm {
    /// Seed and packed bodies.
    Seeded,
    /// Seed and bodies in whole words. Key-switching keys have the same bytes as in the form before.
    SeededWords,
    /// All words, as Table 3 of the platform paper counts them (BKNTT, KSK).
    Expanded,
}

impl KeyForm {
    /// All forms.
    pub const ALL: [KeyForm; 3] = [KeyForm::Seeded, KeyForm::SeededWords, KeyForm::Expanded];

    /// Bits of a coefficient of a seeded bootstrapping key's body.
    pub(crate) const fn body_width(self, stage: &StageParams) -> u32 {
        match self {
            KeyForm::Seeded => stage.body_bits,
            KeyForm::SeededWords | KeyForm::Expanded => 8 * stage.modulus.word_bytes() as u32,
        }
    }

    /// Bytes of a bootstrapping key: [`KeyForm::ggsw_list_bytes`] of its parts.
    #[must_use]
    pub fn bootstrapping_key_bytes(self, params: &ParamSet) -> u64 {
        let parts = params.bootstrapping_parts().into_iter();
        parts.map(|part| self.ggsw_list_bytes(part)).sum()
    }

    /// Bytes of a key-switching key: [`KeyForm::key_switching_bytes`] of its parts.
    #[must_use]
    pub fn key_switching_key_bytes(self, params: &ParamSet) -> u64 {
        let parts = params.key_switching_parts().into_iter();
        parts.map(|part| self.key_switching_bytes(part)).sum()
    }

    /// Bytes of the GGSW samples of one stage: 32 + n·l·(k+1)·N·b/8 for bodies of b bits, or [`StageParams::ggsw_list_bytes`].
    #[must_use]
    pub const fn ggsw_list_bytes(self, stage: &StageParams) -> u64 {
        match self {
            KeyForm::Seeded | KeyForm::SeededWords => {
                let rows = stage.lwe_dimension as u64 * stage.ggsw_rows() as u64;
                let body = bits::bytes(stage.ring_degree, self.body_width(stage));
                SEED_BYTES as u64 + rows * body as u64
            }
            KeyForm::Expanded => stage.ggsw_list_bytes(),
        }
    }

    /// Bytes of the key-switching samples of one stage: 32 + t·k·N·4, or [`StageParams::key_switching_bytes`].
    #[must_use]
    pub const fn key_switching_bytes(self, stage: &StageParams) -> u64 {
        match self {
            KeyForm::Seeded | KeyForm::SeededWords => {
                (SEED_BYTES + 4 * stage.key_switching_samples()) as u64
            }
            KeyForm::Expanded => stage.key_switching_bytes(),
        }
    }
}

/// The public seed of the masks of one key, or of one chunk of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskSeed([u8; SEED_BYTES]);

impl MaskSeed {
    /// A fresh seed, from the generator's public stream.
    #[must_use]
    pub fn generate(rng: &mut Csprng) -> MaskSeed {
        MaskSeed(rng.public_bytes())
    }

    /// The seed that these bytes are.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; SEED_BYTES]) -> MaskSeed {
        MaskSeed(bytes)
    }

    /// The bytes at the head of a seeded key or chunk.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; SEED_BYTES] {
        &self.0
    }

    /// The seed of chunk `number`, below 2^56, of chunks that were encrypted together under this one.
    #[must_use]
    pub fn of_chunk(&self, number: u64) -> MaskSeed {
        let mut seed = [0; SEED_BYTES];
        random::stream(&self.0, PURPOSE_SEED | number).fill_bytes(&mut seed);
        MaskSeed(seed)
    }

    /// The masks, k·N coefficients, of row `row` of a bootstrapping key, counted from its first GGSW sample on.
    pub fn expand_row<M: Modulus>(&self, row: u64, masks: &mut [M::Word]) {
        self.expand::<M>(PURPOSE_ROW | row, masks);
    }

    /// The mask, n words, of sample `sample` of a key-switching key.
    pub fn expand_sample(&self, sample: u64, mask: &mut [u32]) {
        self.expand::<Torus32>(PURPOSE_SAMPLE | sample, mask);
    }

    /// Masks of a chunk of a column: k·N words number 0 that all rows share, or the n words of row `number`.
    pub fn expand_chunk<M: Modulus>(&self, number: u64, masks: &mut [M::Word]) {
        self.expand::<M>(PURPOSE_CHUNK | number, masks);
    }

    /// Polynomial `number`, below 2^56, of an object whose modulus is any `q` above 0: words of the keystream, those not below the
    /// largest multiple of q replaced by the next that are, in the order of their places, and all of them reduced.
    pub fn expand_residues(&self, number: u64, q: u64, words: &mut [u64]) {
        random::fill_residues(
            &mut random::stream(&self.0, PURPOSE_RESIDUES | number),
            q,
            words,
        );
    }

    fn expand<M: Modulus>(&self, nonce: u64, words: &mut [M::Word]) {
        random::fill_uniform::<M>(&mut random::stream(&self.0, nonce), words);
    }
}

/// The mask that a seed gives for row or sample `number`.
#[derive(Clone, Copy)]
pub(crate) struct SeededMask<'a> {
    pub(crate) seed: &'a MaskSeed,
    pub(crate) number: u64,
}
