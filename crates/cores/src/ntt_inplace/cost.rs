//! The in-place core: few butterflies that every row of a transform uses.

use toroid_ring::goldilocks::P;

use super::{CORE, Shape};
use crate::cost::{Features, Figures, memory_blocks, tiles};
use crate::interface::Values;
use crate::order::Order;
use crate::technology::Technology;
use crate::transform::{Direction, Ring, Transform};

/// Bits of a word.
const WORD: u64 = 64;

/// Words from which on Yosys makes block memories of banks and of the table of twiddles, as its runs show.
fn least_block_depths(technology: Technology) -> (u64, u64) {
    match technology {
        Technology::Xc7 => (128, 256),
        Technology::Ecp5 => (64, 64),
    }
}

/// Look-up tables of a bank that is made of them: six bits of 32 words in four of Xilinx 7 series (RAM32M), four bits of 16
/// words in two of ECP5.
fn memory_tables(depth: u64, technology: Technology) -> f64 {
    match technology {
        Technology::Xc7 => (4 * WORD.div_ceil(6) * depth.div_ceil(32)) as f64,
        Technology::Ecp5 => (2 * WORD.div_ceil(4) * depth.div_ceil(16)) as f64,
    }
}

/// Bits of a ROM that a look-up table holds.
fn table_bits(technology: Technology) -> f64 {
    match technology {
        Technology::Xc7 => 64.0,
        Technology::Ecp5 => 16.0,
    }
}

fn setting(technology: Technology, log_n: u64, log_lanes: u64, circuits: u64) -> Option<Values> {
    let given = [
        ("LOG_N", log_n),
        ("LOG_LANES", log_lanes),
        ("CIRCUITS", circuits),
    ];
    let values = Values::new(&CORE, given.into_iter().chain(tiles(technology))).ok()?;
    Shape::of(&values).ok().map(|_| values)
}

/// Words of the table of twiddles an address holds one of for each butterfly: the addresses of all rows.
fn twiddle_depth(log_n: u64, log_lanes: u64) -> u64 {
    (0..log_n)
        .map(|bit| 1 << log_n.saturating_sub((bit / log_lanes + 1) * log_lanes))
        .sum()
}

pub(super) fn settings(
    transform: &Transform,
    technology: Technology,
) -> Result<Vec<Values>, String> {
    if transform.q() != P {
        return Err(format!("computes modulo {P} only"));
    }
    if transform.ring != Ring::Negacyclic {
        return Err("has negacyclic transforms only".to_owned());
    }
    let orders = orders(transform.direction);
    if !transform.accepts(orders) {
        return Err(format!(
            "takes words in {} order and gives them in {} order in this direction",
            orders.0.name(),
            orders.1.name()
        ));
    }
    let pairs = (2..=10).flat_map(|log_lanes| (1..=8).map(move |circuits| (log_lanes, circuits)));
    let found: Vec<Values> = pairs
        .filter_map(|(log_lanes, circuits)| {
            setting(technology, transform.log_n(), log_lanes, circuits)
        })
        .collect();
    match found.is_empty() {
        true => Err("has transforms of 8 to 131072 words, powers of two".to_owned()),
        false => Ok(found),
    }
}

pub(super) fn figures(
    shape: &Shape,
    technology: Technology,
    transform: Option<&Transform>,
) -> Option<Figures> {
    let direction = transform.map_or(Direction::Forward, |transform| transform.direction);
    let is_inverse = direction == Direction::Inverse;
    let (log_n, log_lanes) = (u64::from(shape.log_n), u64::from(shape.log_lanes));
    let circuits = shape.circuits as u64;
    let lanes = 1 << log_lanes;
    let butterflies = circuits * lanes / 2;
    let multiplier = WORD.div_ceil(shape.tiles.0) * (WORD + 1).div_ceil(shape.tiles.1);
    Some(Figures {
        latency: shape.alone(is_inverse),
        interval: shape.interval(is_inverse),
        transforms: circuits,
        butterflies,
        words_in: circuits * lanes,
        words_out: circuits * lanes,
        word_bits: WORD,
        orders: orders(direction),
        dsp: butterflies * multiplier,
        features: features(log_n, log_lanes, circuits, technology),
    })
}

pub(super) fn samples(technology: Technology) -> Vec<Values> {
    // The largest is held out, so that errors are those of extrapolation, too: see `is_held_out`.
    let settings: &[(u64, u64, u64)] = match technology {
        Technology::Xc7 => &[
            (5, 2, 1),
            (14, 5, 1),
            (10, 3, 1),
            (8, 3, 2),
            (7, 4, 1),
            (11, 4, 1),
            (12, 2, 2),
            (10, 4, 2),
            (9, 5, 1),
            (12, 4, 1),
            (9, 3, 2),
        ],
        Technology::Ecp5 => &[
            (5, 2, 1),
            (12, 3, 1),
            (10, 2, 1),
            (8, 3, 1),
            (8, 2, 2),
            (9, 2, 2),
            (11, 3, 1),
            (7, 2, 3),
            (9, 3, 1),
            (10, 3, 1),
            (6, 3, 1),
        ],
    };
    settings
        .iter()
        .filter_map(|(log_n, log_lanes, circuits)| {
            setting(technology, *log_n, *log_lanes, *circuits)
        })
        .collect()
}

fn orders(direction: Direction) -> (Order, Order) {
    match direction {
        Direction::Forward => (Order::Natural, Order::BitReversed),
        Direction::Inverse => (Order::BitReversed, Order::Natural),
    }
}

fn features(log_n: u64, log_lanes: u64, circuits: u64, technology: Technology) -> Features {
    let lanes = 1u64 << log_lanes;
    let banks = circuits * lanes;
    let depth = 1u64 << (log_n - log_lanes);
    let butterflies = banks / 2;
    let words = banks * WORD;
    // To the lanes and back: a selection of four for each two of the key's lower bits, and one for its top bit and the turn;
    // the top chunk's turn is another, but for a chunk of one bit, whose turn is the same, and for four lanes.
    let has_top_turn = log_n % log_lanes != 1 && log_lanes > 2;
    let selections = words * 2 * (log_lanes / 2 + 1 + u64::from(has_top_turn));
    let address_bits = 2 * banks * (log_n - log_lanes);
    let (least_bank, least_table) = least_block_depths(technology);
    let has_blocks = depth >= least_bank;
    let table = (twiddle_depth(log_n, log_lanes), lanes / 2 * WORD);
    let has_table_blocks = table.0 >= least_table;
    let only = |is_so: bool, count: f64| if is_so { count } else { 0.0 };
    Features {
        lut: vec![
            ("butterflies with their lanes", butterflies as f64),
            ("selected bits", selections as f64),
            ("address bits", address_bits as f64),
            (
                "look-up tables of memories",
                only(!has_blocks, banks as f64 * memory_tables(depth, technology))
                    + only(
                        !has_table_blocks,
                        (table.0 * table.1) as f64 / table_bits(technology),
                    ),
            ),
        ],
        ff: vec![
            ("butterflies with their lanes", butterflies as f64),
            ("bits of a row of twiddles", table.1 as f64),
            ("address bits", address_bits as f64),
        ],
        bram36: vec![
            (
                "banks",
                only(
                    has_blocks,
                    banks as f64 * memory_blocks(depth, WORD, technology),
                ),
            ),
            (
                "twiddles",
                only(
                    has_table_blocks,
                    memory_blocks(table.0, table.1, technology),
                ),
            ),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transform(n: u64) -> Transform {
        Transform::new(n, P, Ring::Negacyclic).unwrap()
    }

    #[test]
    fn cycles_are_those_of_the_core() {
        let values = setting(Technology::Xc7, 14, 5, 2).unwrap();
        let figures = CORE
            .configure(&values)
            .unwrap()
            .cost(Technology::Xc7, None)
            .unwrap();
        let timing = CORE.configure(&values).unwrap().timing();
        assert_eq!(figures.latency, timing.latency.unwrap().cycles);
        assert_eq!(figures.interval, timing.interval.unwrap().cycles);
        let mut inverse = transform(1 << 14);
        inverse.direction = Direction::Inverse;
        let back = CORE
            .configure(&values)
            .unwrap()
            .cost(Technology::Xc7, Some(&inverse))
            .unwrap();
        // The core states both in a row, which overlap in no cycle.
        assert_eq!(figures.interval + back.latency, timing.checked.cycles);
        assert_eq!(twiddle_depth(14, 5), 2644);
    }

    #[test]
    fn settings_are_those_that_the_core_can_be_made_with() {
        for n in [8, 16, 4096, 1 << 17] {
            for values in settings(&transform(n), Technology::Xc7).unwrap() {
                assert!(CORE.configure(&values).is_ok(), "{values:?}");
                assert_eq!(1 << values["LOG_N"], n);
            }
        }
        let refused = |transform: &Transform| settings(transform, Technology::Xc7).unwrap_err();
        assert!(refused(&transform(1 << 18)).contains("131072"));
        let small = Transform::new(16, 97, Ring::Negacyclic).unwrap();
        assert!(refused(&small).contains("modulo"));
        let cyclic = Transform::new(16, P, Ring::Cyclic).unwrap();
        assert!(refused(&cyclic).contains("negacyclic"));
        let mut natural = transform(16);
        natural.output = Some(Order::Natural);
        assert!(refused(&natural).contains("bit-reversed"));
    }
}
