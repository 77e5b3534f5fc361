//! Cyclotomic polynomials, and the rings Z_q\[x\]/Φ_m(x) that the discrete Fourier transform of m points serves.
//!
//! Φ_m is the polynomial whose roots are the primitive m-th roots of unity; its degree is φ(m). With a prime q that is 1
//! modulo m these roots are the w^k for the k that are units modulo m, so an element of the ring is known by its values
//! there, which [`CyclotomicRing::evaluate`] takes out of a [`DftPlan`]'s transform in ascending order of k, as HElib
//! does for its double-CRT form. Products and sums of elements are products and sums of these values.
//!
//! The inverse transform gives a polynomial modulo x^m - 1, a multiple of Φ_m, which is then reduced modulo Φ_m. Its
//! quotient comes from the highest coefficients alone, times the power series of 1/Φ_m read backwards, and both that
//! product and the quotient's product by Φ_m are short enough for the cyclic convolution of m points. So a reduction costs
//! four transforms (eight where φ(m) < m/2), and a product of elements seven.

use crate::RingError;
use crate::dft::DftPlan;

/// The greatest index of [`cyclotomic_polynomial`]; up to here coefficients are far below 2^63.
pub const MAX_INDEX: usize = 1 << 24;

/// The coefficients of Φ_m, the constant one first: φ(m) + 1 of them.
///
/// # Errors
/// [`RingError::CyclotomicIndex`] unless `m` is from 1 to [`MAX_INDEX`].
pub fn cyclotomic_polynomial(m: usize) -> Result<Vec<i64>, RingError> {
    if !(1..=MAX_INDEX).contains(&m) {
        return Err(RingError::CyclotomicIndex {
            found: m,
            max: MAX_INDEX,
        });
    }
    let mut phi = reversed_series(m, totient(m) + 1, false);
    phi.reverse();
    Ok(phi)
}

/// The number of units modulo `m`.
fn totient(m: usize) -> usize {
    prime_factors(m)
        .into_iter()
        .fold(m, |count, p| count / p * (p - 1))
}

/// The different primes that divide `m`, ascending.
fn prime_factors(m: usize) -> Vec<usize> {
    let mut rest = m;
    let mut primes = Vec::new();
    for p in (2..).take_while(|p| p * p <= m) {
        if rest.is_multiple_of(p) {
            primes.push(p);
        }
        while rest.is_multiple_of(p) {
            rest /= p;
        }
    }
    if rest > 1 {
        primes.push(rest);
    }
    primes
}

/// The first `len` coefficients of Φ_m read backwards, or (`reciprocal`) of 1 over that: with Möbius' μ it is the
/// product of (1 - x^d)^μ(m/d) over the divisors d of m. Intermediate sums may wrap around; the result does not.
fn reversed_series(m: usize, len: usize, reciprocal: bool) -> Vec<i64> {
    // The divisors of m with μ(m/d) ≠ 0, and whether μ(m/d) is -1.
    let mut factors = vec![(m, false)];
    for p in prime_factors(m) {
        factors.extend_from_within(..);
        let half = factors.len() / 2;
        for (d, negative) in &mut factors[half..] {
            *d /= p;
            *negative = !*negative;
        }
    }
    let mut series = vec![0i64; len];
    series[0] = 1;
    for (d, negative) in factors {
        if negative == reciprocal {
            for i in (d..len).rev() {
                series[i] = series[i].wrapping_sub(series[i - d]);
            }
        } else {
            for i in d..len {
                series[i] = series[i].wrapping_add(series[i - d]);
            }
        }
    }
    series
}

/// The ring Z_q\[x\]/Φ_m(x).
///
/// An element is a polynomial of φ(m) coefficients below q, the constant one first. Arguments must be such words;
/// others give wrong values, though no undefined behaviour.
#[derive(Clone, Debug)]
pub struct CyclotomicRing {
    plan: DftPlan,
    polynomial: Vec<i64>,
    units: Vec<u32>,
    /// How many coefficients of a quotient are found at a time.
    step: usize,
    /// The transform of the first `step` coefficients of 1/Φ_m backwards, divided by m.
    reciprocal: Vec<u32>,
    /// The transform of Φ_m, divided by m.
    divisor: Vec<u32>,
}

impl CyclotomicRing {
    /// The ring of index `m` modulo `modulus` (q), with the root w and the kernel of [`DftPlan::new`].
    ///
    /// # Errors
    /// As [`DftPlan::new`].
    pub fn new(m: usize, modulus: u32) -> Result<Self, RingError> {
        Self::with_plan(DftPlan::new(m, modulus)?)
    }

    /// The ring whose index, modulus and root w are those of `plan`.
    ///
    /// # Errors
    /// None for the plans there are; those of [`cyclotomic_polynomial`].
    pub fn with_plan(plan: DftPlan) -> Result<Self, RingError> {
        let m = plan.length();
        let polynomial = cyclotomic_polynomial(m)?;
        let degree = polynomial.len() - 1;
        // The product of two polynomials of `step` coefficients must have no more than m of them, and so must that of
        // Φ_m and a quotient.
        let step = (m - degree).min(m.div_ceil(2));
        let primes = prime_factors(m);
        let units = (0..m)
            .filter(|k| m == 1 || primes.iter().all(|&p| !k.is_multiple_of(p)))
            .map(|k| k as u32)
            .collect();
        let transform = |coefficients: &[i64]| {
            let mut words = vec![0; m];
            for (i, &c) in coefficients.iter().enumerate() {
                let word = &mut words[i % m];
                *word = (i64::from(*word) + c).rem_euclid(i64::from(plan.modulus())) as u32;
            }
            plan.scale_assign(&mut words, plan.inverse_length());
            plan.forward(&mut words, &mut vec![0; plan.scratch_len()]);
            words
        };
        let series = if step == 0 {
            Vec::new()
        } else {
            reversed_series(m, step, true)
        };
        Ok(CyclotomicRing {
            units,
            step,
            reciprocal: transform(&series),
            divisor: transform(&polynomial),
            polynomial,
            plan,
        })
    }

    /// The index m.
    #[must_use]
    pub fn index(&self) -> usize {
        self.plan.length()
    }

    /// The degree φ(m) of Φ_m: the coefficients of an element, and its values.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.units.len()
    }

    /// The coefficients of Φ_m, the constant one first.
    #[must_use]
    pub fn polynomial(&self) -> &[i64] {
        &self.polynomial
    }

    /// The units k modulo m, ascending: value i of an element is the one at w^k for `k = units()[i]`.
    #[must_use]
    pub fn units(&self) -> &[u32] {
        &self.units
    }

    /// The transform of m points that this ring goes by; its root is w, its modulus q.
    #[must_use]
    pub fn plan(&self) -> &DftPlan {
        &self.plan
    }

    /// The remainder modulo Φ_m of a polynomial of any length, of words below q.
    #[must_use]
    pub fn reduce(&self, polynomial: &[u32]) -> Vec<u32> {
        let m = self.index();
        let mut words = vec![0; m];
        for row in polynomial.chunks(m) {
            for (sum, &word) in words.iter_mut().zip(row) {
                *sum = self.add(*sum, word);
            }
        }
        self.reduce_cyclic(words, &mut self.scratch())
    }

    /// The values of an element at w^k for the units k modulo m, in ascending order of k.
    ///
    /// # Panics
    /// If `element` does not have φ(m) words.
    #[must_use]
    pub fn evaluate(&self, element: &[u32]) -> Vec<u32> {
        let values = self.transform(element, &mut self.scratch());
        self.units.iter().map(|&k| values[k as usize]).collect()
    }

    /// The element whose values at w^k, for the units k modulo m in ascending order, are given: undoes
    /// [`CyclotomicRing::evaluate`].
    ///
    /// # Panics
    /// If `values` does not have φ(m) words.
    #[must_use]
    pub fn interpolate(&self, values: &[u32]) -> Vec<u32> {
        self.check(values);
        // At the other m-th roots of unity any value will do.
        let mut words = vec![0; self.index()];
        for (&k, &value) in self.units.iter().zip(values) {
            words[k as usize] = value;
        }
        self.interpolate_everywhere(words)
    }

    /// The product of two elements.
    ///
    /// # Panics
    /// If `a` or `b` does not have φ(m) words.
    #[must_use]
    pub fn mul(&self, a: &[u32], b: &[u32]) -> Vec<u32> {
        let scratch = &mut self.scratch();
        let mut values = self.transform(a, scratch);
        self.plan
            .mul_assign(&mut values, &self.transform(b, scratch));
        self.interpolate_everywhere(values)
    }

    /// The element whose values at all m-th roots of unity are given.
    fn interpolate_everywhere(&self, mut values: Vec<u32>) -> Vec<u32> {
        let scratch = &mut self.scratch();
        self.plan.inverse(&mut values, scratch);
        self.plan
            .scale_assign(&mut values, self.plan.inverse_length());
        self.reduce_cyclic(values, scratch)
    }

    /// The values of an element at all m-th roots of unity.
    fn transform(&self, element: &[u32], scratch: &mut [u32]) -> Vec<u32> {
        self.check(element);
        let mut words = element.to_vec();
        words.resize(self.index(), 0);
        self.plan.forward(&mut words, scratch);
        words
    }

    /// The remainder of a polynomial of m coefficients.
    fn reduce_cyclic(&self, mut words: Vec<u32>, scratch: &mut [u32]) -> Vec<u32> {
        let (degree, step) = (self.degree(), self.step);
        let mut product = vec![0; self.index()];
        // All words from `top` on are zero.
        let mut top = self.index();
        while top > degree {
            let low = degree.max(top.saturating_sub(step));
            // The quotient's highest coefficients, backwards: the polynomial's, times the reciprocal.
            product.fill(0);
            for (to, &from) in product.iter_mut().zip(words[low..low + step].iter().rev()) {
                *to = from;
            }
            self.convolve(&mut product, &self.reciprocal, scratch);
            product[..step].reverse();
            product[step..].fill(0);
            self.convolve(&mut product, &self.divisor, scratch);
            for (word, &multiple) in words[low - degree..low].iter_mut().zip(&product) {
                *word = self.add(*word, self.plan.modulus() - multiple);
            }
            words[low..].fill(0);
            top = low;
        }
        words.truncate(degree);
        words
    }

    /// The cyclic convolution with what has the values `values`, m times too small.
    fn convolve(&self, words: &mut [u32], values: &[u32], scratch: &mut [u32]) {
        self.plan.forward(words, scratch);
        self.plan.mul_assign(words, values);
        self.plan.inverse(words, scratch);
    }

    /// `a + b mod q` for `a` below q and `b` up to q.
    fn add(&self, a: u32, b: u32) -> u32 {
        let q = u64::from(self.plan.modulus());
        let sum = u64::from(a) + u64::from(b);
        (if sum >= q { sum - q } else { sum }) as u32
    }

    fn scratch(&self) -> Vec<u32> {
        vec![0; self.plan.scratch_len()]
    }

    fn check(&self, words: &[u32]) {
        assert!(
            words.len() == self.degree(),
            "an element of this ring has {} words, the slice has {}",
            self.degree(),
            words.len()
        );
    }
}
