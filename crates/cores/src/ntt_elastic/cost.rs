//! The elastic core: LANES words per cycle, the settings by the lanes that a length asks for and by what its moduli have in common.

use super::plan::{Mode, ORDERS, Plan};
use super::{CORE, plan};
use crate::cost::{Counts, Features, Figures, delay, memory, tiles};
use crate::interface::Values;
use crate::technology::Technology;
use crate::transform::{Direction, Ring, Transform};

/// Bits of a word.
const WORD: u64 = 64;

/// Words of factors beside a beat.
const FACTORS: u64 = 2;

fn setting(technology: Technology, log_lanes: u64, word: u64) -> Option<(Values, Plan)> {
    let given = [("LOG_LANES", log_lanes), ("WORD", word)];
    let values = Values::new(&CORE, given.into_iter().chain(tiles(technology))).ok()?;
    let plan = plan(&values).ok()?;
    Some((values, plan))
}

/// A transform as the core has it.
fn one(transform: &Transform) -> super::Transform {
    super::Transform {
        q: transform.q(),
        mode: match (transform.ring, transform.direction) {
            (Ring::Cyclic, Direction::Forward) => Mode::Ntt,
            (Ring::Cyclic, Direction::Inverse) => Mode::Intt,
            (Ring::Negacyclic, Direction::Forward) => Mode::Ncn,
            (Ring::Negacyclic, Direction::Inverse) => Mode::Incn,
        },
        log_n: transform.log_n() as u32,
    }
}

pub(super) fn settings(
    transform: &Transform,
    technology: Technology,
) -> Result<Vec<Values>, String> {
    if !transform.accepts(ORDERS) {
        return Err(
            "takes and gives words that are N / LANES apart in a beat, in no other order"
                .to_owned(),
        );
    }
    let one = one(transform);
    let mut found = Vec::new();
    for log_lanes in 2..=5 {
        // The fewer bits the moduli must share, the more of them there are: of settings that take the same steps and
        // slices, the one that has most.
        let mut kinds = Vec::new();
        for word in 4..=21 {
            let of_transform =
                setting(technology, log_lanes, word).filter(|(_, plan)| plan.check(&one).is_ok());
            if let Some((values, plan)) = of_transform {
                let kind = (plan.steps(), plan.dsp(), narrow_bits(&plan));
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                    found.push(values);
                }
            }
        }
    }
    match found.is_empty() {
        true => Err("has transforms of 64 words and of 256 to 32768, powers of two".to_owned()),
        false => Ok(found),
    }
}

pub(super) fn figures(
    plan: &Plan,
    technology: Technology,
    transform: Option<&Transform>,
) -> Option<Figures> {
    let log_n = transform.map_or(*plan.log_n().end(), |transform| one(transform).log_n);
    if !plan.log_n().contains(&log_n) {
        return None;
    }
    let lanes = plan.lanes() as u64;
    Some(Figures {
        latency: plan.latency(log_n),
        interval: plan.beats(log_n),
        transforms: 1,
        butterflies: plan.multipliers()[0],
        words_in: lanes + FACTORS,
        words_out: lanes,
        word_bits: WORD,
        orders: ORDERS,
        dsp: plan.dsp(),
        features: features(plan, technology),
    })
}

pub(super) fn samples(technology: Technology) -> Vec<Values> {
    // LOG_LANES, WORD
    let settings: &[(u64, u64)] = match technology {
        Technology::Xc7 => &[(2, 10), (2, 7), (2, 13)],
        // No device of this family has multipliers for it.
        Technology::Ecp5 => &[],
    };
    settings
        .iter()
        .filter_map(|&(log_lanes, word)| setting(technology, log_lanes, word))
        .map(|(values, _)| values)
        .collect()
}

/// The form of the paper.
pub(super) fn large_samples(technology: Technology) -> Vec<Values> {
    match technology {
        Technology::Xc7 => setting(technology, 4, 10)
            .into_iter()
            .map(|(values, _)| values)
            .collect(),
        Technology::Ecp5 => Vec::new(),
    }
}

/// Bits of q / 2^WORD that are multiplied in look-up tables: a last tile of at most three.
fn narrow_bits(plan: &Plan) -> u64 {
    let setting = plan.setting();
    let rest = (WORD - u64::from(setting.word)) % u64::from(setting.tiles.1.max(1));
    if rest <= 3 { rest } else { 0 }
}

/// `toroid_pkg::montgomery_width` of a word: bits of what `n` steps have left.
fn rest_width(step: u64, n: u64) -> u64 {
    match n {
        0 => 2 * WORD,
        _ if n * step >= WORD => WORD + 1,
        _ => (2 * WORD - n * step).max(WORD + 1) + 1,
    }
}

fn features(plan: &Plan, technology: Technology) -> Features {
    let setting = plan.setting();
    let (lanes, log_lanes) = (plan.lanes() as u64, u64::from(setting.log_lanes));
    let [butterflies, products, factors] = plan.multipliers();
    let multipliers = butterflies + products + factors;
    let (steps, step) = plan.steps();
    let (steps, step) = (u64::from(steps), u64::from(step));
    let mul = plan.mul_latency();
    let upper = WORD - u64::from(setting.word);
    let log_beats = 2 * log_lanes;
    let of = |bits: u64, cycles: u64| delay(bits, cycles, technology);

    // A multiplier: what the steps have left, of each step what its products are made of, and the result. What is above a
    // step's lower bits waits three cycles.
    let half = step - u64::from(setting.word);
    let widths: u64 = (0..=steps).map(|n| rest_width(step, n)).sum();
    let late: u64 = (0..steps).map(|n| rest_width(step, n) - step).sum();
    // A product in look-up tables beside the slices keeps their operands out of them.
    let kept = if narrow_bits(plan) > 0 { 3 } else { 1 };
    let each: Counts = [of(late, 3), of(widths + WORD + steps * step * kept, 1)]
        .into_iter()
        .sum();
    let mut all = vec![each.times(multipliers)];
    // The modulus beside the multipliers of a column, of three units, the product, the powers and the second unit's twiddles:
    // each step takes its lower bits two cycles before the others.
    let columns = 3 * log_lanes + 1 + (1 + log_lanes) + log_lanes;
    let column: Counts = [
        of(upper, 4),
        of(upper - half, 4).times(steps - 1),
        of(3 * upper + half * (4 * steps - 2), 1),
    ]
    .into_iter()
    .sum();
    all.push(column.times(columns));
    // Butterflies: the other operand waits; sum and difference, or the difference alone.
    let before = log_lanes * lanes / 2;
    all.push(
        [of(WORD, mul), of(2 * WORD, 1)]
            .into_iter()
            .sum::<Counts>()
            .times(before),
    );
    all.push(
        [of(WORD, mul + 1), of(WORD, 1)]
            .into_iter()
            .sum::<Counts>()
            .times(2 * before),
    );
    // Constants, now and next: of a unit over the lanes, of the second one, and q or what the product begins with.
    let constants = 2 * (lanes - 1) + lanes / 2 + 4;
    all.push(of(WORD, 2).times(constants));
    // Words on their way to the stages of both units, and beside those of the second one.
    all.push(of(log_beats + WORD, mul + 1).times(2 * (log_lanes - 1)));
    all.push(of(WORD, mul).times(2));
    all.push(of(WORD, mul + 1).times(log_lanes - 1));
    all.push(of(WORD, 1).times(lanes - 1));
    // Powers that wait for others, and lanes that wait for them.
    all.push(of(2 * WORD, mul));
    all.push(of(WORD, mul).times(lanes - 1));
    all.push(of(WORD, mul - log_lanes).times(lanes));
    // Constants past the banks and the second unit.
    let unit = log_lanes * (mul + 1);
    all.push(of(WORD + log_beats, (log_lanes + 1) * mul));
    all.push(of(WORD + log_beats, mul + unit + lanes - 2));
    // Beats at both ends and around the banks.
    all.push(of(lanes * WORD, 2));
    all.push(of(lanes * WORD, 1).times(2));
    for n in 0..log_lanes {
        all.push(of(lanes * WORD, 1 << n));
    }
    all.push(memory(2 * lanes * lanes, WORD, technology).times(lanes + 1));
    all.push(memory(2 * lanes, WORD, technology));
    all.push(memory(plan.room(), lanes * WORD + 5, technology));
    let all: Counts = all.into_iter().sum();

    // Rotations of the banks' lanes, four words to a table; commutators; twiddles or ones; sums and differences modulo q, six
    // tables a bit.
    let selected = 2 * lanes * lanes / 4 + lanes * log_lanes + (log_lanes - 2) * lanes / 2;
    let tables = all.tables + (WORD * (selected + 6 * butterflies)) as f64;
    Features {
        lut: vec![
            ("multipliers", multipliers as f64),
            (
                "bits multiplied in look-up tables",
                (multipliers * steps * step * narrow_bits(plan)) as f64,
            ),
            (
                "selections, butterflies, memories and shift registers",
                tables,
            ),
        ],
        ff: vec![("registers", all.registers), ("control", 1.0)],
        bram36: vec![("banks, constants and queue", all.blocks)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Order;
    use crate::testing::measured;
    use toroid_ring::goldilocks::P;
    use toroid_sim::toolchain::tests_are_skipped;

    fn transform(n: u64, q: u64, ring: Ring) -> Transform {
        Transform::new(n, q, ring).unwrap()
    }

    /// The core's vectors are a transform of each kind, of four lanes all of 64 words.
    #[test]
    fn cycles_are_those_of_simulation() {
        if tests_are_skipped() {
            return;
        }
        let wanted = transform(64, P, Ring::Negacyclic);
        let settings = settings(&wanted, Technology::Xc7).unwrap();
        let kinds = Mode::ALL.len();
        let mut latencies = Vec::new();
        for values in [settings.first().unwrap(), settings.last().unwrap()] {
            let figures = CORE
                .configure(values)
                .unwrap()
                .cost(Technology::Xc7, Some(&wanted))
                .unwrap();
            let (all, alone) = measured(&CORE, values, kinds);
            assert_eq!(figures.latency, alone, "{values:?}");
            let more = kinds as u64 - 1;
            assert_eq!(more * figures.interval, all - alone, "{values:?}");
            latencies.push(alone);
        }
        // Of other WORDs, and other steps of their products.
        assert_ne!(latencies[0], latencies[1]);
    }

    #[test]
    fn settings_are_those_that_have_the_transform() {
        for (n, log_lanes) in [(64, &[2][..]), (512, &[3]), (4096, &[4, 5]), (32768, &[5])] {
            for ring in [Ring::Negacyclic, Ring::Cyclic] {
                for direction in [Direction::Forward, Direction::Inverse] {
                    let mut wanted = transform(n, P, ring);
                    wanted.direction = direction;
                    let settings = settings(&wanted, Technology::Xc7).unwrap();
                    for values in &settings {
                        assert!(CORE.configure(values).is_ok());
                        let plan = plan(values).unwrap();
                        assert_eq!(plan.check(&one(&wanted)), Ok(()));
                        let figures = CORE
                            .configure(values)
                            .unwrap()
                            .cost(Technology::Xc7, Some(&wanted))
                            .unwrap();
                        assert_eq!(figures.interval * figures.words_out, n);
                        assert_eq!(figures.words_in, figures.words_out + 2);
                    }
                    let mut lanes: Vec<u64> =
                        settings.iter().map(|values| values["LOG_LANES"]).collect();
                    lanes.dedup();
                    assert_eq!(lanes, log_lanes);
                }
            }
        }
        // 7681 is 1 modulo 2^9.
        let wanted = transform(256, 7681, Ring::Negacyclic);
        let settings = settings(&wanted, Technology::Xc7).unwrap();
        assert_eq!(settings.iter().map(|values| values["WORD"]).max(), Some(7));
    }

    #[test]
    fn what_it_has_not_is_refused() {
        let refused = |wanted: &Transform| settings(wanted, Technology::Xc7).unwrap_err();
        assert!(
            refused(&transform(128, P, Ring::Negacyclic)).contains("256 to 32768, powers of two")
        );
        assert!(refused(&transform(21845, 4_244_570_881, Ring::Cyclic)).contains("32768"));
        let mut natural = transform(4096, P, Ring::Negacyclic);
        natural.input = Some(Order::Natural);
        assert!(refused(&natural).contains("no other order"));
    }
}
