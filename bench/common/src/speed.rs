//! What a processor does at most: its clock, and how fast it reads memory.

use std::hint::black_box;
use std::time::Instant;

/// Cycles per second: the best of many runs of a chain of additions and exclusive ors, neither of which can begin before the one before it ends.
#[must_use]
pub fn clock() -> f64 {
    const STEPS: u64 = 500_000;
    let (a, b) = (black_box(0x9e37_79b9_7f4a_7c15u64), black_box(0x55u64));
    let mut best = f64::INFINITY;
    for _ in 0..200 {
        let mut x = black_box(1u64);
        let started = Instant::now();
        for _ in 0..STEPS {
            x = x.wrapping_add(a) ^ b;
        }
        black_box(x);
        best = best.min(started.elapsed().as_secs_f64());
    }
    2.0 * STEPS as f64 / best
}

/// Bytes per second that so many threads read from memory: the best of several passes over far more than any cache holds.
#[must_use]
pub fn read(threads: usize) -> f64 {
    const BYTES: usize = 1 << 29;
    let words = vec![1u64; BYTES / 8];
    let mut best = f64::INFINITY;
    for _ in 0..10 {
        let started = Instant::now();
        std::thread::scope(|scope| {
            for part in words.chunks_exact(words.len() / threads) {
                scope.spawn(|| {
                    black_box(part.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)))
                });
            }
        });
        best = best.min(started.elapsed().as_secs_f64());
    }
    BYTES as f64 / best
}
