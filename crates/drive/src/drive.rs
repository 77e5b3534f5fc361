//! The drive: an NVMe controller in process, over an image and an engine.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::channel::oneshot;
use futures::future::{BoxFuture, FutureExt};
use thiserror::Error;
use toroid_engine::{Backend, CancelToken, Engine, EngineConfig};
use toroid_nvme::{
    Controller, ControllerInfo, ErrorInformation, Health, IdentifyController, IdentifyNamespace,
    Request, Response, Sqe, Status,
};

use crate::bridge::{
    Bridge, Context, DriveStatistics, Ended, Fault, HostIdentity, HostStatistics, Hosted,
    KeyAccess, Log, NSID, Plain, ProgramRun, Queue, Reply, RunningProgram, Sharing, SsdSide, Step,
    TraceEvent, TraceKind, Workers, status,
};
use crate::image::{Image, ImageError};
use crate::ssd::SsdError;
use crate::task;

/// MDTS unless another is asked for.
const DEFAULT_MDTS: u32 = 1 << 20;
/// Threads for programs, and so the most that run at a time.
const PROGRAM_THREADS: usize = 16;
/// Smallest MDTS that Identify can tell.
const LEAST_MDTS: u32 = 8192;
/// Largest MDTS: a command has at most 65536 blocks.
const MOST_MDTS: u32 = 1 << 25;

/// Sizes of a drive's memory, and what computes in it.
#[derive(Clone)]
pub struct DriveConfig {
    /// Main memory for LWE samples, in bytes; they overflow to the image's swap area.
    pub paged_bytes: u64,
    /// Most that keys, test vectors and programs may take, in bytes.
    pub persistent_bytes: u64,
    /// Slots of the stack region, each for one LWE sample.
    pub stack_slots: usize,
    /// Most bytes of data a command: a power of two from 8192 to 2^25, at least one block.
    pub mdts_bytes: u32,
    /// The arithmetic.
    pub backend: Arc<dyn Backend>,
}

impl DriveConfig {
    /// The engine's default sizes and an MDTS of 1 MiB.
    pub fn new(backend: Arc<dyn Backend>) -> DriveConfig {
        let engine = EngineConfig::default();
        DriveConfig {
            paged_bytes: engine.paged_bytes,
            persistent_bytes: engine.persistent_bytes,
            stack_slots: engine.stack_slots,
            mdts_bytes: DEFAULT_MDTS,
            backend,
        }
    }
}

/// Why a drive cannot be opened or shut down.
#[derive(Debug, Error)]
pub enum DriveError {
    /// An MDTS that is not possible.
    #[error(
        "MDTS of {found} bytes; expected a power of two from {least} to {MOST_MDTS}",
        least = LEAST_MDTS.max(*block_size)
    )]
    Mdts {
        /// The MDTS asked for.
        found: u32,
        /// Bytes per block of the image.
        block_size: u32,
    },
    /// The image cannot be a namespace.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The operating system gave no thread.
    #[error("no thread for the drive's work")]
    Thread(#[source] std::io::Error),
    /// What was written may not all be on the medium.
    #[error("the final flush failed; writes since the last flush may be lost")]
    Flush(#[source] SsdError),
}

/// An in-process NVMe controller with one namespace, 1: the image's blocks. Commands on blocks with secure computing metadata
/// also work on virtual registers and run programs, as [`bridge`](crate::bridge) describes.
///
/// Commands start when they are submitted, whether or not the future is polled, and run to their end on the drive's own
/// threads, or at once if they only read plain data that are in memory; none of them waits for a program but those that
/// trigger one. Programs that do not conflict run side by side, the others in the order of their triggers.
///
/// The drive serves any number of hosts. It is a [`Controller`] without bounds itself; [`Drive::controller_for`] gives one that is bound to
/// its keys, and to a fair share: tenants take turns at the threads and at the arithmetic.
///
/// Dropping the drive cancels its commands and waits for them; [`Drive::shutdown`] lets them end and flushes.
pub struct Drive {
    bridge: Arc<Bridge>,
    in_flight: Arc<InFlight>,
    closed: AtomicBool,
    serial: AtomicU64,
    on_ssd: Arc<OnSsd>,
    /// For commands that come without a host: they may use everything.
    own: Arc<Hosted>,
    programs: Workers,
    commands: Workers,
}

/// The threads that a command is for.
#[cfg(feature = "computational-programs")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// Those that are never long at work.
    Commands,
    /// Those for programs.
    Programs,
}

/// The commands that have not completed.
#[derive(Default)]
struct InFlight(Mutex<Commands>);

#[derive(Default)]
struct Commands {
    /// Command identifiers and cancellation tokens, by serial number.
    tokens: HashMap<u64, (u16, CancelToken)>,
    busy_since: Option<Instant>,
    busy: Duration,
}

impl InFlight {
    fn lock(&self) -> MutexGuard<'_, Commands> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, serial: u64, cid: u16, token: CancelToken) {
        let mut flight = self.lock();
        flight.tokens.insert(serial, (cid, token));
        flight.busy_since.get_or_insert_with(Instant::now);
    }

    fn remove(&self, serial: u64) {
        let mut flight = self.lock();
        flight.tokens.remove(&serial);
        if flight.tokens.is_empty()
            && let Some(since) = flight.busy_since.take()
        {
            flight.busy += since.elapsed();
        }
    }

    /// Time during which some command had not completed.
    fn busy(&self) -> Duration {
        let flight = self.lock();
        let now = flight.busy_since.map(|since| since.elapsed());
        flight.busy + now.unwrap_or_default()
    }
}

/// Counts the commands that wait for the SSD on no thread of the drive's.
#[derive(Default)]
struct OnSsd {
    count: Mutex<usize>,
    none: Condvar,
}

impl OnSsd {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be held by such a command, from before it looks whether the drive is closed.
    fn enter(self: &Arc<OnSsd>) -> OnSsdGuard {
        *self.lock() += 1;
        OnSsdGuard(Arc::clone(self))
    }

    /// Waits until there are none.
    fn wait(&self) {
        let none = self.none.wait_while(self.lock(), |count| *count > 0);
        drop(none.unwrap_or_else(PoisonError::into_inner));
    }
}

struct OnSsdGuard(Arc<OnSsd>);

impl Drop for OnSsdGuard {
    fn drop(&mut self) {
        let mut count = self.0.lock();
        *count -= 1;
        if *count == 0 {
            self.0.none.notify_all();
        }
    }
}

/// A command that has not completed: answers it, and forgets its token, however it ends.
struct Pending {
    bridge: Arc<Bridge>,
    in_flight: Arc<InFlight>,
    context: Context,
    answer: Option<oneshot::Sender<Response>>,
}

impl Pending {
    fn complete(&mut self, result: Result<Reply, Fault>) {
        let cid = self.context.sqe.cid.get();
        self.answer(result.map(|reply| {
            let mut response = Response::success(cid);
            response.cqe.dw0 = (reply.effect as u32).into();
            response.data = reply.blocks.data;
            response.metadata = reply.blocks.metadata;
            response
        }));
    }

    fn answer(&mut self, result: Result<Response, Fault>) {
        let cid = self.context.sqe.cid.get();
        let response = match result {
            Ok(response) => response,
            Err(fault) => {
                let (log, account) = (&self.bridge.log, &self.context.host.account);
                log.count(|statistics| statistics.failed += 1);
                account.count(|statistics| statistics.failed += 1);
                tracing::debug!(
                    host = self.context.host.identity.name,
                    command = %self.context.sqe,
                    status = %fault.status,
                    reason = fault.detail,
                    "command failed"
                );
                log.error(account, self.context.sqe, fault.status, fault.detail);
                Response::failure(cid, fault.status, fault.do_not_retry)
            }
        };
        self.in_flight.remove(self.context.serial);
        self.context.host.account.end_command();
        self.bridge.log.trace(TraceKind::Completion {
            cid,
            status: response.cqe.status(),
        });
        if let Some(answer) = self.answer.take() {
            // The host may have gone away.
            let _ = answer.send(response);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.answer.is_some() {
            self.complete(Err(Fault::passing(
                Status::INTERNAL_ERROR,
                "the command ended without a result",
            )));
        }
    }
}

impl Drive {
    /// Opens a drive on an image. Its virtual registers are empty; reads load them again.
    ///
    /// # Errors
    /// [`DriveError::Mdts`], and [`DriveError::Thread`].
    pub fn open(image: Image, config: DriveConfig) -> Result<Drive, DriveError> {
        let threads = std::thread::available_parallelism().map_or(4, usize::from);
        Drive::with_threads(image, config, PROGRAM_THREADS, threads.clamp(4, 16))
    }

    /// Like [`Drive::open`], for tests that open very many drives: who submits a command does it.
    ///
    /// # Errors
    /// Those of [`Drive::open`].
    #[doc(hidden)]
    pub fn open_without_threads(image: Image, config: DriveConfig) -> Result<Drive, DriveError> {
        Drive::with_threads(image, config, 0, 0)
    }

    fn with_threads(
        image: Image,
        config: DriveConfig,
        programs: usize,
        commands: usize,
    ) -> Result<Drive, DriveError> {
        let mdts = config.mdts_bytes;
        let image_info = image.info();
        let block_size = image_info.block_size();
        if !mdts.is_power_of_two() || !(LEAST_MDTS.max(block_size)..=MOST_MDTS).contains(&mdts) {
            return Err(DriveError::Mdts {
                found: mdts,
                block_size,
            });
        }
        let info = ControllerInfo {
            mdts_bytes: mdts,
            volatile_write_cache: true,
            serial: image_info
                .uuid()
                .replace('-', "")
                .chars()
                .take(20)
                .collect(),
            model: "Toroid computational drive".into(),
            firmware: env!("CARGO_PKG_VERSION").into(),
            namespaces: vec![image_info.namespace(NSID)?],
            other_namespaces: Vec::new(),
            vendor_statuses: status::VENDOR_STATUSES,
        };
        let engine_config = EngineConfig {
            persistent_bytes: config.persistent_bytes,
            paged_bytes: config.paged_bytes,
            stack_slots: config.stack_slots,
            swap_bytes: image.swap_len(),
            runs: PROGRAM_THREADS,
            ..EngineConfig::default()
        };
        let log = Arc::new(Log::new());
        let own = log.accounts.open(HostIdentity {
            name: String::new(),
            tenant: 0,
            keys: KeyAccess::All,
        });
        let ssd = Arc::new(SsdSide::new(image, Arc::clone(&log), mdts));
        let engine = Engine::new(engine_config, config.backend, Arc::clone(&ssd) as _);
        Ok(Drive {
            bridge: Arc::new(Bridge::new(info, engine, ssd, log)),
            in_flight: Arc::default(),
            closed: AtomicBool::new(false),
            serial: AtomicU64::new(0),
            on_ssd: Arc::default(),
            own: Arc::new(own),
            programs: Workers::new("toroid-program", programs, Sharing::Reserved)
                .map_err(DriveError::Thread)?,
            commands: Workers::new("toroid-command", commands, Sharing::Free)
                .map_err(DriveError::Thread)?,
        })
    }

    /// The controller of commands that come without a host: they may use everything.
    #[must_use]
    pub fn own_controller(self: &Arc<Drive>) -> DriveController {
        DriveController {
            drive: Arc::clone(self),
            hosted: Arc::clone(&self.own),
        }
    }

    /// The controller of one host. Hosts with the same name share the log of their failures and their statistics.
    pub fn controller_for(self: &Arc<Drive>, identity: HostIdentity) -> DriveController {
        DriveController {
            drive: Arc::clone(self),
            hosted: Arc::new(self.bridge.log.accounts.open(identity)),
        }
    }

    /// Begins a command.
    fn begin(
        &self,
        host: &Arc<Hosted>,
        sqe: Sqe,
        cancel: CancelToken,
    ) -> (Pending, oneshot::Receiver<Response>) {
        let (answer, receiver) = oneshot::channel();
        let context = Context {
            sqe,
            host: Arc::clone(host),
            serial: self.serial.fetch_add(1, Ordering::Relaxed),
            cancel,
        };
        host.account.begin_command();
        self.bridge.log.trace(TraceKind::HostCommand { sqe });
        let token = context.cancel.clone();
        self.in_flight.insert(context.serial, sqe.cid.get(), token);
        let pending = Pending {
            bridge: Arc::clone(&self.bridge),
            in_flight: Arc::clone(&self.in_flight),
            context,
            answer: Some(answer),
        };
        (pending, receiver)
    }

    /// Starts a command.
    fn start(
        &self,
        host: &Arc<Hosted>,
        request: Request,
        cancel: CancelToken,
    ) -> oneshot::Receiver<Response> {
        let tenant = host.identity.tenant;
        let (mut pending, receiver) = self.begin(host, request.sqe, cancel);
        let on_ssd = self.on_ssd.enter();
        if self.closed.load(Ordering::SeqCst) {
            pending.complete(Err(closed()));
            return receiver;
        }
        let programs = Arc::clone(self.programs.queue());
        let commands = self.commands.queue();
        match self.bridge.plain(&pending.context, request) {
            Plain::Done(result) => pending.complete(result),
            Plain::No(request) => {
                commands.push(tenant, move || execute(pending, request, &programs));
            }
            Plain::Waits(ended) => {
                let commands = Arc::clone(commands);
                task::spawn(async move {
                    // Given up last, when nothing of the command holds the image any more.
                    let _on_ssd = on_ssd;
                    let mut pending = pending;
                    match ended.await {
                        Ok(Ended::Done(reply)) => pending.complete(Ok(reply)),
                        Err(fault) => pending.complete(Err(fault)),
                        Ok(Ended::Again(request)) => {
                            commands.push(tenant, move || execute(pending, request, &programs));
                        }
                    }
                });
            }
        }
        receiver
    }

    fn submit_for(
        &self,
        host: &Arc<Hosted>,
        request: Request,
        cancel: CancelToken,
    ) -> BoxFuture<'static, Response> {
        let cid = request.sqe.cid.get();
        completion(cid, self.start(host, request, cancel))
    }

    /// Starts a command that is not of the NVM command set: `work` is done on one of these threads.
    #[cfg(feature = "computational-programs")]
    fn start_other(
        &self,
        host: &Arc<Hosted>,
        (sqe, cancel): (Sqe, CancelToken),
        threads: Threads,
        work: impl FnOnce(&Bridge, &Context) -> Result<Response, Fault> + Send + 'static,
    ) -> oneshot::Receiver<Response> {
        let (mut pending, receiver) = self.begin(host, sqe, cancel);
        let _on_ssd = self.on_ssd.enter();
        if self.closed.load(Ordering::SeqCst) {
            pending.answer(Err(closed()));
            return receiver;
        }
        let workers = match threads {
            Threads::Commands => &self.commands,
            Threads::Programs => &self.programs,
        };
        workers.queue().push(host.identity.tenant, move || {
            let bridge = Arc::clone(&pending.bridge);
            let uncancelled = pending.context.check_cancelled();
            pending.answer(uncancelled.and_then(|()| work(&bridge, &pending.context)));
        });
        receiver
    }

    fn health_of(&self, statistics: &HostStatistics) -> Health {
        let (media_errors, read_only) = self.bridge.log.medium();
        Health {
            bytes_read: statistics.bytes_read,
            bytes_written: statistics.bytes_written,
            reads: statistics.reads,
            writes: statistics.writes,
            busy_minutes: statistics.busy.as_secs() / 60,
            media_errors,
            read_only,
        }
    }

    /// Cancels every command in progress with this identifier. A command that has not begun its effect completes with
    /// [`Status::ABORT_REQUESTED`]; one that has goes on to its end. Says how many were asked to stop.
    pub fn cancel(&self, cid: u16) -> usize {
        self.cancel_where(|other| other == cid)
    }

    /// Cancels every command in progress, as [`Drive::cancel`] does.
    pub fn cancel_all(&self) -> usize {
        self.cancel_where(|_| true)
    }

    fn cancel_where(&self, wanted: impl Fn(u16) -> bool) -> usize {
        let in_flight = self.in_flight.lock();
        let mut cancelled = 0;
        for (_, token) in in_flight.tokens.values().filter(|(cid, _)| wanted(*cid)) {
            token.cancel();
            cancelled += 1;
        }
        cancelled
    }

    /// Refuses further commands, waits for those in progress, and flushes. Blocks; a second call flushes again.
    ///
    /// # Errors
    /// [`DriveError::Flush`].
    pub fn shutdown(&self) -> Result<(), DriveError> {
        self.closed.store(true, Ordering::SeqCst);
        self.on_ssd.wait();
        self.commands.close();
        self.programs.close();
        let image = self.bridge.ssd.image();
        image.flush().map_err(DriveError::Flush)?;
        if self.bridge.engine.paging().page_outs > 0
            && let Err(error) = image.swap_clear()
        {
            // It only gives space back.
            tracing::warn!(%error, "the swap area was not cleared");
        }
        Ok(())
    }

    /// Identify data of the controller.
    pub fn identify_controller(&self) -> IdentifyController {
        IdentifyController::new(&self.bridge.info)
    }

    /// Identify data of a namespace, if there is one with this identifier.
    pub fn identify_namespace(&self, nsid: u32) -> Option<IdentifyNamespace> {
        self.bridge.info.namespace(nsid).map(IdentifyNamespace::new)
    }

    /// What a status means, with the drive's own words for its own.
    pub fn explain(status: Status) -> String {
        let own = status::VENDOR_STATUSES
            .iter()
            .find(|vendor| Status::vendor(vendor.sc) == status);
        own.map_or_else(|| status.to_string(), |vendor| vendor.meaning.to_owned())
    }

    /// Starts or stops the recording of events.
    pub fn trace(&self, on: bool) {
        self.bridge.log.set_tracing(on);
    }

    /// The events recorded since the last call, in their order.
    pub fn take_trace(&self) -> Vec<TraceEvent> {
        self.bridge.log.take_trace()
    }

    /// Counters since the drive was opened.
    pub fn statistics(&self) -> DriveStatistics {
        let backend = self.bridge.engine.backend().statistics();
        DriveStatistics {
            paging: self.bridge.engine.paging(),
            waiting_programs: self.programs.queue().len() + self.bridge.engine.runs().0,
            waiting_bootstraps: backend.waiting,
            batched_bootstraps: backend.batched,
            ..self.bridge.log.statistics()
        }
    }

    /// The programs that run now, in the order of their commands.
    pub fn running_programs(&self) -> Vec<RunningProgram> {
        self.bridge.log.under_way.programs()
    }

    /// The latest 256 programs that ran to their end, oldest first.
    pub fn program_runs(&self) -> Vec<ProgramRun> {
        self.bridge.log.program_runs()
    }

    /// The secure computing engine, for looking at virtual registers, and for clearing them.
    pub fn engine(&self) -> &Engine {
        &self.bridge.engine
    }

    /// The image.
    pub fn image(&self) -> &Image {
        self.bridge.ssd.image()
    }
}

fn completion(cid: u16, receiver: oneshot::Receiver<Response>) -> BoxFuture<'static, Response> {
    async move {
        receiver
            .await
            .unwrap_or_else(|_| Response::failure(cid, Status::INTERNAL_ERROR, false))
    }
    .boxed()
}

fn closed() -> Fault {
    Fault::new(Status::ABORTED_SQ_DELETION, "the drive is shut down")
}

/// Executes a command as far as a program, which it leaves to the threads for programs.
fn execute(mut pending: Pending, request: Request, programs: &Queue) {
    let bridge = Arc::clone(&pending.bridge);
    match bridge.start(&pending.context, request) {
        Ok(Step::Done(reply)) => pending.complete(Ok(reply)),
        Ok(Step::Run(trigger)) => {
            let tenant = pending.context.host.identity.tenant;
            programs.push(tenant, move || {
                let result = bridge.run(&pending.context, *trigger);
                pending.complete(result);
            });
        }
        Err(fault) => pending.complete(Err(fault)),
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        self.cancel_all();
        self.on_ssd.wait();
        self.commands.close();
        self.programs.close();
    }
}

/// A drive as one of its hosts sees it: with the host's keys only, and its own failures and counters. [`Drive::controller_for`] gives it.
#[derive(Clone)]
pub struct DriveController {
    drive: Arc<Drive>,
    hosted: Arc<Hosted>,
}

impl DriveController {
    /// Who the host is.
    pub fn identity(&self) -> &HostIdentity {
        &self.hosted.identity
    }

    /// What it has done.
    pub fn statistics(&self) -> HostStatistics {
        self.hosted.account.statistics()
    }

    /// The drive.
    pub fn drive(&self) -> &Arc<Drive> {
        &self.drive
    }

    /// Does the work of a command that is not of the NVM command set. Its failure goes into the host's error log.
    #[cfg(feature = "computational-programs")]
    pub(crate) fn work(
        &self,
        threads: Threads,
        (sqe, cancel): (Sqe, &CancelToken),
        work: impl FnOnce(&Bridge, &Context) -> Result<Response, Fault> + Send + 'static,
    ) -> BoxFuture<'static, Response> {
        let command = (sqe, cancel.clone());
        let receiver = self.drive.start_other(&self.hosted, command, threads, work);
        completion(sqe.cid.get(), receiver)
    }
}

impl Controller for DriveController {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        self.drive
            .submit_for(&self.hosted, request, CancelToken::new())
    }

    fn submit_abortable(&self, request: Request, cancel: CancelToken) -> BoxFuture<'_, Response> {
        self.drive.submit_for(&self.hosted, request, cancel)
    }

    fn info(&self) -> &ControllerInfo {
        &self.drive.bridge.info
    }

    /// The host's own.
    fn errors(&self) -> Vec<ErrorInformation> {
        self.hosted.account.errors()
    }

    /// Of the host's own commands, but for the state of the medium.
    fn health(&self) -> Health {
        self.drive.health_of(&self.statistics())
    }
}

impl Controller for Drive {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        self.submit_for(&self.own, request, CancelToken::new())
    }

    fn submit_abortable(&self, request: Request, cancel: CancelToken) -> BoxFuture<'_, Response> {
        self.submit_for(&self.own, request, cancel)
    }

    fn info(&self) -> &ControllerInfo {
        &self.bridge.info
    }

    /// The newest failures of every host's commands, and reads that could not load a register.
    fn errors(&self) -> Vec<ErrorInformation> {
        self.bridge.log.errors()
    }

    /// Of the commands of every host.
    fn health(&self) -> Health {
        let total = self.bridge.log.statistics();
        self.health_of(&HostStatistics {
            bytes_read: total.bytes_read,
            bytes_written: total.bytes_written,
            reads: total.reads,
            writes: total.writes,
            busy: self.in_flight.busy(),
            ..HostStatistics::default()
        })
    }
}
