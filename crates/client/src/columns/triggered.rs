//! Compute-on-write and compute-on-read of all rows of a column.

use std::collections::BTreeMap;

use toroid_engine::{ColumnFacts, Forecast, MapOutput, packed_noise};
use toroid_isa::{Instruction, Program, VrNumber, VrType};
use toroid_task::Progress;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::noise::Noise;
use toroid_tfhe::params::ParamSet;

use super::rows::RowFacts;
use super::{EncryptedRows, of, result_bytes};
use crate::ledger::ObjectDigest;
use crate::session::{Session, SessionError, check_key, inputs};

/// A number of no other source of noise: others have those of their blobs.
const OWN: u64 = u64::MAX;

impl Session {
    /// Has the drive run its program on a column: puts `rows` into the register, if there are any, as an object with room for the
    /// result, and reads the register. A TLWE-CoW register triggers by the write, a TLWE-CoR register by the read.
    ///
    /// The noise that is stated of the result is never below what follows from the program, the rows, and what was stated of the other
    /// operands when they were put. Of rows that were put before, a program that adds up or moves rows leaves it to the drive:
    /// their number is not known here. A ledger takes the result at once.
    ///
    /// # Errors
    /// [`SessionError::Missing`] for no program, or for a sample that it reads, [`SessionError::NotComputed`] for a TLWE-CoW register without rows; those of [`Session::trigger`]; [`SessionError::Column`] for columns
    /// that do not fit the program.
    pub async fn trigger_rows(
        &self,
        register: VrNumber,
        rows: Option<&EncryptedRows>,
        progress: &Progress,
    ) -> Result<EncryptedRows, SessionError> {
        if rows.is_none() && register.ty() == VrType::LweCow {
            // What stands there may be the result of a run before.
            return Err(SessionError::NotComputed(register));
        }
        let key_id = register.key_id();
        let name = VrNumber::program(key_id)?;
        let (digest, program) = match self.has_ledger() {
            true => {
                let (digest, program) = self.own_program(key_id).await?;
                (Some(digest), program)
            }
            false => {
                let program = self.stored_program(key_id).await?;
                (None, program.ok_or(SessionError::Missing(name))?)
            }
        };
        let mut expected = None;
        if let Some(rows) = rows {
            let output = self.forecast(&program, register, (&rows.facts, rows.len()))?;
            let room = output.as_ref().map_or(rows.len(), |output| output.rows);
            let room = result_bytes(rows.params(), room)?;
            self.put_rows(register, rows, room, progress).await?;
            expected = output;
        }
        let facts = self.find(register).and_then(|stat| stat.sc);
        let facts = facts.ok_or(SessionError::Missing(register))?;
        let facts = RowFacts::of(&facts).map_err(of(&register.to_string()))?;
        let (sc, blob) = self.read_sample(register).await?;
        let result = EncryptedRows::from_object(&sc, &blob.data);
        let mut result = result.map_err(of(&register.to_string()))?;
        if !sc.computed() {
            return Err(SessionError::NotComputed(register));
        }
        let tag = rows.map_or(facts.tag, |rows| rows.facts.tag);
        check_key(register, tag, sc.key_tag())?;
        if rows.is_none() && keeps_rows(&program) {
            expected = self.forecast(&program, register, (&facts, result.len()))?;
        }
        if let Some(output) = expected {
            if output.rows != result.len() {
                return Err(SessionError::Unexpected {
                    vr: register,
                    expected: format!("{} rows", output.rows),
                    found: result.len().to_string(),
                });
            }
            let noise = noise(result.params(), &output);
            result = result.with_noise_of_at_least(&noise);
        }
        let entry = digest.and_then(|digest| {
            let found = ObjectDigest::of(&sc, &blob.data);
            self.result_entry(&sc, (found, result.facts.noise), (digest, &program))
        });
        let stays = register.ty() == VrType::LweCow;
        self.enter(entry.filter(|_| stays).map(|entry| (register, entry)))?;
        Ok(result)
    }

    /// What a program makes of rows in a register; `None` for a program without a result.
    ///
    /// # Errors
    /// [`SessionError::Missing`] for a sample that the program reads and the store does not have.
    fn forecast(
        &self,
        program: &Program,
        register: VrNumber,
        (facts, rows): (&RowFacts, u64),
    ) -> Result<Option<MapOutput>, SessionError> {
        let params = facts.params;
        let mut known = BTreeMap::from([(register, facts.known(rows, facts.computed, OWN))]);
        let mut samples = inputs(program);
        samples.retain(|vr| vr.ty().is_sample() && *vr != register);
        // Nobody here knows whether two of them are the same sample.
        let several = samples.len() > 1;
        for vr in samples {
            let stat = self.find(vr);
            let stated = stat.and_then(|stat| Some((stat.sequence, stat.sc?)));
            let (stat, sc) = stated.ok_or(SessionError::Missing(vr))?;
            let unknown = sc.with_noise(None, None);
            let sc = self.operand(vr)?.unwrap_or(unknown);
            let facts = RowFacts::of(&sc).map_err(of(&vr.to_string()))?;
            known.insert(vr, facts.known(1, facts.computed || several, stat));
        }
        let vectors = program.instructions().iter();
        let vectors = vectors.flat_map(Instruction::operands);
        let vectors = vectors.filter(|vr| vr.ty() == VrType::Tv);
        let vectors = vectors.map(|tv| Ok((tv, self.operand(tv)?)));
        let vectors: BTreeMap<_, _> = vectors.collect::<Result<_, SessionError>>()?;
        let functions = |tv| {
            let stored = vectors.get(&tv).copied().flatten();
            stored.map_or((None, None), |sc| {
                let encoding = |bits: u8| Encoding::new(bits.into(), sc.signed()).ok();
                let input = match sc.message_bits() {
                    0 => params.message_bits as u8,
                    bits => bits,
                };
                (encoding(input), encoding(sc.output_bits()))
            })
        };
        let forecast = Forecast {
            program_vr: VrNumber::program(register.key_id())?,
            program,
            params,
            arithmetic: ArithmeticKind::Fft,
            inputs: &known,
            functions: &functions,
        };
        let facts = forecast.facts();
        let facts = facts.map_err(|error| of(&register.to_string())(error.into()))?;
        Ok(facts.outputs.into_iter().next())
    }
}

impl RowFacts {
    /// The rows as an input of a program.
    fn known(&self, rows: u64, computed: bool, number: u64) -> ColumnFacts {
        ColumnFacts {
            rows,
            noise: self.stored_noise(computed),
            encoding: self.encoding,
            number,
        }
    }
}

/// The noise of rows that a drive has made and, if there are several, packed.
fn noise(params: &ParamSet, output: &MapOutput) -> Noise {
    match output.rows {
        1 => output.noise.clone(),
        _ => packed_noise(params, ArithmeticKind::Fft, &output.noise),
    }
}

/// Whether the result of a program has the rows of the column that it runs on.
fn keeps_rows(program: &Program) -> bool {
    !program.instructions().iter().any(|instruction| {
        matches!(
            instruction,
            Instruction::HomSum { .. }
                | Instruction::Lower { .. }
                | Instruction::Upper { .. }
                | Instruction::Join { .. }
        )
    })
}
