//! The target: its subsystems, the controllers of the hosts that have connected, and its connections.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::auth::{AuthPolicy, TlsKey, TlsPsk};
use super::channel::{SecureChannel, TlsMode};
use super::command::{DISCOVERY_NQN, is_nqn};
use super::controller::{ControllerState, Event, FabricsController, Flights, SharedQueue, Wake};
use super::discovery::{DiscoveryEntry, Port};
use super::limits::{LimitError, Limits};
use super::memory::Memory;
use super::subsystem::{Hosts, Subsystem};
use crate::Status;

/// Largest Diffie-Hellman group of an authentication, in bits.
const MAX_GROUP_BITS: u32 = 4096;

/// How long a generated key waits for its first connection, and is kept after the last.
const KEY_LIFETIME: Duration = Duration::from_secs(60);

/// Keep alive time-out of discovery controllers whose hosts ask for none.
const DISCOVERY_KEEP_ALIVE: Duration = Duration::from_secs(120);

/// Why a target cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Not an NQN, or the NQN of discovery.
    #[error(
        "{0:?} is not a subsystem's NQN; expected nqn.… of at most 223 bytes, other than that of discovery"
    )]
    Nqn(String),
    /// Two subsystems have one NQN.
    #[error("two subsystems have the NQN {0}")]
    Twice(String),
    /// A subsystem lists a host twice.
    #[error("{subsystem} lists the host {host} twice")]
    HostTwice {
        /// The subsystem.
        subsystem: String,
        /// The host.
        host: String,
    },
    /// A TLS key is of a host, or for a subsystem, whose name could end elsewhere in an identity, which separates names by spaces.
    #[error(
        "{0:?} has a space or is no NQN; expected a name without spaces where a host has a TLS key"
    )]
    TlsName(String),
    /// Two hosts have TLS keys of the same bytes.
    #[error(
        "hosts {0} and {1} have the same TLS key, so that each could connect as the other; expected a key for each host"
    )]
    TlsKeyShared(String, String),
    /// A limit is too small.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

/// Counters of a target since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetStatistics {
    /// Open connections.
    pub connections: u64,
    /// Bytes that connections hold for the data of commands, and for input and output.
    pub bytes_in_flight: u64,
    /// Controllers in use.
    pub controllers: u64,
    /// Connections accepted so far.
    pub accepted: u64,
    /// Connect commands and authentications that were refused.
    pub refused: u64,
    /// Connections that ended with a protocol error, a time-out or a stall, or that were cut.
    pub failed: u64,
}

/// The target.
pub struct Target {
    pub(super) limits: Limits,
    pub(super) subsystems: Vec<Arc<Subsystem>>,
    /// The address in the discovery log, in place of the one that a host has connected to.
    advertised: Option<SocketAddr>,
    /// Hashes and Diffie-Hellman groups for authentication.
    pub(super) policy: AuthPolicy,
    pub(super) memory: Memory,
    registry: Mutex<Registry>,
    generated: Mutex<Vec<Generated>>,
    closing: AtomicBool,
    accepted: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

/// A key that an authentication has generated.
struct Generated {
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "only TLS reads it"))]
    psk: TlsPsk,
    /// Connections that use the key hold it too.
    channel: Arc<SecureChannel>,
    /// Until when it may be used first.
    until: Instant,
}

impl Generated {
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.channel) > 1
    }
}

/// A host's NQN and identifier.
type HostKey = (String, [u8; 16]);

#[derive(Default)]
struct Registry {
    controllers: HashMap<u16, Arc<FabricsController>>,
    /// Commands still in flight of controllers that no longer exist, by host.
    leaving: Vec<(HostKey, Arc<Flights>)>,
    latest: u16,
    connections: HashMap<u64, Wake>,
    next_connection: u64,
    /// Where hosts can connect, and how.
    ports: Vec<(Port, TlsMode)>,
}

impl Registry {
    /// Controllers of a host that has authenticated. Others do not count, or anybody could exhaust the limit of the host.
    fn of_host(&self, nqn: &str) -> usize {
        let of_host = |controller: &&Arc<FabricsController>| {
            controller.host_nqn == nqn && controller.counts_for_host()
        };
        self.controllers.values().filter(of_host).count()
    }

    /// Controllers that any host can create: those for discovery, and those of hosts that have not authenticated yet.
    fn unauthenticated(&self) -> usize {
        let controllers = self.controllers.values();
        controllers
            .filter(|controller| !controller.counts_for_host())
            .count()
    }

    /// Commands still in flight of earlier controllers of a host.
    fn predecessors(&mut self, host: (&str, [u8; 16])) -> Vec<Arc<Flights>> {
        self.leaving.retain(|(_, flights)| !flights.none());
        let of_host = |((nqn, id), _): &&(HostKey, _)| (nqn.as_str(), *id) == host;
        let leaving = self.leaving.iter().filter(of_host);
        leaving.map(|(_, flights)| Arc::clone(flights)).collect()
    }
}

/// Checks that no two entries of hosts can be taken for one another.
fn check_hosts(subsystems: &[Subsystem]) -> Result<(), TargetError> {
    let mut keys: Vec<(&TlsKey, &str)> = Vec::new();
    for subsystem in subsystems {
        let Hosts::Listed(hosts) = &subsystem.hosts else {
            continue;
        };
        for (i, host) in hosts.iter().enumerate() {
            if hosts[..i].iter().any(|other| other.nqn == host.nqn) {
                return Err(TargetError::HostTwice {
                    subsystem: subsystem.nqn.clone(),
                    host: host.nqn.clone(),
                });
            }
            let Some(key) = &host.tls_key else {
                continue;
            };
            for name in [&host.nqn, &subsystem.nqn] {
                if !is_nqn(name) || name.contains(char::is_whitespace) {
                    return Err(TargetError::TlsName(name.clone()));
                }
            }
            let shares =
                |(other, nqn): &&(&TlsKey, &str)| *nqn != host.nqn && key.has_bytes_of(other);
            if let Some((_, other)) = keys.iter().find(shares) {
                return Err(TargetError::TlsKeyShared(
                    (*other).to_owned(),
                    host.nqn.clone(),
                ));
            }
            keys.push((key, &host.nqn));
        }
    }
    Ok(())
}

impl Target {
    /// A target for these subsystems. The discovery log shows the address `advertised`, or else the one that the host has connected to.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn new(
        subsystems: Vec<Subsystem>,
        limits: Limits,
        advertised: Option<SocketAddr>,
    ) -> Result<Arc<Target>, TargetError> {
        for (i, subsystem) in subsystems.iter().enumerate() {
            if !is_nqn(&subsystem.nqn) || subsystem.nqn == DISCOVERY_NQN {
                return Err(TargetError::Nqn(subsystem.nqn.clone()));
            }
            if subsystems[..i]
                .iter()
                .any(|other| other.nqn == subsystem.nqn)
            {
                return Err(TargetError::Twice(subsystem.nqn.clone()));
            }
        }
        check_hosts(&subsystems)?;
        // Larger groups add no useful strength, but cost the target tens of milliseconds for each message of an unauthenticated host.
        let mut policy = AuthPolicy::default();
        policy.groups.retain(|group| group.bits() <= MAX_GROUP_BITS);
        limits.check()?;
        Ok(Arc::new(Target {
            memory: Memory::new(limits.total_bytes_in_flight),
            limits,
            subsystems: subsystems.into_iter().map(Arc::new).collect(),
            advertised,
            policy,
            registry: Mutex::default(),
            generated: Mutex::default(),
            closing: AtomicBool::new(false),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }))
    }

    /// Counts a refused Connect command or authentication.
    pub(super) fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that ended with an error.
    pub(crate) fn count_failure(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
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
            bytes_in_flight: self.memory.used() as u64,
            controllers: registry.controllers.len() as u64,
            accepted: self.accepted.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    /// Keeps a key that an authentication of a host has generated, while connections use it, and for a while until one does.
    pub(crate) fn keep_key(&self, psk: TlsPsk, (host_nqn, sub_nqn): (&str, &str), now: Instant) {
        let mut generated = self.generated();
        generated.retain(|key| key.is_in_use() || now < key.until);
        let of_host = |key: &Generated| key.channel.host_nqn == host_nqn;
        // The host's oldest key that nobody uses makes room.
        if generated.iter().filter(|key| of_host(key)).count() >= self.limits.controllers_per_host
            && let Some(oldest) = generated
                .iter()
                .position(|key| of_host(key) && !key.is_in_use())
        {
            generated.remove(oldest);
        }
        generated.push(Generated {
            psk,
            channel: Arc::new(SecureChannel {
                host_nqn: host_nqn.to_owned(),
                sub_nqn: sub_nqn.to_owned(),
                generated: true,
            }),
            until: now + KEY_LIFETIME,
        });
    }

    /// The generated key of an identity, if a connection may use it now.
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "only TLS calls it"))]
    pub(crate) fn generated_key(
        &self,
        identity: &[u8],
        now: Instant,
    ) -> Option<(TlsPsk, Arc<SecureChannel>)> {
        let mut generated = self.generated();
        generated.retain(|key| key.is_in_use() || now < key.until);
        let key = generated
            .iter()
            .find(|key| key.psk.identity.as_bytes() == identity)?;
        Some((key.psk.clone(), Arc::clone(&key.channel)))
    }

    fn generated(&self) -> MutexGuard<'_, Vec<Generated>> {
        self.generated
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Hosts can connect here: the discovery log shows it.
    pub fn listens(&self, port: Port, tls: TlsMode) {
        let mut registry = self.registry();
        if !registry.ports.contains(&(port, tls)) {
            registry.ports.push((port, tls));
        }
    }

    /// Has every connection look at itself, so that idle ones return memory. To be called every few seconds.
    pub fn tend(&self) {
        for wake in self.registry().connections.values() {
            wake();
        }
    }

    /// Accepts no more commands, lets those in flight complete, and closes every connection.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.tend();
    }

    /// Whether the target is closing.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Reports an event to the hosts of one subsystem, or of all; a changed discovery log to the discovery controllers.
    pub fn notify(&self, subsystem: Option<&str>, event: Event) {
        for controller in self.registry().controllers.values() {
            let concerned = match (&controller.subsystem, event) {
                (None, Event::DiscoveryChanged) => true,
                (None, _) | (Some(_), Event::DiscoveryChanged) => false,
                (Some(own), _) => subsystem.is_none_or(|nqn| nqn == own.nqn),
            };
            if concerned {
                controller.post(event);
            }
        }
    }

    /// Registers a connection; `wake` tells it of changes.
    pub(super) fn register(&self, wake: Wake) -> u64 {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let mut registry = self.registry();
        registry.next_connection += 1;
        let id = registry.next_connection;
        registry.connections.insert(id, wake);
        id
    }

    pub(super) fn unregister(&self, id: u64) {
        self.registry().connections.remove(&id);
    }

    /// Creates a controller for an admin queue. The host need not authenticate if its channel has `proven` who it is.
    pub(super) fn create(
        &self,
        subsystem: Option<Arc<Subsystem>>,
        host: (&str, [u8; 16]),
        keep_alive: Duration,
        admin: Arc<SharedQueue>,
        proven: bool,
        now: Instant,
    ) -> Result<Arc<FabricsController>, Status> {
        let (host_nqn, host_id) = host;
        let allowed = subsystem.as_ref().and_then(|own| own.hosts.find(host_nqn)?);
        let trusted = proven || allowed.is_none_or(|host| host.secret.is_none());
        let keep_alive = match &subsystem {
            // Discovery controllers always have a time-out.
            None if keep_alive.is_zero() => DISCOVERY_KEEP_ALIVE,
            _ => keep_alive,
        };
        let has_room = |registry: &Registry| {
            let unauthenticated = registry.unauthenticated();
            let pool = if subsystem.is_some() && trusted {
                registry.controllers.len() - unauthenticated
            } else {
                unauthenticated
            };
            pool < self.limits.controllers
                && (subsystem.is_none()
                    || registry.of_host(host_nqn) < self.limits.controllers_per_host)
        };
        // Checked before `attach` does work for the host, and again after it.
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
            // 0 and FFF0h to FFFFh are reserved; an identifier is reused as late as possible.
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
            state: Mutex::new(ControllerState::new(keep_alive)),
        });
        registry.controllers.insert(id, Arc::clone(&controller));
        Ok(controller)
    }

    /// The host of a controller has authenticated. Returns false if it has too many controllers already.
    pub(super) fn trust(&self, controller: &FabricsController) -> bool {
        let registry = self.registry();
        if controller.trusted.load(Ordering::Relaxed) {
            return true;
        }
        let room = registry.of_host(&controller.host_nqn) < self.limits.controllers_per_host;
        controller.trusted.store(room, Ordering::Relaxed);
        room
    }

    pub(super) fn controller(&self, id: u16) -> Option<Arc<FabricsController>> {
        self.registry().controllers.get(&id).cloned()
    }

    pub(super) fn destroy(&self, controller: &FabricsController) {
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

    /// The ports that a host can reach which has used `port`, that one first, with their identifiers.
    fn ports(&self, port: Port) -> Vec<(u16, Port, TlsMode)> {
        let mut ports = vec![(1, port, TlsMode::Off)];
        for (id, (mut other, tls)) in (1..).zip(self.registry().ports.iter().copied()) {
            // A listener on every address is reached under the one that the host knows.
            if other.address.ip().is_unspecified() {
                other.address.set_ip(port.address.ip());
            }
            let reachable = other.address.ip().is_loopback() == port.address.ip().is_loopback();
            let known = |of: &(u16, Port, TlsMode)| (of.1, of.2) == (other, tls);
            if other == port {
                ports[0] = (id, port, tls);
            } else if reachable && !ports.iter().any(known) {
                ports.push((id, other, tls));
            }
        }
        if let Some(address) = self.advertised {
            let (id, _, tls) = ports[0];
            return vec![(id, Port { address, ..port }, tls)];
        }
        ports
    }

    /// The subsystems that a host may connect to, and where, if it has used `port`.
    pub(super) fn discovery_entries(&self, host_nqn: &str, port: Port) -> Vec<DiscoveryEntry> {
        let subsystems = self.subsystems.iter();
        let allowed =
            subsystems.filter_map(|subsystem| Some((subsystem, subsystem.hosts.find(host_nqn)?)));
        let ports = self.ports(port);
        allowed
            .flat_map(|(subsystem, host)| {
                // One whose key comes from its authentication connects without TLS first.
                let has_key = host.is_some_and(|host| host.tls_key.is_some());
                ports.iter().map(move |(id, port, tls)| {
                    let secure = match tls {
                        TlsMode::Off => false,
                        TlsMode::Allowed => has_key,
                        TlsMode::Required => true,
                    };
                    DiscoveryEntry::new(&subsystem.nqn, *port, *id).with_secure_channel(secure)
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Controller;
    use crate::fabrics::AllowedHost;
    use crate::fabrics::auth::AuthHash;

    fn with_keys(subsystems: &[(&str, &[(&str, &TlsKey)])]) -> Result<(), TargetError> {
        let subsystems = subsystems.iter().map(|(nqn, hosts)| Subsystem {
            nqn: (*nqn).into(),
            storage: Arc::new(|_: &str| Err::<Arc<dyn Controller>, _>("none".to_owned())),
            hosts: Hosts::Listed(
                hosts
                    .iter()
                    .map(|(host, key)| AllowedHost {
                        tls_key: Some((*key).clone()),
                        ..AllowedHost::new(*host)
                    })
                    .collect(),
            ),
        });
        Target::new(subsystems.collect(), Limits::default(), None).map(drop)
    }

    #[test]
    fn no_two_hosts_share_a_tls_key() {
        let [one, two] = [AuthHash::Sha256; 2].map(|hash| TlsKey::generate(hash).unwrap());
        // The same bytes, to be used as they are.
        let text = one.to_text().replacen(":01:", ":00:", 1);
        let untransformed: TlsKey = text.parse().unwrap();
        let shared = TargetError::TlsKeyShared("nqn.a".into(), "nqn.b".into());
        for copy in [&one, &untransformed] {
            let same = [("nqn.a", &one), ("nqn.b", copy)];
            assert_eq!(with_keys(&[("nqn.s", &same)]), Err(shared.clone()));
            let apart = [("nqn.s", &same[..1]), ("nqn.t", &same[1..])];
            assert_eq!(with_keys(&apart), Err(shared.clone()));
        }
        // A host may have one key for several subsystems, or one for each.
        let own = [("nqn.a", &one), ("nqn.b", &two)];
        assert_eq!(with_keys(&[("nqn.s", &own), ("nqn.t", &own)]), Ok(()));
        let each = [("nqn.s", &own[..1]), ("nqn.t", &[("nqn.a", &two)][..])];
        assert_eq!(with_keys(&each), Ok(()));
    }

    #[test]
    fn names_cannot_run_into_one_another_in_an_identity_of_a_tls_key() {
        let key = TlsKey::generate(AuthHash::Sha256).unwrap();
        // Host "nqn.a nqn.b" of "nqn.c", and host "nqn.a" of "nqn.b nqn.c" have one identity of version 0.
        for (host, sub, wrong) in [
            ("nqn.a nqn.b", "nqn.c", "nqn.a nqn.b"),
            ("nqn.a", "nqn.b nqn.c", "nqn.b nqn.c"),
            ("nqn.a\u{a0}", "nqn.c", "nqn.a\u{a0}"),
            ("nqn.a\0", "nqn.c", "nqn.a\0"),
            ("a", "nqn.c", "a"),
        ] {
            let refused = with_keys(&[(sub, &[(host, &key)])]);
            assert_eq!(refused, Err(TargetError::TlsName(wrong.into())));
        }
        let twice = with_keys(&[("nqn.s", &[("nqn.a", &key), ("nqn.a", &key)])]);
        assert!(matches!(twice, Err(TargetError::HostTwice { .. })));
    }

    #[test]
    fn generated_keys_stay_while_they_are_used_and_a_while_before() {
        let limits = Limits {
            controllers_per_host: 3,
            ..Limits::default()
        };
        let target = Target::new(Vec::new(), limits, None).unwrap();
        let start = Instant::now();
        let keep = |host: &str| {
            let key = TlsKey::generate(AuthHash::Sha256).unwrap();
            let psk = key.psk(host, "nqn.s");
            let identity = psk.identity.clone().into_bytes();
            target.keep_key(psk, (host, "nqn.s"), start);
            identity
        };
        let first = keep("nqn.a");
        let used = target.generated_key(&first, start).unwrap().1;
        assert!(used.generated && used.host_nqn == "nqn.a");
        let others: Vec<[Vec<u8>; 2]> = (0..5).map(|_| ["nqn.a", "nqn.b"].map(keep)).collect();
        // As many as a host may have controllers, and not instead of one in use.
        let left = |of: usize, now| {
            let keys = others.iter().map(|keys| &keys[of]);
            keys.filter(|identity| target.generated_key(identity, now).is_some())
                .count()
        };
        let is_there = |now| target.generated_key(&first, now).is_some();
        assert!(is_there(start));
        assert_eq!((left(0, start), left(1, start)), (2, 3));
        let later = start + KEY_LIFETIME;
        assert!(is_there(later));
        assert_eq!((left(0, later), left(1, later)), (0, 0));
        drop(used);
        assert!(!is_there(later));
    }
}
