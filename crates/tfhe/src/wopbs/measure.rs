//! Measured noise of the stages of a wide function, beside the formulas of [`super::noise`]. Measuring needs the secret keys:
//! it is for tests and for choosing parameters.

use crate::TfheError;
use crate::arithmetic::Arithmetic;
use crate::bootstrap::Run;
use crate::encoding::Encoding;
use crate::glwe::{self, RowMaker};
use crate::keys::ClientKey;
use crate::modulus::Modulus;
use crate::random::Csprng;

use super::noise::{self, Stages};
use super::{WopbsKey, WopbsKeySwitchingKey};

/// Mean square of an error that was measured, and what the formula says.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The stage.
    pub name: &'static str,
    /// Measured values.
    pub count: u64,
    /// Their mean square, over the torus.
    pub variance: f64,
    /// What the formula says.
    pub formula: f64,
}

/// Errors of all stages over a number of bootstraps.
pub struct Measurement<'a, M: Modulus, A: Arithmetic<M>> {
    client: &'a ClientKey,
    key: &'a WopbsKey<M, A>,
    switching: &'a WopbsKeySwitchingKey<M>,
    maker: RowMaker,
    /// b, of the messages.
    bits: u32,
    formulas: Stages,
    /// In the order of [`NAMES`]: number of values, and sum of their squares.
    sums: [(u64, f64); NAMES.len()],
}

const NAMES: [&str; 9] = [
    "key switch of an extraction",
    "blind rotation of an extraction",
    "body rows, constant coefficient",
    "body rows, sum of the others",
    "mask rows, a coefficient",
    "vertical packing",
    "vertical packing, messages that are multiples of N",
    "key switch of a digit",
    "bootstrapped sample",
];

impl<'a, M: Modulus, A: Arithmetic<M>> Measurement<'a, M, A> {
    /// Nothing measured so far, of messages of `bits` bits.
    ///
    /// # Errors
    /// [`TfheError::Ring`].
    pub fn new(
        client: &'a ClientKey,
        key: &'a WopbsKey<M, A>,
        switching: &'a WopbsKeySwitchingKey<M>,
        bits: u32,
    ) -> Result<Self, TfheError> {
        Ok(Measurement {
            client,
            key,
            switching,
            maker: RowMaker::new(&key.stages.circuit, client.glwe())?,
            bits,
            formulas: noise::stages(&key.params, key.stages, A::KIND, bits),
            sums: [(0, 0.0); NAMES.len()],
        })
    }

    fn note(&mut self, which: usize, error: M::Word) {
        let error = M::centered(error) as f64 / M::KIND.log2().exp2();
        self.sums[which].0 += 1;
        self.sums[which].1 += error * error;
    }

    /// A fresh sample of a message.
    fn sample(&self, message: i64, rng: &mut Csprng) -> Result<Vec<M::Word>, TfheError> {
        let params = &self.key.params;
        let mut sample = vec![M::Word::default(); params.lwe_words()];
        let word = Encoding::new(self.bits, false)?.encode::<M>(message)?;
        let lwe = self.client.lwe();
        lwe.encrypt_into::<M>(&mut sample, word, params.log2_lwe_noise, rng);
        Ok(sample)
    }

    /// Looks up `count` random tables at a random message, and as many at one where all turns stay at the constant coefficient: a
    /// multiple of N. Returns one that was looked up at the former.
    ///
    /// # Errors
    /// Those of [`WopbsKey::bootstrap`].
    pub fn look_up(
        &mut self,
        count: usize,
        rng: &mut Csprng,
        run: Run<'_>,
    ) -> Result<Vec<M::Word>, TfheError> {
        let (key, params) = (self.key, &self.key.params);
        let random = self.random_message(rng);
        let multiple = random - random % params.ring_degree as i64;
        let mut last = Vec::new();
        for (which, message) in [(6, multiple), (5, random)] {
            let sample = self.sample(message, rng)?;
            let bits = key.extract_bits(self.switching, self.bits, &sample, run)?;
            for _ in 0..count {
                let table = self.random_table(rng);
                last = key.look_up(&bits, &table, run)?;
                let phase = self.client.lwe().phase::<M>(&last);
                self.note(which, M::sub(phase, table[message as usize]));
            }
        }
        Ok(last)
    }

    /// Follows one bootstrap through all stages, of a random message.
    ///
    /// # Errors
    /// Those of [`WopbsKey::bootstrap`].
    pub fn follow(&mut self, rng: &mut Csprng, run: Run<'_>) -> Result<(), TfheError> {
        let params = &self.key.params;
        let message = self.random_message(rng);
        let sample = self.sample(message, rng)?;
        let lwe = self.client.lwe();

        let key = self.key;
        let levels = key.stages.circuit.gadget.levels;
        let n = params.ring_degree;
        let mut accumulators = Vec::new();
        key.for_each_bit(self.switching, self.bits, &[&sample], run, |_, acc| {
            accumulators.push(acc.to_vec());
            Ok(())
        })?;
        let mut rows =
            vec![M::Word::default(); key.stages.circuit.ggsw_rows() * params.glwe_words()];
        for (bit, acc) in accumulators.iter().enumerate() {
            let value = message >> bit & 1;
            let mut slot = vec![M::Word::default(); params.lwe_words()];
            for index in 0..=levels {
                glwe::sample_extract::<A::Words, _>(params, acc, index, &mut slot, A::leave);
                let unit = if index < levels {
                    key.plan.half_level(index)
                } else {
                    key.plan.place(self.bits, bit as u32)
                };
                let expected = if value == 1 { M::neg(unit) } else { unit };
                self.note(1, M::sub(lwe.phase::<M>(&slot), expected));
            }
            key.circuit_bootstrap(acc, &mut rows, run.threads)?;
            for (index, row) in rows.chunks_exact(params.glwe_words()).enumerate() {
                let (component, gadget, level) = key.stages.circuit.ggsw_row(index);
                let unit = M::select(M::gadget_value(gadget, level), value as u64);
                let mut phase = self.maker.phase::<M>(row);
                if component == params.glwe_dimension {
                    self.note(2, M::sub(phase[0], unit));
                    let (count, sum) = &mut self.sums[3];
                    *count += 1;
                    for word in &phase[1..] {
                        let error = M::centered(*word) as f64 / M::KIND.log2().exp2();
                        *sum += error * error;
                    }
                } else {
                    let secret = &self.client.glwe().bits()[component * n..][..n];
                    for (word, bit) in phase.iter_mut().zip(secret) {
                        *word = M::add(*word, M::select(unit, *bit));
                    }
                    for word in phase {
                        self.note(4, word);
                    }
                }
            }
        }

        let read = self.look_up(1, rng, run)?;
        let [extract, refresh] = self.client.small_keys() else {
            return Err(TfheError::NotWopbs(params.name));
        };
        let mut small = vec![M::Word::default(); key.stages.refresh.lwe_words()];
        self.switching
            .refresh
            .switch(&read, &mut small, run.threads)?;
        let moved = M::sub(refresh.phase::<M>(&small), lwe.phase::<M>(&read));
        self.note(7, moved);
        let mut small = vec![M::Word::default(); key.stages.extract.lwe_words()];
        self.switching
            .extract
            .switch(&read, &mut small, run.threads)?;
        let moved = M::sub(extract.phase::<M>(&small), lwe.phase::<M>(&read));
        self.note(0, moved);

        let input = Encoding::new(self.bits, false)?;
        let table = self.random_table(rng);
        let test_vector = glwe::test_vector::<M>(params, input, &table)?;
        let out = key.bootstrap(self.switching, &[&test_vector], self.bits, &sample, run)?;
        self.note(8, M::sub(lwe.phase::<M>(&out[0]), table[message as usize]));
        Ok(())
    }

    fn random_message(&self, rng: &mut Csprng) -> i64 {
        (rng.next_u64() >> (64 - self.bits)).cast_signed()
    }

    /// A table of random values of p + 1 bits for every message, which takes all digits.
    fn random_table(&self, rng: &mut Csprng) -> Vec<M::Word> {
        let p = self.key.params.message_bits;
        (0..1 << self.bits)
            .map(|_| M::encode((rng.next_u64() >> (63 - p)).cast_signed(), p + 1))
            .collect()
    }

    /// What was measured.
    #[must_use]
    pub fn results(&self) -> Vec<Measured> {
        let f = &self.formulas;
        let formulas = [
            f.extract_key_switch,
            f.extract_rotation,
            f.body_row,
            f.body_row_rest,
            f.mask_row,
            f.packing_mean,
            f.packing_mean,
            f.refresh_key_switch,
            f.output,
        ];
        NAMES
            .into_iter()
            .zip(self.sums)
            .zip(formulas)
            .map(|((name, (count, sum)), formula)| Measured {
                name,
                count,
                variance: sum / count.max(1) as f64,
                formula,
            })
            .collect()
    }
}
