//! Waiting for a peer that answers at once: to look a few times costs less than to sleep and be woken.

use std::io;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

/// After so many tries in a row that brought nothing, a connection is one that does not answer at once.
const MISSES: u32 = 4;
/// Such a connection is tried again each time that it has been woken so often.
const RETRY: u32 = 64;

/// Decides when to look for input before sleeping.
#[derive(Debug)]
pub(super) struct Polling {
    time: Duration,
    misses: u32,
}

impl Polling {
    /// Looks for up to `time`; not at all if that is zero.
    pub(super) fn new(time: Duration) -> Polling {
        Polling { time, misses: 0 }
    }

    /// Looks for input, letting other tasks run in between. `read` tries once, and says whether something came; [`io::ErrorKind::WouldBlock`]
    /// stands for nothing. Says whether something came.
    pub(super) async fn look(
        &mut self,
        stream: &TcpStream,
        mut read: impl FnMut(&TcpStream) -> io::Result<()>,
    ) -> io::Result<bool> {
        if self.time.is_zero() {
            return Ok(false);
        }
        if self.misses >= MISSES {
            self.misses += 1;
            if self.misses < MISSES + RETRY {
                return Ok(false);
            }
            // One try; another miss, and it is not looked at for as long again.
            self.misses = MISSES - 1;
        }
        let start = Instant::now();
        loop {
            tokio::task::yield_now().await;
            match read(stream) {
                Ok(()) => {
                    self.misses = 0;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if start.elapsed() >= self.time {
                self.misses += 1;
                return Ok(false);
            }
        }
    }
}
