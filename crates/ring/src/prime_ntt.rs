//! Negacyclic number-theoretic transforms modulo primes of word size, q = 1 modulo 2N.
//!
//! The conventions are those of [`NttPlan`](crate::ntt::NttPlan): position `i` of the values is
//! `f(psi^(2·rev(i) + 1))`, where `rev` reverses the log2(N) bits of `i` and psi is [`prime::psi`]; input is in natural,
//! output in bit-reversed order; neither transform is normalized: `inverse(forward(f)) = N·f`.
//!
//! Three kinds of plan: [`Ntt50Plan`] for primes below 2^50, [`Ntt32Plan`] for primes below 2^31 in words of 32 bits and
//! [`Ntt63Plan`] for primes below 2^63. [`Ntt50Plan`] also has products with prepared keys, summed on the way.
//!
//! The passes are written once, in `prime_ntt/kernel.rs`, over vectors of residues with their butterflies: radix 8 (or
//! 4, 2) column by column, depth first, so that from the second or third pass on a node fits into the first level of
//! cache, down to leaves of eight vectors, which stay in registers: across vectors, a transpose, across vectors again.
//! `prime_ntt/double.rs` has the butterflies on f64 for primes below 2^50, `prime_ntt/ifma.rs` those on words of 52 bits
//! for processors that have their products (IFMA), `prime_ntt/residue.rs` those on words; `prime_ntt/avx2.rs` and
//! `prime_ntt/avx512.rs` say what vectors are, and `prime_ntt/portable.rs` is plain Rust.
//!
//! # What bounds the kernels
//!
//! Operations of one forward butterfly on a whole vector, products and all (loads and stores run beside them):
//!
//! | plan | operations | of these, on the multipliers |
//! | --- | --- | --- |
//! | 50 bits, IFMA | 9 | 3 |
//! | below 2^49 or just above, IFMA | 7 (6, and 12 a pass of twelve to settle elements) | 3.3 |
//! | 50 bits, f64 | 8 | 4 |
//! | below 2^30, 32-bit lanes | 12 | 4 |
//! | below 2^31 | 15 | 4 |
//! | below 2^62, AVX-512 | 18 | 5 |
//! | below 2^63, AVX-512 | 24 | 6 |
//!
//! On Zen 4, independent 512-bit operations in the mix of the IFMA butterfly start at 2 per cycle, those of the f64
//! butterfly at 1.6, so that the one with more operations is faster: 4.5 against 5.1 cycles at best; in radix-8 nodes in
//! the first level of cache, the time of one is to that of the other as 0.87. Radix 16 is slower than radix 8 with
//! either (by 19 and 8 %). N = 16384 takes 26.8 µs, 98,000 cycles at 3.65 GHz (with f64, 30.4 µs): 14336 butterflies,
//! and in the 256 leaves two transposes and the reduction to canonical words.
//!
//! One of many moduli in turn finds neither its words nor its tables in the second level of cache. At N = 65536, tables of a megabyte for
//! each direction then took as long as the arithmetic: on an Intel Xeon with AVX-512 IFMA (2 MiB in the second level, a busy machine), 233 µs modulo
//! one of 31 primes in turn and 104 µs modulo one prime. The kernels with IFMA therefore keep 0.33 MB, by which the former takes 119 to 136 µs.
//! Modulo one prime in the cache, N = 16384 takes 21.0 µs below 2^49 and 22.8 µs below 2^50 (22.6 µs for both before elements grew freely).

use crate::RingError;
use crate::prime;
use crate::simd::SimdLevel;
#[cfg(target_arch = "x86_64")]
use avx2::F64x4;
#[cfg(target_arch = "x86_64")]
use avx512::F64x8;
#[cfg(target_arch = "x86_64")]
use double::MulAdd;
#[cfg(target_arch = "x86_64")]
use kernel::Vector;
#[cfg(target_arch = "x86_64")]
use tables::{Forms, Growth, Layout, Tables};
use tables::{Modulus, powers_bit_reversed, shoup};

/// The functions through which the kernels are compiled for an instruction set.
#[cfg(target_arch = "x86_64")]
macro_rules! runners {
    ($features:literal) => {
        /// # Safety
        /// See [`Task::run`](super::task::Task::run).
        #[target_feature(enable = $features)]
        pub(super) unsafe fn run<F, T>(task: T)
        where
            F: super::kernel::Field,
            T: super::task::Task<super::kernel::WordOf<F>>,
        {
            // SAFETY: the caller's promise.
            unsafe { task.run::<F>() }
        }

        /// # Safety
        /// See [`DoublesTask::run`](super::task::DoublesTask::run).
        #[target_feature(enable = $features)]
        pub(super) unsafe fn run_doubles<F, T>(task: T)
        where
            F: super::double::Elements,
            T: super::task::DoublesTask,
        {
            // SAFETY: the caller's promise.
            unsafe { task.run::<F>() }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod double;
#[cfg(target_arch = "x86_64")]
mod ifma;
#[cfg(target_arch = "x86_64")]
mod kernel;
mod portable;
#[cfg(target_arch = "x86_64")]
mod residue;
mod tables;
#[cfg(target_arch = "x86_64")]
mod task;
mod word;

#[cfg(target_arch = "x86_64")]
use sealed::Unit;
#[cfg(target_arch = "x86_64")]
use task::{DoublesTask, Task};
pub use word::Word;

/// A plan for primes below 2^31 in words of 32 bits.
pub type Ntt32Plan = PrimeNttPlan<Bits31>;
/// A plan for primes below 2^50 in words of 64 bits.
pub type Ntt50Plan = PrimeNttPlan<Bits50>;
/// A plan for primes below 2^63 in words of 64 bits.
pub type Ntt63Plan = PrimeNttPlan<Bits63>;

/// The smallest degree of a plan.
pub const MIN_DEGREE: usize = 2;
/// The largest degree of a plan.
pub const MAX_DEGREE: usize = 1 << 17;

/// A kind of prime moduli: [`Bits31`], [`Bits50`] or [`Bits63`].
pub trait Kind: sealed::Vectors {
    /// The moduli are below 2 to this power.
    const BITS: u32;
}

/// Primes below 2^31, words of 32 bits.
#[derive(Clone, Copy, Debug)]
pub struct Bits31;

/// Primes below 2^50, words of 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct Bits50;

/// Primes below 2^63, words of 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct Bits63;

impl Kind for Bits31 {
    const BITS: u32 = 31;
}

impl Kind for Bits50 {
    const BITS: u32 = 50;
}

impl Kind for Bits63 {
    const BITS: u32 = 63;
}

mod sealed {
    use super::Word;
    #[cfg(target_arch = "x86_64")]
    use crate::simd::SimdLevel;

    /// The vectors that a plan runs on.
    #[derive(Clone, Copy, Debug)]
    #[cfg(target_arch = "x86_64")]
    pub enum Unit {
        Avx2,
        Avx512,
        /// AVX-512 with products of 52-bit integers.
        Ifma,
    }

    #[cfg(target_arch = "x86_64")]
    impl Unit {
        /// The best of an instruction set that this processor runs; none for plain Rust.
        pub(super) fn best(simd: SimdLevel) -> Option<Self> {
            match simd {
                SimdLevel::Portable => None,
                SimdLevel::Avx2 => Some(Unit::Avx2),
                SimdLevel::Avx512 if is_x86_feature_detected!("avx512ifma") => Some(Unit::Ifma),
                SimdLevel::Avx512 => Some(Unit::Avx512),
            }
        }
    }

    /// The vector kernels of a kind.
    pub trait Vectors: Copy + std::fmt::Debug {
        /// The words of polynomials.
        type Word: Word;

        /// What the tables of the vector kernel need to know.
        #[cfg(target_arch = "x86_64")]
        fn layout(unit: Unit, q: u64) -> super::tables::Layout<Self::Word>;

        /// # Safety
        /// The processor has `unit`; the rest as for `Task::run`.
        #[cfg(target_arch = "x86_64")]
        unsafe fn run(unit: Unit, q: u64, task: impl super::task::Task<Self::Word>);

        /// For tasks that work with twiddles of [`Tables`](super::tables::Tables).
        ///
        /// # Safety
        /// As for [`Vectors::run`].
        #[cfg(target_arch = "x86_64")]
        unsafe fn transform(unit: Unit, q: u64, task: impl super::task::Task<Self::Word>);
    }
}

/// A kind with its words, its vectors with AVX2 and AVX-512, its forms of numbers by unit and modulus, and the arithmetic of words and of
/// transforms, given the vectors and the modulus.
macro_rules! kind {
    ($kind:ident, $word:ty, $avx2:ident, $avx512:ident, $forms:expr, $run:ident, $transform:ident) => {
        impl sealed::Vectors for $kind {
            type Word = $word;

            #[cfg(target_arch = "x86_64")]
            fn layout(unit: Unit, q: u64) -> Layout<$word> {
                let (lanes, block_of_lane): (usize, fn(usize) -> usize) = match unit {
                    Unit::Avx2 => (avx2::$avx2::LANES, avx2::$avx2::block_of_lane),
                    _ => (avx512::$avx512::LANES, avx512::$avx512::block_of_lane),
                };
                Layout {
                    lanes,
                    block_of_lane,
                    forms: $forms(unit, q),
                }
            }

            #[cfg(target_arch = "x86_64")]
            unsafe fn run(unit: Unit, q: u64, task: impl Task<$word>) {
                // SAFETY: the caller's promise.
                unsafe { $run!(unit, $avx2, $avx512, q, task) }
            }

            #[cfg(target_arch = "x86_64")]
            unsafe fn transform(unit: Unit, q: u64, task: impl Task<$word>) {
                // SAFETY: the caller's promise.
                unsafe { $transform!(unit, $avx2, $avx512, q, task) }
            }
        }
    };
}

/// The forms of [`residue`].
#[cfg(target_arch = "x86_64")]
fn forms_of_words<W: Word>(_: Unit, _: u64) -> Forms<W> {
    Forms::uniform(shoup, Growth::NONE)
}

/// The forms of primes below 2^50.
#[cfg(target_arch = "x86_64")]
fn forms_of_bits50(unit: Unit, q: u64) -> Forms<u64> {
    match unit {
        Unit::Ifma if ifma::is_lazy(q) => ifma::lazy_forms(q),
        Unit::Ifma => ifma::forms(),
        Unit::Avx2 | Unit::Avx512 => Forms::uniform(double::twiddle, double::growth(q)),
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! run_doubles {
    ($unit:ident, $avx2:ident, $avx512:ident, $q:ident, $task:ident) => {{
        let _ = $q;
        match $unit {
            Unit::Avx2 => avx2::run::<double::Residues<avx2::$avx2>, _>($task),
            Unit::Avx512 => avx512::run::<double::Residues<avx512::$avx512>, _>($task),
            Unit::Ifma => ifma::run::<ifma::Integers, _>($task),
        }
    }};
}

#[cfg(target_arch = "x86_64")]
macro_rules! transform_doubles {
    ($unit:ident, $avx2:ident, $avx512:ident, $q:ident, $task:ident) => {{
        match $unit {
            Unit::Ifma if ifma::is_lazy($q) => ifma::run::<ifma::Lazy, _>($task),
            _ => run_doubles!($unit, $avx2, $avx512, $q, $task),
        }
    }};
}

#[cfg(target_arch = "x86_64")]
macro_rules! run_words {
    ($unit:ident, $avx2:ident, $avx512:ident, $q:ident, $task:ident) => {{
        let lazy = $q >> (<<avx2::$avx2 as Vector>::Word as Word>::BITS - 2) == 0;
        match ($unit, lazy) {
            (Unit::Avx2, true) => avx2::run::<residue::Residues<avx2::$avx2, true>, _>($task),
            (Unit::Avx2, false) => avx2::run::<residue::Residues<avx2::$avx2, false>, _>($task),
            (_, true) => avx512::run::<residue::Residues<avx512::$avx512, true>, _>($task),
            (_, false) => avx512::run::<residue::Residues<avx512::$avx512, false>, _>($task),
        }
    }};
}

kind!(
    Bits31,
    u32,
    U32x8,
    U32x16,
    forms_of_words,
    run_words,
    run_words
);
kind!(
    Bits50,
    u64,
    F64x4,
    F64x8,
    forms_of_bits50,
    run_doubles,
    transform_doubles
);
kind!(
    Bits63,
    u64,
    U64x4,
    U64x8,
    forms_of_words,
    run_words,
    run_words
);

/// The twiddles of one ring degree and one modulus, and the choice of kernel.
///
/// A polynomial is a slice of N canonical words, below q. Slices that start on a multiple of 64 bytes are faster to
/// work on.
#[derive(Clone, Debug)]
pub struct PrimeNttPlan<K: Kind> {
    degree: usize,
    q: u64,
    psi: u64,
    simd: SimdLevel,
    modulus: Modulus<K::Word>,
    kernel: Kernel<K::Word>,
}

/// Each kernel with its twiddles, forward and inverse.
#[derive(Clone, Debug)]
enum Kernel<W> {
    Portable {
        forward: Vec<[W; 2]>,
        inverse: Vec<[W; 2]>,
    },
    #[cfg(target_arch = "x86_64")]
    Vectors {
        unit: Unit,
        forward: Tables<W>,
        inverse: Tables<W>,
    },
}

impl<K: Kind> PrimeNttPlan<K> {
    /// A plan for the degree `n`, a power of two from [`MIN_DEGREE`] to [`MAX_DEGREE`], and the prime `q`, with the best
    /// kernel of this processor.
    ///
    /// # Errors
    /// [`RingError::Degree`] for any other `n`; [`RingError::ModulusTooLarge`] unless `q` is below 2^[`Kind::BITS`];
    /// [`RingError::NotPrime`]; [`RingError::NoRoot`] unless 2n divides q - 1.
    pub fn new(n: usize, q: u64) -> Result<Self, RingError> {
        Self::with_simd(n, q, SimdLevel::best())
    }

    /// A plan with the kernel of an instruction set; for degrees below 16 vectors that is always the portable one.
    ///
    /// # Errors
    /// As for [`PrimeNttPlan::new`], and [`RingError::SimdLevelUnavailable`] where the processor lacks `simd`.
    pub fn with_simd(n: usize, q: u64, simd: SimdLevel) -> Result<Self, RingError> {
        if !n.is_power_of_two() || !(MIN_DEGREE..=MAX_DEGREE).contains(&n) {
            return Err(RingError::Degree {
                found: n,
                min: MIN_DEGREE,
                max: MAX_DEGREE,
            });
        }
        if q >> K::BITS != 0 {
            return Err(RingError::ModulusTooLarge {
                found: q,
                bits: K::BITS,
            });
        }
        let psi = prime::psi(n, q)?;
        if !simd.is_available() {
            return Err(RingError::SimdLevelUnavailable(simd));
        }
        let roots = [psi, prime::inv(psi, q)].map(|root| powers_bit_reversed(root, n, q));
        Ok(Self {
            degree: n,
            q,
            psi,
            simd,
            modulus: Modulus::new(q),
            kernel: Self::kernel(simd, q, roots),
        })
    }

    fn kernel(simd: SimdLevel, q: u64, roots: [Vec<u64>; 2]) -> Kernel<K::Word> {
        #[cfg(target_arch = "x86_64")]
        if let Some(unit) = Unit::best(simd)
            && let layout = K::layout(unit, q)
            && roots[0].len() >= 16 * layout.lanes
        {
            return Self::vectors(unit, layout, q, roots);
        }
        let [forward, inverse] =
            roots.map(|roots| roots.into_iter().map(|w| shoup(w, q)).collect());
        Kernel::Portable { forward, inverse }
    }

    #[cfg(target_arch = "x86_64")]
    fn vectors(
        unit: Unit,
        layout: Layout<K::Word>,
        q: u64,
        roots: [Vec<u64>; 2],
    ) -> Kernel<K::Word> {
        let [forward, inverse] = roots.map(|roots| Tables::new(&roots, q, &layout));
        Kernel::Vectors {
            unit,
            forward,
            inverse,
        }
    }

    /// The ring degree N.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// The prime q.
    #[must_use]
    pub fn modulus(&self) -> u64 {
        self.q
    }

    /// The element of order 2N at whose odd powers the values are taken: [`prime::psi`] of the degree and the modulus.
    #[must_use]
    pub fn psi(&self) -> u64 {
        self.psi
    }

    /// The instruction set that the plan was made for.
    #[must_use]
    pub fn simd(&self) -> SimdLevel {
        self.simd
    }

    /// NTT in place: N canonical coefficients in natural order to N canonical values in bit-reversed order, not
    /// normalized.
    ///
    /// # Panics
    /// If `a` is not N words long.
    pub fn forward(&self, a: &mut [K::Word]) {
        self.check(a);
        match &self.kernel {
            Kernel::Portable { forward, .. } => portable::forward(a, self.q, forward),
            // SAFETY: these tables are there because `with_simd` found a layout and the instruction set; `check` made
            // sure of the length.
            #[cfg(target_arch = "x86_64")]
            Kernel::Vectors { unit, forward, .. } => unsafe {
                K::transform(
                    *unit,
                    self.q,
                    task::Forward {
                        modulus: &self.modulus,
                        tables: forward,
                        a,
                    },
                );
            },
        }
    }

    /// INTT in place: N canonical values in bit-reversed order to N canonical coefficients in natural order, times N.
    ///
    /// # Panics
    /// If `a` is not N words long.
    pub fn inverse(&self, a: &mut [K::Word]) {
        self.check(a);
        match &self.kernel {
            Kernel::Portable { inverse, .. } => portable::inverse(a, self.q, inverse),
            // SAFETY: as in `forward`.
            #[cfg(target_arch = "x86_64")]
            Kernel::Vectors { unit, inverse, .. } => unsafe {
                K::transform(
                    *unit,
                    self.q,
                    task::Inverse {
                        modulus: &self.modulus,
                        tables: inverse,
                        a,
                    },
                );
            },
        }
    }

    /// `a = a ⊙ b`, position by position; all canonical.
    ///
    /// # Panics
    /// If a slice is not N words long.
    pub fn mul_assign(&self, a: &mut [K::Word], b: &[K::Word]) {
        self.check(a);
        self.check(b);
        match &self.kernel {
            Kernel::Portable { .. } => portable::mul_assign(a, b, &self.modulus),
            // SAFETY: as in `forward`; N is a multiple of the lanes.
            #[cfg(target_arch = "x86_64")]
            Kernel::Vectors { unit, .. } => unsafe {
                K::run(
                    *unit,
                    self.q,
                    task::MulAssign {
                        modulus: &self.modulus,
                        a,
                        b,
                    },
                );
            },
        }
    }

    /// `acc += a ⊙ b`, position by position; all canonical.
    ///
    /// # Panics
    /// If a slice is not N words long.
    pub fn mul_add_assign(&self, acc: &mut [K::Word], a: &[K::Word], b: &[K::Word]) {
        self.check(acc);
        self.check(a);
        self.check(b);
        match &self.kernel {
            Kernel::Portable { .. } => portable::mul_add_assign(acc, a, b, &self.modulus),
            // SAFETY: as in `mul_assign`.
            #[cfg(target_arch = "x86_64")]
            Kernel::Vectors { unit, .. } => unsafe {
                K::run(
                    *unit,
                    self.q,
                    task::MulAddAssign {
                        modulus: &self.modulus,
                        acc,
                        a,
                        b,
                    },
                );
            },
        }
    }

    /// `a = c·a`, in either domain; `a` canonical, `c` any number.
    ///
    /// # Panics
    /// If `a` is not N words long.
    pub fn scale_assign(&self, a: &mut [K::Word], c: u64) {
        self.check(a);
        let c = c % self.q;
        match &self.kernel {
            Kernel::Portable { .. } => portable::scale_assign(a, shoup(c, self.q), self.q),
            // SAFETY: as in `mul_assign`.
            #[cfg(target_arch = "x86_64")]
            Kernel::Vectors { unit, .. } => unsafe {
                K::run(
                    *unit,
                    self.q,
                    task::ScaleAssign {
                        modulus: &self.modulus,
                        a,
                        w: (K::layout(*unit, self.q).forms.factor)(c, self.q),
                    },
                );
            },
        }
    }

    fn check(&self, a: &[K::Word]) {
        assert!(
            a.len() == self.degree,
            "a polynomial of this plan has {} words, the slice has {}",
            self.degree,
            a.len()
        );
    }
}

/// Products with prepared keys, summed in a form of the plan's own: what an external product spends its time on.
///
/// Prepared keys and sums are opaque: their words depend on the instruction set, and are only good for plans of the
/// same degree, modulus and instruction set. Words that are all zero are a sum of nothing.
impl Ntt50Plan {
    /// Makes a prepared key of the N canonical values of a polynomial, in bit-reversed order.
    ///
    /// # Panics
    /// If `key` is not N words long.
    pub fn prepare_key(&self, key: &mut [u64]) {
        self.check(key);
        match &self.kernel {
            Kernel::Portable { .. } => {}
            // SAFETY: as in `forward`.
            #[cfg(target_arch = "x86_64")]
            Kernel::Vectors { unit, .. } => unsafe {
                run_doubles(
                    *unit,
                    task::PrepareKey {
                        modulus: &self.modulus,
                        key,
                    },
                );
            },
        }
    }

    /// `sums[c] += NTT(a) ⊙ keys[c]` for columns c = 0, 1, …; without `ADD`, `sums` is overwritten. `keys` and `sums`
    /// hold the columns' prepared keys and sums in a row, N words each. `a` is N coefficients in natural order, each any
    /// representative between -q and q as a signed word (two's complement), and holds nothing of use afterwards.
    ///
    /// The products are made while each part of the values is in registers, and keys are asked for ahead, so that
    /// reading them from memory overlaps the transform.
    ///
    /// # Panics
    /// If `a` is not N words long, or `keys` and `sums` are not of the same length, a multiple of N.
    pub fn forward_mul_add<const ADD: bool>(&self, a: &mut [u64], keys: &[u64], sums: &mut [u64]) {
        self.check(a);
        assert!(
            keys.len() == sums.len() && keys.len().is_multiple_of(self.degree),
            "keys of {} words and sums of {} for columns of {}",
            keys.len(),
            sums.len(),
            self.degree
        );
        match &self.kernel {
            Kernel::Portable { forward, .. } => {
                portable::canonicalize(a, self.q);
                portable::forward(a, self.q, forward);
                let columns = keys.chunks_exact(self.degree);
                for (sums, keys) in sums.chunks_exact_mut(self.degree).zip(columns) {
                    if !ADD {
                        sums.fill(0);
                    }
                    portable::mul_add_assign(sums, a, keys, &self.modulus);
                }
            }
            // SAFETY: as in `forward`; the lengths of keys and sums are checked above.
            #[cfg(target_arch = "x86_64")]
            Kernel::Vectors { unit, forward, .. } => unsafe {
                transform_doubles(
                    *unit,
                    self.q,
                    task::ForwardMulAdd {
                        modulus: &self.modulus,
                        tables: forward,
                        a,
                        finish: MulAdd::<ADD> {
                            keys: keys.as_ptr(),
                            sums: sums.as_mut_ptr(),
                            columns: keys.len() / self.degree,
                            degree: self.degree,
                        },
                    },
                );
            },
        }
    }

    /// `sum += other`, of sums of one or more columns each: what rows worked on side by side end with. The result is a
    /// sum like any other, for [`Self::forward_mul_add`] and [`Self::inverse_sum`], however many were added.
    ///
    /// # Panics
    /// If the slices are not of the same length, a multiple of N.
    pub fn add_sum(&self, sum: &mut [u64], other: &[u64]) {
        assert!(
            sum.len() == other.len() && sum.len().is_multiple_of(self.degree),
            "sums of {} and of {} words for columns of {}",
            sum.len(),
            other.len(),
            self.degree
        );
        match &self.kernel {
            Kernel::Portable { .. } => portable::add_assign(sum, other, self.q),
            // SAFETY: as in `mul_assign`; the lengths are checked above.
            #[cfg(target_arch = "x86_64")]
            Kernel::Vectors { unit, .. } => unsafe {
                run_doubles(
                    *unit,
                    task::AddSum {
                        modulus: &self.modulus,
                        sum,
                        other,
                    },
                );
            },
        }
    }

    /// INTT in place of the sum of one column: to N canonical coefficients in natural order, times N.
    ///
    /// # Panics
    /// If `sum` is not N words long.
    pub fn inverse_sum(&self, sum: &mut [u64]) {
        self.check(sum);
        match &self.kernel {
            Kernel::Portable { inverse, .. } => portable::inverse(sum, self.q, inverse),
            // SAFETY: as in `forward`.
            #[cfg(target_arch = "x86_64")]
            Kernel::Vectors { unit, inverse, .. } => unsafe {
                transform_doubles(
                    *unit,
                    self.q,
                    task::InverseSum {
                        modulus: &self.modulus,
                        tables: inverse,
                        a: sum,
                    },
                );
            },
        }
    }
}

/// Numbers that [`Ntt50Plan::combine`] multiplies by, in the form of one plan.
#[derive(Clone, Debug)]
pub struct Weights {
    words: Vec<[u64; 2]>,
}

/// What base conversions between residue number systems are made of: sums of a few products, reduced once.
///
/// Slices here are polynomials or parts of them: any multiple of eight words, so that what a part of a polynomial needs
/// stays in the cache.
impl Ntt50Plan {
    /// The most products in one sum of [`Self::combine`] and [`Self::dot`].
    pub const TERMS: usize = 12;

    /// Prepares numbers for [`Self::combine`]; they count modulo q.
    ///
    /// # Panics
    /// If there are more than [`Self::TERMS`].
    #[must_use]
    pub fn weights(&self, weights: &[u64]) -> Weights {
        assert!(
            weights.len() <= Self::TERMS,
            "{} weights are too many for one sum",
            weights.len()
        );
        let words = weights.iter().map(|w| self.factor(w % self.q)).collect();
        Weights { words }
    }

    /// A canonical factor in the form of the kernel.
    fn factor(&self, w: u64) -> [u64; 2] {
        match &self.kernel {
            Kernel::Portable { .. } => shoup(w, self.q),
            #[cfg(target_arch = "x86_64")]
            Kernel::Vectors { unit, .. } => (<Bits50 as sealed::Vectors>::layout(*unit, self.q)
                .forms
                .factor)(w, self.q),
        }
    }

    /// `out = sum_r weights[r]·rows[r] mod q`, canonical. The rows' words are below 2^50, not necessarily below q.
    ///
    /// # Panics
    /// If there is not one row for each weight, or a row is not as long as `out`, a multiple of eight.
    pub fn combine(&self, out: &mut [u64], rows: &[&[u64]], weights: &Weights) {
        check_part(out);
        assert!(
            rows.len() == weights.words.len() && rows.iter().all(|row| row.len() == out.len()),
            "{} rows for {} weights, or one that has not {} words",
            rows.len(),
            weights.words.len(),
            out.len()
        );
        match &self.kernel {
            Kernel::Portable { .. } => portable::combine(out, rows, &weights.words, self.q),
            // SAFETY: lengths are checked above, a multiple of eight is one of the lanes; the rest as in `forward`.
            #[cfg(target_arch = "x86_64")]
            Kernel::Vectors { unit, .. } => unsafe {
                run_doubles(
                    *unit,
                    task::Combine {
                        modulus: &self.modulus,
                        out,
                        rows,
                        weights: &weights.words,
                    },
                );
            },
        }
    }

    /// `out = sum_r a_r ⊙ b_r + w·c mod q` over terms (a_r, b_r), position by position, with the term (c, w) where `scaled`
    /// has one; all canonical, `w` too.
    ///
    /// # Panics
    /// If there are more terms than [`Self::TERMS`], the scaled one counted, a slice is not as long as `out`, a multiple of
    /// eight, or `w` is not below q.
    pub fn dot(&self, out: &mut [u64], terms: &[(&[u64], &[u64])], scaled: Option<(&[u64], u64)>) {
        check_part(out);
        assert!(
            terms.len() + usize::from(scaled.is_some()) <= Self::TERMS,
            "{} terms are too many for one sum",
            terms.len()
        );
        if let Some((c, w)) = scaled {
            assert!(
                c.len() == out.len() && w < self.q,
                "{w} times {} words for a sum of {}",
                c.len(),
                out.len()
            );
        }
        for (a, b) in terms {
            assert!(
                a.len() == out.len() && b.len() == out.len(),
                "terms of {} and {} words for a sum of {}",
                a.len(),
                b.len(),
                out.len()
            );
        }
        match &self.kernel {
            Kernel::Portable { .. } => {
                out.fill(0);
                for (a, b) in terms {
                    portable::mul_add_assign(out, a, b, &self.modulus);
                }
                if let Some((c, w)) = scaled {
                    portable::add_scaled_assign(out, c, shoup(w, self.q), self.q);
                }
            }
            // SAFETY: as in `combine`.
            #[cfg(target_arch = "x86_64")]
            Kernel::Vectors { unit, .. } => unsafe {
                run_doubles(
                    *unit,
                    task::Dot {
                        modulus: &self.modulus,
                        out,
                        terms,
                        scaled,
                    },
                );
            },
        }
    }

    /// Whether sums of hundreds of products of words need no folding in between, as with IFMA: then [`Self::weigh`] is the fastest way to sums with small
    /// weights.
    #[must_use]
    pub fn sums_integers(&self) -> bool {
        match &self.kernel {
            Kernel::Portable { .. } => false,
            #[cfg(target_arch = "x86_64")]
            Kernel::Vectors { unit, .. } => matches!(unit, Unit::Ifma),
        }
    }

    /// The most values of a sum by [`Self::weigh`].
    pub const MAX_WEIGHED: usize = 512;

    /// `out_r = c·sum_k rows[r][k]·values_k mod q`, position by position, for each of R rows of weights: all canonical, weights below 2^32 as well, `c` any number. Parts of
    /// polynomials, a multiple of 16 words each, stand one after the other: a result for each row in `out`, a value for each weight in `values`.
    ///
    /// # Panics
    /// If lengths do not fit, there are more weights than [`Self::MAX_WEIGHED`], or one is too large.
    pub fn weigh<const R: usize>(
        &self,
        out: &mut [u64],
        values: &[u64],
        rows: [&[u64]; R],
        c: u64,
    ) {
        let part = out.len() / R;
        let count = rows[0].len();
        let largest = rows.iter().flat_map(|row| *row).fold(0, |a, b| a.max(*b));
        assert!(
            part.is_multiple_of(16)
                && out.len() == R * part
                && values.len() == count * part
                && count <= Self::MAX_WEIGHED
                && rows.iter().all(|row| row.len() == count)
                && largest < self.q.min(1 << 32),
            "{count} weights for {} words of values and {} of results",
            values.len(),
            out.len()
        );
        let w = self.factor(c % self.q);
        match &self.kernel {
            Kernel::Portable { .. } => {
                for (row, out) in rows.iter().zip(out.chunks_exact_mut(part.max(1))) {
                    out.fill(0);
                    for (value, weight) in values.chunks_exact(part.max(1)).zip(*row) {
                        portable::add_scaled_assign(out, value, shoup(*weight, self.q), self.q);
                    }
                    portable::scale_assign(out, w, self.q);
                }
            }
            // SAFETY: lengths are checked above, 16 words are two vectors or four; the rest as in `forward`.
            #[cfg(target_arch = "x86_64")]
            Kernel::Vectors { unit, .. } => unsafe {
                run_doubles(
                    *unit,
                    task::Weigh {
                        modulus: &self.modulus,
                        out,
                        values,
                        rows,
                        w,
                    },
                );
            },
        }
    }

    /// `a = c·(a - b) mod q`, position by position; slices canonical, `c` any number.
    ///
    /// # Panics
    /// If the slices differ in length, or it is no multiple of eight.
    pub fn sub_scale_assign(&self, a: &mut [u64], b: &[u64], c: u64) {
        check_part(a);
        assert!(
            a.len() == b.len(),
            "{} words less {} words",
            a.len(),
            b.len()
        );
        let w = self.factor(c % self.q);
        match &self.kernel {
            Kernel::Portable { .. } => portable::sub_scale_assign(a, b, w, self.q),
            // SAFETY: as in `combine`.
            #[cfg(target_arch = "x86_64")]
            Kernel::Vectors { unit, .. } => unsafe {
                run_doubles(
                    *unit,
                    task::SubScaleAssign {
                        modulus: &self.modulus,
                        a,
                        b,
                        w,
                    },
                );
            },
        }
    }
}

fn check_part(part: &[u64]) {
    assert!(
        part.len().is_multiple_of(8),
        "a part of a polynomial has a multiple of 8 words, not {}",
        part.len()
    );
}

/// # Safety
/// The processor has `unit`; the rest as for [`DoublesTask::run`].
#[cfg(target_arch = "x86_64")]
unsafe fn run_doubles(unit: Unit, task: impl DoublesTask) {
    // SAFETY: the caller's promise.
    unsafe {
        match unit {
            Unit::Avx2 => avx2::run_doubles::<double::Residues<F64x4>, _>(task),
            Unit::Avx512 => avx512::run_doubles::<double::Residues<F64x8>, _>(task),
            Unit::Ifma => ifma::run_doubles::<ifma::Integers, _>(task),
        }
    }
}

/// For tasks that work with twiddles of [`Tables`].
///
/// # Safety
/// As for [`run_doubles()`].
#[cfg(target_arch = "x86_64")]
unsafe fn transform_doubles(unit: Unit, q: u64, task: impl DoublesTask) {
    // SAFETY: the caller's promise.
    unsafe {
        match unit {
            Unit::Ifma if ifma::is_lazy(q) => ifma::run_doubles::<ifma::Lazy, _>(task),
            _ => run_doubles(unit, task),
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::sealed::Vectors;
    use super::*;

    /// AVX-512 without IFMA, which a processor with both would never run.
    fn without_ifma(n: usize, q: u64) -> Ntt50Plan {
        let plan = Ntt50Plan::with_simd(n, q, SimdLevel::Avx512).unwrap();
        let roots = [plan.psi, prime::inv(plan.psi, q)].map(|r| powers_bit_reversed(r, n, q));
        let layout = Bits50::layout(Unit::Avx512, q);
        let kernel = Ntt50Plan::vectors(Unit::Avx512, layout, q, roots);
        Ntt50Plan { kernel, ..plan }
    }

    #[test]
    fn units_of_avx512_agree() {
        if !SimdLevel::Avx512.is_available() {
            return;
        }
        for n in [128, 256, 512, 1024, 2048, 16384] {
            // Just above 2^49 as well, where elements come nearest to what words hold.
            let above = (1 << 49) + (1 << 39);
            for bound in [1 << 50, above, 1 << 49, 1 << 48, 1 << 46, 1 << 39, 1 << 30] {
                let q = prime::ntt_primes(n, bound).next().unwrap();
                let plans = [
                    Ntt50Plan::with_simd(n, q, SimdLevel::Portable).unwrap(),
                    Ntt50Plan::with_simd(n, q, SimdLevel::Avx512).unwrap(),
                    without_ifma(n, q),
                ];
                let edges = [0, 1, q / 2, q / 2 + 1, q - 1];
                for pattern in 0..8 {
                    let pick = |step: usize| -> Vec<u64> {
                        let edge = |i: usize| edges[(i * i / step) % edges.len()];
                        (0..n)
                            .map(|i| if pattern < 5 { edges[pattern] } else { edge(i) })
                            .collect()
                    };
                    let (a, b) = (pick(7), pick(1 + pattern));
                    let results = plans.each_ref().map(|plan| {
                        let (mut values, mut coefficients) = (a.clone(), a.clone());
                        plan.forward(&mut values);
                        plan.inverse(&mut coefficients);
                        let (mut product, mut sum) = (a.clone(), a.clone());
                        plan.mul_assign(&mut product, &b);
                        plan.mul_add_assign(&mut sum, &a, &b);
                        plan.scale_assign(&mut sum, q - 2);
                        let mut key = b.clone();
                        plan.prepare_key(&mut key);
                        let mut sums = vec![0; n];
                        plan.forward_mul_add::<true>(&mut a.clone(), &key, &mut sums);
                        let mut negative: Vec<u64> = a.iter().map(|x| x.wrapping_neg()).collect();
                        plan.forward_mul_add::<true>(&mut negative, &key, &mut sums);
                        plan.forward_mul_add::<true>(&mut b.clone(), &key, &mut sums);
                        plan.add_sum(&mut sums, &vec![0; n]);
                        plan.inverse_sum(&mut sums);
                        let (mut combined, mut dot, mut quotient) =
                            (a.clone(), a.clone(), a.clone());
                        let weights = plan.weights(&[q - 1; Ntt50Plan::TERMS]);
                        plan.combine(&mut combined, &[a.as_slice(); Ntt50Plan::TERMS], &weights);
                        let terms = [(a.as_slice(), b.as_slice()); Ntt50Plan::TERMS - 1];
                        plan.dot(&mut dot, &terms, Some((&a, q - 1)));
                        plan.sub_scale_assign(&mut quotient, &b, q - 2);
                        let mut weighed = vec![0; 4 * 128];
                        let values = [&a[..128], &b[..128]].concat().repeat(256);
                        let rows = [0u64, 1, 2, 5].map(|step| -> Vec<u64> {
                            let weights = (0..512).map(|k| 65535 - k * k * step % 65536);
                            weights.collect()
                        });
                        let rows = rows.each_ref().map(Vec::as_slice);
                        plan.weigh(&mut weighed, &values, rows, q - 2);
                        [
                            values,
                            coefficients,
                            product,
                            sum,
                            sums,
                            combined,
                            dot,
                            quotient,
                            weighed,
                        ]
                    });
                    assert!(results[1] == results[0], "with IFMA, N = {n}, {q}");
                    assert!(results[2] == results[0], "without, N = {n}, {q}");
                }
            }
        }
    }
}
