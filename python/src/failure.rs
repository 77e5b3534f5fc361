//! What Rust's errors are in Python: classes of `toroid._errors`.

use std::error::Error;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use toroid_client::blob::BlobError;
use toroid_client::columns::ColumnError;
use toroid_client::drive::DriveError;
use toroid_client::ledger::LedgerError;
use toroid_client::session::SessionError;
use toroid_tfhe::TfheError;

/// Why a call does not succeed: the name of the exception's class, its message, and its attributes.
pub(crate) struct Failure {
    class: &'static str,
    message: String,
    attributes: Vec<(&'static str, String)>,
}

impl Failure {
    pub(crate) fn new(class: &'static str, message: impl Into<String>) -> Failure {
        Failure {
            class,
            message: message.into(),
            attributes: Vec::new(),
        }
    }

    /// The exception. Its class is one of `toroid._errors`.
    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        let make = || -> PyResult<PyErr> {
            let class = py.import("toroid._errors")?.getattr(self.class)?;
            let attributes = PyDict::new(py);
            for (name, value) in &self.attributes {
                attributes.set_item(name, value)?;
            }
            Ok(PyErr::from_value(
                class.call((&self.message,), Some(&attributes))?,
            ))
        };
        make().unwrap_or_else(|error| error)
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    fn of(class: &'static str, error: &dyn Error) -> Failure {
        Failure::new(class, chain(error))
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Failure {
        self.attributes.push((name, value.into()));
        self
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        Python::attach(|py| failure.raise(py))
    }
}

/// An error with all that is behind it.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let reason = error.to_string();
        // Some say what is behind them already.
        if !text.ends_with(&reason) {
            text += ": ";
            text += &reason;
        }
        source = error.source();
    }
    text
}

fn class_of_scheme(error: &TfheError) -> &'static str {
    match error {
        TfheError::KeyMismatch(_)
        | TfheError::ParamsMismatch { .. }
        | TfheError::ModulusMismatch(_) => "KeyMismatch",
        TfheError::FailureProbability { .. } => "NoiseError",
        TfheError::Passphrase => "PassphraseError",
        TfheError::MessageRange { .. } => "RangeError",
        TfheError::MessageBits(_)
        | TfheError::SampleBits { .. }
        | TfheError::FunctionTooWide { .. }
        | TfheError::MessageTooWide { .. } => "WidthError",
        TfheError::ColumnRows { .. } => "RowsError",
        TfheError::Format(_) | TfheError::Length { .. } | TfheError::NotCanonical { .. } => {
            "DamagedError"
        }
        _ => "Error",
    }
}

fn class_of_column(error: &ColumnError) -> &'static str {
    match error {
        ColumnError::Missing => "MissingError",
        ColumnError::Exists | ColumnError::OtherJob => "ExistsError",
        ColumnError::Damaged(_) => "DamagedError",
        ColumnError::Untrusted(_) => "UntrustedError",
        ColumnError::OtherKey(_) => "KeyMismatch",
        ColumnError::Rows { .. } | ColumnError::KeptRows { .. } => "RowsError",
        ColumnError::Memory { .. } => "FullError",
        ColumnError::Tfhe(error) => class_of_scheme(error),
        _ => "Error",
    }
}

fn class_of_session(error: &SessionError) -> &'static str {
    match error {
        SessionError::Tfhe(error) | SessionError::Source { source: error, .. } => {
            class_of_scheme(error)
        }
        SessionError::KeyTag { .. } | SessionError::Stays { .. } => "KeyMismatch",
        SessionError::Width { .. } | SessionError::TestVectorWidth { .. } => "WidthError",
        SessionError::Untrusted { .. } => "UntrustedError",
        SessionError::Column { source, .. } => class_of_column(source),
        SessionError::Blob(BlobError::NoSpace { .. } | BlobError::NoMetadataPages { .. }) => {
            "FullError"
        }
        SessionError::Blob(BlobError::Corrupt { .. } | BlobError::NotFormatted { .. }) => {
            "DamagedError"
        }
        SessionError::Blob(BlobError::ReadOnly) => "ReadOnlyError",
        SessionError::Blob(_) => "DriveError",
        SessionError::Ledger(LedgerError::NotOurs(_)) => "KeyMismatch",
        _ => "Error",
    }
}

impl From<TfheError> for Failure {
    fn from(error: TfheError) -> Failure {
        Failure::of(class_of_scheme(&error), &error)
    }
}

impl From<ColumnError> for Failure {
    fn from(error: ColumnError) -> Failure {
        Failure::of(class_of_column(&error), &error)
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Failure {
        let failure = Failure::of(class_of_session(&error), &error);
        match error.status() {
            Some(status) => failure.with("status", status.to_string()),
            None => failure,
        }
    }
}

impl From<LedgerError> for Failure {
    fn from(error: LedgerError) -> Failure {
        SessionError::from(error).into()
    }
}

impl From<DriveError> for Failure {
    fn from(error: DriveError) -> Failure {
        match error {
            DriveError::Session(error) => error.into(),
            DriveError::Failed { reason, source } => {
                let status = source.status();
                let class = match class_of_session(&source) {
                    "Error" => "DriveError",
                    class => class,
                };
                let failure = Failure::new(class, format!("{reason}: {}", chain(&*source)));
                let failure = failure.with("reason", reason);
                match status {
                    Some(status) => failure.with("status", status.to_string()),
                    None => failure,
                }
            }
            DriveError::Store { ref source, .. } => {
                let class = match class_of_session(source) {
                    "DamagedError" => "DamagedError",
                    _ => "DriveError",
                };
                Failure::of(class, &error)
            }
            DriveError::Ledger(error) => error.into(),
            DriveError::OtherStore { .. } => Failure::of("UntrustedError", &error),
            DriveError::Assemble(_) => Failure::of("ProgramError", &error),
            error => Failure::of("DriveError", &error),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::of("Error", &error)
    }
}
