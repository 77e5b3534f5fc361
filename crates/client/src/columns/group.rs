//! Columns that are encrypted together, and bytes in which they share one head and one seed.

use std::borrow::Cow;

use rayon::prelude::*;
use toroid_isa::metadata::KeyTagStart;
use toroid_task::Progress;
use toroid_tfhe::column::{
    ColumnBytesBuilder, ColumnForm, ColumnGroup, GroupColumn, GroupSeed, rows_per_chunk,
};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::noise::StatedNoise;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::MaskSeed;
use toroid_tfhe::{ClientKey, TfheError};

use super::rows::{EncryptedRows, RowFacts};
use crate::session::{SessionError, tag_start};

/// Where the seeds of freshly encrypted chunks come from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    seed: MaskSeed,
    /// Number of the first chunk; the others follow it.
    first: u64,
}

fn facts(params: &'static ParamSet, encoding: Encoding, tag: Option<KeyTagStart>) -> RowFacts {
    RowFacts {
        params,
        encoding: Some(encoding),
        noise: StatedNoise::fresh(params),
        computed: false,
        tag,
    }
}

impl EncryptedRows {
    /// Encrypts columns together, on all cores, in the seeded form: their seeds come from one, so that
    /// [`EncryptedRows::together_to_bytes`] states no other.
    ///
    /// # Errors
    /// Those of [`EncryptedRows::encrypt`].
    pub fn encrypt_together(
        client: &ClientKey,
        columns: &[(Encoding, &[i64])],
        progress: &Progress,
    ) -> Result<Vec<EncryptedRows>, SessionError> {
        let params = ParamSet::by_id(client.params().id)
            .filter(|params| *params == client.params())
            .ok_or_else(|| {
                TfheError::Format("a column needs one of the documented parameter sets".to_owned())
            })?;
        let full = rows_per_chunk(params);
        // A few chunks of each thread at a time, so that a cancellation is seen.
        let batch = 4 * full * rayon::current_num_threads();
        let mut group = GroupSeed::generate(&mut Csprng::from_os()?);
        let total = columns
            .iter()
            .map(|(_, numbers)| numbers.len() as u64)
            .sum();
        let mut done = 0;
        let encrypt = |(encoding, numbers): &(Encoding, &[i64])| {
            let origin = Origin {
                seed: group.seed(),
                first: group.taken(),
            };
            let mut builder = ColumnBytesBuilder::new(params, numbers.len().div_ceil(full));
            for numbers in numbers.chunks(batch) {
                progress.check().map_err(|_| TfheError::Cancelled)?;
                let chunks: Vec<_> = numbers
                    .chunks(full)
                    .map(|numbers| (numbers, group.next_chunk()))
                    .collect();
                let chunks = chunks.into_par_iter().map(|(numbers, seed)| {
                    let mut rng = Csprng::from_os()?;
                    let chunk = client.encrypt_chunk_of(numbers, *encoding, seed, &mut rng)?;
                    Ok((numbers.len(), chunk))
                });
                for (count, chunk) in chunks.collect::<Result<Vec<_>, TfheError>>()? {
                    builder.push_chunk(ColumnForm::Seeded, count, &chunk)?;
                    done += count as u64;
                }
                progress.report("encrypt", done, total);
            }
            Ok(EncryptedRows {
                facts: facts(params, *encoding, Some(tag_start(client.tag()))),
                bytes: builder.finish()?,
                count: numbers.len() as u64,
                origin: Some(origin),
            })
        };
        columns.iter().map(encrypt).collect()
    }

    /// Columns that were encrypted together as bytes with one head and one seed ([`ColumnGroup`]), all of them or some, in any order; `None` where some were not
    /// encrypted with the others, or are no longer as they were encrypted.
    ///
    /// # Errors
    /// Those of [`ColumnGroup::to_bytes`].
    pub fn together_to_bytes(columns: &[&EncryptedRows]) -> Result<Option<Vec<u8>>, TfheError> {
        let Some((first, seed)) = columns
            .first()
            .and_then(|first| Some((first, first.origin?.seed)))
        else {
            return Ok(None);
        };
        let (params, tag) = (first.facts.params, first.facts.tag);
        let of_group = |rows: &&'_ EncryptedRows| {
            let (origin, encoding) = (rows.origin?, rows.facts.encoding?);
            let is_fresh = rows.facts == facts(params, encoding, tag);
            (origin.seed == seed && is_fresh).then_some((origin.first, encoding))
        };
        let mut group = Vec::with_capacity(columns.len());
        for rows in columns {
            let Some((first, encoding)) = of_group(rows) else {
                return Ok(None);
            };
            group.push(GroupColumn {
                encoding,
                rows: rows.count,
                first,
                bytes: Cow::Borrowed(&rows.bytes),
            });
        }
        let group = ColumnGroup {
            params,
            tag: tag.unwrap_or_default(),
            seed,
            columns: group,
        };
        group.to_bytes().map(Some)
    }

    /// The columns that [`EncryptedRows::together_to_bytes`] wrote.
    ///
    /// # Errors
    /// Those of [`ColumnGroup::from_bytes`].
    pub fn together_from_bytes(bytes: &[u8]) -> Result<Vec<EncryptedRows>, TfheError> {
        let ColumnGroup {
            params,
            tag,
            seed,
            columns,
        } = ColumnGroup::from_bytes(bytes)?;
        let tag = (tag != KeyTagStart::default()).then_some(tag);
        let columns = columns.into_iter().map(|column| EncryptedRows {
            facts: facts(params, column.encoding, tag),
            bytes: column.bytes.into_owned(),
            count: column.rows,
            origin: Some(Origin {
                seed,
                first: column.first,
            }),
        });
        Ok(columns.collect())
    }
}
