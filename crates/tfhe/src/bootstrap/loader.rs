//! The loader of an expanded bootstrapping key.

use std::marker::PhantomData;

use toroid_ring::goldilocks;
use toroid_ring::simd::SimdLevel;

use crate::TfheError;
use crate::arithmetic::Arithmetic;
use crate::ggsw::GgswList;
use crate::modulus::Modulus;
use crate::params::StageParams;

use super::BootstrappingKey;

/// What becomes of the rows of a bootstrapping key, which come in order, some at a time.
pub trait RowReceiver<M: Modulus> {
    /// What they are together.
    type Key;
    /// Why they are not taken.
    type Error: From<TfheError>;

    /// Takes rows of (k+1)·N words in the coefficient domain, the first of which is row `first` of the key.
    ///
    /// # Errors
    /// The receiver's own.
    fn coefficients(&mut self, first: usize, rows: &[M::Word]) -> Result<(), Self::Error>;

    /// Takes rows in the canonical form (BKNTT), the first of which is row `first` of the key; they are destroyed.
    ///
    /// # Errors
    /// The receiver's own.
    fn canonical(&mut self, first: usize, rows: &mut [u64]) -> Result<(), Self::Error>;

    /// The key, once all rows are there.
    ///
    /// # Errors
    /// The receiver's own.
    fn finish(self) -> Result<Self::Key, Self::Error>;
}

impl<M: Modulus, A: Arithmetic<M>> RowReceiver<M> for BootstrappingKey<M, A> {
    type Key = Self;
    type Error = TfheError;

    fn coefficients(&mut self, first: usize, rows: &[M::Word]) -> Result<(), TfheError> {
        self.samples.load_rows(first, rows);
        Ok(())
    }

    fn canonical(&mut self, first: usize, rows: &mut [u64]) -> Result<(), TfheError> {
        self.samples.load_canonical_rows(first, rows);
        Ok(())
    }

    fn finish(mut self) -> Result<Self, TfheError> {
        self.samples.finish();
        Ok(self)
    }
}

/// Takes a bootstrapping key in order, as canonical bytes (BKNTT of Table 3) or as rows of coefficients, and converts it as
/// it comes, so that only the loaded form exists in memory.
pub type BootstrappingKeyLoader<M, A> = RowLoader<M, BootstrappingKey<M, A>>;

/// Takes a bootstrapping key in order, as canonical bytes (BKNTT of Table 3) or as rows of coefficients, and hands its rows
/// to a receiver as they come.
pub struct RowLoader<M: Modulus, R> {
    params: StageParams,
    receiver: R,
    /// Canonical bytes taken, or those that the coefficients taken stand for.
    filled: usize,
    /// Canonical words of rows that are not loaded yet; the first is at the last multiple of its length before `filled`.
    staged: Vec<u64>,
    modulus: PhantomData<M>,
}

/// Rows that the loader hands on at once, so that they can be converted side by side.
const STAGED_ROWS: usize = 32;

impl<M: Modulus, A: Arithmetic<M>> RowLoader<M, BootstrappingKey<M, A>> {
    /// Room for the key of a parameter set, with the kernels of `simd`.
    ///
    /// # Errors
    /// [`TfheError::ModulusMismatch`], or the system's refusal of memory.
    pub fn new(params: &StageParams, simd: SimdLevel) -> Result<Self, TfheError> {
        let samples = GgswList::new(params, params.lwe_dimension, simd)?;
        Self::with_receiver(params, BootstrappingKey { samples })
    }

    /// Room for the unrolled key of a parameter set, whose rows are those of [`StageParams::unrolled`].
    ///
    /// # Errors
    /// [`TfheError::ModulusMismatch`], or the system's refusal of memory.
    pub fn unrolled(params: &StageParams, simd: SimdLevel) -> Result<Self, TfheError> {
        let samples = GgswList::unrolled(params, simd)?;
        Self::with_receiver(&params.unrolled(), BootstrappingKey { samples })
    }
}

impl<M: Modulus, R: RowReceiver<M>> RowLoader<M, R> {
    /// For the key of a parameter set.
    ///
    /// # Errors
    /// [`TfheError::ModulusMismatch`].
    pub fn with_receiver(params: &StageParams, receiver: R) -> Result<Self, TfheError> {
        if params.modulus != M::KIND {
            return Err(TfheError::ModulusMismatch(params.name));
        }
        Ok(RowLoader {
            params: *params,
            receiver,
            filled: 0,
            staged: Vec::new(),
            modulus: PhantomData,
        })
    }

    /// The dimensions and gadgets of the key.
    pub(crate) fn params(&self) -> &StageParams {
        &self.params
    }

    /// Takes the next canonical bytes; refused ones do not count.
    ///
    /// # Errors
    /// [`TfheError::Length`] for bytes beyond the end, or after coefficients that did not end between two steps of
    /// conversion; [`TfheError::NotCanonical`] for a word not below p; the receiver's.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), R::Error> {
        if bytes.is_empty() {
            return Ok(());
        }
        let params = self.params;
        let end = self.filled + bytes.len();
        let staged = STAGED_ROWS * params.glwe_words();
        let after_coefficients = self.staged.is_empty() && !self.filled.is_multiple_of(8 * staged);
        if end as u64 > params.ggsw_list_bytes() || after_coefficients {
            return Err(self.wrong_length(end as u64).into());
        }
        self.check(bytes)?;
        self.staged.resize(staged, 0);
        let mut rest = bytes;
        while !rest.is_empty() {
            let at = self.filled % (8 * self.staged.len());
            let (now, later) = rest.split_at(rest.len().min(8 * self.staged.len() - at));
            bytemuck::cast_slice_mut(&mut self.staged)[at..at + now.len()].copy_from_slice(now);
            self.filled += now.len();
            let complete = at + now.len() == 8 * self.staged.len()
                || self.filled as u64 == params.ggsw_list_bytes();
            if complete {
                self.load_staged(at + now.len())?;
            }
            rest = later;
        }
        if self.filled as u64 == params.ggsw_list_bytes() {
            self.staged = Vec::new();
        }
        Ok(())
    }

    /// Takes the next rows, each k mask polynomials and the body in the coefficient domain, (k+1)·N words; refused ones do
    /// not count.
    ///
    /// # Errors
    /// [`TfheError::Length`] for words beyond the end, for less than a whole row, and after bytes that end within one;
    /// [`TfheError::NotCanonical`] for a word that is not below q; the receiver's.
    pub fn write_coefficients(&mut self, rows: &[M::Word]) -> Result<(), R::Error> {
        let params = self.params;
        let row_words = params.glwe_words();
        let end = self.filled + 8 * rows.len();
        if end as u64 > params.ggsw_list_bytes()
            || !rows.len().is_multiple_of(row_words)
            || !self.filled.is_multiple_of(8 * STAGED_ROWS * row_words) && !self.staged.is_empty()
        {
            return Err(self.wrong_length(end as u64).into());
        }
        if let Some(index) = rows.iter().position(|word| !M::is_canonical(*word)) {
            return Err(self.not_canonical(self.filled / 8 + index).into());
        }
        // Bytes that follow start a batch of their own, or are refused.
        self.staged = Vec::new();
        for rows in rows.chunks(STAGED_ROWS * row_words) {
            self.receiver
                .coefficients(self.filled / (8 * row_words), rows)?;
            self.filled += 8 * rows.len();
        }
        Ok(())
    }

    /// Refuses words that are not canonical among those that `bytes` complete.
    fn check(&self, bytes: &[u8]) -> Result<(), TfheError> {
        let begun = self.filled % 8;
        let (head, whole) = bytes.split_at(bytes.len().min((8 - begun) % 8));
        if begun > 0 && begun + head.len() == 8 {
            let at = self.filled % (8 * self.staged.len()) / 8;
            let mut word = self.staged[at].to_ne_bytes();
            word[begun..].copy_from_slice(head);
            if u64::from_le_bytes(word) >= goldilocks::P {
                return Err(self.not_canonical(self.filled / 8));
            }
        }
        let mut words = whole
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        match words.position(|word| word >= goldilocks::P) {
            Some(index) => Err(self.not_canonical(self.filled.div_ceil(8) + index)),
            None => Ok(()),
        }
    }

    /// Hands on the first `bytes` staged bytes, whole rows that end at `filled`.
    fn load_staged(&mut self, bytes: usize) -> Result<(), R::Error> {
        let first = (self.filled - bytes) / (8 * self.params.glwe_words());
        self.receiver
            .canonical(first, &mut self.staged[..bytes / 8])
    }

    /// The key, once all bytes are there.
    ///
    /// # Errors
    /// [`TfheError::Length`] where bytes are missing; the receiver's.
    pub fn finish(self) -> Result<R::Key, R::Error> {
        if self.filled as u64 != self.params.ggsw_list_bytes() {
            return Err(self.wrong_length(self.filled as u64).into());
        }
        self.receiver.finish()
    }

    fn not_canonical(&self, index: usize) -> TfheError {
        TfheError::NotCanonical {
            what: "the bootstrapping key",
            index: index as u64,
        }
    }

    fn wrong_length(&self, found: u64) -> TfheError {
        TfheError::Length {
            what: "the bootstrapping key",
            params: self.params.name,
            expected: self.params.ggsw_list_bytes(),
            found,
        }
    }
}
