//! Storing objects in virtual registers, part by part.

use std::sync::{Arc, MutexGuard};

use toroid_isa::{VrNumber, VrType, decode};
use toroid_tfhe::noise::Noise;
use toroid_tfhe::params::ParamSet;

use crate::backend::BackendError;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::paging::PageIo;
use crate::partial::{Body, LockedPartial, Part, Partial, SharedPartial};
use crate::register::{Attributes, check_size, check_words, fingerprint, register_bytes};
use crate::swap::PagingContext;
use crate::table::{Content, Register, Reservation};

/// What a part led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOutcome {
    /// Whether the part was the last: the register now holds the object.
    pub complete: bool,
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
pub(crate) enum Accepted<'e> {
    Incomplete(StagedPart<'e>),
    /// Whole, and no sample.
    Register(StagedRegister<'e>),
    /// A whole sample, which has no page yet.
    Sample(StagedSample),
}

/// A part that the engine has checked and staged, just before its effect: when nothing but the caller can still fail, for
/// example in writing the same data to the SSD.
///
/// While an object's last part is prepared, no other effect appears in any register, and while any part is, no other part of
/// its object goes on. So keep it for a short time and do not call the engine meanwhile. Dropped without [`Prepared::commit`], it leaves its register as it was and drops the
/// parts that had come of the object.
#[must_use = "the part has no effect before `commit`"]
pub struct Prepared<'e>(Staged<'e>);

enum Staged<'e> {
    Part(StagedPart<'e>),
    Register(StagedRegister<'e>),
}

impl Prepared<'_> {
    /// Makes the effect appear.
    pub fn commit(self) -> StoreOutcome {
        let complete = match self.0 {
            Staged::Part(part) => {
                part.commit();
                false
            }
            Staged::Register(register) => {
                register.commit();
                true
            }
        };
        StoreOutcome { complete }
    }
}

/// A part that others will follow.
pub(crate) struct StagedPart<'e> {
    engine: &'e Engine,
    vr: VrNumber,
    /// Whether it replaces a key from now on.
    replaces_key: bool,
    /// Keeps the next part from being appended.
    partial: LockedPartial,
    committed: bool,
}

impl StagedPart<'_> {
    pub(crate) fn commit(mut self) {
        self.committed = true;
        let mut table = self.engine.table();
        if self.replaces_key && table.is_current(self.vr, LockedPartial::mutex(&self.partial)) {
            table.remove_content(&self.engine.memory, self.vr);
        }
    }
}

impl Drop for StagedPart<'_> {
    fn drop(&mut self) {
        if !self.committed {
            self.engine
                .drop_partial(self.vr, LockedPartial::mutex(&self.partial));
        }
    }
}

/// The content of a register that has not appeared in it.
pub(crate) struct StagedRegister<'e> {
    engine: &'e Engine,
    vr: VrNumber,
    /// `None` once it has appeared.
    register: Option<Register>,
    _effect: MutexGuard<'e, ()>,
}

impl StagedRegister<'_> {
    fn commit(mut self) {
        if let Some(register) = self.register.take() {
            let engine = self.engine;
            engine.table().insert(&engine.memory, self.vr, register);
        }
    }
}

impl Drop for StagedRegister<'_> {
    fn drop(&mut self) {
        let Some(register) = self.register.take() else {
            return;
        };
        if let Content::Sample { page, .. } = register.content {
            self.engine.memory.release(page);
        }
        self.engine.table().free(register.reservation);
    }
}

impl Engine {
    /// Stores one part of an object; with the last one the object appears in its register, all at once.
    ///
    /// # Errors
    /// Those of [`Engine::prepare`].
    pub fn store_part(&self, part: &Part<'_>) -> Result<StoreOutcome, EngineError> {
        Ok(self.prepare(part)?.commit())
    }

    /// Does everything of [`Engine::store_part`] but its effect.
    ///
    /// Parts come in rising order without gaps; offset 0 starts the object anew. Until the last part the register keeps
    /// what it held, with one exception: a key is dropped when the first part of its replacement has been accepted, since
    /// both may not fit. The back end checks the words of keys, the engine those of samples and test vectors.
    ///
    /// # Errors
    /// Whatever is wrong with the part: its size, order, parameter set, attributes or words; no room; a page-out that
    /// failed. After [`EngineError::PartOrder`], [`EngineError::PartContradicts`] and errors in the content, the parts that
    /// had come are dropped.
    pub fn prepare(&self, part: &Part<'_>) -> Result<Prepared<'_>, EngineError> {
        let staged = match self.accept(part)? {
            Accepted::Incomplete(part) => Staged::Part(part),
            Accepted::Register(register) => Staged::Register(register),
            Accepted::Sample(sample) => Staged::Register(self.stage_sample(part.context, sample)?),
        };
        Ok(Prepared(staged))
    }

    fn stage_sample(
        &self,
        context: PagingContext,
        sample: StagedSample,
    ) -> Result<StagedRegister<'_>, EngineError> {
        let page = self
            .memory
            .create(&mut PageIo::new(context), &sample.bytes)?;
        let effect = self.begin_effect();
        let table = self.table();
        if let Err(error) = table.check_params(sample.vr, sample.params) {
            self.memory.release(page);
            return Err(error);
        }
        let fingerprint = fingerprint(&sample.bytes);
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
        Ok(StagedRegister {
            engine: self,
            vr: sample.vr,
            register: Some(register),
            _effect: effect,
        })
    }

    /// Checks and appends a part.
    pub(crate) fn accept(&self, part: &Part<'_>) -> Result<Accepted<'_>, EngineError> {
        let Part {
            vr, params, offset, ..
        } = *part;
        if vr.ty().is_sample() && offset == 0 && part.bytes.len() as u64 == part.total_size {
            return self.accept_whole_sample(part).map(Accepted::Sample);
        }
        self.check(part)?;
        let shared = if offset == 0 {
            let partial = Partial::of(part);
            // A seeded key takes the room of the expanded one.
            let bytes = register_bytes(vr, params).unwrap_or(part.total_size);
            self.table()
                .begin(vr, params, bytes, Arc::clone(&partial))?;
            partial
        } else {
            self.table().partial(vr).ok_or(EngineError::PartOrder {
                vr,
                expected: 0,
                found: offset,
            })?
        };
        let mut partial = shared.lock_arc();
        if let Err(error) = partial.append(&*self.backend, part) {
            self.drop_partial(vr, &shared);
            return Err(error);
        }
        if !partial.is_complete() {
            return Ok(Accepted::Incomplete(StagedPart {
                engine: self,
                vr,
                replaces_key: vr.ty() == VrType::Key && offset == 0,
                partial,
                committed: false,
            }));
        }
        let entry = self
            .table()
            .take_partial(vr, &shared)
            .ok_or(EngineError::Superseded { vr })?;
        self.complete(part, entry.reservation, partial.take_body())
    }

    fn drop_partial(&self, vr: VrNumber, partial: &SharedPartial) {
        let mut table = self.table();
        let entry = table.take_partial(vr, partial);
        table.free(entry.and_then(|entry| entry.reservation));
    }

    /// A sample that comes whole: no other command's part of the same sample can come between.
    pub(crate) fn accept_whole_sample(&self, part: &Part<'_>) -> Result<StagedSample, EngineError> {
        let sample = self.whole_sample(part)?;
        self.table().start_anew(part.vr, part.params)?;
        Ok(sample)
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

    fn complete(
        &self,
        part: &Part<'_>,
        mut reservation: Option<Reservation>,
        body: Body,
    ) -> Result<Accepted<'_>, EngineError> {
        let Part { vr, params, .. } = *part;
        let content = match body {
            Body::Bytes(bytes) if vr.ty().is_sample() => {
                check_words(vr, params, &bytes)?;
                return Ok(Accepted::Sample(StagedSample {
                    vr,
                    params,
                    bytes,
                    attributes: part.attributes,
                }));
            }
            body => finish(part, body),
        };
        let effect = self.begin_effect();
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
        let register = Register {
            params,
            bytes: register_bytes(vr, params).unwrap_or(part.total_size),
            message_bits: part.attributes.message_bits,
            signed: part.attributes.signed,
            computed: false,
            content,
            reservation,
        };
        Ok(Accepted::Register(StagedRegister {
            engine: self,
            vr,
            register: Some(register),
            _effect: effect,
        }))
    }
}

/// The content that a whole object, other than a sample, makes.
fn finish(part: &Part<'_>, body: Body) -> Result<Content, EngineError> {
    let Part { vr, params, .. } = *part;
    match body {
        Body::Bytes(bytes) if vr.ty() == VrType::Prg => decode(&bytes)
            .map(|program| Content::Program(Arc::new(program)))
            .map_err(|source| EngineError::Program { vr, source }),
        Body::Bytes(bytes) => {
            check_words(vr, params, &bytes)?;
            Ok(Content::TestVector {
                bytes: bytes.into(),
                output_bits: part.attributes.output_bits,
            })
        }
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
    }
}
