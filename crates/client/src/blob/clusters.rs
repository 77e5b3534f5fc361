//! Which clusters are in use, and the leases that keep them so.

use std::sync::{Arc, Mutex, PoisonError};

use super::layout::Extent;

/// The map of used clusters: one bit each. Clusters that hold super block and metadata count as used.
#[derive(Debug)]
struct Map {
    used: Vec<u64>,
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
}

/// The allocator of a mounted store; clones share one map.
#[derive(Clone, Debug)]
pub(super) struct Clusters(Arc<Mutex<Map>>);

/// Clusters that belong to one version of a blob, or to a writer. They are free again once the last holder drops the
/// lease: the blob table, a reader, a command in flight.
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
                    match extents.last_mut() {
                        Some(e) if e.start + e.count == c => e.count += 1,
                        _ => extents.push(Extent { start: c, count: 1 }),
                    }
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
                match lease.extents.last_mut() {
                    Some(x) if x.start + x.count == c => x.count += 1,
                    _ => lease.extents.push(Extent { start: c, count: 1 }),
                }
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
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.clusters.with(|m| {
            for e in &self.extents {
                for c in e.start..e.start + e.count {
                    m.set(c, false);
                }
                m.free += e.count;
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
