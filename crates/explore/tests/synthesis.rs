//! Synthesis of large cores, and the runs that the explorer's model is fitted to.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use toroid_cores::synthesis::synthesize;
use toroid_cores::technology::Technology;
use toroid_explore::model::{Run, runs};
use toroid_sim::toolchain::tests_are_skipped;
use toroid_task::Progress;

/// The run that takes the least time: it has two butterflies, one of which is mapped and counted twice.
#[test]
fn a_run_of_the_model_is_what_the_tools_give() {
    if tests_are_skipped() {
        return;
    }
    let smallest = |run: &&Run| run.core == "ntt_inplace" && run.device == Technology::Xc7.name();
    let run = runs()
        .iter()
        .filter(smallest)
        .min_by_key(|run| run.lut)
        .unwrap();
    let core = toroid_cores::find(&run.core).unwrap();
    let values = run.values(core).unwrap();
    let found = synthesize(core, &values, Technology::Xc7, &Progress::none()).unwrap();
    assert_eq!(
        (
            found.lut,
            found.ff,
            found.lutram,
            found.dsp,
            found.ramb18,
            found.ramb36
        ),
        (run.lut, run.ff, run.lutram, run.dsp, run.ramb18, run.ramb36),
    );
    assert_eq!(found.dsp, 24);
}
