//! Generation of the keys of wide functions.

use toroid_ring::simd::SimdLevel;
use toroid_task::Progress;

use crate::TfheError;
use crate::arithmetic::Arithmetic;
use crate::keys::{ClientKey, loaded_ggsw_lists, loaded_key_switching_samples};
use crate::modulus::Modulus;
use crate::random::Csprng;

use super::{WopbsKey, WopbsKeySwitchingKey, stages};

impl ClientKey {
    /// Generates the bootstrapping key of a set for wide functions into the form that `A` computes with, as
    /// [`ClientKey::loaded_bootstrapping_key`] does for the others.
    ///
    /// # Errors
    /// [`TfheError::NotWopbs`] for another set, and those of [`ClientKey::loaded_bootstrapping_key`].
    pub fn loaded_wopbs_key<M: Modulus, A: Arithmetic<M>>(
        &self,
        simd: SimdLevel,
        rng: &mut Csprng,
        progress: &Progress,
    ) -> Result<WopbsKey<M, A>, TfheError> {
        stages(self.params())?;
        let parts = loaded_ggsw_lists(&self.bootstrapping_stages(), simd, rng, progress)?;
        WopbsKey::new(self.params(), parts)
    }

    /// Generates the key-switching key of a set for wide functions into memory.
    ///
    /// # Errors
    /// [`TfheError::NotWopbs`] for another set, and those of [`ClientKey::loaded_key_switching_key`].
    pub fn loaded_wopbs_key_switching_key<M: Modulus>(
        &self,
        simd: SimdLevel,
        rng: &mut Csprng,
        progress: &Progress,
    ) -> Result<WopbsKeySwitchingKey<M>, TfheError> {
        stages(self.params())?;
        let parts =
            loaded_key_switching_samples(&self.key_switching_stages(), simd, rng, progress)?;
        WopbsKeySwitchingKey::new(self.params(), parts)
    }
}
