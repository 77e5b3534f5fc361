//! Every PDU type byte by byte, as the specification draws it.

use toroid_nvme::fabrics::{Sgl, cc, property};
use toroid_nvme::tcp::Digests;
use toroid_nvme::tcp::host::Connection;
use toroid_nvme::{Cqe, Sqe, Status};

use crate::harness::{World, connect, data, pattern};
use crate::pdu::{self, NONE};

/// All output of an initiator.
fn sent(connection: &mut Connection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while connection.has_output() {
        let before = bytes.len();
        for piece in connection.output() {
            bytes.extend_from_slice(&piece);
        }
        connection.sent(bytes.len() - before);
    }
    bytes
}

fn receive(connection: &mut Connection, bytes: &[u8]) {
    for chunk in bytes.chunks(4096) {
        connection.space()[..chunk.len()].copy_from_slice(chunk);
        connection.received(chunk.len());
    }
}

#[test]
fn the_digest_is_crc32c() {
    // RFC 3720, B.4: 32 bytes of zeroes, of ones, and rising.
    assert_eq!(pdu::crc32c(&[0; 32]), 0x8A91_36AA);
    assert_eq!(pdu::crc32c(&[0xFF; 32]), 0x62A8_AB43);
    let rising: Vec<u8> = (0..32).collect();
    assert_eq!(pdu::crc32c(&rising), 0x46DD_794E);
}

#[test]
fn initialization() {
    let world = World::small();
    for (header, data, byte) in [(false, false, 0), (true, false, 1), (false, true, 2)] {
        let mut connection = Connection::new(Digests { header, data }, 8);
        let mut expected = vec![0, 0, 128, 0, 128, 0, 0, 0];
        expected.resize(128, 0);
        expected[11] = byte;
        let request = sent(&mut connection);
        assert_eq!(request, expected);
        let mut peer = world.open();
        peer.send(&request);
        // ICResp: PFV 0, CPDA 0, the digests, MAXH2CDATA 128 KiB.
        expected[0] = 1;
        expected[12..16].copy_from_slice(&[0, 0, 2, 0]);
        let reply: Vec<u8> = peer.connection.output().concat_bytes();
        assert_eq!(reply, expected);
    }
}

trait Concat {
    fn concat_bytes(&self) -> Vec<u8>;
}

impl Concat for Vec<std::io::IoSlice<'_>> {
    fn concat_bytes(&self) -> Vec<u8> {
        self.iter()
            .flat_map(|piece| piece.iter().copied())
            .collect()
    }
}

#[test]
fn data_has_the_alignment_that_the_host_requests() {
    let world = World::small();
    let mut peer = world.open();
    let mut request = pdu::initialize(pdu::IC_REQ, NONE, 0);
    // HPDA 7: data at multiples of 32 bytes.
    request[10] = 7;
    peer.send(&request);
    peer.replies();
    peer.connect(connect(0, 0), &data(0xFFFF));
    peer.property_set(property::CC, cc::EN);
    peer.start(crate::harness::identify(1, 0, 0), &[], 4096);
    peer.collect();
    let output = peer.connection.output().concat_bytes();
    // C2HData: last, 24 bytes of header, data at 32, 32 + 4096 bytes.
    assert_eq!(output[..8], [7, 4, 24, 32, 0x20, 0x10, 0, 0]);
    assert_eq!(
        output[8..24],
        [3, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(output[24..32], [0; 8]);
    assert_eq!(output[4128..4136], [5, 0, 24, 0, 24, 0, 0, 0]);
}

#[test]
fn capsules_data_and_ready_to_transfer() {
    let mut connection = Connection::new(NONE, 8);
    sent(&mut connection);
    receive(&mut connection, &pdu::initialize(pdu::IC_RESP, NONE, 8192));
    // In the capsule.
    let cid = connection.submit(Sqe::write(0, 1, 0x0102, 0), pattern(512, 1), 0);
    assert_eq!(cid, 0);
    let bytes = sent(&mut connection);
    assert_eq!(bytes[..8], [4, 0, 72, 72, 0x48, 2, 0, 0]);
    assert_eq!(bytes[8..16], [1, 0x40, 0, 0, 1, 0, 0, 0]);
    // SGL: address 0, 512 bytes, data block at an offset in the capsule.
    assert_eq!(
        bytes[32..48],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1]
    );
    assert_eq!(bytes[48..56], [2, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[72..], pattern(512, 1));
    // By R2T, in two PDUs because of MAXH2CDATA.
    let whole = pattern(12288, 2);
    let cid = connection.submit(Sqe::write(0, 1, 0, 2), whole.clone(), 0);
    let bytes = sent(&mut connection);
    assert_eq!(bytes.len(), 72);
    assert_eq!(bytes[40..48], [0, 0x30, 0, 0, 0, 0, 0, 0x5A]);
    let r2t = pdu::transfer((pdu::R2T, 0), (cid, 0x77), (0, 12288), &[], NONE);
    assert_eq!(
        r2t,
        [
            9, 0, 24, 0, 24, 0, 0, 0, 1, 0, 0x77, 0, 0, 0, 0, 0, 0, 0x30, 0, 0, 0, 0, 0, 0
        ]
    );
    receive(&mut connection, &r2t);
    let bytes = sent(&mut connection);
    let first = [
        6, 0, 24, 24, 0x18, 0x20, 0, 0, 1, 0, 0x77, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0,
    ];
    let second = [
        6, 4, 24, 24, 0x18, 0x10, 0, 0, 1, 0, 0x77, 0, 0, 0x20, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(
        bytes,
        [&first[..], &whole[..8192], &second, &whole[8192..]].concat()
    );
    // CapsuleResp: dword 0 and 1, SQ head and identifier, CID, status.
    let cqe = Cqe::new(cid, Status::LBA_OUT_OF_RANGE, true);
    let bytes = pdu::response(&cqe, NONE);
    assert_eq!(
        bytes,
        [
            5, 0, 24, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0x81
        ]
    );
    receive(&mut connection, &bytes);
    let (done, response) = connection.completed().unwrap();
    assert_eq!((done, response.cqe), (cid, cqe));
    assert_eq!(Sgl::parse(&[0; 16]).unwrap().length(), 0);
}

#[test]
fn positions_of_digests() {
    let world = World::small();
    let (_admin, mut io) = world.pair(pdu::BOTH);
    io.start(Sqe::read(0, 1, 0, 0), &[], 4096);
    io.complete(0);
    let output = io.connection.output().concat_bytes();
    assert_eq!(output[..8], [7, 7, 24, 28, 0x20, 0x10, 0, 0]);
    assert_eq!(output[24..28], pdu::crc32c(&output[..24]).to_le_bytes());
    assert_eq!(output[4124..4128], pdu::crc32c(&[0; 4096]).to_le_bytes());
    let response = &output[4128..];
    assert_eq!(response[..8], [5, 1, 24, 0, 28, 0, 0, 0]);
    assert_eq!(response[24..], pdu::crc32c(&response[..24]).to_le_bytes());
}

#[test]
fn termination_requests() {
    let world = World::small();
    let mut peer = world.open();
    let mut request = pdu::initialize(pdu::IC_REQ, NONE, 0);
    request[2] = 127;
    peer.send(&request);
    let output = peer.connection.output().concat_bytes();
    // C2HTermReq: FES 1, FEI 2 (HLEN), and the common header, which is all that was read of the PDU.
    let mut expected = vec![3, 0, 24, 0, 32, 0, 0, 0, 1, 0, 2, 0, 0, 0];
    expected.resize(24, 0);
    expected.extend_from_slice(&request[..8]);
    assert_eq!(output, expected);

    let mut connection = Connection::new(NONE, 8);
    sent(&mut connection);
    let mut response = pdu::initialize(pdu::IC_RESP, NONE, 8192);
    response[8] = 1;
    receive(&mut connection, &response);
    let output = sent(&mut connection);
    // H2CTermReq: FES 6, FEI 8 (PFV), and the PDU's 128 bytes.
    let mut expected = vec![2, 0, 24, 0, 152, 0, 0, 0, 6, 0, 8, 0, 0, 0];
    expected.resize(24, 0);
    expected.extend_from_slice(&response);
    assert_eq!(output, expected);
}
