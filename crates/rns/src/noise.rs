//! Variances of the noise that operations add, per coefficient, in units of the ring squared.
//!
//! All are average-case: coefficients of noise, of roundings and of digits count as independent, roundings and digits as
//! uniform. A ciphertext's masks are pseudo-random, which makes the last two good; that noise of one ciphertext is independent
//! of another's is the caller's to know. The secret has its expected norm of 2N/3.

use crate::params::RnsParams;

/// Of a fresh encryption.
#[must_use]
pub fn fresh(params: &RnsParams) -> f64 {
    // Rounding to integers adds 1/12 of a unit.
    params.sigma * params.sigma + 1.0 / 12.0
}

/// Of a division with rounding, of b and of a, under a secret of this squared norm: a rescaling adds it, after what was there
/// is divided by the square of the dropped primes.
#[must_use]
pub fn rounding(secret_norm: f64) -> f64 {
    (1.0 + secret_norm) / 12.0
}

/// Of a ciphertext of variance `variance` after the primes of product `dropped` are dropped.
#[must_use]
pub fn rescale(params: &RnsParams, variance: f64, dropped: f64) -> f64 {
    variance / (dropped * dropped) + rounding(params.secret_norm())
}

/// Of a key switch of a ciphertext of `limbs` limbs, as a relinearization, a rotation or a conjugation has it.
///
/// # Panics
/// If the chain is shorter.
#[must_use]
pub fn key_switch(params: &RnsParams, limbs: usize) -> f64 {
    digits(params, &params.chain[..limbs], &params.special) + rounding(params.secret_norm())
}

/// Of a key switch of a ciphertext of `limbs` limbs whose division drops the last prime too: a relinearization with a rescaling. It
/// rounds once, after the noise of the digits is divided by that prime.
///
/// # Panics
/// If the chain is shorter, or there are no limbs.
#[must_use]
pub fn key_switch_rescale(params: &RnsParams, limbs: usize) -> f64 {
    let chain = &params.chain[..limbs];
    let last = chain[limbs - 1] as f64;
    digits(params, chain, &params.special) / (last * last) + rounding(params.secret_norm())
}

/// sum_j N·Var(digit j)·Var(e)/P^2.
fn digits(params: &RnsParams, chain: &[u64], special: &[u64]) -> f64 {
    let product = |primes: &[u64]| primes.iter().map(|q| *q as f64).product::<f64>();
    // Ratios, since squares of products leave the range of f64.
    let ratios = chain.chunks(params.digit_limbs).map(|digit| {
        let shared = digit.iter().zip(special);
        let ratio: f64 = shared.map(|(q, p)| *q as f64 / *p as f64).product();
        let rest = special.get(digit.len()..).unwrap_or(&[]);
        let more = digit.get(special.len()..).unwrap_or(&[]);
        ratio * product(more) / product(rest)
    });
    let sum: f64 = ratios.map(|ratio| ratio * ratio).sum();
    params.degree as f64 * fresh(params) * sum / 12.0
}

/// Of a mod-raise: the switch to the sparse secret at q_0·p_0, then that back, of a polynomial within q_0/2.
#[must_use]
pub fn mod_raise(params: &RnsParams) -> f64 {
    let enter = digits(params, &params.chain[..1], &params.special[..1]);
    let weight = params.encapsulation_weight as f64;
    let leave = digits(params, &params.chain[..1], &params.special);
    enter + rounding(weight) + leave + rounding(params.secret_norm())
}

/// Of a product of two plaintexts with mean square coefficients `squares` and noise of variances `variances`, before the key
/// switch of its relinearization.
#[must_use]
pub fn product(params: &RnsParams, squares: [f64; 2], variances: [f64; 2]) -> f64 {
    let sum = squares[0] * variances[1] + squares[1] * variances[0];
    params.degree as f64 * (sum + variances[0] * variances[1])
}

/// Of a ciphertext of variance `variance` times a plaintext with mean square coefficient `square`.
#[must_use]
pub fn mul_plain(params: &RnsParams, square: f64, variance: f64) -> f64 {
    params.degree as f64 * square * variance
}
