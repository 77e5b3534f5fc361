//! Identify data structures: controller (CNS 01h) and namespace (CNS 00h), 4096 bytes each.

use thiserror::Error;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::admin::csi;
use crate::{ControllerInfo, Namespace, NamespaceError};

/// Unit of MDTS: the smallest memory page, 4096 bytes (CAP.MPSMIN = 0).
const MDTS_UNIT: u32 = 4096;
/// Version 2.0 of the base specification, as VER codes it.
const VERSION_2_0: u32 = 0x0002_0000;
const NVM_SUBSYSTEM_IO_CONTROLLER: u8 = 1;
const ONCS_COMPARE: u16 = 1;
const ONCS_DATASET_MANAGEMENT: u16 = 1 << 2;
const ONCS_WRITE_ZEROES: u16 = 1 << 3;
/// A volatile write cache is present.
const VWC_PRESENT: u8 = 1;
/// Flush supports the broadcast namespace identifier.
const VWC_FLUSH_BROADCAST: u8 = 0b11 << 1;
/// Metadata is supported in a separate buffer.
const MC_SEPARATE: u8 = 1 << 1;
/// Metadata after the data of its block is supported.
const MC_EXTENDED: u8 = 1;
/// Metadata follows the data of its block.
const FLBAS_EXTENDED: u8 = 1 << 4;
/// Deallocated blocks read as zeroes.
const DLFEAT_ZEROES: u8 = 1;

/// Why an Identify structure is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IdentifyError {
    /// Not 4096 bytes.
    #[error("identify data of {0} bytes; expected 4096")]
    Length(usize),
    /// The namespace is not active: it has no blocks.
    #[error("namespace {0} is not active")]
    Inactive(u32),
    /// The format in use is not in the list of formats.
    #[error("format {index} is in use, but the namespace lists {formats}")]
    FormatIndex {
        /// Index in FLBAS.
        index: u8,
        /// Formats listed (NLBAF + 1).
        formats: u16,
    },
    /// End-to-end protection is on.
    #[error("end-to-end protection (DPS {0:#04x}) is not supported")]
    Protection(u8),
    /// The block size is out of any range.
    #[error("LBA data size 2^{0} is not from 512 to 65536 bytes")]
    DataSize(u8),
    /// The geometry is not supported.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

/// Identify Controller data structure with the fields that a drive needs.
#[derive(Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyController {
    /// PCI vendor id (VID).
    pub vid: U16,
    /// PCI subsystem vendor id (SSVID).
    pub ssvid: U16,
    /// Serial number, ASCII, padded with spaces.
    pub sn: [u8; 20],
    /// Model number, ASCII, padded with spaces.
    pub mn: [u8; 40],
    /// Firmware revision, ASCII, padded with spaces.
    pub fr: [u8; 8],
    /// Recommended arbitration burst.
    pub rab: u8,
    /// IEEE OUI of the vendor.
    pub ieee: [u8; 3],
    /// Multi-path and namespace sharing capabilities.
    pub cmic: u8,
    /// Maximum data transfer size, as a power of two of 4096 bytes; 0 for no limit.
    pub mdts: u8,
    /// Controller identifier.
    pub cntlid: U16,
    /// Version of the specification.
    pub ver: U32,
    reserved_84: [u8; 8],
    /// Optional asynchronous events supported.
    pub oaes: U32,
    /// Controller attributes.
    pub ctratt: U32,
    reserved_100: [u8; 11],
    /// Controller type: 1 for an I/O controller, 2 for a discovery controller.
    pub cntrltype: u8,
    reserved_112: [u8; 144],
    /// Optional admin command support.
    pub oacs: U16,
    /// Abort command limit (0-based).
    pub acl: u8,
    /// Asynchronous event request limit (0-based).
    pub aerl: u8,
    /// Firmware updates.
    pub frmw: u8,
    /// Log page attributes.
    pub lpa: u8,
    /// Error log page entries (0-based).
    pub elpe: u8,
    reserved_263: [u8; 57],
    /// Keep alive support, in units of 100 ms.
    pub kas: U16,
    reserved_322: [u8; 190],
    /// Sizes of a submission queue entry: required (3:0) and maximum (7:4), as powers of two.
    pub sqes: u8,
    /// Sizes of a completion queue entry: required (3:0) and maximum (7:4), as powers of two.
    pub cqes: u8,
    /// Maximum outstanding commands per queue.
    pub maxcmd: U16,
    /// Number of namespaces: the largest namespace identifier that may be in use.
    pub nn: U32,
    /// Optional NVM command support.
    pub oncs: U16,
    /// Fused operation support.
    pub fuses: U16,
    /// Format NVM attributes.
    pub fna: u8,
    /// Volatile write cache (VWC).
    pub vwc: u8,
    /// Atomic write unit normal (0-based).
    pub awun: U16,
    /// Atomic write unit power fail (0-based).
    pub awupf: U16,
    reserved_530: [u8; 6],
    /// SGL support.
    pub sgls: U32,
    reserved_540: [u8; 228],
    /// NVMe qualified name of the subsystem, UTF-8, terminated by a zero byte.
    pub subnqn: [u8; 256],
    reserved_1024: [u8; 768],
    /// Fabrics: capsule size of an I/O command, in 16-byte units.
    pub ioccsz: U32,
    /// Fabrics: capsule size of an I/O response, in 16-byte units.
    pub iorcsz: U32,
    /// Fabrics: offset of in-capsule data, in 16-byte units.
    pub icdoff: U16,
    /// Fabrics: controller attributes.
    pub fcatt: u8,
    /// Fabrics: maximum SGL data block descriptors.
    pub msdbd: u8,
    reserved_1804: [u8; 2292],
}

const _: () = {
    assert!(size_of::<IdentifyController>() == 4096);
    assert!(std::mem::offset_of!(IdentifyController, mdts) == 77);
    assert!(std::mem::offset_of!(IdentifyController, ver) == 80);
    assert!(std::mem::offset_of!(IdentifyController, oaes) == 92);
    assert!(std::mem::offset_of!(IdentifyController, cntrltype) == 111);
    assert!(std::mem::offset_of!(IdentifyController, frmw) == 260);
    assert!(std::mem::offset_of!(IdentifyController, oacs) == 256);
    assert!(std::mem::offset_of!(IdentifyController, kas) == 320);
    assert!(std::mem::offset_of!(IdentifyController, sqes) == 512);
    assert!(std::mem::offset_of!(IdentifyController, nn) == 516);
    assert!(std::mem::offset_of!(IdentifyController, vwc) == 525);
    assert!(std::mem::offset_of!(IdentifyController, sgls) == 536);
    assert!(std::mem::offset_of!(IdentifyController, subnqn) == 768);
    assert!(std::mem::offset_of!(IdentifyController, ioccsz) == 1792);
};

impl IdentifyController {
    /// Describes a controller. Text that is too long is cut, characters outside printable ASCII become `?`; MDTS is rounded
    /// down to a power of two (8192 bytes at least).
    pub fn new(info: &ControllerInfo) -> IdentifyController {
        let mut identify = IdentifyController::new_zeroed();
        pad_ascii(&mut identify.sn, &info.serial);
        pad_ascii(&mut identify.mn, &info.model);
        pad_ascii(&mut identify.fr, &info.firmware);
        // 0 would mean "no limit", so 4096 bytes cannot be coded.
        identify.mdts = (info.mdts_bytes / MDTS_UNIT).max(2).ilog2() as u8;
        identify.ver = VERSION_2_0.into();
        identify.cntrltype = NVM_SUBSYSTEM_IO_CONTROLLER;
        identify.sqes = 0x66;
        identify.cqes = 0x44;
        let largest = info.namespaces.iter().map(Namespace::nsid).max();
        identify.nn = largest.unwrap_or(0).into();
        identify.oncs = (ONCS_COMPARE | ONCS_DATASET_MANAGEMENT | ONCS_WRITE_ZEROES).into();
        identify.vwc = VWC_FLUSH_BROADCAST
            | if info.volatile_write_cache {
                VWC_PRESENT
            } else {
                0
            };
        identify
    }

    /// Takes the structure from the 4096 bytes of an Identify command.
    pub fn parse(bytes: &[u8]) -> Result<IdentifyController, IdentifyError> {
        IdentifyController::read_from_bytes(bytes).map_err(|_| IdentifyError::Length(bytes.len()))
    }

    /// Maximum data transfer size in bytes, 2^31 where the controller states no limit or a larger one.
    pub fn mdts_bytes(&self) -> u32 {
        match self.mdts {
            0 | 20.. => 1 << 31,
            power => MDTS_UNIT << power,
        }
    }

    /// Whether there is a volatile write cache.
    pub fn has_volatile_write_cache(&self) -> bool {
        self.vwc & VWC_PRESENT != 0
    }

    /// Serial number without its padding.
    pub fn serial(&self) -> String {
        unpad_ascii(&self.sn)
    }

    /// Model number without its padding.
    pub fn model(&self) -> String {
        unpad_ascii(&self.mn)
    }

    /// Firmware revision without its padding.
    pub fn firmware(&self) -> String {
        unpad_ascii(&self.fr)
    }
}

/// One LBA format of a namespace.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct LbaFormat {
    /// Metadata bytes per block (MS).
    pub ms: U16,
    /// Block size as a power of two (LBADS).
    pub lbads: u8,
    /// Relative performance (RP), 0 is best.
    pub rp: u8,
}

/// Identify Namespace data structure of the NVM command set, the fields that a drive needs.
#[derive(Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// Namespace size in blocks.
    pub nsze: U64,
    /// Namespace capacity in blocks.
    pub ncap: U64,
    /// Blocks in use.
    pub nuse: U64,
    /// Features.
    pub nsfeat: u8,
    /// Number of LBA formats (0-based).
    pub nlbaf: u8,
    /// Format in use (3:0, and 6:5 above them) and whether its metadata is interleaved (4).
    pub flbas: u8,
    /// Metadata capabilities: interleaved (0), separate buffer (1).
    pub mc: u8,
    /// End-to-end protection capabilities.
    pub dpc: u8,
    /// End-to-end protection in use.
    pub dps: u8,
    /// Multi-path and sharing capabilities.
    pub nmic: u8,
    /// Reservation capabilities.
    pub rescap: u8,
    /// Format progress.
    pub fpi: u8,
    /// Deallocation: what a deallocated block reads as.
    pub dlfeat: u8,
    reserved_34: [u8; 14],
    /// Capacity in bytes.
    pub nvmcap: [u8; 16],
    reserved_64: [u8; 40],
    /// Globally unique identifier.
    pub nguid: [u8; 16],
    /// IEEE extended unique identifier.
    pub eui64: [u8; 8],
    /// LBA formats.
    pub lbaf: [LbaFormat; 64],
    reserved_384: [u8; 3712],
}

const _: () = {
    assert!(size_of::<IdentifyNamespace>() == 4096);
    assert!(std::mem::offset_of!(IdentifyNamespace, flbas) == 26);
    assert!(std::mem::offset_of!(IdentifyNamespace, dlfeat) == 33);
    assert!(std::mem::offset_of!(IdentifyNamespace, nvmcap) == 48);
    assert!(std::mem::offset_of!(IdentifyNamespace, nguid) == 104);
    assert!(std::mem::offset_of!(IdentifyNamespace, lbaf) == 128);
};

impl IdentifyNamespace {
    /// Describes a namespace with its one format. All blocks count as in use.
    pub fn new(namespace: &Namespace) -> IdentifyNamespace {
        let mut identify = IdentifyNamespace::new_zeroed();
        identify.nsze = namespace.blocks().into();
        identify.ncap = identify.nsze;
        identify.nuse = identify.nsze;
        identify.mc = MC_SEPARATE;
        identify.dlfeat = DLFEAT_ZEROES;
        identify.nvmcap = u128::from(namespace.capacity()).to_le_bytes();
        identify.nguid = namespace.nguid();
        identify.lbaf[0] = LbaFormat {
            ms: namespace.metadata_size().into(),
            lbads: namespace.block_size().trailing_zeros() as u8,
            rp: 0,
        };
        identify
    }

    /// Takes the structure from the 4096 bytes of an Identify command.
    pub fn parse(bytes: &[u8]) -> Result<IdentifyNamespace, IdentifyError> {
        IdentifyNamespace::read_from_bytes(bytes).map_err(|_| IdentifyError::Length(bytes.len()))
    }

    /// The same namespace with its metadata behind the data of each block (an extended LBA), as a transport without metadata buffers
    /// needs it.
    pub fn interleaved(mut self) -> IdentifyNamespace {
        self.mc = MC_EXTENDED;
        self.flbas |= FLBAS_EXTENDED;
        self
    }

    /// Whether metadata follows the data of each block.
    pub fn is_interleaved(&self) -> bool {
        self.flbas & FLBAS_EXTENDED != 0
    }

    /// Command set and NGUID in a list of namespace identification descriptors: NVM and zeroes where it does not have them.
    pub fn descriptors(mut list: &[u8]) -> (u8, [u8; 16]) {
        let (mut csi, mut nguid) = (csi::NVM, [0; 16]);
        while let [kind, len, _, _, rest @ ..] = list {
            let Some((value, next)) = rest.split_at_checked(usize::from(*len)) else {
                break;
            };
            if *kind == 0 {
                break;
            }
            match (kind, value) {
                (2, value) => nguid = value.try_into().unwrap_or(nguid),
                (4, [value]) => csi = *value,
                _ => {}
            }
            list = next;
        }
        (csi, nguid)
    }

    /// Geometry of the namespace, whose identifier the structure does not hold.
    pub fn namespace(&self, nsid: u32) -> Result<Namespace, IdentifyError> {
        if self.nsze.get() == 0 {
            return Err(IdentifyError::Inactive(nsid));
        }
        let index = self.flbas & 0xF | (self.flbas >> 5 & 3) << 4;
        let formats = u16::from(self.nlbaf) + 1;
        let format = match self.lbaf.get(usize::from(index)) {
            Some(format) if u16::from(index) < formats => format,
            _ => return Err(IdentifyError::FormatIndex { index, formats }),
        };
        if self.dps & 7 != 0 {
            return Err(IdentifyError::Protection(self.dps));
        }
        let block_size = 1u32
            .checked_shl(u32::from(format.lbads))
            .ok_or(IdentifyError::DataSize(format.lbads))?;
        let namespace = Namespace::new(nsid, block_size, self.nsze.get(), format.ms.get())?;
        Ok(namespace.with_nguid(self.nguid))
    }
}

fn pad_ascii(field: &mut [u8], text: &str) {
    let mut chars = text.chars().map(|c| match c {
        ' '..='~' => c as u8,
        _ => b'?',
    });
    field.fill_with(|| chars.next().unwrap_or(b' '));
}

fn unpad_ascii(field: &[u8]) -> String {
    String::from_utf8_lossy(field)
        .trim_end_matches([' ', '\0'])
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn info() -> ControllerInfo {
        ControllerInfo {
            mdts_bytes: 1 << 20,
            volatile_write_cache: true,
            serial: "SN-0042".into(),
            model: "Computational drive, a name that is far too long".into(),
            firmware: "0.1.0".into(),
            namespaces: vec![Namespace::new(3, 4096, 1000, 64).unwrap()],
            other_namespaces: Vec::new(),
            vendor_statuses: &[],
        }
    }

    #[test]
    fn controller_round_trip() {
        let built = IdentifyController::new(&info());
        let bytes = built.as_bytes();
        assert_eq!(bytes[77], 8);
        assert_eq!(&bytes[4..24], b"SN-0042             ");
        assert_eq!(&bytes[516..520], &[3, 0, 0, 0]);
        assert_eq!(bytes[525], 0b111);
        let parsed = IdentifyController::parse(bytes).unwrap();
        assert_eq!(parsed.mdts_bytes(), 1 << 20);
        assert_eq!(parsed.serial(), "SN-0042");
        assert_eq!(parsed.model(), "Computational drive, a name that is far");
        assert_eq!(parsed.firmware(), "0.1.0");
        assert!(parsed.has_volatile_write_cache());
        assert_eq!(
            IdentifyController::parse(&bytes[1..]).err(),
            Some(IdentifyError::Length(4095))
        );
    }

    #[test]
    fn mdts_without_limit() {
        let mut identify = IdentifyController::new(&info());
        for (mdts, bytes) in [(0, 1 << 31), (1, 8192), (19, 1 << 31), (255, 1 << 31)] {
            identify.mdts = mdts;
            assert_eq!(identify.mdts_bytes(), bytes);
        }
    }

    #[test]
    fn namespace_fields() {
        let namespace = Namespace::new(1, 4096, 0x0102, 64)
            .unwrap()
            .with_nguid([7; 16]);
        let bytes = IdentifyNamespace::new(&namespace).as_bytes().to_vec();
        assert_eq!(&bytes[..8], &[2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[26], 0);
        assert_eq!(bytes[27], 2);
        assert_eq!(&bytes[104..120], &[7; 16]);
        assert_eq!(&bytes[128..132], &[64, 0, 12, 0]);
    }

    #[test]
    fn unsupported_namespaces_are_refused() {
        let good = IdentifyNamespace::new(&Namespace::new(1, 4096, 10, 64).unwrap());
        let with = |edit: fn(&mut IdentifyNamespace)| {
            let mut identify = good.clone();
            edit(&mut identify);
            identify.namespace(1)
        };
        assert!(with(|_| ()).is_ok());
        assert_eq!(with(|i| i.nsze = 0.into()), Err(IdentifyError::Inactive(1)));
        assert_eq!(
            with(|i| i.flbas = 1),
            Err(IdentifyError::FormatIndex {
                index: 1,
                formats: 1
            })
        );
        let interleaved = good.clone().interleaved();
        assert!(interleaved.is_interleaved() && !good.is_interleaved());
        assert_eq!(interleaved.namespace(1), good.namespace(1));
        assert_eq!(with(|i| i.dps = 1), Err(IdentifyError::Protection(1)));
        assert_eq!(
            with(|i| i.lbaf[0].lbads = 200),
            Err(IdentifyError::DataSize(200))
        );
        assert_eq!(
            with(|i| i.lbaf[0].ms = 8.into()),
            Err(NamespaceError::MetadataSize(8).into())
        );
    }

    proptest! {
        #[test]
        fn namespace_round_trip(
            power in 9..=16u32,
            blocks in 1..=1u64 << 46,
            metadata in prop_oneof![Just(0u16), Just(64)],
            nguid: [u8; 16],
        ) {
            let namespace = Namespace::new(9, 1 << power, blocks, metadata).unwrap().with_nguid(nguid);
            let built = IdentifyNamespace::new(&namespace);
            let parsed = IdentifyNamespace::parse(built.as_bytes()).unwrap();
            prop_assert_eq!(parsed.namespace(9), Ok(namespace));
        }

        #[test]
        fn any_bytes_are_a_namespace_or_an_error(mut head in proptest::collection::vec(any::<u8>(), 384)) {
            head.resize(4096, 0);
            let _ = IdentifyNamespace::parse(&head).unwrap().namespace(1);
            let _ = IdentifyController::parse(&head).unwrap().mdts_bytes();
        }
    }
}
