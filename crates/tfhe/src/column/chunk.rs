//! Chunks in memory.

use std::ops::Range;

use crate::TfheError;
use crate::bits;
use crate::glwe;
use crate::lwe::{self, words_from_bytes};
use crate::modulus::{Goldilocks, Modulus, Torus32};
use crate::params::{ModulusKind, ParamSet};
use crate::seeded::{MaskSeed, SEED_BYTES};
use crate::with_modulus;

use super::form::{ColumnForm, chunk_bytes};
use super::noise::{packed_width, seeded_width};
use super::pack::packed_bytes;

/// The rows of a chunk. Masks that rows share are there once: expanded from their seed, or switched back to the ciphertext modulus.
#[derive(Clone, Debug)]
pub struct Chunk {
    params: ParamSet,
    words: Words,
}

/// The rows, over the set's modulus.
#[derive(Clone, Debug)]
pub(super) enum Words {
    Torus32(Rows<Torus32>),
    Goldilocks(Rows<Goldilocks>),
}

/// The rows, over a modulus.
#[derive(Clone, Debug)]
pub(super) struct Rows<M: Modulus> {
    pub(super) count: usize,
    pub(super) layout: Layout<M>,
}

/// Where the words of rows come from.
#[derive(Clone, Debug)]
pub(super) enum Layout<M: Modulus> {
    /// k·N masks, which all rows share, then a body a row: the beginning of a GLWE sample.
    Shared(Vec<M::Word>),
    /// The seed of a mask a row, and the bodies.
    Seeded(MaskSeed, Vec<M::Word>),
    /// n + 1 words a row.
    Samples(Vec<M::Word>),
}

/// Evaluates an expression in which a name stands for the rows, whatever their modulus.
macro_rules! with_rows {
    ($words:expr, $rows:ident => $body:expr) => {
        match $words {
            Words::Torus32($rows) => $body,
            Words::Goldilocks($rows) => $body,
        }
    };
}

/// Refuses bytes that are not as many as a chunk of this form and of this many rows has.
fn check_length(
    params: &ParamSet,
    form: ColumnForm,
    bytes: &[u8],
    rows: usize,
) -> Result<(), TfheError> {
    let expected = chunk_bytes(params, form, rows)?;
    if bytes.len() == expected {
        return Ok(());
    }
    Err(TfheError::Length {
        what: form.chunk(),
        params: params.name,
        expected: expected as u64,
        found: bytes.len() as u64,
    })
}

pub(super) fn check_range(rows: &Range<usize>, of: usize) -> Result<(), TfheError> {
    if rows.start <= rows.end && rows.end <= of {
        return Ok(());
    }
    Err(TfheError::Rows {
        rows: rows.clone(),
        of,
    })
}

/// Refuses room of another size than that of this many LWE samples.
fn check_room(params: &ParamSet, samples: usize, out: &[u8]) -> Result<(), TfheError> {
    let expected = samples * params.lwe_bytes();
    if out.len() == expected {
        return Ok(());
    }
    Err(TfheError::Length {
        what: "the room for expanded rows",
        params: params.name,
        expected: expected as u64,
        found: out.len() as u64,
    })
}

/// Writes some rows of a chunk as LWE samples, little-endian bytes ((n+1)·w each), into `out`, which has room for just these. For rows in several
/// calls make a [`Chunk`], which keeps the masks.
///
/// # Errors
/// Those of [`Chunk::new`], as far as these rows depend on the bytes, and of [`Chunk::expand`].
pub fn expand(
    params: &ParamSet,
    form: ColumnForm,
    bytes: &[u8],
    rows_in_chunk: usize,
    rows: Range<usize>,
    out: &mut [u8],
) -> Result<(), TfheError> {
    if form != ColumnForm::Expanded {
        return Chunk::new(params, form, bytes, rows_in_chunk)?.expand(rows, out);
    }
    check_length(params, form, bytes, rows_in_chunk)?;
    check_range(&rows, rows_in_chunk)?;
    check_room(params, rows.len(), out)?;
    let of_rows = &bytes[rows.start * params.lwe_bytes()..rows.end * params.lwe_bytes()];
    // Words that are not below the modulus would pass from here into everything.
    with_modulus!(params.modulus, M => {
        words_from_bytes::<M>("an LWE sample", params, of_rows, rows.len() * params.lwe_words())?;
    });
    out.copy_from_slice(of_rows);
    Ok(())
}

impl Chunk {
    /// Reads a chunk of `rows` rows.
    ///
    /// # Errors
    /// [`TfheError::ChunkRows`], [`TfheError::NoForm`]; [`TfheError::Length`] for other bytes than [`chunk_bytes`];
    /// [`TfheError::NotCanonical`] for a word that is not below the modulus; [`TfheError::Format`] for bits after the last word.
    pub fn new(
        params: &ParamSet,
        form: ColumnForm,
        bytes: &[u8],
        rows: usize,
    ) -> Result<Chunk, TfheError> {
        check_length(params, form, bytes, rows)?;
        let words = match params.modulus {
            ModulusKind::Torus32 => Words::Torus32(Rows::read(params, form, bytes, rows)?),
            ModulusKind::Goldilocks => Words::Goldilocks(Rows::read(params, form, bytes, rows)?),
        };
        Ok(Chunk {
            params: *params,
            words,
        })
    }

    /// The parameter set.
    #[must_use]
    pub fn params(&self) -> &ParamSet {
        &self.params
    }

    /// How many rows it has.
    #[must_use]
    pub fn rows(&self) -> usize {
        with_rows!(&self.words, rows => rows.count)
    }

    /// Whether its rows have masks in common, as those of seeded and packed chunks of a set for wide functions have.
    #[must_use]
    pub fn shares_masks(&self) -> bool {
        with_rows!(&self.words, rows => matches!(rows.layout, Layout::Shared(_)))
    }

    /// A chunk of the first rows of a GLWE sample: k·N masks, then a body a row, words of the set's modulus.
    ///
    /// # Errors
    /// [`TfheError::ModulusMismatch`] unless that is the Goldilocks prime; [`TfheError::NoForm`] for a set without wide functions;
    /// [`TfheError::ChunkRows`]; [`TfheError::NotCanonical`].
    pub fn from_glwe(params: &ParamSet, words: Vec<u64>) -> Result<Chunk, TfheError> {
        if params.modulus != ModulusKind::Goldilocks {
            return Err(TfheError::ModulusMismatch(params.name));
        }
        let rows = words.len().saturating_sub(params.extracted_dimension());
        chunk_bytes(params, ColumnForm::Packed, rows)?;
        if let Some(index) = words.iter().position(|w| !Goldilocks::is_canonical(*w)) {
            let (what, index) = ("a GLWE sample", index as u64);
            return Err(TfheError::NotCanonical { what, index });
        }
        let layout = Layout::Shared(words);
        Ok(Chunk {
            params: *params,
            words: Words::Goldilocks(Rows {
                count: rows,
                layout,
            }),
        })
    }

    /// The words that [`Chunk::from_glwe`] takes, where rows share masks over the Goldilocks prime.
    #[must_use]
    pub fn glwe(&self) -> Option<&[u64]> {
        match &self.words {
            Words::Goldilocks(Rows {
                layout: Layout::Shared(words),
                ..
            }) => Some(words),
            _ => None,
        }
    }

    /// The first rows of a chunk.
    ///
    /// # Errors
    /// [`TfheError::Rows`] for more than it has; [`TfheError::NoForm`] for a chunk whose rows do not share masks over the Goldilocks prime;
    /// [`TfheError::ChunkRows`] for none.
    pub fn leading(self, rows: usize) -> Result<Chunk, TfheError> {
        check_range(&(0..rows), self.rows())?;
        let words = self.glwe().ok_or(TfheError::NoForm {
            form: "shared",
            params: self.params.name,
        })?;
        let words = words.get(..self.params.extracted_dimension() + rows);
        Chunk::from_glwe(&self.params, words.unwrap_or_default().to_vec())
    }

    pub(super) fn words(&self) -> &Words {
        &self.words
    }

    /// Writes some rows as LWE samples, little-endian bytes ((n+1)·w each), into `out`, which has room for just these.
    ///
    /// # Errors
    /// [`TfheError::Rows`] for rows beyond the chunk, [`TfheError::Length`] for other room.
    pub fn expand(&self, rows: Range<usize>, out: &mut [u8]) -> Result<(), TfheError> {
        check_range(&rows, self.rows())?;
        check_room(&self.params, rows.len(), out)?;
        let samples = rows.zip(out.chunks_exact_mut(self.params.lwe_bytes()));
        with_rows!(&self.words, of_chunk => {
            let mut sample = Vec::new();
            sample.resize_with(self.params.lwe_words(), Default::default);
            for (row, out) in samples {
                of_chunk.sample(&self.params, row, &mut sample);
                out.copy_from_slice(bytemuck::cast_slice(&sample));
            }
        });
        Ok(())
    }

    /// The sum of some rows as an LWE sample, (n+1)·w bytes: one row for a range of one, a sample of 0 without mask and noise for none.
    /// Where rows share masks it takes as long for all of them as for one.
    ///
    /// # Errors
    /// [`TfheError::Rows`] for rows beyond the chunk.
    pub fn sum(&self, rows: Range<usize>) -> Result<Vec<u8>, TfheError> {
        check_range(&rows, self.rows())?;
        Ok(with_rows!(&self.words, of_chunk => {
            bytemuck::cast_slice(&of_chunk.sum(&self.params, rows)).to_vec()
        }))
    }

    /// Adds another chunk, row by row: as many operations as a chunk has words, whatever its rows.
    ///
    /// # Errors
    /// [`TfheError::ParamsMismatch`] for a chunk of another set, [`TfheError::Rows`] for one of another number of rows.
    pub fn add_assign(&mut self, other: &Chunk) -> Result<(), TfheError> {
        self.combine(
            other,
            lwe::add_assign::<Torus32>,
            lwe::add_assign::<Goldilocks>,
        )
    }

    /// Takes another chunk off, row by row.
    ///
    /// # Errors
    /// Those of [`Chunk::add_assign`].
    pub fn sub_assign(&mut self, other: &Chunk) -> Result<(), TfheError> {
        self.combine(
            other,
            lwe::sub_assign::<Torus32>,
            lwe::sub_assign::<Goldilocks>,
        )
    }

    /// Multiplies all rows by an integer.
    pub fn mul_assign(&mut self, factor: i32) {
        match &mut self.words {
            Words::Torus32(rows) => lwe::mul_assign::<Torus32>(rows.all(&self.params), factor),
            Words::Goldilocks(rows) => {
                lwe::mul_assign::<Goldilocks>(rows.all(&self.params), factor);
            }
        }
    }

    fn combine(
        &mut self,
        other: &Chunk,
        of_32_bits: fn(&mut [u32], &[u32]),
        of_64_bits: fn(&mut [u64], &[u64]),
    ) -> Result<(), TfheError> {
        if self.params != other.params {
            return Err(TfheError::ParamsMismatch {
                what: "the chunk",
                expected: self.params.name.to_owned(),
                found: other.params.name.to_owned(),
            });
        }
        if self.rows() != other.rows() {
            return Err(TfheError::Rows {
                rows: 0..self.rows(),
                of: other.rows(),
            });
        }
        match (&mut self.words, &other.words) {
            (Words::Torus32(own), Words::Torus32(other)) => {
                own.combine(&self.params, other, of_32_bits);
            }
            (Words::Goldilocks(own), Words::Goldilocks(other)) => {
                own.combine(&self.params, other, of_64_bits);
            }
            _ => unreachable!("chunks of one parameter set have one modulus"),
        }
        Ok(())
    }

    /// The bytes of the packed form, where rows share masks: what a seeded or packed chunk of a set for wide functions is, and what sums of
    /// them are. `None` where each row has a mask of its own; such rows take a bootstrapping key to pack.
    ///
    /// Sums of packed chunks are packed without any loss. So packed chunks whose rows do not overlap merge into one by a
    /// sum: rows that are appended to a chunk, say. Each must have a body for every row of the result, messages of 0 in those
    /// that are not its own, and brings its noise to all rows.
    #[must_use]
    pub fn packed(&self) -> Option<Vec<u8>> {
        with_rows!(&self.words, rows => rows.packed(&self.params))
    }
}

impl<M: Modulus> Rows<M> {
    /// From bytes of the right length.
    fn read(
        params: &ParamSet,
        form: ColumnForm,
        bytes: &[u8],
        count: usize,
    ) -> Result<Rows<M>, TfheError> {
        let masks = params.extracted_dimension();
        let layout = match form {
            ColumnForm::Seeded => {
                let (seed, bodies) = seed_of(bytes, form)?;
                let width = seeded_width(params);
                if params.is_wide() {
                    let mut words = Vec::with_capacity(masks + count);
                    words.resize(masks, M::Word::default());
                    seed.expand_chunk::<M>(0, &mut words);
                    read_words::<M>(form, bodies, width, count, &mut words)?;
                    Layout::Shared(words)
                } else {
                    let mut words = Vec::with_capacity(count);
                    read_words::<M>(form, bodies, width, count, &mut words)?;
                    Layout::Seeded(seed, words)
                }
            }
            ColumnForm::Packed => {
                let width = packed_width(params).ok_or(TfheError::NoForm {
                    form: form.name(),
                    params: params.name,
                })?;
                let mut words = Vec::with_capacity(masks + count);
                read_words::<M>(form, bytes, width, masks + count, &mut words)?;
                Layout::Shared(words)
            }
            ColumnForm::Expanded => {
                let words = count * params.lwe_words();
                Layout::Samples(words_from_bytes::<M>(form.chunk(), params, bytes, words)?)
            }
        };
        Ok(Rows { count, layout })
    }

    /// Writes the sample of a row, n + 1 words.
    pub(super) fn sample(&self, params: &ParamSet, row: usize, out: &mut [M::Word]) {
        match &self.layout {
            Layout::Shared(words) => glwe::sample_extract::<M, _>(params, words, row, out, |w| w),
            Layout::Seeded(seed, bodies) => {
                let (mask, body) = out.split_at_mut(params.lwe_dimension);
                seed.expand_chunk::<M>(row as u64, mask);
                body[0] = bodies[row];
            }
            Layout::Samples(words) => {
                let start = row * params.lwe_words();
                out.copy_from_slice(&words[start..start + params.lwe_words()]);
            }
        }
    }

    /// Whether the mask of some row is zero, so that everybody can read its message.
    pub(super) fn has_trivial_row(&self, params: &ParamSet) -> bool {
        let zero = M::Word::default();
        let is_trivial = |mask: &[M::Word]| mask.iter().all(|word| *word == zero);
        match &self.layout {
            Layout::Shared(words) => is_trivial(&words[..params.extracted_dimension()]),
            Layout::Seeded(..) => false,
            Layout::Samples(words) => words
                .chunks_exact(params.lwe_words())
                .any(|sample| is_trivial(&sample[..params.lwe_dimension])),
        }
    }

    /// The sample of the sum of some rows.
    fn sum(&self, params: &ParamSet, rows: Range<usize>) -> Vec<M::Word> {
        let mut sum = vec![M::Word::default(); params.lwe_words()];
        if let Layout::Shared(words) = &self.layout {
            sum_shared::<M>(params, words, rows, &mut sum);
            return sum;
        }
        let mut sample = vec![M::Word::default(); params.lwe_words()];
        for row in rows {
            self.sample(params, row, &mut sample);
            lwe::add_assign::<M>(&mut sum, &sample);
        }
        sum
    }

    /// The bytes of the packed form, where the rows share masks.
    fn packed(&self, params: &ParamSet) -> Option<Vec<u8>> {
        match &self.layout {
            Layout::Shared(words) => packed_bytes::<M>(params, words).ok(),
            Layout::Seeded(..) | Layout::Samples(_) => None,
        }
    }

    /// All words; the rows are linear functions of them.
    fn all(&mut self, params: &ParamSet) -> &mut [M::Word] {
        match self.layout {
            Layout::Shared(ref mut words) => words,
            Layout::Seeded(..) | Layout::Samples(_) => self.samples(params),
        }
    }

    /// The samples of all rows, which replace what the rows came from.
    fn samples(&mut self, params: &ParamSet) -> &mut Vec<M::Word> {
        if !matches!(self.layout, Layout::Samples(_)) {
            let mut samples = vec![M::Word::default(); self.count * params.lwe_words()];
            for (row, sample) in samples.chunks_exact_mut(params.lwe_words()).enumerate() {
                self.sample(params, row, sample);
            }
            self.layout = Layout::Samples(samples);
        }
        match &mut self.layout {
            Layout::Shared(words) | Layout::Seeded(_, words) | Layout::Samples(words) => words,
        }
    }

    /// Applies `of_words` to the words of two chunks of as many rows.
    fn combine(
        &mut self,
        params: &ParamSet,
        other: &Rows<M>,
        of_words: fn(&mut [M::Word], &[M::Word]),
    ) {
        if let (Layout::Shared(own), Layout::Shared(other)) = (&mut self.layout, &other.layout) {
            of_words(own, other);
            return;
        }
        let own = self.samples(params).chunks_exact_mut(params.lwe_words());
        let mut sample = vec![M::Word::default(); params.lwe_words()];
        for (row, own) in own.enumerate() {
            other.sample(params, row, &mut sample);
            of_words(own, &sample);
        }
    }
}

/// The seed at the head of a chunk, and what follows.
fn seed_of(bytes: &[u8], form: ColumnForm) -> Result<(MaskSeed, &[u8]), TfheError> {
    let Some((seed, rest)) = bytes.split_first_chunk::<SEED_BYTES>() else {
        return Err(TfheError::Format(format!("{} has no seed", form.chunk())));
    };
    Ok((MaskSeed::from_bytes(*seed), rest))
}

/// Appends words that were rounded to `width` bits.
fn read_words<M: Modulus>(
    form: ColumnForm,
    bytes: &[u8],
    width: u32,
    count: usize,
    words: &mut Vec<M::Word>,
) -> Result<(), TfheError> {
    bits::read(bytes, width, count, form.chunk(), |value| {
        words.push(M::encode(value.cast_signed(), width));
    })
}

/// The sample of the sum of rows a to b-1 of a GLWE sample: coefficient j of the mask of row i is coefficient i-j of the
/// mask polynomial, negated beyond X^0, so that the sum over i is a difference of two prefix sums for each j.
fn sum_shared<M: Modulus>(
    params: &ParamSet,
    words: &[M::Word],
    rows: Range<usize>,
    out: &mut [M::Word],
) {
    let n = params.ring_degree;
    let (masks, bodies) = words.split_at(params.extracted_dimension());
    let mut prefix = vec![M::Word::default(); n + 1];
    for (mask, out) in masks.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
        for (index, word) in mask.iter().enumerate() {
            prefix[index + 1] = M::add(prefix[index], *word);
        }
        // The sum of the coefficients below `end`, or, where that is below X^0, minus those from there on.
        let below = |end: usize, j: usize| match end.checked_sub(j) {
            Some(end) => prefix[end],
            None => M::sub(prefix[n], prefix[end + n - j]),
        };
        for (j, out) in out.iter_mut().enumerate() {
            *out = M::sub(below(rows.end, j), below(rows.start, j));
        }
    }
    out[params.extracted_dimension()] = bodies[rows]
        .iter()
        .fold(M::Word::default(), |sum, body| M::add(sum, *body));
}
