//! Which runs of programs may go on at the same time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use toroid_drive::computational::MAX_PROGRAMS;
use toroid_task::Progress;

use crate::failure::Failure;

/// Runs of one drive at a time. Each holds a program index of the drive, and other sessions have use for some.
const MOST: usize = MAX_PROGRAMS / 2;

/// How often who waits looks whether the call is to end.
const PATIENCE: Duration = Duration::from_millis(50);

/// Runs of programs go on beside each other, and none does while the drive's registers are filled from what is stored.
#[derive(Default)]
pub(crate) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    running: usize,
    /// Who fills registers, or waits for it. No run begins meanwhile, so that they have their turn.
    loaders: usize,
    is_filling: bool,
    /// How often registers were filled.
    loads: u64,
}

/// The turn of a run, until it is dropped.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    loads: u64,
}

impl Turns {
    /// Waits for the turn of a run.
    pub(crate) fn run(&self, progress: &Progress) -> Result<Turn<'_>, Failure> {
        let mut state = self.wait(progress, |state| state.loaders == 0 && state.running < MOST)?;
        state.running += 1;
        let loads = state.loads;
        Ok(Turn { turns: self, loads })
    }

    /// Fills registers once no run goes on; not if another one has filled them since the run began whose turn it was. Says whether it did.
    pub(crate) fn load(
        &self,
        turn: Turn<'_>,
        progress: &Progress,
        fill: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        let since = turn.loads;
        self.locked().loaders += 1;
        let mut loader = Loader {
            turns: self,
            is_filling: false,
        };
        drop(turn);
        let mut state = self.wait(progress, |state| state.running == 0 && !state.is_filling)?;
        if state.loads > since {
            drop(state);
            return Ok(false);
        }
        state.is_filling = true;
        loader.is_filling = true;
        drop(state);
        fill()?;
        self.locked().loads += 1;
        Ok(true)
    }

    fn wait(
        &self,
        progress: &Progress,
        is_ready: impl Fn(&State) -> bool,
    ) -> Result<MutexGuard<'_, State>, Failure> {
        let mut state = self.locked();
        while !is_ready(&state) {
            if let Err(cancelled) = progress.check() {
                return Err(Failure::new("DriveError", cancelled.to_string()));
            }
            let waited = self.changed.wait_timeout(state, PATIENCE);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(state)
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.locked().running -= 1;
        self.turns.changed.notify_all();
    }
}

/// Counts among those who fill registers, or wait for it, until it is dropped.
struct Loader<'a> {
    turns: &'a Turns,
    is_filling: bool,
}

impl Drop for Loader<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.locked();
        state.loaders -= 1;
        if self.is_filling {
            state.is_filling = false;
        }
        drop(state);
        self.turns.changed.notify_all();
    }
}
