//! Files that hold a secret of in-band authentication.

use std::path::Path;

use anyhow::Context;
use toroid_nvme::fabrics::auth::Secret;

use crate::secret;

/// Reads a secret from the first line of a file that is closed to others.
pub fn read(path: &Path) -> anyhow::Result<Secret> {
    let shown = path.display();
    secret::first_line(secret::open(path)?)
        .with_context(|| format!("cannot read {shown}"))?
        .trim()
        .parse()
        .with_context(|| format!("{shown} holds no secret"))
}
