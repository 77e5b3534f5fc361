//! What runs on columns hold of a drive as long as they last, so that other runs of the session leave it alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toroid_isa::VrNumber;
use toroid_task::Progress;

use super::{Object, Session, SessionError};

/// What the runs of a session hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    indices: Mutex<BTreeSet<u16>>,
    /// Registers of functions, with the runs that use them: a function has one register, whichever run brings it.
    functions: Mutex<BTreeMap<VrNumber, usize>>,
    /// Held by whoever puts functions, or deletes them.
    changing: tokio::sync::Mutex<()>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program index of the drive that no other run of the session takes until this is dropped.
#[derive(Debug)]
pub(crate) struct Index {
    runs: Runs,
    index: u16,
}

impl Index {
    pub(crate) fn get(&self) -> u16 {
        self.index
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        locked(&self.runs.0.indices).remove(&self.index);
    }
}

/// Functions that no other run of the session deletes until this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Functions {
    runs: Runs,
    registers: Vec<VrNumber>,
}

impl Functions {
    /// Lets go of them; gives those that no other run uses.
    fn let_go(&mut self) -> Vec<VrNumber> {
        let mut users = locked(&self.runs.0.functions);
        let mut unused = std::mem::take(&mut self.registers);
        unused.retain(|register| {
            let left = users.get(register).map_or(0, |count| count - 1);
            if left == 0 {
                users.remove(register);
            } else {
                users.insert(*register, left);
            }
            left == 0
        });
        unused
    }
}

impl Drop for Functions {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Runs {
    /// Takes a program index, unless another run of the session holds it.
    pub(crate) fn take_index(&self, index: u16) -> Option<Index> {
        let free = locked(&self.0.indices).insert(index);
        free.then(|| Index {
            runs: self.clone(),
            index,
        })
    }

    /// Takes the functions of these registers; gives those that no run has used yet, too.
    fn take_functions(&self, registers: Vec<VrNumber>) -> (Functions, BTreeSet<VrNumber>) {
        let mut users = locked(&self.0.functions);
        let mut new = BTreeSet::new();
        for register in &registers {
            let count = users.entry(*register).or_default();
            *count += 1;
            if *count == 1 {
                new.insert(*register);
            }
        }
        let runs = self.clone();
        (Functions { runs, registers }, new)
    }
}

impl Session {
    /// Puts the functions of a run that no other run has on the drive.
    pub(crate) async fn put_functions(
        &self,
        mut objects: Vec<Object<'static>>,
    ) -> Result<Functions, SessionError> {
        let _changing = self.runs().0.changing.lock().await;
        let registers = objects.iter().map(|object| object.metadata().vr());
        let (functions, new) = self.runs().take_functions(registers.collect());
        objects.retain(|object| new.contains(&object.metadata().vr()));
        self.put(objects, &Progress::none()).await?;
        Ok(functions)
    }

    /// Deletes the functions of a run that no other run uses.
    pub(crate) async fn delete_functions(
        &self,
        mut functions: Functions,
    ) -> Result<(), SessionError> {
        let _changing = self.runs().0.changing.lock().await;
        for function in functions.let_go() {
            // Somebody else may have deleted it.
            match self.delete(function).await {
                Ok(()) | Err(SessionError::Missing(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_has_one_holder() {
        let runs = Runs::default();
        let first = runs.take_index(3).unwrap();
        assert!(runs.clone().take_index(3).is_none());
        assert!(runs.take_index(4).is_some());
        drop(first);
        assert_eq!(runs.take_index(3).unwrap().get(), 3);
    }

    #[test]
    fn a_function_stays_as_long_as_somebody_uses_it() {
        let runs = Runs::default();
        let [a, b] = ["tv:0:1", "tv:0:2"].map(|vr| vr.parse::<VrNumber>().unwrap());
        let (mut first, new) = runs.take_functions(vec![a]);
        assert_eq!(new, BTreeSet::from([a]));
        let (second, new) = runs.take_functions(vec![a, b]);
        assert_eq!(new, BTreeSet::from([b]));
        assert_eq!(first.let_go(), []);
        // A run that was dropped uses nothing.
        drop(second);
        let (mut third, new) = runs.take_functions(vec![a, b]);
        assert_eq!(new, BTreeSet::from([a, b]));
        assert_eq!(third.let_go(), [a, b]);
    }
}
