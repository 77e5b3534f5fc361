//! What the kernels are handed, as `kernels/abi.h` declares it.

use toroid_tfhe::modulus::DigitField;
use toroid_tfhe::params::{Gadget, ModulusKind, StageParams};

use crate::driver::Address;

/// The most rows of a GGSW sample.
pub(crate) const MAX_ROWS: usize = 18;
/// The most levels of the gadget of a bit's GGSW sample.
pub(crate) const MAX_LEVELS: usize = 8;
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
    fn new(modulus: ModulusKind, gadget: Gadget, level: usize) -> Digit {
        let field = DigitField::new(modulus, gadget, level);
        Digit {
            offset: field.offset(),
            shift: field.shift(),
            log2_base: gadget.log2_base,
        }
    }

    /// Those of a stage's key switch, of at most [`MAX_ROWS`] levels.
    pub(crate) fn of_key_switch(params: &StageParams) -> [Digit; MAX_ROWS] {
        let gadget = params.key_switch;
        let mut digits = [Digit::default(); MAX_ROWS];
        for (level, digit) in digits.iter_mut().enumerate().take(gadget.levels) {
            *digit = Digit::new(params.modulus, gadget, level);
        }
        digits
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

    pub(crate) fn steps(&self) -> u32 {
        self.steps
    }

    /// With another number of steps.
    pub(crate) fn with_steps(self, steps: usize) -> Stage {
        Stage {
            steps: steps as u32,
            ..self
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
    pub(crate) alternating: u32,
    pub(crate) sample: Address,
    pub(crate) samples: u32,
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

/// Of the kernel `shift_digits`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ShiftArgs {
    pub(crate) samples: Address,
    pub(crate) digits: Address,
    pub(crate) bodies: Address,
    pub(crate) sums: Address,
    pub(crate) jobs: u32,
    pub(crate) masks: u32,
    pub(crate) levels: u32,
    pub(crate) log2: u32,
    pub(crate) steps: u32,
    pub(crate) reserved: u32,
    pub(crate) digit: [Digit; MAX_ROWS],
}

/// Of the kernel `exponents_64`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ExponentsArgs {
    pub(crate) sums: Address,
    pub(crate) bodies: Address,
    pub(crate) exponents: Address,
    pub(crate) exponent: Address,
    pub(crate) addend: u64,
    pub(crate) jobs: u32,
    pub(crate) steps: u32,
    pub(crate) log2_order: u32,
    pub(crate) log2_slots: u32,
}

/// Of kernels `circuit_*`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CircuitArgs {
    pub(crate) accumulators: Address,
    pub(crate) key: Address,
    pub(crate) twiddles: Address,
    pub(crate) inverse: Address,
    pub(crate) rows: Address,
    pub(crate) jobs: u32,
    pub(crate) levels: u32,
    pub(crate) half_level: [u64; MAX_LEVELS],
    pub(crate) stage: Stage,
}

/// Of kernels `select_*`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SelectArgs {
    pub(crate) tables: Address,
    pub(crate) table: Address,
    pub(crate) from: Address,
    pub(crate) to: Address,
    pub(crate) key: Address,
    pub(crate) sample: Address,
    pub(crate) twiddles: Address,
    pub(crate) inverse: Address,
    pub(crate) jobs: u32,
    pub(crate) nodes: u32,
    pub(crate) stage: Stage,
}

/// Of kernels `gather_*`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct GatherArgs {
    pub(crate) accumulators: Address,
    pub(crate) first: Address,
    pub(crate) from: Address,
    pub(crate) samples: Address,
    pub(crate) bodies: Address,
    pub(crate) count: u32,
    pub(crate) index: u32,
    pub(crate) stage: Stage,
}

// `kernels/abi.h` states the same sizes.
const _: () = assert!(size_of::<Digit>() == 16 && size_of::<Stage>() == 376);
const _: () = assert!(size_of::<LoadArgs>() == 416 && size_of::<StartArgs>() == 416);
const _: () = assert!(size_of::<RotateArgs>() == 472 && size_of::<DigitsArgs>() == 704);
const _: () = assert!(size_of::<SwitchArgs>() == 40 && size_of::<FinishArgs>() == 32);
const _: () = assert!(size_of::<ShiftArgs>() == 344 && size_of::<ExponentsArgs>() == 56);
const _: () = assert!(size_of::<CircuitArgs>() == 488 && size_of::<SelectArgs>() == 448);
const _: () = assert!(size_of::<GatherArgs>() == 424);
