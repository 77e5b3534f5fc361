//! Which way rows of samples go where a drive has keys for both: by the documented times.
#![cfg(feature = "image")]
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use toroid_client::blob::NewBlob;
use toroid_client::columns::{EncryptedRows, MapRequest, Reason, Route, Way, WayTimes};
use toroid_client::prelude::*;
use toroid_drive::image::FormatOptions;
use toroid_isa::metadata::ScMetadata;
use toroid_isa::{KeyKind, VrNumber};
use toroid_rns::ring_set::{RING8, RING12, RING16, RingSet};
use toroid_task::Progress;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::params::MESSAGE16;

/// The place of the keys of a ring under a key id, with what a plan looks at: their metadata.
fn reserve_keys(drive: &Drive, key_id: u32, set: &RingSet) {
    let store = drive.session().store();
    for kind in [KeyKind::Ring, KeyKind::Conversion] {
        let vr = VrNumber::key(key_id, kind).unwrap();
        let sc = ScMetadata::new(vr, MESSAGE16.id, 4096).unwrap();
        let sc = sc.with_message(set.bits() as u8, false).unwrap();
        let blob = NewBlob {
            name: vr.to_string(),
            sc: Some(sc),
        };
        let id = drive.wait(store.create_blob(blob)).unwrap();
        drive.wait(store.reserve(id, sc)).unwrap();
    }
}

#[test]
fn rows_go_by_ciphertexts_from_the_break_even_on() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("drive.img");
    let options = FormatOptions {
        size: 64 << 20,
        swap: 16 << 20,
        ..FormatOptions::default()
    };
    Drive::create(&image, options).unwrap();
    let drive = Drive::open(image.as_path()).unwrap();
    let client = ClientKey::generate(&MESSAGE16, &mut Csprng::from_os().unwrap());
    let none = Progress::none();
    // The ring of a key id's keys, the bits of the numbers, and the fewest rows that go by a ciphertext: with keys of a larger ring than the numbers need
    // they are more.
    let cases = [
        (&RING8, 8, 68),
        (&RING12, 12, 163),
        (&RING16, 16, 232),
        (&RING16, 8, 376),
    ];
    for (key_id, (set, bits, break_even)) in (0..).zip(cases) {
        reserve_keys(&drive, key_id, set);
        let encoding = Encoding::new(bits, false).unwrap();
        let numbers: Vec<i64> = (0..1024).map(|row| row % (1 << bits)).collect();
        let rows = EncryptedRows::encrypt(&client, encoding, &numbers, &none).unwrap();
        let name = format!("x{key_id}");
        let created = drive.session().create_column(&name, key_id, &rows, &none);
        drive.wait(created).unwrap();
        let text = format!(
            ".reg x = cor:0\n.tv f unsigned in={bits} out={bits} = x ^ 5\nbootstrap f, x\nreturn x\n"
        );
        let program = toroid_isa::assemble_for(key_id, &text).unwrap();
        let plan = |rows: u64, way: Way| {
            let request = MapRequest {
                program: &program,
                inputs: &[("x", &name)],
                rows: Some(0..rows),
                kept: None,
                output: "o",
                replace: false,
                unit: None,
                way,
                form: None,
            };
            drive.wait(drive.session().plan_map(&request)).unwrap()
        };
        for (rows, route) in [
            (1, Route::Samples),
            (break_even - 1, Route::Samples),
            (break_even, Route::Ring(set)),
            (1024, Route::Ring(set)),
        ] {
            let plan = plan(rows, Way::Auto);
            assert_eq!((plan.route, &plan.reason), (route, &Reason::Times));
            let times = WayTimes::new(&plan, 1);
            assert_eq!(
                (times.ring, times.break_even),
                (Some(set), Some(break_even))
            );
            let why = times.why(&plan);
            assert!(
                why.contains(set.name) && why.contains(&format!("{break_even} rows")),
                "{why}"
            );
        }
        // Without a look at the drive's keys it is the smallest ring.
        let asked = WayTimes::new(&plan(1, Way::Samples), 1);
        assert_eq!(asked.ring, RingSet::for_bits(bits, false));
    }
    drive.close().unwrap();
}
