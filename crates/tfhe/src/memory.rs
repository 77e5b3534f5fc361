//! Large buffers of words in anonymous memory with huge pages, for keys.

use memmap2::MmapMut;

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
