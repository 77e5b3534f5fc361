//! Encrypted rows in memory.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use rayon::prelude::*;
use toroid_isa::VrNumber;
use toroid_isa::metadata::{KeyTagStart, ScMetadata};
use toroid_rns::ring_set::RingSet;
use toroid_task::Progress;
use toroid_tfhe::ciphertext::MAX_LOG2_FAILURE;
use toroid_tfhe::column::{Column, assemble};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::noise::{Noise, StatedNoise, log2_add, log2_decoding_failure, log2_tail};
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::{ClientKey, TfheError};
use zeroize::Zeroizing;

use super::group::Origin;
use super::head::set_of;
use super::{ColumnError, mismatch, of};
use crate::session::{SessionError, stated_noise, tag_start};

/// What all rows of a column have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RowFacts {
    pub(super) params: &'static ParamSet,
    pub(super) encoding: Option<Encoding>,
    /// Of the noisiest row.
    pub(super) noise: StatedNoise,
    pub(super) computed: bool,
    pub(super) tag: Option<KeyTagStart>,
}

impl RowFacts {
    /// What metadata says of rows.
    pub(super) fn of(sc: &ScMetadata) -> Result<RowFacts, ColumnError> {
        let encoding = match u32::from(sc.message_bits()) {
            0 => None,
            bits => Some(Encoding::of_samples(
                set_of(sc.params())?,
                bits,
                sc.signed(),
            )?),
        };
        Ok(RowFacts {
            params: set_of(sc.params())?,
            encoding,
            noise: stated_noise(sc),
            computed: sc.computed(),
            tag: sc.key_tag(),
        })
    }

    /// Metadata of a column with this many bytes, for a register.
    pub(super) fn metadata(&self, vr: VrNumber, size: u64) -> Result<ScMetadata, SessionError> {
        let bits = self.encoding.map_or(0, |encoding| encoding.bits() as u8);
        let signed = self.encoding.is_some_and(Encoding::is_signed);
        Ok(ScMetadata::new(vr, self.params.id, size)?
            .with_message(bits, signed)?
            .with_noise(self.noise.log2_variance, self.noise.log2_failure)
            .with_computed(self.computed)
            .with_column(true)
            .with_key_tag(self.tag.unwrap_or_default()))
    }

    /// Refuses rows of another parameter set or client key.
    pub(super) fn check_same(&self, other: &RowFacts) -> Result<(), ColumnError> {
        let (own, theirs) = (self.params, other.params);
        if own.id != theirs.id {
            return Err(mismatch("the parameter set", own.name, theirs.name));
        }
        check_tags(self.tag, other.tag)
    }

    /// Refuses rows that do not belong into one column with these.
    pub(super) fn check_fits(&self, other: &RowFacts) -> Result<(), ColumnError> {
        self.check_same(other)?;
        let (own, theirs) = (self.encoding, other.encoding);
        if own != theirs {
            let named = |encoding: Option<Encoding>| match encoding {
                Some(e) if e.is_signed() => format!("{} bits, signed", e.bits()),
                Some(e) => format!("{} bits, unsigned", e.bits()),
                None => "not known".to_owned(),
            };
            return Err(mismatch(
                "the encoding of the rows",
                named(own),
                named(theirs),
            ));
        }
        Ok(())
    }

    /// The noise that is stated, of rows that a drive may have `computed`.
    #[cfg(feature = "image")]
    pub(super) fn stored_noise(&self, computed: bool) -> Noise {
        self.noise.stored(self.params, computed)
    }

    /// What holds of both.
    pub(super) fn with(self, other: &RowFacts) -> RowFacts {
        RowFacts {
            noise: noisier(self.noise, other.noise),
            computed: self.computed || other.computed,
            tag: self.tag.or(other.tag),
            ..self
        }
    }
}

/// Refuses rows of two client keys.
pub(super) fn check_tags(
    own: Option<KeyTagStart>,
    theirs: Option<KeyTagStart>,
) -> Result<(), ColumnError> {
    match (own, theirs) {
        (Some(own), Some(theirs)) if own != theirs => {
            Err(TfheError::KeyMismatch("the data").into())
        }
        _ => Ok(()),
    }
}

/// What is stated of the noisiest of all rows.
pub(super) fn noisier(a: StatedNoise, b: StatedNoise) -> StatedNoise {
    let worse = |a: Option<f64>, b: Option<f64>| Some(a?.max(b?));
    let failures = a.log2_failure.into_iter().chain(b.log2_failure);
    StatedNoise {
        log2_variance: worse(a.log2_variance, b.log2_variance),
        log2_failure: failures.reduce(f64::max),
    }
}

/// log2 of the probability that a row decrypts to a wrong number, one of a sample or of a ciphertext of a ring; 0 where its noise is not stated.
pub(super) fn log2_failure(
    ring: Option<&RingSet>,
    encoding: Option<Encoding>,
    noise: StatedNoise,
) -> f64 {
    let Some(log2_variance) = noise.log2_variance else {
        return 0.0;
    };
    let variance = log2_variance.exp2();
    let behind = noise.log2_failure.unwrap_or(f64::NEG_INFINITY);
    let bits = encoding.map_or(0, Encoding::bits);
    match ring {
        None => log2_decoding_failure(bits, variance, behind),
        // Messages of a ring have no bit of padding.
        Some(_) => {
            let margin = (-f64::from(bits) - 1.0).exp2();
            log2_add(log2_tail(margin, variance), behind)
        }
    }
}

/// Refuses to decrypt rows of another client key, and rows that are wrong with a higher probability than this.
pub(super) fn check_decryption(
    client: &ClientKey,
    tag: Option<KeyTagStart>,
    log2: f64,
    max_log2: f64,
) -> Result<(), TfheError> {
    if tag.is_some_and(|tag| tag != tag_start(client.tag())) {
        return Err(TfheError::KeyMismatch("the column"));
    }
    // Not a number is no figure either.
    let is_low = log2 <= max_log2;
    if is_low {
        Ok(())
    } else {
        Err(TfheError::FailureProbability { log2, max_log2 })
    }
}

/// Rows of a column, encrypted: on their way to a drive, or back.
#[derive(Clone, Debug)]
pub struct EncryptedRows {
    pub(super) facts: RowFacts,
    /// A column in memory ([`Column`]).
    pub(super) bytes: Vec<u8>,
    pub(super) count: u64,
    /// Of rows that are as they were encrypted.
    pub(super) origin: Option<Origin>,
}

impl EncryptedRows {
    /// Encrypts numbers, on all cores, in the seeded form.
    ///
    /// # Errors
    /// [`TfheError::MessageRange`] for a number that the encoding does not have, [`TfheError::ChunkRows`] for no numbers,
    /// [`TfheError::Cancelled`].
    pub fn encrypt(
        client: &ClientKey,
        encoding: Encoding,
        numbers: &[i64],
        progress: &Progress,
    ) -> Result<EncryptedRows, SessionError> {
        let mut columns =
            EncryptedRows::encrypt_together(client, &[(encoding, numbers)], progress)?;
        Ok(columns.remove(0))
    }

    /// Rows of columns, one range behind the other: in any order, and as often as they are named. Chunks stay as they are, each of them once. What is
    /// stated of the noise is that of the noisiest column; where rows stand there twice, that of results, whose errors add up. Messages of columns with a sign and without one go together if `signed` says which they become: it
    /// changes no message that is not negative.
    ///
    /// # Errors
    /// [`ColumnError::Mismatch`] for columns of several parameter sets or encodings, [`TfheError::KeyMismatch`] for those of several client keys,
    /// [`TfheError::ColumnRows`] for rows that a column does not have, or for none at all.
    pub fn gather(
        ranges: &[(&EncryptedRows, Range<u64>)],
        signed: Option<bool>,
    ) -> Result<EncryptedRows, SessionError> {
        let facts_of = |rows: &EncryptedRows| -> Result<RowFacts, TfheError> {
            let mut facts = rows.facts;
            if let (Some(signed), Some(encoding)) = (signed, facts.encoding) {
                facts.encoding = Some(Encoding::of_samples(facts.params, encoding.bits(), signed)?);
            }
            Ok(facts)
        };
        let nothing = TfheError::ColumnRows { rows: 0..0, of: 0 };
        let Some((first, _)) = ranges.first() else {
            return Err(nothing.into());
        };
        let mut facts = facts_of(first)?;
        let mut columns: HashMap<*const EncryptedRows, Column<'_>> = HashMap::new();
        let mut segments = Vec::with_capacity(ranges.len());
        let mut taken: Vec<(*const EncryptedRows, Range<u64>)> = Vec::with_capacity(ranges.len());
        for (rows, range) in ranges {
            taken.push((std::ptr::from_ref(*rows), range.clone()));
            let theirs = facts_of(rows)?;
            facts.check_fits(&theirs).map_err(of("the rows"))?;
            facts = facts.with(&theirs);
            let column = match columns.entry(std::ptr::from_ref(*rows)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => place.insert(rows.column()?),
            };
            for segment in column.header().slice(range.clone())? {
                let place = segment.chunk_place(facts.params)?;
                let chunk = rows.bytes.get(place.start as usize..place.end as usize);
                segments.push((segment, chunk.unwrap_or_default()));
            }
        }
        let count = segments.iter().map(|(s, _)| u64::from(s.rows)).sum();
        if count == 0 {
            return Err(nothing.into());
        }
        taken.sort_by_key(|(rows, range)| (*rows, range.start));
        facts.computed |= taken
            .windows(2)
            .any(|pair| pair[0].0 == pair[1].0 && pair[0].1.end > pair[1].1.start);
        Ok(EncryptedRows {
            bytes: assemble(facts.params, segments)?,
            facts,
            count,
            origin: None,
        })
    }

    /// The same rows, of which no longer stands that a bootstrap behind them may have failed: for a caller who counts each of those bootstraps himself, once,
    /// where programs run on each other's results and each would count all that came before.
    #[must_use]
    pub fn with_failures_counted(mut self) -> EncryptedRows {
        self.facts.noise.log2_failure = None;
        self
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Never: a column has rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The parameter set.
    #[must_use]
    pub fn params(&self) -> &'static ParamSet {
        self.facts.params
    }

    /// The start of the tag of the client key; `None` where nobody states it.
    #[must_use]
    pub fn key_tag(&self) -> Option<KeyTagStart> {
        self.facts.tag
    }

    /// The encoding of their messages; `None` where nobody states it.
    #[must_use]
    pub fn encoding(&self) -> Option<Encoding> {
        self.facts.encoding
    }

    /// What is stated of the noise of the noisiest row.
    #[must_use]
    pub fn noise(&self) -> StatedNoise {
        self.facts.noise
    }

    /// Whether errors of rows may depend on each other, as those of results do.
    #[must_use]
    pub fn is_computed(&self) -> bool {
        self.facts.computed
    }

    /// log2 of the probability that decrypting a row gives a wrong number, because of its noise or of a bootstrap behind it; 0 where its
    /// noise is not stated.
    #[must_use]
    pub fn log2_failure(&self) -> f64 {
        log2_failure(None, self.facts.encoding, self.facts.noise)
    }

    /// Decrypts all rows if the failure probability of each is at most 2^[`MAX_LOG2_FAILURE`].
    ///
    /// # Errors
    /// Those of [`EncryptedRows::decrypt_above`].
    pub fn decrypt(&self, client: &ClientKey) -> Result<Vec<i64>, SessionError> {
        self.decrypt_above(client, MAX_LOG2_FAILURE, &Progress::none())
    }

    /// Decrypts all rows, over the whole torus ([`Encoding::outputs`]), up to another failure probability of a row, given by its base-2 logarithm: 0 takes
    /// anything. Whoever sees which results of a high probability are wrong learns something about the key: keep them to yourself.
    ///
    /// # Errors
    /// [`TfheError::ParamsMismatch`] and [`TfheError::KeyMismatch`] for rows of another set or key, [`TfheError::EncodingMismatch`] where
    /// no encoding is stated, [`TfheError::FailureProbability`], [`TfheError::NotEncrypted`] for rows that come without a mask, or a key of
    /// zeros, [`TfheError::Cancelled`].
    pub fn decrypt_above(
        &self,
        client: &ClientKey,
        max_log2_failure: f64,
        progress: &Progress,
    ) -> Result<Vec<i64>, SessionError> {
        let encoding = self
            .facts
            .encoding
            .ok_or_else(|| TfheError::EncodingMismatch {
                expected: "an integer".to_owned(),
                found: "none".to_owned(),
            })?;
        let log2 = self.log2_failure();
        check_decryption(client, self.facts.tag, log2, max_log2_failure)?;
        let column = Column::new(self.facts.params, &self.bytes)?;
        let segments = column.header().segments();
        // Each chunk once, whatever number of segments it has.
        let mut chunks: BTreeMap<u64, usize> = BTreeMap::new();
        for (number, segment) in segments.iter().enumerate() {
            chunks.entry(segment.offset).or_insert(number);
        }
        let chunks: Vec<_> = chunks.into_iter().collect();
        let mut decrypted = BTreeMap::new();
        // A few chunks of each thread at a time, so that a cancellation is seen.
        for batch in chunks.chunks(4 * rayon::current_num_threads()) {
            progress.check().map_err(|_| TfheError::Cancelled)?;
            let batch = batch.par_iter().map(|(offset, number)| {
                let chunk = column.chunk_of(*number)?;
                let numbers = Zeroizing::new(client.decrypt_chunk(&chunk, encoding)?);
                Ok((*offset, numbers))
            });
            decrypted.extend(batch.collect::<Result<Vec<_>, TfheError>>()?);
            progress.report("decrypt", decrypted.len() as u64, chunks.len() as u64);
        }
        let mut numbers = Vec::with_capacity(self.count as usize);
        for segment in segments {
            let of_chunk = decrypted.get(&segment.offset);
            let rows = of_chunk.and_then(|chunk| chunk.get(segment.rows_in_chunk()));
            numbers.extend_from_slice(rows.unwrap_or_default());
        }
        Ok(numbers)
    }

    /// The rows with at least this noise, whatever was stated of them.
    pub(super) fn with_noise_of_at_least(mut self, noise: &Noise) -> EncryptedRows {
        let least = noise.stated(self.facts.params);
        let stated = &mut self.facts.noise;
        stated.log2_variance = stated
            .log2_variance
            .zip(least.log2_variance)
            .map(|(stated, least)| stated.max(least));
        let failures = stated.log2_failure.into_iter().chain(least.log2_failure);
        stated.log2_failure = failures.reduce(f64::max);
        self
    }

    /// The column in memory.
    pub(super) fn column(&self) -> Result<Column<'_>, TfheError> {
        Column::new(self.facts.params, &self.bytes)
    }
}
