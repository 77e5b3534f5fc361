//! Files of the first version still work: keys, samples, programs, drive images, and the names of sets.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use common::Place;
use flate2::read::GzDecoder;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/first")
        .join(name)
}

/// A folder with the fixtures of a set, its images unpacked.
fn place(set: &str) -> Place {
    let place = Place::new();
    for entry in fs::read_dir(fixture(set)).unwrap() {
        let from = entry.unwrap().path();
        let name = from.file_name().unwrap().to_str().unwrap().to_owned();
        if let Some(image) = name.strip_suffix(".gz") {
            let mut image = File::create(place.path(image)).unwrap();
            io::copy(&mut GzDecoder::new(File::open(&from).unwrap()), &mut image).unwrap();
        } else {
            fs::copy(&from, place.path(&name)).unwrap();
            // Checkouts have their own modes.
            #[cfg(unix)]
            if name == "client.key" {
                use std::os::unix::fs::PermissionsExt;
                fs::set_permissions(place.path(&name), PermissionsExt::from_mode(0o600)).unwrap();
            }
        }
    }
    place
}

#[test]
fn images_compute_on_the_samples_that_they_hold() {
    for (set, image) in [
        ("tiny", "drive.img"),
        ("tiny", "drive-nvme.img"),
        ("tiny-exact", "drive.img"),
    ] {
        let place = place(set);
        let info = place.json(&format!("drive info {image}"));
        assert!(info.to_string().contains("cor:0:1"), "{set}: {info}");
        place.ok(&format!("get {image} cor:0:1 --out kept.ct"));
        place.fails(3, "decrypt kept.ct --key client.key", &["--max-failure"]);
        let kept = place.json("decrypt kept.ct --key client.key --max-failure 1");
        assert_eq!(kept["message"], 3, "{set}");
        place.ok(&format!(
            "run {image} cow:0:2 --write y.ct --out product.ct"
        ));
        let product = place.json("decrypt product.ct --key client.key --max-failure 1");
        assert_eq!(product["message"], -6, "{set}, {image}");
    }
}

#[test]
fn keys_and_samples_are_read_and_go_together() {
    for (set, name) in [("tiny", "tiny"), ("tiny-exact", "tiny-wopbs")] {
        let place = place(set);
        for key in ["client", "bootstrapping", "key-switching"] {
            let info = place.json(&format!("keys info {key}.key"));
            assert_eq!(info["params"], name, "{key}: {info}");
        }
        // On a drive of this version, beside a sample of this version.
        place.ok("drive format new.img --size 16MiB --swap 2MiB");
        let program = fixture("../../../../isa/examples/multiply.tasm");
        let put = format!(
            "put new.img bootstrapping.key key-switching.key {}",
            program.display()
        );
        place.ok(&put);
        place.ok("put new.img x.ct --as cor:0:1");
        place.ok("encrypt 2 --key client.key --out new.ct");
        place.ok("run new.img cow:0:2 --write new.ct --out product.ct");
        // How noisy a sample of the version before is, nobody states.
        place.fails(3, "decrypt product.ct --key client.key", &["probability"]);
        let product = place.json("decrypt product.ct --key client.key --max-failure 1");
        assert_eq!(product["message"], 6, "{set}");
    }
    for set in ["exact14", "exact16", "message7"] {
        let place = place(set);
        let sample = place.json("decrypt sample.ct --key client.key --max-failure 1");
        assert_eq!(sample["message"], 21, "{set}");
    }
}

#[test]
fn programs_are_read_in_their_binary_form() {
    let place = Place::new();
    let text = place.ok(&format!("disasm {}", fixture("multiply.prg").display()));
    fs::write(place.path("again.tasm"), &text).unwrap();
    place.ok("asm again.tasm --params tiny --out again.prg");
    assert_eq!(
        fs::read(place.path("again.prg")).unwrap(),
        fs::read(fixture("multiply.prg")).unwrap()
    );
}

#[test]
fn sets_are_found_by_the_names_that_they_had() {
    let place = Place::new();
    for (former, name) in [
        ("exact14", "message14"),
        ("exact16", "message16"),
        ("tiny-exact", "tiny-wopbs"),
    ] {
        assert_eq!(place.json(&format!("params {former}"))["name"], name);
        place.ok(&format!(
            "keys generate --unencrypted --params {former} --client-only --out {former}"
        ));
    }
    let demo = place.json("demo --params tiny-exact -x 3 -y -2 --exact");
    assert_eq!(
        (&demo["result"], &demo["arithmetic"]),
        (&(-6).into(), &"ntt".into())
    );
}
