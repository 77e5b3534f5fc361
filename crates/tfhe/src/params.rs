//! Parameter sets: dimensions, noise, security with its source, message width, and the sizes that follow.
//!
//! Security figures come from the lattice-estimator (commit 27a581bb8e9d of 2026-06-06, cost model MATZOV, binary
//! uniform secrets, Gaussian noise, unlimited samples; minimum over usvp, bdd, dual and dual_hybrid). The LWE noise of
//! every set but `paper` and the `tiny` ones has the smallest log2 alpha, in steps of 0.25, on or above the 128-bit line
//! log2 alpha = 2.67593 - 0.0256968 n, which stays on the safe side of every crossing found for 450 <= n <= 2048;
//! GLWE noise follows the same line at dimension k·N, and never falls below sigma = 4 units of the modulus. Bodies of keys are
//! rounded to as few bits as take a quarter of a bit from the exponent of the failure probability, or two where there is plenty; `paper` keeps its words.

mod stage;
pub mod wopbs;

use std::ops::Deref;

pub use stage::{Gadget, ModulusKind, ModulusSwitch, StageParams};
pub use wopbs::{MESSAGE8, MESSAGE14, MESSAGE16, TINY_WOPBS, WopbsParams};

/// A security estimate and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Security {
    /// Bits of classical security; 0 marks a set for tests that protects nothing.
    pub bits: u32,
    /// Source of the estimate.
    pub source: &'static str,
}

/// Everything that defines an instance of the scheme.
///
/// It dereferences to the parameters of its samples and of its first stage, which is the only one of a programmable bootstrap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParamSet {
    /// Identifier in files and in secure computing metadata; never reused.
    pub id: u16,
    /// What the set is for, one line.
    pub purpose: &'static str,
    /// p: message bits, beside one bit of padding, for which the set is made; 0 for Boolean gates.
    pub message_bits: u32,
    /// Security with its source.
    pub security: Security,
    /// The stage of a programmable bootstrap. For wide functions: dimension n = k·N and noise of the samples, and the gadgets
    /// that extract a bit.
    pub stage: StageParams,
    /// The stages of a set for wide functions, whose bootstrap evaluates tables of 2^p entries.
    pub wopbs: Option<&'static WopbsParams>,
}

impl Deref for ParamSet {
    type Target = StageParams;

    fn deref(&self) -> &StageParams {
        &self.stage
    }
}

const ESTIMATOR_LINE: &str =
    "lattice-estimator 27a581bb8e9d (2026-06-06), MATZOV; on or above its 128-bit line";

/// The platform paper's set (section 6): n = 800, N = 16384, k = 1, l = 5, t = 7, 32-bit torus, alpha = 2^-19.
/// The paper leaves B_g (here 2^6, since five digits of nine bits do not fit 32 bits), the key-switching base (here
/// signed digits of base 2^3) and the GLWE noise (here sigma = 4 units; at k·N = 16384 any noise is secure) open.
pub static PAPER: ParamSet = ParamSet {
    id: 1,
    purpose: "the platform paper's parameters: comparison of time and size, exact for 4 message bits",
    message_bits: 4,
    security: Security {
        bits: 122,
        source: "lattice-estimator 27a581bb8e9d (2026-06-06), MATZOV, all attacks at n = 800, alpha = 2^-19; the paper says 128",
    },
    stage: StageParams {
        name: "paper",
        modulus: ModulusKind::Torus32,
        lwe_dimension: 800,
        ring_degree: 16384,
        glwe_dimension: 1,
        gadget: Gadget {
            levels: 5,
            log2_base: 6,
        },
        body_gadget: Some(Gadget {
            levels: 5,
            log2_base: 6,
        }),
        key_switch: Gadget {
            levels: 7,
            log2_base: 3,
        },
        log2_lwe_noise: -19.0,
        log2_glwe_noise: -30.0,
        body_bits: 32,
        modulus_switch: ModulusSwitch::Nearest,
    },
    wopbs: None,
};

/// Seven message bits plus padding; failure at most 2^-60 for the sum of two bootstrapped samples.
///
/// Two levels of 13 bits for the mask: one level would need a base of 2^22 or more, where the rounding of the f64 FFT (which
/// the N/2 ones of the key amplify) and the dropped bits together exceed what 2^-60 leaves. The body's dropped bits are
/// not amplified, so that one level of 19 bits serves it: three rows of the external product instead of four.
pub static MESSAGE7: ParamSet = ParamSet {
    id: 2,
    purpose: "exact functions of 7 message bits, on a fresh sample or one that was bootstrapped",
    message_bits: 7,
    security: Security {
        bits: 128,
        source: ESTIMATOR_LINE,
    },
    stage: StageParams {
        name: "message7",
        modulus: ModulusKind::Goldilocks,
        lwe_dimension: 1060,
        ring_degree: 16384,
        glwe_dimension: 1,
        gadget: Gadget {
            levels: 2,
            log2_base: 13,
        },
        body_gadget: Some(Gadget {
            levels: 1,
            log2_base: 19,
        }),
        key_switch: Gadget {
            levels: 4,
            log2_base: 5,
        },
        log2_lwe_noise: -24.5,
        log2_glwe_noise: -62.0,
        body_bits: 47,
        modulus_switch: ModulusSwitch::MeanCompensated,
    },
    wopbs: None,
};

/// 2 + 2 bits (message and carry) plus padding; failure at most 2^-128 for 4·x + y of bootstrapped samples.
pub static MESSAGE4: ParamSet = ParamSet {
    id: 3,
    purpose: "2 + 2 bits (message and carry) at failure below 2^-128",
    message_bits: 4,
    security: Security {
        bits: 128,
        source: ESTIMATOR_LINE,
    },
    stage: StageParams {
        name: "message4",
        modulus: ModulusKind::Goldilocks,
        lwe_dimension: 1020,
        ring_degree: 2048,
        glwe_dimension: 1,
        gadget: Gadget {
            levels: 1,
            log2_base: 23,
        },
        body_gadget: Some(Gadget {
            levels: 1,
            log2_base: 23,
        }),
        key_switch: Gadget {
            levels: 4,
            log2_base: 5,
        },
        log2_lwe_noise: -23.5,
        log2_glwe_noise: -49.75,
        body_bits: 49,
        modulus_switch: ModulusSwitch::MeanCompensated,
    },
    wopbs: None,
};

/// Boolean gates with messages ±1/8; failure at most 2^-128 a gate.
pub static GATE: ParamSet = ParamSet {
    id: 4,
    purpose: "Boolean gates at failure below 2^-128",
    message_bits: 0,
    security: Security {
        bits: 128,
        source: ESTIMATOR_LINE,
    },
    stage: StageParams {
        name: "gate",
        modulus: ModulusKind::Torus32,
        lwe_dimension: 690,
        ring_degree: 1024,
        glwe_dimension: 1,
        gadget: Gadget {
            levels: 3,
            log2_base: 6,
        },
        body_gadget: Some(Gadget {
            levels: 3,
            log2_base: 6,
        }),
        key_switch: Gadget {
            levels: 4,
            log2_base: 3,
        },
        log2_lwe_noise: -15.0,
        log2_glwe_noise: -23.5,
        body_bits: 24,
        modulus_switch: ModulusSwitch::MeanCompensated,
    },
    wopbs: None,
};

/// For tests over the Goldilocks modulus: fast and insecure.
pub static TINY: ParamSet = ParamSet {
    id: 5,
    purpose: "tests only: INSECURE, Goldilocks modulus",
    message_bits: 4,
    security: Security {
        bits: 0,
        source: "none: for tests",
    },
    stage: StageParams {
        name: "tiny",
        modulus: ModulusKind::Goldilocks,
        lwe_dimension: 32,
        ring_degree: 512,
        glwe_dimension: 1,
        gadget: Gadget {
            levels: 1,
            log2_base: 20,
        },
        body_gadget: Some(Gadget {
            levels: 1,
            log2_base: 20,
        }),
        key_switch: Gadget {
            levels: 3,
            log2_base: 6,
        },
        log2_lwe_noise: -25.0,
        log2_glwe_noise: -50.0,
        body_bits: 48,
        modulus_switch: ModulusSwitch::MeanCompensated,
    },
    wopbs: None,
};

/// For tests over the 32-bit torus with k = 2 and two different gadgets: fast and insecure.
pub static TINY32: ParamSet = ParamSet {
    id: 6,
    purpose: "tests only: INSECURE, 32-bit torus, k = 2",
    message_bits: 3,
    security: Security {
        bits: 0,
        source: "none: for tests",
    },
    stage: StageParams {
        name: "tiny32",
        modulus: ModulusKind::Torus32,
        lwe_dimension: 32,
        ring_degree: 256,
        glwe_dimension: 2,
        gadget: Gadget {
            levels: 3,
            log2_base: 7,
        },
        body_gadget: Some(Gadget {
            levels: 2,
            log2_base: 8,
        }),
        key_switch: Gadget {
            levels: 5,
            log2_base: 4,
        },
        log2_lwe_noise: -25.0,
        log2_glwe_noise: -28.0,
        body_bits: 27,
        modulus_switch: ModulusSwitch::Nearest,
    },
    wopbs: None,
};

/// The smallest log2 alpha that is 128-bit secure in a dimension from 450 to 2048, in steps of 0.25 on or above the line.
#[must_use]
pub fn smallest_log2_noise(dimension: usize) -> f64 {
    ((2.67593 - 0.0256968 * dimension as f64) * 4.0).ceil() / 4.0
}

/// Names that sets had before, beside those that they have: commands and configurations may still use them.
const FORMER_NAMES: [(&str, &str); 3] = [
    ("exact14", "message14"),
    ("exact16", "message16"),
    ("tiny-exact", "tiny-wopbs"),
];

impl ParamSet {
    /// Every set, in the order of their identifiers.
    pub const ALL: [&'static ParamSet; 10] = [
        &PAPER,
        &MESSAGE7,
        &MESSAGE4,
        &GATE,
        &TINY,
        &TINY32,
        &MESSAGE14,
        &MESSAGE16,
        &TINY_WOPBS,
        &MESSAGE8,
    ];

    /// The set with this identifier.
    #[must_use]
    pub fn by_id(id: u16) -> Option<&'static ParamSet> {
        Self::ALL.into_iter().find(|set| set.id == id)
    }

    /// The set with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static ParamSet> {
        let name = FORMER_NAMES
            .iter()
            .find(|(former, _)| *former == name)
            .map_or(name, |(_, name)| name);
        Self::ALL.into_iter().find(|set| set.name == name)
    }

    /// Whether the set protects nothing and is for tests alone.
    #[must_use]
    pub fn is_insecure(&self) -> bool {
        self.security.bits == 0
    }

    /// Whether it evaluates wide functions, by circuit bootstrapping; the other sets have programmable bootstraps.
    #[must_use]
    pub const fn is_wide(&self) -> bool {
        self.wopbs.is_some()
    }

    /// The stages whose GGSW samples the bootstrapping key holds, in the order of its parts.
    #[must_use]
    pub fn bootstrapping_parts(&self) -> Vec<&StageParams> {
        match self.wopbs {
            None => vec![&self.stage],
            Some(wopbs) => wopbs.bootstrapping_parts().to_vec(),
        }
    }

    /// The stages whose samples the key-switching key holds, in the order of its parts.
    #[must_use]
    pub fn key_switching_parts(&self) -> Vec<&StageParams> {
        match self.wopbs {
            None => vec![&self.stage],
            Some(wopbs) => wopbs.key_switching_parts().to_vec(),
        }
    }

    /// Words of a test vector: a GLWE sample, or the table of 2^p entries of a wide function.
    #[must_use]
    pub const fn test_vector_words(&self) -> usize {
        if self.is_wide() {
            1 << self.message_bits
        } else {
            self.stage.glwe_words()
        }
    }

    /// Bytes of a test vector: (k+1)·N·w, or 2^p·w for a wide function.
    #[must_use]
    pub const fn test_vector_bytes(&self) -> usize {
        self.test_vector_words() * self.stage.modulus.word_bytes()
    }

    /// Bytes of the bootstrapping key in the NTT domain: [`StageParams::ggsw_list_bytes`] of its parts.
    #[must_use]
    pub fn bootstrapping_key_bytes(&self) -> u64 {
        let parts = self.bootstrapping_parts();
        parts.into_iter().map(StageParams::ggsw_list_bytes).sum()
    }

    /// Bytes of the key-switching key: [`StageParams::key_switching_bytes`] of its parts.
    #[must_use]
    pub fn key_switching_key_bytes(&self) -> u64 {
        let parts = self.key_switching_parts();
        parts
            .into_iter()
            .map(StageParams::key_switching_bytes)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_noise_of_secure_sets_is_on_or_above_the_line() {
        for set in ParamSet::ALL {
            if set.security.bits < 128 {
                continue;
            }
            for set in [&set.stage].into_iter().chain(set.key_switching_parts()) {
                let lwe = smallest_log2_noise(set.lwe_dimension);
                assert!(set.log2_lwe_noise >= lwe, "{}", set.name);
                let dimension = set.extracted_dimension().min(2048);
                let glwe = smallest_log2_noise(dimension).max(2.0 - set.modulus.log2());
                let enough = set.extracted_dimension() > 2048 || set.log2_glwe_noise >= glwe;
                assert!(enough, "{}", set.name);
            }
        }
    }
}
