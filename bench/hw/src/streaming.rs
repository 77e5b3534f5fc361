//! The streaming NTT at the settings of its paper, and at random ones.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use toroid_cores::ntt_streaming::plan;
use toroid_cores::synthesis::Resources;
use toroid_cores::vectors::{Streams, Vectors};
use toroid_cores::{Core, Values, find};
use toroid_explore::published::{PUBLISHED, Published, STREAMING};
use toroid_ring::{goldilocks, prime};
use toroid_sim::model::{Model, Options};
use toroid_sim::random::Random;

use crate::Error;
use crate::measured::{blocks, counted, luts, once, steps, synthesized, synthesized_design};
use crate::report::{Row, date, machine, number, publish, row_table};

const Q: u64 = (1 << 28) - (1 << 16) + 1;

/// A setting of the paper, of its Tables 1 and 4.
struct Paper {
    log_n: u64,
    log_lanes: u64,
    microseconds: f64,
    /// In Hz.
    clock: f64,
    /// Of latency, at that clock.
    cycles: f64,
    /// Transforms a second.
    throughput: f64,
    lut: f64,
    ff: f64,
    bram: f64,
    dsp: f64,
}

impl Paper {
    fn of(published: &Published) -> Option<Self> {
        let (microseconds, throughput) = (published.latency_us?, published.throughput?);
        let clock = published.clock_mhz * 1e6;
        // What is measured is a little below a transform every N / lanes cycles.
        let lanes = throughput * published.n as f64 / clock;
        Some(Self {
            log_n: published.n.ilog2().into(),
            log_lanes: lanes.log2().round() as u64,
            microseconds,
            clock,
            cycles: (microseconds * published.clock_mhz).round(),
            throughput,
            lut: published.lut?,
            ff: published.ff?,
            bram: published.bram36?,
            dsp: published.dsp?,
        })
    }

    /// Every one.
    fn all() -> Vec<Self> {
        let of_paper = PUBLISHED.iter().filter(|row| row.source == STREAMING);
        of_paper.filter_map(Self::of).collect()
    }
}

/// Table 3: bits, exponents, LUT, FF, DSP; 5 cycles each.
const BUTTERFLIES: [(u64, u64, [f64; 3]); 4] = [
    (16, 12, [246.0, 206.0, 1.0]),
    (27, 21, [485.0, 424.0, 4.0]),
    (28, 16, [458.0, 376.0, 4.0]),
    (32, 20, [534.0, 479.0, 4.0]),
];

/// `toroid_pkg::butterfly_solinas_latency` of a short product.
const BUTTERFLY_CYCLES: u32 = 5;

#[derive(Serialize, Deserialize)]
struct Found {
    /// Halves side by side at the input.
    halves: Measured,
    /// Natural order at the input, with feedback.
    natural: Measured,
}

#[derive(Serialize, Deserialize)]
struct Measured {
    latency: u64,
    interval: u64,
    resources: Resources,
}

fn values(core: &dyn Core, given: &[(&'static str, u64)]) -> Result<Values, Error> {
    Ok(Values::new(core, given.iter().copied())?)
}

/// One transform and four back to back, compared with the library with and without stalls: latency and interval in cycles.
fn simulate(core: &dyn Core, values: &Values) -> Result<(u64, u64), Error> {
    let options = Options::quick_random();
    let model = Model::build(&core.design(values)?, &options)?;
    let mut simulation = model.start_random(1)?;
    simulation.reset(4)?;
    let plan = plan(values)?;
    let Some(Vectors::Streams(all)) = core.vectors(values, 1, 1) else {
        return Err("no vectors".into());
    };
    let beats = plan.beats(plan.setting().log_n);
    let one = Vectors::Streams(Streams {
        sent: all.sent[..beats as usize].to_vec(),
        expected: all.expected[..beats as usize].to_vec(),
        cycles: plan.latency(),
        ..all
    });
    let alone = one.run(&mut simulation, 1, &())?;
    let four = Vectors::Streams(all).run(&mut simulation, 2, &())?;
    let (alone, four) = (counted(&alone)?, counted(&four)?);
    Ok((alone, (four - alone) / 3))
}

fn measured(core: &dyn Core, values: &Values, work: &Path) -> Result<Measured, Error> {
    once("streaming", &core.design(values)?, work, || {
        let (latency, interval) = simulate(core, values)?;
        Ok(Measured {
            latency,
            interval,
            resources: synthesized(core, values, work)?,
        })
    })
}

fn measure(paper: &Paper, work: &Path) -> Result<Found, Error> {
    let core = find("ntt_streaming")?;
    let setting = [
        ("LOG_N", paper.log_n),
        ("LOG_LANES", paper.log_lanes),
        ("Q", Q),
    ];
    let with = |more| values(core, &[setting.as_slice(), more].concat());
    Ok(Found {
        halves: measured(core, &with(&[("IN_ORDER", 2)])?, work)?,
        natural: measured(core, &with(&[("FEEDBACK", 1)])?, work)?,
    })
}

fn butterfly(i: u64, j: u64, narrow: u64, work: &Path) -> Result<Resources, Error> {
    let design = toroid_cores::sources::design("butterfly_solinas")?
        .with("I", i)
        .with("J", j)
        .with("SHORT", 1u64)
        .with("NARROW", narrow);
    synthesized_design("butterfly_solinas", &design, false, work)
}

/// Every setting of the paper; what is kept in `work` is not measured again.
pub fn rows(work: &Path, out: Option<&Path>) -> Result<(), Error> {
    let papers = Paper::all();
    let bar = steps(papers.len() as u64 + 2 * BUTTERFLIES.len() as u64)?;
    let mut rows = Vec::new();
    let mut table = String::from(
        "| N, lanes, input | latency | paper | ratio | interval | LUT + LUT memories | paper | ratio | FF | paper | BRAM | paper | DSP | paper |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    let mut at_clock = String::from(
        "| N, lanes | clock | latency, halves | natural | paper | transforms a second | paper | a second and DSP, halves | paper | each way |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for paper in &papers {
        let (n, lanes) = (1u64 << paper.log_n, 1u64 << paper.log_lanes);
        bar.set_message(format!("{n}, {lanes}"));
        let found = measure(paper, work)?;
        bar.inc(1);
        for (input, found) in [("halves", &found.halves), ("natural", &found.natural)] {
            let resources = &found.resources;
            let (lut, bram, dsp) = (luts(resources), blocks(resources), resources.dsp as f64);
            let mut row = |what: &str, ours: f64, unit, reference: f64, factor: Option<f64>| {
                let name = format!("N = {n}, {lanes} lanes, {input} input: {what}");
                let most = factor.map(|factor| (factor * reference * 100.0).round() / 100.0);
                rows.push(Row::new(&name, ours, unit, Some(reference), most, ""));
            };
            row(
                "latency",
                found.latency as f64,
                "cycles",
                paper.cycles,
                Some(0.75),
            );
            row(
                "interval",
                found.interval as f64,
                "cycles",
                (n / lanes) as f64,
                Some(1.0),
            );
            row("DSP48E1", dsp, "slices", paper.dsp, Some(1.0));
            row("LUT", lut, "LUTs", paper.lut, Some(1.25));
            row("FF", resources.ff as f64, "flip-flops", paper.ff, None);
            row("BRAM of 36 Kbit", bram, "blocks", paper.bram, Some(1.25));
            let _ = writeln!(
                table,
                "| {n}, {lanes}, {input} | {} | {} | {:.2} | {} | {} + {} | {} | {:.2} | {} | {} | {} | {} | {} | {} |",
                found.latency,
                paper.cycles,
                found.latency as f64 / paper.cycles,
                found.interval,
                number(resources.lut as f64),
                number(resources.lutram as f64),
                number(paper.lut),
                lut / paper.lut,
                number(resources.ff as f64),
                number(paper.ff),
                number(bram),
                number(paper.bram),
                number(dsp),
                number(paper.dsp),
            );
        }
        let clock = paper.clock;
        let time = |latency: u64| latency as f64 / clock * 1e6;
        let rate = clock / found.halves.interval as f64;
        let _ = writeln!(
            at_clock,
            "| {n}, {lanes} | {:.0} MHz | {:.2} µs | {:.2} µs | {:.2} µs | {} | {} | {} | {} | {:.1} GB/s |",
            clock / 1e6,
            time(found.halves.latency),
            time(found.natural.latency),
            paper.microseconds,
            number(rate.round()),
            number(paper.throughput.round()),
            number((rate / found.halves.resources.dsp as f64).round()),
            number((paper.throughput / paper.dsp).round()),
            (lanes * 4) as f64 * clock / 1e9,
        );
    }
    let mut butterflies = String::from(
        "| q | LUT + SRL | paper | FF | paper | DSP | paper | with fewer LUT | cycles | paper |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for (i, j, [lut, ff, dsp]) in BUTTERFLIES {
        bar.set_message(format!("butterfly of {i} bits"));
        let few = butterfly(i, j, 3, work)?;
        bar.inc(1);
        let fast = butterfly(i, j, 0, work)?;
        bar.inc(1);
        let row = |what: &str| format!("butterfly, q = 2^{i} - 2^{j} + 1: {what}");
        rows.push(Row::new(
            &row("LUT"),
            luts(&few),
            "LUTs",
            Some(lut),
            None,
            "with the fewest DSP slices",
        ));
        rows.push(Row::new(
            &row("DSP48E1"),
            few.dsp as f64,
            "slices",
            Some(dsp),
            None,
            "",
        ));
        let _ = writeln!(
            butterflies,
            "| 2^{i} − 2^{j} + 1 | {} + {} | {} | {} | {} | {} | {} | {} + {} with {} DSP | {} | 5 |",
            few.lut,
            few.lutram,
            number(lut),
            few.ff,
            number(ff),
            few.dsp,
            number(dsp),
            fast.lut,
            fast.lutram,
            fast.dsp,
            BUTTERFLY_CYCLES,
        );
    }
    bar.finish_and_clear();
    print!("{}", row_table(&rows));
    if let Some(out) = out {
        let page = page(&table, &at_clock, &butterflies, &row_table(&rows));
        publish(out, "hw-streaming", &page, &rows)?;
    }
    Ok(())
}

fn page(table: &str, at_clock: &str, butterflies: &str, rows: &str) -> String {
    format!(
        "# The streaming NTT, measured\n\n\
         `cd bench && cargo run --release -p toroid-hw-bench -- streaming --write` wrote this page and hw-streaming.json on {} ({}). \
         q = 2^28 − 2^16 + 1, negacyclic. The paper is T. Ye et al., FPGA Acceleration of Number Theoretic Transform.\n\n\
         Cycles are counted in simulation, from the first beat in to the last beat out, both included, with results equal to the library's, \
         with stalls and without; they equal the formula of [ntt_streaming](../../hw/ntt_streaming/README.md). LUT, FF, BRAM and DSP are Yosys's for Xilinx 7 series, \
         each module that stands at several places mapped once. Nothing is placed and routed. Yosys does not put two functions into one LUT and keeps the borders of those modules, \
         which overstates LUTs; it replicates no registers, which understates FFs.\n\n\
         ## Tables 1 and 4: latency, interval, resources\n\n{table}\n\
         *halves*: the two halves of the polynomial side by side at the input, LANES / 2 butterflies a stage. *natural*: consecutive words in a beat, \
         and LANES butterflies in each stage that pairs words of different beats (`FEEDBACK = 1`), since with LANES / 2 a transform whose first stage pairs words N / 2 apart cannot take \
         consecutive words in fewer than 5/2 N / LANES − 1 cycles besides its butterflies. The output is in bit-reversed order in both. The paper does not say in which order words enter: its Fig. 1 has three \
         permutations for four stages, of which the first may stand before the first stage (natural) or behind it (halves). All bars are held against both.\n\n\
         The paper's cycles are its latency at the clock that its throughput gives; at N = 4096 they are its 1.99 µs at the 224 MHz of its Table 4, and would be 430 at the 216 MHz of its throughput. \
         Where its Table 4 repeats N = 1024, latencies differ by 0.01 µs from its Table 1.\n\n\
         ## The same at the paper's clocks, and Table 2\n\n{at_clock}\n\
         That our core would reach the paper's clocks is an assumption. *each way*: what its input takes and its output gives at that clock, in words of 4 bytes, \
         for which the paper's Table 2 has 27.8, 53.8 and 84.5 GB/s at N = 1024.\n\n\
         ## Table 3: one butterfly\n\n{butterflies}\n\
         Ours leaves words in [0, 2^(i + 1)); canonical words are made once, at the end of a transform.\n\n\
         ## Every row\n\n{rows}",
        date(),
        machine(),
    )
}

/// A setting drawn at random: sizes, modulus of any kind, direction, orders, degrees and moduli by the transform.
fn draw(random: &mut Random) -> Vec<(&'static str, u64)> {
    let log_n = 4 + random.below(7);
    let log_lanes = 1 + random.below(log_n.min(5));
    let is_cyclic = random.below(2);
    let order = 1u64 << (log_n + 1 - is_cyclic);
    let modulus = |random: &mut Random| match random.below(4) {
        0 => goldilocks::P,
        1 => {
            // 2^i - 2^j + 1
            let all: Vec<u64> = (log_n + 1 - is_cyclic..40)
                .flat_map(|j| (j + 2..62).map(move |i| (1u64 << i) - (1 << j) + 1))
                .filter(|q| prime::is_prime(*q))
                .collect();
            all[random.below(all.len() as u64) as usize]
        }
        _ => {
            let bits = log_n + 4 + random.below(60 - log_n);
            let bound = 1u64.checked_shl(bits as u32).unwrap_or(u64::MAX);
            let skip = random.below(20) as usize;
            let mut primes = prime::ntt_primes(order as usize / 2, bound);
            let first = primes.next();
            primes.nth(skip).or(first).unwrap_or(goldilocks::P)
        }
    };
    let mut given = vec![
        ("LOG_N", log_n),
        ("LOG_LANES", log_lanes),
        ("Q", modulus(random)),
        ("INVERSE", random.below(2)),
        ("CYCLIC", is_cyclic),
    ];
    if random.chance(0.2) {
        given.push(("FEEDBACK", 1));
        let back = [("IN_ORDER", 1), ("OUT_ORDER", 0)];
        given.extend(if random.below(2) == 0 {
            [("IN_ORDER", 0), ("OUT_ORDER", 1)]
        } else {
            back
        });
    } else if random.chance(0.2) {
        let orders = [("IN_ORDER", 2), ("OUT_ORDER", 1)];
        let back = [("IN_ORDER", 1), ("OUT_ORDER", 2)];
        given.extend(if random.below(2) == 0 { orders } else { back });
        given.push((
            "LOG_N_MIN",
            log_lanes.max(2) + random.below(log_n - log_lanes.max(2) + 1),
        ));
        if random.below(2) == 0 {
            given.push(("Q_2", modulus(random)));
        }
    } else {
        given.extend([
            ("IN_ORDER", random.below(3)),
            ("OUT_ORDER", random.below(3)),
        ]);
    }
    given
}

/// The ends of the ranges, which come before what is drawn.
const CORNERS: [&[(&str, u64)]; 6] = [
    &[
        ("LOG_N", 15),
        ("LOG_LANES", 1),
        ("Q", goldilocks::P),
        ("IN_ORDER", 0),
    ],
    &[
        ("LOG_N", 15),
        ("LOG_LANES", 7),
        ("IN_ORDER", 2),
        ("Q", 268_369_921),
        ("CYCLIC", 1),
    ],
    &[
        ("LOG_N", 14),
        ("LOG_LANES", 4),
        ("IN_ORDER", 1),
        ("OUT_ORDER", 0),
        ("INVERSE", 1),
        ("Q", 1_125_899_904_679_937),
    ],
    &[
        ("LOG_N", 12),
        ("LOG_LANES", 3),
        ("IN_ORDER", 0),
        ("OUT_ORDER", 0),
    ],
    &[
        ("LOG_N", 7),
        ("LOG_LANES", 7),
        ("IN_ORDER", 0),
        ("OUT_ORDER", 0),
    ],
    &[
        ("LOG_N", 2),
        ("LOG_LANES", 1),
        ("IN_ORDER", 0),
        ("OUT_ORDER", 1),
        ("Q", 17),
    ],
];

/// Settings at random, each with transforms back to back and under random back-pressure.
pub fn random(count: usize, seed: u64, log: Option<&Path>) -> Result<(), Error> {
    let core = find("ntt_streaming")?;
    let mut random = Random::new(seed);
    let settings = CORNERS.iter().map(|corner| corner.to_vec());
    let drawn = (0..count).map(|_| draw(&mut random));
    let settings: Vec<_> = settings.chain(drawn).collect();
    let bar = ProgressBar::new(settings.len() as u64);
    let mut text = format!(
        "toroid-hw-bench streaming-random --count {count} --seed {seed}\n{}, {}\n",
        date(),
        machine()
    );
    let start = Instant::now();
    for (number, given) in settings.iter().enumerate() {
        let list: Vec<String> = given
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let list = list.join(" ");
        let values = values(core, given).map_err(|error| format!("{list}: {error}"))?;
        let outcome = toroid_cores::test(
            core,
            &values,
            1,
            seed.wrapping_add(number as u64),
            None,
            &(),
        )
        .map_err(|error| format!("{list}: {error}"))?;
        counted(&outcome).map_err(|error| format!("{list}: {error}"))?;
        let line = format!(
            "{list}: {} beats equal, {} cycles as by the formula",
            outcome.compared, outcome.measured
        );
        bar.suspend(|| println!("{line}"));
        text += &line;
        text.push('\n');
        bar.inc(1);
    }
    bar.finish_and_clear();
    let summary = format!(
        "{} ends of ranges and {count} settings drawn at random, 0 wrong, in {:.0} s\n",
        CORNERS.len(),
        start.elapsed().as_secs_f64()
    );
    print!("{summary}");
    if let Some(log) = log {
        std::fs::write(log, text + &summary)
            .map_err(|error| format!("{}: {error}", log.display()))?;
    }
    Ok(())
}
