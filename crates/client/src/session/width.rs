//! Whether a program reads the sample that triggers it, and whether that has the width that the program's functions take.

use std::collections::BTreeMap;

use toroid_isa::{Instruction, Program, VrNumber};
use toroid_tfhe::encoding::Encoding;

use super::program::inputs;
use super::{Session, SessionError};

impl Session {
    /// Checks that the stored program reads the register whose access triggers it, and the widths of what it then computes with, as far as they are stated: of the sample that is
    /// about to be `written` into the register, or of the one that stands there, and of other registers that are added to it. The
    /// widest of a sum must be as wide as the test vector that the program applies to it takes.
    ///
    /// # Errors
    /// [`SessionError::NotRead`], [`SessionError::Width`], and those of the store. Without a program, and where what is stored is none, nothing is refused here.
    pub async fn check_trigger(
        &self,
        trigger: VrNumber,
        written: Option<Encoding>,
    ) -> Result<(), SessionError> {
        let Some(program) = self.stored_program(trigger.key_id()).await? else {
            return Ok(());
        };
        let reads = inputs(&program);
        if !reads.contains(&trigger) {
            return Err(SessionError::NotRead {
                register: trigger,
                reads: reads.into_iter().collect(),
            });
        }
        check(&program, trigger, |register| match written {
            Some(encoding) if register == trigger => Some(encoding.bits()),
            _ => {
                let bits = self.find(register)?.sc?.message_bits();
                (bits != 0).then_some(bits.into())
            }
        })
    }
}

/// What is known of a register's content.
#[derive(Clone, Copy, Default)]
struct Content {
    /// Message bits, if stated: the fewest that it may be read with.
    bits: Option<u32>,
    /// The most: an even factor leaves zeros at the end, which count or do not.
    most: u32,
    /// Whether the trigger's sample is in it, not bootstrapped yet.
    triggered: bool,
}

impl Content {
    /// Of a sum: a message of fewer bits stands for one of more, whose last bits are zero.
    fn with(self, other: Content) -> Content {
        Content {
            bits: self.bits.zip(other.bits).map(|(one, other)| one.max(other)),
            most: self.most.max(other.most),
            triggered: self.triggered || other.triggered,
        }
    }
}

/// Checks the widths of what a program computes with: of the content of register `trigger`, of what is added to it, and of the functions that it applies.
pub(crate) fn check(
    program: &Program,
    trigger: VrNumber,
    width: impl Fn(VrNumber) -> Option<u32>,
) -> Result<(), SessionError> {
    let mut registers = BTreeMap::new();
    let mut stack = Vec::new();
    let get = |registers: &BTreeMap<VrNumber, Content>, register| {
        registers.get(&register).copied().unwrap_or_else(|| {
            let bits = width(register);
            Content {
                bits,
                most: bits.unwrap_or_default(),
                triggered: register == trigger,
            }
        })
    };
    for instruction in program.instructions() {
        let (register, content) = match *instruction {
            Instruction::Return { .. } => break,
            Instruction::Push { n } => {
                stack.push(get(&registers, n));
                continue;
            }
            Instruction::Pop { n } => (n, stack.pop().unwrap_or_default()),
            Instruction::Move { dst, src } => (dst, get(&registers, src)),
            Instruction::HomAdd { dst, src } | Instruction::HomSub { dst, src } => {
                (dst, get(&registers, dst).with(get(&registers, src)))
            }
            Instruction::HomIntMult { n, v } => {
                let mut content = get(&registers, n);
                // An even factor drops the first bits: what is left is a message of fewer, or an even one of as many.
                content.bits = content
                    .bits
                    .and_then(|bits| bits.checked_sub(v.trailing_zeros()))
                    .filter(|bits| *bits != 0);
                (n, content)
            }
            // A message and an integer of its width, sums of rows and moves of rows keep the width.
            Instruction::HomIntAdd { n, .. }
            | Instruction::HomSum { n, .. }
            | Instruction::Lower { n, .. }
            | Instruction::Upper { n, .. } => (n, get(&registers, n)),
            Instruction::Join { lower, upper, .. } => {
                (lower, get(&registers, lower).with(get(&registers, upper)))
            }
            Instruction::Bootstrap { tv, n } => {
                let content = get(&registers, n);
                if content.triggered
                    && let Some((bits, expected)) = content.bits.zip(width(tv))
                    && !(bits..=content.most).contains(&expected)
                {
                    return Err(SessionError::Width {
                        register: trigger,
                        bits,
                        function: tv,
                        expected,
                    });
                }
                (n, Content::default())
            }
        };
        registers.insert(register, content);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use toroid_isa::assemble;

    use super::*;

    /// Checks a program whose trigger is y, with stated widths of x, y and the test vector f.
    fn checked(text: &str, [x, y, f]: [u32; 3]) -> Result<(), (u32, u32)> {
        let registers = ".reg x = cor:0\n.reg y = cow:1\n.reg z = cor:2\n.tv f @0 = x\n";
        let assembly = assemble(&format!("{registers}{text}\nreturn x")).unwrap();
        let widths = [("x", x), ("y", y)].map(|(name, bits)| (assembly.registers[name], bits));
        let function = assembly.test_vectors[0].vr;
        let stated = |register| {
            let mut all = widths.into_iter().chain([(function, f)]);
            let found = all.find(|(vr, bits)| *vr == register && *bits != 0);
            found.map(|(_, bits)| bits)
        };
        check(&assembly.program, assembly.registers["y"], stated).map_err(|error| match error {
            SessionError::Width { bits, expected, .. } => (bits, expected),
            other => panic!("{other}"),
        })
    }

    #[test]
    fn a_trigger_has_the_width_of_the_function_that_is_applied_to_it() {
        for (text, widths, expected) in [
            ("bootstrap f, y", [4, 4, 4], Ok(())),
            ("bootstrap f, y", [4, 3, 4], Err((3, 4))),
            ("bootstrap f, y", [4, 5, 4], Err((5, 4))),
            // Nothing is stated, or nothing is applied.
            ("bootstrap f, y", [4, 0, 4], Ok(())),
            ("bootstrap f, y", [4, 3, 0], Ok(())),
            ("homadd x, y", [4, 3, 5], Ok(())),
            ("homintadd y, 1\nbootstrap f, y", [4, 3, 4], Err((3, 4))),
            ("homsum y, 0\nbootstrap f, y", [4, 4, 4], Ok(())),
            ("bootstrap f, x", [3, 4, 4], Ok(())),
            // Two arguments in one message: the first takes the first bits.
            ("homadd x, y\nbootstrap f, x", [2, 4, 4], Ok(())),
            ("homadd x, y\nbootstrap f, x", [4, 2, 4], Ok(())),
            ("homadd x, y\nbootstrap f, x", [2, 3, 4], Err((3, 4))),
            ("homadd x, y\nbootstrap f, x", [0, 3, 4], Ok(())),
            (
                "mov z, y\nhomsub z, x\nbootstrap f, z",
                [3, 3, 4],
                Err((3, 4)),
            ),
            ("push y\npop z\nbootstrap f, z", [4, 3, 4], Err((3, 4))),
            // What a bootstrap gives is the program's affair.
            ("bootstrap f, y\nbootstrap f, y", [4, 4, 4], Ok(())),
            // Even factors drop the first bits.
            ("homintmult y, 4\nbootstrap f, y", [4, 4, 2], Ok(())),
            ("homintmult y, 4\nbootstrap f, y", [4, 4, 3], Ok(())),
            ("homintmult y, 4\nbootstrap f, y", [4, 4, 4], Ok(())),
            ("homintmult y, 4\nbootstrap f, y", [4, 4, 5], Err((2, 5))),
            ("homintmult y, 2\nbootstrap f, y", [4, 4, 2], Err((3, 2))),
            ("homintmult y, 3\nbootstrap f, y", [4, 4, 2], Err((4, 2))),
            ("homintmult y, 16\nbootstrap f, y", [4, 4, 2], Ok(())),
            ("homintmult y, 0\nbootstrap f, y", [4, 4, 2], Ok(())),
        ] {
            assert_eq!(checked(text, widths), expected, "{text} {widths:?}");
        }
    }
}
