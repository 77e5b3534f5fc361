//! The elastic NTT beside its paper.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::json;
use toroid_bench_common::machine::Measured;
use toroid_bench_common::{Error, pages};
use toroid_cores::ntt_elastic::{Mode, Plan, Transform};
use toroid_cores::ntt_elastic::{PAPER, plan, vectors};
use toroid_cores::vectors::{Joined, Vectors};
use toroid_cores::{Core, Values, find};
use toroid_sim::model::{Model, Options};
use toroid_sim::random::Random;
use toroid_sim::simulation::Simulation;
use toroid_sim::stream::{Sink, Source};

use crate::energy::{self, Range};
use crate::measured::{once, spinner, synthesized};
use crate::row::Row;
use toroid_task::Progress;

/// Of the paper: its FPGA in MHz, and its latency at N = 4096 in microseconds.
const CLOCK: f64 = 300.0;
const MICROSECONDS: f64 = 3.813;
/// Words of twiddle factors per cycle: where the core makes none, and in the paper.
const ALL_WORDS: f64 = 16.0;
const PAPER_WORDS: f64 = 5.0;
/// Its ASIC at 28 nm: MHz, mW, and the ideal area in square millimetres.
const ASIC_CLOCK: f64 = 500.0;
const ASIC_MILLIWATT: f64 = 47.745;
const ASIC_AREA: f64 = 0.082;

/// The run on 32 lanes, whose shortest lengths have moduli that are 1 modulo 2^12.
const WIDE_WORD: u64 = 12;
const WIDE_COUNT: usize = 12;

/// Words of a beat of factors.
const WORDS: u64 = 2;

/// Transforms of one length whose interval is measured.
const IN_A_ROW: usize = 8;

/// Kilobytes of a block memory of 36 Kbit, of which 32 are data.
const BLOCK_KB: f64 = 4.5;

/// What a simulation shows.
#[derive(Serialize, Deserialize)]
pub struct Found {
    /// Transforms of each length.
    lengths: Vec<Length>,
    /// Cycles without a beat at the input, between two transforms of which the second one is not known during the first.
    unknown: u64,
    /// Cycles without a beat at the output, between the shortest and the longest transform.
    waits: u64,
    /// Transforms back to back.
    transforms: usize,
    /// Of these, beats of data.
    beats: u64,
    /// Cycles between their first and last beat in which none was taken, and in which none left.
    bubbles_in: u64,
    bubbles_out: u64,
    /// Changes from a transform to the next, of q, N and mode.
    changes: [usize; 3],
    /// Words of factors that were taken with them, the preamble among them, and those of them that say something.
    words: u64,
    words_used: u64,
    /// Transforms with gaps and stalls at random.
    stalled: usize,
    seconds: f64,
}

/// Transforms of one length.
#[derive(Serialize, Deserialize)]
struct Length {
    log_n: u32,
    /// Cycles of one alone, first beat in to last beat out.
    latency: u64,
    /// The same from the first beat of its preamble, in a core that knows nothing.
    idle: u64,
    /// The most cycles between first beats of back-to-back transforms.
    interval: u64,
}

impl Found {
    /// What was measured of a length.
    fn length(&self, log_n: u32) -> Result<&Length, Error> {
        let found = self.lengths.iter().find(|of| of.log_n == log_n);
        found.ok_or_else(|| format!("no transform of 2^{log_n} words was measured").into())
    }
}

fn values(log_lanes: u64, word: u64) -> Result<Values, Error> {
    let given = [("LOG_LANES", log_lanes), ("WORD", word)];
    Ok(Values::new(find("ntt_elastic")?, given)?)
}

/// Transforms of which each differs from the one before in q and mode, and in N where there is more than one length. The first is
/// of the longest: no later one waits longer in the banks.
fn draw(plan: &Plan, count: usize, random: &mut Random) -> Vec<Transform> {
    let range = plan.log_n();
    let mut sequence = vec![plan.draw_as(plan.draw(random).mode, *range.end(), random)];
    while sequence.len() < count {
        let last = sequence[sequence.len() - 1];
        let next = plan.draw(random);
        let other_length = range.start() == range.end() || next.log_n != last.log_n;
        if next.q != last.q && next.mode != last.mode && other_length {
            sequence.push(next);
        }
    }
    sequence
}

/// What a run at full speed shows.
struct Run {
    /// The cycle in which each beat of data was taken.
    taken: Vec<u64>,
    /// Cycles from the first beat of factors in to the last beat out, and from the first beat of data in, all counted.
    from_factors: u64,
    from_data: u64,
    /// Cycles without a beat between the first and the last, at either end.
    bubbles_in: u64,
    bubbles_out: u64,
    /// Words of factors, and those of them that are not 0.
    words: u64,
    words_used: u64,
}

/// Sequences back to back, a preamble before each; compared with the library.
fn run(
    simulation: &mut Simulation,
    plan: &Plan,
    sequences: &[&[Transform]],
    random: &mut Random,
) -> Result<Run, Error> {
    let mut source = Source::new(simulation, "in", 0.0, 1)?;
    let mut factors = Source::new(simulation, "factor", 0.0, 2)?;
    let mut sink = Sink::new(simulation, "out", 0.0, 3)?;
    let (mut expected, mut words_used, mut limit) = (Vec::new(), 0, 1000);
    for sequence in sequences {
        let Joined { streams, others } = vectors(plan, sequence, random)?;
        source.extend(streams.sent);
        for beat in &others[0].sent {
            words_used += beat.words(8).iter().filter(|word| **word != 0).count() as u64;
        }
        factors.extend(others[0].sent.iter().cloned());
        expected.extend(streams.expected);
        limit += 4 * streams.cycles;
    }
    let beats = expected.len() as u64;
    let (mut taken, mut first_factor) = (Vec::new(), None);
    let start = simulation.cycles();
    while sink.received().len() < expected.len() {
        if simulation.cycles() - start > limit {
            return Err("the core stands still".into());
        }
        let cycle = simulation.cycles();
        let (before, factors_before) = (source.sent(), factors.sent());
        simulation.cycle(&mut [&mut source, &mut factors, &mut sink])?;
        if source.sent() != before {
            taken.push(cycle);
        }
        if factors.sent() != factors_before {
            first_factor.get_or_insert(cycle);
        }
    }
    if sink.received() != expected {
        return Err("a beat differs from the library".into());
    }
    let (Some(first), Some(last), Some(first_factor)) = (taken.first(), taken.last(), first_factor)
    else {
        return Err("no beat was taken".into());
    };
    let (Some(first_out), Some(last_out)) = (sink.first_cycle(), sink.last_cycle()) else {
        return Err("no beat left".into());
    };
    let between = |first: u64, last: u64| last + 1 - first - beats;
    let found = Run {
        from_factors: last_out + 1 - first_factor,
        from_data: last_out + 1 - first,
        bubbles_in: between(*first, *last),
        bubbles_out: between(first_out, last_out),
        taken,
        words: WORDS * factors.sent(),
        words_used,
    };
    if let [sequence] = sequences
        && found.from_data != plan.cycles(sequence)
    {
        let formula = plan.cycles(sequence);
        return Err(format!("{} cycles, by the formula {formula}", found.from_data).into());
    }
    Ok(found)
}

/// Transforms of each length alone and back to back, `count` of all kinds back to back, and some with gaps and
/// stalls.
pub fn simulate(log_lanes: u64, word: u64, count: usize, seed: u64) -> Result<Found, Error> {
    let bar = spinner(&format!(
        "{} lanes: the model is made, which takes minutes, and simulated",
        1 << log_lanes
    ))?;
    let core = find("ntt_elastic")?;
    let values = values(log_lanes, word)?;
    let plan = plan(&values)?;
    let options = Options::quick_random();
    let model = Model::build(&core.configure(&values)?.design()?, &options)?;
    let mut simulation = model.start_random(1)?;
    simulation.reset(4)?;
    let start = Instant::now();
    let mut random = Random::new(seed);
    let mut lengths = Vec::new();
    for log_n in plan.log_n() {
        let one = plan.draw_as(Mode::Ncn, log_n, &mut random);
        let alone = run(&mut simulation, &plan, &[&[one]], &mut random)?;
        let many = run(&mut simulation, &plan, &[&[one; IN_A_ROW]], &mut random)?;
        let firsts: Vec<u64> = many
            .taken
            .iter()
            .step_by(plan.beats(log_n) as usize)
            .copied()
            .collect();
        let intervals = firsts.windows(2).map(|pair| pair[1] - pair[0]);
        lengths.push(Length {
            log_n,
            latency: alone.from_data,
            idle: alone.from_factors,
            interval: intervals.max().ok_or("no interval was measured")?,
        });
    }
    let [shortest, longest] = [*plan.log_n().start(), *plan.log_n().end()]
        .map(|log_n| plan.draw_as(Mode::Ntt, log_n, &mut random));
    let unknown = run(
        &mut simulation,
        &plan,
        &[&[longest], &[shortest]],
        &mut random,
    )?
    .bubbles_in;
    let waits = run(&mut simulation, &plan, &[&[shortest, longest]], &mut random)?.bubbles_out;
    let sequence = draw(&plan, count, &mut random);
    let whole = run(&mut simulation, &plan, &[&sequence], &mut random)?;
    let pairs = || sequence.iter().zip(&sequence[1..]);
    let changes = [
        pairs().filter(|(a, b)| a.q != b.q).count(),
        pairs().filter(|(a, b)| a.log_n != b.log_n).count(),
        pairs().filter(|(a, b)| a.mode != b.mode).count(),
    ];
    let stalled = count.min(24);
    let more = draw(&plan, stalled, &mut random);
    Vectors::Joined(vectors(&plan, &more, &mut random)?).run(
        &mut simulation,
        seed,
        &Progress::none(),
    )?;
    bar.finish_and_clear();
    Ok(Found {
        lengths,
        unknown,
        waits,
        transforms: count,
        beats: whole.taken.len() as u64,
        bubbles_in: whole.bubbles_in,
        bubbles_out: whole.bubbles_out,
        changes,
        words: whole.words,
        words_used: whole.words_used,
        stalled,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// What was found, in words.
fn said(log_lanes: u64, found: &Found) -> String {
    let mut text = String::new();
    for of in &found.lengths {
        let _ = writeln!(
            text,
            "N = {}: {} cycles, first beat in to last beat out, {} from the first beat of a preamble; one every {} cycles",
            1u64 << of.log_n,
            of.latency,
            of.idle,
            of.interval
        );
    }
    let _ = writeln!(
        text,
        "the longest, then the shortest that was not known: {} cycles without input between them\n\
         the shortest, then the longest: {} cycles without output between them",
        found.unknown, found.waits
    );
    let [q, n, mode] = found.changes;
    let _ = writeln!(
        text,
        "{} lanes: {} transforms back to back, {} beats, all equal to the library\n\
         changes from one to the next: {q} of q, {n} of N, {mode} of the mode\n\
         bubbles: {} at the input, {} at the output\n\
         words of factors taken: {}, {:.4} a beat of data, {} of them not 0\n\
         {} more transforms with gaps and stalls at random, equal too\n\
         {:.0} s",
        1 << log_lanes,
        found.transforms,
        found.beats,
        found.bubbles_in,
        found.bubbles_out,
        found.words,
        found.words as f64 / found.beats as f64,
        found.words_used,
        found.stalled,
        found.seconds,
    );
    text
}

/// A sequence at any number of lanes, with a log if wanted.
pub fn sequence(
    log_lanes: u64,
    word: u64,
    count: usize,
    seed: u64,
    log: Option<&Path>,
) -> Result<(), Error> {
    let found = simulate(log_lanes, word, count, seed)?;
    let text = said(log_lanes, &found);
    print!("{text}");
    if let Some(path) = log {
        let head = format!(
            "toroid-hw-bench elastic-sequence --log-lanes {log_lanes} --word {word} --count {count} --seed {seed}\n{}\n",
            Measured::now().line()
        );
        pages::write(path, &(head + &text))?;
    }
    Ok(())
}

/// A part of the core as cells of an open library.
#[derive(Serialize, Deserialize)]
struct Part {
    name: String,
    count: u64,
    /// Of each.
    square_micrometres: f64,
    /// Of each in a cycle.
    picojoules: Range,
}

/// What the core would take, by its parts.
fn cells(plan: &Plan, work: &Path) -> Result<Vec<Part>, Error> {
    let [butterflies, products, factors] = plan.multipliers();
    let (lanes, log_lanes) = (plan.lanes() as u64, u64::from(plan.setting().log_lanes));
    let mul = plan.mul_latency();
    let (multiplier, register) = energy::elastic_blocks(plan, work)?;
    // Registers of a word: sums and the other operand of a butterfly, factors that wait for others, lanes that wait for factors and
    // those of commutators, constants now and next with the numbers of words that go from unit to unit.
    let of_butterflies = butterflies * (mul + 2);
    let of_factors = (2 * lanes - 1) * mul + 2 * log_lanes * (mul + 1);
    let of_lanes = lanes * (mul - log_lanes) + lanes * (lanes - 1) + 8 * lanes;
    let of_constants = 2 * (2 * (lanes - 1) + lanes / 2 + 4) + 4 * log_lanes * (mul + 1) + 6 * mul;
    let registers = of_butterflies + of_factors + of_lanes + of_constants;
    let part = |name: &str, count: u64, block: &energy::Block| -> Result<Part, Error> {
        Ok(Part {
            name: name.to_owned(),
            count,
            square_micrometres: block.area_um2,
            picojoules: block.range("random")?.times(1e12),
        })
    };
    Ok(vec![
        part(
            "multiplier modulo q, with what delays q",
            butterflies + products + factors,
            &multiplier,
        )?,
        part("register of 64 bits", registers, &register)?,
    ])
}

/// The core beside its paper; what is kept in `work` is not measured again.
pub fn page(work: &Path, count: usize, out: Option<&Path>) -> Result<(), Error> {
    let core: &Core = find("ntt_elastic")?;
    let values = values(4, 10)?;
    let plan = plan(&values)?;
    let design = core.configure(&values)?.design()?;
    let run = format!("elastic-run-{count}");
    let found: Found = once(&run, &design, work, || simulate(4, 10, count, 1))?;
    let of_wide = self::values(5, WIDE_WORD)?;
    let wide: Found = once(
        "elastic-run-wide",
        &core.configure(&of_wide)?.design()?,
        work,
        || simulate(5, WIDE_WORD, WIDE_COUNT, 1),
    )?;
    let parts: Vec<Part> = once("elastic-parts", &design, work, || cells(&plan, work))?;
    let bar = spinner("synthesis of 16 lanes")?;
    let area = synthesized(core, &values, work)?;
    bar.finish_and_clear();
    for found in [&found, &wide] {
        if found.changes != [found.transforms - 1; 3] {
            return Err("two successive transforms have something in common".into());
        }
    }
    let sum = |of: fn(&Part) -> f64| -> f64 {
        parts.iter().map(|part| part.count as f64 * of(part)).sum()
    };
    let square_millimetres = sum(|part| part.square_micrometres) / 1e6;
    let milliwatt = Range {
        low: sum(|part| part.picojoules.low),
        high: sum(|part| part.picojoules.high),
    }
    .times(ASIC_CLOCK * 1e-3);

    let mut rows = rows_of_run(&found)?;
    let of = |what: &str, ours: f64, unit| Row::new(format!("16 lanes: {what}"), ours, unit);
    let beside = |row: Row, reference: f64| row.beside(reference).at_most(reference);
    rows.extend([
        beside(of("DSP48E1", area.dsp as f64, "slices"), PAPER.dsp),
        beside(of("LUT", area.luts(), "LUTs"), PAPER.lut)
            .noted("shift registers and small memories among them"),
        beside(of("FF", area.ff as f64, "flip-flops"), PAPER.ff),
        beside(
            of("block memories", area.bram * BLOCK_KB, "KB"),
            PAPER.ramb36 * BLOCK_KB,
        ),
    ]);
    for log_n in 12..=15 {
        let length = wide.length(log_n)?;
        let cycles = |what: &str, ours: u64| {
            let name = format!("32 lanes, N = {}: {what}", 1 << log_n);
            Row::new(name, ours as f64, "cycles")
        };
        rows.extend([
            cycles("latency", length.latency).noted(format!("{} with the preamble", length.idle)),
            cycles("interval", length.interval).at_most(f64::from(1 << (log_n - 5))),
        ]);
    }
    rows.extend([
        of(
            "area of cells, 45 nm beside 28 nm",
            square_millimetres,
            "mm2",
        )
        .beside(ASIC_AREA)
        .noted("without memories, wires and clock tree, beside the paper's ideal area"),
        of(
            "power at 500 MHz, 45 nm beside 28 nm, geometric mean of its range",
            (milliwatt.low * milliwatt.high).sqrt(),
            "mW",
        )
        .beside(ASIC_MILLIWATT)
        .noted("the lower end without wires, glitches and clock tree"),
    ]);
    let (log, wide_log) = (said(4, &found), said(5, &wide));
    let measured = Measured::now();
    if let Some(out) = out {
        let head = format!(
            "toroid-hw-bench elastic --count {count}\n{}\n",
            measured.line()
        );
        pages::write(&out.join("hw-elastic-sequence.log"), &(head + &log))?;
    }
    let data = json!({
        "measured": measured,
        "area": area,
        "run": log.lines().collect::<Vec<_>>(),
        "unknown": found.unknown,
        "waits": found.waits,
        "wide_word": WIDE_WORD,
        "wide_run": wide_log.lines().collect::<Vec<_>>(),
        "parts": parts,
        "square_millimetres": square_millimetres,
        "milliwatt": milliwatt,
        "bank_kilobytes": (2 * plan.lanes().pow(3) * 8) as f64 / 1024.0,
    });
    pages::publish("hw-elastic", &rows, &data, out)?;
    Ok(())
}

/// What the run on 16 lanes shows.
fn rows_of_run(found: &Found) -> Result<Vec<Row>, Error> {
    let longest = found.length(12)?;
    let words = found.words as f64 / found.beats as f64;
    let saved = 100.0 * (1.0 - words / ALL_WORDS);
    let cycles = |name: &str, ours: u64| Row::new(name, ours as f64, "cycles");
    let mut rows = vec![
        cycles("16 lanes, N = 4096: latency", longest.latency)
            .beside((MICROSECONDS * CLOCK).round())
            .at_most(800.0)
            .noted("first beat of data in to last beat out, both counted; the paper's 3.813 us at 300 MHz"),
        cycles("16 lanes, N = 4096: latency with the preamble of an idle core", longest.idle)
            .at_most(800.0)
            .noted("first beat of factors in to last beat of data out, of a core that knows nothing"),
    ];
    for log_n in [10, 11] {
        let length = found.length(log_n)?;
        rows.push(
            cycles(
                &format!("16 lanes, N = {}: latency", 1 << log_n),
                length.latency,
            )
            .noted(format!("{} with the preamble", length.idle)),
        );
    }
    rows.push(
        cycles("16 lanes, N = 4096: interval", longest.interval)
            .beside(256.0)
            .at_most(256.0)
            .noted("the most between first beats of back-to-back transforms"),
    );
    for log_n in [10, 11] {
        let name = format!("16 lanes, N = {}: interval", 1 << log_n);
        let most = (1u64 << log_n) as f64 / ALL_WORDS;
        rows.push(cycles(&name, found.length(log_n)?.interval).at_most(most));
    }
    rows.extend([
        cycles(
            "16 lanes: cycles without input before a transform that was not known",
            found.unknown,
        )
        .noted("its constants did not come with the transform before"),
        cycles(
            "16 lanes: cycles without output between N = 1024 and N = 4096",
            found.waits,
        )
        .noted("the input does not wait"),
        cycles(
            &format!(
                "bubbles in {} transforms, each of another q, N and mode than the one before",
                found.transforms
            ),
            found.bubbles_in + found.bubbles_out,
        )
        .at_most(0.0)
        .noted("the longest first, after which none waits; hw-elastic-sequence.log"),
        Row::new(
            "16 lanes: words of twiddle factors per cycle",
            words,
            "words",
        )
        .beside(PAPER_WORDS)
        .at_most(PAPER_WORDS)
        .noted("taken in that run, the preamble among them"),
        Row::new(
            "16 lanes: words that must be streamed, of 16 per cycle",
            100.0 - saved,
            "%",
        )
        .beside(31.3)
        .at_most(31.3)
        .noted(format!("{saved:.1} % saved, in the paper 68.7 %")),
    ]);
    Ok(rows)
}
