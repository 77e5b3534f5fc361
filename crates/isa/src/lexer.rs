//! Takes assembly text apart into tokens, one at a time.

use crate::diagnostic::{Diagnostic, Position};

/// The longest name, in characters.
pub(crate) const MAX_NAME_CHARS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// A letter or `_`, then letters, digits and `_`.
    Name(&'a str),
    /// A name after a dot, without the dot.
    Directive(&'a str),
    Integer(u64),
    /// What stands between two `"` of a line.
    Text(&'a str),
    Symbol(&'static str),
    Newline,
    End,
}

impl Token<'_> {
    /// The token as an error message names it.
    pub fn describe(&self) -> String {
        match self {
            Token::Name(name) => format!("`{name}`"),
            Token::Directive(name) => format!("`.{name}`"),
            Token::Integer(value) => format!("`{value}`"),
            Token::Text(_) => "a text in quotes".to_owned(),
            Token::Symbol(symbol) => format!("`{symbol}`"),
            Token::Newline => "the end of the line".to_owned(),
            Token::End => "the end of the text".to_owned(),
        }
    }

    /// Whether a statement ends here.
    pub fn ends_line(&self) -> bool {
        matches!(self, Token::Newline | Token::End)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lexeme<'a> {
    pub token: Token<'a>,
    pub position: Position,
}

/// Longer symbols stand before their beginnings.
const SYMBOLS: [&str; 25] = [
    "<<", ">>", "<=", ">=", "==", "!=", "+", "-", "*", "/", "%", "&", "|", "^", "~", "<", ">", "=",
    "?", ":", "(", ")", ",", "[", "]",
];

#[derive(Clone, Debug)]
pub(crate) struct Lexer<'a> {
    source: &'a str,
    /// Where the next token or the space before it begins.
    position: Position,
    /// Where the last token that was gone past ended.
    end: u32,
    peeked: Option<(Lexeme<'a>, Position)>,
}

impl<'a> Lexer<'a> {
    pub fn new(source: &'a str) -> Lexer<'a> {
        // A byte order mark is not part of the text.
        let offset = if source.starts_with('\u{feff}') {
            '\u{feff}'.len_utf8() as u32
        } else {
            0
        };
        Lexer {
            source,
            position: Position {
                line: 1,
                line_start: offset,
                offset,
            },
            end: offset,
            peeked: None,
        }
    }

    /// The next token, which stays where it is.
    pub fn peek(&mut self) -> Result<Lexeme<'a>, Diagnostic> {
        if let Some((lexeme, _)) = self.peeked {
            return Ok(lexeme);
        }
        let (lexeme, after) = self.scan()?;
        self.peeked = Some((lexeme, after));
        Ok(lexeme)
    }

    /// Goes past the next token. Without one (the text is wrong there) it stays.
    pub fn bump(&mut self) {
        if self.peek().is_ok()
            && let Some((_, after)) = self.peeked.take()
        {
            self.position = after;
            self.end = after.offset;
        }
    }

    /// Goes past the next token if it is this symbol, and says whether it was.
    pub fn take_symbol(&mut self, symbol: &str) -> Result<bool, Diagnostic> {
        let found = matches!(self.peek()?.token, Token::Symbol(s) if s == symbol);
        if found {
            self.bump();
        }
        Ok(found)
    }

    /// Goes past this symbol or fails; `what` says where it was expected.
    pub fn expect_symbol(&mut self, symbol: &str, what: &str) -> Result<Position, Diagnostic> {
        let lexeme = self.peek()?;
        if self.take_symbol(symbol)? {
            return Ok(lexeme.position);
        }
        Err(Diagnostic::new(
            lexeme.position,
            format!(
                "expected `{symbol}` {what}, found {}",
                lexeme.token.describe()
            ),
        ))
    }

    /// Goes to the end of the line, whatever stands there, and stops before the line feed.
    pub fn skip_line(&mut self) {
        self.peeked = None;
        let rest = self.rest();
        self.advance(rest.find('\n').unwrap_or(rest.len()));
    }

    /// The text from one place to where the last token that was gone past ended.
    pub fn text_since(&self, start: Position) -> &'a str {
        self.source
            .get(start.offset as usize..self.end as usize)
            .unwrap_or_default()
    }

    fn rest(&self) -> &'a str {
        self.source
            .get(self.position.offset as usize..)
            .unwrap_or_default()
    }

    fn advance(&mut self, bytes: usize) {
        // The assembler refuses longer texts than `u32` can index.
        self.position.offset = self.position.offset.saturating_add(bytes as u32);
    }

    fn skip_blank(&mut self) {
        let rest = self.rest();
        let blank = rest
            .find(|c| !matches!(c, ' ' | '\t' | '\r'))
            .unwrap_or(rest.len());
        self.advance(blank);
        let rest = self.rest();
        if rest.starts_with([';', '#']) || rest.starts_with("//") {
            self.advance(rest.find('\n').unwrap_or(rest.len()));
        }
    }

    /// The next token and the place after it. Spaces and comments before it are skipped.
    fn scan(&mut self) -> Result<(Lexeme<'a>, Position), Diagnostic> {
        self.skip_blank();
        let position = self.position;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return Ok((
                Lexeme {
                    token: Token::End,
                    position,
                },
                position,
            ));
        };
        let (token, length) = match first {
            '\n' => {
                let offset = position.offset + 1;
                let after = Position {
                    line: position.line + 1,
                    line_start: offset,
                    offset,
                };
                return Ok((
                    Lexeme {
                        token: Token::Newline,
                        position,
                    },
                    after,
                ));
            }
            '0'..='9' => {
                let word = word(rest);
                (
                    Token::Integer(
                        integer(word).map_err(|message| Diagnostic::new(position, message))?,
                    ),
                    word.len(),
                )
            }
            'a'..='z' | 'A'..='Z' | '_' => {
                let word = word(rest);
                (Token::Name(checked_name(word, position)?), word.len())
            }
            '.' => {
                let word = word(rest.get(1..).unwrap_or_default());
                if !word.starts_with(|c: char| c.is_ascii_alphabetic()) {
                    return Err(Diagnostic::new(
                        position,
                        "expected the name of a directive after `.`",
                    ));
                }
                (
                    Token::Directive(checked_name(word, position)?),
                    word.len() + 1,
                )
            }
            '@' => (Token::Symbol("@"), 1),
            '"' => {
                let behind = rest.get(1..).unwrap_or_default();
                let text = behind
                    .find(['"', '\n'])
                    .filter(|end| behind[*end..].starts_with('"'))
                    .and_then(|end| behind.get(..end))
                    .ok_or_else(|| {
                        Diagnostic::new(position, "the text in quotes has no closing `\"`")
                    })?;
                (Token::Text(text), text.len() + 2)
            }
            _ => match SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) {
                Some(symbol) => (Token::Symbol(symbol), symbol.len()),
                None => {
                    return Err(Diagnostic::new(
                        position,
                        format!("unexpected character {first:?}"),
                    ));
                }
            },
        };
        let after = Position {
            offset: position.offset + length as u32,
            ..position
        };
        Ok((Lexeme { token, position }, after))
    }
}

fn word(text: &str) -> &str {
    let end = text
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

fn checked_name(name: &str, position: Position) -> Result<&str, Diagnostic> {
    if name.len() > MAX_NAME_CHARS {
        return Err(Diagnostic::new(
            position,
            format!(
                "the name has {} characters, at most {MAX_NAME_CHARS} expected",
                name.len()
            ),
        ));
    }
    Ok(name)
}

pub(crate) fn integer(word: &str) -> Result<u64, String> {
    let (digits, radix, kind) = match word.get(..2) {
        Some("0x" | "0X") => (&word[2..], 16, "hexadecimal"),
        Some("0b" | "0B") => (&word[2..], 2, "binary"),
        _ => (word, 10, "decimal"),
    };
    let mut value: u64 = 0;
    let mut any = false;
    for c in digits.chars().filter(|c| *c != '_') {
        let digit = c
            .to_digit(radix)
            .ok_or_else(|| format!("`{}` is not a digit of a {kind} number", c.escape_debug()))?;
        any = true;
        value = value
            .checked_mul(u64::from(radix))
            .and_then(|value| value.checked_add(u64::from(digit)))
            .ok_or_else(|| "the number does not fit 64 bits".to_owned())?;
    }
    if any {
        Ok(value)
    } else {
        Err(format!("expected digits of a {kind} number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<'a> Lexer<'a> {
        fn next(&mut self) -> Result<Lexeme<'a>, Diagnostic> {
            let lexeme = self.peek()?;
            self.bump();
            Ok(lexeme)
        }
    }

    fn tokens(source: &str) -> Vec<Token<'_>> {
        let mut lexer = Lexer::new(source);
        let mut tokens = Vec::new();
        loop {
            match lexer.next().unwrap().token {
                Token::End => return tokens,
                token => tokens.push(token),
            }
        }
    }

    #[test]
    fn tokens_comments_and_spaces() {
        let expected = [
            Token::Directive("tv"),
            Token::Name("a_1"),
            Token::Symbol("@"),
            Token::Integer(16),
            Token::Symbol("<<"),
            Token::Symbol("<"),
            Token::Symbol("="),
            Token::Newline,
            Token::Newline,
            Token::Newline,
            Token::Integer(5),
        ];
        assert_eq!(
            tokens("\u{feff}.tv\ta_1 @0x10 << < = ; c\r\n# c\n // c \u{e9}\n0b1_01"),
            expected
        );
    }

    #[test]
    fn skipping_a_line_keeps_the_next_one() {
        for peek_first in [false, true] {
            let mut lexer = Lexer::new("\n$$$\nmov");
            if peek_first {
                assert_eq!(lexer.peek().unwrap().token, Token::Newline);
            }
            lexer.skip_line();
            assert_eq!(lexer.next().unwrap().token, Token::Newline);
            assert!(lexer.next().is_err());
            lexer.bump();
            lexer.skip_line();
            assert_eq!(lexer.next().unwrap().token, Token::Newline);
            let lexeme = lexer.next().unwrap();
            assert_eq!(
                (lexeme.token, lexeme.position.line),
                (Token::Name("mov"), 3)
            );
        }
    }

    #[test]
    fn texts_end_in_their_line() {
        assert_eq!(
            tokens("f \"a # b; c.txt\" \"\""),
            [
                Token::Name("f"),
                Token::Text("a # b; c.txt"),
                Token::Text("")
            ]
        );
        for source in ["\"", "\"a", "\"a\nb\""] {
            assert_eq!(
                Lexer::new(source).next().unwrap_err().message,
                "the text in quotes has no closing `\"`"
            );
        }
    }

    #[test]
    fn bad_numbers_and_names() {
        let message = |source: &str| Lexer::new(source).next().unwrap_err().message;
        assert_eq!(message("12a"), "`a` is not a digit of a decimal number");
        assert_eq!(message("0b2"), "`2` is not a digit of a binary number");
        assert_eq!(message("0x"), "expected digits of a hexadecimal number");
        assert_eq!(
            message("18446744073709551616"),
            "the number does not fit 64 bits"
        );
        assert_eq!(message("\u{e9}"), "unexpected character 'é'");
        assert_eq!(message(".1"), "expected the name of a directive after `.`");
        assert_eq!(
            message(&"a".repeat(65)),
            "the name has 65 characters, at most 64 expected"
        );
        assert_eq!(tokens("18446744073709551615"), [Token::Integer(u64::MAX)]);
    }
}
