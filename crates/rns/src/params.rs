//! Parameters: ring degree, primes, digits of a key switch, noise and secrets.

use toroid_ring::prime::{is_prime, ntt_primes};

use crate::RnsError;

/// The smallest ring degree: below, the order of values has no blocks of eight.
pub const MIN_DEGREE: usize = 16;
/// The largest ring degree.
pub const MAX_DEGREE: usize = 1 << 17;
/// Primes are below 2 to this power, the bound of the transforms.
pub const MAX_PRIME_BITS: u32 = 50;
/// Primes are above 2 to this power.
pub const MIN_PRIME_BITS: u32 = 20;
/// The most primes of a digit: the bound of a lazily summed base conversion, which has a term for the multiple of their product too.
pub const MAX_DIGIT_LIMBS: usize = 11;
/// The most special primes: these and one of the chain are divided by at once.
pub const MAX_SPECIAL_LIMBS: usize = MAX_DIGIT_LIMBS - 1;
/// The most digits of a key switch: the bound of a lazily summed inner product.
pub const MAX_DIGITS: usize = 11;
/// log2 of the largest modulus at which the sparse secret of a mod-raise is ever used.
pub const MAX_ENCAPSULATION_BITS: f64 = 110.0;

/// What a context is made of. All primes are 1 modulo 2N and differ from one another.
#[derive(Clone, Debug, PartialEq)]
pub struct RnsParams {
    /// N, a power of two from [`MIN_DEGREE`] to [`MAX_DEGREE`].
    pub degree: usize,
    /// q_0, q_1, …: a ciphertext of l limbs is modulo Q_l = q_0·…·q_(l-1). Rescaling drops the last prime.
    pub chain: Vec<u64>,
    /// p_0, p_1, …: their product P is what a key switch raises to and divides by.
    pub special: Vec<u64>,
    /// Primes of one digit of a key switch. P must be larger than every digit.
    pub digit_limbs: usize,
    /// Standard deviation of the noise in units of coefficients.
    pub sigma: f64,
    /// Number of coefficients other than 0 in the sparse secret that a mod-raise goes through. That secret is used at
    /// the modulus q_0·p_0 alone, at most 2^[`MAX_ENCAPSULATION_BITS`]. The main secret is uniform ternary.
    pub encapsulation_weight: usize,
}

/// The sizes that [`RnsParams::search`] finds primes for.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// N.
    pub degree: usize,
    /// Bits of each prime of the chain, q_0 first.
    pub chain_bits: Vec<u32>,
    /// Bits of each special prime.
    pub special_bits: Vec<u32>,
    /// Primes of one digit.
    pub digit_limbs: usize,
}

impl RnsParams {
    /// Standard deviation of the noise of all keys and fresh ciphertexts.
    pub const SIGMA: f64 = 3.2;
    /// Weight of the sparse secret.
    pub const ENCAPSULATION_WEIGHT: usize = 32;

    /// The parameters of a shape: for each size of b bits the primes nearest to 2^b that are 1 modulo 2N, nearest first
    /// (below 2^[`MAX_PRIME_BITS`] always), so that a scale of 2^b stays near 2^b when it is squared and rescaled.
    /// Special primes are chosen before the chain's.
    ///
    /// # Errors
    /// [`RnsError::Primes`], or what [`RnsParams::validate`] finds.
    pub fn search(shape: &Shape) -> Result<RnsParams, RnsError> {
        check_degree(shape.degree)?;
        let mut taken = Vec::new();
        let special = nearest_primes(shape.degree, &shape.special_bits, &mut taken)?;
        let chain = nearest_primes(shape.degree, &shape.chain_bits, &mut taken)?;
        let params = RnsParams {
            degree: shape.degree,
            chain,
            special,
            digit_limbs: shape.digit_limbs,
            sigma: Self::SIGMA,
            encapsulation_weight: Self::ENCAPSULATION_WEIGHT.min(shape.degree / 4),
        };
        params.validate()?;
        Ok(params)
    }

    /// `limbs` primes of 49 bits, as many special primes of 50 bits as a digit has primes.
    ///
    /// # Errors
    /// As for [`RnsParams::search`].
    pub fn uniform(degree: usize, limbs: usize, digit_limbs: usize) -> Result<RnsParams, RnsError> {
        Self::search(&Shape {
            degree,
            chain_bits: vec![49; limbs],
            special_bits: vec![50; digit_limbs],
            digit_limbs,
        })
    }

    /// Checks everything that the operations rest on.
    ///
    /// # Errors
    /// [`RnsError::Params`], with the rule that is broken.
    pub fn validate(&self) -> Result<(), RnsError> {
        check_degree(self.degree)?;
        let rule = |holds: bool, text: &str| {
            if holds {
                Ok(())
            } else {
                Err(RnsError::Params(text.to_owned()))
            }
        };
        rule(!self.chain.is_empty(), "the chain has no prime")?;
        rule(
            (1..=MAX_SPECIAL_LIMBS).contains(&self.special.len()),
            "there must be 1 to 10 special primes",
        )?;
        rule(
            (1..=MAX_DIGIT_LIMBS).contains(&self.digit_limbs),
            "a digit must have 1 to 11 primes",
        )?;
        rule(
            self.digits(self.chain.len()) <= MAX_DIGITS,
            "a key switch must have 11 digits at most",
        )?;
        rule(
            self.sigma.is_finite() && (0.0..=1024.0).contains(&self.sigma),
            "the noise must have a standard deviation of 0 to 1024 units",
        )?;
        rule(
            (1..=self.degree).contains(&self.encapsulation_weight),
            "the sparse secret must have a weight of 1 to N",
        )?;
        let mut seen = Vec::new();
        for &q in self.chain.iter().chain(&self.special) {
            if q >> MAX_PRIME_BITS != 0 || q >> MIN_PRIME_BITS == 0 {
                return Err(RnsError::Params(format!(
                    "{q} is not between 2^{MIN_PRIME_BITS} and 2^{MAX_PRIME_BITS}"
                )));
            }
            if !is_prime(q) || q % (2 * self.degree as u64) != 1 {
                return Err(RnsError::Params(format!(
                    "{q} is not a prime that is 1 modulo {}",
                    2 * self.degree
                )));
            }
            if seen.contains(&q) {
                return Err(RnsError::Params(format!("{q} is there twice")));
            }
            seen.push(q);
        }
        let widest = self
            .chain
            .chunks(self.digit_limbs)
            .map(log2)
            .fold(0.0, f64::max);
        rule(
            self.log2_p() > widest,
            "the product of the special primes must exceed that of every digit",
        )?;
        rule(
            log2(&[self.chain[0], self.special[0]]) <= MAX_ENCAPSULATION_BITS,
            "q_0·p_0 must be 2^110 at most, where the sparse secret is used",
        )
    }

    /// log2 of Q_l for `limbs` = l.
    ///
    /// # Panics
    /// If the chain has fewer primes.
    #[must_use]
    pub fn log2_q(&self, limbs: usize) -> f64 {
        log2(&self.chain[..limbs])
    }

    /// log2 of P.
    #[must_use]
    pub fn log2_p(&self) -> f64 {
        log2(&self.special)
    }

    /// log2 of Q·P, the largest modulus, on which the security of the main secret rests.
    #[must_use]
    pub fn log2_qp(&self) -> f64 {
        self.log2_q(self.chain.len()) + self.log2_p()
    }

    /// Digits of a key switch at this number of limbs.
    #[must_use]
    pub fn digits(&self, limbs: usize) -> usize {
        limbs.div_ceil(self.digit_limbs)
    }

    /// The expected squared norm of the main secret, 2N/3.
    #[must_use]
    pub fn secret_norm(&self) -> f64 {
        2.0 * self.degree as f64 / 3.0
    }
}

fn log2(primes: &[u64]) -> f64 {
    primes.iter().map(|q| (*q as f64).log2()).sum()
}

fn check_degree(degree: usize) -> Result<(), RnsError> {
    if degree.is_power_of_two() && (MIN_DEGREE..=MAX_DEGREE).contains(&degree) {
        return Ok(());
    }
    Err(RnsError::Params(format!(
        "the ring degree must be a power of two from {MIN_DEGREE} to {MAX_DEGREE}, not {degree}"
    )))
}

/// One prime for each entry of `sizes`; `taken` has those that are in use.
fn nearest_primes(
    degree: usize,
    sizes: &[u32],
    taken: &mut Vec<u64>,
) -> Result<Vec<u64>, RnsError> {
    let mut found = Vec::with_capacity(sizes.len());
    for (position, &bits) in sizes.iter().enumerate() {
        if !(MIN_PRIME_BITS + 1..=MAX_PRIME_BITS).contains(&bits) {
            return Err(RnsError::Params(format!(
                "there are no primes of {bits} bits here"
            )));
        }
        let prime = candidates(degree, bits)
            .find(|q| !taken.contains(q))
            .ok_or(RnsError::Primes {
                bits,
                wanted: position + 1,
                modulo: 2 * degree as u64,
            })?;
        taken.push(prime);
        found.push(prime);
    }
    Ok(found)
}

/// The primes within a quarter of 2^bits that are 1 modulo 2N, nearest to 2^bits first.
fn candidates(degree: usize, bits: u32) -> impl Iterator<Item = u64> {
    let (center, step) = (1u64 << bits, 2 * degree as u64);
    let above = (0..)
        .map(move |k| center + k * step + 1)
        .take_while(move |q| bits < MAX_PRIME_BITS && *q < center + center / 4)
        .filter(|&q| is_prime(q));
    let below = ntt_primes(degree, center).take_while(move |q| *q > center - center / 4);
    let (mut above, mut below) = (above.peekable(), below.peekable());
    std::iter::from_fn(move || match (above.peek(), below.peek()) {
        (Some(high), Some(low)) if high - center < center - low => above.next(),
        (_, Some(_)) => below.next(),
        _ => above.next(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn primes_are_the_nearest() {
        let params = RnsParams::uniform(1 << 16, 25, 7).unwrap();
        assert_eq!((params.chain.len(), params.special.len()), (25, 7));
        assert!((params.log2_q(25) - 25.0 * 49.0).abs() < 1e-4);
        assert!((params.log2_p() - 350.0).abs() < 1e-4);
        assert_eq!(params.digits(25), 4);
        // Largest distance first: nothing nearer is left out.
        let center = 1u64 << 49;
        let worst = params
            .chain
            .iter()
            .map(|q| q.abs_diff(center))
            .max()
            .unwrap();
        let step = 1u64 << 17;
        let all = (1..center / step)
            .flat_map(|k| [center + k * step + 1, center - k * step + 1])
            .chain([center + 1])
            .take_while(|q| q.abs_diff(center) <= worst + step)
            .filter(|q| q.abs_diff(center) <= worst && is_prime(*q))
            .count();
        assert_eq!(all, 25);
    }

    #[test]
    fn broken_rules_are_named() {
        let good = RnsParams::uniform(64, 4, 2).unwrap();
        let broken = |change: &dyn Fn(&mut RnsParams)| {
            let mut params = good.clone();
            change(&mut params);
            params.validate().unwrap_err().to_string()
        };
        assert!(broken(&|p| p.degree = 48).contains("power of two"));
        assert!(broken(&|p| p.degree = 8).contains("power of two"));
        assert!(broken(&|p| p.chain.clear()).contains("no prime"));
        assert!(broken(&|p| p.special.clear()).contains("special"));
        assert!(broken(&|p| p.digit_limbs = 9).contains("digit"));
        assert!(broken(&|p| p.digit_limbs = 3).contains("exceed"));
        assert!(broken(&|p| p.sigma = f64::NAN).contains("noise"));
        assert!(broken(&|p| p.encapsulation_weight = 0).contains("weight"));
        assert!(broken(&|p| p.chain[1] = p.chain[0]).contains("twice"));
        assert!(broken(&|p| p.chain[1] = p.special[0]).contains("twice"));
        assert!(broken(&|p| p.chain[1] += 2).contains("not a prime"));
        assert!(broken(&|p| p.chain[1] = 97).contains("between"));
        assert!(RnsParams::uniform(100, 4, 2).is_err());
        assert!(matches!(
            RnsParams::search(&Shape {
                degree: 1 << 16,
                chain_bits: vec![21; 40],
                special_bits: vec![50],
                digit_limbs: 1,
            }),
            Err(RnsError::Primes { bits: 21, .. })
        ));
    }
}
