//! The modules of `hw/lib` against plain integer arithmetic.

use crate::sources;
use crate::testing::refusal;
use toroid_ring::goldilocks::P;
use toroid_ring::prime::{self, inv, mul, pow};
use toroid_sim::model::{Design, Model, Options, Value};
use toroid_sim::random::Random;
use toroid_sim::simulation::Simulation;
use toroid_sim::stream::{Beat, Sink, Source, transfer};
use toroid_sim::toolchain::tests_are_skipped;

const OPTIONS: Options = Options::quick_random();
const Q28: u64 = (1 << 28) - (1 << 16) + 1;
const M61: u64 = (1 << 61) - 1;

/// `MOD_*` of `toroid_pkg::modulus_e`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Goldilocks = 0,
    Solinas = 1,
    Montgomery = 2,
    Barrett = 3,
}

/// A modulus, how it is reduced, and whether the pipeline is short.
#[derive(Clone, Copy)]
struct Setting {
    kind: Kind,
    q: u64,
    short: bool,
    latency: usize,
}

impl Setting {
    const fn new(kind: Kind, q: u64, short: bool, latency: usize) -> Setting {
        Setting {
            kind,
            q,
            short,
            latency,
        }
    }

    fn width(&self) -> u32 {
        64 - self.q.leading_zeros()
    }

    fn start(&self, top: &str) -> Simulation {
        let q = Value::Bits {
            width: self.width(),
            hex: format!("{:x}", self.q),
        };
        let mut design = sources::design(top)
            .unwrap()
            .with("KIND", self.kind as u32)
            .with("WIDTH", self.width())
            .with("SHORT", u32::from(self.short));
        design.parameters.push(("Q".to_owned(), q));
        Model::build(&design, &OPTIONS)
            .unwrap()
            .start_random(1)
            .unwrap()
    }

    /// The inverse of the factor R that a Montgomery product carries.
    fn factor(&self) -> u64 {
        if self.kind != Kind::Montgomery {
            return 1;
        }
        let word = (self.q - 1).trailing_zeros().min(17);
        let bits = self.width().div_ceil(word) * word;
        inv(pow(2, bits.into(), self.q), self.q)
    }

    /// Words at the ends of reductions and carries, and random ones.
    fn word(&self, random: &mut Random) -> u64 {
        let shift = random.below(u64::from(self.width()));
        let word = match random.below(6) {
            0 => self.q - 1 - random.below(3),
            1 => random.below(3),
            2 => u64::MAX << shift,
            3 => u64::MAX >> shift,
            _ => random.word(),
        };
        word % self.q
    }
}

/// Gives a module a row of inputs per cycle and takes each row of outputs `latency` cycles later.
fn answers<'a>(
    simulation: &mut Simulation,
    inputs: &[&str],
    outputs: &[&str],
    latency: usize,
    rows: impl ExactSizeIterator<Item = &'a Vec<u64>>,
) -> Vec<Vec<u64>> {
    let ports = |simulation: &Simulation, names: &[&str]| -> Vec<_> {
        let port = |name: &&str| simulation.port(name).unwrap();
        names.iter().map(port).collect()
    };
    let (inputs, outputs) = (ports(simulation, inputs), ports(simulation, outputs));
    let cycles = rows.len() + latency - 1;
    let mut rows = rows;
    let mut found = Vec::new();
    for cycle in 0..cycles {
        if let Some(words) = rows.next() {
            for (&port, &word) in inputs.iter().zip(words) {
                simulation.set(port, word);
            }
        }
        simulation.tick().unwrap();
        if cycle + 1 >= latency {
            found.push(outputs.iter().map(|&port| simulation.get(port)).collect());
        }
    }
    found
}

/// Gives a module a row of inputs per cycle and expects each row of outputs `latency` cycles later.
fn stream(
    simulation: &mut Simulation,
    inputs: &[&str],
    outputs: &[&str],
    latency: usize,
    rows: &[(Vec<u64>, Vec<u64>)],
) {
    let given = rows.iter().map(|(words, _)| words);
    let found = answers(simulation, inputs, outputs, latency, given);
    for (row, ((words, expected), found)) in rows.iter().zip(&found).enumerate() {
        assert_eq!(
            found, expected,
            "row {row}, inputs {words:x?}, modules {simulation:?}"
        );
    }
}

#[test]
fn products_of_every_reduction() {
    if tests_are_skipped() {
        return;
    }
    for setting in [
        Setting::new(Kind::Goldilocks, P, true, 4),
        Setting::new(Kind::Solinas, Q28, false, 9),
        Setting::new(Kind::Solinas, P, true, 4),
        Setting::new(Kind::Solinas, 12289, false, 11),
        Setting::new(Kind::Solinas, 65537, true, 4),
        Setting::new(Kind::Montgomery, P, false, 29),
        Setting::new(Kind::Montgomery, 40961, true, 12),
        Setting::new(Kind::Barrett, M61, false, 26),
        Setting::new(Kind::Barrett, 12289, true, 11),
    ] {
        let mut random = Random::new(setting.q);
        let factor = setting.factor();
        let q = setting.q;
        let rows: Vec<_> = (0..20_000)
            .map(|_| {
                let (a, b) = (setting.word(&mut random), setting.word(&mut random));
                (vec![a, b], vec![mul(mul(a, b, q), factor, q)])
            })
            .collect();
        let mut simulation = setting.start("mod_mul");
        stream(
            &mut simulation,
            &["a_i", "b_i"],
            &["p_o"],
            setting.latency,
            &rows,
        );
    }
}

#[test]
fn butterflies_of_every_reduction() {
    if tests_are_skipped() {
        return;
    }
    for (top, setting) in [
        (
            "butterfly_integrated",
            Setting::new(Kind::Goldilocks, P, false, 13),
        ),
        (
            "butterfly_integrated",
            Setting::new(Kind::Goldilocks, P, true, 5),
        ),
        (
            "butterfly_integrated",
            Setting::new(Kind::Solinas, Q28, true, 5),
        ),
        (
            "butterfly_integrated",
            Setting::new(Kind::Montgomery, Q28, false, 16),
        ),
        ("butterfly_ct", Setting::new(Kind::Goldilocks, P, false, 13)),
        ("butterfly_gs", Setting::new(Kind::Goldilocks, P, false, 13)),
    ] {
        let mut random = Random::new(setting.q);
        let factor = setting.factor();
        let q = setting.q;
        let add = |a, b| prime::add(a, b, q);
        let rows: Vec<_> = (0..20_000)
            .map(|_| {
                let [a, b, w] = [(); 3].map(|()| setting.word(&mut random));
                let twiddle = mul(w, factor, q);
                let product = mul(b, twiddle, q);
                let cooley_tukey = vec![add(a, product), add(a, q - product)];
                match top {
                    "butterfly_ct" => (vec![a, b, w], cooley_tukey),
                    "butterfly_gs" => (
                        vec![a, b, w],
                        vec![add(a, b), mul(add(a, q - b), twiddle, q)],
                    ),
                    _ if random.chance(0.5) => (vec![a, b, w, 0], cooley_tukey),
                    _ => (
                        vec![a, b, w, 1],
                        vec![add(a, b), mul(add(b, q - a), twiddle, q)],
                    ),
                }
            })
            .collect();
        let mut simulation = setting.start(top);
        let inputs = ["a_i", "b_i", "w_i", "inverse_i"];
        stream(
            &mut simulation,
            &inputs[..rows[0].0.len()],
            &["a_o", "b_o"],
            setting.latency,
            &rows,
        );
    }
}

/// A word up to `largest`, often one of the ends.
fn word_up_to(random: &mut Random, largest: u64) -> u64 {
    match random.below(4) {
        0 => largest - random.below(3).min(largest),
        1 => random.below(3).min(largest),
        _ => random.below(largest) + random.below(2),
    }
}

fn start(design: &Design) -> Simulation {
    let model = Model::build(design, &OPTIONS).unwrap();
    model.start_random(1).unwrap()
}

#[test]
fn butterflies_on_words_that_are_not_reduced() {
    if tests_are_skipped() {
        return;
    }
    for (i, j, is_inverse, has_bypass, is_short, narrow, latency) in [
        (14, 12, false, true, true, 0u32, 5),
        (14, 12, true, true, true, 3, 5),
        (28, 16, false, false, true, 3, 5),
        (28, 16, true, false, true, 0, 5),
        (27, 21, true, true, false, 0, 7),
        (60, 18, false, true, false, 0, 10),
    ] {
        let q = (1u64 << i) - (1 << j) + 1;
        let design = sources::design("butterfly_solinas")
            .unwrap()
            .with("I", i as u32)
            .with("J", j as u32)
            .with("INVERSE", u32::from(is_inverse))
            .with("BYPASS", u32::from(has_bypass))
            .with("SHORT", u32::from(is_short))
            .with("NARROW", narrow);
        let mut random = Random::new(q);
        let mut rows = Vec::new();
        let mut expected = Vec::new();
        let (shift, half) = (inv(pow(2, j, q), q), inv(2, q));
        for _ in 0..20_000 {
            let [a, b] = [(); 2].map(|()| word_up_to(&mut random, (2 << i) - 1));
            let passes = has_bypass && random.chance(0.3);
            // w * 2^J in (-q / 2, q / 2): its magnitude, its sign and w modulo q.
            let (mut magnitude, mut is_negative) =
                (word_up_to(&mut random, q / 2), random.chance(0.5));
            if passes && is_inverse {
                (magnitude, is_negative) = (1 << j, true);
            }
            let scaled = match is_negative {
                true => (q - magnitude) % q,
                false => magnitude,
            };
            let w = mul(scaled, shift, q);
            rows.push(vec![
                u64::from(passes),
                a,
                b,
                (u64::from(is_negative) << (i - 1)) | magnitude,
            ]);
            let (a, b) = (a % q, b % q);
            let (sum, difference) = (
                |x: u64, y: u64| (x + y) % q,
                |x: u64, y: u64| (x + q - y) % q,
            );
            expected.push(match (passes, is_inverse) {
                (true, _) => [a, b],
                (_, false) => [sum(a, mul(b, w, q)), difference(a, mul(b, w, q))],
                (_, true) => [mul(sum(a, b), half, q), mul(difference(a, b), w, q)],
            });
        }
        let mut simulation = start(&design);
        let inputs = ["bypass_i", "a_i", "b_i", "w_i"];
        let found = answers(
            &mut simulation,
            &inputs,
            &["a_o", "b_o"],
            latency,
            rows.iter(),
        );
        let multiples = if j == i - 2 { 3 } else { 2 };
        for ((row, expected), found) in rows.iter().zip(expected).zip(found) {
            let canonical: Vec<u64> = found.iter().map(|word| word % q).collect();
            assert_eq!(
                canonical, expected,
                "inputs {row:x?}, modules {simulation:?}"
            );
            assert!(
                found
                    .iter()
                    .all(|word| u128::from(*word) < multiples * u128::from(q)),
                "{found:x?} of {row:x?}, modules {simulation:?}"
            );
        }
    }
}

#[test]
fn butterflies_whose_modulus_changes_in_every_cycle() {
    if tests_are_skipped() {
        return;
    }
    for (is_inverse, is_short, latency) in [(false, false, 19), (true, true, 17)] {
        let design = sources::design("butterfly_montgomery")
            .unwrap()
            .with("WIDTH", 28u32)
            .with("WORD", 12u32)
            .with("INVERSE", u32::from(is_inverse))
            .with("BYPASS", 1u32)
            .with("SHORT", u32::from(is_short));
        let mut random = Random::new(latency as u64);
        let moduli = [Q28, 132_120_577, 786_433, 12_289];
        let rows: Vec<_> = (0..20_000)
            .map(|_| {
                let q = moduli[random.below(4) as usize];
                let radix = pow(2, 36, q);
                let [a, b, w] = [(); 3].map(|()| word_up_to(&mut random, q - 1));
                let passes = random.chance(0.3);
                let w = if passes && is_inverse { radix } else { w };
                let twiddle = mul(w, inv(radix, q), q);
                let product = mul(b, twiddle, q);
                let expected = match (passes, is_inverse) {
                    (true, _) => [a, b],
                    (_, false) => [(a + product) % q, (a + q - product) % q],
                    (_, true) => [
                        mul((a + b) % q, inv(2, q), q),
                        mul((a + q - b) % q, twiddle, q),
                    ],
                };
                (vec![q, u64::from(passes), a, b, w], expected.to_vec())
            })
            .collect();
        stream(
            &mut start(&design),
            &["q_i", "bypass_i", "a_i", "b_i", "w_i"],
            &["a_o", "b_o"],
            latency,
            &rows,
        );
    }
}

#[test]
fn columns_whose_modulus_changes_in_every_cycle() {
    if tests_are_skipped() {
        return;
    }
    // Three steps of 22 bits with a square in their inverse, five of 14 and a narrow tile, three whose inverse has no square.
    for (word, tiles, step, steps) in [
        (10u32, (24u32, 17u32), 22, 3),
        (6, (18, 18), 13, 5),
        (13, (24, 17), 22, 3),
    ] {
        let design = sources::design("montgomery_column")
            .unwrap()
            .with("COUNT", 1u32)
            .with("WORD", word)
            .with("TILE_A", tiles.0)
            .with("TILE_B", tiles.1);
        let mut random = Random::new(word.into());
        let rows: Vec<_> = (0..20_000)
            .map(|_| {
                // Any odd modulus will do: what is needed is its inverse modulo a power of two.
                let q = word_up_to(&mut random, u64::MAX) >> random.below(40) >> word << word | 1;
                let q = if q == 1 { u64::MAX << word | 1 } else { q };
                let [a, b] = [(); 2].map(|()| word_up_to(&mut random, q - 1));
                let half = |x: u64| match x & 1 {
                    0 => x >> 1,
                    _ => ((u128::from(x) + u128::from(q)) >> 1) as u64,
                };
                let product = (0..steps * step).fold(mul(a, b, q), |x, _| half(x));
                (vec![q, a, b], vec![product, q])
            })
            .collect();
        let latency = 5 + 4 * steps as usize;
        stream(
            &mut start(&design),
            &["q_i", "a_i", "b_i"],
            &["p_o", "q_o"],
            latency,
            &rows,
        );
    }
}

#[test]
fn products_with_a_narrow_row() {
    if tests_are_skipped() {
        return;
    }
    for (a_bits, b_bits, narrow, addend) in [(27u32, 29u32, 3u32, 0x5a5_a5a5u64), (50, 14, 2, 0)] {
        let mut design = sources::design("mul_tiles")
            .unwrap()
            .with("WIDTH_A", a_bits)
            .with("WIDTH_B", b_bits)
            .with("SHORT", 1u32)
            .with("NARROW", narrow);
        let addend_bits = Value::Bits {
            width: a_bits,
            hex: format!("{addend:x}"),
        };
        design.parameters.push(("ADDEND".to_owned(), addend_bits));
        let mut random = Random::new(a_bits.into());
        let rows: Vec<_> = (0..10_000)
            .map(|_| {
                let [a, b] = [a_bits, b_bits].map(|bits| word_up_to(&mut random, (1 << bits) - 1));
                (vec![a, b], vec![a * b + addend])
            })
            .collect();
        stream(&mut start(&design), &["a_i", "b_i"], &["p_o"], 3, &rows);
    }
}

#[test]
fn products_from_two_or_three_tiles_and_a_strip() {
    if tests_are_skipped() {
        return;
    }
    // Digits of an odd and an even strip, one and two a cycle, the widest and the least strips; tiles of both devices.
    for (bits, tiles, has_corner, addend, latency) in [
        ((31u32, 32u32), (24u32, 17u32), false, 0u64, 5),
        ((32, 32), (24, 17), false, 1, 6),
        ((32, 32), (24, 17), true, 1, 5),
        ((31, 31), (24, 17), true, 0, 5),
        ((26, 18), (24, 17), false, 1, 3),
        ((32, 32), (18, 18), true, 0, 7),
        ((31, 30), (16, 17), false, 0, 9),
    ] {
        let design = sources::design("mul_strip")
            .unwrap()
            .with("WIDTH_A", bits.0)
            .with("WIDTH_B", bits.1)
            .with("TILE_A", tiles.0)
            .with("TILE_B", tiles.1)
            .with("CORNER", u32::from(has_corner))
            .with("ADDEND", addend);
        let mut random = Random::new(bits.0.into());
        let rows: Vec<_> = (0..10_000)
            .map(|_| {
                let [a, b] = [bits.0, bits.1].map(|bits| word_up_to(&mut random, (1 << bits) - 1));
                (vec![a, b], vec![a * b + addend])
            })
            .collect();
        stream(
            &mut start(&design),
            &["a_i", "b_i"],
            &["p_o"],
            latency,
            &rows,
        );
    }
}

#[test]
fn products_of_any_words_by_karatsuba() {
    if tests_are_skipped() {
        return;
    }
    for (count, tiles, latency) in [
        (6u32, (24u32, 17u32), 13),
        (8, (24, 17), 13),
        (8, (18, 18), 16),
    ] {
        let design = sources::design("goldilocks_mul")
            .unwrap()
            .with("KARATSUBA", count)
            .with("TILE_A", tiles.0)
            .with("TILE_B", tiles.1);
        let mut random = Random::new(count.into());
        // Halves at their ends, and words that are not canonical.
        let largest = u64::from(u32::MAX);
        let rows: Vec<_> = (0..20_000)
            .map(|_| {
                let mut half = || word_up_to(&mut random, largest);
                let [a, b] = [(); 2].map(|()| half() << 32 | half());
                (vec![a, b], vec![mul(a, b, P)])
            })
            .collect();
        stream(
            &mut start(&design),
            &["a_i", "b_i"],
            &["p_o"],
            latency,
            &rows,
        );
    }
}

#[test]
fn halves() {
    if tests_are_skipped() {
        return;
    }
    let mut simulation = start(&sources::design("mod_half").unwrap());
    let [q_i, x_i, h_o] = ["q_i", "x_i", "h_o"].map(|name| simulation.port(name).unwrap());
    let mut random = Random::new(3);
    for _ in 0..5_000 {
        let (q, x) = (
            word_up_to(&mut random, u64::MAX) | 1,
            word_up_to(&mut random, u64::MAX),
        );
        simulation.set(q_i, q);
        simulation.set(x_i, x);
        simulation.settle().unwrap();
        let twice = u128::from(simulation.get(h_o)) * 2;
        let odd = u128::from(q) * u128::from(x & 1);
        assert_eq!(twice, u128::from(x) + odd, "{x:x} modulo {q:x}");
    }
}

#[test]
fn delays_count_steps() {
    if tests_are_skipped() {
        return;
    }
    // Registers, and rings of a memory.
    for (steps, ram_steps) in [(5, 6u32), (3, 3), (37, 3)] {
        let design = sources::design("stepped_delay")
            .unwrap()
            .with("WIDTH", 16u32)
            .with("STEPS", steps as u32)
            .with("RAM_STEPS", ram_steps);
        let mut simulation = start(&design);
        let [reset_n, step, data, out] =
            ["rst_ni", "step_i", "d_i", "q_o"].map(|name| simulation.port(name).unwrap());
        let mut random = Random::new(steps as u64);
        let mut compared = 0;
        for chance in [1.0, 0.5, 0.9, 0.1] {
            // A reset while words are in the pipeline; steps go on.
            for _ in 0..random.below(4) + 1 {
                simulation.set(reset_n, 0);
                simulation.set(step, random.below(2));
                simulation.set(data, random.below(1 << 16));
                simulation.tick().unwrap();
            }
            simulation.set(reset_n, 1);
            let mut words = Vec::new();
            for _ in 0..800 {
                let (steps_now, word) = (random.chance(chance), random.below(1 << 16));
                simulation.set(step, u64::from(steps_now));
                simulation.set(data, word);
                simulation.tick().unwrap();
                if steps_now {
                    words.push(word);
                }
                if let Some(late) = words.len().checked_sub(steps) {
                    assert_eq!(simulation.get(out), words[late], "{simulation:?}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 2_000);
    }
}

#[test]
fn memories() {
    if tests_are_skipped() {
        return;
    }
    let design = sources::design("ram_sdp")
        .unwrap()
        .with("WIDTH", 40u32)
        .with("DEPTH", 37u32);
    let mut simulation = Model::build(&design, &OPTIONS)
        .unwrap()
        .start_random(1)
        .unwrap();
    let [enable, to, data, from, out] =
        ["we_i", "waddr_i", "wdata_i", "raddr_i", "rdata_o"].map(|n| simulation.port(n).unwrap());
    let mut random = Random::new(1);
    let mut memory = [None; 37];
    let mut expected = [None; 2];
    for _ in 0..2_000 {
        let (address, word, reading) = (random.below(37), random.word() >> 24, random.below(37));
        let writes = random.chance(0.7);
        simulation.set(enable, u64::from(writes));
        simulation.set(to, address);
        simulation.set(data, word);
        simulation.set(from, reading);
        // The word of an address that is read and written at once is not defined.
        let collides = writes && address == reading;
        expected = [
            if collides {
                None
            } else {
                memory[reading as usize]
            },
            expected[0],
        ];
        if writes {
            memory[address as usize] = Some(word);
        }
        simulation.tick().unwrap();
        if let Some(word) = expected[1] {
            assert_eq!(simulation.get(out), word);
        }
    }
    assert!(memory.iter().all(Option::is_some));

    let words: Vec<u64> = (0..11).map(|_| random.word() >> 45).collect();
    let text: String = words.iter().map(|word| format!("{word:x}\n")).collect();
    let design = sources::design("rom")
        .unwrap()
        .with("WIDTH", 19u32)
        .with("DEPTH", 11u32)
        .with("OUTPUT_REGISTER", 0u32)
        .with_file("FILE", "words.hex", text.into_bytes());
    let mut simulation = Model::build(&design, &OPTIONS)
        .unwrap()
        .start_random(1)
        .unwrap();
    let rows: Vec<_> = (0..11)
        .map(|n| (vec![n], vec![words[n as usize]]))
        .collect();
    stream(&mut simulation, &["addr_i"], &["data_o"], 1, &rows);
}

#[test]
fn streams_keep_order_and_throughput() {
    if tests_are_skipped() {
        return;
    }
    for (top, depth) in [("stream_register", None), ("stream_fifo", Some(5u32))] {
        let mut design = sources::design(top).unwrap().with("WIDTH", 16u32);
        if let Some(depth) = depth {
            design = design.with("DEPTH", depth);
        }
        let model = Model::build(&design, &OPTIONS).unwrap();
        for (seed, stalls) in [(0.0, 0.0), (0.6, 0.1), (0.1, 0.6), (0.5, 0.5)]
            .into_iter()
            .enumerate()
        {
            let mut simulation = model.start_random(seed as u32).unwrap();
            simulation.reset(2).unwrap();
            let mut source = Source::new(&simulation, "in", stalls.0, 1 + seed as u64).unwrap();
            let mut sink = Sink::new(&simulation, "out", stalls.1, 9 + seed as u64).unwrap();
            let mut random = Random::new(seed as u64);
            let beats: Vec<Beat> = (0..500)
                .map(|_| Beat::of_words(&[random.below(1 << 16)], 2, random.chance(0.2)))
                .collect();
            source.extend(beats.iter().cloned());
            let start = simulation.cycles();
            transfer(&mut simulation, &mut source, &mut sink, beats.len(), 5_000).unwrap();
            assert_eq!(sink.received(), beats, "{top}");
            if stalls == (0.0, 0.0) {
                assert!(simulation.cycles() - start <= 503, "{top} loses cycles");
            }
        }

        // With nobody to take a word, as many wait as there is room for.
        let mut simulation = model.start_random(7).unwrap();
        simulation.reset(2).unwrap();
        let mut source = Source::new(&simulation, "in", 0.0, 1).unwrap();
        let mut sink = Sink::new(&simulation, "out", 1.0, 1).unwrap();
        (0..20).for_each(|n| source.push(Beat::of_words(&[n], 2, false)));
        transfer(&mut simulation, &mut source, &mut sink, 1, 50).unwrap_err();
        assert_eq!(source.sent(), u64::from(depth.unwrap_or(2)), "{top}");
        if depth.is_some() {
            assert_eq!(
                simulation.get(simulation.port("count_o").unwrap()),
                source.sent()
            );
        }
    }
}

/// `stream_ends` around a pipeline of registers.
const PIPELINE: &str = "
module pipeline #(
    parameter int CYCLES = 5,
    parameter int DEPTH  = 6
) (
    input  logic        clk_i,
    input  logic        rst_ni,
    input  logic        in_tvalid_i,
    output logic        in_tready_o,
    input  logic [15:0] in_tdata_i,
    input  logic        in_tlast_i,
    output logic        out_tvalid_o,
    input  logic        out_tready_i,
    output logic [15:0] out_tdata_o,
    output logic        out_tlast_o
);
  logic take, pipe_last;
  logic [15:0] pipe_data;
  logic [CYCLES:0] valid;
  assign valid[0] = take;
  always_ff @(posedge clk_i) valid[CYCLES:1] <= rst_ni ? valid[CYCLES-1:0] : '0;
  delay #(.WIDTH(17), .CYCLES(CYCLES)) i_data (.clk_i, .d_i({in_tlast_i, in_tdata_i}), .q_o({pipe_last, pipe_data}));
  stream_ends #(.WIDTH(16), .DEPTH(DEPTH)) i_ends (
      .clk_i, .rst_ni, .in_tvalid_i, .in_tready_o, .take_o(take), .pipe_valid_i(valid[CYCLES]), .pipe_data_i(pipe_data),
      .pipe_last_i(pipe_last), .out_tvalid_o, .out_tready_i, .out_tdata_o, .out_tlast_o
  );
endmodule
";

#[test]
fn stream_ends_never_lose_a_beat_and_stall_only_where_the_queue_is_short() {
    if tests_are_skipped() {
        return;
    }
    // The least depth at which the input is never held back, and one less; the shortest pipeline.
    for (cycles, depth) in [(5u32, 6u32), (5, 5), (1, 2)] {
        let mut design = sources::design("stream_ends").unwrap();
        design
            .sources
            .push(("pipeline.sv".to_owned(), PIPELINE.to_owned()));
        design.top = "pipeline".to_owned();
        let design = design.with("CYCLES", cycles).with("DEPTH", depth);
        let model = Model::build(&design, &OPTIONS).unwrap();
        let stalls = [(0.0, 0.0), (0.6, 0.1), (0.1, 0.6), (0.5, 0.5), (0.0, 0.5)];
        for (seed, stalls) in stalls.into_iter().enumerate() {
            let mut simulation = model.start_random(seed as u32).unwrap();
            simulation.reset(2).unwrap();
            let ready = simulation.output("in_tready_o", 1).unwrap();
            let mut source = Source::new(&simulation, "in", stalls.0, 1 + seed as u64).unwrap();
            let mut sink = Sink::new(&simulation, "out", stalls.1, 9 + seed as u64).unwrap();
            let mut random = Random::new(seed as u64);
            let beats: Vec<Beat> = (0..2_000)
                .map(|_| Beat::of_words(&[random.below(1 << 16)], 2, random.chance(0.2)))
                .collect();
            source.extend(beats.iter().cloned());
            let start = simulation.cycles();
            let mut held_back = 0;
            while sink.received().len() < beats.len() {
                assert!(simulation.cycles() - start < 20_000, "no more beats");
                simulation.cycle(&mut [&mut source, &mut sink]).unwrap();
                held_back += u32::from(simulation.get(ready) == 0);
            }
            assert_eq!(sink.received(), beats);
            if stalls == (0.0, 0.0) {
                assert_eq!(sink.first_cycle().unwrap() - start, u64::from(cycles));
                assert_eq!(held_back == 0, depth > cycles);
                if depth > cycles {
                    let last = sink.last_cycle().unwrap() - start;
                    assert_eq!(last, 1_999 + u64::from(cycles));
                }
            }
        }

        // With nobody to take a beat, as many are taken as there is room for, and all come out without a gap.
        let mut simulation = model.start_random(7).unwrap();
        simulation.reset(2).unwrap();
        let mut source = Source::new(&simulation, "in", 0.0, 1).unwrap();
        let mut sink = Sink::new(&simulation, "out", 1.0, 1).unwrap();
        (0..40).for_each(|n| source.push(Beat::of_words(&[n], 2, false)));
        transfer(&mut simulation, &mut source, &mut sink, 1, 50).unwrap_err();
        assert_eq!(source.sent(), u64::from(depth));
        let mut sink = Sink::new(&simulation, "out", 0.0, 1).unwrap();
        transfer(&mut simulation, &mut source, &mut sink, depth as usize, 100).unwrap();
        let span = sink.last_cycle().unwrap() - sink.first_cycle().unwrap();
        assert_eq!(span + 1, u64::from(depth));

        // A reset while beats are in the pipeline forgets them.
        let valid = simulation.input("in_tvalid_i", 1).unwrap();
        simulation.set(valid, 0);
        simulation.reset(1).unwrap();
        let mut source = Source::new(&simulation, "in", 0.0, 1).unwrap();
        let mut sink = Sink::new(&simulation, "out", 0.0, 1).unwrap();
        source.push(Beat::of_words(&[777], 2, true));
        transfer(&mut simulation, &mut source, &mut sink, 2, 50).unwrap_err();
        assert_eq!(sink.received(), [Beat::of_words(&[777], 2, true)]);
    }
}

#[test]
fn wrong_parameters_are_refused() {
    if tests_are_skipped() {
        return;
    }
    for (top, parameter, value, sentence) in [
        (
            "mul_tiles",
            "TILE_A",
            1u32,
            "mul_tiles: TILE_A and TILE_B must be at least 2",
        ),
        (
            "mul_tiles",
            "NARROW",
            3,
            "mul_tiles: NARROW needs SHORT and an unsigned b",
        ),
        (
            "mul_strip",
            "WIDTH_A",
            25,
            "mul_strip: WIDTH_A or WIDTH_B does not fit the tiles",
        ),
        (
            "goldilocks_mul",
            "KARATSUBA",
            7,
            "goldilocks_karatsuba: TILES must be 6 or 8",
        ),
        (
            "butterfly_solinas",
            "J",
            27,
            "butterfly_solinas: 4 <= I <= 64 and 0 < J < I - 1 are needed",
        ),
        (
            "montgomery_mul",
            "WORD",
            64,
            "montgomery_mul: 2 <= WIDTH <= 64 and 1 <= WORD < WIDTH are needed",
        ),
        (
            "montgomery_double_mul",
            "WORD",
            9,
            "montgomery_double_mul: Q must be 1 modulo 2^WORD and below 2^WIDTH",
        ),
        (
            "butterfly_montgomery",
            "BARRETT",
            12289 + (1 << 13),
            "butterfly_montgomery: BARRETT must be 1 modulo 2^WORD",
        ),
        (
            "montgomery_column",
            "WORD",
            1,
            "montgomery_column: 2 <= WORD < TILE_A and steps of at most TILE_B + WORD bits are needed",
        ),
        (
            "stepped_delay",
            "RAM_STEPS",
            2,
            "stepped_delay: WIDTH and STEPS must be at least 1, RAM_STEPS at least 3",
        ),
        ("mod_half", "WIDTH", 66, "mod_half: WIDTH must be 1 to 65"),
        (
            "solinas_mul",
            "J",
            28,
            "solinas_reduce: 0 < J < I and 3 <= I <= 64 are needed",
        ),
        (
            "mod_mul",
            "KIND",
            4,
            "mod_mul: KIND must be MOD_GOLDILOCKS, MOD_SOLINAS, MOD_MONTGOMERY or MOD_BARRETT",
        ),
        (
            "stream_fifo",
            "DEPTH",
            1,
            "stream_fifo: DEPTH must be at least 2",
        ),
        (
            "stream_ends",
            "DEPTH",
            1,
            "stream_ends: DEPTH must be at least 2",
        ),
    ] {
        let design = sources::design(top).unwrap().with(parameter, value);
        assert_eq!(refusal(&design), sentence);
    }
}

/// A step of 22 bits for q = h * 2^10 + 1, another pair of the lower twelve bits of h and x in every cycle. On the others of
/// h what is checked does not depend, and those of x are noise.
const WIDE_STEP: &str = "
module wide_step #(
    parameter bit SQUARE_USED = 1
) (
    input  logic clk_i,
    input  logic rst_ni,
    output logic done_o,
    output logic wrong_o
);
  logic [24:0] count_q;
  logic [63:0] noise;
  logic [11:0] h, g, t;
  logic [21:0] y, m, p;
  logic [11:0] unused_low;
  logic [19:0] upper;
  logic [23:0] r;
  logic [45:0] sum;
  logic borrow, carry, unused_noise;
  assign noise = 64'(count_q) * 64'h9e37_79b9_7f4a_7c15;
  assign unused_noise = ^noise[33:0];
  assign h = count_q[11:0];
  assign y = {noise[63:54], count_q[23:12]};
  assign upper = noise[53:34];
  montgomery_wide_inverse #(.WORD(10), .STEP(22)) i_inverse (.h_i(h), .g_o(g));
  assign t = y[11:0] * (SQUARE_USED ? g : h);
  assign {p, unused_low} = 34'(m) * 34'(h);
  montgomery_wide_step #(.WORD(10), .STEP(22), .WIDTH_X(20), .WIDTH_P(22), .WIDTH_R(24)) i_step (
      .y_i(y), .t_i(t), .m_o(m), .borrow_o(borrow), .carry_o(carry),
      .x_i(upper), .p_i(p), .borrow_i(borrow), .carry_i(carry), .r_o(r)
  );
  // x + m * q is r * 2^22, so m clears x's lower bits.
  assign sum = 46'({upper, y}) + 46'(m) * 46'({h, 10'd1});
  assign done_o = count_q[24];
  always_ff @(posedge clk_i) begin
    if (!rst_ni) {count_q, wrong_o} <= '0;
    else if (!done_o) {count_q, wrong_o} <= {count_q + 25'd1, wrong_o || {r, 22'd0} != sum};
  end
endmodule
";

/// What `hw/formal` takes for granted of steps of 22 bits.
#[test]
fn a_step_clears_its_bits() {
    if tests_are_skipped() {
        return;
    }
    for square_used in [true, false] {
        let mut design = sources::design("montgomery_double_mul").unwrap();
        design
            .sources
            .push(("wide_step.sv".to_owned(), WIDE_STEP.to_owned()));
        design.top = "wide_step".to_owned();
        let design = design.with("SQUARE_USED", u32::from(square_used));
        let mut simulation = start(&design);
        simulation.reset(2).unwrap();
        let [done, wrong] = ["done_o", "wrong_o"].map(|name| simulation.port(name).unwrap());
        simulation.ticks((1 << 24) - 1).unwrap();
        assert_eq!(simulation.get(done), 0);
        simulation.tick().unwrap();
        assert_eq!(simulation.get(done), 1);
        assert_eq!(simulation.get(wrong), u64::from(!square_used));
    }
}
