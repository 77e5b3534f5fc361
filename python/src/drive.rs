//! Drives.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use toroid_client::columns::{
    ColumnStat, MapPlan, MapRequest, Route, RowForm, TimesLeft, Way, WayTimes,
};
use toroid_client::drive::{Drive as Inner, NewImage, OpenOptions};
use toroid_client::ledger::Ledger;
use toroid_client::location::Location;
use toroid_client::session::{Object, SessionError};
use toroid_drive::bridge::status::KEY_MISSING;
use toroid_drive::image::{FormatOptions, parse_size};
use toroid_isa::{Assembly, KeyKind, VrNumber, assemble_for};
use toroid_nvme::Status;
use toroid_nvme::fabrics::auth::{Secret, TlsKey};
use toroid_rns::ring_set::RingSet;
use toroid_task::Progress;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::serialize::ObjectReader;

use crate::failure::Failure;
use crate::keys::{ClientKey, PublicKeys};
use crate::rows::{EncryptedRows, tag_text};
use crate::turns::Turns;
use crate::{secret, work};

/// A drive: an image in this process, on the network, or a block device.
#[pyclass(frozen, module = "toroid._core")]
pub(crate) struct Drive {
    location: String,
    /// How many calls run.
    calls: AtomicUsize,
    /// None once it is closed. A call that runs keeps it open.
    inner: RwLock<Option<Arc<Inner>>>,
    /// A run that finds keys missing fills the registers from what is stored, while no other may go on.
    turns: Turns,
}

/// What a program is to do with columns.
struct Request {
    program: Assembly,
    inputs: Vec<(String, String)>,
    rows: Option<Range<u64>>,
    output: String,
    replace: bool,
    unit: Option<u64>,
    way: Way,
    form: Option<RowForm>,
    kept: Option<Vec<bool>>,
}

impl Request {
    fn with<T>(&self, call: impl FnOnce(&MapRequest<'_>) -> T) -> T {
        let inputs = self.inputs.iter();
        let inputs: Vec<(&str, &str)> = inputs
            .map(|(register, column)| (register.as_str(), column.as_str()))
            .collect();
        call(&MapRequest {
            program: &self.program,
            inputs: &inputs,
            rows: self.rows.clone(),
            output: &self.output,
            replace: self.replace,
            unit: self.unit,
            way: self.way,
            form: self.form,
            kept: self.kept.as_deref(),
        })
    }

    /// The key id of the columns' registers.
    fn key_id(&self) -> u32 {
        let first = self.inputs.first();
        let register = first.and_then(|(name, _)| self.program.registers.get(name));
        register.map_or(0, |register| register.key_id())
    }
}

/// Whether a command failed because the drive has no keys in its registers.
fn lacks_keys(error: &SessionError) -> bool {
    let status = error.status();
    status.is_some_and(|status| [KEY_MISSING, Status::INTERNAL_ERROR].contains(&status))
}

/// Fills a drive's registers from what is stored there, as a run of this plan needs it.
fn load(drive: &Inner, key_id: u32, plan: &MapPlan, progress: &Progress) -> Result<(), Failure> {
    let session = drive.session();
    if let Route::Ring(_) = plan.route {
        drive.complete(session.load_ring_keys(key_id, plan.converts, progress))?;
        return Ok(());
    }
    match drive.image() {
        Some(_) => drive.complete(session.load(key_id, progress))?,
        None => drive.complete(session.reload(key_id, true, progress))?,
    };
    Ok(())
}

fn described<'py>(py: Python<'py>, stat: &ColumnStat) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", &stat.name)?;
    dict.set_item("params", stat.params.name)?;
    dict.set_item("ring", stat.ring.map(|ring| ring.name))?;
    dict.set_item("key_id", stat.key_id)?;
    dict.set_item("rows", stat.rows)?;
    dict.set_item("bits", stat.encoding.map(Encoding::bits))?;
    dict.set_item("signed", stat.encoding.is_some_and(Encoding::is_signed))?;
    dict.set_item("bytes", stat.bytes)?;
    dict.set_item("is_result", stat.computed)?;
    dict.set_item("complete", stat.job.is_none_or(|job| job.complete))?;
    dict.set_item("log2_failure", stat.log2_failure())?;
    Ok(dict)
}

/// A plan, with the seconds that documented times give for it.
fn planned<'py>(py: Python<'py>, plan: &MapPlan, cores: usize) -> PyResult<Bound<'py, PyDict>> {
    let times = WayTimes::new(plan, cores);
    let TimesLeft {
        samples,
        batch,
        seconds,
    } = times.left(plan);
    let dict = PyDict::new(py);
    dict.set_item("params", plan.params.name)?;
    dict.set_item("rows", plan.rows)?;
    dict.set_item("done", plan.done)?;
    dict.set_item("complete", plan.complete)?;
    dict.set_item("output_rows", plan.output_rows())?;
    dict.set_item("commands", plan.commands)?;
    dict.set_item("bootstraps", plan.facts.bootstraps)?;
    dict.set_item("cores", cores)?;
    dict.set_item("seconds", seconds)?;
    dict.set_item("way", plan.route.name())?;
    dict.set_item("why", times.why(plan))?;
    dict.set_item("ring", times.ring.map(|set| set.name))?;
    dict.set_item("seconds_by_samples", samples)?;
    dict.set_item("seconds_by_ring", batch)?;
    dict.set_item("break_even_rows", times.break_even)?;
    dict.set_item("log2_failure", plan.log2_failure())?;
    Ok(dict)
}

/// The options that are given by names.
struct Options {
    options: OpenOptions,
}

impl Options {
    fn of(given: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
        let mut options = OpenOptions::new();
        let Some(given) = given else {
            return Ok(Options { options });
        };
        let mut ledger: Option<PathBuf> = None;
        let mut client: Option<Bound<'_, ClientKey>> = None;
        for (name, value) in given {
            if value.is_none() {
                continue;
            }
            let name: String = name.extract()?;
            let parsed = |what: &str| Failure::new("OptionError", format!("{name} is no {what}"));
            options = match name.as_str() {
                "host_nqn" => options.host_nqn(value.extract::<String>()?),
                "host_id" => {
                    let id = value.str()?.to_string().parse();
                    options.host_id(id.map_err(|_| parsed("UUID"))?)
                }
                "host_secret" => options.host_secret(read_secret(&value.extract::<PathBuf>()?)?),
                "controller_secret" => {
                    options.controller_secret(read_secret(&value.extract::<PathBuf>()?)?)
                }
                "tls_key" => options.tls_key(read_tls_key(&value.extract::<PathBuf>()?)?),
                "concatenate" if value.is_truthy()? => {
                    without_tls(&name)?;
                    options.concatenate()
                }
                "nsid" => options.nsid(value.extract()?),
                "read_only" if value.is_truthy()? => options.read_only(),
                "new_store" if value.is_truthy()? => options.new_store(),
                "concatenate" | "read_only" | "new_store" => options,
                "ledger" => {
                    ledger = Some(value.extract()?);
                    options
                }
                "client" => {
                    client = Some(value.cast_into::<ClientKey>()?);
                    options
                }
                _ => {
                    let reason = format!("there is no option {name}");
                    return Err(Failure::new("OptionError", reason).into());
                }
            };
        }
        if let Some(path) = ledger {
            let client = client.ok_or_else(|| {
                Failure::new(
                    "OptionError",
                    "a ledger belongs to a client key: give client, too",
                )
            })?;
            let ledger = Ledger::open(&client.get().key, path).map_err(Failure::from)?;
            options = options.ledger(Arc::new(Mutex::new(ledger)));
        }
        Ok(Options { options })
    }
}

/// Refuses options of TLS in a build without it.
fn without_tls(name: &str) -> Result<(), Failure> {
    if cfg!(feature = "tls") {
        return Ok(());
    }
    Err(Failure::new(
        "OptionError",
        format!(
            "{name} needs TLS, which this package was built without: install it by pip install . \
             --config-settings=build-args=--features=tls"
        ),
    ))
}

fn read_secret(path: &Path) -> Result<Secret, Failure> {
    let no_secret = |_| Failure::new("OptionError", format!("{} holds no secret", path.display()));
    secret::line(path)?.parse().map_err(no_secret)
}

fn read_tls_key(path: &Path) -> Result<TlsKey, Failure> {
    without_tls("tls_key")?;
    let no_key = |_| {
        Failure::new(
            "OptionError",
            format!("{} holds no TLS key", path.display()),
        )
    };
    secret::line(path)?.parse().map_err(no_key)
}

fn format_options(size: Option<&str>, overwrite: bool) -> Result<FormatOptions, Failure> {
    let mut options = FormatOptions {
        overwrite,
        ..FormatOptions::default()
    };
    if let Some(text) = size {
        options.size =
            parse_size(text).map_err(|error| Failure::new("OptionError", error.to_string()))?;
    }
    Ok(options)
}

impl Drive {
    fn of(location: impl Into<String>, inner: Inner) -> Drive {
        Drive {
            location: location.into(),
            calls: AtomicUsize::new(0),
            inner: RwLock::new(Some(Arc::new(inner))),
            turns: Turns::default(),
        }
    }

    fn inner(&self) -> Result<Arc<Inner>, Failure> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.clone().ok_or_else(|| {
            Failure::new(
                "ClosedError",
                format!("the drive {} is closed", self.location),
            )
        })
    }

    /// A long call on the drive. Once it is interrupted, it sends no further commands. The one in progress ends early on a drive in this process, unless
    /// other calls run there, whose commands cannot be told from it.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
        call: impl FnOnce(&Inner, &Progress) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        let drive = self.inner()?;
        let interrupted = Arc::clone(&drive);
        let interrupt = || {
            if let (Some(image), 1) = (interrupted.image(), self.calls.load(Ordering::SeqCst)) {
                image.cancel_all();
            }
        };
        let _running = Running::new(&self.calls);
        work::run(py, progress, interrupt, |progress| call(&drive, progress))
    }
}

/// A call that runs, until it returns or panics.
struct Running<'a>(&'a AtomicUsize);

impl Running<'_> {
    fn new(calls: &AtomicUsize) -> Running<'_> {
        calls.fetch_add(1, Ordering::SeqCst);
        Running(calls)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[pymethods]
impl Drive {
    /// Opens the drive at a location.
    #[classmethod]
    #[pyo3(signature = (location, **options))]
    fn open(
        _class: &Bound<'_, PyType>,
        py: Python<'_>,
        location: &str,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Drive> {
        let Options { options } = Options::of(options)?;
        let place: Location = location
            .parse()
            .map_err(|error| Failure::new("OptionError", format!("{location}: {error}")))?;
        let inner = work::run(
            py,
            None,
            || {},
            |progress| {
                let options = options.cancel(progress.cancel_token().clone());
                Ok(options.open(place)?)
            },
        )?;
        Ok(Drive::of(location, inner))
    }

    /// Makes an image of a size such as 4GiB, and opens it.
    #[classmethod]
    #[pyo3(signature = (path, size=None, *, overwrite=false, **options))]
    fn create(
        _class: &Bound<'_, PyType>,
        py: Python<'_>,
        path: PathBuf,
        size: Option<&str>,
        overwrite: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Drive> {
        let Options { options } = Options::of(options)?;
        let format = format_options(size, overwrite)?;
        let shown = path.display().to_string();
        let is_new = !path.exists();
        let new = work::run(py, None, || {}, |_| Ok(NewImage::make(&path, format)?))?;
        // Of a call that was interrupted or cancelled before nothing has changed: this one then does not begin, and the image goes.
        let opened = work::run(
            py,
            None,
            || {},
            |progress| {
                new.place()?;
                // Nothing but this has made the store.
                let options = options.new_store().cancel(progress.cancel_token().clone());
                Ok(options.open(Location::Image(path.clone()))?)
            },
        );
        if opened.is_err() && is_new {
            // Nobody has got the drive: the same call shall find the place free. Where the image cannot be removed, that call says that it is there.
            let _ = std::fs::remove_file(&path);
        }
        Ok(Drive::of(shown, opened?))
    }

    /// Opens a drive on a fresh image, which is removed with it.
    #[classmethod]
    fn temporary(_class: &Bound<'_, PyType>, py: Python<'_>) -> PyResult<Drive> {
        let inner = work::run(py, None, || {}, |_| Ok(Inner::temporary()?))?;
        Ok(Drive::of("(temporary)", inner))
    }

    /// Where it is.
    #[getter]
    fn location(&self) -> &str {
        &self.location
    }

    /// Whether it is closed.
    #[getter]
    fn is_closed(&self) -> bool {
        self.inner().is_err()
    }

    /// Ends the drive's work and makes everything durable.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        // Held until it is certain that the drive closes: no other call may find it gone before.
        let mut place = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let Some(inner) = place.take() else {
            return Ok(());
        };
        match Arc::try_unwrap(inner) {
            Ok(inner) => {
                drop(place);
                work::run(py, None, || {}, |_| Ok(inner.close()?))
            }
            Err(inner) => {
                *place = Some(inner);
                Err(Failure::new(
                    "BusyError",
                    "a call on the drive is running: close it when that has ended",
                )
                .into())
            }
        }
    }

    /// What the drive is, and how full.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (info, store, nsid) = self.call(py, None, |drive, _| {
            let store = drive.wait(drive.session().store().info());
            Ok((drive.info().clone(), store, drive.nsid()))
        })?;
        let dict = PyDict::new(py);
        dict.set_item("location", &self.location)?;
        dict.set_item("serial", info.serial)?;
        dict.set_item("model", info.model)?;
        dict.set_item("firmware", info.firmware)?;
        dict.set_item("nsid", nsid)?;
        let cluster = store.cluster_bytes;
        dict.set_item("bytes", u64::from(store.clusters) * cluster)?;
        dict.set_item("free_bytes", u64::from(store.free_clusters) * cluster)?;
        dict.set_item("blobs", store.blobs)?;
        Ok(dict)
    }

    /// Waits until the drive has answered a small command, whatever else it works on.
    fn probe(&self, py: Python<'_>) -> PyResult<()> {
        let drive = self.inner()?;
        work::run(
            py,
            None,
            || {},
            |_| {
                drive.probe();
                Ok(())
            },
        )
    }

    /// Stores the public keys under a key id. They are refused where keys of another client key stand there, unless those are to be replaced.
    #[pyo3(signature = (keys, key_id=0, progress=None, replace=false))]
    fn put_keys(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PublicKeys>,
        key_id: u32,
        progress: Option<Py<PyAny>>,
        replace: bool,
    ) -> PyResult<()> {
        let keys = keys.get();
        self.call(py, progress, |drive, progress| {
            let objects = keys.files.iter().map(|file| {
                let reader = ObjectReader::new(&file[..])?;
                Ok(Object::key(key_id, reader)?)
            });
            let objects = objects.collect::<Result<Vec<_>, Failure>>()?;
            let session = drive.session();
            if replace {
                drive.complete(session.replace(objects, progress))?;
            } else {
                drive.complete(session.put(objects, progress))?;
            }
            Ok(())
        })
    }

    /// Whether the public keys of the client key with this tag are stored under a key id.
    #[pyo3(signature = (tag, key_id=0))]
    fn has_keys(&self, tag: &str, key_id: u32) -> PyResult<bool> {
        let drive = self.inner()?;
        let kinds = [KeyKind::Bootstrapping, KeyKind::KeySwitching];
        for kind in kinds {
            let register = VrNumber::key(key_id, kind).map_err(SessionError::from);
            let register = register.map_err(Failure::from)?;
            let stored = drive
                .session()
                .find(register)
                .and_then(|blob| blob.sc?.key_tag());
            let is_own = stored.is_some_and(|stored| tag.starts_with(&tag_text(&stored)));
            if !is_own {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes the keys by which programs go over columns by ciphertexts of a ring, on the drive: of the ring of this name, or of that which has the
    /// messages of the client key's parameter set.
    #[pyo3(signature = (client, ring=None, key_id=0, progress=None, replace=false))]
    fn put_ring_keys<'py>(
        &self,
        py: Python<'py>,
        client: &Bound<'py, ClientKey>,
        ring: Option<&str>,
        key_id: u32,
        progress: Option<Py<PyAny>>,
        replace: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let key = &client.get().key;
        let refused = |reason: String| Failure::new("OptionError", reason);
        let named = |name: &str| {
            RingSet::by_name(name).ok_or_else(|| {
                let names: Vec<&str> = RingSet::ALL.into_iter().map(|set| set.name).collect();
                refused(format!(
                    "there is no ring {name:?}; expected one of {}",
                    names.join(", ")
                ))
            })
        };
        let set = RingSet::of_client(key.params(), ring.map(named).transpose()?)
            .map_err(|error| refused(error.to_string()))?;
        let (own, conversion) = self.call(py, progress, |drive, progress| {
            let put = drive
                .session()
                .put_ring_keys(key_id, (key, set), replace, progress);
            Ok(drive.complete(put)?)
        })?;
        let dict = PyDict::new(py);
        dict.set_item("ring", set.name)?;
        dict.set_item("bytes", own.size)?;
        dict.set_item("conversion_bytes", conversion.map_or(0, |stat| stat.size))?;
        Ok(dict)
    }

    /// Makes a column of rows.
    #[pyo3(signature = (name, rows, replace=false, key_id=0, progress=None))]
    fn put_column<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        rows: &Bound<'py, EncryptedRows>,
        replace: bool,
        key_id: u32,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let rows = &rows.get().rows;
        let stat = self.call(py, progress, |drive, progress| {
            let session = drive.session();
            if replace && drive.wait(session.columns()).contains_key(name) {
                drive.complete(session.delete_column(name))?;
            }
            Ok(drive.complete(session.create_column(name, key_id, rows, progress))?)
        })?;
        described(py, &stat)
    }

    /// Puts rows behind those of a column.
    #[pyo3(signature = (name, rows, progress=None))]
    fn append<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        rows: &Bound<'py, EncryptedRows>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let rows = &rows.get().rows;
        let stat = self.call(py, progress, |drive, progress| {
            Ok(drive.complete(drive.session().append_rows(name, rows, progress))?)
        })?;
        described(py, &stat)
    }

    /// Reads rows of a column; all, if no range is given.
    #[pyo3(signature = (name, rows=None, progress=None))]
    fn get_column(
        &self,
        py: Python<'_>,
        name: &str,
        rows: Option<(u64, u64)>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<EncryptedRows> {
        let rows = self.call(py, progress, |drive, progress| {
            let read = async {
                let column = drive.session().column(name).await?;
                let (first, end) = rows.unwrap_or((0, column.stat().rows));
                column.rows(first..end, progress).await
            };
            Ok(drive.complete(read)?)
        })?;
        Ok(EncryptedRows { rows })
    }

    /// The columns by their names; of one that cannot be read, why.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = self.call(py, None, |drive, _| {
            Ok(drive.wait(drive.session().columns()))
        })?;
        let dict = PyDict::new(py);
        for (name, column) in columns {
            match column {
                Ok(stat) => dict.set_item(name, described(py, &stat)?)?,
                Err(error) => {
                    let reason = PyDict::new(py);
                    reason.set_item("name", &name)?;
                    reason.set_item("error", Failure::from(error).message())?;
                    dict.set_item(name, reason)?;
                }
            }
        }
        Ok(dict)
    }

    /// Deletes a column.
    fn delete(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.call(py, None, |drive, _| {
            drive.complete(drive.session().delete_column(name))?;
            Ok(())
        })
    }

    /// Runs a program on columns, with the result as another column. A run that ended early goes on where it was. The way is `samples`, `ring` or `auto`;
    /// the result has the form `samples` or `ring`, or that which the way leaves. `kept` has a truth value for each row: the others are 0 in the result.
    #[pyo3(signature = (program, inputs, output, rows=None, unit=None, replace=false, key_id=0, progress=None, way="auto", result=None, kept=None))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn map<'py>(
        &self,
        py: Python<'py>,
        program: &str,
        inputs: &Bound<'py, PyDict>,
        output: String,
        rows: Option<(u64, u64)>,
        unit: Option<u64>,
        replace: bool,
        key_id: u32,
        progress: Option<Py<PyAny>>,
        way: &str,
        result: Option<&str>,
        kept: Option<Vec<bool>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let request = Request {
            program: assembled(program, key_id)?,
            inputs: named(inputs)?,
            rows: rows.map(|(first, end)| first..end),
            output,
            replace,
            unit,
            way: way_of(way)?,
            form: result.map(form_of).transpose()?,
            kept,
        };
        let report = self.call(py, progress, |drive, progress| {
            let session = drive.session();
            request.with(|request_of_map| {
                let mut is_filled = false;
                loop {
                    let turn = self.turns.run(progress)?;
                    match drive.wait(session.map(request_of_map, progress)) {
                        // A drive that was opened anew has its keys in store, but not in its registers.
                        Err(error) if !is_filled && lacks_keys(&error) => {
                            drive.new_failure();
                            let plan = drive.wait(session.plan_map(request_of_map))?;
                            let fill = || load(drive, request.key_id(), &plan, progress);
                            is_filled = self.turns.load(turn, progress, fill)?;
                        }
                        report => return Ok(drive.complete(async { report })?),
                    }
                }
            })
        })?;
        let dict = described(py, &report.output)?;
        dict.set_item("input_rows", report.rows)?;
        dict.set_item("computed", report.computed)?;
        dict.set_item("commands", report.commands)?;
        Ok(dict)
    }

    /// Adds up results of a program that adds up rows. Each part comes with the number of rows that it is of; the columns have as many rows as all of them.
    #[pyo3(signature = (program, inputs, parts, key_id=0, progress=None))]
    fn add_results(
        &self,
        py: Python<'_>,
        program: &str,
        inputs: &Bound<'_, PyDict>,
        parts: Vec<(Py<EncryptedRows>, u64)>,
        key_id: u32,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<EncryptedRows> {
        let request = Request {
            program: assembled(program, key_id)?,
            inputs: named(inputs)?,
            rows: None,
            output: "sum of results".to_owned(),
            replace: false,
            unit: None,
            way: Way::Samples,
            form: None,
            kept: None,
        };
        let rows = self.call(py, progress, |drive, progress| {
            let parts: Vec<_> = parts
                .iter()
                .map(|(part, rows)| (&part.get().rows, *rows))
                .collect();
            let session = drive.session();
            let sum =
                request.with(|request| drive.wait(session.add_results(request, &parts, progress)));
            Ok(sum?)
        })?;
        Ok(EncryptedRows { rows })
    }

    /// What `map` will do, and how long it takes by documented times; nothing runs.
    #[pyo3(signature = (program, inputs, output, rows=None, unit=None, replace=false, key_id=0, cores=1, way="auto", result=None, kept=None))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn estimate<'py>(
        &self,
        py: Python<'py>,
        program: &str,
        inputs: &Bound<'py, PyDict>,
        output: String,
        rows: Option<(u64, u64)>,
        unit: Option<u64>,
        replace: bool,
        key_id: u32,
        cores: usize,
        way: &str,
        result: Option<&str>,
        kept: Option<Vec<bool>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let request = Request {
            program: assembled(program, key_id)?,
            inputs: named(inputs)?,
            rows: rows.map(|(first, end)| first..end),
            output,
            replace,
            unit,
            way: way_of(way)?,
            form: result.map(form_of).transpose()?,
            kept,
        };
        let plan = self.call(py, None, |drive, _| {
            let plan = request.with(|request| drive.wait(drive.session().plan_map(request)));
            Ok(plan?)
        })?;
        planned(py, &plan, cores.max(1))
    }

    fn __reduce__(&self) -> PyResult<Bound<'_, PyTuple>> {
        let reason = "a drive is a session and is not pickled: open it in the other process";
        Err(pyo3::exceptions::PyTypeError::new_err(reason))
    }

    fn __repr__(&self) -> String {
        let closed = if self.is_closed() { ", closed" } else { "" };
        format!("<Drive: {}{closed}>", self.location)
    }
}

fn assembled(program: &str, key_id: u32) -> Result<Assembly, Failure> {
    assemble_for(key_id, program).map_err(|errors| Failure::new("ProgramError", errors.to_string()))
}

fn way_of(name: &str) -> Result<Way, Failure> {
    match name {
        "auto" => Ok(Way::Auto),
        "samples" => Ok(Way::Samples),
        "ring" => Ok(Way::Ring),
        other => Err(Failure::new(
            "OptionError",
            format!("way is \"auto\", \"samples\" or \"ring\", not {other:?}"),
        )),
    }
}

fn form_of(name: &str) -> Result<RowForm, Failure> {
    match name {
        "samples" => Ok(RowForm::Samples),
        "ring" => Ok(RowForm::Ring),
        other => Err(Failure::new(
            "OptionError",
            format!("a result is \"samples\" or \"ring\", not {other:?}"),
        )),
    }
}

fn named(inputs: &Bound<'_, PyDict>) -> PyResult<Vec<(String, String)>> {
    inputs
        .iter()
        .map(|(register, column)| Ok((register.extract()?, column.extract()?)))
        .collect()
}
