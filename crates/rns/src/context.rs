//! A context: the transforms of every prime and the tables of base conversions, shared by all polynomials.

use std::sync::Arc;

use toroid_ring::prime;
use toroid_ring::prime_ntt::Ntt50Plan;
use toroid_ring::simd::SimdLevel;
use toroid_tfhe::parallel;

use crate::RnsError;
use crate::buffer::Pool;
use crate::conversion::{Conversion, Modulus};
use crate::params::RnsParams;

/// The most primes that one rescaling drops.
pub const MAX_RESCALE: usize = 3;

/// Who works on the limbs of a polynomial. The results are the same, bit by bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// The calling thread alone.
    One,
    /// The threads of the rayon pool that the caller is in.
    Pool,
}

/// The primes whose residues a polynomial has: the first `chain` of the chain and the first `special` special ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Basis {
    /// Primes of the chain.
    pub chain: usize,
    /// Special primes.
    pub special: usize,
}

impl Basis {
    /// The basis of ciphertexts of `limbs` limbs.
    #[must_use]
    pub fn chain(limbs: usize) -> Basis {
        Basis {
            chain: limbs,
            special: 0,
        }
    }

    /// Limbs of a polynomial.
    #[must_use]
    pub fn limbs(self) -> usize {
        self.chain + self.special
    }
}

/// Plans, tables and memory for one set of parameters.
#[derive(Debug)]
pub struct Context {
    params: RnsParams,
    threads: Threads,
    simd: SimdLevel,
    /// Of the chain, then of the special primes.
    moduli: Vec<Modulus>,
    pub(crate) pool: Pool,
    /// `[digit][primes - 1]`: from the first primes of a digit to all other primes of the chain and all special primes.
    raise: Vec<Vec<Conversion>>,
    /// From p_0, and from all special primes, to the chain.
    lower: [Conversion; 2],
    /// `[limbs - 1][count - 1]`: from the last `count` of `limbs` primes to those before.
    rescale: Vec<Vec<Conversion>>,
    /// `[limbs - 2]`: from the last of `limbs` primes and all special primes to the primes before.
    lower_rescale: Vec<Conversion>,
}

impl Context {
    /// A context with the best kernels of this processor, on the calling thread.
    ///
    /// # Errors
    /// What [`RnsParams::validate`] finds; [`RnsError::Ring`] from the plans.
    pub fn new(params: RnsParams) -> Result<Arc<Context>, RnsError> {
        Self::with(params, SimdLevel::best(), Threads::One)
    }

    /// A context with the kernels of an instruction set.
    ///
    /// # Errors
    /// As for [`Context::new`], and [`RnsError::Ring`] where the processor lacks `simd`.
    pub fn with(
        params: RnsParams,
        simd: SimdLevel,
        threads: Threads,
    ) -> Result<Arc<Context>, RnsError> {
        params.validate()?;
        let plan = |q: &u64| -> Result<Modulus, RnsError> {
            Ok(Modulus {
                plan: Ntt50Plan::with_simd(params.degree, *q, simd)?,
                degree_inverse: prime::inv(params.degree as u64, *q),
            })
        };
        let primes: Vec<&u64> = params.chain.iter().chain(&params.special).collect();
        let moduli = parallel::map(primes, |_, prime| plan(prime))
            .into_iter()
            .collect::<Result<Vec<Modulus>, RnsError>>()?;
        let (chain, all) = (params.chain.len(), moduli.len());
        let conversion = |sources: std::ops::Range<usize>, targets: Vec<usize>| {
            Conversion::new(&moduli, &sources.collect::<Vec<_>>(), &targets)
        };
        let raise = (0..chain)
            .step_by(params.digit_limbs)
            .map(|start| {
                let most = params.digit_limbs.min(chain - start);
                let from = |count: usize| {
                    let sources = start..start + count;
                    let others = (0..all).filter(|i| !sources.contains(i)).collect();
                    conversion(sources.clone(), others)
                };
                (1..=most).map(from).collect()
            })
            .collect();
        let lower = [1, params.special.len()]
            .map(|count| conversion(chain..chain + count, (0..chain).collect()));
        let rescale = (1..=chain)
            .map(|limbs| {
                (1..limbs.min(MAX_RESCALE + 1))
                    .map(|count| conversion(limbs - count..limbs, (0..limbs - count).collect()))
                    .collect()
            })
            .collect();
        let lower_rescale = (2..=chain)
            .map(|limbs| {
                let sources: Vec<usize> = std::iter::once(limbs - 1).chain(chain..all).collect();
                let targets: Vec<usize> = (0..limbs - 1).collect();
                Conversion::new(&moduli, &sources, &targets)
            })
            .collect();
        Ok(Arc::new(Context {
            threads,
            simd,
            pool: Pool::default(),
            raise,
            lower,
            rescale,
            lower_rescale,
            moduli,
            params,
        }))
    }

    /// The parameters.
    #[must_use]
    pub fn params(&self) -> &RnsParams {
        &self.params
    }

    /// N.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.params.degree
    }

    /// N/2, the number of complex slots.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.params.degree / 2
    }

    /// The most limbs of a ciphertext: primes of the chain.
    #[must_use]
    pub fn limbs(&self) -> usize {
        self.params.chain.len()
    }

    /// All primes, the chain's and the special ones.
    #[must_use]
    pub fn full_basis(&self) -> Basis {
        Basis {
            chain: self.params.chain.len(),
            special: self.params.special.len(),
        }
    }

    /// The instruction set of the kernels.
    #[must_use]
    pub fn simd(&self) -> SimdLevel {
        self.simd
    }

    /// Gives the memory of dropped polynomials back to the system.
    pub fn release_memory(&self) {
        self.pool.clear();
    }

    /// The prime of limb `limb` of a polynomial in `basis`.
    ///
    /// # Panics
    /// If the basis has fewer limbs.
    #[must_use]
    pub fn prime(&self, basis: Basis, limb: usize) -> u64 {
        self.modulus(basis, limb).q()
    }

    pub(crate) fn modulus(&self, basis: Basis, limb: usize) -> &Modulus {
        &self.moduli[self.index(basis, limb)]
    }

    /// The number of a limb's prime among all primes.
    pub(crate) fn index(&self, basis: Basis, limb: usize) -> usize {
        assert!(
            basis.chain <= self.limbs() && limb < basis.limbs(),
            "limb {limb} of {basis:?}"
        );
        if limb < basis.chain {
            limb
        } else {
            self.limbs() + limb - basis.chain
        }
    }

    pub(crate) fn moduli(&self) -> &[Modulus] {
        &self.moduli
    }

    /// The product of the first `special` special primes, modulo `q`.
    pub(crate) fn special_product(&self, special: usize, q: u64) -> u64 {
        let special = self.params.special[..special].iter();
        special.fold(1, |p, prime| prime::mul(p, prime % q, q))
    }

    /// The conversion from digit `digit` of a polynomial of `limbs` limbs to all other primes.
    pub(crate) fn raise(&self, digit: usize, limbs: usize) -> &Conversion {
        let start = digit * self.params.digit_limbs;
        let count = self.params.digit_limbs.min(limbs - start);
        &self.raise[digit][count - 1]
    }

    /// The conversion from the first `special` special primes, one or all of them.
    pub(crate) fn lower(&self, special: usize) -> &Conversion {
        &self.lower[usize::from(special != 1)]
    }

    /// The conversion from the last `count` of `limbs` primes to those before.
    pub(crate) fn rescale(&self, limbs: usize, count: usize) -> &Conversion {
        &self.rescale[limbs - 1][count - 1]
    }

    /// The conversion from the last of `limbs` primes, 2 at least, and all special primes to the primes before.
    pub(crate) fn lower_rescale(&self, limbs: usize) -> &Conversion {
        &self.lower_rescale[limbs - 2]
    }

    /// Calls `run` with the number and the words of every limb, on the threads of the context.
    pub(crate) fn each_limb(&self, words: &mut [u64], run: impl Fn(usize, &mut [u64]) + Sync) {
        self.each_limb_of([words], |limb, [words]| run(limb, words));
    }

    /// The same for the limbs of several polynomials side by side: as many as the shortest has.
    pub(crate) fn each_limb_of<const K: usize>(
        &self,
        polys: [&mut [u64]; K],
        run: impl Fn(usize, [&mut [u64]; K]) + Sync,
    ) {
        self.share_limbs(polys, &run);
    }

    /// The same for a function without a type of its own: what shares out limbs is compiled once, and not for each use.
    fn share_limbs<const K: usize>(
        &self,
        polys: [&mut [u64]; K],
        run: &(dyn Fn(usize, [&mut [u64]; K]) + Sync),
    ) {
        let degree = self.degree();
        let limbs = polys.iter().map(|words| words.len() / degree).min();
        let mut polys = polys.map(|words| words.chunks_exact_mut(degree));
        let jobs = (0..limbs.unwrap_or(0)).map(|_| {
            polys
                .each_mut()
                .map(|limbs| limbs.next().unwrap_or_default())
        });
        self.run_jobs(jobs, run);
    }

    /// The same for any number of polynomials.
    pub(crate) fn each_limb_of_all(
        &self,
        polys: Vec<&mut [u64]>,
        run: impl Fn(usize, Vec<&mut [u64]>) + Sync,
    ) {
        self.share_all_limbs(polys, &run);
    }

    /// The same for a function without a type of its own.
    fn share_all_limbs(
        &self,
        polys: Vec<&mut [u64]>,
        run: &(dyn Fn(usize, Vec<&mut [u64]>) + Sync),
    ) {
        let degree = self.degree();
        let limbs = polys.iter().map(|words| words.len() / degree).min();
        let mut polys: Vec<_> = polys
            .into_iter()
            .map(|words| words.chunks_exact_mut(degree))
            .collect();
        let jobs =
            (0..limbs.unwrap_or(0)).map(|_| polys.iter_mut().filter_map(Iterator::next).collect());
        self.run_jobs(jobs, run);
    }

    /// Calls `run` with the number of every job, on the threads of the context.
    pub(crate) fn run_jobs<J: Send>(
        &self,
        jobs: impl Iterator<Item = J>,
        run: impl Fn(usize, J) + Sync,
    ) {
        match self.threads {
            Threads::One => jobs.enumerate().for_each(|(limb, job)| run(limb, job)),
            Threads::Pool => parallel::for_each(jobs, run),
        }
    }

    /// Whether limbs are shared out among threads.
    pub(crate) fn is_parallel(&self) -> bool {
        self.threads == Threads::Pool
    }
}
