//! Fixed permutations of streams of beats, routed for the network of `hw/permutation`.
//!
//! A frame is 2^`log_beats` beats of 2^`log_lanes` words; word `beat << log_lanes | lane` of the input goes wherever the
//! permutation says. Each word goes through one of 2^`log_lanes` banks of memory, such that every beat, of the input as of
//! the output, has one word in each bank: a colouring of the edges of the bipartite multigraph of input and output beats.
//! It is found a bit of the bank at a time, by walks over the whole frame that generalize the looping algorithm of Benes
//! networks: words whose places in a beat differ in this bit only get different values of it, at the input and at the
//! output. So the bits of a place become those of the bank in one column of switches each, and in one column each those of
//! the place in the output beat.

use std::collections::HashMap;
use std::fmt::Write as _;

use toroid_sim::model::{Design, Value};
use toroid_sim::random::Random;

/// Columns of switches from one register to the next.
const COLUMNS_PER_REGISTER: usize = 3;

/// Bits of an entry of a map (`permutation_pkg::ENTRY_BITS`).
const ENTRY_BITS: usize = 16;

/// Why there is no permutation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PermutationError {
    /// There are as many sources as words in a frame.
    #[error("expected a source for each of the {expected} words of a frame, found {found}")]
    Length {
        /// Words of a frame.
        expected: usize,
        /// Sources that were given.
        found: usize,
    },
    /// No two words have the same source.
    #[error("word {word} takes input word {source_word}, which is not there or taken by another")]
    Source {
        /// A word of the output.
        word: usize,
        /// Where it comes from.
        source_word: usize,
    },
    /// Frames are of 2^0 to 2^20 beats of 2^0 to 2^7 lanes.
    #[error(
        "expected at most 2^7 lanes and 2^20 beats, found 2^{log_lanes} lanes and 2^{log_beats} beats"
    )]
    Shape {
        /// log2 of the lanes.
        log_lanes: u32,
        /// log2 of the beats.
        log_beats: u32,
    },
}

/// The words of a frame.
fn frame(log_lanes: u32, log_beats: u32) -> Result<usize, PermutationError> {
    if log_lanes > 7 || log_beats > 20 {
        return Err(PermutationError::Shape {
            log_lanes,
            log_beats,
        });
    }
    Ok(1 << (log_lanes + log_beats))
}

/// A permutation of the words of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation {
    log_lanes: u32,
    log_beats: u32,
    source: Vec<usize>,
}

impl Permutation {
    /// Word i of the output is word `source[i]` of the input.
    ///
    /// # Errors
    /// See [`PermutationError`].
    pub fn new(
        log_lanes: u32,
        log_beats: u32,
        source: Vec<usize>,
    ) -> Result<Permutation, PermutationError> {
        let expected = frame(log_lanes, log_beats)?;
        if source.len() != expected {
            return Err(PermutationError::Length {
                expected,
                found: source.len(),
            });
        }
        let mut is_taken = vec![false; expected];
        for (word, &from) in source.iter().enumerate() {
            match is_taken.get_mut(from) {
                Some(taken) if !*taken => *taken = true,
                _ => {
                    return Err(PermutationError::Source {
                        word,
                        source_word: from,
                    });
                }
            }
        }
        Ok(Permutation {
            log_lanes,
            log_beats,
            source,
        })
    }

    /// Of the bits of indices: bit b of a word's index in the output is bit `bits(b)` of its index in the input.
    ///
    /// # Errors
    /// If `bits` is not a permutation of the bits, or the shape is too large.
    pub fn of_bits(
        log_lanes: u32,
        log_beats: u32,
        bits: impl Fn(u32) -> u32,
    ) -> Result<Permutation, PermutationError> {
        let log = log_lanes + log_beats;
        let source = (0..frame(log_lanes, log_beats)?).map(|word| {
            (0..log)
                .filter(|bit| word >> bit & 1 == 1)
                .fold(0, |from, bit| {
                    from ^ 1usize.checked_shl(bits(bit)).unwrap_or(usize::MAX)
                })
        });
        Permutation::new(log_lanes, log_beats, source.collect())
    }

    /// Word i is taken from where the bits of i are reversed.
    ///
    /// # Errors
    /// If the shape is too large.
    pub fn bit_reversal(log_lanes: u32, log_beats: u32) -> Result<Permutation, PermutationError> {
        let log = log_lanes + log_beats;
        Permutation::of_bits(log_lanes, log_beats, |bit| log - 1 - bit)
    }

    /// The words in steps of 2^`log_stride`: first 0, S, 2 S, ..., then 1, S + 1, ...
    ///
    /// # Errors
    /// If the shape is too large.
    pub fn stride(
        log_lanes: u32,
        log_beats: u32,
        log_stride: u32,
    ) -> Result<Permutation, PermutationError> {
        let log = (log_lanes + log_beats).max(1);
        Permutation::of_bits(log_lanes, log_beats, |bit| (bit + log_stride) % log)
    }

    /// One that a seed repeats.
    ///
    /// # Errors
    /// If the shape is too large.
    pub fn random(
        log_lanes: u32,
        log_beats: u32,
        seed: u64,
    ) -> Result<Permutation, PermutationError> {
        let mut random = Random::new(seed);
        let mut source: Vec<usize> = (0..frame(log_lanes, log_beats)?).collect();
        for i in (1..source.len()).rev() {
            source.swap(i, random.below(i as u64 + 1) as usize);
        }
        Permutation::new(log_lanes, log_beats, source)
    }

    /// The output of a frame.
    pub fn apply<T: Clone>(&self, words: &[T]) -> Vec<T> {
        self.source
            .iter()
            .map(|&from| words[from].clone())
            .collect()
    }

    /// Routes it.
    pub fn route(&self) -> Network {
        let lanes = 1usize << self.log_lanes;
        let beats = 1usize << self.log_beats;
        let switches = self.log_lanes as usize * (lanes / 2);
        let (mut first, mut second) =
            (vec![false; beats * switches], vec![false; beats * switches]);
        // Words have the names of their places in the output. Places change towards those of banks, on both sides.
        let mut out_place: Vec<usize> = (0..self.source.len()).collect();
        let mut in_place = self.source.clone();
        let mut word_in = inverse(&in_place);
        let mut word_out = out_place.clone();
        for column in 0..self.log_lanes {
            let bit = 1usize << column;
            let mut value: Vec<Option<bool>> = vec![None; self.source.len()];
            // A walk begins with a word that stays where it is, so that what can go straight does.
            for begin in 0..value.len() {
                let mut word = word_in[begin];
                let this = begin & bit != 0;
                while value[word].is_none() {
                    value[word] = Some(this);
                    let other = word_in[in_place[word] ^ bit];
                    value[other] = Some(!this);
                    word = word_out[out_place[other] ^ bit];
                }
            }
            let place = |places: &mut [usize], settings: &mut [bool]| {
                for (place, value) in places.iter_mut().zip(&value) {
                    let new = if *value == Some(true) {
                        *place | bit
                    } else {
                        *place & !bit
                    };
                    let lane = *place & (lanes - 1);
                    let pair = (lane >> (column + 1) << column) | (lane & (bit - 1));
                    let switch = column as usize * (lanes / 2) + pair;
                    settings[(*place >> self.log_lanes) * switches + switch] = new != *place;
                    *place = new;
                }
            };
            place(&mut in_place, &mut first);
            place(&mut out_place, &mut second);
            word_in = inverse(&in_place);
            word_out = inverse(&out_place);
        }
        let beat = |place: usize| place >> self.log_lanes;
        let addresses: Vec<usize> = word_out.iter().map(|&word| beat(in_place[word])).collect();
        let ahead = |(place, &from): (usize, &usize)| from as i64 - beat(place) as i64;
        let waits = || addresses.iter().enumerate().map(ahead);
        let delay = waits().max().unwrap_or(0).max(0) as usize;
        let longest = delay + waits().min().unwrap_or(0).min(0).unsigned_abs() as usize;
        let log_depth = (longest + 2).next_power_of_two().trailing_zeros();
        Network {
            log_lanes: self.log_lanes,
            log_beats: self.log_beats,
            delay,
            log_depth,
            first,
            addresses,
            second,
        }
    }
}

fn inverse(places: &[usize]) -> Vec<usize> {
    let mut words = vec![0; places.len()];
    for (word, &place) in places.iter().enumerate() {
        words[place] = word;
    }
    words
}

/// A permutation as the network does it: columns of switches, banks, columns of switches.
///
/// Column c pairs lanes whose numbers differ in bit c; the first columns go from bit 0 up, the second from the top bit down.
/// Switch `c * lanes / 2 + i` is that of the i-th pair of its column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    log_lanes: u32,
    log_beats: u32,
    delay: usize,
    log_depth: u32,
    first: Vec<bool>,
    addresses: Vec<usize>,
    second: Vec<bool>,
}

/// Where each control signal of a side comes from, and the ROM that gives those that are none of a counter's.
struct Controls {
    /// An entry a signal: 0 and 1 are constants, then come the bits of the counter of beats and those of the ROM, each
    /// with its inverse after it.
    map: Vec<usize>,
    /// Columns of the ROM, a bit a beat.
    rom: Vec<Vec<u64>>,
}

impl Controls {
    /// Of signals over the beats.
    fn of(log_beats: u32, signals: impl Iterator<Item = Vec<u64>>) -> Controls {
        let beats = 1usize << log_beats;
        let mut sources = HashMap::new();
        let insert = |column: &[u64], entry: usize, sources: &mut HashMap<Vec<u64>, usize>| {
            sources.entry(column.to_vec()).or_insert(entry);
            let inverted = inverted(column, beats);
            sources.entry(inverted).or_insert(entry + 1);
        };
        insert(&column(beats, |_| false), 0, &mut sources);
        for bit in 0..log_beats as usize {
            let column = column(beats, |beat| beat >> bit & 1 == 1);
            insert(&column, 2 + 2 * bit, &mut sources);
        }
        let counter_bits = log_beats.max(1) as usize;
        let mut rom = Vec::new();
        let map = signals
            .map(|signal| {
                if let Some(entry) = sources.get(&signal) {
                    return *entry;
                }
                let entry = 2 + 2 * (counter_bits + rom.len());
                insert(&signal, entry, &mut sources);
                rom.push(signal);
                entry
            })
            .collect();
        Controls { map, rom }
    }

    /// The ROM in the form of `$readmemh`.
    fn text(&self, beats: usize) -> String {
        let mut text = String::new();
        for beat in 0..beats {
            let bits = |digit: usize| {
                let bit = |i: usize| {
                    let column = self.rom.get(4 * digit + i);
                    column.map_or(0, |column| column[beat / 64] >> (beat % 64) & 1) << i
                };
                (0..4).map(bit).sum::<u64>()
            };
            for digit in (0..self.rom.len().div_ceil(4)).rev() {
                // Writing to a string cannot fail.
                let _ = write!(text, "{:x}", bits(digit));
            }
            text.push('\n');
        }
        text
    }
}

fn column(beats: usize, bit: impl Fn(usize) -> bool) -> Vec<u64> {
    let mut column = vec![0; beats.div_ceil(64)];
    for beat in (0..beats).filter(|beat| bit(*beat)) {
        column[beat / 64] |= 1 << (beat % 64);
    }
    column
}

fn inverted(column: &[u64], beats: usize) -> Vec<u64> {
    let mask = if beats < 64 {
        (1 << beats) - 1
    } else {
        u64::MAX
    };
    column.iter().map(|word| !word & mask).collect()
}

/// The value of a parameter that takes a map.
fn packed(map: &[usize]) -> Value {
    let entries: Vec<String> = map
        .iter()
        .rev()
        .map(|entry| format!("{entry:04x}"))
        .collect();
    let hex = match entries.is_empty() {
        true => "0".to_owned(),
        false => entries.concat(),
    };
    Value::Bits {
        width: (map.len().max(1) * ENTRY_BITS) as u32,
        hex,
    }
}

impl Network {
    /// Beats by which the output must follow the input, so that every word is there: 0 if no word changes its beat.
    pub fn delay(&self) -> usize {
        self.delay
    }

    /// log2 of the words of a bank.
    pub fn log_depth(&self) -> u32 {
        self.log_depth
    }

    /// log2 of the lanes.
    pub fn log_lanes(&self) -> u32 {
        self.log_lanes
    }

    /// log2 of the beats of a frame.
    pub fn log_beats(&self) -> u32 {
        self.log_beats
    }

    /// The switches of the first columns, true for those that cross, for a beat of the input.
    pub fn first(&self, beat: usize) -> &[bool] {
        self.switches(&self.first, beat)
    }

    /// The switches of the second columns for a beat of the output.
    pub fn second(&self, beat: usize) -> &[bool] {
        self.switches(&self.second, beat)
    }

    /// For each bank, the beat of the input that a beat of the output reads.
    pub fn addresses(&self, beat: usize) -> &[usize] {
        &self.addresses[beat << self.log_lanes..][..1 << self.log_lanes]
    }

    fn switches<'a>(&self, settings: &'a [bool], beat: usize) -> &'a [bool] {
        let switches = self.switch_count();
        &settings[beat * switches..][..switches]
    }

    fn switch_count(&self) -> usize {
        self.log_lanes as usize * ((1 << self.log_lanes) / 2)
    }

    fn beats(&self) -> usize {
        1 << self.log_beats
    }

    fn switch_columns<'a>(&'a self, settings: &'a [bool]) -> impl Iterator<Item = Vec<u64>> + 'a {
        let switches = self.switch_count();
        (0..switches)
            .map(move |switch| column(self.beats(), |beat| settings[beat * switches + switch]))
    }

    /// Bits of an address that depend on the beat; above them there may be one that changes with the frame.
    fn address_bits(&self) -> u32 {
        self.log_depth.min(self.log_beats)
    }

    fn write_controls(&self) -> Controls {
        Controls::of(self.log_beats, self.switch_columns(&self.first))
    }

    /// Addresses, bank 0 first and bit 0 of each first, then switches.
    fn read_controls(&self) -> (Controls, usize) {
        let lanes = 1usize << self.log_lanes;
        let bits = if self.delay == 0 {
            0
        } else {
            self.address_bits()
        };
        let addresses = (0..lanes).flat_map(|bank| (0..bits).map(move |bit| (bank, bit)));
        let addresses = addresses.map(|(bank, bit)| {
            column(self.beats(), |beat| {
                self.addresses[beat * lanes + bank] >> bit & 1 == 1
            })
        });
        let signals = addresses.chain(self.switch_columns(&self.second));
        let controls = Controls::of(self.log_beats, signals);
        (controls, lanes * bits as usize)
    }

    /// Of a side's columns those whose switches are not all constant.
    fn active_columns(&self, settings: &[bool]) -> usize {
        let per_column = (1usize << self.log_lanes) / 2;
        (0..self.log_lanes as usize)
            .filter(|column| {
                let mut of_column = column * per_column..(column + 1) * per_column;
                !of_column.all(|switch| self.is_constant(settings, switch))
            })
            .count()
    }

    /// Switches of both sides that change from beat to beat.
    pub(crate) fn changing_switches(&self) -> usize {
        let changing = |settings: &[bool]| {
            (0..self.switch_count())
                .filter(|switch| !self.is_constant(settings, *switch))
                .count()
        };
        changing(&self.first) + changing(&self.second)
    }

    fn is_constant(&self, settings: &[bool], switch: usize) -> bool {
        let values = || settings.iter().skip(switch).step_by(self.switch_count());
        values().all(|value| *value) || values().all(|value| !*value)
    }

    /// Cycles from beat u of the input to beat u of the output where no cycle of the frame is without a beat:
    /// `permutation_pkg::latency`.
    pub fn latency(&self) -> usize {
        let registers = |columns: usize| columns.saturating_sub(1) / COLUMNS_PER_REGISTER;
        let first = self.active_columns(&self.first);
        let second = self.active_columns(&self.second);
        let middle = match self.delay {
            0 => usize::from(first > 0 && second > 0),
            delay => delay + 2,
        };
        registers(first) + middle + registers(second)
    }

    /// The parameters of `permutation_network` or `permutation`, but for `WIDTH`, and the files of its ROMs.
    pub fn parameters(&self, design: Design) -> Design {
        let write = self.write_controls();
        let (read, addresses) = self.read_controls();
        let mut design = design
            .with("LOG_LANES", self.log_lanes)
            .with("LOG_BEATS", self.log_beats)
            .with("DELAY", self.delay as u64)
            .with("LOG_DEPTH", self.log_depth)
            .with("WRITE_BITS", write.rom.len() as u64)
            .with("READ_BITS", read.rom.len() as u64);
        let (address_map, second_map) = read.map.split_at(addresses);
        for (name, map) in [
            ("FIRST_MAP", &write.map[..]),
            ("ADDRESS_MAP", address_map),
            ("SECOND_MAP", second_map),
        ] {
            if !map.is_empty() {
                design.parameters.push((name.to_owned(), packed(map)));
            }
        }
        for (parameter, name, controls) in [
            ("WRITE_FILE", "write.hex", write),
            ("READ_FILE", "read.hex", read),
        ] {
            if !controls.rom.is_empty() {
                let text = controls.text(self.beats());
                design = design.with_file(parameter, name, text.into_bytes());
            }
        }
        design
    }
}
