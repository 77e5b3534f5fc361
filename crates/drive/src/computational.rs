//! Computational storage as the NVMe standard has it, beside the platform paper's way. **Experimental**: what is not public of
//! the standard is our choice; `docs/explanation/computational-storage.md` says which is which.
//!
//! A host sees one namespace with the Computational Programs command set and memory namespaces with the Subsystem Local Memory
//! command set. It writes samples, each behind its 64 bytes of secure computing metadata, into memory; loads and
//! activates a program; and executes it on ranges of the memory, one of which receives the result. Keys, test vectors and
//! samples that stay on the drive come from the virtual registers, which do not change.
//!
//! Programs, range sets and memory belong to the host that made them; nobody else sees them. Programs and sets go with the host's
//! last connection, memory when the drive is closed.
//!
//! [`Computational`] keeps them, and adds the namespaces to a controller ([`Computational::attach`]).

mod memory;
mod programs;
pub mod request;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{BoxFuture, FutureExt};
use thiserror::Error;
use toroid_nvme::admin::{cns, csi, opcode as admin_opcode};
use toroid_nvme::log::log_page;
use toroid_nvme::{
    BROADCAST_NSID, Controller, ControllerInfo, ErrorInformation, Health, OtherNamespace, Request,
    Response, Sqe, Status,
};
use toroid_task::CancelToken;

use crate::bridge::status::{MEMORY_RANGE, METADATA_INVALID, PROGRAM_REFUSED, VENDOR_STATUSES};
use crate::bridge::{Described, Effect, Fault, ResultPlace};
use crate::drive::{DriveController, Threads};
use memory::{Memory, MemoryCommand, Sources, Span};
use programs::{Execution, Programs, Range};
use toroid_isa::metadata::ScMetadata;

/// Opcodes of I/O commands.
pub mod opcode {
    /// Execute Program (Computational Programs command set).
    pub const EXECUTE: u8 = 0x01;
    /// Memory Copy (Subsystem Local Memory command set).
    pub const COPY: u8 = 0x01;
    /// Memory Read.
    pub const READ: u8 = 0x02;
    /// Memory Fill: with zeroes.
    pub const FILL: u8 = 0x04;
    /// Memory Write.
    pub const WRITE: u8 = 0x05;
}

/// Type of the programs that can be loaded: secure computing programs in binary form.
pub const PROGRAM_TYPE: u8 = 0xC0;
/// Program indices of a host.
pub const MAX_PROGRAMS: usize = 16;
/// Memory range sets of a host.
pub const MAX_RANGE_SETS: usize = 64;
/// Ranges in a set, or of one command: as many as the bits that say which of them are inputs.
pub const MAX_RANGES: usize = 64;

/// Memory namespaces have at most 1 GiB.
const MOST_MEMORY: u32 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Namespaces and sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComputationalConfig {
    /// Identifier of the namespace with the Computational Programs command set.
    pub programs_nsid: u32,
    /// Identifiers and sizes of the memory namespaces. Sizes are in bytes: multiples of 4096, at most 2^30. Each host has as
    /// much memory of its own, which takes room as it is written.
    pub memories: Vec<(u32, u32)>,
    /// Most that the programs of a host may take in binary form, in bytes.
    pub program_bytes: u32,
    /// Hosts whose programs and memory are kept. When one more comes, those that have gone are forgotten.
    pub hosts: usize,
}

/// Far from the namespaces that hold blocks.
const PROGRAMS_NSID: u32 = 0x1_0000;

impl Default for ComputationalConfig {
    /// [`ComputationalConfig::new`] with namespaces far from those that hold blocks.
    fn default() -> ComputationalConfig {
        ComputationalConfig::new(PROGRAMS_NSID)
    }
}

impl ComputationalConfig {
    /// The namespace of programs, one memory namespace of 32 MiB behind it, 16 MiB for programs, 64 hosts.
    pub fn new(programs_nsid: u32) -> ComputationalConfig {
        ComputationalConfig {
            programs_nsid,
            memories: vec![(programs_nsid.saturating_add(1), 32 << 20)],
            program_bytes: 16 << 20,
            hosts: 64,
        }
    }
}

/// Why the namespaces cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ComputationalError {
    /// Namespace identifier 0 or FFFFFFFFh.
    #[error("namespace identifier {0:#x} is reserved; expected 1 to 0xfffffffe")]
    Nsid(u32),
    /// Two namespaces have one identifier.
    #[error("two namespaces have the identifier {0}")]
    Twice(u32),
    /// A memory namespace of a size that is not possible.
    #[error(
        "memory namespace {nsid} of {bytes} bytes; expected a multiple of 4096 up to {MOST_MEMORY}"
    )]
    Size {
        /// Namespace identifier.
        nsid: u32,
        /// Its size.
        bytes: u32,
    },
    /// As many hosts are connected as there may be.
    #[error("{0} hosts use computational namespaces; expected fewer")]
    Hosts(usize),
}

/// Programs, memory range sets and memory of every host of a controller, by the host's name.
pub struct Computational {
    config: Arc<ComputationalConfig>,
    hosts: Mutex<BTreeMap<String, Arc<HostState>>>,
}

/// What belongs to a host.
struct HostState {
    programs: Mutex<Programs>,
    memories: Vec<Memory>,
}

impl HostState {
    fn programs(&self) -> MutexGuard<'_, Programs> {
        // Every change is complete between two statements, or leaves an index empty.
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self, nsid: u32) -> Option<&Memory> {
        self.memories.iter().find(|memory| memory.nsid == nsid)
    }

    fn read(&self, range: Range, len: u64) -> Result<Vec<u8>, Fault> {
        let span = Span {
            start: range.span.start,
            len,
        };
        match self.memories.get(range.memory) {
            Some(memory) if len <= range.span.len => memory.read(span),
            _ => Err(Fault::new(
                MEMORY_RANGE,
                format!("{} hold no {len} bytes", range.span),
            )),
        }
    }

    /// The sample in a range, behind its metadata.
    fn sample(&self, range: Range) -> Result<Described, Fault> {
        const HEAD: u64 = ScMetadata::SIZE as u64;
        let head = self.read(range, HEAD)?;
        let sc = ScMetadata::from_bytes(&head)?.ok_or_else(|| {
            let reason = format!("{}: no metadata of a sample", range.span);
            Fault::new(METADATA_INVALID, reason)
        })?;
        let len = sc.size().saturating_add(HEAD);
        let mut bytes = self.read(range, len)?;
        bytes.drain(..ScMetadata::SIZE);
        Ok(Described { sc, bytes })
    }

    /// Puts the result of a program, behind its metadata, into a range.
    fn put(&self, range: Range, result: &Described) -> Result<(), Fault> {
        let mut bytes = result.sc.to_bytes().to_vec();
        bytes.extend_from_slice(&result.bytes);
        match self.memories.get(range.memory) {
            Some(memory) if bytes.len() as u64 <= range.span.len => {
                memory.write(range.span.start, &bytes)
            }
            _ => Err(Fault::new(
                PROGRAM_REFUSED,
                format!(
                    "the result is {} bytes; expected at most {}",
                    bytes.len(),
                    range.span.len
                ),
            )),
        }
    }
}

impl Computational {
    /// Nothing is loaded at first.
    ///
    /// # Errors
    /// [`ComputationalError::Nsid`], [`ComputationalError::Twice`], [`ComputationalError::Size`].
    pub fn new(config: ComputationalConfig) -> Result<Computational, ComputationalError> {
        let mut nsids = BTreeSet::new();
        let memories = config.memories.iter().map(|(nsid, _)| *nsid);
        for nsid in memories.chain([config.programs_nsid]) {
            if nsid == 0 || nsid == BROADCAST_NSID {
                return Err(ComputationalError::Nsid(nsid));
            }
            if !nsids.insert(nsid) {
                return Err(ComputationalError::Twice(nsid));
            }
        }
        for (nsid, bytes) in config.memories.iter().copied() {
            if bytes == 0 || !bytes.is_multiple_of(4096) || bytes > MOST_MEMORY {
                return Err(ComputationalError::Size { nsid, bytes });
            }
        }
        Ok(Computational {
            config: Arc::new(config),
            hosts: Mutex::default(),
        })
    }

    /// The controller `inner` with the namespaces of this host. Programs run on the drive of `host`, for its tenant and with its
    /// keys; a host of the same name has the same programs and memory, however often it is attached.
    ///
    /// `inner` is `host` itself, or a controller of which it is a part.
    ///
    /// # Errors
    /// [`ComputationalError::Twice`] if `inner` has such a namespace already, [`ComputationalError::Hosts`].
    pub fn attach(
        &self,
        inner: Arc<dyn Controller>,
        controller: DriveController,
    ) -> Result<ComputationalController, ComputationalError> {
        let config = &self.config;
        let name = &controller.identity().name;
        let mut info = inner.info().clone();
        let image = controller.drive().image().info().nguid();
        let sets = config.memories.iter().map(|(nsid, _)| (*nsid, csi::MEMORY));
        for (nsid, csi) in sets.chain([(config.programs_nsid, csi::PROGRAMS)]) {
            let others = info.other_namespaces.iter().map(|other| other.nsid);
            if info.namespace(nsid).is_some() || others.into_iter().any(|other| other == nsid) {
                return Err(ComputationalError::Twice(nsid));
            }
            let nguid = identifier(image, name, nsid);
            info.other_namespaces
                .push(OtherNamespace { nsid, csi, nguid });
        }
        info.vendor_statuses = VENDOR_STATUSES;
        Ok(ComputationalController {
            state: self.host_state(name)?,
            config: Arc::clone(config),
            inner,
            controller,
            info,
        })
    }

    fn host_state(&self, name: &str) -> Result<Arc<HostState>, ComputationalError> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = hosts.get(name) {
            if Arc::strong_count(known) == 1 {
                // No connection is left, and nothing runs: nobody would ever unload the programs.
                *known.programs() = Programs::default();
            }
            return Ok(Arc::clone(known));
        }
        if hosts.len() >= self.config.hosts {
            hosts.retain(|_, host| Arc::strong_count(host) > 1);
        }
        if hosts.len() >= self.config.hosts {
            return Err(ComputationalError::Hosts(self.config.hosts));
        }
        let memories = self.config.memories.iter();
        let new = Arc::new(HostState {
            programs: Mutex::default(),
            memories: memories
                .map(|(nsid, bytes)| Memory::new(*nsid, *bytes))
                .collect(),
        });
        hosts.insert(name.to_owned(), Arc::clone(&new));
        Ok(new)
    }
}

/// A namespace's globally unique identifier, which is always the same for a host: made from that of the image.
fn identifier(mut image: [u8; 16], host: &str, nsid: u32) -> [u8; 16] {
    let host = crc32c::crc32c(host.as_bytes()).to_le_bytes();
    let (head, tail) = image.split_at_mut(12);
    for (byte, other) in head.iter_mut().zip(host) {
        *byte ^= other;
    }
    for (byte, other) in tail.iter_mut().zip(nsid.to_le_bytes()) {
        *byte ^= other;
    }
    image
}

/// A controller with computational namespaces, as one host sees it. [`Computational::attach`] gives it.
pub struct ComputationalController {
    config: Arc<ComputationalConfig>,
    state: Arc<HostState>,
    inner: Arc<dyn Controller>,
    controller: DriveController,
    info: ControllerInfo,
}

impl ComputationalController {
    /// A command that ends at once, or after moving bytes.
    fn at_once(
        &self,
        request: Request,
        cancel: &CancelToken,
        work: impl FnOnce(&HostState, &Request) -> Result<Response, Fault> + Send + 'static,
    ) -> BoxFuture<'static, Response> {
        let state = Arc::clone(&self.state);
        let command = (request.sqe, cancel);
        self.controller
            .work(Threads::Commands, command, move |_, _| {
                check_form(&request)?;
                work(&state, &request)
            })
    }

    fn execute(&self, request: Request, cancel: &CancelToken) -> BoxFuture<'static, Response> {
        let sqe = request.sqe;
        let state = Arc::clone(&self.state);
        // What runs on which ranges is settled now, not when its turn comes.
        let decoded = check_form(&request).and_then(|()| match sqe.opcode {
            opcode::EXECUTE => state
                .programs()
                .execution(&sqe, &request.data, &state.memories),
            other => Err(Fault::new(
                Status::INVALID_OPCODE,
                format!("opcode {other:02X}h on the namespace of programs"),
            )),
        });
        let threads = match decoded {
            Ok(_) => Threads::Programs,
            Err(_) => Threads::Commands,
        };
        self.controller
            .work(threads, (sqe, cancel), move |bridge, context| {
                let Execution {
                    name,
                    program,
                    inputs,
                    result,
                    place,
                    ring,
                } = decoded?;
                let inputs = inputs
                    .into_iter()
                    .map(|range| state.sample(range))
                    .collect::<Result<Vec<_>, _>>()?;
                let room = result.map_or(0, |range| range.span.len);
                let room = room.saturating_sub(ScMetadata::SIZE as u64);
                let form = ResultPlace { place, room, ring };
                let found = bridge.evaluate(context, (name, &program), &inputs, form)?;
                if let Some(range) = result {
                    state.put(range, &found)?;
                }
                let mut response = Response::success(sqe.cid.get());
                response.cqe.dw0 = (Effect::Computed as u32).into();
                Ok(response)
            })
    }

    fn on_memory(&self, request: Request, cancel: CancelToken) -> BoxFuture<'_, Response> {
        let sqe = request.sqe;
        let parsed = check_form(&request)
            .and_then(|()| MemoryCommand::parse(&sqe, &request.data, self.info.mdts_bytes));
        if let Ok(MemoryCommand::Copy {
            to,
            sources: Sources::Blocks(sources),
        }) = parsed
        {
            return self.copy_blocks(sqe, to, sources, cancel);
        }
        self.at_once(request, &cancel, move |state, request| {
            let sqe = &request.sqe;
            let memory = memory_of(state, sqe.nsid.get())?;
            let mut response = Response::success(sqe.cid.get());
            match parsed? {
                MemoryCommand::Read(span) => response.data = memory.read(span)?,
                MemoryCommand::Write(span) => memory.write(span.start, &request.data)?,
                MemoryCommand::Fill(span) => memory.fill(span)?,
                MemoryCommand::Copy { to, sources } => {
                    let Sources::Memory(sources) = sources else {
                        return Err(Fault::new(
                            Status::INTERNAL_ERROR,
                            "blocks are copied elsewhere",
                        ));
                    };
                    // Bounded by the memory there is, however the ranges overlap.
                    let total: u64 = sources.iter().map(|(_, span)| span.len).sum();
                    if total > memory.len() {
                        let reason = format!("{total} bytes; the namespace has {}", memory.len());
                        return Err(Fault::new(Status::INVALID_FIELD, reason));
                    }
                    let mut bytes = Vec::new();
                    for (nsid, span) in sources {
                        bytes.append(&mut memory_of(state, nsid)?.read(span)?);
                    }
                    memory.write(to, &bytes)?;
                }
            }
            Ok(response)
        })
    }

    /// Copy of logical blocks: as if the host had read and written them.
    fn copy_blocks(
        &self,
        sqe: Sqe,
        to: u64,
        sources: Vec<(u32, u64, u32)>,
        cancel: CancelToken,
    ) -> BoxFuture<'_, Response> {
        let expected = u64::from(sqe.cdw3.get()) << 32 | u64::from(sqe.cdw2.get());
        let most = u64::from(self.info.mdts_bytes).min(expected);
        async move {
            let mut bytes = Vec::new();
            let mut fault = None;
            for (nsid, slba, blocks) in sources {
                let namespace = self.inner.info().namespace(nsid);
                let len = namespace.map(|namespace| namespace.data_len(blocks));
                let fits = |len: u64| bytes.len() as u64 + len <= most;
                fault = match len {
                    None => Some(Fault::new(
                        Status::INVALID_NAMESPACE,
                        format!("namespace {nsid} has no logical blocks"),
                    )),
                    Some(len) if !fits(len) => Some(too_long(most)),
                    Some(_) => None,
                };
                if fault.is_some() {
                    break;
                }
                let read = Sqe::read(sqe.cid.get(), nsid, slba, (blocks - 1) as u16);
                let read = self
                    .inner
                    .submit_abortable(Request::new(read), cancel.clone());
                let mut response = read.await;
                if !response.cqe.status().is_success() {
                    response.data.clear();
                    response.metadata.clear();
                    return response;
                }
                bytes.append(&mut response.data);
            }
            let request = Request::new(sqe);
            let written = self.at_once(request, &cancel, move |state, request| {
                if let Some(fault) = fault {
                    return Err(fault);
                }
                if bytes.len() as u64 != expected {
                    return Err(too_long(expected));
                }
                memory_of(state, request.sqe.nsid.get())?.write(to, &bytes)?;
                Ok(Response::success(request.sqe.cid.get()))
            });
            written.await
        }
        .boxed()
    }

    fn identify(&self, sqe: &Sqe) -> Option<Vec<u8>> {
        let (nsid, set) = (sqe.nsid.get(), (sqe.cdw11.get() >> 24) as u8);
        let mut data = vec![0; 4096];
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(place) = data.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        };
        match (sqe.cdw10.get() as u8, set) {
            (cns::CONTROLLER_OF_SET, csi::MEMORY | csi::PROGRAMS) => {}
            (cns::NAMESPACE_OF_SET, csi::PROGRAMS) if nsid == self.config.programs_nsid => {
                put(0, &(MAX_PROGRAMS as u16).to_le_bytes());
                put(2, &(MAX_RANGE_SETS as u16).to_le_bytes());
                // Granularity of memory ranges and of the bytes of programs: powers of two.
                put(4, &(memory::GRANULARITY.ilog2() as u16).to_le_bytes());
                put(6, &[MAX_RANGES as u8]);
                put(
                    8,
                    &(u64::from(self.config.program_bytes) / MIB).to_le_bytes(),
                );
                put(16, &[0]);
                let forms = request::CONVERTS | request::LEAVES_OUT;
                put(request::FORMS_BYTE, &[forms]);
            }
            (cns::NAMESPACE_OF_SET, csi::MEMORY) => {
                let memory = self.state.memory(nsid)?;
                put(0, &memory.len().to_le_bytes());
                put(8, &(memory::GRANULARITY as u32).to_le_bytes());
            }
            _ => return None,
        }
        Some(data)
    }

    fn log_page(&self, sqe: &Sqe) -> Option<Vec<u8>> {
        let nsid = sqe.nsid.get();
        if nsid != self.config.programs_nsid && nsid != BROADCAST_NSID {
            return None;
        }
        match sqe.cdw10.get() as u8 {
            log_page::PROGRAMS => Some(self.state.programs().program_list()),
            log_page::PROGRAM_TYPES => Some(Programs::type_list()),
            log_page::MEMORY_RANGE_SETS => {
                Some(self.state.programs().set_list(&self.state.memories))
            }
            _ => None,
        }
    }

    /// An admin command on the namespace of programs.
    fn manage(&self, request: Request) -> BoxFuture<'static, Response> {
        let keys = self.controller.identity().keys.clone();
        let room = self.config.program_bytes;
        self.at_once(request, &CancelToken::new(), move |state, request| {
            let Request { sqe, data, .. } = request;
            let mut response = Response::success(sqe.cid.get());
            let mut programs = state.programs();
            match sqe.opcode {
                admin_opcode::LOAD_PROGRAM => programs.load(sqe, data, &keys, room)?,
                admin_opcode::PROGRAM_ACTIVATION => programs.activate(sqe, data)?,
                _ => {
                    let id = programs.manage_sets(sqe, data, &state.memories)?;
                    response.cqe.dw0 = u32::from(id).into();
                }
            }
            Ok(response)
        })
    }
}

fn too_long(expected: u64) -> Fault {
    Fault::new(
        Status::INVALID_FIELD,
        format!(
            "the sources are not the {expected} bytes that the command, or any one command, copies"
        ),
    )
}

fn memory_of(state: &HostState, nsid: u32) -> Result<&Memory, Fault> {
    state.memory(nsid).ok_or_else(|| {
        Fault::new(
            Status::INVALID_NAMESPACE,
            format!("namespace {nsid} is not a memory"),
        )
    })
}

/// Checks what all commands have in common.
fn check_form(request: &Request) -> Result<(), Fault> {
    let flags = request.sqe.flags;
    if flags & 3 != 0 || flags >> 6 == 3 {
        return Err(Fault::new(
            Status::INVALID_FIELD,
            "a fused command, or a reserved transfer",
        ));
    }
    if !request.metadata.is_empty() {
        return Err(Fault::new(
            Status::METADATA_SGL_LENGTH_INVALID,
            "metadata with a command that has none",
        ));
    }
    Ok(())
}

/// The part of a log page that a Get Log Page command asks for, with zeroes behind its end.
fn part_of_page(sqe: &Sqe, mut page: Vec<u8>, most: u32) -> Response {
    let cid = sqe.cid.get();
    let (dw10, dw11) = (sqe.cdw10.get(), sqe.cdw11.get());
    let dwords = u64::from(dw11 & 0xFFFF) << 16 | u64::from(dw10 >> 16);
    let offset = u64::from(sqe.cdw13.get()) << 32 | u64::from(sqe.cdw12.get());
    let len = (dwords + 1) * 4;
    if len > most.into() || !offset.is_multiple_of(4) || offset > page.len() as u64 {
        return Response::failure(cid, Status::INVALID_FIELD, true);
    }
    page.drain(..page.len().min(offset as usize));
    page.resize(len as usize, 0);
    let mut response = Response::success(cid);
    response.data = page;
    response
}

fn ready(response: Response) -> BoxFuture<'static, Response> {
    async move { response }.boxed()
}

impl Controller for ComputationalController {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        self.submit_abortable(request, CancelToken::new())
    }

    fn submit_abortable(&self, request: Request, cancel: CancelToken) -> BoxFuture<'_, Response> {
        let nsid = request.sqe.nsid.get();
        if nsid == self.config.programs_nsid {
            self.execute(request, &cancel)
        } else if self.state.memory(nsid).is_some() {
            self.on_memory(request, cancel)
        } else {
            self.inner.submit_abortable(request, cancel)
        }
    }

    fn admin(&self, request: Request) -> BoxFuture<'_, Response> {
        let sqe = request.sqe;
        let (cid, nsid) = (sqe.cid.get(), sqe.nsid.get());
        let inside = &self.inner.info().other_namespaces;
        match sqe.opcode {
            admin_opcode::IDENTIFY => match self.identify(&sqe) {
                Some(data) => {
                    let mut response = Response::success(cid);
                    response.data = data;
                    ready(response)
                }
                None => self.inner.admin(request),
            },
            admin_opcode::GET_LOG_PAGE => match self.log_page(&sqe) {
                Some(page) => ready(part_of_page(&sqe, page, self.info.mdts_bytes)),
                None if inside.is_empty() => {
                    ready(Response::failure(cid, Status::INVALID_LOG_PAGE, true))
                }
                None => self.inner.admin(request),
            },
            admin_opcode::LOAD_PROGRAM
            | admin_opcode::PROGRAM_ACTIVATION
            | admin_opcode::MEMORY_RANGE_SET => {
                if nsid == self.config.programs_nsid {
                    self.manage(request)
                } else if inside.iter().any(|other| other.nsid == nsid) {
                    self.inner.admin(request)
                } else {
                    ready(Response::failure(cid, Status::INVALID_NAMESPACE, true))
                }
            }
            _ => self.inner.admin(request),
        }
    }

    fn info(&self) -> &ControllerInfo {
        &self.info
    }

    fn errors(&self) -> Vec<ErrorInformation> {
        self.inner.errors()
    }

    fn health(&self) -> Health {
        self.inner.health()
    }
}
