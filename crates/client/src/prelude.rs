//! All that a program needs which computes on a drive: `use toroid_client::prelude::*;`.

pub use toroid_isa::Assembly;
pub use toroid_task::{CancelToken, Progress};
pub use toroid_tfhe::encoding::Encoding;
pub use toroid_tfhe::params::{
    self, MESSAGE4, MESSAGE7, MESSAGE8, MESSAGE14, MESSAGE16, ParamSet, TINY,
};
pub use toroid_tfhe::random::Csprng;
pub use toroid_tfhe::{Ciphertext, ClientKey, TfheError};

pub use crate::drive::{Drive, DriveError, OpenOptions};
pub use crate::location::Location;
pub use crate::session::{Outputs, Session, SessionError, StoredSample};
