//! Runs side by side: what comes out is what one after the other would have given.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use common::*;
use proptest::prelude::*;
use toroid_engine::backend::testing::{PlaintextBackend, decode_sample, encode_sample};
use toroid_engine::{
    Backend, BackendError, BootstrapTask, CancelToken, Engine, EngineConfig, EngineError, KeyForm,
    KeyKind, KeySink, LoadedKey, MemorySwap, Requester,
};
use toroid_isa::Instruction;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::params::{ParamSet, TINY};

/// A back end that takes its time, so that runs overlap.
#[derive(Default)]
struct Slow {
    inner: PlaintextBackend,
    /// How many bootstraps must have begun before the first one ends.
    together: u64,
    begun: Mutex<u64>,
    changed: Condvar,
}

impl Backend for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn arithmetic(&self) -> ArithmeticKind {
        ArithmeticKind::Ntt
    }

    fn begin_key(
        &self,
        params: &ParamSet,
        kind: KeyKind,
        form: KeyForm,
    ) -> Result<Box<dyn KeySink>, BackendError> {
        self.inner.begin_key(params, kind, form)
    }

    fn bootstrap_batch(
        &self,
        params: &ParamSet,
        bootstrapping: &dyn LoadedKey,
        key_switching: &dyn LoadedKey,
        tasks: &[BootstrapTask<'_>],
        results: &mut [u8],
        requester: Requester<'_>,
    ) -> Result<(), BackendError> {
        let mut begun = self.begun.lock().unwrap();
        *begun += 1;
        self.changed.notify_all();
        let late = |begun: &mut u64| *begun < self.together;
        let patience = Duration::from_secs(30);
        let (begun, timeout) = self
            .changed
            .wait_timeout_while(begun, patience, late)
            .unwrap();
        drop(begun);
        if timeout.timed_out() {
            let reason = "the others never came".to_owned();
            return Err(BackendError::Failed { reason });
        }
        self.inner.bootstrap_batch(
            params,
            bootstrapping,
            key_switching,
            tasks,
            results,
            requester,
        )
    }

    fn batch_hint(&self, params: &ParamSet) -> usize {
        self.inner.batch_hint(params)
    }

    fn hom_add(&self, params: &ParamSet, dst: &mut [u8], src: &[u8]) {
        thread::sleep(Duration::from_micros(50));
        self.inner.hom_add(params, dst, src);
    }

    fn hom_sub(&self, params: &ParamSet, dst: &mut [u8], src: &[u8]) {
        self.inner.hom_sub(params, dst, src);
    }

    fn hom_int_mult(&self, params: &ParamSet, dst: &mut [u8], v: i32) {
        thread::sleep(Duration::from_micros(50));
        self.inner.hom_int_mult(params, dst, v);
    }
}

fn slow_engine(together: u64, runs: usize) -> Engine {
    let backend = Slow {
        together,
        ..Slow::default()
    };
    let config = EngineConfig {
        runs,
        ..config(1 << 20)
    };
    Engine::new(config, Arc::new(backend), Arc::new(MemorySwap::new()))
}

const REGISTERS: u32 = 5;
const PROGRAMS: u32 = 5;

/// Of one of the registers that all programs share.
fn instruction() -> impl Strategy<Value = Instruction> {
    let register = || (0..REGISTERS).prop_map(|index| cor(0, index));
    prop_oneof![
        3 => (register(), register()).prop_map(|(dst, src)| Instruction::Move { dst, src }),
        2 => (register(), register()).prop_map(|(dst, src)| Instruction::HomAdd { dst, src }),
        1 => (register(), register()).prop_map(|(dst, src)| Instruction::HomSub { dst, src }),
        1 => (register(), -3..4).prop_map(|(n, v)| Instruction::HomIntMult { n, v }),
        1 => register().prop_map(|n| Instruction::Bootstrap { tv: vr("tv:0:0"), n }),
    ]
}

fn program() -> impl Strategy<Value = Vec<Instruction>> {
    let body = prop::collection::vec(instruction(), 1..5);
    (body, 0..REGISTERS).prop_map(|(mut program, index)| {
        program.push(Instruction::Return { n: cor(0, index) });
        program
    })
}

/// A run: the key id of the program, the number of its trigger's register and message.
type Trigger = (u32, u32, i64);

fn prepare(engine: &Engine, programs: &[Vec<Instruction>]) {
    store_keys(engine, 0, &TINY);
    store_function(engine, vr("tv:0:0"), &TINY, |m| 15 - m);
    for index in 0..REGISTERS {
        store_message(engine, cor(0, index), &TINY, i64::from(index));
    }
    for (key_id, program) in (0..).zip(programs) {
        store_program(engine, key_id, &TINY, program);
    }
}

/// Runs a program on a sample that comes with it; calls `ended` just before the effect.
fn trigger(engine: &Engine, (key_id, index, message): Trigger, ended: &mut dyn FnMut(&[u8])) {
    let sample = encode_sample(&TINY, message, 4);
    let part = whole(cor(key_id, index), &TINY, &sample, bits(4));
    let cancel = CancelToken::new();
    let prepared = engine.begin_run(&part, &cancel).unwrap().execute().unwrap();
    ended(&prepared.outcome().bytes);
    prepared.commit();
}

fn contents(engine: &Engine) -> Vec<(toroid_isa::VrNumber, Vec<u8>)> {
    let samples = samples(engine).into_iter();
    samples.map(|(vr, bytes, ..)| (vr, bytes)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn runs_side_by_side_are_runs_in_the_order_of_their_ends(
        programs in prop::collection::vec(program(), PROGRAMS as usize),
        triggers in prop::collection::vec(
            prop::collection::vec((0..PROGRAMS, 0..REGISTERS, 0i64..16), 4..9), 4),
        runs in 1usize..8,
    ) {
        let engine = slow_engine(0, runs);
        prepare(&engine, &programs);
        let log = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for host in &triggers {
                let (engine, log) = (&engine, &log);
                scope.spawn(move || {
                    for run in host {
                        trigger(engine, *run, &mut |bytes| log.lock().unwrap().push((*run, bytes.to_vec())));
                    }
                });
            }
        });
        let serial = slow_engine(0, 1);
        prepare(&serial, &programs);
        for (run, bytes) in log.into_inner().unwrap() {
            trigger(&serial, run, &mut |serially| assert_eq!(serially, bytes, "{run:?}"));
        }
        prop_assert_eq!(contents(&engine), contents(&serial));
        prop_assert_eq!(engine.runs(), (0, 0));
    }
}

#[test]
fn runs_that_do_not_conflict_go_on_at_once() {
    let engine = slow_engine(4, 16);
    for key_id in 0..2 {
        store_keys(&engine, key_id, &TINY);
        let tv = vr(&format!("tv:{key_id}:0"));
        store_function(&engine, tv, &TINY, |m| m + 1);
        store_message(&engine, cor(key_id, 7), &TINY, 3);
        // The trigger's register is all that it writes before it reads it.
        let (n, src) = (cor(key_id, 8), cor(key_id, 7));
        let program = [
            Instruction::Move { dst: n, src },
            Instruction::Bootstrap { tv, n },
            Instruction::Return { n },
        ];
        store_program(&engine, key_id, &TINY, &program);
    }
    // Four bootstraps, of two runs of each key id, only end together.
    thread::scope(|scope| {
        for run in 0..4 {
            let engine = &engine;
            scope.spawn(move || {
                trigger(engine, (run % 2, run, 5), &mut |bytes| {
                    assert_eq!(decode_sample(&TINY, bytes, 4), 4);
                });
            });
        }
    });
}

#[test]
fn a_run_that_conflicts_with_all_others_gets_its_turn() {
    let engine = slow_engine(0, 4);
    for index in 0..5 {
        store_message(&engine, cor(0, index), &TINY, 1);
    }
    // All take from cor:0:0, and one adds to it.
    for key_id in 1..5 {
        let n = cor(0, key_id);
        let program = [
            Instruction::HomAdd {
                dst: n,
                src: cor(0, 0),
            },
            Instruction::HomAdd {
                dst: n,
                src: cor(0, 0),
            },
            Instruction::Return { n },
        ];
        store_program(&engine, key_id, &TINY, &program);
    }
    let n = cor(0, 0);
    store_program(
        &engine,
        0,
        &TINY,
        &[
            Instruction::HomIntMult { n, v: -1 },
            Instruction::Return { n },
        ],
    );
    let (ended, overtakers) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for key_id in 1..5 {
            let (engine, ended, overtakers) = (&engine, &ended, &overtakers);
            scope.spawn(move || {
                while !ended.load(Ordering::SeqCst) && overtakers.load(Ordering::SeqCst) < 100_000 {
                    run(engine, key_id).unwrap();
                    overtakers.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for _ in 0..50 {
            run(&engine, 0).unwrap();
        }
        ended.store(true, Ordering::SeqCst);
    });
    assert!(overtakers.load(Ordering::SeqCst) < 100_000);
}

#[test]
fn a_run_after_a_store_is_not_undone_by_one_before_it() {
    // The first run is before the store of cor:0:1, since it began before; the second is after it.
    let engine = slow_engine(2, 16);
    store_keys(&engine, 9, &TINY);
    store_function(&engine, vr("tv:9:0"), &TINY, |m| m);
    store_message(&engine, cor(9, 0), &TINY, 0);
    store_message(&engine, cor(0, 1), &TINY, 1);
    let bootstrap = Instruction::Bootstrap {
        tv: vr("tv:9:0"),
        n: cor(9, 0),
    };
    let copy = Instruction::Move {
        dst: cor(0, 2),
        src: cor(0, 1),
    };
    let end = Instruction::Return { n: cor(0, 2) };
    store_program(&engine, 1, &TINY, &[copy, bootstrap, end]);
    store_program(&engine, 2, &TINY, &[copy, end]);
    let other = [
        Instruction::Bootstrap {
            tv: vr("tv:9:0"),
            n: cor(9, 1),
        },
        Instruction::Return { n: cor(9, 1) },
    ];
    store_program(&engine, 3, &TINY, &other);
    store_message(&engine, cor(9, 1), &TINY, 0);
    let until = |counts| {
        while engine.runs() != counts {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| run(&engine, 1).unwrap());
        until((0, 1));
        store_message(&engine, cor(0, 1), &TINY, 6);
        let second = scope.spawn(|| run(&engine, 2).unwrap());
        until((1, 1));
        // Lets the first go on.
        run(&engine, 3).unwrap();
        assert_eq!(decode_sample(&TINY, &second.join().unwrap().bytes, 4), 6);
    });
    let last = engine.read_sample(COMMAND, cor(0, 2)).unwrap();
    assert_eq!(decode_sample(&TINY, &last.bytes, 4), 6);
}

#[test]
fn a_program_touches_only_the_key_ids_of_its_requester() {
    let engine = engine(1 << 20);
    store_message(&engine, cor(1, 0), &TINY, 3);
    store_program(&engine, 0, &TINY, &[Instruction::Return { n: cor(1, 0) }]);
    let run = |key_ids: &[u32]| {
        let key_ids = key_ids.iter().copied().collect();
        let cancel = CancelToken::new();
        let requester = Requester {
            tenant: 1,
            cancel: &cancel,
            key_ids: Some(&key_ids),
            progress: None,
        };
        engine.run(COMMAND, cor(0, 0), requester)
    };
    assert!(matches!(run(&[0]), Err(EngineError::KeyIdDenied { .. })));
    assert!(run(&[0, 1]).is_ok());
    assert_eq!(engine.runs(), (0, 0));
}
