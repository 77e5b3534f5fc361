//! Keys.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};
use toroid_client::columns;
use toroid_tfhe::ciphertext::MAX_LOG2_FAILURE;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::encrypted_key::{self, Cost};
use toroid_tfhe::keys::{ClientKey as Key, KeyTag};
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::KeyForm;
use toroid_tfhe::serialize::{self, Header, Kind, ObjectReader, ObjectWriter};
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::rows::{EncryptedRows, tag_text};
use crate::{numbers, secret, work};

/// The name, the message bits, and whether it is only for tests, of every parameter set.
#[pyfunction]
pub(crate) fn parameter_sets() -> Vec<(&'static str, u32, bool)> {
    let sets = ParamSet::ALL.into_iter();
    sets.map(|set| (set.name, set.message_bits, set.is_insecure()))
        .collect()
}

fn set_of(name: &str) -> Result<&'static ParamSet, Failure> {
    ParamSet::by_name(name).ok_or_else(|| {
        let names: Vec<&str> = ParamSet::ALL.into_iter().map(|set| set.name).collect();
        let names = names.join(", ");
        Failure::new(
            "ParamsError",
            format!("there is no parameter set {name:?}; expected one of {names}"),
        )
    })
}

/// The secret key of a client.
#[pyclass(frozen, module = "toroid._core")]
pub(crate) struct ClientKey {
    pub(crate) key: Key,
}

impl ClientKey {
    /// The file of the key, encrypted if there is a passphrase.
    fn file(&self, passphrase: Option<&str>) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let bytes = match passphrase {
            Some(passphrase) => {
                let mut rng = Csprng::from_os()?;
                let cost = Cost::default();
                encrypted_key::write(Vec::new(), &self.key, passphrase.as_bytes(), cost, &mut rng)?
            }
            None => {
                // Room for all of it from the start: a buffer that grows leaves copies behind.
                let header = Header::new(Kind::ClientKey, self.key.params(), *self.key.tag());
                let buffer = Vec::with_capacity(header.file_bytes() as usize);
                serialize::write_client_key(buffer, &self.key)?
            }
        };
        Ok(Zeroizing::new(bytes))
    }

    fn read(bytes: impl std::io::Read, passphrase: Option<&str>) -> Result<ClientKey, Failure> {
        let reader = ObjectReader::new(bytes)?;
        let key = match (reader.header().kind, passphrase) {
            (Kind::EncryptedClientKey, Some(passphrase)) => {
                encrypted_key::read(reader, passphrase.as_bytes())?
            }
            (Kind::EncryptedClientKey, None) => {
                return Err(Failure::new(
                    "PassphraseError",
                    "the client key is encrypted, and no passphrase is given",
                ));
            }
            _ => serialize::client_key(reader)?,
        };
        Ok(ClientKey { key })
    }
}

/// Writes a file that its owner alone may read, at once or not at all.
fn write(path: &Path, bytes: &[u8], replace: bool) -> Result<(), Failure> {
    let shown = path.display();
    let failed =
        |error: std::io::Error| Failure::new("FileError", format!("cannot write {shown}: {error}"));
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let mut file =
        tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).map_err(failed)?;
    std::io::Write::write_all(&mut file, bytes).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    let placed = match replace {
        true => file.persist(path),
        false => file.persist_noclobber(path),
    };
    match placed {
        Ok(_) => Ok(()),
        Err(error) => Err(failed(error.error)),
    }
}

#[pymethods]
impl ClientKey {
    /// Makes a key for a parameter set.
    #[classmethod]
    #[pyo3(signature = (params, progress=None))]
    fn generate(
        _class: &Bound<'_, PyType>,
        py: Python<'_>,
        params: &str,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<ClientKey> {
        let params = set_of(params)?;
        work::run(
            py,
            progress,
            || {},
            |_| {
                let key = Key::generate(params, &mut Csprng::from_os()?);
                Ok(ClientKey { key })
            },
        )
    }

    /// Reads a key from a file.
    #[classmethod]
    #[pyo3(signature = (path, passphrase=None))]
    fn load(
        _class: &Bound<'_, PyType>,
        py: Python<'_>,
        path: PathBuf,
        passphrase: Option<String>,
    ) -> PyResult<ClientKey> {
        let passphrase = passphrase.map(Zeroizing::new);
        work::run(
            py,
            None,
            || {},
            |_| {
                let file = secret::open(&path)?;
                ClientKey::read(file, passphrase.as_ref().map(|text| text.as_str()))
            },
        )
    }

    /// Writes the key to a file, encrypted under a passphrase; as it is, if that is None.
    #[pyo3(signature = (path, passphrase, replace=false))]
    fn save(
        &self,
        py: Python<'_>,
        path: PathBuf,
        passphrase: Option<String>,
        replace: bool,
    ) -> PyResult<()> {
        let passphrase = passphrase.map(Zeroizing::new);
        work::run(
            py,
            None,
            || {},
            |_| {
                let bytes = self.file(passphrase.as_ref().map(|text| text.as_str()))?;
                write(&path, &bytes, replace)
            },
        )
    }

    /// The key as bytes, encrypted under a passphrase.
    fn dumps<'py>(&self, py: Python<'py>, passphrase: String) -> PyResult<Bound<'py, PyBytes>> {
        let passphrase = Zeroizing::new(passphrase);
        let bytes = work::run(py, None, || {}, |_| self.file(Some(&passphrase)))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The key that `dumps` gave.
    #[classmethod]
    fn loads(
        _class: &Bound<'_, PyType>,
        py: Python<'_>,
        bytes: &[u8],
        passphrase: String,
    ) -> PyResult<ClientKey> {
        let passphrase = Zeroizing::new(passphrase);
        work::run(
            py,
            None,
            || {},
            |_| ClientKey::read(bytes, Some(&passphrase)),
        )
    }

    /// Name of the parameter set.
    #[getter]
    fn params(&self) -> &'static str {
        self.key.params().name
    }

    /// The most bits of a message.
    #[getter]
    fn message_bits(&self) -> u32 {
        self.key.params().message_bits
    }

    /// What tells the objects of this key from those of others: hexadecimal digits, no secret.
    #[getter]
    fn tag(&self) -> String {
        tag_text(self.key.tag())
    }

    /// Whether the system keeps the key out of swap space.
    #[getter]
    fn is_locked(&self) -> bool {
        self.key.is_locked()
    }

    /// The keys with which a drive computes.
    #[pyo3(signature = (progress=None))]
    fn public_keys(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<PublicKeys> {
        work::run(
            py,
            progress,
            || {},
            |progress| PublicKeys::generate(&self.key, progress),
        )
    }

    /// Encrypts numbers as rows of a column.
    #[pyo3(signature = (values, bits, signed=false, progress=None))]
    fn encrypt_column(
        &self,
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        bits: u32,
        signed: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<EncryptedRows> {
        let values = numbers::take(values)?;
        work::run(
            py,
            progress,
            || {},
            |progress| {
                if values.is_empty() {
                    return Err(Failure::new(
                        "RowsError",
                        "a column has at least one row, and there are no numbers",
                    ));
                }
                let encoding = Encoding::of_samples(self.key.params(), bits, signed)?;
                let rows = columns::EncryptedRows::encrypt(&self.key, encoding, &values, progress)?;
                Ok(EncryptedRows { rows })
            },
        )
    }

    /// Encrypts columns together: of each its numbers, their bits, and whether they have a sign.
    #[pyo3(signature = (columns, progress=None))]
    fn encrypt_columns(
        &self,
        py: Python<'_>,
        columns: Vec<(Bound<'_, PyAny>, u32, bool)>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Vec<EncryptedRows>> {
        let columns = columns
            .iter()
            .map(|(values, bits, signed)| Ok((numbers::take(values)?, *bits, *signed)))
            .collect::<PyResult<Vec<_>>>()?;
        work::run(
            py,
            progress,
            || {},
            |progress| {
                let encoded = columns.iter().map(|(values, bits, signed)| {
                    if values.is_empty() {
                        return Err(Failure::new(
                            "RowsError",
                            "a column has at least one row, and there are no numbers",
                        ));
                    }
                    let encoding = Encoding::of_samples(self.key.params(), *bits, *signed)?;
                    Ok((encoding, values.as_slice()))
                });
                let encoded = encoded.collect::<Result<Vec<_>, Failure>>()?;
                let columns =
                    columns::EncryptedRows::encrypt_together(&self.key, &encoded, progress)?;
                let columns = columns.into_iter();
                Ok(columns.map(|rows| EncryptedRows { rows }).collect())
            },
        )
    }

    /// Decrypts rows whose failure probability is at most 2^max_log2_failure each.
    #[pyo3(signature = (rows, max_log2_failure=MAX_LOG2_FAILURE))]
    fn decrypt_column<'py>(
        &self,
        py: Python<'py>,
        rows: &Bound<'py, EncryptedRows>,
        max_log2_failure: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let rows = &rows.get().rows;
        let decrypted = work::run(
            py,
            None,
            || {},
            |progress| {
                let numbers = rows.decrypt_above(&self.key, max_log2_failure, progress)?;
                Ok(Zeroizing::new(numbers))
            },
        )?;
        numbers::array(py, &decrypted)
    }

    fn __reduce__(&self) -> PyResult<()> {
        let reason = "a client key is secret and is not pickled: client.dumps(passphrase) gives it encrypted, and Client.loads reads it";
        Err(pyo3::exceptions::PyTypeError::new_err(reason))
    }

    fn __repr__(&self) -> String {
        format!("<ClientKey: {}, tag {}>", self.params(), self.tag())
    }
}

/// The bootstrapping key and the key-switching key, as files have them.
#[pyclass(frozen, module = "toroid._core")]
pub(crate) struct PublicKeys {
    pub(crate) files: [Vec<u8>; 2],
    params: &'static ParamSet,
    pub(crate) tag: KeyTag,
}

impl PublicKeys {
    fn generate(key: &Key, progress: &toroid_task::Progress) -> Result<PublicKeys, Failure> {
        let params = key.params();
        let mut rng = Csprng::from_os()?;
        let mut file = |kind: Kind| -> Result<Vec<u8>, Failure> {
            let header = Header::new(kind, params, *key.tag());
            let buffer = Vec::with_capacity(header.file_bytes() as usize);
            let mut object = ObjectWriter::new(buffer, &header)?;
            let sink = &mut |bytes: &[u8]| object.write(bytes);
            match kind {
                Kind::SeededBootstrappingKey => {
                    key.bootstrapping_key(KeyForm::Seeded, &mut rng, progress, sink)?;
                }
                _ => key.key_switching_key(KeyForm::Seeded, &mut rng, progress, sink)?,
            }
            Ok(object.finish()?)
        };
        let form = KeyForm::Seeded;
        Ok(PublicKeys {
            files: [
                file(Kind::bootstrapping_key(form))?,
                file(Kind::key_switching_key(form))?,
            ],
            params: set_of(params.name)?,
            tag: *key.tag(),
        })
    }

    /// Reads both files.
    fn read(bytes: &[u8]) -> Result<PublicKeys, Failure> {
        let damaged = || Failure::new("DamagedError", "these bytes are no public keys");
        let (len, rest) = bytes.split_first_chunk().ok_or_else(damaged)?;
        let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| damaged())?;
        let (first, second) = rest.split_at_checked(len).ok_or_else(damaged)?;
        let headers = [first, second]
            .map(|file| ObjectReader::new(file).map(|reader| reader.header().clone()));
        let [first_header, second_header] = headers;
        let (first_header, second_header) = (first_header?, second_header?);
        if first_header.kind != Kind::bootstrapping_key(KeyForm::Seeded)
            || second_header.kind != Kind::key_switching_key(KeyForm::Seeded)
        {
            return Err(damaged());
        }
        if first_header.tag != second_header.tag {
            return Err(Failure::new(
                "KeyMismatch",
                "the two public keys belong to two client keys",
            ));
        }
        Ok(PublicKeys {
            params: set_of(first_header.params.name)?,
            tag: first_header.tag,
            files: [first.to_vec(), second.to_vec()],
        })
    }
}

#[pymethods]
impl PublicKeys {
    /// The keys that `to_bytes` wrote.
    #[classmethod]
    fn from_bytes(_class: &Bound<'_, PyType>, bytes: &[u8]) -> PyResult<PublicKeys> {
        Ok(PublicKeys::read(bytes)?)
    }

    /// The keys for a file or another process.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let [first, second] = &self.files;
        let len = (first.len() as u64).to_le_bytes();
        PyBytes::new(py, &[&len[..], first, second].concat())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let read = py.get_type::<PublicKeys>().getattr("from_bytes")?;
        let arguments = (self.to_bytes(py),).into_pyobject(py)?;
        (read, arguments).into_pyobject(py)
    }

    /// Name of the parameter set.
    #[getter]
    fn params(&self) -> &'static str {
        self.params.name
    }

    /// The tag of the client key.
    #[getter]
    fn tag(&self) -> String {
        tag_text(&self.tag)
    }

    /// Bytes of both.
    #[getter]
    fn nbytes(&self) -> usize {
        self.files.iter().map(Vec::len).sum()
    }

    fn __repr__(&self) -> String {
        format!("<PublicKeys: {}, tag {}>", self.params(), self.tag())
    }
}
