//! Chooses the parameters of the sets of wide functions: the cheapest that keep a failure probability, by the noise formulas of
//! `toroid_tfhe::wopbs::noise`, the 128-bit line of `toroid_tfhe::params`, and a linear model of time.
//!
//! `cargo run --release -p toroid-bench-scheme --bin search -- [BITS [LOG2_FAILURE]]` prints the choice for each message width.

use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::noise::log2_add;
use toroid_tfhe::params::wopbs::{Choice, Small};
use toroid_tfhe::params::{Gadget, ParamSet, Security, smallest_log2_noise};
use toroid_tfhe::wopbs::noise;

/// Squared norm of the combination of bootstrapped samples that a bootstrap must take.
const NORM2: f64 = 4.0;

/// Microseconds on one core (AVX-512, 3.7 GHz) of an external product at N = 1024, k = 2: for each row, and once.
const ROW: f64 = 1.5;
const PRODUCT: f64 = 3.8;
/// The same, of one word of a key-switching key.
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
    }
}

fn gadgets(levels: usize, bases: std::ops::RangeInclusive<u32>) -> impl Iterator<Item = Gadget> {
    bases.map(move |base| gadget(levels, base))
}

fn product(rows: usize) -> f64 {
    ROW * rows as f64 + PRODUCT
}

/// Microseconds of a key switch and a blind rotation.
fn bootstrap(small: &Small, choice: &Choice) -> f64 {
    let columns = choice.glwe_dimension + 1;
    let words = choice.glwe_dimension * choice.ring_degree * small.key_switch.levels;
    small.dimension as f64 * product(columns * small.gadget.levels)
        + KEY_SWITCH_WORD * (words * (small.dimension + 1)) as f64
}

/// Microseconds of making the GGSW samples of all bits.
fn extraction_time(choice: &Choice) -> f64 {
    let k = choice.glwe_dimension;
    let switches = choice.circuit.levels * (choice.ring_degree.ilog2() as usize + k);
    f64::from(choice.message_bits)
        * (bootstrap(&choice.extract, choice) + switches as f64 * product(k * choice.switch.levels))
}

/// Microseconds of reading and refreshing the digits of a result of p bits.
fn refresh_time(choice: &Choice) -> f64 {
    let digits = choice.stages().digits(choice.message_bits).len() as f64;
    let columns = choice.glwe_dimension + 1;
    let products = f64::from(1 << choice.message_bits) / choice.ring_degree as f64 + 10.0;
    digits
        * (bootstrap(&choice.refresh, choice) + products * product(columns * choice.circuit.levels))
}

/// log2 of the failure probability of all extractions, or of all refreshing bootstraps.
fn failure(choice: &Choice, refresh: bool) -> f64 {
    let wopbs = choice.stages();
    let set = &ParamSet {
        id: choice.id,
        purpose: choice.purpose,
        message_bits: choice.message_bits,
        security: choice.security,
        stage: wopbs.extract,
        wopbs: None,
    };
    let stages = noise::stages(set, &wopbs, ArithmeticKind::Fft);
    let decisions = if refresh {
        noise::refreshes(set, &wopbs, &stages)
    } else {
        noise::extractions(set, &stages, NORM2 * stages.output)
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

/// The cheapest choice for a width.
fn search(message_bits: u32, log2_failure: f64) -> Option<(f64, Choice)> {
    let mut best: Option<(f64, Choice)> = None;
    let least = |best: &Option<(f64, Choice)>| best.map_or(f64::INFINITY, |(time, _)| time);
    let circuits = gadgets(2, 6..=9)
        .chain(gadgets(3, 4..=7))
        .chain(gadgets(4, 4..=5));
    for circuit in circuits {
        let switches = gadgets(3, 10..=13)
            .chain(gadgets(4, 8..=11))
            .chain(gadgets(5, 7..=9));
        for switch in switches {
            for extract_gadget in gadgets(2, 14..=16).chain(gadgets(3, 11..=12)) {
                for refresh_gadget in gadgets(2, 14..=16).chain(gadgets(3, 11..=13)) {
                    let choice = Choice {
                        id: 0,
                        names: [""; 5],
                        purpose: "",
                        message_bits,
                        ring_degree: 1024,
                        glwe_dimension: 2,
                        log2_glwe_noise: smallest_log2_noise(2048),
                        security: Security {
                            bits: 128,
                            source: "",
                        },
                        // No less will do.
                        extract: small(560, extract_gadget, gadget(4, 2)),
                        refresh: small(740, refresh_gadget, gadget(3, 3)),
                        switch,
                        circuit,
                        digit_bits: 4,
                    };
                    if extraction_time(&choice) + refresh_time(&choice) >= least(&best) {
                        continue;
                    }
                    // Each half may fail half as often as the whole.
                    let half = log2_failure - 1.0;
                    let complete = cheapest(choice, true, half)
                        .and_then(|choice| cheapest(choice, false, half));
                    // The noise of an extraction grows with its dimension, and the refreshing bootstraps see it.
                    if let Some(choice) = complete
                        && failure(&choice, true) <= half + 0.5
                    {
                        let time = extraction_time(&choice) + refresh_time(&choice);
                        if time < least(&best) {
                            best = Some((time, choice));
                        }
                    }
                }
            }
        }
    }
    best
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
                    "{bits} bits: {:.0} ms by the model, failure 2^{:.1} at norm2 = {NORM2}\n\
                     extract {:?}\nrefresh {:?}\nswitch {:?}\ncircuit {:?}",
                    time / 1e3,
                    log2_add(extraction, refresh),
                    choice.extract,
                    choice.refresh,
                    choice.switch,
                    choice.circuit,
                );
            }
        }
    }
}
