//! Chooses the parameters of the sets of wide functions: the cheapest that keep a failure probability with margin
//! (`toroid_tfhe::noise::Assumptions`), by the noise formulas of `toroid_tfhe::wopbs::noise`, the 128-bit line of `toroid_tfhe::params`, and a linear model of time.
//! Bodies are whole: to how many bits a key may round them is chosen after that.
//!
//! `cargo run --release -p toroid-bench-scheme --bin search -- [BITS [LOG2_FAILURE]]` prints the choice for each message width.

use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::noise::{Assumptions, log2_add};
use toroid_tfhe::params::wopbs::{Choice, Small, WHOLE_WORDS};
use toroid_tfhe::params::{Gadget, ParamSet, Security, smallest_log2_noise};
use toroid_tfhe::wopbs::noise;

/// Squared norm of the combination of bootstrapped samples that a bootstrap must take.
const NORM2: f64 = 4.0;

/// A ring, and microseconds on one core (AVX-512, 3.7 GHz) of an external product there: for each row, and once.
struct Ring {
    degree: usize,
    glwe_dimension: usize,
    row: f64,
    product: f64,
}

const RINGS: [Ring; 2] = [
    Ring {
        degree: 1024,
        glwe_dimension: 2,
        row: 1.5,
        product: 3.8,
    },
    Ring {
        degree: 2048,
        glwe_dimension: 1,
        row: 2.1,
        product: 4.9,
    },
];

/// Microseconds of one word of a key-switching key.
const KEY_SWITCH_WORD: f64 = 1.55e-4;

const fn gadget(levels: usize, log2_base: u32) -> Gadget {
    Gadget { levels, log2_base }
}

fn small(dimension: usize, gadget: Gadget, key_switch: Gadget) -> Small {
    Small {
        dimension,
        log2_noise: smallest_log2_noise(dimension),
        gadget,
        key_switch,
        body_bits: WHOLE_WORDS,
    }
}

fn gadgets(levels: usize, bases: std::ops::RangeInclusive<u32>) -> impl Iterator<Item = Gadget> {
    bases.map(move |base| gadget(levels, base))
}

fn product(choice: &Choice, rows: usize) -> f64 {
    let ring = RINGS.iter().find(|ring| ring.degree == choice.ring_degree);
    ring.map_or(f64::INFINITY, |ring| ring.row * rows as f64 + ring.product)
}

/// Microseconds of a key switch and a blind rotation.
fn bootstrap(small: &Small, choice: &Choice) -> f64 {
    let columns = choice.glwe_dimension + 1;
    let words = choice.glwe_dimension * choice.ring_degree * small.key_switch.levels;
    small.dimension as f64 * product(choice, columns * small.gadget.levels)
        + KEY_SWITCH_WORD * (words * (small.dimension + 1)) as f64
}

/// Microseconds of making the GGSW samples of all bits.
fn extraction_time(choice: &Choice) -> f64 {
    let k = choice.glwe_dimension;
    let switches = choice.circuit.levels * (choice.ring_degree.ilog2() as usize + k);
    f64::from(choice.message_bits)
        * (bootstrap(&choice.extract, choice)
            + switches as f64 * product(choice, k * choice.switch.levels))
}

/// Microseconds of reading and refreshing the digits of a result of p bits.
fn refresh_time(choice: &Choice) -> f64 {
    let digits = choice.stages().digits(choice.message_bits).len() as f64;
    let columns = choice.glwe_dimension + 1;
    let products = f64::from(1 << choice.message_bits) / choice.ring_degree as f64
        + f64::from(choice.ring_degree.ilog2().min(choice.message_bits));
    digits
        * (bootstrap(&choice.refresh, choice)
            + products * product(choice, columns * choice.circuit.levels))
}

/// log2 of the failure probability of all extractions, or of all refreshing bootstraps.
fn failure(choice: &Choice, refresh: bool) -> f64 {
    failure_of(choice, refresh, |stages| stages)
}

/// Whether the gadgets fail too often whatever the key switches and modulus switches add. The noise of blind rotations grows with their
/// dimensions: `choice` has the least of both.
fn hopeless(choice: &Choice, refresh: bool, limit: f64) -> bool {
    let without_switches = |stages| noise::Stages {
        extract_key_switch: 0.0,
        extract_modulus_switch: 0.0,
        refresh_key_switch: 0.0,
        refresh_modulus_switch: 0.0,
        ..stages
    };
    failure_of(choice, refresh, without_switches) > limit
}

fn failure_of(
    choice: &Choice,
    refresh: bool,
    change: impl Fn(noise::Stages) -> noise::Stages,
) -> f64 {
    let wopbs = choice.stages();
    let set = &ParamSet {
        id: choice.id,
        purpose: choice.purpose,
        message_bits: choice.message_bits,
        security: choice.security,
        stage: wopbs.extract,
        wopbs: None,
    };
    let margin = Assumptions::with_margin(ArithmeticKind::Fft);
    let stages = change(noise::stages(set, &wopbs, margin, set.message_bits));
    let decisions = if refresh {
        noise::refreshes(set, &wopbs, &stages)
    } else {
        noise::extractions(&stages, set.message_bits, NORM2 * stages.output)
    };
    noise::log2_any(&decisions)
}

/// The cheapest small dimension and key-switching gadget of one of the two bootstraps that keeps `limit`.
fn cheapest(choice: Choice, refresh: bool, limit: f64) -> Option<Choice> {
    let (dimensions, key_switches): (_, &[(usize, u32)]) = if refresh {
        (740..940, &[(3, 4), (4, 3), (4, 4), (5, 3), (6, 3), (7, 2)])
    } else {
        (560..740, &[(3, 3), (4, 2), (5, 2), (6, 2), (9, 1), (10, 1)])
    };
    let mut best: Option<(f64, Choice)> = None;
    for (levels, log2_base) in key_switches {
        for dimension in dimensions.clone().step_by(2) {
            let mut candidate = choice;
            let changed = if refresh {
                &mut candidate.refresh
            } else {
                &mut candidate.extract
            };
            *changed = small(dimension, changed.gadget, gadget(*levels, *log2_base));
            let time = bootstrap(changed, &choice);
            if best.is_some_and(|(least, _)| time >= least) {
                break;
            }
            if failure(&candidate, refresh) <= limit {
                best = Some((time, candidate));
                break;
            }
        }
    }
    best.map(|(_, choice)| choice)
}

/// What a choice begins with: no smaller dimension will do.
fn least(message_bits: u32, ring: &Ring, digit_bits: u32) -> Choice {
    Choice {
        id: 0,
        names: [""; 5],
        purpose: "",
        message_bits,
        ring_degree: ring.degree,
        glwe_dimension: ring.glwe_dimension,
        log2_glwe_noise: smallest_log2_noise(2048),
        security: Security {
            bits: 128,
            source: "",
        },
        extract: small(560, gadget(1, 1), gadget(4, 2)),
        refresh: small(740, gadget(1, 1), gadget(3, 3)),
        switch: gadget(1, 1),
        switch_body_bits: WHOLE_WORDS,
        circuit: gadget(1, 1),
        digit_bits,
    }
}

/// The cheapest choice for a width.
fn search(message_bits: u32, log2_failure: f64) -> Option<(f64, Choice)> {
    let mut best: Option<(f64, Choice)> = None;
    for ring in &RINGS {
        for digit_bits in 3..=5 {
            improve(
                least(message_bits, ring, digit_bits),
                log2_failure,
                &mut best,
            );
        }
    }
    best
}

/// Tries all gadgets with a choice's ring and digits.
fn improve(start: Choice, log2_failure: f64, best: &mut Option<(f64, Choice)>) {
    let least = |best: &Option<(f64, Choice)>| best.map_or(f64::INFINITY, |(time, _)| time);
    let circuits = gadgets(1, 10..=14)
        .chain(gadgets(2, 6..=9))
        .chain(gadgets(3, 4..=7))
        .chain(gadgets(4, 4..=5));
    for circuit in circuits {
        let switches = gadgets(2, 13..=16)
            .chain(gadgets(3, 10..=13))
            .chain(gadgets(4, 8..=11))
            .chain(gadgets(5, 7..=9));
        for switch in switches {
            for extract_gadget in gadgets(1, 20..=24)
                .chain(gadgets(2, 14..=16))
                .chain(gadgets(3, 11..=12))
            {
                for refresh_gadget in gadgets(1, 18..=24)
                    .chain(gadgets(2, 13..=16))
                    .chain(gadgets(3, 11..=13))
                {
                    let mut choice = Choice {
                        switch,
                        circuit,
                        ..start
                    };
                    choice.extract.gadget = extract_gadget;
                    choice.refresh.gadget = refresh_gadget;
                    if extraction_time(&choice) + refresh_time(&choice) >= least(best) {
                        continue;
                    }
                    // Each half may fail half as often as the whole.
                    let half = log2_failure - 1.0;
                    if hopeless(&choice, true, half) {
                        break;
                    }
                    if hopeless(&choice, false, half) {
                        continue;
                    }
                    let complete = cheapest(choice, true, half)
                        .and_then(|choice| cheapest(choice, false, half));
                    // The noise of an extraction grows with its dimension, and the refreshing bootstraps see it.
                    if let Some(choice) = complete
                        && failure(&choice, true) <= half + 0.5
                    {
                        let time = extraction_time(&choice) + refresh_time(&choice);
                        if time < least(best) {
                            *best = Some((time, choice));
                        }
                    }
                }
            }
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let bits: Option<u32> = arguments.next().and_then(|text| text.parse().ok());
    let limit: f64 = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(-128.0);
    for bits in bits.map_or(vec![14, 16], |bits| vec![bits]) {
        match search(bits, limit) {
            None => println!("{bits} bits: nothing keeps 2^{limit}"),
            Some((time, choice)) => {
                let (extraction, refresh) = (failure(&choice, false), failure(&choice, true));
                println!(
                    "{bits} bits: {:.0} ms by the model, failure 2^{:.1} with margin at norm2 = {NORM2}\n\
                     N = {}, k = {}, digits of {} bits\n\
                     extract {:?}\nrefresh {:?}\nswitch {:?}\ncircuit {:?}",
                    time / 1e3,
                    log2_add(extraction, refresh),
                    choice.ring_degree,
                    choice.glwe_dimension,
                    choice.digit_bits,
                    choice.extract,
                    choice.refresh,
                    choice.switch,
                    choice.circuit,
                );
            }
        }
    }
}
