//! One connection: the initialization, then one queue.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use zerocopy::FromBytes;

use super::admin::{Answer, keep_alive, max_transfer};
use super::{Event, FabricsController, Flight, Flights, Queue, Target, Wake};
use crate::auth::{AuthCommand, AuthState, ControllerAuth, MAX_SEND_LEN};
use crate::fabrics::{
    AUTHENTICATION_REQUIRED, CATTR_NO_FLOW_CONTROL, Connect, ConnectData, DISCOVERY_NQN,
    FABRICS_OPCODE, Sgl, csts, fctype, invalid_parameter,
};
use crate::tcp::initiator::ADMIN_IN_CAPSULE;
use crate::tcp::pdu::{Agreed, Header, Initialize, ProtocolError, termination};
use crate::tcp::stream::{Item, Receiver, Sender};
use crate::{
    Abort, Command, ConnectionError, Controller, DsmRange, Namespace, Request, Response, Sqe,
    Status,
};

/// Most bytes of data in an H2CData PDU.
const MAX_HOST_DATA: u32 = 128 << 10;
/// Bytes waiting to be sent beyond which no further commands are taken.
const MAX_QUEUED: usize = 4 << 20;
/// Messages of an authentication that a host may send before it is trusted: three, or two attempts.
const MAX_AUTH_MESSAGES: u8 = 6;
/// Bytes of data that a connection without storage, or without trust, may hold at a time.
const UNTRUSTED_IN_FLIGHT: usize = 256 << 10;
/// Bytes that a peer must take for its connection not to count as stalled, unless it takes all there are.
const PROGRESS: usize = 64 << 10;
/// Entries of an admin queue.
const ADMIN_ENTRIES: u16 = 32;
/// Offsets in a Connect command and its data, for refusals.
mod offset {
    pub(super) const QID: u16 = 42;
    pub(super) const SQSIZE: u16 = 44;
    pub(super) const HOSTID: u16 = 0;
    pub(super) const CNTLID: u16 = 16;
    pub(super) const SUBNQN: u16 = 256;
    pub(super) const HOSTNQN: u16 = 512;
}

/// Why a Connect command is refused: status, and for an invalid parameter its offset and whether it is in the data.
type Refusal = (Status, Option<(u16, bool)>);

/// What the shell is to do; [`Connection::complete`] takes the result.
pub struct Action {
    /// For [`Connection::complete`].
    pub ticket: Ticket,
    /// The work.
    pub job: Job,
}

/// Work for the shell.
pub enum Job {
    /// [`Controller::submit_abortable`].
    Io {
        /// Where.
        host: Arc<dyn Controller>,
        /// The command.
        request: Request,
        /// Asks it to stop.
        abort: Abort,
        /// To be kept until the work has ended, even if the connection ends before.
        flight: Flight,
    },
    /// Flush of everything, as soon as `idle` says so.
    Flush {
        /// Where.
        host: Arc<dyn Controller>,
        /// Tells when the commands are done that the flush must cover.
        idle: Idle,
    },
    /// [`Controller::admin`].
    Admin {
        /// Where.
        host: Arc<dyn Controller>,
        /// The command.
        request: Request,
    },
    /// [`Authentication::run`], which computes for milliseconds.
    Authenticate(Authentication),
}

/// Tells whether commands of a host are under way.
pub struct Idle(Arc<Flights>);

impl Idle {
    /// Whether there are none.
    pub fn is_idle(&self) -> bool {
        self.0.none()
    }
}

/// A step of an authentication.
pub struct Authentication {
    auth: Arc<Mutex<ControllerAuth>>,
    command: AuthCommand,
    data: Vec<u8>,
}

impl Authentication {
    /// Does the step. Blocks.
    pub fn run(self) -> Response {
        let mut auth = self.auth.lock().unwrap_or_else(PoisonError::into_inner);
        let result = match self.command {
            AuthCommand::Send { .. } => auth.send(&self.data).map(|()| Vec::new()),
            AuthCommand::Receive { len } => auth.receive(len as usize).map(|mut message| {
                // The host has asked for this many bytes, whatever the message has.
                message.resize((len as usize).max(message.len()), 0);
                message
            }),
        };
        match result {
            Ok(data) => {
                let mut response = Response::success(0);
                response.data = data;
                response
            }
            Err(status) => Response::failure(0, status, true),
        }
    }
}

/// Which work has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ticket {
    /// That of a command.
    Command(u16),
    /// A step of an authentication, with its command.
    Authentication(u16),
    /// The flush that a shutdown asks for.
    Shutdown,
}

/// Where a connection stands.
enum Phase {
    /// Before the ICReq PDU.
    New,
    /// Before a Connect command has succeeded.
    Initialized,
    /// Commands are taken.
    Connected(Box<Connected>),
}

struct Connected {
    controller: Arc<FabricsController>,
    queue: Arc<Queue>,
    qid: u16,
    entries: u16,
    head: u16,
    /// The host does without flow control of the submission queue; then data may say that their I/O command has succeeded.
    no_flow_control: bool,
    auth: Option<Arc<Mutex<ControllerAuth>>>,
    /// The host has authenticated this queue, or need not.
    trusted: bool,
    /// A step of the authentication is under way.
    authenticating: bool,
    /// Messages that the host may send before it is trusted: each may cost an exponentiation.
    messages_left: u8,
}

impl Connected {
    /// Makes an I/O queue, which is now trusted, one of its controller's. False if its place is taken, or the controller is not ready any
    /// more.
    fn join(&self) -> bool {
        if self.qid == 0 || self.trusted {
            return true;
        }
        let mut state = self.controller.state();
        let ready = state.status & csts::RDY != 0 && !state.changing;
        if !ready || self.controller.is_dead() || state.queues.contains_key(&self.qid) {
            return false;
        }
        state.queues.insert(self.qid, Arc::clone(&self.queue));
        true
    }

    /// The step that an authentication command asks for.
    fn authentication(&mut self, sqe: &Sqe, data: Vec<u8>) -> Result<Authentication, Status> {
        let auth = self.auth.as_ref().ok_or(Status::INVALID_OPCODE)?;
        let command = AuthCommand::parse(sqe)?;
        let length = Sgl::parse(&sqe.dptr)?.length();
        let expected = match command {
            AuthCommand::Send { len } | AuthCommand::Receive { len } => len,
        };
        if length != expected || length > MAX_SEND_LEN {
            return Err(Status::INVALID_FIELD);
        }
        if self.authenticating {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        if !self.trusted && matches!(command, AuthCommand::Send { .. }) {
            let left = self.messages_left.checked_sub(1);
            self.messages_left = left.ok_or(Status::OPERATION_DENIED)?;
        }
        Ok(Authentication {
            auth: Arc::clone(auth),
            command,
            data,
        })
    }
}

/// A command whose completion has not been sent.
struct Outstanding {
    sqe: Sqe,
    /// Bytes that its host has room for or gives.
    length: u32,
    data: Vec<u8>,
    progress: Progress,
    /// Whether the data matched their digests.
    intact: bool,
    /// Bytes that count against the limit.
    charged: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Waits for room for its data.
    Waiting,
    /// Waits for data.
    Receiving,
    /// In the hands of the storage or of the controller.
    Executing,
}

/// The data that are coming.
#[derive(Clone, Copy)]
struct Incoming {
    cid: u16,
    /// They end with this PDU.
    last: bool,
    /// The command has failed already, with this status, so its data go nowhere. It is answered when they are all there: until then its
    /// identifier is in use.
    refused: Option<Status>,
}

/// One connection of a host: a state machine that bytes go into and come out of.
///
/// The shell reads into [`Connection::space`] while [`Connection::wants_input`], calls [`Connection::received`], executes every
/// [`Connection::action`], gives the results to [`Connection::complete`], writes [`Connection::output`], and calls [`Connection::tick`] at
/// [`Connection::deadline`] and whenever `wake` was called; until [`Connection::is_finished`].
pub struct Connection {
    target: Arc<Target>,
    id: u64,
    local: SocketAddr,
    wake: Wake,
    receiver: Receiver,
    sender: Sender,
    agreed: Agreed,
    phase: Phase,
    commands: HashMap<u16, Outstanding>,
    waiting: VecDeque<u16>,
    charged: usize,
    incoming: Option<Incoming>,
    actions: VecDeque<Action>,
    /// Until when the handshake must be over.
    handshake: Option<Instant>,
    /// When output was last taken to some amount, if some waits.
    progress: Instant,
    /// Bytes taken since.
    taken: usize,
    executing: usize,
    ending: Ending,
    error: Option<ConnectionError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    No,
    /// Takes no more commands; those under way end.
    Draining,
    /// What waits to be sent is sent, nothing else.
    Sending,
    /// At once.
    Now,
}

impl Connection {
    /// A connection that has just been accepted at `local`.
    pub fn new(target: Arc<Target>, local: SocketAddr, wake: Wake, now: Instant) -> Connection {
        Connection {
            id: target.register(Arc::clone(&wake)),
            handshake: Some(now + target.limits.handshake),
            target,
            local: SocketAddr::new(local.ip().to_canonical(), local.port()),
            wake,
            receiver: Receiver::new(),
            sender: Sender::default(),
            agreed: Agreed::default(),
            phase: Phase::New,
            commands: HashMap::new(),
            waiting: VecDeque::new(),
            charged: 0,
            incoming: None,
            actions: VecDeque::new(),
            progress: now,
            taken: 0,
            executing: 0,
            ending: Ending::No,
            error: None,
        }
    }

    /// Whether more input is of use now: not while too much waits to be sent.
    pub fn wants_input(&self) -> bool {
        self.ending == Ending::No && self.sender.queued() < MAX_QUEUED
    }

    /// Where input goes.
    pub fn space(&mut self) -> &mut [u8] {
        self.receiver.space()
    }

    /// `count` bytes have come; 0 for the end of the stream.
    pub fn received(&mut self, count: usize, now: Instant) {
        if count == 0 {
            if self.receiver.is_within_pdu() {
                self.error = Some(ConnectionError::CutOff);
            }
            self.ending = Ending::Now;
            return;
        }
        self.receiver.filled(count);
        self.begin_progress(now);
        self.process(now);
    }

    /// What is about to be queued for sending has not waited yet.
    fn begin_progress(&mut self, now: Instant) {
        if !self.has_output() {
            self.progress = now;
        }
    }

    fn process(&mut self, now: Instant) {
        while self.ending == Ending::No {
            // Data are copied out of the buffer at once, so the borrow of the receiver ends within the arm.
            let result = match self.receiver.next(&self.agreed) {
                Ok(None) => break,
                Ok(Some(Item::Header { header, data })) => self.header(header, data, now),
                Ok(Some(Item::Data(data))) => {
                    if let Some(incoming) = self.incoming
                        && incoming.refused.is_none()
                        && let Some(command) = self.commands.get_mut(&incoming.cid)
                    {
                        command.data.extend_from_slice(data);
                    }
                    Ok(())
                }
                Ok(Some(Item::DataEnd { intact })) => {
                    self.data_end(intact, now);
                    Ok(())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                self.fail(error);
            }
        }
        // What was answered at once has made room for others.
        self.admit(now);
    }

    /// Ends the connection for a protocol error.
    fn fail(&mut self, error: ProtocolError) {
        if !matches!(error, ProtocolError::Terminated { .. }) {
            let request = termination(error, false, self.receiver.latest_header());
            self.sender.push_bytes(&request);
        }
        self.error = Some(error.into());
        self.ending = Ending::Sending;
    }

    fn header(&mut self, header: Header, data: usize, now: Instant) -> Result<(), ProtocolError> {
        match header {
            Header::InitializeRequest(request) => self.initialize(request),
            Header::Terminate {
                from_host: true,
                fes,
                fei,
            } => Err(ProtocolError::Terminated { fes, fei }),
            Header::Command(sqe) if !matches!(self.phase, Phase::New) => {
                self.command(sqe, data, now)
            }
            Header::HostData {
                cid,
                tag,
                offset,
                length,
                last,
            } if !matches!(self.phase, Phase::New) => {
                self.host_data((cid, tag), (offset, length), data, last)
            }
            _ => Err(ProtocolError::Sequence {
                kind: header.kind(),
            }),
        }
    }

    fn initialize(&mut self, request: Initialize) -> Result<(), ProtocolError> {
        if !matches!(self.phase, Phase::New) {
            return Err(ProtocolError::Sequence { kind: 0 });
        }
        if request.version != 0 {
            return Err(ProtocolError::Unsupported { offset: 8 });
        }
        if request.alignment > 31 {
            return Err(ProtocolError::Header { offset: 10 });
        }
        let response = Header::InitializeResponse(Initialize {
            version: 0,
            alignment: 0,
            header_digest: request.header_digest,
            data_digest: request.data_digest,
            limit: MAX_HOST_DATA,
        });
        self.sender.push(&response, Vec::new(), &self.agreed);
        self.agreed = Agreed {
            header_digest: request.header_digest,
            data_digest: request.data_digest,
            alignment: (usize::from(request.alignment) + 1) * 4,
        };
        self.phase = Phase::Initialized;
        Ok(())
    }

    /// Entries of the queue, as far as known.
    fn entries(&self) -> u16 {
        match &self.phase {
            Phase::Connected(connected) => connected.entries,
            _ => 1,
        }
    }

    /// Bytes of data in a command capsule; an admin queue takes as many as every controller does.
    fn most_in_capsule(&self) -> usize {
        let limit = self.target.limits.in_capsule_bytes as usize;
        match &self.phase {
            Phase::Connected(connected) if connected.qid > 0 => limit,
            _ => limit.max(ADMIN_IN_CAPSULE),
        }
    }

    fn command(&mut self, sqe: Sqe, capsule: usize, now: Instant) -> Result<(), ProtocolError> {
        let cid = sqe.cid.get();
        if let Phase::Connected(connected) = &self.phase
            && connected.trusted
        {
            connected.controller.seen(now);
        }
        if self.commands.len() >= usize::from(self.entries()) {
            return Err(ProtocolError::DataLimit);
        }
        if capsule > self.most_in_capsule() {
            return Err(ProtocolError::DataLimit);
        }
        if self.commands.contains_key(&cid) {
            // To answer would complete the other command of this identifier.
            return Err(ProtocolError::Header { offset: 10 });
        }
        let mut command = Outstanding {
            sqe,
            length: 0,
            data: Vec::new(),
            progress: Progress::Executing,
            intact: true,
            charged: 0,
        };
        let checked = self.check_transfer(&sqe, capsule);
        command.length = checked.unwrap_or(0);
        if capsule > 0 {
            if checked.is_ok() {
                command.data.reserve_exact(capsule);
                command.charged = capsule;
                self.charged += capsule;
            }
            command.progress = Progress::Receiving;
            self.incoming = Some(Incoming {
                cid,
                last: true,
                refused: checked.err(),
            });
        } else if checked.is_ok_and(|length| length > 0) {
            command.progress = Progress::Waiting;
        }
        let progress = command.progress;
        self.commands.insert(cid, command);
        match (progress, checked) {
            (Progress::Receiving, _) => {}
            (_, Err(status)) => self.respond(cid, Response::failure(cid, status, true)),
            (Progress::Waiting, Ok(_)) => {
                self.waiting.push_back(cid);
                self.admit(now);
            }
            (Progress::Executing, Ok(_)) => self.execute(cid, now),
        }
        Ok(())
    }

    /// Bytes of a command's data, from its descriptor; fails where descriptor and capsule do not fit each other or the command.
    fn check_transfer(&self, sqe: &Sqe, capsule: usize) -> Result<u32, Status> {
        let sgl = Sgl::parse(&sqe.dptr)?;
        let to_controller = to_controller(sqe);
        match sgl {
            Sgl::InCapsule { offset, length } => {
                if !to_controller {
                    return Err(Status::SGL_TYPE_INVALID);
                }
                if offset != 0 || length as usize != capsule {
                    return Err(Status::SGL_OFFSET_INVALID);
                }
            }
            Sgl::Transport { .. } if capsule > 0 => return Err(Status::DATA_SGL_LENGTH_INVALID),
            Sgl::Transport { .. } => {}
        }
        if transfer_bits(sqe) == 0 {
            // The descriptor of a command without data says nothing.
            return Ok(0);
        }
        let length = sgl.length();
        let Phase::Connected(connected) = &self.phase else {
            return match length {
                0..=4096 => Ok(length),
                _ => Err(Status::DATA_SGL_LENGTH_INVALID),
            };
        };
        let info = connected.controller.info_of_storage();
        let mut most = max_transfer(info);
        if !connected.trusted {
            // Nothing but authentication has data now.
            most = MAX_SEND_LEN.into();
        }
        if connected.qid > 0 && connected.trusted {
            // An extended LBA comes with its metadata.
            most += most / 512 * 64;
        }
        if u64::from(length) > most {
            return Err(Status::INVALID_FIELD);
        }
        Ok(length)
    }

    /// Lets commands begin, in their order, as long as there is room for their data.
    fn admit(&mut self, now: Instant) {
        if self.is_ending() {
            return;
        }
        let limit = match &self.phase {
            Phase::Connected(connected)
                if connected.trusted && connected.controller.storage.is_some() =>
            {
                self.target.limits.bytes_in_flight
            }
            _ => UNTRUSTED_IN_FLIGHT,
        };
        while let Some(cid) = self.waiting.front().copied() {
            // Data that the host has not taken yet count too.
            let held = self.bytes_held();
            let Some(command) = self.commands.get_mut(&cid) else {
                self.waiting.pop_front();
                continue;
            };
            let length = command.length as usize;
            // One command always fits, however large.
            if held > 0 && held + length > limit {
                break;
            }
            self.waiting.pop_front();
            command.charged = length;
            self.charged += length;
            if to_controller(&command.sqe) {
                command.data.reserve_exact(length);
                command.progress = Progress::Receiving;
                let header = Header::ReadyToTransfer {
                    cid,
                    tag: cid,
                    offset: 0,
                    length: length as u32,
                };
                self.sender.push(&header, Vec::new(), &self.agreed);
            } else {
                self.execute(cid, now);
            }
        }
    }

    fn host_data(
        &mut self,
        (cid, tag): (u16, u16),
        (offset, length): (u32, u32),
        data: usize,
        last: bool,
    ) -> Result<(), ProtocolError> {
        let Some(command) = self.commands.get(&cid) else {
            return Err(ProtocolError::Header { offset: 8 });
        };
        if tag != cid || command.progress != Progress::Receiving || self.incoming.is_some() {
            return Err(ProtocolError::Header { offset: 10 });
        }
        if data == 0 || length as usize != data {
            return Err(ProtocolError::Header { offset: 16 });
        }
        if length > MAX_HOST_DATA {
            return Err(ProtocolError::DataLimit);
        }
        let end = u64::from(offset) + u64::from(length);
        if offset as usize != command.data.len() || end > command.length.into() {
            return Err(ProtocolError::DataRange);
        }
        if last != (end == command.length.into()) {
            return Err(ProtocolError::Header { offset: 1 });
        }
        self.incoming = Some(Incoming {
            cid,
            last,
            refused: None,
        });
        Ok(())
    }

    fn data_end(&mut self, intact: bool, now: Instant) {
        let Some(Incoming { cid, last, refused }) = self.incoming.take() else {
            return;
        };
        let Some(command) = self.commands.get_mut(&cid) else {
            return;
        };
        command.intact &= intact;
        if !last {
            return;
        }
        command.progress = Progress::Executing;
        if let Some(status) = refused {
            self.respond(cid, Response::failure(cid, status, true));
        } else if command.intact {
            self.execute(cid, now);
        } else {
            let status = Status::TRANSIENT_TRANSPORT_ERROR;
            self.respond(cid, Response::failure(cid, status, false));
        }
    }

    /// All that the host sends of a command is there.
    fn execute(&mut self, cid: u16, now: Instant) {
        let Some(command) = self.commands.get_mut(&cid) else {
            return;
        };
        command.progress = Progress::Executing;
        let sqe = command.sqe;
        let data = std::mem::take(&mut command.data);
        let answer = match &mut self.phase {
            Phase::New => return,
            Phase::Initialized => self.connect(&sqe, &data, now),
            Phase::Connected(connected)
                if sqe.opcode == FABRICS_OPCODE
                    && matches!(
                        sqe.nsid.get() as u8,
                        fctype::AUTH_SEND | fctype::AUTH_RECEIVE
                    ) =>
            {
                match connected.authentication(&sqe, data) {
                    Ok(authentication) => {
                        self.begin_authentication(cid, authentication);
                        return;
                    }
                    Err(status) => Answer::Done(Response::failure(cid, status, true)),
                }
            }
            Phase::Connected(connected) if !connected.trusted => Answer::Done(Response::failure(
                cid,
                Status::AUTHENTICATION_REQUIRED,
                true,
            )),
            Phase::Connected(connected) if sqe.opcode == FABRICS_OPCODE => {
                match (sqe.nsid.get() as u8, connected.qid) {
                    (fctype::PROPERTY_GET | fctype::PROPERTY_SET, 0) => {
                        connected.controller.property(&self.target, &sqe)
                    }
                    (fctype::DISCONNECT, 1..) => {
                        self.respond(cid, Response::success(cid));
                        self.ending = Ending::Draining;
                        return;
                    }
                    (fctype::CONNECT, _) => {
                        Answer::Done(Response::failure(cid, Status::COMMAND_SEQUENCE_ERROR, true))
                    }
                    _ => Answer::Done(Response::failure(cid, Status::INVALID_OPCODE, true)),
                }
            }
            Phase::Connected(connected) if connected.qid == 0 => {
                let context = (self.local, now);
                connected
                    .controller
                    .admin(&self.target, &sqe, data, context)
            }
            Phase::Connected(connected) => io(&connected.controller, sqe, data),
        };
        let Phase::Connected(connected) = &self.phase else {
            if let Answer::Done(response) = answer {
                self.respond(cid, response);
            }
            return;
        };
        let storage = connected.controller.storage.clone();
        match (answer, storage) {
            (Answer::Done(response), _) => {
                self.respond(cid, response);
                // A log page that was read, or a reset, may have released event requests.
                self.completions();
            }
            (Answer::Held, _) => self.completions(),
            (Answer::Storage(request), Some(host)) => {
                let job = if connected.qid == 0 {
                    Job::Admin { host, request }
                } else {
                    let abort = Abort::default();
                    connected.queue.aborts().insert(cid, abort.clone());
                    Job::Io {
                        host,
                        request,
                        abort,
                        flight: Flight::begin(&connected.controller.flights),
                    }
                };
                self.executing += 1;
                let ticket = Ticket::Command(cid);
                self.actions.push_back(Action { ticket, job });
            }
            (Answer::Storage(_), None) => {
                self.respond(cid, Response::failure(cid, Status::INVALID_OPCODE, true));
            }
            (Answer::Flush(response), Some(host)) => {
                let idle = Idle(Arc::clone(&connected.controller.flights));
                self.respond(cid, response);
                self.executing += 1;
                let job = Job::Flush { host, idle };
                let ticket = Ticket::Shutdown;
                self.actions.push_back(Action { ticket, job });
            }
            (Answer::Flush(response), None) => {
                connected.controller.shut_down();
                self.respond(cid, response);
            }
        }
    }

    fn begin_authentication(&mut self, cid: u16, authentication: Authentication) {
        if let Phase::Connected(connected) = &mut self.phase {
            connected.authenticating = true;
        }
        self.executing += 1;
        self.actions.push_back(Action {
            ticket: Ticket::Authentication(cid),
            job: Job::Authenticate(authentication),
        });
    }

    /// A step of the authentication has ended, and its command is answered.
    fn authenticated(&mut self, now: Instant) {
        let Phase::Connected(connected) = &mut self.phase else {
            return;
        };
        connected.authenticating = false;
        let Some(auth) = &connected.auth else {
            return;
        };
        let auth = auth.lock().unwrap_or_else(PoisonError::into_inner);
        match auth.state() {
            AuthState::Pending => {}
            AuthState::Authenticated if !self.target.trust(&connected.controller) => {
                let host = &connected.controller.host_nqn;
                tracing::warn!(host, "the host has too many controllers");
                self.target.refused.fetch_add(1, Ordering::Relaxed);
                self.ending = Ending::Sending;
            }
            AuthState::Authenticated if !connected.join() => {
                // Somebody who has authenticated too was first, or the controller has ended.
                self.ending = Ending::Sending;
            }
            AuthState::Authenticated => {
                connected.trusted = true;
                connected.controller.seen(now);
                self.handshake = None;
            }
            AuthState::Failed(error) => {
                connected.trusted = false;
                self.handshake
                    .get_or_insert(now + self.target.limits.handshake);
                if connected.qid == 0 {
                    connected.controller.end_io();
                }
                if !auth.has_message() {
                    let host = &connected.controller.host_nqn;
                    tracing::warn!(host, %error, "authentication failed");
                    self.target.refused.fetch_add(1, Ordering::Relaxed);
                    self.ending = Ending::Sending;
                }
            }
        }
    }

    fn connect(&mut self, sqe: &Sqe, data: &[u8], now: Instant) -> Answer {
        let cid = sqe.cid.get();
        if sqe.opcode != FABRICS_OPCODE || sqe.nsid.get() as u8 != fctype::CONNECT {
            return Answer::Done(Response::failure(cid, Status::COMMAND_SEQUENCE_ERROR, true));
        }
        match self.try_connect(sqe, data, now) {
            Ok((controller, trusted)) => {
                self.handshake = (!trusted).then(|| now + self.target.limits.handshake);
                let required = if trusted { 0 } else { AUTHENTICATION_REQUIRED };
                let mut response = Response::success(cid);
                response.cqe.dw0 = (u32::from(controller) | required).into();
                Answer::Done(response)
            }
            Err((status, at)) => {
                self.target.refused.fetch_add(1, Ordering::Relaxed);
                let busy = status == Status::CONNECT_CONTROLLER_BUSY;
                let mut response = Response::failure(cid, status, !busy);
                if let Some((offset, in_data)) = at {
                    response.cqe.dw0 = invalid_parameter(offset, in_data);
                }
                Answer::Done(response)
            }
        }
    }

    fn try_connect(
        &mut self,
        sqe: &Sqe,
        data: &[u8],
        now: Instant,
    ) -> Result<(u16, bool), Refusal> {
        let plain = |status| (status, None);
        let invalid =
            |offset, in_data| (Status::CONNECT_INVALID_PARAMETERS, Some((offset, in_data)));
        let connect = Connect::parse(sqe).map_err(plain)?;
        let data = ConnectData::read_from_bytes(data)
            .map_err(|_| plain(Status::DATA_SGL_LENGTH_INVALID))?;
        let subnqn = data.subnqn().ok_or(invalid(offset::SUBNQN, true))?;
        let hostnqn = data.hostnqn().ok_or(invalid(offset::HOSTNQN, true))?;
        if data.hostid == [0; 16] {
            return Err(invalid(offset::HOSTID, true));
        }
        let limits = &self.target.limits;
        let most = if connect.qid == 0 {
            ADMIN_ENTRIES.max(limits.queue_entries)
        } else {
            limits.queue_entries
        };
        if connect.sqsize == 0 || connect.sqsize >= most {
            return Err(invalid(offset::SQSIZE, false));
        }
        let queue = Arc::new(Queue::new(Arc::clone(&self.wake)));
        let (controller, auth) = if connect.qid == 0 {
            let subsystem = if subnqn == DISCOVERY_NQN {
                None
            } else {
                let mut all = self.target.subsystems.iter();
                let found = all.find(|subsystem| subsystem.nqn == subnqn);
                let subsystem = found.ok_or(invalid(offset::SUBNQN, true))?;
                let allowed = subsystem.hosts.find(hostnqn);
                allowed.ok_or_else(|| {
                    tracing::info!(
                        host = hostnqn,
                        subsystem = subnqn,
                        "host is not on the list"
                    );
                    plain(Status::CONNECT_INVALID_HOST)
                })?;
                Some(Arc::clone(subsystem))
            };
            if data.cntlid.get() != 0xFFFF {
                return Err(invalid(offset::CNTLID, true));
            }
            let host = (hostnqn, data.hostid);
            let keep_alive = keep_alive(connect.kato);
            let controller = self
                .target
                .create(subsystem, host, keep_alive, Arc::clone(&queue), now)
                .map_err(plain)?;
            let auth = self.authenticator(&controller);
            (controller, auth)
        } else {
            let controller = self.target.controller(data.cntlid.get());
            let controller = controller.ok_or(invalid(offset::CNTLID, true))?;
            let nqn = controller
                .subsystem
                .as_ref()
                .map(|subsystem| subsystem.nqn.as_str());
            if nqn != Some(subnqn) {
                return Err(invalid(offset::SUBNQN, true));
            }
            if controller.host_nqn != hostnqn {
                return Err(invalid(offset::HOSTNQN, true));
            }
            if controller.host_id != data.hostid {
                return Err(invalid(offset::HOSTID, true));
            }
            controller.update_status();
            // Under the lock that ending the queues takes: no queue comes after the end.
            let mut state = controller.state();
            if controller.is_dead() || state.changing || state.status & csts::RDY == 0 {
                return Err(plain(Status::COMMAND_SEQUENCE_ERROR));
            }
            let taken = state.queues.contains_key(&connect.qid);
            if connect.qid > state.granted || taken {
                return Err(invalid(offset::QID, false));
            }
            let auth = self.authenticator(&controller);
            if auth.is_none() {
                state.queues.insert(connect.qid, Arc::clone(&queue));
            }
            drop(state);
            (controller, auth)
        };
        let id = controller.id;
        let trusted = auth.is_none();
        if trusted {
            controller.seen(now);
        }
        self.phase = Phase::Connected(Box::new(Connected {
            controller,
            queue,
            qid: connect.qid,
            entries: connect.sqsize + 1,
            // The Connect command was taken from the queue.
            head: 0,
            no_flow_control: connect.cattr & CATTR_NO_FLOW_CONTROL != 0,
            auth,
            trusted,
            authenticating: false,
            messages_left: MAX_AUTH_MESSAGES,
        }));
        Ok((id, trusted))
    }

    /// What authenticates a queue of this controller, if its host has a secret. Each queue anew: whoever knows a controller's identifier could
    /// add queues to it otherwise.
    fn authenticator(&self, controller: &FabricsController) -> Option<Arc<Mutex<ControllerAuth>>> {
        let subsystem = controller.subsystem.as_ref()?;
        let host = subsystem.hosts.find(&controller.host_nqn)??;
        let auth = ControllerAuth::new(
            self.target.policy.clone(),
            &subsystem.nqn,
            &host.nqn,
            host.secret.clone()?,
            host.controller_secret.clone(),
        );
        Some(Arc::new(Mutex::new(auth)))
    }

    /// Work for the shell, if there is any.
    pub fn action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Commands under way, with those that wait for an event.
    pub fn in_flight(&self) -> usize {
        self.commands.len()
    }

    /// Bytes of data that commands under way hold, and those that wait to be sent.
    pub fn bytes_held(&self) -> usize {
        self.charged + self.sender.queued()
    }

    /// Whether there is work for the shell: sending makes room for commands that wait.
    pub fn has_action(&self) -> bool {
        !self.actions.is_empty()
    }

    /// Work has ended.
    pub fn complete(&mut self, ticket: Ticket, response: Response, now: Instant) {
        self.executing = self.executing.saturating_sub(1);
        self.begin_progress(now);
        match ticket {
            Ticket::Command(cid) => {
                if let Phase::Connected(connected) = &self.phase {
                    connected.queue.aborts().remove(&cid);
                }
                self.respond(cid, response);
            }
            Ticket::Authentication(cid) => {
                self.respond(cid, response);
                self.authenticated(now);
            }
            Ticket::Shutdown => {
                if let Phase::Connected(connected) = &self.phase {
                    connected.controller.shut_down();
                }
            }
        }
        self.admit(now);
        self.drain();
    }

    /// Sends a command's data and its completion.
    fn respond(&mut self, cid: u16, mut response: Response) {
        let Some(command) = self.commands.remove(&cid) else {
            return;
        };
        self.charged -= command.charged;
        if self.is_ending() {
            // Nothing follows a termination request.
            return;
        }
        response.cqe.cid = cid.into();
        let mut data = std::mem::take(&mut response.data);
        let mut elide = false;
        if let Phase::Connected(connected) = &mut self.phase {
            if !response.metadata.is_empty()
                && let Some(namespace) = connected.controller.namespace(command.sqe.nsid.get())
            {
                data = interleave(namespace, &data, &response.metadata);
            }
            connected.head = (connected.head + 1) % connected.entries;
            // FFFFh tells the host that its wish is granted.
            response.cqe.sq_head = match connected.no_flow_control {
                true => 0xFFFF,
                false => connected.head,
            }
            .into();
            response.cqe.sq_id = connected.qid.into();
            elide = connected.no_flow_control && connected.qid > 0;
        }
        let cqe = &mut response.cqe;
        if data.len() > command.length as usize {
            let head = (cqe.sq_head, cqe.sq_id);
            *cqe = Response::failure(cid, Status::DATA_SGL_LENGTH_INVALID, true).cqe;
            (cqe.sq_head, cqe.sq_id) = head;
            data.clear();
        }
        let success = cqe.status().is_success();
        if success && !data.is_empty() {
            let elide = elide && cqe.dw0.get() == 0 && cqe.dw1.get() == 0;
            let header = Header::ControllerData {
                cid,
                offset: 0,
                length: data.len() as u32,
                last: true,
                success: elide,
            };
            self.sender.push(&header, data, &self.agreed);
            if elide {
                return;
            }
        }
        let header = Header::Response(*cqe);
        self.sender.push(&header, Vec::new(), &self.agreed);
    }

    /// Sends completions that the controller has for its admin queue.
    fn completions(&mut self) {
        let Phase::Connected(connected) = &self.phase else {
            return;
        };
        if connected.qid != 0 {
            return;
        }
        let completions = std::mem::take(&mut connected.controller.state().completions);
        for cqe in completions {
            let cid = cqe.cid.get();
            let response = Response {
                cqe,
                data: Vec::new(),
                metadata: Vec::new(),
            };
            self.respond(cid, response);
        }
    }

    /// Whether bytes wait to be sent.
    pub fn has_output(&self) -> bool {
        self.sender.queued() > 0
    }

    /// The bytes to send next.
    pub fn output(&self) -> Vec<std::io::IoSlice<'_>> {
        self.sender.pieces()
    }

    /// `count` bytes were sent.
    pub fn sent(&mut self, count: usize, now: Instant) {
        self.sender.advance(count);
        self.taken += count;
        // A few bytes now and then would hold memory for ever.
        if self.taken >= PROGRESS || !self.has_output() {
            self.taken = 0;
            self.progress = now;
        }
        self.admit(now);
        self.drain();
    }

    /// When [`Connection::tick`] is to be called, if nothing else happens before.
    pub fn deadline(&self) -> Option<Instant> {
        let expiry = match &self.phase {
            Phase::Connected(connected) if connected.qid == 0 && self.ending == Ending::No => {
                connected.controller.expiry()
            }
            _ => None,
        };
        let stall = self
            .has_output()
            .then(|| self.progress + self.target.limits.stall);
        [self.handshake, expiry, stall].into_iter().flatten().min()
    }

    /// Looks at the time, and at what others have done to this connection's controller.
    pub fn tick(&mut self, now: Instant) {
        let passed = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        if passed(self.handshake) {
            self.error = Some(ConnectionError::Handshake);
            self.ending = Ending::Now;
        }
        self.begin_progress(now);
        if self.has_output() && self.progress + self.target.limits.stall <= now {
            self.error = Some(ConnectionError::Stalled);
            self.ending = Ending::Now;
        }
        if let Phase::Connected(connected) = &self.phase {
            let expired = connected.qid == 0 && passed(connected.controller.expiry());
            // While it drains, nothing is read, so the host cannot be heard.
            if expired && self.ending == Ending::No {
                self.error = Some(ConnectionError::KeepAlive);
                self.ending = Ending::Now;
            } else if connected.queue.is_ended() || connected.controller.is_dead() {
                self.ending = Ending::Now;
            }
        }
        self.completions();
        if self.target.is_closing() && self.ending == Ending::No {
            self.ending = Ending::Draining;
        }
        self.drain();
    }

    /// Ends the connection when nothing is under way any more.
    fn drain(&mut self) {
        let has_queues = match &self.phase {
            // Its end would be that of the I/O queues, whose commands are to end first.
            Phase::Connected(connected) if connected.qid == 0 => {
                !connected.controller.state().queues.is_empty()
            }
            _ => false,
        };
        if self.ending == Ending::Draining
            && self.executing == 0
            && self.waiting.is_empty()
            && !has_queues
        {
            self.ending = Ending::Sending;
        }
    }

    /// Whether nothing more is to be sent than what waits already.
    fn is_ending(&self) -> bool {
        matches!(self.ending, Ending::Sending | Ending::Now)
    }

    /// Whether the shell is to close the connection.
    pub fn is_finished(&self) -> bool {
        match self.ending {
            Ending::No | Ending::Draining => false,
            Ending::Sending => !self.has_output(),
            Ending::Now => true,
        }
    }

    /// The shell could not read or write.
    pub fn broken(&mut self) {
        self.ending = Ending::Now;
    }

    /// Why the connection ends, if not for an ordinary reason.
    pub fn error(&self) -> Option<&ConnectionError> {
        self.error.as_ref()
    }

    /// The host's NQN, and the queue's identifier.
    pub fn peer(&self) -> Option<(&str, u16)> {
        match &self.phase {
            Phase::Connected(connected) => Some((&connected.controller.host_nqn, connected.qid)),
            _ => None,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.target.unregister(self.id);
        if self.error.is_some() {
            self.target.failed.fetch_add(1, Ordering::Relaxed);
        }
        if let Phase::Connected(connected) = &self.phase {
            // Nobody is left to take the results.
            for abort in connected.queue.aborts().values() {
                abort.ask();
            }
            if connected.qid == 0 {
                self.target.destroy(&connected.controller);
            } else {
                let mut state = connected.controller.state();
                let own = state.queues.get(&connected.qid);
                if own.is_some_and(|queue| Arc::ptr_eq(queue, &connected.queue)) {
                    state.queues.remove(&connected.qid);
                }
                drop(state);
                // An admin queue that drains waits for it.
                (connected.controller.admin.wake)();
            }
        }
    }
}

impl FabricsController {
    fn info_of_storage(&self) -> Option<&crate::ControllerInfo> {
        self.storage.as_ref().map(|storage| storage.controller())
    }

    fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        self.info_of_storage()?.namespace(nsid)
    }

    /// Queues an event if the host wants it.
    pub(super) fn post_wanted(&self, event: Event) {
        if self.wants(event) {
            self.post(event);
        }
    }
}

/// Data transfer of a command: opcode bits 1:0, of a Fabrics command those of its type.
fn transfer_bits(sqe: &Sqe) -> u8 {
    match sqe.opcode {
        FABRICS_OPCODE => sqe.nsid.get() as u8 & 3,
        opcode => opcode & 3,
    }
}

/// Whether a command's data, if it has any, go to the controller.
fn to_controller(sqe: &Sqe) -> bool {
    transfer_bits(sqe) == 1
}

/// An I/O command: splits extended LBAs, leaves out what follows a list.
fn io(controller: &FabricsController, sqe: Sqe, mut data: Vec<u8>) -> Answer {
    let cid = sqe.cid.get();
    let length = Sgl::parse(&sqe.dptr).map_or(0, Sgl::length);
    let mut metadata = Vec::new();
    if let Some(namespace) = controller.namespace(sqe.nsid.get())
        && let Ok(command) = Command::parse(&sqe)
    {
        match command {
            Command::Read(io) => {
                let needed = namespace.data_len(io.blocks) + namespace.metadata_len(io.blocks);
                if u64::from(length) < needed {
                    let status = Status::DATA_SGL_LENGTH_INVALID;
                    return Answer::Done(Response::failure(cid, status, true));
                }
            }
            Command::Write(_) | Command::Compare(_) if namespace.metadata_size() > 0 => {
                (data, metadata) = separate(namespace, &data);
            }
            // Linux sends room for 256 ranges, however few there are.
            Command::DatasetManagement { ranges, .. } => {
                data.truncate(usize::from(ranges) * size_of::<DsmRange>());
            }
            _ => {}
        }
    }
    Answer::Storage(Request {
        sqe,
        data,
        metadata,
    })
}

/// Blocks with their metadata behind each.
pub(crate) fn interleave(namespace: &Namespace, data: &[u8], metadata: &[u8]) -> Vec<u8> {
    let mut extended = Vec::with_capacity(data.len() + metadata.len());
    let data = data.chunks(namespace.block_size() as usize);
    for (data, metadata) in data.zip(metadata.chunks(namespace.metadata_size().into())) {
        extended.extend_from_slice(data);
        extended.extend_from_slice(metadata);
    }
    extended
}

/// Data and metadata of extended LBAs; what is left of an incomplete one counts as data.
pub(crate) fn separate(namespace: &Namespace, extended: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let block = namespace.block_size() as usize;
    let mut data = Vec::with_capacity(extended.len());
    let mut metadata = Vec::new();
    for extended in extended.chunks(block + usize::from(namespace.metadata_size())) {
        let (now, beside) = extended.split_at(block.min(extended.len()));
        data.extend_from_slice(now);
        metadata.extend_from_slice(beside);
    }
    (data, metadata)
}
