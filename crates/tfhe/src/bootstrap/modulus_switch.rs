//! The modulus switch: an LWE sample as exponents of X.

use crate::modulus::Modulus;
use crate::params::{ModulusSwitch, StageParams};

/// An LWE sample brought to exponents modulo 2N: those of the mask, then that of the body. All of them are multiples of
/// 2^`log2_slots`, so that a test vector has room for that many functions side by side.
///
/// # Panics
/// If `sample` does not have n + 1 words.
#[must_use]
pub fn modulus_switch<M: Modulus>(
    params: &StageParams,
    sample: &[M::Word],
    log2_slots: u32,
) -> (Vec<usize>, usize) {
    let log2_order = params.ring_degree.trailing_zeros() + 1 - log2_slots;
    let shift = 64 - log2_order;
    let half = 1u64 << (shift - 1);
    let nearest = |word: u64| (word.wrapping_add(half) >> shift) as usize;
    let (mask, body) = sample.split_at(params.lwe_dimension);
    let mut exponents: Vec<usize> = mask.iter().map(|a| nearest(M::to_u64_torus(*a))).collect();
    let correction = match params.modulus_switch {
        ModulusSwitch::Nearest => 0,
        ModulusSwitch::MeanCompensated => {
            let errors: i128 = mask
                .iter()
                .zip(&exponents)
                .map(|(a, exponent)| {
                    let error = M::to_u64_torus(*a).wrapping_sub((*exponent as u64) << shift);
                    i128::from(error.cast_signed())
                })
                .sum();
            (errors >> 1) as i64
        }
    };
    // Down, not to the nearest: windows [-w/2, w/2) of a test vector are symmetric then.
    let body =
        (M::to_u64_torus(body[0]).wrapping_sub(correction.cast_unsigned()) >> shift) as usize;
    for exponent in &mut exponents {
        *exponent <<= log2_slots;
    }
    (exponents, body << log2_slots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modulus::{Goldilocks, Torus32};
    use crate::noise;
    use crate::params::ParamSet;
    use crate::params::{MESSAGE4, PAPER};
    use crate::random::Csprng;

    /// Variance of the modulus switch over 50 keys of 200 samples: 5 standard errors of sqrt(2/10000) allowed.
    fn modulus_switch_noise<M: Modulus>(params: &ParamSet) {
        let mut rng = Csprng::from_seed([9; 32]);
        let (keys, samples) = (50, 200);
        let mut squares = 0.0;
        let mut key = vec![0u64; params.lwe_dimension];
        let mut sample = vec![M::Word::default(); params.lwe_words()];
        let order = 2.0 * params.ring_degree as f64;
        for _ in 0..keys {
            rng.fill_bits(&mut key);
            for _ in 0..samples {
                rng.fill_uniform::<M>(&mut sample);
                let (mask, body) = modulus_switch::<M>(params, &sample, 0);
                let turn = |word: M::Word| M::to_u64_torus(word) as f64 / 2f64.powi(64);
                let error = turn(sample[params.lwe_dimension])
                    - (body as f64 + 0.5) / order
                    - key
                        .iter()
                        .zip(&sample)
                        .zip(&mask)
                        .map(|((bit, word), exponent)| {
                            *bit as f64 * (turn(*word) - *exponent as f64 / order)
                        })
                        .sum::<f64>();
                squares += (error - error.round()).powi(2);
            }
        }
        let count = f64::from(keys * samples);
        // The body's rounding down is uniform over a step, about its middle.
        let expected = noise::modulus_switch_variance(params) + 1.0 / 12.0 / order.powi(2);
        let ratio = squares / count / expected;
        assert!(
            (ratio - 1.0).abs() < 5.0 * (2.0 / count).sqrt(),
            "{}: {ratio}",
            params.name
        );
    }

    #[test]
    fn both_modulus_switches_have_the_variance_of_their_formula() {
        modulus_switch_noise::<Torus32>(&PAPER);
        modulus_switch_noise::<Goldilocks>(&MESSAGE4);
    }
}
