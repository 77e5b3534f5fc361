//! An evaluator that adds up the times of its operations, and what else examples measure.

#![allow(dead_code, reason = "each example uses a part")]

use std::collections::BTreeMap;
use std::time::Instant;

use toroid_rns::complex::Complex;
use toroid_rns::evaluator::Evaluator;
use toroid_rns::slots::{ColumnSlots, LinearSlots, Slots};
use toroid_rns::transform::StepPlan;
use toroid_rns::{Ciphertext, Plaintext, RnsError};

/// Seconds of processors that this process took; none where Unix does not tell.
fn processors() -> f64 {
    #[cfg(unix)]
    {
        let taken = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        taken.tv_sec as f64 + taken.tv_nsec as f64 / 1e9
    }
    #[cfg(not(unix))]
    {
        0.0
    }
}

/// The most memory that this process had, in MB, where Linux tells.
pub fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024 / 1_000_000)
}

/// Seconds of the day, and of processors.
pub type Times = (f64, f64);

pub fn time<R>(work: impl FnOnce() -> R) -> (R, Times) {
    let (start, before) = (Instant::now(), processors());
    let result = work();
    (
        result,
        (start.elapsed().as_secs_f64(), processors() - before),
    )
}

/// An evaluator that adds up the times of each kind of operation.
pub struct Timed<'a> {
    inner: Evaluator<'a>,
    pub times: BTreeMap<&'static str, (usize, Times)>,
}

impl<'a> Timed<'a> {
    pub fn new(inner: Evaluator<'a>) -> Timed<'a> {
        Timed {
            inner,
            times: BTreeMap::new(),
        }
    }

    /// Not timed: no batch needs it.
    pub fn decode(&self, plaintext: &Plaintext) -> Vec<Complex> {
        self.inner.decode(plaintext)
    }

    pub fn time<R>(&mut self, what: &'static str, work: impl FnOnce(&mut Evaluator<'a>) -> R) -> R {
        let (result, (day, processors)) = time(|| work(&mut self.inner));
        let (count, times) = self.times.entry(what).or_default();
        *count += 1;
        *times = (times.0 + day, times.1 + processors);
        result
    }
}

impl Slots for Timed<'_> {
    type Value = Ciphertext;
    type Error = RnsError;

    fn level(&self, value: &Ciphertext) -> usize {
        self.inner.level(value)
    }

    fn add(&mut self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, RnsError> {
        self.time("sums", |inner| inner.add(a, b))
    }

    fn sub(&mut self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, RnsError> {
        self.time("sums", |inner| inner.sub(a, b))
    }

    fn affine(
        &mut self,
        a: &Ciphertext,
        factor: i32,
        constant: Complex,
    ) -> Result<Ciphertext, RnsError> {
        self.time("sums", |inner| inner.affine(a, factor, constant))
    }

    fn products(&mut self, pairs: &[(&Ciphertext, &Ciphertext)]) -> Result<Ciphertext, RnsError> {
        self.time("products", |inner| inner.products(pairs))
    }

    fn combine_at(
        &mut self,
        level: usize,
        terms: &[(&Ciphertext, Complex)],
        constant: Complex,
    ) -> Result<Ciphertext, RnsError> {
        self.time("combinations", |inner| {
            inner.combine_at(level, terms, constant)
        })
    }

    fn combine_rows_at(
        &mut self,
        level: usize,
        values: &[&Ciphertext],
        rows: &[(Vec<Complex>, Complex)],
    ) -> Result<Vec<Ciphertext>, RnsError> {
        self.time("combinations", |inner| {
            inner.combine_rows_at(level, values, rows)
        })
    }

    fn conjugate(&mut self, a: &Ciphertext) -> Result<Ciphertext, RnsError> {
        self.time("conjugations", |inner| inner.conjugate(a))
    }

    fn times_i(&mut self, a: &Ciphertext) -> Result<Ciphertext, RnsError> {
        self.time("sums", |inner| inner.times_i(a))
    }

    fn lower(&mut self, a: &Ciphertext, level: usize) -> Result<Ciphertext, RnsError> {
        self.time("sums", |inner| inner.lower(a, level))
    }

    fn weigh(
        &mut self,
        values: &[&Ciphertext],
        rows: &[Vec<u32>],
        log2_unit: u32,
    ) -> Result<Vec<Ciphertext>, RnsError> {
        self.time("weighted sums", |inner| {
            inner.weigh(values, rows, log2_unit)
        })
    }
}

impl LinearSlots for Timed<'_> {
    fn transform(&mut self, plan: &StepPlan, a: &Ciphertext) -> Result<Ciphertext, RnsError> {
        self.time("matrices", |inner| inner.transform(plan, a))
    }
}

impl ColumnSlots for Timed<'_> {
    fn raise(&mut self, column: &Ciphertext, level: usize) -> Result<Ciphertext, RnsError> {
        self.time("mod-raise", |inner| {
            ColumnSlots::raise(inner, column, level)
        })
    }
}
