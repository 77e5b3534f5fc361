//! Lists the files of `hw/` for `src/sources.rs`, so that a new file is part of the crate by being there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const EMBEDDED: [&str; 2] = ["sv", "svh"];

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    // A folder that changes is one to which a file came.
    println!("cargo:rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path
            .extension()
            .and_then(|extension| extension.to_str())
            .is_some_and(|extension| EMBEDDED.contains(&extension))
        {
            files.push(path);
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let variable = |name: &str| {
        std::env::var_os(name).ok_or_else(|| io::Error::other(format!("cargo sets no {name}")))
    };
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("hw");
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();
    let mut list = String::from("&[\n");
    for path in files {
        let name = path.strip_prefix(&root).unwrap_or(&path);
        let name = name.to_string_lossy().replace('\\', "/");
        list += &format!(
            "    ({name:?}, include_str!({:?})),\n",
            path.display().to_string()
        );
    }
    list += "]\n";
    fs::write(PathBuf::from(variable("OUT_DIR")?).join("sources.rs"), list)
}
