//! Evaluation keys, and the operations that need them: products, rotations, conjugation, mod-raise.

mod stream;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use toroid_task::Progress;
use toroid_tfhe::keys::KeyTag;
use toroid_tfhe::parallel;
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::MaskSeed;

use crate::RnsError;
use crate::automorphism::{Automorphism, conjugation_exponent, rotation_exponent};
use crate::ciphertext::{Ciphertext, Plaintext, Tensor, check_contexts, check_limbs, check_scales};
use crate::context::{Basis, Context};
use crate::division::{Digits, Divisor};
use crate::key_switch::{Addend, KeySwitchKey};
use crate::poly::{Form, RnsPoly};
use crate::secret::{SecretKey, SecretPoly};

/// Which keys to generate, each for ciphertexts of so many limbs at most. A key of fewer limbs is smaller.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyRequest {
    /// Limbs of products.
    pub relinearization: Option<usize>,
    /// Limbs of conjugations.
    pub conjugation: Option<usize>,
    /// Steps of rotations to the left, each with the limbs of what it rotates.
    pub rotations: Vec<(i64, usize)>,
    /// Whether ciphertexts of one limb are raised to all limbs.
    pub mod_raise: bool,
}

impl KeyRequest {
    /// The exponents g of its automorphisms X -> X^g at ring degree N, each with the most limbs of what it is applied to.
    fn automorphisms(&self, degree: usize) -> BTreeMap<usize, usize> {
        let rotations = self.rotations.iter();
        let rotations = rotations.map(|(steps, limbs)| (rotation_exponent(degree, *steps), *limbs));
        let conjugation = self
            .conjugation
            .map(|limbs| (conjugation_exponent(degree), limbs));
        let mut automorphisms = BTreeMap::new();
        for (exponent, limbs) in rotations.chain(conjugation).filter(|(e, _)| *e != 1) {
            let most = automorphisms.entry(exponent).or_insert(limbs);
            *most = limbs.max(*most);
        }
        automorphisms
    }
}

/// A key that brings X -> X^g of a ciphertext back under its secret.
pub(crate) struct GaloisKey {
    pub(crate) automorphism: Automorphism,
    pub(crate) key: KeySwitchKey,
}

/// The two keys of a mod-raise.
struct Encapsulation {
    /// From the main secret to the sparse one, at q_0·p_0.
    enter: KeySwitchKey,
    /// From the sparse secret to the main one, at all limbs.
    leave: KeySwitchKey,
}

/// The public keys that operations on ciphertexts need. One set serves all threads.
pub struct EvaluationKeys {
    context: Arc<Context>,
    tag: KeyTag,
    relinearization: Option<KeySwitchKey>,
    galois: BTreeMap<usize, GaloisKey>,
    encapsulation: Option<Encapsulation>,
}

/// The use of a key that is generated.
enum Use {
    Relinearize,
    Galois(Automorphism),
    Enter,
    Leave,
}

/// A key to generate, for a payload under a secret.
struct Plan {
    purpose: Use,
    basis: Basis,
    /// The primes of each row's digit.
    digits: Vec<Range<usize>>,
    payload: SecretPoly,
    secret: SecretPoly,
}

/// A ciphertext with the digits of its a: rotations share them.
pub struct Hoisted<'a> {
    keys: &'a EvaluationKeys,
    ciphertext: &'a Ciphertext,
    digits: Digits<'a>,
}

impl EvaluationKeys {
    /// Generates the keys of a request, on all threads of the rayon pool that the caller is in. Reports rows of keys.
    ///
    /// A rotation key holds -s under X -> X^(1/g) of s: digits need no rotation then, only the two polynomials of the result.
    ///
    /// # Errors
    /// [`RnsError::Limbs`] for keys of no limbs, or of more than the context has; [`RnsError::Cancelled`].
    pub fn generate(
        secret: &SecretKey,
        request: &KeyRequest,
        rng: &mut Csprng,
        progress: &Progress,
    ) -> Result<EvaluationKeys, RnsError> {
        let context = secret.context();
        let plans = plans(secret, request)?;
        let seeds: Vec<MaskSeed> = plans.iter().map(|_| MaskSeed::generate(rng)).collect();
        let jobs: Vec<(usize, usize, Csprng)> = plans
            .iter()
            .enumerate()
            .flat_map(|(key, plan)| (0..plan.digits.len()).map(move |row| (key, row)))
            .map(|(key, row)| (key, row, rng.fork()))
            .collect();
        let (done, total) = (AtomicU64::new(0), jobs.len() as u64);
        let rows = parallel::map(jobs, |_, (key, row, mut rng)| {
            progress.check()?;
            let (plan, seed) = (&plans[key], &seeds[key]);
            let (payload, secret) = (plan.payload.poly(), plan.secret.poly());
            let place = (row, plan.digits[row].clone());
            let row = KeySwitchKey::row(payload, secret, plan.basis, place, seed, &mut rng)?;
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            progress.report("evaluation keys", done, total);
            Ok(row)
        });
        let rows = rows
            .into_iter()
            .collect::<Result<Vec<[RnsPoly; 2]>, RnsError>>()?;
        let mut rows = rows.into_iter();
        let mut keys = EvaluationKeys::empty(context, *secret.tag());
        let mut enter = None;
        for (plan, seed) in plans.into_iter().zip(seeds) {
            let own = rows.by_ref().take(plan.digits.len()).collect();
            let key = KeySwitchKey::from_rows(plan.basis, seed, own);
            keys.insert(plan.purpose, key, &mut enter);
        }
        Ok(keys)
    }

    fn empty(context: &Arc<Context>, tag: KeyTag) -> EvaluationKeys {
        EvaluationKeys {
            context: Arc::clone(context),
            tag,
            relinearization: None,
            galois: BTreeMap::new(),
            encapsulation: None,
        }
    }

    /// Puts a key in its place; `enter` keeps the first of a mod-raise for the second.
    fn insert(&mut self, purpose: Use, key: KeySwitchKey, enter: &mut Option<KeySwitchKey>) {
        match purpose {
            Use::Relinearize => self.relinearization = Some(key),
            Use::Galois(automorphism) => {
                let exponent = automorphism.exponent();
                self.galois
                    .insert(exponent, GaloisKey { automorphism, key });
            }
            Use::Enter => *enter = Some(key),
            Use::Leave => {
                let leave = key;
                self.encapsulation = enter.take().map(|enter| Encapsulation { enter, leave });
            }
        }
    }

    /// The tag of the secrets that the keys belong to.
    #[must_use]
    pub fn tag(&self) -> &KeyTag {
        &self.tag
    }

    /// The context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Bytes of memory of all keys.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.all().map(KeySwitchKey::memory).sum()
    }

    /// Bytes of all keys as they are sent or stored: seeds instead of masks, each word with the bits of its prime.
    #[must_use]
    pub fn packed_bytes(&self) -> u64 {
        self.all().map(KeySwitchKey::packed_bytes).sum()
    }

    fn all(&self) -> impl Iterator<Item = &KeySwitchKey> {
        let galois = self.galois.values().map(|galois| &galois.key);
        let raise = self
            .encapsulation
            .iter()
            .flat_map(|raise| [&raise.enter, &raise.leave]);
        self.relinearization.iter().chain(galois).chain(raise)
    }

    fn check(&self, ciphertext: &Ciphertext) -> Result<(), RnsError> {
        if Arc::ptr_eq(&self.context, ciphertext.context()) {
            Ok(())
        } else {
            Err(RnsError::Context)
        }
    }

    /// Whether there is a key to rotate ciphertexts of `limbs` limbs by `steps`.
    #[must_use]
    pub fn rotates(&self, steps: i64, limbs: usize) -> bool {
        let exponent = rotation_exponent(self.context.degree(), steps);
        exponent == 1 || self.galois(exponent, limbs).is_some()
    }

    /// The key that rotates by `steps`, other than 0.
    pub(crate) fn rotation_key(&self, steps: i64, limbs: usize) -> Result<&GaloisKey, RnsError> {
        self.galois_key(rotation_exponent(self.context.degree(), steps), limbs)
    }

    fn galois_key(&self, exponent: usize, limbs: usize) -> Result<&GaloisKey, RnsError> {
        let galois = self.galois(exponent, limbs);
        galois.ok_or_else(|| missing(&format!("X -> X^{exponent}"), limbs))
    }

    fn galois(&self, exponent: usize, limbs: usize) -> Option<&GaloisKey> {
        let galois = self.galois.get(&exponent);
        galois.filter(|galois| limbs <= galois.key.limbs())
    }

    /// The product, relinearized and not rescaled, with the fewer limbs of the two; scales multiply.
    ///
    /// # Errors
    /// [`RnsError::Context`]; [`RnsError::MissingKey`].
    pub fn mul(&self, left: &Ciphertext, right: &Ciphertext) -> Result<Ciphertext, RnsError> {
        self.relinearize(&left.tensor(right)?)
    }

    /// The square, relinearized and not rescaled.
    ///
    /// # Errors
    /// As for [`EvaluationKeys::mul`].
    pub fn square(&self, ciphertext: &Ciphertext) -> Result<Ciphertext, RnsError> {
        self.mul(ciphertext, ciphertext)
    }

    /// A ciphertext of the same plaintext as a product or a sum of products.
    ///
    /// # Errors
    /// As for [`EvaluationKeys::mul`].
    pub fn relinearize(&self, tensor: &Tensor) -> Result<Ciphertext, RnsError> {
        let [b, a] = self.relinearized(tensor, Divisor::Special)?;
        let scale = tensor.scale;
        Ok(Ciphertext { b, a, scale })
    }

    /// The same without its last limb: [`EvaluationKeys::relinearize`], then [`Ciphertext::rescale`], by one division instead of two,
    /// with one rounding.
    ///
    /// # Errors
    /// As for [`EvaluationKeys::mul`]; [`RnsError::Limbs`] unless there are two limbs.
    pub fn relinearize_rescale(&self, tensor: &Tensor) -> Result<Ciphertext, RnsError> {
        check_limbs("rescaling", 2, tensor.limbs())?;
        let [b, a] = self.relinearized(tensor, Divisor::SpecialAndLast)?;
        let dropped = self.context.params().chain[tensor.limbs() - 1] as f64;
        let scale = tensor.scale / dropped;
        Ok(Ciphertext { b, a, scale })
    }

    fn relinearized(&self, tensor: &Tensor, divisor: Divisor) -> Result<[RnsPoly; 2], RnsError> {
        let key = self.relinearization(tensor.limbs())?;
        let [b, a, square] = &tensor.parts;
        if !Arc::ptr_eq(&self.context, b.context()) {
            return Err(RnsError::Context);
        }
        let more = [b, a].map(|part| Some(Addend::Poly(part)));
        Ok(key.switch_poly(square, more, divisor, None))
    }

    fn relinearization(&self, limbs: usize) -> Result<&KeySwitchKey, RnsError> {
        let key = self.relinearization.as_ref();
        let key = key.filter(|key| limbs <= key.limbs());
        key.ok_or_else(|| missing("relinearization", limbs))
    }

    /// `Σ x·y` over at least one pair, relinearized and rescaled by one prime: [`Tensor::sum`], then [`EvaluationKeys::relinearize_rescale`], with the same
    /// words. Two of the product's three polynomials are made limb by limb where they are used.
    ///
    /// # Errors
    /// Those of both.
    ///
    /// # Panics
    /// If there are no pairs.
    pub fn products_rescale(
        &self,
        pairs: &[(&Ciphertext, &Ciphertext)],
    ) -> Result<Ciphertext, RnsError> {
        let (limbs, scale) = Tensor::check(pairs)?;
        check_limbs("rescaling", 2, limbs)?;
        let key = self.relinearization(limbs)?;
        self.check(pairs[0].0)?;
        let basis = Basis::chain(limbs);
        let masks: Vec<_> = pairs.iter().map(|(x, y)| (&x.a, &y.a)).collect();
        let square = RnsPoly::dot(basis, &masks);
        let own = |limb: usize, out: &mut [u64]| Tensor::own_limb(pairs, limb, out);
        let cross = |limb: usize, out: &mut [u64]| Tensor::cross_limb(pairs, limb, out);
        let more = [Some(Addend::Made(&own)), Some(Addend::Made(&cross))];
        let [b, a] = key.switch_poly(&square, more, Divisor::SpecialAndLast, None);
        let scale = scale / self.context.params().chain[limbs - 1] as f64;
        Ok(Ciphertext { b, a, scale })
    }

    /// Rotates slots by `steps` to the left.
    ///
    /// # Errors
    /// [`RnsError::Context`]; [`RnsError::MissingKey`].
    pub fn rotate(&self, ciphertext: &Ciphertext, steps: i64) -> Result<Ciphertext, RnsError> {
        let exponent = rotation_exponent(self.context.degree(), steps);
        self.apply(ciphertext, exponent, Divisor::Special)
    }

    /// [`EvaluationKeys::rotate`], then [`Ciphertext::rescale`] by one prime, by one division instead of two, with one rounding.
    ///
    /// # Errors
    /// As for [`EvaluationKeys::rotate`]; [`RnsError::Limbs`] unless there are two limbs.
    pub fn rotate_rescale(
        &self,
        ciphertext: &Ciphertext,
        steps: i64,
    ) -> Result<Ciphertext, RnsError> {
        check_limbs("rescaling", 2, ciphertext.limbs())?;
        let exponent = rotation_exponent(self.context.degree(), steps);
        self.apply(ciphertext, exponent, Divisor::SpecialAndLast)
    }

    /// Conjugates every slot.
    ///
    /// # Errors
    /// As for [`EvaluationKeys::rotate`].
    pub fn conjugate(&self, ciphertext: &Ciphertext) -> Result<Ciphertext, RnsError> {
        let exponent = conjugation_exponent(self.context.degree());
        self.apply(ciphertext, exponent, Divisor::Special)
    }

    /// X -> X^`exponent` on the plaintext.
    fn apply(
        &self,
        ciphertext: &Ciphertext,
        exponent: usize,
        divisor: Divisor,
    ) -> Result<Ciphertext, RnsError> {
        self.check(ciphertext)?;
        let limbs = ciphertext.limbs();
        if exponent == 1 {
            return match divisor {
                Divisor::Special => Ok(ciphertext.clone()),
                Divisor::SpecialAndLast => ciphertext.clone().rescale(1),
            };
        }
        let GaloisKey { automorphism, key } = self.galois_key(exponent, limbs)?;
        let more = [Some(Addend::Poly(&ciphertext.b)), None];
        let [b, a] = key.switch_poly(&ciphertext.a, more, divisor, Some(automorphism));
        let scale = match divisor {
            Divisor::Special => ciphertext.scale,
            Divisor::SpecialAndLast => ciphertext.scale / ciphertext.b.prime(limbs - 1) as f64,
        };
        Ok(Ciphertext { b, a, scale })
    }

    /// Prepares a ciphertext for several rotations, which share the costlier half of their work.
    ///
    /// # Errors
    /// [`RnsError::Context`].
    pub fn hoist<'a>(&'a self, ciphertext: &'a Ciphertext) -> Result<Hoisted<'a>, RnsError> {
        self.check(ciphertext)?;
        Ok(Hoisted {
            keys: self,
            ciphertext,
            digits: Digits::new(&ciphertext.a, self.context.full_basis().special),
        })
    }

    /// From one limb to all: a ciphertext of m + q_0·I, where the coefficients of I are small, since the sparse secret is: within
    /// about half the square root of its weight times a Gaussian tail. The scale stays as it is.
    ///
    /// # Errors
    /// [`RnsError::Context`]; [`RnsError::MissingKey`].
    ///
    /// # Panics
    /// If the ciphertext has more than one limb.
    pub fn mod_raise(&self, ciphertext: &Ciphertext) -> Result<Ciphertext, RnsError> {
        self.mod_raise_to(ciphertext, self.context.limbs())
    }

    /// [`EvaluationKeys::mod_raise`] to `limbs` limbs instead of all.
    ///
    /// # Errors
    /// As for [`EvaluationKeys::mod_raise`].
    ///
    /// # Panics
    /// If the ciphertext has more than one limb; if there are not so many limbs, or none.
    pub fn mod_raise_to(
        &self,
        ciphertext: &Ciphertext,
        limbs: usize,
    ) -> Result<Ciphertext, RnsError> {
        self.check(ciphertext)?;
        assert!(
            ciphertext.limbs() == 1,
            "a ciphertext of {} limbs is raised",
            ciphertext.limbs()
        );
        let keys = self
            .encapsulation
            .as_ref()
            .ok_or_else(|| missing("mod-raise", 1))?;
        let more = [Some(Addend::Poly(&ciphertext.b)), None];
        let enter = &keys.enter;
        let [b, a] = enter.switch_poly(&ciphertext.a, more, Divisor::Special, None);
        // Under the sparse secret now; the raised a is small, a digit by itself.
        let basis = Basis {
            chain: limbs,
            ..self.context.full_basis()
        };
        let (raised, small) = (b.raise(Basis::chain(limbs)), a.raise(basis));
        let leave = Digits::of_small(&small);
        let left = keys.leave.multiply(&leave, [Some(&raised), None]);
        let [b, a] = left.map(RnsPoly::divide_by_special);
        let scale = ciphertext.scale;
        Ok(Ciphertext { b, a, scale })
    }
}

/// P times a ciphertext, modulo Q·P, P the product of the special primes: a rotation before the division by P. Sums of rotations
/// times plaintexts need one division (Bossuat, Mouchet, Troncoso-Pastoriza, Hubaux: Efficient bootstrapping for approximate
/// homomorphic encryption with non-sparse keys, section 4.1).
#[derive(Clone, Debug, PartialEq)]
pub struct Extended {
    b: RnsPoly,
    a: RnsPoly,
    scale: f64,
}

impl Extended {
    /// 0, with `limbs` limbs beside the special ones: what sums begin with.
    #[must_use]
    pub fn zero(context: &Arc<Context>, limbs: usize, scale: f64) -> Extended {
        let basis = Basis {
            chain: limbs,
            ..context.full_basis()
        };
        let zero = RnsPoly::zero(context, basis, Form::Values);
        Extended {
            b: zero.clone(),
            a: zero,
            scale,
        }
    }

    /// The scale.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// `self + other·plaintext`; the plaintext has the special limbs too.
    ///
    /// # Errors
    /// [`RnsError::Context`]; [`RnsError::Scale`] unless the scale of `self` is that of the product.
    ///
    /// # Panics
    /// If the three have different limbs.
    pub fn mul_plain_add(
        &mut self,
        other: &Extended,
        plaintext: &Plaintext,
    ) -> Result<(), RnsError> {
        check_contexts(&self.b, &other.b)?;
        check_contexts(&self.b, plaintext.poly())?;
        check_scales(self.scale, other.scale * plaintext.scale())?;
        self.b.mul_add_assign(&other.b, plaintext.poly());
        self.a.mul_add_assign(&other.a, plaintext.poly());
        Ok(())
    }

    /// `self + other`.
    ///
    /// # Errors
    /// [`RnsError::Context`]; [`RnsError::Scale`].
    ///
    /// # Panics
    /// If the two have different limbs.
    pub fn add_assign(&mut self, other: &Extended) -> Result<(), RnsError> {
        check_contexts(&self.b, &other.b)?;
        check_scales(self.scale, other.scale)?;
        self.b.add_assign(&other.b);
        self.a.add_assign(&other.a);
        Ok(())
    }

    /// The ciphertext: divides by P.
    #[must_use]
    pub fn divide(self) -> Ciphertext {
        Ciphertext {
            b: self.b.divide_by_special(),
            a: self.a.divide_by_special(),
            scale: self.scale,
        }
    }
}

impl Hoisted<'_> {
    /// Rotates slots by `steps` to the left, and leaves the division by P to the caller.
    ///
    /// # Errors
    /// [`RnsError::MissingKey`].
    pub fn rotate_extended(&self, steps: i64) -> Result<Extended, RnsError> {
        let context = &self.keys.context;
        let exponent = rotation_exponent(context.degree(), steps);
        let (own, basis) = (&self.ciphertext.b, self.digits.basis());
        let scale = self.ciphertext.scale;
        if exponent == 1 {
            let [b, a] = [own, &self.ciphertext.a].map(|part| part.times_special(basis));
            return Ok(Extended { b, a, scale });
        }
        let galois = self.galois(exponent)?;
        let [b, a] = galois.key.multiply(&self.digits, [Some(own), None]);
        Ok(Extended {
            b: b.automorphism(&galois.automorphism),
            a: a.automorphism(&galois.automorphism),
            scale,
        })
    }

    fn galois(&self, exponent: usize) -> Result<&GaloisKey, RnsError> {
        self.keys.galois_key(exponent, self.ciphertext.limbs())
    }

    /// Rotates slots by `steps` to the left.
    ///
    /// # Errors
    /// [`RnsError::MissingKey`].
    pub fn rotate(&self, steps: i64) -> Result<Ciphertext, RnsError> {
        self.apply(rotation_exponent(self.keys.context.degree(), steps))
    }

    /// Conjugates every slot.
    ///
    /// # Errors
    /// [`RnsError::MissingKey`].
    pub fn conjugate(&self) -> Result<Ciphertext, RnsError> {
        self.apply(conjugation_exponent(self.keys.context.degree()))
    }

    fn apply(&self, exponent: usize) -> Result<Ciphertext, RnsError> {
        if exponent == 1 {
            return Ok(self.ciphertext.clone());
        }
        let galois = self.galois(exponent)?;
        let turned = galois
            .key
            .multiply(&self.digits, [Some(&self.ciphertext.b), None]);
        let [b, a] = turned.map(RnsPoly::divide_by_special);
        Ok(Ciphertext {
            b: b.automorphism(&galois.automorphism),
            a: a.automorphism(&galois.automorphism),
            scale: self.ciphertext.scale,
        })
    }
}

fn missing(what: &str, limbs: usize) -> RnsError {
    RnsError::MissingKey {
        what: what.to_owned(),
        limbs,
    }
}

/// The keys of a request. Those of a mod-raise stand together.
fn plans(secret: &SecretKey, request: &KeyRequest) -> Result<Vec<Plan>, RnsError> {
    let context = secret.context();
    let full = context.full_basis();
    let basis = |limbs: usize| KeySwitchKey::basis(context, limbs);
    let digits = |basis: Basis| KeySwitchKey::digits(context, basis);
    let negated = |secret: &RnsPoly, basis: Basis| {
        let mut negated = SecretPoly::new(secret.in_basis(basis));
        negated.poly_mut().neg_assign();
        negated
    };
    let copy = |secret: &RnsPoly, basis: Basis| SecretPoly::new(secret.in_basis(basis));
    let mut plans = Vec::new();
    if let Some(limbs) = request.relinearization {
        let basis = basis(limbs)?;
        let mut payload = copy(secret.main(), basis);
        let main = copy(secret.main(), basis);
        payload.poly_mut().mul_assign(main.poly());
        plans.push(Plan {
            purpose: Use::Relinearize,
            basis,
            digits: digits(basis),
            payload,
            secret: main,
        });
    }
    for (exponent, limbs) in request.automorphisms(context.degree()) {
        let basis = basis(limbs)?;
        let automorphism = Automorphism::new(context, exponent);
        let back = Automorphism::new(context, automorphism.inverse_exponent());
        let main = copy(secret.main(), basis);
        plans.push(Plan {
            purpose: Use::Galois(automorphism),
            basis,
            digits: digits(basis),
            payload: negated(secret.main(), basis),
            secret: SecretPoly::new(main.poly().automorphism(&back)),
        });
    }
    if request.mod_raise {
        let smallest = Basis {
            chain: 1,
            special: 1,
        };
        plans.push(Plan {
            purpose: Use::Enter,
            basis: smallest,
            digits: digits(smallest),
            payload: negated(secret.main(), smallest),
            secret: copy(secret.sparse(), smallest),
        });
        plans.push(Plan {
            purpose: Use::Leave,
            basis: full,
            digits: std::iter::once(0..full.chain).collect(),
            payload: negated(secret.sparse(), full),
            secret: copy(secret.main(), full),
        });
    }
    Ok(plans)
}

impl fmt::Debug for EvaluationKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EvaluationKeys")
            .field("relinearization", &self.relinearization.is_some())
            .field("galois", &self.galois.keys())
            .field("mod_raise", &self.encapsulation.is_some())
            .finish_non_exhaustive()
    }
}
