//! The expressions of test vectors: functions of one integer, `x`, or of two, `x` and `y`.
//!
//! An expression is compiled to a list of operations on a stack, so that neither evaluating nor dropping one recurses, and the
//! parser counts how deep it goes: no text can overflow the stack.

use std::fmt;

use crate::diagnostic::{Diagnostic, Position};
use crate::lexer::{Lexer, Token};

/// How deep parentheses, calls and middle branches may nest.
const MAX_DEPTH: usize = 64;
/// The most operations that an expression may have: evaluating one over 2^16 inputs stays a matter of seconds.
const MAX_OPERATIONS: usize = 4096;
/// The largest distance of a shift.
const MAX_SHIFT: i128 = 63;

/// Why an expression has no value at some x.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// The right side of `/` or `%` is 0.
    #[error("division by zero")]
    DivisionByZero,
    /// A value on the way does not fit 128 bits, or the result 64.
    #[error("overflow (values on the way have 128 bits, the result has 64)")]
    Overflow,
    /// The right side of `<<` or `>>` is not in 0 to 63.
    #[error("shift by {distance} (expected 0 to 63)")]
    Shift {
        /// The right side.
        distance: i128,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unary {
    Negate,
    Not,
    Abs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Binary {
    Multiply,
    Divide,
    Remainder,
    Add,
    Subtract,
    ShiftLeft,
    ShiftRight,
    And,
    Xor,
    Or,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Min,
    Max,
}

/// The precedence of comparisons, the loosest binary operators. They do not chain.
const COMPARISON: u8 = 0;

impl Binary {
    /// The operator and its precedence; a higher one binds tighter.
    fn of_symbol(symbol: &str) -> Option<(Binary, u8)> {
        Some(match symbol {
            "*" => (Binary::Multiply, 6),
            "/" => (Binary::Divide, 6),
            "%" => (Binary::Remainder, 6),
            "+" => (Binary::Add, 5),
            "-" => (Binary::Subtract, 5),
            "<<" => (Binary::ShiftLeft, 4),
            ">>" => (Binary::ShiftRight, 4),
            "&" => (Binary::And, 3),
            "^" => (Binary::Xor, 2),
            "|" => (Binary::Or, 1),
            "==" => (Binary::Equal, COMPARISON),
            "!=" => (Binary::NotEqual, COMPARISON),
            "<" => (Binary::Less, COMPARISON),
            "<=" => (Binary::LessOrEqual, COMPARISON),
            ">" => (Binary::Greater, COMPARISON),
            ">=" => (Binary::GreaterOrEqual, COMPARISON),
            _ => return None,
        })
    }

    fn apply(self, a: i128, b: i128) -> Result<i128, EvaluationError> {
        let distance = || match b {
            0..=MAX_SHIFT => Ok(b as u32),
            _ => Err(EvaluationError::Shift { distance: b }),
        };
        let value = match self {
            Binary::Multiply => a.checked_mul(b),
            Binary::Add => a.checked_add(b),
            Binary::Subtract => a.checked_sub(b),
            Binary::Divide | Binary::Remainder if b == 0 => {
                return Err(EvaluationError::DivisionByZero);
            }
            // Euclid's remainder is never negative; the floor's has the sign of the divisor.
            Binary::Divide => a
                .checked_div(b)
                .map(|q| q - i128::from(a % b != 0 && (a < 0) != (b < 0))),
            Binary::Remainder => a.checked_rem(b).map(|r| {
                if r != 0 && (r < 0) != (b < 0) {
                    r + b
                } else {
                    r
                }
            }),
            Binary::ShiftLeft => a.checked_mul(1 << distance()?),
            Binary::ShiftRight => Some(a >> distance()?),
            Binary::And => Some(a & b),
            Binary::Xor => Some(a ^ b),
            Binary::Or => Some(a | b),
            Binary::Equal => Some(i128::from(a == b)),
            Binary::NotEqual => Some(i128::from(a != b)),
            Binary::Less => Some(i128::from(a < b)),
            Binary::LessOrEqual => Some(i128::from(a <= b)),
            Binary::Greater => Some(i128::from(a > b)),
            Binary::GreaterOrEqual => Some(i128::from(a >= b)),
            Binary::Min => Some(a.min(b)),
            Binary::Max => Some(a.max(b)),
        };
        value.ok_or(EvaluationError::Overflow)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Constant(u64),
    X,
    Y,
    Unary(Unary),
    Binary(Binary),
    /// Takes the top of the stack and goes to the operation with this index if it is 0.
    JumpIfZero(usize),
    Jump(usize),
}

/// Which arguments an expression may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arguments {
    /// `x`.
    One,
    /// `x` and `y`.
    Two,
}

/// A function of one integer, `x`, or of two, `x` and `y`, in the language that `docs/reference/isa.md` describes.
///
/// `Display` gives its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    text: String,
    operations: Vec<Operation>,
}

impl Expression {
    /// Whether it is a function of two arguments.
    pub fn has_y(&self) -> bool {
        self.operations.contains(&Operation::Y)
    }

    /// The value at `x` and `y`, which a function of x alone does not look at. Division and remainder round toward negative
    /// infinity, comparisons give 0 or 1, and only the branch of `?:` that is taken is evaluated.
    ///
    /// # Errors
    /// The first operation without a value.
    pub fn evaluate(&self, x: i64, y: i64) -> Result<i64, EvaluationError> {
        self.evaluate_on(&mut Vec::with_capacity(8), x, y)
    }

    /// [`Expression::evaluate`] on a stack that the caller keeps for many values.
    pub(crate) fn evaluate_on(
        &self,
        stack: &mut Vec<i128>,
        x: i64,
        y: i64,
    ) -> Result<i64, EvaluationError> {
        // The parser makes only lists in which every operation finds its operands; a missing one counts as 0.
        stack.clear();
        let mut next = 0;
        while let Some(&operation) = self.operations.get(next) {
            next += 1;
            match operation {
                Operation::Constant(value) => stack.push(i128::from(value)),
                Operation::X => stack.push(i128::from(x)),
                Operation::Y => stack.push(i128::from(y)),
                Operation::Unary(operator) => {
                    let a = stack.pop().unwrap_or_default();
                    let value = match operator {
                        Unary::Negate => a.checked_neg(),
                        Unary::Not => Some(!a),
                        Unary::Abs => a.checked_abs(),
                    };
                    stack.push(value.ok_or(EvaluationError::Overflow)?);
                }
                Operation::Binary(operator) => {
                    let b = stack.pop().unwrap_or_default();
                    let a = stack.pop().unwrap_or_default();
                    stack.push(operator.apply(a, b)?);
                }
                Operation::JumpIfZero(target) => {
                    if stack.pop().unwrap_or_default() == 0 {
                        next = target;
                    }
                }
                Operation::Jump(target) => next = target,
            }
        }
        i64::try_from(stack.pop().unwrap_or_default()).map_err(|_| EvaluationError::Overflow)
    }

    /// Reads an expression to where it ends; the caller judges what follows.
    pub(crate) fn parse(
        lexer: &mut Lexer<'_>,
        arguments: Arguments,
    ) -> Result<Expression, Diagnostic> {
        let start = lexer.peek()?.position;
        let mut parser = Parser {
            lexer,
            arguments,
            operations: Vec::new(),
            depth: 0,
        };
        parser.conditional()?;
        let operations = parser.operations;
        Ok(Expression {
            text: lexer.text_since(start).to_owned(),
            operations,
        })
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

struct Parser<'p, 'a> {
    lexer: &'p mut Lexer<'a>,
    arguments: Arguments,
    operations: Vec<Operation>,
    depth: usize,
}

const FUNCTIONS: [&str; 3] = ["abs", "min", "max"];

impl Parser<'_, '_> {
    fn emit(&mut self, operation: Operation, position: Position) -> Result<usize, Diagnostic> {
        if self.operations.len() >= MAX_OPERATIONS {
            return Err(Diagnostic::new(
                position,
                format!("the expression has more than {MAX_OPERATIONS} operations"),
            )
            .with_help("give the function as a table: `= [v0, v1, ...]`"));
        }
        self.operations.push(operation);
        Ok(self.operations.len() - 1)
    }

    fn conditional(&mut self) -> Result<(), Diagnostic> {
        let position = self.lexer.peek()?.position;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Diagnostic::new(
                position,
                format!("the expression nests deeper than {MAX_DEPTH} levels"),
            ));
        }
        let mut ends = Vec::new();
        // `a ? b : c ? d : e` is a loop: only the middle branches nest.
        loop {
            self.binary(COMPARISON)?;
            let position = self.lexer.peek()?.position;
            if !self.lexer.take_symbol("?")? {
                break;
            }
            let test = self.emit(Operation::JumpIfZero(0), position)?;
            self.conditional()?;
            let position = self
                .lexer
                .expect_symbol(":", "between the branches of `?`")?;
            ends.push(self.emit(Operation::Jump(0), position)?);
            self.operations[test] = Operation::JumpIfZero(self.operations.len());
        }
        let end = self.operations.len();
        for jump in ends {
            self.operations[jump] = Operation::Jump(end);
        }
        self.depth -= 1;
        Ok(())
    }

    /// Operators of at least this precedence. Recurses once a level of precedence at most.
    fn binary(&mut self, least: u8) -> Result<(), Diagnostic> {
        self.unary()?;
        let mut compared = false;
        loop {
            let lexeme = self.lexer.peek()?;
            let Token::Symbol(symbol) = lexeme.token else {
                return Ok(());
            };
            let Some((operator, precedence)) =
                Binary::of_symbol(symbol).filter(|&(_, precedence)| precedence >= least)
            else {
                return Ok(());
            };
            if precedence == COMPARISON && std::mem::replace(&mut compared, true) {
                return Err(Diagnostic::new(lexeme.position, "comparisons do not chain")
                    .with_help("put one of them in parentheses"));
            }
            self.lexer.bump();
            self.binary(precedence + 1)?;
            self.emit(Operation::Binary(operator), lexeme.position)?;
        }
    }

    fn unary(&mut self) -> Result<(), Diagnostic> {
        let mut operators = Vec::new();
        loop {
            let lexeme = self.lexer.peek()?;
            let operator = match lexeme.token {
                Token::Symbol("-") => Unary::Negate,
                Token::Symbol("~") => Unary::Not,
                _ => break,
            };
            if operators.len() >= MAX_OPERATIONS {
                return Err(Diagnostic::new(
                    lexeme.position,
                    format!("the expression has more than {MAX_OPERATIONS} operations"),
                ));
            }
            operators.push((operator, lexeme.position));
            self.lexer.bump();
        }
        self.primary()?;
        for (operator, position) in operators.into_iter().rev() {
            self.emit(Operation::Unary(operator), position)?;
        }
        Ok(())
    }

    fn primary(&mut self) -> Result<(), Diagnostic> {
        let lexeme = self.lexer.peek()?;
        let position = lexeme.position;
        match lexeme.token {
            Token::Integer(value) => {
                self.lexer.bump();
                self.emit(Operation::Constant(value), position)?;
            }
            Token::Name("x" | "X") => {
                self.lexer.bump();
                self.emit(Operation::X, position)?;
            }
            Token::Name("y" | "Y") => {
                if self.arguments == Arguments::One {
                    return Err(Diagnostic::new(
                        position,
                        "`y` has no value: this is a function of `x` alone",
                    )
                    .with_help(
                        "`in=P+Q` splits the input in two: x is its upper P bits, y its lower Q",
                    ));
                }
                self.lexer.bump();
                self.emit(Operation::Y, position)?;
            }
            Token::Symbol("(") => {
                self.lexer.bump();
                self.conditional()?;
                self.lexer
                    .expect_symbol(")", "after the expression in parentheses")?;
            }
            Token::Name(name) => {
                self.lexer.bump();
                match name.to_ascii_lowercase().as_str() {
                    "abs" => {
                        self.arguments(name, 1, None)?;
                        self.emit(Operation::Unary(Unary::Abs), position)?;
                    }
                    "min" => self.arguments(name, 2, Some(Binary::Min))?,
                    "max" => self.arguments(name, 2, Some(Binary::Max))?,
                    _ => {
                        return Err(Diagnostic::new(
                            position,
                            format!(
                                "unknown name `{name}` (expected {}, `abs`, `min` or `max`)",
                                self.variables()
                            ),
                        )
                        .with_suggestion(name, FUNCTIONS));
                    }
                }
            }
            token => {
                return Err(Diagnostic::new(
                    position,
                    format!(
                        "expected a number, {}, a function or `(`, found {}",
                        self.variables(),
                        token.describe()
                    ),
                ));
            }
        }
        Ok(())
    }

    fn variables(&self) -> &'static str {
        match self.arguments {
            Arguments::One => "`x`",
            Arguments::Two => "`x`, `y`",
        }
    }

    /// The arguments of a call, in parentheses: exactly one, or two and more that `fold` joins.
    fn arguments(
        &mut self,
        name: &str,
        least: usize,
        fold: Option<Binary>,
    ) -> Result<(), Diagnostic> {
        self.lexer.expect_symbol("(", &format!("after `{name}`"))?;
        self.conditional()?;
        let mut count = 1;
        while let Some(operator) = fold {
            let position = self.lexer.peek()?.position;
            if !self.lexer.take_symbol(",")? {
                break;
            }
            self.conditional()?;
            self.emit(Operation::Binary(operator), position)?;
            count += 1;
        }
        let position = self
            .lexer
            .expect_symbol(")", &format!("after the arguments of `{name}`"))?;
        if count < least {
            return Err(Diagnostic::new(
                position,
                format!("`{name}` takes at least {least} arguments, {count} found"),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Expression, String> {
        parse_with(text, Arguments::One)
    }

    fn parse_with(text: &str, arguments: Arguments) -> Result<Expression, String> {
        let mut lexer = Lexer::new(text);
        let expression = Expression::parse(&mut lexer, arguments).map_err(|error| error.message)?;
        let rest = lexer.peek().map_err(|error| error.message)?;
        if rest.token == Token::End {
            Ok(expression)
        } else {
            Err(format!("left over: {}", rest.token.describe()))
        }
    }

    fn at(text: &str, x: i64) -> Result<i64, EvaluationError> {
        parse(text).unwrap().evaluate(x, 0)
    }

    #[test]
    fn two_arguments() {
        let of = |text: &str| parse_with(text, Arguments::Two).unwrap();
        let difference = of("10*x - Y");
        assert_eq!(difference.evaluate(4, -3), Ok(43));
        assert!(difference.has_y());
        assert!(!of("x").has_y());
        assert_eq!(
            parse("x + y").unwrap_err(),
            "`y` has no value: this is a function of `x` alone"
        );
        assert_eq!(
            parse_with("z", Arguments::Two).unwrap_err(),
            "unknown name `z` (expected `x`, `y`, `abs`, `min` or `max`)"
        );
        assert_eq!(
            parse_with("x *", Arguments::Two).unwrap_err(),
            "expected a number, `x`, `y`, a function or `(`, found the end of the text"
        );
    }

    #[test]
    fn values() {
        let cases: [(&str, i64, i64); 34] = [
            ("x*x/4", -7, 12),
            ("1 + 2 * 3", 0, 7),
            ("(1 + 2) * 3", 0, 9),
            ("10 - 3 - 2", 0, 5),
            ("-7 / 2", 0, -4),
            ("7 / -2", 0, -4),
            ("-8 / 2", 0, -4),
            ("-7 / -2", 0, 3),
            ("-7 % 2", 0, 1),
            ("7 % -2", 0, -1),
            ("-8 % 2", 0, 0),
            ("-x", 5, -5),
            ("--x", 5, 5),
            ("-~x", 5, 6),
            ("~x", 0, -1),
            ("x << 3 | 1", 2, 17),
            ("-1 >> 1", 0, -1),
            ("6 & 3 ^ 1 | 8", 0, 11),
            ("x & 1 == 0", 2, 1),
            ("x == 2", 2, 1),
            ("x != 2", 2, 0),
            ("x < 2", 2, 0),
            ("x <= 2", 2, 1),
            ("x > 1", 2, 1),
            ("x >= 3", 2, 0),
            ("x ? 1 : 2", 0, 2),
            ("x < 0 ? -1 : x > 0 ? 1 : 0", -9, -1),
            ("x < 0 ? -1 : x > 0 ? 1 : 0", 9, 1),
            ("x < 0 ? -1 : x > 0 ? 1 : 0", 0, 0),
            ("x ? x > 1 ? 5 : 6 : 7", 2, 5),
            ("x == 0 ? 0 : 100/x", 0, 0),
            ("abs(x) + min(3, 2, x) - max(x, 0)", -4, 0),
            ("0x1f + 0b11 + 1_000", 0, 1034),
            ("X + abs(-1)", 1, 2),
        ];
        for (text, x, expected) in cases {
            assert_eq!(at(text, x), Ok(expected), "{text} at {x}");
        }
    }

    #[test]
    fn every_operator_agrees_with_rust_where_rust_has_it() {
        for a in -9i64..=9 {
            for b in -9i64..=9 {
                let value = |operator: &str| at(&format!("({a}) {operator} ({b})"), 0).ok();
                assert_eq!(value("+"), Some(a + b));
                assert_eq!(value("-"), Some(a - b));
                assert_eq!(value("*"), Some(a * b));
                assert_eq!(value("&"), Some(a & b));
                assert_eq!(value("|"), Some(a | b));
                assert_eq!(value("^"), Some(a ^ b));
                let floor = (b != 0).then(|| (a as f64 / b as f64).floor() as i64);
                assert_eq!(value("/"), floor, "{a} / {b}");
                assert_eq!(value("%"), floor.map(|q| a - q * b), "{a} % {b}");
                assert_eq!(value("<<"), (b >= 0).then(|| a << b));
                assert_eq!(value(">>"), (b >= 0).then(|| a >> b));
            }
        }
    }

    #[test]
    fn values_that_are_not_there() {
        assert_eq!(at("1/x", 0), Err(EvaluationError::DivisionByZero));
        assert_eq!(at("1%x", 0), Err(EvaluationError::DivisionByZero));
        assert_eq!(at("x*x", i64::MAX), Err(EvaluationError::Overflow));
        assert_eq!(at("x*x*x", i64::MAX), Err(EvaluationError::Overflow));
        assert_eq!(at("x*x/x", i64::MAX), Ok(i64::MAX));
        assert_eq!(
            at("1 << 64", 0),
            Err(EvaluationError::Shift { distance: 64 })
        );
        assert_eq!(
            at("1 >> -1", 0),
            Err(EvaluationError::Shift { distance: -1 })
        );
        assert_eq!(
            at("(1 << 63) << 63 << 63", 0),
            Err(EvaluationError::Overflow)
        );
        let lowest = "(-(1 << 63) << 63) * 2";
        assert_eq!(
            at(&format!("{lowest} / -1"), 0),
            Err(EvaluationError::Overflow)
        );
        assert_eq!(
            at(&format!("{lowest} % -1"), 0),
            Err(EvaluationError::Overflow)
        );
        assert_eq!(
            at(&format!("-({lowest})"), 0),
            Err(EvaluationError::Overflow)
        );
        assert_eq!(
            at(&format!("abs({lowest})"), 0),
            Err(EvaluationError::Overflow)
        );
    }

    #[test]
    fn syntax_errors() {
        for (text, expected) in [
            (
                "",
                "expected a number, `x`, a function or `(`, found the end of the text",
            ),
            (
                "1 +",
                "expected a number, `x`, a function or `(`, found the end of the text",
            ),
            (
                "z",
                "unknown name `z` (expected `x`, `abs`, `min` or `max`)",
            ),
            (
                "(1",
                "expected `)` after the expression in parentheses, found the end of the text",
            ),
            (
                "x ? 1",
                "expected `:` between the branches of `?`, found the end of the text",
            ),
            ("1 < x < 3", "comparisons do not chain"),
            ("abs 3", "expected `(` after `abs`, found `3`"),
            (
                "abs(1, 2)",
                "expected `)` after the arguments of `abs`, found `,`",
            ),
            ("min(1)", "`min` takes at least 2 arguments, 1 found"),
            ("1 2", "left over: `2`"),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn hostile_nesting_is_refused_and_long_chains_are_not_nesting() {
        for open in ["(", "abs(", "x ? ", "-(", "1 + (", "min(1, "] {
            let message = parse(&open.repeat(100_000)).unwrap_err();
            assert_eq!(
                message, "the expression nests deeper than 64 levels",
                "{open}"
            );
        }
        assert_eq!(
            parse(&"-".repeat(100_000)).unwrap_err(),
            "the expression has more than 4096 operations"
        );
        assert_eq!(
            parse(&format!("1{}", "+1".repeat(100_000))).unwrap_err(),
            "the expression has more than 4096 operations"
        );
        assert_eq!(at(&format!("1{}", "+1".repeat(2000)), 0), Ok(2001));
        let chain = format!(
            "{}-1",
            (0..600)
                .map(|i| format!("x == {i} ? {i} : "))
                .collect::<String>()
        );
        assert_eq!(at(&chain, 599), Ok(599));
        assert_eq!(at(&chain, 600), Ok(-1));
    }
}
