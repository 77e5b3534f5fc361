//! Times of the parts of a program.

use std::time::{Duration, Instant};

/// Notes what each part of a program took.
pub struct Clock {
    last: Instant,
    laps: Vec<(&'static str, Duration)>,
}

impl Clock {
    /// Starts.
    pub fn start() -> Clock {
        Clock {
            last: Instant::now(),
            laps: Vec::new(),
        }
    }

    /// Ends a part.
    pub fn lap(&mut self, part: &'static str) {
        let now = Instant::now();
        self.laps.push((part, now - self.last));
        self.last = now;
    }

    /// What a part took, in seconds.
    pub fn seconds(&self, part: &str) -> f64 {
        let laps = self.laps.iter().filter(|(name, _)| *name == part);
        laps.map(|(_, time)| time.as_secs_f64()).sum()
    }
}
