//! Keys of one part or several, from bytes that come in order.

use super::KeyLoader;
use crate::TfheError;
use crate::params::{ParamSet, StageParams};
use crate::seeded::KeyForm;

/// Takes the bytes of a key's parts in order, and gives the parts.
pub struct PartsLoader<L> {
    params: ParamSet,
    what: &'static str,
    /// With the position in the key at which each of them ends.
    parts: Vec<(L, u64)>,
    /// Bytes taken.
    taken: u64,
}

impl<L: KeyLoader> PartsLoader<L> {
    /// For the bootstrapping key of a set, in one form; `make` gives a loader for each of its parts.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn bootstrapping(
        params: &ParamSet,
        form: KeyForm,
        make: impl Fn(&StageParams) -> Result<L, L::Error>,
    ) -> Result<Self, L::Error> {
        let parts = params.bootstrapping_parts();
        let bytes = |part: &StageParams| form.ggsw_list_bytes(part);
        Self::new(params, "the bootstrapping key", parts, bytes, make)
    }

    /// For the unrolled bootstrapping key of a set, in one form; `make` gives its loader.
    ///
    /// # Errors
    /// [`TfheError::NotUnrolled`] for a set of wide functions, and those of `make`.
    pub fn unrolled(
        params: &ParamSet,
        form: KeyForm,
        make: impl Fn(&StageParams) -> Result<L, L::Error>,
    ) -> Result<Self, L::Error>
    where
        L::Error: From<TfheError>,
    {
        if params.is_wide() {
            return Err(TfheError::NotUnrolled(params.name).into());
        }
        let bytes = |part: &StageParams| form.ggsw_list_bytes(&part.unrolled());
        let what = "the unrolled bootstrapping key";
        Self::new(params, what, vec![&params.stage], bytes, make)
    }

    /// For the key-switching key of a set, in one form; `make` gives a loader for each of its parts.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn key_switching(
        params: &ParamSet,
        form: KeyForm,
        make: impl Fn(&StageParams) -> Result<L, L::Error>,
    ) -> Result<Self, L::Error> {
        let parts = params.key_switching_parts();
        let bytes = |part: &StageParams| form.key_switching_bytes(part);
        Self::new(params, "the key-switching key", parts, bytes, make)
    }

    fn new(
        params: &ParamSet,
        what: &'static str,
        stages: Vec<&StageParams>,
        bytes: impl Fn(&StageParams) -> u64,
        make: impl Fn(&StageParams) -> Result<L, L::Error>,
    ) -> Result<Self, L::Error> {
        let mut end = 0;
        let mut parts = Vec::new();
        for stage in stages {
            end += bytes(stage);
            parts.push((make(stage)?, end));
        }
        Ok(PartsLoader {
            params: *params,
            what,
            parts,
            taken: 0,
        })
    }

    fn total(&self) -> u64 {
        self.parts.last().map_or(0, |(_, end)| *end)
    }

    fn wrong_length(&self, found: u64) -> TfheError {
        TfheError::Length {
            what: self.what,
            params: self.params.name,
            expected: self.total(),
            found,
        }
    }
}

impl<L: KeyLoader> KeyLoader for PartsLoader<L> {
    type Key = (ParamSet, Vec<L::Key>);
    type Error = L::Error;

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), L::Error> {
        let found = self.taken + bytes.len() as u64;
        if found > self.total() {
            return Err(self.wrong_length(found).into());
        }
        for (loader, end) in &mut self.parts {
            let room = usize::try_from(end.saturating_sub(self.taken)).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(bytes.len().min(room));
            loader.write(now)?;
            self.taken += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }

    fn finish(self) -> Result<Self::Key, L::Error> {
        if self.taken < self.total() {
            return Err(self.wrong_length(self.taken).into());
        }
        let mut keys = Vec::with_capacity(self.parts.len());
        for (loader, _) in self.parts {
            keys.push(loader.finish()?);
        }
        Ok((self.params, keys))
    }
}

/// The parts of a key, if they are those of these stages.
pub(crate) fn expect_parts<K, const COUNT: usize>(
    what: &'static str,
    expected: [&StageParams; COUNT],
    parts: Vec<K>,
    stage: impl Fn(&K) -> &StageParams,
) -> Result<[K; COUNT], TfheError> {
    let names = |stages: &mut dyn Iterator<Item = &StageParams>| {
        let names: Vec<_> = stages.map(|stage| stage.name).collect();
        names.join(", ")
    };
    let mismatch = |parts: &[K]| TfheError::ParamsMismatch {
        what,
        expected: names(&mut expected.into_iter()),
        found: names(&mut parts.iter().map(&stage)),
    };
    if !parts.iter().map(&stage).eq(expected) {
        return Err(mismatch(&parts));
    }
    parts.try_into().map_err(|parts: Vec<K>| mismatch(&parts))
}
