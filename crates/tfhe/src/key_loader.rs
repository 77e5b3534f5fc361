//! Loaders: the bytes of a public key, in order, to the form that computes.

mod parts;

use rayon::prelude::*;
use toroid_ring::simd::SimdLevel;

use crate::TfheError;
use crate::arithmetic::Arithmetic;
use crate::bootstrap::{BootstrappingKey, BootstrappingKeyLoader};
use crate::key_switch::{KeySwitchingKey, KeySwitchingKeyLoader};
use crate::modulus::{Modulus, Torus32};
use crate::params::StageParams;
use crate::seeded::{KeyForm, MaskSeed, SEED_BYTES};

pub use parts::PartsLoader;
pub(crate) use parts::expect_parts;

/// Takes the bytes of a key in order.
pub trait KeyLoader: Sized {
    /// What becomes of them.
    type Key;

    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`TfheError::Length`] for bytes beyond the end, [`TfheError::NotCanonical`] for a word not below the modulus.
    fn write(&mut self, bytes: &[u8]) -> Result<(), TfheError>;

    /// The key, once all bytes are there.
    ///
    /// # Errors
    /// [`TfheError::Length`] where bytes are missing.
    fn finish(self) -> Result<Self::Key, TfheError>;
}

macro_rules! loads {
    ($loader:ident<M $(, $arithmetic:ident)?> => $key:ty) => {
        impl<M: Modulus $(, $arithmetic: Arithmetic<M>)?> KeyLoader
            for $loader<M $(, $arithmetic)?>
        {
            type Key = $key;

            fn write(&mut self, bytes: &[u8]) -> Result<(), TfheError> {
                $loader::write(self, bytes)
            }

            fn finish(self) -> Result<Self::Key, TfheError> {
                $loader::finish(self)
            }
        }
    };
}

loads!(BootstrappingKeyLoader<M, A> => BootstrappingKey<M, A>);
loads!(SeededBootstrappingKeyLoader<M, A> => BootstrappingKey<M, A>);
loads!(KeySwitchingKeyLoader<M> => KeySwitchingKey<M>);
loads!(SeededKeySwitchingKeyLoader<M> => KeySwitchingKey<M>);

/// Takes the bytes of a seeded key apart: the seed, then bodies, a batch at a time.
struct Splitter<M: Modulus> {
    what: &'static str,
    params: StageParams,
    /// Bytes of the whole key, and those taken.
    total: u64,
    taken: u64,
    seed: [u8; SEED_BYTES],
    /// The present batch; every one but the last gets full.
    batch: Vec<M::Word>,
    /// Words of the body of one row or sample.
    unit: usize,
}

impl<M: Modulus> Splitter<M> {
    /// For bodies of `unit` words, handed out up to `units` at a time.
    fn new(
        what: &'static str,
        params: &StageParams,
        total: u64,
        unit: usize,
        units: usize,
    ) -> Self {
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

    /// Hands complete batches to `load`, with the seed and the position of their first row or sample. Refused bytes
    /// do not count.
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
        let seed = MaskSeed::from_bytes(self.seed);
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
    pub fn new(params: &StageParams, simd: SimdLevel) -> Result<Self, TfheError> {
        let loader = BootstrappingKeyLoader::new(params, simd)?;
        let rows = ROWS_PER_THREAD * rayon::current_num_threads();
        Ok(SeededBootstrappingKeyLoader {
            loader,
            splitter: Splitter::new(
                "the seeded bootstrapping key",
                params,
                KeyForm::Seeded.ggsw_list_bytes(params),
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
    pub fn new(params: &StageParams, simd: SimdLevel) -> Result<Self, TfheError> {
        Ok(SeededKeySwitchingKeyLoader {
            loader: KeySwitchingKeyLoader::new(params, simd)?,
            splitter: Splitter::new(
                "the seeded key-switching key",
                params,
                KeyForm::Seeded.key_switching_bytes(params),
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
