//! One file a command.

pub mod core;
pub mod demo;
pub mod drive;
pub mod keys;
pub mod map;
pub mod objects;
pub mod params;
pub mod program;
pub mod raw;
pub mod run;
pub mod sample;
pub mod serve;

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, bail};
use toroid_tfhe::params::ParamSet;

/// The parameter set of this name.
pub fn param_set(name: &str) -> anyhow::Result<&'static ParamSet> {
    let names: Vec<_> = ParamSet::ALL.iter().map(|set| set.name).collect();
    ParamSet::by_name(name)
        .with_context(|| format!("no parameter set {name:?}; there are {}", names.join(", ")))
}

/// Parses a parameter set for the command line.
pub fn parse_param_set(name: &str) -> Result<&'static ParamSet, String> {
    param_set(name).map_err(|error| error.to_string())
}

/// Opens a file to read.
pub fn open(path: &Path) -> anyhow::Result<BufReader<File>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(BufReader::with_capacity(1 << 20, file))
}

/// Reads a file of at most `limit` bytes, which `what` has at most, whole.
pub fn read_limited(path: &Path, limit: usize, what: &str) -> anyhow::Result<Vec<u8>> {
    let shown = path.display();
    let mut bytes = Vec::new();
    open(path)?
        .take(limit as u64 + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {shown}"))?;
    anyhow::ensure!(
        bytes.len() <= limit,
        "{shown} is longer than {limit} bytes, the most for {what}"
    );
    Ok(bytes)
}

/// Writes a file beside its place and moves it there when it is complete: never half a file.
///
/// An existing file is replaced only with `force`. A secret file is readable by its owner alone.
pub fn write_file(
    path: &Path,
    force: bool,
    secret: bool,
    write: impl FnOnce(&mut BufWriter<&File>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let shown = path.display();
    if !force && path.exists() {
        bail!("{shown} exists; --force replaces it");
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    if !secret {
        use std::os::unix::fs::PermissionsExt;
        // What the process' umask leaves of it.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let temporary = builder
        .tempfile_in(directory)
        .with_context(|| format!("cannot write in {}", directory.display()))?;
    {
        // A secret passes through no buffer that would keep it.
        let capacity = if secret { 0 } else { 1 << 20 };
        let mut writer = BufWriter::with_capacity(capacity, temporary.as_file());
        write(&mut writer)?;
        writer
            .flush()
            .with_context(|| format!("cannot write {shown}"))?;
    }
    temporary
        .as_file()
        .sync_all()
        .with_context(|| format!("cannot write {shown}"))?;
    if force {
        temporary.persist(path).map(drop)
    } else {
        temporary.persist_noclobber(path).map(drop)
    }
    .with_context(|| format!("cannot write {shown}"))?;
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .with_context(|| format!("cannot make {shown} durable"))
}
