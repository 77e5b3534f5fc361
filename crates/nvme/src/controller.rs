//! The [`Controller`] trait, through which a program submits commands, and helpers that read and write blocks.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use futures::future::{BoxFuture, FutureExt};
use thiserror::Error;
use toroid_task::CancelToken;

use crate::{BROADCAST_NSID, Command, Cqe, DsmRange, Namespace, Sqe, Status};

/// Most logical blocks that one command can name (NLB is a 0-based 16-bit field).
const MAX_BLOCKS: u64 = 1 << 16;

/// A command with the buffers that go to the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The command. Its `mptr` and `dptr` are not used: the buffers below take their place.
    pub sqe: Sqe,
    /// Data to the controller: for Write and Compare exactly the blocks' data, for Dataset Management the ranges, else empty.
    pub data: Vec<u8>,
    /// Metadata to the controller: for Write and Compare exactly the blocks' metadata (empty where the namespace has none),
    /// else empty.
    pub metadata: Vec<u8>,
}

impl Request {
    /// Request without buffers (Read, Flush, Write Zeroes).
    pub fn new(sqe: Sqe) -> Request {
        Request {
            sqe,
            data: Vec::new(),
            metadata: Vec::new(),
        }
    }
}

/// A completion with the buffers that come from the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The completion.
    pub cqe: Cqe,
    /// Data of a successful Read; empty for every other command and on failure (the request's buffers are not handed back).
    pub data: Vec<u8>,
    /// Metadata of a successful Read; empty for every other command, on failure, and where the namespace has none.
    pub metadata: Vec<u8>,
}

impl Response {
    /// Successful completion of `cid` without buffers.
    pub fn success(cid: u16) -> Response {
        Response {
            cqe: Cqe::success(cid),
            data: Vec::new(),
            metadata: Vec::new(),
        }
    }

    /// Failed completion of `cid`. See [`Cqe::new`] for `do_not_retry`.
    pub fn failure(cid: u16, status: Status, do_not_retry: bool) -> Response {
        Response {
            cqe: Cqe::new(cid, status, do_not_retry),
            data: Vec::new(),
            metadata: Vec::new(),
        }
    }
}

/// Meaning of one vendor-specific status code (SCT 7h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VendorStatus {
    /// Status code.
    pub sc: u8,
    /// What it means, as a clause: "the key is not loaded".
    pub meaning: &'static str,
}

/// A namespace whose commands are not those of the NVM command set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherNamespace {
    /// Namespace identifier.
    pub nsid: u32,
    /// Command set identifier (CSI): 3 for Subsystem Local Memory, 4 for Computational Programs.
    pub csi: u8,
    /// Globally unique identifier.
    pub nguid: [u8; 16],
}

/// What a host needs to know of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerInfo {
    /// Maximum data transfer size in bytes of one command, metadata not counted: 8192 times a power of two.
    pub mdts_bytes: u32,
    /// Whether there is a volatile write cache: a completed write without FUA may be lost until a Flush completes.
    pub volatile_write_cache: bool,
    /// Serial number, up to 20 ASCII characters.
    pub serial: String,
    /// Model number, up to 40 ASCII characters.
    pub model: String,
    /// Firmware revision, up to 8 ASCII characters.
    pub firmware: String,
    /// The namespaces of the NVM command set.
    pub namespaces: Vec<Namespace>,
    /// Namespaces of other command sets.
    pub other_namespaces: Vec<OtherNamespace>,
    /// The controller's vendor-specific status codes.
    pub vendor_statuses: &'static [VendorStatus],
}

impl ControllerInfo {
    /// The namespace `nsid`, if there is one.
    pub fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        self.namespaces.iter().find(|n| n.nsid() == nsid)
    }

    /// Whether there is such a namespace, of any command set.
    pub(crate) fn has_namespace(&self, nsid: u32) -> bool {
        let others = &self.other_namespaces;
        self.namespace(nsid).is_some() || others.iter().any(|other| other.nsid == nsid)
    }

    /// Checks a request as a controller must before it acts: the command, its namespace, its range of blocks, the transfer
    /// size and the lengths of the buffers.
    ///
    /// The ranges of a Dataset Management command ([`DsmRange::list`]) are checked too.
    pub fn check(&self, request: &Request) -> Result<Command, Status> {
        let command = Command::parse(&request.sqe)?;
        if command
            == (Command::Flush {
                nsid: BROADCAST_NSID,
            })
        {
            return expect_lengths(request, 0, 0).map(|()| command);
        }
        let namespace = self
            .namespace(command.nsid())
            .ok_or(Status::INVALID_NAMESPACE)?;
        let (data, metadata) = match command {
            Command::Flush { .. } => (0, 0),
            Command::WriteZeroes { io, .. } => {
                namespace.check_range(io.slba, u64::from(io.blocks))?;
                (0, 0)
            }
            Command::Read(io) | Command::Write(io) | Command::Compare(io) => {
                namespace.check_range(io.slba, u64::from(io.blocks))?;
                let data = namespace.data_len(io.blocks);
                if data > u64::from(self.mdts_bytes) {
                    return Err(Status::INVALID_FIELD);
                }
                match command {
                    Command::Read(_) => (0, 0),
                    _ => (data, namespace.metadata_len(io.blocks)),
                }
            }
            Command::DatasetManagement { ranges, .. } => {
                (u64::from(ranges) * size_of::<DsmRange>() as u64, 0)
            }
        };
        expect_lengths(request, data, metadata)?;
        if matches!(command, Command::DatasetManagement { .. }) {
            for range in DsmRange::list(&request.data) {
                namespace.check_range(range.slba.get(), u64::from(range.blocks.get()))?;
            }
        }
        Ok(command)
    }

    /// What `status` means; for a vendor-specific status, in the words of the controller.
    fn meaning(&self, status: Status) -> String {
        let own = (status == Status::vendor(status.sc()))
            .then(|| {
                self.vendor_statuses
                    .iter()
                    .find(|vendor| vendor.sc == status.sc())
            })
            .flatten();
        match own {
            Some(vendor) => format!("{} (7h/{:02X}h)", vendor.meaning, vendor.sc),
            None => status.to_string(),
        }
    }
}

fn expect_lengths(request: &Request, data: u64, metadata: u64) -> Result<(), Status> {
    if request.data.len() as u64 != data {
        return Err(Status::DATA_SGL_LENGTH_INVALID);
    }
    if request.metadata.len() as u64 != metadata {
        return Err(Status::METADATA_SGL_LENGTH_INVALID);
    }
    Ok(())
}

/// One failed command, for the Error Information log page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorInformation {
    /// Counts the entries, from 1.
    pub count: u64,
    /// The command.
    pub command: Sqe,
    /// Its status. [`Status::SUCCESS`] for a command that succeeded in part.
    pub status: Status,
    /// The reason, as text.
    pub reason: String,
}

/// Counters for the SMART / Health Information log page, since the controller started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Bytes that hosts have read.
    pub bytes_read: u64,
    /// Bytes that hosts have written.
    pub bytes_written: u64,
    /// Read commands.
    pub reads: u64,
    /// Write commands.
    pub writes: u64,
    /// Minutes that the controller spent computing or moving data.
    pub busy_minutes: u64,
    /// Reads and writes that the medium refused.
    pub media_errors: u64,
    /// Whether the medium refuses writes until the controller is reopened.
    pub read_only: bool,
}

/// A controller as a host sees it: in process, or behind a transport.
pub trait Controller: Send + Sync {
    /// Submits a command. The future resolves when the command has completed, with success or with a status and no effect.
    ///
    /// Any number of commands may be in flight at once, and complete in any order. The completion carries the request's
    /// command identifier; a transport that needs identifiers of its own puts it back. After a future is dropped, it is
    /// unknown whether the command took effect.
    fn submit(&self, request: Request) -> BoxFuture<'_, Response>;

    /// [`Controller::submit`] for a command that `cancel` aborts. A controller that cannot abort it completes it.
    fn submit_abortable(&self, request: Request, _cancel: CancelToken) -> BoxFuture<'_, Response> {
        self.submit(request)
    }

    /// Executes an admin command that a fabrics target does not answer itself: those of command sets other than NVM, and of the vendor.
    fn admin(&self, request: Request) -> BoxFuture<'_, Response> {
        let cid = request.sqe.cid.get();
        async move { Response::failure(cid, Status::INVALID_OPCODE, true) }.boxed()
    }

    /// Limits, namespaces and status codes of the controller.
    fn info(&self) -> &ControllerInfo;

    /// The latest failures, newest first.
    fn errors(&self) -> Vec<ErrorInformation> {
        Vec::new()
    }

    /// Counters.
    fn health(&self) -> Health {
        Health::default()
    }
}

impl<C: Controller + ?Sized> Controller for &C {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        (**self).submit(request)
    }

    fn submit_abortable(&self, request: Request, cancel: CancelToken) -> BoxFuture<'_, Response> {
        (**self).submit_abortable(request, cancel)
    }

    fn admin(&self, request: Request) -> BoxFuture<'_, Response> {
        (**self).admin(request)
    }

    fn info(&self) -> &ControllerInfo {
        (**self).info()
    }

    fn errors(&self) -> Vec<ErrorInformation> {
        (**self).errors()
    }

    fn health(&self) -> Health {
        (**self).health()
    }
}

impl<C: Controller + ?Sized> Controller for Arc<C> {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        (**self).submit(request)
    }

    fn submit_abortable(&self, request: Request, cancel: CancelToken) -> BoxFuture<'_, Response> {
        (**self).submit_abortable(request, cancel)
    }

    fn admin(&self, request: Request) -> BoxFuture<'_, Response> {
        (**self).admin(request)
    }

    fn info(&self) -> &ControllerInfo {
        (**self).info()
    }

    fn errors(&self) -> Vec<ErrorInformation> {
        (**self).errors()
    }

    fn health(&self) -> Health {
        (**self).health()
    }
}

/// Why a read, write or flush did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NvmeError {
    /// The controller completed the command with a status other than success.
    #[error("{command} failed: {meaning}")]
    Failed {
        /// The command.
        command: Sqe,
        /// Its status.
        status: Status,
        /// The status in words.
        meaning: String,
        /// Whether the same command is expected to fail again.
        do_not_retry: bool,
    },
    /// The controller has no such namespace.
    #[error("the controller has no namespace {nsid}")]
    UnknownNamespace {
        /// Namespace identifier.
        nsid: u32,
    },
    /// The blocks asked for do not all exist.
    #[error("{blocks} blocks at LBA {slba} exceed the namespace of {capacity} blocks")]
    OutOfRange {
        /// First logical block.
        slba: u64,
        /// Logical blocks.
        blocks: u64,
        /// Logical blocks of the namespace.
        capacity: u64,
    },
    /// A buffer of the caller does not hold whole blocks, or data and metadata do not have the same number of blocks.
    #[error("{buffer} buffer of {found} bytes; expected {expected}")]
    BufferLength {
        /// "data" or "metadata".
        buffer: &'static str,
        /// What was expected.
        expected: String,
        /// Bytes found.
        found: usize,
    },
    /// The controller reported success with buffers of the wrong length.
    #[error(
        "{command} returned {data} bytes of data and {metadata} of metadata; expected {expected_data} and {expected_metadata}"
    )]
    BadResponse {
        /// The command.
        command: Sqe,
        /// Bytes of data that came.
        data: usize,
        /// Bytes of metadata that came.
        metadata: usize,
        /// Bytes of data that the command asked for.
        expected_data: u64,
        /// Bytes of metadata that the command asked for.
        expected_metadata: u64,
    },
}

impl NvmeError {
    /// The controller's status, if it completed the command.
    pub fn status(&self) -> Option<Status> {
        match self {
            NvmeError::Failed { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// Contents of logical blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Data, block after block.
    pub data: Vec<u8>,
    /// Metadata, block after block; empty where the namespace has none.
    pub metadata: Vec<u8>,
}

/// Reads `blocks` logical blocks from `slba`, with as many sequential commands as the controller's limits require.
pub async fn read_blocks<C: Controller + ?Sized>(
    controller: &C,
    nsid: u32,
    slba: u64,
    blocks: u64,
) -> Result<Blocks, NvmeError> {
    let namespace = namespace(controller, nsid)?;
    let mut read = Blocks {
        data: Vec::new(),
        metadata: Vec::new(),
    };
    for (slba, blocks) in commands(controller, namespace, slba, blocks)? {
        let sqe = Sqe::read(next_cid(), nsid, slba, (blocks - 1) as u16);
        let response = execute(controller, Request::new(sqe)).await?;
        let expected_data = namespace.data_len(blocks);
        let expected_metadata = namespace.metadata_len(blocks);
        if response.data.len() as u64 != expected_data
            || response.metadata.len() as u64 != expected_metadata
        {
            return Err(NvmeError::BadResponse {
                command: sqe,
                data: response.data.len(),
                metadata: response.metadata.len(),
                expected_data,
                expected_metadata,
            });
        }
        if read.data.is_empty() {
            read.data = response.data;
            read.metadata = response.metadata;
        } else {
            read.data.extend_from_slice(&response.data);
            read.metadata.extend_from_slice(&response.metadata);
        }
    }
    Ok(read)
}

/// Writes `data`, a whole number of blocks, from `slba`, with as many sequential commands as the controller's limits
/// require. `metadata` holds the metadata of each block, or is empty: the metadata is then all zero.
///
/// When a command fails, those before it have taken effect. Data that are given away and fit one command are not copied.
pub async fn write_blocks<'d, C: Controller + ?Sized>(
    controller: &C,
    nsid: u32,
    slba: u64,
    data: impl Into<Cow<'d, [u8]>>,
    metadata: &[u8],
    fua: bool,
) -> Result<(), NvmeError> {
    let mut data = data.into();
    let namespace = namespace(controller, nsid)?;
    let block_size = namespace.block_size() as usize;
    let metadata_size = usize::from(namespace.metadata_size());
    let blocks = data.len() / block_size;
    if !data.len().is_multiple_of(block_size) {
        return Err(NvmeError::BufferLength {
            buffer: "data",
            expected: format!("a multiple of {block_size}"),
            found: data.len(),
        });
    }
    if !metadata.is_empty() && metadata.len() != blocks * metadata_size {
        return Err(NvmeError::BufferLength {
            buffer: "metadata",
            expected: format!("none or {}", blocks * metadata_size),
            found: metadata.len(),
        });
    }
    let (mut metadata, mut done) = (metadata, 0);
    for (slba, blocks) in commands(controller, namespace, slba, blocks as u64)? {
        let len = blocks as usize * block_size;
        let now = if len == data.len() {
            std::mem::take(&mut data).into_owned()
        } else {
            data[done..done + len].to_vec()
        };
        done += len;
        let metadata_len = blocks as usize * metadata_size;
        let now_metadata = if metadata.is_empty() {
            vec![0; metadata_len]
        } else {
            let (now, later) = metadata.split_at(metadata_len);
            metadata = later;
            now.to_vec()
        };
        let sqe = Sqe::write(next_cid(), nsid, slba, (blocks - 1) as u16);
        let request = Request {
            sqe: if fua { sqe.with_fua() } else { sqe },
            data: now,
            metadata: now_metadata,
        };
        execute(controller, request).await?;
    }
    Ok(())
}

/// Sets `blocks` logical blocks from `slba`, and their metadata, to zero.
pub async fn write_zeroes<C: Controller + ?Sized>(
    controller: &C,
    nsid: u32,
    slba: u64,
    blocks: u64,
) -> Result<(), NvmeError> {
    let namespace = namespace(controller, nsid)?;
    check_range(namespace, slba, blocks)?;
    for (slba, blocks) in split(slba, blocks, MAX_BLOCKS) {
        let sqe = Sqe::write_zeroes(next_cid(), nsid, slba, (blocks - 1) as u16);
        execute(controller, Request::new(sqe)).await?;
    }
    Ok(())
}

/// Makes everything written to the namespace so far non-volatile.
pub async fn flush<C: Controller + ?Sized>(controller: &C, nsid: u32) -> Result<(), NvmeError> {
    execute(controller, Request::new(Sqe::flush(next_cid(), nsid)))
        .await
        .map(drop)
}

fn next_cid() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn namespace<C: Controller + ?Sized>(controller: &C, nsid: u32) -> Result<&Namespace, NvmeError> {
    controller
        .info()
        .namespace(nsid)
        .ok_or(NvmeError::UnknownNamespace { nsid })
}

fn check_range(namespace: &Namespace, slba: u64, blocks: u64) -> Result<(), NvmeError> {
    namespace
        .check_range(slba, blocks)
        .map_err(|_| NvmeError::OutOfRange {
            slba,
            blocks,
            capacity: namespace.blocks(),
        })
}

/// The (slba, blocks) pairs of the data commands that cover the range.
fn commands<C: Controller + ?Sized>(
    controller: &C,
    namespace: &Namespace,
    slba: u64,
    blocks: u64,
) -> Result<impl Iterator<Item = (u64, u32)> + use<C>, NvmeError> {
    check_range(namespace, slba, blocks)?;
    let limit = u64::from(controller.info().mdts_bytes / namespace.block_size());
    Ok(split(slba, blocks, limit.clamp(1, MAX_BLOCKS)))
}

fn split(slba: u64, blocks: u64, limit: u64) -> impl Iterator<Item = (u64, u32)> {
    (0..blocks.div_ceil(limit)).map(move |i| {
        let done = i * limit;
        (slba + done, (blocks - done).min(limit) as u32)
    })
}

/// Submits an I/O command, and takes its failure as an error.
///
/// # Errors
/// [`NvmeError::Failed`].
pub async fn execute<C: Controller + ?Sized>(
    controller: &C,
    request: Request,
) -> Result<Response, NvmeError> {
    let command = request.sqe;
    let response = controller.submit(request).await;
    checked(controller, command, response)
}

/// The same with an admin command.
///
/// # Errors
/// [`NvmeError::Failed`].
pub async fn execute_admin<C: Controller + ?Sized>(
    controller: &C,
    request: Request,
) -> Result<Response, NvmeError> {
    let command = request.sqe;
    let response = controller.admin(request).await;
    checked(controller, command, response)
}

fn checked<C: Controller + ?Sized>(
    controller: &C,
    command: Sqe,
    response: Response,
) -> Result<Response, NvmeError> {
    let status = response.cqe.status();
    if status.is_success() {
        return Ok(response);
    }
    Err(NvmeError::Failed {
        command,
        status,
        meaning: controller.info().meaning(status),
        do_not_retry: response.cqe.do_not_retry(),
    })
}
