//! Files that hold a secret, and what keeps the memory of a process that reads one to itself.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use zeroize::Zeroizing;

/// More than the text of any secret.
const MAX_TEXT: usize = 1024;

/// Opens a file that holds a secret. It must belong to the user or root and be closed to others, as ssh asks it of its keys.
pub fn open(path: &Path) -> anyhow::Result<File> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    check(&file, path)?;
    Ok(file)
}

/// What [`open`] asks of a file, for one that is open.
#[cfg(unix)]
pub fn check(file: &File, path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let shown = path.display();
    let status = file
        .metadata()
        .with_context(|| format!("cannot look at {shown}"))?;
    let mode = status.mode() & 0o777;
    if mode & 0o077 != 0 {
        bail!(
            "{shown} is open to others (mode {mode:03o}), but holds a secret; expected mode 600: chmod 600 {shown}"
        );
    }
    let user = rustix::process::geteuid().as_raw();
    ensure!(
        [user, 0].contains(&status.uid()),
        "{shown} holds a secret, but belongs to user {}, who can read and replace it; expected user {user}: chown {user} {shown}",
        status.uid()
    );
    Ok(())
}

/// What [`open`] asks of a file, for one that is open.
#[cfg(not(unix))]
pub fn check(_file: &File, _path: &Path) -> anyhow::Result<()> {
    Ok(())
}

/// The first line of what `reader` gives, without its end. Nothing behind it is read.
pub fn first_line(mut reader: impl Read) -> anyhow::Result<Zeroizing<String>> {
    // Room for all of it from the start: a buffer that grows leaves copies behind.
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_TEXT));
    let mut byte = [0];
    loop {
        match reader.read_exact(&mut byte) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            outcome => outcome?,
        }
        if byte == *b"\n" {
            break;
        }
        ensure!(
            line.len() < MAX_TEXT,
            "the line is longer than {MAX_TEXT} bytes"
        );
        line.push(byte[0]);
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    let text = std::str::from_utf8(&line).context("the line is not UTF-8")?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// Keeps the memory of this process out of core dumps and from debuggers of the same user. Where the system refuses, the
/// work goes on: the key's own pages have protection of their own.
pub fn guard_process() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = Rlimit {
            current: Some(0),
            ..getrlimit(Resource::Core)
        };
        let _ = setrlimit(Resource::Core, limit);
    }
}
