//! Both ends of AXI4-Streams, with back-pressure and gaps at random, and checks of the protocol.

use std::collections::VecDeque;

use crate::model::Port;
use crate::random::Random;
use crate::simulation::{Agent, Simulation, SimulationError};

/// One transfer of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beat {
    /// The bytes of `tdata`, lowest first.
    pub data: Vec<u8>,
    /// `tlast`: whether it ends a packet.
    pub last: bool,
    /// `tuser`.
    pub user: u64,
}

impl Beat {
    /// Words side by side, word 0 lowest, in `word_bytes` bytes each.
    pub fn of_words(words: &[u64], word_bytes: usize, last: bool) -> Beat {
        let data = words
            .iter()
            .flat_map(|word| {
                (0..word_bytes).map(move |i| word.checked_shr(8 * i as u32).unwrap_or(0) as u8)
            })
            .collect();
        Beat {
            data,
            last,
            user: 0,
        }
    }

    /// With `tuser`.
    #[must_use]
    pub fn with_user(self, user: u64) -> Beat {
        Beat { user, ..self }
    }

    /// The words side by side, of `word_bytes` bytes each, at most 8.
    pub fn words(&self, word_bytes: usize) -> Vec<u64> {
        self.data
            .chunks(word_bytes.clamp(1, 8))
            .map(|chunk| {
                let mut bytes = [0; 8];
                bytes[..chunk.len()].copy_from_slice(chunk);
                u64::from_le_bytes(bytes)
            })
            .collect()
    }
}

/// The port of a signal, whose name may have the suffix of its direction.
pub(crate) fn signal(
    simulation: &Simulation,
    name: &str,
    is_input: bool,
) -> Result<Port, SimulationError> {
    let full = format!("{name}_{}", if is_input { "i" } else { "o" });
    simulation
        .port(&full)
        .or_else(|error| simulation.port(name).map_err(|_| error))
}

/// The ports of a stream.
#[derive(Clone, Copy, Debug)]
struct Ports {
    valid: Port,
    ready: Port,
    data: Port,
    last: Option<Port>,
    user: Option<Port>,
}

impl Ports {
    /// Of `{prefix}_tvalid` and so on, as an input stream of the design or as an output stream.
    fn find(
        simulation: &Simulation,
        prefix: &str,
        is_input: bool,
    ) -> Result<Ports, SimulationError> {
        let find = |name: &str, is_input| signal(simulation, &format!("{prefix}_{name}"), is_input);
        Ok(Ports {
            valid: find("tvalid", is_input)?,
            ready: find("tready", !is_input)?,
            data: find("tdata", is_input)?,
            last: find("tlast", is_input).ok(),
            user: find("tuser", is_input).ok(),
        })
    }

    fn set_flags(&self, simulation: &mut Simulation, last: u64, user: u64) {
        if let Some(port) = self.last {
            simulation.set(port, last);
        }
        if let Some(port) = self.user {
            simulation.set(port, user);
        }
    }

    fn bytes(&self) -> usize {
        self.data.bits().div_ceil(8) as usize
    }

    fn beat(&self, simulation: &Simulation) -> Beat {
        let mut data = vec![0; self.bytes()];
        simulation.read_bytes(self.data, &mut data);
        let last = self.last.is_some_and(|last| simulation.get(last) != 0);
        let user = self.user.map_or(0, |user| simulation.get(user));
        Beat { data, last, user }
    }
}

/// Feeds an input stream of a design from a queue.
#[derive(Debug)]
pub struct Source {
    ports: Ports,
    queue: VecDeque<Beat>,
    random: Random,
    stall: f64,
    /// Whether the first beat of the queue is offered and stays so until it is taken.
    is_offering: bool,
    sent: u64,
}

impl Extend<Beat> for Source {
    /// Queues beats.
    fn extend<T: IntoIterator<Item = Beat>>(&mut self, beats: T) {
        self.queue.extend(beats);
    }
}

impl Source {
    /// For the ports `{prefix}_tvalid_i`, `{prefix}_tready_o`, `{prefix}_tdata_i` and, if they are there,
    /// `{prefix}_tlast_i` and `{prefix}_tuser_i`, all with or without their suffix. In a cycle without an offer, none is made with probability `stall`.
    ///
    /// # Errors
    /// If the ports are not there.
    pub fn new(
        simulation: &Simulation,
        prefix: &str,
        stall: f64,
        seed: u64,
    ) -> Result<Source, SimulationError> {
        Ok(Source {
            ports: Ports::find(simulation, prefix, true)?,
            queue: VecDeque::new(),
            random: Random::new(seed),
            stall,
            is_offering: false,
            sent: 0,
        })
    }

    /// Queues a beat.
    pub fn push(&mut self, beat: Beat) {
        self.queue.push_back(beat);
    }

    /// Beats that were taken.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether every beat was taken.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Forgets what is queued, and an offer: for a reset.
    pub fn clear(&mut self) {
        self.queue.clear();
        self.is_offering = false;
    }
}

impl Agent for Source {
    fn drive(&mut self, simulation: &mut Simulation) {
        if !self.is_offering {
            self.is_offering = !self.queue.is_empty() && !self.random.chance(self.stall);
            simulation.set(self.ports.valid, self.is_offering.into());
            if let Some(beat) = self.queue.front()
                && self.is_offering
            {
                simulation.write_bytes(self.ports.data, &beat.data);
                self.ports
                    .set_flags(simulation, beat.last.into(), beat.user);
            } else {
                // What a design takes without an offer must show.
                let words = self.ports.bytes().div_ceil(8);
                let noise: Vec<u8> = (0..words)
                    .flat_map(|_| self.random.word().to_le_bytes())
                    .collect();
                simulation.write_bytes(self.ports.data, &noise);
                self.ports
                    .set_flags(simulation, self.random.word() & 1, self.random.word());
            }
        }
    }

    fn sample(&mut self, simulation: &Simulation) -> Result<(), SimulationError> {
        if self.is_offering && simulation.get(self.ports.ready) != 0 {
            self.queue.pop_front();
            self.is_offering = false;
            self.sent += 1;
        }
        Ok(())
    }
}

/// Takes the beats of an output stream of a design.
///
/// It checks that an offer and its payload stay until they are taken, and that the offer does not depend on `tready`
/// within the cycle.
#[derive(Debug)]
pub struct Sink {
    ports: Ports,
    name: String,
    received: Vec<Beat>,
    random: Random,
    stall: f64,
    is_ready: bool,
    offered: Option<Beat>,
    first_cycle: Option<u64>,
    last_cycle: Option<u64>,
}

impl Sink {
    /// For the ports `{prefix}_tvalid_o`, `{prefix}_tready_i`, `{prefix}_tdata_o` and, if they are there,
    /// `{prefix}_tlast_o` and `{prefix}_tuser_o`, all with or without their suffix. In each cycle it is not ready with probability `stall`.
    ///
    /// # Errors
    /// If the ports are not there.
    pub fn new(
        simulation: &Simulation,
        prefix: &str,
        stall: f64,
        seed: u64,
    ) -> Result<Sink, SimulationError> {
        Ok(Sink {
            ports: Ports::find(simulation, prefix, false)?,
            name: prefix.to_owned(),
            received: Vec::new(),
            random: Random::new(seed),
            stall,
            is_ready: false,
            offered: None,
            first_cycle: None,
            last_cycle: None,
        })
    }

    /// The beats so far.
    pub fn received(&self) -> &[Beat] {
        &self.received
    }

    /// Takes the beats so far.
    pub fn take(&mut self) -> Vec<Beat> {
        std::mem::take(&mut self.received)
    }

    /// The cycle of the first beat.
    pub fn first_cycle(&self) -> Option<u64> {
        self.first_cycle
    }

    /// The cycle of the newest beat.
    pub fn last_cycle(&self) -> Option<u64> {
        self.last_cycle
    }

    /// Forgets the beats and an offer: for a reset.
    pub fn clear(&mut self) {
        self.received.clear();
        self.offered = None;
        self.first_cycle = None;
        self.last_cycle = None;
    }

    fn violation(&self, simulation: &Simulation, what: &str) -> SimulationError {
        SimulationError::Protocol {
            cycle: simulation.cycles(),
            message: format!("stream {}: {what}", self.name),
        }
    }
}

impl Agent for Sink {
    fn drive(&mut self, simulation: &mut Simulation) {
        self.is_ready = !self.random.chance(self.stall);
        simulation.set(self.ports.ready, self.is_ready.into());
    }

    fn probe(&mut self, simulation: &mut Simulation) -> Result<(), SimulationError> {
        // A sink without stalls is for speed; one in eight of the others' cycles suffices to find a dependence.
        if self.stall == 0.0 || !self.random.word().is_multiple_of(8) {
            return Ok(());
        }
        let valid = simulation.get(self.ports.valid);
        simulation.set(self.ports.ready, (!self.is_ready).into());
        simulation.settle()?;
        let other = simulation.get(self.ports.valid);
        simulation.set(self.ports.ready, self.is_ready.into());
        match valid == other {
            true => Ok(()),
            false => Err(self.violation(simulation, "tvalid depends on tready within the cycle")),
        }
    }

    fn sample(&mut self, simulation: &Simulation) -> Result<(), SimulationError> {
        if simulation.get(self.ports.valid) == 0 {
            return match self.offered {
                None => Ok(()),
                Some(_) => Err(self.violation(simulation, "tvalid fell before the beat was taken")),
            };
        }
        let beat = self.ports.beat(simulation);
        if self
            .offered
            .as_ref()
            .is_some_and(|offered| *offered != beat)
        {
            return Err(self.violation(simulation, "the payload changed before it was taken"));
        }
        if self.is_ready {
            self.offered = None;
            self.received.push(beat);
            self.first_cycle.get_or_insert(simulation.cycles());
            self.last_cycle = Some(simulation.cycles());
        } else {
            self.offered = Some(beat);
        }
        Ok(())
    }
}

/// Runs until the sink has `beats` beats; at most for `limit` cycles.
///
/// # Errors
/// If the design stops or breaks the protocol, or the limit is reached.
pub fn transfer(
    simulation: &mut Simulation,
    source: &mut Source,
    sink: &mut Sink,
    beats: usize,
    limit: u64,
) -> Result<(), SimulationError> {
    for _ in 0..limit {
        if sink.received.len() >= beats {
            return Ok(());
        }
        simulation.cycle(&mut [source, sink])?;
    }
    match sink.received.len() >= beats {
        true => Ok(()),
        false => Err(SimulationError::Timeout {
            what: format!(
                "beat {} of {beats} of stream {}",
                sink.received.len() + 1,
                sink.name
            ),
            cycles: limit,
        }),
    }
}
