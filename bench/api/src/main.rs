//! The same three programs against Toroid's keys and ciphertexts and against tfhe-rs's API: lines and times, in one run.
//!
//! `cargo run --release -p toroid-bench-api [-- RUNS]` prints a Markdown table; each side runs RUNS times (5), in turn with
//! the other, and the table has the medians.
//!
//! - `adder`: two numbers of 8 bits added by Boolean gates. tfhe-rs: its Boolean API.
//! - `function`: x² mod 16 of a number of 4 bits beside a bit of padding. tfhe-rs: its short integers.
//! - `product`: two signed numbers of 6 bits, by the difference of two quarter squares. tfhe-rs: `FheInt8`, whose product
//!   takes all 8 bits of both.
//!
//! Lines are those of the files in `ours/` and `peer/`, without blank ones and those of the clock.

mod clock;

use std::error::Error;

use clock::Clock;
use toroid_bench_common::machine::Measured;

type Run = fn(&mut Clock) -> Result<i64, Box<dyn Error>>;

struct Program {
    name: &'static str,
    result: i64,
    ours: (&'static str, Run),
    peer: (&'static str, Run),
}

mod ours {
    pub mod adder;
    pub mod function;
    pub mod product;
}

mod peer {
    pub mod adder;
    pub mod function;
    pub mod product;
}

const PROGRAMS: [Program; 3] = [
    Program {
        name: "adder",
        result: 202,
        ours: (include_str!("ours/adder.rs"), |clock| {
            Ok(ours::adder::run(clock)?)
        }),
        peer: (include_str!("peer/adder.rs"), |clock| {
            Ok(peer::adder::run(clock))
        }),
    },
    Program {
        name: "function",
        result: 9,
        ours: (include_str!("ours/function.rs"), |clock| {
            Ok(ours::function::run(clock)?)
        }),
        peer: (include_str!("peer/function.rs"), |clock| {
            Ok(peer::function::run(clock))
        }),
    },
    Program {
        name: "product",
        result: -99,
        ours: (include_str!("ours/product.rs"), |clock| {
            Ok(ours::product::run(clock)?)
        }),
        peer: (include_str!("peer/product.rs"), |clock| {
            Ok(peer::product::run(clock)?)
        }),
    },
];

/// Lines of a program.
fn lines(source: &str) -> usize {
    let counts = |line: &&str| !line.trim().is_empty() && !line.contains("clock");
    source.lines().filter(counts).count()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let runs: usize = match std::env::args().nth(1) {
        Some(runs) => runs.parse::<usize>()?.max(1),
        None => 5,
    };
    println!("{}\n", Measured::now().line());
    println!("| program | lines | tfhe-rs | keys, s | tfhe-rs | computation, ms | tfhe-rs |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    for program in PROGRAMS {
        let mut clocks = [Vec::new(), Vec::new()];
        for _ in 0..runs {
            for ((_, run), clocks) in [program.ours, program.peer].iter().zip(&mut clocks) {
                let mut clock = Clock::start();
                let result = run(&mut clock)?;
                if result != program.result {
                    return Err(format!("{}: {result}", program.name).into());
                }
                clocks.push(clock);
            }
        }
        let [ours, peer] = clocks.map(|clocks| {
            ["keys", "computation"]
                .map(|part| median(clocks.iter().map(|clock| clock.seconds(part)).collect()))
        });
        println!(
            "| `{}` | {} | {} | {:.2} | {:.2} | {:.1} | {:.1} |",
            program.name,
            lines(program.ours.0),
            lines(program.peer.0),
            ours[0],
            peer[0],
            1000.0 * ours[1],
            1000.0 * peer[1]
        );
    }
    Ok(())
}
