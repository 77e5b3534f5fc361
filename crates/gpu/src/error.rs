//! What can go wrong with a device.

use toroid_engine::backend::BackendError;
use toroid_engine::backend::cpu::refused_key;
use toroid_tfhe::TfheError;

/// Bytes in units of 10^9, with what there is of them.
fn gigabytes(bytes: u64) -> String {
    format!("{:.3}", bytes as f64 / 1e9)
}

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// No library of the driver was found.
    #[error("no CUDA driver: {0}")]
    NoDriver(String),
    /// The driver cannot load the kernels.
    #[error("CUDA driver {}.{} is older than {}.{}, which the kernels need", found / 1000, found % 1000 / 10, needed / 1000, needed % 1000 / 10)]
    OldDriver {
        /// Its version: 1000·major + 10·minor.
        found: i32,
        /// The version needed.
        needed: i32,
    },
    /// No device can run the kernels.
    #[error("no device of compute capability 8.0 or more ({0})")]
    NoDevice(String),
    /// A call of the driver failed.
    #[error("{call} failed: {name} ({code}): {description}")]
    Call {
        /// Name of the call.
        call: &'static str,
        /// What it returned.
        code: i32,
        /// Name of the code.
        name: String,
        /// What the driver says about it.
        description: String,
    },
    /// The device has too little memory.
    #[error("the device has {} GB free, {} GB are needed", gigabytes(*free), gigabytes(*needed))]
    Memory {
        /// Bytes free.
        free: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// The context of a device was lost, and all that it held.
    #[error("the device was lost: {0}")]
    Lost(&'static str),
    /// A key is malformed.
    #[error(transparent)]
    Key(#[from] TfheError),
    /// Nobody wants the results any more.
    #[error("cancelled")]
    Cancelled,
    /// A set that the kernels are not made for.
    #[error("{0}")]
    Unsupported(String),
}

impl GpuError {
    /// What would help, for errors that a machine or its driver causes.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            GpuError::NoDriver(_) => Some(
                "install NVIDIA's driver 525 or newer, which comes with libcuda.so.1, or name that library in TOROID_CUDA_DRIVER; in a \
                 container, let it see the devices (docker run --gpus all)",
            ),
            GpuError::OldDriver { .. } => Some("install NVIDIA's driver 525 or newer"),
            GpuError::NoDevice(_) => Some(
                "an A100, H100, RTX 30 or any newer GPU of NVIDIA would do, unless CUDA_VISIBLE_DEVICES hides it",
            ),
            GpuError::Memory { .. } => Some("end other programs that use the device"),
            GpuError::Call { .. } | GpuError::Lost(_) => {
                Some("see what nvidia-smi says about the device")
            }
            GpuError::Key(_) | GpuError::Cancelled | GpuError::Unsupported(_) => None,
        }
    }
}

impl From<GpuError> for BackendError {
    fn from(error: GpuError) -> BackendError {
        match error {
            GpuError::Key(error) => refused_key(error),
            GpuError::Cancelled => BackendError::Cancelled,
            GpuError::Unsupported(reason) => BackendError::Unsupported { reason },
            error => BackendError::Failed {
                reason: error.to_string(),
            },
        }
    }
}
