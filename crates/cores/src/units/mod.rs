//! Arithmetic modulo the Goldilocks prime: the modules of `hw/lib` that are of use alone.

#[cfg(test)]
mod tests;

use toroid_ring::goldilocks::{P, add, mul, sub};

use crate::error::CoreError;
use crate::interface::{Configured, Core, Cycles, Parameter, TILE_A, TILE_B, Timing, Values};
use crate::ports::Field;
use crate::sources::design;
use crate::vectors::{Pipeline, Vectors};
use toroid_sim::model::Design;
use toroid_sim::random::Random;

const TILES: [Parameter; 2] = [TILE_A, TILE_B];

/// Of a product.
const PRODUCT: [Parameter; 3] = [
    TILE_A,
    TILE_B,
    Parameter {
        name: "KARATSUBA",
        doc: "0, or 6 or 8: the product takes that many DSP tiles and more LUTs, by Karatsuba's method",
        default: 0,
        range: 0..=8,
    },
];

/// Words on which reductions and carries are at their ends.
const EXTREMES: [u64; 12] = [
    0,
    1,
    2,
    (1 << 32) - 2,
    (1 << 32) - 1,
    1 << 32,
    (1 << 32) + 1,
    1 << 63,
    P >> 1,
    P - (1 << 32),
    P - 2,
    P - 1,
];

/// All pairs of extreme words, each with a word of either kind, then random ones.
fn operands(count: usize, seed: u64) -> impl Iterator<Item = (u64, u64, u64, Random)> {
    let mut random = Random::new(seed);
    let pairs = EXTREMES.len() * EXTREMES.len();
    (0..count.max(pairs)).map(move |i| {
        let (a, b) = match i < pairs {
            true => (EXTREMES[i / EXTREMES.len()], EXTREMES[i % EXTREMES.len()]),
            false => (random.below(P), random.below(P)),
        };
        let c = match random.chance(0.5) {
            true => EXTREMES[random.below(EXTREMES.len() as u64) as usize],
            false => random.below(P),
        };
        (a, b, c, random.clone())
    })
}

/// Bits of both operands of a DSP tile.
#[derive(Clone, Copy)]
struct Tiles(u64, u64);

impl Tiles {
    fn of(values: &Values) -> Tiles {
        Tiles(values["TILE_A"], values["TILE_B"])
    }

    /// Cycles of a product.
    fn latency(self, width_a: u64, width_b: u64) -> u64 {
        1 + width_b.div_ceil(self.1) + width_a.div_ceil(self.0)
    }

    fn design(self, top: &str) -> Result<Design, CoreError> {
        Ok(design(top)?.with("TILE_A", self.0).with("TILE_B", self.1))
    }
}

pub static GOLDILOCKS_MUL: Core = Core {
    variants: &[&[("KARATSUBA", 6)], &[("KARATSUBA", 8)]],
    ..Core::new(
        "goldilocks_mul",
        "product modulo 2^64 - 2^32 + 1, one per cycle",
        &PRODUCT,
        |values| Ok(Box::new(Product::new(values)?)),
    )
};

inventory::submit!(&GOLDILOCKS_MUL);

struct Product {
    tiles: Tiles,
    karatsuba: u64,
}

impl Product {
    fn new(values: &Values) -> Result<Product, CoreError> {
        let (tiles, karatsuba) = (Tiles::of(values), values["KARATSUBA"]);
        let fits = matches!(karatsuba, 6 | 8) && matches!(tiles, Tiles(24, 17) | Tiles(18, 18));
        if karatsuba > 0 && !fits {
            return Err(CoreError::Value {
                core: GOLDILOCKS_MUL.name,
                name: "KARATSUBA",
                expected: "0, or 6 or 8 with tiles of 24 x 17 or 18 x 18".to_owned(),
                found: karatsuba,
            });
        }
        Ok(Product { tiles, karatsuba })
    }
}

impl Configured for Product {
    fn design(&self) -> Result<Design, CoreError> {
        let design = self.tiles.design("goldilocks_mul")?;
        Ok(design.with("KARATSUBA", self.karatsuba))
    }

    fn timing(&self) -> Timing {
        let (formula, cycles) = match self.karatsuba {
            0 => (
                "4 + ceil(64 / TILE_A) + ceil(64 / TILE_B)",
                self.tiles.latency(64, 64) + 3,
            ),
            _ => ("9 + floor((33 - TILE_A) / 2)", 9 + (33 - self.tiles.0) / 2),
        };
        Timing::only(Cycles {
            what: "latency",
            formula,
            cycles,
        })
    }

    fn vectors(&self, count: usize, seed: u64) -> Option<Vectors> {
        Some(Vectors::Pipeline(Pipeline {
            inputs: vec![Field::new("a_i", 64), Field::new("b_i", 64)],
            outputs: vec![Field::new("p_o", 64)],
            latency: self.timing().checked.cycles,
            rows: operands(count, seed)
                .map(|(a, b, ..)| (vec![a, b], vec![mul(a, b)]))
                .collect(),
        }))
    }
}

pub static BUTTERFLY_INTEGRATED: Core = Core::new(
    "butterfly_integrated",
    "butterfly of NTT and INTT modulo 2^64 - 2^32 + 1, one per cycle, direction by the cycle",
    &TILES,
    |values| Ok(Box::new(Butterfly(Tiles::of(values)))),
);

inventory::submit!(&BUTTERFLY_INTEGRATED);

struct Butterfly(Tiles);

impl Configured for Butterfly {
    fn design(&self) -> Result<Design, CoreError> {
        self.0.design("butterfly_integrated")
    }

    fn timing(&self) -> Timing {
        Timing::only(Cycles {
            what: "latency",
            formula: "6 + ceil(64 / TILE_A) + ceil(65 / TILE_B)",
            cycles: 1 + self.0.latency(64, 65) + 4,
        })
    }

    fn vectors(&self, count: usize, seed: u64) -> Option<Vectors> {
        let rows = operands(count, seed)
            .map(|(a, b, w, mut random)| {
                let inverse = random.word() & 1;
                let outputs = match inverse {
                    0 => vec![add(a, mul(b, w)), sub(a, mul(b, w))],
                    _ => vec![add(a, b), mul(sub(b, a), w)],
                };
                (vec![inverse, a, b, w], outputs)
            })
            .collect();
        Some(Vectors::Pipeline(Pipeline {
            inputs: vec![
                Field::new("inverse_i", 1),
                Field::new("a_i", 64),
                Field::new("b_i", 64),
                Field::new("w_i", 64),
            ],
            outputs: vec![Field::new("a_o", 64), Field::new("b_o", 64)],
            latency: self.timing().checked.cycles,
            rows,
        }))
    }
}
