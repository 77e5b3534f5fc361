//! The engine as a back end: programs run in simulation, bit for bit as on the integer arithmetic.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use toroid_engine::Requester;
use toroid_engine::backend::{
    Backend, BackendError, BootstrapTask, KeySink, LoadedKey, loaded, results_of_tasks,
};
use toroid_isa::KeyKind;
use toroid_ring::goldilocks;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::seeded::KeyForm;

use super::layout::{self, BootstrappingKey};
use super::{Command, Engine, EngineError, Form, Shape};
use toroid_sim::memory::Timing;
use toroid_sim::model::{Model, Options};
use toroid_task::Progress;

/// Instructions of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// How many were run.
    pub count: u64,
    /// Cycles of all of them, as the engine counts.
    pub cycles: u64,
}

/// What the engine ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RtlStatistics {
    /// Bootstraps.
    pub bootstrap: Counted,
    /// Sums.
    pub hom_add: Counted,
    /// Differences.
    pub hom_sub: Counted,
    /// Products with integers.
    pub hom_int_mult: Counted,
}

impl RtlStatistics {
    fn count(&mut self, command: Command, cycles: u64) {
        let kind = match command {
            Command::Bootstrap(..) => &mut self.bootstrap,
            Command::HomAdd(..) => &mut self.hom_add,
            Command::HomSub(..) => &mut self.hom_sub,
            Command::HomIntMult(..) => &mut self.hom_int_mult,
            Command::Return(_) | Command::Move(..) | Command::Push(_) | Command::Pop(_) => return,
        };
        kind.count += 1;
        kind.cycles += cycles;
    }
}

/// Runs instructions on the simulated engine, one at a time.
#[derive(Debug)]
pub struct RtlBackend {
    form: Form,
    log_lanes: u32,
    timing: Timing,
    progress: Progress,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By log2 N.
    models: HashMap<u32, Model>,
    statistics: RtlStatistics,
}

impl RtlBackend {
    /// A back end whose circuits have 2^`log_lanes` banks and half as many butterflies each. Simulators are made at first use.
    #[must_use]
    pub fn new(log_lanes: u32, timing: Timing) -> RtlBackend {
        RtlBackend::of(Form::InPlace, log_lanes, timing)
    }

    /// A back end on an engine with `log_lanes` for its `LOG_LANES` (see [`Shape::of`]).
    #[must_use]
    pub fn of(form: Form, log_lanes: u32, timing: Timing) -> RtlBackend {
        RtlBackend {
            form,
            log_lanes,
            timing,
            progress: Progress::none(),
            state: Mutex::default(),
        }
    }

    /// The same, which reports the making of simulators and the cycles of bootstraps. Its token cancels the former; that of a
    /// requester, the latter.
    #[must_use]
    pub fn with_progress(self, progress: Progress) -> RtlBackend {
        RtlBackend { progress, ..self }
    }

    /// What was run so far.
    #[must_use]
    pub fn rtl_statistics(&self) -> RtlStatistics {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .statistics
    }

    /// Verilates the engine for a parameter set now rather than at first use.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] or [`BackendError::Failed`].
    pub fn prepare(&self, params: &ParamSet) -> Result<(), BackendError> {
        self.model(params).map(drop)
    }

    fn model(&self, params: &ParamSet) -> Result<(Model, Shape), BackendError> {
        let shape = Shape::of(self.form, params, self.log_lanes)?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = state.models.get(&shape.log_n()) {
            return Ok((model.clone(), shape));
        }
        let model = Model::build_with(&super::design(shape)?, &Options::default(), &self.progress)
            .map_err(EngineError::from)?;
        state.models.insert(shape.log_n(), model.clone());
        Ok((model, shape))
    }

    fn count(&self, command: Command, cycles: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.statistics.count(command, cycles);
    }

    /// Runs an instruction on the sample in register 0, with `other` in register 1.
    fn linear(&self, params: &ParamSet, command: Command, dst: &mut [u8], other: Option<&[u8]>) {
        let run = || -> Result<(Vec<u8>, u64), BackendError> {
            let (model, shape) = self.model(params)?;
            let mut simulation = model.start().map_err(EngineError::from)?;
            let mut engine = Engine::new(&mut simulation, shape, self.timing, 0.0, 0)?;
            engine.set_register(0, dst)?;
            if let Some(other) = other {
                engine.set_register(1, other)?;
            }
            let cycles = engine.run(command, &Progress::none())?;
            Ok((engine.register(0)?, cycles))
        };
        // The trait has no way to fail here, and the parameter set has been accepted with its keys.
        let (result, cycles) =
            run().unwrap_or_else(|error| panic!("the simulated engine failed: {error}"));
        dst.copy_from_slice(&result);
        self.count(command, cycles);
    }
}

impl From<EngineError> for BackendError {
    fn from(error: EngineError) -> BackendError {
        match error {
            EngineError::Cancelled(_) => BackendError::Cancelled,
            EngineError::Model(error) if error.is_cancelled() => BackendError::Cancelled,
            EngineError::Unsupported(reason) => BackendError::Unsupported { reason },
            EngineError::NotCanonical { .. } => BackendError::MalformedKey {
                reason: error.to_string(),
            },
            _ => BackendError::Failed {
                reason: error.to_string(),
            },
        }
    }
}

fn no_ring() -> BackendError {
    BackendError::Unsupported {
        reason: "the engine in hardware does not compute on ring columns".to_owned(),
    }
}

impl Backend for RtlBackend {
    fn name(&self) -> &'static str {
        "rtl"
    }

    fn arithmetic(&self) -> ArithmeticKind {
        ArithmeticKind::Ntt
    }

    fn begin_key(
        &self,
        params: &ParamSet,
        kind: KeyKind,
        form: KeyForm,
    ) -> Result<Box<dyn KeySink>, BackendError> {
        // Whatever keeps the simulator from being made shows here, where it can be told, and not in a linear instruction.
        let (_, shape) = self.model(params)?;
        let total = match kind {
            KeyKind::Bootstrapping => form.bootstrapping_key_bytes(params),
            KeyKind::KeySwitching => form.key_switching_key_bytes(params),
            KeyKind::Ring | KeyKind::Conversion => return Err(no_ring()),
        };
        // Expanded bootstrapping keys are laid out row by row; the others are small, and taken whole.
        let key = (kind == KeyKind::Bootstrapping && form == KeyForm::Expanded)
            .then(|| BootstrappingKey::new(shape));
        Ok(Box::new(Loading {
            shape,
            kind,
            form,
            total,
            taken: 0,
            rows: 0,
            key,
            bytes: Vec::new(),
        }))
    }

    fn bootstrap_batch(
        &self,
        params: &ParamSet,
        bootstrapping: &dyn LoadedKey,
        key_switching: &dyn LoadedKey,
        tasks: &[BootstrapTask<'_>],
        results: &mut [u8],
        requester: Requester<'_>,
    ) -> Result<(), BackendError> {
        let tasks = results_of_tasks(params, tasks, results)?;
        let (bootstrapping, key_switching) = (key_words(bootstrapping)?, key_words(key_switching)?);
        let (model, shape) = self.model(params)?;
        let progress = self.progress.clone().with_cancel(requester.cancel.clone());
        let command = Command::Bootstrap(0, 0);
        for (task, results) in tasks {
            let results = results.chunks_exact_mut(params.lwe_bytes());
            for (test_vector, result) in task.test_vectors.iter().zip(results) {
                let mut simulation = model.start().map_err(EngineError::from)?;
                let mut engine = Engine::new(&mut simulation, shape, self.timing, 0.0, 0)?;
                engine.set_keys(bootstrapping.clone(), key_switching.clone())?;
                engine.set_test_vector(0, test_vector)?;
                engine.set_register(0, task.sample)?;
                let cycles = engine.run(command, &progress)?;
                result.copy_from_slice(&engine.register(0)?);
                self.count(command, cycles);
            }
        }
        Ok(())
    }

    /// One: the engine runs instructions one at a time.
    fn batch_hint(&self, _: &ParamSet) -> usize {
        1
    }

    fn hom_add(&self, params: &ParamSet, dst: &mut [u8], src: &[u8]) {
        self.linear(params, Command::HomAdd(0, 1), dst, Some(src));
    }

    fn hom_sub(&self, params: &ParamSet, dst: &mut [u8], src: &[u8]) {
        self.linear(params, Command::HomSub(0, 1), dst, Some(src));
    }

    fn hom_int_mult(&self, params: &ParamSet, dst: &mut [u8], v: i32) {
        self.linear(params, Command::HomIntMult(0, v), dst, None);
    }
}

/// A key as main memory holds it.
#[derive(Debug)]
struct Laid {
    shape: Shape,
    kind: KeyKind,
    words: Arc<Vec<u64>>,
}

impl LoadedKey for Laid {
    fn params(&self) -> &ParamSet {
        &self.shape.params
    }

    fn kind(&self) -> KeyKind {
        self.kind
    }

    fn bytes(&self) -> u64 {
        8 * self.words.len() as u64
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The words of a key that an [`RtlBackend`] loaded, as [`Engine::set_keys`] takes them.
///
/// # Errors
/// [`BackendError::Failed`] for a key of another back end.
pub fn key_words(key: &dyn LoadedKey) -> Result<&Arc<Vec<u64>>, BackendError> {
    loaded::<Laid>(key).map(|key| &key.words)
}

/// A key that is coming.
#[derive(Debug)]
struct Loading {
    shape: Shape,
    kind: KeyKind,
    form: KeyForm,
    total: u64,
    taken: u64,
    /// Rows that were laid out.
    rows: usize,
    key: Option<BootstrappingKey>,
    /// What was taken and is not laid out.
    bytes: Vec<u8>,
}

impl Loading {
    fn wrong_length(&self, found: u64) -> BackendError {
        BackendError::MalformedKey {
            reason: format!(
                "expected {} bytes of a key of the set {}, found {found}",
                self.total, self.shape.params.name
            ),
        }
    }
}

impl KeySink for Loading {
    fn write(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        let end = self.taken + bytes.len() as u64;
        if end > self.total {
            return Err(self.wrong_length(end));
        }
        self.taken = end;
        self.bytes.extend_from_slice(bytes);
        let Some(key) = &mut self.key else {
            return Ok(());
        };
        let row_words = self.shape.params.glwe_words();
        let mut rows = self.bytes.chunks_exact(8 * row_words);
        for row in rows.by_ref() {
            let words: Vec<u64> = bytemuck::pod_collect_to_vec(row);
            if let Some(index) = words.iter().position(|word| *word >= goldilocks::P) {
                let index = self.rows * row_words + index;
                return Err(EngineError::NotCanonical { index }.into());
            }
            key.lay(self.rows, &words);
            self.rows += 1;
        }
        self.bytes = rows.remainder().to_vec();
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Arc<dyn LoadedKey>, BackendError> {
        if self.taken != self.total {
            return Err(self.wrong_length(self.taken));
        }
        let params = &self.shape.params;
        let words = match (self.kind, self.form, self.key) {
            (_, _, Some(key)) => key.words,
            (KeyKind::Bootstrapping, _, None) => {
                BootstrappingKey::expand(self.shape, self.form, &self.bytes)?.words
            }
            (KeyKind::KeySwitching, KeyForm::Expanded, None) => layout::switching_key_to_memory(
                self.shape,
                &bytemuck::pod_collect_to_vec::<u8, u32>(&self.bytes),
            ),
            (KeyKind::KeySwitching, KeyForm::Seeded | KeyForm::SeededWords, None) => {
                layout::switching_key_to_memory(
                    self.shape,
                    &layout::expand_switching_key(params, &self.bytes),
                )
            }
            (KeyKind::Ring | KeyKind::Conversion, _, None) => return Err(no_ring()),
        };
        Ok(Arc::new(Laid {
            shape: self.shape,
            kind: self.kind,
            words: Arc::new(words),
        }))
    }
}
