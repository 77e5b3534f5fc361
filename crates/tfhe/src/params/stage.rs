//! The parameters of one stage of a bootstrap, and what they are made of.

/// The ciphertext modulus q of a parameter set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModulusKind {
    /// q = 2^32, the 32-bit torus of the platform paper.
    Torus32,
    /// q = p = 2^64 - 2^32 + 1, one modulus for keys, integer arithmetic and hardware.
    Goldilocks,
}

impl ModulusKind {
    /// Bytes of one ciphertext word: 4 or 8.
    #[must_use]
    pub const fn word_bytes(self) -> usize {
        match self {
            ModulusKind::Torus32 => 4,
            ModulusKind::Goldilocks => 8,
        }
    }

    /// log2 q, to the accuracy that noise formulas need: 32 or 64.
    #[must_use]
    pub const fn log2(self) -> f64 {
        match self {
            ModulusKind::Torus32 => 32.0,
            ModulusKind::Goldilocks => 64.0,
        }
    }
}

/// How an LWE sample is brought to the modulus 2N before blind rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModulusSwitch {
    /// Every mask word is rounded on its own: standard deviation sqrt(n/24) steps of 1/2N for a uniform binary key.
    Nearest,
    /// The mean of the rounding errors, known without the key, is taken off the body: what stays is
    /// sum u_i (s_i - 1/2), standard deviation sqrt(n/48) steps whatever the key's weight.
    MeanCompensated,
}

/// A gadget: `levels` signed digits in base 2^`log2_base`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gadget {
    /// Number of digits (l of the bootstrapping key, t of the key-switching key).
    pub levels: usize,
    /// log2 of the base.
    pub log2_base: u32,
}

/// The parameters of one stage: external products with a list of GGSW samples, and the key and modulus switches before them.
///
/// A programmable bootstrap is one stage; a bootstrap of wide functions has several ([`super::WopbsParams`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageParams {
    /// Name in messages.
    pub name: &'static str,
    /// Ciphertext modulus.
    pub modulus: ModulusKind,
    /// n, dimension of an LWE sample: the number of external products.
    pub lwe_dimension: usize,
    /// N, degree of the ring.
    pub ring_degree: usize,
    /// k, dimension of a GLWE sample.
    pub glwe_dimension: usize,
    /// Gadget of the external product for the mask (l, B).
    pub gadget: Gadget,
    /// Gadget of the external product for the body, whose dropped digits the secret key does not amplify: it may be coarser.
    /// `None` for switches between ring keys, which multiply the mask alone.
    pub body_gadget: Option<Gadget>,
    /// Gadget of the key-switching key (t digits).
    pub key_switch: Gadget,
    /// log2 of the standard deviation of LWE noise, as a fraction of the torus.
    pub log2_lwe_noise: f64,
    /// log2 of the standard deviation of GLWE noise, as a fraction of the torus.
    pub log2_glwe_noise: f64,
    /// Bits to which the bodies of GGSW samples of a public key are rounded ([`crate::bodies`]): the leading ones of a word.
    pub body_bits: u32,
    /// Form of the modulus switch.
    pub modulus_switch: ModulusSwitch,
}

impl StageParams {
    /// Words of an LWE sample: n + 1.
    #[must_use]
    pub const fn lwe_words(&self) -> usize {
        self.lwe_dimension + 1
    }

    /// Bytes of an LWE sample: (n+1)·w.
    #[must_use]
    pub const fn lwe_bytes(&self) -> usize {
        self.lwe_words() * self.modulus.word_bytes()
    }

    /// Words of a GLWE sample: (k+1)·N.
    #[must_use]
    pub const fn glwe_words(&self) -> usize {
        (self.glwe_dimension + 1) * self.ring_degree
    }

    /// Dimension k·N of the sample that sample extraction yields.
    #[must_use]
    pub const fn extracted_dimension(&self) -> usize {
        self.glwe_dimension * self.ring_degree
    }

    /// Rows of one GGSW sample: those of the k mask components, then those of the body. l·(k+1) where both gadgets have
    /// l levels.
    #[must_use]
    pub const fn ggsw_rows(&self) -> usize {
        let body = match self.body_gadget {
            Some(gadget) => gadget.levels,
            None => 0,
        };
        self.gadget.levels * self.glwe_dimension + body
    }

    /// The component that row `row` of a GGSW sample multiplies a digit of, that component's gadget and the digit's level.
    #[must_use]
    pub const fn ggsw_row(&self, row: usize) -> (usize, Gadget, usize) {
        let Gadget { levels, .. } = self.gadget;
        match self.body_gadget {
            Some(gadget) if row >= levels * self.glwe_dimension => (
                self.glwe_dimension,
                gadget,
                row - levels * self.glwe_dimension,
            ),
            _ => (row / levels, self.gadget, row % levels),
        }
    }

    /// GGSW samples of an unrolled bootstrapping key: three for every two key bits, 3·⌈n/2⌉.
    #[must_use]
    pub const fn unrolled_samples(&self) -> usize {
        3 * self.lwe_dimension.div_ceil(2)
    }

    /// The same parameters with as many GGSW samples as an unrolled bootstrapping key has in the place of n: for sizes and
    /// streams of such a key.
    #[must_use]
    pub const fn unrolled(&self) -> StageParams {
        StageParams {
            lwe_dimension: self.unrolled_samples(),
            ..*self
        }
    }

    /// Words (u64) of one GGSW sample in the NTT domain: l·(k+1)^2·N for l·(k+1) rows.
    #[must_use]
    pub const fn ggsw_words(&self) -> usize {
        self.ggsw_rows() * (self.glwe_dimension + 1) * self.ring_degree
    }

    /// Samples of the key-switching key: t·k·N.
    #[must_use]
    pub const fn key_switching_samples(&self) -> usize {
        self.key_switch.levels * self.extracted_dimension()
    }

    /// Variance of LWE noise over the torus.
    #[must_use]
    pub fn lwe_variance(&self) -> f64 {
        (2.0 * self.log2_lwe_noise).exp2()
    }

    /// Variance of GLWE noise over the torus.
    #[must_use]
    pub fn glwe_variance(&self) -> f64 {
        (2.0 * self.log2_glwe_noise).exp2()
    }

    /// Bytes of the n GGSW samples in the NTT domain (BKNTT of Table 3): n·N·l·(k+1)^2·8.
    #[must_use]
    pub const fn ggsw_list_bytes(&self) -> u64 {
        self.lwe_dimension as u64 * self.ggsw_words() as u64 * 8
    }

    /// Bytes of the key-switching samples (KSK of Table 3): (n+1)·t·k·N·4, for their words are of the 32-bit torus whatever the
    /// ciphertext modulus is.
    #[must_use]
    pub const fn key_switching_bytes(&self) -> u64 {
        4 * self.lwe_words() as u64 * self.key_switching_samples() as u64
    }
}
