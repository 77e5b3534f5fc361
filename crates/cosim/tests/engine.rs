//! The computing engine in simulation against the exact path of the library.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::ops::ControlFlow;
use std::sync::Arc;

use toroid_cosim::engine::RtlBackend;
use toroid_cosim::memory::Timing;
use toroid_cosim::toolchain::tests_are_skipped;
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::backend::{Backend, LoadedKey};
use toroid_engine::{CancelToken, Requester};
use toroid_isa::KeyKind;
use toroid_ring::goldilocks;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::noise::Path;
use toroid_tfhe::params::{self, Gadget, ModulusKind, ModulusSwitch, ParamSet};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::KeyForm;

/// A few steps of blind rotation over the 32-bit torus, with a gadget that leaves bits over.
static STEPS32: ParamSet = ParamSet {
    id: 900,
    name: "steps32",
    purpose: "tests of the engine",
    modulus: ModulusKind::Torus32,
    lwe_dimension: 11,
    ring_degree: 256,
    glwe_dimension: 1,
    gadget: Gadget {
        levels: 3,
        log2_base: 5,
    },
    body_gadget: Gadget {
        levels: 2,
        log2_base: 7,
    },
    key_switch: Gadget {
        levels: 3,
        log2_base: 3,
    },
    modulus_switch: ModulusSwitch::Nearest,
    exact: None,
    ..params::TINY
};

fn key_bytes(key: &ClientKey, kind: KeyKind, form: KeyForm, rng: &mut Csprng) -> Vec<u8> {
    let mut bytes = Vec::new();
    let sink = &mut |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    match kind {
        KeyKind::Bootstrapping => {
            key.bootstrapping_key(form, rng, &mut |_, _| ControlFlow::Continue(()), sink)
        }
        KeyKind::KeySwitching => {
            key.key_switching_key(form, rng, &mut |_, _| ControlFlow::Continue(()), sink)
        }
    }
    .unwrap();
    bytes
}

fn load(
    backend: &dyn Backend,
    params: &'static ParamSet,
    (kind, form): (KeyKind, KeyForm),
    bytes: &[u8],
) -> Arc<dyn LoadedKey> {
    let mut sink = backend.begin_key(params, kind, form).unwrap();
    // Pieces that end within words and rows.
    for piece in bytes.chunks(100_003) {
        sink.write(piece).unwrap();
    }
    sink.finish().unwrap()
}

/// Canonical random words.
fn random_words(params: &ParamSet, count: usize, rng: &mut Csprng) -> Vec<u8> {
    (0..count)
        .flat_map(|_| match params.modulus {
            ModulusKind::Torus32 => (rng.next_u64() as u32).to_le_bytes().to_vec(),
            ModulusKind::Goldilocks => (rng.next_u64() % goldilocks::P).to_le_bytes().to_vec(),
        })
        .collect()
}

/// Bootstraps random words with random test vectors: the results must agree whatever they mean.
fn bootstraps_agree(params: &'static ParamSet, log_lanes: u32, timing: Timing) {
    let mut rng = Csprng::from_seed([7; 32]);
    let key = ClientKey::generate(params, &mut rng);
    let rtl = RtlBackend::new(log_lanes, timing);
    let cpu = CpuBackend::new(Path::Exact);
    let keys = |form: KeyForm, rng: &mut Csprng| {
        [KeyKind::Bootstrapping, KeyKind::KeySwitching].map(|kind| {
            let bytes = key_bytes(&key, kind, form, rng);
            [&rtl as &dyn Backend, &cpu].map(|backend| load(backend, params, (kind, form), &bytes))
        })
    };
    for form in KeyForm::ALL {
        let [bootstrapping, switching] = keys(form, &mut rng);
        let sample = random_words(params, params.tlwe_words(), &mut rng);
        let test_vector = random_words(params, params.test_vector_words(), &mut rng);
        let cancel = CancelToken::new();
        let results = [0, 1].map(|at| {
            let backend: &dyn Backend = if at == 0 { &rtl } else { &cpu };
            let requester = Requester::from(&cancel);
            backend
                .bootstrap(
                    params,
                    &*bootstrapping[at],
                    &*switching[at],
                    &[&test_vector],
                    &sample,
                    requester,
                )
                .unwrap()
        });
        assert_eq!(results[0], results[1], "{} with {form:?}", params.name);
    }
    println!("{}: {:?}", params.name, rtl.rtl_statistics());
}

#[test]
fn bootstraps_are_those_of_the_exact_path() {
    if tests_are_skipped() {
        return;
    }
    bootstraps_agree(&STEPS32, 3, Timing::default());
    bootstraps_agree(&params::TINY, 3, Timing::default());
}

#[test]
fn linear_instructions_are_those_of_the_exact_path() {
    if tests_are_skipped() {
        return;
    }
    let mut rng = Csprng::from_seed([9; 32]);
    for params in [&STEPS32, &params::TINY] {
        let rtl = RtlBackend::new(3, Timing::default());
        let cpu = CpuBackend::new(Path::Exact);
        let a = random_words(params, params.tlwe_words(), &mut rng);
        let b = random_words(params, params.tlwe_words(), &mut rng);
        for v in [0, 1, -1, 3, -1234567, i32::MAX, i32::MIN] {
            let results = [&rtl as &dyn Backend, &cpu].map(|backend| {
                let mut sample = a.clone();
                backend.hom_add(params, &mut sample, &b);
                backend.hom_int_mult(params, &mut sample, v);
                backend.hom_sub(params, &mut sample, &b);
                sample
            });
            assert_eq!(results[0], results[1], "{} times {v}", params.name);
        }
    }
}
