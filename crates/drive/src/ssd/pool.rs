//! Transfers on threads that wait for them: for buffered writes, and for kernels that have no io_uring or do not permit it.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::file::Medium;
use super::transfer::Transfer;

/// Threads, and so transfers at a time: enough to keep an SSD busy.
const THREADS: usize = 16;

pub(super) struct Pool {
    /// `None` once the pool is closing.
    queue: Option<Sender<Transfer>>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    pub(super) fn new(medium: &Arc<Medium>) -> io::Result<Pool> {
        let (queue, transfers) = channel();
        let transfers = Arc::new(Mutex::new(transfers));
        let mut pool = Pool {
            queue: Some(queue),
            threads: Vec::new(),
        };
        for _ in 0..THREADS {
            let (medium, transfers) = (Arc::clone(medium), Arc::clone(&transfers));
            let thread = std::thread::Builder::new()
                .name("toroid-ssd".into())
                .spawn(move || run(&medium, &transfers))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    pub(super) fn start(&self, transfer: Transfer) {
        let refused = match &self.queue {
            Some(queue) => queue.send(transfer).err().map(|refused| refused.0),
            None => Some(transfer),
        };
        if let Some(transfer) = refused {
            transfer.end(Err(io::ErrorKind::BrokenPipe.into()));
        }
    }
}

fn run(medium: &Medium, transfers: &Mutex<Receiver<Transfer>>) {
    loop {
        let next = transfers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok(mut transfer) = next else { return };
        let result = medium.execute(&mut transfer);
        transfer.end(result);
    }
}

impl Drop for Pool {
    /// Waits for all transfers.
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            super::join(thread);
        }
    }
}
