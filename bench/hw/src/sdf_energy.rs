//! An estimate of the energy of a transform by single-delay feedback: switching activity from simulation, times the power tables of
//! an open library of cells, as `energy` does it for the engine.

use std::collections::BTreeMap;
use std::path::Path;

use indicatif::ProgressBar;
use toroid_bench_common::Error;
use toroid_cores::arithmetic::folds;
use toroid_cores::ntt_sdf::{Architecture, Plan};
use toroid_cores::{Values, find, ntt_sdf};
use toroid_ring::prime;
use toroid_sim::random::Random;

use crate::energy::{Block, CYCLES, Range, Run, SRAM_ACCESS, Tools};

/// Steps from which a delay is a memory (`stepped_delay`), and rows from which a table is counted as one.
const MEMORY: u64 = 64;

/// The blocks of a modulus 2^i - 2^j + 1.
pub struct Blocks {
    q: u64,
    i: u32,
    /// log2 of the words of the polynomials whose twiddles the blocks were given.
    log_n: u32,
    /// With the twiddles of R2SDF and of R2^2SDF.
    product: [Block; 2],
    sums: Block,
    pair: Block,
    pair_inverse: Block,
    values: Block,
    register: Block,
}

/// 2^i - 2^j + 1, and its arithmetic as the modules have it.
struct Form {
    i: u32,
    j: u32,
}

impl Form {
    fn q(&self) -> i64 {
        (1 << self.i) - (1 << self.j) + 1
    }

    /// `solinas_shift`, and the sign of a twiddle.
    fn product(&self, x: u64, w: u64) -> i64 {
        let (i, j) = (self.i, self.j);
        let magnitude = w & ((1 << (i - 1)) - 1);
        let product = x * magnitude;
        let low = product & ((1 << j) - 1);
        let middle = (product >> j) & ((1 << i) - 1);
        let high = product >> (i + j);
        let t = middle as i64 + ((high << j) | low) as i64 - ((low << (i - j)) | high) as i64;
        if w >> (i - 1) == 1 { -t } else { t }
    }

    /// `solinas_carry`
    fn carry(&self, v: i64) -> u64 {
        let k = v >> self.i;
        let low = v - (k << self.i);
        let sum = low + k * ((1 << self.j) - 1);
        (if k < 0 { sum + self.q() } else { sum }) as u64
    }
}

/// A number of so many bits in two's complement.
fn bits(value: i64, width: u32) -> u64 {
    value as u64 & ((1 << width) - 1)
}

/// The twiddles that a stage has in cycle after cycle, about the middle of a polynomial.
fn operands(plan: &Plan, bit: u32) -> Vec<u64> {
    let n = 1usize << plan.setting().log_n;
    let first = n + n / 2 - CYCLES / 2 % n;
    (0..CYCLES)
        .map(|cycle| plan.operand(bit, (first + cycle) % n))
        .collect()
}

/// The same of the upper lane of two.
fn pair_operands(plan: &Plan, bit: u32) -> Vec<u64> {
    let log_n = plan.setting().log_n;
    let beats = 1usize << (log_n - 1);
    (0..CYCLES)
        .map(|cycle| {
            let beat = (beats + beats / 2 - CYCLES / 2 % beats + cycle) % beats;
            // The block of the beat; any word of its second half.
            let block = beat >> bit;
            plan.operand(bit, (block << (bit + 1)) | (1 << bit))
        })
        .collect()
}

/// An NTT of one lane.
fn plan(architecture: Architecture, log_n: u32, q: u64) -> Result<Plan, Error> {
    let place = Architecture::ALL
        .iter()
        .position(|each| *each == architecture);
    let given = [
        ("ARCHITECTURE", place.unwrap_or(0) as u64),
        ("LOG_N", log_n.into()),
        ("Q", q),
        ("REDUCTION", 1),
    ];
    Ok(ntt_sdf::plan(&Values::new(find("ntt_sdf")?, given)?)?)
}

impl Blocks {
    /// Of a modulus, with the twiddles of polynomials of 2^`log_n` words.
    pub fn measure(
        tools: &Tools,
        log_n: u32,
        q: u64,
        work: &Path,
        bar: &ProgressBar,
    ) -> Result<Blocks, Error> {
        let plan = plan(Architecture::R2sdf, log_n, q)?;
        let form = Form {
            i: plan.bits(),
            j: (q - 1).trailing_zeros(),
        };
        let (i, j) = (form.i, form.j);
        let folder = work.join(format!("energy-sdf-{q}"));
        let mut random = Random::new(11);
        let mut words =
            |bound: u64| -> Vec<u64> { (0..CYCLES).map(|_| random.below(bound)).collect() };
        let (x, y) = (words(2 * q), words(2 * q));
        let cycles = 0..CYCLES;

        let run = |plan: &Plan, bit: u32| {
            let w = operands(plan, bit);
            let p = cycles
                .clone()
                .map(|n| bits(form.product(x[n], w[n]), i + 2))
                .collect();
            Run {
                name: format!("bit {bit}").into(),
                inputs: vec![("x_i", x.clone()), ("w_i", w)],
                outputs: vec![("p_o", p)],
            }
        };
        let product = |plan: &Plan, folder: &Path| {
            let runs: Vec<Run> = (0..log_n).map(|bit| run(plan, bit)).collect();
            let parameters = [("Q", q), ("SHORT", 1)];
            tools.block(folder, "twiddle_mul", &parameters, 4, &runs, bar)
        };
        let pairs_of_bits = self::plan(Architecture::R22sdf, log_n, q)?;
        let product = [
            product(&plan, &folder)?,
            product(&pairs_of_bits, &folder.join("r22sdf"))?,
        ];

        let terms: Vec<i64> = cycles
            .clone()
            .map(|n| form.product(y[n], x[n] & ((1 << i) - 1)))
            .collect();
        let run = |name: &'static str, second: u64| {
            let word = |n: usize| form.carry(x[n] as i64 + if second == 1 { terms[n] } else { 0 });
            Run {
                name: name.into(),
                inputs: vec![
                    ("second_i", vec![second; CYCLES]),
                    ("stored_i", x.clone()),
                    (
                        "term_i",
                        terms.iter().map(|term| bits(*term, i + 2)).collect(),
                    ),
                ],
                outputs: vec![("word_o", cycles.clone().map(word).collect())],
            }
        };
        let runs = [run("first half", 0), run("second half", 1)];
        let sums = tools.block(&folder, "sdf_sums", &[("Q", q)], 1, &runs, bar)?;

        let ports = |w: Vec<u64>| {
            vec![
                ("a_i", x.clone()),
                ("b_i", y.clone()),
                ("w_i", w),
                ("bypass_i", vec![0; CYCLES]),
            ]
        };
        let run = |bit: u32| {
            let w = pair_operands(&plan, bit);
            let sum = |sign: i64| {
                let of = |n: usize| form.carry(x[n] as i64 + sign * form.product(y[n], w[n]));
                cycles.clone().map(of).collect()
            };
            Run {
                name: format!("bit {bit}").into(),
                outputs: vec![("a_o", sum(1)), ("b_o", sum(-1))],
                inputs: ports(w),
            }
        };
        let runs: Vec<Run> = (0..log_n).map(run).collect();
        let parameters = [("I", i.into()), ("J", j.into()), ("SHORT", 1)];
        let pair = tools.block(&folder, "butterfly_solinas", &parameters, 5, &runs, bar)?;

        let run = |bit: u32| Run {
            name: format!("bit {bit}").into(),
            inputs: ports(pair_operands(&plan, bit)),
            outputs: Vec::new(),
        };
        let runs: Vec<Run> = (0..log_n).map(run).collect();
        let parameters = [
            ("I", i.into()),
            ("J", j.into()),
            ("SHORT", 1),
            ("INVERSE", 1),
        ];
        let inverse = folder.join("inverse");
        let pair_inverse =
            tools.block(&inverse, "butterfly_solinas", &parameters, 5, &runs, bar)?;

        let (a, b) = (words(q), words(q));
        let p = cycles.clone().map(|n| prime::mul(a[n], b[n], q)).collect();
        let runs = [Run {
            name: "random".into(),
            inputs: vec![("a_i", a), ("b_i", b)],
            outputs: vec![("p_o", p)],
        }];
        // Operands, products, their sum, the folds and the last subtractions.
        let latency = 4 + folds(q);
        let values = tools.block(
            &folder,
            "value_mul",
            &[("Q", q), ("SHORT", 0)],
            latency,
            &runs,
            bar,
        )?;

        let all = words(u64::MAX);
        let of = |name: &'static str, words: Vec<u64>| Run {
            name: name.into(),
            inputs: vec![("d_i", words.clone())],
            outputs: vec![("q_o", words)],
        };
        let runs = [of("random", all), of("idle", vec![0; CYCLES])];
        let register = tools.block(
            &folder,
            "delay",
            &[("WIDTH", 64), ("CYCLES", 1)],
            1,
            &runs,
            bar,
        )?;
        Ok(Blocks {
            q,
            i,
            log_n,
            product,
            sums,
            pair,
            pair_inverse,
            values,
            register,
        })
    }

    /// The names, cells, flip-flops and square micrometres of the blocks.
    pub fn table(&self) -> BTreeMap<&'static str, &Block> {
        BTreeMap::from([
            ("`twiddle_mul`", &self.product[0]),
            ("`sdf_sums`", &self.sums),
            ("`butterfly_solinas`", &self.pair),
            ("`butterfly_solinas`, inverse", &self.pair_inverse),
            ("`value_mul`", &self.values),
            ("`delay`, 64 bits", &self.register),
        ])
    }

    /// Joules of an access to a memory of so many bits; at least half of what a larger memory takes.
    fn access(width: f64) -> Range {
        let high = SRAM_ACCESS * width / 64.0;
        Range {
            low: high / 2.0,
            high,
        }
    }

    /// Joules of a cycle in which words of so many bits move on in a delay of `steps` steps.
    fn delay(&self, steps: u64, width: f64) -> Result<Range, Error> {
        Ok(match steps < MEMORY {
            true => self
                .register
                .range("random")?
                .times(steps as f64 * width / 64.0),
            // One is written and one is read.
            false => Blocks::access(2.0 * width),
        })
    }

    /// Joules of a transform of 2^`log_n` words among others back to back, with so many flip-flops beside the blocks.
    pub fn transform(
        &self,
        architecture: Architecture,
        log_n: u32,
        is_inverse: bool,
        registers: u64,
    ) -> Result<Range, Error> {
        let word = f64::from(self.i + 2);
        let cycles = f64::from(1u32 << (log_n - architecture.log_lanes()));
        // Of one lane, first stage first: of an NTT, the top bit.
        let rows = match architecture {
            Architecture::Modr2 => Vec::new(),
            _ => plan(architecture, log_n, self.q)?.table_rows(),
        };
        let mut each = Range::default();
        for bit in 0..log_n {
            // The twiddles of a shorter polynomial change as often.
            let name = format!("bit {}", bit.min(self.log_n - 1));
            let steps = 1u64 << bit;
            let level = log_n - 1 - bit;
            let rows = rows.get(level as usize).copied().unwrap_or(1 << level);
            if architecture == Architecture::Modr2 {
                let pair = if is_inverse {
                    &self.pair_inverse
                } else {
                    &self.pair
                };
                each = each.plus(pair.range(&name)?);
                // Between two stages.
                if bit > 0 {
                    each = each.plus(self.delay(steps / 2, word)?.times(2.0));
                }
            } else {
                let sums = self
                    .sums
                    .range("first half")?
                    .plus(self.sums.range("second half")?);
                let is_r22 = usize::from(architecture == Architecture::R22sdf);
                each = each.plus(self.product[is_r22].range(&name)?);
                // One of the steps is a register of its own.
                let delay = self.delay(1, word)?.plus(self.delay(steps - 1, word)?);
                each = each.plus(sums.times(0.5)).plus(delay);
            }
            if rows >= MEMORY {
                each = each.plus(Blocks::access(self.i.into()));
            }
        }
        let rest = Range {
            low: self.register.range("idle")?.low,
            high: self.register.range("random")?.high,
        };
        Ok(each.plus(rest.times(registers as f64 / 64.0)).times(cycles))
    }

    /// Joules of a product of polynomials: two NTTs, the products of values, an INTT, and where one NTT does both a memory.
    pub fn product(
        &self,
        architecture: Architecture,
        log_n: u32,
        is_parallel: bool,
        registers: u64,
    ) -> Result<Range, Error> {
        let n = f64::from(1u32 << log_n);
        let forward = self.transform(architecture, log_n, false, registers)?;
        let inverse = self.transform(architecture, log_n, true, registers)?;
        let mut all = forward.times(2.0).plus(inverse);
        all = all.plus(self.values.range("random")?.times(n));
        if !is_parallel {
            all = all.plus(Blocks::access(2.0 * f64::from(self.i)).times(n));
        }
        Ok(all)
    }
}

/// The blocks of q = 7681 and of q = 12289, each with the twiddles of the longest polynomial of the thesis.
pub fn blocks(work: &Path, bar: &ProgressBar) -> Result<[Blocks; 2], Error> {
    let tools = Tools::find()?;
    Ok([
        Blocks::measure(&tools, 8, 7_681, work, bar)?,
        Blocks::measure(&tools, 10, 12_289, work, bar)?,
    ])
}
