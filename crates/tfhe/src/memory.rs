//! Buffers of words in anonymous memory: with huge pages for public keys, locked for secret ones.

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;
use zeroize::Zeroize;

use crate::TfheError;

/// A zeroed buffer of `u64` words. Keys of gigabytes are read as one stream; huge pages spare the address translation.
pub(crate) struct Buffer {
    map: MmapMut,
    words: usize,
}

impl Buffer {
    /// A buffer of this many words.
    pub(crate) fn new(words: usize) -> Result<Buffer, TfheError> {
        let map = MmapMut::map_anon((words * 8).max(1))?;
        // Advice alone: a kernel without huge pages serves the buffer all the same.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Buffer { map, words })
    }

    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        bytemuck::cast_slice_mut(&mut self.map[..self.words * 8])
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map[..self.words * 8]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.map[..self.words * 8]
    }
}

/// Words of a secret key, in pages of their own. The pages are locked, so that they are never swapped out, and left out of
/// core dumps, as far as the system permits; they are cleared when they are dropped.
pub(crate) struct SecretWords {
    map: MmapMut,
    words: usize,
    locked: bool,
}

impl SecretWords {
    /// Zeroed words.
    ///
    /// # Panics
    /// Where there is no memory left, as vectors do.
    pub(crate) fn new(words: usize) -> SecretWords {
        let map = MmapMut::map_anon((words * 8).max(1)).expect("there is memory for a key");
        #[cfg(unix)]
        let locked = map.lock().is_ok();
        #[cfg(not(unix))]
        let locked = false;
        // Every kernel since 3.4 takes this advice on anonymous memory.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::DontDump);
        SecretWords { map, words, locked }
    }

    /// Words that are known to be 0 or 1.
    pub(crate) fn from_bits(bits: impl ExactSizeIterator<Item = u64>) -> SecretWords {
        let mut words = SecretWords::new(bits.len());
        for (word, bit) in words.iter_mut().zip(bits) {
            *word = bit;
        }
        words
    }

    /// Refuses words other than 0 and 1, and words that are all 0, under which nothing is secret.
    pub(crate) fn checked(self) -> Result<SecretWords, TfheError> {
        match self.iter().fold(0, |seen, bit| seen | bit) {
            1 => Ok(self),
            0 => Err(TfheError::Format("all bits of a secret key are 0".into())),
            _ => Err(TfheError::Format(
                "a secret key has words other than 0 and 1".into(),
            )),
        }
    }

    /// Whether the pages are locked into memory.
    pub(crate) fn is_locked(&self) -> bool {
        self.locked
    }
}

impl Deref for SecretWords {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        bytemuck::cast_slice(&self.map[..self.words * 8])
    }
}

impl DerefMut for SecretWords {
    fn deref_mut(&mut self) -> &mut [u64] {
        bytemuck::cast_slice_mut(&mut self.map[..self.words * 8])
    }
}

impl Clone for SecretWords {
    fn clone(&self) -> SecretWords {
        let mut clone = SecretWords::new(self.words);
        clone.copy_from_slice(self);
        clone
    }
}

impl Drop for SecretWords {
    fn drop(&mut self) {
        self.zeroize();
    }
}
