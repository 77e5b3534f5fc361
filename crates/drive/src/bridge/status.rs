//! Status codes of the bridge, and from which failures they come.

use std::error::Error;

use thiserror::Error;
use toroid_engine::{BackendError, EngineError};
use toroid_isa::VerifyReason;
use toroid_nvme::{Status, VendorStatus};

use crate::ssd::SsdError;
use toroid_isa::metadata::MetadataError;

macro_rules! statuses {
    ($($name:ident = $sc:literal, $meaning:literal;)*) => {
        $(
            #[doc = concat!("Vendor-specific status ", stringify!($sc), ": ", $meaning, ".")]
            pub const $name: Status = Status::vendor($sc);
        )*

        /// Every vendor-specific status of the drive.
        pub const VENDOR_STATUSES: &[VendorStatus] =
            &[$(VendorStatus { sc: $sc, meaning: $meaning }),*];
    };
}

toroid_isa::drive_statuses!(statuses);

/// Why a command failed: the status for the host, and the reason for the error log.
#[derive(Debug, Error)]
#[error("{detail}")]
pub(crate) struct Fault {
    pub(crate) status: Status,
    /// The same command is expected to fail again, unless a host changes something: Linux repeats others at once, up to five times.
    pub(crate) do_not_retry: bool,
    pub(crate) detail: String,
}

impl Fault {
    /// A failure that comes again with the same command.
    pub(crate) fn new(status: Status, detail: impl Into<String>) -> Fault {
        Fault {
            status,
            do_not_retry: true,
            detail: detail.into(),
        }
    }

    /// A failure that may pass.
    pub(crate) fn passing(status: Status, detail: impl Into<String>) -> Fault {
        Fault {
            do_not_retry: false,
            ..Fault::new(status, detail)
        }
    }

    pub(crate) fn cancelled() -> Fault {
        Fault::passing(Status::ABORT_REQUESTED, "the command was cancelled")
    }
}

/// The message of an error and of everything behind it.
fn with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

impl From<SsdError> for Fault {
    fn from(error: SsdError) -> Fault {
        Fault::passing(error.status(), with_sources(&error))
    }
}

impl From<MetadataError> for Fault {
    fn from(error: MetadataError) -> Fault {
        Fault::new(METADATA_INVALID, error.to_string())
    }
}

impl From<EngineError> for Fault {
    fn from(error: EngineError) -> Fault {
        let detail = with_sources(&error);
        let (status, do_not_retry) = match error {
            EngineError::Cancelled
            | EngineError::Backend {
                source: BackendError::Cancelled,
                ..
            } => return Fault::cancelled(),
            EngineError::NoSuchRegister { .. } => (REGISTER_EMPTY, true),
            EngineError::MissingRingKey { .. } | EngineError::MissingConversionKey { .. } => {
                (KEY_MISSING, true)
            }
            EngineError::DataId { .. }
            | EngineError::EmptyPart { .. }
            | EngineError::PartTooLong { .. }
            | EngineError::Attribute { .. } => (METADATA_INVALID, true),
            EngineError::Size { .. } | EngineError::ProgramSize { .. } => (WRONG_SIZE, true),
            EngineError::ParamsMismatch { .. } => (WRONG_PARAMETERS, true),
            EngineError::KeyTagMismatch { .. } => (WRONG_KEY_TAG, true),
            EngineError::PartOrder { .. }
            | EngineError::PartContradicts { .. }
            | EngineError::Superseded { .. } => (PART_ORDER, true),
            EngineError::NotCanonical { .. }
            | EngineError::Backend {
                source: BackendError::MalformedKey { .. },
                ..
            } => (MALFORMED_WORDS, true),
            EngineError::Program { .. } => (PROGRAM_MALFORMED, true),
            EngineError::Verify { ref errors, .. } => {
                let any = |wanted: fn(&VerifyReason) -> bool| {
                    errors.iter().any(|error| wanted(&error.reason))
                };
                if any(|reason| matches!(reason, VerifyReason::MissingKey { .. })) {
                    (KEY_MISSING, true)
                } else if any(|reason| {
                    matches!(
                        reason,
                        VerifyReason::UnknownRegister { .. }
                            | VerifyReason::MissingTestVector { .. }
                    )
                }) {
                    (REGISTER_EMPTY, true)
                } else {
                    (PROGRAM_REFUSED, true)
                }
            }
            EngineError::KeyIdDenied { .. }
            | EngineError::NotASample { .. }
            | EngineError::Execution { .. }
            | EngineError::Rows { .. }
            | EngineError::StackOverflow { .. } => (PROGRAM_REFUSED, true),
            EngineError::PagedAreaTooSmall { .. } | EngineError::MapTooLarge { .. } => {
                (NO_ROOM, true)
            }
            // Other commands may make room.
            EngineError::TooManyPartialObjects
            | EngineError::PersistentAreaFull { .. }
            | EngineError::SwapFull { .. }
            | EngineError::VirtualSpaceFull { .. } => (NO_ROOM, false),
            EngineError::PageOut(_) | EngineError::PageIn(_) => (PAGING_FAILED, false),
            EngineError::Column { .. } => (METADATA_INVALID, true),
            EngineError::Backend { .. } => (BACKEND_FAILED, true),
        };
        Fault {
            status,
            do_not_retry,
            detail,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn vendor_statuses_are_distinct_and_in_the_vendors_range() {
        let codes: HashSet<u8> = VENDOR_STATUSES.iter().map(|status| status.sc).collect();
        assert_eq!(codes.len(), VENDOR_STATUSES.len());
        assert!(codes.iter().all(|code| *code >= 0xC0));
    }
}
