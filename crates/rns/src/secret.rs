//! Secret keys: encryption and decryption.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use toroid_tfhe::bits;
use toroid_tfhe::keys::KeyTag;
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::MaskSeed;
use zeroize::Zeroizing;

use crate::RnsError;
use crate::ciphertext::{Ciphertext, Plaintext, SeededCiphertext, expand_mask};
use crate::context::{Basis, Context};
use crate::poly::{Form, RnsPoly};

/// Bits of a coefficient of a secret in files.
pub(crate) const SECRET_BITS: u32 = 2;

/// A polynomial that is cleared before its memory goes back to the pool.
pub(crate) struct SecretPoly(RnsPoly);

impl SecretPoly {
    pub(crate) fn new(poly: RnsPoly) -> SecretPoly {
        SecretPoly(poly)
    }

    /// The values of a polynomial of small coefficients.
    pub(crate) fn from_coefficients(
        context: &Arc<Context>,
        basis: Basis,
        coefficients: &[i64],
    ) -> Result<SecretPoly, RnsError> {
        let mut poly = RnsPoly::from_i64(context, basis, coefficients)?;
        poly.to_values();
        Ok(SecretPoly(poly))
    }

    pub(crate) fn poly(&self) -> &RnsPoly {
        &self.0
    }

    pub(crate) fn poly_mut(&mut self) -> &mut RnsPoly {
        &mut self.0
    }
}

impl Drop for SecretPoly {
    fn drop(&mut self) {
        self.0.wipe();
    }
}

/// The secrets of one user: the main one, uniform ternary, under which everything is encrypted, and a sparse one, through which a
/// mod-raise goes at a small modulus (Bossuat, Troncoso-Pastoriza, Hubaux: Bootstrapping for approximate homomorphic encryption
/// with negligible failure-probability by using sparse-secret encapsulation). Both are cleared when they are dropped.
pub struct SecretKey {
    context: Arc<Context>,
    tag: KeyTag,
    main: SecretPoly,
    sparse: SecretPoly,
}

/// Uniform in {-1, 0, 1}.
fn ternary(rng: &mut Csprng, degree: usize) -> Zeroizing<Vec<i64>> {
    let mut coefficients = Zeroizing::new(Vec::with_capacity(degree));
    while coefficients.len() < degree {
        let word = Zeroizing::new(rng.next_u64());
        let pairs = (0..32)
            .map(|i| (*word >> (2 * i)) & 3)
            .filter(|pair| *pair < 3);
        let missing = degree - coefficients.len();
        coefficients.extend(pairs.take(missing).map(|pair| pair.cast_signed() - 1));
    }
    coefficients
}

/// Uniform among the polynomials with `weight` coefficients ±1 and zeros.
fn sparse(rng: &mut Csprng, degree: usize, weight: usize) -> Zeroizing<Vec<i64>> {
    let mut coefficients = Zeroizing::new(vec![0; degree]);
    let mut set = 0;
    while set < weight {
        let word = rng.next_u64();
        // The degree is a power of two, so that every place is as likely.
        let place = &mut coefficients[(word >> 1) as usize % degree];
        if *place == 0 {
            *place = if word & 1 == 0 { 1 } else { -1 };
            set += 1;
        }
    }
    coefficients
}

/// Coefficients of a secret in two bits each: 0, 1, 2 for -1, 0, 1.
pub(crate) fn pack(coefficients: &[i64]) -> Zeroizing<Vec<u8>> {
    // Room for all from the start: a vector that grows leaves secrets behind.
    let len = bits::bytes(coefficients.len(), SECRET_BITS);
    let mut bytes = Zeroizing::new(Vec::with_capacity(len));
    let codes = coefficients.iter().map(|c| (c + 1).cast_unsigned());
    bits::write(codes, SECRET_BITS, &mut bytes);
    bytes
}

fn tag_of(main: &[i64], sparse: &[i64]) -> KeyTag {
    let mut hash = Sha256::new();
    hash.update(b"toroid ring secret key");
    hash.update(pack(main));
    hash.update(pack(sparse));
    let digest: [u8; 32] = hash.finalize().into();
    std::array::from_fn(|i| digest[i])
}

/// The beginning of the hash that [`SecretKey::derive`] seeds secrets with.
pub(crate) fn derivation() -> Sha256 {
    let mut hash = Sha256::new();
    hash.update(b"toroid ring secrets of a client key");
    hash
}

/// The generator that such a hash seeds.
pub(crate) fn generator(hash: Sha256) -> Csprng {
    let seed: Zeroizing<[u8; 32]> = Zeroizing::new(hash.finalize().into());
    Csprng::from_seed(*seed)
}

impl SecretKey {
    /// Fresh secrets.
    ///
    /// # Panics
    /// Never: the coefficients are as many as the context asks for.
    #[must_use]
    pub fn generate(context: &Arc<Context>, rng: &mut Csprng) -> SecretKey {
        let degree = context.degree();
        let weight = context.params().encapsulation_weight;
        let main = ternary(rng, degree);
        let sparse = sparse(rng, degree, weight);
        Self::from_coefficients(context, &main, &sparse).expect("a secret has N coefficients")
    }

    /// The secrets with these coefficients.
    pub(crate) fn from_coefficients(
        context: &Arc<Context>,
        main: &[i64],
        sparse: &[i64],
    ) -> Result<SecretKey, RnsError> {
        let basis = context.full_basis();
        Ok(SecretKey {
            context: Arc::clone(context),
            tag: tag_of(main, sparse),
            main: SecretPoly::from_coefficients(context, basis, main)?,
            sparse: SecretPoly::from_coefficients(context, basis, sparse)?,
        })
    }

    /// The coefficients of the main secret and of the sparse one.
    pub(crate) fn coefficients(&self) -> [Zeroizing<Vec<i64>>; 2] {
        [self.main(), self.sparse()].map(|secret| {
            let mut low = SecretPoly::new(secret.in_basis(Basis::chain(1)));
            low.poly_mut().to_coefficients();
            let q = low.poly().prime(0);
            let words = low.poly().words().iter();
            let centered = words.map(|&x| x.cast_signed() - q.cast_signed() * i64::from(x > q / 2));
            // Room for all from the start: a vector that grows leaves secrets behind.
            let mut coefficients = Zeroizing::new(Vec::with_capacity(self.context.degree()));
            coefficients.extend(centered);
            coefficients
        })
    }

    /// The public tag that names these secrets; what is made from them carries it: the first 16 bytes of the SHA-256 of
    /// `toroid ring secret key` and the secrets as files have them. That they have far more entropy than the hash keeps them secret.
    #[must_use]
    pub fn tag(&self) -> &KeyTag {
        &self.tag
    }

    /// The context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The main secret in values, all limbs.
    pub(crate) fn main(&self) -> &RnsPoly {
        self.main.poly()
    }

    /// The sparse secret in values, all limbs.
    pub(crate) fn sparse(&self) -> &RnsPoly {
        self.sparse.poly()
    }

    /// Encrypts a plaintext, in as many limbs as it has, with a mask that a seed stands for.
    ///
    /// # Errors
    /// [`RnsError::Context`] for a plaintext of another context.
    ///
    /// # Panics
    /// For a plaintext with special limbs.
    pub fn encrypt_seeded(
        &self,
        plaintext: &Plaintext,
        rng: &mut Csprng,
    ) -> Result<SeededCiphertext, RnsError> {
        let (seed, encryption) = self.encrypt_with_mask(plaintext, rng)?;
        Ok(SeededCiphertext {
            b: encryption.b,
            seed,
            scale: encryption.scale,
        })
    }

    /// Encrypts a plaintext, in as many limbs as it has.
    ///
    /// # Errors
    /// As for [`SecretKey::encrypt_seeded`].
    ///
    /// # Panics
    /// As for [`SecretKey::encrypt_seeded`].
    pub fn encrypt(&self, plaintext: &Plaintext, rng: &mut Csprng) -> Result<Ciphertext, RnsError> {
        Ok(self.encrypt_with_mask(plaintext, rng)?.1)
    }

    fn encrypt_with_mask(
        &self,
        plaintext: &Plaintext,
        rng: &mut Csprng,
    ) -> Result<(MaskSeed, Ciphertext), RnsError> {
        if !Arc::ptr_eq(&self.context, plaintext.poly().context()) {
            return Err(RnsError::Context);
        }
        let basis = plaintext.poly().basis();
        assert!(basis.special == 0, "a plaintext with {basis:?}");
        let seed = MaskSeed::generate(rng);
        let [mut b, a] = encrypt_zero(self.main(), basis, &seed, 0, rng)?;
        b.add_assign(plaintext.poly());
        let scale = plaintext.scale();
        Ok((seed, Ciphertext { b, a, scale }))
    }

    /// b - a·s: the plaintext with its noise. Never hand its low bits to others.
    ///
    /// # Errors
    /// [`RnsError::Context`] for a ciphertext of another context.
    pub fn decrypt(&self, ciphertext: &Ciphertext) -> Result<Plaintext, RnsError> {
        phase(self.main(), ciphertext)
    }
}

fn phase(secret: &RnsPoly, ciphertext: &Ciphertext) -> Result<Plaintext, RnsError> {
    if !Arc::ptr_eq(secret.context(), ciphertext.context()) {
        return Err(RnsError::Context);
    }
    let mut product = ciphertext.a.clone();
    let own = SecretPoly::new(secret.in_basis(product.basis()));
    product.mul_assign(own.poly());
    let mut phase = ciphertext.b.clone();
    phase.sub_assign(&product);
    Ok(Plaintext::new(phase, ciphertext.scale))
}

/// A fresh encryption (b, a) of 0 under `secret`, in values: a is mask `number` of the seed, b = a·secret + e.
pub(crate) fn encrypt_zero(
    secret: &RnsPoly,
    basis: Basis,
    seed: &MaskSeed,
    number: usize,
    rng: &mut Csprng,
) -> Result<[RnsPoly; 2], RnsError> {
    let context = secret.context();
    let mut a = RnsPoly::raw(context, basis, Form::Values);
    expand_mask(&mut a, seed, number);
    let mut noise = Zeroizing::new(vec![0; context.degree()]);
    rng.fill_gaussian(context.params().sigma, &mut noise);
    let mut b = RnsPoly::from_i64(context, basis, &noise)?;
    b.to_values();
    let own = SecretPoly::new(secret.in_basis(basis));
    b.mul_add_assign(&a, own.poly());
    Ok([b, a])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_distributed_as_stated() {
        let mut rng = Csprng::from_seed([1; 32]);
        let coefficients = ternary(&mut rng, 1 << 16);
        for value in -1..=1 {
            let count = coefficients.iter().filter(|c| **c == value).count() as f64;
            let n = f64::from(1 << 16);
            assert!(
                (count - n / 3.0).abs() < 5.0 * (n * 2.0 / 9.0).sqrt(),
                "{value}"
            );
        }
        let coefficients = sparse(&mut rng, 1 << 10, 32);
        assert_eq!(coefficients.iter().map(|c| c.abs()).sum::<i64>(), 32);
        let (low, high) = coefficients.split_at(512);
        assert!(low.iter().any(|c| *c != 0) && high.iter().any(|c| *c != 0));
        assert!(coefficients.contains(&1) && coefficients.contains(&-1));
    }
}
