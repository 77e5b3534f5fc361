//! Arbitrary text is refused, or is a graph whose text says the same and whose simpler forms mean the same.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use toroid_compiler::{Graph, Pass};

/// Graphs of more statements are read, printed and evaluated, not simplified.
const MAX_SIMPLIFIED: usize = 64;

/// Bits of tables that statements become: each has up to 2^BITS entries.
const BITS: u32 = 5;

/// Values of every input: the bounds of its interval, and some in between.
fn columns(graph: &Graph, data: &[u8]) -> BTreeMap<String, Vec<i128>> {
    let mut bytes = data.iter().copied().chain(std::iter::repeat(91));
    let mut value = |low: i128, high: i128| {
        let number = (0..8).fold(0_i128, |number, _| {
            number << 8 | i128::from(bytes.next().unwrap_or(0))
        });
        low + number % (high - low + 1)
    };
    let inputs = graph.inputs().map(|(name, node)| {
        let interval = graph.interval(node);
        let (low, high) = (interval.low, interval.high);
        let rows = [low, high, value(low, high), value(low, high)];
        (name.to_owned(), rows.into())
    });
    inputs.collect()
}

/// What a graph says of these rows: its outputs, or that a sum is too large.
fn values(
    graph: &Graph,
    columns: &BTreeMap<String, Vec<i128>>,
) -> Option<BTreeMap<String, Vec<i128>>> {
    let columns = columns
        .iter()
        .map(|(name, rows)| (name.as_str(), rows.as_slice()));
    graph.evaluate_columns(&columns.collect()).ok()
}

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let graph = match Graph::parse(&text) {
        Ok(graph) => graph,
        Err(error) => {
            let lines = text.lines().count();
            let line = error.line.map(|line| line as usize);
            assert!(line.is_none_or(|line| (1..=lines).contains(&line)));
            assert!(!error.message.is_empty());
            return;
        }
    };
    let columns = columns(&graph, data);
    let expected = values(&graph, &columns);
    let printed = graph.to_string();
    let again = Graph::parse(&printed).unwrap();
    assert_eq!(again.to_string(), printed);
    assert_eq!(values(&again, &columns), expected);
    if graph.len() > MAX_SIMPLIFIED {
        return;
    }
    for pass in Pass::ALL {
        let changed = pass.apply(&graph, BITS).unwrap();
        assert_eq!(values(&changed, &columns), expected, "{pass:?}\n{printed}");
    }
    let simple = graph.simplify(&Pass::ALL, BITS);
    assert_eq!(values(&simple, &columns), expected, "{printed}\n{simple}");
    for (old, new) in graph.outputs().iter().zip(simple.outputs()) {
        assert!(graph.interval(old.node).includes(simple.interval(new.node)));
    }
});
