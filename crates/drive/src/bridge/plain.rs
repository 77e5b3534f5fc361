//! Commands on plain data, which no thread has to wait for. A read that the SSD can answer at once is answered where it is
//! submitted. Other reads, writes and flushes are submitted to the SSD, whose completion ends them.
//!
//! A command does here what [`Bridge::start`] would do on a thread. Only commands that are certainly on plain data are done
//! here; all others go to a thread. Why the outcome is the same:
//!
//! - *NVMe metadata.* A write brings its blocks' metadata, and a read fetches them together with the data under one lock of the
//!   image. A read that turns out to have metadata starts again on a thread.
//! - *Second half.* Blocks are plain if the metadata of their clusters are in memory and register no run there. A read that is
//!   answered at once holds the lock of `try_lock_for_plain_read` meanwhile, as a read on a thread does. A read that waits for
//!   the SSD cannot hold it. It looks for a run again when it has the data, and starts again on a thread if there is one, so
//!   that it never delivers a sample in place of its program's result. A run that came and went in between belongs to
//!   commands that overlap with the read in time, and NVMe does not order those. A write holds the lock until it has ended.
//!   Threads do writes to the second half, which register, and all commands on a run, including triggers of programs.
//! - *Access.* Every host may use plain blocks, so reads of hosts that are bound to some keys are answered here too, unless
//!   they must wait or are in the second half. Threads do the writes of such hosts: they check what the blocks hold in the same
//!   step.
//! - *Order among writes.* The image locks a command's blocks, data and metadata, while it works on them.

use std::sync::Arc;

use futures::future::BoxFuture;
use toroid_nvme::{Command, Io, Request, Sqe};

use super::access::Hosted;
use super::command::{Blocks, Context, Effect, Reply, blocks_of};
use super::commands::Bridge;
use super::ssd_side::{NSID, read_command, write_command};
use super::status::Fault;

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
            Ok(Command::Write(io)) => self.plain_write(context, io, request),
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

    fn plain_write(self: &Arc<Bridge>, context: &Context, io: Io, request: Request) -> Plain {
        let bound = context.keys().only().is_some();
        if bound || !self.carrier.is_plain_write(io, &request.metadata) {
            return Plain::No(request);
        }
        let (bridge, host) = (Arc::clone(self), Arc::clone(&context.host));
        let sqe = write_command(context.cid(), io);
        Plain::Waits(Box::pin(async move {
            // Nothing is registered for the blocks until they are written.
            let Some(_plain) = bridge.carrier.try_lock_for_plain_write(io) else {
                return Ok(Ended::Again(request));
            };
            let Request { data, metadata, .. } = request;
            let bytes = data.len();
            bridge.ssd.write(sqe, io, Blocks { data, metadata }).await?;
            bridge.watches.written(&blocks_of(io));
            let reply = bridge.was_written(&host, bytes, Effect::None);
            Ok(Ended::Done(reply))
        }))
    }

    fn plain_read(self: &Arc<Bridge>, context: &Context, io: Io, request: Request) -> Plain {
        let Some(plain) = self.carrier.try_lock_for_plain_read() else {
            return Plain::No(request);
        };
        if !self.carrier.is_plain_read(context.keys(), io) {
            return Plain::No(request);
        }
        let sqe = read_command(context.cid(), io);
        let mut blocks = self.ssd.buffers(io);
        let read = self.ssd.try_read_now(io, &mut blocks);
        drop(plain);
        if let Some(result) = read {
            if result.is_ok() && !is_zero(&blocks.metadata) {
                return Plain::No(request);
            }
            self.ssd.was_read_now(sqe, &result);
            let end = |()| self.end_plain_read(&context.host, io, blocks);
            return Plain::Done(result.map(end).map_err(Fault::from));
        }
        let unlocked = self.carrier.may_read_unlocked(context.keys());
        if !unlocked || !self.ssd.image().is_asynchronous() {
            return Plain::No(request);
        }
        let (bridge, host) = (Arc::clone(self), Arc::clone(&context.host));
        Plain::Waits(Box::pin(async move {
            let blocks = bridge.ssd.read(sqe, io).await?;
            let plain = bridge.carrier.is_plain_read(&host.identity.keys, io);
            if !plain || !is_zero(&blocks.metadata) {
                return Ok(Ended::Again(request));
            }
            Ok(Ended::Done(bridge.end_plain_read(&host, io, blocks)))
        }))
    }

    /// Delivers plain data.
    fn end_plain_read(&self, host: &Hosted, io: Io, mut blocks: Blocks) -> Reply {
        self.carrier.overlay(io, &mut blocks.data);
        self.was_read(host, blocks, Effect::None)
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
