//! The schedule and the constants of the core `ntt_rader`, and an exact model of what it does with them.
//!
//! A transform of m points has P, its greatest prime factor, and C = m / P. Word n stands in column n mod P at address
//! n mod C, and so does value n: by Good and Thomas that needs no twiddles between the axes, and by Rader's algorithm in
//! the form of [`RaderAxis`] every axis is computed in place. (P - 1) / 2 processing elements have two columns each, those
//! of the residues g^i and g^(i + (P - 1) / 2); one more has that of residue 0.
//!
//! - [`Plan::rows`]: the transforms along P, of one word of each column, go round through the processing elements in
//!   groups of [`LOOP`] rows, 2 log2(P - 1) passes each, by the wires of Pease's constant geometry and the same backwards.
//! - [`Plan::program`]: the transforms along the other primes are a list of butterflies, which every column goes through
//!   at the same time with the same constants.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use toroid_ring::RingError;
use toroid_ring::dft::{DftPlan, RaderAxis};
use toroid_ring::prime::{add, inv, is_prime, mul, neg, pow, sub};

use crate::arithmetic::index_bits;
use crate::sources::design;
use toroid_sim::model::Design;
use toroid_sim::sources::UnknownModule;

/// Cycles that a word needs to go round through a processing element, and the rows of a group.
pub const LOOP: usize = 17;

/// Cycles from the address that is read for an operation to the edge that writes its first word there.
pub const WRITE: i64 = LOOP as i64 + 4;

/// Cycles of a transform alone beside loading, computing and unloading.
const ENDS: u64 = 9;

/// q is 1 modulo m times this.
pub const RADIX: u64 = 256;

/// Whether there are plans of a length.
fn is_length(length: u64) -> bool {
    let primes = || {
        [3, 5, 17, 257]
            .into_iter()
            .filter(|p| length.is_multiple_of(*p))
    };
    primes().count() > 1 && primes().product::<u64>() == length
}

/// The least modulus for a length.
///
/// # Errors
/// [`SettingError::Length`]
pub fn least_modulus(length: u64) -> Result<u64, SettingError> {
    let refused = SettingError::Length(length);
    if !is_length(length) {
        return Err(refused);
    }
    let order = RADIX * length;
    (1..=u64::from(u32::MAX) / order)
        .map(|i| i * order + 1)
        .find(|q| is_prime(*q))
        .ok_or(refused)
}

/// What cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// The length.
    #[error("expected a length that is a product of two or more of 3, 5, 17 and 257, found {0}")]
    Length(u64),
    /// The modulus.
    #[error(
        "expected a prime below 2^32 that is 1 modulo 256 times the length, {order}, found {modulus}"
    )]
    Modulus {
        /// What was given.
        modulus: u64,
        /// 256 m.
        order: u64,
    },
    /// The library refuses it.
    #[error(transparent)]
    Ring(#[from] RingError),
}

/// What a processing element does with its operands a and b, and its constant w.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Gentleman-Sande: a + b and (a - b) w.
    Forward,
    /// Cooley-Tukey: a - b w and a + b w; constants are stored with the sign that the difference 0 - b takes off again.
    Inverse,
    /// The first of the inverse passes, which has Rader's product: -b w + a and -b w - a.
    Turn,
    /// Value 0 and the first point of the convolution: a + b and a + b + b w.
    Zero,
}

impl Mode {
    fn code(self) -> u64 {
        match self {
            Mode::Forward => 0,
            Mode::Inverse => 1,
            Mode::Turn => 2,
            Mode::Zero => 3,
        }
    }
}

/// A butterfly of the program: of the words at two addresses, in place.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The address of the first operand and result.
    pub a: usize,
    /// That of the second.
    pub b: usize,
    /// What is done.
    pub mode: Mode,
    /// The constant, for a forward and for an inverse transform.
    pub constants: [u64; 2],
}

/// Everything that the core of one length and modulus needs.
#[derive(Clone, Debug)]
pub struct Plan {
    dft: DftPlan,
    axes: Vec<RaderAxis>,
    /// The residue of each position of the convolution along P.
    order: Vec<usize>,
    program: Vec<Option<Step>>,
    /// By direction and pass, those of all processing elements, that of residue 0 last.
    constants: [Vec<Vec<u64>>; 2],
}

/// What a processing element makes of a, b and w.
fn butterfly(mode: Mode, a: u64, b: u64, w: u64, q: u64) -> (u64, u64) {
    let line = match mode {
        Mode::Forward | Mode::Zero => add(a, b, q),
        Mode::Inverse | Mode::Turn => a,
    };
    let operand = match mode {
        Mode::Forward => sub(a, b, q),
        _ => neg(b, q),
    };
    let t = mul(operand, w, q);
    match mode {
        Mode::Forward => (line, t),
        Mode::Inverse => (add(line, t, q), sub(line, t, q)),
        Mode::Turn => (add(line, t, q), sub(t, line, q)),
        Mode::Zero => (line, sub(line, t, q)),
    }
}

impl Plan {
    /// The plan of `length` points (m) modulo `modulus` (q), with the root of unity of [`DftPlan::new`].
    ///
    /// # Errors
    /// See [`SettingError`].
    pub fn new(length: u64, modulus: u64) -> Result<Plan, SettingError> {
        if !is_length(length) {
            return Err(SettingError::Length(length));
        }
        let order = RADIX * length;
        let q = u32::try_from(modulus)
            .ok()
            .filter(|_| is_prime(modulus) && (modulus - 1).is_multiple_of(order));
        let q = q.ok_or(SettingError::Modulus { modulus, order })?;
        let dft = DftPlan::new(length as usize, q)?;
        let axes = dft.rader_axes().ok_or(SettingError::Length(length))?;
        let mut plan = Plan {
            order: powers(&axes[0]),
            dft,
            axes,
            program: Vec::new(),
            constants: [Vec::new(), Vec::new()],
        };
        plan.constants = [false, true].map(|is_inverse| plan.row_constants(is_inverse));
        plan.program = plan.scheduled(plan.steps());
        Ok(plan)
    }

    /// The library's plan of the same transform.
    pub fn dft(&self) -> &DftPlan {
        &self.dft
    }

    fn q(&self) -> u64 {
        self.dft.modulus().into()
    }

    /// P: the columns, and the words of a beat.
    pub fn columns(&self) -> usize {
        self.axes[0].prime
    }

    /// C: the words of a column, and the beats of a transform.
    pub fn words(&self) -> usize {
        self.dft.length() / self.columns()
    }

    /// The processing elements that have two columns.
    pub fn butterflies(&self) -> usize {
        (self.columns() - 1) / 2
    }

    /// Passes of a row, forward and inverse.
    pub fn passes(&self) -> usize {
        2 * self.forward_passes()
    }

    fn forward_passes(&self) -> usize {
        (self.columns() - 1).ilog2() as usize
    }

    /// Groups of rows.
    pub fn groups(&self) -> usize {
        self.words().div_ceil(LOOP)
    }

    /// The addresses of the rows of a group, in their order; where there are fewer than [`LOOP`], nothing follows.
    pub fn rows(&self, group: usize) -> impl Iterator<Item = usize> + use<> {
        // The rows of a group are those of a line along 17 where C has this factor: the program begins with those lines,
        // and need not wait for the last group.
        (group..self.words()).step_by(self.groups())
    }

    /// The steps of the transforms along the primes of C: one every other cycle, none where the next has to wait for its
    /// words.
    pub fn program(&self) -> &[Option<Step>] {
        &self.program
    }

    /// Cycles from the first row of a transform to that of the next, if it is there: the interval of transforms.
    pub fn interval(&self) -> u64 {
        (self.groups() * self.passes() * LOOP + 2 * self.program.len()) as u64
    }

    /// Cycles of computing: from the first address that is read to the edge that writes the last word.
    pub fn computing(&self) -> u64 {
        // The second column is one cycle late, its second word another.
        self.interval() - 2 + WRITE as u64 + 3
    }

    /// Cycles of a transform alone, from the first beat in to the last beat out, both counted.
    pub fn alone(&self) -> u64 {
        2 * self.words() as u64 + self.computing() + ENDS
    }

    /// What a constant is stored as: times 2^32, as the multipliers divide by that.
    fn stored(&self, constant: u64) -> u64 {
        (constant << 32) % self.q()
    }

    /// The program, a line a step, in the form of `$readmemh`: {valid, mode, b, a, constant}, forward and inverse.
    fn program_text(&self) -> String {
        let address_bits = index_bits(self.words());
        let depth = 1 << index_bits(self.program.len());
        let mut text = String::new();
        for direction in 0..2 {
            for slot in 0..depth {
                let word = match self.program.get(slot) {
                    Some(Some(step)) => {
                        let head = (4 | step.mode.code()) << address_bits | step.b as u64;
                        let addresses = head << address_bits | step.a as u64;
                        addresses << 32 | self.stored(step.constants[direction])
                    }
                    _ => 0,
                };
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{word:x}");
            }
        }
        text
    }

    /// Constants of the rows, a line a pass, in the form of `$readmemh`, forward and inverse.
    fn constants_text(&self) -> String {
        let depth = 1 << index_bits(self.passes());
        let mut text = String::new();
        for passes in &self.constants {
            for pass in 0..depth {
                let words = passes.get(pass).map_or(&[][..], Vec::as_slice);
                for &word in words.iter().rev() {
                    let _ = write!(text, "{:08x}", self.stored(word));
                }
                text.push_str(if words.is_empty() { "0\n" } else { "\n" });
            }
        }
        text
    }

    /// The design of `hw/ntt_rader` with multipliers of tiles of these widths.
    ///
    /// # Errors
    /// If its sources are not there.
    pub fn design(&self, tiles: (u32, u32)) -> Result<Design, UnknownModule> {
        Ok(design("ntt_rader")?
            .with("COLUMNS", self.columns() as u64)
            .with("WORDS", self.words() as u64)
            .with("GENERATOR", self.axes[0].generator as u64)
            .with("Q", self.q())
            .with("SLOTS", self.program.len() as u64)
            .with_file("PROGRAM", "program.hex", self.program_text().into_bytes())
            .with_file(
                "CONSTANTS",
                "constants.hex",
                self.constants_text().into_bytes(),
            )
            .with("TILE_A", tiles.0)
            .with("TILE_B", tiles.1))
    }

    /// Constants of a pass by processing element.
    fn row_constants(&self, is_inverse: bool) -> Vec<Vec<u64>> {
        let (q, axis) = (self.q(), &self.axes[0]);
        let forward = self.forward_passes();
        let points = self.columns() - 1;
        // 1/m of an inverse transform is in Rader's constants, and multiplies what goes by them.
        let scale = if is_inverse {
            self.dft.inverse_length().into()
        } else {
            1
        };
        let spectrum = if is_inverse {
            &axis.inverse
        } else {
            &axis.forward
        };
        let twiddle = |stage: usize, i: usize| axis_twiddle(axis, (i >> stage) << stage, q);
        let constant = |pass: usize, i: usize| {
            if pass + 1 == forward {
                mul(spectrum[2 * i + 1].into(), scale, q)
            } else if pass < forward {
                twiddle(pass, i)
            } else if pass == forward {
                neg(mul(spectrum[2 * i].into(), scale, q), q)
            } else {
                neg(twiddle(2 * forward - 1 - pass, i), q)
            }
        };
        // That of residue 0: what x_0 adds to point 0 of the convolution, before that is multiplied by -1/(P - 1); and value 0.
        let zero = |pass: usize| {
            if pass + 2 == forward {
                neg(points as u64, q)
            } else if pass == forward {
                neg(scale, q)
            } else {
                0
            }
        };
        (0..2 * forward)
            .map(|pass| {
                let all = (0..self.butterflies()).map(|i| constant(pass, i));
                all.chain([zero(pass)]).collect()
            })
            .collect()
    }

    /// What the core makes of the words of a transform, in natural order, the inverse divided by m.
    ///
    /// # Panics
    /// If these are not m words.
    pub fn run(&self, is_inverse: bool, words: &[u32]) -> Vec<u32> {
        let (q, columns, depth) = (self.q(), self.columns(), self.words());
        assert_eq!(
            words.len(),
            columns * depth,
            "expected the words of a transform"
        );
        let direction = usize::from(is_inverse);
        // By column, that of residue 0 last.
        let lanes = || self.order.iter().copied().chain([0]);
        let mut memory: Vec<Vec<u64>> = vec![vec![0; depth]; columns];
        for (column, lane) in memory.iter_mut().zip(lanes()) {
            for n in (lane..words.len()).step_by(columns) {
                column[n % depth] = words[n].into();
            }
        }
        for row in (0..self.groups()).flat_map(|group| self.rows(group)) {
            let mut values: Vec<u64> = memory.iter().map(|column| column[row]).collect();
            self.run_row(&self.constants[direction], &mut values);
            for (column, value) in memory.iter_mut().zip(values) {
                column[row] = value;
            }
        }
        for column in &mut memory {
            for step in self.program.iter().flatten() {
                let w = step.constants[direction];
                (column[step.a], column[step.b]) =
                    butterfly(step.mode, column[step.a], column[step.b], w, q);
            }
        }
        let mut values = vec![0; words.len()];
        for (column, lane) in memory.iter().zip(lanes()) {
            for n in (lane..values.len()).step_by(columns) {
                values[n] = column[n % depth] as u32;
            }
        }
        values
    }

    /// A transform along P, by what each processing element has and gives in each pass.
    fn run_row(&self, constants: &[Vec<u64>], values: &mut [u64]) {
        let (q, count, forward) = (self.q(), self.butterflies(), self.forward_passes());
        let zero = 2 * count;
        let mut share = 0;
        for (pass, constants) in constants.iter().enumerate() {
            let x = values[zero];
            if pass + 2 == forward {
                share = mul(x, constants[count], q);
            }
            let mut next = vec![0; zero + 1];
            let mode = match pass {
                _ if pass < forward => Mode::Forward,
                _ if pass == forward => Mode::Turn,
                _ => Mode::Inverse,
            };
            for (i, &w) in constants[..count].iter().enumerate() {
                // The operands, and where the results go.
                let (a, b, first, second) = match mode {
                    Mode::Forward => (i, i + count, 2 * i, 2 * i + 1),
                    Mode::Turn => (2 * i + 1, 2 * i, i, i + count),
                    _ => (2 * i, 2 * i + 1, i, i + count),
                };
                (next[first], next[second]) = butterfly(mode, values[a], values[b], w, q);
            }
            next[zero] = if pass + 1 == forward {
                let sum = next[0];
                next[0] = add(sum, share, q);
                add(x, sum, q)
            } else if pass == forward {
                butterfly(Mode::Turn, 0, x, constants[count], q).0
            } else {
                x
            };
            values.copy_from_slice(&next);
        }
    }

    /// The butterflies of a column in the order of the stages.
    fn steps(&self) -> Vec<Step> {
        let (q, words) = (self.q(), self.words());
        let mut steps = Vec::new();
        for axis in &self.axes[1..] {
            let p = axis.prime;
            let others = words / p;
            // Where the word of a line is whose residue modulo p is given. Lines are told apart by their residues modulo
            // what is left of C, in the order of the groups of rows. By the remainder theorem there is one.
            let inverse = inv(others as u64, p as u64) as usize;
            let place = |line: usize, residue: usize| {
                let first = line * p % others;
                first + others * ((residue + p - first % p) * inverse % p)
            };
            let line_order: Vec<usize> = {
                let residues = |line: &usize| {
                    (0..self.groups())
                        .position(|group| self.rows(group).any(|row| row == place(*line, 0)))
                };
                let mut lines: Vec<usize> = (0..others).collect();
                lines.sort_by_key(residues);
                lines
            };
            let order = powers(axis);
            let places: Vec<(usize, Vec<usize>)> = line_order
                .iter()
                .map(|&line| {
                    let at = |&residue: &usize| place(line, residue);
                    (place(line, 0), order.iter().map(at).collect())
                })
                .collect();
            let stages = (p - 1).ilog2();
            let twiddle = |stage: u32, j: usize| axis_twiddle(axis, j << stage, q);
            let both = |constant: u64| [constant, constant];
            let rader = [&axis.forward, &axis.inverse];
            // The pairs of a stage: the first place of each, and its number within its block.
            let pairs = |stage: u32| {
                let half = (p - 1) >> (stage + 1);
                (0..p - 1)
                    .filter(move |j| j & half == 0)
                    .map(move |j| (j, j + half, j % half))
            };
            // The last forward stage exchanges its operands, so that the turn, which has the sums as its second operands,
            // leaves its results where they belong.
            for stage in 0..stages {
                for (_, at) in &places {
                    for (j, other, number) in pairs(stage) {
                        let (a, b, constants) = match stage + 1 == stages {
                            true => (other, j, rader.map(|words| neg(words[other].into(), q))),
                            false => (j, other, both(twiddle(stage, number))),
                        };
                        steps.push(Step {
                            a: at[a],
                            b: at[b],
                            mode: Mode::Forward,
                            constants,
                        });
                    }
                }
            }
            for (zero, at) in &places {
                let constants = rader.map(|words| sub(words[0].into(), 1, q));
                steps.push(Step {
                    a: *zero,
                    b: at[1],
                    mode: Mode::Zero,
                    constants,
                });
            }
            for stage in (0..stages).rev() {
                for (_, at) in &places {
                    for (j, other, number) in pairs(stage) {
                        let (mode, constants) = if stage + 1 < stages {
                            (Mode::Inverse, both(neg(twiddle(stage, number), q)))
                        } else if j == 0 {
                            // Rader's product of point 0 is done.
                            (Mode::Turn, both(q - 1))
                        } else {
                            (Mode::Turn, rader.map(|words| neg(words[j].into(), q)))
                        };
                        steps.push(Step {
                            a: at[j],
                            b: at[other],
                            mode,
                            constants,
                        });
                    }
                }
            }
        }
        steps
    }

    /// Each step as early as its words are there; steps that share a word keep their order.
    fn scheduled(&self, steps: Vec<Step>) -> Vec<Option<Step>> {
        // The first cycle in which a word may be read, from the one that reads the first word of the program.
        let mut ready = vec![i64::MIN; self.words()];
        for group in 0..self.groups() {
            let later = (self.groups() - 1 - group) * self.passes() * LOOP + LOOP;
            for (slot, row) in self.rows(group).enumerate() {
                ready[row] = slot as i64 - later as i64 + WRITE + 1;
            }
        }
        let mut rest: Vec<Step> = steps;
        let mut program = Vec::new();
        while !rest.is_empty() {
            let now = 2 * program.len() as i64;
            let mut blocked = BTreeSet::new();
            let found = rest.iter().position(|step| {
                let is_free = !blocked.contains(&step.a) && !blocked.contains(&step.b);
                blocked.extend([step.a, step.b]);
                is_free && ready[step.a] <= now && ready[step.b] <= now + 1
            });
            program.push(found.map(|place| {
                let step = rest.remove(place);
                ready[step.a] = now + WRITE + 1;
                ready[step.b] = now + WRITE + 2;
                step
            }));
        }
        program
    }
}

/// A power of the root of unity of the convolutions of an axis: 1/omega, so that both transforms of a convolution, which
/// have the same root, are a correlation, which leaves values in the order of words.
fn axis_twiddle(axis: &RaderAxis, exponent: usize, q: u64) -> u64 {
    let exponent = axis.prime - 1 - exponent;
    pow(axis.omega.into(), exponent as u64, q)
}

/// The residues in Rader's order.
fn powers(axis: &RaderAxis) -> Vec<usize> {
    let next = |power: &usize| Some(power * axis.generator % axis.prime);
    std::iter::successors(Some(1), next)
        .take(axis.prime - 1)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroid_sim::random::Random;

    /// A prime for a length, the least from a bound on.
    fn modulus(length: u64, from: u64) -> u64 {
        let order = RADIX * length;
        let first = from.next_multiple_of(order) + 1;
        (0..)
            .map(|i| first + i * order)
            .find(|q| is_prime(*q))
            .unwrap()
    }

    fn verify(length: u64, modulus: u64) {
        let plan = Plan::new(length, modulus).unwrap();
        let dft = plan.dft();
        let mut random = Random::new(length);
        let words: Vec<u32> = (0..length).map(|_| random.below(modulus) as u32).collect();
        let mut expected = words.clone();
        let mut scratch = vec![0; dft.scratch_len()];
        dft.forward(&mut expected, &mut scratch);
        assert_eq!(plan.run(false, &words), expected, "{length} {modulus}");
        assert_eq!(plan.run(true, &expected), words, "{length} {modulus}");
    }

    #[test]
    fn the_model_is_the_library() {
        for length in [15, 51, 85, 255, 771, 1285, 4369, 13107, 21845, 65535] {
            verify(length, modulus(length, 1));
        }
        verify(21845, modulus(21845, 1 << 31));
    }

    #[test]
    fn cycles_are_those_of_the_schedule() {
        let plan = Plan::new(21845, 4_244_570_881).unwrap();
        assert_eq!((plan.groups(), plan.passes()), (5, 16));
        // Five lines along 17 of 65 steps each, seventeen along 5 of 9, and none that waits.
        assert_eq!(plan.program().len(), 5 * 65 + 17 * 9);
        assert!(plan.program().iter().all(Option::is_some));
        assert_eq!(plan.interval(), 5 * 16 * 17 + 2 * 478);
        assert_eq!(plan.computing(), 2338);
    }

    /// What an operation does to one address of the first columns; the second ones are a cycle late in everything.
    struct Access {
        /// The cycle in which the operation reads its first word.
        issue: i64,
        /// The cycle that reads this address.
        read: i64,
        /// The cycle in which the memory is given the result: it may be read in the next one.
        write: i64,
    }

    /// A number that a package of the core says.
    fn constant(name: &str) -> i64 {
        let is_package = |(path, _): &&(&str, &str)| path.ends_with("ntt_rader_pkg.sv");
        let (_, text) = crate::sources::FILES.iter().find(is_package).unwrap();
        let (_, rest) = text.split_once(&format!(" {name} = ")).unwrap();
        rest.split_once(';').unwrap().0.parse().unwrap()
    }

    /// The addresses that are read before another operation has written its result to them, for a program after the rows
    /// of a plan: in the cycles of `rader_control` and `rader_column`.
    fn early_reads(plan: &Plan, program: &[Option<Step>]) -> Vec<usize> {
        // Results are there AT_RESULTS = AT_SECOND + LOOP cycles after their operation; a column registers them.
        let rows = constant("LOOP");
        let write = constant("AT_SECOND") + rows + 1;
        let passes = plan.passes() as i64;
        let mut accesses: Vec<Vec<Access>> = Vec::new();
        accesses.resize_with(plan.words(), Vec::new);
        let mut start = 0;
        for group in 0..plan.groups() {
            for (issue, row) in (start..).zip(plan.rows(group)) {
                accesses[row].push(Access {
                    issue,
                    read: issue,
                    write: issue + (passes - 1) * rows + write,
                });
            }
            start += passes * rows;
        }
        for (slot, step) in program.iter().enumerate() {
            let issue = start + 2 * slot as i64;
            for (read, address) in (issue..).zip(step.iter().flat_map(|step| [step.a, step.b])) {
                let write = read + write;
                accesses[address].push(Access { issue, read, write });
            }
        }
        let is_early = |accesses: &Vec<Access>| {
            accesses.iter().enumerate().any(|(i, one)| {
                let others = accesses[..i].iter().chain(&accesses[i + 1..]);
                let mut reads = others.map(|other| other.read);
                reads.any(|read| (one.issue..=one.write).contains(&read))
            })
        };
        (0..plan.words())
            .filter(|address| is_early(&accesses[*address]))
            .collect()
    }

    #[test]
    fn no_step_reads_a_word_before_it_is_written() {
        let mut idle_slots = 0;
        for length in [15, 51, 85, 255, 771, 1285, 4369, 13107, 21845, 65535] {
            let plan = Plan::new(length, modulus(length, 1)).unwrap();
            let program = plan.program();
            let early = early_reads(&plan, program);
            assert!(early.is_empty(), "{length}: {early:?}");
            // Steps wait no longer than they have to: without one of the slots in which nothing is done a word is read early.
            for slot in (0..program.len()).filter(|slot| program[*slot].is_none()) {
                let mut shorter = program.to_vec();
                shorter.remove(slot);
                assert!(!early_reads(&plan, &shorter).is_empty(), "{length}: {slot}");
                idle_slots += 1;
            }
        }
        assert!(idle_slots > 0);
    }

    #[test]
    fn least_moduli_are_those_of_plans() {
        for (length, least) in [(15, 7681), (51, 26113), (85, 87041), (65535, 16_776_961)] {
            assert_eq!(least_modulus(length).unwrap(), least);
            assert!(Plan::new(length, least).is_ok());
        }
        for length in [0, 1, 3, 16, 17, 45, 21846, 1 << 32, u64::MAX] {
            assert_eq!(
                least_modulus(length).unwrap_err().to_string(),
                format!(
                    "expected a length that is a product of two or more of 3, 5, 17 and 257, found {length}"
                )
            );
        }
    }

    #[test]
    fn what_there_is_no_plan_for_is_refused() {
        assert!(matches!(Plan::new(17, 7681), Err(SettingError::Length(17))));
        assert!(matches!(Plan::new(0, 7681), Err(SettingError::Length(0))));
        assert!(matches!(Plan::new(45, 7681), Err(SettingError::Length(45))));
        assert!(matches!(
            Plan::new(15, 7683),
            Err(SettingError::Modulus { .. })
        ));
        assert!(matches!(
            Plan::new(15, 0),
            Err(SettingError::Modulus { .. })
        ));
    }
}
