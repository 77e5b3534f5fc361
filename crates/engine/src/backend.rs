//! The arithmetic behind the processor.
//!
//! Objects cross this border in the byte forms of `docs/reference/formats.md`: little-endian words, keys as Table 3 orders them, or seeded.

pub mod cpu;
pub mod recorded;
pub mod schedule;
pub mod testing;

use std::any::Any;
use std::sync::Arc;

use toroid_isa::KeyKind;
use toroid_rns::batch::Step;
use toroid_rns::ring_set::RingSet;
use toroid_rns::stored::{Layout, Statement, StoredColumn};
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::column::Chunk;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::seeded::KeyForm;

use crate::requester::Requester;

/// Why a back end did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// The cancellation token was set.
    #[error("cancelled")]
    Cancelled,
    /// The bytes of a key are not what they should be.
    #[error("malformed key: {reason}")]
    MalformedKey {
        /// What is wrong, with the place.
        reason: String,
    },
    /// The back end cannot do this for the parameter set.
    #[error("the back end does not support this: {reason}")]
    Unsupported {
        /// What it lacks.
        reason: String,
    },
    /// The back end failed.
    #[error("the back end failed: {reason}")]
    Failed {
        /// How.
        reason: String,
    },
}

/// Bootstraps of one sample.
#[derive(Clone, Copy, Debug)]
pub struct BootstrapTask<'a> {
    /// The functions to apply, at least one, [`ParamSet::test_vector_bytes`] each.
    pub test_vectors: &'a [&'a [u8]],
    /// The sample, [`StageParams::lwe_bytes`](toroid_tfhe::params::StageParams::lwe_bytes) bytes.
    pub sample: &'a [u8],
    /// Bits of the message that the functions read. For wide functions 1 to the set's `message_bits`: the time, and how far the
    /// phase may be off, are those of so many bits. Programmable bootstraps do not depend on it, and sets made for gates may state 0.
    pub input_bits: u32,
}

/// Rows that a program on ring columns reads: of one ciphertext.
#[derive(Clone, Copy, Debug)]
pub enum RingOperand<'a> {
    /// A ring column.
    Column(&'a StoredColumn),
    /// Chunks of samples, each of as many rows as a chunk has, but for the last.
    Samples(&'a [Chunk]),
}

impl RingOperand<'_> {
    /// How many there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        match self {
            RingOperand::Column(column) => column.rows(),
            RingOperand::Samples(chunks) => chunks.iter().map(Chunk::rows).sum(),
        }
    }
}

/// What becomes of the result of a program on ring columns.
#[derive(Clone, Copy, Debug)]
pub enum RingTarget {
    /// A ring column: how it is to be stored, the bits of a word, and what is known of it.
    Column((Layout, u32), Statement),
    /// Chunks of samples, which have the bit of padding that the steps leave above their messages.
    Samples,
}

/// A program on ring columns, as a back end gets it: as a whole, so that values between its steps need no form in bytes.
#[derive(Clone, Copy, Debug)]
pub struct RingProgram<'a> {
    /// What to do.
    pub steps: &'a [Step],
    /// The number of the value that is wanted.
    pub output: usize,
    /// Its rows.
    pub rows: usize,
    /// Its form.
    pub target: RingTarget,
}

/// The result of a program on ring columns, in the form of its [`RingTarget`].
#[derive(Clone, Debug)]
pub enum RingMade {
    /// A ring column.
    Column(StoredColumn),
    /// Chunks of samples.
    Samples(Vec<Chunk>),
}

/// The keys of a program on ring columns.
#[derive(Clone, Copy)]
pub struct RingKeys<'a> {
    /// Of [`KeyKind::Ring`].
    pub ring: &'a dyn LoadedKey,
    /// Of [`KeyKind::Conversion`], for rows or a result in samples.
    pub conversion: Option<&'a dyn LoadedKey>,
}

/// Arithmetic on LWE samples, and on ring columns where a back end has that. Every method may be called from several threads at a time.
///
/// The engine promises that samples have [`StageParams::lwe_bytes`](toroid_tfhe::params::StageParams::lwe_bytes) bytes, test vectors [`ParamSet::test_vector_bytes`], that
/// all their words are canonical (below the modulus), and that keys come from this back end and belong to `params`.
/// A back end gives canonical words back.
pub trait Backend: Send + Sync {
    /// A short name, for example `cpu`.
    fn name(&self) -> &'static str;

    /// The arithmetic of its bootstraps, for the noise formulas.
    fn arithmetic(&self) -> ArithmeticKind;

    /// Starts a key, whose bytes then come in order, in pieces of any length: those of Table 3, or seed and bodies
    /// ([`toroid_tfhe::seeded`]).
    ///
    /// Take memory as the bytes come: at this moment the key that is replaced is still there.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] or [`BackendError::Failed`].
    fn begin_key(
        &self,
        params: &ParamSet,
        kind: KeyKind,
        form: KeyForm,
    ) -> Result<Box<dyn KeySink>, BackendError>;

    /// Bootstraps the sample of each task with each of its test vectors: blind rotation, sample extraction, key switch.
    /// `results` receives a sample for each, task after task and function after function, `lwe_bytes` each.
    ///
    /// Each result is what a call with its sample and test vector alone could give. So a back end may share among the
    /// functions of a task whatever depends on the sample only, and may do tasks in any order and side by side. Tasks of one
    /// call serve one requester: a back end gives its turn to others between them. It looks at the cancellation token every
    /// few milliseconds. Where it does the work of several requesters together, the others' work goes on.
    ///
    /// # Errors
    /// [`BackendError::Cancelled`] or a failure, of which any task may be the cause; `results` then holds nothing of use.
    /// [`BackendError::Failed`] for `results` of another length and for a task without a test vector
    /// ([`results_of_tasks`]).
    fn bootstrap_batch(
        &self,
        params: &ParamSet,
        bootstrapping: &dyn LoadedKey,
        key_switching: &dyn LoadedKey,
        tasks: &[BootstrapTask<'_>],
        results: &mut [u8],
        requester: Requester<'_>,
    ) -> Result<(), BackendError>;

    /// [`Backend::bootstrap_batch`] of one task: the results, `lwe_bytes` each.
    ///
    /// # Errors
    /// As [`Backend::bootstrap_batch`].
    fn bootstrap(
        &self,
        params: &ParamSet,
        bootstrapping: &dyn LoadedKey,
        key_switching: &dyn LoadedKey,
        task: BootstrapTask<'_>,
        requester: Requester<'_>,
    ) -> Result<Vec<u8>, BackendError> {
        let mut results = vec![0; task.test_vectors.len() * params.lwe_bytes()];
        let tasks = [task];
        self.bootstrap_batch(
            params,
            bootstrapping,
            key_switching,
            &tasks,
            &mut results,
            requester,
        )?;
        Ok(results)
    }

    /// How many tasks at once the back end likes for this set: fewer leave it idle, more gain nothing.
    fn batch_hint(&self, params: &ParamSet) -> usize;

    /// Whether [`Backend::pack`] packs samples of this set.
    fn packs(&self, _params: &ParamSet) -> bool {
        false
    }

    /// Packs samples, each with its row, into a packed chunk of `rows` rows ([`toroid_tfhe::column`]).
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] where the back end or the set packs nothing, [`BackendError::Cancelled`] or a failure.
    fn pack(
        &self,
        _params: &ParamSet,
        _bootstrapping: &dyn LoadedKey,
        _samples: &[(usize, &[u8])],
        _rows: usize,
        _requester: Requester<'_>,
    ) -> Result<Vec<u8>, BackendError> {
        Err(BackendError::Unsupported {
            reason: format!("{} does not pack samples", self.name()),
        })
    }

    /// Runs a program on ring columns. It gives its turn to other requesters between operations, and looks at the
    /// cancellation token there.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] where the back end has no ring columns, [`BackendError::Cancelled`] or a failure.
    fn run_ring(
        &self,
        _keys: RingKeys<'_>,
        _operands: &[RingOperand<'_>],
        _program: &RingProgram<'_>,
        _requester: Requester<'_>,
    ) -> Result<RingMade, BackendError> {
        Err(BackendError::Unsupported {
            reason: format!("{} does not compute on ring columns", self.name()),
        })
    }

    /// What the back end did, and what waits.
    fn statistics(&self) -> BackendStatistics {
        BackendStatistics::default()
    }

    /// `dst <- dst + src`, word by word.
    fn hom_add(&self, params: &ParamSet, dst: &mut [u8], src: &[u8]);

    /// `dst <- dst - src`, word by word.
    fn hom_sub(&self, params: &ParamSet, dst: &mut [u8], src: &[u8]);

    /// `dst <- dst · v`, word by word.
    fn hom_int_mult(&self, params: &ParamSet, dst: &mut [u8], v: i32);
}

/// Checks what [`Backend::bootstrap_batch`] is called with.
///
/// # Errors
/// [`BackendError::Failed`] where `results` has another length than the tasks' results together, or a task has no test vector.
pub fn check_results(
    params: &ParamSet,
    tasks: &[BootstrapTask<'_>],
    results: &[u8],
) -> Result<(), BackendError> {
    let sample_bytes = params.lwe_bytes();
    if let Some(task) = tasks.iter().position(|task| task.test_vectors.is_empty()) {
        let reason = format!("task {task} has no test vector");
        return Err(BackendError::Failed { reason });
    }
    let samples: usize = tasks.iter().map(|task| task.test_vectors.len()).sum();
    if results.len() != samples * sample_bytes {
        let reason = format!(
            "the results of these tasks are {samples} samples of {sample_bytes} bytes, there is room for {} bytes",
            results.len()
        );
        return Err(BackendError::Failed { reason });
    }
    Ok(())
}

/// The tasks of [`Backend::bootstrap_batch`], each with its part of `results`.
///
/// # Errors
/// As [`check_results`].
pub fn results_of_tasks<'t, 'a, 'r>(
    params: &ParamSet,
    tasks: &'t [BootstrapTask<'a>],
    results: &'r mut [u8],
) -> Result<impl Iterator<Item = (&'t BootstrapTask<'a>, &'r mut [u8])>, BackendError> {
    check_results(params, tasks, results)?;
    let sample_bytes = params.lwe_bytes();
    let mut rest = results;
    Ok(tasks.iter().map(move |task| {
        let (own, others) =
            std::mem::take(&mut rest).split_at_mut(task.test_vectors.len() * sample_bytes);
        rest = others;
        (task, own)
    }))
}

/// The work that a back end did, and what waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendStatistics {
    /// Work of [`Backend::bootstrap_batch`] that waits for cores: a call, or a part of one.
    pub waiting: u64,
    /// Passes over keys, each for one call or several together.
    pub batches: u64,
    /// Bootstraps done in a pass with those of another call.
    pub batched: u64,
}

/// Takes the bytes of a key as they come, so that the key never exists twice.
pub trait KeySink: Send {
    /// Takes the next bytes. A piece may end in the middle of a word.
    ///
    /// # Errors
    /// [`BackendError::MalformedKey`] for a word that is not canonical; the sink is dropped after an error.
    fn write(&mut self, bytes: &[u8]) -> Result<(), BackendError>;

    /// Ends the key after exactly as many bytes as its form has.
    ///
    /// # Errors
    /// [`BackendError::MalformedKey`] or [`BackendError::Failed`].
    fn finish(self: Box<Self>) -> Result<Arc<dyn LoadedKey>, BackendError>;
}

/// A key in the form in which its back end uses it.
pub trait LoadedKey: Any + Send + Sync {
    /// The parameter set of the key.
    fn params(&self) -> &ParamSet;

    /// Which key it is.
    fn kind(&self) -> KeyKind;

    /// Memory that it holds, in bytes.
    fn bytes(&self) -> u64;

    /// The ring of a key of [`KeyKind::Ring`] or [`KeyKind::Conversion`].
    fn ring_set(&self) -> Option<&'static RingSet> {
        None
    }

    /// The key as the type of the back end that made it.
    fn as_any(&self) -> &dyn Any;
}

/// A key as the back end knows it that loaded it.
///
/// # Errors
/// [`BackendError::Failed`] for a key of another back end.
pub fn loaded<K: 'static>(key: &dyn LoadedKey) -> Result<&K, BackendError> {
    key.as_any()
        .downcast_ref::<K>()
        .ok_or_else(|| BackendError::Failed {
            reason: "the key was loaded by another back end".to_owned(),
        })
}
