//! What the figures depend on besides the code.

use serde::Serialize;
use toroid_bench_common::machine as system;
use toroid_ring::simd::SimdLevel;

use crate::machine::Machine;

const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// glibc (2.35 and later) then asks for huge pages for everything that it allocates.
const TUNABLE: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

/// What a launch needs in its environment: where the kernel gives huge pages only when asked, an allocator that asks. Our
/// keys ask for themselves, and the peer's must have the same.
pub fn launch_environment() -> Option<(&'static str, &'static str)> {
    let wanted =
        chosen(&system::read(HUGE_PAGES)) == "madvise" && std::env::var_os(TUNABLE.0).is_none();
    wanted.then_some(TUNABLE)
}

/// What the figures depend on.
#[derive(Serialize)]
pub struct Environment {
    #[serde(flatten)]
    machine: Machine,
    processor: String,
    processors: usize,
    kernel: String,
    simd: String,
    huge_pages: String,
    compiler: &'static str,
    /// Load averages before the measurement.
    load_before: String,
    /// The same after it.
    pub load_after: String,
}

impl Environment {
    /// What stands around `machine` now.
    pub fn look(machine: Machine) -> Environment {
        let tunable = launch_environment()
            .map(|(_, value)| value.to_owned())
            .or_else(|| std::env::var(TUNABLE.0).ok())
            .filter(|value| !value.is_empty())
            .map(|value| format!(", {}={value}", TUNABLE.0));
        Environment {
            machine,
            processor: system::processor(),
            processors: system::processors(),
            kernel: system::kernel(),
            simd: SimdLevel::best().to_string(),
            huge_pages: format!(
                "{}{}",
                chosen(&system::read(HUGE_PAGES)),
                tunable.unwrap_or_default()
            ),
            compiler: env!("RUSTC_VERSION"),
            load_before: system::load_average(),
            load_after: String::new(),
        }
    }
}

/// The word in brackets.
fn chosen(line: &str) -> &str {
    line.split_once('[')
        .and_then(|(_, rest)| Some(rest.split_once(']')?.0))
        .unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_setting_stands_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen(""), "unknown");
    }
}
