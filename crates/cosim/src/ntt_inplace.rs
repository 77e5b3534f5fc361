//! The order of the in-place transform (`hw/ntt_inplace/ntt_inplace_pkg.sv`): its twiddle table and its cycles.

use std::fmt::Write;

use toroid_ring::goldilocks;

/// Bits of the index in chunk `group`.
fn chunk_width(log_n: u32, log_lanes: u32, group: u32) -> u32 {
    let chunks = log_n.div_ceil(log_lanes);
    if group + 1 == chunks {
        log_n - group * log_lanes
    } else {
        log_lanes
    }
}

/// The bits of the index that lanes span, as a mask.
fn lane_bits(log_n: u32, log_lanes: u32, group: u32) -> u32 {
    let width = chunk_width(log_n, log_lanes, group);
    let fill = (1 << log_lanes) - (1 << width);
    (((1 << width) - 1) << (group * log_lanes)) | fill
}

/// The bits of the index that the counter of a row has, lowest place first.
fn counter_bits(log_n: u32, log_lanes: u32, pair_bit: u32) -> Vec<u32> {
    let group = pair_bit / log_lanes;
    let last = log_n.div_ceil(log_lanes) - 1;
    let below = group == last || (group != 0 && pair_bit.is_multiple_of(log_lanes));
    let lanes = lane_bits(log_n, log_lanes, group);
    let neighbour = if below { group - 1 } else { group + 1 };
    let fast = lane_bits(log_n, log_lanes, neighbour) & !lanes;
    let bits = |mask: u32| (0..log_n).filter(move |bit| mask >> bit & 1 == 1);
    bits(fast).chain(bits(!fast & !lanes)).collect()
}

/// Cycles to wait between the rows of two pair bits.
fn bubble(log_n: u32, log_lanes: u32, pair_bit: u32, next_bit: u32, hazard: u32) -> u32 {
    let weight = |row: u32, bit: u32| {
        let bits = counter_bits(log_n, log_lanes, row);
        bits.iter()
            .position(|found| *found == bit)
            .map_or(0, |place| 1i64 << place)
    };
    let lost: i64 = (0..log_n)
        .map(|bit| (weight(pair_bit, bit) - weight(next_bit, bit)).max(0))
        .sum();
    let gap = (1i64 << (log_n - log_lanes)) - lost;
    (i64::from(hazard) - gap).max(0) as u32
}

/// Cycles from the first beat of a transform to the first that may follow it.
#[must_use]
pub fn transform_beats(log_n: u32, log_lanes: u32, inverse: bool, hazard: u32) -> u64 {
    let rows: Vec<u32> = if inverse {
        (0..log_n).collect()
    } else {
        (0..log_n).rev().collect()
    };
    let waits: u64 = rows
        .windows(2)
        .map(|pair| u64::from(bubble(log_n, log_lanes, pair[0], pair[1], hazard)))
        .sum();
    (u64::from(log_n) << (log_n - log_lanes)) + waits
}

/// The twiddle table as `$readmemh` reads it: a line an address, LANES/2 words of 64 bits, that of butterfly 0 last.
///
/// Butterfly x finds at the address of (pair bit, upper bits T) the power psi^rev(2^s + (T·2^q | x mod 2^q)), where s counts the
/// index's bits above the pair bit and q those of them in its chunk.
#[must_use]
pub fn twiddle_rom(log_n: u32, log_lanes: u32) -> String {
    let psi = goldilocks::psi(1 << log_n).unwrap_or(1);
    let mut powers = vec![1u64; 1 << log_n];
    for i in 1..powers.len() {
        powers[i] = goldilocks::mul(powers[i - 1], psi);
    }
    let mut text = String::new();
    for pair_bit in (0..log_n).rev() {
        let group = pair_bit / log_lanes;
        let upper = log_n - group * log_lanes - chunk_width(log_n, log_lanes, group);
        let above = log_n - 1 - pair_bit;
        let inside = above - upper;
        for high in 0..1u64 << upper {
            for butterfly in (0..1u64 << (log_lanes - 1)).rev() {
                let block = high << inside | butterfly & ((1 << inside) - 1);
                let exponent = (1 << above | block).reverse_bits() >> (64 - log_n);
                let _ = write!(text, "{:016x}", powers[exponent as usize]);
            }
            text.push('\n');
        }
    }
    text
}
