//! An SSD whose first block holds arbitrary bytes either opens as an image that keeps to its own areas, or is refused.
//!
//! The first byte chooses the SSD's block size, and how much of the header is put right: nothing; magic number, version and
//! checksum; or the header of a sound image, of which the input changes single bytes before the checksum is put right.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use toroid_drive::image::{FormatOptions, Image, MetadataMode};
use toroid_drive::ssd::{MemSsd, Ssd, SsdError};
use toroid_fuzz::Input;

const HEADER_BYTES: usize = 512;
const SSD_BYTES: u64 = 1 << 40;

/// An SSD that can be looked at beside the image on it.
struct Shared(Arc<MemSsd>);

impl Ssd for Shared {
    fn block_size(&self) -> u32 {
        self.0.block_size()
    }
    fn blocks(&self) -> u64 {
        self.0.blocks()
    }
    fn read(&self, lba: u64, buf: &mut [u8]) -> Result<(), SsdError> {
        self.0.read(lba, buf)
    }
    fn write(&self, lba: u64, data: &[u8], fua: bool) -> Result<(), SsdError> {
        self.0.write(lba, data, fua)
    }
    fn flush(&self) -> Result<(), SsdError> {
        self.0.flush()
    }
    fn write_zeroes(&self, lba: u64, count: u64) -> Result<(), SsdError> {
        self.0.write_zeroes(lba, count)
    }
}

fn open(ssd: &Arc<MemSsd>) -> Option<Image> {
    match Image::open_on(Box::new(Shared(Arc::clone(ssd)))) {
        Ok(image) => Some(image),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

fn set_crc(block: &mut [u8]) {
    let crc = crc32c::crc32c(&block[..HEADER_BYTES - 4]);
    block[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
}

/// Block 0 of a sound image; always the same.
fn sound(block_size: u32, input: &mut Input) -> Vec<u8> {
    let choice = input.u8();
    let options = FormatOptions {
        block_size,
        size: u64::from(block_size) << (choice & 7) << 4,
        metadata_mode: if choice & 8 == 0 {
            MetadataMode::NvmeMetadata
        } else {
            MetadataMode::SecondHalf
        },
        cluster_blocks: 16,
        swap: u64::from(choice >> 4) * 4096,
        label: "label".into(),
        overwrite: false,
    };
    let ssd = MemSsd::new(block_size, SSD_BYTES / u64::from(block_size));
    let ssd = Arc::new(ssd);
    Image::format_on(Box::new(Shared(Arc::clone(&ssd))), &options).expect("possible sizes");
    let mut block = vec![0; block_size as usize];
    ssd.read(0, &mut block).expect("a block that exists");
    // The identifier is random, and the input must mean the same in every run.
    block[80..96].fill(0xA5);
    block
}

/// An image that opened keeps the promises of its sizes.
fn check(ssd: &Arc<MemSsd>, image: &Image, seed: u8) {
    let info = image.info().clone();
    let block_size = info.block_size() as usize;
    assert_eq!(info.block_size(), ssd.block_size());
    assert!(info.cluster_blocks().is_power_of_two());
    assert!(info.data_blocks() > 0 && info.data_blocks() <= info.blocks());
    assert!(info.label().len() <= 64 && !info.label().chars().any(char::is_control));
    assert_eq!(info.uuid().len(), 36);
    let namespace = info.namespace(1).expect("it is what the drive shows");
    assert_eq!(namespace.blocks(), info.blocks());
    let mut header = vec![0; block_size];
    ssd.read(0, &mut header).expect("block 0");

    let last = info.blocks() - 1;
    let data = vec![seed; block_size];
    let metadata = vec![!seed; usize::from(info.metadata_size())];
    let swap_len = image.swap_len();
    image
        .write_blocks(last, &data, &metadata, seed & 1 != 0)
        .expect("the last block");
    assert!(
        image
            .write_blocks(last + 1, &data, &metadata, false)
            .is_err()
    );
    assert!(
        image
            .write_blocks(u64::MAX, &data, &metadata, false)
            .is_err()
    );
    if swap_len > 0 {
        let len = usize::from(seed).min(swap_len as usize);
        let bytes = vec![0x5A; len];
        image
            .swap_write(swap_len - len as u64, &bytes)
            .expect("the end of the swap area");
        assert!(image.swap_write(swap_len - len as u64 + 1, &bytes).is_err() || len == 0);
        let mut back = vec![0; len];
        image
            .swap_read(swap_len - len as u64, &mut back)
            .expect("the end of the swap area");
        assert_eq!(back, bytes);
    }
    let mut data_back = vec![0; block_size];
    let mut metadata_back = vec![0; metadata.len()];
    image
        .read_blocks(last, &mut data_back, &mut metadata_back)
        .expect("the last block");
    assert!(data_back == data && metadata_back == metadata);
    assert!(
        image
            .read_blocks(last + 1, &mut data_back, &mut metadata_back)
            .is_err()
    );
    image.write_zeroes(last, 1, true).expect("the last block");
    image
        .read_blocks(last, &mut data_back, &mut metadata_back)
        .expect("the last block");
    assert!(
        data_back
            .iter()
            .chain(&metadata_back)
            .all(|byte| *byte == 0)
    );
    image.flush().expect("memory");

    let mut header_after = vec![0; block_size];
    ssd.read(0, &mut header_after).expect("block 0");
    assert!(header == header_after);
    let again = open(ssd).expect("it opened before");
    assert_eq!(again.info(), &info);
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let choice = input.u8();
    let block_size = 512u32 << (choice & 7);
    let mut block = if choice >> 6 == 2 {
        sound(block_size, &mut input)
    } else {
        vec![0; block_size as usize]
    };
    match choice >> 6 {
        0 | 3 => {
            let bytes = input.bytes(HEADER_BYTES);
            block[..bytes.len()].copy_from_slice(bytes);
        }
        1 => {
            let bytes = input.bytes(HEADER_BYTES);
            block[..bytes.len()].copy_from_slice(bytes);
            block[..12].copy_from_slice(b"TOROIDIM\x01\0\0\0");
            set_crc(&mut block);
        }
        _ => {
            while !input.is_empty() {
                // Mostly the fields, which lie in the first 160 bytes.
                let at = usize::from(input.u8());
                block[at] = input.u8();
            }
            set_crc(&mut block);
        }
    }
    let ssd = Arc::new(MemSsd::new(block_size, SSD_BYTES / u64::from(block_size)));
    ssd.write(0, &block, true).expect("block 0 exists");
    if let Some(image) = open(&ssd) {
        check(&ssd, &image, choice ^ data.len() as u8);
    }
});
