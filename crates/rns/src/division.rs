//! Larger and smaller moduli: the digits of a key switch, division by the last primes of a basis, and raising from q_0.

use std::ops::Range;
use std::sync::Arc;

use toroid_ring::prime;

use crate::RnsError;
use crate::context::{Basis, Context, MAX_RESCALE};
use crate::conversion::Conversion;
use crate::poly::{Form, RnsPoly, combine_limb};

/// The digits of a polynomial of l limbs: digit j is its representative modulo the product D_j of the digit's primes that is
/// nearest to 0, in values modulo all l primes and the special ones.
pub(crate) struct Digits<'a> {
    basis: Basis,
    digits: Vec<Digit<'a>>,
}

struct Digit<'a> {
    /// The limbs modulo the digit's own primes: those of the polynomial itself.
    own: Range<usize>,
    poly: &'a RnsPoly,
    /// All limbs; those in `own` are not used.
    raised: Option<RnsPoly>,
}

impl<'a> Digits<'a> {
    /// Of values without special limbs, in the first `special` special primes too.
    pub(crate) fn new(poly: &'a RnsPoly, special: usize) -> Digits<'a> {
        let mut digits = Self::in_coefficients(poly, special);
        let (context, basis) = (poly.context(), digits.basis);
        for (own, words) in digits.raised() {
            context.each_limb(words, |limb, words| {
                if !own.contains(&limb) {
                    context.modulus(basis, limb).plan.forward(words);
                }
            });
        }
        digits
    }

    /// The same digits, but for the limbs that are not the polynomial's own: these are coefficients still, for whoever transforms them where they are used.
    pub(crate) fn in_coefficients(poly: &'a RnsPoly, special: usize) -> Digits<'a> {
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
            let mut raised = RnsPoly::raw(context, basis, Form::Values);
            let from = &coefficients.words()[own.start * degree..own.end * degree];
            let to = raised.words_mut().chunks_exact_mut(degree).enumerate();
            let to = to
                .filter(|(limb, _)| !own.contains(limb))
                .map(|(limb, words)| (context.index(basis, limb), words));
            convert(context, context.raise(index, limbs), from, to.collect());
            Digit {
                own,
                poly,
                raised: Some(raised),
            }
        };
        let count = context.params().digits(limbs);
        Digits {
            basis,
            digits: (0..count).map(digit).collect(),
        }
    }

    /// Of each digit the limbs that are the polynomial's own, and the words of all limbs, where those are not used.
    pub(crate) fn raised(&mut self) -> impl Iterator<Item = (Range<usize>, &mut [u64])> {
        let digits = self.digits.iter_mut();
        digits.filter_map(|digit| {
            let raised = digit.raised.as_mut()?;
            Some((digit.own.clone(), raised.words_mut()))
        })
    }

    /// A small polynomial, in values, as its only digit.
    pub(crate) fn of_small(poly: &'a RnsPoly) -> Digits<'a> {
        let digit = Digit {
            own: 0..poly.limbs(),
            poly,
            raised: None,
        };
        Digits {
            basis: poly.basis(),
            digits: vec![digit],
        }
    }

    /// The digits' basis.
    pub(crate) fn basis(&self) -> Basis {
        self.basis
    }

    /// The context.
    pub(crate) fn context(&self) -> &Arc<Context> {
        self.digits[0].poly.context()
    }

    /// A limb of each digit.
    pub(crate) fn limbs(&self, limb: usize) -> impl Iterator<Item = &[u64]> {
        self.digits.iter().map(move |digit| match &digit.raised {
            Some(raised) if !digit.own.contains(&limb) => raised.limb(limb),
            _ => digit.poly.limb(limb),
        })
    }
}

/// [`Conversion::convert`] with the kernels and the threads of a context.
pub(crate) fn convert(
    context: &Context,
    conversion: &Conversion,
    from: &[u64],
    to: Vec<(usize, &mut [u64])>,
) {
    let (simd, parallel) = (context.simd(), context.is_parallel());
    conversion.convert(context.moduli(), simd, parallel, from, to);
}

/// N times the coefficients.
fn unscaled_coefficients(poly: &RnsPoly) -> RnsPoly {
    let (context, basis) = (poly.context(), poly.basis());
    let mut coefficients = RnsPoly::raw(context, basis, Form::Coefficients);
    context.each_limb(coefficients.words_mut(), |limb, words| {
        words.copy_from_slice(poly.limb(limb));
        context.modulus(basis, limb).plan.inverse(words);
    });
    coefficients
}

/// The last limbs are the sources of `conversion`, with product D: round(x/D), in values modulo the limbs before.
fn divide(mut poly: RnsPoly, keep: Basis, conversion: &Conversion) -> RnsPoly {
    let context = Arc::clone(poly.context());
    let (basis, kept) = (poly.basis(), keep.limbs() * context.degree());
    debug_assert_eq!(basis.limbs(), keep.limbs() + conversion.sources());
    let (words, dropped) = poly.words_mut().split_at_mut(kept);
    context.each_limb(dropped, |limb, words| {
        let modulus = context.modulus(basis, keep.limbs() + limb);
        modulus.plan.inverse(words);
    });
    let mut rest = RnsPoly::raw(&context, keep, Form::Values);
    let to = rest.words_mut().chunks_exact_mut(context.degree());
    let to = to
        .enumerate()
        .map(|(limb, words)| (context.index(keep, limb), words));
    convert(&context, conversion, dropped, to.collect());
    context.each_limb_of([words, rest.words_mut()], |limb, [words, rest]| {
        let inverse = conversion.divisor_inverse(context.index(keep, limb));
        let plan = &context.modulus(keep, limb).plan;
        plan.forward(rest);
        plan.sub_scale_assign(words, rest, inverse);
    });
    drop(rest);
    poly.cut(keep);
    poly
}

/// By what the result of a key switch is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Divisor {
    /// By the key's special primes, as by [`RnsPoly::divide_by_special`].
    Special,
    /// By these and the last prime of the chain, as by [`RnsPoly::divide_by_special_and_last`].
    SpecialAndLast,
}

impl Divisor {
    /// The basis that is left of another, and the conversion from what is dropped to it.
    pub(crate) fn of(self, context: &Context, basis: Basis) -> (Basis, &Conversion) {
        match self {
            Divisor::Special => (Basis::chain(basis.chain), context.lower(basis.special)),
            Divisor::SpecialAndLast => (
                Basis::chain(basis.chain - 1),
                context.lower_rescale(basis.chain),
            ),
        }
    }
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
        let (keep, conversion) = Divisor::Special.of(&context, basis);
        divide(self, keep, conversion)
    }

    /// round(x/(P·q)), for values x modulo Q·P, P the product of all special primes and q the last prime of the chain, which is
    /// dropped too. Exact as [`RnsPoly::divide_by_special`].
    ///
    /// # Errors
    /// [`RnsError::Limbs`] unless there are two limbs of the chain.
    ///
    /// # Panics
    /// For coefficients, and unless all special limbs are there.
    pub fn divide_by_special_and_last(self) -> Result<RnsPoly, RnsError> {
        let (basis, all) = (self.basis(), self.context().full_basis().special);
        assert!(
            self.form() == Form::Values && basis.special == all,
            "{basis:?} in {:?} divided by special primes and one of the chain",
            self.form()
        );
        if basis.chain < 2 {
            return Err(RnsError::Limbs {
                what: "rescaling",
                needed: 2,
                found: basis.chain,
            });
        }
        let context = Arc::clone(self.context());
        let (keep, conversion) = Divisor::SpecialAndLast.of(&context, basis);
        Ok(divide(self, keep, conversion))
    }

    /// P·x in `basis`, for values x without special limbs; P is the product of its special primes, and 0 modulo each of them.
    pub(crate) fn times_special(&self, basis: Basis) -> RnsPoly {
        let context = self.context();
        let mut product = RnsPoly::raw(context, basis, Form::Values);
        context.each_limb(product.words_mut(), |limb, words| {
            if limb < basis.chain {
                let plan = &context.modulus(basis, limb).plan;
                words.copy_from_slice(self.limb(limb));
                plan.scale_assign(
                    words,
                    context.special_product(basis.special, plan.modulus()),
                );
            } else {
                words.fill(0);
            }
        });
        product
    }

    /// [`RnsPoly::combination`] with `limbs` limbs, then [`RnsPoly::divide_by_last`] by one prime: the same words, with each limb
    /// written once.
    ///
    /// # Errors
    /// [`RnsError::Limbs`] unless there are two limbs.
    ///
    /// # Panics
    /// As for [`RnsPoly::combination`].
    pub fn combination_divided(
        limbs: usize,
        terms: &[(&RnsPoly, [i128; 2])],
    ) -> Result<RnsPoly, RnsError> {
        let (values, factors): (Vec<&RnsPoly>, Vec<[i128; 2]>) = terms.iter().copied().unzip();
        let mut divided = Self::combinations_divided(limbs, &values, &[factors])?;
        Ok(divided.remove(0))
    }

    /// The same for each row of factors, one for each value; values are read once for all rows.
    ///
    /// # Errors
    /// As for [`RnsPoly::combination_divided`].
    ///
    /// # Panics
    /// As for [`RnsPoly::combination_divided`], and if a row has another length.
    pub fn combinations_divided(
        limbs: usize,
        values: &[&RnsPoly],
        rows: &[Vec<[i128; 2]>],
    ) -> Result<Vec<RnsPoly>, RnsError> {
        if limbs < 2 {
            return Err(RnsError::Limbs {
                what: "rescaling",
                needed: 2,
                found: limbs,
            });
        }
        let context = values.first().map(|value| Arc::clone(value.context()));
        let context = context.expect("a combination has a term");
        assert!(
            rows.iter().all(|row| row.len() == values.len()),
            "a row with a factor for each value"
        );
        let (keep, degree) = (Basis::chain(limbs - 1), context.degree());
        let quotient = |_: &Vec<[i128; 2]>| RnsPoly::raw(&context, keep, Form::Values);
        let mut quotients: Vec<RnsPoly> = rows.iter().map(quotient).collect();
        for value in values {
            for quotient in &quotients {
                quotient.check(value);
            }
        }
        let modulus = |limb| context.modulus(Basis::chain(limbs), limb);
        let mut last = context.pool.take(rows.len() * degree);
        let mut lasts: Vec<&mut [u64]> = last.words_mut().chunks_exact_mut(degree).collect();
        let limb = limbs - 1;
        combine_limb(modulus(limb), limb, values, rows, 1, &mut lasts, None);
        let conversion = context.rescale(limbs, 1);
        for (last, quotient) in lasts.into_iter().zip(&mut quotients) {
            modulus(limb).plan.inverse(last);
            let to = quotient.words_mut().chunks_exact_mut(degree);
            convert(&context, conversion, last, to.enumerate().collect());
        }
        context.pool.put(last);
        let words = quotients.iter_mut().map(RnsPoly::words_mut).collect();
        context.each_limb_of_all(words, |limb, mut words| {
            let modulus = modulus(limb);
            let inverse = conversion.divisor_inverse(limb);
            for words in &mut words {
                modulus.plan.forward(words);
            }
            let own = Some(prime::neg(inverse, modulus.q()));
            combine_limb(modulus, limb, values, rows, inverse, &mut words, own);
        });
        Ok(quotients)
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
