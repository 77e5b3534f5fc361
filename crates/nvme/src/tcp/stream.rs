//! The byte streams of a connection: PDUs are parsed piece by piece as they arrive, and queued for sending.

use std::collections::VecDeque;
use std::io::IoSlice;

use super::pdu::{Agreed, COMMON, DIGEST, Frame, Header, ProtocolError};

/// First size of the input buffer; it grows for peers that fill it.
const LEAST_INPUT: usize = 16 << 10;
/// Largest size of the input buffer.
const MOST_INPUT: usize = 256 << 10;
/// Data up to this many bytes are copied behind their header: sending one buffer costs less than sending two.
const COPIED: usize = 8 << 10;
/// Most pieces that one call sends.
const MAX_PIECES: usize = 64;

/// A piece of the input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// A PDU's header; `data` bytes of data follow, then [`Item::DataEnd`] if there were any.
    Header { header: Header, data: usize },
    /// Data of the PDU.
    Data(&'a [u8]),
    /// The end of a PDU's data, and whether they match their digest.
    DataEnd { intact: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Header,
    Data { left: usize, crc: u32, digest: bool },
}

/// Parses PDUs as they arrive.
#[derive(Debug)]
pub(crate) struct Receiver {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    state: State,
    /// Header of the latest PDU, for a termination request.
    latest: Vec<u8>,
}

impl Receiver {
    pub(crate) fn new() -> Receiver {
        Receiver {
            buffer: vec![0; LEAST_INPUT],
            start: 0,
            end: 0,
            state: State::Header,
            latest: Vec::new(),
        }
    }

    /// Where the next bytes go; never empty once [`Receiver::next`] has returned every complete piece.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    /// The first `count` bytes of [`Receiver::space`] have arrived. Returns whether a larger buffer would be of use.
    pub(crate) fn filled(&mut self, count: usize) -> bool {
        self.end = (self.end + count).min(self.buffer.len());
        self.end == self.buffer.len() && self.buffer.len() < MOST_INPUT
    }

    /// Enlarges the buffer.
    pub(crate) fn grow(&mut self) {
        self.buffer.resize(self.buffer.len() * 2, 0);
    }

    /// Returns memory that a peer which sends nothing does not need.
    pub(crate) fn shrink(&mut self) {
        if self.start == self.end && self.buffer.len() > LEAST_INPUT {
            *self = Receiver {
                state: self.state,
                latest: std::mem::take(&mut self.latest),
                ..Receiver::new()
            };
        }
    }

    /// Bytes of the buffer.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes of the buffer beyond its first size.
    pub(crate) fn extra(&self) -> usize {
        self.buffer.len() - LEAST_INPUT
    }

    /// Header of the latest PDU.
    pub(crate) fn latest_header(&self) -> &[u8] {
        &self.latest
    }

    /// Whether part of a PDU has arrived.
    pub(crate) fn is_within_pdu(&self) -> bool {
        self.start != self.end || self.state != State::Header
    }

    /// The next piece, if it has arrived.
    pub(crate) fn next(&mut self, agreed: &Agreed) -> Result<Option<Item<'_>>, ProtocolError> {
        let pending = &self.buffer[self.start..self.end];
        match self.state {
            State::Header => {
                let Some((common, _)) = pending.split_first_chunk::<COMMON>() else {
                    return Ok(None);
                };
                let parsed = Frame::parse(common, agreed);
                if parsed.is_err() {
                    self.latest = common.to_vec();
                }
                let frame = parsed?;
                if pending.len() < frame.data_offset {
                    return Ok(None);
                }
                let header = frame.header(pending);
                self.latest.clear();
                self.latest.extend_from_slice(&pending[..frame.header]);
                let header = header?;
                self.start += frame.data_offset;
                if frame.data > 0 {
                    self.state = State::Data {
                        left: frame.data,
                        crc: 0,
                        digest: frame.data_digest,
                    };
                }
                Ok(Some(Item::Header {
                    header,
                    data: frame.data,
                }))
            }
            State::Data {
                left: 0,
                crc,
                digest,
            } => {
                let mut intact = true;
                if digest {
                    let Some((found, _)) = pending.split_first_chunk::<DIGEST>() else {
                        return Ok(None);
                    };
                    intact = u32::from_le_bytes(*found) == crc;
                    self.start += DIGEST;
                }
                self.state = State::Header;
                Ok(Some(Item::DataEnd { intact }))
            }
            State::Data { left, crc, digest } => {
                let now = left.min(pending.len());
                if now == 0 {
                    return Ok(None);
                }
                let from = self.start;
                self.start += now;
                let data = &self.buffer[from..from + now];
                let crc = if digest {
                    crc32c::crc32c_append(crc, data)
                } else {
                    0
                };
                self.state = State::Data {
                    left: left - now,
                    crc,
                    digest,
                };
                Ok(Some(Item::Data(data)))
            }
        }
    }
}

/// PDUs to send.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    pieces: VecDeque<Vec<u8>>,
    /// Whether headers may be appended to the last piece.
    open: bool,
    /// Bytes of the first piece that are sent.
    sent: usize,
    queued: usize,
    spare: Vec<u8>,
}

impl Sender {
    /// Queues a PDU with its data.
    pub(crate) fn push(&mut self, header: &Header, data: Vec<u8>, agreed: &Agreed) {
        let digest = (agreed.data_digest && !data.is_empty()).then(|| crc32c::crc32c(&data));
        let len = data.len();
        self.append(|out| {
            header.put(len, agreed, out);
            if len <= COPIED {
                out.extend_from_slice(&data);
            }
        });
        if len > COPIED {
            self.queued += len;
            self.pieces.push_back(data);
            self.open = false;
        }
        if let Some(digest) = digest {
            self.append(|out| out.extend_from_slice(&digest.to_le_bytes()));
        }
    }

    /// Queues bytes as they are.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        self.append(|out| out.extend_from_slice(bytes));
    }

    fn append(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        if !self.open {
            let piece = std::mem::take(&mut self.spare);
            self.pieces.push_back(piece);
            self.open = true;
        }
        if let Some(piece) = self.pieces.back_mut() {
            let before = piece.len();
            put(piece);
            self.queued += piece.len() - before;
        }
    }

    /// Bytes that wait to be sent.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// Returns memory that is kept for later output.
    pub(crate) fn shrink(&mut self) {
        self.spare = Vec::new();
    }

    /// Bytes that are kept for later output.
    pub(crate) fn extra(&self) -> usize {
        self.spare.capacity()
    }

    /// The next pieces, for a vectored write.
    pub(crate) fn pieces(&self) -> Vec<IoSlice<'_>> {
        let pieces = self.pieces.iter().take(MAX_PIECES).enumerate();
        pieces
            .map(|(i, piece)| match i {
                0 => IoSlice::new(piece.get(self.sent..).unwrap_or_default()),
                _ => IoSlice::new(piece),
            })
            .collect()
    }

    /// The first `count` waiting bytes are sent.
    pub(crate) fn advance(&mut self, count: usize) {
        self.queued -= count.min(self.queued);
        self.sent += count;
        while let Some(first) = self.pieces.front() {
            if self.sent < first.len() {
                break;
            }
            self.sent -= first.len();
            if let Some(mut piece) = self.pieces.pop_front() {
                // Reusing a buffer costs less than growing a new one for every batch.
                if piece.capacity() > self.spare.capacity() && piece.capacity() <= MOST_INPUT {
                    piece.clear();
                    self.spare = piece;
                }
            }
            if self.pieces.is_empty() {
                self.open = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cqe, Sqe};
    use proptest::prelude::*;

    fn agreed() -> impl Strategy<Value = Agreed> {
        (any::<bool>(), any::<bool>(), 1..5usize).prop_map(|(header_digest, data_digest, units)| {
            Agreed {
                header_digest,
                data_digest,
                alignment: 4 * units,
            }
        })
    }

    #[derive(Clone, Debug, PartialEq)]
    struct Whole {
        header: Header,
        data: Vec<u8>,
        intact: bool,
    }

    fn receive(
        stream: &[u8],
        steps: &[usize],
        agreed: &Agreed,
    ) -> Result<Vec<Whole>, ProtocolError> {
        let mut receiver = Receiver::new();
        let mut got: Vec<Whole> = Vec::new();
        let (mut at, mut steps) = (0, steps.iter().cycle());
        while at < stream.len() {
            let space = receiver.space();
            let now = space
                .len()
                .min(*steps.next().unwrap())
                .min(stream.len() - at);
            space[..now].copy_from_slice(&stream[at..at + now]);
            if receiver.filled(now) {
                receiver.grow();
            }
            at += now;
            while let Some(item) = receiver.next(agreed)? {
                match item {
                    Item::Header { header, .. } => got.push(Whole {
                        header,
                        data: Vec::new(),
                        intact: true,
                    }),
                    Item::Data(data) => got.last_mut().unwrap().data.extend_from_slice(data),
                    Item::DataEnd { intact } => got.last_mut().unwrap().intact = intact,
                }
            }
        }
        assert!(!receiver.is_within_pdu());
        receiver.shrink();
        assert_eq!(receiver.extra(), 0);
        Ok(got)
    }

    fn send(pdus: &[Whole], writes: &[usize], agreed: &Agreed) -> Vec<u8> {
        let mut sender = Sender::default();
        for pdu in pdus {
            sender.push(&pdu.header, pdu.data.clone(), agreed);
        }
        let mut stream = Vec::new();
        for limit in writes.iter().cycle() {
            let mut left = *limit;
            let mut taken = 0;
            for piece in sender.pieces() {
                let now = piece.len().min(left);
                stream.extend_from_slice(&piece[..now]);
                left -= now;
                taken += now;
            }
            sender.advance(taken);
            if sender.queued() == 0 {
                break;
            }
        }
        stream
    }

    fn pdu() -> impl Strategy<Value = Whole> {
        let data = prop_oneof![1..200usize, 8000..8400usize, 100_000..300_000usize];
        (0..4u8, any::<u16>(), data).prop_map(|(which, cid, len)| {
            let length = len as u32;
            let (header, len) = match which {
                0 => (Header::Command(Sqe::write(cid, 1, 0, 0)), len),
                1 => (Header::Response(Cqe::success(cid)), 0),
                2 => (
                    Header::HostData {
                        cid,
                        tag: 1,
                        offset: 0,
                        length,
                        last: true,
                    },
                    len,
                ),
                _ => (Header::Command(Sqe::flush(cid, 1)), 0),
            };
            let data = (0..len).map(|i| (i * 7 + usize::from(cid)) as u8).collect();
            Whole {
                header,
                data,
                intact: true,
            }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn pdus_survive_any_fragmentation(
            pdus in prop::collection::vec(pdu(), 1..6),
            agreed in agreed(),
            writes in prop::collection::vec(1..200_000usize, 1..5),
            reads in prop::collection::vec(1..200_000usize, 1..5),
        ) {
            let stream = send(&pdus, &writes, &agreed);
            prop_assert_eq!(receive(&stream, &reads, &agreed).unwrap(), pdus);
        }
    }

    #[test]
    fn one_byte_at_a_time_and_damage() {
        let agreed = Agreed {
            header_digest: true,
            data_digest: true,
            alignment: 16,
        };
        let pdus = [Whole {
            header: Header::Command(Sqe::write(9, 1, 0, 0)),
            data: vec![5; 300],
            intact: true,
        }];
        let mut stream = send(&pdus, &[1], &agreed);
        assert_eq!(receive(&stream, &[1], &agreed).unwrap(), pdus);
        *stream.last_mut().unwrap() ^= 1;
        assert!(!receive(&stream, &[1], &agreed).unwrap()[0].intact);
        stream[40] ^= 1;
        assert!(receive(&stream, &[1], &agreed).is_err());
    }
}
