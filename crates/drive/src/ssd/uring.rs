//! Transfers by io_uring.
//!
//! One thread owns the ring: it alone submits and reaps, so that no transfer belongs to a thread that may end before it (the
//! kernel cancels those), and the ring needs no locks. Other threads hand it transfers through a queue, and wake it through
//! an eventfd if it waits.

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::file::Medium;
use super::transfer::{Kind, Transfer};

/// Transfers in the kernel at a time; others wait in the queue.
const DEPTH: usize = 256;
/// Entries of the submission queue: room for all of them and the wake-up.
const ENTRIES: u32 = 512;
/// The user data of the wake-up; no slot has this number.
const WAKE: u64 = u64::MAX;
/// Most bytes a single operation moves; the rest of a transfer follows.
const LONGEST: usize = 1 << 30;

pub(super) struct Uring {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<Submissions>,
    wake: OwnedFd,
}

#[derive(Default)]
struct Submissions {
    queue: VecDeque<Transfer>,
    /// The ring's thread waits, or is about to, and must be woken.
    waiting: bool,
    closing: bool,
    /// The ring's thread has ended.
    dead: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Submissions> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Submissions)) {
        let mut state = self.lock();
        change(&mut state);
        let wake = std::mem::take(&mut state.waiting);
        drop(state);
        if wake {
            // Fails only if 2^64 - 2 wake-ups are outstanding, and then it is awake.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }
}

impl Uring {
    /// # Errors
    /// Whatever the kernel says if it has no io_uring, lacks an operation, or does not permit it.
    pub(super) fn new(medium: &Arc<Medium>) -> io::Result<Uring> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let (ready, is_ready) = sync_channel(1);
        let (theirs, medium) = (Arc::clone(&shared), Arc::clone(medium));
        let thread = std::thread::Builder::new()
            .name("toroid-uring".into())
            // A ring of one issuer belongs to the thread that made it.
            .spawn(move || match make_ring() {
                Ok(ring) => {
                    let _ = ready.send(Ok(()));
                    let mut driver = Driver {
                        ring,
                        medium: &medium,
                        shared: &theirs,
                        slots: ManuallyDrop::new(Vec::new()),
                        free: Vec::new(),
                        again: Vec::new(),
                        armed: false,
                    };
                    if catch_unwind(AssertUnwindSafe(|| driver.run())).is_err() {
                        tracing::error!(
                            "io_uring's thread ended in a panic: nothing works any more"
                        );
                    }
                    driver.close();
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            })?;
        let uring = Uring {
            shared,
            thread: Some(thread),
        };
        is_ready
            .recv()
            .unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
        Ok(uring)
    }

    pub(super) fn start(&self, transfer: Transfer) {
        let mut transfer = Some(transfer);
        self.shared.change(|state| {
            if !state.dead {
                state.queue.extend(transfer.take());
            }
        });
        if let Some(transfer) = transfer {
            transfer.end(Err(io::ErrorKind::BrokenPipe.into()));
        }
    }
}

impl Drop for Uring {
    /// Waits for all transfers.
    fn drop(&mut self) {
        self.shared.change(|state| state.closing = true);
        if let Some(thread) = self.thread.take() {
            super::join(thread);
        }
    }
}

fn make_ring() -> io::Result<IoUring> {
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(ENTRIES)
        // Before Linux 6.1.
        .or_else(|_| IoUring::new(ENTRIES))?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::PollAdd::CODE,
    ];
    if ring.params().is_feature_nodrop() && needed.iter().all(|code| probe.is_supported(*code)) {
        Ok(ring)
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// What the ring's thread works with.
struct Driver<'a> {
    ring: IoUring,
    medium: &'a Medium,
    shared: &'a Shared,
    /// Transfers that the kernel works on, by user data. Never dropped with transfers in it, not even by a panic: the kernel
    /// writes to their buffers.
    slots: ManuallyDrop<Vec<Option<Transfer>>>,
    free: Vec<usize>,
    /// Slots whose operation must be submitted, or submitted again.
    again: Vec<usize>,
    /// The kernel watches the eventfd.
    armed: bool,
}

impl Driver<'_> {
    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn run(&mut self) {
        let mut completions = Vec::new();
        loop {
            let mut taken = Vec::new();
            {
                let mut state = self.shared.lock();
                let room = DEPTH - self.in_flight().min(DEPTH);
                let count = room.min(state.queue.len());
                taken.extend(state.queue.drain(..count));
                if state.closing && taken.is_empty() && self.in_flight() == 0 {
                    break;
                }
                state.waiting = true;
            }
            for transfer in taken {
                let slot = self.free.pop().unwrap_or_else(|| {
                    self.slots.push(None);
                    self.slots.len() - 1
                });
                self.slots[slot] = Some(transfer);
                self.again.push(slot);
            }
            for slot in std::mem::take(&mut self.again) {
                self.submit(slot);
            }
            if !self.armed {
                let events = rustix::event::PollFlags::IN.bits();
                let wake = types::Fd(self.shared.wake.as_raw_fd());
                let poll = opcode::PollAdd::new(wake, events.into()).build();
                self.armed = self.push(&poll.user_data(WAKE));
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // The kernel has no memory or its queue is full; what is not submitted stays in the ring.
                    tracing::warn!(%error, "io_uring is busy");
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            self.shared.lock().waiting = false;
            completions.extend(
                self.ring
                    .completion()
                    .map(|entry| (entry.user_data(), entry.result())),
            );
            for (user_data, result) in completions.drain(..) {
                if user_data == WAKE {
                    self.armed = false;
                    // Nothing to read is as good as something.
                    let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
                } else {
                    self.completed(user_data as usize, result);
                }
            }
        }
    }

    /// Fails what is left, which is nothing unless [`Driver::run`] has panicked, and what is still to come.
    fn close(mut self) {
        for transfer in self.slots.drain(..).flatten() {
            transfer.abandon(io::ErrorKind::BrokenPipe.into());
        }
        let mut state = self.shared.lock();
        state.dead = true;
        let queue = std::mem::take(&mut state.queue);
        drop(state);
        for transfer in queue {
            transfer.end(Err(io::ErrorKind::BrokenPipe.into()));
        }
    }

    /// Puts the rest of a slot's transfer into the ring.
    fn submit(&mut self, slot: usize) {
        let Some(transfer) = self.slots.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        let file = types::Fd(self.medium.file().as_raw_fd());
        let offset = transfer.offset + transfer.done as u64;
        let rest = &mut transfer.buffer.content_mut()[transfer.done..];
        let len = rest.len().min(LONGEST) as u32;
        let entry = match transfer.kind {
            Kind::Read => opcode::Read::new(file, rest.as_mut_ptr(), len)
                .offset(offset)
                .build(),
            Kind::Write => opcode::Write::new(file, rest.as_ptr(), len)
                .offset(offset)
                .build(),
        };
        if !self.push(&entry.user_data(slot as u64)) {
            self.end(slot, Err(io::ErrorKind::WouldBlock.into()));
        }
    }

    /// False if the ring is full, which its size rules out.
    fn push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: an entry points into the buffer of a transfer in `slots`, on the heap, which stays where it is and is
        // touched by nobody until the kernel has completed the entry (`completed`); or, for the wake-up, to nothing. The
        // file descriptors are those of `medium` and `shared`, which outlive the ring.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    /// The kernel has completed a slot's operation.
    fn completed(&mut self, slot: usize, result: i32) {
        let Some(transfer) = self.slots.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        let Ok(moved) = usize::try_from(result) else {
            let errno = Errno::from_raw_os_error(-result);
            if matches!(errno, Errno::INTR | Errno::AGAIN) {
                self.again.push(slot);
            } else {
                self.end(slot, Err(errno.into()));
            }
            return;
        };
        transfer.done += moved;
        let left = transfer.buffer.content().len() - transfer.done;
        match transfer.kind {
            _ if left == 0 => self.end(slot, Ok(())),
            Kind::Read if moved == 0 => self.end(slot, Err(io::ErrorKind::UnexpectedEof.into())),
            Kind::Write if moved == 0 => self.end(slot, Err(io::ErrorKind::WriteZero.into())),
            _ => self.again.push(slot),
        }
    }

    /// Takes a transfer that the kernel is done with from its slot, and ends it.
    fn end(&mut self, slot: usize, result: io::Result<()>) {
        if let Some(transfer) = self.slots.get_mut(slot).and_then(Option::take) {
            self.free.push(slot);
            transfer.end(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssd::transfer::Buffer;
    use std::sync::mpsc;

    #[test]
    fn a_panic_of_the_thread_fails_what_it_leaves_behind() {
        let Ok(uring) = Uring::new(&Arc::new(Medium::for_test(4096))) else {
            // The kernel has none, or does not permit it.
            return;
        };
        let (tell, told) = mpsc::channel();
        for done in [0, 1, 0] {
            let tell = tell.clone();
            uring.start(Transfer {
                kind: Kind::Read,
                buffer: Buffer::new(Vec::new(), false),
                offset: 0,
                // More than there is to do: the thread panics.
                done,
                finish: Box::new(move |result, _| tell.send(result.is_err()).unwrap()),
            });
        }
        let mut failed: Vec<bool> = (0..3).map(|_| told.recv().unwrap()).collect();
        failed.sort_unstable();
        assert_eq!(failed[1..], [true, true]);
        while !uring.shared.lock().dead {
            std::thread::yield_now();
        }
        uring.start(Transfer {
            kind: Kind::Read,
            buffer: Buffer::new(vec![0; 512], false),
            offset: 0,
            done: 0,
            finish: Box::new(move |result, _| tell.send(result.is_err()).unwrap()),
        });
        assert!(told.recv().unwrap());
    }
}
