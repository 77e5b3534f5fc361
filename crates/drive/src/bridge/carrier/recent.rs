//! What is remembered of the latest runs, and forgotten of older ones.

use std::collections::BTreeMap;
use std::ops::Range;

use toroid_isa::metadata::ScMetadata;

/// Metadata by the first LBA of their run: at most so many, the oldest of which make room for others.
pub(super) struct Recent {
    most: usize,
    next: u64,
    /// With their age.
    by_start: BTreeMap<u64, (u64, ScMetadata)>,
    by_age: BTreeMap<u64, u64>,
}

impl Recent {
    pub(super) fn new(most: usize) -> Recent {
        Recent {
            most,
            next: 0,
            by_start: BTreeMap::new(),
            by_age: BTreeMap::new(),
        }
    }

    pub(super) fn get(&self, start: u64) -> Option<&ScMetadata> {
        self.by_start.get(&start).map(|(_, metadata)| metadata)
    }

    pub(super) fn range(&self, starts: Range<u64>) -> impl Iterator<Item = (u64, &ScMetadata)> {
        let range = self.by_start.range(starts);
        range.map(|(start, (_, metadata))| (*start, metadata))
    }

    /// Remembers something of a run, or forgets what was remembered.
    pub(super) fn set(&mut self, start: u64, metadata: Option<ScMetadata>) {
        if let Some((age, _)) = self.by_start.remove(&start) {
            self.by_age.remove(&age);
        }
        let Some(metadata) = metadata else { return };
        self.by_start.insert(start, (self.next, metadata));
        self.by_age.insert(self.next, start);
        self.next += 1;
        if self.by_age.len() > self.most
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_start.remove(&oldest);
        }
    }

    /// Forgets the runs that begin here.
    pub(super) fn forget(&mut self, starts: Range<u64>) {
        if starts.is_empty() {
            return;
        }
        let gone: Vec<u64> = self.range(starts).map(|(start, _)| start).collect();
        for start in gone {
            self.set(start, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_make_room() {
        let vr = "cor:0:1".parse().unwrap();
        let of = |size| Some(ScMetadata::new(vr, 1, size).unwrap());
        let mut recent = Recent::new(3);
        for start in [5, 3, 9, 5, 7] {
            recent.set(start, of(start));
        }
        let left = |recent: &Recent| recent.range(0..100).map(|(at, _)| at).collect::<Vec<_>>();
        assert_eq!(left(&recent), [5, 7, 9]);
        assert_eq!((recent.get(3), recent.get(9)), (None, of(9).as_ref()));
        recent.set(9, None);
        recent.set(1, of(1));
        recent.forget(4..6);
        recent.forget(0..0);
        assert_eq!(left(&recent), [1, 7]);
        assert_eq!(recent.by_age.len(), 2);
    }
}
