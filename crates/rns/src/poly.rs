//! Polynomials modulo X^N + 1, by their residues modulo the primes of a basis.

use std::fmt;
use std::sync::Arc;

use toroid_ring::multiversion;
use toroid_ring::prime;
use toroid_ring::prime_ntt::Ntt50Plan;
use toroid_ring::simd::SimdLevel;
use zeroize::Zeroize;

use crate::RnsError;
use crate::automorphism::Automorphism;
use crate::buffer::Buffer;
use crate::context::{Basis, Context};
use crate::conversion::Modulus;
use crate::slots::MAX_WEIGHTS;

/// What the words of a polynomial are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// Coefficients, in natural order.
    Coefficients,
    /// Values at the odd powers of psi, in bit-reversed order, as [`toroid_ring::prime_ntt`] makes them: products are position by
    /// position.
    Values,
}

/// A polynomial: one limb of N canonical words for each prime of its basis, one after the other in one allocation that starts on
/// a page. Its memory goes back to the context when it is dropped.
pub struct RnsPoly {
    context: Arc<Context>,
    basis: Basis,
    form: Form,
    /// Taken out by `drop` alone.
    buffer: Option<Buffer>,
}

multiversion! {
    /// a + b mod q
    pub(crate) fn add(a: &mut [u64], b: &[u64], q: u64) {
        for (a, b) in a.iter_mut().zip(b) {
            let sum = *a + b;
            *a = sum.min(sum.wrapping_sub(q));
        }
    }
}

multiversion! {
    /// 2·a mod q
    pub(crate) fn double(a: &mut [u64], q: u64) {
        for a in a {
            let sum = *a + *a;
            *a = sum.min(sum.wrapping_sub(q));
        }
    }
}

multiversion! {
    /// a - b mod q
    fn sub(a: &mut [u64], b: &[u64], q: u64) {
        for (a, b) in a.iter_mut().zip(b) {
            let difference = a.wrapping_sub(*b);
            *a = difference.min(difference.wrapping_add(q));
        }
    }
}

multiversion! {
    /// -a mod q
    fn neg(a: &mut [u64], q: u64) {
        for a in a {
            let negated = q - *a;
            *a = negated.min(negated.wrapping_sub(q));
        }
    }
}

multiversion! {
    /// Signed numbers within q to their residues.
    fn residues(numbers: &[i64], out: &mut [u64], q: u64) {
        for (out, number) in out.iter_mut().zip(numbers) {
            let word = number.cast_unsigned();
            *out = word.min(word.wrapping_add(q));
        }
    }
}

/// Signed numbers to their residues.
pub(crate) fn reduce(simd: SimdLevel, numbers: &[i64], out: &mut [u64], q: u64) {
    if numbers.iter().all(|number| number.unsigned_abs() < q) {
        residues(simd, numbers, out, q);
    } else {
        for (word, number) in out.iter_mut().zip(numbers) {
            *word = i128::from(*number).rem_euclid(q.into()) as u64;
        }
    }
}

impl RnsPoly {
    /// A polynomial whose words are whatever was in memory: the caller writes all of them.
    pub(crate) fn raw(context: &Arc<Context>, basis: Basis, form: Form) -> RnsPoly {
        let full = context.full_basis();
        assert!(
            basis.chain <= full.chain && basis.special <= full.special && basis.limbs() > 0,
            "{basis:?} is no basis of this context"
        );
        RnsPoly {
            context: Arc::clone(context),
            basis,
            form,
            buffer: Some(context.pool.take(basis.limbs() * context.degree())),
        }
    }

    /// 0.
    ///
    /// # Panics
    /// If the basis is empty or has more primes than the context.
    #[must_use]
    pub fn zero(context: &Arc<Context>, basis: Basis, form: Form) -> RnsPoly {
        let mut zero = Self::raw(context, basis, form);
        zero.words_mut().fill(0);
        zero
    }

    /// The polynomial with these coefficients, in coefficient form.
    ///
    /// # Errors
    /// [`RnsError::Length`] unless there are N.
    ///
    /// # Panics
    /// As for [`RnsPoly::zero`].
    pub fn from_i64(
        context: &Arc<Context>,
        basis: Basis,
        coefficients: &[i64],
    ) -> Result<RnsPoly, RnsError> {
        check_length(context, coefficients.len())?;
        let mut poly = Self::raw(context, basis, Form::Coefficients);
        let simd = context.simd();
        poly.each_limb(|modulus, limb| reduce(simd, coefficients, limb, modulus.q()));
        Ok(poly)
    }

    /// The polynomial with these coefficients, in coefficient form.
    ///
    /// # Errors
    /// [`RnsError::Length`] unless there are N.
    ///
    /// # Panics
    /// As for [`RnsPoly::zero`].
    pub fn from_i128(
        context: &Arc<Context>,
        basis: Basis,
        coefficients: &[i128],
    ) -> Result<RnsPoly, RnsError> {
        check_length(context, coefficients.len())?;
        let mut poly = Self::raw(context, basis, Form::Coefficients);
        poly.each_limb(|modulus, limb| {
            for (word, c) in limb.iter_mut().zip(coefficients) {
                *word = c.rem_euclid(modulus.q().into()) as u64;
            }
        });
        Ok(poly)
    }

    /// The coefficients nearest to 0 modulo the product of the first two primes of the basis (or of its only one): the coefficients
    /// themselves wherever they are within half of that product, about 2^97.
    #[must_use]
    pub fn to_i128(&self) -> Vec<i128> {
        let mut low = self.restricted(self.basis.limbs().min(2));
        low.to_coefficients();
        let q0 = self.prime(0);
        let centered = |x: u128, modulus: u128| {
            if x > modulus / 2 {
                x as i128 - modulus as i128
            } else {
                x as i128
            }
        };
        if low.limbs() == 1 {
            let coefficients = low.limb(0).iter();
            return coefficients
                .map(|x| centered((*x).into(), q0.into()))
                .collect();
        }
        let q1 = self.prime(1);
        let inverse = prime::inv(q0, q1);
        let pairs = low.limb(0).iter().zip(low.limb(1));
        let product = u128::from(q0) * u128::from(q1);
        pairs
            .map(|(x0, x1)| {
                let digit = prime::mul(prime::sub(*x1, *x0, q1), inverse, q1);
                centered(
                    u128::from(digit) * u128::from(q0) + u128::from(*x0),
                    product,
                )
            })
            .collect()
    }

    /// The context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The primes.
    #[must_use]
    pub fn basis(&self) -> Basis {
        self.basis
    }

    /// Limbs, special ones too.
    #[must_use]
    pub fn limbs(&self) -> usize {
        self.basis.limbs()
    }

    /// What the words are.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// The prime of a limb.
    ///
    /// # Panics
    /// If there is no such limb.
    #[must_use]
    pub fn prime(&self, limb: usize) -> u64 {
        self.context.prime(self.basis, limb)
    }

    /// The N words of a limb.
    ///
    /// # Panics
    /// If there is no such limb.
    #[must_use]
    pub fn limb(&self, limb: usize) -> &[u64] {
        let degree = self.context.degree();
        &self.words()[limb * degree..][..degree]
    }

    /// The N words of a limb, which must stay canonical.
    ///
    /// # Panics
    /// If there is no such limb.
    pub fn limb_mut(&mut self, limb: usize) -> &mut [u64] {
        let degree = self.context.degree();
        &mut self.words_mut()[limb * degree..][..degree]
    }

    /// All words, limb by limb.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        self.buffer.as_ref().map_or(&[], Buffer::words)
    }

    /// All words, limb by limb, which must stay canonical.
    pub fn words_mut(&mut self) -> &mut [u64] {
        self.buffer.as_mut().map_or(&mut [], Buffer::words_mut)
    }

    /// Calls `run` with the modulus and the words of every limb.
    fn each_limb(&mut self, run: impl Fn(&Modulus, &mut [u64]) + Sync) {
        self.each(|modulus, _, words| run(modulus, words));
    }

    /// The same, with the number of the limb.
    fn each(&mut self, run: impl Fn(&Modulus, usize, &mut [u64]) + Sync) {
        let (context, basis) = (Arc::clone(&self.context), self.basis);
        context.each_limb(self.words_mut(), |limb, words| {
            run(context.modulus(basis, limb), limb, words);
        });
    }

    /// Values to coefficients; nothing where they are coefficients.
    pub fn to_coefficients(&mut self) {
        if self.form == Form::Values {
            self.each_limb(|modulus, limb| {
                modulus.plan.inverse(limb);
                modulus.plan.scale_assign(limb, modulus.degree_inverse);
            });
            self.form = Form::Coefficients;
        }
    }

    /// Coefficients to values; nothing where they are values.
    pub fn to_values(&mut self) {
        if self.form == Form::Coefficients {
            self.each_limb(|modulus, limb| modulus.plan.forward(limb));
            self.form = Form::Values;
        }
    }

    /// Refuses an operand of another context, form or set of primes. It may have more limbs of the chain where neither has special
    /// ones: operations use the first.
    pub(crate) fn check(&self, other: &RnsPoly) {
        assert!(
            Arc::ptr_eq(&self.context, &other.context),
            "operands of different contexts"
        );
        assert!(
            self.form == other.form,
            "an operand of {:?} and one of {:?}",
            self.form,
            other.form
        );
        assert!(
            self.basis == other.basis
                || (self.basis.special, other.basis.special) == (0, 0)
                    && self.basis.chain <= other.basis.chain,
            "an operand with {:?} and one with {:?}",
            self.basis,
            other.basis
        );
    }

    /// `self + other`.
    ///
    /// # Panics
    /// If `other` has another context or form, or lacks limbs of `self`.
    pub fn add_assign(&mut self, other: &RnsPoly) {
        self.check(other);
        let simd = self.context.simd();
        self.each(|modulus, i, limb| add(simd, limb, other.limb(i), modulus.q()));
    }

    /// `self - other`.
    ///
    /// # Panics
    /// As for [`RnsPoly::add_assign`].
    pub fn sub_assign(&mut self, other: &RnsPoly) {
        self.check(other);
        let simd = self.context.simd();
        self.each(|modulus, i, limb| sub(simd, limb, other.limb(i), modulus.q()));
    }

    /// `-self`.
    pub fn neg_assign(&mut self) {
        let simd = self.context.simd();
        self.each_limb(|modulus, limb| neg(simd, limb, modulus.q()));
    }

    /// The product of values.
    ///
    /// # Panics
    /// As for [`RnsPoly::add_assign`], and for coefficients.
    pub fn mul_assign(&mut self, other: &RnsPoly) {
        self.check(other);
        self.check_values();
        self.each(|modulus, i, limb| modulus.plan.mul_assign(limb, other.limb(i)));
    }

    /// `self + a·b`, of values.
    ///
    /// # Panics
    /// As for [`RnsPoly::mul_assign`].
    pub fn mul_add_assign(&mut self, a: &RnsPoly, b: &RnsPoly) {
        self.check(a);
        self.check(b);
        self.check_values();
        self.each(|modulus, i, limb| modulus.plan.mul_add_assign(limb, a.limb(i), b.limb(i)));
    }

    /// The sum of products of values, each limb read and reduced once, in the basis of `basis`.
    ///
    /// # Panics
    /// As for [`RnsPoly::mul_assign`]; if there are no terms.
    #[must_use]
    pub fn dot(basis: Basis, terms: &[(&RnsPoly, &RnsPoly)]) -> RnsPoly {
        let context = terms.first().map(|(a, _)| Arc::clone(&a.context));
        let context = context.expect("a sum of products has a term");
        let mut sum = Self::raw(&context, basis, Form::Values);
        for (a, b) in terms {
            sum.check(a);
            sum.check(b);
        }
        sum.each(|modulus, i, limb| {
            let terms: Vec<(&[u64], &[u64])> =
                terms.iter().map(|(a, b)| (a.limb(i), b.limb(i))).collect();
            for (at, out) in tiles(limb) {
                dot_tile(&modulus.plan, out, at, &terms, None);
            }
        });
        sum
    }

    /// `Σ (x + y·X^(N/2))·value` over terms (value, [x, y]), each limb read and reduced once, in the basis of `basis`. X^(N/2) is i
    /// in every slot.
    ///
    /// # Panics
    /// As for [`RnsPoly::mul_assign`]; if there are no terms.
    #[must_use]
    pub fn combination(basis: Basis, terms: &[(&RnsPoly, [i128; 2])]) -> RnsPoly {
        let context = terms.first().map(|(value, _)| Arc::clone(&value.context));
        let context = context.expect("a combination has a term");
        let mut sum = Self::raw(&context, basis, Form::Values);
        let (values, factors): (Vec<&RnsPoly>, Vec<[i128; 2]>) = terms.iter().copied().unzip();
        for value in &values {
            sum.check(value);
        }
        let rows = [factors];
        sum.each(|modulus, i, limb| {
            combine_limb(modulus, i, &values, &rows, 1, &mut [limb], None);
        });
        sum
    }

    /// `factor·Σ weight·value` for each row of weights below 2^16, one for each value. Parts of all values stay in the second level of
    /// cache while all rows use them.
    ///
    /// # Panics
    /// As for [`RnsPoly::mul_assign`]; if there are no values or more than [`MAX_WEIGHTS`], or if a row has another length or a larger weight.
    #[must_use]
    pub fn weighted(values: &[&RnsPoly], rows: &[Vec<u32>], factor: i128) -> Vec<RnsPoly> {
        let first = values.first().expect("a weighted sum has a value");
        assert!(values.len() <= MAX_WEIGHTS, "{} values", values.len());
        for value in values {
            first.check(value);
            first.check_values();
            assert!(value.basis == first.basis, "values with different limbs");
        }
        for row in rows {
            assert!(
                row.len() == values.len() && row.iter().all(|weight| weight >> 16 == 0),
                "a row of weights"
            );
        }
        let (context, basis) = (&first.context, first.basis);
        let sum = || Self::raw(context, basis, Form::Values);
        let mut sums: Vec<RnsPoly> = rows.iter().map(|_| sum()).collect();
        let words = sums.iter_mut().map(RnsPoly::words_mut).collect();
        context.each_limb_of_all(words, |limb, mut sums| {
            let values: Vec<&[u64]> = values.iter().map(|value| value.limb(limb)).collect();
            weigh_limb(
                context,
                &context.modulus(basis, limb).plan,
                &values,
                rows,
                factor,
                &mut sums,
            );
        });
        sums
    }

    /// `factor·self`.
    pub fn mul_scalar(&mut self, factor: i128) {
        self.each_limb(|modulus, limb| {
            let factor = factor.rem_euclid(modulus.q().into()) as u64;
            modulus.plan.scale_assign(limb, factor);
        });
    }

    /// `self + constant`, the constant polynomial.
    pub fn add_scalar(&mut self, constant: i128) {
        self.add_gaussian([constant, 0]);
    }

    /// `self + x + y·X^(N/2)`; X^(N/2) is i in every slot.
    pub fn add_gaussian(&mut self, [x, y]: [i128; 2]) {
        let (simd, form) = (self.context.simd(), self.form);
        let half = self.context.degree() / 2;
        self.each_limb(|modulus, limb| {
            let q = modulus.q();
            let [x, y] = [x, y].map(|part| part.rem_euclid(q.into()) as u64);
            match form {
                Form::Values => {
                    let root = modulus.quarter_turn();
                    let (first, second) = limb.split_at_mut(half);
                    for (half, root) in [(first, root), (second, q - root)] {
                        let constant = prime::add(x, prime::mul(y, root, q), q);
                        add_constant(simd, half, constant, q);
                    }
                }
                Form::Coefficients => {
                    limb[0] = prime::add(limb[0], x, q);
                    limb[half] = prime::add(limb[half], y, q);
                }
            }
        });
    }

    /// `X^power·self`; the power counts modulo 2N. X^(N/2) is i in every slot.
    pub fn mul_monomial(&mut self, power: i64) {
        let degree = self.context.degree();
        let power = power.rem_euclid(2 * degree as i64) as usize;
        match self.form {
            Form::Values => self.mul_monomial_values(power),
            Form::Coefficients => {
                let simd = self.context.simd();
                self.each_limb(|modulus, limb| {
                    limb.rotate_right(power % degree);
                    let (wrapped, rest) = limb.split_at_mut(power % degree);
                    let negated = if power < degree { wrapped } else { rest };
                    neg(simd, negated, modulus.q());
                });
            }
        }
    }

    fn mul_monomial_values(&mut self, power: usize) {
        let degree = self.context.degree();
        let context = Arc::clone(&self.context);
        self.each_limb(|modulus, limb| {
            let q = modulus.q();
            if power.is_multiple_of(degree / 2) {
                // psi^(power·e) for e = 1 modulo 4 in the first half, e = 3 in the second.
                let root = prime::pow(modulus.plan.psi(), power as u64, q);
                let (first, second) = limb.split_at_mut(degree / 2);
                let simd = context.simd();
                if power.is_multiple_of(degree) {
                    if power == degree {
                        neg(simd, first, q);
                        neg(simd, second, q);
                    }
                } else {
                    let roots = [root, q - root];
                    for (half, root) in [first, second].into_iter().zip(roots) {
                        scale(&modulus.plan, half, root);
                    }
                }
            } else {
                let mut buffer = context.pool.take(degree);
                let monomial = buffer.words_mut();
                monomial.fill(0);
                monomial[power % degree] = if power < degree { 1 } else { q - 1 };
                modulus.plan.forward(monomial);
                modulus.plan.mul_assign(limb, monomial);
                context.pool.put(buffer);
            }
        });
    }

    /// The image of this polynomial, in its form.
    ///
    /// # Panics
    /// If the automorphism belongs to another degree.
    #[must_use]
    pub fn automorphism(&self, automorphism: &Automorphism) -> RnsPoly {
        assert!(
            automorphism.degree() == self.context.degree(),
            "an automorphism of degree {}",
            automorphism.degree()
        );
        let mut image = Self::raw(&self.context, self.basis, self.form);
        let form = self.form;
        image.each(|modulus, i, limb| match form {
            Form::Values => automorphism.values(self.limb(i), limb),
            Form::Coefficients => automorphism.coefficients(modulus.q(), self.limb(i), limb),
        });
        image
    }

    /// Drops all but the first `limbs` limbs of the chain: residues modulo a smaller modulus.
    ///
    /// # Panics
    /// If there are special limbs, or fewer limbs.
    pub fn drop_to(&mut self, limbs: usize) {
        assert!(
            self.basis.special == 0 && (1..=self.basis.chain).contains(&limbs),
            "{:?} cut to {limbs} limbs",
            self.basis
        );
        self.cut(Basis::chain(limbs));
    }

    /// Keeps the first limbs, those of `basis`.
    pub(crate) fn cut(&mut self, basis: Basis) {
        self.basis = basis;
        let words = basis.limbs() * self.context.degree();
        if let Some(buffer) = &mut self.buffer {
            self.context.pool.shrink(buffer, words);
        }
    }

    /// A copy of the first `limbs` limbs; where they are of the chain alone, the basis is.
    pub(crate) fn restricted(&self, limbs: usize) -> RnsPoly {
        let chain = limbs.min(self.basis.chain);
        let basis = Basis {
            chain,
            special: limbs - chain,
        };
        let mut copy = Self::raw(&self.context, basis, self.form);
        let words = copy.words().len();
        copy.words_mut().copy_from_slice(&self.words()[..words]);
        copy
    }

    /// A copy in another basis, all of whose primes this one has.
    ///
    /// # Panics
    /// If it lacks one.
    #[must_use]
    pub fn in_basis(&self, basis: Basis) -> RnsPoly {
        assert!(
            basis.chain <= self.basis.chain && basis.special <= self.basis.special,
            "{:?} taken from {:?}",
            basis,
            self.basis
        );
        let mut copy = Self::raw(&self.context, basis, self.form);
        copy.each(|_, i, limb| {
            let from = if i < basis.chain {
                i
            } else {
                self.basis.chain + i - basis.chain
            };
            limb.copy_from_slice(self.limb(from));
        });
        copy
    }

    /// Clears all words: those of secrets must not stay in the pool.
    pub(crate) fn wipe(&mut self) {
        self.words_mut().zeroize();
    }

    fn check_values(&self) {
        assert!(
            self.form == Form::Values,
            "products are taken of values, not of coefficients"
        );
    }
}

multiversion! {
    /// a + c mod q, in every place
    fn add_constant(a: &mut [u64], c: u64, q: u64) {
        for a in a {
            let sum = *a + c;
            *a = sum.min(sum.wrapping_sub(q));
        }
    }
}

/// Words of a part of a limb that [`weigh_limb`] works on at a time: [`MAX_WEIGHTS`] such parts take half a MiB, so that they stay in a second level of cache of
/// one MiB beside results and weights.
const WEIGHED: usize = 128;

/// Words that [`weigh_block`] sums side by side, and rows.
const LANES: usize = 16;
const ROWS: usize = 4;

/// Bits of the low half of a word in [`weigh_limb`].
const HALF_BITS: u32 = 25;

/// A limb of weighted sums. Where there is a kernel for sums of whole words, it takes them; else words are cut into halves of 25 bits, and sums of halves
/// times weights reduced at their end.
fn weigh_limb(
    context: &Context,
    plan: &Ntt50Plan,
    values: &[&[u64]],
    rows: &[Vec<u32>],
    factor: i128,
    sums: &mut [&mut [u64]],
) {
    let (simd, q) = (context.simd(), plan.modulus());
    let factor = factor.rem_euclid(q.into()) as u64;
    let weights = plan.weights(&[factor, prime::mul(factor, 1 << HALF_BITS, q)]);
    let degree = context.degree();
    let part = WEIGHED.min(degree);
    let mut buffer = context.pool.take(part * values.len());
    let halves = buffer.words_mut();
    let mut split = vec![0; 2 * ROWS * part];
    if plan.sums_integers() && part.is_multiple_of(LANES) {
        let wide: Vec<Vec<u64>> = rows
            .iter()
            .map(|row| row.iter().map(|weight| u64::from(*weight)).collect())
            .collect();
        for at in (0..degree).step_by(part) {
            for (value, words) in values.iter().zip(halves.chunks_exact_mut(part)) {
                words.copy_from_slice(&value[at..][..part]);
            }
            for (rows, sums) in wide.chunks(ROWS).zip(sums.chunks_mut(ROWS)) {
                let mut all: [&[u64]; ROWS] = [&rows[0]; ROWS];
                for (own, row) in all.iter_mut().zip(rows) {
                    *own = row;
                }
                let out = &mut split[..ROWS * part];
                plan.weigh(out, halves, all, factor);
                for (sum, out) in sums.iter_mut().zip(out.chunks_exact(part)) {
                    sum[at..][..part].copy_from_slice(out);
                }
            }
        }
        context.pool.put(buffer);
        return;
    }
    for at in (0..degree).step_by(part) {
        for (value, halves) in values.iter().zip(halves.chunks_exact_mut(part)) {
            cut(simd, &value[at..][..part], halves);
        }
        for (rows, sums) in rows.chunks(ROWS).zip(sums.chunks_mut(ROWS)) {
            let mut all: [&[u32]; ROWS] = [&rows[0]; ROWS];
            for (own, row) in all.iter_mut().zip(rows) {
                *own = row;
            }
            weigh_block(simd, halves, all, &mut split);
            for (sum, split) in sums.iter_mut().zip(split.chunks_exact(2 * part)) {
                let (low, high) = split.split_at(part);
                plan.combine(&mut sum[at..][..part], &[low, high], &weights);
            }
        }
    }
    context.pool.put(buffer);
}

multiversion! {
    /// The halves of words, each in 32 bits of a word.
    fn cut(words: &[u64], halves: &mut [u64]) {
        for (halves, word) in halves.iter_mut().zip(words) {
            *halves = (word >> HALF_BITS) << 32 | word & ((1 << HALF_BITS) - 1);
        }
    }
}

multiversion! {
    /// For each row of weights the sums of low halves times weights, then those of high halves; parts of values stand one after the
    /// other in `halves`.
    fn weigh_block(halves: &[u64], rows: [&[u32]; ROWS], out: &mut [u64]) {
        let part = out.len() / (2 * ROWS);
        let count = halves.len() / part;
        let rows = rows.map(|row| &row[..count]);
        for at in (0..part).step_by(LANES) {
            let mut low = [[0u64; LANES]; ROWS];
            let mut high = [[0u64; LANES]; ROWS];
            for k in 0..count {
                let words = &halves[k * part + at..][..LANES];
                for r in 0..ROWS {
                    let weight = u64::from(rows[r][k]);
                    for i in 0..LANES {
                        low[r][i] += (words[i] & 0xffff_ffff) * weight;
                        high[r][i] += (words[i] >> 32) * weight;
                    }
                }
            }
            for r in 0..ROWS {
                out[2 * r * part + at..][..LANES].copy_from_slice(&low[r]);
                out[(2 * r + 1) * part + at..][..LANES].copy_from_slice(&high[r]);
            }
        }
    }
}

/// Words of a part of a limb that sums of several operands work on at a time: the parts stay in the first levels of cache.
pub(crate) const TILE: usize = 1024;

/// The parts of a limb, each with the place where it starts.
pub(crate) fn tiles(limb: &mut [u64]) -> impl Iterator<Item = (usize, &mut [u64])> {
    let parts = limb.chunks_mut(TILE).enumerate();
    parts.map(|(number, part)| (number * TILE, part))
}

/// `out = Σ a ⊙ b + w·c` for the parts from `at` on of the terms (a, b), at least one, and of the term (c, w) where
/// `scaled` has one.
pub(crate) fn dot_tile(
    plan: &Ntt50Plan,
    out: &mut [u64],
    at: usize,
    terms: &[(&[u64], &[u64])],
    scaled: Option<(&[u64], u64)>,
) {
    let range = at..at + out.len();
    let terms = terms.iter();
    let terms = terms.map(|(a, b)| (&a[range.clone()], &b[range.clone()]));
    dot_parts(
        plan,
        out,
        terms,
        scaled.map(|(c, w)| (&c[range.clone()], w)),
    );
}

/// The same for terms that are parts already, of [`TILE`] words at most.
pub(crate) fn dot_parts<'a>(
    plan: &Ntt50Plan,
    out: &mut [u64],
    terms: impl Iterator<Item = (&'a [u64], &'a [u64])>,
    scaled: Option<(&[u64], u64)>,
) {
    let mut terms = terms.peekable();
    let mut before = [0; TILE];
    let before = &mut before[..out.len()];
    let mut first = Some(scaled);
    while first.is_some() || terms.peek().is_some() {
        let mut parts: [(&[u64], &[u64]); Ntt50Plan::TERMS - 1] = Default::default();
        let mut count = 0;
        for (part, term) in parts.iter_mut().zip(terms.by_ref()) {
            *part = term;
            count += 1;
        }
        // After the first terms, the sum so far is a term too.
        let scaled = first.take().unwrap_or_else(|| {
            before.copy_from_slice(out);
            Some((&*before, 1))
        });
        plan.dot(out, &parts[..count], scaled);
    }
}

/// For each row of factors [x, y], one for each value, limb `i` of `scale·Σ (x + y·X^(N/2))·value`, plus what is in the row's
/// part of `outs` times `own`, where that is given.
pub(crate) fn combine_limb(
    modulus: &Modulus,
    i: usize,
    values: &[&RnsPoly],
    rows: &[Vec<[i128; 2]>],
    scale: u64,
    outs: &mut [&mut [u64]],
    own: Option<u64>,
) {
    let q = modulus.q();
    let reduced = |x: i128| prime::mul(x.rem_euclid(q.into()) as u64, scale, q);
    let root = modulus.quarter_turn();
    let half = outs.first().map_or(0, |out| out.len() / 2);
    for (start, root) in [(0, root), (half, q - root)] {
        let weight = |[x, y]: &[i128; 2]| {
            let turned = prime::mul(reduced(*y), root, q);
            prime::add(reduced(*x), turned, q)
        };
        let weights = rows.iter().map(|row| row.iter().map(weight).collect());
        let values = values.iter().map(|value| &value.limb(i)[start..][..half]);
        let outs = outs.iter_mut().map(|out| &mut out[start..][..half]);
        combine(
            &modulus.plan,
            &mut outs.collect::<Vec<_>>(),
            own,
            &values.collect::<Vec<_>>(),
            weights,
        );
    }
}

/// `out = Σ w·a` over at least one value a for each row of weights w, plus `own·out` where `own` is given; weights count modulo q. Parts of all values
/// stay in the second level of cache while all rows use them.
fn combine(
    plan: &Ntt50Plan,
    outs: &mut [&mut [u64]],
    own: Option<u64>,
    values: &[&[u64]],
    rows: impl Iterator<Item = Vec<u64>>,
) {
    const TERMS: usize = Ntt50Plan::TERMS - 1;
    let rows: Vec<Vec<_>> = rows
        .map(|row| {
            let chunks = row.chunks(TERMS).enumerate();
            let chunks = chunks.map(|(number, chunk)| {
                // After the first chunk, the sum so far is a term too.
                let own = if number == 0 { own } else { Some(1) };
                let weights: Vec<u64> = chunk.iter().copied().chain(own).collect();
                (own.is_some(), plan.weights(&weights))
            });
            chunks.collect()
        })
        .collect();
    let mut before = [0; TILE];
    let length = values.first().map_or(0, |value| value.len());
    for at in (0..length).step_by(TILE) {
        let range = at..length.min(at + TILE);
        let before = &mut before[..range.len()];
        for (chunks, out) in rows.iter().zip(outs.iter_mut()) {
            let part = &mut out[range.clone()];
            for ((own, weights), chunk) in chunks.iter().zip(values.chunks(TERMS)) {
                let mut rows: [&[u64]; Ntt50Plan::TERMS] = Default::default();
                for (row, value) in rows.iter_mut().zip(chunk) {
                    *row = &value[range.clone()];
                }
                if *own {
                    before.copy_from_slice(part);
                    rows[chunk.len()] = before;
                }
                plan.combine(part, &rows[..chunk.len() + usize::from(*own)], weights);
            }
        }
    }
}

/// `c·a`, for a part of a limb.
fn scale(plan: &Ntt50Plan, a: &mut [u64], c: u64) {
    let zeros = [0; 512];
    for part in a.chunks_mut(zeros.len()) {
        plan.sub_scale_assign(part, &zeros[..part.len()], c);
    }
}

fn check_length(context: &Context, found: usize) -> Result<(), RnsError> {
    let expected = context.degree();
    if found == expected {
        Ok(())
    } else {
        Err(RnsError::Length { expected, found })
    }
}

impl Clone for RnsPoly {
    fn clone(&self) -> RnsPoly {
        let mut copy = Self::raw(&self.context, self.basis, self.form);
        copy.each(|_, i, limb| limb.copy_from_slice(self.limb(i)));
        copy
    }
}

impl Drop for RnsPoly {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.context.pool.put(buffer);
        }
    }
}

impl PartialEq for RnsPoly {
    fn eq(&self, other: &RnsPoly) -> bool {
        (self.basis, self.form) == (other.basis, other.form)
            && self.context.params() == other.context.params()
            && self.words() == other.words()
    }
}

impl fmt::Debug for RnsPoly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RnsPoly")
            .field("basis", &self.basis)
            .field("form", &self.form)
            .finish_non_exhaustive()
    }
}
