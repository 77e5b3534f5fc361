//! `toroid params`: the parameter sets.

mod explain;

use serde::Serialize;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::noise;
use toroid_tfhe::params::{ModulusKind, ModulusSwitch, ParamSet, StageParams, WopbsParams};
use toroid_tfhe::seeded::KeyForm;

use super::parse_param_set;
use crate::output::{Output, power_of_two};

/// Arguments of `toroid params`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    /// One set, with all its figures.
    #[arg(value_parser = parse_param_set)]
    name: Option<&'static ParamSet>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Show where the noise of a set's bootstrap comes from, and how likely each decision in it is to go wrong.
    Explain(explain::Args),
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    id: u16,
    purpose: &'static str,
    insecure: bool,
    modulus: &'static str,
    lwe_dimension: usize,
    ring_degree: usize,
    glwe_dimension: usize,
    log2_glwe_noise: f64,
    message_bits: u32,
    security_bits: u32,
    security_source: &'static str,
    sample_bytes: usize,
    test_vector_bytes: usize,
    bootstrapping_key_bytes: u64,
    key_switching_key_bytes: u64,
    seeded_bootstrapping_key_bytes: u64,
    seeded_key_switching_key_bytes: u64,
    /// log2 of standard deviations over the torus.
    log2_lwe_noise: f64,
    log2_output_noise: f64,
    #[serde(flatten)]
    plain: Option<Plain>,
    /// Of wide functions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stages: Vec<Stage>,
    failure: Vec<Failure>,
}

/// What a bootstrap of one stage has.
#[derive(Serialize)]
struct Plain {
    #[serde(flatten)]
    gadgets: Gadgets,
    mean_compensated_modulus_switch: bool,
    log2_modulus_switch_noise: f64,
    log2_blind_rotation_noise: f64,
    log2_key_switch_noise: f64,
}

#[derive(Serialize)]
struct Gadgets {
    gadget_levels: usize,
    gadget_log2_base: u32,
    body_gadget_levels: usize,
    body_gadget_log2_base: u32,
    key_switch_levels: usize,
    key_switch_log2_base: u32,
}

/// One of the stages of a wide function: what it multiplies by.
#[derive(Serialize)]
struct Stage {
    stage: &'static str,
    /// GGSW samples: n of a blind rotation.
    samples: usize,
    #[serde(flatten)]
    gadgets: Gadgets,
    /// Of its key-switching key.
    log2_lwe_noise: Option<f64>,
}

impl Gadgets {
    fn new(set: &StageParams) -> Gadgets {
        Gadgets {
            gadget_levels: set.gadget.levels,
            gadget_log2_base: set.gadget.log2_base,
            body_gadget_levels: set.body_gadget.map_or(0, |gadget| gadget.levels),
            body_gadget_log2_base: set.body_gadget.map_or(1, |gadget| gadget.log2_base),
            key_switch_levels: set.key_switch.levels,
            key_switch_log2_base: set.key_switch.log2_base,
        }
    }
}

impl Plain {
    fn new(set: &ParamSet) -> Plain {
        Plain {
            gadgets: Gadgets::new(set),
            mean_compensated_modulus_switch: set.modulus_switch == ModulusSwitch::MeanCompensated,
            log2_modulus_switch_noise: deviation(noise::modulus_switch_variance(set)),
            log2_blind_rotation_noise: deviation(noise::blind_rotation_variance(
                set,
                ArithmeticKind::Fft,
            )),
            log2_key_switch_noise: deviation(noise::key_switch_variance(set, ArithmeticKind::Fft)),
        }
    }
}

fn stages(wopbs: &WopbsParams) -> Vec<Stage> {
    [
        ("extraction", &wopbs.extract),
        ("ring key switch", &wopbs.switch),
        ("circuit", &wopbs.circuit),
        ("refresh", &wopbs.refresh),
    ]
    .map(|(stage, set)| Stage {
        stage,
        samples: set.lwe_dimension,
        gadgets: Gadgets::new(set),
        log2_lwe_noise: (set.key_switch.levels > 0).then_some(set.log2_lwe_noise),
    })
    .into()
}

/// Failure of a bootstrap whose input is a combination of bootstrapped samples with this squared norm.
#[derive(Serialize)]
struct Failure {
    message_bits: u32,
    norm2: f64,
    log2_p_fail: f64,
}

fn deviation(variance: f64) -> f64 {
    variance.log2() / 2.0
}

fn row(set: &'static ParamSet) -> Row {
    let widths: Vec<u32> = match (set.message_bits, set.wopbs) {
        (0, _) => vec![0],
        (bits, None) => (1..=(bits + 2).min(set.ring_degree.trailing_zeros())).collect(),
        // Doubled up to the set's own.
        (bits, Some(_)) => {
            let narrower = (0..)
                .map(|log2| 1 << log2)
                .take_while(|width| *width < bits);
            narrower.chain([bits]).collect()
        }
    };
    let failure = widths
        .into_iter()
        .flat_map(|bits| {
            [1.0, 2.0, 17.0].map(|norm2| Failure {
                message_bits: bits,
                norm2,
                log2_p_fail: set.log2_failure(bits, norm2),
            })
        })
        .collect();
    Row {
        name: set.name,
        id: set.id,
        purpose: set.purpose,
        insecure: set.is_insecure(),
        modulus: match set.modulus {
            ModulusKind::Torus32 => "2^32",
            ModulusKind::Goldilocks => "2^64-2^32+1",
        },
        lwe_dimension: set.lwe_dimension,
        ring_degree: set.ring_degree,
        glwe_dimension: set.glwe_dimension,
        log2_glwe_noise: set.log2_glwe_noise,
        message_bits: set.message_bits,
        security_bits: set.security.bits,
        security_source: set.security.source,
        sample_bytes: set.lwe_bytes(),
        test_vector_bytes: set.test_vector_bytes(),
        bootstrapping_key_bytes: set.bootstrapping_key_bytes(),
        key_switching_key_bytes: set.key_switching_key_bytes(),
        seeded_bootstrapping_key_bytes: KeyForm::Seeded.bootstrapping_key_bytes(set),
        seeded_key_switching_key_bytes: KeyForm::Seeded.key_switching_key_bytes(set),
        log2_lwe_noise: set.log2_lwe_noise,
        log2_output_noise: deviation(noise::bootstrap_output_variance(set, ArithmeticKind::Fft)),
        plain: (!set.is_wide()).then(|| Plain::new(set)),
        stages: set.wopbs.map(stages).unwrap_or_default(),
        failure,
    }
}

fn security(row: &Row) -> String {
    if row.insecure {
        "INSECURE".to_owned()
    } else {
        format!("{} bits", row.security_bits)
    }
}

fn message(row: &Row) -> String {
    if row.message_bits == 0 {
        "gates".to_owned()
    } else {
        format!("{} bits", row.message_bits)
    }
}

fn summary(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<10} {:<12} {:>5} {:>6} {:>2} {:>2} {:>8} {:>9} {:>9}  {}",
        "set", "modulus", "n", "N", "k", "l", "message", "security", "p_fail", "for"
    );
    for row in rows {
        let p_fail = row
            .failure
            .iter()
            .find(|f| {
                f.norm2 == if row.message_bits == 0 { 2.0 } else { 1.0 }
                    && f.message_bits == row.message_bits
            })
            .map_or(f64::NAN, |f| f.log2_p_fail);
        text += &format!(
            "\n{:<10} {:<12} {:>5} {:>6} {:>2} {:>2} {:>8} {:>9} {:>9}  {}",
            row.name,
            row.modulus,
            row.lwe_dimension,
            row.ring_degree,
            row.glwe_dimension,
            row.plain.as_ref().map_or("-".to_owned(), |plain| plain
                .gadgets
                .gadget_levels
                .to_string()),
            message(row),
            security(row),
            power_of_two(p_fail),
            row.purpose
        );
    }
    text + "\n\np_fail: one bootstrap of a function of the set's message width, on a bootstrapped sample (gates: the sum of two)."
}

fn gadget(levels: usize, log2_base: u32) -> String {
    match levels {
        0 => "-".to_owned(),
        _ => format!("{levels} levels of {log2_base} bits"),
    }
}

fn details(row: &Row) -> String {
    let lines = |rows: Vec<(&str, String)>| -> String {
        rows.iter()
            .map(|(what, figure)| format!("\n{what:<22} {figure}"))
            .collect()
    };
    let mut text = format!("{}: {}", row.name, row.purpose);
    text += &lines(vec![
        ("modulus q", row.modulus.to_owned()),
        ("LWE dimension n", row.lwe_dimension.to_string()),
        ("ring degree N", row.ring_degree.to_string()),
        ("GLWE dimension k", row.glwe_dimension.to_string()),
    ]);
    if let Some(Plain { gadgets, .. }) = &row.plain {
        text += &lines(vec![
            (
                "gadget, mask",
                gadget(gadgets.gadget_levels, gadgets.gadget_log2_base),
            ),
            (
                "gadget, body",
                gadget(gadgets.body_gadget_levels, gadgets.body_gadget_log2_base),
            ),
            (
                "key-switching gadget",
                gadget(gadgets.key_switch_levels, gadgets.key_switch_log2_base),
            ),
        ]);
    }
    text += &lines(vec![
        (
            "security",
            format!("{} ({})", security(row), row.security_source),
        ),
        ("message", format!("{}, one bit of padding", message(row))),
        ("sample", format!("{} bytes", row.sample_bytes)),
        ("test vector", format!("{} bytes", row.test_vector_bytes)),
        (
            "bootstrapping key",
            format!(
                "{} bytes (NTT domain), {} seeded",
                row.bootstrapping_key_bytes, row.seeded_bootstrapping_key_bytes
            ),
        ),
        (
            "key-switching key",
            format!(
                "{} bytes, {} seeded",
                row.key_switching_key_bytes, row.seeded_key_switching_key_bytes
            ),
        ),
    ]);
    if !row.stages.is_empty() {
        text += &format!(
            "\nstages:\n  {:<16} {:>5}  {:<20} {:<20} {:<20} {}",
            "", "n", "gadget, mask", "gadget, body", "key switch", "LWE noise"
        );
    }
    for stage in &row.stages {
        let gadgets = &stage.gadgets;
        text += &format!(
            "\n  {:<16} {:>5}  {:<20} {:<20} {:<20} {}",
            stage.stage,
            stage.samples,
            gadget(gadgets.gadget_levels, gadgets.gadget_log2_base),
            gadget(gadgets.body_gadget_levels, gadgets.body_gadget_log2_base),
            gadget(gadgets.key_switch_levels, gadgets.key_switch_log2_base),
            stage.log2_lwe_noise.map_or("-".to_owned(), power_of_two)
        );
    }
    text += "\nnoise, standard deviation over the torus:";
    let mut noise = vec![
        ("  LWE encryption", power_of_two(row.log2_lwe_noise)),
        ("  GLWE encryption", power_of_two(row.log2_glwe_noise)),
    ];
    if let Some(plain) = &row.plain {
        let mean = if plain.mean_compensated_modulus_switch {
            " (mean-compensated)"
        } else {
            ""
        };
        noise.extend([
            (
                "  modulus switch",
                power_of_two(plain.log2_modulus_switch_noise) + mean,
            ),
            (
                "  blind rotation",
                power_of_two(plain.log2_blind_rotation_noise),
            ),
            ("  key switch", power_of_two(plain.log2_key_switch_noise)),
        ]);
    }
    noise.push(("  bootstrapped sample", power_of_two(row.log2_output_noise)));
    text += &lines(noise);
    text += "\nfailure of one bootstrap, by message bits and squared norm of the combination of bootstrapped samples:";
    for failure in &row.failure {
        text += &format!(
            "\n  {:>2} bits, norm² {:>2}      {}",
            failure.message_bits,
            failure.norm2,
            power_of_two(failure.log2_p_fail)
        );
    }
    text
}

/// Shows all sets, or one, or where its noise comes from.
pub fn run(args: &Args, output: &Output) -> anyhow::Result<()> {
    if let Some(Command::Explain(args)) = &args.command {
        return explain::run(args, output);
    }
    match args.name {
        Some(set) => {
            let row = row(set);
            output.result(&row, || details(&row))
        }
        None => {
            let rows: Vec<Row> = ParamSet::ALL.into_iter().map(row).collect();
            output.result(&serde_json::json!({ "sets": rows }), || summary(&rows))
        }
    }
}
