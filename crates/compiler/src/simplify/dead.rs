//! Statements that no output needs leave. Inputs stay: they are what callers see.

use toroid_task::CancelToken;

use super::Rewrite;
use crate::error::Error;
use crate::graph::{Graph, Op};

pub(super) fn dead(graph: &Graph, cancel: &CancelToken) -> Result<Graph, Error> {
    let mut needed = vec![false; graph.len()];
    for output in graph.outputs() {
        needed[output.node.index()] = true;
    }
    for node in graph.nodes().rev() {
        if needed[node.index()] {
            for operand in graph.op(node).operands() {
                needed[operand.index()] = true;
            }
        }
    }
    Rewrite::run(graph, cancel, |rewrite, node| {
        if !needed[node.index()] && !matches!(graph.op(node), Op::Input { .. }) {
            return Ok(None);
        }
        let op = rewrite.op(node)?;
        rewrite.add(op).map(Some)
    })
}
