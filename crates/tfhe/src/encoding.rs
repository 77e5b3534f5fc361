//! Encoding of integers of p bits, signed or unsigned, with one bit of padding.
//!
//! A message m stands at m/2^(p+1) of the torus. Unsigned messages lie in [0, 2^p); signed ones in
//! [-2^(p-1), 2^(p-1)), so that sums and differences of samples are sums and differences of messages, negative ones
//! too, as long as they stay in the range. After the last bootstrap the padding bit may carry value: decoding over
//! the whole torus reads p + 1 bits.
//!
//! Functions have messages of up to [`MAX_MESSAGE_BITS`] bits, for which there is a table. A sample that no function is applied to, such as a sum of
//! many rows, carries wider ones ([`Encoding::of_samples`]), as far as its noise leaves room.

use crate::TfheError;
use crate::modulus::Modulus;
use crate::params::{ModulusKind, ParamSet};

/// The largest message width that functions have, and samples over the 32-bit torus.
pub const MAX_MESSAGE_BITS: u32 = 16;

/// The largest message width that samples over the Goldilocks prime carry.
pub const MAX_SAMPLE_BITS: u32 = 40;

/// Message width and signedness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    bits: u32,
    signed: bool,
}

impl Encoding {
    /// Messages of `bits` bits, 1 to [`MAX_MESSAGE_BITS`].
    ///
    /// # Errors
    /// [`TfheError::MessageBits`] outside that range.
    pub fn new(bits: u32, signed: bool) -> Result<Encoding, TfheError> {
        if bits == 0 || bits > MAX_MESSAGE_BITS {
            return Err(TfheError::MessageBits(bits));
        }
        Ok(Encoding { bits, signed })
    }

    /// Messages of `bits` bits that samples of a set carry: 1 to [`MAX_SAMPLE_BITS`] over the Goldilocks prime, 1 to
    /// [`MAX_MESSAGE_BITS`] over the 32-bit torus.
    ///
    /// # Errors
    /// [`TfheError::SampleBits`] outside that range.
    pub fn of_samples(params: &ParamSet, bits: u32, signed: bool) -> Result<Encoding, TfheError> {
        let most = match params.modulus {
            ModulusKind::Torus32 => MAX_MESSAGE_BITS,
            ModulusKind::Goldilocks => MAX_SAMPLE_BITS,
        };
        if bits == 0 || bits > most {
            return Err(TfheError::SampleBits {
                bits,
                most,
                params: params.name,
            });
        }
        Ok(Encoding { bits, signed })
    }

    /// p, the message width without the padding bit.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// Whether messages are signed.
    #[must_use]
    pub fn is_signed(self) -> bool {
        self.signed
    }

    /// The messages, smallest to largest.
    #[must_use]
    pub fn messages(self) -> std::ops::Range<i64> {
        self.range(self.bits)
    }

    fn range(self, bits: u32) -> std::ops::Range<i64> {
        let count = 1i64 << bits;
        if self.signed {
            -count / 2..count / 2
        } else {
            0..count
        }
    }

    /// The encoding of sums of messages of both: the wider of them, signed if one is.
    #[must_use]
    pub fn common(self, other: Encoding) -> Encoding {
        Encoding {
            bits: self.bits.max(other.bits),
            signed: self.signed || other.signed,
        }
    }

    /// What decoding over the whole torus yields: one bit more than [`Encoding::messages`].
    #[must_use]
    pub fn outputs(self) -> std::ops::Range<i64> {
        self.range(self.bits + 1)
    }

    /// The word of a message.
    ///
    /// # Errors
    /// [`TfheError::MessageRange`] for a message outside [`Encoding::messages`].
    pub fn encode<M: Modulus>(self, message: i64) -> Result<M::Word, TfheError> {
        if !self.messages().contains(&message) {
            return Err(TfheError::MessageRange {
                range: self.messages(),
            });
        }
        Ok(M::encode(message, self.bits + 1))
    }

    /// The message nearest to a phase, in [`Encoding::outputs`].
    #[must_use]
    pub fn decode<M: Modulus>(self, phase: M::Word) -> i64 {
        let count = 2i64 << self.bits;
        let value = M::decode(phase, self.bits + 1).cast_signed();
        // Arithmetic, not a branch: the value is secret.
        let wrap = i64::from(self.signed) * (value >> self.bits) * count;
        value - wrap
    }
}

impl std::fmt::Display for Encoding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.signed {
            "a signed"
        } else {
            "an unsigned"
        };
        write!(f, "{sign} integer of {} bits", self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modulus::{Goldilocks, Torus32};

    #[test]
    fn every_message_round_trips() {
        for bits in 1..=MAX_MESSAGE_BITS {
            for signed in [false, true] {
                let encoding = Encoding::new(bits, signed).unwrap();
                for m in encoding.messages() {
                    assert_eq!(
                        encoding.decode::<Torus32>(encoding.encode::<Torus32>(m).unwrap()),
                        m
                    );
                    assert_eq!(
                        encoding.decode::<Goldilocks>(encoding.encode::<Goldilocks>(m).unwrap()),
                        m
                    );
                }
                let range = encoding.messages();
                assert!(encoding.encode::<Torus32>(range.end).is_err());
                assert!(encoding.encode::<Torus32>(range.start - 1).is_err());
            }
        }
        assert!(Encoding::new(0, true).is_err());
        assert!(Encoding::new(17, true).is_err());
    }

    #[test]
    fn wide_messages_of_samples_round_trip() {
        use crate::params::{TINY, TINY32};
        for bits in 1..=MAX_SAMPLE_BITS {
            for signed in [false, true] {
                let encoding = Encoding::of_samples(&TINY, bits, signed).unwrap();
                let range = encoding.messages();
                let middle = range.start + (range.end - range.start) / 3;
                for m in [range.start, middle, middle + 1, range.end - 1] {
                    let word = encoding.encode::<Goldilocks>(m).unwrap();
                    assert_eq!(encoding.decode::<Goldilocks>(word), m, "{bits} bits");
                    // The 32-bit torus tells fewer apart, and gives the nearest.
                    let word = encoding.encode::<Torus32>(m).unwrap();
                    let off = (encoding.decode::<Torus32>(word) - m).abs();
                    assert!(
                        off <= 1 << (bits + 1).saturating_sub(32) >> 1,
                        "{bits} bits"
                    );
                }
                assert_eq!(
                    Encoding::of_samples(&TINY32, bits, signed).is_ok(),
                    bits <= MAX_MESSAGE_BITS
                );
            }
        }
        for (params, bits, expected) in [
            (
                &TINY,
                41,
                "a sample of tiny carries messages of 1 to 40 bits, not 41",
            ),
            (
                &TINY,
                0,
                "a sample of tiny carries messages of 1 to 40 bits, not 0",
            ),
            (
                &TINY32,
                17,
                "a sample of tiny32 carries messages of 1 to 16 bits, not 17",
            ),
        ] {
            let refused = Encoding::of_samples(params, bits, false).unwrap_err();
            assert_eq!(refused.to_string(), expected);
        }
    }

    #[test]
    fn decoding_reads_the_padding_bit_too() {
        let encoding = Encoding::new(3, true).unwrap();
        for m in encoding.outputs() {
            assert_eq!(encoding.decode::<Torus32>(Torus32::encode(m, 4)), m);
        }
    }
}
