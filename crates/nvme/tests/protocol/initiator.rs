//! The host's side against a controller driven by hand.

use toroid_nvme::tcp::Digests;
use toroid_nvme::tcp::host::Connection;
use toroid_nvme::tcp::{ConnectionError, ProtocolError};
use toroid_nvme::{Cqe, Sqe, Status};

use crate::harness::pattern;
use crate::pdu::{self, BOTH, NONE, Pdu};

fn open(digests: Digests) -> Connection {
    let mut connection = Connection::new(digests, 8);
    take(&mut connection, NONE);
    receive(
        &mut connection,
        &pdu::initialize(pdu::IC_RESP, digests, 1 << 17),
    );
    assert!(connection.has_room());
    connection
}

fn receive(connection: &mut Connection, bytes: &[u8]) {
    for chunk in bytes.chunks(4096) {
        connection.space()[..chunk.len()].copy_from_slice(chunk);
        connection.received(chunk.len());
    }
}

fn take(connection: &mut Connection, digests: Digests) -> Vec<Pdu> {
    let mut bytes = Vec::new();
    while connection.has_output() {
        let before = bytes.len();
        for piece in connection.output() {
            bytes.extend_from_slice(&piece);
        }
        connection.sent(bytes.len() - before);
    }
    let pdus = pdu::take(&mut bytes, digests);
    assert!(bytes.is_empty());
    pdus
}

/// The error after `bytes`, which is told to the controller too.
fn error(connection: &mut Connection, bytes: &[u8]) -> ProtocolError {
    receive(connection, bytes);
    assert!(!connection.has_room());
    let Some(ConnectionError::Protocol(error)) = connection.error().cloned() else {
        panic!("{:?}", connection.error());
    };
    error
}

const HEADER: fn(u32) -> ProtocolError = |offset| ProtocolError::Header { offset };

#[test]
fn fields_of_the_initialization() {
    let attempt = |at: usize, value: u8| {
        let mut connection = Connection::new(NONE, 8);
        let mut bytes = pdu::initialize(pdu::IC_RESP, NONE, 4096);
        bytes[at] = value;
        error(&mut connection, &bytes)
    };
    assert_eq!(attempt(0, 5), HEADER(2));
    assert_eq!(attempt(0, 0), ProtocolError::Sequence { kind: 0 });
    assert_eq!(attempt(2, 24), HEADER(2));
    assert_eq!(attempt(4, 0), HEADER(4));
    assert_eq!(attempt(8, 1), ProtocolError::Unsupported { offset: 8 });
    assert_eq!(attempt(10, 32), HEADER(10));
    // Digests that were not asked for; less than 4 KiB a PDU.
    assert_eq!(attempt(11, 1), ProtocolError::Unsupported { offset: 11 });
    assert_eq!(attempt(13, 0), HEADER(12));
}

#[test]
fn responses_and_data_without_a_command_are_refused() {
    let response = pdu::response(&Cqe::success(9), NONE);
    assert_eq!(error(&mut open(NONE), &response), HEADER(20));
    let data = pdu::transfer((pdu::C2H_DATA, 4), (9, 0), (0, 4), &[0; 4], NONE);
    assert_eq!(error(&mut open(NONE), &data), HEADER(8));
    let r2t = pdu::transfer((pdu::R2T, 0), (9, 0), (0, 4), &[], NONE);
    assert_eq!(error(&mut open(NONE), &r2t), HEADER(8));
    let before = pdu::response(&Cqe::success(0), NONE);
    let mut fresh = Connection::new(NONE, 8);
    assert_eq!(
        error(&mut fresh, &before),
        ProtocolError::Sequence { kind: 5 }
    );
}

#[test]
fn data_out_of_range() {
    let attempt = |flags, range: (u32, u32), len: usize| {
        let mut connection = open(NONE);
        let cid = connection.submit(Sqe::read(0, 1, 0, 0), Vec::new(), 4096);
        let data = vec![0; len];
        let bytes = pdu::transfer((pdu::C2H_DATA, flags), (cid, 0), range, &data, NONE);
        error(&mut connection, &bytes)
    };
    assert_eq!(attempt(4, (0, 4100), 4100), ProtocolError::DataRange);
    assert_eq!(attempt(4, (4, 4096), 4096), ProtocolError::DataRange);
    assert_eq!(attempt(4, (u32::MAX, 4), 4), ProtocolError::DataRange);
    assert_eq!(attempt(4, (0, 8), 4), HEADER(16));
    // Success without the end.
    assert_eq!(attempt(8, (0, 4096), 4096), HEADER(16));
}

#[test]
fn r2ts_out_of_range_or_repeated_are_refused() {
    let attempt = |ranges: &[(u32, u32)]| {
        let mut connection = open(NONE);
        let data = pattern(16384, 1);
        let cid = connection.submit(Sqe::write(0, 1, 0, 3), data.clone(), 0);
        take(&mut connection, NONE);
        let mut sent = Vec::new();
        for range in ranges {
            let bytes = pdu::transfer((pdu::R2T, 0), (cid, 1), *range, &[], NONE);
            receive(&mut connection, &bytes);
            for pdu in take(&mut connection, NONE) {
                if pdu.kind == pdu::H2C_DATA {
                    assert_eq!(pdu.u32(4) as usize, sent.len());
                    sent.extend_from_slice(&pdu.data);
                }
            }
        }
        assert_eq!(sent, data[..sent.len()]);
        (sent.len(), connection.error().is_some())
    };
    assert_eq!(attempt(&[(0, 16384)]), (16384, false));
    assert_eq!(attempt(&[(0, 4096), (4096, 12288)]), (16384, false));
    assert_eq!(attempt(&[(0, 16388)]), (0, true));
    assert_eq!(attempt(&[(16384, 4)]), (0, true));
    assert_eq!(attempt(&[(0, 0)]), (0, true));
    assert_eq!(attempt(&[(u32::MAX, u32::MAX)]), (0, true));
    assert_eq!(attempt(&[(0, 16384), (0, 16384)]), (16384, true));
    assert_eq!(attempt(&[(0, 8192), (0, 8192)]), (8192, true));
    assert_eq!(attempt(&[(0, 8192), (4096, 8192)]), (8192, true));
}

#[test]
fn damaged_data_fail_the_command_and_damaged_headers_the_connection() {
    let mut connection = open(BOTH);
    let cid = connection.submit(Sqe::read(0, 1, 0, 0), Vec::new(), 4096);
    let range = (0, 4096);
    let kind = (pdu::C2H_DATA, pdu::LAST | pdu::SUCCESS);
    let mut bytes = pdu::transfer(kind, (cid, 0), range, &pattern(4096, 1), BOTH);
    *bytes.last_mut().unwrap() ^= 1;
    receive(&mut connection, &bytes);
    let (_, response) = connection.completed().unwrap();
    assert_eq!(response.cqe.status(), Status::TRANSIENT_TRANSPORT_ERROR);
    assert!(response.data.is_empty());
    assert!(connection.error().is_none());
    let mut bytes = pdu::response(&Cqe::success(cid), BOTH);
    bytes[9] ^= 1;
    let expected = pdu::crc32c(&bytes[..24]);
    let found = u32::from_le_bytes(bytes[24..28].try_into().unwrap());
    assert_eq!(
        error(&mut connection, &bytes),
        ProtocolError::HeaderDigest { found, expected }
    );
}

#[test]
fn a_termination_request_of_the_controller_ends_the_connection() {
    let mut connection = open(NONE);
    connection.submit(Sqe::flush(0, 1), Vec::new(), 0);
    take(&mut connection, NONE);
    let mut header = vec![0; 16];
    header[..6].copy_from_slice(&[3, 0, 1, 2, 3, 4]);
    let bytes = pdu::pdu(pdu::C2H_TERM, 0, &header, &[0; 72], NONE);
    let expected = ProtocolError::Terminated {
        fes: 3,
        fei: 0x0403_0201,
    };
    assert_eq!(error(&mut connection, &bytes), expected);
    assert!(
        !connection.has_output(),
        "no answer to a termination request"
    );
    // Nothing completes, and the command is still known to be under way.
    assert!(connection.completed().is_none());
    assert_eq!(connection.in_flight(), 1);
}

#[test]
fn data_in_pieces_and_reused_identifiers() {
    let mut connection = open(NONE);
    for round in 0..70_000u32 {
        let cid = connection.submit(Sqe::flush(0, 1), Vec::new(), 0);
        assert_eq!(u32::from(cid), round & 0xFFFF);
        receive(&mut connection, &pdu::response(&Cqe::success(cid), NONE));
        assert!(connection.completed().is_some());
        take(&mut connection, NONE);
    }
    let cid = connection.submit(Sqe::read(0, 1, 0, 1), Vec::new(), 8192);
    let whole = pattern(8192, 4);
    for (i, chunk) in whole.chunks(2048).enumerate() {
        let flags = if i == 3 { pdu::LAST } else { 0 };
        let range = (i as u32 * 2048, 2048);
        let kind = (pdu::C2H_DATA, flags);
        receive(
            &mut connection,
            &pdu::transfer(kind, (cid, 0), range, chunk, NONE),
        );
        assert!(connection.completed().is_none());
    }
    receive(&mut connection, &pdu::response(&Cqe::success(cid), NONE));
    assert_eq!(connection.completed().unwrap().1.data, whole);
    // A full queue keeps one entry free.
    for _ in 0..7 {
        assert!(connection.has_room());
        connection.submit(Sqe::flush(0, 1), Vec::new(), 0);
    }
    assert!(!connection.has_room());
}
