//! Busy-polling: a peer that answers at once is faster to poll for than to be woken by.

use std::io;
use std::time::{Duration, Instant};

/// Failed polls in a row after which a connection is no longer polled.
const MISSES: u32 = 4;
/// Wake-ups after which such a connection is polled once more.
const RETRY: u32 = 64;
/// How long a thread polls before other tasks get a turn. Where the runtime has several threads, each turn wakes one that looks for tasks and
/// finds none.
const STRETCH: Duration = Duration::from_micros(10);

/// Decides when to poll for input before sleeping.
#[derive(Debug)]
pub(crate) struct Polling {
    time: Duration,
    misses: u32,
}

impl Polling {
    /// Polls for up to `time`; never if that is zero.
    pub(crate) fn new(time: Duration) -> Polling {
        Polling { time, misses: 0 }
    }

    /// Polls for input, and lets other tasks run now and then; after each try, if input is only found `by_turns`, while other tasks run. `read`
    /// tries once; [`io::ErrorKind::WouldBlock`] stands for no input. Returns whether input arrived.
    pub(crate) async fn look(
        &mut self,
        by_turns: bool,
        mut read: impl FnMut() -> io::Result<()>,
    ) -> io::Result<bool> {
        if self.time.is_zero() {
            return Ok(false);
        }
        if self.misses >= MISSES {
            self.misses += 1;
            if self.misses < MISSES + RETRY {
                return Ok(false);
            }
            // One more miss stops the polling again.
            self.misses = MISSES - 1;
        }
        let stretch = if by_turns { Duration::ZERO } else { STRETCH };
        let start = Instant::now();
        let mut now = start;
        while now - start < self.time {
            tokio::task::yield_now().await;
            let begin = Instant::now();
            now = begin;
            loop {
                match read() {
                    Ok(()) => {
                        self.misses = 0;
                        return Ok(true);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
                if now - begin >= stretch {
                    break;
                }
                std::hint::spin_loop();
                now = Instant::now();
            }
        }
        self.misses += 1;
        Ok(false)
    }
}
