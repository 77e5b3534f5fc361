//! Vertical packing: an entry of a table by CMuxes.

use crate::TfheError;
use crate::arithmetic::{Arithmetic, WordOf};
use crate::bootstrap::Run;
use crate::bootstrap::blind_rotation::BlindRotation;
use crate::ggsw::{GgswList, Workspace};
use crate::glwe;
use crate::lwe::check_words;
use crate::modulus::{Modulus, Words};
use crate::parallel::in_parallel;

use super::{Bits, OfBits, WopbsKey};

impl<M: Modulus, A: Arithmetic<M>> WopbsKey<M, A> {
    /// Vertical packing: the entry of a table of 2^b words that b bits point at, as a sample of dimension k·N.
    ///
    /// # Errors
    /// [`TfheError::Length`] for a table of another length, [`TfheError::Cancelled`].
    pub fn look_up(
        &self,
        bits: &Bits<'_, M, A>,
        table: &[M::Word],
        run: Run<'_>,
    ) -> Result<Vec<M::Word>, TfheError> {
        check_words::<M>(&self.params, "a table", table, 1 << bits.count())?;
        let circuit = bits.samples();
        let mut memory = Workspace::<M, A>::memory(&self.params)?;
        let mut work = Workspace::<M, A>::new(&self.params, &mut memory);
        let depth = self.plan.depth(bits.count());
        let mut accs =
            vec![vec![WordOf::<M, A>::default(); self.params.glwe_words()]; depth as usize + 1];
        self.select(circuit, table, depth, &mut accs, &mut work, run)?;
        // Bits above have selected the polynomial, and room for more bits may hold another message's: neither turns it.
        let mut exponents = self.plan.turns(bits.count());
        exponents.resize(circuit.count(), 0);
        let rotation = BlindRotation {
            acc: &mut accs[0],
            exponents,
        };
        circuit.rotate_all(&mut [rotation], Run { threads: 1, ..run })?;
        let mut out = vec![M::Word::default(); self.params.lwe_words()];
        glwe::sample_extract::<A::Words, _>(&self.params, &accs[0], 0, &mut out, A::leave);
        Ok(out)
    }

    /// [`Self::look_up`] of several tables, each by some bits.
    pub(super) fn look_up_all(
        &self,
        tables: &[OfBits<'_, M, A, Vec<M::Word>>],
        run: Run<'_>,
    ) -> Result<Vec<Vec<M::Word>>, TfheError> {
        let mut out = vec![Vec::new(); tables.len()];
        let jobs = tables.iter().zip(&mut out).collect();
        in_parallel(
            run.threads,
            jobs,
            |_, (table, out): (&(_, Vec<_>), &mut Vec<_>)| {
                let (bits, table) = table;
                *out = self.look_up(bits, table, run)?;
                Ok(())
            },
        )?;
        Ok(out)
    }

    /// CMuxes by the highest `depth` bits that are left: one polynomial of `table`, into the first of `accs`, one for each
    /// level and one more.
    fn select(
        &self,
        circuit: &GgswList<M, A>,
        table: &[M::Word],
        depth: u32,
        accs: &mut [Vec<WordOf<M, A>>],
        work: &mut Workspace<'_, M, A>,
        run: Run<'_>,
    ) -> Result<(), TfheError> {
        let n = self.params.ring_degree;
        let body = self.params.extracted_dimension();
        let rows = self.stages.circuit.ggsw_rows();
        let Some((out, rest)) = accs.split_first_mut() else {
            return Ok(());
        };
        if depth == 0 {
            out[..body].fill(WordOf::<M, A>::default());
            for (word, entry) in out[body..].iter_mut().zip(table) {
                *word = A::enter(*entry);
            }
            return Ok(());
        }
        run.check()?;
        let bit = (n.trailing_zeros() + depth - 1) as usize;
        let (low, high) = table.split_at(table.len() / 2);
        if depth == 1 {
            // Both polynomials are known: their masks are 0, and so are the digits of them.
            let masks = self.stages.circuit.gadget.levels * self.params.glwe_dimension;
            let difference = |_: usize, out: &mut [WordOf<M, A>]| {
                for (word, (high, low)) in out.iter_mut().zip(high.iter().zip(low)) {
                    *word = A::Words::sub(A::enter(*high), A::enter(*low));
                }
            };
            circuit.products(bit, masks..rows, difference, work);
            out[..body].fill(WordOf::<M, A>::default());
            for (word, entry) in out[body..].iter_mut().zip(low) {
                *word = A::enter(*entry);
            }
        } else {
            self.select(circuit, high, depth - 1, rest, work, run)?;
            std::mem::swap(out, &mut rest[0]);
            self.select(circuit, low, depth - 1, rest, work, run)?;
            std::mem::swap(out, &mut rest[0]);
            let high = &rest[0];
            let difference = |index: usize, difference: &mut [WordOf<M, A>]| {
                let range = index * n..(index + 1) * n;
                let pairs = high[range.clone()].iter().zip(&out[range]);
                for (word, (high, low)) in difference.iter_mut().zip(pairs) {
                    *word = A::Words::sub(*high, *low);
                }
            };
            circuit.products(bit, 0..rows, difference, work);
        }
        circuit.add_sums(work, out);
        Ok(())
    }
}
