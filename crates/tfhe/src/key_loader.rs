//! Loaders: the bytes of a public key, in order, to the form that computes.

mod parts;

use std::marker::PhantomData;

use toroid_ring::simd::SimdLevel;

use crate::TfheError;
use crate::arithmetic::Arithmetic;
use crate::bits;
use crate::bodies;
use crate::bootstrap::{BootstrappingKey, BootstrappingKeyLoader, RowLoader, RowReceiver};
use crate::key_switch::{KeySwitchingKey, KeySwitchingKeyLoader};
use crate::modulus::{Modulus, Torus32};
use crate::parallel;
use crate::params::StageParams;
use crate::seeded::{KeyForm, MaskSeed, SEED_BYTES};

pub use parts::PartsLoader;
pub(crate) use parts::expect_parts;

/// Takes the bytes of a key in order.
pub trait KeyLoader: Sized {
    /// What becomes of them.
    type Key;
    /// Why they are not taken.
    type Error: From<TfheError>;

    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`TfheError::Length`] for bytes beyond the end, [`TfheError::NotCanonical`] for a word not below the modulus; the loader's own.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Self::Error>;

    /// The key, once all bytes are there.
    ///
    /// # Errors
    /// [`TfheError::Length`] where bytes are missing; the loader's own.
    fn finish(self) -> Result<Self::Key, Self::Error>;
}

macro_rules! loads {
    ($loader:ident<M $(, $receiver:ident)?> => $key:ty, $error:ty) => {
        impl<M: Modulus $(, $receiver: RowReceiver<M>)?> KeyLoader for $loader<M $(, $receiver)?> {
            type Key = $key;
            type Error = $error;

            fn write(&mut self, bytes: &[u8]) -> Result<(), Self::Error> {
                $loader::write(self, bytes)
            }

            fn finish(self) -> Result<Self::Key, Self::Error> {
                $loader::finish(self)
            }
        }
    };
}

loads!(RowLoader<M, R> => R::Key, R::Error);
loads!(SeededRowLoader<M, R> => R::Key, R::Error);
loads!(KeySwitchingKeyLoader<M> => KeySwitchingKey<M>, TfheError);
loads!(SeededKeySwitchingKeyLoader<M> => KeySwitchingKey<M>, TfheError);

/// Takes the bytes of a seeded key apart: the seed, then bodies, a batch at a time.
struct Splitter<M: Modulus> {
    what: &'static str,
    params: StageParams,
    /// Bytes of the whole key, and those taken.
    total: u64,
    taken: u64,
    seed: [u8; SEED_BYTES],
    /// The present batch; every one but the last gets full.
    batch: Vec<u8>,
    /// Bits of a coefficient.
    width: u32,
    /// Coefficients of the body of one row or sample: whole bytes.
    unit: usize,
    modulus: PhantomData<M>,
}

impl<M: Modulus> Splitter<M> {
    /// For bodies of `unit` coefficients of `width` bits, handed out up to `units` at a time.
    fn new(
        what: &'static str,
        params: &StageParams,
        total: u64,
        (unit, width): (usize, u32),
        units: usize,
    ) -> Self {
        Splitter {
            what,
            params: *params,
            total,
            taken: 0,
            seed: [0; SEED_BYTES],
            batch: vec![0; bits::bytes(unit, width) * units],
            width,
            unit,
            modulus: PhantomData,
        }
    }

    /// Hands complete batches to `load`, with the seed and the position of their first row or sample. Refused bytes
    /// do not count.
    fn write<E: From<TfheError>>(
        &mut self,
        mut bytes: &[u8],
        mut load: impl FnMut(&MaskSeed, u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let end = self.taken + bytes.len() as u64;
        if end > self.total {
            return Err(self.wrong_length(end).into());
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
        let unit_bytes = bits::bytes(self.unit, self.width) as u64;
        while !bytes.is_empty() {
            let position = self.taken - SEED_BYTES as u64;
            let at = (position % self.batch.len() as u64) as usize;
            let (now, later) = bytes.split_at(bytes.len().min(self.batch.len() - at));
            let filled = at + now.len();
            self.batch[at..filled].copy_from_slice(now);
            self.taken += now.len() as u64;
            bytes = later;
            if filled == self.batch.len() || self.taken == self.total {
                let first = (position - at as u64) / unit_bytes;
                load(&seed, first, &self.batch[..filled])?;
            }
        }
        Ok(())
    }

    /// Refuses bytes that complete a coefficient which is not below q.
    fn check(&self, bytes: &[u8]) -> Result<(), TfheError> {
        let bodies = &bytes[bytes
            .len()
            .min((SEED_BYTES as u64).saturating_sub(self.taken) as usize)..];
        let width = self.width as usize;
        let position = self.taken.max(SEED_BYTES as u64) - SEED_BYTES as u64;
        let refuse = |word: u64, index: u64| {
            if M::is_canonical(M::from_u64_torus(word)) {
                return Ok(());
            }
            Err(TfheError::NotCanonical {
                what: self.what,
                index,
            })
        };
        // The coefficient that the bytes taken so far end in the middle of, and its bits.
        let mut index = 8 * position / width as u64;
        let begun = (8 * position % width as u64) as usize;
        let mut first = 0;
        if begun > 0 {
            let at = (position % self.batch.len() as u64) as usize;
            let head = &self.batch[at - begun.div_ceil(8)..at];
            let mut window = [0; 24];
            window[..head.len()].copy_from_slice(head);
            let rest = &bodies[..bodies.len().min(16)];
            window[head.len()..][..rest.len()].copy_from_slice(rest);
            first = width - begun;
            if first > 8 * bodies.len() {
                return Ok(());
            }
            let word = bodies::coefficient(&window, 8 * head.len() - begun, self.width);
            refuse(word, index)?;
            index += 1;
        }
        let end = (8 * bodies.len() + 1).saturating_sub(width);
        for first in (first..end).step_by(width) {
            refuse(bodies::coefficient(bodies, first, self.width), index)?;
            index += 1;
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
pub type SeededBootstrappingKeyLoader<M, A> = SeededRowLoader<M, BootstrappingKey<M, A>>;

/// Takes a seeded bootstrapping key's bytes in order, expands them, and hands its rows to a receiver.
pub struct SeededRowLoader<M: Modulus, R> {
    loader: RowLoader<M, R>,
    splitter: Splitter<M>,
    rows: Vec<M::Word>,
}

impl<M: Modulus, A: Arithmetic<M>> SeededRowLoader<M, BootstrappingKey<M, A>> {
    /// Room for the key of a parameter set, with the kernels of `simd`.
    ///
    /// # Errors
    /// Those of [`BootstrappingKeyLoader::new`].
    pub fn new(params: &StageParams, simd: SimdLevel) -> Result<Self, TfheError> {
        let loader = BootstrappingKeyLoader::new(params, simd)?;
        Ok(Self::with_loader(KeyForm::Seeded, loader))
    }

    /// The same for a key in whole words, [`KeyForm::SeededWords`].
    ///
    /// # Errors
    /// Those of [`BootstrappingKeyLoader::new`].
    pub fn of_words(params: &StageParams, simd: SimdLevel) -> Result<Self, TfheError> {
        let loader = BootstrappingKeyLoader::new(params, simd)?;
        Ok(Self::with_loader(KeyForm::SeededWords, loader))
    }

    /// Room for the unrolled key of a parameter set, whose bytes come in one of the seeded forms.
    ///
    /// # Errors
    /// Those of [`BootstrappingKeyLoader::unrolled`].
    pub fn unrolled(
        params: &StageParams,
        form: KeyForm,
        simd: SimdLevel,
    ) -> Result<Self, TfheError> {
        let loader = BootstrappingKeyLoader::unrolled(params, simd)?;
        Ok(Self::with_loader(form, loader))
    }
}

impl<M: Modulus, R: RowReceiver<M>> SeededRowLoader<M, R> {
    /// For a key in one of the seeded forms, whose rows go to a loader that has none yet.
    #[must_use]
    pub fn with_loader(form: KeyForm, loader: RowLoader<M, R>) -> Self {
        let params = *loader.params();
        let rows = ROWS_PER_THREAD * rayon::current_num_threads();
        SeededRowLoader {
            loader,
            splitter: Splitter::new(
                "the seeded bootstrapping key",
                &params,
                form.ggsw_list_bytes(&params),
                (params.ring_degree, form.body_width(&params)),
                rows,
            ),
            rows: vec![M::Word::default(); rows * params.glwe_words()],
        }
    }

    /// Takes the next bytes; refused ones do not count.
    ///
    /// # Errors
    /// [`TfheError::Length`] for bytes beyond the end, [`TfheError::NotCanonical`] for a word not below q; the receiver's.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), R::Error> {
        let SeededRowLoader {
            loader,
            splitter,
            rows,
        } = self;
        let (params, width) = (splitter.params, splitter.width);
        let body_bytes = bits::bytes(params.ring_degree, width);
        splitter.write(bytes, |seed, first, bodies| {
            let count = bodies.len() / body_bytes;
            let rows = &mut rows[..count * params.glwe_words()];
            let pairs = rows
                .chunks_exact_mut(params.glwe_words())
                .zip(bodies.chunks_exact(body_bytes));
            parallel::for_each(pairs, |index, (row, body)| {
                let (masks, row_body) = row.split_at_mut(params.extracted_dimension());
                seed.expand_row::<M>(first + index as u64, masks);
                bodies::unpack::<M>(body, width, row_body);
            });
            loader.write_coefficients(rows)
        })
    }

    /// The key, once all bytes are there.
    ///
    /// # Errors
    /// [`TfheError::Length`] where bytes are missing; the receiver's.
    pub fn finish(self) -> Result<R::Key, R::Error> {
        self.splitter.finish()?;
        self.loader.finish()
    }
}

/// A word of a key-switching key.
const WORD_BYTES: usize = 4;
const WORD_BITS: u32 = 32;

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
                (1, WORD_BITS),
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
            loader.write_samples(bodies.len() / WORD_BYTES, |index, sample| {
                let (mask, body) = sample.split_at_mut(sample.len() - 1);
                seed.expand_sample(first + index as u64, mask);
                bodies::unpack::<Torus32>(&bodies[WORD_BYTES * index..], WORD_BITS, body);
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
