//! Programs on columns against a plain interpreter.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::columns::{Messages, Taker};
use common::*;
use proptest::prelude::*;
use toroid_engine::backend::testing::{PlaintextBackend, encode_sample};
use toroid_engine::{
    CancelToken, Checkpoint, ColumnInput, Engine, EngineError, MapFacts, MapJob, MapOutput,
    MemorySwap,
};
use toroid_isa::{Instruction, Program, VrNumber, assemble};
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::noise::bootstrap_output_variance;
use toroid_tfhe::params::{ParamSet, TINY, TINY_WOPBS};

fn f(tv: u32, message: u64) -> u64 {
    match tv {
        0 => message * message,
        1 => u64::from(message > 3),
        _ => message + 5,
    }
}

/// What a bootstrap makes of a message and its padding bit.
fn bootstrap(params: &ParamSet, tv: u32, message: i64) -> i64 {
    let count = 1 << params.message_bits;
    let (low, high) = (message % count, message / count);
    let value = f(tv, low as u64) as i64;
    if high == 1 && !params.is_wide() {
        -value
    } else {
        value
    }
}

/// The program on plain numbers; `None` where numbers of rows do not fit.
fn interpret(
    params: &ParamSet,
    program: &[Instruction],
    mut registers: BTreeMap<VrNumber, Vec<i64>>,
    outputs: &[VrNumber],
) -> Option<Vec<Vec<u64>>> {
    let modulus = 2i64 << params.message_bits;
    let wrap = |column: Vec<i64>| column.into_iter().map(|v| v.rem_euclid(modulus)).collect();
    let zip = |a: &[i64], b: &[i64], sign: i64| -> Option<Vec<i64>> {
        let rows = a.len().max(b.len());
        let fits = |column: &[i64]| column.len() == rows || column.len() == 1;
        (fits(a) && fits(b)).then(|| {
            let row = |column: &[i64], i: usize| column[if column.len() == 1 { 0 } else { i }];
            (0..rows).map(|i| row(a, i) + sign * row(b, i)).collect()
        })
    };
    let mut stack = Vec::new();
    for instruction in program {
        let (register, column): (VrNumber, Vec<i64>) = match *instruction {
            Instruction::Return { .. } => break,
            Instruction::Move { dst, src } => (dst, registers[&src].clone()),
            Instruction::Push { n } => {
                stack.push(registers[&n].clone());
                continue;
            }
            Instruction::Pop { n } => (n, stack.pop().unwrap()),
            Instruction::Bootstrap { tv, n } => {
                let rows = registers[&n].iter();
                (
                    n,
                    rows.map(|row| bootstrap(params, tv.data_id(), *row))
                        .collect(),
                )
            }
            Instruction::HomAdd { dst, src } => (dst, zip(&registers[&dst], &registers[&src], 1)?),
            Instruction::HomSub { dst, src } => (dst, zip(&registers[&dst], &registers[&src], -1)?),
            Instruction::HomIntMult { n, v } => (
                n,
                registers[&n].iter().map(|row| row * i64::from(v)).collect(),
            ),
            Instruction::HomIntAdd { n, v } => (
                n,
                registers[&n].iter().map(|row| row + i64::from(v)).collect(),
            ),
            Instruction::HomSum { n, g } => {
                let column = &registers[&n];
                let group = if g == 0 { column.len() } else { g as usize };
                (
                    n,
                    column.chunks(group).map(|rows| rows.iter().sum()).collect(),
                )
            }
            Instruction::Lower { n, d } | Instruction::Upper { n, d } => {
                let (column, d) = (&registers[&n], d as usize);
                if column.len() % (2 * d) != 0 {
                    return None;
                }
                let upper = matches!(instruction, Instruction::Upper { .. });
                let rows = (0..column.len()).filter(|row| (row / d % 2 == 1) == upper);
                (n, rows.map(|row| column[row]).collect())
            }
            Instruction::Join { lower, upper, d } => {
                let (a, b, d) = (&registers[&lower], &registers[&upper], d as usize);
                if a.len() != b.len() || a.len() % d != 0 {
                    return None;
                }
                let blocks = a.chunks(d).zip(b.chunks(d));
                (lower, blocks.flat_map(|(a, b)| [a, b].concat()).collect())
            }
        };
        registers.insert(register, wrap(column));
    }
    let output = |vr: &VrNumber| registers[vr].iter().map(|row| *row as u64).collect();
    Some(outputs.iter().map(output).collect())
}

/// An engine with keys, three functions, and a single sample in cor:0:9.
fn prepared(params: &'static ParamSet, single: i64) -> (Engine, Arc<PlaintextBackend>) {
    prepared_with(params, single, 1)
}

/// The same, of a back end that likes so many tasks at once.
fn prepared_with(
    params: &'static ParamSet,
    single: i64,
    hint: usize,
) -> (Engine, Arc<PlaintextBackend>) {
    let backend = Arc::new(PlaintextBackend::new().with_batch_hint(hint));
    let shared: Arc<dyn toroid_engine::Backend> = backend.clone();
    let mut sizes = config(1 << 20);
    sizes.swap_bytes = 64 << 20;
    let engine = Engine::new(sizes, shared, Arc::new(MemorySwap::new()));
    store_keys(&engine, 0, params);
    for tv in 0..3 {
        store_function(&engine, vr(&format!("tv:0:{tv}")), params, |m| f(tv, m));
    }
    store_message(&engine, cor(0, 9), params, single);
    (engine, backend)
}

struct Case {
    params: &'static ParamSet,
    columns: Vec<Vec<i64>>,
    program: Program,
    outputs: Vec<VrNumber>,
    memory: u64,
}

impl Case {
    fn run(
        &self,
        engine: &Engine,
        from: Option<Checkpoint>,
        taker: &mut Taker,
    ) -> Result<MapFacts, EngineError> {
        let sources: Vec<Messages> = self
            .columns
            .iter()
            .map(|values| Messages {
                params: self.params,
                bits: self.params.message_bits,
                values: values.clone(),
            })
            .collect();
        let inputs: Vec<ColumnInput<'_>> = (0..)
            .zip(&sources)
            .map(|(id, source)| ColumnInput {
                vr: cor(0, id),
                params: self.params,
                rows: source.values.len() as u64,
                attributes: bits(self.params.message_bits),
                source,
            })
            .collect();
        let job = MapJob {
            program_vr: vr("prg:0:0"),
            program: &self.program,
            inputs: &inputs,
            outputs: &self.outputs,
            memory: self.memory,
        };
        let cancel = CancelToken::new();
        let planned = engine.plan_map(COMMAND, &job, &cancel);
        let facts = engine.map(COMMAND, &job, from, taker, &cancel)?;
        assert_eq!(planned.unwrap().bootstraps, facts.bootstraps);
        Ok(facts)
    }
}

/// An operation and its operands, registers 0 to 3 and the single sample in 9.
fn operation() -> impl Strategy<Value = (u8, u32, u32, u32)> {
    let register = prop_oneof![8 => 0..4u32, 1 => Just(9u32)];
    (0..12u8, 0..4u32, register, 0..4u32)
}

/// The instructions of random operations, with pushes and pops balanced.
fn program_of(operations: &[(u8, u32, u32, u32)]) -> Vec<Instruction> {
    let mut depth = 0;
    let mut program = Vec::new();
    for (operation, a, b, number) in operations {
        let (n, src) = (cor(0, *a), cor(0, *b));
        let v = *number as i32 - 2;
        let d = 1 << number;
        program.push(match operation {
            0 => Instruction::Move { dst: n, src },
            1 if depth < 3 => {
                depth += 1;
                Instruction::Push { n: src }
            }
            2 if depth > 0 => {
                depth -= 1;
                Instruction::Pop { n }
            }
            1..=4 => Instruction::Bootstrap {
                tv: vr(&format!("tv:0:{}", number % 3)),
                n,
            },
            5 => Instruction::HomAdd { dst: n, src },
            6 => Instruction::HomSub { dst: n, src },
            7 => Instruction::HomIntMult { n, v },
            8 => Instruction::HomIntAdd { n, v },
            9 => Instruction::HomSum { n, g: *number },
            10 if number % 2 == 0 => Instruction::Lower { n, d },
            10 => Instruction::Upper { n, d },
            _ => Instruction::Join {
                lower: n,
                upper: src,
                d,
            },
        });
    }
    program.extend((0..depth).map(|_| Instruction::Pop { n: cor(0, 3) }));
    program.push(Instruction::Return { n: cor(0, 0) });
    program
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_programs_do_what_the_interpreter_does(
        operations in prop::collection::vec(operation(), 1..25),
        rows in prop::sample::select(vec![1usize, 2, 8, 16, 24, 37]),
        seed in any::<u64>(),
        tiles in 1..20u64,
        wide in any::<bool>(),
        hint in prop::sample::select(vec![1usize, 4, 64]),
    ) {
        let params = if wide { &TINY_WOPBS } else { &TINY };
        let value = |i: u64| (seed.wrapping_mul(2 * i + 1) >> 40) as i64 % (1 << params.message_bits);
        let columns: Vec<Vec<i64>> = (0..4u64)
            .map(|c| (0..rows as u64).map(|r| value(100 * c + r)).collect())
            .collect();
        let instructions = program_of(&operations);
        let outputs = vec![cor(0, 2), cor(0, 0), cor(0, 1)];
        let mut registers: BTreeMap<_, _> =
            (0..).zip(&columns).map(|(id, column)| (cor(0, id), column.clone())).collect();
        registers.insert(cor(0, 9), vec![value(7)]);
        let expected = interpret(params, &instructions, registers, &outputs);
        let case = Case {
            params,
            columns,
            program: Program::new(instructions).unwrap(),
            outputs,
            memory: tiles * 20 * params.lwe_bytes() as u64,
        };
        let (engine, backend) = prepared_with(params, value(7), hint);
        let mut taker = Taker::new(params);
        let outcome = case.run(&engine, None, &mut taker);
        match (expected, outcome) {
            (Some(expected), Ok(facts)) => {
                prop_assert_eq!(&taker.columns, &expected);
                prop_assert_eq!(backend.bootstraps(), facts.bootstraps);
                let rows: Vec<u64> = expected.iter().map(|column| column.len() as u64).collect();
                let stated: Vec<u64> = facts.outputs.iter().map(|output| output.rows).collect();
                prop_assert_eq!(rows, stated);
            }
            (None, Err(EngineError::Rows { .. })) => prop_assert!(taker.columns.is_empty()),
            (expected, outcome) => prop_assert!(false, "{expected:?} and {outcome:?}"),
        }
        prop_assert_eq!(engine.paging().resident_pages + engine.paging().swapped_pages, 1);
    }

    #[test]
    fn runs_that_are_stopped_and_go_on_compute_nothing_twice(
        stops in prop::collection::vec(0..4usize, 0..6),
        rows in 1..60usize,
        tiles in 1..9u64,
    ) {
        let params = &TINY;
        let columns = vec![(0..rows as i64).map(|r| r % 16).collect::<Vec<_>>()];
        let source = "
            .reg x = cor:0
            .reg kept = cor:1
            .reg pairs = cor:2
            .reg total = cor:3
            .tv above @1 = x > 3
            .tv five @2 = x + 5
            mov kept, x
            bootstrap [five, above], [x, kept], x
            mov pairs, kept
            homsum pairs, 2
            mov total, kept
            homsum total, 0
            homintadd total, 1
            return x
        ";
        let program = assemble(source).unwrap().program;
        let outputs: Vec<VrNumber> = (0..4).map(|id| cor(0, id)).collect();
        let registers = BTreeMap::from([(cor(0, 0), columns[0].clone())]);
        let expected = interpret(params, program.instructions(), registers, &outputs).unwrap();
        let case = Case { params, columns, program, outputs, memory: tiles * 9 * params.lwe_bytes() as u64 };
        let (engine, backend) = prepared(params, 0);
        let mut taker = Taker::new(params);
        for stop in stops {
            taker.left = Some(stop);
            let from = taker.checkpoint.clone();
            match case.run(&engine, Some(from), &mut taker) {
                Err(EngineError::Column { source, .. }) => prop_assert_eq!(source.to_string(), "stopped by the test"),
                other => {
                    prop_assert!(other.is_ok(), "{other:?}");
                    break;
                }
            }
        }
        if taker.columns.get(3).is_none_or(Vec::is_empty) {
            taker.left = None;
            let from = taker.checkpoint.clone();
            case.run(&engine, Some(from), &mut taker).unwrap();
        }
        prop_assert_eq!(&taker.columns, &expected);
        prop_assert_eq!(backend.bootstraps(), 2 * rows as u64);
    }
}

#[test]
fn functions_of_few_rows_that_do_not_depend_on_each_other_go_together() {
    let params = &TINY;
    let source = "
        .reg x = cor:0
        .reg y = cor:1
        .reg z = cor:2
        .tv above @1 = x > 3
        .tv five @2 = x + 5
        bootstrap above, x
        homadd x, cor:9
        bootstrap five, y
        homadd y, x
        bootstrap above, z
        homadd x, z
        bootstrap five, x
        homadd x, y
        return x
    ";
    let program = assemble(source).unwrap().program;
    // Of the first depth there are three tasks a row, behind them one.
    for (hint, rows, memory, batches) in [
        (1, 1, 1 << 20, 4),
        (2, 1, 1 << 20, 3),
        (8, 1, 1 << 20, 2),
        (8, 2, 1 << 20, 2),
        (8, 8, 1 << 20, 4),
        // Memory for what lives at a time, but not for all values.
        (8, 1, 6 * params.lwe_bytes() as u64, 4),
    ] {
        let columns: Vec<Vec<i64>> = (0..3i64)
            .map(|column| (0..rows).map(|row| (3 * column + row) % 8).collect())
            .collect();
        let mut registers: BTreeMap<_, _> = (0..)
            .zip(columns.clone())
            .map(|(id, column)| (cor(0, id), column))
            .collect();
        registers.insert(cor(0, 9), vec![1]);
        let outputs = vec![cor(0, 0)];
        let expected = interpret(params, program.instructions(), registers, &outputs).unwrap();
        let (engine, backend) = prepared_with(params, 1, hint);
        let case = Case {
            params,
            columns,
            program: program.clone(),
            outputs,
            memory,
        };
        let mut taker = Taker::new(params);
        case.run(&engine, None, &mut taker).unwrap();
        assert_eq!(taker.columns, expected);
        assert_eq!(
            (backend.batches(), backend.tasks()),
            (batches, 4 * rows as u64),
            "{hint} {rows} {memory}"
        );
    }
}

#[test]
fn a_table_of_errors() {
    let params = &TINY;
    let (engine, _) = prepared(params, 1);
    let run = |source: &str, rows: [usize; 2]| {
        let case = Case {
            params,
            columns: rows.map(|rows| vec![1; rows]).to_vec(),
            program: assemble(source).unwrap().program,
            outputs: Vec::new(),
            memory: 1 << 20,
        };
        case.run(&engine, None, &mut Taker::new(params))
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    for (source, rows, expected) in [
        (
            "homadd cor:0, cor:1\nreturn cor:0",
            [4, 6],
            "program prg:0:0, instruction 0, `homadd cor:0:0, cor:0:1`: 4 and 6 rows found, equally many or a single one expected",
        ),
        (
            "lower cor:0, 4\nreturn cor:0",
            [12, 1],
            "program prg:0:0, instruction 0, `lower cor:0:0, 4`: 12 rows found, a multiple of 8 expected",
        ),
        (
            "join cor:0, cor:1, 4\nreturn cor:0",
            [4, 8],
            "program prg:0:0, instruction 0, `join cor:0:0, cor:0:1, 4`: 4 and 8 rows found, equally many and a multiple of 4 expected",
        ),
        (
            "return cor:0",
            [0, 1],
            "column cor:0:0: 0 rows found (1 to 1099511627776 expected), or the column stands twice among the inputs",
        ),
        (
            "return cor:5",
            [1, 1],
            "program prg:0:0 cannot run: instruction 0, `return cor:0:5`: cor:0:5 is read, but the drive has no such register and nothing has written it before",
        ),
    ] {
        assert_eq!(run(source, rows), expected);
    }
    // 41 doublings of one row would be too many rows.
    let doublings = format!("{}return cor:0", "join cor:0, cor:0, 1\n".repeat(41));
    assert!(
        run(&doublings, [1, 1]).contains("2199023255552 rows made, at most 1099511627776 expected")
    );
}

#[test]
fn noise_and_failures_of_columns_are_those_of_their_rows() {
    let params = &TINY;
    let (engine, _) = prepared(params, 1);
    let facts = |source: &str| {
        let case = Case {
            params,
            columns: vec![vec![1; 64], vec![1; 64], vec![2; 64]],
            program: assemble(source).unwrap().program,
            outputs: Vec::new(),
            memory: 1 << 20,
        };
        let facts = case.run(&engine, None, &mut Taker::new(params)).unwrap();
        facts.outputs[0].clone()
    };
    let fresh = params.lwe_variance();
    let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-6, "{a} {b}");
    close(facts("return cor:0").noise.variance(), fresh);
    close(
        facts("homsum cor:0, 16\nreturn cor:0").noise.variance(),
        16.0 * fresh,
    );
    close(
        facts("homadd cor:0, cor:0\nhomsum cor:0, 0\nreturn cor:0")
            .noise
            .variance(),
        256.0 * fresh,
    );
    // The same column in another register is the same source, another column is not.
    close(
        facts("homadd cor:0, cor:1\nreturn cor:0").noise.variance(),
        4.0 * fresh,
    );
    close(
        facts("homadd cor:0, cor:2\nreturn cor:0").noise.variance(),
        2.0 * fresh,
    );
    // A single sample that goes with all rows counts as often as there are rows.
    close(
        facts("homadd cor:0, cor:9\nhomsum cor:0, 0\nreturn cor:0")
            .noise
            .variance(),
        (64.0 + 64.0 * 64.0) * fresh,
    );
    let square = facts("bootstrap tv:0, cor:0\nreturn cor:0");
    let total = facts("bootstrap tv:0, cor:0\nhomsum cor:0, 0\nreturn cor:0");
    close(
        total.noise.log2_failure(),
        square.noise.log2_failure() + 6.0,
    );
    close(square.log2_failure(), square.noise.log2_failure() + 6.0);
    close(total.log2_failure(), total.noise.log2_failure());
    assert_eq!((square.rows, total.rows), (64, 1));
}

/// The facts of the first output of a program on columns in cor:0:0 and so on.
fn facts_of(source: &str, columns: &[Vec<i64>]) -> Result<MapOutput, EngineError> {
    let (engine, _) = prepared(&TINY, 1);
    let case = Case {
        params: &TINY,
        columns: columns.to_vec(),
        program: assemble(source).unwrap().program,
        outputs: Vec::new(),
        memory: 1 << 20,
    };
    let facts = case.run(&engine, None, &mut Taker::new(&TINY))?;
    Ok(facts.outputs[0].clone())
}

#[test]
fn what_may_share_noise_never_cancels() {
    let fresh = TINY.lwe_variance();
    let variance = |source: &str, columns: &[Vec<i64>]| {
        facts_of(source, columns).unwrap().noise.variance() / fresh
    };
    let mut changed = vec![3; 64];
    changed[17] = 4;
    let all = vec![3; 64];
    // A column and its first row, and a column of which a row was encrypted anew: nobody knows which rows are the same.
    for columns in [[all.clone(), vec![3]], [all.clone(), changed]] {
        let difference = variance("homsub cor:0, cor:1\nreturn cor:0", &columns);
        assert!(difference > 3.99, "{difference}");
    }
    let sum = "homadd cor:0, cor:1\nhomsum cor:0, 0\nreturn cor:0";
    assert!(variance(sum, &[all.clone(), vec![3]]) > 4288.0);
    // The same column in two registers is one value, whose bootstraps are the same samples.
    let output = bootstrap_output_variance(&TINY, ArithmeticKind::Ntt) / fresh;
    for source in [
        "bootstrap tv:0, cor:0\nbootstrap tv:0, cor:1\nhomadd cor:0, cor:1\nreturn cor:0",
        "mov cor:2, cor:0\nhomadd cor:2, cor:1\nmov cor:3, cor:0\nhomadd cor:3, cor:1\nbootstrap tv:0, cor:2\nbootstrap tv:1, cor:3\nhomadd cor:2, cor:3\nreturn cor:2",
        "mov cor:2, cor:0\nbootstrap tv:0, cor:0\nlower cor:0, 1\nlower cor:2, 1\nbootstrap tv:0, cor:2\nhomadd cor:0, cor:2\nreturn cor:0",
        "mov cor:2, cor:0\nlower cor:2, 1\nmov cor:3, cor:0\nupper cor:3, 1\njoin cor:2, cor:3, 1\nbootstrap tv:0, cor:2\nbootstrap tv:0, cor:0\nhomadd cor:0, cor:2\nreturn cor:0",
    ] {
        let found = variance(source, &[all.clone(), all.clone()]);
        assert!(found > 3.99 * output, "{source}: {found} of {output}");
    }
}

#[test]
fn rows_are_refused_before_they_fill_the_drive() {
    let doublings =
        |count: usize| format!("{}return cor:0", "join cor:0, cor:0, 1\n".repeat(count));
    // One page of TINY has 4096 bytes; half of 1 MiB and 64 MiB are there.
    assert!(facts_of(&doublings(10), &[vec![1]]).is_ok());
    for count in [14, 20, 30, 40] {
        let refused = facts_of(&doublings(count), &[vec![1]]);
        assert!(
            matches!(refused, Err(EngineError::MapTooLarge { .. })),
            "{count}"
        );
    }
    let count = (1 << 20) / TINY.lwe_bytes() + 1;
    let registers = (1..count).map(|n| format!("mov cor:{n}, cor:0\nhomintadd cor:{n}, {n}\n"));
    let sums = (1..count).map(|n| format!("homadd cor:0, cor:{n}\n"));
    let many: String = registers
        .chain(sums)
        .chain(["return cor:0".to_owned()])
        .collect();
    let refused = facts_of(&many, &[vec![1; 2]]);
    assert!(
        matches!(refused, Err(EngineError::MapTooLarge { .. })),
        "{refused:?}"
    );
    // A long chain on one row needs no more than a short one.
    let chain = format!(
        "{}homadd cor:1, cor:0\nreturn cor:1",
        "homintadd cor:0, 1\n".repeat(2000)
    );
    assert!(facts_of(&chain, &[vec![1], vec![2; 3]]).is_ok());
}

#[test]
fn runs_that_move_rows_have_no_checkpoint() {
    let params = &TINY;
    let (engine, _) = prepared(params, 1);
    for (source, expected) in [
        ("lower cor:0, 1\nreturn cor:0", 5),
        ("upper cor:0, 1\nreturn cor:0", 6),
    ] {
        let case = Case {
            params,
            columns: vec![vec![5, 6]],
            program: assemble(source).unwrap().program,
            outputs: Vec::new(),
            memory: 4 * params.lwe_bytes() as u64,
        };
        let mut taker = Taker::new(params);
        taker.left = Some(0);
        case.run(&engine, None, &mut taker).unwrap();
        assert_eq!(taker.columns, [[expected]]);
        assert_eq!(taker.checkpoint, Checkpoint::default());
    }
}

#[test]
fn checkpoints_of_other_jobs_are_refused() {
    let params = &TINY;
    let (engine, _) = prepared(params, 1);
    let case = Case {
        params,
        columns: vec![vec![1; 8]],
        program: assemble("homsum cor:0, 0\nreturn cor:0").unwrap().program,
        outputs: Vec::new(),
        memory: 1 << 20,
    };
    let sum = encode_sample(params, 4, params.message_bits);
    let from = |rows, sums| Some(Checkpoint { rows, sums });
    let mut taker = Taker::new(params);
    case.run(&engine, from(4, vec![sum.clone()]), &mut taker)
        .unwrap();
    assert_eq!(taker.columns, [[8]]);
    for wrong in [
        from(9, vec![sum.clone()]),
        from(4, vec![]),
        from(4, vec![Vec::new()]),
        from(8, vec![Vec::new()]),
        from(4, vec![sum[1..].to_vec()]),
        from(4, vec![vec![0xff; sum.len()]]),
    ] {
        assert!(case.run(&engine, wrong, &mut Taker::new(params)).is_err());
    }
}
