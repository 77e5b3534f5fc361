//! Packing: many LWE samples of dimension k·N into one GLWE sample, each message at a coefficient of its own.
//!
//! [`WopbsKey::pack`] takes the automorphism keys of a circuit bootstrapping, by the tree of Chen, Dai, Kim and Song (ACNS 2021):
//! two samples whose messages are at coefficients that are multiples of 2^(d+1) become one for the multiples of 2^d, by one key switch
//! of k·t rows; where one of the two is missing that is a step of a trace. m messages N/m apart take m - 1 + log2(N/m) key
//! switches, m messages side by side m - 1 + m·log2(N/m), for powers of two m. Noise: that of a
//! trace ([`super::noise::Stages::trace`]) in each message's coefficient, whatever m is.
//!
//! [`PrivateSwitchKey::pack`] takes the key of a functional key switch, usually that of f = 1 (algorithm 1 of Chillotti, Gama,
//! Georgieva and Izabachène, J. Cryptology 2020): (k·N + 1)·t rows, each with a forward transform, whatever m is. The key is
//! thousands of times larger. Noise ([`switch_packing_noise`]): m key switches' in every coefficient.

use std::ops::Range;

use crate::TfheError;
use crate::arithmetic::ArithmeticKind;
use crate::arithmetic::{Arithmetic, WordOf};
use crate::bootstrap::Run;
use crate::ggsw::Workspace;
use crate::glwe;
use crate::lwe::check_words;
use crate::memory::Buffer;
use crate::modulus::{Modulus, Words};
use crate::parallel::in_parallel;
use crate::params::{Gadget, ParamSet};

use super::WopbsKey;
use super::private::{
    PrivateSwitchKey, SwitchNoise, rounding_unit, row_count, sum_rounding, switch_noise_of,
};

/// A sample of k·N + 1 words, and the coefficient that its message goes to.
pub type Placed<'a, M> = (usize, &'a [<M as Words>::Word]);

/// Refuses samples of another length, and coefficients that are not there or taken.
fn check<M: Modulus>(params: &ParamSet, samples: &[Placed<'_, M>]) -> Result<(), TfheError> {
    let mut taken = vec![false; params.ring_degree];
    for (index, sample) in samples {
        let words = params.extracted_dimension() + 1;
        check_words::<M>(params, "an extracted sample", sample, words)?;
        match taken.get_mut(*index) {
            Some(taken) if !*taken => *taken = true,
            _ => {
                return Err(TfheError::Coefficient {
                    index: *index,
                    degree: params.ring_degree,
                    params: params.name,
                });
            }
        }
    }
    Ok(())
}

impl<M: Modulus, A: Arithmetic<M>> WopbsKey<M, A> {
    /// Packs samples into a GLWE sample of (k+1)·N words: each message at its coefficient, 0 in all others, by the automorphism
    /// keys. The cost is that of the module's header.
    ///
    /// # Errors
    /// [`TfheError::Length`] for a sample of another length, [`TfheError::Coefficient`] for a coefficient beyond the ring or
    /// named twice, [`TfheError::Cancelled`].
    pub fn pack(&self, samples: &[Placed<'_, M>], run: Run<'_>) -> Result<Vec<M::Word>, TfheError> {
        check::<M>(&self.params, samples)?;
        let mut memory = Workspace::<M, A>::memory(&self.params)?;
        let packed = self.merge(0, samples.to_vec(), &mut memory, run)?;
        let words = packed.into_iter().flatten().map(A::leave);
        let mut out: Vec<_> = words.collect();
        out.resize(self.params.glwe_words(), M::Word::default());
        Ok(out)
    }

    /// Samples whose coefficients agree in their lowest `depth` bits into one for the multiples of 2^depth; none of none.
    fn merge(
        &self,
        depth: u32,
        samples: Vec<Placed<'_, M>>,
        memory: &mut Buffer,
        run: Run<'_>,
    ) -> Result<Option<Vec<WordOf<M, A>>>, TfheError> {
        let n = self.params.ring_degree;
        let steps = n.trailing_zeros();
        let Some((_, first)) = samples.first() else {
            return Ok(None);
        };
        let zero = || vec![WordOf::<M, A>::default(); self.params.glwe_words()];
        if depth == steps {
            let mut sample = zero();
            glwe::sample_embed::<A::Words, _>(&self.params, first, &mut sample, A::enter);
            // The steps to come multiply by N.
            A::Words::share(&mut sample, steps);
            return Ok(Some(sample));
        }
        run.check()?;
        let (even, odd): (Vec<_>, Vec<_>) = samples
            .into_iter()
            .partition(|(index, _)| index >> depth & 1 == 0);
        let (even, odd) = if 1 << depth < run.threads {
            let mut other = Workspace::<M, A>::memory(&self.params)?;
            rayon::join(
                || self.merge(depth + 1, even, memory, run),
                || self.merge(depth + 1, odd, &mut other, run),
            )
        } else {
            let even = self.merge(depth + 1, even, memory, run);
            (even, self.merge(depth + 1, odd, memory, run))
        };
        let (even, odd) = (even?.unwrap_or_else(zero), odd?.unwrap_or_else(zero));
        Ok(Some(self.merge_two(depth, even, &odd, memory)))
    }

    /// even + X^(2^depth)·odd, plus the image of their difference under the automorphism that negates X^(2^depth).
    fn merge_two(
        &self,
        depth: u32,
        even: Vec<WordOf<M, A>>,
        odd: &[WordOf<M, A>],
        memory: &mut Buffer,
    ) -> Vec<WordOf<M, A>> {
        let n = self.params.ring_degree;
        let mut sum = even;
        let mut difference = vec![WordOf::<M, A>::default(); sum.len()];
        for (moved, odd) in difference.chunks_exact_mut(n).zip(odd.chunks_exact(n)) {
            glwe::rotate::<A::Words>(moved, odd, 1 << depth);
        }
        for (sum, difference) in sum.iter_mut().zip(&mut difference) {
            let (even, odd) = (*sum, *difference);
            *sum = A::Words::add(even, odd);
            *difference = A::Words::sub(even, odd);
        }
        self.add_image(depth, &difference, &mut sum, memory);
        sum
    }

    /// sum += the image of `sample` under the automorphism of step `depth` of a trace.
    pub(super) fn add_image(
        &self,
        depth: u32,
        sample: &[WordOf<M, A>],
        sum: &mut [WordOf<M, A>],
        memory: &mut Buffer,
    ) {
        let n = self.params.ring_degree;
        let body = self.params.extracted_dimension();
        let d = (n >> depth) + 1;
        let mut image = vec![WordOf::<M, A>::default(); n];
        glwe::automorphism::<A::Words>(&mut image, &sample[body..], d);
        for (word, image) in sum[body..].iter_mut().zip(&image) {
            *word = A::Words::add(*word, *image);
        }
        let map = |index: usize, out: &mut [WordOf<M, A>]| {
            glwe::automorphism::<A::Words>(out, &sample[index * n..][..n], d);
        };
        self.switch.switch(depth as usize, map, sum, memory);
    }
}

impl<M: Modulus, A: Arithmetic<M>> PrivateSwitchKey<M, A> {
    /// Packs samples into a GLWE sample of (k+1)·N words: the sum of f(message)·X^coefficient, with f that of the key.
    ///
    /// # Errors
    /// As [`WopbsKey::pack`].
    pub fn pack(&self, samples: &[Placed<'_, M>], run: Run<'_>) -> Result<Vec<M::Word>, TfheError> {
        check::<M>(&self.params, samples)?;
        let n = self.params.ring_degree;
        let mut words = vec![WordOf::<M, A>::default(); self.params.glwe_words()];
        let count = self.params.extracted_dimension() + 1;
        let threads = run.threads.max(1);
        let mut shares = vec![Vec::new(); threads];
        let jobs = shares.iter_mut().collect();
        in_parallel(threads, jobs, |index, sums: &mut Vec<A::Scalar>| {
            let share = index * count / threads..(index + 1) * count / threads;
            *sums = self.polynomial_products(samples, share, run)?;
            Ok(())
        })?;
        for mut sums in shares {
            for (sum, words) in sums.chunks_exact_mut(n).zip(words.chunks_exact_mut(n)) {
                self.arithmetic.inverse_add(sum, words);
            }
        }
        Ok(words.into_iter().map(A::leave).collect())
    }

    /// The sum over some word indices of a sample: the polynomial that has each sample's word at its coefficient, digit by digit
    /// times the rows of the key.
    fn polynomial_products(
        &self,
        samples: &[Placed<'_, M>],
        indices: Range<usize>,
        run: Run<'_>,
    ) -> Result<Vec<A::Scalar>, TfheError> {
        let n = self.params.ring_degree;
        let fields: Vec<_> = self.fields().collect();
        let mut sums = vec![A::Scalar::default(); self.params.glwe_words()];
        let mut scratch = vec![A::Scalar::default(); n];
        let mut words = vec![WordOf::<M, A>::default(); n];
        let mut first = true;
        let mut rows = self.rows().skip(indices.start * fields.len());
        for index in indices {
            run.check()?;
            for (coefficient, sample) in samples {
                let word = A::enter(sample[index]);
                words[*coefficient] = if index < self.params.extracted_dimension() {
                    A::Words::neg(word)
                } else {
                    word
                };
            }
            for (field, row) in fields.iter().zip(rows.by_ref()) {
                self.arithmetic.mul_add_digits(
                    &words,
                    (*field).into(),
                    row,
                    &mut scratch,
                    &mut sums,
                    first,
                );
                first = false;
            }
        }
        Ok(sums)
    }
}

/// The noise that [`PrivateSwitchKey::pack`] adds for this number of samples: the rows' to all coefficients, the message's to
/// each message alone.
#[must_use]
pub fn switch_packing_noise(
    params: &ParamSet,
    gadget: Gadget,
    samples: usize,
    arithmetic: ArithmeticKind,
) -> SwitchNoise {
    let samples = samples as f64;
    let mut noise = switch_noise_of(params, gadget, samples);
    if arithmetic == ArithmeticKind::Fft {
        let rows = row_count(params, gadget);
        let transforms = rows * (params.ring_degree as f64).log2();
        // Complex products: their two parts are added up one by one.
        let rounding = transforms + sum_rounding(rows, 0.5);
        noise.rows += samples * rounding * rounding_unit(params, gadget);
    }
    noise
}
