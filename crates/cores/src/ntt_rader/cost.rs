//! The prime-factor and Rader core: one setting for a length.

use super::plan::Plan;
use super::{CORE, Tiled, plan};
use crate::cost::{Features, Figures, memory_blocks, tiles};
use crate::interface::Values;
use crate::order::Order;
use crate::technology::Technology;
use crate::transform::{Ring, Transform};

/// Bits of a word.
const WORD: u64 = 32;

/// Bits that its modulus ends with, of which the lowest is set: what a step of the reduction knows.
const RADIX: u64 = 8;

/// Words from which on Yosys makes block memories of columns, as its runs show.
const LEAST_BLOCK: u64 = 128;

/// DSP slices of an element's multiplier: the product, and two steps of the reduction.
fn dsp(tiles: (u32, u32)) -> u64 {
    let (a, b) = (u64::from(tiles.0), u64::from(tiles.1));
    WORD.div_ceil(a) * WORD.div_ceil(b) + 2 * (WORD - RADIX).div_ceil(a) * (2 * RADIX).div_ceil(b)
}

fn setting(technology: Technology, m: u64, q: u64) -> Option<Values> {
    let given = [("M", m), ("Q", q)];
    let values = Values::new(&CORE, given.into_iter().chain(tiles(technology))).ok()?;
    plan(&values).ok().map(|_| values)
}

pub(super) fn settings(
    transform: &Transform,
    technology: Technology,
) -> Result<Vec<Values>, String> {
    if transform.ring != Ring::Cyclic {
        return Err("has cyclic transforms only".to_owned());
    }
    if !transform.accepts((Order::Natural, Order::Natural)) {
        return Err("takes and gives words in natural order".to_owned());
    }
    Plan::new(transform.n(), transform.q())
        .map_err(|error| format!("has no such transform: {error}"))?;
    Ok(setting(technology, transform.n(), transform.q())
        .into_iter()
        .collect())
}

pub(super) fn figures(tiled: &Tiled, technology: Technology) -> Option<Figures> {
    let plan = &tiled.plan;
    let columns = plan.columns() as u64;
    let elements = plan.butterflies() as u64 + 1;
    Some(Figures {
        latency: plan.alone(),
        interval: plan.interval(),
        transforms: 1,
        butterflies: elements,
        words_in: columns,
        words_out: columns,
        word_bits: WORD,
        orders: (Order::Natural, Order::Natural),
        dsp: elements * dsp(tiled.tiles),
        features: features(plan, technology),
    })
}

pub(super) fn samples(technology: Technology) -> Vec<Values> {
    // The second and every fourth after it are held out: see `is_held_out`.
    let settings: &[(u64, u64)] = match technology {
        Technology::Xc7 => &[
            (15, 7681),
            (85, 4_294_662_401),
            (51, 26113),
            (85, 87041),
            (255, 783_361),
            (4369, 4_282_598_657),
            (21845, 4_244_570_881),
            (15, 4_294_928_641),
            (51, 4_294_614_529),
        ],
        Technology::Ecp5 => &[],
    };
    settings
        .iter()
        .filter_map(|&(m, q)| setting(technology, m, q))
        .collect()
}

fn features(plan: &Plan, technology: Technology) -> Features {
    let (columns, words) = (plan.columns() as u64, plan.words() as u64);
    let elements = plan.butterflies() as u64 + 1;
    let depth = 2 * words.next_power_of_two();
    let has_blocks = depth >= LEAST_BLOCK;
    let only = |is_so: bool, count: f64| if is_so { count } else { 0.0 };
    let address_bits = u64::from(words.next_power_of_two().trailing_zeros());
    // Two rings, and the selections after them for every column.
    let ring = (2 * words * address_bits) as f64;
    let passes = plan.passes().next_power_of_two() as u64;
    let constants = (elements * 2 * passes * WORD) as f64;
    let slots = (plan.program().len() as u64).next_power_of_two();
    let program = (2 * slots, 3 + 2 * address_bits + WORD);
    Features {
        lut: vec![
            ("elements with their columns", elements as f64),
            ("bits of constants", constants),
            (
                "words of columns of look-up tables",
                only(!has_blocks, (columns * depth) as f64),
            ),
            ("address bits", ring),
            ("control", 1.0),
        ],
        ff: vec![
            ("elements with their columns", elements as f64),
            (
                "columns of look-up tables",
                only(!has_blocks, columns as f64),
            ),
            ("address bits", ring),
            ("control", 1.0),
        ],
        bram36: vec![
            (
                "columns",
                only(
                    has_blocks,
                    columns as f64 * memory_blocks(depth, WORD, technology),
                ),
            ),
            (
                "program",
                only(
                    program.0 >= LEAST_BLOCK,
                    memory_blocks(program.0, program.1, technology),
                ),
            ),
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
        for (m, q) in [(15, 7681), (51, 26_113), (85, 87_041)] {
            let values = setting(Technology::Xc7, m, q).unwrap();
            let figures = CORE
                .configure(&values)
                .unwrap()
                .cost(Technology::Xc7, None)
                .unwrap();
            let (all, alone) = measured(&CORE, &values, TRANSFORMS);
            assert_eq!(figures.latency, alone, "{m}");
            let more = TRANSFORMS as u64 - 1;
            assert_eq!(more * figures.interval, all - alone, "{m}");
        }
    }

    #[test]
    fn a_length_has_one_setting() {
        let wanted = Transform::new(21845, 4_244_570_881, Ring::Cyclic).unwrap();
        let settings = settings(&wanted, Technology::Xc7).unwrap();
        assert_eq!(settings.len(), 1);
        let figures = CORE
            .configure(&settings[0])
            .unwrap()
            .cost(Technology::Xc7, None)
            .unwrap();
        assert_eq!((figures.dsp, figures.butterflies), (774, 129));
        assert_eq!((figures.latency, figures.interval), (2517, 2316));
    }

    #[test]
    fn what_it_does_not_compute_is_refused() {
        let refused = |n, q, ring| {
            let wanted = Transform::new(n, q, ring).unwrap();
            settings(&wanted, Technology::Xc7).unwrap_err()
        };
        assert!(refused(16, 97, Ring::Negacyclic).contains("cyclic"));
        assert!(refused(16, 97, Ring::Cyclic).contains("3, 5, 17 and 257"));
        // 1 modulo 15, but not modulo 256 times that.
        assert!(refused(15, 31, Ring::Cyclic).contains("3840"));
        let mut wanted = Transform::new(15, 7681, Ring::Cyclic).unwrap();
        wanted.output = Some(Order::BitReversed);
        let refused = settings(&wanted, Technology::Xc7).unwrap_err();
        assert!(refused.contains("natural"));
    }
}
