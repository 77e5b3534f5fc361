//! Commands on plain data, which neither need a thread of their own nor wait on one: reads that the SSD can answer at once are
//! answered where they are submitted, and others, like writes and flushes, are submitted to the SSD, whose completion ends
//! them.
//!
//! What a command does is what [`Bridge::start`] would do on a thread, for the cases that are plain beyond doubt; all others are
//! left to it. Why that is the same:
//!
//! - *NVMe metadata.* Whether blocks are plain is in the metadata of the command (write), or read together with the data under
//!   one lock of the image (read). If a read turns out to have metadata, the rest of the command, with what was read, goes to
//!   a thread.
//! - *Second half.* Blocks are plain if their clusters' metadata are in memory and no run is registered there. A read answered
//!   at once holds the lock of `SecondHalf::try_begin_read` meanwhile, as one on a thread does. One that waits for the SSD
//!   cannot hold it; it looks for a run again when it has the data, and begins anew on a thread if there is one, so that a
//!   sample is never delivered in place of its program's result. A run that came and went in between belongs to commands that
//!   overlap with the read in time, towards which NVMe orders nothing. Writes to the second half, which register, and
//!   everything on a run, triggers of programs included, are left to threads.
//! - *Ordering towards other writes* is the image's: a command's blocks, data and metadata, are locked while it works on them.

use std::sync::Arc;

use futures::future::BoxFuture;
use toroid_nvme::{Command, Io, Request, Sqe};

use super::{Bridge, Context, Effect, Fault, Fetched, NSID, Reply};

/// What becomes of a command.
pub(crate) enum Plain {
    /// It is not plain, or not known to be: a thread must do it.
    No(Request),
    /// It has ended.
    Done(Result<Reply, Fault>),
    /// The SSD works on it.
    Waits(BoxFuture<'static, Result<Ended, Fault>>),
}

/// How a command that waited for the SSD goes on.
pub(crate) enum Ended {
    Done(Reply),
    /// It has read blocks with metadata: a thread must go on with it.
    Fetched(Fetched),
    /// It must begin anew on a thread.
    Again(Request),
}

impl Bridge {
    /// Does a command on plain data as far as possible without waiting.
    pub(crate) fn plain(self: &Arc<Bridge>, context: &Context, request: Request) -> Plain {
        match self.info.check(&request) {
            Ok(Command::Read(io)) => self.plain_read(context, io, request),
            // The SSD refuses to be asked where it would have its caller wait.
            _ if !self.ssd.image().is_asynchronous() => Plain::No(request),
            Ok(Command::Write(io)) if self.is_plain_write(io, &request) => {
                let bridge = Arc::clone(self);
                let sqe = Sqe::write(context.cid(), NSID, io.slba, (io.blocks - 1) as u16);
                let sqe = if io.fua { sqe.with_fua() } else { sqe };
                Plain::Waits(Box::pin(async move {
                    let Request { data, metadata, .. } = request;
                    let bytes = data.len();
                    bridge.ssd.write(sqe, io, data, metadata).await?;
                    Ok(Ended::Done(bridge.was_written(bytes, Effect::None)))
                }))
            }
            Ok(Command::Flush { .. }) => {
                let bridge = Arc::clone(self);
                let sqe = Sqe::flush(context.cid(), NSID);
                Plain::Waits(Box::pin(async move {
                    bridge.ssd.flush(sqe).await?;
                    Ok(Ended::Done(bridge.was_flushed()))
                }))
            }
            _ => Plain::No(request),
        }
    }

    fn is_plain_write(&self, io: Io, request: &Request) -> bool {
        match &self.second_half {
            None => is_zero(&request.metadata),
            Some(second_half) => second_half.is_plain(io.slba, u64::from(io.blocks)),
        }
    }

    /// Whether a read needs to look for no run; in the NVMe form that is not known before its metadata are read.
    fn may_be_plain_read(&self, io: Io) -> bool {
        let blocks = u64::from(io.blocks);
        self.second_half.as_ref().is_none_or(|second_half| {
            second_half.is_second(io.slba) || second_half.is_plain(io.slba, blocks)
        })
    }

    fn plain_read(self: &Arc<Bridge>, context: &Context, io: Io, request: Request) -> Plain {
        let sqe = Sqe::read(context.cid(), NSID, io.slba, (io.blocks - 1) as u16);
        let mut fetched = self.buffers(io);
        {
            let shared = match &self.second_half {
                None => None,
                Some(second_half) => match second_half.try_begin_read() {
                    Some(shared) => Some(shared),
                    None => return Plain::No(request),
                },
            };
            if !self.may_be_plain_read(io) {
                return Plain::No(request);
            }
            let Fetched { data, metadata, .. } = &mut fetched;
            let read = self.ssd.try_read_now(sqe, io, data, metadata);
            drop(shared);
            match read {
                Some(Ok(())) => {
                    return match self.end_plain_read(fetched) {
                        Ended::Done(reply) => Plain::Done(Ok(reply)),
                        ended => Plain::Waits(Box::pin(std::future::ready(Ok(ended)))),
                    };
                }
                Some(Err(error)) => return Plain::Done(Err(error.into())),
                None => {}
            }
        }
        if !self.ssd.image().is_asynchronous() {
            return Plain::No(request);
        }
        let bridge = Arc::clone(self);
        Plain::Waits(Box::pin(async move {
            let (data, metadata) = bridge.ssd.read(sqe, io).await?;
            if !bridge.may_be_plain_read(io) {
                return Ok(Ended::Again(request));
            }
            Ok(bridge.end_plain_read(Fetched { io, data, metadata }))
        }))
    }

    fn end_plain_read(&self, mut fetched: Fetched) -> Ended {
        if !is_zero(&fetched.metadata) {
            return Ended::Fetched(fetched);
        }
        if let Some(second_half) = &self.second_half
            && second_half.is_second(fetched.io.slba)
        {
            second_half.overlay(fetched.io.slba, &mut fetched.data);
        }
        Ended::Done(self.was_read(fetched.data, fetched.metadata, Effect::None))
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
