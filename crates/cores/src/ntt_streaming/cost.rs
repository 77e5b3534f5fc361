//! The streaming core: a butterfly for every pair of words of a beat in every stage.

use super::plan::Plan;
use super::{CORE, plan};
use crate::cost::{
    Beside, Counts, Features, Figures, NARROW, PAPER, delay, memory, network, product, rom,
    stepped, tiles,
};
use crate::interface::Values;
use crate::order::End;
use crate::order::Order;
use crate::technology::Technology;
use crate::transform::{Direction, Ring, Transform};

/// The orders that are worth a setting: all of an end that is open where the other one is given; where both are, those that
/// the stages work in, and those with coefficients by index.
fn orders(transform: &Transform) -> Vec<(Order, Order)> {
    const ALL: [Order; 3] = [Order::Halves, Order::BitReversed, Order::Natural];
    match (transform.input, transform.output) {
        (Some(input), Some(output)) => vec![(input, output)],
        (Some(input), None) => ALL.map(|output| (input, output)).to_vec(),
        (None, Some(output)) => ALL.map(|input| (input, output)).to_vec(),
        (None, None) => {
            let coefficients = [Order::Halves, Order::Natural];
            let pair = |order| match transform.direction {
                Direction::Forward => (order, Order::BitReversed),
                Direction::Inverse => (Order::BitReversed, order),
            };
            coefficients.map(pair).to_vec()
        }
    }
}

fn setting(technology: Technology, given: &[(&str, u64)]) -> Option<(Values, Plan)> {
    let given = given.iter().copied().chain(tiles(technology));
    let values = Values::new(&CORE, given).ok()?;
    let plan = plan(&values).ok()?;
    Some((values, plan))
}

pub(super) fn settings(
    transform: &Transform,
    technology: Technology,
) -> Result<Vec<Values>, String> {
    let mut found = Vec::new();
    for (input, output) in orders(transform) {
        for log_lanes in 1..=transform.log_n().min(7) {
            let with = |narrow: u64, feedback: u64| {
                let given = [
                    ("LOG_N", transform.log_n()),
                    ("LOG_LANES", log_lanes),
                    ("Q", transform.q()),
                    (
                        "INVERSE",
                        u64::from(transform.direction == Direction::Inverse),
                    ),
                    ("CYCLIC", u64::from(transform.ring == Ring::Cyclic)),
                    ("IN_ORDER", input.code()),
                    ("OUT_ORDER", output.code()),
                    ("NARROW", narrow),
                    ("FEEDBACK", feedback),
                ];
                setting(technology, &given)
            };
            let of = |feedback| [with(0, feedback), with(NARROW, feedback)];
            let latency = |[plain, _]: &[Option<(Values, Plan)>; 2]| {
                plain.as_ref().map_or(u64::MAX, |(_, plan)| plan.latency())
            };
            let (without, feedback) = (of(0), of(1));
            // More butterflies are worth it where they save time.
            let saves = latency(&feedback) < latency(&without);
            for [plain, narrow] in [Some(without), saves.then_some(feedback)]
                .into_iter()
                .flatten()
            {
                let is_other = match (&plain, &narrow) {
                    (Some((_, plain)), Some((_, narrow))) => plain.dsp() != narrow.dsp(),
                    _ => false,
                };
                found.extend(plain.map(|(values, _)| values));
                found.extend(narrow.filter(|_| is_other).map(|(values, _)| values));
            }
        }
    }
    match found.is_empty() {
        true => {
            Err("has transforms of 4 to 32768 words, powers of two, modulo 17 and above".to_owned())
        }
        false => Ok(found),
    }
}

pub(super) fn figures(plan: &Plan, technology: Technology) -> Option<Figures> {
    let setting = plan.setting();
    let lanes = 1 << setting.log_lanes;
    Some(Figures {
        latency: plan.latency(),
        interval: plan.beats(setting.log_n),
        transforms: 1,
        butterflies: plan.butterflies(),
        words_in: lanes,
        words_out: lanes,
        word_bits: plan.bits().into(),
        orders: (setting.input, setting.output),
        dsp: plan.dsp(),
        features: features(plan, technology),
    })
}

pub(super) fn samples(technology: Technology) -> Vec<Values> {
    const WIDE: u64 = 4_293_918_721; // 2^32 - 2^20 + 1
    const GOLDILOCKS: u64 = toroid_ring::goldilocks::P;
    const GENERAL: u64 = 998_244_353; // 119 * 2^23 + 1
    const GENERAL_WIDE: u64 = 1_125_899_865_948_161; // of 50 bits
    // LOG_N, LOG_LANES, Q, IN_ORDER, OUT_ORDER, NARROW, INVERSE
    let settings: &[[u64; 7]] = match technology {
        Technology::Xc7 => &[
            [6, 3, PAPER, 2, 1, 3, 0],
            [8, 4, PAPER, 2, 1, 3, 0],
            [7, 2, PAPER, 0, 1, 0, 0],
            [5, 4, GENERAL, 2, 1, 0, 0],
            [6, 2, GOLDILOCKS, 2, 1, 0, 0],
            [7, 2, GENERAL_WIDE, 2, 1, 0, 0],
            [10, 1, PAPER, 2, 1, 3, 0],
            [9, 2, WIDE, 1, 0, 0, 1],
            [8, 3, 61_441, 0, 1, 0, 0],
            [7, 3, 132_120_577, 0, 1, 3, 0],
            [9, 1, GENERAL_WIDE, 0, 1, 0, 0],
            [7, 4, PAPER, 1, 2, 3, 1],
            [6, 4, WIDE, 2, 1, 0, 0],
            [6, 1, GOLDILOCKS, 0, 1, 0, 0],
            [5, 2, 67_043_329, 2, 1, 0, 0],
            [8, 2, GENERAL, 0, 0, 0, 0],
        ],
        Technology::Ecp5 => &[
            [6, 2, PAPER, 2, 1, 0, 0],
            [7, 2, PAPER, 2, 1, 0, 0],
            [8, 1, WIDE, 2, 1, 0, 0],
            [5, 2, GENERAL, 2, 1, 0, 0],
            [5, 1, GENERAL_WIDE, 0, 1, 0, 0],
            [7, 1, GENERAL, 0, 1, 0, 0],
            [5, 1, GOLDILOCKS, 2, 1, 0, 0],
            [7, 3, 61_441, 0, 1, 0, 0],
            [6, 3, 12_289, 1, 2, 0, 1],
            [9, 1, 132_120_577, 2, 1, 0, 0],
            [6, 2, PAPER, 1, 2, 0, 1],
        ],
    };
    let names = [
        "LOG_N",
        "LOG_LANES",
        "Q",
        "IN_ORDER",
        "OUT_ORDER",
        "NARROW",
        "INVERSE",
    ];
    let each = |values: &[u64; 7]| {
        let given: Vec<(&str, u64)> = names.into_iter().zip(*values).collect();
        setting(technology, &given).map(|(values, _)| values)
    };
    settings.iter().filter_map(each).collect()
}

/// The rows of Table 1 of the paper, and of its Table 4 with as many lanes.
pub(super) fn large_samples(technology: Technology) -> Vec<Values> {
    let pairs = (9..=12).flat_map(|log_n| (5..=7).map(move |log_lanes| (log_n, log_lanes)));
    let each = |(log_n, log_lanes)| {
        let given = [
            ("LOG_N", log_n),
            ("LOG_LANES", log_lanes),
            ("Q", PAPER),
            ("IN_ORDER", Order::Halves.code()),
            ("OUT_ORDER", Order::BitReversed.code()),
            ("NARROW", NARROW),
        ];
        setting(technology, &given).map(|(values, _)| values)
    };
    match technology {
        Technology::Xc7 => pairs
            .filter(|(log_n, log_lanes)| *log_n < 12 || *log_lanes == 5)
            .filter_map(each)
            .collect(),
        Technology::Ecp5 => Vec::new(),
    }
}

/// A commutator of words of half the lanes, with those of its bits that are selected.
fn commutator(half_bits: u64, log_steps: u32, technology: Technology) -> Counts {
    // The upper half takes a mark and its tag with it.
    let bits = [half_bits + 3, half_bits].into_iter();
    bits.map(|bits| stepped(bits, 1 << log_steps, technology))
        .sum()
}

fn features(plan: &Plan, technology: Technology) -> Features {
    let setting = plan.setting();
    let tiles = setting.tiles;
    let bits = u64::from(plan.bits());
    let (lanes, butterflies) = (1u64 << setting.log_lanes, plan.butterflies());
    let is_solinas = plan.is_solinas();
    let word = bits + u64::from(is_solinas);

    // Of a butterfly.
    let products = plan.products();
    let beside: Vec<Beside> = products
        .iter()
        .map(|each| product(each, tiles, technology))
        .collect();
    let in_butterflies =
        |count: fn(&Beside) -> u64| (butterflies * beside.iter().map(count).sum::<u64>()) as f64;
    let sums = |is_short: bool| {
        let own = beside.iter().filter(|each| each.is_short == is_short);
        own.map(|each| each.counts)
            .sum::<Counts>()
            .times(butterflies)
    };
    let (short, long) = (sums(true), sums(false));
    // What waits for the product: a and the sign of the twiddle, or a and the modulus.
    let waiting = if is_solinas { bits + 2 } else { 2 * bits };
    let mut waiting = vec![delay(waiting, plan.stage_latency() - 1, technology)];
    let steps = products.len() as u64 - 1;
    if let Some((whole, steps)) = products.split_first().filter(|_| !is_solinas) {
        let upper = steps.first().map_or(0, |step| u64::from(step.bits.0));
        let next = |n: u64| (2 * bits).saturating_sub(n * (bits - upper)).max(bits + 1);
        let registers: u64 = (1..=steps.len() as u64).map(next).sum();
        waiting.push(delay(registers, 1, technology));
        waiting.push(delay(upper, whole.latency(tiles), technology));
        for (n, step) in (0u64..).zip(steps) {
            let cycles = step.latency(tiles);
            waiting.push(delay(next(n), cycles, technology));
            if n + 1 < steps.len() as u64 {
                waiting.push(delay(upper, cycles + 1, technology));
            }
        }
    }
    // The reduced product, the sum and the difference; an inverse butterfly keeps the twiddle, too, while it subtracts.
    let results = if is_solinas { 3 * bits + 8 } else { 2 * bits };
    let kept = if setting.is_inverse { bits } else { 0 };
    waiting.push(delay(results + kept, 1, technology));
    let waiting = waiting.into_iter().sum::<Counts>().times(butterflies);

    // Between and around them.
    let mut moved: Vec<Counts> = Vec::new();
    // A beat that leaves is one of three.
    let mut selected = 2 * lanes * bits;
    let log_beats = u64::from(setting.log_n - setting.log_lanes);
    let rows = plan.twiddle_rows().filter(|(rows, _)| *rows > 1).count() as u64;
    let mut counters = (rows + 2) * log_beats + u64::from(setting.log_n) * plan.stage_latency();
    for log_steps in plan.commutators() {
        moved.push(commutator(lanes / 2 * word, log_steps, technology));
        counters += log_beats + u64::from(log_steps) + 1;
        selected += lanes * word;
    }
    for log_steps in plan.feedbacks() {
        // Words before the butterflies, and differences after them.
        moved.push(stepped(lanes * word, 1 << log_steps, technology).times(2));
        counters += log_beats + u64::from(log_steps) + 1;
        selected += lanes * word;
    }
    for end in [plan.front(), plan.back()] {
        match end {
            End::Wires => (),
            End::Commutators => {
                for log_steps in 0..setting.log_n - setting.log_lanes {
                    moved.push(commutator(lanes / 2 * bits, log_steps, technology));
                    counters += log_beats + u64::from(log_steps) + 1;
                    selected += lanes * bits;
                }
            }
            End::Halves(own) | End::Lanes(own) => {
                let bits = (bits * lanes) >> own.log_lanes();
                moved.push(network(own, bits, technology));
                selected += 2 * bits * own.changing_switches() as u64;
            }
        }
    }
    let moved: Counts = moved.into_iter().sum();
    let queue = memory(plan.pipeline() + 1, lanes * bits + 1, technology);
    let twiddles: Counts = plan
        .twiddle_rows()
        .map(|(rows, words)| rom(rows, words * bits, technology))
        .sum();

    let only = |is_so: bool, count: u64| if is_so { count as f64 } else { 0.0 };
    let is_inverse = setting.is_inverse;
    let forward = only(is_solinas && !is_inverse, butterflies * bits);
    let inverse = only(is_solinas && is_inverse, butterflies * bits);
    let montgomery = only(!is_solinas, butterflies * bits * (1 + steps));
    // The beat that waits at the output, and canonical words.
    let held = (lanes * bits * (1 + u64::from(is_solinas))) as f64;
    let tables =
        short.tables + long.tables + waiting.tables + moved.tables + queue.tables + twiddles.tables;
    Features {
        lut: vec![
            ("bits of butterflies, 2^i - 2^j + 1, forward", forward),
            ("bits of butterflies, 2^i - 2^j + 1, inverse", inverse),
            ("bits of butterflies and of Montgomery's steps", montgomery),
            (
                "added bits of products",
                in_butterflies(|beside| beside.added),
            ),
            (
                "bits multiplied in look-up tables",
                in_butterflies(|beside| beside.narrow),
            ),
            ("selected bits", selected as f64),
            ("bits of counters", counters as f64),
            ("look-up tables of memories and shift registers", tables),
        ],
        ff: vec![
            (
                "registers",
                short.registers
                    + waiting.registers
                    + moved.registers
                    + queue.registers
                    + twiddles.registers
                    + held,
            ),
            (
                "registers of products above 34 bits, 2^i - 2^j + 1",
                if is_solinas { long.registers } else { 0.0 },
            ),
            (
                "registers of products above 34 bits, Montgomery",
                if is_solinas { 0.0 } else { long.registers },
            ),
            (
                "registers of slices that have none",
                in_butterflies(|beside| beside.slices),
            ),
            ("bits of counters", counters as f64),
        ],
        bram36: vec![
            ("queue", queue.blocks),
            ("words on their way", moved.blocks),
            ("twiddles", twiddles.blocks),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transform(n: u64, q: u64, ring: Ring) -> Transform {
        Transform::new(n, q, ring).unwrap()
    }

    #[test]
    fn cycles_are_those_of_the_core() {
        let all = samples(Technology::Xc7).into_iter();
        for values in all.chain(large_samples(Technology::Xc7)) {
            let figures = CORE
                .configure(&values)
                .unwrap()
                .cost(Technology::Xc7, None)
                .unwrap();
            let timing = CORE.configure(&values).unwrap().timing();
            assert_eq!(figures.latency, timing.latency.unwrap().cycles);
            assert_eq!(figures.interval, timing.interval.unwrap().cycles);
        }
    }

    #[test]
    fn settings_are_those_that_the_core_can_be_made_with() {
        for (n, q) in [(16, 97), (64, toroid_ring::goldilocks::P), (512, PAPER)] {
            for direction in [Direction::Forward, Direction::Inverse] {
                let mut wanted = transform(n, q, Ring::Negacyclic);
                wanted.direction = direction;
                for values in settings(&wanted, Technology::Ecp5).unwrap() {
                    assert!(CORE.configure(&values).is_ok(), "{values:?}");
                    let figures = CORE
                        .configure(&values)
                        .unwrap()
                        .cost(Technology::Ecp5, None)
                        .unwrap();
                    assert_eq!(figures.interval * figures.words_in, n);
                    assert_eq!(
                        values["INVERSE"] == 1,
                        wanted.direction == Direction::Inverse
                    );
                }
            }
        }
        let large = transform(1 << 16, toroid_ring::goldilocks::P, Ring::Negacyclic);
        let refused = settings(&large, Technology::Xc7).unwrap_err();
        assert!(refused.contains("32768"), "{refused}");
    }

    #[test]
    fn narrow_rests_are_offered_where_they_save_slices() {
        let count = |q| {
            let wanted = transform(256, q, Ring::Negacyclic);
            settings(&wanted, Technology::Xc7).unwrap().len()
        };
        // Halves side by side, natural order, and natural order with feedback.
        assert_eq!(count(PAPER), 3 * 7 * 2);
        assert_eq!(count(4_293_918_721), 3 * 7);
        assert_eq!(count(toroid_ring::goldilocks::P), 3 * 7);
    }

    #[test]
    fn orders_are_those_asked_for() {
        let mut wanted = transform(256, PAPER, Ring::Cyclic);
        for input in [None, Some(Order::Natural)] {
            for output in [None, Some(Order::Natural)] {
                (wanted.input, wanted.output) = (input, output);
                let settings = settings(&wanted, Technology::Xc7).unwrap();
                assert!(!settings.is_empty());
                for values in settings {
                    let figures = CORE
                        .configure(&values)
                        .unwrap()
                        .cost(Technology::Xc7, None)
                        .unwrap();
                    assert!(wanted.accepts(figures.orders));
                    assert_eq!(values["CYCLIC"], 1);
                }
            }
        }
    }
}
