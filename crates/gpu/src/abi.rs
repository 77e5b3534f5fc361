//! What the kernels are handed, as `kernels/abi.h` declares it.

use toroid_tfhe::modulus::DigitField;
use toroid_tfhe::params::{Gadget, ModulusKind, StageParams};

use crate::driver::Address;

/// The most rows of a GGSW sample.
pub(crate) const MAX_ROWS: usize = 16;
/// Rows of the array that a polynomial's points are.
pub(crate) const POINT_ROWS: usize = 16;
/// Jobs that a block of the key switch does together.
pub(crate) const SWITCH_JOBS: u32 = 8;

/// One digit of a word.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Digit {
    offset: u64,
    shift: u32,
    log2_base: u32,
}

impl Digit {
    pub(crate) fn new(modulus: ModulusKind, gadget: Gadget, level: usize) -> Digit {
        let field = DigitField::new(modulus, gadget, level);
        Digit {
            offset: field.offset(),
            shift: field.shift(),
            log2_base: gadget.log2_base,
        }
    }
}

/// The ring and the gadgets of a stage.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Stage {
    log2_degree: u32,
    components: u32,
    rows: u32,
    steps: u32,
    component: [u32; MAX_ROWS],
    digit: [Digit; MAX_ROWS],
}

impl Stage {
    /// For a stage of at most [`MAX_ROWS`] rows.
    pub(crate) fn new(params: &StageParams) -> Stage {
        let mut component = [0; MAX_ROWS];
        let mut digit = [Digit::default(); MAX_ROWS];
        let rows = params.ggsw_rows().min(MAX_ROWS);
        for row in 0..rows {
            let (index, gadget, level) = params.ggsw_row(row);
            component[row] = index as u32;
            digit[row] = Digit::new(params.modulus, gadget, level);
        }
        Stage {
            log2_degree: params.ring_degree.trailing_zeros(),
            components: params.glwe_dimension as u32 + 1,
            rows: rows as u32,
            steps: params.lwe_dimension as u32,
            component,
            digit,
        }
    }
}

/// Of kernels `load_*`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct LoadArgs {
    pub(crate) source: Address,
    pub(crate) key: Address,
    pub(crate) twiddles: Address,
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) reserved: u32,
    pub(crate) stage: Stage,
}

/// Of kernels `start_*`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct StartArgs {
    pub(crate) vectors: Address,
    pub(crate) vector: Address,
    pub(crate) exponent: Address,
    pub(crate) accumulators: Address,
    pub(crate) jobs: u32,
    pub(crate) reserved: u32,
    pub(crate) stage: Stage,
}

/// Of kernels `rotate_*`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RotateArgs {
    pub(crate) accumulators: Address,
    pub(crate) exponents: Address,
    pub(crate) key: Address,
    pub(crate) twiddles: Address,
    pub(crate) inverse: Address,
    pub(crate) exchange: Address,
    pub(crate) flags: Address,
    pub(crate) jobs: u32,
    pub(crate) group: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) at_once: u32,
    pub(crate) reserved: u32,
    pub(crate) stage: Stage,
}

/// Of kernels `digits_*`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct DigitsArgs {
    pub(crate) accumulators: Address,
    pub(crate) digits: Address,
    pub(crate) bodies: Address,
    pub(crate) sums: Address,
    pub(crate) jobs: u32,
    pub(crate) levels: u32,
    pub(crate) digit: [Digit; MAX_ROWS],
    pub(crate) stage: Stage,
}

/// Of the kernel `switch_sums`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SwitchArgs {
    pub(crate) digits: Address,
    pub(crate) key: Address,
    pub(crate) sums: Address,
    pub(crate) jobs: u32,
    pub(crate) rows: u32,
    pub(crate) words: u32,
    pub(crate) reserved: u32,
}

/// Of kernels `finish_*`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct FinishArgs {
    pub(crate) sums: Address,
    pub(crate) bodies: Address,
    pub(crate) samples: Address,
    pub(crate) jobs: u32,
    pub(crate) words: u32,
}

// `kernels/abi.h` states the same sizes.
const _: () = assert!(size_of::<Digit>() == 16 && size_of::<Stage>() == 336);
const _: () = assert!(size_of::<LoadArgs>() == 376 && size_of::<StartArgs>() == 376);
const _: () = assert!(size_of::<RotateArgs>() == 416 && size_of::<DigitsArgs>() == 632);
const _: () = assert!(size_of::<SwitchArgs>() == 40 && size_of::<FinishArgs>() == 32);
