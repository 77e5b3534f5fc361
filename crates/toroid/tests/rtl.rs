//! The engine of `hw/` in the simulator, as the back end of `toroid demo` and `toroid run`.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::fs;

use common::Place;
use serde_json::Value;
use toroid_cores::engine::{Shape, formula};
use toroid_sim::toolchain::tests_are_skipped;
use toroid_tfhe::params::TINY;

/// Checks what a program with two bootstraps and these linear instructions tells of its cycles.
fn check_cycles(rtl: &Value, linear: &[(&str, u64)]) {
    assert_eq!(rtl["lanes"], 8);
    assert_eq!(rtl["lwe_dimension"], TINY.lwe_dimension);
    assert_eq!(rtl["ring_degree"], TINY.ring_degree);
    let clock = rtl["clock_mhz"].as_f64().unwrap();
    let instructions = rtl["instructions"].as_object().unwrap();
    assert_eq!(instructions.len(), 1 + linear.len(), "{instructions:?}");
    let cycles = |kind: &str, count: u64| {
        let told = &instructions[kind];
        assert_eq!(told["count"], count, "{kind}");
        let each = told["cycles"].as_u64().unwrap() as f64 / count as f64;
        let ms = told["mean_ms"].as_f64().unwrap();
        assert!((ms * clock * 1e3 - each).abs() < 1e-6 * each, "{kind}");
        each
    };
    // But for the memory's latency, and what begins before its turn.
    let expected = formula::bootstrap(Shape::new(&TINY, 3).unwrap()).total() as f64;
    let bootstrap = cycles("bootstrap", 2);
    assert!(
        (bootstrap / expected - 1.0).abs() < 0.01,
        "{bootstrap}, {expected}"
    );
    for (kind, count) in linear {
        let each = cycles(kind, *count);
        assert!(each > 0.0 && each < bootstrap / 10.0, "{kind}: {each}");
    }
}

#[test]
fn the_demo_runs_on_the_simulated_engine() {
    if tests_are_skipped() {
        return;
    }
    let place = Place::new();
    let line = "demo --params tiny --backend rtl -x 3 -y -2";
    let value = place.json(&format!("{line} --clock 400"));
    assert_eq!(value["result"], -6);
    assert_eq!(value["arithmetic"], "ntt");
    assert_eq!(value["rtl"]["clock_mhz"], 400.0);
    check_cycles(&value["rtl"], &[("hom_add", 1), ("hom_sub", 2)]);

    let text = place.ok(line);
    assert!(text.contains("3 × -2 = -6"), "{text}");
    let words = [
        "n = 32, N = 512, 8 lanes",
        "at 200 MHz",
        "N = 16384, 200 MHz",
        "249.960 ms",
    ];
    for word in words {
        assert!(text.contains(word), "{word}: {text}");
    }
    let value = place.json("demo --params tiny -x 3 -y -2");
    assert_eq!(value["rtl"], Value::Null);
}

#[test]
fn the_simulated_engine_gives_the_sample_of_the_exact_path() {
    if tests_are_skipped() {
        return;
    }
    let place = Place::prepared("second-half");
    let multiply = place.copy_example("crates/isa/examples/multiply.tasm");
    place.ok(&format!("put d.img {multiply}"));
    place.ok("put d.img three.ct --as cor:0:1");
    let line = "run d.img cow:0:2 --write minus_two.ct --force";
    let exact = place.json(&format!("{line} --out exact.ct --arithmetic ntt"));
    assert_eq!(exact["rtl"], Value::Null);
    // The engine is exact in any case.
    for (out, option) in [("one.ct", ""), ("two.ct", "--arithmetic ntt")] {
        let value = place.json(&format!("{line} --out {out} --backend rtl {option}"));
        assert_eq!(value["log2_p_fail"], exact["log2_p_fail"]);
        check_cycles(&value["rtl"], &[("hom_add", 1), ("hom_sub", 2)]);
        assert_eq!(
            fs::read(place.path(out)).unwrap(),
            fs::read(place.path("exact.ct")).unwrap()
        );
    }
    assert_eq!(place.decrypted("one.ct"), -6);
    let text = place.ok(&format!("{line} --out one.ct --backend rtl"));
    assert!(
        text.contains("Bootstrap") && text.contains("at 200 MHz"),
        "{text}"
    );
}

#[test]
fn what_the_simulated_engine_does_not_do_is_wrong_usage() {
    let place = Place::new();
    for (line, words) in [
        (
            "demo --backend tpu",
            &["tpu", "cpu", "gpu", "auto", "rtl"][..],
        ),
        (
            "demo --backend rtl --lanes 12",
            &["power of two from 4 to 256"],
        ),
        (
            "demo --backend rtl --lanes 2",
            &["power of two from 4 to 256"],
        ),
        ("demo --backend rtl --clock 0", &["MHz above 0"]),
        ("demo --lanes 8", &["--lanes is for --backend rtl"]),
        (
            "demo --engine streaming",
            &["--engine is for --backend rtl"],
        ),
        (
            "demo --params tiny --backend rtl --engine streaming",
            &["2^6, 2^8 ... or 2^14 coefficients"],
        ),
        ("demo --clock 100", &["--clock is for --backend rtl"]),
        // Too many for the key switch of so small a set.
        (
            "demo --params tiny --backend rtl --lanes 256",
            &["a 16th of the coefficients"],
        ),
        (
            "demo --params tiny-wopbs --backend rtl",
            &["tiny-wopbs", "circuit bootstrapping"],
        ),
        ("demo --params tiny32 --backend rtl", &["tiny32", "k = 1"]),
        (
            "demo --backend rtl --drive nvme+tcp://127.0.0.1:9/nqn.2024-01.io.example:drive",
            &["--backend rtl is for an image"],
        ),
        (
            "run nvme+tcp://127.0.0.1:9/nqn.2024-01.io.example:drive cor:0:1 --out x.ct --backend rtl",
            &["--backend rtl is for an image"],
        ),
    ] {
        place.fails(2, line, words);
    }
}

#[test]
fn tools_that_lack_are_named() {
    let place = Place::new();
    let output = place
        .command("demo --params tiny --backend rtl --image kept.img")
        .env("TOROID_HW_TOOLS", place.path("tools"))
        .env("PATH", place.path("nothing"))
        .env_remove("CXX")
        .output()
        .unwrap();
    let said = common::Said::from(output);
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.contains("needs a C++ compiler"), "{}", said.err);
    assert!(!place.path("kept.img").exists());
}
