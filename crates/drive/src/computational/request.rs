//! The commands as a host sends them.

use toroid_isa::VrNumber;
use toroid_nvme::admin::{cns, csi, opcode as admin_opcode};
use toroid_nvme::fabrics::Sgl;
use toroid_nvme::{Request, Sqe};

use super::{PROGRAM_TYPE, opcode};
use crate::bridge::RingWay;

/// Bytes of a memory namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// The namespace.
    pub nsid: u32,
    /// The first byte, a multiple of 4.
    pub start: u64,
    /// The bytes, a multiple of 4.
    pub len: u32,
}

/// A command with these dwords 10 to 15 and its data, or with room for `reply` bytes. The descriptor says how many bytes move, which transports need.
#[must_use]
pub fn command(opcode: u8, nsid: u32, words: [u32; 6], data: Vec<u8>, reply: u32) -> Request {
    let [cdw10, cdw11, cdw12, cdw13, cdw14, cdw15] = words.map(Into::into);
    let length = if data.is_empty() {
        reply
    } else {
        data.len() as u32
    };
    Request {
        sqe: Sqe {
            opcode,
            nsid: nsid.into(),
            dptr: Sgl::Transport { length }.to_bytes(),
            cdw10,
            cdw11,
            cdw12,
            cdw13,
            cdw14,
            cdw15,
            ..Sqe::default()
        },
        data,
        metadata: Vec::new(),
    }
}

/// Load Program (an admin command): a part of a program of `size` bytes in binary form, from byte `offset` on. `name` is the program
/// register of its key id.
#[must_use]
pub fn load_program(
    nsid: u32,
    index: u16,
    name: VrNumber,
    (size, offset): (u32, u32),
    part: &[u8],
) -> Request {
    let dw10 = u32::from(index) | u32::from(PROGRAM_TYPE) << 16 | 1 << 25;
    let name = name.to_u64();
    let words = [
        dw10,
        size,
        name as u32,
        (name >> 32) as u32,
        part.len() as u32,
        offset,
    ];
    command(admin_opcode::LOAD_PROGRAM, nsid, words, part.to_vec(), 0)
}

/// Load Program (an admin command) that unloads one.
#[must_use]
pub fn unload_program(nsid: u32, index: u16) -> Request {
    let words = [u32::from(index) | 1 << 24, 0, 0, 0, 0, 0];
    command(admin_opcode::LOAD_PROGRAM, nsid, words, Vec::new(), 0)
}

/// Program Activation Management (an admin command).
#[must_use]
pub fn activate_program(nsid: u32, index: u16, active: bool) -> Request {
    let words = [u32::from(index) | u32::from(active) << 16, 0, 0, 0, 0, 0];
    command(admin_opcode::PROGRAM_ACTIVATION, nsid, words, Vec::new(), 0)
}

/// The data of a command that lists ranges.
fn descriptors(ranges: &[MemoryRange]) -> Vec<u8> {
    let mut data = Vec::new();
    for range in ranges {
        data.extend_from_slice(&range.nsid.to_le_bytes());
        data.extend_from_slice(&range.len.to_le_bytes());
        data.extend_from_slice(&range.start.to_le_bytes());
        data.extend_from_slice(&[0; 16]);
    }
    data
}

/// Memory Range Set Management (an admin command) that creates a set.
#[must_use]
pub fn create_range_set(nsid: u32, ranges: &[MemoryRange]) -> Request {
    let words = [0, ranges.len() as u32, 0, 0, 0, 0];
    let opcode = admin_opcode::MEMORY_RANGE_SET;
    command(opcode, nsid, words, descriptors(ranges), 0)
}

/// Memory Range Set Management (an admin command) that deletes a set.
#[must_use]
pub fn delete_range_set(nsid: u32, set: u16) -> Request {
    let words = [1 | u32::from(set) << 16, 0, 0, 0, 0, 0];
    command(admin_opcode::MEMORY_RANGE_SET, nsid, words, Vec::new(), 0)
}

/// Where Identify of the namespace of programs says in which forms programs take and give columns: the first of its bytes for vendors.
pub const FORMS_BYTE: usize = 3072;
/// The bit there of [`in_ring`]: columns of samples become ring columns, and results samples.
pub const CONVERTS: u8 = 1;
/// The bit there of runs in a ring whose first input says which rows count.
pub const LEAVES_OUT: u8 = 1 << 1;

/// An Execute Program command whose program computes in a ring, whatever the forms of its inputs.
#[must_use]
pub fn in_ring(mut request: Request, way: RingWay) -> Request {
    request.sqe.cdw14 = way.to_word().into();
    request
}

fn execution(nsid: u32, data: Vec<u8>, inputs: u64, result: u64) -> Request {
    let words = [
        inputs as u32,
        (inputs >> 32) as u32,
        result as u32,
        (result >> 32) as u32,
        0,
        0,
    ];
    command(opcode::EXECUTE, nsid, words, data, 0)
}

/// Execute Program on a memory range set: its inputs as a bit each, the range of the result from 1 on, or 0 for none.
#[must_use]
pub fn execute_on_set(nsid: u32, index: u16, set: u16, (inputs, result): (u64, u64)) -> Request {
    let mut request = execution(nsid, Vec::new(), inputs, result);
    request.sqe.cdw2 = (u32::from(set) << 16 | u32::from(index)).into();
    request
}

/// Execute Program on ranges that come with the command; inputs and result as in [`execute_on_set`].
#[must_use]
pub fn execute_on_ranges(
    nsid: u32,
    index: u16,
    ranges: &[MemoryRange],
    (inputs, result): (u64, u64),
) -> Request {
    let mut request = execution(nsid, descriptors(ranges), inputs, result);
    request.sqe.cdw2 = u32::from(index).into();
    request.sqe.cdw3 = (ranges.len() as u32).into();
    request.sqe.mptr = (request.data.len() as u64).into();
    request
}

fn on_memory(opcode: u8, nsid: u32, start: u64, len: u32, data: Vec<u8>) -> Request {
    let words = [start as u32, (start >> 32) as u32, len, 0, 0, 0];
    let reply = if data.is_empty() { len } else { 0 };
    command(opcode, nsid, words, data, reply)
}

/// Memory Write; the bytes are a multiple of 4, no more than MDTS.
#[must_use]
pub fn write_memory(nsid: u32, start: u64, data: &[u8]) -> Request {
    on_memory(opcode::WRITE, nsid, start, data.len() as u32, data.to_vec())
}

/// Memory Read; the bytes are a multiple of 4, no more than MDTS.
#[must_use]
pub fn read_memory(range: MemoryRange) -> Request {
    on_memory(opcode::READ, range.nsid, range.start, range.len, Vec::new())
}

/// Identify Namespace of a memory namespace (an admin command), whose first 8 bytes are its size.
#[must_use]
pub fn identify_memory(nsid: u32) -> Request {
    identify(nsid, csi::MEMORY)
}

/// Identify Namespace of a namespace for programs (an admin command), whose byte 6 is how many memory ranges a set of them has at most, and
/// byte [`FORMS_BYTE`] which forms of columns programs take and give.
#[must_use]
pub fn identify_programs(nsid: u32) -> Request {
    identify(nsid, csi::PROGRAMS)
}

fn identify(nsid: u32, set: u8) -> Request {
    let words = [
        u32::from(cns::NAMESPACE_OF_SET),
        u32::from(set) << 24,
        0,
        0,
        0,
        0,
    ];
    command(admin_opcode::IDENTIFY, nsid, words, Vec::new(), 4096)
}
