//! Places of the torus and noise.
//!
//! A sample at place b holds message v at v/2^(b+1). What reads a combination at place b needs each term w·v at w·v/2^(b+1): a sample at place q does
//! with a multiplication by w·2^(q-b), which multiplies its noise. So a function's value takes the largest place that its readers need, and where
//! its noise is too much for one of them, that one gets a function of its own, which has the weight in its values. A sum of too many
//! samples is bootstrapped in between.

use std::collections::BTreeMap;

use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::noise::{
    Noise, bootstrap_output_variance, log2_bootstrap_failure, log2_decoding_failure,
    shared_variance,
};
use toroid_tfhe::params::ParamSet;

use super::samples::{BaseId, Combo, Origin, Samples, TaskId};
use crate::compiled::Options;
use crate::error::{Error, Location};
use crate::interval::Interval;

/// How often the samples of a program are changed for less noise.
const ROUNDS: usize = 64;

/// The most samples of a combination: beyond, noise is only bounded.
const MOST_TERMS: usize = 200;

/// What reads a combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    Task(TaskId),
    Result(usize),
}

/// Samples with the combinations that are results.
pub(super) struct Placement {
    pub(super) samples: Samples,
    /// The results, at the place of the set's messages.
    pub(super) results: Vec<Combo>,
    /// Rows that are summed in a result.
    pub(super) group: u64,
    /// Whether the inputs are results of the program itself.
    is_repeated: bool,
    /// Whether the results are inputs of programs, of this one or of others.
    feeds_programs: bool,
    /// The place of each base; 0 of one that nothing reads.
    pub(super) places: Vec<u32>,
    /// Tasks that results need, each after those that it needs.
    pub(super) order: Vec<TaskId>,
}

/// The function that fails most often.
pub(super) struct Weakest {
    /// The statement that it is for.
    pub(super) location: Option<Location>,
    pub(super) what: String,
    pub(super) log2_failure: f64,
}

/// The variances that a set's samples have.
struct Variances {
    fresh: f64,
    own: f64,
    shared: f64,
    /// The standard deviation of inputs that are results of the program itself. It adds up with others.
    repeated: Option<f64>,
}

impl Variances {
    fn of(params: &ParamSet, is_repeated: bool) -> Variances {
        let shared = shared_variance(params, ArithmeticKind::Fft);
        let own = bootstrap_output_variance(params, ArithmeticKind::Fft) - shared;
        let fresh = params.lwe_variance();
        // A result is the sum of two functions at most, as a choice is, and is packed.
        let result = 3.0 * own + 4.0 * shared;
        Variances {
            fresh,
            own,
            shared,
            repeated: is_repeated.then(|| result.sqrt()),
        }
    }
}

impl Placement {
    pub(super) fn new(
        samples: Samples,
        results: Vec<Combo>,
        group: u64,
        options: &Options,
    ) -> Placement {
        Placement {
            samples,
            results,
            group,
            is_repeated: options.repeated,
            feeds_programs: options.separate || options.repeated,
            places: Vec::new(),
            order: Vec::new(),
        }
    }

    /// Whether a result has the noise of an input.
    fn carries(&self, combo: &Combo) -> bool {
        self.inputs_of(combo).next().is_some()
    }

    fn inputs_of(&self, combo: &Combo) -> impl Iterator<Item = BaseId> {
        let bases = combo.terms.keys().copied();
        bases.filter(|base| matches!(self.samples.bases[*base].origin, Origin::Input(_)))
    }

    fn variances(&self) -> Variances {
        Variances::of(self.samples.params, self.is_repeated)
    }

    /// The noise of the inputs.
    pub(super) fn input_noise(&self) -> Noise {
        let params = self.samples.params;
        match self.variances().repeated {
            Some(deviation) => {
                Noise::stored(params, deviation * deviation, f64::NEG_INFINITY, true)
            }
            None => Noise::encryption(params),
        }
    }

    /// The combination that is read, and the place at which.
    fn read(&self, reader: Reader) -> (&Combo, u32) {
        match reader {
            Reader::Task(task) => {
                let task = &self.samples.tasks[task];
                (&task.combo, task.bits)
            }
            Reader::Result(result) => (&self.results[result], self.samples.width()),
        }
    }

    fn readers(&self) -> impl Iterator<Item = Reader> + use<> {
        let tasks: Vec<TaskId> = self.order.clone();
        let results = 0..self.results.len();
        tasks
            .into_iter()
            .map(Reader::Task)
            .chain(results.map(Reader::Result))
    }

    /// Finds which tasks are needed, and in which order they can run.
    fn sort(&mut self) {
        let mut seen = vec![false; self.samples.tasks.len()];
        self.order.clear();
        for result in &self.results {
            let mut open: Vec<(TaskId, bool)> = tasks_of(&self.samples, result)
                .into_iter()
                .map(|task| (task, false))
                .collect();
            while let Some((task, ready)) = open.pop() {
                if ready {
                    self.order.push(task);
                    continue;
                }
                if std::mem::replace(&mut seen[task], true) {
                    continue;
                }
                open.push((task, true));
                for needed in tasks_of(&self.samples, &self.samples.tasks[task].combo) {
                    if !seen[needed] {
                        open.push((needed, false));
                    }
                }
            }
        }
    }

    /// Gives each base the largest place that a reader needs.
    fn place(&mut self) {
        self.places = vec![0; self.samples.bases.len()];
        for reader in self.readers() {
            let (combo, place) = match reader {
                Reader::Task(task) => {
                    let task = &self.samples.tasks[task];
                    (&task.combo, task.bits)
                }
                Reader::Result(result) => (&self.results[result], self.samples.width()),
            };
            for (base, weight) in &combo.terms {
                let needed = place.saturating_sub(weight.trailing_zeros()).max(1);
                let of_base = &mut self.places[*base];
                *of_base = match self.samples.bases[*base].origin {
                    Origin::Input(_) => self.samples.params.message_bits,
                    Origin::Function(..) => needed.max(*of_base),
                };
            }
        }
    }

    /// By what a base of this place is multiplied in a combination at another.
    pub(super) fn factor(&self, base: BaseId, weight: i128, place: u32) -> i128 {
        let own = self.places[base];
        if own >= place {
            weight << (own - place)
        } else {
            weight >> (place - own)
        }
    }

    fn variance(&self, reader: Reader, variances: &Variances) -> f64 {
        let (combo, place) = self.read(reader);
        let mut tasks: BTreeMap<TaskId, f64> = BTreeMap::new();
        let (mut independent, mut common, mut carried) = (0.0, 0.0, 0.0);
        for (base, weight) in &combo.terms {
            let factor = self.factor(*base, *weight, place) as f64;
            match self.samples.bases[*base].origin {
                Origin::Input(_) => match variances.repeated {
                    Some(deviation) => carried += factor.abs() * deviation,
                    None => independent += factor * factor * variances.fresh,
                },
                Origin::Function(task, _) => {
                    *tasks.entry(task).or_default() += factor.abs();
                    common += factor;
                }
            }
        }
        let own: f64 = tasks.values().map(|deviation| deviation * deviation).sum();
        let rows = match reader {
            Reader::Result(_) => self.group as f64,
            Reader::Task(_) => 1.0,
        };
        let variance = (independent + own * variances.own) * rows
            + common * common * variances.shared * rows * rows;
        let deviation = variance.sqrt() + carried * rows;
        deviation * deviation
    }

    /// log2 of the probability that the reader misreads.
    fn log2_failure(&self, reader: Reader, variances: &Variances) -> f64 {
        let variance = self.variance(reader, variances);
        let params = self.samples.params;
        match reader {
            Reader::Task(task) => log2_bootstrap_failure(
                params,
                ArithmeticKind::Fft,
                self.samples.tasks[task].bits,
                variance,
            ),
            // A drive packs the rows of results.
            Reader::Result(_) => log2_decoding_failure(
                params.message_bits,
                variance + variances.own,
                f64::NEG_INFINITY,
            ),
        }
    }

    /// The function that fails most often, if there is one.
    pub(super) fn weakest(&self) -> Option<Weakest> {
        let variances = self.variances();
        let failures = self.order.iter().map(|task| {
            let failure = self.log2_failure(Reader::Task(*task), &variances);
            (failure, &self.samples.tasks[*task])
        });
        let (log2_failure, task) = failures.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
        Some(Weakest {
            location: task.location.clone(),
            what: task.what.clone(),
            log2_failure,
        })
    }

    /// Chooses places, and changes samples until each reader fails with at most this probability, as far as that is possible.
    pub(super) fn settle(&mut self, log2_failure: f64) -> Result<(), Error> {
        let variances = self.variances();
        if self.feeds_programs {
            self.refresh_results()?;
        }
        for _ in 0..ROUNDS {
            self.sort();
            self.place();
            let mut changed = false;
            for reader in self.readers() {
                self.samples.cancel.check()?;
                let terms = self.read(reader).0.terms.len();
                let fails = self.log2_failure(reader, &variances) > log2_failure;
                if fails || terms > MOST_TERMS {
                    changed |= self.improve(reader)?;
                }
            }
            if !changed {
                break;
            }
            // Bases that came new have no place before the next round.
        }
        self.sort();
        self.place();
        Ok(())
    }

    /// Bootstraps the results that have more noise than [`Variances::of`] says of those that programs read: that of results, or of more than two functions.
    fn refresh_results(&mut self) -> Result<(), Error> {
        for number in 0..self.results.len() {
            let result = self.results[number].clone();
            let functions = result.terms.len() - self.inputs_of(&result).count();
            if result.interval.low == result.interval.high {
                self.results[number] = Combo::constant(result.interval.low);
            } else if functions > 2 || self.is_repeated && self.carries(&result) {
                self.results[number] = self.samples.refreshed(&result, 1)?;
            }
        }
        Ok(())
    }

    /// Gives a reader samples with less noise; whether there was a way.
    fn improve(&mut self, reader: Reader) -> Result<bool, Error> {
        let (combo, place) = self.read(reader);
        let combo = combo.clone();
        if combo.terms.keys().any(|base| *base >= self.places.len()) {
            // It was changed in this round already.
            return Ok(false);
        }
        let mut better = combo.clone();
        for (base, weight) in &combo.terms {
            let factor = self.factor(*base, *weight, place);
            if factor.abs() <= 1 {
                continue;
            }
            let of_base = self.samples.bases[*base].clone();
            let scaled = match of_base.origin {
                Origin::Function(task, entries) => {
                    let values: Vec<i128> = entries
                        .iter()
                        .map(|entry| i128::from(*entry) * weight)
                        .collect();
                    self.samples.value(task, &values)?
                }
                // Alone it would be read by what refreshes it.
                Origin::Input(_) if factor * factor > 1 << 8 && combo.terms.len() > 1 => {
                    let number = Combo {
                        terms: BTreeMap::from([(*base, 1)]),
                        constant: 0,
                        interval: of_base.interval,
                    };
                    self.samples.refreshed(&number, *weight)?
                }
                Origin::Input(_) => continue,
            };
            let interval = better.interval;
            better.terms.remove(base);
            better = better.plus(&scaled, 1);
            better.interval = interval;
        }
        if better == combo {
            return self.split(reader, &combo, place);
        }
        self.set(reader, better);
        Ok(true)
    }

    /// Bootstraps parts of a sum of many samples on the way.
    fn split(&mut self, reader: Reader, combo: &Combo, place: u32) -> Result<bool, Error> {
        if combo.terms.len() < 3 {
            return Ok(false);
        }
        let is_wide = self.samples.params.is_wide();
        let bases: Vec<(BaseId, i128)> = combo.terms.iter().map(|(b, w)| (*b, *w)).collect();
        let mut better = combo.clone();
        let mut changed = false;
        for part in bases.chunks(bases.len().div_ceil(2)) {
            let mut sum = Combo::constant(0);
            for (base, weight) in part {
                let of_base = Combo {
                    terms: BTreeMap::from([(*base, 1)]),
                    constant: 0,
                    interval: self.samples.bases[*base].interval,
                };
                sum = sum.plus(&of_base, *weight);
            }
            // What exceeds the bits that are read wraps, where the padding bit is not read.
            if let Reader::Task(_) = reader
                && is_wide
                && sum.bits() > place
            {
                sum.interval = Interval {
                    low: 0,
                    high: (1 << place) - 1,
                };
            }
            if part.len() < 2 || sum.bits() > self.samples.width() {
                continue;
            }
            let fresh = self.samples.refreshed(&sum, 1)?;
            let interval = better.interval;
            for (base, _) in part {
                better.terms.remove(base);
            }
            better = better.plus(&fresh, 1);
            better.interval = interval;
            changed = true;
        }
        if changed {
            self.set(reader, better);
        }
        Ok(changed)
    }

    fn set(&mut self, reader: Reader, combo: Combo) {
        match reader {
            Reader::Task(task) => self.samples.tasks[task].combo = combo,
            Reader::Result(result) => self.results[result] = combo,
        }
    }
}

/// The tasks whose functions a combination is made of.
fn tasks_of(samples: &Samples, combo: &Combo) -> Vec<TaskId> {
    let bases = combo.terms.keys();
    let tasks = bases.filter_map(|base| match samples.bases[*base].origin {
        Origin::Function(task, _) => Some(task),
        Origin::Input(_) => None,
    });
    tasks.collect()
}

impl Samples {
    /// weight·number by a bootstrap, with the noise of one.
    pub(super) fn refreshed(&mut self, number: &Combo, weight: i128) -> Result<Combo, Error> {
        if number.bits() > self.width() {
            return Err(self.error(format!(
                "a number of {} bits is to be bootstrapped, and functions of {} read {}",
                number.bits(),
                self.params.name,
                self.width()
            )));
        }
        let Interval { low, high } = number.interval;
        let values: Vec<i128> = (low..=high).map(|value| value * weight).collect();
        let task = self.task(number);
        self.value(task, &values)
    }
}
