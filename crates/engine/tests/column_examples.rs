//! The example programs on columns, against plain numbers.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::columns::{Messages, Taker};
use common::*;
use toroid_engine::backend::testing::{PlaintextBackend, decode_sample, encode_sample};
use toroid_engine::{
    Backend, CancelToken, ColumnFacts, ColumnInput, Engine, EngineConfig, EngineError, Forecast,
    MapJob, MemorySwap,
};
use toroid_isa::{Assembly, Instruction, VrNumber, assemble};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::glwe;
use toroid_tfhe::noise::Noise;
use toroid_tfhe::params::{MESSAGE16, ParamSet};

const PARAMS: &ParamSet = &MESSAGE16;

/// Numbers from 0 to `below` - 1 that look random.
fn numbers(count: usize, below: u64) -> Vec<i64> {
    let mut state = 0x1234_5678_9abc_def1u64;
    let next = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % below) as i64
    };
    (0..count).map(next).collect()
}

/// An engine with the functions of a program, and keys of no use but to be there.
fn engine_for(assembly: &Assembly) -> Engine {
    let config = EngineConfig {
        swap_bytes: 1 << 30,
        ..EngineConfig::default()
    };
    let engine = Engine::new(
        config,
        Arc::new(PlaintextBackend::new()),
        Arc::new(MemorySwap::new()),
    );
    store_keys(&engine, 0, PARAMS);
    for vector in &assembly.test_vectors {
        let encoding = |bits: Option<u32>| Encoding::new(bits.unwrap(), vector.signed).unwrap();
        let (input, output) = (encoding(vector.p_in), encoding(vector.p_out));
        let table = vector.table(PARAMS.message_bits).unwrap();
        let bytes = glwe::function_bytes(PARAMS, input, output, &table).unwrap();
        let attributes = toroid_engine::Attributes {
            encoding: Some(input),
            output: Some(output),
            ..Default::default()
        };
        engine
            .store_part(&whole(vector.vr, PARAMS, &bytes, attributes))
            .unwrap();
    }
    engine
}

/// Runs a program on columns, each a register's name with its width and values; gives the columns of the registers asked for. No result is
/// wrong with more than 2^-100.
fn run(source: &str, columns: &[(&str, u32, Vec<i64>)], outputs: &[&str]) -> Vec<Vec<u64>> {
    let assembly = assemble(source).unwrap();
    let engine = engine_for(&assembly);
    let sources: Vec<(VrNumber, Messages)> = columns
        .iter()
        .map(|(name, bits, values)| {
            let source = Messages {
                params: PARAMS,
                bits: *bits,
                values: values.clone(),
            };
            (assembly.registers[*name], source)
        })
        .collect();
    let inputs: Vec<ColumnInput<'_>> = sources
        .iter()
        .map(|(vr, source)| ColumnInput {
            vr: *vr,
            params: PARAMS,
            rows: source.values.len() as u64,
            attributes: bits(source.bits),
            source,
        })
        .collect();
    check_forecast(&assembly, &engine, &inputs);
    let outputs: Vec<VrNumber> = outputs
        .iter()
        .map(|name| assembly.registers[*name])
        .collect();
    let job = MapJob {
        program_vr: vr("prg:0:0"),
        program: &assembly.program,
        inputs: &inputs,
        outputs: &outputs,
        memory: 8 << 20,
    };
    let cancel = CancelToken::new();
    let facts = engine.plan_map(COMMAND, &job, &cancel).unwrap();
    let mut taker = Taker::new(PARAMS);
    let width = |encoding: Option<Encoding>| encoding.unwrap().bits();
    taker.widths = facts
        .outputs
        .iter()
        .map(|output| width(output.encoding))
        .collect();
    for output in &facts.outputs {
        assert!(
            output.log2_failure() < -100.0,
            "{}: 2^{}",
            output.vr,
            output.log2_failure()
        );
        let bits = width(output.encoding);
        let decoding = toroid_tfhe::noise::log2_decoding_failure(
            bits,
            output.noise.variance(),
            output.log2_failure(),
        );
        assert!(
            decoding < -100.0,
            "{} of {bits} bits: 2^{decoding}",
            output.vr
        );
    }
    engine
        .map(COMMAND, &job, None, &mut taker, &cancel)
        .unwrap();
    taker.columns
}

/// A forecast without an engine says what an engine's plan of the program's result says.
fn check_forecast(assembly: &Assembly, engine: &Engine, inputs: &[ColumnInput<'_>]) {
    let job = MapJob {
        program_vr: vr("prg:0:0"),
        program: &assembly.program,
        inputs,
        outputs: &[],
        memory: 8 << 20,
    };
    let planned = engine.plan_map(COMMAND, &job, &CancelToken::new()).unwrap();
    let facts = inputs.iter().map(|input| {
        let variance = input.attributes.log2_variance.map_or(0.0, f64::exp2);
        let facts = ColumnFacts {
            rows: input.rows,
            noise: Noise::stored(PARAMS, variance, f64::NEG_INFINITY, false),
            encoding: input.attributes.encoding,
            number: input.source.number(),
        };
        (input.vr, facts)
    });
    let known: BTreeMap<VrNumber, ColumnFacts> = facts.collect();
    let functions = |tv| {
        let mut vectors = assembly.test_vectors.iter();
        let vector = vectors.find(|vector| vector.vr == tv);
        let encoding = |bits: Option<u32>| Encoding::new(bits?, vector?.signed).ok();
        let widths = vector.map(|vector| (vector.p_in, vector.p_out));
        let (input, output) = widths.unwrap_or_default();
        (encoding(input), encoding(output))
    };
    let forecast = Forecast {
        program_vr: vr("prg:0:0"),
        program: &assembly.program,
        params: PARAMS,
        arithmetic: PlaintextBackend::new().arithmetic(),
        inputs: &known,
        functions: &functions,
    };
    let facts = forecast.facts().unwrap();
    assert_eq!(facts.bootstraps, planned.bootstraps);
    assert_eq!(facts.tasks, planned.tasks);
    let [(ours, theirs)] = facts
        .outputs
        .iter()
        .zip(&planned.outputs)
        .collect::<Vec<_>>()
        .try_into()
        .unwrap();
    assert_eq!((ours.vr, ours.rows), (theirs.vr, theirs.rows));
    assert_eq!(ours.encoding, theirs.encoding);
    let ratio = ours.noise.variance() / theirs.noise.variance();
    assert!((ratio - 1.0).abs() < 1e-9, "{ratio}");
    let (ours, theirs) = (ours.noise.log2_failure(), theirs.noise.log2_failure());
    assert!((ours - theirs).abs() < 1e-9, "{ours} {theirs}");
    // What nobody says anything of is not guessed.
    let nothing = Forecast {
        inputs: &BTreeMap::new(),
        ..forecast
    };
    let refused = nothing.facts().unwrap_err();
    assert!(matches!(refused, EngineError::NoSuchRegister { .. }));
}

fn sums(values: impl Iterator<Item = i64>) -> Vec<u64> {
    let values: Vec<i64> = values.collect();
    values
        .chunks(16)
        .map(|rows| rows.iter().sum::<i64>() as u64)
        .collect()
}

#[test]
fn filter_sums_and_counts() {
    let x = numbers(100, 256);
    let found = run(
        include_str!("../../../examples/columns/filter.tasm"),
        &[("x", 8, x.clone())],
        &["x", "count"],
    );
    let kept = |value: &&i64| **value > 100;
    let count = x.iter().filter(kept).count() as u64;
    let expected = sums(x.iter().map(|value| if *value > 100 { *value } else { 0 }));
    assert_eq!(found, [expected, vec![count]]);
}

#[test]
fn groups_are_summed_by_their_keys() {
    let (keys, values) = (numbers(50, 8), numbers(50, 256));
    let names = [
        "key", "sum1", "sum2", "sum3", "sum4", "sum5", "sum6", "sum7",
    ];
    let found = run(
        include_str!("../../../examples/columns/groups.tasm"),
        &[("key", 3, keys.clone()), ("value", 11, values.clone())],
        &names,
    );
    for (key, found) in (0..).zip(found) {
        let rows = keys.iter().zip(&values);
        let expected = sums(rows.map(|(of, value)| if *of == key { *value } else { 0 }));
        assert_eq!(found, expected, "key {key}");
    }
}

#[test]
fn a_histogram_counts_every_number_once() {
    let x = numbers(60, 256);
    let names: Vec<String> = (1..16).map(|bin| format!("bin{bin}")).collect();
    let outputs: Vec<&str> = ["x"]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .collect();
    let found = run(
        include_str!("../../../examples/columns/histogram.tasm"),
        &[("x", 8, x.clone())],
        &outputs,
    );
    for (bin, found) in (0..).zip(found) {
        let expected = x.iter().filter(|value| **value / 16 == bin).count() as u64;
        assert_eq!(found, [expected], "bin {bin}");
    }
}

#[test]
fn a_number_is_looked_up_in_a_set() {
    let set: Vec<i64> = numbers(40, 256);
    for (x, expected) in [(set[17], true), (256 - 1, set.contains(&255))] {
        let found = run(
            include_str!("../../../examples/columns/member.tasm"),
            &[("set", 10, set.clone()), ("x", 10, vec![x])],
            &["set"],
        );
        let times = set.iter().filter(|value| **value == x).count() as u64;
        assert_eq!(found, [vec![times]]);
        assert_eq!(times > 0, expected);
    }
}

#[test]
fn sixty_four_numbers_are_sorted() {
    for x in [numbers(64, 256), (0..64).rev().collect(), vec![7; 64]] {
        let found = run(
            include_str!("../../../examples/columns/sort64.tasm"),
            &[("low", 16, x.clone())],
            &["low", "median", "top"],
        );
        let mut sorted: Vec<u64> = x.iter().map(|value| *value as u64).collect();
        sorted.sort_unstable();
        let (median, top) = (vec![sorted[32]], sorted[56..].to_vec());
        assert_eq!(found, [sorted, median, top]);
    }
}

#[test]
fn the_detector_gives_alarms() {
    let assembly = assemble(include_str!("../../../examples/columns/detector.tasm")).unwrap();
    let engine = engine_for(&assembly);
    store_program(&engine, 0, PARAMS, assembly.program.instructions());
    let registers: &BTreeMap<String, VrNumber> = &assembly.registers;
    let (total, y) = (registers["total"], registers["y"]);
    assert!(
        matches!(assembly.program.instructions().last(), Some(Instruction::Return { n }) if *n == y)
    );
    let sample = |value| encode_sample(PARAMS, value, 9);
    engine
        .store_part(&whole(total, PARAMS, &sample(0), bits(9)))
        .unwrap();
    let mut sum = 0;
    for value in numbers(20, 256) {
        let bytes = sample(value);
        let part = whole(y, PARAMS, &bytes, bits(9));
        let outcome = engine
            .store_part_and_run(&part, &CancelToken::new())
            .unwrap()
            .unwrap();
        sum += value;
        let alarm = sum > 200;
        assert_eq!(decode_sample(PARAMS, &outcome.bytes, 9), u64::from(alarm));
        assert!(outcome.noise.log2_failure() < -100.0);
        if alarm {
            sum = 0;
        }
    }
}
