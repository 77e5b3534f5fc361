//! Key switching against its definition.

use proptest::prelude::*;
use toroid_ring::simd::SimdLevel;
use toroid_task::CancelToken;
use toroid_tfhe::TfheError;
use toroid_tfhe::bootstrap::Run;
use toroid_tfhe::key_switch::{KeySwitchingKey, KeySwitchingKeyLoader, Switch};
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

/// Some samples of uniform words.
fn samples<M: Modulus>(params: &StageParams, count: usize, rng: &mut Csprng) -> Vec<Vec<M::Word>> {
    let sample = |_| {
        let mut words = vec![M::Word::default(); params.extracted_dimension() + 1];
        rng.fill_uniform::<M>(&mut words);
        words
    };
    (0..count).map(sample).collect()
}

fn switch_all<M: Modulus>(
    key: &KeySwitchingKey<M>,
    samples: &[Vec<M::Word>],
    out: &mut [M::Word],
    run: Run<'_>,
) -> Result<(), TfheError> {
    let mut switches: Vec<_> = samples
        .iter()
        .zip(out.chunks_exact_mut(key.params().lwe_words()))
        .map(|(extracted, out)| Switch { extracted, out })
        .collect();
    key.switch_all(&mut switches, run)
}

fn switches_by_definition<M: Modulus>(params: &StageParams, count: usize, seed: u8) {
    for simd in SimdLevel::available() {
        let mut rng = Csprng::from_seed([seed; 32]);
        let key = key::<M>(params, simd, &mut rng);
        let samples = samples::<M>(params, count, &mut rng);
        let expected: Vec<_> = samples
            .iter()
            .flat_map(|sample| by_definition(&key, sample))
            .collect();
        for threads in 1..=3 {
            let mut out = vec![M::Word::default(); expected.len()];
            switch_all(&key, &samples, &mut out, Run::with_threads(threads)).unwrap();
            assert_eq!(out, expected, "{simd}, {threads} threads");
            let alone = out.chunks_exact_mut(params.lwe_words());
            for (sample, out) in samples.iter().zip(alone) {
                out.fill(M::Word::default());
                key.switch(sample, out, threads).unwrap();
            }
            assert_eq!(out, expected, "{simd}, {threads} threads, one by one");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_switch_is_its_definition(
        seed: u8,
        // More than share the reading of a key, too.
        count in 0usize..70,
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
        switches_by_definition::<Goldilocks>(&of(TINY.stage), count, seed);
        switches_by_definition::<Torus32>(&of(TINY32.stage), count, seed);
    }
}

#[test]
fn a_switch_that_fails_writes_nothing() {
    let params = &TINY32.stage;
    let mut rng = Csprng::from_seed([5; 32]);
    let key = key::<Torus32>(params, SimdLevel::best(), &mut rng);
    let mut samples = samples::<Torus32>(params, 40, &mut rng);
    let mut out = vec![7; 40 * params.lwe_words()];
    let cancel = CancelToken::new();
    cancel.cancel();
    let stopped = Run {
        threads: 2,
        cancel: &cancel,
    };
    let result = switch_all(&key, &samples, &mut out, stopped);
    assert!(matches!(result, Err(TfheError::Cancelled)));
    samples[39].pop();
    let result = switch_all(&key, &samples, &mut out, Run::with_threads(2));
    assert!(matches!(result, Err(TfheError::Length { .. })));
    assert!(out.iter().all(|word| *word == 7));
}
