//! What parts that cores share take of a device.

use crate::arithmetic::Product;
use crate::order::Order;
use crate::order::network::Network;
use crate::technology::Technology;

/// Rests of this many bits beside the tiles of a product may be multiplied in look-up tables.
pub(crate) const NARROW: u64 = 3;

/// q = 2^28 - 2^16 + 1, that of the paper.
pub(crate) const PAPER: u64 = 268_369_921;

/// The parts of a core, each with its count, by the resource whose amount they explain. Every setting of a family lists the
/// same parts in the same order.
#[derive(Clone, Debug, Default)]
pub struct Features {
    /// Of look-up tables, memories and shift registers among them.
    pub lut: Vec<(&'static str, f64)>,
    /// Of flip-flops.
    pub ff: Vec<(&'static str, f64)>,
    /// Of block memories.
    pub bram36: Vec<(&'static str, f64)>,
}

/// What is known of a setting without synthesis.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Cycles from the first beat in to the last beat out, both counted, without stalls.
    pub latency: u64,
    /// Cycles from the first beat of a transform to the first of the next, without stalls.
    pub interval: u64,
    /// Transforms side by side.
    pub transforms: u64,
    /// Butterflies.
    pub butterflies: u64,
    /// Words that enter in a cycle: of a beat, and of factors beside it.
    pub words_in: u64,
    /// Words of a beat that leaves.
    pub words_out: u64,
    /// Bits of a word on the streams.
    pub word_bits: u64,
    /// The orders of the words that enter and of those that leave.
    pub orders: (Order, Order),
    /// DSP slices, exactly.
    pub dsp: u64,
    /// What the other resources depend on.
    pub features: Features,
}

/// The parameters that say how many bits the operands of a DSP tile have.
pub(crate) fn tiles(technology: Technology) -> [(&'static str, u64); 2] {
    match technology {
        Technology::Xc7 => [("TILE_A", 24), ("TILE_B", 17)],
        Technology::Ecp5 => [("TILE_A", 18), ("TILE_B", 18)],
    }
}

/// Counts of what Yosys makes of registers in a row and of memories.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Look-up tables that are shift registers or memories.
    pub tables: f64,
    /// Flip-flops.
    pub registers: f64,
    /// Of block memories, in units of 36 Kbit.
    pub blocks: f64,
}

impl Counts {
    pub fn times(self, count: u64) -> Counts {
        let count = count as f64;
        Counts {
            tables: count * self.tables,
            registers: count * self.registers,
            blocks: count * self.blocks,
        }
    }
}

impl std::iter::Sum for Counts {
    fn sum<I: Iterator<Item = Counts>>(counts: I) -> Counts {
        counts.fold(Counts::default(), |a, b| Counts {
            tables: a.tables + b.tables,
            registers: a.registers + b.registers,
            blocks: a.blocks + b.blocks,
        })
    }
}

/// Words that are delayed: from three cycles on, 32 of them in a look-up table of 7 series; ECP5 has flip-flops only.
pub(crate) fn delay(bits: u64, cycles: u64, technology: Technology) -> Counts {
    match technology {
        Technology::Xc7 if cycles >= 3 => Counts {
            tables: (bits * cycles.div_ceil(32)) as f64,
            ..Counts::default()
        },
        _ => Counts {
            registers: (bits * cycles) as f64,
            ..Counts::default()
        },
    }
}

/// A memory's blocks, in units of 36 Kbit.
///
/// The least over the shapes that a block can have, as tools without other constraints choose: of Xilinx 7 series 512 x 72 to
/// 4096 x 9 and half blocks of 512 x 36 to 4096 x 4 (AMD UG473, tables 1-7 to 1-9), of ECP5 half blocks alone
/// (Lattice FPGA-TN-02204).
pub fn memory_blocks(depth: u64, width: u64, technology: Technology) -> f64 {
    const HALVES: [(u64, u64); 6] = [
        (512, 36),
        (1024, 18),
        (2048, 9),
        (4096, 4),
        (8192, 2),
        (16384, 1),
    ];
    const WHOLE: [(u64, u64); 7] = [
        (512, 72),
        (1024, 36),
        (2048, 18),
        (4096, 9),
        (8192, 4),
        (16384, 2),
        (32768, 1),
    ];
    let halves = |shapes: &[(u64, u64)], each: u64| {
        let counts = shapes
            .iter()
            .map(|(rows, bits)| each * depth.div_ceil(*rows) * width.div_ceil(*bits));
        counts.min().unwrap_or(0)
    };
    let least = match technology {
        Technology::Xc7 => halves(&HALVES, 1).min(halves(&WHOLE, 2)),
        Technology::Ecp5 => halves(&HALVES, 1),
    };
    least as f64 / 2.0
}

/// A memory that is written and read in every cycle, with a register after it: in block memories above 64 words.
pub(crate) fn memory(depth: u64, bits: u64, technology: Technology) -> Counts {
    let tables = match technology {
        Technology::Xc7 => 4 * bits.div_ceil(6) * depth.div_ceil(32),
        Technology::Ecp5 => 2 * bits.div_ceil(4) * depth.div_ceil(16),
    };
    let most = match technology {
        Technology::Xc7 => 64,
        Technology::Ecp5 => 63,
    };
    match depth > most {
        true => Counts {
            blocks: memory_blocks(depth, bits, technology),
            ..Counts::default()
        },
        false => Counts {
            tables: tables as f64,
            registers: bits as f64,
            blocks: 0.0,
        },
    }
}

/// A ROM with a register after it, in block memories above a depth. A column of a few rows is the same as others, or needs
/// no table of its own.
pub(crate) fn rom(depth: u64, bits: u64, technology: Technology) -> Counts {
    let (most, table) = match technology {
        Technology::Xc7 => (256, 64),
        Technology::Ecp5 => (63, 16),
    };
    match depth {
        1 => Counts::default(),
        _ if depth > most => Counts {
            blocks: memory_blocks(depth, bits, technology),
            ..Counts::default()
        },
        _ => Counts {
            tables: if depth > 4 {
                (bits * depth.div_ceil(table)) as f64
            } else {
                0.0
            },
            registers: bits.min(1 << depth.min(32)) as f64,
            blocks: 0.0,
        },
    }
}

/// The depth from which on words are delayed in memories: `RAM_STEPS` of `stepped_delay`.
const RAM_STEPS: u64 = 64;

/// `stepped_delay`
pub(crate) fn stepped(bits: u64, steps: u64, technology: Technology) -> Counts {
    match steps >= RAM_STEPS {
        true => memory(steps, bits, technology),
        false => delay(bits, steps, technology),
    }
}

/// A permutation network of words of so many bits.
pub(crate) fn network(network: &Network, bits: u64, technology: Technology) -> Counts {
    let lanes = 1 << network.log_lanes();
    match network.delay() {
        0 => delay(lanes * bits, network.latency() as u64, technology),
        _ => memory(1 << network.log_depth(), bits, technology).times(lanes),
    }
}

/// A product beside its DSP slices, which take registers and sums of their own in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beside {
    pub counts: Counts,
    /// Bits of the sums of rows of tiles.
    pub added: u64,
    /// Bits of rows that are multiplied in look-up tables.
    pub narrow: u64,
    /// Registers of slices that have none.
    pub slices: u64,
    pub is_short: bool,
}

pub(crate) fn product(product: &Product, tiles: (u32, u32), technology: Technology) -> Beside {
    let widths: Vec<u64> = product.columns(tiles).map(u64::from).collect();
    let columns = widths.len() as u64;
    let rows: Vec<(u64, bool)> = product
        .rows(tiles)
        .map(|(bits, is_narrow)| (bits.into(), is_narrow))
        .collect();
    let (width, tile_a, tile_b) = (
        u64::from(product.bits.1),
        u64::from(tiles.0),
        u64::from(tiles.1),
    );
    let count = rows.len() as u64;
    let mut beside = Beside {
        is_short: product.is_short,
        ..Beside::default()
    };
    if technology == Technology::Ecp5 {
        // Operands and products, and the sums of long products, have registers that slices of 7 series have themselves.
        let each = rows.iter().filter(|(_, is_narrow)| !is_narrow);
        let tile = |bits: u64| widths.iter().map(move |column| bits + column).sum::<u64>();
        let sums: u64 = each.clone().map(|(bits, _)| tile(*bits)).sum();
        let operands: u64 = each.map(|(bits, _)| bits).sum();
        beside.slices = match product.is_short {
            true => operands + width + sums,
            false => operands * columns + 2 * sums,
        };
    }
    let mut delays = Vec::new();
    if product.is_short {
        // The sum of all tiles; one alone stays in its slice.
        for (r, (bits, is_narrow)) in rows.iter().enumerate() {
            if *is_narrow || *bits == 1 {
                beside.narrow += bits * width;
                delays.push((2 * (bits + width), 1));
            } else if columns > 1 {
                beside.added += bits + width - tile_b;
            }
            if r > 0 {
                beside.added += bits + width;
            }
        }
        if count * columns > 1 {
            delays.push((u64::from(product.bits.0) + width, 1));
        }
    } else {
        for (r, (bits, _)) in (0u64..).zip(&rows) {
            for j in 0..columns - 1 {
                delays.push((tile_b, columns - 1 - j));
            }
            if r > 0 {
                beside.added += bits + width;
                delays.extend([(bits + width, 1), (*bits, r - 1)]);
            }
            if r > 1 {
                delays.push((width, 1));
            }
            if r + 1 < count {
                delays.push((tile_a, count - 1 - r));
            }
        }
        delays.extend((0..columns).map(|j| (tile_b, 1 + j)));
    }
    let counts = delays.into_iter();
    beside.counts = counts
        .map(|(bits, cycles)| delay(bits, cycles, technology))
        .sum();
    beside
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_take_the_cheapest_shape() {
        // As Yosys maps a bank and the twiddles of 2^14 words on 32 lanes.
        assert_eq!(memory_blocks(512, 64, Technology::Xc7), 1.0);
        assert_eq!(memory_blocks(2644, 1024, Technology::Xc7), 85.5);
        assert_eq!(memory_blocks(1024, 18, Technology::Ecp5), 0.5);
        assert_eq!(memory_blocks(32768, 2, Technology::Xc7), 2.0);
    }
}
