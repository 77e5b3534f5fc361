//! Degrees 16, 32 and 64, too small for nodes of 64 points: the same tree, divided by two all the way, in plain Rust.

use super::{AlignedVec, Angle, LANES};

/// The largest number of complex points that comes here.
const MAX_POINTS: usize = 32;

/// The factor d of every node (as real and imaginary part), the root first, depth by depth.
pub(super) fn twiddles(points: usize) -> AlignedVec {
    let mut factors = Vec::new();
    let mut nodes = vec![Angle::ROOT];
    while nodes.len() < points {
        for node in &nodes {
            let (re, im) = node.child(2, 0).power(1);
            factors.extend([re, im]);
        }
        nodes = nodes
            .iter()
            .flat_map(|node| [node.child(2, 0), node.child(2, 1)])
            .collect();
    }
    AlignedVec::from_slice(&factors)
}

pub(super) fn forward(twiddles: &[f64], coeffs: &[f64], spectrum: &mut [f64]) {
    let points = coeffs.len() / 2;
    let mut z = [(0.0, 0.0); MAX_POINTS];
    let z = &mut z[..points];
    for (j, z) in z.iter_mut().enumerate() {
        *z = (coeffs[j], coeffs[j + points]);
    }
    let mut factors = twiddles.chunks_exact(2);
    let mut size = points;
    while size > 1 {
        for (node, w) in z.chunks_exact_mut(size).zip(&mut factors) {
            let (low, high) = node.split_at_mut(size / 2);
            for (u, v) in low.iter_mut().zip(high) {
                let t = (v.0 * w[0] - v.1 * w[1], v.0 * w[1] + v.1 * w[0]);
                *v = (u.0 - t.0, u.1 - t.1);
                *u = (u.0 + t.0, u.1 + t.1);
            }
        }
        size /= 2;
    }
    for (block, z) in spectrum
        .chunks_exact_mut(2 * LANES)
        .zip(z.chunks_exact(LANES))
    {
        for (lane, z) in z.iter().enumerate() {
            (block[lane], block[lane + LANES]) = *z;
        }
    }
}

pub(super) fn inverse(twiddles: &[f64], spectrum: &[f64], coeffs: &mut [f64]) {
    let points = coeffs.len() / 2;
    let mut z = [(0.0, 0.0); MAX_POINTS];
    let z = &mut z[..points];
    for (block, z) in spectrum
        .chunks_exact(2 * LANES)
        .zip(z.chunks_exact_mut(LANES))
    {
        for (lane, z) in z.iter_mut().enumerate() {
            *z = (block[lane], block[lane + LANES]);
        }
    }
    let mut size = 2;
    while size <= points {
        // The depth with `points / size` nodes comes after the points / size - 1 nodes above it.
        let nodes = points / size;
        let factors = twiddles[2 * (nodes - 1)..].chunks_exact(2);
        for (node, w) in z.chunks_exact_mut(size).zip(factors) {
            let (low, high) = node.split_at_mut(size / 2);
            for (u, v) in low.iter_mut().zip(high) {
                let t = (u.0 - v.0, u.1 - v.1);
                *u = (u.0 + v.0, u.1 + v.1);
                *v = (t.0 * w[0] + t.1 * w[1], t.1 * w[0] - t.0 * w[1]);
            }
        }
        size *= 2;
    }
    for (j, z) in z.iter().enumerate() {
        (coeffs[j], coeffs[j + points]) = *z;
    }
}
