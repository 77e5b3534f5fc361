//! A memory at the AXI4 ports of a design, with latency, bandwidth and stalls, and checks of the protocol.
//!
//! What the cores use of AXI4: INCR bursts, one identifier, whole beats, data of 32 to 1024 bits. A design has any number
//! of ports, side by side in packed arrays: `m_axi_arvalid_o` has a bit for each, `m_axi_rdata_i` a word.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::model::Port;
use crate::random::Random;
use crate::simulation::{Agent, Simulation, SimulationError};
use crate::stream::signal;

/// Bytes that a region shows and does not change: a file mapped into memory, or a vector that others have too.
pub type Shared = Arc<dyn AsRef<[u8]> + Send + Sync>;

enum Contents {
    Own(Vec<u8>),
    Shared(Shared),
}

impl Contents {
    fn bytes(&self) -> &[u8] {
        match self {
            Contents::Own(bytes) => bytes,
            Contents::Shared(bytes) => (**bytes).as_ref(),
        }
    }
}

/// An access that does not lie within one region, or writes to one that is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryFault {
    /// No region has all of these bytes.
    #[error("no region of the memory has bytes {address:#x} to {:#x}", address + *length as u64 - 1)]
    Unmapped {
        /// The first byte.
        address: u64,
        /// How many.
        length: usize,
    },
    /// The region is shared.
    #[error("the region of address {address:#x} cannot be written")]
    ReadOnly {
        /// The first byte.
        address: u64,
    },
    /// A region would lie over another, or beyond the end of the address space.
    #[error(
        "a region at {address:#x} of {length} bytes lies over another or does not fit the address space"
    )]
    Overlap {
        /// The first byte.
        address: u64,
        /// How many.
        length: usize,
    },
}

/// Bytes by their addresses, in regions.
#[derive(Default)]
pub struct Memory {
    /// Sorted by their addresses.
    regions: Vec<(u64, Contents)>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sizes = self
            .regions
            .iter()
            .map(|(base, contents)| (base, contents.bytes().len()));
        f.debug_list().entries(sizes).finish()
    }
}

impl Memory {
    /// Without any region.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Adds a region that can be written. `vec![0; n]` takes memory only where it is touched.
    ///
    /// # Errors
    /// If it lies over another.
    pub fn insert(&mut self, base: u64, bytes: Vec<u8>) -> Result<(), MemoryFault> {
        self.add(base, Contents::Own(bytes))
    }

    /// Adds a region of bytes that others have too and nobody writes.
    ///
    /// # Errors
    /// If it lies over another.
    pub fn share(&mut self, base: u64, bytes: Shared) -> Result<(), MemoryFault> {
        self.add(base, Contents::Shared(bytes))
    }

    fn add(&mut self, base: u64, contents: Contents) -> Result<(), MemoryFault> {
        let length = contents.bytes().len();
        let fault = MemoryFault::Overlap {
            address: base,
            length,
        };
        let end = base.checked_add(length as u64).ok_or(fault)?;
        let place = self.regions.partition_point(|(other, _)| *other < base);
        let before = place
            .checked_sub(1)
            .and_then(|before| self.regions.get(before));
        let overlaps = before
            .is_some_and(|(other, contents)| other + contents.bytes().len() as u64 > base)
            || self
                .regions
                .get(place)
                .is_some_and(|(other, _)| *other < end);
        if overlaps {
            return Err(fault);
        }
        self.regions.insert(place, (base, contents));
        Ok(())
    }

    /// The region and the place in it.
    fn find(&self, address: u64, length: usize) -> Result<(usize, usize), MemoryFault> {
        let fault = MemoryFault::Unmapped { address, length };
        let next = self.regions.partition_point(|(base, _)| *base <= address);
        let index = next.checked_sub(1).ok_or(fault)?;
        let (base, contents) = self.regions.get(index).ok_or(fault)?;
        let start = usize::try_from(address - base).map_err(|_| fault)?;
        match start.checked_add(length) {
            Some(end) if end <= contents.bytes().len() => Ok((index, start)),
            _ => Err(fault),
        }
    }

    /// Bytes from an address on.
    ///
    /// # Errors
    /// If no region has all of them.
    pub fn bytes(&self, address: u64, length: usize) -> Result<&[u8], MemoryFault> {
        let (index, start) = self.find(address, length)?;
        Ok(&self.regions[index].1.bytes()[start..start + length])
    }

    /// Bytes from an address on, to be changed.
    ///
    /// # Errors
    /// If no region has all of them, or it is shared.
    pub fn bytes_mut(&mut self, address: u64, length: usize) -> Result<&mut [u8], MemoryFault> {
        let (index, start) = self.find(address, length)?;
        match &mut self.regions[index].1 {
            Contents::Own(bytes) => Ok(&mut bytes[start..start + length]),
            Contents::Shared(_) => Err(MemoryFault::ReadOnly { address }),
        }
    }
}

/// How fast a memory is, each port by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Cycles from the address of a read to its first beat, and from the last beat of a write to its response.
    pub latency: u64,
    /// Beats a cycle at most, 0 < `bandwidth` <= 1, reads and writes each.
    pub bandwidth: f64,
    /// In each cycle, with this probability a channel does nothing.
    pub stall: f64,
    /// The most bursts in flight, reads and writes each.
    pub outstanding: usize,
}

impl Default for Timing {
    /// One beat per cycle after 64 cycles, 32 bursts in flight, no stalls.
    fn default() -> Timing {
        Timing {
            latency: 64,
            bandwidth: 1.0,
            stall: 0.0,
            outstanding: 32,
        }
    }
}

/// What a port has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bursts read.
    pub read_bursts: u64,
    /// Beats read.
    pub read_beats: u64,
    /// Bursts written.
    pub write_bursts: u64,
    /// Beats written.
    pub write_beats: u64,
}

/// A signal of all ports: port `i` has bits `i * bits ..`.
#[derive(Clone, Copy, Debug)]
struct Lanes {
    port: Port,
    bits: u32,
}

impl Lanes {
    fn get(&self, simulation: &Simulation, index: usize) -> u64 {
        simulation.get_bits(self.port, index as u32 * self.bits, self.bits)
    }

    fn set(&self, simulation: &mut Simulation, index: usize, value: u64) {
        simulation.set_bits(self.port, index as u32 * self.bits, self.bits, value);
    }

    fn read(&self, simulation: &Simulation, index: usize, bytes: &mut [u8]) {
        let offset = index as u32 * self.bits;
        for (i, chunk) in bytes.chunks_mut(4).enumerate() {
            let word = simulation.get_bits(self.port, offset + 32 * i as u32, 32);
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
    }

    fn write(&self, simulation: &mut Simulation, index: usize, bytes: &[u8]) {
        let offset = index as u32 * self.bits;
        for (i, chunk) in bytes.chunks(4).enumerate() {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            let value = u32::from_le_bytes(word).into();
            simulation.set_bits(self.port, offset + 32 * i as u32, 32, value);
        }
    }
}

/// The signals of an address channel.
#[derive(Clone, Copy, Debug)]
struct AddressChannel {
    valid: Lanes,
    ready: Lanes,
    address: Lanes,
    length: Lanes,
    size: Option<Lanes>,
    burst: Option<Lanes>,
}

#[derive(Clone, Copy, Debug)]
struct ReadChannels {
    address: AddressChannel,
    valid: Lanes,
    ready: Lanes,
    data: Lanes,
    last: Option<Lanes>,
}

#[derive(Clone, Copy, Debug)]
struct WriteChannels {
    address: AddressChannel,
    valid: Lanes,
    ready: Lanes,
    data: Lanes,
    strobe: Option<Lanes>,
    last: Option<Lanes>,
    response_valid: Lanes,
    response_ready: Lanes,
}

/// Finds the signals of a design's ports.
struct Finder<'a> {
    simulation: &'a Simulation,
    prefix: &'a str,
    ports: u32,
}

impl Finder<'_> {
    fn optional(&self, name: &str, is_input: bool) -> Result<Option<Lanes>, SimulationError> {
        match signal(
            self.simulation,
            &format!("{}_{name}", self.prefix),
            is_input,
        ) {
            Ok(port) if port.bits() % self.ports == 0 => Ok(Some(Lanes {
                port,
                bits: port.bits() / self.ports,
            })),
            Ok(port) => Err(SimulationError::PortForm {
                top: self.simulation.model().top().to_owned(),
                name: format!("{}_{name}", self.prefix),
                expected: format!("as many bits for each of {} ports", self.ports),
                found: format!("{} bits", port.bits()),
            }),
            Err(_) => Ok(None),
        }
    }

    fn required(&self, name: &str, is_input: bool) -> Result<Lanes, SimulationError> {
        match self.optional(name, is_input)? {
            Some(lanes) => Ok(lanes),
            None => Err(signal(
                self.simulation,
                &format!("{}_{name}", self.prefix),
                is_input,
            )
            .err()
            .unwrap_or(SimulationError::Memory)),
        }
    }

    fn address(&self, channel: &str) -> Result<AddressChannel, SimulationError> {
        let name = |signal: &str| format!("a{channel}{signal}");
        Ok(AddressChannel {
            valid: self.required(&name("valid"), false)?,
            ready: self.required(&name("ready"), true)?,
            address: self.required(&name("addr"), false)?,
            length: self.required(&name("len"), false)?,
            size: self.optional(&name("size"), false)?,
            burst: self.optional(&name("burst"), false)?,
        })
    }

    fn read(&self) -> Result<ReadChannels, SimulationError> {
        Ok(ReadChannels {
            address: self.address("r")?,
            valid: self.required("rvalid", true)?,
            ready: self.required("rready", false)?,
            data: self.required("rdata", true)?,
            last: self.optional("rlast", true)?,
        })
    }

    fn write(&self) -> Result<WriteChannels, SimulationError> {
        Ok(WriteChannels {
            address: self.address("w")?,
            valid: self.required("wvalid", false)?,
            ready: self.required("wready", true)?,
            data: self.required("wdata", false)?,
            strobe: self.optional("wstrb", false)?,
            last: self.optional("wlast", false)?,
            response_valid: self.required("bvalid", true)?,
            response_ready: self.required("bready", false)?,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Burst {
    address: u64,
    beats: u64,
    /// Beats that are done.
    done: u64,
    /// The cycle from which on it may go ahead.
    due: u64,
}

/// Beats that may go now, from a ratio of beats to cycles.
#[derive(Clone, Copy, Debug, Default)]
struct Credit(f64);

impl Credit {
    fn earn(&mut self, bandwidth: f64) {
        self.0 = (self.0 + bandwidth).min(1.0);
    }

    /// Rounding must not cost a beat.
    fn suffices(&self) -> bool {
        self.0 > 1.0 - 1e-9
    }

    fn spend(&mut self) {
        self.0 -= 1.0;
    }
}

#[derive(Debug, Default)]
struct PortState {
    reads: VecDeque<Burst>,
    writes: VecDeque<Burst>,
    /// Cycles from which on responses are due.
    responses: VecDeque<u64>,
    read_credit: Credit,
    write_credit: Credit,
    takes_read: bool,
    takes_write: bool,
    takes_beat: bool,
    offers_beat: bool,
    offers_response: bool,
    /// Offers of the design that were not taken in the cycle before: of addresses, and of a beat to write.
    waiting_read: Option<(u64, u64)>,
    waiting_write: Option<(u64, u64)>,
    waiting_beat: Option<Vec<u8>>,
    traffic: Traffic,
}

/// A memory and the AXI4 ports of a design that lead to it.
#[derive(Debug)]
pub struct AxiMemory {
    memory: Memory,
    timing: Timing,
    random: Random,
    prefix: String,
    read: Option<ReadChannels>,
    write: Option<WriteChannels>,
    beat_bytes: usize,
    is_interleaved: bool,
    ports: Vec<PortState>,
    cycle: u64,
    /// What went wrong while inputs were set; told with the next sample.
    fault: Option<(usize, MemoryFault)>,
}

impl AxiMemory {
    /// For the ports `{prefix}_arvalid_o`, `{prefix}_arready_i` and so on: reads, writes or both. `prefix` is for example
    /// `m_axi`. Signals that do not matter here may lack: sizes, burst types, strobes, `rlast`, `wlast`, responses.
    ///
    /// # Errors
    /// If the ports are not there, or do not have the widths of each other.
    pub fn new(
        simulation: &Simulation,
        prefix: &str,
        memory: Memory,
        timing: Timing,
        seed: u64,
    ) -> Result<AxiMemory, SimulationError> {
        let count = |name: &str| signal(simulation, &format!("{prefix}_{name}"), false);
        let (reads, writes) = (count("arvalid"), count("awvalid"));
        let ports = match (&reads, &writes) {
            (Ok(port), _) | (_, Ok(port)) => port.bits(),
            (Err(error), _) => return Err(error.clone()),
        };
        let finder = Finder {
            simulation,
            prefix,
            ports,
        };
        let read = reads.is_ok().then(|| finder.read()).transpose()?;
        let write = writes.is_ok().then(|| finder.write()).transpose()?;
        let widths = [
            read.map(|read| read.data.bits),
            write.map(|write| write.data.bits),
        ];
        let bits = widths.into_iter().flatten().next().unwrap_or(0);
        let legal = bits.is_power_of_two() && (32..=1024).contains(&bits);
        if !legal || widths.into_iter().flatten().any(|other| other != bits) {
            return Err(SimulationError::PortForm {
                top: simulation.model().top().to_owned(),
                name: format!("{prefix}_rdata, {prefix}_wdata"),
                expected: "32, 64, 128, 256, 512 or 1024 bits a port, the same for both".to_owned(),
                found: format!("{widths:?}"),
            });
        }
        Ok(AxiMemory {
            memory,
            timing,
            random: Random::new(seed),
            prefix: prefix.to_owned(),
            read,
            write,
            beat_bytes: bits as usize / 8,
            is_interleaved: false,
            ports: (0..ports).map(|_| PortState::default()).collect(),
            cycle: 0,
            fault: None,
        })
    }

    /// With the memory dealt out among the ports, a beat to each in turn: the ports see one address space each, and the same
    /// address on all of them is as many beats of the memory in sequence (the channels of an HBM).
    #[must_use]
    pub fn interleaved(mut self) -> AxiMemory {
        self.is_interleaved = true;
        self
    }

    /// The place in memory of an address of a port.
    fn place(&self, port: usize, address: u64) -> u64 {
        match self.is_interleaved {
            false => address,
            true => address * self.ports.len() as u64 + (port * self.beat_bytes) as u64,
        }
    }

    /// The memory.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The memory, for a host that reads and writes beside the design.
    pub fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// What each port has moved.
    pub fn traffic(&self) -> Vec<Traffic> {
        self.ports.iter().map(|port| port.traffic).collect()
    }

    /// Whether no burst is in flight.
    pub fn is_idle(&self) -> bool {
        self.ports.iter().all(|port| {
            port.reads.is_empty() && port.writes.is_empty() && port.responses.is_empty()
        })
    }

    /// Forgets all bursts in flight: for a reset. The contents stay.
    pub fn clear(&mut self) {
        for port in &mut self.ports {
            *port = PortState {
                traffic: port.traffic,
                ..PortState::default()
            };
        }
    }

    fn violation(&self, simulation: &Simulation, port: usize, what: &str) -> SimulationError {
        SimulationError::Protocol {
            cycle: simulation.cycles(),
            message: format!("{} port {port}: {what}", self.prefix),
        }
    }

    /// What an address channel shows in this cycle: the address and the number of beats, checked.
    fn address(
        &self,
        simulation: &Simulation,
        channel: &AddressChannel,
        port: usize,
        waiting: Option<(u64, u64)>,
    ) -> Result<Option<(u64, u64)>, SimulationError> {
        let fail = |what: String| Err(self.violation(simulation, port, &what));
        if channel.valid.get(simulation, port) == 0 {
            return match waiting {
                None => Ok(None),
                Some(_) => fail("an address was withdrawn before it was taken".to_owned()),
            };
        }
        let address = channel.address.get(simulation, port);
        let beats = channel.length.get(simulation, port) + 1;
        let shown = (address, beats);
        if waiting.is_some_and(|waiting| waiting != shown) {
            return fail("an address or length changed before it was taken".to_owned());
        }
        if waiting.is_some() {
            return Ok(Some(shown));
        }
        let bytes = self.beat_bytes as u64;
        if !address.is_multiple_of(bytes) {
            return fail(format!(
                "address {address:#x} is not a multiple of the beat's {bytes} bytes"
            ));
        }
        if beats > 256 {
            return fail(format!("a burst of {beats} beats; 256 is the most"));
        }
        if address % 4096 + beats * bytes > 4096 {
            return fail(format!(
                "a burst of {beats} beats of {bytes} bytes at {address:#x} crosses a boundary of 4 KiB"
            ));
        }
        if let Some(size) = channel.size
            && size.get(simulation, port) != u64::from(bytes.trailing_zeros())
        {
            return fail(format!("the size of a beat must be {bytes} bytes"));
        }
        if let Some(burst) = channel.burst
            && burst.get(simulation, port) != 1
        {
            return fail("the type of a burst must be INCR".to_owned());
        }
        Ok(Some(shown))
    }

    fn drive_read(&mut self, simulation: &mut Simulation, channels: &ReadChannels, index: usize) {
        let Timing {
            bandwidth,
            stall,
            outstanding,
            ..
        } = self.timing;
        let port = &mut self.ports[index];
        port.takes_read = port.reads.len() < outstanding && !self.random.chance(stall);
        channels
            .address
            .ready
            .set(simulation, index, port.takes_read.into());
        port.read_credit.earn(bandwidth);
        if port.offers_beat {
            return;
        }
        let next = port
            .reads
            .front()
            .copied()
            .filter(|burst| burst.due <= self.cycle);
        port.offers_beat =
            next.is_some() && port.read_credit.suffices() && !self.random.chance(stall);
        channels
            .valid
            .set(simulation, index, port.offers_beat.into());
        if let Some(burst) = next
            && port.offers_beat
        {
            port.read_credit.spend();
            let address = burst.address + burst.done * self.beat_bytes as u64;
            match self
                .memory
                .bytes(self.place(index, address), self.beat_bytes)
            {
                Ok(bytes) => channels.data.write(simulation, index, bytes),
                Err(fault) => self.fault = Some((index, fault)),
            }
            if let Some(last) = channels.last {
                last.set(simulation, index, (burst.done + 1 == burst.beats).into());
            }
        }
    }

    fn drive_write(&mut self, simulation: &mut Simulation, channels: &WriteChannels, index: usize) {
        let Timing {
            bandwidth,
            stall,
            outstanding,
            ..
        } = self.timing;
        let port = &mut self.ports[index];
        let in_flight = port.writes.len() + port.responses.len();
        port.takes_write = in_flight < outstanding && !self.random.chance(stall);
        channels
            .address
            .ready
            .set(simulation, index, port.takes_write.into());
        port.write_credit.earn(bandwidth);
        port.takes_beat =
            !port.writes.is_empty() && port.write_credit.suffices() && !self.random.chance(stall);
        channels
            .ready
            .set(simulation, index, port.takes_beat.into());
        if !port.offers_response {
            port.offers_response = port.responses.front().is_some_and(|due| *due <= self.cycle)
                && !self.random.chance(stall);
            channels
                .response_valid
                .set(simulation, index, port.offers_response.into());
        }
    }

    fn sample_read(
        &mut self,
        simulation: &Simulation,
        channels: &ReadChannels,
        index: usize,
    ) -> Result<(), SimulationError> {
        let waiting = self.ports[index].waiting_read;
        let shown = self.address(simulation, &channels.address, index, waiting)?;
        let port = &mut self.ports[index];
        if port.offers_beat && channels.ready.get(simulation, index) != 0 {
            port.offers_beat = false;
            port.traffic.read_beats += 1;
            if let Some(burst) = port.reads.front_mut() {
                burst.done += 1;
                if burst.done == burst.beats {
                    port.reads.pop_front();
                    port.traffic.read_bursts += 1;
                }
            }
        }
        port.waiting_read = None;
        match shown {
            Some((address, beats)) if port.takes_read => port.reads.push_back(Burst {
                address,
                beats,
                done: 0,
                due: self.cycle + self.timing.latency,
            }),
            shown => port.waiting_read = shown,
        }
        Ok(())
    }

    fn sample_write(
        &mut self,
        simulation: &Simulation,
        channels: &WriteChannels,
        index: usize,
    ) -> Result<(), SimulationError> {
        let waiting = self.ports[index].waiting_write;
        let shown = self.address(simulation, &channels.address, index, waiting)?;
        if self.ports[index].offers_response && channels.response_ready.get(simulation, index) != 0
        {
            let port = &mut self.ports[index];
            port.offers_response = false;
            port.responses.pop_front();
            port.traffic.write_bursts += 1;
        }
        self.sample_beat(simulation, channels, index)?;
        let port = &mut self.ports[index];
        port.waiting_write = None;
        match shown {
            Some((address, beats)) if port.takes_write => port.writes.push_back(Burst {
                address,
                beats,
                done: 0,
                due: 0,
            }),
            shown => port.waiting_write = shown,
        }
        Ok(())
    }

    fn sample_beat(
        &mut self,
        simulation: &Simulation,
        channels: &WriteChannels,
        index: usize,
    ) -> Result<(), SimulationError> {
        let waiting = self.ports[index].waiting_beat.take();
        if channels.valid.get(simulation, index) == 0 {
            return match waiting {
                None => Ok(()),
                Some(_) => Err(self.violation(
                    simulation,
                    index,
                    "a beat to write was withdrawn before it was taken",
                )),
            };
        }
        let mut data = vec![0; self.beat_bytes];
        channels.data.read(simulation, index, &mut data);
        if waiting.is_some_and(|waiting| waiting != data) {
            return Err(self.violation(
                simulation,
                index,
                "a beat to write changed before it was taken",
            ));
        }
        if !self.ports[index].takes_beat {
            self.ports[index].waiting_beat = Some(data);
            return Ok(());
        }
        let Some(burst) = self.ports[index].writes.front().copied() else {
            return Ok(());
        };
        let is_last = burst.done + 1 == burst.beats;
        if let Some(last) = channels.last
            && (last.get(simulation, index) != 0) != is_last
        {
            let what = format!(
                "wlast does not fit beat {} of {}",
                burst.done + 1,
                burst.beats
            );
            return Err(self.violation(simulation, index, &what));
        }
        let address = burst.address + burst.done * self.beat_bytes as u64;
        let place = self.place(index, address);
        let written = match self.memory.bytes_mut(place, self.beat_bytes) {
            Ok(to) => {
                for (i, (to, byte)) in to.iter_mut().zip(&data).enumerate() {
                    let lane = index as u32 * self.beat_bytes as u32 + i as u32;
                    let strobe = |strobe: Lanes| simulation.get_bits(strobe.port, lane, 1) != 0;
                    if channels.strobe.is_none_or(strobe) {
                        *to = *byte;
                    }
                }
                Ok(())
            }
            Err(fault) => Err(fault),
        };
        if let Err(fault) = written {
            return Err(self.violation(simulation, index, &fault.to_string()));
        }
        let port = &mut self.ports[index];
        port.write_credit.spend();
        port.traffic.write_beats += 1;
        if let Some(burst) = port.writes.front_mut() {
            burst.done += 1;
        }
        if is_last {
            port.writes.pop_front();
            port.responses.push_back(self.cycle + self.timing.latency);
        }
        Ok(())
    }
}

impl Agent for AxiMemory {
    fn drive(&mut self, simulation: &mut Simulation) {
        self.cycle = simulation.cycles();
        for index in 0..self.ports.len() {
            if let Some(channels) = self.read {
                self.drive_read(simulation, &channels, index);
            }
            if let Some(channels) = self.write {
                self.drive_write(simulation, &channels, index);
            }
        }
    }

    fn sample(&mut self, simulation: &Simulation) -> Result<(), SimulationError> {
        if let Some((port, fault)) = self.fault.take() {
            return Err(self.violation(simulation, port, &fault.to_string()));
        }
        for index in 0..self.ports.len() {
            if let Some(channels) = self.read {
                self.sample_read(simulation, &channels, index)?;
            }
            if let Some(channels) = self.write {
                self.sample_write(simulation, &channels, index)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_found_and_kept_apart() {
        let mut memory = Memory::new();
        memory.insert(0x1000, vec![1; 16]).unwrap();
        memory.share(0x1010, Arc::new(vec![2u8; 16])).unwrap();
        memory.insert(1 << 39, vec![0; 3 << 30]).unwrap();
        assert_eq!(memory.bytes(0x100f, 1), Ok(&[1][..]));
        assert_eq!(memory.bytes(0x1010, 2), Ok(&[2, 2][..]));
        let unmapped = MemoryFault::Unmapped {
            address: 0x100f,
            length: 2,
        };
        assert_eq!(memory.bytes(0x100f, 2), Err(unmapped));
        assert!(memory.bytes(0x1020, 1).is_err() && memory.bytes(0, 1).is_err());
        assert_eq!(
            memory.bytes_mut(0x1010, 1),
            Err(MemoryFault::ReadOnly { address: 0x1010 })
        );
        for (base, length) in [(0xff8, 16), (0x1008, 1), (0x101f, 1), (u64::MAX, 2)] {
            let fault = memory.insert(base, vec![0; length]);
            assert!(
                matches!(fault, Err(MemoryFault::Overlap { .. })),
                "{base:#x}"
            );
        }
        memory.bytes_mut((1 << 39) + (2 << 30), 1).unwrap()[0] = 7;
    }
}
