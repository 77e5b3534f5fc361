//! Back ends by their names: what command lines, configuration files and the Python package choose between.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use toroid_engine::Backend;
use toroid_engine::backend::cpu::CpuBackend;
use toroid_tfhe::arithmetic::ArithmeticKind;

use crate::backend::{GpuBackend, GpuOptions};
use crate::error::GpuError;

/// What computes on a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BackendName {
    /// The processor of this machine.
    #[default]
    Cpu,
    /// Its GPUs.
    Gpu,
    /// Its GPUs where there are any that compute, else the processor.
    Auto,
}

impl BackendName {
    /// All of them.
    pub const ALL: [BackendName; 3] = [BackendName::Cpu, BackendName::Gpu, BackendName::Auto];

    /// Makes the back end of this name.
    ///
    /// # Errors
    /// `gpu` where [`GpuBackend::new`] fails; the others never fail.
    pub fn open(
        self,
        arithmetic: ArithmeticKind,
        options: &GpuOptions,
    ) -> Result<Chosen, GpuError> {
        if self == BackendName::Cpu {
            let said = "computing on the processor".to_owned();
            return Ok(Chosen::by_processor(arithmetic, said));
        }
        match GpuBackend::new(arithmetic, options) {
            Ok(backend) => {
                let devices: Vec<_> = backend.devices().map(|device| &*device.name).collect();
                let said = format!("computing on the GPU: {}", devices.join(", "));
                Ok(Chosen {
                    backend: Arc::new(backend),
                    said,
                })
            }
            Err(reason) if self == BackendName::Auto => {
                let said = format!("computing on the processor: {reason}");
                Ok(Chosen::by_processor(arithmetic, said))
            }
            Err(reason) => Err(reason),
        }
    }
}

/// A back end, and what it is in one line.
pub struct Chosen {
    /// It.
    pub backend: Arc<dyn Backend>,
    /// What computes, and why if that had to be found out.
    pub said: String,
}

impl Chosen {
    fn by_processor(arithmetic: ArithmeticKind, said: String) -> Chosen {
        Chosen {
            backend: Arc::new(CpuBackend::new(arithmetic)),
            said,
        }
    }
}

impl fmt::Display for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BackendName::Cpu => "cpu",
            BackendName::Gpu => "gpu",
            BackendName::Auto => "auto",
        })
    }
}

impl FromStr for BackendName {
    type Err = String;

    fn from_str(name: &str) -> Result<BackendName, String> {
        let named = |back_end: &BackendName| back_end.to_string() == name;
        BackendName::ALL
            .into_iter()
            .find(named)
            .ok_or_else(|| format!("{name:?} is no back end; expected cpu, gpu or auto"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in BackendName::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        assert!("GPU".parse::<BackendName>().is_err());
    }

    #[test]
    fn without_a_driver_gpu_fails_and_auto_takes_the_processor() {
        let options = GpuOptions {
            driver: Some("/nowhere/libcuda.so".into()),
            ..GpuOptions::default()
        };
        let refused = BackendName::Gpu.open(ArithmeticKind::Ntt, &options);
        assert!(matches!(refused, Err(GpuError::NoDriver(_))));
        for (name, reason) in [
            (BackendName::Auto, "no CUDA driver"),
            (BackendName::Cpu, ""),
        ] {
            let chosen = name.open(ArithmeticKind::Ntt, &options).unwrap();
            assert_eq!(chosen.backend.name(), "cpu");
            assert_eq!(chosen.backend.arithmetic(), ArithmeticKind::Ntt);
            assert!(chosen.said.contains(reason), "{}", chosen.said);
        }
    }
}
