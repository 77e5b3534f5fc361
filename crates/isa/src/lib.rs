//! Secure computing programs: what the engine runs when a trigger is read or written.
//!
//! A [`Program`] is a straight line of the eight [`Instruction`]s of the platform paper (section 4.4, Table 4) on virtual
//! registers named by [`VrNumber`]s (section 4.2). It comes from text ([`assemble`]) or from bytes ([`decode`]), goes back
//! to either ([`disassemble`], [`encode`]), and is checked against what a drive holds by [`verify`]. An assembly text also
//! carries the functions of its test vectors, as [`TestVectorSource`]s. It may name files that hold them; reading these is for
//! the caller ([`Assembly::resolve_files`]).
//!
//! What it is not: it runs nothing, holds no registers and knows no cryptography. `toroid-engine` executes programs, and
//! the client turns the tables of test vectors into GLWE samples.
//!
//! Open `program.rs` first, then `assembler.rs`. The language is described for its users in `docs/reference/isa.md`.
//!
//! ```
//! use toroid_isa::{AssumePresent, assemble, decode, encode, verify};
//!
//! let assembly = assemble(
//!     "
//!     .reg x = cor:0:1
//!     .tv square = x*x
//!         bootstrap square, x
//!         return x
//!     ",
//! )?;
//! let facts = verify(&assembly.program, &AssumePresent { stack_slots: 8 }, Some(&assembly)).map_err(|errors| errors[0].clone())?;
//! assert_eq!(facts.bootstraps, 1);
//! assert_eq!(assembly.test_vectors[0].source.table(2, true)?, [4, 1, 0, 1]);
//! assert_eq!(decode(&encode(&assembly.program))?, assembly.program);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod assembler;
mod binary;
mod diagnostic;
mod disassembler;
mod expression;
mod lexer;
pub mod metadata;
mod program;
mod status;
mod test_vector;
mod values;
mod verify;
mod vr;

pub use assembler::{Assembly, MAX_SOURCE_BYTES, assemble, assemble_for};
pub use binary::{DecodeError, HEADER_BYTES, MAX_ENCODED_BYTES, RECORD_BYTES, decode, encode};
pub use diagnostic::{AssembleError, AssembleErrors, MAX_ERRORS};
pub use disassembler::disassemble;
pub use expression::{EvaluationError, Expression};
pub use program::{Instruction, MAX_INSTRUCTIONS, Program, ProgramTooLong};
pub use test_vector::{
    MAX_INPUT_BITS, MAX_OUTPUT_BITS, TableError, TestVector, TestVectorSource, wrap_count,
};
pub use values::{FileError, FileErrorReason, ValuesError};
pub use verify::{AssumePresent, Environment, ProgramFacts, VerifyError, VerifyReason, verify};
pub use vr::{KeyKind, VrError, VrNumber, VrType};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
