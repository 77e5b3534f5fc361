//! Programmable bootstrapping: modulus switch, blind rotation by CMux, sample extraction, key switch.
//!
//! One blind rotation step is `ACC += BK_i ⊡ (X^a_i·ACC - ACC)` (CMux of the platform paper's section 4.5 with d0 = ACC and
//! d1 = X^a_i·ACC), its products done by an [`Arithmetic`]. The key is read once, front to back.

use rayon::prelude::*;
use toroid_ring::goldilocks;
use toroid_ring::simd::Isa;

use crate::TfheError;
use crate::glwe;
use crate::key_switch::KeySwitchingKey;
use crate::memory::Buffer;
use crate::modulus::Modulus;
use crate::params::{ModulusSwitch, ParamSet};
use crate::product::Arithmetic;

/// A bootstrapping key, loaded for one [`Arithmetic`]: n TRGSW samples of l·(k+1) rows of k+1 polynomials.
pub struct BootstrappingKey<M: Modulus, A: Arithmetic<M>> {
    params: &'static ParamSet,
    arithmetic: A,
    isa: Isa,
    words: Buffer,
    modulus: std::marker::PhantomData<M>,
}

/// Takes a bootstrapping key's canonical bytes (BKNTT of Table 3) in order and converts them in place, so that the key
/// exists once in memory.
pub struct BootstrappingKeyLoader<M: Modulus, A: Arithmetic<M>> {
    key: BootstrappingKey<M, A>,
    filled: usize,
    converted: usize,
}

impl<M: Modulus, A: Arithmetic<M>> BootstrappingKeyLoader<M, A> {
    /// Room for the key of a parameter set, with the kernels of `isa`.
    ///
    /// # Errors
    /// [`TfheError::ModulusMismatch`], or the system's refusal of memory.
    pub fn new(params: &'static ParamSet, isa: Isa) -> Result<Self, TfheError> {
        if params.modulus != M::KIND {
            return Err(TfheError::ModulusMismatch(params.name));
        }
        Ok(BootstrappingKeyLoader {
            key: BootstrappingKey {
                params,
                arithmetic: A::new(params, isa)?,
                isa,
                words: Buffer::new(params.lwe_dimension * params.trgsw_words())?,
                modulus: std::marker::PhantomData,
            },
            filled: 0,
            converted: 0,
        })
    }

    /// Takes the next bytes; refused ones do not count.
    ///
    /// # Errors
    /// [`TfheError::Length`] for bytes beyond the end, [`TfheError::NotCanonical`] for a word not below p.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), TfheError> {
        let end = self.filled + bytes.len();
        let room = self.key.words.bytes_mut();
        let Some(target) = room.get_mut(self.filled..end) else {
            return Err(self.wrong_length(end as u64));
        };
        target.copy_from_slice(bytes);
        let degree = self.key.params.ring_degree;
        let complete = end / (degree * 8) * degree;
        let fresh = &mut self.key.words.words_mut()[self.converted..complete];
        if let Some(index) = fresh.iter().position(|word| *word >= goldilocks::P) {
            return Err(TfheError::NotCanonical {
                what: "the bootstrapping key",
                index: (self.converted + index) as u64,
            });
        }
        let arithmetic = &self.key.arithmetic;
        fresh.par_chunks_exact_mut(degree).for_each_init(
            || vec![A::Scalar::default(); degree],
            |scratch, polynomial| arithmetic.load(polynomial, scratch),
        );
        self.filled = end;
        self.converted = complete;
        Ok(())
    }

    /// The key, once all bytes are there.
    ///
    /// # Errors
    /// [`TfheError::Length`] where bytes are missing.
    pub fn finish(self) -> Result<BootstrappingKey<M, A>, TfheError> {
        if self.filled as u64 != self.key.params.bootstrapping_key_bytes() {
            return Err(self.wrong_length(self.filled as u64));
        }
        Ok(self.key)
    }

    fn wrong_length(&self, found: u64) -> TfheError {
        TfheError::Length {
            what: "the bootstrapping key",
            params: self.key.params.name,
            expected: self.key.params.bootstrapping_key_bytes(),
            found,
        }
    }
}

/// Refuses a slice of another length.
pub(crate) fn check_words<M: Modulus>(
    params: &ParamSet,
    what: &'static str,
    words: &[M::Word],
    expected: usize,
) -> Result<(), TfheError> {
    if words.len() == expected {
        return Ok(());
    }
    Err(TfheError::Length {
        what,
        params: params.name,
        expected: (expected * size_of::<M::Word>()) as u64,
        found: size_of_val(words) as u64,
    })
}

/// A TLWE sample brought to exponents modulo 2N: those of the mask, then that of the body.
pub(crate) fn modulus_switch<M: Modulus>(
    params: &ParamSet,
    sample: &[M::Word],
) -> (Vec<usize>, usize) {
    let log2_order = params.ring_degree.trailing_zeros() + 1;
    let shift = 64 - log2_order;
    let half = 1u64 << (shift - 1);
    let nearest = |word: u64| (word.wrapping_add(half) >> shift) as usize;
    let (mask, body) = sample.split_at(params.lwe_dimension);
    let exponents: Vec<usize> = mask.iter().map(|a| nearest(M::to_u64_torus(*a))).collect();
    let correction = match params.modulus_switch {
        ModulusSwitch::Nearest => 0,
        ModulusSwitch::MeanCompensated => {
            let errors: i64 = mask
                .iter()
                .zip(&exponents)
                .map(|(a, exponent)| {
                    M::to_u64_torus(*a)
                        .wrapping_sub((*exponent as u64) << shift)
                        .cast_signed()
                })
                .sum();
            errors >> 1
        }
    };
    // Down, not to the nearest: windows [-w/2, w/2) of a test vector are symmetric then.
    let body =
        (M::to_u64_torus(body[0]).wrapping_sub(correction.cast_unsigned()) >> shift) as usize;
    (exponents, body)
}

impl<M: Modulus, A: Arithmetic<M>> BootstrappingKey<M, A> {
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

    /// Rotates `test_vector` ((k+1)·N words) by the phase of `sample` (n+1 words) and extracts the constant coefficient
    /// into `out` (k·N + 1 words). `cancelled` is asked at every step.
    ///
    /// # Errors
    /// [`TfheError::Cancelled`]; [`TfheError::Length`] for a slice of another length.
    pub fn blind_rotate(
        &self,
        test_vector: &[M::Word],
        sample: &[M::Word],
        out: &mut [M::Word],
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), TfheError> {
        let params = self.params;
        check_words::<M>(params, "a test vector", test_vector, params.trlwe_words())?;
        check_words::<M>(params, "a TLWE sample", sample, params.tlwe_words())?;
        check_words::<M>(
            params,
            "an extracted sample",
            out,
            params.extracted_dimension() + 1,
        )?;
        let n = params.ring_degree;
        let (exponents, body) = modulus_switch::<M>(params, sample);
        let mut memory = Workspace::<M, A>::memory(params)?;
        let (acc, mut work) = Workspace::<M, A>::new(params, &mut memory);
        let back = (2 * n - body) % (2 * n);
        for (acc, tv) in acc.chunks_exact_mut(n).zip(test_vector.chunks_exact(n)) {
            glwe::rotate::<M>(acc, tv, back);
        }
        let keys: &[A::Scalar] = bytemuck::cast_slice(self.words.words());
        for (key, exponent) in keys.chunks_exact(params.trgsw_words()).zip(exponents) {
            if cancelled() {
                return Err(TfheError::Cancelled);
            }
            if exponent != 0 {
                self.cmux(key, exponent, acc, &mut work);
            }
        }
        glwe::sample_extract::<M>(params, acc, out);
        Ok(())
    }

    /// acc += key ⊡ (X^exponent·acc - acc).
    fn cmux(
        &self,
        key: &[A::Scalar],
        exponent: usize,
        acc: &mut [M::Word],
        work: &mut Workspace<'_, M, A>,
    ) {
        let n = self.params.ring_degree;
        let columns = self.params.glwe_dimension + 1;
        let mut rows = key.chunks_exact(columns * n).enumerate();
        for component in acc.chunks_exact(n) {
            glwe::rotate_sub::<M>(self.isa, work.difference, component, exponent);
            for (level, (index, row)) in (0..self.params.gadget.levels).zip(&mut rows) {
                self.arithmetic.mul_add_digits(
                    work.difference,
                    level,
                    row,
                    work.scratch,
                    work.sums,
                    index == 0,
                );
            }
        }
        for (sum, words) in work.sums.chunks_exact_mut(n).zip(acc.chunks_exact_mut(n)) {
            self.arithmetic
                .inverse_add(sum, &mut work.scratch[..n], words);
        }
    }
}

/// Slices of one blind rotation's working memory, each on a line of the cache.
struct Workspace<'a, M: Modulus, A: Arithmetic<M>> {
    difference: &'a mut [M::Word],
    scratch: &'a mut [A::Scalar],
    sums: &'a mut [A::Scalar],
}

impl<'a, M: Modulus, A: Arithmetic<M>> Workspace<'a, M, A> {
    /// Memory for an accumulator and a workspace.
    fn memory(params: &ParamSet) -> Result<Buffer, TfheError> {
        let polynomials = 2 * (params.glwe_dimension + 1) + 3;
        Buffer::new(polynomials * params.ring_degree)
    }

    /// The accumulator of (k+1)·N words, and the workspace.
    fn new(params: &ParamSet, memory: &'a mut Buffer) -> (&'a mut [M::Word], Self) {
        let n = params.ring_degree;
        let (scalars, words) = memory
            .words_mut()
            .split_at_mut(params.trlwe_words() + 2 * n);
        let scalars: &mut [A::Scalar] = bytemuck::cast_slice_mut(scalars);
        let (scratch, sums) = scalars.split_at_mut(2 * n);
        let words: &mut [M::Word] = bytemuck::cast_slice_mut(words);
        let (difference, words) = words.split_at_mut(n);
        let work = Workspace {
            difference,
            scratch,
            sums,
        };
        (&mut words[..params.trlwe_words()], work)
    }
}

/// Programmable bootstrap: `sample` (n+1 words) becomes a fresh sample of the test vector's function of its message.
///
/// # Errors
/// [`TfheError::ParamsMismatch`] for keys of different sets, [`TfheError::Length`] for a sample or test vector of another
/// length, [`TfheError::Cancelled`]; `sample` is unchanged then.
pub fn bootstrap<M: Modulus, A: Arithmetic<M>>(
    bootstrapping: &BootstrappingKey<M, A>,
    key_switching: &KeySwitchingKey<M>,
    test_vector: &[M::Word],
    sample: &mut [M::Word],
    cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<(), TfheError> {
    let params = bootstrapping.params;
    if key_switching.params() != params {
        return Err(TfheError::ParamsMismatch {
            what: "the key-switching key",
            expected: params.name.to_owned(),
            found: key_switching.params().name.to_owned(),
        });
    }
    let mut extracted = vec![M::Word::default(); params.extracted_dimension() + 1];
    bootstrapping.blind_rotate(test_vector, sample, &mut extracted, cancelled)?;
    key_switching.switch(&extracted, sample)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modulus::{Goldilocks, Torus32};
    use crate::noise;
    use crate::params::{MESSAGE4, PAPER};
    use crate::random::Csprng;

    /// Variance of the modulus switch over 50 keys of 200 samples: 5 standard errors of sqrt(2/10000) allowed.
    fn modulus_switch_noise<M: Modulus>(params: &'static ParamSet) {
        let mut rng = Csprng::from_seed([9; 32]);
        let (keys, samples) = (50, 200);
        let mut squares = 0.0;
        let mut key = vec![0u64; params.lwe_dimension];
        let mut sample = vec![M::Word::default(); params.tlwe_words()];
        let order = 2.0 * params.ring_degree as f64;
        for _ in 0..keys {
            rng.fill_bits(&mut key);
            for _ in 0..samples {
                rng.fill_uniform::<M>(&mut sample);
                let (mask, body) = modulus_switch::<M>(params, &sample);
                let turn = |word: M::Word| M::to_u64_torus(word) as f64 / 2f64.powi(64);
                let error = turn(sample[params.lwe_dimension])
                    - (body as f64 + 0.5) / order
                    - key
                        .iter()
                        .zip(&sample)
                        .zip(&mask)
                        .map(|((bit, word), exponent)| {
                            *bit as f64 * (turn(*word) - *exponent as f64 / order)
                        })
                        .sum::<f64>();
                squares += (error - error.round()).powi(2);
            }
        }
        let count = f64::from(keys * samples);
        // The body's rounding down is uniform over a step, about its middle.
        let expected = noise::modulus_switch_variance(params) + 1.0 / 12.0 / order.powi(2);
        let ratio = squares / count / expected;
        assert!(
            (ratio - 1.0).abs() < 5.0 * (2.0 / count).sqrt(),
            "{}: {ratio}",
            params.name
        );
    }

    #[test]
    fn both_modulus_switches_have_the_variance_of_their_formula() {
        modulus_switch_noise::<Torus32>(&PAPER);
        modulus_switch_noise::<Goldilocks>(&MESSAGE4);
    }
}
