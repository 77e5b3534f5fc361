//! Times of the discrete Fourier transform by length, modulus and instruction set, and of a product in the ring.

use divan::Bencher;
use divan::counter::ItemsCount;
use toroid_ring::cyclotomic::CyclotomicRing;
use toroid_ring::dft::DftPlan;
use toroid_ring::simd::SimdLevel;

/// Lengths of HElib's BGV parameters with moduli of 30 and 32 bits: 17·257 and 5·17·257 by prime factors, 8191 by Bluestein.
const CASES: [(usize, u32); 5] = [
    (4369, 1_067_014_657),
    (21845, 950_694_401),
    (21845, 4_244_570_881),
    (8191, 1_073_725_427),
    (8191, 4_294_754_267),
];

fn main() {
    divan::main();
}

struct Case {
    length: usize,
    modulus: u32,
    simd: SimdLevel,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} modulo {} {}", self.length, self.modulus, self.simd)
    }
}

fn cases() -> impl Iterator<Item = Case> {
    CASES.into_iter().flat_map(|(length, modulus)| {
        SimdLevel::available().map(move |simd| Case {
            length,
            modulus,
            simd,
        })
    })
}

fn plan(case: &Case) -> Option<DftPlan> {
    DftPlan::with_simd(case.length, case.modulus, case.simd).ok()
}

#[divan::bench(args = cases())]
fn forward(bencher: Bencher, case: &Case) {
    let Some(plan) = plan(case) else { return };
    let mut data: Vec<u32> = (0..case.length as u32).collect();
    let mut scratch = vec![0; plan.scratch_len()];
    bencher
        .counter(ItemsCount::new(case.length))
        .bench_local(|| plan.forward(&mut data, &mut scratch));
}

#[divan::bench(args = cases())]
fn ring_product(bencher: Bencher, case: &Case) {
    let Some(Ok(ring)) = plan(case).map(CyclotomicRing::with_plan) else {
        return;
    };
    let a: Vec<u32> = (0..ring.degree() as u32).collect();
    bencher
        .counter(ItemsCount::new(ring.degree()))
        .bench_local(|| ring.mul(&a, &a));
}
