//! Files that take their name, and the place of a file that has it, once they are complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A new file beside the place of its final name; removed unless it gets there.
pub(crate) struct Unfinished {
    file: File,
    temporary: PathBuf,
    target: PathBuf,
    renamed: bool,
}

impl Unfinished {
    /// An empty file.
    pub(crate) fn create(target: &Path) -> io::Result<Unfinished> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Some(name) = target.file_name() else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a path that ends in a file name was expected",
            ));
        };
        loop {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let mut temporary = name.to_owned();
            temporary.push(format!(".{}-{n}.part", std::process::id()));
            let temporary = target.with_file_name(temporary);
            match OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(&temporary)
            {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
                Ok(file) => {
                    return Ok(Unfinished {
                        file,
                        temporary,
                        target: target.to_owned(),
                        renamed: false,
                    });
                }
            }
        }
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Puts the file in its place. After a crash there is the former one or this one, whole.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.temporary, &self.target)?;
        self.renamed = true;
        // On Unix the new name is durable only with the directory.
        #[cfg(unix)]
        match self.target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all()?,
            _ => File::open(".")?.sync_all()?,
        }
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}
