//! The transforms row by row, in plain Rust: the oracle of the SIMD kernel.

use crate::goldilocks::{add, mul, reduce, sub};

/// Algorithm 1's loops with the Cooley-Tukey butterfly; `twiddles` are powers of psi in bit-reversed order.
pub fn forward(a: &mut [u64], twiddles: &[u64]) {
    let mut blocks = 1;
    while blocks < a.len() {
        let length = a.len() / blocks;
        for (block, &w) in a.chunks_exact_mut(length).zip(&twiddles[blocks..]) {
            let (low, high) = block.split_at_mut(length / 2);
            for (t, u) in low.iter_mut().zip(high) {
                let product = mul(*u, w);
                (*t, *u) = (add(*t, product), sub(*t, product));
            }
        }
        blocks *= 2;
    }
}

/// Algorithm 2's loops with the Gentleman-Sande butterfly; `twiddles` are powers of 1/psi in bit-reversed order.
pub fn inverse(a: &mut [u64], twiddles: &[u64]) {
    let mut blocks = a.len() / 2;
    while blocks > 0 {
        let length = a.len() / blocks;
        for (block, &w) in a.chunks_exact_mut(length).zip(&twiddles[blocks..]) {
            let (low, high) = block.split_at_mut(length / 2);
            for (t, u) in low.iter_mut().zip(high) {
                (*t, *u) = (add(*t, *u), mul(sub(*t, *u), w));
            }
        }
        blocks /= 2;
    }
}

/// `acc += a ⊙ b`; a sum of `acc` and a product is below 2^128.
pub fn mul_add_assign(acc: &mut [u64], a: &[u64], b: &[u64]) {
    for ((acc, &a), &b) in acc.iter_mut().zip(a).zip(b) {
        *acc = reduce(u128::from(a) * u128::from(b) + u128::from(*acc));
    }
}

/// `a = a ⊙ b`.
pub fn mul_assign(a: &mut [u64], b: &[u64]) {
    for (a, &b) in a.iter_mut().zip(b) {
        *a = mul(*a, b);
    }
}

/// `a = c·a`.
pub fn scale_assign(a: &mut [u64], c: u64) {
    for a in a {
        *a = mul(*a, c);
    }
}
