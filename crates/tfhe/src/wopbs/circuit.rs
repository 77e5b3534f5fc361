//! Circuit bootstrapping: from what a bit's blind rotation left to the rows of the bit's GGSW sample.

use crate::TfheError;
use crate::arithmetic::{Arithmetic, WordOf};
use crate::ggsw::Workspace;
use crate::glwe;
use crate::memory::Buffer;
use crate::modulus::{Modulus, Words};
use crate::parallel::in_parallel;

use super::WopbsKey;

/// A level of the GGSW sample of a bit that is to be made.
struct Level<'a, M: Modulus, A: Arithmetic<M>> {
    level: usize,
    /// What the bit's blind rotation left.
    acc: &'a [WordOf<M, A>],
    /// The rows of the level, by component.
    rows: Vec<&'a mut [M::Word]>,
    /// The sample that the trace works on.
    sample: Vec<WordOf<M, A>>,
}

impl<M: Modulus, A: Arithmetic<M>> WopbsKey<M, A> {
    /// The rows of the GGSW samples of some bits, one after the other, from the accumulators of their extractions, on up to `threads` threads.
    /// A thread makes all its levels at a time, while a step's ring switching key is in the cache.
    pub(super) fn circuit_bootstrap(
        &self,
        accs: &[WordOf<M, A>],
        rows: &mut [M::Word],
        threads: usize,
    ) -> Result<(), TfheError> {
        let circuit = &self.stages.circuit;
        let levels = circuit.gadget.levels;
        let row_words = self.params.glwe_words();
        let mut jobs = Vec::new();
        let of_bits = rows.chunks_exact_mut(circuit.ggsw_rows() * row_words);
        for (acc, rows) in accs.chunks_exact(row_words).zip(of_bits) {
            let first = jobs.len();
            jobs.extend((0..levels).map(|level| Level::<M, A> {
                level,
                acc,
                rows: Vec::new(),
                sample: vec![WordOf::<M, A>::default(); row_words],
            }));
            // Row `component`·levels + level.
            for (index, row) in rows.chunks_exact_mut(row_words).enumerate() {
                jobs[first + index % levels].rows.push(row);
            }
        }
        let share = jobs.len().div_ceil(threads.max(1)).max(1);
        in_parallel(
            threads,
            jobs.chunks_mut(share).collect(),
            |_, jobs: &mut [Level<'_, M, A>]| self.make_levels(jobs),
        )
    }

    fn make_levels(&self, jobs: &mut [Level<'_, M, A>]) -> Result<(), TfheError> {
        let mut memory = Workspace::<M, A>::memory(&self.params)?;
        let mut before = vec![WordOf::<M, A>::default(); self.params.glwe_words()];
        for job in jobs.iter_mut() {
            self.take_slot(job.acc, job.level, &mut job.sample);
        }
        // The trace, N times the constant coefficient, all others gone: the sum over the automorphisms of the ring, one generator at
        // a time.
        for depth in 0..self.params.ring_degree.trailing_zeros() {
            for job in jobs.iter_mut() {
                before.copy_from_slice(&job.sample);
                self.add_image(depth, &before, &mut job.sample, &mut memory);
            }
        }
        for component in 0..self.params.glwe_dimension {
            for job in jobs.iter_mut() {
                let row = &mut *job.rows[component];
                self.times_secret(component, &job.sample, &mut memory, row);
            }
        }
        for job in jobs {
            let body = &mut *job.rows[self.params.glwe_dimension];
            for (out, word) in body.iter_mut().zip(&job.sample) {
                *out = A::leave(*word);
            }
        }
        Ok(())
    }

    /// Coefficient `level` of an accumulator to the constant one, as bit·g_level; the whole divided by N.
    fn take_slot(&self, acc: &[WordOf<M, A>], level: usize, sample: &mut [WordOf<M, A>]) {
        let n = self.params.ring_degree;
        for (out, polynomial) in sample.chunks_exact_mut(n).zip(acc.chunks_exact(n)) {
            glwe::rotate::<A::Words>(out, polynomial, (2 * n - level) % (2 * n));
        }
        for word in &mut *sample {
            *word = A::Words::neg(*word);
        }
        let body = &mut sample[self.params.extracted_dimension()];
        *body = A::Words::add(*body, A::enter(self.plan.half_level(level)));
        A::Words::share(sample, n.trailing_zeros());
    }

    /// The row of mask component `component`: -s_component times the message of the sample.
    fn times_secret(
        &self,
        component: usize,
        sample: &[WordOf<M, A>],
        memory: &mut Buffer,
        row: &mut [M::Word],
    ) {
        let n = self.params.ring_degree;
        let body = self.params.extracted_dimension();
        let step = n.trailing_zeros() as usize + component;
        let mut product = vec![WordOf::<M, A>::default(); self.params.glwe_words()];
        product[component * n..][..n].copy_from_slice(&sample[body..]);
        let masks = |index: usize, out: &mut [WordOf<M, A>]| {
            out.copy_from_slice(&sample[index * n..][..n]);
        };
        self.switch.switch(step, masks, &mut product, memory);
        for (out, word) in row.iter_mut().zip(&product) {
            *out = A::leave(*word);
        }
    }
}
