//! Controllers: properties, reset, shutdown, keep alive, events, Abort, log pages, Identify, features, Disconnect.

use std::sync::atomic::Ordering;
use std::time::Duration;

use toroid_nvme::admin::{cns, opcode};
use toroid_nvme::fabrics::{
    ConnectData, DISCOVERY_NQN, Event, Expired, Job, Port, Sgl, Ticket, TlsMode, cc, csts, property,
};
use toroid_nvme::log::{feature, log_page as id};
use toroid_nvme::tcp::ConnectionError;
use toroid_nvme::{Sqe, Status};

use crate::harness::{
    HOST, HOST_ID, Peer, World, admin_command, connect, data, fabrics, features, identify,
    log_page, pattern,
};
use crate::pdu::{self, NONE, Pdu};

const ENABLE: u32 = cc::EN | cc::ENTRY_SIZES;

fn get(feature: u8, select: u32) -> Sqe {
    let cdw10 = u32::from(feature) | select << 8;
    admin_command(opcode::GET_FEATURES, 0, cdw10, 0)
}

#[test]
fn properties() {
    let world = World::small();
    let (mut admin, _) = world.admin(NONE, 0);
    let cap = admin.property(property::CAP, true).unwrap();
    // 16 entries, contiguous queues, 10 s, the NVM command set and all supported ones, ready with media.
    assert_eq!(cap, 15 | 1 << 16 | 20 << 24 | 1 << 37 | 1 << 43 | 1 << 59);
    assert_eq!(admin.property(0x68, false), Ok(20));
    assert_eq!(admin.property(property::VS, false), Ok(0x0002_0000));
    assert_eq!(admin.property(property::CC, false), Ok(0));
    assert_eq!(admin.property(property::CSTS, false), Ok(0));
    for (offset, wide) in [
        (property::CAP, false),
        (property::VS, true),
        (0x24, false),
        (4, true),
    ] {
        assert_eq!(admin.property(offset, wide), Err(Status::INVALID_FIELD));
    }
    for offset in [property::CAP, property::CSTS, 0x20] {
        assert_eq!(admin.property_set(offset, 1), Status::INVALID_FIELD);
    }
    assert_eq!(admin.property_set(property::CC, ENABLE), Status::SUCCESS);
    assert_eq!(admin.property(property::CC, false), Ok(ENABLE.into()));
    assert_eq!(admin.property(property::CSTS, false), Ok(csts::RDY.into()));
    // Properties are of the admin queue; other Fabrics commands are unknown.
    let mut io_of = |fctype| admin.status(fabrics(fctype), &[], 0);
    for fctype in [0x08, 0x07, 0x02] {
        assert_eq!(io_of(fctype), Status::INVALID_OPCODE);
    }
    assert_eq!(io_of(0x05), Status::INVALID_OPCODE);
    let (_, mut io) = (0, {
        let (mut admin, cntlid) = world.admin(NONE, 0);
        admin.enable();
        let io = world.queue(NONE, cntlid, 1);
        std::mem::forget(admin);
        io
    });
    assert_eq!(
        io.property(property::CSTS, false),
        Err(Status::INVALID_OPCODE)
    );
}

#[test]
fn unsupported_configurations_are_refused() {
    for (value, status) in [
        (ENABLE | 1 << 7, csts::CFS),
        (ENABLE | 1 << 4, csts::CFS),
        (ENABLE | cc::CSS_ALL, csts::RDY),
    ] {
        let world = World::small();
        let (mut admin, cntlid) = world.admin(NONE, 0);
        assert_eq!(admin.property_set(property::CC, value), Status::SUCCESS);
        assert_eq!(admin.property(property::CSTS, false), Ok(status.into()));
        let mut io = world.initialized(NONE);
        let connected = io.connect(connect(1, 0), &data(cntlid)).status();
        assert_eq!(connected.is_success(), status == csts::RDY);
    }
}

#[test]
fn all_command_sets_may_be_selected_where_there_is_one() {
    let world = World::small();
    let mut admin = world.initialized(NONE);
    let discovery = ConnectData::new(HOST_ID, 0xFFFF, DISCOVERY_NQN, HOST);
    admin.connect(connect(0, 0), &discovery);
    let cap = admin.property(property::CAP, true).unwrap();
    assert_eq!(cap >> 43 & 1, 0);
    admin.property_set(property::CC, ENABLE | cc::CSS_ALL);
    assert_eq!(admin.property(property::CSTS, false), Ok(csts::RDY.into()));
}

#[test]
fn commands_before_the_controller_is_ready() {
    let world = World::small();
    let (mut admin, _) = world.admin(NONE, 0);
    let early = |admin: &mut Peer| {
        for opcode in [
            opcode::ABORT,
            opcode::ASYNC_EVENT,
            opcode::KEEP_ALIVE,
            opcode::LOAD_PROGRAM,
            0xC1,
        ] {
            let status = admin.status(admin_command(opcode, 0, 0, 0), &[], 0);
            assert_eq!(status, Status::COMMAND_SEQUENCE_ERROR);
        }
        for (sqe, room) in [
            (identify(cns::CONTROLLER, 0, 0), 4096),
            (log_page(id::HEALTH, 0, 512), 512),
            (get(feature::POWER, 0), 0),
        ] {
            let status = admin.status(sqe, &[], room);
            assert_eq!(status, Status::COMMAND_SEQUENCE_ERROR);
        }
    };
    early(&mut admin);
    admin.enable();
    let status = admin.status(identify(cns::CONTROLLER, 0, 0), &[], 4096);
    assert_eq!(status, Status::SUCCESS);
    admin.property_set(property::CC, cc::ENTRY_SIZES);
    early(&mut admin);
}

#[test]
fn fused_commands_and_commands_with_prps_are_refused() {
    let world = World::small();
    let (mut admin, mut io) = world.pair(NONE);
    for fused in [1, 2, 3] {
        let with = |sqe: Sqe| Sqe {
            flags: fused,
            ..sqe
        };
        let status = admin.status(with(identify(cns::CONTROLLER, 0, 0)), &[], 4096);
        assert_eq!(status, Status::INVALID_FIELD);
        let status = io.status(with(Sqe::compare(0, 1, 0, 0)), &pattern(4096, 0), 0);
        assert_eq!(status, Status::INVALID_FIELD);
    }
    // A PRP is an address in the host's memory, whatever looks like a descriptor in its place.
    let dptr = Sgl::Transport { length: 4096 }.to_bytes();
    for (psdt, expected) in [
        (0, Status::INVALID_FIELD),
        (1, Status::SUCCESS),
        (2, Status::SUCCESS),
        (3, Status::INVALID_FIELD),
    ] {
        let with = |sqe: Sqe, cid: u16| Sqe {
            cid: cid.into(),
            flags: psdt << 6,
            dptr,
            ..sqe
        };
        let cid = admin.cid();
        let sqe = with(identify(cns::CONTROLLER, 0, 0), cid);
        admin.send(&pdu::command(&sqe, &[], NONE));
        assert_eq!(admin.settle().last().unwrap().cqe().status(), expected);
        let cid = io.cid();
        io.send(&pdu::command(&with(Sqe::read(0, 1, 0, 0), cid), &[], NONE));
        assert_eq!(io.settle().last().unwrap().cqe().status(), expected);
    }
    // A command without data has no pointer of any kind.
    let flush = Sqe::flush(99, 1);
    io.send(&pdu::command(&flush, &[], NONE));
    assert_eq!(io.settle()[0].cqe().status(), Status::SUCCESS);
}

#[test]
fn the_health_log_is_that_of_the_controller() {
    let world = World::small();
    let (mut admin, _) = world.enabled(NONE, 0);
    for (nsid, expected) in [
        (0, Status::SUCCESS),
        (u32::MAX, Status::SUCCESS),
        (1, Status::SUCCESS),
        (4, Status::SUCCESS),
        (3, Status::INVALID_NAMESPACE),
        (u32::MAX - 1, Status::INVALID_NAMESPACE),
    ] {
        let sqe = Sqe {
            nsid: nsid.into(),
            ..log_page(id::HEALTH, 0, 512)
        };
        assert_eq!(admin.status(sqe, &[], 512), expected);
    }
}

#[test]
fn a_reset_ends_io_queues_and_completes_waiting_requests() {
    let world = World::small();
    let (mut admin, cntlid) = world.enabled(NONE, 0);
    let mut io = world.queue(NONE, cntlid, 1);
    io.start(Sqe::read(0, 1, 0, 0), &[], 4096);
    admin.status(features(feature::EVENTS, 1 << 8), &[], 0);
    let waiting = admin.start(admin_command(opcode::ASYNC_EVENT, 0, 0, 0), &[], 0);
    assert!(admin.settle().is_empty());
    let Job::Io { cancel, .. } = &io.actions[0].job else {
        panic!("no I/O");
    };
    let cancel = cancel.clone();
    let mut sqe = fabrics(0);
    (sqe.cdw11, sqe.cdw12) = (property::CC.into(), cc::ENTRY_SIZES.into());
    let reset = admin.start(sqe, &[], 0);
    let replies = admin.settle();
    let answered: Vec<_> = replies.iter().map(|reply| reply.cqe()).collect();
    assert_eq!(answered.len(), 2);
    assert_eq!(
        (answered[0].cid.get(), answered[0].status()),
        (reset, Status::SUCCESS)
    );
    assert_eq!(
        (answered[1].cid.get(), answered[1].status()),
        (waiting, Status::ABORT_REQUESTED)
    );
    // The reset is over when the command is, which could overtake later ones otherwise.
    assert_eq!(admin.property(property::CSTS, false), Ok(1));
    // The I/O queue is told, ends, and its command is asked to stop.
    assert!(world.wakes.load(Ordering::Relaxed) > 0);
    io.wait(Duration::ZERO);
    assert!(io.connection.is_finished());
    assert!(!cancel.is_cancelled());
    let action = io.actions.pop();
    drop(io);
    assert!(cancel.is_cancelled());
    assert_eq!(admin.property(property::CSTS, false), Ok(1));
    drop(action);
    assert_eq!(admin.property(property::CSTS, false), Ok(0));
    // Features are as at first, the identifier of the event request is free.
    let (cqe, _) = admin.call(get(feature::EVENTS, 0), &[], 0);
    assert_eq!(cqe.dw0.get(), 0);
    assert_eq!(admin.connection.in_flight(), 0);
    let mut refused = world.initialized(NONE);
    let status = refused.connect(connect(1, 0), &data(cntlid)).status();
    assert_eq!(status, Status::COMMAND_SEQUENCE_ERROR);
    admin.next_cid = waiting - 1;
    admin.enable();
    let _again = world.queue(NONE, cntlid, 1);
}

#[test]
fn shutdown_flushes() {
    let world = World::small();
    let (mut admin, mut io) = world.pair(NONE);
    io.status(Sqe::write(0, 1, 0, 0), &pattern(4096, 1), 0);
    assert_eq!(world.ram.unflushed_blocks(), 1);
    let mut sqe = fabrics(0);
    (sqe.cdw11, sqe.cdw12) = (property::CC.into(), (ENABLE | 1 << 14).into());
    admin.start(sqe, &[], 0);
    assert_eq!(admin.replies()[0].cqe().status(), Status::SUCCESS);
    assert_eq!(admin.actions.len(), 1);
    assert_eq!(admin.actions[0].ticket, Ticket::Shutdown);
    // Occurring, until what was written is durable.
    let mut sqe = fabrics(4);
    sqe.cdw11 = property::CSTS.into();
    admin.start(sqe, &[], 0);
    let value = admin.replies()[0].cqe().dw0.get();
    assert_eq!(value, csts::RDY | csts::SHUTDOWN_OCCURRING);
    assert_eq!(world.ram.unflushed_blocks(), 1);
    admin.complete(0);
    assert_eq!(world.ram.unflushed_blocks(), 0);
    let value = admin.property(property::CSTS, false).unwrap() as u32;
    assert_eq!(value, csts::RDY | csts::SHUTDOWN_COMPLETE);
    io.wait(Duration::ZERO);
    assert!(io.connection.is_finished());
}

#[test]
fn keep_alive() {
    let world = World::small();
    // Rounded up to 100 ms.
    let (mut admin, cntlid) = world.enabled(NONE, 950);
    let mut io = world.queue(NONE, cntlid, 1);
    let (cqe, _) = admin.call(get(feature::KEEP_ALIVE, 0), &[], 0);
    assert_eq!(cqe.dw0.get(), 1000);
    for _ in 0..4 {
        admin.wait(Duration::from_millis(900));
        let status = admin.status(admin_command(opcode::KEEP_ALIVE, 0, 0, 0), &[], 0);
        assert_eq!(status, Status::SUCCESS);
        io.wait(Duration::from_millis(900));
    }
    // Commands of any queue count.
    for _ in 0..4 {
        io.wait(Duration::from_millis(900));
        io.status(Sqe::flush(0, 1), &[], 0);
        admin.wait(Duration::from_millis(900));
        assert!(!admin.connection.is_finished());
    }
    admin.wait(Duration::from_millis(999));
    assert!(!admin.connection.is_finished());
    assert_eq!(
        admin.connection.deadline(),
        Some(admin.now + Duration::from_millis(1))
    );
    admin.wait(Duration::from_millis(1));
    assert!(admin.connection.is_finished());
    assert_eq!(
        admin.connection.error(),
        Some(&ConnectionError::Expired(Expired::KeepAlive))
    );
    drop(admin);
    io.wait(Duration::ZERO);
    assert!(io.connection.is_finished());
    drop(io);
    let statistics = world.target.statistics();
    assert_eq!((statistics.connections, statistics.controllers), (0, 0));
    // Switched off, and on again.
    let (mut admin, _) = world.enabled(NONE, 1000);
    admin.status(features(feature::KEEP_ALIVE, 0), &[], 0);
    admin.wait(Duration::from_secs(3600));
    assert_eq!(admin.connection.deadline(), None);
    admin.status(features(feature::KEEP_ALIVE, 100), &[], 0);
    admin.wait(Duration::from_millis(100));
    assert!(admin.connection.is_finished());
}

#[test]
fn losing_the_admin_queue_ends_the_io_queues() {
    let world = World::small();
    let (admin, mut io) = world.pair(NONE);
    let before = world.wakes.load(Ordering::Relaxed);
    drop(admin);
    assert!(world.wakes.load(Ordering::Relaxed) > before);
    assert_eq!(world.target.statistics().controllers, 0);
    io.wait(Duration::ZERO);
    assert!(io.connection.is_finished());
}

#[test]
fn disconnect() {
    let world = World::small();
    let (mut admin, mut io) = world.pair(NONE);
    assert_eq!(admin.status(fabrics(8), &[], 0), Status::INVALID_OPCODE);
    assert_eq!(io.status(fabrics(8), &[], 0), Status::SUCCESS);
    assert!(io.connection.is_finished());
    assert_eq!(io.connection.error(), None);
    // With a command under way: it ends first.
    let (_admin, mut io) = world.pair(NONE);
    let read = io.start(Sqe::read(0, 1, 0, 0), &[], 4096);
    io.start(fabrics(8), &[], 0);
    assert_eq!(io.replies().len(), 1);
    assert!(!io.connection.is_finished() && !io.connection.wants_input());
    let replies = io.settle();
    assert_eq!(replies.last().unwrap().cqe().cid.get(), read);
    assert!(io.connection.is_finished());
}

fn events(replies: &[Pdu]) -> Vec<(u16, u32)> {
    let cqes = replies.iter().map(|reply| reply.cqe());
    cqes.map(|cqe| (cqe.cid.get(), cqe.dw0.get())).collect()
}

fn wait_for_event(admin: &mut Peer) -> u16 {
    admin.start(admin_command(opcode::ASYNC_EVENT, 0, 0, 0), &[], 0)
}

#[test]
fn events_are_masked_until_the_log_is_read() {
    const NAMESPACE: u32 = 2 | 4 << 16;
    const READ_ONLY: u32 = 1 | 2 << 16;
    let world = World::small();
    let (mut admin, _) = world.enabled(NONE, 0);
    let changed = |nsid| world.target.notify(None, Event::NamespaceChanged { nsid });
    // Nobody has asked for it.
    let first = wait_for_event(&mut admin);
    changed(1);
    admin.wait(Duration::ZERO);
    assert!(admin.replies().is_empty());
    admin.status(features(feature::EVENTS, 1 << 8 | 1 << 3), &[], 0);
    changed(2);
    changed(1);
    admin.wait(Duration::ZERO);
    assert_eq!(events(&admin.replies()), [(first, NAMESPACE)]);
    // Masked; another kind is not.
    let second = wait_for_event(&mut admin);
    let third = wait_for_event(&mut admin);
    changed(9);
    admin.wait(Duration::ZERO);
    assert!(admin.replies().is_empty());
    world.target.notify(None, Event::ReadOnly);
    admin.wait(Duration::ZERO);
    assert_eq!(events(&admin.replies()), [(second, READ_ONLY)]);
    // Reading with Retain Asynchronous Event changes nothing.
    let mut retain = log_page(id::CHANGED_NAMESPACES, 0, 4096);
    retain.cdw10 = (retain.cdw10.get() | 1 << 15).into();
    let (_, list) = admin.call(retain, &[], 4096);
    assert_eq!(list[..16], [1, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    // Reading without lets the next event out, behind the page, without anything else happening.
    admin.start(log_page(id::CHANGED_NAMESPACES, 0, 4096), &[], 4096);
    let replies = admin.settle();
    assert_eq!(replies.len(), 3, "{replies:?}");
    assert_eq!(replies[0].data, list);
    assert_eq!(events(&replies[2..]), [(third, NAMESPACE)]);
    let (_, list) = admin.call(log_page(id::CHANGED_NAMESPACES, 0, 4096), &[], 4096);
    assert_eq!(list, vec![0; 4096]);
}

#[test]
fn a_temperature_beyond_a_threshold_is_reported() {
    const TEMPERATURE: u32 = 1 | 1 << 8 | 2 << 16;
    const UNDER: u32 = 1 << 20;
    let world = World::small();
    let (mut admin, _) = world.enabled(NONE, 0);
    let warning = |admin: &mut Peer| {
        let (_, page) = admin.call(log_page(id::HEALTH, 0, 512), &[], 512);
        assert_eq!(page[1..3], 298u16.to_le_bytes());
        page[0]
    };
    let event = wait_for_event(&mut admin);
    // Nobody wants to know; then somebody does, and learns it at once.
    let hot = features(feature::TEMPERATURE, 298);
    assert_eq!(admin.status(hot, &[], 0), Status::SUCCESS);
    assert_eq!(admin.connection.in_flight(), 1);
    admin.start(features(feature::EVENTS, 1 << 1), &[], 0);
    let replies = admin.settle();
    assert_eq!(events(&replies[1..]), [(event, TEMPERATURE)]);
    assert_eq!(warning(&mut admin), 2);
    // Below the threshold above, and above the one below, there is nothing to tell.
    admin.status(features(feature::TEMPERATURE, 299), &[], 0);
    admin.status(features(feature::TEMPERATURE, UNDER | 297), &[], 0);
    assert_eq!(warning(&mut admin), 0);
    let event = wait_for_event(&mut admin);
    admin.start(features(feature::TEMPERATURE, UNDER | 298), &[], 0);
    let replies = admin.settle();
    assert_eq!(events(&replies[1..]), [(event, TEMPERATURE)]);
    assert_eq!(warning(&mut admin), 2);
    let mut of_under = get(feature::TEMPERATURE, 0);
    assert_eq!(admin.call(of_under, &[], 0).0.dw0.get(), 299);
    of_under.cdw11 = UNDER.into();
    assert_eq!(admin.call(of_under, &[], 0).0.dw0.get(), 298);
    // Another sensor, another kind of threshold.
    for value in [1 << 16 | 298, 2 << 20 | 298] {
        let status = admin.status(features(feature::TEMPERATURE, value), &[], 0);
        assert_eq!(status, Status::INVALID_FIELD);
    }
    admin.property_set(property::CC, cc::ENTRY_SIZES);
    admin.enable();
    assert_eq!(warning(&mut admin), 0);
}

#[test]
fn event_requests_have_a_limit() {
    let world = World::small();
    let (mut admin, _) = world.enabled(NONE, 0);
    for _ in 0..4 {
        wait_for_event(&mut admin);
    }
    assert!(admin.settle().is_empty());
    let status = admin.status(admin_command(opcode::ASYNC_EVENT, 0, 0, 0), &[], 0);
    assert_eq!(status, Status::AER_LIMIT_EXCEEDED);
    assert_eq!(admin.connection.in_flight(), 4);
}

#[test]
fn a_host_that_detaches_may_reuse_the_identifiers_of_its_event_requests() {
    let world = World::small();
    let (mut admin, mut io) = world.pair(NONE);
    admin.status(features(feature::EVENTS, 1 << 8), &[], 0);
    let waiting: Vec<u16> = (0..4).map(|_| wait_for_event(&mut admin)).collect();
    assert!(admin.settle().is_empty());
    // As SPDK does: CC is read and written, and CSTS read until the shutdown is complete.
    let mut reuse = |cid: u16, sqe: Sqe| {
        admin.next_cid = cid - 1;
        let (cqe, _) = admin.call(sqe, &[], 0);
        assert_eq!((cqe.cid.get(), cqe.status()), (cid, Status::SUCCESS));
        cqe.dw0.get()
    };
    let mut get = fabrics(4);
    get.cdw11 = property::CC.into();
    assert_eq!(reuse(waiting[3], get), ENABLE);
    let mut set = fabrics(0);
    (set.cdw11, set.cdw12) = (property::CC.into(), (ENABLE | 1 << 14).into());
    reuse(waiting[2], set);
    get.cdw11 = property::CSTS.into();
    let status = reuse(waiting[3], get);
    assert_eq!(status, csts::RDY | csts::SHUTDOWN_COMPLETE);
    assert_eq!(admin.connection.in_flight(), 2);
    io.wait(Duration::ZERO);
    assert!(io.connection.is_finished());
    // The requests whose identifiers were reused are over, the others wait; one has its event already, which the host does not
    // want any more.
    let _ = admin.replies();
    world
        .target
        .notify(None, Event::NamespaceChanged { nsid: 1 });
    admin.next_cid = waiting[0] - 1;
    let (cqe, _) = admin.call(get, &[], 0);
    assert_eq!(cqe.dw0.get(), csts::RDY | csts::SHUTDOWN_COMPLETE);
    assert!(admin.settle().is_empty());
    assert_eq!(admin.connection.in_flight(), 1);
    // Any other command in progress keeps its identifier.
    admin.next_cid = 100;
    let busy = admin.start(admin_command(0xC1, 0, 0, 0), &[], 0);
    assert_eq!(admin.actions.len(), 1);
    admin.next_cid = busy - 1;
    admin.start(get, &[], 0);
    assert_eq!(admin.replies().last().unwrap().fatal(), (1, 10));
}

#[test]
fn discovery_events() {
    let world = World::small();
    let mut admin = world.initialized(NONE);
    let discovery = ConnectData::new(HOST_ID, 0xFFFF, DISCOVERY_NQN, HOST);
    admin.connect(connect(0, 0), &discovery);
    admin.property_set(property::CC, ENABLE);
    admin.status(features(feature::EVENTS, 1 << 31), &[], 0);
    let cid = wait_for_event(&mut admin);
    world
        .target
        .notify(None, Event::NamespaceChanged { nsid: 1 });
    world.target.notify(None, Event::DiscoveryChanged);
    admin.wait(Duration::ZERO);
    assert_eq!(
        events(&admin.replies()),
        [(cid, 2 | 0xF0 << 8 | 0x70 << 16)]
    );
    let (_, page) = admin.call(log_page(id::DISCOVERY, 0, 2048), &[], 2048);
    assert_eq!(page[8..16], [1, 0, 0, 0, 0, 0, 0, 0]);
    // Every listener that the host can reach, under an address that it knows, once.
    let listens = |address: &str| {
        let address = address.parse().unwrap();
        world
            .target
            .listens(Port { trtype: 3, address }, TlsMode::Off);
    };
    for address in [
        "127.0.0.1:4420",
        "0.0.0.0:4421",
        "127.0.0.2:4420",
        "127.0.0.2:4420",
        "192.0.2.1:4420",
    ] {
        listens(address);
    }
    let (_, page) = admin.call(log_page(id::DISCOVERY, 0, 4096), &[], 4096);
    assert_eq!(page[8..16], [3, 0, 0, 0, 0, 0, 0, 0]);
    let text = |at: usize| String::from_utf8(page[at..at + 9].to_vec()).unwrap();
    let places: Vec<_> = (1..4)
        .map(|entry| (text(1024 * entry + 512), text(1024 * entry + 32)))
        .collect();
    let place = |address: &str, port: &str| (address.to_owned(), format!("{port:<9}"));
    assert_eq!(
        places,
        [
            place("127.0.0.1", "4420"),
            place("127.0.0.1", "4421"),
            place("127.0.0.2", "4420")
        ]
    );
    // No I/O, no queues, other pages and structures.
    let status = admin.status(log_page(id::HEALTH, 0, 512), &[], 512);
    assert_eq!(status, Status::INVALID_LOG_PAGE);
    assert_eq!(
        admin.status(features(feature::QUEUES, 0), &[], 0),
        Status::INVALID_FIELD
    );
    assert_eq!(
        admin.status(identify(cns::NAMESPACE, 1, 0), &[], 4096),
        Status::INVALID_FIELD
    );
    let (_, identify) = admin.call(identify(cns::CONTROLLER, 0, 0), &[], 4096);
    // CNTRLTYPE: discovery.
    assert_eq!(identify[111], 2);
    assert_eq!(
        admin.status(admin_command(0xC1, 0, 0, 0), &[], 0),
        Status::INVALID_OPCODE
    );
}

#[test]
fn abort_reaches_a_command_on_an_io_queue() {
    let world = World::small();
    let (mut admin, mut io) = world.pair(NONE);
    let cid = io.start(Sqe::read(0, 1, 0, 0), &[], 4096);
    let abort = |qid: u32, cid: u16| admin_command(opcode::ABORT, 0, qid | u32::from(cid) << 16, 0);
    // Not this one.
    for (qid, cid) in [(1, cid + 1), (0, cid)] {
        let (cqe, _) = admin.call(abort(qid, cid), &[], 0);
        assert_eq!((cqe.status(), cqe.dw0.get()), (Status::SUCCESS, 1));
    }
    assert_eq!(admin.status(abort(2, cid), &[], 0), Status::INVALID_FIELD);
    let asked = |io: &Peer| match &io.actions[0].job {
        Job::Io { cancel, .. } => cancel.is_cancelled(),
        _ => panic!("no I/O"),
    };
    assert!(!asked(&io));
    admin.call(abort(1, cid), &[], 0);
    assert!(asked(&io));
    let replies = io.settle();
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].cqe().status(), Status::ABORT_REQUESTED);
    // Afterwards there is nothing to abort.
    let (cqe, _) = admin.call(abort(1, cid), &[], 0);
    assert_eq!(cqe.dw0.get(), 1);
    assert_eq!(io.status(Sqe::read(0, 1, 0, 0), &[], 4096), Status::SUCCESS);
}

#[test]
fn abort_ends_commands_that_wait_for_room_and_event_requests() {
    let world = World::small();
    let (mut admin, mut io) = world.pair(NONE);
    let abort = |qid: u32, cid: u16| admin_command(opcode::ABORT, 0, qid | u32::from(cid) << 16, 0);
    let read = Sqe::read(0, 1, 0, 255);
    let cids: Vec<u16> = (0..4).map(|_| io.start(read, &[], 1 << 20)).collect();
    assert_eq!(io.actions.len(), 1);
    let before = world.wakes.load(Ordering::Relaxed);
    for cid in [cids[2], cids[1], cids[2]] {
        let (cqe, _) = admin.call(abort(1, cid), &[], 0);
        assert_eq!((cqe.status(), cqe.dw0.get()), (Status::SUCCESS, 0));
    }
    assert!(world.wakes.load(Ordering::Relaxed) > before);
    io.wait(Duration::ZERO);
    let replies = io.replies();
    let mut aborted: Vec<u16> = replies.iter().map(|reply| reply.cqe().cid.get()).collect();
    aborted.sort_unstable();
    assert_eq!(aborted, cids[1..3]);
    assert!(
        replies
            .iter()
            .all(|reply| reply.cqe().status() == Status::ABORT_REQUESTED)
    );
    // One that is aborted just before there is room for it.
    admin.call(abort(1, cids[3]), &[], 0);
    let replies = io.settle();
    assert_eq!(replies.len(), 3);
    let statuses: Vec<Status> = replies[1..]
        .iter()
        .map(|reply| reply.cqe().status())
        .collect();
    assert_eq!(statuses, [Status::SUCCESS, Status::ABORT_REQUESTED]);
    assert_eq!(
        (io.connection.in_flight(), io.connection.bytes_held()),
        (0, 0)
    );
    assert_eq!(io.status(Sqe::read(0, 1, 0, 0), &[], 4096), Status::SUCCESS);

    let event = wait_for_event(&mut admin);
    let cid = admin.start(abort(0, event), &[], 0);
    let replies = admin.settle();
    assert_eq!(
        (replies[0].cqe().cid.get(), replies[0].cqe().dw0.get()),
        (cid, 0)
    );
    assert_eq!(replies[1].cqe().cid.get(), event);
    assert_eq!(replies[1].cqe().status(), Status::ABORT_REQUESTED);
}

#[test]
fn log_pages_in_parts() {
    let world = World::small();
    let (mut admin, mut io) = world.pair(NONE);
    io.status(Sqe::read(0, 1, 5000, 0), &[], 4096);
    for (page, len) in [
        (id::SUPPORTED, 1024),
        (id::ERRORS, 4096),
        (id::HEALTH, 512),
        (id::FIRMWARE, 512),
        (id::CHANGED_NAMESPACES, 4096),
        (id::EFFECTS, 4096),
    ] {
        let (cqe, whole) = admin.call(log_page(page, 0, len), &[], len);
        assert_eq!((cqe.status(), whole.len()), (Status::SUCCESS, len));
        let mut parts = Vec::new();
        for offset in (0..len).step_by(252) {
            let now = (len - offset).min(252);
            let (_, part) = admin.call(log_page(page, offset as u64, now), &[], now);
            parts.extend_from_slice(&part);
        }
        assert_eq!(parts, whole, "log page {page:02X}h");
        // Zeroes behind the end, an error beyond it.
        let (cqe, end) = admin.call(log_page(page, len as u64, 64), &[], 64);
        assert_eq!((cqe.status(), end), (Status::SUCCESS, vec![0; 64]));
        for offset in [len as u64 + 4, u64::MAX - 3, 2] {
            let status = admin.status(log_page(page, offset, 64), &[], 64);
            assert_eq!(status, Status::INVALID_FIELD);
        }
    }
    for page in [0x81, 0x85, 0x70, 0x71, 0xFF] {
        let status = admin.status(log_page(page, 0, 64), &[], 64);
        assert_eq!(status, Status::INVALID_LOG_PAGE);
    }
    // More than MDTS, and less room than is asked for.
    let status = admin.status(log_page(id::HEALTH, 0, (1 << 20) + 4), &[], 4096);
    assert_eq!(status, Status::INVALID_FIELD);
    let status = admin.status(log_page(id::HEALTH, 0, 512), &[], 508);
    assert_eq!(status, Status::DATA_SGL_LENGTH_INVALID);
    // The effects of a command set that there is, and of one that there is not.
    let mut effects = log_page(id::EFFECTS, 0, 4096);
    effects.cdw14 = (4 << 24).into();
    assert_eq!(admin.status(effects, &[], 4096), Status::SUCCESS);
    effects.cdw14 = (3 << 24).into();
    assert_eq!(admin.status(effects, &[], 4096), Status::INVALID_LOG_PAGE);
}

#[test]
fn identify_structures() {
    let world = World::small();
    let (mut admin, cntlid) = world.enabled(NONE, 0);
    let mut call = |cns, nsid, csi| {
        let (cqe, data) = admin.call(identify(cns, nsid, csi), &[], 4096);
        match cqe.status() {
            Status::SUCCESS => Ok(data),
            status => {
                assert!(data.is_empty());
                Err(status)
            }
        }
    };
    let controller = call(cns::CONTROLLER, 0, 0).unwrap();
    assert_eq!(controller[78..80], cntlid.to_le_bytes());
    assert_eq!(controller[80..84], [0, 0, 2, 0]);
    // MDTS 2^8 pages, IOCCSZ (64 + 8192) / 16, IORCSZ 1.
    assert_eq!(controller[77], 8);
    assert_eq!(controller[1792..1800], [4, 2, 0, 0, 1, 0, 0, 0]);
    let namespace = call(cns::NAMESPACE, 1, 0).unwrap();
    assert_eq!(namespace[..8], 1024u64.to_le_bytes());
    assert_eq!(call(cns::NAMESPACE, 3, 0).unwrap(), vec![0; 4096]);
    assert_eq!(call(cns::NAMESPACE, 0, 0), Err(Status::INVALID_NAMESPACE));
    assert_eq!(
        call(cns::NAMESPACE, u32::MAX, 0),
        Err(Status::INVALID_NAMESPACE)
    );
    assert_eq!(call(cns::NAMESPACE, 4, 0), Err(Status::INVALID_COMMAND_SET));
    let list = |ids: &[u32]| {
        let mut data: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        data.resize(4096, 0);
        Ok(data)
    };
    assert_eq!(call(cns::NAMESPACES, 0, 0), list(&[1, 2, 4]));
    assert_eq!(call(cns::NAMESPACES, 1, 0), list(&[2, 4]));
    assert_eq!(call(cns::NAMESPACES, 4, 0), list(&[]));
    assert_eq!(
        call(cns::NAMESPACES, u32::MAX - 1, 0),
        Err(Status::INVALID_NAMESPACE)
    );
    assert_eq!(call(cns::NAMESPACES_OF_SET, 0, 0), list(&[1, 2]));
    assert_eq!(call(cns::NAMESPACES_OF_SET, 0, 4), list(&[4]));
    assert_eq!(
        call(cns::NAMESPACES_OF_SET, 0, 3),
        Err(Status::INVALID_FIELD)
    );
    let descriptors = call(cns::DESCRIPTORS, 2, 0).unwrap();
    assert_eq!(descriptors[..4], [2, 16, 0, 0]);
    assert_eq!(descriptors[4..20], [2; 16]);
    assert_eq!(descriptors[20..24], [3, 16, 0, 0]);
    assert_eq!(descriptors[40..46], [4, 1, 0, 0, 0, 0]);
    assert_eq!(call(cns::DESCRIPTORS, 4, 0).unwrap()[44], 4);
    assert_eq!(call(cns::DESCRIPTORS, 3, 0), Err(Status::INVALID_NAMESPACE));
    assert_eq!(call(cns::NAMESPACE_OF_SET, 1, 0), Ok(vec![0; 4096]));
    assert_eq!(
        call(cns::NAMESPACE_OF_SET, 1, 4),
        Err(Status::INVALID_COMMAND_SET)
    );
    assert_eq!(
        call(cns::NAMESPACE_OF_SET, 3, 0),
        Err(Status::INVALID_NAMESPACE)
    );
    assert_eq!(call(cns::CONTROLLER_OF_SET, 0, 0), Ok(vec![0; 4096]));
    assert_eq!(
        call(cns::CONTROLLER_OF_SET, 0, 3),
        Err(Status::INVALID_FIELD)
    );
    assert_eq!(call(cns::INDEPENDENT_NAMESPACE, 4, 0).unwrap()[14], 1);
    assert_eq!(
        call(cns::INDEPENDENT_NAMESPACE, 3, 0),
        Err(Status::INVALID_NAMESPACE)
    );
    assert_eq!(
        call(cns::COMMAND_SETS, 0, 0).unwrap()[..8],
        [0x11, 0, 0, 0, 0, 0, 0, 0]
    );
    for cns in [0x04, 0x09, 0x10, 0x13, 0x14, 0xFF] {
        assert_eq!(
            call(cns, 1, 0),
            Err(Status::INVALID_FIELD),
            "CNS {cns:02X}h"
        );
    }
    // Too little room.
    let status = admin.status(identify(cns::CONTROLLER, 0, 0), &[], 4092);
    assert_eq!(status, Status::DATA_SGL_LENGTH_INVALID);
}

#[test]
fn feature_values() {
    let world = World::small();
    let (mut admin, _) = world.enabled(NONE, 0);
    let mut value = |sqe| {
        let (cqe, _) = admin.call(sqe, &[], 0);
        match cqe.status() {
            Status::SUCCESS => Ok(cqe.dw0.get()),
            status => Err(status),
        }
    };
    for (id, default, other) in [
        (feature::ARBITRATION, 0, 7),
        (feature::TEMPERATURE, 0x157, 0x160),
        (feature::WRITE_ATOMICITY, 0, 1),
        (feature::EVENTS, 0, 1 << 8),
    ] {
        assert_eq!(value(get(id, 0)), Ok(default));
        assert_eq!(value(features(id, other)), Ok(0));
        assert_eq!(value(get(id, 0)), Ok(other));
        assert_eq!(value(get(id, 1)), Ok(default));
        assert_eq!(value(get(id, 2)), Ok(default));
        assert_eq!(value(get(id, 3)), Ok(4));
        assert_eq!(value(get(id, 4)), Err(Status::INVALID_FIELD));
    }
    // Queues: fewer, more, none, no number.
    assert_eq!(value(features(feature::QUEUES, 0x0005_0000)), Ok(0));
    assert_eq!(value(get(feature::QUEUES, 0)), Ok(0));
    assert_eq!(
        value(features(feature::QUEUES, 0xFFFE_FFFE)),
        Ok(0x0002_0002)
    );
    assert_eq!(
        value(features(feature::QUEUES, 0xFFFF)),
        Err(Status::INVALID_FIELD)
    );
    assert_eq!(
        value(features(feature::QUEUES, 0xFFFF_0000)),
        Err(Status::INVALID_FIELD)
    );
    assert_eq!(
        value(features(feature::POWER, 1)),
        Err(Status::INVALID_FIELD)
    );
    assert_eq!(
        value(features(feature::WRITE_CACHE, 0)),
        Err(Status::FEATURE_NOT_CHANGEABLE)
    );
    assert_eq!(value(features(feature::WRITE_CACHE, 1)), Ok(0));
    assert_eq!(value(features(0x80, 1)), Err(Status::INVALID_FIELD));
    assert_eq!(value(get(0x80, 0)), Err(Status::INVALID_FIELD));
    let saved = Sqe {
        cdw10: (1 << 31 | u32::from(feature::EVENTS)).into(),
        ..features(feature::EVENTS, 1)
    };
    assert_eq!(value(saved), Err(Status::FEATURE_NOT_SAVEABLE));
    // The host identifier, 128 bits only.
    assert_eq!(
        value(get(feature::HOST_IDENTIFIER, 0)),
        Err(Status::INVALID_FIELD)
    );
    let mut wide = get(feature::HOST_IDENTIFIER, 0);
    wide.cdw11 = 1.into();
    assert_eq!(admin.call(wide, &[], 16).1, HOST_ID);
}

#[test]
fn success_without_a_response_if_the_host_allows_it() {
    let world = World::small();
    let (_admin, cntlid) = world.enabled(NONE, 0);
    let mut io = world.initialized(NONE);
    let mut connect = connect(1, 0);
    connect.cattr = 4;
    assert_eq!(io.connect(connect, &data(cntlid)).status(), Status::SUCCESS);
    io.start(Sqe::read(0, 1, 0, 0), &[], 4096);
    let replies = io.settle();
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].flags, pdu::LAST | pdu::SUCCESS);
    // A failure needs one.
    world.ram.fail_nth(1, Status::UNRECOVERED_READ_ERROR);
    let status = io.status(Sqe::read(0, 1, 0, 0), &[], 4096);
    assert_eq!(status, Status::UNRECOVERED_READ_ERROR);
}

#[test]
fn extended_blocks() {
    let world = World::small();
    let (_admin, mut io) = world.pair(NONE);
    let extended = pattern(3 * 576, 5);
    let status = io.status(Sqe::write(0, 2, 10, 2), &extended, 0);
    assert_eq!(status, Status::SUCCESS);
    let (_, read) = io.call(Sqe::read(0, 2, 10, 2), &[], 3 * 576);
    assert_eq!(read, extended);
    // Without room for the metadata, or a part of it missing.
    let status = io.status(Sqe::read(0, 2, 10, 2), &[], 3 * 512);
    assert_eq!(status, Status::DATA_SGL_LENGTH_INVALID);
    for len in [3 * 512, 3 * 576 - 4, 2 * 576, 4] {
        let status = io.status(Sqe::write(0, 2, 10, 2), &extended[..len], 0);
        assert!(!status.is_success(), "{len} bytes");
    }
    let (_, read) = io.call(Sqe::read(0, 2, 10, 2), &[], 3 * 576);
    assert_eq!(read, extended);
}
