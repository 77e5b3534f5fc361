//! Words in pages of their own, and the pool that lends them.
//!
//! A polynomial of 25 limbs at N = 65536 has 13 MB, and fresh pages of that size cost more than an operation on them. So a pool
//! maps regions, lends ranges of their pages, and joins ranges that come back with their free neighbours. The lowest range that
//! has room is lent first: memory is as much as is lent at once, nearly, and pages that were in use a moment ago are still in the cache.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memmap2::{MmapMut, MmapRaw};

/// Words of a page: what is lent is a multiple.
const PAGE: usize = 512;

/// Pages of the smallest and of the largest region, but for one that a single buffer fills.
const REGION: (usize, usize) = (1 << 9, 1 << 16);

/// Words that start on a page, lent by a pool. Memory that is not given back to it with [`Pool::put`] is free with the pool.
#[derive(Debug)]
pub(crate) struct Buffer {
    region: Arc<MmapRaw>,
    /// The first page in the region.
    start: usize,
    words: usize,
}

impl Buffer {
    fn pages(&self) -> usize {
        pages(self.words)
    }

    fn first(&self) -> *mut u64 {
        self.region
            .as_mut_ptr()
            .cast::<u64>()
            .wrapping_add(self.start * PAGE)
    }

    pub(crate) fn words(&self) -> &[u64] {
        // SAFETY: the range lies in the region, which is mapped as long as `self` has it, and starts on a page; pages have words in them from the
        // start. The pool lends a page to one buffer at a time, and `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.first(), self.words) }
    }

    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `words`; `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.first(), self.words) }
    }
}

fn pages(words: usize) -> usize {
    words.div_ceil(PAGE).max(1)
}

/// Mapped pages.
#[derive(Debug)]
struct Region {
    map: Arc<MmapRaw>,
    /// Ranges that are not lent: their first pages and lengths. No two touch.
    free: BTreeMap<usize, usize>,
}

impl Region {
    fn new(pages: usize) -> Region {
        let map = MmapMut::map_anon(pages * PAGE * 8).expect("there is memory for a polynomial");
        // Advice alone: a kernel without huge pages serves the region all the same.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Region {
            map: Arc::new(MmapRaw::from(map)),
            free: BTreeMap::from([(0, pages)]),
        }
    }

    fn pages(&self) -> usize {
        self.map.len() / (PAGE * 8)
    }

    fn take(&mut self, words: usize) -> Option<Buffer> {
        let wanted = pages(words);
        let mut free = self.free.iter();
        let (&start, &found) = free.find(|(_, found)| **found >= wanted)?;
        self.free.remove(&start);
        if found > wanted {
            self.free.insert(start + wanted, found - wanted);
        }
        Some(Buffer {
            region: Arc::clone(&self.map),
            start,
            words,
        })
    }

    fn put(&mut self, mut start: usize, mut pages: usize) {
        if let Some(after) = self.free.remove(&(start + pages)) {
            pages += after;
        }
        if let Some((&before, &length)) = self.free.range(..start).next_back()
            && before + length == start
        {
            (start, pages) = (before, length + pages);
        }
        self.free.insert(start, pages);
    }
}

/// Regions, and what is lent of them.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    regions: Mutex<Vec<Region>>,
}

impl Pool {
    fn regions(&self) -> MutexGuard<'_, Vec<Region>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer of this many words, whatever they are.
    pub(crate) fn take(&self, words: usize) -> Buffer {
        let mut regions = self.regions();
        let lent = regions.iter_mut().find_map(|region| region.take(words));
        lent.unwrap_or_else(|| {
            // As large as all regions so far, so that they are few.
            let all: usize = regions.iter().map(Region::pages).sum();
            let (least, most) = REGION;
            let mut region = Region::new(all.clamp(least, most).max(pages(words)));
            let lent = region.take(words);
            regions.push(region);
            lent.expect("a region has room for what it was made for")
        })
    }

    /// Takes a buffer back.
    pub(crate) fn put(&self, buffer: Buffer) {
        self.put_pages(&buffer, buffer.start, buffer.pages());
    }

    /// Takes back all words of a buffer but the first `words`.
    pub(crate) fn shrink(&self, buffer: &mut Buffer, words: usize) {
        let (keep, had) = (pages(words), buffer.pages());
        buffer.words = words.min(buffer.words);
        if keep < had {
            self.put_pages(buffer, buffer.start + keep, had - keep);
        }
    }

    fn put_pages(&self, buffer: &Buffer, start: usize, pages: usize) {
        let mut regions = self.regions();
        let mut regions = regions.iter_mut();
        if let Some(region) = regions.find(|region| Arc::ptr_eq(&region.map, &buffer.region)) {
            region.put(start, pages);
        }
    }

    /// Gives all pages that are not lent back to the system.
    pub(crate) fn clear(&self) {
        let mut regions = self.regions();
        regions.retain(|region| region.free != BTreeMap::from([(0, region.pages())]));
        #[cfg(target_os = "linux")]
        for region in regions.iter() {
            for (start, pages) in &region.free {
                let (start, bytes) = (start * PAGE * 8, pages * PAGE * 8);
                // SAFETY: the pages are in no buffer, so nobody sees that they become zero. Where the advice is refused, they are kept.
                let _ = unsafe {
                    let advice = memmap2::UncheckedAdvice::DontNeed;
                    region.map.unchecked_advise_range(advice, start, bytes)
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back() {
        let pool = Pool::default();
        let mut buffer = pool.take(10_000);
        assert!(buffer.words().iter().all(|w| *w == 0));
        buffer.words_mut()[9_999] = 7;
        let at = buffer.words().as_ptr();
        let other = pool.take(100);
        assert_ne!(other.words().as_ptr(), at);
        pool.put(other);
        pool.put(buffer);
        let again = pool.take(9_000);
        assert_eq!((again.words().as_ptr(), again.words().len()), (at, 9_000));
        pool.put(again);
        pool.clear();
        assert_eq!(pool.take(10_000).words()[9_999], 0);
    }

    #[test]
    fn neighbours_join_and_rests_are_lent() {
        let pool = Pool::default();
        let [mut first, second, third, last] = [1, 2, 3, 4].map(|number| {
            let mut buffer = pool.take(4 * PAGE);
            buffer.words_mut().fill(number);
            buffer
        });
        let place = first.words().as_ptr();
        pool.put(second);
        pool.put(third);
        // The second and the third are one range now, and the first gives its own end to it.
        pool.shrink(&mut first, PAGE + 1);
        let joined = pool.take(10 * PAGE);
        assert_eq!(joined.words().as_ptr(), place.wrapping_add(2 * PAGE));
        assert!(first.words().len() == PAGE + 1 && first.words().iter().all(|w| *w == 1));
        assert!(last.words().iter().all(|w| *w == 4));
        // Pages in use outlive a clearing, those between them are empty after it.
        pool.put(joined);
        pool.clear();
        assert!(last.words().iter().all(|w| *w == 4));
        if cfg!(target_os = "linux") {
            assert!(pool.take(10 * PAGE).words().iter().all(|w| *w == 0));
        }
    }

    #[test]
    fn large_buffers_have_regions_of_their_own() {
        let pool = Pool::default();
        let small = pool.take(1);
        let large = pool.take(PAGE * (REGION.0 + 1));
        assert_eq!(large.words().len(), PAGE * (REGION.0 + 1));
        pool.put(small);
        pool.put(large);
        assert_eq!(pool.regions().len(), 2);
        pool.clear();
        assert_eq!(pool.regions().len(), 0);
    }
}
