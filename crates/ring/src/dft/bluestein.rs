//! Bluestein's algorithm, for the lengths that the prime-factor algorithm does not serve.
//!
//! With C(j, 2) = j(j - 1)/2 we have jk = C(j + k, 2) - C(j, 2) - C(k, 2), which needs no square root of w and so serves
//! even lengths as well: X\[k\] = w^-C(k, 2)·Σ x_j·w^-C(j, 2)·w^C(j + k, 2). The sum is a correlation. The modulus need
//! not have roots of unity for it: it is taken over the integers, in the Goldilocks field.
//!
//! Let y_j = x_j·w^-C(j, 2), centered modulo q < 2^32, so at most 2^31 in size. The chirp w^C(l, 2), centered too, is
//! split into two halves of at most 2^15 in size. A sum of at most 2^16 products is then at most 2^62 in size, below
//! half of p = 2^64 - 2^32 + 1, and the centered result of the field is exact.

use super::numbers::{inv, mul, pow};
use crate::RingError;
use crate::goldilocks;
use crate::ntt::NttPlan;
use crate::simd::SimdLevel;

#[derive(Clone, Debug)]
pub(super) struct Bluestein {
    modulus: u32,
    /// w^-C(j, 2) for j below the length.
    chirp: Vec<u32>,
    convolution: NttPlan,
    /// The transforms of the low and the high halves of w^C(l, 2), l below twice the length less one, divided by N.
    low: Vec<u64>,
    high: Vec<u64>,
}

impl Bluestein {
    /// The greatest length.
    pub const MAX_LENGTH: usize = 1 << 16;

    pub fn new(length: usize, modulus: u32, root: u32, simd: SimdLevel) -> Result<Self, RingError> {
        let degree = (2 * length).next_power_of_two();
        let convolution = NttPlan::with_simd(degree, simd)?;
        // C(j + 1, 2) = C(j, 2) + j
        let chirp = |root: u32, count: usize| -> Vec<u32> {
            let mut value = 1 % modulus;
            let mut power = 1 % modulus;
            (0..count)
                .map(|_| {
                    let this = value;
                    value = mul(value, power, modulus);
                    power = mul(power, root, modulus);
                    this
                })
                .collect()
        };
        let kernel: Vec<(i64, i64)> = chirp(root, 2 * length - 1)
            .into_iter()
            .map(|word| {
                let value = centered(word, modulus);
                let low = i64::from(value as i16);
                (low, (value - low) >> 16)
            })
            .collect();
        let transform = |half: &dyn Fn(&(i64, i64)) -> i64| {
            let mut words = vec![0; degree];
            for (word, pair) in words.iter_mut().zip(&kernel) {
                *word = goldilocks::from_signed(half(pair));
            }
            convolution.forward(&mut words);
            convolution.scale_assign(&mut words, goldilocks::inv(degree as u64));
            words
        };
        Ok(Bluestein {
            modulus,
            chirp: chirp(inv(root, modulus), length),
            low: transform(&|pair| pair.0),
            high: transform(&|pair| pair.1),
            convolution,
        })
    }

    /// Words of scratch that a transform needs: two polynomials of the convolution.
    pub fn scratch_len(&self) -> usize {
        4 * self.convolution.degree()
    }

    /// Transforms `data`; `scratch` is aligned to eight bytes.
    pub fn transform(&self, inverse: bool, data: &mut [u32], scratch: &mut [u32]) {
        let q = self.modulus;
        let degree = self.convolution.degree();
        let scratch: &mut [u64] = bytemuck::cast_slice_mut(&mut scratch[..self.scratch_len()]);
        let (low, high) = scratch.split_at_mut(degree);
        let length = data.len();
        // Reversed, so that the correlation is a product. What wraps around stays below position length - 1.
        high.fill(0);
        for ((y, &x), &c) in high[..length].iter_mut().rev().zip(&*data).zip(&self.chirp) {
            *y = goldilocks::from_signed(centered(mul(x, c, q), q));
        }
        self.convolution.forward(high);
        low.copy_from_slice(high);
        self.convolution.mul_assign(low, &self.low);
        self.convolution.mul_assign(high, &self.high);
        self.convolution.inverse(low);
        self.convolution.inverse(high);
        let shift = pow(2, 16, q);
        let sums = low[length - 1..].iter().zip(&high[length - 1..]);
        for ((x, (&low, &high)), &c) in data.iter_mut().zip(sums).zip(&self.chirp) {
            let word = |sum: u64| goldilocks::to_centered(sum).rem_euclid(i64::from(q)) as u32;
            let sum = u64::from(word(low)) + u64::from(mul(word(high), shift, q));
            *x = mul((sum % u64::from(q)) as u32, c, q);
        }
        if inverse {
            data[1..].reverse();
        }
    }
}

/// The representative of `x` nearest to zero.
fn centered(x: u32, q: u32) -> i64 {
    let x = i64::from(x);
    if 2 * x > i64::from(q) {
        x - i64::from(q)
    } else {
        x
    }
}
