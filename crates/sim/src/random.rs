//! Random choices that a seed repeats.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, 0 if that is 0. Its bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// `count` words below `q`: of kind 1 from the ends and the middle of the range, of kind 2 all the largest, of others any;
    /// kinds are taken modulo 4.
    pub fn words(&mut self, q: u64, kind: u64, count: usize) -> Vec<u64> {
        let extremes = [0, 1, 2, q >> 1, (q >> 1) + 1, q - 2, q - 1];
        let mut word = || match kind % 4 {
            1 => extremes[self.below(extremes.len() as u64) as usize],
            2 => q - 1,
            _ => self.below(q),
        };
        (0..count).map(|_| word()).collect()
    }

    /// True with a probability; always for 1, never for 0.
    pub fn chance(&mut self, probability: f64) -> bool {
        const UNIT: f64 = 1.0 / (1u64 << 53) as f64;
        // Without a draw where there is no choice: stalls switched off cost nothing.
        probability > 0.0 && ((self.word() >> 11) as f64 * UNIT) < probability
    }
}
