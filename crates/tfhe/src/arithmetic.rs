//! The external product's polynomial arithmetic, in three forms with one trait: NTT (exact), f64 FFT (fast) and the naive
//! oracle.
//!
//! Keys come to all of them in the canonical form of the platform paper's equation 1: pre-scaled by 1/N and in the NTT
//! domain (BKNTT), or in the coefficient domain. [`Arithmetic::load`] and [`Arithmetic::load_coefficients`] turn a row of it
//! into what the form wants.
//!
//! # Exactness
//!
//! Over the Goldilocks modulus the field is the ring of coefficients and every result is exact. Over the 32-bit torus a
//! coefficient of an external product is a sum of products d·w, N of them for every row of the GGSW sample, with digits
//! |d| <= B/2 of that row's gadget and centred words w of the key, -2^31 <= w < 2^31. So its absolute value is at most
//! 2^31·N·Σ B/2 over the rows, and computing it modulo a prime q is exact where that is below q/2. All sets but `paper` stay below
//! 2^48.6, which a prime just below 2^50 holds ([`NTT_PRIME`]); `paper` reaches 2^53.3.
//!
//! There each word of the key is the sum of two halves, w = low + 2^16·high with |low|, |high| <= 2^15, and the sums of products with
//! either half are made by f64 FFT and rounded, which gives the integer where the error stays below 1/2. By the bound of Brent, Percival and
//! Zimmermann (Error bounds on complex floating-point multiplication, 2007) a convolution of x and y by FFTs of 2^m complex points is off
//! by at most |x|·|y|·((1+u)^3m·(1+u·√5)^(3m+1)·(1+b)^3m - 1), with u = 2^-53 and factors that are off by b. Here m = log2(N/2),
//! |x| <= B/2·√N and |y| <= 2^15·√N; factors are rounded correctly, so b <= u. A butterfly of ours multiplies by c·(1 + i·t), which
//! rounds t, the products with t, c, and the products with c together with the sum: no more than the bound counts. Each row of a sum adds a rounding. For `paper`
//! that makes 2^-8.2, for any sample and any key, honest or not.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use bytemuck::Pod;
use toroid_ring::fft::{Coefficients, FftPlan, KeyFormat, Receiver, Rotations};
use toroid_ring::goldilocks;
use toroid_ring::multiversion;
use toroid_ring::naive;
use toroid_ring::ntt::NttPlan;
use toroid_ring::prime;
use toroid_ring::prime_ntt::Ntt50Plan;
use toroid_ring::simd::SimdLevel;

use crate::TfheError;
use crate::modulus::{
    DigitField, DigitFields, FieldOf, FloatWords, Modulus, Torus32, Words, nearest_i64,
};
use crate::params::{ModulusKind, StageParams};

/// Which arithmetic an external product is done in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ArithmeticKind {
    /// Integers: no noise of its own.
    Ntt,
    /// f64 FFT: adds rounding noise.
    #[default]
    Fft,
}

impl fmt::Display for ArithmeticKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ArithmeticKind::Ntt => "ntt",
            ArithmeticKind::Fft => "fft",
        })
    }
}

impl FromStr for ArithmeticKind {
    type Err = UnknownArithmetic;

    fn from_str(name: &str) -> Result<ArithmeticKind, UnknownArithmetic> {
        match name {
            "ntt" => Ok(ArithmeticKind::Ntt),
            "fft" => Ok(ArithmeticKind::Fft),
            _ => Err(UnknownArithmetic(name.to_owned())),
        }
    }
}

/// No arithmetic has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown arithmetic {0:?}: expected fft or ntt")]
pub struct UnknownArithmetic(String);

/// A word of the accumulator of an arithmetic.
pub type WordOf<M, A> = <<A as Arithmetic<M>>::Words as Words>::Word;

/// Polynomial arithmetic of one form.
pub trait Arithmetic<M: Modulus>: Send + Sync + Sized + 'static {
    /// What the accumulator is made of.
    type Words: Words;
    /// Entry of a transformed polynomial of N entries.
    type Scalar: Pod + Default + Send + Sync;
    /// Which noise formulas apply.
    const KIND: ArithmeticKind;

    /// Plans for the ring of a parameter set.
    ///
    /// # Errors
    /// [`TfheError::Ring`] for a degree that the transform does not support.
    fn new(params: &StageParams, simd: SimdLevel) -> Result<Self, TfheError>;
    /// Sums that the products with each column of a key make: 2 where the key's words come in halves.
    fn sums_per_column(_: &StageParams) -> usize {
        1
    }
    /// A word of the accumulator for a ciphertext's word.
    fn enter(word: M::Word) -> WordOf<M, Self>;
    /// A ciphertext's word for a word of the accumulator.
    fn leave(word: WordOf<M, Self>) -> M::Word;
    /// Bytes of a loaded GGSW row of k+1 polynomials, a multiple of 8.
    fn row_bytes(&self) -> usize;
    /// The transform of the canonical form.
    fn ntt(&self) -> &NttPlan;
    /// Whether loaded rows are those of the canonical form.
    fn computes_on_canonical(&self) -> bool {
        false
    }
    /// Loads a row of the canonical form (BKNTT), which is destroyed; `scratch` has (k+1)·N entries for each sum of a column.
    fn load(&self, row: &mut [u64], scratch: &mut [Self::Scalar], out: &mut [u8]) {
        if self.computes_on_canonical() {
            return out.copy_from_slice(bytemuck::cast_slice(row));
        }
        for polynomial in row.chunks_exact_mut(self.ntt().degree()) {
            self.ntt().inverse(polynomial);
        }
        self.load_coefficients(row, scratch, out);
    }
    /// Loads a row of k+1 polynomials in the coefficient domain, words lifted to the Goldilocks field, which is destroyed;
    /// `scratch` has (k+1)·N entries for each sum of a column.
    fn load_coefficients(&self, row: &mut [u64], scratch: &mut [Self::Scalar], out: &mut [u8]);
    /// sums\[c\] += digits ⊙ row\[c\] for the k+1 polynomials of a loaded row, where `digits` is the transform of the
    /// digit of every word that `fields` describe; with `first`, `sums` is overwritten. The sums of a column follow one another. `scratch`
    /// has N entries at least.
    fn mul_add_digits(
        &self,
        words: &[WordOf<M, Self>],
        fields: DigitFields,
        row: &[u8],
        scratch: &mut [Self::Scalar],
        sums: &mut [Self::Scalar],
        first: bool,
    );
    /// Brings the loaded rows of three GGSW samples to the order in which [`Self::pair_product`] reads them, where there is one.
    fn gather_pair(&self, _rows: &mut [u8]) {}
    /// sums\[c\] = Σ_i (X^e_i - 1)·Σ_r digits_r ⊙ rows\[i\]\[r\]\[c\] for the gathered rows of three GGSW samples of `params` and e_2 = e_0 + e_1,
    /// where digits_r is the transform of the digits of `acc`, (k+1)·N words, that belong to row r. `digits` has N entries for each row of a sample. Returns false, and leaves
    /// `sums` as they are, where the arithmetic has no such product: three external products make it up then.
    fn pair_product(
        &self,
        _params: &StageParams,
        _acc: &[WordOf<M, Self>],
        _keys: &[u8],
        _exponents: [usize; 2],
        _digits: &mut [Self::Scalar],
        _sums: &mut [Self::Scalar],
    ) -> bool {
        false
    }
    /// sum += Σ factors\[j\]·rows\[j\] for loaded rows over the Goldilocks modulus, entry by entry, or for the same part of each,
    /// as long as `sum`, in order. Factors are below 2^24 in absolute value.
    fn add_multiples(&self, sum: &mut [u64], rows: &[u64], factors: &[i32]);
    /// sum += other, entry by entry.
    fn add(&self, sum: &mut [Self::Scalar], other: &[Self::Scalar]);
    /// words += inverse transform of the sums of a column, which are destroyed.
    fn inverse_add(&self, spectrum: &mut [Self::Scalar], words: &mut [WordOf<M, Self>]);
}

/// Integers: by NTT over the Goldilocks field; over the 32-bit torus by NTT modulo [`NTT_PRIME`] where that is large enough, else by f64 FFT
/// of halves.
pub struct Ntt {
    ntt: NttPlan,
    products: Products,
    columns: usize,
}

/// How [`Ntt`] makes products.
enum Products {
    Field,
    Prime(Ntt50Plan),
    Halves(FftPlan),
}

/// The largest prime below 2^50 that is 1 modulo 2^18, which serves every ring degree.
pub const NTT_PRIME: u64 = 1_125_899_902_124_033;

/// f64 FFT.
///
/// Keys of the 32-bit torus are kept in fixed point ([`KeyFormat::Fixed`]), at 9 bytes for 16 where k = 1: the spectrum of a
/// uniform word polynomial has a standard deviation of 2^32·sqrt(N/24) in each part, and ten of these are made the range of
/// the integers. An honest key leaves it with a probability below 2^-40, and errs by about 1.7 units of the torus in
/// the body and 1.7/256 in the mask. Keys over the Goldilocks modulus need all 53 bits.
pub struct Fft {
    plan: FftPlan,
    ntt: NttPlan,
    columns: usize,
    format: KeyFormat,
    /// Made for the first unrolled step; none for the smallest degrees.
    rotations: OnceLock<Option<Rotations>>,
    /// Brings centred words to what the key is made of.
    key_scale: f64,
    /// Brings the inverse transform of products back to the unit of [`FloatWords::add_f64`].
    sum_scale: f64,
}

/// Schoolbook products, the oracle of [`Ntt`]: quadratic in N.
pub struct Naive {
    ntt: NttPlan,
    columns: usize,
}

/// Standard deviations of a key's spectrum that the range of fixed point holds.
pub(crate) const FIXED_POINT_RANGE: f64 = 10.0;

/// What one unit of a fixed-point key is worth, in units of the spectrum of words of the 32-bit torus.
fn fixed_point_unit(degree: usize) -> f64 {
    let deviation = 2f64.powi(32) * (degree as f64 / 24.0).sqrt();
    FIXED_POINT_RANGE * deviation / f64::from(i32::MAX)
}

/// Whether external products over the 32-bit torus are exact modulo [`NTT_PRIME`], by the bound of the module's header.
fn prime_is_exact(params: &StageParams) -> bool {
    let digits: u64 = (0..params.ggsw_rows())
        .map(|row| 1 << (params.ggsw_row(row).1.log2_base - 1))
        .sum();
    let bound = u128::from(digits) * params.ring_degree as u128 * (1 << 31);
    params.modulus == ModulusKind::Torus32 && bound < u128::from(NTT_PRIME / 2)
}

/// The most that a coefficient of a sum of products with halves of a key's words is off before it is rounded, by the bound of the
/// module's header.
fn split_error(params: &StageParams) -> f64 {
    const UNIT: f64 = f64::EPSILON / 2.0;
    let digits: f64 = (0..params.ggsw_rows())
        .map(|row| f64::from(1 << (params.ggsw_row(row).1.log2_base - 1)))
        .sum();
    let levels = f64::from(params.ring_degree.trailing_zeros()) - 1.0;
    let roundings = (6.0 * levels + params.ggsw_rows() as f64) * UNIT.ln_1p()
        + (3.0 * levels + 1.0) * (UNIT * 5f64.sqrt()).ln_1p();
    digits * 2f64.powi(15) * params.ring_degree as f64 * roundings.exp_m1()
}

/// Whether [`Ntt`] makes the products of a set by halves: where [`NTT_PRIME`] is too small, and the rounded sums are far from the middle
/// between two integers.
fn takes_halves(params: &StageParams) -> bool {
    params.modulus == ModulusKind::Torus32 && !prime_is_exact(params) && split_error(params) < 0.25
}

multiversion! {
    /// A digit of every word as field elements.
    fn field_digits<M: Modulus, F: FieldOf>(words: &[M::Word], fields: F, out: &mut [u64]) {
        for (index, (digit, word)) in out.iter_mut().zip(words).enumerate() {
            *digit = goldilocks::from_signed(i64::from(M::digit(*word, fields.at(index))));
        }
    }
}

multiversion! {
    /// A digit of every word as signed words.
    fn signed_digits<M: Modulus, F: FieldOf>(words: &[M::Word], fields: F, out: &mut [u64]) {
        for (index, (digit, word)) in out.iter_mut().zip(words).enumerate() {
            *digit = i64::from(M::digit(*word, fields.at(index))).cast_unsigned();
        }
    }
}

multiversion! {
    /// Words of the 32-bit torus lifted to the field, to their centred representatives modulo the prime. Elements that are
    /// no words, which only a malformed key has, count modulo 2^32, as in the oracle.
    fn field_to_prime(values: &mut [u64]) {
        for value in values {
            let centered = Torus32::centered(Torus32::from_goldilocks(*value));
            *value = centered.cast_unsigned().wrapping_add(NTT_PRIME & (centered >> 63).cast_unsigned());
        }
    }
}

multiversion! {
    /// Words of the 32-bit torus lifted to the field, as their halves: `low`, and the high one in the place of each word. Elements that
    /// are no words count modulo 2^32, as in the oracle.
    fn split_words(values: &mut [u64], low: &mut [f64]) {
        for (value, low) in values.iter_mut().zip(low) {
            let centered = Torus32::centered(Torus32::from_goldilocks(*value));
            let high = (centered + (1 << 15)) >> 16;
            *low = (centered - (high << 16)) as f64;
            *value = (high as f64).to_bits();
        }
    }
}

multiversion! {
    /// words += the centred representatives of values modulo the prime.
    fn add_prime<M: Modulus>(words: &mut [M::Word], values: &[u64]) {
        for (word, value) in words.iter_mut().zip(values) {
            let wrapped = if *value > NTT_PRIME / 2 { NTT_PRIME } else { 0 };
            *word = M::add(*word, M::from_signed(value.wrapping_sub(wrapped).cast_signed()));
        }
    }
}

multiversion! {
    /// Centred field elements as f64, scaled.
    fn scaled_f64(out: &mut [f64], values: &[u64], scale: f64) {
        for (o, value) in out.iter_mut().zip(values) {
            *o = goldilocks::to_centered(*value) as f64 * scale;
        }
    }
}

multiversion! {
    /// words += values, converted from the field.
    fn add_field<M: Modulus>(words: &mut [M::Word], values: &[u64]) {
        for (word, value) in words.iter_mut().zip(values) {
            *word = M::add(*word, M::from_goldilocks(*value));
        }
    }
}

multiversion! {
    /// sum += other.
    fn add_numbers(sum: &mut [f64], other: &[f64]) {
        for (sum, other) in sum.iter_mut().zip(other) {
            *sum += other;
        }
    }
}

multiversion! {
    /// sum += other in the field.
    fn add_elements(sum: &mut [u64], other: &[u64]) {
        for (sum, other) in sum.iter_mut().zip(other) {
            *sum = goldilocks::add(*sum, *other);
        }
    }
}

/// Rows that are added up at once, so that their sum is loaded and stored once for all of them.
pub(crate) const ROWS_AT_ONCE: usize = 8;

multiversion! {
    /// sum += Σ factors[j]·rows[j]. Several rows are summed up before they meet `sum`, which rounds less often then.
    fn add_multiples_of_numbers(sum: &mut [f64], rows: &[f64], factors: &[i32]) {
        let length = sum.len();
        let groups = rows.chunks(ROWS_AT_ONCE * length);
        for (rows, factors) in groups.zip(factors.chunks(ROWS_AT_ONCE)) {
            if let Ok(factors) = <&[i32; ROWS_AT_ONCE]>::try_from(factors) {
                let parts: [_; ROWS_AT_ONCE] = std::array::from_fn(|row| &rows[row * length..][..length]);
                for (at, sum) in sum.iter_mut().enumerate() {
                    let mut terms = 0.0;
                    for (factor, part) in factors.iter().zip(parts) {
                        terms += f64::from(*factor) * part[at];
                    }
                    *sum += terms;
                }
            } else {
                for (factor, row) in factors.iter().zip(rows.chunks(length)) {
                    for (sum, entry) in sum.iter_mut().zip(row) {
                        *sum += f64::from(*factor) * entry;
                    }
                }
            }
        }
    }
}

/// sum + low + high·2^32 in the field, for |low| and |high| below 2^60.
#[inline(always)]
fn add_halves(sum: u64, low: i64, high: i64) -> u64 {
    // 2^64 = 2^32 - 1: what `high` holds above 32 bits. The rest of it, shifted, is below p.
    let carried = low + (high >> 32) * 0xffff_ffff;
    let sum = goldilocks::add(sum, high.cast_unsigned() << 32);
    goldilocks::add(sum, goldilocks::from_signed(carried))
}

multiversion! {
    /// sum += Σ factors[j]·rows[j] in the field: the halves of the entries apart, reduced once for several rows.
    fn add_multiples_of_elements(sum: &mut [u64], rows: &[u64], factors: &[i32]) {
        let length = sum.len();
        let groups = rows.chunks(ROWS_AT_ONCE * length);
        for (rows, factors) in groups.zip(factors.chunks(ROWS_AT_ONCE)) {
            if let Ok(factors) = <&[i32; ROWS_AT_ONCE]>::try_from(factors) {
                let parts: [_; ROWS_AT_ONCE] = std::array::from_fn(|row| &rows[row * length..][..length]);
                for (at, sum) in sum.iter_mut().enumerate() {
                    let (mut low, mut high) = (0, 0);
                    for (factor, part) in factors.iter().zip(parts) {
                        let entry = part[at];
                        low += i64::from(*factor) * i64::from(entry as u32);
                        high += i64::from(*factor) * (entry >> 32).cast_signed();
                    }
                    *sum = add_halves(*sum, low, high);
                }
            } else {
                for (factor, row) in factors.iter().zip(rows.chunks(length)) {
                    let factor = goldilocks::from_signed(i64::from(*factor));
                    for (sum, entry) in sum.iter_mut().zip(row) {
                        *sum = goldilocks::add(*sum, goldilocks::mul(*entry, factor));
                    }
                }
            }
        }
    }
}

/// A digit of every word as field elements, by its rule.
fn write_field_digits<M: Modulus>(
    simd: SimdLevel,
    words: &[M::Word],
    fields: DigitFields,
    out: &mut [u64],
) {
    match fields {
        DigitFields::Same(field) => field_digits::<M, _>(simd, words, field, out),
        DigitFields::Alternating(fields) => field_digits::<M, _>(simd, words, fields, out),
    }
}

/// A digit of every word, on its way into a transform.
struct Digits<'a, M: Words, F: FieldOf> {
    words: &'a [M::Word],
    fields: F,
}

impl<M: Words, F: FieldOf> Clone for Digits<'_, M, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Words, F: FieldOf> Copy for Digits<'_, M, F> {}

impl<M: Words, F: FieldOf> Coefficients for Digits<'_, M, F> {
    #[inline(always)]
    fn eight(self, at: usize) -> [f64; 8] {
        let words: &[M::Word; 8] = self.words[at..at + 8].try_into().expect("eight words");
        // A loop, since `map` may stay a call.
        let mut digits = [0.0; 8];
        for (index, (digit, word)) in digits.iter_mut().zip(words).enumerate() {
            *digit = f64::from(M::digit(*word, self.fields.at(index)));
        }
        digits
    }
}

/// words += scale·coefficients, rounded.
struct AddTo<'a, M: FloatWords> {
    words: &'a mut [M::Word],
    scale: f64,
}

impl<M: FloatWords> Receiver for AddTo<'_, M> {
    #[inline(always)]
    fn eight(&mut self, at: usize, coeffs: [f64; 8]) {
        let words: &mut [M::Word; 8] = (&mut self.words[at..at + 8])
            .try_into()
            .expect("eight words");
        for (word, value) in words.iter_mut().zip(coeffs) {
            *word = M::add_f64(*word, value * self.scale);
        }
    }
}

/// words += 2^shift·coefficients, rounded to integers below 2^51.
struct AddShifted<'a, M: Modulus> {
    words: &'a mut [M::Word],
    scale: f64,
    shift: u32,
}

impl<M: Modulus> Receiver for AddShifted<'_, M> {
    #[inline(always)]
    fn eight(&mut self, at: usize, coeffs: [f64; 8]) {
        let words: &mut [M::Word; 8] = (&mut self.words[at..at + 8])
            .try_into()
            .expect("eight words");
        for (word, value) in words.iter_mut().zip(coeffs) {
            let integer = nearest_i64(value * self.scale) << self.shift;
            *word = M::add(*word, M::from_signed(integer));
        }
    }
}

/// The polynomials of `sums` beside those of a row.
fn columns<'a, T>(
    sums: &'a mut [T],
    row: &'a [T],
    degree: usize,
) -> impl Iterator<Item = (&'a mut [T], &'a [T])> {
    sums.chunks_exact_mut(degree).zip(row.chunks_exact(degree))
}

/// acc += a·key by the schoolbook.
fn naive_mul_add(modulus: ModulusKind, acc: &mut [u64], a: &[u64], key: &[u64]) {
    match modulus {
        ModulusKind::Goldilocks => {
            for (sum, term) in acc.iter_mut().zip(naive::negacyclic_mul_goldilocks(a, key)) {
                *sum = goldilocks::add(*sum, term);
            }
        }
        // On the torus itself, modulo 2^32, so that the oracle does not lean on the lift to the field.
        ModulusKind::Torus32 => {
            let centered = |value: &u64| goldilocks::to_centered(*value);
            let key: Vec<u32> = key.iter().map(|c| centered(c) as u32).collect();
            let digits: Vec<i64> = a.iter().map(centered).collect();
            let product = naive::negacyclic_mul_wrapping_u32(&key, &digits);
            for (sum, term) in acc.iter_mut().zip(product) {
                *sum = u64::from((*sum as u32).wrapping_add(term));
            }
        }
    }
}

/// `sums` += digits ⊙ a row of keys of this format, by FFT; with `first`, `sums` is overwritten.
fn mul_add_floats<M: Words>(
    (plan, format, row): (&FftPlan, KeyFormat, &[u8]),
    (words, fields): (&[M::Word], DigitFields),
    scratch: &mut [f64],
    sums: &mut [f64],
    first: bool,
) {
    fn by(
        (plan, format, row): (&FftPlan, KeyFormat, &[u8]),
        digits: impl Coefficients,
        scratch: &mut [f64],
        sums: &mut [f64],
        first: bool,
    ) {
        if first {
            plan.forward_mul_add::<false>(digits, scratch, format, row, sums);
        } else {
            plan.forward_mul_add::<true>(digits, scratch, format, row, sums);
        }
    }
    let product = (plan, format, row);
    match fields {
        DigitFields::Same(fields) => {
            let digits = Digits::<M, _> { words, fields };
            by(product, digits, scratch, sums, first);
        }
        DigitFields::Alternating(fields) => {
            let digits = Digits::<M, _> { words, fields };
            by(product, digits, scratch, sums, first);
        }
    }
}

impl<M: Modulus> Arithmetic<M> for Ntt {
    type Words = M;
    type Scalar = u64;
    const KIND: ArithmeticKind = ArithmeticKind::Ntt;

    fn new(params: &StageParams, simd: SimdLevel) -> Result<Self, TfheError> {
        let n = params.ring_degree;
        Ok(Ntt {
            ntt: NttPlan::with_simd(n, simd)?,
            products: if prime_is_exact(params) {
                Products::Prime(Ntt50Plan::with_simd(n, NTT_PRIME, simd)?)
            } else if takes_halves(params) {
                Products::Halves(FftPlan::with_simd(n, simd)?)
            } else {
                Products::Field
            },
            columns: params.glwe_dimension + 1,
        })
    }

    fn sums_per_column(params: &StageParams) -> usize {
        1 + usize::from(takes_halves(params))
    }

    fn enter(word: M::Word) -> M::Word {
        word
    }

    fn leave(word: M::Word) -> M::Word {
        word
    }

    fn row_bytes(&self) -> usize {
        let n = self.ntt.degree();
        match &self.products {
            Products::Halves(_) => KeyFormat::Float.row_bytes(n, 2 * self.columns),
            Products::Field | Products::Prime(_) => 8 * self.columns * n,
        }
    }

    fn ntt(&self) -> &NttPlan {
        &self.ntt
    }

    fn computes_on_canonical(&self) -> bool {
        matches!(self.products, Products::Field)
    }

    fn load_coefficients(&self, row: &mut [u64], scratch: &mut [u64], out: &mut [u8]) {
        let n = self.ntt.degree();
        match &self.products {
            Products::Field => {
                for polynomial in row.chunks_exact_mut(n) {
                    self.ntt.scale_assign(polynomial, goldilocks::inv(n as u64));
                    self.ntt.forward(polynomial);
                }
            }
            Products::Prime(plan) => {
                for polynomial in row.chunks_exact_mut(n) {
                    field_to_prime(plan.simd(), polynomial);
                    plan.scale_assign(polynomial, prime::inv(n as u64, NTT_PRIME));
                    plan.forward(polynomial);
                    plan.prepare_key(polynomial);
                }
            }
            Products::Halves(plan) => {
                let scratch: &mut [f64] = bytemuck::cast_slice_mut(scratch);
                for (polynomial, spectra) in
                    row.chunks_exact_mut(n).zip(scratch.chunks_exact_mut(2 * n))
                {
                    let (low, high) = spectra.split_at_mut(n);
                    split_words(plan.simd(), polynomial, high);
                    plan.forward(high, low);
                    plan.forward(bytemuck::cast_slice(polynomial), high);
                }
                return plan.pack_key(KeyFormat::Float, scratch, out);
            }
        }
        out.copy_from_slice(bytemuck::cast_slice(row));
    }

    fn mul_add_digits(
        &self,
        words: &[M::Word],
        fields: DigitFields,
        row: &[u8],
        scratch: &mut [u64],
        sums: &mut [u64],
        first: bool,
    ) {
        match &self.products {
            Products::Field => {
                let row = bytemuck::cast_slice(row);
                write_field_digits::<M>(self.ntt.simd(), words, fields, scratch);
                if first {
                    self.ntt.forward_mul_add::<false>(scratch, row, sums);
                } else {
                    self.ntt.forward_mul_add::<true>(scratch, row, sums);
                }
            }
            Products::Prime(plan) => {
                let row = bytemuck::cast_slice(row);
                match fields {
                    DigitFields::Same(field) => {
                        signed_digits::<M, _>(plan.simd(), words, field, scratch);
                    }
                    DigitFields::Alternating(fields) => {
                        signed_digits::<M, _>(plan.simd(), words, fields, scratch);
                    }
                }
                if first {
                    plan.forward_mul_add::<false>(scratch, row, sums);
                } else {
                    plan.forward_mul_add::<true>(scratch, row, sums);
                }
            }
            Products::Halves(plan) => {
                let scratch = &mut bytemuck::cast_slice_mut(scratch)[..words.len()];
                let sums = bytemuck::cast_slice_mut(sums);
                let product = (plan, KeyFormat::Float, row);
                mul_add_floats::<M>(product, (words, fields), scratch, sums, first);
            }
        }
    }

    fn add_multiples(&self, sum: &mut [u64], rows: &[u64], factors: &[i32]) {
        add_multiples_of_elements(self.ntt.simd(), sum, rows, factors);
    }

    fn add(&self, sum: &mut [u64], other: &[u64]) {
        match &self.products {
            Products::Field => add_elements(self.ntt.simd(), sum, other),
            Products::Prime(plan) => plan.add_sum(sum, other),
            Products::Halves(plan) => {
                let sum = bytemuck::cast_slice_mut(sum);
                add_numbers(plan.simd(), sum, bytemuck::cast_slice(other));
            }
        }
    }

    fn inverse_add(&self, spectrum: &mut [u64], words: &mut [M::Word]) {
        match &self.products {
            Products::Field => {
                self.ntt.inverse(spectrum);
                add_field::<M>(self.ntt.simd(), words, spectrum);
            }
            Products::Prime(plan) => {
                plan.inverse_sum(spectrum);
                add_prime::<M>(plan.simd(), words, spectrum);
            }
            Products::Halves(plan) => {
                let n = words.len();
                let spectra: &mut [f64] = bytemuck::cast_slice_mut(spectrum);
                for (spectrum, shift) in spectra.chunks_exact_mut(n).zip([0, 16]) {
                    let words = &mut *words;
                    // The inverse FFT multiplies by N/2.
                    let scale = 2.0 / n as f64;
                    let receiver = AddShifted::<M> {
                        words,
                        scale,
                        shift,
                    };
                    plan.inverse_into(spectrum, receiver);
                }
            }
        }
    }
}

impl Fft {
    /// The powers of X, made where they are first asked for; none for small degrees.
    fn rotations(&self) -> Option<&Rotations> {
        let rotations = self.rotations.get_or_init(|| self.plan.rotations());
        rotations.as_ref()
    }
}

impl<M: Modulus> Arithmetic<M> for Fft {
    type Words = M::Float;
    type Scalar = f64;
    const KIND: ArithmeticKind = ArithmeticKind::Fft;

    fn new(params: &StageParams, simd: SimdLevel) -> Result<Self, TfheError> {
        let n = params.ring_degree;
        // The inverse FFT multiplies by N/2.
        let normalization = 2.0 / n as f64;
        let (format, key_scale, sum_scale) = match M::KIND {
            ModulusKind::Goldilocks => (KeyFormat::Float, normalization * M::F64_UNIT, 1.0),
            ModulusKind::Torus32 => {
                let unit = fixed_point_unit(n);
                (KeyFormat::Fixed, M::F64_UNIT / unit, normalization * unit)
            }
        };
        Ok(Fft {
            plan: FftPlan::with_simd(n, simd)?,
            ntt: NttPlan::with_simd(n, simd)?,
            columns: params.glwe_dimension + 1,
            format,
            rotations: OnceLock::new(),
            key_scale,
            sum_scale,
        })
    }

    fn enter(word: M::Word) -> <M::Float as Words>::Word {
        M::to_float(word)
    }

    fn leave(word: <M::Float as Words>::Word) -> M::Word {
        M::from_float(word)
    }

    fn row_bytes(&self) -> usize {
        self.format.row_bytes(self.plan.degree(), self.columns)
    }

    fn ntt(&self) -> &NttPlan {
        &self.ntt
    }

    fn load_coefficients(&self, row: &mut [u64], scratch: &mut [f64], out: &mut [u8]) {
        let n = self.plan.degree();
        scaled_f64(self.plan.simd(), scratch, row, self.key_scale);
        for (numbers, spectrum) in scratch.chunks_exact(n).zip(row.chunks_exact_mut(n)) {
            self.plan
                .forward(numbers, bytemuck::cast_slice_mut(spectrum));
        }
        self.plan
            .pack_key(self.format, bytemuck::cast_slice(row), out);
    }

    fn mul_add_digits(
        &self,
        words: &[<M::Float as Words>::Word],
        fields: DigitFields,
        row: &[u8],
        scratch: &mut [f64],
        sums: &mut [f64],
        first: bool,
    ) {
        let product = (&self.plan, self.format, row);
        mul_add_floats::<M::Float>(product, (words, fields), scratch, sums, first);
    }

    fn gather_pair(&self, rows: &mut [u8]) {
        if self.rotations().is_some() {
            self.plan.interleave_keys(self.format, self.columns, rows);
        }
    }

    fn pair_product(
        &self,
        params: &StageParams,
        acc: &[<M::Float as Words>::Word],
        keys: &[u8],
        exponents: [usize; 2],
        digits: &mut [f64],
        sums: &mut [f64],
    ) -> bool {
        let Some(rotations) = self.rotations() else {
            return false;
        };
        let n = params.ring_degree;
        // A quarter of the keys comes while the digits are transformed: more would hold up what the transforms read (cpu-designs.md).
        let share = keys.len() / 4 / params.ggsw_rows();
        for (row, spectrum) in digits.chunks_exact_mut(n).enumerate() {
            let (component, gadget, level) = params.ggsw_row(row);
            let digits = Digits::<M::Float, _> {
                words: &acc[component * n..][..n],
                fields: DigitField::new(M::KIND, gadget, level),
            };
            let wanted = &keys[row * share..][..share];
            self.plan.forward_asking(digits, spectrum, wanted);
        }
        self.plan
            .mul_rotated(rotations, digits, self.format, keys, exponents, sums);
        true
    }

    fn add_multiples(&self, sum: &mut [u64], rows: &[u64], factors: &[i32]) {
        let sum = bytemuck::cast_slice_mut(sum);
        let rows = bytemuck::cast_slice(rows);
        add_multiples_of_numbers(self.plan.simd(), sum, rows, factors);
    }

    fn add(&self, sum: &mut [f64], other: &[f64]) {
        add_numbers(self.plan.simd(), sum, other);
    }

    fn inverse_add(&self, spectrum: &mut [f64], words: &mut [<M::Float as Words>::Word]) {
        let scale = self.sum_scale;
        self.plan
            .inverse_into(spectrum, AddTo::<M::Float> { words, scale });
    }
}

impl<M: Modulus> Arithmetic<M> for Naive {
    type Words = M;
    type Scalar = u64;
    const KIND: ArithmeticKind = ArithmeticKind::Ntt;

    fn new(params: &StageParams, _: SimdLevel) -> Result<Self, TfheError> {
        Ok(Naive {
            ntt: NttPlan::with_simd(params.ring_degree, SimdLevel::Portable)?,
            columns: params.glwe_dimension + 1,
        })
    }

    fn enter(word: M::Word) -> M::Word {
        word
    }

    fn leave(word: M::Word) -> M::Word {
        word
    }

    fn row_bytes(&self) -> usize {
        8 * self.columns * self.ntt.degree()
    }

    fn ntt(&self) -> &NttPlan {
        &self.ntt
    }

    fn load_coefficients(&self, row: &mut [u64], _: &mut [u64], out: &mut [u8]) {
        out.copy_from_slice(bytemuck::cast_slice(row));
    }

    fn mul_add_digits(
        &self,
        words: &[M::Word],
        fields: DigitFields,
        row: &[u8],
        scratch: &mut [u64],
        sums: &mut [u64],
        first: bool,
    ) {
        write_field_digits::<M>(SimdLevel::Portable, words, fields, scratch);
        if first {
            sums.fill(0);
        }
        for (sum, key) in columns(sums, bytemuck::cast_slice(row), words.len()) {
            naive_mul_add(M::KIND, sum, scratch, key);
        }
    }

    fn add_multiples(&self, sum: &mut [u64], rows: &[u64], factors: &[i32]) {
        add_multiples_of_elements(SimdLevel::Portable, sum, rows, factors);
    }

    fn add(&self, sum: &mut [u64], other: &[u64]) {
        for (sum, other) in sum.iter_mut().zip(other) {
            *sum = match M::KIND {
                ModulusKind::Goldilocks => goldilocks::add(*sum, *other),
                ModulusKind::Torus32 => u64::from((*sum as u32).wrapping_add(*other as u32)),
            };
        }
    }

    fn inverse_add(&self, spectrum: &mut [u64], words: &mut [M::Word]) {
        for (word, value) in words.iter_mut().zip(spectrum.iter()) {
            // Both moduli: the accumulator's value, as a word of q.
            let value = match M::KIND {
                ModulusKind::Goldilocks => *value,
                ModulusKind::Torus32 => {
                    goldilocks::from_signed(i64::from((*value as u32).cast_signed()))
                }
            };
            *word = M::add(*word, M::from_goldilocks(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ggsw::{GgswList, Workspace};
    use crate::modulus::Goldilocks;
    use crate::params::{PAPER, ParamSet};
    use crate::random::Csprng;

    #[test]
    fn the_prime_serves_the_sets_whose_products_it_holds() {
        let served: Vec<_> = ParamSet::ALL
            .iter()
            .filter(|params| prime_is_exact(params))
            .map(|params| params.name)
            .collect();
        assert_eq!(served, ["gate", "tiny32"]);
        let halved: Vec<_> = ParamSet::ALL
            .iter()
            .filter(|params| takes_halves(params))
            .map(|params| params.name)
            .collect();
        assert_eq!(halved, ["paper"]);
        assert!(split_error(&PAPER) < 2f64.powi(-8));
    }

    /// What an external product with one GGSW sample of these rows adds to zeros.
    fn product<A: Arithmetic<Torus32, Words = Torus32>>(
        params: &StageParams,
        simd: SimdLevel,
        rows: &[u32],
        sample: &[u32],
    ) -> Vec<u32> {
        let mut list = GgswList::<Torus32, A>::new(params, 1, simd).unwrap();
        list.load_rows(0, rows);
        let n = params.ring_degree;
        let mut memory = Workspace::<Torus32, A>::memory(params).unwrap();
        let mut work = Workspace::<Torus32, A>::new(params, &mut memory);
        let component =
            |index: usize, out: &mut [u32]| out.copy_from_slice(&sample[index * n..][..n]);
        list.products(0, 0..params.ggsw_rows(), component, &mut work);
        let mut acc = vec![0; params.glwe_words()];
        list.add_sums(&mut work, &mut acc);
        acc
    }

    #[test]
    fn products_by_halves_are_those_of_the_oracle() {
        let params = StageParams {
            ring_degree: 2048,
            ..PAPER.stage
        };
        assert!(takes_halves(&params));
        let mut rng = Csprng::from_seed([2; 32]);
        let mut rows = vec![0; params.ggsw_rows() * params.glwe_words()];
        let mut sample = vec![0; params.glwe_words()];
        let edges = [0x7fff_8000, 0x8000_0000, 0x7fff_7fff, 0xffff_8000, 0, 1];
        for extreme in [false, true] {
            rng.fill_uniform::<Torus32>(&mut rows);
            rng.fill_uniform::<Torus32>(&mut sample);
            if extreme {
                for word in &mut rows {
                    *word = edges[*word as usize % edges.len()];
                }
            }
            let expected = product::<Naive>(&params, SimdLevel::Portable, &rows, &sample);
            for simd in SimdLevel::available() {
                assert!(product::<Ntt>(&params, simd, &rows, &sample) == expected);
            }
        }
    }

    /// The largest sums of products: every digit -B/2, every half ±2^15, at the degree and gadget of `paper`. Of polynomials whose
    /// coefficients are all the same, coefficient t of a product is d·w·(2t + 2 - N).
    #[test]
    fn the_largest_products_by_halves_are_exact() {
        let params = &PAPER.stage;
        // All digits are -32.
        let word = (1..=5u32).fold(0u32, |word, level| {
            word.wrapping_sub(32 << (32 - 6 * level))
        });
        let sample = vec![word; params.glwe_words()];
        for factor in [0x7fff_8000u32, 0x8000_0000, 0x7fff_7fff] {
            let rows = vec![factor; params.ggsw_rows() * params.glwe_words()];
            let found = product::<Ntt>(params, SimdLevel::best(), &rows, &sample);
            for (index, found) in found.iter().enumerate() {
                let t = (index % params.ring_degree) as i64;
                let ones = 2 * t + 2 - params.ring_degree as i64;
                let expected = -32 * 10 * ones * i64::from(factor.cast_signed());
                assert_eq!(*found, expected as u32, "coefficient {index}");
            }
        }
    }

    /// Eleven rows, so that some are left beside those taken at once, of entries and factors at their limits among others.
    #[test]
    fn multiples_add_up_in_the_field() {
        let mut rng = Csprng::from_seed([1; 32]);
        let (count, length) = (11, 37);
        let mut rows = vec![0; count * length];
        rng.fill_uniform::<Goldilocks>(&mut rows);
        let edges = [0, 1, goldilocks::P - 1, u64::from(u32::MAX), 1 << 32];
        for (entry, edge) in rows.iter_mut().step_by(3).zip(edges.into_iter().cycle()) {
            *entry = edge;
        }
        for limit in [false, true] {
            let factors: Vec<i32> = (0..count)
                .map(|_| match (limit, rng.next_u64()) {
                    (false, bits) => (bits % (1 << 25)) as i32 - (1 << 24) + 1,
                    (true, _) => 1 - (1 << 24),
                })
                .collect();
            let mut start = vec![0; length];
            rng.fill_uniform::<Goldilocks>(&mut start);
            let expected: Vec<u64> = (0..length)
                .map(|at| {
                    let terms = factors.iter().zip(rows[at..].iter().step_by(length));
                    terms.fold(start[at], |sum, (factor, entry)| {
                        let factor = goldilocks::from_signed(i64::from(*factor));
                        goldilocks::add(sum, goldilocks::mul(factor, *entry))
                    })
                })
                .collect();
            for simd in SimdLevel::available() {
                let mut sum = start.clone();
                add_multiples_of_elements(simd, &mut sum, &rows, &factors);
                assert_eq!(sum, expected, "{simd}");
            }
        }
    }

    #[test]
    fn multiples_of_numbers_add_up() {
        let (count, length) = (19, 21);
        let rows: Vec<f64> = (0..count * length).map(|i| (i * i % 97) as f64).collect();
        let factors: Vec<i32> = (0..count)
            .map(|i| (i * i * 31 % 513) as i32 - 256)
            .collect();
        let expected: Vec<f64> = (0..length)
            .map(|at| {
                let terms = factors.iter().zip(rows[at..].iter().step_by(length));
                terms.fold(1.0, |sum, (factor, entry)| sum + f64::from(*factor) * entry)
            })
            .collect();
        for simd in SimdLevel::available() {
            let mut sum = vec![1.0; length];
            add_multiples_of_numbers(simd, &mut sum, &rows, &factors);
            assert_eq!(sum, expected, "{simd}");
        }
    }
}
