//! Connect commands: what is refused, and how.

use std::sync::atomic::Ordering;
use std::time::Duration;

use toroid_nvme::fabrics::auth::{
    AuthCommand, AuthHash, AuthPolicy, DhGroup, HostAuth, HostStep, Secret,
};
use toroid_nvme::fabrics::{
    AllowedHost, Connect, ConnectData, DISCOVERY_NQN, Expired, Hosts, Limits, Sgl, cc, property,
};
use toroid_nvme::tcp::ConnectionError;
use toroid_nvme::{Cqe, Sqe, Status};
use zerocopy::IntoBytes;

use crate::harness::{
    HOST, HOST_ID, Peer, SUBSYSTEM, World, admin_command, connect, data, features, identify,
    log_page, pattern, small,
};
use crate::pdu::{self, NONE};

/// Parameter offset and whether it stands in the data, of a refusal for invalid parameters.
fn invalid(cqe: Cqe) -> (u32, bool) {
    assert_eq!(cqe.status(), Status::CONNECT_INVALID_PARAMETERS);
    assert!(cqe.do_not_retry());
    (cqe.dw0.get() & 0xFFFF, cqe.dw0.get() >> 16 & 1 == 1)
}

#[test]
fn parameters_of_an_admin_queue_are_checked() {
    let world = World::small();
    let attempt = |connect: Connect, data: ConnectData| {
        let mut peer = world.initialized(NONE);
        let cqe = peer.connect(connect, &data);
        // A refused queue may try again on the same connection.
        assert!(!peer.connection.is_finished());
        assert_eq!(peer.connection.bytes_held(), 0);
        cqe
    };
    let good = connect(0, 0);
    let with_nqns = |sub: &str, host: &str| ConnectData::new(HOST_ID, 0xFFFF, sub, host);
    for sqsize in [0, 32, 0xFFFF] {
        let cqe = attempt(Connect { sqsize, ..good }, data(0xFFFF));
        assert_eq!(invalid(cqe), (44, false));
    }
    assert_eq!(invalid(attempt(good, data(1))), (16, true));
    assert_eq!(
        invalid(attempt(good, with_nqns("nqn.other", HOST))),
        (256, true)
    );
    assert_eq!(invalid(attempt(good, with_nqns("", HOST))), (256, true));
    assert_eq!(
        invalid(attempt(good, with_nqns(SUBSYSTEM, "host"))),
        (512, true)
    );
    let mut unterminated = data(0xFFFF);
    unterminated.as_mut_bytes()[512..768].fill(b'n');
    assert_eq!(invalid(attempt(good, unterminated)), (512, true));
    let mut peer = world.initialized(NONE);
    let mut sqe = good.to_sqe(0);
    sqe.cdw10 = 1.into();
    let status = peer.status(sqe, data(0xFFFF).as_bytes(), 0);
    assert_eq!(status, Status::CONNECT_INCOMPATIBLE_FORMAT);
    for len in [0, 1020, 1028] {
        let bytes = [data(0xFFFF).as_bytes(), &[0; 4]].concat();
        let status = peer.status(good.to_sqe(0), &bytes[..len], 0);
        assert_eq!(status, Status::DATA_SGL_LENGTH_INVALID, "{len} bytes");
    }
    assert_eq!(world.target.statistics().controllers, 0);
    assert_eq!(world.target.statistics().refused, 12);
    // By R2T, for hosts that put nothing in capsules.
    let mut peer = world.initialized(NONE);
    let status = peer.write(good.to_sqe(0), data(0xFFFF).as_bytes());
    assert_eq!(status, Status::SUCCESS);
}

#[test]
fn hosts_that_are_not_listed_are_refused() {
    let listed = Hosts::Listed(vec![AllowedHost::new("nqn.other")]);
    let world = World::new(listed, small());
    let mut peer = world.initialized(NONE);
    let cqe = peer.connect(connect(0, 0), &data(0xFFFF));
    assert_eq!(cqe.status(), Status::CONNECT_INVALID_HOST);
    assert_eq!(cqe.dw0.get(), 0);
    // Discovery is open to all.
    let discovery = ConnectData::new(HOST_ID, 0xFFFF, DISCOVERY_NQN, HOST);
    assert_eq!(
        peer.connect(connect(0, 0), &discovery).status(),
        Status::SUCCESS
    );
}

#[test]
fn io_queues_of_other_hosts_too_early_and_beyond_the_grant() {
    let world = World::small();
    let (mut admin, cntlid) = world.admin(NONE, 0);
    let attempt = |qid, data: ConnectData| {
        let mut peer = world.initialized(NONE);
        let cqe = peer.connect(connect(qid, 0), &data);
        (peer, cqe)
    };
    // Before the controller is ready.
    let (_, cqe) = attempt(1, data(cntlid));
    assert_eq!(cqe.status(), Status::COMMAND_SEQUENCE_ERROR);
    admin.property_set(property::CC, cc::EN | cc::ENTRY_SIZES);
    // Beyond those that there are, before the host has asked for some, and afterwards.
    assert_eq!(invalid(attempt(4, data(cntlid)).1), (42, false));
    admin.enable();
    assert_eq!(invalid(attempt(4, data(cntlid)).1), (42, false));
    // Of another controller, subsystem, host.
    assert_eq!(invalid(attempt(1, data(cntlid + 1)).1), (16, true));
    assert_eq!(invalid(attempt(1, data(0xFFFF)).1), (16, true));
    let with = |id, sub: &str, host: &str| ConnectData::new(id, cntlid, sub, host);
    let cases = [
        (with(HOST_ID, DISCOVERY_NQN, HOST), (256, true)),
        (with(HOST_ID, "nqn.other", HOST), (256, true)),
        (with(HOST_ID, SUBSYSTEM, "nqn.other"), (512, true)),
        (with(HOST_ID, SUBSYSTEM, ""), (512, true)),
        (with([0; 16], SUBSYSTEM, HOST), (0, true)),
    ];
    for (data, expected) in cases {
        assert_eq!(invalid(attempt(1, data).1), expected);
    }
    let mut peer = world.initialized(NONE);
    let big = Connect {
        sqsize: 16,
        ..connect(1, 0)
    };
    assert_eq!(invalid(peer.connect(big, &data(cntlid))), (44, false));
    let (_first, cqe) = attempt(1, data(cntlid));
    assert_eq!(
        (cqe.status(), cqe.dw0.get()),
        (Status::SUCCESS, cntlid.into())
    );
    let (third, cqe) = attempt(3, data(cntlid));
    assert_eq!(cqe.status(), Status::SUCCESS);
    // As many queues as are in use cannot be granted anew.
    let status = admin.status(features(7, 0), &[], 0);
    assert_eq!(status, Status::COMMAND_SEQUENCE_ERROR);
    assert_eq!(third.connection.peer(), Some((HOST, 3)));
}

#[test]
fn a_queue_that_connects_anew_waits_for_the_end_of_its_old_connection() {
    let world = World::small();
    let (_admin, mut old) = world.pair(NONE);
    let cntlid = 1;
    old.start(Sqe::read(0, 1, 0, 255), &[], 1 << 20);
    let begin = || {
        let mut peer = world.initialized(NONE);
        let cid = peer.start(connect(1, 0).to_sqe(0), data(cntlid).as_bytes(), 0);
        assert!(peer.settle().is_empty(), "the Connect command waits");
        (peer, cid)
    };
    // The old connection lives: the new one waits for a second in vain.
    let (mut second, cid) = begin();
    second.wait(Duration::from_millis(999));
    assert!(second.settle().is_empty());
    assert_eq!(
        second.connection.deadline(),
        Some(second.now + Duration::from_millis(1))
    );
    second.wait(Duration::from_millis(1));
    let replies = second.settle();
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].cqe().cid.get(), cid);
    assert_eq!(invalid(replies[0].cqe()), (42, false));
    assert!(!second.connection.is_finished());
    // The old one ends: the new one is told, and succeeds, while the old one's command is in progress.
    let (mut third, _) = begin();
    let before = world.wakes.load(Ordering::Relaxed);
    let in_flight = old.actions.pop();
    drop(old);
    assert!(world.wakes.load(Ordering::Relaxed) > before);
    third.wait(Duration::ZERO);
    let replies = third.settle();
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].cqe().status(), Status::SUCCESS);
    assert_eq!(third.connection.peer(), Some((HOST, 1)));
    assert_eq!(third.status(Sqe::flush(0, 1), &[], 0), Status::SUCCESS);
    drop(in_flight);
    // Another command instead of patience.
    let (mut fourth, _) = begin();
    fourth.start(Sqe::flush(0, 1), &[], 0);
    assert_eq!(fourth.fatal().0, 5);
}

#[test]
fn hosts_that_are_careless_about_names_get_in_where_that_is_safe() {
    let world = World::small();
    let nameless = |cntlid| ConnectData::new(HOST_ID, cntlid, SUBSYSTEM, "");
    // Without a name, and without asking for the number of queues; another identifier for each queue.
    let mut admin = world.initialized(NONE);
    let cqe = admin.connect(connect(0, 0), &nameless(0xFFFF));
    assert_eq!(cqe.status(), Status::SUCCESS);
    let cntlid = cqe.dw0.get() as u16;
    admin.property_set(property::CC, cc::EN | cc::ENTRY_SIZES);
    for qid in 1..=3 {
        let mut io = world.initialized(NONE);
        let mut data = nameless(cntlid);
        data.hostid = [qid as u8; 16];
        let cqe = io.connect(connect(qid, 0), &data);
        assert_eq!(cqe.status(), Status::SUCCESS);
        assert_eq!(io.status(Sqe::flush(0, 1), &[], 0), Status::SUCCESS);
        assert_eq!(io.connection.peer(), Some(("", qid)));
    }
    // A list of hosts has no host without a name.
    let world = World::new(Hosts::Listed(vec![AllowedHost::new(HOST)]), small());
    let mut admin = world.initialized(NONE);
    let cqe = admin.connect(connect(0, 0), &nameless(0xFFFF));
    assert_eq!(cqe.status(), Status::CONNECT_INVALID_HOST);
}

#[test]
fn another_host_identifier_does_not_spare_a_queue_its_authentication() {
    let world = locked(small());
    let mut admin = world.initialized(NONE);
    let cqe = admin.connect(connect(0, 0), &data(0xFFFF));
    assert!(authenticate(&mut admin, 1));
    admin.enable();
    let mut io = world.initialized(NONE);
    let mut other = data(cqe.dw0.get() as u16);
    other.hostid = [1; 16];
    assert_eq!(io.connect(connect(1, 0), &other).dw0.get() >> 16, 2);
    let flush = Sqe::flush(0, 1);
    assert_eq!(io.status(flush, &[], 0), Status::AUTHENTICATION_REQUIRED);
    assert!(!authenticate(&mut io, 2));
    assert!(io.connection.is_finished());
}

#[test]
fn limits_of_controllers_per_host_and_in_total() {
    let world = World::small();
    let mut kept = Vec::new();
    let attempt = |host: &str| {
        let mut peer = world.initialized(NONE);
        let data = ConnectData::new(HOST_ID, 0xFFFF, SUBSYSTEM, host);
        let cqe = peer.connect(connect(0, 0), &data);
        (peer, cqe)
    };
    for host in [HOST, HOST, HOST, HOST, "nqn.b", "nqn.b"] {
        let (peer, cqe) = attempt(host);
        assert_eq!(cqe.status(), Status::SUCCESS);
        kept.push(peer);
        if kept.len() == 4 {
            let busy = attempt(HOST).1;
            assert_eq!(busy.status(), Status::CONNECT_CONTROLLER_BUSY);
            assert!(!busy.do_not_retry());
        }
    }
    assert_eq!(attempt("nqn.c").1.status(), Status::CONNECT_CONTROLLER_BUSY);
    kept.clear();
    assert_eq!(attempt("nqn.c").1.status(), Status::SUCCESS);
}

fn secret(seed: u8) -> Secret {
    Secret::new(Some(AuthHash::Sha256), &[seed; 32]).unwrap()
}

fn locked(limits: Limits) -> World {
    let host = AllowedHost {
        secret: Some(secret(1)),
        ..AllowedHost::new(HOST)
    };
    World::new(Hosts::Listed(vec![host]), limits)
}

/// The null group: the groups' arithmetic takes long, and has tests of its own.
fn authenticate(peer: &mut Peer, seed: u8) -> bool {
    let policy = AuthPolicy {
        hashes: vec![AuthHash::Sha256],
        groups: vec![DhGroup::Null],
    };
    let mut auth = HostAuth::new(policy, SUBSYSTEM, HOST, secret(seed), None, 1);
    let mut message = auth.start();
    loop {
        let len = message.len() as u32;
        let status = peer.status(AuthCommand::Send { len }.sqe(0), &message, 0);
        assert_eq!(status, Status::SUCCESS);
        let (cqe, data) = peer.call(AuthCommand::Receive { len: 4096 }.sqe(0), &[], 4096);
        assert_eq!(cqe.status(), Status::SUCCESS);
        match auth.next(&data) {
            Ok(HostStep::Send(next)) => message = next,
            Ok(HostStep::Done(_)) => return true,
            Err(_) => return false,
        }
    }
}

#[test]
fn only_authentication_commands_work_before_it_succeeds() {
    let world = locked(small());
    let (mut admin, cntlid) = {
        let mut peer = world.initialized(NONE);
        let cqe = peer.connect(connect(0, 0), &data(0xFFFF));
        assert_eq!(cqe.status(), Status::SUCCESS);
        assert_eq!(cqe.dw0.get() >> 16, 2);
        (peer, cqe.dw0.get() as u16)
    };
    let required = Status::AUTHENTICATION_REQUIRED;
    assert_eq!(admin.property(property::CAP, true), Err(required));
    assert_eq!(admin.property_set(property::CC, 1), required);
    assert_eq!(admin.status(identify(1, 0, 0), &[], 4096), required);
    assert_eq!(admin.status(log_page(2, 0, 512), &[], 512), required);
    assert_eq!(admin.status(admin_command(0x0C, 0, 0, 0), &[], 0), required);
    assert_eq!(admin.status(admin_command(0x18, 0, 0, 0), &[], 0), required);
    // No room for much data either.
    let status = admin.status(admin_command(0xC1, 0, 0, 0), &[], 1 << 20);
    assert_eq!(status, Status::INVALID_FIELD);
    assert!(authenticate(&mut admin, 1));
    admin.enable();
    // Each queue by itself.
    let mut io = world.initialized(NONE);
    let cqe = io.connect(connect(1, 0), &data(cntlid));
    assert_eq!(cqe.dw0.get() >> 16, 2);
    assert_eq!(io.status(Sqe::read(0, 1, 0, 0), &[], 4096), required);
    let write = Sqe::write(0, 1, 0, 0);
    assert_eq!(io.status(write, &pattern(4096, 1), 0), required);
    assert_eq!(world.ram.submitted().len(), 0);
    assert!(authenticate(&mut io, 1));
    assert_eq!(io.status(write, &pattern(4096, 1), 0), Status::SUCCESS);
}

#[test]
fn a_wrong_secret_ends_the_connection() {
    let world = locked(small());
    let mut peer = world.initialized(NONE);
    peer.connect(connect(0, 0), &data(0xFFFF));
    assert!(!authenticate(&mut peer, 2));
    assert!(peer.connection.is_finished());
    drop(peer);
    assert_eq!(world.target.statistics().refused, 1);
    assert_eq!(world.target.statistics().controllers, 0);
}

#[test]
fn concurrent_steps_of_an_authentication_are_refused() {
    let world = locked(small());
    let mut peer = world.initialized(NONE);
    peer.connect(connect(0, 0), &data(0xFFFF));
    let message = [0; 8];
    peer.start(AuthCommand::Send { len: 8 }.sqe(0), &message, 0);
    assert_eq!(peer.actions.len(), 1);
    let second = peer.start(AuthCommand::Send { len: 8 }.sqe(0), &message, 0);
    let replies = peer.replies();
    assert_eq!(replies[0].cqe().cid.get(), second);
    assert_eq!(replies[0].cqe().status(), Status::COMMAND_SEQUENCE_ERROR);
    // Lengths that do not agree.
    let status = {
        let mut sqe = AuthCommand::Send { len: 12 }.sqe(9);
        sqe.dptr = Sgl::InCapsule {
            offset: 0,
            length: 8,
        }
        .to_bytes();
        peer.send(&pdu::command(&sqe, &message, NONE));
        peer.replies()[0].cqe().status()
    };
    assert_eq!(status, Status::INVALID_FIELD);
}

#[test]
fn unauthenticated_controllers_do_not_count_against_the_host() {
    let limits = Limits {
        controllers: 100,
        ..small()
    };
    let world = locked(limits);
    let impostors: Vec<Peer> = (0..20)
        .map(|_| {
            let mut peer = world.initialized(NONE);
            let cqe = peer.connect(connect(0, 0), &data(0xFFFF));
            assert_eq!(cqe.status(), Status::SUCCESS);
            peer
        })
        .collect();
    let mut own = Vec::new();
    for i in 0..5 {
        let mut peer = world.initialized(NONE);
        let cqe = peer.connect(connect(0, 0), &data(0xFFFF));
        match i {
            0..4 => {
                assert!(authenticate(&mut peer, 1));
                assert!(peer.property(property::CAP, true).is_ok());
                own.push(peer);
            }
            // The host itself has its limit.
            _ => assert_eq!(cqe.status(), Status::CONNECT_CONTROLLER_BUSY),
        }
    }
    drop(impostors);
    assert_eq!(world.target.statistics().controllers, 4);
}

#[test]
fn slow_handshakes_end_the_connection() {
    let world = locked(small());
    let fresh = world.open();
    let initialized = world.initialized(NONE);
    let mut connected = world.initialized(NONE);
    connected.connect(connect(0, 0), &data(0xFFFF));
    let mut trusted = world.initialized(NONE);
    trusted.connect(connect(0, 0), &data(0xFFFF));
    assert!(authenticate(&mut trusted, 1));
    assert_eq!(trusted.connection.deadline(), None);
    for mut peer in [fresh, initialized, connected] {
        peer.wait(Duration::from_millis(9_999));
        assert!(!peer.connection.is_finished());
        assert!(peer.connection.deadline() <= Some(peer.now + Duration::from_millis(1)));
        peer.wait(Duration::from_millis(1));
        assert!(peer.connection.is_finished());
        assert_eq!(
            peer.connection.error(),
            Some(&ConnectionError::Expired(Expired::Handshake))
        );
    }
    trusted.wait(Duration::from_secs(1000));
    assert!(!trusted.connection.is_finished());
    assert_eq!(world.target.statistics().connections, 1);
}
