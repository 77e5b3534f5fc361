//! Noise formulas by derivatives: what each source of noise does to each value, to first order.
//!
//! A power z^k carries k times the noise of z, and a polynomial P(z) carries P'(z) times it: noise of values that were made from one
//! another is anything but independent. So each value carries its derivative by every source of noise that went into it. An error is
//! `straight·e + conjugate·ē` for a source e, as conjugation is no complex-linear map. The same pipeline that runs on
//! ciphertexts runs on these numbers, once for each message, and gives the variance of its result; terms of second order, which
//! cleaning leaves, are bounded apart ([`crate::table::Shape::error`]).

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::complex::Complex;
use crate::model::{LevelNoise, NoLevel};
use crate::slots::Slots;

/// A value at several points (one for each message), and its derivatives by the sources of noise.
#[derive(Clone, Debug)]
pub struct Dual(Rc<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    level: usize,
    points: Vec<Complex>,
    /// By source.
    errors: BTreeMap<usize, Vec<Error>>,
}

/// An error of `straight·e + conjugate·ē` at one point.
#[derive(Clone, Copy, Debug, Default)]
struct Error {
    straight: Complex,
    conjugate: Complex,
}

impl Error {
    /// The derivative e' so that the real part's error is Re(e'·e).
    fn of_real_part(self) -> Complex {
        self.straight + self.conjugate.conj()
    }

    /// The derivative e' so that the imaginary part's error is Im(e'·e).
    fn of_imaginary_part(self) -> Complex {
        self.straight - self.conjugate.conj()
    }

    fn plus(self, other: Error) -> Error {
        Error {
            straight: self.straight + other.straight,
            conjugate: self.conjugate + other.conjugate,
        }
    }

    fn times(self, factor: Complex) -> Error {
        Error {
            straight: self.straight * factor,
            conjugate: self.conjugate * factor,
        }
    }
}

/// The sources of noise so far.
#[derive(Clone, Debug)]
pub struct Formula {
    noise: LevelNoise,
    /// E|e|² of each source.
    variances: Vec<f64>,
}

impl Formula {
    /// Formulas for operations with this noise.
    #[must_use]
    pub fn new(noise: impl Into<LevelNoise>) -> Formula {
        Formula {
            noise: noise.into(),
            variances: Vec::new(),
        }
    }

    /// Real numbers with independent real noise of this variance.
    pub fn input(&mut self, level: usize, points: &[f64], variance: f64) -> Dual {
        // A real error is e + ē for a complex e of half the variance in all.
        let both = Error {
            straight: Complex::ONE,
            conjugate: Complex::ONE,
        };
        let errors = BTreeMap::from([(self.variances.len(), vec![both; points.len()])]);
        self.variances.push(variance / 2.0);
        Dual(Rc::new(Inner {
            level,
            points: points.iter().map(|&x| Complex::real(x)).collect(),
            errors,
        }))
    }

    /// The values without noise.
    #[must_use]
    pub fn values<'a>(&self, a: &'a Dual) -> &'a [Complex] {
        &a.0.points
    }

    /// The variance of the real part at each point.
    #[must_use]
    pub fn real_variances(&self, a: &Dual) -> Vec<f64> {
        self.summed(a, |error| error.of_real_part().norm_sqr() / 2.0)
    }

    /// The variance of the imaginary part at each point.
    #[must_use]
    pub fn imaginary_variances(&self, a: &Dual) -> Vec<f64> {
        self.summed(a, |error| error.of_imaginary_part().norm_sqr() / 2.0)
    }

    /// E|e|² of the error e at each point.
    #[must_use]
    pub fn variances(&self, a: &Dual) -> Vec<f64> {
        self.summed(a, |error| {
            error.straight.norm_sqr() + error.conjugate.norm_sqr()
        })
    }

    /// The sum over all sources at each point of `factor` of the derivatives by a source, times its variance.
    fn summed(&self, a: &Dual, factor: impl Fn(&Error) -> f64) -> Vec<f64> {
        let mut sums = vec![0.0; a.0.points.len()];
        for (&source, errors) in &a.0.errors {
            for (sum, error) in sums.iter_mut().zip(errors) {
                *sum += factor(error) * self.variances[source];
            }
        }
        sums
    }

    /// The derivative of the real part at each point by an input, a value of [`Formula::input`].
    #[must_use]
    pub fn real_slopes(&self, a: &Dual, input: &Dual) -> Vec<f64> {
        let source = input.0.errors.keys().next();
        let errors = source.and_then(|source| a.0.errors.get(source));
        // A real error is e + ē for a real e of half its size.
        let slope = |error: &Error| (error.straight + error.conjugate).re / 2.0;
        errors.map_or_else(
            || vec![0.0; a.0.points.len()],
            |errors| errors.iter().map(slope).collect(),
        )
    }

    /// What selectors add to E|e|² of a slot at each point, at most, as a table has weights in [0, 1]: those of the half of a column that the selectors
    /// belong to are a, those of the other half b.
    ///
    /// Both halves share a value, as real and imaginary part, so that errors e of selectors leave their own part. Either all values have both weights
    /// and the own part alone is kept, `Re Σ (a + i·b)·e`, or each half has weights of its own: `Re Σ a·e` in the own part and `Im Σ b·e` in the
    /// other. With `Σ a·e = x` and `Σ b·e = y` for each source, neither is above (|Re x| + |Im y|)² + (|Im x| + |Re y|)², as derivatives
    /// of real parts and of imaginary ones have it. For roundings, which are as large in both parts, that is twice the variance of `Re Σ a·e`.
    #[must_use]
    pub fn weighted_variances(&self, values: &[Dual]) -> Vec<f64> {
        let points = values.first().map_or(0, |value| value.0.points.len());
        // By source and point, of each derivative: the sums of what is positive and of what is negative.
        let mut sums: BTreeMap<usize, Vec<[[f64; 2]; 4]>> = BTreeMap::new();
        for value in values {
            for (&source, errors) in &value.0.errors {
                let own = sums
                    .entry(source)
                    .or_insert_with(|| vec![[[0.0; 2]; 4]; points]);
                for (sum, error) in own.iter_mut().zip(errors) {
                    let (real, imaginary) = (error.of_real_part(), error.of_imaginary_part());
                    let parts = [real.re, real.im, imaginary.re, imaginary.im];
                    for (sum, part) in sum.iter_mut().zip(parts) {
                        sum[0] += part.max(0.0);
                        sum[1] += (-part).max(0.0);
                    }
                }
            }
        }
        let mut variances = vec![0.0; points];
        for (source, sums) in sums {
            for (variance, sum) in variances.iter_mut().zip(sums) {
                let [a, b, c, d] = sum.map(|[positive, negative]| positive.max(negative));
                let largest = (a + d).powi(2) + (b + c).powi(2);
                *variance += largest * self.variances[source] / 2.0;
            }
        }
        variances
    }

    fn source(&mut self, inner: &mut Inner, variance: f64) {
        if variance > 0.0 {
            let fresh = Error {
                straight: Complex::ONE,
                conjugate: Complex::ZERO,
            };
            inner
                .errors
                .insert(self.variances.len(), vec![fresh; inner.points.len()]);
            self.variances.push(variance);
        }
    }

    fn lowered(&mut self, a: &Dual, level: usize) -> Dual {
        if a.0.level == level {
            return a.clone();
        }
        let mut inner = (*a.0).clone();
        inner.level = level;
        self.source(&mut inner, self.noise.at(level).rescale);
        Dual(Rc::new(inner))
    }

    fn rescaled(&mut self, mut inner: Inner) -> Dual {
        inner.level -= 1;
        let noise = self.noise.at(inner.level);
        self.source(&mut inner, noise.rescale);
        Dual(Rc::new(inner))
    }
}

impl Inner {
    fn zero(level: usize, points: usize) -> Inner {
        Inner {
            level,
            points: vec![Complex::ZERO; points],
            errors: BTreeMap::new(),
        }
    }

    /// Adds `factor·other`, the factor by point.
    fn add_product(&mut self, other: &Inner, factor: impl Fn(usize) -> Complex) {
        for (p, (sum, &x)) in self.points.iter_mut().zip(&other.points).enumerate() {
            *sum += x * factor(p);
        }
        self.add_errors(other, factor);
    }

    fn add_errors(&mut self, other: &Inner, factor: impl Fn(usize) -> Complex) {
        let points = self.points.len();
        for (&source, errors) in &other.errors {
            let sums = self
                .errors
                .entry(source)
                .or_insert_with(|| vec![Error::default(); points]);
            for (p, (sum, error)) in sums.iter_mut().zip(errors).enumerate() {
                *sum = sum.plus(error.times(factor(p)));
            }
        }
    }
}

impl Slots for Formula {
    type Value = Dual;
    type Error = NoLevel;

    fn level(&self, value: &Dual) -> usize {
        value.0.level
    }

    fn add(&mut self, a: &Dual, b: &Dual) -> Result<Dual, NoLevel> {
        let level = a.0.level.min(b.0.level);
        let (a, b) = (self.lowered(a, level), self.lowered(b, level));
        let mut sum = (*a.0).clone();
        sum.add_product(&b.0, |_| Complex::ONE);
        Ok(Dual(Rc::new(sum)))
    }

    fn sub(&mut self, a: &Dual, b: &Dual) -> Result<Dual, NoLevel> {
        let negative = self.affine(b, -1, Complex::ZERO)?;
        self.add(a, &negative)
    }

    fn affine(&mut self, a: &Dual, factor: i32, constant: Complex) -> Result<Dual, NoLevel> {
        let mut inner = Inner::zero(a.0.level, a.0.points.len());
        inner.add_product(&a.0, |_| Complex::real(f64::from(factor)));
        inner.points.iter_mut().for_each(|x| *x += constant);
        Ok(Dual(Rc::new(inner)))
    }

    fn products(&mut self, pairs: &[(&Dual, &Dual)]) -> Result<Dual, NoLevel> {
        let level = pairs.iter().map(|(a, b)| a.0.level.min(b.0.level)).min();
        let level = level.filter(|&level| level > 0).ok_or(NoLevel)?;
        let points = pairs.first().map_or(0, |(a, _)| a.0.points.len());
        let mut sum = Inner::zero(level, points);
        for (a, b) in pairs {
            let (a, b) = (self.lowered(a, level), self.lowered(b, level));
            sum.add_product(&a.0, |p| b.0.points[p]);
            sum.add_errors(&b.0, |p| a.0.points[p]);
        }
        Ok(self.rescaled(sum))
    }

    fn combine_at(
        &mut self,
        level: usize,
        terms: &[(&Dual, Complex)],
        constant: Complex,
    ) -> Result<Dual, NoLevel> {
        if terms.iter().any(|(value, _)| value.0.level <= level) {
            return Err(NoLevel);
        }
        let points = terms.first().map_or(0, |(value, _)| value.0.points.len());
        let mut sum = Inner::zero(level + 1, points);
        sum.points.fill(constant);
        for (value, factor) in terms {
            sum.add_product(&value.0, |_| *factor);
        }
        Ok(self.rescaled(sum))
    }

    fn conjugate(&mut self, a: &Dual) -> Result<Dual, NoLevel> {
        let mut inner = (*a.0).clone();
        inner.points.iter_mut().for_each(|x| *x = x.conj());
        for error in inner.errors.values_mut().flatten() {
            *error = Error {
                straight: error.conjugate.conj(),
                conjugate: error.straight.conj(),
            };
        }
        self.source(&mut inner, self.noise.at(a.0.level).key_switch);
        Ok(Dual(Rc::new(inner)))
    }

    fn times_i(&mut self, a: &Dual) -> Result<Dual, NoLevel> {
        let mut inner = Inner::zero(a.0.level, a.0.points.len());
        inner.add_product(&a.0, |_| Complex::I);
        Ok(Dual(Rc::new(inner)))
    }

    fn lower(&mut self, a: &Dual, level: usize) -> Result<Dual, NoLevel> {
        if a.0.level < level {
            return Err(NoLevel);
        }
        Ok(self.lowered(a, level))
    }
}
