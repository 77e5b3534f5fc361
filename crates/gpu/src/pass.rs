//! A pass: bootstraps under one pair of keys, from samples to samples.

use std::sync::Arc;

use toroid_task::CancelToken;
use toroid_tfhe::bootstrap::modulus_switch;
use toroid_tfhe::modulus::Modulus;
use toroid_tfhe::params::StageParams;
use toroid_tfhe::with_modulus;

use crate::abi::{Digit, DigitsArgs, FinishArgs, StartArgs};
use crate::device::{Buffer, Context, Lane};
use crate::error::GpuError;
use crate::launch::{FLAG_BYTES, Layout, Rotating, distinct, switch_sums};
use crate::shape::{Grouping, Rotation, Shape};

/// One bootstrap.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) test_vector: &'a [u8],
    pub(crate) sample: &'a [u8],
}

/// The keys of a pass on its device.
pub(crate) struct Keys {
    pub(crate) bootstrapping: Arc<Buffer>,
    pub(crate) key_switching: Arc<Buffer>,
}

/// What the host sends: test vectors, each once, and exponents.
struct Input<'a> {
    vectors: Vec<&'a [u8]>,
    /// Of each job.
    vector: Vec<u32>,
    /// By which X turns it at the start.
    exponent: Vec<u32>,
    /// By which each step turns it.
    exponents: Vec<u32>,
}

fn exponents<M: Modulus>(params: &StageParams, jobs: &[Job<'_>]) -> (Vec<u32>, Vec<u32>) {
    let order = 2 * params.ring_degree;
    let mut all = Vec::with_capacity(jobs.len() * params.lwe_dimension);
    let start = jobs.iter().map(|job| {
        let sample: Vec<M::Word> = bytemuck::pod_collect_to_vec(job.sample);
        let (mask, body) = modulus_switch::<M>(params, &sample, 0);
        all.extend(mask.iter().map(|exponent| *exponent as u32));
        ((order - body) % order) as u32
    });
    let start = start.collect();
    (start, all)
}

/// Does the jobs; `results` receives a sample for each. `context` is open.
pub(crate) fn run(
    context: &Context,
    shape: &Shape,
    grouping: Grouping,
    keys: &Keys,
    jobs: &[Job<'_>],
    results: &mut [u8],
    cancel: &CancelToken,
) -> Result<(), GpuError> {
    if jobs.is_empty() {
        return Ok(());
    }
    let params = shape.params();
    let (vectors, vector) = distinct(jobs.iter().map(|job| job.test_vector));
    let (exponent, exponents) = with_modulus!(params.modulus, M => exponents::<M>(params, jobs));
    let input = Input {
        vectors,
        vector,
        exponent,
        exponents,
    };
    let pass = Pass::new(context, shape, grouping, input, jobs.len())?;
    let mut lane = context.lane(pass.memory, pass.host)?;
    let done = pass.run(&mut lane, keys, results, cancel);
    if done.is_ok() || matches!(done, Err(GpuError::Cancelled)) {
        context.leave_lane(lane);
    }
    done
}

/// Places in the memory of a pass.
struct Pass<'a> {
    context: &'a Context,
    shape: &'a Shape,
    rotation: Rotation,
    input: Input<'a>,
    jobs: usize,
    vectors: usize,
    vector: usize,
    exponent: usize,
    exponents: usize,
    /// All that the host sends is before.
    sent: usize,
    accumulators: usize,
    exchange: usize,
    flags: usize,
    digits: usize,
    bodies: usize,
    sums: usize,
    samples: usize,
    memory: usize,
    host: usize,
}

impl<'a> Pass<'a> {
    fn new(
        context: &'a Context,
        shape: &'a Shape,
        grouping: Grouping,
        input: Input<'a>,
        jobs: usize,
    ) -> Result<Pass<'a>, GpuError> {
        let params = shape.params();
        let rotation = shape.rotation(context, grouping, jobs)?;
        let groups = rotation.groups as usize;
        let word = params.modulus.word_bytes();
        let mut layout = Layout::default();
        let vectors = layout.place(input.vectors.len() * params.glwe_words() * word);
        let vector = layout.place(4 * jobs);
        let exponent = layout.place(4 * jobs);
        let exponents = layout.place(4 * jobs * params.lwe_dimension);
        let sent = layout.end;
        let exchanged = if rotation.group > 1 {
            shape.exchange_bytes() * groups
        } else {
            0
        };
        let accumulators = layout.place(jobs * params.glwe_words() * word);
        let exchange = layout.place(exchanged);
        let flags = layout.place(FLAG_BYTES * groups);
        let digits = layout.place(jobs * params.key_switching_samples());
        let bodies = layout.place(8 * jobs);
        let sums = layout.place(4 * jobs * params.lwe_words());
        let samples = layout.place(jobs * params.lwe_bytes());
        Ok(Pass {
            context,
            shape,
            rotation,
            input,
            jobs,
            vectors,
            vector,
            exponent,
            exponents,
            sent,
            accumulators,
            exchange,
            flags,
            digits,
            bodies,
            sums,
            samples,
            memory: layout.end,
            host: sent.max(jobs * params.lwe_bytes()),
        })
    }

    /// Writes what the host sends as it stands in the device's memory.
    fn write_input(&self, host: &mut [u8]) {
        let Input {
            vectors,
            vector,
            exponent,
            exponents,
        } = &self.input;
        let mut at = self.vectors;
        for bytes in vectors {
            host[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
        for (at, words) in [
            (self.vector, vector),
            (self.exponent, exponent),
            (self.exponents, exponents),
        ] {
            host[at..at + 4 * words.len()].copy_from_slice(bytemuck::cast_slice(words));
        }
    }

    fn run(
        &self,
        lane: &mut Lane,
        keys: &Keys,
        results: &mut [u8],
        cancel: &CancelToken,
    ) -> Result<(), GpuError> {
        self.write_input(lane.host.words_mut());
        let at = |place: usize| lane.memory.address() + place as u64;
        let (context, shape) = (self.context, self.shape);
        let (params, stage) = (shape.params(), shape.stage);
        let jobs = self.jobs as u32;
        let stream = &lane.stream;
        let start = StartArgs {
            vectors: at(self.vectors),
            vector: at(self.vector),
            exponent: at(self.exponent),
            accumulators: at(self.accumulators),
            jobs,
            reserved: 0,
            stage,
        };
        let kernel = context.kernel(&shape.kernel_name("start"))?;
        let launch = shape.accumulators(self.jobs);
        let bytes = &lane.host.words::<u8>()[..self.sent];
        // SAFETY: `Pass::new` gave every array its room, and the lane is this pass's alone until the stream has been waited for.
        unsafe {
            stream.upload(at(0), bytes)?;
            stream.launch(kernel, &launch, &start)?;
        }
        let rotating = Rotating {
            shape,
            rotation: self.rotation,
            jobs: self.jobs,
            accumulators: at(self.accumulators),
            exponents: at(self.exponents),
            key: keys.bootstrapping.address(),
            exchange: at(self.exchange),
            flags: at(self.flags),
        };
        let rotated = rotating.by_key(context, lane, cancel);
        if rotated.is_err() {
            // The lane goes to others, or its memory back. Where this fails, too, it is for the same reason.
            let _ = stream.synchronize();
        }
        rotated?;

        let digits = DigitsArgs {
            accumulators: at(self.accumulators),
            digits: at(self.digits),
            bodies: at(self.bodies),
            sums: at(self.sums),
            jobs,
            levels: params.key_switch.levels as u32,
            digit: Digit::of_key_switch(params),
            stage,
        };
        let finish = FinishArgs {
            sums: at(self.sums),
            bodies: at(self.bodies),
            samples: at(self.samples),
            jobs,
            words: params.lwe_words() as u32,
        };
        let kernel = context.kernel(&shape.kernel_name("digits"))?;
        // SAFETY: as above.
        unsafe { stream.launch(kernel, &launch, &digits)? };
        let switched = [at(self.digits), keys.key_switching.address(), at(self.sums)];
        switch_sums(context, lane, shape, self.jobs, switched)?;
        let kernel = context.kernel(&format!("finish_{}", 8 * params.modulus.word_bytes()))?;
        let making = shape.samples(self.jobs);
        let samples = &mut lane.host.words_mut()[..results.len()];
        // SAFETY: as above; the samples are looked at after the stream has been waited for.
        unsafe {
            stream.launch(kernel, &making, &finish)?;
            stream.download(samples, at(self.samples))?;
        }
        stream.synchronize()?;
        results.copy_from_slice(&lane.host.words()[..results.len()]);
        Ok(())
    }
}
