//! The controller's side of one connection, without I/O: the initialization, then the PDUs of one queue.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::fabrics::{
    Action, Port, Reply, SecureChannel, Sgl, Target, TargetQueue, Ticket, Wake, is_to_controller,
};
use crate::tcp::error::ConnectionError;
use crate::tcp::pdu::{ADMIN_IN_CAPSULE, Agreed, Header, Initialize, ProtocolError, termination};
use crate::tcp::stream::{Item, Receiver, Sender};
use crate::{Response, Sqe, Status};

/// Transport type (TRTYPE) of TCP.
const TRTYPE: u8 = 3;
/// How long a connection must be idle to return memory.
const IDLE: Duration = Duration::from_secs(2);
/// Most bytes of data in an H2CData PDU.
const MAX_HOST_DATA: u32 = 128 << 10;
/// Bytes of waiting output above which no further input is read.
const MAX_QUEUED: usize = 4 << 20;
/// Bytes that a peer must take for its connection not to count as stalled, unless it takes all there are.
const PROGRESS: usize = 64 << 10;

/// The port of a listener, or of a connection that it has accepted.
pub(super) fn port(local: SocketAddr) -> Port {
    Port {
        trtype: TRTYPE,
        address: SocketAddr::new(local.ip().to_canonical(), local.port()),
    }
}

/// A command whose completion has not been sent.
struct Outstanding {
    sqe: Sqe,
    /// Bytes that its host has room for or sends.
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
    /// The queue executes it.
    Executing,
}

/// The data of the PDU that is arriving.
#[derive(Clone, Copy)]
struct Incoming {
    cid: u16,
    /// The command's data end with this PDU.
    last: bool,
    /// The command has failed with this status, so its data are dropped. Its completion follows the last of them: until then its identifier is
    /// in use.
    refused: Option<Status>,
}

/// One connection of a host: a state machine that takes bytes and produces bytes.
///
/// The socket's task reads into [`Connection::space`] while [`Connection::wants_input`], calls [`Connection::received`], executes every
/// [`Connection::action`], returns the results to [`Connection::complete`], writes [`Connection::output`], and calls [`Connection::tick`] at
/// [`Connection::deadline`] and whenever `wake` was called; until [`Connection::is_finished`].
pub struct Connection {
    queue: TargetQueue,
    receiver: Receiver,
    sender: Sender,
    agreed: Agreed,
    /// ICReq has arrived.
    open: bool,
    commands: HashMap<u16, Outstanding>,
    waiting: VecDeque<u16>,
    charged: usize,
    /// Bytes of the session of an encrypted connection.
    session: usize,
    /// Those of them for data that the host still sends.
    expected: usize,
    incoming: Option<Incoming>,
    /// When the peer last took output, if some waits.
    progress: Instant,
    /// Bytes taken since.
    taken: usize,
    /// When the peer last sent anything.
    heard: Instant,
    error: Option<ConnectionError>,
}

impl Connection {
    /// A connection that has just been accepted at `local`.
    pub fn new(target: Arc<Target>, local: SocketAddr, wake: Wake, now: Instant) -> Connection {
        Connection {
            queue: TargetQueue::new(target, port(local), wake, now),
            receiver: Receiver::new(),
            sender: Sender::default(),
            agreed: Agreed::default(),
            open: false,
            commands: HashMap::new(),
            waiting: VecDeque::new(),
            charged: 0,
            session: 0,
            expected: 0,
            incoming: None,
            progress: now,
            taken: 0,
            heard: now,
            error: None,
        }
    }

    /// The connection is about to be encrypted, by a session of so many bytes.
    pub(super) fn begin_session(&mut self, bytes: usize) {
        self.session = bytes;
        self.account();
    }

    /// The connection is encrypted, and a key has proved its two ends.
    pub fn secure(&mut self, channel: Arc<SecureChannel>) {
        self.queue.secure(channel);
    }

    /// Whether more input is of use. Not while too much output waits, or while commands that need no input hold more than the connection's
    /// share of the memory.
    pub fn wants_input(&self) -> bool {
        let busy = self.bytes_held() - self.expected;
        let has_room = || self.sender.queued() < MAX_QUEUED && self.queue.has_room(0, busy);
        self.queue.takes_commands() && (busy == 0 || has_room())
    }

    /// Where input goes.
    pub fn space(&mut self) -> &mut [u8] {
        self.receiver.space()
    }

    /// `count` bytes have arrived; 0 for the end of the stream.
    pub fn received(&mut self, count: usize, now: Instant) {
        if count == 0 {
            if self.receiver.is_within_pdu() {
                self.error = Some(ConnectionError::CutOff);
            }
            return self.broken();
        }
        self.heard = now;
        if self.receiver.filled(count) && self.queue.has_room(self.memory(), self.receiver.len()) {
            self.receiver.grow();
        }
        self.begin_progress(now);
        self.process(now);
        self.account();
    }

    /// The stream has ended, and the host has not announced it though it is encrypted. Hosts that never do, as Linux, end an I/O queue without
    /// commands, and the admin queue of a controller that they have shut down or reset: there is nothing to cut off.
    pub(super) fn cut(&mut self) {
        let is_under_way = if self.queue.is_io() {
            !self.commands.is_empty()
        } else {
            self.queue.is_active()
        };
        if is_under_way || self.receiver.is_within_pdu() {
            self.error = Some(ConnectionError::Unannounced);
        }
        self.broken();
    }

    /// Bytes that the connection takes up beyond what every connection needs.
    fn memory(&self) -> usize {
        self.bytes_held() + self.receiver.extra() + self.sender.extra() + self.session
    }

    fn account(&mut self) {
        self.queue.hold(self.memory());
    }

    /// The time for a stall starts with the first waiting output.
    fn begin_progress(&mut self, now: Instant) {
        if !self.has_output() {
            self.progress = now;
        }
    }

    fn process(&mut self, now: Instant) {
        while self.queue.takes_commands() {
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
        // Commands that completed at once have made room for others.
        self.admit(now);
        self.abandon();
    }

    /// Ends the connection for a protocol error.
    fn fail(&mut self, error: ProtocolError) {
        if !matches!(error, ProtocolError::Terminated { .. }) {
            let request = termination(error, false, self.receiver.latest_header());
            self.sender.push_bytes(&request);
        }
        self.error = Some(error.into());
        self.queue.end();
    }

    fn header(&mut self, header: Header, data: usize, now: Instant) -> Result<(), ProtocolError> {
        match header {
            Header::InitializeRequest(request) => self.initialize(request),
            Header::Terminate {
                from_host: true,
                fes,
                fei,
            } => Err(ProtocolError::Terminated { fes, fei }),
            Header::Command(sqe) if self.open => self.command(sqe, data, now),
            Header::HostData {
                cid,
                tag,
                offset,
                length,
                last,
            } if self.open => self.host_data((cid, tag), (offset, length), data, last),
            _ => Err(ProtocolError::Sequence {
                kind: header.kind(),
            }),
        }
    }

    fn initialize(&mut self, request: Initialize) -> Result<(), ProtocolError> {
        if self.open {
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
        self.open = true;
        Ok(())
    }

    /// Bytes of data in a command capsule; an admin queue takes as many as every controller does.
    fn most_in_capsule(&self) -> usize {
        let limit = self.queue.target().limits().in_capsule_bytes as usize;
        if self.queue.is_io() {
            limit
        } else {
            limit.max(ADMIN_IN_CAPSULE)
        }
    }

    fn command(&mut self, sqe: Sqe, capsule: usize, now: Instant) -> Result<(), ProtocolError> {
        let cid = sqe.cid.get();
        self.queue.seen(now);
        if self.commands.contains_key(&cid) && self.queue.forget_event_request(cid) {
            self.commands.remove(&cid);
        }
        if self.commands.len() >= usize::from(self.queue.entries()) {
            return Err(ProtocolError::DataLimit);
        }
        if capsule > self.most_in_capsule() {
            return Err(ProtocolError::DataLimit);
        }
        if self.commands.contains_key(&cid) {
            // A completion would be that of the other command with this identifier.
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
                self.expected += capsule;
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
            (_, Err(status)) => self.refuse(cid, status, true),
            (Progress::Waiting, Ok(_)) => {
                self.waiting.push_back(cid);
                self.admit(now);
                if self.waiting.back() == Some(&cid) {
                    self.queue.wait(cid);
                }
            }
            (Progress::Executing, Ok(_)) => self.execute(cid, now),
        }
        Ok(())
    }

    /// Bytes of a command's data, from its descriptor; fails if the descriptor does not fit the capsule or the command.
    fn check_transfer(&self, sqe: &Sqe, capsule: usize) -> Result<u32, Status> {
        let sgl = Sgl::parse(&sqe.dptr)?;
        match sgl {
            Sgl::InCapsule { offset, length } => {
                if !is_to_controller(sqe) {
                    return Err(Status::SGL_TYPE_INVALID);
                }
                if offset != 0 || length as usize != capsule {
                    return Err(Status::SGL_OFFSET_INVALID);
                }
            }
            Sgl::Transport { .. } if capsule > 0 => return Err(Status::DATA_SGL_LENGTH_INVALID),
            Sgl::Transport { .. } => {}
        }
        self.queue.check_length(sqe, sgl.length())
    }

    /// Starts waiting commands, in their order, as long as there is room for their data.
    fn admit(&mut self, now: Instant) {
        if self.queue.is_ending() {
            return;
        }
        while let Some(cid) = self.waiting.front().copied() {
            let length = self.commands.get(&cid).map_or(0, |command| command.length) as usize;
            // Output that waits counts too.
            if !self.queue.has_room(self.bytes_held(), length) {
                break;
            }
            self.waiting.pop_front();
            if !self.queue.admit(cid) {
                self.refuse(cid, Status::ABORT_REQUESTED, false);
                continue;
            }
            let Some(command) = self.commands.get_mut(&cid) else {
                continue;
            };
            command.charged = length;
            self.charged += length;
            if is_to_controller(&command.sqe) {
                command.data.reserve_exact(length);
                command.progress = Progress::Receiving;
                self.expected += length;
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
        self.expected -= command.charged;
        if let Some(status) = refused {
            self.refuse(cid, status, true);
        } else if command.intact {
            self.execute(cid, now);
        } else {
            self.refuse(cid, Status::TRANSIENT_TRANSPORT_ERROR, false);
        }
    }

    /// All the data of a command have arrived.
    fn execute(&mut self, cid: u16, now: Instant) {
        let Some(command) = self.commands.get_mut(&cid) else {
            return;
        };
        command.progress = Progress::Executing;
        let data = std::mem::take(&mut command.data);
        self.queue.execute(command.sqe, command.length, data, now);
        self.send_replies();
    }

    fn refuse(&mut self, cid: u16, status: Status, do_not_retry: bool) {
        self.queue.refuse(cid, status, do_not_retry);
        self.send_replies();
    }

    /// Sends the completions of the queue, with their data.
    fn send_replies(&mut self) {
        while let Some(reply) = self.queue.reply() {
            let Reply {
                cqe,
                data,
                success_with_data,
            } = reply;
            let cid = cqe.cid.get();
            if let Some(command) = self.commands.remove(&cid) {
                self.charged -= command.charged;
            }
            if !data.is_empty() {
                let header = Header::ControllerData {
                    cid,
                    offset: 0,
                    length: data.len() as u32,
                    last: true,
                    success: success_with_data,
                };
                self.sender.push(&header, data, &self.agreed);
            }
            if !success_with_data {
                let header = Header::Response(cqe);
                self.sender.push(&header, Vec::new(), &self.agreed);
            }
        }
    }

    /// Work for a task, if there is any.
    pub fn action(&mut self) -> Option<Action> {
        self.queue.action()
    }

    /// Commands in flight, including those that wait for an event.
    pub fn in_flight(&self) -> usize {
        self.commands.len()
    }

    /// Bytes that commands in flight and waiting output hold.
    pub fn bytes_held(&self) -> usize {
        self.charged + self.sender.queued()
    }

    /// Whether there is work for a task. Sending makes room for commands that wait, so it may lead to work.
    pub fn has_action(&self) -> bool {
        self.queue.has_action()
    }

    /// Work has ended.
    pub fn complete(&mut self, ticket: Ticket, response: Response, now: Instant) {
        self.begin_progress(now);
        self.queue.complete(ticket, response, now);
        self.send_replies();
        self.admit(now);
        self.drain();
        self.abandon();
        self.account();
    }

    /// Forgets the commands of a queue that has ended, but those that a task still works on.
    fn abandon(&mut self) {
        if !self.queue.is_ending() {
            return;
        }
        self.waiting.clear();
        self.incoming = None;
        let queue = &self.queue;
        self.commands.retain(|cid, _| queue.is_executing(*cid));
        self.charged = self.commands.values().map(|command| command.charged).sum();
        self.expected = 0;
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
        // A peer that takes a few bytes now and then would hold memory for ever.
        if self.taken >= PROGRESS || !self.has_output() {
            self.taken = 0;
            self.progress = now;
        }
        self.admit(now);
        self.drain();
        self.account();
    }

    /// When [`Connection::tick`] is to be called, if nothing else happens before.
    pub fn deadline(&self) -> Option<Instant> {
        let stall = self.has_output().then(|| self.stalls_at());
        [self.queue.deadline(), stall].into_iter().flatten().min()
    }

    fn stalls_at(&self) -> Instant {
        self.progress + self.queue.target().limits().stall
    }

    /// Checks the deadlines, and what others have done to this connection's controller.
    pub fn tick(&mut self, now: Instant) {
        self.begin_progress(now);
        let stalled = self.has_output() && self.stalls_at() <= now;
        if stalled {
            self.queue.end_now();
        }
        let expired = self.queue.tick(now);
        for cid in self.queue.aborted() {
            self.waiting.retain(|waiting| *waiting != cid);
            self.queue.admit(cid);
            self.refuse(cid, Status::ABORT_REQUESTED, false);
        }
        if stalled {
            self.error = Some(ConnectionError::Stalled);
        } else if let Some(expired) = expired {
            self.error = Some(expired.into());
        }
        self.send_replies();
        // There may be room for commands that wait.
        self.admit(now);
        self.drain();
        self.abandon();
        if now.saturating_duration_since(self.heard) >= IDLE {
            self.receiver.shrink();
            self.sender.shrink();
        }
        self.account();
    }

    /// Ends a draining connection once nothing is in flight any more.
    fn drain(&mut self) {
        if self.waiting.is_empty() {
            self.queue.drain();
        }
    }

    /// Whether the socket is to be closed.
    pub fn is_finished(&self) -> bool {
        self.queue.is_finished(self.has_output())
    }

    /// The socket could not be read or written.
    pub fn broken(&mut self) {
        self.queue.end_now();
        self.abandon();
    }

    /// Why the connection ends, if not for an ordinary reason.
    pub fn error(&self) -> Option<&ConnectionError> {
        self.error.as_ref()
    }

    /// The host's NQN and the queue's identifier, after Connect.
    pub fn peer(&self) -> Option<(&str, u16)> {
        self.queue.peer()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.error.is_some() {
            self.queue.target().count_failure();
        }
    }
}
