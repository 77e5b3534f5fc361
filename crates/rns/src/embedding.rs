//! The canonical embedding: N real coefficients and N/2 complex slots, by the fast transform and by its definition.
//!
//! A real polynomial m of degree below N is known by its values at `ζ^(5^j)`, ζ = exp(πi/N), for 0 ≤ j < N/2: slot j. The
//! other primitive 2N-th roots of unity are their conjugates. The automorphism X → X^5 moves the slots by one place, and
//! products of polynomials modulo X^N + 1 are products of slots. As `5^j` is 1 modulo 4, `X^(N/2)` has the value i in every slot:
//! slot j is `Σ_k (m_k + i·m_(k+N/2))·ζ^(5^j·k)` over k < N/2, a transform of N/2 *folded* coefficients.
//!
//! The transform has log2(N/2) levels of butterflies on blocks of 2, 4, …, N/2 (Cheon, Han, Kim, Kim and Song, Bootstrapping
//! for approximate homomorphic encryption, 2018, section 5); its input is in bit-reversed order.

use crate::complex::Complex;

/// The roots of unity of one ring degree.
#[derive(Clone, Debug)]
pub struct Embedding {
    /// N.
    degree: usize,
    /// `ζ^k` for k < 2N.
    roots: Vec<Complex>,
    /// `5^j mod 2N` for j < N/2.
    powers: Vec<usize>,
}

impl Embedding {
    /// The embedding of ring degree N.
    ///
    /// # Panics
    /// If N is not a power of two from 4 on.
    #[must_use]
    pub fn new(degree: usize) -> Embedding {
        assert!(
            degree.is_power_of_two() && degree >= 4,
            "a ring degree of {degree}"
        );
        let order = 2 * degree;
        Embedding {
            degree,
            roots: (0..order).map(|k| Complex::root(k, order)).collect(),
            powers: std::iter::successors(Some(1), |power| Some(power * 5 % order))
                .take(degree / 2)
                .collect(),
        }
    }

    /// N, the number of real coefficients.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// N/2, the number of slots.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.degree / 2
    }

    /// `5^j mod 2N`: the automorphism X → X^(5^j) moves slot j to slot 0.
    ///
    /// # Panics
    /// If j is N/2 or more.
    #[must_use]
    pub fn galois_element(&self, j: usize) -> usize {
        self.powers[j]
    }

    /// The twiddle of place j of a block of `length` = 2, 4, …, N/2: a root of unity of order 4·length.
    pub(crate) fn twiddle(&self, length: usize, j: usize) -> Complex {
        let order = 4 * length;
        self.roots[self.powers[j] % order * (2 * self.degree / order)]
    }

    /// Slots of folded coefficients in bit-reversed order, in place.
    fn butterflies(&self, values: &mut [Complex]) {
        let mut length = 2;
        while length <= values.len() {
            for block in values.chunks_exact_mut(length) {
                let (low, high) = block.split_at_mut(length / 2);
                for (j, (a, b)) in low.iter_mut().zip(high).enumerate() {
                    let turned = *b * self.twiddle(length, j);
                    (*a, *b) = (*a + turned, *a - turned);
                }
            }
            length *= 2;
        }
    }

    /// The inverse of [`Embedding::butterflies`], without its factor 2/N.
    fn inverse_butterflies(&self, values: &mut [Complex]) {
        let mut length = values.len();
        while length >= 2 {
            for block in values.chunks_exact_mut(length) {
                let (low, high) = block.split_at_mut(length / 2);
                for (j, (a, b)) in low.iter_mut().zip(high).enumerate() {
                    let difference = *a - *b;
                    *a += *b;
                    *b = difference * self.twiddle(length, j).conj();
                }
            }
            length /= 2;
        }
    }

    /// The N/2 slots of N coefficients.
    ///
    /// # Panics
    /// If there are not N coefficients.
    #[must_use]
    pub fn to_slots(&self, coefficients: &[f64]) -> Vec<Complex> {
        assert_eq!(coefficients.len(), self.degree);
        let (low, high) = coefficients.split_at(self.slots());
        let mut values: Vec<Complex> = low
            .iter()
            .zip(high)
            .map(|(&re, &im)| Complex::new(re, im))
            .collect();
        bit_reverse(&mut values);
        self.butterflies(&mut values);
        values
    }

    /// The N coefficients of N/2 slots.
    ///
    /// # Panics
    /// If there are not N/2 slots.
    #[must_use]
    pub fn to_coefficients(&self, slots: &[Complex]) -> Vec<f64> {
        assert_eq!(slots.len(), self.slots());
        let mut values = slots.to_vec();
        self.inverse_butterflies(&mut values);
        bit_reverse(&mut values);
        let scale = 1.0 / self.slots() as f64;
        let mut coefficients = Vec::with_capacity(self.degree);
        coefficients.extend(values.iter().map(|value| value.re * scale));
        coefficients.extend(values.iter().map(|value| value.im * scale));
        coefficients
    }

    /// The slots by their definition, in N²/2 steps: the oracle of [`Embedding::to_slots`].
    ///
    /// # Panics
    /// If there are not N coefficients.
    #[must_use]
    pub fn naive_slots(&self, coefficients: &[f64]) -> Vec<Complex> {
        assert_eq!(coefficients.len(), self.degree);
        self.powers
            .iter()
            .map(|power| {
                let mut sum = Complex::ZERO;
                for (k, &coefficient) in coefficients.iter().enumerate() {
                    sum += self.roots[power * k % self.roots.len()] * coefficient;
                }
                sum
            })
            .collect()
    }
}

/// Moves each value to the place whose binary digits are those of its own, reversed.
///
/// # Panics
/// If the number of values is no power of two.
pub fn bit_reverse<T>(values: &mut [T]) {
    assert!(values.len().is_power_of_two());
    let bits = values.len().trailing_zeros();
    for i in 1..values.len() {
        let j = i.reverse_bits() >> (usize::BITS - bits);
        if i < j {
            values.swap(i, j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Numbers in [-1, 1) that look random.
    fn coefficients(n: usize, seed: u64) -> Vec<f64> {
        let mut state = seed;
        (0..n)
            .map(|_| {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
            })
            .collect()
    }

    fn worst(a: &[Complex], b: &[Complex]) -> f64 {
        a.iter()
            .zip(b)
            .map(|(x, y)| (*x - *y).abs())
            .fold(0.0, f64::max)
    }

    #[test]
    fn slots_are_those_of_the_definition() {
        for log2 in 2..=11 {
            let n = 1 << log2;
            let embedding = Embedding::new(n);
            let m = coefficients(n, 7);
            let error = worst(&embedding.to_slots(&m), &embedding.naive_slots(&m));
            assert!(error < 1e-12 * (n as f64).sqrt(), "{n}: {error:e}");
        }
    }

    #[test]
    fn the_way_back_loses_less_than_2_to_the_minus_46() {
        for log2 in [4, 10, 14, 16] {
            let n = 1 << log2;
            let embedding = Embedding::new(n);
            let m = coefficients(n, 3);
            let back = embedding.to_coefficients(&embedding.to_slots(&m));
            let error = m
                .iter()
                .zip(&back)
                .map(|(x, y)| (x - y).abs())
                .fold(0.0, f64::max);
            assert!(error < (-46f64).exp2(), "{n}: 2^{}", error.log2());
        }
    }

    #[test]
    fn the_monomial_of_half_the_degree_is_i() {
        let embedding = Embedding::new(64);
        let mut m = vec![0.0; 64];
        m[32] = 1.0;
        let slots = embedding.to_slots(&m);
        assert!(worst(&slots, &vec![Complex::I; 32]) < 1e-15);
    }

    proptest! {
        #[test]
        fn products_of_polynomials_are_products_of_slots(seed in any::<u64>()) {
            let n = 32;
            let embedding = Embedding::new(n);
            let (a, b) = (coefficients(n, seed), coefficients(n, !seed));
            let mut product = vec![0.0; n];
            for i in 0..n {
                for j in 0..n {
                    let sign = if i + j < n { 1.0 } else { -1.0 };
                    product[(i + j) % n] += sign * a[i] * b[j];
                }
            }
            let slots: Vec<Complex> = embedding.to_slots(&a).iter().zip(embedding.to_slots(&b)).map(|(x, y)| *x * y).collect();
            prop_assert!(worst(&embedding.to_slots(&product), &slots) < 1e-12);
        }

        #[test]
        fn automorphisms_move_slots(seed in any::<u64>(), j in 0usize..16) {
            let n = 32;
            let embedding = Embedding::new(n);
            let m = coefficients(n, seed);
            let g = embedding.galois_element(j);
            let mut moved = vec![0.0; n];
            for (k, &coefficient) in m.iter().enumerate() {
                let place = k * g % (2 * n);
                if place < n { moved[place] += coefficient } else { moved[place - n] -= coefficient }
            }
            let mut expected = embedding.to_slots(&m);
            expected.rotate_left(j);
            prop_assert!(worst(&embedding.to_slots(&moved), &expected) < 1e-12);
        }
    }
}
