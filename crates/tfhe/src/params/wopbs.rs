//! Sets whose bootstrap evaluates any table of 2^p entries exactly, by circuit bootstrapping and vertical packing.
//!
//! A sample has the large dimension k·N and is never brought to a small one but inside of a bootstrap ([`crate::wopbs`]), whose
//! four stages are external products with four keys of one ring. [`StageParams`] describe each of them, so that
//! keys, loaders and noise formulas are those of a programmable bootstrap.

use super::stage::{Gadget, ModulusKind, ModulusSwitch, StageParams};
use super::{ESTIMATOR_LINE, ParamSet, Security};

/// The stages of a wide function.
#[derive(Debug, PartialEq)]
pub struct WopbsParams {
    /// Key switch, modulus switch and blind rotation that take one bit off a sample.
    pub extract: StageParams,
    /// Key switches between ring keys: n = log2 N + k of them, for the automorphisms X → X^(2^s + 1), s = log2 N down to 1, and
    /// for the products by each secret polynomial. Mask rows alone.
    pub switch: StageParams,
    /// The GGSW samples of the p bits, which circuit bootstrapping makes: n = p.
    pub circuit: StageParams,
    /// The bootstrap that brings a digit of the result back to the noise and the place of a message.
    pub refresh: StageParams,
    /// Largest digit of a result that one refreshing bootstrap takes, in bits.
    pub digit_bits: u32,
}

impl WopbsParams {
    /// log2 of the number of values that one extraction reads off: a level of the circuit gadget each, and the value of the bit
    /// in its place of the message.
    #[must_use]
    pub const fn log2_slots(&self) -> u32 {
        (self.circuit.gadget.levels + 1)
            .next_power_of_two()
            .trailing_zeros()
    }

    /// The bits of each digit of a result of `bits` bits, the lowest first: as few digits as possible, as equal as possible.
    #[must_use]
    pub fn digits(&self, bits: u32) -> Vec<u32> {
        let count = bits.div_ceil(self.digit_bits);
        (0..count)
            .map(|index| bits * (index + 1) / count - bits * index / count)
            .collect()
    }

    /// The parts of the bootstrapping key, in the order in which they stand.
    #[must_use]
    pub const fn bootstrapping_parts(&self) -> [&StageParams; 3] {
        [&self.extract, &self.refresh, &self.switch]
    }

    /// The parts of the key-switching key, in the order in which they stand.
    #[must_use]
    pub const fn key_switching_parts(&self) -> [&StageParams; 2] {
        [&self.extract, &self.refresh]
    }
}

/// What is chosen for a set (`bench/scheme/src/bin/search.rs` chooses); everything else follows.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Identifier of the set.
    pub id: u16,
    /// Names of the set and of its stages: extraction, ring key switch, circuit, refresh.
    pub names: [&'static str; 5],
    /// What the set is for.
    pub purpose: &'static str,
    /// p.
    pub message_bits: u32,
    /// N.
    pub ring_degree: usize,
    /// k.
    pub glwe_dimension: usize,
    /// log2 of the standard deviation of GLWE noise, and of LWE noise in dimension k·N.
    pub log2_glwe_noise: f64,
    /// Security of the smallest dimension with its noise.
    pub security: Security,
    /// The bootstrap that extracts a bit.
    pub extract: Small,
    /// The bootstrap that refreshes a digit.
    pub refresh: Small,
    /// Gadget of the ring key switches.
    pub switch: Gadget,
    /// Gadget of the GGSW samples of bits.
    pub circuit: Gadget,
    /// Bits of the bodies of the ring key switches.
    pub switch_body_bits: u32,
    /// [`WopbsParams::digit_bits`].
    pub digit_bits: u32,
}

/// A bootstrap from a small dimension.
#[derive(Clone, Copy, Debug)]
pub struct Small {
    /// n.
    pub dimension: usize,
    /// log2 of the standard deviation of its LWE noise.
    pub log2_noise: f64,
    /// Gadget of its GGSW samples.
    pub gadget: Gadget,
    /// Gadget of the key switch before it.
    pub key_switch: Gadget,
    /// [`StageParams::body_bits`].
    pub body_bits: u32,
}

/// [`StageParams::body_bits`] of bodies that are not rounded, as those that are not part of a public key.
pub const WHOLE_WORDS: u32 = 64;

const fn gadget(levels: usize, log2_base: u32) -> Gadget {
    Gadget { levels, log2_base }
}

impl Choice {
    const fn stage(&self, name: usize, small: &Small, body_gadget: Option<Gadget>) -> StageParams {
        StageParams {
            name: self.names[name],
            modulus: ModulusKind::Goldilocks,
            lwe_dimension: small.dimension,
            ring_degree: self.ring_degree,
            glwe_dimension: self.glwe_dimension,
            gadget: small.gadget,
            body_gadget,
            key_switch: small.key_switch,
            log2_lwe_noise: small.log2_noise,
            log2_glwe_noise: self.log2_glwe_noise,
            body_bits: small.body_bits,
            modulus_switch: ModulusSwitch::MeanCompensated,
        }
    }

    /// External products alone, `dimension` of them.
    const fn within_ring(&self, dimension: usize, of: Gadget, body_bits: u32) -> Small {
        Small {
            dimension,
            log2_noise: self.log2_glwe_noise,
            gadget: of,
            key_switch: gadget(0, 1),
            body_bits,
        }
    }

    /// The stages of the bootstrap.
    #[must_use]
    pub const fn stages(&self) -> WopbsParams {
        let switches = self.ring_degree.trailing_zeros() as usize + self.glwe_dimension;
        WopbsParams {
            extract: self.stage(1, &self.extract, Some(self.extract.gadget)),
            switch: self.stage(
                2,
                &self.within_ring(switches, self.switch, self.switch_body_bits),
                None,
            ),
            circuit: self.stage(
                3,
                &self.within_ring(self.message_bits as usize, self.circuit, WHOLE_WORDS),
                Some(self.circuit),
            ),
            refresh: self.stage(4, &self.refresh, Some(self.refresh.gadget)),
            digit_bits: self.digit_bits,
        }
    }

    /// The set.
    #[must_use]
    pub const fn set(&self, stages: &'static WopbsParams) -> ParamSet {
        let sample = Small {
            dimension: self.glwe_dimension * self.ring_degree,
            log2_noise: self.log2_glwe_noise,
            gadget: self.extract.gadget,
            key_switch: self.extract.key_switch,
            body_bits: WHOLE_WORDS,
        };
        ParamSet {
            id: self.id,
            purpose: self.purpose,
            message_bits: self.message_bits,
            security: self.security,
            stage: self.stage(0, &sample, Some(self.extract.gadget)),
            wopbs: Some(stages),
        }
    }
}

const MESSAGE16_CHOICE: Choice = Choice {
    id: 8,
    names: [
        "message16",
        "message16 (extraction)",
        "message16 (ring key switch)",
        "message16 (circuit)",
        "message16 (refresh)",
    ],
    purpose: "exact functions of 16 message bits, by circuit bootstrapping",
    message_bits: 16,
    ring_degree: 1024,
    glwe_dimension: 2,
    log2_glwe_noise: -49.75,
    security: Security {
        bits: 128,
        source: ESTIMATOR_LINE,
    },
    extract: Small {
        dimension: 620,
        log2_noise: -13.25,
        gadget: gadget(2, 16),
        key_switch: gadget(5, 2),
        body_bits: 50,
    },
    refresh: Small {
        dimension: 826,
        log2_noise: -18.5,
        gadget: gadget(3, 11),
        key_switch: gadget(5, 3),
        body_bits: 48,
    },
    switch: gadget(5, 8),
    circuit: gadget(3, 6),
    switch_body_bits: 50,
    digit_bits: 4,
};

static MESSAGE16_STAGES: WopbsParams = MESSAGE16_CHOICE.stages();

/// Any function of 16 bits; failure at most 2^-128 for the sum of four bootstrapped samples.
pub static MESSAGE16: ParamSet = MESSAGE16_CHOICE.set(&MESSAGE16_STAGES);

const MESSAGE14_CHOICE: Choice = Choice {
    id: 7,
    names: [
        "message14",
        "message14 (extraction)",
        "message14 (ring key switch)",
        "message14 (circuit)",
        "message14 (refresh)",
    ],
    purpose: "exact functions of 14 message bits, by circuit bootstrapping",
    message_bits: 14,
    extract: Small {
        dimension: 640,
        log2_noise: -13.75,
        gadget: gadget(2, 16),
        key_switch: gadget(5, 2),
        body_bits: 50,
    },
    refresh: Small {
        dimension: 816,
        log2_noise: -18.25,
        gadget: gadget(2, 16),
        key_switch: gadget(5, 3),
        body_bits: 51,
    },
    ..MESSAGE16_CHOICE
};

static MESSAGE14_STAGES: WopbsParams = MESSAGE14_CHOICE.stages();

/// Any function of 14 bits; failure at most 2^-128 for the sum of four bootstrapped samples.
pub static MESSAGE14: ParamSet = MESSAGE14_CHOICE.set(&MESSAGE14_STAGES);

const MESSAGE8_CHOICE: Choice = Choice {
    id: 10,
    names: [
        "message8",
        "message8 (extraction)",
        "message8 (ring key switch)",
        "message8 (circuit)",
        "message8 (refresh)",
    ],
    purpose: "exact functions of 8 message bits, by circuit bootstrapping; the default",
    message_bits: 8,
    refresh: Small {
        dimension: 816,
        log2_noise: -18.25,
        gadget: gadget(2, 13),
        key_switch: gadget(5, 3),
        body_bits: 47,
    },
    ..MESSAGE16_CHOICE
};

static MESSAGE8_STAGES: WopbsParams = MESSAGE8_CHOICE.stages();

/// Any function of 8 bits; failure at most 2^-128 for the sum of four bootstrapped samples, and for 4·x + y of them.
pub static MESSAGE8: ParamSet = MESSAGE8_CHOICE.set(&MESSAGE8_STAGES);

const TINY_WOPBS_CHOICE: Choice = Choice {
    id: 9,
    names: [
        "tiny-wopbs",
        "tiny-wopbs (extraction)",
        "tiny-wopbs (ring key switch)",
        "tiny-wopbs (circuit)",
        "tiny-wopbs (refresh)",
    ],
    purpose: "tests only: INSECURE, exact functions of 9 bits",
    message_bits: 9,
    ring_degree: 128,
    glwe_dimension: 2,
    log2_glwe_noise: -52.0,
    security: Security {
        bits: 0,
        source: "none: for tests",
    },
    extract: Small {
        dimension: 16,
        log2_noise: -20.0,
        gadget: gadget(2, 15),
        key_switch: gadget(5, 3),
        body_bits: 50,
    },
    refresh: Small {
        dimension: 20,
        log2_noise: -24.0,
        gadget: gadget(3, 10),
        key_switch: gadget(5, 3),
        body_bits: 50,
    },
    switch: gadget(5, 8),
    circuit: gadget(6, 4),
    switch_body_bits: 50,
    digit_bits: 3,
};

static TINY_WOPBS_STAGES: WopbsParams = TINY_WOPBS_CHOICE.stages();

/// For tests of wide functions: fast and insecure.
pub static TINY_WOPBS: ParamSet = TINY_WOPBS_CHOICE.set(&TINY_WOPBS_STAGES);
