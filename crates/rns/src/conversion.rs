//! Fast base conversion: from residues modulo some primes to residues modulo others.
//!
//! With D = d_1·…·d_m, the sources' primes, x = sum_i y_i·(D/d_i) - v·D, where y_i = x·(D/d_i)^-1 mod d_i and v is the integer
//! nearest to sum_i y_i/d_i; so x comes out as its representative nearest to 0 (Halevi, Polyakov, Shoup: An improved RNS
//! variant of the BFV homomorphic encryption scheme, section 2.2). The quotients y_i/d_i are summed in f64, each with an error of
//! 2^-52 at most, in one order on every processor. The sum is off by less than m·2^-49, so that v is right for every x
//! with |x| < (1/2 - m·2^-49)·D, and off by one at most for the others, whose result is then x ± D: another
//! representative of the same class, still within (1/2 + m·2^-49)·D. What this crate uses a conversion for allows that.
//!
//! Sources are N·x, as they leave the inverse transform: 1/N is a part of the factor that gives y_i.

use rayon::prelude::*;
use toroid_ring::multiversion;
use toroid_ring::prime;
use toroid_ring::prime_ntt::{Ntt50Plan, Weights};
use toroid_ring::simd::SimdLevel;

/// Words of a part of a polynomial that is converted at a time: the rows of a digit and a result stay in the second level of cache.
const PART: usize = 2048;

/// A prime with its transform.
#[derive(Debug)]
pub(crate) struct Modulus {
    pub(crate) plan: Ntt50Plan,
    /// 1/N modulo the prime.
    pub(crate) degree_inverse: u64,
}

impl Modulus {
    pub(crate) fn q(&self) -> u64 {
        self.plan.modulus()
    }

    /// X^(N/2) in the first half of the values, where it is psi^(e·N/2) with e = 1 modulo 4. It is minus that in the second half,
    /// where e = 3 modulo 4.
    pub(crate) fn quarter_turn(&self) -> u64 {
        prime::pow(self.plan.psi(), self.plan.degree() as u64 / 2, self.q())
    }
}

#[derive(Debug)]
struct Source {
    /// Its number among all primes.
    prime: usize,
    /// 1/(N·D/d) modulo d.
    factor: Weights,
    /// 1/d
    inverse: f64,
}

#[derive(Debug)]
struct Target {
    /// Its number among all primes.
    prime: usize,
    /// D/d_i for each source, then -D.
    weights: Weights,
    /// 1/D modulo the prime.
    divisor_inverse: u64,
}

/// The tables of one conversion.
#[derive(Debug)]
pub(crate) struct Conversion {
    sources: Vec<Source>,
    targets: Vec<Target>,
}

multiversion! {
    /// The integers nearest to sum_i rows_i·inverses_i, for words below 2^50 and sums below 2^51. Rows are as long as `out`.
    fn quotients(rows: &[u64], inverses: &[f64], out: &mut [u64]) {
        /// 2^52: as the high bits of a double, with a word below 2^52 in its low bits.
        const UNIT: f64 = 4_503_599_627_370_496.0;
        // The words of `out` hold the sums on their way.
        out.fill(0);
        for (row, inverse) in rows.chunks_exact(out.len()).zip(inverses) {
            for (sum, word) in out.iter_mut().zip(row) {
                let word = f64::from_bits(word | UNIT.to_bits()) - UNIT;
                *sum = (f64::from_bits(*sum) + word * inverse).to_bits();
            }
        }
        for sum in out.iter_mut() {
            *sum = (f64::from_bits(*sum) + UNIT).to_bits() - UNIT.to_bits();
        }
    }
}

impl Conversion {
    /// Sources and targets by their numbers among `moduli`.
    pub(crate) fn new(moduli: &[Modulus], sources: &[usize], targets: &[usize]) -> Conversion {
        let product = |primes: &mut dyn Iterator<Item = usize>, q: u64| {
            primes.fold(1, |product, i| prime::mul(product, moduli[i].q(), q))
        };
        let but = |one: usize| sources.iter().copied().filter(move |i| *i != one);
        let source = |&index: &usize| {
            let q = moduli[index].q();
            let rest = product(&mut but(index), q);
            let factor = prime::mul(prime::inv(rest, q), moduli[index].degree_inverse, q);
            Source {
                prime: index,
                factor: moduli[index].plan.weights(&[factor]),
                inverse: 1.0 / q as f64,
            }
        };
        let target = |&index: &usize| {
            let q = moduli[index].q();
            let whole = product(&mut sources.iter().copied(), q);
            let weights: Vec<u64> = sources
                .iter()
                .map(|&i| product(&mut but(i), q))
                .chain([prime::neg(whole, q)])
                .collect();
            Target {
                prime: index,
                weights: moduli[index].plan.weights(&weights),
                divisor_inverse: prime::inv(whole, q),
            }
        };
        Conversion {
            sources: sources.iter().map(source).collect(),
            targets: targets.iter().map(target).collect(),
        }
    }

    /// The number of sources.
    pub(crate) fn sources(&self) -> usize {
        self.sources.len()
    }

    fn target(&self, prime: usize) -> &Target {
        let found = self
            .targets
            .binary_search_by_key(&prime, |target| target.prime);
        found.map_or_else(
            |_| panic!("no conversion to prime number {prime}"),
            |at| &self.targets[at],
        )
    }

    /// 1/D modulo prime number `prime`, a target.
    pub(crate) fn divisor_inverse(&self, prime: usize) -> u64 {
        self.target(prime).divisor_inverse
    }

    /// Converts the coefficients N·x in `from`, limb by limb in the order of the sources, to canonical coefficients of x in
    /// `to`: slices as long as a limb, each with the number of its prime, a target.
    pub(crate) fn convert(
        &self,
        moduli: &[Modulus],
        simd: SimdLevel,
        parallel: bool,
        from: &[u64],
        to: Vec<(usize, &mut [u64])>,
    ) {
        let degree = from.len() / self.sources.len();
        let part = PART.min(degree);
        let targets: Vec<&Target> = to.iter().map(|(prime, _)| self.target(*prime)).collect();
        let mut limbs: Vec<_> = to
            .into_iter()
            .map(|(_, limb)| limb.chunks_mut(part))
            .collect();
        let parts: Vec<(usize, Vec<&mut [u64]>)> = (0..degree)
            .step_by(part)
            .map(|start| (start, limbs.iter_mut().filter_map(Iterator::next).collect()))
            .collect();
        let rows = (self.sources.len() + 1) * part;
        let run = |scratch: &mut Vec<u64>, (start, outs): (usize, Vec<&mut [u64]>)| {
            scratch.resize(rows, 0);
            self.prepare(moduli, simd, from, start, scratch);
            let mut rows: [&[u64]; Ntt50Plan::TERMS] = Default::default();
            for (row, words) in rows.iter_mut().zip(scratch.chunks_exact(part)) {
                *row = words;
            }
            let rows = &rows[..self.sources.len() + 1];
            for (target, out) in targets.iter().zip(outs) {
                let plan = &moduli[target.prime].plan;
                plan.combine(out, rows, &target.weights);
            }
        };
        if parallel {
            parts.into_par_iter().for_each_init(Vec::new, run);
        } else {
            let mut scratch = Vec::new();
            parts.into_iter().for_each(|job| run(&mut scratch, job));
        }
    }

    /// The rows y_i, then v, of the part of `from` from coefficient `start` on.
    fn prepare(
        &self,
        moduli: &[Modulus],
        simd: SimdLevel,
        from: &[u64],
        start: usize,
        rows: &mut [u64],
    ) {
        let degree = from.len() / self.sources.len();
        let part = rows.len() / (self.sources.len() + 1);
        let (rows, quotient) = rows.split_at_mut(self.sources.len() * part);
        for (s, (source, row)) in self
            .sources
            .iter()
            .zip(rows.chunks_exact_mut(part))
            .enumerate()
        {
            let words = &from[s * degree + start..][..part];
            moduli[source.prime]
                .plan
                .combine(row, &[words], &source.factor);
        }
        let mut inverses = [0.0; Ntt50Plan::TERMS];
        for (inverse, source) in inverses.iter_mut().zip(&self.sources) {
            *inverse = source.inverse;
        }
        quotients(simd, rows, &inverses[..self.sources.len()], quotient);
    }
}
