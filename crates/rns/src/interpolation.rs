//! The functions that a table is made of: the exponential on an interval, interpolation at roots of unity, cleaning.

use std::f64::consts::{PI, TAU};

use crate::complex::Complex;

/// The Bessel functions of the first kind `J_0(x), …, J_(count-1)(x)`, by Miller's downward recurrence: accurate to a few units
/// of 2^-53 of the largest of them.
#[must_use]
pub fn bessel(x: f64, count: usize) -> Vec<f64> {
    if x == 0.0 {
        let mut values = vec![0.0; count];
        values.iter_mut().take(1).for_each(|value| *value = 1.0);
        return values;
    }
    // Far above both x and the last function wanted, J is nothing beside the wanted ones.
    let start = 2 * ((count.max(x.abs() as usize) + 60) / 2);
    let mut values = vec![0.0; start + 1];
    let (mut above, mut here) = (0.0f64, f64::MIN_POSITIVE);
    values[start] = here;
    for k in (1..=start).rev() {
        (above, here) = (here, 2.0 * k as f64 / x * here - above);
        values[k - 1] = here;
        if here.abs() > 1e200 {
            values
                .iter_mut()
                .skip(k - 1)
                .for_each(|value| *value *= 1e-200);
            above *= 1e-200;
            here *= 1e-200;
        }
    }
    // J_0 + 2·(J_2 + J_4 + …) = 1.
    let norm = values[0] + 2.0 * values.iter().skip(2).step_by(2).sum::<f64>();
    values.truncate(count);
    values.iter_mut().for_each(|value| *value /= norm);
    values
}

/// The coefficients of `exp(i·a·t)` on [-1, 1] in Chebyshev's polynomials up to a degree: `J_0(a)`, then `2·i^k·J_k(a)`
/// (Jacobi and Anger).
#[must_use]
pub fn exponential(a: f64, degree: usize) -> Vec<Complex> {
    let shares = std::iter::once(1.0).chain(std::iter::repeat(2.0));
    bessel(a, degree + 1)
        .into_iter()
        .zip(shares)
        .enumerate()
        .map(|(k, (j, share))| Complex::root(k, 4) * (share * j))
        .collect()
}

/// A bound of the distance between [`exponential`] and the function, anywhere in [-1, 1]: the sum of what is cut off.
#[must_use]
pub fn exponential_error(a: f64, degree: usize) -> f64 {
    let all = bessel(a, 2 * degree + a.abs() as usize + 40);
    all.iter().skip(degree + 1).map(|j| 2.0 * j.abs()).sum()
}

/// `Σ_k coefficients_k·T_k(t)`, by Clenshaw's recurrence.
#[must_use]
pub fn chebyshev(coefficients: &[Complex], t: f64) -> Complex {
    let (mut next, mut after) = (Complex::ZERO, Complex::ZERO);
    for &coefficient in coefficients.iter().skip(1).rev() {
        (next, after) = (coefficient + next * (2.0 * t) - after, next);
    }
    coefficients.first().copied().unwrap_or_default() + next * t - after
}

/// A function on the n-th roots of unity as a combination of the real *harmonics* of z = exp(iθ): 1, then 2·cos(kθ) for
/// 1 ≤ k ≤ n/2, then 2·sin(kθ) for 1 ≤ k < n/2.
///
/// This is Lagrange's interpolation in balanced form: for z with z^n = 1, the powers above n/2 are the conjugates of those below.
/// It constrains values alone, and no derivative: how noise is reduced is a matter of [`clean`].
#[derive(Clone, Debug, PartialEq)]
pub struct Harmonics {
    /// The mean of the values.
    pub constant: Complex,
    /// The factor of 2·cos(kθ), k from 1 to n/2.
    pub cosines: Vec<Complex>,
    /// The factor of 2·sin(kθ), k from 1 to n/2 - 1.
    pub sines: Vec<Complex>,
}

impl Harmonics {
    /// Interpolates `values[m]` at `exp(2πi·m/n)`.
    ///
    /// # Panics
    /// If n is not even, or 0.
    #[must_use]
    pub fn interpolate(values: &[Complex]) -> Harmonics {
        let n = values.len();
        assert!(n > 0 && n.is_multiple_of(2), "{n} values");
        let mean = |weight: &dyn Fn(usize) -> f64| {
            let mut sum = Complex::ZERO;
            for (m, &value) in values.iter().enumerate() {
                sum += value * weight(m);
            }
            sum * (1.0 / n as f64)
        };
        Harmonics {
            constant: mean(&|_| 1.0),
            cosines: (1..=n / 2)
                .map(|k| {
                    let share = if k == n / 2 { 0.5 } else { 1.0 };
                    mean(&|m| share * Complex::root(k * m, n).re)
                })
                .collect(),
            sines: (1..n / 2)
                .map(|k| mean(&|m| Complex::root(k * m, n).im))
                .collect(),
        }
    }

    /// The interpolation of the indicator of m: 1 at `exp(2πi·m/n)`, 0 at the other n-th roots of unity.
    #[must_use]
    pub fn selector(m: usize, n: usize) -> Harmonics {
        let mut values = vec![Complex::ZERO; n];
        values[m] = Complex::ONE;
        Harmonics::interpolate(&values)
    }

    /// The value at `exp(2πi·turns)`.
    #[must_use]
    pub fn at(&self, turns: f64) -> Complex {
        let mut sum = self.constant;
        for (k, &factor) in (1u32..).zip(&self.cosines) {
            sum += factor * (2.0 * (TAU * turns * f64::from(k)).cos());
        }
        for (k, &factor) in (1u32..).zip(&self.sines) {
            sum += factor * (2.0 * (TAU * turns * f64::from(k)).sin());
        }
        sum
    }

    /// The derivative by the turn at `exp(2πi·turns)`: by how much the interpolation amplifies noise there.
    #[must_use]
    pub fn slope(&self, turns: f64) -> Complex {
        let mut sum = Complex::ZERO;
        for (k, &factor) in (1u32..).zip(&self.cosines) {
            let k = f64::from(k);
            sum += factor * (-2.0 * TAU * k * (TAU * turns * k).sin());
        }
        for (k, &factor) in (1u32..).zip(&self.sines) {
            let k = f64::from(k);
            sum += factor * (2.0 * TAU * k * (TAU * turns * k).cos());
        }
        sum
    }
}

/// `3x² - 2x³`: keeps 0 and 1 and squares the distance ε from them, to 3ε² at most for ε ≤ 0, and less else near 1
/// (Drucker, Moshkowich, Pelleg and Shaul, BLEACH: cleaning errors in discrete computations over CKKS, 2022).
#[must_use]
pub fn clean(x: f64) -> f64 {
    x * x * (3.0 - 2.0 * x)
}

/// How far the selectors of a digit are from what they should be, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SelectorErrors {
    /// All distances together: a table of values in [0, 1] is off by as much at most, as its value is the sum of the selectors, each times a value.
    pub sum: f64,
    /// The distance of the selector that is 1.
    pub one: f64,
    /// The sum of the squares of all others.
    pub squares: f64,
}

impl SelectorErrors {
    /// What [`squares_error`] wants to know.
    pub(crate) fn squared(&self) -> (f64, f64) {
        (self.one, self.squares)
    }
}

/// The errors of n selectors after `cleanings` rounds of [`clean`], where the phase is off by up to `deviation` steps of 1/n of a turn.
///
/// Found by trying 64 deviations in the interval; for deviations up to a quarter the largest is the worst.
#[must_use]
pub fn selector_errors(n: usize, deviation: f64, cleanings: u32) -> SelectorErrors {
    let mut worst = SelectorErrors::default();
    // Selectors are rotations of one another, so one message stands for all.
    for i in 0..=64 {
        let off = deviation * f64::from(i) / 64.0;
        let mut own = SelectorErrors::default();
        for m in 0..n {
            let value = dirichlet(m as f64 + off, n);
            let cleaned = (0..cleanings).fold(value, |x, _| clean(x));
            let error = (cleaned - f64::from(u8::from(m == 0))).abs();
            own.sum += error;
            match m {
                0 => own.one = error,
                _ => own.squares += error * error,
            }
        }
        worst.sum = worst.sum.max(own.sum);
        worst.one = worst.one.max(own.one);
        worst.squares = worst.squares.max(own.squares);
    }
    worst
}

/// By how much a table of values in [0, 1] is off at most that is made of the squares of one or two digits' selectors, times 1 plus the number of digits less the
/// sums of all squares: for each digit the distance from 1 of its one selector, and the sum of the squares of all others.
///
/// With 1 + a and s for the square of a digit's one selector and for the others together, and 1 + b and t for the other digit, the factor is
/// f = 1 - a - b - s - t. The value of the message itself has the weight (1 + a)(1 + b)f, which is
/// 1 - (a + b)² + ab(1 - a - b) - (1 + a)(1 + b)(s + t); all others have ((1 + a + s)(1 + b + t) - (1 + a)(1 + b))·f together.
#[must_use]
pub fn squares_error(digits: &[(f64, f64)]) -> f64 {
    let digit = |number: usize| {
        let (one, others) = digits.get(number).copied().unwrap_or_default();
        (2.0 * one + one * one, others)
    };
    let ((a, s), (b, t)) = (digit(0), digit(1));
    let own = (a + b).powi(2) + a * b * (1.0 + a + b) + (1.0 + a) * (1.0 + b) * (s + t);
    let others = (1.0 + a) * t + (1.0 + b) * s + s * t;
    own + others * (1.0 + a + b + s + t)
}

/// The selector of 0 among n, at a phase of `steps` steps of 1/n of a turn: `sin(πs)/(n·tan(πs/n))`.
fn dirichlet(steps: f64, n: usize) -> f64 {
    let around = steps - (steps / n as f64).round() * n as f64;
    if around.abs() < 1e-12 {
        return 1.0;
    }
    (PI * around).sin() / (n as f64 * (PI * around / n as f64).tan())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bessel_functions_are_those_of_the_tables() {
        // Abramowitz and Stegun, tables 9.1 to 9.4.
        let at_ten = bessel(10.0, 11);
        assert!((at_ten[0] - -0.245_935_764_451_348_3).abs() < 1e-15);
        assert!((at_ten[1] - 0.043_472_746_168_861_4).abs() < 1e-15);
        assert!((at_ten[10] - 0.207_486_106_633_358_9).abs() < 1e-15);
        let at_one = bessel(1.0, 3);
        assert!((at_one[0] - 0.765_197_686_557_966_6).abs() < 1e-15);
        assert!((at_one[2] - 0.114_903_484_931_900_5).abs() < 1e-15);
        assert_eq!(bessel(0.0, 2), [1.0, 0.0]);
    }

    #[test]
    fn the_exponential_keeps_its_bound() {
        for (a, degree) in [(3.0, 12), (12.96, 31), (25.9, 46), (0.5, 7)] {
            let coefficients = exponential(a, degree);
            let bound = exponential_error(a, degree) + 1e-14;
            let worst = (-1000..=1000)
                .map(|i| f64::from(i) / 1000.0)
                .map(|t| (chebyshev(&coefficients, t) - Complex::turn(a * t / TAU)).abs())
                .fold(0.0, f64::max);
            assert!(
                worst <= bound && bound < 20.0 * worst + 1e-13,
                "{a}: {worst:e} {bound:e}"
            );
        }
    }

    #[test]
    fn interpolation_gives_the_values() {
        for n in [2, 4, 8, 16, 256] {
            let values: Vec<Complex> = (0..n)
                .map(|m| Complex::new((m * 7 % 5) as f64, (m * 3 % 7) as f64))
                .collect();
            let harmonics = Harmonics::interpolate(&values);
            for (m, &value) in values.iter().enumerate() {
                let found = harmonics.at(m as f64 / n as f64);
                assert!((found - value).abs() < 1e-11, "{n} {m}");
            }
        }
    }

    #[test]
    fn slopes_are_derivatives() {
        let values: Vec<Complex> = (0..8)
            .map(|m| Complex::real(f64::from(m * m % 8)))
            .collect();
        let harmonics = Harmonics::interpolate(&values);
        for turns in [0.0, 0.11, 0.625] {
            let difference = (harmonics.at(turns + 1e-6) - harmonics.at(turns - 1e-6)) * 5e5;
            assert!((difference - harmonics.slope(turns)).abs() < 1e-6);
        }
    }

    #[test]
    fn selectors_are_dirichlet_kernels() {
        for n in [2, 4, 16] {
            let selector = Harmonics::selector(1, n);
            for off in [0.0, 0.1, -0.3, 0.5] {
                let found = selector.at((1.0 + off) / n as f64).re;
                assert!((found - dirichlet(off, n)).abs() < 1e-13);
            }
        }
    }

    #[test]
    fn cleaning_squares_noise() {
        for e in [1e-2, 1e-4] {
            assert!(clean(e) <= 3.0 * e * e && clean(-e) <= 3.1 * e * e);
            assert!((clean(1.0 + e) - 1.0).abs() <= 3.1 * e * e);
            assert!((clean(1.0 - e) - 1.0).abs() <= 3.0 * e * e);
            // Neighbours at distance j are off by about e/j: 3·Σ 1/j² = π² of e², and as much again around 1.
            let (raw, once) = (selector_errors(16, e, 0), selector_errors(16, e, 1));
            assert!(
                once.sum < 13.0 * e * e && raw.sum > 4.0 * e,
                "{raw:?} {once:?}"
            );
            assert!(selector_errors(16, e, 2).sum < 600.0 * e.powi(4) + 1e-15);
            // Σ 1/j² is π²/3, once in the weight of the message and once in those of others.
            let squares = squares_error(&[raw.squared()]);
            assert!(squares < 7.0 * e * e && squares > 4.0 * e * e, "{squares}");
        }
    }

    /// For selectors off by anything, the weights that a table's values get are off by no more than the bound.
    #[test]
    fn squares_are_bounded() {
        let mut state = 7u64;
        let mut random = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        };
        for round in 0..400 {
            let size = 0.3 / f64::from(1 + round % 20);
            let both = [(); 2].map(|()| {
                let mut digit = [0.0; 4].map(|x: f64| x + size * random());
                digit[0] += 1.0;
                digit
            });
            let errors = both.map(|digit| {
                let others: f64 = digit[1..].iter().map(|x| x * x).sum();
                ((digit[0] - 1.0).abs(), others)
            });
            let sums = both.map(|digit| digit.iter().map(|x| x * x).sum::<f64>());
            for digits in 1..=2 {
                let norm = (1 + digits) as f64 - sums[..digits].iter().sum::<f64>();
                let high: &[f64] = if digits == 1 { &[1.0] } else { &both[1] };
                let weights = high
                    .iter()
                    .flat_map(|h| both[0].map(|l| (h * l).powi(2) * norm));
                let off: f64 = (weights.enumerate())
                    .map(|(cell, weight)| (weight - f64::from(u8::from(cell == 0))).abs())
                    .sum();
                let bound = squares_error(&errors[..digits]);
                assert!(off <= bound && bound < 100.0 * size * size, "{off} {bound}");
            }
        }
    }

    /// The reason why tables of 8 bits go by digits: without cleaning a polynomial through all 256 points multiplies
    /// the noise of its input by about 2^7, again in every table.
    #[test]
    fn one_polynomial_for_eight_bits_amplifies_noise() {
        let mut state = 1u64;
        let values: Vec<Complex> = (0..256)
            .map(|_| {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                Complex::real((state >> 56) as f64 / 256.0)
            })
            .collect();
        let harmonics = Harmonics::interpolate(&values);
        let squares = (0..256).map(|m| harmonics.slope(f64::from(m) / 256.0).norm_sqr());
        let gain = (squares.sum::<f64>() / 256.0).sqrt();
        assert!((100.0..170.0).contains(&gain), "{gain}");
    }
}
