//! Commands beside a run, and beside each other.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use common::*;
use toroid_engine::backend::testing::{InterceptedBackend, decode_sample, encode_sample};
use toroid_engine::{
    BackendError, CancelToken, Engine, EngineError, MemorySwap, PAGE_BYTES, PagingContext, Part,
    Requester, StoreOutcome, Swap, SwapError, SwapSlot,
};
use toroid_isa::Instruction;
use toroid_tfhe::params::TINY;

const PAGE: u64 = PAGE_BYTES as u64;
/// The command whose paging is held up.
const SLOW: PagingContext = PagingContext {
    command_id: 77,
    queue: 9,
};

/// Holds up the page I/O of one command until it is opened.
#[derive(Default)]
struct GatedSwap {
    inner: MemorySwap,
    gate: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Default)]
struct Gate {
    open: bool,
    waiting: usize,
}

impl GatedSwap {
    fn pass(&self, context: PagingContext) {
        if context != SLOW {
            return;
        }
        let mut gate = self.gate.lock().unwrap();
        gate.waiting += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(gate, |gate| !gate.open).unwrap());
    }

    fn wait_until_held(&self) {
        drop(
            self.changed
                .wait_while(self.gate.lock().unwrap(), |gate| gate.waiting == 0)
                .unwrap(),
        );
    }

    fn open(&self) {
        self.gate.lock().unwrap().open = true;
        self.changed.notify_all();
    }
}

impl Swap for GatedSwap {
    fn page_out(
        &self,
        context: PagingContext,
        slot: SwapSlot,
        data: &[u8],
    ) -> Result<(), SwapError> {
        self.pass(context);
        self.inner.page_out(context, slot, data)
    }

    fn page_in(
        &self,
        context: PagingContext,
        slot: SwapSlot,
        data: &mut [u8],
    ) -> Result<(), SwapError> {
        self.pass(context);
        self.inner.page_in(context, slot, data)
    }
}

/// An engine whose run is held up in its first page I/O, and what then happens beside it.
fn beside_a_held_run(instructions: &[Instruction], beside: impl FnOnce(&Engine)) -> (Engine, u64) {
    let swap = Arc::new(GatedSwap::default());
    let engine = engine_on(config(4 * PAGE), Arc::clone(&swap) as _);
    store_program(&engine, 0, &TINY, instructions);
    for index in 0..8 {
        store_message(&engine, cor(0, index), &TINY, i64::from(index));
    }
    let bytes = thread::scope(|scope| {
        let run = scope.spawn(|| {
            engine
                .run(SLOW, cor(0, 0), &CancelToken::new())
                .unwrap()
                .bytes
        });
        swap.wait_until_held();
        beside(&engine);
        assert!(!run.is_finished());
        swap.open();
        run.join().unwrap()
    });
    (engine, decode_sample(&TINY, &bytes, 4))
}

/// r0 <- r0 + .. + r7.
fn sum() -> Vec<Instruction> {
    let mut program: Vec<Instruction> = (1..8)
        .map(|index| Instruction::HomAdd {
            dst: cor(0, 0),
            src: cor(0, index),
        })
        .collect();
    program.push(Instruction::Return { n: cor(0, 0) });
    program
}

fn message(engine: &Engine, data_id: u32) -> u64 {
    decode_sample(
        &TINY,
        &engine.read_sample(COMMAND, cor(0, data_id)).unwrap().bytes,
        4,
    )
}

#[test]
fn other_commands_go_on_while_a_run_pages() {
    let (engine, result) = beside_a_held_run(&sum(), |engine| {
        store_function(engine, vr("tv:0:0"), &TINY, |m| m);
        store_keys(engine, 1, &TINY);
        // These need a frame, and so page I/O of their own.
        for index in 0..6 {
            store_message(engine, cor(1, index), &TINY, 1);
        }
        store_message(engine, cor(0, 7), &TINY, 9);
        assert_eq!(
            engine
                .list()
                .iter()
                .filter(|info| info.vr.ty().is_sample())
                .count(),
            14
        );
        assert!(engine.remove(cor(1, 0)));
    });
    assert_eq!(result, 28, "the run sees the registers as they were");
    assert_eq!(message(&engine, 0), 28);
    assert_eq!(message(&engine, 7), 9);
}

#[test]
fn what_is_stored_or_removed_beside_a_run_stands() {
    let mut instructions = vec![Instruction::Move {
        dst: cor(0, 9),
        src: cor(0, 3),
    }];
    instructions.extend((1..3).map(|index| Instruction::HomIntMult {
        n: cor(0, index),
        v: 2,
    }));
    instructions.extend(sum());
    let (engine, result) = beside_a_held_run(&instructions, |engine| {
        store_message(engine, cor(0, 1), &TINY, 15);
        assert!(engine.remove(cor(0, 2)));
    });
    assert_eq!(result, 31);
    assert_eq!(message(&engine, 0), 31);
    assert_eq!(message(&engine, 1), 15, "stored after the run's view of it");
    assert!(
        engine.info(cor(0, 2)).is_none(),
        "removed after the run's view of it"
    );
    assert_eq!(message(&engine, 9), 3, "made by the run");
}

#[test]
fn a_key_id_cleared_beside_a_run_stays_clear() {
    let mut instructions = vec![Instruction::Move {
        dst: cor(0, 9),
        src: cor(0, 3),
    }];
    instructions.extend(sum());
    let (engine, result) = beside_a_held_run(&instructions, |engine| {
        assert_eq!(engine.clear_key_id(0), 9);
    });
    assert_eq!(result, 28);
    assert!(engine.list().is_empty());
    assert_eq!(
        (
            engine.paging().resident_pages,
            engine.paging().swapped_pages
        ),
        (0, 0)
    );
}

#[test]
fn runs_can_be_cancelled_in_a_bootstrap_and_while_they_wait() {
    let begun = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&begun);
    // Bootstraps last until they are cancelled.
    let endless = InterceptedBackend::new(move |requester: Requester<'_>, _| {
        tell.store(true, Ordering::SeqCst);
        while !requester.cancel.is_cancelled() {
            thread::yield_now();
        }
        Err(BackendError::Cancelled)
    });
    let engine = Engine::new(
        config(1 << 20),
        Arc::new(endless),
        Arc::new(MemorySwap::new()),
    );
    let (x, tv) = (cor(0, 1), vr("tv:0:0"));
    store_keys(&engine, 0, &TINY);
    store_function(&engine, tv, &TINY, |m| m);
    store_message(&engine, x, &TINY, 3);
    let instructions = [
        Instruction::HomAdd { dst: x, src: x },
        Instruction::Bootstrap { tv, n: x },
        Instruction::Return { n: x },
    ];
    store_program(&engine, 0, &TINY, &instructions);
    let before = samples(&engine);
    let (first, second) = (CancelToken::new(), CancelToken::new());
    thread::scope(|scope| {
        let running = scope.spawn(|| engine.run(COMMAND, x, &first));
        while !begun.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        let waiting = scope.spawn(|| engine.run(COMMAND, x, &second));
        second.cancel();
        assert!(matches!(
            waiting.join().unwrap(),
            Err(EngineError::Cancelled)
        ));
        assert!(!running.is_finished());
        first.cancel();
        assert!(matches!(
            running.join().unwrap(),
            Err(EngineError::Cancelled)
        ));
    });
    assert_eq!(samples(&engine), before);
    assert_eq!(engine.paging().resident_pages, 1);
    // The processor is free again.
    store_program(&engine, 0, &TINY, &[Instruction::Return { n: x }]);
    assert!(run(&engine, 0).is_ok());
}

#[test]
fn parts_of_one_object_from_two_commands_do_not_mix() {
    let engine = engine(1 << 20);
    let x = cor(0, 1);
    let (ones, twos) = (encode_sample(&TINY, 1, 4), encode_sample(&TINY, 2, 4));
    let parts = |bytes| {
        let all: Part<'_> = whole(x, &TINY, bytes, bits(4));
        [
            Part {
                bytes: &all.bytes[..128],
                ..all
            },
            Part {
                offset: 128,
                bytes: &all.bytes[128..],
                ..all
            },
        ]
    };
    let [a0, a1] = parts(&ones);
    let [b0, b1] = parts(&twos);
    engine.store_part(&a0).unwrap();
    engine.store_part(&b0).unwrap();
    assert_eq!(engine.store_part(&b1).unwrap(), StoreOutcome::Complete);
    assert!(matches!(
        engine.store_part(&a1),
        Err(EngineError::PartOrder { expected: 0, .. })
    ));
    assert_eq!(message(&engine, 1), 2);
}

/// A swap area that gives other threads a chance in the middle.
#[derive(Default)]
struct YieldingSwap(MemorySwap);

impl Swap for YieldingSwap {
    fn page_out(
        &self,
        context: PagingContext,
        slot: SwapSlot,
        data: &[u8],
    ) -> Result<(), SwapError> {
        thread::yield_now();
        self.0.page_out(context, slot, data)?;
        thread::yield_now();
        Ok(())
    }

    fn page_in(
        &self,
        context: PagingContext,
        slot: SwapSlot,
        data: &mut [u8],
    ) -> Result<(), SwapError> {
        thread::yield_now();
        self.0.page_in(context, slot, data)?;
        thread::yield_now();
        Ok(())
    }
}

#[test]
fn many_threads_in_a_small_area_see_what_they_wrote() {
    const THREADS: u32 = 4;
    const ROUNDS: u32 = 300;
    let engine = engine_on(config(3 * PAGE), Arc::new(YieldingSwap::default()));
    for key_id in 0..THREADS {
        let (x, y) = (cor(key_id, 0), cor(key_id, 1));
        store_program(
            &engine,
            key_id,
            &TINY,
            &[
                Instruction::HomAdd { dst: x, src: y },
                Instruction::Return { n: x },
            ],
        );
    }
    thread::scope(|scope| {
        for key_id in 0..THREADS {
            let engine = &engine;
            scope.spawn(move || {
                let read = |index: u32| {
                    let sample = engine.read_sample(COMMAND, cor(key_id, index)).unwrap();
                    decode_sample(&TINY, &sample.bytes, 4)
                };
                for round in 0..ROUNDS {
                    let (a, b) = (round % 7 + key_id, round % 5);
                    store_message(engine, cor(key_id, 0), &TINY, i64::from(a));
                    store_message(engine, cor(key_id, 1), &TINY, i64::from(b));
                    store_message(
                        engine,
                        cor(key_id, 2 + round % 3),
                        &TINY,
                        i64::from(round % 16),
                    );
                    let outcome = run(engine, key_id).unwrap();
                    assert_eq!(decode_sample(&TINY, &outcome.bytes, 4), u64::from(a + b));
                    assert_eq!((read(0), read(1)), (u64::from(a + b), u64::from(b)));
                    assert_eq!(read(2 + round % 3), u64::from(round % 16));
                    if round % 11 == 0 {
                        assert!(engine.remove(cor(key_id, 2 + round % 3)));
                    }
                }
                engine.remove(cor(key_id, 1));
            });
        }
    });
    let paging = engine.paging();
    assert!(paging.page_ins > 0 && paging.page_outs > 0);
    for key_id in 0..THREADS {
        engine.clear_key_id(key_id);
    }
    let paging = engine.paging();
    assert_eq!((paging.resident_pages, paging.swapped_pages), (0, 0));
}
