//! The streaming NTT at the settings of its paper, and at random ones.

use std::path::Path;
use std::time::Instant;

use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::json;
use toroid_bench_common::machine::Measured;
use toroid_bench_common::{Error, pages};
use toroid_cores::ntt_streaming::plan;
use toroid_cores::{Core, Values, find};
use toroid_explore::published::{PUBLISHED, Published, STREAMING};
use toroid_ring::{goldilocks, prime};
use toroid_sim::random::Random;

use crate::measured::{Shape, counted, simulated, steps, synthesized, synthesized_design};
use crate::row::{Area, Row};
use toroid_task::Progress;

const Q: u64 = (1 << 28) - (1 << 16) + 1;

/// A setting of the paper, of its Tables 1 and 4.
#[derive(Serialize)]
struct Paper {
    #[serde(skip)]
    log_n: u64,
    #[serde(skip)]
    log_lanes: u64,
    microseconds: f64,
    /// In Hz.
    clock: f64,
    /// Of latency, at that clock.
    cycles: f64,
    /// Transforms per second.
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
        // The measured throughput is a little below a transform every N / lanes cycles.
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

#[derive(Serialize)]
struct Found {
    latency: u64,
    interval: u64,
    area: Area,
}

fn values(core: &Core, given: &[(&'static str, u64)]) -> Result<Values, Error> {
    Ok(Values::new(core, given.iter().copied())?)
}

/// A setting of the paper with these orders of words.
fn measure(paper: &Paper, order: (&'static str, u64), work: &Path) -> Result<Found, Error> {
    let core = find("ntt_streaming")?;
    let given = [
        ("LOG_N", paper.log_n),
        ("LOG_LANES", paper.log_lanes),
        ("Q", Q),
        order,
    ];
    let values = values(core, &given)?;
    let plan = plan(&values)?;
    let beats = plan.beats(plan.setting().log_n);
    let shape = Shape {
        beats: [beats, beats],
        count: 4,
        latency: plan.latency(),
    };
    let cycles = simulated(core, &values, &shape, work)?;
    Ok(Found {
        latency: cycles.latency,
        interval: cycles.interval,
        area: synthesized(core, &values, work)?,
    })
}

fn butterfly(i: u64, j: u64, narrow: u64, work: &Path) -> Result<Area, Error> {
    let design = toroid_cores::sources::design("butterfly_solinas")?
        .with("I", i)
        .with("J", j)
        .with("SHORT", 1u64)
        .with("NARROW", narrow);
    synthesized_design("butterfly_solinas", &design, false, work)
}

/// Every setting of the paper; what is kept in `work` is not measured again.
pub fn page(work: &Path, out: Option<&Path>) -> Result<(), Error> {
    let papers = Paper::all();
    let bar = steps(papers.len() as u64 + 2 * BUTTERFLIES.len() as u64)?;
    let mut rows = Vec::new();
    let mut settings = Vec::new();
    for paper in &papers {
        let (n, lanes) = (1u64 << paper.log_n, 1u64 << paper.log_lanes);
        bar.set_message(format!("{n}, {lanes}"));
        let halves = measure(paper, ("IN_ORDER", 2), work)?;
        let natural = measure(paper, ("FEEDBACK", 1), work)?;
        bar.inc(1);
        for (input, found) in [("halves", &halves), ("natural", &natural)] {
            let what = format!("N = {n}, {lanes} lanes, {input} input");
            let beside = |row: Row, reference: f64, factor: f64| {
                row.beside(reference)
                    .at_most((factor * reference * 100.0).round() / 100.0)
            };
            let cycles =
                |kind: &str, ours: u64| Row::new(format!("{what}: {kind}"), ours as f64, "cycles");
            let [dsp, lut, ff, bram] = found.area.rows(&what);
            rows.extend([
                beside(cycles("latency", found.latency), paper.cycles, 0.75),
                beside(cycles("interval", found.interval), (n / lanes) as f64, 1.0),
                beside(dsp, paper.dsp, 1.0),
                beside(lut, paper.lut, 1.25),
                ff.beside(paper.ff),
                beside(bram, paper.bram, 1.25),
            ]);
        }
        settings.push(json!({
            "n": n,
            "lanes": lanes,
            "halves": halves,
            "natural": natural,
            "paper": paper,
        }));
    }
    let mut butterflies = Vec::new();
    for (i, j, [lut, ff, dsp]) in BUTTERFLIES {
        bar.set_message(format!("butterfly of {i} bits"));
        let few = butterfly(i, j, 3, work)?;
        bar.inc(1);
        let fast = butterfly(i, j, 0, work)?;
        bar.inc(1);
        let [of_dsp, of_lut, ..] = few.rows(&format!("butterfly, q = 2^{i} - 2^{j} + 1"));
        rows.push(of_lut.beside(lut).noted("with the fewest DSP slices"));
        rows.push(of_dsp.beside(dsp));
        butterflies.push(json!({
            "i": i,
            "j": j,
            "few": few,
            "fast": fast,
            "cycles": BUTTERFLY_CYCLES,
            "paper": {"lut": lut, "ff": ff, "dsp": dsp},
        }));
    }
    bar.finish_and_clear();
    let data = json!({
        "measured": Measured::now(),
        "settings": settings,
        "butterflies": butterflies,
    });
    pages::publish("hw-streaming", &rows, &data, out)?;
    Ok(())
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
        "toroid-hw-bench streaming-random --count {count} --seed {seed}\n{}\n",
        Measured::now().line()
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
            &Progress::none(),
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
        pages::write(log, &(text + &summary))?;
    }
    Ok(())
}
