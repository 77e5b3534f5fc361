//! Automorphisms X -> X^g of the ring, on coefficients and on values.
//!
//! Values stand in bit-reversed order: position i has f(psi^e) with e = 2·rev(i) + 1, so that the position of X -> X^g has
//! f(psi^(e·g)). The three low bits of a position are the three high ones of rev(i): eight neighbours differ in e by multiples of
//! N/4, which g turns into multiples of N/4 again. So the automorphism moves blocks of eight words, a cache line each, and
//! permutes words within them in one of eight ways.

use std::sync::Arc;

use crate::context::Context;

/// Words of a block.
const BLOCK: usize = 8;

/// An automorphism X -> X^g with its table of blocks.
#[derive(Clone, Debug)]
pub struct Automorphism {
    degree: usize,
    exponent: usize,
    /// For each block of the result the block that it comes from, times 8, plus the way in which words are permuted.
    blocks: Vec<u32>,
    /// Where in its block each word of a block comes from, for each of the eight ways.
    ways: [[u8; BLOCK]; BLOCK],
}

/// The Galois element 5^`steps` modulo 2N: slots, numbered by powers of 5, rotate by `steps` to the left.
#[must_use]
pub fn rotation_exponent(degree: usize, steps: i64) -> usize {
    let order = degree as i64 / 2;
    let steps = steps.rem_euclid(order) as u64;
    toroid_ring::prime::pow(5, steps, 2 * degree as u64) as usize
}

/// The Galois element of complex conjugation, 2N - 1.
#[must_use]
pub fn conjugation_exponent(degree: usize) -> usize {
    2 * degree - 1
}

/// The low `bits` bits of `x` in reverse.
fn reverse(x: usize, bits: u32) -> usize {
    if bits == 0 {
        0
    } else {
        x.reverse_bits() >> (usize::BITS - bits)
    }
}

impl Automorphism {
    /// X -> X^`exponent`, which counts modulo 2N.
    ///
    /// # Panics
    /// If the exponent is even: that is no automorphism.
    #[must_use]
    pub fn new(context: &Arc<Context>, exponent: usize) -> Automorphism {
        let degree = context.degree();
        let exponent = exponent % (2 * degree);
        assert!(exponent % 2 == 1, "X -> X^{exponent} is no automorphism");
        let (quarter, bits) = (degree / 4, degree.ilog2() - 3);
        let blocks = (0..degree / BLOCK)
            .map(|block| {
                // The exponent of the first word of the block, in the two parts that move blocks and words.
                let e = (2 * reverse(block, bits) + 1) * exponent % (2 * degree);
                let from = reverse((e % quarter - 1) / 2, bits);
                (from * BLOCK + e / quarter) as u32
            })
            .collect();
        let mut ways = [[0; BLOCK]; BLOCK];
        for (way, words) in ways.iter_mut().enumerate() {
            for (word, from) in words.iter_mut().enumerate() {
                let turned = (reverse(word, 3) * exponent + way) % BLOCK;
                *from = reverse(turned, 3) as u8;
            }
        }
        Automorphism {
            degree,
            exponent,
            blocks,
            ways,
        }
    }

    /// The rotation of slots by `steps` to the left.
    #[must_use]
    pub fn rotation(context: &Arc<Context>, steps: i64) -> Automorphism {
        Self::new(context, rotation_exponent(context.degree(), steps))
    }

    /// Complex conjugation of slots.
    #[must_use]
    pub fn conjugation(context: &Arc<Context>) -> Automorphism {
        Self::new(context, conjugation_exponent(context.degree()))
    }

    /// g, below 2N.
    #[must_use]
    pub fn exponent(&self) -> usize {
        self.exponent
    }

    /// N.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// The automorphism that takes this one back.
    #[must_use]
    pub fn inverse_exponent(&self) -> usize {
        let modulus = 2 * self.degree as u64;
        // The group of odd residues has order N, and exponent N/2.
        toroid_ring::prime::pow(self.exponent as u64, self.degree as u64 / 2 - 1, modulus) as usize
    }

    /// Values of one limb, from bit-reversed order to bit-reversed order.
    pub(crate) fn values(&self, from: &[u64], to: &mut [u64]) {
        let (from, _) = from.as_chunks::<BLOCK>();
        let (to, _) = to.as_chunks_mut::<BLOCK>();
        for (to, entry) in to.iter_mut().zip(&self.blocks) {
            let block = &from[*entry as usize / BLOCK];
            let way = &self.ways[*entry as usize % BLOCK];
            for (word, place) in to.iter_mut().zip(way) {
                *word = block[usize::from(place % BLOCK as u8)];
            }
        }
    }

    /// Coefficients of one limb modulo `q`.
    pub(crate) fn coefficients(&self, q: u64, from: &[u64], to: &mut [u64]) {
        let mut at = 0;
        for &word in from {
            let negated = if word == 0 { 0 } else { q - word };
            to[at % self.degree] = if at < self.degree { word } else { negated };
            at = (at + self.exponent) % (2 * self.degree);
        }
    }
}
