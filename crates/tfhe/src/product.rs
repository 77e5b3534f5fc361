//! The external product's polynomial arithmetic, in three forms behind one trait: exact (NTT over Goldilocks), fast
//! (f64 FFT) and the naive oracle.
//!
//! Keys come to all of them in the canonical form of the platform paper's equation 1: pre-scaled by 1/N and in the NTT
//! domain (BKNTT). [`Arithmetic::load`] turns a polynomial of it, in place, into what the form wants.
//!
//! Exactness of the NTT path over the 32-bit torus: a sum of (k+1)·l products of N terms, digits at most B/2 and centred
//! words at most 2^31 (2^31 + 2^(32-beta) in one coefficient of a mask that carries the message), stays below 2^53.3 for the largest set (`paper`), far below p/2, so the centred representative
//! is the integer itself. Over the Goldilocks modulus the field is the ring of coefficients and every result is exact.

use bytemuck::Pod;
use toroid_ring::fft::FftPlan;
use toroid_ring::multiversion;
use toroid_ring::naive;
use toroid_ring::ntt::NttPlan;
use toroid_ring::simd::Isa;

use crate::TfheError;
use crate::modulus::{DigitField, Modulus};
use crate::noise::Path;
use crate::params::{Gadget, ModulusKind, ParamSet};

/// Polynomial arithmetic of one form. Slices of `Scalar` hold one transformed polynomial of N entries.
pub trait Arithmetic<M: Modulus>: Send + Sync + Sized + 'static {
    /// Entry of a transformed polynomial; eight bytes, so that a key of `u64` words is converted in place.
    type Scalar: Pod + Default + Send + Sync;
    /// Which noise formulas apply.
    const PATH: Path;

    /// Plans for the ring of a parameter set.
    ///
    /// # Errors
    /// [`TfheError::Ring`] for a degree that the transform does not support.
    fn new(params: &'static ParamSet, isa: Isa) -> Result<Self, TfheError>;
    /// Converts one canonical BKNTT polynomial, in place (the result's bits stand in the u64 words); `scratch` has N
    /// entries.
    fn load(&self, polynomial: &mut [u64], scratch: &mut [Self::Scalar]);
    /// sums\[c\] += digits ⊙ row\[c\] for the k+1 polynomials of a TRGSW row, where `digits` is the transform of digit
    /// `level` of every word; with `first`, `sums` is overwritten. `scratch` has 2·N entries.
    fn mul_add_digits(
        &self,
        words: &[M::Word],
        level: usize,
        row: &[Self::Scalar],
        scratch: &mut [Self::Scalar],
        sums: &mut [Self::Scalar],
        first: bool,
    );
    /// words += inverse transform of `spectrum`, which is destroyed.
    fn inverse_add(
        &self,
        spectrum: &mut [Self::Scalar],
        scratch: &mut [Self::Scalar],
        words: &mut [M::Word],
    );
}

/// Integers: NTT over Goldilocks.
pub struct Exact {
    plan: NttPlan,
    gadget: Gadget,
}

/// f64 FFT.
pub struct Fast {
    plan: FftPlan,
    ntt: NttPlan,
    gadget: Gadget,
}

/// Schoolbook products, the oracle of [`Exact`]: quadratic in N.
pub struct Naive {
    ntt: NttPlan,
    gadget: Gadget,
}

multiversion! {
    /// A digit of every word as field elements.
    fn field_digits<M: Modulus>(words: &[M::Word], field: DigitField, out: &mut [u64]) {
        for (digit, word) in out.iter_mut().zip(words) {
            *digit = toroid_ring::goldilocks::from_signed(i64::from(M::digit(*word, field)));
        }
    }
}

multiversion! {
    /// A digit of every word as f64.
    fn f64_digits<M: Modulus>(words: &[M::Word], field: DigitField, out: &mut [f64]) {
        for (digit, word) in out.iter_mut().zip(words) {
            *digit = f64::from(M::digit(*word, field));
        }
    }
}

multiversion! {
    /// Centred field elements as f64, scaled.
    fn scaled_f64(out: &mut [f64], values: &[u64], scale: f64) {
        for (o, value) in out.iter_mut().zip(values) {
            *o = toroid_ring::goldilocks::to_centered(*value) as f64 * scale;
        }
    }
}

multiversion! {
    /// words += values, converted from the field.
    fn add_field<M: Modulus>(words: &mut [M::Word], values: &[u64]) {
        for (word, value) in words.iter_mut().zip(values) {
            *word = M::add(*word, M::from_goldilocks(*value));
        }
    }
}

multiversion! {
    /// words += values, rounded.
    fn add_f64<M: Modulus>(words: &mut [M::Word], values: &[f64]) {
        for (word, value) in words.iter_mut().zip(values) {
            *word = M::add(*word, M::from_f64(*value));
        }
    }
}

/// The polynomials of `sums` beside those of a row.
fn columns<'a, T>(
    sums: &'a mut [T],
    row: &'a [T],
    degree: usize,
) -> impl Iterator<Item = (&'a mut [T], &'a [T])> {
    sums.chunks_exact_mut(degree).zip(row.chunks_exact(degree))
}

/// acc += a·key by the schoolbook.
fn naive_mul_add(modulus: ModulusKind, acc: &mut [u64], a: &[u64], key: &[u64]) {
    match modulus {
        ModulusKind::Goldilocks => {
            for (sum, term) in acc.iter_mut().zip(naive::negacyclic_mul_goldilocks(a, key)) {
                *sum = toroid_ring::goldilocks::add(*sum, term);
            }
        }
        // On the torus itself, modulo 2^32, so that the oracle does not lean on the lift to the field.
        ModulusKind::Torus32 => {
            let centered = |value: &u64| toroid_ring::goldilocks::to_centered(*value);
            let key: Vec<u32> = key.iter().map(|c| centered(c) as u32).collect();
            let digits: Vec<i64> = a.iter().map(centered).collect();
            let product = naive::negacyclic_mul_wrapping_u32(&key, &digits);
            for (sum, term) in acc.iter_mut().zip(product) {
                *sum = u64::from((*sum as u32).wrapping_add(term));
            }
        }
    }
}

impl<M: Modulus> Arithmetic<M> for Exact {
    type Scalar = u64;
    const PATH: Path = Path::Exact;

    fn new(params: &'static ParamSet, isa: Isa) -> Result<Self, TfheError> {
        Ok(Exact {
            plan: NttPlan::with_isa(params.ring_degree, isa)?,
            gadget: params.gadget,
        })
    }

    fn load(&self, _: &mut [u64], _: &mut [u64]) {}

    fn mul_add_digits(
        &self,
        words: &[M::Word],
        level: usize,
        row: &[u64],
        scratch: &mut [u64],
        sums: &mut [u64],
        first: bool,
    ) {
        let digits = &mut scratch[..words.len()];
        let field = DigitField::new(M::KIND, self.gadget, level);
        field_digits::<M>(self.plan.isa(), words, field, digits);
        self.plan.forward(digits);
        if first {
            sums.fill(0);
        }
        for (sum, key) in columns(sums, row, words.len()) {
            self.plan.mul_add_assign(sum, digits, key);
        }
    }

    fn inverse_add(&self, spectrum: &mut [u64], _: &mut [u64], words: &mut [M::Word]) {
        self.plan.inverse(spectrum);
        add_field::<M>(self.plan.isa(), words, spectrum);
    }
}

impl<M: Modulus> Arithmetic<M> for Fast {
    type Scalar = f64;
    const PATH: Path = Path::Fast;

    fn new(params: &'static ParamSet, isa: Isa) -> Result<Self, TfheError> {
        Ok(Fast {
            plan: FftPlan::with_isa(params.ring_degree, isa)?,
            ntt: NttPlan::with_isa(params.ring_degree, isa)?,
            gadget: params.gadget,
        })
    }

    fn load(&self, polynomial: &mut [u64], scratch: &mut [f64]) {
        self.ntt.inverse(polynomial);
        // The inverse FFT multiplies by N/2.
        let scale = 2.0 / polynomial.len() as f64 * M::F64_UNIT;
        scaled_f64(self.plan.isa(), scratch, polynomial, scale);
        self.plan
            .forward(scratch, bytemuck::cast_slice_mut(polynomial));
    }

    fn mul_add_digits(
        &self,
        words: &[M::Word],
        level: usize,
        row: &[f64],
        scratch: &mut [f64],
        sums: &mut [f64],
        first: bool,
    ) {
        let (digits, spectrum) = scratch.split_at_mut(words.len());
        let field = DigitField::new(M::KIND, self.gadget, level);
        f64_digits::<M>(self.plan.isa(), words, field, digits);
        if first {
            self.plan
                .forward_mul_add::<false>(digits, spectrum, row, sums);
        } else {
            self.plan
                .forward_mul_add::<true>(digits, spectrum, row, sums);
        }
    }

    fn inverse_add(&self, spectrum: &mut [f64], scratch: &mut [f64], words: &mut [M::Word]) {
        self.plan.inverse(spectrum, scratch);
        add_f64::<M>(self.plan.isa(), words, scratch);
    }
}

impl<M: Modulus> Arithmetic<M> for Naive {
    type Scalar = u64;
    const PATH: Path = Path::Exact;

    fn new(params: &'static ParamSet, _: Isa) -> Result<Self, TfheError> {
        Ok(Naive {
            ntt: NttPlan::with_isa(params.ring_degree, Isa::Portable)?,
            gadget: params.gadget,
        })
    }

    fn load(&self, polynomial: &mut [u64], _: &mut [u64]) {
        self.ntt.inverse(polynomial);
    }

    fn mul_add_digits(
        &self,
        words: &[M::Word],
        level: usize,
        row: &[u64],
        scratch: &mut [u64],
        sums: &mut [u64],
        first: bool,
    ) {
        let digits = &mut scratch[..words.len()];
        let field = DigitField::new(M::KIND, self.gadget, level);
        field_digits::<M>(Isa::Portable, words, field, digits);
        if first {
            sums.fill(0);
        }
        for (sum, key) in columns(sums, row, words.len()) {
            naive_mul_add(M::KIND, sum, digits, key);
        }
    }

    fn inverse_add(&self, spectrum: &mut [u64], _: &mut [u64], words: &mut [M::Word]) {
        for (word, value) in words.iter_mut().zip(spectrum.iter()) {
            // Both moduli: the accumulator's value, as a word of q.
            let value = match M::KIND {
                ModulusKind::Goldilocks => *value,
                ModulusKind::Torus32 => {
                    toroid_ring::goldilocks::from_signed(i64::from((*value as u32).cast_signed()))
                }
            };
            *word = M::add(*word, M::from_goldilocks(value));
        }
    }
}
