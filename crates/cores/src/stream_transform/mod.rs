//! The transform of the streaming engine, `hw/engine_streaming/stream_transform.sv`: its table of twiddles.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use toroid_ring::{RingError, goldilocks};

/// The factors between both DFTs of `stream_transform`, in the form of `$readmemh`, for transforms of N = 2^`log_n` words on
/// 2^`log_lanes` lanes: a line a beat, first of the forward transform and then of the inverse, with a word for each lane, lane 0
/// lowest.
///
/// With N = R * R, place q of block B holds the value of number j = rev(q), where `rev` reverses log2(R) bits. It is multiplied by
/// psi^((2 j + 1) B), or, inverse, by psi^-((2 rev(B) + 1) c) with c = -j modulo R.
///
/// # Errors
/// [`RingError::Degree`] where there is no transform of that size.
///
/// # Panics
/// If `log_n` is odd or `log_lanes` is not 1 to `log_n` / 2.
pub fn twiddle_rom(log_n: u32, log_lanes: u32) -> Result<String, RingError> {
    assert!(
        log_n.is_multiple_of(2) && (1..=log_n / 2).contains(&log_lanes),
        "log_n must be even and log_lanes 1 to log_n / 2, not {log_n} and {log_lanes}"
    );
    let degree = 1usize.checked_shl(log_n).unwrap_or(0);
    let psi = goldilocks::psi(degree)?;
    let mut powers = vec![1; 2 * degree];
    for exponent in 1..powers.len() {
        powers[exponent] = goldilocks::mul(powers[exponent - 1], psi);
    }
    let root = 1usize << (log_n / 2);
    let reversed = |place: usize| place.reverse_bits() >> (usize::BITS - log_n / 2);
    let lanes = 1usize << log_lanes;
    let mut text = String::new();
    for is_inverse in [false, true] {
        for (block, beat) in (0..root).flat_map(|b| (0..root / lanes).map(move |h| (b, h))) {
            for lane in (0..lanes).rev() {
                let value = reversed(beat * lanes + lane);
                let exponent = match is_inverse {
                    false => (2 * value + 1) * block,
                    true => (2 * degree - 2 * reversed(block) - 1) * ((root - value) % root),
                };
                // Writing to a string cannot fail.
                let _ = write!(text, "{:016x}", powers[exponent % (2 * degree)]);
            }
            text.push('\n');
        }
    }
    Ok(text)
}

/// Cycles from the first beat of a frame in to its first beat out, with multipliers of 8 DSP slices (see `stream_transform_pkg.sv`).
#[must_use]
pub fn latency(log_n: u32, log_lanes: u32) -> u64 {
    let log_r = log_n / 2;
    let beats = log_r - log_lanes;
    let stage = |stage: u32| match stage {
        stage if stage < beats => (2 << (beats - 1 - stage)) + 3,
        stage if stage == log_r - 1 => 1,
        0 if log_r == 7 => 3,
        _ => 2,
    };
    let dft: u64 = (0..log_r).map(stage).sum();
    let reversal = (1 << beats) + u64::from(beats);
    let transpose = 4 + (1 << (log_n - log_lanes)) + 6;
    2 * (reversal + dft + REDUCE) + PRODUCT + transpose
}

/// Cycles of a reduction.
const REDUCE: u64 = 4;

/// Cycles of a product by `goldilocks_mul` with `KARATSUBA` = 8.
pub(crate) const PRODUCT: u64 = 13;
