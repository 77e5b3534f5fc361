//! Closed intervals of integers, with arithmetic that never overflows: what exceeds [`MAX_MAGNITUDE`] is no interval.

use std::fmt;

use serde::{Deserialize, Serialize};

/// No value of a graph has a larger magnitude: 2^100.
pub const MAX_MAGNITUDE: i128 = 1 << 100;

/// All integers from `low` to `high`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Interval {
    /// The lowest value.
    pub low: i128,
    /// The highest value, at least `low`.
    pub high: i128,
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.low, self.high)
    }
}

impl Interval {
    /// 0 and 1.
    pub const BIT: Interval = Interval { low: 0, high: 1 };

    /// The interval; none if `low` is above `high` or a bound exceeds [`MAX_MAGNITUDE`].
    #[must_use]
    pub fn new(low: i128, high: i128) -> Option<Interval> {
        (-MAX_MAGNITUDE <= low && low <= high && high <= MAX_MAGNITUDE)
            .then_some(Interval { low, high })
    }

    /// One value.
    #[must_use]
    pub fn of(value: i128) -> Option<Interval> {
        Interval::new(value, value)
    }

    /// How many values there are.
    #[must_use]
    pub fn count(self) -> u128 {
        self.high.abs_diff(self.low) + 1
    }

    /// The bits that number the values: the least b with `count() <= 2^b`.
    #[must_use]
    pub fn bits(self) -> u32 {
        u128::BITS - self.high.abs_diff(self.low).leading_zeros()
    }

    /// The only value, if there is one only.
    #[must_use]
    pub fn constant(self) -> Option<i128> {
        (self.low == self.high).then_some(self.low)
    }

    /// Whether the value is in the interval.
    #[must_use]
    pub fn contains(self, value: i128) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Whether all values of `other` are in the interval.
    #[must_use]
    pub fn includes(self, other: Interval) -> bool {
        self.contains(other.low) && self.contains(other.high)
    }

    /// Whether all values fit 64 bits, with a sign or all without one.
    #[must_use]
    pub fn fits_64_bits(self) -> bool {
        let (low, high) = (self.low, self.high);
        (i128::from(i64::MIN) <= low && high <= i128::from(i64::MAX))
            || (0 <= low && high <= i128::from(u64::MAX))
    }

    /// The least interval with the values of both.
    #[must_use]
    pub fn union(self, other: Interval) -> Interval {
        Interval {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
        }
    }

    /// The least interval with these values; none of none.
    #[must_use]
    pub fn hull(values: &[i128]) -> Option<Interval> {
        Interval::new(*values.iter().min()?, *values.iter().max()?)
    }

    /// All sums.
    #[must_use]
    pub fn plus(self, other: Interval) -> Option<Interval> {
        Interval::new(
            self.low.checked_add(other.low)?,
            self.high.checked_add(other.high)?,
        )
    }

    /// All multiples by `weight`.
    #[must_use]
    pub fn scale(self, weight: i128) -> Option<Interval> {
        let (a, b) = (
            self.low.checked_mul(weight)?,
            self.high.checked_mul(weight)?,
        );
        Interval::new(a.min(b), a.max(b))
    }

    /// All products.
    #[must_use]
    pub fn multiply(self, other: Interval) -> Option<Interval> {
        let (a, b) = (self.scale(other.low)?, self.scale(other.high)?);
        Some(a.union(b))
    }

    /// All squares.
    #[must_use]
    pub fn square(self) -> Option<Interval> {
        self.absolute().multiply(self.absolute())
    }

    /// All magnitudes.
    #[must_use]
    pub fn absolute(self) -> Interval {
        let high = self.high.max(-self.low);
        let low = self.low.max(-self.high).max(0);
        Interval { low, high }
    }

    /// All quotients by `divisor` > 0, rounded down.
    #[must_use]
    pub fn divide(self, divisor: i128) -> Interval {
        Interval {
            low: self.low.div_euclid(divisor),
            high: self.high.div_euclid(divisor),
        }
    }

    /// All remainders of the division by `divisor` > 0, which are not negative.
    #[must_use]
    pub fn remainder(self, divisor: i128) -> Interval {
        let quotients = self.divide(divisor);
        match quotients.constant() {
            Some(_) => Interval {
                low: self.low.rem_euclid(divisor),
                high: self.high.rem_euclid(divisor),
            },
            None => Interval {
                low: 0,
                high: divisor - 1,
            },
        }
    }

    /// The least interval with every `operation(x, y)`, x of this interval and y of `other`, where `operation` works on each bit of numbers in
    /// two's complement.
    ///
    /// Bit by bit from the top, it follows which pairs of prefixes can still lead to the lowest (highest) result. A prefix either equals a bound's
    /// or is free of it, so there are sixteen kinds of pairs.
    #[must_use]
    pub fn bitwise(self, other: Interval, operation: fn(bool, bool) -> bool) -> Interval {
        let magnitude = [self.low, self.high, other.low, other.high]
            .into_iter()
            .map(|bound| bound ^ (bound >> 127))
            .fold(0, |all, bits| all | bits);
        let sign = 128 - magnitude.leading_zeros();
        let extreme = |wanted: bool| {
            // Bit s of the set: pairs of kind s, whose bits say which bounds the prefixes equal.
            let mut kinds: u16 = 1 << 0b1111;
            let mut result: i128 = 0;
            for position in (0..=sign).rev() {
                let bit_of = |bound: i128| (bound >> position) & 1 == 1;
                let mut next = [0u16; 2];
                for kind in (0..16u32).filter(|kind| kinds >> kind & 1 == 1) {
                    for (x, y) in [(false, false), (false, true), (true, false), (true, true)] {
                        let mut reached = 0;
                        let mut possible = true;
                        for (index, bound, bit, is_low) in [
                            (0, self.low, x, true),
                            (1, self.high, x, false),
                            (2, other.low, y, true),
                            (3, other.high, y, false),
                        ] {
                            if kind >> index & 1 == 0 {
                                continue;
                            }
                            if bit == bit_of(bound) {
                                reached |= 1 << index;
                            } else {
                                // The sign's bit weighs less than nothing: one is below zero there.
                                possible &= (bit != (position == sign)) == is_low;
                            }
                        }
                        if possible {
                            next[usize::from(operation(x, y))] |= 1 << reached;
                        }
                    }
                }
                let preferred = wanted != (position == sign);
                let bit = if next[usize::from(preferred)] != 0 {
                    preferred
                } else {
                    !preferred
                };
                kinds = next[usize::from(bit)];
                let weight = if position == sign {
                    -(1 << position)
                } else {
                    1 << position
                };
                result += if bit { weight } else { 0 };
            }
            result
        };
        Interval {
            low: extreme(false),
            high: extreme(true),
        }
    }
}
