//! Sums, differences and multiples of ciphertexts: exact on the messages, without a bootstrap, while noise grows.
//!
//! Results are integers modulo 2^(p+1) for messages of p bits, as [`Encoding::outputs`] reads them. A bootstrap takes
//! messages in [`Encoding::messages`] alone.
//!
//! [`Encoding::outputs`]: crate::encoding::Encoding::outputs
//! [`Encoding::messages`]: crate::encoding::Encoding::messages

use std::ops::{Add, AddAssign, Mul, Neg, Not, Sub, SubAssign};

use super::{Ciphertext, SampleWords};
use crate::TfheError;
use crate::lwe;
use crate::modulus::{Goldilocks, Modulus, Torus32};

impl SampleWords {
    pub(super) fn add(&mut self, other: &SampleWords) {
        match (self, other) {
            (SampleWords::Torus32(a), SampleWords::Torus32(b)) => lwe::add_assign::<Torus32>(a, b),
            (SampleWords::Goldilocks(a), SampleWords::Goldilocks(b)) => {
                lwe::add_assign::<Goldilocks>(a, b)
            }
            _ => unreachable!("samples of one parameter set have one modulus"),
        }
    }

    pub(super) fn mul(&mut self, factor: i32) {
        match self {
            SampleWords::Torus32(words) => lwe::mul_assign::<Torus32>(words, factor),
            SampleWords::Goldilocks(words) => lwe::mul_assign::<Goldilocks>(words, factor),
        }
    }

    /// Adds message/2^bits of the torus.
    pub(super) fn add_clear(&mut self, message: i64, bits: u32) {
        fn add<M: Modulus>(words: &mut [M::Word], message: i64, bits: u32) {
            if let Some(body) = words.last_mut() {
                *body = M::add(*body, M::encode(message.rem_euclid(1 << bits), bits));
            }
        }
        match self {
            SampleWords::Torus32(words) => add::<Torus32>(words, message, bits),
            SampleWords::Goldilocks(words) => add::<Goldilocks>(words, message, bits),
        }
    }
}

impl Ciphertext {
    /// self + factor·other, for two ciphertexts of one key, whatever they encode.
    pub(crate) fn plus(&self, other: &Ciphertext, factor: i32) -> Result<Ciphertext, TfheError> {
        other.expect_key(&self.params, self.tag())?;
        let mut sum = self.clone();
        let mut words = other.words.clone();
        if factor != 1 {
            words.mul(factor);
        }
        sum.words.add(&words);
        sum.noise = sum.noise.plus(&other.noise, f64::from(factor));
        sum.tag = sum.tag.or(other.tag);
        Ok(sum)
    }

    /// factor·self, whatever it encodes.
    pub(crate) fn times(&self, factor: i32) -> Ciphertext {
        let mut product = self.clone();
        product.words.mul(factor);
        product.noise = product.noise.times(f64::from(factor));
        product
    }

    /// self + message/2^bits of the torus.
    pub(crate) fn shifted(&self, message: i64, bits: u32) -> Ciphertext {
        let mut sum = self.clone();
        sum.words.add_clear(message, bits);
        sum
    }

    /// The sum of two integers.
    ///
    /// # Errors
    /// [`TfheError::ParamsMismatch`], [`TfheError::KeyMismatch`], [`TfheError::EncodingMismatch`] for two ciphertexts that
    /// do not belong together, or for bits.
    pub fn checked_add(&self, other: &Ciphertext) -> Result<Ciphertext, TfheError> {
        other.expect_encoding(Some(self.integer_encoding()?))?;
        self.plus(other, 1)
    }

    /// The difference of two integers.
    ///
    /// # Errors
    /// As [`Ciphertext::checked_add`].
    pub fn checked_sub(&self, other: &Ciphertext) -> Result<Ciphertext, TfheError> {
        other.expect_encoding(Some(self.integer_encoding()?))?;
        self.plus(other, -1)
    }

    /// The sum of an encrypted and a clear integer.
    ///
    /// # Errors
    /// [`TfheError::EncodingMismatch`] for a bit.
    pub fn checked_add_clear(&self, integer: i64) -> Result<Ciphertext, TfheError> {
        let encoding = self.integer_encoding()?;
        Ok(self.shifted(integer, encoding.bits() + 1))
    }

    /// The product of an encrypted and a clear integer. The standard deviation of the noise grows by the factor.
    ///
    /// # Errors
    /// [`TfheError::EncodingMismatch`] for a bit.
    pub fn checked_mul_clear(&self, factor: i32) -> Result<Ciphertext, TfheError> {
        self.integer_encoding()?;
        Ok(self.times(factor))
    }

    /// The other bit.
    ///
    /// # Errors
    /// [`TfheError::EncodingMismatch`] for an integer.
    pub fn checked_not(&self) -> Result<Ciphertext, TfheError> {
        self.expect_encoding(None)?;
        Ok(self.times(-1))
    }
}

/// The result of an operator.
fn expect(result: Result<Ciphertext, TfheError>) -> Ciphertext {
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// Implements a binary operator for values and references.
macro_rules! binary {
    ($operator:ident, $method:ident, $checked:ident) => {
        impl $operator<&Ciphertext> for &Ciphertext {
            type Output = Ciphertext;

            /// # Panics
            #[doc = concat!("Where [`Ciphertext::", stringify!($checked), "`] gives an error.")]
            fn $method(self, other: &Ciphertext) -> Ciphertext {
                expect(self.$checked(other))
            }
        }

        impl $operator<Ciphertext> for &Ciphertext {
            type Output = Ciphertext;

            fn $method(self, other: Ciphertext) -> Ciphertext {
                self.$method(&other)
            }
        }

        impl $operator<&Ciphertext> for Ciphertext {
            type Output = Ciphertext;

            fn $method(self, other: &Ciphertext) -> Ciphertext {
                (&self).$method(other)
            }
        }

        impl $operator<Ciphertext> for Ciphertext {
            type Output = Ciphertext;

            fn $method(self, other: Ciphertext) -> Ciphertext {
                (&self).$method(&other)
            }
        }
    };
}

binary!(Add, add, checked_add);
binary!(Sub, sub, checked_sub);

/// Implements an operator of a ciphertext and a clear integer, for values and references.
macro_rules! with_clear {
    ($operator:ident<$integer:ty>, $method:ident, |$a:ident, $b:ident| $result:expr) => {
        impl $operator<$integer> for &Ciphertext {
            type Output = Ciphertext;

            /// # Panics
            /// For a bit.
            fn $method(self, $b: $integer) -> Ciphertext {
                let $a = self;
                expect($result)
            }
        }

        impl $operator<$integer> for Ciphertext {
            type Output = Ciphertext;

            fn $method(self, $b: $integer) -> Ciphertext {
                (&self).$method($b)
            }
        }
    };
}

with_clear!(Add<i64>, add, |a, b| a.checked_add_clear(b));
with_clear!(Sub<i64>, sub, |a, b| a.checked_add_clear(b.wrapping_neg()));
with_clear!(Mul<i32>, mul, |a, b| a.checked_mul_clear(b));

/// Implements a unary operator for values and references.
macro_rules! unary {
    ($operator:ident, $method:ident, $what:literal, |$a:ident| $result:expr) => {
        impl $operator for &Ciphertext {
            type Output = Ciphertext;

            /// # Panics
            #[doc = $what]
            fn $method(self) -> Ciphertext {
                let $a = self;
                expect($result)
            }
        }

        impl $operator for Ciphertext {
            type Output = Ciphertext;

            fn $method(self) -> Ciphertext {
                (&self).$method()
            }
        }
    };
}

unary!(Neg, neg, "For a bit.", |a| a.checked_mul_clear(-1));
unary!(Not, not, "For an integer.", |a| a.checked_not());

impl AddAssign<&Ciphertext> for Ciphertext {
    /// # Panics
    /// Where [`Ciphertext::checked_add`] gives an error.
    fn add_assign(&mut self, other: &Ciphertext) {
        *self = &*self + other;
    }
}

impl SubAssign<&Ciphertext> for Ciphertext {
    /// # Panics
    /// Where [`Ciphertext::checked_sub`] gives an error.
    fn sub_assign(&mut self, other: &Ciphertext) {
        *self = &*self - other;
    }
}
