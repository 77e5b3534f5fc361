//! Public functional key switching from dimension k·N back to n (KEY_SWITCH).
//!
//! out = (0, b) - sum_i sum_j d_ij·KSK_ij, where d_ij are the signed digits of mask word a_i and KSK_ij encrypts
//! s'_i·2^(32 - beta·(j+1)). The key's words are of the 32-bit torus for both moduli: LWE noise is 128 of their units at least, so
//! that more bits would carry nothing, and the switch of one sample is bound by reading the key once, t·k·N·(n+1) words. Samples that are
//! switched together share that reading. The sum is made modulo 2^32 and brought to the ciphertext modulus at the end.

use std::ops::Range;

use toroid_ring::multiversion;
use toroid_ring::simd::SimdLevel;

use crate::TfheError;
use crate::lwe::{self, check_words};
use crate::memory::Buffer;
use crate::modulus::{DigitField, Modulus, Torus32};
use crate::parallel::{self, Run, in_parallel};
use crate::params::StageParams;

/// A key-switching key: `[k·N][t]` LWE samples of n+1 words of the 32-bit torus.
pub struct KeySwitchingKey<M: Modulus> {
    params: StageParams,
    words: Buffer,
    simd: SimdLevel,
    modulus: std::marker::PhantomData<M>,
}

/// Takes a key-switching key's bytes (KSK of Table 3) in order.
pub struct KeySwitchingKeyLoader<M: Modulus> {
    key: KeySwitchingKey<M>,
    filled: usize,
}

impl<M: Modulus> KeySwitchingKeyLoader<M> {
    /// Room for the key of a parameter set, with the kernels of `simd`.
    ///
    /// # Errors
    /// [`TfheError::ModulusMismatch`], or the system's refusal of memory.
    pub fn new(params: &StageParams, simd: SimdLevel) -> Result<Self, TfheError> {
        if params.modulus != M::KIND {
            return Err(TfheError::ModulusMismatch(params.name));
        }
        if !simd.is_available() {
            return Err(toroid_ring::RingError::SimdLevelUnavailable(simd).into());
        }
        let bytes = params.key_switching_bytes() as usize;
        Ok(KeySwitchingKeyLoader {
            key: KeySwitchingKey {
                params: *params,
                words: Buffer::new(bytes.div_ceil(8))?,
                simd,
                modulus: std::marker::PhantomData,
            },
            filled: 0,
        })
    }

    /// Takes the next bytes; refused ones do not count.
    ///
    /// # Errors
    /// [`TfheError::Length`] for bytes beyond the end.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), TfheError> {
        let end = self.filled + bytes.len();
        if end as u64 > self.key.params.key_switching_bytes() {
            return Err(self.wrong_length(end as u64));
        }
        self.key.words.bytes_mut()[self.filled..end].copy_from_slice(bytes);
        self.filled = end;
        Ok(())
    }

    /// Has the next `count` samples filled in, in parallel: `fill` is given a sample's position among
    /// them and its n + 1 words. Nothing else may be half-written.
    ///
    /// # Errors
    /// [`TfheError::Length`] for samples beyond the end.
    pub(crate) fn write_samples(
        &mut self,
        count: usize,
        fill: impl Fn(usize, &mut [u32]) + Sync,
    ) -> Result<(), TfheError> {
        let sample_bytes = 4 * self.key.params.lwe_words();
        let end = self.filled + count * sample_bytes;
        if end as u64 > self.key.params.key_switching_bytes() {
            return Err(self.wrong_length(end as u64));
        }
        let room = &mut self.key.words.bytes_mut()[self.filled..end];
        let words = bytemuck::cast_slice_mut::<u8, u32>(room);
        parallel::for_each(words.chunks_exact_mut(self.key.params.lwe_words()), fill);
        self.filled = end;
        Ok(())
    }

    /// The key, once all bytes are there.
    ///
    /// # Errors
    /// [`TfheError::Length`] where bytes are missing.
    pub fn finish(self) -> Result<KeySwitchingKey<M>, TfheError> {
        if self.filled as u64 != self.key.params.key_switching_bytes() {
            return Err(self.wrong_length(self.filled as u64));
        }
        Ok(self.key)
    }

    fn wrong_length(&self, found: u64) -> TfheError {
        TfheError::Length {
            what: "the key-switching key",
            params: self.key.params.name,
            expected: self.key.params.key_switching_bytes(),
            found,
        }
    }
}

/// Mask words whose digits are cut at once, which is cheaper than word by word.
const DIGITS_AT_ONCE: usize = 64;

/// Rows that are added to a sum in one pass over it: all levels of an index at most sets.
const ROWS_AT_ONCE: usize = 5;

/// The most samples that share the reading of a key: their sums, some 4 KiB each, stay in the second level of cache.
const SAMPLES_AT_ONCE: usize = 32;

/// One sample to switch: see [`KeySwitchingKey::switch_all`].
pub struct Switch<'a, M: Modulus> {
    /// The sample of dimension k·N, k·N + 1 words.
    pub extracted: &'a [M::Word],
    /// Receives the sample of dimension n, n + 1 words.
    pub out: &'a mut [M::Word],
}

multiversion! {
    /// The digits of `words` that `field` describes, modulo 2^32.
    fn cut<M: Modulus>(digits: &mut [u32], words: &[M::Word], field: DigitField) {
        for (digit, word) in digits.iter_mut().zip(words) {
            *digit = M::digit(*word, field).cast_unsigned();
        }
    }
}

multiversion! {
    /// sum += sum_i sum_j d_ij·rows_ij, modulo 2^32, of every sample, over some indices of a key of `levels` rows of `words` words an
    /// index. A sample has `levels`·[`DIGITS_AT_ONCE`] digits: d_ij is at j·[`DIGITS_AT_ONCE`] + i.
    fn accumulate(sums: &mut [u32], words: usize, rows: &[u32], digits: &[u32], levels: usize) {
        for (index, rows) in rows.chunks_exact(levels * words).enumerate() {
            let of_samples = digits.chunks_exact(levels * DIGITS_AT_ONCE);
            for (sum, digits) in sums.chunks_exact_mut(words).zip(of_samples) {
                let groups = (0..levels).step_by(ROWS_AT_ONCE);
                for (rows, level) in rows.chunks(ROWS_AT_ONCE * words).zip(groups) {
                    let d = |row: usize| digits[(level + row) * DIGITS_AT_ONCE + index];
                    match levels - level {
                        1 => add_multiples(sum, rows, [d(0)]),
                        2 => add_multiples(sum, rows, [d(0), d(1)]),
                        3 => add_multiples(sum, rows, [d(0), d(1), d(2)]),
                        4 => add_multiples(sum, rows, [d(0), d(1), d(2), d(3)]),
                        _ => add_multiples(sum, rows, [d(0), d(1), d(2), d(3), d(4)]),
                    }
                }
            }
        }
    }
}

/// The inside of [`accumulate`] for a number of rows that the compiler knows: each word of the sum is loaded and stored once.
#[inline(always)]
fn add_multiples<const ROWS: usize>(sum: &mut [u32], rows: &[u32], digits: [u32; ROWS]) {
    let words = sum.len();
    let rows: [&[u32]; ROWS] = std::array::from_fn(|row| &rows[row * words..][..words]);
    for (index, sum) in sum.iter_mut().enumerate() {
        for (row, digit) in rows.iter().zip(digits) {
            *sum = sum.wrapping_add(row[index].wrapping_mul(digit));
        }
    }
}

impl<M: Modulus> KeySwitchingKey<M> {
    /// The parameter set.
    #[must_use]
    pub fn params(&self) -> &StageParams {
        &self.params
    }

    /// Bytes of memory that the key holds.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.words.bytes().len() as u64
    }

    /// Its words, `[k·N][t][n + 1]`.
    #[must_use]
    pub fn words(&self) -> &[u32] {
        bytemuck::cast_slice(&self.words.bytes()[..self.params.key_switching_bytes() as usize])
    }

    /// Switches `extracted` (k·N + 1 words) into `out` (n + 1 words), on up to `threads` threads.
    ///
    /// # Errors
    /// [`TfheError::Length`] for a slice of another length.
    pub fn switch(
        &self,
        extracted: &[M::Word],
        out: &mut [M::Word],
        threads: usize,
    ) -> Result<(), TfheError> {
        let sample = Switch { extracted, out };
        self.switch_all(&mut [sample], Run::with_threads(threads))
    }

    /// Switches any number of samples on up to `run.threads` threads, each of which reads a part of the key once for many samples. The
    /// results are those of [`Self::switch`].
    ///
    /// # Errors
    /// [`TfheError::Cancelled`]; [`TfheError::Length`] for a slice of another length. No sample is written then.
    pub fn switch_all(&self, samples: &mut [Switch<'_, M>], run: Run<'_>) -> Result<(), TfheError> {
        let params = &self.params;
        let dimension = params.extracted_dimension();
        for Switch { extracted, out } in &*samples {
            check_words::<M>(params, "an extracted sample", extracted, dimension + 1)?;
            check_words::<M>(params, "an LWE sample", out, params.lwe_words())?;
        }
        let share = dimension.div_ceil(run.threads.max(1));
        let shares = dimension.div_ceil(share);
        let groups = samples.len().div_ceil(SAMPLES_AT_ONCE);
        let mut partial = vec![Vec::new(); groups * shares];
        in_parallel(run.threads, partial.iter_mut().collect(), |job, sums| {
            let first = job / shares * SAMPLES_AT_ONCE;
            let group = &samples[first..samples.len().min(first + SAMPLES_AT_ONCE)];
            let begin = job % shares * share;
            *sums = self.partial(group, begin..dimension.min(begin + share), run)?;
            Ok(())
        })?;
        let of_groups = samples.chunks_mut(SAMPLES_AT_ONCE);
        for (group, shares) in of_groups.zip(partial.chunks_exact_mut(shares)) {
            let [total, others @ ..] = shares else {
                continue;
            };
            for sums in others {
                lwe::add_assign::<Torus32>(total, sums);
            }
            for (sample, sum) in group.iter_mut().zip(total.chunks_exact(params.lwe_words())) {
                for (out, sum) in sample.out.iter_mut().zip(sum) {
                    *out = M::from_torus32(sum.wrapping_neg());
                }
                let body = &mut sample.out[params.lwe_dimension];
                *body = M::add(*body, sample.extracted[dimension]);
            }
        }
        Ok(())
    }

    /// sum_i sum_j d_ij·KSK_ij of each sample over some of the indices, one after the other.
    fn partial(
        &self,
        samples: &[Switch<'_, M>],
        indices: Range<usize>,
        run: Run<'_>,
    ) -> Result<Vec<u32>, TfheError> {
        let gadget = self.params.key_switch;
        let words = self.params.lwe_words();
        let of_index = gadget.levels * words;
        let digits_of_sample = gadget.levels * DIGITS_AT_ONCE;
        let mut digits = vec![0; samples.len() * digits_of_sample];
        let mut sums = vec![0; samples.len() * words];
        for begin in indices.clone().step_by(DIGITS_AT_ONCE) {
            run.check()?;
            let block = begin..indices.end.min(begin + DIGITS_AT_ONCE);
            let of_samples = digits.chunks_exact_mut(digits_of_sample);
            for (sample, digits) in samples.iter().zip(of_samples) {
                let mask = &sample.extracted[block.clone()];
                for (level, digits) in digits.chunks_exact_mut(DIGITS_AT_ONCE).enumerate() {
                    let field = DigitField::new(M::KIND, gadget, level);
                    cut::<M>(self.simd, digits, mask, field);
                }
            }
            let rows = &self.words()[block.start * of_index..block.end * of_index];
            accumulate(self.simd, &mut sums, words, rows, &digits, gadget.levels);
        }
        Ok(sums)
    }
}
