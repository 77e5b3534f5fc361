//! Numbers in digits: Σ digit·2^(d·i). A number is *canonical* where all digits but the highest lie in 0 … 2^d - 1; before carries are made up,
//! digits may have any values that functions can read.

use super::samples::{Combo, Samples};
use crate::error::Error;
use crate::interval::Interval;

/// Digits, the lowest first.
pub(super) type Digits = Vec<Combo>;

/// Arithmetic on digits of so many bits.
pub(super) struct Radix {
    pub(super) bits: u32,
}

impl Radix {
    /// 2^d.
    pub(super) fn base(&self) -> i128 {
        1 << self.bits
    }

    /// How many canonical digits the numbers of an interval have, when the highest has at most d bits. These number its values: a digit of few
    /// values counts as small however far from zero they are.
    pub(super) fn count(&self, interval: Interval) -> usize {
        let mut count = 1;
        let mut rest = interval;
        while rest.bits() > self.bits {
            rest = rest.divide(self.base());
            count += 1;
        }
        count
    }

    /// The digits of a constant.
    fn constant(&self, value: i128) -> Vec<i128> {
        let mut digits = Vec::new();
        let mut rest = value;
        while !(0..self.base()).contains(&rest) && rest != -1 {
            digits.push(rest.rem_euclid(self.base()));
            rest = rest.div_euclid(self.base());
        }
        digits.push(rest);
        digits
    }

    /// number + value, without carries.
    pub(super) fn offset(&self, mut digits: Digits, value: i128) -> Digits {
        for (place, value) in self.constant(value).into_iter().enumerate() {
            match digits.get_mut(place) {
                Some(digit) => *digit = digit.offset(value),
                None => digits.push(Combo::constant(value)),
            }
        }
        digits
    }

    /// The canonical digits of one sample's number, of as many values as functions read. The highest is small itself, so that numbers far from
    /// zero have as many digits as others of their size.
    pub(super) fn split(&self, samples: &mut Samples, number: &Combo) -> Result<Digits, Error> {
        let zero = Interval { low: 0, high: 0 };
        let count = self.count(number.interval.union(zero));
        let mut digits = Vec::with_capacity(count);
        for place in 0..count {
            let shift = self.bits * place as u32;
            let base = self.base();
            let is_last = place + 1 == count;
            digits.push(samples.function(number, |value| {
                let rest = value >> shift;
                if is_last { rest } else { rest.rem_euclid(base) }
            })?);
        }
        Ok(digits)
    }

    /// Whether a digit leaves room for a carry from below.
    fn has_room(&self, samples: &Samples, low: i128, high: i128) -> bool {
        let most = (1 << samples.width()) - (1 << (samples.width() - self.bits)) - 2;
        high - low <= most
    }

    /// number + weight·other·2^(d·shift). Carries are made up where digits would have too many values; `other` has small digits.
    pub(super) fn add(
        &self,
        samples: &mut Samples,
        number: &mut Digits,
        (other, weight, shift): (&Digits, i128, usize),
    ) -> Result<(), Error> {
        for attempt in 0..2 {
            let mut sum = number.clone();
            sum.resize(sum.len().max(other.len() + shift), Combo::constant(0));
            for (digit, other) in sum.iter_mut().skip(shift).zip(other) {
                *digit = digit.plus(other, weight);
            }
            let fits = sum
                .iter()
                .all(|digit| self.has_room(samples, digit.interval.low, digit.interval.high));
            if fits || attempt == 1 {
                *number = sum;
                break;
            }
            *number = self.normalize(samples, number, None)?;
        }
        let widest = number.iter().map(Combo::bits).max().unwrap_or(0);
        if widest > samples.width() {
            return Err(samples
                .error(format!(
                    "a digit has {widest} bits before carries are made up"
                ))
                .with_help("take a parameter set of wider functions"));
        }
        Ok(())
    }

    /// The number's canonical digits; `interval` is what is known of it.
    pub(super) fn normalize(
        &self,
        samples: &mut Samples,
        digits: &Digits,
        interval: Option<Interval>,
    ) -> Result<Digits, Error> {
        let interval = interval.unwrap_or_else(|| self.hull(digits));
        let count = self.count(interval);
        let mut rest = digits.clone();
        let mut canonical = Vec::with_capacity(count);
        let mut carry = Combo::constant(0);
        for place in 0..count.saturating_sub(1) {
            let digit = rest.get(place).cloned();
            let sum = digit.unwrap_or(Combo::constant(0)).plus(&carry, 1);
            let (digit, next) = self.carry(samples, &sum)?;
            canonical.push(digit);
            carry = next;
        }
        // What is left is one digit by what is known of the number.
        let mut top = carry;
        let first = count.saturating_sub(1);
        for (place, digit) in rest.drain(..).enumerate().skip(first) {
            top = top.plus(&digit, 1 << (self.bits * (place - first) as u32));
        }
        let shift = self.bits * first as u32;
        canonical.push(top.within(Interval {
            low: interval.low >> shift,
            high: interval.high >> shift,
        }));
        Ok(canonical)
    }

    /// What a sum of digits leaves at its place, and what it carries to the next.
    pub(super) fn carry(
        &self,
        samples: &mut Samples,
        sum: &Combo,
    ) -> Result<(Combo, Combo), Error> {
        let base = self.base();
        let digit = samples.function(sum, |value| value.rem_euclid(base))?;
        let carry = samples.function(sum, |value| value.div_euclid(base))?;
        Ok((digit, carry))
    }

    /// All values that digits of these intervals can have.
    pub(super) fn hull(&self, digits: &Digits) -> Interval {
        let mut hull = Interval { low: 0, high: 0 };
        for (place, digit) in digits.iter().enumerate() {
            let weight = 1 << (self.bits * place as u32);
            hull.low += weight * digit.interval.low;
            hull.high += weight * digit.interval.high;
        }
        hull
    }

    /// number·weight as digits, by functions where the weight is large.
    pub(super) fn scaled(
        &self,
        samples: &mut Samples,
        digits: &Digits,
        weight: i128,
    ) -> Result<Digits, Error> {
        let shift = weight.unsigned_abs().trailing_zeros() / self.bits;
        let weight = weight >> (shift * self.bits);
        let mut product = vec![Combo::constant(0); shift as usize];
        let small = weight.abs() <= 2
            && digits
                .iter()
                .all(|digit| digit.bits() <= self.bits + 1 && digit.bits() + 1 < samples.width());
        if small {
            product.extend(digits.iter().map(|digit| digit.times(weight)));
            return Ok(product);
        }
        for (place, digit) in digits.iter().enumerate() {
            let pieces = self.pieces(samples, digit, |value| weight * value)?;
            self.add(samples, &mut product, (&pieces, 1, place + shift as usize))?;
        }
        Ok(product)
    }

    /// The digits of a function of one sample.
    pub(super) fn pieces(
        &self,
        samples: &mut Samples,
        digit: &Combo,
        function: impl Fn(i128) -> i128,
    ) -> Result<Digits, Error> {
        let Interval { low, high } = digit.interval;
        if digit.bits() > samples.width() {
            return Err(samples.error(format!(
                "a digit has {} bits before carries are made up",
                digit.bits()
            )));
        }
        let values: Vec<i128> = (low..=high).map(&function).collect();
        let hull = samples.hull(&values)?;
        let count = self.count(hull);
        let mut pieces = Vec::with_capacity(count);
        for place in 0..count {
            let shift = self.bits * place as u32;
            let base = self.base();
            let is_last = place + 1 == count;
            pieces.push(samples.function(digit, |value| {
                let rest = function(value) >> shift;
                if is_last { rest } else { rest.rem_euclid(base) }
            })?);
        }
        Ok(pieces)
    }

    /// 1 if the number is negative, else 0.
    pub(super) fn is_negative(
        &self,
        samples: &mut Samples,
        digits: &Digits,
    ) -> Result<Combo, Error> {
        let hull = self.hull(digits);
        if hull.low >= 0 || hull.high < 0 {
            return Ok(Combo::constant(i128::from(hull.high < 0)));
        }
        let mut carry = Combo::constant(0);
        let base = self.base();
        let (last, lower) = match digits.split_last() {
            Some(parts) => parts,
            None => return Ok(carry),
        };
        for digit in lower {
            let sum = digit.plus(&carry, 1);
            carry = samples.function(&sum, |value| value.div_euclid(base))?;
        }
        samples.function(&last.plus(&carry, 1), |value| i128::from(value < 0))
    }

    /// 1 if the number is not zero, else 0.
    pub(super) fn is_nonzero(
        &self,
        samples: &mut Samples,
        digits: &Digits,
    ) -> Result<Combo, Error> {
        let mut carry = Combo::constant(0);
        let mut flags = Combo::constant(0);
        let base = self.base();
        let last = digits.len().saturating_sub(1);
        // Where no digit reaches the next one's unit, the number is zero only if all digits are.
        let alone = digits
            .iter()
            .all(|digit| digit.interval.low > -base && digit.interval.high < base);
        for (place, digit) in digits.iter().enumerate() {
            let sum = digit.plus(&carry, 1);
            let flag = if alone || place == last {
                samples.function(&sum, |value| i128::from(value != 0))?
            } else {
                carry = samples.function(&sum, |value| value.div_euclid(base))?;
                samples.function(&sum, |value| i128::from(value.rem_euclid(base) != 0))?
            };
            flags = flags.plus(&flag, 1);
            if flags.bits() >= samples.width() {
                flags = samples.function(&flags, |value| i128::from(value != 0))?;
            }
        }
        samples.function(&flags, |value| i128::from(value != 0))
    }
}
