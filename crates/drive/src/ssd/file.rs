//! Blocks in a sparse file.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};

use super::{Ssd, SsdError, check_buffer, check_range};

/// Largest buffer of zeroes written where the file system cannot punch holes.
const ZEROES: usize = 1 << 20;

/// Blocks in a regular file. Blocks never written take no space.
///
/// Flush is `fdatasync`, FUA a write with `RWF_DSYNC`. Opening the file and locking it against a second process is up to the
/// caller; [`Image`](crate::image::Image) does both.
pub struct FileSsd {
    file: File,
    block_size: u32,
    blocks: u64,
    flush_failed: AtomicBool,
}

impl FileSsd {
    /// The first `blocks` blocks of `block_size` bytes in `file`, which is open for reading and writing.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if the block size is 0 or the file is shorter than that, and whatever the operating
    /// system says.
    pub fn new(file: File, block_size: u32, blocks: u64) -> io::Result<FileSsd> {
        let wanted = blocks.checked_mul(u64::from(block_size));
        let found = file.metadata()?.len();
        if block_size == 0 || wanted.is_none_or(|bytes| bytes > found) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("file of {found} bytes; expected {blocks} blocks of {block_size} bytes"),
            ));
        }
        Ok(FileSsd {
            file,
            block_size,
            blocks,
            flush_failed: AtomicBool::new(false),
        })
    }

    fn offset(&self, lba: u64) -> u64 {
        lba * u64::from(self.block_size)
    }

    /// Runs a synchronizing operation, which must never succeed again after it failed once: the kernel reports a lost page
    /// to one `fsync` only, so the next would claim a durability that is not there.
    fn synchronize(
        &self,
        operation: impl FnOnce() -> io::Result<()>,
        error: impl FnOnce(io::Error) -> SsdError,
    ) -> Result<(), SsdError> {
        if self.flush_failed.load(Ordering::Acquire) {
            return Err(SsdError::FlushFailedBefore);
        }
        operation().map_err(|source| {
            let error = error(source);
            // A full medium refuses a write before it takes it, so nothing that was accepted is lost.
            if !matches!(error, SsdError::Full { .. }) {
                self.flush_failed.store(true, Ordering::Release);
            }
            error
        })
    }

    fn write_durable(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            let slices = [IoSlice::new(&data[done..])];
            let at = offset + done as u64;
            match rustix::io::pwritev2(&self.file, &slices, at, ReadWriteFlags::DSYNC) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    self.file.write_all_at(&data[done..], at)?;
                    return self.file.sync_data();
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl FileSsd {
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
}

impl Ssd for FileSsd {
    fn block_size(&self) -> u32 {
        self.block_size
    }

    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&self, lba: u64, buf: &mut [u8]) -> Result<(), SsdError> {
        check_buffer(lba, buf.len(), self.block_size, self.blocks)?;
        if self.is_hole(self.offset(lba), buf.len() as u64) {
            buf.fill(0);
            return Ok(());
        }
        self.file
            .read_exact_at(buf, self.offset(lba))
            .map_err(|source| SsdError::Read { lba, source })
    }

    fn write(&self, lba: u64, data: &[u8], fua: bool) -> Result<(), SsdError> {
        check_buffer(lba, data.len(), self.block_size, self.blocks)?;
        let offset = self.offset(lba);
        let error = |source| SsdError::from_write(lba, source);
        if fua {
            self.synchronize(|| self.write_durable(data, offset), error)
        } else {
            self.file.write_all_at(data, offset).map_err(error)
        }
    }

    fn flush(&self) -> Result<(), SsdError> {
        self.synchronize(
            || self.file.sync_data(),
            |source| SsdError::Flush { source },
        )
    }

    fn write_zeroes(&self, lba: u64, count: u64) -> Result<(), SsdError> {
        check_range(lba, count, self.blocks)?;
        if count == 0 {
            return Ok(());
        }
        let (mut offset, len) = (self.offset(lba), self.offset(count));
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let error = |source| SsdError::from_write(lba, source);
        loop {
            match rustix::fs::fallocate(&self.file, punch, offset, len) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => break,
                Err(errno) => return Err(error(errno.into())),
            }
        }
        let end = offset + len;
        let zeroes = vec![0; len.min(ZEROES as u64) as usize];
        while offset < end {
            let now = (end - offset).min(zeroes.len() as u64) as usize;
            self.file
                .write_all_at(&zeroes[..now], offset)
                .map_err(error)?;
            offset += now as u64;
        }
        Ok(())
    }
}
