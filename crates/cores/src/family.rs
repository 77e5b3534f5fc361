//! The families of cores that the explorer chooses from.

use crate::cost::Figures;

use crate::synthesis::Device as Technology;
use crate::transform::Transform;
use crate::{Core, Values};

/// Settings of a core that compute the same transform in different ways.
///
/// A new family is a `Family` in a file beside this one, and a line in [`families`].
pub trait Family: Sync {
    /// Its core.
    fn core(&self) -> &'static dyn Core;

    /// Every setting that computes a transform on a technology.
    ///
    /// # Errors
    /// Why there is none, as the end of a sentence that begins with the core's name.
    fn settings(
        &self,
        transform: &Transform,
        technology: Technology,
    ) -> Result<Vec<Values>, String>;

    /// What is known of a setting, cycles by the functions that [`Core::cycles`] has them from; `None` for values that do not
    /// go together.
    ///
    /// `transform` says which of its directions is meant where a setting has both: forward without one.
    fn figures_of(
        &self,
        values: &Values,
        technology: Technology,
        transform: Option<&Transform>,
    ) -> Option<Figures>;

    /// [`figures_of`](Family::figures_of) a forward transform.
    fn figures(&self, values: &Values, technology: Technology) -> Option<Figures> {
        self.figures_of(values, technology, None)
    }

    /// The settings that are synthesized for the resource model.
    fn samples(&self, technology: Technology) -> Vec<Values>;

    /// Settings that are synthesized only to hold the model against them, as they are larger than what it is fitted to.
    fn large_samples(&self, _technology: Technology) -> Vec<Values> {
        Vec::new()
    }
}

/// Every family.
pub fn families() -> &'static [&'static dyn Family] {
    &[
        &crate::ntt_elastic::cost::Elastic,
        &crate::ntt_inplace::cost::InPlace,
        &crate::ntt_rader::cost::Rader,
        &crate::ntt_sdf::cost::Feedback,
        &crate::ntt_streaming::cost::Streaming,
    ]
}

/// Whether the sample of this place among a family's [`samples`](Family::samples) is kept from fitting: the second and every
/// fourth after it.
pub fn is_held_out(place: usize) -> bool {
    place % 4 == 1
}
