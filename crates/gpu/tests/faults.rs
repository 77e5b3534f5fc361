//! What goes wrong with drivers and devices, and who waits for whom. The devices are the process's, so the tests take turns.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use common::{KeyBytes, Work, backend, cancel_at, configure, driver, figure, options};
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::backend::{Backend, BackendError, LoadedKey};
use toroid_engine::{CancelToken, Requester};
use toroid_gpu::{DriverInfo, GpuBackend, GpuOptions};
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::{ParamSet, TINY, TINY_WOPBS, TINY32};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::KeyForm;

/// The devices, for one test at a time. What it sets is undone at its end.
struct Devices {
    driver: &'static Path,
    _turn: MutexGuard<'static, ()>,
}

const DEFAULTS: [(&str, i64); 5] = [
    ("devices", 1),
    ("capability", 90),
    ("driver", 13_000),
    ("memory", 4 << 30),
    ("fail_launch", 0),
];

fn devices() -> Option<Devices> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let driver = driver()?;
    let devices = Devices {
        driver,
        _turn: turn,
    };
    devices.reset();
    Some(devices)
}

impl Devices {
    fn set(&self, key: &str, value: i64) {
        configure(self.driver, key, value);
    }

    fn reset(&self) {
        for (key, value) in DEFAULTS {
            self.set(key, value);
        }
    }

    fn backend(&self) -> GpuBackend {
        backend(ArithmeticKind::Ntt, &options(self.driver))
    }

    /// What is said where no back end can be made.
    fn refusal(&self) -> String {
        let made = GpuBackend::new(ArithmeticKind::Ntt, &options(self.driver));
        made.err().unwrap().to_string()
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        self.reset();
    }
}

fn keys_of(params: &ParamSet, seed: u8) -> KeyBytes {
    let mut rng = Csprng::from_seed([seed; 32]);
    let client = ClientKey::generate(params, &mut rng);
    KeyBytes::generate(&client, KeyForm::Seeded, &mut rng)
}

fn work(params: &'static ParamSet, samples: usize) -> Work {
    Work::random(params, samples, 1, &mut Csprng::from_seed([5; 32]))
}

fn expected(keys: &KeyBytes, work: &Work) -> Vec<u8> {
    let cpu = CpuBackend::new(ArithmeticKind::Ntt);
    let loaded = keys.load(&cpu, work.params);
    work.run(&cpu, &loaded, &CancelToken::new()).unwrap()
}

#[test]
fn machines_that_cannot_compute_are_refused_with_the_reason() {
    let missing = GpuOptions {
        driver: Some("/nowhere/libcuda.so".into()),
        ..GpuOptions::default()
    };
    let refused = DriverInfo::ask(&missing).unwrap_err().to_string();
    assert_eq!(
        refused,
        "no CUDA driver: /nowhere/libcuda.so does not exist"
    );
    let Some(devices) = devices() else { return };
    devices.set("driver", 11_040);
    assert_eq!(
        devices.refusal(),
        "CUDA driver 11.4 is older than 12.0, which the kernels need"
    );
    devices.set("driver", 12_040);
    devices.set("capability", 75);
    assert_eq!(
        devices.refusal(),
        "no device of compute capability 8.0 or more (found processor, 7.5)"
    );
    devices.set("devices", 0);
    assert_eq!(
        devices.refusal(),
        "no device of compute capability 8.0 or more (the driver found none)"
    );
    devices.reset();
    devices.set("devices", 2);
    let info = DriverInfo::ask(&options(devices.driver)).unwrap();
    assert_eq!((info.version, info.devices.len()), (13_000, 2));
    assert_eq!(info.devices[1].capability, (9, 0));
}

/// Older devices have no clusters, and wait by flags.
#[test]
fn devices_without_clusters_give_the_same_results() {
    let Some(devices) = devices() else { return };
    devices.set("capability", 80);
    let keys = keys_of(&TINY, 1);
    let work = work(&TINY, 1);
    let gpu = backend(
        ArithmeticKind::Ntt,
        &GpuOptions {
            grouping: toroid_gpu::Grouping::Group(4),
            ..options(devices.driver)
        },
    );
    let loaded = keys.load(&gpu, &TINY);
    let found = work.run(&gpu, &loaded, &CancelToken::new()).unwrap();
    assert!(found == expected(&keys, &work));
}

/// A call fails with the device, and the next one finds it and its keys again.
#[test]
fn a_lost_device_is_made_anew_with_its_keys() {
    let Some(devices) = devices() else { return };
    let gpu = devices.backend();
    let keys = keys_of(&TINY, 2);
    let work = work(&TINY, 2);
    let loaded = keys.load(&gpu, &TINY);
    let cancel = CancelToken::new();
    let expected = expected(&keys, &work);
    assert!(work.run(&gpu, &loaded, &cancel).unwrap() == expected);
    for launch in [1, 2, 4] {
        devices.set("fail_launch", launch);
        let lost = work.run(&gpu, &loaded, &cancel).unwrap_err();
        let BackendError::Failed { reason } = lost else {
            panic!("{lost}")
        };
        assert!(
            reason.contains("cuLaunchKernelEx failed: CUDA_ERROR_LAUNCH_FAILED (719)"),
            "{reason}"
        );
        assert!(
            work.run(&gpu, &loaded, &cancel).unwrap() == expected,
            "{launch}"
        );
    }
    // While a key comes.
    devices.set("fail_launch", 1);
    let lost = keys.try_load(&gpu, &TINY).err().unwrap();
    assert!(matches!(lost, BackendError::Failed { .. }), "{lost}");
    let again = keys.load(&gpu, &TINY);
    assert!(work.run(&gpu, &again, &cancel).unwrap() == expected);
    assert!(work.run(&gpu, &loaded, &cancel).unwrap() == expected);
}

/// Both keys of a tenant need 0.7 MB and what a pass takes; three tenants have no room together.
#[test]
fn keys_make_room_for_those_that_are_used() {
    let Some(devices) = devices() else { return };
    devices.set("memory", 2 << 20);
    let gpu = devices.backend();
    let work = work(&TINY, 1);
    let cancel = CancelToken::new();
    let tenants: Vec<_> = (0..3)
        .map(|seed| {
            let keys = keys_of(&TINY, 10 + seed);
            let expected = expected(&keys, &work);
            (keys.load(&gpu, &TINY), expected)
        })
        .collect();
    let all: u64 = tenants
        .iter()
        .flat_map(|(keys, _)| keys)
        .map(|key| key.bytes())
        .sum();
    assert!(all > 2 << 20, "{all} bytes have room");
    for _ in 0..2 {
        for (keys, expected) in &tenants {
            assert!(work.run(&gpu, keys, &cancel).unwrap() == *expected);
        }
    }
    drop(tenants);
    // Nothing can make room where a key alone is too large.
    devices.set("memory", 1 << 18);
    let refused = keys_of(&TINY, 20).try_load(&gpu, &TINY).err().unwrap();
    let reason = refused.to_string();
    assert!(
        reason.contains("the device has") && reason.contains("GB are needed"),
        "{reason}"
    );
}

/// The keys of a tenant, 1.3 MB, and what all samples take at once, 1.9 MB, have no room together, and neither have those of two tenants.
#[test]
fn wide_functions_take_the_memory_that_there_is() {
    let Some(devices) = devices() else { return };
    let work = work(&TINY_WOPBS, 3);
    let cancel = CancelToken::new();
    let keys = [30, 31].map(|seed| keys_of(&TINY_WOPBS, seed));
    let expected = keys.each_ref().map(|keys| expected(keys, &work));
    let launches_of = |gpu: &GpuBackend, keys: &[Arc<dyn LoadedKey>; 2], expected: &Vec<u8>| {
        let before = figure(devices.driver, "rotations");
        assert!(work.run(gpu, keys, &cancel).unwrap() == *expected);
        figure(devices.driver, "rotations") - before
    };
    let gpu = devices.backend();
    let loaded = keys[0].load(&gpu, &TINY_WOPBS);
    let bytes: u64 = loaded.iter().map(|key| key.bytes()).sum();
    let together = launches_of(&gpu, &loaded, &expected[0]);
    drop((loaded, gpu));

    let room = 1_200_000;
    assert!(room < bytes);
    devices.set("memory", (bytes + room).cast_signed());
    let gpu = devices.backend();
    let loaded = keys.each_ref().map(|keys| keys.load(&gpu, &TINY_WOPBS));
    for (keys, expected) in loaded.iter().zip(&expected) {
        assert!(launches_of(&gpu, keys, expected) > 2 * together);
    }
    drop((loaded, gpu));

    devices.set("memory", (bytes + (1 << 18)).cast_signed());
    let gpu = devices.backend();
    let loaded = keys[0].load(&gpu, &TINY_WOPBS);
    let refused = work.run(&gpu, &loaded, &cancel).unwrap_err().to_string();
    assert!(refused.contains("the device has"), "{refused}");
}

#[test]
fn a_cancelled_wide_function_ends_and_the_device_serves_others() {
    let Some(devices) = devices() else { return };
    let gpu = devices.backend();
    let keys = keys_of(&TINY_WOPBS, 32);
    let loaded = keys.load(&gpu, &TINY_WOPBS);
    let many = work(&TINY_WOPBS, 12);
    let cancel = CancelToken::new();
    thread::scope(|scope| {
        let running = scope.spawn(|| many.run(&gpu, &loaded, &cancel));
        while gpu.statistics().batches == 0 {
            thread::yield_now();
        }
        cancel.cancel();
        assert_eq!(running.join().unwrap(), Err(BackendError::Cancelled));
    });
    devices.set("fail_launch", 9);
    let few = work(&TINY_WOPBS, 1);
    let lost = few.run(&gpu, &loaded, &CancelToken::new()).unwrap_err();
    assert!(matches!(lost, BackendError::Failed { .. }), "{lost}");
    let found = few.run(&gpu, &loaded, &CancelToken::new()).unwrap();
    assert!(found == expected(&keys, &few));
}

#[test]
fn a_cancelled_call_ends_and_the_device_serves_others() {
    let Some(devices) = devices() else { return };
    let gpu = devices.backend();
    let keys = keys_of(&TINY, 3);
    let loaded = keys.load(&gpu, &TINY);
    let many = work(&TINY, 12);
    let cancel = CancelToken::new();
    thread::scope(|scope| {
        let running = scope.spawn(|| many.run(&gpu, &loaded, &cancel));
        while gpu.statistics().batches == 0 {
            thread::yield_now();
        }
        cancel.cancel();
        assert_eq!(running.join().unwrap(), Err(BackendError::Cancelled));
    });
    let few = work(&TINY, 1);
    let found = few.run(&gpu, &loaded, &CancelToken::new()).unwrap();
    assert!(found == expected(&keys, &few));
}

/// A launch takes about a millisecond, so no more than two of them may be on their way when a call is cancelled, and none may follow.
#[test]
fn a_cancelled_call_launches_no_more_steps() {
    let Some(devices) = devices() else { return };
    let gpu = devices.backend();
    let loaded = keys_of(&TINY, 7).load(&gpu, &TINY);
    for (samples, launch) in [(1, 1), (1, 3), (5, 4)] {
        let token = CancelToken::new();
        cancel_at(devices.driver, launch, &token);
        assert_eq!(
            work(&TINY, samples).run(&gpu, &loaded, &token),
            Err(BackendError::Cancelled)
        );
        let launched = figure(devices.driver, "rotations");
        assert_eq!(launched, launch.cast_signed());
        let outstanding = figure(devices.driver, "outstanding");
        assert!(outstanding <= 2, "{outstanding} launches on their way");
    }
}

/// A process has one context for each device. That of a back end that ends, or fails, is the others' too.
#[test]
fn back_ends_on_one_device_do_not_disturb_each_other() {
    let Some(devices) = devices() else { return };
    let work = work(&TINY, 2);
    let cancel = CancelToken::new();
    let [first, second] = [30, 31].map(|seed| {
        let (gpu, keys) = (devices.backend(), keys_of(&TINY, seed));
        let loaded = keys.load(&gpu, &TINY);
        (gpu, loaded, expected(&keys, &work))
    });
    let runs = |(gpu, keys, expected): &(GpuBackend, _, _)| {
        work.run(gpu, keys, &cancel).unwrap() == *expected
    };
    // One works while others come and go.
    thread::scope(|scope| {
        let working = scope.spawn(|| (0..4).all(|_| runs(&first)));
        while !working.is_finished() {
            let gpu = devices.backend();
            let loaded = keys_of(&TINY, 32).load(&gpu, &TINY);
            assert!(work.run(&gpu, &loaded, &cancel).is_ok());
        }
        assert!(working.join().unwrap());
    });
    // Who finds the device lost makes it anew for both, once.
    devices.set("fail_launch", 2);
    assert!(work.run(&first.0, &first.1, &cancel).is_err());
    for _ in 0..2 {
        assert!(runs(&first));
        assert!(runs(&second));
    }
    // Now the other one, whose keys go before their back end does.
    devices.set("fail_launch", 2);
    assert!(work.run(&second.0, &second.1, &cancel).is_err());
    drop(second.1);
    drop(second.0);
    assert!(runs(&first));
    // One that begins while the device is lost.
    devices.set("fail_launch", 2);
    assert!(work.run(&first.0, &first.1, &cancel).is_err());
    let gpu = devices.backend();
    let loaded = keys_of(&TINY, 32).load(&gpu, &TINY);
    assert!(work.run(&gpu, &loaded, &cancel).is_ok());
    assert!(runs(&first));
}

/// One with a single sample waits for the pass that runs, not for all that another has asked for.
#[test]
fn tenants_take_turns() {
    let Some(devices) = devices() else { return };
    let gpu = backend(
        ArithmeticKind::Ntt,
        &GpuOptions {
            most: Some(2),
            ..options(devices.driver)
        },
    );
    let [many_keys, few_keys] = [4, 5].map(|seed| keys_of(&TINY32, seed).load(&gpu, &TINY32));
    let (many, few) = (work(&TINY32, 8), work(&TINY32, 1));
    let ended = Mutex::new(Vec::new());
    let cancel = CancelToken::new();
    let run = |tenant, work: &Work, keys| {
        let requester = Requester {
            tenant,
            ..Requester::from(&cancel)
        };
        work.run_as(&gpu, keys, requester).unwrap();
        ended.lock().unwrap().push(tenant);
    };
    thread::scope(|scope| {
        scope.spawn(|| run(1, &many, &many_keys));
        while gpu.statistics().batches == 0 {
            thread::yield_now();
        }
        scope.spawn(|| run(2, &few, &few_keys));
    });
    assert_eq!(*ended.lock().unwrap(), [2, 1]);
    assert_eq!(gpu.batch_hint(&TINY32), 2);
    assert_eq!(devices.backend().batch_hint(&TINY32), 512);
}

#[test]
fn several_devices_share_a_batch() {
    let Some(devices) = devices() else { return };
    devices.set("devices", 2);
    let gpu = devices.backend();
    assert_eq!(gpu.devices().count(), 2);
    let keys = keys_of(&TINY, 6);
    let work = work(&TINY, 5);
    let loaded = keys.load(&gpu, &TINY);
    let found = work.run(&gpu, &loaded, &CancelToken::new()).unwrap();
    assert!(found == expected(&keys, &work));
    assert_eq!(gpu.statistics().batches, 2);
}
