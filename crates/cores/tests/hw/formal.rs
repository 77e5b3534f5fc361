//! The proofs of `hw/formal`, with both solvers.

use std::path::Path;
use std::process::Command;

use toroid_cores::tools::CHECKS;
use toroid_sim::toolchain::{python, tests_are_skipped};
use toroid_task::Progress;

#[test]
fn reductions_are_proved() {
    if tests_are_skipped() {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("hw/formal/run.py");
    let said = Command::new(python(CHECKS, &Progress::none()).unwrap())
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
