//! Place and route of a sum between registers, on both devices.

use std::io::Write as _;

use toroid_cores::CoreError;
use toroid_cores::synthesis::route_design;
use toroid_cores::technology::Technology;
use toroid_sim::model::{Design, ModelError};
use toroid_sim::toolchain::{ToolError, tests_are_skipped};
use toroid_task::Progress;

const SOURCE: &str = "
module sum (
    input  logic        clk_i,
    input  logic [31:0] a_i,
    input  logic [31:0] b_i,
    output logic [31:0] sum_o
);
  always_ff @(posedge clk_i) sum_o <= a_i + b_i;
endmodule
";

#[test]
fn a_sum_is_routed_between_registers() {
    if tests_are_skipped() {
        return;
    }
    let design = Design {
        top: "sum".to_owned(),
        sources: vec![("sum.sv".to_owned(), SOURCE.to_owned())],
        ..Design::default()
    };
    // A register for each bit of both words and of the sum, a tree of parities of six, and the pin's.
    let harness = 64 + 32 + 6 + 1 + 1;
    for (device, part) in [
        (Technology::Xc7, "xc7a200tsbg484-1"),
        (Technology::Ecp5, "LFE5U-85F-6CABGA756"),
    ] {
        let routed = match route_design("sum", &design, device, 1, &Progress::none()) {
            Err(CoreError::Model(ModelError::Tool(error @ ToolError::Debian { .. }))) => {
                let _ = writeln!(std::io::stderr(), "SKIPPED: {part} is not routed: {error}");
                continue;
            }
            routed => routed.unwrap(),
        };
        assert_eq!(routed.part, part);
        assert_eq!(routed.harness_ff, harness);
        assert_eq!(routed.ff, harness + 32, "{routed:?}");
        // The bits of the sum, the parities, and what carries take.
        assert!(routed.lut > 32 + 6, "{routed:?}");
        assert_eq!((routed.dsp, routed.ramb18, routed.ramb36), (0, 0, 0));
        let critical = &routed.critical;
        let path = critical.logic_ns + critical.routing_ns;
        assert!(
            (1e3 / path - routed.clock_mhz).abs() < 0.02 * routed.clock_mhz,
            "{routed:?}"
        );
        assert!(routed.untimed.is_empty(), "{routed:?}");
    }
}
