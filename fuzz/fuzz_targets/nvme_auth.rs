//! DH-HMAC-CHAP: transactions whose messages are altered, left out, repeated or arbitrary. Only who knows the secret is let in, and only an
//! unaltered transaction ends well on both sides.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toroid_fuzz::Input;
use toroid_nvme::fabrics::auth::{
    AuthHash, AuthPolicy, AuthState, ControllerAuth, DhGroup, HostAuth, HostStep, RECEIVE_LEN,
    Secret,
};

fn secret(seed: u8) -> Secret {
    Secret::new(Some(AuthHash::Sha256), &[seed; 32]).expect("a secret")
}

/// Without a group: their arithmetic has tests of its own, and takes the time of a thousand messages.
fn policy(choice: u8) -> AuthPolicy {
    let mut hashes = AuthHash::ALL.to_vec();
    hashes.rotate_left(usize::from(choice % 3));
    AuthPolicy {
        hashes,
        groups: vec![DhGroup::Null],
    }
}

/// The message, perhaps altered; says whether it was.
fn altered(mut message: Vec<u8>, input: &mut Input) -> (Vec<u8>, bool) {
    let before = message.clone();
    let choice = input.u8();
    match choice >> 5 {
        0..=3 => {}
        4 | 5 => {
            for _ in 0..=choice & 3 {
                let (at, value) = (usize::from(input.u8()), input.u8());
                let len = message.len().max(1);
                if let Some(byte) = message.get_mut(at % len) {
                    *byte ^= value;
                }
            }
        }
        6 => message.truncate(message.len() - usize::from(choice & 31).min(message.len())),
        _ => message = input.bytes((choice & 31).into()).to_vec(),
    }
    let changed = message != before;
    (message, changed)
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let choice = input.u8();
    let knows = choice & 1 == 0;
    let mutual = choice & 2 != 0;
    let (sub, nqn) = ("nqn.s", "nqn.h");
    let mut controller = ControllerAuth::new(
        policy(choice >> 4),
        sub,
        nqn,
        secret(1),
        (choice & 4 == 0).then(|| secret(2)),
    );
    let own = secret(if knows { 1 } else { 3 });
    let mut host = HostAuth::new(
        policy(choice >> 6),
        sub,
        nqn,
        own,
        mutual.then(|| secret(2)),
        choice.into(),
    );
    let mut message = host.start();
    let mut damaged = false;
    let mut host_done = false;
    for _ in 0..8 {
        let (sent, changed) = altered(std::mem::take(&mut message), &mut input);
        damaged |= changed;
        let repeats = if input.u8() & 0xF0 == 0xF0 { 2 } else { 1 };
        damaged |= repeats > 1;
        for _ in 0..repeats {
            let _ = controller.send(&sent);
        }
        if host_done {
            break;
        }
        let len = match input.u8() {
            small @ 0xF0.. => usize::from(small & 15) * 8,
            _ => RECEIVE_LEN as usize,
        };
        let Ok(answer) = controller.receive(len) else {
            break;
        };
        assert!(answer.len() <= len);
        let (received, changed) = altered(answer, &mut input);
        damaged |= changed;
        match host.next(&received) {
            Ok(HostStep::Send(next)) => message = next,
            Ok(HostStep::Done(None)) => {
                host_done = true;
                break;
            }
            Ok(HostStep::Done(Some(last))) => {
                host_done = true;
                message = last;
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                match host.failure() {
                    Some(failure) => message = failure,
                    None => break,
                }
            }
        }
    }
    let accepted = *controller.state() == AuthState::Authenticated;
    // No secret, no entry.
    assert!(knows || !accepted);
    // A controller that does not know its own secret cannot answer for it.
    assert!(!(mutual && choice & 4 != 0 && host_done));
    if !damaged && knows && (!mutual || choice & 4 == 0) && input.is_empty() {
        assert_eq!(accepted, host_done);
    }
});
