//! Tables of 9 to 16 bits: on the model, on ciphertexts at small degrees, and the search for parameters.

#![allow(clippy::unwrap_used)]

use toroid_rns::column;
use toroid_rns::complex::Complex;
use toroid_rns::context::Context;
use toroid_rns::embedding::Embedding;
use toroid_rns::evaluation::EvaluationKeys;
use toroid_rns::evaluator::{Evaluator, order_primes};
use toroid_rns::formula::Formula;
use toroid_rns::model::{Model, Vector};
use toroid_rns::params::RnsParams;
use toroid_rns::search::{LOG2_FAILURE, largest_modulus};
use toroid_rns::slots::{ColumnSlots, LinearSlots, Slots};
use toroid_rns::table::{self, Digits, Exponential, Table, TableError};
use toroid_rns::wide::{self, Apart, Digit, Part, WidePipeline, WideShape};
use toroid_rns::wide_search::{RowMask, WideCandidate, search};
use toroid_rns::{Ciphertext, SecretKey};
use toroid_task::Progress;
use toroid_tfhe::random::Csprng;

const EXPONENTIAL: (usize, u32) = (31, 3);

fn exponential() -> Exponential {
    let (degree, doublings) = EXPONENTIAL;
    Exponential::new(16.5, degree, doublings).unwrap()
}

/// Tables that look random.
fn random_table(bits: u32, output_bits: u32, seed: u32) -> Table {
    let value = |m: u32| {
        let mixed = (m ^ seed.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
        (mixed ^ (mixed >> 13)).wrapping_mul(0xc2b2_ae35) >> (32 - output_bits)
    };
    Table::new(bits, output_bits, (0..1 << bits).map(value).collect()).unwrap()
}

/// The parameters of 16 bits at a degree for tests, which protects nothing.
fn candidate(degree: usize, shape: WideShape) -> WideCandidate {
    WideCandidate {
        degree,
        log2_scale: 41,
        log2_coarse: 41,
        log2_fine: 49,
        first_bits: 44,
        special: 7,
        digit_limbs: 7,
        stages: 3,
        shape,
        output_bits: shape.bits(),
    }
}

fn wide(bits: u32) -> WideShape {
    WideShape::new(bits, exponential()).unwrap()
}

/// Keys, and what belongs to them.
struct Bench {
    candidate: WideCandidate,
    embedding: Embedding,
    pipeline: WidePipeline,
    secret: SecretKey,
    keys: EvaluationKeys,
    rng: Csprng,
}

impl Bench {
    fn new(candidate: WideCandidate) -> Bench {
        let embedding = Embedding::new(candidate.degree);
        let pipeline = WidePipeline::new(&embedding, candidate.shape, candidate.stages);
        let mut params = RnsParams::search(&candidate.sizes()).unwrap();
        order_primes(&mut params, |level| candidate.log2_scale_at(level).into());
        let context = Context::new(params).unwrap();
        let mut rng = Csprng::from_seed([7; 32]);
        let secret = SecretKey::generate(&context, &mut rng);
        let request = pipeline.lean_key_request();
        let progress = Progress::default();
        let keys = EvaluationKeys::generate(&secret, &request, &mut rng, &progress).unwrap();
        Bench {
            candidate,
            embedding,
            pipeline,
            secret,
            keys,
            rng,
        }
    }

    fn evaluator(&self) -> Evaluator<'_> {
        let top = self.candidate.log2_scale_at(self.candidate.levels());
        Evaluator::new(&self.keys, &self.embedding, top.into())
    }

    fn messages(&self, bits: u32, seed: u32) -> Vec<u32> {
        let degree = self.candidate.degree as u32;
        (0..degree)
            .map(|k| (k + seed).wrapping_mul(2_654_435_761) >> (32 - bits))
            .collect()
    }

    fn encrypt(&mut self, bits: u32, messages: &[u32]) -> Ciphertext {
        column::encrypt(&self.secret, bits, messages, &mut self.rng).unwrap()
    }

    /// A result's messages, and the standard deviation of its noise in turns.
    fn decrypt(&self, bits: u32, column: &Ciphertext) -> (Vec<u32>, f64) {
        let messages = column::decrypt(&self.secret, bits, column).unwrap();
        let phase = self.secret.decrypt(column).unwrap().poly().to_i128();
        let q = self.secret.context().params().chain[0] as f64;
        let steps = f64::from(bits).exp2();
        let squares: f64 = phase
            .iter()
            .map(|&x| {
                let turns = x as f64 / q;
                (turns - (turns * steps).round() / steps).powi(2)
            })
            .sum();
        (messages, (squares / phase.len() as f64).sqrt())
    }
}

#[test]
fn wide_tables_have_parameters() {
    // Bits, and what the crate's README says.
    for (bits, limbs, scales, costs) in [
        (12, 30, [42, 42, 46], [977, 71231, 51, 1851]),
        (16, 31, [49, 38, 48], [1177, 94226, 83, 3042]),
    ] {
        let (candidate, judgement) = search(1 << 16, bits, bits).unwrap();
        assert_eq!(judgement.limbs, limbs);
        let found = [
            candidate.log2_scale,
            candidate.log2_coarse,
            candidate.log2_fine,
        ];
        assert_eq!(found, scales);
        let (first, further) = (judgement.first, judgement.further);
        let found = [
            first.key_switches,
            first.transforms,
            further.key_switches,
            further.transforms,
        ];
        assert_eq!(found, costs);
        assert!(judgement.log2_failure <= LOG2_FAILURE);
        assert!(judgement.log2_modulus <= largest_modulus(1 << 16));
        assert_eq!(judgement.limbs, candidate.sizes().chain_bits.len());
        assert_eq!(candidate.judge(), Some(judgement));
        assert!(4 * judgement.further.transforms <= judgement.first.transforms);
        // A coarser scale does not do.
        let coarser = WideCandidate {
            log2_coarse: candidate.log2_coarse - 2,
            ..candidate
        };
        assert!(
            coarser
                .judge()
                .is_none_or(|judgement| judgement.log2_failure > LOG2_FAILURE)
        );
    }
    assert_eq!(search(1 << 15, 16, 16), None);
    assert_eq!(WideShape::new(17, exponential()), Err(TableError::Bits(17)));
    assert_eq!(WideShape::new(8, exponential()), Err(TableError::Bits(8)));
}

#[test]
fn every_message_of_sixteen_bits_in_the_model() {
    let candidate = candidate(1 << 16, wide(16));
    let embedding = Embedding::new(candidate.degree);
    let pipeline = WidePipeline::new(&embedding, candidate.shape, candidate.stages);
    let noise = candidate.judge_noise().unwrap();
    let mut model = Model::new(candidate.noise_by_level(), 3);
    let deviation = 4.0 * noise.output_deviation;
    let messages: Vec<u32> = (0..1u32 << 16)
        .map(|k| k.wrapping_mul(40_503) & 0xffff)
        .collect();
    let phases: Vec<f64> = messages
        .iter()
        .map(|&m| f64::from(m) / 65536.0 + deviation * model.normal())
        .collect();
    let column = Vector {
        level: 0,
        slots: embedding.to_slots(&phases),
    };
    let digits = pipeline.digits(&mut model, &column).unwrap();
    for seed in 0..3 {
        let table = random_table(16, 16, seed);
        let out = pipeline.look_up(&mut model, &digits, &table).unwrap();
        assert_eq!(out.level, 0);
        let found = embedding.to_coefficients(&out.slots);
        let mut squares = 0.0;
        for (found, &m) in found.iter().zip(&messages) {
            let off = found - f64::from(table.values()[m as usize]) / 65536.0;
            assert!((off - off.round()).abs() < 1.0 / 131_072.0, "{m}: {found}");
            squares += (off - off.round()).powi(2);
        }
        let measured = (squares / 65536.0).sqrt() / noise.output_deviation;
        assert!((0.1..1.0).contains(&measured), "{measured}");
    }
}

#[test]
fn tables_of_sixteen_bits_on_ciphertexts() {
    let mut bench = Bench::new(candidate(1 << 9, wide(16)));
    let messages = bench.messages(16, 0);
    let column = bench.encrypt(16, &messages);
    let stated = bench.candidate.judge_noise().unwrap();
    let mut evaluator = bench.evaluator();
    let digits = bench.pipeline.digits(&mut evaluator, &column).unwrap();
    for seed in 0..2 {
        let table = random_table(16, 16, seed);
        let out = bench
            .pipeline
            .look_up(&mut evaluator, &digits, &table)
            .unwrap();
        let (found, deviation) = bench.decrypt(16, &out);
        let right: Vec<u32> = messages
            .iter()
            .map(|&m| table.values()[m as usize])
            .collect();
        assert!(found == right, "{seed}");
        let ratio = deviation / stated.output_deviation;
        assert!((0.05..1.0).contains(&ratio), "{ratio}");
    }

    // The rows of an encrypted mask, on numbers of all bits.
    let mask: Vec<u32> = (0..messages.len() as u32).map(|k| k * k % 3 % 2).collect();
    let of_mask = bench.encrypt(1, &mask);
    let fresh = RnsParams::SIGMA / 44f64.exp2();
    let masked = RowMask::Encrypted(fresh);
    let stated = bench.candidate.table_noise_masked(fresh, masked).unwrap();
    let mut evaluator = bench.evaluator();
    let digits = bench
        .pipeline
        .digits_where(&mut evaluator, &column, &of_mask)
        .unwrap()
        .unwrap();
    for seed in 0..2 {
        let table = random_table(16, 16, seed);
        let out = bench
            .pipeline
            .look_up(&mut evaluator, &digits, &table)
            .unwrap();
        let (found, deviation) = bench.decrypt(16, &out);
        let right = messages.iter().zip(&mask);
        let right = right.map(|(&m, &kept)| kept * table.values()[m as usize]);
        assert!(found == right.collect::<Vec<_>>(), "{seed}");
        let ratio = deviation / stated.deviation;
        assert!((0.05..1.0).contains(&ratio), "{ratio}");
    }
}

/// A shape of two columns' messages.
fn pair(high: (u32, u32), low: (u32, u32)) -> WideShape {
    WideShape {
        high: Digits::new(high.0, high.1).unwrap(),
        low: Digits::new(low.0, low.1).unwrap(),
        ..wide(16)
    }
}

/// Of all digits of a message, the lowest first, a bit mask of their place and the lowest bit of them.
fn places(shape: &WideShape) -> Vec<(u32, u32)> {
    let (high, low) = (shape.high, shape.low);
    let mut place = 0;
    let sizes = [low.low(), low.high(), high.low(), high.high()];
    let places = sizes.into_iter().filter(|&size| size > 0).map(|size| {
        let lowest = 1 << place;
        place += size;
        ((1 << place) - lowest, lowest)
    });
    places.collect()
}

/// The table with the most noise: 1, nearly, but where a digit has its last value, and 0 there.
fn worst_table(shape: &WideShape) -> Table {
    let places = places(shape);
    let value = |m: u32| match places.iter().any(|(mask, _)| m & mask == *mask) {
        true => 0,
        false => 0xff,
    };
    let values = (0..1 << shape.bits()).map(value);
    Table::new(shape.bits(), 8, values.collect()).unwrap()
}

/// Messages without a digit's last value, as all digits of them are even.
fn even_messages(shape: &WideShape, count: usize) -> Vec<u32> {
    let odd = places(shape)
        .iter()
        .fold(0, |odd, (_, lowest)| odd | lowest);
    (0..count as u32)
        .map(|k| k.wrapping_mul(2_654_435_761) >> (32 - shape.bits()) & !odd)
        .collect()
}

/// E|e|² of a slot of a table's values, to first order: the pipeline itself on derivatives, for two messages in each half.
fn first_order(candidate: &WideCandidate, table: &Table) -> f64 {
    let (shape, below) = (candidate.shape, candidate.stages);
    let embedding = Embedding::new(1 << 8);
    let pipeline = WidePipeline::new(&embedding, shape, below);
    let mut formula = Formula::new(candidate.noise_by_level());
    let mut apart = |part: Part| {
        let pass = shape.pass(part, None);
        let all = f64::from(1u32 << pass.digits.bits());
        Apart::new([0.0, 4.0].map(|message| {
            let phases = [message, 2.0].map(|m| m / all / shape.exponential.bound());
            let t = formula.input(below + pass.levels(), &phases, 1e-16);
            wide::selectors(&mut formula, &t, &pass, below).unwrap()
        }))
    };
    let (high, low) = (apart(Part::High), apart(Part::Low));
    let digits = pipeline.pair(&mut formula, &high, &low).unwrap();
    let values = pipeline.values(&mut formula, &digits, table).unwrap();
    formula.variances(&values).into_iter().fold(0.0, f64::max)
}

/// Real and imaginary parts of what makes selectors meet the values of both halves, so that a digit's noise counts twice. Few pairs leave nothing else that counts.
#[test]
fn the_worst_table_has_the_noise_of_the_formula() {
    let shapes = [pair((4, 2), (2, 0)), pair((4, 2), (4, 2))];
    for shape in shapes {
        let candidate = WideCandidate {
            output_bits: 8,
            ..candidate(1 << 16, shape)
        };
        let table = worst_table(&shape);
        let stated = candidate.noise(1e-12, 0.0).unwrap();
        let ratio = first_order(&candidate, &table) / stated.values;
        assert!((0.85..=1.0).contains(&ratio), "{shape:?}: {ratio}");

        // Samples of the same noise, on fewer rows.
        let embedding = Embedding::new(1 << 12);
        let pipeline = WidePipeline::new(&embedding, shape, candidate.stages);
        let mut model = Model::new(candidate.noise_by_level(), 4);
        let messages = even_messages(&shape, 1 << 12);
        let right: Vec<f64> = messages
            .iter()
            .map(|&m| f64::from(table.values()[m as usize]) / 256.0)
            .collect();
        assert!(right.iter().all(|&value| value > 0.99));
        let column = model_column(&embedding, shape.bits(), &messages, 1e-12);
        let digits = pipeline.digits(&mut model, &column).unwrap();
        let values = pipeline.values(&mut model, &digits, &table).unwrap();
        let one = Complex::new(right[0], right[0]);
        let off: Vec<Complex> = values.slots.iter().map(|&x| x - one).collect();
        let variance = |part: fn(&Complex) -> f64| {
            let squares: f64 = off.iter().map(|x| part(x).powi(2)).sum();
            squares / off.len() as f64
        };
        let parts = [variance(|x| x.re), variance(|x| x.im)];
        for part in parts {
            let ratio = part / (stated.values / 2.0);
            assert!((0.8..1.1).contains(&ratio), "{shape:?}: {parts:?} {ratio}");
        }
    }
}

#[test]
fn the_worst_table_on_ciphertexts() {
    let shape = pair((4, 2), (4, 2));
    let mut bench = Bench::new(WideCandidate {
        output_bits: 8,
        ..candidate(1 << 10, shape)
    });
    let table = worst_table(&shape);
    let messages = even_messages(&shape, 1 << 10);
    let column = bench.encrypt(12, &messages);
    let stated = bench
        .candidate
        .noise(RnsParams::SIGMA / 44f64.exp2(), 0.0)
        .unwrap();
    let mut evaluator = bench.evaluator();
    let digits = bench.pipeline.digits(&mut evaluator, &column).unwrap();
    let out = bench
        .pipeline
        .look_up(&mut evaluator, &digits, &table)
        .unwrap();
    let (found, deviation) = bench.decrypt(8, &out);
    assert!(found.iter().all(|&value| value == 0xff));
    let ratio = deviation.powi(2) / stated.output;
    assert!((0.7..1.1).contains(&ratio), "{ratio}");
}

/// A column in the model, with noise of up to `deviation` turns.
fn model_column(embedding: &Embedding, bits: u32, messages: &[u32], deviation: f64) -> Vector {
    let unit = (-f64::from(bits)).exp2();
    let phases: Vec<f64> = messages
        .iter()
        .enumerate()
        .map(|(k, &m)| f64::from(m) * unit + if k % 2 == 0 { deviation } else { -deviation })
        .collect();
    Vector {
        level: 0,
        slots: embedding.to_slots(&phases),
    }
}

/// The messages in a column of the model.
fn model_messages(embedding: &Embedding, bits: u32, column: &Vector) -> Vec<u32> {
    assert_eq!(
        column.level, 0,
        "the levels are those that the pipeline states"
    );
    let steps = f64::from(bits).exp2();
    let coefficients = embedding.to_coefficients(&column.slots).into_iter();
    coefficients
        .map(|x| (x * steps).round().rem_euclid(steps) as u32)
        .collect()
}

#[test]
fn tables_of_one_and_of_two_columns_in_the_model() {
    let degree = 1 << 9;
    let embedding = Embedding::new(degree);
    let draw = |bits: u32, seed: u32| -> Vec<u32> {
        (0..degree as u32)
            .map(|k| (k + seed).wrapping_mul(2_654_435_761) >> (32 - bits))
            .collect()
    };
    for bits in [9, 12, 13, 14, 15] {
        let candidate = candidate(degree, wide(bits));
        let pipeline = WidePipeline::new(&embedding, candidate.shape, candidate.stages);
        let mut model = Model::new(candidate.noise_by_level(), 5);
        let messages = draw(bits, 1);
        let column = model_column(&embedding, bits, &messages, 1e-9);
        let digits = pipeline.digits(&mut model, &column).unwrap();
        let table = random_table(bits, 16, 2);
        let out = pipeline.look_up(&mut model, &digits, &table).unwrap();
        let right: Vec<u32> = messages
            .iter()
            .map(|&m| table.values()[m as usize])
            .collect();
        assert!(model_messages(&embedding, 16, &out) == right, "{bits} bits");
    }
    for (high, low) in [
        ((4, 4), (4, 4)),
        ((4, 4), (3, 0)),
        ((3, 0), (3, 2)),
        ((4, 0), (4, 0)),
    ] {
        let shape = pair(high, low);
        let candidate = candidate(degree, shape);
        let pipeline = WidePipeline::new(&embedding, shape, candidate.stages);
        let mut model = Model::new(candidate.noise_by_level(), 6);
        let (high_bits, low_bits) = (shape.high.bits(), shape.low.bits());
        let (x, y) = (draw(high_bits, 3), draw(low_bits, 77));
        let [high, low] = [(high_bits, &x), (low_bits, &y)]
            .map(|(bits, messages)| model_column(&embedding, bits, messages, 1e-7));
        let digits = pipeline.digits_of_two(&mut model, &high, &low).unwrap();
        let table = random_table(shape.bits(), 8, 2);
        let right: Vec<u32> = x
            .iter()
            .zip(&y)
            .map(|(&x, &y)| table.values()[(x << low_bits | y) as usize])
            .collect();
        let out = pipeline.look_up(&mut model, &digits, &table).unwrap();
        assert!(
            model_messages(&embedding, 8, &out) == right,
            "{high_bits} and {low_bits} bits"
        );
        // Rows that a mask leaves out are 0.
        let mask: Vec<bool> = (0..degree).map(|k| k % 3 == 0 || k % 7 == 2).collect();
        let out = pipeline
            .look_up_rows(&mut model, &digits, &table, &mask)
            .unwrap();
        let kept = right
            .iter()
            .zip(&mask)
            .map(|(&value, &kept)| if kept { value } else { 0 });
        assert!(model_messages(&embedding, 8, &out) == kept.collect::<Vec<_>>());
    }
}

#[test]
fn encrypted_masks_in_the_model() {
    let degree = 1 << 9;
    let embedding = Embedding::new(degree);
    let late = |part| {
        Some(Digit {
            part,
            is_late: true,
        })
    };
    let early = |part| {
        Some(Digit {
            part,
            is_late: false,
        })
    };
    let shapes = [
        (wide(9), early(Part::Low)),
        (wide(12), early(Part::Low)),
        (wide(16), late(Part::High)),
        (pair((4, 0), (3, 2)), early(Part::High)),
    ];
    for (shape, digit) in shapes {
        assert_eq!(shape.masked_digit(), digit);
        let bits = shape.bits();
        let candidate = candidate(degree, shape);
        let pipeline = WidePipeline::new(&embedding, shape, candidate.stages);
        let mut model = Model::new(candidate.noise_by_level(), 8);
        let messages: Vec<u32> = (0..degree as u32)
            .map(|k| k.wrapping_mul(2_654_435_761) >> (32 - bits))
            .collect();
        // All four cases of a slot's two rows.
        let mask: Vec<u32> = (0..degree as u32).map(|k| (k >> (k / 256)) & 1).collect();
        let column = model_column(&embedding, bits, &messages, 1e-9);
        let of_mask = model_column(&embedding, 1, &mask, 1e-7);
        let digits = pipeline
            .digits_where(&mut model, &column, &of_mask)
            .unwrap()
            .unwrap();
        for seed in 5..7 {
            let table = random_table(bits, 16, seed);
            let out = pipeline.look_up(&mut model, &digits, &table).unwrap();
            let right = messages.iter().zip(&mask);
            let right = right.map(|(&m, &kept)| kept * table.values()[m as usize]);
            assert!(
                model_messages(&embedding, 16, &out) == right.collect::<Vec<_>>(),
                "{bits} bits"
            );
        }
        // An encrypted mask costs noise.
        let noise = |mask| candidate.table_noise_masked(1e-9, mask).unwrap();
        let (clear, encrypted) = (noise(RowMask::Clear), noise(RowMask::Encrypted(1e-7)));
        let plain = candidate.table_noise(1e-9).unwrap();
        assert!(plain.deviation < clear.deviation && plain.deviation < encrypted.deviation);
        assert!(plain.log2_failure <= encrypted.log2_failure);
        // One whose bits nobody can tell.
        let lost = RowMask::Encrypted(0.03);
        let lost = candidate.table_noise_masked(1e-9, lost).unwrap();
        assert!(lost.log2_failure > -1.0);
    }
    // Two digits that are needed as soon as they are there.
    let full = pair((4, 0), (4, 0));
    assert_eq!(full.masked_digit(), None);
    let encrypted = RowMask::Encrypted(1e-7);
    assert_eq!(
        candidate(degree, full).table_noise_masked(1e-9, encrypted),
        None
    );
}

/// The rings have a level for encrypted masks as they are, and the noise stays within what a batch bears, on columns at rest.
#[test]
fn encrypted_masks_take_no_more_levels() {
    for (bits, costs) in [(12, [119, 13264]), (16, [119, 12095])] {
        let (candidate, judgement) = search(1 << 16, bits, bits).unwrap();
        let digit = candidate.shape.masked_digit().unwrap();
        let pass = candidate.shape.pass(digit.part, Some(digit));
        assert!(2 * candidate.stages + pass.levels() < judgement.limbs);
        let pass = candidate.shape.mask_pass(digit);
        assert!(2 * candidate.stages + pass.levels() < judgement.limbs);
        let input = 4.0 * judgement.output_deviation;
        let noise = |mask| {
            candidate
                .table_noise_masked(input, RowMask::Encrypted(mask))
                .unwrap()
        };
        // A mask with as much noise as the numbers, and one with far more.
        for mask in [input, 2f64.powi(-13)] {
            let masked = noise(mask);
            assert!(masked.log2_failure <= LOG2_FAILURE, "{bits}: {masked:?}");
        }
        let cost = candidate.mask_cost().unwrap();
        assert_eq!([cost.key_switches, cost.transforms], costs);
    }
}

#[test]
fn comparisons_in_the_model() {
    let degree = 1 << 9;
    let embedding = Embedding::new(degree);
    for bits in [12, 16] {
        let shape = WideShape {
            spare: 1,
            ..wide(bits)
        };
        let candidate = candidate(degree, shape);
        let pipeline = WidePipeline::new(&embedding, shape, candidate.stages);
        let mut model = Model::new(candidate.noise_by_level(), 6);
        let x: Vec<u32> = (0..degree as u32)
            .map(|k| k.wrapping_mul(2_654_435_761) >> (32 - bits))
            .collect();
        // Equal, near, and anywhere.
        let y: Vec<u32> = x
            .iter()
            .enumerate()
            .map(|(k, &x)| match k % 5 {
                0 => x,
                1 => x.saturating_sub(1),
                2 => (x + 1).min((1 << bits) - 1),
                3 => x ^ 0x90,
                _ => x.reverse_bits() >> (32 - bits),
            })
            .collect();
        let [x_parts, y_parts] = [&x, &y].map(|messages| {
            let column = model_column(&embedding, bits, messages, 1e-9);
            pipeline.parts(&mut model, &column).unwrap()
        });
        let compared = pipeline.compare(&mut model, &x_parts, &y_parts).unwrap();
        let at_most = compared.at_most(&mut model).unwrap();
        let columns = [compared.less, compared.equal, at_most].map(|bits| {
            let column = pipeline.column_of_bits(&mut model, &bits, 4).unwrap();
            model_messages(&embedding, 4, &column)
        });
        for k in 0..degree {
            let found = [columns[0][k], columns[1][k], columns[2][k]];
            let right = [x[k] < y[k], x[k] == y[k], x[k] <= y[k]].map(u32::from);
            assert_eq!(found, right, "{bits} bits: {} and {}", x[k], y[k]);
        }
    }
}

#[test]
fn pairs_masks_and_comparisons_on_ciphertexts() {
    let shape = WideShape {
        spare: 1,
        ..pair((3, 2), (4, 0))
    };
    let mut bench = Bench::new(WideCandidate {
        output_bits: 12,
        ..candidate(1 << 8, shape)
    });
    let (x, y) = (bench.messages(5, 0), bench.messages(4, 9));
    let (high, low) = (bench.encrypt(5, &x), bench.encrypt(4, &y));
    let message: Vec<u32> = x.iter().zip(&y).map(|(x, y)| x << 4 | y).collect();
    // The columns of nine bits that the parts are of.
    let other: Vec<u32> = message.iter().map(|m| (m * 7 + 3) % 512).collect();
    let (column, other_column) = (bench.encrypt(9, &message), bench.encrypt(9, &other));
    let mask: Vec<bool> = (0..message.len()).map(|k| k % 3 == 1).collect();
    let bits: Vec<u32> = mask.iter().copied().map(u32::from).collect();
    let encrypted_mask = bench.encrypt(1, &bits);
    let mut evaluator = bench.evaluator();
    let pipeline = &bench.pipeline;
    let table = random_table(9, 12, 4);
    let right: Vec<u32> = message
        .iter()
        .map(|&m| table.values()[m as usize])
        .collect();
    let digits = pipeline.digits_of_two(&mut evaluator, &high, &low).unwrap();
    let out = pipeline.look_up(&mut evaluator, &digits, &table).unwrap();
    assert!(bench.decrypt(12, &out).0 == right);
    let out = pipeline
        .look_up_rows(&mut evaluator, &digits, &table, &mask)
        .unwrap();
    let kept = right
        .iter()
        .zip(&mask)
        .map(|(&value, &kept)| if kept { value } else { 0 });
    let kept: Vec<u32> = kept.collect();
    let fresh = RnsParams::SIGMA / 44f64.exp2();
    let stated = |mask: RowMask| bench.candidate.table_noise_masked(fresh, mask);
    let masked = |out: &Ciphertext, mask: RowMask| {
        let (found, deviation) = bench.decrypt(12, out);
        let ratio = deviation / stated(mask).unwrap().deviation;
        assert!((0.01..1.0).contains(&ratio), "{mask:?}: {ratio}");
        found
    };
    assert!(masked(&out, RowMask::Clear) == kept);
    // The same rows by a mask that nobody reads.
    let digits = pipeline
        .digits_where(&mut evaluator, &column, &encrypted_mask)
        .unwrap()
        .unwrap();
    let out = pipeline.look_up(&mut evaluator, &digits, &table).unwrap();
    assert!(masked(&out, RowMask::Encrypted(fresh)) == kept);

    let x = pipeline.parts(&mut evaluator, &column).unwrap();
    let y = pipeline.parts(&mut evaluator, &other_column).unwrap();
    let compared = pipeline.compare(&mut evaluator, &x, &y).unwrap();
    let less = pipeline
        .column_of_bits(&mut evaluator, &compared.less, 1)
        .unwrap();
    let right: Vec<u32> = message
        .iter()
        .zip(&other)
        .map(|(x, y)| u32::from(x < y))
        .collect();
    assert!(bench.decrypt(1, &less).0 == right);
}

#[test]
fn noise_of_each_stage_is_that_of_the_formulas() {
    let mut bench = Bench::new(candidate(1 << 10, wide(12)));
    let (candidate, pipeline) = (bench.candidate, bench.pipeline.clone());
    let stated = candidate
        .noise(RnsParams::SIGMA / 44f64.exp2(), 0.0)
        .unwrap();
    let messages = bench.messages(12, 0);
    let column = bench.encrypt(12, &messages);
    let mut evaluator = bench.evaluator();
    let above = evaluator.affine(&column, 1 << 8, Complex::ZERO).unwrap();

    // Phases: what arrives in the slots, against what the raised polynomial has in its coefficients.
    let raised = evaluator.raise(&column).unwrap();
    let decode = |value: &Ciphertext| evaluator.decode(&bench.secret.decrypt(value).unwrap());
    let mut exact = decode(&raised);
    let mut evaluator = bench.evaluator();
    let mut value = ColumnSlots::raise(&mut evaluator, &column, pipeline.top(Part::High)).unwrap();
    for plan in pipeline.to_slots() {
        value = evaluator.transform(plan, &value).unwrap();
        exact = plan.apply(&exact);
    }
    let (real, imaginary) = table::split(&mut evaluator, &value).unwrap();
    let part =
        |of: fn(&Complex) -> f64| -> Vec<f64> { exact.iter().map(|x| 2.0 * of(x)).collect() };
    let exact = [part(|x| x.re), part(|x| x.im)];
    let mut squares = 0.0;
    for (part, exact) in [real, imaginary].iter().zip(exact) {
        for (found, exact) in decode(part).iter().zip(exact) {
            squares += (found.re - exact).powi(2);
        }
    }
    let ratio = squares / candidate.degree as f64 / candidate.noise(0.0, 0.0).unwrap().high_phases;
    assert!((0.4..1.2).contains(&ratio), "phases: {ratio}");

    // The low part's column, and the table's values.
    let low = pipeline
        .take_apart(&mut evaluator, &above, Part::Low)
        .unwrap();
    let taken = pipeline.column_of(&mut evaluator, &low, Part::Low).unwrap();
    let (found, deviation) = bench.decrypt(12, &taken);
    let right: Vec<u32> = messages.iter().map(|m| m & 15).collect();
    assert!(found == right);
    let ratio = deviation.powi(2) / stated.low_column;
    assert!((0.02..1.2).contains(&ratio), "low part: {ratio}");
    let digits = pipeline.digits(&mut evaluator, &column).unwrap();
    let table = random_table(12, 12, 1);
    let out = pipeline.look_up(&mut evaluator, &digits, &table).unwrap();
    let ratio = bench.decrypt(12, &out).1.powi(2) / stated.output;
    assert!((0.02..1.2).contains(&ratio), "result: {ratio}");
}

/// The result of one table in the next, and sums of results, with no more noise than the formulas say.
#[test]
fn a_chain_of_wide_tables_stays_alive() {
    let candidate = candidate(1 << 9, wide(16));
    let embedding = Embedding::new(candidate.degree);
    let pipeline = WidePipeline::new(&embedding, candidate.shape, candidate.stages);
    // The noise of the real degree, on fewer rows.
    let real = WideCandidate {
        degree: 1 << 16,
        ..candidate
    };
    let mut model = Model::new(real.noise_by_level(), 9);
    let mut messages: Vec<u32> = (0..512u32).map(|k| k * 128 + k % 128).collect();
    let mut column = model_column(&embedding, 16, &messages, 0.0);
    let mut worst = Vec::new();
    for round in 0..3 {
        let table = random_table(16, 16, round);
        // Four times the message, from four times the noise.
        let times = model.affine(&column, 4, Complex::ZERO).unwrap();
        messages.iter_mut().for_each(|m| *m = *m * 4 % 65536);
        let digits = pipeline.digits(&mut model, &times).unwrap();
        column = pipeline.look_up(&mut model, &digits, &table).unwrap();
        messages
            .iter_mut()
            .for_each(|m| *m = table.values()[*m as usize]);
        let found = embedding.to_coefficients(&column.slots);
        let off = found.iter().zip(&messages).map(|(x, &m)| {
            let off = x - f64::from(m) / 65536.0;
            (off - off.round()).abs()
        });
        worst.push(off.fold(0.0, f64::max));
    }
    assert!(
        worst.iter().all(|&off| off < 3.0 * worst[0] && off < 1e-7),
        "{worst:?}"
    );
}
