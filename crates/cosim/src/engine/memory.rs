//! Main memory of the engine: AXI4 ports side by side over one memory, with a latency, a bandwidth and random stalls (the channels of an HBM).

use std::collections::VecDeque;
use std::sync::Arc;

use crate::model::Port;
use crate::random::Random;
use crate::simulation::{Agent, Simulation, SimulationError};

/// How memory answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Cycles from the address to the first beat, and from the last beat of a write to its response.
    pub latency: u64,
    /// Beats a cycle and port, at most 1.
    pub beats_per_cycle: f64,
    /// Probability that a port that could go on does not, in each cycle.
    pub stall: f64,
}

impl Default for Timing {
    /// What an HBM2 gives a core of 200 MHz: 128 ns of latency, and more bandwidth than the ports take.
    fn default() -> Timing {
        Timing {
            latency: 26,
            beats_per_cycle: 1.0,
            stall: 0.0,
        }
    }
}

/// Words of a region of memory.
#[derive(Clone, Debug)]
pub enum Words {
    /// Only read.
    Shared(Arc<Vec<u64>>),
    /// Read and written.
    Owned(Vec<u64>),
}

impl Words {
    fn get(&self) -> &[u64] {
        match self {
            Words::Shared(words) => words,
            Words::Owned(words) => words,
        }
    }
}

#[derive(Clone, Debug)]
struct Region {
    first: u64,
    words: Words,
}

#[derive(Debug, Default)]
struct Channel {
    reads: VecDeque<Burst>,
    is_offering: bool,
    tokens: f64,
    write: Option<Burst>,
    response: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Burst {
    beat: u64,
    left: u64,
    from: u64,
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    ar_valid: Port,
    ar_ready: Port,
    ar_address: Port,
    ar_len: Port,
    r_valid: Port,
    r_ready: Port,
    r_data: Port,
    aw_valid: Port,
    aw_ready: Port,
    aw_address: Port,
    aw_len: Port,
    w_valid: Port,
    w_ready: Port,
    w_data: Port,
    w_last: Port,
    b_valid: Port,
    b_ready: Port,
}

/// The memory behind the ports `m_axi_*` of a design.
#[derive(Debug)]
pub struct MainMemory {
    ports: Ports,
    /// Bytes of a beat of one port.
    bytes: u64,
    lanes: usize,
    channels: Vec<Channel>,
    regions: Vec<Region>,
    timing: Timing,
    random: Random,
    /// Beats that were read, of all ports together.
    read: u64,
}

/// Bursts that a port accepts before the first is answered.
const OUTSTANDING: usize = 32;
const ADDRESS_BITS: u32 = 40;

impl MainMemory {
    /// For a design whose beats are `lanes` words of 64 bits over all ports.
    ///
    /// # Errors
    /// If the design has not these ports.
    pub fn new(
        simulation: &Simulation,
        lanes: usize,
        timing: Timing,
        seed: u64,
    ) -> Result<MainMemory, SimulationError> {
        let width = (lanes * 64).min(1024);
        let count = lanes * 64 / width;
        let ones = count as u32;
        let data = (lanes * 64) as u32;
        let input = |name: &str, bits| simulation.input(&format!("m_axi_{name}_i"), bits);
        let output = |name: &str, bits| simulation.output(&format!("m_axi_{name}_o"), bits);
        let ports = Ports {
            ar_valid: output("arvalid", ones)?,
            ar_ready: input("arready", ones)?,
            ar_address: output("araddr", ones * ADDRESS_BITS)?,
            ar_len: output("arlen", ones * 8)?,
            r_valid: input("rvalid", ones)?,
            r_ready: output("rready", ones)?,
            r_data: input("rdata", data)?,
            aw_valid: output("awvalid", ones)?,
            aw_ready: input("awready", ones)?,
            aw_address: output("awaddr", ones * ADDRESS_BITS)?,
            aw_len: output("awlen", ones * 8)?,
            w_valid: output("wvalid", ones)?,
            w_ready: input("wready", ones)?,
            w_data: output("wdata", data)?,
            w_last: output("wlast", ones)?,
            b_valid: input("bvalid", ones)?,
            b_ready: output("bready", ones)?,
        };
        Ok(MainMemory {
            ports,
            bytes: width as u64 / 8,
            lanes,
            channels: (0..count).map(|_| Channel::default()).collect(),
            regions: Vec::new(),
            timing,
            random: Random::new(seed),
            read: 0,
        })
    }

    /// Puts words at beat `first`; they replace what was put at the same beat before.
    pub fn map(&mut self, first: u64, words: Words) {
        self.regions.retain(|region| region.first != first);
        self.regions.push(Region { first, words });
    }

    /// The words that were put at beat `first`.
    #[must_use]
    pub fn words(&self, first: u64) -> Option<&[u64]> {
        let region = self.regions.iter().find(|region| region.first == first);
        region.map(|region| region.words.get())
    }

    /// The words that were put at beat `first`, to be changed; not of those that are shared.
    pub fn words_mut(&mut self, first: u64) -> Option<&mut [u64]> {
        let region = self.regions.iter_mut().find(|region| region.first == first);
        match region.map(|region| &mut region.words) {
            Some(Words::Owned(words)) => Some(words),
            _ => None,
        }
    }

    /// Forgets what is under way, for a reset.
    pub fn reset(&mut self) {
        for channel in &mut self.channels {
            *channel = Channel::default();
        }
    }

    /// Beats of all ports together that were read.
    #[must_use]
    pub fn beats_read(&self) -> u64 {
        self.read / self.channels.len() as u64
    }

    fn violation(simulation: &Simulation, port: usize, what: &str) -> SimulationError {
        SimulationError::Protocol {
            cycle: simulation.cycles(),
            message: format!("memory port {port}: {what}"),
        }
    }

    fn lanes_of(&mut self, beat: u64, port: usize) -> Option<&[u64]> {
        let (lanes, words) = (self.lanes, self.bytes as usize / 8);
        // Neighbours are read together: the region of the last read comes first.
        let place = self.regions.iter().position(|region| {
            (region.first..region.first + (region.words.get().len() / lanes) as u64).contains(&beat)
        })?;
        self.regions.swap(0, place);
        let region = self.regions.first()?;
        let at = (beat - region.first) as usize * lanes + port * words;
        region.words.get().get(at..at + words)
    }

    fn burst(
        &self,
        simulation: &Simulation,
        port: usize,
        (address, len): (Port, Port),
    ) -> Result<Burst, SimulationError> {
        let address = field(simulation, address, port, ADDRESS_BITS);
        let left = field(simulation, len, port, 8) + 1;
        if !address.is_multiple_of(self.bytes) {
            return Err(Self::violation(
                simulation,
                port,
                "an address that is no multiple of a beat",
            ));
        }
        if address / 4096 != (address + left * self.bytes - 1) / 4096 {
            return Err(Self::violation(
                simulation,
                port,
                "a burst that crosses 4 KiB",
            ));
        }
        Ok(Burst {
            beat: address / self.bytes,
            left,
            from: simulation.cycles() + self.timing.latency,
        })
    }
}

/// The bits of one AXI port among those side by side.
fn field(simulation: &Simulation, port: Port, index: usize, width: u32) -> u64 {
    if !port.is_wide() {
        let value = simulation.get(port) >> (index as u32 * width);
        return value & (u64::MAX >> (64 - width));
    }
    let words = simulation.words(port);
    let first = index * width as usize;
    let word = |place: usize| u64::from(words.get(place).copied().unwrap_or(0));
    let low = first / 32;
    let all =
        u128::from(word(low)) | u128::from(word(low + 1)) << 32 | u128::from(word(low + 2)) << 64;
    (all >> (first % 32)) as u64 & (u64::MAX >> (64 - width))
}

impl Agent for MainMemory {
    fn drive(&mut self, simulation: &mut Simulation) {
        let now = simulation.cycles();
        let (mut ar_ready, mut r_valid, mut aw_ready, mut w_ready, mut b_valid) = (0, 0, 0, 0, 0);
        for port in 0..self.channels.len() {
            let goes = self.timing.stall == 0.0 || !self.random.chance(self.timing.stall);
            let timing = self.timing;
            let channel = &mut self.channels[port];
            channel.tokens = (channel.tokens + timing.beats_per_cycle).min(1.0);
            if !channel.is_offering
                && goes
                && channel.tokens >= 1.0
                && channel.reads.front().is_some_and(|burst| burst.from <= now)
            {
                channel.is_offering = true;
                channel.tokens -= 1.0;
            }
            ar_ready |= u64::from(goes && channel.reads.len() < OUTSTANDING) << port;
            aw_ready |=
                u64::from(goes && channel.write.is_none() && channel.response.is_none()) << port;
            w_ready |= u64::from(goes && channel.write.is_some()) << port;
            b_valid |= u64::from(channel.response.is_some_and(|from| from <= now)) << port;
            if channel.is_offering {
                r_valid |= 1 << port;
                let beat = channel.reads.front().map_or(0, |burst| burst.beat);
                let words = self.bytes as usize / 4;
                let r_data = self.ports.r_data;
                // What is mapped nowhere was refused when its burst was accepted.
                if let Some(lanes) = self.lanes_of(beat, port) {
                    let words = &mut simulation.words_mut(r_data)[port * words..][..words];
                    for (pair, lane) in words.chunks_exact_mut(2).zip(lanes) {
                        pair[0] = *lane as u32;
                        pair[1] = (*lane >> 32) as u32;
                    }
                }
            }
        }
        simulation.set(self.ports.ar_ready, ar_ready);
        simulation.set(self.ports.r_valid, r_valid);
        simulation.set(self.ports.aw_ready, aw_ready);
        simulation.set(self.ports.w_ready, w_ready);
        simulation.set(self.ports.b_valid, b_valid);
    }

    fn sample(&mut self, simulation: &Simulation) -> Result<(), SimulationError> {
        let bit = |valid: Port, ready: Port| simulation.get(valid) & simulation.get(ready);
        let ports = self.ports;
        let ar = bit(ports.ar_valid, ports.ar_ready);
        let r = bit(ports.r_valid, ports.r_ready);
        let aw = bit(ports.aw_valid, ports.aw_ready);
        let w = bit(ports.w_valid, ports.w_ready);
        let b = bit(ports.b_valid, ports.b_ready);
        if ar | r | aw | w | b == 0 {
            return Ok(());
        }
        for port in 0..self.channels.len() {
            let is_set = |bits: u64| bits >> port & 1 == 1;
            if is_set(r) {
                self.read += 1;
                let channel = &mut self.channels[port];
                channel.is_offering = false;
                if let Some(burst) = channel.reads.front_mut() {
                    burst.beat += 1;
                    burst.left -= 1;
                    if burst.left == 0 {
                        channel.reads.pop_front();
                    }
                }
            }
            if is_set(ar) {
                let burst = self.burst(simulation, port, (ports.ar_address, ports.ar_len))?;
                for beat in [burst.beat, burst.beat + burst.left - 1] {
                    if self.lanes_of(beat, port).is_none() {
                        let what = format!("a read of beat {beat}, where nothing is");
                        return Err(Self::violation(simulation, port, &what));
                    }
                }
                self.channels[port].reads.push_back(burst);
            }
            if is_set(w) {
                self.write(simulation, port)?;
            }
            if is_set(aw) {
                let burst = self.burst(simulation, port, (ports.aw_address, ports.aw_len))?;
                self.channels[port].write = Some(burst);
            }
            if is_set(b) {
                self.channels[port].response = None;
            }
        }
        Ok(())
    }
}

impl MainMemory {
    /// Takes a beat of a write.
    fn write(&mut self, simulation: &Simulation, port: usize) -> Result<(), SimulationError> {
        let Some(mut burst) = self.channels[port].write else {
            return Err(Self::violation(simulation, port, "data without an address"));
        };
        let (lanes, words) = (self.lanes, self.bytes as usize / 8);
        let region = self.regions.iter_mut().find(|region| {
            (region.first..region.first + (region.words.get().len() / lanes) as u64)
                .contains(&burst.beat)
        });
        let Some((first, Words::Owned(memory))) =
            region.map(|region| (region.first, &mut region.words))
        else {
            let what = format!(
                "a write to beat {}, where nothing may be written",
                burst.beat
            );
            return Err(Self::violation(simulation, port, &what));
        };
        let at = (burst.beat - first) as usize * lanes + port * words;
        let data = &simulation.words(self.ports.w_data)[port * words * 2..][..words * 2];
        for (word, pair) in memory[at..at + words].iter_mut().zip(data.chunks_exact(2)) {
            *word = u64::from(pair[0]) | u64::from(pair[1]) << 32;
        }
        burst.beat += 1;
        burst.left -= 1;
        let is_last = field(simulation, self.ports.w_last, port, 1) == 1;
        if is_last != (burst.left == 0) {
            return Err(Self::violation(
                simulation,
                port,
                "wlast where the burst does not end, or not where it does",
            ));
        }
        let channel = &mut self.channels[port];
        channel.write = (burst.left > 0).then_some(burst);
        if is_last {
            channel.response = Some(simulation.cycles() + self.timing.latency);
        }
        Ok(())
    }
}
