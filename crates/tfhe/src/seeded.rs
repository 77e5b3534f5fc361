//! Seeded public keys: masks stand as the seed that they are expanded from, bodies as words of the modulus.
//!
//! A seeded key is [`SEED_BYTES`] of seed, then the bodies of its samples in the order of the expanded key: n·l·(k+1)
//! polynomials of N coefficients for a bootstrapping key, t·k·N words of the 32-bit torus for a key-switching key. Masks are keystreams of
//! ChaCha20 (64-bit block counter from 0, 64-bit nonce) under the seed, one for every GGSW row and every key-switching
//! sample, so that any of them can be expanded alone. The nonce has the purpose in its top byte (1: rows, 2: samples) and
//! the position of the row or sample below. A mask is as many little-endian words of its keystream, in the coefficient
//! domain and in their order; over the Goldilocks prime, words not below p are replaced, in the order of their places, by
//! the next words of the keystream that are.
//!
//! A seed is public and belongs to one key. It comes from a stream of the client's generator that serves nothing else
//! ([`crate::random`]).

use rayon::prelude::*;
use toroid_ring::simd::SimdLevel;

use crate::TfheError;
use crate::arithmetic::Arithmetic;
use crate::bootstrap::{BootstrappingKey, BootstrappingKeyLoader};
use crate::key_switch::{KeySwitchingKey, KeySwitchingKeyLoader};
use crate::modulus::{Modulus, Torus32};
use crate::params::ParamSet;
use crate::random::{self, Csprng};

/// Bytes of a seed.
pub const SEED_BYTES: usize = 32;

const PURPOSE_ROW: u64 = 1 << 56;
const PURPOSE_SAMPLE: u64 = 2 << 56;

/// How a public key is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyForm {
    /// Seed and bodies.
    Seeded,
    /// All words, as Table 3 of the platform paper counts them (BKNTT, KSK).
    Expanded,
}

impl KeyForm {
    /// Both forms.
    pub const ALL: [KeyForm; 2] = [KeyForm::Seeded, KeyForm::Expanded];

    /// Bytes of a bootstrapping key: 32 + n·l·(k+1)·N·w, or those of [`ParamSet::bootstrapping_key_bytes`].
    #[must_use]
    pub const fn bootstrapping_key_bytes(self, params: &ParamSet) -> u64 {
        match self {
            KeyForm::Seeded => {
                if let Some(wopbs) = params.wopbs {
                    let [first, second, third] = wopbs.bootstrapping_parts();
                    return self.bootstrapping_key_bytes(first)
                        + self.bootstrapping_key_bytes(second)
                        + self.bootstrapping_key_bytes(third);
                }
                let rows = params.lwe_dimension as u64 * params.ggsw_rows() as u64;
                let body = params.ring_degree * params.modulus.word_bytes();
                SEED_BYTES as u64 + rows * body as u64
            }
            KeyForm::Expanded => params.bootstrapping_key_bytes(),
        }
    }

    /// Bytes of a key-switching key: 32 + t·k·N·4, or those of [`ParamSet::key_switching_key_bytes`].
    #[must_use]
    pub const fn key_switching_key_bytes(self, params: &ParamSet) -> u64 {
        match self {
            KeyForm::Seeded => match params.wopbs {
                None => (SEED_BYTES + 4 * params.key_switching_samples()) as u64,
                Some(wopbs) => {
                    let [first, second] = wopbs.key_switching_parts();
                    self.key_switching_key_bytes(first) + self.key_switching_key_bytes(second)
                }
            },
            KeyForm::Expanded => params.key_switching_key_bytes(),
        }
    }
}

/// The public seed of one key's masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskSeed([u8; SEED_BYTES]);

impl MaskSeed {
    /// A fresh seed, from the generator's public stream.
    #[must_use]
    pub fn generate(rng: &mut Csprng) -> MaskSeed {
        MaskSeed(rng.public_seed())
    }

    /// The seed that these bytes are.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; SEED_BYTES]) -> MaskSeed {
        MaskSeed(bytes)
    }

    /// The bytes at the head of a seeded key.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; SEED_BYTES] {
        &self.0
    }

    /// The masks, k·N coefficients, of row `row` of a bootstrapping key, counted from its first GGSW sample on.
    pub fn expand_row<M: Modulus>(&self, row: u64, masks: &mut [M::Word]) {
        self.expand::<M>(PURPOSE_ROW | row, masks);
    }

    /// The mask, n words, of sample `sample` of a key-switching key.
    pub fn expand_sample(&self, sample: u64, mask: &mut [u32]) {
        self.expand::<Torus32>(PURPOSE_SAMPLE | sample, mask);
    }

    fn expand<M: Modulus>(&self, nonce: u64, words: &mut [M::Word]) {
        random::fill_uniform::<M>(&mut random::stream(&self.0, nonce), words);
    }
}

/// Takes the bytes of a seeded key apart: the seed, then bodies, a batch at a time.
struct Splitter<M: Modulus> {
    what: &'static str,
    params: ParamSet,
    /// Bytes of the whole key, and those taken.
    total: u64,
    taken: u64,
    seed: [u8; SEED_BYTES],
    /// The batch under way; full but for the last one.
    batch: Vec<M::Word>,
    /// Words of the body of one row or sample.
    unit: usize,
}

impl<M: Modulus> Splitter<M> {
    /// For bodies of `unit` words, handed out up to `units` at a time.
    fn new(what: &'static str, params: &ParamSet, total: u64, unit: usize, units: usize) -> Self {
        Splitter {
            what,
            params: *params,
            total,
            taken: 0,
            seed: [0; SEED_BYTES],
            batch: vec![M::Word::default(); unit * units],
            unit,
        }
    }

    /// Hands complete batches to `load`, with the seed and the position of their first row or sample. Nothing is taken of
    /// bytes that are refused.
    fn write(
        &mut self,
        mut bytes: &[u8],
        mut load: impl FnMut(&MaskSeed, u64, &[M::Word]) -> Result<(), TfheError>,
    ) -> Result<(), TfheError> {
        let end = self.taken + bytes.len() as u64;
        if end > self.total {
            return Err(self.wrong_length(end));
        }
        self.check(bytes)?;
        if self.taken < SEED_BYTES as u64 {
            let at = self.taken as usize;
            let (seed, bodies) = bytes.split_at(bytes.len().min(SEED_BYTES - at));
            self.seed[at..at + seed.len()].copy_from_slice(seed);
            self.taken += seed.len() as u64;
            bytes = bodies;
        }
        let seed = MaskSeed(self.seed);
        let batch_bytes = size_of_val(self.batch.as_slice());
        while !bytes.is_empty() {
            let position = self.taken - SEED_BYTES as u64;
            let at = (position % batch_bytes as u64) as usize;
            let (now, later) = bytes.split_at(bytes.len().min(batch_bytes - at));
            let filled = at + now.len();
            bytemuck::cast_slice_mut::<_, u8>(&mut self.batch)[at..filled].copy_from_slice(now);
            self.taken += now.len() as u64;
            bytes = later;
            if filled == batch_bytes || self.taken == self.total {
                let word_bytes = size_of::<M::Word>();
                let first = (position - at as u64) / (self.unit * word_bytes) as u64;
                load(&seed, first, &self.batch[..filled / word_bytes])?;
            }
        }
        Ok(())
    }

    /// Refuses bytes that complete a word which is not below q.
    fn check(&self, bytes: &[u8]) -> Result<(), TfheError> {
        let word_bytes = size_of::<M::Word>() as u64;
        let bodies = &bytes[bytes
            .len()
            .min((SEED_BYTES as u64).saturating_sub(self.taken) as usize)..];
        let position = self.taken.max(SEED_BYTES as u64) - SEED_BYTES as u64;
        // The word that the bytes taken so far end in the middle of.
        let begun = (position % word_bytes) as usize;
        let at = (position % size_of_val(self.batch.as_slice()) as u64) as usize;
        let mut word = [M::Word::default()];
        let (head, rest) = match begun {
            0 => (&bodies[..0], bodies),
            _ => bodies.split_at(bodies.len().min(word_bytes as usize - begun)),
        };
        let refused = |index: u64| TfheError::NotCanonical {
            what: self.what,
            index,
        };
        let index = position / word_bytes;
        if begun + head.len() == word_bytes as usize {
            let room: &mut [u8] = bytemuck::cast_slice_mut(&mut word);
            room[..begun]
                .copy_from_slice(&bytemuck::cast_slice::<_, u8>(&self.batch)[at - begun..at]);
            room[begun..].copy_from_slice(head);
            if !M::is_canonical(word[0]) {
                return Err(refused(index));
            }
        }
        let first = index + u64::from(begun != 0);
        for (chunk, index) in rest.chunks_exact(word_bytes as usize).zip(first..) {
            bytemuck::cast_slice_mut::<_, u8>(&mut word).copy_from_slice(chunk);
            if !M::is_canonical(word[0]) {
                return Err(refused(index));
            }
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), TfheError> {
        if self.taken == self.total {
            Ok(())
        } else {
            Err(self.wrong_length(self.taken))
        }
    }

    fn wrong_length(&self, found: u64) -> TfheError {
        TfheError::Length {
            what: self.what,
            params: self.params.name,
            expected: self.total,
            found,
        }
    }
}

/// Rows that a thread expands at a time, before they are transformed: large enough to share among threads, small enough to
/// stay in the cache.
const ROWS_PER_THREAD: usize = 8;

/// Takes a seeded bootstrapping key's bytes in order and expands them into the form that an [`Arithmetic`] computes with.
pub struct SeededBootstrappingKeyLoader<M: Modulus, A: Arithmetic<M>> {
    loader: BootstrappingKeyLoader<M, A>,
    splitter: Splitter<M>,
    rows: Vec<M::Word>,
}

impl<M: Modulus, A: Arithmetic<M>> SeededBootstrappingKeyLoader<M, A> {
    /// Room for the key of a parameter set, with the kernels of `simd`.
    ///
    /// # Errors
    /// Those of [`BootstrappingKeyLoader::new`].
    pub fn new(params: &ParamSet, simd: SimdLevel) -> Result<Self, TfheError> {
        let loader = BootstrappingKeyLoader::new(params, simd)?;
        let rows = ROWS_PER_THREAD * rayon::current_num_threads();
        Ok(SeededBootstrappingKeyLoader {
            loader,
            splitter: Splitter::new(
                "the seeded bootstrapping key",
                params,
                KeyForm::Seeded.bootstrapping_key_bytes(params),
                params.ring_degree,
                rows,
            ),
            rows: vec![M::Word::default(); rows * params.glwe_words()],
        })
    }

    /// Takes the next bytes; refused ones do not count.
    ///
    /// # Errors
    /// [`TfheError::Length`] for bytes beyond the end, [`TfheError::NotCanonical`] for a word not below q.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), TfheError> {
        let SeededBootstrappingKeyLoader {
            loader,
            splitter,
            rows,
        } = self;
        let params = splitter.params;
        splitter.write(bytes, |seed, first, bodies| {
            let count = bodies.len() / params.ring_degree;
            let rows = &mut rows[..count * params.glwe_words()];
            rows.par_chunks_exact_mut(params.glwe_words())
                .zip(bodies.par_chunks_exact(params.ring_degree))
                .enumerate()
                .for_each(|(index, (row, body))| {
                    let (masks, row_body) = row.split_at_mut(params.extracted_dimension());
                    seed.expand_row::<M>(first + index as u64, masks);
                    row_body.copy_from_slice(body);
                });
            loader.write_coefficients(rows)
        })
    }

    /// The key, once all bytes are there.
    ///
    /// # Errors
    /// [`TfheError::Length`] where bytes are missing.
    pub fn finish(self) -> Result<BootstrappingKey<M, A>, TfheError> {
        self.splitter.finish()?;
        self.loader.finish()
    }
}

/// Samples of a key-switching key that are expanded in one go.
const SAMPLES_PER_BATCH: usize = 1 << 12;

/// Takes a seeded key-switching key's bytes in order and expands them.
pub struct SeededKeySwitchingKeyLoader<M: Modulus> {
    loader: KeySwitchingKeyLoader<M>,
    splitter: Splitter<Torus32>,
}

impl<M: Modulus> SeededKeySwitchingKeyLoader<M> {
    /// Room for the key of a parameter set, with the kernels of `simd`.
    ///
    /// # Errors
    /// Those of [`KeySwitchingKeyLoader::new`].
    pub fn new(params: &ParamSet, simd: SimdLevel) -> Result<Self, TfheError> {
        Ok(SeededKeySwitchingKeyLoader {
            loader: KeySwitchingKeyLoader::new(params, simd)?,
            splitter: Splitter::new(
                "the seeded key-switching key",
                params,
                KeyForm::Seeded.key_switching_key_bytes(params),
                1,
                SAMPLES_PER_BATCH,
            ),
        })
    }

    /// Takes the next bytes; refused ones do not count.
    ///
    /// # Errors
    /// [`TfheError::Length`] for bytes beyond the end.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), TfheError> {
        let SeededKeySwitchingKeyLoader { loader, splitter } = self;
        splitter.write(bytes, |seed, first, bodies| {
            loader.write_samples(bodies.len(), |index, sample| {
                let (mask, body) = sample.split_at_mut(sample.len() - 1);
                seed.expand_sample(first + index as u64, mask);
                body[0] = bodies[index];
            })
        })
    }

    /// The key, once all bytes are there.
    ///
    /// # Errors
    /// [`TfheError::Length`] where bytes are missing.
    pub fn finish(self) -> Result<KeySwitchingKey<M>, TfheError> {
        self.splitter.finish()?;
        self.loader.finish()
    }
}
