//! The order of the passes of the SIMD kernel, and their twiddles.

use super::limbs::BIAS;
use crate::goldilocks::{add, mul};

/// The smallest degree of the SIMD kernel: one group of the last pass on eight lanes.
pub const MIN_DEGREE: usize = 64;

/// One pass but the last.
#[derive(Clone, Debug)]
pub struct Pass {
    /// 8, or 4 or 2 in the first pass.
    pub radix: usize,
    /// How many blocks the pass works on, each N / `blocks` elements long.
    pub blocks: usize,
    /// What the elements are multiplied by before the DFTs of the pass. In the inverse transform these are the twiddles
    /// of the pass that comes next in the forward one.
    pub twiddles: Twiddles,
}

/// The twiddles of a pass.
#[derive(Clone, Debug)]
pub enum Twiddles {
    /// Powers of two, which the kernel knows ([`exponent`]).
    Shifts,
    /// The same for all elements of a column range of a block. For each block, range and slot: the limbs of the twiddle
    /// `w`, then those of 2^32·w, each sign-extended to a word.
    Ranges {
        /// Into how many ranges the columns of a block are cut.
        ranges: usize,
        /// The limbs. A forward pass of one range has none for slot 0, whose twiddle is 1.
        limbs: Vec<u64>,
    },
    /// One for each element, in vectors as in [`Tables::last`], eight slots for each block of 64 consecutive elements.
    Elements {
        /// Whether the twiddles of the next pass of the inverse transform are `Shifts`.
        to_shifts: bool,
        /// The vectors.
        lines: Vec<Line>,
    },
}

/// Eight words that fill a line of the cache, so that no load of a vector touches two.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Line([u64; 8]);

/// The passes of one direction, in the order of the forward transform.
#[derive(Clone, Debug)]
pub struct Tables {
    pub passes: Vec<Pass>,
    /// The twiddles of the pass on blocks of eight consecutive elements, which only the forward transform has. For each
    /// group of `lanes` blocks and each slot from 1 to 7: a vector of the limbs of `w`, two in a word, then a vector of
    /// those of 2^32·w. A spare line follows, since the kernel also loads vectors from half a word further on.
    pub last: Vec<Line>,
}

/// What the twiddles of a forward pass are.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Powers of two.
    Shifts,
    /// Powers of a root `v` of each block, `v^radix` being the block's own root.
    Full,
    /// Likewise, but with `v^64` the block's root: this pass and the next are a DFT of 64 elements between whose halves
    /// the twiddles are powers of two.
    Fused,
}

/// Radix, blocks and kind of each pass but the last, for the degree `n`.
fn schedule(n: usize) -> Vec<(usize, usize, Kind)> {
    let levels = n.trailing_zeros();
    let first = match levels % 3 {
        0 => 8,
        1 => 2,
        _ => 4,
    };
    let mut passes = vec![(first, 1, Kind::Shifts)];
    let mut blocks = first;
    // The block's roots after a first pass of radix 8 have no powers of two as eighth roots.
    let mut shifts = first < 8;
    while blocks < n / 8 {
        let kind = if shifts {
            Kind::Shifts
        } else if blocks < n / 64 {
            Kind::Fused
        } else {
            Kind::Full
        };
        passes.push((8, blocks, kind));
        shifts = !shifts;
        blocks *= 8;
    }
    passes
}

/// A pass whose twiddles are shifts multiplies slot `q` of a block by `2^(3·k·q)`: this is `k`, for a block of a pass on
/// so many blocks. 2^3 is the primitive 64th root of unity to which [`psi`](crate::goldilocks::psi) belongs.
#[inline(always)]
pub const fn exponent(blocks: usize, block: usize) -> usize {
    let bits = (blocks + block) % 8;
    (bits & 1) << 2 | (bits & 2) | bits >> 2
}

impl Tables {
    /// Of the forward transform, from the portable kernel's powers of psi in bit-reversed order.
    pub fn forward(powers: &[u64], lanes: usize) -> Self {
        let n = powers.len();
        let passes = schedule(n)
            .into_iter()
            .map(|(radix, blocks, kind)| {
                let limbs = |slots: usize, ranges: usize| Twiddles::Ranges {
                    ranges,
                    limbs: (0..blocks)
                        .flat_map(|block| {
                            let w = twiddles(powers, 8 * ranges, blocks, block);
                            (0..ranges).flat_map(move |range| {
                                let w = w.clone();
                                (8 - slots..8).map(move |slot| w[slot * ranges + range])
                            })
                        })
                        .flat_map(limbs)
                        .collect(),
                };
                let twiddles = match kind {
                    Kind::Shifts => Twiddles::Shifts,
                    Kind::Full => limbs(7, 1),
                    Kind::Fused => limbs(8, 8),
                };
                Pass {
                    radix,
                    blocks,
                    twiddles,
                }
            })
            .collect();
        let mut last = Vec::with_capacity(n / 8 * 14 + 8);
        for group in 0..n / 8 / lanes {
            let w: Vec<_> = (0..lanes)
                .map(|lane| twiddles(powers, 8, n / 8, group * lanes + lane))
                .collect();
            for slot in 1..8 {
                pack(&mut last, w.iter().map(|w| w[slot]));
            }
        }
        Self {
            passes,
            last: lines(last),
        }
    }

    /// Of the inverse transform, from the portable kernel's powers of 1/psi in bit-reversed order.
    pub fn inverse(powers: &[u64], lanes: usize) -> Self {
        let n = powers.len();
        let schedule = schedule(n);
        let next = schedule.iter().skip(1).map(|&(_, _, kind)| Some(kind));
        let passes = schedule
            .iter()
            .zip(next.chain([None]))
            .map(|(&(radix, blocks, kind), next)| {
                let children = |radix, block| -> Vec<_> {
                    (0..8)
                        .map(|slot| twiddles(powers, radix, 8 * blocks, 8 * block + slot))
                        .collect()
                };
                let ranges = |ranges| Twiddles::Ranges {
                    ranges,
                    limbs: (0..blocks)
                        .flat_map(|block| {
                            let w = children(ranges, block);
                            (0..ranges).flat_map(move |range| {
                                let w = w.clone();
                                (0..8).map(move |slot| w[slot][range])
                            })
                        })
                        .flat_map(limbs)
                        .collect(),
                };
                let twiddles = match next {
                    Some(Kind::Shifts) => Twiddles::Shifts,
                    Some(Kind::Full) => ranges(8),
                    Some(Kind::Fused) => ranges(64),
                    None => {
                        let mut words = Vec::with_capacity(2 * n + 8);
                        for block in 0..blocks {
                            let w = children(8, block);
                            for column in (0..8).step_by(lanes) {
                                for w in &w {
                                    pack(&mut words, w[column..column + lanes].iter().copied());
                                }
                            }
                        }
                        Twiddles::Elements {
                            to_shifts: kind == Kind::Shifts,
                            lines: lines(words),
                        }
                    }
                };
                Pass {
                    radix,
                    blocks,
                    twiddles,
                }
            })
            .collect();
        Self {
            passes,
            last: Vec::new(),
        }
    }
}

/// The powers of `v` from 0 to `radix - 1`, where `v^radix` is the block's root.
fn twiddles(powers: &[u64], radix: usize, blocks: usize, block: usize) -> Vec<u64> {
    let v = powers[radix / 2 * (blocks + block)];
    std::iter::successors(Some(1), |&w| Some(mul(w, v)))
        .take(radix)
        .collect()
}

/// The limbs of `w` and of 2^32·w, each sign-extended to a word.
fn limbs(w: u64) -> [u64; 4] {
    let ([w0, w1], [w2, w3]) = (signed_limbs(w), signed_limbs(mul(w, 1 << 32)));
    debug_assert!(fits(w0, w2) && fits(w1, w3));
    [w0, w1, w2, w3].map(|limb| limb as u64)
}

/// Whether x·w + y·v is within 64 bits for all x and y in [-2^31, 2^31). True for every power of psi.
fn fits(w: i64, v: i64) -> bool {
    // The extremes of x·w.
    let least = |w: i64| i128::from(w) * if w > 0 { -(1 << 31) } else { (1 << 31) - 1 };
    let most = |w: i64| -i128::from(w) * if w > 0 { 1 - (1 << 31) } else { 1 << 31 };
    i64::try_from(least(w) + least(v)).is_ok() && i64::try_from(most(w) + most(v)).is_ok()
}

/// Limbs `[lo, hi]` in `[-2^31, 2^31)` with `w = lo + 2^32·hi mod p`.
fn signed_limbs(w: u64) -> [i64; 2] {
    let limbs = add(w, BIAS) ^ BIAS;
    [i64::from(limbs as i32), limbs as i64 >> 32]
}

/// Appends a vector of the limbs of some `w`, two in a word, and one of those of 2^32·w.
fn pack(words: &mut Vec<u64>, w: impl Iterator<Item = u64> + Clone) {
    let pair = |lo: u64, hi: u64| lo & 0xffff_ffff | hi << 32;
    words.extend(w.clone().map(limbs).map(|w| pair(w[0], w[1])));
    words.extend(w.map(limbs).map(|w| pair(w[2], w[3])));
}

/// The words as lines, and a line more.
fn lines(mut words: Vec<u64>) -> Vec<Line> {
    words.extend([0; 8]);
    let (lines, _) = words.as_chunks();
    lines.iter().map(|&words| Line(words)).collect()
}
