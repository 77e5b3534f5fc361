//! Work on several threads: long work, shared out, and short work, with the decision to leave it to one thread.
//!
//! Both take what is to be done as a function without types of its own (`share_out`, `on_threads`): the code around it in rayon,
//! thousands of instructions, is compiled once and not for each use.
//!
//! Steps of a bootstrap take microseconds to a millisecond. Several threads are faster at them only while each has a core: where other
//! processes take the cores, a thread waits for one that the system has put aside, for a whole time slice. Whoever finds that
//! a thread came late says so (`Crowding::late`); short work then stays on the thread that asks for it, for a while that
//! doubles as long as threads come late again. What that costs is bounded: a time slice for each attempt, and attempts become rare.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rayon::prelude::*;
use toroid_task::CancelToken;

use crate::TfheError;

/// The threads that bootstraps and key switches may use, and the token that stops them.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Threads.
    pub threads: usize,
    /// They look at it every few milliseconds at least.
    pub cancel: &'a CancelToken,
}

impl Run<'static> {
    /// A run on that many threads that nobody stops.
    #[must_use]
    pub fn with_threads(threads: usize) -> Run<'static> {
        static NEVER: LazyLock<CancelToken> = LazyLock::new(CancelToken::new);
        Run {
            threads,
            cancel: &NEVER,
        }
    }
}

impl Run<'_> {
    /// [`TfheError::Cancelled`] once someone asked to stop.
    pub(crate) fn check(&self) -> Result<(), TfheError> {
        self.cancel.check().map_err(|_| TfheError::Cancelled)
    }
}

/// Longer than threads with cores of their own differ in what they need for equal work.
pub(crate) const LATE: Duration = Duration::from_micros(500);

/// How long short work stays on one thread after a thread came late for the first time.
const FIRST_BACKOFF: Duration = Duration::from_millis(20);
/// The longest that it stays there without another attempt.
const LONGEST_BACKOFF: Duration = Duration::from_secs(2);

/// Whether threads came late not long ago.
pub(crate) struct Crowding {
    start: Instant,
    backoff: Mutex<Backoff>,
}

/// Times since the start of the process's [`Crowding`].
#[derive(Clone, Copy, Debug, Default)]
struct Backoff {
    until: Duration,
    length: Duration,
}

impl Backoff {
    /// A thread came late. What other threads say of the same moment changes nothing.
    fn late(&mut self, now: Duration) {
        if now < self.until {
            return;
        }
        let undisturbed = now - self.until;
        self.length = match self.length {
            Duration::ZERO => FIRST_BACKOFF,
            length if undisturbed < length => (2 * length).min(LONGEST_BACKOFF),
            length if undisturbed < 4 * length => length,
            _ => FIRST_BACKOFF,
        };
        self.until = now + self.length;
    }
}

impl Crowding {
    /// That of this process.
    pub(crate) fn of_process() -> &'static Crowding {
        static PROCESS: LazyLock<Crowding> = LazyLock::new(Crowding::new);
        &PROCESS
    }

    pub(crate) fn new() -> Crowding {
        Crowding {
            start: Instant::now(),
            backoff: Mutex::default(),
        }
    }

    fn backoff(&self) -> MutexGuard<'_, Backoff> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many of `threads` short work may take now.
    pub(crate) fn threads(&self, threads: usize) -> usize {
        if threads > 1 && self.start.elapsed() < self.backoff().until {
            1
        } else {
            threads
        }
    }

    /// Says that a thread came late.
    pub(crate) fn late(&self) {
        self.backoff().late(self.start.elapsed());
    }
}

/// Does jobs of about the same length side by side where there are threads with cores for it, otherwise in order on this one. Threads take
/// the next job when they are done with one.
pub(crate) fn in_parallel<J: Send>(
    threads: usize,
    jobs: Vec<J>,
    run: impl Fn(usize, J) -> Result<(), TfheError> + Sync,
) -> Result<(), TfheError> {
    let threads = Crowding::of_process().threads(threads.min(jobs.len()));
    let jobs = Mutex::new(jobs.into_iter().enumerate());
    let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some((index, job)) = next() {
            run(index, job)?;
        }
        Ok(())
    };
    match threads {
        0 | 1 => work(),
        _ => on_threads(threads, &work),
    }
}

/// Does the same work on several threads at once.
fn on_threads(
    threads: usize,
    work: &(dyn Fn() -> Result<(), TfheError> + Sync),
) -> Result<(), TfheError> {
    let crowding = Crowding::of_process();
    let failed = Mutex::new(Ok(()));
    let begun = Instant::now();
    let (own, ended) = rayon::in_place_scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|_| {
                if let Err(error) = work() {
                    *failed.lock().unwrap_or_else(PoisonError::into_inner) = Err(error);
                }
            });
        }
        (work(), Instant::now())
    });
    // No other thread had a job for longer, but for one that it could not go on with.
    if ended.elapsed() > (ended - begun) + LATE {
        crowding.late();
    }
    own.and(failed.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Does every job, given with its number, on the threads of the pool that the caller is in.
pub fn for_each<J: Send>(jobs: impl IntoIterator<Item = J>, run: impl Fn(usize, J) + Sync) {
    // Each place is locked once, by the thread that has its number.
    let places: Vec<_> = jobs.into_iter().map(|job| Mutex::new(Some(job))).collect();
    share_out(places.len(), &|index| {
        let job = places[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(job) = job {
            run(index, job);
        }
    });
}

/// The same for jobs with results, which come in the order of the jobs.
pub fn map<J: Send, T: Send>(
    jobs: impl IntoIterator<Item = J>,
    run: impl Fn(usize, J) -> T + Sync,
) -> Vec<T> {
    // Each place is locked once, by the thread that has its number.
    let places: Vec<_> = jobs
        .into_iter()
        .map(|job| Mutex::new((Some(job), None)))
        .collect();
    let lock = |index: usize| places[index].lock().unwrap_or_else(PoisonError::into_inner);
    share_out(places.len(), &|index| {
        let job = lock(index).0.take();
        let result = job.map(|job| run(index, job));
        lock(index).1 = result;
    });
    let results = places.into_iter().filter_map(|place| {
        let place = place.into_inner();
        place.unwrap_or_else(PoisonError::into_inner).1
    });
    results.collect()
}

/// Calls `run` with the numbers below `count`, on the threads of the pool that the caller is in.
fn share_out(count: usize, run: &(dyn Fn(usize) + Sync)) {
    (0..count).into_par_iter().for_each(run);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Has threads come late at these milliseconds after the end of each back-off; gives the back-offs in milliseconds.
    fn backoffs(undisturbed: &[u32]) -> Vec<u128> {
        let mut backoff = Backoff::default();
        let mut all = Vec::new();
        for ms in undisturbed {
            backoff.late(backoff.until + *ms * MS);
            all.push(backoff.length.as_millis());
        }
        all
    }

    #[test]
    fn attempts_become_rare_while_threads_come_late() {
        assert_eq!(
            backoffs(&[3; 9]),
            [20, 40, 80, 160, 320, 640, 1280, 2000, 2000]
        );
    }

    #[test]
    fn a_thread_late_now_and_then_costs_little() {
        assert_eq!(backoffs(&[0, 30, 30, 30]), [20; 4]);
        assert_eq!(
            backoffs(&[0, 1, 1, 1, 200, 700]),
            [20, 40, 80, 160, 160, 20]
        );
    }

    #[test]
    fn several_that_see_the_same_late_thread_count_once() {
        let mut backoff = Backoff::default();
        backoff.late(5 * MS);
        backoff.late(6 * MS);
        backoff.late(24 * MS);
        assert_eq!((backoff.until, backoff.length), (25 * MS, 20 * MS));
    }

    #[test]
    fn short_work_stays_on_one_thread_after_a_late_one() {
        let crowding = Crowding::new();
        assert_eq!(crowding.threads(4), 4);
        crowding.backoff().until = Duration::MAX;
        assert_eq!(crowding.threads(4), 1);
        assert_eq!(crowding.threads(1), 1);
        assert_eq!(crowding.threads(0), 0);
    }

    #[test]
    fn results_are_in_the_order_of_their_jobs() {
        let jobs: Vec<String> = (0..100).map(|job| job.to_string()).collect();
        let expected: Vec<_> = jobs.iter().cloned().enumerate().collect();
        assert_eq!(map(jobs, |index, job| (index, job)), expected);
        assert!(map(None::<u8>, |index, _| index).is_empty());
    }

    #[test]
    fn jobs_without_results_are_done_once_with_their_numbers() {
        let mut done = vec![0; 17];
        for_each(done.iter_mut(), |index, job| *job += index + 1);
        assert_eq!(done, (1..=17).collect::<Vec<_>>());
        for_each(None::<u8>, |_, _| unreachable!("there is no job"));
    }

    #[test]
    fn each_job_is_done_once_and_the_first_error_comes_out() {
        for threads in [0, 1, 2, 5] {
            let mut done = vec![0; 17];
            in_parallel(
                threads,
                done.iter_mut().collect(),
                |index, job: &mut usize| {
                    *job += index + 1;
                    Ok(())
                },
            )
            .unwrap();
            assert_eq!(done, (1..=17).collect::<Vec<_>>());
            let failed = in_parallel(threads, vec![(); 17], |index, ()| match index {
                9 => Err(TfheError::Cancelled),
                _ => Ok(()),
            });
            assert!(matches!(failed, Err(TfheError::Cancelled)));
        }
    }
}
