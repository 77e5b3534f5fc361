//! The router of permutations against a model of the network, and `hw/permutation` against permutations.

use crate::order::network::{Network, Permutation, PermutationError};
use crate::sources::design;
use crate::testing::refusal;
use crate::vectors::Vectors;
use crate::{Values, find};
use toroid_sim::model::{Design, Model, Options};
use toroid_sim::random::Random;
use toroid_sim::simulation::Simulation;
use toroid_sim::stream::{Beat, Sink, Source};
use toroid_sim::toolchain::tests_are_skipped;
use toroid_task::Progress;

/// One side's columns on a beat.
fn switch(network: &Network, beat: &mut [u32], settings: &[bool], is_second: bool) {
    let lanes = beat.len();
    let columns = network.log_lanes() as usize;
    for n in 0..columns {
        let column = if is_second { columns - 1 - n } else { n };
        let pairs = (0..lanes).filter(|lane| lane >> column & 1 == 0);
        for (i, low) in pairs.enumerate() {
            if settings[column * lanes / 2 + i] {
                beat.swap(low, low | 1 << column);
            }
        }
    }
}

/// The network in time, frames without a gap: a write and a read per cycle, a read sees what was written in the cycles
/// before, and banks have no more than their words. Returns `None` where it would read and write a word at once.
fn play(network: &Network, frames: &[Vec<u32>]) -> Option<Vec<u32>> {
    let lanes = 1usize << network.log_lanes();
    let beats = 1usize << network.log_beats();
    let depth = 1usize << network.log_depth();
    let total = frames.len() * beats;
    let mut banks = vec![vec![u32::MAX; depth]; lanes];
    let mut output = Vec::new();
    let input: Vec<u32> = frames.concat();
    for cycle in 0..total + network.delay() + 1 {
        let writes = (cycle < total).then_some(cycle % depth);
        if let Some(out) = cycle.checked_sub(network.delay() + 1) {
            let (frame, beat) = (out / beats, out % beats);
            let mut words = Vec::with_capacity(lanes);
            for (bank, address) in banks.iter().zip(network.addresses(beat)) {
                let address = (frame * beats + address) % depth;
                if writes == Some(address) {
                    return None;
                }
                words.push(bank[address]);
            }
            switch(network, &mut words, network.second(beat), true);
            output.extend(words);
        }
        if let Some(address) = writes {
            let mut words = input[cycle * lanes..][..lanes].to_vec();
            switch(network, &mut words, network.first(cycle % beats), false);
            for (bank, word) in banks.iter_mut().zip(words) {
                bank[address] = word;
            }
        }
    }
    Some(output)
}

fn check_route(permutation: &Permutation, source: &[usize]) {
    let network = permutation.route();
    let words = source.len() as u32;
    let frames: Vec<Vec<u32>> = (0..3)
        .map(|frame| (frame * words..(frame + 1) * words).collect())
        .collect();
    let expected: Vec<u32> = frames
        .iter()
        .flat_map(|frame| source.iter().map(|from| frame[*from]))
        .collect();
    assert_eq!(play(&network, &frames), Some(expected), "{source:?}");
    let lanes = 1 << network.log_lanes();
    let forward = source
        .iter()
        .enumerate()
        .map(|(to, from)| (from / lanes).saturating_sub(to / lanes));
    assert_eq!(Some(network.delay()), forward.max());
}

/// Calls `visit` with every order of the numbers from `fixed` on.
fn orders(numbers: &mut Vec<usize>, fixed: usize, visit: &mut impl FnMut(&[usize])) {
    if fixed == numbers.len() {
        visit(numbers);
    }
    for i in fixed..numbers.len() {
        numbers.swap(fixed, i);
        orders(numbers, fixed + 1, visit);
        numbers.swap(fixed, i);
    }
}

#[test]
fn every_permutation_of_up_to_eight_words_is_routed() {
    for log in 0..=3u32 {
        for log_lanes in 0..=log {
            let mut count = 0;
            orders(&mut (0..1 << log).collect(), 0, &mut |source| {
                let permutation =
                    Permutation::new(log_lanes, log - log_lanes, source.to_vec()).unwrap();
                check_route(&permutation, source);
                count += 1;
            });
            assert_eq!(count, (1..=1 << log).product::<i32>());
        }
    }
}

/// Where the words of a permutation of bits come from, written down by itself.
fn source_of_bits(log: u32, bits: impl Fn(u32) -> u32) -> Vec<usize> {
    (0..1usize << log)
        .map(|word| {
            (0..log)
                .map(|bit| (word >> bit & 1) << bits(bit))
                .sum::<usize>()
        })
        .collect()
}

#[test]
fn strides_and_bit_reversals_are_routed() {
    for log in 1..=10 {
        for log_lanes in 0..=log.min(5) {
            let log_beats = log - log_lanes;
            for log_stride in 0..=log {
                let permutation = Permutation::stride(log_lanes, log_beats, log_stride).unwrap();
                let (rows, steps) = (1usize << (log - log_stride), 1usize << log_stride);
                let source: Vec<usize> = (0..steps)
                    .flat_map(|first| (0..rows).map(move |row| first + row * steps))
                    .collect();
                check_route(&permutation, &source);
            }
            let permutation = Permutation::bit_reversal(log_lanes, log_beats).unwrap();
            check_route(&permutation, &source_of_bits(log, |bit| log - 1 - bit));
        }
    }
}

#[test]
fn random_permutations_are_routed() {
    for (log_lanes, log_beats, count) in [(5, 5, 10), (3, 8, 5), (7, 0, 3), (0, 6, 3), (7, 12, 1)] {
        for seed in 0..count {
            let permutation = Permutation::random(log_lanes, log_beats, seed).unwrap();
            let source = permutation.apply(&(0..1 << (log_lanes + log_beats)).collect::<Vec<_>>());
            check_route(&permutation, &source);
        }
    }
}

#[test]
fn what_can_go_straight_does() {
    // A bit of the lane for the highest of the beat, as between two stages of a transform: one column on each side.
    let (log_lanes, log_beats) = (5, 7);
    let top = log_lanes + log_beats - 1;
    let exchange = |bit| match bit {
        2 => top,
        _ if bit == top => 2,
        _ => bit,
    };
    let network = Permutation::of_bits(log_lanes, log_beats, exchange)
        .unwrap()
        .route();
    assert_eq!(network.delay(), 64);
    assert_eq!(network.latency(), 66);
    for beat in 0..128 {
        for (i, crosses) in network.first(beat).iter().enumerate() {
            assert_eq!(*crosses, i / 16 == 2 && beat >= 64);
        }
        for (i, crosses) in network.second(beat).iter().enumerate() {
            assert_eq!(*crosses, i / 16 == 2 && beat >= 64);
        }
    }
    // Counters suffice for it.
    let parameters = network.parameters(Design::default());
    assert!(parameters.files.is_empty());
    // A permutation within beats that is the same in all is wires.
    let network = Permutation::of_bits(4, 3, |bit| if bit < 4 { 3 - bit } else { bit })
        .unwrap()
        .route();
    assert_eq!((network.delay(), network.latency()), (0, 0));
}

#[test]
fn what_is_no_permutation_is_refused() {
    let refusal = |source: &[usize]| Permutation::new(1, 1, source.to_vec()).unwrap_err();
    assert_eq!(
        refusal(&[0, 1, 2]),
        PermutationError::Length {
            expected: 4,
            found: 3
        }
    );
    for wrong in [[0, 1, 1, 3], [0, 4, 1, 3]] {
        assert!(matches!(refusal(&wrong), PermutationError::Source { .. }));
    }
    for (log_lanes, log_beats) in [(8, 1), (1, 21), (40, 40)] {
        let error = Permutation::bit_reversal(log_lanes, log_beats).unwrap_err();
        assert!(matches!(error, PermutationError::Shape { .. }));
    }
}

const OPTIONS: Options = Options::quick_random();

struct Bench {
    log_lanes: u32,
    log_beats: u32,
    permutation: Permutation,
    latency: u64,
    simulation: Simulation,
}

impl Bench {
    fn new(log_lanes: u32, log_beats: u32, permutation: Permutation) -> Bench {
        let network = permutation.route();
        let design = network.parameters(design("permutation").unwrap());
        let design = design.with("WIDTH", 24u32);
        let latency = network.latency() as u64;
        Bench::of(design, latency, log_lanes, log_beats, permutation)
    }

    fn of(
        design: Design,
        latency: u64,
        log_lanes: u32,
        log_beats: u32,
        permutation: Permutation,
    ) -> Bench {
        let model = Model::build(&design, &OPTIONS).unwrap();
        let mut simulation = model.start_random(log_lanes + 1).unwrap();
        simulation.reset(1).unwrap();
        Bench {
            log_lanes,
            log_beats,
            permutation,
            latency,
            simulation,
        }
    }

    fn beats(&self, words: &[u64]) -> Vec<Beat> {
        let last = (1 << self.log_beats) - 1;
        let chunks = words.chunks(1 << self.log_lanes).enumerate();
        chunks
            .map(|(i, words)| Beat::of_words(words, 3, i & last == last))
            .collect()
    }

    /// Random frames, and what they become.
    fn frames(&self, count: usize, random: &mut Random) -> (Vec<Beat>, Vec<Beat>) {
        let (mut sent, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let words: Vec<u64> = (0..1 << (self.log_lanes + self.log_beats))
                .map(|_| random.below(1 << 24))
                .collect();
            sent.extend(self.beats(&words));
            expected.extend(self.beats(&self.permutation.apply(&words)));
        }
        (sent, expected)
    }

    /// Runs frames that come with a gap of `gap` cycles between them, if any.
    fn run(&mut self, frames: usize, stalls: (f64, f64), gap: Option<u64>, seed: u64) {
        let beats = 1usize << self.log_beats;
        let (sent, expected) = self.frames(frames, &mut Random::new(seed));
        let simulation = &mut self.simulation;
        let mut source = Source::new(simulation, "in", stalls.0, seed).unwrap();
        let mut sink = Sink::new(simulation, "out", stalls.1, seed ^ 1).unwrap();
        let ready = simulation.output("in_tready_o", 1).unwrap();
        let error = simulation.output("error_o", 1).unwrap();
        let start = simulation.cycles();
        let mut sent = sent.into_iter();
        for n in 0.. {
            if sink.received().len() == expected.len() {
                break;
            }
            assert!(n < 20 * (expected.len() as u64 + 100), "no more beats");
            let period = beats as u64 + gap.unwrap_or(0);
            if gap.is_none() || n % period < beats as u64 {
                source.extend(sent.next());
            }
            // Back-pressure begins at the output.
            assert!(stalls.1 > 0.0 || simulation.get(ready) == 1);
            simulation.cycle(&mut [&mut source, &mut sink]).unwrap();
            assert_eq!(simulation.get(error), 0);
        }
        assert_eq!(sink.received(), expected);
        if stalls == (0.0, 0.0) {
            let latency = self.latency;
            assert_eq!(sink.first_cycle().unwrap() - start, latency);
            let last = (frames as u64 - 1) * (beats as u64 + gap.unwrap_or(0)) + beats as u64 - 1;
            assert_eq!(sink.last_cycle().unwrap() - start, last + latency);
        }
    }

    fn verify(&mut self) {
        self.run(5, (0.0, 0.0), None, 1);
        for gap in [1, 3, 1 << self.log_beats, 40] {
            self.run(4, (0.0, 0.0), Some(gap), 2);
        }
        let stalls = [(0.5, 0.0), (0.0, 0.5), (0.5, 0.5), (0.1, 0.9), (0.95, 0.0)];
        for (seed, stalls) in (3..).zip(stalls) {
            self.run(12, stalls, None, seed);
        }
        // Resets anywhere within three frames.
        let mut random = Random::new(9);
        for seed in 0..6 {
            let (sent, _) = self.frames(3, &mut random);
            let simulation = &mut self.simulation;
            let mut source = Source::new(simulation, "in", 0.0, seed).unwrap();
            let mut sink = Sink::new(simulation, "out", 0.2, seed).unwrap();
            let cycles = random.below(3 << self.log_beats) + 1;
            source.extend(sent);
            for _ in 0..cycles {
                simulation.cycle(&mut [&mut source, &mut sink]).unwrap();
            }
            let valid = simulation.input("in_tvalid_i", 1).unwrap();
            simulation.set(valid, 0);
            simulation.reset(1).unwrap();
            self.run(2, (0.0, 0.0), None, seed);
        }
    }
}

fn verify(log_lanes: u32, log_beats: u32, permutation: Result<Permutation, PermutationError>) {
    if !tests_are_skipped() {
        Bench::new(log_lanes, log_beats, permutation.unwrap()).verify();
    }
}

#[test]
fn strides() {
    for log_stride in 1..=3 {
        verify(2, 2, Permutation::stride(2, 2, log_stride));
    }
}

#[test]
fn bit_reversal_of_eight_lanes() {
    verify(3, 4, Permutation::bit_reversal(3, 4));
}

#[test]
fn random_permutations() {
    verify(4, 3, Permutation::random(4, 3, 1));
    // Without switches, in an order that needs a ROM.
    verify(0, 4, Permutation::random(0, 4, 2));
}

/// A bit of the lane for one of the beat on two lanes, with frames of twice the beats that move: all from counters.
#[test]
fn two_lanes_from_counters() {
    let exchange = |bit| [2, 1, 0, 3][bit as usize];
    verify(1, 3, Permutation::of_bits(1, 3, exchange));
}

/// Different in each beat, but without memory: registers are between the columns.
#[test]
fn within_beats() {
    let random = Permutation::random(3, 0, 5).unwrap();
    let mut source: Vec<usize> = (0..32).collect();
    for (beat, words) in source.chunks_mut(8).enumerate() {
        for _ in 0..beat {
            let moved = random.apply(words);
            words.copy_from_slice(&moved);
        }
    }
    verify(3, 2, Permutation::new(3, 2, source));
}

#[test]
fn a_packet_of_another_length_is_reported() {
    if tests_are_skipped() {
        return;
    }
    let mut bench = Bench::new(2, 2, Permutation::stride(2, 2, 1).unwrap());
    let simulation = &mut bench.simulation;
    let error = simulation.output("error_o", 1).unwrap();
    let mut source = Source::new(simulation, "in", 0.0, 0).unwrap();
    for (last, is_wrong) in [(false, 0), (true, 1), (false, 0), (false, 1), (false, 0)] {
        source.push(Beat::of_words(&[0; 4], 3, last));
        simulation.cycle(&mut [&mut source]).unwrap();
        assert_eq!(simulation.get(error), is_wrong);
    }
}

#[test]
fn illegal_parameters_are_refused() {
    if tests_are_skipped() {
        return;
    }
    type Case = (&'static str, &'static [(&'static str, u32)], &'static str);
    let cases: [Case; 6] = [
        ("permutation", &[("LOG_LANES", 8)], "0 <= LOG_LANES <= 7"),
        (
            "permutation",
            &[("WIDTH", 65)],
            "permutation: WIDTH must be 1 to 64",
        ),
        (
            "permutation",
            &[("LOG_BEATS", 2), ("DELAY", 4)],
            "0 <= DELAY < 2^LOG_BEATS is needed",
        ),
        (
            "permutation",
            &[("LOG_BEATS", 2), ("DELAY", 3), ("LOG_DEPTH", 2)],
            "DELAY + 2 <= 2^LOG_DEPTH <= 2^(LOG_BEATS + 1) is needed",
        ),
        (
            "permutation",
            &[("LOG_BEATS", 2), ("DELAY", 2), ("LOG_DEPTH", 4)],
            "DELAY + 2 <= 2^LOG_DEPTH <= 2^(LOG_BEATS + 1) is needed",
        ),
        (
            "permutation",
            &[("WRITE_BITS", 1)],
            "must name the contents of ROMs",
        ),
    ];
    for (top, parameters, sentence) in cases {
        let design = design(top).unwrap();
        let design = parameters
            .iter()
            .fold(design, |design, (name, value)| design.with(name, *value));
        let message = refusal(&design);
        assert!(message.contains(sentence), "{parameters:?}: {message}");
    }
}

#[test]
fn the_list_of_cores_makes_it() {
    let core = find("permutation").unwrap();
    let given = [("KIND", 1), ("LOG_STRIDE", 9), ("LOG_BEATS", 4)];
    let values = Values::new(core, given).unwrap();
    let message = core.configure(&values).map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("LOG_STRIDE must be at most"), "{message}");
    if tests_are_skipped() {
        return;
    }
    let values = Values::new(core, [("KIND", 2), ("WIDTH", 28)]).unwrap();
    let outcome = crate::test(core, &values, 500, 7, None, &Progress::none()).unwrap();
    assert_eq!(outcome.measured, outcome.expected);
    assert!(outcome.compared >= 500);
}

#[test]
fn the_list_of_cores_makes_any_permutation() {
    let core = find("permutation").unwrap();
    let parameters = [
        ("KIND", 3),
        ("LOG_LANES", 1),
        ("LOG_BEATS", 2),
        ("WIDTH", 8),
    ];
    let values = || Values::new(core, parameters).unwrap();
    let refusal = |values: &Values| {
        let error = core.configure(values).map(|_| ()).unwrap_err();
        assert!(error.is_usage(), "{error:?}");
        error.to_string()
    };
    assert!(refusal(&values()).contains("KIND 3 needs a list"));
    for (list, expected) in [
        (
            vec![0, 1],
            "expected a source for each of the 8 words of a frame, found 2",
        ),
        (vec![0; 9], "8 words of a frame, found 9"),
        (
            vec![7, 0, 7, 1, 2, 3, 4, 5],
            "word 2 takes input word 7, which is not there or taken",
        ),
        (
            vec![0, 1, 2, 3, 4, 5, 6, 8],
            "word 7 takes input word 8, which is not there or taken",
        ),
    ] {
        let message = refusal(&values().with_list(core, list).unwrap());
        assert!(message.contains(expected), "{message}");
    }
    let random = Values::new(core, [("KIND", 2)]).unwrap();
    let other = find("goldilocks_mul").unwrap();
    for (core, values) in [(core, random), (other, Values::new(other, []).unwrap())] {
        let error = values.with_list(core, vec![0]).unwrap_err();
        assert!(
            error.is_usage() && error.to_string().contains("takes no list"),
            "{error}"
        );
    }
    if tests_are_skipped() {
        return;
    }
    let source = [5, 0, 7, 1, 6, 3, 4, 2];
    let values = values().with_list(core, source.to_vec()).unwrap();
    // What leaves is in the order of the list, whatever the core's own vectors say.
    let Some(Vectors::Streams(streams)) = core.configure(&values).unwrap().vectors(1, 3) else {
        panic!("the core has streams");
    };
    let words =
        |beats: &[Beat]| -> Vec<u64> { beats[..4].iter().flat_map(|beat| beat.words(1)).collect() };
    let sent = words(&streams.sent);
    assert_eq!(
        words(&streams.expected),
        source.map(|from| sent[from]).to_vec()
    );
    let outcome = crate::test(core, &values, 100, 7, None, &Progress::none()).unwrap();
    assert_eq!(outcome.measured, outcome.expected);
}
