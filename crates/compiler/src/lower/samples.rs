//! Samples: what the program computes of one row, as functions of combinations of samples.
//!
//! A *base* is a sample of its own: an input's digit, or the value of a function. A [`Combo`] is a combination of bases with integer weights,
//! which costs no bootstrap. A *task* applies functions to a combination. The numbers are plain integers here; which place of the torus
//! a base's message takes is decided in `noise.rs`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use toroid_task::CancelToken;
use toroid_tfhe::params::ParamSet;

use crate::error::{Error, Location};
use crate::interval::Interval;

/// The place of a base in [`Samples::bases`].
pub(super) type BaseId = usize;
/// The place of a task in [`Samples::tasks`].
pub(super) type TaskId = usize;

/// Entries of tables are below this: messages, with their padding bits, have far fewer bits.
const MOST_ENTRY: i128 = 1 << 48;

/// constant + Σ weight·base, with the interval of the sum.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Combo {
    pub(super) terms: BTreeMap<BaseId, i128>,
    pub(super) constant: i128,
    pub(super) interval: Interval,
}

impl Combo {
    /// A number that is known.
    pub(super) fn constant(value: i128) -> Combo {
        Combo {
            terms: BTreeMap::new(),
            constant: value,
            interval: Interval {
                low: value,
                high: value,
            },
        }
    }

    /// self + weight·other, with the interval that follows from theirs.
    pub(super) fn plus(&self, other: &Combo, weight: i128) -> Combo {
        let mut sum = self.clone();
        for (base, of_other) in &other.terms {
            let entry = sum.terms.entry(*base).or_default();
            *entry += weight * of_other;
            if *entry == 0 {
                sum.terms.remove(base);
            }
        }
        sum.constant += weight * other.constant;
        let (a, b) = (weight * other.interval.low, weight * other.interval.high);
        sum.interval = Interval {
            low: sum.interval.low + a.min(b),
            high: sum.interval.high + a.max(b),
        };
        sum.settled()
    }

    /// weight·self.
    pub(super) fn times(&self, weight: i128) -> Combo {
        Combo::constant(0).plus(self, weight)
    }

    /// self + value.
    pub(super) fn offset(&self, value: i128) -> Combo {
        self.plus(&Combo::constant(value), 1)
    }

    /// The same where more is known of its interval.
    pub(super) fn within(mut self, interval: Interval) -> Combo {
        let low = self.interval.low.max(interval.low);
        let high = self.interval.high.min(interval.high);
        if low <= high {
            self.interval = Interval { low, high };
        }
        self
    }

    /// The same number to a reader of `bits` bits, to which 2^bits is nothing: weights of small magnitudes, without those that it cannot see.
    pub(super) fn seen(mut self, bits: u32) -> Combo {
        let half = 1_i128 << (bits - 1);
        self.terms.retain(|_, weight| {
            *weight = (*weight + half - 1).rem_euclid(2 * half) - half + 1;
            *weight != 0
        });
        self
    }

    /// Nothing is left of a sum whose samples cancel but its constant.
    fn settled(mut self) -> Combo {
        if self.terms.is_empty() {
            self.interval = Interval {
                low: self.constant,
                high: self.constant,
            };
        }
        self
    }

    /// The bits that number its values.
    pub(super) fn bits(&self) -> u32 {
        self.interval.bits()
    }

    /// Its value, if it is known.
    pub(super) fn known(&self) -> Option<i128> {
        self.terms.is_empty().then_some(self.constant)
    }
}

/// Where a base comes from.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// A digit of an input, in the register of this name.
    Input(String),
    /// The function of a task: a value for each message from the lowest, not negative.
    Function(TaskId, Arc<[i64]>),
}

/// A sample of its own. A function's value is not negative, an input's digit may be.
#[derive(Clone, Debug)]
pub(super) struct Base {
    pub(super) origin: Origin,
    /// The values of the sample itself.
    pub(super) interval: Interval,
}

/// Functions of a combination, which is read as its value less `low`, modulo 2^bits.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) combo: Combo,
    /// The lowest value.
    pub(super) low: i128,
    pub(super) bits: u32,
    /// The statement that it is for.
    pub(super) location: Option<Location>,
    pub(super) what: String,
}

/// What identifies a task: terms, constant, lowest value, bits.
type TaskKey = (Vec<(BaseId, i128)>, i128, i128, u32);

/// All samples of a program.
pub(super) struct Samples {
    pub(super) params: &'static ParamSet,
    pub(super) bases: Vec<Base>,
    pub(super) tasks: Vec<Task>,
    known_tasks: HashMap<TaskKey, TaskId>,
    known_bases: HashMap<(TaskId, Arc<[i64]>), BaseId>,
    /// The statement that is being lowered.
    pub(super) location: Option<Location>,
    pub(super) what: String,
    /// Ends the compilation.
    pub(super) cancel: CancelToken,
}

impl Samples {
    pub(super) fn new(params: &'static ParamSet, cancel: CancelToken) -> Samples {
        Samples {
            params,
            bases: Vec::new(),
            tasks: Vec::new(),
            known_tasks: HashMap::new(),
            known_bases: HashMap::new(),
            location: None,
            what: String::new(),
            cancel,
        }
    }

    /// The bits that functions read.
    pub(super) fn width(&self) -> u32 {
        self.params.message_bits
    }

    /// The bits above a message that functions read: the padding bit, where they need it.
    pub(super) fn padding_bits(&self) -> u32 {
        u32::from(!self.params.is_wide())
    }

    /// An error at the statement that is being lowered.
    pub(super) fn error(&self, message: impl Into<String>) -> Error {
        Error::new(message).at(self.location.as_ref())
    }

    /// An input's digit.
    pub(super) fn input(&mut self, register: String, interval: Interval) -> Combo {
        let base = self.bases.len();
        self.bases.push(Base {
            origin: Origin::Input(register),
            interval,
        });
        Combo {
            terms: BTreeMap::from([(base, 1)]),
            constant: 0,
            interval,
        }
    }

    /// The function of a combination: free where it is the number itself, negated or not, or known.
    ///
    /// # Errors
    /// More values than functions of the set take.
    pub(super) fn function(
        &mut self,
        combo: &Combo,
        function: impl Fn(i128) -> i128,
    ) -> Result<Combo, Error> {
        let Interval { low, high } = combo.interval;
        if combo.bits() > self.width() {
            return Err(self
                .error(format!(
                    "a number of {} bits goes into a table, and those of {} take {}",
                    combo.bits(),
                    self.params.name,
                    self.width()
                ))
                .with_help("take a parameter set of wider functions, or give the inputs narrower intervals"));
        }
        let values: Vec<i128> = (low..=high).map(&function).collect();
        if let Some(value) = combo.known() {
            return Ok(Combo::constant(function(value)));
        }
        let first = values.first().copied().unwrap_or(0);
        for slope in [0, 1, -1] {
            let mut expected = (0..).map(|step| first + slope * step);
            if values.iter().all(|value| Some(*value) == expected.next()) {
                let combo = combo.times(slope);
                let distance = first - slope * low;
                return Ok(combo.offset(distance));
            }
        }
        let task = self.task(combo);
        self.value(task, &values)
    }

    /// The task of a combination, whose bits the set takes.
    pub(super) fn task(&mut self, combo: &Combo) -> TaskId {
        let bits = combo.bits().max(1);
        let low = combo.interval.low;
        let combo = combo.clone().seen(bits + self.padding_bits());
        let terms = combo.terms.iter().map(|(base, weight)| (*base, *weight));
        let key = (terms.collect(), combo.constant, low, bits);
        if let Some(task) = self.known_tasks.get(&key) {
            return *task;
        }
        let task = self.tasks.len();
        self.tasks.push(Task {
            low,
            combo,
            bits,
            location: self.location.clone(),
            what: self.what.clone(),
        });
        self.known_tasks.insert(key, task);
        task
    }

    /// A function of a task, by its values from the lowest message.
    pub(super) fn value(&mut self, task: TaskId, values: &[i128]) -> Result<Combo, Error> {
        let hull = self.hull(values)?;
        let span = hull.high - hull.low;
        // No place keeps more bits of an entry than these.
        let entries = values
            .iter()
            .map(|value| (value - hull.low).rem_euclid(MOST_ENTRY) as i64);
        let entries: Arc<[i64]> = entries.collect();
        let key = (task, entries.clone());
        let base = match self.known_bases.get(&key) {
            Some(base) => *base,
            None => {
                let base = self.bases.len();
                self.bases.push(Base {
                    origin: Origin::Function(task, entries),
                    interval: Interval { low: 0, high: span },
                });
                self.known_bases.insert(key, base);
                base
            }
        };
        Ok(Combo {
            terms: BTreeMap::from([(base, 1)]),
            constant: hull.low,
            interval: Interval {
                low: hull.low,
                high: hull.low + span,
            },
        })
    }

    /// The interval of the values of a function.
    ///
    /// # Errors
    /// Values beyond 2^100.
    pub(super) fn hull(&self, values: &[i128]) -> Result<Interval, Error> {
        Interval::hull(values).ok_or_else(|| {
            self.error("a number on the way exceeds 2^100")
                .with_help("give the inputs narrower intervals, or wrap or divide the operands")
        })
    }

    /// Two numbers in one: a·2^k + b - b's lowest, k being the bits of b. The second result is k.
    pub(super) fn pair(a: &Combo, b: &Combo) -> (Combo, u32) {
        let bits = b.bits();
        let b = b.offset(-b.interval.low);
        (a.times(1 << bits).plus(&b, 1), bits)
    }

    /// The function of two combinations.
    ///
    /// # Errors
    /// More values of both than functions of the set take.
    pub(super) fn function2(
        &mut self,
        a: &Combo,
        b: &Combo,
        function: impl Fn(i128, i128) -> i128,
    ) -> Result<Combo, Error> {
        if let Some(value) = a.known() {
            return self.function(b, |b| function(value, b));
        }
        if let Some(value) = b.known() {
            return self.function(a, |a| function(a, value));
        }
        let (both, bits) = Samples::pair(a, b);
        let Interval { low, high } = b.interval;
        let of_pair = |m: i128| {
            let a = m >> bits;
            let b = (m & ((1 << bits) - 1)) + low;
            // Behind the highest second number there are pairs that never come.
            function(a, b.min(high))
        };
        self.function(&both, of_pair)
    }
}
