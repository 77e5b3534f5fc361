//! What a program will do with columns, from what is known of them, without an engine that holds them.

use std::collections::BTreeMap;

use toroid_isa::{AssumePresent, Program, VrNumber, verify};
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::params::ParamSet;

use super::MapFacts;
use super::plan::{ColumnFacts, MAX_ROWS, Plan, Setting};
use crate::config::EngineConfig;
use crate::error::{EngineError, RowError};

/// What a program is to run on.
#[derive(Clone, Copy)]
pub struct Forecast<'a> {
    /// The name of the program in errors.
    pub program_vr: VrNumber,
    /// The program.
    pub program: &'a Program,
    /// The parameter set of all inputs.
    pub params: &'static ParamSet,
    /// The arithmetic of the bootstraps.
    pub arithmetic: ArithmeticKind,
    /// What is known of the registers that the program reads.
    pub inputs: &'a BTreeMap<VrNumber, ColumnFacts>,
    /// Encodings of a test vector's input and output, as far as they are stated.
    pub functions: &'a dyn Fn(VrNumber) -> (Option<Encoding>, Option<Encoding>),
}

impl Forecast<'_> {
    /// Rows, noise and failure probability of the result, and the bootstraps behind it: what [`Engine::plan_map`] says where the
    /// inputs are as stated.
    ///
    /// # Errors
    /// [`EngineError::Verify`] for a program that would not run, [`EngineError::Rows`] for columns that do not fit it or each other,
    /// [`EngineError::NoSuchRegister`] for a register that the program reads and of which nothing is known.
    ///
    /// [`Engine::plan_map`]: crate::Engine::plan_map
    pub fn facts(&self) -> Result<MapFacts, EngineError> {
        let everything = AssumePresent {
            stack_slots: EngineConfig::default().stack_slots,
        };
        verify(self.program, &everything, None).map_err(|errors| EngineError::Verify {
            vr: self.program_vr,
            errors,
        })?;
        let mut inputs = self.inputs.iter();
        if let Some((vr, facts)) = inputs.find(|(_, facts)| !(1..=MAX_ROWS).contains(&facts.rows)) {
            let found = format!("{} rows found; expected 1 to {MAX_ROWS}", facts.rows);
            return Err(RowError::Refused(found).of(*vr));
        }
        let setting = Setting {
            program: self.program_vr,
            params: self.params,
            arithmetic: self.arithmetic,
            inputs: self.inputs,
            functions: self.functions,
        };
        Ok(super::facts(&Plan::new(&setting, self.program, &[])?))
    }
}
