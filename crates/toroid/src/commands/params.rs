//! `toroid params`: the parameter sets.

use serde::Serialize;
use toroid_tfhe::noise::{self, Path};
use toroid_tfhe::params::{ModulusKind, ModulusSwitch, ParamSet};
use toroid_tfhe::seeded::KeyForm;

use super::parse_param_set;
use crate::output::{Output, power_of_two};

/// Arguments of `toroid params`.
#[derive(clap::Args)]
pub struct Args {
    /// One set, with all its figures.
    #[arg(value_parser = parse_param_set)]
    name: Option<&'static ParamSet>,
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
    gadget_levels: usize,
    gadget_log2_base: u32,
    body_gadget_levels: usize,
    body_gadget_log2_base: u32,
    key_switch_levels: usize,
    key_switch_log2_base: u32,
    log2_lwe_noise: f64,
    log2_glwe_noise: f64,
    mean_compensated_modulus_switch: bool,
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
    log2_modulus_switch_noise: f64,
    log2_blind_rotation_noise: f64,
    log2_key_switch_noise: f64,
    log2_output_noise: f64,
    failure: Vec<Failure>,
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
    let bits: Vec<u32> = if set.message_bits == 0 {
        vec![0]
    } else {
        (1..=(set.message_bits + 2).min(set.ring_degree.trailing_zeros())).collect()
    };
    let failure = bits
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
        gadget_levels: set.gadget.levels,
        gadget_log2_base: set.gadget.log2_base,
        body_gadget_levels: set.body_gadget.levels,
        body_gadget_log2_base: set.body_gadget.log2_base,
        key_switch_levels: set.key_switch.levels,
        key_switch_log2_base: set.key_switch.log2_base,
        log2_lwe_noise: set.log2_lwe_noise,
        log2_glwe_noise: set.log2_glwe_noise,
        mean_compensated_modulus_switch: set.modulus_switch == ModulusSwitch::MeanCompensated,
        message_bits: set.message_bits,
        security_bits: set.security.bits,
        security_source: set.security.source,
        sample_bytes: set.tlwe_bytes(),
        test_vector_bytes: set.test_vector_bytes(),
        bootstrapping_key_bytes: set.bootstrapping_key_bytes(),
        key_switching_key_bytes: set.key_switching_key_bytes(),
        seeded_bootstrapping_key_bytes: KeyForm::Seeded.bootstrapping_key_bytes(set),
        seeded_key_switching_key_bytes: KeyForm::Seeded.key_switching_key_bytes(set),
        log2_modulus_switch_noise: deviation(noise::modulus_switch_variance(set)),
        log2_blind_rotation_noise: deviation(noise::blind_rotation_variance(set, Path::Fast)),
        log2_key_switch_noise: deviation(noise::key_switch_variance(set)),
        log2_output_noise: deviation(noise::bootstrap_output_variance(set, Path::Fast)),
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
        "{:<9} {:<12} {:>5} {:>6} {:>2} {:>2} {:>8} {:>9} {:>9}  {}",
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
            "\n{:<9} {:<12} {:>5} {:>6} {:>2} {:>2} {:>8} {:>9} {:>9}  {}",
            row.name,
            row.modulus,
            row.lwe_dimension,
            row.ring_degree,
            row.glwe_dimension,
            row.gadget_levels,
            message(row),
            security(row),
            power_of_two(p_fail),
            row.purpose
        );
    }
    text + "\n\np_fail: one bootstrap of a function of the set's message width, on a bootstrapped sample (gates: the sum of two)."
}

fn details(row: &Row) -> String {
    let mut text = format!(
        "{}: {}\n\
         modulus q              {}\n\
         LWE dimension n        {}\n\
         ring degree N          {}\n\
         GLWE dimension k       {}\n\
         gadget, mask           {} levels of {} bits\n\
         gadget, body           {} levels of {} bits\n\
         key-switching gadget   {} levels of {} bits\n\
         security               {} ({})\n\
         message                {}, one bit of padding\n\
         sample                 {} bytes\n\
         test vector            {} bytes\n\
         bootstrapping key      {} bytes (NTT domain), {} seeded\n\
         key-switching key      {} bytes, {} seeded\n\
         noise, standard deviation over the torus:\n\
         \x20 TLWE encryption      {}\n\
         \x20 TRLWE encryption     {}\n\
         \x20 modulus switch       {}{}\n\
         \x20 blind rotation       {}\n\
         \x20 key switch           {}\n\
         \x20 bootstrapped sample  {}\n\
         failure of one bootstrap, by message bits and squared norm of the combination of bootstrapped samples:",
        row.name,
        row.purpose,
        row.modulus,
        row.lwe_dimension,
        row.ring_degree,
        row.glwe_dimension,
        row.gadget_levels,
        row.gadget_log2_base,
        row.body_gadget_levels,
        row.body_gadget_log2_base,
        row.key_switch_levels,
        row.key_switch_log2_base,
        security(row),
        row.security_source,
        message(row),
        row.sample_bytes,
        row.test_vector_bytes,
        row.bootstrapping_key_bytes,
        row.seeded_bootstrapping_key_bytes,
        row.key_switching_key_bytes,
        row.seeded_key_switching_key_bytes,
        power_of_two(row.log2_lwe_noise),
        power_of_two(row.log2_glwe_noise),
        power_of_two(row.log2_modulus_switch_noise),
        if row.mean_compensated_modulus_switch {
            " (mean-compensated)"
        } else {
            ""
        },
        power_of_two(row.log2_blind_rotation_noise),
        power_of_two(row.log2_key_switch_noise),
        power_of_two(row.log2_output_noise),
    );
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

/// Shows all sets, or one.
pub fn run(args: &Args, output: &Output) -> anyhow::Result<()> {
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
