//! Statements that depend on one value alone, or on two, become a table of them.
//!
//! From the results back, each statement that is needed is made as it is, or as a table of values before it. Then what lies between is needed only
//! if something else uses it. A table of one value costs no more functions than the last statement alone, and the value farthest
//! back is taken that functions can read. A sum costs no function, so it becomes a table only where that saves some; a table
//! of two values takes more bits than what it stands for, so it has to save functions too.

use std::collections::{BTreeMap, BTreeSet};

use toroid_task::CancelToken;

use super::{Rewrite, uses};
use crate::error::Error;
use crate::evaluate::apply;
use crate::graph::{Graph, Node, Op};

/// The most statements that are looked at for a table that has to save functions.
const MOST_STATEMENTS: usize = 256;

/// The most pairs of values that are kept of what a statement may be a table of.
const MOST_PAIRS: usize = 6;

pub(super) fn fuse(
    graph: &Graph,
    (bits, pairs): (u32, bool),
    cancel: &CancelToken,
) -> Result<Graph, Error> {
    let sources = Sources::find(graph, bits, pairs, cancel)?;
    let uses = uses(graph);
    let mut needed = vec![false; graph.len()];
    let mut tables: BTreeMap<Node, Vec<Node>> = BTreeMap::new();
    for output in graph.outputs() {
        needed[output.node.index()] = true;
    }
    for node in graph.nodes().rev() {
        cancel.check()?;
        if !needed[node.index()] {
            continue;
        }
        let choice = sources
            .choices(node)
            .find(|arguments| is_worth_it(graph, node, arguments, (&uses, &needed, bits)));
        match choice {
            Some(arguments) => {
                for argument in &arguments {
                    needed[argument.index()] = true;
                }
                tables.insert(node, arguments);
            }
            None => {
                for operand in graph.op(node).operands() {
                    needed[operand.index()] = true;
                }
            }
        }
    }
    let mut entries = entries(graph, &tables, cancel)?;
    Rewrite::run(graph, cancel, |rewrite, node| {
        if let Some(entries) = entries.remove(&node)
            && let Some(arguments) = tables.get(&node)
        {
            let op = rewrite.table(arguments, &entries)?;
            return rewrite.add(op).map(Some);
        }
        if !needed[node.index()] && !matches!(graph.op(node), Op::Input { .. }) {
            return Ok(None);
        }
        let op = rewrite.op(node)?;
        rewrite.add(op).map(Some)
    })
}

fn is_constant(graph: &Graph, node: Node) -> bool {
    matches!(graph.op(node), Op::Constant(_))
}

/// What each value of a graph may be a table of.
struct Sources {
    /// The value farthest back that functions can read and that the value depends on alone.
    far: Vec<Option<Node>>,
    /// The value of the fewest bits that it depends on alone.
    narrow: Vec<Option<Node>>,
    /// Pairs of values that functions can read together and that it depends on alone, the farthest first.
    pairs: Vec<Vec<[Node; 2]>>,
}

impl Sources {
    fn find(
        graph: &Graph,
        bits: u32,
        with_pairs: bool,
        cancel: &CancelToken,
    ) -> Result<Sources, Error> {
        let count = graph.len();
        let mut sources = Sources {
            far: Vec::with_capacity(count),
            narrow: Vec::with_capacity(count),
            pairs: Vec::with_capacity(if with_pairs { count } else { 0 }),
        };
        let width = |node: Node| graph.interval(node).bits();
        for node in graph.nodes() {
            cancel.check()?;
            let own = (width(node) <= bits).then_some(node);
            let is_sum = matches!(graph.op(node), Op::Sum(_));
            let operands: BTreeSet<Node> = if is_sum {
                BTreeSet::new()
            } else {
                let operands = graph.op(node).operands();
                operands.filter(|node| !is_constant(graph, *node)).collect()
            };
            let common = |of: &[Option<Node>]| {
                let mut all = operands.iter().map(|operand| of[operand.index()]);
                let first = all.next()??;
                all.all(|other| other == Some(first)).then_some(first)
            };
            let far = common(&sources.far).or(own);
            let narrow = match (common(&sources.narrow), own) {
                (Some(common), Some(own)) if width(own) < width(common) => Some(own),
                (common, own) => common.or(own),
            };
            if with_pairs {
                let pairs = if operands.len() > MOST_STATEMENTS {
                    Vec::new()
                } else {
                    sources.pairs_of(&operands, |[x, y]: [Node; 2]| width(x) + width(y) <= bits)
                };
                sources.pairs.push(pairs);
            }
            sources.far.push(far);
            sources.narrow.push(narrow);
        }
        Ok(sources)
    }

    /// The pairs that all operands depend on.
    fn pairs_of(
        &self,
        operands: &BTreeSet<Node>,
        fits: impl Fn([Node; 2]) -> bool,
    ) -> Vec<[Node; 2]> {
        // A pair of a value with itself is that value alone.
        let mut sets: Option<Vec<[Node; 2]>> = None;
        for operand in operands {
            let place = operand.index();
            let singles = [self.far[place], self.narrow[place], Some(*operand)];
            let singles = singles.into_iter().flatten().map(|node| [node, node]);
            let mut options: Vec<[Node; 2]> = singles.collect();
            options.extend(&self.pairs[place]);
            let mut next = match sets {
                None => options,
                Some(sets) => {
                    let both = sets
                        .iter()
                        .flat_map(|set| options.iter().map(move |option| (*set, *option)));
                    both.filter_map(|(set, option)| union(set, option))
                        .collect()
                }
            };
            next.retain(|&[x, y]| x == y || fits([x, y]));
            next.sort_unstable();
            next.dedup();
            next.truncate(MOST_PAIRS);
            sets = Some(next);
        }
        let mut pairs = sets.unwrap_or_default();
        pairs.retain(|[x, y]| x != y);
        pairs
    }

    /// The arguments of tables that a value may be, the best first.
    fn choices(&self, node: Node) -> impl Iterator<Item = Vec<Node>> {
        let single = self.far[node.index()].filter(|far| *far != node);
        let single = single.map(|far| vec![far]);
        let pairs = self.pairs.get(node.index()).into_iter().flatten();
        single.into_iter().chain(pairs.map(|pair| pair.to_vec()))
    }
}

/// The two values of two pairs together, in their order, if they are no more.
fn union([a, b]: [Node; 2], [c, d]: [Node; 2]) -> Option<[Node; 2]> {
    let low = a.min(c);
    let high = b.max(d);
    let known = [low, high];
    [a, b, c, d]
        .iter()
        .all(|node| known.contains(node))
        .then_some(known)
}

/// How many functions a statement takes at least, for functions that read so many bits.
fn functions(graph: &Graph, node: Node, bits: u32) -> u32 {
    match graph.op(node) {
        Op::Input { .. } | Op::Constant(_) | Op::Linear { .. } | Op::Sum(_) => 0,
        _ => pieces(graph, node, bits),
    }
}

/// How many functions a table of these values takes.
fn pieces(graph: &Graph, node: Node, bits: u32) -> u32 {
    match graph.interval(node).bits() {
        width if width <= bits => 1,
        width => width.div_ceil((bits / 2).max(1)),
    }
}

/// Whether a table of these arguments takes fewer functions than the statements do that only it needs; or as many, where it is of one argument
/// and stands for more than one statement.
fn is_worth_it(
    graph: &Graph,
    node: Node,
    arguments: &[Node],
    (uses, needed, bits): (&[u32], &[bool], u32),
) -> bool {
    let own = functions(graph, node, bits);
    let is_direct = graph
        .op(node)
        .operands()
        .all(|operand| is_constant(graph, operand) || arguments.contains(&operand));
    if is_direct {
        return false;
    }
    if own > 0 && arguments.len() == 1 {
        return true;
    }
    let Some(region) = region(graph, node, arguments) else {
        return false;
    };
    // From the last back: what only leaving statements use leaves too.
    let mut left: BTreeMap<Node, u32> = BTreeMap::new();
    let mut saved = 0;
    for &inner in region.iter().rev() {
        let leaves = inner == node
            || (!needed[inner.index()] && left.get(&inner) == Some(&uses[inner.index()]));
        if leaves {
            saved += functions(graph, inner, bits);
            for operand in graph.op(inner).operands() {
                *left.entry(operand).or_default() += 1;
            }
        }
    }
    saved > pieces(graph, node, bits)
}

/// The statements between the arguments and a value, in their order, with it and constants; none if there are too many.
fn region(graph: &Graph, node: Node, arguments: &[Node]) -> Option<BTreeSet<Node>> {
    let mut found = BTreeSet::from([node]);
    let mut open = vec![node];
    while let Some(next) = open.pop() {
        for operand in graph.op(next).operands() {
            if !arguments.contains(&operand) && found.insert(operand) {
                open.push(operand);
            }
        }
        if found.len() > MOST_STATEMENTS {
            return None;
        }
    }
    Some(found)
}

/// The entries of all tables: those of the same arguments are computed together.
fn entries(
    graph: &Graph,
    tables: &BTreeMap<Node, Vec<Node>>,
    cancel: &CancelToken,
) -> Result<BTreeMap<Node, Vec<i128>>, Error> {
    let mut groups: BTreeMap<&[Node], Vec<Node>> = BTreeMap::new();
    for (node, arguments) in tables {
        groups.entry(arguments).or_default().push(*node);
    }
    let mut all: BTreeMap<Node, Vec<i128>> = BTreeMap::new();
    let mut values = vec![0_i128; graph.len()];
    for (arguments, nodes) in groups {
        let mut between: BTreeSet<Node> = nodes.iter().copied().collect();
        let mut open = nodes.clone();
        while let Some(next) = open.pop() {
            for operand in graph.op(next).operands() {
                if !arguments.contains(&operand) && between.insert(operand) {
                    open.push(operand);
                }
            }
        }
        let mut of_nodes: Vec<Vec<i128>> = vec![Vec::new(); nodes.len()];
        let first = graph.interval(arguments[0]);
        let second = arguments.get(1).map(|second| graph.interval(*second));
        let inner = second.map_or(0..=0, |second| second.low..=second.high);
        for x in first.low..=first.high {
            cancel.check()?;
            values[arguments[0].index()] = x;
            for y in inner.clone() {
                if let Some(second) = arguments.get(1) {
                    values[second.index()] = y;
                }
                for &node in &between {
                    values[node.index()] =
                        apply(graph, graph.op(node), |node| values[node.index()]);
                }
                for (node, entries) in nodes.iter().zip(&mut of_nodes) {
                    entries.push(values[node.index()]);
                }
            }
        }
        all.extend(nodes.into_iter().zip(of_nodes));
    }
    Ok(all)
}
