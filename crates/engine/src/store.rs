//! Storing objects in virtual registers, part by part.

use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toroid_isa::{VrNumber, VrType, decode};
use toroid_tfhe::noise::Noise;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::seeded::KeyForm;

use crate::backend::{BackendError, KeySink};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::paging::PageIo;
use crate::processor::RunOutcome;
use crate::register::{
    Attributes, check_size, check_words, fingerprint, key_form, key_kind, register_bytes,
};
use crate::swap::PagingContext;
use crate::table::{Content, PartialEntry, Register};

/// How many objects of a key id may be incomplete at a time.
pub(crate) const MAX_PARTIAL_OBJECTS: usize = 1024;
/// How many of all key ids: bounds memory, and leaves room for a key id while others use up theirs.
pub(crate) const MAX_PARTIAL_OBJECTS_IN_ALL: usize = 16 * MAX_PARTIAL_OBJECTS;

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

/// Why a step before the effect failed.
pub type Refusal = Box<dyn Error + Send + Sync>;

/// A step that comes before the effect of a store or run, when nothing but this step can still fail: the write of the same
/// data to the SSD. It is given the outcome of the run, if there was one. When it fails, the register keeps what it held,
/// and the parts that had come of the object are dropped. It must not come back to the engine.
pub type BeforeEffect<'a> = dyn FnMut(Option<&RunOutcome>) -> Result<(), Refusal> + 'a;

/// A step when a run begins. When it fails, the run does, and nothing has changed.
pub type BeforeRun<'a> = dyn Fn() -> Result<(), Refusal> + 'a;

/// What a part led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOutcome {
    /// Whether the part was the last: the register now holds the object.
    pub complete: bool,
}

/// An object whose parts are still coming.
pub(crate) struct Partial {
    params: &'static ParamSet,
    total_size: u64,
    received: u64,
    attributes: Attributes,
    body: Body,
}

enum Body {
    /// Nothing has come yet.
    Empty,
    Bytes(Vec<u8>),
    Key(Box<dyn KeySink>),
}

/// A LWE sample that is complete and checked, but in no register yet.
pub(crate) struct StagedSample {
    pub(crate) vr: VrNumber,
    pub(crate) params: &'static ParamSet,
    pub(crate) bytes: Vec<u8>,
    pub(crate) attributes: Attributes,
}

impl StagedSample {
    pub(crate) fn noise(&self) -> Noise {
        self.attributes.noise(self.params)
    }
}

/// What the parts of an object have come to.
pub(crate) enum Accepted {
    Incomplete,
    /// In its register.
    Stored,
    /// A sample, for the caller to put into its register.
    Sample(StagedSample),
}

impl Engine {
    /// Stores one part of an object; with the last one the object appears in its register, all at once.
    ///
    /// Parts come in rising order without gaps; offset 0 starts the object anew. Until the last part the register keeps
    /// what it held, with one exception: a key is dropped when the first part of its replacement has been accepted, since
    /// both may not fit. The words of keys are checked by the back end, those of samples and test vectors here.
    ///
    /// # Errors
    /// Whatever is wrong with the part: its size, order, parameter set, attributes or words; no room; a page-out that
    /// failed. After [`EngineError::PartOrder`], [`EngineError::PartContradicts`] and errors in the content, the parts that
    /// had come are dropped.
    pub fn store_part(&self, part: &Part<'_>) -> Result<StoreOutcome, EngineError> {
        self.store_part_after(part, &mut |_| Ok(()))
    }

    /// [`Engine::store_part`] with a step before its effect.
    ///
    /// # Errors
    /// Those of [`Engine::store_part`], and [`EngineError::Refused`].
    pub fn store_part_after(
        &self,
        part: &Part<'_>,
        before: &mut BeforeEffect<'_>,
    ) -> Result<StoreOutcome, EngineError> {
        match self.accept(part, before)? {
            Accepted::Incomplete => Ok(StoreOutcome { complete: false }),
            Accepted::Stored => Ok(StoreOutcome { complete: true }),
            Accepted::Sample(sample) => {
                self.store_sample(part.context, sample, before)?;
                Ok(StoreOutcome { complete: true })
            }
        }
    }

    fn store_sample(
        &self,
        context: PagingContext,
        sample: StagedSample,
        before: &mut BeforeEffect<'_>,
    ) -> Result<(), EngineError> {
        let page = self
            .memory
            .create(&mut PageIo::new(context), &sample.bytes)?;
        let _effect = self.begin_effect();
        let checked = self.table().check_params(sample.vr, sample.params);
        let checked = checked.and_then(|()| before(None).map_err(EngineError::Refused));
        if let Err(error) = checked {
            self.memory.release(page);
            return Err(error);
        }
        let fingerprint = fingerprint(&sample.bytes);
        let mut table = self.table();
        let register = Register {
            params: sample.params,
            bytes: sample.bytes.len() as u64,
            message_bits: sample.attributes.message_bits,
            signed: sample.attributes.signed,
            computed: sample.attributes.computed,
            content: Content::Sample {
                page,
                noise: table.noise_of(sample.vr.key_id(), fingerprint, sample.noise()),
                fingerprint,
            },
            reservation: None,
        };
        table.insert(&self.memory, sample.vr, register);
        Ok(())
    }

    /// Takes a part; stores a complete object, unless it is a sample, which the caller stores after the step `before`.
    pub(crate) fn accept(
        &self,
        part: &Part<'_>,
        before: &mut BeforeEffect<'_>,
    ) -> Result<Accepted, EngineError> {
        let Part {
            vr, params, offset, ..
        } = *part;
        self.check(part)?;
        if vr.ty().is_sample() && offset == 0 && part.bytes.len() as u64 == part.total_size {
            // Whole: nothing that another command brings of the same sample can come between.
            let sample = self.whole_sample(part)?;
            self.table().start_anew(vr, params)?;
            return Ok(Accepted::Sample(sample));
        }
        let shared = if offset == 0 {
            let partial = Arc::new(Mutex::new(Partial {
                params,
                total_size: part.total_size,
                received: 0,
                attributes: part.attributes,
                body: Body::Empty,
            }));
            self.table().begin(
                vr,
                params,
                // A seeded key takes the room of the expanded one.
                register_bytes(vr, params).unwrap_or(part.total_size),
                Arc::clone(&partial),
            )?;
            partial
        } else {
            self.table().partial(vr).ok_or(EngineError::PartOrder {
                vr,
                expected: 0,
                found: offset,
            })?
        };
        let mut partial = lock(&shared);
        let mut taken = self.append(&mut partial, part);
        let complete = partial.received == partial.total_size;
        if !complete {
            taken = taken.and_then(|()| before(None).map_err(EngineError::Refused));
        }
        if let Err(error) = taken {
            let mut table = self.table();
            let entry = table.take_partial(vr, &shared);
            table.free(entry.and_then(|entry| entry.reservation));
            return Err(error);
        }
        if !complete {
            let mut table = self.table();
            if vr.ty() == VrType::Key && offset == 0 && table.is_current(vr, &shared) {
                table.remove_content(&self.memory, vr);
            }
            return Ok(Accepted::Incomplete);
        }
        let entry = self
            .table()
            .take_partial(vr, &shared)
            .ok_or(EngineError::Superseded { vr })?;
        let body = std::mem::replace(&mut partial.body, Body::Empty);
        self.complete(part, entry, body, before)
    }

    /// The sample in a part that holds all of it.
    pub(crate) fn whole_sample(&self, part: &Part<'_>) -> Result<StagedSample, EngineError> {
        let Part { vr, params, .. } = *part;
        if !vr.ty().is_sample() {
            return Err(EngineError::NotASample { vr });
        }
        self.check(part)?;
        let found = part.bytes.len() as u64;
        if found != part.total_size {
            return Err(EngineError::Size {
                vr,
                params: params.name,
                expected: part.total_size,
                seeded: None,
                found,
            });
        }
        check_words(vr, params, part.bytes)?;
        Ok(StagedSample {
            vr,
            params,
            bytes: part.bytes.to_vec(),
            attributes: part.attributes,
        })
    }

    /// Everything about a part that can be said without what came before.
    fn check(&self, part: &Part<'_>) -> Result<(), EngineError> {
        let Part {
            vr,
            params,
            total_size,
            offset,
            ..
        } = *part;
        check_size(vr, params, total_size)?;
        part.attributes.check(vr)?;
        let found = part.bytes.len() as u64;
        if found == 0 {
            return Err(EngineError::EmptyPart { vr });
        }
        if offset.checked_add(found).is_none_or(|end| end > total_size) {
            return Err(EngineError::PartTooLong {
                vr,
                offset,
                found,
                total: total_size,
            });
        }
        if vr.ty().is_sample() {
            self.memory.check_fits(total_size)?;
        }
        Ok(())
    }

    fn append(&self, partial: &mut Partial, part: &Part<'_>) -> Result<(), EngineError> {
        let vr = part.vr;
        for (what, same) in [
            ("size", partial.total_size == part.total_size),
            ("parameter set", partial.params.id == part.params.id),
            ("attributes", partial.attributes == part.attributes),
        ] {
            if !same {
                return Err(EngineError::PartContradicts { vr, what });
            }
        }
        if partial.received != part.offset {
            return Err(EngineError::PartOrder {
                vr,
                expected: partial.received,
                found: part.offset,
            });
        }
        let failed = |source| EngineError::Backend { vr, source };
        match &mut partial.body {
            Body::Bytes(bytes) => bytes.extend_from_slice(part.bytes),
            Body::Key(sink) => sink.write(part.bytes).map_err(failed)?,
            Body::Empty => match key_kind(vr) {
                None => partial.body = Body::Bytes(part.bytes.to_vec()),
                Some(kind) => {
                    let form = key_form(kind, part.params, part.total_size);
                    let form = form.unwrap_or(KeyForm::Expanded);
                    let mut sink = self
                        .backend
                        .begin_key(part.params, kind, form)
                        .map_err(failed)?;
                    sink.write(part.bytes).map_err(failed)?;
                    partial.body = Body::Key(sink);
                }
            },
        }
        partial.received += part.bytes.len() as u64;
        Ok(())
    }

    fn complete(
        &self,
        part: &Part<'_>,
        entry: PartialEntry,
        body: Body,
        before: &mut BeforeEffect<'_>,
    ) -> Result<Accepted, EngineError> {
        let Part { vr, params, .. } = *part;
        let mut reservation = entry.reservation;
        let content = match body {
            Body::Bytes(bytes) if vr.ty() == VrType::Prg => decode(&bytes)
                .map(|program| Content::Program(Arc::new(program)))
                .map_err(|source| EngineError::Program { vr, source }),
            Body::Bytes(bytes) => match check_words(vr, params, &bytes) {
                Ok(()) if vr.ty().is_sample() => {
                    return Ok(Accepted::Sample(StagedSample {
                        vr,
                        params,
                        bytes,
                        attributes: part.attributes,
                    }));
                }
                Ok(()) => Ok(Content::TestVector {
                    bytes: bytes.into(),
                    output_bits: part.attributes.output_bits,
                }),
                Err(error) => Err(error),
            },
            Body::Key(sink) => sink
                .finish()
                .map(Content::Key)
                .map_err(|source| EngineError::Backend { vr, source }),
            Body::Empty => Err(EngineError::Backend {
                vr,
                source: BackendError::Failed {
                    reason: "the object is complete without a part".to_owned(),
                },
            }),
        };
        let _effect = self.begin_effect();
        let mut table = self.table();
        let checked = content.and_then(|content| table.check_params(vr, params).map(|()| content));
        let content = match checked {
            Ok(content) => content,
            Err(error) => {
                table.free(reservation);
                return Err(error);
            }
        };
        if let Content::Key(key) = &content {
            reservation = table.correct(vr, reservation, key.bytes())?;
        }
        drop(table);
        let allowed = before(None);
        let mut table = self.table();
        if let Err(refusal) = allowed {
            table.free(reservation);
            return Err(EngineError::Refused(refusal));
        }
        let register = Register {
            params,
            bytes: register_bytes(vr, params).unwrap_or(part.total_size),
            message_bits: part.attributes.message_bits,
            signed: part.attributes.signed,
            computed: false,
            content,
            reservation,
        };
        table.insert(&self.memory, vr, register);
        Ok(Accepted::Stored)
    }
}

fn lock(partial: &Mutex<Partial>) -> MutexGuard<'_, Partial> {
    partial.lock().unwrap_or_else(PoisonError::into_inner)
}
