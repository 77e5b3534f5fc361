//! What a host reads of a controller and the other way round, apart from commands: Connect data, discovery entries, descriptors, reasons of
//! errors, addresses, secrets. Read to something within its limits, or refused; what is read has one form.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toroid_fuzz::{Input, repeat};
use toroid_nvme::Sqe;
use toroid_nvme::fabrics::auth::{AuthCommand, Secret};
use toroid_nvme::fabrics::{Connect, ConnectData, DiscoveryEntry, MAX_NQN, Sgl, is_nqn};
use toroid_nvme::log::parse_reasons;
use toroid_nvme::tcp::Address;
use zerocopy::FromBytes;

/// A structure with its text where the input has put it: a mutation of a kilobyte of zeroes seldom finds the text's place.
fn structure(input: &mut Input, places: [usize; 2]) -> Vec<u8> {
    let choice = input.u8();
    let mut bytes = if choice & 1 != 0 {
        repeat(input.bytes(usize::from(choice >> 1)), 1024)
    } else {
        vec![0; 1024]
    };
    for at in places {
        let count = usize::from(input.u8());
        let text = input.bytes(count);
        bytes[at..at + text.len()].copy_from_slice(text);
    }
    bytes
}

fn is_good(nqn: Option<&str>) {
    if let Some(nqn) = nqn {
        assert!(is_nqn(nqn) && nqn.len() <= MAX_NQN && !nqn.contains('\0'));
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    match input.u8() % 7 {
        0 => {
            let bytes = structure(&mut input, [256, 512]);
            let data = ConnectData::read_from_bytes(&bytes).expect("1024 bytes");
            is_good(data.subnqn());
            // A host may give no name.
            is_good(data.hostnqn().filter(|nqn| !nqn.is_empty()));
            if let (Some(sub), Some(host)) = (data.subnqn(), data.hostnqn()) {
                let again = ConnectData::new(data.hostid, data.cntlid.get(), sub, host);
                assert_eq!((again.subnqn(), again.hostnqn()), (Some(sub), Some(host)));
            }
        }
        1 => {
            let bytes = structure(&mut input, [32, 512]);
            let entry = DiscoveryEntry::read_from_bytes(&bytes).expect("1024 bytes");
            is_good(entry.subnqn());
            assert!(entry.traddr().len() <= 3 * 256 && entry.trsvcid().len() <= 3 * 32);
        }
        2 => {
            let sqe = Sqe::read_from_bytes(&input.array::<64>()).expect("64 bytes");
            if let Ok(connect) = Connect::parse(&sqe) {
                assert_eq!(Connect::parse(&connect.to_sqe(1)), Ok(connect));
            }
            if let Ok(sgl) = Sgl::parse(&sqe.dptr) {
                let again = Sgl::parse(&sgl.to_bytes());
                assert_eq!(again, Ok(sgl));
            }
            if let Ok(command) = AuthCommand::parse(&sqe) {
                assert_eq!(AuthCommand::parse(&command.sqe(9)), Ok(command));
            }
        }
        3 => {
            let page = input.rest();
            let reasons = parse_reasons(page);
            assert!(reasons.len() <= page.len());
            assert!(reasons.iter().all(|(_, _, reason)| !reason.contains('\n')));
        }
        4 | 5 => {
            let Ok(text) = std::str::from_utf8(input.rest()) else {
                return;
            };
            match text.parse::<Address>() {
                Ok(address) => {
                    assert!(is_nqn(&address.nqn) && !address.host.is_empty());
                    let again = address.to_string().parse();
                    assert_eq!(again, Ok(address));
                }
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
        _ => {
            let Ok(text) = std::str::from_utf8(input.rest()) else {
                return;
            };
            match text.parse::<Secret>() {
                Ok(secret) => assert_eq!(*secret.to_text(), text),
                // The error is `Copy`, so it holds nothing of a text that may be a mistyped secret.
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
});
