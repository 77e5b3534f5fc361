//! A function's values as digits, each of which a bootstrap of its own brings to its place.
//!
//! A value v lies at v/2^(p+1) of the torus. A table's values are taken together: what they have in common (an offset, zeros at
//! the end) is no part of the digits, so that a function of two values has one digit of one bit.

use crate::modulus::Modulus;
use crate::params::{ParamSet, WopbsParams};

/// The values of a table, in digits: [`super::Plan::function`].
#[derive(Clone, Debug)]
pub struct Digits<M: Modulus> {
    params: ParamSet,
    /// (value - base) >> shift, for every entry.
    values: Vec<u32>,
    base: u32,
    shift: u32,
    /// First bit and number of bits of each digit.
    digits: Vec<(u32, u32)>,
    modulus: std::marker::PhantomData<M>,
}

impl<M: Modulus> Digits<M> {
    pub(super) fn new<'a>(
        params: &ParamSet,
        stages: &WopbsParams,
        table: impl Iterator<Item = &'a M::Word>,
    ) -> Self {
        let p = params.message_bits;
        let mut values: Vec<u32> = table.map(|word| M::decode(*word, p + 1) as u32).collect();
        let base = base(&values, p + 1);
        let mask = (2u32 << p) - 1;
        let mut seen = 0;
        for value in &mut values {
            *value = value.wrapping_sub(base) & mask;
            seen |= *value;
        }
        let shift = if seen == 0 { 0 } else { seen.trailing_zeros() };
        let bits = 32 - (seen >> shift).leading_zeros();
        for value in &mut values {
            *value >>= shift;
        }
        let mut first = 0;
        let digits = stages
            .digits(bits)
            .into_iter()
            .map(|bits| {
                first += bits;
                (first - bits, bits)
            })
            .collect();
        Digits {
            params: *params,
            values,
            base,
            shift,
            digits,
            modulus: std::marker::PhantomData,
        }
    }

    /// How many digits there are: none for a constant.
    #[must_use]
    pub fn count(&self) -> usize {
        self.digits.len()
    }

    /// The table of digit `digit`, at the middles of 2^b windows of the torus. The order of the windows is that of the output of
    /// [`Self::test_vector`], whose second half is the first one negated: the upper half of the digits from the smallest up,
    /// then the lower half from the largest down.
    #[must_use]
    pub fn table(&self, digit: usize) -> Vec<M::Word> {
        let (first, bits) = self.digits[digit];
        let half = 1 << (bits - 1);
        let windows: Vec<M::Word> = (0..2 * half)
            .map(|value: u32| {
                let window = if value >= half {
                    value - half
                } else {
                    2 * half - 1 - value
                };
                M::encode(i64::from(2 * window + 1), bits + 1)
            })
            .collect();
        let mask = 2 * half - 1;
        let values = self.values.iter();
        values
            .map(|value| windows[(value >> first & mask) as usize])
            .collect()
    }

    /// The test vector that brings digit `digit` to its place: half of 1, 3, 5, … units of it.
    #[must_use]
    pub fn test_vector(&self, digit: usize) -> Vec<M::Word> {
        let (first, bits) = self.digits[digit];
        let n = self.params.ring_degree;
        let windows = 1 << (bits - 1);
        let mut vector = vec![M::Word::default(); self.params.glwe_words()];
        let body = &mut vector[self.params.extracted_dimension()..];
        for (index, word) in body.iter_mut().enumerate() {
            let window = index * windows / n;
            let halves = (2 * window as i64 + 1) << (first + self.shift);
            *word = M::encode(halves, self.params.message_bits + 2);
        }
        vector
    }

    /// What the refreshed digits, centred as they are, lack.
    #[must_use]
    pub fn constant(&self) -> M::Word {
        let halves: i64 = self
            .digits
            .iter()
            .map(|(first, bits)| ((1i64 << bits) - 1) << (first + self.shift))
            .sum();
        M::encode(
            2 * i64::from(self.base) + halves,
            self.params.message_bits + 2,
        )
    }
}

/// The value behind the largest gap between values modulo 2^bits, the values on a circle.
fn base(values: &[u32], bits: u32) -> u32 {
    let mut present = vec![false; 1 << bits];
    for value in values {
        present[*value as usize] = true;
    }
    let mut sorted = (0u32..).zip(&present).filter(|(_, present)| **present);
    let Some((smallest, _)) = sorted.next() else {
        return 0;
    };
    let (mut base, mut gap, mut last) = (smallest, 0, smallest);
    for (value, _) in sorted {
        if value - last > gap {
            (base, gap) = (value, value - last);
        }
        last = value;
    }
    if smallest + (1 << bits) - last >= gap {
        smallest
    } else {
        base
    }
}
