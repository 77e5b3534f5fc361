//! The folders of `hw/` that a core is made of, each a FuseSoC core of its own.

use std::collections::BTreeSet;

use toroid_sim::sources::{UnknownModule, closure};

use super::Files;
use crate::sources::FILES;

/// A folder of `hw/`.
pub(super) struct Folder {
    pub(super) name: String,
    /// Its files by their paths below `hw/`, each behind those that it uses.
    pub(super) files: Files,
    /// Other folders with files that these use.
    pub(super) depends: BTreeSet<String>,
}

/// The folder of a path below `hw/`, if it is in one.
pub(super) fn folder_of(path: &str) -> Option<&str> {
    path.split_once('/').map(|(folder, _)| folder)
}

fn folder(name: &str) -> Result<Folder, UnknownModule> {
    let mut folder = Folder {
        name: name.to_owned(),
        files: Vec::new(),
        depends: BTreeSet::new(),
    };
    for (path, _) in FILES
        .iter()
        .filter(|(path, _)| folder_of(path) == Some(name))
    {
        let file = path.rsplit('/').next().unwrap_or(path);
        let module = file.strip_suffix(".sv").unwrap_or(file);
        for (path, text) in closure(FILES, module)? {
            match folder_of(&path) {
                Some(of) if of != name => drop(folder.depends.insert(of.to_owned())),
                _ if folder.files.iter().all(|(known, _)| *known != path) => {
                    folder.files.push((path, text.into_bytes()));
                }
                _ => {}
            }
        }
    }
    Ok(folder)
}

/// The folders of these paths, and those that they need, each whole, so that any two made cores bring the same ones.
///
/// # Errors
/// If a module is not there.
pub(super) fn folders<'a>(
    paths: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<Folder>, UnknownModule> {
    let mut wanted: Vec<String> = paths
        .into_iter()
        .filter_map(folder_of)
        .map(str::to_owned)
        .collect();
    let mut found: Vec<Folder> = Vec::new();
    while let Some(name) = wanted.pop() {
        if found.iter().all(|folder| folder.name != name) {
            let folder = folder(&name)?;
            wanted.extend(folder.depends.iter().cloned());
            found.push(folder);
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}
