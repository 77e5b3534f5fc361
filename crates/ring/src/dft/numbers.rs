//! [`prime`] for words of 32 bits, and roots of unity of any order.

use crate::prime;

/// `a·b mod q`.
pub(super) fn mul(a: u32, b: u32, q: u32) -> u32 {
    (u64::from(a) * u64::from(b) % u64::from(q)) as u32
}

/// `base^exponent mod q`.
pub(super) fn pow(base: u32, exponent: u32, q: u32) -> u32 {
    prime::pow(base.into(), exponent.into(), q.into()) as u32
}

/// The inverse of `a` modulo the prime `q`.
pub(super) fn inv(a: u32, q: u32) -> u32 {
    prime::inv(a.into(), q.into()) as u32
}

/// The different primes that divide `n`, ascending.
pub(super) fn prime_factors(mut n: u32) -> Vec<u32> {
    let mut factors = Vec::new();
    let mut p = 2;
    while u64::from(p) * u64::from(p) <= u64::from(n) {
        if n.is_multiple_of(p) {
            factors.push(p);
            while n.is_multiple_of(p) {
                n /= p;
            }
        }
        p += 1;
    }
    if n > 1 {
        factors.push(n);
    }
    factors
}

/// Whether `a`, whose `order`-th power is 1, has no smaller order.
pub(super) fn has_order(a: u32, order: u32, q: u32) -> bool {
    pow(a, order, q) == 1 % q
        && prime_factors(order)
            .iter()
            .all(|p| pow(a, order / p, q) != 1)
}

/// The least primitive root modulo the prime `q`.
pub(super) fn primitive_root(q: u32) -> u32 {
    (1..q).find(|&g| has_order(g, q - 1, q)).unwrap_or(1)
}
