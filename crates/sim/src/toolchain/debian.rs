//! Programs of Debian packages, unpacked into the cache folder: nothing is installed on the machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use super::{ToolError, cache_folder, file_error, hash, tail};
use crate::process::{Lock, ProcessError, run};
use toroid_task::Progress;

/// Debian packages that are unpacked together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DebianPackages {
    /// What the folder begins with.
    pub name: &'static str,
    /// The suite that has them.
    pub suite: &'static str,
    /// A line for each: its name, its version and the SHA-256 of its file. Lines that begin with `#` do not count.
    pub list: &'static str,
}

/// What the packages are made for.
const ARCHITECTURE: &str = "amd64";

/// Where libraries and their loader are in unpacked packages.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LOADER: &str = "ld-linux-x86-64.so.2";

/// A package, its version, and the SHA-256 of its file.
fn rows(list: &str) -> impl Iterator<Item = [&str; 3]> {
    list.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_whitespace().collect::<Vec<_>>().try_into().ok())
}

/// Debian's archive, as apt's own configuration names it: what `apt-get update --print-uris` gives before `/dists/`.
fn archive(uris: &str) -> Option<&str> {
    uris.lines().find_map(|line| {
        let (archive, _) = line.strip_prefix('\'')?.split_once("/dists/")?;
        archive.ends_with("/debian").then_some(archive)
    })
}

/// apt with lists, packages and sources of its own in `folder`.
fn apt(folder: &Path) -> Command {
    let mut apt = Command::new("apt-get");
    let at = |option: &str, name: &str| format!("{option}={}", folder.join(name).display());
    for option in [
        at("Dir::State::lists", "lists"),
        at("Dir::State::status", "status"),
        at("Dir::Cache", "cache"),
        at("Dir::Etc::sourcelist", "sources.list"),
        "Dir::Etc::sourceparts=-".to_owned(),
        "Acquire::Languages=none".to_owned(),
        format!("APT::Architecture={ARCHITECTURE}"),
        format!("APT::Architectures={ARCHITECTURE}"),
    ] {
        apt.arg("-o").arg(option);
    }
    apt.env("LC_ALL", "C").current_dir(folder);
    apt
}

/// The folder with the packages, each unpacked into it, which is made if it is not there. Its [`command`]s run.
///
/// # Errors
/// [`ToolError::Debian`] if this machine has no apt of Debian, or the archive no longer has a package in the version and with
/// the contents that the list names.
pub fn debian(packages: DebianPackages, progress: &Progress) -> Result<PathBuf, ToolError> {
    let DebianPackages { name, suite, list } = packages;
    let cache = cache_folder()?;
    let key = hash([list.as_bytes()]);
    let folder = cache.join(format!("{name}-{key}"));
    let complete = folder.join("complete");
    if complete.exists() {
        return Ok(folder);
    }
    let lock = cache.join(format!("{name}-{key}.lock"));
    let _lock = Lock::take(&lock, progress)?;
    if complete.exists() {
        return Ok(folder);
    }
    let refused = |reason: String| ToolError::Debian {
        name: name.to_owned(),
        reason,
    };
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err(refused(format!("they are for Linux on {ARCHITECTURE}")));
    }
    let total = 2 + rows(list).count() as u64;
    let what = format!("installing {name}");
    progress.report(&what, 0, total);
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(file_error(&folder))?;
    }
    let work = folder.join("apt");
    for part in ["lists/partial", "cache/archives/partial"] {
        let path = work.join(part);
        fs::create_dir_all(&path).map_err(file_error(&path))?;
    }
    let call = |command: &mut Command| -> Result<String, ToolError> {
        match run(command, progress) {
            Ok(done) if done.status.success() => Ok(done.output),
            Ok(done) => Err(refused(tail(&done.output))),
            Err(error @ ProcessError::Cancelled(_)) => Err(error.into()),
            Err(error) => Err(refused(error.to_string())),
        }
    };
    let uris = call(Command::new("apt-get").args(["update", "--print-uris"]))?;
    let archive = archive(&uris)
        .ok_or_else(|| refused("apt's configuration names no archive of Debian".to_owned()))?;
    // The hashes below say what is right, in place of the archive's signatures, whose keys other systems do not have.
    let sources = format!("deb [trusted=yes] {archive} {suite} main\n");
    for (file, text) in [("sources.list", sources.as_str()), ("status", "")] {
        let path = work.join(file);
        fs::write(&path, text).map_err(file_error(&path))?;
    }
    call(apt(&work).arg("update"))?;
    progress.report(&what, 1, total);
    let names: Vec<String> = rows(list)
        .map(|[name, version, _]| format!("{name}={version}"))
        .collect();
    call(apt(&work).arg("download").args(&names))?;
    let mut files = Vec::new();
    for entry in fs::read_dir(&work).map_err(file_error(&work))? {
        let path = entry.map_err(file_error(&work))?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            let contents = fs::read(&path).map_err(file_error(&path))?;
            let digest = Sha256::digest(&contents);
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            files.push((digest, path));
        }
    }
    for (done, [name, version, digest]) in (2..).zip(rows(list)) {
        let Some((_, path)) = files.iter().find(|(found, _)| found == digest) else {
            let reason = format!("{name} {version} of {archive} has not the SHA-256 {digest}");
            return Err(refused(reason));
        };
        call(
            Command::new("dpkg-deb")
                .arg("--extract")
                .arg(path)
                .arg(&folder),
        )?;
        progress.report(&what, done, total);
    }
    fs::remove_dir_all(&work).map_err(file_error(&work))?;
    // Programs look for their data beside the file that runs, which is the loader.
    let loader = folder.join("usr/bin").join(LOADER);
    fs::copy(folder.join(LIBRARIES).join(LOADER), &loader).map_err(file_error(&loader))?;
    fs::write(&complete, key).map_err(file_error(&complete))?;
    Ok(folder)
}

/// A call of a program in `usr/bin` of a folder that [`debian`] made, with the libraries there in place of the machine's.
pub fn command(folder: &Path, program: &str) -> Vec<String> {
    let at = |path: &Path| path.display().to_string();
    let bin = folder.join("usr/bin");
    vec![
        at(&bin.join(LOADER)),
        "--library-path".to_owned(),
        at(&folder.join(LIBRARIES)),
        at(&bin.join(program)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_that_of_the_machine() {
        let uris = "'http://mirror/debian-security/dists/bookworm-security/InRelease' a 0 \n\
                    'http://mirror/debian/dists/bookworm/InRelease' b 0 \n";
        assert_eq!(archive(uris), Some("http://mirror/debian"));
        assert_eq!(
            archive("'http://mirror/ubuntu/dists/noble/InRelease' a 0 \n"),
            None
        );
    }

    #[test]
    fn lists_have_comments_and_rows() {
        let list = "# package version hash\na 1.2 00ff\n";
        assert_eq!(rows(list).collect::<Vec<_>>(), [["a", "1.2", "00ff"]]);
    }
}
