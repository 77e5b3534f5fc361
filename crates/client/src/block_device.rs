//! [`BlockDeviceController`]: a drive that Linux shows as a block device, by the system's own read and write. Commands for the drive's
//! namespaces of other command sets go through the driver's passthrough, where this process may use that.
//!
//! For hosts where a kernel is connected to the drive (`/dev/nvme0n1`). A block device has no metadata beside its blocks, so secure
//! computing metadata goes through the second half of the LBA space. I/O is direct: each read and write is one command, which
//! reaches the drive whole and when it is made, as commands that trigger programs must.

mod passthrough;

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aligned_vec::{AVec, ConstAlign, avec};
use futures::future::{BoxFuture, FutureExt};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use thiserror::Error;
use toroid_nvme::{
    Command, Controller, ControllerInfo, DsmRange, ErrorInformation, ErrorLog, Io, Namespace,
    NamespaceError, Request, Response, Sqe, Status,
};

/// The one namespace of blocks of a [`BlockDeviceController`] on a file, or on a device whose driver does not tell another identifier.
pub const NSID: u32 = 1;

/// Alignment of buffers: that of pages, which no device asks more than.
const ALIGNMENT: usize = 4096;
/// Most bytes of one command: as many pages as one request of the kernel's block layer holds without being split.
const MOST_BYTES: u64 = 1 << 20;
/// Logical block of a plain file.
const FILE_BLOCK: u32 = 4096;

/// Why a block device cannot be used as a drive.
#[derive(Debug, Error)]
pub enum BlockDeviceError {
    /// The operating system refused.
    #[error("cannot {action} {path}", path = path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The device.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A mounted or otherwise used device.
    #[error("{path} is in use: mounted, or open in another program", path = path.display())]
    Busy {
        /// The device.
        path: PathBuf,
    },
    /// Neither a block device nor a file.
    #[error("{path} is neither a block device nor a file", path = path.display())]
    Kind {
        /// The path.
        path: PathBuf,
    },
    /// The device's sizes are not those of a namespace. A namespace with metadata over NVMe/TCP has a block device of no size.
    #[error("{path} cannot be a namespace", path = path.display())]
    Namespace {
        /// The device.
        path: PathBuf,
        /// Why.
        source: NamespaceError,
    },
}

/// A block device as a controller with one namespace of blocks, without metadata. It and those of other command sets have the identifiers
/// that they have on the drive.
///
/// Commands run on Tokio's threads for blocking work, each as one system call; they cannot be aborted. Outside of a Tokio runtime they
/// fail. The kernel tells no more of a
/// failure than an error number: [`Controller::errors`] has it in words.
pub struct BlockDeviceController {
    info: ControllerInfo,
    device: Arc<Device>,
    others: Vec<Arc<passthrough::Other>>,
}

struct Device {
    file: File,
    path: PathBuf,
    block_size: u64,
    errors: Mutex<ErrorLog>,
}

impl BlockDeviceController {
    /// Opens a block device, for this process alone. A plain file is taken as well, as blocks of 4096 bytes that nothing computes on.
    ///
    /// # Errors
    /// [`BlockDeviceError`].
    pub fn open(path: &Path) -> Result<BlockDeviceController, BlockDeviceError> {
        let failed = |action| {
            move |source| BlockDeviceError::Io {
                action,
                path: path.to_owned(),
                source,
            }
        };
        let kind = std::fs::metadata(path).map_err(failed("open"))?.file_type();
        let is_device = kind.is_block_device();
        if !is_device && !kind.is_file() {
            return Err(BlockDeviceError::Kind {
                path: path.to_owned(),
            });
        }
        let open = |flags: OFlags| {
            OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(flags.bits().cast_signed())
                .open(path)
        };
        // EXCL on a device keeps out mounts and others who ask for the same.
        let file = if is_device {
            open(OFlags::DIRECT | OFlags::EXCL)
        } else {
            // Not every file system has direct I/O.
            open(OFlags::DIRECT).or_else(|_| open(OFlags::empty()))
        };
        let file = file.map_err(|source| match Errno::from_io_error(&source) {
            Some(Errno::BUSY) => BlockDeviceError::Busy {
                path: path.to_owned(),
            },
            _ => failed("open")(source),
        })?;
        if !is_device {
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(BlockDeviceError::Busy {
                        path: path.to_owned(),
                    });
                }
                Err(TryLockError::Error(source)) => return Err(failed("lock")(source)),
            }
        }
        let block_size = if is_device {
            rustix::fs::ioctl_blksszget(&file)
                .map_err(|errno| failed("ask for the block size of")(errno.into()))?
        } else {
            FILE_BLOCK
        };
        let bytes = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))
            .map_err(|errno| failed("ask for the size of")(errno.into()))?;
        let blocks = bytes / u64::from(block_size.max(1));
        let unfit = |source| BlockDeviceError::Namespace {
            path: path.to_owned(),
            source,
        };
        // One of another command set may have the identifier that a file gets.
        let nsid = match is_device {
            true => passthrough::nsid(&file).unwrap_or(NSID),
            false => NSID,
        };
        let namespace = Namespace::new(nsid, block_size, blocks, 0).map_err(unfit)?;
        let device_number = file.metadata().map_err(failed("open"))?.rdev();
        let most = if is_device {
            most_bytes(device_number)
        } else {
            MOST_BYTES
        };
        let others = match is_device {
            true => passthrough::others(&file, device_number),
            false => Vec::new(),
        };
        let info = ControllerInfo {
            mdts_bytes: most.max(u64::from(block_size)) as u32,
            volatile_write_cache: true,
            serial: String::new(),
            model: "Linux block device".to_owned(),
            firmware: String::new(),
            namespaces: vec![namespace],
            other_namespaces: others.iter().map(|other| other.namespace).collect(),
            vendor_statuses: &[],
        };
        Ok(BlockDeviceController {
            info,
            device: Arc::new(Device {
                file,
                path: path.to_owned(),
                block_size: block_size.into(),
                errors: Mutex::default(),
            }),
            others,
        })
    }

    /// Does work of a command on a thread that may block.
    fn run(
        &self,
        sqe: Sqe,
        work: impl FnOnce(&Device) -> Result<Response, Failure> + Send + 'static,
    ) -> BoxFuture<'static, Response> {
        let cid = sqe.cid.get();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            let status = Status::INTERNAL_ERROR;
            let reason = format!(
                "{sqe} was submitted outside of a Tokio runtime; expected one, whose threads do the work"
            );
            self.device.note(sqe, &Failure { status, reason });
            return async move { Response::failure(cid, status, true) }.boxed();
        };
        let device = Arc::clone(&self.device);
        let task = runtime
            .spawn_blocking(move || work(&device).inspect_err(|failure| device.note(sqe, failure)));
        async move {
            match task.await {
                Ok(Ok(response)) => response,
                Ok(Err(failure)) => Response::failure(cid, failure.status, false),
                Err(_) => Response::failure(cid, Status::INTERNAL_ERROR, false),
            }
        }
        .boxed()
    }
}

/// Bytes that one read or write of a device moves in one command: a power of two.
fn most_bytes(device: u64) -> u64 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let limit = |name: &str, unit: u64| {
        // A partition has its limits one level up.
        ["queue", "../queue"]
            .iter()
            .filter_map(|queue| {
                let path = format!("/sys/dev/block/{major}:{minor}/{queue}/{name}");
                std::fs::read_to_string(path).ok()?.trim().parse().ok()
            })
            .next()
            .map_or(MOST_BYTES, |value: u64| value.saturating_mul(unit))
    };
    let most = limit("max_sectors_kb", 1024)
        .min(limit("max_segments", ALIGNMENT as u64))
        .min(MOST_BYTES);
    most.checked_ilog2().map_or(0, |log2| 1 << log2)
}

/// Bytes that lie where direct I/O needs them.
type Aligned = AVec<u8, ConstAlign<ALIGNMENT>>;

fn zeroes(len: u64) -> Aligned {
    avec![[ALIGNMENT]| 0; len as usize]
}

/// Why a command failed: the status nearest to what the kernel made of the drive's own, and the reason.
struct Failure {
    status: Status,
    reason: String,
}

impl Device {
    fn offset(&self, io: &Io) -> u64 {
        io.slba * self.block_size
    }

    fn len(&self, blocks: u32) -> u64 {
        u64::from(blocks) * self.block_size
    }

    /// The data of a Read; nothing for other commands.
    fn execute(&self, command: Command, data: &[u8]) -> Result<Vec<u8>, Failure> {
        let failed = |source: io::Error| self.failure(command, &source);
        match command {
            Command::Read(io) => Ok(self.read(&io).map_err(failed)?.to_vec()),
            Command::Write(io) => {
                self.write(&io, data).map_err(failed)?;
                Ok(Vec::new())
            }
            Command::Flush { .. } => {
                self.flush().map_err(failed)?;
                Ok(Vec::new())
            }
            Command::Compare(io) => {
                if self.read(&io).map_err(failed)?[..] == *data {
                    return Ok(Vec::new());
                }
                Err(Failure {
                    status: Status::COMPARE_FAILURE,
                    reason: format!("{command}: {} holds something else", self.path.display()),
                })
            }
            Command::WriteZeroes { io, .. } => {
                self.zero(&io).map_err(failed)?;
                Ok(Vec::new())
            }
            Command::DatasetManagement { deallocate, .. } => {
                for range in DsmRange::list(data).iter().filter(|_| deallocate) {
                    let (offset, len) = (
                        range.slba.get() * self.block_size,
                        self.len(range.blocks.get()),
                    );
                    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    match rustix::fs::fallocate(&self.file, flags, offset, len) {
                        // It is a hint.
                        Ok(()) | Err(Errno::OPNOTSUPP) => {}
                        Err(errno) => return Err(failed(errno.into())),
                    }
                }
                Ok(Vec::new())
            }
        }
    }

    fn read(&self, io: &Io) -> io::Result<Aligned> {
        let mut buffer = zeroes(self.len(io.blocks));
        self.file.read_exact_at(&mut buffer, self.offset(io))?;
        Ok(buffer)
    }

    fn write(&self, io: &Io, data: &[u8]) -> io::Result<()> {
        let buffer = Aligned::from_slice(ALIGNMENT, data);
        let (mut left, mut offset) = (&buffer[..], self.offset(io));
        if !io.fua {
            return self.file.write_all_at(left, offset);
        }
        while !left.is_empty() {
            let slices = [io::IoSlice::new(left)];
            let written = rustix::io::pwritev2(&self.file, &slices, offset, ReadWriteFlags::DSYNC)?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            left = left.get(written..).unwrap_or_default();
            offset += written as u64;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.file)?)
    }

    fn zero(&self, io: &Io) -> io::Result<()> {
        let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        let (offset, len) = (self.offset(io), self.len(io.blocks));
        match rustix::fs::fallocate(&self.file, flags, offset, len) {
            Err(Errno::OPNOTSUPP) => {
                let zeroes = zeroes(len.min(MOST_BYTES));
                for start in (0..len).step_by(MOST_BYTES as usize) {
                    let now = (len - start).min(MOST_BYTES) as usize;
                    self.file.write_all_at(&zeroes[..now], offset + start)?;
                }
            }
            done => done?,
        }
        if io.fua { self.flush() } else { Ok(()) }
    }

    fn failure(&self, command: Command, error: &io::Error) -> Failure {
        // How the kernel's NVMe driver turns statuses into error numbers, read backwards.
        let status = match Errno::from_io_error(error) {
            Some(Errno::NOSPC) => Status::CAPACITY_EXCEEDED,
            Some(Errno::REMOTEIO) => Status::LBA_OUT_OF_RANGE,
            Some(Errno::OPNOTSUPP | Errno::INVAL) => Status::INVALID_FIELD,
            Some(Errno::NODATA) if matches!(command, Command::Write(_)) => Status::WRITE_FAULT,
            Some(Errno::NODATA) => Status::UNRECOVERED_READ_ERROR,
            Some(Errno::ILSEQ) => Status::GUARD_CHECK_ERROR,
            Some(Errno::BADE) => Status::RESERVATION_CONFLICT,
            Some(Errno::ROFS | Errno::PERM | Errno::ACCESS) => Status::WRITE_PROTECTED,
            Some(Errno::NOLINK | Errno::NODEV | Errno::NXIO | Errno::TIMEDOUT) => {
                Status::HOST_PATHING_ERROR
            }
            _ => Status::INTERNAL_ERROR,
        };
        Failure {
            status,
            reason: format!(
                "{command} on {}: {error}; a block device tells no more than that. The kernel's log (dmesg) has the drive's status, and \
                 log page C0h its reason: nvme get-log /dev/nvmeX --log-id=0xc0 --log-len=4096 --raw-binary",
                self.path.display()
            ),
        }
    }

    fn not_passed(&self, sqe: Sqe, error: &io::Error) -> Failure {
        let status = match Errno::from_io_error(error) {
            // Files, and devices of other drivers.
            Some(Errno::NOTTY) => Status::INVALID_OPCODE,
            _ => Status::INTERNAL_ERROR,
        };
        Failure {
            status,
            reason: format!(
                "{sqe} was not passed on by {}: {error}",
                self.path.display()
            ),
        }
    }

    fn note(&self, sqe: Sqe, failure: &Failure) {
        self.errors()
            .push(sqe, failure.status, failure.reason.clone());
    }

    fn errors(&self) -> MutexGuard<'_, ErrorLog> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller for BlockDeviceController {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        let sqe = request.sqe;
        let mut others = self.others.iter();
        if let Some(other) = others.find(|other| other.namespace.nsid == sqe.nsid.get()) {
            let other = Arc::clone(other);
            return self.run(sqe, move |device| {
                let passed = other.execute(&request);
                passed.map_err(|error| device.not_passed(sqe, &error))
            });
        }
        let cid = sqe.cid.get();
        let command = match self.info.check(&request) {
            Ok(command) => command,
            Err(status) => {
                let reason = format!("{sqe} is refused by {}", self.device.path.display());
                self.device.note(sqe, &Failure { status, reason });
                return async move { Response::failure(cid, status, true) }.boxed();
            }
        };
        self.run(sqe, move |device| {
            Ok(Response {
                data: device.execute(command, &request.data)?,
                ..Response::success(cid)
            })
        })
    }

    fn admin(&self, request: Request) -> BoxFuture<'_, Response> {
        let sqe = request.sqe;
        self.run(sqe, move |device| {
            let passed = passthrough::admin(&device.file, &request);
            passed.map_err(|error| device.not_passed(sqe, &error))
        })
    }

    fn info(&self) -> &ControllerInfo {
        &self.info
    }

    fn errors(&self) -> Vec<ErrorInformation> {
        self.device.errors().entries()
    }
}
