//! The initiator's sockets: [`TcpController`], a controller behind NVMe/TCP as a [`Controller`].

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use thiserror::Error;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use zerocopy::{FromBytes, IntoBytes};

use super::initiator::{Connection, Digests};
use super::poll::Polling;
use super::target::{interleave, separate};
use crate::admin::{cns, csi, opcode};
use crate::auth::{AuthCommand, AuthError, AuthPolicy, HostAuth, HostStep, RECEIVE_LEN, Secret};
use crate::fabrics::{
    self, AUTHENTICATION_REQUIRED, CATTR_NO_FLOW_CONTROL, Connect, ConnectData, DISCOVERY_ENTRY,
    DISCOVERY_NQN, DiscoveryEntry, Sgl, cc, csts, property,
};
use crate::log::{feature, log_page, parse_reasons};
use crate::{
    Command, ConnectionError, Controller, ControllerInfo, IdentifyController, IdentifyError,
    IdentifyNamespace, Namespace, OtherNamespace, Request, Response, Sqe, Status, VendorStatus,
};

/// Dword 0 of a Connect that was refused for its subsystem's NQN, byte 256 of the data.
const UNKNOWN_SUBSYSTEM: u32 = 256 | 1 << 16;
/// Entries of the admin queue.
const ADMIN_ENTRIES: u16 = 32;
/// How often a controller that becomes ready is looked at.
const READY_POLL: Duration = Duration::from_millis(20);
/// Namespaces that are asked for at most.
const MAX_NAMESPACES: usize = 1024;
/// Times that the discovery log is read before its changes are too many.
const MAX_DISCOVERY_READS: usize = 16;
/// Bytes of a log page that one command fetches.
const LOG_CHUNK: usize = 4096;

/// Where a controller is: `nvme+tcp://HOST:PORT/NQN`; the port may be left out (4420), and the NQN for discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Host name or IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// NQN of the subsystem.
    pub nqn: String,
}

/// The scheme of an [`Address`].
pub const SCHEME: &str = "nvme+tcp://";

/// Not the address of a controller.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is no address of a drive: {reason}; expected nvme+tcp://HOST:PORT/NQN")]
pub struct AddressError {
    text: String,
    reason: &'static str,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let error = |reason| AddressError {
            text: text.to_owned(),
            reason,
        };
        let rest = text
            .strip_prefix(SCHEME)
            .ok_or_else(|| error("another scheme"))?;
        let (authority, nqn) = rest.split_once('/').unwrap_or((rest, ""));
        let nqn = if nqn.is_empty() { DISCOVERY_NQN } else { nqn };
        if !fabrics::is_nqn(nqn) {
            return Err(error("what follows the host is no NQN"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            // An IPv6 address.
            Some(rest) => {
                let (host, port) = rest
                    .split_once(']')
                    .ok_or_else(|| error("an open bracket"))?;
                match port {
                    "" => (host, ""),
                    port => (
                        host,
                        port.strip_prefix(':')
                            .ok_or_else(|| error("no port after the host"))?,
                    ),
                }
            }
            None => authority.split_once(':').unwrap_or((authority, "")),
        };
        if host.is_empty() {
            return Err(error("no host"));
        }
        let port = match port {
            "" => fabrics::TCP_PORT,
            port => port
                .parse()
                .map_err(|_| error("the port is no number below 65536"))?,
        };
        Ok(Address {
            host: host.to_owned(),
            port,
            nqn: nqn.to_owned(),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { host, port, nqn } = self;
        match host.contains(':') {
            true => write!(f, "{SCHEME}[{host}]:{port}/{nqn}"),
            false => write!(f, "{SCHEME}{host}:{port}/{nqn}"),
        }
    }
}

/// How to connect.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// This host's NQN.
    pub host_nqn: String,
    /// This host's identifier, a UUID.
    pub host_id: [u8; 16],
    /// I/O queues; the controller may grant fewer.
    pub io_queues: u16,
    /// Entries an I/O queue; the controller may allow fewer.
    pub queue_entries: u16,
    /// The secret by which this host authenticates, where the controller asks for it.
    pub secret: Option<Secret>,
    /// The secret by which the controller must authenticate.
    pub controller_secret: Option<Secret>,
    /// Digests.
    pub digests: Digests,
    /// Keep alive time-out; a Keep Alive command goes out after each half of it.
    pub keep_alive: Duration,
    /// Time for the connection, its handshake and every admin command.
    pub timeout: Duration,
    /// How long a queue that waits for its controller is looked at before its thread sleeps, as long as that pays; zero for not at all.
    pub poll: Duration,
    /// The meaning of the controller's vendor-specific status codes.
    pub vendor_statuses: &'static [VendorStatus],
}

impl ConnectOptions {
    /// One I/O queue of 256 entries without digests, 10 s of keep alive and of time-out, 50 us of polling.
    pub fn new(host_nqn: impl Into<String>, host_id: [u8; 16]) -> ConnectOptions {
        ConnectOptions {
            host_nqn: host_nqn.into(),
            host_id,
            io_queues: 1,
            queue_entries: 256,
            secret: None,
            controller_secret: None,
            digests: Digests::default(),
            keep_alive: Duration::from_secs(10),
            timeout: Duration::from_secs(10),
            poll: Duration::from_micros(50),
            vendor_statuses: &[],
        }
    }
}

/// Why a controller cannot be connected to, or did not answer an admin command.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The operating system refused.
    #[error("cannot connect to {address}")]
    Io {
        /// Where to.
        address: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The connection broke.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The controller did not answer in time.
    #[error("{what} took longer than {limit:?}")]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// How long.
        limit: Duration,
    },
    /// A command failed.
    #[error(
        "{what} failed: {} ({:X}h/{:02X}h)",
        status.fabrics_name().unwrap_or("unnamed status"),
        status.sct(),
        status.sc()
    )]
    Refused {
        /// Which command.
        what: &'static str,
        /// Its status.
        status: Status,
        /// Dword 0 of its completion.
        result: u32,
    },
    /// There is no such subsystem at the address.
    #[error("there is no subsystem {nqn}; discovery tells which there are")]
    NoSuchSubsystem {
        /// The NQN asked for.
        nqn: String,
    },
    /// The subsystem has a list of hosts, and this one is not on it.
    #[error("the subsystem does not let in host {nqn}")]
    HostRefused {
        /// This host's NQN.
        nqn: String,
    },
    /// The controller asks for authentication, or is to authenticate, but this host has no secret.
    #[error("authentication needs this host's secret")]
    NoSecret,
    /// The authentication failed.
    #[error("authentication failed: {0}")]
    Auth(#[from] AuthError),
    /// The discovery log changed whenever it was read.
    #[error("the discovery log does not stay the same for as long as it takes to read it")]
    Unsteady,
    /// The controller did not become ready.
    #[error("the controller reports a fatal error")]
    Fatal,
    /// An Identify structure was not understood.
    #[error(transparent)]
    Identify(#[from] IdentifyError),
    /// The controller gave less than it should.
    #[error("{what}: {found} bytes; expected {expected}")]
    Length {
        /// What it gave.
        what: &'static str,
        /// Bytes found.
        found: usize,
        /// Bytes expected.
        expected: usize,
    },
}

/// A command on its way to a queue's task.
struct Submission {
    sqe: Sqe,
    data: Vec<u8>,
    expected: usize,
    answer: oneshot::Sender<Response>,
}

/// One queue: a task that owns its socket.
struct QueueHandle {
    commands: mpsc::UnboundedSender<Submission>,
    task: JoinHandle<Result<(), ConnectError>>,
}

impl QueueHandle {
    /// Connects a socket; the queue's Connect command is up to the caller.
    async fn open(
        address: &Address,
        options: &ConnectOptions,
        entries: u16,
        in_capsule: Option<usize>,
    ) -> Result<QueueHandle, ConnectError> {
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await;
        let stream = stream
            .and_then(|stream| stream.set_nodelay(true).map(|()| stream))
            .map_err(|source| ConnectError::Io {
                address: address.to_string(),
                source,
            })?;
        let mut connection = Connection::new(options.digests, entries);
        if let Some(bytes) = in_capsule {
            connection.set_in_capsule(bytes);
        }
        let (commands, receiver) = mpsc::unbounded_channel();
        let shown = address.to_string();
        let poll = options.poll;
        let task = tokio::spawn(async move {
            let result = run(&stream, connection, receiver, poll).await;
            result.map_err(|error| match error {
                Ended::Io(source) => ConnectError::Io {
                    address: shown,
                    source,
                },
                Ended::Connection(error) => error.into(),
            })
        });
        Ok(QueueHandle { commands, task })
    }

    fn submit(
        &self,
        sqe: Sqe,
        data: Vec<u8>,
        expected: usize,
    ) -> impl Future<Output = Response> + Send + use<> {
        let (answer, receiver) = oneshot::channel();
        let sent = self.commands.send(Submission {
            sqe,
            data,
            expected,
            answer,
        });
        let cid = sqe.cid.get();
        async move {
            let lost = || Response::failure(cid, Status::HOST_PATHING_ERROR, false);
            let mut response = match sent {
                Ok(()) => receiver.await.unwrap_or_else(|_| lost()),
                Err(_) => lost(),
            };
            response.cqe.cid = cid.into();
            response
        }
    }

    /// Why the queue's task ended, if it did.
    async fn reason(&mut self) -> Option<ConnectError> {
        match tokio::time::timeout(Duration::from_millis(100), &mut self.task).await {
            Ok(Ok(Err(error))) => Some(error),
            _ => None,
        }
    }
}

enum Ended {
    Io(io::Error),
    Connection(ConnectionError),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Ended {
        Ended::Io(error)
    }
}

/// Moves bytes and commands until the handle is dropped or the connection ends.
async fn run(
    stream: &TcpStream,
    mut connection: Connection,
    mut commands: mpsc::UnboundedReceiver<Submission>,
    poll: Duration,
) -> Result<(), Ended> {
    let mut polling = Polling::new(poll);
    let mut answers: HashMap<u16, oneshot::Sender<Response>> = HashMap::new();
    let mut closed = false;
    loop {
        while connection.has_room() {
            match commands.try_recv() {
                Ok(submission) => {
                    let Submission {
                        sqe,
                        data,
                        expected,
                        answer,
                    } = submission;
                    let cid = connection.submit(sqe, data, expected);
                    answers.insert(cid, answer);
                }
                Err(mpsc::error::TryRecvError::Empty) => break,
                Err(mpsc::error::TryRecvError::Disconnected) => {
                    closed = true;
                    break;
                }
            }
        }
        while connection.has_output() {
            match stream.try_write_vectored(&connection.output()) {
                Ok(count) => connection.sent(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(error) = connection.error() {
            return Err(Ended::Connection(error.clone()));
        }
        if closed && answers.is_empty() && !connection.has_output() {
            return Ok(());
        }
        if connection.in_flight() > 0 && !connection.has_output() && commands.is_empty() {
            let came = polling.look(stream, |stream| {
                let count = stream.try_read(connection.space())?;
                connection.received(count);
                Ok(())
            });
            if came.await? {
                deliver(&mut connection, &mut answers);
                continue;
            }
        }
        let interest = match connection.has_output() {
            true => Interest::READABLE | Interest::WRITABLE,
            false => Interest::READABLE,
        };
        let has_room = connection.has_room() && !closed;
        tokio::select! {
            biased;
            ready = stream.ready(interest) => {
                if ready?.is_readable() {
                    match stream.try_read(connection.space()) {
                        Ok(count) => connection.received(count),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(error.into()),
                    }
                    deliver(&mut connection, &mut answers);
                }
            }
            submission = commands.recv(), if has_room => match submission {
                Some(Submission { sqe, data, expected, answer }) => {
                    let cid = connection.submit(sqe, data, expected);
                    answers.insert(cid, answer);
                }
                None => closed = true,
            },
        }
    }
}

/// Hands completions to who waits for them.
fn deliver(connection: &mut Connection, answers: &mut HashMap<u16, oneshot::Sender<Response>>) {
    while let Some((cid, response)) = connection.completed() {
        if let Some(answer) = answers.remove(&cid) {
            // Whoever asked may have gone away.
            let _ = answer.send(response);
        }
    }
}

/// A controller behind NVMe/TCP.
///
/// Commands go to the I/O queues in turn. When a connection breaks, its commands and all later ones fail with Host Pathing Error. Dropping
/// the host ends the connections; the controller aborts what is under way.
pub struct TcpController {
    info: ControllerInfo,
    /// Namespaces whose metadata travels behind the data.
    interleaved: Vec<u32>,
    admin: QueueHandle,
    queues: Vec<QueueHandle>,
    next: AtomicUsize,
    keep_alive: JoinHandle<()>,
    timeout: Duration,
}

impl Drop for TcpController {
    fn drop(&mut self) {
        self.disconnect();
    }
}

/// An admin queue before its controller is in use.
struct Admin {
    queue: QueueHandle,
    timeout: Duration,
}

impl Admin {
    /// Connects to a controller of the address' subsystem.
    async fn connect(
        address: &Address,
        options: &ConnectOptions,
    ) -> Result<(Admin, u16), ConnectError> {
        let open = QueueHandle::open(address, options, ADMIN_ENTRIES, None);
        let queue = within("the connection", options.timeout, open).await??;
        let mut admin = Admin {
            queue,
            timeout: options.timeout,
        };
        let connect = Connect {
            qid: 0,
            sqsize: ADMIN_ENTRIES - 1,
            cattr: 0,
            kato: options.keep_alive.as_millis().min(u32::MAX.into()) as u32,
        };
        let data = ConnectData::new(options.host_id, 0xFFFF, &address.nqn, &options.host_nqn);
        let sent = admin.send("Connect", connect.to_sqe(0), data.as_bytes().to_vec(), 0);
        let response = sent.await.map_err(|error| match error {
            ConnectError::Refused {
                status: Status::CONNECT_INVALID_PARAMETERS,
                result: UNKNOWN_SUBSYSTEM,
                ..
            } => ConnectError::NoSuchSubsystem {
                nqn: address.nqn.clone(),
            },
            ConnectError::Refused {
                status: Status::CONNECT_INVALID_HOST,
                ..
            } => ConnectError::HostRefused {
                nqn: options.host_nqn.clone(),
            },
            error => error,
        })?;
        admin.authenticate(&response, address, options, 1).await?;
        let cntlid = response.cqe.dw0.get() as u16;
        Ok((admin, cntlid))
    }

    /// Authenticates the queue, if its controller has asked for that in the response to Connect, or is to authenticate itself.
    async fn authenticate(
        &mut self,
        connected: &Response,
        address: &Address,
        options: &ConnectOptions,
        transaction: u16,
    ) -> Result<(), ConnectError> {
        let asked = connected.cqe.dw0.get() & AUTHENTICATION_REQUIRED != 0;
        if !asked && options.controller_secret.is_none() {
            return Ok(());
        }
        let secret = options.secret.clone().ok_or(ConnectError::NoSecret)?;
        let mut auth = HostAuth::new(
            AuthPolicy::default(),
            &address.nqn,
            &options.host_nqn,
            secret,
            options.controller_secret.clone(),
            transaction,
        );
        let mut message = auth.start();
        loop {
            let len = message.len() as u32;
            let sqe = AuthCommand::Send { len }.sqe(0);
            self.send("Authentication Send", sqe, message, 0).await?;
            let sqe = AuthCommand::Receive { len: RECEIVE_LEN }.sqe(0);
            let what = "Authentication Receive";
            let received = self
                .send(what, sqe, Vec::new(), RECEIVE_LEN as usize)
                .await?;
            match auth.next(&received.data) {
                Ok(HostStep::Send(next)) => message = next,
                Ok(HostStep::Done(None)) => return Ok(()),
                Ok(HostStep::Done(Some(last))) => {
                    let len = last.len() as u32;
                    let sqe = AuthCommand::Send { len }.sqe(0);
                    self.send("Authentication Send", sqe, last, 0).await?;
                    return Ok(());
                }
                Err(error) => {
                    if let Some(last) = auth.failure() {
                        let len = last.len() as u32;
                        let sqe = AuthCommand::Send { len }.sqe(0);
                        // The controller may close the connection before it answers; the error is what counts.
                        let _ = self.send("Authentication Send", sqe, last, 0).await;
                    }
                    return Err(error.into());
                }
            }
        }
    }

    async fn send(
        &mut self,
        what: &'static str,
        sqe: Sqe,
        data: Vec<u8>,
        expected: usize,
    ) -> Result<Response, ConnectError> {
        let response = within(what, self.timeout, self.queue.submit(sqe, data, expected)).await?;
        let status = response.cqe.status();
        if status.is_success() {
            return Ok(response);
        }
        if status == Status::HOST_PATHING_ERROR
            && let Some(error) = self.queue.reason().await
        {
            return Err(error);
        }
        Err(ConnectError::Refused {
            what,
            status,
            result: response.cqe.dw0.get(),
        })
    }

    async fn property(&mut self, offset: u32, wide: bool) -> Result<u64, ConnectError> {
        let sqe = fabrics::property_get(0, offset, wide);
        let cqe = self.send("Property Get", sqe, Vec::new(), 0).await?.cqe;
        Ok(u64::from(cqe.dw0.get()) | u64::from(cqe.dw1.get()) << 32)
    }

    /// Enables the controller and waits until it is ready; gives its capabilities.
    async fn enable(&mut self) -> Result<u64, ConnectError> {
        let capabilities = self.property(property::CAP, true).await?;
        let all_sets = if capabilities >> 43 & 1 != 0 {
            cc::CSS_ALL
        } else {
            0
        };
        let value = cc::EN | cc::ENTRY_SIZES | all_sets;
        let sqe = fabrics::property_set(0, property::CC, value);
        self.send("Property Set", sqe, Vec::new(), 0).await?;
        let started = tokio::time::Instant::now();
        loop {
            let status = self.property(property::CSTS, false).await? as u32;
            if status & csts::CFS != 0 {
                return Err(ConnectError::Fatal);
            }
            if status & csts::RDY != 0 {
                return Ok(capabilities);
            }
            if started.elapsed() > self.timeout {
                return Err(ConnectError::Timeout {
                    what: "becoming ready",
                    limit: self.timeout,
                });
            }
            tokio::time::sleep(READY_POLL).await;
        }
    }

    async fn identify(&mut self, cns: u8, nsid: u32, csi: u8) -> Result<Vec<u8>, ConnectError> {
        let sqe = Sqe {
            opcode: opcode::IDENTIFY,
            nsid: nsid.into(),
            cdw10: u32::from(cns).into(),
            cdw11: (u32::from(csi) << 24).into(),
            ..Sqe::default()
        };
        let data = self.send("Identify", sqe, Vec::new(), 4096).await?.data;
        match data.len() {
            4096 => Ok(data),
            found => Err(ConnectError::Length {
                what: "Identify",
                found,
                expected: 4096,
            }),
        }
    }

    /// Identifiers of the active namespaces, in rising order.
    async fn namespaces(&mut self) -> Result<Vec<u32>, ConnectError> {
        let mut all: Vec<u32> = Vec::new();
        loop {
            let after = all.last().copied().unwrap_or(0);
            let list = self.identify(cns::NAMESPACES, after, 0).await?;
            let before = all.len();
            let ids = list.chunks_exact(4).map(|id| match id {
                [a, b, c, d] => u32::from_le_bytes([*a, *b, *c, *d]),
                _ => 0,
            });
            all.extend(ids.take_while(|id| *id > after));
            if all.len() - before < 1024 || all.len() >= MAX_NAMESPACES {
                return Ok(all);
            }
        }
    }

    async fn log_page(&mut self, id: u8, bytes: usize) -> Result<Vec<u8>, ConnectError> {
        let mut page = Vec::with_capacity(bytes);
        while page.len() < bytes {
            let now = (bytes - page.len()).min(LOG_CHUNK);
            let sqe = get_log_page(id, page.len() as u64, now);
            let data = self.send("Get Log Page", sqe, Vec::new(), now).await?.data;
            if data.len() != now {
                return Err(ConnectError::Length {
                    what: "Get Log Page",
                    found: data.len(),
                    expected: now,
                });
            }
            page.extend_from_slice(&data);
        }
        Ok(page)
    }
}

/// Get Log Page of `bytes` bytes, a multiple of 4, from `offset` on.
fn get_log_page(id: u8, offset: u64, bytes: usize) -> Sqe {
    let dwords = (bytes / 4).saturating_sub(1) as u32;
    Sqe {
        opcode: opcode::GET_LOG_PAGE,
        nsid: crate::BROADCAST_NSID.into(),
        cdw10: (u32::from(id) | dwords << 16).into(),
        cdw11: (dwords >> 16).into(),
        cdw12: (offset as u32).into(),
        cdw13: ((offset >> 32) as u32).into(),
        ..Sqe::default()
    }
}

async fn within<T>(
    what: &'static str,
    limit: Duration,
    future: impl Future<Output = T>,
) -> Result<T, ConnectError> {
    let result = tokio::time::timeout(limit, future).await;
    result.map_err(|_| ConnectError::Timeout { what, limit })
}

/// The NVM subsystems that a discovery controller tells of.
///
/// # Errors
/// [`ConnectError`].
pub async fn discover(
    address: &Address,
    options: &ConnectOptions,
) -> Result<Vec<DiscoveryEntry>, ConnectError> {
    let address = Address {
        nqn: DISCOVERY_NQN.to_owned(),
        ..address.clone()
    };
    let (mut admin, _) = Admin::connect(&address, options).await?;
    admin.enable().await?;
    for _ in 0..MAX_DISCOVERY_READS {
        let header = admin.log_page(log_page::DISCOVERY, DISCOVERY_ENTRY).await?;
        let unknown = ConnectError::Length {
            what: "the discovery log's entries",
            found: 0,
            expected: DISCOVERY_ENTRY,
        };
        let Some((generation, records)) = fabrics::discovery_header(&header) else {
            return Err(unknown);
        };
        let records = records.min(MAX_NAMESPACES as u64) as usize;
        let page = admin
            .log_page(log_page::DISCOVERY, (records + 1) * DISCOVERY_ENTRY)
            .await?;
        // Entries are of one generation only if the header has not changed meanwhile.
        if fabrics::discovery_header(&page).is_none_or(|(now, _)| now != generation) {
            continue;
        }
        let entries = page.get(DISCOVERY_ENTRY..).unwrap_or_default();
        return Ok(entries
            .chunks_exact(DISCOVERY_ENTRY)
            .filter_map(|entry| DiscoveryEntry::read_from_bytes(entry).ok())
            .collect());
    }
    Err(ConnectError::Unsteady)
}

impl TcpController {
    /// Connects to a controller and its I/O queues.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(
        address: &Address,
        options: &ConnectOptions,
    ) -> Result<TcpController, ConnectError> {
        let (mut admin, cntlid) = Admin::connect(address, options).await?;
        let capabilities = admin.enable().await?;
        let entries = u16::try_from((capabilities & 0xFFFF) + 1).unwrap_or(u16::MAX);
        let entries = options.queue_entries.clamp(2, entries.max(2));
        let controller = IdentifyController::parse(&admin.identify(cns::CONTROLLER, 0, 0).await?)?;
        let count = u32::from(options.io_queues.max(1) - 1);
        let set_queues = Sqe {
            opcode: opcode::SET_FEATURES,
            cdw10: u32::from(feature::QUEUES).into(),
            cdw11: (count | count << 16).into(),
            ..Sqe::default()
        };
        let granted = admin
            .send("Set Features", set_queues, Vec::new(), 0)
            .await?;
        let granted = granted.cqe.dw0.get() as u16;
        let mut info = ControllerInfo {
            mdts_bytes: controller.mdts_bytes(),
            volatile_write_cache: controller.has_volatile_write_cache(),
            serial: controller.serial(),
            model: controller.model(),
            firmware: controller.firmware(),
            namespaces: Vec::new(),
            other_namespaces: Vec::new(),
            vendor_statuses: options.vendor_statuses,
        };
        let mut interleaved = Vec::new();
        for nsid in admin.namespaces().await? {
            let descriptors = admin.identify(cns::DESCRIPTORS, nsid, 0).await?;
            let (csi, nguid) = descriptor(&descriptors);
            if csi != csi::NVM {
                info.other_namespaces
                    .push(OtherNamespace { nsid, csi, nguid });
                continue;
            }
            let identify = admin.identify(cns::NAMESPACE, nsid, 0).await?;
            let identify = IdentifyNamespace::parse(&identify)?;
            if identify.is_interleaved() {
                interleaved.push(nsid);
            }
            info.namespaces.push(identify.namespace(nsid)?);
        }
        let in_capsule = (controller.ioccsz.get() as usize * 16).saturating_sub(size_of::<Sqe>());
        let mut queues = Vec::new();
        for qid in 1..=granted.saturating_add(1).min(options.io_queues.max(1)) {
            let open = QueueHandle::open(address, options, entries, Some(in_capsule));
            let queue = within("the connection", options.timeout, open).await??;
            let connect = Connect {
                qid,
                sqsize: entries - 1,
                cattr: CATTR_NO_FLOW_CONTROL,
                kato: 0,
            };
            let data = ConnectData::new(options.host_id, cntlid, &address.nqn, &options.host_nqn);
            let mut queue = Admin {
                queue,
                timeout: options.timeout,
            };
            let response = queue
                .send("Connect", connect.to_sqe(0), data.as_bytes().to_vec(), 0)
                .await?;
            queue
                .authenticate(&response, address, options, qid.wrapping_add(1))
                .await?;
            queues.push(queue.queue);
        }
        let keep_alive = {
            let commands = admin.queue.commands.clone();
            let limit = options.keep_alive;
            let tasks = queues.iter().chain([&admin.queue]);
            let tasks: Vec<_> = tasks.map(|queue| queue.task.abort_handle()).collect();
            tokio::spawn(async move {
                while !limit.is_zero() {
                    tokio::time::sleep(limit / 2).await;
                    let (answer, receiver) = oneshot::channel();
                    let submission = Submission {
                        sqe: Sqe {
                            opcode: opcode::KEEP_ALIVE,
                            ..Sqe::default()
                        },
                        data: Vec::new(),
                        expected: 0,
                        answer,
                    };
                    let answered = match commands.send(submission) {
                        Ok(()) => tokio::time::timeout(limit, receiver).await,
                        Err(_) => break,
                    };
                    match answered {
                        Ok(Ok(_)) => {}
                        Ok(Err(_)) => break,
                        Err(_) => {
                            // The controller has vanished: nobody is to wait for it for ever.
                            tasks.iter().for_each(tokio::task::AbortHandle::abort);
                            break;
                        }
                    }
                }
            })
        };
        Ok(TcpController {
            info,
            interleaved,
            admin: admin.queue,
            queues,
            next: AtomicUsize::new(0),
            keep_alive,
            timeout: options.timeout,
        })
    }

    /// A log page of `bytes` bytes, a multiple of 4.
    ///
    /// # Errors
    /// [`ConnectError::Refused`], [`ConnectError::Timeout`].
    pub async fn log_page(&self, id: u8, bytes: usize) -> Result<Vec<u8>, ConnectError> {
        let what = "Get Log Page";
        let submitted = self
            .admin
            .submit(get_log_page(id, 0, bytes), Vec::new(), bytes);
        let response = within(what, self.timeout, submitted).await?;
        match response.cqe.status() {
            Status::SUCCESS => Ok(response.data),
            status => Err(ConnectError::Refused {
                what,
                status,
                result: response.cqe.dw0.get(),
            }),
        }
    }

    /// Why the latest commands failed: count, status and reason, newest first.
    ///
    /// # Errors
    /// Those of [`TcpController::log_page`]; a controller of another make has no such page.
    pub async fn reasons(&self) -> Result<Vec<(u64, Status, String)>, ConnectError> {
        let page = self.log_page(log_page::REASONS, 16 << 10).await?;
        Ok(parse_reasons(&page))
    }

    /// Ends the connections. Commands under way, which the controller then aborts, and all later ones fail with Host Pathing Error.
    pub fn disconnect(&self) {
        self.keep_alive.abort();
        self.admin.task.abort();
        for queue in &self.queues {
            queue.task.abort();
        }
    }

    /// Whether every connection still stands.
    pub fn is_connected(&self) -> bool {
        !self.admin.task.is_finished() && self.queues.iter().all(|queue| !queue.task.is_finished())
    }

    fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        let interleaved = self.interleaved.contains(&nsid);
        self.info.namespace(nsid).filter(|_| interleaved)
    }
}

impl Controller for TcpController {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        let Request {
            sqe,
            mut data,
            metadata,
        } = request;
        let nsid = sqe.nsid.get();
        let interleaved = self.namespace(nsid);
        if let Some(namespace) = interleaved
            && !metadata.is_empty()
        {
            data = interleave(namespace, &data, &metadata);
        }
        let expected = match (Command::parse(&sqe), self.info.namespace(nsid)) {
            (Ok(Command::Read(io)), Some(namespace)) => {
                namespace.data_len(io.blocks) + namespace.metadata_len(io.blocks)
            }
            (Ok(_), Some(_)) => 0,
            // Of another command set, which may have the same opcodes: its descriptor tells.
            _ => Sgl::parse(&sqe.dptr).map_or(0, |sgl| sgl.length().into()),
        };
        let expected = if data.is_empty() {
            expected as usize
        } else {
            0
        };
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.queues.len().max(1);
        let Some(queue) = self.queues.get(next) else {
            let response = Response::failure(sqe.cid.get(), Status::HOST_PATHING_ERROR, false);
            return async move { response }.boxed();
        };
        let submitted = queue.submit(sqe, data, expected);
        async move {
            let mut response = submitted.await;
            if let Some(namespace) = interleaved
                && !response.data.is_empty()
            {
                (response.data, response.metadata) = separate(namespace, &response.data);
            }
            response
        }
        .boxed()
    }

    fn admin(&self, request: Request) -> BoxFuture<'_, Response> {
        let expected = match request.data.is_empty() {
            true => Sgl::parse(&request.sqe.dptr).map_or(0, |sgl| sgl.length() as usize),
            false => 0,
        };
        self.admin
            .submit(request.sqe, request.data, expected)
            .boxed()
    }

    fn controller(&self) -> &ControllerInfo {
        &self.info
    }
}

/// Command set and NGUID in a list of namespace identification descriptors.
fn descriptor(mut list: &[u8]) -> (u8, [u8; 16]) {
    let (mut csi, mut nguid) = (csi::NVM, [0; 16]);
    while let [kind, len, _, _, rest @ ..] = list {
        let Some((value, next)) = rest.split_at_checked(usize::from(*len)) else {
            break;
        };
        if *kind == 0 {
            break;
        }
        match (kind, value) {
            (2, value) => nguid = value.try_into().unwrap_or(nguid),
            (4, [value]) => csi = *value,
            _ => {}
        }
        list = next;
    }
    (csi, nguid)
}
