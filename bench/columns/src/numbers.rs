//! Plain numbers to encrypt.

/// Numbers from 0 to `below` - 1 that look random, the same in every run.
pub fn numbers(count: usize, below: u64) -> Vec<i64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 20) % below) as i64
    };
    (0..count).map(next).collect()
}
