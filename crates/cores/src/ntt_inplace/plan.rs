//! The table and the cycles of in-place transforms, as `hw/ntt_inplace/ntt_inplace_pkg.sv` lays them out.

use std::fmt::Write as _;

use toroid_ring::{RingError, goldilocks};

/// Of a core with 2^`log_lanes` lanes, the bits of the index that lanes span in the row that pairs indices differing in
/// bit `pair_bit`, as a mask.
fn lane_bits(log_n: u32, log_lanes: u32, group: u32) -> u64 {
    let width = log_lanes.min(log_n - group * log_lanes);
    let fill = (1 << log_lanes) - (1 << width);
    (((1 << width) - 1) << (group * log_lanes)) | fill
}

/// Bits of the index above the chunk of a row: 2^these different twiddles a butterfly.
fn upper_bits(log_n: u32, log_lanes: u32, pair_bit: u32) -> u32 {
    log_n.saturating_sub((pair_bit / log_lanes + 1) * log_lanes)
}

/// The twiddles of `ntt_schedule` in the form of `$readmemh`, for transforms of N = 2^`log_n` words on 2^`log_lanes`
/// lanes: a line an address, with a word for each of the 2^(`log_lanes` - 1) butterflies, butterfly 0 lowest.
///
/// The row that pairs bit b of the index, with s = `log_n` - 1 - b, needs psi^rev(2^s + block) for the s upper bits
/// `block` of the index. Their upper part, above the chunk that lanes span, is the address within the row; the rest is
/// in the number of the butterfly. Rows follow each other from the top bit down.
///
/// # Errors
/// [`RingError::Degree`] where there is no transform of that size.
///
/// # Panics
/// If `log_lanes` is not 1 to 10.
pub fn twiddle_rom(log_n: u32, log_lanes: u32) -> Result<String, RingError> {
    assert!(
        (1..=10).contains(&log_lanes),
        "lanes are 2^1 to 2^10, not 2^{log_lanes}"
    );
    let degree = 1usize.checked_shl(log_n).unwrap_or(0);
    let psi = goldilocks::psi(degree)?;
    let mut powers = vec![0; degree];
    let mut power = 1;
    for exponent in 0..degree {
        powers[exponent.reverse_bits() >> (usize::BITS - log_n)] = power;
        power = goldilocks::mul(power, psi);
    }
    let mut text = String::new();
    for pair_bit in (0..log_n).rev() {
        let row = log_n - 1 - pair_bit;
        let upper = upper_bits(log_n, log_lanes, pair_bit);
        let lower = row - upper;
        for address in 0..1usize << upper {
            for butterfly in (0..1usize << (log_lanes - 1)).rev() {
                let block = (address << lower) | (butterfly & ((1 << lower) - 1));
                // Writing to a string cannot fail.
                let _ = write!(text, "{:016x}", powers[(1 << row) + block]);
            }
            text.push('\n');
        }
    }
    Ok(text)
}

/// Cycles from the first beat of a transform to the first that may follow its last one: N / 2^`log_lanes` for each of
/// the `log_n` rows, and those between rows in which the next row waits until what it needs was written, `hazard`
/// cycles after its beat.
///
/// # Panics
/// If 1 <= `log_lanes` < `log_n` <= 32 does not hold.
pub fn transform_beats(log_n: u32, log_lanes: u32, is_inverse: bool, hazard: u64) -> u64 {
    assert!(
        log_lanes >= 1 && log_lanes < log_n && log_n <= 32,
        "expected 1 <= log_lanes < log_n <= 32, found {log_lanes} and {log_n}"
    );
    let row_beats = 1u64 << (log_n - log_lanes);
    let bubble = |row: u32| {
        let (bit, next) = match is_inverse {
            true => (row, row + 1),
            false => (log_n - 1 - row, log_n - 2 - row),
        };
        let here = counter_weights(log_n, log_lanes, bit);
        let there = counter_weights(log_n, log_lanes, next);
        // The word for which the next row comes earliest, as seen from when this row has it.
        let ahead: u64 = here
            .iter()
            .zip(&there)
            .map(|(here, there)| here.saturating_sub(*there))
            .sum();
        (hazard + ahead).saturating_sub(row_beats)
    };
    u64::from(log_n) * row_beats + (0..log_n - 1).map(bubble).sum::<u64>()
}

/// For each bit of the index its weight in the counter of a row, 0 where lanes span it: `counter_bit` of the package.
fn counter_weights(log_n: u32, log_lanes: u32, pair_bit: u32) -> Vec<u64> {
    let group = pair_bit / log_lanes;
    let last = (log_n - 1) / log_lanes;
    let is_below = group == last || (group != 0 && pair_bit.is_multiple_of(log_lanes));
    let lanes = lane_bits(log_n, log_lanes, group);
    let fast = lane_bits(
        log_n,
        log_lanes,
        if is_below { group - 1 } else { group + 1 },
    );
    let mut order: Vec<u32> = (0..log_n).filter(|bit| lanes >> bit & 1 == 0).collect();
    order.sort_by_key(|bit| fast >> bit & 1 == 0);
    let mut weights = vec![0; log_n as usize];
    for (place, bit) in order.into_iter().enumerate() {
        weights[bit as usize] = 1 << place;
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays the rows word by word, and waits as long as any word makes it wait.
    fn beats_by_words(log_n: u32, log_lanes: u32, is_inverse: bool, hazard: u64) -> u64 {
        let mut written = vec![0u64; 1 << log_n];
        let mut start = hazard;
        for row in 0..log_n {
            let bit = if is_inverse { row } else { log_n - 1 - row };
            let weights = counter_weights(log_n, log_lanes, bit);
            let count = |index: usize| -> u64 {
                let set = (0..log_n as usize).filter(|bit| index >> bit & 1 == 1);
                set.map(|bit| weights[bit]).sum()
            };
            start = (0..written.len()).fold(start, |start, i| {
                start.max((written[i] + hazard).saturating_sub(count(i)))
            });
            for (i, written) in written.iter_mut().enumerate() {
                *written = start + count(i);
            }
            start += 1 << (log_n - log_lanes);
        }
        start - hazard
    }

    #[test]
    fn rows_wait_for_their_words_and_no_longer() {
        for (log_n, log_lanes) in [
            (3, 2),
            (5, 3),
            (6, 2),
            (7, 3),
            (8, 5),
            (9, 2),
            (10, 4),
            (11, 5),
            (14, 5),
        ] {
            for hazard in [1, 12, 22, 40] {
                for is_inverse in [false, true] {
                    assert_eq!(
                        transform_beats(log_n, log_lanes, is_inverse, hazard),
                        beats_by_words(log_n, log_lanes, is_inverse, hazard),
                        "2^{log_n} words, 2^{log_lanes} lanes, hazard {hazard}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_paper_transforms_without_waiting() {
        for is_inverse in [false, true] {
            assert_eq!(transform_beats(14, 5, is_inverse, 26), 14 * 512);
        }
    }

    #[test]
    fn butterflies_of_a_table_have_the_twiddles_of_their_blocks() {
        // Two chunks of two bits: rows 3 and 2 have one line each, rows 1 and 0 one for each upper half of the index.
        let psi = goldilocks::psi(16).unwrap();
        let word = |exponent: u32| {
            let power = (0..exponent).fold(1, |power, _| goldilocks::mul(power, psi));
            format!("{power:016x}")
        };
        let line = |b: u32, a: u32| word(b) + &word(a);
        let rev = |i: u32, bits: u32| i.reverse_bits() >> (32 - bits);
        let mut expected = vec![line(8, 8), line(12, 4)];
        expected.extend((0..4).map(|block| line(rev(4 + block, 4), rev(4 + block, 4))));
        expected.extend((0..4).map(|t| line(rev(8 + 2 * t + 1, 4), rev(8 + 2 * t, 4))));
        let rom = twiddle_rom(4, 2).unwrap();
        assert_eq!(rom.lines().collect::<Vec<_>>(), expected);
        assert!(twiddle_rom(18, 5).is_err());
    }
}
