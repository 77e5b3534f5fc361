use super::*;
use crate::sources;
use toroid_ring::goldilocks::{P, mul, pow};
use toroid_ring::ntt::NttPlan;
use toroid_sim::model::{Design, Model, Options};
use toroid_sim::random::Random;
use toroid_sim::simulation::Simulation;
use toroid_sim::toolchain::tests_are_skipped;

/// Words on which sums and reductions are at their ends.
const EXTREMES: [u64; 8] = [
    0,
    1,
    (1 << 32) - 1,
    1 << 32,
    P >> 1,
    P - (1 << 32),
    P - 2,
    P - 1,
];

/// A transform's size, and the cycles from its first beat in to its first beat out.
#[derive(Clone, Copy)]
struct Shape {
    log_n: u32,
    log_lanes: u32,
    karatsuba: u64,
    latency: usize,
}

/// The words of a frame in the order in which they enter, and those that must leave.
struct Frame {
    is_inverse: bool,
    sent: Vec<u64>,
    expected: Vec<u64>,
}

impl Shape {
    fn design(self) -> Design {
        let rom = twiddle_rom(self.log_n, self.log_lanes).unwrap();
        sources::design("stream_transform")
            .unwrap()
            .with_file("TWIDDLE_FILE", "twiddles.hex", rom.into_bytes())
            .with("LOG_N", self.log_n)
            .with("LOG_LANES", self.log_lanes)
            .with("KARATSUBA", self.karatsuba)
    }

    fn start(self) -> Simulation {
        let model = Model::build(&self.design(), &Options::quick_random()).unwrap();
        let mut simulation = model.start_random(self.log_n).unwrap();
        simulation.reset(2).unwrap();
        simulation
    }

    fn lanes(self) -> usize {
        1 << self.log_lanes
    }

    fn beats(self) -> usize {
        1 << (self.log_n - self.log_lanes)
    }

    /// Coefficients in columns, each multiplied by a power of psi^R of its row.
    fn columns(self, coefficients: &[u64], is_inverse: bool) -> Vec<u64> {
        let degree = coefficients.len();
        let root = 1 << (self.log_n / 2);
        let psi = goldilocks::psi(degree).unwrap();
        let word = |place: usize| {
            let (column, row) = (place / root, place % root);
            let exponent = match is_inverse {
                false => root * row,
                true => 2 * degree - root * row,
            };
            mul(coefficients[row * root + column], pow(psi, exponent as u64))
        };
        (0..degree).map(word).collect()
    }

    fn frame(self, random: &mut Random, is_extreme: bool) -> Frame {
        let is_inverse = random.chance(0.5);
        let mut word = || match is_extreme {
            true => EXTREMES[random.below(EXTREMES.len() as u64) as usize],
            false => random.below(P),
        };
        let plan = NttPlan::new(1 << self.log_n).unwrap();
        let words: Vec<u64> = (0..1 << self.log_n).map(|_| word()).collect();
        let mut results = words.clone();
        match is_inverse {
            false => {
                // What the twist makes of these words is `sent`.
                let sent = self.columns(&words, false);
                plan.forward(&mut results);
                Frame {
                    is_inverse,
                    sent,
                    expected: results,
                }
            }
            true => {
                plan.inverse(&mut results);
                Frame {
                    is_inverse,
                    expected: self.columns(&results, true),
                    sent: words,
                }
            }
        }
    }

    /// Frames with so many idle cycles before each; `lost` cycles after the first of them, a reset, after which nothing leaves.
    fn run(self, simulation: &mut Simulation, frames: &[(usize, Frame)], lost: Option<usize>) {
        let width = 64 * self.lanes() as u32;
        let [first, inverse, reset] =
            ["first_i", "inverse_i", "rst_ni"].map(|name| simulation.input(name, 1).unwrap());
        let data = simulation.input("data_i", width).unwrap();
        let [valid, first_out, inverse_out] =
            ["valid_o", "first_o", "inverse_o"].map(|name| simulation.output(name, 1).unwrap());
        let data_out = simulation.output("data_o", width).unwrap();
        let mut sent = Vec::new();
        for (gap, frame) in frames {
            sent.extend((0..*gap).map(|_| None));
            sent.extend((0..self.beats()).map(|beat| Some((frame, beat))));
        }
        let cycles = lost.unwrap_or(sent.len() + self.latency + 2 * self.beats());
        let mut noise = Random::new(cycles as u64);
        for cycle in 0..cycles {
            let entering = sent.get(cycle).copied().flatten();
            let is_first = entering.is_some_and(|(_, beat)| beat == 0);
            simulation.set(first, is_first.into());
            let direction = match entering {
                Some((frame, 0)) => frame.is_inverse.into(),
                _ => noise.word() & 1,
            };
            simulation.set(inverse, direction);
            for lane in 0..self.lanes() {
                let word = match entering {
                    Some((frame, beat)) => frame.sent[beat * self.lanes() + lane],
                    None => noise.word(),
                };
                simulation.set_bits(data, 64 * lane as u32, 64, word);
            }
            simulation.settle().unwrap();
            let leaving = cycle
                .checked_sub(self.latency)
                .and_then(|cycle| sent.get(cycle).copied().flatten());
            assert_eq!(
                simulation.get(valid),
                u64::from(leaving.is_some()),
                "cycle {cycle}"
            );
            let is_first = leaving.is_some_and(|(_, beat)| beat == 0);
            assert_eq!(
                simulation.get(first_out),
                u64::from(is_first),
                "cycle {cycle}"
            );
            if let Some((frame, beat)) = leaving {
                assert_eq!(simulation.get(inverse_out), u64::from(frame.is_inverse));
                let words: Vec<u64> = (0..self.lanes())
                    .map(|lane| simulation.get_bits(data_out, 64 * lane as u32, 64))
                    .collect();
                let expected = &frame.expected[beat * self.lanes()..][..self.lanes()];
                assert_eq!(
                    words, expected,
                    "cycle {cycle}, beat {beat}, inverse {}",
                    frame.is_inverse
                );
            }
            simulation.tick().unwrap();
        }
        simulation.set(first, 0);
        simulation.set(reset, 1);
    }

    fn check(self) {
        if tests_are_skipped() {
            return;
        }
        let mut simulation = self.start();
        let mut random = Random::new(self.log_n.into());
        let mut frames = |shape: Shape, count: usize, longest: u64| -> Vec<(usize, Frame)> {
            (0..count)
                .map(|n| {
                    let gap = match longest == 0 || random.chance(0.5) {
                        true => 0,
                        false => random.below(longest) as usize,
                    };
                    (gap, shape.frame(&mut random, n % 2 == 1))
                })
                .collect()
        };
        self.run(&mut simulation, &frames(self, 8, 0), None);
        let longest = 3 * self.beats() as u64;
        self.run(&mut simulation, &frames(self, 12, longest), None);
        let all = self.latency + 4 * self.beats();
        for part in 1..8 {
            self.run(
                &mut simulation,
                &frames(self, 4, 5),
                Some(all * part / 8 + part),
            );
            simulation.reset(1).unwrap();
            self.run(&mut simulation, &frames(self, 2, 5), None);
        }
    }
}

#[test]
fn transforms_are_those_of_the_library() {
    for (karatsuba, latency) in [(8, 137), (0, 135)] {
        let shape = Shape {
            log_n: 8,
            log_lanes: 2,
            karatsuba,
            latency,
        };
        shape.check();
    }
}

/// 128 points have factors of two terms.
#[test]
fn transforms_of_the_largest_degree_are_those_of_the_library() {
    if tests_are_skipped() {
        return;
    }
    let shape = Shape {
        log_n: 14,
        log_lanes: 4,
        karatsuba: 8,
        latency: 1137,
    };
    let mut simulation = shape.start();
    let mut random = Random::new(1);
    let mut frames: Vec<(usize, Frame)> = (0..3)
        .map(|n| (n % 2, shape.frame(&mut random, n == 1)))
        .collect();
    // Both directions, whatever the random ones are.
    while !frames.iter().any(|(_, frame)| frame.is_inverse)
        || frames.iter().all(|(_, frame)| frame.is_inverse)
    {
        frames.push((0, shape.frame(&mut random, true)));
    }
    shape.run(&mut simulation, &frames, None);
}
