//! A pass: bootstraps under one pair of keys, from samples to samples.

use std::collections::HashMap;
use std::sync::Arc;

use toroid_task::CancelToken;
use toroid_tfhe::bootstrap::modulus_switch;
use toroid_tfhe::modulus::Modulus;
use toroid_tfhe::params::StageParams;
use toroid_tfhe::with_modulus;

use crate::abi::{Digit, DigitsArgs, FinishArgs, MAX_ROWS, RotateArgs, StartArgs, SwitchArgs};
use crate::device::{Buffer, Context, EVENTS, Lane};
use crate::driver::{Address, LaunchShape, Together};
use crate::error::GpuError;
use crate::shape::{Grouping, Rotation, Shape};

/// How long a launch of steps should take: the token is looked at after each, while the next runs.
pub(crate) const CHUNK_MS: f32 = 1.0;
/// Steps of the first launches, whose time says how many the others have.
pub(crate) const FIRST_STEPS: u32 = 8;
/// Bytes that the memory of each array is a multiple of.
const ALIGNMENT: usize = 256;

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

/// Arrays one after another in one memory.
#[derive(Default)]
struct Layout {
    end: usize,
}

impl Layout {
    /// Where an array of so many bytes begins.
    fn place(&mut self, bytes: usize) -> usize {
        let at = self.end;
        self.end += bytes.next_multiple_of(ALIGNMENT);
        at
    }
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

/// Test vectors without those that are there already, and the number of that of each job.
fn distinct<'a>(jobs: &[Job<'a>]) -> (Vec<&'a [u8]>, Vec<u32>) {
    let mut vectors = Vec::new();
    // Those of one request are the same memory, so that most need no comparison of words.
    let mut by_place = HashMap::new();
    let mut by_words = HashMap::new();
    let numbers = jobs.iter().map(|job| {
        *by_place.entry(job.test_vector.as_ptr()).or_insert_with(|| {
            *by_words.entry(job.test_vector).or_insert_with(|| {
                vectors.push(job.test_vector);
                vectors.len() as u32 - 1
            })
        })
    });
    let numbers = numbers.collect();
    (vectors, numbers)
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
    let (vectors, vector) = distinct(jobs);
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

/// Bytes of a group's flags.
const FLAG_BYTES: usize = 128;

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
        let rotated = self.rotate(lane, keys, cancel);
        if rotated.is_err() {
            // The lane goes to others, or its memory back. Where this fails, too, it is for the same reason.
            let _ = stream.synchronize();
        }
        rotated?;

        let key_switch = params.key_switch;
        let mut digit = [Digit::default(); MAX_ROWS];
        for (level, digit) in digit.iter_mut().enumerate().take(key_switch.levels) {
            *digit = Digit::new(params.modulus, key_switch, level);
        }
        let digits = DigitsArgs {
            accumulators: at(self.accumulators),
            digits: at(self.digits),
            bodies: at(self.bodies),
            sums: at(self.sums),
            jobs,
            levels: key_switch.levels as u32,
            digit,
            stage,
        };
        let switch = SwitchArgs {
            digits: at(self.digits),
            key: keys.key_switching.address(),
            sums: at(self.sums),
            jobs,
            rows: params.key_switching_samples() as u32,
            words: params.lwe_words() as u32,
            reserved: 0,
        };
        let finish = FinishArgs {
            sums: at(self.sums),
            bodies: at(self.bodies),
            samples: at(self.samples),
            jobs,
            words: params.lwe_words() as u32,
        };
        let kernels = [
            context.kernel(&shape.kernel_name("digits"))?,
            context.kernel("switch_sums")?,
            context.kernel(&format!("finish_{}", 8 * params.modulus.word_bytes()))?,
        ];
        let summing = shape.switch(context.info().processors, self.jobs);
        let making = shape.samples(self.jobs);
        let samples = &mut lane.host.words_mut()[..results.len()];
        // SAFETY: as above; the key is of this set, and the samples are looked at after the stream has been waited for.
        unsafe {
            stream.launch(kernels[0], &launch, &digits)?;
            stream.launch(kernels[1], &summing, &switch)?;
            stream.launch(kernels[2], &making, &finish)?;
            stream.download(samples, at(self.samples))?;
        }
        stream.synchronize()?;
        results.copy_from_slice(&lane.host.words()[..results.len()]);
        Ok(())
    }

    /// Does all steps, in launches of about [`CHUNK_MS`], of which two are on their way at most.
    fn rotate(&self, lane: &Lane, keys: &Keys, cancel: &CancelToken) -> Result<(), GpuError> {
        let shape = self.shape;
        let Rotation {
            kernel,
            launch,
            group,
            groups,
            at_once,
        } = self.rotation;
        let at = |place: usize| -> Address { lane.memory.address() + place as u64 };
        let twiddles = self.context.twiddles(shape.is_complex(), shape.points())?;
        let inverse = twiddles.inverse.as_ref().unwrap_or(&twiddles.forward);
        let steps = shape.params().lwe_dimension as u32;
        let mut arguments = RotateArgs {
            accumulators: at(self.accumulators),
            exponents: at(self.exponents),
            key: keys.bootstrapping.address(),
            twiddles: twiddles.forward.address(),
            inverse: inverse.address(),
            exchange: at(self.exchange),
            flags: at(self.flags),
            jobs: self.jobs as u32,
            group,
            from: 0,
            to: 0,
            at_once,
            reserved: 0,
            stage: shape.stage,
        };
        let (stream, events) = (&lane.stream, &lane.events);
        let mut chunk = FIRST_STEPS;
        // Steps of the launch that is on its way and not waited for.
        let mut before = None;
        stream.record(&events[0])?;
        let mut number = 0;
        while arguments.to < steps {
            if cancel.is_cancelled() {
                return Err(GpuError::Cancelled);
            }
            arguments.from = arguments.to;
            arguments.to = (arguments.from + chunk).min(steps);
            self.launch_steps(lane, &launch, kernel, &arguments, groups)?;
            number += 1;
            stream.record(&events[number % EVENTS])?;
            if let Some(steps) = before.replace(arguments.to - arguments.from) {
                let ended = &events[(number - 1) % EVENTS];
                ended.synchronize()?;
                let took = ended.since(&events[(number + EVENTS - 2) % EVENTS])?;
                chunk = steps_for(steps, took);
            }
        }
        Ok(())
    }

    fn launch_steps(
        &self,
        lane: &Lane,
        launch: &LaunchShape,
        kernel: crate::device::Kernel,
        arguments: &RotateArgs,
        groups: u32,
    ) -> Result<(), GpuError> {
        // SAFETY: `Pass::new` gave every array its room, and the key and the twiddles are of this set.
        unsafe {
            if launch.together == Together::All {
                lane.stream
                    .zero(arguments.flags, FLAG_BYTES * groups as usize)?;
            }
            lane.stream.launch(kernel, launch, arguments)
        }
    }
}

/// How many steps take [`CHUNK_MS`], where `steps` took so long. Some times more than before at most: a short time may be a chance.
fn steps_for(steps: u32, took_ms: f32) -> u32 {
    const FASTER: f32 = 4.0;
    let factor = if took_ms > 0.0 {
        (CHUNK_MS / took_ms).min(FASTER)
    } else {
        FASTER
    };
    ((steps as f32 * factor) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_come_to_the_time_that_they_should_take() {
        assert_eq!(steps_for(8, 1.0), 8);
        assert_eq!(steps_for(8, 0.5), 16);
        assert_eq!(steps_for(8, 0.0), 32);
        assert_eq!(steps_for(8, 1e-3), 32);
        assert_eq!(steps_for(8, 1e3), 1);
    }

    #[test]
    fn test_vectors_are_sent_once() {
        let vectors = [vec![1, 2], vec![3, 4], vec![1, 2]];
        let jobs = [0, 1, 2, 1, 0].map(|at: usize| Job {
            test_vector: &vectors[at],
            sample: &[],
        });
        let (found, numbers) = distinct(&jobs);
        assert_eq!(found, [&[1, 2], &[3, 4]]);
        assert_eq!(numbers, [0, 1, 0, 1, 0]);
    }
}
