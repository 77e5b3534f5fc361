//! Bootstrapping keys for the peer, made quickly.
//!
//! tfhe-rs multiplies by the secret key with Karatsuba's algorithm, which takes minutes at N = 16384. Here the product
//! goes through our NTT, and everything else (randomness, gadget factors, layout, conversion to the transformed domain)
//! is the peer's: a real key, which the checks decrypt with, for rows that do not measure key generation.

use tfhe::core_crypto::algorithms::ggsw_encryption::ggsw_encryption_multiplicative_factor;
use tfhe::core_crypto::commons::math::decomposition::DecompositionLevel;
use tfhe::core_crypto::commons::math::random::{RandomGenerable, RandomGenerator, Uniform};
use tfhe::core_crypto::prelude::*;
use toroid_bench_common::Error;
use toroid_ring::goldilocks;
use toroid_ring::ntt::NttPlan;

/// A ciphertext word of the peer: of the 32-bit torus, or of the Goldilocks prime.
pub trait Word:
    UnsignedTorus
    + RandomGenerable<Uniform, CustomModulus = Self>
    + RandomGenerable<Gaussian<f64>, CustomModulus = Self>
    + Encryptable<Uniform, Gaussian<f64>>
{
    /// The modulus of the peer's ciphertexts.
    fn modulus() -> CiphertextModulus<Self>;
    /// As a field element, for the product with a binary polynomial.
    fn to_field(self) -> u64;
    /// Back from the product: exact for both moduli, since 2^14 sums of words below 2^32 stay below p/2.
    fn from_field(product: u64) -> Self;
    /// Sum modulo q.
    fn plus(self, other: Self) -> Self;
    /// Difference modulo q.
    fn minus(self, other: Self) -> Self;
}

impl Word for u32 {
    fn modulus() -> CiphertextModulus<u32> {
        CiphertextModulus::new_native()
    }

    fn to_field(self) -> u64 {
        u64::from(self)
    }

    fn from_field(product: u64) -> u32 {
        goldilocks::to_centered(product) as u32
    }

    fn plus(self, other: u32) -> u32 {
        self.wrapping_add(other)
    }

    fn minus(self, other: u32) -> u32 {
        self.wrapping_sub(other)
    }
}

impl Word for u64 {
    fn modulus() -> CiphertextModulus<u64> {
        CiphertextModulus::new(u128::from(goldilocks::P))
    }

    fn to_field(self) -> u64 {
        self
    }

    fn from_field(product: u64) -> u64 {
        product
    }

    fn plus(self, other: u64) -> u64 {
        goldilocks::add(self, other)
    }

    fn minus(self, other: u64) -> u64 {
        goldilocks::sub(self, other)
    }
}

/// The peer's form of a parameter set with k = 1.
#[derive(Clone, Copy)]
pub struct Shape {
    pub lwe_dimension: LweDimension,
    pub polynomial_size: PolynomialSize,
    pub base_log: DecompositionBaseLog,
    pub level_count: DecompositionLevelCount,
    pub lwe_noise: Gaussian<f64>,
    pub glwe_noise: Gaussian<f64>,
}

impl Shape {
    /// That of one of our parameter sets.
    pub fn of(params: &toroid_tfhe::params::ParamSet) -> Result<Shape, Error> {
        if params.glwe_dimension != 1 {
            return Err(format!("{}: k is not 1", params.name).into());
        }
        let noise = |log2: f64| Gaussian::from_dispersion_parameter(StandardDev(log2.exp2()), 0.0);
        Ok(Shape {
            lwe_dimension: LweDimension(params.lwe_dimension),
            polynomial_size: PolynomialSize(params.ring_degree),
            base_log: DecompositionBaseLog(params.gadget.log2_base as usize),
            level_count: DecompositionLevelCount(params.gadget.levels),
            lwe_noise: noise(params.log2_lwe_noise),
            glwe_noise: noise(params.log2_glwe_noise),
        })
    }
}

/// A bootstrapping key in the standard domain, as the peer's `generate_lwe_bootstrap_key` makes it.
pub fn standard<W: Word>(
    shape: Shape,
    lwe: &LweSecretKeyOwned<W>,
    glwe: &GlweSecretKeyOwned<W>,
    seeder: &mut dyn Seeder,
) -> Result<LweBootstrapKeyOwned<W>, Error> {
    let n = shape.polynomial_size.0;
    let plan = NttPlan::new(n)?;
    let mut secret: Vec<u64> = glwe.as_ref().iter().map(|word| word.to_field()).collect();
    plan.forward(&mut secret);
    plan.scale_assign(&mut secret, goldilocks::inv(n as u64));

    let mut generator = RandomGenerator::<DefaultRandomGenerator>::new(seeder.seed());
    let mut key = LweBootstrapKeyOwned::new(
        W::ZERO,
        GlweSize(2),
        shape.polynomial_size,
        shape.base_log,
        shape.level_count,
        shape.lwe_dimension,
        W::modulus(),
    );
    let mut product = vec![0u64; n];
    let mut rows = key.as_mut().chunks_exact_mut(2 * n);
    for bit in lwe.as_ref() {
        for level in (1..=shape.level_count.0).rev() {
            // -bit times the gadget's value of the level.
            let factor = ggsw_encryption_multiplicative_factor(
                W::modulus(),
                DecompositionLevel(level),
                shape.base_log,
                Cleartext(*bit),
            );
            for last in [false, true] {
                let row = rows.next().ok_or("the peer's key has fewer rows")?;
                let (mask, body) = row.split_at_mut(n);
                generator.fill_slice_with_random_uniform_custom_mod(mask, W::modulus());
                generator.fill_slice_with_random_from_distribution_custom_mod(
                    body,
                    shape.glwe_noise,
                    W::modulus(),
                );
                for (product, word) in product.iter_mut().zip(mask.iter()) {
                    *product = word.to_field();
                }
                plan.forward(&mut product);
                plan.mul_assign(&mut product, &secret);
                plan.inverse(&mut product);
                for (body, product) in body.iter_mut().zip(&product) {
                    *body = body.plus(W::from_field(*product));
                }
                if last {
                    body[0] = body[0].minus(factor);
                } else {
                    for (body, bit) in body.iter_mut().zip(glwe.as_ref()) {
                        if *bit != W::ZERO {
                            *body = body.plus(factor);
                        }
                    }
                }
            }
        }
    }
    Ok(key)
}
