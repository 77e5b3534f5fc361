//! Keys of several parts, from bytes that come in order.

use crate::TfheError;
use crate::key_loader::KeyLoader;
use crate::params::{ParamSet, StageParams};
use crate::seeded::KeyForm;

use super::stages;

/// Takes the parts of a key, in order.
pub struct PartsLoader<L> {
    params: ParamSet,
    what: &'static str,
    /// With the bytes of each.
    parts: Vec<(L, u64)>,
    current: usize,
    /// Bytes that the current part has taken.
    taken: u64,
}

impl<L: KeyLoader> PartsLoader<L> {
    /// For the bootstrapping key of an exact bootstrap, in one form; `make` gives a loader for each of its parts.
    ///
    /// # Errors
    /// [`TfheError::NotWopbs`], and those of `make`.
    pub fn bootstrapping(
        params: &ParamSet,
        form: KeyForm,
        make: impl Fn(&StageParams) -> Result<L, TfheError>,
    ) -> Result<Self, TfheError> {
        let parts = stages(params)?.bootstrapping_parts();
        let bytes = |part: &StageParams| form.ggsw_list_bytes(part);
        Self::new(params, "the bootstrapping key", &parts, bytes, make)
    }

    /// For the key-switching key of an exact bootstrap, in one form; `make` gives a loader for each of its parts.
    ///
    /// # Errors
    /// [`TfheError::NotWopbs`], and those of `make`.
    pub fn key_switching(
        params: &ParamSet,
        form: KeyForm,
        make: impl Fn(&StageParams) -> Result<L, TfheError>,
    ) -> Result<Self, TfheError> {
        let parts = stages(params)?.key_switching_parts();
        let bytes = |part: &StageParams| form.key_switching_bytes(part);
        Self::new(params, "the key-switching key", &parts, bytes, make)
    }

    fn new(
        params: &ParamSet,
        what: &'static str,
        parts: &[&StageParams],
        bytes: impl Fn(&StageParams) -> u64,
        make: impl Fn(&StageParams) -> Result<L, TfheError>,
    ) -> Result<Self, TfheError> {
        let parts = parts
            .iter()
            .map(|part| Ok((make(part)?, bytes(part))))
            .collect::<Result<_, TfheError>>()?;
        Ok(PartsLoader {
            params: *params,
            what,
            parts,
            current: 0,
            taken: 0,
        })
    }

    fn wrong_length(&self, beyond: u64) -> TfheError {
        let bytes = |parts: &[(L, u64)]| parts.iter().map(|(_, bytes)| bytes).sum::<u64>();
        TfheError::Length {
            what: self.what,
            params: self.params.name,
            expected: bytes(&self.parts),
            found: bytes(&self.parts[..self.current]) + self.taken + beyond,
        }
    }
}

impl<L: KeyLoader> KeyLoader for PartsLoader<L> {
    type Key = (ParamSet, Vec<L::Key>);

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), TfheError> {
        while !bytes.is_empty() {
            let Some((loader, total)) = self.parts.get_mut(self.current) else {
                return Err(self.wrong_length(bytes.len() as u64));
            };
            let room = usize::try_from(*total - self.taken).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(bytes.len().min(room));
            loader.write(now)?;
            self.taken += now.len() as u64;
            if self.taken == *total {
                self.current += 1;
                self.taken = 0;
            }
            bytes = later;
        }
        Ok(())
    }

    fn finish(self) -> Result<Self::Key, TfheError> {
        if self.current < self.parts.len() {
            return Err(self.wrong_length(0));
        }
        let parts = self.parts.into_iter().map(|(loader, _)| loader.finish());
        Ok((self.params, parts.collect::<Result<_, _>>()?))
    }
}
