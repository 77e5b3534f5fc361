//! A client of drives on the network links no drive.

#![allow(clippy::unwrap_used)]

use std::process::Command;

fn tree(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--edges", "normal", "--prefix", "none"])
        .args(["--package", "toroid-client"])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn without_images_neither_drive_nor_engine_is_linked() {
    let names = ["toroid-drive ", "toroid-engine ", "io-uring "];
    let with = tree(&[]);
    let without = tree(&["--no-default-features"]);
    assert!(without.contains("toroid-nvme "));
    for name in names {
        assert!(with.contains(name), "{name} is not in {with}");
        assert!(!without.contains(name), "{name} is in {without}");
    }
}
