//! The text form of graphs: one statement a line.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Location};
use crate::graph::{BitOperation, Comparison, Graph, Node, Op, Width};
use crate::interval::{Interval, MAX_MAGNITUDE};

/// The longest text that is read, in bytes.
pub const MAX_SOURCE_BYTES: usize = 1 << 28;

const SYMBOLS: [&str; 25] = [
    "..", "//", "<<", ">>", "<=", ">=", "==", "!=", "<", ">", "=", "+", "-", "*", "%", "&", "|",
    "^", "(", ")", "[", "]", ",", "@", ":",
];

#[derive(Clone, Debug, PartialEq)]
enum Token<'a> {
    Name(&'a str),
    Number(i128),
    Quoted(String),
    Symbol(&'static str),
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Name(name) => write!(f, "`{name}`"),
            Token::Number(number) => write!(f, "`{number}`"),
            Token::Quoted(text) => write!(f, "{text:?}"),
            Token::Symbol(symbol) => write!(f, "`{symbol}`"),
        }
    }
}

fn is_name(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

/// Cuts a line into tokens, without its comment.
fn tokens(line: &str) -> Result<Vec<Token<'_>>, Error> {
    let mut found = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else {
            return Ok(found);
        };
        if first == '#' {
            return Ok(found);
        }
        if first == '"' {
            let (text, after) = quoted(rest)?;
            found.push(Token::Quoted(text));
            rest = after;
        } else if first.is_ascii_alphanumeric() || first == '_' {
            let end = rest
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            rest = after;
            found.push(if !first.is_ascii_digit() {
                Token::Name(word)
            } else {
                match word.parse() {
                    Ok(number) if number <= MAX_MAGNITUDE => Token::Number(number),
                    _ if word.bytes().all(|c| c.is_ascii_digit()) => {
                        return Err(Error::new("a number exceeds 2^100"));
                    }
                    _ => {
                        return Err(Error::new(format!(
                            "`{word}` is neither a name nor a decimal integer"
                        )));
                    }
                }
            });
        } else if let Some(symbol) = SYMBOLS.into_iter().find(|&symbol| rest.starts_with(symbol)) {
            found.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            return Err(Error::new(format!(
                "the character {first:?} has no meaning here"
            )));
        }
    }
}

/// The string literal at the beginning of a text, and what follows it.
fn quoted(text: &str) -> Result<(String, &str), Error> {
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => match chars.next() {
                Some((_, c @ ('"' | '\\'))) => value.push(c),
                _ => return Err(Error::new("in quotes, `\\` comes before `\"` or `\\`")),
            },
            c => value.push(c),
        }
    }
    Err(Error::new("the quote does not end on its line"))
}

/// Reads statements into a graph.
#[derive(Default)]
struct Parser {
    graph: Graph,
    names: HashMap<String, Node>,
    files: HashSet<Arc<str>>,
    /// The place of statements that name none.
    place: Option<Location>,
    /// How many lines were read.
    lines: u32,
}

/// The tokens of a statement that are not read yet.
struct Rest<'a, 't>(&'t [Token<'a>]);

impl<'a> Rest<'a, '_> {
    fn next(&mut self) -> Option<Token<'a>> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first.clone())
    }

    fn take(&mut self, symbol: &str) -> bool {
        let found = matches!(self.0.first(), Some(Token::Symbol(other)) if *other == symbol);
        if found {
            self.0 = &self.0[1..];
        }
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<(), Error> {
        if self.take(symbol) {
            return Ok(());
        }
        Err(Error::new(match self.0.first() {
            Some(token) => format!("expected `{symbol}`, found {token}"),
            None => format!("expected `{symbol}` at the end of the line"),
        }))
    }

    fn name(&mut self) -> Result<&'a str, Error> {
        match self.next() {
            Some(Token::Name(name)) => Ok(name),
            Some(token) => Err(Error::new(format!("expected a name, found {token}"))),
            None => Err(Error::new("expected a name at the end of the line")),
        }
    }

    fn integer(&mut self) -> Result<i128, Error> {
        let sign = if self.take("-") { -1 } else { 1 };
        match self.next() {
            Some(Token::Number(number)) => Ok(sign * number),
            Some(token) => Err(Error::new(format!("expected an integer, found {token}"))),
            None => Err(Error::new("expected an integer at the end of the line")),
        }
    }

    fn end(&self) -> Result<(), Error> {
        match self.0.first() {
            None => Ok(()),
            Some(token) => Err(Error::new(format!("the statement ends before {token}"))
                .with_help("a statement has one operation, or is a sum of multiples by integers")),
        }
    }
}

impl Parser {
    fn line(&mut self, line: &str) -> Result<(), Error> {
        let tokens = tokens(line).map_err(|error| match line.rsplit_once('@') {
            // What cannot be read comes before the place.
            Some((_, place)) => {
                let place = tokens(place).and_then(|place| self.location(&place));
                error.at(place.ok().as_ref())
            }
            None => error,
        })?;
        let place = tokens.iter().position(|token| *token == Token::Symbol("@"));
        let location = place
            .map(|place| self.location(&tokens[place + 1..]))
            .transpose()?
            .or_else(|| self.place.clone());
        self.graph.set_location(location.clone());
        let mut rest = Rest(&tokens[..place.unwrap_or(tokens.len())]);
        let result = match rest.0 {
            [] if place.is_none() => Ok(()),
            [Token::Name("input"), Token::Name(_), ..] => self.input(&mut rest),
            [Token::Name("output"), Token::Name(_), ..] => self.output(&mut rest),
            _ => self.assignment(&mut rest),
        };
        result
            .and_then(|()| rest.end())
            .map_err(|error| error.at(location.as_ref()))
    }

    fn location(&mut self, tokens: &[Token<'_>]) -> Result<Location, Error> {
        let wrong = || {
            Error::new("a place is not a quoted file, a colon and a line")
                .with_help("write @ \"file\":line")
        };
        let &[
            Token::Quoted(ref file),
            Token::Symbol(":"),
            Token::Number(line),
        ] = tokens
        else {
            return Err(wrong());
        };
        let line = u32::try_from(line).map_err(|_| wrong())?;
        let file = match self.files.get(file.as_str()) {
            Some(file) => file.clone(),
            None => {
                let file: Arc<str> = file.as_str().into();
                self.files.insert(file.clone());
                file
            }
        };
        Ok(Location { file, line })
    }

    /// Reads further statements. With a file's name, statements that name no place have that of their line there.
    fn read(&mut self, text: &str, file: Option<Arc<str>>) -> Result<(), Error> {
        if text.len() > MAX_SOURCE_BYTES {
            return Err(Error::new(format!(
                "the text has more than {MAX_SOURCE_BYTES} bytes"
            )));
        }
        for line in text.lines() {
            let number = self.lines.saturating_add(1);
            self.place = file.clone().map(|file| Location { file, line: number });
            self.line(line).map_err(|mut error| {
                error.line = Some(number);
                error.at(self.place.as_ref())
            })?;
            self.lines = number;
        }
        self.graph.set_location(None);
        Ok(())
    }

    fn define(&mut self, name: &str, node: Node) -> Result<(), Error> {
        match self.names.entry(name.to_owned()) {
            Entry::Vacant(free) => {
                free.insert(node);
                Ok(())
            }
            Entry::Occupied(_) => Err(Error::new(format!("there is a value `{name}` already"))
                .with_help("each name has one statement; take another name")),
        }
    }

    fn find(&self, name: &str) -> Result<Node, Error> {
        self.names.get(name).copied().ok_or_else(|| {
            Error::new(format!("no statement before this one defines `{name}`"))
                .with_help("a statement uses inputs and values of earlier lines")
        })
    }

    fn input(&mut self, rest: &mut Rest<'_, '_>) -> Result<(), Error> {
        rest.name()?;
        let name = rest.name()?;
        rest.expect(":")?;
        let low = rest.integer()?;
        rest.expect("..")?;
        let high = rest.integer()?;
        let node = self.graph.input(name, low, high)?;
        self.define(name, node)
    }

    fn output(&mut self, rest: &mut Rest<'_, '_>) -> Result<(), Error> {
        rest.name()?;
        let name = rest.name()?;
        rest.expect("=")?;
        let node = self.operand(rest)?;
        self.graph.output(name, node)
    }

    fn assignment(&mut self, rest: &mut Rest<'_, '_>) -> Result<(), Error> {
        let name = rest.name()?;
        rest.expect("=")?;
        let before = self.graph.len();
        let node = match rest.0 {
            [Token::Name(function), Token::Symbol("("), ..] => {
                rest.0 = &rest.0[2..];
                let node = self.call(function, rest)?;
                rest.expect(")")?;
                node
            }
            _ => self.expression(rest)?,
        };
        // A name for a value that was there before is another name of it.
        if self.graph.len() > before && !matches!(self.graph.op(node), Op::Constant(_)) {
            self.graph.set_name(node, name);
        }
        self.define(name, node)
    }

    /// A name or an integer.
    fn operand(&mut self, rest: &mut Rest<'_, '_>) -> Result<Node, Error> {
        match rest.0.first() {
            Some(Token::Name(name)) => {
                rest.0 = &rest.0[1..];
                self.find(name)
            }
            _ => {
                let value = rest.integer()?;
                self.graph.constant(value)
            }
        }
    }

    fn call(&mut self, function: &str, rest: &mut Rest<'_, '_>) -> Result<Node, Error> {
        let first = self.operand(rest)?;
        match function {
            "abs" => self.graph.add(Op::Absolute(first)),
            "sum" => self.graph.add(Op::Sum(first)),
            "min" | "max" => {
                rest.expect(",")?;
                let second = self.operand(rest)?;
                self.graph.add(match function {
                    "min" => Op::Min(first, second),
                    _ => Op::Max(first, second),
                })
            }
            "select" => {
                rest.expect(",")?;
                let second = self.operand(rest)?;
                rest.expect(",")?;
                let third = self.operand(rest)?;
                self.graph.add(Op::Select(first, second, third))
            }
            "wrap" => {
                rest.expect(",")?;
                let width = width(rest.name()?)?;
                self.graph.add(Op::Wrap(first, width))
            }
            "table" => {
                rest.expect(",")?;
                if rest.take("[") {
                    let entries = entries(rest)?;
                    return self.graph.add(Op::Table(first, entries));
                }
                let second = self.operand(rest)?;
                rest.expect(",")?;
                rest.expect("[")?;
                let entries = entries(rest)?;
                self.graph.add(Op::Table2(first, second, entries))
            }
            _ => Err(Error::new(format!("there is no function `{function}`"))
                .with_help("the functions are abs, min, max, select, wrap, table and sum")),
        }
    }

    /// A linear combination, or one operation on two operands.
    fn expression(&mut self, rest: &mut Rest<'_, '_>) -> Result<Node, Error> {
        let start = rest.0;
        let first_is_name = matches!(start.first(), Some(Token::Name(_)));
        let skipped = match start {
            [Token::Symbol("-"), Token::Number(_), ..] => 2,
            _ => 1,
        };
        let operator = match start.get(skipped) {
            Some(&Token::Symbol(symbol)) => symbol,
            _ => "",
        };
        let second_is_name = matches!(start.get(skipped + 1), Some(Token::Name(_)));
        let is_product = operator == "*" && first_is_name && second_is_name;
        if matches!(operator, "" | "+" | "-") || (operator == "*" && !is_product) {
            return self.combination(rest);
        }
        let first = self.operand(rest)?;
        rest.0 = &rest.0[1..];
        if matches!(operator, "//" | "%" | "<<" | ">>") && second_is_name {
            return Err(
                Error::new(format!("`{operator}` takes a known integer on its right"))
                    .with_help("use a table of two arguments, if their widths permit"),
            );
        }
        let shift = |count: i128| match u32::try_from(count) {
            Ok(count @ 0..=100) => Ok(1 << count),
            _ => Err(Error::new("a shift is from 0 to 100 bits")),
        };
        match operator {
            "//" => {
                let divisor = rest.integer()?;
                self.graph.add(Op::Divide(first, divisor))
            }
            "%" => {
                let divisor = rest.integer()?;
                self.graph.add(Op::Remainder(first, divisor))
            }
            ">>" => {
                let divisor = shift(rest.integer()?)?;
                self.graph.add(Op::Divide(first, divisor))
            }
            "<<" => {
                let weight = shift(rest.integer()?)?;
                self.graph.linear([(first, weight)], 0)
            }
            _ => {
                let second = self.operand(rest)?;
                let compared = |comparison, x, y| Op::Compare(comparison, x, y);
                let op = match operator {
                    "*" => return self.graph.multiply(first, second),
                    "<" => compared(Comparison::Less, first, second),
                    "<=" => compared(Comparison::LessEqual, first, second),
                    ">" => compared(Comparison::Less, second, first),
                    ">=" => compared(Comparison::LessEqual, second, first),
                    "==" => compared(Comparison::Equal, first, second),
                    "!=" => compared(Comparison::NotEqual, first, second),
                    "&" => Op::Bits(BitOperation::And, first, second),
                    "|" => Op::Bits(BitOperation::Or, first, second),
                    "^" => Op::Bits(BitOperation::Xor, first, second),
                    _ => {
                        return Err(Error::new(format!(
                            "`{operator}` is no operation on values"
                        )));
                    }
                };
                self.graph.add(op)
            }
        }
    }

    fn combination(&mut self, rest: &mut Rest<'_, '_>) -> Result<Node, Error> {
        let overflow = || Error::new("the constants of the sum exceed 2^127");
        let mut terms = Vec::new();
        let mut constant: i128 = 0;
        let mut sign = if rest.take("-") { -1 } else { 1 };
        loop {
            match rest.next() {
                Some(Token::Name(name)) => {
                    let weight = if rest.take("*") { rest.integer()? } else { 1 };
                    terms.push((self.find(name)?, sign * weight));
                }
                Some(Token::Number(number)) if rest.take("*") => {
                    if let Some(Token::Number(_)) = rest.0.first() {
                        return Err(Error::new("a product of two integers")
                            .with_help("write the result of the product"));
                    }
                    terms.push((self.find(rest.name()?)?, sign * number));
                }
                Some(Token::Number(number)) => {
                    constant = constant.checked_add(sign * number).ok_or_else(overflow)?;
                }
                Some(token) => {
                    return Err(Error::new(format!(
                        "expected a name or an integer, found {token}"
                    )));
                }
                None => {
                    return Err(Error::new(
                        "expected a name or an integer at the end of the line",
                    ));
                }
            }
            sign = if rest.take("+") {
                1
            } else if rest.take("-") {
                -1
            } else {
                break;
            };
        }
        self.graph.linear(terms, constant)
    }
}

fn width(name: &str) -> Result<Width, Error> {
    let (is_signed, bits) = match name.split_at_checked(1) {
        Some(("u", bits)) => (false, bits),
        Some(("i", bits)) => (true, bits),
        _ => (false, ""),
    };
    bits.parse()
        .ok()
        .and_then(|bits| Width::new(bits, is_signed))
        .ok_or_else(|| {
            Error::new(format!("there is no width `{name}`"))
                .with_help("widths are u1 to u64 and i1 to i64")
        })
}

/// The entries of a table up to the closing bracket.
fn entries(rest: &mut Rest<'_, '_>) -> Result<Arc<[i128]>, Error> {
    let mut entries = Vec::new();
    loop {
        if rest.take("]") {
            return Ok(entries.into());
        }
        if !entries.is_empty() {
            rest.expect(",")?;
        }
        entries.push(rest.integer()?);
    }
}

/// A graph in text form that is still being written, with the intervals of its values so far.
///
/// ```
/// let mut statements = toroid_compiler::Statements::default();
/// statements.add("input x: -8..7")?;
/// statements.add("square = x * x")?;
/// assert_eq!(statements.interval("square")?.to_string(), "0..64");
/// # Ok::<(), toroid_compiler::Error>(())
/// ```
#[derive(Default)]
pub struct Statements {
    parser: Parser,
}

impl Statements {
    /// Reads the lines of a text behind those of before.
    ///
    /// # Errors
    /// As [`Graph::parse`] has it, but that there may be no output yet; the lines from the wrong one on do not count.
    pub fn add(&mut self, text: &str) -> Result<(), Error> {
        self.parser.read(text, None)
    }

    /// The interval of a value, by its name.
    ///
    /// # Errors
    /// A name that no statement defines.
    pub fn interval(&self, name: &str) -> Result<Interval, Error> {
        Ok(self.parser.graph.interval(self.parser.find(name)?))
    }

    /// The interval of an output, by its name; of a sum that of a row.
    ///
    /// # Errors
    /// A name that no output has.
    pub fn output_interval(&self, name: &str) -> Result<Interval, Error> {
        let mut outputs = self.parser.graph.outputs().iter();
        match outputs.find(|output| &*output.name == name) {
            Some(output) => Ok(self.parser.graph.interval(output.node)),
            None => Err(Error::new(format!("the graph has no output `{name}`"))),
        }
    }
}

impl Graph {
    /// Reads the text form.
    ///
    /// # Errors
    /// The first statement that is wrong, with its line.
    pub fn parse(text: &str) -> Result<Graph, Error> {
        Graph::read(text, None)
    }

    /// Reads the text form from a file of this name: a statement that names no place has that of its line there.
    ///
    /// # Errors
    /// The first statement that is wrong, with its place.
    pub fn parse_file(text: &str, file: &str) -> Result<Graph, Error> {
        Graph::read(text, Some(file.into()))
    }

    fn read(text: &str, file: Option<Arc<str>>) -> Result<Graph, Error> {
        let mut parser = Parser::default();
        parser.read(text, file)?;
        if parser.graph.outputs().is_empty() {
            return Err(Error::new("the graph has no output")
                .with_help("write output NAME = VALUE")
                .at(parser.place.as_ref()));
        }
        Ok(parser.graph)
    }

    /// The names of all values in the text form; constants have none.
    fn names(&self) -> Vec<String> {
        let mut taken: HashSet<String> = self.inputs().map(|(name, _)| name.to_owned()).collect();
        let mut names = vec![String::new(); self.len()];
        for node in self.nodes() {
            match (self.op(node), self.name(node)) {
                (Op::Input { name, .. }, _) => names[node.index()] = name.to_string(),
                (Op::Constant(_), _) | (_, None) => {}
                (_, Some(name)) => {
                    if is_name(name) && taken.insert(name.to_owned()) {
                        names[node.index()] = name.to_owned();
                    }
                }
            }
        }
        for node in self.nodes() {
            if names[node.index()].is_empty() && !matches!(self.op(node), Op::Constant(_)) {
                let name = format!("t{}", node.index());
                let mut candidates =
                    std::iter::once(name.clone()).chain((2..).map(|n| format!("{name}_{n}")));
                let free = candidates.find(|name| taken.insert(name.clone()));
                names[node.index()] = free.unwrap_or_default();
            }
        }
        names
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.names();
        let shown = |node: Node| match self.op(node) {
            Op::Constant(value) => value.to_string(),
            _ => names[node.index()].clone(),
        };
        for node in self.nodes() {
            let name = &names[node.index()];
            match self.op(node) {
                Op::Constant(_) => continue,
                Op::Input { interval, .. } => write!(f, "input {name}: {interval}")?,
                op => {
                    write!(f, "{name} = ")?;
                    write_op(f, op, &shown)?;
                }
            }
            end_line(f, self.location(node))?;
        }
        for output in self.outputs() {
            write!(f, "output {} = {}", output.name, shown(output.node))?;
            end_line(f, output.location.as_ref())?;
        }
        Ok(())
    }
}

fn end_line(f: &mut fmt::Formatter<'_>, location: Option<&Location>) -> fmt::Result {
    match location {
        Some(Location { file, line }) => {
            let file = file.replace('\\', "\\\\").replace('"', "\\\"");
            writeln!(f, "  @ \"{file}\":{line}")
        }
        None => writeln!(f),
    }
}

fn write_op(f: &mut fmt::Formatter<'_>, op: &Op, shown: &impl Fn(Node) -> String) -> fmt::Result {
    match op {
        Op::Input { .. } | Op::Constant(_) => Ok(()),
        Op::Linear { terms, constant } => write_linear(f, terms, *constant, shown),
        Op::Multiply(x, y) => write!(f, "{} * {}", shown(*x), shown(*y)),
        Op::Divide(x, divisor) => write!(f, "{} // {divisor}", shown(*x)),
        Op::Remainder(x, divisor) => write!(f, "{} % {divisor}", shown(*x)),
        Op::Compare(comparison, x, y) => {
            write!(f, "{} {} {}", shown(*x), comparison.symbol(), shown(*y))
        }
        Op::Min(x, y) => write!(f, "min({}, {})", shown(*x), shown(*y)),
        Op::Max(x, y) => write!(f, "max({}, {})", shown(*x), shown(*y)),
        Op::Absolute(x) => write!(f, "abs({})", shown(*x)),
        Op::Select(d, x, y) => {
            write!(f, "select({}, {}, {})", shown(*d), shown(*x), shown(*y))
        }
        Op::Bits(operation, x, y) => {
            write!(f, "{} {} {}", shown(*x), operation.symbol(), shown(*y))
        }
        Op::Wrap(x, width) => write!(f, "wrap({}, {width})", shown(*x)),
        Op::Table(x, entries) => {
            write!(f, "table({}, ", shown(*x))?;
            write_entries(f, entries)
        }
        Op::Table2(x, y, entries) => {
            write!(f, "table({}, {}, ", shown(*x), shown(*y))?;
            write_entries(f, entries)
        }
        Op::Sum(x) => write!(f, "sum({})", shown(*x)),
    }
}

fn write_linear(
    f: &mut fmt::Formatter<'_>,
    terms: &[(Node, i128)],
    constant: i128,
    shown: &impl Fn(Node) -> String,
) -> fmt::Result {
    for (index, &(node, weight)) in terms.iter().enumerate() {
        match (index, weight < 0) {
            (0, true) => write!(f, "-")?,
            (0, false) => {}
            (_, true) => write!(f, " - ")?,
            (_, false) => write!(f, " + ")?,
        }
        match weight.unsigned_abs() {
            1 => write!(f, "{}", shown(node))?,
            weight => write!(f, "{weight}*{}", shown(node))?,
        }
    }
    match constant {
        0 => Ok(()),
        1.. => write!(f, " + {constant}"),
        _ => write!(f, " - {}", constant.unsigned_abs()),
    }
}

fn write_entries(f: &mut fmt::Formatter<'_>, entries: &[i128]) -> fmt::Result {
    write!(f, "[")?;
    for (index, entry) in entries.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        write!(f, "{comma}{entry}")?;
    }
    write!(f, "])")
}
