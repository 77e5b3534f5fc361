//! Public functional key switching from dimension k·N back to n (KEY_SWITCH).
//!
//! out = (0, b) - sum_i sum_j d_ij·KSK_ij, where d_ij are the signed digits of mask word a_i and KSK_ij encrypts
//! s'_i·2^(w - beta·(j+1)). Bound by reading the key once: t·k·N·(n+1) words.

use rayon::prelude::*;
use toroid_ring::goldilocks;
use toroid_ring::multiversion;
use toroid_ring::simd::Isa;

use crate::TfheError;
use crate::bootstrap::check_words;
use crate::lwe;
use crate::memory::Buffer;
use crate::modulus::{DigitField, Modulus};
use crate::params::{ModulusKind, ParamSet};

/// A key-switching key: `[k·N][t]` TLWE samples of n+1 words.
pub struct KeySwitchingKey<M: Modulus> {
    params: &'static ParamSet,
    words: Buffer,
    isa: Isa,
    modulus: std::marker::PhantomData<M>,
}

/// Takes a key-switching key's bytes (KSK of Table 3) in order.
pub struct KeySwitchingKeyLoader<M: Modulus> {
    key: KeySwitchingKey<M>,
    filled: usize,
    checked: usize,
}

impl<M: Modulus> KeySwitchingKeyLoader<M> {
    /// Room for the key of a parameter set, with the kernels of `isa`.
    ///
    /// # Errors
    /// [`TfheError::ModulusMismatch`], or the system's refusal of memory.
    pub fn new(params: &'static ParamSet, isa: Isa) -> Result<Self, TfheError> {
        if params.modulus != M::KIND {
            return Err(TfheError::ModulusMismatch(params.name));
        }
        if !isa.is_available() {
            return Err(toroid_ring::RingError::IsaUnavailable(isa).into());
        }
        let bytes = params.key_switching_key_bytes() as usize;
        Ok(KeySwitchingKeyLoader {
            key: KeySwitchingKey {
                params,
                words: Buffer::new(bytes.div_ceil(8))?,
                isa,
                modulus: std::marker::PhantomData,
            },
            filled: 0,
            checked: 0,
        })
    }

    /// Takes the next bytes; refused ones do not count.
    ///
    /// # Errors
    /// [`TfheError::Length`] for bytes beyond the end, [`TfheError::NotCanonical`] for a word not below q.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), TfheError> {
        let end = self.filled + bytes.len();
        if end as u64 > self.key.params.key_switching_key_bytes() {
            return Err(self.wrong_length(end as u64));
        }
        self.key.words.bytes_mut()[self.filled..end].copy_from_slice(bytes);
        let complete = end / size_of::<M::Word>();
        let all = bytemuck::cast_slice::<u8, M::Word>(self.key.words.bytes());
        if let Some(index) = all[self.checked..complete]
            .iter()
            .position(|word| !M::is_canonical(*word))
        {
            return Err(TfheError::NotCanonical {
                what: "the key-switching key",
                index: (self.checked + index) as u64,
            });
        }
        self.filled = end;
        self.checked = complete;
        Ok(())
    }

    /// Has the next `count` samples filled in, in parallel, with canonical words: `fill` is given a sample's position among
    /// them and its n + 1 words. Nothing else may be half-written.
    ///
    /// # Errors
    /// [`TfheError::Length`] for samples beyond the end.
    pub(crate) fn write_samples(
        &mut self,
        count: usize,
        fill: impl Fn(usize, &mut [M::Word]) + Sync,
    ) -> Result<(), TfheError> {
        let sample_bytes = self.key.params.tlwe_bytes();
        let end = self.filled + count * sample_bytes;
        if end as u64 > self.key.params.key_switching_key_bytes() {
            return Err(self.wrong_length(end as u64));
        }
        let room = &mut self.key.words.bytes_mut()[self.filled..end];
        bytemuck::cast_slice_mut::<u8, M::Word>(room)
            .par_chunks_exact_mut(self.key.params.tlwe_words())
            .enumerate()
            .for_each(|(index, sample)| fill(index, sample));
        self.filled = end;
        self.checked = end / size_of::<M::Word>();
        Ok(())
    }

    /// The key, once all bytes are there.
    ///
    /// # Errors
    /// [`TfheError::Length`] where bytes are missing.
    pub fn finish(self) -> Result<KeySwitchingKey<M>, TfheError> {
        if self.filled as u64 != self.key.params.key_switching_key_bytes() {
            return Err(self.wrong_length(self.filled as u64));
        }
        Ok(self.key)
    }

    fn wrong_length(&self, found: u64) -> TfheError {
        TfheError::Length {
            what: "the key-switching key",
            params: self.key.params.name,
            expected: self.key.params.key_switching_key_bytes(),
            found,
        }
    }
}

multiversion! {
    /// sums += sum_j digits[j]·rows[j], modulo 2^32.
    fn accumulate32(sums: &mut [u32], rows: &[u32], digits: &[i32]) {
        for (row, digit) in rows.chunks_exact(sums.len()).zip(digits) {
            let digit = digit.cast_unsigned();
            for (sum, word) in sums.iter_mut().zip(row) {
                *sum = sum.wrapping_add(word.wrapping_mul(digit));
            }
        }
    }
}

multiversion! {
    /// (low, high) += sum_j digits[j]·(low, high half of rows[j]), over the integers.
    fn accumulate64(low: &mut [i64], high: &mut [i64], rows: &[u64], digits: &[i32]) {
        for (row, digit) in rows.chunks_exact(low.len()).zip(digits) {
            let digit = i64::from(*digit);
            for ((low, high), word) in low.iter_mut().zip(high.iter_mut()).zip(row) {
                *low += (*word & 0xffff_ffff).cast_signed() * digit;
                *high += (*word >> 32).cast_signed() * digit;
            }
        }
    }
}

impl<M: Modulus> KeySwitchingKey<M> {
    /// The parameter set.
    #[must_use]
    pub fn params(&self) -> &'static ParamSet {
        self.params
    }

    /// Bytes of memory that the key holds.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.words.bytes().len() as u64
    }

    /// Switches `extracted` (k·N + 1 words) into `out` (n + 1 words), shared among the threads of the current pool.
    ///
    /// # Errors
    /// [`TfheError::Length`] for a slice of another length.
    pub fn switch(&self, extracted: &[M::Word], out: &mut [M::Word]) -> Result<(), TfheError> {
        let dimension = self.params.extracted_dimension();
        check_words::<M>(self.params, "an extracted sample", extracted, dimension + 1)?;
        check_words::<M>(self.params, "a TLWE sample", out, self.params.tlwe_words())?;
        let (mask, body) = extracted.split_at(self.params.extracted_dimension());
        let rows = bytemuck::cast_slice::<u8, M::Word>(
            &self.words.bytes()[..self.params.key_switching_key_bytes() as usize],
        );
        let words_per_index = self.params.key_switch.levels * self.params.tlwe_words();
        let share = mask.len().div_ceil(rayon::current_num_threads());
        let sum = mask
            .par_chunks(share)
            .zip(rows.par_chunks(share * words_per_index))
            .map(|(mask, rows)| self.partial(mask, rows))
            .reduce(
                || vec![M::Word::default(); self.params.tlwe_words()],
                |mut a, b| {
                    lwe::add_assign::<M>(&mut a, &b);
                    a
                },
            );
        out.fill(M::Word::default());
        out[self.params.lwe_dimension] = body[0];
        lwe::sub_assign::<M>(out, &sum);
        Ok(())
    }

    /// sum_i sum_j d_ij·KSK_ij over some of the indices.
    fn partial(&self, mask: &[M::Word], rows: &[M::Word]) -> Vec<M::Word> {
        let gadget = self.params.key_switch;
        let words = self.params.tlwe_words();
        let fields: Vec<DigitField> = (0..gadget.levels)
            .map(|level| DigitField::new(M::KIND, gadget, level))
            .collect();
        let decompose = |a: M::Word, digits: &mut [i32]| {
            for (digit, field) in digits.iter_mut().zip(&fields) {
                *digit = M::digit(a, *field);
            }
        };
        let mut digits = vec![0i32; gadget.levels];
        let indices = mask.iter().zip(rows.chunks_exact(gadget.levels * words));
        let mut sums = vec![M::Word::default(); words];
        match M::KIND {
            ModulusKind::Torus32 => {
                for (a, rows) in indices {
                    decompose(*a, &mut digits);
                    accumulate32(
                        self.isa,
                        bytemuck::cast_slice_mut(&mut sums),
                        bytemuck::cast_slice(rows),
                        &digits,
                    );
                }
            }
            ModulusKind::Goldilocks => {
                // Halves of 32 bits times digits of at most 7 bits, 2^17 terms at most: below 2^56.
                let (mut low, mut high) = (vec![0i64; words], vec![0i64; words]);
                for (a, rows) in indices {
                    decompose(*a, &mut digits);
                    accumulate64(
                        self.isa,
                        &mut low,
                        &mut high,
                        bytemuck::cast_slice(rows),
                        &digits,
                    );
                }
                let sums: &mut [u64] = bytemuck::cast_slice_mut(&mut sums);
                for ((sum, low), high) in sums.iter_mut().zip(low).zip(high) {
                    let high = goldilocks::mul(goldilocks::from_signed(high), 1 << 32);
                    *sum = goldilocks::add(goldilocks::from_signed(low), high);
                }
            }
        }
        sums
    }
}
