//! Ciphertext moduli: 2^32 and the Goldilocks prime, behind one trait.

use std::fmt::Debug;

use bytemuck::Pod;
use toroid_ring::goldilocks;
use zeroize::Zeroize;

use crate::params::{Gadget, ModulusKind};

/// Evaluates an expression in which a name stands for the [`Modulus`] that a [`ModulusKind`] means.
///
/// ```
/// use toroid_tfhe::modulus::Modulus;
/// use toroid_tfhe::{params::TINY, with_modulus};
///
/// let canonical = with_modulus!(TINY.modulus, M => M::is_canonical(0));
/// assert!(canonical);
/// ```
#[macro_export]
macro_rules! with_modulus {
    ($kind:expr, $modulus:ident => $body:expr) => {
        match $kind {
            $crate::params::ModulusKind::Torus32 => {
                type $modulus = $crate::modulus::Torus32;
                $body
            }
            $crate::params::ModulusKind::Goldilocks => {
                type $modulus = $crate::modulus::Goldilocks;
                $body
            }
        }
    };
}

/// 1.5·2^52: adding it to a small f64 leaves the nearest integer in the low bits of the sum.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// The integer nearest to `x`, for |x| < 2^51, as an f64.
#[inline(always)]
fn nearest(x: f64) -> f64 {
    (x + ROUND) - ROUND
}

/// The integer nearest to `x`, for |x| < 2^51.
#[inline(always)]
pub(crate) fn nearest_i64(x: f64) -> i64 {
    (x + ROUND)
        .to_bits()
        .wrapping_sub(ROUND.to_bits())
        .cast_signed()
}

/// The additive group of integers modulo q. Words are canonical: in [0, q).
pub trait Words: Copy + Debug + Send + Sync + 'static {
    /// A word: `u32` or `u64`, little-endian on every border.
    type Word: Pod + Eq + Default + Debug + Send + Sync + Zeroize;

    /// a + b.
    fn add(a: Self::Word, b: Self::Word) -> Self::Word;
    /// a - b.
    fn sub(a: Self::Word, b: Self::Word) -> Self::Word;
    /// -a.
    fn neg(a: Self::Word) -> Self::Word;
    /// The digit of `a` that `field` describes.
    fn digit(a: Self::Word, field: DigitField) -> i32;
    /// Replaces every word by one whose 2^`log2`-fold it was, 1 <= log2 <= 20: exactly in the field. On the torus, to within 2^(log2 - 1)
    /// units, and by one of the 2^(-log2) of a turn around zero, so that the shares of uniform words, and their digits, have no mean.
    fn share(words: &mut [Self::Word], log2: u32);
}

/// Words that the f64 path accumulates in.
pub trait FloatWords: Words {
    /// a + x, where `x` is in units of the f64 path, rounded.
    fn add_f64(a: Self::Word, x: f64) -> Self::Word;
}

/// Arithmetic modulo q on single words.
pub trait Modulus: Words {
    /// What the f64 path accumulates in.
    type Float: FloatWords;
    /// Which modulus this is.
    const KIND: ModulusKind;
    /// Whether there are sets of wide functions over it. Where there are none, keys of any set have no code for them.
    const HAS_WIDE_SETS: bool;

    /// The same place of the torus, to the nearest word of the f64 path.
    fn to_float(a: Self::Word) -> <Self::Float as Words>::Word;
    /// The same place of the torus, to the nearest word.
    fn from_float(a: <Self::Float as Words>::Word) -> Self::Word;
    /// a·v for a signed integer v.
    fn mul_signed(a: Self::Word, v: i32) -> Self::Word;
    /// `a` if `bit` is 1, 0 if it is 0, without a branch.
    fn select(a: Self::Word, bit: u64) -> Self::Word;
    /// [`Words::add`] for secrets: without a branch that depends on the words.
    fn add_masked(a: Self::Word, b: Self::Word) -> Self::Word;
    /// [`Words::sub`] for secrets: without a branch that depends on the words.
    fn sub_masked(a: Self::Word, b: Self::Word) -> Self::Word;
    /// [`Modulus::from_signed`] for secrets: without a branch that depends on `v`.
    fn from_signed_masked(v: i64) -> Self::Word;
    /// The sum of the words whose bit is 1, of at most 2^32, without branches or indices that depend on words or bits.
    fn sum_selected(words: &[Self::Word], bits: &[u64]) -> Self::Word;
    /// v mod q, for |v| < q/2.
    fn from_signed(v: i64) -> Self::Word;
    /// The representative of least absolute value.
    fn centered(a: Self::Word) -> i64;
    /// Whether `a` is in [0, q).
    fn is_canonical(a: Self::Word) -> bool;
    /// round(m·q / 2^bits) mod q, for 1 <= bits < 64.
    fn encode(m: i64, bits: u32) -> Self::Word;
    /// round(a·2^bits / q) mod 2^bits, for the same widths.
    fn decode(a: Self::Word, bits: u32) -> u64;
    /// A uniform word from 64 uniform bits, or `None` (with probability 2^-32 at most) where these do not give one.
    fn uniform(bits: u64) -> Option<Self::Word>;
    /// The word in units of the top of a u64: floor(a·2^64/q) to within 2^-32 of the torus.
    fn to_u64_torus(a: Self::Word) -> u64;
    /// The word that [`Modulus::to_u64_torus`] gives these bits of.
    fn from_u64_torus(a: u64) -> Self::Word;
    /// Centred lift to the Goldilocks field, the domain of canonical keys.
    fn to_goldilocks(a: Self::Word) -> u64;
    /// The word nearest to a word of the 32-bit torus.
    fn from_torus32(a: u32) -> Self::Word;
    /// Back from the field, for a value whose centred representative is a true integer result.
    fn from_goldilocks(a: u64) -> Self::Word;
    /// Factor that brings centred words to the unit of the f64 path.
    const F64_UNIT: f64;
    /// The gadget's value at `level`: the word nearest to q/2^(beta·(level+1)).
    fn gadget_value(gadget: Gadget, level: usize) -> Self::Word;
}

/// q = 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torus32;

/// One digit of the balanced decomposition in a gadget's base, in [-B/2, B/2).
///
/// Adding half of every digit's range (and half a unit of the last digit, to round) first turns the balanced digits into
/// plain bit fields, without carries; half the base is then taken off the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigitField {
    offset: u64,
    shift: u32,
    mask: u32,
    half: i32,
}

impl DigitField {
    /// Digit `level` (0 = most significant) of words modulo `modulus`.
    #[must_use]
    pub fn new(modulus: ModulusKind, gadget: Gadget, level: usize) -> DigitField {
        let beta = gadget.log2_base;
        let mut shift = 8 * modulus.word_bytes() as u32;
        let top = shift;
        let mut offset = 0u64;
        for _ in 0..gadget.levels {
            offset += 1u64 << (shift - 1);
            shift -= beta;
        }
        if shift > 0 {
            offset = offset.wrapping_add(1u64 << (shift - 1));
        }
        DigitField {
            offset,
            shift: top - beta * (level as u32 + 1),
            mask: (1 << beta) - 1,
            half: 1 << (beta - 1),
        }
    }

    /// What is added to a word, so that the digit becomes a field of its bits.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// The lowest bit of that field.
    #[must_use]
    pub const fn shift(self) -> u32 {
        self.shift
    }

    /// The same digit in (-B/2, B/2]: every digit's range is one unit higher.
    fn raised(self, modulus: ModulusKind, gadget: Gadget) -> DigitField {
        let bits = 8 * modulus.word_bytes();
        let units: u64 = (1..=gadget.levels)
            .map(|level| 1 << (bits - level * gadget.log2_base as usize))
            .sum();
        DigitField {
            offset: self.offset.wrapping_sub(units),
            half: self.half - 1,
            ..self
        }
    }
}

/// Which digit of every coefficient of a polynomial is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigitFields {
    /// The same of all, in [-B/2, B/2): a mean of -1/2.
    Same(DigitField),
    /// Digits without a mean.
    Alternating(AlternatingFields),
}

impl From<DigitField> for DigitFields {
    fn from(field: DigitField) -> DigitFields {
        DigitFields::Same(field)
    }
}

/// Digits in [-B/2, B/2) of even and in (-B/2, B/2] of odd coefficients: their means of -1/2 and 1/2 cancel in sums over a key's
/// ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlternatingFields {
    even: DigitField,
    odd: DigitField,
}

impl AlternatingFields {
    /// Digit `level` (0 = most significant) of words modulo `modulus`.
    #[must_use]
    pub fn new(modulus: ModulusKind, gadget: Gadget, level: usize) -> AlternatingFields {
        let even = DigitField::new(modulus, gadget, level);
        AlternatingFields {
            even,
            odd: even.raised(modulus, gadget),
        }
    }
}

/// The digit of each coefficient, for kernels that are compiled for one rule.
pub(crate) trait FieldOf: Copy + Send + Sync {
    /// That of coefficient `index`.
    fn at(self, index: usize) -> DigitField;
}

impl FieldOf for DigitField {
    #[inline(always)]
    fn at(self, _: usize) -> DigitField {
        self
    }
}

impl FieldOf for AlternatingFields {
    #[inline(always)]
    fn at(self, index: usize) -> DigitField {
        let DigitField { offset, half, .. } = if index.is_multiple_of(2) {
            self.even
        } else {
            self.odd
        };
        // Shift and mask are those of both: one for all lanes of a vector.
        DigitField {
            offset,
            half,
            ..self.even
        }
    }
}

impl Words for Torus32 {
    type Word = u32;

    #[inline(always)]
    fn add(a: u32, b: u32) -> u32 {
        a.wrapping_add(b)
    }
    #[inline(always)]
    fn sub(a: u32, b: u32) -> u32 {
        a.wrapping_sub(b)
    }
    #[inline(always)]
    fn neg(a: u32) -> u32 {
        a.wrapping_neg()
    }
    #[inline(always)]
    fn digit(a: u32, field: DigitField) -> i32 {
        let shifted = a.wrapping_add(field.offset as u32) >> field.shift;
        (shifted & field.mask).cast_signed() - field.half
    }
    fn share(words: &mut [u32], log2: u32) {
        for word in words {
            let share = word.wrapping_add(1 << (log2 - 1)).cast_signed() >> log2;
            *word = share.cast_unsigned();
        }
    }
}

impl FloatWords for Torus32 {
    #[inline(always)]
    fn add_f64(a: u32, x: f64) -> u32 {
        const TWO32: f64 = 4_294_967_296.0;
        a.wrapping_add(nearest_i64(x - nearest(x * (1.0 / TWO32)) * TWO32) as u32)
    }
}

impl Modulus for Torus32 {
    type Float = Torus32;
    const KIND: ModulusKind = ModulusKind::Torus32;
    const HAS_WIDE_SETS: bool = false;
    const F64_UNIT: f64 = 1.0;

    #[inline(always)]
    fn to_float(a: u32) -> u32 {
        a
    }
    #[inline(always)]
    fn from_float(a: u32) -> u32 {
        a
    }
    #[inline(always)]
    fn mul_signed(a: u32, v: i32) -> u32 {
        a.wrapping_mul(v.cast_unsigned())
    }
    #[inline(always)]
    fn select(a: u32, bit: u64) -> u32 {
        a & (bit as u32).wrapping_neg()
    }
    #[inline(always)]
    fn add_masked(a: u32, b: u32) -> u32 {
        Self::add(a, b)
    }
    #[inline(always)]
    fn sub_masked(a: u32, b: u32) -> u32 {
        Self::sub(a, b)
    }
    #[inline(always)]
    fn from_signed_masked(v: i64) -> u32 {
        Self::from_signed(v)
    }
    #[inline(always)]
    fn sum_selected(words: &[u32], bits: &[u64]) -> u32 {
        let selected = words.iter().zip(bits);
        selected.fold(0, |sum, (a, bit)| Self::add(sum, Self::select(*a, *bit)))
    }
    #[inline(always)]
    fn from_signed(v: i64) -> u32 {
        v as u32
    }
    #[inline(always)]
    fn centered(a: u32) -> i64 {
        i64::from(a.cast_signed())
    }
    #[inline(always)]
    fn is_canonical(_: u32) -> bool {
        true
    }
    #[inline(always)]
    fn encode(m: i64, bits: u32) -> u32 {
        match bits.checked_sub(32) {
            None | Some(0) => (m << (32 - bits)) as u32,
            Some(beyond) => ((m + (1 << (beyond - 1))) >> beyond) as u32,
        }
    }
    #[inline(always)]
    fn decode(a: u32, bits: u32) -> u64 {
        if let Some(beyond) = bits.checked_sub(32) {
            return u64::from(a) << beyond;
        }
        let rounded = (u64::from(a) + (1 << (31 - bits))) >> (32 - bits);
        rounded & ((1 << bits) - 1)
    }
    #[inline(always)]
    fn uniform(bits: u64) -> Option<u32> {
        Some(bits as u32)
    }
    #[inline(always)]
    fn to_u64_torus(a: u32) -> u64 {
        u64::from(a) << 32
    }
    #[inline(always)]
    fn from_u64_torus(a: u64) -> u32 {
        (a >> 32) as u32
    }
    #[inline(always)]
    fn to_goldilocks(a: u32) -> u64 {
        goldilocks::from_signed(Self::centered(a))
    }
    #[inline(always)]
    fn from_torus32(a: u32) -> u32 {
        a
    }
    #[inline(always)]
    fn from_goldilocks(a: u64) -> u32 {
        // The centred representative is a or a - p, and p = 1 mod 2^32.
        (a as u32).wrapping_sub(u32::from(a > goldilocks::P / 2))
    }
    #[inline(always)]
    fn gadget_value(gadget: Gadget, level: usize) -> u32 {
        1 << (32 - gadget.log2_base * (level as u32 + 1))
    }
}

/// q = p = 2^64 - 2^32 + 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goldilocks;

impl Words for Goldilocks {
    type Word = u64;

    #[inline(always)]
    fn add(a: u64, b: u64) -> u64 {
        goldilocks::add(a, b)
    }
    #[inline(always)]
    fn sub(a: u64, b: u64) -> u64 {
        goldilocks::sub(a, b)
    }
    #[inline(always)]
    fn neg(a: u64) -> u64 {
        goldilocks::neg(a)
    }
    #[inline(always)]
    fn digit(a: u64, field: DigitField) -> i32 {
        // On the torus itself: whole turns drop out of bit fields of 2^64, and not of those of p.
        Torus64::digit(Self::to_float(a), field)
    }
    fn share(words: &mut [u64], log2: u32) {
        let inverse = goldilocks::inv(1 << log2);
        for word in words {
            *word = goldilocks::mul(*word, inverse);
        }
    }
}

impl Modulus for Goldilocks {
    type Float = Torus64;
    const KIND: ModulusKind = ModulusKind::Goldilocks;
    const HAS_WIDE_SETS: bool = true;
    /// 1/p: the f64 path works on the torus itself.
    const F64_UNIT: f64 = 1.0 / goldilocks::P as f64;

    #[inline(always)]
    fn to_float(a: u64) -> u64 {
        // a·2^64/p = a + a·2^-32·(1 - 2^-64 …).
        a.wrapping_add((a + (1 << 31)) >> 32)
    }
    #[inline(always)]
    fn from_float(a: u64) -> u64 {
        // a·p/2^64 = a - a·(2^32 - 1)/2^64.
        a - ((u128::from(a) * 0xffff_ffff + (1 << 63)) >> 64) as u64
    }

    #[inline(always)]
    fn mul_signed(a: u64, v: i32) -> u64 {
        goldilocks::mul(a, goldilocks::from_signed(i64::from(v)))
    }
    #[inline(always)]
    fn select(a: u64, bit: u64) -> u64 {
        a & bit.wrapping_neg()
    }
    #[inline(always)]
    fn add_masked(a: u64, b: u64) -> u64 {
        goldilocks::add_masked(a, b)
    }
    #[inline(always)]
    fn sub_masked(a: u64, b: u64) -> u64 {
        goldilocks::sub_masked(a, b)
    }
    #[inline(always)]
    fn from_signed_masked(v: i64) -> u64 {
        goldilocks::from_signed_masked(v)
    }
    #[inline(always)]
    fn sum_selected(words: &[u64], bits: &[u64]) -> u64 {
        let selected = words.iter().zip(bits);
        // Carries alone: one reduction at the end.
        let sum = selected.fold(0, |sum, (a, bit)| sum + u128::from(Self::select(*a, *bit)));
        goldilocks::reduce_sum_masked(sum)
    }
    #[inline(always)]
    fn from_signed(v: i64) -> u64 {
        goldilocks::from_signed(v)
    }
    #[inline(always)]
    fn centered(a: u64) -> i64 {
        goldilocks::to_centered(a)
    }
    #[inline(always)]
    fn is_canonical(a: u64) -> bool {
        a < goldilocks::P
    }
    #[inline(always)]
    fn encode(m: i64, bits: u32) -> u64 {
        let m = u128::from(m.cast_unsigned() & ((1 << bits) - 1));
        let scaled = (m * u128::from(goldilocks::P) + (1 << (bits - 1))) >> bits;
        scaled as u64
    }
    #[inline(always)]
    fn decode(a: u64, bits: u32) -> u64 {
        // (a·2^bits + p/2) / p without a division, whose time would depend on the secret: with x = h·2^64 + l and
        // 2^64 = p + 2^32 - 1, the quotient is h plus that of h·(2^32 - 1) + l. Its own upper word is below 2^31, so that
        // the second remainder holds p once at most.
        let split = |x: u128| {
            let high = (x >> 64) as u64;
            let rest = u128::from(high) * 0xffff_ffff + (x & u128::from(u64::MAX));
            (high, rest)
        };
        let (first, rest) = split((u128::from(a) << bits) + u128::from(goldilocks::P / 2));
        let (second, rest) = split(rest);
        let rounded = first + second + u64::from(rest >= u128::from(goldilocks::P));
        rounded & ((1 << bits) - 1)
    }
    #[inline(always)]
    fn uniform(bits: u64) -> Option<u64> {
        (bits < goldilocks::P).then_some(bits)
    }
    #[inline(always)]
    fn to_u64_torus(a: u64) -> u64 {
        a
    }
    #[inline(always)]
    fn from_u64_torus(a: u64) -> u64 {
        a
    }
    #[inline(always)]
    fn to_goldilocks(a: u64) -> u64 {
        a
    }
    #[inline(always)]
    fn from_torus32(a: u32) -> u64 {
        // a·p / 2^32 = a·2^32 - a + a/2^32.
        (u64::from(a) << 32) - u64::from(a) + u64::from(a >> 31)
    }
    #[inline(always)]
    fn from_goldilocks(a: u64) -> u64 {
        a
    }
    #[inline(always)]
    fn gadget_value(gadget: Gadget, level: usize) -> u64 {
        let bits = gadget.log2_base * (level as u32 + 1);
        (goldilocks::P >> bits) + (goldilocks::P >> (bits - 1) & 1)
    }
}

/// The torus in units of 2^-64: what the f64 path accumulates in over the Goldilocks modulus, since additions and digits
/// modulo 2^64 cost a third of those modulo p. Going there and back moves a word by one unit at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torus64;

impl Words for Torus64 {
    type Word = u64;

    #[inline(always)]
    fn add(a: u64, b: u64) -> u64 {
        a.wrapping_add(b)
    }
    #[inline(always)]
    fn sub(a: u64, b: u64) -> u64 {
        a.wrapping_sub(b)
    }
    #[inline(always)]
    fn neg(a: u64) -> u64 {
        a.wrapping_neg()
    }
    #[inline(always)]
    fn digit(a: u64, field: DigitField) -> i32 {
        let shifted = a.wrapping_add(field.offset) >> field.shift;
        (shifted as u32 & field.mask).cast_signed() - field.half
    }
    fn share(words: &mut [u64], log2: u32) {
        for word in words {
            let share = word.wrapping_add(1 << (log2 - 1)).cast_signed() >> log2;
            *word = share.cast_unsigned();
        }
    }
}

impl FloatWords for Torus64 {
    #[inline(always)]
    fn add_f64(a: u64, x: f64) -> u64 {
        // Units of 2^-50, finer than what the transform leaves exact. The shift drops the exponent that `ROUND` gives.
        const TWO50: f64 = 1_125_899_906_842_624.0;
        a.wrapping_add(((x - nearest(x)) * TWO50 + ROUND).to_bits() << 14)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::ParamSet;
    use proptest::prelude::*;

    #[test]
    fn moduli_of_wide_sets_say_so() {
        for modulus in [ModulusKind::Torus32, ModulusKind::Goldilocks] {
            let mut sets = ParamSet::ALL.iter().filter(|set| set.modulus == modulus);
            let has_wide_sets = with_modulus!(modulus, M => M::HAS_WIDE_SETS);
            assert_eq!(has_wide_sets, sets.any(|set| set.is_wide()), "{modulus:?}");
        }
    }

    fn recompose<M: Modulus>(a: M::Word, gadget: Gadget, index: usize) -> i128 {
        let half = 1 << (gadget.log2_base - 1);
        let least = if index == 0 { -half } else { 1 - half };
        (0..gadget.levels)
            .map(|level| {
                let fields = AlternatingFields::new(M::KIND, gadget, level);
                let digit = M::digit(a, fields.at(index));
                assert!((least..least + 2 * half).contains(&digit));
                i128::from(digit) * i128::from(M::centered(M::gadget_value(gadget, level)))
            })
            .sum()
    }

    fn digits_recompose<M: Modulus>(a: M::Word, gadget: Gadget, width: u32) {
        let unit = 1i128 << (width - gadget.levels as u32 * gadget.log2_base);
        // Within half a unit of ±p/2 the digits may recompose to a neighbour modulo 2^64 instead of p: off by 2^32 - 1,
        // which the sets' dropped bits (38 at least) hide.
        let (modulus, wrap) = match M::KIND {
            ModulusKind::Torus32 => (1i128 << width, 0),
            ModulusKind::Goldilocks => (i128::from(goldilocks::P), 0xffff_ffff),
        };
        for index in [0, 1] {
            let recomposed = recompose::<M>(a, gadget, index);
            let error = (recomposed - i128::from(M::centered(a))).rem_euclid(modulus);
            let error = error.min(modulus - error);
            assert!(error <= unit / 2 + wrap, "error {error} of {unit}");
        }
    }

    proptest! {
        #[test]
        fn digits_stay_within_half_a_unit(a: u32, b: u64, levels in 1usize..5, log2_base in 2u32..7) {
            let gadget = Gadget { levels, log2_base };
            digits_recompose::<Torus32>(a, gadget, 32);
            digits_recompose::<Goldilocks>(b % goldilocks::P, gadget, 64);
            digits_recompose::<Goldilocks>(b % goldilocks::P, Gadget { levels: 1, log2_base: 24 }, 64);
        }

        #[test]
        fn encoding_round_trips(m in 0i64..1 << 20, bits in 1u32..=20, shift in -1000i64..1000) {
            let m = m & ((1 << bits) - 1);
            let expected = m.cast_unsigned();
            prop_assert_eq!(Torus32::decode(Torus32::add(Torus32::encode(m, bits), Torus32::from_signed(shift)), bits), expected);
            prop_assert_eq!(Goldilocks::decode(Goldilocks::add(Goldilocks::encode(m, bits), Goldilocks::from_signed(shift)), bits), expected);
        }

        #[test]
        fn words_of_every_width_round_trip(value: u64, a in 0..goldilocks::P, bits in 1u32..64) {
            let value = value & ((1 << bits) - 1);
            let word = Goldilocks::encode(value.cast_signed(), bits);
            prop_assert!(Goldilocks::is_canonical(word));
            prop_assert_eq!(Goldilocks::decode(word, bits), value);
            // The definition: a division of 128 bits.
            let p = u128::from(goldilocks::P);
            let exact = ((u128::from(a) << bits) + p / 2) / p;
            prop_assert_eq!(u128::from(Goldilocks::decode(a, bits)), exact & ((1 << bits) - 1));
            let narrow = bits.div_ceil(2).min(31);
            let value = value & ((1 << narrow) - 1);
            prop_assert_eq!(Torus32::decode(Torus32::encode(value.cast_signed(), narrow), narrow), value);
        }

        #[test]
        fn f64_conversion_is_the_nearest_word(start: u64, value in -(1i64 << 50)..1 << 50, wraps in -1000i64..1000) {
            let start32 = start as u32;
            prop_assert_eq!(Torus32::add_f64(start32, value as f64), start32.wrapping_add(value as u32));
            let x = value as f64 / 2f64.powi(64) + wraps as f64;
            let error = Torus64::add_f64(start, x).wrapping_sub(start).wrapping_sub(value.cast_unsigned()).cast_signed();
            // Half a unit of 2^-50, and x keeps 53 bits, ten of them for the wraps.
            prop_assert!(error.abs() <= (1 << 13) + (1 << 21), "off by {error}");
        }

        #[test]
        fn shares_on_the_torus_stand_around_zero(word: u64, log2 in 1u32..=20) {
            let mut share = [word];
            Torus64::share(&mut share, log2);
            let error = (share[0] << log2).wrapping_sub(word).cast_signed();
            prop_assert!(error.unsigned_abs() <= 1 << (log2 - 1));
            prop_assert!(share[0].cast_signed().unsigned_abs() <= 1 << (63 - log2));
            let word = (word >> 32) as u32;
            let mut share = [word];
            Torus32::share(&mut share, log2);
            let error = (share[0] << log2).wrapping_sub(word).cast_signed();
            prop_assert!(error.unsigned_abs() <= 1 << (log2 - 1));
            prop_assert!(share[0].cast_signed().unsigned_abs() <= 1 << (31 - log2));
        }

        #[test]
        fn the_f64_path_accumulates_at_the_same_place(a in 0..goldilocks::P) {
            let there = Goldilocks::to_float(a);
            // there/2^64 - a/p = (there·p - a·2^64) / (2^64·p)
            let (x, y) = (u128::from(there) * u128::from(goldilocks::P), u128::from(a) << 64);
            prop_assert!(x.abs_diff(y) <= 1 << 64);
            let back = Goldilocks::from_float(there);
            prop_assert!(Goldilocks::is_canonical(back) && back.abs_diff(a) <= 1);
        }

        #[test]
        fn words_of_the_32_bit_torus_become_the_nearest(a: u32) {
            prop_assert_eq!(Torus32::from_torus32(a), a);
            let found = u128::from(Goldilocks::from_torus32(a));
            let exact = u128::from(a) * u128::from(goldilocks::P);
            prop_assert!((found << 32).abs_diff(exact) <= 1 << 31);
        }

        #[test]
        fn sums_of_selected_words_are_those_of_the_others(
            words in prop::collection::vec((0..goldilocks::P, 0..2u64), 0..100),
        ) {
            let (words, bits): (Vec<u64>, Vec<u64>) = words.into_iter().unzip();
            let of = |select: &dyn Fn(u64) -> u64| {
                let selected = words.iter().zip(&bits).filter(|(_, bit)| **bit == 1);
                selected.map(|(word, _)| select(*word)).collect::<Vec<_>>()
            };
            let expected = of(&|word| word).into_iter().fold(0, Goldilocks::add);
            prop_assert_eq!(Goldilocks::sum_selected(&words, &bits), expected);
            let short: Vec<u32> = words.iter().map(|word| *word as u32).collect();
            let expected = of(&|word| word & 0xffff_ffff).into_iter().fold(0, |sum, word| Torus32::add(sum, word as u32));
            prop_assert_eq!(Torus32::sum_selected(&short, &bits), expected);
        }

        #[test]
        fn goldilocks_lift_round_trips(a: u32) {
            prop_assert_eq!(Torus32::from_goldilocks(Torus32::to_goldilocks(a)), a);
        }
    }

    #[test]
    fn alternating_digits_have_no_mean() {
        let gadget = Gadget {
            levels: 3,
            log2_base: 4,
        };
        for level in 0..gadget.levels {
            let fields = AlternatingFields::new(ModulusKind::Torus32, gadget, level);
            let words = (0..1u32 << 12).map(|top| top << 20 | 0x7ffff);
            let sum: i32 = words
                .flat_map(|word| [0, 1].map(|index| Torus32::digit(word, fields.at(index))))
                .sum();
            assert_eq!(sum, 0, "level {level}");
        }
    }

    #[test]
    fn places_at_the_edges() {
        for a in [0, 1, 1 << 32, goldilocks::P / 2, goldilocks::P - 1] {
            let back = Goldilocks::from_float(Goldilocks::to_float(a));
            assert!(
                Goldilocks::is_canonical(back) && back.abs_diff(a) <= 1,
                "{a}"
            );
        }
        assert_eq!(Goldilocks::from_float(u64::MAX), goldilocks::P - 1);
        for x in [0.5, -0.5, 0.499_999_999_999_999_9, -0.0, 1.5, 12_345.5] {
            let found = Torus64::add_f64(0, x);
            let expected = if x == 0.0 { 0 } else { 1 << 63 };
            assert!(
                found.wrapping_sub(expected).cast_signed().abs() <= 1 << 14,
                "{x}"
            );
        }
    }
}
