//! Encrypted rows.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};
use toroid_client::columns;
use toroid_client::session::SessionError;
use toroid_tfhe::encoding::Encoding;

use crate::failure::Failure;

/// A tag, or the start of one, in hexadecimal digits.
pub(crate) fn tag_text(tag: &[u8]) -> String {
    tag.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Encrypted numbers on their way to a drive or from it.
#[pyclass(frozen, module = "toroid._core")]
pub(crate) struct EncryptedRows {
    pub(crate) rows: columns::EncryptedRows,
}

impl EncryptedRows {
    fn bytes(&self) -> Result<Vec<u8>, Failure> {
        Ok(self.rows.to_bytes()?)
    }
}

#[pymethods]
impl EncryptedRows {
    /// The rows that `to_bytes` wrote.
    #[classmethod]
    fn from_bytes(_class: &Bound<'_, PyType>, bytes: &[u8]) -> PyResult<EncryptedRows> {
        let rows = columns::EncryptedRows::from_bytes(bytes).map_err(Failure::from)?;
        Ok(EncryptedRows { rows })
    }

    /// Rows of others, one range behind the other: of each its column, its first row and the row behind its last one. `signed` says what they become where
    /// columns differ in it. With `counted` nothing is stated of bootstraps behind them that may have failed, since the caller counts each of them once.
    #[classmethod]
    #[pyo3(signature = (ranges, signed=None, counted=false))]
    fn gather(
        _class: &Bound<'_, PyType>,
        py: Python<'_>,
        ranges: Vec<(Py<EncryptedRows>, u64, u64)>,
        signed: Option<bool>,
        counted: bool,
    ) -> PyResult<EncryptedRows> {
        let rows = py.detach(|| {
            let ranges = ranges.iter();
            let ranges: Vec<_> = ranges
                .map(|(rows, first, end)| (&rows.get().rows, *first..*end))
                .collect();
            let rows = columns::EncryptedRows::gather(&ranges, signed)?;
            Ok(match counted {
                true => rows.with_failures_counted(),
                false => rows,
            })
        });
        let rows = rows.map_err(|error: SessionError| Failure::from(error))?;
        Ok(EncryptedRows { rows })
    }

    /// Columns that were encrypted together as bytes with one head and one seed; None where they were not, or have changed.
    #[staticmethod]
    fn together(
        py: Python<'_>,
        columns: Vec<Py<EncryptedRows>>,
    ) -> PyResult<Option<Bound<'_, PyBytes>>> {
        let columns: Vec<_> = columns.iter().map(|rows| &rows.get().rows).collect();
        let bytes = columns::EncryptedRows::together_to_bytes(&columns).map_err(Failure::from)?;
        Ok(bytes.map(|bytes| PyBytes::new(py, &bytes)))
    }

    /// The columns that `together` wrote.
    #[staticmethod]
    fn apart(bytes: &[u8]) -> PyResult<Vec<EncryptedRows>> {
        let columns = columns::EncryptedRows::together_from_bytes(bytes).map_err(Failure::from)?;
        let columns = columns.into_iter();
        Ok(columns.map(|rows| EncryptedRows { rows }).collect())
    }

    /// The rows for a file or another process.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.bytes()?))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let read = py.get_type::<EncryptedRows>().getattr("from_bytes")?;
        let arguments = (self.to_bytes(py)?,).into_pyobject(py)?;
        (read, arguments).into_pyobject(py)
    }

    fn __len__(&self) -> usize {
        self.rows.len() as usize
    }

    /// Name of the parameter set.
    #[getter]
    fn params(&self) -> &'static str {
        self.rows.params().name
    }

    /// The start of the client key's tag; None where nobody states it.
    #[getter]
    fn tag(&self) -> Option<String> {
        self.rows.key_tag().map(|tag| tag_text(&tag))
    }

    /// Message bits beside the padding bit; None where nobody states them.
    #[getter]
    fn bits(&self) -> Option<u32> {
        self.rows.encoding().map(Encoding::bits)
    }

    /// Whether the messages are signed numbers.
    #[getter]
    fn signed(&self) -> bool {
        self.rows.encoding().is_some_and(Encoding::is_signed)
    }

    /// log2 of the probability that decrypting a row gives a wrong number; 0 where nothing is stated of the noise.
    #[getter]
    fn log2_failure(&self) -> f64 {
        self.rows.log2_failure()
    }

    /// Bytes in memory.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.rows.byte_len()
    }

    fn __repr__(&self) -> String {
        let rows = self.rows.len();
        format!("<EncryptedRows: {rows} of {}>", self.rows.params().name)
    }
}
