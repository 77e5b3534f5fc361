//! Negacyclic Fourier transform in f64 for the ring Z\[X\]/(X^N + 1).
//!
//! X^N + 1 = (X^M - i)(X^M + i) with M = N/2, and a real polynomial is determined by its residue modulo X^M - i, the
//! complex polynomial with coefficients z_j = a_j + i·a_{j+M}. The transform divides X^M - i into linear factors as
//! one divides X^L - c into the R factors X^{L/R} - d·ω^k (d^R = c, ω = exp(2πi/R)): multiply the R residues by
//! powers of d, then take a discrete Fourier transform of R points. So the twist by ζ = exp(iπ/N) costs nothing, and
//! one set of factors serves a whole node of the tree. The forward transform reads its input in order and leaves the
//! spectrum in the order of the leaves; the inverse walks the same tree upwards, so nothing is ever bit-reversed.
//!
//! The tree is cut into passes of radix 8, 4 or 2 ([`FftPlan`] holds their factors) down to nodes of 64 points, which
//! stay in registers: radix 8 across vectors, a transpose, radix 8 again. The walk is depth first, so that from the
//! second or third pass on a node fits into the first level of cache. The kernels are written once, in `fft/kernel.rs`,
//! over a vector of eight lanes; `fft/portable.rs`, `fft/avx2.rs` and `fft/avx512.rs` say what such a vector is.

mod aligned;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod kernel;
mod key;
mod portable;
mod rotation;
mod small;

pub use aligned::AlignedVec;
pub use key::KeyFormat;
pub use rotation::Rotations;

use crate::RingError;
use crate::simd::SimdLevel;
use kernel::{Keep, Leaf, MulAdd, NODE};
use key::{Fixed, Float, Format};
use rotation::{Product, Rotated};
use std::f64::consts::PI;
use std::marker::PhantomData;

/// Complex points in a block of the spectrum: eight real parts, then eight imaginary parts.
const LANES: usize = 8;

/// A polynomial whose coefficients are made as the transform takes them, from whatever they are stored as. Both methods
/// become part of a kernel: mark them `#[inline(always)]` and write plain loops, which the compiler vectorizes.
pub trait Coefficients: Copy {
    /// Coefficients `at` to `at + 7`; `at` is a multiple of eight.
    fn eight(self, at: usize) -> [f64; 8];
}

/// Takes the coefficients of a polynomial as the inverse transform makes them, each once.
pub trait Receiver {
    /// Coefficients `at` to `at + 7`; `at` is a multiple of eight.
    fn eight(&mut self, at: usize, coeffs: [f64; 8]);
}

impl Coefficients for &[f64] {
    #[inline(always)]
    fn eight(self, at: usize) -> [f64; 8] {
        self[at..at + 8].try_into().expect("eight numbers")
    }
}

impl Receiver for &mut [f64] {
    #[inline(always)]
    fn eight(&mut self, at: usize, coeffs: [f64; 8]) {
        self[at..at + 8].copy_from_slice(&coeffs);
    }
}

/// What [`FftPlan`] needs to transform polynomials of one degree: the instruction set and the factors.
///
/// A polynomial is a slice of N coefficients. Its spectrum is a slice of N numbers that hold N/2 complex points in
/// blocks of eight: eight real parts, then eight imaginary parts. [`FftPlan::natural_index`] says which point is where;
/// the order depends on N alone, not on the instruction set. Every method panics when a slice does not have the
/// length that it states. Slices that start on a multiple of 64 bytes ([`AlignedVec`]) are faster to work on.
#[derive(Clone, Debug)]
pub struct FftPlan {
    degree: usize,
    simd: SimdLevel,
    /// The passes above the nodes of 64 points, the root first. Not used for degrees below 128.
    passes: Vec<Pass>,
    /// For degrees from 128: the factors of every pass, then of every node of 64 points, in the order of their use.
    /// For degrees below 128: those of `small`.
    twiddles: AlignedVec,
    /// Where the factors of the nodes of 64 points start in `twiddles`.
    node_twiddles: usize,
}

/// A pass over all nodes of one depth of the tree.
#[derive(Clone, Copy, Debug)]
struct Pass {
    /// Into how many nodes each node is divided: 8, 4, 2, or 1 to copy.
    radix: usize,
    /// Complex points of a node.
    size: usize,
    /// Where the factors of the first node start: for each node the powers d, d^2, …, d^(radix-1), each as real and
    /// imaginary part, and each of these eight times over, a whole vector.
    twiddles: usize,
}

/// The angle of `c` in the node X^L - c, as the fraction `num / den` of a turn.
#[derive(Clone, Copy, Debug)]
struct Angle {
    num: usize,
    den: usize,
}

impl Angle {
    /// X^M - i, a quarter of a turn.
    const ROOT: Angle = Angle { num: 1, den: 4 };

    /// The angle of child `k` of `radix`; child 0 has the angle of the factor d.
    fn child(self, radix: usize, k: usize) -> Angle {
        Angle {
            num: self.num + k * self.den,
            den: self.den * radix,
        }
    }

    fn power(self, exponent: usize) -> (f64, f64) {
        turn(self.num * exponent, self.den)
    }
}

impl FftPlan {
    /// The smallest degree of a plan.
    pub const MIN_DEGREE: usize = 16;
    /// The largest degree of a plan.
    pub const MAX_DEGREE: usize = 1 << 17;

    /// A plan for polynomials of `degree` coefficients (N) on the best instruction set, [`SimdLevel::best`].
    ///
    /// # Errors
    /// [`RingError::Degree`] unless `degree` is a power of two from [`Self::MIN_DEGREE`] to [`Self::MAX_DEGREE`].
    pub fn new(degree: usize) -> Result<Self, RingError> {
        Self::with_simd(degree, SimdLevel::best())
    }

    /// A plan for polynomials of `degree` coefficients (N) on the instruction set `simd`.
    ///
    /// # Errors
    /// [`RingError::Degree`] as in [`Self::new`]; [`RingError::SimdLevelUnavailable`] if this processor cannot run `simd`.
    pub fn with_simd(degree: usize, simd: SimdLevel) -> Result<Self, RingError> {
        if !degree.is_power_of_two() || !(Self::MIN_DEGREE..=Self::MAX_DEGREE).contains(&degree) {
            return Err(RingError::Degree {
                found: degree,
                min: Self::MIN_DEGREE,
                max: Self::MAX_DEGREE,
            });
        }
        if !simd.is_available() {
            return Err(RingError::SimdLevelUnavailable(simd));
        }
        let points = degree / 2;
        let mut plan = FftPlan {
            degree,
            simd,
            passes: Vec::new(),
            twiddles: AlignedVec::zeroed(0),
            node_twiddles: 0,
        };
        if points < NODE {
            plan.twiddles = small::twiddles(points);
            return Ok(plan);
        }

        let mut factors: Vec<f64> = Vec::new();
        let mut nodes = vec![Angle::ROOT];
        let mut size = points;
        for radix in radices(points / NODE) {
            plan.passes.push(Pass {
                radix,
                size,
                twiddles: factors.len(),
            });
            for node in &nodes {
                let d = node.child(radix, 0);
                for power in 1..radix {
                    let (re, im) = d.power(power);
                    factors.extend([re; LANES]);
                    factors.extend([im; LANES]);
                }
            }
            nodes = nodes
                .iter()
                .flat_map(|node| (0..radix).map(|k| node.child(radix, k)))
                .collect();
            size /= radix;
        }
        plan.node_twiddles = factors.len();
        for node in &nodes {
            factors.extend(kernel::node_twiddles(*node));
        }
        plan.twiddles = AlignedVec::from_slice(&factors);
        Ok(plan)
    }

    /// The degree N: the coefficients of a polynomial, and the numbers of a spectrum.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// The instruction set of this plan.
    #[must_use]
    pub fn simd(&self) -> SimdLevel {
        self.simd
    }

    /// Which value of the polynomial is in `slot`: `e` says that point `slot` of the spectrum is the value of the
    /// polynomial at ζ^(4e+1), ζ = exp(iπ/N). Its real part is number `slot / 8 * 16 + slot % 8` of the spectrum, its
    /// imaginary part stands eight numbers further. A permutation of 0 … N/2-1.
    ///
    /// # Panics
    /// If `slot` is not below N/2.
    #[must_use]
    pub fn natural_index(&self, slot: usize) -> usize {
        let points = self.degree / 2;
        assert!(
            slot < points,
            "slot {slot} of a spectrum of {points} points"
        );
        let mut angle = Angle::ROOT;
        let mut size = points;
        let mut rest = slot;
        let mut descend = |size: &mut usize, radix: usize| {
            *size /= radix;
            angle = angle.child(radix, rest / *size);
            rest %= *size;
        };
        if points < NODE {
            while size > 1 {
                descend(&mut size, 2);
            }
        } else {
            for pass in &self.passes {
                descend(&mut size, pass.radix);
            }
            angle = angle.child(8, rest % 8).child(8, rest / 8);
        }
        (angle.num - 1) / 4
    }

    /// The spectrum of the polynomial `coeffs`. Both have N numbers.
    ///
    /// # Panics
    /// If a slice has another length.
    pub fn forward(&self, coeffs: &[f64], spectrum: &mut [f64]) {
        self.check("coefficients", coeffs.len());
        self.forward_from(coeffs, spectrum);
    }

    /// [`Self::forward`] from coefficients as they are made.
    ///
    /// # Panics
    /// If `spectrum` does not have N numbers.
    pub fn forward_from(&self, coeffs: impl Coefficients, spectrum: &mut [f64]) {
        self.forward_asking(coeffs, spectrum, &[]);
    }

    /// [`Self::forward_from`], while it asks for bytes that will be read after it.
    ///
    /// # Panics
    /// If `spectrum` does not have N numbers.
    pub fn forward_asking(&self, coeffs: impl Coefficients, spectrum: &mut [f64], wanted: &[u8]) {
        self.fold(coeffs, spectrum, &[]);
        if self.degree / 2 >= NODE {
            let keep = Keep {
                ahead: wanted.as_ptr(),
                share: wanted.len() / (self.degree / 2 / NODE),
            };
            // SAFETY: `fold` checks the length.
            unsafe { self.descend(spectrum, keep) }
        }
    }

    /// The powers of X at the points of the spectrum; none for degrees below 128.
    #[must_use]
    pub fn rotations(&self) -> Option<Rotations> {
        Rotations::new(self)
    }

    /// `sums[c] = Σ_i (X^e_i - 1)·Σ_r spectra[r]·keys[i][r][c]` for i = 0, 1, 2, with e_2 = e_0 + e_1: three times as many rows of keys
    /// in this format as there are spectra, of as many columns as `sums` has, in the order of [`Self::interleave_keys`]. `spectra` and `sums` hold theirs one after
    /// the other, N numbers each. `rotations` are those of this plan.
    ///
    /// # Panics
    /// If a slice has another length, or `rotations` are those of another degree.
    pub fn mul_rotated(
        &self,
        rotations: &Rotations,
        spectra: &[f64],
        format: KeyFormat,
        keys: &[u8],
        exponents: [usize; 2],
        sums: &mut [f64],
    ) {
        let (rows, columns) = (spectra.len() / self.degree, sums.len() / self.degree);
        let row_bytes = format.row_bytes(self.degree, columns);
        assert!(
            rows > 0
                && rotations.is_of(self)
                && spectra.len() == rows * self.degree
                && sums.len() == columns * self.degree
                && keys.len() == 3 * rows * row_bytes,
            "{} numbers of spectra, {} bytes of keys and {} numbers of sums at degree {}",
            spectra.len(),
            keys.len(),
            sums.len(),
            self.degree
        );
        macro_rules! product {
            ($format:ty, $rows:literal, $columns:literal) => {
                self.run(Rotated::<$format, $rows, $columns> {
                    rotations,
                    spectra: spectra.as_ptr(),
                    keys: keys.as_ptr(),
                    exponents,
                    sums: sums.as_mut_ptr(),
                    degree: self.degree,
                    rows,
                    columns,
                    format: PhantomData,
                })
            };
        }
        // SAFETY: the lengths are checked above. The numbers of rows are those of the sets for which it matters.
        unsafe {
            match (format, rows, columns) {
                (KeyFormat::Float, 2, 2) => product!(Float, 2, 2),
                (KeyFormat::Float, _, _) => product!(Float, 0, 0),
                (KeyFormat::Fixed, 6, 2) => product!(Fixed, 6, 2),
                (KeyFormat::Fixed, _, _) => product!(Fixed, 0, 0),
            }
        }
    }

    /// Brings rows of keys in this format, for `columns` columns and one after the other, to the order in which [`Self::mul_rotated`] reads them. They
    /// take the same memory.
    ///
    /// # Panics
    /// If the degree is below 128, or `rows` are not whole rows.
    pub fn interleave_keys(&self, format: KeyFormat, columns: usize, rows: &mut [u8]) {
        let row_bytes = format.row_bytes(self.degree, columns);
        assert!(
            self.degree / 2 >= NODE && rows.len().is_multiple_of(row_bytes),
            "{} bytes of rows of {row_bytes} at degree {}",
            rows.len(),
            self.degree
        );
        let before = rows.to_vec();
        let interleave = match format {
            KeyFormat::Float => key::interleave::<Float>,
            KeyFormat::Fixed => key::interleave::<Fixed>,
        };
        interleave(columns, &before, row_bytes, rows);
    }

    /// # Safety
    /// What `product` points to has the lengths that it states.
    unsafe fn run(&self, product: impl Product) {
        // SAFETY: the caller's promise; the processor runs `self.simd`, checked when the plan was made.
        unsafe {
            match self.simd {
                #[cfg(target_arch = "x86_64")]
                SimdLevel::Avx512 => avx512::run(product),
                #[cfg(target_arch = "x86_64")]
                SimdLevel::Avx2 => avx2::run(product),
                _ => portable::run(product),
            }
        }
    }

    /// Writes a row of keys in this format: `spectra` holds the columns' spectra one after the other, N numbers each.
    ///
    /// # Panics
    /// If `spectra` are not whole columns, or `row` does not have [`KeyFormat::row_bytes`].
    pub fn pack_key(&self, format: KeyFormat, spectra: &[f64], row: &mut [u8]) {
        let columns = spectra.len() / self.degree;
        assert!(
            spectra.len().is_multiple_of(self.degree),
            "columns have {} numbers each, not {} together",
            self.degree,
            spectra.len()
        );
        assert_eq!(
            row.len(),
            format.row_bytes(self.degree, columns),
            "bytes of keys for {columns} columns"
        );
        let pack = match format {
            KeyFormat::Float => key::pack::<Float>,
            KeyFormat::Fixed => key::pack::<Fixed>,
        };
        pack(self.simd, self.degree, columns, spectra, row);
    }

    /// `sums[c] += spectrum(coeffs)·key[c]`, point by point, for the columns c = 0, 1, … of a row of keys in this format
    /// ([`Self::pack_key`]); without `ADD`, `sums` is overwritten. `sums` holds the columns' spectra one after the other,
    /// N numbers each; `scratch` has N numbers and holds nothing of use afterwards.
    ///
    /// The products are made of each part of the spectrum while it is in registers, and keys are asked for ahead, so that
    /// reading them from memory overlaps the transform.
    ///
    /// # Panics
    /// If a slice has another length.
    pub fn forward_mul_add<const ADD: bool>(
        &self,
        coeffs: impl Coefficients,
        scratch: &mut [f64],
        format: KeyFormat,
        key: &[u8],
        sums: &mut [f64],
    ) {
        let columns = sums.len() / self.degree;
        assert!(
            sums.len().is_multiple_of(self.degree),
            "columns have {} numbers each, not {} together",
            self.degree,
            sums.len()
        );
        assert_eq!(
            key.len(),
            format.row_bytes(self.degree, columns),
            "bytes of keys for {columns} columns"
        );
        self.fold(coeffs, scratch, key);
        // SAFETY: the lengths are checked above.
        unsafe { self.descend_row(scratch, format, key, sums, ADD) }
    }

    /// The part of [`Self::forward_mul_add`] after the pass at the root. Not generic, so that it is compiled here, once.
    ///
    /// # Safety
    /// The slices have the lengths that [`Self::forward_mul_add`] asks for.
    unsafe fn descend_row(
        &self,
        spectrum: &mut [f64],
        format: KeyFormat,
        key: &[u8],
        sums: &mut [f64],
        add: bool,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            match (format, add) {
                (KeyFormat::Float, false) => {
                    self.descend_mul_add::<Float, false>(spectrum, key, sums)
                }
                (KeyFormat::Float, true) => {
                    self.descend_mul_add::<Float, true>(spectrum, key, sums)
                }
                (KeyFormat::Fixed, false) => {
                    self.descend_mul_add::<Fixed, false>(spectrum, key, sums)
                }
                (KeyFormat::Fixed, true) => {
                    self.descend_mul_add::<Fixed, true>(spectrum, key, sums)
                }
            }
        }
    }

    /// The pass at the root, which asks for the first bytes of `key`; for degrees below 128 the whole transform.
    fn fold(&self, coeffs: impl Coefficients, spectrum: &mut [f64], key: &[u8]) {
        self.check("spectrum", spectrum.len());
        if self.degree / 2 < NODE {
            let mut polynomial = [0.0; 2 * NODE];
            let polynomial = &mut polynomial[..self.degree];
            for (index, numbers) in polynomial.chunks_exact_mut(LANES).enumerate() {
                numbers.copy_from_slice(&coeffs.eight(LANES * index));
            }
            return small::forward(&self.twiddles, polynomial, spectrum);
        }
        let (spectrum, key) = (spectrum.as_mut_ptr(), key.as_ptr());
        // SAFETY: the length is checked above; the processor runs `self.simd`, checked when the plan was made.
        unsafe {
            match self.simd {
                #[cfg(target_arch = "x86_64")]
                SimdLevel::Avx512 => avx512::fold(self, coeffs, spectrum, key),
                #[cfg(target_arch = "x86_64")]
                SimdLevel::Avx2 => avx2::fold(self, coeffs, spectrum, key),
                _ => portable::fold(self, coeffs, spectrum, key),
            }
        }
    }

    /// The passes below the root.
    ///
    /// # Safety
    /// `spectrum` has N numbers, N >= 128; what `leaf` points to has the lengths that it states.
    unsafe fn descend(&self, spectrum: &mut [f64], leaf: impl Leaf) {
        let spectrum = spectrum.as_mut_ptr();
        // SAFETY: the caller's promise; the processor runs `self.simd`, checked when the plan was made.
        unsafe {
            match self.simd {
                #[cfg(target_arch = "x86_64")]
                SimdLevel::Avx512 => avx512::descend(self, spectrum, leaf),
                #[cfg(target_arch = "x86_64")]
                SimdLevel::Avx2 => avx2::descend(self, spectrum, leaf),
                _ => portable::descend(self, spectrum, leaf),
            }
        }
    }

    /// # Safety
    /// The slices have the lengths that [`Self::forward_mul_add`] asks for.
    unsafe fn descend_mul_add<F: Format, const ADD: bool>(
        &self,
        spectrum: &mut [f64],
        key: &[u8],
        sums: &mut [f64],
    ) {
        let columns = sums.len() / self.degree;
        let (key, sums) = (key.as_ptr(), sums.as_mut_ptr());
        macro_rules! leaf {
            ($columns:literal) => {
                MulAdd::<F, ADD, $columns> {
                    key,
                    sums,
                    columns,
                    degree: self.degree,
                    format: PhantomData,
                }
            };
        }
        // SAFETY: the caller's promise; a row of a small degree is one node. Two columns are those of every GLWE sample
        // with one mask polynomial, four are two halves of each.
        unsafe {
            if self.degree / 2 < NODE {
                portable::mul_node(leaf!(0), spectrum);
            } else if columns == 2 {
                self.descend(spectrum, leaf!(2));
            } else if columns == 4 {
                self.descend(spectrum, leaf!(4));
            } else {
                self.descend(spectrum, leaf!(0));
            }
        }
    }

    /// N/2 times the polynomial whose spectrum is given, so that `inverse(forward(x)) = (N/2)·x`. Both slices have N
    /// numbers; the spectrum serves as scratch and holds nothing of use afterwards.
    ///
    /// # Panics
    /// If a slice has another length.
    pub fn inverse(&self, spectrum: &mut [f64], coeffs: &mut [f64]) {
        self.check("coefficients", coeffs.len());
        self.inverse_into(spectrum, coeffs);
    }

    /// [`Self::inverse`], its result given to `coeffs` while it is in registers.
    ///
    /// # Panics
    /// If `spectrum` does not have N numbers.
    pub fn inverse_into(&self, spectrum: &mut [f64], mut coeffs: impl Receiver) {
        self.check("spectrum", spectrum.len());
        if self.degree / 2 < NODE {
            let mut polynomial = [0.0; 2 * NODE];
            let polynomial = &mut polynomial[..self.degree];
            small::inverse(&self.twiddles, spectrum, polynomial);
            for (index, numbers) in polynomial.chunks_exact(LANES).enumerate() {
                coeffs.eight(LANES * index, numbers.try_into().expect("eight numbers"));
            }
            return;
        }
        self.ascend(spectrum);
        let spectrum = spectrum.as_mut_ptr();
        // SAFETY: the length is checked above; the processor runs `self.simd`, checked when the plan was made.
        unsafe {
            match self.simd {
                #[cfg(target_arch = "x86_64")]
                SimdLevel::Avx512 => avx512::unfold(self, spectrum, coeffs),
                #[cfg(target_arch = "x86_64")]
                SimdLevel::Avx2 => avx2::unfold(self, spectrum, coeffs),
                _ => portable::unfold(self, spectrum, coeffs),
            }
        }
    }

    /// The passes below the root, backwards. For degrees from 128.
    fn ascend(&self, spectrum: &mut [f64]) {
        self.check("spectrum", spectrum.len());
        let spectrum = spectrum.as_mut_ptr();
        // SAFETY: the length is checked above; the processor runs `self.simd`, checked when the plan was made.
        unsafe {
            match self.simd {
                #[cfg(target_arch = "x86_64")]
                SimdLevel::Avx512 => avx512::ascend(self, spectrum),
                #[cfg(target_arch = "x86_64")]
                SimdLevel::Avx2 => avx2::ascend(self, spectrum),
                _ => portable::ascend(self, spectrum),
            }
        }
    }

    /// `out = a·b`, point by point; all are spectra of N numbers.
    ///
    /// # Panics
    /// If a slice has another length.
    pub fn mul_into(&self, out: &mut [f64], a: &[f64], b: &[f64]) {
        self.mul_rows::<false>(out, &[a], &[b]);
    }

    /// `acc += a·b`, point by point; all are spectra of N numbers.
    ///
    /// # Panics
    /// If a slice has another length.
    pub fn mul_add_assign(&self, acc: &mut [f64], a: &[f64], b: &[f64]) {
        self.mul_rows::<true>(acc, &[a], &[b]);
    }

    /// `acc += Σ rows[i]·keys[i]`, point by point; all are spectra of N numbers. `acc` is read and written once.
    ///
    /// # Panics
    /// If a slice has another length, or there are not as many keys as rows.
    pub fn mul_add_rows(&self, acc: &mut [f64], rows: &[&[f64]], keys: &[&[f64]]) {
        self.mul_rows::<true>(acc, rows, keys);
    }

    fn mul_rows<const ADD: bool>(&self, acc: &mut [f64], rows: &[&[f64]], keys: &[&[f64]]) {
        assert_eq!(
            rows.len(),
            keys.len(),
            "{} rows to multiply by {} keys",
            rows.len(),
            keys.len()
        );
        self.check("accumulator", acc.len());
        for operand in rows.iter().chain(keys) {
            self.check("operand", operand.len());
        }
        // SAFETY: the lengths are checked above; the processor runs `self.simd`, checked when the plan was made.
        unsafe {
            match self.simd {
                #[cfg(target_arch = "x86_64")]
                SimdLevel::Avx512 => avx512::mul_rows::<ADD>(acc, rows, keys),
                #[cfg(target_arch = "x86_64")]
                SimdLevel::Avx2 => avx2::mul_rows::<ADD>(acc, rows, keys),
                _ => portable::mul_rows::<ADD>(acc, rows, keys),
            }
        }
    }

    fn check(&self, what: &str, len: usize) {
        let degree = self.degree;
        assert!(
            len == degree,
            "{what} of {len} numbers given to a transform of degree {degree}"
        );
    }
}

/// The radices of the passes that divide `count` nodes (a power of two) off the root; a single 1 stands for the pass
/// that only folds the input. Larger radices come last: the first pass of a large transform streams from memory, and
/// with radix 8 it would read 16 lines that share a set of the first level of cache.
fn radices(count: usize) -> Vec<usize> {
    let levels = count.trailing_zeros() as usize;
    let (first, eights): (&[usize], _) = match (levels, levels % 3) {
        (0, _) => (&[1], 0),
        (1, _) => (&[2], 0),
        (3, _) => (&[8], 0),
        (_, 0) => (&[2, 4], levels / 3 - 1),
        (_, 1) => (&[4, 4], levels / 3 - 1),
        _ => (&[4], levels / 3),
    };
    [first, &vec![8; eights]].concat()
}

/// `exp(2πi·num/den)` as (real, imaginary), each within one unit in the last place; `den` is a power of two.
///
/// The angle is reduced exactly to an eighth of a turn, and the rounding of the product by π is carried along.
fn turn(num: usize, den: usize) -> (f64, f64) {
    /// π - `PI`.
    const PI_LOW: f64 = 1.224_646_799_147_353_2e-16;
    let num = num % den;
    // In eighths of a turn: which one, and how far into it.
    let octant = 8 * num / den;
    let within = 8 * num % den;
    let from_axis = if octant.is_multiple_of(2) {
        within
    } else {
        den - within
    };
    let half_turns = from_axis as f64 / (4 * den) as f64;
    let high = PI * half_turns;
    let low = f64::mul_add(PI, half_turns, -high) + PI_LOW * half_turns;
    let (s, c) = high.sin_cos();
    let (sin, cos) = (f64::mul_add(low, c, s), f64::mul_add(-low, s, c));
    match octant {
        0 => (cos, sin),
        1 => (sin, cos),
        2 => (-sin, cos),
        3 => (-cos, sin),
        4 => (-cos, -sin),
        5 => (-sin, -cos),
        6 => (sin, -cos),
        _ => (cos, -sin),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_exact_on_the_axes_and_diagonals() {
        let half = std::f64::consts::FRAC_1_SQRT_2;
        for den in [8, 64, 1 << 18] {
            let eighth = den / 8;
            let expected = [
                (1.0, 0.0),
                (half, half),
                (0.0, 1.0),
                (-half, half),
                (-1.0, 0.0),
                (-half, -half),
                (0.0, -1.0),
                (half, -half),
            ];
            for (k, (re, im)) in expected.into_iter().enumerate() {
                let (c, s) = turn(k * eighth + 3 * den, den);
                assert!(
                    (c - re).abs() <= 2e-16 && (s - im).abs() <= 2e-16,
                    "{k}/8: {c} {s}"
                );
            }
        }
    }

    #[test]
    fn radices_multiply_to_the_number_of_nodes() {
        for levels in 0..=10 {
            assert_eq!(radices(1 << levels).iter().product::<usize>(), 1 << levels);
        }
    }
}
