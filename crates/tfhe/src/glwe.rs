//! TRLWE secret keys, test vectors and operations on ring elements.
//!
//! A TRLWE sample is k mask polynomials a_i, then the body b = sum a_i·s_i + m + e, in Z_q\[X\]/(X^N+1).

use toroid_ring::goldilocks;
use toroid_ring::multiversion;
use toroid_ring::ntt::NttPlan;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::TfheError;
use crate::encoding::Encoding;
use crate::lwe::LweSecretKey;
use crate::modulus::Modulus;
use crate::params::ParamSet;
use crate::random::Csprng;

/// A binary TRLWE secret key: k polynomials of N bits.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct GlweSecretKey {
    bits: Vec<u64>,
    #[zeroize(skip)]
    ring_degree: usize,
}

impl GlweSecretKey {
    /// A uniform key for the set's k and N.
    #[must_use]
    pub fn generate(params: &ParamSet, rng: &mut Csprng) -> GlweSecretKey {
        let mut bits = vec![0; params.extracted_dimension()];
        rng.fill_bits(&mut bits);
        GlweSecretKey {
            bits,
            ring_degree: params.ring_degree,
        }
    }

    pub(crate) fn from_bits(bits: Vec<u64>, ring_degree: usize) -> Option<GlweSecretKey> {
        let key = GlweSecretKey { bits, ring_degree };
        (key.bits.iter().fold(0, |seen, bit| seen | bit) <= 1).then_some(key)
    }

    pub(crate) fn bits(&self) -> &[u64] {
        &self.bits
    }

    /// The TLWE key under which extracted samples stand: all coefficients in a row.
    #[must_use]
    pub fn extracted_key(&self) -> Option<LweSecretKey> {
        LweSecretKey::from_bits(self.bits.clone())
    }

    /// The polynomials in the NTT domain. Secret: zeroized when dropped.
    pub(crate) fn transformed(&self, plan: &NttPlan) -> zeroize::Zeroizing<Vec<u64>> {
        let mut spectrum = zeroize::Zeroizing::new(self.bits.clone());
        for polynomial in spectrum.chunks_exact_mut(self.ring_degree) {
            plan.forward(polynomial);
        }
        spectrum
    }
}

multiversion! {
    fn rotate_sub_run<M: Modulus>(out: &mut [M::Word], moved: &[M::Word], fixed: &[M::Word], negate: bool) {
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
pub(crate) fn rotate_sub<M: Modulus>(
    isa: toroid_ring::simd::Isa,
    out: &mut [M::Word],
    p: &[M::Word],
    shift: usize,
) {
    let n = p.len();
    let negate = shift >= n;
    let shift = shift % n;
    // Coefficients that pass X^N change their sign.
    rotate_sub_run::<M>(
        isa,
        &mut out[..shift],
        &p[n - shift..],
        &p[..shift],
        !negate,
    );
    rotate_sub_run::<M>(isa, &mut out[shift..], &p[..n - shift], &p[shift..], negate);
}

/// out = X^shift·p, 0 <= shift < 2N.
pub(crate) fn rotate<M: Modulus>(out: &mut [M::Word], p: &[M::Word], shift: usize) {
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

/// The TLWE sample, of dimension k·N, of a TRLWE sample's constant coefficient (SAMPLE_EXT).
pub(crate) fn sample_extract<M: Modulus>(
    params: &ParamSet,
    trlwe: &[M::Word],
    out: &mut [M::Word],
) {
    let n = params.ring_degree;
    let masks = trlwe.chunks_exact(n).take(params.glwe_dimension);
    for (a, out) in masks.zip(out.chunks_exact_mut(n)) {
        out[0] = a[0];
        for (o, c) in out[1..].iter_mut().zip(a[1..].iter().rev()) {
            *o = M::neg(*c);
        }
    }
    out[params.extracted_dimension()] = trlwe[params.extracted_dimension()];
}

/// A test vector as a trivial TRLWE sample of (k+1)·N words: `table` gives the output word of every message of
/// `input`, in the order of [`Encoding::messages`].
///
/// Every message owns a window of N/2^p coefficients around its phase; negative phases of signed messages are reached
/// through the negacyclic wrap and stand negated in the polynomial's upper half.
///
/// # Errors
/// [`TfheError::FunctionTooWide`] where 2^(p+1) > 2N, [`TfheError::Length`] for a table of another length.
pub fn test_vector<M: Modulus>(
    params: &'static ParamSet,
    input: Encoding,
    table: &[M::Word],
) -> Result<Vec<M::Word>, TfheError> {
    let n = params.ring_degree;
    let count = 1usize << input.bits();
    if count > n {
        return Err(TfheError::FunctionTooWide {
            bits: input.bits(),
            needed: count,
            found: n,
            params: params.name,
        });
    }
    if table.len() != count {
        return Err(TfheError::Length {
            what: "the table of a test vector",
            params: params.name,
            expected: (count * size_of::<M::Word>()) as u64,
            found: size_of_val(table) as u64,
        });
    }
    let first = input.messages().start;
    let mut vector = vec![M::Word::default(); params.trlwe_words()];
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

/// Secret polynomials on the way to a row.
struct RowScratch<M: Modulus> {
    words: zeroize::Zeroizing<Vec<M::Word>>,
    spectrum: zeroize::Zeroizing<Vec<u64>>,
}

/// Transforms needed to make rows of a TRGSW sample.
pub(crate) struct RowMaker<'a> {
    pub(crate) params: &'static ParamSet,
    pub(crate) plan: &'a NttPlan,
    /// Secret polynomials in the NTT domain.
    pub(crate) secret: &'a [u64],
    /// 1/N in the field.
    pub(crate) scale: u64,
}

impl RowMaker<'_> {
    /// One TRGSW sample of `bit`, as its l·(k+1) rows in BKNTT form: row c·l + level encrypts 0 with bit·g_level added to
    /// component c.
    pub(crate) fn trgsw<M: Modulus>(&self, bit: u64, out: &mut [u64], rng: &mut Csprng) {
        let params = self.params;
        let n = params.ring_degree;
        let row_words = (params.glwe_dimension + 1) * n;
        let mut scratch = RowScratch {
            words: zeroize::Zeroizing::new(vec![M::Word::default(); n]),
            spectrum: zeroize::Zeroizing::new(vec![0; n]),
        };
        for (row, out) in out.chunks_exact_mut(row_words).enumerate() {
            let component = row / params.gadget.levels;
            let gadget = M::gadget_value(params.gadget, row % params.gadget.levels);
            self.row::<M>(component, M::select(gadget, bit), out, &mut scratch, rng);
        }
    }

    fn row<M: Modulus>(
        &self,
        component: usize,
        message: M::Word,
        out: &mut [u64],
        scratch: &mut RowScratch<M>,
        rng: &mut Csprng,
    ) {
        let n = self.params.ring_degree;
        let RowScratch { words, spectrum } = scratch;
        let (masks, body) = out.split_at_mut(self.params.glwe_dimension * n);
        body.fill(0);
        // Masks are drawn where they are cheapest: in the NTT domain if q = p (uniform there and here alike).
        for (mask, secret) in masks.chunks_exact_mut(n).zip(self.secret.chunks_exact(n)) {
            match M::KIND {
                crate::params::ModulusKind::Goldilocks => {
                    rng.fill_uniform::<crate::modulus::Goldilocks>(mask)
                }
                crate::params::ModulusKind::Torus32 => {
                    rng.fill_uniform::<M>(words);
                    lift::<M>(words, mask);
                    self.plan.forward(mask);
                }
            }
            self.plan.mul_add_assign(body, mask, secret);
        }
        if M::KIND == crate::params::ModulusKind::Torus32 {
            // |sum| <= k·N·2^31 < p/2: the centred representative is the true integer; then reduced modulo q.
            self.plan.inverse(body);
            self.plan.scale_assign(body, self.scale);
            for (word, value) in words.iter_mut().zip(body.iter()) {
                *word = M::from_goldilocks(*value);
            }
        } else {
            words.fill(M::Word::default());
        }
        rng.add_noise::<M>(self.params.log2_glwe_noise, words);
        let noisy_body = component == self.params.glwe_dimension;
        if noisy_body {
            words[0] = M::add(words[0], message);
        }
        lift::<M>(words, spectrum);
        self.plan.forward(spectrum);
        if M::KIND == crate::params::ModulusKind::Torus32 {
            body.copy_from_slice(spectrum);
        } else {
            for (value, term) in body.iter_mut().zip(spectrum.iter()) {
                *value = goldilocks::add(*value, *term);
            }
        }
        if !noisy_body {
            self.add_message_to_mask::<M>(&mut masks[component * n..(component + 1) * n], message);
        }
        for polynomial in out.chunks_exact_mut(n) {
            self.plan.scale_assign(polynomial, self.scale);
        }
    }

    /// Adds a constant polynomial, which is the same constant at every point of the transform. Over the 32-bit torus the
    /// words become those of centred mask + message, not reduced modulo 2^32: the same sample.
    fn add_message_to_mask<M: Modulus>(&self, mask: &mut [u64], message: M::Word) {
        let lifted = M::to_goldilocks(message);
        for value in mask {
            *value = goldilocks::add(*value, lifted);
        }
    }
}

fn lift<M: Modulus>(words: &[M::Word], out: &mut [u64]) {
    for (o, w) in out.iter_mut().zip(words) {
        *o = M::to_goldilocks(*w);
    }
}
