//! The VR table (platform paper, section 4.2): which registers there are, and where.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use toroid_isa::metadata::KeyTagStart;
use toroid_isa::{KeyKind, Program, VrNumber, VrType};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::noise::Noise;
use toroid_tfhe::params::ParamSet;

use crate::address::{PAGE_BYTES, PAGE_NUMBERS, VirtualAddress, units_of};
use crate::backend::LoadedKey;
use crate::config::{MAX_PARTIAL_OBJECTS, MAX_PARTIAL_OBJECTS_IN_ALL, PARTIAL_LIFETIME};
use crate::error::EngineError;
use crate::extents::Extents;
use crate::imprint::Imprint;
use crate::paging::{PAGED_PAGE_NUMBERS, PageId, PagedMemory};
use crate::partial::{Origin, SharedPartial};
use crate::register::{RegisterInfo, is_of_ring, same_statement};

/// What a register holds.
#[derive(Clone)]
pub(crate) enum Content {
    Program(Arc<Program>),
    TestVector {
        bytes: Arc<[u8]>,
        /// Encoding of the output values; `None`: that of the input.
        output: Option<Encoding>,
    },
    Key(Arc<dyn LoadedKey>),
    Sample {
        page: PageId,
        noise: Noise,
        fingerprint: u64,
    },
}

/// Page numbers and bytes taken from the persistent area.
#[derive(Debug)]
pub(crate) struct Reservation {
    first_page: u64,
    pages: u64,
    /// Units of memory; a loaded key may hold more or less than its Table 3 form.
    units: u64,
}

impl Reservation {
    fn address(&self) -> VirtualAddress {
        VirtualAddress::of_page(self.first_page)
    }
}

pub(crate) struct Register {
    pub(crate) params: &'static ParamSet,
    pub(crate) bytes: u64,
    pub(crate) encoding: Option<Encoding>,
    pub(crate) computed: bool,
    pub(crate) content: Content,
    /// What it was stored from; `None` for samples, which programs change.
    pub(crate) imprint: Option<Arc<Imprint>>,
    /// For everything but samples.
    pub(crate) reservation: Option<Reservation>,
}

/// An active run.
struct Run {
    /// Key id, fingerprint and noise of the sample that it brings.
    staged: Option<((u32, u64), Noise)>,
}

/// An object whose parts are still coming.
pub(crate) struct PartialEntry {
    pub(crate) partial: SharedPartial,
    pub(crate) params: &'static ParamSet,
    pub(crate) reservation: Option<Reservation>,
}

pub(crate) struct Table {
    registers: BTreeMap<VrNumber, Register>,
    /// The registers that hold a sample, by key id and fingerprint.
    samples: HashMap<(u32, u64), BTreeSet<VrNumber>>,
    partials: BTreeMap<(VrNumber, Origin), PartialEntry>,
    page_numbers: Extents,
    used_units: u64,
    total_units: u64,
    last_stamp: u64,
    /// By the stamp of their begin.
    runs: BTreeMap<u64, Run>,
    /// Start of the tag of the client key that each key id is in use with, where an object of it stated one.
    key_tags: BTreeMap<u32, KeyTagStart>,
    /// Registers that were stored or removed since the oldest active run began, and when.
    touched: BTreeMap<VrNumber, u64>,
    /// The same for key ids that were cleared.
    cleared: BTreeMap<u32, u64>,
    /// When each key of the ring layer was stored or used last.
    ring_keys: BTreeMap<VrNumber, u64>,
}

impl Table {
    pub(crate) fn new(persistent_bytes: u64) -> Table {
        Table {
            registers: BTreeMap::new(),
            samples: HashMap::new(),
            partials: BTreeMap::new(),
            page_numbers: Extents::new(PAGED_PAGE_NUMBERS, PAGE_NUMBERS - PAGED_PAGE_NUMBERS),
            used_units: 0,
            total_units: persistent_bytes / PAGE_BYTES as u64,
            last_stamp: 0,
            runs: BTreeMap::new(),
            key_tags: BTreeMap::new(),
            touched: BTreeMap::new(),
            cleared: BTreeMap::new(),
            ring_keys: BTreeMap::new(),
        }
    }

    pub(crate) fn get(&self, vr: VrNumber) -> Option<&Register> {
        self.registers.get(&vr)
    }

    fn stamp(&mut self) -> u64 {
        self.last_stamp += 1;
        self.last_stamp
    }

    /// Begins a run with this sample, which sees the registers as they are. Gives the stamp of its begin.
    pub(crate) fn begin_run(&mut self, staged: Option<((u32, u64), Noise)>) -> u64 {
        let stamp = self.stamp();
        self.runs.insert(stamp, Run { staged });
        stamp
    }

    pub(crate) fn end_run(&mut self, begun: u64) {
        self.runs.remove(&begun);
        let oldest = self.runs.keys().next().copied().unwrap_or(u64::MAX);
        self.touched.retain(|_, stamp| *stamp > oldest);
        self.cleared.retain(|_, stamp| *stamp > oldest);
    }

    /// Whether the register was stored or removed after an active run began. What runs write does not count.
    pub(crate) fn touched_since(&self, vr: VrNumber, begun: u64) -> bool {
        let after = |stamp: Option<&u64>| stamp.is_some_and(|stamp| *stamp > begun);
        after(self.touched.get(&vr)) || after(self.cleared.get(&vr.key_id()))
    }

    fn touch(&mut self, vr: VrNumber) {
        let stamp = self.stamp();
        if !self.runs.is_empty() {
            self.touched.insert(vr, stamp);
        }
    }

    fn registers_of(&self, key_id: u32) -> impl Iterator<Item = (VrNumber, &Register)> {
        of_key_id(&self.registers, key_id)
    }

    fn partials_of(
        &self,
        key_id: u32,
    ) -> impl Iterator<Item = ((VrNumber, Origin), &PartialEntry)> {
        VrType::ALL
            .into_iter()
            .filter_map(move |ty| {
                let number = |data_id| VrNumber::new(ty, key_id, data_id).ok();
                let (first, last) = (number(0)?, number(u32::MAX)?);
                Some(
                    self.partials
                        .range((first, Origin::Write)..=(last, Origin::Read)),
                )
            })
            .flatten()
            .map(|(key, entry)| (*key, entry))
    }

    /// The parameter set that the key id is in use with.
    pub(crate) fn params_of(&self, key_id: u32) -> Option<&'static ParamSet> {
        let registers = self
            .registers_of(key_id)
            .map(|(_, register)| register.params);
        registers
            .chain(self.partials_of(key_id).map(|(_, partial)| partial.params))
            .next()
    }

    /// Checks that an object of this set can be stored, whatever part of the same object has come before.
    pub(crate) fn check_params(
        &self,
        (vr, origin): (VrNumber, Origin),
        params: &ParamSet,
    ) -> Result<(), EngineError> {
        // All registers of a key id have one set, and so have all partial objects: the first of each speaks for the rest.
        let register = self
            .registers_of(vr.key_id())
            .map(|(_, register)| register.params)
            .next();
        let mut partials = self
            .partials_of(vr.key_id())
            .filter(|(other, _)| *other != (vr, origin));
        let partial = partials.next().map(|(_, partial)| partial.params);
        match register
            .into_iter()
            .chain(partial)
            .find(|set| set.id != params.id)
        {
            Some(set) => Err(EngineError::ParamsMismatch {
                vr,
                expected: set.name,
                found: params.name,
            }),
            None => Ok(()),
        }
    }

    /// Checks that an object of this client key can be stored. A bootstrapping key that is written begins its key id anew.
    pub(crate) fn check_key_tag(
        &self,
        (vr, origin): (VrNumber, Origin),
        tag: Option<KeyTagStart>,
    ) -> Result<(), EngineError> {
        let held = self.key_tags.get(&vr.key_id());
        let same = tag.is_none_or(|tag| held.is_none_or(|held| *held == tag));
        if same || (origin == Origin::Write && begins_key_id(vr)) {
            Ok(())
        } else {
            Err(EngineError::KeyTagMismatch { vr })
        }
    }

    /// An object of this client key, or a part of it, has come for a register. One of another key than before can only be a
    /// bootstrapping key, which makes the other keys and the samples of its key id useless.
    pub(crate) fn claim(&mut self, memory: &PagedMemory, vr: VrNumber, tag: Option<KeyTagStart>) {
        let Some(tag) = tag else { return };
        let key_id = vr.key_id();
        let former = self.key_tags.insert(key_id, tag);
        if former.is_none_or(|former| former == tag) {
            return;
        }
        let partials = self.partials_of(key_id).map(|((vr, _), _)| vr);
        let registers = self.registers_of(key_id).map(|(vr, _)| vr);
        let of_key = |other: &VrNumber| {
            *other != vr && (other.ty() == VrType::Key || other.ty().is_sample())
        };
        let useless: BTreeSet<VrNumber> = partials.chain(registers).filter(of_key).collect();
        for other in useless {
            self.remove(memory, other);
        }
        self.forget_runs_of(key_id);
    }

    /// A key id of which nothing is left may be used with any client key.
    fn forget_key_tag_unless_used(&mut self, key_id: u32) {
        let used =
            self.registers_of(key_id).next().is_some() || self.partials_of(key_id).next().is_some();
        if !used {
            self.key_tags.remove(&key_id);
        }
    }

    /// Active runs change no register of this key id any more.
    fn forget_runs_of(&mut self, key_id: u32) {
        let stamp = self.stamp();
        if !self.runs.is_empty() {
            self.cleared.insert(key_id, stamp);
        }
    }

    /// The key of the ring layer in a register, and the parameter set of its key id. It counts as used now.
    pub(crate) fn use_ring_key(
        &mut self,
        vr: VrNumber,
    ) -> Option<(Arc<dyn LoadedKey>, &'static ParamSet)> {
        let stamp = self.stamp();
        let register = self.registers.get(&vr)?;
        let Content::Key(key) = &register.content else {
            return None;
        };
        self.ring_keys.insert(vr, stamp);
        Some((Arc::clone(key), register.params))
    }

    /// Drops keys of the ring layer, but neither that of `vr` nor one that is used with it, the least recently used first, until so many units of the persistent area are free. They are large, and
    /// whoever needs one loads it again.
    fn drop_ring_keys(&mut self, vr: VrNumber, units: u64) {
        while self.total_units.saturating_sub(self.used_units) < units {
            let others = self.ring_keys.iter().filter(|(other, _)| {
                **other != vr && !(is_of_ring(vr) && other.key_id() == vr.key_id())
            });
            let Some(oldest) = others.min_by_key(|(_, stamp)| **stamp) else {
                return;
            };
            let oldest = *oldest.0;
            self.ring_keys.remove(&oldest);
            self.touch(oldest);
            if let Some(register) = self.registers.remove(&oldest) {
                self.free(register.reservation);
                self.forget_key_tag_unless_used(oldest.key_id());
            }
        }
    }

    /// Takes room in the persistent area; `returning` units count as free already.
    fn reserve(
        &mut self,
        vr: VrNumber,
        bytes: u64,
        returning: u64,
    ) -> Result<Reservation, EngineError> {
        let units = units_of(bytes);
        self.drop_ring_keys(vr, units.saturating_sub(returning));
        let available = (self.total_units + returning).saturating_sub(self.used_units);
        if units > available {
            let unit = PAGE_BYTES as u64;
            return Err(EngineError::PersistentAreaFull {
                vr,
                needed: units * unit,
                available: available * unit,
                total: self.total_units * unit,
            });
        }
        let first_page = self
            .page_numbers
            .allocate(units)
            .ok_or(EngineError::VirtualSpaceFull { needed: units })?;
        self.used_units += units;
        Ok(Reservation {
            first_page,
            pages: units,
            units,
        })
    }

    pub(crate) fn free(&mut self, reservation: Option<Reservation>) {
        if let Some(reservation) = reservation {
            self.page_numbers
                .release(reservation.first_page, reservation.pages);
            self.used_units = self.used_units.saturating_sub(reservation.units);
        }
    }

    /// Drops the parts of objects of which no part has come for so long. Says of how many objects.
    pub(crate) fn drop_idle(&mut self, idle: Duration) -> usize {
        let is_idle = |entry: &PartialEntry| {
            let partial = entry.partial.try_lock();
            partial.is_some_and(|partial| partial.idle() >= idle)
        };
        let dropped: Vec<_> = self
            .partials
            .extract_if(.., |_, entry| is_idle(entry))
            .collect();
        let count = dropped.len();
        for ((vr, _), entry) in dropped {
            self.free(entry.reservation);
            self.forget_key_tag_unless_used(vr.key_id());
        }
        count
    }

    /// Starts an object of `bytes` bytes, in place of the parts that came before. A key counts the key that it replaces as
    /// free memory.
    pub(crate) fn begin(
        &mut self,
        (vr, origin): (VrNumber, Origin),
        (params, tag): (&'static ParamSet, Option<KeyTagStart>),
        bytes: u64,
        partial: SharedPartial,
    ) -> Result<(), EngineError> {
        self.drop_idle(PARTIAL_LIFETIME);
        self.check_params((vr, origin), params)?;
        self.check_key_tag((vr, origin), tag)?;
        let full = self.partials.len() >= MAX_PARTIAL_OBJECTS_IN_ALL
            || self.partials_of(vr.key_id()).count() >= MAX_PARTIAL_OBJECTS;
        if full && !self.partials.contains_key(&(vr, origin)) {
            return Err(EngineError::TooManyPartialObjects);
        }
        let reservation = if vr.ty().is_sample() {
            None
        } else {
            let units = |reservation: Option<&Reservation>| {
                reservation.map_or(0, |reservation| reservation.units)
            };
            let mut returning = units(
                self.partials
                    .get(&(vr, origin))
                    .and_then(|partial| partial.reservation.as_ref()),
            );
            if vr.ty() == VrType::Key {
                returning += units(
                    self.get(vr)
                        .and_then(|register| register.reservation.as_ref()),
                );
            }
            Some(self.reserve(vr, bytes, returning)?)
        };
        if let Some(old) = self.partials.insert(
            (vr, origin),
            PartialEntry {
                partial,
                params,
                reservation,
            },
        ) {
            self.free(old.reservation);
        }
        Ok(())
    }

    /// Drops the parts of an object, since a whole one of this set and this client key takes its place.
    pub(crate) fn start_anew(
        &mut self,
        (vr, origin): (VrNumber, Origin),
        (params, tag): (&'static ParamSet, Option<KeyTagStart>),
    ) -> Result<(), EngineError> {
        self.check_params((vr, origin), params)?;
        self.check_key_tag((vr, origin), tag)?;
        self.drop_partial(vr, origin);
        Ok(())
    }

    /// Drops what has come of an object.
    pub(crate) fn drop_partial(&mut self, vr: VrNumber, origin: Origin) {
        if let Some(old) = self.partials.remove(&(vr, origin)) {
            self.free(old.reservation);
            self.forget_key_tag_unless_used(vr.key_id());
        }
    }

    pub(crate) fn partial(&self, vr: VrNumber, origin: Origin) -> Option<SharedPartial> {
        self.partials
            .get(&(vr, origin))
            .map(|entry| Arc::clone(&entry.partial))
    }

    pub(crate) fn is_current(&self, vr: VrNumber, origin: Origin, partial: &SharedPartial) -> bool {
        self.partials
            .get(&(vr, origin))
            .is_some_and(|entry| Arc::ptr_eq(&entry.partial, partial))
    }

    /// Takes the partial object out, if it is still this one.
    pub(crate) fn take_partial(
        &mut self,
        vr: VrNumber,
        origin: Origin,
        partial: &SharedPartial,
    ) -> Option<PartialEntry> {
        if !self.is_current(vr, origin, partial) {
            return None;
        }
        let entry = self.partials.remove(&(vr, origin));
        self.forget_key_tag_unless_used(vr.key_id());
        entry
    }

    /// Corrects the room of a loaded key to what it really takes. On an error the reservation is freed.
    pub(crate) fn correct(
        &mut self,
        vr: VrNumber,
        reservation: Option<Reservation>,
        bytes: u64,
    ) -> Result<Option<Reservation>, EngineError> {
        let Some(mut reservation) = reservation else {
            return Ok(None);
        };
        let units = units_of(bytes);
        self.drop_ring_keys(vr, units.saturating_sub(reservation.units));
        // The key that this one replaces may still be there.
        let replaced = self
            .get(vr)
            .and_then(|register| register.reservation.as_ref())
            .map_or(0, |old| old.units);
        let others = self.used_units.saturating_sub(reservation.units + replaced);
        if units > reservation.units && others + units > self.total_units {
            let unit = PAGE_BYTES as u64;
            self.free(Some(reservation));
            return Err(EngineError::PersistentAreaFull {
                vr,
                needed: units * unit,
                available: self.total_units.saturating_sub(others) * unit,
                total: self.total_units * unit,
            });
        }
        self.used_units = others + replaced + units;
        reservation.units = units;
        Ok(Some(reservation))
    }

    /// Stores a register, in place of an old one.
    pub(crate) fn insert(&mut self, memory: &PagedMemory, vr: VrNumber, register: Register) {
        self.touch(vr);
        self.write(memory, vr, register);
        if is_of_ring(vr) {
            let stamp = self.stamp();
            self.ring_keys.insert(vr, stamp);
        }
    }

    /// Puts in a register that a run wrote.
    pub(crate) fn write(&mut self, memory: &PagedMemory, vr: VrNumber, register: Register) {
        self.take_out(memory, vr);
        // It may be older.
        self.drop_partial(vr, Origin::Read);
        if let Content::Sample { fingerprint, .. } = register.content {
            self.samples
                .entry((vr.key_id(), fingerprint))
                .or_default()
                .insert(vr);
        }
        self.registers.insert(vr, register);
    }

    /// The noise of a sample that comes in with this statement of its noise. If a register of the key id, or a run, holds the
    /// same sample with the same statement, its noise is the same too, and not independent: a sample that is read from the SSD
    /// again and again does not average out.
    pub(crate) fn noise_of(&self, key_id: u32, fingerprint: u64, stated: Noise) -> Noise {
        let known = self
            .samples
            .get(&(key_id, fingerprint))
            .and_then(BTreeSet::first)
            .and_then(|vr| self.get(*vr));
        let stored = match known.map(|register| &register.content) {
            Some(Content::Sample { noise, .. }) => Some(noise),
            _ => None,
        };
        let staged = self.runs.values().filter_map(|run| run.staged.as_ref());
        let staged = staged.filter(|(sample, _)| *sample == (key_id, fingerprint));
        stored
            .into_iter()
            .chain(staged.map(|(_, noise)| noise))
            .find(|noise| same_statement(noise, &stated))
            .cloned()
            .unwrap_or(stated)
    }

    /// Removes the register's content, but not the parts of a new one.
    pub(crate) fn remove_content(&mut self, memory: &PagedMemory, vr: VrNumber) -> bool {
        self.touch(vr);
        self.take_out(memory, vr)
    }

    fn take_out(&mut self, memory: &PagedMemory, vr: VrNumber) -> bool {
        match self.registers.remove(&vr) {
            Some(register) => {
                self.ring_keys.remove(&vr);
                self.free(register.reservation);
                if let Content::Sample {
                    page, fingerprint, ..
                } = register.content
                {
                    memory.release(page);
                    let key = (vr.key_id(), fingerprint);
                    if let Some(holders) = self.samples.get_mut(&key) {
                        holders.remove(&vr);
                        if holders.is_empty() {
                            self.samples.remove(&key);
                        }
                    }
                }
                self.forget_key_tag_unless_used(vr.key_id());
                true
            }
            None => false,
        }
    }

    /// Removes a register and the parts of a new content.
    pub(crate) fn remove(&mut self, memory: &PagedMemory, vr: VrNumber) -> bool {
        self.drop_partial(vr, Origin::Write);
        self.drop_partial(vr, Origin::Read);
        self.remove_content(memory, vr)
    }

    /// Removes every register of a key id; says how many had content.
    pub(crate) fn clear_key_id(&mut self, memory: &PagedMemory, key_id: u32) -> usize {
        let partials: Vec<VrNumber> = self.partials_of(key_id).map(|((vr, _), _)| vr).collect();
        let registers: Vec<VrNumber> = self.registers_of(key_id).map(|(vr, _)| vr).collect();
        for vr in partials.into_iter().chain(registers.iter().copied()) {
            self.remove(memory, vr);
        }
        self.key_tags.remove(&key_id);
        self.forget_runs_of(key_id);
        registers.len()
    }

    /// Bytes of the persistent area in use, and in all.
    pub(crate) fn persistent_bytes(&self) -> (u64, u64) {
        (
            self.used_units * PAGE_BYTES as u64,
            self.total_units * PAGE_BYTES as u64,
        )
    }

    pub(crate) fn list(&self, memory: &PagedMemory) -> Vec<RegisterInfo> {
        self.registers
            .iter()
            .map(|(vr, register)| info(memory, *vr, register))
            .collect()
    }
}

/// A register as users see it.
pub(crate) fn info(memory: &PagedMemory, vr: VrNumber, register: &Register) -> RegisterInfo {
    let (address, page, noise) = match &register.content {
        Content::Sample { page, noise, .. } => {
            (page.address(), memory.entry(*page), Some(noise.clone()))
        }
        _ => (
            register
                .reservation
                .as_ref()
                .map_or(VirtualAddress::of_page(0), Reservation::address),
            None,
            None,
        ),
    };
    RegisterInfo {
        vr,
        params: register.params,
        bytes: register.bytes,
        address,
        page,
        encoding: register.encoding,
        computed: register.computed,
        noise,
    }
}

/// Whether a register holds what the other keys and the samples of its key id must go with.
fn begins_key_id(vr: VrNumber) -> bool {
    vr.ty() == VrType::Key && vr.data_id() == KeyKind::Bootstrapping.data_id()
}

/// The entries of a key id.
fn of_key_id<T>(
    entries: &BTreeMap<VrNumber, T>,
    key_id: u32,
) -> impl Iterator<Item = (VrNumber, &T)> {
    VrType::ALL
        .into_iter()
        .filter_map(move |ty| {
            let number = |data_id| VrNumber::new(ty, key_id, data_id).ok();
            Some(entries.range(number(0)?..=number(u32::MAX)?))
        })
        .flatten()
        .map(|(vr, entry)| (*vr, entry))
}
