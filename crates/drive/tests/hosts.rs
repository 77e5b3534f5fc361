//! Several hosts on one drive: who may touch what, and who waits for whom.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::*;
use futures::executor::block_on;
use futures::future::join_all;
use proptest::prelude::*;
use toroid_drive::bridge::Effect;
use toroid_drive::bridge::status::PROGRAM_REFUSED;
use toroid_drive::image::MetadataMode;
use toroid_drive::ssd::{MemSsd, Ssd, SsdError};
use toroid_drive::{DriveController, HostIdentity, KeyAccess};
use toroid_engine::backend::testing::decode_sample;
use toroid_isa::metadata::ScMetadata;
use toroid_isa::{assemble, encode};
use toroid_nvme::{Controller, DsmRange, Request, Response, Sqe, Status};
use toroid_task::CancelToken;
use toroid_tfhe::params::TINY;
use zerocopy::IntoBytes;

const DENIED: Status = Status::ACCESS_DENIED;

fn controller(bench: &Bench, name: &str, tenant: u64, key_ids: &[u32]) -> DriveController {
    bench.drive.controller_for(HostIdentity {
        name: name.to_owned(),
        tenant,
        keys: KeyAccess::Only(key_ids.iter().copied().collect()),
    })
}

fn submit(controller: &DriveController, request: Request) -> Response {
    block_on(controller.submit(request))
}

fn status(controller: &DriveController, request: Request) -> Status {
    let response = submit(controller, request);
    if !response.cqe.status().is_success() {
        assert!(response.data.is_empty() && response.metadata.is_empty());
    }
    response.cqe.status()
}

fn plain_write(bench: &Bench, lba: u64, blocks: usize) -> Request {
    Request {
        sqe: Sqe::write(CID, 1, lba, blocks as u16 - 1),
        data: vec![0x55; blocks * BLOCK],
        metadata: vec![
            0;
            if bench.mode == NVME {
                blocks * ScMetadata::SIZE
            } else {
                0
            }
        ],
    }
}

fn compare(bench: &Bench, lba: u64, blocks: usize) -> Request {
    let write = plain_write(bench, lba, blocks);
    Request {
        sqe: Sqe::compare(CID, 1, lba, blocks as u16 - 1),
        ..write
    }
}

fn zeroes(lba: u64, blocks: usize) -> Request {
    Request::new(Sqe::write_zeroes(CID, 1, lba, blocks as u16 - 1))
}

fn deallocate(ranges: &[(u64, u32)]) -> Request {
    let list: Vec<DsmRange> = ranges
        .iter()
        .map(|(slba, blocks)| DsmRange {
            slba: (*slba).into(),
            blocks: (*blocks).into(),
            ..DsmRange::default()
        })
        .collect();
    Request {
        data: list.as_bytes().to_vec(),
        ..Request::new(Sqe::deallocate(CID, 1, ranges.len() as u8 - 1))
    }
}

/// Every command on blocks of the namespace.
fn commands(bench: &Bench, lba: u64, blocks: usize) -> Vec<Request> {
    vec![
        read(lba, blocks * BLOCK),
        plain_write(bench, lba, blocks),
        compare(bench, lba, blocks),
        zeroes(lba, blocks),
        deallocate(&[(lba, blocks as u32)]),
        deallocate(&[(FREE_LBA + 100, 3), (lba, blocks as u32)]),
    ]
}

/// Submits what must be denied; nothing changes, and the host learns nothing of the other.
fn deny(bench: &Bench, controller: &DriveController, request: Request) {
    let before = bench.state();
    let sqe = request.sqe;
    assert_eq!(
        status(controller, request),
        DENIED,
        "{sqe} in {:?}",
        bench.mode
    );
    assert!(bench.state() == before, "{sqe} changed something");
    let error = &controller.errors()[0];
    assert_eq!((error.status, error.command), (DENIED, sqe));
    assert!(!error.reason.chars().any(|c| c.is_ascii_digit()));
}

const OBJECT_BLOCKS: u64 = 4;

/// A drive with an object of host b (key id 7), four blocks from block 8 of a cluster on.
fn with_an_object(mode: MetadataMode) -> (Bench, u64) {
    let bench = Bench::new(mode);
    let b = controller(&bench, "b", 2, &[7]);
    let lba = FREE_LBA + 8;
    let vector = &bench.test_vector[..OBJECT_BLOCKS as usize * BLOCK];
    let sc = sc(vr("tv:7:0"), &bench.test_vector);
    for request in bench.requests(lba, sc, vector) {
        let response = submit(&b, request);
        assert!(response.cqe.status().is_success());
    }
    (bench, lba)
}

#[test]
fn blocks_of_another_key_id_are_out_of_reach() {
    for mode in MODES {
        let (bench, lba) = with_an_object(mode);
        let first = controller(&bench, "a", 1, &[0, 3]);
        let check = |bench: &Bench, a: &DriveController| {
            // Inside, all of it, over its beginning, over its end, and all around it.
            for (offset, blocks) in [(0i64, 1), (0, 4), (-2, 3), (3, 1), (3, 5), (-4, 12), (1, 2)] {
                let lba = lba.wrapping_add_signed(offset);
                for request in commands(bench, lba, blocks) {
                    deny(bench, a, request);
                }
            }
            for request in bench.requests(lba + 3, sc(vr(X), &message(1)), &message(1)) {
                deny(bench, a, request);
            }
            // Beside it everything is open.
            for (offset, blocks) in [(-4i64, 4), (4, 4)] {
                let lba = lba.wrapping_add_signed(offset);
                for request in commands(bench, lba, blocks) {
                    let sqe = request.sqe;
                    let status = status(a, request);
                    assert!(status != DENIED, "{sqe}");
                }
            }
        };
        check(&bench, &first);
        drop(first);
        // Metadata is read from the SSD again.
        let bench = bench.reopen();
        let a = controller(&bench, "a", 1, &[0, 3]);
        check(&bench, &a);
        // Its own host, and one without bounds, still have it.
        let b = controller(&bench, "b", 2, &[7]);
        assert!(status(&b, read(lba, 4 * BLOCK)).is_success());
        let all = bench.drive.controller_for(HostIdentity {
            name: "admin".into(),
            tenant: 9,
            keys: KeyAccess::All,
        });
        assert!(status(&all, read(lba, 4 * BLOCK)).is_success());
    }
}

#[test]
fn registrations_of_another_key_id_stay() {
    let (bench, lba) = with_an_object(SECOND_HALF);
    let bench = bench.reopen();
    let a = controller(&bench, "a", 1, &[0]);
    for request in commands(&bench, lba + BLOCKS, 1) {
        deny(&bench, &a, request);
    }
    for request in commands(&bench, lba + BLOCKS - 3, 8) {
        deny(&bench, &a, request);
    }
    // From the data into the metadata, and over both.
    let data_end = BLOCKS - 2;
    deny(&bench, &a, deallocate(&[(data_end, (2 + lba + 1) as u32)]));
    let own = |start: u64, blocks: u32| {
        let sc = sc(vr("tv:0:0"), &bench.test_vector).with_blocks(blocks);
        second_half(start, &sc.to_bytes())
    };
    // In its place, within it, and reaching into it.
    for (start, blocks) in [(lba, 1), (lba + 1, 1), (lba + 3, 2), (lba - 2, 3)] {
        deny(&bench, &a, own(start, blocks));
    }
    deny(&bench, &a, second_half(lba, &[0; 64]));
    let foreign = sc(vr("tv:7:1"), &bench.test_vector).with_blocks(1);
    deny(&bench, &a, second_half(FREE_LBA + 100, &foreign.to_bytes()));
    // Beside it, and in blocks of the second half that are nobody's.
    for (start, blocks) in [(lba - 2, 2), (lba + 4, 2)] {
        assert!(status(&a, own(start, blocks)).is_success());
    }
    assert!(status(&a, read(lba + 1 + BLOCKS, BLOCK)).is_success());
    let b = controller(&bench, "b", 2, &[7]);
    deny(&bench, &b, read(lba - 2 + BLOCKS, BLOCK));
    deny(&bench, &b, read(lba - 1, BLOCK));
    // What its owner gives up is free.
    assert!(status(&b, second_half(lba, &[0; 64])).is_success());
    assert!(status(&a, own(lba, 2)).is_success());
    deny(&bench, &b, read(lba, BLOCK));
}

#[test]
fn a_claim_holds_behind_a_run_that_begins_within_it() {
    let bench = Bench::new(SECOND_HALF);
    let (a, b) = (
        controller(&bench, "a", 1, &[0]),
        controller(&bench, "b", 2, &[1]),
    );
    let claim = |lba: u64, blocks: u32| {
        let sc = sc(vr("tv:0:0"), &bench.test_vector).with_blocks(blocks);
        assert!(status(&a, second_half(lba, &sc.to_bytes())).is_success());
    };
    claim(13, 2);
    claim(12, 5);
    deny(&bench, &b, read(15, BLOCK));
    deny(&bench, &b, plain_write(&bench, 16, 1));
    assert!(status(&a, read(15, BLOCK)).is_success());
    assert!(status(&b, read(17, BLOCK)).is_success());
}

#[test]
fn a_damaged_registration_may_be_anyones() {
    let (bench, lba) = with_an_object(SECOND_HALF);
    let bench = bench.reopen();
    let mut block = bench.read_plain(lba + BLOCKS, 1);
    block[9] ^= 1;
    bench
        .drive
        .image()
        .write_blocks(lba + BLOCKS, &block, &[], false)
        .unwrap();
    let a = controller(&bench, "a", 1, &[0]);
    deny(&bench, &a, read(lba + BLOCKS, BLOCK));
    deny(&bench, &a, zeroes(lba + 2, 1));
    assert!(status(&a, read(lba - 1, BLOCK)).is_success());
}

#[test]
fn a_host_computes_with_its_own_keys_only() {
    for mode in MODES {
        let bench = Bench::new(mode);
        let (a, b) = (
            controller(&bench, "a", 1, &[0]),
            controller(&bench, "b", 2, &[7]),
        );
        let write = |controller: &DriveController, lba, register: &str, bytes: &[u8]| {
            let mut last = Status::SUCCESS;
            for request in bench.requests(lba, sc(vr(register), bytes), bytes) {
                last = status(controller, request);
                if !last.is_success() {
                    break;
                }
            }
            last
        };
        assert!(write(&b, 0, "cor:7:1", &message(5)).is_success());
        // With another's key id.
        assert_eq!(write(&a, CLUSTER, "cor:7:1", &message(5)), DENIED);
        assert_eq!(write(&a, CLUSTER, "prg:7:0", &bench.program), DENIED);
        // With a program of its own that takes another's sample.
        let thief = encode(&assemble("return cor:7:1").unwrap().program);
        assert!(write(&a, 2 * CLUSTER, "prg:0:0", &thief).is_success());
        let before = bench.state();
        let trigger = bench.requests(3 * CLUSTER, sc(vr(Y), &message(1)), &message(1));
        let statuses: Vec<Status> = trigger
            .into_iter()
            .map(|request| status(&a, request))
            .collect();
        assert_eq!(statuses.last(), Some(&PROGRAM_REFUSED));
        assert_eq!(bench.state().0, before.0);
        let honest = encode(
            &assemble("homadd cow:0:2, cow:0:2\nreturn cow:0:2")
                .unwrap()
                .program,
        );
        assert!(write(&a, 2 * CLUSTER, "prg:0:0", &honest).is_success());
        assert!(write(&a, 3 * CLUSTER, Y, &message(3)).is_success());
        let result = submit(&a, read(3 * CLUSTER, BLOCK)).data;
        assert_eq!(decode_sample(&TINY, &result[..TINY.lwe_bytes()], 4), 6);

        let (of_a, of_b) = (a.errors(), b.errors());
        assert!(of_b.is_empty(), "{of_b:?}");
        let counts: Vec<u64> = of_a.iter().map(|error| error.count).collect();
        assert_eq!(counts, (1..=of_a.len() as u64).rev().collect::<Vec<_>>());
        assert_eq!(bench.drive.errors().len(), of_a.len());
        let hosts = bench.drive.statistics().hosts;
        assert_eq!((hosts["a"].programs, hosts["a"].program_failures), (1, 1));
        assert_eq!((hosts["b"].programs, hosts["b"].failed), (0, 0));
        assert_eq!(a.health().writes, hosts["a"].writes);
        assert!(bench.drive.health().writes > a.health().writes);
        // Under its name a host finds its books again.
        let again = controller(&bench, "a", 1, &[0]);
        assert_eq!(again.errors().len(), of_a.len());
    }
}

/// What a host does to its part of a small piece of the namespace.
#[derive(Clone, Debug)]
enum Act {
    Object(u64),
    Plain(u64, usize),
    Read(u64, usize),
    Zero(u64, usize),
    Register(u64, u32),
    Unregister(u64),
    Deallocate(u64, u32, u64, u32),
    Reopen,
}

fn act() -> impl Strategy<Value = Act> {
    let lba = || 0u64..24;
    prop_oneof![
        4 => lba().prop_map(Act::Object),
        3 => (lba(), 1usize..6).prop_map(|(lba, blocks)| Act::Plain(lba, blocks)),
        3 => (lba(), 1usize..6).prop_map(|(lba, blocks)| Act::Read(lba, blocks)),
        1 => (lba(), 1usize..6).prop_map(|(lba, blocks)| Act::Zero(lba, blocks)),
        2 => (lba(), 1u32..6).prop_map(|(lba, blocks)| Act::Register(lba, blocks)),
        1 => lba().prop_map(Act::Unregister),
        1 => (lba(), 1u32..4, lba(), 1u32..4).prop_map(|(a, n, b, m)| Act::Deallocate(a, n, b, m)),
        1 => Just(Act::Reopen),
    ]
}

/// A block of each host has the host's own byte in it wherever its object is.
fn content(key_id: u32, blocks: usize) -> Vec<u8> {
    vec![0x10 + key_id as u8; blocks * BLOCK]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever two hosts do, what one writes as its own stays until it gives it up, and the other never reads it.
    #[test]
    fn hosts_do_not_reach_each_others_objects(acts in prop::collection::vec((0u32..2, act()), 1..60), second in any::<bool>()) {
        let mode = if second { SECOND_HALF } else { NVME };
        let mut bench = Bench::new(mode);
        let make = |bench: &Bench| [controller(bench, "a", 1, &[0]), controller(bench, "b", 2, &[1])];
        let mut hosts = make(&bench);
        // Whose the blocks are: by block, or by the runs that the second half registers.
        let mut owners: Vec<Option<u32>> = vec![None; 40];
        let mut runs: BTreeMap<u64, (u64, u32)> = BTreeMap::new();
        let object = |key_id: u32, blocks: u32| {
            ScMetadata::new(vr(&format!("tv:{key_id}:0")), TINY.id, TINY.test_vector_bytes() as u64)
                .unwrap()
                .with_blocks(blocks)
        };
        for (key_id, act) in acts {
            let controller = &hosts[key_id as usize];
            let foreign = |owners: &[Option<u32>], runs: &BTreeMap<u64, (u64, u32)>, lba: u64, blocks: u64| {
                let blocks = lba..lba + blocks;
                blocks.clone().any(|block| owners[block as usize].is_some_and(|owner| owner != key_id))
                    || runs.iter().any(|(start, (length, owner))| {
                        *owner != key_id && *start < blocks.end && blocks.start < start + length
                    })
            };
            let expected = |lba, blocks| foreign(&owners, &runs, lba, blocks);
            let give_up = |owners: &mut Vec<Option<u32>>, lba: u64, blocks: u64| {
                owners[lba as usize..(lba + blocks) as usize].fill(None);
            };
            match act {
                Act::Object(lba) => {
                    let (sc, denied) = (object(key_id, 2), expected(lba, 2));
                    if mode == SECOND_HALF {
                        let registered = status(controller, second_half(lba, &sc.to_bytes()));
                        prop_assert_eq!(registered == DENIED, denied);
                        if !registered.is_success() {
                            continue;
                        }
                        runs.insert(lba, (2, key_id));
                    }
                    let written = status(controller, Request {
                        sqe: Sqe::write(CID, 1, lba, 1),
                        data: content(key_id, 2),
                        metadata: bench.metadata(sc.with_blocks(0), 2),
                    });
                    prop_assert_eq!(written == DENIED, denied);
                    if mode == NVME && written.is_success() {
                        owners[lba as usize..lba as usize + 2].fill(Some(key_id));
                    }
                }
                Act::Register(lba, blocks) if mode == SECOND_HALF => {
                    let denied = expected(lba, blocks.into());
                    let registered = status(controller, second_half(lba, &object(key_id, blocks).to_bytes()));
                    prop_assert_eq!(registered == DENIED, denied);
                    if registered.is_success() {
                        runs.insert(lba, (blocks.into(), key_id));
                    }
                }
                Act::Plain(lba, blocks) => {
                    let written = status(controller, plain_write(&bench, lba, blocks));
                    prop_assert_eq!(written == DENIED, expected(lba, blocks as u64));
                    if written.is_success() {
                        give_up(&mut owners, lba, blocks as u64);
                    }
                }
                Act::Read(lba, blocks) => {
                    let response = submit(controller, read(lba, blocks * BLOCK));
                    prop_assert_eq!(response.cqe.status() == DENIED, expected(lba, blocks as u64));
                }
                Act::Zero(lba, blocks) => {
                    let done = status(controller, zeroes(lba, blocks));
                    prop_assert_eq!(done == DENIED, expected(lba, blocks as u64));
                    if done.is_success() {
                        give_up(&mut owners, lba, blocks as u64);
                    }
                }
                Act::Deallocate(a, n, b, m) => {
                    let done = status(controller, deallocate(&[(a, n), (b, m)]));
                    prop_assert_eq!(done == DENIED, expected(a, n.into()) || expected(b, m.into()));
                    if done.is_success() {
                        give_up(&mut owners, a, n.into());
                        give_up(&mut owners, b, m.into());
                    }
                }
                Act::Unregister(lba) if mode == SECOND_HALF => {
                    let done = status(controller, second_half(lba, &[0; 64]));
                    let denied = runs.get(&lba).is_some_and(|(_, owner)| *owner != key_id);
                    prop_assert_eq!(done == DENIED, denied);
                    if done.is_success() {
                        runs.remove(&lba);
                    }
                }
                Act::Reopen => {
                    drop(hosts);
                    bench = bench.reopen();
                    hosts = make(&bench);
                }
                Act::Register(..) | Act::Unregister(..) => {}
            }
        }
    }
}

#[test]
fn hosts_side_by_side_never_see_each_others_bytes() {
    for mode in MODES {
        let bench = Bench::new(mode);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            // Each takes the same blocks for its own and gives them up again; the other must never read its bytes.
            for key_id in 0..2u32 {
                let (bench, stop) = (&bench, &stop);
                let me = controller(bench, &format!("host {key_id}"), key_id.into(), &[key_id]);
                scope.spawn(move || {
                    let sc = sc(vr(&format!("tv:{key_id}:0")), &bench.test_vector);
                    let bytes = content(key_id, 2);
                    let mut taken = 0;
                    for _ in 0..400 {
                        let requests = bench.requests(FREE_LBA, sc, &bytes);
                        let all = requests
                            .into_iter()
                            .all(|request| status(&me, request).is_success());
                        let response = submit(&me, read(FREE_LBA, 2 * BLOCK));
                        let other = 0x10 + (1 - key_id) as u8;
                        assert!(!response.data.contains(&other), "{mode:?}");
                        if all {
                            taken += 1;
                            assert_eq!(response.data, bytes);
                            // Cleared before it is given up.
                            assert!(status(&me, zeroes(FREE_LBA, 2)).is_success());
                            if mode == SECOND_HALF {
                                assert!(status(&me, second_half(FREE_LBA, &[0; 64])).is_success());
                            }
                        }
                    }
                    stop.store(true, Ordering::SeqCst);
                    assert!(taken > 0);
                });
            }
        });
    }
}

#[test]
fn an_abort_ends_a_command_of_its_host() {
    let memory = memory_ssd();
    let slow = Arc::new(SlowSsd::new(memory.clone(), swap_start(NVME)));
    let bench = Bench::on(NVME, slow.clone(), memory, |config| {
        config.paged_bytes = 4 * 4096;
    });
    let a = controller(&bench, "a", 1, &[0]);
    for i in 3..8 {
        bench.write_sample(i, &format!("cor:0:{i}"), &message(1));
    }
    let source: String = (3..8)
        .map(|i| format!("homadd cor:0:{i}, cow:0:2\nhomadd cow:0:2, cor:0:{i}\n"))
        .collect();
    let program = encode(&assemble(&(source + "return cow:0:2")).unwrap().program);
    bench.write_object(PROGRAM_LBA, sc(vr("prg:0:0"), &program), &program);
    // The run hangs in its paging.
    slow.close();
    let y = bench.requests(Y_LBA, sc(vr(Y), &message(1)), &message(1));
    let (abort, other) = (CancelToken::new(), CancelToken::new());
    let pending = a.submit_abortable(y[0].clone(), abort.clone());
    // The other command must not be the one that hangs.
    wait_until(|| bench.drive.engine().runs().1 > 0);
    let waiting = bench.drive.submit_abortable(y[0].clone(), other.clone());
    wait_until(|| bench.drive.engine().runs().1 > 0);
    other.cancel();
    assert_eq!(block_on(waiting).cqe.status(), Status::ABORT_REQUESTED);
    abort.cancel();
    slow.open();
    assert_eq!(block_on(pending).cqe.status(), Status::ABORT_REQUESTED);
    assert_eq!(a.errors().len(), 1);
}

#[test]
fn programs_of_several_hosts_run_side_by_side() {
    let bench = Bench::new(NVME);
    let mut requests = Vec::new();
    let hosts: Vec<DriveController> = (0..4)
        .map(|i| controller(&bench, &format!("h{i}"), u64::from(i), &[i]))
        .collect();
    for (key_id, controller) in (0..4u64).zip(&hosts) {
        let program = format!("homadd cow:{key_id}:2, cor:{key_id}:1\nreturn cow:{key_id}:2");
        let program = encode(&assemble(&program).unwrap().program);
        let base = key_id * 2 * CLUSTER;
        for (offset, register, bytes) in [(0, "cor", message(key_id as i64)), (1, "prg", program)] {
            let data_id = u64::from(register == "cor");
            let register = vr(&format!("{register}:{key_id}:{data_id}"));
            for request in bench.requests(base + offset, sc(register, &bytes), &bytes) {
                assert!(status(controller, request).is_success());
            }
        }
        for i in 0..50 {
            let trigger = sc(vr(&format!("cow:{key_id}:2")), &message(i % 4));
            let lba = base + 8 + i as u64;
            requests.push((
                key_id,
                bench.requests(lba, trigger, &message(i % 4)).pop().unwrap(),
            ));
        }
    }
    let pending = requests
        .into_iter()
        .map(|(key_id, request)| hosts[key_id as usize].submit(request));
    let responses = block_on(join_all(pending));
    assert!(
        responses
            .iter()
            .all(|response| Effect::of(&response.cqe) == Some(Effect::Computed))
    );
    for (key_id, controller) in (0..4u64).zip(&hosts) {
        for i in 0..50 {
            let lba = key_id * 2 * CLUSTER + 8 + i;
            let data = submit(controller, read(lba, BLOCK)).data;
            assert_eq!(
                decode_sample(&TINY, &data[..TINY.lwe_bytes()], 4),
                i % 4 + key_id
            );
        }
        assert_eq!(controller.statistics().programs, 50);
    }
    let statistics = bench.drive.statistics();
    assert_eq!(
        (statistics.waiting_programs, statistics.waiting_bootstraps),
        (0, 0)
    );
}

/// Ends other threads, also where a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

#[test]
fn a_read_beside_a_write_leaves_the_new_sample_in_the_register() {
    for mode in MODES {
        let bench = Bench::new(mode);
        bench.write_sample(X_LBA, X, &message(0));
        let reads = AtomicBool::new(true);
        thread::scope(|scope| {
            let _stop = Stop(&reads);
            for _ in 0..2 {
                scope.spawn(|| {
                    while reads.load(Ordering::SeqCst) {
                        bench.succeed(read(X_LBA, BLOCK));
                    }
                });
            }
            for i in 1..300 {
                let write = bench.requests(X_LBA, sc(vr(X), &message(i % 16)), &message(i % 16));
                bench.succeed(write.last().unwrap().clone());
                assert_eq!(bench.sample(X), message(i % 16));
            }
        });
        assert_eq!(bench.sample(X), message(299 % 16));
        assert_eq!(bench.drive.statistics().failed, 0);
    }
}

/// A medium that sets the first block to zero and fails, once it is told to.
struct HalfZeroes {
    inner: Arc<MemSsd>,
    fails: AtomicBool,
}

impl Ssd for HalfZeroes {
    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn read(&self, lba: u64, buf: &mut [u8]) -> Result<(), SsdError> {
        self.inner.read(lba, buf)
    }
    fn write(&self, lba: u64, data: &[u8], fua: bool) -> Result<(), SsdError> {
        self.inner.write(lba, data, fua)
    }
    fn flush(&self) -> Result<(), SsdError> {
        self.inner.flush()
    }
    fn write_zeroes(&self, lba: u64, count: u64) -> Result<(), SsdError> {
        if self.fails.load(Ordering::SeqCst) {
            self.inner.write_zeroes(lba, 1)?;
            let source = std::io::Error::other("worn");
            return Err(SsdError::Write { lba, source });
        }
        self.inner.write_zeroes(lba, count)
    }
}

#[test]
fn registrations_that_a_failed_command_took_are_gone_from_memory() {
    let memory = memory_ssd();
    let ssd = Arc::new(HalfZeroes {
        inner: memory.clone(),
        fails: AtomicBool::new(false),
    });
    let bench = Bench::on(SECOND_HALF, ssd.clone(), memory, |_| ());
    for lba in [X_LBA, X_LBA + 1] {
        bench.write_sample(lba, X, &message(3));
    }
    ssd.fails.store(true, Ordering::SeqCst);
    let failed = bench.fail(zeroes(X_LBA + BLOCKS, 2));
    assert_eq!(failed, Status::WRITE_FAULT);
    ssd.fails.store(false, Ordering::SeqCst);
    // The SSD took the first, the drive gave it back.
    let effect = |lba| Effect::of(&bench.succeed(read(lba, BLOCK)).cqe).unwrap();
    assert_eq!(
        (effect(X_LBA), effect(X_LBA + 1)),
        (Effect::Stored, Effect::Stored)
    );
    let health = bench.drive.health();
    assert_eq!((health.media_errors, health.read_only), (1, false));
    // Of a deallocation that fails there is no way back: the first went, the second stayed, and the drive says the same as the SSD.
    ssd.fails.store(true, Ordering::SeqCst);
    let failed = bench.fail(deallocate(&[(X_LBA + BLOCKS, 2)]));
    assert_eq!(failed, Status::WRITE_FAULT);
    ssd.fails.store(false, Ordering::SeqCst);
    assert_eq!(
        (effect(X_LBA), effect(X_LBA + 1)),
        (Effect::None, Effect::Stored)
    );
    bench.ssd.fail_flush();
    assert!(
        !bench
            .submit(Request::new(Sqe::flush(CID, 1)))
            .cqe
            .status()
            .is_success()
    );
    assert!(bench.drive.health().read_only);
}
