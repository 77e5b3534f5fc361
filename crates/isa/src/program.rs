//! Instructions and programs (platform paper, section 4.4, Table 4).

use std::collections::BTreeSet;
use std::fmt;

use crate::vr::VrNumber;

/// The longest program, in instructions.
pub const MAX_INSTRUCTIONS: usize = 1 << 20;

/// What an instruction does with an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A register whose sample it reads.
    Read,
    /// A register that it writes.
    Write,
    /// A register whose sample it reads and replaces.
    Update,
    /// A test vector that it uses.
    TestVector,
    /// A number of 32 bits, with a sign.
    Factor,
    /// A number of rows of a column, 32 bits.
    Count,
}

/// The value of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Register(VrNumber),
    Factor(i32),
    Count(u32),
}

impl From<VrNumber> for Operand {
    fn from(vr: VrNumber) -> Operand {
        Operand::Register(vr)
    }
}

impl From<i32> for Operand {
    fn from(factor: i32) -> Operand {
        Operand::Factor(factor)
    }
}

impl From<u32> for Operand {
    fn from(count: u32) -> Operand {
        Operand::Count(count)
    }
}

impl From<Operand> for Option<VrNumber> {
    fn from(operand: Operand) -> Option<VrNumber> {
        match operand {
            Operand::Register(vr) => Some(vr),
            Operand::Factor(_) | Operand::Count(_) => None,
        }
    }
}

impl From<Operand> for Option<i32> {
    fn from(operand: Operand) -> Option<i32> {
        match operand {
            Operand::Factor(factor) => Some(factor),
            Operand::Register(_) | Operand::Count(_) => None,
        }
    }
}

impl From<Operand> for Option<u32> {
    fn from(operand: Operand) -> Option<u32> {
        match operand {
            Operand::Count(count) => Some(count),
            Operand::Register(_) | Operand::Factor(_) => None,
        }
    }
}

/// How an instruction is written, as text and in binary.
pub(crate) struct Form {
    pub(crate) mnemonic: &'static str,
    /// One to three; a third is a [`Role::Count`].
    pub(crate) roles: &'static [Role],
    /// The instruction with these operands, if they are of the right number and kinds.
    pub(crate) make: fn(&[Operand]) -> Option<Instruction>,
}

macro_rules! operand_type {
    (Factor) => {
        i32
    };
    (Count) => {
        u32
    };
    ($role:ident) => {
        VrNumber
    };
}

/// Makes the type [`Instruction`] and everything that follows from an instruction's opcode, mnemonic and operands.
macro_rules! instruction_set {
    ($(
        $(#[$doc:meta])*
        $opcode:literal $mnemonic:literal $name:ident {
            $($(#[$operand_doc:meta])* $operand:ident: $role:ident),*
        }
    )*) => {
        /// One instruction: 0 to 7 are those of Table 4, with operands in the order of the table; those from 8 on serve columns. An
        /// instruction works on every row of a column; where one operand has a single row, it goes with all rows of the other.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Instruction {
            $($(#[$doc])* $name {
                $($(#[$operand_doc])* $operand: operand_type!($role)),*
            }),*
        }

        impl Instruction {
            /// The number of the instruction, up to 7 that of Table 4.
            pub const fn opcode(&self) -> u8 {
                match self {
                    $(Instruction::$name { .. } => $opcode),*
                }
            }

            /// The form of every instruction, by opcode.
            pub(crate) const FORMS: &[Form] = &[$(Form {
                mnemonic: $mnemonic,
                roles: &[$(Role::$role),*],
                make: |operands| {
                    let mut operands = operands.iter().copied();
                    let made = Instruction::$name {
                        $($operand: Option::<operand_type!($role)>::from(operands.next()?)?),*
                    };
                    operands.next().is_none().then_some(made)
                },
            }),*];

            /// The operands, in their order, with what the instruction does with each.
            pub(crate) fn roles(&self) -> impl Iterator<Item = (Role, Operand)> + use<> {
                let mut all = [None; 3];
                match *self {
                    $(Instruction::$name { $($operand),* } => {
                        let operands = [$((Role::$role, Operand::from($operand))),*];
                        for (slot, operand) in all.iter_mut().zip(operands) {
                            *slot = Some(operand);
                        }
                    })*
                }
                all.into_iter().flatten()
            }
        }
    };
}

instruction_set! {
    /// 0: ends the program with the sample in `n` as its result.
    0 "return" Return {
        /// The sample to return.
        n: Read
    }
    /// 1: `dst <- src`.
    1 "mov" Move {
        /// The register that is written.
        dst: Write,
        /// The sample to copy.
        src: Read
    }
    /// 2: copies the sample in `n` to the top of the stack.
    2 "push" Push {
        /// The sample to push.
        n: Read
    }
    /// 3: takes the top of the stack into `n`.
    3 "pop" Pop {
        /// The register that is written.
        n: Write
    }
    /// 4: bootstraps `n` in place with the test vector `tv` and the keys of `n`'s key id.
    4 "bootstrap" Bootstrap {
        /// The test vector.
        tv: TestVector,
        /// The sample that is replaced by its bootstrap.
        n: Update
    }
    /// 5: `dst <- dst + src`.
    5 "homadd" HomAdd {
        /// The first summand, replaced by the sum.
        dst: Update,
        /// The second summand.
        src: Read
    }
    /// 6: `dst <- dst - src`.
    6 "homsub" HomSub {
        /// The minuend, replaced by the difference.
        dst: Update,
        /// The subtrahend.
        src: Read
    }
    /// 7: `n <- n * v`.
    7 "homintmult" HomIntMult {
        /// The sample that is replaced by its multiple.
        n: Update,
        /// The factor.
        v: Factor
    }
    /// 8: `n <- n + v`, v a message of the width that `n` has.
    8 "homintadd" HomIntAdd {
        /// The sample that is replaced by the sum.
        n: Update,
        /// The summand.
        v: Factor
    }
    /// 9: `n <- ` the sums of its rows, `g` rows at a time; `g` = 0: of all rows. The last sum may have fewer summands.
    9 "homsum" HomSum {
        /// The column that is replaced by its sums.
        n: Update,
        /// The rows of a sum.
        g: Count
    }
    /// 10: `n <- ` the first `d` rows of every `2d` rows.
    10 "lower" Lower {
        /// The column that is replaced by its half.
        n: Update,
        /// The rows that stand together.
        d: Count
    }
    /// 11: `n <- ` the last `d` rows of every `2d` rows.
    11 "upper" Upper {
        /// The column that is replaced by its half.
        n: Update,
        /// The rows that stand together.
        d: Count
    }
    /// 12: `lower <- d` rows of `lower`, `d` rows of `upper`, and so on: what [`Instruction::Lower`] and [`Instruction::Upper`] took apart.
    12 "join" Join {
        /// The column of the first `d` rows of every `2d`, replaced by the whole.
        lower: Update,
        /// The column of the last `d` rows of every `2d`.
        upper: Read,
        /// The rows that stand together.
        d: Count
    }
}

impl Instruction {
    /// The name in assembly text.
    pub const fn mnemonic(&self) -> &'static str {
        Instruction::FORMS[self.opcode() as usize].mnemonic
    }

    fn registers(&self, wanted: fn(Role) -> bool) -> impl Iterator<Item = VrNumber> + use<> {
        self.roles()
            .filter(move |(role, _)| wanted(*role))
            .filter_map(|(_, operand)| operand.into())
    }

    /// The registers whose samples the instruction reads, in the order of its operands. The test vector of a Bootstrap is
    /// not among them ([`Instruction::test_vector`]).
    pub fn reads(&self) -> impl Iterator<Item = VrNumber> + use<> {
        self.registers(|role| matches!(role, Role::Read | Role::Update))
    }

    /// The register that the instruction writes, if any.
    pub fn writes(&self) -> Option<VrNumber> {
        self.registers(|role| matches!(role, Role::Write | Role::Update))
            .next()
    }

    /// The test vector that the instruction uses, if any.
    pub fn test_vector(&self) -> Option<VrNumber> {
        self.registers(|role| role == Role::TestVector).next()
    }

    /// Every register that the instruction names, in the order of its operands.
    pub fn operands(&self) -> impl Iterator<Item = VrNumber> + use<> {
        self.registers(|_| true)
    }

    /// The instruction as assembly text, with registers as `name` writes them.
    pub(crate) fn text(&self, name: impl Fn(VrNumber) -> String) -> String {
        let operands: Vec<String> = self
            .roles()
            .map(|(_, operand)| match operand {
                Operand::Register(vr) => name(vr),
                Operand::Factor(factor) => factor.to_string(),
                Operand::Count(count) => count.to_string(),
            })
            .collect();
        format!("{} {}", self.mnemonic(), operands.join(", "))
    }
}

/// The instruction as assembly text, registers in the form `type:key:data`.
impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(|vr| vr.to_string()))
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
    fn queries_follow_the_table() {
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
            (
                Instruction::HomIntAdd { n: cor(1), v: -3 },
                8,
                "homintadd cor:0:1, -3",
                vec![1],
                Some(1),
            ),
            (
                Instruction::HomSum { n: cor(1), g: 16 },
                9,
                "homsum cor:0:1, 16",
                vec![1],
                Some(1),
            ),
            (
                Instruction::Lower { n: cor(1), d: 4 },
                10,
                "lower cor:0:1, 4",
                vec![1],
                Some(1),
            ),
            (
                Instruction::Upper { n: cor(1), d: 4 },
                11,
                "upper cor:0:1, 4",
                vec![1],
                Some(1),
            ),
            (
                Instruction::Join {
                    lower: cor(1),
                    upper: cor(2),
                    d: u32::MAX,
                },
                12,
                "join cor:0:1, cor:0:2, 4294967295",
                vec![1, 2],
                Some(1),
            ),
        ];
        for (instruction, opcode, text, reads, writes) in &cases {
            assert_eq!(instruction.opcode(), *opcode);
            let operands: Vec<Operand> = instruction.roles().map(|(_, operand)| operand).collect();
            let form = &Instruction::FORMS[usize::from(*opcode)];
            assert_eq!((form.make)(&operands), Some(*instruction));
            assert_eq!(
                (form.make)(&[]),
                None,
                "an instruction has at least one operand"
            );
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
