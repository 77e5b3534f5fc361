//! What a run on columns allocates does not grow with its rows.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use common::{COMMAND, config, cor, vr};
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::{
    Attributes, CancelToken, Checkpoint, ColumnInput, Engine, MapJob, MapSink, MemorySwap,
    RowError, RowSource,
};
use toroid_isa::assemble;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::params::TINY_WOPBS;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, which counts what each thread asks it for.
struct Counting;

fn count() {
    // A thread that ends has no counter any more.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every method hands its arguments and the result through, so the contract is that of the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Rows of zeros.
struct Zeros;

impl RowSource for Zeros {
    fn read(&self, _: Range<u64>, samples: &mut [u8]) -> Result<(), RowError> {
        samples.fill(0);
        Ok(())
    }

    fn number(&self) -> u64 {
        7
    }
}

/// Counts the bytes that it is given.
struct Bytes(usize);

impl MapSink for Bytes {
    fn take(&mut self, _: usize, _: u64, samples: &[u8]) -> Result<(), RowError> {
        self.0 += samples.len();
        Ok(())
    }

    fn reached(&mut self, _: &Checkpoint) -> Result<(), RowError> {
        Ok(())
    }
}

#[test]
fn a_run_allocates_nothing_for_a_row() {
    let params = &TINY_WOPBS;
    let backend = Arc::new(CpuBackend::with_cores(ArithmeticKind::Fft, 1));
    let engine = Engine::new(config(1 << 20), backend, Arc::new(MemorySwap::new()));
    let program = "mov cor:1, cor:0\nhomintmult cor:1, 3\nhomadd cor:0, cor:1\nhomintadd cor:0, 5\n\
        homsub cor:0, cor:1\nhomsum cor:0, 4\nreturn cor:0";
    let program = assemble(program).unwrap().program;
    let allocations = |rows: u64| {
        let inputs = [ColumnInput {
            vr: cor(0, 0),
            params,
            rows,
            attributes: Attributes::default(),
            source: &Zeros,
        }];
        let job = MapJob {
            program_vr: vr("prg:0:0"),
            program: &program,
            inputs: &inputs,
            outputs: &[],
            memory: 64 << 20,
        };
        let mut sink = Bytes(0);
        let before = ALLOCATIONS.get();
        let cancel = CancelToken::new();
        engine.map(COMMAND, &job, None, &mut sink, &cancel).unwrap();
        let allocated = ALLOCATIONS.get() - before;
        assert_eq!(sink.0, rows as usize / 4 * params.lwe_bytes());
        allocated
    };
    // The first run fills what stays.
    allocations(8);
    let (few, many) = (allocations(400), allocations(4000));
    assert!(
        many <= few + 8,
        "{few} allocations for 400 rows, {many} for 4000"
    );
}
