//! Ciphertexts: LWE samples that know their parameter set, client key, encoding and noise.
//!
//! ```
//! use toroid_tfhe::{Ciphertext, ClientKey, params::TINY, random::Csprng};
//!
//! let client = ClientKey::generate(&TINY, &mut Csprng::from_os()?); // TINY protects nothing: it is for tests
//! let x = client.encrypt(-3)?;
//! let copy = Ciphertext::from_bytes(&x.to_bytes())?;
//! assert_eq!(client.decrypt(&copy)?, -3);
//! # Ok::<(), toroid_tfhe::TfheError>(())
//! ```

mod operators;

use std::io::{Read, Write};

use crate::TfheError;
use crate::encoding::Encoding;
use crate::keys::{ClientKey, KeyTag};
use crate::lwe::words_from_bytes;
use crate::modulus::{Goldilocks, Torus32};
use crate::noise::{self, Noise, StatedNoise};
use crate::params::{ModulusKind, ParamSet};
use crate::random::{Csprng, fingerprint};
use crate::serialize::{self, Header, Kind, ObjectReader};

/// The tag in the header of a sample whose client key is not known.
const NO_TAG: KeyTag = [0; 16];

/// log2 of the failure probability above which [`ClientKey::decrypt`] refuses a ciphertext.
pub const MAX_LOG2_FAILURE: f64 = -64.0;

/// An encrypted integer, or an encrypted bit for Boolean gates.
///
/// It carries what decides whether it fits another ciphertext or a key: its parameter set, its [`Encoding`] and the tag of
/// its client key. Its [`Noise`] is an estimate that every operation updates; [`Ciphertext::log2_failure`] turns it into
/// the probability of a wrong result.
#[derive(Clone, Debug)]
pub struct Ciphertext {
    params: ParamSet,
    encoding: Option<Encoding>,
    tag: Option<KeyTag>,
    words: SampleWords,
    noise: Noise,
}

/// The n mask words and the body.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SampleWords {
    Torus32(Vec<u32>),
    Goldilocks(Vec<u64>),
}

impl Ciphertext {
    /// A ciphertext from the bytes of its sample: n + 1 little-endian words, as a drive stores them. No encoding stands for
    /// a bit, ±1/8 of the torus. The client key is not known; see [`Ciphertext::with_tag`]. Where no variance is stated, the failure
    /// probability is 1: state [`StatedNoise::fresh`] of a sample that you know to be a fresh encryption.
    ///
    /// # Errors
    /// [`TfheError::Length`], [`TfheError::NotCanonical`].
    pub fn from_sample(
        params: &ParamSet,
        encoding: Option<Encoding>,
        sample: &[u8],
        noise: StatedNoise,
    ) -> Result<Ciphertext, TfheError> {
        Ok(Ciphertext {
            params: *params,
            encoding,
            tag: None,
            words: SampleWords::from_bytes(params, sample)?,
            noise: Noise::of_sample(params, noise, fingerprint(sample)),
        })
    }

    /// The same ciphertext, of the client key with this tag.
    #[must_use]
    pub fn with_tag(self, tag: KeyTag) -> Ciphertext {
        Ciphertext {
            tag: Some(tag),
            ..self
        }
    }

    /// The same ciphertext, with this estimate of its noise where that is worse ([`Noise::or_worse`]).
    #[must_use]
    pub fn with_noise_of_at_least(self, noise: &Noise) -> Ciphertext {
        let noise = self.noise.or_worse(noise);
        self.with_noise(noise)
    }

    /// The parameter set.
    #[must_use]
    pub fn params(&self) -> &ParamSet {
        &self.params
    }

    /// How the message is encoded; `None` for a bit.
    #[must_use]
    pub fn encoding(&self) -> Option<Encoding> {
        self.encoding
    }

    /// The tag of the client key, where it is known.
    #[must_use]
    pub fn tag(&self) -> Option<&KeyTag> {
        self.tag.as_ref()
    }

    /// The sample: n + 1 little-endian words.
    #[must_use]
    pub fn sample(&self) -> &[u8] {
        match &self.words {
            SampleWords::Torus32(words) => bytemuck::cast_slice(words),
            SampleWords::Goldilocks(words) => bytemuck::cast_slice(words),
        }
    }

    /// The estimated noise.
    #[must_use]
    pub fn noise(&self) -> &Noise {
        &self.noise
    }

    /// The noise as files and drives state it.
    #[must_use]
    pub fn stated_noise(&self) -> StatedNoise {
        self.noise.stated(&self.params)
    }

    /// log2 of the probability that decryption gives a wrong result, because of this ciphertext's noise or because a
    /// bootstrap that led to it failed.
    #[must_use]
    pub fn log2_failure(&self) -> f64 {
        let bits = self.encoding.map_or(0, Encoding::bits);
        noise::log2_decoding_failure(bits, self.noise.variance(), self.noise.log2_failure())
    }

    /// Whether the mask is zero, so that everybody can read the message.
    fn is_trivial(&self) -> bool {
        let dimension = self.params.lwe_dimension;
        match &self.words {
            SampleWords::Torus32(words) => words[..dimension].iter().all(|word| *word == 0),
            SampleWords::Goldilocks(words) => words[..dimension].iter().all(|word| *word == 0),
        }
    }

    /// Writes a file of an LWE sample ([`serialize`]).
    ///
    /// # Errors
    /// [`TfheError::Io`].
    pub fn write_to<W: Write>(&self, writer: W) -> Result<W, TfheError> {
        let stated = self.stated_noise();
        let header = Header {
            encoding: self.encoding,
            log2_variance: stated.log2_variance.map(|log2| log2 as f32),
            log2_failure: stated.log2_failure.map(|log2| log2 as f32),
            ..Header::new(Kind::Sample, &self.params, self.tag.unwrap_or(NO_TAG))
        };
        serialize::write_object(writer, &header, self.sample())
    }

    /// Reads a file of an LWE sample.
    ///
    /// # Errors
    /// [`TfheError::Io`], [`TfheError::Format`], [`TfheError::NotCanonical`].
    pub fn read_from<R: Read>(reader: R) -> Result<Ciphertext, TfheError> {
        let reader = ObjectReader::new(reader)?;
        reader.header().expect(Kind::Sample)?;
        let (header, sample) = reader.read_all()?;
        let stated = StatedNoise {
            log2_variance: header.log2_variance.map(f64::from),
            log2_failure: header.log2_failure.map(f64::from),
        };
        let read = Ciphertext::from_sample(&header.params, header.encoding, &sample, stated)?;
        Ok(if header.tag == NO_TAG {
            read
        } else {
            read.with_tag(header.tag)
        })
    }

    /// The bytes of [`Ciphertext::write_to`].
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.write_to(Vec::new())
            .expect("memory takes a payload of the right length")
    }

    /// The ciphertext that [`Ciphertext::to_bytes`] wrote.
    ///
    /// # Errors
    /// Those of [`Ciphertext::read_from`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Ciphertext, TfheError> {
        Ciphertext::read_from(bytes)
    }
}

impl SampleWords {
    fn from_bytes(params: &ParamSet, sample: &[u8]) -> Result<SampleWords, TfheError> {
        let (what, count) = ("an LWE sample", params.lwe_words());
        Ok(match params.modulus {
            ModulusKind::Torus32 => {
                SampleWords::Torus32(words_from_bytes::<Torus32>(what, params, sample, count)?)
            }
            ModulusKind::Goldilocks => SampleWords::Goldilocks(words_from_bytes::<Goldilocks>(
                what, params, sample, count,
            )?),
        })
    }
}

/// What a message of this encoding is called in errors.
fn named(encoding: Option<Encoding>) -> String {
    encoding.map_or_else(|| "a bit".to_owned(), |encoding| encoding.to_string())
}

impl ClientKey {
    /// The encoding that [`ClientKey::encrypt`] uses: signed integers of the set's message width.
    ///
    /// # Errors
    /// [`TfheError::MessageBits`] for a set that is made for bits alone.
    pub fn encoding(&self) -> Result<Encoding, TfheError> {
        Encoding::new(self.params().message_bits, true)
    }

    /// Encrypts a signed integer of the set's message width, with the operating system's generator.
    ///
    /// # Errors
    /// [`TfheError::MessageRange`]; [`TfheError::MessageBits`] for a set that is made for bits alone; [`TfheError::Entropy`].
    pub fn encrypt(&self, message: i64) -> Result<Ciphertext, TfheError> {
        self.encrypt_with(self.encoding()?, message)
    }

    /// Encrypts an integer in an encoding, with the operating system's generator.
    ///
    /// ```
    /// # use toroid_tfhe::{ClientKey, encoding::Encoding, params::TINY, random::Csprng};
    /// # let client = ClientKey::generate(&TINY, &mut Csprng::from_os()?);
    /// let nibble = Encoding::new(4, false)?; // 0 to 15
    /// let x = client.encrypt_with(nibble, 13)?;
    /// assert_eq!(client.decrypt(&x)?, 13);
    /// # Ok::<(), toroid_tfhe::TfheError>(())
    /// ```
    ///
    /// # Errors
    /// [`TfheError::MessageRange`], [`TfheError::Entropy`].
    pub fn encrypt_with(&self, encoding: Encoding, message: i64) -> Result<Ciphertext, TfheError> {
        self.encrypt_from(encoding, message, &mut Csprng::from_os()?)
    }

    /// Encrypts an integer in an encoding, with this generator.
    ///
    /// # Errors
    /// [`TfheError::MessageRange`].
    pub fn encrypt_from(
        &self,
        encoding: Encoding,
        message: i64,
        rng: &mut Csprng,
    ) -> Result<Ciphertext, TfheError> {
        let sample = self.encrypt_sample(message, encoding, rng)?;
        self.fresh(Some(encoding), &sample)
    }

    /// Encrypts a bit for Boolean gates, with the operating system's generator.
    ///
    /// # Errors
    /// [`TfheError::Entropy`].
    pub fn encrypt_bit(&self, bit: bool) -> Result<Ciphertext, TfheError> {
        let sample = self.encrypt_bit_sample(bit, &mut Csprng::from_os()?)?;
        self.fresh(None, &sample)
    }

    fn fresh(&self, encoding: Option<Encoding>, sample: &[u8]) -> Result<Ciphertext, TfheError> {
        let stated = StatedNoise::fresh(self.params());
        let fresh = Ciphertext::from_sample(self.params(), encoding, sample, stated)?;
        Ok(fresh.with_tag(*self.tag()))
    }

    /// Decrypts an integer, over the whole torus ([`Encoding::outputs`]), if its failure probability is at most
    /// 2^[`MAX_LOG2_FAILURE`].
    ///
    /// # Errors
    /// [`TfheError::ParamsMismatch`] and [`TfheError::KeyMismatch`] for a ciphertext of another set or key,
    /// [`TfheError::EncodingMismatch`] for a bit, [`TfheError::FailureProbability`] for one that may well be wrong or whose noise is
    /// not known, [`TfheError::NotEncrypted`] for one that comes without a mask, or a key of zeros.
    pub fn decrypt(&self, ciphertext: &Ciphertext) -> Result<i64, TfheError> {
        self.decrypt_above(ciphertext, MAX_LOG2_FAILURE)
    }

    /// As [`ClientKey::decrypt`], up to another failure probability, given by its base-2 logarithm: 0 takes anything. Whoever sees
    /// which results of a high probability are wrong learns something about the key: keep them to yourself.
    ///
    /// # Errors
    /// Those of [`ClientKey::decrypt`].
    pub fn decrypt_above(
        &self,
        ciphertext: &Ciphertext,
        max_log2_failure: f64,
    ) -> Result<i64, TfheError> {
        self.check(ciphertext, max_log2_failure)?;
        let encoding = ciphertext.integer_encoding()?;
        self.decrypt_sample(ciphertext.sample(), encoding)
    }

    /// Decrypts a bit, if its failure probability is at most 2^[`MAX_LOG2_FAILURE`].
    ///
    /// # Errors
    /// Those of [`ClientKey::decrypt`], [`TfheError::EncodingMismatch`] for an integer.
    pub fn decrypt_bit(&self, ciphertext: &Ciphertext) -> Result<bool, TfheError> {
        ciphertext.expect_encoding(None)?;
        self.check(ciphertext, MAX_LOG2_FAILURE)?;
        self.decrypt_bit_sample(ciphertext.sample())
    }

    /// Refuses a key of zeros, which hides nothing.
    pub(crate) fn check_secret(&self) -> Result<(), TfheError> {
        if self.lwe().bits().iter().fold(0, |seen, bit| seen | bit) == 0 {
            return Err(TfheError::NotEncrypted("the client key is all zeros"));
        }
        Ok(())
    }

    fn check(&self, ciphertext: &Ciphertext, max_log2_failure: f64) -> Result<(), TfheError> {
        ciphertext.expect_key(self.params(), Some(self.tag()))?;
        self.check_secret()?;
        // What was computed here, such as x - x, has no noise then.
        if ciphertext.is_trivial() && ciphertext.noise.variance() > 0.0 {
            return Err(TfheError::NotEncrypted("the ciphertext has no mask"));
        }
        let log2_failure = ciphertext.log2_failure();
        // Not a number is no figure either.
        if log2_failure <= max_log2_failure {
            return Ok(());
        }
        Err(TfheError::FailureProbability {
            log2: log2_failure,
            max_log2: max_log2_failure,
        })
    }
}

impl Ciphertext {
    /// The encoding of an integer.
    pub(crate) fn integer_encoding(&self) -> Result<Encoding, TfheError> {
        self.encoding.ok_or_else(|| TfheError::EncodingMismatch {
            expected: "an integer".to_owned(),
            found: named(None),
        })
    }

    /// The same sample, with this noise.
    pub(crate) fn with_noise(self, noise: Noise) -> Ciphertext {
        Ciphertext { noise, ..self }
    }

    /// Refuses another encoding than this one.
    pub(crate) fn expect_encoding(&self, expected: Option<Encoding>) -> Result<(), TfheError> {
        if self.encoding == expected {
            return Ok(());
        }
        Err(TfheError::EncodingMismatch {
            expected: named(expected),
            found: named(self.encoding),
        })
    }

    /// Refuses another parameter set, and another client key where both are known.
    pub(crate) fn expect_key(
        &self,
        params: &ParamSet,
        tag: Option<&KeyTag>,
    ) -> Result<(), TfheError> {
        if &self.params != params {
            return Err(TfheError::ParamsMismatch {
                what: "the ciphertext",
                expected: params.name.to_owned(),
                found: self.params.name.to_owned(),
            });
        }
        match (self.tag(), tag) {
            (Some(own), Some(other)) if own != other => {
                Err(TfheError::KeyMismatch("the ciphertext"))
            }
            _ => Ok(()),
        }
    }
}
