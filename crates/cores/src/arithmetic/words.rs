//! Words as the cores hold them: their widths, and the files that memories are read from.

/// Bits that hold 0 to `count` - 1, at least one: `toroid_pkg::index_width`.
pub(crate) fn index_bits(count: usize) -> u32 {
    count.next_power_of_two().trailing_zeros().max(1)
}

/// Words of `bits` bits side by side, word 0 lowest, as hexadecimal digits.
pub(crate) fn hex_of(words: impl DoubleEndedIterator<Item = u64>, bits: usize) -> String {
    let mut digits = Vec::new();
    let (mut rest, mut held) = (0u128, 0);
    for word in words {
        rest |= u128::from(word) << held;
        held += bits;
        while held >= 4 {
            digits.push(char::from_digit((rest & 15) as u32, 16).unwrap_or('0'));
            rest >>= 4;
            held -= 4;
        }
    }
    if held > 0 {
        digits.push(char::from_digit((rest & 15) as u32, 16).unwrap_or('0'));
    }
    digits.iter().rev().collect()
}
