//! The native module of the Python package `toroid`: keys, encrypted rows, drives and the compiler.
//!
//! Long calls run on a thread of their own, without the interpreter's lock (`work`); the exceptions are classes of `toroid._errors`
//! (`failure`).

mod drive;
mod failure;
mod graph;
mod keys;
mod numbers;
mod rows;
mod secret;
mod turns;
mod work;

use pyo3::prelude::*;

/// The native module of the package `toroid`.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::drive::Drive;
    #[pymodule_export]
    use super::graph::{Statements, compile, decode, evaluate};
    #[pymodule_export]
    use super::keys::parameter_sets;
    #[pymodule_export]
    use super::keys::{ClientKey, PublicKeys};
    #[pymodule_export]
    use super::rows::EncryptedRows;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("MAX_KEY_ID", toroid_isa::VrNumber::MAX_KEY_ID)
    }
}
