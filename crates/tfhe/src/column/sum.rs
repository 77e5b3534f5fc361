//! Sums of rows of many chunks.

use std::ops::Range;

use crate::TfheError;
use crate::lwe::{self, words_from_bytes};
use crate::modulus::{Goldilocks, Modulus, Torus32};
use crate::params::{ModulusKind, ParamSet};

use super::chunk::Chunk;

/// A sum of rows of a column, whose chunks come one after the other. Where rows share masks, chunks of which the same rows are wanted are
/// added up before these rows are, so that a chunk costs its masks and one addition for each of its words.
#[derive(Clone, Debug)]
pub struct RowSum {
    params: ParamSet,
    sum: Vec<u8>,
    /// A sum of chunks, and which of its rows are wanted.
    chunks: Option<(Chunk, Range<usize>)>,
}

impl RowSum {
    /// The sum of no rows: a sample of 0 without mask and noise.
    #[must_use]
    pub fn new(params: &ParamSet) -> RowSum {
        RowSum {
            params: *params,
            sum: vec![0; params.lwe_bytes()],
            chunks: None,
        }
    }

    /// Adds rows of a chunk.
    ///
    /// # Errors
    /// [`TfheError::ParamsMismatch`] for a chunk of another set, [`TfheError::Rows`] for rows beyond the chunk.
    pub fn add(&mut self, chunk: &Chunk, rows: Range<usize>) -> Result<(), TfheError> {
        if *chunk.params() != self.params {
            return Err(TfheError::ParamsMismatch {
                what: "the chunk",
                expected: self.params.name.to_owned(),
                found: chunk.params().name.to_owned(),
            });
        }
        if !chunk.shares_masks() {
            return self.add_samples(&chunk.sum(rows)?);
        }
        if let Some((sum, of)) = &mut self.chunks
            && (*of == rows && sum.rows() == chunk.rows())
        {
            return sum.add_assign(chunk);
        }
        super::chunk::check_range(&rows, chunk.rows())?;
        self.end_chunks()?;
        self.chunks = Some((chunk.clone(), rows));
        Ok(())
    }

    /// Adds LWE samples, one after the other.
    ///
    /// # Errors
    /// [`TfheError::Length`] for bytes that are no whole number of samples; [`TfheError::NotCanonical`]. The sum stays as it was.
    pub fn add_samples(&mut self, samples: &[u8]) -> Result<(), TfheError> {
        match self.params.modulus {
            ModulusKind::Torus32 => self.add_words::<Torus32>(samples),
            ModulusKind::Goldilocks => self.add_words::<Goldilocks>(samples),
        }
    }

    fn add_words<M: Modulus>(&mut self, samples: &[u8]) -> Result<(), TfheError> {
        let count = samples.len() / self.params.lwe_bytes() * self.params.lwe_words();
        let words = words_from_bytes::<M>("an LWE sample", &self.params, samples, count)?;
        let mut sum: Vec<M::Word> = bytemuck::pod_collect_to_vec(&self.sum);
        for sample in words.chunks_exact(self.params.lwe_words()) {
            lwe::add_assign::<M>(&mut sum, sample);
        }
        self.sum.copy_from_slice(bytemuck::cast_slice(&sum));
        Ok(())
    }

    fn end_chunks(&mut self) -> Result<(), TfheError> {
        match self.chunks.take() {
            Some((chunk, rows)) => self.add_samples(&chunk.sum(rows)?),
            None => Ok(()),
        }
    }

    /// The sum as an LWE sample, (n+1)·w bytes.
    ///
    /// # Errors
    /// None that [`RowSum::add`] has not given.
    pub fn finish(mut self) -> Result<Vec<u8>, TfheError> {
        self.end_chunks()?;
        Ok(self.sum)
    }
}
