//! Blobs from and to files of the host.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use toroid_isa::metadata::ScMetadata;
use toroid_task::Progress;

use super::{BlobError, BlobId, BlobStat, BlobStore};

/// Bytes read from a file at a time.
const PIECE: usize = 1 << 20;

/// Runs file operations where they may block.
async fn blocking<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, BlobError> {
    let file_error = |source| BlobError::File {
        path: path.to_owned(),
        source,
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(file_error),
        Err(_) => Err(BlobError::Cancelled),
    }
}

impl BlobStore {
    /// Replaces the content of a blob by that of the file `path` (Table 7: `write_blob1`).
    ///
    /// Fails with [`BlobError::SizeMismatch`] if the file changes its length meanwhile.
    pub async fn write_blob_file(
        &self,
        id: BlobId,
        path: impl AsRef<Path>,
        progress: &Progress,
    ) -> Result<BlobStat, BlobError> {
        let path = path.as_ref();
        let owned = path.to_owned();
        let (mut file, size) = blocking(path, move || {
            let file = File::open(owned)?;
            let size = file.metadata()?.len();
            Ok((file, size))
        })
        .await?;
        let mut writer = self.writer(id, size).await?.with_progress(progress.clone());
        let mut piece = Vec::with_capacity(PIECE);
        loop {
            piece.clear();
            (file, piece) = blocking(path, move || {
                (&mut file).take(PIECE as u64).read_to_end(&mut piece)?;
                Ok((file, piece))
            })
            .await?;
            if piece.is_empty() {
                return writer.commit().await;
            }
            writer.write(&piece).await?;
        }
    }

    /// Reads the content of a blob into the file `path` (Table 7: `read_blob1`) and gives the metadata that came back with it.
    ///
    /// The data goes to a new file beside `path`, which takes its name, and replaces a file of that name, only when it
    /// is complete and synchronized.
    pub async fn read_blob_file(
        &self,
        id: BlobId,
        path: impl AsRef<Path>,
        progress: &Progress,
    ) -> Result<Option<ScMetadata>, BlobError> {
        let path = path.as_ref();
        let mut reader = self.reader(id)?.with_progress(progress.clone());
        let target = path.to_owned();
        let (mut file, unfinished) = blocking(path, move || Unfinished::create(&target)).await?;
        while let Some(piece) = reader.next_chunk().await? {
            file = blocking(path, move || file.write_all(&piece).map(|()| file)).await?;
        }
        blocking(path, move || {
            file.sync_all()?;
            unfinished.rename()
        })
        .await?;
        Ok(reader.sc())
    }
}

/// A file that is removed unless it gets its final name.
struct Unfinished {
    temporary: PathBuf,
    target: PathBuf,
    renamed: bool,
}

impl Unfinished {
    fn create(target: &Path) -> io::Result<(File, Self)> {
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
                    let unfinished = Self {
                        temporary,
                        target: target.to_owned(),
                        renamed: false,
                    };
                    return Ok((file, unfinished));
                }
            }
        }
    }

    fn rename(mut self) -> io::Result<()> {
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
