//! The SystemVerilog of `hw/`, part of this crate.

use toroid_sim::model::Design;
use toroid_sim::sources::UnknownModule;

/// Every file by its path below `hw/`, sorted.
pub static FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/sources.rs"));

/// A module of `hw/` with its defaults.
///
/// # Errors
/// If there is no such module.
pub fn design(top: &str) -> Result<Design, UnknownModule> {
    Design::of(top, FILES)
}
