//! The back end that takes recorded times, and the estimates from them.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use toroid_engine::backend::recorded::{RecordedBackend, RecordedTimes, RingTimes, SetTimes};
use toroid_engine::backend::testing::{
    PlaintextBackend, decode_sample, encode_sample, test_vector,
};
use toroid_engine::{
    Backend, BackendError, BootstrapTask, CancelToken, KeyForm, LoadedKey, Requester,
};
use toroid_rns::ring_set::{RING8, RING12, RING16, TINY_RING, TINY_RING9};
use toroid_tfhe::params::{MESSAGE16, ParamSet, TINY, TINY_WOPBS};

fn times(slots: usize, params: &ParamSet, bit_ms: f64, function_ms: f64) -> RecordedTimes {
    RecordedTimes {
        slots,
        hint: 6,
        sets: vec![SetTimes {
            set: params.name.to_owned(),
            machine: "none".to_owned(),
            date: "2026-11-23".to_owned(),
            bit_ms,
            function_ms,
        }],
        rings: vec![RingTimes {
            ring: TINY_RING.name.to_owned(),
            machine: "none".to_owned(),
            date: "2026-11-24".to_owned(),
            digits_s: 1.0,
            function_s: 0.25,
        }],
    }
}

#[test]
fn ciphertexts_and_samples_break_even() {
    for slots in [1, 2] {
        let times = times(slots, &TINY_WOPBS, 5.0, 20.0);
        let two = times.ciphertext(&TINY_RING, [2, 1]).unwrap();
        assert_eq!(two, ms(2750) / slots as u32);
        // A row takes 4·5 + 20 ms on one slot, a ciphertext 1.25 s.
        let rows = times.break_even(&TINY_WOPBS, &TINY_RING, (&[(4, 1)], &[1]));
        assert_eq!(rows.unwrap(), Some(32));
    }
    let slow = times(1, &TINY_WOPBS, 0.0, 1.0);
    let rows = slow.break_even(&TINY_WOPBS, &TINY_RING, (&[(4, 1)], &[1]));
    assert_eq!(rows.unwrap(), None, "a ciphertext has 256 rows");
    assert!(slow.ciphertext(&TINY_RING9, [1]).is_err());
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A recorded back end over the plaintext one, with its keys.
struct Device {
    backend: RecordedBackend,
    plaintext: Arc<PlaintextBackend>,
    keys: [Arc<dyn LoadedKey>; 2],
}

impl Device {
    fn new(times: RecordedTimes, params: &ParamSet) -> Device {
        let plaintext = Arc::new(PlaintextBackend::new());
        let backend = RecordedBackend::new(Arc::clone(&plaintext) as _, times);
        let keys = KINDS.map(|kind| {
            let sink = backend.begin_key(params, kind, KeyForm::Expanded);
            sink.unwrap().finish().unwrap()
        });
        Device {
            backend,
            plaintext,
            keys,
        }
    }

    /// Applies m + 1 to the messages 0, 1, 2, … of `bits` bits; gives the results.
    fn batch(
        &self,
        params: &'static ParamSet,
        count: u64,
        bits: u32,
        (tenant, cancel): (u64, &CancelToken),
    ) -> Result<Vec<u64>, BackendError> {
        let vector = test_vector(params, bits, |m| m + 1);
        let samples: Vec<Vec<u8>> = (0..count)
            .map(|m| encode_sample(params, m as i64 % (1 << bits), bits))
            .collect();
        let vectors = [&vector[..]];
        let task = |sample| BootstrapTask {
            test_vectors: &vectors,
            sample,
            input_bits: bits,
        };
        let tasks: Vec<_> = samples.iter().map(|sample| task(sample)).collect();
        let mut results = vec![0; tasks.len() * params.lwe_bytes()];
        let [bootstrapping, key_switching] = &self.keys;
        self.backend.bootstrap_batch(
            params,
            &**bootstrapping,
            &**key_switching,
            &tasks,
            &mut results,
            Requester {
                tenant,
                cancel,
                key_ids: None,
                progress: None,
            },
        )?;
        let results = results.chunks_exact(params.lwe_bytes());
        Ok(results
            .map(|sample| decode_sample(params, sample, bits))
            .collect())
    }
}

#[test]
fn estimates_are_those_of_the_times() {
    let times = times(2, &TINY_WOPBS, 3.0, 10.0);
    let task = |bits, functions| times.task(&TINY_WOPBS, bits, functions).unwrap();
    assert_eq!(task(4, 1), ms(22));
    assert_eq!(task(9, 3), ms(57));
    let estimate = |tasks: &[(u32, usize)]| {
        let tasks = tasks.iter().copied();
        times.estimate(&TINY_WOPBS, tasks).unwrap()
    };
    assert_eq!(estimate(&[]), Duration::ZERO);
    assert_eq!(estimate(&[(4, 1)]), ms(22));
    assert_eq!(estimate(&[(4, 1); 5]), ms(66));
    // The long one on one slot, the others on the other.
    assert_eq!(estimate(&[(9, 3), (4, 1), (4, 1)]), ms(57));

    let unknown = times.task(&TINY, 4, 1);
    let reason = "no times of tiny are recorded".to_owned();
    assert_eq!(unknown, Err(BackendError::Unsupported { reason }));
    for wrong in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
        let mut times = times.clone();
        times.sets[0].bit_ms = wrong;
        let refused = times.task(&TINY_WOPBS, 4, 1);
        assert!(
            matches!(refused, Err(BackendError::Failed { .. })),
            "{wrong}"
        );
    }
}

#[test]
fn the_documented_times_are_of_sets_and_can_be_kept() {
    let times = RecordedTimes::documented(2);
    for set in &times.sets {
        let params = ParamSet::by_name(&set.set).unwrap();
        assert!(times.task(params, params.message_bits, 1).unwrap() > Duration::ZERO);
    }
    // 16 bits and a function.
    let first = times.task(&MESSAGE16, 16, 1).unwrap();
    assert!((ms(218)..ms(222)).contains(&first), "{first:?}");
    let kept = serde_json::to_string(&times).unwrap();
    let found: RecordedTimes = serde_json::from_str(&kept).unwrap();
    assert_eq!(found, times);
    let unknown = kept.replace("\"hint\"", "\"hints\"");
    assert!(serde_json::from_str::<RecordedTimes>(&unknown).is_err());
}

/// What `docs/results/column-engine.md` says of each ring's tables on one thread, within 1 %.
#[test]
fn the_documented_times_of_rings_are_those_of_the_results() {
    let results = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/results/data/column-engine.json"
    );
    let results = std::fs::read_to_string(results).unwrap();
    let results: serde_json::Value = serde_json::from_str(&results).unwrap();
    let engines = results["engines"].as_array().unwrap();
    let times = RecordedTimes::documented(1);
    for set in [&RING8, &RING12, &RING16] {
        let mut found = engines.iter();
        let found = found.find(|found| found["bits"] == set.bits() && found["threads"] == 1);
        let found = found.unwrap();
        assert_eq!(found["values"], set.rows());
        let of = |what: &str| found[what].as_f64().unwrap();
        let (first, further) = (of("first_s"), of("further_s"));
        for functions in [1, 2, 3] {
            let expected = first + (functions - 1) as f64 * further;
            let time = times.ciphertext(set, [functions]).unwrap().as_secs_f64();
            assert!((time / expected - 1.0).abs() < 0.01, "{}: {time}", set.name);
        }
        let date = results["date"].as_str().unwrap();
        let own = times.rings.iter().find(|times| times.ring == set.name);
        assert!(date.starts_with(&own.unwrap().date), "{date}");
    }
}

#[test]
fn a_recorded_back_end_gives_right_results_in_no_less_than_its_time() {
    let device = Device::new(times(2, &TINY_WOPBS, 1.0, 2.0), &TINY_WOPBS);
    assert_eq!(device.backend.batch_hint(&TINY_WOPBS), 6);
    let cancel = CancelToken::new();
    for (count, bits) in [(0, 9), (1, 9), (5, 4)] {
        let start = Instant::now();
        let found = device.batch(&TINY_WOPBS, count, bits, (1, &cancel));
        let taken = start.elapsed();
        let expected = (0..count).map(|m| m + 1).collect();
        assert_eq!(found, Ok(expected));
        let tasks = (0..count).map(|_| (bits, 1));
        let estimate = device.backend.times().estimate(&TINY_WOPBS, tasks);
        assert!(taken >= estimate.unwrap(), "{taken:?} for {count} tasks");
    }
    assert_eq!(device.plaintext.tasks(), 6);
}

#[test]
fn a_set_without_times_is_refused_and_a_cancelled_task_ends() {
    let device = Device::new(times(1, &TINY, 0.0, 3_600_000.0), &TINY_WOPBS);
    let cancel = CancelToken::new();
    let refused = device.batch(&TINY_WOPBS, 1, 9, (1, &cancel));
    let reason = "no times of tiny-wopbs are recorded".to_owned();
    assert_eq!(refused, Err(BackendError::Unsupported { reason }));

    let device = Device::new(times(1, &TINY, 0.0, 3_600_000.0), &TINY);
    thread::scope(|scope| {
        let running = scope.spawn(|| device.batch(&TINY, 3, 4, (1, &cancel)));
        while device.plaintext.tasks() == 0 {
            thread::yield_now();
        }
        cancel.cancel();
        assert_eq!(running.join().unwrap(), Err(BackendError::Cancelled));
    });
    assert_eq!(device.plaintext.tasks(), 1);
}

#[test]
fn a_tenant_with_one_task_waits_for_one_of_a_batch() {
    // The batch would take 40 seconds.
    let device = Device::new(times(1, &TINY, 0.0, 20.0), &TINY);
    let (first, second) = (CancelToken::new(), CancelToken::new());
    thread::scope(|scope| {
        let batch = scope.spawn(|| device.batch(&TINY, 2000, 4, (1, &first)));
        while device.plaintext.tasks() == 0 {
            thread::yield_now();
        }
        assert_eq!(device.batch(&TINY, 1, 4, (2, &second)), Ok(vec![1]));
        assert!(!batch.is_finished());
        first.cancel();
        assert_eq!(batch.join().unwrap(), Err(BackendError::Cancelled));
    });
}

#[test]
fn a_machine_is_measured_in_a_few_bootstraps() {
    let device = Device::new(times(1, &TINY_WOPBS, 2.0, 5.0), &TINY_WOPBS);
    let [bootstrapping, key_switching] = &device.keys;
    let measured = SetTimes::measure(
        &device.backend,
        &TINY_WOPBS,
        (&**bootstrapping, &**key_switching),
        ("a device", "2026-11-23"),
        2,
    )
    .unwrap();
    assert_eq!(device.plaintext.tasks(), 4);
    assert_eq!(
        (&*measured.set, &*measured.machine, &*measured.date),
        ("tiny-wopbs", "a device", "2026-11-23")
    );
    // The parts are those of a task of 23 ms, or more beside other work.
    let task = 9.0 * measured.bit_ms + measured.function_ms;
    assert!(task >= 23.0 && measured.function_ms >= 0.0, "{measured:?}");

    let device = Device::new(times(1, &TINY, 0.0, 4.0), &TINY);
    let keys = (&*device.keys[0], &*device.keys[1]);
    let measured = SetTimes::measure(&device.backend, &TINY, keys, ("", ""), 0).unwrap();
    assert!(measured.bit_ms == 0.0 && measured.function_ms >= 4.0);
    assert_eq!(device.plaintext.tasks(), 1);
}
