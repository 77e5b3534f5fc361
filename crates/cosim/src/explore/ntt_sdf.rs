//! The cores with single-delay feedback: one word a cycle. Two words a cycle are what the streaming core does on two lanes.

use super::family::{Family, Features, Figures, tiles};
use super::ntt_streaming::{
    Beside, Counts, NARROW, PAPER, delay, memory, network, product, rom, stepped,
};
use super::transform::{Direction, Order, Ring, Transform};
use crate::core::ntt_sdf::{NttSdf, plan};
use crate::core::synthesis::Device as Technology;
use crate::core::{Core, Values};
use crate::ntt_sdf::Plan;
use crate::ntt_streaming::{End, Reduction};

/// Settings of `ntt_sdf`.
pub struct Feedback;

/// 119 * 2^23 + 1
const GENERAL: u64 = 998_244_353;

/// Of 50 bits, without a form.
const GENERAL_WIDE: u64 = 1_125_899_865_948_161;

/// The value of the core's parameter `REDUCTION` for Barrett's.
const BARRETT: u64 = 3;

fn setting(technology: Technology, given: &[(&str, u64)]) -> Option<(Values, Plan)> {
    let given = given.iter().copied().chain(tiles(technology));
    let values = Values::new(&NttSdf, given).ok()?;
    let plan = plan(&values).ok()?;
    Some((values, plan))
}

fn orders(plan: &Plan) -> (Order, Order) {
    match plan.setting().is_inverse {
        false => (plan.coefficients(), plan.values()),
        true => (plan.values(), plan.coefficients()),
    }
}

impl Family for Feedback {
    fn core(&self) -> &'static dyn Core {
        &NttSdf
    }

    fn settings(
        &self,
        transform: &Transform,
        technology: Technology,
    ) -> Result<Vec<Values>, String> {
        let mut found = Vec::new();
        for natural in [0, 1] {
            for architecture in [0, 1] {
                let with = |reduction: u64, narrow: u64| {
                    let given = [
                        ("ARCHITECTURE", architecture),
                        ("LOG_N", transform.log_n()),
                        ("Q", transform.q()),
                        ("REDUCTION", reduction),
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
                let Some((values, plan)) = with(0, 0) else {
                    continue;
                };
                let is_other = |other: &(Values, Plan)| other.1.dsp() != plan.dsp();
                let narrow = with(0, NARROW).filter(is_other);
                // Where Montgomery's reduction has many steps, Barrett's takes less time or fewer slices.
                let is_better = |other: &(Values, Plan)| {
                    other.1.latency() < plan.latency() || other.1.dsp() < plan.dsp()
                };
                let barrett = with(BARRETT, 0).filter(is_better);
                found.push(values);
                found.extend(
                    [narrow, barrett]
                        .into_iter()
                        .flatten()
                        .map(|(values, _)| values),
                );
            }
        }
        match found.is_empty() {
            true => Err(
                "has transforms of 4 to 32768 words modulo 11 and above, with coefficients in natural order and values in that or bit-reversed"
                    .to_owned(),
            ),
            false => Ok(found),
        }
    }

    fn figures_of(
        &self,
        values: &Values,
        technology: Technology,
        _transform: Option<&Transform>,
    ) -> Option<Figures> {
        let plan = plan(values).ok()?;
        if plan.setting().architecture.log_lanes() > 0 {
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
            orders: orders(&plan),
            dsp: plan.dsp(),
            features: features(&plan, technology),
        })
    }

    fn samples(&self, technology: Technology) -> Vec<Values> {
        const GOLDILOCKS: u64 = toroid_ring::goldilocks::P;
        const WIDE: u64 = 4_293_918_721; // 2^32 - 2^20 + 1
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
                [0, 6, GENERAL, 0, 0, 3],
                [1, 8, 7_681, 0, 0, 3],
                [1, 5, GENERAL_WIDE, 1, 0, 3],
                [1, 7, GENERAL, 0, 1, 3],
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
                [1, 6, GENERAL, 1, 0, 3],
                [0, 9, 12_289, 0, 1, 0],
                [1, 8, PAPER, 0, 1, 0],
                [1, 4, GENERAL_WIDE, 0, 0, 0],
                [0, 7, 7_681, 0, 0, 3],
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
}

fn features(plan: &Plan, technology: Technology) -> Features {
    let setting = plan.setting();
    let (bits, log_n) = (u64::from(plan.bits()), u64::from(setting.log_n));
    let multipliers = plan.multipliers();
    let reduction = plan.reduction();
    let is_solinas = reduction == Reduction::Solinas;
    let word = bits + u64::from(is_solinas);

    let products = plan.products();
    let beside: Vec<Beside> = products
        .iter()
        .map(|each| product(each, setting.tiles, technology))
        .collect();
    let in_products =
        |count: fn(&Beside) -> u64| (multipliers * beside.iter().map(count).sum::<u64>()) as f64;
    let sums = beside.iter().map(|each| each.counts).sum::<Counts>();

    // Registers of a product's result, of the sum, and the first of the steps, and what is delayed beside the products.
    // Montgomery's steps keep a word each; beside Barrett's last two products waits the lower part of the first.
    let steps = products.len() as u64 - 1;
    let (results, waiting) = match reduction {
        Reduction::Solinas => (3 * bits + 9, (1, plan.stage_latency() - 2)),
        Reduction::Montgomery => (
            2 * bits + steps * (bits + 2) + bits,
            (bits + 1, plan.stage_latency() / 2),
        ),
        Reduction::Barrett => (
            (bits + 2) + 3 * bits,
            (
                bits + 2,
                products[1..]
                    .iter()
                    .map(|each| each.latency(setting.tiles))
                    .sum(),
            ),
        ),
    };
    let own = delay(results, 1, technology);
    let waiting = delay(waiting.0, waiting.1, technology);
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

    let only = |of: Reduction, count: u64| if of == reduction { count as f64 } else { 0.0 };
    Features {
        lut: vec![
            (
                "bits of stages, 2^i - 2^j + 1",
                only(Reduction::Solinas, multipliers * bits),
            ),
            (
                "bits of stages and of Montgomery's steps",
                only(Reduction::Montgomery, multipliers * bits * (1 + steps)),
            ),
            (
                "bits of stages, Barrett",
                only(Reduction::Barrett, multipliers * bits),
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
    use crate::core::vectors::{Streams, Vectors};
    use crate::model::{Model, Options};
    use crate::toolchain::tests_are_skipped;

    #[test]
    fn cycles_are_those_of_simulation() {
        if tests_are_skipped() {
            return;
        }
        let options = Options {
            random_start: true,
            quick: true,
            ..Options::default()
        };
        // ARCHITECTURE, LOG_N, Q, REDUCTION, INVERSE, NATURAL
        for [architecture, log_n, q, reduction, inverse, natural] in [
            [0, 3, 7_681, 0, 0, 1],
            [1, 4, GENERAL, 0, 1, 0],
            [1, 3, 7_681, 2, 0, 1],
            [0, 4, GENERAL, BARRETT, 1, 1],
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
            let figures = Feedback.figures(&values, Technology::Xc7).unwrap();
            let model = Model::build(&NttSdf.design(&values).unwrap(), &options).unwrap();
            let mut simulation = model.start_random(1).unwrap();
            simulation.reset(4).unwrap();
            let Some(Vectors::Streams(mut streams)) = NttSdf.vectors(&values, 1, 1) else {
                panic!("no streams");
            };
            let transforms = (streams.sent.len() >> log_n) as u64;
            let mut measured = |streams: &Streams| {
                let vectors = Vectors::Streams(streams.clone());
                vectors.run(&mut simulation, 1, &()).unwrap().measured
            };
            let all = measured(&streams);
            streams.sent.truncate(1 << log_n);
            streams.expected.truncate(1 << log_n);
            let alone = measured(&streams);
            assert_eq!(figures.latency, alone, "{values:?}");
            assert_eq!(
                (transforms - 1) * figures.interval,
                all - alone,
                "{values:?}"
            );
        }
    }

    #[test]
    fn settings_with_two_lanes_are_the_streaming_cores() {
        let (values, _) = setting(Technology::Xc7, &[("ARCHITECTURE", 2)]).unwrap();
        assert!(Feedback.figures(&values, Technology::Xc7).is_none());
    }

    #[test]
    fn reductions_are_offered_where_they_save_something() {
        let reductions = |n, q| {
            let wanted = Transform::new(n, q, Ring::Negacyclic).unwrap();
            let settings = Feedback.settings(&wanted, Technology::Xc7).unwrap();
            let found: Vec<[u64; 2]> = settings
                .iter()
                .map(|values| [values.get("REDUCTION"), values.get("NARROW")])
                .collect();
            // The same for both architectures and both orders.
            let each = found.len() / 4;
            assert!(found.chunks(each).all(|own| own == &found[..each]));
            found[..each].to_vec()
        };
        assert_eq!(reductions(256, 7_681), [[0, 0]]);
        assert_eq!(reductions(256, PAPER), [[0, 0], [0, NARROW]]);
        assert_eq!(reductions(64, GENERAL), [[0, 0], [BARRETT, 0]]);
        assert_eq!(reductions(64, GENERAL_WIDE), [[0, 0]]);
    }

    #[test]
    fn parts_are_those_of_the_reduction() {
        for (reduction, part) in [(1, "2^i"), (2, "Montgomery"), (3, "Barrett")] {
            let given = [("ARCHITECTURE", 0), ("REDUCTION", reduction)];
            let (values, _) = setting(Technology::Xc7, &given).unwrap();
            let figures = Feedback.figures(&values, Technology::Xc7).unwrap();
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
                let settings = Feedback.settings(&wanted, Technology::Ecp5).unwrap();
                for values in settings {
                    assert!(NttSdf.design(&values).is_ok(), "{values:?}");
                    let figures = Feedback.figures(&values, Technology::Ecp5).unwrap();
                    assert_eq!(figures.interval, n);
                    assert_eq!(figures.orders.1, Order::Natural);
                }
            }
        }
        let mut halves = Transform::new(64, 7_681, Ring::Negacyclic).unwrap();
        halves.input = Some(Order::Halves);
        assert!(Feedback.settings(&halves, Technology::Xc7).is_err());
    }
}
