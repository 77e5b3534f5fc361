//! Whether a program can run on a drive, before it does.
//!
//! Programs are straight lines, so that one walk along the instructions sees every state that a run can be in.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::assembler::Assembly;
use crate::diagnostic::MAX_ERRORS;
use crate::disassembler::instruction_text;
use crate::program::{Instruction, Program};
use crate::vr::{KeyKind, VrNumber, VrType};

/// What a program finds where it runs.
pub trait Environment {
    /// Whether the register of an LWE sample has content.
    fn has_register(&self, vr: VrNumber) -> bool;
    /// Whether the test vector has been loaded.
    fn has_test_vector(&self, vr: VrNumber) -> bool;
    /// Whether the key has been loaded.
    fn has_key(&self, key_id: u32, kind: KeyKind) -> bool;
    /// The number of samples that the stack holds.
    fn stack_slots(&self) -> usize;
    /// Whether registers may hold columns of several rows.
    fn has_columns(&self) -> bool {
        false
    }
}

/// An environment in which every object exists: for checking a program without a drive.
#[derive(Clone, Copy, Debug)]
pub struct AssumePresent {
    /// The number of samples that the stack holds.
    pub stack_slots: usize,
}

impl Environment for AssumePresent {
    fn has_register(&self, _: VrNumber) -> bool {
        true
    }

    fn has_test_vector(&self, _: VrNumber) -> bool {
        true
    }

    fn has_key(&self, _: u32, _: KeyKind) -> bool {
        true
    }

    fn stack_slots(&self) -> usize {
        self.stack_slots
    }

    fn has_columns(&self) -> bool {
        true
    }
}

/// What a program that can run will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramFacts {
    /// The number of Bootstraps.
    pub bootstraps: usize,
    /// The most samples on the stack at one time.
    pub max_stack_depth: usize,
    /// The registers that are read before they are written, in the order of the reads: what must be there already.
    pub inputs: Vec<VrNumber>,
    /// The registers that are written.
    pub written: BTreeSet<VrNumber>,
    /// The test vectors that are used.
    pub test_vectors: BTreeSet<VrNumber>,
    /// The register whose sample is the result.
    pub returned: VrNumber,
}

/// Why a program cannot run, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    /// The index of the instruction; the number of instructions where something is missing at the end.
    pub instruction: usize,
    /// The line of the instruction, from 1, where the program came from text.
    pub line: Option<u32>,
    /// The text of the instruction; empty at the end of the program.
    pub text: String,
    /// What is wrong.
    pub reason: VerifyReason,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}")?,
            None => write!(f, "instruction {}", self.instruction)?,
        }
        if !self.text.is_empty() {
            write!(f, ", `{}`", self.text)?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for VerifyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}

/// Why a program cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyReason {
    /// A sample is read that is neither on the drive nor written before.
    #[error("{vr} is read, but the drive has no such register and nothing has written it before")]
    UnknownRegister {
        /// The register.
        vr: VrNumber,
    },
    /// An operand is not an LWE sample.
    #[error("{vr} found where an LWE sample (cor or cow) is expected")]
    NotASample {
        /// The operand.
        vr: VrNumber,
    },
    /// The first operand of a Bootstrap is not a test vector.
    #[error("{vr} found where a test vector (tv) is expected")]
    NotATestVector {
        /// The operand.
        vr: VrNumber,
    },
    /// The operands belong to different keys.
    #[error("{first} belongs to key {}, {second} to key {}: they cannot be combined", first.key_id(), second.key_id())]
    MixedKeys {
        /// The first operand.
        first: VrNumber,
        /// The second operand.
        second: VrNumber,
    },
    /// An instruction moves rows, and registers hold single samples.
    #[error(
        "the instruction moves rows of a column, and this program runs on single samples: run it with `toroid map`"
    )]
    NeedsColumns,
    /// An instruction that moves rows names none.
    #[error("0 rows found, at least 1 expected")]
    NoRows,
    /// A Pop would take a sample of one key into a register of another.
    #[error("{vr} belongs to key {}, the sample on top of the stack to key {pushed}", vr.key_id())]
    PopOfOtherKey {
        /// The register of the Pop.
        vr: VrNumber,
        /// The key id of the sample.
        pushed: u32,
    },
    /// A Bootstrap names a test vector that the drive does not have.
    #[error("the drive has no test vector {vr}")]
    MissingTestVector {
        /// The test vector.
        vr: VrNumber,
    },
    /// A Bootstrap needs a key that the drive does not have.
    #[error("the drive has no {kind} for key {key_id}")]
    MissingKey {
        /// The key id of the sample.
        key_id: u32,
        /// The key.
        kind: KeyKind,
    },
    /// A Pop finds nothing on the stack.
    #[error("pop from an empty stack")]
    StackUnderflow,
    /// A Push finds no room on the stack.
    #[error("the stack is full: it holds {slots} samples")]
    StackOverflow {
        /// The number of samples that the stack holds.
        slots: usize,
    },
    /// Samples are left on the stack at the Return.
    #[error("the stack is not empty at the return: {depth} left on it, 0 expected")]
    StackNotEmpty {
        /// The number of samples.
        depth: usize,
    },
    /// The program ends without Return.
    #[error("the program has no return")]
    MissingReturn,
    /// An instruction follows the Return.
    #[error("the instruction is never reached: it follows the return")]
    Unreachable,
}

/// Checks that a program can run to its end in this environment. With the assembly that the program came from, errors carry
/// lines and the names of registers.
///
/// # Errors
/// What is wrong, in the order of the instructions, up to [`MAX_ERRORS`]; each missing register, test vector and key once.
pub fn verify(
    program: &Program,
    environment: &dyn Environment,
    assembly: Option<&Assembly>,
) -> Result<ProgramFacts, Vec<VerifyError>> {
    let mut names = BTreeMap::new();
    if let Some(assembly) = assembly {
        for (name, vr) in &assembly.registers {
            names.entry(*vr).or_insert(name.as_str());
        }
        for tv in &assembly.test_vectors {
            names.insert(tv.vr, tv.name.as_str());
        }
    }
    let mut verifier = Verifier {
        environment,
        bootstraps: 0,
        stack: Vec::new(),
        max_stack_depth: 0,
        inputs: Vec::new(),
        known: BTreeSet::new(),
        written: BTreeSet::new(),
        test_vectors: BTreeSet::new(),
        keys: BTreeSet::new(),
        reasons: Vec::new(),
    };
    let mut errors = Vec::new();
    let mut returned = None;
    for (index, instruction) in program.instructions().iter().enumerate() {
        if returned.is_some() {
            verifier.reasons.push(VerifyReason::Unreachable);
        } else if let Instruction::Return { n } = *instruction {
            verifier.finish(n);
            returned = Some(n);
        } else {
            verifier.step(instruction);
        }
        let line = assembly.and_then(|assembly| assembly.lines.get(index).copied());
        for reason in verifier.reasons.drain(..) {
            let text = instruction_text(instruction, &names);
            let unreachable = reason == VerifyReason::Unreachable;
            errors.push(VerifyError {
                instruction: index,
                line,
                text,
                reason,
            });
            if unreachable {
                errors.truncate(MAX_ERRORS);
                return Err(errors);
            }
        }
        if errors.len() >= MAX_ERRORS {
            errors.truncate(MAX_ERRORS);
            return Err(errors);
        }
    }
    let Some(returned) = returned else {
        let line = assembly.and_then(|assembly| assembly.lines.last().copied());
        errors.push(VerifyError {
            instruction: program.len(),
            line,
            text: String::new(),
            reason: VerifyReason::MissingReturn,
        });
        return Err(errors);
    };
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(ProgramFacts {
        bootstraps: verifier.bootstraps,
        max_stack_depth: verifier.max_stack_depth,
        inputs: verifier.inputs,
        written: verifier.written,
        test_vectors: verifier.test_vectors,
        returned,
    })
}

struct Verifier<'e> {
    environment: &'e dyn Environment,
    bootstraps: usize,
    /// The key id of each sample on the stack.
    stack: Vec<u32>,
    max_stack_depth: usize,
    inputs: Vec<VrNumber>,
    /// The samples that have been read or written.
    known: BTreeSet<VrNumber>,
    written: BTreeSet<VrNumber>,
    test_vectors: BTreeSet<VrNumber>,
    /// The key ids whose keys have been looked for.
    keys: BTreeSet<u32>,
    reasons: Vec<VerifyReason>,
}

impl Verifier<'_> {
    fn step(&mut self, instruction: &Instruction) {
        for vr in instruction.reads() {
            self.read(vr);
        }
        if let Some(vr) = instruction.writes() {
            self.write(vr);
        }
        match *instruction {
            Instruction::Push { n } => self.push(n),
            Instruction::Pop { n } => self.pop(n),
            Instruction::Bootstrap { tv, n } => self.bootstrap(tv, n),
            Instruction::Lower { d, .. }
            | Instruction::Upper { d, .. }
            | Instruction::Join { d, .. } => {
                if !self.environment.has_columns() {
                    self.reasons.push(VerifyReason::NeedsColumns);
                }
                if d == 0 {
                    self.reasons.push(VerifyReason::NoRows);
                }
                self.operands_of_one_key(instruction);
            }
            _ => self.operands_of_one_key(instruction),
        }
    }

    fn operands_of_one_key(&mut self, instruction: &Instruction) {
        let mut operands = instruction.operands();
        if let (Some(first), Some(second)) = (operands.next(), operands.next()) {
            self.same_key(first, second);
        }
    }

    fn push(&mut self, n: VrNumber) {
        let slots = self.environment.stack_slots();
        // Reported where the stack first is too small, not at every Push that follows.
        if self.stack.len() == slots {
            self.reasons.push(VerifyReason::StackOverflow { slots });
        }
        self.stack.push(n.key_id());
        self.max_stack_depth = self.max_stack_depth.max(self.stack.len());
    }

    fn pop(&mut self, n: VrNumber) {
        match self.stack.pop() {
            None => self.reasons.push(VerifyReason::StackUnderflow),
            Some(pushed) if pushed != n.key_id() => self
                .reasons
                .push(VerifyReason::PopOfOtherKey { vr: n, pushed }),
            Some(_) => {}
        }
    }

    fn bootstrap(&mut self, tv: VrNumber, n: VrNumber) {
        self.bootstraps += 1;
        if tv.ty() != VrType::Tv {
            self.reasons.push(VerifyReason::NotATestVector { vr: tv });
        } else {
            if self.test_vectors.insert(tv) && !self.environment.has_test_vector(tv) {
                self.reasons
                    .push(VerifyReason::MissingTestVector { vr: tv });
            }
            self.same_key(tv, n);
        }
        if n.ty().is_sample() && self.keys.insert(n.key_id()) {
            for kind in [KeyKind::Bootstrapping, KeyKind::KeySwitching] {
                if !self.environment.has_key(n.key_id(), kind) {
                    self.reasons.push(VerifyReason::MissingKey {
                        key_id: n.key_id(),
                        kind,
                    });
                }
            }
        }
    }

    fn finish(&mut self, n: VrNumber) {
        self.read(n);
        if !self.stack.is_empty() {
            self.reasons.push(VerifyReason::StackNotEmpty {
                depth: self.stack.len(),
            });
        }
    }

    fn is_sample(&mut self, vr: VrNumber) -> bool {
        let reason = VerifyReason::NotASample { vr };
        // An operand that is both read and written is wrong once.
        if !vr.ty().is_sample() && self.reasons.last() != Some(&reason) {
            self.reasons.push(reason);
        }
        vr.ty().is_sample()
    }

    fn read(&mut self, vr: VrNumber) {
        if self.is_sample(vr) && self.known.insert(vr) {
            self.inputs.push(vr);
            if !self.environment.has_register(vr) {
                self.reasons.push(VerifyReason::UnknownRegister { vr });
            }
        }
    }

    fn write(&mut self, vr: VrNumber) {
        if self.is_sample(vr) {
            self.known.insert(vr);
            self.written.insert(vr);
        }
    }

    fn same_key(&mut self, first: VrNumber, second: VrNumber) {
        if first.key_id() != second.key_id() {
            self.reasons.push(VerifyReason::MixedKeys { first, second });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assembler::assemble;

    /// A drive with the samples cor:0:1 and cow:0:2 and cor:1:1, the test vectors tv:0:0 and tv:2:0, and the keys of key id 0;
    /// of key id 2 only the bootstrapping key.
    struct Drive;

    impl Environment for Drive {
        fn has_register(&self, vr: VrNumber) -> bool {
            ["cor:0:1", "cow:0:2", "cor:1:1", "cor:2:1"].contains(&vr.to_string().as_str())
        }

        fn has_test_vector(&self, vr: VrNumber) -> bool {
            ["tv:0:0", "tv:2:0"].contains(&vr.to_string().as_str())
        }

        fn has_key(&self, key_id: u32, kind: KeyKind) -> bool {
            key_id == 0 || key_id == 2 && kind == KeyKind::Bootstrapping
        }

        fn stack_slots(&self) -> usize {
            2
        }
    }

    fn check(source: &str) -> Result<ProgramFacts, Vec<String>> {
        let assembly = assemble(source).unwrap();
        let bare = verify(&assembly.program, &Drive, None);
        let lined = verify(&assembly.program, &Drive, Some(&assembly));
        match (bare, lined) {
            (Ok(bare), Ok(lined)) => {
                assert_eq!(bare, lined);
                Ok(lined)
            }
            (Err(bare), Err(lined)) => {
                assert!(
                    bare.iter().all(|error| error.line.is_none()
                        && error.to_string().starts_with("instruction "))
                );
                assert!(
                    bare.iter()
                        .map(|error| &error.reason)
                        .eq(lined.iter().map(|error| &error.reason))
                );
                Err(lined.iter().map(ToString::to_string).collect())
            }
            (bare, lined) => panic!("{bare:?} is not {lined:?}"),
        }
    }

    #[test]
    fn facts_of_a_sound_program() {
        let facts = check(
            "push cor:0:1\nmov cor:0:9, cow:0:2\npush cor:0:9\nbootstrap tv:0:0, cor:0:9\npop cor:0:1\npop cor:0:8\nreturn cor:0:8",
        )
        .unwrap();
        let vrs = |names: &[&str]| {
            names
                .iter()
                .map(|name| name.parse().unwrap())
                .collect::<Vec<VrNumber>>()
        };
        assert_eq!(
            facts,
            ProgramFacts {
                bootstraps: 1,
                max_stack_depth: 2,
                inputs: vrs(&["cor:0:1", "cow:0:2"]),
                written: vrs(&["cor:0:1", "cor:0:8", "cor:0:9"])
                    .into_iter()
                    .collect(),
                test_vectors: vrs(&["tv:0:0"]).into_iter().collect(),
                returned: "cor:0:8".parse().unwrap(),
            }
        );
    }

    #[test]
    fn every_fault_has_its_reason() {
        let cases: [(&str, &[&str]); 24] = [
            (
                "lower cor:1, 0\nreturn cor:1",
                &[
                    "line 1, `lower cor:0:1, 0`: the instruction moves rows of a column, and this program runs on single samples: run it with `toroid map`",
                    "line 1, `lower cor:0:1, 0`: 0 rows found, at least 1 expected",
                ],
            ),
            (
                "homsum cor:1, 0\njoin cor:1, cor:1:1, 1\nreturn cor:1",
                &[
                    "line 2, `join cor:0:1, cor:1:1, 1`: the instruction moves rows of a column, and this program runs on single samples: run it with `toroid map`",
                    "line 2, `join cor:0:1, cor:1:1, 1`: cor:0:1 belongs to key 0, cor:1:1 to key 1: they cannot be combined",
                ],
            ),
            ("", &["instruction 0: the program has no return"]),
            (
                "push cor:1\npop cor:1",
                &["line 2: the program has no return"],
            ),
            (
                "return cor:0:7",
                &[
                    "line 1, `return cor:0:7`: cor:0:7 is read, but the drive has no such register and nothing has written it before",
                ],
            ),
            (
                "homadd cor:7, cor:7\nreturn cor:7",
                &[
                    "line 1, `homadd cor:0:7, cor:0:7`: cor:0:7 is read, but the drive has no such register and nothing has written it before",
                ],
            ),
            (
                "return tv:0:0",
                &[
                    "line 1, `return tv:0:0`: tv:0:0 found where an LWE sample (cor or cow) is expected",
                ],
            ),
            (
                "mov prg:0, cor:1\nreturn cor:1",
                &[
                    "line 1, `mov prg:0:0, cor:0:1`: prg:0:0 found where an LWE sample (cor or cow) is expected",
                ],
            ),
            (
                "mov cor:1, key:1\nreturn cor:1",
                &[
                    "line 1, `mov cor:0:1, key:0:1`: key:0:1 found where an LWE sample (cor or cow) is expected",
                ],
            ),
            (
                "homintmult tv:0, 2\nreturn cor:1",
                &[
                    "line 1, `homintmult tv:0:0, 2`: tv:0:0 found where an LWE sample (cor or cow) is expected",
                ],
            ),
            (
                "bootstrap cor:1, cor:1\nreturn cor:1",
                &[
                    "line 1, `bootstrap cor:0:1, cor:0:1`: cor:0:1 found where a test vector (tv) is expected",
                ],
            ),
            (
                "bootstrap tv:0, tv:0\nreturn cor:1",
                &[
                    "line 1, `bootstrap tv:0:0, tv:0:0`: tv:0:0 found where an LWE sample (cor or cow) is expected",
                ],
            ),
            (
                "homadd cor:0:1, cor:1:1\nreturn cor:1",
                &[
                    "line 1, `homadd cor:0:1, cor:1:1`: cor:0:1 belongs to key 0, cor:1:1 to key 1: they cannot be combined",
                ],
            ),
            (
                "homsub cor:0:1, cor:1:1\nreturn cor:1",
                &[
                    "line 1, `homsub cor:0:1, cor:1:1`: cor:0:1 belongs to key 0, cor:1:1 to key 1: they cannot be combined",
                ],
            ),
            (
                "mov cor:0:1, cor:1:1\nreturn cor:1",
                &[
                    "line 1, `mov cor:0:1, cor:1:1`: cor:0:1 belongs to key 0, cor:1:1 to key 1: they cannot be combined",
                ],
            ),
            (
                "bootstrap tv:2:0, cor:1\nreturn cor:1",
                &[
                    "line 1, `bootstrap tv:2:0, cor:0:1`: tv:2:0 belongs to key 2, cor:0:1 to key 0: they cannot be combined",
                ],
            ),
            (
                "push cor:1:1\npop cor:0:1\nreturn cor:0:1",
                &[
                    "line 2, `pop cor:0:1`: cor:0:1 belongs to key 0, the sample on top of the stack to key 1",
                ],
            ),
            (
                "bootstrap tv:0:9, cor:1\nbootstrap tv:0:9, cor:1\nreturn cor:1",
                &["line 1, `bootstrap tv:0:9, cor:0:1`: the drive has no test vector tv:0:9"],
            ),
            (
                "bootstrap tv:2:0, cor:2:1\nbootstrap tv:2:0, cor:2:1\nreturn cor:2:1",
                &[
                    "line 1, `bootstrap tv:2:0, cor:2:1`: the drive has no key-switching key for key 2",
                ],
            ),
            (
                "bootstrap tv:1:0, cor:1:1\nreturn cor:1:1",
                &[
                    "line 1, `bootstrap tv:1:0, cor:1:1`: the drive has no test vector tv:1:0",
                    "line 1, `bootstrap tv:1:0, cor:1:1`: the drive has no bootstrapping key for key 1",
                    "line 1, `bootstrap tv:1:0, cor:1:1`: the drive has no key-switching key for key 1",
                ],
            ),
            (
                "pop cor:5\nreturn cor:5",
                &["line 1, `pop cor:0:5`: pop from an empty stack"],
            ),
            (
                "push cor:1\npush cor:1\npush cor:1\npush cor:1\npop cor:1\npop cor:1\npop cor:1\npop cor:1\nreturn cor:1",
                &["line 3, `push cor:0:1`: the stack is full: it holds 2 samples"],
            ),
            (
                "push cor:1\nreturn cor:1",
                &[
                    "line 2, `return cor:0:1`: the stack is not empty at the return: 1 left on it, 0 expected",
                ],
            ),
            (
                "return cor:1\n\npush cor:1\npush cor:7",
                &[
                    "line 3, `push cor:0:1`: the instruction is never reached: it follows the return",
                ],
            ),
        ];
        for (source, expected) in cases {
            assert_eq!(check(source).unwrap_err(), expected, "{source:?}");
        }
    }

    #[test]
    fn errors_use_the_names_of_the_text() {
        let errors = check(".reg a = cor:0:5\n.tv f @3 = x\nbootstrap f, a\nreturn a").unwrap_err();
        assert!(
            errors[0].starts_with("line 3, `bootstrap f, a`: cor:0:5 is read"),
            "{errors:?}"
        );
        assert_eq!(
            errors[1],
            "line 3, `bootstrap f, a`: the drive has no test vector tv:0:3"
        );
    }

    #[test]
    fn errors_are_limited() {
        let errors = check(&"pop cor:1\n".repeat(1000)).unwrap_err();
        assert_eq!(errors.len(), MAX_ERRORS);
    }
}
