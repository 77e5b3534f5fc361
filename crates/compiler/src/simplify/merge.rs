//! Equal statements become one, and so do linear combinations of linear combinations.

use std::collections::HashMap;

use toroid_task::CancelToken;

use super::{Rewrite, Sum, uses};
use crate::error::Error;
use crate::graph::{Comparison, Graph, Node, Op};

/// The most sums in a sum of which it is looked whether they cancel with others.
const MOST_SHARED: usize = 16;

pub(super) fn merge(graph: &Graph, cancel: &CancelToken) -> Result<Graph, Error> {
    let uses = uses(graph);
    let mut known: HashMap<Op, Node> = HashMap::new();
    Rewrite::run(graph, cancel, |rewrite, node| {
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
    let mut all = Vec::with_capacity(terms.len());
    let mut shared = Vec::new();
    let mut known = *constant;
    for (term, weight) in terms {
        let made = rewrite.at(*term).ok()?;
        let parts = Sum::of(&rewrite.new, made);
        if uses[term.index()] == 1 || parts.terms.len() <= 1 {
            for (part, of_part) in &parts.terms {
                all.push((*part, of_part.checked_mul(*weight)?));
            }
            known = known.checked_add(parts.constant.checked_mul(*weight)?)?;
        } else {
            all.push((made, *weight));
            if shared.len() < MOST_SHARED {
                shared.push((made, *weight, parts));
            }
        }
    }
    let (terms, constant) = rewrite.new.in_order(all, known).ok()?;
    let mut sum = Sum { terms, constant };
    for (made, weight, parts) in shared {
        let whole = Sum {
            terms: vec![(made, 1)],
            constant: 0,
        };
        let apart = sum
            .plus(&whole, weight.checked_neg()?)?
            .plus(&parts, weight)?;
        if apart.terms.len() < sum.terms.len() {
            sum = apart;
        }
    }
    // Numbers in between may exceed what a graph has.
    sum.interval(&rewrite.new)?;
    Some(sum.op())
}
