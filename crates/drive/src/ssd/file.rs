//! Blocks in a file or on a block device.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, FallocateFlags, OFlags, SeekFrom, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::pool::Pool;
use super::sync::{Queue, Syncs};
use super::transfer::{Aligned, Buffer, DIRECT_ALIGNMENT, Kind, Transfer, is_aligned, zeroes};
use super::uring::Uring;
use super::{Done, Operation, Ssd, SsdError, check_buffer, check_range};

/// Largest buffer of zeroes written where the medium cannot zero by itself.
const ZEROES: usize = 1 << 20;

/// Whether the bytes of a file go through the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoMode {
    /// They do: what was read or written lately is read without waiting.
    #[default]
    Buffered,
    /// They do not (`O_DIRECT`): for block devices, and images much larger than memory that has better uses.
    Direct,
}

/// What carries out operations that a caller does not wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoEngine {
    /// io_uring where the kernel has and permits it, else threads; started when first needed.
    #[default]
    Auto,
    /// io_uring.
    IoUring,
    /// A pool of threads.
    Threads,
}

/// How a [`FileSsd`] moves bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoOptions {
    /// Through the page cache or not.
    pub mode: IoMode,
    /// By what.
    pub engine: IoEngine,
}

/// Blocks in a regular file, where those never written take no space, or on a block device.
///
/// Flush is `fdatasync`, FUA a write followed by it: a write with `RWF_DSYNC` would be told of, and so hide, the loss of what
/// others wrote before. Opening the file and locking it against a second process is up to the
/// caller; [`Image`](crate::image::Image) does both.
pub struct FileSsd {
    /// Dropped first: it waits for its transfers, which may ask for synchronization.
    engine: OnceLock<Option<Engine>>,
    syncs: Syncs,
    medium: Arc<Medium>,
}

enum Engine {
    Uring(Uring),
    /// Buffered writes go to threads of our own: io_uring would hand each to a thread of the kernel's, which takes longer.
    UringAndWriters(Uring, Pool),
    Pool(Pool),
}

impl Engine {
    fn start(choice: IoEngine, medium: &Arc<Medium>) -> io::Result<Engine> {
        match choice {
            IoEngine::IoUring if medium.direct => Ok(Engine::Uring(Uring::new(medium)?)),
            IoEngine::IoUring => {
                let (uring, writers) = (Uring::new(medium)?, Pool::new(medium)?);
                Ok(Engine::UringAndWriters(uring, writers))
            }
            IoEngine::Threads => Ok(Engine::Pool(Pool::new(medium)?)),
            IoEngine::Auto => Engine::start(IoEngine::IoUring, medium).or_else(|error| {
                tracing::info!(%error, "no io_uring; threads do the SSD's work");
                Engine::start(IoEngine::Threads, medium)
            }),
        }
    }
}

impl FileSsd {
    /// The first `blocks` blocks of `block_size` bytes in `file`, which is open for reading and writing, with the default
    /// [`IoOptions`].
    ///
    /// # Errors
    /// Those of [`FileSsd::with_options`].
    pub fn new(file: File, block_size: u32, blocks: u64) -> io::Result<FileSsd> {
        FileSsd::with_options(file, block_size, blocks, IoOptions::default())
    }

    /// The first `blocks` blocks of `block_size` bytes in `file`, which is open for reading and writing. Direct I/O is set for
    /// the open file, and so for what else shares it.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if the block size is 0 or the file is shorter than that, or if it cannot do direct I/O
    /// in units of a block; and whatever the operating system says, for instance that there is no io_uring.
    pub fn with_options(
        file: File,
        block_size: u32,
        blocks: u64,
        options: IoOptions,
    ) -> io::Result<FileSsd> {
        let wanted = blocks.checked_mul(u64::from(block_size));
        let found = size_of(&file)?;
        if block_size == 0 || wanted.is_none_or(|bytes| bytes > found) {
            return Err(invalid(format!(
                "file of {found} bytes; expected {blocks} blocks of {block_size} bytes"
            )));
        }
        let direct = options.mode == IoMode::Direct;
        if direct {
            set_direct(&file, block_size)?;
        }
        let medium = Arc::new(Medium {
            file,
            block_size,
            blocks,
            direct,
            never_now: AtomicBool::new(direct),
        });
        let synced = Arc::clone(&medium);
        let syncs = Syncs::new(move || synced.file.sync_data())?;
        let engine = OnceLock::new();
        if options.engine != IoEngine::Auto {
            let _ = engine.set(Some(Engine::start(options.engine, &medium)?));
        }
        Ok(FileSsd {
            engine,
            syncs,
            medium,
        })
    }

    fn start(&self, transfer: Transfer) {
        let engine =
            self.engine
                .get_or_init(|| match Engine::start(IoEngine::Auto, &self.medium) {
                    Ok(engine) => Some(engine),
                    Err(error) => {
                        tracing::warn!(%error, "no threads for the SSD's work; its callers wait");
                        None
                    }
                });
        match engine {
            Some(Engine::UringAndWriters(_, writers)) if transfer.kind == Kind::Write => {
                writers.start(transfer);
            }
            Some(Engine::Uring(uring) | Engine::UringAndWriters(uring, _)) => uring.start(transfer),
            Some(Engine::Pool(pool)) => pool.start(transfer),
            None => {
                let mut transfer = transfer;
                let result = self.medium.execute(&mut transfer);
                transfer.end(result);
            }
        }
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Bytes of a regular file or block device.
pub(crate) fn size_of(file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    if metadata.file_type().is_block_device() {
        return Ok(rustix::fs::seek(file, SeekFrom::End(0))?);
    }
    Ok(metadata.len())
}

/// Turns direct I/O on, if the file can do it in units of a block.
fn set_direct(file: &File, block_size: u32) -> io::Result<()> {
    let statx = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
    let unit = if statx.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        // Before Linux 6.1, or a file system that does not say: nothing asks for more.
        DIRECT_ALIGNMENT as u32
    } else {
        statx.stx_dio_offset_align
    };
    if unit == 0 {
        return Err(invalid("the file system has no direct I/O".into()));
    }
    if !block_size.is_multiple_of(unit) {
        return Err(invalid(format!(
            "direct I/O in units of {unit} bytes; expected a unit that divides the blocks of {block_size} bytes"
        )));
    }
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT)?)
}

/// The file, and how to move bytes while the caller waits.
pub(super) struct Medium {
    file: File,
    block_size: u32,
    blocks: u64,
    direct: bool,
    /// Reads that must not wait are not possible.
    never_now: AtomicBool,
}

impl Medium {
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    fn offset(&self, lba: u64) -> u64 {
        lba * u64::from(self.block_size)
    }

    /// Whether nothing was ever written in this range. To read a hole would fill the page cache with zeroes, and cost more
    /// than the write that the reading of old content precedes.
    ///
    /// Moves the file's position, which nothing here uses.
    fn is_hole(&self, offset: u64, len: u64) -> bool {
        match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(data) => data >= offset + len,
            // No data up to the end of the file, which may have been cut short.
            Err(Errno::NXIO) => self
                .file
                .metadata()
                .is_ok_and(|metadata| metadata.len() >= offset + len),
            Err(_) => false,
        }
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if !self.direct || is_aligned(buf) {
            return self.file.read_exact_at(buf, offset);
        }
        let mut aligned = zeroes(buf.len());
        self.file.read_exact_at(&mut aligned, offset)?;
        buf.copy_from_slice(&aligned);
        Ok(())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if self.direct && !is_aligned(data) {
            let aligned = Aligned::from_slice(DIRECT_ALIGNMENT, data);
            return self.file.write_all_at(&aligned, offset);
        }
        self.file.write_all_at(data, offset)
    }

    /// Carries out a transfer.
    pub(super) fn execute(&self, transfer: &mut Transfer) -> io::Result<()> {
        let Transfer {
            kind,
            buffer,
            offset,
            ..
        } = transfer;
        match kind {
            Kind::Read => self.read_at(buffer.content_mut(), *offset),
            Kind::Write => self.write_at(buffer.content(), *offset),
        }
    }

    /// Has the file system or the device make a range zero: a hole if it can, else by its own means. False if it has none.
    fn zero(&self, offset: u64, len: u64) -> io::Result<bool> {
        for way in [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE] {
            let flags = way | FallocateFlags::KEEP_SIZE;
            loop {
                match rustix::fs::fallocate(&self.file, flags, offset, len) {
                    Ok(()) => return Ok(true),
                    Err(Errno::INTR) => {}
                    // INVAL: the device's own blocks are larger than those of the range.
                    Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => break,
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        Ok(false)
    }

    /// `finish` of a read.
    fn end_read(lba: u64, done: Done) -> super::transfer::Finish {
        Box::new(move |result, buffer| {
            done(match result {
                Ok(()) => Ok(buffer.into_vec()),
                Err(source) => Err(SsdError::Read { lba, source }),
            });
        })
    }

    /// `finish` of a write; with `syncs`, of one that is to be durable.
    fn end_write(lba: u64, syncs: Option<Arc<Queue>>, done: Done) -> super::transfer::Finish {
        Box::new(move |result, buffer| match (result, syncs) {
            (Err(source), _) => done(Err(SsdError::from_write(lba, source))),
            (Ok(()), None) => done(Ok(buffer.into_vec())),
            (Ok(()), Some(syncs)) => {
                syncs.ask(Box::new(move |synced| {
                    done(synced.map(|()| buffer.into_vec()));
                }));
            }
        })
    }

    /// A file of `bytes` bytes that has no name.
    #[cfg(test)]
    pub(super) fn for_test(bytes: u64) -> Medium {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        Medium {
            file,
            block_size: 512,
            blocks: bytes / 512,
            direct: false,
            never_now: AtomicBool::new(false),
        }
    }
}

impl Ssd for FileSsd {
    fn block_size(&self) -> u32 {
        self.medium.block_size
    }

    fn blocks(&self) -> u64 {
        self.medium.blocks
    }

    fn read(&self, lba: u64, buf: &mut [u8]) -> Result<(), SsdError> {
        let medium = &self.medium;
        check_buffer(lba, buf.len(), medium.block_size, medium.blocks)?;
        if medium.is_hole(medium.offset(lba), buf.len() as u64) {
            buf.fill(0);
            return Ok(());
        }
        medium
            .read_at(buf, medium.offset(lba))
            .map_err(|source| SsdError::Read { lba, source })
    }

    fn write(&self, lba: u64, data: &[u8], fua: bool) -> Result<(), SsdError> {
        let medium = &self.medium;
        check_buffer(lba, data.len(), medium.block_size, medium.blocks)?;
        if fua {
            self.syncs.queue().check()?;
        }
        medium
            .write_at(data, medium.offset(lba))
            .map_err(|source| SsdError::from_write(lba, source))?;
        if fua {
            self.syncs.queue().wait()?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), SsdError> {
        self.syncs.queue().wait()
    }

    fn write_zeroes(&self, lba: u64, count: u64) -> Result<(), SsdError> {
        let medium = &self.medium;
        check_range(lba, count, medium.blocks)?;
        if count == 0 {
            return Ok(());
        }
        let (mut offset, len) = (medium.offset(lba), medium.offset(count));
        // To make a hole of a hole would give the file system something to keep.
        if medium.is_hole(offset, len) {
            return Ok(());
        }
        let error = |source| SsdError::from_write(lba, source);
        if medium.zero(offset, len).map_err(error)? {
            return Ok(());
        }
        let end = offset + len;
        let most = (ZEROES as u64).next_multiple_of(u64::from(medium.block_size));
        let zeroes = zeroes(len.min(most) as usize);
        while offset < end {
            let now = (end - offset).min(zeroes.len() as u64) as usize;
            medium.write_at(&zeroes[..now], offset).map_err(error)?;
            offset += now as u64;
        }
        Ok(())
    }

    fn try_read_now(&self, lba: u64, buf: &mut [u8]) -> Result<bool, SsdError> {
        let medium = &self.medium;
        check_buffer(lba, buf.len(), medium.block_size, medium.blocks)?;
        if buf.is_empty() {
            return Ok(true);
        }
        if medium.never_now.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let (offset, len) = (medium.offset(lba), buf.len());
        let mut slices = [IoSliceMut::new(buf)];
        match rustix::io::preadv2(&medium.file, &mut slices, offset, ReadWriteFlags::NOWAIT) {
            Ok(read) => Ok(read == len),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                medium.never_now.store(true, Ordering::Relaxed);
                Ok(false)
            }
            Err(errno) => Err(SsdError::Read {
                lba,
                source: errno.into(),
            }),
        }
    }

    fn is_hole(&self, lba: u64, count: u64) -> bool {
        let medium = &self.medium;
        check_range(lba, count, medium.blocks).is_ok()
            && medium.is_hole(medium.offset(lba), medium.offset(count))
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    fn submit(&self, operation: Operation, done: Done) {
        let (medium, syncs) = (&self.medium, self.syncs.queue());
        let checked = match &operation {
            Operation::Read { lba, buf } => {
                check_buffer(*lba, buf.len(), medium.block_size, medium.blocks)
            }
            Operation::Write { lba, data, fua } => {
                check_buffer(*lba, data.len(), medium.block_size, medium.blocks)
                    .and_then(|()| if *fua { syncs.check() } else { Ok(()) })
            }
            Operation::Flush => Ok(()),
        };
        if let Err(error) = checked {
            return done(Err(error));
        }
        let (kind, bytes, lba, finish) = match operation {
            Operation::Read { lba, mut buf } => {
                if buf.is_empty() || medium.is_hole(medium.offset(lba), buf.len() as u64) {
                    buf.fill(0);
                    return done(Ok(buf));
                }
                (Kind::Read, buf, lba, Medium::end_read(lba, done))
            }
            Operation::Write { data, .. } if data.is_empty() => return done(Ok(data)),
            Operation::Write { lba, data, fua } => {
                let syncs = fua.then(|| Arc::clone(syncs));
                (Kind::Write, data, lba, Medium::end_write(lba, syncs, done))
            }
            Operation::Flush => {
                return syncs.ask(Box::new(|synced| done(synced.map(|()| Vec::new()))));
            }
        };
        self.start(Transfer {
            kind,
            buffer: Buffer::new(bytes, medium.direct),
            offset: medium.offset(lba),
            done: 0,
            finish,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn flushes_take_no_place_that_a_transfer_needs() {
        for choice in [IoEngine::Auto, IoEngine::Threads] {
            let medium = Arc::new(Medium::for_test(1 << 20));
            // The first synchronization takes as long as the test wants.
            let (go, gate) = mpsc::channel::<()>();
            let syncs = Syncs::new(move || {
                let _ = gate.recv();
                Ok(())
            });
            let ssd = FileSsd {
                engine: OnceLock::from(Some(Engine::start(choice, &medium).unwrap())),
                syncs: syncs.unwrap(),
                medium,
            };
            let submit = |operation, tell: &mpsc::Sender<bool>| {
                let tell = tell.clone();
                ssd.submit(
                    operation,
                    Box::new(move |result| tell.send(result.is_ok()).unwrap()),
                );
            };
            let (flushed, flushes) = mpsc::channel();
            let (moved, transfers) = mpsc::channel();
            // Many times what the ring holds, and what the pool has threads for.
            for lba in 0..2000 {
                submit(Operation::Flush, &flushed);
                let (lba, data) = (lba % 1000, vec![lba as u8; 512]);
                submit(
                    Operation::Write {
                        lba,
                        data,
                        fua: false,
                    },
                    &moved,
                );
                let buf = vec![0; 512];
                submit(Operation::Read { lba, buf }, &moved);
            }
            for _ in 0..4000 {
                assert!(transfers.recv().unwrap());
            }
            assert!(flushes.try_recv().is_err());
            drop(go);
            for _ in 0..2000 {
                assert!(flushes.recv().unwrap());
            }
        }
    }
}
