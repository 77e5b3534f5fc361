//! The widths of words in chunks, and the noise that they cost.

use std::ops::Range;

use crate::arithmetic::ArithmeticKind;
use crate::noise::bootstrap_output_variance;
use crate::params::ParamSet;
use crate::variance::Assumptions;
use crate::wopbs;

/// The widths that a packed word may have. What the rounding of k·N masks adds up to stays far below one half of the torus.
const PACKED_WIDTHS: Range<u32> = 16..32;

/// Bits of a body of a seeded chunk: 5 below the noise, so that rounding adds less than a 12,000th of the variance of a fresh sample.
#[must_use]
pub fn seeded_width(params: &ParamSet) -> u32 {
    let log2_noise = if params.is_wide() {
        params.log2_glwe_noise
    } else {
        params.log2_lwe_noise
    };
    let word = 8 * params.modulus.word_bytes() as u32;
    ((5.0 - log2_noise).ceil() as u32).min(word - 1)
}

/// w, the bits of a word of a packed chunk: the fewest for which rounding adds at most 1/32 of the variance of a bootstrapped sample.
/// `None` for a set without wide functions.
#[must_use]
pub fn packed_width(params: &ParamSet) -> Option<u32> {
    params.wopbs?;
    let room = bootstrap_output_variance(params, ArithmeticKind::Fft) / 32.0;
    let fits = |width: &u32| rounding_variance(params, *width) <= room;
    let mut widths = PACKED_WIDTHS;
    Some(widths.find(fits).unwrap_or(PACKED_WIDTHS.end - 1))
}

/// Variance of a row of a packed chunk, made of samples of variance `input_variance`: that of the samples, of the packing (a
/// trace, [`wopbs::noise::Stages::trace`]) and of the rounding, (1 + k·N/4)·2^-2w/12. `None` for a set without wide functions.
///
/// The rounding errors u of the k·N mask words that a row's phase multiplies by key bits s reach it as Σ u·s. Half of Σ u, which
/// is known, is added to the body before that is rounded, as [`ModulusSwitch::MeanCompensated`] does: what stays is Σ u·(1/2 - s),
/// whatever the key's weight.
///
/// The formula of the packing is a bound with FFT arithmetic. Its first key switch, whose noise is three quarters of the trace's, works on words
/// that were divided by N and stand around zero: the first of their digits is 0, and the second is small. At `message16`, 0.76 of the formula was
/// measured.
///
/// The noises of rows are correlated. Packing and rounding of the masks that a chunk's rows share meet one secret, with either sign, in a
/// way that depends on the key. So for a sum of rows, add the standard deviations of what the packing and the rounding add: that is never too
/// little.
///
/// [`ModulusSwitch::MeanCompensated`]: crate::params::ModulusSwitch::MeanCompensated
#[must_use]
pub fn packed_variance(
    params: &ParamSet,
    assumptions: impl Into<Assumptions>,
    input_variance: f64,
) -> Option<f64> {
    let stages = wopbs::noise::stages(params, params.wopbs?, assumptions, params.message_bits);
    Some(input_variance + stages.trace + packed_rounding(params)?)
}

/// What the rounding of [`packed_variance`] adds to a row. `None` for a set without wide functions.
#[must_use]
pub fn packed_rounding(params: &ParamSet) -> Option<f64> {
    Some(rounding_variance(params, packed_width(params)?))
}

/// What rounding to words of `width` bits adds to a row.
fn rounding_variance(params: &ParamSet, width: u32) -> f64 {
    let masks = params.extracted_dimension() as f64 / 4.0;
    (1.0 + masks) * (-2.0 * f64::from(width)).exp2() / 12.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{MESSAGE8, MESSAGE14, MESSAGE16};

    /// Bytes at rest have these widths: where a formula changes so that one of them does, the sets that are there keep theirs.
    #[test]
    fn the_widths_are_those_of_the_format() {
        let widths = ParamSet::ALL.map(|set| (set.name, seeded_width(set), packed_width(set)));
        let expected = [
            ("paper", 24, None),
            ("message7", 30, None),
            ("message4", 29, None),
            ("gate", 20, None),
            ("tiny", 30, None),
            ("tiny32", 30, None),
            ("message14", 55, Some(27)),
            ("message16", 55, Some(30)),
            ("tiny-wopbs", 57, Some(30)),
            ("message8", 55, Some(23)),
        ];
        assert_eq!(widths, expected);
    }

    #[test]
    fn a_seeded_row_has_the_noise_of_a_fresh_sample() {
        for set in ParamSet::ALL {
            let rounding = (-2.0 * f64::from(seeded_width(set))).exp2() / 12.0;
            let ratio = rounding / set.lwe_variance();
            assert!(ratio < 1.0 / 12_000.0, "{}: {ratio}", set.name);
        }
    }

    /// The sums of the sets' promises ([`crate::wopbs::noise`]), of rows of several packed chunks, with margin.
    #[test]
    fn the_sets_keep_what_they_promise_for_packed_rows() {
        for (set, norm2) in [(&MESSAGE8, 17.0), (&MESSAGE14, 4.0), (&MESSAGE16, 4.0)] {
            for arithmetic in [ArithmeticKind::Ntt, ArithmeticKind::Fft] {
                let assumptions = Assumptions::with_margin(arithmetic);
                let stored = bootstrap_output_variance(set, assumptions);
                let packed = packed_variance(set, assumptions, stored).unwrap();
                let [before, after] = [stored, packed].map(|variance| {
                    crate::noise::log2_bootstrap_failure(
                        set,
                        assumptions,
                        set.message_bits,
                        norm2 * variance,
                    )
                });
                println!("{} {arithmetic:?}: {before:.1} {after:.1}", set.name);
                assert!(after <= -128.0, "{}: {after}", set.name);
            }
        }
    }
}
