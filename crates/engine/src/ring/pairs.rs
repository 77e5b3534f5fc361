//! Functions of two narrow values, found in a plan.
//!
//! A program has a function of x and y as one of x·2^Q + y, where x stands in the upper bits because it has fewer of them, and y comes to the lower
//! ones by a function of its own, which takes as long as that of both. A ring takes x and y apart as they are, as the two parts of one message. So
//! a function of a sum of multiples of two values, and of functions of them, becomes one table of both.

use std::collections::{BTreeMap, BTreeSet};

use toroid_isa::VrNumber;
use toroid_rns::ring_set::RingSet;
use toroid_rns::table::Table;
use toroid_tfhe::encoding::Encoding;

use crate::column::plan::{Operation, Plan, ValueId};

/// The most sums, multiples and constants between two values and a function of both. What is made of more is taken as it is.
const MOST_STEPS: usize = 64;

/// A summand of a message, as a function of one of two values.
#[derive(Clone, Copy, Debug)]
struct Term {
    /// The place of the value in [`Pair::values`].
    place: usize,
    /// The function, where it is not the value itself, and the bits of what it gives.
    function: Option<VrNumber>,
    bits: u32,
    /// What the summand is multiplied by, modulo 2^64.
    factor: u64,
}

/// A message as a function of two others.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    /// The values, that of the high part first.
    pub(super) values: [ValueId; 2],
    /// Bits of the messages of both.
    value_bits: [u32; 2],
    /// Bits of the two parts of the ring's messages.
    part_bits: [u32; 2],
    terms: Vec<Term>,
    constant: u64,
    /// Bits of the sum.
    bits: u32,
}

/// The tasks of a plan whose functions are those of two values.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs {
    of_task: BTreeMap<usize, Pair>,
    /// The tasks of two values.
    of_values: BTreeMap<[ValueId; 2], Vec<usize>>,
}

impl Pairs {
    /// Those of a plan for a ring. Each takes no longer than what it stands for.
    pub(super) fn find(plan: &Plan, set: &RingSet) -> Pairs {
        let Some(part_bits) = set.bits_of_two() else {
            return Pairs::default();
        };
        let mut pairs = Pairs::default();
        for task in 0..plan.tasks.len() {
            if let Some(pair) = Pair::find(plan, task, part_bits) {
                pairs.of_values.entry(pair.values).or_default().push(task);
                pairs.of_task.insert(task, pair);
            }
        }
        pairs
    }

    /// The pair that a task is of.
    pub(super) fn of_task(&self, task: usize) -> Option<&Pair> {
        self.of_task.get(&task)
    }

    /// The tasks whose functions go together with those of a task, itself among them: those of the same two values.
    pub(super) fn together(&self, task: usize) -> Vec<usize> {
        let same = self.of_task(task).map(|pair| &self.of_values[&pair.values]);
        same.map_or_else(|| vec![task], Vec::clone)
    }

    /// The functions of each value, or of two, of a plan that is to do these alone.
    pub(super) fn functions(&self, plan: &Plan) -> Vec<usize> {
        let functions = |task: usize| plan.tasks[task].functions.len();
        let all = (0..plan.tasks.len()).map(|task| self.together(task));
        let firsts = all.enumerate().filter(|(task, all)| all[0] == *task);
        let sums = firsts.map(|(_, all)| all.into_iter().map(functions).sum());
        sums.filter(|sum| *sum > 0).collect()
    }

    /// The values that an operation reads.
    fn operands(&self, plan: &Plan, operation: Operation) -> Vec<ValueId> {
        let pair = match operation {
            Operation::Bootstrap(task) => self.of_task(task),
            _ => None,
        };
        match pair {
            Some(pair) => pair.values.to_vec(),
            None => plan.operands(operation).collect(),
        }
    }

    /// The values that a value is made of.
    pub(super) fn needed(&self, plan: &Plan, value: ValueId) -> BTreeSet<ValueId> {
        let (mut needed, mut open) = (BTreeSet::new(), vec![value]);
        while let Some(value) = open.pop() {
            if needed.insert(value)
                && let Some(value) = plan.values.get(value)
            {
                open.extend(self.operands(plan, value.operation));
            }
        }
        needed
    }
}

impl Pair {
    /// What the functions of a task are functions of, if that is two values, of which one has functions of its own on the way.
    fn find(plan: &Plan, task: usize, part_bits: [u32; 2]) -> Option<Pair> {
        let task = plan.tasks.get(task)?;
        let bits_of = |id: ValueId| plan.values.get(id)?.encoding.map(Encoding::bits);
        let bits = bits_of(task.input)?;
        let most = part_bits[0] + part_bits[1];
        if bits != task.input_bits || bits > most || task.functions.is_empty() {
            return None;
        }
        let (summands, constant) = linear(plan, task.input, bits)?;
        let widest = part_bits[0].max(part_bits[1]);
        let mut values: Vec<ValueId> = Vec::new();
        let mut terms = Vec::new();
        for (summand, factor) in summands {
            let own = bits_of(summand).filter(|own| *own <= bits)?;
            let inner = match plan.values[summand].operation {
                Operation::Bootstrap(task) => plan.tasks.get(task),
                _ => None,
            };
            // A function of a narrow value, else the value itself.
            let through = inner.and_then(|inner| {
                let is_narrow = inner.input_bits <= widest;
                let is_whole = bits_of(inner.input) == Some(inner.input_bits);
                let mut functions = inner.functions.iter();
                let (tv, _) = functions.find(|(_, value)| *value == summand)?;
                (is_narrow && is_whole).then_some((inner.input, *tv))
            });
            let (value, function) = match through {
                Some((value, tv)) => (value, Some(tv)),
                None => (summand, None),
            };
            let place = values.iter().position(|known| *known == value);
            let place = place.unwrap_or_else(|| {
                values.push(value);
                values.len() - 1
            });
            if values.len() > 2 {
                return None;
            }
            terms.push(Term {
                place,
                function,
                bits: own,
                factor,
            });
        }
        let [first, second] = <[ValueId; 2]>::try_from(values).ok()?;
        if terms.iter().all(|term| term.function.is_none()) {
            return None;
        }
        let fits = |value_bits: [u32; 2]| (0..2).all(|part| value_bits[part] <= part_bits[part]);
        let mut pair = Pair {
            values: [first, second],
            value_bits: [bits_of(first)?, bits_of(second)?],
            part_bits,
            terms,
            constant,
            bits,
        };
        if !fits(pair.value_bits) {
            pair.values.reverse();
            pair.value_bits.reverse();
            pair.terms
                .iter_mut()
                .for_each(|term| term.place = 1 - term.place);
        }
        fits(pair.value_bits).then_some(pair)
    }

    /// A function of the sum as a function of both messages, given the ring's tables of functions.
    ///
    /// # Errors
    /// Those of `table`.
    pub(super) fn table<E>(
        &self,
        outer: &Table,
        table: impl Fn(VrNumber) -> Result<Table, E>,
    ) -> Result<Table, E> {
        let all = self.part_bits[0] + self.part_bits[1];
        let inner = self.terms.iter().map(|term| term.function.map(&table));
        let inner = inner
            .map(Option::transpose)
            .collect::<Result<Vec<_>, _>>()?;
        let sum = |index: usize| {
            let parts = [
                index >> self.part_bits[1],
                index & ((1 << self.part_bits[1]) - 1),
            ];
            let mut sum = self.constant;
            for (term, function) in self.terms.iter().zip(&inner) {
                let own = self.value_bits[term.place];
                let message = parts[term.place] >> (self.part_bits[term.place] - own);
                let value = match function {
                    Some(table) => table.values()[message << (all - own)].into(),
                    None => message as u64,
                };
                let summand = value.wrapping_mul(term.factor) << (self.bits - term.bits);
                sum = sum.wrapping_add(summand);
            }
            (sum & ((1 << self.bits) - 1)) as usize
        };
        Ok(outer.after(|index| sum(index) << (all - self.bits)))
    }
}

/// A value of so many bits as a sum of multiples of others, which are none themselves, and a constant in its messages; nothing where that takes more
/// than [`MOST_STEPS`]. Factors are modulo 2^64.
fn linear(plan: &Plan, value: ValueId, bits: u32) -> Option<(BTreeMap<ValueId, u64>, u64)> {
    let mut open = BTreeMap::from([(value, 1u64)]);
    let (mut summands, mut constant) = (BTreeMap::new(), 0u64);
    let mut steps = 0;
    // The latest first, so that no value comes twice.
    while let Some((id, factor)) = open.pop_last() {
        let value = plan.values.get(id)?;
        let mut add = |id: ValueId, factor: u64| {
            let sum = open.entry(id).or_default();
            *sum = sum.wrapping_add(factor);
        };
        match value.operation {
            Operation::Add(a, b) => {
                add(a, factor);
                add(b, factor);
            }
            Operation::Sub(a, b) => {
                add(a, factor);
                add(b, factor.wrapping_neg());
            }
            Operation::Mul(a, by) => {
                add(a, factor.wrapping_mul(i64::from(by).cast_unsigned()));
            }
            Operation::AddInt(a, by) => {
                let own = value.encoding.map(Encoding::bits);
                let up = bits.checked_sub(own?)?;
                let by = i64::from(by).cast_unsigned() << up;
                constant = constant.wrapping_add(factor.wrapping_mul(by));
                add(a, factor);
            }
            _ => {
                summands.insert(id, factor);
            }
        }
        steps += 1;
        if steps > MOST_STEPS {
            return None;
        }
    }
    Some((summands, constant))
}
