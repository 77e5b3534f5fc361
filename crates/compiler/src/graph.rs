//! Statements on integers, each with its exact interval, and the builder that checks them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Location};
use crate::interval::{Interval, MAX_MAGNITUDE};

/// The most statements of a graph.
pub const MAX_STATEMENTS: usize = 1 << 20;

/// The most entries of a table.
pub const MAX_TABLE_ENTRIES: usize = 1 << 16;

/// A value of a graph: the statement that computes it, by its number. Statements use only values of lower numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node(u32);

impl Node {
    /// The number, from 0, for tables beside a graph.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Comparisons; `>` and `>=` exchange their operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
}

impl Comparison {
    /// What it says of two numbers.
    #[must_use]
    pub fn holds(self, x: i128, y: i128) -> bool {
        match self {
            Comparison::Less => x < y,
            Comparison::LessEqual => x <= y,
            Comparison::Equal => x == y,
            Comparison::NotEqual => x != y,
        }
    }

    /// Its symbol.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Comparison::Less => "<",
            Comparison::LessEqual => "<=",
            Comparison::Equal => "==",
            Comparison::NotEqual => "!=",
        }
    }
}

/// Operations on each bit of two's complement of infinite width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BitOperation {
    /// `&`
    And,
    /// `|`
    Or,
    /// `^`
    Xor,
}

impl BitOperation {
    /// What it makes of two numbers.
    #[must_use]
    pub fn apply(self, x: i128, y: i128) -> i128 {
        match self {
            BitOperation::And => x & y,
            BitOperation::Or => x | y,
            BitOperation::Xor => x ^ y,
        }
    }

    /// Its symbol.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            BitOperation::And => "&",
            BitOperation::Or => "|",
            BitOperation::Xor => "^",
        }
    }
}

/// Numbers of some bits, with or without sign, modulo 2^bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Width {
    bits: u32,
    is_signed: bool,
}

impl Width {
    /// From 1 to 64 bits; none otherwise.
    #[must_use]
    pub fn new(bits: u32, is_signed: bool) -> Option<Width> {
        (1..=64)
            .contains(&bits)
            .then_some(Width { bits, is_signed })
    }

    /// The bits.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// Whether half of the numbers are negative.
    #[must_use]
    pub fn is_signed(self) -> bool {
        self.is_signed
    }

    /// The numbers.
    #[must_use]
    pub fn interval(self) -> Interval {
        let count = 1 << self.bits;
        let low = if self.is_signed { -(count / 2) } else { 0 };
        Interval {
            low,
            high: low + count - 1,
        }
    }

    /// The number that equals `value` modulo 2^bits.
    #[must_use]
    pub fn wrap(self, value: i128) -> i128 {
        let low = self.interval().low;
        (value - low).rem_euclid(1 << self.bits) + low
    }
}

impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_signed { 'i' } else { 'u' }, self.bits)
    }
}

/// What a statement computes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A number that comes encrypted.
    Input {
        /// Its name, which no other input has.
        name: Arc<str>,
        /// Its values.
        interval: Interval,
    },
    /// A number that is known.
    Constant(i128),
    /// constant + Σ weight · node; the nodes ascend, and no weight is 0.
    Linear {
        /// Nodes with their weights.
        terms: Vec<(Node, i128)>,
        /// What is added.
        constant: i128,
    },
    /// A product.
    Multiply(Node, Node),
    /// A quotient by a positive number, rounded down.
    Divide(Node, i128),
    /// The remainder of such a division, from 0.
    Remainder(Node, i128),
    /// 1 if the comparison holds, else 0.
    Compare(Comparison, Node, Node),
    /// The lesser.
    Min(Node, Node),
    /// The greater.
    Max(Node, Node),
    /// The magnitude.
    Absolute(Node),
    /// The second if the first is 1, the third if it is 0.
    Select(Node, Node, Node),
    /// An operation on each bit.
    Bits(BitOperation, Node, Node),
    /// The number that equals a value modulo 2^bits.
    Wrap(Node, Width),
    /// A table with an entry for each value of the node's interval, from the lowest.
    Table(Node, Arc<[i128]>),
    /// A table with an entry for each pair of values, the second's next to each other.
    Table2(Node, Node, Arc<[i128]>),
    /// The sum of a column's rows. No statement uses it, only outputs do. Its interval is that of one row.
    Sum(Node),
}

impl Op {
    /// The values that it uses.
    pub fn operands(&self) -> impl Iterator<Item = Node> + '_ {
        let none: &[(Node, i128)] = &[];
        let (nodes, terms) = match self {
            Op::Input { .. } | Op::Constant(_) => ([None; 3], none),
            Op::Linear { terms, .. } => ([None; 3], terms.as_slice()),
            &Op::Divide(x, _)
            | &Op::Remainder(x, _)
            | &Op::Absolute(x)
            | &Op::Wrap(x, _)
            | &Op::Table(x, _)
            | &Op::Sum(x) => ([Some(x), None, None], none),
            &Op::Multiply(x, y)
            | &Op::Compare(_, x, y)
            | &Op::Min(x, y)
            | &Op::Max(x, y)
            | &Op::Bits(_, x, y)
            | &Op::Table2(x, y, _) => ([Some(x), Some(y), None], none),
            &Op::Select(d, x, y) => ([Some(d), Some(x), Some(y)], none),
        };
        let terms = terms.iter().map(|&(node, _)| node);
        nodes.into_iter().flatten().chain(terms)
    }

    /// The operation in words, for messages.
    #[must_use]
    pub fn describe(&self) -> &'static str {
        match self {
            Op::Input { .. } => "input",
            Op::Constant(_) => "constant",
            Op::Linear { .. } => "linear combination",
            Op::Multiply(..) => "product",
            Op::Divide(..) => "quotient",
            Op::Remainder(..) => "remainder",
            Op::Compare(..) => "comparison",
            Op::Min(..) => "minimum",
            Op::Max(..) => "maximum",
            Op::Absolute(_) => "magnitude",
            Op::Select(..) => "selection",
            Op::Bits(..) => "operation on bits",
            Op::Wrap(..) => "wrap",
            Op::Table(..) => "table",
            Op::Table2(..) => "table of two arguments",
            Op::Sum(_) => "sum of rows",
        }
    }
}

/// A result of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its name, which no other output has.
    pub name: Arc<str>,
    /// The value.
    pub node: Node,
    /// Where the program says so.
    pub location: Option<Location>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Statement {
    op: Op,
    interval: Interval,
    name: Option<Arc<str>>,
    location: Option<Location>,
}

/// What to compute: statements, each with its exact interval, and outputs.
///
/// Every statement goes in by [`add`](Graph::add), which checks it and computes its interval. So no value of a graph ever overflows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    statements: Vec<Statement>,
    inputs: HashMap<Arc<str>, Node>,
    outputs: Vec<Output>,
    constants: HashMap<i128, Node>,
    location: Option<Location>,
}

impl Graph {
    /// A graph without statements.
    #[must_use]
    pub fn new() -> Graph {
        Graph::default()
    }

    /// Sets the place of the statements that follow.
    pub fn set_location(&mut self, location: Option<Location>) {
        self.location = location;
    }

    /// Names a value, for messages and for the text form. A name that is no identifier, or is another value's, is changed in the text.
    pub fn set_name(&mut self, node: Node, name: &str) {
        self.statements[node.index()].name = Some(name.into());
    }

    /// How many statements there are, inputs and constants among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }

    /// All values, each after those that it uses.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = Node> + ExactSizeIterator + use<> {
        (0..self.statements.len() as u32).map(Node)
    }

    /// What a statement computes.
    #[must_use]
    pub fn op(&self, node: Node) -> &Op {
        &self.statements[node.index()].op
    }

    /// The interval of a value.
    #[must_use]
    pub fn interval(&self, node: Node) -> Interval {
        self.statements[node.index()].interval
    }

    /// The place of a statement.
    #[must_use]
    pub fn location(&self, node: Node) -> Option<&Location> {
        self.statements[node.index()].location.as_ref()
    }

    /// The name of a value, if it has one.
    #[must_use]
    pub fn name(&self, node: Node) -> Option<&str> {
        match &self.statements[node.index()] {
            Statement {
                op: Op::Input { name, .. },
                ..
            } => Some(name),
            statement => statement.name.as_deref(),
        }
    }

    /// A value as messages show it: its name, its number if it is constant, or what computes it.
    #[must_use]
    pub fn show(&self, node: Node) -> String {
        match (self.name(node), self.op(node)) {
            (Some(name), _) => name.to_owned(),
            (None, Op::Constant(value)) => value.to_string(),
            (None, op) => format!("the {}", op.describe()),
        }
    }

    /// The inputs with their values, in the order of their statements.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, Node)> {
        self.nodes().filter_map(|node| match self.op(node) {
            Op::Input { name, .. } => Some((&**name, node)),
            _ => None,
        })
    }

    /// The input of a name.
    #[must_use]
    pub fn find_input(&self, name: &str) -> Option<Node> {
        self.inputs.get(name).copied()
    }

    /// The outputs.
    #[must_use]
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// An error at a value's statement, with the intervals of its operands.
    #[must_use]
    pub fn error(&self, node: Node, message: impl Into<String>) -> Error {
        self.operand_error(self.op(node), message)
            .at(self.location(node))
    }

    fn operand_error(&self, op: &Op, message: impl Into<String>) -> Error {
        const MOST_OPERANDS: usize = 8;
        let mut error = Error::new(message);
        for node in op.operands().take(MOST_OPERANDS) {
            if !matches!(self.op(node), Op::Constant(_)) {
                error = error.with_operand(self.show(node), self.interval(node));
            }
        }
        error
    }

    /// Adds a statement.
    ///
    /// # Errors
    /// Operands that the graph does not have, a value that exceeds [`MAX_MAGNITUDE`], or what the operation does not take.
    pub fn add(&mut self, op: Op) -> Result<Node, Error> {
        let interval = self
            .check(&op)
            .map_err(|error| error.at(self.location.as_ref()))?;
        let node = Node(self.statements.len() as u32);
        match &op {
            Op::Input { name, .. } => {
                self.inputs.insert(name.clone(), node);
            }
            Op::Constant(value) => {
                self.constants.insert(*value, node);
            }
            _ => {}
        }
        self.statements.push(Statement {
            op,
            interval,
            name: None,
            location: self.location.clone(),
        });
        Ok(node)
    }

    /// The interval of what an operation computes.
    ///
    /// # Errors
    /// As [`add`](Graph::add).
    pub(crate) fn check(&self, op: &Op) -> Result<Interval, Error> {
        if self.statements.len() >= MAX_STATEMENTS {
            return Err(Error::new(format!(
                "a graph has at most {MAX_STATEMENTS} statements"
            )));
        }
        for node in op.operands() {
            let Some(statement) = self.statements.get(node.index()) else {
                return Err(Error::new("the graph has no such value"));
            };
            if matches!(statement.op, Op::Sum(_)) {
                return Err(self
                    .operand_error(op, "a sum of rows is a result; no statement can use it")
                    .with_help("make the sum an output, and compute on it when it is decrypted"));
            }
        }
        let of = |node: Node| self.interval(node);
        let too_wide = || {
            self.operand_error(op, format!("the {} can exceed 2^100", op.describe()))
                .with_help("give the inputs narrower intervals, or wrap or divide the operands")
        };
        match *op {
            Op::Input { ref name, interval } => {
                if self.inputs.contains_key(name) {
                    return Err(Error::new(format!("there is an input `{name}` already")));
                }
                check_64_bits(&format!("input `{name}`"), interval)?;
                Ok(interval)
            }
            Op::Constant(value) => Interval::of(value)
                .ok_or_else(|| Error::new(format!("the constant {value} exceeds 2^100"))),
            Op::Linear {
                ref terms,
                constant,
            } => {
                let ascending = terms.windows(2).all(|pair| pair[0].0 < pair[1].0);
                if !ascending || terms.iter().any(|&(_, weight)| weight == 0) {
                    return Err(Error::new(
                        "terms of a linear combination ascend and have weights",
                    ));
                }
                let start = Interval::of(constant).ok_or_else(too_wide)?;
                terms.iter().try_fold(start, |sum, &(node, weight)| {
                    let term = of(node).scale(weight);
                    term.and_then(|term| sum.plus(term)).ok_or_else(too_wide)
                })
            }
            Op::Multiply(x, y) if x == y => of(x).square().ok_or_else(too_wide),
            Op::Multiply(x, y) => of(x).multiply(of(y)).ok_or_else(too_wide),
            Op::Divide(x, divisor) | Op::Remainder(x, divisor) => {
                if !(1..=MAX_MAGNITUDE).contains(&divisor) {
                    let message = format!("the divisor {divisor} is not from 1 to 2^100");
                    return Err(self
                        .operand_error(op, message)
                        .with_help("divide by a positive integer"));
                }
                Ok(match op {
                    Op::Divide(..) => of(x).divide(divisor),
                    _ => of(x).remainder(divisor),
                })
            }
            Op::Compare(..) => Ok(Interval::BIT),
            Op::Min(x, y) => Ok(Interval {
                low: of(x).low.min(of(y).low),
                high: of(x).high.min(of(y).high),
            }),
            Op::Max(x, y) => Ok(Interval {
                low: of(x).low.max(of(y).low),
                high: of(x).high.max(of(y).high),
            }),
            Op::Absolute(x) => Ok(of(x).absolute()),
            Op::Select(d, x, y) => {
                if !Interval::BIT.includes(of(d)) {
                    return Err(self
                        .operand_error(op, "the condition of a selection is not 0 or 1")
                        .with_help(format!("compare: {} != 0", self.show(d))));
                }
                Ok(of(x).union(of(y)))
            }
            Op::Bits(operation, x, y) => Ok(of(x).bitwise(
                of(y),
                match operation {
                    BitOperation::And => |x, y| x & y,
                    BitOperation::Or => |x, y| x | y,
                    BitOperation::Xor => |x, y| x ^ y,
                },
            )),
            Op::Wrap(x, width) => {
                let low = width.interval().low;
                // Values may exceed 2^100 by less than 2^64 here.
                let shifted = Interval {
                    low: of(x).low - low,
                    high: of(x).high - low,
                };
                let wrapped = shifted.remainder(1 << width.bits());
                Ok(Interval {
                    low: wrapped.low + low,
                    high: wrapped.high + low,
                })
            }
            Op::Table(x, ref entries) => self.check_table(op, of(x).count(), entries),
            Op::Table2(x, y, ref entries) => {
                let pairs = of(x).count().checked_mul(of(y).count());
                self.check_table(op, pairs.unwrap_or(u128::MAX), entries)
            }
            Op::Sum(x) => Ok(of(x)),
        }
    }

    fn check_table(&self, op: &Op, count: u128, entries: &[i128]) -> Result<Interval, Error> {
        let most = MAX_TABLE_ENTRIES as u128;
        if count > most {
            let message =
                format!("a table has at most {most} entries, and the arguments have more values");
            return Err(self
                .operand_error(op, message)
                .with_help("divide or wrap an argument first, or split it into parts"));
        }
        if entries.len() as u128 != count {
            let message = format!(
                "the table has {} entries, and the arguments have {count} values",
                entries.len()
            );
            return Err(self
                .operand_error(op, message)
                .with_help("give one entry for each value of the interval, from the lowest"));
        }
        Interval::hull(entries)
            .ok_or_else(|| self.operand_error(op, "an entry of the table exceeds 2^100"))
    }

    /// Adds an input.
    ///
    /// # Errors
    /// An input of the same name, or an interval that 64 bits do not hold.
    pub fn input(&mut self, name: &str, low: i128, high: i128) -> Result<Node, Error> {
        let interval = Interval::new(low, high).ok_or_else(|| {
            Error::new(format!("{low}..{high} is no interval"))
                .with_help("write the lowest value first")
                .at(self.location.as_ref())
        })?;
        let name = name.into();
        self.add(Op::Input { name, interval })
    }

    /// A constant; equal constants are one.
    ///
    /// # Errors
    /// A constant above 2^100.
    pub fn constant(&mut self, value: i128) -> Result<Node, Error> {
        match self.constants.get(&value) {
            Some(&node) => Ok(node),
            None => self.add(Op::Constant(value)),
        }
    }

    /// constant + Σ weight · node. Terms may come in any order, with weights of 0 and several times; a combination that is one of its nodes, or
    /// a constant, is no new statement.
    ///
    /// # Errors
    /// As [`add`](Graph::add).
    pub fn linear(
        &mut self,
        terms: impl IntoIterator<Item = (Node, i128)>,
        constant: i128,
    ) -> Result<Node, Error> {
        let (terms, constant) = self.in_order(terms, constant)?;
        match terms[..] {
            [] => self.constant(constant),
            [(node, 1)] if constant == 0 => Ok(node),
            _ => self.add(Op::Linear { terms, constant }),
        }
    }

    /// Terms as [`Op::Linear`] has them, without constants, and the constant.
    ///
    /// # Errors
    /// A weight beyond 2^127.
    pub(crate) fn in_order(
        &self,
        terms: impl IntoIterator<Item = (Node, i128)>,
        constant: i128,
    ) -> Result<(Vec<(Node, i128)>, i128), Error> {
        let overflow = || Error::new("a weight exceeds 2^127");
        let mut terms: Vec<_> = terms.into_iter().collect();
        let mut constant = constant;
        terms.sort_by_key(|&(node, _)| node);
        let mut merged: Vec<(Node, i128)> = Vec::with_capacity(terms.len());
        for (node, weight) in terms {
            if let Some(Statement {
                op: Op::Constant(value),
                ..
            }) = self.statements.get(node.index())
            {
                let product = value.checked_mul(weight);
                constant = product
                    .and_then(|product| constant.checked_add(product))
                    .ok_or_else(overflow)?;
                continue;
            }
            match merged.last_mut() {
                Some((last, sum)) if *last == node => {
                    *sum = sum.checked_add(weight).ok_or_else(overflow)?;
                }
                _ => merged.push((node, weight)),
            }
        }
        merged.retain(|&(_, weight)| weight != 0);
        Ok((merged, constant))
    }

    /// A product; by a constant it is a linear combination.
    ///
    /// # Errors
    /// As [`add`](Graph::add).
    pub fn multiply(&mut self, x: Node, y: Node) -> Result<Node, Error> {
        let known = |node: Node| match self.statements.get(node.index())?.op {
            Op::Constant(value) => Some(value),
            _ => None,
        };
        match (known(x), known(y)) {
            (Some(weight), _) => self.linear([(y, weight)], 0),
            (_, Some(weight)) => self.linear([(x, weight)], 0),
            _ => self.add(Op::Multiply(x, y)),
        }
    }

    /// Names a value as a result.
    ///
    /// # Errors
    /// An output of the same name, or an interval that 64 bits do not hold.
    pub fn output(&mut self, name: &str, node: Node) -> Result<(), Error> {
        let location = self.location.clone();
        let checked = match self.statements.get(node.index()) {
            None => Err(Error::new("the graph has no such value")),
            Some(_) if self.outputs.iter().any(|output| *output.name == *name) => {
                Err(Error::new(format!("there is an output `{name}` already")))
            }
            Some(statement) => check_64_bits(&format!("output `{name}`"), statement.interval),
        };
        checked.map_err(|error| error.at(location.as_ref()))?;
        self.outputs.push(Output {
            name: name.into(),
            node,
            location,
        });
        Ok(())
    }
}

fn check_64_bits(what: &str, interval: Interval) -> Result<(), Error> {
    if interval.fits_64_bits() {
        return Ok(());
    }
    Err(Error::new(format!("{what} needs more than 64 bits"))
        .with_operand(what, interval)
        .with_help("inputs and outputs lie in -2^63..2^63-1 or in 0..2^64-1; wrap or divide wider values, or give the inputs narrower intervals"))
}
