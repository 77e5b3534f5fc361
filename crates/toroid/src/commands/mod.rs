//! One file per command.

pub mod column;
pub mod compile;
pub mod core;
pub mod demo;
pub mod drive;
pub mod gpu;
pub mod keys;
pub mod map;
pub mod objects;
pub mod params;
pub mod program;
pub mod raw;
pub mod run;
pub mod sample;
pub mod serve;
pub mod top;

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use tempfile::NamedTempFile;
use toroid_tfhe::params::ParamSet;

/// The parameter set of commands that are not told one. It keeps 2^-128 for what the shipped programs bootstrap.
pub const DEFAULT_SET: &str = "message8";

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
    ensure!(
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
    refuse_existing(path, force)?;
    let staged = Staged::write(path, secret, write)?;
    staged.place(force)?;
    sync_folder(path)
}

/// Refuses an existing file, unless it may be replaced.
pub fn refuse_existing(path: &Path, force: bool) -> anyhow::Result<()> {
    ensure!(
        force || !path.exists(),
        "{} exists; --force replaces it",
        path.display()
    );
    Ok(())
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn sync_folder(path: &Path) -> anyhow::Result<()> {
    File::open(folder(path))
        .and_then(|folder| folder.sync_all())
        .with_context(|| format!("cannot make {} durable", path.display()))
}

/// A file that is complete and on the disk, beside its place; removed unless it is moved there.
pub struct Staged {
    file: NamedTempFile,
    path: PathBuf,
}

impl Staged {
    /// Writes the file. A secret one is readable by its owner alone.
    pub fn write(
        path: &Path,
        secret: bool,
        write: impl FnOnce(&mut BufWriter<&File>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Staged> {
        let shown = path.display();
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        if !secret {
            use std::os::unix::fs::PermissionsExt;
            // What the process' umask leaves of it.
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        let file = builder
            .tempfile_in(folder(path))
            .with_context(|| format!("cannot write in {}", folder(path).display()))?;
        {
            // A secret passes through no buffer that would keep it.
            let capacity = if secret { 0 } else { 1 << 20 };
            let mut writer = BufWriter::with_capacity(capacity, file.as_file());
            write(&mut writer)?;
            writer
                .flush()
                .with_context(|| format!("cannot write {shown}"))?;
        }
        file.as_file()
            .sync_all()
            .with_context(|| format!("cannot write {shown}"))?;
        let path = path.to_owned();
        Ok(Staged { file, path })
    }

    fn place(self, force: bool) -> anyhow::Result<()> {
        let Staged { file, path } = self;
        if force {
            file.persist(&path).map(drop)
        } else {
            file.persist_noclobber(&path).map(drop)
        }
        .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Where a file stands while the set that it belongs to is replaced.
pub fn former(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".old");
    name.into()
}

/// Moves a set of files of one folder to their places; with `force` in place of those that are there. Either all of them
/// get there, or those that were there stay.
///
/// The former files wait under [`former`] names until all new ones are in place. They leave their places from the first one on, and the new
/// ones come from the last one on: whenever the first file is in its place, its whole set is. A process that is killed in between leaves the
/// former set complete, under its waiting names.
pub fn place_set(set: Vec<Staged>, force: bool) -> anyhow::Result<()> {
    let Some(first) = set.first().map(|staged| staged.path.clone()) else {
        return Ok(());
    };
    let paths: Vec<PathBuf> = set.iter().map(|staged| staged.path.clone()).collect();
    let (mut aside, mut placed) = (Vec::new(), Vec::new());
    let exchange = || -> anyhow::Result<()> {
        if force {
            for path in paths.iter().filter(|path| path.exists()) {
                std::fs::rename(path, former(path))
                    .with_context(|| format!("cannot move {} aside", path.display()))?;
                aside.push(path);
            }
            sync_folder(&first)?;
        }
        for staged in set.into_iter().rev() {
            let path = staged.path.clone();
            staged.place(false)?;
            placed.push(path);
            sync_folder(&first)?;
        }
        Ok(())
    };
    let exchanged = exchange();
    if exchanged.is_err() {
        for path in &placed {
            let _ = std::fs::remove_file(path);
        }
        for path in aside {
            let _ = std::fs::rename(former(path), path);
        }
        return exchanged;
    }
    for path in aside {
        let former = former(path);
        std::fs::remove_file(&former)
            .with_context(|| format!("cannot remove {}", former.display()))?;
    }
    sync_folder(&first)
}

#[cfg(test)]
mod tests {
    use toroid_tfhe::arithmetic::ArithmeticKind;
    use toroid_tfhe::noise::Assumptions;

    use super::*;

    #[test]
    fn the_default_set_keeps_its_promise_for_what_programs_bootstrap() {
        let set = param_set(DEFAULT_SET).unwrap();
        assert!(set.security.bits >= 128);
        // 4·x + y of bootstrapped samples, for unfavourable keys.
        let assumptions = Assumptions::with_margin(ArithmeticKind::Fft);
        assert!(set.log2_failure_under(assumptions, set.message_bits, 17.0) <= -128.0);
    }

    fn staged(folder: &Path, names: &[&str]) -> Vec<Staged> {
        let stage = |name: &&str| {
            Staged::write(&folder.join(name), true, |writer| {
                write!(writer, "new {name}")?;
                Ok(())
            })
        };
        names.iter().map(|name| stage(name).unwrap()).collect()
    }

    /// What the folder holds, by name.
    fn held(folder: &Path) -> Vec<(String, String)> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(path).unwrap())
        });
        let mut held: Vec<_> = entries.collect();
        held.sort();
        held
    }

    #[test]
    fn a_set_is_replaced_as_a_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let names = ["a", "b", "c"];
        std::fs::write(path.join("a"), "old a").unwrap();
        std::fs::write(path.join("b"), "old b").unwrap();
        let before = held(path);

        assert!(place_set(staged(path, &names), false).is_err());
        assert_eq!(held(path), before);

        // The last move fails: c and b are in place by then, and the former files aside.
        let set = staged(path, &names);
        std::fs::remove_file(set[0].file.path()).unwrap();
        assert!(place_set(set, true).is_err());
        assert_eq!(held(path), before);

        place_set(staged(path, &names), true).unwrap();
        let new = names.map(|name| (name.to_owned(), format!("new {name}")));
        assert_eq!(held(path), new);
    }
}
