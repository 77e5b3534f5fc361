//! The host's side of one connection, without I/O: it turns commands into bytes, and bytes into completions.

use std::collections::{HashMap, VecDeque};

use crate::fabrics::Sgl;
use crate::tcp::error::ConnectionError;
use crate::tcp::pdu::{
    ADMIN_IN_CAPSULE, Agreed, Digests, Header, Initialize, ProtocolError, termination,
};
use crate::tcp::stream::{Item, Receiver, Sender};
use crate::{Cqe, Response, Sqe, Status};

/// Most bytes of an H2CData PDU, whatever the controller allows.
const MAX_HOST_DATA: usize = 1 << 20;

struct Pending {
    /// Data to the controller.
    data: Vec<u8>,
    /// Data from the controller.
    received: Vec<u8>,
    /// Bytes that the host has room for.
    expected: usize,
    /// End of the data that the controller has asked for.
    asked: usize,
    intact: bool,
}

/// The data of the PDU that is arriving.
struct Incoming {
    cid: u16,
    last: bool,
    success: bool,
}

/// The connection of one queue, seen from the host.
///
/// The socket's task writes [`Connection::output`], reads into [`Connection::space`], calls [`Connection::received`], and takes
/// [`Connection::completed`], until [`Connection::error`] says why it is over.
pub struct Connection {
    receiver: Receiver,
    sender: Sender,
    agreed: Agreed,
    digests: Digests,
    open: bool,
    max_host_data: usize,
    in_capsule: usize,
    entries: usize,
    next_cid: u16,
    pending: HashMap<u16, Pending>,
    incoming: Option<Incoming>,
    completed: VecDeque<(u16, Response)>,
    error: Option<ConnectionError>,
}

impl Connection {
    /// A fresh connection for a queue of `entries` entries, at least 2.
    pub fn new(digests: Digests, entries: u16) -> Connection {
        let mut connection = Connection {
            receiver: Receiver::new(),
            sender: Sender::default(),
            agreed: Agreed::default(),
            digests,
            open: false,
            max_host_data: 0,
            in_capsule: ADMIN_IN_CAPSULE,
            entries: usize::from(entries),
            next_cid: 0,
            pending: HashMap::new(),
            incoming: None,
            completed: VecDeque::new(),
            error: None,
        };
        let request = Header::InitializeRequest(Initialize {
            version: 0,
            alignment: 0,
            header_digest: digests.header,
            data_digest: digests.data,
            // One R2T per command at a time.
            limit: 0,
        });
        connection
            .sender
            .push(&request, Vec::new(), &Agreed::default());
        connection
    }

    /// Sets how many bytes of data go in the capsule, from the controller's IOCCSZ.
    pub fn set_in_capsule(&mut self, bytes: usize) {
        self.in_capsule = bytes;
    }

    /// Whether another command fits into the queue now.
    pub fn has_room(&self) -> bool {
        // A full submission queue has one entry free.
        self.open && self.error.is_none() && self.pending.len() + 1 < self.entries
    }

    /// Commands in flight.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Submits a command with its data, or with room for `expected` bytes; call only while [`Connection::has_room`]. Returns the
    /// identifier that its completion will have.
    pub fn submit(&mut self, mut sqe: Sqe, data: Vec<u8>, expected: usize) -> u16 {
        while self.pending.contains_key(&self.next_cid) {
            self.next_cid = self.next_cid.wrapping_add(1);
        }
        let cid = self.next_cid;
        self.next_cid = cid.wrapping_add(1);
        sqe.cid = cid.into();
        // PSDT: SGLs.
        sqe.flags = sqe.flags & 0x3F | 0x40;
        let in_capsule = !data.is_empty() && data.len() <= self.in_capsule;
        let sgl = if in_capsule {
            Sgl::InCapsule {
                offset: 0,
                length: data.len() as u32,
            }
        } else {
            Sgl::Transport {
                length: data.len().max(expected) as u32,
            }
        };
        sqe.dptr = sgl.to_bytes();
        let (now, later) = if in_capsule {
            (data, Vec::new())
        } else {
            (Vec::new(), data)
        };
        self.sender.push(&Header::Command(sqe), now, &self.agreed);
        self.pending.insert(
            cid,
            Pending {
                data: later,
                received: Vec::new(),
                expected,
                asked: 0,
                intact: true,
            },
        );
        cid
    }

    /// Where input goes.
    pub fn space(&mut self) -> &mut [u8] {
        self.receiver.space()
    }

    /// `count` bytes have arrived; 0 for the end of the stream.
    pub fn received(&mut self, count: usize) {
        if count == 0 {
            self.error.get_or_insert(ConnectionError::CutOff);
            return;
        }
        if self.receiver.filled(count) {
            self.receiver.grow();
        }
        while self.error.is_none() {
            let result = match self.receiver.next(&self.agreed) {
                Ok(None) => break,
                Ok(Some(Item::Header { header, data })) => self.header(header, data),
                Ok(Some(Item::Data(data))) => {
                    if let Some(incoming) = &self.incoming
                        && let Some(pending) = self.pending.get_mut(&incoming.cid)
                    {
                        pending.received.extend_from_slice(data);
                    }
                    Ok(())
                }
                Ok(Some(Item::DataEnd { intact })) => {
                    self.data_end(intact);
                    Ok(())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                if !matches!(error, ProtocolError::Terminated { .. }) {
                    let request = termination(error, true, self.receiver.latest_header());
                    self.sender.push_bytes(&request);
                }
                self.error = Some(error.into());
            }
        }
    }

    /// The stream has ended, and the controller has not announced it though it is encrypted.
    pub(super) fn cut(&mut self) {
        self.error.get_or_insert(ConnectionError::Unannounced);
    }

    fn header(&mut self, header: Header, data: usize) -> Result<(), ProtocolError> {
        let sequence = Err(ProtocolError::Sequence {
            kind: header.kind(),
        });
        match header {
            Header::InitializeResponse(response) if !self.open => self.initialized(response),
            Header::Terminate {
                from_host: false,
                fes,
                fei,
            } => Err(ProtocolError::Terminated { fes, fei }),
            _ if !self.open => sequence,
            Header::Response(cqe) => self.response(cqe),
            Header::ControllerData {
                cid,
                offset,
                length,
                last,
                success,
            } => {
                let pending = self.pending.get_mut(&cid);
                let pending = pending.ok_or(ProtocolError::Header { offset: 8 })?;
                if length as usize != data || success && !last {
                    return Err(ProtocolError::Header { offset: 16 });
                }
                let end = u64::from(offset) + u64::from(length);
                if offset as usize != pending.received.len() || end > pending.expected as u64 {
                    return Err(ProtocolError::DataRange);
                }
                if offset == 0 {
                    pending.received.reserve_exact(pending.expected);
                }
                self.incoming = Some(Incoming { cid, last, success });
                if data == 0 {
                    self.data_end(true);
                }
                Ok(())
            }
            Header::ReadyToTransfer {
                cid,
                tag,
                offset,
                length,
            } => self.transfer(cid, tag, offset, length),
            _ => sequence,
        }
    }

    fn initialized(&mut self, response: Initialize) -> Result<(), ProtocolError> {
        if response.version != 0 {
            return Err(ProtocolError::Unsupported { offset: 8 });
        }
        if response.alignment > 31 {
            return Err(ProtocolError::Header { offset: 10 });
        }
        let digests = Digests {
            header: response.header_digest,
            data: response.data_digest,
        };
        if digests != self.digests {
            return Err(ProtocolError::Unsupported { offset: 11 });
        }
        if response.limit < 4096 {
            return Err(ProtocolError::Header { offset: 12 });
        }
        self.agreed = Agreed {
            header_digest: digests.header,
            data_digest: digests.data,
            alignment: (usize::from(response.alignment) + 1) * 4,
        };
        // The transport wants multiples of 4 bytes.
        self.max_host_data = (response.limit as usize).min(MAX_HOST_DATA) & !3;
        self.open = true;
        Ok(())
    }

    fn transfer(
        &mut self,
        cid: u16,
        tag: u16,
        offset: u32,
        length: u32,
    ) -> Result<(), ProtocolError> {
        let pending = self.pending.get_mut(&cid);
        let pending = pending.ok_or(ProtocolError::Header { offset: 8 })?;
        let (start, len) = (offset as usize, length as usize);
        // No byte twice: otherwise a controller could make the host send far more than the command has.
        let wanted = start
            .checked_add(len)
            .filter(|_| start >= pending.asked)
            .and_then(|end| pending.data.get(start..end));
        let Some(wanted) = wanted.filter(|wanted| !wanted.is_empty()) else {
            return Err(ProtocolError::DataRange);
        };
        pending.asked = start + len;
        let pieces = wanted.len().div_ceil(self.max_host_data);
        // Usually one PDU takes everything, and nothing is copied.
        let mut whole = Vec::new();
        if pieces == 1 && wanted.len() == pending.data.len() {
            whole = std::mem::take(&mut pending.data);
        }
        let chunks: Vec<Vec<u8>> = if whole.is_empty() {
            let chunks = pending.data[start..start + len].chunks(self.max_host_data);
            chunks.map(<[u8]>::to_vec).collect()
        } else {
            vec![whole]
        };
        let mut at = offset;
        for (i, chunk) in chunks.into_iter().enumerate() {
            let length = chunk.len() as u32;
            let header = Header::HostData {
                cid,
                tag,
                offset: at,
                length,
                last: i + 1 == pieces,
            };
            self.sender.push(&header, chunk, &self.agreed);
            at += length;
        }
        Ok(())
    }

    fn data_end(&mut self, intact: bool) {
        let Some(incoming) = self.incoming.take() else {
            return;
        };
        if let Some(pending) = self.pending.get_mut(&incoming.cid) {
            pending.intact &= intact;
        }
        if incoming.last && incoming.success {
            self.finish(Cqe::success(incoming.cid));
        }
    }

    fn response(&mut self, cqe: Cqe) -> Result<(), ProtocolError> {
        if !self.pending.contains_key(&cqe.cid.get()) {
            return Err(ProtocolError::Header { offset: 20 });
        }
        self.finish(cqe);
        Ok(())
    }

    fn finish(&mut self, mut cqe: Cqe) {
        let cid = cqe.cid.get();
        let Some(pending) = self.pending.remove(&cid) else {
            return;
        };
        if !pending.intact {
            cqe = Cqe::new(cid, Status::TRANSIENT_TRANSPORT_ERROR, false);
        }
        let data = if cqe.status().is_success() {
            pending.received
        } else {
            Vec::new()
        };
        let response = Response {
            cqe,
            data,
            metadata: Vec::new(),
        };
        self.completed.push_back((cid, response));
    }

    /// The next completion, with the identifier of its command.
    pub fn completed(&mut self) -> Option<(u16, Response)> {
        self.completed.pop_front()
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
    pub fn sent(&mut self, count: usize) {
        self.sender.advance(count);
    }

    /// Why the connection is over, if it is.
    pub fn error(&self) -> Option<&ConnectionError> {
        self.error.as_ref()
    }
}
