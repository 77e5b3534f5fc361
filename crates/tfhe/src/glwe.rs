//! GLWE secret keys, test vectors and operations on ring elements.
//!
//! A GLWE sample is k mask polynomials a_i, then the body b = sum a_i·s_i + m + e, in Z_q\[X\]/(X^N+1).

use toroid_ring::goldilocks;
use toroid_ring::multiversion;
use toroid_ring::ntt::NttPlan;
use zeroize::{ZeroizeOnDrop, Zeroizing};

use crate::TfheError;
use crate::bodies;
use crate::encoding::Encoding;
use crate::lwe::{LweSecretKey, check_words};
use crate::memory::SecretWords;
use crate::modulus::{Modulus, Words};
use crate::parallel;
use crate::params::{Gadget, ParamSet, StageParams};
use crate::random::Csprng;
use crate::seeded::{MaskSeed, SeededMask};
use crate::with_modulus;

/// A binary GLWE secret key: k polynomials of N bits, in locked memory that is cleared after use.
#[derive(Clone)]
pub struct GlweSecretKey {
    bits: SecretWords,
    ring_degree: usize,
}

impl ZeroizeOnDrop for GlweSecretKey {}

impl GlweSecretKey {
    /// A uniform key for the set's k and N.
    #[must_use]
    pub fn generate(params: &StageParams, rng: &mut Csprng) -> GlweSecretKey {
        let mut bits = SecretWords::new(params.extracted_dimension());
        rng.fill_bits(&mut bits);
        GlweSecretKey {
            bits,
            ring_degree: params.ring_degree,
        }
    }

    /// A key from its k·N bits, a word each, polynomial by polynomial, in the coefficient domain. To clear `bits` is up to
    /// the caller.
    ///
    /// # Errors
    /// [`TfheError::Format`] for words other than 0 and 1, for zeros alone, and where polynomials of N = `ring_degree`
    /// coefficients do not make up the bits.
    pub fn from_bits(bits: &[u64], ring_degree: usize) -> Result<GlweSecretKey, TfheError> {
        GlweSecretKey::from_words(SecretWords::from_bits(bits.iter().copied()), ring_degree)
    }

    pub(crate) fn from_words(
        bits: SecretWords,
        ring_degree: usize,
    ) -> Result<GlweSecretKey, TfheError> {
        if ring_degree == 0 || !bits.len().is_multiple_of(ring_degree) {
            return Err(TfheError::Format(format!(
                "{} bits are not whole polynomials of degree {ring_degree}",
                bits.len()
            )));
        }
        let bits = bits.checked()?;
        Ok(GlweSecretKey { bits, ring_degree })
    }

    /// N.
    #[must_use]
    pub fn ring_degree(&self) -> usize {
        self.ring_degree
    }

    /// The coefficients, a word each: k polynomials of N from X^0 on. They are secret.
    #[must_use]
    pub fn bits(&self) -> &[u64] {
        &self.bits
    }

    /// Whether the system keeps the bits out of its swap area.
    pub(crate) fn is_locked(&self) -> bool {
        self.bits.is_locked()
    }

    /// The LWE key under which extracted samples stand: all coefficients in a row.
    #[must_use]
    pub fn extracted_key(&self) -> LweSecretKey {
        LweSecretKey::extracted(&self.bits)
    }
}

multiversion! {
    fn rotate_sub_run<M: Words>(out: &mut [M::Word], moved: &[M::Word], fixed: &[M::Word], negate: bool) {
        if negate {
            for ((o, m), f) in out.iter_mut().zip(moved).zip(fixed) {
                *o = M::neg(M::add(*m, *f));
            }
        } else {
            for ((o, m), f) in out.iter_mut().zip(moved).zip(fixed) {
                *o = M::sub(*m, *f);
            }
        }
    }
}

/// out = X^shift·p - p for a polynomial of N coefficients, 0 <= shift < 2N (RING_ROT and SUB32).
pub(crate) fn rotate_sub<M: Words>(
    simd: toroid_ring::simd::SimdLevel,
    out: &mut [M::Word],
    p: &[M::Word],
    shift: usize,
) {
    let n = p.len();
    let negate = shift >= n;
    let shift = shift % n;
    // Coefficients that pass X^N change their sign.
    rotate_sub_run::<M>(
        simd,
        &mut out[..shift],
        &p[n - shift..],
        &p[..shift],
        !negate,
    );
    rotate_sub_run::<M>(
        simd,
        &mut out[shift..],
        &p[..n - shift],
        &p[shift..],
        negate,
    );
}

/// out = X^shift·p, 0 <= shift < 2N.
pub(crate) fn rotate<M: Words>(out: &mut [M::Word], p: &[M::Word], shift: usize) {
    let n = p.len();
    let negate = shift >= n;
    let shift = shift % n;
    let signed = |word: M::Word, negate: bool| if negate { M::neg(word) } else { word };
    for (o, c) in out[..shift].iter_mut().zip(&p[n - shift..]) {
        *o = signed(*c, !negate);
    }
    for (o, c) in out[shift..].iter_mut().zip(&p[..n - shift]) {
        *o = signed(*c, negate);
    }
}

/// out = p(X^d) for odd d.
pub(crate) fn automorphism<M: Words>(out: &mut [M::Word], p: &[M::Word], d: usize) {
    let n = p.len();
    for (i, c) in p.iter().enumerate() {
        let at = i * d % (2 * n);
        if at < n {
            out[at] = *c;
        } else {
            out[at - n] = M::neg(*c);
        }
    }
}

/// The LWE sample, of dimension k·N, of coefficient `index` of a GLWE sample (SAMPLE_EXT), its words brought to the
/// ciphertext's by `leave`.
pub(crate) fn sample_extract<M: Words, W>(
    params: &StageParams,
    glwe: &[M::Word],
    index: usize,
    out: &mut [W],
    leave: impl Fn(M::Word) -> W,
) {
    let n = params.ring_degree;
    let masks = glwe.chunks_exact(n).take(params.glwe_dimension);
    for (a, out) in masks.zip(out.chunks_exact_mut(n)) {
        // Coefficient `index` of a·s: those from X^0 on against those of s from `index` down, the rest wrapped around.
        for (o, c) in out.iter_mut().zip(a[..=index].iter().rev()) {
            *o = leave(*c);
        }
        for (o, c) in out[index + 1..].iter_mut().zip(a[index + 1..].iter().rev()) {
            *o = leave(M::neg(*c));
        }
    }
    out[params.extracted_dimension()] = leave(glwe[params.extracted_dimension() + index]);
}

/// A GLWE sample whose constant coefficient is the message of an LWE sample of dimension k·N, its words brought to the
/// other's by `enter`. What stands in the other coefficients is no message.
pub(crate) fn sample_embed<M: Words, W: Copy>(
    params: &StageParams,
    sample: &[W],
    out: &mut [M::Word],
    enter: impl Fn(W) -> M::Word,
) {
    let n = params.ring_degree;
    let (mask, body) = sample.split_at(params.extracted_dimension());
    for (a, out) in mask.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
        out[0] = enter(a[0]);
        for (o, c) in out[1..].iter_mut().zip(a[1..].iter().rev()) {
            *o = M::neg(enter(*c));
        }
    }
    let bodies = &mut out[params.extracted_dimension()..];
    bodies.fill(M::Word::default());
    bodies[0] = enter(body[0]);
}

/// A test vector as a trivial GLWE sample of (k+1)·N words: `table` gives the output word of every message of
/// `input`, in the order of [`Encoding::messages`]. For a wide function it is the table itself, of 2^p words
/// ([`crate::wopbs`]).
///
/// Every message owns a window of N/2^p coefficients around its phase; negative phases of signed messages are reached
/// through the negacyclic wrap and stand negated in the polynomial's upper half.
///
/// # Errors
/// [`TfheError::FunctionTooWide`] where 2^(p+1) > 2N, or [`TfheError::MessageTooWide`]; [`TfheError::Length`] for a table of another length.
pub fn test_vector<M: Modulus>(
    params: &ParamSet,
    input: Encoding,
    table: &[M::Word],
) -> Result<Vec<M::Word>, TfheError> {
    expect_table(params, input)?;
    if params.is_wide() {
        return wide_test_vector::<M>(params, input, table);
    }
    let n = params.ring_degree;
    let count = 1usize << input.bits();
    if table.len() != count {
        return Err(TfheError::Length {
            what: "the table of a test vector",
            params: params.name,
            expected: (count * size_of::<M::Word>()) as u64,
            found: size_of_val(table) as u64,
        });
    }
    let first = input.messages().start;
    let mut vector = vec![M::Word::default(); params.glwe_words()];
    for (j, word) in vector[params.extracted_dimension()..]
        .iter_mut()
        .enumerate()
    {
        // Message of the window that phase j/2N falls in, before it is brought into the range.
        let message = ((j * count + n / 2) / n) as i64;
        let in_range = input.messages().contains(&message);
        let index = if in_range {
            message
        } else {
            message - count as i64
        } - first;
        let value = table[index as usize];
        *word = if in_range { value } else { M::neg(value) };
    }
    Ok(vector)
}

/// The bytes of the test vector of a function: `values` of every message of `input`, in the order of [`Encoding::messages`], count
/// modulo 2^(p+1) for an output of p bits.
///
/// # Errors
/// Those of [`test_vector`]; [`TfheError::MessageTooWide`] also for an output wider than the messages of a wide function.
pub fn function_bytes(
    params: &ParamSet,
    input: Encoding,
    output: Encoding,
    values: &[i64],
) -> Result<Vec<u8>, TfheError> {
    if params.is_wide() {
        expect_width(params, output)?;
    }
    let bits = output.bits() + 1;
    with_modulus!(params.modulus, M => {
        let word = |value: &i64| M::encode(value.rem_euclid(1 << bits), bits);
        let table: Vec<_> = values.iter().map(word).collect();
        Ok(bytemuck::cast_slice(&test_vector::<M>(params, input, &table)?).to_vec())
    })
}

/// Refuses an encoding that no function of the set takes, before there is a table of its messages.
pub(crate) fn expect_table(params: &ParamSet, input: Encoding) -> Result<(), TfheError> {
    if params.is_wide() {
        return expect_width(params, input);
    }
    let (needed, found) = (1usize << input.bits(), params.ring_degree);
    if needed > found {
        return Err(TfheError::FunctionTooWide {
            bits: input.bits(),
            needed,
            found,
            params: params.name,
        });
    }
    Ok(())
}

/// Refuses an encoding wider than the messages of a wide function.
pub(crate) fn expect_width(params: &ParamSet, encoding: Encoding) -> Result<(), TfheError> {
    if encoding.bits() > params.message_bits {
        return Err(TfheError::MessageTooWide {
            bits: encoding.bits(),
            found: params.message_bits,
            params: params.name,
        });
    }
    Ok(())
}

/// The test vector of a wide function: an entry for each of the 2^p messages of the set; `table` gives the output word of
/// every message of `input`, in the order of [`Encoding::messages`]. A message of a narrower input owns the entries
/// around its place.
///
/// # Errors
/// [`TfheError::MessageTooWide`] for an input wider than the set's message, [`TfheError::Length`] for a table of another length,
/// [`TfheError::Format`] for a value between the places that the set's messages and their padding bit have.
fn wide_test_vector<M: Modulus>(
    params: &ParamSet,
    input: Encoding,
    table: &[M::Word],
) -> Result<Vec<M::Word>, TfheError> {
    let (p, bits) = (params.message_bits, input.bits());
    check_words::<M>(params, "the table of a test vector", table, 1 << bits)?;
    let places = table
        .iter()
        .map(|word| M::decode(*word, p + 1).cast_signed());
    if let Some(index) = places
        .zip(table)
        .position(|(place, word)| M::encode(place, p + 1) != *word)
    {
        return Err(TfheError::Format(format!(
            "value {index} of the table is not a multiple of 1/2^{}, which is all that {} tells apart",
            p + 1,
            params.name
        )));
    }
    let first = input.messages().start;
    Ok((0..1usize << p)
        .map(|entry| {
            let message = ((entry << bits) + (1 << p) / 2) >> p;
            // Modulo 2^bits, from the smallest message on.
            table[(message as i64 - first) as usize % table.len()]
        })
        .collect())
}

/// A message that a GLWE sample of 0 carries as if it had been taken off the constant coefficient of a mask component.
#[derive(Clone, Copy)]
pub(crate) struct MaskMessage<W> {
    component: usize,
    message: W,
}

/// Key bit number `index` of a private functional key switch: for each level of `gadget` a row that encrypts `bit`·factor·g_level.
/// The factor's coefficients are small: g_0 times each is below q/2.
#[derive(Clone, Copy)]
pub(crate) struct ScaledBit<'a> {
    pub(crate) index: usize,
    pub(crate) bit: u64,
    pub(crate) factor: &'a [i32],
    pub(crate) gadget: Gadget,
}

/// Makes the rows of GGSW samples, in the coefficient domain.
pub(crate) struct RowMaker {
    params: StageParams,
    plan: NttPlan,
    /// 1/N in the field.
    scale: u64,
    /// Secret polynomials in the NTT domain, divided by N.
    secret: SecretWords,
}

impl RowMaker {
    /// For rows under this key.
    ///
    /// # Errors
    /// [`TfheError::Ring`] for a degree that the transform does not support.
    pub(crate) fn new(params: &StageParams, key: &GlweSecretKey) -> Result<RowMaker, TfheError> {
        let plan = NttPlan::new(params.ring_degree)?;
        let scale = goldilocks::inv(params.ring_degree as u64);
        let mut secret = key.bits.clone();
        for polynomial in secret.chunks_exact_mut(params.ring_degree) {
            plan.forward(polynomial);
            plan.scale_assign(polynomial, scale);
        }
        Ok(RowMaker {
            params: *params,
            plan,
            scale,
            secret,
        })
    }

    /// GGSW sample number `index` of a key, which encrypts `bit`, as its rows of k+1 polynomials ([`StageParams::ggsw_row`]):
    /// a row encrypts 0 with bit·g_level added to its component, and its body is rounded. Masks are those that `seed` gives; what a mask
    /// component carries stands in the body, as -bit·g_level·s_c.
    pub(crate) fn ggsw<M: Modulus>(
        &self,
        index: usize,
        bit: u64,
        seed: &MaskSeed,
        out: &mut [M::Word],
        rng: &mut Csprng,
    ) {
        let params = &self.params;
        for (row, out) in out.chunks_exact_mut(params.glwe_words()).enumerate() {
            let (component, gadget, level) = params.ggsw_row(row);
            let message = M::select(M::gadget_value(gadget, level), bit);
            let number = (index * params.ggsw_rows() + row) as u64;
            let mask = SeededMask { seed, number };
            self.zero::<M>(mask, Some(MaskMessage { component, message }), out, rng);
            if component == params.glwe_dimension {
                let body = &mut out[params.extracted_dimension()];
                *body = M::add(*body, message);
            }
            self.round_body::<M>(out);
        }
    }

    /// Key number `index` for a switch from k secret polynomials to this key's: for each of them and each level of the mask's
    /// gadget a row that encrypts it times g_level, and whose body is rounded. `secrets` holds them as field elements, small ones: centred below 2^31.
    pub(crate) fn ring_switch<M: Modulus>(
        &self,
        index: usize,
        secrets: &[u64],
        seed: &MaskSeed,
        out: &mut [M::Word],
        rng: &mut Csprng,
    ) {
        let params = &self.params;
        let n = params.ring_degree;
        for (row, out) in out.chunks_exact_mut(params.glwe_words()).enumerate() {
            let (component, gadget, level) = params.ggsw_row(row);
            let number = (index * params.ggsw_rows() + row) as u64;
            self.zero::<M>(SeededMask { seed, number }, None, out, rng);
            let unit = M::gadget_value(gadget, level);
            let body = &mut out[params.extracted_dimension()..];
            for (word, coefficient) in body.iter_mut().zip(&secrets[component * n..][..n]) {
                let factor = goldilocks::to_centered(*coefficient) as i32;
                *word = M::add(*word, M::mul_signed(unit, factor));
            }
            self.round_body::<M>(out);
        }
    }

    /// The rows of one key bit of a private functional key switch.
    pub(crate) fn scaled_bit<M: Modulus>(
        &self,
        scaled: ScaledBit<'_>,
        seed: &MaskSeed,
        out: &mut [M::Word],
        rng: &mut Csprng,
    ) {
        let ScaledBit {
            index,
            bit,
            factor,
            gadget,
        } = scaled;
        let rows = out.chunks_exact_mut(self.params.glwe_words());
        for (level, out) in rows.enumerate() {
            let number = (index * gadget.levels + level) as u64;
            self.zero::<M>(SeededMask { seed, number }, None, out, rng);
            let unit = M::select(M::gadget_value(gadget, level), bit);
            let body = &mut out[self.params.extracted_dimension()..];
            for (word, coefficient) in body.iter_mut().zip(factor) {
                *word = M::add(*word, M::mul_signed(unit, *coefficient));
            }
        }
    }

    /// Rounds the body of a row of a public key, once it is encrypted.
    fn round_body<M: Modulus>(&self, row: &mut [M::Word]) {
        for word in &mut row[self.params.extracted_dimension()..] {
            *word = bodies::round::<M>(*word, self.params.body_bits);
        }
    }

    /// A GLWE sample of 0 with the mask of a seed, or of what `in_mask` says; the body has no message.
    fn zero<M: Modulus>(
        &self,
        mask: SeededMask<'_>,
        in_mask: Option<MaskMessage<M::Word>>,
        out: &mut [M::Word],
        rng: &mut Csprng,
    ) {
        let (masks, body) = out.split_at_mut(self.params.extracted_dimension());
        mask.seed.expand_row::<M>(mask.number, masks);
        self.body_of_zero::<M>(masks, in_mask, body, rng);
    }

    /// The body, N words, of a fresh GLWE sample of 0 with these masks, k·N words, or of what `in_mask` says.
    pub(crate) fn body_of_zero<M: Modulus>(
        &self,
        masks: &[M::Word],
        in_mask: Option<MaskMessage<M::Word>>,
        body: &mut [M::Word],
        rng: &mut Csprng,
    ) {
        let n = self.params.ring_degree;
        let mut scratch = Zeroizing::new(vec![0; 2 * n]);
        let (product, sum) = scratch.split_at_mut(n);
        let columns = masks.chunks_exact(n).zip(self.secret.chunks_exact(n));
        for (column, (mask, secret)) in columns.enumerate() {
            lift::<M>(self.plan.simd(), product, mask);
            if let Some(MaskMessage { message, .. }) =
                in_mask.filter(|message| message.component == column)
            {
                product[0] = M::to_goldilocks(M::sub(mask[0], message));
            }
            self.plan.forward(product);
            self.plan.mul_add_assign(sum, product, secret);
        }
        // Over the 32-bit torus |sum| <= k·N·2^31 < p/2: the centred representative is the true integer.
        self.plan.inverse(sum);
        lower::<M>(self.plan.simd(), body, sum);
        rng.add_noise::<M>(self.params.log2_glwe_noise, body);
    }

    /// The polynomials that the rings' key switches lead from, for the keys of [`crate::params::WopbsParams::switch`] in their
    /// order, k of N field elements each: -s(X^(2^s + 1)) for s = log2 N down to 1, then s_u·s_i over u for i = 0 to k-1.
    pub(crate) fn switched_secrets(&self, key: &GlweSecretKey) -> Zeroizing<Vec<u64>> {
        let n = self.params.ring_degree;
        let steps = n.trailing_zeros();
        let k = self.params.glwe_dimension;
        let mut out = Zeroizing::new(vec![0; (steps as usize + k) * k * n]);
        let mut groups = out.chunks_exact_mut(k * n);
        for (step, group) in (1..=steps).rev().zip(groups.by_ref()) {
            for (image, secret) in group.chunks_exact_mut(n).zip(key.bits.chunks_exact(n)) {
                automorphism::<crate::modulus::Goldilocks>(image, secret, (1 << step) + 1);
                for coefficient in image {
                    *coefficient = goldilocks::neg(*coefficient);
                }
            }
        }
        let mut spectrum = Zeroizing::new(vec![0; n]);
        for (i, group) in groups.enumerate() {
            for (product, secret) in group.chunks_exact_mut(n).zip(key.bits.chunks_exact(n)) {
                spectrum.copy_from_slice(secret);
                self.plan.forward(&mut spectrum);
                self.plan
                    .mul_add_assign(product, &spectrum, &self.secret[i * n..][..n]);
                self.plan.inverse(product);
            }
        }
        out
    }

    /// The phase polynomial of a GLWE sample.
    pub(crate) fn phase<M: Modulus>(&self, sample: &[M::Word]) -> Vec<M::Word> {
        let n = self.params.ring_degree;
        let (masks, body) = sample.split_at(self.params.extracted_dimension());
        let mut scratch = Zeroizing::new(vec![0; 2 * n]);
        let (product, sum) = scratch.split_at_mut(n);
        for (mask, secret) in masks.chunks_exact(n).zip(self.secret.chunks_exact(n)) {
            lift::<M>(self.plan.simd(), product, mask);
            self.plan.forward(product);
            self.plan.mul_add_assign(sum, product, secret);
        }
        self.plan.inverse(sum);
        let body = body.iter().zip(sum);
        body.map(|(b, sum)| M::sub(*b, M::from_goldilocks(*sum)))
            .collect()
    }

    /// Polynomials in the coefficient domain to their canonical form in the NTT domain (BKNTT), in parallel.
    pub(crate) fn transform<M: Modulus>(&self, words: &[M::Word], out: &mut [u64]) {
        let n = self.params.ring_degree;
        let pairs = out.chunks_exact_mut(n).zip(words.chunks_exact(n));
        parallel::for_each(pairs, |_, (out, words)| {
            lift::<M>(self.plan.simd(), out, words);
            self.plan.forward(out);
            self.plan.scale_assign(out, self.scale);
        });
    }
}

multiversion! {
    /// Words to the Goldilocks field.
    pub(crate) fn lift<M: Modulus>(out: &mut [u64], words: &[M::Word]) {
        for (o, w) in out.iter_mut().zip(words) {
            *o = M::to_goldilocks(*w);
        }
    }
}

multiversion! {
    fn lower<M: Modulus>(out: &mut [M::Word], values: &[u64]) {
        for (o, v) in out.iter_mut().zip(values) {
            *o = M::from_goldilocks(*v);
        }
    }
}
