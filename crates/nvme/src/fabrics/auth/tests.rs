//! Host against controller, and both against transcripts that other programs computed.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::Status;

const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
const SUB_NQN: &str = "nqn.2026-01.org.example:drive";
const T_ID: u16 = 0x1234;

/// What a test does to a message.
type Edit = fn(&mut Vec<u8>);

fn secret(seed: u8) -> Secret {
    Secret::new(Some(AuthHash::Sha256), &[seed; 32]).unwrap()
}

fn policy(hash: AuthHash, group: DhGroup) -> AuthPolicy {
    AuthPolicy {
        hashes: vec![hash],
        groups: vec![group],
    }
}

fn quick() -> AuthPolicy {
    policy(AuthHash::Sha256, DhGroup::Null)
}

/// A host and a controller that agree.
fn pair(policy: &AuthPolicy, mutual: bool) -> (HostAuth, ControllerAuth) {
    let controller_secret = mutual.then(|| secret(2));
    let host = HostAuth::new(
        policy.clone(),
        SUB_NQN,
        HOST_NQN,
        secret(1),
        controller_secret,
        T_ID,
    );
    (host, controller(policy))
}

fn controller(policy: &AuthPolicy) -> ControllerAuth {
    ControllerAuth::new(
        policy.clone(),
        SUB_NQN,
        HOST_NQN,
        secret(1),
        Some(secret(2)),
    )
}

/// Receives with the length that hosts ask for, with the zeroes after the message.
fn receive(controller: &mut ControllerAuth) -> Vec<u8> {
    let mut data = controller.receive(RECEIVE_LEN as usize).unwrap();
    data.resize(RECEIVE_LEN as usize, 0);
    data
}

/// Runs a transaction; what the host says of it.
fn run(host: &mut HostAuth, controller: &mut ControllerAuth) -> Result<(), AuthError> {
    controller.send(&host.start()).unwrap();
    loop {
        match host.next(&receive(controller)) {
            Ok(HostStep::Send(message)) => controller.send(&message).unwrap(),
            Ok(HostStep::Done(message)) => {
                if let Some(message) = message {
                    controller.send(&message).unwrap();
                }
                return Ok(());
            }
            Err(error) => {
                if let Some(message) = host.failure() {
                    controller.send(&message).unwrap();
                }
                assert_eq!(host.failure(), None);
                return Err(error);
            }
        }
    }
}

/// The reply of `host` to a challenge of `controller`.
fn reply(host: &mut HostAuth, controller: &mut ControllerAuth) -> Vec<u8> {
    controller.send(&host.start()).unwrap();
    match host.next(&receive(controller)).unwrap() {
        HostStep::Send(reply) => reply,
        done => panic!("{done:?}"),
    }
}

/// Checks that the controller fails with `expected`, tells the host so and takes nothing more.
fn assert_failed(controller: &mut ControllerAuth, expected: AuthError) {
    assert_eq!(*controller.state(), AuthState::Failed(expected.clone()));
    assert!(controller.has_message());
    let message = controller.receive(8).unwrap();
    let [auth_type, auth_id, 0, 0, _, _, 1, explanation] = message[..] else {
        panic!("{message:02X?}");
    };
    assert_eq!((auth_type, auth_id), (0, 0xF0));
    assert_eq!(explanation, expected.reason().code());
    assert!(!controller.has_message());
    let negotiate = message::negotiate(T_ID, &quick(), message::NO_CONCATENATION);
    assert_eq!(
        controller.send(&negotiate),
        Err(Status::COMMAND_SEQUENCE_ERROR)
    );
    assert_eq!(controller.receive(64), Err(Status::COMMAND_SEQUENCE_ERROR));
    assert_eq!(*controller.state(), AuthState::Failed(expected));
}

#[test]
fn every_hash_and_group_authenticates() {
    for hash in AuthHash::ALL {
        for group in DhGroup::ALL {
            if group == DhGroup::Ffdhe8192 && hash != AuthHash::Sha512 {
                continue;
            }
            let (mut host, mut controller) = pair(&policy(hash, group), true);
            run(&mut host, &mut controller).unwrap();
            assert_eq!(
                *controller.state(),
                AuthState::Authenticated,
                "{hash} {group}"
            );
        }
    }
}

#[test]
fn authenticates_again() {
    for mutual in [false, true] {
        let (mut host, mut controller) = pair(&quick(), mutual);
        assert_eq!(*controller.state(), AuthState::Pending);
        for _ in 0..2 {
            run(&mut host, &mut controller).unwrap();
            assert_eq!(*controller.state(), AuthState::Authenticated);
            assert!(!controller.has_message());
        }
    }
}

#[test]
fn authenticated_only_at_the_end() {
    for mutual in [false, true] {
        let (mut host, mut controller) = pair(&quick(), mutual);
        let reply = reply(&mut host, &mut controller);
        controller.send(&reply).unwrap();
        assert_eq!(*controller.state(), AuthState::Pending);
        let step = host.next(&receive(&mut controller)).unwrap();
        let after_success1 = match mutual {
            false => AuthState::Authenticated,
            true => AuthState::Pending,
        };
        assert_eq!(*controller.state(), after_success1);
        let success2 = mutual.then(|| message::success2(T_ID));
        assert_eq!(step, HostStep::Done(success2.clone()));
        if let Some(success2) = success2 {
            controller.send(&success2).unwrap();
        }
        assert_eq!(*controller.state(), AuthState::Authenticated);
    }
}

/// Bytes that count up modulo 251, as `tests/data/dhchap.py` draws them.
fn counting(start: u32) -> Random {
    Random::Fixed((start..start + 1000).map(|i| (i % 251) as u8).collect())
}

#[test]
fn messages_are_those_of_the_transcripts() {
    let transcripts: HashMap<&str, Vec<u8>> = include_str!("../../../tests/data/dhchap.txt")
        .lines()
        .map(|line| {
            let (name, hex) = line.split_once(' ').unwrap();
            let bytes = (0..hex.len()).step_by(2);
            let bytes = bytes.map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap());
            (name, bytes.collect())
        })
        .collect();
    for (name, hash, group) in [
        ("sha256-null", AuthHash::Sha256, DhGroup::Null),
        ("sha512-null", AuthHash::Sha512, DhGroup::Null),
        ("sha256-ffdhe2048", AuthHash::Sha256, DhGroup::Ffdhe2048),
        ("sha384-ffdhe3072", AuthHash::Sha384, DhGroup::Ffdhe3072),
        ("sha512-ffdhe4096", AuthHash::Sha512, DhGroup::Ffdhe4096),
        ("sha256-ffdhe6144", AuthHash::Sha256, DhGroup::Ffdhe6144),
        ("sha384-ffdhe8192", AuthHash::Sha384, DhGroup::Ffdhe8192),
    ] {
        let expected = |message: &str| &transcripts[&*format!("{name}-{message}")];
        let policy = policy(hash, group);
        let len = hash.output_len() as u8;
        let host_key: Vec<u8> = (0..len).collect();
        let host_secret = Secret::new(Some(AuthHash::Sha256), &host_key).unwrap();
        let controller_key: Vec<u8> = (0..len).map(|i| 0xFF - i).collect();
        let controller_secret = Some(Secret::new(None, &controller_key).unwrap());
        let mut host = HostAuth::new(
            policy.clone(),
            SUB_NQN,
            HOST_NQN,
            host_secret.clone(),
            controller_secret.clone(),
            T_ID,
        );
        host.random = counting(101);
        let mut controller =
            ControllerAuth::new(policy, SUB_NQN, HOST_NQN, host_secret, controller_secret);
        controller.random = counting(1);

        let negotiate = host.start();
        assert_eq!(negotiate, *expected("negotiate"), "{name}");
        controller.send(&negotiate).unwrap();
        let challenge = controller.receive(RECEIVE_LEN as usize).unwrap();
        assert_eq!(challenge, *expected("challenge"), "{name}");
        let reply = host.next(&challenge).unwrap();
        assert_eq!(reply, HostStep::Send(expected("reply").clone()), "{name}");
        controller.send(expected("reply")).unwrap();
        let success1 = controller.receive(RECEIVE_LEN as usize).unwrap();
        assert_eq!(success1, *expected("success1"), "{name}");
        let success2 = host.next(&success1).unwrap();
        assert_eq!(
            success2,
            HostStep::Done(Some(expected("success2").clone())),
            "{name}"
        );
        controller.send(expected("success2")).unwrap();
        assert_eq!(*controller.state(), AuthState::Authenticated);
    }
}

#[test]
fn refuses_another_secret() {
    for group in [DhGroup::Null, DhGroup::Ffdhe2048] {
        let policy = policy(AuthHash::Sha384, group);
        let (mut host, mut controller) = pair(&policy, true);
        host.host_secret = secret(3);
        let error = run(&mut host, &mut controller).unwrap_err();
        assert_eq!(
            error,
            AuthError::Refused(FailureReason::AuthenticationFailed)
        );
        assert_eq!(
            *controller.state(),
            AuthState::Failed(AuthError::HostResponse)
        );

        let (mut host, mut controller) = pair(&policy, true);
        host.controller_secret = Some(secret(3));
        let error = run(&mut host, &mut controller).unwrap_err();
        assert_eq!(error, AuthError::ControllerResponse);
        let refused = AuthError::Refused(FailureReason::AuthenticationFailed);
        assert_eq!(*controller.state(), AuthState::Failed(refused));
        assert!(!controller.has_message());
    }
}

#[test]
fn refuses_another_name() {
    let (mut host, mut controller) = pair(&quick(), false);
    host.host_nqn.push('x');
    assert!(run(&mut host, &mut controller).is_err());
    let (mut host, mut controller) = pair(&quick(), false);
    host.sub_nqn.push('x');
    assert!(run(&mut host, &mut controller).is_err());
}

#[test]
fn refuses_to_authenticate_a_controller_without_a_secret() {
    let (mut host, mut controller) = pair(&quick(), true);
    controller.controller_secret = None;
    let reply = reply(&mut host, &mut controller);
    controller.send(&reply).unwrap();
    assert_failed(&mut controller, AuthError::NoControllerSecret);
}

#[test]
fn host_insists_on_the_controllers_response() {
    let (mut host, mut controller) = pair(&quick(), true);
    let mut reply = reply(&mut host, &mut controller);
    reply[8] = 0;
    controller.send(&reply).unwrap();
    let error = host.next(&receive(&mut controller)).unwrap_err();
    assert_eq!(error, AuthError::ControllerSilent);
    let failure2 = host.failure().unwrap();
    assert_eq!(failure2, [0, 0xF1, 0, 0, 0x34, 0x12, 1, 1]);
    controller.send(&failure2).unwrap();
    let refused = AuthError::Refused(FailureReason::AuthenticationFailed);
    assert_eq!(*controller.state(), AuthState::Failed(refused));
}

#[test]
fn refuses_a_replayed_reply() {
    let (mut host, mut controller) = pair(&quick(), false);
    let first = reply(&mut host, &mut controller);
    controller.send(&first).unwrap();
    receive(&mut controller);
    assert_eq!(*controller.state(), AuthState::Authenticated);
    // The same transaction again, as who listened can send it.
    controller
        .send(&message::negotiate(
            T_ID,
            &quick(),
            message::NO_CONCATENATION,
        ))
        .unwrap();
    receive(&mut controller);
    controller.send(&first).unwrap();
    assert_failed(&mut controller, AuthError::HostResponse);
}

#[test]
fn refuses_a_reflected_response() {
    // Both have the same secret and the host sends the controller's own challenge back, to learn the response to it.
    let (mut host, mut victim) = pair(&quick(), true);
    let same = Secret::new(None, &[7; 32]).unwrap();
    victim.host_secret = same.clone();
    victim.controller_secret = Some(same.clone());
    host.host_secret = same.clone();
    host.controller_secret = Some(same);
    victim.send(&host.start()).unwrap();
    let challenge = receive(&mut victim);
    let HostStep::Send(mut reply) = host.next(&challenge).unwrap() else {
        panic!();
    };
    reply[12..16].copy_from_slice(&challenge[12..16]);
    reply[48..80].copy_from_slice(&challenge[16..48]);
    victim.send(&reply).unwrap();
    let controllers = receive(&mut victim)[16..48].to_vec();
    assert_ne!(controllers, reply[16..48]);

    // Nor does the host take its own response for the controller's.
    let (mut host, mut controller) = pair(&quick(), true);
    let reply = self::reply(&mut host, &mut controller);
    let success1 = message::success1(T_ID, AuthHash::Sha256, Some(&reply[16..48]));
    assert_eq!(host.next(&success1), Err(AuthError::ControllerResponse));
}

#[test]
fn controller_prefers_its_own_order() {
    let controllers = AuthPolicy {
        hashes: vec![AuthHash::Sha512, AuthHash::Sha256],
        groups: vec![DhGroup::Ffdhe2048, DhGroup::Null],
    };
    let negotiate = message::negotiate(T_ID, &AuthPolicy::default(), message::NO_CONCATENATION);
    assert_eq!(
        message::choose(&negotiate, &controllers, message::NO_CONCATENATION).unwrap(),
        (AuthHash::Sha512, DhGroup::Ffdhe2048)
    );
    let refused = |hash, group| {
        message::choose(
            &negotiate_of(hash, group),
            &controllers,
            message::NO_CONCATENATION,
        )
    };
    assert_eq!(
        refused(AuthHash::Sha384, DhGroup::Null),
        Err(AuthError::NoHash)
    );
    assert_eq!(
        refused(AuthHash::Sha256, DhGroup::Ffdhe8192),
        Err(AuthError::NoGroup)
    );
}

fn negotiate_of(hash: AuthHash, group: DhGroup) -> Vec<u8> {
    message::negotiate(T_ID, &policy(hash, group), message::NO_CONCATENATION)
}

#[test]
fn negotiation_that_linux_sends_is_read() {
    // Linux lists all hashes and groups by identifier.
    let mut linux = vec![0, 0, 0, 0, 0x34, 0x12, 0, 1];
    let mut descriptor = [0u8; 64];
    descriptor[..7].copy_from_slice(&[1, 0, 3, 6, 1, 2, 3]);
    descriptor[34..40].copy_from_slice(&[0, 1, 2, 3, 4, 5]);
    linux.extend(descriptor);
    assert_eq!(
        message::choose(&linux, &AuthPolicy::default(), message::NO_CONCATENATION).unwrap(),
        (AuthHash::Sha256, DhGroup::Ffdhe3072)
    );
    // Descriptors of protocols that are not known are passed over.
    let mut other = [0u8; 64];
    other[0] = 0x77;
    linux[7] = 2;
    linux.splice(8..8, other);
    assert!(message::choose(&linux, &AuthPolicy::default(), message::NO_CONCATENATION).is_ok());
}

#[test]
fn says_what_is_wrong_with_a_negotiation() {
    let good = message::negotiate(T_ID, &quick(), message::NO_CONCATENATION);
    let cases: [(Edit, AuthError); 6] = [
        (|m| m[6] = 1, AuthError::Concatenation(1)),
        (|m| m[8] = 2, AuthError::NoProtocol),
        (
            |m| m[10] = 31,
            AuthError::Field {
                field: "HALEN",
                expected: "at most 30",
                found: 31,
            },
        ),
        (
            |m| m[11] = 255,
            AuthError::Field {
                field: "DHLEN",
                expected: "at most 30",
                found: 255,
            },
        ),
        (
            |m| m[7] = 2,
            AuthError::Length {
                message: "AUTH_Negotiate",
                expected: 136,
                found: 72,
            },
        ),
        (
            |m| m.truncate(3),
            AuthError::Length {
                message: "authentication",
                expected: 6,
                found: 3,
            },
        ),
    ];
    for (edit, expected) in cases {
        let mut controller = controller(&quick());
        let mut message = good.clone();
        edit(&mut message);
        controller.send(&message).unwrap();
        assert_failed(&mut controller, expected);
    }
}

#[test]
fn says_what_is_wrong_with_a_reply() {
    let field = |field, expected, found| AuthError::Field {
        field,
        expected,
        found,
    };
    let cases: [(Edit, AuthError); 7] = [
        (
            |m| m[4] = 0,
            AuthError::Transaction {
                expected: T_ID,
                found: 0x1200,
            },
        ),
        (
            |m| m[6] = 48,
            field("HL", "the length of the hash function chosen", 48),
        ),
        (|m| m[8] = 2, field("CVALID", "0 or 1", 2)),
        (|m| m[10] = 4, field("DHVLEN", "0 with the null group", 4)),
        (
            |m| m[12..16].fill(0),
            field("SEQNUM", "a number other than 0 with a challenge", 0),
        ),
        (
            |m| m.push(0),
            AuthError::Length {
                message: "DH-HMAC-CHAP_Reply",
                expected: 80,
                found: 81,
            },
        ),
        (|m| m[16] ^= 1, AuthError::HostResponse),
    ];
    for (edit, expected) in cases {
        let (mut host, mut controller) = pair(&quick(), true);
        let mut reply = reply(&mut host, &mut controller);
        edit(&mut reply);
        controller.send(&reply).unwrap();
        assert_failed(&mut controller, expected);
    }

    let (mut host, mut controller) = pair(&policy(AuthHash::Sha256, DhGroup::Ffdhe2048), false);
    let mut reply = reply(&mut host, &mut controller);
    reply[80..].fill(0);
    controller.send(&reply).unwrap();
    assert_failed(&mut controller, AuthError::PublicValue(DhGroup::Ffdhe2048));
}

#[test]
fn refuses_messages_out_of_order() {
    let unexpected = |expected, auth_type, auth_id| AuthError::UnexpectedMessage {
        expected,
        auth_type,
        auth_id,
    };
    let (mut host, mut other) = pair(&quick(), true);
    let reply_message = reply(&mut host, &mut other);

    let mut controller = controller(&quick());
    assert_eq!(
        controller.receive(4096),
        Err(Status::COMMAND_SEQUENCE_ERROR)
    );
    assert_eq!(*controller.state(), AuthState::Pending);
    controller.send(&reply_message).unwrap();
    assert_failed(&mut controller, unexpected("AUTH_Negotiate", 1, 2));

    let mut controller = self::controller(&quick());
    controller.send(&message::success2(T_ID)).unwrap();
    assert_failed(&mut controller, unexpected("AUTH_Negotiate", 1, 4));

    // Success2 in place of the reply, and before Success1 is fetched.
    let (mut host, mut controller) = pair(&quick(), true);
    reply(&mut host, &mut controller);
    assert_eq!(
        controller.receive(4096),
        Err(Status::COMMAND_SEQUENCE_ERROR)
    );
    controller.send(&message::success2(T_ID)).unwrap();
    assert_failed(&mut controller, unexpected("DH-HMAC-CHAP_Reply", 1, 4));

    let (mut host, mut controller) = pair(&quick(), true);
    let reply_message = reply(&mut host, &mut controller);
    controller.send(&reply_message).unwrap();
    controller.send(&message::success2(T_ID)).unwrap();
    assert_failed(&mut controller, unexpected("an AUTH_Receive command", 1, 4));

    // A challenge is no message to a controller.
    let mut controller = self::controller(&quick());
    controller.send(&host.start()).unwrap();
    let challenge = controller.receive(4096).unwrap();
    controller.send(&challenge).unwrap();
    assert_failed(&mut controller, unexpected("DH-HMAC-CHAP_Reply", 1, 1));
}

#[test]
fn short_allocation_changes_nothing() {
    let (mut host, mut controller) = pair(&policy(AuthHash::Sha256, DhGroup::Ffdhe2048), true);
    controller.send(&host.start()).unwrap();
    assert!(controller.has_message());
    assert_eq!(
        controller.receive(16 + 32 + 255),
        Err(Status::INVALID_FIELD)
    );
    let challenge = controller.receive(16 + 32 + 256).unwrap();
    let HostStep::Send(reply) = host.next(&challenge).unwrap() else {
        panic!();
    };
    controller.send(&reply).unwrap();
    assert_eq!(controller.receive(47), Err(Status::INVALID_FIELD));
    assert_eq!(controller.receive(48).unwrap().len(), 48);
}

#[test]
fn negotiation_restarts_in_the_middle() {
    let (mut host, mut controller) = pair(&quick(), true);
    reply(&mut host, &mut controller);
    run(&mut host, &mut controller).unwrap();
    assert_eq!(*controller.state(), AuthState::Authenticated);
}

#[test]
fn failed_reauthentication_ends_the_first() {
    let (mut host, mut controller) = pair(&quick(), true);
    run(&mut host, &mut controller).unwrap();
    host.host_secret = secret(9);
    let reply = reply(&mut host, &mut controller);
    assert_eq!(*controller.state(), AuthState::Authenticated);
    controller.send(&reply).unwrap();
    assert_failed(&mut controller, AuthError::HostResponse);
}

#[test]
fn host_refuses_what_it_did_not_offer() {
    let challenge = |edit: Edit| {
        let policy = policy(AuthHash::Sha256, DhGroup::Ffdhe2048);
        let (mut host, mut controller) = pair(&policy, true);
        controller.send(&host.start()).unwrap();
        let mut challenge = controller.receive(RECEIVE_LEN as usize).unwrap();
        edit(&mut challenge);
        let error = host.next(&challenge).unwrap_err();
        let failure2 = host.failure().unwrap();
        assert_eq!(failure2[7], error.reason().code());
        assert_eq!(
            host.next(&challenge),
            Err(AuthError::UnexpectedMessage {
                expected: "no message",
                auth_type: 1,
                auth_id: 1
            })
        );
        error
    };
    assert_eq!(
        challenge(|m| m[8] = 2),
        AuthError::HashNotOffered { id: 2, len: 32 }
    );
    assert_eq!(
        challenge(|m| m[6] = 48),
        AuthError::HashNotOffered { id: 1, len: 48 }
    );
    assert_eq!(
        challenge(|m| m[8] = 0),
        AuthError::HashNotOffered { id: 0, len: 32 }
    );
    assert_eq!(challenge(|m| m[9] = 0), AuthError::GroupNotOffered(0));
    assert_eq!(challenge(|m| m[9] = 9), AuthError::GroupNotOffered(9));
    assert_eq!(
        challenge(|m| m[11] = 4),
        AuthError::Field {
            field: "DHVLEN",
            expected: "the length of the group's prime at most, and not 0",
            found: 1024
        }
    );
    assert_eq!(
        challenge(|m| m[48..].fill(0xFF)),
        AuthError::PublicValue(DhGroup::Ffdhe2048)
    );
    assert_eq!(
        challenge(|m| m.truncate(303)),
        AuthError::Length {
            message: "DH-HMAC-CHAP_Challenge",
            expected: 304,
            found: 303
        }
    );
    assert_eq!(
        challenge(|m| m[5] = 0),
        AuthError::Transaction {
            expected: T_ID,
            found: 0x34
        }
    );
}

#[test]
fn host_reports_the_reason_of_a_failure() {
    let controllers = policy(AuthHash::Sha512, DhGroup::Null);
    let (mut host, _) = pair(&quick(), false);
    let mut controller = controller(&controllers);
    assert_eq!(
        run(&mut host, &mut controller),
        Err(AuthError::Refused(FailureReason::HashNotUsable))
    );
    for code in 0..=255 {
        assert_eq!(FailureReason::from_code(code).code(), code);
    }
}

#[test]
fn sequence_numbers_count_up_and_are_never_0() {
    let mut random = Random::Fixed([0xFF; 4].into());
    let mut sequence = Sequence::default();
    assert_eq!(sequence.next(&mut random), Ok(u32::MAX));
    assert_eq!(sequence.next(&mut random), Ok(1));
    assert_eq!(sequence.next(&mut random), Ok(2));
    let mut random = Random::Fixed([0; 4].into());
    assert_eq!(Sequence::default().next(&mut random), Ok(1));
    assert_eq!(
        Sequence::default().next(&mut random),
        Err(AuthError::Random)
    );
}

#[test]
fn challenge_waits_until_there_are_random_numbers() {
    let mut controller = controller(&quick());
    controller.random = Random::Fixed(vec![1; 10].into());
    controller
        .send(&message::negotiate(
            T_ID,
            &quick(),
            message::NO_CONCATENATION,
        ))
        .unwrap();
    assert_eq!(controller.receive(4096), Err(Status::INTERNAL_ERROR));
    controller.random = Random::System;
    assert!(controller.receive(4096).is_ok());
}

#[test]
fn identifiers_of_the_specification() {
    for (index, hash) in AuthHash::ALL.into_iter().enumerate() {
        assert_eq!(usize::from(hash.id()), index + 1);
        assert_eq!(AuthHash::from_id(hash.id()), Some(hash));
    }
    for (index, group) in DhGroup::ALL.into_iter().enumerate() {
        assert_eq!(usize::from(group.id()), index);
        assert_eq!(DhGroup::from_id(group.id()), Some(group));
    }
    assert_eq!(AuthHash::from_id(0), None);
    assert_eq!(DhGroup::from_id(6), None);
    assert_eq!(DhGroup::Ffdhe3072.to_string(), "ffdhe3072");
}

/// A valid message, cut or extended and with some bytes changed.
fn damaged(message: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let edits = prop::collection::vec((0..message.len(), any::<u8>()), 0..4);
    let len = prop_oneof![
        Just(message.len()),
        0..=message.len(),
        message.len()..message.len() + 70
    ];
    (edits, len).prop_map(move |(edits, len)| {
        let mut message = message.clone();
        for (at, value) in edits {
            message[at] = value;
        }
        message.resize(len, 0);
        message
    })
}

fn messages() -> impl Strategy<Value = Vec<u8>> {
    let (mut host, mut controller) = pair(&AuthPolicy::default(), true);
    let negotiate = host.start();
    controller.send(&negotiate).unwrap();
    let challenge = controller.receive(RECEIVE_LEN as usize).unwrap();
    let HostStep::Send(reply) = host.next(&challenge).unwrap() else {
        panic!();
    };
    let success1 = message::success1(T_ID, AuthHash::Sha256, Some(&[1; 32]));
    let failure = |kind| message::failure(kind, T_ID, FailureReason::AuthenticationFailed);
    prop_oneof![
        damaged(negotiate),
        damaged(message::negotiate(
            T_ID,
            &quick(),
            message::NO_CONCATENATION
        )),
        damaged(challenge),
        damaged(reply),
        damaged(message::reply(T_ID, &[2; 32], Some(&[3; 32]), 4, &[])),
        damaged(success1),
        damaged(message::success2(T_ID)),
        damaged(failure(message::FAILURE1)),
        damaged(failure(message::FAILURE2)),
        prop::collection::vec(any::<u8>(), 0..100),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn strangers_messages_never_authenticate(
        steps in prop::collection::vec((messages(), 0usize..200, any::<bool>()), 0..8),
    ) {
        let mut controller = controller(&quick());
        for (message, len, receive) in steps {
            let _ = controller.send(&message);
            if receive {
                let has_message = controller.has_message();
                match controller.receive(len) {
                    Ok(data) => prop_assert!(has_message && data.len() <= len),
                    Err(status) => prop_assert!(
                        !has_message || status == Status::INVALID_FIELD
                    ),
                }
            }
            prop_assert_ne!(controller.state(), &AuthState::Authenticated);
        }
    }

    #[test]
    fn strangers_messages_never_satisfy_a_host(
        received in prop::collection::vec(messages(), 0..6),
    ) {
        let (mut host, _) = pair(&AuthPolicy::default(), true);
        host.start();
        for message in received {
            prop_assert!(!matches!(host.next(&message), Ok(HostStep::Done(_))));
        }
        let _ = host.failure();
    }
}

/// Like [`run`], for a key of a secure channel; what each side has generated.
fn generate(
    host: &mut HostAuth,
    controller: &mut ControllerAuth,
) -> Result<[Option<GeneratedKey>; 2], AuthError> {
    run(host, controller)?;
    Ok([host.generated(), controller.generated()])
}

#[test]
fn both_sides_generate_one_key() {
    let everything = AuthPolicy {
        hashes: AuthHash::ALL.to_vec(),
        groups: vec![DhGroup::Null, DhGroup::Ffdhe2048],
    };
    let (host, controller) = pair(&everything, true);
    let (mut host, mut controller) = (host.concatenating(), controller.concatenating());
    let mut known: Vec<String> = Vec::new();
    for _ in 0..2 {
        let keys = generate(&mut host, &mut controller).unwrap();
        let [Some(ours), Some(theirs)] = keys else {
            panic!("{keys:?}");
        };
        let psks = [ours, theirs].map(|key| key.psk(HOST_NQN, SUB_NQN));
        assert_eq!(psks[0].identity, psks[1].identity);
        assert_eq!(psks[0].secret, psks[1].secret);
        assert!(!known.contains(&psks[0].identity), "another key each time");
        known.push(psks[0].identity.clone());
        // Once.
        assert!(host.generated().is_none() && controller.generated().is_none());
    }
    // An authentication for no key gives none.
    let (mut host, mut controller) = pair(&everything, true);
    let none = generate(&mut host, &mut controller).unwrap();
    assert!(matches!(none, [None, None]));
}

#[test]
fn a_key_needs_agreement_a_group_and_a_challenge() {
    let group = policy(AuthHash::Sha256, DhGroup::Ffdhe2048);
    let mismatch = |wants: bool, gives: bool| {
        let (mut host, mut controller) = pair(&group, true);
        if wants {
            host = host.concatenating();
        }
        if gives {
            controller = controller.concatenating();
        }
        let error = generate(&mut host, &mut controller).unwrap_err();
        assert_eq!(error.reason(), FailureReason::ConcatenationMismatch);
        assert!(host.generated().is_none() && controller.generated().is_none());
    };
    mismatch(true, false);
    mismatch(false, true);
    // The null group and SHA-512 make no key for TLS.
    for (hash, group) in [
        (AuthHash::Sha256, DhGroup::Null),
        (AuthHash::Sha512, DhGroup::Ffdhe2048),
    ] {
        let (host, controller) = pair(&policy(hash, group), true);
        let (mut host, mut controller) = (host.concatenating(), controller.concatenating());
        assert!(generate(&mut host, &mut controller).is_err());
    }
    // Linux's host that does not ask the controller to authenticate sends a challenge with sequence number 0: for the key alone.
    for (sequence, valid, good) in [(0, 1, true), (0, 0, false), (7, 0, false)] {
        let (host, controller) = pair(&group, true);
        let (mut host, mut controller) = (host.concatenating(), controller.concatenating());
        let mut message = reply(&mut host, &mut controller);
        message[8] = valid;
        message[12..16].copy_from_slice(&u32::to_le_bytes(sequence));
        controller.send(&message).unwrap();
        assert_eq!(
            controller.receive(RECEIVE_LEN as usize).unwrap()[1],
            if good { 3 } else { 0xF0 }
        );
        assert_eq!(controller.generated().is_some(), good);
    }
}
