//! Columns in registers of a drive: what `put_sample` and `get_sample` are for samples.

use toroid_isa::VrNumber;
use toroid_isa::metadata::ScMetadata;
use toroid_task::Progress;
use toroid_tfhe::params::ParamSet;

use super::{ColumnError, EncryptedRows, MAX_OBJECT_BYTES, of};
use crate::blob::BlobStat;
use crate::ledger::ObjectDigest;
use crate::session::{Object, Session, SessionError};

impl Session {
    /// Writes a column into a register, as an object of at least `room` bytes ([`EncryptedRows::object`]). In a TLWE-CoW register it runs the program on
    /// all of its rows; the result then stands in its place. No register of the drive holds a column: programs find it where it is
    /// written or read, and nowhere else.
    ///
    /// # Errors
    /// Those of [`Object::rows`] and of the store; with the drive's reason where the program failed. The drive refuses an object
    /// that does not come whole in one command.
    pub async fn put_rows(
        &self,
        register: VrNumber,
        rows: &EncryptedRows,
        room: u64,
        progress: &Progress,
    ) -> Result<BlobStat, SessionError> {
        self.put_one(Object::rows(register, rows, room)?, progress)
            .await
    }

    /// Makes room for a column of a register, an object of so many bytes, for others to write its blocks ([`raw`](crate::raw)). Where there is
    /// one of this size already, it stays as it is.
    ///
    /// # Errors
    /// [`SessionError::WrongType`], [`ColumnError::Object`], and those of the store.
    pub async fn reserve_rows(
        &self,
        register: VrNumber,
        params: &ParamSet,
        bytes: u64,
    ) -> Result<BlobStat, SessionError> {
        if bytes > MAX_OBJECT_BYTES {
            return Err(of(&register.to_string())(ColumnError::Object(bytes)));
        }
        let sc = ScMetadata::new(register, params.id, bytes)?.with_column(true);
        self.reserve_object(sc).await
    }

    /// Reads the column in a register. A TLWE-CoR register runs the program on it, if the drive has one; what comes back is the result, with the noise
    /// that the drive states.
    ///
    /// # Errors
    /// As [`Session::get_sample`]; [`SessionError::Column`] for anything but a column.
    pub async fn get_rows(&self, register: VrNumber) -> Result<EncryptedRows, SessionError> {
        let (sc, blob) = self.read_sample(register).await?;
        self.check(&sc, ObjectDigest::of(&sc, &blob.data), &blob.name)?;
        let rows = EncryptedRows::from_object(&sc, &blob.data);
        let rows = rows.map_err(of(&register.to_string()))?;
        Ok(match self.expected_noise(register) {
            Some(noise) => rows.with_noise_of_at_least(&noise),
            None => rows,
        })
    }
}
