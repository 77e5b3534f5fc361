//! Timing: two sides in turn.

use std::time::{Duration, Instant};

use crate::Error;

/// What one row measured.
pub struct Measurement {
    /// Seconds of every run of ours.
    pub ours: Vec<f64>,
    /// Seconds of every run of the peer.
    pub peer: Vec<f64>,
    /// Share of the time in which this thread was ready to run and had no processor: how busy the machine was.
    pub waited: f64,
    /// Peak resident bytes of making our key and one run, where the row looks.
    pub our_peak: Option<u64>,
    /// What a reader must know about the figures.
    pub note: String,
}

/// Runs both sides in turn, `runs` times each. A side returns the time of one operation.
pub fn interleave(
    runs: usize,
    mut ours: impl FnMut() -> Result<Duration, Error>,
    mut peer: impl FnMut() -> Result<Duration, Error>,
) -> Result<Measurement, Error> {
    let mut measurement = Measurement {
        ours: Vec::with_capacity(runs),
        peer: Vec::with_capacity(runs),
        waited: 0.0,
        our_peak: None,
        note: String::new(),
    };
    let (started, waiting) = (Instant::now(), waiting_nanoseconds());
    for _ in 0..runs {
        measurement.ours.push(ours()?.as_secs_f64());
        measurement.peer.push(peer()?.as_secs_f64());
    }
    let waited = waiting_nanoseconds().saturating_sub(waiting) as f64;
    measurement.waited = waited / started.elapsed().as_nanos() as f64;
    Ok(measurement)
}

/// Time of one call.
pub fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let started = Instant::now();
    let value = work();
    (started.elapsed(), value)
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

/// Nanoseconds that this thread has waited on a run queue; 0 where the kernel does not say.
fn waiting_nanoseconds() -> u64 {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
}

/// Lowers the kernel's record of peak memory to what the process holds now.
pub fn reset_peak_memory() {
    // Without the permission the peak is that of the whole run: an upper bound.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Peak resident memory in bytes (VmHWM).
pub fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
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
