//! Graphs in text form: what their values may be, and what they compute, in clear.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use toroid_compiler::{Error, Graph};

use crate::failure::Failure;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let mut failure = Failure::new("GraphError", error.to_string());
        if let Some(location) = &error.location {
            failure = failure.with("line", location.to_string());
        }
        if let [(_, interval), ..] = error.operands[..] {
            failure = failure.with("interval", interval.to_string());
        }
        match error.help {
            Some(help) => failure.with("help", help),
            None => failure,
        }
    }
}

/// The least and the greatest number that a value of a graph may be.
#[pyfunction]
pub(crate) fn interval(graph: &str, value: &str) -> PyResult<(i128, i128)> {
    let asked = format!("{graph}\noutput interval = {value}\n");
    let graph = Graph::parse(&asked).map_err(Failure::from)?;
    let interval = graph.outputs().last().map(|output| output.node);
    let interval = interval.map(|node| graph.interval(node));
    Ok(interval.map_or((0, 0), |interval| (interval.low, interval.high)))
}

/// What a graph computes of columns of plain numbers; a sum has one row.
#[pyfunction]
pub(crate) fn evaluate<'py>(
    py: Python<'py>,
    graph: &str,
    columns: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    let mut inputs: Vec<(String, Vec<i128>)> = Vec::with_capacity(columns.len());
    for (name, column) in columns {
        inputs.push((name.extract()?, column.extract()?));
    }
    let results = py.detach(|| {
        let graph = Graph::parse(graph)?;
        let columns = inputs.iter();
        let columns: BTreeMap<_, _> = columns
            .map(|(name, column)| (&name[..], &column[..]))
            .collect();
        graph.evaluate_columns(&columns)
    });
    let outputs = PyDict::new(py);
    for (name, column) in results.map_err(Failure::from)? {
        outputs.set_item(name, column)?;
    }
    Ok(outputs)
}
