//! Wide functions: `toroid-tfhe`'s wopbs, from samples to samples on the device, several samples at a time.
//!
//! First the bits of all samples are taken off, the lowest first, and each becomes GGSW samples, which stay in the device's memory in the
//! form that products take. Then functions read their tables' digits with them, a few functions at a time, and refresh the digits.

use toroid_engine::backend::BootstrapTask;
use toroid_ring::goldilocks;
use toroid_task::CancelToken;
use toroid_tfhe::modulus::Goldilocks;
use toroid_tfhe::params::{ParamSet, StageParams};
use toroid_tfhe::wopbs::{Digits, Plan};

use crate::abi::{
    CircuitArgs, Digit, DigitsArgs, ExponentsArgs, GatherArgs, LoadArgs, MAX_LEVELS, SelectArgs,
    ShiftArgs, StartArgs,
};
use crate::device::{Context, Lane};
use crate::driver::{Address, LaunchShape};
use crate::error::GpuError;
use crate::launch::{Layout, Rotating, distinct, switch_sums};
use crate::pass::Keys;
use crate::shape::{Grouping, Shape, WideShape};

/// What bootstraps of a set work with.
pub(crate) struct Wide<'a> {
    /// Open.
    pub(crate) context: &'a Context,
    pub(crate) params: &'a ParamSet,
    pub(crate) shape: &'a WideShape,
    pub(crate) keys: &'a Keys,
    /// Where the parts of the keys begin: of extraction, refresh and ring switches.
    pub(crate) bootstrapping: [usize; 3],
    /// Of extraction and refresh.
    pub(crate) key_switching: [usize; 2],
    /// The most samples, and functions, at a time.
    pub(crate) most: usize,
    pub(crate) cancel: &'a CancelToken,
}

/// A task, and the memory for its results.
type Part<'t, 'r> = (BootstrapTask<'t>, &'r mut [u8]);

/// A function of one of the samples.
struct Function<'t, 'r> {
    sample: usize,
    test_vector: &'t [u8],
    result: &'r mut [u8],
}

/// Words of the host.
fn bytes_of<T: bytemuck::Pod>(words: &[T]) -> &[u8] {
    bytemuck::cast_slice(words)
}

/// Arrays of the bootstraps of some jobs.
#[derive(Clone, Copy)]
struct Arrays {
    jobs: usize,
    digits: Address,
    bodies: Address,
    sums: Address,
    exponents: Address,
    exponent: Address,
    accumulators: Address,
}

impl Arrays {
    fn place(layout: &mut Layout, params: &StageParams, jobs: usize) -> Arrays {
        let mut place = |bytes: usize| layout.place(jobs * bytes) as u64;
        Arrays {
            jobs,
            digits: place(params.key_switching_samples()),
            bodies: place(8),
            sums: place(4 * params.lwe_words()),
            exponents: place(4 * params.lwe_dimension),
            exponent: place(4),
            accumulators: place(8 * params.glwe_words()),
        }
    }

    /// In a memory that begins there.
    fn at(self, base: Address) -> Arrays {
        Arrays {
            jobs: self.jobs,
            digits: base + self.digits,
            bodies: base + self.bodies,
            sums: base + self.sums,
            exponents: base + self.exponents,
            exponent: base + self.exponent,
            accumulators: base + self.accumulators,
        }
    }
}

/// Places in the memory of the samples whose bits are taken off.
struct Samples {
    count: usize,
    bits: u32,
    /// Words of samples.
    rest: usize,
    /// Test vectors, one for each bit.
    slots: usize,
    /// The number of each job's test vector among those of its bit: 0.
    vector: usize,
    /// What the bodies lack, for each bit and sample.
    places: usize,
    /// The first accumulator of each sample.
    first: usize,
    sent: usize,
    arrays: Arrays,
    /// Words of the rows of a bit's GGSW samples.
    rows: usize,
    /// GGSW samples [bit][sample].
    bits_samples: usize,
    memory: usize,
}

/// Functions, and places in their memory.
struct Functions {
    depth: u32,
    digits: Vec<Digits<Goldilocks>>,
    vectors: Vec<Vec<u64>>,
    /// The distinct ones of them.
    distinct: Vec<usize>,
    /// Of each job.
    table: Vec<u32>,
    sample: Vec<u32>,
    vector: Vec<u32>,
    turns: Vec<u32>,
    /// Of each function: its first job, and what its digits lack.
    first: Vec<u32>,
    constant: Vec<u64>,
    tables_at: usize,
    vectors_at: usize,
    table_at: usize,
    sample_at: usize,
    vector_at: usize,
    zeros_at: usize,
    turns_at: usize,
    first_at: usize,
    constant_at: usize,
    sent: usize,
    /// Accumulators of the trees' levels, by turns.
    trees: [usize; 2],
    arrays: Arrays,
    results: usize,
    memory: usize,
}

impl Wide<'_> {
    /// Does the tasks; `results` receives a sample for each function.
    pub(crate) fn run(
        &self,
        tasks: &[BootstrapTask<'_>],
        mut results: &mut [u8],
    ) -> Result<(), GpuError> {
        let mut parts = Vec::new();
        for task in tasks {
            let bytes = task.test_vectors.len() * self.params.lwe_bytes();
            let (own, behind) = results.split_at_mut(bytes);
            results = behind;
            parts.push((*task, own));
        }
        // As many bits come off all samples of a pass.
        parts.sort_by_key(|(task, _)| task.input_bits);
        parts
            .chunk_by_mut(|(one, _), (other, _)| one.input_bits == other.input_bits)
            .flat_map(|parts| parts.chunks_mut(self.most))
            .try_for_each(|parts| self.run_together(parts))
    }

    /// Does tasks of one width.
    fn run_together(&self, parts: &mut [Part<'_, '_>]) -> Result<(), GpuError> {
        let plan = Plan::<Goldilocks>::new(self.params)?;
        let bits = parts.first().map_or(1, |(task, _)| task.input_bits);
        plan.check_bits(bits)?;
        let samples = self.place_samples(parts.len(), bits);
        let mut lane = self.context.lane(samples.memory, samples.sent)?;
        let done = self.run_in(&mut lane, &plan, &samples, parts);
        if done.is_err() {
            // The lane goes to others, or its memory back. Where this fails, too, it is for the same reason.
            let _ = lane.stream.synchronize();
        }
        if done.is_ok() || matches!(done, Err(GpuError::Cancelled)) {
            self.context.leave_lane(lane);
        }
        done
    }

    fn run_in(
        &self,
        lane: &mut Lane,
        plan: &Plan<Goldilocks>,
        samples: &Samples,
        parts: &mut [Part<'_, '_>],
    ) -> Result<(), GpuError> {
        self.take_bits(lane, plan, samples, parts)?;
        let functions = parts.iter_mut().enumerate();
        let mut functions: Vec<_> = functions
            .flat_map(|(sample, (task, results))| {
                let results = results.chunks_exact_mut(self.params.lwe_bytes());
                let functions = task.test_vectors.iter().zip(results);
                functions.map(move |(test_vector, result)| Function {
                    sample,
                    test_vector,
                    result,
                })
            })
            .collect();
        functions
            .chunks_mut(self.most)
            .try_for_each(|functions| self.apply(lane, plan, samples, functions))
    }

    fn check(&self) -> Result<(), GpuError> {
        if self.cancel.is_cancelled() {
            return Err(GpuError::Cancelled);
        }
        Ok(())
    }

    /// # Safety
    /// As for [`crate::device::Stream::launch`].
    unsafe fn launch<A>(
        &self,
        lane: &Lane,
        name: &str,
        launch: &LaunchShape,
        arguments: &A,
    ) -> Result<(), GpuError> {
        self.check()?;
        let kernel = self.context.kernel(name)?;
        if launch.shared > 0 {
            self.context.allow(kernel, launch)?;
        }
        // SAFETY: as the caller promises.
        unsafe { lane.stream.launch(kernel, launch, arguments) }
    }

    /// The exponents of samples whose digits are made.
    fn make_exponents(
        &self,
        lane: &Lane,
        shape: &Shape,
        arrays: &Arrays,
        key: Address,
        (addend, log2_slots): (u64, u32),
    ) -> Result<(), GpuError> {
        self.check()?;
        let params = shape.params();
        let switched = [arrays.digits, key, arrays.sums];
        switch_sums(self.context, lane, shape, arrays.jobs, switched)?;
        let arguments = ExponentsArgs {
            sums: arrays.sums,
            bodies: arrays.bodies,
            exponents: arrays.exponents,
            exponent: arrays.exponent,
            addend,
            jobs: arrays.jobs as u32,
            steps: params.lwe_dimension as u32,
            log2_order: params.ring_degree.trailing_zeros() + 1,
            log2_slots,
        };
        let launch = self.shape.exponents(arrays.jobs);
        // SAFETY: the arrays have room for so many jobs of this stage.
        unsafe { self.launch(lane, "exponents_64", &launch, &arguments) }
    }

    /// Accumulators from test vectors; the exponents are at `exponent`.
    fn start(
        &self,
        lane: &Lane,
        shape: &Shape,
        arrays: &Arrays,
        [vectors, vector, exponent]: [Address; 3],
    ) -> Result<(), GpuError> {
        let arguments = StartArgs {
            vectors,
            vector,
            exponent,
            accumulators: arrays.accumulators,
            jobs: arrays.jobs as u32,
            reserved: 0,
            stage: shape.stage,
        };
        let launch = shape.accumulators(arrays.jobs);
        // SAFETY: the arrays have room for so many jobs of this stage, and all numbers are those of test vectors.
        unsafe { self.launch(lane, &shape.kernel_name("start"), &launch, &arguments) }
    }

    fn rotating<'s>(
        &self,
        shape: &'s Shape,
        arrays: &Arrays,
        exponents: Address,
        key: Address,
    ) -> Result<Rotating<'s>, GpuError> {
        Ok(Rotating {
            shape,
            rotation: shape.rotation(self.context, Grouping::Solo, arrays.jobs)?,
            jobs: arrays.jobs,
            accumulators: arrays.accumulators,
            exponents,
            key,
            exchange: 0,
            flags: 0,
        })
    }

    fn place_samples(&self, count: usize, bits: u32) -> Samples {
        let WideShape {
            extract, circuit, ..
        } = self.shape;
        let all_bits = bits as usize;
        let mut layout = Layout::default();
        let rest = layout.place(count * self.params.lwe_bytes());
        let slots = layout.place(all_bits * extract.accumulator_bytes());
        let vector = layout.place(4 * count);
        let places = layout.place(8 * all_bits * count);
        let first = layout.place(4 * (count + 1));
        let sent = layout.end;
        let rows = count * circuit.params().ggsw_rows() * circuit.accumulator_bytes();
        Samples {
            count,
            bits,
            rest,
            slots,
            vector,
            places,
            first,
            sent,
            arrays: Arrays::place(&mut layout, extract.params(), count),
            rows: layout.place(rows),
            bits_samples: layout.place(all_bits * count * circuit.sample_bytes()),
            memory: layout.end,
        }
    }

    /// Takes the bits off the samples, and makes their GGSW samples.
    fn take_bits(
        &self,
        lane: &mut Lane,
        plan: &Plan<Goldilocks>,
        samples: &Samples,
        parts: &[Part<'_, '_>],
    ) -> Result<(), GpuError> {
        let host: &mut [u8] = lane.host.words_mut();
        let mut write = |at: usize, bytes: &[u8]| host[at..at + bytes.len()].copy_from_slice(bytes);
        for (index, (task, _)) in parts.iter().enumerate() {
            write(samples.rest + index * task.sample.len(), task.sample);
        }
        let extract = &self.shape.extract;
        for bit in 0..samples.bits {
            let place = plan.place(samples.bits, bit);
            let slots = samples.slots + bit as usize * extract.accumulator_bytes();
            write(slots, bytes_of(&plan.slots(place)));
            let lacks = vec![goldilocks::neg(place); samples.count];
            let places = samples.places + 8 * bit as usize * samples.count;
            write(places, bytes_of(&lacks));
        }
        write(samples.vector, bytes_of(&vec![0u32; samples.count]));
        let first: Vec<u32> = (0..=samples.count as u32).collect();
        write(samples.first, bytes_of(&first));
        let sent = &lane.host.words::<u8>()[..samples.sent];
        // SAFETY: `place_samples` gave the arrays their room; the lane is this pass's alone, and its words stay as they are until the stream
        // has been waited for.
        unsafe { lane.stream.upload(lane.memory.address(), sent)? };
        (0..samples.bits).try_for_each(|bit| self.take_bit(lane, plan, samples, bit))
    }

    fn take_bit(
        &self,
        lane: &Lane,
        plan: &Plan<Goldilocks>,
        samples: &Samples,
        bit: u32,
    ) -> Result<(), GpuError> {
        let WideShape {
            extract,
            switch,
            circuit,
            ..
        } = self.shape;
        let base = lane.memory.address();
        let at = |place: usize| base + place as u64;
        let (arrays, number) = (samples.arrays.at(base), bit as usize);
        let (jobs, params) = (samples.count as u32, extract.params());
        let stages = plan.stages();
        let [bootstrapping, _, switches] = self
            .bootstrapping
            .map(|part| self.keys.bootstrapping.address() + part as u64);
        let key_switching = self.keys.key_switching.address() + self.key_switching[0] as u64;

        let shift = ShiftArgs {
            samples: at(samples.rest),
            digits: arrays.digits,
            bodies: arrays.bodies,
            sums: arrays.sums,
            jobs,
            masks: params.extracted_dimension() as u32,
            levels: params.key_switch.levels as u32,
            log2: plan.shift(samples.bits, bit),
            steps: params.lwe_dimension as u32,
            reserved: 0,
            digit: Digit::of_key_switch(params),
        };
        // SAFETY: `place_samples` gave the arrays their room.
        unsafe {
            self.launch(
                lane,
                "shift_digits",
                &self.shape.samples(samples.count),
                &shift,
            )?
        };
        let to_exponents = (plan.quarter(), stages.log2_slots());
        self.make_exponents(lane, extract, &arrays, key_switching, to_exponents)?;
        let slots = at(samples.slots + number * extract.accumulator_bytes());
        let vectors = [slots, at(samples.vector), arrays.exponent];
        self.start(lane, extract, &arrays, vectors)?;
        self.rotating(extract, &arrays, arrays.exponents, bootstrapping)?
            .by_key(self.context, lane, self.cancel)?;

        let levels = stages.circuit.gadget.levels;
        let mut half_level = [0; MAX_LEVELS];
        for (level, half) in half_level.iter_mut().enumerate().take(levels) {
            *half = plan.half_level(level);
        }
        let twiddles = self
            .context
            .twiddles(switch.is_complex(), switch.points())?;
        let rows = CircuitArgs {
            accumulators: arrays.accumulators,
            key: switches,
            twiddles: twiddles.forward.address(),
            inverse: twiddles.inverse().address(),
            rows: at(samples.rows),
            jobs,
            levels: levels as u32,
            half_level,
            stage: switch.stage,
        };
        let polynomials =
            samples.count * circuit.params().ggsw_rows() * (circuit.params().glwe_dimension + 1);
        let bit_samples = number * samples.count * circuit.sample_bytes();
        let load = LoadArgs {
            source: at(samples.rows),
            key: at(samples.bits_samples + bit_samples),
            twiddles: twiddles.forward.address(),
            first: 0,
            count: polynomials as u32,
            reserved: 0,
            stage: circuit.stage,
        };
        // SAFETY: `place_samples` gave the arrays their room, and the key is of this set.
        unsafe {
            let launch = self.shape.circuits(samples.count);
            self.launch(lane, &switch.kernel_name("circuit"), &launch, &rows)?;
            let launch = circuit.load(polynomials);
            self.launch(lane, &circuit.kernel_name("load"), &launch, &load)?;
        }
        if bit + 1 == samples.bits {
            return Ok(());
        }
        // ±u stands for 0 or 1 times 2u.
        let gather = GatherArgs {
            accumulators: arrays.accumulators,
            first: at(samples.first),
            from: at(samples.rest),
            samples: at(samples.rest),
            bodies: at(samples.places + 8 * number * samples.count),
            count: jobs,
            index: levels as u32,
            stage: extract.stage,
        };
        let launch = self.shape.samples(samples.count);
        // SAFETY: as above.
        unsafe { self.launch(lane, &extract.kernel_name("gather"), &launch, &gather) }
    }

    fn place_functions(
        &self,
        plan: &Plan<Goldilocks>,
        bits: u32,
        functions: &[Function<'_, '_>],
    ) -> Functions {
        let refresh = &self.shape.refresh;
        let (found, number) = distinct(functions.iter().map(|function| function.test_vector));
        let digits: Vec<Digits<Goldilocks>> = found
            .iter()
            .map(|bytes| {
                let words: Vec<u64> = bytemuck::pod_collect_to_vec(bytes);
                plan.function(&words, bits)
            })
            .collect();
        // Tables and test vectors of all digits of a function follow one another.
        let vectors: Vec<Vec<u64>> = digits
            .iter()
            .flat_map(|function| (0..function.count()).map(|digit| function.test_vector(digit)))
            .collect();
        let (kept, vector_of) = distinct(vectors.iter().map(Vec::as_slice));
        let mut kept_at = vec![0; kept.len()];
        for (index, kept) in vector_of.iter().enumerate().rev() {
            kept_at[*kept as usize] = index;
        }
        let first_table: Vec<u32> = digits
            .iter()
            .scan(0, |end, function| {
                let first = *end;
                *end += function.count() as u32;
                Some(first)
            })
            .collect();
        let (mut table, mut sample, mut first) = (Vec::new(), Vec::new(), vec![0]);
        for (function, number) in functions.iter().zip(&number) {
            let digits = digits[*number as usize].count() as u32;
            for digit in 0..digits {
                table.push(first_table[*number as usize] + digit);
                sample.push(function.sample as u32);
            }
            first.push(table.len() as u32);
        }
        let vector = table.iter().map(|table| vector_of[*table as usize]);
        let vector: Vec<u32> = vector.collect();
        let constant = number
            .iter()
            .map(|number| digits[*number as usize].constant());
        let constant: Vec<u64> = constant.collect();
        let jobs = table.len();
        let turns: Vec<u32> = plan
            .turns(bits)
            .into_iter()
            .map(|turn| turn as u32)
            .collect();
        let depth = plan.depth(bits);

        let accumulator = refresh.accumulator_bytes();
        let mut layout = Layout::default();
        let tables_at = layout.place(vectors.len() * self.table_bytes(depth));
        let vectors_at = layout.place(kept_at.len() * accumulator);
        let [table_at, sample_at, vector_at, zeros_at] =
            std::array::from_fn(|_| layout.place(4 * jobs));
        let turns_at = layout.place(4 * jobs * turns.len());
        let first_at = layout.place(4 * first.len());
        let constant_at = layout.place(8 * constant.len());
        let sent = layout.end;
        // The last level of a tree makes accumulators.
        let trees = [1, 2].map(|level| {
            let nodes = if depth > level {
                1 << (depth - level)
            } else {
                0
            };
            layout.place(jobs * nodes * accumulator)
        });
        Functions {
            depth,
            turns: turns.repeat(jobs),
            digits,
            vectors,
            distinct: kept_at,
            table,
            sample,
            vector,
            first,
            constant,
            tables_at,
            vectors_at,
            table_at,
            sample_at,
            vector_at,
            zeros_at,
            turns_at,
            first_at,
            constant_at,
            sent,
            trees,
            arrays: Arrays::place(&mut layout, refresh.params(), jobs),
            results: layout.place(functions.len() * self.params.lwe_bytes()),
            memory: layout.end,
        }
    }

    /// Bytes of a table on the device: where bits select a polynomial, all its polynomials; else the only one behind masks of 0.
    fn table_bytes(&self, depth: u32) -> usize {
        if depth == 0 {
            self.shape.refresh.accumulator_bytes()
        } else {
            (8 << depth) * self.params.ring_degree
        }
    }

    /// Does functions of the samples whose bits have been taken off.
    fn apply(
        &self,
        lane: &Lane,
        plan: &Plan<Goldilocks>,
        samples: &Samples,
        functions: &mut [Function<'_, '_>],
    ) -> Result<(), GpuError> {
        let placed = self.place_functions(plan, samples.bits, functions);
        let bytes = functions.len() * self.params.lwe_bytes();
        let mut own = self.context.lane(placed.memory, placed.sent.max(bytes))?;
        self.write_functions(&placed, own.host.words_mut());
        let done = self.launch_functions(lane, &own, samples, &placed, functions.len());
        let done = done.and_then(|()| {
            let results = &mut own.host.words_mut()[..bytes];
            let at = own.memory.address() + placed.results as u64;
            // SAFETY: the lane is this pass's alone, and the words are looked at after the stream has been waited for.
            unsafe { lane.stream.download(results, at)? };
            lane.stream.synchronize()
        });
        if done.is_err() {
            let _ = lane.stream.synchronize();
        }
        done?;
        let results: &[u8] = own.host.words();
        for (function, result) in functions
            .iter_mut()
            .zip(results.chunks_exact(self.params.lwe_bytes()))
        {
            function.result.copy_from_slice(result);
        }
        self.context.leave_lane(own);
        Ok(())
    }

    fn write_functions(&self, placed: &Functions, host: &mut [u8]) {
        let mut write = |at: usize, bytes: &[u8]| host[at..at + bytes.len()].copy_from_slice(bytes);
        let mut at = placed.tables_at;
        for function in &placed.digits {
            for digit in 0..function.count() {
                let mut table = function.table(digit);
                if placed.depth == 0 {
                    table.resize(self.params.ring_degree, 0);
                    table.splice(0..0, vec![0; self.params.extracted_dimension()]);
                }
                write(at, bytes_of(&table));
                at += self.table_bytes(placed.depth);
            }
        }
        let accumulator = self.shape.refresh.accumulator_bytes();
        for (index, kept) in placed.distinct.iter().enumerate() {
            let vector = bytes_of(&placed.vectors[*kept]);
            write(placed.vectors_at + index * accumulator, vector);
        }
        for (at, words) in [
            (placed.table_at, &placed.table),
            (placed.sample_at, &placed.sample),
            (placed.vector_at, &placed.vector),
            (placed.zeros_at, &vec![0; placed.table.len()]),
            (placed.turns_at, &placed.turns),
            (placed.first_at, &placed.first),
        ] {
            write(at, bytes_of(words));
        }
        write(placed.constant_at, bytes_of(&placed.constant));
    }

    fn launch_functions(
        &self,
        lane: &Lane,
        own: &Lane,
        samples: &Samples,
        placed: &Functions,
        functions: usize,
    ) -> Result<(), GpuError> {
        let refresh = &self.shape.refresh;
        let base = own.memory.address();
        let at = |place: usize| base + place as u64;
        let arrays = placed.arrays.at(base);
        let params = refresh.params();
        self.check()?;
        // SAFETY: `place_functions` gave the arrays their room; the lane is this pass's alone, and its words stay as they are until the
        // stream has been waited for.
        unsafe { lane.stream.upload(base, &own.host.words()[..placed.sent])? };
        // Constants have no digits.
        if arrays.jobs > 0 {
            self.look_up(lane, base, samples, placed)?;
            let digits = DigitsArgs {
                accumulators: arrays.accumulators,
                digits: arrays.digits,
                bodies: arrays.bodies,
                sums: arrays.sums,
                jobs: arrays.jobs as u32,
                levels: params.key_switch.levels as u32,
                digit: Digit::of_key_switch(params),
                stage: refresh.stage,
            };
            let launch = refresh.accumulators(arrays.jobs);
            // SAFETY: as above.
            unsafe { self.launch(lane, &refresh.kernel_name("digits"), &launch, &digits)? };
            let key_switching = self.keys.key_switching.address() + self.key_switching[1] as u64;
            self.make_exponents(lane, refresh, &arrays, key_switching, (0, 0))?;
            let vectors = [at(placed.vectors_at), at(placed.vector_at), arrays.exponent];
            self.start(lane, refresh, &arrays, vectors)?;
            let key = self.keys.bootstrapping.address() + self.bootstrapping[1] as u64;
            self.rotating(refresh, &arrays, arrays.exponents, key)?
                .by_key(self.context, lane, self.cancel)?;
        }
        let gather = GatherArgs {
            accumulators: arrays.accumulators,
            first: at(placed.first_at),
            from: 0,
            samples: at(placed.results),
            bodies: at(placed.constant_at),
            count: functions as u32,
            index: 0,
            stage: refresh.stage,
        };
        let launch = self.shape.samples(functions);
        // SAFETY: as above.
        unsafe { self.launch(lane, &refresh.kernel_name("gather"), &launch, &gather) }
    }

    /// Vertical packing: the entries of the jobs' tables that their samples' bits point at become coefficient 0 of accumulators.
    fn look_up(
        &self,
        lane: &Lane,
        base: Address,
        samples: &Samples,
        placed: &Functions,
    ) -> Result<(), GpuError> {
        let circuit = &self.shape.circuit;
        let at = |place: usize| base + place as u64;
        let arrays = placed.arrays.at(base);
        let sample_bytes = samples.count * circuit.sample_bytes();
        let bit_samples = |bit: usize| {
            let place = samples.bits_samples + bit * sample_bytes;
            lane.memory.address() + place as u64
        };
        let twiddles = self
            .context
            .twiddles(circuit.is_complex(), circuit.points())?;
        let turns = placed.turns.len() / arrays.jobs;
        if placed.depth == 0 {
            let vectors = [
                at(placed.tables_at),
                at(placed.table_at),
                at(placed.zeros_at),
            ];
            self.start(lane, circuit, &arrays, vectors)?;
        }
        let mut from = 0;
        for level in 0..placed.depth as usize {
            let nodes = 1 << (placed.depth as usize - 1 - level);
            let to = if nodes == 1 {
                arrays.accumulators
            } else {
                at(placed.trees[level % 2])
            };
            let select = SelectArgs {
                tables: if level == 0 { at(placed.tables_at) } else { 0 },
                table: at(placed.table_at),
                from,
                to,
                key: bit_samples(turns + level),
                sample: at(placed.sample_at),
                twiddles: twiddles.forward.address(),
                inverse: twiddles.inverse().address(),
                jobs: arrays.jobs as u32,
                nodes: nodes as u32,
                stage: circuit.stage,
            };
            let launch = self.shape.selections(nodes, arrays.jobs);
            // SAFETY: `place_functions` gave the arrays their room, and samples and tables are there.
            unsafe { self.launch(lane, &circuit.kernel_name("select"), &launch, &select)? };
            from = to;
        }
        let bits = (turns, samples.count, at(placed.sample_at));
        self.rotating(circuit, &arrays, at(placed.turns_at), bit_samples(0))?
            .by_bits(self.context, lane, bits, self.cancel)
    }
}
