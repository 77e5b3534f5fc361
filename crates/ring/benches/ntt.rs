//! Times of the negacyclic NTT by degree and instruction set.

use divan::Bencher;
use divan::counter::ItemsCount;
use toroid_ring::goldilocks::P;
use toroid_ring::ntt::NttPlan;
use toroid_ring::simd::SimdLevel;

const DEGREES: [usize; 4] = [1024, 2048, 16384, 131_072];

fn main() {
    divan::main();
}

fn cases() -> impl Iterator<Item = (usize, SimdLevel)> + Clone {
    DEGREES
        .into_iter()
        .flat_map(|n| SimdLevel::ALL.into_iter().map(move |simd| (n, simd)))
        .filter(|(_, simd)| simd.is_available())
}

/// A line of the cache: vectors that cross two lines would be slower.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// N canonical words in lines.
struct Polynomial(Vec<Line>);

impl Polynomial {
    fn new(n: usize) -> Self {
        let word = |i: usize| (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % P;
        let line = |i: usize| Line(std::array::from_fn(|j| word(8 * i + j)));
        Self((0..n / 8).map(line).collect())
    }

    fn words(&mut self) -> &mut [u64] {
        // SAFETY: a line is eight words without padding.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), 8 * self.0.len()) }
    }
}

#[divan::bench(args = cases().map(Case))]
fn forward(bencher: Bencher, case: &Case) {
    transform(bencher, case, NttPlan::forward);
}

#[divan::bench(args = cases().map(Case))]
fn inverse(bencher: Bencher, case: &Case) {
    transform(bencher, case, NttPlan::inverse);
}

fn transform(bencher: Bencher, &Case((n, simd)): &Case, run: fn(&NttPlan, &mut [u64])) {
    let Ok(plan) = NttPlan::with_simd(n, simd) else {
        return;
    };
    let mut a = Polynomial::new(n);
    bencher
        .counter(ItemsCount::new(n))
        .bench_local(|| run(&plan, a.words()));
}

#[divan::bench(args = cases().map(Case))]
fn mul_add_assign(bencher: Bencher, &Case((n, simd)): &Case) {
    let Ok(plan) = NttPlan::with_simd(n, simd) else {
        return;
    };
    let (mut acc, mut a, mut b) = (Polynomial::new(n), Polynomial::new(n), Polynomial::new(n));
    bencher
        .counter(ItemsCount::new(n))
        .bench_local(|| plan.mul_add_assign(acc.words(), a.words(), b.words()));
}

/// A transform and its products with two columns of keys.
#[divan::bench(args = cases().map(Case))]
fn forward_mul_add(bencher: Bencher, &Case((n, simd)): &Case) {
    let Ok(plan) = NttPlan::with_simd(n, simd) else {
        return;
    };
    let (mut a, mut keys, mut sums) = (
        Polynomial::new(n),
        Polynomial::new(2 * n),
        Polynomial::new(2 * n),
    );
    bencher
        .counter(ItemsCount::new(n))
        .bench_local(|| plan.forward_mul_add::<true>(a.words(), keys.words(), sums.words()));
}

struct Case((usize, SimdLevel));

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.0.0, self.0.1)
    }
}
