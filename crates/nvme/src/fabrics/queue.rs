//! One queue of a target, whatever its transport: Connect, authentication, the execution of commands, and the end of the queue.
//!
//! A transport's connection owns a [`TargetQueue`]. For every command capsule it
//! - checks the transfer with [`TargetQueue::check_length`], and fetches the data that the host has for the controller;
//! - calls [`TargetQueue::execute`] when all of it has arrived, or [`TargetQueue::refuse`];
//! - sends every [`TargetQueue::reply`], which may come at once or later;
//! - executes every [`TargetQueue::action`] and returns the result to [`TargetQueue::complete`].

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;
use zerocopy::FromBytes;

use super::admin::{Answer, keep_alive, max_transfer};
use super::auth::{AuthCommand, AuthState, ControllerAuth, MAX_SEND_LEN};
use super::channel::SecureChannel;
use super::command::{
    AUTHENTICATION_REQUIRED, CATTR_NO_FLOW_CONTROL, Connect, ConnectData, DISCOVERY_NQN,
    FABRICS_OPCODE, csts, fctype, invalid_parameter,
};
use super::controller::{FabricsController, Flight, SharedQueue, Wake};
use super::discovery::Port;
use super::job::{Action, Authentication, Idle, Job, Ticket};
use super::target::Target;
use crate::admin::opcode;
use crate::{Command, Cqe, DsmRange, Request, Response, Sqe, Status};

/// Messages that a host may send before it has authenticated: three, twice.
const MAX_AUTH_MESSAGES: u8 = 6;
/// Bytes of data that a connection without storage, or without authentication, may hold at a time.
const UNTRUSTED_IN_FLIGHT: usize = 256 << 10;
/// Entries of an admin queue.
const ADMIN_ENTRIES: u16 = 32;
/// How long a Connect command waits for the end of a queue with the same identifier: a host that connects anew may be faster than the end of
/// its old connection.
const SUCCESSION: Duration = Duration::from_secs(1);
/// PRP or SGL for Data Transfer (bits 7:6 of a command's flags): an SGL, and for separate metadata a buffer or another SGL.
const PSDT_SGL: [u8; 2] = [1, 2];
/// Offsets in a Connect command and its data, for refusals.
mod offset {
    pub(super) const QID: u16 = 42;
    pub(super) const SQSIZE: u16 = 44;
    pub(super) const HOSTID: u16 = 0;
    pub(super) const CNTLID: u16 = 16;
    pub(super) const SUBNQN: u16 = 256;
    pub(super) const HOSTNQN: u16 = 512;
}

/// What a host whose queues must be encrypted may do on one that is not: what Linux does before it connects with the key. Nothing of it
/// reads or changes data.
const PRELIMINARY: [u8; 6] = [
    opcode::IDENTIFY,
    opcode::GET_LOG_PAGE,
    opcode::GET_FEATURES,
    opcode::SET_FEATURES,
    opcode::ASYNC_EVENT,
    opcode::KEEP_ALIVE,
];

/// Why a Connect command does not succeed.
enum Refusal {
    /// The status.
    Status(Status),
    /// A parameter is invalid: its offset, and whether it is in the data.
    Invalid(u16, bool),
    /// Another connection still has the queue.
    Taken,
}

/// A Connect command that waits for the end of another connection.
struct Successor {
    sqe: Sqe,
    data: Vec<u8>,
    until: Instant,
}

/// The host let a deadline pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Expired {
    /// The host took too long to connect or to authenticate.
    #[error("the peer did not connect in time")]
    Handshake,
    /// No command arrived within the keep alive time-out.
    #[error("the keep alive timer expired")]
    KeepAlive,
}

/// A completion for the host, with the data that go before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The completion.
    pub cqe: Cqe,
    /// Data for the host; empty unless the command succeeded.
    pub data: Vec<u8>,
    /// The transport may announce the success with the data and leave out the completion.
    pub success_with_data: bool,
}

struct Connected {
    controller: Arc<FabricsController>,
    queue: Arc<SharedQueue>,
    qid: u16,
    entries: u16,
    head: u16,
    /// The host has turned off flow control of the submission queue.
    no_flow_control: bool,
    auth: Option<Arc<Mutex<ControllerAuth>>>,
    /// The host has authenticated this queue, or need not.
    trusted: bool,
    /// The queue is not encrypted, and its host's queues must be.
    preliminary: bool,
    /// A step of the authentication is in progress.
    authenticating: bool,
    /// Messages that the host may send before it has authenticated: each may cost an exponentiation.
    messages_left: u8,
}

impl Connected {
    /// Adds an I/O queue that has authenticated to its controller. False if the controller has such a queue, or is not ready any more.
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
    fn authentication(
        &mut self,
        sqe: &Sqe,
        length: u32,
        data: Vec<u8>,
    ) -> Result<Authentication, Status> {
        let auth = self.auth.as_ref().ok_or(Status::INVALID_OPCODE)?;
        let command = AuthCommand::parse(sqe)?;
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

/// A command without its completion.
#[derive(Default)]
struct Outstanding {
    nsid: u32,
    /// Bytes that the host has room for or sends.
    length: u32,
    /// A task works on it.
    executing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    No,
    /// Takes no more commands; those in flight end.
    Draining,
    /// Only the output that already waits is still sent.
    Sending,
    /// At once.
    Now,
}

/// One queue of a target, from its Connect command on: a state machine without I/O, for the connection of any transport.
pub struct TargetQueue {
    target: Arc<Target>,
    id: u64,
    port: Port,
    wake: Wake,
    /// The two ends that a key has proved, if the connection is encrypted.
    channel: Option<Arc<SecureChannel>>,
    /// Once a Connect command has succeeded.
    connected: Option<Box<Connected>>,
    successor: Option<Successor>,
    commands: HashMap<u16, Outstanding>,
    replies: VecDeque<Reply>,
    actions: VecDeque<Action>,
    /// Until when the handshake must be over.
    handshake: Option<Instant>,
    executing: usize,
    ending: Ending,
    /// Bytes of the target's memory.
    held: usize,
}

impl TargetQueue {
    /// A queue whose transport connection has just been accepted at `port`. Whenever `wake` is called, call [`TargetQueue::tick`].
    pub fn new(target: Arc<Target>, port: Port, wake: Wake, now: Instant) -> TargetQueue {
        TargetQueue {
            id: target.register(Arc::clone(&wake)),
            handshake: Some(now + target.limits.handshake),
            target,
            port,
            wake,
            channel: None,
            connected: None,
            successor: None,
            commands: HashMap::new(),
            replies: VecDeque::new(),
            actions: VecDeque::new(),
            executing: 0,
            ending: Ending::No,
            held: 0,
        }
    }

    /// The connection is encrypted, and a key has proved its two ends: no other host and subsystem can use it.
    pub fn secure(&mut self, channel: Arc<SecureChannel>) {
        self.channel = Some(channel);
    }

    /// The target.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The host's NQN and the queue's identifier, after Connect.
    pub fn peer(&self) -> Option<(&str, u16)> {
        let connected = self.connected.as_ref()?;
        Some((&connected.controller.host_nqn, connected.qid))
    }

    /// Commands that the host may have in flight.
    pub fn entries(&self) -> u16 {
        match &self.connected {
            Some(connected) => connected.entries,
            None => 1,
        }
    }

    /// Whether this is an I/O queue.
    pub fn is_io(&self) -> bool {
        self.connected.as_ref().is_some_and(|c| c.qid > 0)
    }

    /// Bytes of data that the queue's commands may hold at a time.
    fn bytes_in_flight(&self) -> usize {
        match &self.connected {
            Some(connected) if connected.trusted && connected.controller.storage.is_some() => {
                self.target.limits.bytes_in_flight
            }
            _ => UNTRUSTED_IN_FLIGHT,
        }
    }

    /// Whether a connection that holds `bytes` may hold so many `more`, under its own limit and beside the others. If it must not because of
    /// the others, `wake` is called when it may.
    pub fn has_room(&self, bytes: usize, more: usize) -> bool {
        // A single command may exceed the connection's limit.
        if bytes > 0 && bytes + more > self.bytes_in_flight() {
            return false;
        }
        let memory = &self.target.memory;
        if memory.allows(self.held, bytes, more) {
            return true;
        }
        memory.wait(self.id, &self.wake);
        // Of what became free just before, nobody tells.
        memory.allows(self.held, bytes, more)
    }

    /// The connection holds so many bytes for data, input and output. Call after every change.
    pub fn hold(&mut self, bytes: usize) {
        if bytes != self.held {
            self.target.memory.change(self.held, bytes);
            self.held = bytes;
        }
    }

    /// A command has begun to arrive: the host is alive.
    pub fn seen(&self, now: Instant) {
        if let Some(connected) = &self.connected
            && connected.trusted
        {
            connected.controller.seen(now);
        }
    }

    /// The bytes of data to transfer for a command whose descriptor names `length` bytes.
    ///
    /// # Errors
    /// The status with which to refuse the command.
    pub fn check_length(&self, sqe: &Sqe, length: u32) -> Result<u32, Status> {
        if transfer_bits(sqe) == 0 {
            // The command has no data, whatever its descriptor says.
            return Ok(0);
        }
        // Fabrics commands have no other descriptors than SGLs, and some hosts do not say so.
        if !PSDT_SGL.contains(&(sqe.flags >> 6)) && sqe.opcode != FABRICS_OPCODE {
            return Err(Status::INVALID_FIELD);
        }
        let Some(connected) = &self.connected else {
            return match length {
                0..=4096 => Ok(length),
                _ => Err(Status::DATA_SGL_LENGTH_INVALID),
            };
        };
        let mut most = max_transfer(connected.controller.info());
        if !connected.trusted {
            // Only the commands of the authentication have data.
            most = MAX_SEND_LEN.into();
        }
        if connected.qid > 0 && connected.trusted {
            // An extended LBA includes its metadata.
            most += most / 512 * 64;
        }
        if u64::from(length) > most {
            return Err(Status::INVALID_FIELD);
        }
        Ok(length)
    }

    /// Executes a command that has arrived with all its data. `length` is what [`TargetQueue::check_length`] returned.
    pub fn execute(&mut self, sqe: Sqe, length: u32, data: Vec<u8>, now: Instant) {
        let cid = sqe.cid.get();
        let nsid = sqe.nsid.get();
        let outstanding = Outstanding {
            nsid,
            length,
            executing: false,
        };
        self.commands.insert(cid, outstanding);
        let fctype = (sqe.opcode == FABRICS_OPCODE).then_some(nsid as u8);
        let failure = |status| Answer::Done(Response::failure(cid, status, true));
        let Some(connected) = &mut self.connected else {
            self.connect(sqe, data, now + SUCCESSION, now);
            return;
        };
        let answer = match (fctype, connected.qid) {
            (Some(fctype::AUTH_SEND | fctype::AUTH_RECEIVE), _) => {
                match connected.authentication(&sqe, length, data) {
                    Ok(authentication) => {
                        connected.authenticating = true;
                        let job = Job::Authenticate(authentication);
                        self.start(Ticket::Authentication(cid), job);
                        return;
                    }
                    Err(status) => failure(status),
                }
            }
            _ if !connected.trusted => failure(Status::AUTHENTICATION_REQUIRED),
            (None, 0) if connected.preliminary && !PRELIMINARY.contains(&sqe.opcode) => {
                failure(Status::OPERATION_DENIED)
            }
            (Some(fctype::PROPERTY_GET | fctype::PROPERTY_SET), 0) => {
                connected.controller.property(&self.target, &sqe)
            }
            (Some(fctype::DISCONNECT), 1..) => {
                self.respond(cid, Response::success(cid));
                self.ending = Ending::Draining;
                return;
            }
            (Some(fctype::CONNECT), _) => failure(Status::COMMAND_SEQUENCE_ERROR),
            (Some(_), _) => failure(Status::INVALID_OPCODE),
            (None, 0) => {
                let context = (self.port, now);
                let controller = &connected.controller;
                controller.admin(&self.target, &sqe, data, context)
            }
            (None, _) => io(&connected.controller, sqe, length, data),
        };
        self.continue_with(cid, answer);
    }

    fn continue_with(&mut self, cid: u16, answer: Answer) {
        let Some(connected) = &self.connected else {
            return;
        };
        match (answer, connected.controller.storage.clone()) {
            (Answer::Done(response), _) => {
                self.respond(cid, response);
                // Reading a log page, or a reset, may have completed event requests.
                self.completions();
            }
            (Answer::Held, _) => self.completions(),
            (Answer::Storage(request), Some(controller)) => {
                let job = if connected.qid == 0 {
                    Job::Admin {
                        controller,
                        request,
                    }
                } else {
                    Job::Io {
                        controller,
                        request,
                        cancel: connected.queue.executes(cid),
                        flight: Flight::begin(&connected.controller.flights),
                    }
                };
                self.start(Ticket::Command(cid), job);
            }
            (Answer::Storage(_), None) => {
                self.respond(cid, Response::failure(cid, Status::INVALID_OPCODE, true));
            }
            (Answer::Flush(response), Some(controller)) => {
                let idle = Idle(Arc::clone(&connected.controller.flights));
                self.respond(cid, response);
                self.start(Ticket::Shutdown, Job::Flush { controller, idle });
            }
            (Answer::Flush(response), None) => {
                connected.controller.shut_down();
                self.respond(cid, response);
            }
        }
    }

    fn start(&mut self, ticket: Ticket, job: Job) {
        self.executing += 1;
        if let Ticket::Command(cid) | Ticket::Authentication(cid) = ticket
            && let Some(command) = self.commands.get_mut(&cid)
        {
            command.executing = true;
        }
        self.actions.push_back(Action { ticket, job });
    }

    /// Refuses a command that has not been executed.
    pub fn refuse(&mut self, cid: u16, status: Status, do_not_retry: bool) {
        let response = Response::failure(cid, status, do_not_retry);
        self.finish(cid, Outstanding::default(), response);
    }

    /// A command waits for room: Abort can end it until [`TargetQueue::admit`].
    pub fn wait(&self, cid: u16) {
        if let Some(connected) = &self.connected {
            connected.queue.waits(cid);
        }
    }

    /// A command waits no more. False if it was aborted, and is to be refused.
    pub fn admit(&self, cid: u16) -> bool {
        let connected = self.connected.as_ref();
        connected.is_none_or(|connected| connected.queue.ends(cid))
    }

    /// The commands that were aborted while they waited for room.
    pub fn aborted(&self) -> Vec<u16> {
        let connected = self.connected.as_ref();
        connected.map_or(Vec::new(), |connected| connected.queue.aborted())
    }

    /// Whether a task works on this command.
    pub fn is_executing(&self, cid: u16) -> bool {
        self.commands
            .get(&cid)
            .is_some_and(|command| command.executing)
    }

    /// Takes back the Asynchronous Event Request with this identifier, which its host uses for another command. False if there is none.
    ///
    /// The specification does not allow it, but SPDK's hosts do it when they detach.
    pub fn forget_event_request(&mut self, cid: u16) -> bool {
        let Some(connected) = self.connected.as_mut().filter(|c| c.qid == 0) else {
            return false;
        };
        if !connected.controller.forget_request(cid) {
            return false;
        }
        connected.head = (connected.head + 1) % connected.entries;
        self.commands.remove(&cid);
        true
    }

    /// Work for a task, if there is any.
    pub fn action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Whether there is work for a task.
    pub fn has_action(&self) -> bool {
        !self.actions.is_empty()
    }

    /// The next completion to send.
    pub fn reply(&mut self) -> Option<Reply> {
        self.replies.pop_front()
    }

    /// Work has ended.
    pub fn complete(&mut self, ticket: Ticket, response: Response, now: Instant) {
        self.executing = self.executing.saturating_sub(1);
        match ticket {
            Ticket::Command(cid) => {
                if let Some(connected) = &self.connected {
                    connected.queue.ends(cid);
                }
                self.respond(cid, response);
            }
            Ticket::Authentication(cid) => {
                self.respond(cid, response);
                self.authenticated(now);
            }
            Ticket::Shutdown => {
                if let Some(connected) = &self.connected {
                    connected.controller.shut_down();
                }
            }
        }
    }

    fn respond(&mut self, cid: u16, response: Response) {
        if let Some(command) = self.commands.remove(&cid) {
            self.finish(cid, command, response);
        }
    }

    fn finish(&mut self, cid: u16, command: Outstanding, response: Response) {
        if self.is_ending() {
            return;
        }
        let Response {
            mut cqe,
            mut data,
            metadata,
        } = response;
        cqe.cid = cid.into();
        let mut elide = false;
        if let Some(connected) = &mut self.connected {
            if !metadata.is_empty()
                && let Some(namespace) = connected.controller.namespace(command.nsid)
            {
                data = namespace.interleave(&data, &metadata);
            }
            connected.head = (connected.head + 1) % connected.entries;
            // FFFFh grants the host its wish to do without flow control.
            cqe.sq_head = if connected.no_flow_control {
                0xFFFF
            } else {
                connected.head
            }
            .into();
            cqe.sq_id = connected.qid.into();
            elide = connected.no_flow_control && connected.qid > 0;
        }
        if data.len() > command.length as usize {
            let head = (cqe.sq_head, cqe.sq_id);
            cqe = Cqe::new(cid, Status::DATA_SGL_LENGTH_INVALID, true);
            (cqe.sq_head, cqe.sq_id) = head;
        }
        if !cqe.status().is_success() {
            data.clear();
        }
        let is_plain = cqe.dw0.get() == 0 && cqe.dw1.get() == 0;
        self.replies.push_back(Reply {
            success_with_data: elide && is_plain && !data.is_empty(),
            cqe,
            data,
        });
    }

    /// Sends the completions that the controller has for its admin queue.
    fn completions(&mut self) {
        let Some(connected) = self.connected.as_ref().filter(|c| c.qid == 0) else {
            return;
        };
        let completions = std::mem::take(&mut connected.controller.state().completions);
        for cqe in completions {
            let response = Response {
                cqe,
                data: Vec::new(),
                metadata: Vec::new(),
            };
            self.respond(cqe.cid.get(), response);
        }
    }

    /// A step of the authentication has ended, and its command is answered.
    fn authenticated(&mut self, now: Instant) {
        let Some(connected) = &mut self.connected else {
            return;
        };
        connected.authenticating = false;
        let Some(auth) = &connected.auth else {
            return;
        };
        let mut auth = auth.lock().unwrap_or_else(PoisonError::into_inner);
        let host = &connected.controller.host_nqn;
        if let Some(key) = auth.generated()
            && let Some(subsystem) = &connected.controller.subsystem
        {
            let psk = key.psk(host, &subsystem.nqn);
            self.target.keep_key(psk, (host, &subsystem.nqn), now);
        }
        match auth.state() {
            AuthState::Pending => {}
            AuthState::Authenticated if !self.target.trust(&connected.controller) => {
                tracing::warn!(host, "the host has too many controllers");
                self.target.count_refusal();
                self.ending = Ending::Sending;
            }
            AuthState::Authenticated if !connected.join() => {
                // Another connection that has authenticated was first, or the controller has ended.
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
                    tracing::warn!(host, %error, "authentication failed");
                    self.target.count_refusal();
                    self.ending = Ending::Sending;
                }
            }
        }
    }

    /// Executes the first command, which must be Connect. It waits `until` then for another connection with the same queue.
    fn connect(&mut self, sqe: Sqe, data: Vec<u8>, until: Instant, now: Instant) {
        let cid = sqe.cid.get();
        if sqe.opcode != FABRICS_OPCODE || sqe.nsid.get() as u8 != fctype::CONNECT {
            let response = Response::failure(cid, Status::COMMAND_SEQUENCE_ERROR, true);
            return self.respond(cid, response);
        }
        let (status, parameter) = match self.try_connect(&sqe, &data, now) {
            Ok((controller, trusted)) => {
                self.handshake = (!trusted).then(|| now + self.target.limits.handshake);
                let required = if trusted { 0 } else { AUTHENTICATION_REQUIRED };
                let mut response = Response::success(cid);
                response.cqe.dw0 = (u32::from(controller) | required).into();
                return self.respond(cid, response);
            }
            Err(Refusal::Taken) if now < until => {
                self.successor = Some(Successor { sqe, data, until });
                return;
            }
            Err(Refusal::Taken) => (Status::CONNECT_INVALID_PARAMETERS, (offset::QID, false)),
            Err(Refusal::Invalid(offset, in_data)) => {
                (Status::CONNECT_INVALID_PARAMETERS, (offset, in_data))
            }
            Err(Refusal::Status(status)) => (status, (0, false)),
        };
        self.target.count_refusal();
        let busy = status == Status::CONNECT_CONTROLLER_BUSY;
        let mut response = Response::failure(cid, status, !busy);
        response.cqe.dw0 = invalid_parameter(parameter.0, parameter.1);
        self.respond(cid, response);
    }

    fn try_connect(
        &mut self,
        sqe: &Sqe,
        data: &[u8],
        now: Instant,
    ) -> Result<(u16, bool), Refusal> {
        let plain = Refusal::Status;
        let invalid = Refusal::Invalid;
        let connect = Connect::parse(sqe).map_err(plain)?;
        let data = ConnectData::read_from_bytes(data)
            .map_err(|_| plain(Status::DATA_SGL_LENGTH_INVALID))?;
        let subnqn = data.subnqn().ok_or(invalid(offset::SUBNQN, true))?;
        let hostnqn = data.hostnqn().ok_or(invalid(offset::HOSTNQN, true))?;
        if data.hostid == [0; 16] {
            return Err(invalid(offset::HOSTID, true));
        }
        self.check_channel(hostnqn, subnqn, connect.qid)?;
        let limits = &self.target.limits;
        let most = if connect.qid == 0 {
            ADMIN_ENTRIES.max(limits.queue_entries)
        } else {
            limits.queue_entries
        };
        if connect.sqsize == 0 || connect.sqsize >= most {
            return Err(invalid(offset::SQSIZE, false));
        }
        let queue = Arc::new(SharedQueue::new(Arc::clone(&self.wake)));
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
                .create(
                    subsystem,
                    host,
                    keep_alive,
                    Arc::clone(&queue),
                    self.is_proven(),
                    now,
                )
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
            // The host identifier may differ, as some hosts make one for each queue: names and secrets decide about access, and every
            // queue of a host with a secret authenticates.
            controller.update_status();
            // This lock is also held while all queues end, so none is added after the end.
            let mut state = controller.state();
            if controller.is_dead() || state.changing || state.status & csts::RDY == 0 {
                return Err(plain(Status::COMMAND_SEQUENCE_ERROR));
            }
            let most = match state.granted {
                0 => limits.io_queues,
                granted => granted,
            };
            if connect.qid > most {
                return Err(invalid(offset::QID, false));
            }
            if state.queues.contains_key(&connect.qid) {
                state.successors.push(Arc::clone(&self.wake));
                return Err(Refusal::Taken);
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
        let preliminary = self.is_preliminary(&controller);
        self.connected = Some(Box::new(Connected {
            preliminary,
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

    /// Refuses a host that uses another one's secure channel, or must have one and does not.
    fn check_channel(&self, hostnqn: &str, subnqn: &str, qid: u16) -> Result<(), Refusal> {
        let reason = match &self.channel {
            Some(channel) if channel.host_nqn != hostnqn || channel.sub_nqn != subnqn => {
                "the secure channel is that of another host or subsystem"
            }
            Some(_) => return Ok(()),
            None => {
                let mut all = self.target.subsystems.iter();
                let subsystem = all.find(|subsystem| subsystem.nqn == subnqn);
                let host = subsystem.and_then(|subsystem| subsystem.hosts.find(hostnqn)?);
                match host {
                    Some(host) if host.concatenate && qid > 0 => {
                        "the host must encrypt its I/O queues, with the key of its authentication"
                    }
                    Some(host) if host.tls_key.is_some() && !host.concatenate => {
                        "the host has a TLS key, and the connection is not encrypted"
                    }
                    _ => return Ok(()),
                }
            }
        };
        tracing::info!(host = hostnqn, subsystem = subnqn, reason, "host refused");
        Err(Refusal::Status(Status::CONNECT_INVALID_HOST))
    }

    /// Whether the key of the channel says that its host has authenticated.
    fn is_proven(&self) -> bool {
        self.channel
            .as_ref()
            .is_some_and(|channel| channel.generated)
    }

    /// Whether the queue is there for the authentication that gives a key, and for what Linux does before it connects with the key.
    fn is_preliminary(&self, controller: &FabricsController) -> bool {
        let subsystem = controller.subsystem.as_ref();
        let host = subsystem.and_then(|own| own.hosts.find(&controller.host_nqn)?);
        self.channel.is_none() && host.is_some_and(|host| host.concatenate)
    }

    /// The authentication of a queue, if its host has a secret. Every queue authenticates: otherwise anybody who knows the identifier of a
    /// controller could add queues to it.
    fn authenticator(&self, controller: &FabricsController) -> Option<Arc<Mutex<ControllerAuth>>> {
        if self.is_proven() {
            return None;
        }
        let subsystem = controller.subsystem.as_ref()?;
        let host = subsystem.hosts.find(&controller.host_nqn)??;
        let auth = ControllerAuth::new(
            self.target.policy.clone(),
            &subsystem.nqn,
            &host.nqn,
            host.secret.clone()?,
            host.controller_secret.clone(),
        );
        let auth = if self.is_preliminary(controller) {
            auth.concatenating()
        } else {
            auth
        };
        Some(Arc::new(Mutex::new(auth)))
    }

    /// When [`TargetQueue::tick`] is to be called, if nothing else happens before.
    pub fn deadline(&self) -> Option<Instant> {
        let expiry = match &self.connected {
            Some(connected) if connected.qid == 0 && self.ending == Ending::No => {
                connected.controller.expiry()
            }
            _ => None,
        };
        let succession = self.successor.as_ref().map(|successor| successor.until);
        [self.handshake, expiry, succession]
            .into_iter()
            .flatten()
            .min()
    }

    /// Checks the deadlines, and what others have done to the queue's controller. Returns the deadline that ends the queue, if one has
    /// passed.
    pub fn tick(&mut self, now: Instant) -> Option<Expired> {
        let passed = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        let mut expired = None;
        if let Some(Successor { sqe, data, until }) = self.successor.take() {
            self.connect(sqe, data, until, now);
        }
        if passed(self.handshake) {
            expired = Some(Expired::Handshake);
            self.ending = Ending::Now;
        }
        if let Some(connected) = &self.connected {
            // A queue that drains reads nothing, so it cannot tell whether the host is alive.
            if self.ending == Ending::No
                && connected.qid == 0
                && passed(connected.controller.expiry())
            {
                expired = Some(Expired::KeepAlive);
                self.ending = Ending::Now;
            } else if connected.queue.is_ended() || connected.controller.is_dead() {
                self.ending = Ending::Now;
            }
        }
        self.completions();
        if self.target.is_closing() && self.ending == Ending::No {
            self.ending = Ending::Draining;
        }
        expired
    }

    /// Ends a draining queue once none of its commands executes. Call when the transport holds no command that waits to be executed.
    pub fn drain(&mut self) {
        let has_queues = match &self.connected {
            // The end of the admin queue would end the I/O queues, whose commands are to end first.
            Some(connected) if connected.qid == 0 => {
                !connected.controller.state().queues.is_empty()
            }
            _ => false,
        };
        if self.ending == Ending::Draining && self.executing == 0 && !has_queues {
            self.ending = Ending::Sending;
        }
    }

    /// The transport sends the output that waits, and then closes the connection.
    pub fn end(&mut self) {
        self.ending = Ending::Sending;
    }

    /// The transport closes the connection at once.
    pub fn end_now(&mut self) {
        self.ending = Ending::Now;
    }

    /// Whether the host has enabled its controller, and not shut it down since.
    pub fn is_active(&self) -> bool {
        let connected = self.connected.as_ref();
        connected.is_some_and(|connected| connected.controller.is_active())
    }

    /// Whether the queue takes commands.
    pub fn takes_commands(&self) -> bool {
        self.ending == Ending::No
    }

    /// Whether only the output that already waits is still to be sent.
    pub fn is_ending(&self) -> bool {
        matches!(self.ending, Ending::Sending | Ending::Now)
    }

    /// Whether the transport is to close the connection. `has_output`: whether output waits.
    pub fn is_finished(&self, has_output: bool) -> bool {
        match self.ending {
            Ending::No | Ending::Draining => false,
            Ending::Sending => !has_output,
            Ending::Now => true,
        }
    }
}

impl Drop for TargetQueue {
    fn drop(&mut self) {
        self.target.unregister(self.id);
        self.target.memory.end(self.id, self.held);
        let Some(connected) = &self.connected else {
            return;
        };
        // The results of the commands in flight have no receiver.
        connected.queue.cancel();
        if connected.qid == 0 {
            self.target.destroy(&connected.controller);
            return;
        }
        let mut state = connected.controller.state();
        let own = state.queues.get(&connected.qid);
        if own.is_some_and(|queue| Arc::ptr_eq(queue, &connected.queue)) {
            state.queues.remove(&connected.qid);
        }
        let successors = std::mem::take(&mut state.successors);
        drop(state);
        successors.iter().for_each(|wake| wake());
        // An admin queue that drains waits for its I/O queues.
        connected.controller.admin.wake();
    }
}

/// Data transfer of a command: bits 1:0 of the opcode, or of the type of a Fabrics command.
fn transfer_bits(sqe: &Sqe) -> u8 {
    match sqe.opcode {
        FABRICS_OPCODE => sqe.nsid.get() as u8 & 3,
        opcode => opcode & 3,
    }
}

/// Whether a command's data, if it has any, go to the controller.
pub fn is_to_controller(sqe: &Sqe) -> bool {
    transfer_bits(sqe) == 1
}

/// Prepares an I/O command: separates data and metadata of extended LBAs, and leaves out what follows a list of ranges.
fn io(controller: &FabricsController, sqe: Sqe, length: u32, mut data: Vec<u8>) -> Answer {
    let mut metadata = Vec::new();
    if let Some(namespace) = controller.namespace(sqe.nsid.get())
        && let Ok(command) = Command::parse(&sqe)
    {
        match command {
            Command::Read(io) => {
                let needed = namespace.data_len(io.blocks) + namespace.metadata_len(io.blocks);
                if u64::from(length) < needed {
                    let (cid, status) = (sqe.cid.get(), Status::DATA_SGL_LENGTH_INVALID);
                    return Answer::Done(Response::failure(cid, status, true));
                }
            }
            Command::Write(_) | Command::Compare(_) if namespace.metadata_size() > 0 => {
                (data, metadata) = namespace.separate(&data);
            }
            // Linux sends a list of 256 ranges, however few of them it uses.
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
