//! A back end without cryptography, for tests of everything above the arithmetic.
//!
//! Samples are trivial encryptions: a mask of zeros and an encoded message as body. Linear operations are the real ones;
//! a bootstrap reads the test vector at the place that blind rotation would come to. Keys are counted, not used.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use toroid_isa::KeyKind;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::params::{ModulusKind, ParamSet};
use toroid_tfhe::seeded::KeyForm;

use super::{Backend, BackendError, BootstrapTask, KeySink, LoadedKey, results_of_tasks};
use crate::requester::Requester;

/// p = 2^64 - 2^32 + 1.
const GOLDILOCKS: u128 = 0xffff_ffff_0000_0001;

fn modulus(params: &ParamSet) -> u128 {
    match params.modulus {
        ModulusKind::Torus32 => 1 << 32,
        ModulusKind::Goldilocks => GOLDILOCKS,
    }
}

fn words(params: &ParamSet, bytes: &[u8]) -> Vec<u128> {
    let word = |chunk: &[u8]| {
        chunk
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u128::from(*byte))
    };
    bytes
        .chunks(params.modulus.word_bytes())
        .map(word)
        .collect()
}

fn put_words(params: &ParamSet, words: &[u128], bytes: &mut [u8]) {
    for (chunk, word) in bytes.chunks_mut(params.modulus.word_bytes()).zip(words) {
        let width = chunk.len();
        chunk.copy_from_slice(&word.to_le_bytes()[..width]);
    }
}

/// The torus element `numerator`/2^`bits` in the set's modulus.
fn fraction(params: &ParamSet, numerator: u64, bits: u32) -> u128 {
    ((u128::from(numerator) * modulus(params) + (1 << bits >> 1)) >> bits) % modulus(params)
}

/// The trivial sample of `message`, taken modulo 2^(`message_bits`+1), of the torus position message/2^(`message_bits`+1).
#[must_use]
pub fn encode_sample(params: &ParamSet, message: i64, message_bits: u32) -> Vec<u8> {
    let numerator = message.rem_euclid(2 << message_bits) as u64;
    let mut words = vec![0; params.lwe_words()];
    if let Some(body) = words.last_mut() {
        *body = fraction(params, numerator, message_bits + 1);
    }
    let mut bytes = vec![0; params.lwe_bytes()];
    put_words(params, &words, &mut bytes);
    bytes
}

/// The message of a trivial sample, below 2^(`message_bits`+1).
#[must_use]
pub fn decode_sample(params: &ParamSet, bytes: &[u8], message_bits: u32) -> u64 {
    let body = words(params, bytes).last().copied().unwrap_or_default();
    let q = modulus(params);
    (((body << (message_bits + 1)) + q / 2) / q % (2 << message_bits)) as u64
}

/// The test vector of the function `f` on messages of `message_bits` bits.
#[must_use]
pub fn test_vector(params: &ParamSet, message_bits: u32, f: impl Fn(u64) -> u64) -> Vec<u8> {
    let value = |message: u64| fraction(params, f(message) % (2 << message_bits), message_bits + 1);
    let words = if params.is_wide() {
        entries(params, message_bits, value)
    } else {
        blocks(params, message_bits, value)
    };
    let mut bytes = vec![0; params.test_vector_bytes()];
    put_words(params, &words, &mut bytes);
    bytes
}

/// The table of a wide function: every message owns the entries around its place, cyclically.
fn entries(params: &ParamSet, message_bits: u32, value: impl Fn(u64) -> u128) -> Vec<u128> {
    let p = params.message_bits;
    let messages: Vec<u128> = (0..1 << message_bits).map(value).collect();
    (0..1u64 << p)
        .map(|entry| ((entry << message_bits) + (1 << p >> 1)) >> p)
        .map(|message| messages[message as usize % messages.len()])
        .collect()
}

/// A trivial GLWE sample, in which every message owns a block of coefficients around its place.
fn blocks(params: &ParamSet, message_bits: u32, value: impl Fn(u64) -> u128) -> Vec<u128> {
    let degree = params.ring_degree;
    let block = (degree >> message_bits).max(1);
    let mut words = vec![0; params.glwe_words()];
    let mask = params.glwe_dimension * degree;
    for (index, word) in words[mask..].iter_mut().enumerate() {
        let message = (index + block / 2) / block;
        // The last half block belongs to message 0, whose lower half wraps round with the sign changed.
        let negate = message >> message_bits != 0;
        let message = if negate { 0 } else { message };
        let value = value(message as u64);
        *word = if negate {
            (modulus(params) - value) % modulus(params)
        } else {
            value
        };
    }
    words
}

/// The coefficient of a test vector that a bootstrap of a message of `input_bits` bits brings a body to.
fn read(params: &ParamSet, input_bits: u32, test_vector: &[u128], body: u128) -> u128 {
    let q = modulus(params);
    let place = |order: u128| ((body * order + q / 2) / q % order) as usize;
    if params.is_wide() {
        // Wide functions ignore the padding bit, and read each message's own entry.
        let message = place(2 << input_bits) % (1 << input_bits);
        return test_vector[message << (params.message_bits - input_bits)];
    }
    let polynomial = &test_vector[params.glwe_dimension * params.ring_degree..];
    let rotation = place(2 * params.ring_degree as u128);
    match polynomial.get(rotation) {
        Some(coefficient) => *coefficient,
        None => (q - polynomial[rotation - params.ring_degree]) % q,
    }
}

/// The back end.
#[derive(Debug)]
pub struct PlaintextBackend {
    bootstraps: AtomicU64,
    tasks: AtomicU64,
    batches: AtomicU64,
    batch_hint: usize,
}

impl Default for PlaintextBackend {
    fn default() -> PlaintextBackend {
        PlaintextBackend {
            bootstraps: AtomicU64::new(0),
            tasks: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            batch_hint: 1,
        }
    }
}

impl PlaintextBackend {
    /// A back end.
    #[must_use]
    pub fn new() -> PlaintextBackend {
        PlaintextBackend::default()
    }

    /// The same, which likes so many tasks at once.
    #[must_use]
    pub fn with_batch_hint(self, batch_hint: usize) -> PlaintextBackend {
        PlaintextBackend { batch_hint, ..self }
    }

    /// How many bootstraps it has done.
    #[must_use]
    pub fn bootstraps(&self) -> u64 {
        self.bootstraps.load(Ordering::Relaxed)
    }

    /// How many tasks, each of one sample, asked for them.
    #[must_use]
    pub fn tasks(&self) -> u64 {
        self.tasks.load(Ordering::Relaxed)
    }

    /// How many calls, each of a batch of tasks.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    fn zip(params: &ParamSet, dst: &mut [u8], src: &[u8], f: impl Fn(u128, u128) -> u128) {
        let combined: Vec<u128> = words(params, dst)
            .into_iter()
            .zip(words(params, src))
            .map(|(a, b)| f(a, b))
            .collect();
        put_words(params, &combined, dst);
    }
}

impl Backend for PlaintextBackend {
    fn name(&self) -> &'static str {
        "plaintext"
    }

    fn arithmetic(&self) -> ArithmeticKind {
        ArithmeticKind::Ntt
    }

    fn begin_key(
        &self,
        params: &ParamSet,
        kind: KeyKind,
        _: KeyForm,
    ) -> Result<Box<dyn KeySink>, BackendError> {
        Ok(Box::new(CountedKey {
            params: *params,
            kind,
            bytes: 0,
        }))
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
        let tasks = results_of_tasks(params, tasks, results)?;
        if requester.cancel.is_cancelled() {
            return Err(BackendError::Cancelled);
        }
        for (key, kind) in [
            (bootstrapping, KeyKind::Bootstrapping),
            (key_switching, KeyKind::KeySwitching),
        ] {
            if key.params().id != params.id
                || key.kind() != kind
                || !key.as_any().is::<CountedKey>()
            {
                return Err(BackendError::Failed {
                    reason: format!("not a {kind} of parameter set {}", params.name),
                });
            }
        }
        self.batches.fetch_add(1, Ordering::Relaxed);
        for (task, results) in tasks {
            self.tasks.fetch_add(1, Ordering::Relaxed);
            self.bootstraps
                .fetch_add(task.test_vectors.len() as u64, Ordering::Relaxed);
            let sample = words(params, task.sample);
            let body = sample.last().copied().unwrap_or_default();
            let results = results.chunks_exact_mut(params.lwe_bytes());
            for (test_vector, result) in task.test_vectors.iter().zip(results) {
                let mut sample = vec![0; params.lwe_words()];
                if let Some(word) = sample.last_mut() {
                    *word = read(params, task.input_bits, &words(params, test_vector), body);
                }
                put_words(params, &sample, result);
            }
        }
        Ok(())
    }

    fn batch_hint(&self, _: &ParamSet) -> usize {
        self.batch_hint
    }

    fn hom_add(&self, params: &ParamSet, dst: &mut [u8], src: &[u8]) {
        let q = modulus(params);
        Self::zip(params, dst, src, |a, b| (a + b) % q);
    }

    fn hom_sub(&self, params: &ParamSet, dst: &mut [u8], src: &[u8]) {
        let q = modulus(params);
        Self::zip(params, dst, src, |a, b| (a + q - b) % q);
    }

    fn hom_int_mult(&self, params: &ParamSet, dst: &mut [u8], v: i32) {
        let q = modulus(params);
        let factor = i128::from(v).rem_euclid(q as i128) as u128;
        let product: Vec<u128> = words(params, dst)
            .into_iter()
            .map(|a| a * factor % q)
            .collect();
        put_words(params, &product, dst);
    }
}

/// Whether a batch of bootstraps was done.
pub type Bootstrapped = Result<(), BackendError>;

/// A [`PlaintextBackend`] whose batches go through a closure that receives the requester and what does the batch. The closure
/// may wait before it does the batch, or fail.
pub struct InterceptedBackend<F> {
    plaintext: PlaintextBackend,
    bootstrap: F,
}

impl<F> InterceptedBackend<F>
where
    F: Fn(Requester<'_>, &mut dyn FnMut() -> Bootstrapped) -> Bootstrapped + Send + Sync,
{
    /// A back end with this closure.
    pub fn new(bootstrap: F) -> InterceptedBackend<F> {
        InterceptedBackend {
            plaintext: PlaintextBackend::new(),
            bootstrap,
        }
    }
}

impl<F> Backend for InterceptedBackend<F>
where
    F: Fn(Requester<'_>, &mut dyn FnMut() -> Bootstrapped) -> Bootstrapped + Send + Sync,
{
    fn name(&self) -> &'static str {
        "intercepted"
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
    ) -> Bootstrapped {
        (self.bootstrap)(requester, &mut || {
            self.plaintext.bootstrap_batch(
                params,
                bootstrapping,
                key_switching,
                tasks,
                results,
                requester,
            )
        })
    }

    fn batch_hint(&self, params: &ParamSet) -> usize {
        self.plaintext.batch_hint(params)
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

/// A key that keeps its length only, and is its own sink.
#[derive(Debug)]
struct CountedKey {
    params: ParamSet,
    kind: KeyKind,
    bytes: u64,
}

impl KeySink for CountedKey {
    fn write(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        // Eight bytes of ones are not canonical in the Goldilocks field.
        if bytes.len() >= 8 && bytes[..8] == [0xff; 8] {
            return Err(BackendError::MalformedKey {
                reason: format!("all ones at byte {}", self.bytes),
            });
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Arc<dyn LoadedKey>, BackendError> {
        Ok(Arc::from(self as Box<dyn LoadedKey>))
    }
}

impl LoadedKey for CountedKey {
    fn params(&self) -> &ParamSet {
        &self.params
    }

    fn kind(&self) -> KeyKind {
        self.kind
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
