//! The functions of the example programs, at every message.

#![allow(clippy::unwrap_used)]

use toroid_isa::{Assembly, AssumePresent, assemble, verify, wrap_count};

fn assembled(text: &str) -> Assembly {
    let assembly = assemble(text).unwrap();
    let environment = AssumePresent { stack_slots: 0 };
    verify(&assembly.program, &environment, Some(&assembly)).unwrap();
    assembly
}

/// The table of the first test vector, all of whose values are messages.
fn table(text: &str) -> Vec<i64> {
    let assembly = assembled(text);
    let vector = &assembly.test_vectors[0];
    assert!(!vector.signed);
    let table = vector.table(16).unwrap();
    assert_eq!(table.len(), 1 << 16);
    assert_eq!(wrap_count(&table, 15, false).unwrap(), 0);
    table
}

#[test]
fn roots_are_exact() {
    for (x, root) in (0i64..).zip(table(include_str!("../../../examples/isqrt16.tasm"))) {
        assert_eq!(root, x.isqrt(), "{x}");
    }
}

#[test]
fn the_substitution_box_is_a_permutation() {
    let mut images = table(include_str!("../../../examples/sbox16.tasm"));
    assert!((0i64..).zip(&images).all(|(x, image)| x != *image));
    images.sort_unstable();
    assert!((0i64..).zip(&images).all(|(x, image)| x == *image));
}

#[test]
fn all_examples_assemble() {
    for text in [
        include_str!("../../../examples/level.tasm"),
        include_str!("../../../examples/maximum.tasm"),
        include_str!("../../../examples/total.tasm"),
        include_str!("../../../examples/columns/detector.tasm"),
        include_str!("../../../examples/columns/filter.tasm"),
        include_str!("../../../examples/columns/groups.tasm"),
        include_str!("../../../examples/columns/histogram.tasm"),
        include_str!("../../../examples/columns/member.tasm"),
        include_str!("../../../examples/columns/sort64.tasm"),
    ] {
        assert!(!assembled(text).test_vectors.is_empty());
    }
}
