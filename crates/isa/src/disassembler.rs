//! Program to text.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::lexer::MAX_NAME_CHARS;
use crate::program::{Instruction, Program};
use crate::vr::VrNumber;

/// The text of a program, which assembles to the same program. Registers that `names` knows are declared with `.reg`, test
/// vectors too (a program does not hold their functions), and called by name. Names that the language cannot write are left out;
/// of several names for one register the first is taken.
pub fn disassemble(program: &Program, names: &BTreeMap<String, VrNumber>) -> String {
    let mut name_of: BTreeMap<VrNumber, &str> = BTreeMap::new();
    for (name, vr) in names {
        if is_name(name) {
            name_of.entry(*vr).or_insert(name);
        }
    }
    let mut text = String::new();
    // Writing to a string cannot fail.
    for (vr, name) in &name_of {
        let _ = writeln!(text, ".reg {name} = {vr}");
    }
    for instruction in program.instructions() {
        let _ = writeln!(text, "    {}", instruction_text(instruction, &name_of));
    }
    text
}

/// One instruction, with the names of its registers.
pub(crate) fn instruction_text(
    instruction: &Instruction,
    name_of: &BTreeMap<VrNumber, &str>,
) -> String {
    instruction.text(|vr| {
        name_of
            .get(&vr)
            .map_or_else(|| vr.to_string(), |name| (*name).to_owned())
    })
}

fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME_CHARS
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assembler::assemble;

    #[test]
    fn names_are_declared_and_used() {
        let source = ".reg x = cor:0:1\n.tv half = x/2\nbootstrap half, x\nhomintmult cow:0:9, -1\nreturn x\n";
        let assembly = assemble(source).unwrap();
        let text = disassemble(&assembly.program, &assembly.names());
        assert_eq!(
            text,
            ".reg half = tv:0:0\n.reg x = cor:0:1\n    bootstrap half, x\n    homintmult cow:0:9, -1\n    return x\n"
        );
        assert_eq!(assemble(&text).unwrap().program, assembly.program);
    }

    #[test]
    fn names_that_the_language_cannot_write_are_left_out() {
        let vr: VrNumber = "cor:0:1".parse().unwrap();
        let program = Program::new(vec![Instruction::Return { n: vr }]).unwrap();
        for bad in ["", "1a", "a b", "\u{e9}", &"a".repeat(65)] {
            let text = disassemble(&program, &BTreeMap::from([(bad.to_owned(), vr)]));
            assert_eq!(text, "    return cor:0:1\n");
        }
    }
}
