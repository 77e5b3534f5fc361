//! Equal statements become one, and so do linear combinations of linear combinations.

use std::collections::HashMap;

use super::{Rewrite, Sum, uses};
use crate::error::Error;
use crate::graph::{Comparison, Graph, Node, Op};

pub(super) fn merge(graph: &Graph) -> Result<Graph, Error> {
    let uses = uses(graph);
    let mut known: HashMap<Op, Node> = HashMap::new();
    Rewrite::run(graph, |rewrite, node| {
        let op = match graph.op(node) {
            Op::Linear { .. } => match flat(rewrite, node, &uses) {
                Some(op) => op,
                None => rewrite.op(node)?,
            },
            _ => ordered(rewrite.op(node)?),
        };
        if let Some(made) = known.get(&op) {
            return Ok(Some(*made));
        }
        let made = rewrite.add(op.clone())?;
        known.insert(op, made);
        Ok(Some(made))
    })
}

/// The operation with exchangeable operands in their order.
fn ordered(op: Op) -> Op {
    let sort = |x: Node, y: Node| (x.min(y), x.max(y));
    match op {
        Op::Multiply(x, y) => {
            let (x, y) = sort(x, y);
            Op::Multiply(x, y)
        }
        Op::Min(x, y) => {
            let (x, y) = sort(x, y);
            Op::Min(x, y)
        }
        Op::Max(x, y) => {
            let (x, y) = sort(x, y);
            Op::Max(x, y)
        }
        Op::Bits(operation, x, y) => {
            let (x, y) = sort(x, y);
            Op::Bits(operation, x, y)
        }
        Op::Compare(comparison @ (Comparison::Equal | Comparison::NotEqual), x, y) => {
            let (x, y) = sort(x, y);
            Op::Compare(comparison, x, y)
        }
        op => op,
    }
}

/// A linear combination with its terms taken apart that are linear combinations: those that nothing else uses, and those that cancel with
/// others. A sum that several use is made once.
fn flat(rewrite: &Rewrite<'_>, node: Node, uses: &[u32]) -> Option<Op> {
    let Op::Linear { terms, constant } = rewrite.old.op(node) else {
        return None;
    };
    let mut sum = Sum {
        terms: Vec::new(),
        constant: *constant,
    };
    let mut shared = Vec::new();
    for (term, weight) in terms {
        let made = rewrite.at(*term).ok()?;
        let parts = Sum::of(&rewrite.new, made);
        if uses[term.index()] == 1 || parts.terms.len() <= 1 {
            sum = sum.plus(&parts, *weight)?;
        } else {
            shared.push((made, *weight, parts));
        }
    }
    for (made, weight, parts) in shared {
        let whole = Sum {
            terms: vec![(made, 1)],
            constant: 0,
        };
        let (apart, together) = (sum.plus(&parts, weight)?, sum.plus(&whole, weight)?);
        sum = if apart.terms.len() < together.terms.len() {
            apart
        } else {
            together
        };
    }
    // Numbers in between may exceed what a graph has.
    sum.interval(&rewrite.new)?;
    Some(sum.op())
}
