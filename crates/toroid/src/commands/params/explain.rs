//! `toroid params explain`: where the noise of a bootstrap comes from, and what it can turn.

use serde::Serialize;
use toroid_drive::image::display_size;
use toroid_tfhe::TfheError;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::encoding::MAX_MESSAGE_BITS;
use toroid_tfhe::noise::{self, Assumptions};
use toroid_tfhe::params::{ParamSet, WopbsParams};
use toroid_tfhe::seeded::KeyForm;
use toroid_tfhe::wopbs;

use super::deviation;
use crate::commands::parse_param_set;
use crate::output::{Output, power_of_two};

/// Arguments of `toroid params explain`.
#[derive(clap::Args)]
pub struct Args {
    /// The set.
    #[arg(value_parser = parse_param_set)]
    name: &'static ParamSet,
    /// Squared norm of the combination of bootstrapped samples that is bootstrapped; 1 if not given, for Boolean gates 2.
    #[arg(long, value_parser = parse_norm2)]
    norm2: Option<f64>,
    /// Bits of the message that is bootstrapped; the set's if not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_MESSAGE_BITS)))]
    bits: Option<u32>,
}

fn parse_norm2(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(norm2) if norm2.is_finite() && norm2 >= 0.0 => Ok(norm2),
        _ => Err("a number that is at least 0 expected".to_owned()),
    }
}

/// A source of noise.
#[derive(Serialize)]
struct Noise {
    stage: &'static str,
    name: &'static str,
    /// log2 of the standard deviation over the torus.
    log2_deviation: f64,
}

/// A choice that noise can turn.
#[derive(Serialize)]
struct Decision {
    stage: &'static str,
    /// First bit that it decides on, and how many.
    first_bit: u32,
    bits: u32,
    log2_margin: f64,
    log2_deviation: f64,
    log2_p_fail: f64,
    /// The same under [`Assumptions::with_margin`].
    log2_p_fail_with_margin: f64,
}

/// What an unrolled bootstrapping key makes of a set.
#[derive(Serialize)]
struct Unrolled {
    /// Bytes of the bootstrapping key in its seeded form, and of the ordinary one.
    seeded_bytes: u64,
    seeded_bytes_ordinary: u64,
    /// log2 of the standard deviation of a bootstrapped sample.
    log2_deviation: f64,
    log2_p_fail: f64,
    log2_p_fail_with_margin: f64,
}

#[derive(Serialize)]
struct Explanation {
    name: &'static str,
    purpose: &'static str,
    message_bits: u32,
    norm2: f64,
    log2_input_deviation: f64,
    noise: Vec<Noise>,
    decisions: Vec<Decision>,
    log2_p_fail: f64,
    log2_p_fail_with_margin: f64,
    /// Nothing for sets of wide functions.
    unrolled: Option<Unrolled>,
}

fn of_unrolled(params: &ParamSet, bits: u32, norm2: f64) -> Option<Unrolled> {
    if params.is_wide() {
        return None;
    }
    let assumptions = Assumptions::from(ArithmeticKind::Fft).unrolled();
    let margin = Assumptions::with_margin(ArithmeticKind::Fft).unrolled();
    Some(Unrolled {
        seeded_bytes: KeyForm::Seeded.ggsw_list_bytes(&params.unrolled()),
        seeded_bytes_ordinary: KeyForm::Seeded.ggsw_list_bytes(params),
        log2_deviation: deviation(noise::bootstrap_output_variance(params, assumptions)),
        log2_p_fail: params.log2_failure_under(assumptions, bits, norm2),
        log2_p_fail_with_margin: params.log2_failure_under(margin, bits, norm2),
    })
}

fn of_wopbs(params: &ParamSet, wopbs: &WopbsParams, bits: u32) -> Vec<Noise> {
    let stages = wopbs::noise::stages(params, wopbs, ArithmeticKind::Fft, bits);
    [
        ("extraction", "key switch", stages.extract_key_switch),
        (
            "extraction",
            "modulus switch",
            stages.extract_modulus_switch,
        ),
        ("extraction", "blind rotation", stages.extract_rotation),
        ("circuit bootstrap", "an automorphism", stages.automorphism),
        ("circuit bootstrap", "trace", stages.trace),
        (
            "circuit bootstrap",
            "body row, constant coefficient",
            stages.body_row,
        ),
        (
            "circuit bootstrap",
            "body row, the other coefficients",
            stages.body_row_rest,
        ),
        (
            "circuit bootstrap",
            "product by a secret",
            stages.secret_product,
        ),
        (
            "circuit bootstrap",
            "mask row, a coefficient",
            stages.mask_row,
        ),
        ("vertical packing", "at most: of its own", stages.packing),
        (
            "vertical packing",
            "at most: rows times digits",
            stages.packing_products,
        ),
        (
            "vertical packing",
            "mean over a table's places",
            stages.packing_mean,
        ),
        ("refresh", "key switch", stages.refresh_key_switch),
        ("refresh", "modulus switch", stages.refresh_modulus_switch),
        (
            "refresh",
            "blind rotation of a digit",
            stages.refresh_rotation,
        ),
        ("refresh", "bootstrapped sample", stages.output),
    ]
    .map(|(stage, name, variance)| Noise {
        stage,
        name,
        log2_deviation: deviation(variance),
    })
    .into()
}

fn of_plain(params: &ParamSet) -> Vec<Noise> {
    let rotation = noise::blind_rotation_variance(params, ArithmeticKind::Fft);
    let switch = noise::key_switch_variance(params, ArithmeticKind::Fft);
    [
        ("modulus switch", noise::modulus_switch_variance(params)),
        ("a CMux", noise::cmux_variance(params, ArithmeticKind::Fft)),
        ("blind rotation", rotation),
        ("key switch", switch),
        ("bootstrapped sample", rotation + switch),
    ]
    .map(|(name, variance)| Noise {
        stage: "bootstrap",
        name,
        log2_deviation: deviation(variance),
    })
    .into()
}

fn explain(params: &'static ParamSet, bits: u32, norm2: Option<f64>) -> Explanation {
    let norm2 = norm2.unwrap_or(if bits == 0 { 2.0 } else { 1.0 });
    let input = norm2 * noise::bootstrap_output_variance(params, ArithmeticKind::Fft);
    let margin = Assumptions::with_margin(ArithmeticKind::Fft);
    let log2_p_fail_with_margin = params.log2_failure_under(margin, bits, norm2);
    let decisions = match params.wopbs {
        Some(wopbs) => wopbs::noise::decisions(params, wopbs, ArithmeticKind::Fft, bits, input)
            .iter()
            .zip(wopbs::noise::decisions(
                params,
                wopbs,
                margin,
                bits,
                norm2 * noise::bootstrap_output_variance(params, margin),
            ))
            .map(|(decision, with_margin)| Decision {
                stage: decision.name,
                first_bit: decision.bits.0,
                bits: decision.bits.1,
                log2_margin: decision.margin.log2(),
                log2_deviation: deviation(decision.variance),
                log2_p_fail: decision.log2_failure,
                log2_p_fail_with_margin: with_margin.log2_failure,
            })
            .collect(),
        None => vec![Decision {
            stage: "bootstrap",
            first_bit: 0,
            bits: bits.max(1),
            log2_margin: noise::margin(bits).log2(),
            log2_deviation: deviation(input + noise::modulus_switch_variance(params)),
            log2_p_fail: params.log2_failure(bits, norm2),
            log2_p_fail_with_margin,
        }],
    };
    Explanation {
        name: params.name,
        purpose: params.purpose,
        message_bits: bits,
        norm2,
        log2_input_deviation: deviation(input),
        noise: match params.wopbs {
            Some(wopbs) => of_wopbs(params, wopbs, bits),
            None => of_plain(params),
        },
        decisions,
        log2_p_fail: params.log2_failure(bits, norm2),
        log2_p_fail_with_margin,
        unrolled: of_unrolled(params, bits, norm2),
    }
}

fn text(explanation: &Explanation) -> String {
    let mut text = format!(
        "{}: {}\n\nnoise, standard deviation over the torus:\n{:<20} {:<34} {:>9}",
        explanation.name, explanation.purpose, "stage", "source", "deviation"
    );
    let mut stage = "";
    for noise in &explanation.noise {
        let shown = if noise.stage == stage {
            ""
        } else {
            noise.stage
        };
        stage = noise.stage;
        text += &format!(
            "\n{shown:<20} {:<34} {:>9}",
            noise.name,
            power_of_two(noise.log2_deviation)
        );
    }
    let message = match explanation.message_bits {
        0 => String::new(),
        bits => format!(" on a message of {bits} bits"),
    };
    text += &format!(
        "\n\ndecisions{message}, for bootstrapped samples of norm² {} (deviation {}):\n{:<20} {:>7} {:>9} {:>9} {:>17} {:>13} {:>13}",
        explanation.norm2,
        power_of_two(explanation.log2_input_deviation),
        "stage",
        "bits",
        "margin",
        "deviation",
        "margin/deviation",
        "p_fail",
        "with margin"
    );
    for decision in &explanation.decisions {
        let last = decision.first_bit + decision.bits - 1;
        let bits = if last == decision.first_bit {
            last.to_string()
        } else {
            format!("{}-{last}", decision.first_bit)
        };
        text += &format!(
            "\n{:<20} {bits:>7} {:>9} {:>9} {:>17.2} {:>13} {:>13}",
            decision.stage,
            power_of_two(decision.log2_margin),
            power_of_two(decision.log2_deviation),
            (decision.log2_margin - decision.log2_deviation).exp2(),
            power_of_two(decision.log2_p_fail),
            power_of_two(decision.log2_p_fail_with_margin)
        );
    }
    text += &format!(
        "\n{:<20} {:>59} {:>13}\n\nwith margin: keys with more ones than 97.7 % of all keys have, and an FFT that rounds 5 % more coarsely.",
        "any of them",
        power_of_two(explanation.log2_p_fail),
        power_of_two(explanation.log2_p_fail_with_margin)
    );
    if let Some(unrolled) = &explanation.unrolled {
        text += &format!(
            "\n\nwith an unrolled bootstrapping key (two key bits a step, {} in its seeded form in place of {}): a bootstrapped sample deviates by {}; p_fail {}, with margin {}",
            display_size(unrolled.seeded_bytes),
            display_size(unrolled.seeded_bytes_ordinary),
            power_of_two(unrolled.log2_deviation),
            power_of_two(unrolled.log2_p_fail),
            power_of_two(unrolled.log2_p_fail_with_margin)
        );
    }
    text
}

/// Explains one set.
pub fn run(args: &Args, output: &Output) -> anyhow::Result<()> {
    let bits = args.bits.unwrap_or(args.name.message_bits);
    if args.name.is_wide() && bits > args.name.message_bits {
        anyhow::bail!(TfheError::MessageTooWide {
            bits,
            found: args.name.message_bits,
            params: args.name.name,
        });
    }
    let explanation = explain(args.name, bits, args.norm2);
    output.result(&explanation, || text(&explanation))
}
