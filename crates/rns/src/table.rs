//! Tables on slots: from a phase to the values of any functions of the message in it.
//!
//! A slot holds a phase x = I + m/2^b + e: a message m of b bits, an integer I of which only |x| ≤ K is known (what a mod-raise
//! leaves), and noise e. The result is f(m)/2^c for any tables f of c bits. Steps, each for all slots at once:
//!
//! 1. [`exponential`]: y = exp(2πi·x/2^r) by a polynomial of x/K in Chebyshev's basis, squared r times: z = exp(2πi·x), on which I
//!    has no effect.
//! 2. The message is one digit of up to 4 bits, or two: a high digit h and a low digit l of w bits. `z^(2^(b-w))` is a root of unity that
//!    depends on l alone. The function exp(-2πi·l/2^b), interpolated there, times z leaves exp(2πi·h/2^(b-w)): both digits
//!    come out of one pass, where digits are otherwise taken off by one bootstrap each (Dumezy et al., eprint 2025/1301). So do the powers that the
//!    high digit's interpolation needs: exp(-2πi·k·l/2^b) times z^k, for all k at once, which takes two levels less at 4 bits.
//! 3. [`selectors`]: the indicator of each value of a digit, by Lagrange's interpolation at roots of unity
//!    (Chung, Kim, Kim and Lee, 2/2024). The high digit's are not made: they are sums of its powers with constant factors, so that
//!    their squares, each times a row of the table, are products of powers times the rows' Fourier transform (`spectrum`), which takes a level less.
//! 4. [`square`]: squares of selectors have squared noise where they are 0, and twice the noise where they are 1. The sum of a digit's squares
//!    has the latter too: what the table makes of squares is multiplied by 2 less that sum, or by 3 less the sums of two digits. So a digit of n values is
//!    cleaned by n squarings, where 3x² - 2x³ takes 2n - 2 products ([`clean_all`]; BLEACH, 2022).
//! 5. The table: sums of squares with the table's values as weights, and for two digits one product for each value of
//!    the high digit.
//!
//! From the squares on, both halves of a column share what they can. Those of the only or the low digit are one value r² + i·s², of selectors r and s of the
//! two halves. So are the sums X and Y that each half makes of them: Re X + i·Im Y is the result, half of (X + Y) + conj(X - Y).
//!
//! # Why not one polynomial
//!
//! Alexandru, Kim and Polyakov (eprint 2024/1623) take one trigonometric Hermite interpolation whose derivatives vanish at the
//! messages, which squares noise at once; an application for a patent on that (US 2026/0095301 A1) is pending. Steps 3 and 4
//! constrain values alone and clean afterwards, by two methods that were published before it. The polynomial of step
//! 3 for all 256 messages of 8 bits would need fewer products (about 41 key switches for each half of a batch against 100) and six levels less, but
//! multiplies noise by about 130 in each table ([`crate::interpolation`]'s tests compute it): two tables in a
//! row use up what noise may grow. Digits with one cleaning give the noise of the last product, whatever came in.
//! This is an engineering judgement and no legal advice.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::complex::Complex;
use crate::interpolation::{self, Harmonics, SelectorErrors};
use crate::slots::Slots;

/// Bits of the widest digit.
pub const MAX_DIGIT_BITS: u32 = 4;

/// What is wrong with a table or a shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// No digits of this size.
    #[error("digits have 1 to 4 bits and messages one or two digits, not {high} and {low} bits")]
    Digits {
        /// Bits of the high digit.
        high: u32,
        /// Bits of the low digit.
        low: u32,
    },
    /// A table with a wrong number of values.
    #[error("a table of {bits} bits has {expected} values, not {found}")]
    Length {
        /// Bits of the input.
        bits: u32,
        /// 2 to that power.
        expected: usize,
        /// Values found.
        found: usize,
    },
    /// A value that has too many bits.
    #[error("value {value} at {index} has more than {bits} bits")]
    Value {
        /// The value.
        value: u32,
        /// The message that it stands for.
        index: usize,
        /// Bits of the output.
        bits: u32,
    },
    /// Messages of bits that no two parts make.
    #[error("a message of {0} bits; wide tables take 9 to 16")]
    Bits(u32),
    /// Outputs of more bits than any table has.
    #[error("an output of {0} bits; tables give 1 to 16")]
    Output(u32),
    /// An exponential that no parameters describe.
    #[error(
        "the exponential needs a degree of 2 to 255, at most 8 doublings, and a positive bound"
    )]
    Exponential,
}

/// How a message is taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digits {
    high: u32,
    low: u32,
}

impl Digits {
    /// A high digit of this many bits, 1 to [`MAX_DIGIT_BITS`], and a low one, 0 for none.
    ///
    /// # Errors
    /// [`TableError::Digits`] for other sizes.
    pub fn new(high: u32, low: u32) -> Result<Digits, TableError> {
        if (1..=MAX_DIGIT_BITS).contains(&high) && low <= MAX_DIGIT_BITS {
            Ok(Digits { high, low })
        } else {
            Err(TableError::Digits { high, low })
        }
    }

    /// Bits of a message.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.high + self.low
    }

    /// Bits of the high digit.
    #[must_use]
    pub fn high(self) -> u32 {
        self.high
    }

    /// Bits of the low digit, 0 where there is none.
    #[must_use]
    pub fn low(self) -> u32 {
        self.low
    }
}

/// A function of a message, by its values. Signed numbers are in two's complement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    output_bits: u32,
    values: Vec<u32>,
}

impl Table {
    /// The table that takes m to `values[m]`, for messages of `input_bits`.
    ///
    /// # Errors
    /// [`TableError::Length`], [`TableError::Value`] or [`TableError::Output`].
    pub fn new(input_bits: u32, output_bits: u32, values: Vec<u32>) -> Result<Table, TableError> {
        if !(1..=16).contains(&output_bits) {
            return Err(TableError::Output(output_bits));
        }
        let expected = 1usize.checked_shl(input_bits).unwrap_or(0);
        if values.len() != expected {
            return Err(TableError::Length {
                bits: input_bits,
                expected,
                found: values.len(),
            });
        }
        match values.iter().position(|value| value >> output_bits != 0) {
            None => Ok(Table {
                output_bits,
                values,
            }),
            Some(index) => Err(TableError::Value {
                value: values[index],
                index,
                bits: output_bits,
            }),
        }
    }

    /// The same values with a bit of padding above them, as samples have it: m at m/2^(b+1) where it was at m/2^b.
    #[must_use]
    pub fn padded(self) -> Table {
        Table {
            output_bits: self.output_bits + 1,
            ..self
        }
    }

    /// The table that takes m to the value of `before(m)`, for as many messages as this one has.
    ///
    /// # Panics
    /// If `before` gives a message that the table does not have.
    #[must_use]
    pub fn after(&self, before: impl Fn(usize) -> usize) -> Table {
        let messages = 0..self.values.len();
        Table {
            output_bits: self.output_bits,
            values: messages.map(|m| self.values[before(m)]).collect(),
        }
    }

    /// Bits of the values, with their padding.
    #[must_use]
    pub fn output_bits(&self) -> u32 {
        self.output_bits
    }

    /// The values, by message.
    #[must_use]
    pub fn values(&self) -> &[u32] {
        &self.values
    }

    /// The values as fractions of 2^output_bits.
    fn fractions(&self) -> Vec<Complex> {
        let unit = (-f64::from(self.output_bits)).exp2();
        let scaled = |&value: &u32| Complex::real(f64::from(value) * unit);
        self.values.iter().map(scaled).collect()
    }
}

/// The polynomial that makes the exponential.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exponential {
    bound: f64,
    degree: usize,
    doublings: u32,
}

impl Exponential {
    /// For phases of absolute value `bound` at most, a polynomial of this degree and as many squarings as `doublings`.
    ///
    /// # Errors
    /// [`TableError::Exponential`] for a degree outside 2 to 255, more than 8 doublings, or a bound that is no positive number.
    pub fn new(bound: f64, degree: usize, doublings: u32) -> Result<Exponential, TableError> {
        let sound = bound.is_finite() && bound > 0.0;
        if sound && (2..=255).contains(&degree) && doublings <= 8 {
            Ok(Exponential {
                bound,
                degree,
                doublings,
            })
        } else {
            Err(TableError::Exponential)
        }
    }

    /// The largest phase K.
    #[must_use]
    pub fn bound(&self) -> f64 {
        self.bound
    }

    /// The argument at the end of the interval: 2π·K/2^r.
    fn argument(&self) -> f64 {
        std::f64::consts::TAU * self.bound / f64::from(self.doublings).exp2()
    }

    /// By how much z = exp(2πi·x) is off at most, for all of |x| ≤ K: the polynomial's error, doubled with each squaring.
    #[must_use]
    pub fn error(&self) -> f64 {
        let once = interpolation::exponential_error(self.argument(), self.degree);
        (1.0 + once).powf(f64::from(self.doublings).exp2()) - 1.0
    }

    /// Levels: those of the polynomial, and one for each squaring.
    #[must_use]
    pub fn levels(&self) -> usize {
        log2_ceil(self.degree + 1) + self.doublings as usize
    }
}

/// The steps between phase and table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// How a message is taken apart.
    pub digits: Digits,
    /// How the exponential is made.
    pub exponential: Exponential,
    /// How often selectors are cleaned.
    pub cleanings: u32,
}

impl Shape {
    /// Levels from the phase to the table's value.
    #[must_use]
    pub fn levels(&self) -> usize {
        // Powers up to half the size of a digit, then the selectors' combination.
        let selectors = |bits: u32| bits as usize - 1 + 1;
        let (high, low) = (self.digits.high, self.digits.low);
        let cleaning = 2 * self.cleanings as usize;
        let digits = if low == 0 {
            selectors(high)
        } else {
            // Squarings, the low digit's powers, what follows from them: the high digit's powers are all that is squared.
            let after = match self.has_spectrum() {
                true => 2,
                false => correction_levels(high),
            };
            high as usize + low as usize - 1 + after
        };
        let table = usize::from(self.cleanings > 0 || low > 0);
        self.exponential.levels() + digits + cleaning + table
    }

    /// Whether the high one of two digits has powers where there would be selectors. Those that are cleaned more than once are selectors.
    pub(crate) fn has_spectrum(&self) -> bool {
        self.digits.low > 0 && self.cleanings == 1
    }

    /// By how much a table's value in [0, 1) is off at most, where the phase is off by `deviation` turns (noise,
    /// and the exponential's error) and arithmetic is exact.
    ///
    /// The correction of the high one of two digits' phase is off by the selectors of the low digit
    /// before cleaning, each times a distance of at most 2^(1-high) turns.
    #[must_use]
    pub fn error(&self, deviation: f64) -> f64 {
        let deviation = deviation + self.exponential.error() / std::f64::consts::TAU;
        let size = |bits: u32| 1usize << bits;
        let errors = |bits: u32, turns: f64, cleanings: u32| {
            interpolation::selector_errors(size(bits), turns * size(bits) as f64, cleanings)
        };
        let before = self.cleanings.saturating_sub(1);
        let Digits { high, low } = self.digits;
        let mut digits = Vec::new();
        let mut high_turns = deviation;
        if low > 0 {
            let low_turns = deviation * size(high) as f64;
            // The values exp(-2πi·l/2^b) lie on an arc of 2^-high turns: no further from its middle than half its length.
            let radius = 0.5 / size(high) as f64;
            high_turns += errors(low, low_turns, 0).sum * radius;
            digits.push(errors(low, low_turns, before));
        }
        digits.push(errors(high, high_turns, before));
        if self.cleanings == 0 {
            let sums = digits.iter().map(|errors| errors.sum);
            return sums.fold(1.0, |all, sum| all * (1.0 + sum)) - 1.0;
        }
        let digits: Vec<_> = digits.iter().map(SelectorErrors::squared).collect();
        interpolation::squares_error(&digits)
    }
}

/// The powers of an n-th root of unity from the first to that of n/2, and their conjugates.
pub struct RootPowers<V> {
    powers: Vec<V>,
    conjugates: Vec<V>,
    /// Their absolute values.
    sizes: Vec<f64>,
}

impl<V> RootPowers<V> {
    /// What a function is a sum of, beside its constant: exponents with powers and conjugates, each with its factor.
    fn terms<'a>(
        &'a self,
        function: &'a Harmonics,
    ) -> impl Iterator<Item = (usize, (&'a V, Complex))> {
        let pairs = self.powers.iter().zip(&self.conjugates);
        let sines = function.sines.iter().copied().chain([Complex::ZERO]);
        let factors = function.cosines.iter().zip(sines);
        // 2·cos kθ = z^k + z^-k, 2·sin kθ = i·(z^-k - z^k).
        (1..).zip(&self.sizes).zip(pairs.zip(factors)).flat_map(
            |((k, size), ((power, conjugate), (&cosine, sine)))| {
                let [cosine, sine] = [cosine, sine].map(|factor| factor * size.recip());
                let turned = Complex::I * sine;
                [
                    (k, (power, cosine - turned)),
                    (k, (conjugate, cosine + turned)),
                ]
            },
        )
    }
}

/// Chebyshev's polynomials of a value, made when they are wanted, each also at lower levels. A copy of one would cost as much memory as it has.
struct ChebyshevBasis<V> {
    /// By k, at the levels where products leave them.
    values: BTreeMap<usize, Rc<V>>,
    /// By k and level.
    lowered: BTreeMap<(usize, usize), Rc<V>>,
}

impl<V: Clone> ChebyshevBasis<V> {
    fn new(t: &V) -> ChebyshevBasis<V> {
        ChebyshevBasis {
            values: BTreeMap::from([(1, Rc::new(t.clone()))]),
            lowered: BTreeMap::new(),
        }
    }

    /// `T_k`, at depth log2 k rounded up: `T_2k = 2·T_k² - 1`, `T_(2k+1) = 2·T_k·T_(k+1) - T_1`.
    fn get<S: Slots<Value = V>>(&mut self, slots: &mut S, k: usize) -> Result<Rc<V>, S::Error> {
        if let Some(known) = self.values.get(&k) {
            return Ok(Rc::clone(known));
        }
        let value = if k.is_multiple_of(2) {
            let half = self.get(slots, k / 2)?;
            let square = slots.mul(&half, &half)?;
            slots.affine(&square, 2, Complex::real(-1.0))?
        } else {
            // T_1 is a product too: so it meets the other before the rescaling that both need.
            let high = self.get(slots, k / 2 + 1)?;
            let level = slots.level(&high);
            let (low, first) = (self.at(slots, k / 2, level)?, self.at(slots, 1, level)?);
            let twice = slots.affine(&low, 2, Complex::ZERO)?;
            let minus = slots.affine(&first, 0, Complex::real(-1.0))?;
            slots.products(&[(&twice, &high), (&first, &minus)])?
        };
        let value = Rc::new(value);
        self.values.insert(k, Rc::clone(&value));
        Ok(value)
    }

    /// `T_k` at a level, or at its own if that is lower.
    fn at<S: Slots<Value = V>>(
        &mut self,
        slots: &mut S,
        k: usize,
        level: usize,
    ) -> Result<Rc<V>, S::Error> {
        let value = self.get(slots, k)?;
        if slots.level(&value) <= level {
            return Ok(value);
        }
        if let Some(known) = self.lowered.get(&(k, level)) {
            return Ok(Rc::clone(known));
        }
        let value = Rc::new(slots.lower(&value, level)?);
        self.lowered.insert((k, level), Rc::clone(&value));
        Ok(value)
    }
}

/// `Σ c_k·T_k(t)` for coefficients of degree 1 at least, in log2(degree + 1) levels, rounded up: baby steps and giant steps,
/// with fewer baby steps on the path that decides the depth (Bossuat, Mouchet, Troncoso-Pastoriza and Hubaux, 2021, section 3.2).
/// Products that are added up share a key switch.
///
/// # Errors
/// Those of the arithmetic.
///
/// # Panics
/// If there are fewer than two coefficients.
pub fn chebyshev_series<S: Slots>(
    slots: &mut S,
    t: &S::Value,
    coefficients: &[Complex],
) -> Result<S::Value, S::Error> {
    assert!(coefficients.len() >= 2, "a series of degree 1 at least");
    let mut basis = ChebyshevBasis::new(t);
    let depth = log2_ceil(coefficients.len());
    let babies = 1 << depth.div_ceil(2);
    series(slots, &mut basis, coefficients, [depth, babies], usize::MAX)
}

/// At `level` at most, where no product is needed.
fn series<S: Slots>(
    slots: &mut S,
    basis: &mut ChebyshevBasis<S::Value>,
    coefficients: &[Complex],
    [depth, babies]: [usize; 2],
    level: usize,
) -> Result<S::Value, S::Error> {
    let mut rest = coefficients.to_vec();
    let mut factors: Vec<(usize, S::Value)> = Vec::new();
    // The level of all products.
    let mut common = usize::MAX;
    let mut terms: Vec<(Rc<S::Value>, Complex)> = Vec::new();
    while rest.len() > babies || (rest.len() > 1 && log2_ceil(rest.len() - 1) >= depth) {
        // c_(g+j)·T_(g+j) = c_(g+j)·(2·T_g·T_j - T_(g-j)).
        let g = 1 << (rest.len() - 1).ilog2();
        let giant = basis.get(slots, g)?;
        let high = rest.split_off(g);
        let mut quotient = vec![high[0]];
        for (j, &coefficient) in high.iter().enumerate().skip(1) {
            quotient.push(coefficient * 2.0);
            rest[g - j] = rest[g - j] - coefficient;
        }
        if quotient.len() == 1 {
            terms.push((giant, quotient[0]));
        } else {
            let factor = series(slots, basis, &quotient, [depth - 1, babies], common)?;
            common = common.min(slots.level(&factor)).min(slots.level(&giant));
            factors.push((g, factor));
        }
    }
    for (k, &coefficient) in rest.iter().enumerate().skip(1) {
        terms.push((basis.get(slots, k)?, coefficient));
    }
    let terms = terms.iter().map(|(value, factor)| (&**value, *factor));
    if factors.is_empty() {
        return weighted_sum(slots, terms, rest[0], level);
    }
    let giants = factors.iter().map(|(g, _)| basis.at(slots, *g, common));
    let giants = giants.collect::<Result<Vec<_>, _>>()?;
    let pairs = factors.iter().zip(&giants);
    let pairs: Vec<_> = pairs
        .map(|((_, factor), giant)| (factor, &**giant))
        .collect();
    let product = slots.products(&pairs)?;
    if terms.len() == 0 {
        return slots.affine(&product, 1, rest[0]);
    }
    let sum = weighted_sum(slots, terms, rest[0], slots.level(&product))?;
    slots.add(&product, &sum)
}

/// `exp(2πi·x)` of t = x/K.
///
/// # Errors
/// Those of the arithmetic.
pub fn exponential<S: Slots>(
    slots: &mut S,
    t: &S::Value,
    shape: &Exponential,
) -> Result<S::Value, S::Error> {
    let coefficients = interpolation::exponential(shape.argument(), shape.degree);
    let mut z = chebyshev_series(slots, t, &coefficients)?;
    for _ in 0..shape.doublings {
        z = slots.mul(&z, &z)?;
    }
    Ok(z)
}

/// The powers up to n/2 of a value that is an n-th root of unity, n = 2^bits, up to noise.
///
/// # Errors
/// Those of the arithmetic.
pub fn root_powers<S: Slots>(
    slots: &mut S,
    z: &S::Value,
    bits: u32,
) -> Result<RootPowers<S::Value>, S::Error> {
    let half = 1usize << (bits - 1);
    let mut powers = vec![z.clone()];
    for k in 2..=half {
        let next = slots.mul(&powers[k / 2 - 1], &powers[k.div_ceil(2) - 1])?;
        powers.push(next);
    }
    let sizes = vec![1.0; half];
    with_conjugates(slots, powers, sizes)
}

fn with_conjugates<S: Slots>(
    slots: &mut S,
    powers: Vec<S::Value>,
    sizes: Vec<f64>,
) -> Result<RootPowers<S::Value>, S::Error> {
    let conjugates = powers.iter().map(|power| slots.conjugate(power));
    Ok(RootPowers {
        conjugates: conjugates.collect::<Result<_, _>>()?,
        powers,
        sizes,
    })
}

/// Functions on roots of unity by their values there; one level.
///
/// # Errors
/// Those of the arithmetic.
fn interpolate_all<S: Slots>(
    slots: &mut S,
    powers: &RootPowers<S::Value>,
    functions: &[Harmonics],
) -> Result<Vec<S::Value>, S::Error> {
    let pairs = powers.powers.iter().zip(&powers.conjugates);
    let values: Vec<_> = pairs.flat_map(|(z, conjugate)| [z, conjugate]).collect();
    let rows = functions.iter().map(|function| {
        let factors = powers.terms(function).map(|(_, (_, factor))| factor);
        (factors.collect(), function.constant)
    });
    weighted_sums(slots, &values, &rows.collect::<Vec<_>>(), usize::MAX)
}

/// A function on roots of unity by its values there; one level.
///
/// # Errors
/// Those of the arithmetic.
pub fn interpolate<S: Slots>(
    slots: &mut S,
    powers: &RootPowers<S::Value>,
    function: &Harmonics,
) -> Result<S::Value, S::Error> {
    let terms = powers.terms(function).map(|(_, term)| term);
    weighted_sum(slots, terms, function.constant, usize::MAX)
}

/// `Σ factor·value + constant` without the factors that are 0; one level, and at most `level`.
pub(crate) fn weighted_sum<'a, S: Slots<Value: 'a>>(
    slots: &mut S,
    terms: impl Iterator<Item = (&'a S::Value, Complex)>,
    constant: Complex,
    level: usize,
) -> Result<S::Value, S::Error> {
    let all: Vec<_> = terms.collect();
    let mut terms = all.clone();
    terms.retain(|(_, factor)| *factor != Complex::ZERO);
    // A sum has a term, if only for its level.
    terms.extend(all.first().filter(|_| terms.is_empty()));
    if terms.iter().all(|(value, _)| slots.level(value) > level) {
        slots.combine_at(level, &terms, constant)
    } else {
        slots.combine(&terms, constant)
    }
}

/// `Σ factor·value + constant` for each row of factors, one for each value, with the row's constant; one level, and at most `level`.
fn weighted_sums<S: Slots>(
    slots: &mut S,
    values: &[&S::Value],
    rows: &[(Vec<Complex>, Complex)],
    level: usize,
) -> Result<Vec<S::Value>, S::Error> {
    let lowest = values.iter().map(|value| slots.level(value)).min();
    let below = lowest.unwrap_or(0).saturating_sub(1).min(level);
    slots.combine_rows_at(below, values, rows)
}

/// The indicators of all values of a digit, one level below its powers, and at most at `level`: what follows costs less there. Those of m and
/// m + n/2 are sum and difference of the same even and odd powers.
///
/// # Errors
/// Those of the arithmetic.
pub fn selectors<S: Slots>(
    slots: &mut S,
    powers: &RootPowers<S::Value>,
    level: usize,
) -> Result<Vec<S::Value>, S::Error> {
    let n = 2 * powers.powers.len();
    let functions: Vec<_> = (0..n / 2).map(|m| Harmonics::selector(m, n)).collect();
    let mut sums = |parity: usize| {
        let own = |(k, _): &(usize, _)| k % 2 == parity;
        let terms = |function| powers.terms(function).filter(own).map(|(_, term)| term);
        let values: Vec<_> = terms(&functions[0]).map(|(value, _)| value).collect();
        let rows = functions.iter().map(|function| {
            let constant = if parity == 0 {
                function.constant
            } else {
                Complex::ZERO
            };
            (
                terms(function).map(|(_, factor)| factor).collect(),
                constant,
            )
        });
        match values.is_empty() {
            true => Ok(Vec::new()),
            false => weighted_sums(slots, &values, &rows.collect::<Vec<_>>(), level),
        }
    };
    let (even, odd) = (sums(0)?, sums(1)?);
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for (m, odd) in odd.iter().enumerate() {
        let constant = functions[m].constant;
        let [sum, difference] = match even.get(m) {
            Some(even) => [slots.add(even, odd)?, slots.sub(even, odd)?],
            None => [
                slots.affine(odd, 1, constant)?,
                slots.affine(odd, -1, constant)?,
            ],
        };
        first.push(sum);
        second.push(difference);
    }
    first.append(&mut second);
    Ok(first)
}

/// Cleans indicators: all but the last by 3x² - 2x³, two levels each round; the last is 1 minus the sum of the others.
///
/// # Errors
/// Those of the arithmetic.
pub fn clean_all<S: Slots>(
    slots: &mut S,
    selectors: &mut [S::Value],
    cleanings: u32,
) -> Result<(), S::Error> {
    if cleanings == 0 {
        return Ok(());
    }
    let Some((last, others)) = selectors.split_last_mut() else {
        return Ok(());
    };
    for value in others.iter_mut() {
        for _ in 0..cleanings {
            // In this order the roundings of a selector that is 0 vanish with it.
            let rest = slots.affine(value, -2, Complex::real(3.0))?;
            let first = slots.mul(value, &rest)?;
            *value = slots.mul(&first, value)?;
        }
    }
    let mut sum = None;
    for value in others.iter() {
        sum = Some(match sum {
            None => value.clone(),
            Some(sum) => slots.add(&sum, value)?,
        });
    }
    if let Some(sum) = sum {
        *last = slots.affine(&sum, -1, Complex::ONE)?;
    }
    Ok(())
}

/// The digits of the messages of one half of a column.
pub enum Selected<V> {
    /// One digit that is not cleaned: its powers, from which each table is one combination.
    Powers(RootPowers<V>),
    /// One digit: its selectors.
    One(Vec<V>),
    /// Two digits: the selectors of the high and of the low one.
    Two(Vec<V>, Vec<V>),
    /// Two digits that are cleaned once: the powers of the high one, as `spectrum` takes them, and the selectors of the low one.
    Spectrum(RootPowers<V>, Vec<V>),
}

/// From phases over K to the selectors of the digits, cleaned as often as the shape says but for the last time, which [`square`] is.
///
/// # Errors
/// Those of the arithmetic.
pub fn select<S: Slots>(
    slots: &mut S,
    t: &S::Value,
    shape: &Shape,
) -> Result<Selected<S::Value>, S::Error> {
    let Digits { high, low } = shape.digits;
    let late = late_level(slots.level(t), shape);
    let before = shape.cleanings.saturating_sub(1);
    let z = exponential(slots, t, &shape.exponential)?;
    if low == 0 {
        let powers = root_powers(slots, &z, high)?;
        if shape.cleanings == 0 {
            return Ok(Selected::Powers(powers));
        }
        let mut selected = selectors(slots, &powers, usize::MAX)?;
        clean_all(slots, &mut selected, before)?;
        return Ok(Selected::One(selected));
    }
    if shape.has_spectrum() {
        let sizes = spectrum_sizes(high);
        let (low, high) = low_and_powers(slots, &z, shape.digits, late, Some(sizes))?;
        return Ok(Selected::Spectrum(high, low));
    }
    let [mut high, mut low] = two_digits(slots, &z, shape.digits, [usize::MAX, late])?;
    clean_all(slots, &mut low, before)?;
    clean_all(slots, &mut high, before)?;
    Ok(Selected::Two(high, low))
}

/// The level of the low digit's selectors, from that of the phases. The high digit's are needed one level below, as the table's weights take one. What
/// comes earlier comes at a level where it costs more.
fn late_level(level: usize, shape: &Shape) -> usize {
    let clean = (level + 1).saturating_sub(shape.levels());
    clean + 1 + 2 * shape.cleanings as usize
}

/// As [`select`], where the high and the low digit are the messages of two columns, of as many bits: from the phases of both, at one level.
///
/// # Errors
/// Those of the arithmetic.
///
/// # Panics
/// If the shape has one digit.
pub fn select_of_two<S: Slots>(
    slots: &mut S,
    [high, low]: [&S::Value; 2],
    shape: &Shape,
) -> Result<Selected<S::Value>, S::Error> {
    assert!(shape.digits.low() > 0, "a shape of two digits");
    let late = late_level(slots.level(low), shape);
    let before = shape.cleanings.saturating_sub(1);
    let mut one = |t: &S::Value, bits: u32, level: usize| {
        let z = exponential(slots, t, &shape.exponential)?;
        let powers = root_powers(slots, &z, bits)?;
        let mut selected = selectors(slots, &powers, level)?;
        clean_all(slots, &mut selected, before)?;
        Ok(selected)
    };
    let high = one(high, shape.digits.high(), late - 1)?;
    Ok(Selected::Two(high, one(low, shape.digits.low(), late)?))
}

/// The digits of a column, ready for any tables.
pub enum Ready<V> {
    /// Digits that are not cleaned, of both halves.
    Raw([Selected<V>; 2]),
    /// Squares of their selectors.
    Squares(Squares<V>),
}

/// What the rows of a table are multiplied by.
enum High<T> {
    /// The squares of the high digit's selectors.
    Squares(T),
    /// Products of its powers: [`spectrum`].
    Spectrum(T),
}

/// The squares of the selectors of both halves of a column.
pub struct Squares<V> {
    /// What stands for those of the high one of two digits, for each half.
    high: Option<High<[Vec<V>; 2]>>,
    /// Those of the only or of the low digit, both halves in one.
    low: Vec<V>,
    /// For each half 1 plus the number of digits, less the sums of all squares; then the second of these negated.
    norms: [V; 3],
}

/// Squares the selectors of both halves of a column, if the shape has them cleaned; one level.
///
/// # Errors
/// Those of the arithmetic.
pub fn square<S: Slots>(
    slots: &mut S,
    halves: [Selected<S::Value>; 2],
    shape: &Shape,
) -> Result<Ready<S::Value>, S::Error> {
    if shape.cleanings == 0 {
        return Ok(Ready::Raw(halves));
    }
    let (real, imaginary, high) = match &halves {
        [Selected::One(real), Selected::One(imaginary)] => (real, imaginary, None),
        [
            Selected::Two(high, real),
            Selected::Two(other_high, imaginary),
        ] => {
            let mut squares = |selectors: &[S::Value]| {
                let own = selectors.iter().map(|value| slots.mul(value, value));
                own.collect::<Result<Vec<_>, _>>()
            };
            let squares = [squares(high)?, squares(other_high)?];
            (real, imaginary, Some(High::Squares(squares)))
        }
        [
            Selected::Spectrum(high, real),
            Selected::Spectrum(other_high, imaginary),
        ] => {
            let spectra = [spectrum(slots, high)?, spectrum(slots, other_high)?];
            (real, imaginary, Some(High::Spectrum(spectra)))
        }
        _ => return Ok(Ready::Raw(halves)),
    };
    let mut low = Vec::with_capacity(real.len());
    for (r, s) in real.iter().zip(imaginary) {
        let turned = slots.times_i(s)?;
        low.push(slots.products(&[(r, r), (s, &turned)])?);
    }
    let mut sums = Vec::new();
    for half in [real, imaginary] {
        let squares: Vec<_> = half.iter().map(|value| (value, value)).collect();
        sums.push(slots.products(&squares)?);
    }
    match &high {
        None => {}
        Some(High::Squares(squares)) => {
            for (sum, squares) in sums.iter_mut().zip(squares) {
                let own = slots.sum(&squares.iter().collect::<Vec<_>>())?;
                *sum = slots.add(sum, &own)?;
            }
        }
        Some(High::Spectrum(spectra)) => {
            for (sum, spectrum) in sums.iter_mut().zip(spectra) {
                *sum = slots.add(sum, &spectrum[0])?;
            }
        }
    }
    let one = if high.is_none() { 2.0 } else { 3.0 };
    let mut norm = |half: usize| {
        let norm = slots.affine(&sums[half], -1, Complex::real(one))?;
        // One level above the result, where sums of the squares are.
        let level = slots.level(&norm).saturating_sub(1);
        slots.lower(&norm, level)
    };
    let (real, imaginary) = (norm(0)?, norm(1)?);
    let negative = slots.affine(&imaginary, -1, Complex::ZERO)?;
    Ok(Ready::Squares(Squares {
        high,
        low,
        norms: [real, imaginary, negative],
    }))
}

/// The selectors of the high and of the low digit, not cleaned, from exp(2πi·x), at these levels at most.
///
/// # Errors
/// Those of the arithmetic.
pub fn two_digits<S: Slots>(
    slots: &mut S,
    z: &S::Value,
    digits: Digits,
    levels: [usize; 2],
) -> Result<[Vec<S::Value>; 2], S::Error> {
    let (low, high) = low_and_powers(slots, z, digits, levels[1], None)?;
    Ok([selectors(slots, &high, levels[0])?, low])
}

/// The absolute values of the powers of a high digit for [`spectrum`]: there are n products of two powers in each of its sums, and the power of n/2 stands for
/// that of -n/2 as well.
fn spectrum_sizes(high: u32) -> Vec<f64> {
    let half = 1usize << (high - 1);
    let size = (2.0 * half as f64).sqrt().recip();
    let last = std::iter::once(size / 2.0);
    std::iter::repeat_n(size, half - 1).chain(last).collect()
}

/// The sums of all products of two powers, of exponents that together are m modulo n: n of them, of absolute value 1, for m from 0 on. For powers
/// p of the sizes of [`spectrum_sizes`], the selector of h is s_h = 1/√n·Σ ω^(-hj)·p_j, over j from -n/2 to n/2, where ω = exp(2πi/n).
/// So s_h² is 1/n·Σ ω^(-hm) times the sum of m, whatever noise the powers have, and the sum of 0 is that of all squares.
///
/// # Errors
/// Those of the arithmetic.
fn spectrum<S: Slots>(
    slots: &mut S,
    powers: &RootPowers<S::Value>,
) -> Result<Vec<S::Value>, S::Error> {
    let half = powers.powers.len();
    let n = 2 * half;
    let size = (n as f64).sqrt().recip();
    let middle = slots.add(&powers.powers[half - 1], &powers.conjugates[half - 1])?;
    let power = |k: usize| match k.cmp(&half) {
        Ordering::Less => &powers.powers[k - 1],
        Ordering::Equal => &middle,
        Ordering::Greater => &powers.conjugates[n - k - 1],
    };
    let unit = slots.affine(&middle, 0, Complex::real(2.0 * size))?;
    let twice = (1..(n + half) / 2).map(|k| slots.affine(power(k), 2, Complex::ZERO));
    let twice: Vec<S::Value> = twice.collect::<Result<_, _>>()?;
    let mut sums = Vec::with_capacity(n);
    for m in 0..=half {
        let pairs = (0..n).map(|j| (j, (m + n - j) % n));
        let pairs = pairs.filter_map(|(j, k)| match j.cmp(&k) {
            Ordering::Greater => None,
            Ordering::Equal => (j > 0).then(|| (power(j), power(j))),
            // Both orders at once.
            Ordering::Less if j == 0 => Some((&unit, power(k))),
            Ordering::Less => Some((&twice[j - 1], power(k))),
        });
        let sum = slots.products(&pairs.collect::<Vec<_>>())?;
        sums.push(match m {
            0 => slots.affine(&sum, 1, Complex::real(size * size))?,
            _ => sum,
        });
    }
    for m in (1..half).rev() {
        sums.push(slots.conjugate(&sums[m])?);
    }
    Ok(sums)
}

/// The selectors of a low digit and the powers of a high one.
type LowAndPowers<V> = (Vec<V>, RootPowers<V>);

/// The selectors of the low digit, at this level at most, and the powers of the high one: of these sizes, or as large as the roots of unity are.
fn low_and_powers<S: Slots>(
    slots: &mut S,
    z: &S::Value,
    digits: Digits,
    level: usize,
    sizes: Option<Vec<f64>>,
) -> Result<LowAndPowers<S::Value>, S::Error> {
    let Digits { high, low } = digits;
    // z, z², z⁴ and so on.
    let mut squares = vec![z.clone()];
    for k in 0..high as usize {
        squares.push(slots.mul(&squares[k], &squares[k])?);
    }
    let turned = &squares[high as usize];
    let low_powers = root_powers(slots, turned, low)?;
    let low_selected = selectors(slots, &low_powers, level)?;
    // exp(-2πi·k·l/2^b)
    let (size, all) = (1usize << low, 1usize << (high + low));
    let back = |k: usize, scale: f64| {
        let values: Vec<_> = (0..size)
            .map(|l| Complex::root(k * l % all, all).conj() * scale)
            .collect();
        Harmonics::interpolate(&values)
    };
    let high_powers = if sizes.is_none() && high < DIRECT_BITS {
        let z = multiply(slots, z, &low_powers, &back(1, 1.0))?;
        root_powers(slots, &z, high)?
    } else {
        let level = low_powers.powers.iter().map(|value| slots.level(value));
        let level = level.min().unwrap_or(0);
        let powers = powers_to_half(slots, &squares, level)?;
        // What is not needed any more makes room for what follows.
        drop(squares);
        let sizes = sizes.unwrap_or_else(|| vec![1.0; powers.len()]);
        let functions = (1..).zip(&sizes).map(|(k, &size)| back(k, size));
        let functions: Vec<_> = functions.collect();
        let factors = interpolate_all(slots, &low_powers, &functions)?;
        drop(low_powers);
        let pairs = powers.into_iter().zip(factors);
        let powers = pairs.map(|(power, factor)| slots.mul(&power, &factor));
        let powers = powers.collect::<Result<_, _>>()?;
        with_conjugates(slots, powers, sizes)?
    };
    Ok((low_selected, high_powers))
}

/// Bits from which on a high digit's powers are corrected one by one, each by an interpolation of its own, which takes two levels. Fewer bits take
/// no more when the phase is corrected once, before its powers are made.
pub(crate) const DIRECT_BITS: u32 = 3;

/// Levels from the powers of the low digit to the selectors of the high one.
pub(crate) fn correction_levels(high: u32) -> usize {
    if high < DIRECT_BITS {
        1 + (high as usize - 1) + 1
    } else {
        3
    }
}

/// The powers of z up to half the number of values of the high digit, given z, z², z⁴ and so on up to twice as much: at a level below `level`, which is one
/// that the largest square has as well.
fn powers_to_half<S: Slots>(
    slots: &mut S,
    squares: &[S::Value],
    level: usize,
) -> Result<Vec<S::Value>, S::Error> {
    let half = 1usize << (squares.len() - 2);
    // A product of k squares comes k - 1 levels below the first of them.
    let start = level + (half.ilog2() as usize).saturating_sub(2);
    let mut powers: Vec<S::Value> = Vec::with_capacity(half);
    for k in 1..=half {
        let square = 1usize << k.ilog2();
        let power = &squares[square.ilog2() as usize];
        powers.push(match k - square {
            0 if slots.level(power) > start => slots.lower(power, start)?,
            0 => power.clone(),
            rest => {
                let (square, rest) = (&powers[square - 1], &powers[rest - 1]);
                slots.mul(square, rest)?
            }
        });
    }
    Ok(powers)
}

/// A value times a function on roots of unity; one level. The function's factors are multiplied into the value, which has
/// levels to spare beside the powers, before they meet these in one sum of products.
fn multiply<S: Slots>(
    slots: &mut S,
    value: &S::Value,
    powers: &RootPowers<S::Value>,
    function: &Harmonics,
) -> Result<S::Value, S::Error> {
    let terms: Vec<_> = powers.terms(function).map(|(_, term)| term).collect();
    let level = terms.iter().map(|(power, _)| slots.level(power));
    let level = level.min().unwrap_or(0);
    let value = slots.lower(value, level + 1)?;
    let constant = slots.combine(&[(&value, function.constant)], Complex::ZERO)?;
    let rows = terms
        .iter()
        .map(|(_, factor)| (vec![*factor], Complex::ZERO));
    let factors = weighted_sums(slots, &[&value], &rows.collect::<Vec<_>>(), usize::MAX)?;
    let powers = terms.iter().map(|(power, _)| *power);
    let product = slots.products(&powers.zip(&factors).collect::<Vec<_>>())?;
    slots.add(&product, &constant)
}

/// A table's values as fractions of 2^output_bits, from the digits of its argument: those of the halves of a column in real and imaginary parts.
///
/// # Errors
/// Those of the arithmetic.
///
/// # Panics
/// If the table is one of messages with another number of bits than the digits have.
pub fn look_up<S: Slots>(
    slots: &mut S,
    digits: &Ready<S::Value>,
    table: &Table,
) -> Result<S::Value, S::Error> {
    let mut fractions = table.fractions();
    let Squares { high, low, norms } = match digits {
        Ready::Raw([real, imaginary]) => {
            let real = raw_look_up(slots, real, &fractions)?;
            let imaginary = raw_look_up(slots, imaginary, &fractions)?;
            return join(slots, &real, &imaginary);
        }
        Ready::Squares(squares) => squares,
    };
    fractions.iter_mut().for_each(|x| *x = *x * 0.5);
    let sums = match high {
        None => {
            let sum = weigh(slots, low, &fractions)?;
            [sum.clone(), sum]
        }
        Some(high) => {
            let [real, imaginary] = match high {
                High::Squares(squares) => squares,
                High::Spectrum(spectra) => {
                    fractions = transformed(&fractions, low.len());
                    spectra
                }
            };
            let rows = rows(slots, low, &fractions, real.len())?;
            let mut of_half = |high: &[S::Value]| {
                let pairs: Vec<_> = high.iter().zip(&rows).collect();
                slots.products(&pairs)
            };
            [of_half(real)?, of_half(imaginary)?]
        }
    };
    let [real, imaginary, negative] = norms;
    let plus = slots.products(&[(real, &sums[0]), (imaginary, &sums[1])])?;
    let minus = slots.products(&[(real, &sums[0]), (negative, &sums[1])])?;
    let conjugate = slots.conjugate(&minus)?;
    slots.add(&plus, &conjugate)
}

/// The values of one half from digits that are not cleaned.
fn raw_look_up<S: Slots>(
    slots: &mut S,
    selected: &Selected<S::Value>,
    fractions: &[Complex],
) -> Result<S::Value, S::Error> {
    match selected {
        Selected::Powers(powers) => {
            assert_eq!(fractions.len(), 2 * powers.powers.len());
            interpolate(slots, powers, &Harmonics::interpolate(fractions))
        }
        Selected::One(selectors) => weigh(slots, selectors, fractions),
        Selected::Two(high, low) => {
            let rows = rows(slots, low, fractions, high.len())?;
            let pairs: Vec<_> = high.iter().zip(&rows).collect();
            slots.products(&pairs)
        }
        Selected::Spectrum(powers, low) => {
            let high = selectors(slots, powers, usize::MAX)?;
            let rows = rows(slots, low, fractions, high.len())?;
            let pairs: Vec<_> = high.iter().zip(&rows).collect();
            slots.products(&pairs)
        }
    }
}

/// The rows of a table, of so many values each, after Fourier: what the sums of a [`spectrum`] are multiplied by.
fn transformed(fractions: &[Complex], length: usize) -> Vec<Complex> {
    let n = fractions.len() / length;
    let sum = |m: usize, l: usize| {
        (0..n).fold(Complex::ZERO, |sum, h| {
            sum + fractions[h * length + l] * Complex::root(h * m % n, n).conj()
        })
    };
    let places = (0..n).flat_map(|m| (0..length).map(move |l| (m, l)));
    places.map(|(m, l)| sum(m, l) * (1.0 / n as f64)).collect()
}

/// For each value of the high digit what a table makes of the low one's values.
fn rows<S: Slots>(
    slots: &mut S,
    low: &[S::Value],
    fractions: &[Complex],
    count: usize,
) -> Result<Vec<S::Value>, S::Error> {
    assert_eq!(fractions.len(), count * low.len());
    let rows = fractions.chunks_exact(low.len());
    let rows: Vec<_> = rows.map(|row| (row.to_vec(), Complex::ZERO)).collect();
    weighted_sums(slots, &low.iter().collect::<Vec<_>>(), &rows, usize::MAX)
}

fn weigh<S: Slots>(
    slots: &mut S,
    selectors: &[S::Value],
    weights: &[Complex],
) -> Result<S::Value, S::Error> {
    assert_eq!(selectors.len(), weights.len());
    let terms = selectors.iter().zip(weights.iter().copied());
    weighted_sum(slots, terms, Complex::ZERO, usize::MAX)
}

/// The real and imaginary parts of a value, each twice as large.
///
/// # Errors
/// Those of the arithmetic.
pub fn split<S: Slots>(slots: &mut S, value: &S::Value) -> Result<(S::Value, S::Value), S::Error> {
    let conjugate = slots.conjugate(value)?;
    let real = slots.add(value, &conjugate)?;
    let difference = slots.sub(&conjugate, value)?;
    Ok((real, slots.times_i(&difference)?))
}

/// `real + i·imaginary`.
///
/// # Errors
/// Those of the arithmetic.
pub fn join<S: Slots>(
    slots: &mut S,
    real: &S::Value,
    imaginary: &S::Value,
) -> Result<S::Value, S::Error> {
    let turned = slots.times_i(imaginary)?;
    slots.add(real, &turned)
}

/// log2 of a number, rounded up.
pub(crate) fn log2_ceil(x: usize) -> usize {
    x.next_power_of_two().trailing_zeros() as usize
}
