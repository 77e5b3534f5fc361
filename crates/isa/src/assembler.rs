//! Text to program. `docs/reference/isa.md` describes the language.
//!
//! One pass reads statements, one per line, and keeps operands as they are written. Then test vectors without a data id get
//! one, and names are looked up. So a name may precede its declaration, and one call finds every error of a text.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Component, Path};

use crate::diagnostic::{AssembleErrors, Diagnostic, Diagnostics, Position};
use crate::expression::{Arguments, Expression};
use crate::lexer::{Lexeme, Lexer, Token};
use crate::program::{Form, Instruction, MAX_INSTRUCTIONS, Operand, Program, Role};
use crate::test_vector::{MAX_INPUT_BITS, MAX_OUTPUT_BITS, TestVector, TestVectorSource, signed};
use crate::values::{FileError, FileErrorReason, MAX_FILE_VALUES, parse_values};
use crate::vr::{VrNumber, VrType};

/// The longest text that [`assemble`] takes, in bytes.
pub const MAX_SOURCE_BYTES: usize = 1 << 24;

/// The longest path of a file of values, in bytes.
const MAX_PATH_BYTES: usize = 4096;

/// What an assembly text says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembly {
    /// The program.
    pub program: Program,
    /// The registers that `.reg` names.
    pub registers: BTreeMap<String, VrNumber>,
    /// The test vectors that `.tv` declares, in the order of the text.
    pub test_vectors: Vec<TestVector>,
    /// The line of each instruction, from 1.
    pub lines: Vec<u32>,
}

impl Assembly {
    /// Every name of the text, of registers and of test vectors, with its register: what [`crate::disassemble`] takes.
    pub fn names(&self) -> BTreeMap<String, VrNumber> {
        let test_vectors = self.test_vectors.iter().map(|tv| (tv.name.clone(), tv.vr));
        self.registers
            .iter()
            .map(|(name, vr)| (name.clone(), *vr))
            .chain(test_vectors)
            .collect()
    }

    /// Puts the values of files in the place of their names. `read` gives the text of the file with a path as the program
    /// has it: relative to the folder of the program's text, and inside it.
    ///
    /// # Errors
    /// The first file that `read` refuses, that is not a list of values ([`TestVectorSource::from_values`]), whose values are not as
    /// many as the test vector's `in=` says, or at which the files of the program have more than 2^20 values.
    pub fn resolve_files<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        &mut self,
        mut read: impl FnMut(&str) -> Result<String, E>,
    ) -> Result<(), FileError> {
        let mut total = 0;
        for vector in &mut self.test_vectors {
            let TestVectorSource::File(path) = &vector.source else {
                continue;
            };
            let table = read(path)
                .map_err(|error| FileErrorReason::Read(error.into()))
                .and_then(|text| Ok(parse_values(&text)?))
                .and_then(|values| match vector.p_in {
                    Some(p_in) if values.len() != 1 << p_in => Err(FileErrorReason::Length {
                        found: values.len(),
                        expected: 1 << p_in,
                        p_in,
                    }),
                    _ => Ok(values),
                })
                .and_then(|values| {
                    total += values.len();
                    if total > MAX_FILE_VALUES {
                        return Err(FileErrorReason::TooMany);
                    }
                    Ok(values)
                });
            match table {
                Ok(values) => vector.source = TestVectorSource::Table(values),
                Err(reason) => {
                    return Err(FileError {
                        name: vector.name.clone(),
                        path: path.clone(),
                        reason,
                    });
                }
            }
        }
        Ok(())
    }
}

/// Assembles a program with the declarations that go with it. Whether the program can run is for [`crate::verify`] to say.
///
/// # Errors
/// Everything that is wrong with the text, each with line, column and reason, up to [`crate::MAX_ERRORS`].
pub fn assemble(source: &str) -> Result<Assembly, AssembleErrors> {
    assemble_for(0, source)
}

/// The same for registers of this key id, where the text names none.
///
/// # Errors
/// Those of [`assemble`].
pub fn assemble_for(key_id: u32, source: &str) -> Result<Assembly, AssembleErrors> {
    let mut assembler = Assembler::new(source)?;
    assembler.key_id = key_id;
    assembler.read();
    let assembly = assembler.link();
    assembler.diagnostics.into_result(source, assembly)
}

impl TestVectorSource {
    /// Reads what stands right of the `=` of a `.tv`: an expression, a table in brackets, or the name of a file.
    ///
    /// # Errors
    /// What is wrong with the text, as [`crate::assemble`] reports it.
    pub fn parse(source: &str) -> Result<TestVectorSource, AssembleErrors> {
        let mut assembler = Assembler::new(source)?;
        let parsed = assembler
            .test_vector_source(Arguments::Two)
            .and_then(|(parsed, _)| {
                while assembler.lexer.peek()?.token == Token::Newline {
                    assembler.lexer.bump();
                }
                let rest = assembler.lexer.peek()?;
                if rest.token == Token::End {
                    Ok(parsed)
                } else {
                    Err(unexpected(&rest, "the end of the text"))
                }
            });
        let parsed = parsed.unwrap_or_else(|diagnostic| {
            assembler.diagnostics.push(diagnostic);
            TestVectorSource::Table(Vec::new())
        });
        assembler.diagnostics.into_result(source, parsed)
    }
}

const DIRECTIVES: [&str; 3] = ["key", "reg", "tv"];

/// A register as the text names it.
#[derive(Clone, Copy)]
enum Register<'a> {
    Number(VrNumber),
    Name(&'a str, Position),
}

/// An operand as the text has it.
#[derive(Clone, Copy)]
enum Written<'a> {
    Register(Register<'a>),
    Number(Operand),
}

/// One or several instructions whose names are not looked up yet.
enum Statement<'a> {
    One(&'static Form, Vec<Written<'a>>),
    /// `bootstrap [f, g], [a, b], n`: test vectors, as many registers with their places, and the sample.
    Bootstraps(
        Vec<Register<'a>>,
        Vec<(Register<'a>, Position)>,
        Register<'a>,
    ),
}

/// What a name stands for.
#[derive(Clone, Copy)]
enum Meaning {
    Register(VrNumber),
    /// The index of a test vector.
    TestVector(usize),
    /// The declaration is wrong and has been reported; so uses of the name are not.
    Unknown,
}

/// A `.tv` whose data id may be missing yet.
struct Declaration<'a> {
    name: &'a str,
    key_id: u32,
    data_id: Option<(u32, Position)>,
    options: Options,
    source: TestVectorSource,
}

#[derive(Clone, Copy, Default)]
struct Options {
    signed: Option<bool>,
    input: Option<InputBits>,
    p_out: Option<u32>,
}

/// What `in=` says.
#[derive(Clone, Copy)]
struct InputBits {
    /// All bits of the input.
    p_in: u32,
    /// Those of the lower argument, if there are two.
    p_y: Option<u32>,
}

struct Assembler<'a> {
    lexer: Lexer<'a>,
    diagnostics: Diagnostics,
    /// The key id that `.key` set last.
    key_id: u32,
    names: BTreeMap<&'a str, (Meaning, Position)>,
    registers: BTreeMap<String, VrNumber>,
    declarations: Vec<Declaration<'a>>,
    /// Key and data ids of the test vectors that the text names by number.
    taken: BTreeSet<(u32, u32)>,
    /// Every statement, and where it begins.
    statements: Vec<(Statement<'a>, Position)>,
}

fn unexpected(lexeme: &Lexeme<'_>, expected: &str) -> Diagnostic {
    Diagnostic::new(
        lexeme.position,
        format!("expected {expected}, found {}", lexeme.token.describe()),
    )
}

impl<'a> Assembler<'a> {
    fn new(source: &'a str) -> Result<Assembler<'a>, AssembleErrors> {
        if source.len() > MAX_SOURCE_BYTES {
            let start = Position {
                line: 1,
                line_start: 0,
                offset: 0,
            };
            let message = format!(
                "the text has {} bytes, at most {MAX_SOURCE_BYTES} expected",
                source.len()
            );
            let errors = vec![Diagnostic::new(start, message).locate(source)];
            return Err(AssembleErrors {
                errors,
                stopped: false,
            });
        }
        Ok(Assembler {
            lexer: Lexer::new(source),
            diagnostics: Diagnostics::default(),
            key_id: 0,
            names: BTreeMap::new(),
            registers: BTreeMap::new(),
            declarations: Vec::new(),
            taken: BTreeSet::new(),
            statements: Vec::new(),
        })
    }

    fn read(&mut self) {
        while !self.diagnostics.is_full() {
            let result = match self.lexer.peek() {
                Ok(lexeme) if lexeme.token == Token::End => return,
                Ok(lexeme) => self.line(lexeme),
                Err(diagnostic) => Err(diagnostic),
            };
            if let Err(diagnostic) = result {
                self.diagnostics.push(diagnostic);
                self.lexer.skip_line();
            }
        }
    }

    fn line(&mut self, first: Lexeme<'a>) -> Result<(), Diagnostic> {
        match first.token {
            Token::Newline => {
                self.lexer.bump();
                return Ok(());
            }
            Token::Directive(name) => {
                self.lexer.bump();
                match name.to_ascii_lowercase().as_str() {
                    "key" => self.key_directive()?,
                    "reg" => self.reg_directive()?,
                    "tv" => self.tv_directive()?,
                    _ => {
                        return Err(Diagnostic::new(
                            first.position,
                            format!(
                                "unknown directive `.{name}` (expected `.key`, `.reg` or `.tv`)"
                            ),
                        )
                        .with_suggestion(name, DIRECTIVES));
                    }
                }
            }
            Token::Name(name) => {
                self.lexer.bump();
                self.instruction(name, first.position)?;
            }
            _ => return Err(unexpected(&first, "an instruction or a directive")),
        }
        let rest = self.lexer.peek()?;
        if rest.token.ends_line() {
            Ok(())
        } else {
            Err(unexpected(&rest, "the end of the line"))
        }
    }

    fn instruction(&mut self, name: &'a str, position: Position) -> Result<(), Diagnostic> {
        let Some(form) = Instruction::FORMS
            .iter()
            .find(|form| form.mnemonic.eq_ignore_ascii_case(name))
        else {
            let error = Diagnostic::new(position, format!("unknown instruction `{name}`"));
            return Err(match self.lexer.peek().map(|lexeme| lexeme.token) {
                Ok(Token::Symbol(":")) => {
                    error.with_help("programs are straight lines: there are no labels and no jumps")
                }
                Ok(Token::Symbol("=")) => error.with_help(format!(
                    "a register is named with `.reg {name} = cor:KEY:DATA`"
                )),
                _ => {
                    let mnemonics = Instruction::FORMS.iter().map(|form| form.mnemonic);
                    error.with_suggestion(name, mnemonics)
                }
            });
        };
        let statement = if form.roles.contains(&Role::TestVector) {
            self.bootstrap(form)?
        } else {
            self.one(form)?
        };
        self.statements.push((statement, position));
        Ok(())
    }

    fn one(&mut self, form: &'static Form) -> Result<Statement<'a>, Diagnostic> {
        let mut operands = Vec::with_capacity(form.roles.len());
        for (role, behind) in form.roles.iter().zip([
            None,
            Some("and a second operand"),
            Some("and a third operand"),
        ]) {
            if let Some(behind) = behind {
                self.lexer.expect_symbol(",", behind)?;
            }
            operands.push(self.written(*role)?);
        }
        Ok(Statement::One(form, operands))
    }

    fn written(&mut self, role: Role) -> Result<Written<'a>, Diagnostic> {
        Ok(match role {
            Role::Factor => Written::Number(Operand::Factor(self.factor()?)),
            Role::Count => Written::Number(Operand::Count(self.integer_u32("a number of rows")?.0)),
            Role::Read | Role::Write | Role::Update | Role::TestVector => {
                Written::Register(self.operand()?)
            }
        })
    }

    fn factor(&mut self) -> Result<i32, Diagnostic> {
        let (value, position) = self.signed_integer("an integer")?;
        i32::try_from(value).map_err(|_| {
            Diagnostic::new(
                position,
                format!("{value} does not fit 32 bits (-2147483648 to 2147483647 expected)"),
            )
        })
    }

    /// The operands of `bootstrap`: one function in place, or several of one sample.
    fn bootstrap(&mut self, form: &'static Form) -> Result<Statement<'a>, Diagnostic> {
        const SEVERAL: &str = "several functions of one sample are `bootstrap [f, g], [a, b], n`: a <- f(n), b <- g(n)";
        let open = self.lexer.peek()?.position;
        if !self.lexer.take_symbol("[")? {
            let one = self.one(form)?;
            let behind = self.lexer.peek()?;
            return match behind.token {
                Token::Symbol(",") => {
                    Err(unexpected(&behind, "the end of the line").with_help(SEVERAL))
                }
                _ => Ok(one),
            };
        }
        let vectors = self.operand_list(open, "a test vector")?;
        let lexeme = self.lexer.peek()?;
        if !self.lexer.take_symbol(",")? {
            return Err(
                unexpected(&lexeme, "`,` and the registers of the results").with_help(SEVERAL)
            );
        }
        let lexeme = self.lexer.peek()?;
        if !self.lexer.take_symbol("[")? {
            return Err(
                unexpected(&lexeme, "`[` and the registers of the results").with_help(SEVERAL)
            );
        }
        let targets = self.operand_list(lexeme.position, "a register")?;
        if targets.len() != vectors.len() {
            return Err(Diagnostic::new(
                lexeme.position,
                format!(
                    "{} registers for {} test vectors: one for each expected",
                    targets.len(),
                    vectors.len()
                ),
            ));
        }
        let lexeme = self.lexer.peek()?;
        if !self.lexer.take_symbol(",")? {
            return Err(unexpected(&lexeme, "`,` and the sample").with_help(SEVERAL));
        }
        let n = self.operand()?;
        let vectors = vectors.into_iter().map(|(vector, _)| vector).collect();
        Ok(Statement::Bootstraps(vectors, targets, n))
    }

    /// The operands, at least one, of a list whose bracket at `open` has been read, with their places.
    fn operand_list(
        &mut self,
        open: Position,
        expected: &str,
    ) -> Result<Vec<(Register<'a>, Position)>, Diagnostic> {
        if self.lexer.take_symbol("]")? {
            return Err(Diagnostic::new(
                open,
                format!("the list is empty, at least {expected} expected"),
            ));
        }
        let mut operands = Vec::new();
        loop {
            let position = self.lexer.peek()?.position;
            operands.push((self.operand()?, position));
            let lexeme = self.lexer.peek()?;
            if self.lexer.take_symbol("]")? {
                return Ok(operands);
            }
            if !self.lexer.take_symbol(",")? {
                return Err(unexpected(&lexeme, "`,` or `]` in the list"));
            }
        }
    }

    fn operand(&mut self) -> Result<Register<'a>, Diagnostic> {
        let (name, position) = self.name("a register")?;
        if self.lexer.take_symbol(":")? {
            return self.register(name, position).map(Register::Number);
        }
        Ok(Register::Name(name, position))
    }

    fn name(&mut self, expected: &str) -> Result<(&'a str, Position), Diagnostic> {
        let lexeme = self.lexer.peek()?;
        let Token::Name(name) = lexeme.token else {
            return Err(unexpected(&lexeme, expected));
        };
        self.lexer.bump();
        Ok((name, lexeme.position))
    }

    /// The rest of a register literal whose type and first colon have been read.
    fn register(&mut self, ty: &str, position: Position) -> Result<VrNumber, Diagnostic> {
        let ty = VrType::from_name(ty).ok_or_else(|| {
            Diagnostic::new(
                position,
                format!("unknown register type `{ty}` (expected prg, tv, key, cor or cow)"),
            )
            .with_suggestion(ty, VrType::ALL.map(VrType::name))
        })?;
        let (first, first_position) = self.integer_u32("a key id or data id")?;
        let (key_id, data_id) = if self.lexer.take_symbol(":")? {
            (first, self.integer_u32("a data id")?.0)
        } else {
            (self.key_id, first)
        };
        let vr = VrNumber::new(ty, key_id, data_id)
            .map_err(|error| Diagnostic::new(first_position, error.to_string()))?;
        if ty == VrType::Tv {
            self.taken.insert((key_id, data_id));
        }
        Ok(vr)
    }

    fn integer(&mut self, expected: &str) -> Result<(u64, Position), Diagnostic> {
        let lexeme = self.lexer.peek()?;
        let Token::Integer(value) = lexeme.token else {
            return Err(unexpected(&lexeme, expected));
        };
        self.lexer.bump();
        Ok((value, lexeme.position))
    }

    fn integer_u32(&mut self, expected: &str) -> Result<(u32, Position), Diagnostic> {
        let (value, position) = self.integer(expected)?;
        match u32::try_from(value) {
            Ok(value) => Ok((value, position)),
            Err(_) => Err(Diagnostic::new(
                position,
                format!(
                    "{value} is too large for {expected} (at most {} expected)",
                    u32::MAX
                ),
            )),
        }
    }

    fn signed_integer(&mut self, expected: &str) -> Result<(i128, Position), Diagnostic> {
        let position = self.lexer.peek()?.position;
        let negative = self.lexer.take_symbol("-")?;
        let value = i128::from(self.integer(expected)?.0);
        Ok((if negative { -value } else { value }, position))
    }

    fn key_directive(&mut self) -> Result<(), Diagnostic> {
        let (key_id, position) = self.integer_u32("a key id")?;
        VrNumber::program(key_id).map_err(|error| Diagnostic::new(position, error.to_string()))?;
        self.key_id = key_id;
        Ok(())
    }

    fn reg_directive(&mut self) -> Result<(), Diagnostic> {
        let (name, position) = self.name("the name of a register")?;
        let definition = self.reg_definition();
        let vr = self.defined(name, position, definition)?;
        self.declare(name, position, Meaning::Register(vr))?;
        self.registers.insert(name.to_owned(), vr);
        Ok(())
    }

    /// The definition that follows a name. If it is wrong, uses of the name are no errors of their own.
    fn defined<T>(
        &mut self,
        name: &'a str,
        position: Position,
        definition: Result<T, Diagnostic>,
    ) -> Result<T, Diagnostic> {
        if definition.is_err() {
            let unknown = (Meaning::Unknown, position);
            self.names.entry(name).or_insert(unknown);
        }
        definition
    }

    fn reg_definition(&mut self) -> Result<VrNumber, Diagnostic> {
        self.lexer.expect_symbol("=", "after the register's name")?;
        let (ty, position) = self.name("a register such as `cor:0:1`")?;
        self.lexer.expect_symbol(":", "after the register's type")?;
        self.register(ty, position)
    }

    fn declare(
        &mut self,
        name: &'a str,
        position: Position,
        meaning: Meaning,
    ) -> Result<(), Diagnostic> {
        if let Some((_, first)) = self.names.get(name) {
            return Err(Diagnostic::new(
                position,
                format!("`{name}` is already declared in line {}", first.line),
            ));
        }
        self.names.insert(name, (meaning, position));
        Ok(())
    }

    fn tv_directive(&mut self) -> Result<(), Diagnostic> {
        let (name, position) = self.name("the name of a test vector")?;
        let definition = self.tv_definition(name);
        let declaration = self.defined(name, position, definition)?;
        self.declare(name, position, Meaning::TestVector(self.declarations.len()))?;
        self.declarations.push(declaration);
        Ok(())
    }

    fn tv_definition(&mut self, name: &'a str) -> Result<Declaration<'a>, Diagnostic> {
        let mut options = Options::default();
        let mut data_id: Option<(u32, Position)> = None;
        loop {
            let lexeme = self.lexer.peek()?;
            let repeated = match lexeme.token {
                Token::Symbol("=") => {
                    self.lexer.bump();
                    break;
                }
                Token::Symbol("@") => {
                    self.lexer.bump();
                    let id = self.integer_u32("a data id")?.0;
                    data_id.replace((id, lexeme.position)).is_some()
                }
                Token::Name(option) => {
                    self.lexer.bump();
                    match option.to_ascii_lowercase().as_str() {
                        "signed" => options.signed.replace(true).is_some(),
                        "unsigned" => options.signed.replace(false).is_some(),
                        "in" => options.input.replace(self.input_bits()?).is_some(),
                        "out" => options
                            .p_out
                            .replace(self.width("out", MAX_OUTPUT_BITS)?)
                            .is_some(),
                        _ => {
                            return Err(unexpected(
                                &lexeme,
                                "`=`, `@`, `signed`, `unsigned`, `in=` or `out=`",
                            )
                            .with_suggestion(option, ["signed", "unsigned", "in", "out"]));
                        }
                    }
                }
                _ => {
                    return Err(unexpected(
                        &lexeme,
                        "`=` and the function of the test vector",
                    ));
                }
            };
            if repeated {
                return Err(Diagnostic::new(
                    lexeme.position,
                    "this is said twice of the test vector",
                ));
            }
        }
        let arguments = match options.input {
            Some(InputBits { p_y: Some(_), .. }) => Arguments::Two,
            _ => Arguments::One,
        };
        let (source, position) = self.test_vector_source(arguments)?;
        if let (TestVectorSource::Table(values), Some(InputBits { p_in, .. })) =
            (&source, options.input)
            && values.len() != 1 << p_in
        {
            return Err(Diagnostic::new(
                position,
                format!(
                    "the table has {} values, {} expected for an input of {p_in} bits",
                    values.len(),
                    1u32 << p_in
                ),
            ));
        }
        Ok(Declaration {
            name,
            key_id: self.key_id,
            data_id,
            options,
            source,
        })
    }

    fn width(&mut self, option: &str, largest: u32) -> Result<u32, Diagnostic> {
        self.lexer
            .expect_symbol("=", &format!("after `{option}`"))?;
        let (bits, position) = self.integer_u32("a number of bits")?;
        if !(1..=largest).contains(&bits) {
            return Err(Diagnostic::new(
                position,
                format!("`{option}` is {bits} bits, 1 to {largest} expected"),
            ));
        }
        Ok(bits)
    }

    /// The rest of `in=P` or `in=P+Q` after the `in`.
    fn input_bits(&mut self) -> Result<InputBits, Diagnostic> {
        let p_in = self.width("in", MAX_INPUT_BITS)?;
        if !self.lexer.take_symbol("+")? {
            return Ok(InputBits { p_in, p_y: None });
        }
        let (p_y, position) = self.integer_u32("the bits of the second argument")?;
        let both = p_in.saturating_add(p_y);
        if p_y == 0 || both > MAX_INPUT_BITS {
            return Err(Diagnostic::new(
                position,
                format!(
                    "`in` is {p_in}+{p_y} bits, at least 1 each and at most {MAX_INPUT_BITS} together expected"
                ),
            ));
        }
        Ok(InputBits {
            p_in: both,
            p_y: Some(p_y),
        })
    }

    /// The function of a test vector, and where it begins.
    fn test_vector_source(
        &mut self,
        arguments: Arguments,
    ) -> Result<(TestVectorSource, Position), Diagnostic> {
        let lexeme = self.lexer.peek()?;
        let start = lexeme.position;
        let source = match lexeme.token {
            Token::Symbol("[") => {
                self.lexer.bump();
                TestVectorSource::Table(self.table(start)?)
            }
            Token::Name(name) if name.eq_ignore_ascii_case("file") => {
                self.lexer.bump();
                TestVectorSource::File(self.path()?)
            }
            _ => TestVectorSource::Expression(Expression::parse(&mut self.lexer, arguments)?),
        };
        Ok((source, start))
    }

    /// The path of a file of values, in quotes.
    fn path(&mut self) -> Result<String, Diagnostic> {
        let lexeme = self.lexer.peek()?;
        let Token::Text(path) = lexeme.token else {
            return Err(unexpected(
                &lexeme,
                "the path of a file in quotes after `file`",
            ));
        };
        let wrong = |message: String| Err(Diagnostic::new(lexeme.position, message));
        if path.is_empty() || path.len() > MAX_PATH_BYTES {
            return wrong(format!(
                "the path has {} bytes, 1 to {MAX_PATH_BYTES} expected",
                path.len()
            ));
        }
        if let Some(c) = path.chars().find(|c| c.is_control()) {
            return wrong(format!("the path has the control character {c:?}"));
        }
        // A test vector goes to the drive in clear: a text must not be able to publish numbers from just anywhere.
        let within = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if !Path::new(path).components().all(within) {
            return wrong(
                "the path leaves the program's folder: one inside it, without `..`, expected"
                    .to_owned(),
            );
        }
        self.lexer.bump();
        Ok(path.to_owned())
    }

    /// The values of a table whose bracket at `open` has been read. They may stand in several lines.
    fn table(&mut self, open: Position) -> Result<Vec<i64>, Diagnostic> {
        let mut values = Vec::new();
        loop {
            let lexeme = self.peek_in_table(open)?;
            if self.lexer.take_symbol("]")? {
                break;
            }
            if !values.is_empty() {
                if !self.lexer.take_symbol(",")? {
                    return Err(unexpected(
                        &lexeme,
                        &format!("`,` or `]` in the table that begins in line {}", open.line),
                    ));
                }
                self.peek_in_table(open)?;
                if self.lexer.take_symbol("]")? {
                    break;
                }
            }
            if values.len() >= 1 << MAX_INPUT_BITS {
                return Err(Diagnostic::new(
                    lexeme.position,
                    format!("the table has more than {} values", 1 << MAX_INPUT_BITS),
                ));
            }
            let start = self.lexer.peek()?.position;
            let negative = self.lexer.take_symbol("-")?;
            let digits = self.lexer.peek()?;
            let Token::Integer(value) = digits.token else {
                return Err(unexpected(
                    &digits,
                    &format!("a value in the table that begins in line {}", open.line),
                ));
            };
            self.lexer.bump();
            values
                .push(signed(negative, value).map_err(|message| Diagnostic::new(start, message))?);
        }
        if values.len() < 2 || !values.len().is_power_of_two() {
            return Err(Diagnostic::new(
                open,
                format!(
                    "the table has {} values, a power of two from 2 to {} expected",
                    values.len(),
                    1 << MAX_INPUT_BITS
                ),
            ));
        }
        Ok(values)
    }

    fn peek_in_table(&mut self, open: Position) -> Result<Lexeme<'a>, Diagnostic> {
        loop {
            let lexeme = self.lexer.peek()?;
            match lexeme.token {
                Token::Newline => self.lexer.bump(),
                Token::End => return Err(Diagnostic::new(open, "the table has no `]`")),
                _ => return Ok(lexeme),
            }
        }
    }

    /// Gives test vectors their data ids and looks the names up.
    fn link(&mut self) -> Assembly {
        let test_vectors = self.test_vectors();
        let statements = std::mem::take(&mut self.statements);
        let mut instructions = Vec::with_capacity(statements.len());
        let mut lines = Vec::with_capacity(statements.len());
        for (statement, position) in statements {
            let instruction = match statement {
                Statement::One(form, written) => {
                    // Every operand is looked up, so that each that is unknown is reported.
                    let operands: Vec<_> = written
                        .into_iter()
                        .map(|written| self.value(written, &test_vectors))
                        .collect();
                    let operands: Option<Vec<_>> = operands.into_iter().collect();
                    operands.and_then(|operands| (form.make)(&operands))
                }
                Statement::Bootstraps(vectors, targets, n) => {
                    self.expand(&vectors, &targets, n, &test_vectors, &mut instructions);
                    None
                }
            };
            instructions.extend(instruction);
            lines.resize(instructions.len(), position.line);
            if instructions.len() > MAX_INSTRUCTIONS {
                self.diagnostics.push(Diagnostic::new(
                    position,
                    format!("the program has more than {MAX_INSTRUCTIONS} instructions"),
                ));
                break;
            }
            if self.diagnostics.is_full() {
                break;
            }
        }
        Assembly {
            // The limit has been checked statement by statement.
            program: Program::new(instructions).unwrap_or_default(),
            registers: std::mem::take(&mut self.registers),
            test_vectors,
            lines,
        }
    }

    /// The instructions of `bootstrap [f, g], [a, b], n`: copies of n to every register but itself, and then the bootstraps side by side.
    fn expand(
        &mut self,
        vectors: &[Register<'a>],
        targets: &[(Register<'a>, Position)],
        n: Register<'a>,
        test_vectors: &[TestVector],
        instructions: &mut Vec<Instruction>,
    ) {
        let mut taken = HashSet::with_capacity(targets.len());
        let mut bootstraps = Vec::with_capacity(targets.len());
        let source = self.look_up(n, test_vectors);
        for (vector, (target, position)) in vectors.iter().zip(targets) {
            let tv = self.look_up(*vector, test_vectors);
            let n = self.look_up(*target, test_vectors);
            if let Some(n) = n
                && !taken.insert(n)
            {
                self.diagnostics.push(
                    Diagnostic::new(*position, format!("register {n} stands twice in the list"))
                        .with_help("each function needs a register of its own"),
                );
            }
            bootstraps.extend(tv.zip(n).map(|(tv, n)| Instruction::Bootstrap { tv, n }));
        }
        let Some(src) = source else {
            return;
        };
        let copies = bootstraps
            .iter()
            .filter_map(Instruction::writes)
            .filter(|dst| *dst != src)
            .map(|dst| Instruction::Move { dst, src });
        instructions.extend(copies);
        instructions.append(&mut bootstraps);
    }

    fn test_vectors(&mut self) -> Vec<TestVector> {
        let declarations = std::mem::take(&mut self.declarations);
        let mut owners: HashMap<(u32, u32), &str> = HashMap::new();
        for declaration in &declarations {
            let Some((data_id, position)) = declaration.data_id else {
                continue;
            };
            if let Some(owner) = owners.insert((declaration.key_id, data_id), declaration.name) {
                self.diagnostics.push(Diagnostic::new(
                    position,
                    format!(
                        "data id {data_id} of key {} already belongs to the test vector `{owner}`",
                        declaration.key_id
                    ),
                ));
            }
            self.taken.insert((declaration.key_id, data_id));
        }
        // The next data id to try, for each key id.
        let mut next: HashMap<u32, u32> = HashMap::new();
        let mut test_vectors = Vec::with_capacity(declarations.len());
        for declaration in declarations {
            let key_id = declaration.key_id;
            let data_id = declaration.data_id.map_or_else(
                || {
                    let next = next.entry(key_id).or_insert(0);
                    // A text is too short to take every data id.
                    while self.taken.contains(&(key_id, *next)) {
                        *next = next.wrapping_add(1);
                    }
                    let data_id = *next;
                    *next = next.wrapping_add(1);
                    data_id
                },
                |(data_id, _)| data_id,
            );
            // `.key` lets no other key ids through.
            let Ok(vr) = VrNumber::new(VrType::Tv, key_id, data_id) else {
                continue;
            };
            test_vectors.push(TestVector {
                name: declaration.name.to_owned(),
                vr,
                signed: declaration.options.signed.unwrap_or(true),
                p_in: declaration.options.input.map(|input| input.p_in),
                p_y: declaration.options.input.and_then(|input| input.p_y),
                p_out: declaration.options.p_out,
                source: declaration.source,
            });
        }
        test_vectors
    }

    /// The register that the operand means; none if that is unknown, which then has been reported.
    fn value(&mut self, written: Written<'a>, test_vectors: &[TestVector]) -> Option<Operand> {
        match written {
            Written::Register(register) => {
                self.look_up(register, test_vectors).map(Operand::Register)
            }
            Written::Number(number) => Some(number),
        }
    }

    fn look_up(&mut self, register: Register<'a>, test_vectors: &[TestVector]) -> Option<VrNumber> {
        let (name, position) = match register {
            Register::Number(vr) => return Some(vr),
            Register::Name(name, position) => (name, position),
        };
        match self.names.get(name) {
            Some((Meaning::Register(vr), _)) => Some(*vr),
            Some((Meaning::TestVector(index), _)) => test_vectors.get(*index).map(|tv| tv.vr),
            Some((Meaning::Unknown, _)) => None,
            None => {
                let error = Diagnostic::new(position, format!("`{name}` is not declared"))
                    .with_help(format!("declare it with `.reg {name} = cor:KEY:DATA` or, if it is a test vector, with `.tv {name} = FUNCTION`"));
                self.diagnostics
                    .push(error.with_suggestion(name, self.names.keys().copied()));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vr(text: &str) -> VrNumber {
        text.parse().unwrap()
    }

    /// The first error as `line:column: message`, and its help.
    fn first_error(source: &str) -> (String, Option<String>) {
        let error = assemble(source).unwrap_err().errors.remove(0);
        (
            format!("{}:{}: {}", error.line, error.column, error.message),
            error.help,
        )
    }

    #[test]
    fn every_instruction_in_every_spelling() {
        let assembly = assemble(
            "
            .reg a = cor:0:1   ; comments
            .reg b = cow:2     # of every
            .tv  f = x         // kind
            mov a, b
            PUSH a
            Pop cor:3
            bootstrap f, a
            homadd a, COW:0:2
            homsub a, b
            homintmult a, -0x8000_0000
            homintadd a, 0b11
            HOMSUM a, 0
            lower a, 4
            upper b, 0x4
            join a, b, 4
            return a",
        )
        .unwrap();
        let (a, b) = (vr("cor:0:1"), vr("cow:0:2"));
        assert_eq!(
            assembly.program.instructions(),
            [
                Instruction::Move { dst: a, src: b },
                Instruction::Push { n: a },
                Instruction::Pop { n: vr("cor:0:3") },
                Instruction::Bootstrap {
                    tv: vr("tv:0:0"),
                    n: a
                },
                Instruction::HomAdd { dst: a, src: b },
                Instruction::HomSub { dst: a, src: b },
                Instruction::HomIntMult { n: a, v: i32::MIN },
                Instruction::HomIntAdd { n: a, v: 3 },
                Instruction::HomSum { n: a, g: 0 },
                Instruction::Lower { n: a, d: 4 },
                Instruction::Upper { n: b, d: 4 },
                Instruction::Join {
                    lower: a,
                    upper: b,
                    d: 4
                },
                Instruction::Return { n: a },
            ]
        );
        assert_eq!(
            assembly.lines,
            [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]
        );
        assert_eq!(
            assembly.registers,
            BTreeMap::from([("a".to_owned(), a), ("b".to_owned(), b)])
        );
        assert_eq!(assembly.names()["f"], vr("tv:0:0"));
    }

    #[test]
    fn the_default_key_holds_for_what_follows() {
        let assembly = assemble(
            ".reg a = cor:1\n.key 7\n.reg b = cor:1\n.tv t = x\n.reg c = cor:0:1\npush cor:2",
        )
        .unwrap();
        assert_eq!(assembly.registers["a"], vr("cor:0:1"));
        assert_eq!(assembly.registers["b"], vr("cor:7:1"));
        assert_eq!(assembly.registers["c"], vr("cor:0:1"));
        assert_eq!(assembly.test_vectors[0].vr, vr("tv:7:0"));
        assert_eq!(
            assembly.program.instructions(),
            [Instruction::Push { n: vr("cor:7:2") }]
        );
    }

    #[test]
    fn test_vectors_with_every_option() {
        let assembly = assemble(
            ".tv a = x*x/4
             .tv b @1 unsigned in=2 out=3 = [0, 1,
                -2, ; within a table
                3,
             ]
             .tv c out=5 signed = [1, 2]
             .tv d = x + 1 ; not this
             .reg other = tv:0:0
             .key 1
             .tv e = x",
        )
        .unwrap();
        let [a, b, c, d, e] = assembly.test_vectors.as_slice() else {
            panic!("five test vectors expected")
        };
        // 0 and 1 are named in the text.
        assert_eq!(
            [a.vr, b.vr, c.vr, d.vr, e.vr],
            ["tv:0:2", "tv:0:1", "tv:0:3", "tv:0:4", "tv:1:0"].map(vr)
        );
        assert_eq!((a.signed, a.p_in, a.p_out), (true, None, None));
        assert_eq!((b.signed, b.p_in, b.p_out), (false, Some(2), Some(3)));
        assert_eq!((c.signed, c.p_in, c.p_out), (true, None, Some(5)));
        assert_eq!(b.source, TestVectorSource::Table(vec![0, 1, -2, 3]));
        let TestVectorSource::Expression(expression) = &d.source else {
            panic!("an expression expected")
        };
        assert_eq!(expression.to_string(), "x + 1");
    }

    #[test]
    fn several_functions_of_one_sample_are_moves_and_bootstraps() {
        let names = ".reg a = cor:1\n.reg b = cor:2\n.reg c = cor:3\n.reg n = cow:4\n.tv f = x\n.tv g @1 = -x\n";
        for (short, long) in [
            (
                "bootstrap [f, g, f], [a, b, c], n",
                "mov a, n\nmov b, n\nmov c, n\nbootstrap f, a\nbootstrap g, b\nbootstrap f, c",
            ),
            (
                "BOOTSTRAP [g, f, tv:0:1],[a,n,cor:0:3], n ; n is among them",
                "mov a, n\nmov c, n\nbootstrap g, a\nbootstrap f, n\nbootstrap g, c",
            ),
            ("bootstrap [f], [a], n", "mov a, n\nbootstrap f, a"),
            ("bootstrap [f], [n], n", "bootstrap f, n"),
        ] {
            let short = assemble(&format!("{names}{short}\nreturn a")).unwrap();
            let long = assemble(&format!("{names}{long}\nreturn a")).unwrap();
            assert_eq!(short.program, long.program);
            let expanded = short.program.len() - 1;
            assert_eq!(short.lines[..expanded], vec![7; expanded]);
            assert_eq!(short.lines[expanded], 8);
            // The ordinary instructions are all that is left of it.
            let text = crate::disassemble(&short.program, &short.names());
            assert!(!text.contains('['), "{text}");
            assert_eq!(assemble(&text).unwrap().program, short.program);
        }
    }

    #[test]
    fn functions_of_two_arguments() {
        let assembly = assemble(
            ".tv f in=3+2 unsigned = 10*x + y\n.tv g in=1+1 = [1, 2, 3, 4]\n.tv h in=8 = x",
        )
        .unwrap();
        let [f, g, h] = assembly.test_vectors.as_slice() else {
            panic!("three test vectors expected")
        };
        assert_eq!((f.p_in, f.p_y, f.p_out), (Some(5), Some(2), None));
        assert_eq!((g.p_in, g.p_y), (Some(2), Some(1)));
        assert_eq!((h.p_in, h.p_y), (Some(8), None));
        assert_eq!(f.table(4).unwrap()[13], 31);
        assert_eq!(g.table(4).unwrap(), [1, 2, 3, 4]);
        assert_eq!(
            first_error(".tv f in=8 = x + y"),
            (
                "1:18: `y` has no value: this is a function of `x` alone".to_owned(),
                Some(
                    "`in=P+Q` splits the input in two: x is its upper P bits, y its lower Q"
                        .to_owned()
                )
            )
        );
    }

    #[test]
    fn values_in_files() {
        let source = ".tv f in=2 = file \"f.txt\"\n.tv g unsigned = FILE \"./sub/g.txt\" ; comment\n.tv h in=1 = x";
        let mut assembly = assemble(source).unwrap();
        let file = |path: &str| TestVectorSource::File(path.to_owned());
        assert_eq!(assembly.test_vectors[0].source, file("f.txt"));
        assert_eq!(assembly.test_vectors[1].source, file("./sub/g.txt"));
        let read = |path: &str| match path {
            "f.txt" => Ok("1 2 3 4".to_owned()),
            "./sub/g.txt" => Ok("5, 6".to_owned()),
            _ => Err(path.to_owned()),
        };
        let mut resolved = assembly.clone();
        resolved.resolve_files(read).unwrap();
        assert_eq!(resolved.test_vectors[0].table(7).unwrap(), [1, 2, 3, 4]);
        assert_eq!(resolved.test_vectors[1].table(1).unwrap(), [5, 6]);
        assert_eq!(resolved.test_vectors[2], assembly.test_vectors[2]);
        for (text, expected) in [
            (
                Ok("1 2 3 4 5 6 7 8"),
                "test vector f, file \"f.txt\": 8 values, 4 expected for an input of 2 bits",
            ),
            (
                Ok("1\n2 x"),
                "test vector f, file \"f.txt\": line 2: \"x\": `x` is not a digit of a decimal number",
            ),
            (Err("gone"), "test vector f, file \"f.txt\": gone"),
        ] {
            let error = assembly
                .resolve_files(|_| text.map(str::to_owned))
                .unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn the_largest_tables_take_no_time() {
        // Anything quadratic in 2^16 would take longer than anyone waits for a test.
        let values: Vec<String> = (0..1i64 << 16).map(|v| (-v).to_string()).collect();
        for separator in [", ", ",\n"] {
            let source = format!(".tv f in=16 = [{}]", values.join(separator));
            let assembly = assemble(&source).unwrap();
            assert_eq!(assembly.test_vectors[0].table(7).unwrap()[65_535], -65_535);
            let wrong = source.replace("-65534", "x");
            assert!(first_error(&wrong).0.contains("expected a value"));
        }
        let assembly = assemble(".tv f in=8+8 = x*y + x % 7 - max(x, y)").unwrap();
        assert_eq!(assembly.test_vectors[0].table(7).unwrap().len(), 1 << 16);
    }

    #[test]
    fn names_may_stand_before_their_declaration() {
        let assembly = assemble("return tv\n.reg tv = cor:1").unwrap();
        assert_eq!(
            assembly.program.instructions(),
            [Instruction::Return { n: vr("cor:0:1") }]
        );
    }

    #[test]
    fn every_error_has_its_place_and_reason() {
        let texts = include_str!("../tests/errors.tasm")
            .split("\n;;;; ")
            .skip(1);
        let mut count = 0;
        for text in texts {
            let (expected, source) = text.split_once('\n').unwrap();
            assert_eq!(first_error(source).0, expected, "{source:?}");
            count += 1;
        }
        assert_eq!(count, 64);
    }

    #[test]
    fn sizes_have_bounds() {
        let table = format!(".tv a = [{}]", "0,".repeat(65_537));
        assert!(
            first_error(&table)
                .0
                .contains("the table has more than 65536 values")
        );
        let long = "push cor:1\n".repeat(MAX_INSTRUCTIONS + 1);
        let error = "1048577:1: the program has more than 1048576 instructions";
        assert_eq!(first_error(&long).0, error);
        // The last line makes two of one.
        let long = format!(
            "{}bootstrap [tv:1], [cor:1], cor:2",
            "push cor:1\n".repeat(MAX_INSTRUCTIONS - 1)
        );
        let error = "1048576:1: the program has more than 1048576 instructions";
        assert_eq!(first_error(&long).0, error);
        let endless = " ".repeat(MAX_SOURCE_BYTES + 1);
        assert!(
            first_error(&endless)
                .0
                .contains("the text has 16777217 bytes, at most 16777216 expected")
        );
        assert!(assemble(&endless[1..]).is_ok());
    }

    #[test]
    fn misspelt_names_get_a_suggestion() {
        for (source, expected) in [
            ("hommadd cor:1, cor:2", Some("did you mean `homadd`?")),
            (".rge a = cor:1", Some("did you mean `reg`?")),
            (
                ".reg total = cor:1\nreturn totla",
                Some("did you mean `total`?"),
            ),
            ("return cro:0:1", Some("did you mean `cor`?")),
            (".tv a unsined = x", Some("did you mean `unsigned`?")),
            (".tv a = asb(x)", Some("did you mean `abs`?")),
            (
                "loop: push cor:1",
                Some("programs are straight lines: there are no labels and no jumps"),
            ),
            (
                "y = cor:1",
                Some("a register is named with `.reg y = cor:KEY:DATA`"),
            ),
            (
                "return qqq",
                Some(
                    "declare it with `.reg qqq = cor:KEY:DATA` or, if it is a test vector, with `.tv qqq = FUNCTION`",
                ),
            ),
            ("jump cor:1", None),
        ] {
            assert_eq!(first_error(source).1.as_deref(), expected, "{source:?}");
        }
    }

    #[test]
    fn all_errors_are_found_in_order_and_few_are_shown() {
        let errors = assemble(".reg a = corr:1\nreturn b\npush a\njump\nreturn c").unwrap_err();
        // The use of `a` is no error of its own.
        assert_eq!(
            errors
                .errors
                .iter()
                .map(|error| error.line)
                .collect::<Vec<_>>(),
            [1, 2, 4, 5]
        );
        assert!(!errors.stopped);
        let errors = assemble(&"jump\n".repeat(1000)).unwrap_err();
        assert_eq!((errors.errors.len(), errors.stopped), (20, true));
        assert!(errors.to_string().ends_with("stopped after 20 errors"));
    }

    #[test]
    fn errors_show_the_line() {
        let errors = assemble(".reg total = cor:1\n\treturn totla ; the sum").unwrap_err();
        assert_eq!(
            errors.to_string(),
            "line 2, column 9: `totla` is not declared\n  2 |  return totla ; the sum\n    |         ^\n  help: did you mean `total`?"
        );
    }
}
