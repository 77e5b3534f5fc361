//! PDUs with something wrong, and PDUs when they must not come.

use toroid_nvme::fabrics::Sgl;
use toroid_nvme::tcp::ConnectionError;
use toroid_nvme::tcp::Digests;
use toroid_nvme::{Sqe, Status};
use zerocopy::IntoBytes;

use crate::harness::{Peer, World, connect, data, fabrics, identify, pattern};
use crate::pdu::{self, BOTH, NONE};

const HEADER: u16 = 1;
const SEQUENCE: u16 = 2;
const HEADER_DIGEST: u16 = 3;
const RANGE: u16 = 4;
const LIMIT: u16 = 5;
const UNSUPPORTED: u16 = 6;

/// What the target says to an ICReq with one byte changed.
fn initialize(at: usize, value: u8) -> Option<(u16, u32)> {
    let world = World::small();
    let mut peer = world.open();
    let mut bytes = pdu::initialize(pdu::IC_REQ, NONE, 0);
    bytes[at] = value;
    peer.send(&bytes);
    match peer.replies().as_slice() {
        [reply] if reply.kind == pdu::IC_RESP => None,
        [reply] => {
            assert!(peer.connection.is_finished());
            Some(reply.fatal())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn fields_of_the_initialization() {
    assert_eq!(initialize(0, 8), Some((HEADER, 0)));
    assert_eq!(initialize(0, 10), Some((HEADER, 0)));
    assert_eq!(initialize(0, 0xFF), Some((HEADER, 0)));
    assert_eq!(initialize(2, 24), Some((HEADER, 2)));
    assert_eq!(initialize(2, 0), Some((HEADER, 2)));
    assert_eq!(initialize(4, 127), Some((HEADER, 4)));
    assert_eq!(initialize(4, 0), Some((HEADER, 4)));
    assert_eq!(initialize(7, 1), Some((HEADER, 4)));
    assert_eq!(initialize(8, 1), Some((UNSUPPORTED, 8)));
    assert_eq!(initialize(9, 1), Some((UNSUPPORTED, 8)));
    assert_eq!(initialize(10, 32), Some((HEADER, 10)));
    assert_eq!(initialize(10, 31), None);
    // Reserved bytes are ignored.
    assert_eq!(initialize(127, 1), None);
}

/// The last two: an I/O queue with a 16 KiB write for which an R2T has come.
fn asked(digests: Digests) -> (World, Peer, Peer, u16, u16) {
    let world = World::small();
    let (admin, mut io) = world.pair(digests);
    let cid = io.start(Sqe::write(0, 1, 0, 3), &[], 16384);
    let replies = io.replies();
    assert_eq!(replies.len(), 1);
    let tag = replies[0].u16(2);
    (world, admin, io, cid, tag)
}

#[test]
fn fields_of_a_command_capsule() {
    for (digests, at, value, expected) in [
        (NONE, 1, 1, (HEADER, 1)),
        (NONE, 1, 2, (HEADER, 1)),
        (NONE, 2, 71, (HEADER, 2)),
        (NONE, 3, 71, (HEADER, 3)),
        (NONE, 3, 73, (HEADER, 3)),
        (NONE, 3, 0, (HEADER, 3)),
        (NONE, 4, 71, (HEADER, 4)),
        (BOTH, 1, 2, (HEADER, 1)),
        (BOTH, 1, 1, (HEADER, 1)),
    ] {
        let world = World::small();
        let (_admin, mut io) = world.pair(digests);
        let mut sqe = Sqe::write(5, 1, 0, 0);
        let sgl = Sgl::InCapsule {
            offset: 0,
            length: 4096,
        };
        sqe.dptr = sgl.to_bytes();
        let mut bytes = pdu::command(&sqe, &pattern(4096, 1), digests);
        bytes[at] = value;
        if at == 4 {
            // PLEN ends before the data begin.
            bytes[5..8].fill(0);
        }
        io.send(&bytes);
        assert_eq!(io.fatal(), expected, "byte {at} is {value}");
        assert_eq!(world.ram.submitted().len(), 0);
    }
}

#[test]
fn damaged_headers_end_the_connection_and_damaged_data_the_command() {
    let (world, _admin, mut io, cid, tag) = asked(BOTH);
    // The data of the R2T, damaged; the next write of the same waits behind.
    let mut bytes = pdu::host_data(cid, tag, &pattern(16384, 3), BOTH);
    bytes[1000] ^= 4;
    io.send(&bytes);
    let replies = io.settle();
    assert_eq!(replies.len(), 1);
    let cqe = replies[0].cqe();
    assert_eq!(cqe.cid.get(), cid);
    assert_eq!(cqe.status(), Status::TRANSIENT_TRANSPORT_ERROR);
    assert!(!cqe.do_not_retry());
    assert_eq!(world.ram.submitted().len(), 0);
    assert_eq!(
        io.write(Sqe::write(0, 1, 0, 3), &pattern(16384, 3)),
        Status::SUCCESS
    );
    // In a capsule.
    let mut sqe = Sqe {
        flags: 0x40,
        ..Sqe::write(77, 1, 0, 0)
    };
    let length = 4096;
    sqe.dptr = Sgl::InCapsule { offset: 0, length }.to_bytes();
    let mut bytes = pdu::command(&sqe, &pattern(4096, 1), BOTH);
    *bytes.last_mut().unwrap() ^= 0x80;
    io.send(&bytes);
    let replies = io.settle();
    assert_eq!(replies[0].cqe().status(), Status::TRANSIENT_TRANSPORT_ERROR);
    assert_eq!(io.connection.bytes_held(), 0);
    // A header.
    let mut bytes = pdu::command(&Sqe::flush(78, 1), &[], BOTH);
    bytes[60] ^= 1;
    io.send(&bytes);
    let found = u32::from_le_bytes(bytes[72..76].try_into().unwrap());
    let replies = io.settle();
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].fatal(), (HEADER_DIGEST, found));
    // The offending header is shown.
    assert_eq!(replies[0].data, bytes[..72]);
    assert_eq!(world.ram.submitted().len(), 1);
}

#[test]
fn a_damaged_command_makes_room_for_a_waiting_one() {
    let world = World::small();
    let (_admin, mut io) = world.pair(BOTH);
    let first = io.start(Sqe::write(0, 1, 0, 255), &[], 1 << 20);
    let tag = io.replies()[0].u16(2);
    let second = io.start(Sqe::write(0, 1, 0, 255), &[], 1 << 20);
    assert!(io.replies().is_empty(), "the second does not fit yet");
    let data = pattern(1 << 20, 1);
    for (i, chunk) in data.chunks(128 << 10).enumerate() {
        let flags = if i == 7 { pdu::LAST } else { 0 };
        let range = ((i * (128 << 10)) as u32, chunk.len() as u32);
        let kind = (pdu::H2C_DATA, flags);
        let mut bytes = pdu::transfer(kind, (first, tag), range, chunk, BOTH);
        *bytes.last_mut().unwrap() ^= 1;
        io.send(&bytes);
    }
    let replies = io.replies();
    assert_eq!(replies.len(), 2, "{replies:?}");
    assert_eq!(replies[0].cqe().cid.get(), first);
    assert_eq!((replies[1].kind, replies[1].u16(0)), (pdu::R2T, second));
}

#[test]
fn pdus_out_of_sequence() {
    let world = World::small();
    let sgl = Sgl::Transport { length: 0 };
    let mut flush = Sqe::flush(1, 1);
    flush.dptr = sgl.to_bytes();
    let data = pdu::host_data(1, 1, &[0; 512], NONE);
    // Before the initialization.
    for bytes in [
        &pdu::command(&flush, &[], NONE),
        &data,
        &pdu::initialize(pdu::IC_RESP, NONE, 4096),
    ] {
        let mut peer = world.open();
        peer.send(bytes);
        let replies = peer.replies();
        assert_eq!(replies.last().unwrap().fatal(), (SEQUENCE, 0));
        assert_eq!(replies.last().unwrap().data, bytes[..usize::from(bytes[2])]);
    }
    // What only a controller sends, or comes once.
    for bytes in [
        pdu::initialize(pdu::IC_REQ, NONE, 0),
        pdu::initialize(pdu::IC_RESP, NONE, 4096),
        pdu::response(&toroid_nvme::Cqe::success(1), NONE),
        pdu::transfer((pdu::C2H_DATA, 4), (1, 0), (0, 4), &[0; 4], NONE),
        pdu::transfer((pdu::R2T, 0), (1, 0), (0, 4), &[], NONE),
        pdu::pdu(pdu::C2H_TERM, 0, &[0; 16], &[], NONE),
    ] {
        let mut peer = world.initialized(NONE);
        peer.send(&bytes);
        assert_eq!(peer.fatal(), (SEQUENCE, 0));
    }
    // A termination request is not answered.
    let mut peer = world.initialized(NONE);
    let mut header = vec![0; 16];
    header[..6].copy_from_slice(&[1, 0, 9, 0, 0, 0]);
    peer.send(&pdu::pdu(pdu::H2C_TERM, 0, &header, &[4; 72], NONE));
    assert!(peer.replies().is_empty() && peer.connection.is_finished());
    let error = peer.connection.error().unwrap().to_string();
    assert!(error.contains("0001h"), "{error}");
}

#[test]
fn host_data_without_an_r2t_is_refused() {
    let send = |change: &dyn Fn(&mut Vec<u8>, u16, u16)| {
        let (world, _admin, mut io, cid, tag) = asked(NONE);
        let mut bytes = pdu::host_data(cid, tag, &pattern(16384, 3), NONE);
        change(&mut bytes, cid, tag);
        io.send(&bytes);
        let replies = io.settle();
        assert_eq!(world.ram.submitted().len(), 0);
        assert_eq!(replies.len(), 1);
        replies[0].fatal()
    };
    // Another command, another tag.
    assert_eq!(send(&|bytes, _, _| bytes[8] ^= 1), (HEADER, 8));
    assert_eq!(send(&|bytes, _, _| bytes[10] ^= 1), (HEADER, 10));
    // Another offset, before and behind.
    assert_eq!(send(&|bytes, _, _| bytes[12] = 4), (RANGE, 0));
    assert_eq!(send(&|bytes, _, _| bytes[15] = 0xFF), (RANGE, 0));
    // A length that is not the PDU's.
    assert_eq!(send(&|bytes, _, _| bytes[16] = 4), (HEADER, 16));
    // Not the last, though nothing follows.
    assert_eq!(send(&|bytes, _, _| bytes[1] = 0), (HEADER, 1));
    let replaced = |range, len: usize, flags| {
        send(&move |bytes, cid, tag| {
            let data = vec![0; len];
            *bytes = pdu::transfer((pdu::H2C_DATA, flags), (cid, tag), range, &data, NONE);
        })
    };
    // The last, though something follows.
    assert_eq!(replaced((0, 8192), 8192, pdu::LAST), (HEADER, 1));
    // More than was asked for, more than a PDU may have, nothing.
    assert_eq!(replaced((0, 16388), 16388, pdu::LAST), (RANGE, 0));
    assert_eq!(replaced((0, 131_076), 131_076, pdu::LAST), (LIMIT, 0));
    assert_eq!(replaced((0, 0), 0, pdu::LAST), (HEADER, 16));
}

#[test]
fn host_data_after_the_completion_or_twice() {
    let (world, _admin, mut io, cid, tag) = asked(NONE);
    let bytes = pdu::host_data(cid, tag, &pattern(16384, 3), NONE);
    io.send(&bytes);
    // The command executes.
    assert_eq!(io.actions.len(), 1);
    io.send(&bytes);
    assert_eq!(io.replies().last().unwrap().fatal(), (HEADER, 10));
    assert_eq!(world.ram.submitted().len(), 0);

    let (world, _admin, mut io, cid, tag) = asked(NONE);
    io.send(&bytes);
    assert_eq!(io.settle()[0].cqe().status(), Status::SUCCESS);
    assert_eq!(world.ram.submitted().len(), 1);
    io.send(&pdu::host_data(cid, tag, &pattern(16384, 3), NONE));
    assert_eq!(io.fatal(), (HEADER, 8));
}

#[test]
fn capsules_over_the_limit() {
    let world = World::small();
    let (mut admin, mut io) = world.pair(NONE);
    assert_eq!(
        io.status(Sqe::write(0, 1, 0, 1), &pattern(8192, 1), 0),
        Status::SUCCESS
    );
    io.start(Sqe::write(0, 1, 0, 2), &pattern(12288, 1), 0);
    assert_eq!(io.fatal(), (LIMIT, 0));
    // Of the announced length alone.
    let mut io = world.initialized(NONE);
    let mut bytes = pdu::command(&fabrics(1), &[0; 4], NONE);
    bytes[4..8].copy_from_slice(&0xFFFF_FFFCu32.to_le_bytes());
    io.send(&bytes);
    assert_eq!(io.fatal(), (LIMIT, 0));
    // Another connection does not notice.
    assert_eq!(admin.status(identify(1, 0, 0), &[], 4096), Status::SUCCESS);
}

#[test]
fn an_admin_queue_takes_8_kib_in_a_capsule_whatever_the_limit() {
    let limits = toroid_nvme::fabrics::Limits {
        in_capsule_bytes: 1024,
        ..crate::harness::small()
    };
    let world = World::new(toroid_nvme::fabrics::Hosts::Any, limits);
    let (mut admin, mut io) = world.pair(NONE);
    let status = admin.status(crate::harness::admin_command(0xC1, 0, 0, 0), &[0; 8192], 0);
    assert_eq!(status, Status::INVALID_OPCODE);
    io.start(Sqe::write(0, 1, 0, 0), &[0; 4096], 0);
    assert_eq!(io.fatal(), (LIMIT, 0));
}

#[test]
fn identifiers_in_use_and_full_queues() {
    let world = World::small();
    let (_admin, mut io) = world.pair(NONE);
    io.start(Sqe::read(0, 1, 0, 0), &[], 4096);
    io.next_cid -= 1;
    io.start(Sqe::read(0, 1, 9, 0), &[], 4096);
    let replies = io.replies();
    // The command under way is not answered in place of the other.
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].fatal(), (HEADER, 10));

    let (_admin, mut io) = world.pair(NONE);
    for _ in 0..8 {
        io.start(Sqe::read(0, 1, 0, 0), &[], 4096);
    }
    assert!(io.replies().is_empty());
    io.start(Sqe::read(0, 1, 0, 0), &[], 4096);
    assert_eq!(io.replies().last().unwrap().fatal(), (LIMIT, 0));
}

#[test]
fn mismatched_descriptors_are_refused() {
    let world = World::small();
    let (_admin, mut io) = world.pair(NONE);
    let mut status = |sqe: Sqe, dptr: [u8; 16], capsule: &[u8]| {
        let cid = io.cid();
        let sqe = Sqe {
            cid: cid.into(),
            flags: 0x40,
            dptr,
            ..sqe
        };
        let bytes = pdu::command(&sqe, capsule, NONE);
        io.send(&bytes);
        let replies = io.settle();
        assert_eq!(replies.len(), 1, "{replies:?}");
        assert_eq!(replies[0].cqe().cid.get(), cid);
        replies[0].cqe().status()
    };
    let capsule = |offset, length| Sgl::InCapsule { offset, length }.to_bytes();
    let transport = |length| Sgl::Transport { length }.to_bytes();
    let (write, read) = (Sqe::write(0, 1, 0, 0), Sqe::read(0, 1, 0, 0));
    let block = pattern(4096, 1);
    // An address in memory, a segment, a type that there is not.
    for id in [0x00, 0x20, 0x30, 0x40, 0xF0] {
        let mut dptr = transport(4096);
        dptr[15] = id;
        assert_eq!(status(write, dptr, &[]), Status::SGL_TYPE_INVALID);
        assert_eq!(status(write, dptr, &block), Status::SGL_TYPE_INVALID);
    }
    assert_eq!(
        status(read, capsule(0, 4096), &[]),
        Status::SGL_TYPE_INVALID
    );
    assert_eq!(
        status(write, capsule(4, 4096), &block),
        Status::SGL_OFFSET_INVALID
    );
    assert_eq!(
        status(write, capsule(0, 4092), &block),
        Status::SGL_OFFSET_INVALID
    );
    assert_eq!(
        status(write, capsule(0, 4096), &[]),
        Status::SGL_OFFSET_INVALID
    );
    assert_eq!(
        status(write, transport(4096), &block),
        Status::DATA_SGL_LENGTH_INVALID
    );
    // More than MDTS, with room for metadata; a buffer too small for what is read.
    assert_eq!(
        status(read, transport(u32::MAX), &[]),
        Status::INVALID_FIELD
    );
    assert_eq!(
        status(read, transport(4092), &[]),
        Status::DATA_SGL_LENGTH_INVALID
    );
    assert_eq!(
        status(read, transport(0), &[]),
        Status::DATA_SGL_LENGTH_INVALID
    );
    // Blocks and data that do not agree.
    let two = Sqe::write(0, 1, 0, 1);
    assert!(!status(two, capsule(0, 4096), &block).is_success());
    assert_eq!(status(write, capsule(0, 4096), &block), Status::SUCCESS);
    assert_eq!(io.connection.bytes_held(), 0);
}

#[test]
fn commands_before_connect_and_connect_after_it() {
    let world = World::small();
    let mut peer = world.initialized(NONE);
    assert_eq!(
        peer.status(identify(1, 0, 0), &[], 4096),
        Status::COMMAND_SEQUENCE_ERROR
    );
    assert_eq!(peer.property(0, true), Err(Status::COMMAND_SEQUENCE_ERROR));
    assert_eq!(
        peer.connect(connect(0, 0), &data(0xFFFF)).status(),
        Status::SUCCESS
    );
    assert_eq!(
        peer.connect(connect(0, 0), &data(0xFFFF)).status(),
        Status::COMMAND_SEQUENCE_ERROR
    );
}

#[test]
fn the_stream_ends() {
    let world = World::small();
    let mut peer = world.initialized(NONE);
    let bytes = pdu::command(&connect(0, 0).to_sqe(1), data(0xFFFF).as_bytes(), NONE);
    peer.send(&bytes[..50]);
    peer.connection.received(0, peer.now);
    assert_eq!(peer.connection.error(), Some(&ConnectionError::CutOff));
    assert!(peer.connection.is_finished());
    drop(peer);
    let mut peer = world.initialized(NONE);
    peer.connection.received(0, peer.now);
    assert_eq!(peer.connection.error(), None);
    assert!(peer.connection.is_finished());
    drop(peer);
    assert_eq!(world.target.statistics().connections, 0);
    assert_eq!(world.target.statistics().failed, 1);
}
