//! Log pages (Base Specification 2.x, "Get Log Page") as bytes, and identifiers of log pages and features.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{ErrorInformation, Health, Status};

/// Log page identifiers.
pub mod log_page {
    /// Supported Log Pages.
    pub const SUPPORTED: u8 = 0x00;
    /// Error Information.
    pub const ERRORS: u8 = 0x01;
    /// SMART / Health Information.
    pub const HEALTH: u8 = 0x02;
    /// Firmware Slot Information.
    pub const FIRMWARE: u8 = 0x03;
    /// Changed Attached Namespace List.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands Supported and Effects.
    pub const EFFECTS: u8 = 0x05;
    /// Discovery.
    pub const DISCOVERY: u8 = 0x70;
    /// Program List (Computational Programs command set).
    pub const PROGRAMS: u8 = 0x82;
    /// Downloadable Program Types List (Computational Programs command set).
    pub const PROGRAM_TYPES: u8 = 0x83;
    /// Memory Range Set List (Computational Programs command set).
    pub const MEMORY_RANGE_SETS: u8 = 0x84;
    /// Vendor specific: the reasons of the entries in the Error Information log page, as text.
    pub const REASONS: u8 = 0xC0;
}

/// Feature identifiers.
pub mod feature {
    /// Arbitration.
    pub const ARBITRATION: u8 = 0x01;
    /// Power Management.
    pub const POWER: u8 = 0x02;
    /// Temperature Threshold.
    pub const TEMPERATURE: u8 = 0x04;
    /// Error Recovery.
    pub const ERROR_RECOVERY: u8 = 0x05;
    /// Volatile Write Cache.
    pub const WRITE_CACHE: u8 = 0x06;
    /// Number of Queues.
    pub const QUEUES: u8 = 0x07;
    /// Write Atomicity Normal.
    pub const WRITE_ATOMICITY: u8 = 0x0A;
    /// Asynchronous Event Configuration.
    pub const EVENTS: u8 = 0x0B;
    /// Keep Alive Timer.
    pub const KEEP_ALIVE: u8 = 0x0F;
    /// Host Identifier.
    pub const HOST_IDENTIFIER: u8 = 0x81;
}

/// Composite temperature in kelvin: 25 degrees Celsius, since hosts take 0 K for a broken sensor.
pub(crate) const TEMPERATURE: u16 = 298;

/// Entries of the Error Information log page.
pub(crate) const ERROR_ENTRIES: usize = 64;

#[derive(IntoBytes, KnownLayout, Immutable, Unaligned, zerocopy::FromBytes)]
#[repr(C)]
struct ErrorEntry {
    count: U64,
    sqid: U16,
    cid: U16,
    status: U16,
    parameter: U16,
    lba: U64,
    nsid: U32,
    vendor: u8,
    transport: u8,
    reserved_30: [u8; 2],
    command_specific: U64,
    transport_specific: U16,
    reserved_42: [u8; 22],
}

const _: () = assert!(size_of::<ErrorEntry>() == 64);

/// The Error Information log page: the newest entries first.
pub(crate) fn error_page(errors: &[ErrorInformation]) -> Vec<u8> {
    let mut page = Vec::with_capacity(ERROR_ENTRIES * size_of::<ErrorEntry>());
    for error in errors.iter().take(ERROR_ENTRIES) {
        let mut entry = ErrorEntry::new_zeroed();
        entry.count = error.count.into();
        // The queue is not recorded.
        entry.sqid = 0xFFFF.into();
        entry.cid = error.command.cid;
        entry.status = (error.status.to_field() << 1).into();
        entry.parameter = 0xFFFF.into();
        let slba =
            u64::from(error.command.cdw11.get()) << 32 | u64::from(error.command.cdw10.get());
        entry.lba = slba.into();
        entry.nsid = error.command.nsid;
        entry.transport = 3;
        page.extend_from_slice(entry.as_bytes());
    }
    page.resize(ERROR_ENTRIES * size_of::<ErrorEntry>(), 0);
    page
}

/// The vendor's log page C0h: a line for each entry of the Error Information log page, with its count, command identifier, status field in
/// hexadecimal digits, and reason.
pub(crate) fn reasons_page(errors: &[ErrorInformation]) -> Vec<u8> {
    let mut page = String::new();
    for error in errors.iter().take(ERROR_ENTRIES) {
        // One line each, whatever the reason has in it.
        let reason: String = error
            .reason
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        page += &format!(
            "{} {} {:03x} {reason}\n",
            error.count,
            error.command.cid,
            error.status.to_field()
        );
    }
    page.into_bytes()
}

/// The entries in the vendor's log page C0h: count, status and reason. It skips lines of any other form.
pub fn parse_reasons(page: &[u8]) -> Vec<(u64, Status, String)> {
    let text = String::from_utf8_lossy(page);
    let entry = |line: &str| {
        let mut fields = line.trim_end_matches('\0').splitn(4, ' ');
        let count = fields.next()?.parse().ok()?;
        let _cid: u16 = fields.next()?.parse().ok()?;
        let status = u16::from_str_radix(fields.next()?, 16).ok()?;
        Some((count, Status::from_field(status), fields.next()?.to_owned()))
    };
    text.lines().filter_map(entry).collect()
}

/// The SMART / Health Information log page, 512 bytes. `temperate`: whether the temperature lies between the host's thresholds.
pub(crate) fn health_page(health: &Health, temperate: bool) -> Vec<u8> {
    let mut page = vec![0; 512];
    // Bit 1: the temperature has reached a threshold; bit 3: the medium is read-only.
    page[0] = u8::from(!temperate) << 1 | u8::from(health.read_only) << 3;
    page[1..3].copy_from_slice(&TEMPERATURE.to_le_bytes());
    // Spare blocks available, and the threshold, in per cent.
    page[3..5].copy_from_slice(&[100, 10]);
    // Data units are thousands of 512 bytes, rounded up.
    let unit = |bytes: u64| u128::from(bytes.div_ceil(512_000));
    for (offset, value) in [
        (32, unit(health.bytes_read)),
        (48, unit(health.bytes_written)),
        (64, health.reads.into()),
        (80, health.writes.into()),
        (96, health.busy_minutes.into()),
        (160, health.media_errors.into()),
    ] {
        page[offset..offset + 16].copy_from_slice(&value.to_le_bytes());
    }
    page
}

/// The Firmware Slot Information log page: one slot, active.
pub(crate) fn firmware_page(revision: &str) -> Vec<u8> {
    let mut page = vec![0; 512];
    page[0] = 1;
    page[8..16].fill(b' ');
    let len = revision.len().min(8);
    page[8..8 + len].copy_from_slice(&revision.as_bytes()[..len]);
    page
}

/// The Commands Supported and Effects log page: supported admin and I/O commands, and which I/O commands change data.
pub(crate) fn effects_page(admin: &[u8], io: &[(u8, bool)]) -> Vec<u8> {
    const SUPPORTED: u8 = 1;
    const CHANGES_BLOCKS: u8 = 1 << 1;
    let mut page = vec![0; 4096];
    for opcode in admin {
        page[usize::from(*opcode) * 4] = SUPPORTED;
    }
    for (opcode, changes) in io {
        page[1024 + usize::from(*opcode) * 4] =
            SUPPORTED | if *changes { CHANGES_BLOCKS } else { 0 };
    }
    page
}

/// The Supported Log Pages log page.
pub(crate) fn supported_page(pages: &[u8]) -> Vec<u8> {
    let mut page = vec![0; 1024];
    for id in pages {
        page[usize::from(*id) * 4] = 1;
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sqe;

    fn errors() -> Vec<ErrorInformation> {
        vec![
            ErrorInformation {
                count: 7,
                command: Sqe::write(3, 1, 0x1234, 0),
                status: Status::WRITE_FAULT,
                reason: "the medium\nis worn".into(),
            },
            ErrorInformation {
                count: 6,
                command: Sqe::read(2, 1, 0, 0),
                status: Status::vendor(0xC8),
                reason: "no key".into(),
            },
        ]
    }

    #[test]
    fn layout_of_an_error() {
        let page = error_page(&errors());
        assert_eq!(page.len(), 64 * 64);
        assert_eq!(
            page[..16],
            [7, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 3, 0, 0, 5, 0xFF, 0xFF]
        );
        assert_eq!(page[16..18], [0x34, 0x12]);
        assert_eq!(page[24], 1);
        assert_eq!(page[64], 6);
        assert_eq!(page[128..], [0; 62 * 64]);
    }

    #[test]
    fn reasons_round_trip() {
        let mut page = reasons_page(&errors());
        page.resize(4096, 0);
        assert_eq!(
            parse_reasons(&page),
            [
                (7, Status::WRITE_FAULT, "the medium is worn".to_owned()),
                (6, Status::vendor(0xC8), "no key".to_owned())
            ]
        );
        assert_eq!(parse_reasons(b"\xFF\x00nonsense\n1 2 zz x\n"), []);
    }

    #[test]
    fn health_counts() {
        let health = Health {
            bytes_read: 512_001,
            writes: 300,
            media_errors: 2,
            read_only: true,
            ..Health::default()
        };
        let page = health_page(&health, true);
        assert_eq!(health_page(&health, false)[0], 8 | 2);
        assert_eq!((page[0], page[32], page[48]), (8, 2, 0));
        assert_eq!((page[80], page[81], page[160]), (44, 1, 2));
    }
}
