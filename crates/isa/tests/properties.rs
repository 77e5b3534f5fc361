//! Round trips between program, text and bytes, and input that means harm.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use toroid_isa::{
    AssumePresent, Instruction, Program, TestVectorSource, VrNumber, VrType, assemble, decode,
    disassemble, encode, verify, wrap_count,
};

fn vr() -> impl Strategy<Value = VrNumber> {
    let key_id = prop_oneof![0..4u32, 0..=VrNumber::MAX_KEY_ID];
    let data_id = prop_oneof![0..8u32, any::<u32>()];
    (0..5usize, key_id, data_id)
        .prop_map(|(ty, key, data)| VrNumber::new(VrType::ALL[ty], key, data).unwrap())
}

fn instruction() -> impl Strategy<Value = Instruction> {
    (0..13u8, vr(), vr(), any::<i32>()).prop_map(|(opcode, a, b, v)| match opcode {
        0 => Instruction::Return { n: a },
        1 => Instruction::Move { dst: a, src: b },
        2 => Instruction::Push { n: a },
        3 => Instruction::Pop { n: a },
        4 => Instruction::Bootstrap { tv: a, n: b },
        5 => Instruction::HomAdd { dst: a, src: b },
        6 => Instruction::HomSub { dst: a, src: b },
        7 => Instruction::HomIntMult { n: a, v },
        8 => Instruction::HomIntAdd { n: a, v },
        9 => Instruction::HomSum {
            n: a,
            g: v.cast_unsigned(),
        },
        10 => Instruction::Lower {
            n: a,
            d: v.cast_unsigned(),
        },
        11 => Instruction::Upper {
            n: a,
            d: v.cast_unsigned(),
        },
        _ => Instruction::Join {
            lower: a,
            upper: b,
            d: v.cast_unsigned(),
        },
    })
}

fn program() -> impl Strategy<Value = Program> {
    vec(instruction(), 0..40).prop_map(|instructions| Program::new(instructions).unwrap())
}

/// Pieces of the language in any order: far more of this gets deep into the parser than of random characters.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "mov ",
        "push ",
        "pop ",
        "bootstrap ",
        "homadd ",
        "homsub ",
        "homintmult ",
        "homintadd ",
        "homsum ",
        "lower ",
        "join ",
        "return ",
        ".key ",
        ".reg ",
        ".tv ",
        "a",
        "b ",
        "x",
        " = ",
        "cor:0:1",
        "cow:",
        "tv:0",
        "@",
        "signed ",
        "unsigned ",
        "in=",
        "in=2+3 ",
        "y",
        "file ",
        "\"v.txt\"",
        "\"",
        "bootstrap [",
        "out=",
        "[",
        "]",
        ", ",
        "(",
        ")",
        "?",
        ":",
        "+",
        "-",
        "*",
        "/",
        "%",
        "~",
        "&",
        "|",
        "^",
        "<<",
        ">>",
        "<",
        "==",
        "abs",
        "min(",
        "0",
        "1",
        "7 ",
        "0x",
        "65536",
        "18446744073709551615",
        "; ",
        "# ",
        "//",
        "\n",
        "\n",
        "\r\n",
        "\t",
        "\u{e9}",
        "$",
    ]);
    vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

/// Whatever a text is: it assembles or says why not, with places inside it, and what it assembles to holds together.
fn assembles_or_says_why(text: &str) {
    let assembly = match assemble(text) {
        Ok(assembly) => assembly,
        Err(errors) => {
            assert!(!errors.errors.is_empty());
            let lines = text.split('\n').count();
            assert!(
                errors
                    .errors
                    .iter()
                    .all(|error| (1..=lines).contains(&(error.line as usize)) && error.column >= 1)
            );
            assert!(!errors.to_string().is_empty());
            return;
        }
    };
    assert_eq!(assembly.lines.len(), assembly.program.len());
    assert_eq!(
        decode(&encode(&assembly.program)).unwrap(),
        assembly.program
    );
    assert_eq!(
        assemble(&disassemble(&assembly.program, &assembly.names()))
            .unwrap()
            .program,
        assembly.program
    );
    let _ = verify(
        &assembly.program,
        &AssumePresent { stack_slots: 3 },
        Some(&assembly),
    );
    for tv in &assembly.test_vectors {
        let _ = tv
            .table(3)
            .and_then(|table| wrap_count(&table, 3, tv.signed));
    }
}

/// A tree of sums and differences with its value, to hold the parser's precedence against.
fn tree() -> impl Strategy<Value = (String, i64)> {
    let leaf = (-20..20i64).prop_map(|value| (value.to_string(), value));
    leaf.prop_recursive(5, 40, 2, |inner| {
        (inner.clone(), 0..3usize, inner).prop_map(|((a, x), operator, (b, y))| match operator {
            0 => (format!("({a} + {b})"), x.wrapping_add(y)),
            1 => (format!("({a} - {b})"), x.wrapping_sub(y)),
            _ => (format!("max({a}, {b}) * -2"), x.max(y).wrapping_mul(-2)),
        })
    })
}

proptest! {
    #[test]
    fn program_to_bytes_and_back(program in program()) {
        prop_assert_eq!(decode(&encode(&program)).unwrap(), program);
    }

    #[test]
    fn program_to_text_and_back(program in program(), names in btree_map("[A-Za-z_][A-Za-z0-9_]{0,8}", vr(), 0..8)) {
        prop_assert_eq!(&assemble(&disassemble(&program, &BTreeMap::new())).unwrap().program, &program);
        prop_assert_eq!(assemble(&disassemble(&program, &names)).unwrap().program, program);
    }

    #[test]
    fn used_registers_can_be_named(program in program()) {
        let names: BTreeMap<String, VrNumber> =
            program.instructions().iter().flat_map(Instruction::operands).enumerate().map(|(i, vr)| (format!("r{i}"), vr)).collect();
        let text = disassemble(&program, &names);
        prop_assert_eq!(assemble(&text).unwrap().program, program);
    }

    #[test]
    fn numbers_to_text_and_back(vr in vr()) {
        prop_assert_eq!(vr.to_string().parse(), Ok(vr));
        prop_assert_eq!(VrNumber::from_u64(vr.to_u64()), Ok(vr));
    }

    #[test]
    fn any_damage_to_the_bytes_is_seen(program in program(), at in any::<prop::sample::Index>(), flip in 1..=255u8) {
        let mut bytes = encode(&program);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        prop_assert!(decode(&bytes).is_err());
    }

    #[test]
    fn what_decodes_encodes_to_the_same_bytes(mut bytes in vec(prop_oneof![0..8u8, any::<u8>()], 24 * 3), count in 0..=3usize) {
        bytes.truncate(24 * count);
        // Zeroes where most records need them, so that some decode.
        for record in bytes.chunks_mut(24) {
            record[1..8].fill(0);
            record[12..16].fill(0);
            record[20..24].fill(0);
        }
        let mut file = b"TSCP\x01\0\0\0".to_vec();
        file.extend_from_slice(&(count as u32).to_le_bytes());
        file.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        file.extend_from_slice(&bytes);
        if let Ok(program) = decode(&file) {
            prop_assert_eq!(encode(&program), file);
        }
    }

    #[test]
    fn any_bytes_decode_or_are_refused(bytes in vec(any::<u8>(), 0..200)) {
        if let Ok(program) = decode(&bytes) {
            prop_assert_eq!(encode(&program), bytes);
        }
    }

    #[test]
    fn any_text_is_answered(text in "\\PC*|[ -~\n\t]*") {
        assembles_or_says_why(&text);
    }

    #[test]
    fn any_pieces_are_answered(text in pieces()) {
        assembles_or_says_why(&text);
    }

    #[test]
    fn expressions_have_the_value_of_their_tree((text, value) in tree()) {
        let table = TestVectorSource::parse(&text).unwrap().table(1, true).unwrap();
        prop_assert_eq!(table, [value, value]);
    }

    #[test]
    fn verdicts_on_samples_of_one_key_are_those_of_a_count(body in vec((1..8u8, 0..4u32, 0..4u32), 0..12), slots in 0..4usize) {
        let cor = |data| VrNumber::new(VrType::LweCor, 0, data).unwrap();
        let tv = VrNumber::new(VrType::Tv, 0, 0).unwrap();
        let mut instructions: Vec<Instruction> = body
            .into_iter()
            .map(|(opcode, a, b)| match opcode {
                1 => Instruction::Move { dst: cor(a), src: cor(b) },
                2 => Instruction::Push { n: cor(a) },
                3 => Instruction::Pop { n: cor(a) },
                4 => Instruction::Bootstrap { tv, n: cor(a) },
                5 => Instruction::HomAdd { dst: cor(a), src: cor(b) },
                6 => Instruction::HomSub { dst: cor(a), src: cor(b) },
                _ => Instruction::HomIntMult { n: cor(a), v: 3 },
            })
            .collect();
        let steps: Vec<i32> = instructions
            .iter()
            .map(|instruction| match instruction {
                Instruction::Push { .. } => 1,
                Instruction::Pop { .. } => -1,
                _ => 0,
            })
            .collect();
        let depths: Vec<i32> = steps.iter().scan(0, |depth, step| { *depth += step; Some(*depth) }).collect();
        let (lowest, highest) = (depths.iter().copied().min().unwrap_or(0), depths.iter().copied().max().unwrap_or(0));
        let sound = lowest >= 0 && highest.max(0) as usize <= slots && depths.last().copied().unwrap_or(0) == 0;
        instructions.push(Instruction::Return { n: cor(0) });
        let program = Program::new(instructions).unwrap();
        match verify(&program, &AssumePresent { stack_slots: slots }, None) {
            Err(_) => prop_assert!(!sound),
            Ok(facts) => {
                prop_assert!(sound);
                prop_assert_eq!(facts.max_stack_depth, highest.max(0) as usize);
                prop_assert_eq!(facts.bootstraps, program.bootstrap_count());
                prop_assert_eq!(facts.written, program.registers_written());
                prop_assert_eq!(facts.test_vectors, program.test_vectors());
                prop_assert!(facts.inputs.iter().all(|vr| program.registers_read().contains(vr)));
            }
        }
    }
}
