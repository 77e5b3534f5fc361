//! Packed chunks from samples.

use crate::TfheError;
use crate::arithmetic::Arithmetic;
use crate::bits;
use crate::bootstrap::Run;
use crate::lwe::words_from_bytes;
use crate::modulus::Modulus;
use crate::params::ParamSet;
use crate::wopbs::WopbsKey;

use super::form::{ColumnForm, chunk_bytes};
use super::noise::packed_width;

/// [`crate::any_key::AnyBootstrappingKey::pack_chunk`] for a set for wide functions.
pub(crate) fn pack<M: Modulus, A: Arithmetic<M>>(
    key: &WopbsKey<M, A>,
    samples: &[(usize, &[u8])],
    rows: usize,
    run: Run<'_>,
) -> Result<Vec<u8>, TfheError> {
    let params = key.params();
    chunk_bytes(params, ColumnForm::Packed, rows)?;
    let words = |(row, sample): &(usize, &[u8])| {
        if *row >= rows {
            return Err(TfheError::Rows {
                rows: *row..row.saturating_add(1),
                of: rows,
            });
        }
        words_from_bytes::<M>("an LWE sample", params, sample, params.lwe_words())
    };
    let parsed: Vec<_> = samples.iter().map(words).collect::<Result<_, _>>()?;
    let of_rows = samples.iter().zip(&parsed);
    let placed: Vec<_> = of_rows
        .map(|((row, _), words)| (*row, words.as_slice()))
        .collect();
    let mut packed = key.pack(&placed, run)?;
    packed.truncate(params.extracted_dimension() + rows);
    packed_bytes::<M>(params, &packed)
}

/// The bytes of a packed chunk of these words: k·N masks, then a body a row.
///
/// # Errors
/// [`TfheError::NoForm`].
pub(super) fn packed_bytes<M: Modulus>(
    params: &ParamSet,
    words: &[M::Word],
) -> Result<Vec<u8>, TfheError> {
    let form = ColumnForm::Packed;
    let width = packed_width(params).ok_or(TfheError::NoForm {
        form: form.name(),
        params: params.name,
    })?;
    let (masks, bodies) = words.split_at(params.extracted_dimension());
    let mut values = Vec::with_capacity(words.len());
    // Of each row, the sum of the errors of the mask words that its phase multiplies by key bits.
    let mut errors = vec![0; bodies.len()];
    let mut prefix = vec![0; params.ring_degree];
    for mask in masks.chunks_exact(params.ring_degree) {
        let mut sum = 0;
        for (word, prefix) in mask.iter().zip(&mut prefix) {
            let value = M::decode(*word, width);
            let error = M::sub(M::encode(value.cast_signed(), width), *word);
            sum += M::centered(error);
            *prefix = sum;
            values.push(value);
        }
        // Coefficients up to the row's are taken as they are, those above it negated.
        for (error, prefix) in errors.iter_mut().zip(&prefix) {
            *error += 2 * prefix - sum;
        }
    }
    for (body, error) in bodies.iter().zip(&errors) {
        let body = M::add(*body, M::from_signed(error / 2));
        values.push(M::decode(body, width));
    }
    let mut bytes = Vec::with_capacity(bits::bytes(words.len(), width));
    bits::write(values.into_iter(), width, &mut bytes);
    Ok(bytes)
}
