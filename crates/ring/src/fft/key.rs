//! How the spectra of a row of keys are kept: node by node, so that the transform that multiplies by them reads one stream.
//!
//! A node is the [`NODE`] points that the transform finishes at once (all points of a smaller degree). Within a node lie
//! groups of eight points, and within a group the columns of the row, eight real and eight imaginary parts each.

use super::LANES;
use super::kernel::{Complex, NODE, Simd8};
use crate::multiversion;

/// The numbers of a row of keys: k mask polynomials, then the body, or any other row of spectra.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFormat {
    /// f64: eight bytes a number.
    Float,
    /// Integers of 32 bits in the last column (the body) and of 40 bits in the others (the mask, whose rounding the secret
    /// key amplifies): numbers are rounded to multiples of 1 and of 1/256, and must stay within ±(2^31 - 1), where they
    /// saturate.
    Fixed,
}

impl KeyFormat {
    /// Bytes of a row of `columns` spectra of polynomials of `degree` coefficients, a degree that an [`FftPlan`] has.
    ///
    /// [`FftPlan`]: super::FftPlan
    ///
    /// # Panics
    /// If `degree` is below 2.
    #[must_use]
    pub fn row_bytes(self, degree: usize, columns: usize) -> usize {
        let node = NODE.min(degree / 2);
        let bytes = match self {
            KeyFormat::Float => Float::node_bytes(node, columns),
            KeyFormat::Fixed => Fixed::node_bytes(node, columns),
        };
        degree / 2 / node * bytes
    }
}

multiversion! {
/// Writes a row of keys from the spectra of its columns.
pub(super) fn pack<F: Format>(degree: usize, columns: usize, spectra: &[f64], row: &mut [u8]) {
    let node = NODE.min(degree / 2);
    for (index, bytes) in row
        .chunks_exact_mut(F::node_bytes(node, columns))
        .enumerate()
    {
        for column in 0..columns {
            let spectrum = &spectra[column * degree + 2 * node * index..][..2 * node];
            for (group, numbers) in spectrum.chunks_exact(2 * LANES).enumerate() {
                F::pack(bytes, node, columns, column, group, numbers);
            }
        }
    }
}
}

/// Brings rows of keys for points in nodes of [`NODE`] to the order in which a product of all of them at once reads: for each group of points and
/// each column the numbers of all rows, one row after the other.
pub(super) fn interleave<F: Format>(columns: usize, rows: &[u8], row_bytes: usize, out: &mut [u8]) {
    let count = rows.len() / row_bytes;
    for (row, bytes) in rows.chunks_exact(row_bytes).enumerate() {
        let nodes = bytes.chunks_exact(F::node_bytes(NODE, columns));
        for (index, node) in nodes.enumerate() {
            F::interleave(node, columns, index, (row, count), out);
        }
    }
}

/// One format, at compile time. A node has `points` points.
pub(super) trait Format: Copy {
    fn node_bytes(points: usize, columns: usize) -> usize;
    /// Writes eight real and eight imaginary parts.
    fn pack(
        node: &mut [u8],
        points: usize,
        columns: usize,
        column: usize,
        group: usize,
        numbers: &[f64],
    );
    /// # Safety
    /// `node` points to [`Format::node_bytes`] bytes; `column` and `group` are within; the processor runs V.
    unsafe fn load<V: Simd8>(
        node: *const u8,
        points: usize,
        columns: usize,
        column: usize,
        group: usize,
    ) -> Complex<V>;
    /// Writes node number `index` of a row, given by its number and how many there are, where [`Format::load_interleaved`] reads it.
    fn interleave(node: &[u8], columns: usize, index: usize, row: (usize, usize), out: &mut [u8]);
    /// Where the numbers of a column at a group of points begin, of `rows` interleaved rows: groups count over all nodes.
    fn interleaved(group: usize, columns: usize, column: usize, rows: usize) -> usize;
    /// The numbers of a row there, given in the same way.
    ///
    /// # Safety
    /// `at` points to the numbers of a column at a group of interleaved rows, of which there are so many; the processor runs V.
    unsafe fn load_interleaved<V: Simd8>(
        at: *const u8,
        row: (usize, usize),
        is_last_column: bool,
    ) -> Complex<V>;
}

#[derive(Clone, Copy)]
pub(super) struct Float;

#[derive(Clone, Copy)]
pub(super) struct Fixed;

impl Float {
    const GROUP: usize = 2 * LANES * size_of::<f64>();
}

impl Format for Float {
    fn node_bytes(points: usize, columns: usize) -> usize {
        points / LANES * columns * Self::GROUP
    }

    #[inline(always)]
    fn pack(
        node: &mut [u8],
        _: usize,
        columns: usize,
        column: usize,
        group: usize,
        numbers: &[f64],
    ) {
        let at = (group * columns + column) * Self::GROUP;
        node[at..at + Self::GROUP].copy_from_slice(bytemuck::cast_slice(numbers));
    }

    #[inline(always)]
    unsafe fn load<V: Simd8>(
        node: *const u8,
        _: usize,
        columns: usize,
        column: usize,
        group: usize,
    ) -> Complex<V> {
        // SAFETY: the caller's promise.
        unsafe {
            let at: *const f64 = node.add((group * columns + column) * Self::GROUP).cast();
            Complex {
                re: V::load(at),
                im: V::load(at.add(LANES)),
            }
        }
    }

    fn interleave(
        node: &[u8],
        columns: usize,
        index: usize,
        (row, count): (usize, usize),
        out: &mut [u8],
    ) {
        let parts = node.chunks_exact(columns * Self::GROUP);
        let first = index * (NODE / LANES);
        for (group, part) in parts.enumerate() {
            for (column, numbers) in part.chunks_exact(Self::GROUP).enumerate() {
                let at = Self::interleaved(first + group, columns, column, count);
                out[at + row * Self::GROUP..][..Self::GROUP].copy_from_slice(numbers);
            }
        }
    }

    #[inline(always)]
    fn interleaved(group: usize, columns: usize, column: usize, rows: usize) -> usize {
        (group * columns + column) * rows * Self::GROUP
    }

    #[inline(always)]
    unsafe fn load_interleaved<V: Simd8>(
        at: *const u8,
        (row, _): (usize, usize),
        _: bool,
    ) -> Complex<V> {
        // SAFETY: the caller's promise.
        unsafe { Self::load(at, LANES, 1, 0, row) }
    }
}

/// The integer nearest to `x`, if |x| < 2^51; any other number of at least that size otherwise.
#[inline(always)]
fn nearest(x: f64) -> f64 {
    /// 1.5·2^52, beside which an f64 has no fraction.
    const WHOLE: f64 = 6_755_399_441_055_744.0;
    (x + WHOLE) - WHOLE
}

impl Fixed {
    const GROUP: usize = 2 * LANES * size_of::<i32>();
    const LOW_GROUP: usize = 2 * LANES;
    /// 2^8, the weight of an integer's high part in units of its low part.
    const HIGH: f64 = 256.0;

    /// Where the low parts of a mask's group lie.
    #[inline(always)]
    fn low(points: usize, columns: usize, column: usize, group: usize) -> usize {
        points / LANES * columns * Self::GROUP + (group * (columns - 1) + column) * Self::LOW_GROUP
    }
}

impl Fixed {
    /// Eight numbers of their high and, in a mask, low parts.
    ///
    /// # Safety
    /// They point to a group of each; the processor runs V.
    #[inline(always)]
    unsafe fn numbers<V: Simd8>(high: *const u8, low: Option<*const u8>) -> Complex<V> {
        // SAFETY: the caller's promise.
        unsafe {
            let high: *const i32 = high.cast();
            let high = Complex {
                re: V::load_i32(high),
                im: V::load_i32(high.add(LANES)),
            };
            let Some(low) = low else {
                return high;
            };
            let low: *const i8 = low.cast();
            let unit = V::splat(1.0 / Self::HIGH);
            Complex {
                re: V::load_i8(low).mul_add(unit, high.re),
                im: V::load_i8(low.add(LANES)).mul_add(unit, high.im),
            }
        }
    }
}

impl Format for Fixed {
    fn node_bytes(points: usize, columns: usize) -> usize {
        points / LANES * (columns * Self::GROUP + columns.saturating_sub(1) * Self::LOW_GROUP)
    }

    #[inline(always)]
    fn pack(
        node: &mut [u8],
        points: usize,
        columns: usize,
        column: usize,
        group: usize,
        numbers: &[f64],
    ) {
        let at = (group * columns + column) * Self::GROUP;
        let low = (column + 1 < columns).then(|| Self::low(points, columns, column, group));
        let numbers: &[f64; 2 * LANES] = numbers.try_into().expect("a group");
        // Beyond the range `as` saturates, and so does the rest.
        let high = numbers.map(|number| nearest(number) as i32);
        node[at..at + Self::GROUP].copy_from_slice(bytemuck::bytes_of(&high));
        if let Some(low) = low {
            let mut rest = [0i8; 2 * LANES];
            for ((rest, number), high) in rest.iter_mut().zip(numbers).zip(high) {
                *rest = nearest((number - f64::from(high)) * Self::HIGH) as i8;
            }
            node[low..low + Self::LOW_GROUP].copy_from_slice(bytemuck::bytes_of(&rest));
        }
    }

    #[inline(always)]
    unsafe fn load<V: Simd8>(
        node: *const u8,
        points: usize,
        columns: usize,
        column: usize,
        group: usize,
    ) -> Complex<V> {
        // SAFETY: the caller's promise.
        unsafe {
            let high = node.add((group * columns + column) * Self::GROUP);
            let low =
                (column + 1 < columns).then(|| node.add(Self::low(points, columns, column, group)));
            Self::numbers(high, low)
        }
    }

    fn interleave(
        node: &[u8],
        columns: usize,
        index: usize,
        (row, count): (usize, usize),
        out: &mut [u8],
    ) {
        for group in 0..NODE / LANES {
            for column in 0..columns {
                let to = Self::interleaved(index * (NODE / LANES) + group, columns, column, count);
                let high = &node[(group * columns + column) * Self::GROUP..][..Self::GROUP];
                out[to + row * Self::GROUP..][..Self::GROUP].copy_from_slice(high);
                if column + 1 < columns {
                    let to = to + count * Self::GROUP + row * Self::LOW_GROUP;
                    let low = &node[Self::low(NODE, columns, column, group)..][..Self::LOW_GROUP];
                    out[to..to + Self::LOW_GROUP].copy_from_slice(low);
                }
            }
        }
    }

    #[inline(always)]
    fn interleaved(group: usize, columns: usize, column: usize, rows: usize) -> usize {
        let of_group = columns * Self::GROUP + (columns - 1) * Self::LOW_GROUP;
        rows * (group * of_group + column * (Self::GROUP + Self::LOW_GROUP))
    }

    #[inline(always)]
    unsafe fn load_interleaved<V: Simd8>(
        at: *const u8,
        (row, rows): (usize, usize),
        is_last_column: bool,
    ) -> Complex<V> {
        // SAFETY: the caller's promise.
        unsafe {
            let low = (!is_last_column).then(|| at.add(rows * Self::GROUP + row * Self::LOW_GROUP));
            Self::numbers(at.add(row * Self::GROUP), low)
        }
    }
}
