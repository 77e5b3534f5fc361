//! The program as its users see it: every command, and what happens when something is wrong.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::fs;
#[cfg(unix)]
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use toroid_tfhe::Ciphertext;
use toroid_tfhe::noise::StatedNoise;

use common::{Place, Said};

fn check_demo(place: &Place, options: &str, x: i64, y: i64) {
    let value = place.json(&format!("demo {options} -x {x} -y {y}"));
    assert_eq!(value["x"], x);
    assert_eq!(value["y"], y);
    assert_eq!(value["expected"], x * y, "{options}");
    assert_eq!(value["result"], x * y, "{options} {x} {y}");
    assert_eq!(value["correct"], true);
    let positive = |field: &str| {
        let figure = value[field].as_f64();
        assert!(
            figure.is_some_and(|figure| figure > 0.0),
            "{field}: {value}"
        );
    };
    for field in ["bootstrap_ms", "program_ms", "trigger_ms", "total_ms"] {
        positive(field);
    }
    if cfg!(target_os = "linux") {
        positive("peak_rss_mb");
    }
    let log2_p_fail = value["log2_p_fail"].as_f64().unwrap();
    assert!(log2_p_fail < -60.0 && value["p_fail"].as_f64().unwrap() < 1e-18);
    assert!(value["program_ms"].as_f64() <= value["trigger_ms"].as_f64());
    assert_eq!(value["commands"].as_array().unwrap().len(), 14);
}

#[test]
fn demo_multiplies() {
    let place = Place::new();
    for (x, y) in [(3, 2), (-3, 2), (-4, -1), (0, 7), (-8, 0)] {
        check_demo(&place, "--params tiny", x, y);
    }
    for (x, y) in [(1, 2), (-2, 1), (-1, -3), (-4, 0)] {
        check_demo(&place, "--params tiny32", x, y);
    }
    for options in [
        "--params tiny --arithmetic ntt",
        "--params tiny --metadata nvme",
        "--params tiny32 --arithmetic ntt --metadata nvme",
        "--params tiny32 --metadata second-half",
        "--params tiny-wopbs --arithmetic ntt",
    ] {
        check_demo(&place, options, -2, 1);
    }
    for (x, y) in [(15, -17), (-22, 23), (100, 5), (-127, -1)] {
        check_demo(&place, "--params tiny-wopbs", x, y);
    }
}

#[test]
fn demo_picks_factors_and_explains_itself() {
    let place = Place::new();
    for _ in 0..5 {
        let value = place.json("demo --params tiny32");
        assert_eq!(value["correct"], true, "{value}");
        let value = place.json("demo --params tiny -x -7");
        assert_eq!(value["x"], -7);
        assert_eq!(value["correct"], true, "{value}");
    }
    let text = place.ok("demo --params tiny -x 3 -y -2");
    for words in [
        "decrypted: 3 × -2 = -6",
        "failure probability",
        "INSECURE",
        "Write(MD(4,0,2))",
    ] {
        assert!(text.contains(words), "{words} is not in {text}");
    }
    place.ok("demo --params tiny --image kept.img");
    assert!(place.registers("kept.img").contains(&"cow:0:2".to_owned()));
    place.fails(
        1,
        "demo --params tiny --image kept.img",
        &["kept.img", "exists"],
    );
}

#[test]
fn demo_refuses_what_does_not_fit() {
    let place = Place::new();
    for (line, words) in [
        ("-x 8 -y 0", "x = 8 is outside -8..=7"),
        ("-x 5 -y 4", "x + y = 9 is outside -8..=7"),
        ("-x -5 -y 4", "x - y = -9 is outside -8..=7"),
        ("-x -4 -y -4", "x * y = 16 is outside -16..=15"),
        ("-x 9223372036854775807 -y -9223372036854775808", "outside"),
        ("-y 100", "y = 100 is outside -8..=7"),
    ] {
        place.fails(1, &format!("demo --params tiny {line}"), &[words, "tiny"]);
    }
    for (line, words) in [
        ("-x 8192 -y 0", "x = 8192 is outside -8192..=8191"),
        ("-x 8000 -y 192", "x + y = 8192 is outside -8192..=8191"),
        ("-x 128 -y 128", "x * y = 16384 is outside -16384..=16383"),
    ] {
        let line = format!("demo --params message14 {line}");
        place.fails(1, &line, &[words, "message14"]);
    }
    place.fails(1, "demo --params gate", &["Boolean gates"]);
    place.fails(
        2,
        "demo --params huge",
        &["no parameter set \"huge\"", "message8"],
    );
    place.fails(2, "demo -x three", &["three"]);
    place.fails(2, "demo --metadata elsewhere", &["second-half"]);
    place.fails(
        1,
        "demo --params tiny --image no/such/folder/d.img",
        &["no/such/folder"],
    );
}

#[test]
fn parameter_sets_are_shown() {
    let place = Place::new();
    let sets = place.json("params");
    let names: Vec<_> = sets["sets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|set| set["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "paper",
            "message7",
            "message4",
            "gate",
            "tiny",
            "tiny32",
            "message14",
            "message16",
            "tiny-wopbs",
            "message8"
        ]
    );
    let paper = place.json("params paper");
    assert_eq!(paper["bootstrapping_key_bytes"], 2_097_152_000u64);
    assert_eq!(paper["key_switching_key_bytes"], 367_460_352u64);
    assert_eq!(paper["seeded_bootstrapping_key_bytes"], 524_288_032u64);
    assert_eq!(paper["seeded_key_switching_key_bytes"], 458_784u64);
    assert_eq!(paper["security_bits"], 122);
    assert!(place.ok("params").contains("INSECURE"));
    assert!(place.ok("params message7").contains("128"));
    place.fails(2, "params huge", &["no parameter set"]);
    // A wide function has stages in place of one blind rotation.
    let exact = place.json("params message16");
    assert_eq!(exact["test_vector_bytes"], 512 << 10);
    assert_eq!(exact["sample_bytes"], 2049 * 8);
    let stages: Vec<_> = exact["stages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stage| stage["stage"].as_str().unwrap())
        .collect();
    assert_eq!(
        stages,
        ["extraction", "ring key switch", "circuit", "refresh"]
    );
    assert!(exact.get("gadget_levels").is_none() && paper.get("stages").is_none());
    assert_eq!(paper["gadget_levels"], 5);
    let text = place.ok("params message16");
    assert!(
        text.contains("extraction") && !text.contains("modulus switch"),
        "{text}"
    );
}

/// `bench/scheme/estimator/estimate.py` wrote the file, from the same figures.
#[test]
fn the_estimator_finds_every_key_as_secure_as_its_set_claims() {
    let place = Place::new();
    let path = common::example("bench/scheme/estimator/results.txt");
    let results = fs::read_to_string(path).unwrap();
    let results: Vec<Vec<&str>> = results
        .lines()
        .skip_while(|line| !line.starts_with("set "))
        .skip(1)
        .map(|line| line.split_whitespace().collect())
        .collect();
    let sets = place.json("params");
    for set in sets["sets"].as_array().unwrap() {
        if set["insecure"].as_bool().unwrap() {
            continue;
        }
        let number = |value: &Value| value.as_f64().unwrap();
        let dimension = number(&set["glwe_dimension"]) * number(&set["ring_degree"]);
        let mut keys = vec![
            (
                number(&set["lwe_dimension"]),
                number(&set["log2_lwe_noise"]),
            ),
            (dimension, number(&set["log2_glwe_noise"])),
        ];
        let stages = set["stages"].as_array().into_iter().flatten();
        keys.extend(stages.filter_map(|stage| {
            Some((number(&stage["samples"]), stage["log2_lwe_noise"].as_f64()?))
        }));
        let name = set["name"].as_str().unwrap();
        let claimed = number(&set["security_bits"]);
        for (dimension, noise) in keys {
            // More dimensions and more noise are no less secure.
            let bits = results.iter().filter_map(|row| {
                let number = |at: usize| row[at].parse::<f64>().unwrap();
                (number(1) <= dimension && number(2) <= noise).then(|| number(3))
            });
            let bits = bits.fold(0.0, f64::max);
            assert!(
                bits >= claimed,
                "{name} claims {claimed} bits, {bits} found for dimension {dimension} and noise 2^{noise}"
            );
        }
    }
}

#[test]
fn noise_is_explained() {
    let place = Place::new();
    let log2 = |value: &Value| value["log2_p_fail"].as_f64().unwrap();
    for (name, bits) in [
        ("message16", 16),
        ("message14", 14),
        ("message8", 8),
        ("tiny-wopbs", 9),
        ("message7", 7),
        ("gate", 0),
    ] {
        let value = place.json(&format!("params explain {name}"));
        assert_eq!(value["message_bits"], bits);
        let list = value["decisions"].as_array().unwrap();
        let decided = |stage: &str| -> u64 {
            list.iter()
                .filter(|decision| decision["stage"] == stage)
                .map(|decision| decision["bits"].as_u64().unwrap())
                .sum()
        };
        if bits > 7 {
            // Every bit of the message; of a table's values as many as fail most often.
            assert_eq!(decided("extraction"), bits);
            assert!((1..=bits + 1).contains(&decided("refresh")));
        } else {
            assert_eq!((decided("bootstrap"), list.len()), (bits.max(1), 1));
        }
        // The sum of what every decision fails with, which is that of the table of sets.
        let sum: f64 = list.iter().map(|decision| log2(decision).exp2()).sum();
        assert!((sum.log2() - log2(&value)).abs() < 1e-6, "{name}: {sum}");
        let set = place.json(&format!("params {name}"));
        let norm2 = if bits == 0 { 2.0 } else { 1.0 };
        assert_eq!(value["norm2"], norm2);
        let failures = set["failure"].as_array().unwrap();
        let same = failures
            .iter()
            .find(|failure| failure["message_bits"] == bits && failure["norm2"] == norm2)
            .unwrap();
        assert_eq!(log2(same), log2(&value));
        for noise in value["noise"].as_array().unwrap() {
            let deviation = noise["log2_deviation"].as_f64().unwrap();
            assert!((-64.0..0.0).contains(&deviation), "{name}: {noise}");
        }
        // Sets of programmable bootstraps have unrolled keys, which cost noise and bytes.
        let unrolled = &value["unrolled"];
        assert_eq!(unrolled.is_null(), bits > 7, "{name}");
        if bits <= 7 {
            assert!(log2(unrolled) > log2(&value), "{name}");
            let bytes = |field: &str| unrolled[field].as_u64().unwrap();
            assert!(bytes("seeded_bytes") > bytes("seeded_bytes_ordinary"));
            let text = place.ok(&format!("params explain {name}"));
            assert!(text.contains("unrolled bootstrapping key"), "{text}");
        }
        // More noise comes in; where other decisions are the likeliest to fail, the sum may not show it.
        let more = place.json(&format!("params explain {name} --norm2 1000"));
        assert!(log2(&more["decisions"][0]) > log2(&list[0]), "{name}");
        assert!(log2(&more) >= log2(&value), "{name}");
        // Narrow messages fail less often, and their own width is the default.
        let own = place.json(&format!("params explain {name} --bits {}", bits.max(1)));
        let narrow = place.json(&format!("params explain {name} --bits 2"));
        assert_eq!(narrow["message_bits"], 2);
        if bits > 0 {
            assert_eq!(own, value);
            assert!(log2(&narrow) < log2(&value), "{name}");
            let two = |failure: &&Value| failure["message_bits"] == 2 && failure["norm2"] == norm2;
            assert_eq!(
                log2(failures.iter().find(two).unwrap()),
                log2(&narrow),
                "{name}"
            );
        }
        let text = place.ok(&format!("params explain {name}"));
        for words in ["blind rotation", "margin", "any of them"] {
            assert!(text.contains(words), "{words} is not in {text}");
        }
    }
    for words in ["extraction", "trace", "vertical packing", "refresh"] {
        let text = place.ok("params explain message14");
        assert!(text.contains(words), "{words} is not in {text}");
    }
    place.fails(2, "params explain huge", &["no parameter set"]);
    place.fails(2, "params explain", &["NAME"]);
    place.fails(
        1,
        "params explain message8 --bits 9",
        &["9 bits is too wide", "message8"],
    );
    place.fails(2, "params explain message8 --bits 0", &["0"]);
    for wrong in ["-1", "inf", "many"] {
        let line = format!("params explain message14 --norm2={wrong}");
        place.fails(2, &line, &["at least 0"]);
    }
}

#[test]
fn sets_of_wide_functions_work_with_files() {
    let place = Place::new();
    place.ok("keys generate --unencrypted --params tiny-wopbs");
    place.ok("keys generate --unencrypted --params tiny-wopbs --expanded --out whole");
    for key in ["keys/bootstrapping.key", "whole/key-switching.key"] {
        assert_eq!(
            place.json(&format!("keys info {key}"))["params"],
            "tiny-wopbs"
        );
    }
    for (name, functions) in [
        (
            "f.tasm",
            "[sum, larger], [x, y], x\n homadd x, y\n return x",
        ),
        ("g.tasm", "sum, x\n return x"),
    ] {
        let text = format!(
            ".reg x = cor:1\n.reg y = cow:2\n\
             .tv sum unsigned in=4+5 out=4 = (x + y) % 16\n\
             .tv larger unsigned in=4+5 out=9 = file \"larger.txt\"\n\
             homadd x, y\n bootstrap {functions}\n"
        );
        fs::write(place.path(name), text).unwrap();
    }
    let larger: Vec<String> = (0..1 << 9)
        .map(|m| (m >> 5).max(m & 31).to_string())
        .collect();
    fs::write(place.path("larger.txt"), larger.join("\n")).unwrap();
    let asm = place.json("asm f.tasm --params tiny-wopbs");
    assert_eq!(asm["bootstraps"], 2);
    assert_eq!(asm["test_vectors"][1]["entries"], 512);
    place.fails(1, "asm f.tasm --params tiny32", &["9 bits", "tiny32"]);
    for (image, keys) in [("a.img", "keys"), ("b.img", "whole")] {
        place.ok(&format!("drive format {image} --size 64MiB --swap 16MiB"));
        let keys_of = format!("{keys}/bootstrapping.key {keys}/key-switching.key");
        place.ok(&format!("put {image} {keys_of} f.tasm"));
        let key = format!("--key {keys}/client.key");
        for (x, y) in [(9, 13), (15, 31), (0, 0)] {
            place.ok(&format!(
                "encrypt {x} --bits 4 --unsigned {key} --out x.ct --force"
            ));
            place.ok(&format!(
                "encrypt {y} --bits 9 --unsigned {key} --out y.ct --force"
            ));
            place.ok(&format!("put {image} x.ct --as cor:0:1"));
            let run = format!("run {image} cow:0:2 --write y.ct --out r.ct --force");
            place.ok(&run);
            let value = place.json(&format!("decrypt r.ct {key}"));
            assert_eq!(value["message"], (x + y) % 16 * 32 + x.max(y), "{x}, {y}");
        }
    }
    for example in ["isqrt16", "sbox16"] {
        let file = place.copy_example(&format!("examples/{example}.tasm"));
        let asm = place.json(&format!("asm {file} --params message16"));
        let vector = &asm["test_vectors"][0];
        assert_eq!(
            (&vector["entries"], &vector["wrapped"]),
            (&65536.into(), &0.into())
        );
        place.fails(
            1,
            &format!("asm {file} --params message14"),
            &["16 bits", "message14"],
        );
    }
}

#[test]
fn a_written_sample_is_computed_with() {
    for (metadata, exact) in [("second-half", ""), ("nvme", "--arithmetic ntt")] {
        let place = Place::prepared(metadata);
        let multiply = place.copy_example("crates/isa/examples/multiply.tasm");
        place.ok(&format!("put d.img {multiply}"));
        place.ok("put d.img three.ct --as cor:0:1");
        let line = format!("run d.img cow:0:2 --write minus_two.ct --out product.ct {exact}");
        assert_eq!(place.json(&line)["computed"], true);
        assert_eq!(place.decrypted("product.ct"), -6);
        // The result has taken the place of y; x is as it was, so that the program can run again.
        place.ok("get d.img cow:0:2 --out again.ct");
        assert_eq!(place.decrypted("again.ct"), -6);
        place.ok("get d.img cor:0:1 --out x.ct");
        assert_eq!(place.decrypted("x.ct"), 3);
        place.ok(&format!("{line} --force"));
        assert_eq!(place.decrypted("product.ct"), -6);
        assert_eq!(
            place.registers("d.img"),
            [
                "key:0:1", "key:0:2", "tv:0:0", "prg:0:0", "cor:0:1", "cow:0:2"
            ]
        );
        // All or none of them, each once.
        place.fails(
            1,
            "delete d.img cow:0:2 cor:0:77",
            &["nothing is stored for cor:0:77"],
        );
        place.ok("delete d.img cow:0:2 prg:0:0 cow:0:2");
        assert_eq!(
            place.registers("d.img"),
            ["key:0:1", "key:0:2", "tv:0:0", "cor:0:1"]
        );
        place.fails(
            1,
            "delete d.img cow:0:2",
            &["nothing is stored for cow:0:2"],
        );
    }
}

#[test]
fn a_read_sample_is_computed_with() {
    let place = Place::prepared("second-half");
    let level = place.copy_example("examples/level.tasm");
    place.ok(&format!("put d.img {level}"));
    for (x, expected) in [(-8, 0), (-3, 0), (-2, 1), (3, 1), (4, 2), (7, 2)] {
        place.ok(&format!("encrypt {x} --out x.ct --force"));
        place.ok("put d.img x.ct --as cor:0:1");
        let run = place.json("run d.img cor:0:1 --out level.ct --force");
        assert_eq!(run["computed"], true);
        assert!(run["log2_p_fail"].as_f64().unwrap() < -60.0);
        assert_eq!(place.decrypted("level.ct"), expected, "level of {x}");
        // The SSD keeps the value.
        place.ok("get d.img cor:0:1 --out x.ct --force");
        assert_eq!(place.decrypted("x.ct"), x);
    }
}

#[test]
fn two_functions_of_one_sample() {
    let place = Place::prepared("second-half");
    let total = place.copy_example("examples/total.tasm");
    place.ok(&format!("put d.img {total}"));
    for (low, high, y) in [(5, 2, 6), (5, 2, 2), (7, 0, 7)] {
        for (name, value) in [("low", low), ("high", high), ("y", y)] {
            place.ok(&format!(
                "encrypt {value} --unsigned --out {name}.ct --force"
            ));
        }
        place.ok("put d.img low.ct --as cor:0:1");
        place.ok("put d.img high.ct --as cor:0:2");
        place.ok("run d.img cow:0:3 --write y.ct --out upper.ct --force");
        assert_eq!(place.decrypted("upper.ct"), high + (low + y) / 8);
    }
    // The binary form has the ordinary instructions.
    let asm = place.json(&format!("asm {total} --params tiny --out total.tscp"));
    assert_eq!(
        (&asm["instructions"], &asm["bootstraps"]),
        (&6.into(), &2.into())
    );
    let text = place.ok("disasm total.tscp");
    assert!(text.contains("mov cor:0:0, cor:0:1"), "{text}");
}

#[test]
fn functions_of_two_arguments_and_tables_from_files() {
    let place = Place::prepared("nvme");
    fs::create_dir(place.path("programs")).unwrap();
    let program = |sign: &str, function: &str| {
        let text = format!(
            ".reg x = cor:1\n.reg y = cow:2\n.tv f {sign} in=2+2 = {function}\n homadd x, y\n bootstrap f, x\n return x\n"
        );
        fs::write(place.path("programs/f.tasm"), text).unwrap();
    };
    let compute = |sign: &str, x: i64, y: i64| {
        let option = if sign == "unsigned" { "--unsigned" } else { "" };
        place.ok(&format!("encrypt {x} --bits 2 {option} --out x.ct --force"));
        place.ok(&format!("encrypt {y} --bits 4 {option} --out y.ct --force"));
        place.ok("put d.img x.ct --as cor:0:1");
        place.ok("run d.img cow:0:2 --write y.ct --out r.ct --force");
        place.decrypted("r.ct")
    };
    program("unsigned", "x * y + (x > y ? 1 : 0)");
    place.ok("put d.img programs/f.tasm");
    for (x, y, expected) in [(0, 0, 0), (3, 3, 9), (3, 2, 7), (1, 3, 3), (2, 0, 1)] {
        assert_eq!(compute("unsigned", x, y), expected, "{x}, {y}");
    }
    program("signed", "3*x - y");
    place.ok("put d.img programs/f.tasm");
    for (x, y, expected) in [(0, 0, 0), (1, 1, 2), (1, -2, 5), (-1, -2, -1), (-2, 1, -7)] {
        assert_eq!(compute("signed", x, y), expected, "{x}, {y}");
    }
    // Out of the range below: minus the value.
    assert_eq!(compute("signed", -2, -1), 5);

    // Sixteen values, from a file beside the program, wherever the command runs.
    program("unsigned", "file \"values.txt\"");
    place.fails(
        1,
        "put d.img programs/f.tasm",
        &["programs/f.tasm", "values.txt", "No such file"],
    );
    let values = place.path("programs/values.txt");
    fs::write(&values, "# broken\n0 1 2 three").unwrap();
    place.fails(
        1,
        "asm programs/f.tasm --params tiny",
        &["values.txt", "line 2", "three"],
    );
    fs::write(&values, "0 1 2").unwrap();
    place.fails(1, "asm programs/f.tasm --params tiny", &["3 values"]);
    let table: Vec<String> = (0..16).map(|m| (m * 7 % 16).to_string()).collect();
    fs::write(&values, format!("# 7·m mod 16\n{}\n", table.join(", "))).unwrap();
    place.ok("asm programs/f.tasm --params tiny");
    place.ok("put d.img programs/f.tasm");
    assert_eq!(compute("unsigned", 2, 3), (2 * 4 + 3) * 7 % 16);
    program("unsigned", "file \"../values.txt\"");
    place.fails(1, "put d.img programs/f.tasm", &["line 3", "folder"]);
    program("unsigned", "x +");
    place.fails(1, "put d.img programs/f.tasm", &["line 3", "`y`"]);
}

/// The bytes of the image `d.img` without its blob store's super blocks, in which every client that may change the store leaves its name.
fn stored(place: &Place) -> Vec<u8> {
    const SUPER_BLOCK_BYTES: usize = 128;
    let mut image = fs::read(place.path("d.img")).unwrap();
    let magic = b"TOROIDBS";
    let starts = image.windows(magic.len()).enumerate();
    let starts: Vec<usize> = starts
        .filter(|(_, bytes)| bytes == magic)
        .map(|(at, _)| at)
        .collect();
    assert_eq!(starts.len(), 2);
    for start in starts {
        image[start..][..SUPER_BLOCK_BYTES].fill(0);
    }
    image
}

#[test]
fn a_sample_of_another_width_than_the_function_takes_is_refused() {
    let place = Place::prepared("nvme");
    let text =
        ".reg x = cor:1\n.reg y = cow:2\n.tv f = x*x\n homadd x, y\n bootstrap f, x\n return x\n";
    fs::write(place.path("square.tasm"), text).unwrap();
    place.ok("put d.img square.tasm");
    for bits in [2, 4] {
        place.ok(&format!("encrypt 1 --bits {bits} --out {bits}.ct"));
    }
    place.ok("encrypt 1 --bits 5 --out 5.ct");
    place.ok("put d.img 2.ct --as cor:0:1");
    let before = stored(&place);
    for bits in [2, 5] {
        place.fails(
            1,
            &format!("run d.img cow:0:2 --write {bits}.ct --out r.ct"),
            &["cow:0:2", &format!("{bits} bits"), "4 bits"],
        );
    }
    assert!(stored(&place) == before);
    assert!(!place.path("r.ct").exists());
    place.ok("run d.img cow:0:2 --write 4.ct --out r.ct");
    // By a read, the width is what the drive's metadata state.
    place.ok("put d.img 2.ct --as cow:0:2");
    place.fails(1, "run d.img cor:0:1 --out s.ct", &["cor:0:1", "2 bits"]);
}

#[test]
fn a_trigger_that_the_program_does_not_read_is_refused() {
    let place = Place::prepared("second-half");
    let multiply = place.copy_example("crates/isa/examples/multiply.tasm");
    place.ok(&format!("put d.img {multiply}"));
    place.ok("put d.img three.ct --as cor:0:1");
    place.ok("put d.img three.ct --as cor:0:7");
    for trigger in ["cow:0:3 --write three.ct", "cor:0:7"] {
        let register = &trigger[..7];
        place.fails(
            1,
            &format!("run d.img {trigger} --out r.ct"),
            &[&format!("does not read {register}"), "cor:0:1, cow:0:2"],
        );
    }
    assert!(!place.path("r.ct").exists());
    assert!(!place.registers("d.img").contains(&"cow:0:3".to_owned()));
}

#[test]
fn listings_name_things_once() {
    let place = Place::prepared("nvme");
    let text = place.ok("drive info d.img");
    assert_eq!(text.matches("key:0:1").count(), 1, "{text}");
    let level = place.copy_example("examples/level.tasm");
    let text = place.ok(&format!("asm {level} --params tiny"));
    assert!(text.contains("bootstraps among them: 1;"), "{text}");
}

#[test]
fn exit_codes_are_those_of_the_table() {
    let place = Place::new();
    place.ok("keys generate --params tiny --unencrypted");
    place.ok("encrypt 3 --out three.ct");
    place.ok("--help");
    place.fails(1, "decrypt none.ct", &["none.ct"]);
    // clap's, and ours.
    place.fails(2, "decrypt", &["Usage"]);
    place.fails(2, "drive format e.img --swap 100", &["--swap"]);
    place.fails(
        3,
        "decrypt three.ct --max-failure 2^-1e30",
        &["--max-failure"],
    );

    let rows = |text: &str, cut: &dyn Fn(&str) -> Option<(String, String)>| {
        let rows: Vec<_> = text.lines().filter_map(cut).collect();
        assert_eq!(rows.len(), 6, "{text}");
        rows
    };
    let help = place.ok("--help");
    let (_, help) = help.split_once("Exit codes:").unwrap();
    let of_help = rows(help, &|line| {
        let (code, meaning) = line.trim().split_once("  ")?;
        Some((code.to_owned(), meaning.trim().to_owned()))
    });
    let page = fs::read_to_string(common::example("docs/reference/cli.md")).unwrap();
    let (_, page) = page.split_once("## Exit codes").unwrap();
    let (page, _) = page.split_once("\n## ").unwrap();
    let of_page = rows(page, &|line| {
        let (code, meaning) = line
            .strip_prefix("| ")?
            .strip_suffix(" |")?
            .split_once(" | ")?;
        code.parse::<u8>().ok()?;
        Some((code.to_owned(), meaning.to_owned()))
    });
    assert_eq!(of_help, of_page);
}

#[test]
fn key_ids_keep_clients_apart() {
    let place = Place::prepared("nvme");
    let maximum = place.copy_example("examples/maximum.tasm");
    // One client's keys are seeded, the other's expanded.
    place.ok("keys generate --unencrypted --params tiny32 --out others --expanded");
    place.ok("put d.img others/bootstrapping.key others/key-switching.key --key-id 5");
    place.fails(
        1,
        &format!("put d.img {maximum} --key-id 5"),
        &["cor:0:1", "key id 5", ".key 5"],
    );
    let text = fs::read_to_string(place.path(&maximum)).unwrap();
    fs::write(place.path("five.tasm"), format!(".key 5\n{text}")).unwrap();
    place.ok("put d.img five.tasm --key-id 5");
    place.ok(&format!("put d.img {maximum}"));
    place.ok("encrypt -1 --key others/client.key --out x5.ct");
    place.ok("encrypt 2 --key others/client.key --out y5.ct");
    place.ok("put d.img x5.ct --as cor:5:1");
    place.ok("put d.img three.ct --as cor:0:1");
    place.ok("run d.img cow:5:2 --write y5.ct --out r5.ct");
    place.ok("run d.img cow:0:2 --write minus_two.ct --out r0.ct");
    assert_eq!(place.decrypted("r5.ct --key others/client.key"), 2);
    assert_eq!(place.decrypted("r0.ct"), 3);
    // Another set's sample, and a key of another set, are refused.
    place.fails(1, "put d.img x5.ct --as cor:0:1", &["tiny32", "tiny"]);
    place.fails(
        1,
        "put d.img others/bootstrapping.key",
        &["tiny32", "key id 0"],
    );
}

#[test]
fn files_say_what_they_are() {
    let place = Place::prepared("second-half");
    let key = place.json("keys info keys/bootstrapping.key");
    assert_eq!(key["kind"], "seeded bootstrapping key");
    assert_eq!(key["params"], "tiny");
    assert_eq!(key["payload_bytes"], 196_640);
    let key_switching = place.json("keys info keys/key-switching.key");
    assert_eq!(key_switching["kind"], "seeded key-switching key");
    assert_eq!(key_switching["payload_bytes"], 6_176);
    place.ok("keys generate --unencrypted --params tiny --out whole --expanded");
    for (file, kind, bytes) in [
        ("bootstrapping", "bootstrapping key", 524_288),
        ("key-switching", "key-switching key", 202_752),
    ] {
        let expanded = place.json(&format!("keys info whole/{file}.key"));
        assert_eq!(expanded["kind"], kind);
        assert_eq!(expanded["payload_bytes"], bytes);
    }
    let sample = place.json("keys info three.ct");
    assert_eq!(sample["kind"], "LWE sample");
    assert_eq!(sample["tag"], key["tag"]);
    assert_eq!(sample["message_bits"], 4);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(place.path("keys/client.key"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "the secret key is for its owner alone");
    }
    place.ok("encrypt 9 --bits 5 --unsigned --out nine.ct");
    assert_eq!(place.decrypted("nine.ct"), 9);
    let multiply = place.copy_example("crates/isa/examples/multiply.tasm");
    let asm = place.json(&format!("asm {multiply} --params tiny --out multiply.tscp"));
    assert_eq!(asm["instructions"], 7);
    assert_eq!(asm["bootstraps"], 2);
    let text = place.ok("disasm multiply.tscp");
    fs::write(place.path("back.tasm"), text).unwrap();
    place.ok("asm back.tasm --out back.tscp");
    assert_eq!(
        fs::read(place.path("multiply.tscp")).unwrap(),
        fs::read(place.path("back.tscp")).unwrap()
    );
    let info = place.json("drive info d.img");
    assert_eq!(info["metadata"], "second half of the LBA space");
    assert_eq!(info["block_bytes"], 4096);
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    let place = Place::prepared("second-half");
    place.ok("keys generate --unencrypted --params tiny --out others");
    place.ok("keys generate --unencrypted --params tiny32 --client-only --out others32");
    fs::write(
        place.path("typo.tasm"),
        ".reg x = cor:1\n hommadd x, x\n return x\n",
    )
    .unwrap();
    fs::write(place.path("endless.tasm"), ".reg x = cor:1\n mov x, x\n").unwrap();
    for (code, line, words) in [
        (1, "decrypt none.ct", &["none.ct", "No such file"][..]),
        (1, "decrypt three.ct --key none.key", &["none.key"]),
        (
            1,
            "decrypt three.ct --key others/client.key",
            &["three.ct", "tag"],
        ),
        (1, "decrypt three.ct --key others32/client.key", &["tiny32"]),
        (
            1,
            "decrypt three.ct --key keys/bootstrapping.key",
            &["client key"],
        ),
        (1, "decrypt keys/client.key", &["LWE sample"]),
        (1, "encrypt 8 --out eight.ct", &["8", "-8..=7"]),
        (1, "encrypt 1 --bits 41 --out one.ct", &["41", "1 to 40"]),
        (2, "encrypt 3.5 --out half.ct", &["3.5", "integers"]),
        (2, "encrypt -3.5 --out half.ct", &["-3.5", "integers"]),
        (2, "encrypt three --out half.ct", &["expected an integer"]),
        (
            1,
            "encrypt 1 --out three.ct",
            &["three.ct exists", "--force"],
        ),
        (1, "keys generate --params tiny", &["exists", "--force"]),
        (2, "keys generate --params huge", &["no parameter set"]),
        (1, "keys info none.key", &["none.key"]),
        (1, "keys info d.img", &["not a Toroid file"]),
        (1, "drive info three.ct", &["three.ct", "not a drive image"]),
        (1, "drive info keys", &["keys is neither a regular file"]),
        (1, "drive info none.img", &["cannot open none.img"]),
        (1, "drive format d.img", &["d.img exists", "--force"]),
        (
            2,
            "drive format e.img --size 64",
            &["--size of 64 bytes", "a unit, such as 64MiB"],
        ),
        (2, "drive format e.img --size many", &["many"]),
        (
            2,
            "drive format e.img --swap 100",
            &["--swap of 100 bytes", "4096"],
        ),
        // Too small for a store: found out when the image is made, but not yet in place.
        (1, "drive format d.img --size 1MiB --force", &["d.img"]),
        (
            1,
            "drive format e.img --size 1MiB",
            &["e.img", "1 MiB is too small", "--size"],
        ),
        (1, "put none.img three.ct --as cor:0:1", &["none.img"]),
        (1, "put d.img none.ct", &["none.ct"]),
        (1, "put d.img three.ct", &["--as"]),
        (1, "put d.img three.ct --as tv:0:1", &["tv:0:1"]),
        (
            2,
            "put d.img three.ct minus_two.ct --as cor:0:1",
            &["one by one"],
        ),
        (2, "put d.img three.ct --as cor:0:1:2", &["cor:0:1:2"]),
        (
            2,
            "put d.img three.ct --as cor:1",
            &["`cor:1`", "such as cor:0:1"],
        ),
        (
            2,
            "put d.img keys/bootstrapping.key --as cor:0:1",
            &["--as cor:0:1 is for a sample"],
        ),
        (
            1,
            "put d.img keys/client.key",
            &["client key does not go to a drive"],
        ),
        (1, "put d.img typo.tasm", &["line 2", "hommadd", "homadd"]),
        (
            1,
            "asm typo.tasm",
            &["typo.tasm", "line 2", "hommadd", "homadd"],
        ),
        (1, "asm endless.tasm", &["line 2", "no return"]),
        (1, "asm none.tasm", &["none.tasm"]),
        (1, "disasm three.ct", &["three.ct", "not a program"]),
        (
            1,
            "get d.img cor:0:9 --out nine.ct",
            &["nothing is stored for cor:0:9"],
        ),
        (2, "get d.img key:0:1 --out key.ct", &["key:0:1"]),
        (2, "run d.img cow:0:2 --out r.ct", &["--write"]),
        (
            2,
            "run d.img cor:0:1 --write three.ct --out r.ct",
            &["--write"],
        ),
        (
            2,
            "run d.img tv:0:1 --out r.ct",
            &["tv:0:1", "cow:KEY:DATA"],
        ),
        (
            1,
            "run d.img cow:0:2 --write three.ct --out r.ct",
            &["no program"],
        ),
        (
            1,
            "run d.img cow:0:2 --write three.ct --out minus_two.ct",
            &["exists"],
        ),
        (2, "run d.img", &["--out"]),
        (2, "", &["Usage"]),
    ] {
        place.fails(code, line, words);
    }
    let said = place.run("--json drive info three.ct");
    let error: Value = serde_json::from_str(&said.err).unwrap();
    assert!(
        error["error"]
            .as_str()
            .unwrap()
            .contains("not a drive image")
    );
    assert_eq!(said.out, "");
    assert_eq!(place.registers("d.img"), ["key:0:1", "key:0:2"]);
}

#[test]
fn a_put_that_is_wrong_writes_nothing() {
    let place = Place::prepared("nvme");
    let multiply = place.copy_example("crates/isa/examples/multiply.tasm");
    for wrong in ["keys/client.key", "three.ct", "none.ct"] {
        place.fails(1, &format!("put d.img {multiply} {wrong}"), &[wrong]);
    }
    assert_eq!(place.registers("d.img"), ["key:0:1", "key:0:2"]);
}

#[test]
fn files_are_put_together_or_not_at_all() {
    let place = Place::prepared("second-half");
    let multiply = place.copy_example("crates/isa/examples/multiply.tasm");
    place.ok("drive format e.img --size 16MiB --swap 2MiB");
    // One file tells the parameter set of another, in any order.
    place.ok(&format!("put e.img {multiply} keys/key-switching.key"));
    let mut more = 0;
    while place
        .run(&format!("put e.img three.ct --as cor:0:{more}"))
        .code
        == Some(0)
    {
        more += 1;
        assert!(more < 100);
    }
    place.ok(&format!("delete e.img cor:0:{}", more - 1));
    let before = place.registers("e.img");
    // There is room for one more object.
    let line = format!("put e.img keys/bootstrapping.key three.ct --as cor:0:{more}");
    place.fails(1, &line, &["free", "toroid drive format --size"]);
    assert_eq!(place.registers("e.img"), before);
    place.ok("put e.img keys/bootstrapping.key");
}

#[test]
fn a_key_id_belongs_to_one_client_key() {
    let place = Place::prepared("second-half");
    let others = "keys generate --params tiny --unencrypted --out others";
    place.ok(others);
    place.ok("encrypt 1 --key others/client.key --out other.ct");
    let refused = &["another client key", "key:0:"];
    place.fails(1, "put d.img other.ct --as cor:0:1", refused);
    place.fails(1, "put d.img others/bootstrapping.key", refused);
    place.fails(
        1,
        "put d.img keys/bootstrapping.key others/key-switching.key",
        refused,
    );
    place.ok("put d.img other.ct --as cor:1:1");
    // Both keys are replaced on demand alone, and as long as there are no samples of the former ones.
    let others = "put d.img others/key-switching.key others/bootstrapping.key";
    place.fails(1, others, refused);
    place.ok(&format!("{others} --replace"));
    place.ok("put d.img other.ct --as cor:0:1");
    let ours = "put d.img keys/bootstrapping.key keys/key-switching.key";
    let replaced = format!("{ours} --replace");
    place.fails(1, &replaced, &["another client key", "cor:0:1"]);
    place.ok("delete d.img cor:0:1");
    // No keys, but a column of the other client key.
    place.ok("delete d.img key:0:1 key:0:2");
    fs::write(place.path("numbers"), "1\n2\n").unwrap();
    place.ok("column put d.img theirs numbers --key others/client.key");
    place.fails(1, ours, &["column theirs", "another client key", "key:0:"]);
    place.ok(&replaced);
    fs::write(place.path("same.tasm"), ".reg x = cor:0\n return x\n").unwrap();
    place.fails(
        1,
        "map d.img same.tasm --input x=theirs --output o",
        &["column theirs", "another client key"],
    );
    // A ring key, too.
    let ring = |key: &str| format!("column keys d.img --ring tiny-ring --key {key}/client.key");
    place.ok(&ring("keys"));
    place.fails(1, &ring("others"), &["another client key", "key:0:"]);
    place.ok("delete d.img key:0:1 key:0:2");
    place.fails(1, &ring("others"), &["another client key", "key:0:3"]);
    place.ok(&format!("{} --replace", ring("others")));
}

#[test]
fn a_set_of_fewer_than_128_bits_is_named_when_keys_are_made() {
    let place = Place::new();
    let generated = |set: &str| {
        let line = "keys generate --unencrypted --client-only";
        place.ok(&format!("{line} --params {set} --out {set}"))
    };
    assert!(generated("paper").contains("warning: this set has 122 bits of security"));
    assert!(!generated("gate").contains("warning"));
}

#[test]
fn a_ledger_notices_what_a_drive_gives_in_place_of_what_it_was_given() {
    let place = Place::prepared("second-half");
    let multiply = place.copy_example("crates/isa/examples/multiply.tasm");
    place.ok(&format!("put d.img {multiply} --ledger l"));
    place.ok("put d.img three.ct --as cor:0:1 --ledger l");
    let before = fs::read(place.path("d.img")).unwrap();
    place.ok("encrypt 2 --out two.ct");
    place.ok("put d.img two.ct --as cor:0:1 --ledger l");
    place.ok("get d.img cor:0:1 --out x.ct --ledger l");
    assert_eq!(place.decrypted("x.ct"), 2);
    place.ok("run d.img cow:0:2 --write minus_two.ct --out r.ct --ledger l");
    assert_eq!(place.decrypted("r.ct"), -4);
    place.ok("get d.img cow:0:2 --out again.ct --ledger l");
    // The drive of yesterday; an object that somebody else has put there; another key's ledger.
    fs::write(place.path("d.img"), before).unwrap();
    let untrusted = &["cannot be trusted"];
    place.fails(1, "get d.img cor:0:1 --out y.ct --ledger l", &["version 1"]);
    // A name that was mistyped is no empty ledger.
    for command in [
        "get d.img cor:0:1 --out y.ct",
        "delete d.img cor:0:1",
        "run d.img cow:0:2 --write minus_two.ct --out y.ct",
    ] {
        let mistyped = format!("{command} --ledger ll");
        place.fails(1, &mistyped, &["ledger ll does not exist"]);
    }
    place.ok("put d.img minus_two.ct --as cor:0:1");
    place.fails(1, "get d.img cor:0:1 --out y.ct --ledger l", untrusted);
    let text = fs::read_to_string(place.path(&multiply)).unwrap();
    fs::write(place.path("other.tasm"), text.replace("homsub", "homadd")).unwrap();
    place.ok("put d.img other.tasm");
    let run = "run d.img cow:0:2 --write minus_two.ct --out y.ct --ledger l";
    place.fails(1, run, &["cor:0:1", "cannot be trusted"]);
    place.ok("put d.img two.ct --as cor:0:1 --ledger l");
    place.fails(1, run, &["prg:0:0", "cannot be trusted"]);
    assert!(!place.path("y.ct").exists());
    place.ok("keys generate --params tiny --unencrypted --out others");
    let other = "get d.img cor:0:1 --out y.ct --ledger l --key others/client.key";
    place.fails(1, other, &["no ledger of this client key"]);
    // Another store in the place of the drive's.
    place.ok("drive format d.img --size 64MiB --swap 16MiB --force");
    let put = "put d.img two.ct --as cor:0:1 --ledger l";
    place.fails(1, put, &["has blob store", "--new-store"]);
    place.ok(&format!("{put} --new-store"));
    place.ok("get d.img cor:0:1 --out z.ct --ledger l");
    place.fails(2, "get d.img cor:0:1 --out y.ct --new-store", &["--ledger"]);
}

#[test]
fn what_a_drive_forges_is_not_decrypted() {
    let place = Place::prepared("second-half");
    let three = Ciphertext::from_bytes(&fs::read(place.path("three.ct")).unwrap()).unwrap();
    let forged = |sample: &[u8], noise| {
        let tag = *three.tag().unwrap();
        let forged = Ciphertext::from_sample(three.params(), three.encoding(), sample, noise);
        fs::write(
            place.path("forged"),
            forged.unwrap().with_tag(tag).to_bytes(),
        )
        .unwrap();
    };
    // Without its figures of noise, as if its header were blanked.
    forged(three.sample(), StatedNoise::default());
    place.fails(3, "decrypt forged", &["failure probability"]);
    place.ok("decrypt forged --max-failure 1");
    // Without a mask, so that anybody can have made it.
    let mut plain = three.sample().to_vec();
    let body = plain.len() - 8;
    plain[..body].fill(0);
    forged(&plain, three.stated_noise());
    place.fails(1, "decrypt forged --max-failure 1", &["encrypts nothing"]);
}

#[test]
fn a_result_is_computed_again() {
    let place = Place::prepared("second-half");
    let multiply = place.copy_example("crates/isa/examples/multiply.tasm");
    place.ok(&format!("put d.img {multiply}"));
    place.ok("put d.img three.ct --as cor:0:1");
    let text = fs::read_to_string(place.path(&multiply)).unwrap();
    let name = |register: &str| {
        let line = text.lines().find(|line| line.contains(register)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    let (x, run) = (
        name("cor:1"),
        "run d.img cow:0:2 --write minus_two.ct --force",
    );
    let verify = format!("--verify {multiply} --input {x}=three.ct");
    place.ok(&format!("{run} --out r.ct {verify} --arithmetic ntt"));
    assert_eq!(place.decrypted("r.ct"), -6);
    for wrong in [
        format!("{verify} --arithmetic fft"),
        format!("--verify {multiply} --input {x}=minus_two.ct --arithmetic ntt"),
    ] {
        let line = format!("{run} --out wrong.ct {wrong}");
        place.fails(1, &line, &["is not what the program gives"]);
    }
    assert!(!place.path("wrong.ct").exists());
    // Nor does the ledger take what was refused.
    place.ok(&format!("put d.img {multiply} --ledger l"));
    let run_l = format!("{run} --ledger l");
    let get = "get d.img cow:0:2 --out got.ct --force --ledger l";
    place.ok(&format!("{run_l} --out r.ct {verify} --arithmetic ntt"));
    place.ok(get);
    let line = format!("{run_l} --out wrong.ct {verify} --arithmetic fft");
    place.fails(1, &line, &["is not what the program gives"]);
    place.fails(1, get, &["cannot be trusted"]);
    place.ok(&format!("{run} --out r.ct {verify} --share 0"));
    place.fails(
        2,
        &format!("{run} --out r.ct --input x=three.ct"),
        &["--verify"],
    );
    place.fails(
        2,
        &format!("{run} --out r.ct {verify} --share 2"),
        &["0 to 1"],
    );
}

#[test]
fn a_program_that_cannot_run_changes_nothing() {
    let place = Place::prepared("nvme");
    let multiply = place.copy_example("crates/isa/examples/multiply.tasm");
    place.ok(&format!("put d.img {multiply}"));
    // x is missing.
    place.fails(
        1,
        "run d.img cow:0:2 --write three.ct --out r.ct",
        &["cor:0:1", "mov"],
    );
    assert!(!place.path("r.ct").exists());
    assert!(!place.registers("d.img").contains(&"cow:0:2".to_owned()));
    // So are the keys.
    place.ok("drive format e.img --size 64MiB --swap 16MiB");
    place.ok(&format!("put e.img {multiply} --params tiny"));
    place.ok("put e.img three.ct --as cor:0:1");
    place.fails(
        1,
        "run e.img cow:0:2 --write minus_two.ct --out r.ct",
        &["key"],
    );
    assert!(!place.path("r.ct").exists());
}

#[test]
fn damaged_files_are_found() {
    let place = Place::prepared("second-half");
    let damage = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = fs::read(place.path(name)).unwrap();
        change(&mut bytes);
        fs::write(place.path("damaged"), bytes).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(place.path("damaged"), PermissionsExt::from_mode(0o600)).unwrap();
        }
    };
    let flipped = |at: usize| move |bytes: &mut Vec<u8>| bytes[at] ^= 1;
    for at in [0, 10, 40, 64, 3000, 196_000] {
        damage("keys/bootstrapping.key", &flipped(at));
        place.fails(1, "keys info damaged", &["damaged"]);
        place.fails(1, "put d.img damaged", &["damaged"]);
    }
    damage("keys/client.key", &flipped(80));
    place.fails(1, "encrypt 1 --key damaged --out one.ct", &["checksum"]);
    damage("three.ct", &flipped(100));
    place.fails(1, "decrypt damaged", &["checksum"]);
    place.fails(1, "put d.img damaged --as cor:0:1", &["checksum"]);
    damage("three.ct", &|bytes| bytes.truncate(50));
    place.fails(1, "decrypt damaged", &["damaged"]);
    damage("keys/key-switching.key", &|bytes| bytes.truncate(4096));
    place.fails(1, "put d.img damaged", &["damaged"]);
    damage("three.ct", &|bytes| bytes.push(0));
    place.fails(1, "decrypt damaged", &["damaged"]);
    let multiply = place.copy_example("crates/isa/examples/multiply.tasm");
    place.ok(&format!("asm {multiply} --out multiply.tscp"));
    damage("multiply.tscp", &flipped(30));
    place.fails(1, "disasm damaged", &["damaged", "CRC-32C"]);
    damage("d.img", &flipped(20));
    place.fails(1, "drive info damaged", &["header is damaged"]);
    damage("d.img", &|bytes| bytes.truncate(1 << 20));
    place.fails(1, "drive info damaged", &["cut off"]);
    // The keys that were there before all this still work.
    place.ok(&format!("put d.img {multiply}"));
    place.ok("put d.img three.ct --as cor:0:1");
}

#[test]
fn an_image_has_one_drive_at_a_time() {
    let place = Place::prepared("second-half");
    let held = toroid_drive::image::Image::open(&place.path("d.img")).unwrap();
    for line in [
        "put d.img three.ct --as cor:0:1",
        "get d.img cor:0:1 --out x.ct",
        "drive info d.img",
        "drive format d.img --force",
    ] {
        place.fails(1, line, &["d.img is in use by another drive"]);
    }
    drop(held);
    place.ok("put d.img three.ct --as cor:0:1");
}

/// The program as one whom the modes of files bind: root without its capabilities, if we are root.
#[cfg(unix)]
fn bound_by_modes(place: &Place, line: &str) -> Option<Command> {
    let setpriv = ["--bounding-set=-all", "--inh-caps=-all"];
    fs::write(place.path("sealed"), "").unwrap();
    fs::set_permissions(place.path("sealed"), fs::Permissions::from_mode(0o444)).unwrap();
    for wrapped in [false, true] {
        let wrap = |program: &str| {
            let mut command = Command::new(if wrapped { "setpriv" } else { program });
            if wrapped {
                command.args(setpriv).arg(program);
            }
            command.current_dir(place.path("")).stderr(Stdio::piped());
            command
        };
        let mut probe = wrap("sh");
        let probed = probe.args(["-c", "! true 2>/dev/null >>sealed"]).status();
        if probed.is_ok_and(|status| status.success()) {
            let mut command = wrap(env!("CARGO_BIN_EXE_toroid"));
            command.args(line.split_whitespace());
            return Some(command);
        }
    }
    None
}

#[cfg(unix)]
#[test]
fn an_image_is_shown_without_permission_to_write_it() {
    for metadata in ["second-half", "nvme"] {
        let place = Place::prepared(metadata);
        place.ok("put d.img three.ct --as cor:0:1");
        let image = place.path("d.img");
        // A copy of the store's super block that its next mount mends.
        let file = fs::OpenOptions::new().write(true).open(&image).unwrap();
        file.write_all_at(&[0xFF; 64], 2 * 4096).unwrap();
        drop(file);
        fs::set_permissions(&image, fs::Permissions::from_mode(0o444)).unwrap();
        let before = (
            fs::read(&image).unwrap(),
            fs::metadata(&image).unwrap().modified().unwrap(),
        );
        let run = |line: &str| {
            let mut command = bound_by_modes(&place, line)?;
            Some(Said::from(command.output().unwrap()))
        };
        let Some(refused) = run("put d.img three.ct --as cor:0:2") else {
            eprintln!("the modes of files do not bind us: not tested");
            return;
        };
        assert_eq!(refused.code, Some(1), "{}", refused.err);
        for line in [
            "drive info d.img",
            "drive map d.img",
            "drive map d.img cor:0:1",
        ] {
            let said = run(line).unwrap();
            assert_eq!(said.code, Some(0), "{line}: {}", said.err);
            assert!(said.out.contains("cor:0:1"), "{line}: {}", said.out);
        }
        let after = (
            fs::read(&image).unwrap(),
            fs::metadata(&image).unwrap().modified().unwrap(),
        );
        assert!(before == after);
    }
}

/// What the folder's image holds, and that nothing is beside the place's files.
#[cfg(unix)]
fn check_image(place: &Place, names: &[&str]) -> usize {
    let mut found: Vec<_> = fs::read_dir(place.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "config")
        .collect();
    found.sort();
    assert_eq!(found, names);
    place.registers("d.img").len()
}

#[cfg(unix)]
#[test]
fn a_format_without_room_leaves_the_image_that_was_there() {
    let place = Place::new();
    place.ok("drive format d.img --size 8MiB --swap 1MiB");
    place.ok("keys generate --params tiny --unencrypted");
    place.ok("put d.img keys/key-switching.key");
    // No file of more than 16 MiB, by the shell. Without the trap a signal would end the program.
    let script = format!(
        "trap '' XFSZ; ulimit -f 32768; exec {} drive format d.img --force --size 64MiB",
        env!("CARGO_BIN_EXE_toroid")
    );
    let said = Command::new("bash")
        .args(["-c", &script])
        .current_dir(place.path(""))
        .output()
        .unwrap();
    let said = Said::from(said);
    assert_eq!(said.code, Some(1), "{}{}", said.out, said.err);
    assert!(said.err.contains("d.img"), "{}", said.err);
    assert_eq!(check_image(&place, &["d.img", "keys"]), 1);
    place.ok("drive format d.img --force --size 8MiB");
    assert_eq!(check_image(&place, &["d.img", "keys"]), 0);
}

#[cfg(unix)]
#[test]
fn a_format_that_is_killed_leaves_an_image() {
    let place = Place::new();
    place.ok("drive format d.img --size 8MiB --swap 1MiB");
    place.ok("keys generate --params tiny --unencrypted");
    for milliseconds in [0, 1, 2, 3, 5, 8, 13, 21] {
        place.ok("put d.img keys/key-switching.key");
        let mut child = place
            .command("drive format d.img --force --size 8MiB --swap 1MiB")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        // The old one with all that it held, or the new one.
        let held = place.registers("d.img").len();
        assert!(held == 0 || !ended.success(), "a new image holds something");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_leaves_no_half_file() {
    let place = Place::new();
    // A key of a gigabyte: far more work than the time to the signal.
    let child = place
        .command("keys generate --unencrypted --params message7")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let keys = place.path("keys");
    let begun = || fs::read_dir(&keys).is_ok_and(|mut files| files.next().is_some());
    while !begun() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let signalled = Command::new("sh")
        .args(["-c", &format!("kill -INT {}", child.id())])
        .status()
        .unwrap();
    assert!(signalled.success());
    let said = Said::from(child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{}", said.err);
    assert!(said.err.contains("cancelled"), "{}", said.err);
    assert_eq!(fs::read_dir(&keys).unwrap().count(), 0);
}
