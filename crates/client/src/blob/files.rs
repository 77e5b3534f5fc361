//! Blobs from and to files of the host.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use toroid_isa::metadata::ScMetadata;
use toroid_task::Progress;

use super::{BlobError, BlobId, BlobStat, BlobStore};
use crate::unfinished::Unfinished;

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
        let mut file = blocking(path, move || Unfinished::create(&target)).await?;
        while let Some(piece) = reader.next_chunk().await? {
            file = blocking(path, move || file.write_all(&piece).map(|()| file)).await?;
        }
        blocking(path, move || file.finish()).await?;
        Ok(reader.sc())
    }
}
