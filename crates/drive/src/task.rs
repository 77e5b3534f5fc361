//! Futures that run by themselves, without an asynchronous runtime.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;

use async_task::Runnable;
use futures::FutureExt;

thread_local! {
    /// While this thread runs tasks: those that are to be run next. A task that wakes another does not run it within itself,
    /// so that a chain of them needs no stack.
    static NEXT: RefCell<Option<VecDeque<Runnable>>> = const { RefCell::new(None) };
}

/// Runs a future on this thread as far as it gets without waiting, and then on the threads that wake it. It must not wait in
/// any other way than by pending, nor work for long.
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    let guarded = async {
        // What a future that panicked held answers for it when it is dropped.
        if AssertUnwindSafe(future).catch_unwind().await.is_err() {
            tracing::error!("a command ended in a panic");
        }
    };
    let (runnable, task) = async_task::spawn(guarded, run);
    task.detach();
    runnable.schedule();
}

fn run(woken: Runnable) {
    let first = NEXT.with_borrow_mut(|next| match next {
        Some(next) => {
            next.push_back(woken);
            None
        }
        None => {
            *next = Some(VecDeque::new());
            Some(woken)
        }
    });
    let mut following = first;
    while let Some(runnable) = following {
        runnable.run();
        following = NEXT.with_borrow_mut(|next| {
            let first = next.as_mut().and_then(VecDeque::pop_front);
            if first.is_none() {
                *next = None;
            }
            first
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::channel::oneshot;
    use futures::executor::block_on;

    #[test]
    fn a_chain_of_tasks_needs_no_stack() {
        let (mut sender, mut receiver) = oneshot::channel::<u32>();
        let first = sender;
        for _ in 0..100_000 {
            let (next_sender, next_receiver) = oneshot::channel();
            sender = next_sender;
            spawn(async move {
                let _ = sender.send(receiver.await.map_or(0, |count| count + 1));
            });
            receiver = next_receiver;
        }
        first.send(0).unwrap();
        assert_eq!(block_on(receiver), Ok(100_000));
    }

    #[test]
    fn tasks_run_on_the_threads_that_wake_them() {
        let (sender, receiver) = oneshot::channel();
        let (answer, answered) = oneshot::channel();
        spawn(async move {
            let sent_by = receiver.await.unwrap();
            let _ = answer.send((sent_by, std::thread::current().id()));
        });
        std::thread::spawn(move || sender.send(std::thread::current().id()).unwrap());
        let (sent_by, run_by) = block_on(answered).unwrap();
        assert_eq!(sent_by, run_by);
    }

    #[test]
    fn a_panic_drops_what_the_future_held() {
        let (sender, receiver) = oneshot::channel::<()>();
        spawn(async move {
            let _held = sender;
            panic!("meant to panic");
        });
        assert!(block_on(receiver).is_err());
    }
}
