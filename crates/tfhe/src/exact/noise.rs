//! Where the noise of an exact bootstrap comes from, and how likely it is that one fails.
//!
//! Variances are over the torus, as in [`crate::noise`], whose formulas hold for the blind rotations and key switches here. Beyond
//! them:
//!
//! * Trace. An automorphism's key switch adds V_a to every coefficient. Each later step of the trace doubles the constant
//!   coefficient, so that T = log2 N of them leave (4^T - 1)/3·V_a there, and (2N - 1)(N - 1)/3·V_a in all others together: with r
//!   steps to come 2^r of the N coefficients gather or cancel in the constant one, the others add up in pairs.
//! * Mask rows of a circuit-bootstrapped TRGSW sample. The body row's noise e is multiplied by the secret polynomial, N/2 ones;
//!   the key switch adds its own, whose dropped digits meet s_u·s_i, of squared norm N^3/48.
//! * Vertical packing. The digits' mean is -1/2, and the mask rows of a level share e: besides the digits' variance, which adds
//!   up incoherently, half the sum of all k·N/2 key bits multiplies e where the coefficient read is the constant one;
//!   for coefficient j it is (1 - 2j/N) times that sum. Dropped digits count where a bit is 1. The failure probability takes
//!   all of both, a bound for every place of a table; [`Stages::packing_mean`] is the mean over the places.
//!   The incoherent part is a sum of products of two Gaussians, whose tail is heavier than a Gaussian's: its Chernoff bound stands
//!   in for it.

use crate::noise::{
    Path, blind_rotation_variance, digit_mean_square, dropped_variance, fft_variance,
    key_switch_variance, loaded_key_variance, log2_add, log2_tail, modulus_switch_variance,
    row_digits,
};
use crate::params::{ExactParams, ParamSet};

/// The noise of the stages of an exact bootstrap.
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
    /// The constant coefficient of a body row of a TRGSW sample.
    pub body_row: f64,
    /// All other coefficients of a body row, summed up.
    pub body_row_rest: f64,
    /// Key switch of a mask row, in every coefficient.
    pub secret_product: f64,
    /// A coefficient of a mask row, in the mean.
    pub mask_row: f64,
    /// A bound on the Gaussian part of the vertical packing's noise, at any place of a table.
    pub packing: f64,
    /// The part that is a sum of `packing_terms` products of Gaussians.
    pub packing_products: f64,
    /// Their number.
    pub packing_terms: f64,
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

/// Noise of the stages of a set's bootstrap.
#[must_use]
pub fn stages(params: &ParamSet, exact: &ExactParams, path: Path) -> Stages {
    let n = params.ring_degree as f64;
    let k = params.glwe_dimension as f64;
    let steps = n.log2();
    let fft = |set: &ParamSet| match path {
        Path::Exact => 0.0,
        Path::Fast => fft_variance(set),
    };
    // A power of two fewer places to round to.
    let slots = f64::from(exact.log2_slots()).exp2().powi(2);

    let switch = &exact.switch;
    let switched = row_digits(switch) * n * loaded_key_variance(switch, path) + fft(switch);
    let dropped = dropped_variance(switch.gadget);
    let automorphism = switched + k * n / 2.0 * dropped;
    let secret_product = switched + k * n.powi(3) / 48.0 * dropped;

    let extract_rotation = blind_rotation_variance(&exact.extract, path);
    let trace = (4f64.powf(steps) - 1.0) / 3.0 * automorphism;
    let body_row = extract_rotation + trace;
    let body_row_rest = (2.0 * n - 1.0) * (n - 1.0) / 3.0 * automorphism;
    let body_energy = body_row + body_row_rest;
    let mask_row = body_energy / 2.0 + secret_product;

    let circuit = &exact.circuit;
    let levels = circuit.gadget.levels as f64;
    let depth = f64::from(params.message_bits);
    let turns = params.message_bits.min(params.ring_degree.trailing_zeros());
    // CMuxes of a tree; both inputs of the first are known, and have no mask.
    let selections = f64::from((params.message_bits - turns).saturating_sub(1));
    let mask_depth = f64::from(turns) + selections;
    let digits = digit_mean_square(circuit.gadget.log2_base);
    let incoherent = mask_depth * levels * k * digits * n * secret_product + depth * fft(circuit);
    let coherent = levels * (k * n / 4.0).powi(2) * body_energy;
    let dropped = depth * dropped_variance(circuit.body_gadget)
        + mask_depth * k * n / 2.0 * dropped_variance(circuit.gadget);
    let packing_products = levels * digits * (mask_depth * k * n / 2.0 + depth) * body_energy;
    // Where the turns by higher bits take the noise of a turn from: any multiple of twice its own coefficients.
    let mean_of_turns: f64 = (0..turns)
        .map(|turn| {
            let places = n / 2f64.powi(turn as i32 + 1);
            if places < 1.0 {
                1.0
            } else {
                1.0 / 3.0 + 2.0 / (3.0 * places * places)
            }
        })
        .sum();
    let mean_depth = mean_of_turns + selections / 3.0;

    let digits = exact.digits(params.message_bits + 1).len() as f64;
    let refresh_rotation = blind_rotation_variance(&exact.refresh, path);
    Stages {
        extract_key_switch: key_switch_variance(&exact.extract),
        extract_modulus_switch: slots * modulus_switch_variance(&exact.extract),
        extract_rotation,
        automorphism,
        trace,
        body_row,
        body_row_rest,
        secret_product,
        mask_row,
        packing: mask_depth * coherent + incoherent + dropped,
        packing_products,
        packing_terms: mask_depth * levels,
        packing_mean: mean_depth * coherent + incoherent + dropped / 2.0 + packing_products,
        refresh_key_switch: key_switch_variance(&exact.refresh),
        refresh_modulus_switch: modulus_switch_variance(&exact.refresh),
        refresh_rotation,
        output: digits * refresh_rotation,
    }
}

/// The part of a bootstrapped sample's variance that all samples under the same keys share
/// ([`crate::noise::shared_variance`]): every digit's blind rotation adds it.
#[must_use]
pub fn shared_variance(params: &ParamSet, exact: &ExactParams, path: Path) -> f64 {
    let digits = exact.digits(params.message_bits + 1).len() as f64;
    let refresh = &exact.refresh;
    digits.powi(2)
        * refresh.lwe_dimension as f64
        * refresh.trgsw_rows() as f64
        * refresh.ring_degree as f64
        * loaded_key_variance(refresh, path)
        / 4.0
}

/// Every decision of a bootstrap of a sample with this variance, for the worst table.
#[must_use]
pub fn decisions(
    params: &ParamSet,
    exact: &ExactParams,
    path: Path,
    input_variance: f64,
) -> Vec<Decision> {
    let stages = stages(params, exact, path);
    let mut decisions = extractions(params, &stages, input_variance);
    decisions.extend(refreshes(params, exact, &stages));
    decisions
}

/// The decisions of [`decisions`] that take the bits off a sample.
#[must_use]
pub fn extractions(params: &ParamSet, stages: &Stages, input_variance: f64) -> Vec<Decision> {
    let p = params.message_bits;
    let margin = 0.25;
    (0..p)
        .map(|bit| {
            // The bits below were taken off, each with the noise of its rotation.
            let rest = input_variance + f64::from(bit) * stages.extract_rotation;
            let variance = rest * 4f64.powi((p - bit) as i32)
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

/// The decisions of [`decisions`] that bring digits to their places: of a table of p or p + 1 bits, whichever fails more often.
#[must_use]
pub fn refreshes(params: &ParamSet, exact: &ExactParams, stages: &Stages) -> Vec<Decision> {
    let gaussian = stages.packing + stages.refresh_key_switch + stages.refresh_modulus_switch;
    let of_table = |table_bits: u32| -> Vec<Decision> {
        let mut first = 0;
        let digits = exact.digits(table_bits).into_iter();
        digits
            .map(|bits| {
                let margin = (-f64::from(bits + 1)).exp2();
                first += bits;
                Decision {
                    name: "refresh",
                    bits: (first - bits, bits),
                    margin,
                    variance: gaussian + stages.packing_products,
                    log2_failure: log2_tail_with_products(
                        margin,
                        gaussian,
                        stages.packing_products,
                        stages.packing_terms,
                    ),
                }
            })
            .collect()
    };
    let [narrow, wide] = [params.message_bits, params.message_bits + 1].map(of_table);
    if log2_any(&narrow) > log2_any(&wide) {
        narrow
    } else {
        wide
    }
}

/// log2 of the probability that any of some decisions goes wrong, at most.
#[must_use]
pub fn log2_any(decisions: &[Decision]) -> f64 {
    decisions
        .iter()
        .map(|decision| decision.log2_failure)
        .fold(f64::NEG_INFINITY, log2_add)
}

/// log2 of the probability that a bootstrap of a function of `message_bits` bits fails on a sample with this variance: any
/// decision goes wrong.
///
/// A function of fewer bits than the set's owns the entries about its messages. Then decisions on the lowest bits may go wrong
/// together with the noise that leads to them; it is enough that the phase stays within its window, less four entries for what
/// the lowest two bits leave to the others.
#[must_use]
pub fn log2_failure(
    params: &ParamSet,
    exact: &ExactParams,
    path: Path,
    message_bits: u32,
    input_variance: f64,
) -> f64 {
    let all = log2_any(&decisions(params, exact, path, input_variance));
    let spare = params.message_bits.saturating_sub(message_bits);
    if spare < 4 {
        return all;
    }
    let entry = (-f64::from(params.message_bits + 1)).exp2();
    let window = (-f64::from(message_bits + 2)).exp2() - 4.0 * entry;
    // With the phase anywhere between two entries, the third bit's margin is 7/32 of the torus: as if its variance were
    // 64/49 of what it is.
    let coarse = decisions(params, exact, path, 0.0)
        .iter()
        .filter(|decision| decision.name == "refresh" || decision.bits.0 >= 3)
        .map(|decision| match decision.name {
            "refresh" => decision.log2_failure,
            _ => log2_tail(decision.margin * 7.0 / 8.0, decision.variance),
        })
        .fold(log2_tail(window, input_variance), log2_add);
    all.min(coarse)
}

/// log2 of a bound on the probability that a Gaussian of variance `gaussian` and an independent sum of `terms` products of two
/// Gaussians, of variance `products` in all, together leave [-margin, margin].
///
/// Chernoff: 2·E[exp(t·x)]·exp(-t·margin), where a product of two Gaussians of variance v has E[exp(t·x)] =
/// (1 - t^2·v)^(-1/2). The smaller of this and, without products, the Gaussian tail itself.
fn log2_tail_with_products(margin: f64, gaussian: f64, products: f64, terms: f64) -> f64 {
    if products <= 0.0 {
        return log2_tail(margin, gaussian);
    }
    let exponent = |t: f64| {
        t * t * gaussian / 2.0 - terms / 2.0 * (1.0 - t * t * products / terms).ln() - t * margin
    };
    let (mut low, mut high) = (0.0, (terms / products).sqrt() * (1.0 - 1e-9));
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

    #[test]
    fn without_products_the_bound_is_a_gaussians() {
        for z in [4.0, 10.0, 13.5] {
            let gaussian = log2_tail(z, 1.0);
            let bound = log2_tail_with_products(z, 1.0 - 1e-9, 1e-9, 1e6);
            assert!(
                bound >= gaussian && bound < gaussian + 8.0,
                "{z}: {bound}, {gaussian}"
            );
        }
    }

    #[test]
    fn products_have_the_heavier_tail() {
        let few = log2_tail_with_products(10.0, 0.5, 0.5, 10.0);
        let many = log2_tail_with_products(10.0, 0.5, 0.5, 1e6);
        assert!(few > many + 5.0, "{few}, {many}");
    }
}
