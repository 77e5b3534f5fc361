//! Drive images: making and opening them, their blocks, metadata and swap area, and failures on the way.

#![allow(clippy::unwrap_used)]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use proptest::prelude::*;
use toroid_drive::image::{self, FormatOptions, Image, ImageError, MetadataMode};
use toroid_drive::ssd::{Fault, MemSsd, Ssd, SsdError};
use toroid_nvme::Status;

const BLOCK: usize = 512;

fn small() -> FormatOptions {
    FormatOptions {
        block_size: BLOCK as u32,
        size: 64 * BLOCK as u64,
        cluster_blocks: 4,
        swap: 16 * BLOCK as u64,
        label: "small".into(),
        ..FormatOptions::default()
    }
}

/// Blocks of a small image: header, 64 of data, 8 of metadata, 16 of swap.
const SMALL_BLOCKS: u64 = 1 + 64 + 8 + 16;

/// A memory SSD that the test can still reach when an image has it.
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

fn small_image() -> (Arc<MemSsd>, Image) {
    let ssd = Arc::new(MemSsd::new(BLOCK as u32, SMALL_BLOCKS));
    let image = Image::format_on(Box::new(Shared(ssd.clone())), &small()).unwrap();
    (ssd, image)
}

fn read(image: &Image, lba: u64, count: usize) -> (Vec<u8>, Vec<u8>) {
    let mut data = vec![0xEE; count * BLOCK];
    let mut metadata = vec![0xEE; count * usize::from(image.info().metadata_size())];
    image.read_blocks(lba, &mut data, &mut metadata).unwrap();
    (data, metadata)
}

fn write(image: &Image, lba: u64, count: usize, byte: u8) -> Result<(), SsdError> {
    image.write_blocks(
        lba,
        &vec![byte; count * BLOCK],
        &vec![byte; count * 64],
        false,
    )
}

fn temporary() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive.img");
    (directory, path)
}

#[test]
fn an_image_without_metadata_ends_with_its_blocks() {
    let options = FormatOptions {
        metadata_mode: MetadataMode::SecondHalf,
        size: 4096 * BLOCK as u64,
        swap: 0,
        ..small()
    };
    let ssd = MemSsd::new(BLOCK as u32, 1 + 2 * 4096);
    let image = Image::format_on(Box::new(ssd), &options).unwrap();
    let last = image.info().blocks() - 1;
    assert_eq!(last, 2 * 4096 - 1);
    image.write_blocks(last, &[1; BLOCK], &[], true).unwrap();
    assert_eq!(read(&image, last, 1), (vec![1; BLOCK], Vec::new()));
}

#[test]
fn a_large_image_takes_no_space() {
    let (_directory, path) = temporary();
    let options = FormatOptions {
        size: 64 << 30,
        label: "large".into(),
        ..FormatOptions::default()
    };
    let made = image::format(&path, &options).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    // 64 GiB of data, 1 GiB of metadata, 1 GiB of swap, a header.
    assert_eq!(metadata.len(), (66 << 30) + 4096);
    assert!(metadata.blocks() * 512 < 1 << 20);
    assert_eq!(image::info(&path).unwrap(), made);
    assert_eq!(made.label(), "large");
    assert_eq!(made.blocks(), 16 << 20);
    assert_eq!(made.swap_len(), 1 << 30);

    let image = Image::open(&path).unwrap();
    let last = image.info().blocks() - 1;
    image
        .write_blocks(last, &[3; 4096], &[4; 64], true)
        .unwrap();
    image
        .swap_write(image.swap_len() - 4096, &[5; 4096])
        .unwrap();
    drop(image);
    let image = Image::open(&path).unwrap();
    let (mut data, mut metadata) = ([0; 4096], [0; 64]);
    image.read_blocks(last, &mut data, &mut metadata).unwrap();
    assert_eq!((data, metadata), ([3; 4096], [4; 64]));
    image.swap_read(image.swap_len() - 4096, &mut data).unwrap();
    assert_eq!(data, [5; 4096]);
    image.swap_clear().unwrap();
    image.swap_read(image.swap_len() - 4096, &mut data).unwrap();
    assert_eq!(data, [0; 4096]);
}

#[test]
fn images_differ_in_their_identifier() {
    let (_, a) = small_image();
    let (_, b) = small_image();
    assert_ne!(a.info().nguid(), b.info().nguid());
    assert_eq!(a.info().namespace(1).unwrap().nguid(), a.info().nguid());
    assert_eq!(a.info().uuid().len(), 36);
}

#[test]
fn an_image_is_open_once() {
    let (_directory, path) = temporary();
    image::format(&path, &small()).unwrap();
    let first = Image::open(&path).unwrap();
    assert!(matches!(Image::open(&path), Err(ImageError::Locked { .. })));
    let again = FormatOptions {
        overwrite: true,
        ..small()
    };
    assert!(matches!(
        image::format(&path, &again),
        Err(ImageError::Locked { .. })
    ));
    assert_eq!(&image::info(&path).unwrap(), first.info());
    drop(first);
    Image::open(&path).unwrap();
}

#[test]
fn an_image_that_is_only_read_is_never_written() {
    let (_directory, path) = temporary();
    image::format(&path, &small()).unwrap();
    write(&Image::open(&path).unwrap(), 0, 1, 9).unwrap();
    let before = (
        fs::read(&path).unwrap(),
        fs::metadata(&path).unwrap().mtime_nsec(),
    );
    let first = Image::open_read_only(&path).unwrap();
    let second = Image::open_read_only(&path).unwrap();
    assert!(matches!(Image::open(&path), Err(ImageError::Locked { .. })));
    for image in [&first, &second] {
        assert_eq!(read(image, 0, 1), (vec![9; BLOCK], vec![9; 64]));
        assert!(write(image, 0, 1, 8).is_err());
        assert!(image.write_zeroes(0, 1, false).is_err());
        assert!(image.deallocate(0, 1).is_err());
        assert!(image.swap_write(0, &[1; BLOCK]).is_err());
        image.flush().unwrap();
    }
    drop((first, second));
    let after = (
        fs::read(&path).unwrap(),
        fs::metadata(&path).unwrap().mtime_nsec(),
    );
    assert!(before == after);
    let image = Image::open(&path).unwrap();
    let locked = Image::open_read_only(&path).err();
    assert!(matches!(locked, Some(ImageError::Locked { .. })));
    drop(image);
}

#[test]
fn many_opens_at_once_have_one_winner() {
    let (_directory, path) = temporary();
    image::format(&path, &small()).unwrap();
    let opened: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| Image::open(&path))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(opened.iter().filter(|result| result.is_ok()).count(), 1);
    for result in &opened {
        assert!(matches!(result, Ok(_) | Err(ImageError::Locked { .. })));
    }
}

#[test]
fn existing_files_are_kept_unless_asked() {
    let (_directory, path) = temporary();
    fs::write(&path, b"precious").unwrap();
    assert!(matches!(
        image::format(&path, &small()),
        Err(ImageError::Io { .. })
    ));
    let impossible = FormatOptions {
        size: 1,
        overwrite: true,
        ..small()
    };
    assert!(matches!(
        image::format(&path, &impossible),
        Err(ImageError::Options { .. })
    ));
    assert_eq!(fs::read(&path).unwrap(), b"precious");

    let overwrite = FormatOptions {
        overwrite: true,
        ..small()
    };
    let first = image::format(&path, &overwrite).unwrap();
    let image = Image::open(&path).unwrap();
    write(&image, 0, 1, 9).unwrap();
    drop(image);
    let second = image::format(&path, &overwrite).unwrap();
    assert_ne!(first.nguid(), second.nguid());
    let image = Image::open(&path).unwrap();
    assert_eq!(read(&image, 0, 1), (vec![0; BLOCK], vec![0; 64]));
}

#[test]
fn a_format_that_fails_leaves_what_was_there() {
    let (directory, path) = temporary();
    image::format(&path, &small()).unwrap();
    write(&Image::open(&path).unwrap(), 3, 1, 9).unwrap();
    let before = fs::read(&path).unwrap();
    // As large as a file's length can be told, which most file systems refuse.
    let vast = FormatOptions {
        swap: (i64::MAX as u64 - (1 << 20)) / BLOCK as u64 * BLOCK as u64,
        overwrite: true,
        ..small()
    };
    match image::format(&path, &vast) {
        Err(ImageError::Io { path: named, .. }) => assert_eq!(named, path),
        Err(error) => panic!("{error}"),
        Ok(_) => return eprintln!("this file system takes files of any size: not tested"),
    }
    assert!(fs::read(&path).unwrap() == before);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    let image = Image::open(&path).unwrap();
    assert_eq!(read(&image, 3, 1).0, [9; BLOCK]);
    drop(image);
    // A new one gets no half image.
    let vast = FormatOptions {
        overwrite: false,
        ..vast
    };
    image::format(&directory.path().join("new.img"), &vast).unwrap_err();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn an_image_that_was_replaced_is_not_opened_any_more() {
    use std::os::fd::AsRawFd;
    let (_directory, path) = temporary();
    image::format(&path, &small()).unwrap();
    let old = fs::File::open(&path).unwrap();
    let overwrite = FormatOptions {
        overwrite: true,
        ..small()
    };
    image::format(&path, &overwrite).unwrap();
    // As one who opened the file just before it was replaced, and locks it just after.
    let late = PathBuf::from(format!("/proc/self/fd/{}", old.as_raw_fd()));
    let opened = Image::open(&late).err();
    assert!(matches!(opened, Some(ImageError::Locked { .. })));
}

#[test]
fn a_link_keeps_leading_to_the_image() {
    let (directory, path) = temporary();
    image::format(&path, &small()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let link = directory.path().join("link.img");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let overwrite = FormatOptions {
        overwrite: true,
        ..small()
    };
    let made = image::format(&link, &overwrite).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(image::info(&path).unwrap(), made);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
}

#[test]
fn what_is_no_image_is_refused() {
    let (directory, path) = temporary();
    assert!(matches!(Image::open(&path), Err(ImageError::Io { .. })));
    assert!(Image::open(directory.path()).is_err());
    assert!(matches!(
        image::info(directory.path()),
        Err(ImageError::NotAFile { .. })
    ));
    for content in [vec![], vec![0; 100], vec![0; 4096], vec![0xFF; 1 << 16]] {
        fs::write(&path, content).unwrap();
        assert!(matches!(Image::open(&path), Err(ImageError::Foreign)));
        assert!(matches!(image::info(&path), Err(ImageError::Foreign)));
    }
}

#[test]
fn damaged_images_are_refused() {
    let (_directory, path) = temporary();
    image::format(&path, &small()).unwrap();
    let good = fs::read(&path).unwrap();
    assert_eq!(good.len() as u64, SMALL_BLOCKS * BLOCK as u64);

    fs::write(&path, &good[..good.len() - 1]).unwrap();
    let error = Image::open(&path).err().unwrap();
    assert!(matches!(
        error,
        ImageError::Truncated { expected, found } if expected == found + 1
    ));

    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(good.len() as u64).unwrap();
    file.write_all_at(&[0x80], 30).unwrap();
    assert!(matches!(
        Image::open(&path),
        Err(ImageError::Checksum { .. })
    ));
    file.write_all_at(&[good[30]], 30).unwrap();
    file.write_all_at(&[2], 8).unwrap();
    assert!(matches!(
        Image::open(&path),
        Err(ImageError::Version { found: 2 })
    ));
    file.write_all_at(&good[8..9], 8).unwrap();
    Image::open(&path).unwrap();
}

#[test]
fn an_ssd_that_does_not_fit_is_refused() {
    let short = MemSsd::new(BLOCK as u32, SMALL_BLOCKS - 1);
    assert!(matches!(
        Image::format_on(Box::new(short), &small()),
        Err(ImageError::Truncated { .. })
    ));
    let other = MemSsd::new(4096, SMALL_BLOCKS);
    assert!(matches!(
        Image::format_on(Box::new(other), &small()),
        Err(ImageError::Options { .. })
    ));
    let empty = MemSsd::new(BLOCK as u32, SMALL_BLOCKS);
    assert!(matches!(
        Image::open_on(Box::new(empty)),
        Err(ImageError::Foreign)
    ));
    let tiny = MemSsd::new(1, 10);
    assert!(matches!(
        Image::open_on(Box::new(tiny)),
        Err(ImageError::Foreign)
    ));
}

#[test]
fn second_half_images_have_no_nvme_metadata() {
    let options = FormatOptions {
        metadata_mode: MetadataMode::SecondHalf,
        ..small()
    };
    let ssd = MemSsd::new(BLOCK as u32, 1 + 128 + 16);
    let image = Image::format_on(Box::new(ssd), &options).unwrap();
    let info = image.info();
    assert_eq!((info.blocks(), info.data_blocks()), (128, 64));
    assert_eq!(info.metadata_size(), 0);
    image.write_blocks(127, &[1; BLOCK], &[], true).unwrap();
    assert_eq!(read(&image, 127, 1), (vec![1; BLOCK], vec![]));
    assert!(matches!(
        image.write_blocks(0, &[1; BLOCK], &[0; 64], false),
        Err(SsdError::BufferLength { found: 64, .. })
    ));
    image.write_zeroes(120, 8, true).unwrap();
    assert_eq!(read(&image, 127, 1).0, vec![0; BLOCK]);
}

#[test]
fn buffers_and_ranges_are_checked() {
    let (_, image) = small_image();
    let mut buf = [0; 2 * BLOCK];
    assert!(matches!(
        image.read_blocks(63, &mut buf, &mut [0; 128]),
        Err(SsdError::OutOfRange { blocks: 64, .. })
    ));
    assert!(
        image
            .read_blocks(u64::MAX, &mut buf, &mut [0; 128])
            .is_err()
    );
    assert!(image.read_blocks(0, &mut buf, &mut [0; 127]).is_err());
    assert!(image.read_blocks(0, &mut buf, &mut []).is_err());
    assert!(image.write_blocks(0, &buf[1..], &[0; 128], false).is_err());
    assert!(image.write_zeroes(1, 64, false).is_err());
    assert!(image.write_zeroes(u64::MAX, 1, false).is_err());
    assert_eq!(image.swap_len(), 16 * BLOCK as u64);
    for offset in [image.swap_len() - 1023, u64::MAX - 10] {
        assert!(image.swap_read(offset, &mut buf).is_err());
        assert!(image.swap_write(offset, &buf).is_err());
    }
    image.write_blocks(64, &[], &[], false).unwrap();
}

#[test]
fn failed_writes_have_no_effect() {
    for (nth, fault, status) in [
        (1, Fault::Error, Status::WRITE_FAULT),
        (1, Fault::Torn { bytes: 700 }, Status::WRITE_FAULT),
        (1, Fault::Full { bytes: 1000 }, Status::CAPACITY_EXCEEDED),
        (2, Fault::Error, Status::WRITE_FAULT),
        (2, Fault::Torn { bytes: 300 }, Status::WRITE_FAULT),
        (2, Fault::Full { bytes: 0 }, Status::CAPACITY_EXCEEDED),
    ] {
        let (ssd, image) = small_image();
        write(&image, 0, 10, 1).unwrap();
        let before = read(&image, 0, 64);
        ssd.fail_write(nth, fault);
        let error = write(&image, 5, 10, 2).unwrap_err();
        assert_eq!(error.status(), status);
        assert!(read(&image, 0, 64) == before, "{nth} {fault:?}");
        write(&image, 5, 10, 2).unwrap();
        assert_eq!(read(&image, 5, 10), (vec![2; 10 * BLOCK], vec![2; 640]));
    }
}

/// A medium whose change of this number, from 0, is done by half and fails; and those after it are done.
#[derive(Clone)]
struct Worn {
    inner: Arc<MemSsd>,
    fails: Arc<AtomicI64>,
}

impl Worn {
    /// How many blocks of `count` are changed.
    fn changed(&self, lba: u64, count: u64) -> Result<(), (u64, SsdError)> {
        if self.fails.fetch_sub(1, Ordering::SeqCst) != 0 {
            return Ok(());
        }
        let source = std::io::Error::other("worn");
        Err((count.div_ceil(2), SsdError::Write { lba, source }))
    }
}

impl Ssd for Worn {
    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn read(&self, lba: u64, buf: &mut [u8]) -> Result<(), SsdError> {
        self.inner.read(lba, buf)
    }
    fn write(&self, lba: u64, data: &[u8], fua: bool) -> Result<(), SsdError> {
        let block_size = self.block_size() as usize;
        if let Err((blocks, error)) = self.changed(lba, (data.len() / block_size) as u64) {
            let half = &data[..blocks as usize * block_size];
            self.inner.write(lba, half, fua)?;
            return Err(error);
        }
        self.inner.write(lba, data, fua)
    }
    fn flush(&self) -> Result<(), SsdError> {
        self.inner.flush()
    }
    fn write_zeroes(&self, lba: u64, count: u64) -> Result<(), SsdError> {
        if let Err((blocks, error)) = self.changed(lba, count) {
            self.inner.write_zeroes(lba, blocks)?;
            return Err(error);
        }
        self.inner.write_zeroes(lba, count)
    }
}

fn worn_image(options: &FormatOptions, blocks: u64) -> (Worn, Image) {
    let ssd = Worn {
        inner: Arc::new(MemSsd::new(options.block_size, blocks)),
        fails: Arc::new(AtomicI64::new(-1)),
    };
    let image = Image::format_on(Box::new(ssd.clone()), options).unwrap();
    (ssd, image)
}

#[test]
fn a_failed_write_zeroes_has_no_effect() {
    const BLOCKS: u64 = 8192;
    let large = FormatOptions {
        size: BLOCKS * BLOCK as u64,
        ..small()
    };
    for metadata_mode in [MetadataMode::NvmeMetadata, MetadataMode::SecondHalf] {
        let options = FormatOptions {
            metadata_mode,
            ..large.clone()
        };
        let (ssd, image) = worn_image(&options, 1 + 2 * BLOCKS + 16);
        let metadata = usize::from(image.info().metadata_size());
        // From the middle of a block of metadata to the middle of another, over several steps.
        let (lba, count) = (13, 5002);
        for written in [0..BLOCKS, 20..21, 4000..4100] {
            let blocks = (written.end - written.start) as usize;
            image.write_zeroes(0, BLOCKS, false).unwrap();
            let data = vec![7; blocks * BLOCK];
            let meta = vec![8; blocks * metadata];
            image
                .write_blocks(written.start, &data, &meta, false)
                .unwrap();
            let before = read(&image, 0, BLOCKS as usize);
            let mut failures = 0;
            loop {
                ssd.fails.store(failures, Ordering::SeqCst);
                match image.write_zeroes(lba, count, false) {
                    Ok(()) => break,
                    Err(error) => assert_eq!(error.status(), Status::WRITE_FAULT),
                }
                assert!(read(&image, 0, BLOCKS as usize) == before, "{failures}");
                failures += 1;
            }
            assert!(failures > 0);
            ssd.fails.store(-1, Ordering::SeqCst);
            let (mut data, mut meta) = before;
            let (lba, end) = (lba as usize, (lba + count) as usize);
            data[lba * BLOCK..end * BLOCK].fill(0);
            meta[lba * metadata..end * metadata].fill(0);
            assert!(read(&image, 0, BLOCKS as usize) == (data, meta));
        }
    }
}

#[test]
fn a_large_write_zeroes_that_fails_splits_no_block() {
    const BLOCK: usize = 4096;
    const BLOCKS: usize = (32 << 20) / BLOCK;
    let options = FormatOptions {
        block_size: BLOCK as u32,
        size: (BLOCKS * BLOCK) as u64,
        swap: BLOCK as u64,
        ..small()
    };
    let (ssd, image) = worn_image(&options, 2 + BLOCKS as u64 + BLOCKS as u64 / 64);
    let (data, metadata) = (vec![7; BLOCKS * BLOCK], vec![8; BLOCKS * 64]);
    // Two changes for each MiB; what holds more than 16 MiB does not come back as a whole.
    for (fails, restored) in [(29, true), (59, false)] {
        image.write_blocks(0, &data, &metadata, false).unwrap();
        ssd.fails.store(fails, Ordering::SeqCst);
        image.write_zeroes(0, BLOCKS as u64, false).unwrap_err();
        let (mut found, mut meta) = (vec![1; data.len()], vec![1; metadata.len()]);
        image.read_blocks(0, &mut found, &mut meta).unwrap();
        let gone = meta.iter().take_while(|byte| **byte == 0).count() / 64;
        assert_eq!(gone == 0, restored, "{gone}");
        assert!(found[..gone * BLOCK].iter().all(|byte| *byte == 0));
        assert!(found[gone * BLOCK..] == data[gone * BLOCK..]);
        assert!(meta[gone * 64..] == metadata[gone * 64..]);
    }
}

#[test]
fn unreadable_blocks_can_be_written() {
    let (ssd, image) = small_image();
    write(&image, 0, 10, 1).unwrap();
    ssd.fail_read(1);
    write(&image, 0, 10, 2).unwrap();
    assert_eq!(read(&image, 0, 10), (vec![2; 10 * BLOCK], vec![2; 640]));
}

#[test]
fn unreadable_blocks_fail_the_command() {
    let (ssd, image) = small_image();
    for nth in [1, 2] {
        ssd.fail_read(nth);
        let error = image
            .read_blocks(0, &mut [0; BLOCK], &mut [0; 64])
            .unwrap_err();
        assert_eq!(error.status(), Status::UNRECOVERED_READ_ERROR);
    }
}

#[test]
fn flushed_and_forced_writes_survive_a_power_loss() {
    let (ssd, image) = small_image();
    write(&image, 0, 10, 1).unwrap();
    image.flush().unwrap();
    write(&image, 0, 2, 2).unwrap();
    image.write_blocks(9, &[3; BLOCK], &[3; 64], true).unwrap();
    ssd.power_off();
    drop(image);
    ssd.power_on();
    let image = Image::open_on(Box::new(Shared(ssd))).unwrap();
    assert_eq!(read(&image, 0, 9), (vec![1; 9 * BLOCK], vec![1; 9 * 64]));
    assert_eq!(read(&image, 9, 1), (vec![3; BLOCK], vec![3; 64]));
}

#[test]
fn plain_data_leaves_the_metadata_area_sparse() {
    let (ssd, image) = small_image();
    let before = ssd.allocated_blocks();
    image
        .write_blocks(0, &[1; 16 * BLOCK], &[0; 16 * 64], false)
        .unwrap();
    assert_eq!(ssd.allocated_blocks(), before + 16);
    image.write_zeroes(0, 64, false).unwrap();
    assert_eq!(ssd.allocated_blocks(), before);
}

#[test]
fn commands_are_atomic_towards_each_other() {
    let (_, image) = small_image();
    write(&image, 3, 9, 0).unwrap();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=2u8)
            .map(|byte| {
                let image = &image;
                scope.spawn(move || {
                    for i in 0..200u32 {
                        if i % 8 == 0 {
                            image.write_zeroes(3, 9, false).unwrap();
                        } else {
                            write(image, 3, 9, byte).unwrap();
                        }
                    }
                })
            })
            .collect();
        while !writers.iter().all(|writer| writer.is_finished()) {
            let (data, metadata) = read(&image, 3, 9);
            assert!(data.iter().chain(&metadata).all(|&byte| byte == data[0]));
        }
    });
}

#[test]
fn swap_at_any_byte() {
    let (_, image) = small_image();
    let all = |image: &Image| {
        let mut buf = vec![0; image.swap_len() as usize];
        image.swap_read(0, &mut buf).unwrap();
        buf
    };
    let mut model = vec![0; image.swap_len() as usize];
    for (offset, len, byte) in [(0, 512, 1), (100, 50, 2), (500, 1000, 3), (8191, 1, 4)] {
        image.swap_write(offset as u64, &vec![byte; len]).unwrap();
        model[offset..offset + len].fill(byte);
        assert!(all(&image) == model);
        let mut part = vec![0; len];
        image.swap_read(offset as u64, &mut part).unwrap();
        assert_eq!(part, vec![byte; len]);
    }
    assert_eq!(read(&image, 0, 64), (vec![0; 64 * BLOCK], vec![0; 64 * 64]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn behaves_like_two_arrays(
        operations in proptest::collection::vec((0..3u8, 0..64u64, 0..20u64, any::<u8>(), any::<u8>()), 1..30),
    ) {
        let (ssd, image) = small_image();
        let (mut data, mut metadata) = (vec![0u8; 64 * BLOCK], vec![0u8; 64 * 64]);
        for (kind, lba, count, byte, tag) in operations {
            let count = count.min(64 - lba);
            let (from, to) = (lba as usize, (lba + count) as usize);
            let (byte, tag) = if kind == 2 { (0, 0) } else { (byte, tag) };
            let block_data = vec![byte; count as usize * BLOCK];
            let block_metadata = vec![tag; count as usize * 64];
            match kind {
                2 => image.write_zeroes(lba, count, false).unwrap(),
                _ => image.write_blocks(lba, &block_data, &block_metadata, kind == 1).unwrap(),
            }
            data[from * BLOCK..to * BLOCK].fill(byte);
            metadata[from * 64..to * 64].fill(tag);
        }
        image.flush().unwrap();
        drop(image);
        ssd.power_off();
        ssd.power_on();
        let image = Image::open_on(Box::new(Shared(ssd))).unwrap();
        let (found_data, found_metadata) = read(&image, 0, 64);
        prop_assert!(found_data == data);
        prop_assert!(found_metadata == metadata);
    }
}
