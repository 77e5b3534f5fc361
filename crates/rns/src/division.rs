//! Larger and smaller moduli: the digits of a key switch, division by the last primes of a basis, and raising from q_0.

use std::sync::Arc;

use toroid_ring::prime;

use crate::RnsError;
use crate::context::{Basis, Context, MAX_RESCALE};
use crate::conversion::Conversion;
use crate::poly::{Form, RnsPoly};

/// The digits of a polynomial of l limbs: digit j is its representative modulo the product D_j of the digit's primes that is
/// nearest to 0, in values modulo all l primes and the special ones.
pub(crate) struct Digits {
    digits: Vec<RnsPoly>,
}

impl Digits {
    /// Of values without special limbs, in the first `special` special primes too.
    pub(crate) fn new(poly: &RnsPoly, special: usize) -> Digits {
        let context = poly.context();
        let (limbs, degree) = (poly.limbs(), context.degree());
        let coefficients = unscaled_coefficients(poly);
        let basis = Basis {
            chain: limbs,
            special,
        };
        let width = context.params().digit_limbs;
        let digit = |index: usize| {
            let own = index * width..limbs.min((index + 1) * width);
            let mut digit = RnsPoly::raw(context, basis, Form::Values);
            let from = &coefficients.words()[own.start * degree..own.end * degree];
            let to = digit.words_mut().chunks_exact_mut(degree).enumerate();
            let to = to
                .filter(|(limb, _)| !own.contains(limb))
                .map(|(limb, words)| (context.index(basis, limb), words));
            convert(context, context.raise(index, limbs), from, to.collect());
            context.each_limb(digit.words_mut(), |limb, words| {
                if own.contains(&limb) {
                    words.copy_from_slice(poly.limb(limb));
                } else {
                    context.modulus(basis, limb).plan.forward(words);
                }
            });
            digit
        };
        let count = context.params().digits(limbs);
        Digits {
            digits: (0..count).map(digit).collect(),
        }
    }

    /// A small polynomial, in values, as its only digit.
    pub(crate) fn of_small(poly: RnsPoly) -> Digits {
        Digits { digits: vec![poly] }
    }

    /// The digits' basis.
    pub(crate) fn basis(&self) -> Basis {
        self.digits[0].basis()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &RnsPoly> {
        self.digits.iter()
    }
}

fn convert(context: &Context, conversion: &Conversion, from: &[u64], to: Vec<(usize, &mut [u64])>) {
    let (simd, parallel) = (context.simd(), context.is_parallel());
    conversion.convert(context.moduli(), simd, parallel, from, to);
}

/// N times the coefficients.
fn unscaled_coefficients(poly: &RnsPoly) -> RnsPoly {
    let (context, basis) = (poly.context(), poly.basis());
    let mut coefficients = poly.clone();
    context.each_limb(coefficients.words_mut(), |limb, words| {
        context.modulus(basis, limb).plan.inverse(words);
    });
    coefficients.set_form(Form::Coefficients);
    coefficients
}

/// The last limbs are the sources of `conversion`, with product D: round(x/D), in values modulo the limbs before.
fn divide(mut poly: RnsPoly, keep: Basis, conversion: &Conversion) -> RnsPoly {
    let context = Arc::clone(poly.context());
    let (basis, kept) = (poly.basis(), keep.limbs() * context.degree());
    debug_assert_eq!(basis.limbs(), keep.limbs() + conversion.sources());
    context.each_limb(&mut poly.words_mut()[kept..], |limb, words| {
        let modulus = context.modulus(basis, keep.limbs() + limb);
        modulus.plan.inverse(words);
    });
    let mut rest = RnsPoly::raw(&context, keep, Form::Values);
    let to = rest.words_mut().chunks_exact_mut(context.degree());
    let to = to
        .enumerate()
        .map(|(limb, words)| (context.index(keep, limb), words));
    convert(&context, conversion, &poly.words()[kept..], to.collect());
    context.each_limb(rest.words_mut(), |limb, words| {
        context.modulus(keep, limb).plan.forward(words);
    });
    context.each_limb(&mut poly.words_mut()[..kept], |limb, words| {
        let inverse = conversion.divisor_inverse(context.index(keep, limb));
        let plan = &context.modulus(keep, limb).plan;
        plan.sub_scale_assign(words, rest.limb(limb), inverse);
    });
    poly.cut(keep);
    poly
}

impl RnsPoly {
    /// round(x/P), for values x modulo Q·P, P the product of their special primes: one, or all that the context has.
    ///
    /// The result is off by one from the nearest integer at most where x/P is within 2^-45 of the middle between two, and exact
    /// elsewhere.
    ///
    /// # Panics
    /// For coefficients, and for another number of special limbs.
    #[must_use]
    pub fn divide_by_special(self) -> RnsPoly {
        let (basis, all) = (self.basis(), self.context().full_basis().special);
        assert!(
            self.form() == Form::Values && (basis.special == 1 || basis.special == all),
            "{basis:?} in {:?} divided by special primes",
            self.form()
        );
        let context = Arc::clone(self.context());
        divide(
            self,
            Basis::chain(basis.chain),
            context.lower(basis.special),
        )
    }

    /// P·x in `basis`, for values x without special limbs; P is the product of all special primes, and 0 modulo each of them.
    pub(crate) fn times_special(&self, basis: Basis) -> RnsPoly {
        let context = self.context();
        let mut product = RnsPoly::raw(context, basis, Form::Values);
        context.each_limb(product.words_mut(), |limb, words| {
            if limb < basis.chain {
                let plan = &context.modulus(basis, limb).plan;
                words.copy_from_slice(self.limb(limb));
                let special = context.params().special.iter();
                let p = special.fold(1, |p, prime| prime::mul(p, *prime, plan.modulus()));
                plan.scale_assign(words, p);
            } else {
                words.fill(0);
            }
        });
        product
    }

    /// round(x/D), for values x without special limbs, D the product of their last `count` primes, which are dropped. Exact as
    /// [`RnsPoly::divide_by_special`].
    ///
    /// # Errors
    /// [`RnsError::Limbs`] unless there are more limbs than that.
    ///
    /// # Panics
    /// For coefficients, special limbs, and counts other than 1 to [`MAX_RESCALE`].
    pub fn divide_by_last(self, count: usize) -> Result<RnsPoly, RnsError> {
        let basis = self.basis();
        assert!(
            self.form() == Form::Values && basis.special == 0 && (1..=MAX_RESCALE).contains(&count),
            "{basis:?} in {:?} divided by {count} primes",
            self.form()
        );
        if basis.chain <= count {
            return Err(RnsError::Limbs {
                what: "rescaling",
                needed: count + 1,
                found: basis.chain,
            });
        }
        let context = Arc::clone(self.context());
        let conversion = context.rescale(basis.chain, count);
        Ok(divide(self, Basis::chain(basis.chain - count), conversion))
    }

    /// The representative nearest to 0 of values modulo q_0, modulo the primes of `basis`.
    ///
    /// # Panics
    /// Unless there is q_0 alone, in values, and it is in `basis`, a basis of the context.
    #[must_use]
    pub fn raise(&self, basis: Basis) -> RnsPoly {
        assert!(
            self.basis() == Basis::chain(1) && self.form() == Form::Values && basis.chain > 0,
            "{:?} in {:?} raised",
            self.basis(),
            self.form()
        );
        let context = self.context();
        let coefficients = unscaled_coefficients(self);
        let mut raised = RnsPoly::raw(context, basis, Form::Values);
        let to = raised.words_mut().chunks_exact_mut(context.degree());
        let to = to.enumerate().skip(1);
        let to = to.map(|(limb, words)| (context.index(basis, limb), words));
        convert(
            context,
            context.raise(0, 1),
            coefficients.words(),
            to.collect(),
        );
        context.each_limb(raised.words_mut(), |limb, words| {
            if limb == 0 {
                words.copy_from_slice(self.limb(0));
            } else {
                context.modulus(basis, limb).plan.forward(words);
            }
        });
        raised
    }
}
