//! Passes on graphs: the meaning stays, and the programs get cheaper.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod random;

use std::collections::BTreeMap;

use random::{Random, random_graph, random_rows};
use toroid_compiler::{Compiled, Graph, Options, Pass, compile};

/// Asserts that two graphs have the same inputs and outputs with the same values for these rows, and that no output's interval is wider.
fn assert_same(before: &Graph, after: &Graph, columns: &BTreeMap<&str, Vec<i128>>, what: &str) {
    let interface = |graph: &Graph| -> Vec<String> {
        let inputs = graph.inputs();
        let inputs = inputs.map(|(name, node)| format!("{name}: {}", graph.interval(node)));
        let outputs = graph.outputs().iter();
        inputs
            .chain(outputs.map(|output| format!("{} {:?}", output.name, output.location)))
            .collect()
    };
    assert_eq!(interface(before), interface(after), "{what}");
    let columns = || columns.iter().map(|(name, rows)| (*name, rows.as_slice()));
    assert_eq!(
        before.evaluate_columns(&columns().collect()).unwrap(),
        after.evaluate_columns(&columns().collect()).unwrap(),
        "{what}\n{before}\n{after}"
    );
    for (old, new) in before.outputs().iter().zip(after.outputs()) {
        assert!(
            before.interval(old.node).includes(after.interval(new.node)),
            "{what}\n{before}\n{after}"
        );
    }
}

#[test]
fn passes_keep_the_meaning_of_random_graphs() {
    let mut random = Random(7);
    let mut changed: BTreeMap<String, usize> = BTreeMap::new();
    for case in 0..500_usize {
        let bits = [1, 2, 3, 4, 6, 8, 16, 48][case % 8];
        let graph = random_graph(&mut random, bits, 3 + case % 12);
        let rows = random_rows(&mut random, &graph, 40);
        for limit in [4, 8] {
            for pass in Pass::ALL {
                let after = pass.apply(&graph, limit).unwrap();
                assert_same(&graph, &after, &rows, &format!("{pass:?} {limit}"));
                if after != graph {
                    *changed.entry(format!("{pass:?}")).or_default() += 1;
                }
            }
            let after = graph.simplify(&Pass::ALL, limit);
            assert_same(&graph, &after, &rows, &format!("all {limit}"));
            // The text of what came out says the same.
            let read = Graph::parse(&after.to_string()).unwrap();
            assert_same(&graph, &read, &rows, "text");
        }
    }
    println!("{changed:?}");
    for pass in Pass::ALL {
        assert!(changed[&format!("{pass:?}")] > 20, "{pass:?} {changed:?}");
    }
}

/// The statements that a graph has after all passes, for functions of so many bits.
fn simplified(text: &str, bits: u32) -> String {
    let graph = Graph::parse(text).unwrap();
    graph.simplify(&Pass::ALL, bits).to_string()
}

#[test]
fn what_intervals_decide_is_no_statement() {
    for (text, expected) in [
        (
            "input x: 0..9\ny = x < 10\nz = select(y, x, 3)\noutput z = z",
            "input x: 0..9\noutput z = x\n",
        ),
        (
            "input x: 4..4\ninput y: 0..9\nz = x * y\nw = min(z, 40)\noutput w = w",
            "input x: 4..4\ninput y: 0..9\nz = 4*y\noutput w = z\n",
        ),
        (
            "input x: 0..300\ny = x // 1\nz = wrap(y, u9)\nw = z & 511\nv = w | 0\nu = abs(v)\noutput u = u",
            "input x: 0..300\noutput u = x\n",
        ),
        (
            "input x: 0..300\ninput d: 0..1\ny = x + 7\nz = select(d, y, x)\noutput z = z",
            "input x: 0..300\ninput d: 0..1\nz = x + 7*d\noutput z = z\n",
        ),
        (
            "input d: 0..1\ny = d == 0\nz = select(y, 20, 5)\noutput z = z",
            "input d: 0..1\nz = -15*d + 20\noutput z = z\n",
        ),
        (
            "input x: 0..300\ninput y: 0..300\nz = x - y\nw = z + y\nv = max(w, x)\noutput v = v",
            "input x: 0..300\ninput y: 0..300\noutput v = x\n",
        ),
        (
            "input x: 0..300\ninput y: 0..300\nd = y > x\nz = select(d, x, y)\noutput z = z",
            "input x: 0..300\ninput y: 0..300\nz = min(x, y)\noutput z = z\n",
        ),
        (
            "input x: 16..31\ny = x % 16\nz = table(y, [0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75])\noutput z = z",
            "input x: 16..31\nz = 5*x - 80\noutput z = z\n",
        ),
    ] {
        assert_eq!(simplified(text, 4), expected, "{text}");
    }
}

#[test]
fn a_line_through_entries_that_begins_beyond_all_numbers_stays_a_table() {
    let first = 1267650600228229401496703205375_i128;
    let text =
        format!("input x: 0..1\ny = x + {first}\nt = table(y, [134217728, 0])\noutput t = t");
    let graph = Graph::parse(&text).unwrap();
    let after = graph.simplify(&Pass::ALL, 8);
    assert_same(&graph, &after, &BTreeMap::from([("x", vec![0, 1])]), "all");
}

#[test]
fn equal_statements_and_chains_of_sums_become_one() {
    let text = "
        input x: 0..60000
        input y: 0..60000
        a = x * y
        b = y * x
        c = a + x
        d = c + 2*x
        e = d - b
        output e = e
        output a = a
        output b = b
    ";
    let expected = "input x: 0..60000\ninput y: 0..60000\na = x * y\ne = 3*x\noutput e = e\noutput a = a\noutput b = a\n";
    assert_eq!(simplified(text, 8), expected);
}

#[test]
fn regions_of_one_value_become_a_table_at_the_place_of_their_last_statement() {
    let text = r#"
        input x: -2..1            @ "f.py":1
        a = x * x                 @ "f.py":2
        b = a + 3*x               @ "f.py":3
        c = max(b, 0)             @ "f.py":4
        output c = c              @ "f.py":5
    "#;
    assert_eq!(
        simplified(text, 4),
        "input x: -2..1  @ \"f.py\":1\nc = table(x, [0, 0, 0, 4])  @ \"f.py\":4\noutput c = c  @ \"f.py\":5\n"
    );
    // A difference is one value too.
    let text = "
        input x: 0..2
        input y: 0..1
        less = x < y
        more = 3*x - 3*y
        d = select(less, 7, more)
        output d = d
    ";
    assert_eq!(
        simplified(text, 4),
        "input x: 0..2\ninput y: 0..1\nt2 = x - y\nd = table(t2, [7, 0, 3, 6])\noutput d = d\n"
    );
}

/// A program of the graph as it is written, and one of what the passes make of it.
fn programs(text: &str, set: &str) -> (Compiled, Compiled) {
    let graph = Graph::parse(text).unwrap();
    let with = |simplify: bool| {
        let options = Options {
            sets: vec![set.to_owned()],
            log2_failure: -30.0,
            simplify,
            ..Options::default()
        };
        compile(&graph, &options).unwrap()
    };
    (with(false), with(true))
}

#[test]
fn simplified_programs_have_fewer_functions() {
    let mut found = Vec::new();
    let mut expected = Vec::new();
    for (name, text, before, after) in [
        (
            "a polynomial of one number",
            "input x: 0..15\na = x * x\nb = a % 13\nc = b * x\nd = c % 16\noutput d = d",
            4,
            1,
        ),
        (
            "a bound of a difference",
            "input x: 0..60\ninput y: 0..60\nd = x - y\nm = abs(d)\nf = m < 3\ng = select(f, 0, m)\noutput g = g",
            3,
            1,
        ),
        (
            "a choice of constants",
            "input x: 0..100\ninput y: 0..100\nf = x < y\ng = select(f, 12, 200)\noutput g = g",
            2,
            1,
        ),
        (
            "two numbers of few bits",
            "input x: 0..15\ninput y: 0..15\na = x * y\nb = a & x\nc = b ^ y\nd = c // 3\noutput d = d",
            5,
            1,
        ),
        (
            "two names of one product",
            "input x: 0..200\ninput y: 0..200\na = x * y\nb = y * x\nc = a - b\nd = c + x\ne = d // 3\noutput e = e",
            44,
            1,
        ),
        (
            "nothing to save",
            "input x: 0..100\ninput y: 0..100\nd = min(x, y)\noutput d = d",
            1,
            1,
        ),
    ] {
        let (plain, simple) = programs(text, "message8");
        found.push((name, plain.cost.bootstraps, simple.cost.bootstraps));
        expected.push((name, before, after));
    }
    assert_eq!(found, expected);
}

#[test]
fn no_program_gets_dearer() {
    let mut random = Random(8);
    let mut cheaper = 0;
    for case in 0..60 {
        let graph = random_graph(&mut random, 4 + case % 5, 5);
        let with = |simplify: bool| {
            let options = Options {
                sets: vec!["tiny-wopbs".to_owned()],
                log2_failure: -30.0,
                simplify,
                ..Options::default()
            };
            compile(&graph, &options).map(|compiled| compiled.cost.seconds_per_row)
        };
        match (with(false), with(true)) {
            (Ok(plain), Ok(simple)) => {
                assert!(simple <= plain, "{graph}");
                cheaper += usize::from(simple < plain);
            }
            (plain, simple) => assert!(plain.is_err() || simple.is_ok(), "{graph}"),
        }
    }
    assert!(cheaper > 15, "{cheaper}");
}
