//! Storing objects in virtual registers, part by part.

use std::sync::{Arc, MutexGuard};

use toroid_isa::metadata::KeyTagStart;
use toroid_isa::{VrNumber, VrType, decode};
use toroid_tfhe::noise::Noise;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::fingerprint;

use crate::backend::BackendError;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::imprint::Imprint;
use crate::paging::PageIo;
use crate::part::Part;
use crate::partial::{Body, LockedPartial, Origin, Partial, SharedPartial};
use crate::register::{Attributes, check_size, check_words, register_bytes};
use crate::swap::PagingContext;
use crate::table::{Content, Register, Reservation};

/// What a part led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOutcome {
    /// The part was the last: the register now holds the object.
    Complete,
    /// Others are to follow.
    Incomplete,
    /// Another command has started the object anew or removed it, or has stored an object of another client key under its key id: the part
    /// has no effect.
    Superseded,
}

/// An LWE sample that is complete and checked, but in no register yet.
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

/// What the parts of an object have become.
pub(crate) enum Accepted<'e> {
    Incomplete(StagedPart<'e>),
    /// A whole object other than a sample.
    Register(StagedRegister<'e>),
    /// A whole sample, which has no page yet.
    Sample(StagedSample),
}

/// A part that the engine has checked and staged, just before its effect: when nothing but the caller can still fail, for
/// example in writing the same data to the SSD.
///
/// While an object's last part is prepared, no other effect appears in any register; while any part is, no other part of its
/// object is accepted. So keep it for a short time and do not call the engine meanwhile. Dropped without
/// [`Prepared::commit`], it leaves its register as it was and drops the object's earlier parts.
#[must_use = "the part has no effect before `commit`"]
pub struct Prepared<'e>(Staged<'e>);

enum Staged<'e> {
    Part(StagedPart<'e>),
    Register(Box<StagedRegister<'e>>),
    Emptied(StagedRemoval<'e>),
}

/// A register whose content is to go.
struct StagedRemoval<'e> {
    engine: &'e Engine,
    vr: VrNumber,
    tag: Option<KeyTagStart>,
    _effect: MutexGuard<'e, ()>,
}

impl StagedRemoval<'_> {
    fn commit(self) -> StoreOutcome {
        let mut table = self.engine.table();
        // A part of an object of another client key may have come meanwhile.
        let checked = table.check_key_tag((self.vr, Origin::Write), self.tag);
        if checked.is_err() {
            return StoreOutcome::Superseded;
        }
        table.remove(&self.engine.memory, self.vr);
        StoreOutcome::Complete
    }
}

impl Prepared<'_> {
    /// Makes the effect appear.
    pub fn commit(self) -> StoreOutcome {
        match self.0 {
            Staged::Part(part) => part.commit(),
            Staged::Register(register) => register.commit(),
            Staged::Emptied(removal) => removal.commit(),
        }
    }
}

/// A part that others will follow.
pub(crate) struct StagedPart<'e> {
    engine: &'e Engine,
    vr: VrNumber,
    origin: Origin,
    /// Whether it replaces a key from now on.
    replaces_key: bool,
    tag: Option<KeyTagStart>,
    /// Keeps the next part from being appended.
    partial: LockedPartial,
    committed: bool,
}

impl StagedPart<'_> {
    pub(crate) fn commit(mut self) -> StoreOutcome {
        self.committed = true;
        let mut table = self.engine.table();
        let partial = LockedPartial::mutex(&self.partial);
        if !table.is_current(self.vr, self.origin, partial) {
            return StoreOutcome::Superseded;
        }
        let place = (self.vr, self.origin);
        if table.check_key_tag(place, self.tag).is_err() {
            // An object of another client key has come meanwhile.
            table.drop_partial(self.vr, self.origin);
            return StoreOutcome::Superseded;
        }
        if self.replaces_key {
            table.remove_content(&self.engine.memory, self.vr);
        }
        table.claim(&self.engine.memory, self.vr, self.tag);
        if self.origin == Origin::Write {
            // What was read since may be older.
            table.drop_partial(self.vr, Origin::Read);
        }
        StoreOutcome::Incomplete
    }
}

impl Drop for StagedPart<'_> {
    fn drop(&mut self) {
        if !self.committed {
            let partial = LockedPartial::mutex(&self.partial);
            self.engine.drop_partial(self.vr, self.origin, partial);
        }
    }
}

/// Content that has not appeared in its register yet.
pub(crate) struct StagedRegister<'e> {
    engine: &'e Engine,
    vr: VrNumber,
    origin: Origin,
    /// `None` once it has appeared.
    register: Option<Register>,
    tag: Option<KeyTagStart>,
    _effect: MutexGuard<'e, ()>,
}

impl StagedRegister<'_> {
    fn commit(mut self) -> StoreOutcome {
        let engine = self.engine;
        let mut table = engine.table();
        let place = (self.vr, self.origin);
        // A part of an object of another client key may have come meanwhile.
        let checked = table.check_key_tag(place, self.tag);
        let register = self.register.take_if(|_| checked.is_ok());
        let Some(register) = register else {
            return StoreOutcome::Superseded;
        };
        table.insert(&engine.memory, self.vr, register);
        table.claim(&engine.memory, self.vr, self.tag);
        StoreOutcome::Complete
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

    /// What storing a part led to before, if the register, or what has come for it, has the part already: of a key, a program or a test
    /// vector. To store it again would begin the object anew, and drop a key.
    pub fn holds(&self, part: &Part<'_>) -> Option<StoreOutcome> {
        let (stored, partials) = {
            let table = self.table();
            let register = table.get(part.vr);
            let stored = register.and_then(|register| register.imprint.clone());
            let partials =
                [Origin::Write, Origin::Read].map(|origin| table.partial(part.vr, origin));
            (stored, partials)
        };
        if stored.is_some_and(|stored| stored.has(part)) {
            return Some(StoreOutcome::Complete);
        }
        let mut partials = partials.into_iter().flatten();
        partials
            .any(|partial| partial.lock().imprint.has(part))
            .then_some(StoreOutcome::Incomplete)
    }

    /// Does all of [`Engine::store_part`] except its effect.
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
        self.prepare_from(part, Origin::Write)
    }

    /// [`Engine::prepare`] for a part that was stored before and is read again. Objects that are read in parts do not meet those
    /// that are being written, whose next part drops what was read.
    ///
    /// # Errors
    /// Those of [`Engine::prepare`].
    pub fn prepare_read(&self, part: &Part<'_>) -> Result<Prepared<'_>, EngineError> {
        self.prepare_from(part, Origin::Read)
    }

    /// Does all of emptying a register except its effect, since a column takes the place of what it holds, and no register holds a column. While
    /// it is prepared, no other effect appears in any register.
    ///
    /// # Errors
    /// [`EngineError::ParamsMismatch`] and [`EngineError::KeyTagMismatch`] for a column of another parameter set or client key than
    /// its key id is in use with.
    pub fn prepare_emptying(
        &self,
        vr: VrNumber,
        params: &ParamSet,
        tag: Option<KeyTagStart>,
    ) -> Result<Prepared<'_>, EngineError> {
        let effect = self.begin_effect();
        {
            let table = self.table();
            let place = (vr, Origin::Write);
            table.check_params(place, params)?;
            table.check_key_tag(place, tag)?;
        }
        Ok(Prepared(Staged::Emptied(StagedRemoval {
            engine: self,
            vr,
            tag,
            _effect: effect,
        })))
    }

    fn prepare_from(&self, part: &Part<'_>, origin: Origin) -> Result<Prepared<'_>, EngineError> {
        let staged = match self.accept(part, origin)? {
            Accepted::Incomplete(part) => Staged::Part(part),
            Accepted::Register(register) => Staged::Register(Box::new(register)),
            Accepted::Sample(sample) => {
                let register = self.stage_sample(part.context, sample, origin)?;
                Staged::Register(Box::new(register))
            }
        };
        Ok(Prepared(staged))
    }

    fn stage_sample(
        &self,
        context: PagingContext,
        sample: StagedSample,
        origin: Origin,
    ) -> Result<StagedRegister<'_>, EngineError> {
        let page = self
            .memory
            .create(&mut PageIo::new(context), &sample.bytes)?;
        let effect = self.begin_effect();
        let table = self.table();
        let (place, tag) = ((sample.vr, origin), sample.attributes.key_tag);
        let checked = table.check_params(place, sample.params);
        if let Err(error) = checked.and_then(|()| table.check_key_tag(place, tag)) {
            self.memory.release(page);
            return Err(error);
        }
        let fingerprint = fingerprint(&sample.bytes);
        let register = Register {
            params: sample.params,
            bytes: sample.bytes.len() as u64,
            encoding: sample.attributes.encoding,
            computed: sample.attributes.computed,
            content: Content::Sample {
                page,
                noise: table.noise_of(sample.vr.key_id(), fingerprint, sample.noise()),
                fingerprint,
            },
            imprint: None,
            reservation: None,
        };
        Ok(StagedRegister {
            engine: self,
            vr: sample.vr,
            origin,
            register: Some(register),
            tag,
            _effect: effect,
        })
    }

    /// Checks and appends a part.
    pub(crate) fn accept(
        &self,
        part: &Part<'_>,
        origin: Origin,
    ) -> Result<Accepted<'_>, EngineError> {
        let Part {
            vr, params, offset, ..
        } = *part;
        let tag = part.attributes.key_tag;
        if vr.ty().is_sample() && offset == 0 && part.bytes.len() as u64 == part.total_size {
            return self.accept_whole_sample(part, origin).map(Accepted::Sample);
        }
        self.check(part)?;
        if origin == Origin::Write {
            self.table().drop_partial(vr, Origin::Read);
        }
        let shared = if offset == 0 {
            let partial = Partial::of(part);
            // A seeded key takes the room of the expanded one.
            let bytes = register_bytes(vr, params).unwrap_or(part.total_size);
            self.table()
                .begin((vr, origin), (params, tag), bytes, Arc::clone(&partial))?;
            partial
        } else {
            self.table()
                .partial(vr, origin)
                .ok_or(EngineError::PartOrder {
                    vr,
                    expected: 0,
                    found: offset,
                })?
        };
        let mut partial = shared.lock_arc();
        if let Err(error) = partial.append(&*self.backend, part) {
            self.drop_partial(vr, origin, &shared);
            return Err(error);
        }
        if !partial.is_complete() {
            return Ok(Accepted::Incomplete(StagedPart {
                engine: self,
                vr,
                origin,
                replaces_key: vr.ty() == VrType::Key && offset == 0,
                tag,
                partial,
                committed: false,
            }));
        }
        let entry = self
            .table()
            .take_partial(vr, origin, &shared)
            .ok_or(EngineError::Superseded { vr })?;
        let body = partial.take_body();
        let imprint = partial.imprint.clone();
        self.complete(part, origin, entry.reservation, imprint, body)
    }

    fn drop_partial(&self, vr: VrNumber, origin: Origin, partial: &SharedPartial) {
        let mut table = self.table();
        let entry = table.take_partial(vr, origin, partial);
        table.free(entry.and_then(|entry| entry.reservation));
    }

    /// A sample that comes whole: no other command's part of the same sample can come between.
    pub(crate) fn accept_whole_sample(
        &self,
        part: &Part<'_>,
        origin: Origin,
    ) -> Result<StagedSample, EngineError> {
        let sample = self.whole_sample(part)?;
        let mut table = self.table();
        if origin == Origin::Write {
            table.drop_partial(part.vr, Origin::Read);
        }
        let of_client = (part.params, part.attributes.key_tag);
        table.start_anew((part.vr, origin), of_client)?;
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
        origin: Origin,
        mut reservation: Option<Reservation>,
        imprint: Imprint,
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
        let (place, tag) = ((vr, origin), part.attributes.key_tag);
        let checked = content.and_then(|content| {
            table.check_params(place, params)?;
            table.check_key_tag(place, tag)?;
            Ok(content)
        });
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
            encoding: part.attributes.encoding,
            computed: false,
            content,
            imprint: Some(Arc::new(imprint)),
            reservation,
        };
        Ok(Accepted::Register(StagedRegister {
            engine: self,
            vr,
            origin,
            register: Some(register),
            tag,
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
                output: part.attributes.output,
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
