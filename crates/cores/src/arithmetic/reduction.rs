//! How products modulo a prime are reduced.

use toroid_ring::prime;

use super::product::{Product, is_short};

/// How products by twiddles are reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reduction {
    /// By q = 2^i - 2^j + 1, j < i - 1, on words of one bit more than q.
    Solinas,
    /// Montgomery's reduction.
    Montgomery,
    /// Barrett's reduction, of one modulus.
    Barrett,
}

impl Reduction {
    /// What a modulus allows at the least cost.
    pub fn least(q: u64) -> Reduction {
        match solinas(q) {
            Some(_) => Reduction::Solinas,
            None => Reduction::Montgomery,
        }
    }

    /// Cycles of a product by a twiddle, for moduli of up to `bits` bits; `word` bits of Montgomery's reduction.
    pub(crate) fn latency(self, bits: u32, word: u32, tiles: (u32, u32)) -> u64 {
        let products = self.products(bits, word, 0);
        let all: u64 = products.iter().map(|product| product.latency(tiles)).sum();
        match self {
            Reduction::Solinas => all + 1,
            Reduction::Montgomery => all + products.len() as u64,
            Reduction::Barrett => all + 2,
        }
    }

    /// The products of integers in such a product, in their order.
    pub(crate) fn products(self, bits: u32, word: u32, narrow: u32) -> Vec<Product> {
        let is_short = is_short(bits);
        let of = |bits: (u32, u32)| Product {
            bits,
            is_short,
            narrow: 0,
        };
        match self {
            Reduction::Solinas => vec![Product {
                bits: (bits - 1, bits + 1),
                is_short,
                narrow: if is_short { narrow } else { 0 },
            }],
            Reduction::Montgomery => {
                let steps = (0..bits.div_ceil(word)).map(|_| of((bits - word, word)));
                std::iter::once(of((bits, bits))).chain(steps).collect()
            }
            Reduction::Barrett => {
                let wide = of((bits + 1, bits + 1));
                vec![of((bits, bits)), wide, wide]
            }
        }
    }

    /// A twiddle as the multiplier takes it.
    pub(crate) fn encoded(self, twiddle: u64, q: u64, bits: u32, word: u32) -> u64 {
        match (self, solinas(q)) {
            (Reduction::Solinas, Some((i, j))) => {
                let scaled = ((u128::from(twiddle) << j) % u128::from(q)) as u64;
                match scaled > q / 2 {
                    true => (1 << (i - 1)) | (q - scaled),
                    false => scaled,
                }
            }
            (Reduction::Montgomery, _) => {
                let radix = prime::pow(2, (word * bits.div_ceil(word)).into(), q);
                prime::mul(twiddle, radix, q)
            }
            _ => twiddle,
        }
    }
}

/// i and j of q = 2^i - 2^j + 1 with 0 < j < i - 1.
pub(crate) fn solinas(q: u64) -> Option<(u32, u32)> {
    let (i, j) = (u64::BITS - q.leading_zeros(), (q - 1).trailing_zeros());
    let is_form = i >= 4 && j + 1 < i && u128::from(q) == (1u128 << i) - (1u128 << j) + 1;
    is_form.then_some((i, j))
}

/// Bits of a word of Montgomery's reduction that all moduli and the tiles allow.
pub(crate) fn montgomery_word(moduli: &[u64], tiles: (u32, u32)) -> u32 {
    let zeros = moduli.iter().map(|q| (q - 1).trailing_zeros());
    zeros.min().unwrap_or(1).min(tiles.1)
}

/// `toroid_pkg::solinas_folds`: the steps that reduce a product modulo q = 2^i - 2^j + 1; 0 for other q.
pub fn folds(q: u64) -> u64 {
    let Some((i, j)) = solinas(q) else { return 0 };
    let mut bound = u128::from(q - 1) * u128::from(q - 1);
    let mut count = 0;
    while bound >> i > 1 {
        bound = ((1 << i) - 1) + (bound >> i) * ((1 << j) - 1);
        count += 1;
    }
    count
}
