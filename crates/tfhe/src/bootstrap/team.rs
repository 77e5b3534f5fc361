//! One blind rotation on several threads: the rows of every external product side by side.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use crate::TfheError;
use crate::arithmetic::{Arithmetic, WordOf};
use crate::ggsw::{GgswList, Workspace};
use crate::glwe;
use crate::modulus::Modulus;

use super::Run;
use super::blind_rotation::BlindRotation;

/// Does a rotation on `members` threads, which divide the rows of each external product among them; then each of the first
/// k+1 sums up a column and transforms it back. They meet at a barrier twice a step; locks are free whenever they are taken.
///
/// On crowded cores the threads stall at the barrier for whole time slices. As soon as a thread came `late` or later, the rotation is
/// left to finish on one thread. Returns the step from which on that is: n where nothing is left.
pub(super) fn rotate<M: Modulus, A: Arithmetic<M>>(
    samples: &GgswList<M, A>,
    rotation: &mut BlindRotation<'_, M, A>,
    members: usize,
    late: Duration,
    run: Run<'_>,
) -> Result<usize, TfheError> {
    let params = samples.params();
    let n = params.ring_degree;
    let columns = params.glwe_dimension + 1;
    let sum_length = A::sums_per_column(params) * n;
    let rows = params.ggsw_rows();
    let exponents = &rotation.exponents;
    let components: Vec<_> = rotation.acc.chunks_exact_mut(n).map(RwLock::new).collect();
    let mut memories = Vec::new();
    for _ in 0..members {
        memories.push(Workspace::<M, A>::memory(params)?);
    }
    let mut workers = Vec::new();
    let mut sums = Vec::new();
    for memory in &mut memories {
        let work = Workspace::<M, A>::new(params, memory);
        workers.push((work.difference, work.scratch));
        sums.push(RwLock::new(work.sums));
    }
    let barrier = SpinBarrier::new(members, late);
    let stop = AtomicBool::new(false);
    let came_late = AtomicBool::new(false);
    let left_from = AtomicUsize::new(samples.count());
    let work = |member: usize, difference: &mut [WordOf<M, A>], scratch: &mut [A::Scalar]| {
        let _guard = PoisonOnPanic(&barrier);
        for (step, exponent) in exponents.iter().enumerate().filter(|(_, e)| **e != 0) {
            {
                let mut own = write(&sums[member]);
                let mut work = Workspace::<M, A> {
                    difference: &mut *difference,
                    scratch: &mut *scratch,
                    sums: &mut own,
                };
                let share = member * rows / members..(member + 1) * rows / members;
                let rotate_sub = |index: usize, out: &mut [WordOf<M, A>]| {
                    glwe::rotate_sub::<A::Words>(
                        samples.simd(),
                        out,
                        &read(&components[index]),
                        *exponent,
                    );
                };
                samples.products(step, share, rotate_sub, &mut work);
            }
            if member == 0 && run.cancel.is_cancelled() {
                stop.store(true, Ordering::Relaxed);
            }
            if barrier.wait() {
                came_late.store(true, Ordering::Relaxed);
            }
            if stop.load(Ordering::Relaxed) {
                return;
            }
            // The barrier below orders this before what the others read.
            if member == 0 && came_late.load(Ordering::Relaxed) {
                left_from.store(step + 1, Ordering::Relaxed);
            }
            for column in (member..columns).step_by(members) {
                let range = column * sum_length..(column + 1) * sum_length;
                scratch.copy_from_slice(&read(&sums[0])[range.clone()]);
                let arithmetic = samples.arithmetic();
                for other in &sums[1..] {
                    arithmetic.add(scratch, &read(other)[range.clone()]);
                }
                arithmetic.inverse_add(scratch, &mut write(&components[column]));
            }
            if barrier.wait() {
                came_late.store(true, Ordering::Relaxed);
            }
            if left_from.load(Ordering::Relaxed) == step + 1 {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        // Where a thread cannot be started, those that were must not wait for it.
        let _guard = PoisonOnPanic(&barrier);
        let mut workers = workers.into_iter().enumerate();
        let first = workers.next();
        for (member, (difference, scratch)) in workers {
            scope.spawn(move || work(member, difference, scratch));
        }
        if let Some((member, (difference, scratch))) = first {
            work(member, difference, scratch);
        }
    });
    if stop.into_inner() {
        return Err(TfheError::Cancelled);
    }
    Ok(left_from.into_inner())
}

/// A barrier for waits no longer than a row of an external product takes, if each thread has a core of its own: threads spin,
/// and yield only when it takes long.
struct SpinBarrier {
    members: usize,
    late: Duration,
    arrived: AtomicUsize,
    round: AtomicUsize,
    poisoned: AtomicBool,
}

/// Poisons a barrier when its thread panics: the others would wait forever.
struct PoisonOnPanic<'a>(&'a SpinBarrier);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poisoned.store(true, Ordering::Relaxed);
        }
    }
}

impl SpinBarrier {
    /// Rounds of spinning before the thread yields.
    const SPINS: u32 = 1 << 12;

    fn new(members: usize, late: Duration) -> SpinBarrier {
        SpinBarrier {
            members,
            late,
            arrived: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            poisoned: AtomicBool::new(false),
        }
    }

    /// Returns once all members have called it as often as this one; true where another came late.
    fn wait(&self) -> bool {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.members {
            self.arrived.store(0, Ordering::Relaxed);
            self.round.fetch_add(1, Ordering::Release);
            return false;
        }
        let mut spins = 0;
        let mut yielding_since: Option<Instant> = None;
        while self.round.load(Ordering::Acquire) == round {
            assert!(
                !self.poisoned.load(Ordering::Relaxed),
                "another thread of the team panicked"
            );
            if spins < Self::SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                yielding_since.get_or_insert_with(Instant::now);
                std::thread::yield_now();
            }
        }
        yielding_since.map_or(Duration::ZERO, |since| since.elapsed()) >= self.late
    }
}

/// A poisoned lock means that a thread panicked, which ends the team anyway.
fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
