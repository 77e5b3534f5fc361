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
//! `prime_ntt/double.rs` has the butterflies on f64 for primes below 2^50, `prime_ntt/residue.rs` those on words;
//! `prime_ntt/avx2.rs` and `prime_ntt/avx512.rs` say what vectors are, and `prime_ntt/portable.rs` is plain Rust.
//!
//! # What bounds the kernels
//!
//! Operations of one butterfly on a whole vector, products and all (loads and stores run beside them):
//!
//! | plan | operations | of these, on the multipliers |
//! | --- | --- | --- |
//! | 50 bits, f64 | 8 | 4 |
//! | below 2^30, 32-bit lanes | 12 | 4 |
//! | below 2^31 | 15 | 4 |
//! | below 2^62, AVX-512 | 18 | 5 |
//! | below 2^63, AVX-512 | 24 | 6 |
//!
//! N = 16384 on Zen 4, at 3.65 GHz with AVX-512, where one 512-bit multiplication and one other operation start each
//! cycle at best, and 1.75 operations were measured for an even mix of fused multiplications and additions: 14336
//! butterflies of 8 operations, and as much again as a third of that for transposes, settling and canonical results, are
//! 154,000 operations, 88,000 cycles at that rate; measured are 111,000 cycles (30.4 µs), 1.4 operations a cycle. What
//! is missing is lost to latency: 17 cycles a butterfly, and four of them side by side in a radix-8 node.
//!
use crate::RingError;
use crate::prime;
use crate::simd::Isa;
#[cfg(target_arch = "x86_64")]
use avx2::F64x4;
#[cfg(target_arch = "x86_64")]
use avx512::F64x8;
#[cfg(target_arch = "x86_64")]
use double::MulAdd;
#[cfg(target_arch = "x86_64")]
use kernel::Vector;
#[cfg(target_arch = "x86_64")]
use tables::{Layout, Tables};
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
        pub(super) unsafe fn run_doubles<V, T>(task: T)
        where
            V: super::double::Doubles,
            T: super::task::DoublesTask,
        {
            // SAFETY: the caller's promise.
            unsafe { task.run::<V>() }
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
mod kernel;
mod portable;
#[cfg(target_arch = "x86_64")]
mod residue;
mod tables;
#[cfg(target_arch = "x86_64")]
mod task;
mod word;

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
    use super::{Isa, Word};

    /// The vector kernels of a kind.
    pub trait Vectors: Copy + std::fmt::Debug {
        /// The words of polynomials.
        type Word: Word;

        /// What the tables of the vector kernel need to know; none where plain Rust runs.
        #[cfg(target_arch = "x86_64")]
        fn layout(isa: Isa, q: u64) -> Option<super::tables::Layout<Self::Word>>;

        /// # Safety
        /// [`Self::layout`] of `isa` and `q` is there, and the processor runs `isa`; the rest as for `Task::run`.
        #[cfg(target_arch = "x86_64")]
        unsafe fn run(isa: Isa, q: u64, task: impl super::task::Task<Self::Word>);
    }
}

/// A kind with its words, its vectors with AVX2 and AVX-512, what a twiddle is, the limit of elements in units of q, and
/// the arithmetic, given the vectors and the modulus.
macro_rules! kind {
    ($kind:ident, $word:ty, $avx2:ident, $avx512:ident, $twiddle:expr, $limit:expr, $run:ident) => {
        impl sealed::Vectors for $kind {
            type Word = $word;

            #[cfg(target_arch = "x86_64")]
            fn layout(isa: Isa, q: u64) -> Option<Layout<$word>> {
                let (lanes, block_of_lane): (usize, fn(usize) -> usize) = match isa {
                    Isa::Portable => return None,
                    Isa::Avx2 => (avx2::$avx2::LANES, avx2::$avx2::block_of_lane),
                    Isa::Avx512 => (avx512::$avx512::LANES, avx512::$avx512::block_of_lane),
                };
                Some(Layout {
                    lanes,
                    block_of_lane,
                    twiddle: $twiddle,
                    limit: $limit / q as f64,
                })
            }

            #[cfg(target_arch = "x86_64")]
            unsafe fn run(isa: Isa, q: u64, task: impl Task<$word>) {
                // SAFETY: the caller's promise.
                unsafe {
                    match isa {
                        Isa::Avx512 => $run!(avx512, $avx512, q, task),
                        _ => $run!(avx2, $avx2, q, task),
                    }
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! run_doubles {
    ($isa:ident, $vector:ident, $q:ident, $task:ident) => {{
        let _ = $q;
        $isa::run::<double::Residues<$isa::$vector>, _>($task)
    }};
}

#[cfg(target_arch = "x86_64")]
macro_rules! run_words {
    ($isa:ident, $vector:ident, $q:ident, $task:ident) => {
        if $q >> (<<$isa::$vector as Vector>::Word as Word>::BITS - 2) == 0 {
            $isa::run::<residue::Residues<$isa::$vector, true>, _>($task)
        } else {
            $isa::run::<residue::Residues<$isa::$vector, false>, _>($task)
        }
    };
}

kind!(Bits31, u32, U32x8, U32x16, shoup, f64::INFINITY, run_words);
kind!(
    Bits50,
    u64,
    F64x4,
    F64x8,
    double::twiddle,
    double::LIMIT,
    run_doubles
);
kind!(Bits63, u64, U64x4, U64x8, shoup, f64::INFINITY, run_words);

/// The twiddles of one ring degree and one modulus, and the choice of kernel.
///
/// A polynomial is a slice of N canonical words, below q. Slices that start on a multiple of 64 bytes are faster to
/// work on.
#[derive(Clone, Debug)]
pub struct PrimeNttPlan<K: Kind> {
    degree: usize,
    q: u64,
    psi: u64,
    isa: Isa,
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
        Self::with_isa(n, q, Isa::best())
    }

    /// A plan with the kernel of an instruction set; for degrees below 16 vectors that is always the portable one.
    ///
    /// # Errors
    /// As for [`PrimeNttPlan::new`], and [`RingError::IsaUnavailable`] where the processor lacks `isa`.
    pub fn with_isa(n: usize, q: u64, isa: Isa) -> Result<Self, RingError> {
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
        if !isa.is_available() {
            return Err(RingError::IsaUnavailable(isa));
        }
        let roots = [psi, prime::inv(psi, q)].map(|root| powers_bit_reversed(root, n, q));
        Ok(Self {
            degree: n,
            q,
            psi,
            isa,
            modulus: Modulus::new(q),
            kernel: Self::kernel(isa, q, roots),
        })
    }

    fn kernel(isa: Isa, q: u64, roots: [Vec<u64>; 2]) -> Kernel<K::Word> {
        #[cfg(target_arch = "x86_64")]
        if let Some(layout) = K::layout(isa, q)
            && roots[0].len() >= 16 * layout.lanes
        {
            let [forward, inverse] = roots.map(|roots| Tables::new(&roots, q, &layout));
            return Kernel::Vectors { forward, inverse };
        }
        let [forward, inverse] =
            roots.map(|roots| roots.into_iter().map(|w| shoup(w, q)).collect());
        Kernel::Portable { forward, inverse }
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
    pub fn isa(&self) -> Isa {
        self.isa
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
            // SAFETY: these tables are there because `with_isa` found a layout and the instruction set; `check` made
            // sure of the length.
            #[cfg(target_arch = "x86_64")]
            Kernel::Vectors { forward, .. } => unsafe {
                self.run(task::Forward {
                    modulus: &self.modulus,
                    tables: forward,
                    a,
                });
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
            Kernel::Vectors { inverse, .. } => unsafe {
                self.run(task::Inverse {
                    modulus: &self.modulus,
                    tables: inverse,
                    a,
                });
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
            Kernel::Vectors { .. } => unsafe {
                self.run(task::MulAssign {
                    modulus: &self.modulus,
                    a,
                    b,
                });
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
            Kernel::Vectors { .. } => unsafe {
                self.run(task::MulAddAssign {
                    modulus: &self.modulus,
                    acc,
                    a,
                    b,
                });
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
            Kernel::Vectors { .. } => unsafe {
                if let Some(layout) = K::layout(self.isa, self.q) {
                    self.run(task::ScaleAssign {
                        modulus: &self.modulus,
                        a,
                        w: (layout.twiddle)(c, self.q),
                    });
                }
            },
        }
    }

    /// # Safety
    /// The kernel of this plan is one of vectors; the rest as for [`Task::run`].
    #[cfg(target_arch = "x86_64")]
    unsafe fn run(&self, task: impl Task<K::Word>) {
        // SAFETY: `with_isa` made sure of the instruction set; the rest is the caller's promise.
        unsafe { K::run(self.isa, self.q, task) }
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
            Kernel::Vectors { .. } => unsafe {
                self.run_doubles(task::PrepareKey {
                    modulus: &self.modulus,
                    key,
                });
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
            Kernel::Vectors { forward, .. } => unsafe {
                self.run_doubles(task::ForwardMulAdd {
                    modulus: &self.modulus,
                    tables: forward,
                    a,
                    finish: MulAdd::<ADD> {
                        keys: keys.as_ptr(),
                        sums: sums.as_mut_ptr(),
                        columns: keys.len() / self.degree,
                        degree: self.degree,
                    },
                });
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
            Kernel::Vectors { .. } => unsafe {
                self.run_doubles(task::AddSum {
                    modulus: &self.modulus,
                    sum,
                    other,
                });
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
            Kernel::Vectors { inverse, .. } => unsafe {
                self.run_doubles(task::InverseSum {
                    modulus: &self.modulus,
                    tables: inverse,
                    a: sum,
                });
            },
        }
    }

    /// # Safety
    /// The kernel of this plan is one of vectors; the rest as for [`DoublesTask::run`].
    #[cfg(target_arch = "x86_64")]
    unsafe fn run_doubles(&self, task: impl DoublesTask) {
        // SAFETY: `with_isa` made sure of the instruction set; the rest is the caller's promise.
        unsafe {
            match self.isa {
                Isa::Avx512 => avx512::run_doubles::<F64x8, _>(task),
                _ => avx2::run_doubles::<F64x4, _>(task),
            }
        }
    }
}
