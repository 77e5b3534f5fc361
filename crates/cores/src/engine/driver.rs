//! An engine in simulation, with its main memory and its command stream.

use std::sync::Arc;

use super::layout::{self, Form, Shape};
use super::{EngineError, formula};
use crate::sources;
use toroid_sim::memory::{AxiMemory, Memory, Shared, Timing};
use toroid_sim::model::Design;
use toroid_sim::simulation::{Simulation, SimulationError};
use toroid_sim::stream::{Beat, Sink, Source};
use toroid_task::Progress;

/// Opcodes of `hw/engine/engine_pkg.sv`.
mod opcode {
    pub const RETURN: u8 = 0;
    pub const MOVE: u8 = 1;
    pub const PUSH: u8 = 2;
    pub const POP: u8 = 3;
    pub const BOOTSTRAP: u8 = 4;
    pub const HOM_ADD: u8 = 5;
    pub const HOM_SUB: u8 = 6;
    pub const HOM_INT_MULT: u8 = 7;
    pub const SET: u8 = 8;
}

/// An instruction of Table 4 on numbered registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Gives register n out.
    Return(u32),
    /// n1 <- n2.
    Move(u32, u32),
    /// Stack <- n.
    Push(u32),
    /// n <- stack.
    Pop(u32),
    /// n <- bootstrap of n with test vector tv, the first argument.
    Bootstrap(u32, u32),
    /// n1 <- n1 + n2.
    HomAdd(u32, u32),
    /// n1 <- n1 - n2.
    HomSub(u32, u32),
    /// n <- n·v.
    HomIntMult(u32, i32),
}

impl Command {
    fn encode(self) -> (u8, u32, u32) {
        match self {
            Command::Return(n) => (opcode::RETURN, n, 0),
            Command::Move(to, from) => (opcode::MOVE, to, from),
            Command::Push(n) => (opcode::PUSH, n, 0),
            Command::Pop(n) => (opcode::POP, n, 0),
            Command::Bootstrap(tv, n) => (opcode::BOOTSTRAP, tv, n),
            Command::HomAdd(to, from) => (opcode::HOM_ADD, to, from),
            Command::HomSub(to, from) => (opcode::HOM_SUB, to, from),
            Command::HomIntMult(n, v) => (opcode::HOM_INT_MULT, n, v.cast_unsigned()),
        }
    }
}

/// Registers, test vectors and samples on the stack that main memory has room for.
const REGISTERS: u32 = 64;
const TEST_VECTORS: u32 = 4;
const STACK: u32 = 64;

/// Where things are in main memory, in beats.
#[derive(Clone, Copy, Debug)]
struct Map {
    registers: u64,
    log2_stride: u32,
    stack: u64,
    vectors: u64,
    key: u64,
    switch: u64,
}

impl Map {
    fn new(shape: Shape) -> Map {
        let log2_stride = shape.lwe_rows().next_power_of_two().trailing_zeros();
        let stack = u64::from(REGISTERS) << log2_stride;
        let vectors = stack + (u64::from(STACK) << log2_stride);
        let key = vectors + u64::from(TEST_VECTORS) * shape.rows() as u64;
        Map {
            registers: 0,
            log2_stride,
            stack,
            vectors,
            key,
            switch: key + shape.key_beats() as u64,
        }
    }
}

/// The design of the engine for a shape.
///
/// # Errors
/// [`EngineError`] for a shape that it is not made for.
pub fn design(shape: Shape) -> Result<Design, EngineError> {
    design_of(shape.form, shape.log_n(), shape.log_core_lanes())
}

/// The design of an engine for N = 2^`log_n` and 2^`log_lanes` lanes, the core's `LOG_LANES`.
///
/// # Errors
/// If the core's sources are not there.
pub fn design_of(form: Form, log_n: u32, log_lanes: u32) -> Result<Design, EngineError> {
    let (top, rom) = match form {
        Form::InPlace => ("engine", crate::ntt_inplace::twiddle_rom(log_n, log_lanes)),
        Form::Streaming => (
            "engine_streaming",
            crate::stream_transform::twiddle_rom(log_n, log_lanes),
        ),
    };
    let rom = rom.map_err(|error| EngineError::Unsupported(error.to_string()))?;
    Ok(sources::design(top)?
        .with("LOG_N", u64::from(log_n))
        .with("LOG_LANES", u64::from(log_lanes))
        .with_file("TWIDDLE_FILE", "twiddles.hex", rom.into_bytes()))
}

/// Words that main memory shows as bytes.
struct Bytes(Arc<Vec<u64>>);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// A running engine.
#[derive(Debug)]
pub struct Engine<'a> {
    shape: Shape,
    map: Map,
    simulation: &'a mut Simulation,
    memory: AxiMemory,
    commands: Source,
    responses: Sink,
    results: Sink,
    /// Beats of results that were not taken.
    returned: Vec<Beat>,
}

impl Engine<'_> {
    /// The engine in `simulation`, after a reset, with empty registers and no keys. `stall` is the probability that a stream around it
    /// stalls in a cycle.
    ///
    /// # Errors
    /// [`EngineError::Simulation`] if the simulation is of another design.
    pub fn new(
        simulation: &mut Simulation,
        shape: Shape,
        timing: Timing,
        stall: f64,
        seed: u64,
    ) -> Result<Engine<'_>, EngineError> {
        let map = Map::new(shape);
        let mut room = Memory::new();
        room.insert(0, vec![0; shape.bytes(map.key)])?;
        let memory = AxiMemory::new(simulation, "m_axi", room, timing, seed)?.interleaved();
        let commands = Source::new(simulation, "cmd", stall, seed ^ 1)?;
        let responses = Sink::new(simulation, "rsp", stall, seed ^ 2)?;
        let results = Sink::new(simulation, "result", stall, seed ^ 3)?;
        let mut engine = Engine {
            shape,
            map,
            simulation,
            memory,
            commands,
            responses,
            results,
            returned: Vec::new(),
        };
        engine.reset()?;
        Ok(engine)
    }

    /// Ends what the engine is doing; main memory keeps its contents.
    ///
    /// # Errors
    /// [`EngineError::Simulation`].
    pub fn reset(&mut self) -> Result<(), EngineError> {
        self.memory.clear();
        self.commands.clear();
        self.responses.clear();
        self.results.clear();
        self.returned.clear();
        self.simulation.reset(4)?;
        self.configure();
        Ok(())
    }

    /// Queues the settings of the parameter set.
    fn configure(&mut self) {
        use toroid_tfhe::params::{ModulusKind, ModulusSwitch};
        let (shape, map) = (self.shape, self.map);
        let params = shape.params;
        let offset = |gadget| layout::digit_offset(params.modulus, gadget);
        let modes = u64::from(params.modulus == ModulusKind::Goldilocks)
            | u64::from(params.modulus_switch == ModulusSwitch::MeanCompensated) << 1;
        let levels = match shape.form {
            Form::InPlace => shape.levels() as u64,
            Form::Streaming => {
                params.gadget.levels as u64 | (shape.body_gadget().levels as u64) << 8
            }
        };
        // In the order of the numbers in `hw/engine/engine_settings.sv`.
        let settings = [
            modes,
            params.lwe_dimension as u64,
            shape.lwe_rows() as u64,
            levels,
            offset(params.gadget),
            params.gadget.log2_base.into(),
            offset(shape.body_gadget()),
            shape.body_gadget().log2_base.into(),
            params.key_switch.levels as u64,
            offset(params.key_switch),
            params.key_switch.log2_base.into(),
            shape.switch_sets() as u64,
            map.key,
            shape.key_beats() as u64,
            map.switch,
            shape.switch_beats() as u64,
            map.vectors,
            map.registers,
            map.log2_stride.into(),
            map.stack,
        ];
        for (number, value) in (0..).zip(settings) {
            self.send(opcode::SET, number, value as u32, (value >> 32) as u32);
        }
    }

    fn send(&mut self, opcode: u8, first: u32, second: u32, third: u32) {
        let words = [opcode.into(), first, second, third];
        let data = words
            .iter()
            .flat_map(|word: &u32| word.to_le_bytes())
            .collect();
        self.commands.push(Beat {
            data,
            ..Beat::default()
        });
    }

    /// Beats that were read from main memory.
    #[must_use]
    pub fn beats_read(&self) -> u64 {
        let traffic = self.memory.traffic();
        traffic.first().map_or(0, |port| port.read_beats)
    }

    /// Puts the keys into main memory, as [`layout`] lays them out.
    ///
    /// # Errors
    /// [`EngineError::Memory`] where there are keys already.
    pub fn set_keys(
        &mut self,
        bootstrapping: Arc<Vec<u64>>,
        switching: Arc<Vec<u64>>,
    ) -> Result<(), EngineError> {
        for (beat, words) in [(self.map.key, bootstrapping), (self.map.switch, switching)] {
            let bytes: Shared = Arc::new(Bytes(words));
            self.memory
                .memory_mut()
                .share(self.shape.bytes(beat) as u64, bytes)?;
        }
        Ok(())
    }

    /// Puts a test vector's bytes into main memory.
    ///
    /// # Errors
    /// [`EngineError::Place`] for a number that there is no room for, [`EngineError::Length`].
    pub fn set_test_vector(&mut self, number: u32, bytes: &[u8]) -> Result<(), EngineError> {
        if number >= TEST_VECTORS {
            return Err(EngineError::Place(number));
        }
        check_length(
            "a test vector",
            bytes,
            self.shape.params.test_vector_bytes(),
        )?;
        let words = layout::test_vector_to_memory(self.shape, bytes);
        self.put(
            self.map.vectors + u64::from(number) * self.shape.rows() as u64,
            &words,
        )
    }

    /// Puts a sample's bytes into a register.
    ///
    /// # Errors
    /// [`EngineError::Place`] for a number that there is no room for, [`EngineError::Length`].
    pub fn set_register(&mut self, number: u32, bytes: &[u8]) -> Result<(), EngineError> {
        check_length("a LWE sample", bytes, self.shape.params.lwe_bytes())?;
        let words = layout::lwe_to_memory(self.shape, bytes);
        self.put(self.register_beat(number)?, &words)
    }

    /// The bytes of the sample in a register.
    ///
    /// # Errors
    /// [`EngineError::Place`] for a number that there is no room for.
    pub fn register(&self, number: u32) -> Result<Vec<u8>, EngineError> {
        let place = self.shape.bytes(self.register_beat(number)?) as u64;
        let length = self.shape.bytes(self.shape.lwe_rows() as u64);
        let words: Vec<u64> =
            bytemuck::pod_collect_to_vec(self.memory.memory().bytes(place, length)?);
        Ok(layout::lwe_from_memory(self.shape, &words))
    }

    fn register_beat(&self, number: u32) -> Result<u64, EngineError> {
        if number >= REGISTERS {
            return Err(EngineError::Place(number));
        }
        Ok(self.map.registers + (u64::from(number) << self.map.log2_stride))
    }

    fn put(&mut self, beat: u64, words: &[u64]) -> Result<(), EngineError> {
        let bytes: &[u8] = bytemuck::cast_slice(words);
        let place = self.shape.bytes(beat) as u64;
        self.memory
            .memory_mut()
            .bytes_mut(place, bytes.len())?
            .copy_from_slice(bytes);
        Ok(())
    }

    /// Runs one command and gives the cycles it took, as the engine counts them. A bootstrap reports the cycles so far, of those
    /// that the [formula] expects, to `progress`.
    ///
    /// # Errors
    /// [`EngineError::Cancelled`], or a failure of the simulation.
    pub fn run(&mut self, command: Command, progress: &Progress) -> Result<u64, EngineError> {
        let (opcode, first, second) = command.encode();
        self.send(opcode, first, second, 0);
        let start = self.simulation.cycles();
        // The memory's latency is not in the formula.
        let expected = formula::bootstrap(self.shape).total();
        let report = |cycles: u64| {
            if matches!(command, Command::Bootstrap(..)) {
                progress.report("cycles of a Bootstrap", cycles.min(expected), expected);
            }
        };
        loop {
            self.simulation.cycle(&mut [
                &mut self.memory,
                &mut self.commands,
                &mut self.responses,
                &mut self.results,
            ])?;
            if let Some(response) = self.responses.take().first() {
                report(expected);
                let words = response.words(8);
                return Ok(words.first().copied().unwrap_or(0) & 0xff_ffff_ffff);
            }
            let cycles = self.simulation.cycles() - start;
            if cycles.is_multiple_of(PROGRESS_CYCLES) {
                report(cycles);
                progress.check()?;
            }
            if cycles > LIMIT_CYCLES {
                return Err(SimulationError::Timeout {
                    what: format!("the response to {command:?}"),
                    cycles,
                }
                .into());
            }
        }
    }

    /// The oldest sample that a [`Command::Return`] gave and nobody took, once all of it is there.
    pub fn take_result(&mut self) -> Option<Vec<u8>> {
        let rows = self.shape.lwe_rows();
        self.returned.extend(self.results.take());
        if self.returned.len() < rows {
            return None;
        }
        let beats = self.returned.drain(..rows);
        let words: Vec<u64> = beats.flat_map(|beat| beat.words(8)).collect();
        Some(layout::lwe_from_memory(self.shape, &words))
    }
}

/// Less than a millisecond of simulating a small engine, some for a large one.
const PROGRESS_CYCLES: u64 = 64;
/// No command takes as long.
const LIMIT_CYCLES: u64 = 1 << 34;

/// Refuses bytes of another length.
fn check_length(what: &'static str, bytes: &[u8], expected: usize) -> Result<(), EngineError> {
    if bytes.len() == expected {
        return Ok(());
    }
    Err(EngineError::Length {
        what,
        expected,
        found: bytes.len(),
    })
}
