//! Where the noise of a wide bootstrap comes from, and how likely it is that one fails.
//!
//! Variances are over the torus, as in [`crate::noise`], whose formulas hold for the blind rotations and key switches here. Beyond
//! them:
//!
//! * Trace. An automorphism's key switch adds V_a to every coefficient. Each later step of the trace doubles the constant
//!   coefficient, so that T = log2 N of them leave (4^T - 1)/3·V_a there, and (2N - 1)(N - 1)/3·V_a in all others together: with r
//!   steps to come 2^r of the N coefficients gather or cancel in the constant one, the others add up in pairs.
//! * Mask rows of a circuit-bootstrapped GGSW sample. The body row's noise e is multiplied by the secret polynomial, N/2 ones;
//!   the key switch adds its own, whose dropped digits meet s_u·s_i, of squared norm N^3/48. The trace's errors of mask polynomials, dropped
//!   digits and the FFT's rounding, meet such products too, a step with r to come in N/2^r coefficients 2^r times as large: each step adds N^2/24
//!   times their variance to that of N(N-1)/2 times all of V_a.
//! * Vertical packing. The mask rows of a level are multiples of one e by the secret polynomials, so that any mean of the digits would
//!   meet e over all of the key's ones at once: digits alternate ([`crate::modulus::AlternatingFields`]) and have none. What is
//!   left is a sum of products of e and of digits that are independent of it and of each other. The e of a bit's levels are
//!   neighbouring coefficients of one accumulator, whose larger part is an error of mask polynomials times the secret: their
//!   correlation is at most 1/2. It does not change the variance, but the tail of such a sum, heavier than a Gaussian's: its
//!   Chernoff bound stands in for it. Dropped digits count where a bit is 1. The failure probability takes all of them, a bound
//!   for every place of a table; [`Stages::packing_mean`] takes half.

use crate::params::{ParamSet, WopbsParams};
use crate::variance::{
    Assumptions, blind_rotation_variance, digit_mean_square, dropped_variance, fft_variance,
    key_switch_variance, loaded_key_variance, log2_add, log2_tail, modulus_switch_variance,
    row_digits,
};

/// Correlation between the noises of a GGSW sample's levels, at most.
const LEVEL_CORRELATION: f64 = 0.5;

/// The noise of the stages of a wide bootstrap.
#[derive(Clone, Copy, Debug)]
pub struct Stages {
    /// Key switch before an extraction.
    pub extract_key_switch: f64,
    /// Modulus switch of an extraction, to 2N divided by the number of slots.
    pub extract_modulus_switch: f64,
    /// Blind rotation of an extraction, in every slot.
    pub extract_rotation: f64,
    /// One automorphism's key switch.
    pub automorphism: f64,
    /// What the trace adds to the constant coefficient.
    pub trace: f64,
    /// The constant coefficient of a body row of a GGSW sample.
    pub body_row: f64,
    /// All other coefficients of a body row, summed up.
    pub body_row_rest: f64,
    /// Key switch of a mask row, in every coefficient.
    pub secret_product: f64,
    /// A coefficient of a mask row, in the mean.
    pub mask_row: f64,
    /// The part of the vertical packing's noise that is independent of the body rows'; a bound for any place of a table.
    pub packing: f64,
    /// The part that is the body rows' noise times the digits: a sum of products of Gaussians.
    pub packing_products: f64,
    /// Bits and levels of a GGSW sample that the products are of.
    pub packing_terms: (f64, f64),
    /// All of the vertical packing's noise, in the mean over the places of a table.
    pub packing_mean: f64,
    /// Key switch of a digit.
    pub refresh_key_switch: f64,
    /// Modulus switch of a digit.
    pub refresh_modulus_switch: f64,
    /// Blind rotation of a digit.
    pub refresh_rotation: f64,
    /// A bootstrapped sample, of as many digits as the widest table has.
    pub output: f64,
}

/// A choice between two values that noise can turn, and the probability that it does.
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    /// Which.
    pub name: &'static str,
    /// First bit that it decides on, and how many.
    pub bits: (u32, u32),
    /// How far the phase may be off.
    pub margin: f64,
    /// Variance of the phase.
    pub variance: f64,
    /// log2 of the failure probability.
    pub log2_failure: f64,
}

/// Noise of the stages of a bootstrap of messages of `bits` bits, 1 to p. Vertical packing alone depends on their number.
#[must_use]
pub fn stages(
    params: &ParamSet,
    wopbs: &WopbsParams,
    assumptions: impl Into<Assumptions>,
    bits: u32,
) -> Stages {
    let assumptions = assumptions.into();
    let n = params.ring_degree as f64;
    let k = params.glwe_dimension as f64;
    let steps = n.log2();
    let share = assumptions.ones(params.extracted_dimension());
    let ones = share * k * n;
    // A power of two fewer places to round to.
    let slots = f64::from(wopbs.log2_slots()).exp2().powi(2);

    let switch = &wopbs.switch;
    let switched = row_digits(switch) * n * loaded_key_variance(switch, assumptions)
        + fft_variance(switch, assumptions);
    let dropped = dropped_variance(switch.gadget);
    let automorphism = switched + ones * dropped;
    let secret_product = switched + share.powi(4) * k * n.powi(3) / 3.0 * dropped;

    let extract_rotation = blind_rotation_variance(&wopbs.extract, assumptions);
    let trace = (4f64.powf(steps) - 1.0) / 3.0 * automorphism;
    let body_row = extract_rotation + trace;
    let body_row_rest = (2.0 * n - 1.0) * (n - 1.0) / 3.0 * automorphism;
    let body_energy = body_row + body_row_rest;
    // What the trace's errors of mask polynomials leave, r steps before its end: N/2^r coefficients, whose covariances and those of
    // the secret polynomial's have the same sign.
    let of_masks = fft_variance(switch, assumptions) + ones * dropped;
    let coherent = share.powi(3) * steps * n * n / 3.0 * of_masks;
    let mask_row_of_body = body_energy * share + coherent;
    let mask_row = mask_row_of_body + secret_product;

    let circuit = &wopbs.circuit;
    let levels = circuit.gadget.levels as f64;
    let depth = f64::from(bits);
    let turns = bits.min(params.ring_degree.trailing_zeros());
    // CMuxes of a tree; both inputs of the first are known, and have no mask.
    let selections = f64::from((bits - turns).saturating_sub(1));
    let mask_depth = f64::from(turns) + selections;
    let digits = digit_mean_square(circuit.gadget.log2_base);
    let independent = mask_depth * levels * k * digits * n * secret_product
        + depth * fft_variance(circuit, assumptions);
    let dropped = depth * circuit.body_gadget.map_or(0.0, dropped_variance)
        + mask_depth * ones * dropped_variance(circuit.gadget);
    let packing_products =
        levels * digits * (mask_depth * k * n * mask_row_of_body + depth * body_energy);

    let digits = wopbs.digits(params.message_bits + 1).len() as f64;
    let refresh_rotation = blind_rotation_variance(&wopbs.refresh, assumptions);
    Stages {
        extract_key_switch: key_switch_variance(&wopbs.extract, assumptions),
        extract_modulus_switch: slots * modulus_switch_variance(&wopbs.extract),
        extract_rotation,
        automorphism,
        trace,
        body_row,
        body_row_rest,
        secret_product,
        mask_row,
        packing: independent + dropped,
        packing_products,
        packing_terms: (mask_depth, levels),
        packing_mean: independent + dropped / 2.0 + packing_products,
        refresh_key_switch: key_switch_variance(&wopbs.refresh, assumptions),
        refresh_modulus_switch: modulus_switch_variance(&wopbs.refresh),
        refresh_rotation,
        output: digits * refresh_rotation,
    }
}

/// The part of a bootstrapped sample's variance that all samples under the same keys share
/// ([`crate::noise::shared_variance`]): every digit's blind rotation adds it.
#[must_use]
pub fn shared_variance(
    params: &ParamSet,
    wopbs: &WopbsParams,
    assumptions: impl Into<Assumptions>,
) -> f64 {
    let digits = wopbs.digits(params.message_bits + 1).len() as f64;
    let refresh = &wopbs.refresh;
    digits.powi(2)
        * refresh.lwe_dimension as f64
        * refresh.ggsw_rows() as f64
        * refresh.ring_degree as f64
        * loaded_key_variance(refresh, assumptions)
        / 4.0
}

/// Every decision of a bootstrap of a message of `bits` bits, 1 to p, in a sample with this variance, for the worst table.
#[must_use]
pub fn decisions(
    params: &ParamSet,
    wopbs: &WopbsParams,
    assumptions: impl Into<Assumptions>,
    bits: u32,
    input_variance: f64,
) -> Vec<Decision> {
    let stages = stages(params, wopbs, assumptions, bits);
    let mut decisions = extractions(&stages, bits, input_variance);
    decisions.extend(refreshes(params, wopbs, &stages));
    decisions
}

/// The decisions of [`decisions`] that take the bits off a sample.
#[must_use]
pub fn extractions(stages: &Stages, bits: u32, input_variance: f64) -> Vec<Decision> {
    let margin = 0.25;
    (0..bits)
        .map(|bit| {
            // The bits below were taken off, each with the noise of its rotation.
            let rest = input_variance + f64::from(bit) * stages.extract_rotation;
            let variance = rest * 4f64.powi((bits - bit) as i32)
                + stages.extract_key_switch
                + stages.extract_modulus_switch;
            Decision {
                name: "extraction",
                bits: (bit, 1),
                margin,
                variance,
                log2_failure: log2_tail(margin, variance),
            }
        })
        .collect()
}

/// The decisions of [`decisions`] that bring digits to their places: of a table of the width, up to p + 1 bits, that fails most often.
#[must_use]
pub fn refreshes(params: &ParamSet, wopbs: &WopbsParams, stages: &Stages) -> Vec<Decision> {
    let independent = stages.packing + stages.refresh_key_switch + stages.refresh_modulus_switch;
    let of_table = |table_bits: u32| -> Vec<Decision> {
        let mut first = 0;
        let digits = wopbs.digits(table_bits).into_iter();
        digits
            .map(|bits| {
                let margin = (-f64::from(bits + 1)).exp2();
                first += bits;
                Decision {
                    name: "refresh",
                    bits: (first - bits, bits),
                    margin,
                    variance: independent + stages.packing_products,
                    log2_failure: log2_tail_with_products(
                        margin,
                        independent,
                        stages.packing_products,
                        stages.packing_terms,
                    ),
                }
            })
            .collect()
    };
    (1..=params.message_bits + 1)
        .map(of_table)
        .max_by(|a, b| log2_any(a).total_cmp(&log2_any(b)))
        .unwrap_or_default()
}

/// log2 of the probability that any of some decisions goes wrong, at most.
#[must_use]
pub fn log2_any(decisions: &[Decision]) -> f64 {
    decisions
        .iter()
        .map(|decision| decision.log2_failure)
        .fold(f64::NEG_INFINITY, log2_add)
}

/// log2 of the probability that a bootstrap of a message of `bits` bits, 1 to p, fails on a sample with this variance: any
/// decision goes wrong.
#[must_use]
pub fn log2_failure(
    params: &ParamSet,
    wopbs: &WopbsParams,
    assumptions: impl Into<Assumptions>,
    bits: u32,
    input_variance: f64,
) -> f64 {
    let decisions = decisions(params, wopbs, assumptions, bits, input_variance);
    log2_any(&decisions)
}

/// log2 of a bound on the probability that x + Σ e_i·d_i leaves [-margin, margin], for an independent Gaussian x of variance
/// `independent` and bits·levels Gaussians e_i, those of one bit with the correlation [`LEVEL_CORRELATION`], and as many d_i; the
/// e_i·d_i have the variance `products` in all.
///
/// Chernoff: 2·E[exp(t·…)]·exp(-t·margin). Over the d_i first, then over the principal axes of a bit's e_i, one of which has
/// 1 + (levels - 1)/2 times the variance, the others half of it: an axis gives (1 - t^2·v)^(-1/2), v being the variance of its e·d.
fn log2_tail_with_products(
    margin: f64,
    independent: f64,
    products: f64,
    (bits, levels): (f64, f64),
) -> f64 {
    if products <= 0.0 {
        return log2_tail(margin, independent);
    }
    let each = products / (bits * levels);
    let (long, short) = (
        each * (1.0 + (levels - 1.0) * LEVEL_CORRELATION),
        each * (1.0 - LEVEL_CORRELATION),
    );
    let exponent = |t: f64| {
        let axes = (-t * t * long).ln_1p() + (levels - 1.0) * (-t * t * short).ln_1p();
        t * t * independent / 2.0 - bits / 2.0 * axes - t * margin
    };
    let (mut low, mut high) = (0.0, long.recip().sqrt() * (1.0 - 1e-9));
    // The exponent is convex; a third of the range goes at each step.
    for _ in 0..60 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if exponent(a) < exponent(b) {
            high = b;
        } else {
            low = a;
        }
    }
    ((2f64.ln() + exponent(low)) * std::f64::consts::LOG2_E).min(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arithmetic::ArithmeticKind;
    use crate::modulus::{Modulus, Torus32};
    use crate::params::{MESSAGE8, MESSAGE14, MESSAGE16};
    use crate::random::Csprng;

    #[test]
    fn without_products_the_bound_is_a_gaussians() {
        for z in [4.0, 10.0, 13.5] {
            let gaussian = log2_tail(z, 1.0);
            let bound = log2_tail_with_products(z, 1.0 - 1e-9, 1e-9, (1e6, 3.0));
            assert!(
                bound >= gaussian && bound < gaussian + 8.0,
                "{z}: {bound}, {gaussian}"
            );
        }
    }

    /// x + Σ e_i·d_i, sampled, of two bits with two levels each; products matter at three deviations already.
    #[test]
    fn the_bound_holds_for_samples_and_is_not_far() {
        let mut rng = Csprng::from_seed([1; 32]);
        let (independent, products, terms) = (0.4f64, 0.6f64, 4);
        let count = 1 << 18;
        let mut words = vec![0u32; count * (1 + 2 * terms)];
        let log2_sigma = -8.0f64;
        rng.add_noise::<Torus32>(log2_sigma, &mut words);
        let scale = (log2_sigma + 32.0).exp2();
        let normal: Vec<f64> = words
            .iter()
            .map(|word| Torus32::centered(*word) as f64 / scale)
            .collect();
        let each = (products / terms as f64).sqrt();
        // The second of a pair is half of the first, and as large.
        let second = 0.75f64.sqrt();
        for margin in [2.0, 3.0, 4.0] {
            let beyond = normal
                .chunks_exact(1 + 2 * terms)
                .filter(|values| {
                    let sum: f64 = values[1..]
                        .chunks_exact(4)
                        .map(|of_bit| {
                            let [e, f] = [of_bit[0], of_bit[0] / 2.0 + second * of_bit[1]];
                            each * (e * of_bit[2] + f * of_bit[3])
                        })
                        .sum();
                    (values[0] * independent.sqrt() + sum).abs() > margin
                })
                .count();
            let found = (beyond as f64 / count as f64).log2();
            let bound = log2_tail_with_products(margin, independent, products, (2.0, 2.0));
            assert!(
                found <= bound && found > bound - 4.5,
                "{margin}: {found}, {bound}"
            );
        }
    }

    #[test]
    fn the_sets_keep_what_they_promise_with_margin() {
        for (set, norm2) in [(&MESSAGE8, 17.0), (&MESSAGE14, 4.0), (&MESSAGE16, 4.0)] {
            let assumptions = Assumptions::with_margin(ArithmeticKind::Fft);
            let failure = set.log2_failure_under(assumptions, set.message_bits, norm2);
            assert!(failure <= -128.0, "{}: {failure}", set.name);
            assert!(set.log2_failure(set.message_bits, norm2) < failure);
            let of_widths =
                (1..=set.message_bits).map(|bits| set.log2_failure_under(assumptions, bits, norm2));
            assert!(of_widths.is_sorted_by(|narrow, wide| narrow < wide));
        }
    }

    #[test]
    fn products_have_the_heavier_tail() {
        let few = log2_tail_with_products(10.0, 0.5, 0.5, (10.0, 1.0));
        let many = log2_tail_with_products(10.0, 0.5, 0.5, (1e6, 1.0));
        let correlated = log2_tail_with_products(10.0, 0.5, 0.5, (5.0, 2.0));
        assert!(
            few > many + 5.0 && correlated > few,
            "{few}, {many}, {correlated}"
        );
    }
}
