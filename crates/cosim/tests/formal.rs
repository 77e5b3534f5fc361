//! The proofs of `hw/formal`, with both solvers.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::path::Path;
use std::process::Command;

use toroid_cosim::toolchain::{Group, python, tests_are_skipped};

#[test]
fn reductions_are_proved() {
    if tests_are_skipped() {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("hw/formal/run.py");
    let said = Command::new(python(Group::Checks, &()).unwrap())
        .arg(script)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(
        said.status.success() && text.contains("all as expected"),
        "{text}{}",
        String::from_utf8_lossy(&said.stderr)
    );
    println!("{text}");
}
