//! Transforms alone.

use std::time::{Duration, Instant};

use tfhe::core_crypto::prelude::ComputationBuffers;
use tfhe_fft::c64;
use tfhe_fft::unordered::{Method, Plan as PeerFft};
use toroid_ring::fft::{AlignedVec, FftPlan};
use toroid_ring::goldilocks::P;
use toroid_ring::ntt::NttPlan;

use super::{Row, Settings};
use crate::Error;
use crate::measure::{Measurement, interleave, timed};

/// Transforms in one timed run: enough to make the clock's own time negligible, and few enough that the peer's FFT, in
/// place and not normalized, stays far from overflow (a factor of at most 2^6.5 each).
fn repetitions(n: usize) -> u32 {
    ((1 << 18) / n).min(100) as u32
}

/// Negacyclic NTT over the Goldilocks prime.
pub fn ntt<const N: usize>(row: &Row, settings: &Settings) -> Result<Measurement, Error> {
    number_theoretic::<N>(
        row,
        settings,
        NttPlan::forward,
        tfhe_ntt::prime64::Plan::fwd,
    )
}

/// Its inverse, not normalized.
pub fn intt<const N: usize>(row: &Row, settings: &Settings) -> Result<Measurement, Error> {
    number_theoretic::<N>(
        row,
        settings,
        NttPlan::inverse,
        tfhe_ntt::prime64::Plan::inv,
    )
}

fn number_theoretic<const N: usize>(
    row: &Row,
    settings: &Settings,
    our_transform: fn(&NttPlan, &mut [u64]),
    peer_transform: fn(&tfhe_ntt::prime64::Plan, &mut [u64]),
) -> Result<Measurement, Error> {
    let ours = NttPlan::new(N)?;
    let peer = tfhe_ntt::prime64::Plan::try_new(N, P).ok_or("tfhe-ntt has no plan")?;
    check_ntt(&ours, &peer)?;
    let word = |i: usize| (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % P;
    let lines =
        || AlignedVec::from_slice(&(0..N).map(|i| f64::from_bits(word(i))).collect::<Vec<_>>());
    let (mut our_lines, mut peer_lines) = (lines(), lines());
    let our_words: &mut [u64] = bytemuck::cast_slice_mut(&mut our_lines);
    let peer_words: &mut [u64] = bytemuck::cast_slice_mut(&mut peer_lines);
    interleave(
        row.runs(settings),
        || Ok(repeat(N, || our_transform(&ours, our_words))),
        || Ok(repeat(N, || peer_transform(&peer, peer_words))),
    )
}

/// Both must compute the same negacyclic product.
fn check_ntt(ours: &NttPlan, peer: &tfhe_ntt::prime64::Plan) -> Result<(), Error> {
    let n = ours.degree();
    let [a, b] = [3u64, 5].map(|factor| {
        (0..n)
            .map(|i| (i as u64).wrapping_mul(factor << 32) % P)
            .collect::<Vec<_>>()
    });
    let (mut our_a, mut our_b) = (a.clone(), b.clone());
    ours.forward(&mut our_a);
    ours.forward(&mut our_b);
    ours.mul_assign(&mut our_a, &our_b);
    ours.inverse(&mut our_a);
    ours.scale_assign(&mut our_a, toroid_ring::goldilocks::inv(n as u64));
    let (mut peer_a, mut peer_b) = (a, b);
    peer.fwd(&mut peer_a);
    peer.fwd(&mut peer_b);
    peer.mul_assign_normalize(&mut peer_a, &peer_b);
    peer.inv(&mut peer_a);
    if our_a == peer_a {
        Ok(())
    } else {
        Err("the two products differ".into())
    }
}

/// Mean time of one of several calls.
fn repeat(n: usize, mut work: impl FnMut()) -> Duration {
    let repetitions = repetitions(n);
    timed(|| (0..repetitions).for_each(|_| work())).0 / repetitions
}

/// The plan of tfhe-fft that is fastest here. The library chooses among its algorithms by timing each once, which a busy
/// moment spoils; the best of several choices is what it can do.
pub fn best_peer_fft(n: usize) -> PeerFft {
    let points = n / 2;
    let (mut best, mut best_time) = (None, Duration::MAX);
    for _ in 0..4 {
        let plan = PeerFft::new(points, Method::Measure(Duration::from_millis(10)));
        let mut buffers = ComputationBuffers::new();
        buffers.resize(plan.fft_scratch().unaligned_bytes_required());
        let mut values = vec![c64::default(); points];
        for _ in 0..200 {
            let started = Instant::now();
            plan.fwd(&mut values, buffers.stack());
            let time = started.elapsed();
            if time < best_time {
                (best, best_time) = (Some(plan.algo()), time);
            }
        }
    }
    match best {
        Some((base_algo, base_n)) => {
            PeerFft::new(points, Method::UserProvided { base_algo, base_n })
        }
        None => PeerFft::new(points, Method::Measure(Duration::from_millis(10))),
    }
}

/// Negacyclic f64 FFT of N coefficients.
pub fn fft<const N: usize>(row: &Row, settings: &Settings) -> Result<Measurement, Error> {
    let plan = FftPlan::new(N)?;
    let (coefficients, mut spectrum) = (AlignedVec::from_slice(&numbers(N)), AlignedVec::zeroed(N));
    floating(row, settings, N, PeerFft::fwd, || {
        plan.forward(&coefficients, &mut spectrum)
    })
}

/// Its inverse, not normalized.
pub fn ifft<const N: usize>(row: &Row, settings: &Settings) -> Result<Measurement, Error> {
    let plan = FftPlan::new(N)?;
    let (mut spectrum, mut coefficients) =
        (AlignedVec::from_slice(&numbers(N)), AlignedVec::zeroed(N));
    // The inverse uses up its spectrum; what is left in it grows as the peer's values do.
    let mut runs = 0;
    floating(row, settings, N, PeerFft::inv, || {
        if runs % repetitions(N) == 0 {
            spectrum.fill(1.0);
        }
        runs += 1;
        plan.inverse(&mut spectrum, &mut coefficients);
    })
}

fn numbers(n: usize) -> Vec<f64> {
    (0..n).map(|i| ((i * 37) % 64) as f64 - 31.5).collect()
}

fn floating(
    row: &Row,
    settings: &Settings,
    n: usize,
    peer_transform: fn(&PeerFft, &mut [c64], &mut tfhe::core_crypto::prelude::PodStack),
    mut ours: impl FnMut(),
) -> Result<Measurement, Error> {
    let peer = best_peer_fft(n);
    let mut buffers = ComputationBuffers::new();
    buffers.resize(peer.fft_scratch().unaligned_bytes_required());
    let start = numbers(n);
    let mut lines = AlignedVec::zeroed(n);
    let mut measurement = interleave(
        row.runs(settings),
        || Ok(repeat(n, &mut ours)),
        || {
            lines.copy_from_slice(&start);
            let values: &mut [c64] = bytemuck::cast_slice_mut(&mut lines);
            Ok(repeat(n, || peer_transform(&peer, values, buffers.stack())))
        },
    )?;
    measurement.note = "the peer's figure is the complex FFT of N/2 points alone, without the fold and twist of a \
                        negacyclic transform, which ours includes; its algorithm is the best of four choices of its planner"
        .to_owned();
    Ok(measurement)
}
