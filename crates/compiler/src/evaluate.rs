//! What a graph means, in clear: the oracle of the passes and of compiled programs.

use std::collections::BTreeMap;

use toroid_task::CancelToken;

use crate::error::Error;
use crate::graph::{Graph, Node, Op};

/// What a statement computes from the values of its operands, which lie in their intervals.
///
/// An input has no operands: its value comes from outside.
pub(crate) fn apply(graph: &Graph, op: &Op, value: impl Fn(Node) -> i128) -> i128 {
    match *op {
        Op::Input { interval, .. } => interval.low,
        Op::Constant(constant) => constant,
        Op::Linear {
            ref terms,
            constant,
        } => terms
            .iter()
            .fold(constant, |sum, &(node, weight)| sum + weight * value(node)),
        Op::Multiply(x, y) => value(x) * value(y),
        Op::Divide(x, divisor) => value(x).div_euclid(divisor),
        Op::Remainder(x, divisor) => value(x).rem_euclid(divisor),
        Op::Compare(comparison, x, y) => comparison.holds(value(x), value(y)).into(),
        Op::Min(x, y) => value(x).min(value(y)),
        Op::Max(x, y) => value(x).max(value(y)),
        Op::Absolute(x) => value(x).abs(),
        Op::Select(d, x, y) => value(if value(d) == 1 { x } else { y }),
        Op::Bits(operation, x, y) => operation.apply(value(x), value(y)),
        Op::Wrap(x, width) => width.wrap(value(x)),
        Op::Table(x, ref entries) => entries[(value(x) - graph.interval(x).low) as usize],
        Op::Table2(x, y, ref entries) => {
            let row = (value(x) - graph.interval(x).low) as usize;
            let place = (value(y) - graph.interval(y).low) as usize;
            entries[row * graph.interval(y).count() as usize + place]
        }
        Op::Sum(x) => value(x),
    }
}

impl Graph {
    /// The outputs for one row of inputs; sums are those of this row.
    ///
    /// # Errors
    /// An input that is missing, unknown, or outside its interval.
    pub fn evaluate(&self, inputs: &BTreeMap<&str, i128>) -> Result<BTreeMap<String, i128>, Error> {
        let columns = inputs
            .iter()
            .map(|(&name, value)| (name, std::slice::from_ref(value)))
            .collect();
        self.check_inputs(&columns)?;
        let mut values: Vec<i128> = Vec::with_capacity(self.len());
        for node in self.nodes() {
            let op = self.op(node);
            values.push(match op {
                Op::Input { name, .. } => inputs[&**name],
                _ => apply(self, op, |node| values[node.index()]),
            });
        }
        let outputs = self.outputs().iter();
        Ok(outputs
            .map(|output| (output.name.to_string(), values[output.node.index()]))
            .collect())
    }

    /// The outputs for columns of inputs, which all have equally many rows; a sum has one row.
    ///
    /// # Errors
    /// An input that is missing, unknown, or outside its interval; columns of different lengths; a sum that exceeds 2^127.
    pub fn evaluate_columns(
        &self,
        columns: &BTreeMap<&str, &[i128]>,
    ) -> Result<BTreeMap<String, Vec<i128>>, Error> {
        self.evaluate_columns_until(columns, &CancelToken::new())
    }

    /// As [`evaluate_columns`](Graph::evaluate_columns), until the token is cancelled.
    ///
    /// # Errors
    /// As [`evaluate_columns`](Graph::evaluate_columns), and that it was cancelled.
    pub fn evaluate_columns_until(
        &self,
        columns: &BTreeMap<&str, &[i128]>,
        cancel: &CancelToken,
    ) -> Result<BTreeMap<String, Vec<i128>>, Error> {
        let rows = self.check_inputs(columns)?;
        let mut results: Vec<Vec<i128>> = vec![Vec::new(); self.outputs().len()];
        let mut values: Vec<i128> = vec![0; self.len()];
        for row in 0..rows {
            cancel.check()?;
            let inputs: BTreeMap<&str, i128> = columns
                .iter()
                .map(|(&name, column)| (name, column[row]))
                .collect();
            for node in self.nodes() {
                let op = self.op(node);
                values[node.index()] = match op {
                    Op::Input { name, .. } => inputs[&**name],
                    _ => apply(self, op, |node| values[node.index()]),
                };
            }
            for (output, result) in self.outputs().iter().zip(&mut results) {
                let value = values[output.node.index()];
                match (self.op(output.node), result.first_mut()) {
                    (Op::Sum(_), Some(sum)) => {
                        *sum = sum
                            .checked_add(value)
                            .ok_or_else(|| self.error(output.node, "the sum exceeds 2^127"))?;
                    }
                    _ => result.push(value),
                }
            }
        }
        let names = self.outputs().iter().map(|output| output.name.to_string());
        Ok(names.zip(results).collect())
    }

    /// Checks columns of inputs; returns their length, 1 without inputs.
    fn check_inputs(&self, columns: &BTreeMap<&str, &[i128]>) -> Result<usize, Error> {
        if let Some(name) = columns.keys().find(|name| self.find_input(name).is_none()) {
            return Err(Error::new(format!("the graph has no input `{name}`")));
        }
        let mut rows = None;
        for (name, node) in self.inputs() {
            let error = |message: String| self.error(node, message);
            let Some(column) = columns.get(name) else {
                return Err(error(format!("input `{name}` has no value")));
            };
            if rows.is_some_and(|rows| rows != column.len()) {
                return Err(error("the columns differ in their lengths".to_owned()));
            }
            rows = Some(column.len());
            let interval = self.interval(node);
            if let Some(value) = column.iter().find(|&&value| !interval.contains(value)) {
                return Err(error(format!("input `{name}` is {value}"))
                    .with_operand(name, interval)
                    .with_help("give the input a wider interval, or check the values"));
            }
        }
        Ok(rows.unwrap_or(1))
    }
}
