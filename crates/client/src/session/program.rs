//! Programs as calls: inputs and outputs by the names of the program's text.

use std::collections::BTreeMap;

use toroid_isa::{Assembly, Instruction, VrNumber, VrType};
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::{Ciphertext, TfheError};

use super::{Session, SessionError};

/// What a program computed, by the names of its registers.
pub type Outputs = BTreeMap<String, Ciphertext>;

impl Session {
    /// Puts a program and its test vectors onto the drive, and runs it: [`Session::install`] and [`Session::call`].
    ///
    /// # Errors
    /// Those of the two.
    pub async fn run(
        &self,
        assembly: &Assembly,
        inputs: &[(&str, &Ciphertext)],
    ) -> Result<Outputs, SessionError> {
        let (_, first) = inputs.first().ok_or(SessionError::Triggers(0))?;
        self.install(first.params(), assembly).await?;
        self.call(assembly, inputs).await
    }

    /// Puts a program and its test vectors onto the drive, for the key id of the register that it returns.
    ///
    /// # Errors
    /// [`SessionError::NoResult`], and those of [`Session::put_test_vector`] and [`Session::put_program`].
    pub async fn install(
        &self,
        params: &ParamSet,
        assembly: &Assembly,
    ) -> Result<(), SessionError> {
        let key_id = result(assembly)?.key_id();
        for vector in &assembly.test_vectors {
            self.put_test_vector(params, vector).await?;
        }
        self.put_program(key_id, params, &assembly.program).await?;
        Ok(())
    }

    /// Runs the program that stands on the drive. Writes the inputs to the registers of these names; the one in a TLWE-CoW register
    /// comes last, and its write runs the program (compute-on-write). Where all are in TLWE-CoR registers, reading the last
    /// one back runs it (compute-on-read).
    ///
    /// The output has the name of the register that the program returns. Other registers that the program changes stay changed on
    /// the drive.
    ///
    /// # Errors
    /// [`SessionError::NoSuchRegister`], [`SessionError::Triggers`]; [`SessionError::NotComputed`] where no program ran;
    /// [`TfheError::ParamsMismatch`] and [`TfheError::KeyMismatch`] for inputs of several sets or keys; those of the store.
    pub async fn call(
        &self,
        assembly: &Assembly,
        inputs: &[(&str, &Ciphertext)],
    ) -> Result<Outputs, SessionError> {
        let mut samples = Vec::with_capacity(inputs.len());
        for (name, sample) in inputs {
            let register = assembly.registers.get(*name);
            let register = *register.ok_or_else(|| SessionError::NoSuchRegister((*name).into()))?;
            samples.push((register, *sample));
        }
        // Stable: the order of the others stays.
        samples.sort_by_key(|(register, _)| register.ty() == VrType::LweCow);
        let writes = |register: &VrNumber| register.ty() == VrType::LweCow;
        let triggers = samples.iter().filter(|(vr, _)| writes(vr)).count();
        let Some(&(trigger, first)) = samples.last().filter(|_| triggers <= 1) else {
            return Err(SessionError::Triggers(triggers));
        };
        for (_, sample) in &samples {
            check_same_key(first, sample)?;
        }
        for (register, sample) in &samples {
            self.put_sample(*register, sample).await?;
        }
        let stored = self.get_sample(trigger).await?;
        if !stored.computed {
            return Err(SessionError::NotComputed(trigger));
        }
        // A drive keeps no tags.
        let output = match first.tag() {
            Some(tag) => stored.ciphertext.with_tag(*tag),
            None => stored.ciphertext,
        };
        let result = result(assembly)?;
        let mut names = assembly.registers.iter();
        let name = names
            .find(|(_, register)| **register == result)
            .map_or_else(|| result.to_string(), |(name, _)| name.clone());
        Ok(BTreeMap::from([(name, output)]))
    }
}

/// The register that a program returns.
fn result(assembly: &Assembly) -> Result<VrNumber, SessionError> {
    match assembly.program.instructions().last() {
        Some(Instruction::Return { n }) => Ok(*n),
        _ => Err(SessionError::NoResult),
    }
}

fn check_same_key(one: &Ciphertext, other: &Ciphertext) -> Result<(), TfheError> {
    if one.params() != other.params() {
        return Err(TfheError::ParamsMismatch {
            what: "an input",
            expected: one.params().name.to_owned(),
            found: other.params().name.to_owned(),
        });
    }
    match (one.tag(), other.tag()) {
        (Some(tag), Some(found)) if tag != found => Err(TfheError::KeyMismatch("an input")),
        _ => Ok(()),
    }
}
