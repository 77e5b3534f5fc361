//! Circuit bootstrapping: from what a bit's blind rotation left to the rows of the bit's GGSW sample.

use crate::TfheError;
use crate::arithmetic::{Arithmetic, WordOf};
use crate::ggsw::Workspace;
use crate::glwe;
use crate::memory::Buffer;
use crate::modulus::{Modulus, Words};
use crate::parallel::in_parallel;

use super::WopbsKey;

/// Memory of one thread that makes GGSW samples.
pub(super) struct Bench<W> {
    pub(super) work: Buffer,
    /// The sample that the trace works on.
    pub(super) sample: Vec<W>,
    /// The sample before a step of the trace.
    before: Vec<W>,
}

impl<M: Modulus, A: Arithmetic<M>> WopbsKey<M, A> {
    /// The rows of the GGSW sample of a bit, from the accumulator of its extraction.
    pub(super) fn circuit_bootstrap(
        &self,
        acc: &[WordOf<M, A>],
        rows: &mut [M::Word],
        threads: usize,
    ) -> Result<(), TfheError> {
        let levels = self.stages.circuit.gadget.levels;
        let k = self.params.glwe_dimension;
        let row_words = self.params.glwe_words();
        // Row `component`·levels + level.
        let mut of_level: Vec<Vec<&mut [M::Word]>> = (0..levels).map(|_| Vec::new()).collect();
        for (index, row) in rows.chunks_exact_mut(row_words).enumerate() {
            of_level[index % levels].push(row);
        }
        let make = |level: usize, mut rows: Vec<&mut [M::Word]>| -> Result<(), TfheError> {
            let mut bench = self.bench()?;
            self.take_slot(acc, level, &mut bench);
            self.trace(&mut bench);
            for (component, row) in rows.iter_mut().take(k).enumerate() {
                self.times_secret(component, &mut bench, row);
            }
            for (out, word) in rows[k].iter_mut().zip(&bench.sample) {
                *out = A::leave(*word);
            }
            Ok(())
        };
        in_parallel(threads, of_level, make)
    }

    pub(super) fn bench(&self) -> Result<Bench<WordOf<M, A>>, TfheError> {
        Ok(Bench {
            work: Workspace::<M, A>::memory(&self.params)?,
            sample: vec![WordOf::<M, A>::default(); self.params.glwe_words()],
            before: vec![WordOf::<M, A>::default(); self.params.glwe_words()],
        })
    }

    /// Coefficient `level` of an accumulator to the constant one, as bit·g_level; the whole divided by N.
    fn take_slot(&self, acc: &[WordOf<M, A>], level: usize, bench: &mut Bench<WordOf<M, A>>) {
        let n = self.params.ring_degree;
        for (out, polynomial) in bench.sample.chunks_exact_mut(n).zip(acc.chunks_exact(n)) {
            glwe::rotate::<A::Words>(out, polynomial, (2 * n - level) % (2 * n));
        }
        for word in &mut bench.sample {
            *word = A::Words::neg(*word);
        }
        let body = &mut bench.sample[self.params.extracted_dimension()];
        *body = A::Words::add(*body, A::enter(self.plan.half_level(level)));
        A::Words::share(&mut bench.sample, n.trailing_zeros());
    }

    /// N times the constant coefficient, all others gone: the sum over the automorphisms of the ring, one generator at a time.
    pub(super) fn trace(&self, bench: &mut Bench<WordOf<M, A>>) {
        for depth in 0..self.params.ring_degree.trailing_zeros() {
            bench.before.copy_from_slice(&bench.sample);
            self.add_image(depth, &bench.before, &mut bench.sample, &mut bench.work);
        }
    }

    /// The row of mask component `component`: -s_component times the message of the sample.
    fn times_secret(&self, component: usize, bench: &mut Bench<WordOf<M, A>>, row: &mut [M::Word]) {
        let n = self.params.ring_degree;
        let body = self.params.extracted_dimension();
        let step = n.trailing_zeros() as usize + component;
        let sample = &bench.sample;
        let mut product = vec![WordOf::<M, A>::default(); self.params.glwe_words()];
        product[component * n..][..n].copy_from_slice(&sample[body..]);
        let masks = |index: usize, out: &mut [WordOf<M, A>]| {
            out.copy_from_slice(&sample[index * n..][..n]);
        };
        self.switch
            .switch(step, masks, &mut product, &mut bench.work);
        for (out, word) in row.iter_mut().zip(&product) {
            *out = A::leave(*word);
        }
    }
}
