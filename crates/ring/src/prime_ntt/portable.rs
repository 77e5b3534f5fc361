//! The transforms row by row, in plain Rust: the oracle of the vector kernels, for every size of word.

use super::tables::Modulus;
use super::word::Word;

/// `a + b` below q, for `a` and `b` below q.
#[inline(always)]
fn add(a: u64, b: u64, q: u64) -> u64 {
    let sum = a + b;
    if sum >= q { sum - q } else { sum }
}

#[inline(always)]
fn sub(a: u64, b: u64, q: u64) -> u64 {
    if a >= b { a - b } else { a + q - b }
}

/// `w·y` below q, after Shoup.
#[inline(always)]
fn times<W: Word>(y: u64, w: [W; 2], q: u64) -> u64 {
    let quotient = (u128::from(y) * u128::from(w[1].widen())) >> W::BITS;
    let rest = y
        .wrapping_mul(w[0].widen())
        .wrapping_sub((quotient as u64).wrapping_mul(q));
    if rest >= q { rest - q } else { rest }
}

/// `a·b` below q, after Montgomery.
#[inline(always)]
fn mul<W: Word>(a: u64, b: u64, modulus: &Modulus<W>) -> u64 {
    let q = modulus.q.widen();
    let product = u128::from(a) * u128::from(b);
    let low = u128::from(W::truncate(product).widen());
    let m = W::truncate(low * u128::from(modulus.inverse.widen())).widen();
    let high = (product >> W::BITS) as u64;
    let subtrahend = ((u128::from(m) * u128::from(q)) >> W::BITS) as u64;
    times(sub(high, subtrahend, q), modulus.r, q)
}

fn narrow<W: Word>(x: u64) -> W {
    W::truncate(x.into())
}

/// `twiddles` are powers of psi in bit-reversed order.
pub(super) fn forward<W: Word>(a: &mut [W], q: u64, twiddles: &[[W; 2]]) {
    let mut blocks = 1;
    while blocks < a.len() {
        let length = a.len() / blocks;
        for (block, &w) in a.chunks_exact_mut(length).zip(&twiddles[blocks..]) {
            let (low, high) = block.split_at_mut(length / 2);
            for (x, y) in low.iter_mut().zip(high) {
                let (sum, product) = (x.widen(), times(y.widen(), w, q));
                *x = narrow(add(sum, product, q));
                *y = narrow(sub(sum, product, q));
            }
        }
        blocks *= 2;
    }
}

/// `twiddles` are powers of 1/psi in bit-reversed order.
pub(super) fn inverse<W: Word>(a: &mut [W], q: u64, twiddles: &[[W; 2]]) {
    let mut blocks = a.len() / 2;
    while blocks > 0 {
        let length = a.len() / blocks;
        for (block, &w) in a.chunks_exact_mut(length).zip(&twiddles[blocks..]) {
            let (low, high) = block.split_at_mut(length / 2);
            for (x, y) in low.iter_mut().zip(high) {
                let (a, b) = (x.widen(), y.widen());
                *x = narrow(add(a, b, q));
                *y = narrow(times(sub(a, b, q), w, q));
            }
        }
        blocks /= 2;
    }
}

/// `a = a ⊙ b`
pub(super) fn mul_assign<W: Word>(a: &mut [W], b: &[W], modulus: &Modulus<W>) {
    for (a, b) in a.iter_mut().zip(b) {
        *a = narrow(mul(a.widen(), b.widen(), modulus));
    }
}

/// `acc += a ⊙ b`
pub(super) fn mul_add_assign<W: Word>(acc: &mut [W], a: &[W], b: &[W], modulus: &Modulus<W>) {
    let q = modulus.q.widen();
    for ((acc, a), b) in acc.iter_mut().zip(a).zip(b) {
        *acc = narrow(add(acc.widen(), mul(a.widen(), b.widen(), modulus), q));
    }
}

/// `sum += other`
pub(super) fn add_assign(sum: &mut [u64], other: &[u64], q: u64) {
    for (sum, &other) in sum.iter_mut().zip(other) {
        *sum = add(*sum, other, q);
    }
}

/// `a = w·a`
pub(super) fn scale_assign<W: Word>(a: &mut [W], w: [W; 2], q: u64) {
    for a in a {
        *a = narrow(times(a.widen(), w, q));
    }
}

/// Signed words between -q and q to canonical ones.
pub(super) fn canonicalize(a: &mut [u64], q: u64) {
    for a in a {
        if (*a as i64) < 0 {
            *a = a.wrapping_add(q);
        } else if *a >= q {
            *a -= q;
        }
    }
}

/// `out = sum_r weights[r]·rows[r]`
pub(super) fn combine(out: &mut [u64], rows: &[&[u64]], weights: &[[u64; 2]], q: u64) {
    out.fill(0);
    for (row, &w) in rows.iter().zip(weights) {
        add_scaled_assign(out, row, w, q);
    }
}

/// `sum += w·a`
pub(super) fn add_scaled_assign(sum: &mut [u64], a: &[u64], w: [u64; 2], q: u64) {
    for (sum, &y) in sum.iter_mut().zip(a) {
        *sum = add(*sum, times(y, w, q), q);
    }
}

/// `a = w·(a - b)`
pub(super) fn sub_scale_assign(a: &mut [u64], b: &[u64], w: [u64; 2], q: u64) {
    for (a, &b) in a.iter_mut().zip(b) {
        *a = times(sub(*a, b, q), w, q);
    }
}
