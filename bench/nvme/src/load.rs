//! Commands as fast as a drive takes them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use toroid_bench_common::Error;
use toroid_nvme::fabrics::RemoteController;
use toroid_nvme::{Controller, Request, Sqe};

use crate::row::Unit;

/// Bytes that random places are chosen from.
pub const SPAN: u64 = 256 << 20;
/// Bytes of a logical block.
pub const BLOCK: u64 = 4096;

/// One kind of load.
pub struct Load<'a> {
    /// Its row.
    pub name: &'static str,
    /// Commands on their way at a time.
    pub depth: usize,
    /// Bytes of a command.
    pub bytes: u64,
    /// Whether it writes; else it reads.
    pub write: bool,
    /// What is counted.
    pub unit: Unit,
    /// The rate to reach.
    pub bar: Option<f64>,
    /// The connection.
    pub host: &'a RemoteController,
}

impl Load<'_> {
    /// Commands or bytes per second.
    ///
    /// # Errors
    /// A command that fails.
    pub async fn rate(&self, time: Duration) -> Result<f64, Error> {
        let blocks = self.bytes / BLOCK;
        let done = AtomicU64::new(0);
        let start = Instant::now();
        let end = start + time;
        let lanes = (0..self.depth as u64).map(|lane| {
            let done = &done;
            async move {
                let mut random = Random(lane + 1);
                let data = vec![lane as u8; if self.write { self.bytes as usize } else { 0 }];
                while Instant::now() < end {
                    let slba = random.next() % (SPAN / self.bytes) * blocks;
                    let nlb = (blocks - 1) as u16;
                    let sqe = if self.write {
                        Sqe::write(0, 1, slba, nlb)
                    } else {
                        Sqe::read(0, 1, slba, nlb)
                    };
                    let data = data.clone();
                    let metadata = Vec::new();
                    let response = self
                        .host
                        .submit(Request {
                            sqe,
                            data,
                            metadata,
                        })
                        .await;
                    let status = response.cqe.status();
                    let expected = if self.write { 0 } else { self.bytes as usize };
                    if !status.is_success() || response.data.len() != expected {
                        return Err(Error::from(format!("{sqe}: {status}")));
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            }
        });
        futures::future::try_join_all(lanes).await?;
        let rate = done.into_inner() as f64 / start.elapsed().as_secs_f64();
        Ok(match self.unit {
            Unit::Bytes => rate * self.bytes as f64,
            _ => rate,
        })
    }
}

/// A sequence that spreads reads, quick to compute (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
