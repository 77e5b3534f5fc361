//! From a graph to one that means the same and takes fewer functions.
//!
//! A pass makes a graph anew, statement by statement. The new one has the same inputs and outputs, with the same values for every input; the
//! interval of a value never grows, and a table is cut to the values that its arguments still have.

mod dead;
mod differences;
mod fold;
mod fuse;
mod merge;
mod narrow;

pub(crate) use self::narrow::narrow;
use toroid_task::CancelToken;

use crate::error::Error;
use crate::graph::{Graph, MAX_TABLE_ENTRIES, Node, Op};
use crate::interval::Interval;

/// How often all passes run at most: each may leave work for those before it.
const ROUNDS: usize = 3;

/// A change of a graph that keeps its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// What intervals decide is computed: constants, comparisons, choices, bounds that do not bind.
    Fold,
    /// Equal statements become one, and so do linear combinations of linear combinations.
    Merge,
    /// Comparisons become tables of a difference, and sums multiples of one, where functions read it.
    Differences,
    /// All statements between one value and another that depends on nothing else become a table.
    FuseOne,
    /// All statements between two values and another that depends on nothing else become a table where they take several functions.
    FuseTwo,
    /// Statements that no output needs leave.
    Dead,
}

impl Pass {
    /// All passes, in the order in which [`simplify`](Graph::simplify) runs them.
    pub const ALL: [Pass; 6] = [
        Pass::Fold,
        Pass::Merge,
        Pass::Differences,
        Pass::FuseOne,
        Pass::FuseTwo,
        Pass::Dead,
    ];

    /// The changed graph, for functions that read so many bits.
    ///
    /// # Errors
    /// More statements or larger numbers on the way than a graph may have.
    pub fn apply(self, graph: &Graph, bits: u32) -> Result<Graph, Error> {
        self.apply_until(graph, bits, &CancelToken::new())
    }

    fn apply_until(self, graph: &Graph, bits: u32, cancel: &CancelToken) -> Result<Graph, Error> {
        // Tables of graphs have no more entries.
        let bits = bits.min(MAX_TABLE_ENTRIES.trailing_zeros());
        match self {
            Pass::Fold => fold::fold(graph, cancel),
            Pass::Merge => merge::merge(graph, cancel),
            Pass::Differences => differences::differences(graph, bits, cancel),
            Pass::FuseOne => fuse::fuse(graph, (bits, false), cancel),
            Pass::FuseTwo => fuse::fuse(graph, (bits, true), cancel),
            Pass::Dead => dead::dead(graph, cancel),
        }
    }
}

impl Graph {
    /// The graph after these passes, for functions that read so many bits; what a pass cannot change stays.
    #[must_use]
    pub fn simplify(&self, passes: &[Pass], bits: u32) -> Graph {
        // Nobody cancels this token.
        let simpler = self.simplify_until(passes, bits, &CancelToken::new());
        simpler.unwrap_or_else(|_| self.clone())
    }

    /// As [`simplify`](Graph::simplify), until the token is cancelled.
    ///
    /// # Errors
    /// That it was cancelled.
    pub fn simplify_until(
        &self,
        passes: &[Pass],
        bits: u32,
        cancel: &CancelToken,
    ) -> Result<Graph, Error> {
        let mut graph = self.clone();
        for _ in 0..ROUNDS {
            let before = graph.len();
            for pass in passes {
                let changed = pass.apply_until(&graph, bits, cancel);
                cancel.check()?;
                if let Ok(changed) = changed {
                    graph = changed;
                }
            }
            if graph.len() == before {
                break;
            }
        }
        Ok(graph)
    }
}

/// A graph that is made anew from another.
struct Rewrite<'g> {
    old: &'g Graph,
    new: Graph,
    /// The new values of the old ones; nothing for what left.
    map: Vec<Option<Node>>,
}

impl Rewrite<'_> {
    /// Makes a graph by a rule that adds the new value of each old one, if it stays; until the token is cancelled.
    fn run(
        old: &Graph,
        cancel: &CancelToken,
        mut rule: impl FnMut(&mut Rewrite<'_>, Node) -> Result<Option<Node>, Error>,
    ) -> Result<Graph, Error> {
        let mut rewrite = Rewrite {
            old,
            new: Graph::new(),
            map: Vec::with_capacity(old.len()),
        };
        for node in old.nodes() {
            cancel.check()?;
            rewrite.new.set_location(old.location(node).cloned());
            let before = rewrite.new.len();
            let made = rule(&mut rewrite, node)?;
            if let (Some(made), Some(name)) = (made, old.name(node))
                && made.index() >= before
                && !matches!(rewrite.new.op(made), Op::Input { .. } | Op::Constant(_))
            {
                rewrite.new.set_name(made, name);
            }
            rewrite.map.push(made);
        }
        for output in old.outputs() {
            let node = rewrite.at(output.node)?;
            rewrite.new.set_location(output.location.clone());
            rewrite.new.output(&output.name, node)?;
        }
        rewrite.new.set_location(None);
        Ok(rewrite.new)
    }

    /// The new value of an old one.
    fn at(&self, node: Node) -> Result<Node, Error> {
        let made = self.map.get(node.index()).copied().flatten();
        made.ok_or_else(|| self.old.error(node, "a statement that is used has left"))
    }

    /// An old statement's operation on the new values, with a table cut to what its arguments still have.
    fn op(&self, node: Node) -> Result<Op, Error> {
        let at = |node: Node| self.at(node);
        Ok(match *self.old.op(node) {
            Op::Input { ref name, interval } => Op::Input {
                name: name.clone(),
                interval,
            },
            Op::Constant(value) => Op::Constant(value),
            Op::Linear {
                ref terms,
                constant,
            } => {
                let terms = terms.iter();
                let terms = terms.map(|&(term, weight)| Ok((at(term)?, weight)));
                let terms = terms.collect::<Result<Vec<_>, Error>>()?;
                let (terms, constant) = self.new.in_order(terms, constant)?;
                Op::Linear { terms, constant }
            }
            Op::Multiply(x, y) => Op::Multiply(at(x)?, at(y)?),
            Op::Divide(x, divisor) => Op::Divide(at(x)?, divisor),
            Op::Remainder(x, divisor) => Op::Remainder(at(x)?, divisor),
            Op::Compare(comparison, x, y) => Op::Compare(comparison, at(x)?, at(y)?),
            Op::Min(x, y) => Op::Min(at(x)?, at(y)?),
            Op::Max(x, y) => Op::Max(at(x)?, at(y)?),
            Op::Absolute(x) => Op::Absolute(at(x)?),
            Op::Select(d, x, y) => Op::Select(at(d)?, at(x)?, at(y)?),
            Op::Bits(operation, x, y) => Op::Bits(operation, at(x)?, at(y)?),
            Op::Wrap(x, width) => Op::Wrap(at(x)?, width),
            Op::Sum(x) => Op::Sum(at(x)?),
            Op::Table(x, ref entries) => self.table(&[x], entries)?,
            Op::Table2(x, y, ref entries) => self.table(&[x, y], entries)?,
        })
    }

    /// A table of one or two old values, with an entry for each combination of the values that the new ones have.
    fn table(&self, arguments: &[Node], entries: &[i128]) -> Result<Op, Error> {
        let mut places: Vec<(Node, Interval, Interval)> = Vec::new();
        for &argument in arguments {
            let (old, new) = (self.old.interval(argument), self.at(argument)?);
            let interval = self.new.interval(new);
            if !old.includes(interval) {
                return Err(self.old.error(argument, "an interval has grown"));
            }
            places.push((new, old, interval));
        }
        let skipped = |old: Interval, new: Interval| (new.low - old.low) as usize;
        let error = || Error::new("a table has one argument or two");
        Ok(match *places {
            [(x, old, new)] => {
                let from = entries.get(skipped(old, new)..).ok_or_else(error)?;
                Op::Table(x, from.iter().copied().take(new.count() as usize).collect())
            }
            [(x, old_x, new_x), (y, old_y, new_y)] => {
                let rows = entries.chunks(old_y.count() as usize);
                let rows = rows.skip(skipped(old_x, new_x));
                let cut = rows.take(new_x.count() as usize).flat_map(|row| {
                    let row = row.iter().skip(skipped(old_y, new_y));
                    row.take(new_y.count() as usize).copied()
                });
                Op::Table2(x, y, cut.collect())
            }
            _ => return Err(error()),
        })
    }

    /// Adds an operation on new values: sums in their order, constants only once.
    fn add(&mut self, op: Op) -> Result<Node, Error> {
        match op {
            Op::Constant(value) => self.new.constant(value),
            Op::Linear { terms, constant } => self.new.linear(terms, constant),
            Op::Multiply(x, y) => self.new.multiply(x, y),
            op => self.new.add(op),
        }
    }
}

/// A linear combination that need not be a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sum {
    /// Ascending, without weights of 0.
    terms: Vec<(Node, i128)>,
    constant: i128,
}

impl Sum {
    /// What a value is the sum of: itself, if it is no linear combination.
    fn of(graph: &Graph, node: Node) -> Sum {
        match graph.op(node) {
            Op::Constant(value) => Sum {
                terms: Vec::new(),
                constant: *value,
            },
            Op::Linear { terms, constant } => Sum {
                terms: terms.clone(),
                constant: *constant,
            },
            _ => Sum {
                terms: vec![(node, 1)],
                constant: 0,
            },
        }
    }

    /// self + weight·other; none where numbers exceed 2^127.
    fn plus(&self, other: &Sum, weight: i128) -> Option<Sum> {
        let mut terms: Vec<(Node, i128)> = Vec::with_capacity(self.terms.len() + other.terms.len());
        let (mut left, mut right) = (self.terms.iter().peekable(), other.terms.iter().peekable());
        loop {
            let (node, sum) = match (left.peek(), right.peek()) {
                (Some(&&(x, a)), Some(&&(y, b))) if x == y => {
                    left.next();
                    right.next();
                    (x, a.checked_add(b.checked_mul(weight)?)?)
                }
                (Some(&&(x, a)), Some(&&(y, _))) if x < y => {
                    left.next();
                    (x, a)
                }
                (Some(&&(x, a)), None) => {
                    left.next();
                    (x, a)
                }
                (_, Some(&&(y, b))) => {
                    right.next();
                    (y, b.checked_mul(weight)?)
                }
                (None, None) => break,
            };
            if sum != 0 {
                terms.push((node, sum));
            }
        }
        let constant = other.constant.checked_mul(weight)?;
        Some(Sum {
            terms,
            constant: self.constant.checked_add(constant)?,
        })
    }

    /// x - y.
    fn difference(graph: &Graph, x: Node, y: Node) -> Option<Sum> {
        Sum::of(graph, x).plus(&Sum::of(graph, y), -1)
    }

    /// The interval that follows from those of the terms; none beyond 2^100.
    fn interval(&self, graph: &Graph) -> Option<Interval> {
        let terms = self.terms.iter();
        let mut terms = terms.map(|&(node, weight)| graph.interval(node).scale(weight));
        terms.try_fold(Interval::of(self.constant)?, |sum, term| sum.plus(term?))
    }

    fn op(self) -> Op {
        Op::Linear {
            terms: self.terms,
            constant: self.constant,
        }
    }
}

/// How many statements and outputs use each value.
fn uses(graph: &Graph) -> Vec<u32> {
    let mut uses = vec![0_u32; graph.len()];
    for node in graph.nodes() {
        for operand in graph.op(node).operands() {
            uses[operand.index()] += 1;
        }
    }
    for output in graph.outputs() {
        uses[output.node.index()] += 1;
    }
    uses
}
