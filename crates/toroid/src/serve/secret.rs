//! Files that hold a secret of in-band authentication.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use toroid_nvme::fabrics::auth::Secret;
use zeroize::Zeroizing;

/// More than the text of any secret.
const MAX_BYTES: usize = 1024;

/// Reads a secret. The file must not be open to others, as ssh asks it of its keys.
pub fn read(path: &Path) -> anyhow::Result<Secret> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    check_mode(&file, path)?;
    // Room for all of it from the start: a buffer that grows leaves copies behind.
    let mut text = Zeroizing::new(String::with_capacity(MAX_BYTES + 1));
    file.take(MAX_BYTES as u64 + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read {shown}"))?;
    ensure!(
        text.len() <= MAX_BYTES,
        "{shown} is longer than {MAX_BYTES} bytes; expected one secret"
    );
    text.trim()
        .parse()
        .with_context(|| format!("{shown} holds no secret"))
}

#[cfg(unix)]
fn check_mode(file: &File, path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let shown = path.display();
    let status = file
        .metadata()
        .with_context(|| format!("cannot look at {shown}"))?;
    let mode = status.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        bail!(
            "{shown} is open to others (mode {mode:03o}), but holds a secret; expected mode 600: chmod 600 {shown}"
        );
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_mode(_file: &File, _path: &Path) -> anyhow::Result<()> {
    Ok(())
}
