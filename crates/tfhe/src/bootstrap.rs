//! Programmable bootstrapping: modulus switch, blind rotation by CMux, sample extraction, key switch.
//!
//! One blind rotation step is `ACC += BK_i ⊡ (X^a_i·ACC - ACC)` (CMux of the platform paper's section 4.5 with d0 = ACC and
//! d1 = X^a_i·ACC), its products done by an [`Arithmetic`]. The key is read once, front to back.

use std::marker::PhantomData;
use std::ops::Range;
use std::panic::resume_unwind;
use std::slice::{ChunksExact, ChunksExactMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use rayon::prelude::*;
use toroid_ring::goldilocks;
use toroid_ring::simd::SimdLevel;

use crate::TfheError;
use crate::arithmetic::{Arithmetic, WordOf};
use crate::glwe;
use crate::key_switch::KeySwitchingKey;
use crate::lwe::check_words;
use crate::memory::Buffer;
use crate::modulus::{DigitField, Modulus, Words};
use crate::params::{ModulusSwitch, ParamSet};

/// A bootstrapping key, loaded for one [`Arithmetic`]: n GGSW samples, each of its rows of k+1 polynomials.
pub struct BootstrappingKey<M: Modulus, A: Arithmetic<M>> {
    params: ParamSet,
    arithmetic: A,
    simd: SimdLevel,
    rows: Buffer,
    /// Rotations to come that are left to one thread each: cores turned out to be busy.
    alone: AtomicUsize,
    modulus: PhantomData<M>,
}

/// Takes a bootstrapping key in order, as canonical bytes (BKNTT of Table 3) or as rows of coefficients, and converts it as
/// it comes, so that only the loaded form exists in memory.
pub struct BootstrappingKeyLoader<M: Modulus, A: Arithmetic<M>> {
    key: BootstrappingKey<M, A>,
    /// Canonical bytes taken, or those that the coefficients taken stand for.
    filled: usize,
    /// Canonical words of rows that are not loaded yet; the first is at the last multiple of its length before `filled`.
    staged: Vec<u64>,
}

/// Rows that the loader converts at once, side by side.
const STAGED_ROWS: usize = 32;

impl<M: Modulus, A: Arithmetic<M>> BootstrappingKeyLoader<M, A> {
    /// Room for the key of a parameter set, with the kernels of `simd`.
    ///
    /// # Errors
    /// [`TfheError::ModulusMismatch`], or the system's refusal of memory.
    pub fn new(params: &ParamSet, simd: SimdLevel) -> Result<Self, TfheError> {
        if params.modulus != M::KIND {
            return Err(TfheError::ModulusMismatch(params.name));
        }
        Ok(BootstrappingKeyLoader {
            key: BootstrappingKey::empty(params, simd)?,
            filled: 0,
            staged: Vec::new(),
        })
    }

    /// Takes the next canonical bytes; refused ones do not count.
    ///
    /// # Errors
    /// [`TfheError::Length`] for bytes beyond the end, or after coefficients that did not end between two steps of
    /// conversion; [`TfheError::NotCanonical`] for a word not below p.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), TfheError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let params = self.key.params;
        let end = self.filled + bytes.len();
        let staged = STAGED_ROWS * params.glwe_words();
        let after_coefficients = self.staged.is_empty() && !self.filled.is_multiple_of(8 * staged);
        if end as u64 > params.bootstrapping_key_bytes() || after_coefficients {
            return Err(self.wrong_length(end as u64));
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
                || self.filled as u64 == params.bootstrapping_key_bytes();
            if complete {
                self.load_staged(at + now.len());
            }
            rest = later;
        }
        if self.filled as u64 == params.bootstrapping_key_bytes() {
            self.staged = Vec::new();
        }
        Ok(())
    }

    /// Takes the next rows, each k mask polynomials and the body in the coefficient domain, (k+1)·N words; refused ones do
    /// not count.
    ///
    /// # Errors
    /// [`TfheError::Length`] for words beyond the end, for less than a whole row, and after bytes that end within one;
    /// [`TfheError::NotCanonical`] for a word that is not below q.
    pub fn write_coefficients(&mut self, rows: &[M::Word]) -> Result<(), TfheError> {
        let params = self.key.params;
        let row_words = params.glwe_words();
        let end = self.filled + 8 * rows.len();
        if end as u64 > params.bootstrapping_key_bytes()
            || !rows.len().is_multiple_of(row_words)
            || !self.filled.is_multiple_of(8 * STAGED_ROWS * row_words) && !self.staged.is_empty()
        {
            return Err(self.wrong_length(end as u64));
        }
        if let Some(index) = rows.iter().position(|word| !M::is_canonical(*word)) {
            return Err(self.not_canonical(self.filled / 8 + index));
        }
        // Bytes that follow start a batch of their own, or are refused.
        self.staged = Vec::new();
        for rows in rows.chunks(STAGED_ROWS * row_words) {
            self.key.load_rows(self.filled / (8 * row_words), rows);
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

    /// Converts the first `bytes` staged bytes, whole rows that end at `filled`.
    fn load_staged(&mut self, bytes: usize) {
        let key = &mut self.key;
        let row_words = key.params.glwe_words();
        let row_bytes = key.arithmetic.row_bytes();
        let at = (self.filled - bytes) / (8 * row_words) * row_bytes;
        let arithmetic = &key.arithmetic;
        key.rows.bytes_mut()[at..]
            .par_chunks_exact_mut(row_bytes)
            .zip(self.staged[..bytes / 8].par_chunks_exact_mut(row_words))
            .for_each_init(
                || vec![A::Scalar::default(); row_words],
                |scratch, (out, row)| arithmetic.load(row, scratch, out),
            );
    }

    /// The key, once all bytes are there.
    ///
    /// # Errors
    /// [`TfheError::Length`] where bytes are missing.
    pub fn finish(self) -> Result<BootstrappingKey<M, A>, TfheError> {
        if self.filled as u64 != self.key.params.bootstrapping_key_bytes() {
            return Err(self.wrong_length(self.filled as u64));
        }
        Ok(self.key)
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
            params: self.key.params.name,
            expected: self.key.params.bootstrapping_key_bytes(),
            found,
        }
    }
}

/// A LWE sample brought to exponents modulo 2N: those of the mask, then that of the body. All of them are multiples of
/// 2^`log2_slots`, so that a test vector has room for that many functions side by side.
pub(crate) fn modulus_switch<M: Modulus>(
    params: &ParamSet,
    sample: &[M::Word],
    log2_slots: u32,
) -> (Vec<usize>, usize) {
    let log2_order = params.ring_degree.trailing_zeros() + 1 - log2_slots;
    let shift = 64 - log2_order;
    let half = 1u64 << (shift - 1);
    let nearest = |word: u64| (word.wrapping_add(half) >> shift) as usize;
    let (mask, body) = sample.split_at(params.lwe_dimension);
    let mut exponents: Vec<usize> = mask.iter().map(|a| nearest(M::to_u64_torus(*a))).collect();
    let correction = match params.modulus_switch {
        ModulusSwitch::Nearest => 0,
        ModulusSwitch::MeanCompensated => {
            let errors: i128 = mask
                .iter()
                .zip(&exponents)
                .map(|(a, exponent)| {
                    let error = M::to_u64_torus(*a).wrapping_sub((*exponent as u64) << shift);
                    i128::from(error.cast_signed())
                })
                .sum();
            (errors >> 1) as i64
        }
    };
    // Down, not to the nearest: windows [-w/2, w/2) of a test vector are symmetric then.
    let body =
        (M::to_u64_torus(body[0]).wrapping_sub(correction.cast_unsigned()) >> shift) as usize;
    for exponent in &mut exponents {
        *exponent <<= log2_slots;
    }
    (exponents, body << log2_slots)
}

/// Loads rows of k+1 polynomials in the coefficient domain into the first of `out`, in parallel.
pub(crate) fn load_rows<M: Modulus, A: Arithmetic<M>>(
    arithmetic: &A,
    simd: SimdLevel,
    params: &ParamSet,
    rows: &[M::Word],
    out: &mut [u8],
) {
    let row_words = params.glwe_words();
    out.par_chunks_exact_mut(arithmetic.row_bytes())
        .zip(rows.par_chunks_exact(row_words))
        .for_each_init(
            || (vec![0; row_words], vec![A::Scalar::default(); row_words]),
            |(row, scratch), (out, words)| {
                glwe::lift::<M>(simd, row, words);
                arithmetic.load_coefficients(row, scratch, out);
            },
        );
}

impl<M: Modulus, A: Arithmetic<M>> BootstrappingKey<M, A> {
    /// Room for the n GGSW samples of a set, with the kernels of `simd`; zeroes until they are loaded.
    pub(crate) fn empty(params: &ParamSet, simd: SimdLevel) -> Result<Self, TfheError> {
        let arithmetic = A::new(params, simd)?;
        let bytes = params.lwe_dimension * params.ggsw_rows() * arithmetic.row_bytes();
        Ok(BootstrappingKey {
            params: *params,
            arithmetic,
            simd,
            rows: Buffer::new(bytes / 8)?,
            alone: AtomicUsize::new(0),
            modulus: PhantomData,
        })
    }

    /// The kernels that it was loaded for.
    pub(crate) fn simd(&self) -> SimdLevel {
        self.simd
    }

    /// Loads rows in the coefficient domain, the first of which is row `first` of the key.
    fn load_rows(&mut self, first: usize, rows: &[M::Word]) {
        let out = &mut self.rows.bytes_mut()[first * self.arithmetic.row_bytes()..];
        load_rows(&self.arithmetic, self.simd, &self.params, rows, out);
    }

    /// What computes with the rows.
    pub(crate) fn arithmetic(&self) -> &A {
        &self.arithmetic
    }

    /// The loaded rows of all GGSW samples.
    pub(crate) fn rows(&self) -> ChunksExact<'_, u8> {
        self.rows.bytes().chunks_exact(self.arithmetic.row_bytes())
    }

    /// As [`Self::rows`], in words, to be written to.
    pub(crate) fn rows_mut(&mut self) -> ChunksExactMut<'_, u64> {
        let row_bytes = self.arithmetic.row_bytes();
        self.rows.words_mut().chunks_exact_mut(row_bytes / 8)
    }

    /// Loads the rows of GGSW sample `index`, in the coefficient domain.
    pub(crate) fn load_sample(&mut self, index: usize, rows: &[M::Word]) {
        self.load_rows(index * self.params.ggsw_rows(), rows);
    }

    /// The parameter set.
    #[must_use]
    pub fn params(&self) -> &ParamSet {
        &self.params
    }

    /// Bytes of memory that the key holds.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.rows.bytes().len() as u64
    }

    /// Rotates `test_vector` ((k+1)·N words) by the phase of `sample` (n+1 words) and extracts the constant coefficient
    /// into `out` (k·N + 1 words), on the calling thread alone. `cancelled` is asked at every step.
    ///
    /// # Errors
    /// [`TfheError::Cancelled`]; [`TfheError::Length`] for a slice of another length.
    pub fn blind_rotate(
        &self,
        test_vector: &[M::Word],
        sample: &[M::Word],
        out: &mut [M::Word],
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), TfheError> {
        let rotation = Rotation {
            test_vector,
            sample,
            out,
        };
        self.blind_rotate_all(&mut [rotation], 1, cancelled)
    }

    /// Any number of blind rotations on up to `threads` threads: whole rotations side by side, each thread streaming the
    /// key once for all of its own; and with more threads than rotations, the rows of one external product side by
    /// side. The results do not depend on `threads` where the arithmetic is exact; otherwise they agree up to the rounding
    /// of sums.
    ///
    /// # Errors
    /// [`TfheError::Cancelled`]; [`TfheError::Length`] for a slice of another length.
    pub fn blind_rotate_all(
        &self,
        rotations: &mut [Rotation<'_, M>],
        threads: usize,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), TfheError> {
        let params = &self.params;
        for rotation in &*rotations {
            check_words::<M>(
                params,
                "a test vector",
                rotation.test_vector,
                params.glwe_words(),
            )?;
            check_words::<M>(params, "a LWE sample", rotation.sample, params.lwe_words())?;
            check_words::<M>(
                params,
                "an extracted sample",
                rotation.out,
                params.extracted_dimension() + 1,
            )?;
        }
        let mut memory = accumulators::<M, A>(params, rotations.len())?;
        let mut turnings: Vec<_> = rotations
            .iter()
            .zip(split::<M, A>(params, &mut memory))
            .map(|(rotation, acc)| self.start(rotation.test_vector, rotation.sample, 0, acc))
            .collect();
        self.turn_all(&mut turnings, threads, cancelled)?;
        for (rotation, turning) in rotations.iter_mut().zip(&turnings) {
            glwe::sample_extract::<A::Words, _>(params, turning.acc, 0, rotation.out, A::leave);
        }
        Ok(())
    }

    /// Turns any number of accumulators, as [`Self::blind_rotate_all`] divides them among threads.
    pub(crate) fn turn_all(
        &self,
        turnings: &mut [Turning<'_, M, A>],
        threads: usize,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), TfheError> {
        if turnings.is_empty() {
            return Ok(());
        }
        let groups = threads.clamp(1, turnings.len());
        // Rows are what there is to do side by side within one rotation.
        let team = (threads / groups).clamp(1, self.params.ggsw_rows());
        let mut turnings = turnings;
        let mut parts = Vec::new();
        for group in 0..groups {
            let size = turnings.len().div_ceil(groups - group);
            let (part, rest) = turnings.split_at_mut(size);
            parts.push(part);
            turnings = rest;
        }
        let run = |part: &mut [Turning<'_, M, A>]| match team {
            1 => self.turn_by_turns(0, part, cancelled),
            _ => part.iter_mut().try_for_each(|turning| {
                let alone = |left: usize| left.checked_sub(1);
                let relaxed = Ordering::Relaxed;
                let from = match self.alone.fetch_update(relaxed, relaxed, alone) {
                    Ok(_) => 0,
                    Err(_) => self.turn_as_team(turning, team, cancelled)?,
                };
                self.turn_by_turns(from, std::slice::from_mut(turning), cancelled)
            }),
        };
        std::thread::scope(|scope| {
            let mut parts = parts.into_iter();
            let first = parts.next();
            let others: Vec<_> = parts.map(|part| scope.spawn(|| run(part))).collect();
            let first = first.map_or(Ok(()), run);
            others
                .into_iter()
                .map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .fold(first, Result::and)
        })
    }

    /// Rotations on one thread, from step `from` on: every step for all of them, while the key's sample is in cache.
    fn turn_by_turns(
        &self,
        from: usize,
        turnings: &mut [Turning<'_, M, A>],
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), TfheError> {
        let params = &self.params;
        let n = params.ring_degree;
        let mut memory = Workspace::<M, A>::memory(params)?;
        let mut work = Workspace::<M, A>::new(params, &mut memory);
        for step in from..params.lwe_dimension {
            if cancelled() {
                return Err(TfheError::Cancelled);
            }
            for turning in turnings.iter_mut() {
                let exponent = turning.exponents[step];
                if exponent == 0 {
                    continue;
                }
                let acc = &*turning.acc;
                let rotate_sub = |index: usize, out: &mut [WordOf<M, A>]| {
                    glwe::rotate_sub::<A::Words>(self.simd, out, &acc[index * n..][..n], exponent);
                };
                self.products(step, 0..params.ggsw_rows(), rotate_sub, &mut work);
                self.add_sums(&mut work, turning.acc);
            }
        }
        Ok(())
    }

    /// One rotation on `team` threads: the rows of each external product are divided among them; then each of the first
    /// k+1 sums up a column and transforms it back. Two meetings a step; locks are free whenever they are taken.
    ///
    /// Where other work has the cores, members wait for each other for time slices of the system. Then the team parts, and so
    /// do those of some rotations after it. Returns the step that is next, n at the end.
    fn turn_as_team(
        &self,
        turning: &mut Turning<'_, M, A>,
        team: usize,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<usize, TfheError> {
        /// Long waits of a rotation after which its team parts.
        const LONG_WAITS: usize = 16;
        /// Rotations that are done alone then.
        const ALONE: usize = 64;
        let params = &self.params;
        let n = params.ring_degree;
        let columns = params.glwe_dimension + 1;
        let rows = params.ggsw_rows();
        let exponents = &turning.exponents;
        let components: Vec<_> = turning.acc.chunks_exact_mut(n).map(RwLock::new).collect();
        let mut memories = Vec::new();
        for _ in 0..team {
            memories.push(Workspace::<M, A>::memory(params)?);
        }
        let mut workers = Vec::new();
        let mut sums = Vec::new();
        for memory in &mut memories {
            let work = Workspace::<M, A>::new(params, memory);
            workers.push((work.difference, work.scratch));
            sums.push(RwLock::new(work.sums));
        }
        let meeting = Meeting::new(team);
        let stop = AtomicBool::new(false);
        let parted = AtomicUsize::new(params.lwe_dimension);
        let work = |member: usize, difference: &mut [WordOf<M, A>], scratch: &mut [A::Scalar]| {
            let _attendance = meeting.attend();
            let mut long_waits = 0;
            for (step, exponent) in exponents.iter().enumerate().filter(|(_, e)| **e != 0) {
                {
                    let mut own = write(&sums[member]);
                    let mut work = Workspace::<M, A> {
                        difference: &mut *difference,
                        scratch: &mut *scratch,
                        sums: &mut own,
                    };
                    let share = member * rows / team..(member + 1) * rows / team;
                    let rotate_sub = |index: usize, out: &mut [WordOf<M, A>]| {
                        glwe::rotate_sub::<A::Words>(
                            self.simd,
                            out,
                            &read(&components[index]),
                            *exponent,
                        );
                    };
                    self.products(step, share, rotate_sub, &mut work);
                }
                if member == 0 && cancelled() {
                    stop.store(true, Ordering::Relaxed);
                }
                long_waits += usize::from(meeting.wait());
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                if member == 0 && long_waits >= LONG_WAITS {
                    parted.store(step + 1, Ordering::Relaxed);
                }
                for column in (member..columns).step_by(team) {
                    let range = column * n..(column + 1) * n;
                    scratch.copy_from_slice(&read(&sums[0])[range.clone()]);
                    for other in &sums[1..] {
                        self.arithmetic.add(scratch, &read(other)[range.clone()]);
                    }
                    self.arithmetic
                        .inverse_add(scratch, &mut write(&components[column]));
                }
                long_waits += usize::from(meeting.wait());
                if parted.load(Ordering::Relaxed) == step + 1 {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            // Where a thread cannot be started, those that were must not wait for it.
            let _attendance = meeting.attend();
            let mut workers = workers.into_iter().enumerate();
            let first = workers.next();
            for (member, (difference, scratch)) in workers {
                scope.spawn(move || work(member, difference, scratch));
            }
            if let Some((member, (difference, scratch))) = first {
                work(member, difference, scratch);
            }
        });
        if stop.into_inner() {
            return Err(TfheError::Cancelled);
        }
        let next = parted.into_inner();
        if next < params.lwe_dimension {
            self.alone.store(ALONE, Ordering::Relaxed);
        }
        Ok(next)
    }

    /// The products of some rows of one step's external product, summed up in `work.sums`; `rotate_sub` writes
    /// X^a·component - component of the accumulator's component that it is told.
    pub(crate) fn products(
        &self,
        step: usize,
        rows: Range<usize>,
        rotate_sub: impl Fn(usize, &mut [WordOf<M, A>]),
        work: &mut Workspace<'_, M, A>,
    ) {
        let row_bytes = self.arithmetic.row_bytes();
        let first = rows.start;
        let keys = &self.rows.bytes()[(step * self.params.ggsw_rows() + first) * row_bytes..];
        for (row, key) in rows.zip(keys.chunks_exact(row_bytes)) {
            let (component, gadget, level) = self.params.ggsw_row(row);
            if row == first || level == 0 {
                rotate_sub(component, work.difference);
            }
            self.arithmetic.mul_add_digits(
                work.difference,
                DigitField::new(M::KIND, gadget, level),
                key,
                work.scratch,
                work.sums,
                row == first,
            );
        }
    }

    /// acc += what the products of one external product sum up to; the sums are destroyed.
    pub(crate) fn add_sums(&self, work: &mut Workspace<'_, M, A>, acc: &mut [WordOf<M, A>]) {
        let n = self.params.ring_degree;
        for (sum, words) in work.sums.chunks_exact_mut(n).zip(acc.chunks_exact_mut(n)) {
            self.arithmetic.inverse_add(sum, words);
        }
    }

    /// Sets an accumulator to the test vector, rotated by the body, and knows how the mask will turn it.
    pub(crate) fn start<'a>(
        &self,
        test_vector: &[M::Word],
        sample: &[M::Word],
        log2_slots: u32,
        acc: &'a mut [WordOf<M, A>],
    ) -> Turning<'a, M, A> {
        let n = self.params.ring_degree;
        let (exponents, body) = modulus_switch::<M>(&self.params, sample, log2_slots);
        let back = (2 * n - body) % (2 * n);
        for (acc, tv) in acc.chunks_exact_mut(n).zip(test_vector.chunks_exact(n)) {
            let tv: Vec<_> = tv.iter().map(|word| A::enter(*word)).collect();
            glwe::rotate::<A::Words>(acc, &tv, back);
        }
        Turning { acc, exponents }
    }
}

/// An accumulator of (k+1)·N words, and the exponents by which the n samples of a key turn it.
pub(crate) struct Turning<'a, M: Modulus, A: Arithmetic<M>> {
    pub(crate) acc: &'a mut [WordOf<M, A>],
    pub(crate) exponents: Vec<usize>,
}

/// Memory for `count` accumulators.
pub(crate) fn accumulators<M: Modulus, A: Arithmetic<M>>(
    params: &ParamSet,
    count: usize,
) -> Result<Buffer, TfheError> {
    let bytes = count * params.glwe_words() * size_of::<WordOf<M, A>>();
    Buffer::new(bytes.div_ceil(8))
}

/// The accumulators in their memory.
pub(crate) fn split<'a, M: Modulus, A: Arithmetic<M>>(
    params: &ParamSet,
    memory: &'a mut Buffer,
) -> impl Iterator<Item = &'a mut [WordOf<M, A>]> {
    bytemuck::cast_slice_mut(memory.words_mut()).chunks_exact_mut(params.glwe_words())
}

/// One blind rotation to do: see [`BootstrappingKey::blind_rotate`].
pub struct Rotation<'a, M: Modulus> {
    /// (k+1)·N words.
    pub test_vector: &'a [M::Word],
    /// The LWE sample whose phase rotates, n+1 words.
    pub sample: &'a [M::Word],
    /// Receives the extracted sample, k·N + 1 words.
    pub out: &'a mut [M::Word],
}

/// Slices of one thread's working memory, each on a line of the cache.
pub(crate) struct Workspace<'a, M: Modulus, A: Arithmetic<M>> {
    difference: &'a mut [WordOf<M, A>],
    scratch: &'a mut [A::Scalar],
    pub(crate) sums: &'a mut [A::Scalar],
}

impl<'a, M: Modulus, A: Arithmetic<M>> Workspace<'a, M, A> {
    /// Memory for a workspace.
    pub(crate) fn memory(params: &ParamSet) -> Result<Buffer, TfheError> {
        let polynomials = params.glwe_dimension + 3;
        Buffer::new(polynomials * params.ring_degree)
    }

    pub(crate) fn new(params: &ParamSet, memory: &'a mut Buffer) -> Self {
        let n = params.ring_degree;
        let (scalars, words) = memory.words_mut().split_at_mut(params.glwe_words() + n);
        let scalars: &mut [A::Scalar] = bytemuck::cast_slice_mut(scalars);
        let (scratch, sums) = scalars.split_at_mut(n);
        let words: &mut [WordOf<M, A>] = bytemuck::cast_slice_mut(words);
        Workspace {
            difference: &mut words[..n],
            scratch,
            sums,
        }
    }
}

/// Where the threads of a team wait for each other, for the time of a row of the external product at most, if each has a
/// core of its own: they spin, and give way to other threads only when it takes long.
struct Meeting {
    size: usize,
    arrived: AtomicUsize,
    round: AtomicUsize,
    broken: AtomicBool,
}

/// A member's presence; ends the meeting for all if the member panics, who would wait forever otherwise.
struct Attendance<'a>(&'a Meeting);

impl Drop for Attendance<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.broken.store(true, Ordering::Relaxed);
        }
    }
}

impl Meeting {
    /// Rounds of spinning before the thread gives way.
    const PATIENCE: u32 = 1 << 12;
    /// Longer than the work of any step, and not longer than what a system gives to other threads.
    const TIME_SLICE: Duration = Duration::from_millis(1);

    fn new(size: usize) -> Meeting {
        Meeting {
            size,
            arrived: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
        }
    }

    fn attend(&self) -> Attendance<'_> {
        Attendance(self)
    }

    /// Returns once all members have called it as often as this one; whether that took a time slice of the system.
    fn wait(&self) -> bool {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.size {
            self.arrived.store(0, Ordering::Relaxed);
            self.round.fetch_add(1, Ordering::Release);
            return false;
        }
        let mut spins = 0;
        let mut gave_way: Option<Instant> = None;
        while self.round.load(Ordering::Acquire) == round {
            assert!(
                !self.broken.load(Ordering::Relaxed),
                "another thread of the team panicked"
            );
            if spins < Self::PATIENCE {
                spins += 1;
                std::hint::spin_loop();
            } else {
                gave_way.get_or_insert_with(Instant::now);
                std::thread::yield_now();
            }
        }
        gave_way.is_some_and(|since| since.elapsed() > Self::TIME_SLICE)
    }
}

/// A poisoned lock means that a thread panicked, which ends the team anyway.
fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Programmable bootstrap: `sample` (n+1 words) becomes a fresh sample of the test vector's function of its message, on up to
/// `threads` threads; the key switch runs on rayon's.
///
/// # Errors
/// [`TfheError::ParamsMismatch`] for keys of different sets, [`TfheError::Length`] for a sample or test vector of another
/// length, [`TfheError::Cancelled`]; `sample` is unchanged then.
pub fn bootstrap<M: Modulus, A: Arithmetic<M>>(
    bootstrapping: &BootstrappingKey<M, A>,
    key_switching: &KeySwitchingKey<M>,
    test_vector: &[M::Word],
    sample: &mut [M::Word],
    threads: usize,
    cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<(), TfheError> {
    let job = (test_vector, sample);
    bootstrap_all(bootstrapping, key_switching, &mut [job], threads, cancelled)
}

/// A bootstrap to do: a test vector ((k+1)·N words) and the sample (n+1 words) that its result replaces.
pub type Job<'a, M> = (&'a [<M as Words>::Word], &'a mut [<M as Words>::Word]);

/// Any number of [`bootstrap`]s, which stream the bootstrapping key together
/// ([`BootstrappingKey::blind_rotate_all`]).
///
/// # Errors
/// As [`bootstrap`]; all samples are unchanged then.
pub fn bootstrap_all<M: Modulus, A: Arithmetic<M>>(
    bootstrapping: &BootstrappingKey<M, A>,
    key_switching: &KeySwitchingKey<M>,
    jobs: &mut [Job<'_, M>],
    threads: usize,
    cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<(), TfheError> {
    let params = &bootstrapping.params;
    if key_switching.params() != params {
        return Err(TfheError::ParamsMismatch {
            what: "the key-switching key",
            expected: params.name.to_owned(),
            found: key_switching.params().name.to_owned(),
        });
    }
    let length = params.extracted_dimension() + 1;
    let mut extracted = vec![M::Word::default(); jobs.len() * length];
    let mut rotations: Vec<_> = jobs
        .iter()
        .zip(extracted.chunks_exact_mut(length))
        .map(|((test_vector, sample), out)| Rotation {
            test_vector,
            sample,
            out,
        })
        .collect();
    bootstrapping.blind_rotate_all(&mut rotations, threads, cancelled)?;
    for ((_, sample), extracted) in jobs.iter_mut().zip(extracted.chunks_exact(length)) {
        key_switching.switch(extracted, sample)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modulus::{Goldilocks, Torus32};
    use crate::noise;
    use crate::params::{MESSAGE4, PAPER};
    use crate::random::Csprng;

    /// Variance of the modulus switch over 50 keys of 200 samples: 5 standard errors of sqrt(2/10000) allowed.
    fn modulus_switch_noise<M: Modulus>(params: &ParamSet) {
        let mut rng = Csprng::from_seed([9; 32]);
        let (keys, samples) = (50, 200);
        let mut squares = 0.0;
        let mut key = vec![0u64; params.lwe_dimension];
        let mut sample = vec![M::Word::default(); params.lwe_words()];
        let order = 2.0 * params.ring_degree as f64;
        for _ in 0..keys {
            rng.fill_bits(&mut key);
            for _ in 0..samples {
                rng.fill_uniform::<M>(&mut sample);
                let (mask, body) = modulus_switch::<M>(params, &sample, 0);
                let turn = |word: M::Word| M::to_u64_torus(word) as f64 / 2f64.powi(64);
                let error = turn(sample[params.lwe_dimension])
                    - (body as f64 + 0.5) / order
                    - key
                        .iter()
                        .zip(&sample)
                        .zip(&mask)
                        .map(|((bit, word), exponent)| {
                            *bit as f64 * (turn(*word) - *exponent as f64 / order)
                        })
                        .sum::<f64>();
                squares += (error - error.round()).powi(2);
            }
        }
        let count = f64::from(keys * samples);
        // The body's rounding down is uniform over a step, about its middle.
        let expected = noise::modulus_switch_variance(params) + 1.0 / 12.0 / order.powi(2);
        let ratio = squares / count / expected;
        assert!(
            (ratio - 1.0).abs() < 5.0 * (2.0 / count).sqrt(),
            "{}: {ratio}",
            params.name
        );
    }

    #[test]
    fn both_modulus_switches_have_the_variance_of_their_formula() {
        modulus_switch_noise::<Torus32>(&PAPER);
        modulus_switch_noise::<Goldilocks>(&MESSAGE4);
    }
}
