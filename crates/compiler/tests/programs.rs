//! Compiled programs, run in clear on the exact torus, against the meaning of their graphs.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod random;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use random::{Random, random_graph, random_graph_of, random_rows};
use toroid_compiler::{
    Compiled, Digit, Graph, Interval, Layout, MAX_COLUMNS, Options, Pass, compile, compile_until,
};
use toroid_isa::{Instruction, VrNumber};
use toroid_task::CancelToken;
use toroid_tfhe::params::ParamSet;

/// Rows of exact phases, in units of 2^-64 turns, with the bits of their messages.
type Rows = (Vec<u64>, u32);

/// Runs a program in clear. Samples have no noise, so each must stand exactly at a message where a function reads it.
fn run(compiled: &Compiled, columns: &BTreeMap<String, Vec<i64>>) -> Vec<i64> {
    let params = ParamSet::by_name(&compiled.set).unwrap();
    let width = params.message_bits;
    let assembly = toroid_isa::assemble(&compiled.program).unwrap();
    let tables: HashMap<VrNumber, (Vec<i64>, u32, u32)> = assembly
        .test_vectors
        .iter()
        .map(|vector| {
            assert!(!vector.signed);
            let table = vector.table(width).unwrap();
            let out = vector.p_out.unwrap();
            assert!(out <= width);
            (vector.vr, (table, vector.p_in.unwrap(), out))
        })
        .collect();
    let mut registers: HashMap<VrNumber, Rows> = columns
        .iter()
        .map(|(name, messages)| {
            let phases = messages.iter().map(|m| (*m as u64) << (63 - width));
            (assembly.registers[name], (phases.collect(), width))
        })
        .collect();
    for instruction in assembly.program.instructions() {
        match *instruction {
            Instruction::Return { n } => {
                let (rows, bits) = &registers[&n];
                assert_eq!(*bits, compiled.result_bits);
                return rows
                    .iter()
                    .map(|phase| {
                        assert_eq!(phase << (bits + 1), 0, "a result stands between messages");
                        let message = (phase >> (63 - bits)) as i64;
                        if compiled.result_signed && message >> bits == 1 {
                            message - (2 << bits)
                        } else {
                            message
                        }
                    })
                    .collect();
            }
            Instruction::Move { dst, src } => {
                let rows = registers[&src].clone();
                registers.insert(dst, rows);
            }
            Instruction::HomAdd { dst, src } | Instruction::HomSub { dst, src } => {
                let (other, other_bits) = registers[&src].clone();
                let (rows, bits) = registers.get_mut(&dst).unwrap();
                let negate = matches!(instruction, Instruction::HomSub { .. });
                for (phase, other) in rows.iter_mut().zip(other) {
                    let other = if negate { other.wrapping_neg() } else { other };
                    *phase = phase.wrapping_add(other);
                }
                *bits = other_bits.max(*bits);
            }
            Instruction::HomIntMult { n, v } => {
                for phase in &mut registers.get_mut(&n).unwrap().0 {
                    *phase = phase.wrapping_mul(i64::from(v) as u64);
                }
            }
            Instruction::HomIntAdd { n, v } => {
                let (rows, bits) = registers.get_mut(&n).unwrap();
                for phase in rows {
                    *phase = phase.wrapping_add((i64::from(v) as u64) << (63 - *bits));
                }
            }
            Instruction::Bootstrap { tv, n } => {
                let (table, p_in, out) = &tables[&tv];
                let (rows, bits) = registers.get_mut(&n).unwrap();
                for phase in rows {
                    assert_eq!(*phase << (p_in + 1), 0, "a sample stands between messages");
                    let message = *phase >> (63 - p_in);
                    if !params.is_wide() {
                        assert_eq!(message >> p_in, 0, "the padding bit is set");
                    }
                    let message = message as usize % table.len();
                    *phase = (table[message] as u64) << (63 - out);
                }
                *bits = *out;
            }
            Instruction::HomSum { n, g } => {
                let rows = &mut registers.get_mut(&n).unwrap().0;
                let g = if g == 0 { rows.len() } else { g as usize };
                let sum = |rows: &[u64]| rows.iter().fold(0_u64, |sum, row| sum.wrapping_add(*row));
                *rows = rows.chunks(g).map(sum).collect();
            }
            Instruction::Join { lower, upper, d } => {
                let (others, other_bits) = registers[&upper].clone();
                let (rows, bits) = registers.get_mut(&lower).unwrap();
                assert_eq!(*bits, other_bits);
                let d = d as usize;
                let pairs = rows.chunks(d).zip(others.chunks(d));
                *rows = pairs.flat_map(|(a, b)| [a, b].concat()).collect();
            }
            _ => panic!("{instruction} is not expected"),
        }
    }
    panic!("no return");
}

/// Compares a compiled program with the graph on these rows.
fn check(graph: &Graph, compiled: &Compiled, columns: &BTreeMap<&str, Vec<i128>>) {
    let rows = columns.values().next().unwrap().len();
    let mut registers = BTreeMap::new();
    for input in &compiled.inputs {
        for (digit, register) in input.registers.iter().enumerate() {
            let digits = columns[&*input.name]
                .iter()
                .map(|value| input.layout.split(*value).unwrap()[digit]);
            registers.insert(register.clone(), digits.collect());
        }
    }
    let results = run(compiled, &registers);
    let decoded = compiled.decode(&results, rows as u64).unwrap();
    let slices = columns.iter().map(|(name, rows)| (*name, rows.as_slice()));
    let expected = graph.evaluate_columns(&slices.collect()).unwrap();
    assert_eq!(decoded, expected, "{graph}\n{}", head(&compiled.program));
}

/// A program without its long lines.
fn head(program: &str) -> String {
    let lines = program.lines().filter(|line| line.len() < 400);
    lines.take(400).collect::<Vec<_>>().join("\n")
}

fn options(set: &str) -> Options {
    Options {
        sets: vec![set.to_owned()],
        log2_failure: -30.0,
        ..Options::default()
    }
}

/// A random graph whose inputs have few values, most of them far from zero, and all of at most these bits.
fn far_graph(random: &mut Random, bits: u32, statements: usize) -> Graph {
    random_graph_of(random, (bits, statements), |random| {
        let low = (1_i128 << random.below(u64::from(bits))) - random.below(4) as i128;
        let low = if random.below(4) == 0 { -low } else { low };
        (low, low + random.below(12) as i128)
    })
}

/// Random graphs for a set; how many of them it took.
fn random_graphs(set: &str, seed: u64, cases: (usize, usize), widths: &[u32]) -> usize {
    graphs_of(random_graph, set, seed, (cases, widths))
}

fn graphs_of(
    graph: impl Fn(&mut Random, u32, usize) -> Graph,
    set: &str,
    seed: u64,
    ((cases, statements), widths): ((usize, usize), &[u32]),
) -> usize {
    let mut random = Random(seed);
    let mut compiled = 0;
    let mut refused: BTreeMap<String, usize> = BTreeMap::new();
    for case in 0..cases {
        let bits = widths[case % widths.len()];
        let graph = graph(&mut random, bits, statements);
        let rows = random_rows(&mut random, &graph, 12);
        match compile(&graph, &options(set)) {
            Ok(program) => {
                compiled += 1;
                check(&graph, &program, &rows);
            }
            Err(error) => *refused.entry(error.message).or_default() += 1,
        }
    }
    println!("{set}: {compiled} of {cases}; {refused:#?}");
    compiled
}

#[test]
fn random_graphs_of_tiny_give_what_they_mean() {
    let compiled = random_graphs("tiny", 1, (600, 4), &[2, 3, 4, 6, 8]);
    assert!(compiled > 300, "{compiled}");
}

#[test]
fn random_graphs_of_tiny_wopbs_give_what_they_mean() {
    let compiled = random_graphs("tiny-wopbs", 2, (600, 5), &[3, 4, 8, 9, 12, 16, 32]);
    assert!(compiled > 300, "{compiled}");
}

#[test]
fn random_graphs_of_message8_and_message4_give_what_they_mean() {
    let compiled = random_graphs("message8", 3, (300, 5), &[4, 8, 16, 32]);
    assert!(compiled > 150, "{compiled}");
    let compiled = random_graphs("message4", 4, (300, 4), &[2, 4, 8, 16]);
    assert!(compiled > 100, "{compiled}");
}

#[test]
fn random_graphs_of_message16_give_what_they_mean() {
    let compiled = random_graphs("message16", 5, (24, 4), &[8, 16, 32, 60]);
    assert!(compiled > 12, "{compiled}");
}

#[test]
fn random_graphs_of_numbers_far_from_zero_give_what_they_mean() {
    for (set, seed, cases) in [
        ("tiny", 7, 200),
        ("tiny-wopbs", 8, 300),
        ("message8", 9, 100),
        ("message16", 10, 12),
    ] {
        let compiled = graphs_of(far_graph, set, seed, ((cases, 4), &[8, 16, 32, 45]));
        assert!(2 * compiled > cases, "{set}: {compiled} of {cases}");
    }
}

/// Compiles a text for a set, and checks it on random rows of its inputs.
fn checked(text: &str, set: &str) -> Compiled {
    let graph = Graph::parse(text).unwrap();
    let compiled = compile(&graph, &options(set)).unwrap();
    check(&graph, &compiled, &random_rows(&mut Random(11), &graph, 40));
    compiled
}

#[test]
fn numbers_are_capped_at_wide_constants() {
    let capped = "
        input x: 0..4294967295
        least = min(x, 100000)
        most = max(x, 3000000000)
        capped = least // 7
        output capped = capped
        output most = most
    ";
    let chosen = "
        input x: 0..255
        is_large = x > 5
        chosen = select(is_large, 10, 3000000)
        output chosen = chosen
    ";
    for set in ["message16", "message8"] {
        checked(capped, set);
        checked(chosen, set);
    }
}

#[test]
fn numbers_far_from_zero_take_no_more_functions_than_others() {
    let text = "
        input x: 3000000000..3000000050
        third = x // 3
        last = x % 10
        output third = third
        output last = last
    ";
    // An input whose digits all change.
    let carried = "
        input x: 16777200..16777250
        last = x % 10
        output last = last
    ";
    for set in ["message16", "message8"] {
        assert!(checked(text, set).cost.bootstraps <= 2);
        assert_eq!(checked(carried, set).cost.bootstraps, 1);
    }
    let sum = "
        input x: 1099511627776..1099511627826
        y = x + 5
        output y = y
    ";
    assert_eq!(checked(sum, "message16").cost.bootstraps, 0);
}

#[test]
fn sums_of_rows_are_those_of_groups() {
    let graph = Graph::parse(
        "
        input x: 0..65535
        input y: -20..100
        big = x > 30000
        total = sum(x)
        count = sum(big)
        other = sum(y)
        output total = total
        output count = count
        output other = other
        ",
    )
    .unwrap();
    let mut random = Random(6);
    let rows = random_rows(&mut random, &graph, 700);
    let options = Options {
        rows: 700,
        ..options("message16")
    };
    let compiled = compile(&graph, &options).unwrap();
    assert!(compiled.group.unwrap() >= 64, "{:?}", compiled.group);
    check(&graph, &compiled, &rows);
}

#[test]
fn separate_digits_share_no_rows() {
    let graph = Graph::parse(
        "
        input x: 0..1023
        input y: 0..7
        least = min(x, 900)
        most = max(y, 3)
        negative = y - 4
        nothing = x - x
        some = nothing + 5
        output negative = negative
        output nothing = nothing
        output some = some
        output least = least
        output most = most
        ",
    )
    .unwrap();
    let rows = random_rows(&mut Random(7), &graph, 20);
    let together = compile(&graph, &options("tiny-wopbs")).unwrap();
    let options = Options {
        separate: true,
        ..options("tiny-wopbs")
    };
    let separate = compile(&graph, &options).unwrap();
    let parts = |compiled: &Compiled| {
        compiled
            .outputs
            .iter()
            .map(|o| o.parts.len())
            .sum::<usize>()
    };
    assert_eq!(parts(&separate), parts(&together) + 2);
    assert!(together.result_rows < separate.result_rows);
    let offsets: Vec<i128> = separate.outputs.iter().map(|o| o.offset).collect();
    assert_eq!(offsets, [-4, 0, 0, 0, 0]);
    let mut taken = BTreeSet::new();
    for part in separate.outputs.iter().flat_map(|output| &output.parts) {
        assert_eq!(part.shift, 0);
        assert!(taken.insert(part.row), "two digits in row {}", part.row);
    }
    // What an input goes into is bootstrapped, where the program has its own results as inputs.
    let repeated = compile(
        &graph,
        &Options {
            repeated: true,
            ..options
        },
    )
    .unwrap();
    assert!(repeated.cost.bootstraps > separate.cost.bootstraps);
    check(&graph, &repeated, &rows);
    check(&graph, &separate, &rows);
}

#[test]
fn separate_digits_have_no_more_bits_than_messages() {
    let texts = [
        // Few values, far from zero.
        "input x: 1000..1003\ny = x + 1\noutput y = y",
        "input x: 100000..100003\ninput z: 0..200\noutput x = x\noutput z = z",
        // A bit more than functions read.
        "input x: 0..255\ninput y: 0..255\nz = x + y\noutput z = z",
        // Sums of rows.
        "input x: 0..255\nt = sum(x)\noutput t = t",
        "input x: 250..255\nbig = x > 252\nt = sum(x)\nn = sum(big)\noutput t = t\noutput n = n",
    ];
    for text in texts {
        let graph = Graph::parse(text).unwrap();
        let rows = random_rows(&mut Random(12), &graph, 60);
        let options = Options {
            separate: true,
            rows: 60,
            ..options("message8")
        };
        let compiled = compile(&graph, &options).unwrap();
        for part in compiled.outputs.iter().flat_map(|output| &output.parts) {
            assert!(part.bits <= 8 && part.shift == 0, "{text}: {part:?}");
        }
        assert!(compiled.outputs.iter().all(|o| o.offset == 0), "{text}");
        assert!(compiled.outputs.iter().all(|o| o.offset_per_row == 0));
        check(&graph, &compiled, &rows);
    }
}

#[test]
fn functions_read_the_results_of_repeated_programs() {
    let repeated = |source: &str, params: &str, separate: bool| {
        let graph = Graph::parse(source).unwrap();
        let options = Options {
            separate,
            repeated: true,
            ..options(params)
        };
        let rows = random_rows(&mut Random(9), &graph, 40);
        compile(&graph, &options).inspect(|compiled| check(&graph, compiled, &rows))
    };
    // A result of all bits of a message and the bit of padding goes into no function.
    let wide = "input x: 0..255\ninput y: 0..255\nz = x + y\noutput z = z";
    repeated(wide, "message8", false).unwrap();
    let _ = repeated(wide, "message8", true);
    let packed = "input x: 0..15\ninput y: 0..31\noutput a = x\noutput b = y";
    let compiled = repeated(packed, "message8", false).unwrap();
    assert_eq!(compiled.result_rows, 2);
    // A result that is the same for all inputs has nothing to bootstrap.
    for separate in [false, true] {
        repeated(
            "input x: 0..0\nt = 2*x - 490\noutput t = t",
            "message16",
            separate,
        )
        .unwrap();
    }
    // No result is the sum of more than two functions.
    let inputs: String = (0..6).map(|n| format!("input x{n}: 0..7\n")).collect();
    let tables: String = (0..6)
        .map(|n| format!("t{n} = table(x{n}, [3, 1, 4, 1, 5, 9, 2, 6])\n"))
        .collect();
    let sum = format!("{inputs}{tables}s = t0 + t1 + t2 + t3 + t4 + t5\noutput s = s");
    let compiled = repeated(&sum, "message8", true).unwrap();
    assert_eq!(compiled.cost.bootstraps, 7);
    // Nor of one that other programs read.
    let options = Options {
        separate: true,
        ..options("message8")
    };
    let compiled = compile(&Graph::parse(&sum).unwrap(), &options).unwrap();
    assert_eq!(compiled.cost.bootstraps, 7);
}

#[test]
fn names_of_places_do_not_become_instructions() {
    let graph = Graph::parse_file(
        "input x: 0..9\nz = x - 5\ny = abs(z)\noutput y = y",
        "a\nhomadd",
    );
    let compiled = compile(&graph.unwrap(), &options("message4")).unwrap();
    assert!(
        compiled.program.contains("; a homadd"),
        "{}",
        compiled.program
    );
}

#[test]
fn options_and_programs_have_a_form_in_json() {
    let graph = Graph::parse("input x: -8..7\ny = abs(x)\noutput y = y").unwrap();
    let options: Options = serde_json::from_str(r#"{"sets": ["tiny", "tiny-wopbs"]}"#).unwrap();
    let compiled = compile(&graph, &options).unwrap();
    assert_eq!(compiled.alternatives.len(), 2);
    let json = serde_json::to_string(&compiled).unwrap();
    assert_eq!(serde_json::from_str::<Compiled>(&json).unwrap(), compiled);
}

/// Options for a column `x` of these digits.
fn column(set: &str, digits: &[(u32, bool, u32)]) -> Options {
    let digits = digits.iter().map(|&(bits, signed, shift)| Digit {
        bits,
        signed,
        shift,
    });
    let layout = Layout {
        digits: digits.collect(),
    };
    Options {
        inputs: BTreeMap::from([("x".to_owned(), layout)]),
        ..options(set)
    }
}

#[test]
fn inputs_take_the_values_that_their_columns_hold() {
    let text = "
        input x: -100..65535
        square = x * x
        low = x & 3
        swapped = table(low, [1, 0, 3, 2])
        output square = square
        output swapped = swapped
    ";
    let graph = Graph::parse(text).unwrap();
    let narrow = compile(&graph, &column("message16", &[(8, false, 0)])).unwrap();
    assert_eq!(narrow.inputs[0].interval, Interval { low: 0, high: 255 });
    let rows = BTreeMap::from([("x", (0..256).collect())]);
    check(&graph, &narrow, &rows);
    let wide = compile(&graph, &options("message16")).unwrap();
    assert!(narrow.cost.bootstraps < wide.cost.bootstraps);
    // A table is cut to the values that are left.
    let entries: Vec<String> = (-100..65000).map(|x| (x % 7).to_string()).collect();
    let text = format!(
        "input x: -100..64999\ny = table(x, [{}])\noutput y = y",
        entries.join(", ")
    );
    let graph = Graph::parse(&text).unwrap();
    let table = compile(&graph, &column("message16", &[(8, false, 0)])).unwrap();
    check(&graph, &table, &rows);
}

#[test]
fn layouts_that_hold_nothing_are_refused() {
    let graph = Graph::parse("input x: 300..400\ny = x + 1\noutput y = y").unwrap();
    let refused = |digits: &[(u32, bool, u32)]| {
        let error = compile(&graph, &column("message16", digits));
        error.unwrap_err().message
    };
    let message = "column `x` holds 0..255, and the program takes 300..400";
    assert_eq!(refused(&[(8, false, 0)]), message);
    let twelve: Vec<_> = (0..12).map(|digit| (12, false, 12 * digit)).collect();
    let broken: [&[(u32, bool, u32)]; 6] = [
        &[],
        &[(200, false, 0)],
        &[(8, false, 200)],
        &[(8, true, 0), (8, true, 8)],
        &[(8, false, 8), (8, false, 0)],
        &twelve,
    ];
    for digits in broken {
        let message = refused(digits);
        assert!(message.contains("do not follow each other"), "{message}");
        let layout = &column("tiny", digits).inputs["x"];
        assert_eq!((layout.interval(), layout.split(5)), (None, None));
    }
}

#[test]
fn programs_read_no_more_columns_than_a_run_takes() {
    assert_eq!(
        MAX_COLUMNS,
        toroid_drive::computational::MAX_RANGES - 1,
        "one range is that of the result"
    );
    let text = "
        input x: 0..18446744073709551615
        input y: 0..18446744073709551615
        less = x < y
        output less = less
    ";
    let graph = Graph::parse(text).unwrap();
    let error = compile(&graph, &options("message4")).unwrap_err();
    assert_eq!(
        error.message,
        "the program reads 64 columns of digits, and a run takes 63: `x` 32, `y` 32"
    );
    let both = Options {
        sets: vec!["message4".to_owned(), "message8".to_owned()],
        ..options("")
    };
    let compiled = compile(&graph, &both).unwrap();
    assert_eq!(compiled.set, "message8");
    // Inputs that nothing reads take no column.
    let one = text.replace("x < y", "x < 5");
    let compiled = compile(&Graph::parse(&one).unwrap(), &options("message4")).unwrap();
    let word = ParamSet::by_name("message4").unwrap().modulus.word_bytes() as u64;
    assert_eq!(compiled.cost.input_bytes_per_row, 32 * word);
}

#[test]
fn what_fails_too_often_says_where_and_what_helps() {
    let text = "
        input x: 0..15
        y = table(x, [0, 3, 1, 2, 9, 8, 7, 7, 1, 0, 15, 14, 13, 2, 4, 5]) @ \"pay.py\":7
        output y = y
    ";
    for set in ["tiny", "message8", "message16"] {
        let strict = Options {
            log2_failure: -2000.0,
            ..options(set)
        };
        let error = compile(&Graph::parse(text).unwrap(), &strict).unwrap_err();
        assert!(
            error.message.contains("1 row is wrong"),
            "{}",
            error.message
        );
        assert_eq!(error.location.unwrap().to_string(), "pay.py:7");
        let help = error.help.unwrap();
        assert!(help.contains("`log2_failure`"), "{help}");
        assert!(help.contains("most doubtful is one of y"), "{help}");
    }
}

#[test]
fn what_a_program_promises_can_be_asked_for() {
    let mut text = String::new();
    for (place, weight) in [1, 8, 64, 512].into_iter().enumerate() {
        let entries: Vec<String> = (0..64)
            .map(|x| (weight * (x * 5 % 8)).to_string())
            .collect();
        text += &format!(
            "input x{place}: 0..63\nd{place} = table(x{place}, [{}])\n",
            entries.join(", ")
        );
    }
    let entries: Vec<String> = (0..4096).map(|x| (x * 37 % 256).to_string()).collect();
    text += &format!(
        "s = d0 + d1 + d2 + d3\ny = table(s, [{}])\noutput y = y",
        entries.join(", ")
    );
    let graph = Graph::parse(&text).unwrap();
    for set in ["message14", "message16"] {
        let first = compile(&graph, &options(set)).unwrap();
        let asked = Options {
            log2_failure: first.cost.log2_failure,
            ..options(set)
        };
        let again = compile(&graph, &asked).unwrap();
        assert_eq!(again.cost, first.cost, "{set}");
        // A table for each digit and one of their sum: nothing is made anew where that is not needed.
        assert_eq!(again.cost.bootstraps, 5, "{set}");
    }
}

#[test]
fn a_bound_that_promises_nothing_is_refused_whatever_is_allowed() {
    // A sum of two functions' results has the noise of both when it is read.
    let text = "input x: 0..7\ninput y: 0..7\nt = x > 3\nu = y > 3\nz = t + u\noutput z = z";
    let graph = Graph::parse(text).unwrap();
    let of = |rows, log2_failure| Options {
        rows,
        log2_failure,
        ..options("paper")
    };
    let compiled = compile(&graph, &of(1, 0.0)).unwrap();
    assert!(compiled.cost.log2_failure < 0.0);
    for allowed in [-30.0, 0.0] {
        let error = compile(&graph, &of(u64::MAX, allowed)).unwrap_err();
        let said = "add up to 1 or more, which promises nothing";
        assert!(error.message.contains(said), "{error}");
    }
    for log2_failure in [1.0, f64::NAN] {
        let error = compile(&graph, &of(1, log2_failure)).unwrap_err();
        assert!(
            error.message.ends_with("is no failure probability"),
            "{error}"
        );
    }
}

#[test]
fn results_of_damaged_programs_are_refused() {
    let graph = Graph::parse("input x: -8..7\ny = abs(x)\noutput y = y").unwrap();
    let compiled = compile(&graph, &options("tiny")).unwrap();
    let refused = |change: &dyn Fn(&mut Compiled)| {
        let mut damaged = compiled.clone();
        change(&mut damaged);
        damaged.decode(&[3, 5], 2).unwrap_err().message
    };
    for bits in [200, u32::MAX] {
        let message = refused(&|compiled| compiled.outputs[0].parts[0].bits = bits);
        assert!(message.starts_with("output `y` has"), "{message}");
        let message = refused(&|compiled| compiled.outputs[0].parts[0].shift = bits);
        assert!(message.starts_with("output `y` has"), "{message}");
    }
    let too_large = "output `y` exceeds 2^127";
    assert_eq!(refused(&|c| c.outputs[0].offset = i128::MAX), too_large);
    assert_eq!(
        refused(&|c| c.outputs[0].parts[0].factor = i128::MAX),
        too_large
    );
    assert_eq!(
        refused(&|c| {
            c.outputs[0].sum = true;
            c.outputs[0].offset = i128::MAX - 20;
        }),
        too_large
    );
}

#[test]
fn compilations_and_evaluations_end_when_they_are_cancelled() {
    let graph = Graph::parse("input x: -8..7\ny = abs(x)\noutput y = y").unwrap();
    let cancel = CancelToken::new();
    assert!(compile_until(&graph, &options("tiny"), &cancel).is_ok());
    let rows: &[i128] = &[1, 2];
    let columns = BTreeMap::from([("x", rows)]);
    assert!(graph.evaluate_columns_until(&columns, &cancel).is_ok());
    cancel.cancel();
    let error = compile_until(&graph, &options("tiny"), &cancel).unwrap_err();
    assert_eq!(error.message, "cancelled");
    let error = graph.simplify_until(&Pass::ALL, 8, &cancel).unwrap_err();
    assert_eq!(error.message, "cancelled");
    let error = graph.evaluate_columns_until(&columns, &cancel).unwrap_err();
    assert_eq!(error.message, "cancelled");
}
