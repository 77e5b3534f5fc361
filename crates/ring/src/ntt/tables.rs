//! The twiddles of the SIMD kernel.

use super::limbs::{BIAS, WIDE_ZERO};
use crate::goldilocks::{add, mul};

/// The smallest degree of the SIMD kernel: one group of the last pass on eight lanes.
pub const MIN_DEGREE: usize = 64;

/// One pass but the last.
#[derive(Clone, Debug)]
pub struct Pass {
    /// 8 or 4.
    pub radix: usize,
    /// How many blocks the pass works on, each N / `blocks` elements long.
    pub blocks: usize,
    /// For each block and each slot from 1 to `radix - 1`: the limbs of the twiddle `w`, then those of 2^32·w, each
    /// sign-extended to a word.
    pub twiddles: Vec<u64>,
}

/// Eight words that fill a line of the cache, so that no load of a vector touches two.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Line([u64; 8]);

/// The passes of one direction, in the order of the forward transform.
#[derive(Clone, Debug)]
pub struct Tables {
    pub passes: Vec<Pass>,
    /// The twiddles of the pass on blocks of eight consecutive elements. For each group of `lanes` blocks and each slot
    /// from 1 to 7: a vector of the limbs of `w`, two in a word, then a vector of those of 2^32·w.
    pub last: Vec<Line>,
}

impl Tables {
    /// From the portable kernel's powers of psi (or 1/psi), N of them, in bit-reversed order.
    pub fn new(powers: &[u64], lanes: usize) -> Self {
        let n = powers.len();
        let mut passes = Vec::new();
        let mut blocks = 1;
        while blocks < n / 8 {
            let radix = if (n / blocks).trailing_zeros().is_multiple_of(3) {
                8
            } else {
                4
            };
            let twiddles = (0..blocks)
                .flat_map(|block| {
                    (1..radix).map(move |slot| twiddle(powers, radix, blocks, block, slot))
                })
                .flat_map(|limbs| limbs.map(|limb| limb as u64))
                .collect();
            passes.push(Pass {
                radix,
                blocks,
                twiddles,
            });
            blocks *= radix;
        }
        let mut last = Vec::with_capacity(n / 8 * 14);
        for group in 0..n / 8 / lanes {
            for slot in 1..8 {
                let limbs =
                    (0..lanes).map(|lane| twiddle(powers, 8, n / 8, group * lanes + lane, slot));
                last.extend(limbs.clone().map(|w| pack(w[0], w[1])));
                last.extend(limbs.map(|w| pack(w[2], w[3])));
            }
        }
        let last = last
            .as_chunks()
            .0
            .iter()
            .map(|&words| Line(words))
            .collect();
        Self { passes, last }
    }
}

/// The limbs of `w` and of 2^32·w, where `w` is `v^slot` and `v^radix` is the block's root.
fn twiddle(powers: &[u64], radix: usize, blocks: usize, block: usize, slot: usize) -> [i64; 4] {
    let v = powers[radix / 2 * (blocks + block)];
    let w = (1..slot).fold(v, |power, _| mul(power, v));
    let ([w0, w1], [w2, w3]) = (signed_limbs(w), signed_limbs(mul(w, 1 << 32)));
    debug_assert!(fits([w0, w1, w2, w3]));
    [w0, w1, w2, w3]
}

/// Whether the kernel's products by this twiddle stay within 64 bits: the two limbs as `i64`, also after adding
/// [`WIDE_ZERO`], and the high one, with the carry of the low one and `WIDE_ZERO`, as `u64`. Every power of psi fits.
fn fits([w0, w1, w2, w3]: [i64; 4]) -> bool {
    // The extremes of x·w + y·v for x and y in [-2^31, 2^31).
    let least = |w: i64| i128::from(w) * if w > 0 { -(1 << 31) } else { (1 << 31) - 1 };
    let most = |w: i64| -i128::from(w) * if w > 0 { 1 - (1 << 31) } else { 1 << 31 };
    let (lo, hi) = (
        (least(w0) + least(w2), most(w0) + most(w2)),
        (least(w1) + least(w3), most(w1) + most(w3)),
    );
    let [zero_lo, zero_hi] = WIDE_ZERO.map(i128::from);
    let word = |x: i128| i64::try_from(x).is_ok();
    word(lo.0)
        && word(lo.1 + zero_lo)
        && word(hi.0)
        && word(hi.1)
        && hi.0 + (lo.0 >> 32) + zero_hi >= 0
        && u64::try_from(hi.1 + ((lo.1 + zero_lo) >> 32) + zero_hi).is_ok()
}

/// Limbs `[lo, hi]` in `[-2^31, 2^31)` with `w = lo + 2^32·hi mod p`.
fn signed_limbs(w: u64) -> [i64; 2] {
    let limbs = add(w, BIAS) ^ BIAS;
    [i64::from(limbs as i32), limbs as i64 >> 32]
}

fn pack(lo: i64, hi: i64) -> u64 {
    u64::from(lo as u32) | (hi as u64) << 32
}
