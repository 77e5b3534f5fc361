//! Columns at other moduli: the rounding, what noise it adds, and how many bits a column at rest needs.
//!
//! A word x modulo q stands for x/q of the torus, and the word modulo t that stands nearest is round(x·t/q). Roundings are
//! at most 1/2; of uniform words they are uniform, with variance 1/12. That of b adds itself to a phase b - a·s, that of a adds
//! up over the secret: (1 + |s|²)/12 in units of t, where |s|² = 2N/3 is expected of a uniform ternary secret
//! ([`noise::rounding`]). A body whose mask is a seed is rounded alone: 1/12.
//!
//! All variances here are over the torus, in turns squared.

use toroid_tfhe::noise::log2_tail;

use crate::noise;
use crate::params::RnsParams;
use crate::search::INPUT_NORM;

/// The widest words of a column at rest, in bits.
pub const MAX_WIDTH: u32 = 48;

/// The squared norm of integer weights for which a *computed* column at rest keeps its messages readable: a sum of four columns.
pub const COMPUTED_NORM: f64 = 4.0;

/// log2 of the probability that rounding for the norms above makes a number of a batch unreadable.
pub const LOG2_FAILURE: f64 = -128.0;

/// From words modulo q to those modulo t.
#[derive(Clone, Copy, Debug)]
pub struct ModulusSwitch {
    from: u64,
    to: u64,
    /// floor(t/q), and the 64 bits behind the point.
    ratio: u64,
    fraction: u64,
}

impl ModulusSwitch {
    /// From modulus `from` to modulus `to`.
    ///
    /// # Panics
    /// If `from` is 0.
    #[must_use]
    pub fn new(from: u64, to: u64) -> ModulusSwitch {
        let rest = u128::from(to % from) << 64;
        ModulusSwitch {
            from,
            to,
            ratio: to / from,
            fraction: (rest / u128::from(from)) as u64,
        }
    }

    /// round(x·to/from) modulo `to`, halves up, for x below `from`.
    #[must_use]
    pub fn apply(&self, x: u64) -> u64 {
        let (from, product) = (u128::from(self.from), u128::from(x) * u128::from(self.to));
        // The quotient, or one less.
        let low = (u128::from(x) * u128::from(self.fraction)) >> 64;
        let quotient = u128::from(x) * u128::from(self.ratio) + low;
        let rest = product - quotient * from;
        let quotient = quotient + u128::from(rest >= from);
        let rest = if rest >= from { rest - from } else { rest };
        let nearest = quotient + u128::from(2 * rest >= from);
        if nearest >= u128::from(self.to) {
            0
        } else {
            nearest as u64
        }
    }

    /// [`ModulusSwitch::apply`] on every word.
    pub fn apply_all(&self, words: &mut [u64]) {
        for word in words {
            *word = self.apply(*word);
        }
    }
}

/// The variance of rounding bodies to `width` bits.
#[must_use]
pub fn body_variance(width: u32) -> f64 {
    (-2.0 * f64::from(width)).exp2() / 12.0
}

/// The variance of rounding masks and bodies to `width` bits.
#[must_use]
pub fn pair_variance(params: &RnsParams, width: u32) -> f64 {
    noise::rounding(params.secret_norm()) * (-2.0 * f64::from(width)).exp2()
}

/// log2 of the probability that a number of N cannot be read, for messages of `bits` bits, m at m/2^bits, with noise of this variance.
/// A uniform rounding error has no heavier tail than a Gaussian of its variance.
#[must_use]
pub fn log2_failure(params: &RnsParams, bits: u32, variance: f64) -> f64 {
    let rows = (params.degree as f64).log2();
    (log2_tail((-f64::from(bits) - 1.0).exp2(), variance) + rows).min(0.0)
}

/// The fewest bits for which rounding alone, with weights of squared norm `norm`, keeps [`log2_failure`] at [`LOG2_FAILURE`] or
/// below; at most those of q_0, and [`MAX_WIDTH`].
fn fewest_bits(params: &RnsParams, bits: u32, norm: f64, variance: impl Fn(u32) -> f64) -> u32 {
    let most = params.chain[0].ilog2().min(MAX_WIDTH);
    let fits = |width: &u32| log2_failure(params, bits, norm * variance(*width)) <= LOG2_FAILURE;
    // From above, where tails are far out and their series is short.
    let fitting = (bits + 1..=most).rev().take_while(fits);
    fitting.last().unwrap_or(most)
}

/// Bits of a body of a fresh column, m at m/2^bits: 22 for 16 bits, 14 for 8 at N = 65536.
#[must_use]
pub fn seeded_width(params: &RnsParams, bits: u32) -> u32 {
    fewest_bits(params, bits, INPUT_NORM, body_variance)
}

/// Bits of a word of a computed column, m at m/2^bits: 28 for 16 bits, 20 for 8 at N = 65536.
#[must_use]
pub fn computed_width(params: &RnsParams, bits: u32) -> u32 {
    fewest_bits(params, bits, COMPUTED_NORM, |width| {
        pair_variance(params, width)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_go_to_the_nearest(from in 1u64.., to in 1u64.., x: u64) {
            let x = x % from;
            // x·to and from/2 may pass 2^128 together, one of them alone does not.
            let (whole, half) = (u128::from(x) * u128::from(to), u128::from(from));
            let floor = whole / half;
            let nearest = floor + u128::from(2 * (whole % half) >= half);
            let expected = (nearest % u128::from(to)) as u64;
            prop_assert_eq!(ModulusSwitch::new(from, to).apply(x), expected);
        }
    }

    #[test]
    fn widths_are_those_of_the_format() {
        let params = RnsParams::uniform(1 << 16, 1, 1).unwrap();
        let widths = [4, 8, 12, 16].map(|b| (seeded_width(&params, b), computed_width(&params, b)));
        assert_eq!(widths, [(10, 16), (14, 20), (18, 24), (22, 28)]);
    }
}
