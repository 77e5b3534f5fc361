//! The cores with single-delay feedback: one word per cycle. Two words per cycle are what the streaming core does on two lanes.

use super::plan::Plan;
use super::{CORE, plan};
use crate::arithmetic::Reduction;
use crate::cost::{
    Beside, Counts, Features, Figures, NARROW, PAPER, delay, memory, network, product, rom,
    stepped, tiles,
};
use crate::interface::Values;
use crate::order::End;
use crate::order::Order;
use crate::technology::Technology;
use crate::transform::{Direction, Ring, Transform};

/// 119 * 2^23 + 1
const GENERAL: u64 = 998_244_353;

fn setting(technology: Technology, given: &[(&str, u64)]) -> Option<(Values, Plan)> {
    let given = given.iter().copied().chain(tiles(technology));
    let values = Values::new(&CORE, given).ok()?;
    let plan = plan(&values).ok()?;
    Some((values, plan))
}

fn orders(plan: &Plan) -> (Order, Order) {
    match plan.setting().is_inverse {
        false => (plan.coefficients(), plan.values()),
        true => (plan.values(), plan.coefficients()),
    }
}

pub(super) fn settings(
    transform: &Transform,
    technology: Technology,
) -> Result<Vec<Values>, String> {
    let mut found = Vec::new();
    for natural in [0, 1] {
        for architecture in [0, 1] {
            let with = |narrow: u64| {
                let given = [
                    ("ARCHITECTURE", architecture),
                    ("LOG_N", transform.log_n()),
                    ("Q", transform.q()),
                    (
                        "INVERSE",
                        u64::from(transform.direction == Direction::Inverse),
                    ),
                    ("CYCLIC", u64::from(transform.ring == Ring::Cyclic)),
                    ("NATURAL", natural),
                    ("NARROW", narrow),
                ];
                let setting = setting(technology, &given);
                setting.filter(|(_, plan)| transform.accepts(orders(plan)))
            };
            let (plain, narrow) = (with(0), with(NARROW));
            let is_other = match (&plain, &narrow) {
                (Some((_, plain)), Some((_, narrow))) => plain.dsp() != narrow.dsp(),
                _ => false,
            };
            found.extend(plain.map(|(values, _)| values));
            found.extend(narrow.filter(|_| is_other).map(|(values, _)| values));
        }
    }
    match found.is_empty() {
        true => Err(
            "has transforms of 4 to 32768 words, powers of two, modulo 11 and above, with coefficients in natural order and values in that or bit-reversed"
                .to_owned(),
        ),
        false => Ok(found),
    }
}

pub(super) fn figures(plan: &Plan, technology: Technology) -> Option<Figures> {
    // Two lanes are the streaming core's. Of Barrett's products synthesis leaves tiles out whose bits no one uses, which
    // the formula for DSP slices does not: there are no parts for it.
    if plan.setting().architecture.log_lanes() > 0 || plan.reduction() == Reduction::Barrett {
        return None;
    }
    Some(Figures {
        latency: plan.latency(),
        interval: plan.beats(),
        transforms: 1,
        butterflies: plan.multipliers(),
        words_in: 1,
        words_out: 1,
        word_bits: plan.bits().into(),
        orders: orders(plan),
        dsp: plan.dsp(),
        features: features(plan, technology),
    })
}

pub(super) fn samples(technology: Technology) -> Vec<Values> {
    const GOLDILOCKS: u64 = toroid_ring::goldilocks::P;
    const WIDE: u64 = 4_293_918_721; // 2^32 - 2^20 + 1
    const GENERAL_WIDE: u64 = 1_125_899_865_948_161; // of 50 bits
    // ARCHITECTURE, LOG_N, Q, INVERSE, NATURAL, REDUCTION
    let settings: &[[u64; 6]] = match technology {
        Technology::Xc7 => &[
            [0, 6, 7_681, 0, 0, 0],
            [0, 10, 12_289, 0, 0, 0],
            [1, 8, PAPER, 1, 0, 0],
            [1, 8, 7_681, 0, 1, 0],
            [1, 8, 7_681, 0, 0, 2],
            [0, 8, 7_681, 0, 1, 0],
            [1, 6, GOLDILOCKS, 0, 0, 0],
            [0, 10, 12_289, 0, 1, 0],
            [0, 6, GENERAL, 0, 0, 0],
            [0, 10, 12_289, 0, 0, 2],
            [1, 10, 12_289, 0, 0, 0],
            [1, 5, GENERAL_WIDE, 1, 0, 0],
            [1, 10, 12_289, 0, 1, 0],
            [0, 9, 12_289, 0, 0, 0],
            [0, 7, PAPER, 0, 1, 0],
            [0, 5, GOLDILOCKS, 1, 1, 0],
            [1, 8, GENERAL, 1, 0, 0],
            [1, 7, WIDE, 1, 1, 0],
        ],
        Technology::Ecp5 => &[
            [0, 6, 7_681, 0, 0, 0],
            [1, 7, 7_681, 0, 0, 0],
            [1, 6, PAPER, 1, 0, 0],
            [0, 5, GENERAL, 0, 0, 0],
            [1, 8, 12_289, 0, 0, 0],
            [0, 7, GENERAL, 0, 1, 0],
            [0, 5, GOLDILOCKS, 0, 0, 0],
            [0, 9, 12_289, 0, 1, 0],
            [1, 4, GENERAL_WIDE, 0, 0, 0],
            [1, 8, PAPER, 0, 1, 0],
        ],
    };
    let names = [
        "ARCHITECTURE",
        "LOG_N",
        "Q",
        "INVERSE",
        "NATURAL",
        "REDUCTION",
    ];
    let each = |values: &[u64; 6]| {
        let given: Vec<(&str, u64)> = names.into_iter().zip(*values).collect();
        setting(technology, &given).map(|(values, _)| values)
    };
    settings.iter().filter_map(each).collect()
}

fn features(plan: &Plan, technology: Technology) -> Features {
    let setting = plan.setting();
    let (bits, log_n) = (u64::from(plan.bits()), u64::from(setting.log_n));
    let multipliers = plan.multipliers();
    let is_solinas = plan.reduction() == Reduction::Solinas;
    let word = bits + u64::from(is_solinas);

    let products = plan.products();
    let beside: Vec<Beside> = products
        .iter()
        .map(|each| product(each, setting.tiles, technology))
        .collect();
    let in_products =
        |count: fn(&Beside) -> u64| (multipliers * beside.iter().map(count).sum::<u64>()) as f64;
    let sums = beside.iter().map(|each| each.counts).sum::<Counts>();

    // A product, the sum, and the first of the steps; Montgomery's reduction keeps a word in each of its own.
    let steps = products.len() as u64 - 1;
    let results = if is_solinas {
        3 * bits + 9
    } else {
        2 * bits + steps * (bits + 2) + bits
    };
    let own = delay(results, 1, technology);
    let waiting = match is_solinas {
        true => delay(1, plan.stage_latency() - 2, technology),
        false => delay(bits + 1, plan.stage_latency() / 2, technology),
    };
    let stages = [sums, own, waiting]
        .into_iter()
        .sum::<Counts>()
        .times(multipliers);

    let mut moved: Vec<Counts> = Vec::new();
    // A word that leaves is one of three.
    let mut selected = 2 * bits;
    let mut counters = 2 * log_n + log_n * plan.stage_latency();
    for bit in 0..log_n {
        let steps = 1u64 << bit;
        if steps > 1 {
            moved.push(stepped(word + 1, steps - 1, technology));
        }
        // Of the product's words, of the butterfly's, and of those that are not valid yet.
        counters += log_n + 2 * (bit + 1);
        if steps > 64 {
            counters += bit;
        }
        selected += 2 * word;
    }
    for end in plan.ends() {
        if let End::Lanes(own) = end {
            moved.push(network(own, bits, technology));
            counters += 4 * log_n;
        }
    }
    let moved: Counts = moved.into_iter().sum();
    let queue = memory(plan.pipeline() + 1, bits + 1, technology);
    let rows = plan.table_rows();
    let twiddles: Counts = rows.iter().map(|rows| rom(*rows, bits, technology)).sum();
    let held = (bits * (1 + u64::from(is_solinas))) as f64;

    let only = |is_so: bool, count: u64| if is_so { count as f64 } else { 0.0 };
    Features {
        lut: vec![
            (
                "bits of stages, 2^i - 2^j + 1",
                only(is_solinas, multipliers * bits),
            ),
            (
                "bits of stages and of Montgomery's steps",
                only(!is_solinas, multipliers * bits * (1 + steps)),
            ),
            ("added bits of products", in_products(|beside| beside.added)),
            (
                "bits multiplied in look-up tables",
                in_products(|beside| beside.narrow),
            ),
            ("selected bits", selected as f64),
            ("bits of counters", counters as f64),
            (
                "look-up tables of memories and shift registers",
                stages.tables + moved.tables + queue.tables + twiddles.tables,
            ),
        ],
        ff: vec![
            (
                "registers",
                stages.registers + moved.registers + queue.registers + twiddles.registers + held,
            ),
            (
                "registers of slices that have none",
                in_products(|beside| beside.slices),
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
    #![allow(clippy::unwrap_used, reason = "a failed test panics")]
    use super::*;
    use crate::testing::measured;
    use toroid_sim::toolchain::tests_are_skipped;

    /// Transforms of the core's vectors.
    const TRANSFORMS: usize = 4;

    #[test]
    fn cycles_are_those_of_simulation() {
        if tests_are_skipped() {
            return;
        }
        // ARCHITECTURE, LOG_N, Q, REDUCTION, INVERSE, NATURAL
        for [architecture, log_n, q, reduction, inverse, natural] in [
            [0, 3, 7_681, 0, 0, 1],
            [1, 4, GENERAL, 0, 1, 0],
            [1, 3, 7_681, 2, 0, 1],
            [0, 4, GENERAL, 2, 1, 1],
        ] {
            let given = [
                ("ARCHITECTURE", architecture),
                ("LOG_N", log_n),
                ("Q", q),
                ("REDUCTION", reduction),
                ("INVERSE", inverse),
                ("NATURAL", natural),
            ];
            let (values, _) = setting(Technology::Xc7, &given).unwrap();
            let figures = CORE
                .configure(&values)
                .unwrap()
                .cost(Technology::Xc7, None)
                .unwrap();
            let (all, alone) = measured(&CORE, &values, TRANSFORMS);
            assert_eq!(figures.latency, alone, "{values:?}");
            assert_eq!(
                (TRANSFORMS as u64 - 1) * figures.interval,
                all - alone,
                "{values:?}"
            );
        }
    }

    #[test]
    fn what_has_no_parts_has_no_figures() {
        for (name, value, is_there) in [
            ("ARCHITECTURE", 0, true),
            ("ARCHITECTURE", 2, false),
            ("REDUCTION", 2, true),
            ("REDUCTION", 3, false),
        ] {
            let architecture = ("ARCHITECTURE", 1);
            let given = [architecture, (name, value)];
            let given = &given[usize::from(name == architecture.0)..];
            let (values, _) = setting(Technology::Xc7, given).unwrap();
            let figures = CORE.configure(&values).unwrap().cost(Technology::Xc7, None);
            assert_eq!(figures.is_some(), is_there, "{name}={value}");
        }
    }

    #[test]
    fn parts_are_those_of_the_reduction() {
        for (reduction, part) in [(1, "2^i"), (2, "Montgomery")] {
            let given = [("ARCHITECTURE", 0), ("REDUCTION", reduction)];
            let (values, _) = setting(Technology::Xc7, &given).unwrap();
            let figures = CORE
                .configure(&values)
                .unwrap()
                .cost(Technology::Xc7, None)
                .unwrap();
            let stages = figures
                .features
                .lut
                .iter()
                .filter(|(name, count)| name.starts_with("bits of stages") && *count > 0.0);
            let names: Vec<&str> = stages.map(|(name, _)| *name).collect();
            assert!(names.len() == 1 && names[0].contains(part), "{names:?}");
        }
    }

    #[test]
    fn settings_are_those_that_the_core_can_be_made_with() {
        for (n, q) in [(16, 97), (64, toroid_ring::goldilocks::P), (512, PAPER)] {
            for direction in [Direction::Forward, Direction::Inverse] {
                let mut wanted = Transform::new(n, q, Ring::Negacyclic).unwrap();
                wanted.direction = direction;
                wanted.output = Some(Order::Natural);
                let settings = settings(&wanted, Technology::Ecp5).unwrap();
                for values in settings {
                    assert!(CORE.configure(&values).is_ok(), "{values:?}");
                    let figures = CORE
                        .configure(&values)
                        .unwrap()
                        .cost(Technology::Ecp5, None)
                        .unwrap();
                    assert_eq!(figures.interval, n);
                    assert_eq!(figures.orders.1, Order::Natural);
                }
            }
        }
        let mut halves = Transform::new(64, 7_681, Ring::Negacyclic).unwrap();
        halves.input = Some(Order::Halves);
        assert!(settings(&halves, Technology::Xc7).is_err());
    }
}
