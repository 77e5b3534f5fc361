//! LWE samples and their secret key.
//!
//! A sample is n mask words a, then the body b = <a, s> + m + e.

use std::borrow::Cow;

use toroid_ring::multiversion;
use toroid_ring::simd::SimdLevel;
use zeroize::ZeroizeOnDrop;

use crate::TfheError;
use crate::memory::SecretWords;
use crate::modulus::{Modulus, Torus32, Words};
use crate::params::StageParams;
use crate::random::Csprng;
use crate::seeded::SeededMask;

/// A binary LWE secret key: n words of 0 or 1, in locked memory that is cleared after use.
#[derive(Clone)]
pub struct LweSecretKey {
    bits: SecretWords,
}

impl ZeroizeOnDrop for LweSecretKey {}

impl LweSecretKey {
    /// A uniform key of this dimension.
    #[must_use]
    pub fn generate(dimension: usize, rng: &mut Csprng) -> LweSecretKey {
        let mut bits = SecretWords::new(dimension);
        rng.fill_bits(&mut bits);
        LweSecretKey { bits }
    }

    /// A key from its n bits, a word each. To clear `bits` is up to the caller.
    ///
    /// # Errors
    /// [`TfheError::Format`] for words other than 0 and 1, and for zeros alone.
    pub fn from_bits(bits: &[u64]) -> Result<LweSecretKey, TfheError> {
        LweSecretKey::from_words(SecretWords::from_bits(bits.iter().copied()))
    }

    pub(crate) fn from_words(bits: SecretWords) -> Result<LweSecretKey, TfheError> {
        let bits = bits.checked()?;
        Ok(LweSecretKey { bits })
    }

    /// The key under which samples extracted from this GLWE key's stand.
    pub(crate) fn extracted(bits: &SecretWords) -> LweSecretKey {
        LweSecretKey { bits: bits.clone() }
    }

    /// n.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.bits.len()
    }

    /// The bits, a word each: bit i belongs to mask word i. They are secret.
    #[must_use]
    pub fn bits(&self) -> &[u64] {
        &self.bits
    }

    /// Whether the system keeps the bits out of its swap area.
    pub(crate) fn is_locked(&self) -> bool {
        self.bits.is_locked()
    }

    /// <a, s>, without secret-dependent branches or indices.
    pub(crate) fn mask_product<M: Modulus>(&self, mask: &[M::Word]) -> M::Word {
        M::sum_selected(mask, &self.bits)
    }

    /// Encrypts a word into `sample` (n + 1 words).
    pub fn encrypt_into<M: Modulus>(
        &self,
        sample: &mut [M::Word],
        message: M::Word,
        log2_noise: f64,
        rng: &mut Csprng,
    ) {
        let (mask, body) = sample.split_at_mut(self.dimension());
        rng.fill_uniform::<M>(mask);
        body[0] = message;
        rng.add_noise::<M>(log2_noise, &mut body[..1]);
        body[0] = M::add_masked(body[0], self.mask_product::<M>(mask));
    }

    /// Encrypts one word for each entry of `messages` into consecutive samples, the first of which has the mask `first`.
    /// `messages` serves as scratch for secrets.
    pub(crate) fn encrypt_seeded(
        &self,
        samples: &mut [u32],
        messages: &mut [u32],
        log2_noise: f64,
        first: SeededMask<'_>,
        rng: &mut Csprng,
    ) {
        rng.add_noise::<Torus32>(log2_noise, messages);
        let words = self.dimension() + 1;
        let numbered = samples.chunks_exact_mut(words).zip(first.number..);
        for ((sample, number), message) in numbered.zip(messages.iter()) {
            let (mask, body) = sample.split_at_mut(words - 1);
            first.seed.expand_sample(number, mask);
            body[0] = Torus32::add(*message, self.mask_product::<Torus32>(mask));
        }
    }

    /// b - <a, s>, the message with its noise.
    #[must_use]
    pub fn phase<M: Modulus>(&self, sample: &[M::Word]) -> M::Word {
        let (mask, body) = sample.split_at(self.dimension());
        M::sub_masked(body[0], self.mask_product::<M>(mask))
    }
}

multiversion! {
    /// a += b
    pub(crate) fn add_words<W: Words>(a: &mut [W::Word], b: &[W::Word]) {
        for (x, y) in a.iter_mut().zip(b) {
            *x = W::add(*x, *y);
        }
    }
}
multiversion! {
    fn sub_words<M: Modulus>(a: &mut [M::Word], b: &[M::Word]) {
        for (x, y) in a.iter_mut().zip(b) {
            *x = M::sub(*x, *y);
        }
    }
}
multiversion! {
    fn mul_words<M: Modulus>(a: &mut [M::Word], v: i32) {
        for x in a.iter_mut() {
            *x = M::mul_signed(*x, v);
        }
    }
}

/// a += b (ADD32_VR of the paper's Table 1).
pub fn add_assign<M: Modulus>(a: &mut [M::Word], b: &[M::Word]) {
    add_words::<M>(SimdLevel::best(), a, b);
}

/// a -= b (SUB32_VR).
pub fn sub_assign<M: Modulus>(a: &mut [M::Word], b: &[M::Word]) {
    sub_words::<M>(SimdLevel::best(), a, b);
}

/// a *= v (INT_MULT32).
pub fn mul_assign<M: Modulus>(a: &mut [M::Word], v: i32) {
    mul_words::<M>(SimdLevel::best(), a, v);
}

/// The trivial sample of a word: zero mask, no noise, no secrecy.
#[must_use]
pub fn trivial<M: Modulus>(params: &StageParams, message: M::Word) -> Vec<M::Word> {
    let mut sample = vec![M::Word::default(); params.lwe_words()];
    if let Some(body) = sample.last_mut() {
        *body = message;
    }
    sample
}

/// Refuses a slice of another length.
pub(crate) fn check_words<M: Modulus>(
    params: &StageParams,
    what: &'static str,
    words: &[M::Word],
    expected: usize,
) -> Result<(), TfheError> {
    if words.len() == expected {
        return Ok(());
    }
    Err(TfheError::Length {
        what,
        params: params.name,
        expected: (expected * size_of::<M::Word>()) as u64,
        found: size_of_val(words) as u64,
    })
}

/// Words of a sample, test vector or key from little-endian bytes, where they are if they stand aligned, otherwise copied; refuses
/// words that are not below q.
///
/// # Errors
/// [`TfheError::Length`] and [`TfheError::NotCanonical`].
pub fn words_in_bytes<'a, M: Modulus>(
    what: &'static str,
    params: &StageParams,
    bytes: &'a [u8],
    expected_words: usize,
) -> Result<Cow<'a, [M::Word]>, TfheError> {
    let expected = (expected_words * size_of::<M::Word>()) as u64;
    if bytes.len() as u64 != expected {
        return Err(TfheError::Length {
            what,
            params: params.name,
            expected,
            found: bytes.len() as u64,
        });
    }
    let words: Cow<'a, [M::Word]> = match bytemuck::try_cast_slice(bytes) {
        Ok(words) => Cow::Borrowed(words),
        Err(_) => Cow::Owned(bytemuck::pod_collect_to_vec(bytes)),
    };
    match words.iter().position(|word| !M::is_canonical(*word)) {
        Some(index) => Err(TfheError::NotCanonical {
            what,
            index: index as u64,
        }),
        None => Ok(words),
    }
}

/// [`words_in_bytes`], copied.
///
/// # Errors
/// [`TfheError::Length`] and [`TfheError::NotCanonical`].
pub fn words_from_bytes<M: Modulus>(
    what: &'static str,
    params: &StageParams,
    bytes: &[u8],
    expected_words: usize,
) -> Result<Vec<M::Word>, TfheError> {
    words_in_bytes::<M>(what, params, bytes, expected_words).map(Cow::into_owned)
}
