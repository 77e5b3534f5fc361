//! Limits: bytes in flight, hosts that do not read, and hosts by the thousand.

use std::time::{Duration, Instant};

use toroid_nvme::fabrics::{Hosts, Limits};
use toroid_nvme::tcp::ConnectionError;
use toroid_nvme::{Sqe, Status};

use crate::harness::{World, connect, data, identify, pattern, small};
use crate::pdu::{self, NONE};

#[test]
fn commands_wait_for_room_and_then_run_in_order() {
    let world = World::small();
    let (_admin, mut io) = world.pair(NONE);
    // 512 KiB each, of 1 MiB; the next is let in when one has gone.
    let read = Sqe::read(0, 1, 0, 127);
    let write = Sqe::write(0, 1, 128, 127);
    let first = io.start(read, &[], 512 << 10);
    let second = io.start(write, &[], 512 << 10);
    let third = io.start(read, &[], 512 << 10);
    let fourth = io.start(write, &[], 512 << 10);
    assert_eq!(io.actions.len(), 1);
    let replies = io.replies();
    assert_eq!(replies.len(), 1);
    assert_eq!((replies[0].kind, replies[0].u16(0)), (pdu::R2T, second));
    assert_eq!(io.connection.bytes_held(), 1 << 20);
    io.complete(0);
    // The data of the first still lie here: the third waits until the host has taken them.
    assert!(io.actions.is_empty());
    let replies = io.replies();
    assert_eq!((replies[0].kind, replies[0].u16(0)), (pdu::C2H_DATA, first));
    assert_eq!(io.actions.len(), 1);
    let whole = pattern(512 << 10, 1);
    for (cid, tag) in [(second, second), (fourth, fourth)] {
        for (i, chunk) in whole.chunks(128 << 10).enumerate() {
            let kind = (pdu::H2C_DATA, if i == 3 { pdu::LAST } else { 0 });
            let range = ((i * chunk.len()) as u32, chunk.len() as u32);
            io.send(&pdu::transfer(kind, (cid, tag), range, chunk, NONE));
        }
        let replies = io.settle();
        let asked = replies
            .iter()
            .any(|reply| reply.kind == pdu::R2T && reply.u16(0) == fourth);
        assert_eq!(asked, cid == second);
        if cid == second {
            let answered = replies.iter().filter(|reply| reply.kind == pdu::RESPONSE);
            let answered: Vec<u16> = answered.map(|reply| reply.cqe().cid.get()).collect();
            assert!(answered.contains(&second) && answered.contains(&third));
        }
    }
    assert_eq!(io.connection.bytes_held(), 0);
    assert_eq!(io.connection.in_flight(), 0);
}

#[test]
fn commands_without_data_hold_nothing_whatever_their_descriptor_says() {
    let world = World::small();
    let (mut admin, mut io) = world.pair(NONE);
    admin.start(crate::harness::admin_command(0x0C, 0, 0, 0), &[], 1 << 20);
    assert_eq!(
        (admin.connection.in_flight(), admin.connection.bytes_held()),
        (1, 0)
    );
    assert_eq!(io.status(Sqe::flush(0, 1), &[], 1 << 20), Status::SUCCESS);
    assert_eq!(admin.status(identify(1, 0, 0), &[], 4096), Status::SUCCESS);
}

#[test]
fn one_command_always_fits() {
    // With metadata it is larger than the limit.
    let world = World::small();
    let (_admin, mut io) = world.pair(NONE);
    let extended = pattern(2048 * 576, 3);
    assert!(extended.len() > small().bytes_in_flight);
    assert_eq!(
        io.write(Sqe::write(0, 2, 0, 2047), &extended),
        Status::SUCCESS
    );
    let (cqe, read) = io.call(Sqe::read(0, 2, 0, 2047), &[], extended.len());
    assert_eq!(cqe.status(), Status::SUCCESS);
    assert!(read == extended);
}

#[test]
fn a_host_that_does_not_read_holds_at_most_the_limit() {
    let world = World::small();
    let (_admin, mut io) = world.pair(NONE);
    for _ in 0..8 {
        io.start(Sqe::read(0, 1, 0, 255), &[], 1 << 20);
        while !io.actions.is_empty() {
            io.complete(0);
        }
        assert!(io.connection.bytes_held() <= (1 << 20) + 64);
    }
    // When it reads, it gets them all.
    let replies = io.settle();
    assert_eq!(
        replies
            .iter()
            .filter(|pdu| pdu.kind == pdu::C2H_DATA)
            .count(),
        8
    );
    assert_eq!(io.connection.bytes_held(), 0);
}

#[test]
fn hosts_that_do_not_read_hold_a_bounded_amount_together_and_leave_some_for_others() {
    let limits = Limits {
        controllers: 200,
        controllers_per_host: 200,
        total_bytes_in_flight: 16 << 20,
        ..small()
    };
    let world = World::new(Hosts::Any, limits);
    let mut hostile = Vec::new();
    for _ in 0..100 {
        let (admin, mut io) = world.pair(NONE);
        for _ in 0..4 {
            io.start(Sqe::read(0, 1, 0, 63), &[], 256 << 10);
        }
        while !io.actions.is_empty() {
            io.complete(0);
        }
        hostile.push((admin, io));
        assert!(world.target.statistics().bytes_in_flight <= 16 << 20);
    }
    let (_admin, mut io) = world.pair(NONE);
    let block = pattern(4096, 1);
    for _ in 0..100 {
        assert_eq!(
            io.status(Sqe::write(0, 1, 7, 0), &block, 0),
            Status::SUCCESS
        );
        assert_eq!(io.call(Sqe::read(0, 1, 7, 0), &[], 4096).1, block);
    }
    // A large command waits, and is told when there is room.
    let cid = io.start(Sqe::read(0, 1, 0, 255), &[], 1 << 20);
    assert!(io.settle().is_empty());
    let before = world.wakes.load(std::sync::atomic::Ordering::Relaxed);
    hostile.drain(..50);
    assert!(world.wakes.load(std::sync::atomic::Ordering::Relaxed) > before);
    io.wait(Duration::ZERO);
    assert_eq!(io.settle().last().unwrap().cqe().cid.get(), cid);
    // Those that read after all get everything.
    for (_, io) in &mut hostile {
        io.wait(Duration::ZERO);
        let replies = io.settle();
        let data = replies.iter().filter(|reply| reply.kind == pdu::C2H_DATA);
        assert_eq!(data.count(), 4);
    }
    drop((hostile, io, _admin));
    assert_eq!(world.target.statistics().bytes_in_flight, 0);
}

#[test]
fn an_idle_connection_returns_its_buffers() {
    let world = World::small();
    let (mut admin, mut io) = world.pair(NONE);
    for _ in 0..4 {
        let data = pattern(1 << 20, 3);
        assert_eq!(io.write(Sqe::write(0, 1, 0, 255), &data), Status::SUCCESS);
        let (_, read) = io.call(Sqe::read(0, 1, 0, 255), &[], 1 << 20);
        assert_eq!(read, data);
    }
    assert_eq!(io.connection.bytes_held(), 0);
    assert!(world.target.statistics().bytes_in_flight > 0);
    admin.wait(Duration::from_secs(2));
    io.wait(Duration::from_secs(1));
    assert!(world.target.statistics().bytes_in_flight > 0);
    io.wait(Duration::from_secs(1));
    assert_eq!(world.target.statistics().bytes_in_flight, 0);
    // In the middle of a PDU nothing is lost.
    let bytes = pdu::command(&Sqe::flush(500, 1), &[], NONE);
    io.send(&bytes[..30]);
    io.wait(Duration::from_secs(10));
    io.send(&bytes[30..]);
    assert_eq!(io.settle()[0].cqe().cid.get(), 500);
}

#[test]
fn unread_responses_stop_the_input() {
    let world = World::small();
    let (mut admin, _io) = world.pair(NONE);
    let flushes = pdu::command(&crate::harness::admin_command(0x18, 0, 0, 0), &[], NONE);
    let mut sent = 0;
    while admin.connection.wants_input() {
        admin.send(&flushes);
        sent += 1;
        assert!(sent < 1 << 20);
    }
    assert!(admin.connection.bytes_held() < (4 << 20) + (1 << 20));
    assert_eq!(admin.replies().len(), sent);
    assert!(admin.connection.wants_input());
}

#[test]
fn a_stalled_reader_is_cut_off() {
    let world = World::small();
    let (_admin, mut io) = world.pair(NONE);
    io.wait(Duration::from_secs(100));
    assert!(!io.connection.is_finished(), "nothing waits to be sent");
    io.start(Sqe::read(0, 1, 0, 255), &[], 1 << 20);
    io.complete(0);
    for _ in 0..4 {
        io.wait(Duration::from_secs(29));
        assert!(!io.connection.is_finished());
        io.connection.sent(64 << 10, io.now);
    }
    // A byte now and then is no progress.
    io.connection.sent(1, io.now);
    io.wait(Duration::from_millis(29_999));
    assert!(!io.connection.is_finished());
    assert!(io.connection.deadline() <= Some(io.now + Duration::from_millis(1)));
    io.wait(Duration::from_millis(1));
    assert!(io.connection.is_finished());
    assert_eq!(io.connection.error(), Some(&ConnectionError::Stalled));
}

#[test]
fn the_stall_time_starts_with_the_first_waiting_byte() {
    let world = World::small();
    let (_admin, mut io) = world.pair(NONE);
    // Idle for longer than the limit, without a tick in between; then a response.
    io.now += Duration::from_secs(100);
    io.start(Sqe::flush(0, 1), &[], 0);
    io.complete(0);
    io.wait(Duration::ZERO);
    assert!(!io.connection.is_finished());
    assert_eq!(io.settle().len(), 1);
}

#[test]
fn nothing_follows_a_termination_request() {
    let world = World::small();
    let (_admin, mut io) = world.pair(NONE);
    io.start(Sqe::read(0, 1, 0, 0), &[], 4096);
    io.start(Sqe::write(0, 1, 0, 255), &[], 1 << 20);
    io.start(Sqe::write(0, 1, 0, 255), &[], 1 << 20);
    io.replies();
    io.send(&pdu::initialize(pdu::IC_REQ, NONE, 0));
    io.complete(0);
    let replies = io.replies();
    assert_eq!(replies.len(), 1, "{replies:?}");
    assert_eq!(replies[0].fatal().0, 2);
    assert!(io.connection.is_finished());
}

#[test]
fn a_queue_that_has_ended_holds_only_what_still_executes() {
    let world = World::small();
    let (mut admin, mut io) = world.pair(NONE);
    admin.start(crate::harness::admin_command(0x0C, 0, 0, 0), &[], 0);
    // One executes, one waits for its data, one for room.
    io.start(Sqe::read(0, 1, 0, 127), &[], 512 << 10);
    io.start(Sqe::write(0, 1, 0, 127), &[], 512 << 10);
    io.start(Sqe::read(0, 1, 0, 127), &[], 512 << 10);
    io.replies();
    assert_eq!(io.connection.in_flight(), 3);
    assert_eq!(io.connection.bytes_held(), 1 << 20);
    for peer in [&mut admin, &mut io] {
        peer.connection.received(0, peer.now);
    }
    assert_eq!(io.connection.in_flight(), 1);
    assert_eq!(io.connection.bytes_held(), 512 << 10);
    assert_eq!(admin.connection.in_flight(), 0);
    io.complete(0);
    assert_eq!(
        (io.connection.in_flight(), io.connection.bytes_held()),
        (0, 0)
    );
}

#[test]
fn closing_lets_commands_end() {
    let world = World::small();
    let (mut admin, mut io) = world.pair(NONE);
    io.start(Sqe::read(0, 1, 0, 255), &[], 1 << 20);
    io.start(Sqe::read(0, 1, 0, 255), &[], 1 << 20);
    let mut fresh = world.open();
    world.target.close();
    for peer in [&mut admin, &mut io, &mut fresh] {
        peer.wait(Duration::ZERO);
        assert!(!peer.connection.wants_input());
    }
    assert!(fresh.connection.is_finished());
    // Without its admin queue a controller ends.
    assert!(!admin.connection.is_finished() && !io.connection.is_finished());
    let replies = io.settle();
    assert_eq!(
        replies
            .iter()
            .filter(|pdu| pdu.kind == pdu::RESPONSE)
            .count(),
        2
    );
    assert!(io.connection.is_finished());
    assert_eq!(io.connection.error(), None);
    drop(io);
    admin.wait(Duration::from_secs(100));
    assert!(admin.connection.is_finished());
    assert_eq!(admin.connection.error(), None);
}

#[test]
fn a_thousand_hosts_do_not_disturb_another() {
    let limits = Limits {
        controllers: 50,
        controllers_per_host: 50,
        ..small()
    };
    let world = World::new(Hosts::Any, limits);
    let (mut admin, mut io) = world.pair(NONE);
    let mut hostile = Vec::new();
    for i in 0..3000 {
        let mut peer = world.open();
        match i % 5 {
            0 => {}
            1 => peer.send(&pdu::initialize(pdu::IC_REQ, NONE, 0)[..100]),
            2 => peer.send(&[0xFF; 64]),
            3 => peer.send(&pdu::initialize(pdu::IC_REQ, NONE, 0)),
            _ => {
                peer.send(&pdu::initialize(pdu::IC_REQ, NONE, 0));
                peer.replies();
                let cqe = peer.connect(connect(0, 0), &data(0xFFFF));
                let busy = Status::CONNECT_CONTROLLER_BUSY;
                assert!([Status::SUCCESS, busy].contains(&cqe.status()));
            }
        }
        hostile.push(peer);
        if i % 100 == 0 {
            let block = pattern(4096, i as u8);
            assert_eq!(
                io.status(Sqe::write(0, 1, 7, 0), &block, 0),
                Status::SUCCESS
            );
            assert_eq!(io.call(Sqe::read(0, 1, 7, 0), &[], 4096).1, block);
            assert_eq!(admin.status(identify(1, 0, 0), &[], 4096), Status::SUCCESS);
        }
    }
    assert_eq!(world.target.statistics().connections, 3002);
    for peer in &mut hostile {
        peer.wait(Duration::from_secs(10));
    }
    let open = hostile.iter().filter(|peer| !peer.connection.is_finished());
    // The controllers that were let in.
    assert_eq!(open.count(), 49);
    drop(hostile);
    assert_eq!(world.target.statistics().connections, 2);
    assert_eq!(io.status(Sqe::flush(0, 1), &[], 0), Status::SUCCESS);
}

#[test]
fn the_deadline_of_a_waiting_connection_is_in_the_future() {
    let world = World::small();
    let peer = world.open();
    let deadline = peer.connection.deadline().unwrap();
    assert_eq!(deadline, world.now + Duration::from_secs(10));
    assert!(deadline > Instant::now());
}
