//! Graphs: text, intervals, errors, meaning.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::collections::BTreeMap;

use toroid_compiler::{Graph, Interval, Statements};

const EVERYTHING: &str = r#"
    # every kind of statement
    input x: 0..15              @ "pay.py":12
    input y: -8..7
    input d: 0..1
    a = 3*x - y + 7             @ "pay \"q\" # \\.py":13
    b = a // 16
    c = a % 16
    e = x * y
    f = x < y
    g = x >= 3
    h = min(x, y)
    i = max(x, -2)
    j = abs(y)
    k = select(d, x, y)
    l = x & y
    m = x | y
    n = x ^ -1
    o = wrap(a, i4)
    p = table(y, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, -15])
    q = table(d, d, [1, 2, 3, 4])
    r = a >> 2
    s = a << 2
    t = y * 5
    u = -x
    v = x - x + 4
    w = sum(x)
    z = x == y
    min = x != y   # a name like a function's
    output a = a   @ "pay.py":90
    output b = b
    output c = c
    output e = e
    output f = f
    output g = g
    output h = h
    output i = i
    output j = j
    output k = k
    output l = l
    output m = m
    output n = n
    output o = o
    output p = p
    output q = q
    output r = r
    output s = s
    output t = t
    output u = u
    output v = v
    output w = w
    output z = z
    output min = min
    output five = 5
"#;

#[test]
fn every_statement_means_what_it_says() {
    let graph = Graph::parse(EVERYTHING).unwrap();
    let result = graph
        .evaluate(&BTreeMap::from([("x", 9), ("y", -3), ("d", 0)]))
        .unwrap();
    let expected = [
        ("a", 37),
        ("b", 2),
        ("c", 5),
        ("e", -27),
        ("f", 0),
        ("g", 1),
        ("h", -3),
        ("i", 9),
        ("j", 3),
        ("k", -3),
        ("l", 9),
        ("m", -3),
        ("n", -10),
        ("o", 5),
        ("p", 5),
        ("q", 1),
        ("r", 9),
        ("s", 148),
        ("t", -15),
        ("u", -9),
        ("v", 4),
        ("w", 9),
        ("z", 0),
        ("min", 1),
        ("five", 5),
    ];
    let expected: BTreeMap<_, _> = expected
        .map(|(name, value)| (name.to_owned(), value))
        .into();
    assert_eq!(result, expected);
}

#[test]
fn text_survives_a_round_trip() {
    let text = Graph::parse(EVERYTHING).unwrap().to_string();
    assert_eq!(Graph::parse(&text).unwrap().to_string(), text);
    assert!(
        text.contains(r#"a = 3*x - y + 7  @ "pay \"q\" # \\.py":13"#),
        "{text}"
    );
}

#[test]
fn intervals_are_tight_in_every_statement() {
    let graph = Graph::parse(EVERYTHING).unwrap();
    let mut hulls: BTreeMap<String, Interval> = BTreeMap::new();
    for x in 0..16 {
        for y in -8..8 {
            for d in 0..2 {
                let row = BTreeMap::from([("x", x), ("y", y), ("d", d)]);
                for (name, value) in graph.evaluate(&row).unwrap() {
                    let point = Interval::of(value).unwrap();
                    hulls
                        .entry(name)
                        .and_modify(|hull| *hull = hull.union(point))
                        .or_insert(point);
                }
            }
        }
    }
    for output in graph.outputs() {
        assert_eq!(
            graph.interval(output.node),
            hulls[&*output.name],
            "{}",
            output.name
        );
    }
}

#[test]
fn errors_name_the_line_the_interval_and_what_would_help() {
    for (text, expected) in [
        (
            "x = 3",
            "the graph has no output\n  help: write output NAME = VALUE",
        ),
        (
            "input x: 0..5 @ \"a.py\":3\ny = select(x, 1, 2) @ \"a.py\":4",
            "a.py:4: the condition of a selection is not 0 or 1\n  x is 0..5\n  help: compare: x != 0",
        ),
        (
            "input x: 0..5\ny = table(x, [1])",
            "line 2: the table has 1 entries, and the arguments have 6 values\n  x is 0..5\n  help: give one entry for each value of the interval, from the lowest",
        ),
        (
            "input x: 5..0",
            "line 1: 5..0 is no interval\n  help: write the lowest value first",
        ),
        (
            "input x: 0..5\ny = x // 0",
            "line 2: the divisor 0 is not from 1 to 2^100\n  x is 0..5\n  help: divide by a positive integer",
        ),
        (
            "input x: 0..5\ny = x*x + 1",
            "line 2: the statement ends before `+`\n  help: a statement has one operation, or is a sum of multiples by integers",
        ),
        (
            "input x: 0..18446744073709551615\ny = x*x",
            "line 2: the product can exceed 2^100\n  x is 0..18446744073709551615\n  x is 0..18446744073709551615\n  help: give the inputs narrower intervals, or wrap or divide the operands",
        ),
        (
            "input x: -1..9223372036854775808",
            "line 1: input `x` needs more than 64 bits\n  input `x` is -1..9223372036854775808\n  help: inputs and outputs lie in -2^63..2^63-1 or in 0..2^64-1; wrap or divide wider values, or give the inputs narrower intervals",
        ),
        (
            "input x: 0..5\ny = sum(x)\nz = y + 1",
            "line 3: a sum of rows is a result; no statement can use it\n  y is 0..5\n  help: make the sum an output, and compute on it when it is decrypted",
        ),
    ] {
        assert_eq!(
            Graph::parse(text).unwrap_err().to_string(),
            expected,
            "{text}"
        );
    }
}

#[test]
fn columns_give_what_rows_give() {
    let graph = Graph::parse(EVERYTHING).unwrap();
    let (x, y, d) = ([1, 15, 0], [-8, 7, 3], [0, 1, 1]);
    let columns = BTreeMap::from([("x", &x[..]), ("y", &y), ("d", &d)]);
    let results = graph.evaluate_columns(&columns).unwrap();
    assert_eq!(results["w"], [16]);
    for row in 0..3 {
        let row_inputs = BTreeMap::from([("x", x[row]), ("y", y[row]), ("d", d[row])]);
        for (name, value) in graph.evaluate(&row_inputs).unwrap() {
            if name != "w" {
                assert_eq!(results[&name][row], value, "{name}");
            }
        }
    }
    let error = graph
        .evaluate_columns(&BTreeMap::from([("x", &x[..]), ("y", &y[1..]), ("d", &d)]))
        .unwrap_err();
    assert!(
        error.to_string().contains("differ in their lengths"),
        "{error}"
    );
}

#[test]
fn values_of_texts_without_outputs_have_intervals() {
    let mut statements = Statements::default();
    let text = "input x: -8..7\ninterval = x * x\nsame = interval\nlarge = 1267650600228229401496703205376\n";
    statements.add(text).unwrap();
    let shown =
        |statements: &Statements, name: &str| statements.interval(name).map(|i| i.to_string());
    assert_eq!(shown(&statements, "x").unwrap(), "-8..7");
    assert_eq!(shown(&statements, "interval").unwrap(), "0..64");
    assert_eq!(shown(&statements, "same").unwrap(), "0..64");
    assert!(shown(&statements, "large").is_ok());
    let error = shown(&statements, "y").unwrap_err();
    assert!(error.message.contains("defines `y`"));
    // A statement that is wrong leaves the values as they are.
    for wrong in ["z = x +", "x = 3", "x = x + 1\nz = x"] {
        assert_eq!(statements.add(wrong).unwrap_err().line, Some(5), "{wrong}");
    }
    assert!(statements.interval("z").is_err());
    assert_eq!(shown(&statements, "x").unwrap(), "-8..7");
    let error = statements.add("z = x + 9999999999999999999999999999999999999999 @ \"pay.py\":12");
    assert_eq!(
        error.unwrap_err().to_string(),
        "pay.py:12: a number exceeds 2^100"
    );
    statements.add("z = x + 1").unwrap();
    assert_eq!(shown(&statements, "z").unwrap(), "-7..8");
    assert_eq!(statements.add("z = x + 1").unwrap_err().line, Some(6));
    statements.add("output x = z").unwrap();
    assert_eq!(
        statements.output_interval("x").unwrap().to_string(),
        "-7..8"
    );
    assert!(statements.output_interval("z").is_err());
}
