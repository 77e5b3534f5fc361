//! The program of Tables 5 and 6, from its text to its facts.

#![allow(clippy::unwrap_used)]

use toroid_isa::{
    AssumePresent, Instruction, VrNumber, assemble, decode, disassemble, encode, verify,
};

fn vr(text: &str) -> VrNumber {
    text.parse().unwrap()
}

#[test]
fn table_5_assembles_verifies_and_multiplies() {
    let assembly = assemble(include_str!("../examples/multiply.tasm")).unwrap();
    let (r1, r2, r3, tv) = (vr("cor:0:0"), vr("cor:0:1"), vr("cow:0:2"), vr("tv:0:0"));
    assert_eq!(
        assembly.program.instructions(),
        [
            Instruction::Move { dst: r1, src: r2 },
            Instruction::HomAdd { dst: r1, src: r3 },
            Instruction::Bootstrap { tv, n: r1 },
            Instruction::HomSub { dst: r2, src: r3 },
            Instruction::Bootstrap { tv, n: r2 },
            Instruction::HomSub { dst: r1, src: r2 },
            Instruction::Return { n: r1 },
        ]
    );
    let facts = verify(
        &assembly.program,
        &AssumePresent { stack_slots: 0 },
        Some(&assembly),
    )
    .unwrap();
    assert_eq!(
        (facts.bootstraps, facts.max_stack_depth, facts.returned),
        (2, 0, r1)
    );
    assert_eq!(facts.inputs, [r2, r3]);

    let table = assembly.test_vectors[0].source.table(7, true).unwrap();
    let square_over_4 = |s: i64| table[(s + 64) as usize];
    for x in -32..32 {
        for y in -32..32 {
            assert_eq!(square_over_4(x + y) - square_over_4(x - y), x * y);
        }
    }

    assert_eq!(
        decode(&encode(&assembly.program)).unwrap(),
        assembly.program
    );
    let text = disassemble(&assembly.program, &assembly.names());
    assert_eq!(assemble(&text).unwrap().program, assembly.program);
}

#[test]
fn the_plain_form_of_a_test_vector() {
    let assembly = assemble(".tv sq4 = x*x/4").unwrap();
    let tv = &assembly.test_vectors[0];
    assert_eq!(
        (tv.name.as_str(), tv.vr, tv.signed, tv.p_in, tv.p_out),
        ("sq4", vr("tv:0:0"), true, None, None)
    );
}

#[test]
fn the_manual_divides() {
    let manual = include_str!("../../../docs/reference/isa.md");
    let start = manual.find(".reg x        = cor:1").unwrap();
    let length = manual[start..].find("```").unwrap();
    let assembly = assemble(&manual[start..start + length]).unwrap();
    assert_eq!(assembly.program.bootstrap_count(), 3);
    let environment = AssumePresent { stack_slots: 0 };
    assert!(verify(&assembly.program, &environment, Some(&assembly)).is_ok());
    let [quotient, remainder, pack] = [0, 1, 2].map(|i| assembly.test_vectors[i].table(4).unwrap());
    for (x, y) in [(0, 0), (200, 0), (255, 1), (250, 7), (7, 250), (255, 255)] {
        let m = 256 * x + y;
        let (q, r) = (quotient[m], remainder[m]);
        // out=8 is the upper place and out=16 the lower: their sum packs them.
        let packed = pack[(256 * q + r) as usize];
        let expected = x.checked_div(y).map_or((255, x), |q| (q, x % y));
        assert_eq!((q as usize, r as usize), expected);
        assert_eq!(packed as usize, 256 * expected.0 + expected.1);
    }
}

#[test]
fn the_manual_shows_the_same_program() {
    let manual = include_str!("../../../docs/reference/isa.md");
    let start = manual.find(".key 0").unwrap();
    let length = manual[start..].find("```").unwrap();
    let shown = assemble(&manual[start..start + length]).unwrap();
    let example = assemble(include_str!("../examples/multiply.tasm")).unwrap();
    assert_eq!(
        (shown.program, shown.test_vectors, shown.registers),
        (example.program, example.test_vectors, example.registers)
    );
}
