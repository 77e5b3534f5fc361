//! The arithmetic behind the processor.
//!
//! Objects cross this border in the byte forms of `docs/reference/formats.md`: little-endian words, keys as Table 3 orders them, or seeded.

pub mod cpu;
pub mod testing;

use std::any::Any;
use std::sync::Arc;

use toroid_isa::KeyKind;
use toroid_tfhe::arithmetic::ArithmeticKind;
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

/// Arithmetic on LWE samples. Every method may be called from several threads at a time.
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

    /// Bootstraps `sample` with each of `test_vectors` (at least one): blind rotation, sample extraction, key switch. Gives one
    /// sample for each, in their order. Each is what a call with its test vector alone could give, so a back end may share
    /// among them whatever depends on the sample only. A back end looks at the cancellation token every few milliseconds. Where
    /// it does the work of several requesters together, the others' work goes on.
    ///
    /// # Errors
    /// [`BackendError::Cancelled`] or a failure.
    fn bootstrap(
        &self,
        params: &ParamSet,
        bootstrapping: &dyn LoadedKey,
        key_switching: &dyn LoadedKey,
        test_vectors: &[&[u8]],
        sample: &[u8],
        requester: Requester<'_>,
    ) -> Result<Vec<Vec<u8>>, BackendError>;

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

/// The work that a back end did, and what waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendStatistics {
    /// Calls of [`Backend::bootstrap`] that wait for cores.
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

    /// The key as the type of the back end that made it.
    fn as_any(&self) -> &dyn Any;
}
