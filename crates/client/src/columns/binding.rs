//! What binds a column at rest to a client key ([`ledger`](crate::ledger)).
//!
//! It stands behind the head of the column:
//!
//! | bytes | content |
//! | --- | --- |
//! | 0..4 | `TBND`; anything else: the column is not bound |
//! | 4..8 | number of chunks, or of ciphertexts (u32) |
//! | 8..16 | version (u64) |
//! | 16..32 | code: the start of an HMAC-SHA-256 |
//! | 32.. | SHA-256 of each chunk or ciphertext, in the order of their places |
//!
//! The code is of a digest of the head with these digests, but without places. So whoever has checked the code checks each chunk by itself when it comes.

use std::collections::BTreeMap;

use toroid_isa::metadata::ScMetadata;

use super::{ColumnError, of};
use crate::ledger::{
    Binding, CODE_BYTES, Content, Digest, Entry, LedgerFault, ObjectDigest, Origin, Subject,
    bytes_digest,
};
use crate::session::{Session, SessionError};

const MAGIC: [u8; 4] = *b"TBND";
/// Bytes before the digests.
const FIXED: usize = 16 + CODE_BYTES;

/// A column's binding, with the digests of its chunks by their places.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bound {
    binding: Binding,
    chunks: BTreeMap<u64, Digest>,
}

impl Bound {
    /// Bytes with so many chunks. That there is no binding takes some, too.
    pub(super) fn byte_len(chunks: Option<usize>) -> u64 {
        let bytes = chunks.map_or(MAGIC.len(), |chunks| FIXED + 32 * chunks);
        bytes as u64
    }

    pub(super) fn to_bytes(bound: Option<&Bound>) -> Vec<u8> {
        let Some(Bound { binding, chunks }) = bound else {
            return vec![0; MAGIC.len()];
        };
        let mut bytes = MAGIC.to_vec();
        bytes.extend((chunks.len() as u32).to_le_bytes());
        bytes.extend(binding.version.to_le_bytes());
        bytes.extend(binding.code);
        chunks.values().for_each(|digest| bytes.extend(digest));
        bytes
    }

    /// The one that bytes begin with, of a column with chunks at these places.
    pub(super) fn from_bytes(bytes: &[u8], places: impl Iterator<Item = u64>) -> Option<Bound> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let (count, rest) = rest.split_first_chunk()?;
        let (version, rest) = rest.split_first_chunk()?;
        let (code, rest) = rest.split_first_chunk()?;
        let count = u32::from_le_bytes(*count) as usize;
        let (digests, _) = rest.as_chunks::<32>();
        let chunks: BTreeMap<_, _> = places.zip(digests.get(..count)?.iter().copied()).collect();
        let binding = Binding {
            version: u64::from_le_bytes(*version),
            code: *code,
        };
        (chunks.len() == count).then_some(Bound { binding, chunks })
    }

    /// The digest of the chunk at a place.
    pub(super) fn chunk(&self, place: u64) -> Option<&Digest> {
        self.chunks.get(&place)
    }

    /// Refuses another chunk than the one that was bound, and any where nothing was.
    pub(super) fn check_chunk(
        bound: Option<&Bound>,
        place: u64,
        chunk: &[u8],
    ) -> Result<(), ColumnError> {
        match bound.and_then(|bound| bound.chunk(place)) {
            Some(digest) if *digest == bytes_digest(chunk) => Ok(()),
            _ => Err(LedgerFault::Changed.into()),
        }
    }

    /// The digests of the chunks at these places: new ones, and those of a former binding.
    pub(super) fn chunks_with<'a>(
        former: Option<&Bound>,
        places: impl Iterator<Item = u64>,
        new: impl Iterator<Item = (u64, &'a [u8])>,
    ) -> BTreeMap<u64, Digest> {
        let new = new.map(|(place, chunk)| (place, bytes_digest(chunk)));
        let new: BTreeMap<u64, Digest> = new.collect();
        let digest = |place| {
            let digest = new.get(&place).or_else(|| former?.chunk(place))?;
            Some((place, *digest))
        };
        places.filter_map(digest).collect()
    }
}

/// What the digest of a column is of, beside its chunks.
pub(super) struct Described {
    pub(super) sc: ScMetadata,
    /// The bytes of the record of its run.
    pub(super) job: Vec<u8>,
    pub(super) rows: u64,
    /// Of each piece its place, and what the head has of it.
    pub(super) pieces: Vec<(u64, [u32; 4])>,
}

impl Described {
    /// `None` where a chunk has no digest.
    fn content(&self, chunks: &BTreeMap<u64, Digest>) -> Option<Content<'_>> {
        let mut digest = ObjectDigest::new(&self.sc);
        digest.update(&self.job);
        for (place, words) in &self.pieces {
            for word in words {
                digest.update(&word.to_le_bytes());
            }
            digest.update(chunks.get(place)?);
        }
        Some(Content {
            sc: &self.sc,
            rows: self.rows,
            digest: digest.finish(),
        })
    }
}

impl Session {
    /// Binds a column that is about to be written, in place of one of a `former` binding, if there is a ledger: gives a version away. The entry is one to
    /// enter once the drive has the column.
    pub(super) fn bind_column(
        &self,
        name: &str,
        former: Option<&Bound>,
        described: &Described,
        chunks: impl FnOnce() -> BTreeMap<u64, Digest>,
        origin: Option<Origin>,
    ) -> Result<Option<(Bound, Entry)>, SessionError> {
        let Some(mut ledger) = self.ledger() else {
            return Ok(None);
        };
        let chunks = chunks();
        let content = described.content(&chunks);
        let content = content.ok_or_else(|| of(name)(LedgerFault::Changed.into()))?;
        let (store, subject) = (self.store().uuid(), Subject::Column(name.to_owned()));
        let former = former.map(|former| former.binding.clone());
        let versions = ledger.reserve(store, vec![(subject.clone(), former)])?;
        let version = versions.first().copied().unwrap_or_default();
        let (binding, mut entry) = ledger.binding(store, &subject, content, version);
        entry.origin = origin;
        Ok(Some((Bound { binding, chunks }, entry)))
    }

    /// Checks the head of a column against the ledger, if there is one; learns of newer versions.
    pub(super) fn check_column(
        &self,
        name: &str,
        bound: Option<&Bound>,
        described: &Described,
    ) -> Result<(), SessionError> {
        let Some(mut ledger) = self.newest_ledger()? else {
            return Ok(());
        };
        let (store, subject) = (self.store().uuid(), Subject::Column(name.to_owned()));
        let bound = bound.and_then(|bound| Some((bound, described.content(&bound.chunks)?)));
        let checked = bound
            .ok_or(LedgerFault::Changed)
            .and_then(|(bound, content)| {
                ledger.check_bound(store, &subject, content, Some(&bound.binding))
            });
        match checked.map_err(|fault| of(name)(fault.into()))? {
            Some(newer) => Ok(ledger.enter(store, [(subject, newer)])?),
            None => Ok(()),
        }
    }

    /// Enters what has happened to a column on the drive.
    pub(super) fn enter_column(
        &self,
        name: &str,
        entry: Option<Entry>,
    ) -> Result<(), SessionError> {
        self.enter(entry.map(|entry| (Subject::Column(name.to_owned()), entry)))
    }

    /// What a ledger is to have of a run: its program and, of its operands and of the columns that stand in `inputs`, those that the ledger knows.
    #[cfg(feature = "image")]
    pub(super) fn origin_of_run<'a>(
        &self,
        program: &toroid_isa::Program,
        (rows, kept): (std::ops::Range<u64>, Option<Digest>),
        inputs: impl Iterator<Item = (toroid_isa::VrNumber, &'a str)>,
    ) -> Option<Origin> {
        let ledger = self.ledger()?;
        let inputs: BTreeMap<_, _> = inputs.collect();
        let instructions = program.instructions().iter();
        let operands: std::collections::BTreeSet<Subject> = instructions
            .flat_map(toroid_isa::Instruction::operands)
            .filter(|operand| !inputs.contains_key(operand))
            .map(Subject::Register)
            .chain(
                inputs
                    .values()
                    .map(|name| Subject::Column((*name).to_owned())),
            )
            .collect();
        let digest = bytes_digest(&toroid_isa::encode(program));
        Some(ledger.origin(self.store().uuid(), digest, (Some(rows), kept), operands))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_are_read_as_written_or_not_at_all() {
        let bound = Bound {
            binding: Binding {
                version: 7,
                code: [3; CODE_BYTES],
            },
            chunks: BTreeMap::from([(65408, [1; 32]), (70000, [2; 32])]),
        };
        let places = || [65408, 70000].into_iter();
        let bytes = Bound::to_bytes(Some(&bound));
        assert_eq!(bytes.len() as u64, Bound::byte_len(Some(2)));
        let padded = [&bytes[..], &[9; 50]].concat();
        assert_eq!(Bound::from_bytes(&padded, places()), Some(bound));
        for end in 0..bytes.len() {
            assert_eq!(Bound::from_bytes(&bytes[..end], places()), None);
        }
        // Of a column with fewer chunks.
        assert_eq!(Bound::from_bytes(&bytes, places().take(1)), None);
        let none = Bound::to_bytes(None);
        assert_eq!(none.len() as u64, Bound::byte_len(None));
        assert_eq!(Bound::from_bytes(&none, places()), None);
    }
}
