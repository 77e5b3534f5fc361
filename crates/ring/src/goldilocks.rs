//! The Goldilocks field: integers modulo the prime p = 2^64 - 2^32 + 1.
//!
//! An element is a `u64` in `[0, p)`, its canonical form; every function here takes and gives canonical elements unless
//! it says otherwise. Since 2^64 = 2^32 - 1 and 2^96 = -1 modulo p, a product is reduced without a multiplication
//! (platform paper, section 4.6), and 2 is a root of unity of order 192.

use std::hint::black_box;

use crate::RingError;

/// The prime p = 2^64 - 2^32 + 1.
pub const P: u64 = 0xffff_ffff_0000_0001;

/// The primitive 16384th root of unity of the platform paper (section 4.5).
pub const OMEGA_16384: u64 = 10_930_245_224_889_659_871;

/// The primitive 32768th root of unity of the platform paper (section 4.5); its square is [`OMEGA_16384`].
pub const PSI_16384: u64 = 3_333_600_369_887_534_767;

/// The largest ring degree for which [`psi`] has a root.
pub const MAX_DEGREE: usize = 1 << 17;

/// A primitive 2^18th root of unity whose eighth power is [`PSI_16384`]: the smaller square root at each step up.
const PSI_131072: u64 = 2_311_990_510_900_735_078;

/// 2^64 - p, so that adding it modulo 2^64 subtracts p.
const EPSILON: u64 = 0xffff_ffff;

/// `a + b`.
#[inline]
#[must_use]
pub const fn add(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    if carry || sum >= P {
        sum.wrapping_sub(P)
    } else {
        sum
    }
}

/// `a - b`.
#[inline]
#[must_use]
pub const fn sub(a: u64, b: u64) -> u64 {
    let (difference, borrow) = a.overflowing_sub(b);
    if borrow {
        difference.wrapping_add(P)
    } else {
        difference
    }
}

/// All ones for true. What follows is compiled without a branch on it, as far as [`black_box`] hides what values it has.
#[inline]
fn mask(bit: bool) -> u64 {
    black_box(u64::from(bit).wrapping_neg())
}

/// `a + b` without a branch that depends on them: for secrets.
#[inline]
#[must_use]
pub fn add_masked(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    let (reduced, borrow) = sum.overflowing_sub(P);
    // A sum below p was reduced in vain.
    reduced.wrapping_add(P & mask(borrow & !carry))
}

/// `a - b` without a branch that depends on them: for secrets.
#[inline]
#[must_use]
pub fn sub_masked(a: u64, b: u64) -> u64 {
    let (difference, borrow) = a.overflowing_sub(b);
    difference.wrapping_add(P & mask(borrow))
}

/// `x mod p` of a signed `x`, without a branch that depends on it: for secrets.
#[inline]
#[must_use]
pub fn from_signed_masked(x: i64) -> u64 {
    x.cast_unsigned().wrapping_add(P & mask(x < 0))
}

/// `x mod p` of a sum of at most 2^32 elements, without a branch that depends on it: for secrets.
#[inline]
#[must_use]
pub fn reduce_sum_masked(x: u128) -> u64 {
    let (low, high) = (x as u64, (x >> 64) as u64);
    let (reduced, borrow) = low.overflowing_sub(P);
    let low = reduced.wrapping_add(P & mask(borrow));
    add_masked(low, high * EPSILON)
}

/// `-a`.
#[inline]
#[must_use]
pub const fn neg(a: u64) -> u64 {
    if a == 0 { 0 } else { P - a }
}

/// `a * b`.
#[inline]
#[must_use]
pub const fn mul(a: u64, b: u64) -> u64 {
    reduce(a as u128 * b as u128)
}

/// `base` to the power `exponent`; `pow(0, 0)` is 1.
#[must_use]
pub const fn pow(base: u64, mut exponent: u64) -> u64 {
    let mut square = base;
    let mut power = 1;
    while exponent != 0 {
        if exponent & 1 == 1 {
            power = mul(power, square);
        }
        square = mul(square, square);
        exponent >>= 1;
    }
    power
}

/// The inverse of `a`; 0 for 0, which has none.
#[must_use]
pub const fn inv(a: u64) -> u64 {
    pow(a, P - 2)
}

/// `x mod p`, canonical, for any `x` of 128 bits.
///
/// Section 4.6 of the platform paper: with `x = a·2^96 + b·2^64 + c`, where `a` and `b` are below 2^32 and `c` below
/// 2^64, the relations 2^96 = -1 and 2^64 = 2^32 - 1 give `x = b·2^32 + c - (a + b) mod p`. The code subtracts `a`
/// alone and adds `b·(2^32 - 1)`, which is the same; each step keeps 64 bits by trading a carry (2^64) for 2^32 - 1.
#[inline]
#[must_use]
pub const fn reduce(x: u128) -> u64 {
    let c = x as u64;
    let b = (x >> 64) as u64 & EPSILON;
    let a = (x >> 96) as u64;

    // A borrow leaves at least 2^64 - 2^32 + 1, so taking 2^32 - 1 more cannot borrow again.
    let (mut low, borrow) = c.overflowing_sub(a);
    if borrow {
        low -= EPSILON;
    }
    // b·(2^32 - 1) <= (2^32 - 1)^2 = 2^64 - 2^33 + 1, so after a carry at most 2^64 - 2^33 remains.
    let (mut sum, carry) = low.overflowing_add(b * EPSILON);
    if carry {
        sum += EPSILON;
    }
    if sum >= P { sum - P } else { sum }
}

/// A primitive 2n-th root of unity for a ring of degree `n`, a power of two from 2 to [`MAX_DEGREE`].
///
/// `psi(16384)` is [`PSI_16384`], and `psi(n)` is the square of `psi(2 * n)`.
///
/// # Errors
/// [`RingError::Degree`] for any other `n`.
pub const fn psi(n: usize) -> Result<u64, RingError> {
    if n < 2 || n > MAX_DEGREE || !n.is_power_of_two() {
        return Err(RingError::Degree {
            found: n,
            min: 2,
            max: MAX_DEGREE,
        });
    }
    Ok(pow(PSI_131072, (MAX_DEGREE / n) as u64))
}

/// The representative of `x` nearest to zero, in `[-(p - 1)/2, (p - 1)/2]`.
#[inline]
#[must_use]
pub const fn to_centered(x: u64) -> i64 {
    // Above p/2 the representative is x - p, negative and above -2^63, so the wrapped difference is its two's complement.
    if x > P / 2 {
        x.wrapping_sub(P) as i64
    } else {
        x as i64
    }
}

/// `x mod p`, canonical.
#[inline]
#[must_use]
pub const fn from_signed(x: i64) -> u64 {
    if x < 0 {
        P - x.unsigned_abs()
    } else {
        x as u64
    }
}
