//! The prime-factor and Rader transform at the length of its paper and at others of its kind.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;
use toroid_bench_common::machine::Measured;
use toroid_bench_common::{Error, pages};
use toroid_cores::Values;
use toroid_cores::ntt_rader::Plan;
use toroid_cores::ntt_rader::{self, PAPER, plan};
use toroid_cores::vectors::{Streams, Vectors};
use toroid_ring::cyclotomic::CyclotomicRing;
use toroid_ring::prime;
use toroid_sim::model::{Model, Options};
use toroid_sim::random::Random;
use toroid_sim::simulation::Simulation;

use crate::measured::{counted, once, steps, synthesized, synthesized_design};
use crate::row::Row;
use toroid_task::Progress;

/// The length of the paper.
const M: u64 = 21845;

/// The greatest modulus for it, which synthesis takes.
const Q: u64 = 4_244_570_881;

/// Lengths with moduli. The least and the greatest that there are, and some in between.
const SETTINGS: [(u64, &[u64]); 10] = [
    (M, &[16_776_961, 2_141_858_561, 3_204_399_361, Q]),
    (4369, &[7_829_249, 4_282_598_657]),
    (1285, &[328_961, 4_294_243_841]),
    (65_535, &[16_776_961]),
    (13_107, &[16_776_961]),
    (771, &[16_776_961]),
    (255, &[783_361, 4_294_510_081]),
    (85, &[87_041, 2_147_385_601, 4_294_662_401]),
    (51, &[26_113, 3_221_124_097, 4_294_614_529]),
    (15, &[7681, 2_147_473_921, 4_294_928_641]),
];

/// Rows of seeds of four transforms each: random words, extreme words and the largest words, in both directions.
const SEEDS: u64 = 4;

/// Of the paper: clock and cycles.
const CLOCK: f64 = 250e6;
const CYCLES: f64 = 2987.0;

/// A row of Table IV: length, bits, clock in Hz, cycles, LUT, DSP, and what the paper prints for the time and the two products.
type Design = (&'static str, [f64; 6], [&'static str; 3]);

const TABLE: [Design; 8] = [
    (
        "the paper",
        [21845.0, 32.0, 250e6, CYCLES, PAPER.lut, PAPER.dsp],
        ["0.44", "87k", "398"],
    ),
    (
        "[10], m = 4369",
        [4369.0, 25.0, 250e6, 5825.0, 76_200.0, 256.0],
        ["5.8", "440k", "1480"],
    ),
    (
        "[10], m = 8193",
        [8193.0, 25.0, 250e6, 5825.0, 76_200.0, 256.0],
        ["2.9", "219k", "734"],
    ),
    (
        "[5]",
        [32768.0, 32.0, 250e6, 12725.0, 219_000.0, 768.0],
        ["1.0", "232k", "814"],
    ),
    (
        "[6]",
        [8192.0, 54.0, 300e6, 768.0, 142_000.0, 320.0],
        ["0.14", "21k", "47"],
    ),
    (
        "[7]",
        [4096.0, 60.0, 125e6, 972.0, 99_300.0, 929.0],
        ["0.86", "86k", "803"],
    ),
    (
        "[8]",
        [512.0, 13.0, 278e6, 2304.0, 1536.0, 1.0],
        ["45", "70k", "45"],
    ),
    (
        "[9]",
        [1024.0, 16.0, 45.47e6, 18537.0, 2908.0, 9.0],
        ["815", "2.4M", "7338"],
    ),
];

/// Microseconds, scaled to 1024 points and 32 bits as the paper's Table IV does it: by m log2 m and by the bits of a word.
fn scaled(m: f64, bits: f64, cycles: f64, clock: f64) -> f64 {
    cycles / clock * 1e6 * (1024.0 * 10.0) / (m * m.log2()) * (32.0 / bits)
}

/// What simulation found of a length and a modulus.
#[derive(Serialize, Deserialize)]
struct Simulated {
    alone: u64,
    interval: u64,
    transforms: u64,
}

impl Simulated {
    /// Cycles of a transform alone without those in which its words enter and leave, one beat per cycle.
    fn between(&self, plan: &Plan) -> f64 {
        (self.alone - 2 * plan.words() as u64) as f64
    }
}

fn values(m: u64, q: u64) -> Result<Values, Error> {
    Ok(Values::new(&ntt_rader::CORE, [("M", m), ("Q", q)])?)
}

fn model(values: &Values) -> Result<Model, Error> {
    let options = Options::quick_random();
    Ok(Model::build(
        &ntt_rader::CORE.configure(values)?.design()?,
        &options,
    )?)
}

/// All values by the definition.
fn naive(plan: &Plan, words: &[u32]) -> Vec<u32> {
    let q = u64::from(plan.dft().modulus());
    let value = |k: usize| {
        let point = prime::pow(plan.dft().root().into(), k as u64, q);
        let sum = words
            .iter()
            .rev()
            .fold(0, |sum, &word| (sum * point + u64::from(word)) % q);
        sum as u32
    };
    (0..words.len()).map(value).collect()
}

/// A transform alone and rows of four, compared with the library with and without stalls; and the library's with the
/// definition.
fn simulate(m: u64, q: u64) -> Result<Simulated, Error> {
    let values = values(m, q)?;
    let plan = plan(&values)?;
    let words: Vec<u32> = (0..m).map(|n| ((n * n + q / 2) % q) as u32).collect();
    let spectrum = plan.expected(false, &words);
    if spectrum != naive(&plan, &words) || plan.expected(true, &spectrum) != words {
        return Err("the library's transform is not that of the definition".into());
    }
    let mut simulation = model(&values)?.start_random(1)?;
    simulation.reset(4)?;
    let run = |simulation: &mut Simulation, vectors: Streams, seed| -> Result<_, Error> {
        counted(&Vectors::Streams(vectors).run(simulation, seed, &Progress::none())?)
    };
    let (mut alone, mut four) = (0, 0);
    for seed in 0..SEEDS {
        let Some(Vectors::Streams(all)) = ntt_rader::CORE.configure(&values)?.vectors(1, seed)
        else {
            return Err("no vectors".into());
        };
        let beats = plan.words();
        let one = Streams {
            sent: all.sent[..beats].to_vec(),
            expected: all.expected[..beats].to_vec(),
            cycles: plan.alone(),
            ..all
        };
        alone = run(&mut simulation, one, seed)?;
        four = run(&mut simulation, all, seed)?;
    }
    Ok(Simulated {
        alone,
        interval: (four - alone) / 3,
        transforms: SEEDS * 10,
    })
}

fn simulated(m: u64, q: u64, work: &Path) -> Result<Simulated, Error> {
    once(
        "rader",
        &ntt_rader::CORE.configure(&values(m, q)?)?.design()?,
        work,
        || simulate(m, q).map_err(|error| format!("m = {m}, q = {q}: {error}").into()),
    )
}

/// Cycles of a product in BGV's ring modulo Φ_m, by three transforms on the core, compared with the library's.
fn product(m: u64, q: u64) -> Result<u64, Error> {
    let values = values(m, q)?;
    let plan = plan(&values)?;
    let ring = CyclotomicRing::with_plan(plan.dft().clone())?;
    let mut random = Random::new(m);
    let mut element =
        || -> Vec<u32> { (0..ring.degree()).map(|_| random.below(q) as u32).collect() };
    let (a, b) = (element(), element());
    let mut simulation = model(&values)?.start_random(2)?;
    simulation.reset(4)?;
    let found = plan.multiply(&mut simulation, &a, &b)?;
    if found.words != ring.mul(&a, &b) {
        return Err("a product modulo Phi_m differs from the library's".into());
    }
    Ok(found.cycles)
}

/// A row of Table IV as the page has it.
fn design(name: &str, figures: [f64; 6], printed: [&str; 3]) -> serde_json::Value {
    let [m, bits, clock, cycles, lut, dsp] = figures;
    json!({
        "name": name,
        "m": m as u64,
        "bits": bits as u64,
        "mhz": clock / 1e6,
        "cycles": cycles,
        "lut": lut,
        "dsp": dsp,
        "time": scaled(m, bits, cycles, clock),
        "printed": printed,
    })
}

/// Every setting; what is kept in `work` is not measured again.
pub fn page(work: &Path, out: Option<&Path>) -> Result<(), Error> {
    let runs: usize = SETTINGS.iter().map(|(_, moduli)| moduli.len()).sum();
    let bar = steps(runs as u64 + 6)?;
    let mut lengths = Vec::new();
    let mut measured = Vec::new();
    for (m, moduli) in SETTINGS {
        let mut transforms = 0;
        let mut last = None;
        for &q in moduli {
            bar.set_message(format!("m = {m}, q = {q}"));
            let found = simulated(m, q, work)?;
            transforms += found.transforms;
            last = Some(found);
            bar.inc(1);
        }
        let plan = plan(&values(m, moduli[0])?)?;
        let found = last.ok_or("no moduli")?;
        let between = found.between(&plan);
        lengths.push(json!({
            "m": m,
            "moduli": moduli,
            "transforms": transforms,
            "alone": found.alone,
            "between": between,
            "interval": found.interval,
            "computing": plan.computing(),
        }));
        measured.push((m as f64, between, found));
    }
    bar.set_message("a product");
    let of_product = once(
        "rader-product",
        &ntt_rader::CORE.configure(&values(M, Q)?)?.design()?,
        work,
        || product(M, Q),
    )?;
    bar.inc(1);
    let mut cores = Vec::new();
    let mut costs = Vec::new();
    for (m, q) in [(M, Q), (4369, 4_282_598_657)] {
        bar.set_message(format!("synthesis, m = {m}"));
        let area = synthesized(&ntt_rader::CORE, &values(m, q)?, work)?;
        costs.push(json!({"name": format!("core, m = {m}"), "area": area}));
        cores.push(area);
        bar.inc(1);
    }
    for name in ["rader_element", "rader_column", "montgomery_double_mul"] {
        bar.set_message(name);
        let mut design = toroid_cores::sources::design(name)?;
        if name == "montgomery_double_mul" {
            design = design.with("SHORT", 1u64);
        }
        let area = synthesized_design(name, &design, false, work)?;
        costs.push(json!({"name": format!("`{name}`"), "area": area}));
        bar.inc(1);
    }
    bar.finish_and_clear();

    let (area, (m, between, found)) = (&cores[0], &measured[0]);
    let what = format!("m = {M}");
    let beside = |row: Row, reference: f64| {
        row.beside(reference)
            .at_most((reference * 100.0).round() / 100.0)
    };
    let row = |kind: &str, ours, unit, reference, note: &str| {
        beside(Row::new(format!("{what}: {kind}"), ours, unit), reference).noted(note)
    };
    let time = scaled(*m, 32.0, *between, CLOCK);
    let paper = scaled(*m, 32.0, CYCLES, CLOCK);
    let clock = "at the paper's 250 MHz, which is assumed";
    let [dsp, lut, ff, bram] = area.rows(&what);
    let rows = [
        row(
            "filling, computing and emptying",
            found.alone as f64,
            "cycles",
            CYCLES,
            "first beat in to last beat out; the paper's cycles without its filling and emptying of 85 each",
        ),
        row(
            "between filling and emptying",
            *between,
            "cycles",
            CYCLES,
            "the row above less its 85 beats in and 85 out; what the paper's cycles are taken to be",
        ),
        row(
            "from a transform to the next",
            found.interval as f64,
            "cycles",
            CYCLES,
            "the paper fills and empties meanwhile",
        ),
        beside(dsp, PAPER.dsp),
        beside(lut, PAPER.lut),
        beside(ff, PAPER.ff).noted("170k in the paper's Table IV"),
        beside(bram, PAPER.ramb36).noted("429 in the paper's Table IV"),
        row("t~ of Table IV", time, "us", paper, clock),
        row("t~ LUT", time * area.luts(), "us LUT", paper * PAPER.lut, clock),
        row("t~ DSP", time * area.dsp as f64, "us DSP", paper * PAPER.dsp, clock),
        Row::new(
            format!("{what}: a product modulo Phi_m of BGV, three transforms"),
            of_product as f64,
            "cycles",
        )
        .noted("cycles between the transforms, in which the host multiplies values and divides by Phi_m, are not counted"),
    ];
    let ours = cores.iter().zip(&measured).map(|(area, (m, cycles, _))| {
        let figures = [*m, 32.0, CLOCK, *cycles, area.luts(), area.dsp as f64];
        design(&format!("**ours, m = {m}**"), figures, [""; 3])
    });
    let others = TABLE
        .iter()
        .map(|(name, figures, printed)| design(name, *figures, *printed));
    let data = json!({
        "measured": Measured::now(),
        "lengths": lengths,
        "costs": costs,
        "designs": ours.chain(others).collect::<Vec<_>>(),
    });
    pages::publish("hw-rader", &rows, &data, out)?;
    Ok(())
}
