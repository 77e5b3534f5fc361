//! Wide functions: bit extraction, circuit bootstrapping and vertical packing.
//!
//! A programmable bootstrap rounds the phase of a sample to 2N places, too few for wide messages. A wide function instead
//! extracts the bits of a message, the lowest first, each by one blind rotation ([`WopbsKey::extract_bits`]). The same
//! rotation also makes the GGSW sample of the bit: slots of one test vector give the bit at every level of the circuit's
//! gadget, a trace clears the other coefficients, and products with the secret polynomials make the mask rows (circuit
//! bootstrapping of Chillotti, Gama, Georgieva and Izabachène, J. Cryptology 2020, with automorphisms in place of private key
//! switches, as Wang et al., EUROCRYPT 2024). The GGSW samples then select an entry of a table: CMuxes down to one
//! polynomial, and a blind rotation of it ([`WopbsKey::look_up`]). They are cheap and noisy. So the table is read digit by
//! digit, and a bootstrap brings each digit to its place of the message with little noise ([`WopbsKey::bootstrap`]).
//!
//! A set has room for messages of p bits, and a function takes messages m of b bits, 1 to p, at m/2^(b+1) of the torus: the first
//! b of those p places. It extracts b bits, and its time and its noise are those of b bits. A phase is rounded to the nearest
//! m/2^(b+1), so that noise may take it away by almost half of that step, whatever p is. Test vectors have 2^p entries for
//! any b; entry m·2^(p-b) is that of m.
//!
//! Wide functions ignore the padding bit: f(m + 2^b) is f(m).

mod circuit;
mod digits;
mod generate;
mod look_up;
pub mod measure;
pub mod noise;
pub mod packing;
mod plan;
pub mod private;
mod ring_switch;

use std::sync::{Mutex, PoisonError};

use toroid_ring::simd::SimdLevel;

use crate::TfheError;
use crate::arithmetic::{Arithmetic, WordOf};
use crate::bootstrap::blind_rotation::BlindRotation;
use crate::bootstrap::{BootstrappingKey, Rotation, Run};
use crate::ggsw::GgswList;
use crate::glwe;
use crate::key_loader::expect_parts;
use crate::key_switch::{KeySwitchingKey, Switch};
use crate::lwe::{self, check_words};
use crate::modulus::Modulus;
use crate::parallel::in_parallel;
use crate::params::{ParamSet, WopbsParams};

use ring_switch::RingSwitchKey;

pub use digits::Digits;
pub use plan::Plan;

/// How many functions of a sample are worked on at a time. At `message16` the tables of one function's digits take 2.5 MiB,
/// and functions share nothing but the bits and the streaming of the key that refreshes digits.
const FUNCTIONS_AT_A_TIME: usize = 8;

/// How many samples have their bits extracted side by side, so that they share the streaming of the keys. At `message16` the bits of one
/// take 3.5 MB.
const SAMPLES_AT_A_TIME: usize = 8;

/// Wide functions of one sample: see [`WopbsKey::bootstrap_all`].
#[derive(Clone, Copy, Debug)]
pub struct WideTask<'a, M: Modulus> {
    /// Tables of 2^p words ([`glwe::test_vector`]), one for each function.
    pub test_vectors: &'a [&'a [M::Word]],
    /// Bits of the message, 1 to p.
    pub input_bits: u32,
    /// The sample, k·N + 1 words.
    pub sample: &'a [M::Word],
}

/// The bootstrapping key of wide functions, loaded for one [`Arithmetic`].
pub struct WopbsKey<M: Modulus, A: Arithmetic<M>> {
    params: ParamSet,
    stages: &'static WopbsParams,
    plan: Plan<M>,
    extract: BootstrappingKey<M, A>,
    refresh: BootstrappingKey<M, A>,
    switch: RingSwitchKey<M, A>,
    /// Memory for GGSW samples that no bootstrap uses at the moment.
    spare: Mutex<Vec<GgswList<M, A>>>,
}

/// The key-switching key of wide functions.
pub struct WopbsKeySwitchingKey<M: Modulus> {
    params: ParamSet,
    extract: KeySwitchingKey<M>,
    refresh: KeySwitchingKey<M>,
}

fn stages(params: &ParamSet) -> Result<&'static WopbsParams, TfheError> {
    params.wopbs.ok_or(TfheError::NotWopbs(params.name))
}

/// The GGSW samples of the bits of a message, from the lowest up; back to the key's spare memory when dropped.
pub struct Bits<'a, M: Modulus, A: Arithmetic<M>> {
    key: &'a WopbsKey<M, A>,
    /// b.
    count: u32,
    /// The first b are the bits'; spare memory may have room for more. `None` only during the drop.
    samples: Option<GgswList<M, A>>,
}

/// Something that is applied to the message of some bits: a test vector or a table.
type OfBits<'a, M, A, T> = (&'a Bits<'a, M, A>, T);

impl<M: Modulus, A: Arithmetic<M>> Bits<'_, M, A> {
    /// b, the number of bits.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    fn samples(&self) -> &GgswList<M, A> {
        self.samples.as_ref().expect("there until dropped")
    }
}

impl<M: Modulus, A: Arithmetic<M>> Drop for Bits<'_, M, A> {
    fn drop(&mut self) {
        let mut spare = self
            .key
            .spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        spare.extend(self.samples.take());
    }
}

impl<M: Modulus> WopbsKeySwitchingKey<M> {
    /// From the keys of [`WopbsParams::key_switching_parts`].
    ///
    /// # Errors
    /// [`TfheError::NotWopbs`], [`TfheError::ParamsMismatch`].
    pub fn new(params: &ParamSet, keys: Vec<KeySwitchingKey<M>>) -> Result<Self, TfheError> {
        let expected = stages(params)?.key_switching_parts();
        let [extract, refresh] = expect_parts(
            "the key-switching key",
            expected,
            keys,
            KeySwitchingKey::params,
        )?;
        Ok(WopbsKeySwitchingKey {
            params: *params,
            extract,
            refresh,
        })
    }

    /// The parameter set.
    #[must_use]
    pub fn params(&self) -> &ParamSet {
        &self.params
    }

    /// Bytes of memory that the key holds.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.extract.memory() + self.refresh.memory()
    }
}

impl<M: Modulus, A: Arithmetic<M>> WopbsKey<M, A> {
    /// From the keys of [`WopbsParams::bootstrapping_parts`].
    ///
    /// # Errors
    /// [`TfheError::NotWopbs`], [`TfheError::ModulusMismatch`], [`TfheError::ParamsMismatch`].
    pub fn new(params: &ParamSet, keys: Vec<BootstrappingKey<M, A>>) -> Result<Self, TfheError> {
        let plan = Plan::new(params)?;
        let stages = plan.stages();
        let [extract, refresh, switch] = expect_parts(
            "the bootstrapping key",
            stages.bootstrapping_parts(),
            keys,
            BootstrappingKey::params,
        )?;
        if [&extract, &refresh, &switch]
            .iter()
            .any(|key| key.is_unrolled())
        {
            return Err(TfheError::NotUnrolled(params.name));
        }
        Ok(WopbsKey {
            params: *params,
            stages,
            plan,
            extract,
            refresh,
            switch: RingSwitchKey::new(switch),
            spare: Mutex::new(Vec::new()),
        })
    }

    /// The parameter set.
    #[must_use]
    pub fn params(&self) -> &ParamSet {
        &self.params
    }

    /// Bytes of memory that the key holds, without the GGSW samples of bootstraps: a few megabytes for each concurrent one.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.extract.memory() + self.refresh.memory() + self.switch.memory()
    }

    fn simd(&self) -> SimdLevel {
        self.extract.samples.simd()
    }

    /// Applies the functions of any number of test vectors (tables of 2^p words, [`glwe::test_vector`]) to the message of
    /// `input_bits` bits of `sample` (k·N + 1 words): a sample of each, with the noise of a fresh bootstrap. The bits are extracted
    /// once for all functions, which then are worked on a few at a time, so that memory does not grow with their number. Of a
    /// test vector only the entries of the messages count, every 2^(p - `input_bits`)th.
    ///
    /// # Errors
    /// [`TfheError::ParamsMismatch`] for keys of different sets, [`TfheError::MessageBits`] and [`TfheError::MessageTooWide`] for
    /// `input_bits` beyond 1 to p, [`TfheError::Length`] for a sample or test vector of another length, [`TfheError::Cancelled`].
    pub fn bootstrap(
        &self,
        key_switching: &WopbsKeySwitchingKey<M>,
        test_vectors: &[&[M::Word]],
        input_bits: u32,
        sample: &[M::Word],
        run: Run<'_>,
    ) -> Result<Vec<Vec<M::Word>>, TfheError> {
        let task = WideTask {
            test_vectors,
            input_bits,
            sample,
        };
        self.bootstrap_all(key_switching, &[task], run)
    }

    /// [`Self::bootstrap`] of any number of samples, some of which at a time stream the keys together: the results of each task, one task after
    /// the other.
    ///
    /// # Errors
    /// As [`Self::bootstrap`].
    pub fn bootstrap_all(
        &self,
        key_switching: &WopbsKeySwitchingKey<M>,
        tasks: &[WideTask<'_, M>],
        run: Run<'_>,
    ) -> Result<Vec<Vec<M::Word>>, TfheError> {
        let words = self.params.test_vector_words();
        for test_vector in tasks.iter().flat_map(|task| task.test_vectors) {
            check_words::<M>(&self.params, "a test vector", test_vector, words)?;
        }
        let mut results = Vec::new();
        let groups = tasks.chunk_by(|a, b| a.input_bits == b.input_bits);
        for tasks in groups.flat_map(|tasks| tasks.chunks(SAMPLES_AT_A_TIME)) {
            let samples: Vec<&[M::Word]> = tasks.iter().map(|task| task.sample).collect();
            let bits = self.extract_all(key_switching, tasks[0].input_bits, &samples, run)?;
            let of_tasks = tasks.iter().zip(&bits);
            let functions: Vec<_> = of_tasks
                .flat_map(|(task, bits)| task.test_vectors.iter().map(move |tv| (bits, *tv)))
                .collect();
            for functions in functions.chunks(FUNCTIONS_AT_A_TIME) {
                results.extend(self.apply(key_switching, functions, run)?);
            }
        }
        Ok(results)
    }

    /// Functions, by test vectors whose lengths are right, each of the message of some bits.
    fn apply(
        &self,
        key_switching: &WopbsKeySwitchingKey<M>,
        functions: &[OfBits<'_, M, A, &[M::Word]>],
        run: Run<'_>,
    ) -> Result<Vec<Vec<M::Word>>, TfheError> {
        let bits: Vec<_> = functions.iter().map(|(bits, _)| *bits).collect();
        let functions: Vec<Digits<M>> = functions
            .iter()
            .map(|(bits, test_vector)| self.plan.function(test_vector, bits.count()))
            .collect();
        let tables: Vec<_> = functions
            .iter()
            .zip(bits)
            .flat_map(|(function, bits)| {
                (0..function.count()).map(move |digit| (bits, function.table(digit)))
            })
            .collect();
        let read = self.look_up_all(&tables, run)?;
        drop(tables);
        let small_words = self.stages.refresh.lwe_words();
        let mut small = vec![M::Word::default(); read.len() * small_words];
        let mut switches: Vec<_> = read
            .iter()
            .zip(small.chunks_exact_mut(small_words))
            .map(|(extracted, out)| Switch { extracted, out })
            .collect();
        key_switching.refresh.switch_all(&mut switches, run)?;
        let vectors: Vec<_> = functions
            .iter()
            .flat_map(|function| (0..function.count()).map(|digit| function.test_vector(digit)))
            .collect();
        let mut refreshed = vec![M::Word::default(); read.len() * self.params.lwe_words()];
        let mut rotations: Vec<_> = refreshed
            .chunks_exact_mut(self.params.lwe_words())
            .zip(small.chunks_exact(small_words).zip(&vectors))
            .map(|(out, (sample, test_vector))| Rotation {
                test_vector,
                sample,
                out,
            })
            .collect();
        self.refresh.blind_rotate_all(&mut rotations, run)?;
        let mut digits = refreshed.chunks_exact(self.params.lwe_words());
        Ok(functions
            .iter()
            .map(|function| {
                let mut sum = lwe::trivial::<M>(&self.params, function.constant());
                for digit in digits.by_ref().take(function.count()) {
                    lwe::add_assign::<M>(&mut sum, digit);
                }
                sum
            })
            .collect())
    }

    /// Makes the GGSW samples of the bits of a message of `count` bits.
    ///
    /// # Errors
    /// As [`Self::bootstrap`].
    pub fn extract_bits(
        &self,
        key_switching: &WopbsKeySwitchingKey<M>,
        count: u32,
        sample: &[M::Word],
        run: Run<'_>,
    ) -> Result<Bits<'_, M, A>, TfheError> {
        let mut bits = self.extract_all(key_switching, count, &[sample], run)?;
        Ok(bits.swap_remove(0))
    }

    /// [`Self::extract_bits`] of several samples, which stream the keys together.
    fn extract_all(
        &self,
        key_switching: &WopbsKeySwitchingKey<M>,
        count: u32,
        samples: &[&[M::Word]],
        run: Run<'_>,
    ) -> Result<Vec<Bits<'_, M, A>>, TfheError> {
        let mut lists = samples
            .iter()
            .map(|sample| self.room_for_bits(key_switching, count, sample))
            .collect::<Result<Vec<_>, _>>()?;
        let ggsw_words = self.stages.circuit.ggsw_rows() * self.params.glwe_words();
        let mut rows = vec![M::Word::default(); samples.len() * ggsw_words];
        self.for_each_bit(key_switching, count, samples, run, |bit, accs| {
            self.circuit_bootstrap(accs, &mut rows, run.threads)?;
            let jobs = lists.iter_mut().zip(rows.chunks_exact(ggsw_words));
            in_parallel(
                run.threads,
                jobs.collect(),
                |_, (list, rows): (&mut GgswList<M, A>, _)| {
                    list.load_sample(bit, rows);
                    Ok(())
                },
            )
        })?;
        let bits = lists.into_iter().map(|samples| Bits {
            key: self,
            count,
            samples: Some(samples),
        });
        Ok(bits.collect())
    }

    /// Memory for the GGSW samples of at least `count` bits of `sample`, if the set has that many, and the sample and the key that
    /// takes them off are those of the set.
    fn room_for_bits(
        &self,
        key_switching: &WopbsKeySwitchingKey<M>,
        count: u32,
        sample: &[M::Word],
    ) -> Result<GgswList<M, A>, TfheError> {
        self.plan.check_bits(count)?;
        if key_switching.params != self.params {
            return Err(TfheError::ParamsMismatch {
                what: "the key-switching key",
                expected: self.params.name.to_owned(),
                found: key_switching.params.name.to_owned(),
            });
        }
        check_words::<M>(
            &self.params,
            "an LWE sample",
            sample,
            self.params.lwe_words(),
        )?;
        let spare = self
            .spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        // A larger one takes the place of one that is too small: there are no more than bootstraps at a time.
        spare
            .filter(|samples| samples.count() >= count as usize)
            .map_or_else(
                || {
                    GgswList::new(&self.stages.circuit, count as usize, self.simd())
                        .map(GgswList::with_alternating_digits)
                },
                Ok,
            )
    }

    /// Takes the `count` bits off each of some samples, from the lowest up, and hands each bit to `take` as what the blind rotations left: (k+1)·N
    /// words of every sample.
    fn for_each_bit(
        &self,
        key_switching: &WopbsKeySwitchingKey<M>,
        count: u32,
        samples: &[&[M::Word]],
        run: Run<'_>,
        mut take: impl FnMut(usize, &[WordOf<M, A>]) -> Result<(), TfheError>,
    ) -> Result<(), TfheError> {
        let levels = self.stages.circuit.gadget.levels;
        let words = self.params.lwe_words();
        let small_words = self.stages.extract.lwe_words();
        let acc_words = self.params.glwe_words();
        let mut rest = samples.concat();
        let mut shifted = rest.clone();
        let mut small = vec![M::Word::default(); samples.len() * small_words];
        let mut value = vec![M::Word::default(); words];
        let mut accs = vec![WordOf::<M, A>::default(); samples.len() * acc_words];
        for bit in 0..count {
            let place = self.plan.place(count, bit);
            shifted.copy_from_slice(&rest);
            lwe::mul_assign::<M>(&mut shifted, 1 << self.plan.shift(count, bit));
            let mut switches: Vec<_> = shifted
                .chunks_exact(words)
                .zip(small.chunks_exact_mut(small_words))
                .map(|(extracted, out)| Switch { extracted, out })
                .collect();
            key_switching.extract.switch_all(&mut switches, run)?;
            let slots = self.plan.slots(place);
            let mut rotations: Vec<_> = small
                .chunks_exact_mut(small_words)
                .zip(accs.chunks_exact_mut(acc_words))
                .map(|(small, acc)| {
                    let body = &mut small[self.stages.extract.lwe_dimension];
                    *body = M::add(*body, self.plan.quarter());
                    let log2_slots = self.stages.log2_slots();
                    BlindRotation::new(self.extract.params(), &slots, small, log2_slots, acc)
                })
                .collect();
            self.extract.samples.rotate_all(&mut rotations, run)?;
            take(bit as usize, &accs)?;
            for (rest, acc) in rest
                .chunks_exact_mut(words)
                .zip(accs.chunks_exact(acc_words))
            {
                let out = &mut value;
                glwe::sample_extract::<A::Words, _>(&self.params, acc, levels, out, A::leave);
                // ±u stands for 0 or 1 times 2u.
                lwe::add_assign::<M>(rest, &value);
                let body = &mut rest[self.params.lwe_dimension];
                *body = M::sub(*body, place);
            }
        }
        Ok(())
    }
}
