//! Values of some bits each, in a row without gaps: the lowest bit of the first value is the lowest bit of the first byte.

use crate::TfheError;

/// Bytes of `count` values of `width` bits.
#[must_use]
pub const fn bytes(count: usize, width: u32) -> usize {
    (count * width as usize).div_ceil(8)
}

/// Appends values below 2^width, for a width of 1 to 64, to `out`. Bits that are left in the last byte are 0.
pub fn write(values: impl Iterator<Item = u64>, width: u32, out: &mut Vec<u8>) {
    let (mut pending, mut filled) = (0u128, 0);
    for value in values {
        pending |= u128::from(value) << filled;
        filled += width;
        if filled >= 64 {
            out.extend_from_slice(&(pending as u64).to_le_bytes());
            pending >>= 64;
            filled -= 64;
        }
    }
    out.extend_from_slice(&pending.to_le_bytes()[..filled.div_ceil(8) as usize]);
}

/// The values that [`write()`] wrote into these bytes, as many as they have room for and `count` at most; `what` is what they are
/// called in errors.
///
/// # Errors
/// [`TfheError::Format`] where bits follow the last value.
pub fn read(
    bytes: &[u8],
    width: u32,
    count: usize,
    what: &str,
    mut take: impl FnMut(u64),
) -> Result<(), TfheError> {
    let mask = u64::MAX >> (64 - width);
    let (mut pending, mut filled) = (0u128, 0);
    let mut words = bytes.chunks(8).map(|bytes| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u128::from(u64::from_le_bytes(word))
    });
    for _ in 0..count {
        if filled < width {
            pending |= words.next().unwrap_or_default() << filled;
            filled += 64;
        }
        take(pending as u64 & mask);
        pending >>= width;
        filled -= width;
    }
    if pending != 0 {
        return Err(TfheError::Format(format!("bits follow the end of {what}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_all(bytes: &[u8], width: u32, count: usize) -> Result<Vec<u64>, TfheError> {
        let mut values = Vec::new();
        read(bytes, width, count, "it", |value| values.push(value))?;
        Ok(values)
    }

    proptest! {
        #[test]
        fn values_come_back(words: Vec<u64>, width in 1u32..=64) {
            let values: Vec<u64> = words.iter().map(|word| word >> (64 - width)).collect();
            let mut written = vec![7];
            write(values.iter().copied(), width, &mut written);
            prop_assert_eq!(written.len(), 1 + bytes(values.len(), width));
            prop_assert_eq!(read_all(&written[1..], width, values.len()).unwrap(), values);
        }
    }

    #[test]
    fn the_lowest_bits_come_first() {
        let mut written = Vec::new();
        write([5, 1, 3, 6].into_iter(), 3, &mut written);
        assert_eq!(written, [0b1100_1101, 0b1100]);
        assert_eq!(read_all(&written, 3, 4).unwrap(), [5, 1, 3, 6]);
    }

    #[test]
    fn bits_after_the_last_value_are_refused() {
        for (bytes, count) in [(&[1, 0x10][..], 4), (&[0xff, 0x80], 5), (&[0x40], 2)] {
            let refused = read_all(bytes, 3, count);
            assert!(matches!(refused, Err(TfheError::Format(_))), "{bytes:?}");
        }
    }
}
