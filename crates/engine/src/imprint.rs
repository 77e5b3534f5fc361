//! What a register was stored from, so that the same object need not be stored again.

use std::sync::Arc;

use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::fingerprint;

use crate::part::Part;
use crate::register::Attributes;

/// Bytes of an object with one fingerprint: the least that a command brings, a logical block.
const UNIT: usize = 512;

/// Stands for an object, or the parts of it that have come.
#[derive(Clone, Debug)]
pub(crate) struct Imprint {
    params: &'static ParamSet,
    total_size: u64,
    attributes: Attributes,
    /// A fingerprint per unit. Parts that do not begin with a unit, and what follows them, have none.
    units: Arc<Vec<u64>>,
}

impl Imprint {
    /// Of the object that a part belongs to; no part has come yet.
    pub(crate) fn of(part: &Part<'_>) -> Imprint {
        Imprint {
            params: part.params,
            total_size: part.total_size,
            attributes: part.attributes,
            units: Arc::default(),
        }
    }

    /// The next part has come.
    pub(crate) fn append(&mut self, part: &Part<'_>) {
        if part.offset == (self.units.len() * UNIT) as u64 {
            let units = part.bytes.chunks(UNIT).map(fingerprint);
            Arc::make_mut(&mut self.units).extend(units);
        }
    }

    /// Whether this part of the same object has come before.
    pub(crate) fn has(&self, part: &Part<'_>) -> bool {
        let first = part.offset / UNIT as u64;
        let units = part.bytes.chunks(UNIT);
        let stored = usize::try_from(first).ok();
        let stored = stored.and_then(|first| self.units.get(first..first + units.len()));
        part.params.id == self.params.id
            && part.total_size == self.total_size
            && part.attributes == self.attributes
            && part.offset.is_multiple_of(UNIT as u64)
            && stored.is_some_and(|stored| units.map(fingerprint).eq(stored.iter().copied()))
    }
}
