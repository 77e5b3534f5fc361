//! The drive image: one sparse file, or a block device, that is the whole SSD of a drive.
//!
//! In order, in blocks: a header (block 0), the namespace's blocks, 64 bytes of metadata for each of them (where the namespace
//! has metadata), and the swap area for paging. All integers are little-endian, and every area's place follows from the
//! sizes, so that the header's copy of it is a check.

mod layout;
mod size;

use std::borrow::Cow;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use futures::channel::oneshot;
use rustix::fs::OFlags;
use rustix::io::Errno;
use tempfile::TempPath;
use thiserror::Error;
use toroid_nvme::NamespaceError;

use crate::locks::RangeLocks;
use crate::ssd::{FaultySsd, FileSsd, Injection, IoOptions, Operation, Ssd, SsdError, size_of};
use futures::executor::block_on;
use toroid_isa::metadata::ScMetadata;

use layout::{HEADER_SIZE, Header, Layout};

pub use layout::{ImageInfo, MetadataMode};
pub use size::{SizeError, display_size, parse_size};

/// Why an image cannot be made or opened.
#[derive(Debug, Error)]
pub enum ImageError {
    /// The operating system refused.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A drive has the file open, or somebody uses the block device.
    #[error("{} is in use by another drive, or mounted", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// A directory, a character device or the like.
    #[error("{} is neither a regular file nor a block device", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file does not start with an image's magic number.
    #[error("not a drive image: no header at its start")]
    Foreign,
    /// Written by a later version.
    #[error("drive image of format version {found}; this program knows version 1")]
    Version {
        /// The version in the header.
        found: u32,
    },
    /// The header's checksum does not match.
    #[error("the header is damaged: checksum {stored:#010x}, but its bytes give {computed:#010x}")]
    Checksum {
        /// The checksum in the header.
        stored: u32,
        /// CRC-32C of the header's other bytes.
        computed: u32,
    },
    /// A field of the header contradicts the others.
    #[error("the header is inconsistent: {reason}")]
    Header {
        /// Which field, and how.
        reason: String,
    },
    /// The file is shorter than its header says.
    #[error("the image is cut off: {found} bytes; expected {expected}")]
    Truncated {
        /// Bytes that the header tells of.
        expected: u64,
        /// Bytes of the file.
        found: u64,
    },
    /// A size that an image cannot have.
    #[error("cannot make such an image: {reason}")]
    Options {
        /// Which, and what is expected.
        reason: String,
    },
    /// A block size or capacity that a namespace cannot have.
    #[error("cannot make such an image")]
    Namespace(#[from] NamespaceError),
    /// The operating system gave no random bytes for the identifier.
    #[error("no random bytes for the image's identifier: {0}")]
    Random(getrandom::Error),
    /// The SSD failed.
    #[error(transparent)]
    Ssd(#[from] SsdError),
}

impl ImageError {
    /// The same error of the file at `path`, for which another stands.
    #[must_use]
    pub fn named(self, path: &Path) -> ImageError {
        let path = path.to_owned();
        match self {
            ImageError::Io { action, source, .. } => ImageError::Io {
                action,
                path,
                source,
            },
            ImageError::Locked { .. } => ImageError::Locked { path },
            ImageError::NotAFile { .. } => ImageError::NotAFile { path },
            error => error,
        }
    }
}

/// What an image is to be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatOptions {
    /// Bytes a logical block: a power of two from 512 to 65536.
    pub block_size: u32,
    /// Bytes for the user's data: a multiple of the cluster size, and with [`MetadataMode::SecondHalf`] a power of two. The
    /// second half of the LBA space comes on top.
    pub size: u64,
    /// How secure computing metadata reaches the drive.
    pub metadata_mode: MetadataMode,
    /// Logical blocks a cluster: a power of two.
    pub cluster_blocks: u32,
    /// Bytes of the swap area, rounded up to whole blocks.
    pub swap: u64,
    /// A name for people: up to 64 bytes without control characters.
    pub label: String,
    /// Whether an existing file is replaced. A block device always exists.
    pub overwrite: bool,
}

impl Default for FormatOptions {
    /// 8 GiB of 4096-byte blocks with NVMe metadata, clusters of 64 KiB, 1 GiB of swap.
    fn default() -> FormatOptions {
        FormatOptions {
            block_size: 4096,
            size: 8 << 30,
            metadata_mode: MetadataMode::NvmeMetadata,
            cluster_blocks: 16,
            swap: 1 << 30,
            label: String::new(),
            overwrite: false,
        }
    }
}

/// Makes an image at `path`. In a file it is sparse: nothing but the header takes space. On a block device its blocks become
/// zero, which takes long where the device has no quick way for that.
///
/// # Errors
/// Fails, and leaves the file as it was, when a size is impossible, when the file exists and is not to be replaced, when a
/// drive has it open, or when there is no room. A block device on which it fails is left in part zero.
pub fn format(path: &Path, options: &FormatOptions) -> Result<ImageInfo, ImageError> {
    let info = describe(options)?;
    if !options.overwrite || is_device(path) || !path.exists() {
        return make(path, &info, options.overwrite);
    }
    let new = Replacement::of(path)?;
    make(new.path(), &info, true).map_err(|error| error.named(path))?;
    new.place()?;
    Ok(info)
}

/// A file beside an image, in which a new one is made that takes its place once it is complete. Until then the old one is as
/// it was, and no drive opens it; if the replacement is dropped before, its file goes.
pub struct Replacement {
    beside: TempPath,
    /// As the caller names it.
    path: PathBuf,
    /// Where it is: not a link.
    place: PathBuf,
    /// Locked.
    _old: File,
}

impl Replacement {
    /// An empty file beside the image at `path`, with its permissions. Of a link, what it leads to is to be replaced.
    ///
    /// # Errors
    /// [`ImageError`] when there is no file, when a drive has it open, or when nothing can be made beside it.
    pub fn of(path: &Path) -> Result<Replacement, ImageError> {
        let place = path.canonicalize().map_err(at("open", path))?;
        let old = open_locked(&place, Opening::Existing).map_err(|error| error.named(path))?;
        let folder = directory(&place);
        let mut builder = tempfile::Builder::new();
        builder.prefix(".toroid-").suffix(".img");
        if let Ok(metadata) = old.metadata() {
            builder.permissions(metadata.permissions());
        }
        let beside = builder
            .tempfile_in(folder)
            .map_err(at("write in", folder))?;
        Ok(Replacement {
            beside: beside.into_temp_path(),
            path: path.to_owned(),
            place,
            _old: old,
        })
    }

    /// Where to make the new image.
    pub fn path(&self) -> &Path {
        &self.beside
    }

    /// Puts the new image in the old one's place.
    ///
    /// # Errors
    /// [`ImageError::Io`]; the old image is then still there, unless only its directory could not be made durable.
    pub fn place(self) -> Result<(), ImageError> {
        let failed = |action| at(action, &self.path);
        self.beside
            .persist(&self.place)
            .map_err(|error| failed("replace")(error.error))?;
        sync_directory(&self.place).map_err(failed("write the directory of"))
    }
}

/// Makes the image in a file that is new, or on a block device; with `over` also in a file that is there.
fn make(path: &Path, info: &ImageInfo, over: bool) -> Result<ImageInfo, ImageError> {
    let layout = info.layout()?;
    let total = layout.total * u64::from(info.block_size());
    let failed = |action| at(action, path);
    let opening = if over { Opening::Any } else { Opening::New };
    let file = open_locked(path, opening)?;
    let device = is_block_device(&file).map_err(failed("open"))?;
    if device {
        let found = size_of(&file).map_err(failed("read the size of"))?;
        if found < total {
            return Err(ImageError::Options {
                reason: format!("{total} bytes on a block device of {found}"),
            });
        }
    }
    let written = (|| {
        if !device {
            file.set_len(0).map_err(failed("empty"))?;
            file.set_len(total).map_err(failed("set the size of"))?;
        }
        let ssd = FileSsd::new(
            file.try_clone().map_err(failed("open"))?,
            info.block_size(),
            layout.total,
        )
        .map_err(failed("open"))?;
        if device {
            ssd.write_zeroes(0, layout.total)?;
        }
        write_header(&ssd, info, &layout)?;
        file.sync_all().map_err(failed("write"))?;
        if device {
            return Ok(());
        }
        sync_directory(path).map_err(failed("write the directory of"))
    })();
    if written.is_err() && !device {
        // The file is ours alone, and useless; that it may stay is no reason to hide the first error.
        let _ = std::fs::remove_file(path);
    }
    written.map(|()| info.clone())
}

/// Reads the header of the image at `path` without locking it, so that a drive may have it open.
pub fn info(path: &Path) -> Result<ImageInfo, ImageError> {
    let file = OpenOptions::new()
        .read(true)
        .open(path)
        .map_err(at("open", path))?;
    read_info(&file, path)
}

fn at<'a>(action: &'static str, path: &'a Path) -> impl Fn(io::Error) -> ImageError + use<'a> {
    move |source| ImageError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

/// How long the lock of a process may outlive it: the kernel takes down the ring of a killed one in the background.
const LOCK_OUTLIVES: Duration = Duration::from_secs(1);

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opening {
    /// One that is there, to read it.
    ReadOnly,
    /// One that is there.
    Existing,
    New,
    /// One that is there, or a new one.
    Any,
}

/// Opens a file, and locks it against other drives; to read it, against drives that write. A block device is locked against
/// mounts as well.
fn open_locked(path: &Path, opening: Opening) -> Result<File, ImageError> {
    let start = Instant::now();
    loop {
        match try_open_locked(path, opening) {
            Err(ImageError::Locked { .. }) if start.elapsed() < LOCK_OUTLIVES => {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

fn try_open_locked(path: &Path, opening: Opening) -> Result<File, ImageError> {
    let locked = || ImageError::Locked {
        path: path.to_owned(),
    };
    let device = is_device(path);
    let mut options = OpenOptions::new();
    options.read(true).write(opening != Opening::ReadOnly);
    if device && opening != Opening::New {
        options.custom_flags(OFlags::EXCL.bits() as i32);
    } else {
        options
            .create(opening == Opening::Any)
            .create_new(opening == Opening::New);
    }
    let file = options.open(path).map_err(|error| {
        if device && error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) {
            return locked();
        }
        let action = match opening {
            Opening::ReadOnly | Opening::Existing => "open",
            Opening::New | Opening::Any => "create",
        };
        at(action, path)(error)
    })?;
    check_kind(&file, path)?;
    let lock = match opening {
        Opening::ReadOnly => file.try_lock_shared(),
        _ => file.try_lock(),
    };
    match lock {
        // Between opening and locking, another image may have taken its place.
        Ok(()) if file.metadata().map_err(at("open", path))?.nlink() == 0 => Err(locked()),
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(locked()),
        Err(TryLockError::Error(source)) => Err(at("lock", path)(source)),
    }
}

fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

fn is_block_device(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.file_type().is_block_device())
}

fn check_kind(file: &File, path: &Path) -> Result<(), ImageError> {
    let kind = file.metadata().map_err(at("open", path))?.file_type();
    if kind.is_file() || kind.is_block_device() {
        return Ok(());
    }
    Err(ImageError::NotAFile {
        path: path.to_owned(),
    })
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes the file's name durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(directory(path))?.sync_all()
}

fn describe(options: &FormatOptions) -> Result<ImageInfo, ImageError> {
    let mut nguid = [0; 16];
    getrandom::fill(&mut nguid).map_err(ImageError::Random)?;
    ImageInfo::new(options, nguid)
}

fn write_header(ssd: &dyn Ssd, info: &ImageInfo, layout: &Layout) -> Result<(), ImageError> {
    let mut block = vec![0; info.block_size() as usize];
    block[..HEADER_SIZE].copy_from_slice(&Header::new(info, layout).to_bytes());
    Ok(ssd.write(0, &block, true)?)
}

fn read_info(file: &File, path: &Path) -> Result<ImageInfo, ImageError> {
    use std::os::unix::fs::FileExt;
    check_kind(file, path)?;
    let found = size_of(file).map_err(at("open", path))?;
    if found < HEADER_SIZE as u64 {
        return Err(ImageError::Foreign);
    }
    let mut header = [0; HEADER_SIZE];
    file.read_exact_at(&mut header, 0)
        .map_err(at("read", path))?;
    let (info, layout) = Header::parse(&header)?;
    let expected = layout.total * u64::from(info.block_size());
    if found < expected {
        return Err(ImageError::Truncated { expected, found });
    }
    Ok(info)
}

/// An open image: the namespace's blocks with their metadata, and the swap area.
///
/// Commands on the namespace are atomic towards each other: a read never sees half of a write. A write puts down the data,
/// then the metadata. When either fails, the old content of both is restored, so that a failed write has no effect; only if
/// the medium refuses that too (it is then logged), or could not read the old content, are the blocks of the write unspecified.
///
/// A kill of the process between the two leaves new data with old metadata. A power loss before a flush may leave any of old
/// and new data with any of old and new metadata, block by block, for the medium may store a volatile write in any order.
/// A completed flush, and FUA for the blocks of its own write, make both durable together.
pub struct Image {
    ssd: Box<dyn Ssd>,
    info: ImageInfo,
    layout: Layout,
    /// Of the namespace's blocks. Who writes has all blocks whose metadata share blocks of the metadata area with his.
    locks: RangeLocks,
    swap: RwLock<()>,
}

/// How an operation of an image reaches the SSD.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Via {
    /// The thread waits for the SSD: the future never pends but for a lock.
    Thread,
    /// Submitted: nobody waits.
    Submission,
}

impl Image {
    /// Opens the image at `path` and locks it, until the image is dropped, against being opened or formatted a second time.
    pub fn open(path: &Path) -> Result<Image, ImageError> {
        Image::open_with(path, IoOptions::default())
    }

    /// Like [`Image::open`], with a choice of how bytes are moved.
    pub fn open_with(path: &Path, options: IoOptions) -> Result<Image, ImageError> {
        let (ssd, info, layout) = open_file(path, Opening::Existing, options)?;
        Ok(Image::assemble(Box::new(ssd), info, layout))
    }

    /// Opens the image at `path` to read it, without the permission to write it: every write fails. Others may read it at the
    /// same time, but no drive that writes has it open meanwhile.
    pub fn open_read_only(path: &Path) -> Result<Image, ImageError> {
        let (ssd, info, layout) = open_file(path, Opening::ReadOnly, IoOptions::default())?;
        Ok(Image::assemble(Box::new(ssd), info, layout))
    }

    /// Like [`Image::open_with`], for tests of what hosts see of a failing SSD: the block numbers of `faults` are logical
    /// blocks of the namespace, and both the data and the metadata of a block can be meant (its metadata are behind the
    /// namespace's last block).
    #[doc(hidden)]
    pub fn open_faulty(
        path: &Path,
        options: IoOptions,
        faults: impl IntoIterator<Item = Injection>,
    ) -> Result<Image, ImageError> {
        let (ssd, info, layout) = open_file(path, Opening::Existing, options)?;
        let faulty = FaultySsd::new(Arc::new(ssd));
        for fault in faults {
            faulty.inject(fault.moved_by(layout.namespace));
        }
        Ok(Image::assemble(Box::new(faulty), info, layout))
    }

    /// Makes an image on `ssd`, whose block size is the option's and whose blocks suffice, and opens it. Old content of the
    /// SSD shows through: it should be all zero.
    pub fn format_on(ssd: Box<dyn Ssd>, options: &FormatOptions) -> Result<Image, ImageError> {
        let info = describe(options)?;
        let layout = info.layout()?;
        check_ssd(ssd.as_ref(), &info, &layout)?;
        write_header(ssd.as_ref(), &info, &layout)?;
        Ok(Image::assemble(ssd, info, layout))
    }

    /// Opens the image on `ssd`.
    pub fn open_on(ssd: Box<dyn Ssd>) -> Result<Image, ImageError> {
        let mut block = vec![0; ssd.block_size() as usize];
        ssd.read(0, &mut block)?;
        let header = block.first_chunk().ok_or(ImageError::Foreign)?;
        let (info, layout) = Header::parse(header)?;
        check_ssd(ssd.as_ref(), &info, &layout)?;
        Ok(Image::assemble(ssd, info, layout))
    }

    fn assemble(ssd: Box<dyn Ssd>, info: ImageInfo, layout: Layout) -> Image {
        Image {
            ssd,
            info,
            layout,
            locks: RangeLocks::default(),
            swap: RwLock::new(()),
        }
    }

    /// Geometry and identity of the image.
    pub fn info(&self) -> &ImageInfo {
        &self.info
    }

    /// Reads logical blocks from `lba` on: fills `data`, a whole number of blocks, and `metadata`, 64 bytes a block (empty
    /// where the namespace has none).
    pub fn read_blocks(
        &self,
        lba: u64,
        data: &mut [u8],
        metadata: &mut [u8],
    ) -> Result<(), SsdError> {
        self.check_buffers(lba, data.len(), metadata.len())?;
        let range = lba..lba + self.count(data);
        let _shared = block_on(self.locks.lock(&[range], false));
        self.ssd.read(self.layout.namespace + lba, data)?;
        if metadata.is_empty() {
            // Their place may be beyond the end of an image without metadata.
            return Ok(());
        }
        self.read_bytes(self.layout.metadata, lba * METADATA_SIZE, metadata)
    }

    /// Like [`Image::read_blocks`], if that takes no waiting, neither for the SSD nor for writes under way; says whether.
    pub(crate) fn try_read_blocks_now(
        &self,
        lba: u64,
        data: &mut [u8],
        metadata: &mut [u8],
    ) -> Result<bool, SsdError> {
        self.check_buffers(lba, data.len(), metadata.len())?;
        let range = lba..lba + self.count(data);
        let Some(_shared) = self.locks.lock_now(&[range], false) else {
            return Ok(false);
        };
        if !self.ssd.try_read_now(self.layout.namespace + lba, data)? {
            return Ok(false);
        }
        if metadata.is_empty() {
            return Ok(true);
        }
        let (block, from, mut old) = self.frame(
            self.layout.metadata,
            lba * METADATA_SIZE,
            metadata.len() as u64,
        );
        let read = self.ssd.try_read_now(block, &mut old)?;
        metadata.copy_from_slice(&old[from..][..metadata.len()]);
        Ok(read)
    }

    /// Whether [`Image::submit_read`], [`Image::submit_write`] and [`Image::submit_flush`] never wait on a thread.
    pub(crate) fn is_asynchronous(&self) -> bool {
        self.ssd.is_asynchronous()
    }

    /// [`Image::read_blocks`] of `count` blocks, without waiting: gives data and metadata.
    pub(crate) async fn submit_read(
        &self,
        lba: u64,
        count: u64,
    ) -> Result<(Vec<u8>, Vec<u8>), SsdError> {
        self.check_range(lba, count)?;
        let range = lba..lba + count;
        let _shared = self.locks.lock(&[range], false).await;
        let bytes = count as usize * self.info.block_size() as usize;
        let data = vec![0; bytes];
        let data = self
            .get(Via::Submission, self.layout.namespace + lba, data)
            .await?;
        let len = count * u64::from(self.info.metadata_size());
        if len == 0 {
            return Ok((data, Vec::new()));
        }
        let (block, from, old) = self.frame(self.layout.metadata, lba * METADATA_SIZE, len);
        let old = self.get(Via::Submission, block, old).await?;
        Ok((data, old[from..][..len as usize].to_vec()))
    }

    /// Writes logical blocks from `lba` on: `data`, a whole number of blocks, and `metadata`, 64 bytes a block (empty where the
    /// namespace has none). With `fua` both are on non-volatile media on return.
    pub fn write_blocks(
        &self,
        lba: u64,
        data: &[u8],
        metadata: &[u8],
        fua: bool,
    ) -> Result<(), SsdError> {
        block_on(self.put_blocks(Via::Thread, lba, data.into(), metadata.into(), fua))
    }

    /// [`Image::write_blocks`] without waiting.
    pub(crate) async fn submit_write(
        &self,
        lba: u64,
        data: Vec<u8>,
        metadata: Vec<u8>,
        fua: bool,
    ) -> Result<(), SsdError> {
        self.put_blocks(Via::Submission, lba, data.into(), metadata.into(), fua)
            .await
    }

    async fn put_blocks(
        &self,
        via: Via,
        lba: u64,
        data: Cow<'_, [u8]>,
        metadata: Cow<'_, [u8]>,
        fua: bool,
    ) -> Result<(), SsdError> {
        self.check_buffers(lba, data.len(), metadata.len())?;
        if data.is_empty() {
            return Ok(());
        }
        let range = self.granules(lba, self.count(&data));
        let _exclusive = self.locks.lock(&[range], true).await;
        let data_offset = lba * u64::from(self.info.block_size());
        let mut extents = vec![
            self.extent(via, self.layout.namespace, data_offset, data)
                .await?,
        ];
        if !metadata.is_empty() {
            let extent = self
                .extent(via, self.layout.metadata, lba * METADATA_SIZE, metadata)
                .await?;
            // Plain data over plain data is common, and need not fill the metadata area with zeroes.
            if fua || extent.changes() {
                extents.push(extent);
            }
        }
        for i in 0..extents.len() {
            let new = std::mem::take(&mut extents[i].new);
            if let Err(error) = self.put(via, extents[i].block, new, fua).await {
                extents.truncate(i + 1);
                let undo = extents.into_iter().map(Extent::into_old).collect();
                self.undo(via, undo, &error).await;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Puts old content back, the latest first, after `error`.
    async fn undo(&self, via: Via, undo: Vec<Old>, error: &SsdError) {
        for (block, old) in undo.into_iter().rev() {
            let Some(old) = old else { continue };
            if let Err(undo_error) = self.put(via, block, old.into(), false).await {
                tracing::error!(%error, %undo_error, block, "a failed write could not be undone");
            }
        }
    }

    /// Sets `count` logical blocks from `lba` on, and their metadata, to zero, and gives their space back.
    ///
    /// When it fails, the old content of all of them is restored, as after a write, if no more than 16 MiB of them were other
    /// than zero. Otherwise the first of them may have become zero, data and metadata, and the others are as before. A flush
    /// that fails, with `fua`, leaves all of them zero.
    pub fn write_zeroes(&self, lba: u64, count: u64, fua: bool) -> Result<(), SsdError> {
        self.check_range(lba, count)?;
        let exclusive = block_on(self.locks.lock(&[self.granules(lba, count)], true));
        let step = (ZERO_STEP / u64::from(self.info.block_size())).max(1);
        let (mut undo, mut kept) = (Vec::new(), 0);
        let end = lba + count;
        for from in (lba..end).step_by(step as usize) {
            if kept > MOST_UNDO {
                undo.clear();
                kept = 0;
            }
            let before = undo.len();
            if let Err(error) = self.zero(from, step.min(end - from), &mut undo) {
                block_on(self.undo(Via::Thread, undo, &error));
                return Err(error);
            }
            let olds = undo[before..].iter().filter_map(|(_, old)| old.as_ref());
            kept += olds.map(Vec::len).sum::<usize>();
        }
        drop(exclusive);
        if fua { self.ssd.flush() } else { Ok(()) }
    }

    /// Like [`Image::write_zeroes`] for blocks whose content is of no more use: it reads none of it, and on failure any part of
    /// them may have become zero.
    pub fn deallocate(&self, lba: u64, count: u64) -> Result<(), SsdError> {
        self.check_range(lba, count)?;
        let _exclusive = block_on(self.locks.lock(&[self.granules(lba, count)], true));
        self.ssd.write_zeroes(self.layout.namespace + lba, count)?;
        if self.info.metadata_size() == 0 {
            return Ok(());
        }
        self.zero_metadata(lba * METADATA_SIZE, (lba + count) * METADATA_SIZE)
    }

    /// Makes every completed write non-volatile, those to the swap area included.
    pub fn flush(&self) -> Result<(), SsdError> {
        self.ssd.flush()
    }

    /// [`Image::flush`] without waiting.
    pub(crate) async fn submit_flush(&self) -> Result<(), SsdError> {
        self.submit(Operation::Flush).await.map(|_| ())
    }

    /// Bytes of the swap area.
    pub fn swap_len(&self) -> u64 {
        self.layout.swap_blocks * u64::from(self.info.block_size())
    }

    /// Reads from the swap area at byte `offset`. Fastest at multiples of the block size.
    pub fn swap_read(&self, offset: u64, buf: &mut [u8]) -> Result<(), SsdError> {
        self.check_swap(offset, buf.len())?;
        let _shared = read(&self.swap);
        self.read_bytes(self.layout.swap, offset, buf)
    }

    /// Writes to the swap area at byte `offset`, volatile until a flush. Fastest at multiples of the block size. On failure the
    /// blocks touched are unspecified.
    pub fn swap_write(&self, offset: u64, data: &[u8]) -> Result<(), SsdError> {
        self.check_swap(offset, data.len())?;
        if self.is_aligned(offset, data.len()) {
            let _shared = read(&self.swap);
            return self
                .ssd
                .write(self.layout.swap + self.block_of(offset), data, false);
        }
        let _exclusive = write(&self.swap);
        let extent = block_on(self.extent(Via::Thread, self.layout.swap, offset, data.into()))?;
        self.ssd.write(extent.block, &extent.new, false)
    }

    /// Sets the whole swap area to zero and gives its space back. Its content means nothing to a later run of the drive.
    pub fn swap_clear(&self) -> Result<(), SsdError> {
        let _exclusive = write(&self.swap);
        self.ssd
            .write_zeroes(self.layout.swap, self.layout.swap_blocks)
    }

    fn check_range(&self, lba: u64, count: u64) -> Result<(), SsdError> {
        let blocks = self.info.blocks();
        match lba.checked_add(count) {
            Some(end) if end <= blocks => Ok(()),
            _ => Err(SsdError::OutOfRange { lba, count, blocks }),
        }
    }

    fn check_buffers(&self, lba: u64, data: usize, metadata: usize) -> Result<(), SsdError> {
        let block_size = self.info.block_size() as usize;
        if !data.is_multiple_of(block_size) {
            return Err(SsdError::BufferLength {
                expected: format!("a multiple of {block_size}"),
                found: data,
            });
        }
        let count = data / block_size;
        let expected = count * usize::from(self.info.metadata_size());
        if metadata != expected {
            return Err(SsdError::BufferLength {
                expected: format!("{expected} for the metadata of {count} blocks"),
                found: metadata,
            });
        }
        self.check_range(lba, count as u64)
    }

    fn check_swap(&self, offset: u64, len: usize) -> Result<(), SsdError> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.swap_len() => Ok(()),
            _ => Err(SsdError::OutOfRange {
                lba: self.block_of(offset),
                count: (len as u64).div_ceil(u64::from(self.info.block_size())),
                blocks: self.layout.swap_blocks,
            }),
        }
    }

    fn is_aligned(&self, offset: u64, len: usize) -> bool {
        let block_size = u64::from(self.info.block_size());
        offset.is_multiple_of(block_size) && (len as u64).is_multiple_of(block_size)
    }

    /// Block, within an area, that byte `offset` of the area lies in.
    fn block_of(&self, offset: u64) -> u64 {
        offset / u64::from(self.info.block_size())
    }

    /// Fills `buf` from byte `offset` of the area that starts at block `area`.
    fn read_bytes(&self, area: u64, offset: u64, buf: &mut [u8]) -> Result<(), SsdError> {
        if self.is_aligned(offset, buf.len()) {
            return self.ssd.read(area + self.block_of(offset), buf);
        }
        let (block, from, mut old) = self.frame(area, offset, buf.len() as u64);
        self.ssd.read(block, &mut old)?;
        buf.copy_from_slice(&old[from..][..buf.len()]);
        Ok(())
    }

    /// Number of logical blocks that `data` fills.
    fn count(&self, data: &[u8]) -> u64 {
        data.len() as u64 / u64::from(self.info.block_size())
    }

    /// The range that is locked to write these blocks.
    fn granules(&self, lba: u64, count: u64) -> Range<u64> {
        if self.info.metadata_size() == 0 {
            return lba..lba + count;
        }
        let granule = u64::from(self.info.block_size()) / METADATA_SIZE;
        lba - lba % granule..(lba + count).next_multiple_of(granule)
    }

    async fn submit(&self, operation: Operation) -> Result<Vec<u8>, SsdError> {
        let lost = io::Error::from(io::ErrorKind::BrokenPipe);
        let lost = match &operation {
            Operation::Read { lba, .. } => SsdError::Read {
                lba: *lba,
                source: lost,
            },
            Operation::Write { lba, .. } => SsdError::Write {
                lba: *lba,
                source: lost,
            },
            Operation::Flush => SsdError::Flush { source: lost },
        };
        let (ended, end) = oneshot::channel();
        let done = move |result| {
            // Who asked may have gone away.
            let _ = ended.send(result);
        };
        self.ssd.submit(operation, Box::new(done));
        end.await.unwrap_or(Err(lost))
    }

    /// Fills `buf` with blocks from `lba` of the SSD on.
    async fn get(&self, via: Via, lba: u64, mut buf: Vec<u8>) -> Result<Vec<u8>, SsdError> {
        if via == Via::Thread {
            return self.ssd.read(lba, &mut buf).map(|()| buf);
        }
        self.submit(Operation::Read { lba, buf }).await
    }

    /// Fills `buf`, which is zero, with blocks from `lba` of the SSD on that are about to be written over: often they are a
    /// hole, or still in memory.
    async fn get_old(&self, via: Via, lba: u64, mut buf: Vec<u8>) -> Result<Vec<u8>, SsdError> {
        let at_once = via == Via::Submission
            && (self.ssd.is_hole(lba, self.count(&buf)) || self.ssd.try_read_now(lba, &mut buf)?);
        if at_once {
            return Ok(buf);
        }
        self.get(via, lba, buf).await
    }

    /// Writes blocks from `lba` of the SSD on.
    async fn put(
        &self,
        via: Via,
        lba: u64,
        data: Cow<'_, [u8]>,
        fua: bool,
    ) -> Result<(), SsdError> {
        if via == Via::Thread {
            return self.ssd.write(lba, &data, fua);
        }
        let data = data.into_owned();
        self.submit(Operation::Write { lba, data, fua })
            .await
            .map(|_| ())
    }

    /// The whole blocks around `len` bytes at byte `offset` of an area: the first, where the bytes start in them, and a buffer
    /// for them.
    fn frame(&self, area: u64, offset: u64, len: u64) -> (u64, usize, Vec<u8>) {
        let block_size = u64::from(self.info.block_size());
        let first = self.block_of(offset);
        let end = (offset + len).div_ceil(block_size);
        let from = (offset - first * block_size) as usize;
        let buffer = vec![0; ((end - first) * block_size) as usize];
        (area + first, from, buffer)
    }

    /// The blocks that `bytes` at byte `offset` of an area lie in, as they are and as they are to be.
    async fn extent<'a>(
        &self,
        via: Via,
        area: u64,
        offset: u64,
        bytes: Cow<'a, [u8]>,
    ) -> Result<Extent<'a>, SsdError> {
        let (block, from, old) = self.frame(area, offset, bytes.len() as u64);
        let whole = old.len() == bytes.len();
        let old = match self.get_old(via, block, old).await {
            // Blocks that cannot be read must remain writable: that is how they are repaired.
            Err(SsdError::Read { .. }) if whole => None,
            old => Some(old?),
        };
        let new = match &old {
            Some(old) if !whole => {
                let mut new = old.clone();
                new[from..from + bytes.len()].copy_from_slice(&bytes);
                Cow::Owned(new)
            }
            _ => bytes,
        };
        Ok(Extent { block, old, new })
    }

    /// Sets blocks and their metadata to zero; adds to `undo` what they held.
    fn zero(&self, lba: u64, count: u64, undo: &mut Vec<Old>) -> Result<(), SsdError> {
        let area = self.layout.namespace;
        let block_size = u64::from(self.info.block_size());
        let mut extents = Vec::new();
        if !self.ssd.is_hole(area + lba, count) {
            extents.push((
                area,
                lba * block_size,
                vec![0; (count * block_size) as usize],
            ));
        }
        if self.info.metadata_size() != 0 {
            let zeroes = vec![0; (count * METADATA_SIZE) as usize];
            extents.push((self.layout.metadata, lba * METADATA_SIZE, zeroes));
        }
        for (area, offset, zeroes) in extents {
            let extent = block_on(self.extent(Via::Thread, area, offset, zeroes.into()))?;
            let (block, blocks) = (extent.block, self.count(&extent.new));
            // Zeroes that are written take space.
            let new = extent.new.iter().any(|byte| *byte != 0);
            let new = new.then(|| extent.new.to_vec());
            if extent.changes() {
                undo.push(extent.into_old());
            } else if area != self.layout.namespace {
                continue;
            }
            match new {
                Some(new) => self.ssd.write(block, &new, false)?,
                None => self.ssd.write_zeroes(block, blocks)?,
            }
        }
        Ok(())
    }

    /// Sets the bytes of the metadata area in `start..end` to zero.
    fn zero_metadata(&self, start: u64, end: u64) -> Result<(), SsdError> {
        let block_size = u64::from(self.info.block_size());
        let inner_start = start.next_multiple_of(block_size).min(end);
        let inner_end = (end - end % block_size).max(inner_start);
        for (from, to) in [(start, inner_start), (inner_end, end)] {
            if from < to {
                let zeroes = vec![0; (to - from) as usize];
                let extent = self.extent(Via::Thread, self.layout.metadata, from, zeroes.into());
                let extent = block_on(extent)?;
                if extent.changes() {
                    self.ssd.write(extent.block, &extent.new, false)?;
                }
            }
        }
        let (first, last) = (self.block_of(inner_start), self.block_of(inner_end));
        if first < last {
            self.ssd
                .write_zeroes(self.layout.metadata + first, last - first)?;
        }
        Ok(())
    }
}

/// Whole blocks around a run of bytes.
struct Extent<'a> {
    block: u64,
    /// `None` where they cannot be read.
    old: Option<Vec<u8>>,
    new: Cow<'a, [u8]>,
}

/// Whole blocks from a block of the SSD on, and what they held; `None` where they could not be read.
type Old = (u64, Option<Vec<u8>>);

impl Extent<'_> {
    fn into_old(self) -> Old {
        (self.block, self.old)
    }

    fn changes(&self) -> bool {
        self.old.as_deref() != Some(&*self.new)
    }
}

/// Bytes that Write Zeroes sets to zero in one step.
const ZERO_STEP: u64 = 1 << 20;
/// From how many bytes of old content on Write Zeroes keeps no more of it.
const MOST_UNDO: usize = 16 << 20;

const METADATA_SIZE: u64 = ScMetadata::SIZE as u64;

fn open_file(
    path: &Path,
    opening: Opening,
    options: IoOptions,
) -> Result<(FileSsd, ImageInfo, Layout), ImageError> {
    let file = open_locked(path, opening)?;
    let info = read_info(&file, path)?;
    let layout = info.layout()?;
    let ssd = FileSsd::with_options(file, info.block_size(), layout.total, options)
        .map_err(at("open", path))?;
    Ok((ssd, info, layout))
}

fn check_ssd(ssd: &dyn Ssd, info: &ImageInfo, layout: &Layout) -> Result<(), ImageError> {
    if ssd.block_size() != info.block_size() {
        return Err(ImageError::Options {
            reason: format!(
                "block size {} on an SSD with blocks of {}",
                info.block_size(),
                ssd.block_size()
            ),
        });
    }
    if ssd.blocks() < layout.total {
        return Err(ImageError::Truncated {
            expected: layout.total * u64::from(info.block_size()),
            found: ssd.blocks() * u64::from(info.block_size()),
        });
    }
    Ok(())
}

// The lock guards no data that a panic could leave half-changed, so poison means nothing here.

fn read(lock: &RwLock<()>) -> RwLockReadGuard<'_, ()> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write(lock: &RwLock<()>) -> RwLockWriteGuard<'_, ()> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
