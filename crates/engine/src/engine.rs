//! The engine: memory areas, back end and swap area in one place.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use toroid_isa::{Program, VrNumber};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::noise::Noise;
use toroid_tfhe::params::ParamSet;

use crate::admission::Admission;
use crate::backend::Backend;
use crate::config::EngineConfig;
use crate::error::EngineError;
use crate::paging::{PageIo, PagedMemory, PagingStatistics};
use crate::register::RegisterInfo;
use crate::swap::{PagingContext, Swap};
use crate::table::{Content, Table, info};

/// An LWE sample read from its register.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its parameter set.
    pub params: &'static ParamSet,
    /// The n mask words and the body, little-endian.
    pub bytes: Vec<u8>,
    /// Encoding of its message; `None`: unknown, or a Boolean gate's.
    pub encoding: Option<Encoding>,
    /// Whether a program wrote it.
    pub computed: bool,
    /// Its noise and failure probability.
    pub noise: Noise,
}

/// The secure computing engine. All methods may be called from any thread at any time. Programs run side by side where the
/// outcome is the same as one by one.
pub struct Engine {
    pub(crate) config: EngineConfig,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) memory: PagedMemory,
    /// Lock order: this one before the one inside `memory`.
    table: Mutex<Table>,
    pub(crate) admission: Admission,
    /// Held from the last check of an effect until it has appeared. Lock order: this one before the table's.
    effects: Mutex<()>,
}

impl Engine {
    /// An engine without content.
    pub fn new(config: EngineConfig, backend: Arc<dyn Backend>, swap: Arc<dyn Swap>) -> Engine {
        Engine {
            config,
            backend,
            memory: PagedMemory::new(
                config.paged_bytes,
                config.swap_bytes,
                swap,
                config.replacement,
            ),
            table: Mutex::new(Table::new(config.persistent_bytes)),
            admission: Admission::new(config.runs),
            effects: Mutex::new(()),
        }
    }

    /// Keeps other effects from appearing, so that what was checked stays true.
    pub(crate) fn begin_effect(&self) -> MutexGuard<'_, ()> {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sizes that the engine was made with.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The arithmetic behind the processor.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Removes a register, and the parts of an object for it that is not complete. A running program keeps what it
    /// began with. Says whether the register had content.
    pub fn remove(&self, vr: VrNumber) -> bool {
        self.table().remove(&self.memory, vr)
    }

    /// Drops what has come of objects that no part has come of for `idle` or longer, and gives its memory back. Says of how many.
    pub fn drop_idle_parts(&self, idle: Duration) -> usize {
        self.table().drop_idle(idle)
    }

    /// Removes every register of a key id, which may then be used with another parameter set. Says how many had content.
    pub fn clear_key_id(&self, key_id: u32) -> usize {
        self.table().clear_key_id(&self.memory, key_id)
    }

    /// The parameter set that a key id is in use with.
    pub fn params_of(&self, key_id: u32) -> Option<&'static ParamSet> {
        self.table().params_of(key_id)
    }

    /// Every register with content, in the order of their numbers.
    pub fn list(&self) -> Vec<RegisterInfo> {
        self.table().list(&self.memory)
    }

    /// One register, if it has content.
    pub fn info(&self, vr: VrNumber) -> Option<RegisterInfo> {
        self.table()
            .get(vr)
            .map(|register| info(&self.memory, vr, register))
    }

    /// The program in a register.
    ///
    /// # Errors
    /// [`EngineError::NoSuchRegister`].
    pub fn program(&self, vr: VrNumber) -> Result<Arc<Program>, EngineError> {
        match self.table().get(vr).map(|register| &register.content) {
            Some(Content::Program(program)) => Ok(Arc::clone(program)),
            _ => Err(EngineError::NoSuchRegister { vr }),
        }
    }

    /// The LWE sample in a register.
    ///
    /// # Errors
    /// [`EngineError::NotASample`], [`EngineError::NoSuchRegister`], and whatever fails when it must be paged in.
    pub fn read_sample(&self, context: PagingContext, vr: VrNumber) -> Result<Sample, EngineError> {
        if !vr.ty().is_sample() {
            return Err(EngineError::NotASample { vr });
        }
        let (page, mut sample) = {
            let table = self.table();
            let register = table.get(vr).ok_or(EngineError::NoSuchRegister { vr })?;
            let Content::Sample { page, noise, .. } = &register.content else {
                return Err(EngineError::NotASample { vr });
            };
            // Another command may replace the register while the page comes in.
            self.memory.retain(*page);
            let sample = Sample {
                params: register.params,
                bytes: Vec::new(),
                encoding: register.encoding,
                computed: register.computed,
                noise: noise.clone(),
            };
            (*page, sample)
        };
        let bytes = self
            .memory
            .read(&mut PageIo::new(context), page, sample.params.lwe_bytes());
        self.memory.release(page);
        sample.bytes = bytes?;
        Ok(sample)
    }

    /// How many runs wait for others, and how many are active.
    pub fn runs(&self) -> (usize, usize) {
        self.admission.counts()
    }

    /// Counters and state of the paged area.
    pub fn paging(&self) -> PagingStatistics {
        self.memory.statistics()
    }

    /// Bytes of the persistent area in use, and in all.
    pub fn persistent_bytes(&self) -> (u64, u64) {
        self.table().persistent_bytes()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("config", &self.config)
            .field("backend", &self.backend.name())
            .finish_non_exhaustive()
    }
}
