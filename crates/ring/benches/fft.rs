//! Times of the f64 transform on every instruction set of this processor: `cargo bench -p toroid-ring --bench fft`.

#![allow(clippy::unwrap_used)]

use divan::{Bencher, black_box};
use toroid_ring::fft::{AlignedVec, FftPlan};
use toroid_ring::simd::SimdLevel;

const DEGREES: [usize; 3] = [1024, 2048, 16384];

fn cases() -> impl Iterator<Item = String> {
    SimdLevel::available().flat_map(|simd| DEGREES.map(|degree| format!("{simd} {degree}")))
}

fn plan(case: &str) -> FftPlan {
    let (simd, degree) = case.split_once(' ').unwrap();
    FftPlan::with_simd(degree.parse().unwrap(), simd.parse().unwrap()).unwrap()
}

fn signal(len: usize) -> AlignedVec {
    AlignedVec::from_slice(&(0..len).map(|i| (i as f64).sin()).collect::<Vec<_>>())
}

#[divan::bench(args = cases())]
fn forward(bencher: Bencher, case: &str) {
    let plan = plan(case);
    let coeffs = signal(plan.degree());
    let mut spectrum = AlignedVec::zeroed(plan.degree());
    bencher.bench_local(|| plan.forward(black_box(&coeffs), black_box(&mut spectrum)));
}

/// On zeros, since each run takes what the last one left.
#[divan::bench(args = cases())]
fn inverse(bencher: Bencher, case: &str) {
    let plan = plan(case);
    let mut spectrum = AlignedVec::zeroed(plan.degree());
    let mut coeffs = AlignedVec::zeroed(plan.degree());
    bencher.bench_local(|| plan.inverse(black_box(&mut spectrum), black_box(&mut coeffs)));
}

/// The products of one column of an external product with ten rows.
#[divan::bench(args = cases())]
fn mul_add_ten_rows(bencher: Bencher, case: &str) {
    let plan = plan(case);
    let rows = vec![signal(plan.degree()); 10];
    let keys = rows.clone();
    let rows: Vec<&[f64]> = rows.iter().map(|r| &**r).collect();
    let keys: Vec<&[f64]> = keys.iter().map(|k| &**k).collect();
    let mut acc = AlignedVec::zeroed(plan.degree());
    bencher
        .bench_local(|| plan.mul_add_rows(black_box(&mut acc), black_box(&rows), black_box(&keys)));
}

fn main() {
    divan::main();
}
