//! Exact functions of many bits: bits taken off a sample one by one, circuit bootstrapping, vertical packing.
//!
//! A plain bootstrap rounds the phase of a sample to 2N places. Here the p bits of a message are extracted from the lowest up,
//! each by a blind rotation of its own ([`ExactKey::extract_bits`]), which becomes the TRGSW sample of the bit at the same
//! time: slots of one test vector give it at every level of the circuit's gadget, a trace clears the other coefficients, and
//! products by the secret polynomials make the mask rows (circuit bootstrapping of Chillotti, Gama, Georgieva and
//! Izabachène, J. Cryptology 2020, with automorphisms in place of private key switches, as Wang et al., EUROCRYPT 2024). The
//! TRGSW samples read an entry of a table of 2^p: CMuxes down to one polynomial, then a blind rotation
//! ([`ExactKey::look_up`]). The TRGSW samples are cheap and noisy; so the table is read digit by digit, and each digit
//! is bootstrapped to its place of the message with little noise ([`ExactKey::bootstrap`]).
//!
//! What it is not: a bootstrap of the padding bit, which is left out: the function of m + 2^p is that of m.

mod digits;
pub mod measure;
pub mod noise;
pub mod packing;
pub mod private;

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use toroid_ring::simd::Isa;

use crate::TfheError;
use crate::bootstrap::{
    BootstrappingKey, BootstrappingKeyLoader, Rotation, Turning, Workspace, check_words,
};
use crate::encoding::Encoding;
use crate::glwe;
use crate::key_switch::{KeySwitchingKey, KeySwitchingKeyLoader};
use crate::lwe;
use crate::memory::Buffer;
use crate::modulus::{Modulus, Words};
use crate::params::{ExactParams, Gadget, ParamSet};
use crate::product::{Arithmetic, WordOf};
use crate::seeded::{KeyForm, SeededBootstrappingKeyLoader, SeededKeySwitchingKeyLoader};

use digits::Digits;

/// The bootstrapping key of an exact bootstrap, loaded for one [`Arithmetic`].
pub struct ExactKey<M: Modulus, A: Arithmetic<M>> {
    params: &'static ParamSet,
    stages: &'static ExactParams,
    extract: BootstrappingKey<M, A>,
    refresh: BootstrappingKey<M, A>,
    switch: BootstrappingKey<M, A>,
    /// Memory for TRGSW samples that no bootstrap uses at the moment.
    spare: Mutex<Vec<BootstrappingKey<M, A>>>,
}

/// The key-switching key of an exact bootstrap.
pub struct ExactKeySwitchingKey<M: Modulus> {
    params: &'static ParamSet,
    extract: KeySwitchingKey<M>,
    refresh: KeySwitchingKey<M>,
}

/// Takes the parts of a key, which stand one behind the other.
pub struct PartsLoader<L> {
    params: &'static ParamSet,
    what: &'static str,
    /// With the bytes of each.
    parts: Vec<(L, u64)>,
    current: usize,
    /// Bytes that the current part has taken.
    taken: u64,
}

/// Takes the bytes of a key in order.
pub trait KeyLoader: Sized {
    /// What becomes of them.
    type Key;

    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`TfheError::Length`] for bytes beyond the end, [`TfheError::NotCanonical`] for a word not below the modulus.
    fn write(&mut self, bytes: &[u8]) -> Result<(), TfheError>;

    /// The key, once all bytes are there.
    ///
    /// # Errors
    /// [`TfheError::Length`] where bytes are missing.
    fn finish(self) -> Result<Self::Key, TfheError>;
}

macro_rules! loads {
    ($loader:ident<M $(, $arithmetic:ident)?> => $key:ty) => {
        impl<M: Modulus $(, $arithmetic: Arithmetic<M>)?> KeyLoader
            for $loader<M $(, $arithmetic)?>
        {
            type Key = $key;

            fn write(&mut self, bytes: &[u8]) -> Result<(), TfheError> {
                $loader::write(self, bytes)
            }

            fn finish(self) -> Result<Self::Key, TfheError> {
                $loader::finish(self)
            }
        }
    };
}

loads!(BootstrappingKeyLoader<M, A> => BootstrappingKey<M, A>);
loads!(SeededBootstrappingKeyLoader<M, A> => BootstrappingKey<M, A>);
loads!(KeySwitchingKeyLoader<M> => KeySwitchingKey<M>);
loads!(SeededKeySwitchingKeyLoader<M> => KeySwitchingKey<M>);

impl<L: KeyLoader> PartsLoader<L> {
    /// For the bootstrapping key of an exact bootstrap, in one form; `make` gives a loader for each of its parts.
    ///
    /// # Errors
    /// [`TfheError::NotExact`], and those of `make`.
    pub fn bootstrapping(
        params: &'static ParamSet,
        form: KeyForm,
        make: impl Fn(&'static ParamSet) -> Result<L, TfheError>,
    ) -> Result<Self, TfheError> {
        let parts = stages(params)?.bootstrapping_parts();
        let bytes = |part: &ParamSet| form.bootstrapping_key_bytes(part);
        Self::new(params, "the bootstrapping key", &parts, bytes, make)
    }

    /// For the key-switching key of an exact bootstrap, in one form; `make` gives a loader for each of its parts.
    ///
    /// # Errors
    /// [`TfheError::NotExact`], and those of `make`.
    pub fn key_switching(
        params: &'static ParamSet,
        form: KeyForm,
        make: impl Fn(&'static ParamSet) -> Result<L, TfheError>,
    ) -> Result<Self, TfheError> {
        let parts = stages(params)?.key_switching_parts();
        let bytes = |part: &ParamSet| form.key_switching_key_bytes(part);
        Self::new(params, "the key-switching key", &parts, bytes, make)
    }

    fn new(
        params: &'static ParamSet,
        what: &'static str,
        parts: &[&'static ParamSet],
        bytes: impl Fn(&ParamSet) -> u64,
        make: impl Fn(&'static ParamSet) -> Result<L, TfheError>,
    ) -> Result<Self, TfheError> {
        let parts = parts
            .iter()
            .map(|part| Ok((make(part)?, bytes(part))))
            .collect::<Result<_, TfheError>>()?;
        Ok(PartsLoader {
            params,
            what,
            parts,
            current: 0,
            taken: 0,
        })
    }

    fn wrong_length(&self, beyond: u64) -> TfheError {
        let bytes = |parts: &[(L, u64)]| parts.iter().map(|(_, bytes)| bytes).sum::<u64>();
        TfheError::Length {
            what: self.what,
            params: self.params.name,
            expected: bytes(&self.parts),
            found: bytes(&self.parts[..self.current]) + self.taken + beyond,
        }
    }
}

impl<L: KeyLoader> KeyLoader for PartsLoader<L> {
    type Key = (&'static ParamSet, Vec<L::Key>);

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), TfheError> {
        while !bytes.is_empty() {
            let Some((loader, total)) = self.parts.get_mut(self.current) else {
                return Err(self.wrong_length(bytes.len() as u64));
            };
            let room = usize::try_from(*total - self.taken).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(bytes.len().min(room));
            loader.write(now)?;
            self.taken += now.len() as u64;
            if self.taken == *total {
                self.current += 1;
                self.taken = 0;
            }
            bytes = later;
        }
        Ok(())
    }

    fn finish(self) -> Result<Self::Key, TfheError> {
        if self.current < self.parts.len() {
            return Err(self.wrong_length(0));
        }
        let parts = self.parts.into_iter().map(|(loader, _)| loader.finish());
        Ok((self.params, parts.collect::<Result<_, _>>()?))
    }
}

fn stages(params: &'static ParamSet) -> Result<&'static ExactParams, TfheError> {
    params.exact.ok_or(TfheError::NotExact(params.name))
}

/// The parts of a key, if they are those of the set's stages.
fn parts<K, const COUNT: usize>(
    what: &'static str,
    expected: [&'static ParamSet; COUNT],
    parts: Vec<K>,
    params: impl Fn(&K) -> &'static ParamSet,
) -> Result<[K; COUNT], TfheError> {
    let names = |sets: &mut dyn Iterator<Item = &'static ParamSet>| {
        let names: Vec<_> = sets.map(|set| set.name).collect();
        names.join(", ")
    };
    if !parts.iter().map(&params).eq(expected) {
        return Err(TfheError::ParamsMismatch {
            what,
            expected: names(&mut expected.into_iter()),
            found: names(&mut parts.iter().map(&params)),
        });
    }
    parts.try_into().map_err(|_| TfheError::NotExact(what))
}

/// The TRGSW samples of the bits of a message, from the lowest up; back to the key's spare memory when dropped.
pub struct Bits<'a, M: Modulus, A: Arithmetic<M>> {
    key: &'a ExactKey<M, A>,
    /// None only while dropped.
    samples: Option<BootstrappingKey<M, A>>,
}

impl<M: Modulus, A: Arithmetic<M>> Bits<'_, M, A> {
    fn samples(&self) -> &BootstrappingKey<M, A> {
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

/// What a bootstrap may use, and when it should stop.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// Threads.
    pub threads: usize,
    /// Asked every few milliseconds at least.
    pub cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl<M: Modulus> ExactKeySwitchingKey<M> {
    /// From the keys of [`ExactParams::key_switching_parts`].
    ///
    /// # Errors
    /// [`TfheError::NotExact`], [`TfheError::ParamsMismatch`].
    pub fn new(
        params: &'static ParamSet,
        keys: Vec<KeySwitchingKey<M>>,
    ) -> Result<Self, TfheError> {
        let expected = stages(params)?.key_switching_parts();
        let [extract, refresh] = parts(
            "the key-switching key",
            expected,
            keys,
            KeySwitchingKey::params,
        )?;
        Ok(ExactKeySwitchingKey {
            params,
            extract,
            refresh,
        })
    }

    /// The parameter set.
    #[must_use]
    pub fn params(&self) -> &'static ParamSet {
        self.params
    }

    /// Bytes of memory that the key holds.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.extract.memory() + self.refresh.memory()
    }
}

/// Memory of one thread that makes TRGSW samples.
struct Bench<W> {
    work: Buffer,
    /// A sample under way.
    sample: Vec<W>,
    image: Vec<W>,
}

impl<M: Modulus, A: Arithmetic<M>> ExactKey<M, A> {
    /// From the keys of [`ExactParams::bootstrapping_parts`].
    ///
    /// # Errors
    /// [`TfheError::NotExact`], [`TfheError::ParamsMismatch`].
    pub fn new(
        params: &'static ParamSet,
        keys: Vec<BootstrappingKey<M, A>>,
    ) -> Result<Self, TfheError> {
        let stages = stages(params)?;
        let [extract, refresh, switch] = parts(
            "the bootstrapping key",
            stages.bootstrapping_parts(),
            keys,
            BootstrappingKey::params,
        )?;
        Ok(ExactKey {
            params,
            stages,
            extract,
            refresh,
            switch,
            spare: Mutex::new(Vec::new()),
        })
    }

    /// The parameter set.
    #[must_use]
    pub fn params(&self) -> &'static ParamSet {
        self.params
    }

    /// Bytes of memory that the key holds.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.extract.memory() + self.refresh.memory() + self.switch.memory()
    }

    fn isa(&self) -> Isa {
        self.extract.isa()
    }

    /// Applies the functions of any number of test vectors (tables of 2^p words, [`glwe::test_vector`]) to the message of
    /// `sample` (k·N + 1 words): a sample of each, with the noise of a fresh bootstrap. The bits are extracted once for all
    /// functions.
    ///
    /// # Errors
    /// [`TfheError::ParamsMismatch`] for keys of different sets, [`TfheError::Length`] for a sample or test vector of another
    /// length, [`TfheError::Cancelled`].
    pub fn bootstrap(
        &self,
        key_switching: &ExactKeySwitchingKey<M>,
        test_vectors: &[&[M::Word]],
        sample: &[M::Word],
        run: Run<'_>,
    ) -> Result<Vec<Vec<M::Word>>, TfheError> {
        for test_vector in test_vectors {
            check_words::<M>(
                self.params,
                "a test vector",
                test_vector,
                self.params.test_vector_words(),
            )?;
        }
        let bits = self.extract_bits(key_switching, sample, run)?;
        let functions: Vec<Digits<M>> = test_vectors
            .iter()
            .map(|test_vector| Digits::new(self.params, self.stages, test_vector))
            .collect();
        let tables: Vec<_> = functions
            .iter()
            .flat_map(|function| (0..function.count()).map(|digit| function.table(digit)))
            .collect();
        let mut read = self.look_up_all(&bits, &tables, run)?;
        drop(bits);
        for digit in &mut read {
            let mut small = vec![M::Word::default(); self.stages.refresh.tlwe_words()];
            key_switching.refresh.switch(digit, &mut small)?;
            *digit = small;
        }
        let vectors: Vec<_> = functions
            .iter()
            .flat_map(|function| (0..function.count()).map(|digit| function.test_vector(digit)))
            .collect();
        let mut refreshed = vec![M::Word::default(); read.len() * self.params.tlwe_words()];
        let mut rotations: Vec<_> = refreshed
            .chunks_exact_mut(self.params.tlwe_words())
            .zip(read.iter().zip(&vectors))
            .map(|(out, (sample, test_vector))| Rotation {
                test_vector,
                sample,
                out,
            })
            .collect();
        self.refresh
            .blind_rotate_all(&mut rotations, run.threads, run.cancelled)?;
        let mut digits = refreshed.chunks_exact(self.params.tlwe_words());
        Ok(functions
            .iter()
            .map(|function| {
                let mut sum = lwe::trivial::<M>(self.params, function.constant());
                for digit in digits.by_ref().take(function.count()) {
                    lwe::add_assign::<M>(&mut sum, digit);
                }
                sum
            })
            .collect())
    }

    /// Makes the TRGSW samples of the p bits of a message.
    ///
    /// # Errors
    /// As [`Self::bootstrap`].
    pub fn extract_bits(
        &self,
        key_switching: &ExactKeySwitchingKey<M>,
        sample: &[M::Word],
        run: Run<'_>,
    ) -> Result<Bits<'_, M, A>, TfheError> {
        let mut samples = self.room_for_bits(key_switching, sample)?;
        let trgsw_words = self.stages.circuit.trgsw_rows() * self.params.trlwe_words();
        let mut rows = vec![M::Word::default(); trgsw_words];
        self.for_each_bit(key_switching, sample, run, |bit, acc| {
            self.circuit_bootstrap(acc, &mut rows, run.threads)?;
            samples.load_sample(bit, &rows);
            Ok(())
        })?;
        Ok(Bits {
            key: self,
            samples: Some(samples),
        })
    }

    /// Memory for the TRGSW samples of the bits of `sample`, if it and the key that takes them off are those of the set.
    fn room_for_bits(
        &self,
        key_switching: &ExactKeySwitchingKey<M>,
        sample: &[M::Word],
    ) -> Result<BootstrappingKey<M, A>, TfheError> {
        if key_switching.params != self.params {
            return Err(TfheError::ParamsMismatch {
                what: "the key-switching key",
                expected: self.params.name.to_owned(),
                found: key_switching.params.name.to_owned(),
            });
        }
        check_words::<M>(
            self.params,
            "a TLWE sample",
            sample,
            self.params.tlwe_words(),
        )?;
        let spare = self
            .spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        spare.map_or_else(
            || BootstrappingKey::empty(&self.stages.circuit, self.isa()),
            Ok,
        )
    }

    /// Takes the bits off a sample, from the lowest up, and hands each to `take` as what its blind rotation left.
    fn for_each_bit(
        &self,
        key_switching: &ExactKeySwitchingKey<M>,
        sample: &[M::Word],
        run: Run<'_>,
        mut take: impl FnMut(usize, &[WordOf<M, A>]) -> Result<(), TfheError>,
    ) -> Result<(), TfheError> {
        let p = self.params.message_bits;
        let levels = self.stages.circuit.gadget.levels;
        let mut rest = sample.to_vec();
        let mut shifted = sample.to_vec();
        let mut small = vec![M::Word::default(); self.stages.extract.tlwe_words()];
        let mut value = vec![M::Word::default(); self.params.tlwe_words()];
        let mut acc = vec![WordOf::<M, A>::default(); self.params.trlwe_words()];
        for bit in 0..p {
            shifted.copy_from_slice(&rest);
            // The bit at 1/2 of the torus, what is above it gone.
            lwe::mul_assign::<M>(&mut shifted, 1 << (p - bit));
            key_switching.extract.switch(&shifted, &mut small)?;
            // 0 at 1/4 and 1 at 3/4: the halves of a test vector.
            let body = &mut small[self.stages.extract.lwe_dimension];
            *body = M::add(*body, M::encode(1, 2));
            let turning =
                self.extract
                    .start(&self.slots(bit), &small, self.stages.log2_slots(), &mut acc);
            self.extract
                .turn_all(&mut [turning], run.threads, run.cancelled)?;
            take(bit as usize, &acc)?;
            glwe::sample_extract::<A::Words, _>(self.params, &acc, levels, &mut value, A::leave);
            // ±u stands for 0 or 1 times 2u.
            lwe::add_assign::<M>(&mut rest, &value);
            let body = &mut rest[self.params.lwe_dimension];
            *body = M::sub(*body, self.place(bit));
        }
        Ok(())
    }

    /// Half of what bit `bit` is worth in its place of the message.
    fn place(&self, bit: u32) -> M::Word {
        M::encode(1 << bit, self.params.message_bits + 2)
    }

    /// The test vector of an extraction: half of every level of the circuit's gadget, then [`Self::place`], over and over.
    fn slots(&self, bit: u32) -> Vec<M::Word> {
        let gadget = self.stages.circuit.gadget;
        let mut slots = vec![M::Word::default(); 1 << self.stages.log2_slots()];
        for (level, slot) in slots.iter_mut().enumerate() {
            if level < gadget.levels {
                *slot = self.half_level(level);
            } else if level == gadget.levels {
                *slot = self.place(bit);
            }
        }
        let mut vector = vec![M::Word::default(); self.params.trlwe_words()];
        for (index, word) in vector[self.params.extracted_dimension()..]
            .iter_mut()
            .enumerate()
        {
            *word = slots[index % slots.len()];
        }
        vector
    }

    fn half_level(&self, level: usize) -> M::Word {
        // In base 2, one level further down.
        let bits = self.stages.circuit.gadget.log2_base as usize * (level + 1);
        let halves = Gadget {
            levels: bits + 1,
            log2_base: 1,
        };
        M::gadget_value(halves, bits)
    }

    /// The rows of the TRGSW sample of a bit, from the accumulator of its extraction.
    fn circuit_bootstrap(
        &self,
        acc: &[WordOf<M, A>],
        rows: &mut [M::Word],
        threads: usize,
    ) -> Result<(), TfheError> {
        let levels = self.stages.circuit.gadget.levels;
        let k = self.params.glwe_dimension;
        let row_words = self.params.trlwe_words();
        // Row `component`·levels + level.
        let mut of_level: Vec<Vec<&mut [M::Word]>> = (0..levels).map(|_| Vec::new()).collect();
        for (index, row) in rows.chunks_exact_mut(row_words).enumerate() {
            of_level[index % levels].push(row);
        }
        let make = |level: usize, mut rows: Vec<&mut [M::Word]>| -> Result<(), TfheError> {
            let mut bench = self.bench()?;
            self.take_slot(acc, level, &mut bench);
            self.trace(&mut bench);
            for (component, row) in rows.iter_mut().take(k).enumerate() {
                self.times_secret(component, &mut bench, row);
            }
            for (out, word) in rows[k].iter_mut().zip(&bench.sample) {
                *out = A::leave(*word);
            }
            Ok(())
        };
        in_parallel(threads, of_level, make)
    }

    fn bench(&self) -> Result<Bench<WordOf<M, A>>, TfheError> {
        Ok(Bench {
            work: Workspace::<M, A>::memory(self.params)?,
            sample: vec![WordOf::<M, A>::default(); self.params.trlwe_words()],
            image: vec![WordOf::<M, A>::default(); self.params.ring_degree],
        })
    }

    /// Coefficient `level` of an accumulator to the constant one, as bit·g_level; the whole divided by N.
    fn take_slot(&self, acc: &[WordOf<M, A>], level: usize, bench: &mut Bench<WordOf<M, A>>) {
        let n = self.params.ring_degree;
        for (out, polynomial) in bench.sample.chunks_exact_mut(n).zip(acc.chunks_exact(n)) {
            glwe::rotate::<A::Words>(out, polynomial, (2 * n - level) % (2 * n));
        }
        for word in &mut bench.sample {
            *word = A::Words::neg(*word);
        }
        let body = &mut bench.sample[self.params.extracted_dimension()];
        *body = A::Words::add(*body, A::enter(self.half_level(level)));
        A::Words::share(&mut bench.sample, n.trailing_zeros());
    }

    /// N times the constant coefficient, all others gone: the sum over the automorphisms of the ring, one generator at a time.
    fn trace(&self, bench: &mut Bench<WordOf<M, A>>) {
        let n = self.params.ring_degree;
        let body = self.params.extracted_dimension();
        let mut work = Workspace::<M, A>::new(self.params, &mut bench.work);
        let rows = 0..self.stages.switch.trgsw_rows();
        for (step, log2) in (1..=n.trailing_zeros()).rev().enumerate() {
            let d = (1 << log2) + 1;
            let sample = &bench.sample;
            glwe::automorphism::<A::Words>(&mut bench.image, &sample[body..], d);
            let map = |index: usize, out: &mut [WordOf<M, A>]| {
                glwe::automorphism::<A::Words>(out, &sample[index * n..][..n], d);
            };
            self.switch.products(step, rows.clone(), map, &mut work);
            for (word, image) in bench.sample[body..].iter_mut().zip(&bench.image) {
                *word = A::Words::add(*word, *image);
            }
            self.switch.add_sums(&mut work, &mut bench.sample);
        }
    }

    /// The row of mask component `component`: -s_component times the message of the sample.
    fn times_secret(&self, component: usize, bench: &mut Bench<WordOf<M, A>>, row: &mut [M::Word]) {
        let n = self.params.ring_degree;
        let body = self.params.extracted_dimension();
        let step = n.trailing_zeros() as usize + component;
        let mut work = Workspace::<M, A>::new(self.params, &mut bench.work);
        let sample = &bench.sample;
        let rows = 0..self.stages.switch.trgsw_rows();
        let masks = |index: usize, out: &mut [WordOf<M, A>]| {
            out.copy_from_slice(&sample[index * n..][..n]);
        };
        self.switch.products(step, rows, masks, &mut work);
        let mut product = vec![WordOf::<M, A>::default(); self.params.trlwe_words()];
        product[component * n..][..n].copy_from_slice(&sample[body..]);
        self.switch.add_sums(&mut work, &mut product);
        for (out, word) in row.iter_mut().zip(&product) {
            *out = A::leave(*word);
        }
    }

    /// Vertical packing: the entry of a table of 2^p words that the bits point at, as a sample of dimension k·N.
    ///
    /// # Errors
    /// [`TfheError::Length`] for a table of another length, [`TfheError::Cancelled`].
    pub fn look_up(
        &self,
        bits: &Bits<'_, M, A>,
        table: &[M::Word],
        run: Run<'_>,
    ) -> Result<Vec<M::Word>, TfheError> {
        check_words::<M>(
            self.params,
            "a table",
            table,
            self.params.test_vector_words(),
        )?;
        let n = self.params.ring_degree;
        let circuit = bits.samples();
        let mut memory = Workspace::<M, A>::memory(self.params)?;
        let mut work = Workspace::<M, A>::new(self.params, &mut memory);
        let log2_degree = n.trailing_zeros();
        let depth = self.params.message_bits.saturating_sub(log2_degree);
        let mut accs =
            vec![vec![WordOf::<M, A>::default(); self.params.trlwe_words()]; depth as usize + 1];
        let stop = self.select(circuit, table, depth, &mut accs, &mut work, run);
        if stop.is_break() {
            return Err(TfheError::Cancelled);
        }
        let exponents = (0..self.params.message_bits)
            .map(|bit| {
                if bit < log2_degree {
                    2 * n - (1 << bit)
                } else {
                    0
                }
            })
            .collect();
        let turning = Turning {
            acc: &mut accs[0],
            exponents,
        };
        circuit.turn_all(&mut [turning], 1, run.cancelled)?;
        let mut out = vec![M::Word::default(); self.params.tlwe_words()];
        glwe::sample_extract::<A::Words, _>(self.params, &accs[0], 0, &mut out, A::leave);
        Ok(out)
    }

    fn look_up_all(
        &self,
        bits: &Bits<'_, M, A>,
        tables: &[Vec<M::Word>],
        run: Run<'_>,
    ) -> Result<Vec<Vec<M::Word>>, TfheError> {
        let mut out = vec![Vec::new(); tables.len()];
        let jobs = tables.iter().zip(&mut out).collect();
        in_parallel(run.threads, jobs, |_, (table, out): (_, &mut Vec<_>)| {
            *out = self.look_up(bits, table, run)?;
            Ok(())
        })?;
        Ok(out)
    }

    /// CMuxes by the highest `depth` bits that are left: one polynomial of `table`, into the first of `accs`, one for each
    /// level and one more.
    fn select(
        &self,
        circuit: &BootstrappingKey<M, A>,
        table: &[M::Word],
        depth: u32,
        accs: &mut [Vec<WordOf<M, A>>],
        work: &mut Workspace<'_, M, A>,
        run: Run<'_>,
    ) -> ControlFlow<()> {
        let n = self.params.ring_degree;
        let body = self.params.extracted_dimension();
        let rows = self.stages.circuit.trgsw_rows();
        let Some((out, rest)) = accs.split_first_mut() else {
            return ControlFlow::Continue(());
        };
        out[..body].fill(WordOf::<M, A>::default());
        if depth == 0 {
            for (word, entry) in out[body..].iter_mut().zip(table) {
                *word = A::enter(*entry);
            }
            return ControlFlow::Continue(());
        }
        if (run.cancelled)() {
            return ControlFlow::Break(());
        }
        let bit = (n.trailing_zeros() + depth - 1) as usize;
        let (low, high) = table.split_at(table.len() / 2);
        if depth == 1 {
            // Both polynomials are known: their masks are 0, and so are the digits of them.
            let masks = rows - self.stages.circuit.body_gadget.levels;
            let difference = |_: usize, out: &mut [WordOf<M, A>]| {
                for (word, (high, low)) in out.iter_mut().zip(high.iter().zip(low)) {
                    *word = A::Words::sub(A::enter(*high), A::enter(*low));
                }
            };
            circuit.products(bit, masks..rows, difference, work);
            for (word, entry) in out[body..].iter_mut().zip(low) {
                *word = A::enter(*entry);
            }
        } else {
            self.select(circuit, high, depth - 1, rest, work, run)?;
            let high = rest[0].clone();
            self.select(circuit, low, depth - 1, rest, work, run)?;
            out.copy_from_slice(&rest[0]);
            let difference = |index: usize, difference: &mut [WordOf<M, A>]| {
                let range = index * n..(index + 1) * n;
                let pairs = high[range.clone()].iter().zip(&out[range]);
                for (word, (high, low)) in difference.iter_mut().zip(pairs) {
                    *word = A::Words::sub(*high, *low);
                }
            };
            circuit.products(bit, 0..rows, difference, work);
        }
        circuit.add_sums(work, out);
        ControlFlow::Continue(())
    }
}

/// Does jobs side by side where there are threads for it, else one after the other on this one.
fn in_parallel<J: Send>(
    threads: usize,
    jobs: Vec<J>,
    run: impl Fn(usize, J) -> Result<(), TfheError> + Sync,
) -> Result<(), TfheError> {
    use rayon::prelude::*;
    if threads > 1 {
        let jobs = jobs.into_par_iter().enumerate();
        jobs.try_for_each(|(index, job)| run(index, job))
    } else {
        let mut jobs = jobs.into_iter().enumerate();
        jobs.try_for_each(|(index, job)| run(index, job))
    }
}

/// The test vector of an exact bootstrap: an entry for each of the 2^p messages of the set; `table` gives the output word of
/// every message of `input`, in the order of [`Encoding::messages`]. A narrower input than the set's owns the entries about
/// its place.
///
/// # Errors
/// [`TfheError::FunctionTooWide`] for an input wider than the set's message, [`TfheError::Length`] for a table of another length.
pub(crate) fn test_vector<M: Modulus>(
    params: &'static ParamSet,
    input: Encoding,
    table: &[M::Word],
) -> Result<Vec<M::Word>, TfheError> {
    let (p, bits) = (params.message_bits, input.bits());
    if bits > p {
        return Err(TfheError::FunctionTooWide {
            bits,
            needed: 1 << bits,
            found: 1 << p,
            params: params.name,
        });
    }
    check_words::<M>(params, "the table of a test vector", table, 1 << bits)?;
    let first = input.messages().start;
    Ok((0..1usize << p)
        .map(|entry| {
            let message = ((entry << bits) + (1 << p) / 2) >> p;
            // Modulo 2^bits, from the smallest message on.
            table[(message as i64 - first) as usize % table.len()]
        })
        .collect())
}
