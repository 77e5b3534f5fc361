//! The drive: an NVMe controller in process, over an image and an engine.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use futures::channel::oneshot;
use futures::future::{BoxFuture, FutureExt};
use thiserror::Error;
use toroid_engine::{Backend, CancelToken, Engine, EngineConfig};
use toroid_nvme::{
    ControllerInfo, Host, IdentifyController, IdentifyNamespace, Request, Response, Status,
};

use crate::bridge::{
    Bridge, Context, DriveStatistics, Ended, ErrorLogEntry, Fault, Log, NSID, Plain, ProgramRun,
    Queue, Reply, SsdSide, Step, TraceEvent, TraceKind, Workers, status,
};
use crate::image::{Image, ImageError};
use crate::ssd::SsdError;
use crate::task;

/// MDTS unless another is asked for.
const DEFAULT_MDTS: u32 = 1 << 20;
/// Smallest MDTS that Identify can tell.
const LEAST_MDTS: u32 = 8192;
/// Largest MDTS: a command has at most 65536 blocks.
const MOST_MDTS: u32 = 1 << 25;

/// Sizes of a drive's memory, and what computes in it.
#[derive(Clone)]
pub struct DriveConfig {
    /// Main memory for TLWE samples, in bytes; they overflow to the image's swap area.
    pub paged_bytes: u64,
    /// Most that keys, test vectors and programs may take, in bytes.
    pub persistent_bytes: u64,
    /// Slots of the stack region, each for one TLWE sample.
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
        /// Bytes a block of the image.
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
/// trigger one. Programs run one at a time, in the order in which
/// their triggers were ready. The same thread-safe drive serves any number of hosts.
///
/// Dropping the drive cancels what is under way and waits for it; [`Drive::shutdown`] lets it end and flushes.
pub struct Drive {
    bridge: Arc<Bridge>,
    in_flight: Arc<InFlight>,
    closed: AtomicBool,
    serial: AtomicU64,
    on_ssd: Arc<OnSsd>,
    /// Runs one program at a time, as the engine does, so that no thread waits for another's program.
    programs: Workers,
    commands: Workers,
}

/// The cancellation tokens of the commands under way, by serial number.
#[derive(Default)]
struct InFlight(Mutex<HashMap<u64, (u16, CancelToken)>>);

impl InFlight {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, (u16, CancelToken)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

/// A command under way: answers, and forgets its token, however it ends.
struct Pending {
    bridge: Arc<Bridge>,
    in_flight: Arc<InFlight>,
    context: Context,
    answer: Option<oneshot::Sender<Response>>,
}

impl Pending {
    fn complete(&mut self, result: Result<Reply, Fault>) {
        let cid = self.context.sqe.cid.get();
        let response = match result {
            Ok(reply) => {
                let mut response = Response::success(cid);
                response.cqe.dw0 = (reply.effect as u32).into();
                response.data = reply.data;
                response.metadata = reply.metadata;
                response
            }
            Err(fault) => {
                let log = &self.bridge.log;
                log.count(|statistics| statistics.failed += 1);
                tracing::debug!(cid, status = %fault.status, reason = fault.detail, "command failed");
                log.error(
                    self.context.sqe,
                    fault.status,
                    self.context.vr,
                    fault.detail,
                );
                Response::failure(cid, fault.status, fault.do_not_retry)
            }
        };
        self.in_flight.lock().remove(&self.context.serial);
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
            ..EngineConfig::default()
        };
        let log = Arc::new(Log::new());
        let ssd = Arc::new(SsdSide::new(image, Arc::clone(&log), mdts));
        let engine = Engine::new(engine_config, config.backend, Arc::clone(&ssd) as _);
        let threads = std::thread::available_parallelism().map_or(4, usize::from);
        Ok(Drive {
            bridge: Arc::new(Bridge::new(info, engine, ssd, log)),
            in_flight: Arc::default(),
            closed: AtomicBool::new(false),
            serial: AtomicU64::new(0),
            on_ssd: Arc::default(),
            programs: Workers::new("toroid-program", 1).map_err(DriveError::Thread)?,
            commands: Workers::new("toroid-command", threads.clamp(4, 16))
                .map_err(DriveError::Thread)?,
        })
    }

    /// Starts a command.
    fn start(&self, request: Request) -> oneshot::Receiver<Response> {
        let (answer, receiver) = oneshot::channel();
        let sqe = request.sqe;
        let context = Context {
            sqe,
            serial: self.serial.fetch_add(1, Ordering::Relaxed),
            cancel: CancelToken::new(),
            vr: None,
        };
        self.bridge.log.trace(TraceKind::HostCommand { sqe });
        let token = (sqe.cid.get(), context.cancel.clone());
        self.in_flight.lock().insert(context.serial, token);
        let mut pending = Pending {
            bridge: Arc::clone(&self.bridge),
            in_flight: Arc::clone(&self.in_flight),
            context,
            answer: Some(answer),
        };
        let on_ssd = self.on_ssd.enter();
        if self.closed.load(Ordering::SeqCst) {
            pending.complete(Err(Fault::new(
                Status::ABORTED_SQ_DELETION,
                "the drive is shut down",
            )));
            return receiver;
        }
        let programs = Arc::clone(self.programs.queue());
        let commands = self.commands.queue();
        match self.bridge.plain(&pending.context, request) {
            Plain::Done(result) => pending.complete(result),
            Plain::No(request) => commands.push(move || {
                let step = (pending.bridge).start(&mut pending.context, request);
                go_on(pending, step, &programs);
            }),
            Plain::Waits(ended) => {
                let commands = Arc::clone(commands);
                task::spawn(Box::pin(async move {
                    // Given up last, when nothing of the command holds the image any more.
                    let _on_ssd = on_ssd;
                    let mut pending = pending;
                    match ended.await {
                        Ok(Ended::Done(reply)) => pending.complete(Ok(reply)),
                        Err(fault) => pending.complete(Err(fault)),
                        Ok(Ended::Fetched(fetched)) => commands.push(move || {
                            let step = (pending.bridge).go_on(&mut pending.context, fetched);
                            go_on(pending, step, &programs);
                        }),
                        Ok(Ended::Again(request)) => commands.push(move || {
                            let step = (pending.bridge).start(&mut pending.context, request);
                            go_on(pending, step, &programs);
                        }),
                    }
                }));
            }
        }
        receiver
    }

    /// Cancels every command under way with this identifier. A command that has not begun its effect completes with
    /// [`Status::ABORT_REQUESTED`]; one that has goes on to its end. Says how many were asked to stop.
    pub fn cancel(&self, cid: u16) -> usize {
        self.cancel_where(|other| other == cid)
    }

    /// Cancels every command under way, as [`Drive::cancel`] does.
    pub fn cancel_all(&self) -> usize {
        self.cancel_where(|_| true)
    }

    fn cancel_where(&self, wanted: impl Fn(u16) -> bool) -> usize {
        let in_flight = self.in_flight.lock();
        let mut cancelled = 0;
        for (_, token) in in_flight.values().filter(|(cid, _)| wanted(*cid)) {
            token.cancel();
            cancelled += 1;
        }
        cancelled
    }

    /// Refuses further commands, waits for those under way, and flushes. Blocks; a second call does nothing more.
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

    /// The error log, newest entry first: the latest 256 commands that failed, and reads that could not load a register.
    pub fn error_log(&self) -> Vec<ErrorLogEntry> {
        self.bridge.log.errors()
    }

    /// The newest entry of the error log for a command identifier.
    pub fn last_error(&self, cid: u16) -> Option<ErrorLogEntry> {
        self.bridge.log.error_of(cid)
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
        DriveStatistics {
            paging: self.bridge.engine.paging(),
            ..self.bridge.log.statistics()
        }
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

/// Ends a command, but for a program, which it leaves to the thread for programs.
fn go_on(mut pending: Pending, step: Result<Step, Fault>, programs: &Queue) {
    match step {
        Ok(Step::Done(reply)) => pending.complete(Ok(reply)),
        Ok(Step::Run(trigger)) => programs.push(move || {
            let result = pending.bridge.run(&pending.context, *trigger);
            pending.complete(result);
        }),
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

impl Host for Drive {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        let cid = request.sqe.cid.get();
        let receiver = self.start(request);
        async move {
            receiver
                .await
                .unwrap_or_else(|_| Response::failure(cid, Status::INTERNAL_ERROR, false))
        }
        .boxed()
    }

    fn controller(&self) -> &ControllerInfo {
        &self.bridge.info
    }
}
