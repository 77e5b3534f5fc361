//! What intervals decide: constants, comparisons, choices, bounds that do not bind, and tables that are linear.

use toroid_task::CancelToken;

use super::{Rewrite, Sum};
use crate::error::Error;
use crate::graph::{BitOperation, Comparison, Graph, Node, Op, Width};
use crate::interval::Interval;

pub(super) fn fold(graph: &Graph, cancel: &CancelToken) -> Result<Graph, Error> {
    Rewrite::run(graph, cancel, |rewrite, node| {
        let op = rewrite.op(node)?;
        let interval = rewrite.new.check(&op)?;
        let known = interval.constant();
        let made = match (op, known) {
            // The input stays for callers; what uses it takes its only value.
            (op @ Op::Input { .. }, Some(value)) => {
                rewrite.add(op)?;
                rewrite.new.constant(value)?
            }
            (op @ (Op::Input { .. } | Op::Sum(_)), _) => rewrite.add(op)?,
            (_, Some(value)) => rewrite.new.constant(value)?,
            (op, None) => match folded(&rewrite.new, &op) {
                Some(Folded::Value(made)) => made,
                Some(Folded::Op(other)) => {
                    // A sum on the way may exceed what a graph has.
                    let narrower = rewrite.new.check(&other);
                    let is_narrower = narrower.is_ok_and(|narrower| interval.includes(narrower));
                    rewrite.add(if is_narrower { other } else { op })?
                }
                None => rewrite.add(op)?,
            },
        };
        Ok(Some(made))
    })
}

/// What an operation is instead.
enum Folded {
    Value(Node),
    Op(Op),
}

/// weight·x + constant.
fn linear(x: Node, weight: i128, constant: i128) -> Folded {
    Folded::Op(match weight {
        0 => Op::Constant(constant),
        _ => Op::Linear {
            terms: vec![(x, weight)],
            constant,
        },
    })
}

fn folded(graph: &Graph, op: &Op) -> Option<Folded> {
    let of = |node: Node| graph.interval(node);
    let difference = |x: Node, y: Node| Sum::difference(graph, x, y)?.interval(graph);
    match *op {
        Op::Divide(x, 1) => Some(Folded::Value(x)),
        // Within one period the remainder is the number less a constant.
        Op::Remainder(x, divisor) => {
            let periods = of(x).divide(divisor).constant()?;
            Some(linear(x, 1, periods.checked_mul(-divisor)?))
        }
        Op::Wrap(x, width) => wrap(graph, x, width),
        Op::Compare(comparison, x, y) => {
            let values = difference(x, y)?;
            let decided = decide(comparison, values);
            if let Some(holds) = decided {
                return Some(Folded::Op(Op::Constant(i128::from(holds))));
            }
            // A number that has two values in all is compared for free.
            let sum = Sum::difference(graph, x, y)?;
            match sum.terms[..] {
                [(node, weight)] => {
                    let value = |value: i128| {
                        let value = weight.checked_mul(value)?.checked_add(sum.constant)?;
                        Some(i128::from(comparison.holds(value, 0)))
                    };
                    two_values(graph, node, value)
                }
                _ => None,
            }
        }
        Op::Min(x, y) | Op::Max(x, y) if x == y => Some(Folded::Value(x)),
        Op::Min(x, y) => match difference(x, y)? {
            Interval { high, .. } if high <= 0 => Some(Folded::Value(x)),
            Interval { low, .. } if low >= 0 => Some(Folded::Value(y)),
            _ => None,
        },
        Op::Max(x, y) => match difference(x, y)? {
            Interval { high, .. } if high <= 0 => Some(Folded::Value(y)),
            Interval { low, .. } if low >= 0 => Some(Folded::Value(x)),
            _ => None,
        },
        Op::Absolute(x) if of(x).low >= 0 => Some(Folded::Value(x)),
        Op::Absolute(x) if of(x).high <= 0 => Some(linear(x, -1, 0)),
        Op::Select(d, x, y) => select(graph, d, x, y),
        Op::Bits(operation, x, y) => bits(graph, operation, x, y),
        Op::Table(x, ref entries) => {
            let first = *entries.first()?;
            let step = entries.get(1)?.checked_sub(first)?;
            let mut pairs = entries.windows(2);
            if !pairs.all(|pair| pair[1] - pair[0] == step) {
                return None;
            }
            Some(linear(
                x,
                step,
                first.checked_sub(step.checked_mul(of(x).low)?)?,
            ))
        }
        Op::Table2(x, y, ref entries) => {
            if of(y).constant().is_some() {
                Some(Folded::Op(Op::Table(x, entries.clone())))
            } else if of(x).constant().is_some() {
                Some(Folded::Op(Op::Table(y, entries.clone())))
            } else {
                None
            }
        }
        _ => None,
    }
}

/// Whether a comparison with zero holds for all of these numbers or for none.
fn decide(comparison: Comparison, values: Interval) -> Option<bool> {
    let Interval { low, high } = values;
    match comparison {
        Comparison::Less if high < 0 => Some(true),
        Comparison::Less if low >= 0 => Some(false),
        Comparison::LessEqual if high <= 0 => Some(true),
        Comparison::LessEqual if low > 0 => Some(false),
        Comparison::Equal if low > 0 || high < 0 => Some(false),
        Comparison::NotEqual if low > 0 || high < 0 => Some(true),
        _ => values.constant().map(|value| comparison.holds(value, 0)),
    }
}

/// A function of a number that has two values, which is always linear.
fn two_values(
    graph: &Graph,
    node: Node,
    function: impl Fn(i128) -> Option<i128>,
) -> Option<Folded> {
    let Interval { low, high } = graph.interval(node);
    if high - low != 1 {
        return None;
    }
    let (first, second) = (function(low)?, function(high)?);
    let step = second.checked_sub(first)?;
    Some(linear(
        node,
        step,
        first.checked_sub(step.checked_mul(low)?)?,
    ))
}

fn wrap(graph: &Graph, x: Node, width: Width) -> Option<Folded> {
    let (interval, target) = (graph.interval(x), width.interval());
    let count = 1_i128 << width.bits();
    let shifted = Interval {
        low: interval.low - target.low,
        high: interval.high - target.low,
    };
    if let Some(periods) = shifted.divide(count).constant() {
        return Some(linear(x, 1, periods.checked_mul(-count)?));
    }
    match *graph.op(x) {
        Op::Wrap(inner, other) if other.bits() >= width.bits() => {
            Some(Folded::Op(Op::Wrap(inner, width)))
        }
        _ => None,
    }
}

fn select(graph: &Graph, d: Node, x: Node, y: Node) -> Option<Folded> {
    if let Some(chosen) = graph.interval(d).constant() {
        return Some(Folded::Value(if chosen == 1 { x } else { y }));
    }
    // y + k·d where the two differ by a constant.
    let difference = Sum::difference(graph, x, y)?;
    if difference.terms.is_empty() {
        let choice = Sum {
            terms: vec![(d, 1)],
            constant: 0,
        };
        let base = Sum {
            terms: vec![(y, 1)],
            constant: 0,
        };
        let base = match *graph.op(y) {
            Op::Constant(_) => Sum::of(graph, y),
            _ => base,
        };
        return Some(Folded::Op(base.plus(&choice, difference.constant)?.op()));
    }
    match *graph.op(d) {
        Op::Compare(Comparison::Less | Comparison::LessEqual, a, b) => {
            if (a, b) == (x, y) {
                Some(Folded::Op(Op::Min(x, y)))
            } else if (a, b) == (y, x) {
                Some(Folded::Op(Op::Max(x, y)))
            } else {
                None
            }
        }
        _ => None,
    }
}

fn bits(graph: &Graph, operation: BitOperation, x: Node, y: Node) -> Option<Folded> {
    if x == y {
        return Some(match operation {
            BitOperation::And | BitOperation::Or => Folded::Value(x),
            BitOperation::Xor => Folded::Op(Op::Constant(0)),
        });
    }
    let (value, mask) = match (graph.interval(x).constant(), graph.interval(y).constant()) {
        (_, Some(mask)) => (x, mask),
        (Some(mask), _) => (y, mask),
        _ => return None,
    };
    let interval = graph.interval(value);
    match (operation, mask) {
        (BitOperation::And, -1) | (BitOperation::Or | BitOperation::Xor, 0) => {
            Some(Folded::Value(value))
        }
        (BitOperation::Xor, -1) => Some(linear(value, -1, -1)),
        // All bits that the number has are in the mask.
        (BitOperation::And, 1..)
            if (mask & (mask + 1)) == 0 && (Interval { low: 0, high: mask }).includes(interval) =>
        {
            Some(Folded::Value(value))
        }
        _ => None,
    }
}
