//! Objects whose parts are still coming.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{ArcMutexGuard, Mutex, RawMutex};
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::seeded::KeyForm;

use crate::backend::{Backend, KeySink};
use crate::error::EngineError;
use crate::imprint::Imprint;
use crate::part::Part;
use crate::register::{Attributes, key_form, key_kind};

/// Where the parts of an object come from. Parts that are read do not go on with those that are written, and do not start them
/// anew: an object can be read in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// A host writes them.
    Write,
    /// The drive has stored them before.
    Read,
}

/// An object whose parts are still coming.
pub(crate) struct Partial {
    params: &'static ParamSet,
    total_size: u64,
    received: u64,
    attributes: Attributes,
    pub(crate) imprint: Imprint,
    /// When the latest part came.
    touched: Instant,
    body: Body,
}

pub(crate) type SharedPartial = Arc<Mutex<Partial>>;
pub(crate) type LockedPartial = ArcMutexGuard<RawMutex, Partial>;

/// What has arrived of an object.
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
            imprint: Imprint::of(part),
            touched: Instant::now(),
            body: Body::Empty,
        }))
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.received == self.total_size
    }

    /// Time since the latest part came.
    pub(crate) fn idle(&self) -> Duration {
        self.touched.elapsed()
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
        self.imprint.append(part);
        self.touched = Instant::now();
        Ok(())
    }
}
