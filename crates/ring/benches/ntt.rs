//! Times of the negacyclic NTT by degree and instruction set.

use divan::Bencher;
use divan::counter::ItemsCount;
use toroid_ring::goldilocks::P;
use toroid_ring::ntt::NttPlan;
use toroid_ring::simd::Isa;

const DEGREES: [usize; 4] = [1024, 2048, 16384, 131_072];

fn main() {
    divan::main();
}

fn cases() -> impl Iterator<Item = (usize, Isa)> + Clone {
    DEGREES
        .into_iter()
        .flat_map(|n| Isa::ALL.into_iter().map(move |isa| (n, isa)))
        .filter(|(_, isa)| isa.is_available())
}

/// N canonical words, aligned to the lines of the cache: how the library keeps its polynomials.
fn polynomial(n: usize) -> Vec<[u64; 8]> {
    let word = |i: usize| (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % P;
    (0..n / 8)
        .map(|i| std::array::from_fn(|j| word(8 * i + j)))
        .collect()
}

#[divan::bench(args = cases().map(Case))]
fn forward(bencher: Bencher, case: &Case) {
    transform(bencher, case, NttPlan::forward);
}

#[divan::bench(args = cases().map(Case))]
fn inverse(bencher: Bencher, case: &Case) {
    transform(bencher, case, NttPlan::inverse);
}

fn transform(bencher: Bencher, &Case((n, isa)): &Case, run: fn(&NttPlan, &mut [u64])) {
    let Ok(plan) = NttPlan::with_isa(n, isa) else {
        return;
    };
    let mut a = polynomial(n);
    bencher
        .counter(ItemsCount::new(n))
        .bench_local(|| run(&plan, a.as_flattened_mut()));
}

#[divan::bench(args = cases().map(Case))]
fn mul_add_assign(bencher: Bencher, &Case((n, isa)): &Case) {
    let Ok(plan) = NttPlan::with_isa(n, isa) else {
        return;
    };
    let (mut acc, a, b) = (polynomial(n), polynomial(n), polynomial(n));
    bencher.counter(ItemsCount::new(n)).bench_local(|| {
        plan.mul_add_assign(acc.as_flattened_mut(), a.as_flattened(), b.as_flattened())
    });
}

struct Case((usize, Isa));

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.0.0, self.0.1)
    }
}
