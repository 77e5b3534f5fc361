//! What happens to a run on columns while it reads its rows: other keys, a full swap area, a cancellation.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::columns::{Messages, Taker};
use common::*;
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::backend::testing::{PlaintextBackend, encode_sample};
use toroid_engine::{
    Attributes, Backend, BackendError, BootstrapTask, CancelToken, ColumnInput, Engine,
    EngineError, KeyForm, KeyKind, KeySink, LoadedKey, MapJob, MemorySwap, Requester, RowError,
    RowSource,
};
use toroid_isa::{Program, assemble};
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::column::{Column, ColumnForm, column_bytes, rows_per_chunk};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::glwe;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::modulus::Goldilocks;
use toroid_tfhe::params::{ParamSet, TINY, TINY_WOPBS};
use toroid_tfhe::random::{Csprng, fingerprint};

/// Rows that do something else when those from `at` on are read.
struct Eventful<'a, S, F> {
    rows: &'a S,
    at: u64,
    event: F,
    happened: AtomicUsize,
}

impl<'a, S, F> Eventful<'a, S, F> {
    fn new(rows: &'a S, at: u64, event: F) -> Self {
        Eventful {
            rows,
            at,
            event,
            happened: AtomicUsize::new(0),
        }
    }
}

impl<S: RowSource, F: Fn() + Sync> RowSource for Eventful<'_, S, F> {
    fn read(&self, rows: Range<u64>, samples: &mut [u8]) -> Result<(), RowError> {
        if rows.contains(&self.at) && self.happened.fetch_add(1, Ordering::SeqCst) == 0 {
            (self.event)();
        }
        self.rows.read(rows, samples)
    }

    fn number(&self) -> u64 {
        self.rows.number()
    }
}

/// Rows as samples.
struct Samples(Vec<Vec<u8>>);

impl RowSource for Samples {
    fn read(&self, rows: Range<u64>, samples: &mut [u8]) -> Result<(), RowError> {
        let all = self.0[rows.start as usize..rows.end as usize].concat();
        samples.copy_from_slice(&all);
        Ok(())
    }

    fn number(&self) -> u64 {
        fingerprint(&self.0.concat())
    }
}

fn program(source: &str) -> Program {
    assemble(source).unwrap().program
}

fn input<'a>(
    params: &'static ParamSet,
    rows: u64,
    attributes: Attributes,
    source: &'a dyn RowSource,
) -> ColumnInput<'a> {
    ColumnInput {
        vr: cor(0, 0),
        params,
        rows,
        attributes,
        source,
    }
}

fn job<'a>(program: &'a Program, inputs: &'a [ColumnInput<'a>], memory: u64) -> MapJob<'a> {
    MapJob {
        program_vr: vr("prg:0:0"),
        program,
        inputs,
        outputs: &[],
        memory,
    }
}

#[test]
fn a_run_keeps_the_keys_that_it_began_with() {
    let params = &TINY;
    let mut rng = Csprng::from_seed([31; 32]);
    let encoding = Encoding::new(4, true).unwrap();
    let backend = Arc::new(CpuBackend::new(ArithmeticKind::Ntt));
    let engine = Engine::new(config(1 << 20), backend, Arc::new(MemorySwap::new()));
    let clients = [(); 2].map(|()| ClientKey::generate(params, &mut rng));
    let keys = clients
        .each_ref()
        .map(|client| KINDS.map(|kind| key_bytes(client, kind, KeyForm::Seeded, &mut rng)));
    let tagged = |tag: u8| Attributes {
        key_tag: Some([tag; 12]),
        ..Attributes::default()
    };
    let put_keys = |client: usize| {
        for (kind, bytes) in KINDS.into_iter().zip(&keys[client]) {
            let register = toroid_isa::VrNumber::key(0, kind).unwrap();
            let part = whole(register, params, bytes, tagged(client as u8 + 1));
            engine.store_part(&part).unwrap();
        }
    };
    put_keys(0);
    let table: Vec<u64> = encoding
        .messages()
        .map(|m| encoding.encode::<Goldilocks>(-m - 1).unwrap())
        .collect();
    let function: Vec<u8> = glwe::test_vector::<Goldilocks>(params, encoding, &table)
        .unwrap()
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let attributes = Attributes {
        encoding: Some(encoding),
        ..Attributes::default()
    };
    let of_function = whole(vr("tv:0:0"), params, &function, attributes);
    engine.store_part(&of_function).unwrap();

    let values: Vec<i64> = (0..24).map(|row| row % 16 - 8).collect();
    let encrypted = |value: &i64, rng: &mut Csprng| {
        let sample = clients[0].encrypt_sample(*value, encoding, rng);
        sample.unwrap()
    };
    let samples = Samples(
        values
            .iter()
            .map(|value| encrypted(value, &mut rng))
            .collect(),
    );
    let attributes = Attributes {
        log2_variance: Some(params.lwe_variance().log2()),
        ..Attributes {
            encoding: Some(encoding),
            ..tagged(1)
        }
    };
    let program = program("bootstrap tv:0:0, cor:0\nreturn cor:0");
    // A tile is a few rows, so that most of them are read when the other keys are there.
    let memory = 24 * params.lwe_bytes() as u64;
    let eventful = Eventful::new(&samples, 9, || put_keys(1));
    let inputs = [input(params, 24, attributes, &eventful)];
    let mapped = engine.map_to_columns(
        COMMAND,
        &job(&program, &inputs, memory),
        u64::MAX,
        &CancelToken::new(),
    );
    let (made, _) = mapped.unwrap();
    assert_eq!(eventful.happened.load(Ordering::SeqCst), 1);
    let column = Column::new(params, &made[0].bytes).unwrap();
    let chunk = column.chunk_of(0).unwrap();
    let found = clients[0].decrypt_chunk(&chunk, encoding).unwrap();
    let expected: Vec<i64> = values.iter().map(|value| -value - 1).collect();
    assert_eq!(found, expected);
    // The next run has the new keys, and rows of the old client key do not go with them.
    let inputs = [input(params, 24, attributes, &samples)];
    let refused = engine.map_to_columns(
        COMMAND,
        &job(&program, &inputs, memory),
        u64::MAX,
        &CancelToken::new(),
    );
    assert!(matches!(refused, Err(EngineError::KeyTagMismatch { .. })));
}

#[test]
fn a_swap_area_that_fills_up_ends_a_run_and_nothing_else() {
    let params = &TINY;
    let mut sizes = config(64 * 4096);
    sizes.swap_bytes = 64 * 4096;
    let backend = Arc::new(PlaintextBackend::new());
    let engine = Engine::new(sizes, backend, Arc::new(MemorySwap::new()));
    let values: Vec<i64> = (0..40).map(|row| row % 16).collect();
    let rows = Messages {
        params,
        bits: 4,
        values: values.clone(),
    };
    // All rows are kept until they move; others take their room meanwhile.
    let program = program("homintadd cor:0, 1\nlower cor:0, 1\nreturn cor:0");
    let fill = || {
        let full = (100..).find_map(|id| {
            let sample = encode_sample(params, id % 16, 4);
            store(&engine, cor(0, id as u32), params, &sample).err()
        });
        assert!(
            matches!(full, Some(EngineError::SwapFull { .. })),
            "{full:?}"
        );
    };
    let memory = 12 * params.lwe_bytes() as u64;
    let eventful = Eventful::new(&rows, 20, fill);
    let inputs = [input(params, 40, bits(4), &eventful)];
    let mut taker = Taker::new(params);
    let run = engine.map(
        COMMAND,
        &job(&program, &inputs, memory),
        None,
        &mut taker,
        &CancelToken::new(),
    );
    assert!(matches!(run, Err(EngineError::SwapFull { .. })), "{run:?}");
    assert!(taker.columns.is_empty());
    // Its pages are free again, and the samples that came meanwhile are all there.
    let held = samples(&engine);
    assert!(held.len() > 60, "{}", held.len());
    for (register, bytes, ..) in &held {
        let message = i64::from(register.data_id() % 16);
        assert_eq!(*bytes, encode_sample(params, message, 4));
    }
    for (register, ..) in held {
        engine.remove(register);
    }
    let inputs = [input(params, 40, bits(4), &rows)];
    let run = engine.map(
        COMMAND,
        &job(&program, &inputs, memory),
        None,
        &mut taker,
        &CancelToken::new(),
    );
    run.unwrap();
    let expected = values.iter().step_by(2).map(|value| *value as u64 + 1);
    assert_eq!(taker.columns, [expected.collect::<Vec<_>>()]);
    let paging = engine.paging();
    assert_eq!(paging.resident_pages + paging.swapped_pages, 0);
}

/// A back end that packs, and cancels its own run in the chunk with this number.
struct Packing {
    plaintext: PlaintextBackend,
    cancel: CancelToken,
    cancel_at: usize,
    packed: AtomicUsize,
}

impl Backend for Packing {
    fn name(&self) -> &'static str {
        "packing"
    }

    fn arithmetic(&self) -> ArithmeticKind {
        self.plaintext.arithmetic()
    }

    fn begin_key(
        &self,
        params: &ParamSet,
        kind: KeyKind,
        form: KeyForm,
    ) -> Result<Box<dyn KeySink>, BackendError> {
        self.plaintext.begin_key(params, kind, form)
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
        let keys = (bootstrapping, key_switching);
        self.plaintext
            .bootstrap_batch(params, keys.0, keys.1, tasks, results, requester)
    }

    fn batch_hint(&self, params: &ParamSet) -> usize {
        self.plaintext.batch_hint(params)
    }

    fn packs(&self, params: &ParamSet) -> bool {
        params.is_wide()
    }

    fn pack(
        &self,
        params: &ParamSet,
        _: &dyn LoadedKey,
        samples: &[(usize, &[u8])],
        rows: usize,
        requester: Requester<'_>,
    ) -> Result<Vec<u8>, BackendError> {
        assert_eq!(samples.len(), rows);
        if self.packed.fetch_add(1, Ordering::SeqCst) == self.cancel_at {
            self.cancel.cancel();
        }
        if requester.cancel.is_cancelled() {
            return Err(BackendError::Cancelled);
        }
        let bytes = toroid_tfhe::column::chunk_bytes(params, ColumnForm::Packed, rows);
        Ok(vec![0; bytes.unwrap()])
    }

    fn hom_add(&self, params: &ParamSet, dst: &mut [u8], src: &[u8]) {
        self.plaintext.hom_add(params, dst, src);
    }

    fn hom_sub(&self, params: &ParamSet, dst: &mut [u8], src: &[u8]) {
        self.plaintext.hom_sub(params, dst, src);
    }

    fn hom_int_mult(&self, params: &ParamSet, dst: &mut [u8], v: i32) {
        self.plaintext.hom_int_mult(params, dst, v);
    }
}

#[test]
fn a_run_that_is_aborted_while_it_packs_is_cancelled() {
    let params = &TINY_WOPBS;
    let rows = 3 * rows_per_chunk(params);
    let source = Messages {
        params,
        bits: 4,
        values: (0..rows as i64).map(|row| row % 16).collect(),
    };
    let program = program("homintadd cor:0, 1\nreturn cor:0");
    for cancel_at in [0, 1, 2, 3] {
        let cancel = CancelToken::new();
        let backend = Arc::new(Packing {
            plaintext: PlaintextBackend::new(),
            cancel: cancel.clone(),
            cancel_at,
            packed: AtomicUsize::new(0),
        });
        let shared: Arc<dyn Backend> = backend.clone();
        let engine = Engine::new(config(1 << 20), shared, Arc::new(MemorySwap::new()));
        store_keys(&engine, 0, params);
        let inputs = [input(params, rows as u64, bits(4), &source)];
        let job = job(&program, &inputs, 64 << 20);
        let run = engine.begin_columns(COMMAND, &job, &cancel).unwrap();
        let packed = column_bytes(params, ColumnForm::Packed, rows as u64).unwrap();
        assert_eq!(run.column_bytes().unwrap(), packed);
        let ended = run.execute();
        let chunks = backend.packed.load(Ordering::SeqCst);
        if cancel_at < 3 {
            assert!(matches!(ended, Err(EngineError::Cancelled)), "{ended:?}");
            assert_eq!(chunks, cancel_at + 1);
        } else {
            // Equal chunks stand there once.
            let (made, _) = ended.unwrap();
            let column = Column::new(params, &made[0].bytes).unwrap();
            assert_eq!((column.header().rows(), chunks), (rows as u64, 3));
        }
        let paging = engine.paging();
        assert_eq!(paging.resident_pages + paging.swapped_pages, 0);
    }
}
