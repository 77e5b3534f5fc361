//! Functions of integers.

use super::{Function, ServerKey};
use crate::TfheError;
use crate::ciphertext::Ciphertext;
use crate::encoding::Encoding;
use crate::glwe;

impl ServerKey {
    /// A ciphertext of f(x) with fresh noise, by one bootstrap. Its values count modulo 2^(p+1) for messages of p bits.
    ///
    /// The argument lies in the range of its encoding ([`Encoding::messages`]), whatever was computed before: outside, sets
    /// without circuit bootstrapping give -f at the message that is 2^p away, the others f there.
    ///
    /// # Errors
    /// [`TfheError::ParamsMismatch`] and [`TfheError::KeyMismatch`] for a ciphertext of another set or key,
    /// [`TfheError::EncodingMismatch`] for a bit, [`TfheError::FunctionTooWide`] or [`TfheError::MessageTooWide`] for a set
    /// that has no room for the function, [`TfheError::Cancelled`].
    pub fn apply(&self, f: impl Fn(i64) -> i64, x: &Ciphertext) -> Result<Ciphertext, TfheError> {
        self.apply_to(x.integer_encoding()?, f, x)
    }

    /// [`ServerKey::apply`] with a result in another encoding.
    ///
    /// # Errors
    /// As [`ServerKey::apply`].
    pub fn apply_to(
        &self,
        output: Encoding,
        f: impl Fn(i64) -> i64,
        x: &Ciphertext,
    ) -> Result<Ciphertext, TfheError> {
        let function = self.function(x.integer_encoding()?, output, f)?;
        self.one(x, function)
    }

    /// Several functions of one argument, together: cheaper than one by one, above all for wide functions.
    ///
    /// ```
    /// # use toroid_tfhe::{generate, params::TINY};
    /// # let (client, server) = generate(&TINY)?;
    /// let x = client.encrypt(7)?;
    /// let [tens, ones] = server.apply_many([&|x| x / 5, &|x| x % 5], &x)?;
    /// assert_eq!((client.decrypt(&tens)?, client.decrypt(&ones)?), (1, 2));
    /// # Ok::<(), toroid_tfhe::TfheError>(())
    /// ```
    ///
    /// # Errors
    /// As [`ServerKey::apply`].
    pub fn apply_many<const COUNT: usize>(
        &self,
        functions: [&dyn Fn(i64) -> i64; COUNT],
        x: &Ciphertext,
    ) -> Result<[Ciphertext; COUNT], TfheError> {
        let encoding = x.integer_encoding()?;
        let functions = functions
            .iter()
            .map(|f| self.function(encoding, encoding, f))
            .collect::<Result<Vec<_>, _>>()?;
        let results = self.bootstrap(&[x], &functions)?.into_iter().flatten();
        let results: Vec<Ciphertext> = results.collect();
        Ok(results.try_into().expect("a result for each function"))
    }

    /// One function of many arguments of one encoding, which stream the key together.
    ///
    /// # Errors
    /// As [`ServerKey::apply`]; [`TfheError::EncodingMismatch`] for arguments of several encodings.
    pub fn apply_batch(
        &self,
        f: impl Fn(i64) -> i64,
        arguments: &[Ciphertext],
    ) -> Result<Vec<Ciphertext>, TfheError> {
        let Some(first) = arguments.first() else {
            return Ok(Vec::new());
        };
        let encoding = first.integer_encoding()?;
        for argument in arguments {
            argument.expect_encoding(Some(encoding))?;
        }
        let arguments: Vec<&Ciphertext> = arguments.iter().collect();
        let function = self.function(encoding, encoding, f)?;
        let results = self.bootstrap(&arguments, &[function])?;
        Ok(results.into_iter().flatten().collect())
    }

    /// A ciphertext of f(x, y) in the encoding of y, by one bootstrap of x·2^q + y.
    ///
    /// y has the encoding of p + q bits that the set bootstraps, and a value of q bits. x has either an encoding of its own
    /// p bits, or that of y and a value of p bits; then q is half of the width, rounded down. The second form multiplies x,
    /// and its noise, by 2^q. All values are signed, or none.
    ///
    /// ```
    /// # use toroid_tfhe::{generate, params::TINY};
    /// # let (client, server) = generate(&TINY)?;
    /// let (x, y) = (client.encrypt(-2)?, client.encrypt(1)?); // 2 of 4 bits each
    /// let larger = server.apply2(|x, y| x.max(y), &x, &y)?;
    /// assert_eq!(client.decrypt(&larger)?, 1);
    /// # Ok::<(), toroid_tfhe::TfheError>(())
    /// ```
    ///
    /// # Errors
    /// As [`ServerKey::apply`]; [`TfheError::EncodingMismatch`] where y has less bits than x, or only one is signed;
    /// [`TfheError::MessageBits`] for an encoding of one bit, which cannot be shared.
    pub fn apply2(
        &self,
        f: impl Fn(i64, i64) -> i64,
        x: &Ciphertext,
        y: &Ciphertext,
    ) -> Result<Ciphertext, TfheError> {
        let (upper, both) = (x.integer_encoding()?, y.integer_encoding()?);
        let q = if upper == both {
            both.bits() / 2
        } else {
            both.bits().saturating_sub(upper.bits())
        };
        if upper.is_signed() != both.is_signed() || both.bits() < upper.bits() {
            x.expect_encoding(Some(both))?;
        }
        if q == 0 {
            return Err(TfheError::MessageBits(0));
        }
        // 2^q where x has the scale of y, 1 where it has its own.
        let factor = 1 << (upper.bits() + q - both.bits());
        // The values of y from 0 up, so that no pair leaves the range of the sum.
        let offset = if both.is_signed() { 1 << (q - 1) } else { 0 };
        let pair = y.plus(x, factor)?.shifted(offset, both.bits() + 1);
        let function = self.function(both, both, |m| f(m >> q, (m & ((1 << q) - 1)) - offset))?;
        self.one(&pair, function)
    }

    fn one(&self, x: &Ciphertext, function: Function) -> Result<Ciphertext, TfheError> {
        let mut results = self.bootstrap(&[x], &[function])?.into_iter().flatten();
        Ok(results.next().expect("one result"))
    }

    /// The test vector of a function.
    fn function(
        &self,
        input: Encoding,
        output: Encoding,
        f: impl Fn(i64) -> i64,
    ) -> Result<Function, TfheError> {
        glwe::expect_table(self.params(), input)?;
        let values: Vec<i64> = input.messages().map(f).collect();
        Ok(Function {
            test_vector: glwe::function_bytes(self.params(), input, output, &values)?,
            output: Some(output),
        })
    }
}
