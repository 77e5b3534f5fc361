//! The binary form of programs.
//!
//! All integers are little-endian.
//!
//! | bytes | field | meaning |
//! | --- | --- | --- |
//! | 0-3 | magic | `TSCP` |
//! | 4-5 | version | 1 |
//! | 6-7 | reserved | 0 |
//! | 8-11 | count | number of instructions, at most 2^20 |
//! | 12-15 | CRC-32C | of every byte from 16 on |
//! | 16 + 24 i | instruction i | |
//!
//! An instruction is a record of 24 bytes:
//!
//! | bytes | field | meaning |
//! | --- | --- | --- |
//! | 0 | opcode | the number of the instruction |
//! | 1-3 | reserved | 0 |
//! | 4-7 | argument 3 | a number of rows; 0 where the instruction has no third operand |
//! | 8-15 | argument 1 | a virtual register number |
//! | 16-23 | argument 2 | a virtual register number; a factor or summand, sign-extended from 32 bits; a number of rows; 0 where there is no second operand |
//!
//! Nothing follows the last record. There is one form of each program: what the decoder accepts encodes to the same bytes.

use crate::program::{Form, Instruction, MAX_INSTRUCTIONS, Operand, Program, Role};
use crate::vr::{VrError, VrNumber};

const MAGIC: [u8; 4] = *b"TSCP";
const VERSION: u16 = 1;

/// The length of the header, in bytes.
pub const HEADER_BYTES: usize = 16;
/// The length of an instruction's record, in bytes.
pub const RECORD_BYTES: usize = 24;
/// The length of the longest program in binary form, in bytes.
pub const MAX_ENCODED_BYTES: usize = HEADER_BYTES + MAX_INSTRUCTIONS * RECORD_BYTES;

/// Why bytes are not a program in binary form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The header is cut short.
    #[error(
        "the program is cut short: {found} bytes found, {HEADER_BYTES} expected for the header alone"
    )]
    HeaderTooShort {
        /// The number of bytes there are.
        found: usize,
    },
    /// The bytes do not begin with the magic.
    #[error("not a program: {found:02x?} found at byte 0, {MAGIC:02x?} (`TSCP`) expected")]
    Magic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// The version is one that this decoder does not know.
    #[error("program version {found} found at byte 4, {VERSION} expected")]
    Version {
        /// The version.
        found: u16,
    },
    /// The reserved field of the header is not zero.
    #[error("{found:#06x} found in the reserved bytes 6-7, 0 expected")]
    HeaderReserved {
        /// The field.
        found: u16,
    },
    /// The count is over the limit.
    #[error("{found} instructions found at byte 8, at most {MAX_INSTRUCTIONS} expected")]
    TooManyInstructions {
        /// The count.
        found: u32,
    },
    /// The number of bytes is not what the count says: cut short, or with something after the last record.
    #[error("{found} bytes found, {expected} expected for {count} instructions")]
    Length {
        /// The count.
        count: u32,
        /// The number of bytes that the count asks for.
        expected: usize,
        /// The number of bytes there are.
        found: usize,
    },
    /// The checksum does not fit the records.
    #[error(
        "the program is damaged: CRC-32C {found:#010x} found at byte 12, {expected:#010x} expected"
    )]
    Checksum {
        /// The checksum of the records.
        expected: u32,
        /// The checksum in the header.
        found: u32,
    },
    /// No instruction has this opcode.
    #[error(
        "instruction {index} (byte {offset}): opcode {found} found, 0 to {} expected",
        Instruction::FORMS.len() - 1
    )]
    Opcode {
        /// The index of the instruction.
        index: usize,
        /// The offset of the field.
        offset: usize,
        /// The opcode.
        found: u8,
    },
    /// A reserved byte of a record is not zero.
    #[error(
        "instruction {index} (byte {offset}): {found:#04x} found in a reserved byte, 0 expected"
    )]
    Reserved {
        /// The index of the instruction.
        index: usize,
        /// The offset of the byte.
        offset: usize,
        /// The byte.
        found: u8,
    },
    /// An argument is not a virtual register number.
    #[error("instruction {index} (byte {offset}): argument {argument} is {found:#018x}: {reason}")]
    Register {
        /// The index of the instruction.
        index: usize,
        /// The offset of the argument.
        offset: usize,
        /// 1 or 2.
        argument: u8,
        /// The argument.
        found: u64,
        /// What is wrong with it.
        reason: VrError,
    },
    /// The second argument of an instruction that has only one is not zero.
    #[error(
        "instruction {index} (byte {offset}): {found:#018x} found where the instruction has no argument 2, 0 expected"
    )]
    UnusedArgument {
        /// The index of the instruction.
        index: usize,
        /// The offset of the argument.
        offset: usize,
        /// The argument.
        found: u64,
    },
    /// A number of rows does not fit 32 bits.
    #[error("instruction {index} (byte {offset}): {found} rows found, at most 4294967295 expected")]
    Count {
        /// The index of the instruction.
        index: usize,
        /// The offset of the field.
        offset: usize,
        /// The number.
        found: u64,
    },
    /// A factor or summand does not fit 32 bits.
    #[error(
        "instruction {index} (byte {offset}): factor {found} found, -2147483648 to 2147483647 expected"
    )]
    Factor {
        /// The index of the instruction.
        index: usize,
        /// The offset of the argument.
        offset: usize,
        /// The factor.
        found: i64,
    },
}

/// The binary form of the program: [`HEADER_BYTES`] + [`RECORD_BYTES`] · instructions bytes, laid out as `docs/reference/isa.md` says.
pub fn encode(program: &Program) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + program.len() * RECORD_BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&0u16.to_le_bytes());
    // `Program` holds at most 2^20 instructions.
    bytes.extend_from_slice(&(program.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    for instruction in program.instructions() {
        let mut words = [u64::from(instruction.opcode()), 0, 0];
        for (place, (_, operand)) in instruction.roles().enumerate() {
            let word = match operand {
                Operand::Register(vr) => vr.to_u64(),
                Operand::Factor(factor) => i64::from(factor) as u64,
                Operand::Count(count) => u64::from(count),
            };
            match words.get_mut(place + 1) {
                Some(field) => *field = word,
                // The third operand stands behind the opcode.
                None => words[0] |= word << 32,
            }
        }
        for word in words {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    let crc = crc32c::crc32c(&bytes[HEADER_BYTES..]);
    bytes[12..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Reads a program in binary form. Takes memory in proportion to `bytes`, whatever they say.
///
/// # Errors
/// The first thing that is wrong, with its offset and instruction.
pub fn decode(bytes: &[u8]) -> Result<Program, DecodeError> {
    let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(DecodeError::HeaderTooShort { found: bytes.len() });
    };
    let [
        m0,
        m1,
        m2,
        m3,
        v0,
        v1,
        r0,
        r1,
        n0,
        n1,
        n2,
        n3,
        c0,
        c1,
        c2,
        c3,
    ] = *header;
    let magic = [m0, m1, m2, m3];
    if magic != MAGIC {
        return Err(DecodeError::Magic { found: magic });
    }
    let version = u16::from_le_bytes([v0, v1]);
    if version != VERSION {
        return Err(DecodeError::Version { found: version });
    }
    let reserved = u16::from_le_bytes([r0, r1]);
    if reserved != 0 {
        return Err(DecodeError::HeaderReserved { found: reserved });
    }
    let count = u32::from_le_bytes([n0, n1, n2, n3]);
    if count as usize > MAX_INSTRUCTIONS {
        return Err(DecodeError::TooManyInstructions { found: count });
    }
    let expected = HEADER_BYTES + count as usize * RECORD_BYTES;
    if bytes.len() != expected {
        return Err(DecodeError::Length {
            count,
            expected,
            found: bytes.len(),
        });
    }
    let found = u32::from_le_bytes([c0, c1, c2, c3]);
    let expected = crc32c::crc32c(body);
    if found != expected {
        return Err(DecodeError::Checksum { expected, found });
    }
    let (records, _) = body.as_chunks::<RECORD_BYTES>();
    let instructions = records
        .iter()
        .enumerate()
        .map(|(index, record)| decode_record(index, record))
        .collect::<Result<_, _>>()?;
    Program::new(instructions).map_err(|_| DecodeError::TooManyInstructions { found: count })
}

fn decode_record(index: usize, record: &[u8; RECORD_BYTES]) -> Result<Instruction, DecodeError> {
    let offset = HEADER_BYTES + index * RECORD_BYTES;
    let (words, _) = record.as_chunks::<8>();
    let word = |i: usize| words.get(i).map_or(0, |word| u64::from_le_bytes(*word));
    let [opcode, reserved @ .., t0, t1, t2, t3] = word(0).to_le_bytes();
    let third = u32::from_le_bytes([t0, t1, t2, t3]);
    let register = |argument: u8| {
        let found = word(usize::from(argument));
        VrNumber::from_u64(found).map_err(|reason| DecodeError::Register {
            index,
            offset: offset + 8 * usize::from(argument),
            argument,
            found,
            reason,
        })
    };
    let unknown = DecodeError::Opcode {
        index,
        offset,
        found: opcode,
    };
    let Form { roles, make, .. } = Instruction::FORMS
        .get(usize::from(opcode))
        .ok_or(unknown.clone())?;
    let unused = if roles.len() < 3 {
        [t0, t1, t2, t3]
    } else {
        [0; 4]
    };
    let zeros = reserved.iter().chain(&unused);
    if let Some((i, &found)) = zeros.enumerate().find(|(_, byte)| **byte != 0) {
        return Err(DecodeError::Reserved {
            index,
            offset: offset + 1 + i,
            found,
        });
    }
    // Operands that are not registers come last and are checked first.
    let mut second = None;
    match (roles.get(1), word(2)) {
        (Some(Role::Factor), found) => {
            let found = found as i64;
            let factor = i32::try_from(found).map_err(|_| DecodeError::Factor {
                index,
                offset: offset + 16,
                found,
            })?;
            second = Some(Operand::Factor(factor));
        }
        (Some(Role::Count), found) => {
            let count = u32::try_from(found).map_err(|_| DecodeError::Count {
                index,
                offset: offset + 16,
                found,
            })?;
            second = Some(Operand::Count(count));
        }
        (Some(_), _) | (None, 0) => {}
        (None, found) => {
            return Err(DecodeError::UnusedArgument {
                index,
                offset: offset + 16,
                found,
            });
        }
    }
    let mut operands = Vec::with_capacity(3);
    for (argument, _) in (1..).zip(*roles) {
        operands.push(match (argument, second) {
            (3, _) => Operand::Count(third),
            (2, Some(number)) => number,
            _ => Operand::Register(register(argument)?),
        });
    }
    make(&operands).ok_or(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vr::VrType;

    fn sample() -> Vec<u8> {
        let cor = |data| VrNumber::new(VrType::LweCor, 1, data).unwrap();
        encode(
            &Program::new(vec![
                Instruction::Move {
                    dst: cor(0),
                    src: cor(1),
                },
                Instruction::HomIntMult { n: cor(0), v: -2 },
                Instruction::Return { n: cor(0) },
            ])
            .unwrap(),
        )
    }

    fn sealed(edit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = sample();
        edit(&mut bytes);
        let crc = crc32c::crc32c(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn layout_is_the_documented_one() {
        let bytes = sample();
        assert_eq!(bytes.len(), 16 + 3 * 24);
        assert_eq!(&bytes[..12], b"TSCP\x01\x00\x00\x00\x03\x00\x00\x00");
        assert_eq!(&bytes[16..24], [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&bytes[24..32], [0, 0, 0, 0, 1, 0, 0, 3]);
        assert_eq!(&bytes[32..40], [1, 0, 0, 0, 1, 0, 0, 3]);
        assert_eq!(
            &bytes[56..64],
            [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]
        );
        assert_eq!(encode(&decode(&bytes).unwrap()), bytes);
        assert!(decode(&encode(&Program::default())).unwrap().is_empty());
    }

    #[test]
    fn a_third_operand_stands_behind_the_opcode() {
        let cor = |data| VrNumber::new(VrType::LweCor, 0, data).unwrap();
        let (lower, upper) = (cor(1), cor(2));
        let d = 0x0102_0304;
        let program = Program::new(vec![
            Instruction::Join { lower, upper, d },
            Instruction::HomSum { n: lower, g: 5 },
        ])
        .unwrap();
        let bytes = encode(&program);
        assert_eq!(&bytes[16..24], [12, 0, 0, 0, 4, 3, 2, 1]);
        assert_eq!(&bytes[32..40], [2, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(&bytes[40..48], [9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&bytes[56..64], [5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode(&bytes).unwrap(), program);
    }

    #[test]
    fn every_malformation_has_its_error() {
        let at = |offset: usize, value: u8| sealed(|bytes| bytes[offset] = value);
        let cases = [
            (
                sample()[..15].to_vec(),
                "15 bytes found, 16 expected for the header",
            ),
            (
                at(0, b'X'),
                "not a program: [58, 53, 43, 50] found at byte 0, [54, 53, 43, 50]",
            ),
            (at(4, 2), "program version 2 found at byte 4, 1 expected"),
            (at(7, 1), "0x0100 found in the reserved bytes 6-7"),
            (
                at(11, 1),
                "16777219 instructions found at byte 8, at most 1048576",
            ),
            (
                sealed(|bytes| bytes.truncate(87)),
                "87 bytes found, 88 expected for 3 instructions",
            ),
            (
                sealed(|bytes| bytes.push(0)),
                "89 bytes found, 88 expected for 3 instructions",
            ),
            (
                at(16, 13),
                "instruction 0 (byte 16): opcode 13 found, 0 to 12 expected",
            ),
            (
                at(42, 9),
                "instruction 1 (byte 42): 0x09 found in a reserved byte",
            ),
            (
                at(47, 1),
                "instruction 1 (byte 47): 0x01 found in a reserved byte",
            ),
            (
                sealed(|bytes| bytes[40] = 9),
                "instruction 1 (byte 56): 18446744073709551614 rows found, at most 4294967295",
            ),
            (
                at(31, 5),
                "instruction 0 (byte 24): argument 1 is 0x0500000100000000: virtual register type 5",
            ),
            (
                at(39, 9),
                "instruction 0 (byte 32): argument 2 is 0x0900000100000001: virtual register type 9",
            ),
            (
                at(80, 7),
                "instruction 2 (byte 80): 0x0000000000000007 found where the instruction has no argument 2",
            ),
            (
                at(60, 0),
                "instruction 1 (byte 56): factor -1095216660482 found",
            ),
        ];
        for (bytes, expected) in cases {
            let message = decode(&bytes).unwrap_err().to_string();
            assert!(
                message.contains(expected),
                "{message:?} does not say {expected:?}"
            );
        }
        let mut damaged = sample();
        damaged[40] ^= 1;
        assert!(matches!(
            decode(&damaged),
            Err(DecodeError::Checksum { .. })
        ));
    }
}
