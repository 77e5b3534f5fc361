//! Programs as calls: inputs and outputs by the names of the program's text.

use std::collections::{BTreeMap, BTreeSet};

use toroid_isa::{Assembly, Instruction, Program, VrNumber, VrType};
use toroid_task::Progress;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::noise::Noise;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::{Ciphertext, TfheError};

use super::{ComputedEntry, Object, Session, SessionError};

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
        let (outputs, entry) = self.run_computed(assembly, inputs).await?;
        self.accept(entry)?;
        Ok(outputs)
    }

    /// [`Session::run`] without entering the result into the ledger.
    pub(crate) async fn run_computed(
        &self,
        assembly: &Assembly,
        inputs: &[(&str, &Ciphertext)],
    ) -> Result<(Outputs, Option<ComputedEntry>), SessionError> {
        let (_, first) = inputs.first().ok_or(SessionError::Triggers(0))?;
        self.install(first.params(), assembly).await?;
        self.computed(assembly, inputs).await
    }

    /// Puts a program and its test vectors onto the drive, for the key id of the register that it returns.
    ///
    /// # Errors
    /// [`SessionError::NoResult`], and those of [`Object::test_vector`] and [`Session::put`]; after any of them nothing is stored that was
    /// not before.
    pub async fn install(
        &self,
        params: &ParamSet,
        assembly: &Assembly,
    ) -> Result<(), SessionError> {
        let key_id = result(assembly)?.key_id();
        let mut objects = Vec::new();
        for vector in &assembly.test_vectors {
            objects.push(Object::test_vector(params, vector)?.0);
        }
        objects.push(Object::program(key_id, params, &assembly.program)?);
        self.put(objects, &Progress::none()).await.map(drop)
    }

    /// Runs the program that stands on the drive. Writes the inputs to the registers of these names; the one in a TLWE-CoW register
    /// comes last, and its write runs the program (compute-on-write). Where all are in TLWE-CoR registers, reading the last
    /// one back runs it (compute-on-read).
    ///
    /// The output has the name of the register that the program returns. Its noise and failure probability are the worse of what the
    /// drive states and of what follows from the program and the inputs. Of registers that are no inputs, what was stated when they were put
    /// counts. Other registers that the program changes stay changed on the drive.
    ///
    /// # Errors
    /// [`SessionError::NoSuchRegister`], [`SessionError::Triggers`]; [`SessionError::NotComputed`] where no program ran;
    /// [`TfheError::ParamsMismatch`] and [`TfheError::KeyMismatch`] for inputs of several sets or keys; those of the store.
    pub async fn call(
        &self,
        assembly: &Assembly,
        inputs: &[(&str, &Ciphertext)],
    ) -> Result<Outputs, SessionError> {
        let (outputs, entry) = self.computed(assembly, inputs).await?;
        self.accept(entry)?;
        Ok(outputs)
    }

    /// [`Session::call`] without entering the result into the ledger, which is left to the caller.
    pub(crate) async fn computed(
        &self,
        assembly: &Assembly,
        inputs: &[(&str, &Ciphertext)],
    ) -> Result<(Outputs, Option<ComputedEntry>), SessionError> {
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
        let Some(&(trigger, last)) = samples.last().filter(|_| triggers <= 1) else {
            return Err(SessionError::Triggers(triggers));
        };
        for (_, sample) in &samples {
            check_same_key(last, sample)?;
        }
        for (register, sample) in samples.iter().filter(|(register, _)| *register != trigger) {
            self.put_sample(*register, sample).await?;
        }
        let noise = predicted_noise(assembly, inputs);
        let (stored, entry) = self.trigger_knowing(trigger, Some(last), noise).await?;
        let output = stored.ciphertext;
        // The drive keeps the start of it alone.
        let output = match last.tag() {
            Some(tag) => output.with_tag(*tag),
            None => output,
        };
        let outputs = BTreeMap::from([(result_name(assembly)?, output)]);
        Ok((outputs, entry))
    }
}

/// The noise of a program's result that follows from its inputs, with the arithmetic that has more of it; `None` where the program reads
/// registers that are none of them.
#[must_use]
pub fn predicted_noise(assembly: &Assembly, inputs: &[(&str, &Ciphertext)]) -> Option<Noise> {
    let (_, first) = inputs.first()?;
    let params = first.params();
    let noises = inputs.iter().map(|(name, sample)| {
        let register = assembly.registers.get(*name)?;
        Some((*register, sample.noise().clone()))
    });
    let noises: BTreeMap<_, _> = noises.collect::<Option<_>>()?;
    let width = |tv| {
        let mut vectors = assembly.test_vectors.iter();
        let vector = vectors.find(|vector| vector.vr == tv)?;
        Some(vector.p_in.unwrap_or(params.message_bits))
    };
    let read = |register| noises.get(&register).cloned();
    noise_of_result(&assembly.program, params, read, width)
}

/// The name of the register that a program returns.
///
/// # Errors
/// [`SessionError::NoResult`].
pub fn result_name(assembly: &Assembly) -> Result<String, SessionError> {
    let result = result(assembly)?;
    let mut names = assembly.registers.iter();
    let named = names.find(|(_, register)| **register == result);
    Ok(named.map_or_else(|| result.to_string(), |(name, _)| name.clone()))
}

/// The register that a program returns.
fn result(assembly: &Assembly) -> Result<VrNumber, SessionError> {
    match assembly.program.instructions().last() {
        Some(Instruction::Return { n }) => Ok(*n),
        _ => Err(SessionError::NoResult),
    }
}

/// The noise of what a program returns, from that of what it reads and the message bits of its functions, with the arithmetic that has more
/// of it; `None` where either is not known.
pub(super) fn noise_of_result(
    program: &Program,
    params: &ParamSet,
    read: impl Fn(VrNumber) -> Option<Noise>,
    width: impl Fn(VrNumber) -> Option<u32>,
) -> Option<Noise> {
    let inputs = inputs(program);
    let inputs: Option<Vec<_>> = inputs.into_iter().map(|vr| Some((vr, read(vr)?))).collect();
    let inputs = inputs?;
    // Beside each noise a number that copies of the same sample have in common.
    let mut last = inputs.len() as u64;
    let mut registers: BTreeMap<VrNumber, (u64, Noise)> = (0..)
        .zip(inputs)
        .map(|(sample, (register, noise))| (register, (sample, noise)))
        .collect();
    let mut stack = Vec::new();
    for instruction in program.instructions() {
        let (register, noise) = match *instruction {
            Instruction::Return { n } => return Some(registers.get(&n)?.1.clone()),
            Instruction::Move { dst, src } => {
                registers.insert(dst, registers.get(&src)?.clone());
                continue;
            }
            Instruction::Push { n } => {
                stack.push(registers.get(&n)?.clone());
                continue;
            }
            Instruction::Pop { n } => {
                registers.insert(n, stack.pop()?);
                continue;
            }
            Instruction::Bootstrap { tv, n } => {
                let (sample, noise) = registers.get(&n)?;
                let arithmetic = ArithmeticKind::Fft;
                (
                    n,
                    noise.bootstrapped(params, width(tv)?, arithmetic, *sample),
                )
            }
            Instruction::HomAdd { dst, src } => {
                let (_, addend) = registers.get(&src)?;
                (dst, registers.get(&dst)?.1.plus(addend, 1.0))
            }
            Instruction::HomSub { dst, src } => {
                let (_, subtrahend) = registers.get(&src)?;
                (dst, registers.get(&dst)?.1.plus(subtrahend, -1.0))
            }
            Instruction::HomIntMult { n, v } => (n, registers.get(&n)?.1.times(f64::from(v))),
            // The sum of a single sample is that sample.
            Instruction::HomIntAdd { n, .. } | Instruction::HomSum { n, .. } => {
                (n, registers.get(&n)?.1.clone())
            }
            // No drive runs these on single samples.
            Instruction::Lower { .. } | Instruction::Upper { .. } | Instruction::Join { .. } => {
                return None;
            }
        };
        last += 1;
        registers.insert(register, (last, noise));
    }
    None
}

/// The registers of which a program reads what stood there before it.
pub(crate) fn inputs(program: &Program) -> BTreeSet<VrNumber> {
    let (mut inputs, mut written) = (BTreeSet::new(), BTreeSet::new());
    for instruction in program.instructions() {
        inputs.extend(instruction.reads().filter(|vr| !written.contains(vr)));
        written.extend(instruction.writes());
    }
    inputs
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

#[cfg(test)]
mod tests {
    use toroid_tfhe::noise::StatedNoise;
    use toroid_tfhe::params::TINY;

    use super::*;

    const PROGRAM: &str = "
        .reg x  = cor:0
        .reg y  = cow:1
        .tv  f  = x
            homadd    x, y
            mov       y, x
            bootstrap f, x
            bootstrap f, y
            homadd    x, y
            return    x
    ";

    /// The noise of the program's result, of fresh samples in the registers of these names.
    fn noise(names: &[&str]) -> Option<Noise> {
        let assembly = toroid_isa::assemble(PROGRAM).unwrap();
        let fresh = |vr| {
            let mut known = names.iter().map(|name| assembly.registers[*name]);
            known.find(|known| *known == vr)?;
            Some(Noise::encryption(&TINY))
        };
        let width = |_| Some(TINY.message_bits);
        noise_of_result(&assembly.program, &TINY, fresh, width)
    }

    #[test]
    fn a_drive_that_understates_the_noise_of_a_result_is_not_believed() {
        let noise = noise(&["x", "y"]).unwrap();
        // Twice the same bootstrapped sample, in two registers.
        let arithmetic = ArithmeticKind::Fft;
        let one = toroid_tfhe::noise::bootstrap_output_variance(&TINY, arithmetic);
        assert!((noise.variance() / one - 4.0).abs() < 1e-6);
        assert!(noise.log2_failure() > f64::NEG_INFINITY);

        let sample = vec![1; TINY.lwe_bytes()];
        let stated = |log2_variance, log2_failure| StatedNoise {
            log2_variance: Some(log2_variance),
            log2_failure: Some(log2_failure),
        };
        for (stated, believed) in [(stated(-50.0, -1000.0), false), (stated(-10.0, -1.0), true)] {
            let result = Ciphertext::from_sample(&TINY, None, &sample, stated).unwrap();
            let checked = result.clone().with_noise_of_at_least(&noise);
            let same = result.stated_noise() == checked.stated_noise();
            assert_eq!(same, believed, "{stated:?}");
            assert!(checked.noise().variance() >= noise.variance());
        }
    }

    #[test]
    fn the_noise_of_registers_that_are_no_inputs_is_not_guessed() {
        assert!(noise(&["y"]).is_none());
        let assembly = toroid_isa::assemble(PROGRAM).unwrap();
        let fresh = |_| Some(Noise::encryption(&TINY));
        assert!(noise_of_result(&assembly.program, &TINY, fresh, |_| None).is_none());
    }

    #[test]
    fn inputs_are_what_is_read_before_it_is_written() {
        let text = "
            .reg x = cor:1
            .reg y = cow:2
            .reg z = cor:3
                mov    z, x
                homadd z, y
                push   z
                pop    y
                return z
        ";
        let inputs = inputs(&toroid_isa::assemble(text).unwrap().program);
        let inputs: Vec<String> = inputs.iter().map(ToString::to_string).collect();
        assert_eq!(inputs, ["cor:0:1", "cow:0:2"]);
    }
}
