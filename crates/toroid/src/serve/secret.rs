//! Files that hold a secret of in-band authentication, or a key of TLS.

use std::path::Path;

use anyhow::Context;
use toroid_nvme::fabrics::auth::{Secret, TlsKey};
use zeroize::Zeroizing;

use crate::secret;

/// Reads a secret from the first line of a file that is closed to others.
pub fn read(path: &Path) -> anyhow::Result<Secret> {
    let line = line(path)?;
    let secret = line.trim().parse();
    secret.with_context(|| format!("{} holds no secret", path.display()))
}

/// Reads a TLS key from the first line of a file that is closed to others.
pub fn read_tls_key(path: &Path) -> anyhow::Result<TlsKey> {
    let line = line(path)?;
    let key = line.trim().parse();
    key.with_context(|| format!("{} holds no TLS key", path.display()))
}

fn line(path: &Path) -> anyhow::Result<Zeroizing<String>> {
    secret::first_line(secret::open(path)?)
        .with_context(|| format!("cannot read {}", path.display()))
}
