//! Scales by level, and what follows from them: the sizes of a chain's primes, its modulus and its noise.
//!
//! A product of two values of scale Δ becomes one of scale Δ' after division by a prime of Δ²/Δ'. So a scale may fall from one level to the next by as
//! much as primes of [`MAX_PRIME_BITS`] bits allow, and rise again through a smaller prime.

use crate::model::{LevelNoise, OperationNoise};
use crate::params::{
    MAX_DIGITS, MAX_ENCAPSULATION_BITS, MAX_PRIME_BITS, MIN_PRIME_BITS, RnsParams, Shape as Sizes,
};

/// Bits of each special prime.
const SPECIAL_BITS: u32 = 50;

/// The scales of a chain's levels, and how key switches cut the chain.
#[derive(Clone, Debug)]
pub(crate) struct Ladder {
    /// N.
    pub(crate) degree: usize,
    /// Bits of the scale of each level; level 0 has that of q_0.
    pub(crate) scales: Vec<u32>,
    /// Special primes.
    pub(crate) special: usize,
    /// Primes of a digit of a key switch.
    pub(crate) digit_limbs: usize,
}

/// The scale of the level below one of scale 2^`bits`, on the way down to 2^`lowest`: as small as a prime allows.
pub(crate) fn descend(bits: u32, lowest: u32) -> u32 {
    let least = (2 * bits).saturating_sub(MAX_PRIME_BITS);
    least.max(lowest).min(bits)
}

impl Ladder {
    /// Bits of the primes of the chain: two at a time of the scale of their level, less those of the level below. Nothing where there are no
    /// primes of such a size.
    pub(crate) fn chain_bits(&self) -> Option<Vec<u32>> {
        let prime = |level: usize| match level {
            // No product is rescaled to level 0, and matrices have any scale.
            0 | 1 => Some(self.scales[level]),
            _ => (2 * self.scales[level]).checked_sub(self.scales[level - 1]),
        };
        let bits: Option<Vec<u32>> = (0..self.scales.len()).map(prime).collect();
        let sizes = MIN_PRIME_BITS + 1..=MAX_PRIME_BITS;
        bits.filter(|bits| bits.iter().all(|bits| sizes.contains(bits)))
    }

    /// What primes are searched for; nothing where there are none.
    pub(crate) fn sizes(&self) -> Option<Sizes> {
        Some(Sizes {
            degree: self.degree,
            chain_bits: self.chain_bits()?,
            special_bits: vec![SPECIAL_BITS; self.special],
            digit_limbs: self.digit_limbs,
        })
    }

    /// log2(Q·P), where key switches are sound: P above every digit, not more digits than the ring layer has, and the modulus of the sparse
    /// secret within its bound.
    pub(crate) fn log2_modulus(&self) -> Option<f64> {
        let digits = self.digits()?;
        let special = self.special as u32 * SPECIAL_BITS;
        let sound = digits.len() <= MAX_DIGITS
            && digits.iter().all(|&bits| bits < special)
            && self.scales[0] + SPECIAL_BITS <= MAX_ENCAPSULATION_BITS as u32;
        sound.then(|| f64::from(digits.iter().sum::<u32>() + special))
    }

    /// Bits of each digit.
    fn digits(&self) -> Option<Vec<u32>> {
        let chain = self.chain_bits()?;
        let digits = chain.chunks(self.digit_limbs.max(1));
        Some(digits.map(|digit| digit.iter().sum()).collect())
    }

    /// Variance of a coefficient from the noise of keys, at most.
    pub(crate) fn key_noise(&self) -> f64 {
        let special = f64::from(self.special as u32 * SPECIAL_BITS);
        let digits = self.digits().unwrap_or_default().into_iter();
        let ratios = digits.map(|bits| (2.0 * (f64::from(bits) - special)).exp2());
        self.degree as f64 * ratios.sum::<f64>() * RnsParams::SIGMA.powi(2) / 12.0
    }

    /// Noise of the operations, by level.
    pub(crate) fn noise(&self) -> LevelNoise {
        let norm = 2.0 * self.degree as f64 / 3.0;
        let key_noise = self.key_noise();
        let levels = self.scales.iter().map(|&bits| {
            let scale = f64::from(bits).exp2();
            OperationNoise::at_scale(self.degree, norm, scale, key_noise)
        });
        LevelNoise::new(levels.collect())
    }

    /// log2 of the scale at which the matrix of a stage is encoded whose input is at a level: a raised column has the scale q_0.
    pub(crate) fn log2_matrix(&self, level: usize, is_raised: bool) -> f64 {
        let chain = self.chain_bits().unwrap_or_default();
        let prime = chain.get(level).copied().unwrap_or(0);
        let input = self.scales[if is_raised { 0 } else { level }];
        f64::from(prime + self.scales[level - 1]) - f64::from(input)
    }
}
