//! Paging changes nothing but the time.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::*;
use proptest::prelude::*;
use toroid_engine::backend::testing::{decode_sample, encode_sample};
use toroid_engine::{Engine, EngineConfig, EngineError, PAGE_BYTES, ReplacementPolicy};
use toroid_isa::{Instruction, VrNumber};
use toroid_tfhe::params::{MESSAGE4, MESSAGE7, ParamSet, TINY};

const PAGE: u64 = PAGE_BYTES as u64;
const POLICIES: [ReplacementPolicy; 2] = [
    ReplacementPolicy::Clock,
    ReplacementPolicy::LeastRecentlyUsed,
];

/// A step of a random program: operation, two registers, a factor.
type Step = (u8, u32, u32, i32);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(
        (0u8..8, 0u32..REGISTERS + 3, 0u32..REGISTERS + 3, -3i32..4),
        1..60,
    )
}

const REGISTERS: u32 = 12;

/// A program that can run: registers are read only when there, pops follow pushes, and what is left on the stack is popped.
fn program(steps: &[Step]) -> Vec<Instruction> {
    let tv = vr("tv:0:0");
    let mut known: Vec<bool> = (0..REGISTERS + 3).map(|index| index < REGISTERS).collect();
    let mut depth = 0;
    let mut instructions: Vec<Instruction> = (1..REGISTERS)
        .map(|index| Instruction::HomAdd {
            dst: cor(0, 0),
            src: cor(0, index),
        })
        .collect();
    for (operation, a, b, v) in steps {
        let (dst, src) = (cor(0, *a), cor(0, *b));
        let (has_a, has_b) = (known[*a as usize], known[*b as usize]);
        let instruction = match operation {
            0 if has_b => Instruction::Move { dst, src },
            1 if has_b && depth < 4 => Instruction::Push { n: src },
            2 if depth > 0 => Instruction::Pop { n: dst },
            3 if has_a => Instruction::Bootstrap { tv, n: dst },
            4 | 5 if has_a && has_b => Instruction::HomAdd { dst, src },
            6 if has_a && has_b => Instruction::HomSub { dst, src },
            7 if has_a => Instruction::HomIntMult { n: dst, v: *v },
            _ => continue,
        };
        match instruction {
            Instruction::Push { .. } => depth += 1,
            Instruction::Pop { .. } => depth -= 1,
            _ => {}
        }
        known[*a as usize] |= instruction.writes().is_some();
        instructions.push(instruction);
    }
    instructions.extend((0..depth).map(|_| Instruction::Pop { n: cor(0, 1) }));
    instructions.push(Instruction::Return { n: cor(0, 0) });
    instructions
}

fn prepare(engine: &Engine, instructions: &[Instruction]) {
    store_keys(engine, 0, &TINY);
    store_function(engine, vr("tv:0:0"), &TINY, |m| (5 * m + 3) % 16);
    store_program(engine, 0, &TINY, instructions);
    for index in 0..REGISTERS {
        store_message(engine, cor(0, index), &TINY, i64::from(index));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn four_pages_give_what_unlimited_memory_gives(steps in steps(), policy in 0usize..2) {
        let instructions = program(&steps);
        let unlimited = engine(1 << 20);
        let small = engine_with(4 * PAGE, POLICIES[policy]);
        prepare(&unlimited, &instructions);
        prepare(&small, &instructions);
        let expected = run(&unlimited, 0).unwrap();
        let found = run(&small, 0).unwrap();
        prop_assert_eq!(found.bytes, expected.bytes);
        prop_assert_eq!(found.noise.variance(), expected.noise.variance());
        prop_assert_eq!(found.noise.log2_failure(), expected.noise.log2_failure());
        prop_assert!(found.page_ins > 0 && found.page_outs > 0);
        prop_assert_eq!(found.page_ins, found.instructions.iter().map(|timing| timing.page_ins).sum::<u64>());
        prop_assert_eq!(samples(&small), samples(&unlimited));
        let paging = unlimited.paging();
        prop_assert_eq!((paging.page_ins, paging.page_outs, paging.faults, paging.swapped_pages), (0, 0, 0, 0));
        let paging = small.paging();
        prop_assert!(paging.resident_bytes <= 4 * PAGE);
        // After a Move, two registers share a page until one is written.
        let pages: BTreeSet<_> = small.list().iter().filter(|info| info.vr.ty().is_sample()).map(|info| info.address).collect();
        prop_assert_eq!(paging.resident_pages + paging.swapped_pages, pages.len() as u64);
    }
}

#[test]
fn ten_times_more_samples_than_the_paged_area_holds() {
    let mut instructions = Vec::new();
    for index in 1..80 {
        instructions.push(Instruction::Move {
            dst: cor(0, 100 + index),
            src: cor(0, index - 1),
        });
        instructions.push(Instruction::HomAdd {
            dst: cor(0, 100 + index),
            src: cor(0, index),
        });
        instructions.push(Instruction::Bootstrap {
            tv: vr("tv:0:0"),
            n: cor(0, 100 + index),
        });
    }
    instructions.extend((2..80).map(|index| Instruction::HomSub {
        dst: cor(0, 101),
        src: cor(0, 100 + index),
    }));
    instructions.push(Instruction::Return { n: cor(0, 101) });
    for policy in POLICIES {
        let [small, unlimited] = [8 * PAGE, 1 << 20].map(|bytes| {
            let engine = engine_with(bytes, policy);
            prepare(&engine, &instructions);
            (REGISTERS..80).for_each(|index| {
                store_message(&engine, cor(0, index), &TINY, i64::from(index % 16))
            });
            let outcome = run(&engine, 0).unwrap();
            (
                outcome.bytes,
                outcome.page_ins,
                outcome.page_outs,
                samples(&engine),
            )
        });
        assert_eq!(small.0, unlimited.0);
        assert_eq!(small.3, unlimited.3);
        assert!(
            small.1 >= 70 && small.2 >= 70,
            "page-ins {}, page-outs {}",
            small.1,
            small.2
        );
        assert_eq!((unlimited.1, unlimited.2), (0, 0));
    }
}

#[test]
fn an_area_of_one_page_is_enough() {
    let engine = engine(PAGE);
    let instructions = program(&[(4, 1, 2, 0), (0, 3, 4, 0), (3, 5, 0, 0)]);
    prepare(&engine, &instructions);
    let unlimited = common::engine(1 << 20);
    prepare(&unlimited, &instructions);
    assert_eq!(
        run(&engine, 0).unwrap().bytes,
        run(&unlimited, 0).unwrap().bytes
    );
    assert_eq!(samples(&engine), samples(&unlimited));
}

#[test]
fn swap_failures_at_every_point_leave_the_registers_as_they_were() {
    let instructions = program(&[
        (0, 12, 3, 0),
        (3, 12, 0, 0),
        (4, 5, 12, 0),
        (6, 1, 5, 0),
        (1, 0, 1, 0),
        (2, 13, 0, 0),
    ]);
    let unlimited = engine(1 << 20);
    prepare(&unlimited, &instructions);
    let expected = run(&unlimited, 0).unwrap();
    let swap = Arc::new(FailingSwap::new());
    let engine = engine_on(config(4 * PAGE), Arc::clone(&swap) as _);
    prepare(&engine, &instructions);
    let before = samples(&engine);
    let mut failures = 0;
    loop {
        swap.fail_after(failures);
        let outcome = run(&engine, 0);
        swap.never_fail();
        match outcome {
            Err(EngineError::PageIn(cause) | EngineError::PageOut(cause)) => {
                assert!(cause.cause::<Tired>().is_some())
            }
            Err(other) => panic!("{other}"),
            Ok(outcome) => {
                assert_eq!(outcome.bytes, expected.bytes);
                assert_eq!(samples(&engine), samples(&unlimited));
                break;
            }
        }
        assert_eq!(samples(&engine), before, "after failure {failures}");
        let paging = engine.paging();
        assert_eq!(
            paging.resident_pages + paging.swapped_pages,
            u64::from(REGISTERS),
            "no page leaks"
        );
        failures += 1;
    }
    assert!(failures > 15, "{failures}");
}

#[test]
fn a_store_whose_page_out_fails_leaves_the_register_as_it_was() {
    let swap = Arc::new(FailingSwap::new());
    let engine = engine_on(config(2 * PAGE), Arc::clone(&swap) as _);
    for index in 0..2 {
        store_message(&engine, cor(0, index), &TINY, 1);
    }
    let before = samples(&engine);
    swap.fail_after(0);
    let bytes = encode_sample(&TINY, 7, 4);
    for target in [cor(0, 0), cor(0, 9)] {
        swap.fail_after(0);
        assert!(matches!(
            store(&engine, target, &TINY, &bytes),
            Err(EngineError::PageOut(_))
        ));
        swap.never_fail();
        assert_eq!(samples(&engine), before);
    }
    store(&engine, cor(0, 0), &TINY, &bytes).unwrap();
    assert_eq!(engine.read_sample(COMMAND, cor(0, 0)).unwrap().bytes, bytes);
}

#[test]
fn clean_pages_are_not_written_again() {
    let engine = engine(4 * PAGE);
    for index in 0..8 {
        store_message(&engine, cor(0, index), &TINY, i64::from(index));
    }
    for _ in 0..5 {
        for index in 0..8 {
            let sample = engine.read_sample(COMMAND, cor(0, index)).unwrap();
            assert_eq!(decode_sample(&TINY, &sample.bytes, 4), u64::from(index));
        }
    }
    let paging = engine.paging();
    assert_eq!(paging.page_outs, 8);
    assert!(
        paging.page_ins >= 20 && paging.clean_evictions >= 20,
        "{paging:?}"
    );
    assert_eq!(paging.faults, paging.page_ins);
}

#[test]
fn a_full_swap_area_refuses_new_samples_and_keeps_the_old() {
    let small = EngineConfig {
        swap_bytes: 40 * PAGE,
        ..config(4 * PAGE)
    };
    let engine = engine_on(small, Arc::new(FailingSwap::new()));
    let bytes = encode_sample(&TINY, 7, 4);
    let stored = (0..100)
        .take_while(|index| store(&engine, cor(0, *index), &TINY, &bytes).is_ok())
        .count();
    assert_eq!(stored, 12);
    assert!(matches!(
        store(&engine, cor(0, 50), &TINY, &bytes),
        Err(EngineError::SwapFull { .. })
    ));
    for _ in 0..3 {
        assert_eq!(samples(&engine).len(), stored);
    }
    assert!(engine.remove(cor(0, 0)));
    store(&engine, cor(0, 50), &TINY, &bytes).unwrap();
}

#[test]
fn samples_larger_than_the_paged_area_are_refused() {
    let engine = engine(2 * PAGE);
    let bytes = encode_sample(&MESSAGE7, 1, 7);
    let error = store(&engine, cor(0, 0), &MESSAGE7, &bytes).unwrap_err();
    assert!(
        matches!(
            error,
            EngineError::PagedAreaTooSmall {
                needed: 12288,
                total: 8192
            }
        ),
        "{error}"
    );
}

#[test]
fn page_table_entries_show_where_pages_are() {
    let engine = engine(2 * PAGE);
    for index in 0..4 {
        store_message(&engine, cor(0, index), &TINY, 1);
    }
    let infos = engine.list();
    let swapped = infos
        .iter()
        .filter(|info| info.page.unwrap().is_swapped())
        .count();
    assert_eq!(swapped, 2);
    let mut resident: Vec<u64> = infos
        .iter()
        .filter_map(|info| info.page)
        .filter(|entry| !entry.is_swapped())
        .map(|entry| entry.physical_address())
        .collect();
    resident.sort_unstable();
    assert_eq!(resident, vec![0, PAGE]);
    let mut addresses: Vec<u64> = infos.iter().map(|info| info.address.to_u64()).collect();
    addresses.dedup();
    assert_eq!(addresses.len(), 4);
}

/// What a random command does to a register of one of three key ids, whose pages have one, two and three units.
#[derive(Clone, Debug)]
enum Command {
    Store(usize, u32, i64),
    Remove(usize, u32),
    Read(usize, u32),
    Run(usize, u32, u32),
    Clear(usize),
}

fn commands() -> impl Strategy<Value = Vec<Command>> {
    let key = 0usize..3;
    let command = prop_oneof![
        6 => (key.clone(), 0u32..6, 0i64..16).prop_map(|(k, v, m)| Command::Store(k, v, m)),
        1 => (key.clone(), 0u32..6).prop_map(|(k, v)| Command::Remove(k, v)),
        3 => (key.clone(), 0u32..6).prop_map(|(k, v)| Command::Read(k, v)),
        4 => (key.clone(), 0u32..6, 0u32..6).prop_map(|(k, a, b)| Command::Run(k, a, b)),
        1 => key.prop_map(Command::Clear),
    ];
    prop::collection::vec(command, 1..80)
}

const MIXED: [&ParamSet; 3] = [&TINY, &MESSAGE4, &MESSAGE7];

fn obey(engine: &Engine, command: &Command) -> Option<Vec<u8>> {
    match *command {
        Command::Store(key, index, message) => {
            store_message(engine, cor(key as u32, index), MIXED[key], message);
            None
        }
        Command::Remove(key, index) => engine.remove(cor(key as u32, index)).then(Vec::new),
        Command::Read(key, index) => engine
            .read_sample(COMMAND, cor(key as u32, index))
            .ok()
            .map(|sample| sample.bytes),
        Command::Run(key, a, b) => {
            let (dst, src): (VrNumber, VrNumber) = (cor(key as u32, a), cor(key as u32, b));
            let temporary = cor(key as u32, 6);
            let program = [
                Instruction::Move {
                    dst: temporary,
                    src,
                },
                Instruction::HomAdd {
                    dst: temporary,
                    src: dst,
                },
                Instruction::HomSub {
                    dst,
                    src: temporary,
                },
                Instruction::Return { n: temporary },
            ];
            store_program(engine, key as u32, MIXED[key], &program);
            run(engine, key as u32).ok().map(|outcome| outcome.bytes)
        }
        Command::Clear(key) => Some(vec![engine.clear_key_id(key as u32) as u8]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pages_of_several_sizes_share_the_area(commands in commands(), policy in 0usize..2, units in 3u64..9) {
        let unlimited = engine(1 << 20);
        let small = engine_with(units * PAGE, POLICIES[policy]);
        for command in &commands {
            prop_assert_eq!(obey(&small, command), obey(&unlimited, command), "{:?}", command);
            prop_assert!(small.paging().resident_bytes <= units * PAGE);
        }
        prop_assert_eq!(samples(&small), samples(&unlimited));
        for key in 0..3 {
            small.clear_key_id(key);
        }
        let paging = small.paging();
        prop_assert_eq!((paging.resident_pages, paging.swapped_pages), (0, 0));
        // Nothing has leaked if the whole area can be filled without a page-out.
        for index in 0..units as u32 {
            store_message(&small, cor(0, index), &TINY, 1);
        }
        prop_assert_eq!(small.paging().page_outs, paging.page_outs);
        prop_assert_eq!(small.persistent_bytes().0, 0);
    }
}
