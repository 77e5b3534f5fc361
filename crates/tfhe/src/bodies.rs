//! Bodies of bootstrapping keys: rounded to the bits that their noise leaves, and packed without gaps.
//!
//! A key's rows are encrypted first, and then their bodies are rounded to [`StageParams::body_bits`] bits: anybody can round what is
//! public, so that this takes nothing from their security. What rounding adds to a row's noise is in
//! every formula (`loaded_key_variance`). All forms of a key hold the same rounded bodies.

use crate::TfheError;
use crate::bits;
use crate::modulus::Modulus;
use crate::params::StageParams;
use crate::seeded::KeyForm;

/// The nearest word whose leading `width` bits say all of it; of two, the one that is a multiple of the double step, so that errors
/// have no mean. It takes the same time for all words.
pub(crate) fn round<M: Modulus>(word: M::Word, width: u32) -> M::Word {
    if width == 64 {
        return word;
    }
    let (torus, dropped) = (M::to_u64_torus(word), 64 - width);
    let below_half = (1 << (dropped - 1)) - 1;
    // A carry out of the top is a whole turn. The largest word of the Goldilocks prime is a multiple of 2^32, so that none comes
    // between it and the prime.
    let rounded = torus.wrapping_add(below_half + (torus >> dropped & 1));
    M::from_u64_torus(rounded >> dropped << dropped)
}

/// Appends rounded bodies to `out`, [`StageParams::body_bits`] bits a coefficient: whole bytes for each polynomial.
pub(crate) fn pack<M: Modulus>(bodies: &[M::Word], width: u32, out: &mut Vec<u8>) {
    let values = bodies
        .iter()
        .map(|word| M::to_u64_torus(*word) >> (64 - width));
    bits::write(values, width, out);
}

/// The words of coefficients of `width` bits, as many as there is room for.
pub(crate) fn unpack<M: Modulus>(bytes: &[u8], width: u32, words: &mut [M::Word]) {
    for (index, word) in words.iter_mut().enumerate() {
        *word = M::from_u64_torus(coefficient(bytes, index * width as usize, width));
    }
}

/// The bodies of a seeded key of one stage in a form, without its seed.
///
/// # Errors
/// [`TfheError::NotCanonical`] for a word that is not below q.
pub fn read<M: Modulus>(
    params: &StageParams,
    form: KeyForm,
    bytes: &[u8],
) -> Result<Vec<M::Word>, TfheError> {
    let width = form.body_width(params);
    let mut words = vec![M::Word::default(); 8 * bytes.len() / width as usize];
    unpack::<M>(bytes, width, &mut words);
    match words.iter().position(|word| !M::is_canonical(*word)) {
        None => Ok(words),
        Some(index) => Err(TfheError::NotCanonical {
            what: "the seeded bootstrapping key",
            index: index as u64,
        }),
    }
}

/// The coefficient of `width` bits that begins at bit `first`, on the torus in units of 2^-64; bits beyond the bytes are 0.
pub(crate) fn coefficient(bytes: &[u8], first: usize, width: u32) -> u64 {
    let bytes = &bytes[first / 8..];
    let window = match bytes.first_chunk::<16>() {
        Some(window) => u128::from_le_bytes(*window),
        None => {
            let mut window = [0; 16];
            window[..bytes.len()].copy_from_slice(bytes);
            u128::from_le_bytes(window)
        }
    };
    ((window >> (first % 8)) as u64) << (64 - width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modulus::{Goldilocks, Torus32, Words};
    use crate::params::TINY;
    use proptest::prelude::*;
    use toroid_ring::goldilocks::P;

    proptest! {
        #[test]
        fn rounded_words_are_the_nearest_and_come_back(words: Vec<u64>, width in 32u32..=64) {
            let words: Vec<u64> = words.iter().map(|word| word % P).collect();
            let rounded: Vec<u64> = words.iter().map(|word| round::<Goldilocks>(*word, width)).collect();
            for (word, rounded) in words.iter().zip(&rounded) {
                prop_assert!(*rounded < P);
                let off = Goldilocks::centered(Goldilocks::sub(*rounded, *word)).unsigned_abs();
                prop_assert!(off <= 1 << (64 - width) >> 1);
            }
            let mut packed = Vec::new();
            pack::<Goldilocks>(&rounded, width, &mut packed);
            let mut read = vec![0; rounded.len()];
            unpack::<Goldilocks>(&packed, width, &mut read);
            prop_assert_eq!(read, rounded);
        }

        #[test]
        fn words_of_32_bits_come_back(words: Vec<u32>, width in 16u32..=32) {
            let rounded: Vec<u32> = words.iter().map(|word| round::<Torus32>(*word, width)).collect();
            for (word, rounded) in words.iter().zip(&rounded) {
                let off = Torus32::centered(rounded.wrapping_sub(*word)).unsigned_abs();
                prop_assert!(off <= 1 << (32 - width) >> 1);
            }
            let mut packed = Vec::new();
            pack::<Torus32>(&rounded, width, &mut packed);
            let mut read = vec![0; rounded.len()];
            unpack::<Torus32>(&packed, width, &mut read);
            prop_assert_eq!(read, rounded);
        }
    }

    #[test]
    fn halves_go_to_even_multiples_and_the_last_step_is_a_turn() {
        let found = [0x04, 0x0c, 0x14, 0x1c, 0x05, 0x03].map(|word| round::<Torus32>(word, 29));
        assert_eq!(found, [0, 0x10, 0x10, 0x20, 0x08, 0]);
        assert_eq!(round::<Torus32>(0xffff_ffff, 29), 0);
        assert_eq!(round::<Goldilocks>(P - 1, 49), (P - 1) & !0x7fff);
    }

    #[test]
    fn words_beyond_the_prime_are_refused() {
        let read = |bytes: &[u8]| read::<Goldilocks>(&TINY, KeyForm::SeededWords, bytes);
        let bytes = [1, P].map(u64::to_le_bytes).concat();
        let refused = read(&bytes);
        assert!(matches!(
            refused,
            Err(TfheError::NotCanonical { index: 1, .. })
        ));
        assert_eq!(read(&bytes[..8]).unwrap(), [1]);
    }
}
