//! Boolean gates on encrypted bits.

use super::{Function, ServerKey};
use crate::TfheError;
use crate::ciphertext::Ciphertext;
use crate::gates::{self, Gate};
use crate::with_modulus;

macro_rules! gates {
    ($($method:ident => $gate:ident: $what:literal,)+) => {
        impl ServerKey {
            $(
                #[doc = $what]
                ///
                /// # Errors
                /// As [`ServerKey::gates`].
                pub fn $method(&self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, TfheError> {
                    self.gate(Gate::$gate, a, b)
                }
            )+
        }
    };
}

gates! {
    and => And: "Both, by one bootstrap.",
    nand => Nand: "Not both, by one bootstrap.",
    or => Or: "At least one, by one bootstrap.",
    nor => Nor: "None, by one bootstrap.",
    xor => Xor: "Exactly one, by one bootstrap.",
    xnor => Xnor: "Both or none, by one bootstrap.",
}

impl ServerKey {
    /// A gate of two bits, by one bootstrap.
    ///
    /// # Errors
    /// As [`ServerKey::gates`].
    pub fn gate(
        &self,
        gate: Gate,
        a: &Ciphertext,
        b: &Ciphertext,
    ) -> Result<Ciphertext, TfheError> {
        let results = self.gates(&[(gate, a, b)])?;
        Ok(results.into_iter().next().expect("one result"))
    }

    /// Any number of gates, which stream the key together.
    ///
    /// ```
    /// # use toroid_tfhe::{gates::Gate, generate, params::TINY};
    /// # let (client, server) = generate(&TINY)?;
    /// let (a, b) = (client.encrypt_bit(true)?, client.encrypt_bit(true)?);
    /// let results = server.gates(&[(Gate::Xor, &a, &b), (Gate::And, &a, &b)])?;
    /// let [sum, carry] = [client.decrypt_bit(&results[0])?, client.decrypt_bit(&results[1])?];
    /// assert_eq!((sum, carry), (false, true));
    /// # Ok::<(), toroid_tfhe::TfheError>(())
    /// ```
    ///
    /// # Errors
    /// [`TfheError::EncodingMismatch`] for integers, [`TfheError::ParamsMismatch`] and [`TfheError::KeyMismatch`] for
    /// ciphertexts of another set or key, [`TfheError::NoGates`] for a set of wide functions, [`TfheError::Cancelled`].
    pub fn gates(
        &self,
        gates: &[(Gate, &Ciphertext, &Ciphertext)],
    ) -> Result<Vec<Ciphertext>, TfheError> {
        let sums = gates
            .iter()
            .map(|(gate, a, b)| {
                a.expect_encoding(None)?;
                b.expect_encoding(None)?;
                let (offset, factor) = gate.combination();
                let sum = a.plus(b, 1)?;
                // Where the factor is 2, the phase is twice as far from a change of sign, too.
                let noise = sum.noise().clone();
                Ok(sum.times(factor).shifted(offset, 3).with_noise(noise))
            })
            .collect::<Result<Vec<_>, TfheError>>()?;
        let sums: Vec<&Ciphertext> = sums.iter().collect();
        let results = self.bootstrap(&sums, &[self.sign()?])?;
        Ok(results.into_iter().flatten().collect())
    }

    /// The other bit, without a bootstrap.
    ///
    /// # Errors
    /// [`TfheError::EncodingMismatch`] for an integer.
    pub fn not(&self, a: &Ciphertext) -> Result<Ciphertext, TfheError> {
        a.checked_not()
    }

    /// `a` where the condition holds, else `b`, by three bootstraps. The result has the noise of one, as that of any gate.
    ///
    /// # Errors
    /// As [`ServerKey::gates`].
    pub fn mux(
        &self,
        condition: &Ciphertext,
        a: &Ciphertext,
        b: &Ciphertext,
    ) -> Result<Ciphertext, TfheError> {
        let otherwise = self.not(condition)?;
        let chosen = self.gates(&[(Gate::And, condition, a), (Gate::And, &otherwise, b)])?;
        // At most one of them is true, so that their sum would do; but it has twice the noise, and a gate of two such sums four times.
        self.gate(Gate::Or, &chosen[0], &chosen[1])
    }

    /// The function of every gate: the sign of a phase.
    fn sign(&self) -> Result<Function, TfheError> {
        let params = self.params();
        if params.is_wide() {
            return Err(TfheError::NoGates(params.name));
        }
        Ok(Function {
            test_vector: with_modulus!(params.modulus, M => {
                bytemuck::cast_slice(&gates::test_vector::<M>(params)).to_vec()
            }),
            output: None,
        })
    }
}
