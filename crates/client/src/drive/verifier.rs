//! Recomputation of results: the same program on the same inputs with the same public keys, by a drive in this process.
//!
//! Arithmetic `ntt` is exact, so an honest drive that computes by it gives the same result bit for bit, on whatever machine. Results by
//! `fft` differ in their last bits from machine to machine and cannot be checked so. To compare what they decrypt to would tell a drive
//! that watches its client whether a ciphertext of its choice decrypts to what it expects, which reveals the key bit by bit.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use toroid_engine::backend::cpu::CpuBackend;
use toroid_isa::Assembly;
use toroid_tfhe::Ciphertext;
use toroid_tfhe::arithmetic::ArithmeticKind;

use super::{Drive, DriveError};
use crate::session::Outputs;

/// Checks results by computing them again.
pub struct Verifier {
    /// One computation at a time: a program and its inputs stand in registers.
    drive: Mutex<Drive>,
    share: f64,
}

impl Verifier {
    /// A verifier for programs of a key id, with the public keys of a folder ([`PUBLIC_KEY_FILES`](super::PUBLIC_KEY_FILES)), which
    /// must be those of the drive. It keeps an image with them in the folder for temporary files.
    ///
    /// # Errors
    /// Those of [`Drive::temporary`] and [`Drive::put_key_files`].
    pub fn new(keys: impl AsRef<Path>, key_id: u32) -> Result<Verifier, DriveError> {
        let backend = Arc::new(CpuBackend::new(ArithmeticKind::Ntt));
        let options = Drive::options().backend(backend).key_id(key_id);
        let drive = Drive::temporary_with(&options)?;
        drive.put_key_files(keys)?;
        let drive = Mutex::new(drive);
        Ok(Verifier { drive, share: 1.0 })
    }

    /// The same, which computes only this share of the results again, picked at random: all at 1 and at what is no share, none at 0.
    #[must_use]
    pub fn with_share(self, share: f64) -> Verifier {
        let share = if (0.0..=1.0).contains(&share) {
            share
        } else {
            1.0
        };
        Verifier { share, ..self }
    }

    /// Compares results with those of a program on its inputs. Says whether it did, by the share.
    ///
    /// # Errors
    /// [`DriveError::WrongResult`]; those of the computation.
    pub fn check(
        &self,
        program: &Assembly,
        inputs: &[(&str, &Ciphertext)],
        results: &Outputs,
    ) -> Result<bool, DriveError> {
        if !self.is_picked()? {
            return Ok(false);
        }
        let drive = self.drive.lock().unwrap_or_else(PoisonError::into_inner);
        let expected = drive.complete(drive.session().run(program, inputs))?;
        for (name, expected) in &expected {
            let result = results.get(name);
            let same = |result: &Ciphertext| {
                result.params() == expected.params() && result.sample() == expected.sample()
            };
            if !result.is_some_and(same) {
                return Err(DriveError::WrongResult(name.clone()));
            }
        }
        Ok(true)
    }

    fn is_picked(&self) -> Result<bool, DriveError> {
        let random = getrandom::u32().map_err(|error| DriveError::Random(error.to_string()))?;
        Ok(f64::from(random) < self.share * 2f64.powi(32))
    }
}
