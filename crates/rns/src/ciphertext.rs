//! Plaintexts and ciphertexts with their scales, and the operations that need no key.

use std::sync::Arc;

use toroid_tfhe::seeded::MaskSeed;

use crate::RnsError;
use crate::context::{Basis, Context};
use crate::poly::{Form, RnsPoly, dot_tile, double, tiles};

/// Relative difference of scales that sums take for none: rounding of f64, far below any noise.
pub const SCALE_TOLERANCE: f64 = 1.0 / (1u64 << 40) as f64;

/// A polynomial of integers, in values, that stands for itself over its scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Plaintext {
    poly: RnsPoly,
    scale: f64,
}

impl Plaintext {
    /// A polynomial in either form; its special limbs, if it has some, serve products with ciphertexts that have them.
    #[must_use]
    pub fn new(mut poly: RnsPoly, scale: f64) -> Plaintext {
        poly.to_values();
        Plaintext { poly, scale }
    }

    /// The polynomial, in values.
    #[must_use]
    pub fn poly(&self) -> &RnsPoly {
        &self.poly
    }

    /// The polynomial, in values.
    #[must_use]
    pub fn into_poly(self) -> RnsPoly {
        self.poly
    }

    /// The scale.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.scale
    }
}

/// An encryption (b, a), in values: b - a·s is the plaintext, times the scale, plus noise, modulo the product of the limbs' primes.
#[derive(Clone, Debug, PartialEq)]
pub struct Ciphertext {
    pub(crate) b: RnsPoly,
    pub(crate) a: RnsPoly,
    pub(crate) scale: f64,
}

/// A fresh encryption whose mask is a seed: half the size.
#[derive(Clone, Debug, PartialEq)]
pub struct SeededCiphertext {
    pub(crate) b: RnsPoly,
    pub(crate) seed: MaskSeed,
    pub(crate) scale: f64,
}

/// A product before its relinearization: c_0 - c_1·s + c_2·s^2 is the plaintext. Sums of products need one relinearization.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub(crate) parts: [RnsPoly; 3],
    pub(crate) scale: f64,
}

/// Fills a polynomial's limbs from a seed: polynomial `number`, with a keystream of its own for each prime.
pub(crate) fn expand_mask(poly: &mut RnsPoly, seed: &MaskSeed, number: usize) {
    let (context, basis) = (Arc::clone(poly.context()), poly.basis());
    context.each_limb(poly.words_mut(), |limb, words| {
        let prime = context.index(basis, limb);
        let nonce = (number as u64) << 16 | prime as u64;
        seed.expand_residues(nonce, context.prime(basis, limb), words);
    });
}

impl SeededCiphertext {
    /// The ciphertext with its mask.
    #[must_use]
    pub fn expand(&self) -> Ciphertext {
        let mut a = RnsPoly::raw(self.b.context(), self.b.basis(), Form::Values);
        expand_mask(&mut a, &self.seed, 0);
        Ciphertext {
            b: self.b.clone(),
            a,
            scale: self.scale,
        }
    }
}

/// Refuses a sum of different scales.
pub(crate) fn check_scales(left: f64, right: f64) -> Result<(), RnsError> {
    if (left - right).abs() <= SCALE_TOLERANCE * left.abs() {
        Ok(())
    } else {
        Err(RnsError::Scale {
            left: left.log2(),
            right: right.log2(),
        })
    }
}

pub(crate) fn check_contexts(left: &RnsPoly, right: &RnsPoly) -> Result<(), RnsError> {
    if Arc::ptr_eq(left.context(), right.context()) {
        Ok(())
    } else {
        Err(RnsError::Context)
    }
}

/// Refuses fewer limbs than an operation needs.
pub(crate) fn check_limbs(what: &'static str, needed: usize, found: usize) -> Result<(), RnsError> {
    if found < needed {
        return Err(RnsError::Limbs {
            what,
            needed,
            found,
        });
    }
    Ok(())
}

impl Ciphertext {
    /// A ciphertext of its two parts.
    ///
    /// # Errors
    /// [`RnsError::Context`] for parts of different contexts.
    ///
    /// # Panics
    /// If the parts have different or special limbs.
    pub fn new(mut b: RnsPoly, mut a: RnsPoly, scale: f64) -> Result<Ciphertext, RnsError> {
        check_contexts(&b, &a)?;
        assert!(
            b.basis() == a.basis() && b.basis().special == 0,
            "{:?} and {:?} make no ciphertext",
            b.basis(),
            a.basis()
        );
        b.to_values();
        a.to_values();
        Ok(Ciphertext { b, a, scale })
    }

    /// The encryption of 0 that everybody knows: what sums begin with.
    #[must_use]
    pub fn zero(context: &Arc<Context>, limbs: usize, scale: f64) -> Ciphertext {
        let zero = RnsPoly::zero(context, Basis::chain(limbs), Form::Values);
        Ciphertext {
            b: zero.clone(),
            a: zero,
            scale,
        }
    }

    /// A ciphertext whose words the caller writes, all of them.
    pub(crate) fn raw(context: &Arc<Context>, limbs: usize, scale: f64) -> Ciphertext {
        let [b, a] = [0, 1].map(|_| RnsPoly::raw(context, Basis::chain(limbs), Form::Values));
        Ciphertext { b, a, scale }
    }

    /// The context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        self.b.context()
    }

    /// Limbs: one more than the rescalings that are left.
    #[must_use]
    pub fn limbs(&self) -> usize {
        self.b.limbs()
    }

    /// The scale.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Says that the plaintext is to be taken over another scale: a multiplication by a constant that costs nothing.
    pub fn set_scale(&mut self, scale: f64) {
        self.scale = scale;
    }

    /// b, in values.
    #[must_use]
    pub fn b(&self) -> &RnsPoly {
        &self.b
    }

    /// a, in values.
    #[must_use]
    pub fn a(&self) -> &RnsPoly {
        &self.a
    }

    fn parts_mut(&mut self) -> [&mut RnsPoly; 2] {
        [&mut self.b, &mut self.a]
    }

    /// Drops limbs from the top until `limbs` are left; the plaintext stays as it is.
    ///
    /// # Errors
    /// [`RnsError::Limbs`] if there are fewer.
    ///
    /// # Panics
    /// For no limbs.
    pub fn drop_to(&mut self, limbs: usize) -> Result<(), RnsError> {
        check_limbs("dropping limbs", limbs, self.limbs())?;
        self.parts_mut()
            .into_iter()
            .for_each(|part| part.drop_to(limbs));
        Ok(())
    }

    /// Cuts `self` to the limbs that it has in common with `other`.
    fn meet(&mut self, other: &Ciphertext) -> Result<(), RnsError> {
        check_contexts(&self.b, &other.b)?;
        check_scales(self.scale, other.scale)?;
        let limbs = self.limbs().min(other.limbs());
        self.parts_mut()
            .into_iter()
            .for_each(|part| part.drop_to(limbs));
        Ok(())
    }

    /// `self + other`, with the fewer limbs of the two.
    ///
    /// # Errors
    /// [`RnsError::Context`]; [`RnsError::Scale`].
    pub fn add_assign(&mut self, other: &Ciphertext) -> Result<(), RnsError> {
        self.meet(other)?;
        self.b.add_assign(&other.b);
        self.a.add_assign(&other.a);
        Ok(())
    }

    /// `self - other`, with the fewer limbs of the two.
    ///
    /// # Errors
    /// As for [`Ciphertext::add_assign`].
    pub fn sub_assign(&mut self, other: &Ciphertext) -> Result<(), RnsError> {
        self.meet(other)?;
        self.b.sub_assign(&other.b);
        self.a.sub_assign(&other.a);
        Ok(())
    }

    /// `-self`.
    pub fn neg_assign(&mut self) {
        self.parts_mut().into_iter().for_each(RnsPoly::neg_assign);
    }

    /// `self + plaintext`.
    ///
    /// # Errors
    /// [`RnsError::Context`]; [`RnsError::Scale`]; [`RnsError::Limbs`] for a plaintext of fewer limbs.
    pub fn add_plain(&mut self, plaintext: &Plaintext) -> Result<(), RnsError> {
        check_scales(self.scale, plaintext.scale)?;
        self.check_plain(plaintext)?;
        self.b.add_assign(&plaintext.poly);
        Ok(())
    }

    /// `self - plaintext`.
    ///
    /// # Errors
    /// As for [`Ciphertext::add_plain`].
    pub fn sub_plain(&mut self, plaintext: &Plaintext) -> Result<(), RnsError> {
        check_scales(self.scale, plaintext.scale)?;
        self.check_plain(plaintext)?;
        self.b.sub_assign(&plaintext.poly);
        Ok(())
    }

    fn check_plain(&self, plaintext: &Plaintext) -> Result<(), RnsError> {
        check_contexts(&self.b, &plaintext.poly)?;
        let found = plaintext.poly.basis();
        assert!(found.special == 0, "a plaintext with {found:?}");
        check_limbs("an operation with a plaintext", self.limbs(), found.chain)
    }

    /// `self·plaintext`; scales multiply. Not rescaled.
    ///
    /// # Errors
    /// [`RnsError::Context`]; [`RnsError::Limbs`] for a plaintext of fewer limbs.
    pub fn mul_plain(&mut self, plaintext: &Plaintext) -> Result<(), RnsError> {
        self.check_plain(plaintext)?;
        self.b.mul_assign(&plaintext.poly);
        self.a.mul_assign(&plaintext.poly);
        self.scale *= plaintext.scale;
        Ok(())
    }

    /// `self + other·plaintext`.
    ///
    /// # Errors
    /// [`RnsError::Context`]; [`RnsError::Scale`] unless the scale of `self` is that of the product; [`RnsError::Limbs`] if `other`
    /// or the plaintext has fewer limbs than `self`.
    pub fn mul_plain_add(
        &mut self,
        other: &Ciphertext,
        plaintext: &Plaintext,
    ) -> Result<(), RnsError> {
        check_contexts(&self.b, &other.b)?;
        check_limbs("a sum of products", self.limbs(), other.limbs())?;
        self.check_plain(plaintext)?;
        check_scales(self.scale, other.scale * plaintext.scale)?;
        self.b.mul_add_assign(&other.b, &plaintext.poly);
        self.a.mul_add_assign(&other.a, &plaintext.poly);
        Ok(())
    }

    /// `self + constant`, `constant` over the scale in every slot: to the constant coefficient, in units of the ring.
    pub fn add_scalar(&mut self, constant: i128) {
        self.b.add_scalar(constant);
    }

    /// `self + x + i·y` over the scale in every slot, in units of the ring.
    pub fn add_gaussian(&mut self, constant: [i128; 2]) {
        self.b.add_gaussian(constant);
    }

    /// `factor·self`; the scale stays as it is.
    pub fn mul_scalar(&mut self, factor: i128) {
        self.parts_mut()
            .into_iter()
            .for_each(|part| part.mul_scalar(factor));
    }

    /// `X^power·self`. X^(N/2) multiplies every slot by i.
    pub fn mul_monomial(&mut self, power: i64) {
        self.parts_mut()
            .into_iter()
            .for_each(|part| part.mul_monomial(power));
    }

    /// Divides by the last `count` primes and drops them; the scale is divided too.
    ///
    /// # Errors
    /// [`RnsError::Limbs`] unless there are more limbs.
    ///
    /// # Panics
    /// For counts other than 1 to [`crate::context::MAX_RESCALE`].
    pub fn rescale(self, count: usize) -> Result<Ciphertext, RnsError> {
        check_limbs("rescaling", count + 1, self.limbs())?;
        let last = self.limbs() - count..self.limbs();
        let dropped: f64 = last.map(|limb| self.b.prime(limb) as f64).product();
        Ok(Ciphertext {
            b: self.b.divide_by_last(count)?,
            a: self.a.divide_by_last(count)?,
            scale: self.scale / dropped,
        })
    }

    /// `self·other` before relinearization, with the fewer limbs of the two; scales multiply.
    ///
    /// # Errors
    /// [`RnsError::Context`].
    pub fn tensor(&self, other: &Ciphertext) -> Result<Tensor, RnsError> {
        Tensor::sum(&[(self, other)])
    }

    /// `Σ (x + i·y)·value` over at least one term (value, [x, y]), with `limbs` limbs. The scale is that of the first; the
    /// others' are the caller's to know.
    ///
    /// # Errors
    /// [`RnsError::Context`]; [`RnsError::Limbs`] if a value has fewer.
    ///
    /// # Panics
    /// If there are no terms, or for no limbs.
    pub fn combination(
        limbs: usize,
        terms: &[(&Ciphertext, [i128; 2])],
    ) -> Result<Ciphertext, RnsError> {
        let (values, factors): (Vec<&Ciphertext>, Vec<[i128; 2]>) = terms.iter().copied().unzip();
        let parts = Self::parts_with(limbs, &values)?;
        let [b, a] = parts.map(|part| {
            let terms: Vec<_> = part.into_iter().zip(factors.iter().copied()).collect();
            RnsPoly::combination(Basis::chain(limbs), &terms)
        });
        let scale = values[0].scale;
        Ok(Ciphertext { b, a, scale })
    }

    /// [`Ciphertext::combination`] and [`Ciphertext::rescale`] by one prime.
    ///
    /// # Errors
    /// [`RnsError::Context`]; [`RnsError::Limbs`] if a value has fewer than `limbs`, or these are not two.
    ///
    /// # Panics
    /// If there are no terms.
    pub fn combination_rescaled(
        limbs: usize,
        terms: &[(&Ciphertext, [i128; 2])],
    ) -> Result<Ciphertext, RnsError> {
        let (values, factors): (Vec<&Ciphertext>, Vec<[i128; 2]>) = terms.iter().copied().unzip();
        let mut rescaled = Self::combinations_rescaled(limbs, &values, &[factors])?;
        Ok(rescaled.remove(0))
    }

    /// [`Ciphertext::combination_rescaled`] for each row of factors, one for each value; values are read once for all rows.
    ///
    /// # Errors
    /// As for [`Ciphertext::combination_rescaled`].
    ///
    /// # Panics
    /// If there are no values, or if a row has another length.
    pub fn combinations_rescaled(
        limbs: usize,
        values: &[&Ciphertext],
        rows: &[Vec<[i128; 2]>],
    ) -> Result<Vec<Ciphertext>, RnsError> {
        let [b, a] = Self::parts_with(limbs, values)?;
        let first = values[0];
        let parts = RnsPoly::combinations_divided(limbs, &b, rows)?.into_iter();
        let parts = parts.zip(RnsPoly::combinations_divided(limbs, &a, rows)?);
        let scale = first.scale / first.context().params().chain[limbs - 1] as f64;
        Ok(parts.map(|(b, a)| Ciphertext { b, a, scale }).collect())
    }

    /// `factor·Σ weight·value` for each row of weights below 2^16, one for each value. The scale is that of the first value; the
    /// others' are the caller's to know, and what `factor` makes of it.
    ///
    /// # Errors
    /// [`RnsError::Context`].
    ///
    /// # Panics
    /// If there are no values or more than [`crate::slots::MAX_WEIGHTS`], if they have different limbs, or if a row has another
    /// length or a larger weight.
    pub fn weighted(
        values: &[&Ciphertext],
        rows: &[Vec<u32>],
        factor: i128,
    ) -> Result<Vec<Ciphertext>, RnsError> {
        let [b, a] = Self::parts(values)?;
        let parts = RnsPoly::weighted(&b, rows, factor).into_iter();
        let parts = parts.zip(RnsPoly::weighted(&a, rows, factor));
        let scale = values[0].scale;
        Ok(parts.map(|(b, a)| Ciphertext { b, a, scale }).collect())
    }

    /// Both parts of each of several values of one context.
    ///
    /// # Panics
    /// If there are no values.
    fn parts<'a>(values: &[&'a Ciphertext]) -> Result<[Vec<&'a RnsPoly>; 2], RnsError> {
        let first = values.first().expect("a sum has a value");
        for value in values {
            check_contexts(&first.b, &value.b)?;
        }
        let b = values.iter().map(|value| &value.b).collect();
        let a = values.iter().map(|value| &value.a).collect();
        Ok([b, a])
    }

    /// [`Ciphertext::parts`] of values that have so many limbs at least.
    fn parts_with<'a>(
        limbs: usize,
        values: &[&'a Ciphertext],
    ) -> Result<[Vec<&'a RnsPoly>; 2], RnsError> {
        let parts = Self::parts(values)?;
        for value in values {
            check_limbs("a combination", limbs, value.limbs())?;
        }
        Ok(parts)
    }
}

impl Tensor {
    /// `Σ x·y` over at least one pair, with the fewest limbs of all; scales multiply.
    ///
    /// # Errors
    /// [`RnsError::Context`]; [`RnsError::Scale`] unless all products have one scale.
    ///
    /// # Panics
    /// If there are no pairs.
    pub fn sum(pairs: &[(&Ciphertext, &Ciphertext)]) -> Result<Tensor, RnsError> {
        let (limbs, scale) = Self::check(pairs)?;
        let basis = Basis::chain(limbs);
        let context = pairs[0].0.context();
        let mut parts = [0, 1].map(|_| RnsPoly::raw(context, basis, Form::Values));
        let words = parts.each_mut().map(RnsPoly::words_mut);
        context.each_limb_of(words, |limb, [own, cross]| {
            Self::own_limb(pairs, limb, own);
            Self::cross_limb(pairs, limb, cross);
        });
        let [own, cross] = parts;
        let masks: Vec<_> = pairs.iter().map(|(x, y)| (&x.a, &y.a)).collect();
        let parts = [own, cross, RnsPoly::dot(basis, &masks)];
        Ok(Tensor { parts, scale })
    }

    /// The limbs and the scale of a sum of products, where it has one of each.
    pub(crate) fn check(pairs: &[(&Ciphertext, &Ciphertext)]) -> Result<(usize, f64), RnsError> {
        let (first, second) = pairs.first().expect("a sum of products has a term");
        let scale = first.scale * second.scale;
        for (x, y) in pairs {
            check_contexts(&first.b, &x.b)?;
            check_contexts(&first.b, &y.b)?;
            check_scales(scale, x.scale * y.scale)?;
        }
        let limbs = pairs.iter().map(|(x, y)| x.limbs().min(y.limbs())).min();
        Ok((limbs.unwrap_or(1), scale))
    }

    /// A limb of the part of a sum of products without the secret.
    pub(crate) fn own_limb(pairs: &[(&Ciphertext, &Ciphertext)], limb: usize, out: &mut [u64]) {
        let own = pairs.iter().map(|(x, y)| (x.b.limb(limb), y.b.limb(limb)));
        let own: Vec<_> = own.collect();
        let context = pairs[0].0.context();
        let plan = &context.modulus(Basis::chain(limb + 1), limb).plan;
        for (at, out) in tiles(out) {
            dot_tile(plan, out, at, &own, None);
        }
    }

    /// A limb of the part that the secret multiplies.
    pub(crate) fn cross_limb(pairs: &[(&Ciphertext, &Ciphertext)], limb: usize, out: &mut [u64]) {
        let squares = pairs.iter().all(|(x, y)| std::ptr::eq(*x, *y));
        let mut cross = Vec::with_capacity(2 * pairs.len());
        for (x, y) in pairs {
            cross.push((x.b.limb(limb), y.a.limb(limb)));
            if !squares {
                cross.push((x.a.limb(limb), y.b.limb(limb)));
            }
        }
        let context = pairs[0].0.context();
        let modulus = context.modulus(Basis::chain(limb + 1), limb);
        for (at, out) in tiles(out) {
            dot_tile(&modulus.plan, out, at, &cross, None);
            if squares {
                double(context.simd(), out, modulus.q());
            }
        }
    }

    /// Limbs.
    #[must_use]
    pub fn limbs(&self) -> usize {
        self.parts[0].limbs()
    }

    /// The scale.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// `self + other`, with the fewer limbs of the two.
    ///
    /// # Errors
    /// [`RnsError::Context`]; [`RnsError::Scale`].
    pub fn add_assign(&mut self, other: &Tensor) -> Result<(), RnsError> {
        check_contexts(&self.parts[0], &other.parts[0])?;
        check_scales(self.scale, other.scale)?;
        let limbs = self.limbs().min(other.limbs());
        for (part, other) in self.parts.iter_mut().zip(&other.parts) {
            part.drop_to(limbs);
            part.add_assign(other);
        }
        Ok(())
    }

    /// `self + other`, a ciphertext of the same scale.
    ///
    /// # Errors
    /// As for [`Tensor::add_assign`].
    pub fn add_ciphertext(&mut self, other: &Ciphertext) -> Result<(), RnsError> {
        check_contexts(&self.parts[0], &other.b)?;
        check_scales(self.scale, other.scale)?;
        let limbs = self.limbs().min(other.limbs());
        self.parts.iter_mut().for_each(|part| part.drop_to(limbs));
        self.parts[0].add_assign(&other.b);
        self.parts[1].add_assign(&other.a);
        Ok(())
    }
}
