//! The SSD's side of the bridge: NVMe commands that the drive issues, for hosts and for paging.

use std::sync::Arc;

use toroid_engine::{PagingContext, Swap, SwapError, SwapSlot};
use toroid_nvme::{Command, DsmRange, Io, Sqe, Status};

use super::command::Blocks;
use super::log::{Log, TraceKind};
use crate::image::Image;
use crate::ssd::SsdError;

/// Namespace of the host's blocks, on both sides of the bridge.
pub(crate) const NSID: u32 = 1;
/// Namespace of the swap area on the SSD's side. Its logical blocks have 4096 bytes whatever the image's have.
pub const SWAP_NSID: u32 = 2;
/// Bytes of a swap area's block: the engine's unit of paging.
pub(crate) const SWAP_BLOCK: u64 = 4096;

/// Buffers of an SSD command.
pub(crate) enum Transfer<'a> {
    None,
    /// From the SSD.
    In {
        data: &'a mut [u8],
        metadata: &'a mut [u8],
    },
    /// To the SSD.
    Out {
        data: &'a [u8],
        metadata: &'a [u8],
    },
}

/// Executes NVMe commands on the image.
pub(crate) struct SsdSide {
    image: Image,
    log: Arc<Log>,
    /// Most bytes of data a command.
    mdts: usize,
}

impl SsdSide {
    pub(crate) fn new(image: Image, log: Arc<Log>, mdts: u32) -> SsdSide {
        SsdSide {
            image,
            log,
            mdts: mdts as usize,
        }
    }

    pub(crate) fn image(&self) -> &Image {
        &self.image
    }

    /// Room for blocks of the namespace and their NVMe metadata.
    pub(crate) fn buffers(&self, io: Io) -> Blocks {
        let (image, blocks) = (self.image.info(), io.blocks as usize);
        Blocks {
            data: vec![0; blocks * image.block_size() as usize],
            metadata: vec![0; blocks * usize::from(image.metadata_size())],
        }
    }

    /// Reads blocks of the namespace and their NVMe metadata.
    pub(crate) fn fetch(&self, cid: u16, io: Io) -> Result<Blocks, SsdError> {
        let mut blocks = self.buffers(io);
        let transfer = Transfer::In {
            data: &mut blocks.data,
            metadata: &mut blocks.metadata,
        };
        self.submit(read_command(cid, io), transfer)?;
        Ok(blocks)
    }

    /// Writes blocks of the namespace and their NVMe metadata.
    pub(crate) fn put(&self, cid: u16, io: Io, blocks: &Blocks) -> Result<(), SsdError> {
        let transfer = Transfer::Out {
            data: &blocks.data,
            metadata: &blocks.metadata,
        };
        self.submit(write_command(cid, io), transfer)
    }

    pub(crate) fn submit(&self, sqe: Sqe, transfer: Transfer<'_>) -> Result<(), SsdError> {
        self.log.trace(TraceKind::SsdCommand { sqe });
        let result = self.execute(&sqe, transfer);
        self.completed(sqe, &result);
        result
    }

    fn completed<T>(&self, sqe: Sqe, result: &Result<T, SsdError>) {
        let status = match result {
            Ok(_) => Status::SUCCESS,
            Err(error) => {
                self.log.ssd_failed(error);
                error.status()
            }
        };
        self.log.trace(TraceKind::SsdCompletion { sqe, status });
    }

    /// Reads blocks of the namespace if that takes no waiting. The trace does not tell of it before [`SsdSide::was_read_now`]: what
    /// would wait, or must be done again on a thread, is not a command yet.
    pub(crate) fn try_read_now(&self, io: Io, blocks: &mut Blocks) -> Option<Result<(), SsdError>> {
        self.image
            .try_read_blocks_now(io.slba, &mut blocks.data, &mut blocks.metadata)
            .map(|read| read.then_some(()))
            .transpose()
    }

    /// Tells of a read, `sqe`, that [`SsdSide::try_read_now`] has done.
    pub(crate) fn was_read_now(&self, sqe: Sqe, result: &Result<(), SsdError>) {
        self.log.trace(TraceKind::SsdCommand { sqe });
        self.completed(sqe, result);
    }

    /// Executes a read, `sqe`, of blocks of the namespace without waiting.
    pub(crate) async fn read(&self, sqe: Sqe, io: Io) -> Result<Blocks, SsdError> {
        self.log.trace(TraceKind::SsdCommand { sqe });
        let result = self.image.submit_read(io.slba, u64::from(io.blocks)).await;
        self.completed(sqe, &result);
        let (data, metadata) = result?;
        Ok(Blocks { data, metadata })
    }

    /// Executes a write, `sqe`, of blocks of the namespace without waiting.
    pub(crate) async fn write(&self, sqe: Sqe, io: Io, blocks: Blocks) -> Result<(), SsdError> {
        self.log.trace(TraceKind::SsdCommand { sqe });
        let result = self
            .image
            .submit_write(io.slba, blocks.data, blocks.metadata, io.fua)
            .await;
        self.completed(sqe, &result);
        result
    }

    /// Executes a flush, `sqe`, without waiting.
    pub(crate) async fn flush(&self, sqe: Sqe) -> Result<(), SsdError> {
        self.log.trace(TraceKind::SsdCommand { sqe });
        let result = self.image.submit_flush().await;
        self.completed(sqe, &result);
        result
    }

    fn execute(&self, sqe: &Sqe, transfer: Transfer<'_>) -> Result<(), SsdError> {
        let image = &self.image;
        match (Command::parse(sqe), transfer) {
            (Ok(Command::Read(io)), Transfer::In { data, .. }) if io.nsid == SWAP_NSID => {
                image.swap_read(io.slba * SWAP_BLOCK, data)
            }
            (Ok(Command::Write(io)), Transfer::Out { data, .. }) if io.nsid == SWAP_NSID => {
                image.swap_write(io.slba * SWAP_BLOCK, data)
            }
            (Ok(Command::Read(io)), Transfer::In { data, metadata }) => {
                image.read_blocks(io.slba, data, metadata)
            }
            (Ok(Command::Write(io)), Transfer::Out { data, metadata }) => {
                image.write_blocks(io.slba, data, metadata, io.fua)
            }
            (Ok(Command::WriteZeroes { io, .. }), Transfer::None) => {
                image.write_zeroes(io.slba, u64::from(io.blocks), io.fua)
            }
            (Ok(Command::DatasetManagement { .. }), Transfer::Out { data, .. }) => {
                DsmRange::list(data).iter().try_for_each(|range| {
                    image.deallocate(range.slba.get(), u64::from(range.blocks.get()))
                })
            }
            (Ok(Command::Flush { .. }), Transfer::None) => image.flush(),
            _ => Err(SsdError::BufferLength {
                expected: "buffers as the command needs them".into(),
                found: 0,
            }),
        }
    }

    /// Moves a page in commands of at most MDTS, all with the trigger's identifier.
    fn page(
        &self,
        context: PagingContext,
        slot: SwapSlot,
        bytes: usize,
        mut command: impl FnMut(Sqe, std::ops::Range<usize>) -> Result<(), SsdError>,
        make: fn(u16, u32, u64, u16) -> Sqe,
    ) -> Result<(), SwapError> {
        let mut start = 0;
        while start < bytes {
            let end = bytes.min(start + self.mdts);
            let blocks = (end - start) as u64 / SWAP_BLOCK;
            let slba = slot.unit() + start as u64 / SWAP_BLOCK;
            let sqe = make(
                context.command_id,
                SWAP_NSID,
                slba,
                blocks.saturating_sub(1) as u16,
            );
            command(sqe, start..end).map_err(SwapError::new)?;
            start = end;
        }
        Ok(())
    }
}

/// The Read of these blocks of the namespace.
pub(crate) fn read_command(cid: u16, io: Io) -> Sqe {
    Sqe::read(cid, NSID, io.slba, (io.blocks - 1) as u16)
}

/// The Write of these blocks of the namespace.
pub(crate) fn write_command(cid: u16, io: Io) -> Sqe {
    let sqe = Sqe::write(cid, NSID, io.slba, (io.blocks - 1) as u16);
    if io.fua { sqe.with_fua() } else { sqe }
}

impl Swap for SsdSide {
    fn page_out(
        &self,
        context: PagingContext,
        slot: SwapSlot,
        data: &[u8],
    ) -> Result<(), SwapError> {
        self.log.trace(TraceKind::PageOut {
            cid: context.command_id,
            offset: slot.byte_offset(),
            bytes: data.len() as u64,
        });
        let write = |sqe, range| {
            let data = &data[range];
            self.submit(
                sqe,
                Transfer::Out {
                    data,
                    metadata: &[],
                },
            )
        };
        self.page(context, slot, data.len(), write, Sqe::write)
    }

    fn page_in(
        &self,
        context: PagingContext,
        slot: SwapSlot,
        data: &mut [u8],
    ) -> Result<(), SwapError> {
        self.log.trace(TraceKind::PageIn {
            cid: context.command_id,
            offset: slot.byte_offset(),
            bytes: data.len() as u64,
        });
        let bytes = data.len();
        let read = |sqe, range: std::ops::Range<usize>| {
            let (data, metadata) = (&mut data[range], &mut [][..]);
            self.submit(sqe, Transfer::In { data, metadata })
        };
        self.page(context, slot, bytes, read, Sqe::read)
    }
}
