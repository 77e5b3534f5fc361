//! The core `ntt_elastic` against the library's transforms. `toroid-hw-bench elastic` does the same for many more and for the
//! settings of its paper.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use toroid_cosim::core::ntt_elastic::{plan, vectors};
use toroid_cosim::core::{self, CoreError, Values, find};
use toroid_cosim::model::{Model, ModelError, Options};
use toroid_cosim::ntt_elastic::{Mode, Plan, Transform};
use toroid_cosim::random::Random;
use toroid_cosim::simulation::Simulation;
use toroid_cosim::stream::{Sink, Source};
use toroid_cosim::toolchain::tests_are_skipped;
use toroid_ring::{goldilocks, prime};

/// Settings of the core: those that are not given keep their defaults.
type Given<'a> = &'a [(&'static str, u64)];

/// A setting that is simulated quickly, with two lengths.
const SMALL: Given = &[("LOG_LANES", 3), ("WORD", 8)];

fn values(given: Given) -> Result<Values, CoreError> {
    Values::new(find("ntt_elastic").unwrap(), given.iter().copied())
}

fn start(given: Given, seed: u32) -> (Plan, Simulation) {
    let values = values(given).unwrap();
    let options = Options {
        random_start: true,
        quick: true,
        ..Options::default()
    };
    let design = find("ntt_elastic").unwrap().design(&values).unwrap();
    let mut simulation = Model::build(&design, &options)
        .unwrap()
        .start_random(seed)
        .unwrap();
    simulation.reset(2).unwrap();
    (plan(&values).unwrap(), simulation)
}

#[test]
fn every_width() {
    if tests_are_skipped() {
        return;
    }
    // Four lanes with seven steps a product, and tiles of another family.
    let settings: [Given; 2] = [
        &[("LOG_LANES", 2), ("WORD", 4)],
        &[("LOG_LANES", 2), ("WORD", 7), ("TILE_A", 18), ("TILE_B", 18)],
    ];
    for given in settings {
        let values = values(given).unwrap();
        let outcome = core::test(find("ntt_elastic").unwrap(), &values, 1, 7, None, &())
            .unwrap_or_else(|error| panic!("{given:?}: {error}"));
        assert_eq!(outcome.measured, outcome.expected, "{given:?}");
    }
}
