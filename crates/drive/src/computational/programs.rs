//! A host's programs and memory range sets, and the commands on them.

use std::sync::Arc;

use toroid_isa::{HEADER_BYTES, Instruction, MAX_ENCODED_BYTES, Program, VrNumber, VrType, decode};
use toroid_nvme::{Sqe, Status};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::memory::{GRANULARITY, Memory, Span, expect_data};
use super::{MAX_PROGRAMS, MAX_RANGE_SETS, MAX_RANGES, PROGRAM_TYPE};
use crate::bridge::status::{
    MEMORY_RANGE, NO_PROGRAM, NO_RANGE_SET, PART_ORDER, PROGRAM_IN_USE, PROGRAM_INACTIVE,
    PROGRAM_MALFORMED, TOO_MANY_RANGES, WRONG_SIZE,
};
use crate::bridge::{Fault, KeyAccess, RingWay};

/// The type of a program identifier that is unique among programs: 64 bits.
const IDENTIFIER_TYPE: u8 = 1;
/// What a program index of the Program List is: in use by a program that a host has loaded.
const OCCUPIED: u8 = 1;
const ACTIVE: u8 = 1 << 2;

/// A range of memory as commands and the log page have it.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
struct RangeDescriptor {
    nsid: U32,
    len: U32,
    start: U64,
    reserved_16: [u8; 16],
}

const RANGE_BYTES: u64 = size_of::<RangeDescriptor>() as u64;
const _: () = assert!(RANGE_BYTES == 32);

/// A program index in the Program List.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ProgramDescriptor {
    /// Occupation (bits 1:0), activation (bit 2), type of the identifier (bits 5:3).
    state: u8,
    program_type: u8,
    reserved_2: [u8; 6],
    identifier: U64,
    reserved_16: [u8; 48],
}

const _: () = assert!(size_of::<ProgramDescriptor>() == 64);

/// What a log page of this command set begins with.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ListHeader {
    entries: U16,
    reserved_2: [u8; 62],
}

/// A memory range set in the log page; its ranges follow.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct SetDescriptor {
    id: U16,
    ranges: u8,
    reserved_3: [u8; 29],
}

fn list(entries: usize) -> Vec<u8> {
    let mut header = ListHeader::new_zeroed();
    // Every list is shorter.
    header.entries = (entries as u16).into();
    header.as_bytes().to_vec()
}

/// A range of one of the host's memory namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// Index of the namespace.
    pub(super) memory: usize,
    pub(super) span: Span,
}

/// What a program index holds.
enum Slot {
    /// A program whose bytes are still coming.
    Partial {
        name: VrNumber,
        size: u32,
        bytes: Vec<u8>,
    },
    Whole {
        name: VrNumber,
        size: u32,
        /// Whoever runs it holds it too.
        program: Arc<Program>,
        active: bool,
    },
}

impl Slot {
    fn name(&self) -> VrNumber {
        match self {
            Slot::Partial { name, .. } | Slot::Whole { name, .. } => *name,
        }
    }

    fn size(&self) -> u32 {
        match self {
            Slot::Partial { size, .. } | Slot::Whole { size, .. } => *size,
        }
    }
}

/// What an Execute Program command runs on what.
pub(super) struct Execution {
    /// Register number that stands for the program: its key id.
    pub(super) name: VrNumber,
    pub(super) program: Arc<Program>,
    pub(super) inputs: Vec<Range>,
    pub(super) result: Option<Range>,
    /// The input that the result replaces.
    pub(super) place: Option<usize>,
    /// The ring to compute in, where the command names one.
    pub(super) ring: Option<RingWay>,
}

/// The programs and memory range sets of a host.
pub(super) struct Programs {
    slots: [Option<Slot>; MAX_PROGRAMS],
    /// Identifier n is at n - 1.
    sets: [Option<Vec<Range>>; MAX_RANGE_SETS],
}

impl Default for Programs {
    /// None.
    fn default() -> Programs {
        Programs {
            slots: std::array::from_fn(|_| None),
            sets: std::array::from_fn(|_| None),
        }
    }
}

fn refuse(status: Status, reason: impl Into<String>) -> Fault {
    Fault::new(status, reason)
}

impl Programs {
    fn slot(&mut self, index: u16) -> Result<&mut Option<Slot>, Fault> {
        self.slots.get_mut(usize::from(index)).ok_or_else(|| {
            refuse(
                NO_PROGRAM,
                format!("program index {index}; expected 0 to {}", MAX_PROGRAMS - 1),
            )
        })
    }

    /// Load Program, loading and unloading. `room` is for the bytes of all of the host's programs.
    pub(super) fn load(
        &mut self,
        sqe: &Sqe,
        data: &[u8],
        keys: &KeyAccess,
        room: u32,
    ) -> Result<(), Fault> {
        let dw10 = sqe.cdw10.get();
        let index = dw10 as u16;
        let (program_type, identifier_type) = ((dw10 >> 16) as u8, (dw10 >> 25) as u8 & 7);
        if dw10 >> 24 & 1 == 1 {
            expect_data(data, 0)?;
            return self.unload(index);
        }
        let (size, len, offset) = (sqe.cdw11.get(), sqe.cdw14.get(), sqe.cdw15.get());
        let identifier = u64::from(sqe.cdw13.get()) << 32 | u64::from(sqe.cdw12.get());
        if program_type != PROGRAM_TYPE || identifier_type != IDENTIFIER_TYPE {
            return Err(refuse(
                Status::INVALID_FIELD,
                format!(
                    "program type {program_type:02X}h with identifier type {identifier_type}; expected {PROGRAM_TYPE:02X}h with {IDENTIFIER_TYPE}"
                ),
            ));
        }
        let name = VrNumber::from_u64(identifier)
            .ok()
            .filter(|name| name.ty() == VrType::Prg && name.data_id() == 0)
            .ok_or_else(|| {
                refuse(
                    Status::INVALID_FIELD,
                    format!("program identifier {identifier:#018x}; expected the key id in bits 55:32, else 0"),
                )
            })?;
        keys.check_register(name)?;
        expect_data(data, len.into())?;
        let end = offset.checked_add(len);
        if len == 0 || end.is_none_or(|end| end > size) {
            return Err(refuse(
                Status::INVALID_FIELD,
                format!("{len} bytes from byte {offset} of a program of {size}"),
            ));
        }
        let sizes = HEADER_BYTES as u64..=MAX_ENCODED_BYTES as u64;
        if !sizes.contains(&size.into()) {
            return Err(refuse(
                WRONG_SIZE,
                format!("a program of {size} bytes; expected {sizes:?}"),
            ));
        }
        let others = self.slots.iter().enumerate();
        let others = others.filter(|(other, _)| *other != usize::from(index));
        let used: u64 = others
            .filter_map(|(_, slot)| slot.as_ref())
            .map(|slot| u64::from(slot.size()))
            .sum();
        let slot = self.slot(index)?;
        if let Some(Slot::Whole { .. }) = slot {
            let reason = format!("program index {index} has a program; unload it first");
            return Err(refuse(PROGRAM_IN_USE, reason));
        }
        if used + u64::from(size) > room.into() {
            return Err(refuse(
                Status::CAPACITY_EXCEEDED,
                format!(
                    "a program of {size} bytes beside others of {used}; expected at most {room} in all"
                ),
            ));
        }
        let mut bytes = match (slot.take(), offset) {
            (_, 0) => Vec::new(),
            (
                Some(Slot::Partial {
                    name: before,
                    size: whole,
                    bytes,
                }),
                _,
            ) if before == name && whole == size && bytes.len() as u64 == u64::from(offset) => {
                bytes
            }
            _ => {
                return Err(refuse(
                    PART_ORDER,
                    format!(
                        "bytes from byte {offset} of program {index} do not continue it; load it again from byte 0"
                    ),
                ));
            }
        };
        bytes.extend_from_slice(data);
        if end != Some(size) {
            *slot = Some(Slot::Partial { name, size, bytes });
            return Ok(());
        }
        let program =
            decode(&bytes).map_err(|error| refuse(PROGRAM_MALFORMED, error.to_string()))?;
        let mut operands = program
            .instructions()
            .iter()
            .flat_map(Instruction::operands);
        operands.try_for_each(|vr| keys.check_register(vr))?;
        *slot = Some(Slot::Whole {
            name,
            size,
            program: Arc::new(program),
            active: false,
        });
        Ok(())
    }

    fn unload(&mut self, index: u16) -> Result<(), Fault> {
        let slot = self.slot(index)?;
        match slot {
            None => Err(refuse(
                NO_PROGRAM,
                format!("program index {index} is empty"),
            )),
            Some(Slot::Whole { active: true, .. }) => Err(refuse(
                PROGRAM_IN_USE,
                format!("program {index} is active; deactivate it first"),
            )),
            Some(_) => {
                *slot = None;
                Ok(())
            }
        }
    }

    /// Program Activation Management.
    pub(super) fn activate(&mut self, sqe: &Sqe, data: &[u8]) -> Result<(), Fault> {
        expect_data(data, 0)?;
        let index = sqe.cdw10.get() as u16;
        let select = sqe.cdw10.get() >> 16 & 0xF;
        let Some(Slot::Whole {
            program, active, ..
        }) = self.slot(index)?
        else {
            let reason = format!("program index {index} has no whole program");
            return Err(refuse(NO_PROGRAM, reason));
        };
        match select {
            0 if Arc::strong_count(program) > 1 => Err(Fault::passing(
                PROGRAM_IN_USE,
                format!("program {index} is running"),
            )),
            0 | 1 => {
                *active = select == 1;
                Ok(())
            }
            other => Err(refuse(
                Status::INVALID_FIELD,
                format!("selection {other:X}h; expected 0h (deactivate) or 1h (activate)"),
            )),
        }
    }

    /// Memory Range Set Management; gives the identifier of the set.
    pub(super) fn manage_sets(
        &mut self,
        sqe: &Sqe,
        data: &[u8],
        memories: &[Memory],
    ) -> Result<u16, Fault> {
        let dw10 = sqe.cdw10.get();
        match dw10 & 0xF {
            0 => {
                let ranges = ranges(sqe.cdw11.get() & 0xFF, data, memories)?;
                let mut sets = (1..).zip(self.sets.iter_mut());
                let Some((id, set)) = sets.find(|(_, set)| set.is_none()) else {
                    let reason =
                        format!("there are {MAX_RANGE_SETS} memory range sets; delete one");
                    return Err(Fault::passing(TOO_MANY_RANGES, reason));
                };
                *set = Some(ranges);
                Ok(id)
            }
            1 => {
                expect_data(data, 0)?;
                let id = (dw10 >> 16) as u16;
                match set_place(id).and_then(|place| self.sets.get_mut(place)?.take()) {
                    Some(_) => Ok(id),
                    None => Err(no_set(id)),
                }
            }
            other => Err(refuse(
                Status::INVALID_FIELD,
                format!("selection {other:X}h; expected 0h (create) or 1h (delete)"),
            )),
        }
    }

    /// Decodes Execute Program: what is to run on what. Program and ranges are those of now.
    pub(super) fn execution(
        &mut self,
        sqe: &Sqe,
        data: &[u8],
        memories: &[Memory],
    ) -> Result<Execution, Fault> {
        let (index, set) = (sqe.cdw2.get() as u16, (sqe.cdw2.get() >> 16) as u16);
        let own_ranges = sqe.cdw3.get();
        let data_len = sqe.mptr.get() as u32;
        // What Linux passes through has no command dword 4.
        if data_len != 0 && u64::from(data_len) != data.len() as u64 {
            let reason = format!(
                "{} bytes of data; expected the {data_len} of DLEN",
                data.len()
            );
            return Err(refuse(Status::DATA_SGL_LENGTH_INVALID, reason));
        }
        let (name, program) = match self.slot(index)? {
            Some(Slot::Whole {
                name,
                program,
                active: true,
                ..
            }) => (*name, Arc::clone(program)),
            Some(Slot::Whole { .. }) => {
                let reason = format!("program {index} is not activated");
                return Err(Fault::passing(PROGRAM_INACTIVE, reason));
            }
            _ => {
                let reason = format!("program index {index} has no whole program");
                return Err(Fault::passing(NO_PROGRAM, reason));
            }
        };
        let ranges = match (set, own_ranges) {
            (0, 0) => {
                expect_data(data, 0)?;
                Vec::new()
            }
            (0, count) => ranges(count, data, memories)?,
            (id, 0) => {
                expect_data(data, 0)?;
                let set = set_place(id).and_then(|place| self.sets.get(place)?.clone());
                set.ok_or_else(|| no_set(id))?
            }
            _ => {
                return Err(refuse(
                    Status::INVALID_FIELD,
                    "both a memory range set and ranges; expected one of them",
                ));
            }
        };
        let wanted = u64::from(sqe.cdw11.get()) << 32 | u64::from(sqe.cdw10.get());
        let result = u64::from(sqe.cdw13.get()) << 32 | u64::from(sqe.cdw12.get());
        let count = ranges.len() as u64;
        if wanted.checked_shr(count as u32).unwrap_or(0) != 0 || result > count {
            return Err(refuse(
                Status::INVALID_FIELD,
                format!("inputs {wanted:#b} and result {result} of {count} ranges"),
            ));
        }
        let place_of_result = usize::try_from(result).ok().and_then(|n| n.checked_sub(1));
        let ring = match sqe.cdw14.get() {
            0 => None,
            word => Some(RingWay::from_word(word).ok_or_else(|| {
                let reason = format!("form {word:#010x}; expected 0 or a ring set's number");
                refuse(Status::INVALID_FIELD, reason)
            })?),
        };
        let chosen = ranges.iter().enumerate();
        let chosen = chosen.filter(|(place, _)| wanted >> place & 1 == 1);
        let (places, inputs): (Vec<usize>, Vec<Range>) = chosen.unzip();
        Ok(Execution {
            name,
            program,
            inputs,
            result: place_of_result.and_then(|place| ranges.get(place).copied()),
            place: places
                .iter()
                .position(|place| Some(*place) == place_of_result),
            ring,
        })
    }

    /// The Program List.
    pub(super) fn program_list(&self) -> Vec<u8> {
        let mut page = list(MAX_PROGRAMS);
        for slot in &self.slots {
            let mut entry = ProgramDescriptor::new_zeroed();
            if let Some(slot) = slot {
                let active = matches!(slot, Slot::Whole { active: true, .. });
                entry.state = OCCUPIED | if active { ACTIVE } else { 0 } | IDENTIFIER_TYPE << 3;
                entry.program_type = PROGRAM_TYPE;
                entry.identifier = slot.name().to_u64().into();
            }
            page.extend_from_slice(entry.as_bytes());
        }
        page
    }

    /// The Downloadable Program Types List.
    pub(super) fn type_list() -> Vec<u8> {
        let mut page = list(1);
        page.push(PROGRAM_TYPE);
        page.resize(page.len() + 63, 0);
        page
    }

    /// The Memory Range Set List.
    pub(super) fn set_list(&self, memories: &[Memory]) -> Vec<u8> {
        let sets = (1u16..).zip(&self.sets);
        let sets: Vec<_> = sets
            .filter_map(|(id, set)| Some((id, set.as_ref()?)))
            .collect();
        let mut page = list(sets.len());
        for (id, ranges) in sets {
            let mut entry = SetDescriptor::new_zeroed();
            entry.id = id.into();
            entry.ranges = ranges.len() as u8;
            page.extend_from_slice(entry.as_bytes());
            for range in ranges {
                let entry = RangeDescriptor {
                    nsid: memories
                        .get(range.memory)
                        .map_or(0, |memory| memory.nsid)
                        .into(),
                    len: (range.span.len as u32).into(),
                    start: range.span.start.into(),
                    reserved_16: [0; 16],
                };
                page.extend_from_slice(entry.as_bytes());
            }
        }
        page
    }
}

fn set_place(id: u16) -> Option<usize> {
    usize::from(id).checked_sub(1)
}

fn no_set(id: u16) -> Fault {
    refuse(
        NO_RANGE_SET,
        format!("there is not a memory range set {id}"),
    )
}

/// The ranges that a command's data lists, checked.
fn ranges(count: u32, data: &[u8], memories: &[Memory]) -> Result<Vec<Range>, Fault> {
    if count == 0 || count as usize > MAX_RANGES {
        let reason = format!("{count} memory ranges; expected 1 to {MAX_RANGES}");
        return Err(refuse(TOO_MANY_RANGES, reason));
    }
    expect_data(data, u64::from(count) * RANGE_BYTES)?;
    let list = <[RangeDescriptor]>::ref_from_bytes(data).unwrap_or_default();
    let mut ranges: Vec<Range> = Vec::with_capacity(list.len());
    for entry in list {
        let nsid = entry.nsid.get();
        let span = Span {
            start: entry.start.get(),
            len: entry.len.get().into(),
        };
        let wrong =
            |why: String| refuse(MEMORY_RANGE, format!("{span} of namespace {nsid}: {why}"));
        let Some((place, memory)) = memories
            .iter()
            .enumerate()
            .find(|(_, memory)| memory.nsid == nsid)
        else {
            return Err(wrong("no memory namespace".to_owned()));
        };
        if span.len == 0 || !span.is_aligned() {
            return Err(wrong(format!(
                "expected multiples of {GRANULARITY}, not empty"
            )));
        }
        let len = memory.len();
        if span.end().is_none_or(|end| end > len) {
            return Err(wrong(format!("it has {len} bytes")));
        }
        let overlaps = |other: &&Range| {
            other.memory == place
                && other.span.start < span.start + span.len
                && span.start < other.span.start + other.span.len
        };
        if let Some(other) = ranges.iter().find(overlaps) {
            return Err(wrong(format!("overlaps {}", other.span)));
        }
        ranges.push(Range {
            memory: place,
            span,
        });
    }
    Ok(ranges)
}
