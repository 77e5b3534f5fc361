//! Generation of the keys of a bootstrap by circuit bootstrapping.

use toroid_ring::simd::SimdLevel;

use crate::TfheError;
use crate::arithmetic::Arithmetic;
use crate::keys::{ClientKey, Progress, in_turn};
use crate::modulus::Modulus;
use crate::params::ParamSet;
use crate::random::Csprng;
use crate::seeded::KeyForm;

use super::{WopbsKey, WopbsKeySwitchingKey};

impl ClientKey {
    /// Generates the key of an exact bootstrap into the form that `A` computes with, as
    /// [`ClientKey::loaded_bootstrapping_key`] does for the others.
    ///
    /// # Errors
    /// [`TfheError::NotWopbs`] for another set, and those of [`ClientKey::loaded_bootstrapping_key`].
    pub fn loaded_wopbs_key<M: Modulus, A: Arithmetic<M>>(
        &self,
        simd: SimdLevel,
        rng: &mut Csprng,
        progress: &mut Progress<'_>,
    ) -> Result<WopbsKey<M, A>, TfheError> {
        let mut parts = Vec::new();
        let bytes = |params: &ParamSet| KeyForm::Seeded.bootstrapping_key_bytes(params);
        in_turn(
            self.bootstrapping_stages(),
            bytes,
            progress,
            |part, progress| {
                parts.push(part.loaded_bootstrapping_key(simd, rng, progress)?);
                Ok(())
            },
        )?;
        WopbsKey::new(self.params(), parts)
    }

    /// Generates the key-switching key of an exact bootstrap into memory.
    ///
    /// # Errors
    /// [`TfheError::NotWopbs`] for another set, and those of [`ClientKey::loaded_key_switching_key`].
    pub fn loaded_wopbs_key_switching_key<M: Modulus>(
        &self,
        simd: SimdLevel,
        rng: &mut Csprng,
        progress: &mut Progress<'_>,
    ) -> Result<WopbsKeySwitchingKey<M>, TfheError> {
        let mut parts = Vec::new();
        let stages = self.key_switching_stages();
        in_turn(
            stages,
            ParamSet::key_switching_key_bytes,
            progress,
            |part, progress| {
                parts.push(part.loaded_key_switching_key(simd, rng, progress)?);
                Ok(())
            },
        )?;
        WopbsKeySwitchingKey::new(self.params(), parts)
    }
}
