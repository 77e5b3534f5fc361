//! Checks of the tree itself, for `cargo xtask` and for the tests.
//!
//! [`modules`] finds which module uses which, and the circles among them; [`links`] finds the links of pages that lead nowhere, [`named`] the tests
//! that they name and that are not there.

pub mod links;
pub mod modules;
pub mod named;

use std::path::{Path, PathBuf};

use anyhow::Context;

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}

/// Every file below `folder` with one of these extensions, in the order of their names, without build output and hidden folders.
///
/// # Errors
/// A folder that cannot be read.
pub(crate) fn files(folder: &Path, extensions: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let kind = entry.file_type()?;
        let skipped = name
            .to_str()
            .is_none_or(|name| name.starts_with('.') || name.starts_with("target"));
        if kind.is_dir() && !skipped {
            found.extend(files(&path, extensions)?);
        } else if kind.is_file()
            && path
                .extension()
                .is_some_and(|extension| extensions.iter().any(|wanted| extension == *wanted))
        {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
