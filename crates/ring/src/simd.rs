//! The one run-time choice of instruction set for every kernel of this workspace.
//!
//! [`SimdLevel::best`] looks at the processor once; the environment variable `TOROID_SIMD` (`portable`, `avx2`, `avx512`)
//! lowers the choice, never raises it. Kernels are either written by instruction set (folders `avx512/`, `avx2/`)
//! or are plain loops compiled three times by [`multiversion!`](crate::multiversion).

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// An instruction set that the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SimdLevel {
    /// Plain Rust, any processor.
    Portable,
    /// x86-64 with AVX2, FMA, BMI1, BMI2, LZCNT and POPCNT.
    Avx2,
    /// x86-64 with AVX-512 F, DQ, BW, VL (and what [`SimdLevel::Avx2`] has).
    Avx512,
}

impl SimdLevel {
    /// All instruction sets, slowest first.
    pub const ALL: [SimdLevel; 3] = [SimdLevel::Portable, SimdLevel::Avx2, SimdLevel::Avx512];

    /// Whether this processor can run kernels of this instruction set.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            SimdLevel::Portable => true,
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("lzcnt")
                    && is_x86_feature_detected!("popcnt")
            }
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 => {
                SimdLevel::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// The instruction sets that this processor can run, slowest first.
    pub fn available() -> impl Iterator<Item = SimdLevel> {
        SimdLevel::ALL
            .into_iter()
            .filter(|simd| simd.is_available())
    }

    /// The instruction set that `TOROID_SIMD` names, if it is set.
    ///
    /// # Errors
    /// [`UnknownSimdLevel`] for another name; [`SimdLevel::best`] ignores it.
    pub fn requested() -> Result<Option<SimdLevel>, UnknownSimdLevel> {
        std::env::var("TOROID_SIMD")
            .ok()
            .map(|name| name.parse())
            .transpose()
    }

    /// The fastest available instruction set, or the slower one that `TOROID_SIMD` names.
    #[must_use]
    pub fn best() -> SimdLevel {
        static BEST: OnceLock<SimdLevel> = OnceLock::new();
        *BEST.get_or_init(|| {
            let widest = SimdLevel::available().last().unwrap_or(SimdLevel::Portable);
            SimdLevel::requested()
                .ok()
                .flatten()
                .map_or(widest, |asked: SimdLevel| {
                    SimdLevel::available()
                        .filter(|simd| *simd <= asked)
                        .last()
                        .unwrap_or(SimdLevel::Portable)
                })
        })
    }
}

/// No instruction set has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown instruction set {0:?}: expected portable, avx2 or avx512")]
pub struct UnknownSimdLevel(String);

impl fmt::Display for SimdLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SimdLevel::Portable => "portable",
            SimdLevel::Avx2 => "avx2",
            SimdLevel::Avx512 => "avx512",
        })
    }
}

impl FromStr for SimdLevel {
    type Err = UnknownSimdLevel;

    fn from_str(name: &str) -> Result<SimdLevel, Self::Err> {
        SimdLevel::ALL
            .into_iter()
            .find(|simd| simd.to_string() == name)
            .ok_or_else(|| UnknownSimdLevel(name.to_owned()))
    }
}

/// Compiles one plain loop for every instruction set and chooses at run time.
///
/// The body is inlined into a function per instruction set, where the compiler vectorizes it; write it as straight
/// loops over slices of equal length, without early exits. The first argument of the generated function is the
/// [`SimdLevel`] to use; it must be available.
///
/// ```
/// toroid_ring::multiversion! {
///     /// Adds `b` to `a`, word by word, modulo 2^32.
///     pub fn add_words(a: &mut [u32], b: &[u32]) {
///         for (x, y) in a.iter_mut().zip(b) {
///             *x = x.wrapping_add(*y);
///         }
///     }
/// }
/// let mut a = [1, 2];
/// add_words(toroid_ring::simd::SimdLevel::best(), &mut a, &[3, u32::MAX]);
/// assert_eq!(a, [4, 1]);
/// ```
#[macro_export]
macro_rules! multiversion {
    ($(#[$meta:meta])* $vis:vis fn $name:ident $(<$($gen:ident : $bound:path),+>)? ($($arg:ident : $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name $(<$($gen: $bound),+>)? (simd: $crate::simd::SimdLevel, $($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body $(<$($gen: $bound),+>)? ($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
            #[allow(clippy::too_many_arguments)]
            fn avx512 $(<$($gen: $bound),+>)? ($($arg: $ty),*) $(-> $ret)? { body $(::<$($gen),+>)? ($($arg),*) }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
            #[allow(clippy::too_many_arguments)]
            fn avx2 $(<$($gen: $bound),+>)? ($($arg: $ty),*) $(-> $ret)? { body $(::<$($gen),+>)? ($($arg),*) }

            assert!(simd.is_available(), "this processor cannot run {simd} kernels");
            match simd {
                // SAFETY: the assertion above checked the features of this processor.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::SimdLevel::Avx512 => unsafe { avx512 $(::<$($gen),+>)? ($($arg),*) },
                // SAFETY: the assertion above holds.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::SimdLevel::Avx2 => unsafe { avx2 $(::<$($gen),+>)? ($($arg),*) },
                _ => body $(::<$($gen),+>)? ($($arg),*),
            }
        }
    };
}
