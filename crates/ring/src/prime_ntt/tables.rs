//! Twiddles in the order of their use, and the passes that use them.

use super::word::Word;
use crate::fft::AlignedVec;
use crate::prime;

/// A modulus with what the kernels derive from it.
#[derive(Clone, Copy, Debug)]
pub struct Modulus<W> {
    pub(super) q: W,
    /// 1/q modulo R, R = 2^B for words of B bits.
    pub(super) inverse: W,
    /// R mod q, as a twiddle.
    pub(super) r: [W; 2],
}

impl<W: Word> Modulus<W> {
    /// Of an odd `q` that fits into a word.
    pub(super) fn new(q: u64) -> Self {
        // Newton's iteration doubles the low bits that are right, 3 at first.
        let inverse = (0..5).fold(q, |x, _| {
            x.wrapping_mul(2u64.wrapping_sub(q.wrapping_mul(x)))
        });
        Modulus {
            q: W::truncate(q.into()),
            inverse: W::truncate(inverse.into()),
            r: shoup(((1u128 << W::BITS) % u128::from(q)) as u64, q),
        }
    }
}

/// A twiddle `w` below q with the companion `floor(w·2^B/q)`, after Shoup.
pub(super) fn shoup<W: Word>(w: u64, q: u64) -> [W; 2] {
    [
        W::truncate(w.into()),
        W::truncate((u128::from(w) << W::BITS) / u128::from(q)),
    ]
}

/// A pass over all nodes of one depth of the tree.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// Into how many nodes each node is divided: 8, 4 or 2.
    pub(super) radix: usize,
    /// Elements of a node.
    pub(super) size: usize,
    /// Where the twiddles of the first node start; each node has radix - 1 pairs of words.
    pub(super) twiddles: usize,
    /// Whether the forward pass settles the elements that it multiplies by nothing.
    pub(super) settle: bool,
}

/// The passes and twiddles of one direction for one number of lanes.
#[derive(Clone, Debug)]
pub struct Tables<W> {
    pub(super) degree: usize,
    pub(super) passes: Vec<Pass>,
    /// Where the twiddles of the first three nodes are, three pairs of words.
    pub(super) roots: usize,
    /// Where the twiddles of the leaves start, and how many words each leaf has.
    pub(super) leaves: usize,
    pub(super) leaf_words: usize,
    /// As [`Pass::settle`], for the first and the last step of the leaves.
    pub(super) settle_leaves: [bool; 2],
    storage: AlignedVec,
    words: std::marker::PhantomData<W>,
}

/// What the tables need to know of the vectors and the arithmetic.
pub struct Layout<W> {
    pub(super) lanes: usize,
    pub(super) block_of_lane: fn(usize) -> usize,
    pub(super) forms: Forms<W>,
}

/// The forms in which an arithmetic wants numbers below q, given the number and q.
pub struct Forms<W> {
    /// A twiddle of the transforms.
    pub(super) twiddle: fn(u64, u64) -> [W; 2],
    /// Where the last step of a leaf makes do with three twiddles for each block of eight elements, the first ones of its levels: the only word of
    /// such a twiddle.
    pub(super) compact: Option<fn(u64, u64) -> W>,
    /// A factor of words.
    pub(super) factor: fn(u64, u64) -> [W; 2],
    /// How elements grow in the forward transform.
    pub(super) growth: Growth,
}

impl<W> Forms<W> {
    /// One form for all numbers.
    pub(super) fn uniform(form: fn(u64, u64) -> [W; 2], growth: Growth) -> Self {
        Forms {
            twiddle: form,
            compact: None,
            factor: form,
            growth,
        }
    }
}

impl<W: Word> Tables<W> {
    /// Tables for a degree from `16·lanes`; `roots` are the powers of psi (or of its inverse) in bit-reversed order.
    pub(super) fn new(roots: &[u64], q: u64, layout: &Layout<W>) -> Self {
        let degree = roots.len();
        let lanes = layout.lanes;
        // Levels of the first step of a leaf, across vectors, and of its last, which starts with blocks of 8 or 16.
        let across = if lanes == 4 { 2 } else { 3 };
        let last = if lanes > 8 { 4 } else { 3 };
        let mut words: Vec<W> = Vec::new();
        let mut passes = Vec::new();
        let mut nodes = 1;
        let node_twiddles = |nodes: usize, node: usize, radix: usize| -> Vec<W> {
            let index = |twiddle: usize| {
                // Level l of the node has the twiddles 2^l … 2^(l+1) - 1.
                let level = twiddle.ilog2();
                (nodes << level) + (node << level) + (twiddle - (1 << level))
            };
            let twiddles = (1..radix).map(index);
            twiddles
                .flat_map(|at| (layout.forms.twiddle)(roots[at], q))
                .collect()
        };
        let mut growth = layout.forms.growth;
        for radix in radices(degree.trailing_zeros() - across - last) {
            passes.push(Pass {
                radix,
                size: degree / nodes,
                twiddles: words.len(),
                settle: growth.pass(radix.trailing_zeros()),
            });
            for node in 0..nodes {
                words.extend(node_twiddles(nodes, node, radix));
            }
            nodes *= radix;
        }
        let settle_leaves = [growth.pass(across), growth.pass(last)];

        let first_three = words.len();
        words.extend((1..4).flat_map(|root| (layout.forms.twiddle)(roots[root], q)));
        let leaves = words.len().next_multiple_of(64 / size_of::<W>());
        let per_lane = |words: &mut Vec<W>, index: &dyn Fn(usize) -> usize| {
            let twiddles: Vec<[W; 2]> = (0..lanes)
                .map(|lane| (layout.forms.twiddle)(roots[index(lane)], q))
                .collect();
            words.extend(twiddles.iter().map(|w| w[0]));
            words.extend(twiddles.iter().map(|w| w[1]));
        };
        words.resize(leaves, W::zeroed());
        for leaf in 0..nodes {
            words.extend(node_twiddles(nodes, leaf, 1 << across));
            words.resize(words.len() + 2, W::zeroed());
            if lanes > 8 {
                // Blocks of 16: lanes of the first vector of a pair, then lanes of the second.
                for pair in 0..4 {
                    let block = |lane| degree / 16 + 8 * leaf + 2 * pair + lane / 8;
                    per_lane(&mut words, &block);
                }
            }
            for twiddle in 1..8usize {
                let level = twiddle.ilog2();
                let index = |lane| {
                    let block = lanes * leaf + (layout.block_of_lane)(lane);
                    ((degree / 8) << level) + (block << level) + (twiddle - (1 << level))
                };
                match layout.forms.compact {
                    None => per_lane(&mut words, &index),
                    Some(word) if twiddle.is_power_of_two() => {
                        words.extend((0..lanes).map(|lane| word(roots[index(lane)], q)));
                    }
                    Some(_) => {}
                }
            }
        }
        let leaf_words = (words.len() - leaves) / nodes;

        let mut storage = AlignedVec::zeroed(size_of_val(words.as_slice()).div_ceil(8));
        bytemuck::cast_slice_mut::<f64, W>(&mut storage)[..words.len()].copy_from_slice(&words);
        Tables {
            degree,
            passes,
            roots: first_three,
            leaves,
            leaf_words,
            settle_leaves,
            storage,
            words: std::marker::PhantomData,
        }
    }

    #[inline(always)]
    pub(super) fn words(&self) -> &[W] {
        bytemuck::cast_slice(&self.storage)
    }
}

/// How large the elements of the forward transform become, in units of q.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// What elements are within: at first, as they enter.
    pub(super) bound: f64,
    /// The largest element that may be multiplied; infinite where butterflies keep to their range.
    pub(super) limit: f64,
    /// What settled elements are within.
    pub(super) settled: f64,
    /// The bound of a product: that of a small element, and how much more that of an element at the limit has.
    pub(super) product: [f64; 2],
}

impl Growth {
    /// Butterflies keep elements in their range.
    pub(super) const NONE: Growth = Growth {
        bound: 1.0,
        limit: f64::INFINITY,
        settled: 1.0,
        product: [0.0; 2],
    };

    fn product(&self, bound: f64) -> f64 {
        self.product[0] + self.product[1] * bound / self.limit
    }

    /// Takes `levels` further levels; whether they have to start with settled elements.
    fn pass(&mut self, levels: u32) -> bool {
        let grow = |from: f64, levels| (0..levels).fold(from, |b, _| b + self.product(b));
        let free = grow(self.bound, levels);
        let settle = free > self.limit;
        self.bound = if settle {
            grow(self.settled + self.product(self.bound), levels - 1)
        } else {
            free
        };
        settle
    }
}

/// The radices of the passes over `levels` levels, at least 1. Smaller radices come first: with radix 8 the first pass
/// of a large transform would read 8 lines that share a set of the first level of cache.
fn radices(levels: u32) -> Vec<usize> {
    let (first, eights): (&[usize], u32) = match (levels, levels % 3) {
        (1, _) => (&[2], 0),
        (_, 0) => (&[], levels / 3),
        (_, 1) => (&[4, 4], levels / 3 - 1),
        _ => (&[4], levels / 3),
    };
    [first, &vec![8; eights as usize]].concat()
}

/// `root^rev(i) mod q` for `i` below `n`, where `rev` reverses the log2(n) bits of `i`.
pub(super) fn powers_bit_reversed(root: u64, n: usize, q: u64) -> Vec<u64> {
    let shift = usize::BITS - n.trailing_zeros();
    let mut powers = vec![0; n];
    let mut power = 1;
    for i in 0..n {
        powers[i.reverse_bits() >> shift] = power;
        power = prime::mul(power, root, q);
    }
    powers
}
