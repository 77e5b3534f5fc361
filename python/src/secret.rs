//! Files that hold a secret.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use zeroize::Zeroizing;

use crate::failure::Failure;

/// More than the text of any secret.
const MAX_TEXT: u64 = 1024;

/// Opens a file that holds a secret, which must be closed to others.
pub(crate) fn open(path: &Path) -> Result<File, Failure> {
    let shown = path.display();
    let failed =
        |error: std::io::Error| Failure::new("FileError", format!("cannot open {shown}: {error}"));
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_dir() {
        return Err(Failure::new(
            "FileError",
            format!("{shown} is a folder, and not a file that holds a secret"),
        ));
    }
    check(&file, path)?;
    Ok(file)
}

/// Refuses a file that is open to others.
#[cfg(unix)]
pub(crate) fn check(file: &File, path: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::MetadataExt;
    let mode = file.metadata()?.mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let shown = path.display();
    Err(Failure::new(
        "FileError",
        format!(
            "{shown} is open to others (mode {mode:03o}), but holds a secret; expected mode 600: chmod 600 {shown}"
        ),
    ))
}

/// Refuses a file that is open to others, where files have such modes.
#[cfg(not(unix))]
pub(crate) fn check(_file: &File, _path: &Path) -> Result<(), Failure> {
    Ok(())
}

/// The first line of a file that holds a secret.
pub(crate) fn line(path: &Path) -> Result<Zeroizing<String>, Failure> {
    let mut text = Zeroizing::new(String::with_capacity(MAX_TEXT as usize));
    BufReader::new(open(path)?.take(MAX_TEXT)).read_line(&mut text)?;
    Ok(Zeroizing::new(text.trim().to_owned()))
}
