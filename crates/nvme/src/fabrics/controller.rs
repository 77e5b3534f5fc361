//! A controller of a target: what its queues share.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use toroid_task::CancelToken;

use super::command::csts;
use super::subsystem::Subsystem;
use crate::log::{TEMPERATURE, feature, log_page};
use crate::{Controller, ControllerInfo, Cqe, Namespace};

/// Tells a connection to call its `tick`: the state of its target or controller has changed.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// An asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    /// A namespace was added, removed or changed.
    NamespaceChanged {
        /// Its identifier.
        nsid: u32,
    },
    /// The list of subsystems has changed (discovery controllers).
    DiscoveryChanged,
    /// The medium has become read-only.
    ReadOnly,
    /// The temperature has reached a threshold of the host's.
    Temperature,
}

/// Temperature thresholds, in kelvin, of a host that sets none.
pub(super) const COOLEST: u16 = 0;
pub(super) const HOTTEST: u16 = 0x157;

/// Counts the I/O commands of a controller that the storage executes. They may outlast their connection. A host that starts afresh, by a
/// reset or with a new controller, must not have its new commands overtaken by its old ones.
#[derive(Debug, Default)]
pub(super) struct Flights(AtomicUsize);

/// Marks one I/O command as in flight until it is dropped.
#[derive(Debug)]
pub struct Flight(Arc<Flights>);

impl Flight {
    pub(super) fn begin(flights: &Arc<Flights>) -> Flight {
        flights.0.fetch_add(1, Ordering::AcqRel);
        Flight(Arc::clone(flights))
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Flights {
    pub(super) fn none(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

/// A command that can be aborted.
enum Abortable {
    /// It waits for room.
    Waits,
    /// It waited, and is to complete as aborted.
    Aborted,
    /// The storage executes it.
    Executes(CancelToken),
}

/// What has become of a command that was to be aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aborted {
    /// It takes no effect any more.
    Now,
    /// It ends by itself, or was asked to stop.
    Perhaps,
}

/// What the other queues of a controller may do to a queue.
pub(super) struct SharedQueue {
    wake: Wake,
    abortable: Mutex<HashMap<u16, Abortable>>,
    /// The connection is to end.
    ended: AtomicBool,
}

impl SharedQueue {
    pub(super) fn new(wake: Wake) -> SharedQueue {
        SharedQueue {
            wake,
            abortable: Mutex::default(),
            ended: AtomicBool::new(false),
        }
    }

    fn abortable(&self) -> MutexGuard<'_, HashMap<u16, Abortable>> {
        self.abortable
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A command waits for room.
    pub(super) fn waits(&self, cid: u16) {
        self.abortable().insert(cid, Abortable::Waits);
    }

    /// The storage begins to execute a command, and stops if the token says so.
    pub(super) fn executes(&self, cid: u16) -> CancelToken {
        let cancel = CancelToken::new();
        let executes = Abortable::Executes(cancel.clone());
        self.abortable().insert(cid, executes);
        cancel
    }

    /// A command waits no more, or has ended. False if it was aborted while it waited.
    pub(super) fn ends(&self, cid: u16) -> bool {
        !matches!(self.abortable().remove(&cid), Some(Abortable::Aborted))
    }

    /// The commands that were aborted while they waited.
    pub(super) fn aborted(&self) -> Vec<u16> {
        let abortable = self.abortable();
        let aborted = abortable.iter();
        aborted
            .filter(|(_, command)| matches!(command, Abortable::Aborted))
            .map(|(cid, _)| *cid)
            .collect()
    }

    /// Aborts a command, if that is possible.
    pub(super) fn abort(&self, cid: u16) -> Aborted {
        match self.abortable().get_mut(&cid) {
            Some(command @ (Abortable::Waits | Abortable::Aborted)) => {
                *command = Abortable::Aborted;
                self.wake();
                Aborted::Now
            }
            Some(Abortable::Executes(cancel)) => {
                cancel.cancel();
                Aborted::Perhaps
            }
            None => Aborted::Perhaps,
        }
    }

    /// Asks all commands to stop: nobody receives their results.
    pub(super) fn cancel(&self) {
        for command in self.abortable().values() {
            if let Abortable::Executes(cancel) = command {
                cancel.cancel();
            }
        }
    }

    pub(super) fn wake(&self) {
        (self.wake)();
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// A controller: an admin queue and the I/O queues of one host.
pub(super) struct FabricsController {
    pub(super) id: u16,
    /// `None` for discovery.
    pub(super) subsystem: Option<Arc<Subsystem>>,
    pub(super) storage: Option<Arc<dyn Controller>>,
    pub(super) host_nqn: String,
    pub(super) host_id: [u8; 16],
    pub(super) created: Instant,
    /// When its latest command arrived, in milliseconds since it was created.
    pub(super) last_seen: AtomicU64,
    /// Its host has authenticated, or need not.
    pub(super) trusted: AtomicBool,
    pub(super) dead: AtomicBool,
    pub(super) admin: Arc<SharedQueue>,
    pub(super) flights: Arc<Flights>,
    /// Commands in flight of earlier controllers of the host.
    pub(super) predecessors: Vec<Arc<Flights>>,
    pub(super) state: Mutex<ControllerState>,
}

pub(super) struct ControllerState {
    pub(super) configuration: u32,
    pub(super) status: u32,
    /// RDY changes as soon as no command of the host is in flight.
    pub(super) changing: bool,
    pub(super) keep_alive: Duration,
    /// I/O queues that the host was granted; 0 until it has asked for some.
    pub(super) granted: u16,
    pub(super) queues: HashMap<u16, Arc<SharedQueue>>,
    /// Connections that wait for the end of a queue, whose identifier they want.
    pub(super) successors: Vec<Wake>,
    pub(super) features: HashMap<u8, u32>,
    /// Temperatures between, and without, the host's thresholds, in kelvin.
    pub(super) temperature: Range<u16>,
    /// Asynchronous Event Requests that wait.
    pub(super) requests: VecDeque<u16>,
    /// Events that wait for a request.
    pub(super) events: VecDeque<Event>,
    /// Log pages whose event was reported, until the page is read.
    pub(super) reported: BTreeSet<u8>,
    /// Namespaces that changed since the host read the list of them.
    pub(super) changed: BTreeSet<u32>,
    /// Completions for the admin queue to send.
    pub(super) completions: VecDeque<Cqe>,
}

impl FabricsController {
    pub(super) fn state(&self) -> MutexGuard<'_, ControllerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A command of the host has arrived.
    pub(super) fn seen(&self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.created).as_millis() as u64;
        self.last_seen.fetch_max(elapsed, Ordering::Relaxed);
    }

    /// When the keep alive timer expires unless a command arrives before.
    pub(super) fn expiry(&self) -> Option<Instant> {
        let keep_alive = self.state().keep_alive;
        let last_seen = Duration::from_millis(self.last_seen.load(Ordering::Relaxed));
        (!keep_alive.is_zero()).then(|| self.created + last_seen + keep_alive)
    }

    /// Whether the controller counts against the limit of its host, not against that of discovery and of unauthenticated hosts.
    pub(super) fn counts_for_host(&self) -> bool {
        self.subsystem.is_some() && self.trusted.load(Ordering::Relaxed)
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Whether the host has enabled it, and not shut it down since.
    pub(super) fn is_active(&self) -> bool {
        let shutdown = csts::SHUTDOWN_OCCURRING | csts::SHUTDOWN_COMPLETE;
        self.state().status & (csts::RDY | shutdown) == csts::RDY
    }

    /// Ends every queue.
    pub(super) fn end(&self) {
        self.dead.store(true, Ordering::Release);
        self.end_io();
        self.admin.end();
    }

    /// Takes back an Asynchronous Event Request that has no completion yet. False if there is none with this identifier.
    pub(super) fn forget_request(&self, cid: u16) -> bool {
        let mut state = self.state();
        let before = state.requests.len() + state.completions.len();
        state.requests.retain(|request| *request != cid);
        state.completions.retain(|cqe| cqe.cid.get() != cid);
        state.requests.len() + state.completions.len() < before
    }

    /// Ends the I/O queues, as a reset does.
    pub(super) fn end_io(&self) {
        let queues = std::mem::take(&mut self.state().queues);
        for queue in queues.values() {
            queue.end();
        }
    }

    /// Limits, namespaces and status codes of the storage; `None` for discovery.
    pub(super) fn info(&self) -> Option<&ControllerInfo> {
        self.storage.as_ref().map(|storage| storage.info())
    }

    pub(super) fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        self.info()?.namespace(nsid)
    }

    /// Whether the host has enabled such events.
    fn wants(&self, event: Event) -> bool {
        let configured = self.state().features.get(&feature::EVENTS).copied();
        let configured = configured.unwrap_or(0);
        match event_log(event) {
            log_page::CHANGED_NAMESPACES => configured & 1 << 8 != 0,
            log_page::DISCOVERY => configured & 1 << 31 != 0,
            // Critical warnings.
            _ if event == Event::Temperature => configured & 1 << 1 != 0,
            _ => configured & 1 << 3 != 0,
        }
    }

    /// Queues an event if the host has enabled it, and reports it if a request waits.
    pub(super) fn post(&self, event: Event) {
        if !self.wants(event) {
            return;
        }
        let mut state = self.state();
        if let Event::NamespaceChanged { nsid } = event {
            state.changed.insert(nsid);
        }
        let same = |other: &Event| event_codes(*other) == event_codes(event);
        if !state.events.iter().any(same) {
            state.events.push_back(event);
        }
        let any = state.report();
        drop(state);
        if any {
            self.admin.wake();
        }
    }
}

/// Type, information and log page of an event (Asynchronous Event Request, completion dword 0).
fn event_codes(event: Event) -> (u32, u32, u8) {
    match event {
        Event::NamespaceChanged { .. } => (2, 0, log_page::CHANGED_NAMESPACES),
        Event::DiscoveryChanged => (2, 0xF0, log_page::DISCOVERY),
        Event::Temperature => (1, 1, log_page::HEALTH),
        Event::ReadOnly => (1, 0, log_page::HEALTH),
    }
}

fn event_log(event: Event) -> u8 {
    event_codes(event).2
}

impl ControllerState {
    pub(super) fn new(keep_alive: Duration) -> ControllerState {
        ControllerState {
            configuration: 0,
            status: 0,
            changing: false,
            keep_alive,
            granted: 0,
            queues: HashMap::new(),
            successors: Vec::new(),
            features: HashMap::new(),
            temperature: COOLEST..HOTTEST,
            requests: VecDeque::new(),
            events: VecDeque::new(),
            reported: BTreeSet::new(),
            changed: BTreeSet::new(),
            completions: VecDeque::new(),
        }
    }

    /// Whether the temperature lies between the host's thresholds.
    pub(super) fn is_temperate(&self) -> bool {
        let Range { start, end } = self.temperature;
        start < TEMPERATURE && TEMPERATURE < end
    }

    /// Completes waiting requests with waiting events; returns whether there was one.
    pub(super) fn report(&mut self) -> bool {
        let mut any = false;
        while !self.requests.is_empty() {
            let reported = &self.reported;
            let next = self
                .events
                .iter()
                .position(|event| !reported.contains(&event_log(*event)));
            let Some(event) = next.and_then(|next| self.events.remove(next)) else {
                break;
            };
            let (kind, information, log) = event_codes(event);
            if let Some(cid) = self.requests.pop_front() {
                let mut cqe = Cqe::success(cid);
                cqe.dw0 = (kind | information << 8 | u32::from(log) << 16).into();
                self.completions.push_back(cqe);
                self.reported.insert(log);
                any = true;
            }
        }
        any
    }
}
