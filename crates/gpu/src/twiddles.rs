//! Tables of twiddles, as `kernels/abi.h` defines them.
//!
//! The entry 2^d + b of a table is a square root s(d, b) of w(d, b), the number at whose roots the node b of level d is evaluated.
//! Its children are w(d + 1, 2b) = s and w(d + 1, 2b + 1) = -s.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use toroid_ring::{RingError, goldilocks};

/// Whole turns in units of 2^-`log2_unit` that s(d, b) is, where w(0, 0) is the turn of 2^-`log2_root`, for the entries 1 to `points` - 1.
fn turns(points: usize, log2_root: u32) -> impl Iterator<Item = (u64, u32)> {
    // With w(d, b) = a / 2^(d + r), s is a / 2^(d + r + 1), and -s half a turn more.
    let mut level = vec![1u64];
    (0..points.trailing_zeros()).flat_map(move |depth| {
        let log2_unit = depth + log2_root + 1;
        let next = level
            .iter()
            .flat_map(|turn| [*turn, turn + (1 << (log2_unit - 1))])
            .collect();
        let now = std::mem::replace(&mut level, next);
        now.into_iter().map(move |turn| (turn, log2_unit))
    })
}

/// cos and sin of `turn` / 2^`log2_unit` turns. The angle is brought to the first eighth of a turn before it is rounded.
fn unit_root(turn: u64, log2_unit: u32) -> [f64; 2] {
    let whole = 1u64 << log2_unit;
    let turn = turn % whole;
    let quarter = whole / 4;
    let (quarters, rest) = (turn / quarter, turn % quarter);
    // Above an eighth of a turn, cos and sin change places.
    let swapped = 2 * rest > quarter;
    let rest = if swapped { quarter - rest } else { rest };
    let (sin, cos) = if 2 * rest == quarter {
        (FRAC_1_SQRT_2, FRAC_1_SQRT_2)
    } else {
        (rest as f64 / whole as f64 * (2.0 * PI)).sin_cos()
    };
    let (cos, sin) = if swapped { (sin, cos) } else { (cos, sin) };
    match quarters {
        0 => [cos, sin],
        1 => [-sin, cos],
        2 => [-cos, -sin],
        _ => [sin, -cos],
    }
}

/// The table of the transform of `points` complex points, a power of two: w(0, 0) = i. The kernels take it conjugated for the inverse.
pub(crate) fn complex(points: usize) -> Vec<[f64; 2]> {
    let entries = turns(points, 2).map(|(turn, log2_unit)| unit_root(turn, log2_unit));
    std::iter::once([0.0; 2]).chain(entries).collect()
}

/// The tables of the transform of `points` field elements and of its inverse: w(0, 0) = -1.
pub(crate) fn field(points: usize) -> Result<[Vec<u64>; 2], RingError> {
    let psi = goldilocks::psi(points)?;
    let table = |root: u64| {
        let order = 2 * points as u64;
        let entries = turns(points, 1)
            .map(|(turn, log2_unit)| goldilocks::pow(root, turn * (order >> log2_unit)));
        std::iter::once(0).chain(entries).collect()
    };
    Ok([table(psi), table(goldilocks::inv(psi))])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn multiplied(a: [f64; 2], b: [f64; 2]) -> [f64; 2] {
        [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
    }

    #[test]
    fn each_complex_twiddle_is_a_square_root_of_its_node() {
        let table = complex(256);
        assert_eq!(table.len(), 256);
        let close = |a: [f64; 2], b: [f64; 2]| (a[0] - b[0]).hypot(a[1] - b[1]) < 1e-15;
        assert!(close(multiplied(table[1], table[1]), [0.0, 1.0]));
        for node in 2..256 {
            let [re, im] = table[node / 2];
            let expected = if node % 2 == 0 { [re, im] } else { [-re, -im] };
            assert!(
                close(multiplied(table[node], table[node]), expected),
                "{node}"
            );
        }
    }

    #[test]
    fn complex_twiddles_lie_on_the_circle_to_the_last_bit() {
        for [re, im] in complex(1 << 13).into_iter().skip(1) {
            assert!((re * re + im * im - 1.0).abs() <= 2.0 * f64::EPSILON);
        }
    }

    #[test]
    fn each_field_twiddle_is_a_square_root_of_its_node() {
        let [table, inverse] = field(512).unwrap();
        assert_eq!(goldilocks::mul(table[1], table[1]), goldilocks::P - 1);
        for node in 1..512 {
            assert_eq!(goldilocks::mul(table[node], inverse[node]), 1);
            if node > 1 {
                let s = table[node / 2];
                let expected = if node % 2 == 0 { s } else { goldilocks::neg(s) };
                assert_eq!(
                    goldilocks::mul(table[node], table[node]),
                    expected,
                    "{node}"
                );
            }
        }
    }
}
