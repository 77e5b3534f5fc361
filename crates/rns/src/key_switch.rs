//! Hybrid key switching (Han, Ki: Better bootstrapping for approximate homomorphic encryption, section 3.1).
//!
//! A key for a payload t under the secret s has for each digit j an encryption (b_j, a_j) modulo Q·P of P·g_j·t under s, where
//! g_j is 1 modulo the primes of digit j and 0 modulo the others of the chain. The digits x_j of x (nearest to 0 modulo the
//! digit's primes) give sum_j x_j·(b_j, a_j), an encryption of P·x·t; divided by P, one of x·t.
//! A polynomial that is small, as one raised from q_0 is, is its own only digit: its key has one row, for all primes of the chain.

use std::ops::Range;
use std::sync::Arc;

use toroid_ring::prime;
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::MaskSeed;

use crate::RnsError;
use crate::automorphism::Automorphism;
use crate::buffer::Buffer;
use crate::ciphertext::Ciphertext;
use crate::context::{Basis, Context};
use crate::division::{Digits, Divisor, convert};
use crate::params::MAX_DIGITS;
use crate::poly::{Form, RnsPoly, dot_tile, tiles};
use crate::secret::{SecretKey, SecretPoly, encrypt_zero};

/// What is added to the result of a key switch.
#[derive(Clone, Copy)]
pub(crate) enum Addend<'a> {
    /// A polynomial.
    Poly(&'a RnsPoly),
    /// One whose limbs are made where they are used: the words of a limb of this number.
    Made(&'a (dyn Fn(usize, &mut [u64]) + Sync)),
}

/// A key for one payload: for each digit an encryption (b, a), in values; a expands from a seed.
#[derive(Debug)]
pub struct KeySwitchKey {
    basis: Basis,
    seed: MaskSeed,
    /// One for each digit.
    rows: Vec<[RnsPoly; 2]>,
}

impl KeySwitchKey {
    /// Row `number` of a key for `payload` under `secret`, both in values with all limbs of `basis`; the row's digit has the primes
    /// `own` of the chain.
    pub(crate) fn row(
        payload: &RnsPoly,
        secret: &RnsPoly,
        basis: Basis,
        (number, own): (usize, Range<usize>),
        seed: &MaskSeed,
        rng: &mut Csprng,
    ) -> Result<[RnsPoly; 2], RnsError> {
        let context = secret.context();
        let [mut b, a] = encrypt_zero(secret, basis, seed, number, rng)?;
        let mut term = SecretPoly::new(payload.in_basis(Basis::chain(basis.chain)));
        for limb in own {
            let modulus = context.modulus(basis, limb);
            let q = modulus.q();
            let p = context.special_product(basis.special, q);
            let words = term.poly_mut().limb_mut(limb);
            modulus.plan.scale_assign(words, p);
            for (sum, word) in b.limb_mut(limb).iter_mut().zip(words.iter()) {
                *sum = prime::add(*sum, *word, q);
            }
        }
        Ok([b, a])
    }

    /// A key that brings ciphertexts of `limbs` limbs at most from under the main secret of `from` under that of `to`.
    ///
    /// # Errors
    /// [`RnsError::Context`] for secrets of different contexts; [`RnsError::Limbs`] unless the context has that many.
    pub fn between(
        from: &SecretKey,
        to: &SecretKey,
        limbs: usize,
        rng: &mut Csprng,
    ) -> Result<KeySwitchKey, RnsError> {
        let context = from.context();
        if !Arc::ptr_eq(context, to.context()) {
            return Err(RnsError::Context);
        }
        let basis = Self::basis(context, limbs)?;
        let mut payload = SecretPoly::new(from.main().in_basis(basis));
        payload.poly_mut().neg_assign();
        let seed = MaskSeed::generate(rng);
        let places = Self::digits(context, basis).into_iter().enumerate();
        let rows =
            places.map(|place| Self::row(payload.poly(), to.main(), basis, place, &seed, rng));
        Ok(KeySwitchKey {
            basis,
            seed,
            rows: rows.collect::<Result<_, _>>()?,
        })
    }

    /// A ciphertext under the other secret.
    ///
    /// # Errors
    /// [`RnsError::Context`]; [`RnsError::MissingKey`] if the key has fewer limbs than the ciphertext.
    pub fn switch(&self, ciphertext: &Ciphertext) -> Result<Ciphertext, RnsError> {
        if !Arc::ptr_eq(self.rows[0][0].context(), ciphertext.context()) {
            return Err(RnsError::Context);
        }
        if ciphertext.limbs() > self.limbs() {
            return Err(RnsError::MissingKey {
                what: "this secret".to_owned(),
                limbs: ciphertext.limbs(),
            });
        }
        let more = [Some(Addend::Poly(&ciphertext.b)), None];
        let [b, a] = self.switch_poly(&ciphertext.a, more, Divisor::Special, None);
        let scale = ciphertext.scale;
        Ok(Ciphertext { b, a, scale })
    }

    /// The basis of a key for ciphertexts of `limbs` limbs at most.
    pub(crate) fn basis(context: &Context, limbs: usize) -> Result<Basis, RnsError> {
        let full = context.full_basis();
        if (1..=full.chain).contains(&limbs) {
            Ok(Basis {
                chain: limbs,
                ..full
            })
        } else {
            Err(RnsError::Limbs {
                what: "a key",
                needed: limbs.max(1),
                found: full.chain,
            })
        }
    }

    /// The primes of each digit.
    pub(crate) fn digits(context: &Context, basis: Basis) -> Vec<Range<usize>> {
        let width = context.params().digit_limbs;
        let starts = (0..basis.chain).step_by(width);
        starts
            .map(|start| start..basis.chain.min(start + width))
            .collect()
    }

    /// A key of its rows.
    pub(crate) fn from_rows(basis: Basis, seed: MaskSeed, rows: Vec<[RnsPoly; 2]>) -> KeySwitchKey {
        KeySwitchKey { basis, seed, rows }
    }

    /// The encryptions (b, a), one for each digit.
    pub(crate) fn rows(&self) -> &[[RnsPoly; 2]] {
        &self.rows
    }

    /// The most limbs of a ciphertext that the key serves.
    #[must_use]
    pub fn limbs(&self) -> usize {
        self.basis.chain
    }

    /// The seed of the masks.
    #[must_use]
    pub fn seed(&self) -> &MaskSeed {
        &self.seed
    }

    /// Bytes of memory, masks expanded. The seed and the other half are what has to be sent or stored.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let words = self.rows.iter().flatten().map(|poly| poly.words().len());
        8 * words.sum::<usize>() as u64
    }

    /// Bytes of the seed and the other half, each word with the bits of its prime.
    #[must_use]
    pub fn packed_bytes(&self) -> u64 {
        let context = self.rows[0][0].context();
        let primes = (0..self.basis.limbs()).map(|limb| context.prime(self.basis, limb));
        let bits: u64 = primes.map(|q| u64::from(q.ilog2() + 1)).sum();
        32 + self.rows.len() as u64 * context.degree() as u64 * bits / 8
    }

    /// P times an encryption (b, a) of x·t, for the digits of x, plus P times the polynomials in `more`, to b and to a: modulo Q·P
    /// still, P the product of the key's special primes.
    ///
    /// # Panics
    /// If the digits have more limbs than the key, or other special primes.
    pub(crate) fn multiply(&self, digits: &Digits, more: [Option<&RnsPoly>; 2]) -> [RnsPoly; 2] {
        let (context, basis) = (digits.context(), digits.basis());
        let mut sums = [0, 1].map(|_| RnsPoly::raw(context, basis, Form::Values));
        let words = sums.each_mut().map(RnsPoly::words_mut);
        context.each_limb_of(words, |limb, words| {
            self.multiply_limb(digits, more, limb, words);
        });
        sums
    }

    /// [`KeySwitchKey::multiply`] of the digits of a polynomial, divided, and the image under an automorphism of what is left: the same words as
    /// one after the other. Digits are transformed limb by limb where they are used, and each limb of the result is made in one go, so that what is
    /// in the cache is read from there.
    ///
    /// # Panics
    /// If the polynomial has more limbs than the key, or nothing would be left of it.
    pub(crate) fn switch_poly(
        &self,
        poly: &RnsPoly,
        more: [Option<Addend>; 2],
        divisor: Divisor,
        automorphism: Option<&Automorphism>,
    ) -> [RnsPoly; 2] {
        let context = poly.context();
        let degree = context.degree();
        let mut digits = Digits::in_coefficients(poly, self.basis.special);
        let basis = digits.basis();
        let (keep, conversion) = divisor.of(context, basis);
        let mut own = Vec::with_capacity(MAX_DIGITS);
        let (mut kept, mut dropped) = (Vec::new(), Vec::new());
        for (range, words) in digits.raised() {
            own.push(range);
            let (first, last) = words.split_at_mut(keep.limbs() * degree);
            kept.push(first);
            dropped.push(last);
        }
        let product = |limb: usize, raised: &mut [&mut [u64]], out: [&mut [u64]; 2]| {
            let plan = &context.modulus(basis, limb).plan;
            let is_own = |digit: usize| own[digit].contains(&limb);
            for (digit, words) in raised.iter_mut().enumerate() {
                if !is_own(digit) {
                    plan.forward(words);
                }
            }
            let digits = raised.iter().enumerate();
            let digits = digits.map(|(digit, words)| match is_own(digit) {
                true => poly.limb(limb),
                false => &**words,
            });
            // P is 0 modulo the special primes.
            let more = more.map(|more| more.filter(|_| limb < basis.chain));
            let mut buffer = context.pool.take(2 * degree);
            let (first, second) = buffer.words_mut().split_at_mut(degree);
            let more = [(more[0], first), (more[1], second)].map(|(more, made)| match more? {
                Addend::Poly(poly) => Some(poly.limb(limb)),
                Addend::Made(make) => {
                    make(limb, made);
                    Some(&*made)
                }
            });
            self.multiply_parts(context, basis, digits, more, limb, out);
            context.pool.put(buffer);
        };

        // What is divided away comes first: both polynomials' coefficients.
        let gone = basis.limbs() - keep.limbs();
        let mut last = [0, 1].map(|_| context.pool.take(gone * degree));
        let words = last.iter_mut().map(Buffer::words_mut);
        context.each_limb_of_all(words.chain(dropped).collect(), |number, mut words| {
            let limb = keep.limbs() + number;
            if let [b, a, raised @ ..] = words.as_mut_slice() {
                product(limb, raised, [b, a]);
                for part in [b, a] {
                    context.modulus(basis, limb).plan.inverse(part);
                }
            }
        });
        let mut result = [0, 1].map(|_| RnsPoly::raw(context, keep, Form::Values));
        for (last, rest) in last.into_iter().zip(&mut result) {
            let to = rest.words_mut().chunks_exact_mut(degree).enumerate();
            convert(context, conversion, last.words(), to.collect());
            context.pool.put(last);
        }

        let words = result.iter_mut().map(RnsPoly::words_mut);
        context.each_limb_of_all(words.chain(kept).collect(), |limb, mut words| {
            let modulus = context.modulus(keep, limb);
            let inverse = conversion.divisor_inverse(limb);
            let mut buffer = context.pool.take(2 * degree);
            let (b, a) = buffer.words_mut().split_at_mut(degree);
            if let [rest_b, rest_a, raised @ ..] = words.as_mut_slice() {
                product(limb, raised, [b, a]);
                for (part, rest) in [(b, rest_b), (a, rest_a)] {
                    modulus.plan.forward(rest);
                    if let Some(automorphism) = automorphism {
                        modulus.plan.sub_scale_assign(part, rest, inverse);
                        automorphism.values(part, rest);
                    } else {
                        let inverse = prime::neg(inverse, modulus.q());
                        modulus.plan.sub_scale_assign(rest, part, inverse);
                    }
                }
            }
            context.pool.put(buffer);
        });
        result
    }

    /// One limb of [`KeySwitchKey::multiply`].
    pub(crate) fn multiply_limb(
        &self,
        digits: &Digits,
        more: [Option<&RnsPoly>; 2],
        limb: usize,
        out: [&mut [u64]; 2],
    ) {
        let (context, basis) = (digits.context(), digits.basis());
        let more = more.map(|poly| poly.filter(|_| limb < basis.chain));
        let more = more.map(|poly| poly.map(|poly| poly.limb(limb)));
        self.multiply_parts(context, basis, digits.limbs(limb), more, limb, out);
    }

    /// The same for a limb's words of each digit, and of what is added P times.
    fn multiply_parts<'w>(
        &self,
        context: &Context,
        basis: Basis,
        digits: impl Iterator<Item = &'w [u64]>,
        more: [Option<&[u64]>; 2],
        limb: usize,
        [b, a]: [&mut [u64]; 2],
    ) {
        assert!(
            basis.chain <= self.basis.chain && basis.special == self.basis.special,
            "a key with {:?} for digits with {basis:?}",
            self.basis
        );
        let row = if limb < basis.chain {
            limb
        } else {
            self.basis.chain + limb - basis.chain
        };
        let plan = &context.modulus(basis, limb).plan;
        let p = context.special_product(basis.special, plan.modulus());
        let mut terms: [[(&[u64], &[u64]); MAX_DIGITS]; 2] = Default::default();
        let mut count = 0;
        for (digit, key) in digits.zip(&self.rows) {
            for (terms, key) in terms.iter_mut().zip(key) {
                terms[count] = (digit, key.limb(row));
            }
            count += 1;
        }
        let more = more.map(|words| words.map(|words| (words, p)));
        for ((at, b), (_, a)) in tiles(b).zip(tiles(a)) {
            for ((out, terms), more) in [b, a].into_iter().zip(&terms).zip(more) {
                dot_tile(plan, out, at, &terms[..count], more);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use toroid_ring::simd::SimdLevel;

    use super::*;
    use crate::automorphism::rotation_exponent;
    use crate::context::Threads;
    use crate::params::RnsParams;

    /// Digits, products, divisions and an automorphism one after the other.
    fn in_steps(
        key: &KeySwitchKey,
        poly: &RnsPoly,
        more: [Option<&RnsPoly>; 2],
        divisor: Divisor,
        automorphism: Option<&Automorphism>,
    ) -> [RnsPoly; 2] {
        let digits = Digits::new(poly, key.basis.special);
        key.multiply(&digits, more).map(|part| {
            let divided = match divisor {
                Divisor::Special => part.divide_by_special(),
                Divisor::SpecialAndLast => part.divide_by_special_and_last().unwrap(),
            };
            match automorphism {
                Some(automorphism) => divided.automorphism(automorphism),
                None => divided,
            }
        })
    }

    #[test]
    fn switching_limb_by_limb_gives_the_words_of_the_steps() {
        let params = RnsParams::uniform(1 << 9, 5, 2).unwrap();
        let one = SimdLevel::available().map(|simd| (simd, Threads::One));
        let mut results: Vec<Vec<u64>> = Vec::new();
        for (simd, threads) in one.chain([(SimdLevel::best(), Threads::Pool)]) {
            let context = Context::with(params.clone(), simd, threads).unwrap();
            let mut rng = Csprng::from_seed([3; 32]);
            let from = SecretKey::generate(&context, &mut rng);
            let to = SecretKey::generate(&context, &mut rng);
            let key = KeySwitchKey::between(&from, &to, 4, &mut rng).unwrap();
            let exponent = rotation_exponent(context.degree(), 3);
            let automorphism = Automorphism::new(&context, exponent);
            let mut words = Vec::new();
            for limbs in 1..=4 {
                let [x, y, z] = [0, 1, 2].map(|_| {
                    let mut poly = RnsPoly::zero(&context, Basis::chain(limbs), Form::Values);
                    for limb in 0..limbs {
                        let q = poly.prime(limb);
                        poly.limb_mut(limb).fill_with(|| rng.next_u64() % q);
                    }
                    poly
                });
                for more in [[None; 2], [Some(&y), None], [Some(&y), Some(&z)]] {
                    for automorphism in [None, Some(&automorphism)] {
                        for divisor in [Divisor::Special, Divisor::SpecialAndLast] {
                            if divisor == Divisor::SpecialAndLast && limbs == 1 {
                                continue;
                            }
                            let added = more.map(|poly| poly.map(Addend::Poly));
                            let found = key.switch_poly(&x, added, divisor, automorphism);
                            let expected = in_steps(&key, &x, more, divisor, automorphism);
                            assert!(found == expected, "{limbs} limbs, {divisor:?}, {simd}");
                            words.extend_from_slice(found[0].words());
                        }
                    }
                }
            }
            results.push(words);
        }
        assert!(results.iter().all(|words| *words == results[0]));
    }
}
