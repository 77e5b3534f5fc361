//! The header of an image, and where its areas lie.

use std::fmt;

use toroid_nvme::Namespace;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{FormatOptions, ImageError};
use toroid_isa::metadata::ScMetadata;

/// Bytes of the header; the rest of block 0 is zero.
pub(super) const HEADER_SIZE: usize = 512;

const MAGIC: [u8; 8] = *b"TOROIDIM";
const VERSION: u32 = 1;
const LABEL_SIZE: usize = 64;
/// Blocks before the namespace's: the header.
const HEADER_BLOCKS: u64 = 1;

/// How secure computing metadata reaches the drive (platform paper, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataMode {
    /// As NVMe metadata: 64 bytes beside each logical block.
    NvmeMetadata,
    /// In blocks of the second half of the LBA space.
    SecondHalf,
}

impl MetadataMode {
    fn number(self) -> u8 {
        match self {
            MetadataMode::NvmeMetadata => 0,
            MetadataMode::SecondHalf => 1,
        }
    }
}

impl fmt::Display for MetadataMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            MetadataMode::NvmeMetadata => "NVMe metadata",
            MetadataMode::SecondHalf => "second half of the LBA space",
        })
    }
}

/// Geometry and identity of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageInfo {
    block_size: u32,
    blocks: u64,
    metadata_mode: MetadataMode,
    cluster_blocks: u32,
    swap_blocks: u64,
    label: String,
    nguid: [u8; 16],
}

/// First block of each area, and their sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub namespace: u64,
    pub metadata: u64,
    pub metadata_blocks: u64,
    pub swap: u64,
    pub swap_blocks: u64,
    pub total: u64,
}

fn options_error(reason: String) -> ImageError {
    ImageError::Options { reason }
}

impl ImageInfo {
    pub(super) fn new(options: &FormatOptions, mut nguid: [u8; 16]) -> Result<Self, ImageError> {
        let FormatOptions {
            block_size,
            size,
            metadata_mode,
            cluster_blocks,
            ..
        } = *options;
        // Checks the block size before anything is divided by it.
        Namespace::new(1, block_size, 1, 0)?;
        let bytes = u64::from(block_size);
        if !size.is_multiple_of(bytes) {
            return Err(options_error(format!(
                "size {size} is not a multiple of the block size {block_size}"
            )));
        }
        let blocks = match metadata_mode {
            MetadataMode::NvmeMetadata => size / bytes,
            // size / bytes is at most 2^55.
            MetadataMode::SecondHalf => size / bytes * 2,
        };
        // Version 4 and the variant of RFC 9562.
        nguid[6] = nguid[6] & 0x0F | 0x40;
        nguid[8] = nguid[8] & 0x3F | 0x80;
        let info = ImageInfo {
            block_size,
            blocks,
            metadata_mode,
            cluster_blocks,
            swap_blocks: options.swap.div_ceil(bytes),
            label: options.label.clone(),
            nguid,
        };
        info.check().map_err(options_error)?;
        info.layout()?;
        Ok(info)
    }

    fn check(&self) -> Result<(), String> {
        let cluster = u64::from(self.cluster_blocks);
        let data_blocks = self.data_blocks();
        if !cluster.is_power_of_two() {
            return Err(format!(
                "a cluster of {cluster} blocks; expected a power of two"
            ));
        }
        if data_blocks == 0 || !data_blocks.is_multiple_of(cluster) {
            return Err(format!(
                "{data_blocks} blocks of data; expected a multiple of the cluster's {cluster}"
            ));
        }
        if self.metadata_mode == MetadataMode::SecondHalf && !self.blocks.is_power_of_two() {
            return Err(format!(
                "{data_blocks} blocks of data; metadata in the second half needs a power of two"
            ));
        }
        if self.label.len() > LABEL_SIZE || self.label.chars().any(char::is_control) {
            return Err(format!(
                "the label {:?} is longer than {LABEL_SIZE} bytes or has control characters",
                self.label
            ));
        }
        Ok(())
    }

    pub(super) fn layout(&self) -> Result<Layout, ImageError> {
        // Also limits the bytes of data and metadata to 2^63 - 1.
        self.namespace(1)?;
        let bytes = u64::from(self.block_size);
        let metadata_blocks = (self.blocks * u64::from(self.metadata_size())).div_ceil(bytes);
        let metadata = HEADER_BLOCKS + self.blocks;
        let swap = metadata + metadata_blocks;
        let total = swap
            .checked_add(self.swap_blocks)
            .filter(|total| *total <= i64::MAX as u64 / bytes)
            .ok_or_else(|| options_error("the image would exceed 2^63 - 1 bytes".into()))?;
        Ok(Layout {
            namespace: HEADER_BLOCKS,
            metadata,
            metadata_blocks,
            swap,
            swap_blocks: self.swap_blocks,
            total,
        })
    }

    /// The namespace as the host sees it, with the identifier `nsid`.
    ///
    /// # Errors
    /// [`ImageError::Namespace`] for a reserved identifier.
    pub fn namespace(&self, nsid: u32) -> Result<Namespace, ImageError> {
        let namespace = Namespace::new(nsid, self.block_size, self.blocks, self.metadata_size())?;
        Ok(namespace.with_nguid(self.nguid))
    }

    /// Bytes per logical block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Logical blocks of the namespace, the second half included where there is one.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Logical blocks for the user's data: all, or the first half.
    pub fn data_blocks(&self) -> u64 {
        match self.metadata_mode {
            MetadataMode::NvmeMetadata => self.blocks,
            MetadataMode::SecondHalf => self.blocks / 2,
        }
    }

    /// How secure computing metadata reaches the drive.
    pub fn metadata_mode(&self) -> MetadataMode {
        self.metadata_mode
    }

    /// Bytes of NVMe metadata a logical block: 64 or 0.
    pub fn metadata_size(&self) -> u16 {
        match self.metadata_mode {
            MetadataMode::NvmeMetadata => ScMetadata::SIZE as u16,
            MetadataMode::SecondHalf => 0,
        }
    }

    /// Logical blocks per cluster.
    pub fn cluster_blocks(&self) -> u32 {
        self.cluster_blocks
    }

    /// Bytes of the swap area.
    pub fn swap_len(&self) -> u64 {
        self.swap_blocks * u64::from(self.block_size)
    }

    /// The name for people.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Globally unique identifier: the bytes of a random UUID.
    pub fn nguid(&self) -> [u8; 16] {
        self.nguid
    }

    /// The identifier as text.
    pub fn uuid(&self) -> String {
        let hex = |range: std::ops::Range<usize>| -> String {
            self.nguid[range]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect()
        };
        [hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)].join("-")
    }
}

/// The header on the medium.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Header {
    magic: [u8; 8],
    version: U32,
    block_size: U32,
    metadata_mode: u8,
    reserved_17: [u8; 3],
    cluster_blocks: U32,
    blocks: U64,
    namespace: U64,
    metadata: U64,
    metadata_blocks: U64,
    swap: U64,
    swap_blocks: U64,
    total: U64,
    nguid: [u8; 16],
    label: [u8; LABEL_SIZE],
    reserved_160: [u8; 348],
    crc: U32,
}

const _: () = {
    assert!(size_of::<Header>() == HEADER_SIZE);
    assert!(std::mem::offset_of!(Header, label) == 96);
    assert!(std::mem::offset_of!(Header, crc) == 508);
};

impl Header {
    pub(super) fn new(info: &ImageInfo, layout: &Layout) -> Header {
        let mut label = [0; LABEL_SIZE];
        for (to, from) in label.iter_mut().zip(info.label.bytes()) {
            *to = from;
        }
        let mut header = Header {
            magic: MAGIC,
            version: VERSION.into(),
            block_size: info.block_size.into(),
            metadata_mode: info.metadata_mode.number(),
            reserved_17: [0; 3],
            cluster_blocks: info.cluster_blocks.into(),
            blocks: info.blocks.into(),
            namespace: layout.namespace.into(),
            metadata: layout.metadata.into(),
            metadata_blocks: layout.metadata_blocks.into(),
            swap: layout.swap.into(),
            swap_blocks: layout.swap_blocks.into(),
            total: layout.total.into(),
            nguid: info.nguid,
            label,
            reserved_160: [0; 348],
            crc: 0.into(),
        };
        header.crc = header.checksum().into();
        header
    }

    pub(super) fn to_bytes(&self) -> [u8; HEADER_SIZE] {
        let bytes: &[u8; HEADER_SIZE] = zerocopy::transmute_ref!(self);
        *bytes
    }

    fn checksum(&self) -> u32 {
        let bytes = self.as_bytes();
        crc32c::crc32c(&bytes[..bytes.len() - size_of::<U32>()])
    }

    pub(super) fn parse(bytes: &[u8; HEADER_SIZE]) -> Result<(ImageInfo, Layout), ImageError> {
        let header: &Header = zerocopy::transmute_ref!(bytes);
        if header.magic != MAGIC {
            return Err(ImageError::Foreign);
        }
        // The version comes before the checksum, whose place a later version may change.
        if header.version != VERSION {
            return Err(ImageError::Version {
                found: header.version.get(),
            });
        }
        let computed = header.checksum();
        if header.crc != computed {
            return Err(ImageError::Checksum {
                stored: header.crc.get(),
                computed,
            });
        }
        let info = header
            .info()
            .map_err(|reason| ImageError::Header { reason })?;
        let inconsistent = |error: ImageError| ImageError::Header {
            reason: match error {
                ImageError::Namespace(error) => error.to_string(),
                other => other.to_string(),
            },
        };
        let layout = info.layout().map_err(inconsistent)?;
        let stored = Layout {
            namespace: header.namespace.get(),
            metadata: header.metadata.get(),
            metadata_blocks: header.metadata_blocks.get(),
            swap: header.swap.get(),
            swap_blocks: header.swap_blocks.get(),
            total: header.total.get(),
        };
        if stored != layout {
            return Err(ImageError::Header {
                reason: format!("its areas are {stored:?}; its sizes give {layout:?}"),
            });
        }
        Ok((info, layout))
    }

    fn info(&self) -> Result<ImageInfo, String> {
        let metadata_mode = [MetadataMode::NvmeMetadata, MetadataMode::SecondHalf]
            .into_iter()
            .find(|mode| mode.number() == self.metadata_mode)
            .ok_or_else(|| format!("metadata mode {}; expected 0 or 1", self.metadata_mode))?;
        let end = self.label.iter().position(|&byte| byte == 0);
        let label = &self.label[..end.unwrap_or(LABEL_SIZE)];
        let label = std::str::from_utf8(label).map_err(|_| "the label is not UTF-8".to_owned())?;
        let info = ImageInfo {
            block_size: self.block_size.get(),
            blocks: self.blocks.get(),
            metadata_mode,
            cluster_blocks: self.cluster_blocks.get(),
            swap_blocks: self.swap_blocks.get(),
            label: label.to_owned(),
            nguid: self.nguid,
        };
        info.check().map(|()| info)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(edit: impl FnOnce(&mut Header)) -> Result<(ImageInfo, Layout), ImageError> {
        let options = FormatOptions {
            size: 1 << 20,
            label: "höhe".into(),
            ..FormatOptions::default()
        };
        let info = ImageInfo::new(&options, [0xAA; 16]).unwrap();
        let mut header = Header::new(&info, &info.layout().unwrap());
        edit(&mut header);
        header.crc = header.checksum().into();
        Header::parse(&header.to_bytes())
    }

    #[test]
    fn round_trip() {
        let (info, layout) = header(|_| ()).unwrap();
        assert_eq!(info.label(), "höhe");
        assert_eq!(info.uuid(), "aaaaaaaa-aaaa-4aaa-aaaa-aaaaaaaaaaaa");
        assert_eq!(info.blocks(), 256);
        // 256 blocks have 16 KiB of metadata.
        assert_eq!(
            (layout.metadata, layout.metadata_blocks, layout.swap),
            (257, 4, 261)
        );
        assert_eq!(layout.total, 261 + (1 << 18));
    }

    #[test]
    fn inconsistent_headers_are_refused() {
        let edits: [fn(&mut Header); 14] = [
            |h| h.block_size = 0.into(),
            |h| h.block_size = 4097.into(),
            |h| h.blocks = 0.into(),
            |h| h.blocks = u64::MAX.into(),
            |h| h.blocks = (1 << 51).into(),
            |h| h.swap_blocks = u64::MAX.into(),
            |h| h.swap_blocks = 7.into(),
            |h| h.cluster_blocks = 0.into(),
            |h| h.cluster_blocks = 512.into(),
            |h| h.metadata_mode = 2,
            |h| h.metadata_mode = 1,
            |h| h.namespace = 2.into(),
            |h| h.label[0] = 0xFF,
            |h| h.label[0] = b'\n',
        ];
        for (i, edit) in edits.into_iter().enumerate() {
            let result = header(edit);
            assert!(
                matches!(result, Err(ImageError::Header { .. })),
                "edit {i}: {result:?}"
            );
        }
    }

    #[test]
    fn magic_version_and_checksum() {
        assert!(matches!(
            header(|h| h.magic[0] = 0),
            Err(ImageError::Foreign)
        ));
        assert!(matches!(
            header(|h| h.version = 2.into()),
            Err(ImageError::Version { found: 2 })
        ));
        let info = ImageInfo::new(&FormatOptions::default(), [0; 16]).unwrap();
        let good = Header::new(&info, &info.layout().unwrap()).to_bytes();
        for byte in 12..HEADER_SIZE {
            let mut bad = good;
            bad[byte] ^= 0x10;
            assert!(
                matches!(Header::parse(&bad), Err(ImageError::Checksum { .. })),
                "byte {byte}"
            );
        }
    }

    #[test]
    fn impossible_options_are_refused() {
        let make = |edit: fn(&mut FormatOptions)| {
            let mut options = FormatOptions::default();
            edit(&mut options);
            ImageInfo::new(&options, [0; 16])
        };
        assert!(make(|_| ()).is_ok());
        assert!(make(|o| o.size = 3 << 20).is_ok());
        let bad: [fn(&mut FormatOptions); 13] = [
            |o| o.block_size = 0,
            |o| o.block_size = 1000,
            |o| o.block_size = 1 << 17,
            |o| o.size = 0,
            |o| o.size = 4095,
            |o| o.size = 4096,
            |o| o.size = u64::MAX - 4095,
            |o| o.cluster_blocks = 0,
            |o| o.cluster_blocks = 3,
            |o| o.swap = u64::MAX,
            |o| o.label = "x".repeat(65),
            |o| o.label = "a\0b".into(),
            |o| {
                o.metadata_mode = MetadataMode::SecondHalf;
                o.size = 3 << 20;
            },
        ];
        for (i, edit) in bad.into_iter().enumerate() {
            assert!(make(edit).is_err(), "edit {i}");
        }
    }

    #[test]
    fn second_half_doubles_the_space() {
        let options = FormatOptions {
            size: 1 << 20,
            metadata_mode: MetadataMode::SecondHalf,
            ..FormatOptions::default()
        };
        let info = ImageInfo::new(&options, [0; 16]).unwrap();
        assert_eq!((info.blocks(), info.data_blocks()), (512, 256));
        assert_eq!(info.namespace(1).unwrap().metadata_size(), 0);
        let layout = info.layout().unwrap();
        assert_eq!((layout.metadata_blocks, layout.swap), (0, 513));
    }

    proptest! {
        #[test]
        fn any_header_is_refused_or_consistent(
            head in proptest::collection::vec(any::<u8>(), HEADER_SIZE),
            block_power in 8..18u32,
            mode in 0..3u8,
            blocks in prop_oneof![any::<u64>(), (0..60u32).prop_map(|power| 1 << power)],
        ) {
            let mut header = Header::read_from_bytes(&head[..]).unwrap();
            header.magic = MAGIC;
            header.version = VERSION.into();
            header.block_size = (1 << block_power).into();
            header.metadata_mode = mode;
            header.cluster_blocks = 1.into();
            header.blocks = blocks.into();
            header.label = [0; LABEL_SIZE];
            header.crc = header.checksum().into();
            if let Ok((info, layout)) = Header::parse(&header.to_bytes()) {
                prop_assert_eq!(info.layout().unwrap(), layout);
            }
        }
    }
}
