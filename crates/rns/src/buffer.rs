//! Words in pages of their own, and the pool that keeps them for the next polynomial.
//!
//! A polynomial of 25 limbs at N = 65536 has 13 MB. Fresh pages of that size cost more than an operation on them, so a
//! context keeps the pages of polynomials that were dropped.

use std::sync::{Mutex, MutexGuard, PoisonError};

use memmap2::MmapMut;

/// Words that start on a page. The pages may be more than the words need.
#[derive(Debug)]
pub(crate) struct Buffer {
    map: MmapMut,
    words: usize,
}

impl Buffer {
    fn new(words: usize) -> Buffer {
        let map = MmapMut::map_anon((words * 8).max(1)).expect("there is memory for a polynomial");
        // Advice alone: a kernel without huge pages serves the buffer all the same.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Buffer { map, words }
    }

    fn capacity(&self) -> usize {
        self.map.len() / 8
    }

    pub(crate) fn words(&self) -> &[u64] {
        bytemuck::cast_slice(&self.map[..self.words * 8])
    }

    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        bytemuck::cast_slice_mut(&mut self.map[..self.words * 8])
    }

    /// Forgets all words but the first `words`.
    pub(crate) fn truncate(&mut self, words: usize) {
        self.words = self.words.min(words);
    }
}

/// Buffers that are not in use.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: Mutex<Vec<Buffer>>,
}

impl Pool {
    fn free(&self) -> MutexGuard<'_, Vec<Buffer>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer of this many words, whatever they are.
    pub(crate) fn take(&self, words: usize) -> Buffer {
        let mut free = self.free();
        // The smallest that has room, and is not mostly empty with these words in it.
        let best = (0..free.len())
            .filter(|&i| (words..=2 * words).contains(&free[i].capacity()))
            .min_by_key(|&i| free[i].capacity());
        match best {
            Some(index) => {
                let mut buffer = free.swap_remove(index);
                buffer.words = words;
                buffer
            }
            None => Buffer::new(words),
        }
    }

    /// Keeps a buffer.
    pub(crate) fn put(&self, buffer: Buffer) {
        self.free().push(buffer);
    }

    /// Gives all buffers that are not in use back to the system.
    pub(crate) fn clear(&self) {
        self.free().clear();
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
        pool.put(buffer);
        assert_ne!(pool.take(100).words().as_ptr(), at);
        let again = pool.take(9_000);
        assert_eq!((again.words().as_ptr(), again.words().len()), (at, 9_000));
        pool.put(again);
        pool.clear();
        assert_eq!(pool.take(10_000).words()[9_999], 0);
    }
}
