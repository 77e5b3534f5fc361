//! Comparisons and sums in terms of the same differences, so that what depends on one of them alone becomes a table of it.
//!
//! `x < y`, `y <= x` and `3*x - 3*y + 1` depend on `x - y` alone. Where functions read it, the comparisons become tables of it and the sum a multiple.

use std::collections::HashMap;

use toroid_task::CancelToken;

use super::{Rewrite, Sum};
use crate::error::Error;
use crate::graph::{Graph, Node, Op};

/// Bases that the new graph has, by their terms.
type Bases = HashMap<Vec<(Node, i128)>, Node>;

pub(super) fn differences(graph: &Graph, bits: u32, cancel: &CancelToken) -> Result<Graph, Error> {
    let mut bases = Bases::new();
    Rewrite::run(graph, cancel, |rewrite, node| {
        let op = rewrite.op(node)?;
        let made = match op {
            Op::Compare(comparison, x, y) => {
                let is_known = |node: Node| matches!(rewrite.new.op(node), Op::Constant(_));
                let difference = Sum::difference(&rewrite.new, x, y);
                match difference {
                    Some(sum) if sum.terms.len() > 1 || !(is_known(x) || is_known(y)) => {
                        let holds = |value: i128| i128::from(comparison.holds(value, 0));
                        of_base(
                            rewrite,
                            &mut bases,
                            (&sum, bits),
                            |base, weight, constant, graph| {
                                let interval = graph.interval(base);
                                let values = interval.low..=interval.high;
                                let values = values.map(|value| holds(weight * value + constant));
                                graph.add(Op::Table(base, values.collect()))
                            },
                        )?
                    }
                    _ => None,
                }
            }
            Op::Linear {
                ref terms,
                constant,
            } if terms.len() > 1 => {
                let sum = Sum {
                    terms: terms.clone(),
                    constant,
                };
                of_base(
                    rewrite,
                    &mut bases,
                    (&sum, bits),
                    |base, weight, constant, graph| graph.linear([(base, weight)], constant),
                )?
            }
            _ => None,
        };
        match made {
            Some(made) => Ok(Some(made)),
            None => rewrite.add(op).map(Some),
        }
    })
}

/// What `make` adds for a sum that is weight·base + constant, where the base is one without a factor that all terms have, if functions read it.
fn of_base(
    rewrite: &mut Rewrite<'_>,
    bases: &mut Bases,
    (sum, bits): (&Sum, u32),
    make: impl FnOnce(Node, i128, i128, &mut Graph) -> Result<Node, Error>,
) -> Result<Option<Node>, Error> {
    let Some(&(_, first)) = sum.terms.first() else {
        return Ok(None);
    };
    let weights = sum.terms.iter().map(|(_, weight)| weight.unsigned_abs());
    let Ok(factor) = i128::try_from(weights.fold(0, gcd)) else {
        return Ok(None);
    };
    let weight = factor * first.signum();
    let base = Sum {
        terms: sum.terms.iter().map(|&(n, of)| (n, of / weight)).collect(),
        constant: 0,
    };
    match base.interval(&rewrite.new) {
        Some(interval) if interval.bits() <= bits => {}
        _ => return Ok(None),
    }
    let base = match bases.get(&base.terms) {
        Some(known) => *known,
        None => {
            let terms = base.terms.clone();
            let made = rewrite.add(base.op())?;
            bases.insert(terms, made);
            made
        }
    };
    make(base, weight, sum.constant, &mut rewrite.new).map(Some)
}

/// The greatest common divisor.
fn gcd(x: u128, y: u128) -> u128 {
    let (mut x, mut y) = (x, y);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    x
}
