//! Futures that run by themselves, without an asynchronous runtime.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use futures::future::BoxFuture;

thread_local! {
    /// While this thread runs tasks: those that are to be run next. A task that wakes another does not run it within itself,
    /// so that a chain of them needs no stack and none of them meets itself.
    static NEXT: RefCell<Option<VecDeque<Arc<Task>>>> = const { RefCell::new(None) };
}

struct Task {
    /// `None` once it has ended.
    future: Mutex<Option<BoxFuture<'static, ()>>>,
    /// Woken since it was last polled.
    woken: AtomicBool,
}

/// Runs a future on this thread as far as it gets without waiting, and then on the threads that wake it. It must not wait in
/// any other way than by pending, nor work for long.
pub(crate) fn spawn(future: BoxFuture<'static, ()>) {
    let task = Arc::new(Task {
        future: Mutex::new(Some(future)),
        woken: AtomicBool::new(false),
    });
    task.wake();
}

impl Task {
    fn poll(self: Arc<Self>) {
        // Before the poll: a wake-up during it asks for another. If another thread polls, this one waits for its end.
        self.woken.store(false, Ordering::SeqCst);
        let mut slot = self.future.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(future) = slot.as_mut() else { return };
        let waker = Waker::from(Arc::clone(&self));
        let mut context = Context::from_waker(&waker);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
        if !matches!(polled, Ok(Poll::Pending)) {
            // What a future that panicked held answers for it when it is dropped.
            let dropped = catch_unwind(AssertUnwindSafe(|| *slot = None));
            if polled.is_err() || dropped.is_err() {
                tracing::error!("a command ended in a panic");
            }
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if self.woken.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut task = Some(self);
        let runs_already = NEXT.with_borrow_mut(|next| match next {
            Some(next) => {
                next.extend(task.take());
                true
            }
            None => {
                *next = Some(task.take().into_iter().collect());
                false
            }
        });
        if runs_already {
            return;
        }
        while let Some(task) = NEXT.with_borrow_mut(|next| {
            let first = next.as_mut().and_then(VecDeque::pop_front);
            if first.is_none() {
                *next = None;
            }
            first
        }) {
            task.poll();
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::channel::oneshot;

    #[test]
    fn a_chain_of_tasks_needs_no_stack() {
        let (mut sender, mut receiver) = oneshot::channel::<u32>();
        let first = sender;
        for _ in 0..100_000 {
            let (next_sender, next_receiver) = oneshot::channel();
            sender = next_sender;
            spawn(Box::pin(async move {
                let _ = sender.send(receiver.await.map_or(0, |count| count + 1));
            }));
            receiver = next_receiver;
        }
        first.send(0).unwrap();
        assert_eq!(block_on(receiver), Ok(100_000));
    }

    #[test]
    fn tasks_run_on_the_threads_that_wake_them() {
        let (sender, receiver) = oneshot::channel();
        let (answer, answered) = oneshot::channel();
        spawn(Box::pin(async move {
            let sent_by = receiver.await.unwrap();
            let _ = answer.send((sent_by, std::thread::current().id()));
        }));
        std::thread::spawn(move || sender.send(std::thread::current().id()).unwrap());
        let (sent_by, run_by) = block_on(answered).unwrap();
        assert_eq!(sent_by, run_by);
    }

    #[test]
    fn a_panic_drops_what_the_future_held() {
        let (sender, receiver) = oneshot::channel::<()>();
        spawn(Box::pin(async move {
            let _held = sender;
            panic!("meant to panic");
        }));
        assert!(block_on(receiver).is_err());
    }
}
