//! Transforms alone.

use std::time::{Duration, Instant};

use bytemuck::Pod;
use tfhe::core_crypto::prelude::ComputationBuffers;
use tfhe_fft::c64;
use tfhe_fft::unordered::{Method, Plan as PeerFft};
use toroid_bench_common::{Error, machine};
use toroid_ring::dft::DftPlan;
use toroid_ring::fft::{AlignedVec, FftPlan};
use toroid_ring::goldilocks::P;
use toroid_ring::ntt::NttPlan;
use toroid_ring::prime::{self, ntt_primes};
use toroid_ring::prime_ntt::{Kind, Ntt32Plan, Ntt50Plan, Ntt63Plan, PrimeNttPlan};

use crate::measure::{Measurement, interleave, timed};
use crate::row::{Row, Settings};

/// Transforms in one timed run: enough to make the clock's own time negligible, and few enough that the peer's FFT, in
/// place and not normalized, stays far from overflow (a factor of at most 2^6.5 each).
fn repetitions(n: usize) -> u32 {
    ((1 << 18) / n).min(100) as u32
}

/// One library's transform modulo a prime, and the negacyclic product by it, which both must agree on: their values
/// stand in different orders, at powers of different roots.
struct Side<W> {
    transform: Box<Transform<W>>,
    product: Box<Product<W>>,
}

/// Works in place.
type Transform<W> = dyn Fn(&mut [W]);
/// Multiplies the first polynomial by the second, which is destroyed.
type Product<W> = dyn Fn(&mut [W], &mut [W]);

/// A side from what both libraries call alike.
macro_rules! side {
    ($plan:expr, $transform:ident, $product:expr) => {{
        let plan = std::rc::Rc::new($plan);
        let transformer = plan.clone();
        let product = $product;
        Side {
            transform: Box::new(move |a| transformer.$transform(a)),
            product: Box::new(move |a, b| product(&plan, a, b)),
        }
    }};
}

/// Negacyclic NTT over the Goldilocks prime.
pub fn goldilocks<const N: usize>(row: &Row, settings: &Settings) -> Result<Measurement, Error> {
    let ours = side!(NttPlan::new(N)?, forward, product_goldilocks);
    let peer = side!(peer64(N, P)?, fwd, peer_product64);
    number_theoretic(row, settings, (N, P), &ours, &peer)
}

/// Its inverse, not normalized.
pub fn inverse_goldilocks<const N: usize>(
    row: &Row,
    settings: &Settings,
) -> Result<Measurement, Error> {
    let ours = side!(NttPlan::new(N)?, inverse, product_goldilocks);
    let peer = side!(peer64(N, P)?, inv, peer_product64);
    number_theoretic(row, settings, (N, P), &ours, &peer)
}

/// Negacyclic NTT modulo the largest prime of `BITS` bits, 50 at most.
pub fn prime50<const N: usize, const BITS: u32>(
    row: &Row,
    settings: &Settings,
) -> Result<Measurement, Error> {
    let q = largest_prime(N, BITS)?;
    let ours = side!(Ntt50Plan::new(N, q)?, forward, product);
    let peer = side!(peer64(N, q)?, fwd, peer_product64);
    number_theoretic(row, settings, (N, q), &ours, &peer)
}

/// Negacyclic NTT modulo the largest prime of 62 bits.
pub fn prime62<const N: usize>(row: &Row, settings: &Settings) -> Result<Measurement, Error> {
    let q = largest_prime(N, 62)?;
    let ours = side!(Ntt63Plan::new(N, q)?, forward, product);
    let peer = side!(peer64(N, q)?, fwd, peer_product64);
    number_theoretic(row, settings, (N, q), &ours, &peer)
}

/// Negacyclic NTT modulo the largest prime of 30 bits, in words of 32.
pub fn prime31<const N: usize>(row: &Row, settings: &Settings) -> Result<Measurement, Error> {
    let q = largest_prime(N, 30)?;
    let ours = side!(Ntt32Plan::new(N, q)?, forward, product);
    let peer = side!(peer32(N, q)?, fwd, peer_product32);
    number_theoretic(row, settings, (N, q), &ours, &peer)
}

/// The largest prime below 2^bits with the roots of a negacyclic transform.
fn largest_prime(n: usize, bits: u32) -> Result<u64, Error> {
    ntt_primes(n, 1 << bits)
        .next()
        .ok_or_else(|| format!("no prime of {bits} bits for N = {n}").into())
}

fn peer64(n: usize, q: u64) -> Result<tfhe_ntt::prime64::Plan, Error> {
    Ok(tfhe_ntt::prime64::Plan::try_new(n, q).ok_or("tfhe-ntt has no plan")?)
}

fn peer32(n: usize, q: u64) -> Result<tfhe_ntt::prime32::Plan, Error> {
    Ok(tfhe_ntt::prime32::Plan::try_new(n, u32::try_from(q)?).ok_or("tfhe-ntt has no plan")?)
}

fn product_goldilocks(plan: &NttPlan, a: &mut [u64], b: &mut [u64]) {
    plan.forward(a);
    plan.forward(b);
    plan.mul_assign(a, b);
    plan.inverse(a);
    plan.scale_assign(a, toroid_ring::goldilocks::inv(plan.degree() as u64));
}

fn product<K: Kind>(plan: &PrimeNttPlan<K>, a: &mut [K::Word], b: &mut [K::Word]) {
    plan.forward(a);
    plan.forward(b);
    plan.mul_assign(a, b);
    plan.inverse(a);
    plan.scale_assign(a, prime::inv(plan.degree() as u64, plan.modulus()));
}

fn peer_product64(plan: &tfhe_ntt::prime64::Plan, a: &mut [u64], b: &mut [u64]) {
    plan.fwd(a);
    plan.fwd(b);
    plan.mul_assign_normalize(a, b);
    plan.inv(a);
}

fn peer_product32(plan: &tfhe_ntt::prime32::Plan, a: &mut [u32], b: &mut [u32]) {
    plan.fwd(a);
    plan.fwd(b);
    plan.mul_assign_normalize(a, b);
    plan.inv(a);
}

/// A polynomial of some canonical words.
fn some_words<W: TryFrom<u64>>(n: usize, q: u64, factor: u64) -> Result<Vec<W>, Error> {
    (1..=n as u64)
        .map(|i| {
            W::try_from(i.wrapping_mul(factor) % q).map_err(|_| "a modulus above the word".into())
        })
        .collect()
}

/// Room for `n` words that begins on a line of the cache.
fn lines<W>(n: usize) -> AlignedVec {
    AlignedVec::zeroed((n * size_of::<W>()).div_ceil(8))
}

fn number_theoretic<W: Pod + PartialEq + TryFrom<u64>>(
    row: &Row,
    settings: &Settings,
    (n, q): (usize, u64),
    ours: &Side<W>,
    peer: &Side<W>,
) -> Result<Measurement, Error> {
    let a: Vec<W> = some_words(n, q, 0x9e37_79b9_7f4a_7c15)?;
    let b: Vec<W> = some_words(n, q, 0xd6e8_feb8_6659_fd93)?;
    let [our_product, peer_product] = [ours, peer].map(|side| {
        let (mut product, mut other) = (a.clone(), b.clone());
        (side.product)(&mut product, &mut other);
        product
    });
    if our_product != peer_product {
        return Err("the two products differ".into());
    }
    let (mut our_lines, mut peer_lines) = (lines::<W>(n), lines::<W>(n));
    let our_words: &mut [W] = &mut bytemuck::cast_slice_mut(&mut our_lines)[..n];
    let peer_words: &mut [W] = &mut bytemuck::cast_slice_mut(&mut peer_lines)[..n];
    our_words.copy_from_slice(&a);
    peer_words.copy_from_slice(&a);
    (ours.transform)(our_words);
    let peak = machine::peak_memory();
    let mut measurement = interleave(
        row.runs(settings),
        || Ok(repeat(n, || (ours.transform)(our_words))),
        || Ok(repeat(n, || (peer.transform)(peer_words))),
    )?;
    measurement.our_peak = peak;
    Ok(measurement)
}

/// Points of the DFT of the platform for BGV.
const DFT_LENGTH: usize = 21845;
/// Degree of the NTT that stands for the peer there.
const DFT_PEER: usize = 16384;

/// The DFT of 21845 points, against an NTT of 16384.
pub fn dft_21845(row: &Row, settings: &Settings) -> Result<Measurement, Error> {
    // Rader's convolutions need 256 | q - 1 too.
    let order = 256 * DFT_LENGTH as u64;
    let q = (1..(1u64 << 31) / order)
        .rev()
        .map(|k| k * order + 1)
        .find(|q| prime::is_prime(*q))
        .ok_or("no prime of 31 bits")?;
    let plan = DftPlan::new(DFT_LENGTH, u32::try_from(q)?)?;
    let start: Vec<u32> = some_words(DFT_LENGTH, q, 0x9e37_79b9_7f4a_7c15)?;
    let mut our_lines = lines::<u32>(DFT_LENGTH + 1);
    let data: &mut [u32] = &mut bytemuck::cast_slice_mut(&mut our_lines)[..DFT_LENGTH];
    let mut scratch = vec![0u32; plan.scratch_len()];
    data.copy_from_slice(&start);
    plan.forward(data, &mut scratch);
    check_dft(&plan, &start, data)?;
    let peak = machine::peak_memory();

    let peer_q = largest_prime(DFT_PEER, 30)?;
    let peer = peer32(DFT_PEER, peer_q)?;
    let mut peer_lines = lines::<u32>(DFT_PEER);
    let peer_words: &mut [u32] = bytemuck::cast_slice_mut(&mut peer_lines);
    peer_words.copy_from_slice(&some_words::<u32>(DFT_PEER, peer_q, 0x9e37_79b9_7f4a_7c15)?);
    let mut measurement = interleave(
        row.runs(settings),
        || Ok(repeat(DFT_PEER, || plan.forward(data, &mut scratch))),
        || Ok(repeat(DFT_PEER, || peer.fwd(peer_words))),
    )?;
    measurement.our_peak = peak;
    measurement.note = format!(
        "q = {q}, natural order on both sides, {:?}; the peer has no such transform: its NTT of 2^14 points stands for the machine's speed modulo primes of 32 bits",
        plan.algorithm()
    );
    Ok(measurement)
}

/// Compares some values with their definition.
fn check_dft(plan: &DftPlan, coefficients: &[u32], values: &[u32]) -> Result<(), Error> {
    let q = u64::from(plan.modulus());
    for index in [0, 1, 2, 4369, DFT_LENGTH - 1] {
        let w = prime::pow(u64::from(plan.root()), index as u64, q);
        let expected = coefficients
            .iter()
            .rev()
            .fold(0, |sum, c| (sum * w + u64::from(*c)) % q);
        if u64::from(values[index]) != expected {
            return Err(format!("value {index} of the DFT is wrong").into());
        }
    }
    Ok(())
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
    ours();
    let peak = machine::peak_memory();
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
    measurement.our_peak = peak;
    measurement.note = "the peer's figure is the complex FFT of N/2 points alone, without the fold and twist of a \
                        negacyclic transform, which ours includes; its algorithm is the best of four choices of its planner"
        .to_owned();
    Ok(measurement)
}
