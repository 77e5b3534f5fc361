//! Private functional key switching, and circuit bootstrapping by it.
//!
//! The key of a function f, here a product with a secret or public polynomial, turns LWE samples of dimension k·N into GLWE
//! samples of f(message): the sum of the key's rows times the digits of the sample's words (Chillotti, Gama, Georgieva and Izabachène,
//! J. Cryptology 2020, algorithm 2). The sum has integer coefficients, so it can be made of loaded rows, pre-scaled and in the
//! transform domain, and is a loaded row of a GGSW sample then: case 2 of equation 1 of the platform paper, in which circuit
//! bootstrapping does no transforms of its own.
//!
//! Of the two circuit bootstrappings it is the slower one with the larger keys: it reads (k+1)·(k·N + 1)·t rows, where
//! [`WopbsKey::extract_bits`] reads (log2 N + k)·k·t. Benchmarks compare the two.
//!
//! # Noise
//!
//! The rows' noise comes in by the digits, into every coefficient: R = (k·N + 1)·t products of a digit and a row's noise. What
//! the digits drop is added to the message before f is applied: q^2/(12 B^(2t)) for the body and for each mask word whose key
//! bit is 1.
//!
//! On the f64 arithmetic the sums are not reduced modulo 1: their coefficients have R·(B^2 + 2)/12 times the variance of a uniform
//! word, and so have all roundings relative to them, in the sum and in the external products with a row made of it.

use std::marker::PhantomData;

use toroid_ring::simd::SimdLevel;
use toroid_task::Progress;
use zeroize::Zeroizing;

use crate::TfheError;
use crate::arithmetic::ArithmeticKind;
use crate::arithmetic::{Arithmetic, ROWS_AT_ONCE, WordOf};
use crate::bootstrap::Run;
use crate::ggsw::load_rows;
use crate::glwe::{self, RowMaker, ScaledBit};
use crate::keys::{ClientKey, Items, Share, stream};
use crate::lwe::{self, check_words};
use crate::memory::Buffer;
use crate::modulus::{DigitField, Modulus};
use crate::parallel::in_parallel;
use crate::params::{Gadget, ModulusKind, ParamSet, StageParams};
use crate::random::Csprng;
use crate::seeded::MaskSeed;
use crate::variance::{digit_mean_square, dropped_variance, fft_variance};

use super::{Bits, WopbsKey, WopbsKeySwitchingKey};

/// The key of a private functional key switch, loaded for one [`Arithmetic`]: (k·N + 1)·t rows of k+1 polynomials.
pub struct PrivateSwitchKey<M: Modulus, A: Arithmetic<M>> {
    pub(super) params: ParamSet,
    pub(super) gadget: Gadget,
    pub(super) arithmetic: A,
    rows: Buffer,
    modulus: PhantomData<M>,
}

/// The private functional key switches that make the rows of a GGSW sample: products with -s_1, …, -s_k and 1.
pub struct CircuitPrivateKey<M: Modulus, A: Arithmetic<M>> {
    keys: Vec<PrivateSwitchKey<M, A>>,
}

/// Words of a loaded row that are summed up at once: those of all samples stay in the second-level cache, those of
/// [`ROWS_AT_ONCE`] rows in the first.
const PART: usize = 256;

impl<M: Modulus, A: Arithmetic<M>> PrivateSwitchKey<M, A> {
    /// The parameter set.
    #[must_use]
    pub fn params(&self) -> &ParamSet {
        &self.params
    }

    /// The gadget that takes the samples' words apart.
    #[must_use]
    pub fn gadget(&self) -> Gadget {
        self.gadget
    }

    /// Bytes of memory that the key holds.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.rows.bytes().len() as u64
    }

    /// The loaded rows, `t` for each mask word of a sample and for its body.
    pub(super) fn rows(&self) -> impl Iterator<Item = &[u8]> {
        self.rows.bytes().chunks_exact(self.arithmetic.row_bytes())
    }

    /// Switches samples of dimension k·N (k·N + 1 words each, under [`glwe::GlweSecretKey::extracted_key`]) to GLWE samples
    /// ((k+1)·N words) of f(message), in one pass over the key.
    ///
    /// # Errors
    /// [`TfheError::Length`] for a sample of another length, [`TfheError::Cancelled`].
    pub fn switch(
        &self,
        samples: &[&[M::Word]],
        run: Run<'_>,
    ) -> Result<Vec<Vec<M::Word>>, TfheError> {
        let row_words = self.arithmetic.row_bytes() / 8;
        let mut sums = Buffer::new(samples.len() * row_words)?;
        let rows = sums.words_mut().chunks_exact_mut(row_words);
        self.switch_to_spectrum(samples, rows.collect(), run)?;
        let rows = sums.bytes().chunks_exact(self.arithmetic.row_bytes());
        Ok(rows
            .map(|row| unload::<M, A>(&self.arithmetic, &self.params, row))
            .collect())
    }

    /// As [`Self::switch`], into a loaded row for each sample.
    pub(crate) fn switch_to_spectrum(
        &self,
        samples: &[&[M::Word]],
        rows: Vec<&mut [u64]>,
        run: Run<'_>,
    ) -> Result<(), TfheError> {
        let factors = samples
            .iter()
            .map(|sample| self.factors(sample))
            .collect::<Result<Vec<_>, _>>()?;
        if rows.is_empty() {
            return Ok(());
        }
        let row_words = self.arithmetic.row_bytes() / 8;
        let mut parts: Vec<Vec<&mut [u64]>> = Vec::new();
        parts.resize_with(row_words.div_ceil(PART), Vec::new);
        for row in rows {
            for (parts, part) in parts.iter_mut().zip(row.chunks_mut(PART)) {
                parts.push(part);
            }
        }
        let keys = bytemuck::cast_slice::<u8, u64>(self.rows.bytes());
        in_parallel(run.threads, parts, |index, out| {
            let first = index * PART;
            let length = PART.min(row_words - first);
            // Rows are multiples of a page apart, and would take the same lines of the cache.
            let mut sums = vec![0; out.len() * length];
            let mut rows = vec![0; ROWS_AT_ONCE * length];
            for (group, keys) in keys.chunks(ROWS_AT_ONCE * row_words).enumerate() {
                run.check()?;
                let pairs = rows.chunks_exact_mut(length).zip(keys.chunks(row_words));
                for (row, key) in pairs {
                    row.copy_from_slice(&key[first..first + length]);
                }
                let begin = group * ROWS_AT_ONCE;
                for (sum, factors) in sums.chunks_exact_mut(length).zip(&factors) {
                    let end = factors.len().min(begin + ROWS_AT_ONCE);
                    let factors = &factors[begin..end];
                    self.arithmetic.add_multiples(sum, &rows, factors);
                }
            }
            for (out, sum) in out.into_iter().zip(sums.chunks_exact(length)) {
                out.copy_from_slice(sum);
            }
            Ok(())
        })
    }

    /// What the rows of the key are multiplied by: the digits of the body, and those of the mask taken off.
    fn factors(&self, sample: &[M::Word]) -> Result<Vec<i32>, TfheError> {
        let dimension = self.params.extracted_dimension();
        check_words::<M>(&self.params, "an extracted sample", sample, dimension + 1)?;
        let fields: Vec<_> = self.fields().collect();
        let mut factors = Vec::with_capacity(sample.len() * fields.len());
        for (index, word) in sample.iter().enumerate() {
            let sign = if index < dimension { -1 } else { 1 };
            factors.extend(fields.iter().map(|field| sign * M::digit(*word, *field)));
        }
        Ok(factors)
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = DigitField> {
        let gadget = self.gadget;
        (0..gadget.levels).map(move |level| DigitField::new(M::KIND, gadget, level))
    }
}

/// A loaded row's polynomials in the coefficient domain: its product with 1.
fn unload<M: Modulus, A: Arithmetic<M>>(
    arithmetic: &A,
    params: &StageParams,
    row: &[u8],
) -> Vec<M::Word> {
    let n = params.ring_degree;
    let digit = Gadget {
        levels: 1,
        log2_base: 8,
    };
    let mut one = vec![WordOf::<M, A>::default(); n];
    one[0] = A::enter(M::gadget_value(digit, 0));
    let mut scratch = vec![A::Scalar::default(); n];
    let mut sums = vec![A::Scalar::default(); params.glwe_words()];
    let field = DigitField::new(M::KIND, digit, 0);
    arithmetic.mul_add_digits(&one, field.into(), row, &mut scratch, &mut sums, true);
    let mut words = vec![WordOf::<M, A>::default(); params.glwe_words()];
    for (sum, words) in sums.chunks_exact_mut(n).zip(words.chunks_exact_mut(n)) {
        arithmetic.inverse_add(sum, words);
    }
    words.into_iter().map(A::leave).collect()
}

impl<M: Modulus, A: Arithmetic<M>> CircuitPrivateKey<M, A> {
    /// The parameter set.
    #[must_use]
    pub fn params(&self) -> &ParamSet {
        &self.keys[0].params
    }

    /// Bytes of memory that the keys hold.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.keys.iter().map(PrivateSwitchKey::memory).sum()
    }
}

impl<M: Modulus, A: Arithmetic<M>> Bits<'_, M, A> {
    /// Row `row` of the GGSW sample of bit `bit` as a GLWE sample of (k+1)·N words, to measure its noise; none beyond the last.
    #[must_use]
    pub fn row(&self, bit: usize, row: usize) -> Option<Vec<M::Word>> {
        let samples = self.samples();
        let rows = samples.params().ggsw_rows();
        let loaded = samples.rows().nth(bit * rows + row)?;
        (row < rows && bit < self.count as usize)
            .then(|| unload::<M, A>(samples.arithmetic(), samples.params(), loaded))
    }
}

impl<M: Modulus, A: Arithmetic<M>> WopbsKey<M, A> {
    /// Makes the GGSW samples of the bits of a message of `count` bits as [`Self::extract_bits`] does, but for the trace and the products
    /// with secret polynomials, in whose place are private functional key switches: those of all bits and levels in one pass
    /// over each of their keys.
    ///
    /// # Errors
    /// As [`Self::bootstrap`].
    pub fn extract_bits_privately(
        &self,
        private: &CircuitPrivateKey<M, A>,
        key_switching: &WopbsKeySwitchingKey<M>,
        count: u32,
        sample: &[M::Word],
        run: Run<'_>,
    ) -> Result<Bits<'_, M, A>, TfheError> {
        if private.params() != &self.params {
            return Err(TfheError::ParamsMismatch {
                what: "the private key-switching key",
                expected: self.params.name.to_owned(),
                found: private.params().name.to_owned(),
            });
        }
        let mut samples = self.room_for_bits(key_switching, count, sample)?;
        let levels = self.stages.circuit.gadget.levels;
        let words = self.params.lwe_words();
        let mut values = vec![M::Word::default(); count as usize * levels * words];
        let mut of_bits = values.chunks_exact_mut(levels * words);
        self.for_each_bit(key_switching, count, &[sample], run, |_, acc| {
            let of_bit = of_bits.next().into_iter();
            let of_levels = of_bit.flat_map(|values| values.chunks_exact_mut(words));
            for (level, value) in of_levels.enumerate() {
                glwe::sample_extract::<A::Words, _>(&self.params, acc, level, value, A::leave);
                // Plus or minus half a level stands for 0 or 1 times the level.
                lwe::mul_assign::<M>(value, -1);
                let body = &mut value[words - 1];
                *body = M::add(*body, self.plan.half_level(level));
            }
            Ok(())
        })?;
        let values: Vec<_> = values.chunks_exact(words).collect();
        // Row `component`·levels + level.
        let mut rows: Vec<Vec<&mut [u64]>> = Vec::new();
        rows.resize_with(private.keys.len(), Vec::new);
        let ggsw_rows = self.stages.circuit.ggsw_rows();
        let of_bits = samples.rows_mut().take(count as usize * ggsw_rows);
        for (index, row) in of_bits.enumerate() {
            rows[index % ggsw_rows / levels].push(row);
        }
        for (key, rows) in private.keys.iter().zip(rows) {
            key.switch_to_spectrum(&values, rows, run)?;
        }
        Ok(Bits {
            key: self,
            count,
            samples: Some(samples),
        })
    }
}

const PRIVATE_KEY: &str = "private key-switching key";

impl ClientKey {
    /// Generates the key of a private functional key switch from this key's extracted LWE key to its GLWE key, loaded:
    /// f is the product with the polynomial whose N coefficients `factor` gives, small ones. `progress` counts the bytes that
    /// are not masks.
    ///
    /// # Errors
    /// [`TfheError::ModulusMismatch`] over any modulus but Goldilocks, [`TfheError::Gadget`] for digits that do not fit,
    /// [`TfheError::Length`] for another number of coefficients, [`TfheError::Cancelled`], or the system's refusal of memory.
    pub fn loaded_private_switch_key<M: Modulus, A: Arithmetic<M>>(
        &self,
        factor: &[i32],
        gadget: Gadget,
        simd: SimdLevel,
        rng: &mut Csprng,
        progress: &Progress,
    ) -> Result<PrivateSwitchKey<M, A>, TfheError> {
        let share = |bytes| Share::part(PRIVATE_KEY, progress, bytes, 0, 1);
        self.private_switch_key(factor, gadget, simd, rng, share)
    }

    fn private_switch_key<'a, M: Modulus, A: Arithmetic<M>>(
        &self,
        factor: &[i32],
        gadget: Gadget,
        simd: SimdLevel,
        rng: &mut Csprng,
        share: impl Fn(u64) -> Share<'a>,
    ) -> Result<PrivateSwitchKey<M, A>, TfheError> {
        let params = self.params();
        if params.modulus != M::KIND || M::KIND != ModulusKind::Goldilocks {
            return Err(TfheError::ModulusMismatch(params.name));
        }
        let Gadget { levels, log2_base } = gadget;
        let fits = (1..=24).contains(&log2_base)
            && (1..64).contains(&levels)
            && (1..64).contains(&(levels * log2_base as usize));
        if !fits {
            return Err(TfheError::Gadget { levels, log2_base });
        }
        if factor.len() != params.ring_degree {
            return Err(TfheError::Length {
                what: "the polynomial of a key switch",
                params: params.name,
                expected: 4 * params.ring_degree as u64,
                found: size_of_val(factor) as u64,
            });
        }
        let arithmetic = A::new(params, simd)?;
        let bits = self.glwe().bits();
        // The body is multiplied by 1. Room for all from the start: a vector that grows leaves secrets behind.
        let mut with_body = Zeroizing::new(Vec::with_capacity(bits.len() + 1));
        with_body.extend_from_slice(bits);
        with_body.push(1);
        let count = with_body.len() * levels;
        let mut rows = Buffer::new(count * arithmetic.row_bytes() / 8)?;
        let maker = RowMaker::new(params, self.glwe())?;
        let seed = MaskSeed::generate(rng);
        let bytes = count * params.ring_degree * size_of::<M::Word>();
        let mut filled = 0;
        let items = Items {
            count: with_body.len(),
            group: 1,
            words: levels * params.glwe_words(),
        };
        stream(
            items,
            rng,
            share(bytes as u64),
            |range, words: &mut [M::Word], rng| {
                let bit = ScaledBit {
                    index: range.start,
                    bit: with_body[range.start],
                    factor,
                    gadget,
                };
                maker.scaled_bit::<M>(bit, &seed, words, rng);
            },
            |words| {
                let out = &mut rows.bytes_mut()[filled..];
                load_rows(&arithmetic, simd, params, words, out);
                filled += words.len() / params.glwe_words() * arithmetic.row_bytes();
                Ok(())
            },
        )?;
        Ok(PrivateSwitchKey {
            params: *params,
            gadget,
            arithmetic,
            rows,
            modulus: PhantomData,
        })
    }

    /// Generates the keys for [`WopbsKey::extract_bits_privately`], as [`Self::loaded_private_switch_key`] does one of them.
    ///
    /// # Errors
    /// [`TfheError::NotWopbs`] for a set without wide functions, and those of [`Self::loaded_private_switch_key`].
    pub fn loaded_circuit_private_key<M: Modulus, A: Arithmetic<M>>(
        &self,
        gadget: Gadget,
        simd: SimdLevel,
        rng: &mut Csprng,
        progress: &Progress,
    ) -> Result<CircuitPrivateKey<M, A>, TfheError> {
        let params = self.params();
        super::stages(params)?;
        let n = params.ring_degree;
        let parts = params.glwe_dimension as u64 + 1;
        let mut keys = Vec::new();
        for component in 0..=params.glwe_dimension {
            let mut factor = Zeroizing::new(vec![0; n]);
            let secret = self.glwe().bits().chunks_exact(n).nth(component);
            match secret {
                Some(secret) => {
                    for (out, bit) in factor.iter_mut().zip(secret) {
                        *out = -(*bit as i32);
                    }
                }
                None => factor[0] = 1,
            }
            let share = |bytes| Share::part(PRIVATE_KEY, progress, bytes, component as u64, parts);
            keys.push(self.private_switch_key(&factor, gadget, simd, rng, share)?);
        }
        Ok(CircuitPrivateKey { keys })
    }

    /// The phase polynomial of a GLWE sample ((k+1)·N words): N messages with their noise.
    ///
    /// # Errors
    /// [`TfheError::Length`] for a sample of another length, [`TfheError::ModulusMismatch`] for words of another modulus.
    pub fn glwe_phase<M: Modulus>(&self, sample: &[M::Word]) -> Result<Vec<M::Word>, TfheError> {
        let params = self.params();
        if params.modulus != M::KIND {
            return Err(TfheError::ModulusMismatch(params.name));
        }
        check_words::<M>(params, "a GLWE sample", sample, params.glwe_words())?;
        Ok(RowMaker::new(params, self.glwe())?.phase::<M>(sample))
    }
}

/// The variances that a private functional key switch adds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwitchNoise {
    /// To every coefficient of the result.
    pub rows: f64,
    /// To the message, before it is multiplied by the polynomial of f.
    pub message: f64,
}

/// The number of rows of a key of this gadget.
pub(super) fn row_count(params: &StageParams, gadget: Gadget) -> f64 {
    (params.extracted_dimension() as f64 + 1.0) * gadget.levels as f64
}

/// What the digits of `samples` samples drop and bring in of a key's noise.
pub(super) fn switch_noise_of(params: &ParamSet, gadget: Gadget, samples: f64) -> SwitchNoise {
    let digits = row_count(params, gadget) * digit_mean_square(gadget.log2_base);
    let ones = params.extracted_dimension() as f64 / 2.0;
    SwitchNoise {
        rows: samples * digits * params.glwe_variance(),
        message: (1.0 + ones) * dropped_variance(gadget),
    }
}

/// The noise of a private functional key switch, on both paths.
#[must_use]
pub fn switch_noise(params: &ParamSet, gadget: Gadget, arithmetic: ArithmeticKind) -> SwitchNoise {
    let mut noise = switch_noise_of(params, gadget, 1.0);
    if arithmetic == ArithmeticKind::Fft {
        noise.rows += switch_fft_variance(params, gadget);
    }
    noise
}

/// Variance of the unit of [`sum_rounding`]: 2^-53 of a value's standard deviation, in the phase of a GLWE sample with uniform
/// words times digits of this gadget.
pub(super) fn rounding_unit(params: &ParamSet, gadget: Gadget) -> f64 {
    let ones = params.extracted_dimension() as f64 / 2.0;
    (1.0 + ones) * (-106.0f64).exp2() * digit_mean_square(gadget.log2_base) / 12.0
}

/// Rounding of a sum of `terms` independent f64 terms that is rounded once for every `at_once` of them, in units of 2^-106 of
/// a term's variance.
///
/// An addition errs by ulp^2/12, which averages to 0.18·2^-106 of the sum's square over mantissas; the sums add up to terms^2/2.
pub(super) fn sum_rounding(terms: f64, at_once: f64) -> f64 {
    0.18 / 2.0 * terms * terms / at_once
}

/// Variance that f64 adds to the rows of a private functional key switch: the rounding of its sum, and that of the transforms of
/// the key's rows and of the result, as in [`fft_variance`].
#[must_use]
pub fn switch_fft_variance(params: &ParamSet, gadget: Gadget) -> f64 {
    let rows = row_count(params, gadget);
    let transforms = rows * (params.ring_degree as f64).log2();
    let sums = sum_rounding(rows, ROWS_AT_ONCE as f64);
    (transforms + sums) * rounding_unit(params, gadget)
}

/// Variance that f64 adds in one external product with a GGSW sample of `circuit` that private functional key switches of this
/// gadget made: [`fft_variance`], times the variance of their unreduced coefficients in units of a uniform word's.
#[must_use]
pub fn private_product_fft_variance(circuit: &StageParams, gadget: Gadget) -> f64 {
    let growth = row_count(circuit, gadget) * digit_mean_square(gadget.log2_base);
    fft_variance(circuit, ArithmeticKind::Fft) * growth
}
