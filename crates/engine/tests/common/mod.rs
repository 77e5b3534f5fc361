//! What the tests of the engine share.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

pub mod columns;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use toroid_engine::backend::testing::{PlaintextBackend, encode_sample, test_vector};
use toroid_engine::{
    Attributes, Backend, CancelToken, Engine, EngineConfig, EngineError, KeyForm, KeyKind,
    LoadedKey, MemorySwap, PagingContext, Part, ReplacementPolicy, RunOutcome, StoreOutcome, Swap,
    SwapError, SwapSlot,
};
use toroid_isa::{Instruction, Program, VrNumber, encode};
use toroid_task::Progress;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::Csprng;

/// The command that the tests page for.
pub const COMMAND: PagingContext = PagingContext {
    command_id: 0x1234,
    queue: 3,
};

pub const KINDS: [KeyKind; 2] = [KeyKind::Bootstrapping, KeyKind::KeySwitching];

pub fn vr(text: &str) -> VrNumber {
    text.parse().unwrap()
}

pub fn cor(key_id: u32, data_id: u32) -> VrNumber {
    vr(&format!("cor:{key_id}:{data_id}"))
}

pub fn config(paged_bytes: u64) -> EngineConfig {
    EngineConfig {
        persistent_bytes: 256 << 20,
        paged_bytes,
        stack_slots: 4,
        swap_bytes: 4 << 20,
        ..EngineConfig::default()
    }
}

pub fn engine(paged_bytes: u64) -> Engine {
    engine_on(config(paged_bytes), Arc::new(MemorySwap::new()))
}

pub fn engine_with(paged_bytes: u64, replacement: ReplacementPolicy) -> Engine {
    engine_on(
        EngineConfig {
            replacement,
            ..config(paged_bytes)
        },
        Arc::new(MemorySwap::new()),
    )
}

pub fn engine_on(config: EngineConfig, swap: Arc<dyn Swap>) -> Engine {
    Engine::new(config, Arc::new(PlaintextBackend::new()), swap)
}

/// Those of a fresh sample: no sample has less noise than that, whatever it states.
pub fn bits(message_bits: u32) -> Attributes {
    Attributes {
        encoding: Encoding::new(message_bits, false).ok(),
        log2_variance: Some(-1000.0),
        ..Attributes::default()
    }
}

pub fn whole<'a>(
    vr: VrNumber,
    params: &'static ParamSet,
    bytes: &'a [u8],
    attributes: Attributes,
) -> Part<'a> {
    Part {
        context: COMMAND,
        vr,
        params,
        total_size: bytes.len() as u64,
        offset: 0,
        bytes,
        attributes,
    }
}

pub fn store(
    engine: &Engine,
    vr: VrNumber,
    params: &'static ParamSet,
    bytes: &[u8],
) -> Result<(), EngineError> {
    let outcome = engine.store_part(&whole(vr, params, bytes, bits(params.message_bits)))?;
    assert_eq!(outcome, StoreOutcome::Complete);
    Ok(())
}

pub fn store_message(engine: &Engine, vr: VrNumber, params: &'static ParamSet, message: i64) {
    store(
        engine,
        vr,
        params,
        &encode_sample(params, message, params.message_bits),
    )
    .unwrap();
}

pub fn store_keys(engine: &Engine, key_id: u32, params: &'static ParamSet) {
    for (kind, bytes) in [
        (KeyKind::Bootstrapping, params.bootstrapping_key_bytes()),
        (KeyKind::KeySwitching, params.key_switching_key_bytes()),
    ] {
        store(
            engine,
            VrNumber::key(key_id, kind).unwrap(),
            params,
            &vec![0; bytes as usize],
        )
        .unwrap();
    }
}

/// A key object's bytes in a form.
pub fn key_bytes(client: &ClientKey, kind: KeyKind, form: KeyForm, rng: &mut Csprng) -> Vec<u8> {
    let mut key = Vec::new();
    let mut write = |bytes: &[u8]| {
        key.extend_from_slice(bytes);
        Ok(())
    };
    let go_on = Progress::none();
    match kind {
        KeyKind::Bootstrapping => client.bootstrapping_key(form, rng, &go_on, &mut write),
        KeyKind::KeySwitching => client.key_switching_key(form, rng, &go_on, &mut write),
        KeyKind::Ring | KeyKind::Conversion => panic!("keys of rings do not come from here"),
    }
    .unwrap();
    key
}

/// A key that the back end took in pieces.
pub fn loaded_key(
    backend: &dyn Backend,
    client: &ClientKey,
    kind: KeyKind,
    form: KeyForm,
    rng: &mut Csprng,
) -> Arc<dyn LoadedKey> {
    let mut sink = backend.begin_key(client.params(), kind, form).unwrap();
    for piece in key_bytes(client, kind, form, rng).chunks(1_000_003) {
        sink.write(piece).unwrap();
    }
    sink.finish().unwrap()
}

pub fn store_function(
    engine: &Engine,
    tv: VrNumber,
    params: &'static ParamSet,
    f: impl Fn(u64) -> u64,
) {
    store(
        engine,
        tv,
        params,
        &test_vector(params, params.message_bits, f),
    )
    .unwrap();
}

pub fn store_program(
    engine: &Engine,
    key_id: u32,
    params: &'static ParamSet,
    instructions: &[Instruction],
) {
    let program = Program::new(instructions.to_vec()).unwrap();
    store(
        engine,
        VrNumber::program(key_id).unwrap(),
        params,
        &encode(&program),
    )
    .unwrap();
}

pub fn run(engine: &Engine, key_id: u32) -> Result<RunOutcome, EngineError> {
    engine.run(COMMAND, cor(key_id, 0), &CancelToken::new())
}

/// Every sample there is, without what paging may change.
pub fn samples(engine: &Engine) -> Vec<(VrNumber, Vec<u8>, bool, f64)> {
    let infos = engine.list();
    let samples = infos.iter().filter(|info| info.vr.ty().is_sample());
    samples
        .map(|info| {
            let sample = engine.read_sample(COMMAND, info.vr).unwrap();
            (
                info.vr,
                sample.bytes,
                sample.computed,
                sample.noise.variance(),
            )
        })
        .collect()
}

/// A swap area that fails the operation with this number, from 0, and checks what it is called with.
pub struct FailingSwap {
    inner: MemorySwap,
    fail_at: AtomicU64,
    calls: AtomicU64,
}

#[derive(Debug, thiserror::Error)]
#[error("the SSD is tired")]
pub struct Tired;

impl FailingSwap {
    pub fn new() -> FailingSwap {
        FailingSwap {
            inner: MemorySwap::new(),
            fail_at: AtomicU64::new(u64::MAX),
            calls: AtomicU64::new(0),
        }
    }

    /// Fails the operation that is `after` calls ahead.
    pub fn fail_after(&self, after: u64) {
        self.fail_at
            .store(self.calls().saturating_add(after), Ordering::SeqCst);
    }

    pub fn never_fail(&self) {
        self.fail_at.store(u64::MAX, Ordering::SeqCst);
    }

    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    fn call(&self, context: PagingContext, length: usize) -> Result<(), SwapError> {
        assert_eq!(context, COMMAND);
        assert!(length > 0 && length.is_multiple_of(4096));
        if self.calls.fetch_add(1, Ordering::SeqCst) == self.fail_at.load(Ordering::SeqCst) {
            return Err(SwapError::new(Tired));
        }
        Ok(())
    }
}

impl Swap for FailingSwap {
    fn page_out(
        &self,
        context: PagingContext,
        slot: SwapSlot,
        data: &[u8],
    ) -> Result<(), SwapError> {
        self.call(context, data.len())?;
        self.inner.page_out(context, slot, data)
    }

    fn page_in(
        &self,
        context: PagingContext,
        slot: SwapSlot,
        data: &mut [u8],
    ) -> Result<(), SwapError> {
        self.call(context, data.len())?;
        self.inner.page_in(context, slot, data)
    }
}
