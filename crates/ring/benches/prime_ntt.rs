//! Times of the negacyclic NTT modulo primes by degree, kind of modulus and instruction set.

use divan::Bencher;
use divan::counter::ItemsCount;
use toroid_ring::prime::ntt_primes;
use toroid_ring::prime_ntt::{Bits31, Bits50, Bits63, Kind, Ntt50Plan, PrimeNttPlan, Word};
use toroid_ring::simd::SimdLevel;

const DEGREES: [usize; 4] = [1024, 2048, 16384, 131_072];

fn main() {
    divan::main();
}

struct Case((usize, SimdLevel));

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.0.0, self.0.1)
    }
}

fn cases() -> impl Iterator<Item = Case> + Clone {
    DEGREES
        .into_iter()
        .flat_map(|n| SimdLevel::ALL.into_iter().map(move |simd| (n, simd)))
        .filter(|(_, simd)| simd.is_available())
        .map(Case)
}

/// A line of the cache: vectors that cross two lines would be slower.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// `n` words below q in lines.
struct Words(Vec<Line>);

impl Words {
    fn new<W: Word>(n: usize, q: u64) -> Self {
        let mut words = Words(vec![Line([0; 8]); (n * size_of::<W>()).div_ceil(64)]);
        for (i, word) in words.get::<W>(n).iter_mut().enumerate() {
            let x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % q;
            *word = W::truncate(x.into());
        }
        words
    }

    fn get<W: Word>(&mut self, n: usize) -> &mut [W] {
        // SAFETY: a line is words without padding, and `new` made enough of them.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), n) }
    }
}

fn plan<K: Kind>(n: usize, simd: SimdLevel) -> Option<PrimeNttPlan<K>> {
    let q = ntt_primes(n, 1 << K::BITS.min(62)).next()?;
    PrimeNttPlan::with_simd(n, q, simd).ok()
}

#[divan::bench(types = [Bits31, Bits50, Bits63], args = cases())]
fn forward<K: Kind>(bencher: Bencher, &Case((n, simd)): &Case) {
    let Some(plan) = plan::<K>(n, simd) else {
        return;
    };
    let mut a = Words::new::<K::Word>(n, plan.modulus());
    bencher
        .counter(ItemsCount::new(n))
        .bench_local(|| plan.forward(a.get(n)));
}

#[divan::bench(types = [Bits31, Bits50, Bits63], args = cases())]
fn inverse<K: Kind>(bencher: Bencher, &Case((n, simd)): &Case) {
    let Some(plan) = plan::<K>(n, simd) else {
        return;
    };
    let mut a = Words::new::<K::Word>(n, plan.modulus());
    bencher
        .counter(ItemsCount::new(n))
        .bench_local(|| plan.inverse(a.get(n)));
}

#[divan::bench(args = cases())]
fn forward_mul_add_2_columns(bencher: Bencher, &Case((n, simd)): &Case) {
    let Some(plan): Option<Ntt50Plan> = plan(n, simd) else {
        return;
    };
    let q = plan.modulus();
    let mut a = Words::new::<u64>(n, q);
    let (mut keys, mut sums) = (
        Words::new::<u64>(2 * n, q),
        Words(vec![Line([0; 8]); n / 4]),
    );
    for key in keys.get::<u64>(2 * n).chunks_exact_mut(n) {
        plan.prepare_key(key);
    }
    let coefficients = a.get::<u64>(n).to_vec();
    bencher.counter(ItemsCount::new(n)).bench_local(|| {
        a.get(n).copy_from_slice(&coefficients);
        plan.forward_mul_add::<true>(a.get(n), keys.get(2 * n), sums.get(2 * n));
    });
}
