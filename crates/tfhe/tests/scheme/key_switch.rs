//! Key switching against its definition.

use proptest::prelude::*;
use toroid_ring::simd::SimdLevel;
use toroid_tfhe::key_switch::{KeySwitchingKey, KeySwitchingKeyLoader};
use toroid_tfhe::modulus::{DigitField, Goldilocks, Modulus, Torus32, Words};
use toroid_tfhe::params::{Gadget, StageParams, TINY, TINY32};
use toroid_tfhe::random::Csprng;

/// A key of random words.
fn key<M: Modulus>(params: &StageParams, simd: SimdLevel, rng: &mut Csprng) -> KeySwitchingKey<M> {
    let mut words = vec![0; params.key_switching_bytes() as usize / 4];
    rng.fill_uniform::<Torus32>(&mut words);
    let mut loader = KeySwitchingKeyLoader::<M>::new(params, simd).unwrap();
    loader.write(bytemuck::cast_slice(&words)).unwrap();
    loader.finish().unwrap()
}

/// (0, b) - sum_i sum_j d_ij·KSK_ij, word by word.
fn by_definition<M: Modulus>(key: &KeySwitchingKey<M>, extracted: &[M::Word]) -> Vec<M::Word> {
    let params = key.params();
    let (mask, body) = extracted.split_at(params.extracted_dimension());
    let mut sum = vec![0u32; params.lwe_words()];
    let mut rows = key.words().chunks_exact(params.lwe_words());
    for word in mask {
        for level in 0..params.key_switch.levels {
            let field = DigitField::new(M::KIND, params.key_switch, level);
            let digit = M::digit(*word, field);
            for (sum, word) in sum.iter_mut().zip(rows.next().unwrap()) {
                *sum = Torus32::add(*sum, Torus32::mul_signed(*word, digit));
            }
        }
    }
    let mut out: Vec<_> = sum
        .into_iter()
        .map(|sum| M::from_torus32(Torus32::neg(sum)))
        .collect();
    out[params.lwe_dimension] = M::add(out[params.lwe_dimension], body[0]);
    out
}

fn switches_by_definition<M: Modulus>(params: &StageParams, seed: u8) {
    for simd in SimdLevel::available() {
        let mut rng = Csprng::from_seed([seed; 32]);
        let key = key::<M>(params, simd, &mut rng);
        let mut extracted = vec![M::Word::default(); params.extracted_dimension() + 1];
        rng.fill_uniform::<M>(&mut extracted);
        let expected = by_definition(&key, &extracted);
        for threads in 1..=3 {
            let mut out = vec![M::Word::default(); params.lwe_words()];
            key.switch(&extracted, &mut out, threads).unwrap();
            assert_eq!(out, expected, "{simd}, {threads} threads");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_switch_is_its_definition(
        seed: u8,
        levels in 1usize..8,
        lwe_dimension in 1usize..70,
        log2_degree in 1u32..8,
    ) {
        let of = |params: StageParams| StageParams {
            lwe_dimension,
            ring_degree: 1 << log2_degree,
            key_switch: Gadget { levels, log2_base: 3 },
            ..params
        };
        switches_by_definition::<Goldilocks>(&of(TINY.stage), seed);
        switches_by_definition::<Torus32>(&of(TINY32.stage), seed);
    }
}
