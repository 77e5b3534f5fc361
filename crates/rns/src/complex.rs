//! Complex numbers of two f64.

use std::ops::{Add, AddAssign, Mul, Neg, Sub};

/// `re + i·im`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Complex {
    /// Real part.
    pub re: f64,
    /// Imaginary part.
    pub im: f64,
}

impl Complex {
    /// 0.
    pub const ZERO: Complex = Complex::new(0.0, 0.0);
    /// 1.
    pub const ONE: Complex = Complex::new(1.0, 0.0);
    /// The imaginary unit.
    pub const I: Complex = Complex::new(0.0, 1.0);

    /// `re + i·im`.
    #[must_use]
    pub const fn new(re: f64, im: f64) -> Complex {
        Complex { re, im }
    }

    /// A real number.
    #[must_use]
    pub const fn real(re: f64) -> Complex {
        Complex::new(re, 0.0)
    }

    /// `exp(2πi·turns)`.
    #[must_use]
    pub fn turn(turns: f64) -> Complex {
        let (im, re) = (std::f64::consts::TAU * turns).sin_cos();
        Complex::new(re, im)
    }

    /// `exp(2πi·k/n)`, exact at multiples of a quarter of a turn.
    ///
    /// # Panics
    /// If n is 0.
    #[must_use]
    pub fn root(k: usize, n: usize) -> Complex {
        let k = k % n;
        // The angle stays below a quarter of a turn, where sine and cosine lose nothing; the rest is a power of i.
        let (quarter, rest) = (4 * k / n, 4 * k % n);
        let within = Complex::turn(rest as f64 / (4.0 * n as f64));
        match quarter {
            0 => within,
            1 => Complex::new(-within.im, within.re),
            2 => -within,
            _ => Complex::new(within.im, -within.re),
        }
    }

    /// The complex conjugate.
    #[must_use]
    pub const fn conj(self) -> Complex {
        Complex::new(self.re, -self.im)
    }

    /// The square of the absolute value.
    #[must_use]
    pub fn norm_sqr(self) -> f64 {
        self.re * self.re + self.im * self.im
    }

    /// The absolute value.
    #[must_use]
    pub fn abs(self) -> f64 {
        self.re.hypot(self.im)
    }
}

impl Add for Complex {
    type Output = Complex;

    fn add(self, other: Complex) -> Complex {
        Complex::new(self.re + other.re, self.im + other.im)
    }
}

impl AddAssign for Complex {
    fn add_assign(&mut self, other: Complex) {
        *self = *self + other;
    }
}

impl Sub for Complex {
    type Output = Complex;

    fn sub(self, other: Complex) -> Complex {
        Complex::new(self.re - other.re, self.im - other.im)
    }
}

impl Mul for Complex {
    type Output = Complex;

    fn mul(self, other: Complex) -> Complex {
        Complex::new(
            self.re * other.re - self.im * other.im,
            self.re * other.im + self.im * other.re,
        )
    }
}

impl Mul<f64> for Complex {
    type Output = Complex;

    fn mul(self, factor: f64) -> Complex {
        Complex::new(self.re * factor, self.im * factor)
    }
}

impl Neg for Complex {
    type Output = Complex;

    fn neg(self) -> Complex {
        Complex::new(-self.re, -self.im)
    }
}
