//! Graphs in text form: what their values may be, what they compute in clear, and the programs that they become. Options and compiled programs are
//! text in JSON, as `toroid_compiler` describes them.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use toroid_compiler::{Compiled, Error, Graph, Options};

use crate::failure::Failure;
use crate::{numbers, work};

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

/// A graph in text form that is still being written.
#[pyclass(module = "toroid._core")]
pub(crate) struct Statements {
    statements: toroid_compiler::Statements,
}

#[pymethods]
impl Statements {
    /// Reads the lines of a text.
    #[new]
    fn new(text: &str) -> PyResult<Statements> {
        let mut read = Statements {
            statements: toroid_compiler::Statements::default(),
        };
        read.add(text)?;
        Ok(read)
    }

    /// Reads further lines; those from a wrong one on do not count.
    fn add(&mut self, text: &str) -> PyResult<()> {
        Ok(self.statements.add(text).map_err(Failure::from)?)
    }

    /// The least and the greatest number that a value may be.
    fn interval(&self, value: &str) -> PyResult<(i128, i128)> {
        let interval = self.statements.interval(value).map_err(Failure::from)?;
        Ok((interval.low, interval.high))
    }

    /// The least and the greatest number that an output may be; of a sum those of a row.
    fn output_interval(&self, output: &str) -> PyResult<(i128, i128)> {
        let interval = self.statements.output_interval(output);
        let interval = interval.map_err(Failure::from)?;
        Ok((interval.low, interval.high))
    }
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
    let results = work::run(
        py,
        None,
        || {},
        |progress| {
            let graph = Graph::parse(graph)?;
            let columns = inputs.iter();
            let columns: BTreeMap<_, _> = columns
                .map(|(name, column)| (&name[..], &column[..]))
                .collect();
            Ok(graph.evaluate_columns_until(&columns, progress.cancel_token())?)
        },
    );
    let outputs = PyDict::new(py);
    for (name, column) in results? {
        outputs.set_item(name, column)?;
    }
    Ok(outputs)
}

/// Text in JSON as what it describes.
fn read<T: serde::de::DeserializeOwned>(what: &str, text: &str) -> Result<T, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::new("OptionError", format!("{what}: {error}")))
}

/// The program that a graph becomes, with the layouts of its inputs and outputs and what it costs.
#[pyfunction]
pub(crate) fn compile(py: Python<'_>, graph: &str, options: &str) -> PyResult<String> {
    let options: Options = read("options of a compilation", options)?;
    let compiled = work::run(
        py,
        None,
        || {},
        |progress| {
            let graph = Graph::parse(graph)?;
            Ok(toroid_compiler::compile_until(
                &graph,
                &options,
                progress.cancel_token(),
            )?)
        },
    )?;
    let text = serde_json::to_string(&compiled);
    Ok(text.map_err(|error| Failure::new("Error", error.to_string()))?)
}

/// The outputs of a compiled program from the numbers of its result, of as many rows of the inputs.
#[pyfunction]
pub(crate) fn decode<'py>(
    py: Python<'py>,
    compiled: &str,
    results: &Bound<'py, PyAny>,
    rows: u64,
) -> PyResult<Bound<'py, PyDict>> {
    let compiled: Compiled = read("a compiled program", compiled)?;
    let numbers = numbers::take(results)?;
    let decoded = compiled.decode(&numbers, rows).map_err(Failure::from)?;
    let outputs = PyDict::new(py);
    for (name, column) in decoded {
        outputs.set_item(name, column)?;
    }
    Ok(outputs)
}
