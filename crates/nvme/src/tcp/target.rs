//! The target: subsystems, the hosts that may connect to them, and their controllers. [`Connection`] is one queue of one controller.
//!
//! Nothing here does I/O or knows the time: the shell ([`super::server`]) moves bytes, executes what [`Connection::action`] gives it, and tells
//! the time.

mod admin;
mod connection;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::auth::{AuthPolicy, Secret};
use crate::fabrics::{self, DISCOVERY_NQN};
use crate::{Abort, Controller, Cqe, Status};

pub use connection::{Action, Authentication, Connection, Idle, Job, Ticket};
pub(crate) use connection::{interleave, separate};

/// What a connection may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// I/O queues a controller.
    pub io_queues: u16,
    /// Entries a queue: commands under way.
    pub queue_entries: u16,
    /// Bytes of data in a command capsule.
    pub in_capsule_bytes: u32,
    /// Bytes of data that a connection's commands may hold at a time; further commands wait.
    pub bytes_in_flight: usize,
    /// Controllers at a time, of all hosts; and as many more for discovery and for hosts that are yet to authenticate.
    pub controllers: usize,
    /// Controllers at a time of one host.
    pub controllers_a_host: usize,
    /// Time from the connection's first byte to the end of Connect, and from there to the end of authentication.
    pub handshake: Duration,
    /// Time without progress after which a peer that does not take its data is cut off.
    pub stall: Duration,
    /// How long a connection that has nothing to do is looked at before its thread sleeps, as long as that pays; zero for not at all.
    /// To be woken takes tens of microseconds, which a host with one command at a time waits for twice a command.
    pub poll: Duration,
}

/// Largest Diffie-Hellman group of an authentication, in bits.
const MAX_GROUP_BITS: u32 = 4096;

/// Keep alive time-out of discovery controllers whose host asks for none.
const DISCOVERY_KEEP_ALIVE: Duration = Duration::from_secs(120);

impl Default for Limits {
    /// 16 I/O queues of 256 entries, 8 KiB in capsules, 16 MiB in flight, 1024 controllers, 16 a host; 10 s for the handshake, 30 s of stall, 50 us of polling.
    fn default() -> Limits {
        Limits {
            io_queues: 16,
            queue_entries: 256,
            in_capsule_bytes: 8 << 10,
            bytes_in_flight: 16 << 20,
            controllers: 1024,
            controllers_a_host: 16,
            handshake: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            poll: Duration::from_micros(50),
        }
    }
}

impl Limits {
    /// Checks that the limits leave something.
    ///
    /// # Errors
    /// [`TargetError::Limit`].
    pub fn check(&self) -> Result<(), TargetError> {
        let least = [
            ("I/O queues a controller", u64::from(self.io_queues), 1),
            ("entries a queue", self.queue_entries.into(), 2),
            ("bytes in a capsule", self.in_capsule_bytes.into(), 1024),
            ("bytes in flight", self.bytes_in_flight as u64, 1 << 20),
            ("controllers", self.controllers as u64, 1),
            ("controllers a host", self.controllers_a_host as u64, 1),
        ];
        for (what, found, least) in least {
            if found < least {
                return Err(TargetError::Limit(format!(
                    "the limit of {what} is {found}; expected at least {least}"
                )));
            }
        }
        Ok(())
    }
}

/// What is behind a subsystem.
pub trait Storage: Send + Sync {
    /// The controller that this host sees. Hosts that see different namespaces get different ones.
    ///
    /// # Errors
    /// Why the host gets none, for the log.
    fn attach(&self, host_nqn: &str) -> Result<Arc<dyn Controller>, String>;
}

impl<F: Fn(&str) -> Result<Arc<dyn Controller>, String> + Send + Sync> Storage for F {
    fn attach(&self, host_nqn: &str) -> Result<Arc<dyn Controller>, String> {
        self(host_nqn)
    }
}

/// A subsystem that hosts can connect to.
pub struct Subsystem {
    /// Its NQN.
    pub nqn: String,
    /// What is behind it.
    pub storage: Arc<dyn Storage>,
    /// Who may connect.
    pub hosts: Hosts,
}

/// Who may connect to a subsystem.
#[derive(Clone, Debug)]
pub enum Hosts {
    /// Every host, unauthenticated.
    Any,
    /// These.
    Listed(Vec<AllowedHost>),
}

/// A host that may connect.
#[derive(Clone, Debug)]
pub struct AllowedHost {
    /// Its NQN.
    pub nqn: String,
    /// The secret by which it authenticates every queue; `None` lets it in without.
    pub secret: Option<Secret>,
    /// The secret by which the controller authenticates, where the host asks for it.
    pub controller_secret: Option<Secret>,
}

impl AllowedHost {
    /// A host that need not authenticate.
    pub fn new(nqn: impl Into<String>) -> AllowedHost {
        AllowedHost {
            nqn: nqn.into(),
            secret: None,
            controller_secret: None,
        }
    }
}

impl Hosts {
    fn find(&self, nqn: &str) -> Option<Option<&AllowedHost>> {
        match self {
            Hosts::Any => Some(None),
            Hosts::Listed(hosts) => hosts.iter().find(|host| host.nqn == nqn).map(Some),
        }
    }
}

/// What an asynchronous event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    /// A namespace has come, gone or changed.
    NamespaceChanged {
        /// Its identifier.
        nsid: u32,
    },
    /// The list of subsystems has changed (discovery controllers).
    DiscoveryChanged,
    /// The medium has become read-only.
    ReadOnly,
}

/// Counters of a target since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetStatistics {
    /// Connections at this moment.
    pub connections: u64,
    /// Controllers at this moment.
    pub controllers: u64,
    /// Connections ever made.
    pub accepted: u64,
    /// Connect commands and authentications that were refused.
    pub refused: u64,
    /// Connections that ended with a protocol error, a time-out or a stall.
    pub failed: u64,
}

/// Called when something has happened that a connection must look at.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// The target.
pub struct Target {
    limits: Limits,
    subsystems: Vec<Arc<Subsystem>>,
    /// What the discovery log shows in place of the address that a host has connected to.
    advertised: Option<SocketAddr>,
    /// Hashes and groups of authentications.
    policy: AuthPolicy,
    registry: Mutex<Registry>,
    closing: AtomicBool,
    accepted: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

/// A host's NQN and identifier.
type HostKey = (String, [u8; 16]);

#[derive(Default)]
struct Registry {
    controllers: HashMap<u16, Arc<FabricsController>>,
    /// Controllers that are gone, by their host, whose commands are still under way.
    leaving: Vec<(HostKey, Arc<Flights>)>,
    latest: u16,
    connections: HashMap<u64, Wake>,
    next_connection: u64,
}

impl Registry {
    /// Controllers of a host; not those whose host is yet to prove that it is this one, or anybody could use up what the host may have.
    fn of_host(&self, nqn: &str) -> usize {
        let of_host = |controller: &&Arc<FabricsController>| {
            controller.host_nqn == nqn && controller.counts_for_host()
        };
        self.controllers.values().filter(of_host).count()
    }

    /// Controllers that anybody can have: of discovery, and those whose host is yet to authenticate.
    fn of_anybody(&self) -> usize {
        let controllers = self.controllers.values();
        controllers
            .filter(|controller| !controller.counts_for_host())
            .count()
    }

    /// What is still under way of controllers that a host had.
    fn predecessors(&mut self, host: (&str, [u8; 16])) -> Vec<Arc<Flights>> {
        self.leaving.retain(|(_, flights)| !flights.none());
        let of_host = |((nqn, id), _): &&(HostKey, _)| (nqn.as_str(), *id) == host;
        let leaving = self.leaving.iter().filter(of_host);
        leaving.map(|(_, flights)| Arc::clone(flights)).collect()
    }
}

/// Counts the I/O commands of a controller that the storage works on. They may outlast their connection, and a host that begins anew, by a
/// reset or another controller in place of one that it lost, must not be overtaken by what it sent before.
#[derive(Debug, Default)]
struct Flights(AtomicUsize);

/// One of them, until it is dropped. Belongs to the work itself.
#[derive(Debug)]
pub struct Flight(Arc<Flights>);

impl Flight {
    fn begin(flights: &Arc<Flights>) -> Flight {
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
    fn none(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

/// A subsystem could not be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Not an NQN, or that of discovery.
    #[error(
        "{0:?} is no NQN of a subsystem; expected nqn.… of at most 223 bytes, not that of discovery"
    )]
    Nqn(String),
    /// Two subsystems have one NQN.
    #[error("two subsystems have the NQN {0}")]
    Twice(String),
    /// A limit that leaves nothing.
    #[error("{0}")]
    Limit(String),
}

impl Target {
    /// A target for these subsystems. `advertised` is what the discovery log shows, where hosts reach this target under another address than
    /// the one that it sees.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn new(
        subsystems: Vec<Subsystem>,
        limits: Limits,
        advertised: Option<SocketAddr>,
    ) -> Result<Arc<Target>, TargetError> {
        for (i, subsystem) in subsystems.iter().enumerate() {
            if !fabrics::is_nqn(&subsystem.nqn) || subsystem.nqn == DISCOVERY_NQN {
                return Err(TargetError::Nqn(subsystem.nqn.clone()));
            }
            if subsystems[..i]
                .iter()
                .any(|other| other.nqn == subsystem.nqn)
            {
                return Err(TargetError::Twice(subsystem.nqn.clone()));
            }
        }
        // Larger groups add no strength that matters, but cost this side tens of milliseconds for each message that anybody sends.
        let mut policy = AuthPolicy::default();
        policy.groups.retain(|group| group.bits() <= MAX_GROUP_BITS);
        limits.check()?;
        Ok(Arc::new(Target {
            limits,
            subsystems: subsystems.into_iter().map(Arc::new).collect(),
            advertised,
            policy,
            registry: Mutex::default(),
            closing: AtomicBool::new(false),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }))
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The subsystems.
    pub fn subsystems(&self) -> &[Arc<Subsystem>] {
        &self.subsystems
    }

    /// Counters.
    pub fn statistics(&self) -> TargetStatistics {
        let registry = self.registry();
        TargetStatistics {
            connections: registry.connections.len() as u64,
            controllers: registry.controllers.len() as u64,
            accepted: self.accepted.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    /// Lets commands under way end, takes no more of them, and closes every connection.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        for wake in self.registry().connections.values() {
            wake();
        }
    }

    /// Whether the target is closing.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Tells the hosts of a subsystem, or of all and the discovery controllers, of an event.
    pub fn notify(&self, subsystem: Option<&str>, event: Event) {
        for controller in self.registry().controllers.values() {
            let concerned = match (&controller.subsystem, event) {
                (None, Event::DiscoveryChanged) => true,
                (None, _) | (Some(_), Event::DiscoveryChanged) => false,
                (Some(own), _) => subsystem.is_none_or(|nqn| nqn == own.nqn),
            };
            if concerned {
                controller.post_wanted(event);
            }
        }
    }

    /// Counts a connection; its `wake` is called when the target has something for it.
    fn register(&self, wake: Wake) -> u64 {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let mut registry = self.registry();
        registry.next_connection += 1;
        let id = registry.next_connection;
        registry.connections.insert(id, wake);
        id
    }

    fn unregister(&self, id: u64) {
        self.registry().connections.remove(&id);
    }

    /// Makes a controller for an admin queue.
    fn create(
        &self,
        subsystem: Option<Arc<Subsystem>>,
        host: (&str, [u8; 16]),
        keep_alive: Duration,
        admin: Arc<Queue>,
        now: Instant,
    ) -> Result<Arc<FabricsController>, Status> {
        let (host_nqn, host_id) = host;
        let allowed = subsystem.as_ref().and_then(|own| own.hosts.find(host_nqn)?);
        let trusted = allowed.is_none_or(|host| host.secret.is_none());
        let keep_alive = match &subsystem {
            // Who only looks around does not stay for ever.
            None if keep_alive.is_zero() => DISCOVERY_KEEP_ALIVE,
            _ => keep_alive,
        };
        let has_room = |registry: &Registry| {
            let anybodys = registry.of_anybody();
            let pool = match subsystem.is_some() && trusted {
                true => registry.controllers.len() - anybodys,
                false => anybodys,
            };
            pool < self.limits.controllers
                && (subsystem.is_none()
                    || registry.of_host(host_nqn) < self.limits.controllers_a_host)
        };
        // Before anything is done for the host.
        if !has_room(&self.registry()) {
            return Err(Status::CONNECT_CONTROLLER_BUSY);
        }
        let storage = match &subsystem {
            None => None,
            Some(subsystem) => {
                let attached = subsystem.storage.attach(host_nqn);
                Some(attached.map_err(|reason| {
                    tracing::info!(
                        host = host_nqn,
                        subsystem = subsystem.nqn,
                        reason,
                        "host refused"
                    );
                    Status::CONNECT_INVALID_HOST
                })?)
            }
        };
        let mut registry = self.registry();
        if !has_room(&registry) {
            return Err(Status::CONNECT_CONTROLLER_BUSY);
        }
        let predecessors = registry.predecessors(host);
        let mut id = registry.latest;
        loop {
            // 0 and FFF0h to FFFFh are no controllers; an identifier comes again as late as possible.
            id = if id >= 0xFFEF { 1 } else { id + 1 };
            if !registry.controllers.contains_key(&id) {
                break;
            }
        }
        registry.latest = id;
        let controller = Arc::new(FabricsController {
            id,
            subsystem,
            storage,
            host_nqn: host_nqn.to_owned(),
            host_id,
            created: now,
            last_seen: AtomicU64::new(0),
            trusted: AtomicBool::new(trusted),
            dead: AtomicBool::new(false),
            admin,
            flights: Arc::default(),
            predecessors,
            state: Mutex::new(ControllerState {
                keep_alive,
                ..ControllerState::default()
            }),
        });
        registry.controllers.insert(id, Arc::clone(&controller));
        Ok(controller)
    }

    /// The host of a controller has authenticated. False if it has too many controllers already.
    fn trust(&self, controller: &FabricsController) -> bool {
        let registry = self.registry();
        if controller.trusted.load(Ordering::Relaxed) {
            return true;
        }
        let room = registry.of_host(&controller.host_nqn) < self.limits.controllers_a_host;
        controller.trusted.store(room, Ordering::Relaxed);
        room
    }

    fn controller(&self, id: u16) -> Option<Arc<FabricsController>> {
        self.registry().controllers.get(&id).cloned()
    }

    fn destroy(&self, controller: &FabricsController) {
        let mut registry = self.registry();
        registry.controllers.remove(&controller.id);
        registry.leaving.retain(|(_, flights)| !flights.none());
        if !controller.flights.none() {
            let host = (controller.host_nqn.clone(), controller.host_id);
            let flights = Arc::clone(&controller.flights);
            registry.leaving.push((host, flights));
        }
        drop(registry);
        controller.end();
    }
}

/// What others may know of a queue.
pub(crate) struct Queue {
    wake: Wake,
    /// Commands that can be aborted.
    aborts: Mutex<HashMap<u16, Abort>>,
    /// The connection is to end.
    ended: AtomicBool,
}

impl Queue {
    fn new(wake: Wake) -> Queue {
        Queue {
            wake,
            aborts: Mutex::default(),
            ended: AtomicBool::new(false),
        }
    }

    fn aborts(&self) -> MutexGuard<'_, HashMap<u16, Abort>> {
        self.aborts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Release);
        (self.wake)();
    }

    fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// A controller: an admin queue and the I/O queues of one host.
pub(crate) struct FabricsController {
    id: u16,
    /// `None` for discovery.
    subsystem: Option<Arc<Subsystem>>,
    storage: Option<Arc<dyn Controller>>,
    host_nqn: String,
    host_id: [u8; 16],
    created: Instant,
    /// When a command of it came last, in milliseconds since it was created.
    last_seen: AtomicU64,
    /// Its host has authenticated, or need not.
    trusted: AtomicBool,
    dead: AtomicBool,
    admin: Arc<Queue>,
    flights: Arc<Flights>,
    /// Those of earlier controllers of the host.
    predecessors: Vec<Arc<Flights>>,
    state: Mutex<ControllerState>,
}

#[derive(Default)]
struct ControllerState {
    configuration: u32,
    status: u32,
    /// RDY is to change as soon as no command of the host is under way.
    changing: bool,
    keep_alive: Duration,
    /// I/O queues that the host was granted.
    granted: u16,
    queues: HashMap<u16, Arc<Queue>>,
    features: HashMap<u8, u32>,
    /// Asynchronous Event Requests that wait.
    requests: VecDeque<u16>,
    /// Events that wait for a request.
    events: VecDeque<Event>,
    /// Log pages whose event was reported, until the page is read.
    reported: BTreeSet<u8>,
    changed: BTreeSet<u32>,
    /// Completions for the admin queue to send.
    completions: VecDeque<Cqe>,
}

impl FabricsController {
    fn state(&self) -> MutexGuard<'_, ControllerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.created).as_millis() as u64;
        self.last_seen.fetch_max(elapsed, Ordering::Relaxed);
    }

    /// When the keep alive timer expires, unless a command comes before.
    fn expiry(&self) -> Option<Instant> {
        let keep_alive = self.state().keep_alive;
        let last_seen = Duration::from_millis(self.last_seen.load(Ordering::Relaxed));
        (!keep_alive.is_zero()).then(|| self.created + last_seen + keep_alive)
    }

    /// Whether this is one of the controllers that its host may have, and not one that anybody gets.
    fn counts_for_host(&self) -> bool {
        self.subsystem.is_some() && self.trusted.load(Ordering::Relaxed)
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Ends every queue.
    fn end(&self) {
        self.dead.store(true, Ordering::Release);
        self.end_io();
        self.admin.end();
    }

    /// Ends the I/O queues, as a reset does.
    fn end_io(&self) {
        let queues = std::mem::take(&mut self.state().queues);
        for queue in queues.values() {
            queue.end();
        }
    }

    /// Queues an event, and reports it if the host waits for one.
    fn post(&self, event: Event) {
        let mut state = self.state();
        if let Event::NamespaceChanged { nsid } = event {
            state.changed.insert(nsid);
        }
        let known = state
            .events
            .iter()
            .any(|other| event_log(*other) == event_log(event));
        if !known {
            state.events.push_back(event);
        }
        let any = state.report();
        drop(state);
        if any {
            (self.admin.wake)();
        }
    }
}

/// Type, information and log page of an event (Asynchronous Event Request, completion dword 0).
fn event_codes(event: Event) -> (u32, u32, u8) {
    match event {
        Event::NamespaceChanged { .. } => (2, 0, crate::log::log_page::CHANGED_NAMESPACES),
        Event::DiscoveryChanged => (2, 0xF0, crate::log::log_page::DISCOVERY),
        Event::ReadOnly => (1, 0, crate::log::log_page::HEALTH),
    }
}

fn event_log(event: Event) -> u8 {
    event_codes(event).2
}

impl ControllerState {
    /// Answers requests with events; says whether there was one.
    fn report(&mut self) -> bool {
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
