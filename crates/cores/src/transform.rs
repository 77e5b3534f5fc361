//! Which transform is asked for.

use toroid_ring::prime::is_prime;

use crate::arithmetic::nearest_primes;
use crate::order::Order;

/// Why there is no such transform.
#[derive(Debug, thiserror::Error)]
pub enum TransformError {
    /// There is no transform of so many words.
    #[error(
        "a transform has a power of two of words, from 8 to 1048576, not {found}; nearest: {nearest}; a cyclic one may have a product of two or more of 3, 5, 17 and 257"
    )]
    Degree {
        /// The words asked for.
        found: u64,
        /// What there is.
        nearest: String,
    },
    /// There is no transform modulo this number.
    #[error(
        "modulo {found} there is no root of unity of order {order}: {reason}; nearest primes that have one: {nearest}"
    )]
    Modulus {
        /// The modulus asked for.
        found: u64,
        /// The order of the root of unity that the transform needs.
        order: u64,
        /// Why not.
        reason: String,
        /// Moduli that have one.
        nearest: String,
    },
}

/// Forward or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From coefficients to values.
    Forward,
    /// From values to coefficients.
    Inverse,
}

/// What the transform multiplies polynomials modulo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ring {
    /// X^N + 1.
    Negacyclic,
    /// X^N - 1.
    Cyclic,
}

/// A number-theoretic transform.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Transform {
    n: u64,
    q: u64,
    /// Forward or back.
    pub direction: Direction,
    /// Negacyclic or cyclic.
    pub ring: Ring,
    /// The order of the words that enter; any without one.
    pub input: Option<Order>,
    /// The order of the words that leave; any without one.
    pub output: Option<Order>,
}

/// What degrees there are cores for at all.
const DEGREES: std::ops::RangeInclusive<u64> = 1 << 3..=1 << 20;

/// Whether a number is a product of two or more different primes of 3, 5, 17 and 257, the lengths beside
/// powers of two that there is a core for.
fn has_fermat_factors(n: u64) -> bool {
    let primes = [3, 5, 17, 257].into_iter().filter(|p| n.is_multiple_of(*p));
    primes.clone().count() > 1 && primes.product::<u64>() == n
}

impl Transform {
    /// A transform of `n` words modulo `q`, forward and in any order.
    ///
    /// # Errors
    /// If `n` is neither a power of two from 2^3 to 2^20 nor, of a cyclic transform, a product of different primes of 3, 5, 17 and
    /// 257, `q` no prime, or without a root of unity of the order that the transform
    /// needs: 2n, or n for a cyclic one. The error names what comes nearest.
    pub fn new(n: u64, q: u64, ring: Ring) -> Result<Transform, TransformError> {
        let is_prime_factor = ring == Ring::Cyclic && has_fermat_factors(n);
        if !is_prime_factor && (!n.is_power_of_two() || !DEGREES.contains(&n)) {
            let above = n
                .clamp(*DEGREES.start(), *DEGREES.end())
                .next_power_of_two();
            let below = (above / 2).max(*DEGREES.start());
            return Err(TransformError::Degree {
                found: n,
                nearest: match DEGREES.contains(&n) {
                    true => format!("{below} and {above}"),
                    false => above.to_string(),
                },
            });
        }
        let order = match ring {
            Ring::Negacyclic => 2 * n,
            Ring::Cyclic => n,
        };
        if !is_prime(q) || !(q - 1).is_multiple_of(order) {
            return Err(TransformError::Modulus {
                found: q,
                order,
                reason: match is_prime(q) {
                    true => format!("{order} does not divide q - 1"),
                    false => "it is not a prime".to_owned(),
                },
                nearest: nearest_primes(q, order),
            });
        }
        Ok(Transform {
            n,
            q,
            direction: Direction::Forward,
            ring,
            input: None,
            output: None,
        })
    }

    /// The words.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// log2 of the words; 0 where their number is not a power of two.
    pub fn log_n(&self) -> u64 {
        u64::from(self.n.trailing_zeros())
    }

    /// The modulus.
    pub fn q(&self) -> u64 {
        self.q
    }

    /// Whether words that enter and leave in these orders are what is wanted.
    pub fn accepts(&self, orders: (Order, Order)) -> bool {
        self.input.is_none_or(|order| order == orders.0)
            && self.output.is_none_or(|order| order == orders.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(n: u64, q: u64, ring: Ring) -> String {
        Transform::new(n, q, ring).unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_transformed_is_refused_with_what_can() {
        assert!(Transform::new(4096, 268_369_921, Ring::Negacyclic).is_ok());
        assert!(refusal(4095, 268_369_921, Ring::Negacyclic).contains("2048 and 4096"));
        assert!(Transform::new(21845, 4_244_570_881, Ring::Cyclic).is_ok());
        assert!(refusal(21845, 4_244_570_881, Ring::Negacyclic).contains("16384 and 32768"));
        assert!(refusal(257, 257 * 6 + 1, Ring::Cyclic).contains("256 and 512"));
        assert!(refusal(0, 17, Ring::Negacyclic).contains("nearest: 8"));
        assert!(refusal(1 << 30, 17, Ring::Negacyclic).contains("nearest: 1048576"));
    }

    #[test]
    fn moduli_are_offered_on_both_sides() {
        // 97 = 6 * 16 + 1 has an element of order 16 and of order 32, 101 has not.
        assert!(Transform::new(16, 97, Ring::Negacyclic).is_ok());
        let said = refusal(16, 101, Ring::Negacyclic);
        assert!(
            said.contains("32 does not divide q - 1") && said.contains("97 and 193"),
            "{said}"
        );
        assert!(refusal(16, 99, Ring::Negacyclic).contains("not a prime"));
        assert!(Transform::new(16, 17, Ring::Cyclic).is_ok());
        assert!(Transform::new(16, 17, Ring::Negacyclic).is_err());
        // Above is none of 64 bits.
        let said = refusal(16, u64::MAX, Ring::Negacyclic);
        let (_, nearest) = said.split_once("have one: ").unwrap();
        assert!(is_prime(nearest.parse().unwrap()), "{said}");
        assert!(refusal(16, 0, Ring::Negacyclic).contains("97"));
    }
}
