//! Arbitrary bytes are either the one binary form of a program or refused.
//!
//! The checksum and the header would keep almost every input from the records, so the input is tried as it is and
//! as the records of a file whose header is right.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use toroid_isa::{
    AssumePresent, HEADER_BYTES, RECORD_BYTES, assemble, decode, disassemble, encode, verify,
};

fn check(bytes: &[u8]) {
    let program = match decode(bytes) {
        Ok(program) => program,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert_eq!(encode(&program), bytes);
    let text = disassemble(&program, &BTreeMap::new());
    assert_eq!(
        assemble(&text).map(|assembly| assembly.program).as_ref(),
        Ok(&program)
    );
    match verify(&program, &AssumePresent { stack_slots: 4 }, None) {
        Ok(facts) => {
            assert!(facts.max_stack_depth <= 4);
            assert_eq!(facts.bootstraps, program.bootstrap_count());
            assert_eq!(facts.written, program.registers_written());
        }
        Err(errors) => assert!(
            errors
                .iter()
                .all(|error| error.instruction <= program.len())
        ),
    }
}

fuzz_target!(|data: &[u8]| {
    check(data);
    let body = &data[..data.len() - data.len() % RECORD_BYTES];
    let mut file = Vec::with_capacity(HEADER_BYTES + body.len());
    file.extend_from_slice(b"TSCP\x01\0\0\0");
    file.extend_from_slice(&((body.len() / RECORD_BYTES) as u32).to_le_bytes());
    file.extend_from_slice(&crc32c::crc32c(body).to_le_bytes());
    file.extend_from_slice(body);
    check(&file);
});
