//! Private functional key switching, circuit bootstrapping by it, and packing.
//!
//! Noise is held against the formulas as in [`crate::noise`]: 5 standard errors sqrt(2/S) of a variance over S values.

use toroid_ring::simd::SimdLevel;
use toroid_task::{CancelToken, Progress};
use toroid_tfhe::TfheError;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::arithmetic::{Arithmetic, Fft, Naive, Ntt};
use toroid_tfhe::bootstrap::Run;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::modulus::{Goldilocks, Modulus, Torus32, Words};
use toroid_tfhe::noise;
use toroid_tfhe::params::{Gadget, ParamSet, TINY, TINY_WOPBS, TINY32, WopbsParams};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::wopbs::packing::switch_packing_noise;
use toroid_tfhe::wopbs::private::{
    CircuitPrivateKey, PrivateSwitchKey, switch_fft_variance, switch_noise,
};
use toroid_tfhe::wopbs::{WopbsKey, WopbsKeySwitchingKey};

const PARAMS: &ParamSet = &TINY_WOPBS;
const N: usize = PARAMS.stage.ring_degree;
const GADGET: Gadget = Gadget {
    levels: 3,
    log2_base: 9,
};
/// A run that nobody stops.
fn alone() -> Run<'static> {
    Run::with_threads(1)
}

fn stages() -> &'static WopbsParams {
    PARAMS.wopbs.unwrap()
}

fn rng(seed: u8) -> Csprng {
    Csprng::from_seed([seed; 32])
}

/// X^power.
fn monomial(power: usize) -> Vec<i32> {
    let mut factor = vec![0; N];
    factor[power] = 1;
    factor
}

fn switch_key<A: Arithmetic<Goldilocks>>(
    client: &ClientKey,
    power: usize,
    rng: &mut Csprng,
) -> PrivateSwitchKey<Goldilocks, A> {
    client
        .loaded_private_switch_key(
            &monomial(power),
            GADGET,
            SimdLevel::best(),
            rng,
            &Progress::none(),
        )
        .unwrap()
}

struct Keys<A: Arithmetic<Goldilocks>> {
    client: ClientKey,
    key: WopbsKey<Goldilocks, A>,
    switching: WopbsKeySwitchingKey<Goldilocks>,
    private: CircuitPrivateKey<Goldilocks, A>,
}

fn keys<A: Arithmetic<Goldilocks>>(seed: u8) -> Keys<A> {
    let mut rng = rng(seed);
    let client = ClientKey::generate(PARAMS, &mut rng);
    let simd = SimdLevel::best();
    Keys {
        key: client
            .loaded_wopbs_key(simd, &mut rng, &Progress::none())
            .unwrap(),
        switching: client
            .loaded_wopbs_key_switching_key(simd, &mut rng, &Progress::none())
            .unwrap(),
        private: client
            .loaded_circuit_private_key(GADGET, simd, &mut rng, &Progress::none())
            .unwrap(),
        client,
    }
}

impl<A: Arithmetic<Goldilocks>> Keys<A> {
    fn encrypt(&self, message: i64, rng: &mut Csprng) -> Vec<u64> {
        let encoding = Encoding::new(PARAMS.message_bits, false).unwrap();
        let bytes = self.client.encrypt_sample(message, encoding, rng).unwrap();
        bytemuck::pod_collect_to_vec(&bytes)
    }
}

/// Samples with uniform words, and with that a uniform message.
fn uniform_samples(count: usize, rng: &mut Csprng) -> Vec<Vec<u64>> {
    let sample = |_| {
        let mut sample = vec![0; PARAMS.extracted_dimension() + 1];
        rng.fill_uniform::<Goldilocks>(&mut sample);
        sample
    };
    (0..count).map(sample).collect()
}

fn slices(samples: &[Vec<u64>]) -> Vec<&[u64]> {
    samples.iter().map(Vec::as_slice).collect()
}

fn fraction(word: u64) -> f64 {
    Goldilocks::centered(word) as f64 / 2f64.powi(64)
}

fn mean_square(errors: &[f64]) -> f64 {
    errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64
}

/// On the f64 arithmetic the rounding of f64 may be almost all of the noise, and its formula is sharp to 15 % alone.
fn check<A: Arithmetic<Goldilocks>>(what: &str, errors: &[f64], formula: f64) {
    let slack = match A::KIND {
        ArithmeticKind::Ntt => 0.0,
        ArithmeticKind::Fft => 0.15,
    };
    let ratio = mean_square(errors) / formula;
    let tolerance = 5.0 * (2.0 / errors.len() as f64).sqrt() + slack;
    assert!(
        (ratio - 1.0).abs() < tolerance,
        "{what} on the {:?} arithmetic: measured/formula {ratio}, allowed 1 ± {tolerance}",
        A::KIND
    );
}

fn switches<A: Arithmetic<Goldilocks>>() {
    let power = 5;
    let (mut at_message, mut elsewhere) = (vec![], vec![]);
    for seed in 0..40 {
        let mut rng = rng(seed);
        let client = ClientKey::generate(PARAMS, &mut rng);
        let key = switch_key::<A>(&client, power, &mut rng);
        let samples = uniform_samples(30, &mut rng);
        let switched = key.switch(&slices(&samples), alone()).unwrap();
        for (sample, switched) in samples.iter().zip(&switched) {
            let message = client.lwe().phase::<Goldilocks>(sample);
            let phase = client.glwe_phase::<Goldilocks>(switched).unwrap();
            at_message.push(fraction(Goldilocks::sub(phase[power], message)));
            let others = phase.iter().enumerate().filter(|(i, _)| *i != power);
            elsewhere.extend(others.map(|(_, word)| fraction(*word)));
        }
    }
    let noise = switch_noise(PARAMS, GADGET, A::KIND);
    check::<A>(
        "private switch: message",
        &at_message,
        noise.message + noise.rows,
    );
    check::<A>("private switch: elsewhere", &elsewhere, noise.rows);
}

#[test]
fn a_private_key_switch_has_the_noise_of_its_formula() {
    switches::<Ntt>();
    switches::<Fft>();
}

/// The difference between the paths is the rounding of f64 alone. Not sharp: the error of a sum is that of
/// an average mantissa.
#[test]
fn f64_adds_the_variance_of_its_formula_to_a_private_key_switch() {
    let mut differences = vec![];
    for seed in 0..4 {
        let client = ClientKey::generate(PARAMS, &mut rng(seed));
        let ntt = switch_key::<Ntt>(&client, 0, &mut rng(seed + 100));
        let fast = switch_key::<Fft>(&client, 0, &mut rng(seed + 100));
        let samples = uniform_samples(20, &mut rng(seed + 200));
        let [a, b] = [
            ntt.switch(&slices(&samples), alone()).unwrap(),
            fast.switch(&slices(&samples), alone()).unwrap(),
        ];
        for (a, b) in a.iter().zip(&b) {
            let [a, b] = [a, b].map(|out| client.glwe_phase::<Goldilocks>(out).unwrap());
            let pairs = a.iter().zip(&b);
            differences.extend(pairs.map(|(a, b)| fraction(Goldilocks::sub(*a, *b))));
        }
    }
    let ratio = mean_square(&differences) / switch_fft_variance(PARAMS, GADGET);
    assert!((0.7..1.1).contains(&ratio), "measured/formula {ratio}");
}

fn bits_of_messages<A: Arithmetic<Goldilocks>>(threads: usize) {
    let keys = keys::<A>(1);
    let mut rng = rng(2);
    // Fewer bits find room for more in the spare memory.
    for p in [PARAMS.message_bits, 3] {
        bits_of_width(&keys, p, threads, &mut rng);
    }
}

fn bits_of_width<A: Arithmetic<Goldilocks>>(
    keys: &Keys<A>,
    p: u32,
    threads: usize,
    rng: &mut Csprng,
) {
    let encoding = Encoding::new(p, false).unwrap();
    let values: Vec<i64> = (0..1 << p).map(|_| (rng.next_u64() % 32) as i64).collect();
    let table: Vec<u64> = values.iter().map(|v| Goldilocks::encode(*v, 5)).collect();
    let run = Run { threads, ..alone() };
    for message in (0..1 << p).step_by((37 >> (9 - p)).max(1)) {
        let sample = keys.client.encrypt_sample(message, encoding, rng).unwrap();
        let sample: Vec<u64> = bytemuck::pod_collect_to_vec(&sample);
        let bits = keys
            .key
            .extract_bits_privately(&keys.private, &keys.switching, p, &sample, run)
            .unwrap();
        let read = keys.key.look_up(&bits, &table, run).unwrap();
        let phase = keys.client.lwe().phase::<Goldilocks>(&read);
        let expected = values[message as usize];
        assert_eq!(
            Goldilocks::decode(phase, 5) as i64,
            expected,
            "message {message}"
        );
    }
}

#[test]
fn private_circuit_bootstrapping_makes_the_bits_of_messages() {
    bits_of_messages::<Fft>(1);
    bits_of_messages::<Ntt>(2);
}

fn rows<A: Arithmetic<Goldilocks>>() {
    let circuit = &stages().circuit;
    let k = PARAMS.glwe_dimension;
    let (mut constant, mut rest, mut masks) = (vec![], vec![], vec![]);
    for seed in 0..12 {
        let keys = keys::<A>(seed);
        let mut rng = rng(seed + 100);
        let message = (rng.next_u64() % (1 << PARAMS.message_bits)) as i64;
        let sample = keys.encrypt(message, &mut rng);
        let bits = keys
            .key
            .extract_bits_privately(
                &keys.private,
                &keys.switching,
                PARAMS.message_bits,
                &sample,
                alone(),
            )
            .unwrap();
        // The secret polynomials, as the phases of samples that are zero but for a 1 in one mask.
        let secrets: Vec<Vec<u64>> = (0..k)
            .map(|component| {
                let mut sample = vec![0; PARAMS.glwe_words()];
                sample[component * N] = Goldilocks::neg(1);
                keys.client.glwe_phase::<Goldilocks>(&sample).unwrap()
            })
            .collect();
        for bit in 0..PARAMS.message_bits as usize {
            for row in 0..circuit.ggsw_rows() {
                let words = bits.row(bit, row).unwrap();
                let phase = keys.client.glwe_phase::<Goldilocks>(&words).unwrap();
                let (component, gadget, level) = circuit.ggsw_row(row);
                let value = (message >> bit & 1) as u64;
                let unit = Goldilocks::select(Goldilocks::gadget_value(gadget, level), value);
                match secrets.get(component) {
                    None => {
                        constant.push(fraction(Goldilocks::sub(phase[0], unit)));
                        rest.extend(phase[1..].iter().map(|word| fraction(*word)));
                    }
                    // Some of the coefficients alone: those of one row share the noise of the message.
                    Some(secret) => masks.extend((level..N).step_by(16).map(|index| {
                        let message = Goldilocks::select(unit, secret[index]);
                        fraction(Goldilocks::add(phase[index], message))
                    })),
                }
            }
        }
        assert!(bits.row(0, circuit.ggsw_rows()).is_none());
        assert!(bits.row(PARAMS.message_bits as usize, 0).is_none());
    }
    let added = switch_noise(PARAMS, GADGET, A::KIND);
    let message = added.message + noise::blind_rotation_variance(&stages().extract, A::KIND);
    check::<A>(
        "body rows: constant coefficient",
        &constant,
        message + added.rows,
    );
    check::<A>("body rows: elsewhere", &rest, added.rows);
    // The mask rows' coefficients of one level hold one message's noise: as many independent values as the body has.
    let ratio = mean_square(&masks) / (message / 2.0 + added.rows);
    let tolerance = 5.0 * (2.0 / constant.len() as f64).sqrt();
    assert!((ratio - 1.0).abs() < tolerance, "mask rows: {ratio}");
}

#[test]
fn privately_made_rows_have_the_noise_of_their_formula() {
    rows::<Ntt>();
    rows::<Fft>();
}

#[test]
fn exact_results_are_the_oracles() {
    let (ntt, naive) = (keys::<Ntt>(3), keys::<Naive>(3));
    let sample = ntt.encrypt(77, &mut rng(4));
    let [a, b] = [
        ntt.key
            .extract_bits_privately(
                &ntt.private,
                &ntt.switching,
                PARAMS.message_bits,
                &sample,
                alone(),
            )
            .map(|bits| bits.row(8, 4).unwrap()),
        naive
            .key
            .extract_bits_privately(
                &naive.private,
                &naive.switching,
                PARAMS.message_bits,
                &sample,
                alone(),
            )
            .map(|bits| bits.row(8, 4).unwrap()),
    ];
    assert_eq!(a.unwrap(), b.unwrap());

    let samples = uniform_samples(3, &mut rng(5));
    let placed: Vec<_> = [2, 17, 127].into_iter().zip(slices(&samples)).collect();
    let [a, b] = [
        ntt.key.pack(&placed, alone()),
        naive.key.pack(&placed, alone()),
    ];
    assert_eq!(a.unwrap(), b.unwrap());
    let slow = switch_key::<Naive>(&ntt.client, 1, &mut rng(6));
    let quick = switch_key::<Ntt>(&ntt.client, 1, &mut rng(6));
    let two = Run {
        threads: 2,
        ..alone()
    };
    assert_eq!(
        quick.switch(&slices(&samples), two).unwrap(),
        slow.switch(&slices(&samples), alone()).unwrap()
    );
    assert_eq!(
        quick.pack(&placed, two).unwrap(),
        slow.pack(&placed, alone()).unwrap()
    );
}

/// Packs random messages at some coefficients, in every way.
fn packs<A: Arithmetic<Goldilocks>>(placement: &[usize], seed: u8) {
    let keys = keys::<A>(seed);
    let mut rng = rng(seed + 1);
    let p = PARAMS.message_bits;
    let messages: Vec<i64> = placement
        .iter()
        .map(|_| (rng.next_u64() % (1 << p)) as i64)
        .collect();
    let samples: Vec<_> = messages
        .iter()
        .map(|message| keys.encrypt(*message, &mut rng))
        .collect();
    let placed: Vec<_> = placement.iter().copied().zip(slices(&samples)).collect();
    let mut expected = vec![0; N];
    for (coefficient, message) in placement.iter().zip(&messages) {
        expected[*coefficient] = *message as u64;
    }
    let switch = switch_key::<A>(&keys.client, 0, &mut rng);
    let two = Run {
        threads: 2,
        ..alone()
    };
    for packed in [
        keys.key.pack(&placed, alone()),
        keys.key.pack(&placed, two),
        switch.pack(&placed, alone()),
        switch.pack(&placed, two),
    ] {
        let phase = keys.client.glwe_phase::<Goldilocks>(&packed.unwrap());
        let found: Vec<u64> = phase
            .unwrap()
            .iter()
            .map(|word| Goldilocks::decode(*word, p + 1))
            .collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn packed_messages_stand_at_their_coefficients() {
    let placements: [Vec<usize>; 5] = [
        (0..N).collect(),
        (0..5).collect(),
        (0..N).step_by(16).collect(),
        vec![127, 0, 64, 33],
        vec![],
    ];
    for (placement, seed) in placements.iter().zip(10..) {
        packs::<Fft>(placement, seed);
        packs::<Ntt>(placement, seed);
    }
}

fn packing<A: Arithmetic<Goldilocks>>() {
    let some = 40;
    let (mut traced, mut switched, mut elsewhere) = (vec![], vec![], vec![]);
    for seed in 0..12 {
        let mut rng = rng(seed);
        let client = ClientKey::generate(PARAMS, &mut rng);
        let key: WopbsKey<Goldilocks, A> = client
            .loaded_wopbs_key(SimdLevel::best(), &mut rng, &Progress::none())
            .unwrap();
        let switch = switch_key::<A>(&client, 0, &mut rng);
        let samples = uniform_samples(N, &mut rng);
        let placed: Vec<_> = slices(&samples).into_iter().enumerate().collect();
        let expected: Vec<u64> = samples
            .iter()
            .map(|sample| client.lwe().phase::<Goldilocks>(sample))
            .collect();
        let errors = |packed: Vec<u64>, count: usize| -> Vec<f64> {
            let phase = client.glwe_phase::<Goldilocks>(&packed).unwrap();
            phase
                .iter()
                .enumerate()
                .map(|(index, word)| match index < count {
                    true => fraction(Goldilocks::sub(*word, expected[index])),
                    false => fraction(*word),
                })
                .collect()
        };
        traced.extend(errors(key.pack(&placed, alone()).unwrap(), N));
        let packed = errors(switch.pack(&placed[..some], alone()).unwrap(), some);
        switched.extend(&packed[..some]);
        elsewhere.extend(&packed[some..]);
    }
    check::<A>(
        "packing by automorphisms",
        &traced,
        toroid_tfhe::wopbs::noise::stages(PARAMS, stages(), A::KIND, PARAMS.message_bits).trace,
    );
    let noise = switch_packing_noise(PARAMS, GADGET, some, A::KIND);
    check::<A>(
        "packing by a key switch: messages",
        &switched,
        noise.message + noise.rows,
    );
    check::<A>("packing by a key switch: elsewhere", &elsewhere, noise.rows);
}

#[test]
fn packing_has_the_noise_of_its_formulas() {
    packing::<Ntt>();
    packing::<Fft>();
}

#[test]
fn malformed_requests_are_refused() {
    let keys = keys::<Ntt>(9);
    let mut rng = rng(10);
    let sample = keys.encrypt(1, &mut rng);
    let short = &sample[1..];
    let switch = switch_key::<Ntt>(&keys.client, 0, &mut rng);
    let length = |result: Result<Vec<u64>, TfheError>| {
        assert!(matches!(result, Err(TfheError::Length { .. })));
    };
    length(switch.switch(&[&sample, short], alone()).map(|_| vec![]));
    length(switch.pack(&[(0, short)], alone()));
    length(keys.key.pack(&[(0, short)], alone()));
    for wrong in [vec![(N, &sample[..])], vec![(3, &sample), (3, &sample)]] {
        for result in [switch.pack(&wrong, alone()), keys.key.pack(&wrong, alone())] {
            assert!(matches!(result, Err(TfheError::Coefficient { .. })));
        }
    }
    let cancel = CancelToken::new();
    cancel.cancel();
    let stop = Run {
        threads: 1,
        cancel: &cancel,
    };
    for result in [
        switch.pack(&[(0, &sample)], stop),
        keys.key.pack(&[(0, &sample)], stop),
        switch.switch(&[&sample], stop).map(|_| vec![]),
    ] {
        assert!(matches!(result, Err(TfheError::Cancelled)));
    }

    let simd = SimdLevel::best();
    for (levels, log2_base) in [(0, 4), (1, 0), (2, 25), (8, 8), (usize::MAX, 8)] {
        let gadget = Gadget { levels, log2_base };
        let made = keys.client.loaded_private_switch_key::<Goldilocks, Ntt>(
            &monomial(0),
            gadget,
            simd,
            &mut rng,
            &Progress::none(),
        );
        assert!(matches!(made, Err(TfheError::Gadget { .. })), "{gadget:?}");
    }
    let made = keys.client.loaded_private_switch_key::<Goldilocks, Ntt>(
        &[1],
        GADGET,
        simd,
        &mut rng,
        &Progress::none(),
    );
    assert!(matches!(made, Err(TfheError::Length { .. })));
    let torus = ClientKey::generate(&TINY32, &mut rng);
    let made = torus.loaded_private_switch_key::<Torus32, Ntt>(
        &[0; 256],
        GADGET,
        simd,
        &mut rng,
        &Progress::none(),
    );
    assert!(matches!(made, Err(TfheError::ModulusMismatch(_))));
    let inexact = ClientKey::generate(&TINY, &mut rng);
    let made = inexact.loaded_circuit_private_key::<Goldilocks, Ntt>(
        GADGET,
        simd,
        &mut rng,
        &Progress::none(),
    );
    assert!(matches!(made, Err(TfheError::NotWopbs(_))));
    let made = keys.client.loaded_private_switch_key::<Goldilocks, Ntt>(
        &monomial(0),
        GADGET,
        simd,
        &mut rng,
        &Progress::from(cancel.clone()),
    );
    assert!(matches!(made, Err(TfheError::Cancelled)));
    let bits = keys
        .key
        .extract_bits_privately(&keys.private, &keys.switching, 3, short, alone());
    assert!(matches!(bits, Err(TfheError::Length { .. })));
    assert!(matches!(
        keys.client.glwe_phase::<Goldilocks>(short),
        Err(TfheError::Length { .. })
    ));
}
