//! Blind rotation: an accumulator turned by the encrypted phase of a sample, step by step.
//!
//! One step is `ACC += BK_i ⊡ (X^a_i·ACC - ACC)` (CMux of the platform paper's section 4.5 with d0 = ACC and
//! d1 = X^a_i·ACC).

use std::panic::resume_unwind;

use crate::TfheError;
use crate::arithmetic::{Arithmetic, WordOf};
use crate::ggsw::{GgswList, PairMemory, Workspace};
use crate::glwe;
use crate::memory::Buffer;
use crate::modulus::Modulus;
use crate::parallel::{Crowding, LATE};
use crate::params::StageParams;

use super::Run;
use super::modulus_switch;
use super::team;

/// An accumulator of (k+1)·N words, and the exponents by which the GGSW samples of a list turn it.
pub(crate) struct BlindRotation<'a, M: Modulus, A: Arithmetic<M>> {
    pub(crate) acc: &'a mut [WordOf<M, A>],
    pub(crate) exponents: Vec<usize>,
}

impl<'a, M: Modulus, A: Arithmetic<M>> BlindRotation<'a, M, A> {
    /// Sets the accumulator to the test vector, rotated by the body of `sample`; its mask gives the exponents.
    pub(crate) fn new(
        params: &StageParams,
        test_vector: &[M::Word],
        sample: &[M::Word],
        log2_slots: u32,
        acc: &'a mut [WordOf<M, A>],
    ) -> Self {
        let n = params.ring_degree;
        let (exponents, body) = modulus_switch::<M>(params, sample, log2_slots);
        let back = (2 * n - body) % (2 * n);
        for (acc, tv) in acc.chunks_exact_mut(n).zip(test_vector.chunks_exact(n)) {
            let tv: Vec<_> = tv.iter().map(|word| A::enter(*word)).collect();
            glwe::rotate::<A::Words>(acc, &tv, back);
        }
        BlindRotation { acc, exponents }
    }
}

/// Memory for `count` accumulators.
pub(super) fn accumulators<M: Modulus, A: Arithmetic<M>>(
    params: &StageParams,
    count: usize,
) -> Result<Buffer, TfheError> {
    let bytes = count * params.glwe_words() * size_of::<WordOf<M, A>>();
    Buffer::new(bytes.div_ceil(8))
}

/// The accumulators in their memory.
pub(super) fn split<'a, M: Modulus, A: Arithmetic<M>>(
    params: &StageParams,
    memory: &'a mut Buffer,
) -> impl Iterator<Item = &'a mut [WordOf<M, A>]> {
    bytemuck::cast_slice_mut(memory.words_mut()).chunks_exact_mut(params.glwe_words())
}

impl<M: Modulus, A: Arithmetic<M>> GgswList<M, A> {
    /// Does any number of blind rotations on up to `run.threads` threads: whole rotations side by side, and with more threads
    /// than rotations the rows of each external product side by side. A rotation by an unrolled key stays on one thread.
    pub(crate) fn rotate_all(
        &self,
        rotations: &mut [BlindRotation<'_, M, A>],
        run: Run<'_>,
    ) -> Result<(), TfheError> {
        if rotations.is_empty() {
            return Ok(());
        }
        let groups = run.threads.clamp(1, rotations.len());
        let members = (run.threads / groups).clamp(1, self.most_members());
        let mut rotations = rotations;
        let mut parts = Vec::new();
        for group in 0..groups {
            let size = rotations.len().div_ceil(groups - group);
            let (part, rest) = rotations.split_at_mut(size);
            parts.push(part);
            rotations = rest;
        }
        let turn = |part: &mut [BlindRotation<'_, M, A>]| {
            if self.is_unrolled() {
                return self.rotate_by_pairs(part, run);
            }
            if members == 1 {
                return self.rotate_from(0, part, run);
            }
            part.iter_mut().try_for_each(|rotation| {
                let crowding = Crowding::of_process();
                let mut from = 0;
                if crowding.threads(members) > 1 {
                    from = team::rotate(self, rotation, members, LATE, run)?;
                    if from < self.count() {
                        crowding.late();
                    }
                }
                self.rotate_from(from, std::slice::from_mut(rotation), run)
            })
        };
        std::thread::scope(|scope| {
            let mut parts = parts.into_iter();
            let first = parts.next();
            let others: Vec<_> = parts.map(|part| scope.spawn(|| turn(part))).collect();
            let first = first.map_or(Ok(()), turn);
            others
                .into_iter()
                .map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .fold(first, Result::and)
        })
    }

    /// Rotations on one thread, from step `from` on. All rotations do a step before the next one, while its GGSW sample is in
    /// the cache.
    fn rotate_from(
        &self,
        from: usize,
        rotations: &mut [BlindRotation<'_, M, A>],
        run: Run<'_>,
    ) -> Result<(), TfheError> {
        let params = self.params();
        let n = params.ring_degree;
        let mut memory = Workspace::<M, A>::memory(params)?;
        let mut work = Workspace::<M, A>::new(params, &mut memory);
        for step in from..self.count() {
            run.check()?;
            for rotation in rotations.iter_mut() {
                let exponent = rotation.exponents[step];
                if exponent == 0 {
                    continue;
                }
                let acc = &*rotation.acc;
                let rotate_sub = |index: usize, out: &mut [WordOf<M, A>]| {
                    glwe::rotate_sub::<A::Words>(
                        self.simd(),
                        out,
                        &acc[index * n..][..n],
                        exponent,
                    );
                };
                self.products(step, 0..params.ggsw_rows(), rotate_sub, &mut work);
                self.add_sums(&mut work, rotation.acc);
            }
        }
        Ok(())
    }

    /// Rotations on one thread by an unrolled key, two exponents a step.
    fn rotate_by_pairs(
        &self,
        rotations: &mut [BlindRotation<'_, M, A>],
        run: Run<'_>,
    ) -> Result<(), TfheError> {
        let mut memory = PairMemory::new(self.params())?;
        for pair in 0..self.count() / 3 {
            run.check()?;
            for rotation in rotations.iter_mut() {
                let exponent = |i| rotation.exponents.get(i).copied().unwrap_or(0);
                let exponents = [exponent(2 * pair), exponent(2 * pair + 1)];
                if exponents != [0, 0] {
                    self.turn_by_pair(pair, exponents, rotation.acc, &mut memory);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use toroid_ring::simd::SimdLevel;
    use toroid_task::Progress;

    use super::*;
    use crate::arithmetic::Ntt;
    use crate::bootstrap::BootstrappingKey;
    use crate::keys::ClientKey;
    use crate::modulus::{Goldilocks, Torus32};
    use crate::params::{Gadget, ParamSet, TINY, TINY32};
    use crate::random::Csprng;

    /// A set over the 32-bit torus whose exact products are made by halves.
    static HALVES: ParamSet = ParamSet {
        stage: StageParams {
            gadget: Gadget {
                levels: 2,
                log2_base: 10,
            },
            body_gadget: Some(Gadget {
                levels: 2,
                log2_base: 10,
            }),
            ..TINY32.stage
        },
        ..TINY32
    };

    #[test]
    fn a_rotation_that_a_team_leaves_is_finished() {
        left_and_finished::<Goldilocks>(&TINY);
        assert_eq!(<Ntt as Arithmetic<Torus32>>::sums_per_column(&HALVES), 2);
        left_and_finished::<Torus32>(&HALVES);
    }

    /// A team whose members always come late leaves the rest to one thread, and nothing is lost or done twice.
    fn left_and_finished<M: Modulus>(set: &'static ParamSet) {
        let mut rng = Csprng::from_seed([31; 32]);
        let client = ClientKey::generate(set, &mut rng);
        let key: BootstrappingKey<M, Ntt> = client
            .loaded_bootstrapping_key(SimdLevel::best(), &mut rng, &Progress::none())
            .unwrap();
        let list = &key.samples;
        let params = list.params();
        let mut sample = vec![M::Word::default(); params.lwe_words()];
        let mut test_vector = vec![M::Word::default(); params.glwe_words()];
        rng.fill_uniform::<M>(&mut sample);
        rng.fill_uniform::<M>(&mut test_vector);
        let run = Run::with_threads(3);
        let turn = |how: &dyn Fn(&mut BlindRotation<'_, M, Ntt>)| {
            let mut acc = vec![M::Word::default(); params.glwe_words()];
            how(&mut BlindRotation::new(
                params,
                &test_vector,
                &sample,
                0,
                &mut acc,
            ));
            acc
        };
        let alone = turn(&|rotation| {
            let all = std::slice::from_mut(rotation);
            list.rotate_from(0, all, run).unwrap();
        });
        let left = turn(&|rotation| {
            let from = team::rotate(list, rotation, 3, Duration::ZERO, run).unwrap();
            assert!((1..list.count()).contains(&from), "{from}");
            let all = std::slice::from_mut(rotation);
            list.rotate_from(from, all, run).unwrap();
        });
        assert!(left == alone);
        let stayed = turn(&|rotation| {
            let from = team::rotate(list, rotation, 3, Duration::MAX, run).unwrap();
            assert_eq!(from, list.count());
        });
        assert!(stayed == alone);
    }
}
