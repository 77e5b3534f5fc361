//! `toroid compile` as users of the program meet it.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::fs;
use std::process::Stdio;

use common::{Place, Said};
use toroid_compiler::Compiled;

const GRAPH: &str = "
input x: 0..15
input y: -8..7
larger = max(x, y)
odd = larger % 2
output larger = larger
output odd = odd
";

impl Place {
    fn graph(&self, text: &str) {
        fs::write(self.path("g.graph"), text).unwrap();
    }
}

#[test]
fn what_is_compiled_runs_on_columns() {
    let place = Place::prepared("nvme");
    place.graph(GRAPH);
    let value = place.json("compile g.graph --params tiny --log2-failure -40");
    let compiled: Compiled = serde_json::from_value(value).unwrap();
    let text = place.ok("compile g.graph --params tiny --log2-failure -40");
    for words in [
        "; tiny: ",
        " s on one core; failure 2^-",
        "; input x, 0..15: in0_0 has 4 bits from bit 0 on",
        "; input y, -8..7: in1_0 has 4 bits with a sign from bit 0 on",
        "; output larger: ",
        "    ; g.graph:4: larger",
    ] {
        assert!(text.contains(words), "{words:?} is not in\n{text}");
    }
    fs::write(place.path("p.tasm"), &text).unwrap();
    place.ok("asm p.tasm --params tiny");
    let (x, y): (Vec<i64>, Vec<i64>) = (vec![0, 15, 3, 0], vec![-8, 7, 5, 0]);
    for (name, numbers, sign) in [("x", &x, "--unsigned"), ("y", &y, "")] {
        let lines: Vec<String> = numbers.iter().map(i64::to_string).collect();
        fs::write(place.path("numbers"), lines.join("\n")).unwrap();
        place.ok(&format!("column put d.img {name} numbers {sign}"));
    }
    place.ok("map d.img p.tasm --input in0_0=x --input in1_0=y --output z");
    let got = place.json("column get d.img z");
    let rows = got["rows"].as_array().unwrap().iter();
    let rows: Vec<i64> = rows.map(|row| row.as_i64().unwrap()).collect();
    let outputs = compiled.decode(&rows, 4).unwrap();
    assert_eq!(outputs["larger"], [0, 15, 5, 0]);
    assert_eq!(outputs["odd"], [0, 1, 1, 0]);
}

#[test]
fn the_cheapest_set_is_taken_and_the_others_are_listed() {
    let place = Place::new();
    place.graph("input x: 0..15\ny = table(x, [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3])\noutput y = y\n");
    let value = place.json("compile g.graph");
    let alternatives = value["alternatives"].as_array().unwrap();
    let seconds = |cost: &serde_json::Value| cost["seconds_per_row"].as_f64();
    let least = alternatives
        .iter()
        .filter_map(|each| seconds(&each["cost"]));
    assert_eq!(alternatives.len(), 4);
    assert_eq!(seconds(&value["cost"]), least.min_by(f64::total_cmp));
    assert!(value["cost"]["log2_failure"].as_f64().unwrap() <= -128.0);
    let text = place.ok("compile g.graph");
    for each in alternatives {
        let set = each["set"].as_str().unwrap();
        assert!(
            text.contains(&format!("; {set}")),
            "{set} is not in\n{text}"
        );
    }
    // As it is written it takes more functions.
    place.graph("input x: 0..15\na = x * x\nb = a % 13\nc = b * x\nd = c % 16\noutput d = d\n");
    let bootstraps = |options: &str| {
        let value = place.json(&format!("compile g.graph --params message8 {options}"));
        value["cost"]["bootstraps"].as_u64().unwrap()
    };
    assert_eq!((bootstraps("--as-written"), bootstraps("")), (4, 1));
}

#[test]
fn errors_name_the_line_of_the_file() {
    let place = Place::new();
    place.graph("input x: 0..15\ny = x / 3\noutput y = y\n");
    place.fails(1, "compile g.graph", &["g.graph:2: ", "'/'"]);
    place.graph("input x: 0..15\ny = x @ \"pay.py\":12\nz = x // 0 @ \"pay.py\":13\n");
    place.fails(
        1,
        "compile g.graph",
        &["pay.py:13: ", "divide by a positive integer"],
    );
    // What only a parameter set refuses has a line too.
    place.graph("input x: 0..65535\n\ny = table(x, x, [1])\noutput y = y\n");
    place.fails(1, "compile g.graph", &["g.graph:3: "]);
    place.graph("input x: 0..1023\nz = x // 1009\noutput z = z\n");
    let words = ["g.graph:2: ", "no way is known", "divide by a power of two"];
    place.fails(1, "compile g.graph --params message4", &words);
    place.graph("input x: 0..15\n");
    place.fails(
        1,
        "compile g.graph",
        &["g.graph:1: the graph has no output"],
    );
    place.fails(1, "compile none.graph", &["none.graph"]);
    place.fails(2, "compile g.graph --log2-failure 3", &["no probability"]);
    place.fails(2, "compile g.graph --params nothing", &["nothing"]);
}

#[test]
fn a_graph_comes_from_the_standard_input_too() {
    let place = Place::new();
    place.graph(GRAPH);
    let file = fs::File::open(place.path("g.graph")).unwrap();
    let mut command = place.command("compile - --params tiny --log2-failure -40");
    let said: Said = command.stdin(Stdio::from(file)).output().unwrap().into();
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(
        said.out.contains("; standard input:4: larger"),
        "{}",
        said.out
    );
}
