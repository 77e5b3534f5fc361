//! The drive as a host sees it: what its commands do to the SSD and to virtual registers.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use toroid_drive::bridge::Effect;
use toroid_engine::backend::testing::{decode_sample, encode_sample};
use toroid_nvme::Status;
use toroid_tfhe::params::TINY;

/// Table 6, with x in a sample of type 3 and y in one of type 4.
fn table_6(bench: &Bench) {
    bench.upload_keys();
    bench.write_object(TV_LBA, sc(bench.tv, &bench.test_vector), &bench.test_vector);
    bench.write_object(
        PROGRAM_LBA,
        sc(vr("prg:0:0"), &bench.program),
        &bench.program,
    );
    let (x, y) = (message(3), message(1));
    assert_eq!(bench.write_sample(X_LBA, X, &x), Effect::Stored);
    assert_eq!(bench.write_sample(Y_LBA, Y, &y), Effect::Computed);

    let (result, metadata, effect) = bench.read_object(Y_LBA, TINY.tlwe_bytes());
    assert_eq!(
        effect,
        Effect::Stored,
        "a read of type 4 loads the register"
    );
    assert_eq!(decode_sample(&TINY, &result, 4), 3);
    let metadata = metadata.unwrap();
    assert_eq!(metadata.vr(), vr(Y));
    assert!(metadata.computed());
    assert_eq!(metadata.message_bits(), 4);
    let run = bench.drive.program_runs().pop().unwrap();
    assert_eq!(run.trigger, vr(Y));
    let close = |a: f32, b: f64| (f64::from(a) - b).abs() < 1e-3;
    assert!(close(
        metadata.log2_variance().unwrap(),
        run.variance.log2()
    ));
    assert!(close(metadata.log2_p_fail().unwrap(), run.log2_failure));
    assert!(run.log2_failure < 0.0);
    assert_eq!(bench.sample(Y), result);
    // Table 5 leaves ((x-y)^2)/4 where x was.
    assert_eq!(bench.sample(X), message(1));
    let statistics = bench.drive.statistics();
    assert_eq!((statistics.bootstraps, statistics.failed), (2, 0));
    assert_eq!(statistics.programs[&0].runs, 1);
}

#[test]
fn table_6_with_nvme_metadata() {
    table_6(&Bench::new(NVME));
}

#[test]
fn table_6_with_metadata_in_the_second_half() {
    table_6(&Bench::new(SECOND_HALF));
}

#[test]
fn plain_data_does_what_an_ssd_does() {
    for mode in MODES {
        let bench = Bench::new(mode);
        let data = vec![7; 3 * BLOCK];
        bench.write_plain(5, &data);
        assert_eq!(bench.read_plain(5, 3), data);
        assert_eq!(bench.read_plain(8, 1), vec![0; BLOCK]);
        assert!(bench.drive.engine().list().is_empty());
        let _ = (encode_sample(&TINY, 0, 4), Status::SUCCESS);
    }
}
