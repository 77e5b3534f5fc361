//! A running design: its ports, its clock, its waveforms.

use std::ffi::CString;
use std::path::Path;

use crate::model::{Instance, Model, Port};

/// The name of the clock.
const CLOCK: &str = "clk_i";
/// The name of the reset, active low.
const RESET: &str = "rst_ni";

/// What can be wrong with a simulation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimulationError {
    /// The design has no port of this name.
    #[error("{top} has no port {name}; there are {ports}")]
    NoPort {
        /// The module on top.
        top: String,
        /// The name asked for.
        name: String,
        /// The names that there are.
        ports: String,
    },
    /// A port has not the width or direction that is needed.
    #[error("port {name} of {top}: expected {expected}, found {found}")]
    PortForm {
        /// The module on top.
        top: String,
        /// The port.
        name: String,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The design stopped: an assertion, `$fatal`, `$finish`, a file that lacks, or logic that does not settle.
    #[error("{top} stopped in cycle {cycle}: {message}")]
    Stopped {
        /// The module on top.
        top: String,
        /// The clock cycle.
        cycle: u64,
        /// What it said.
        message: String,
    },
    /// A check of this crate failed, for example of a stream's protocol.
    #[error("cycle {cycle}: {message}")]
    Protocol {
        /// The clock cycle.
        cycle: u64,
        /// What was expected and what was found.
        message: String,
    },
    /// What was waited for did not happen.
    #[error("{what} did not happen within {cycles} cycles")]
    Timeout {
        /// What.
        what: String,
        /// How long it was waited for.
        cycles: u64,
    },
    /// The model was made without an option that this needs.
    #[error("the model was made without the option {0}")]
    Option(&'static str),
    /// Waveforms cannot be written.
    #[error("cannot write waveforms to {0}")]
    Trace(String),
    /// There is no memory for the design.
    #[error("there is no memory for the simulation")]
    Memory,
}

/// Something that plays a part around a design: it drives inputs and takes outputs in every cycle.
///
/// [`Simulation::cycle`] calls the three in this order, each for all agents.
pub trait Agent {
    /// Sets inputs, by what was sampled in earlier cycles and by nothing that the design shows in this one.
    fn drive(&mut self, simulation: &mut Simulation);

    /// With all inputs set and the design settled, tries what may not matter: may change inputs of its own and settle
    /// again, and leaves them as it found them.
    ///
    /// # Errors
    /// If it did matter, or the design stopped.
    fn probe(&mut self, simulation: &mut Simulation) -> Result<(), SimulationError> {
        let _ = simulation;
        Ok(())
    }

    /// Sees what the coming clock edge sees.
    ///
    /// # Errors
    /// If the design breaks a protocol.
    fn sample(&mut self, simulation: &Simulation) -> Result<(), SimulationError>;
}

/// A running copy of a model.
///
/// A clock cycle begins with the falling edge: inputs are set, [`settle`](Simulation::settle) lets combinational logic
/// follow them, [`tick`](Simulation::tick) settles if need be and gives the rising edge. Behind it, outputs show the new
/// state of registers, with the inputs as they were.
pub struct Simulation {
    instance: Instance,
    model: Model,
    clock: Option<Port>,
    reset: Option<Port>,
    /// Whether inputs changed since the design settled with the clock low.
    is_dirty: bool,
    is_tracing: bool,
    cycles: u64,
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation")
            .field("model", &self.model)
            .field("cycles", &self.cycles)
            .finish_non_exhaustive()
    }
}

impl Model {
    /// A simulation whose registers and memories are 0, as is every input.
    ///
    /// # Errors
    /// If an `initial` block of the design stops it, for example because a file lacks.
    pub fn start(&self) -> Result<Simulation, SimulationError> {
        Simulation::start(self, None)
    }

    /// A simulation whose registers and memories have contents that a seed repeats; made with [`Options::random_start`](crate::model::Options).
    ///
    /// # Errors
    /// If the model was made without that option, or an `initial` block of the design stops it.
    pub fn start_random(&self, seed: u32) -> Result<Simulation, SimulationError> {
        if !self.options().random_start {
            return Err(SimulationError::Option("random_start"));
        }
        // The run-time takes 0 for a seed of its own choice.
        Simulation::start(self, Some(seed.max(1)))
    }
}

impl Simulation {
    pub(crate) fn start(model: &Model, seed: Option<u32>) -> Result<Simulation, SimulationError> {
        let instance =
            Instance::new(model.compiled().clone(), seed).ok_or(SimulationError::Memory)?;
        let mut simulation = Simulation {
            clock: None,
            reset: None,
            instance,
            model: model.clone(),
            is_dirty: true,
            is_tracing: false,
            cycles: 0,
        };
        simulation.clock = simulation.find(CLOCK);
        simulation.reset = simulation.find(RESET);
        if let Some(reset) = simulation.reset {
            simulation.set(reset, 1);
        }
        // Initial blocks run here; waveforms may be asked for after it, as the run-time allows it until the first dump.
        simulation.settle()?;
        Ok(simulation)
    }

    fn find(&self, name: &str) -> Option<Port> {
        let mut ports = self.instance.compiled().ports().iter();
        ports.find(|(port, _)| port == name).map(|(_, port)| *port)
    }

    /// The model that this is a copy of.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Whether there is a port of this name.
    pub fn has_port(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// The port of this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn port(&self, name: &str) -> Result<Port, SimulationError> {
        self.find(name).ok_or_else(|| {
            let names: Vec<&str> = self.model.ports().iter().map(|(name, _)| &**name).collect();
            SimulationError::NoPort {
                top: self.model.top().to_owned(),
                name: name.to_owned(),
                ports: names.join(", "),
            }
        })
    }

    /// An input of this name and width.
    ///
    /// # Errors
    /// If there is none.
    pub fn input(&self, name: &str, bits: u32) -> Result<Port, SimulationError> {
        self.port_of(name, bits, false)
    }

    /// An output of this name and width.
    ///
    /// # Errors
    /// If there is none.
    pub fn output(&self, name: &str, bits: u32) -> Result<Port, SimulationError> {
        self.port_of(name, bits, true)
    }

    fn port_of(&self, name: &str, bits: u32, is_output: bool) -> Result<Port, SimulationError> {
        let port = self.port(name)?;
        let form = |bits: u32, is_output: bool| {
            let direction = if is_output { "output" } else { "input" };
            format!("an {direction} of {bits} bits")
        };
        if port.bits() != bits || port.is_output() != is_output {
            return Err(SimulationError::PortForm {
                top: self.model.top().to_owned(),
                name: name.to_owned(),
                expected: form(bits, is_output),
                found: form(port.bits(), port.is_output()),
            });
        }
        Ok(port)
    }

    /// The value of a port; of one of more than 64 bits the lowest 64.
    ///
    /// # Panics
    /// If the port belongs to another model.
    #[inline]
    pub fn get(&self, port: Port) -> u64 {
        self.instance.get(port)
    }

    /// Sets a port; of one of more than 64 bits the lowest 64, the others to 0. Bits above its width are dropped.
    ///
    /// # Panics
    /// If the port belongs to another model.
    #[inline]
    pub fn set(&mut self, port: Port, value: u64) {
        self.is_dirty = true;
        self.instance.set(port, value);
    }

    /// The words of a port of more than 64 bits, lowest first.
    ///
    /// # Panics
    /// If the port has fewer bits, or belongs to another model.
    #[inline]
    pub fn words(&self, port: Port) -> &[u32] {
        self.instance.words(port)
    }

    /// The words of a port of more than 64 bits, lowest first, to be changed. Bits above its width must stay 0.
    ///
    /// # Panics
    /// If the port has fewer bits, or belongs to another model.
    #[inline]
    pub fn words_mut(&mut self, port: Port) -> &mut [u32] {
        self.is_dirty = true;
        self.instance.words_mut(port)
    }

    /// The value of a port of any width as bytes, lowest first, into `bytes`: those beyond the port's width become 0.
    pub fn read_bytes(&self, port: Port, bytes: &mut [u8]) {
        if port.is_wide() {
            let words = self.instance.words(port);
            let mut chunks = bytes.chunks_mut(4);
            for (chunk, word) in chunks.by_ref().zip(words) {
                chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
            }
            chunks.for_each(|chunk| chunk.fill(0));
        } else {
            let value = self.instance.get(port).to_le_bytes();
            for (i, byte) in bytes.iter_mut().enumerate() {
                *byte = value.get(i).copied().unwrap_or(0);
            }
        }
    }

    /// Sets a port of any width from bytes, lowest first: those that lack are 0, those beyond its width are dropped.
    pub fn write_bytes(&mut self, port: Port, bytes: &[u8]) {
        self.is_dirty = true;
        let word = |chunk: &[u8]| {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            u32::from_le_bytes(word)
        };
        if port.is_wide() {
            let mut chunks = bytes.chunks(4);
            let words = self.instance.words_mut(port);
            for to in words.iter_mut() {
                *to = chunks.next().map_or(0, word);
            }
            let excess = words.len() as u32 * 32 - port.bits();
            if let Some(last) = words.last_mut() {
                *last &= u32::MAX >> excess;
            }
        } else {
            let mut value = [0; 8];
            let length = bytes.len().min(8);
            value[..length].copy_from_slice(&bytes[..length]);
            self.instance.set(port, u64::from_le_bytes(value));
        }
    }

    /// Up to 64 bits of a port from bit `offset` on; 0 for those beyond its width.
    pub fn get_bits(&self, port: Port, offset: u32, bits: u32) -> u64 {
        let mask = u64::MAX.checked_shr(64 - bits.min(64)).unwrap_or(0);
        if !port.is_wide() {
            return self.instance.get(port).checked_shr(offset).unwrap_or(0) & mask;
        }
        let words = self.instance.words(port);
        let word = |i: u32| u128::from(words.get(i as usize).copied().unwrap_or(0));
        let first = offset / 32;
        let value = word(first) | word(first + 1) << 32 | word(first + 2) << 64;
        (value >> (offset % 32)) as u64 & mask
    }

    /// Sets up to 64 bits of a port from bit `offset` on, the others stay; bits beyond its width are dropped.
    pub fn set_bits(&mut self, port: Port, offset: u32, bits: u32, value: u64) {
        self.is_dirty = true;
        let mask = u64::MAX.checked_shr(64 - bits.min(64)).unwrap_or(0);
        let value = value & mask;
        if !port.is_wide() {
            let mask = mask.checked_shl(offset).unwrap_or(0);
            let kept = self.instance.get(port) & !mask;
            let new = value.checked_shl(offset).unwrap_or(0);
            self.instance.set(port, kept | new);
            return;
        }
        let end = port.bits();
        let words = self.instance.words_mut(port);
        let mut mask = u128::from(mask) << (offset % 32);
        let mut value = u128::from(value) << (offset % 32);
        for i in offset / 32.. {
            if mask == 0 || i * 32 >= end {
                return;
            }
            let inside = u32::MAX >> 32u32.saturating_sub(end - i * 32);
            let word = &mut words[i as usize];
            let changed = mask as u32 & inside;
            *word = *word & !changed | value as u32 & changed;
            mask >>= 32;
            value >>= 32;
        }
    }

    fn stopped(&self) -> SimulationError {
        let log = self.instance.log();
        let message = log.trim();
        SimulationError::Stopped {
            top: self.model.top().to_owned(),
            cycle: self.cycles,
            message: if message.is_empty() {
                "it gave no reason"
            } else {
                message
            }
            .to_owned(),
        }
    }

    #[inline]
    fn evaluate(&mut self, time: u64) -> Result<(), SimulationError> {
        if !self.instance.eval() {
            return Err(self.stopped());
        }
        if self.is_tracing {
            self.instance.dump(time);
        }
        Ok(())
    }

    /// Lets combinational logic follow the inputs, with the clock low.
    ///
    /// # Errors
    /// If the design stops.
    #[inline]
    pub fn settle(&mut self) -> Result<(), SimulationError> {
        if let Some(clock) = self.clock {
            self.instance.set(clock, 0);
        }
        self.evaluate(2 * self.cycles)?;
        self.is_dirty = false;
        Ok(())
    }

    /// One clock cycle.
    ///
    /// # Errors
    /// If the design stops, or has no `clk_i`.
    #[inline]
    pub fn tick(&mut self) -> Result<(), SimulationError> {
        if self.is_dirty {
            self.settle()?;
        }
        let Some(clock) = self.clock else {
            return Err(self.port(CLOCK).err().unwrap_or(SimulationError::Memory));
        };
        self.instance.set(clock, 1);
        self.evaluate(2 * self.cycles + 1)?;
        self.cycles += 1;
        // The next cycle needs its falling edge, whether inputs change or not.
        self.is_dirty = true;
        Ok(())
    }

    /// Some clock cycles.
    ///
    /// # Errors
    /// If the design stops, or has no `clk_i`.
    pub fn ticks(&mut self, cycles: u64) -> Result<(), SimulationError> {
        (0..cycles).try_for_each(|_| self.tick())
    }

    /// One clock cycle with agents around the design.
    ///
    /// # Errors
    /// If the design stops or breaks a protocol.
    pub fn cycle(&mut self, agents: &mut [&mut dyn Agent]) -> Result<(), SimulationError> {
        for agent in agents.iter_mut() {
            agent.drive(self);
        }
        self.settle()?;
        for agent in agents.iter_mut() {
            agent.probe(self)?;
        }
        if self.is_dirty {
            self.settle()?;
        }
        for agent in agents.iter_mut() {
            agent.sample(self)?;
        }
        self.tick()
    }

    /// Holds `rst_ni` low for some clock cycles. A design without it just runs.
    ///
    /// # Errors
    /// If the design stops, or has no `clk_i`.
    pub fn reset(&mut self, cycles: u64) -> Result<(), SimulationError> {
        if let Some(reset) = self.reset {
            self.set(reset, 0);
        }
        self.ticks(cycles)?;
        if let Some(reset) = self.reset {
            self.set(reset, 1);
        }
        Ok(())
    }

    /// Clock cycles since the start, those of resets among them.
    #[inline]
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    /// What the design printed so far, up to 1 MiB.
    pub fn printed(&self) -> String {
        self.instance.log()
    }

    /// Writes waveforms (VCD) to a file from now on: a clock cycle takes two units of time.
    ///
    /// # Errors
    /// If the model was made without [`Options::trace`](crate::model::Options), or the file cannot be written.
    pub fn trace_to(&mut self, path: &Path) -> Result<(), SimulationError> {
        if !self.model.options().trace {
            return Err(SimulationError::Option("trace"));
        }
        let shown = path.display().to_string();
        let opened = match CString::new(path.as_os_str().as_encoded_bytes()) {
            Ok(path) => self.instance.trace(&path),
            Err(_) => false,
        };
        if !opened {
            return Err(SimulationError::Trace(shown));
        }
        self.is_tracing = true;
        Ok(())
    }
}
