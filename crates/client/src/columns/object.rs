//! Columns as objects of registers, which trigger programs when they are written or read.

use toroid_isa::metadata::ScMetadata;
use toroid_isa::{VrNumber, VrType};
use toroid_tfhe::TfheError;
use toroid_tfhe::column::{Column, ColumnForm, column_bytes, packed_width};
use toroid_tfhe::params::ParamSet;

use super::head::damaged;
use super::rows::{EncryptedRows, RowFacts};
use super::{ColumnError, MAX_OBJECT_BYTES, of};
use crate::session::{Object, SessionError};

/// Bytes of a column of so many rows that a drive has computed: packed for a set for wide functions, expanded for any other and for a
/// single row.
///
/// # Errors
/// [`TfheError::ChunkRows`] for no rows.
pub fn result_bytes(params: &ParamSet, rows: u64) -> Result<u64, TfheError> {
    let is_packed = rows > 1 && packed_width(params).is_some();
    let form = if is_packed {
        ColumnForm::Packed
    } else {
        ColumnForm::Expanded
    };
    column_bytes(params, form, rows)
}

impl EncryptedRows {
    /// The column as an object of a register of samples: what describes it, and its bytes. The result of the program that it triggers
    /// stands in its place, so the object has zeroes behind the column to at least `room` bytes.
    ///
    /// # Errors
    /// [`SessionError::WrongType`], [`SessionError::Metadata`], [`ColumnError::Object`] for more than [`MAX_OBJECT_BYTES`].
    pub fn object(
        &self,
        register: VrNumber,
        room: u64,
    ) -> Result<(ScMetadata, Vec<u8>), SessionError> {
        if !register.ty().is_sample() {
            return Err(SessionError::WrongType(register, "LWE samples"));
        }
        let size = room.max(self.bytes.len() as u64);
        if size > MAX_OBJECT_BYTES {
            return Err(of(&register.to_string())(ColumnError::Object(size)));
        }
        let sc = self.facts.metadata(register, size)?;
        let mut bytes = self.bytes.clone();
        bytes.resize(size as usize, 0);
        Ok((sc, bytes))
    }

    /// The column in an object of a register, whose bytes these begin with.
    ///
    /// # Errors
    /// [`ColumnError::Damaged`] for anything else, and those of [`Column::new`].
    pub fn from_object(sc: &ScMetadata, bytes: &[u8]) -> Result<EncryptedRows, ColumnError> {
        if !sc.column() || sc.offset() != 0 {
            return Err(damaged(format!("{sc} is not that of a whole column")));
        }
        let whole = usize::try_from(sc.size()).ok();
        let bytes = whole.and_then(|size| bytes.get(..size)).ok_or_else(|| {
            let found = bytes.len();
            damaged(format!("{found} bytes of an object of {}", sc.size()))
        })?;
        let facts = RowFacts::of(sc)?;
        let count = Column::new(facts.params, bytes)?.header().rows();
        Ok(EncryptedRows {
            facts,
            bytes: bytes.to_vec(),
            count,
            origin: None,
        })
    }

    /// The rows for a file or another process: what describes them, and then the column.
    ///
    /// # Errors
    /// [`SessionError::Metadata`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, SessionError> {
        let register = VrNumber::new(VrType::LweCor, 0, 0)?;
        let sc = self.facts.metadata(register, self.byte_len())?;
        Ok([&sc.to_bytes()[..], &self.bytes].concat())
    }

    /// The rows that [`EncryptedRows::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`ColumnError::Damaged`] for anything else, and those of [`Column::new`].
    pub fn from_bytes(bytes: &[u8]) -> Result<EncryptedRows, ColumnError> {
        let (sc, column) = bytes
            .split_at_checked(ScMetadata::SIZE)
            .ok_or_else(|| damaged(format!("{} bytes are too few for rows", bytes.len())))?;
        let sc = ScMetadata::from_bytes(sc)
            .map_err(|error| damaged(error.to_string()))?
            .ok_or_else(|| damaged("nothing describes the rows".to_owned()))?;
        EncryptedRows::from_object(&sc, column)
    }

    /// Bytes of the column in memory.
    #[must_use]
    pub fn byte_len(&self) -> u64 {
        self.bytes.len() as u64
    }
}

impl Object<'static> {
    /// A column, for a register, with zeroes behind it to at least `room` bytes ([`EncryptedRows::object`]).
    ///
    /// # Errors
    /// Those of [`EncryptedRows::object`].
    pub fn rows(
        register: VrNumber,
        rows: &EncryptedRows,
        room: u64,
    ) -> Result<Object<'static>, SessionError> {
        let (sc, bytes) = rows.object(register, room)?;
        Ok(Object::of_bytes(sc, bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use proptest::prelude::*;
    use toroid_task::{CancelToken, Progress};
    use toroid_tfhe::ClientKey;
    use toroid_tfhe::encoding::Encoding;
    use toroid_tfhe::params::{TINY, TINY_WOPBS};
    use toroid_tfhe::random::Csprng;

    use super::*;

    #[test]
    fn decryption_that_is_cancelled_ends() {
        let mut rng = Csprng::from_seed([4; 32]);
        let client = ClientKey::generate(&TINY, &mut rng);
        let encoding = Encoding::new(4, true).unwrap();
        let numbers = vec![1; 10_000];
        let rows = EncryptedRows::encrypt(&client, encoding, &numbers, &Progress::none());
        let cancel = CancelToken::new();
        let (own, steps) = (cancel.clone(), Arc::new(AtomicUsize::new(0)));
        let seen = steps.clone();
        let progress = Progress::new(move |_, done, total| {
            assert!(done < total);
            seen.fetch_add(1, Ordering::Relaxed);
            own.cancel();
        });
        let decrypted = rows
            .unwrap()
            .decrypt_above(&client, 0.0, &progress.with_cancel(cancel));
        assert!(matches!(
            decrypted,
            Err(SessionError::Tfhe(TfheError::Cancelled))
        ));
        assert_eq!(steps.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn an_object_holds_the_column_that_was_put_there() {
        let mut rng = Csprng::from_seed([3; 32]);
        for params in [&TINY, &TINY_WOPBS] {
            let client = ClientKey::generate(params, &mut rng);
            let encoding = Encoding::new(4, true).unwrap();
            let numbers: Vec<i64> = (0..300).map(|row| row % 16 - 8).collect();
            let rows = EncryptedRows::encrypt(&client, encoding, &numbers, &Progress::none());
            let rows = rows.unwrap();
            let register: VrNumber = "cow:3:2".parse().unwrap();
            for room in [0, 1 << 17] {
                let (sc, bytes) = rows.object(register, room).unwrap();
                assert_eq!((sc.vr(), sc.size()), (register, bytes.len() as u64));
                assert!(sc.column() && bytes.len() as u64 >= room);
                // The last block may be longer than the object.
                let padded = [&bytes[..], &[7; 100]].concat();
                let found = EncryptedRows::from_object(&sc, &padded).unwrap();
                assert_eq!((found.len(), found.facts), (300, rows.facts));
                assert_eq!(found.decrypt(&client).unwrap(), numbers);
                assert!(EncryptedRows::from_object(&sc, &bytes[1..]).is_err());
                assert!(EncryptedRows::from_object(&sc.with_column(false), &bytes).is_err());
            }
            let written = rows.to_bytes().unwrap();
            let read = EncryptedRows::from_bytes(&written).unwrap();
            assert_eq!((read.len(), read.facts), (300, rows.facts));
            assert_eq!(read.decrypt(&client).unwrap(), numbers);
            for end in [0, 40, ScMetadata::SIZE, written.len() - 1] {
                assert!(EncryptedRows::from_bytes(&written[..end]).is_err(), "{end}");
            }
            assert!(rows.object(register, MAX_OBJECT_BYTES + 1).is_err());
            let vector: VrNumber = "tv:3:2".parse().unwrap();
            assert!(rows.object(vector, 0).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_column_or_refused(bytes: Vec<u8>, size in 1u64..200) {
            let vr = "cor:0:0".parse().unwrap();
            let sc = ScMetadata::new(vr, TINY.id, size).unwrap().with_column(true);
            let _ = EncryptedRows::from_object(&sc, &bytes);
        }
    }
}
