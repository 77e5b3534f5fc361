//! Programmable bootstrapping: modulus switch, blind rotation by CMux, sample extraction, key switch.

pub(crate) mod blind_rotation;
mod loader;
mod modulus_switch;
mod team;

use toroid_task::CancelToken;

use crate::TfheError;
use crate::arithmetic::Arithmetic;
use crate::ggsw::GgswList;
use crate::glwe;
use crate::key_switch::{KeySwitchingKey, Switch};
use crate::lwe::check_words;
use crate::modulus::{Modulus, Words};
use crate::params::StageParams;
use crate::variance::Assumptions;

use blind_rotation::{BlindRotation, accumulators, split};

pub use crate::parallel::Run;
pub use loader::{BootstrappingKeyLoader, RowLoader, RowReceiver};
pub use modulus_switch::modulus_switch;

/// A bootstrapping key, loaded for one [`Arithmetic`]: n GGSW samples, one for each key bit; or unrolled, three for every two
/// bits s and t, of s·(1-t), (1-s)·t and s·t. A step of a blind rotation by an unrolled key turns by two exponents: it takes as many transforms
/// as one by a single bit, three times its products and 1.5 times its bytes a bit. (Key unrolling: Zhou, Yang, Chen, Chen, Wang, Zhang, Faster bootstrapping with
/// multiple addends, 2018; Bourse, Minelli, Minihold, Paillier, Fast homomorphic evaluation of deep discretized neural networks, 2018.)
pub struct BootstrappingKey<M: Modulus, A: Arithmetic<M>> {
    pub(crate) samples: GgswList<M, A>,
}

/// One blind rotation to do: see [`BootstrappingKey::blind_rotate`].
pub struct Rotation<'a, M: Modulus> {
    /// (k+1)·N words.
    pub test_vector: &'a [M::Word],
    /// The LWE sample whose phase rotates, n+1 words.
    pub sample: &'a [M::Word],
    /// Receives the extracted sample, k·N + 1 words.
    pub out: &'a mut [M::Word],
}

impl<M: Modulus, A: Arithmetic<M>> BootstrappingKey<M, A> {
    /// The parameter set.
    #[must_use]
    pub fn params(&self) -> &StageParams {
        self.samples.params()
    }

    /// Bytes of memory that the key holds.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.samples.memory()
    }

    /// Whether three GGSW samples stand for two key bits.
    #[must_use]
    pub fn is_unrolled(&self) -> bool {
        self.samples.is_unrolled()
    }

    /// What noise formulas take for granted of bootstraps by this key.
    #[must_use]
    pub fn assumptions(&self) -> Assumptions {
        Assumptions {
            unrolled: self.is_unrolled(),
            ..A::KIND.into()
        }
    }

    /// Rotates `test_vector` ((k+1)·N words) by the phase of `sample` (n+1 words) and extracts the constant coefficient
    /// into `out` (k·N + 1 words), on the calling thread alone. `cancel` is looked at in every step.
    ///
    /// # Errors
    /// [`TfheError::Cancelled`]; [`TfheError::Length`] for a slice of another length.
    pub fn blind_rotate(
        &self,
        test_vector: &[M::Word],
        sample: &[M::Word],
        out: &mut [M::Word],
        cancel: &CancelToken,
    ) -> Result<(), TfheError> {
        let rotation = Rotation {
            test_vector,
            sample,
            out,
        };
        self.blind_rotate_all(&mut [rotation], Run { threads: 1, cancel })
    }

    /// Any number of blind rotations on up to `run.threads` threads: whole rotations side by side, each thread streaming the
    /// key once for all of its own; and with more threads than rotations, the rows of one external product side by
    /// side. The results do not depend on the number of threads where the arithmetic is exact; otherwise they agree up to the rounding
    /// of sums.
    ///
    /// # Errors
    /// [`TfheError::Cancelled`]; [`TfheError::Length`] for a slice of another length.
    pub fn blind_rotate_all(
        &self,
        rotations: &mut [Rotation<'_, M>],
        run: Run<'_>,
    ) -> Result<(), TfheError> {
        let params = self.params();
        for rotation in &*rotations {
            check_words::<M>(
                params,
                "a test vector",
                rotation.test_vector,
                params.glwe_words(),
            )?;
            check_words::<M>(params, "an LWE sample", rotation.sample, params.lwe_words())?;
            check_words::<M>(
                params,
                "an extracted sample",
                rotation.out,
                params.extracted_dimension() + 1,
            )?;
        }
        let mut memory = accumulators::<M, A>(params, rotations.len())?;
        let mut turned: Vec<_> = rotations
            .iter()
            .zip(split::<M, A>(params, &mut memory))
            .map(|(rotation, acc)| {
                BlindRotation::new(params, rotation.test_vector, rotation.sample, 0, acc)
            })
            .collect();
        self.samples.rotate_all(&mut turned, run)?;
        for (rotation, turned) in rotations.iter_mut().zip(&turned) {
            glwe::sample_extract::<A::Words, _>(params, turned.acc, 0, rotation.out, A::leave);
        }
        Ok(())
    }
}

/// Programmable bootstrap: `sample` (n+1 words) becomes a fresh sample of the test vector's function of its message, on up to
/// `run.threads` threads.
///
/// # Errors
/// [`TfheError::ParamsMismatch`] for keys of different sets, [`TfheError::Length`] for a sample or test vector of another
/// length, [`TfheError::Cancelled`]; `sample` is unchanged then.
pub fn bootstrap<M: Modulus, A: Arithmetic<M>>(
    bootstrapping: &BootstrappingKey<M, A>,
    key_switching: &KeySwitchingKey<M>,
    test_vector: &[M::Word],
    sample: &mut [M::Word],
    run: Run<'_>,
) -> Result<(), TfheError> {
    let job = (test_vector, sample);
    bootstrap_all(bootstrapping, key_switching, &mut [job], run)
}

/// A bootstrap to do: a test vector ((k+1)·N words) and the sample (n+1 words) that its result replaces.
pub type Job<'a, M> = (&'a [<M as Words>::Word], &'a mut [<M as Words>::Word]);

/// Any number of [`bootstrap`]s, which stream both keys together
/// ([`BootstrappingKey::blind_rotate_all`], [`KeySwitchingKey::switch_all`]).
///
/// # Errors
/// As [`bootstrap`]; all samples are unchanged then.
pub fn bootstrap_all<M: Modulus, A: Arithmetic<M>>(
    bootstrapping: &BootstrappingKey<M, A>,
    key_switching: &KeySwitchingKey<M>,
    jobs: &mut [Job<'_, M>],
    run: Run<'_>,
) -> Result<(), TfheError> {
    let params = bootstrapping.params();
    if key_switching.params() != params {
        return Err(TfheError::ParamsMismatch {
            what: "the key-switching key",
            expected: params.name.to_owned(),
            found: key_switching.params().name.to_owned(),
        });
    }
    let length = params.extracted_dimension() + 1;
    let mut extracted = vec![M::Word::default(); jobs.len() * length];
    let mut rotations: Vec<_> = jobs
        .iter()
        .zip(extracted.chunks_exact_mut(length))
        .map(|((test_vector, sample), out)| Rotation {
            test_vector,
            sample,
            out,
        })
        .collect();
    bootstrapping.blind_rotate_all(&mut rotations, run)?;
    let mut switches: Vec<_> = jobs
        .iter_mut()
        .zip(extracted.chunks_exact(length))
        .map(|((_, out), extracted)| Switch { extracted, out })
        .collect();
    key_switching.switch_all(&mut switches, run)
}
