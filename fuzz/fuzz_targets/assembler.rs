//! Arbitrary text either assembles, to something that holds together, or is refused with places inside the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toroid_isa::{AssumePresent, assemble, decode, disassemble, encode, verify, wrap_count};

/// Test vectors that are evaluated for one text: each may cost 4096 operations at each of 16 inputs.
const MAX_EVALUATED: usize = 16;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let assembly = match assemble(&text) {
        Ok(assembly) => assembly,
        Err(errors) => {
            let lines = text.split('\n').count();
            assert!(!errors.errors.is_empty());
            for error in &errors.errors {
                assert!((1..=lines).contains(&(error.line as usize)) && error.column >= 1);
            }
            let shown = errors.to_string();
            assert!(
                shown.chars().all(|c| c == '\n' || !c.is_control()),
                "{shown:?}"
            );
            return;
        }
    };
    assert_eq!(assembly.lines.len(), assembly.program.len());
    assert_eq!(
        decode(&encode(&assembly.program)).as_ref(),
        Ok(&assembly.program)
    );
    let again = assemble(&disassemble(&assembly.program, &assembly.names()));
    assert_eq!(
        again.map(|again| again.program).as_ref(),
        Ok(&assembly.program)
    );
    let _ = verify(
        &assembly.program,
        &AssumePresent { stack_slots: 4 },
        Some(&assembly),
    );
    for tv in assembly.test_vectors.iter().take(MAX_EVALUATED) {
        let table = match tv.p_y {
            None => tv.source.table(4, tv.signed),
            Some(_) => tv.source.table2((2, 2), tv.signed),
        };
        if let Ok(table) = table {
            assert_eq!(table.len(), 16);
            assert!(wrap_count(&table, 4, tv.signed).is_ok());
        }
    }
});
