//! Randomness: a ChaCha20 generator seeded by the operating system, uniform words and Gaussian noise.
//!
//! A generator has two streams of ChaCha20 under its seed: stream 0 gives all that is secret (key bits, noise, seeds of
//! other generators), stream 1 all that is published (tags of keys, masks of fresh samples, the seeds of public keys'
//! masks). A published seed ([`crate::seeded`]) is the key of streams of its own, so nothing that an expansion reads is a
//! part of the streams that secrets come from.
//!
//! A generator belongs to the process that made it. In a child of `fork` it takes a fresh seed from the operating system
//! before it gives anything, since parent and child would else give the same masks and noise. Every call compares the process' identifier,
//! a system call of less than a tenth of a microsecond beside the microseconds that a sample takes. It sees
//! children that are made without the C library's `fork` too, and needs no unsafe code.
//!
//! The Gaussian sampler (Box and Muller) evaluates polynomials only: no branch and no table index depends on the noise.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use toroid_ring::multiversion;
use toroid_ring::simd::SimdLevel;
use zeroize::{Zeroize, Zeroizing};

use crate::modulus::{Modulus, nearest_i64};
use crate::{TfheError, params::ModulusKind};

/// A cryptographic generator: ChaCha20; its state is zeroized when it is dropped.
pub struct Csprng {
    secret: ChaCha20Rng,
    public: ChaCha20Rng,
    /// The process that draws from these streams.
    process: u32,
}

/// How many samples are drawn at a time.
const BATCH: usize = 512;

/// Number of the stream that gives what is published.
const PUBLIC_STREAM: u64 = 1;

impl Csprng {
    /// Seeded by the operating system.
    ///
    /// # Errors
    /// [`TfheError::Entropy`] where the system's generator fails.
    pub fn from_os() -> Result<Csprng, TfheError> {
        let mut seed = Zeroizing::new([0u8; 32]);
        getrandom::fill(seed.as_mut()).map_err(|error| TfheError::Entropy(error.to_string()))?;
        Ok(Csprng::from_seed(*seed))
    }

    /// Seeded by the caller: for reproducible tests. Never use a known seed for keys that protect something.
    #[must_use]
    pub fn from_seed(seed: [u8; 32]) -> Csprng {
        Csprng {
            secret: stream(&seed, 0),
            public: stream(&seed, PUBLIC_STREAM),
            process: std::process::id(),
        }
    }

    /// Takes a fresh seed if this process is a child of the one that the generator belongs to.
    fn own(&mut self) {
        if self.process != std::process::id() {
            *self = Csprng::from_os().expect("the system gives random bytes after a fork");
        }
    }

    fn secret(&mut self) -> &mut ChaCha20Rng {
        self.own();
        &mut self.secret
    }

    fn public(&mut self) -> &mut ChaCha20Rng {
        self.own();
        &mut self.public
    }

    /// A new generator, seeded by this one, for a task that runs side by side.
    pub fn fork(&mut self) -> Csprng {
        let mut seed = Zeroizing::new([0u8; 32]);
        self.secret().fill_bytes(seed.as_mut());
        Csprng::from_seed(*seed)
    }

    /// Uniform bytes to publish: a tag, a seed of masks.
    pub(crate) fn public_bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.public().fill_bytes(&mut bytes);
        bytes
    }

    /// 64 uniform bits.
    pub fn next_u64(&mut self) -> u64 {
        self.secret().next_u64()
    }

    /// Fills a buffer with uniform bytes.
    pub fn fill_bytes(&mut self, bytes: &mut [u8]) {
        self.secret().fill_bytes(bytes);
    }

    /// Fills a buffer with uniform bits, one a word.
    pub fn fill_bits(&mut self, bits: &mut [u64]) {
        let secret = self.secret();
        for chunk in bits.chunks_mut(64) {
            let word = Zeroizing::new(secret.next_u64());
            for (i, bit) in chunk.iter_mut().enumerate() {
                *bit = (*word >> i) & 1;
            }
        }
    }

    /// Fills a buffer with uniform words modulo q that are no secret: masks.
    pub fn fill_uniform<M: Modulus>(&mut self, words: &mut [M::Word]) {
        fill_uniform::<M>(self.public(), words);
    }

    /// Adds rounded Gaussian noise of standard deviation `2^log2_sigma` (a fraction of the torus) to every word.
    ///
    /// # Panics
    /// If the standard deviation is above 2^47 units of the modulus, for which the rounding is not made.
    pub fn add_noise<M: Modulus>(&mut self, log2_sigma: f64, words: &mut [M::Word]) {
        let log2_units = log2_sigma + M::KIND.log2();
        assert!(
            log2_units <= 47.0,
            "noise of 2^{log2_units} units is too wide"
        );
        let sigma = log2_units.exp2();
        self.normals(words, |word, x| {
            *word = M::add_masked(*word, M::from_signed_masked(nearest_i64(x * sigma)));
        });
    }

    /// Fills a buffer with rounded Gaussian noise of standard deviation `sigma` units.
    ///
    /// # Panics
    /// If the standard deviation is not between 0 and 2^47, for which the rounding is made.
    pub fn fill_gaussian(&mut self, sigma: f64, out: &mut [i64]) {
        assert!(
            (0.0..=2f64.powi(47)).contains(&sigma),
            "noise of {sigma} units is too wide"
        );
        self.normals(out, |number, x| *number = nearest_i64(x * sigma));
    }

    /// Calls `set` with every item and a standard normal number for it.
    fn normals<T>(&mut self, items: &mut [T], set: impl Fn(&mut T, f64)) {
        let mut uniform = [0u64; BATCH];
        let mut normal = [0f64; BATCH];
        let secret = self.secret();
        for chunk in items.chunks_mut(BATCH) {
            secret.fill_bytes(bytemuck::cast_slice_mut(&mut uniform));
            box_muller(SimdLevel::best(), &uniform, &mut normal);
            for (item, x) in chunk.iter_mut().zip(&normal) {
                set(item, *x);
            }
        }
        uniform.zeroize();
        normal.zeroize();
    }
}

/// A number that stands for these bytes within this process, where samples are compared. The hash has a random key, so that
/// nobody can make two samples that are taken for one.
#[must_use]
pub fn fingerprint(bytes: &[u8]) -> u64 {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let mut hasher = KEY.build_hasher();
    hasher.write(bytes);
    hasher.finish()
}

/// Stream `number` of the generator that `seed` is the key of: 64-bit block counter from 0, 64-bit nonce `number`.
pub(crate) fn stream(seed: &[u8; 32], number: u64) -> ChaCha20Rng {
    let mut rng = ChaCha20Rng::from_seed(*seed);
    rng.set_stream(number);
    rng
}

/// Fills a buffer with uniform words modulo q: as many little-endian words of the stream; those not below q are replaced, in
/// the order of their places, by the next words of the stream that are.
pub(crate) fn fill_uniform<M: Modulus>(rng: &mut impl Rng, words: &mut [M::Word]) {
    rng.fill_bytes(bytemuck::cast_slice_mut(words));
    if M::KIND == ModulusKind::Goldilocks {
        for word in words.iter_mut() {
            while !M::is_canonical(*word) {
                if let Some(fresh) = M::uniform(rng.next_u64()) {
                    *word = fresh;
                }
            }
        }
    }
}

/// Fills a buffer with uniform words modulo any q above 0: as many little-endian words of the stream, reduced; those not
/// below the largest multiple of q are replaced before, in the order of their places, by the next words of the stream that are.
pub(crate) fn fill_residues(rng: &mut impl Rng, q: u64, words: &mut [u64]) {
    let excess = (u64::MAX % q + 1) % q;
    rng.fill_bytes(bytemuck::cast_slice_mut(words));
    for word in words.iter_mut() {
        while *word > u64::MAX - excess {
            *word = rng.next_u64();
        }
        *word %= q;
    }
}

/// ln(x) for a positive, normal x: exponent and mantissa apart, then the series of 2·artanh. Error below 1e-12.
#[inline(always)]
fn ln(x: f64) -> f64 {
    // Mantissa in [sqrt(1/2), sqrt(2)), so that the argument of artanh stays below 0.172.
    const SQRT_HALF_BITS: u64 = 0x3fe6_a09e_667f_3bcd;
    let shifted = x.to_bits().wrapping_sub(SQRT_HALF_BITS);
    let exponent = (shifted.cast_signed() >> 52) as i32;
    let mantissa = f64::from_bits((shifted & ((1 << 52) - 1)).wrapping_add(SQRT_HALF_BITS));
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let s2 = s * s;
    let mut series = 0.0;
    let mut k = 15;
    while k > 0 {
        series = series * s2 + 1.0 / f64::from(k);
        k -= 2;
    }
    f64::from(exponent) * std::f64::consts::LN_2 + 2.0 * s * series
}

/// 1/(k·(k+1)) for k = first, first + 2, …: the ratios between the terms of the series of sine and cosine.
const fn ratios(first: u32) -> [f64; 14] {
    let mut ratios = [0.0; 14];
    let mut i = 0;
    while i < ratios.len() {
        let k = first + 2 * i as u32;
        ratios[i] = 1.0 / (k * (k + 1)) as f64;
        i += 1;
    }
    ratios
}

const SIN_RATIOS: [f64; 14] = ratios(2);
const COS_RATIOS: [f64; 14] = ratios(1);

/// (sin, cos) of 2·pi·w for w in [-1/2, 1/2) by their Taylor series. Error below 1e-12.
#[inline(always)]
fn sin_cos_turn(w: f64) -> (f64, f64) {
    let x = w * std::f64::consts::TAU;
    let x2 = x * x;
    let (mut sin, mut cos) = (1.0, 1.0);
    for i in (0..SIN_RATIOS.len()).rev() {
        sin = 1.0 - sin * (x2 * SIN_RATIOS[i]);
        cos = 1.0 - cos * (x2 * COS_RATIOS[i]);
    }
    (x * sin, cos)
}

multiversion! {
    /// Pairs of uniform words to pairs of standard normal values. Both slices have `BATCH` entries.
    fn box_muller(uniform: &[u64; BATCH], normal: &mut [f64; BATCH]) {
        const UNIT: f64 = 1.0 / (1u64 << 53) as f64;
        for i in 0..BATCH / 2 {
            let u = ((uniform[i] >> 11) + 1) as f64 * UNIT;
            let w = (uniform[BATCH / 2 + i] >> 11) as f64 * UNIT - 0.5;
            let radius = (-2.0 * ln(u)).sqrt();
            let (sin, cos) = sin_cos_turn(w);
            normal[i] = radius * cos;
            normal[BATCH / 2 + i] = radius * sin;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modulus::{Goldilocks, Torus32};

    #[test]
    fn elementary_functions_match_the_standard_library() {
        let mut rng = Csprng::from_seed([1; 32]);
        for _ in 0..10_000 {
            let u = ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
            assert!((ln(u) - u.ln()).abs() < 1e-12, "ln {u}");
            let (sin, cos) = sin_cos_turn(u - 0.5);
            let (s, c) = ((u - 0.5) * std::f64::consts::TAU).sin_cos();
            assert!(
                (sin - s).abs() < 1e-12 && (cos - c).abs() < 1e-12,
                "sin, cos {u}"
            );
        }
        assert!(ln(1.0).abs() < 1e-15);
        assert!((ln(1.0 / (1u64 << 53) as f64) + 53.0 * std::f64::consts::LN_2).abs() < 1e-12);
    }

    /// Mean, variance and kurtosis within 5 standard errors, tails as a Gaussian has them.
    fn moments<M: Modulus>(log2_sigma: f64) {
        const COUNT: usize = 1 << 20;
        let mut rng = Csprng::from_seed([2; 32]);
        let mut words = vec![M::Word::default(); COUNT];
        rng.add_noise::<M>(log2_sigma, &mut words);
        let sigma = (log2_sigma + M::KIND.log2()).exp2();
        let z: Vec<f64> = words
            .iter()
            .map(|w| M::centered(*w) as f64 / sigma)
            .collect();
        let n = COUNT as f64;
        let mean = z.iter().sum::<f64>() / n;
        let variance = z.iter().map(|x| x * x).sum::<f64>() / n;
        let fourth = z.iter().map(|x| x.powi(4)).sum::<f64>() / n;
        assert!(mean.abs() < 5.0 / n.sqrt(), "mean {mean}");
        // Rounding to integers adds 1/12 of a unit.
        let expected = 1.0 + 1.0 / (12.0 * sigma * sigma);
        assert!(
            (variance - expected).abs() < 5.0 * (2.0 / n).sqrt(),
            "variance {variance}"
        );
        assert!(
            (fourth - 3.0 * expected * expected).abs() < 5.0 * (96.0 / n).sqrt(),
            "kurtosis {fourth}"
        );
        let beyond3 = z.iter().filter(|x| x.abs() > 3.0).count() as f64;
        assert!(
            (beyond3 / n - 0.0027).abs() < 0.0005,
            "{beyond3} beyond 3 sigma"
        );
    }

    #[test]
    fn noise_has_the_moments_of_a_gaussian() {
        moments::<Torus32>(-19.0);
        moments::<Torus32>(-27.0);
        moments::<Goldilocks>(-23.5);
        moments::<Goldilocks>(-58.0);
    }

    #[test]
    fn what_is_published_leaves_the_secret_stream_alone() {
        let (mut a, mut b) = (Csprng::from_seed([4; 32]), Csprng::from_seed([4; 32]));
        let seeds: [[u8; 32]; 2] = [a.public_bytes(), a.public_bytes()];
        a.fill_uniform::<Goldilocks>(&mut [0; 100]);
        assert_ne!(seeds[0], seeds[1]);
        let mut secret = [0; 32];
        b.fill_bytes(&mut secret);
        assert!(!seeds.contains(&secret));
        let mut same = [0; 32];
        a.fill_bytes(&mut same);
        assert_eq!(secret, same);
        assert_eq!(b.public_bytes(), seeds[0]);
        assert_ne!(a.fork().public_bytes::<32>(), a.public_bytes());
    }

    #[test]
    fn fingerprints_cannot_be_known_beforehand() {
        use std::hash::DefaultHasher;
        let mut known = DefaultHasher::new();
        known.write(b"a sample");
        assert_ne!(fingerprint(b"a sample"), known.finish());
        assert_eq!(fingerprint(b"a sample"), fingerprint(b"a sample"));
        assert_ne!(fingerprint(b"a sample"), fingerprint(b"a samplf"));
    }

    /// A stream that begins with these words and goes on with zeros.
    struct Words(std::vec::IntoIter<u64>);

    impl chacha20::rand_core::TryRng for Words {
        type Error = std::convert::Infallible;

        fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
            Ok(self.try_next_u64()? as u32)
        }

        fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
            Ok(self.0.next().unwrap_or(0))
        }

        fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
            for chunk in bytes.chunks_exact_mut(8) {
                chunk.copy_from_slice(&self.try_next_u64()?.to_le_bytes());
            }
            Ok(())
        }
    }

    #[test]
    fn words_not_below_the_modulus_are_replaced_by_the_next_ones() {
        let p = toroid_ring::goldilocks::P;
        let mut rng = Words(vec![5, p, p - 1, u64::MAX, p + 3, 7, u64::MAX, 8].into_iter());
        let mut words = [0; 4];
        fill_uniform::<Goldilocks>(&mut rng, &mut words);
        assert_eq!(words, [5, 7, p - 1, 8]);
    }

    #[test]
    fn residues_are_uniform_whatever_the_modulus() {
        // 2^64 = 1 modulo 3·5·17, so that the last word of all is one too many.
        let mut rng = Words(vec![254, u64::MAX, 255, 300, 256].into_iter());
        let mut words = [0; 4];
        fill_residues(&mut rng, 255, &mut words);
        assert_eq!(words, [254, 1, 0, 45]);
        let mut rng = Csprng::from_seed([5; 32]);
        let q = (1 << 49) + 9;
        let mut words = vec![0; 1 << 16];
        fill_residues(rng.public(), q, &mut words);
        assert!(words.iter().all(|w| *w < q));
        let mean = words.iter().map(|w| *w as f64 / q as f64).sum::<f64>() / words.len() as f64;
        assert!((mean - 0.5).abs() < 5.0 * (1.0 / 12.0f64).sqrt() / 256.0);
    }

    #[test]
    fn integers_have_the_noise_of_words() {
        let (mut a, mut b) = (Csprng::from_seed([6; 32]), Csprng::from_seed([6; 32]));
        let mut words = vec![0; 1000];
        a.add_noise::<Goldilocks>(5.0 - Goldilocks::KIND.log2(), &mut words);
        let mut numbers = vec![0; 1000];
        b.fill_gaussian(32.0, &mut numbers);
        let words: Vec<i64> = words.iter().map(|w| Goldilocks::centered(*w)).collect();
        assert_eq!(words, numbers);
    }

    #[test]
    fn uniform_words_are_canonical_and_spread() {
        let mut rng = Csprng::from_seed([3; 32]);
        let mut words = vec![0u64; 1 << 16];
        rng.fill_uniform::<Goldilocks>(&mut words);
        assert!(words.iter().all(|w| Goldilocks::is_canonical(*w)));
        let mean =
            words.iter().map(|w| *w as f64).sum::<f64>() / words.len() as f64 / 2f64.powi(64);
        assert!((mean - 0.5).abs() < 5.0 * (1.0 / 12.0f64).sqrt() / 256.0);
        let mut bits = vec![0u64; 1 << 16];
        rng.fill_bits(&mut bits);
        assert!(bits.iter().all(|b| *b < 2));
        let ones = bits.iter().sum::<u64>() as f64;
        assert!((ones - 32768.0).abs() < 5.0 * 128.0);
    }
}
