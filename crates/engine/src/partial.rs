//! Objects whose parts are still coming.

use std::sync::Arc;

use parking_lot::{ArcMutexGuard, Mutex, RawMutex};
use toroid_isa::VrNumber;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::seeded::KeyForm;

use crate::backend::{Backend, KeySink};
use crate::error::EngineError;
use crate::register::{Attributes, key_form, key_kind};
use crate::swap::PagingContext;

/// A part of an object, as one command brings it.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The command.
    pub context: PagingContext,
    /// The register to store the object in.
    pub vr: VrNumber,
    /// The object's parameter set.
    pub params: &'static ParamSet,
    /// Size of the whole object in bytes.
    pub total_size: u64,
    /// Offset of the part's first byte in the object.
    pub offset: u64,
    /// The bytes of the part; at least one.
    pub bytes: &'a [u8],
    /// What is known of the object; the same in every part.
    pub attributes: Attributes,
}

/// An object whose parts are still coming.
pub(crate) struct Partial {
    params: &'static ParamSet,
    total_size: u64,
    received: u64,
    attributes: Attributes,
    body: Body,
}

pub(crate) type SharedPartial = Arc<Mutex<Partial>>;
pub(crate) type LockedPartial = ArcMutexGuard<RawMutex, Partial>;

/// What has come of an object.
pub(crate) enum Body {
    /// Nothing yet.
    Empty,
    Bytes(Vec<u8>),
    Key(Box<dyn KeySink>),
}

impl Partial {
    /// The object that begins with this part, which is not appended yet.
    pub(crate) fn of(part: &Part<'_>) -> SharedPartial {
        Arc::new(Mutex::new(Partial {
            params: part.params,
            total_size: part.total_size,
            received: 0,
            attributes: part.attributes,
            body: Body::Empty,
        }))
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.received == self.total_size
    }

    pub(crate) fn take_body(&mut self) -> Body {
        std::mem::replace(&mut self.body, Body::Empty)
    }

    pub(crate) fn append(
        &mut self,
        backend: &dyn Backend,
        part: &Part<'_>,
    ) -> Result<(), EngineError> {
        let vr = part.vr;
        for (what, same) in [
            ("size", self.total_size == part.total_size),
            ("parameter set", self.params.id == part.params.id),
            ("attributes", self.attributes == part.attributes),
        ] {
            if !same {
                return Err(EngineError::PartContradicts { vr, what });
            }
        }
        if self.received != part.offset {
            return Err(EngineError::PartOrder {
                vr,
                expected: self.received,
                found: part.offset,
            });
        }
        let failed = |source| EngineError::Backend { vr, source };
        match &mut self.body {
            Body::Bytes(bytes) => bytes.extend_from_slice(part.bytes),
            Body::Key(sink) => sink.write(part.bytes).map_err(failed)?,
            Body::Empty => match key_kind(vr) {
                None => self.body = Body::Bytes(part.bytes.to_vec()),
                Some(kind) => {
                    let form = key_form(kind, part.params, part.total_size);
                    let form = form.unwrap_or(KeyForm::Expanded);
                    let mut sink = backend.begin_key(part.params, kind, form).map_err(failed)?;
                    sink.write(part.bytes).map_err(failed)?;
                    self.body = Body::Key(sink);
                }
            },
        }
        self.received += part.bytes.len() as u64;
        Ok(())
    }
}
