//! What passes of all kinds launch, and how their arrays lie in memory.

use std::collections::HashMap;
use std::hash::Hash;

use toroid_task::CancelToken;

use crate::abi::{RotateArgs, Stage, SwitchArgs};
use crate::device::{Context, EVENTS, Lane};
use crate::driver::{Address, Together};
use crate::error::GpuError;
use crate::shape::{ALIGNMENT, Rotation, Shape};

/// How long a launch of steps should take: the token is looked at after each, while the next runs.
pub(crate) const CHUNK_MS: f32 = 1.0;
/// Steps of the first launches, whose time says how many the others have.
pub(crate) const FIRST_STEPS: u32 = 8;
/// Bytes of a group's flags.
pub(crate) const FLAG_BYTES: usize = 128;

/// Arrays one after another in one memory.
#[derive(Default)]
pub(crate) struct Layout {
    pub(crate) end: usize,
}

impl Layout {
    /// Where an array of so many bytes begins.
    pub(crate) fn place(&mut self, bytes: usize) -> usize {
        let at = self.end;
        self.end += bytes.next_multiple_of(ALIGNMENT);
        at
    }
}

/// Arrays without those that are there already, and the number of each one's.
pub(crate) fn distinct<'a, T: Eq + Hash>(
    arrays: impl Iterator<Item = &'a [T]>,
) -> (Vec<&'a [T]>, Vec<u32>) {
    let mut found = Vec::new();
    // Those of one request are the same memory, so that most need no comparison of words.
    let mut by_place = HashMap::new();
    let mut by_words = HashMap::new();
    let numbers = arrays.map(|array| {
        *by_place.entry(array.as_ptr()).or_insert_with(|| {
            *by_words.entry(array).or_insert_with(|| {
                found.push(array);
                found.len() as u32 - 1
            })
        })
    });
    let numbers = numbers.collect();
    (found, numbers)
}

/// Blind rotations of all jobs of a pass.
pub(crate) struct Rotating<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) rotation: Rotation,
    pub(crate) jobs: usize,
    pub(crate) accumulators: Address,
    /// Of each job, one for each step.
    pub(crate) exponents: Address,
    pub(crate) key: Address,
    /// For groups.
    pub(crate) exchange: Address,
    pub(crate) flags: Address,
}

impl Rotating<'_> {
    /// Rotations by a bootstrapping key of the shape.
    pub(crate) fn by_key(
        &self,
        context: &Context,
        lane: &Lane,
        cancel: &CancelToken,
    ) -> Result<(), GpuError> {
        let arguments = self.arguments(context, self.shape.stage)?;
        self.run(lane, arguments, cancel)
    }

    /// Rotations by `steps` bits, of which there are `samples`, and `sample` says each job's. Blocks alone do them.
    pub(crate) fn by_bits(
        &self,
        context: &Context,
        lane: &Lane,
        (steps, samples, sample): (usize, usize, Address),
        cancel: &CancelToken,
    ) -> Result<(), GpuError> {
        let arguments = RotateArgs {
            alternating: 1,
            sample,
            samples: samples as u32,
            ..self.arguments(context, self.shape.stage.with_steps(steps))?
        };
        self.run(lane, arguments, cancel)
    }

    fn arguments(&self, context: &Context, stage: Stage) -> Result<RotateArgs, GpuError> {
        let twiddles = context.twiddles(self.shape.is_complex(), self.shape.points())?;
        Ok(RotateArgs {
            accumulators: self.accumulators,
            exponents: self.exponents,
            key: self.key,
            twiddles: twiddles.forward.address(),
            inverse: twiddles.inverse().address(),
            exchange: self.exchange,
            flags: self.flags,
            jobs: self.jobs as u32,
            group: self.rotation.group,
            from: 0,
            to: 0,
            at_once: self.rotation.at_once,
            alternating: 0,
            sample: 0,
            samples: 1,
            reserved: 0,
            stage,
        })
    }

    /// Does all steps, in launches of about [`CHUNK_MS`], of which two are on their way at most.
    fn run(
        &self,
        lane: &Lane,
        mut arguments: RotateArgs,
        cancel: &CancelToken,
    ) -> Result<(), GpuError> {
        let (stream, events) = (&lane.stream, &lane.events);
        let steps = arguments.stage.steps();
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
            self.launch_steps(lane, &arguments)?;
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

    fn launch_steps(&self, lane: &Lane, arguments: &RotateArgs) -> Result<(), GpuError> {
        let Rotation {
            kernel,
            launch,
            groups,
            ..
        } = &self.rotation;
        // SAFETY: the pass gave every array its room, and the key and the twiddles are of this set.
        unsafe {
            if launch.together == Together::All {
                lane.stream
                    .zero(arguments.flags, FLAG_BYTES * *groups as usize)?;
            }
            lane.stream.launch(*kernel, launch, arguments)
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

/// Adds the products of digits with the rows of the shape's key-switching key to sums.
pub(crate) fn switch_sums(
    context: &Context,
    lane: &Lane,
    shape: &Shape,
    jobs: usize,
    [digits, key, sums]: [Address; 3],
) -> Result<(), GpuError> {
    let params = shape.params();
    let arguments = SwitchArgs {
        digits,
        key,
        sums,
        jobs: jobs as u32,
        rows: params.key_switching_samples() as u32,
        words: params.lwe_words() as u32,
        reserved: 0,
    };
    let kernel = context.kernel("switch_sums")?;
    let launch = shape.switch(context.info().processors, jobs);
    // SAFETY: the pass gave every array its room, and the key is of this set.
    unsafe { lane.stream.launch(kernel, &launch, &arguments) }
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
    fn arrays_are_sent_once() {
        let arrays = [vec![1, 2], vec![3, 4], vec![1, 2]];
        let (found, numbers) = distinct([0, 1, 2, 1, 0].map(|at: usize| &*arrays[at]).into_iter());
        assert_eq!(found, [&[1, 2], &[3, 4]]);
        assert_eq!(numbers, [0, 1, 0, 1, 0]);
    }
}
