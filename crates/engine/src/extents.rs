//! First-fit allocation of runs of consecutive units.

use std::collections::BTreeMap;

/// Hands out runs of consecutive units from `base..base + capacity`.
#[derive(Debug)]
pub(crate) struct Extents {
    /// Start and length of every free run; never adjacent, never empty.
    free: BTreeMap<u64, u64>,
    capacity: u64,
    taken: u64,
}

impl Extents {
    pub(crate) fn new(base: u64, capacity: u64) -> Extents {
        let mut free = BTreeMap::new();
        if capacity > 0 {
            free.insert(base, capacity);
        }
        Extents {
            free,
            capacity,
            taken: 0,
        }
    }

    /// How many units there are, free or not.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How many units are not free.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// The lowest free run of this length, taken.
    pub(crate) fn allocate(&mut self, units: u64) -> Option<u64> {
        let start = self
            .free
            .iter()
            .find(|(_, length)| **length >= units)
            .map(|(start, _)| *start)?;
        self.claim(start, units);
        Some(start)
    }

    /// Takes a run that is known to be free.
    pub(crate) fn claim(&mut self, start: u64, units: u64) {
        let Some((&run, &length)) = self.free.range(..=start).next_back() else {
            debug_assert!(false, "claimed units are free");
            return;
        };
        debug_assert!(start + units <= run + length, "claimed units are free");
        self.taken += units;
        self.free.remove(&run);
        if run < start {
            self.free.insert(run, start - run);
        }
        if start + units < run + length {
            self.free
                .insert(start + units, run + length - start - units);
        }
    }

    /// Gives a run back.
    pub(crate) fn release(&mut self, start: u64, units: u64) {
        self.taken = self.taken.saturating_sub(units);
        let (mut start, mut end) = (start, start + units);
        if let Some((&before, &length)) = self.free.range(..start).next_back() {
            debug_assert!(before + length <= start, "released units are not free");
            if before + length == start {
                self.free.remove(&before);
                start = before;
            }
        }
        if let Some(length) = self.free.remove(&end) {
            end += length;
        }
        self.free.insert(start, end - start);
    }

    /// The free runs inside `start..end`, cut to it.
    pub(crate) fn free_within(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let first = self.free.range(..start).next_back().into_iter();
        first
            .chain(self.free.range(start..end))
            .map(|(&run, &length)| (run.max(start), (run + length).min(end)))
            .filter(|(from, to)| from < to)
            .map(|(from, to)| (from, to - from))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn first_fit_and_merging() {
        let mut extents = Extents::new(10, 10);
        assert_eq!(extents.allocate(4), Some(10));
        assert_eq!(extents.allocate(4), Some(14));
        assert_eq!(extents.allocate(4), None);
        extents.release(10, 4);
        assert_eq!(extents.free_within(12, 20), vec![(12, 2), (18, 2)]);
        assert_eq!(extents.allocate(2), Some(10));
        extents.release(14, 4);
        extents.release(10, 2);
        assert_eq!(extents.allocate(10), Some(10));
    }

    proptest! {
        #[test]
        fn agrees_with_a_bitmap(steps in prop::collection::vec((1u64..6, any::<prop::sample::Index>(), any::<bool>()), 0..200)) {
            const CAPACITY: u64 = 40;
            let mut extents = Extents::new(0, CAPACITY);
            let mut taken = [false; CAPACITY as usize];
            let mut runs: Vec<(u64, u64)> = Vec::new();
            for (units, index, allocate) in steps {
                if allocate || runs.is_empty() {
                    let expected = (0..=CAPACITY - units)
                        .find(|&start| (start..start + units).all(|unit| !taken[unit as usize]));
                    prop_assert_eq!(extents.allocate(units), expected);
                    if let Some(start) = expected {
                        taken[start as usize..(start + units) as usize].fill(true);
                        runs.push((start, units));
                    }
                } else {
                    let (start, units) = runs.swap_remove(index.index(runs.len()));
                    extents.release(start, units);
                    taken[start as usize..(start + units) as usize].fill(false);
                }
                let free: u64 = extents.free_within(0, CAPACITY).iter().map(|run| run.1).sum();
                prop_assert_eq!(free, CAPACITY - extents.taken());
                prop_assert_eq!(free, taken.iter().filter(|unit| !**unit).count() as u64);
            }
        }
    }
}
