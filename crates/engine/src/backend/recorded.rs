//! A back end that takes recorded times: results of another back end, at the pace of a machine that was measured.
//!
//! [`RecordedTimes`] say what a task takes on one slot of a machine: a core, a part of a simulated engine or of a device.
//! [`RecordedTimes::estimate`] plans with them before anything runs. [`RecordedBackend`] lets them pass, so that whatever sits
//! above a back end meets the order and the waits of that machine, on any other.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use toroid_isa::KeyKind;
use toroid_rns::ring_set::RingSet;
use toroid_task::CancelToken;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::modulus::Words;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::KeyForm;
use toroid_tfhe::with_modulus;

use super::schedule::{Pass, Scheduler, Work};
use super::testing::test_vector;
use super::{
    Backend, BackendError, BackendStatistics, BootstrapTask, KeySink, LoadedKey, RingKeys,
    RingMade, RingOperand, RingProgram, check_results,
};
use crate::requester::Requester;

/// How often a task that takes its time looks at the cancellation token.
const CANCEL_POLL: Duration = Duration::from_millis(2);

/// What the tasks of one parameter set take on one slot: a time for each bit that a wide function extracts, and one for each function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetTimes {
    /// Name of the parameter set.
    pub set: String,
    /// What was measured: processor and arithmetic.
    pub machine: String,
    /// The day of the measurement.
    pub date: String,
    /// Milliseconds a bit of the input; 0 for programmable bootstraps.
    pub bit_ms: f64,
    /// Milliseconds a function. That of a wide function of the set's whole width, so that narrower ones may take less.
    pub function_ms: f64,
}

/// What tables on a ciphertext of a ring take on one slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RingTimes {
    /// Name of the ring set.
    pub ring: String,
    /// What was measured: processor and arithmetic.
    pub machine: String,
    /// The day of the measurement.
    pub date: String,
    /// Seconds to take the messages of a ciphertext apart, which its functions share.
    pub digits_s: f64,
    /// Seconds a function.
    pub function_s: f64,
}

/// The times of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedTimes {
    /// How many tasks it does at a time; 0 counts as 1.
    pub slots: usize,
    /// [`Backend::batch_hint`].
    pub hint: usize,
    /// What each set takes.
    pub sets: Vec<SetTimes>,
    /// What each ring takes.
    #[serde(default)]
    pub rings: Vec<RingTimes>,
}

impl SetTimes {
    /// Measures the tasks of a set, the best of `runs` each: a function of random samples at the set's whole width, and for wide
    /// functions two. The back end should have one slot; with more, it says what a task takes that has all of them.
    ///
    /// # Errors
    /// A failure of the back end.
    pub fn measure(
        backend: &dyn Backend,
        params: &ParamSet,
        (bootstrapping, key_switching): (&dyn LoadedKey, &dyn LoadedKey),
        (machine, date): (&str, &str),
        runs: usize,
    ) -> Result<SetTimes, BackendError> {
        let bits = params.message_bits;
        // Values of all the bits that a result has.
        let scattered = |m: u64| m.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (63 - bits);
        let vector = test_vector(params, bits, scattered);
        let mut rng = Csprng::from_seed([0; 32]);
        let cancel = CancelToken::new();
        let mut best = |functions: usize| -> Result<f64, BackendError> {
            let mut best = f64::INFINITY;
            for _ in 0..runs.max(1) {
                let task = BootstrapTask {
                    test_vectors: &vec![&vector[..]; functions],
                    sample: &random_sample(params, &mut rng),
                    input_bits: bits,
                };
                let start = Instant::now();
                backend.bootstrap(params, bootstrapping, key_switching, task, (&cancel).into())?;
                best = best.min(1000.0 * start.elapsed().as_secs_f64());
            }
            Ok(best)
        };
        let first = best(1)?;
        let (bit_ms, function_ms) = if params.is_wide() {
            let function = (best(2)? - first).clamp(0.0, first);
            ((first - function) / f64::from(bits), function)
        } else {
            (0.0, first)
        };
        Ok(SetTimes {
            set: params.name.to_owned(),
            machine: machine.to_owned(),
            date: date.to_owned(),
            bit_ms,
            function_ms,
        })
    }

    /// The time of a task.
    fn task(&self, input_bits: u32, functions: usize) -> Result<Duration, BackendError> {
        let time = |ms: f64| {
            Duration::try_from_secs_f64(ms / 1000.0).map_err(|error| BackendError::Failed {
                reason: format!("the recorded times of {}: {error}", self.set),
            })
        };
        let bits = time(f64::from(input_bits) * self.bit_ms)?;
        Ok(bits.saturating_add(time(functions as f64 * self.function_ms)?))
    }
}

/// Words of a sample of nothing in particular. Trivial samples will not do: their blind rotations skip every step.
fn random_sample(params: &ParamSet, rng: &mut Csprng) -> Vec<u8> {
    with_modulus!(params.modulus, M => {
        let mut words = vec![<M as Words>::Word::default(); params.lwe_words()];
        rng.fill_uniform::<M>(&mut words);
        bytemuck::cast_slice(&words).to_vec()
    })
}

impl RecordedTimes {
    /// The documented times on one core of the machines of `docs/results/`, with the f64 arithmetic, on this many cores; of rings, those of tables on a
    /// whole ciphertext whose matrices are encoded anew.
    #[must_use]
    pub fn documented(slots: usize) -> RecordedTimes {
        const EPYC: (&str, &str) = ("AMD EPYC (Zen 4, AVX-512), f64", "2026-11-22");
        const XEON: (&str, &str) = ("Intel Xeon (AVX-512), f64", "2026-11-23");
        // bootstrap.md has the medians of programmable bootstraps, wide.md the 164 ms of message8, which two functions and narrow inputs
        // divide. What a wide function, a further one and a bit take is that of one value by the code of the date; a row of
        // eight takes less today (cpu-designs.md), and cpu.md has one value as of a later day.
        let sets = [
            ("gate", EPYC, 0.0, 7.9),
            ("message4", EPYC, 0.0, 15.9),
            ("message7", EPYC, 0.0, 190.9),
            ("paper", EPYC, 0.0, 252.8),
            ("message8", XEON, 18.3, 17.6),
            ("message14", EPYC, 10.5, 43.7),
            ("message16", EPYC, 10.5, 52.1),
        ];
        // column-engine.md has them, on one thread: what a first table takes beyond a further one, and a further one.
        let rings = [
            ("ring8", 8.65, 0.583),
            ("ring12", 27.64, 1.381),
            ("ring16", 36.23, 14.828),
        ];
        let rings = rings.map(|(ring, digits_s, function_s)| RingTimes {
            ring: ring.to_owned(),
            machine: "AMD EPYC (Zen 4, AVX-512)".to_owned(),
            date: "2026-11-28".to_owned(),
            digits_s,
            function_s,
        });
        RecordedTimes {
            slots,
            hint: 4 * slots,
            rings: rings.into(),
            sets: sets
                .into_iter()
                .map(|(set, (machine, date), bit_ms, function_ms)| SetTimes {
                    set: set.to_owned(),
                    machine: machine.to_owned(),
                    date: date.to_owned(),
                    bit_ms,
                    function_ms,
                })
                .collect(),
        }
    }

    /// What a task of a sample takes on one slot, that reads so many bits of its message and applies so many functions.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] for a set without times, [`BackendError::Failed`] for times that are none.
    pub fn task(
        &self,
        params: &ParamSet,
        input_bits: u32,
        functions: usize,
    ) -> Result<Duration, BackendError> {
        let times = self.sets.iter().find(|times| times.set == params.name);
        let times = times.ok_or_else(|| BackendError::Unsupported {
            reason: format!("no times of {} are recorded", params.name),
        })?;
        times.task(input_bits, functions)
    }

    /// What a batch takes, without taking it: tasks, as input bits and functions, in their order, each on the slot that is free
    /// first.
    ///
    /// # Errors
    /// As [`RecordedTimes::task`].
    pub fn estimate(
        &self,
        params: &ParamSet,
        tasks: impl IntoIterator<Item = (u32, usize)>,
    ) -> Result<Duration, BackendError> {
        let mut busy_until = vec![Duration::ZERO; self.slots.max(1)];
        for (input_bits, functions) in tasks {
            if let Some(first) = busy_until.iter_mut().min() {
                *first = first.saturating_add(self.task(params, input_bits, functions)?);
            }
        }
        Ok(busy_until.into_iter().max().unwrap_or_default())
    }
}

impl RecordedTimes {
    /// What the functions of a program take on one ciphertext of a ring, given by their numbers for each value that they are applied to. All slots
    /// share each operation.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] for a ring without times, [`BackendError::Failed`] for times that are none.
    pub fn ciphertext(
        &self,
        set: &RingSet,
        functions: impl IntoIterator<Item = usize>,
    ) -> Result<Duration, BackendError> {
        let times = self.rings.iter().find(|times| times.ring == set.name);
        let times = times.ok_or_else(|| BackendError::Unsupported {
            reason: format!("no times of {} are recorded", set.name),
        })?;
        let of_value = |functions: usize| times.digits_s + functions as f64 * times.function_s;
        let seconds: f64 = functions.into_iter().map(of_value).sum();
        let seconds = seconds / self.slots.max(1) as f64;
        Duration::try_from_secs_f64(seconds).map_err(|error| BackendError::Failed {
            reason: format!("the recorded times of {}: {error}", set.name),
        })
    }

    /// The fewest rows that take no longer on a ciphertext of a ring than sample by sample, for a program's tasks on a row, as input bits and functions, and
    /// its functions on a ciphertext, as [`RecordedTimes::ciphertext`] has them.
    /// `None` where no rows of one ciphertext do.
    ///
    /// # Errors
    /// As [`RecordedTimes::task`] and [`RecordedTimes::ciphertext`].
    pub fn break_even(
        &self,
        params: &ParamSet,
        set: &RingSet,
        (tasks, functions): (&[(u32, usize)], &[usize]),
    ) -> Result<Option<u64>, BackendError> {
        let batch = self.ciphertext(set, functions.iter().copied())?;
        let mut row = Duration::ZERO;
        for (bits, functions) in tasks {
            row = row.saturating_add(self.task(params, *bits, *functions)?);
        }
        let row = row.as_secs_f64() / self.slots.max(1) as f64;
        let rows = (batch.as_secs_f64() / row).ceil().max(1.0);
        Ok((rows <= set.rows() as f64).then_some(rows as u64))
    }
}

/// The results of a back end, in recorded times. They are least times: what the other back end takes longer comes through.
pub struct RecordedBackend {
    inner: Arc<dyn Backend>,
    times: RecordedTimes,
    scheduler: Scheduler,
}

impl RecordedBackend {
    /// A back end with the results and keys of `inner`, which takes `times`.
    #[must_use]
    pub fn new(inner: Arc<dyn Backend>, times: RecordedTimes) -> RecordedBackend {
        RecordedBackend {
            inner,
            scheduler: Scheduler::new(times.slots),
            times,
        }
    }

    /// The times that it takes.
    #[must_use]
    pub fn times(&self) -> &RecordedTimes {
        &self.times
    }
}

/// Tasks under a pair of keys.
struct Tasks<'a> {
    backend: &'a RecordedBackend,
    params: &'a ParamSet,
    keys: [&'a dyn LoadedKey; 2],
    requester: Requester<'a>,
}

impl Tasks<'_> {
    fn time(&self, task: &BootstrapTask<'_>) -> Result<Duration, BackendError> {
        let times = &self.backend.times;
        times.task(self.params, task.input_bits, task.test_vectors.len())
    }
}

impl Work for Tasks<'_> {
    fn keys(&self) -> [usize; 2] {
        self.keys.map(|key| std::ptr::from_ref(key).addr())
    }

    /// The times are those of tasks among others, so nothing becomes cheaper.
    fn most(&self) -> usize {
        1
    }

    fn cost(&self, task: &BootstrapTask<'_>) -> u64 {
        let time = self.time(task).unwrap_or_default();
        u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
    }

    fn slots(&self, _: usize) -> usize {
        1
    }

    fn pass(&self, pass: &Pass<'_>, results: &mut [u8]) -> Result<(), BackendError> {
        let begun = Instant::now();
        let mut time = Duration::ZERO;
        for task in pass.tasks {
            time = time.saturating_add(self.time(task)?);
        }
        let [bootstrapping, key_switching] = self.keys;
        let requester = Requester {
            cancel: pass.cancel,
            ..self.requester
        };
        let inner = &self.backend.inner;
        inner.bootstrap_batch(
            self.params,
            bootstrapping,
            key_switching,
            pass.tasks,
            results,
            requester,
        )?;
        while let Some(rest) = time.checked_sub(begun.elapsed()) {
            if pass.cancel.is_cancelled() {
                return Err(BackendError::Cancelled);
            }
            thread::sleep(rest.min(CANCEL_POLL));
        }
        Ok(())
    }
}

impl Backend for RecordedBackend {
    fn name(&self) -> &'static str {
        "recorded"
    }

    fn arithmetic(&self) -> ArithmeticKind {
        self.inner.arithmetic()
    }

    fn begin_key(
        &self,
        params: &ParamSet,
        kind: KeyKind,
        form: KeyForm,
    ) -> Result<Box<dyn KeySink>, BackendError> {
        self.inner.begin_key(params, kind, form)
    }

    fn run_ring(
        &self,
        keys: RingKeys<'_>,
        operands: &[RingOperand<'_>],
        program: &RingProgram<'_>,
        requester: Requester<'_>,
    ) -> Result<RingMade, BackendError> {
        self.inner.run_ring(keys, operands, program, requester)
    }

    fn bootstrap_batch(
        &self,
        params: &ParamSet,
        bootstrapping: &dyn LoadedKey,
        key_switching: &dyn LoadedKey,
        tasks: &[BootstrapTask<'_>],
        results: &mut [u8],
        requester: Requester<'_>,
    ) -> Result<(), BackendError> {
        check_results(params, tasks, results)?;
        let work = Tasks {
            backend: self,
            params,
            keys: [bootstrapping, key_switching],
            requester,
        };
        let sample_bytes = params.lwe_bytes();
        self.scheduler
            .run_batch(tasks, results, sample_bytes, requester, &work)
    }

    fn batch_hint(&self, _: &ParamSet) -> usize {
        self.times.hint
    }

    fn packs(&self, params: &ParamSet) -> bool {
        self.inner.packs(params)
    }

    fn pack(
        &self,
        params: &ParamSet,
        bootstrapping: &dyn LoadedKey,
        samples: &[(usize, &[u8])],
        rows: usize,
        requester: Requester<'_>,
    ) -> Result<Vec<u8>, BackendError> {
        let inner = &self.inner;
        inner.pack(params, bootstrapping, samples, rows, requester)
    }

    fn statistics(&self) -> BackendStatistics {
        self.scheduler.statistics()
    }

    fn hom_add(&self, params: &ParamSet, dst: &mut [u8], src: &[u8]) {
        self.inner.hom_add(params, dst, src);
    }

    fn hom_sub(&self, params: &ParamSet, dst: &mut [u8], src: &[u8]) {
        self.inner.hom_sub(params, dst, src);
    }

    fn hom_int_mult(&self, params: &ParamSet, dst: &mut [u8], v: i32) {
        self.inner.hom_int_mult(params, dst, v);
    }
}
