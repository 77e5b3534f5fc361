//! A host's connection to a controller that answers as it likes. Each command completes once at most, with no more data than it has room
//! for, and the controller cannot have more sent than the commands have.
#![no_main]

use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use toroid_fuzz::pdu::{self, Digests};
use toroid_fuzz::{Input, repeat};
use toroid_nvme::tcp;
use toroid_nvme::tcp::host::Connection;
use toroid_nvme::{Cqe, Sqe, Status};
use zerocopy::IntoBytes;

const ENTRIES: u16 = 8;
/// Most bytes of a command's data, and most steps of one input: what takes longer keeps others from their turn.
const MOST_BYTES: u16 = 0x1FFF;
const MOST_STEPS: usize = 64;

struct Host {
    connection: Connection,
    digests: Digests,
    /// Commands under way: bytes that they have to send, and room for bytes.
    pending: HashMap<u16, (usize, usize)>,
    stream: Vec<u8>,
    /// Bytes of data that came out, and those that may.
    sent: usize,
    given: usize,
}

impl Host {
    fn receive(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = self.connection.space();
            if space.is_empty() {
                assert!(self.connection.error().is_some());
                return;
            }
            let count = bytes.len().min(space.len());
            space[..count].copy_from_slice(&bytes[..count]);
            self.connection.received(count);
            bytes = &bytes[count..];
        }
        while let Some((cid, response)) = self.connection.completed() {
            let pending = self.pending.remove(&cid);
            let (_, room) = pending.expect("a command that is under way");
            assert!(response.data.len() <= room);
            assert_eq!(response.cqe.cid.get(), cid);
            assert!(response.cqe.status().is_success() || response.data.is_empty());
        }
        assert_eq!(self.connection.in_flight(), self.pending.len());
    }

    fn take(&mut self) {
        let mut count = 0;
        for piece in self.connection.output() {
            self.stream.extend_from_slice(&piece);
            count += piece.len();
        }
        self.connection.sent(count);
        // A side that is not open yet, or has failed, uses no digests.
        for parsed in pdu::take(&mut self.stream, self.digests) {
            match parsed.kind {
                pdu::COMMAND | pdu::H2C_DATA => self.sent += parsed.data.len(),
                pdu::IC_REQ => {}
                pdu::H2C_TERM => assert!(self.connection.error().is_some()),
                other => panic!("PDU type {other} from a host"),
            }
        }
        assert!(self.sent <= self.given);
    }

    /// A command that is under way, or any.
    fn cid(&self, choice: u8) -> u16 {
        let mut all: Vec<_> = self.pending.keys().copied().collect();
        all.sort_unstable();
        match all.get(usize::from(choice & 15)) {
            Some(cid) => *cid,
            None => choice.into(),
        }
    }

    fn step(&mut self, input: &mut Input) {
        let operation = input.u8();
        let choice = input.u8();
        let digests = self.digests;
        match operation % 12 {
            0 | 1 => {
                if !self.connection.has_room() {
                    return;
                }
                let len = usize::from(input.u16() & MOST_BYTES);
                let mut sqe = Sqe::read(0, 1, 0, 0);
                sqe.opcode = choice & 15;
                let (data, room) = match choice & 1 {
                    0 => (Vec::new(), len),
                    _ => (repeat(&[choice], len), 0),
                };
                self.given += data.len();
                let sizes = (data.len(), room);
                let cid = self.connection.submit(sqe, data, room);
                assert!(self.pending.insert(cid, sizes).is_none());
            }
            2 => {
                let mut bytes = pdu::initialize(
                    pdu::IC_RESP,
                    digests,
                    choice & 63,
                    4096 + u32::from(input.u16()) * 8,
                );
                if choice & 0x80 != 0 {
                    bytes[8 + usize::from(choice & 7)] ^= input.u8();
                }
                self.receive(&bytes);
            }
            3 | 4 => {
                let status = match choice & 0x30 {
                    0x30 => Status::new(choice >> 6, input.u8()).unwrap_or(Status::SUCCESS),
                    _ => Status::SUCCESS,
                };
                let cqe = Cqe::new(self.cid(choice), status, false);
                let bytes = pdu::pdu(pdu::RESPONSE, 0, cqe.as_bytes(), &[], digests);
                self.receive(&bytes);
            }
            5 | 6 => {
                let cid = self.cid(choice);
                let (_, room) = self.pending.get(&cid).copied().unwrap_or_default();
                let offset = u32::from(input.u16()) * u32::from(choice >> 7);
                let length = match choice & 0x20 {
                    0 => room,
                    _ => usize::from(input.u16() & MOST_BYTES),
                };
                let flags = input.u8() & (pdu::LAST | pdu::SUCCESS);
                let data = repeat(&[choice], length);
                let mut bytes = pdu::transfer(
                    pdu::C2H_DATA,
                    flags,
                    (cid, 0),
                    (offset, length as u32),
                    &data,
                    digests,
                );
                if choice & 0x40 != 0
                    && let Some(last) = bytes.last_mut()
                {
                    *last ^= input.u8();
                }
                self.receive(&bytes);
            }
            7 | 8 => {
                let cid = self.cid(choice);
                let (len, _) = self.pending.get(&cid).copied().unwrap_or_default();
                let (offset, length) = match choice >> 6 {
                    0 | 1 => (0, len as u32),
                    2 => (u32::from(input.u16()), u32::from(input.u16())),
                    _ => (input.u32(), input.u32()),
                };
                let tag = input.u8().into();
                let range = (offset, length);
                let bytes = pdu::transfer(pdu::R2T, 0, (cid, tag), range, &[], digests);
                self.receive(&bytes);
            }
            9 => {
                let kind = input.u8() % 12;
                let len = [120, 120, 16, 16, 64, 16, 16, 16, 16, 16, 16, 16][usize::from(kind)];
                let header = repeat(input.bytes(usize::from(choice & 31)), len);
                let data = repeat(&[choice], usize::from(input.u8()) * 4);
                let mut bytes = pdu::pdu(kind, 0, &header, &data, digests);
                for _ in 0..input.u8() & 3 {
                    let at = usize::from(input.u8()) % bytes.len().min(80);
                    bytes[at] ^= input.u8();
                }
                let cut = usize::from(input.u8()) % bytes.len();
                self.receive(&bytes[..cut]);
                self.receive(&bytes[cut..]);
            }
            10 => {
                let bytes = input.bytes(choice.into());
                self.receive(bytes);
            }
            _ => self.take(),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let choice = input.u8();
    let digests = Digests {
        header: choice & 1 != 0,
        data: choice & 2 != 0,
    };
    let asked = tcp::Digests {
        header: digests.header,
        data: digests.data,
    };
    let mut connection = Connection::new(asked, ENTRIES);
    if choice & 4 != 0 {
        connection.set_in_capsule(usize::from(choice) * 64);
    }
    let mut host = Host {
        connection,
        digests,
        pending: HashMap::new(),
        stream: Vec::new(),
        sent: 0,
        given: 0,
    };
    if choice & 8 == 0 {
        host.take();
        host.receive(&pdu::initialize(
            pdu::IC_RESP,
            digests,
            choice >> 4,
            1 << 17,
        ));
    }
    for _ in 0..MOST_STEPS {
        if input.is_empty() || host.connection.error().is_some() {
            break;
        }
        host.step(&mut input);
    }
    host.take();
    if host.connection.error().is_none() {
        host.connection.received(0);
    }
    assert!(host.connection.error().is_some() && !host.connection.has_room());
});
