//! The processor: runs a program as a transaction on virtual registers (platform paper, section 4.4).
//!
//! A run sees the registers as they were when it began. Its writes go to its own pages, which are paged like any other and
//! become the registers' at the end. A run counts as earlier than every store that happened meanwhile, so a register stored
//! or removed during the run keeps what the store or removal left. Runs count in the order of their ends (`admission.rs`), so
//! a run overwrites what another one wrote meanwhile. On any error the pages are freed and the registers stay.
//!
//! Adjacent Bootstraps of the same sample are one task of the back end, which may share work among them. A wide function reads as
//! many bits of the sample as the input encoding of its test vector has.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use toroid_isa::metadata::KeyTagStart;
use toroid_isa::{Environment, Instruction, KeyKind, Program, VrNumber, VrType, verify};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::lwe;
use toroid_tfhe::modulus::Modulus;
use toroid_tfhe::noise::Noise;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::fingerprint;
use toroid_tfhe::with_modulus;

use crate::admission::Admitted;
use crate::backend::{BackendError, BootstrapTask, LoadedKey};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::paging::{PageId, PageIo};
use crate::part::Part;
use crate::partial::Origin;
use crate::register::{function_input, same_statement};
use crate::requester::{BOOTSTRAPS, Requester};
use crate::store::{Accepted, StagedSample};
use crate::swap::PagingContext;
use crate::table::{Content, Register, Table};

/// The most bootstraps of one sample that the back end is given at once. It bounds the time of a task, between two of which other
/// tenants have their turns, and the memory of its results: at `message16` 64 samples of 16 KiB, beside 64 tables of 512 KiB, which
/// the registers hold anyway. What more it takes to apply functions is up to the back end; `cpu` applies a few at a time.
const MAX_FUSED_BOOTSTRAPS: usize = 64;

/// What one instruction took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstructionTiming {
    /// The instruction.
    pub instruction: Instruction,
    /// Wall time, page I/O included. Bootstraps that were done at once have equal shares.
    pub duration: Duration,
    /// Pages that it read from the swap area.
    pub page_ins: u64,
    /// Pages that it wrote to the swap area.
    pub page_outs: u64,
}

/// The result of a program.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// The register that was returned.
    pub returned: VrNumber,
    /// The parameter set of its sample.
    pub params: &'static ParamSet,
    /// The sample: n mask words and the body, little-endian.
    pub bytes: Vec<u8>,
    /// Noise of the sample and failure probability of every bootstrap behind it.
    pub noise: Noise,
    /// Encoding of its message; `None`: unknown, or a Boolean gate's.
    pub encoding: Option<Encoding>,
    /// Every instruction in the order of execution.
    pub instructions: Vec<InstructionTiming>,
    /// Wall time of all of it, without waiting for other runs.
    pub duration: Duration,
    /// Pages read from the swap area.
    pub page_ins: u64,
    /// Pages written to the swap area.
    pub page_outs: u64,
}

/// A sample with what is known of it.
#[derive(Clone)]
struct Value {
    params: &'static ParamSet,
    noise: Noise,
    encoding: Option<Encoding>,
}

impl Value {
    /// What is known of a sum or difference of this and `other`.
    fn combined(&self, other: &Value, factor: f64) -> Value {
        Value {
            params: self.params,
            noise: self.noise.plus(&other.noise, factor),
            encoding: match (self.encoding, other.encoding) {
                (Some(a), Some(b)) => Some(a.common(b)),
                (a, b) => a.or(b),
            },
        }
    }
}

/// The trivial sample of `v`, a message of this encoding; without one, of the set's width.
pub(crate) fn constant(params: &ParamSet, encoding: Option<Encoding>, v: i32) -> Vec<u8> {
    let bits = encoding.map_or(params.message_bits, Encoding::bits);
    with_modulus!(params.modulus, M => {
        let words = lwe::trivial::<M>(params, M::encode(v.into(), bits + 1));
        bytemuck::cast_slice(&words).to_vec()
    })
}

/// A register as the run sees it. Holds its page.
struct Working {
    page: PageId,
    value: Value,
    fingerprint: u64,
    /// To appear in the register at the end.
    written: bool,
    computed: bool,
}

#[derive(Clone)]
struct TestVector {
    bytes: Arc<[u8]>,
    input: Option<Encoding>,
    output: Option<Encoding>,
}

/// A run that has begun: it sees the registers as they were then. Dropped, it has changed nothing. It takes one of the
/// engine's places for runs until its end, so do not begin another on the same thread before.
#[must_use = "the program runs in `execute`"]
pub struct Run<'e, 'r> {
    // Declared before the admission, so the transaction ends first.
    transaction: Transaction<'e>,
    _admitted: Admitted<'e>,
    program: Arc<Program>,
    /// The sample that came with the run.
    staged: Option<StagedSample>,
    requester: Requester<'r>,
}

impl<'e> Run<'e, '_> {
    /// Runs the program, and holds its effect back.
    ///
    /// # Errors
    /// Those of [`Engine::run`].
    pub fn execute(mut self) -> Result<PreparedRun<'e>, EngineError> {
        let staged = self.staged.into_iter().collect();
        let outcome = self
            .transaction
            .run(&self.program, staged, self.requester)?;
        Ok(PreparedRun {
            _effect: self.transaction.engine.begin_effect(),
            transaction: self.transaction,
            _admitted: self._admitted,
            outcome,
        })
    }
}

/// A program that has run, just before its effect: when nothing but the caller can still fail, for example in writing the
/// result to the SSD.
///
/// While it exists, no other effect appears in any register, so keep it for a short time and do not call the engine
/// meanwhile. Dropped without [`PreparedRun::commit`], it leaves every register as it was.
#[must_use = "the run has no effect before `commit`"]
pub struct PreparedRun<'e> {
    // Dropped in this order.
    _effect: MutexGuard<'e, ()>,
    transaction: Transaction<'e>,
    _admitted: Admitted<'e>,
    outcome: RunOutcome,
}

impl PreparedRun<'_> {
    /// The result of the program.
    pub fn outcome(&self) -> &RunOutcome {
        &self.outcome
    }

    /// Makes all writes of the program appear at once.
    pub fn commit(self) -> RunOutcome {
        self.transaction.commit();
        self.outcome
    }
}

/// Everything that a run works on; gives all pages back when dropped.
pub(crate) struct Transaction<'e> {
    pub(crate) engine: &'e Engine,
    program: VrNumber,
    registers: HashMap<VrNumber, Working>,
    /// Stamp of the table at the start; `None` before.
    begun: Option<u64>,
    /// Of the samples that came with the run.
    staged_noise: Vec<Noise>,
    /// The client keys that they state.
    staged_tags: Vec<(VrNumber, KeyTagStart)>,
    test_vectors: HashMap<VrNumber, TestVector>,
    keys: HashMap<VrNumber, Arc<dyn LoadedKey>>,
    stack: Vec<(Vec<u8>, Value)>,
    /// The registers that columns stand in, where the run is one on columns.
    columns: Option<BTreeSet<VrNumber>>,
    pub(crate) io: PageIo,
}

impl Environment for Transaction<'_> {
    fn has_register(&self, vr: VrNumber) -> bool {
        let columns = self.columns.as_ref();
        self.registers.contains_key(&vr) || columns.is_some_and(|columns| columns.contains(&vr))
    }

    fn has_test_vector(&self, vr: VrNumber) -> bool {
        self.test_vectors.contains_key(&vr)
    }

    fn has_key(&self, key_id: u32, kind: KeyKind) -> bool {
        VrNumber::key(key_id, kind).is_ok_and(|vr| self.keys.contains_key(&vr))
    }

    fn stack_slots(&self) -> usize {
        self.engine.config.stack_slots
    }

    fn has_columns(&self) -> bool {
        self.columns.is_some()
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        for working in self.registers.values() {
            self.engine.memory.release(working.page);
        }
        if let Some(begun) = self.begun {
            self.engine.table().end_run(begun);
        }
    }
}

impl Engine {
    /// Runs the program of the trigger's key id and gives its result.
    ///
    /// The program is verified against the registers there are before its first instruction. All its writes appear at the
    /// end, at once, or none. A cancellation is honoured while waiting for other runs, between instructions and in bootstraps.
    ///
    /// # Errors
    /// [`EngineError::NotASample`] for a trigger of another type, [`EngineError::NoSuchRegister`] if there is no program,
    /// [`EngineError::KeyIdDenied`], [`EngineError::Verify`], [`EngineError::Cancelled`], page I/O that failed, no room, or a failure of the back end.
    /// No register has changed then.
    pub fn run<'r>(
        &self,
        context: PagingContext,
        trigger: VrNumber,
        requester: impl Into<Requester<'r>>,
    ) -> Result<RunOutcome, EngineError> {
        if !trigger.ty().is_sample() {
            return Err(EngineError::NotASample { vr: trigger });
        }
        let run = self.begin(context, trigger, None, requester.into())?;
        Ok(run.execute()?.commit())
    }

    /// Stores a part of an LWE sample; if it is the last, runs the program of its key id on the new sample in the same
    /// transaction: when the run fails, the sample's register keeps what it held before. `None` if parts are still to come.
    ///
    /// This is compute-on-write, and compute-on-read where the sample comes from the SSD.
    ///
    /// # Errors
    /// Those of [`Engine::store_part`] and [`Engine::run`].
    pub fn store_part_and_run<'r>(
        &self,
        part: &Part<'_>,
        requester: impl Into<Requester<'r>>,
    ) -> Result<Option<RunOutcome>, EngineError> {
        if !part.vr.ty().is_sample() {
            return Err(EngineError::NotASample { vr: part.vr });
        }
        match self.accept(part, Origin::Write)? {
            Accepted::Sample(sample) => {
                let run = self.begin(part.context, part.vr, Some(sample), requester.into())?;
                Ok(Some(run.execute()?.commit()))
            }
            Accepted::Incomplete(staged) => {
                staged.commit();
                Ok(None)
            }
            Accepted::Register(_) => Err(EngineError::NotASample { vr: part.vr }),
        }
    }

    /// Begins a run of the program of the sample's key id, on a sample that comes whole in one part: waits for runs that
    /// conflict with it. The run sees the registers as they are when this returns; whatever is stored in them from then on
    /// counts as later than the run.
    ///
    /// # Errors
    /// [`EngineError::NotASample`] and [`EngineError::Size`] for a part that is not a whole sample; those of
    /// [`Engine::run`] that come before its first instruction.
    pub fn begin_run<'e, 'r>(
        &'e self,
        part: &Part<'_>,
        requester: impl Into<Requester<'r>>,
    ) -> Result<Run<'e, 'r>, EngineError> {
        // Only a sample of type 3 triggers by being read, and only by that.
        let origin = match part.vr.ty() {
            VrType::LweCor => Origin::Read,
            _ => Origin::Write,
        };
        let sample = self.accept_whole_sample(part, origin)?;
        self.begin(part.context, part.vr, Some(sample), requester.into())
    }

    fn begin<'e, 'r>(
        &'e self,
        context: PagingContext,
        trigger: VrNumber,
        staged: Option<StagedSample>,
        requester: Requester<'r>,
    ) -> Result<Run<'e, 'r>, EngineError> {
        let program_vr = VrNumber::program(trigger.key_id())
            .map_err(|_| EngineError::NoSuchRegister { vr: trigger })?;
        let current = |table: &Table| match table.get(program_vr).map(|found| &found.content) {
            Some(Content::Program(program)) => Ok((Arc::clone(program), program_vr)),
            _ => Err(EngineError::NoSuchRegister { vr: program_vr }),
        };
        let (admitted, (program, transaction)) = self.admission.admit(
            requester.cancel,
            || self.table(),
            current,
            staged.as_ref().map(|sample| sample.vr),
            |table, program| {
                let mut transaction = Transaction::new(self, context, program_vr);
                let begun = transaction.view(table, program, staged.as_ref(), &requester)?;
                Ok((begun, (Arc::clone(program), transaction)))
            },
        )?;
        Ok(Run {
            transaction,
            _admitted: admitted,
            program,
            staged,
            requester,
        })
    }

    /// Runs a program that is in no register, on LWE samples that come with it, each whole in one part, and gives its result.
    /// `program_vr` is its name in errors.
    ///
    /// The program sees the registers as they are when it begins, with the samples in place of those of their numbers. It
    /// changes none of them: what it writes is gone when it has ended. So it waits for no other run, none waits for it, and it
    /// does not count among the runs of [`EngineConfig`](crate::EngineConfig). Of several samples for one register the last counts.
    ///
    /// # Errors
    /// [`EngineError::NotASample`] and [`EngineError::Size`] for a part that is no whole sample; those of
    /// [`Engine::store_part_and_run`].
    pub fn evaluate<'r>(
        &self,
        context: PagingContext,
        program_vr: VrNumber,
        program: &Program,
        samples: &[Part<'_>],
        requester: impl Into<Requester<'r>>,
    ) -> Result<RunOutcome, EngineError> {
        let requester = requester.into();
        let staged: Vec<StagedSample> = samples
            .iter()
            .map(|part| self.whole_sample(part))
            .collect::<Result<_, _>>()?;
        let mut transaction = Transaction::new(self, context, program_vr);
        transaction.look(&self.table(), program, &staged, &requester)?;
        transaction.run(program, staged, requester)
    }
}

impl<'e> Transaction<'e> {
    pub(crate) fn new(
        engine: &'e Engine,
        context: PagingContext,
        program: VrNumber,
    ) -> Transaction<'e> {
        Transaction {
            engine,
            program,
            registers: HashMap::new(),
            begun: None,
            staged_noise: Vec::new(),
            staged_tags: Vec::new(),
            test_vectors: HashMap::new(),
            keys: HashMap::new(),
            stack: Vec::new(),
            columns: None,
            io: PageIo::new(context),
        }
    }

    /// Executes the program on the samples that came with the run. Nothing appears in the registers.
    fn run(
        &mut self,
        program: &Program,
        staged: Vec<StagedSample>,
        requester: Requester<'_>,
    ) -> Result<RunOutcome, EngineError> {
        let start = Instant::now();
        let noises = std::mem::take(&mut self.staged_noise);
        for (sample, noise) in staged.into_iter().zip(noises) {
            self.stage(sample, noise)?;
        }
        verify(program, self, None).map_err(|errors| EngineError::Verify {
            vr: self.program,
            errors,
        })?;
        let mut instructions = Vec::with_capacity(program.len());
        let mut result = None;
        let mut rest = program.instructions();
        let is_bootstrap = |i: &&Instruction| matches!(i, Instruction::Bootstrap { .. });
        let bootstraps = rest.iter().filter(is_bootstrap).count() as u64;
        let mut bootstrapped = 0;
        while let Some((instruction, behind)) = rest.split_first() {
            if requester.cancel.is_cancelled() {
                return Err(EngineError::Cancelled);
            }
            let (begun, mut ins, mut outs) = (Instant::now(), self.io.page_ins, self.io.page_outs);
            let first = instructions.len();
            let mut done = |instruction, io: &PageIo| {
                instructions.push(InstructionTiming {
                    instruction,
                    duration: Duration::ZERO,
                    page_ins: io.page_ins - ins,
                    page_outs: io.page_outs - outs,
                });
                (ins, outs) = (io.page_ins, io.page_outs);
            };
            match *instruction {
                Instruction::Return { n } => {
                    result = Some((n, self.read(n)?));
                    done(*instruction, &self.io);
                    rest = behind;
                }
                Instruction::Bootstrap { .. } => {
                    let run = self.bootstraps_of_one_sample(rest);
                    rest = rest.get(run.len()..).unwrap_or_default();
                    self.bootstrap(&run, requester, done)?;
                    bootstrapped += run.len() as u64;
                    requester.report(BOOTSTRAPS, bootstrapped, bootstraps);
                }
                _ => {
                    self.step(*instruction)?;
                    done(*instruction, &self.io);
                    rest = behind;
                }
            }
            let timings = instructions.get_mut(first..).unwrap_or_default();
            let share = begun.elapsed() / timings.len().max(1) as u32;
            for timing in timings {
                timing.duration = share;
            }
        }
        let (returned, (bytes, value)) = result.ok_or(EngineError::Execution {
            vr: self.program,
            what: "ends without a return",
        })?;
        let outcome = RunOutcome {
            returned,
            params: value.params,
            bytes,
            noise: value.noise,
            encoding: value.encoding,
            instructions,
            duration: start.elapsed(),
            page_ins: self.io.page_ins,
            page_outs: self.io.page_outs,
        };
        tracing::debug!(
            program = %self.program,
            instructions = outcome.instructions.len(),
            duration = ?outcome.duration,
            page_ins = outcome.page_ins,
            page_outs = outcome.page_outs,
            "program ran"
        );
        Ok(outcome)
    }

    /// Takes hold of the registers in the table; gives the stamp of the run's begin.
    fn view(
        &mut self,
        table: &mut Table,
        program: &Program,
        staged: Option<&StagedSample>,
        requester: &Requester<'_>,
    ) -> Result<u64, EngineError> {
        self.look(
            table,
            program,
            staged.map_or(&[], std::slice::from_ref),
            requester,
        )?;
        let noise = self.staged_noise.first().cloned();
        let known = staged.map(|sample| (sample.vr.key_id(), fingerprint(&sample.bytes)));
        let begun = table.begin_run(known.zip(noise));
        self.begun = Some(begun);
        Ok(begun)
    }

    /// Takes hold of the registers in the table that the program names, but for those that samples came for.
    pub(crate) fn look(
        &mut self,
        table: &Table,
        program: &Program,
        staged: &[StagedSample],
        requester: &Requester<'_>,
    ) -> Result<(), EngineError> {
        let operands: BTreeSet<VrNumber> = program
            .instructions()
            .iter()
            .flat_map(Instruction::operands)
            .collect();
        let denied = |vr: &&VrNumber| {
            let allowed = requester.key_ids;
            allowed.is_some_and(|key_ids| !key_ids.contains(&vr.key_id()))
        };
        if operands.iter().any(|vr| denied(&vr)) {
            return Err(EngineError::KeyIdDenied { vr: self.program });
        }
        for (place, sample) in staged.iter().enumerate() {
            table.check_params((sample.vr, Origin::Write), sample.params)?;
            if let Some(tag) = sample.attributes.key_tag {
                table.check_key_tag((sample.vr, Origin::Write), Some(tag))?;
                let mut earlier = self.staged_tags.iter();
                if earlier.any(|(vr, other)| vr.key_id() == sample.vr.key_id() && *other != tag) {
                    return Err(EngineError::KeyTagMismatch { vr: sample.vr });
                }
                self.staged_tags.push((sample.vr, tag));
            }
            let earlier = staged.iter().take(place);
            let mut of_key_id = earlier.filter(|other| other.vr.key_id() == sample.vr.key_id());
            if let Some(other) = of_key_id.find(|other| other.params.id != sample.params.id) {
                return Err(EngineError::ParamsMismatch {
                    vr: sample.vr,
                    expected: other.params.name,
                    found: sample.params.name,
                });
            }
            // The same sample for another register has the same noise.
            let earlier = staged
                .iter()
                .zip(&self.staged_noise)
                .find(|(other, noise)| {
                    other.vr.key_id() == sample.vr.key_id()
                        && other.bytes == sample.bytes
                        && same_statement(noise, &sample.noise())
                });
            let noise = match earlier {
                Some((_, noise)) => noise.clone(),
                None => {
                    let fingerprint = fingerprint(&sample.bytes);
                    table.noise_of(sample.vr.key_id(), fingerprint, sample.noise())
                }
            };
            self.staged_noise.push(noise);
        }
        let key_ids: BTreeSet<u32> = operands.iter().map(|vr| vr.key_id()).collect();
        let keys = key_ids.iter().flat_map(|id| {
            [KeyKind::Bootstrapping, KeyKind::KeySwitching]
                .into_iter()
                .filter_map(|kind| VrNumber::key(*id, kind).ok())
        });
        for vr in operands.iter().copied().chain(keys) {
            // A sample that came with the run takes the place of the stored one.
            if staged.iter().any(|sample| sample.vr == vr) {
                continue;
            }
            if let Some(register) = table.get(vr) {
                self.hold(vr, register);
            }
        }
        Ok(())
    }

    /// Takes in a sample that came with the run.
    fn stage(&mut self, sample: StagedSample, noise: Noise) -> Result<(), EngineError> {
        let page = self.engine.memory.create(&mut self.io, &sample.bytes)?;
        let value = Value {
            params: sample.params,
            noise,
            encoding: sample.attributes.encoding,
        };
        let staged = Working {
            page,
            value,
            fingerprint: fingerprint(&sample.bytes),
            written: true,
            computed: sample.attributes.computed,
        };
        if let Some(old) = self.registers.insert(sample.vr, staged) {
            self.engine.memory.release(old.page);
        }
        Ok(())
    }

    fn hold(&mut self, vr: VrNumber, register: &Register) {
        match &register.content {
            Content::Program(_) => {}
            Content::TestVector { bytes, output } => {
                let test_vector = TestVector {
                    bytes: Arc::clone(bytes),
                    input: register.encoding,
                    output: *output,
                };
                self.test_vectors.insert(vr, test_vector);
            }
            Content::Key(key) => {
                self.keys.insert(vr, Arc::clone(key));
            }
            Content::Sample {
                page,
                noise,
                fingerprint,
            } => {
                self.engine.memory.retain(*page);
                let value = Value {
                    params: register.params,
                    noise: noise.clone(),
                    encoding: register.encoding,
                };
                self.registers.insert(
                    vr,
                    Working {
                        page: *page,
                        value,
                        fingerprint: *fingerprint,
                        written: false,
                        computed: register.computed,
                    },
                );
            }
        }
    }

    /// Makes the run one on columns, which stand in these registers.
    pub(crate) fn set_columns(&mut self, columns: BTreeSet<VrNumber>) {
        self.columns = Some(columns);
    }

    /// The single samples that the program finds, with their fingerprints and what is known of them.
    pub(crate) fn samples(
        &self,
    ) -> impl Iterator<Item = (VrNumber, u64, &Noise, Option<Encoding>)> {
        self.registers.iter().map(|(vr, working)| {
            let value = &working.value;
            (*vr, working.fingerprint, &value.noise, value.encoding)
        })
    }

    /// The parameter sets of these samples.
    pub(crate) fn sets(&self) -> impl Iterator<Item = (VrNumber, &'static ParamSet)> {
        let registers = self.registers.iter();
        registers.map(|(vr, working)| (*vr, working.value.params))
    }

    /// The words of a test vector.
    pub(crate) fn function(&self, tv: VrNumber) -> Result<&[u8], EngineError> {
        let function = self.test_vectors.get(&tv);
        function
            .map(|function| &*function.bytes)
            .ok_or(EngineError::NoSuchRegister { vr: tv })
    }

    /// The encodings of a test vector's input and output, as far as they are stated.
    pub(crate) fn encodings(&self, tv: VrNumber) -> (Option<Encoding>, Option<Encoding>) {
        let function = self.test_vectors.get(&tv);
        function.map_or((None, None), |function| (function.input, function.output))
    }

    /// The words of a single sample.
    pub(crate) fn sample(&mut self, vr: VrNumber) -> Result<Vec<u8>, EngineError> {
        Ok(self.read(vr)?.0)
    }

    fn working(&self, vr: VrNumber) -> Result<&Working, EngineError> {
        self.registers
            .get(&vr)
            .ok_or(EngineError::NoSuchRegister { vr })
    }

    /// The sample in a register, copied to the processor's cache memory.
    fn read(&mut self, vr: VrNumber) -> Result<(Vec<u8>, Value), EngineError> {
        let working = self.working(vr)?;
        let (page, value) = (working.page, working.value.clone());
        let bytes = self
            .engine
            .memory
            .read(&mut self.io, page, value.params.lwe_bytes())?;
        Ok((bytes, value))
    }

    fn write(&mut self, vr: VrNumber, bytes: &[u8], value: Value) -> Result<(), EngineError> {
        let page = match self.registers.get(&vr) {
            Some(working) => self
                .engine
                .memory
                .replace(&mut self.io, working.page, bytes)?,
            None => self.engine.memory.create(&mut self.io, bytes)?,
        };
        self.registers.insert(
            vr,
            Working {
                page,
                value,
                fingerprint: fingerprint(bytes),
                written: true,
                computed: true,
            },
        );
        Ok(())
    }

    /// A key of the key id of `n`.
    pub(crate) fn key(
        &self,
        n: VrNumber,
        kind: KeyKind,
    ) -> Result<Arc<dyn LoadedKey>, EngineError> {
        let vr =
            VrNumber::key(n.key_id(), kind).map_err(|_| EngineError::NoSuchRegister { vr: n })?;
        self.keys
            .get(&vr)
            .map(Arc::clone)
            .ok_or(EngineError::NoSuchRegister { vr })
    }

    /// The Bootstraps that these instructions begin with, up to [`MAX_FUSED_BOOTSTRAPS`], as test vectors and registers, as
    /// far as they have the same effect done at once: the registers are distinct and hold the very same sample. Wide functions of
    /// one sample have one input width, too: they share the bits that are extracted.
    fn bootstraps_of_one_sample(&self, instructions: &[Instruction]) -> Vec<(VrNumber, VrNumber)> {
        let mut run: Vec<(VrNumber, VrNumber)> = Vec::new();
        let mut page = None;
        for instruction in instructions.iter().take(MAX_FUSED_BOOTSTRAPS) {
            let Instruction::Bootstrap { tv, n } = *instruction else {
                break;
            };
            let held = self.registers.get(&n).map(|working| working.page);
            let width = self.input_bits_to_extract(tv, n);
            let alike = match run.first() {
                None => true,
                // A page is one sample of one parameter set; the key id says which keys.
                Some((function, first)) => {
                    held == page
                        && n.key_id() == first.key_id()
                        && width == self.input_bits_to_extract(*function, n)
                        && run.iter().all(|(_, other)| *other != n)
                }
            };
            if !alike {
                break;
            }
            page = held;
            run.push((tv, n));
        }
        run
    }

    /// Bits that a wide function of the sample in `n` reads; none for other functions, which extract none.
    fn input_bits_to_extract(&self, tv: VrNumber, n: VrNumber) -> Option<u32> {
        let params = self.registers.get(&n)?.value.params;
        let input = function_input(params, self.test_vectors.get(&tv)?.input)?;
        params.is_wide().then(|| input.bits())
    }

    /// Executes Bootstraps that [`Transaction::bootstraps_of_one_sample`] gave, in one call of the back end. `done` is called
    /// with each as its result is written.
    fn bootstrap(
        &mut self,
        run: &[(VrNumber, VrNumber)],
        requester: Requester<'_>,
        mut done: impl FnMut(Instruction, &PageIo),
    ) -> Result<(), EngineError> {
        let Some((_, n)) = run.first().copied() else {
            return Ok(());
        };
        let test_vectors = run
            .iter()
            .map(|(tv, _)| {
                self.test_vectors
                    .get(tv)
                    .cloned()
                    .ok_or(EngineError::NoSuchRegister { vr: *tv })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let functions: Vec<&[u8]> = test_vectors.iter().map(|tv| &*tv.bytes).collect();
        let bootstrapping = self.key(n, KeyKind::Bootstrapping)?;
        let key_switching = self.key(n, KeyKind::KeySwitching)?;
        let (bytes, Value { params, noise, .. }) = self.read(n)?;
        let input = fingerprint(&bytes);
        let backend = &*self.engine.backend;
        let inputs: Vec<Option<Encoding>> = test_vectors
            .iter()
            .map(|tv| function_input(params, tv.input))
            .collect();
        let width = |input: &Option<Encoding>| input.map_or(0, Encoding::bits);
        let task = BootstrapTask {
            test_vectors: &functions,
            sample: &bytes,
            // Of wide functions all have the same.
            input_bits: inputs.first().map_or(0, width),
        };
        let results = backend
            .bootstrap(params, &*bootstrapping, &*key_switching, task, requester)
            .map_err(|source| match source {
                BackendError::Cancelled => EngineError::Cancelled,
                source => EngineError::Backend { vr: n, source },
            })?;
        let results = results.chunks_exact(params.lwe_bytes());
        let functions = test_vectors.iter().zip(&inputs);
        for (((tv, n), (test_vector, function)), result) in run.iter().zip(functions).zip(results) {
            let bits = width(function);
            let value = Value {
                params,
                noise: noise.bootstrapped(params, bits, backend.arithmetic(), input),
                encoding: test_vector.output.or(*function),
            };
            self.write(*n, result, value)?;
            done(Instruction::Bootstrap { tv: *tv, n: *n }, &self.io);
        }
        Ok(())
    }

    /// Executes an instruction other than Return and Bootstrap.
    fn step(&mut self, instruction: Instruction) -> Result<(), EngineError> {
        let backend = &*self.engine.backend;
        match instruction {
            Instruction::Return { .. } | Instruction::Bootstrap { .. } => {
                Err(EngineError::Execution {
                    vr: self.program,
                    what: "has an instruction that is not a step of its own",
                })
            }
            Instruction::Move { dst, src } => {
                let source = self.working(src)?;
                let (page, value, fingerprint) =
                    (source.page, source.value.clone(), source.fingerprint);
                // Both registers hold the page until one of them is written.
                self.engine.memory.retain(page);
                let moved = Working {
                    page,
                    value,
                    fingerprint,
                    written: true,
                    computed: true,
                };
                if let Some(old) = self.registers.insert(dst, moved) {
                    self.engine.memory.release(old.page);
                }
                Ok(())
            }
            Instruction::Push { n } => {
                let slots = self.engine.config.stack_slots;
                if self.stack.len() >= slots {
                    return Err(EngineError::StackOverflow {
                        vr: self.program,
                        slots,
                    });
                }
                let sample = self.read(n)?;
                self.stack.push(sample);
                Ok(())
            }
            Instruction::Pop { n } => {
                let (bytes, value) = self.stack.pop().ok_or(EngineError::Execution {
                    vr: self.program,
                    what: "pops from an empty stack",
                })?;
                self.write(n, &bytes, value)
            }
            Instruction::HomAdd { dst, src } => {
                let (addend, other) = self.read(src)?;
                let (mut bytes, value) = self.read(dst)?;
                backend.hom_add(value.params, &mut bytes, &addend);
                self.write(dst, &bytes, value.combined(&other, 1.0))
            }
            Instruction::HomSub { dst, src } => {
                let (subtrahend, other) = self.read(src)?;
                let (mut bytes, value) = self.read(dst)?;
                backend.hom_sub(value.params, &mut bytes, &subtrahend);
                self.write(dst, &bytes, value.combined(&other, -1.0))
            }
            Instruction::HomIntMult { n, v } => {
                let (mut bytes, mut value) = self.read(n)?;
                backend.hom_int_mult(value.params, &mut bytes, v);
                value.noise = value.noise.times(f64::from(v));
                self.write(n, &bytes, value)
            }
            Instruction::HomIntAdd { n, v } => {
                let (mut bytes, value) = self.read(n)?;
                let summand = constant(value.params, value.encoding, v);
                backend.hom_add(value.params, &mut bytes, &summand);
                self.write(n, &bytes, value)
            }
            // The sum of a single row is that row.
            Instruction::HomSum { n, .. } => self.step(Instruction::Move { dst: n, src: n }),
            Instruction::Lower { .. } | Instruction::Upper { .. } | Instruction::Join { .. } => {
                Err(EngineError::Execution {
                    vr: self.program,
                    what: "moves rows of a column, which a run on single samples does not have",
                })
            }
        }
    }

    /// Makes every write appear, but for registers that were stored, removed or cleared meanwhile.
    fn commit(mut self) {
        let engine = self.engine;
        let mut table = engine.table();
        let begun = self.begun.unwrap_or_default();
        for (vr, working) in std::mem::take(&mut self.registers) {
            let untouched = !table.touched_since(vr, begun)
                && table
                    .check_params((vr, Origin::Write), working.value.params)
                    .is_ok();
            if !working.written || !untouched {
                engine.memory.release(working.page);
                continue;
            }
            let register = Register {
                params: working.value.params,
                bytes: working.value.params.lwe_bytes() as u64,
                encoding: working.value.encoding,
                computed: working.computed,
                content: Content::Sample {
                    page: working.page,
                    noise: working.value.noise,
                    fingerprint: working.fingerprint,
                },
                imprint: None,
                reservation: None,
            };
            table.write(&engine.memory, vr, register);
        }
        for (vr, tag) in std::mem::take(&mut self.staged_tags) {
            // A bootstrapping key of another client may have come meanwhile.
            if table.check_key_tag((vr, Origin::Write), Some(tag)).is_ok() {
                table.claim(&engine.memory, vr, Some(tag));
            }
        }
    }
}
