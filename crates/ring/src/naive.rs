//! Every algorithm of this crate once more, plainly and slowly: the oracle that the fast paths are tested against.

use crate::RingError;
use crate::goldilocks;

/// The product of two polynomials of equal length N in Z_p\[X\]/(X^N + 1), coefficient by coefficient; canonical.
///
/// # Panics
/// If the lengths differ.
#[must_use]
pub fn negacyclic_mul_goldilocks(a: &[u64], b: &[u64]) -> Vec<u64> {
    assert_eq!(a.len(), b.len(), "the polynomials differ in length");
    let n = a.len();
    let mut product = vec![0; n];
    for (i, &x) in a.iter().enumerate() {
        for (j, &y) in b.iter().enumerate() {
            let term = goldilocks::mul(x, y);
            let at = &mut product[(i + j) % n];
            *at = if i + j < n {
                goldilocks::add(*at, term)
            } else {
                goldilocks::sub(*at, term)
            };
        }
    }
    product
}

/// The product of a torus polynomial (words modulo 2^32) and an integer polynomial of equal length N, modulo X^N + 1.
///
/// # Panics
/// If the lengths differ.
#[must_use]
pub fn negacyclic_mul_wrapping_u32(a: &[u32], small: &[i64]) -> Vec<u32> {
    assert_eq!(a.len(), small.len(), "the polynomials differ in length");
    let n = a.len();
    let mut product = vec![0u32; n];
    for (i, &x) in a.iter().enumerate() {
        for (j, &y) in small.iter().enumerate() {
            let term = x.wrapping_mul(y as u32);
            let at = &mut product[(i + j) % n];
            *at = if i + j < n {
                at.wrapping_add(term)
            } else {
                at.wrapping_sub(term)
            };
        }
    }
    product
}

/// The negacyclic NTT by its definition: `a(psi^(2i + 1))` at position `i`, in natural order, not normalized.
///
/// # Errors
/// [`RingError::Degree`] where [`goldilocks::psi`] has no root for the length of `a`.
pub fn ntt_definition(a: &[u64]) -> Result<Vec<u64>, RingError> {
    let psi = goldilocks::psi(a.len())?;
    let value_at = |x: u64| {
        a.iter()
            .rev()
            .fold(0, |sum, &c| goldilocks::add(goldilocks::mul(sum, x), c))
    };
    Ok((0..a.len() as u64)
        .map(|i| value_at(goldilocks::pow(psi, 2 * i + 1)))
        .collect())
}

/// The product of two polynomials of equal length N in Z\[X\]/(X^N + 1), exact as long as it fits.
///
/// # Panics
/// If the lengths differ, or (with overflow checks) if a coefficient does not fit.
#[must_use]
pub fn negacyclic_mul_i128(a: &[i64], b: &[i64]) -> Vec<i128> {
    assert_eq!(a.len(), b.len(), "the polynomials differ in length");
    let n = a.len();
    let mut product = vec![0; n];
    for (i, &x) in a.iter().enumerate() {
        for (j, &y) in b.iter().enumerate() {
            let term = i128::from(x) * i128::from(y);
            if i + j < n {
                product[i + j] += term;
            } else {
                product[i + j - n] -= term;
            }
        }
    }
    product
}

/// The values of the polynomial with N real coefficients `coeffs` at ζ^(4e+1), ζ = exp(iπ/N), for e = 0 … N/2-1, as
/// (real, imaginary): half of the roots of X^N + 1, one of each conjugate pair.
#[must_use]
pub fn fft_definition(coeffs: &[f64]) -> Vec<(f64, f64)> {
    let n = coeffs.len();
    (0..n / 2)
        .map(|e| {
            coeffs
                .iter()
                .enumerate()
                .fold((0.0, 0.0), |(re, im), (j, &a)| {
                    let half_turns = (j * (4 * e + 1) % (2 * n)) as f64 / n as f64;
                    let (sin, cos) = (std::f64::consts::PI * half_turns).sin_cos();
                    (re + a * cos, im + a * sin)
                })
        })
        .collect()
}
