//! Which clusters are in use, and the leases that keep them so.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::layout::Extent;

/// The map of used clusters: one bit each. Clusters that hold super block and metadata count as used.
#[derive(Debug)]
struct Map {
    used: Vec<u64>,
    /// Holders beyond the first, of those clusters that several versions of a blob share.
    shared: HashMap<u32, u32>,
    total: u32,
    free: u32,
}

impl Map {
    fn is_used(&self, cluster: u32) -> bool {
        self.used[cluster as usize / 64] >> (cluster % 64) & 1 != 0
    }

    fn set(&mut self, cluster: u32, used: bool) {
        let bit = 1 << (cluster % 64);
        let word = &mut self.used[cluster as usize / 64];
        if used {
            *word |= bit;
        } else {
            *word &= !bit;
        }
    }

    /// One holder of a cluster less; without any it is free.
    fn let_go(&mut self, cluster: u32) {
        match self.shared.get_mut(&cluster) {
            Some(1) => {
                self.shared.remove(&cluster);
            }
            Some(others) => *others -= 1,
            None => {
                self.set(cluster, false);
                self.free += 1;
            }
        }
    }
}

/// Adds a cluster to a list of runs.
fn push(extents: &mut Vec<Extent>, cluster: u32) {
    match extents.last_mut() {
        Some(e) if e.start + e.count == cluster => e.count += 1,
        _ => extents.push(Extent {
            start: cluster,
            count: 1,
        }),
    }
}

/// The allocator of a mounted store; clones share one map.
#[derive(Clone, Debug)]
pub(super) struct Clusters(Arc<Mutex<Map>>);

/// Clusters that belong to one version of a blob, or to a writer. They are free again once the last holder drops the
/// lease: the blob table, a reader, a command in flight. A cluster that versions of one blob share is free once
/// the leases of all of them are dropped; no two blobs share one.
#[derive(Debug)]
pub(super) struct Lease {
    clusters: Clusters,
    extents: Vec<Extent>,
}

impl Clusters {
    /// A map of `total` clusters of which those from `first` on are free.
    pub fn new(first: u32, total: u32) -> Self {
        let mut map = Map {
            used: vec![0; (total as usize).div_ceil(64)],
            shared: HashMap::new(),
            total,
            free: total - first,
        };
        for c in 0..first {
            map.set(c, true);
        }
        Self(Arc::new(Mutex::new(map)))
    }

    fn with<R>(&self, f: impl FnOnce(&mut Map) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn free(&self) -> u32 {
        self.with(|m| m.free)
    }

    /// The lease of no clusters.
    pub fn none(&self) -> Lease {
        Lease {
            clusters: self.clone(),
            extents: Vec::new(),
        }
    }

    /// Leases `count` clusters, in as few runs as a first fit gives; `None` where there are not so many.
    pub fn take(&self, count: u32) -> Option<Lease> {
        let extents = self.with(|m| {
            if m.free < count {
                return None;
            }
            let mut extents: Vec<Extent> = Vec::new();
            let mut left = count;
            let mut c = 0;
            while left > 0 && c < m.total {
                if c % 64 == 0 && m.used[c as usize / 64] == u64::MAX {
                    c += 64;
                    continue;
                }
                if !m.is_used(c) {
                    m.set(c, true);
                    left -= 1;
                    push(&mut extents, c);
                }
                c += 1;
            }
            m.free -= count;
            Some(extents)
        })?;
        Some(Lease {
            clusters: self.clone(),
            extents,
        })
    }

    /// Leases the clusters of a record found at mount; gives the first that another one owns, if any.
    pub fn claim(&self, extents: &[Extent]) -> Result<Lease, u32> {
        let mut lease = self.none();
        for e in extents {
            for c in e.start..e.start + e.count {
                let fresh = self.with(|m| {
                    let fresh = c < m.total && !m.is_used(c);
                    if fresh {
                        m.set(c, true);
                        m.free -= 1;
                    }
                    fresh
                });
                if !fresh {
                    return Err(c);
                }
                push(&mut lease.extents, c);
            }
        }
        Ok(lease)
    }
}

impl Lease {
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The clusters, in the order of the blob's data.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.extents.iter().flat_map(|e| e.start..e.start + e.count)
    }

    pub fn len(&self) -> u32 {
        self.extents.iter().map(|e| e.count).sum()
    }

    /// The lease of the version that follows this one and takes `count` clusters: at the places `rewritten`, which rise, the
    /// clusters of `fresh` in their order; at all others those that this one has there, which then have a holder more.
    pub fn successor(&self, count: u32, rewritten: &[u32], mut fresh: Lease) -> Lease {
        debug_assert_eq!(rewritten.len(), fresh.len() as usize);
        let mut extents = Vec::new();
        let mut placed = rewritten.iter().copied().zip(fresh.iter()).peekable();
        self.clusters.with(|map| {
            let mut former = self.iter();
            for place in 0..count {
                let former = former.next();
                if let Some((_, cluster)) = placed.next_if(|(at, _)| *at == place) {
                    push(&mut extents, cluster);
                } else if let Some(cluster) = former {
                    *map.shared.entry(cluster).or_insert(0) += 1;
                    push(&mut extents, cluster);
                }
            }
        });
        debug_assert!(placed.next().is_none());
        drop(placed);
        // They belong to the new lease from here on.
        fresh.extents.clear();
        Lease {
            clusters: self.clusters.clone(),
            extents,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.clusters.with(|m| {
            for e in &self.extents {
                for c in e.start..e.start + e.count {
                    m.let_go(c);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_do_not_overlap_and_come_back() {
        let map = Clusters::new(3, 200);
        let a = map.take(100).unwrap();
        let b = map.take(97).unwrap();
        assert_eq!(
            a.extents(),
            [Extent {
                start: 3,
                count: 100
            }]
        );
        assert_eq!(
            b.extents(),
            [Extent {
                start: 103,
                count: 97
            }]
        );
        assert!(map.take(1).is_none());
        drop(a);
        assert_eq!(map.free(), 100);
        assert_eq!(map.take(1).unwrap().iter().collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_fragmented_map_gives_several_runs() {
        let map = Clusters::new(0, 10);
        let leases: Vec<_> = (0..10).map(|_| map.take(1).unwrap()).collect();
        for (i, lease) in leases.into_iter().enumerate() {
            if i % 3 == 0 {
                drop(lease);
            } else {
                std::mem::forget(lease);
            }
        }
        let a = map.take(4).unwrap();
        assert_eq!(a.iter().collect::<Vec<_>>(), [0, 3, 6, 9]);
        assert_eq!(a.extents().len(), 4);
    }

    #[test]
    fn a_shared_cluster_is_free_after_its_last_holder() {
        let map = Clusters::new(2, 20);
        let first = map.take(4).unwrap();
        let second = first.successor(6, &[1, 4, 5], map.take(3).unwrap());
        assert_eq!(second.iter().collect::<Vec<_>>(), [2, 6, 4, 5, 7, 8]);
        assert_eq!(second.extents().len(), 4);
        let third = second.successor(2, &[1], map.take(1).unwrap());
        assert_eq!(third.iter().collect::<Vec<_>>(), [2, 9]);
        assert_eq!(map.free(), 10);
        drop(second);
        // Numbers 6, 7 and 8 were its own.
        assert_eq!(map.free(), 13);
        drop(first);
        assert_eq!(map.free(), 16);
        let taken = map.take(16).unwrap();
        assert!(taken.iter().all(|c| c != 2 && c != 9));
        drop(taken);
        drop(third);
        assert_eq!(map.free(), 18);
        assert_eq!(map.take(18).unwrap().extents().len(), 1);
    }

    #[test]
    fn a_cluster_has_one_owner() {
        let map = Clusters::new(1, 10);
        let first = map.claim(&[Extent { start: 2, count: 3 }]).unwrap();
        assert_eq!(
            map.claim(&[Extent { start: 6, count: 1 }, Extent { start: 4, count: 2 }])
                .unwrap_err(),
            4
        );
        assert!(map.claim(&[Extent { start: 0, count: 1 }]).is_err());
        assert!(
            map.claim(&[Extent {
                start: 10,
                count: 1
            }])
            .is_err()
        );
        assert_eq!(map.free(), 6);
        drop(first);
        assert_eq!(map.free(), 9);
    }
}
