//! A batch of tasks, cut into slices that threads do side by side.
//!
//! Each slice is a call of its own, so that other tenants have their turns between the slices. Rows are what runs side by side:
//! a slice gets more than one slot only where there are fewer slices than slots.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use toroid_task::CancelToken;

use super::super::{BackendError, BootstrapTask};
use super::{Call, Pass, Scheduler, bootstraps};
use crate::requester::Requester;

/// How a back end does tasks under one pair of keys.
pub trait Work: Sync {
    /// Addresses of the loaded keys.
    fn keys(&self) -> [usize; 2];

    /// The most bootstraps of a pass, but for a single task that has more: 1 where tasks done together cost no less than one
    /// by one.
    fn most(&self) -> usize;

    /// The work of a task, in any unit that all calls of the back end share.
    fn cost(&self, task: &BootstrapTask<'_>) -> u64;

    /// The most slots that speed up this many bootstraps done together.
    fn slots(&self, bootstraps: usize) -> usize;

    /// Does tasks that go together: gives their results, task after task and function after function.
    ///
    /// # Errors
    /// Cancellation, or a failure.
    fn pass(&self, pass: &Pass<'_>, results: &mut [u8]) -> Result<(), BackendError>;
}

/// Some tasks, and the memory for their results.
type Slice<'t, 'r> = (&'t [BootstrapTask<'t>], &'r mut [u8]);

/// Cancels the token when its thread panics: what the others do is in vain.
struct CancelOnPanic<'a>(&'a CancelToken);

impl Drop for CancelOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.cancel();
        }
    }
}

impl Scheduler {
    /// Does the tasks, whose results have `sample_bytes` each. The first slice that fails or panics ends the batch with its
    /// error or panic, and cancels the others.
    ///
    /// # Errors
    /// [`BackendError::Cancelled`], and those of the work.
    pub fn run_batch(
        &self,
        tasks: &[BootstrapTask<'_>],
        results: &mut [u8],
        sample_bytes: usize,
        requester: Requester<'_>,
        work: &dyn Work,
    ) -> Result<(), BackendError> {
        let slices = cut(tasks, results, sample_bytes, (work.most(), self.slots));
        let workers = slices.len().min(self.slots);
        let slots = self.slots / workers.max(1);
        let run = |(tasks, results): Slice<'_, '_>, cancel: &CancelToken| {
            let call = Call {
                tenant: requester.tenant,
                cancel,
                keys: work.keys(),
                tasks,
                cost: tasks.iter().map(|task| work.cost(task)).sum(),
                slots: work.slots(bootstraps(tasks)).min(slots),
                most: work.most(),
            };
            self.run(&call, results, |pass, results| work.pass(pass, results))
        };
        let slices = Mutex::new(slices.into_iter());
        let next = || slices.lock().unwrap_or_else(PoisonError::into_inner).next();
        // Cancelled where the requester's is, or where a slice fails.
        let stop = CancelToken::all_of([requester.cancel.clone()]);
        let failed = Mutex::new(None);
        let worker = || {
            let _guard = CancelOnPanic(&stop);
            while let Some(slice) = next() {
                if let Err(error) = run(slice, &stop) {
                    // What fails later may do so because of this.
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.get_or_insert(error);
                    stop.cancel();
                    return;
                }
            }
        };
        // Scoped threads, and none of a pool: a slice may wait for slots that a slice holds which waits for the pool.
        thread::scope(|scope| {
            let _guard = CancelOnPanic(&stop);
            let others: Vec<_> = (1..workers).map(|_| scope.spawn(worker)).collect();
            worker();
            for other in others {
                other.join().unwrap_or_else(|panic| resume_unwind(panic));
            }
        });
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        failed.map_or(Ok(()), Err)
    }
}

/// Slices of up to `at_once` bootstraps, but for single tasks that have more, and as many as there are slots where there are
/// tasks for it.
fn cut<'t, 'r>(
    mut tasks: &'t [BootstrapTask<'t>],
    mut results: &'r mut [u8],
    sample_bytes: usize,
    (at_once, slots): (usize, usize),
) -> Vec<Slice<'t, 'r>> {
    let all = bootstraps(tasks);
    let rounds = all.div_ceil(at_once * slots).max(1);
    let size = all.div_ceil(rounds * slots);
    let mut slices = Vec::new();
    while !tasks.is_empty() {
        let mut taken = 0;
        let mut bootstraps = 0;
        for task in tasks {
            let more = bootstraps + task.test_vectors.len();
            if taken > 0 && more > size {
                break;
            }
            taken += 1;
            bootstraps = more;
        }
        let (slice, rest) = tasks.split_at(taken);
        let (own, others) = results.split_at_mut(bootstraps * sample_bytes);
        slices.push((slice, own));
        (tasks, results) = (rest, others);
    }
    slices
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Condvar;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    /// A sample is its number, a result has one byte.
    fn task(sample: &[u8]) -> BootstrapTask<'_> {
        BootstrapTask {
            test_vectors: &[&[1]],
            sample,
            input_bits: 1,
        }
    }

    /// Does a pass as the closure says.
    struct Test<F>(usize, F);

    impl<F: Fn(&Pass<'_>) -> Result<(), BackendError> + Sync> Work for Test<F> {
        fn keys(&self) -> [usize; 2] {
            [0; 2]
        }

        fn most(&self) -> usize {
            self.0
        }

        fn cost(&self, _: &BootstrapTask<'_>) -> u64 {
            1
        }

        fn slots(&self, _: usize) -> usize {
            4
        }

        fn pass(&self, pass: &Pass<'_>, results: &mut [u8]) -> Result<(), BackendError> {
            (self.1)(pass)?;
            for (task, result) in pass.tasks.iter().zip(results) {
                *result = task.sample[0] + 100;
            }
            Ok(())
        }
    }

    /// Has a batch of samples 0, 1, 2, … done for a tenant; gives the results.
    fn batch(
        scheduler: &Scheduler,
        (tenant, cancel): (u64, &CancelToken),
        samples: &[u8],
        work: &dyn Work,
    ) -> Result<Vec<u8>, BackendError> {
        let tasks: Vec<_> = samples.chunks(1).map(task).collect();
        let mut results = vec![0; tasks.len()];
        let requester = Requester {
            tenant,
            cancel,
            key_ids: None,
            progress: None,
        };
        scheduler.run_batch(&tasks, &mut results, 1, requester, work)?;
        Ok(results)
    }

    fn numbers(count: u8) -> Vec<u8> {
        (0..count).collect()
    }

    fn failure(reason: &str) -> BackendError {
        BackendError::Failed {
            reason: reason.to_owned(),
        }
    }

    fn wait_until(done: impl Fn() -> bool) {
        while !done() {
            thread::yield_now();
        }
    }

    /// Waits until somebody wants no results any more.
    fn last_until_cancelled(pass: &Pass<'_>) -> Result<(), BackendError> {
        wait_until(|| pass.cancel.is_cancelled());
        Err(BackendError::Cancelled)
    }

    #[test]
    fn a_batch_is_cut_into_slices_for_all_slots() {
        let sizes = |functions: &[usize], at_once: usize, slots: usize| -> Vec<usize> {
            let vectors = [&[1u8][..]; 9];
            let tasks: Vec<_> = functions
                .iter()
                .map(|count| BootstrapTask {
                    test_vectors: &vectors[..*count],
                    ..task(&[0])
                })
                .collect();
            let mut results = vec![0; 3 * bootstraps(&tasks)];
            let slices = cut(&tasks, &mut results, 3, (at_once, slots));
            for (tasks, results) in &slices {
                assert_eq!(results.len(), 3 * bootstraps(tasks));
            }
            slices.iter().map(|(tasks, _)| tasks.len()).collect()
        };
        assert_eq!(sizes(&[], 8, 2), []);
        assert_eq!(sizes(&[1], 8, 2), [1]);
        assert_eq!(sizes(&[1; 8], 8, 1), [8]);
        assert_eq!(sizes(&[1; 8], 8, 2), [4, 4]);
        assert_eq!(sizes(&[1; 9], 8, 1), [5, 4]);
        assert_eq!(sizes(&[1; 9], 8, 2), [5, 4]);
        assert_eq!(sizes(&[1; 17], 8, 2), [5, 5, 5, 2]);
        assert_eq!(sizes(&[1; 3], 8, 5), [1, 1, 1]);
        assert_eq!(sizes(&[1, 9, 1, 1], 8, 1), [1, 1, 2]);
        assert_eq!(sizes(&[3; 5], 1, 2), [1; 5]);
    }

    #[test]
    fn slices_run_side_by_side_and_each_result_is_that_of_its_task() {
        for (most, slices) in [(1, 4), (8, 4)] {
            let scheduler = Scheduler::new(4);
            let (together, changed) = (Mutex::new(0), Condvar::new());
            let work = Test(most, |pass: &Pass<'_>| {
                assert_eq!(pass.slots, 1);
                let mut together = together.lock().unwrap();
                *together += 1;
                changed.notify_all();
                let alone = |begun: &mut usize| *begun < slices;
                let patience = Duration::from_secs(30);
                let waited = changed.wait_timeout_while(together, patience, alone);
                assert!(!waited.unwrap().1.timed_out(), "one after another");
                Ok(())
            });
            let samples = numbers(if most > 1 { 30 } else { 9 });
            let expected: Vec<u8> = samples.iter().map(|sample| sample + 100).collect();
            let found = batch(&scheduler, (1, &CancelToken::new()), &samples, &work);
            assert_eq!(found, Ok(expected));
        }
    }

    #[test]
    fn few_slices_have_several_slots_each() {
        let scheduler = Scheduler::new(7);
        for (tasks, slots) in [(1, 4), (2, 3), (3, 2), (4, 1), (8, 1)] {
            let work = Test(1, |pass: &Pass<'_>| {
                assert_eq!((pass.tasks.len(), pass.slots), (1, slots), "{tasks} tasks");
                Ok(())
            });
            batch(&scheduler, (1, &CancelToken::new()), &numbers(tasks), &work).unwrap();
        }
    }

    #[test]
    fn a_tenant_with_one_task_is_not_behind_a_batch_of_another() {
        for most in [1, 8, 30] {
            let scheduler = Scheduler::new(1);
            let (order, open) = (Mutex::new(Vec::new()), AtomicBool::new(false));
            let work = |tenant: u64| {
                let (order, open) = (&order, &open);
                Test(most, move |pass: &Pass<'_>| {
                    let tenants = [tenant].repeat(pass.tasks.len());
                    order.lock().unwrap().extend(tenants);
                    wait_until(|| open.load(Ordering::SeqCst));
                    Ok(())
                })
            };
            let cancel = CancelToken::new();
            thread::scope(|scope| {
                scope.spawn(|| batch(&scheduler, (1, &cancel), &numbers(100), &work(1)).unwrap());
                wait_until(|| scheduler.statistics().batches == 1);
                scope.spawn(|| batch(&scheduler, (2, &cancel), &[7], &work(2)).unwrap());
                wait_until(|| scheduler.statistics().waiting == 1);
                open.store(true, Ordering::SeqCst);
            });
            let order = order.into_inner().unwrap();
            assert_eq!(order.len(), 101);
            let first = order.iter().position(|tenant| *tenant == 2);
            assert!(first.is_some_and(|first| first <= most), "{order:?}");
        }
    }

    #[test]
    fn a_batch_is_cancelled_between_slices_and_within_one() {
        let scheduler = Scheduler::new(1);
        let cancel = CancelToken::new();
        let done = AtomicUsize::new(0);
        let work = Test(1, |_: &Pass<'_>| {
            if done.fetch_add(1, Ordering::SeqCst) == 2 {
                cancel.cancel();
            }
            Ok(())
        });
        let found = batch(&scheduler, (1, &cancel), &numbers(100), &work);
        assert_eq!(found, Err(BackendError::Cancelled));
        assert_eq!(done.load(Ordering::SeqCst), 3);

        let (cancel, begun) = (CancelToken::new(), AtomicBool::new(false));
        let work = Test(8, |pass: &Pass<'_>| {
            begun.store(true, Ordering::SeqCst);
            last_until_cancelled(pass)
        });
        thread::scope(|scope| {
            let running = scope.spawn(|| batch(&scheduler, (1, &cancel), &numbers(100), &work));
            wait_until(|| begun.load(Ordering::SeqCst));
            cancel.cancel();
            assert_eq!(running.join().unwrap(), Err(BackendError::Cancelled));
        });
        assert_eq!(scheduler.lock().free, 1);
    }

    #[test]
    fn a_slice_that_fails_or_panics_ends_the_batch_and_stops_the_others() {
        for panics in [false, true] {
            let scheduler = Scheduler::new(3);
            let (cancel, begun) = (CancelToken::new(), AtomicUsize::new(0));
            let work = Test(1, |pass: &Pass<'_>| {
                begun.fetch_add(1, Ordering::SeqCst);
                if pass.tasks[0].sample != [1] {
                    return last_until_cancelled(pass);
                }
                assert!(!panics, "meant to panic");
                Err(failure("task 1"))
            });
            let samples = numbers(100);
            let found = catch_unwind(AssertUnwindSafe(|| {
                batch(&scheduler, (1, &cancel), &samples, &work)
            }));
            if panics {
                let panic = found.unwrap_err();
                assert_eq!(panic.downcast_ref::<&str>(), Some(&"meant to panic"));
            } else {
                assert_eq!(found.unwrap(), Err(failure("task 1")));
            }
            assert!(begun.load(Ordering::SeqCst) <= 3);
            assert!(!cancel.is_cancelled(), "the requester's token is its own");
            // The slots are free for others.
            assert_eq!(scheduler.lock().free, 3);
            let work = Test(1, |_: &Pass<'_>| Ok(()));
            let found = batch(&scheduler, (1, &cancel), &[5], &work);
            assert_eq!(found, Ok(vec![105]));
        }
    }
}
