//! Numbers from Python and back.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use zeroize::Zeroizing;

/// The numbers of an array of 64-bit integers, or of a sequence of integers.
pub(crate) fn take(numbers: &Bound<'_, PyAny>) -> PyResult<Zeroizing<Vec<i64>>> {
    if let Ok(buffer) = PyBuffer::<i64>::get(numbers) {
        return Ok(Zeroizing::new(buffer.to_vec(numbers.py())?));
    }
    Ok(Zeroizing::new(numbers.extract()?))
}

/// An array of 64-bit integers.
pub(crate) fn array<'py>(py: Python<'py>, numbers: &[i64]) -> PyResult<Bound<'py, PyAny>> {
    let bytes = PyByteArray::new_with(py, size_of_val(numbers), |bytes| {
        let (words, _) = bytes.as_chunks_mut::<8>();
        for (word, number) in words.iter_mut().zip(numbers) {
            *word = number.to_ne_bytes();
        }
        Ok(())
    })?;
    py.import("numpy")?
        .call_method1("frombuffer", (bytes, "int64"))
}
