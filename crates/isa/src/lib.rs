//! Secure computing programs: instructions, assembler, disassembler, binary form and verifier.
