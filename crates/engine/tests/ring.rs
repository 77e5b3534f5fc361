//! Ring keys in their registers, and programs on ring columns.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::sync::Arc;

use common::{COMMAND, cor, vr};
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::{
    Attributes, BackendError, CancelToken, Engine, EngineConfig, EngineError, KeyKind, MemorySwap,
    Part, RingInput, RingJob, StoreOutcome,
};
use toroid_isa::{Program, VrNumber};
use toroid_rns::batch::{MATRIX_BYTES, write_keys};
use toroid_rns::ring_set::{RingSet, TINY_RING};
use toroid_rns::stored::{Layout, StoredColumn};
use toroid_rns::{Batch, Context, EvaluationKeys, KeyRequest, SecretKey};
use toroid_task::Progress;
use toroid_tfhe::ClientKey;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::params::TINY_WOPBS;
use toroid_tfhe::random::Csprng;

const SET: &RingSet = &TINY_RING;

/// Room for two ring keys, but not for three.
fn engine() -> Engine {
    let config = EngineConfig {
        persistent_bytes: 5 * MATRIX_BYTES as u64 / 2,
        ..EngineConfig::default()
    };
    let backend = CpuBackend::with_cores(ArithmeticKind::Ntt, 1);
    Engine::new(config, Arc::new(backend), Arc::new(MemorySwap::new()))
}

fn ring_key(key_id: u32) -> VrNumber {
    VrNumber::key(key_id, KeyKind::Ring).unwrap()
}

/// Stores a key in parts of so many bytes.
fn store(engine: &Engine, key_id: u32, bytes: &[u8], part: usize) -> Result<(), EngineError> {
    let mut outcome = StoreOutcome::Incomplete;
    for (number, piece) in bytes.chunks(part).enumerate() {
        outcome = engine.store_part(&Part {
            context: COMMAND,
            vr: ring_key(key_id),
            params: &TINY_WOPBS,
            total_size: bytes.len() as u64,
            offset: (number * part) as u64,
            bytes: piece,
            attributes: Attributes::default(),
        })?;
    }
    assert_eq!(outcome, StoreOutcome::Complete);
    Ok(())
}

fn attributes() -> Attributes {
    Attributes {
        encoding: Encoding::new(4, false).ok(),
        log2_variance: Some(-30.0),
        ..Attributes::default()
    }
}

/// Runs `return x` for a key id on a column.
fn run(
    engine: &Engine,
    key_id: u32,
    column: &StoredColumn,
    cancel: &CancelToken,
) -> Result<StoredColumn, EngineError> {
    let text = format!(".key {key_id}\n.reg x = cor:1\n    homintadd x, 3\n    return x\n");
    let assembly = toroid_isa::assemble(&text).unwrap();
    let program: Program = assembly.program;
    let inputs = [RingInput {
        vr: cor(key_id, 1),
        attributes: attributes(),
        column,
    }];
    let job = RingJob {
        program_vr: vr(&format!("prg:{key_id}:0")),
        program: &program,
        set: SET,
        inputs: &inputs,
    };
    let made = engine.map_ring(&job, 1 << 20, cancel)?;
    assert_eq!(made.facts.bootstraps, 0);
    Ok(made.column)
}

#[test]
fn ring_keys_come_in_parts_and_go_when_others_need_their_room() {
    let mut rng = Csprng::from_seed([7; 32]);
    let client = ClientKey::generate(&TINY_WOPBS, &mut rng);
    let secret = SecretKey::derive(SET, &client).unwrap();
    let key = write_keys(Vec::new(), SET, &secret, &mut rng, &Progress::none()).unwrap();
    let batch = Batch::read_from(key.as_slice(), &Progress::none()).unwrap();
    assert!((MATRIX_BYTES as u64..9 * MATRIX_BYTES as u64 / 8).contains(&batch.memory()));
    let messages: Vec<u32> = (0..100).map(|row| row % 16).collect();
    let place = (Layout::plain(4), SET.seeded_width);
    let column = StoredColumn::encrypt_in(&secret, place, &messages, &mut rng).unwrap();
    let go_on = CancelToken::new();

    let engine = engine();
    let missing = run(&engine, 0, &column, &go_on).unwrap_err();
    assert!(matches!(missing, EngineError::MissingRingKey { vr } if vr == ring_key(0)));
    // Damage anywhere, a key that ends early, and one that goes on.
    let mut damaged = key.clone();
    damaged[key.len() / 2] ^= 1;
    let longer = [&key[..], &[0; 5000]].concat();
    for bytes in [&damaged[..], &key[..key.len() - 1], &longer[..]] {
        let error = store(&engine, 0, bytes, 4096).unwrap_err();
        let is_malformed = matches!(
            error,
            EngineError::Backend {
                source: BackendError::MalformedKey { .. },
                ..
            }
        );
        assert!(is_malformed, "{error:?}");
        assert!(engine.info(ring_key(0)).is_none());
    }
    store(&engine, 0, &key, 4096).unwrap();
    store(&engine, 1, &key, 100_000).unwrap();
    // The first is used, so that the second has to go.
    let made = run(&engine, 0, &column, &go_on).unwrap();
    let expected: Vec<u32> = messages.iter().map(|m| (m + 3) % 16).collect();
    assert_eq!(made.decrypt(&secret).unwrap(), expected);
    store(&engine, 2, &key, key.len()).unwrap();
    let held = [0, 1, 2].map(|key_id| engine.info(ring_key(key_id)).is_some());
    assert_eq!(held, [true, false, true]);

    // Columns that are not what is stated, of another key, and the end.
    let other = ClientKey::generate(&TINY_WOPBS, &mut rng);
    let other = SecretKey::derive(SET, &other).unwrap();
    let theirs = StoredColumn::encrypt_in(&other, place, &messages, &mut rng).unwrap();
    let error = run(&engine, 0, &theirs, &go_on).unwrap_err().to_string();
    assert!(
        error.contains("another key") || error.contains("back end"),
        "{error}"
    );
    let narrow = (Layout::plain(3), SET.seeded_width);
    let narrow = StoredColumn::encrypt_in(&secret, narrow, &[1, 2], &mut rng).unwrap();
    let error = run(&engine, 0, &narrow, &go_on).unwrap_err();
    assert!(matches!(error, EngineError::Column { .. }), "{error}");
}

/// A ring whose primes are not those of its set, as those of another version are not.
#[test]
fn ring_keys_and_columns_of_another_version_are_refused() {
    let mut rng = Csprng::from_seed([8; 32]);
    let client = ClientKey::generate(&TINY_WOPBS, &mut rng);
    let secret = SecretKey::derive(SET, &client).unwrap();
    let key = write_keys(Vec::new(), SET, &secret, &mut rng, &Progress::none()).unwrap();
    let mut params = SET.params().clone();
    params.chain.pop();
    let other = SecretKey::generate(&Context::new(params).unwrap(), &mut rng);
    let request = KeyRequest {
        conjugation: Some(1),
        ..KeyRequest::default()
    };
    let none = Progress::none();
    let theirs = EvaluationKeys::generate_to(Vec::new(), &other, &request, &mut rng, &none);
    let place = (Layout::plain(4), SET.seeded_width);
    let column = StoredColumn::encrypt_in(&other, place, &[1, 2, 3], &mut rng).unwrap();

    let engine = engine();
    let error = store(&engine, 0, &theirs.unwrap(), 4096).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("make the keys again"), "{error}");
    assert!(engine.info(ring_key(0)).is_none());
    store(&engine, 0, &key, 4096).unwrap();
    let error = run(&engine, 0, &column, &CancelToken::new()).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("encrypt the column again"), "{error}");
}
