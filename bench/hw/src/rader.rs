//! The prime-factor and Rader transform at the length of its paper and at others of its kind.

use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use toroid_cores::ntt_rader::Plan;
use toroid_cores::ntt_rader::{NttRader, PAPER, plan};
use toroid_cores::vectors::{Streams, Vectors};
use toroid_cores::{Core, Values};
use toroid_ring::cyclotomic::CyclotomicRing;
use toroid_ring::prime;
use toroid_sim::model::{Model, Options};
use toroid_sim::random::Random;
use toroid_sim::simulation::Simulation;

use crate::Error;
use crate::measured::{blocks, counted, luts, once, steps, synthesized, synthesized_design};
use crate::report::{Row, date, machine, number, publish, row_table};

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

/// A row of Table IV: length, bits, MHz, cycles, LUT, DSP, and what it prints for the time and the two products.
struct Other {
    name: &'static str,
    m: f64,
    bits: f64,
    clock: f64,
    cycles: f64,
    lut: f64,
    dsp: f64,
    printed: [&'static str; 3],
}

const fn other(name: &'static str, row: [f64; 6], printed: [&'static str; 3]) -> Other {
    let [m, bits, clock, cycles, lut, dsp] = row;
    Other {
        name,
        m,
        bits,
        clock,
        cycles,
        lut,
        dsp,
        printed,
    }
}

const TABLE: [Other; 8] = [
    other(
        "the paper",
        [21845.0, 32.0, 250e6, CYCLES, PAPER.lut, PAPER.dsp],
        ["0.44", "87k", "398"],
    ),
    other(
        "[10], m = 4369",
        [4369.0, 25.0, 250e6, 5825.0, 76_200.0, 256.0],
        ["5.8", "440k", "1480"],
    ),
    other(
        "[10], m = 8193",
        [8193.0, 25.0, 250e6, 5825.0, 76_200.0, 256.0],
        ["2.9", "219k", "734"],
    ),
    other(
        "[5]",
        [32768.0, 32.0, 250e6, 12725.0, 219_000.0, 768.0],
        ["1.0", "232k", "814"],
    ),
    other(
        "[6]",
        [8192.0, 54.0, 300e6, 768.0, 142_000.0, 320.0],
        ["0.14", "21k", "47"],
    ),
    other(
        "[7]",
        [4096.0, 60.0, 125e6, 972.0, 99_300.0, 929.0],
        ["0.86", "86k", "803"],
    ),
    other(
        "[8]",
        [512.0, 13.0, 278e6, 2304.0, 1536.0, 1.0],
        ["45", "70k", "45"],
    ),
    other(
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
    /// Cycles of a transform alone but for those in which its words enter and leave, one beat a cycle.
    fn between(&self, plan: &Plan) -> f64 {
        (self.alone - 2 * plan.words() as u64) as f64
    }
}

fn values(m: u64, q: u64) -> Result<Values, Error> {
    Ok(Values::new(&NttRader, [("M", m), ("Q", q)])?)
}

fn model(values: &Values) -> Result<Model, Error> {
    let options = Options::quick_random();
    Ok(Model::build(&NttRader.design(values)?, &options)?)
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
        counted(&Vectors::Streams(vectors).run(simulation, seed, &())?)
    };
    let (mut alone, mut four) = (0, 0);
    for seed in 0..SEEDS {
        let Some(Vectors::Streams(all)) = NttRader.vectors(&values, 1, seed) else {
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
    once("rader", &NttRader.design(&values(m, q)?)?, work, || {
        simulate(m, q).map_err(|error| format!("m = {m}, q = {q}: {error}").into())
    })
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

/// Every setting; what is kept in `work` is not measured again.
pub fn rows(work: &Path, out: Option<&Path>) -> Result<(), Error> {
    let runs: usize = SETTINGS.iter().map(|(_, moduli)| moduli.len()).sum();
    let bar = steps(runs as u64 + 6)?;
    let mut lengths = String::from(
        "| m | moduli | transforms compared | alone | between filling and emptying | interval | computing (formula) |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |\n",
    );
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
        let list: Vec<String> = moduli.iter().map(u64::to_string).collect();
        let _ = writeln!(
            lengths,
            "| {m} | {} | {transforms} | {} | {} | {} | {} |",
            list.join(", "),
            number(found.alone as f64),
            number(found.between(&plan)),
            number(found.interval as f64),
            number(plan.computing() as f64),
        );
        measured.push((m, found.between(&plan), found));
    }
    bar.set_message("a product");
    let of_product = once(
        "rader-product",
        &NttRader.design(&values(M, Q)?)?,
        work,
        || product(M, Q),
    )?;
    bar.inc(1);
    let mut resources = Vec::new();
    for (m, q) in [(M, Q), (4369, 4_282_598_657)] {
        bar.set_message(format!("synthesis, m = {m}"));
        resources.push((m, synthesized(&NttRader, &values(m, q)?, work)?));
        bar.inc(1);
    }
    let mut parts = Vec::new();
    for name in ["rader_element", "rader_column", "montgomery_double_mul"] {
        bar.set_message(name);
        let design = toroid_cores::sources::design(name)?;
        let design = match name {
            "montgomery_double_mul" => design.with("SHORT", 1u64),
            _ => design,
        };
        parts.push((name, synthesized_design(name, &design, false, work)?));
        bar.inc(1);
    }
    bar.finish_and_clear();

    let ours = &resources[0].1;
    let (_, between, found) = &measured[0];
    let (lut, dsp, bram) = (luts(ours), ours.dsp as f64, blocks(ours));
    let mut rows = Vec::new();
    let mut row = |what: &str, ours: f64, unit, reference: f64, most: Option<f64>, note: &str| {
        let name = format!("m = {M}: {what}");
        let most = most.map(|most| (most * 100.0).round() / 100.0);
        rows.push(Row::new(&name, ours, unit, Some(reference), most, note));
    };
    row(
        "filling, computing and emptying",
        found.alone as f64,
        "cycles",
        CYCLES,
        Some(CYCLES),
        "first beat in to last beat out; the paper's cycles without its filling and emptying of 85 each",
    );
    row(
        "between filling and emptying",
        *between,
        "cycles",
        CYCLES,
        Some(CYCLES),
        "the row above less its 85 beats in and 85 out; what the paper's cycles are taken to be",
    );
    row(
        "from a transform to the next",
        found.interval as f64,
        "cycles",
        CYCLES,
        Some(CYCLES),
        "the paper fills and empties meanwhile",
    );
    row("DSP48E1", dsp, "slices", PAPER.dsp, Some(PAPER.dsp), "");
    row("LUT", lut, "LUTs", PAPER.lut, Some(PAPER.lut), "");
    row(
        "FF",
        ours.ff as f64,
        "flip-flops",
        PAPER.ff,
        Some(PAPER.ff),
        "170k in the paper's Table IV",
    );
    row(
        "BRAM of 36 Kbit",
        bram,
        "blocks",
        PAPER.ramb36,
        Some(PAPER.ramb36),
        "429 in the paper's Table IV",
    );
    let time = scaled(M as f64, 32.0, *between, CLOCK);
    let paper = scaled(M as f64, 32.0, CYCLES, CLOCK);
    let note = "at the paper's 250 MHz, which is assumed";
    row("t~ of Table IV", time, "us", paper, Some(paper), note);
    row(
        "t~ LUT",
        time * lut,
        "us LUT",
        paper * PAPER.lut,
        Some(paper * PAPER.lut),
        note,
    );
    row(
        "t~ DSP",
        time * dsp,
        "us DSP",
        paper * PAPER.dsp,
        Some(paper * PAPER.dsp),
        note,
    );

    let name = format!("m = {M}: a product modulo Phi_m of BGV, three transforms");
    let note = "cycles between the transforms, in which the host multiplies values and divides by Phi_m, are not counted";
    rows.push(Row::new(
        &name,
        of_product as f64,
        "cycles",
        None,
        None,
        note,
    ));

    let mut table = String::from(
        "| design | m | bits | MHz | cycles | LUT | DSP | t~, µs | printed | t~ LUT | printed | t~ DSP | printed |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    let mut line = |name: &str,
                    m: f64,
                    bits: f64,
                    clock: f64,
                    cycles: f64,
                    lut: f64,
                    dsp: f64,
                    printed: [&str; 3]| {
        let time = scaled(m, bits, cycles, clock);
        let _ = writeln!(
            table,
            "| {name} | {m} | {bits} | {} | {} | {} | {} | {time:.3} | {} | {} | {} | {} | {} |",
            clock / 1e6,
            number(cycles),
            number(lut),
            number(dsp),
            printed[0],
            number((time * lut).round()),
            printed[1],
            number((time * dsp).round()),
            printed[2],
        );
    };
    for ((m, resources), (_, cycles, _)) in resources.iter().zip(&measured) {
        let name = format!("**ours, m = {m}**");
        let (lut, dsp) = (luts(resources), resources.dsp as f64);
        line(
            &name,
            *m as f64,
            32.0,
            CLOCK,
            *cycles,
            lut,
            dsp,
            ["", "", ""],
        );
    }
    for other in &TABLE {
        let Other {
            name,
            m,
            bits,
            clock,
            cycles,
            lut,
            dsp,
            printed,
        } = *other;
        line(name, m, bits, clock, cycles, lut, dsp, printed);
    }
    let mut costs = String::from(
        "| | LUT | LUT memories, SRL | FF | DSP | BRAM of 36 Kbit |\n| --- | ---: | ---: | ---: | ---: | ---: |\n",
    );
    let whole = resources
        .iter()
        .map(|(m, found)| (format!("core, m = {m}"), found));
    let parts = parts
        .iter()
        .map(|(name, found)| (format!("`{name}`"), found));
    for (name, found) in whole.chain(parts) {
        let _ = writeln!(
            costs,
            "| {name} | {} | {} | {} | {} | {} |",
            number(found.lut as f64),
            number(found.lutram as f64),
            number(found.ff as f64),
            found.dsp,
            number(blocks(found)),
        );
    }
    print!("{}", row_table(&rows));
    if let Some(out) = out {
        let page = page(&lengths, &costs, &table, &row_table(&rows));
        publish(out, "hw-rader", &page, &rows)?;
    }
    Ok(())
}

fn page(lengths: &str, costs: &str, table: &str, rows: &str) -> String {
    format!(
        "# The prime-factor and Rader transform, measured\n\n\
         `cd bench && cargo run --release -p toroid-hw-bench -- rader --write` wrote this page and hw-rader.json on {} ({}). \
         The paper is Du Pont, Hardware Acceleration of the Prime-Factor and Rader NTT for BGV Fully Homomorphic Encryption, an Alveo U250 at 250 MHz.\n\n\
         ## Against the paper\n\n{rows}\n\
         Cycles with filling and emptying, and from a transform to the next, are counted in simulation, with results equal to the library's, with stalls and without; they equal the formulas of \
         [ntt_rader](../../hw/ntt_rader/README.md). *Between filling and emptying* is from behind the last beat in to the first beat out; \
         the paper's 2,987 are taken to be that, as it loads and unloads meanwhile, and Table IV has it. The core has (P − 1) / 2 butterflies, 128 at this length, of two columns each; \
         their number follows from the length and is no parameter of its own. LUT, FF, BRAM and DSP are Yosys's for Xilinx 7 series, \
         each module that stands at several places mapped once; LUT counts look-up tables that are shift registers or memories. Nothing is placed and routed, so no clock rate is known; the paper's figures are Vivado's after both, for UltraScale+. \
         Yosys does not put two functions into one LUT, which overstates LUTs; it replicates no registers and finds more shift registers, which understates FFs.\n\n\
         ## Lengths and moduli\n\n{lengths}\n\
         *Computing* is from the first word that is read for a transform to the last that is written, which no port shows. Every modulus: forward and inverse transforms of random words, of extreme words (0, 1, 2, about q / 2, q - 2, q - 1) and of q - 1 alone, alone and in rows of four that change direction. \
         The library's transform is compared with the definition, all m values, for each modulus.\n\n\
         ## What it costs\n\n{costs}\n\
         The parts are at their defaults (m = 21845). The elements' constants and the program are of the modulus, so counts depend on it by a few LUTs.\n\n\
         ## Table IV: area-delay products\n\n{table}\n\
         t~ = cycles / clock · (1024 · 10) / (m log2 m) · 32 / bits: the time, scaled to 1024 points by m log2 m and to 32 bits linearly. \
         The paper does not state the rule; this one gives the products that it prints for every other design, to half a percent, their t~ but for digits cut instead of rounded, and the paper's own products, 87k and 398. \
         Its own t~ of 0.44 does not fit them: 87k / 224k = 398 / 1024 = 0.389. Ours are at the paper's 250 MHz, which is an assumption; without it, the ratio of the products is that of cycles and areas.\n",
        date(),
        machine(),
    )
}
