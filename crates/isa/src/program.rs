//! Instructions and programs (platform paper, section 4.4, Table 4).

use std::collections::BTreeSet;
use std::fmt;

use crate::vr::VrNumber;

/// The longest program, in instructions.
pub const MAX_INSTRUCTIONS: usize = 1 << 20;

/// One instruction of Table 4. Operands stand in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Instruction {
    /// 0: ends the program with the sample in `n` as its result.
    Return {
        /// The sample to return.
        n: VrNumber,
    },
    /// 1: `dst <- src`.
    Move {
        /// The register that is written.
        dst: VrNumber,
        /// The sample to copy.
        src: VrNumber,
    },
    /// 2: copies the sample in `n` to the top of the stack.
    Push {
        /// The sample to push.
        n: VrNumber,
    },
    /// 3: takes the top of the stack into `n`.
    Pop {
        /// The register that is written.
        n: VrNumber,
    },
    /// 4: bootstraps `n` in place with the test vector `tv` and the keys of `n`'s key id.
    Bootstrap {
        /// The test vector.
        tv: VrNumber,
        /// The sample that is replaced by its bootstrap.
        n: VrNumber,
    },
    /// 5: `dst <- dst + src`.
    HomAdd {
        /// The first summand, replaced by the sum.
        dst: VrNumber,
        /// The second summand.
        src: VrNumber,
    },
    /// 6: `dst <- dst - src`.
    HomSub {
        /// The minuend, replaced by the difference.
        dst: VrNumber,
        /// The subtrahend.
        src: VrNumber,
    },
    /// 7: `n <- n * v`.
    HomIntMult {
        /// The sample that is replaced by its multiple.
        n: VrNumber,
        /// The factor.
        v: i32,
    },
}

impl Instruction {
    /// The number of the instruction in Table 4.
    pub const fn opcode(&self) -> u8 {
        match self {
            Instruction::Return { .. } => 0,
            Instruction::Move { .. } => 1,
            Instruction::Push { .. } => 2,
            Instruction::Pop { .. } => 3,
            Instruction::Bootstrap { .. } => 4,
            Instruction::HomAdd { .. } => 5,
            Instruction::HomSub { .. } => 6,
            Instruction::HomIntMult { .. } => 7,
        }
    }

    /// The name in assembly text.
    pub const fn mnemonic(&self) -> &'static str {
        match self {
            Instruction::Return { .. } => "return",
            Instruction::Move { .. } => "mov",
            Instruction::Push { .. } => "push",
            Instruction::Pop { .. } => "pop",
            Instruction::Bootstrap { .. } => "bootstrap",
            Instruction::HomAdd { .. } => "homadd",
            Instruction::HomSub { .. } => "homsub",
            Instruction::HomIntMult { .. } => "homintmult",
        }
    }

    /// The registers whose samples the instruction reads, in the order of its operands. The test vector of a Bootstrap is
    /// not among them ([`Instruction::test_vector`]).
    pub fn reads(&self) -> impl Iterator<Item = VrNumber> + use<> {
        let (first, second) = match *self {
            Instruction::Return { n }
            | Instruction::Push { n }
            | Instruction::Bootstrap { n, .. } => (Some(n), None),
            Instruction::HomIntMult { n, .. } => (Some(n), None),
            Instruction::Move { src, .. } => (Some(src), None),
            Instruction::Pop { .. } => (None, None),
            Instruction::HomAdd { dst, src } | Instruction::HomSub { dst, src } => {
                (Some(dst), Some(src))
            }
        };
        first.into_iter().chain(second)
    }

    /// The register that the instruction writes, if any.
    pub const fn writes(&self) -> Option<VrNumber> {
        match *self {
            Instruction::Return { .. } | Instruction::Push { .. } => None,
            Instruction::Pop { n }
            | Instruction::Bootstrap { n, .. }
            | Instruction::HomIntMult { n, .. } => Some(n),
            Instruction::Move { dst, .. }
            | Instruction::HomAdd { dst, .. }
            | Instruction::HomSub { dst, .. } => Some(dst),
        }
    }

    /// The test vector that the instruction uses, if any.
    pub const fn test_vector(&self) -> Option<VrNumber> {
        match *self {
            Instruction::Bootstrap { tv, .. } => Some(tv),
            _ => None,
        }
    }

    /// Every register that the instruction names, in the order of its operands.
    pub fn operands(&self) -> impl Iterator<Item = VrNumber> + use<> {
        let (first, second) = match *self {
            Instruction::Return { n } | Instruction::Push { n } | Instruction::Pop { n } => {
                (n, None)
            }
            Instruction::HomIntMult { n, .. } => (n, None),
            Instruction::Bootstrap { tv, n } => (tv, Some(n)),
            Instruction::Move { dst, src }
            | Instruction::HomAdd { dst, src }
            | Instruction::HomSub { dst, src } => (dst, Some(src)),
        };
        std::iter::once(first).chain(second)
    }
}

/// The instruction as assembly text, registers in the form `type:key:data`.
impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.mnemonic())?;
        for (index, vr) in self.operands().enumerate() {
            write!(f, "{}{vr}", if index == 0 { " " } else { ", " })?;
        }
        if let Instruction::HomIntMult { v, .. } = self {
            write!(f, ", {v}")?;
        }
        Ok(())
    }
}

/// A straight line of at most [`MAX_INSTRUCTIONS`] instructions.
///
/// Nothing else is promised of it; [`crate::verify`] says whether it can run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Program {
    instructions: Vec<Instruction>,
}

impl Program {
    /// The program of these instructions.
    ///
    /// # Errors
    /// [`ProgramTooLong`] if there are more than [`MAX_INSTRUCTIONS`].
    pub fn new(instructions: Vec<Instruction>) -> Result<Program, ProgramTooLong> {
        if instructions.len() > MAX_INSTRUCTIONS {
            return Err(ProgramTooLong {
                found: instructions.len(),
            });
        }
        Ok(Program { instructions })
    }

    /// The instructions in the order in which they run.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// The number of instructions.
    pub fn len(&self) -> usize {
        self.instructions.len()
    }

    /// Whether there are no instructions.
    pub fn is_empty(&self) -> bool {
        self.instructions.is_empty()
    }

    /// Every register whose sample some instruction reads.
    pub fn registers_read(&self) -> BTreeSet<VrNumber> {
        self.instructions
            .iter()
            .flat_map(Instruction::reads)
            .collect()
    }

    /// Every register that some instruction writes.
    pub fn registers_written(&self) -> BTreeSet<VrNumber> {
        self.instructions
            .iter()
            .filter_map(Instruction::writes)
            .collect()
    }

    /// Every test vector that some instruction uses.
    pub fn test_vectors(&self) -> BTreeSet<VrNumber> {
        self.instructions
            .iter()
            .filter_map(Instruction::test_vector)
            .collect()
    }

    /// The number of Bootstrap instructions.
    pub fn bootstrap_count(&self) -> usize {
        self.instructions
            .iter()
            .filter(|instruction| matches!(instruction, Instruction::Bootstrap { .. }))
            .count()
    }
}

/// A program has more than [`MAX_INSTRUCTIONS`] instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the program has {found} instructions (expected at most {MAX_INSTRUCTIONS})")]
pub struct ProgramTooLong {
    /// The number of instructions.
    pub found: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vr::VrType;

    fn cor(data_id: u32) -> VrNumber {
        VrNumber::new(VrType::LweCor, 0, data_id).unwrap()
    }

    #[test]
    fn queries_follow_table_4() {
        let tv = VrNumber::new(VrType::Tv, 0, 0).unwrap();
        let cases = [
            (
                Instruction::Return { n: cor(1) },
                0,
                "return cor:0:1",
                vec![1],
                None,
            ),
            (
                Instruction::Move {
                    dst: cor(1),
                    src: cor(2),
                },
                1,
                "mov cor:0:1, cor:0:2",
                vec![2],
                Some(1),
            ),
            (
                Instruction::Push { n: cor(1) },
                2,
                "push cor:0:1",
                vec![1],
                None,
            ),
            (
                Instruction::Pop { n: cor(1) },
                3,
                "pop cor:0:1",
                vec![],
                Some(1),
            ),
            (
                Instruction::Bootstrap { tv, n: cor(1) },
                4,
                "bootstrap tv:0:0, cor:0:1",
                vec![1],
                Some(1),
            ),
            (
                Instruction::HomAdd {
                    dst: cor(1),
                    src: cor(2),
                },
                5,
                "homadd cor:0:1, cor:0:2",
                vec![1, 2],
                Some(1),
            ),
            (
                Instruction::HomSub {
                    dst: cor(1),
                    src: cor(2),
                },
                6,
                "homsub cor:0:1, cor:0:2",
                vec![1, 2],
                Some(1),
            ),
            (
                Instruction::HomIntMult { n: cor(1), v: -3 },
                7,
                "homintmult cor:0:1, -3",
                vec![1],
                Some(1),
            ),
        ];
        for (instruction, opcode, text, reads, writes) in &cases {
            assert_eq!(instruction.opcode(), *opcode);
            assert_eq!(instruction.to_string(), *text);
            assert_eq!(
                instruction
                    .reads()
                    .map(VrNumber::data_id)
                    .collect::<Vec<_>>(),
                *reads
            );
            assert_eq!(instruction.writes().map(VrNumber::data_id), *writes);
        }
        let program = Program::new(cases.iter().map(|case| case.0).collect()).unwrap();
        assert_eq!(program.registers_read(), BTreeSet::from([cor(1), cor(2)]));
        assert_eq!(program.registers_written(), BTreeSet::from([cor(1)]));
        assert_eq!(program.test_vectors(), BTreeSet::from([tv]));
        assert_eq!(program.bootstrap_count(), 1);
    }

    #[test]
    fn length_is_limited() {
        let n = cor(0);
        assert!(Program::new(vec![Instruction::Push { n }; MAX_INSTRUCTIONS]).is_ok());
        assert_eq!(
            Program::new(vec![Instruction::Push { n }; MAX_INSTRUCTIONS + 1]),
            Err(ProgramTooLong {
                found: MAX_INSTRUCTIONS + 1
            })
        );
    }
}
