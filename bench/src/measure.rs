//! Timing: two sides in turn.
//!
//! Times of one thread are those that it spent on a processor (its CPU clock). It never sleeps, so on a quiet machine that
//! is the time on the wall; on a busy one it leaves out the waiting for a processor, which would otherwise enter every run
//! longer than a time slice. Rows of several threads take the time on the wall.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use toroid_bench_common::Error;

/// What one row measured.
#[derive(Default, Serialize, Deserialize)]
pub struct Measurement {
    /// Seconds of every run of ours.
    pub ours: Vec<f64>,
    /// Seconds of every run of the peer; empty where there is none.
    pub peer: Vec<f64>,
    /// Seconds on the wall for all runs.
    pub wall: f64,
    /// Seconds of them on a processor; none for rows of several threads.
    pub processor: Option<f64>,
    /// Peak resident bytes of the process when our side had run, before the peer's was there.
    pub our_peak: Option<u64>,
    /// Bytes of memory that our loaded bootstrapping key takes.
    pub key_bytes: u64,
    /// What a reader must know about the figures.
    pub note: String,
}

impl Measurement {
    /// Adds the runs of another launch.
    pub fn extend(&mut self, other: Measurement) {
        self.ours.extend(other.ours);
        self.peer.extend(other.peer);
        self.wall += other.wall;
        self.processor = match (self.processor, other.processor) {
            (Some(sum), Some(more)) => Some(sum + more),
            (sum, more) => sum.or(more),
        };
        self.our_peak = self.our_peak.max(other.our_peak);
        self.key_bytes = self.key_bytes.max(other.key_bytes);
        self.note = other.note;
    }

    /// Share of the time in which the thread had no processor: how busy the machine was.
    pub fn waited(&self) -> Option<f64> {
        Some(1.0 - self.processor? / self.wall)
    }
}

/// Runs both sides in turn, `runs` times each. A side returns the time of one operation.
pub fn interleave(
    runs: usize,
    mut ours: impl FnMut() -> Result<Duration, Error>,
    mut peer: impl FnMut() -> Result<Duration, Error>,
) -> Result<Measurement, Error> {
    let mut measurement = Measurement::default();
    let (wall, processor) = (Instant::now(), processor_time());
    for _ in 0..runs {
        measurement.ours.push(ours()?.as_secs_f64());
        measurement.peer.push(peer()?.as_secs_f64());
    }
    measurement.wall = wall.elapsed().as_secs_f64();
    measurement.processor = Some(processor_time().saturating_sub(processor).as_secs_f64());
    Ok(measurement)
}

/// Runs a side that has no peer.
pub fn alone(
    runs: usize,
    ours: impl FnMut() -> Result<Duration, Error>,
) -> Result<Measurement, Error> {
    let mut measurement = interleave(runs, ours, || Ok(Duration::ZERO))?;
    measurement.peer.clear();
    Ok(measurement)
}

/// Which time counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// That of this thread on a processor.
    Thread,
    /// That on the wall.
    Wall,
}

impl Clock {
    /// The clock of work on so many threads: several have no common time on a processor.
    pub fn of(threads: usize) -> Clock {
        match threads {
            1 => Clock::Thread,
            _ => Clock::Wall,
        }
    }

    /// Time of one call.
    pub fn timed<T>(self, work: impl FnOnce() -> T) -> (Duration, T) {
        if self == Clock::Thread {
            return timed(work);
        }
        let started = Instant::now();
        let value = work();
        (started.elapsed(), value)
    }
}

/// Time of one call on the processor.
pub fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let started = processor_time();
    let value = work();
    (processor_time().saturating_sub(started), value)
}

/// Time that this thread has spent on a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// The smallest value.
pub fn best(seconds: &[f64]) -> f64 {
    seconds.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The median: of an even number of values, the mean of the middle two.
pub fn median(seconds: &[f64]) -> f64 {
    let mut sorted = seconds.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_and_median_of_odd_and_even_counts() {
        assert_eq!(best(&[3.0, 1.0, 2.0]), 1.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn sides_take_turns() -> Result<(), Error> {
        let turns = std::cell::RefCell::new(String::new());
        let side = |name: char| {
            turns.borrow_mut().push(name);
            Ok(Duration::from_secs(1))
        };
        let measurement = interleave(2, || side('o'), || side('p'))?;
        assert_eq!(*turns.borrow(), "opop");
        assert_eq!(
            (measurement.ours, measurement.peer),
            (vec![1.0; 2], vec![1.0; 2])
        );
        Ok(())
    }
}
