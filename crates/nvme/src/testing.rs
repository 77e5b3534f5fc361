//! A controller in memory, for tests: sparse, without compute, with faults and power cuts on demand.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::future::{BoxFuture, FutureExt};

use crate::{
    Command, Controller, ControllerInfo, DsmRange, Io, Namespace, Request, Response, Sqe, Status,
};

/// Data and metadata of one block.
type Block = Box<[u8]>;

/// A controller whose namespaces lie in memory.
///
/// Writes without FUA go to a volatile cache, which Flush empties and [`RamController::crash`] loses. Single blocks are atomic;
/// commands of several blocks are not atomic across a crash, as on a real drive with AWUPF = 0.
pub struct RamController {
    info: ControllerInfo,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    durable: HashMap<(u32, u64), Block>,
    /// Versions of each block that no flush has covered yet, oldest first.
    cache: BTreeMap<(u32, u64), Vec<Block>>,
    submitted: Vec<Sqe>,
    fault: Option<Fault>,
}

struct Fault {
    /// Commands that pass before the first failure.
    skip: u64,
    /// Commands that fail after that.
    count: u64,
    status: Status,
}

impl RamController {
    /// Controller with one namespace and an MDTS of 128 KiB.
    pub fn new(namespace: Namespace) -> RamController {
        RamController::with_info(ControllerInfo {
            mdts_bytes: 128 << 10,
            volatile_write_cache: true,
            serial: "RAM".into(),
            model: "Toroid memory controller".into(),
            firmware: "1".into(),
            namespaces: vec![namespace],
            other_namespaces: Vec::new(),
            vendor_statuses: &[],
        })
    }

    /// Controller as `info` describes it. Without a volatile write cache every write is durable at once.
    pub fn with_info(info: ControllerInfo) -> RamController {
        RamController {
            info,
            state: Mutex::default(),
        }
    }

    /// Fails the `nth` command from now (1 is the next) with `status`, without any effect.
    pub fn fail_nth(&self, nth: u64, status: Status) {
        self.fail_from(nth, 1, status);
    }

    /// Fails `count` commands, the first of them the `nth` from now (1 is the next), with `status`, without any effect.
    /// Replaces any fault set before.
    pub fn fail_from(&self, nth: u64, count: u64, status: Status) {
        self.state().fault = Some(Fault {
            skip: nth.saturating_sub(1),
            count,
            status,
        });
    }

    /// Takes a fault back, or what is left of it.
    pub fn clear_faults(&self) {
        self.state().fault = None;
    }

    /// Cuts the power: everything that is only in the volatile cache is lost.
    pub fn crash(&self) {
        self.crash_with(|_, _, _| 0);
    }

    /// Cuts the power. `survivor(nsid, lba, versions)` says, for each block with unflushed writes, how many of its `versions`
    /// reached the medium: 0 for none, `versions` for all, so that the newest is there.
    pub fn crash_with(&self, mut survivor: impl FnMut(u32, u64, usize) -> usize) {
        let mut state = self.state();
        for ((nsid, lba), mut versions) in std::mem::take(&mut state.cache) {
            let reached = survivor(nsid, lba, versions.len()).min(versions.len());
            if reached > 0 {
                let block = versions.swap_remove(reached - 1);
                state.durable.insert((nsid, lba), block);
            }
        }
    }

    /// Blocks with writes that no flush has covered yet.
    pub fn unflushed_blocks(&self) -> usize {
        self.state().cache.len()
    }

    /// Every command submitted so far, failed ones too.
    pub fn submitted(&self) -> Vec<Sqe> {
        self.state().submitted.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No operation below leaves the maps in a state that a later one could not use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn execute(&self, request: Request) -> Response {
        let cid = request.sqe.cid.get();
        let mut state = self.state();
        state.submitted.push(request.sqe);
        if let Some(status) = state.injected() {
            return Response::failure(cid, status, false);
        }
        let command = match self.info.check(&request) {
            Ok(command) => command,
            Err(status) => return Response::failure(cid, status, true),
        };
        let mut response = Response::success(cid);
        let write_through = !self.info.volatile_write_cache;
        if let Command::Flush { nsid } = command {
            state.flush(nsid);
            return response;
        }
        let Some(namespace) = self.info.namespace(command.nsid()) else {
            return Response::failure(cid, Status::INVALID_NAMESPACE, true);
        };
        match command {
            Command::Flush { .. } => {}
            Command::Read(io) => {
                (response.data, response.metadata) = state.read(namespace, io);
            }
            Command::Compare(io) => {
                if state.read(namespace, io) != (request.data, request.metadata) {
                    return Response::failure(cid, Status::COMPARE_FAILURE, false);
                }
            }
            Command::Write(io) => {
                let data = request.data.chunks_exact(namespace.block_size() as usize);
                let metadata_size = usize::from(namespace.metadata_size());
                for (i, data) in data.enumerate() {
                    let metadata = &request.metadata[i * metadata_size..][..metadata_size];
                    let block = [data, metadata].concat().into_boxed_slice();
                    state.put(io.nsid, io.slba + i as u64, block, io.fua || write_through);
                }
            }
            Command::WriteZeroes { io, .. } => {
                for lba in io.slba..io.slba + u64::from(io.blocks) {
                    state.put(io.nsid, lba, zeroes(namespace), io.fua || write_through);
                }
            }
            Command::DatasetManagement {
                nsid, deallocate, ..
            } => {
                for range in DsmRange::list(&request.data).iter().filter(|_| deallocate) {
                    let slba = range.slba.get();
                    let lbas = slba..slba + u64::from(range.blocks.get());
                    for lba in state.written(nsid, lbas) {
                        state.put(nsid, lba, zeroes(namespace), write_through);
                    }
                }
            }
        }
        response
    }
}

fn zeroes(namespace: &Namespace) -> Block {
    let len = namespace.block_size() as usize + usize::from(namespace.metadata_size());
    vec![0; len].into_boxed_slice()
}

impl State {
    fn injected(&mut self) -> Option<Status> {
        let fault = self.fault.as_mut()?;
        if fault.skip > 0 {
            fault.skip -= 1;
            return None;
        }
        let status = fault.status;
        fault.count -= u64::from(fault.count > 0);
        if fault.count == 0 {
            self.fault = None;
        }
        Some(status)
    }

    fn flush(&mut self, nsid: u32) {
        for (key, mut versions) in std::mem::take(&mut self.cache) {
            if key.0 != nsid && nsid != crate::BROADCAST_NSID {
                self.cache.insert(key, versions);
            } else if let Some(newest) = versions.pop() {
                self.durable.insert(key, newest);
            }
        }
    }

    fn put(&mut self, nsid: u32, lba: u64, block: Block, durable: bool) {
        let key = (nsid, lba);
        if durable {
            self.cache.remove(&key);
            self.durable.insert(key, block);
        } else {
            self.cache.entry(key).or_default().push(block);
        }
    }

    /// Blocks of the range that were ever written: a range may be far larger than what it holds.
    fn written(&self, nsid: u32, lbas: Range<u64>) -> Vec<u64> {
        let cached = self.cache.keys();
        let keys = cached.chain(
            self.durable
                .keys()
                .filter(|key| !self.cache.contains_key(key)),
        );
        keys.filter(|key| key.0 == nsid && lbas.contains(&key.1))
            .map(|key| key.1)
            .collect()
    }

    fn read(&self, namespace: &Namespace, io: Io) -> (Vec<u8>, Vec<u8>) {
        let block_size = namespace.block_size() as usize;
        let metadata_size = usize::from(namespace.metadata_size());
        let mut data = vec![0; io.blocks as usize * block_size];
        let mut metadata = vec![0; io.blocks as usize * metadata_size];
        for i in 0..io.blocks as usize {
            let key = (io.nsid, io.slba + i as u64);
            let cached = self.cache.get(&key).and_then(|versions| versions.last());
            if let Some(block) = cached.or_else(|| self.durable.get(&key)) {
                data[i * block_size..][..block_size].copy_from_slice(&block[..block_size]);
                metadata[i * metadata_size..][..metadata_size]
                    .copy_from_slice(&block[block_size..]);
            }
        }
        (data, metadata)
    }
}

impl Controller for RamController {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        async move { self.execute(request) }.boxed()
    }

    fn info(&self) -> &ControllerInfo {
        &self.info
    }
}
