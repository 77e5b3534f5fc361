//! Prime moduli of at most 64 bits: arithmetic by plain division, a primality test, and what a negacyclic transform
//! needs of a prime q: that 2N divides q - 1, and an element psi of order 2N.
//!
//! These functions prepare plans and serve as oracle; the kernels of [`prime_ntt`](crate::prime_ntt) reduce without
//! division.

use crate::RingError;

/// `(a + b) mod q`, for any `a`, `b` and a `q` that is not 0.
#[inline]
#[must_use]
pub const fn add(a: u64, b: u64, q: u64) -> u64 {
    ((a as u128 + b as u128) % q as u128) as u64
}

/// `(a - b) mod q`, for any `a`, `b` and a `q` that is not 0.
#[inline]
#[must_use]
pub const fn sub(a: u64, b: u64, q: u64) -> u64 {
    add(a, neg(b, q), q)
}

/// `-a mod q`, for any `a` and a `q` that is not 0.
#[inline]
#[must_use]
pub const fn neg(a: u64, q: u64) -> u64 {
    match a % q {
        0 => 0,
        rest => q - rest,
    }
}

/// `a·b mod q`, for any `a`, `b` and a `q` that is not 0.
#[inline]
#[must_use]
pub const fn mul(a: u64, b: u64, q: u64) -> u64 {
    (a as u128 * b as u128 % q as u128) as u64
}

/// `base` to the power `exponent`, modulo `q`, which is not 0; `pow(0, 0, q)` is 1 modulo `q`.
#[must_use]
pub const fn pow(base: u64, mut exponent: u64, q: u64) -> u64 {
    let mut square = base % q;
    let mut power = 1 % q;
    while exponent != 0 {
        if exponent & 1 == 1 {
            power = mul(power, square, q);
        }
        square = mul(square, square, q);
        exponent >>= 1;
    }
    power
}

/// The inverse of `a` modulo the odd prime `q`; 0 for multiples of `q`, which have none.
#[must_use]
pub const fn inv(a: u64, q: u64) -> u64 {
    pow(a, q - 2, q)
}

/// Whether `x` is a prime.
///
/// The test of Miller and Rabin to the first twelve prime bases, which decides every number below 3.3·10^24
/// (Sorenson and Webster, Strong pseudoprimes to twelve prime bases).
#[must_use]
pub const fn is_prime(x: u64) -> bool {
    const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];
    if x < 2 {
        return false;
    }
    let twos = (x - 1).trailing_zeros();
    let mut i = 0;
    while i < BASES.len() {
        let base = BASES[i];
        i += 1;
        if x == base {
            return true;
        }
        if x.is_multiple_of(base) {
            return false;
        }
        let mut power = pow(base, (x - 1) >> twos, x);
        let mut squarings = 0;
        while power != 1 && power != x - 1 {
            squarings += 1;
            if squarings >= twos {
                return false;
            }
            power = mul(power, power, x);
        }
        // 1 after a squaring has a square root other than 1 and -1, which a prime does not allow.
        if power == 1 && squarings > 0 {
            return false;
        }
    }
    true
}

/// The primes below `bound` that are 1 modulo 2n, the moduli of negacyclic transforms of degree `n`, largest first.
///
/// # Panics
/// If `n` is 0 or above 2^62.
pub fn ntt_primes(n: usize, bound: u64) -> impl Iterator<Item = u64> {
    assert!(n > 0 && n <= 1 << 62, "no transform has degree {n}");
    let step = 2 * n as u64;
    let largest = bound.saturating_sub(2) / step;
    (1..=largest)
        .rev()
        .map(move |k| k * step + 1)
        .filter(|&q| is_prime(q))
}

/// An element of order 2n modulo `q`: the power (q - 1)/2n of the smallest quadratic non-residue.
///
/// # Errors
/// [`RingError::NotPrime`]; [`RingError::NoRoot`] unless `n` is a power of two and 2n divides q - 1.
pub fn psi(n: usize, q: u64) -> Result<u64, RingError> {
    if !is_prime(q) {
        return Err(RingError::NotPrime(q));
    }
    let no_root = RingError::NoRoot {
        modulus: q,
        degree: n,
    };
    let order = (n as u64)
        .checked_mul(2)
        .filter(|order| order.is_power_of_two());
    match order {
        // A non-residue to the power (q - 1)/2 is -1, so its power (q - 1)/2n has order 2n, a power of two.
        Some(order) if (q - 1).is_multiple_of(order) => (2..q)
            .find(|&x| pow(x, (q - 1) / 2, q) == q - 1)
            .map(|x| pow(x, (q - 1) / order, q))
            .ok_or(no_root),
        _ => Err(no_root),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goldilocks;

    #[test]
    fn primes_are_told_from_composites() {
        let sieve = |x: u64| {
            x >= 2
                && (2..)
                    .take_while(|d| d * d <= x)
                    .all(|d: u64| !x.is_multiple_of(d))
        };
        for x in 0..5000 {
            assert_eq!(is_prime(x), sieve(x), "{x}");
        }
        // The largest prime of 64 bits, Goldilocks, a Mersenne prime.
        for prime in [u64::MAX - 58, goldilocks::P, (1 << 61) - 1] {
            assert!(is_prime(prime));
        }
        // Carmichael numbers, strong pseudoprimes to bases 2, 2 to 7 and 2 to 37 (the last base excepted), squares.
        for composite in [
            561,
            2047,
            3_215_031_751,
            3_825_123_056_546_413_051,
            ((1 << 31) - 1) * ((1 << 31) - 1),
            u64::MAX,
        ] {
            assert!(!is_prime(composite), "{composite}");
        }
    }

    #[test]
    fn primes_below_a_bound_are_all_there() {
        let found: Vec<u64> = ntt_primes(8, 200).collect();
        assert_eq!(found, [193, 113, 97, 17]);
        assert_eq!(ntt_primes(8, 193).next(), Some(113));
        assert_eq!(ntt_primes(8, 17).next(), None);
        assert_eq!(ntt_primes(1, 0).next(), None);
        assert_eq!(ntt_primes(8, 194).next(), Some(193));
    }

    #[test]
    fn psi_has_its_order() {
        for n in [1, 2, 1024, 1 << 17] {
            for bound in [1 << 31, 1 << 50, 1 << 63] {
                let q = ntt_primes(n, bound).next().unwrap_or(0);
                assert_eq!(psi(n, q).map(|psi| pow(psi, n as u64, q)), Ok(q - 1));
            }
        }
    }

    #[test]
    fn moduli_without_a_root() {
        assert_eq!(psi(8, 15), Err(RingError::NotPrime(15)));
        for (n, q) in [
            (8, 97),
            (16, 113),
            (3, 97),
            (0, 97),
            (1, 2),
            (usize::MAX, 97),
        ] {
            let expected = RingError::NoRoot {
                modulus: q,
                degree: n,
            };
            if (n, q) == (8, 97) {
                assert!(psi(n, q).is_ok());
            } else {
                assert_eq!(psi(n, q), Err(expected));
            }
        }
    }

    #[test]
    fn sums_and_differences_of_any_words() {
        for q in [1, 2, 97, 1 << 63, u64::MAX - 58, u64::MAX] {
            for a in [0, 1, 96, q / 2, q - 1, q, u64::MAX] {
                let rest = i128::from(a) % i128::from(q);
                assert_eq!(i128::from(neg(a, q)), (-rest).rem_euclid(q.into()));
                for b in [0, 1, 95, q / 2, q - 1, q, u64::MAX] {
                    let (wide_a, wide_b) = (i128::from(a), i128::from(b));
                    let modulo = |wide: i128| wide.rem_euclid(q.into());
                    assert_eq!(i128::from(add(a, b, q)), modulo(wide_a + wide_b));
                    assert_eq!(i128::from(sub(a, b, q)), modulo(wide_a - wide_b));
                }
            }
        }
    }

    #[test]
    fn inverses() {
        for q in [5, 97, (1 << 61) - 1, u64::MAX - 58] {
            for a in [1, 2, 3, q / 2, q - 1] {
                assert_eq!(mul(a, inv(a, q), q), 1);
            }
            assert_eq!(inv(0, q), 0);
        }
    }
}
