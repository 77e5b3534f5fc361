//! Commands on plain data, which neither need a thread of their own nor wait on one: reads that the SSD can answer at once are
//! answered where they are submitted, and others, like writes and flushes, are submitted to the SSD, whose completion ends
//! them.
//!
//! What a command does is what [`Bridge::start`] would do on a thread, for the cases that are plain beyond doubt; all others are
//! left to it. Why that is the same:
//!
//! - *NVMe metadata.* Whether blocks are plain is in the metadata of the command (write), or read together with the data under
//!   one lock of the image (read). If a read turns out to have metadata, it begins anew on a thread.
//! - *Second half.* Blocks are plain if their clusters' metadata are in memory and no run is registered there. A read answered
//!   at once holds the lock of `SecondHalf::try_begin_read` meanwhile, as one on a thread does. One that waits for the SSD
//!   cannot hold it; it looks for a run again when it has the data, and begins anew on a thread if there is one, so that a
//!   sample is never delivered in place of its program's result. A run that came and went in between belongs to commands that
//!   overlap with the read in time, towards which NVMe orders nothing. A write holds the lock until it has ended. Writes to the second half, which register, and
//!   everything on a run, triggers of programs included, are left to threads.
//! - *Access.* Plain blocks are open to every host, so plain reads are answered here for hosts that are bound to some keys too, if they
//!   need not wait, but for those of the second half. Their writes are left to threads, which check what the blocks hold in the same step.
//! - *Ordering towards other writes* is the image's: a command's blocks, data and metadata, are locked while it works on them.

use std::sync::Arc;

use futures::future::BoxFuture;
use toroid_nvme::{Command, Io, Request, Sqe};

use super::access::Hosted;
use super::{Bridge, Context, Effect, Fault, NSID, Reply};

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
            Ok(Command::Write(io)) if self.is_plain_write(context, io, &request) => {
                let (bridge, host) = (Arc::clone(self), Arc::clone(&context.host));
                let sqe = Sqe::write(context.cid(), NSID, io.slba, (io.blocks - 1) as u16);
                let sqe = if io.fua { sqe.with_fua() } else { sqe };
                Plain::Waits(Box::pin(async move {
                    // Nothing is registered for the blocks until they are written.
                    let _shared = match &bridge.second_half {
                        None => None,
                        Some(second_half) => match second_half.try_begin_read() {
                            Some(shared) if second_half.is_plain(io.slba, u64::from(io.blocks)) => {
                                Some(shared)
                            }
                            _ => return Ok(Ended::Again(request)),
                        },
                    };
                    let Request { data, metadata, .. } = request;
                    let bytes = data.len();
                    bridge.ssd.write(sqe, io, data, metadata).await?;
                    bridge.ranges.written((io.slba, io.blocks.into()));
                    let reply = bridge.was_written(&host, bytes, Effect::None);
                    Ok(Ended::Done(reply))
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

    fn is_plain_write(&self, context: &Context, io: Io, request: &Request) -> bool {
        if context.keys().only().is_some() {
            return false;
        }
        match &self.second_half {
            None => is_zero(&request.metadata),
            Some(second_half) => second_half.is_plain(io.slba, u64::from(io.blocks)),
        }
    }

    /// Whether a read needs to look for no run; in the NVMe form that is not known before its metadata are read.
    fn may_be_plain_read(&self, host: &Hosted, io: Io) -> bool {
        let blocks = u64::from(io.blocks);
        let unbound = host.identity.keys.only().is_none();
        self.second_half.as_ref().is_none_or(|second_half| {
            unbound && second_half.is_second(io.slba) || second_half.is_plain(io.slba, blocks)
        })
    }

    fn plain_read(self: &Arc<Bridge>, context: &Context, io: Io, request: Request) -> Plain {
        let sqe = Sqe::read(context.cid(), NSID, io.slba, (io.blocks - 1) as u16);
        let (mut data, mut metadata) = self.buffers(io);
        {
            let shared = match &self.second_half {
                None => None,
                Some(second_half) => match second_half.try_begin_read() {
                    Some(shared) => Some(shared),
                    None => return Plain::No(request),
                },
            };
            if !self.may_be_plain_read(&context.host, io) {
                return Plain::No(request);
            }
            let read = self.ssd.try_read_now(io, &mut data, &mut metadata);
            drop(shared);
            if let Some(result) = read {
                if result.is_ok() && !is_zero(&metadata) {
                    return Plain::No(request);
                }
                self.ssd.was_read_now(sqe, &result);
                return Plain::Done(match result {
                    Ok(()) => Ok(self.end_plain_read(&context.host, io, (data, metadata))),
                    Err(error) => Err(error.into()),
                });
            }
        }
        // While the SSD works, a run of another's may come and go: a bound host must not see what it held.
        let bound = self.second_half.is_some() && context.keys().only().is_some();
        if bound || !self.ssd.image().is_asynchronous() {
            return Plain::No(request);
        }
        let (bridge, host) = (Arc::clone(self), Arc::clone(&context.host));
        Plain::Waits(Box::pin(async move {
            let read = bridge.ssd.read(sqe, io).await?;
            if !bridge.may_be_plain_read(&host, io) {
                return Ok(Ended::Again(request));
            }
            if !is_zero(&read.1) {
                return Ok(Ended::Again(request));
            }
            Ok(Ended::Done(bridge.end_plain_read(&host, io, read)))
        }))
    }

    /// Delivers plain data.
    fn end_plain_read(
        &self,
        host: &Hosted,
        io: Io,
        (mut data, metadata): (Vec<u8>, Vec<u8>),
    ) -> Reply {
        if let Some(second_half) = &self.second_half
            && second_half.is_second(io.slba)
        {
            second_half.overlay(io.slba, &mut data);
        }
        self.was_read(host, data, metadata, Effect::None)
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
