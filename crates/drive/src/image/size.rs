//! Sizes as people write them.

use thiserror::Error;

const BINARY: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const DECIMAL: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SizeError {
    /// Neither a number nor a number and a unit.
    #[error("`{0}` is not a size; expected a number and a unit, like 8GiB, 512 MB or 4096")]
    Syntax(String),
    /// Larger than 2^64 - 1 bytes.
    #[error("`{0}` is too large; sizes end below 16 EiB")]
    TooLarge(String),
}

/// Bytes of a size such as `8GiB`, `512 MB`, `64K` or `4096`.
///
/// KiB, MiB, … and the bare letters K, M, … are powers of 1024; kB, MB, … are powers of 1000. Case does not matter.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let shown = || text.chars().take(40).collect::<String>();
    let trimmed = text.trim();
    let digits_end = trimmed
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(trimmed.len());
    let (digits, unit) = trimmed.split_at(digits_end);
    let unit = unit.trim_start();
    if digits.is_empty() {
        return Err(SizeError::Syntax(shown()));
    }
    let position = |units: &[&str]| units.iter().position(|u| u.eq_ignore_ascii_case(unit));
    let bare = || {
        let letters = BINARY.map(|unit| &unit[..1]);
        position(&letters).filter(|&power| power > 0)
    };
    let multiplier = if unit.is_empty() {
        1
    } else if let Some(power) = position(&BINARY).or_else(bare) {
        1u64 << (10 * power)
    } else if let Some(power) = position(&DECIMAL) {
        1000u64.pow(power as u32)
    } else {
        return Err(SizeError::Syntax(shown()));
    };
    let number: Option<u64> = digits.parse().ok();
    number
        .and_then(|number| number.checked_mul(multiplier))
        .ok_or_else(|| SizeError::TooLarge(shown()))
}

/// The size in the largest power of 1024 that it reaches: `8 GiB`, `1.5 MiB`, `100 B`.
pub fn display_size(bytes: u64) -> String {
    let power = (bytes.max(1).ilog2() / 10) as usize;
    let value = bytes as f64 / (1u64 << (10 * power)) as f64;
    let digits = format!("{value:.2}");
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits} {}", BINARY[power])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("7B", 7),
            ("8GiB", 8 << 30),
            ("8gib", 8 << 30),
            (" 64 KiB ", 65536),
            ("64K", 65536),
            ("2t", 2 << 40),
            ("512MB", 512_000_000),
            ("1 kB", 1000),
            ("15EiB", 15 << 60),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn no_sizes() {
        for text in [
            "", "GiB", "-1", "1.5GiB", "8 Gi", "8GiBs", "8 8", "0x10", "½",
        ] {
            assert!(
                matches!(parse_size(text), Err(SizeError::Syntax(_))),
                "{text}"
            );
        }
        for text in ["16EiB", "18446744073709551616", "99999999999999999999999K"] {
            assert!(
                matches!(parse_size(text), Err(SizeError::TooLarge(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn displayed() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (4096, "4 KiB"),
            (3 << 19, "1.5 MiB"),
            (8 << 30, "8 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(display_size(bytes), text);
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_or_fails(text in ".{0,20}") {
            let _ = parse_size(&text);
        }

        #[test]
        fn whole_units_round_trip(number in 1..1024u64, power in 0..6u32) {
            let bytes = number << (10 * power);
            prop_assert_eq!(parse_size(&display_size(bytes)), Ok(bytes));
        }
    }
}
