//! The core `ntt_inplace` against `toroid_ring::ntt::NttPlan`.

use crate::ntt_inplace::{transform_beats, twiddle_rom};
use crate::sources::design;
use crate::testing::refusal;
use crate::{CoreError, Values, find};
use toroid_ring::goldilocks::P;
use toroid_ring::ntt::NttPlan;
use toroid_sim::model::{Design, Model, Options};
use toroid_sim::random::Random;
use toroid_sim::simulation::Simulation;
use toroid_sim::stream::{Beat, Sink, Source};
use toroid_sim::toolchain::tests_are_skipped;
use toroid_task::Progress;

/// Cycles from a beat of a transform to the next that may read its words: to the lanes 7, the butterfly 13, the write 2.
const HAZARD: u64 = 22;

#[derive(Clone, Copy)]
struct Setting {
    log_n: u32,
    log_lanes: u32,
    circuits: u32,
}

/// As many polynomials as there are circuits, and where to.
struct Transform {
    is_inverse: bool,
    polynomials: Vec<Vec<u64>>,
}

impl Setting {
    fn beats(&self) -> usize {
        1 << (self.log_n - self.log_lanes)
    }

    fn design(&self) -> Design {
        let rom = twiddle_rom(self.log_n, self.log_lanes).unwrap();
        self.design_with(rom)
    }

    fn design_with(&self, rom: String) -> Design {
        design("ntt_inplace")
            .unwrap()
            .with("LOG_N", self.log_n)
            .with("LOG_LANES", self.log_lanes)
            .with("CIRCUITS", self.circuits)
            .with_file("TWIDDLE_FILE", "twiddles.hex", rom.into_bytes())
    }

    fn model(&self) -> Model {
        Model::build(&self.design(), &Options::quick_random()).unwrap()
    }

    fn transforms(&self, count: usize, random: &mut Random) -> Vec<Transform> {
        let extremes = [
            0,
            1,
            0xffff_ffff,
            1 << 32,
            0xffff_ffff_0000_0000,
            P - 2,
            P - 1,
        ];
        let transform = |i| {
            let mut word = || match i % 4 {
                0 => random.below(P),
                1 => P - 1,
                2 => extremes[random.below(extremes.len() as u64) as usize],
                _ => random.below(2) * (P - 1),
            };
            let mut polynomial = || (0..1 << self.log_n).map(|_| word()).collect();
            let polynomials = (0..self.circuits).map(|_| polynomial()).collect();
            Transform {
                // Each kind of input in both directions, and all orders of directions.
                is_inverse: (i / 4 + i) % 2 == 1,
                polynomials,
            }
        };
        (0..count).map(transform).collect()
    }

    /// Runs transforms back to back; returns the cycles from the first beat in to the last one out.
    fn run(
        &self,
        simulation: &mut Simulation,
        transforms: &[Transform],
        stalls: (f64, f64),
        seed: u64,
    ) -> u64 {
        let (mut source, mut sink) = self.agents(simulation, transforms, stalls, seed);
        let error = simulation.output("error_o", 1).unwrap();
        let beats = self.beats() * transforms.len();
        let limit = 20 * (beats as u64 + 100) * u64::from(self.log_n);
        let begin = simulation.cycles();
        let mut first = None;
        while sink.received().len() < beats {
            assert!(simulation.cycles() - begin < limit, "no more results");
            simulation.cycle(&mut [&mut source, &mut sink]).unwrap();
            assert_eq!(simulation.get(error), 0);
            if source.sent() > 0 {
                first.get_or_insert(simulation.cycles() - 1);
            }
        }
        self.check(transforms, &sink);
        sink.last_cycle().unwrap() + 1 - first.unwrap()
    }

    fn agents(
        &self,
        simulation: &Simulation,
        transforms: &[Transform],
        stalls: (f64, f64),
        seed: u64,
    ) -> (Source, Sink) {
        let mut source = Source::new(simulation, "in", stalls.0, seed).unwrap();
        let mut noise = Random::new(seed ^ 1);
        for transform in transforms {
            for beat in 0..self.beats() {
                let words = beat << self.log_lanes..(beat + 1) << self.log_lanes;
                let of_circuits = transform.polynomials.iter().flat_map(|p| &p[words.clone()]);
                let words: Vec<u64> = of_circuits.copied().collect();
                let user = match beat {
                    0 => transform.is_inverse.into(),
                    _ => noise.word() & 1,
                };
                source.push(Beat::of_words(&words, 8, beat == self.beats() - 1).with_user(user));
            }
        }
        let sink = Sink::new(simulation, "out", stalls.1, seed ^ 2).unwrap();
        (source, sink)
    }

    /// Compares results with the library's.
    fn check(&self, transforms: &[Transform], sink: &Sink) {
        let plan = NttPlan::new(1 << self.log_n).unwrap();
        let lanes = 1 << self.log_lanes;
        let results = sink.received().chunks(self.beats());
        for (i, (transform, beats)) in transforms.iter().zip(results).enumerate() {
            for (n, beat) in beats.iter().enumerate() {
                let flags = (beat.user == 1, beat.last);
                assert_eq!(
                    flags,
                    (transform.is_inverse, n + 1 == self.beats()),
                    "tuser, tlast"
                );
            }
            let words: Vec<Vec<u64>> = beats.iter().map(|beat| beat.words(8)).collect();
            for (circuit, polynomial) in transform.polynomials.iter().enumerate() {
                let mut expected = polynomial.clone();
                match transform.is_inverse {
                    true => plan.inverse(&mut expected),
                    false => plan.forward(&mut expected),
                }
                let found = words
                    .iter()
                    .flat_map(|words| &words[circuit * lanes..][..lanes]);
                let wrong = found
                    .zip(&expected)
                    .position(|(found, expected)| found != expected);
                assert_eq!(
                    wrong, None,
                    "first wrong word of transform {i}, circuit {circuit}"
                );
            }
        }
    }

    /// The formulas of the README: of a transform alone, from the first beat in to the last one out, and from one to
    /// the next where streams do not stall.
    fn cycles(&self, is_inverse: bool) -> (u64, u64) {
        let beats = self.beats() as u64;
        let transform = transform_beats(self.log_n, self.log_lanes, is_inverse, HAZARD) + HAZARD;
        (2 * beats + transform + 9, beats + transform + 1)
    }

    fn verify(&self, count: usize) {
        if tests_are_skipped() {
            return;
        }
        let model = self.model();
        let mut simulation = model.start_random(self.log_n).unwrap();
        simulation.reset(1).unwrap();
        let mut random = Random::new(u64::from(self.log_n * 100 + self.log_lanes));

        let transforms = self.transforms(count, &mut random);
        let measured = self.run(&mut simulation, &transforms, (0.0, 0.0), 1);
        let (last, before) = transforms.split_last().unwrap();
        let intervals: u64 = before
            .iter()
            .map(|transform| self.cycles(transform.is_inverse).1)
            .sum();
        assert_eq!(measured, intervals + self.cycles(last.is_inverse).0);

        for (seed, stalls) in [(0.5, 0.5), (0.0, 0.8), (0.8, 0.0)].into_iter().enumerate() {
            let transforms = self.transforms(count, &mut random);
            self.run(&mut simulation, &transforms, stalls, seed as u64);
        }

        // Resets while beats enter, within rows, and while results leave.
        let (alone, _) = self.cycles(false);
        for reset in 0..6 {
            let transforms = self.transforms(2, &mut random);
            let (mut source, mut sink) = self.agents(&simulation, &transforms, (0.0, 0.1), reset);
            for _ in 0..(alone / 6 * reset + random.below(alone / 6)) {
                simulation.cycle(&mut [&mut source, &mut sink]).unwrap();
            }
            let valid = simulation.input("in_tvalid_i", 1).unwrap();
            simulation.set(valid, 0);
            simulation.reset(1).unwrap();
            if count > 2 || reset == 5 {
                let transforms = self.transforms(count.min(2), &mut random);
                self.run(&mut simulation, &transforms, (0.0, 0.0), reset);
            }
        }
    }
}

#[test]
fn two_words_a_bank() {
    let setting = Setting {
        log_n: 3,
        log_lanes: 2,
        circuits: 1,
    };
    setting.verify(16);
}

#[test]
fn three_whole_chunks() {
    let setting = Setting {
        log_n: 6,
        log_lanes: 2,
        circuits: 1,
    };
    setting.verify(16);
}

#[test]
fn a_short_chunk_and_two_circuits() {
    let setting = Setting {
        log_n: 7,
        log_lanes: 3,
        circuits: 2,
    };
    setting.verify(16);
}

#[test]
fn rows_that_wait() {
    let setting = Setting {
        log_n: 5,
        log_lanes: 3,
        circuits: 1,
    };
    setting.verify(8);
}

#[test]
fn four_chunks_and_one_of_one_bit() {
    let setting = Setting {
        log_n: 13,
        log_lanes: 3,
        circuits: 1,
    };
    setting.verify(8);
}

#[test]
fn degree_65536() {
    let setting = Setting {
        log_n: 16,
        log_lanes: 4,
        circuits: 1,
    };
    setting.verify(2);
}

/// The paper's: a pair of 16384-point transforms on two circuits of 16 butterflies.
#[test]
fn the_papers_pair_of_transforms() {
    let setting = Setting {
        log_n: 14,
        log_lanes: 5,
        circuits: 2,
    };
    for is_inverse in [false, true] {
        let transform = transform_beats(14, 5, is_inverse, HAZARD) + HAZARD;
        assert_eq!(transform, 7168 + 22, "at most 7168 and 1 %");
    }
    setting.verify(2);
}

#[test]
fn a_packet_of_another_length_is_reported() {
    if tests_are_skipped() {
        return;
    }
    let setting = Setting {
        log_n: 3,
        log_lanes: 2,
        circuits: 1,
    };
    let mut simulation = setting.model().start().unwrap();
    simulation.reset(1).unwrap();
    let error = simulation.output("error_o", 1).unwrap();
    let mut source = Source::new(&simulation, "in", 0.0, 0).unwrap();
    for (last, is_wrong) in [(true, 1), (false, 1)] {
        source.push(Beat::of_words(&[0; 4], 8, last));
        simulation.cycle(&mut [&mut source]).unwrap();
        assert_eq!(simulation.get(error), is_wrong);
    }
    simulation.cycle(&mut [&mut source]).unwrap();
    assert_eq!(simulation.get(error), 0);
}

#[test]
fn illegal_parameters_are_refused() {
    if tests_are_skipped() {
        return;
    }
    let rom = || twiddle_rom(3, 2).unwrap();
    let refused = |log_n, log_lanes, circuits| {
        let setting = Setting {
            log_n,
            log_lanes,
            circuits,
        };
        refusal(&setting.design_with(rom()))
    };
    for (log_n, log_lanes) in [(3, 3), (21, 3), (3, 1), (17, 2)] {
        let message = refused(log_n, log_lanes, 1);
        assert!(message.contains("LOG_LANES < LOG_N <= 20"), "{message}");
    }
    for circuits in [0, 9] {
        let message = refused(3, 2, circuits);
        assert!(message.contains("CIRCUITS must be 1 to 8"), "{message}");
    }
    let without_table = design("ntt_inplace").unwrap();
    let message = refusal(&without_table);
    assert!(
        message.contains("TWIDDLE_FILE must name the table"),
        "{message}"
    );
}

#[test]
fn the_list_of_cores_makes_it() {
    let core = find("ntt_inplace").unwrap();
    for (log_n, log_lanes) in [(5, 5), (17, 2)] {
        let values = Values::new(core, [("LOG_N", log_n), ("LOG_LANES", log_lanes)]).unwrap();
        let error = core.configure(&values).map(|_| ()).unwrap_err();
        assert!(
            matches!(
                error,
                CoreError::Value {
                    name: "LOG_LANES",
                    ..
                }
            ),
            "{error}"
        );
    }
    if tests_are_skipped() {
        return;
    }
    // Tiles of ECP5, with which the multiplier takes longer.
    let given = [
        ("LOG_N", 3),
        ("LOG_LANES", 2),
        ("CIRCUITS", 1),
        ("TILE_A", 18),
        ("TILE_B", 18),
    ];
    let values = Values::new(core, given).unwrap();
    let outcome = crate::test(core, &values, 40, 7, None, &Progress::none()).unwrap();
    assert_eq!(outcome.measured, outcome.expected);
    assert!(outcome.compared >= 40);
}
