//! Noise formulas of one stage: external products, a blind rotation, a key switch, a modulus switch; and tails of Gaussians.

use crate::arithmetic::{ArithmeticKind, FIXED_POINT_RANGE};
use crate::params::{Gadget, ModulusKind, ModulusSwitch, StageParams};

/// What the formulas take for granted of keys and of the processor. An [`ArithmeticKind`] stands for the nominal case: the
/// average over keys, and the rounding that was fitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assumptions {
    /// Which arithmetic external products are done in.
    pub arithmetic: ArithmeticKind,
    /// By how many standard deviations the ones of each key exceed half of its bits.
    pub key_deviations: f64,
    /// Factor on the standard deviation of the FFT's rounding.
    pub rounding: f64,
    /// Whether blind rotations take two key bits a step, by an unrolled bootstrapping key.
    pub unrolled: bool,
}

impl From<ArithmeticKind> for Assumptions {
    fn from(arithmetic: ArithmeticKind) -> Assumptions {
        Assumptions {
            arithmetic,
            key_deviations: 0.0,
            rounding: 1.0,
            unrolled: false,
        }
    }
}

impl Assumptions {
    /// The case that sets are chosen for: keys with more ones than 97.7 % of all keys have, and a rounding that is 5 % larger than the
    /// fitted one.
    #[must_use]
    pub fn with_margin(arithmetic: ArithmeticKind) -> Assumptions {
        Assumptions {
            arithmetic,
            key_deviations: 2.0,
            rounding: 1.05,
            unrolled: false,
        }
    }

    /// The same for an unrolled bootstrapping key.
    #[must_use]
    pub fn unrolled(self) -> Assumptions {
        Assumptions {
            unrolled: true,
            ..self
        }
    }

    /// Share of ones in a key of `dimension` bits.
    pub(crate) fn ones(&self, dimension: usize) -> f64 {
        0.5 + self.key_deviations / (2.0 * (dimension as f64).sqrt())
    }
}

/// Mean square of a signed digit of base 2^b, uniform over [-B/2, B/2).
pub(crate) fn digit_mean_square(log2_base: u32) -> f64 {
    let base = f64::from(log2_base).exp2();
    (base * base + 2.0) / 12.0
}

/// Mean squares of the digits of a GGSW sample's rows, summed up.
pub(crate) fn row_digits(params: &StageParams) -> f64 {
    (0..params.ggsw_rows())
        .map(|row| digit_mean_square(params.ggsw_row(row).1.log2_base))
        .sum()
}

/// Variance of the part of a uniform word that a gadget drops: q^2/(12 B^(2l)), over the torus.
pub(crate) fn dropped_variance(gadget: Gadget) -> f64 {
    (-2.0 * gadget.levels as f64 * f64::from(gadget.log2_base)).exp2() / 12.0
}

/// Variance that the f64 FFT adds in one external product.
///
/// A transform of N points errs by about 2^-53 sqrt(log2 N) relative to its output's norm; a product of a digit
/// polynomial (mean square B^2/12) and a uniform key polynomial (1/12) has N terms, (k+1)·l products are summed. The error
/// of a mask polynomial reaches the phase through the ones of the key, k·N/2 on average. Integers add nothing.
#[must_use]
pub fn fft_variance(params: &StageParams, assumptions: impl Into<Assumptions>) -> f64 {
    /// Square of the constant before 2^-53 sqrt(log2 N), fitted to the kernels without FMA; those with it reach 1.05.
    const FITTED: f64 = 1.25;
    let assumptions = assumptions.into();
    if assumptions.arithmetic == ArithmeticKind::Ntt {
        return 0.0;
    }
    let n = params.ring_degree as f64;
    let dimension = params.extracted_dimension();
    FITTED
        * assumptions.rounding.powi(2)
        * (1.0 + assumptions.ones(dimension) * dimension as f64)
        * (-106.0f64).exp2()
        * n.log2()
        * row_digits(params)
        * n
        / 12.0
}

/// Variance that the rounding of a body adds to each of its coefficients, beside that of whole words.
fn rounding_variance(params: &StageParams) -> f64 {
    let step = (-2.0 * f64::from(params.body_bits)).exp2();
    let unit = (-2.0 * params.modulus.log2()).exp2();
    (step - unit) / 12.0
}

/// Variance that a coefficient of the loaded bootstrapping key has in the phase of its row: the key's own noise, the rounding of
/// its body, and on the f64 arithmetic over the 32-bit torus the rounding of its spectrum to fixed point.
///
/// Ten standard deviations 2^32·sqrt(N/24) of the spectrum's parts make 2^31 steps; their rounding, brought back to
/// coefficients, is (10·2)^2/144 square units in the body, and 2^-16 of that in a mask coefficient, which reaches the phase
/// through the ones of the key.
#[must_use]
pub fn loaded_key_variance(params: &StageParams, assumptions: impl Into<Assumptions>) -> f64 {
    let assumptions = assumptions.into();
    let rounding = match (assumptions.arithmetic, params.modulus) {
        (ArithmeticKind::Fft, ModulusKind::Torus32) => {
            let steps = 2.0 * FIXED_POINT_RANGE;
            let dimension = params.extracted_dimension();
            let mask = (-16.0f64).exp2() * assumptions.ones(dimension) * dimension as f64;
            steps * steps / 144.0 * (-64.0f64).exp2() * (1.0 + mask)
        }
        _ => 0.0,
    };
    params.glwe_variance() + rounding_variance(params) + rounding
}

/// Variance added by one CMux (external product with a bootstrapping key sample).
#[must_use]
pub fn cmux_variance(params: &StageParams, assumptions: impl Into<Assumptions>) -> f64 {
    let assumptions = assumptions.into();
    // A blind rotation's key bits are uniform: the dropped part counts only where the bit is 1.
    let ones = assumptions.ones(params.lwe_dimension);
    products_variance(params, assumptions) + dropped_phase(params, assumptions) * ones
}

/// Variance of an external product beside what its gadgets drop: of the key, and of the FFT.
fn products_variance(params: &StageParams, assumptions: Assumptions) -> f64 {
    let n = params.ring_degree as f64;
    row_digits(params) * n * loaded_key_variance(params, assumptions)
        + fft_variance(params, assumptions)
}

/// Variance in the phase of what the gadgets of an external product drop.
fn dropped_phase(params: &StageParams, assumptions: Assumptions) -> f64 {
    let dimension = params.extracted_dimension();
    params.body_gadget.map_or(0.0, dropped_variance)
        + assumptions.ones(dimension) * dimension as f64 * dropped_variance(params.gadget)
}

/// Variance added by one step with two key bits of an unrolled bootstrapping key.
///
/// The three products are multiplied by X^e - 1, of norm √2, and added up. What the gadgets drop of the accumulator itself, not of a difference, is multiplied by the
/// one of these that the bits choose, unless both are 0.
#[must_use]
pub fn unrolled_step_variance(params: &StageParams, assumptions: impl Into<Assumptions>) -> f64 {
    let assumptions = assumptions.into();
    let zeros = 1.0 - assumptions.ones(params.lwe_dimension);
    let dropped = dropped_phase(params, assumptions) * (1.0 - zeros * zeros);
    2.0 * (3.0 * products_variance(params, assumptions) + dropped)
}

/// Variance after blind rotation and sample extraction, of a noiseless test vector.
#[must_use]
pub fn blind_rotation_variance(params: &StageParams, assumptions: impl Into<Assumptions>) -> f64 {
    let assumptions = assumptions.into();
    if assumptions.unrolled {
        let steps = params.lwe_dimension.div_ceil(2) as f64;
        return steps * unrolled_step_variance(params, assumptions);
    }
    params.lwe_dimension as f64 * cmux_variance(params, assumptions)
}

/// Variance added by the public functional key switch back to dimension n.
#[must_use]
pub fn key_switch_variance(params: &StageParams, assumptions: impl Into<Assumptions>) -> f64 {
    let dimension = params.extracted_dimension();
    dimension as f64
        * (params.key_switch.levels as f64
            * digit_mean_square(params.key_switch.log2_base)
            * params.lwe_variance()
            + dropped_variance(params.key_switch) * assumptions.into().ones(dimension))
}

/// Variance of the modulus switch to 2N, over the torus. The body is rounded down, which makes the windows of a test
/// vector, half open as they are, symmetric about their messages, and adds nothing.
#[must_use]
pub fn modulus_switch_variance(params: &StageParams) -> f64 {
    let n = params.lwe_dimension as f64;
    let steps = match params.modulus_switch {
        ModulusSwitch::Nearest => n / 24.0,
        ModulusSwitch::MeanCompensated => n / 48.0,
    };
    steps / (2.0 * params.ring_degree as f64).powi(2)
}

/// How far a phase may be off: half the distance 2^-(p+1) between two messages of p bits plus padding; for p = 0, a
/// Boolean gate, 1/8 (messages ±1/8, and the sum ±1/8 ±1/8 ±1/8 before a bootstrap, are that far from a change of sign).
#[must_use]
pub fn margin(message_bits: u32) -> f64 {
    match message_bits {
        0 => 0.125,
        bits => (-f64::from(bits + 2)).exp2(),
    }
}

/// log2 of the probability that a centred Gaussian of this variance leaves [-margin, margin].
///
/// Exact to a few percent of the probability for any size of tail (asymptotic series beyond 6 sigma).
#[must_use]
pub fn log2_tail(margin: f64, variance: f64) -> f64 {
    if variance <= 0.0 {
        return f64::NEG_INFINITY;
    }
    let z = margin / variance.sqrt();
    if z < 6.0 {
        return two_sided_tail(z).log2();
    }
    let z2 = z * z;
    let series = 1.0 - 1.0 / z2 + 3.0 / (z2 * z2) - 15.0 / (z2 * z2 * z2);
    -z2 / 2.0 * std::f64::consts::LOG2_E + (series * (2.0 / std::f64::consts::PI).sqrt() / z).log2()
}

/// 2·(1 - Phi(z)) for 0 <= z < 6 by Simpson's rule on the density.
fn two_sided_tail(z: f64) -> f64 {
    const STEPS: usize = 4000;
    const END: f64 = 14.0;
    let h = (END - z) / STEPS as f64;
    let density = |x: f64| (-x * x / 2.0).exp();
    let inner: f64 = (1..STEPS)
        .map(|i| density(z + h * i as f64) * if i % 2 == 1 { 4.0 } else { 2.0 })
        .sum();
    let integral = (density(z) + density(END) + inner) * h / 3.0;
    (integral * (2.0 / std::f64::consts::PI).sqrt()).min(1.0)
}

/// log2 of the union bound of two failure probabilities: 2^a + 2^b, at most 1.
#[must_use]
pub fn log2_add(a: f64, b: f64) -> f64 {
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    if low == f64::NEG_INFINITY {
        return high;
    }
    (high + (low - high).exp2().ln_1p() * std::f64::consts::LOG2_E).min(0.0)
}
