//! Keys, samples and test vectors as the main memory of an engine holds them (see `hw/engine/engine.sv` and
//! `hw/engine_streaming/engine_streaming.sv`): words of 64 bits, in beats of LANES words.

use rayon::prelude::*;
use toroid_ring::goldilocks;
use toroid_ring::ntt::NttPlan;
use toroid_tfhe::modulus::{Goldilocks, Modulus, Torus32};
use toroid_tfhe::params::{Gadget, ModulusKind, ParamSet};
use toroid_tfhe::seeded::{KeyForm, MaskSeed, SEED_BYTES};
use toroid_tfhe::{TfheError, bodies};

use super::EngineError;

/// Which engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// `hw/engine`: polynomials are in their own order.
    InPlace,
    /// `hw/engine_streaming`: polynomials are in the order of columns, where column c of C = sqrt(N) has the coefficients i·C + c.
    Streaming,
}

/// The shape of an engine that runs a parameter set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// The set.
    pub params: ParamSet,
    /// The engine.
    pub form: Form,
    /// log2 of LANES, the words of a beat of main memory.
    pub log_lanes: u32,
}

impl Shape {
    /// The shape of the engine in place for a set.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] for what the engine does not do.
    pub fn new(params: &ParamSet, log_lanes: u32) -> Result<Shape, EngineError> {
        Shape::of(Form::InPlace, params, log_lanes)
    }

    /// The shape of an engine for a set. `log_lanes` is the core's `LOG_LANES`: that of the streaming engine counts the words a cycle
    /// through its transform, half as many as in a beat of main memory.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] for what the engine does not do.
    pub fn of(form: Form, params: &ParamSet, log_lanes: u32) -> Result<Shape, EngineError> {
        let unsupported = |reason: String| Err(EngineError::Unsupported(reason));
        if params.is_wide() {
            return unsupported(format!(
                "the parameter set {} wants circuit bootstrapping, which the engine does not have",
                params.name
            ));
        }
        if params.glwe_dimension != 1 {
            return unsupported(format!(
                "the parameter set {} has k = {}; the engine is for k = 1",
                params.name, params.glwe_dimension
            ));
        }
        let log_n = params.ring_degree.trailing_zeros();
        match form {
            Form::InPlace
                if !(6..=16).contains(&log_n)
                    || !(2..=8).contains(&log_lanes)
                    || log_lanes + 4 > log_n =>
            {
                return unsupported(format!(
                    "expected 2^6 to 2^16 coefficients and 2^2 to 2^8 lanes, at most a 16th of the coefficients; found 2^{log_n} and 2^{log_lanes}"
                ));
            }
            Form::Streaming
                if !(6..=14).contains(&log_n)
                    || !log_n.is_multiple_of(2)
                    || !(log_n.div_ceil(4).max(2)..=log_n / 2).contains(&log_lanes) =>
            {
                return unsupported(format!(
                    "expected 2^6, 2^8 ... or 2^14 coefficients, and lanes from their fourth to their square root; found 2^{log_n} and 2^{log_lanes}"
                ));
            }
            Form::InPlace | Form::Streaming => {}
        }
        let shape = Shape {
            params: *params,
            form,
            log_lanes: match form {
                Form::InPlace => log_lanes,
                Form::Streaming => log_lanes + 1,
            },
        };
        if !(1..=MAX_LWE_DIMENSION).contains(&params.lwe_dimension) {
            return unsupported(format!(
                "expected n of 1 to {MAX_LWE_DIMENSION}, found {}",
                params.lwe_dimension
            ));
        }
        let gadgets = [params.gadget, shape.body_gadget(), params.key_switch];
        if let Some(gadget) = gadgets.iter().find(|gadget| {
            !(1..32).contains(&gadget.log2_base) || !(1..256).contains(&gadget.levels)
        }) {
            return unsupported(format!(
                "expected gadgets of 1 to 255 levels in bases of 2^1 to 2^31, found {gadget:?}"
            ));
        }
        match form {
            Form::InPlace => shape.check_in_place()?,
            Form::Streaming => shape.check_streaming()?,
        }
        Ok(shape)
    }

    fn check_in_place(&self) -> Result<(), EngineError> {
        // The key switch sums words of 32 bits times digits in the field, where the sums must stay below p/2.
        let params = &self.params;
        let terms = (params.key_switching_samples() as u128) << (31 + params.key_switch.log2_base);
        if terms >= 1 << 63 {
            return Err(EngineError::Unsupported(
                "the sums of the key switch exceed the field".to_owned(),
            ));
        }
        let sets = self.switch_sets();
        if sets * self.lwe_rows() > self.rows() {
            return Err(EngineError::Unsupported(format!(
                "{sets} partial sums of {} rows each do not fit a slot of {} rows: take fewer lanes",
                self.lwe_rows(),
                self.rows()
            )));
        }
        Ok(())
    }

    fn check_streaming(&self) -> Result<(), EngineError> {
        let gadgets = [
            (self.params.gadget, DIGIT_BITS),
            (self.body_gadget(), DIGIT_BITS),
            (self.params.key_switch, SWITCH_DIGIT_BITS),
        ];
        match gadgets
            .iter()
            .find(|(gadget, bits)| gadget.log2_base > *bits)
        {
            None => Ok(()),
            Some((gadget, bits)) => Err(EngineError::Unsupported(format!(
                "expected digits of at most {bits} bits, found {gadget:?}"
            ))),
        }
    }

    /// The core's `LOG_LANES`.
    #[must_use]
    pub fn log_core_lanes(&self) -> u32 {
        match self.form {
            Form::InPlace => self.log_lanes,
            Form::Streaming => self.log_lanes - 1,
        }
    }

    /// log2 N.
    #[must_use]
    pub fn log_n(&self) -> u32 {
        self.params.ring_degree.trailing_zeros()
    }

    /// Words of a beat.
    #[must_use]
    pub fn lanes(&self) -> usize {
        1 << self.log_lanes
    }

    /// Bytes of beats.
    #[must_use]
    pub fn bytes(&self, beats: u64) -> usize {
        beats as usize * self.lanes() * 8
    }

    /// Words of a row of one circuit, and integrated butterflies of it.
    #[must_use]
    pub fn vector(&self) -> usize {
        self.lanes() / 2
    }

    /// Rows of a polynomial.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.params.ring_degree / self.vector()
    }

    /// Rows of a LWE sample.
    #[must_use]
    pub fn lwe_rows(&self) -> usize {
        self.params.lwe_words().div_ceil(self.lanes())
    }

    /// Gadget of the body.
    #[must_use]
    pub fn body_gadget(&self) -> Gadget {
        self.params.body_gadget.unwrap_or(self.params.gadget)
    }

    /// Levels that both circuits of the engine in place go through; the one with the shallower gadget gets rows of zeroes.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.params.gadget.levels.max(self.body_gadget().levels)
    }

    /// Partial sums of the key switch: so many that a row is written before it is read again.
    #[must_use]
    pub fn switch_sets(&self) -> usize {
        (super::formula::HAZARD as usize).div_ceil(self.lwe_rows())
    }

    /// Beats of the bootstrapping key.
    #[must_use]
    pub fn key_beats(&self) -> usize {
        let rows = match self.form {
            Form::InPlace => self.levels() * 2,
            Form::Streaming => self.params.ggsw_rows(),
        };
        self.params.lwe_dimension * rows * self.rows()
    }

    /// The coefficient whose word is at a place of a polynomial in main memory.
    #[must_use]
    pub fn coefficient(&self, place: usize) -> usize {
        match self.form {
            Form::InPlace => place,
            Form::Streaming => {
                let columns = 1 << (self.log_n() / 2);
                place % columns * columns + place / columns
            }
        }
    }

    /// Beats of the key-switching key.
    #[must_use]
    pub fn switch_beats(&self) -> usize {
        self.params.key_switching_samples() * self.lwe_rows() / 2
    }
}

/// Bits of the largest digits of both keys, the defaults of `hw/engine_streaming/engine_streaming.sv`.
const DIGIT_BITS: u32 = 24;
const SWITCH_DIGIT_BITS: u32 = 6;

/// The largest n that the engine's table of exponents holds.
pub const MAX_LWE_DIMENSION: usize = 2047;

/// A LWE sample's bytes as beats.
#[must_use]
pub fn lwe_to_memory(shape: Shape, sample: &[u8]) -> Vec<u64> {
    let mut words = words_of(&shape.params, sample);
    words.resize(shape.lwe_rows() * shape.lanes(), 0);
    words
}

/// Beats of a LWE sample as its bytes.
#[must_use]
pub fn lwe_from_memory(shape: Shape, words: &[u64]) -> Vec<u8> {
    let words = words[..shape.params.lwe_words()].iter().copied();
    bytes_of(&shape.params, words)
}

/// A test vector's bytes as beats.
#[must_use]
pub fn test_vector_to_memory(shape: Shape, bytes: &[u8]) -> Vec<u64> {
    let words = words_of(&shape.params, bytes);
    let (mask, body) = words.split_at(shape.params.ring_degree);
    let beat = |row: usize| {
        let places = move || row * shape.vector()..(row + 1) * shape.vector();
        let of_mask = places().map(|place| mask[shape.coefficient(place)]);
        of_mask.chain(places().map(|place| body[shape.coefficient(place)]))
    };
    (0..shape.rows()).flat_map(beat).collect()
}

/// Canonical words of a set's modulus as bytes; over the 32-bit torus, the lower half of each.
#[must_use]
pub fn bytes_of(params: &ParamSet, words: impl Iterator<Item = u64>) -> Vec<u8> {
    match params.modulus {
        ModulusKind::Torus32 => words.flat_map(|word| (word as u32).to_le_bytes()).collect(),
        ModulusKind::Goldilocks => words.flat_map(u64::to_le_bytes).collect(),
    }
}

fn words_of(params: &ParamSet, bytes: &[u8]) -> Vec<u64> {
    match params.modulus {
        ModulusKind::Torus32 => {
            let words = bytes.chunks_exact(4);
            words
                .map(|word| u32::from_le_bytes(word.try_into().unwrap_or_default()).into())
                .collect()
        }
        ModulusKind::Goldilocks => {
            let words = bytes.chunks_exact(8);
            words
                .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
                .collect()
        }
    }
}

/// A bootstrapping key that is laid out as its rows come, in the order of Table 3.
#[derive(Debug)]
pub struct BootstrappingKey {
    shape: Shape,
    /// In beats.
    pub words: Vec<u64>,
}

impl BootstrappingKey {
    /// Room for the key of a set; zeroes until rows are laid down.
    #[must_use]
    pub fn new(shape: Shape) -> BootstrappingKey {
        BootstrappingKey {
            shape,
            words: vec![0; shape.key_beats() * shape.lanes()],
        }
    }

    /// Lays down a GGSW row, two polynomials in the NTT domain, scaled by 1/N.
    pub fn lay(&mut self, row: usize, polynomials: &[u64]) {
        let Shape { params, form, .. } = self.shape;
        let (step, row) = (row / params.ggsw_rows(), row % params.ggsw_rows());
        let (component, _, level) = params.ggsw_row(row);
        let (rows, vector, lanes) = (self.shape.rows(), self.shape.vector(), self.shape.lanes());
        for (column, polynomial) in polynomials.chunks_exact(params.ring_degree).enumerate() {
            let cross = usize::from(column != component);
            let frame = match form {
                Form::InPlace => (step * self.shape.levels() + level) * 2 + cross,
                Form::Streaming => {
                    step * params.ggsw_rows() + component * params.gadget.levels + level
                }
            };
            let first = frame * rows * lanes;
            let beats = self.words[first..][..rows * lanes].chunks_exact_mut(lanes);
            for (beat, words) in beats.zip(polynomial.chunks_exact(vector)) {
                beat[column * vector..][..vector].copy_from_slice(words);
            }
        }
    }

    /// The key that a seeded key stands for.
    ///
    /// # Errors
    /// [`EngineError::NotCanonical`].
    pub fn expand(
        shape: Shape,
        form: KeyForm,
        bytes: &[u8],
    ) -> Result<BootstrappingKey, EngineError> {
        match shape.params.modulus {
            ModulusKind::Torus32 => expand::<Torus32>(shape, form, bytes),
            ModulusKind::Goldilocks => expand::<Goldilocks>(shape, form, bytes),
        }
    }
}

/// Rows that are expanded at once.
const ROWS_AT_ONCE: usize = 64;

fn expand<M: Modulus>(
    shape: Shape,
    form: KeyForm,
    bytes: &[u8],
) -> Result<BootstrappingKey, EngineError> {
    let params = shape.params;
    let degree = params.ring_degree;
    let (seed, bodies) = split_seed(bytes);
    let bodies = bodies::read::<M>(&params, form, bodies).map_err(|error| match error {
        TfheError::NotCanonical { index, .. } => EngineError::NotCanonical {
            index: index as usize,
        },
        error => EngineError::Unsupported(error.to_string()),
    })?;
    let plan = NttPlan::new(degree).map_err(|error| EngineError::Unsupported(error.to_string()))?;
    let scale = goldilocks::inv(degree as u64);
    let mut key = BootstrappingKey::new(shape);
    let mut first = 0;
    for batch in bodies.chunks(ROWS_AT_ONCE * degree) {
        let rows: Vec<Vec<u64>> = batch
            .par_chunks_exact(degree)
            .enumerate()
            .map(|(index, body)| {
                let mut row = vec![M::Word::default(); params.glwe_words()];
                let (mask, row_body) = row.split_at_mut(degree);
                seed.expand_row::<M>((first + index) as u64, mask);
                row_body.copy_from_slice(body);
                let mut lifted: Vec<u64> = row
                    .iter()
                    .map(|word| goldilocks::mul(M::to_goldilocks(*word), scale))
                    .collect();
                for polynomial in lifted.chunks_exact_mut(degree) {
                    plan.forward(polynomial);
                }
                lifted
            })
            .collect();
        for row in rows {
            key.lay(first, &row);
            first += 1;
        }
    }
    Ok(key)
}

/// The seed and what follows it, of a seeded key's bytes.
fn split_seed(bytes: &[u8]) -> (MaskSeed, &[u8]) {
    let (seed, rest) = bytes.split_at(SEED_BYTES);
    let mut array = [0; SEED_BYTES];
    array.copy_from_slice(seed);
    (MaskSeed::from_bytes(array), rest)
}

/// Lays out a key-switching key, whose samples come in the order of Table 3: two words of 32 bits in one of the memory.
#[must_use]
pub fn switching_key_to_memory(shape: Shape, samples: &[u32]) -> Vec<u64> {
    let params = shape.params;
    let (degree, levels) = (params.ring_degree, params.key_switch.levels);
    let sample_words = params.lwe_words();
    let row_words = shape.lwe_rows() * shape.lanes();
    let mut words = vec![0u64; shape.switch_beats() * shape.lanes()];
    let samples_of = |place: usize| {
        let index = (degree - shape.coefficient(place)) % degree;
        samples[index * levels * sample_words..].chunks_exact(sample_words)
    };
    let words32 = bytemuck::cast_slice_mut::<u64, u32>(&mut words);
    match shape.form {
        Form::InPlace => words32
            .par_chunks_exact_mut(levels * row_words)
            .enumerate()
            .for_each(|(place, rows)| {
                for (row, sample) in rows.chunks_exact_mut(row_words).zip(samples_of(place)) {
                    row[..sample_words].copy_from_slice(sample);
                }
            }),
        // Rows of two places side by side.
        Form::Streaming => words32
            .par_chunks_exact_mut(2 * levels * row_words)
            .enumerate()
            .for_each(|(pair, rows)| {
                let lanes = shape.lanes();
                for half in 0..2 {
                    let samples = samples_of(2 * pair + half);
                    for (rows, sample) in rows.chunks_exact_mut(2 * row_words).zip(samples) {
                        let beats = rows.chunks_exact_mut(2 * lanes);
                        for (beat, words) in beats.zip(sample.chunks(lanes)) {
                            beat[half * lanes..][..words.len()].copy_from_slice(words);
                        }
                    }
                }
            }),
    }
    words
}

/// All samples of a seeded key-switching key.
#[must_use]
pub fn expand_switching_key(params: &ParamSet, bytes: &[u8]) -> Vec<u32> {
    let (seed, bodies) = split_seed(bytes);
    let bodies: Vec<u32> = bytemuck::pod_collect_to_vec(bodies);
    let mut samples = vec![0; bodies.len() * params.lwe_words()];
    samples
        .par_chunks_exact_mut(params.lwe_words())
        .zip(&bodies)
        .enumerate()
        .for_each(|(index, (sample, body))| {
            let (mask, last) = sample.split_at_mut(params.lwe_dimension);
            seed.expand_sample(index as u64, mask);
            last[0] = *body;
        });
    samples
}

/// What a gadget's digits need added: half of every digit's range, and half a unit of the last digit, on the torus in units of 2^-64.
#[must_use]
pub fn digit_offset(modulus: ModulusKind, gadget: Gadget) -> u64 {
    let bits = 8 * modulus.word_bytes() as u32;
    let used = gadget.log2_base * gadget.levels as u32;
    let mut offset = (1..=gadget.levels as u32).fold(0u64, |sum, level| {
        sum | 1 << (63 - gadget.log2_base * (level - 1))
    });
    if used < bits {
        offset |= 1 << (63 - used);
    }
    offset
}
