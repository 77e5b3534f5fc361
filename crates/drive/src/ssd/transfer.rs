//! What the engines move: a buffer to or from the file, and whom to tell.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use aligned_vec::{AVec, ConstAlign, avec};

/// Told how a transfer ended, on a thread of the engine; gets the buffer back.
pub(super) type Finish = Box<dyn FnOnce(io::Result<()>, Buffer) + Send>;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

pub(super) struct Transfer {
    pub(super) kind: Kind,
    pub(super) buffer: Buffer,
    /// Byte of the file.
    pub(super) offset: u64,
    /// Bytes moved so far.
    pub(super) done: usize,
    pub(super) finish: Finish,
}

impl Transfer {
    /// Ends the transfer. A panic of whom it tells does not reach the engine.
    pub(super) fn end(self, result: io::Result<()>) {
        let Transfer { buffer, finish, .. } = self;
        guarded(|| finish(result, buffer));
    }

    /// Ends a transfer whose buffer the kernel may still use: the buffer is lost.
    pub(super) fn abandon(self, error: io::Error) {
        let Transfer { buffer, finish, .. } = self;
        std::mem::forget(buffer);
        guarded(|| finish(Err(error), Buffer::default()));
    }
}

/// Tells whom an operation was for. Their panic does not reach the thread that tells them.
pub(super) fn guarded(tell: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(tell)).is_err() {
        tracing::error!("the completion of an SSD command ended in a panic");
    }
}

/// Alignment of a buffer in memory for direct I/O: no device asks for more.
pub(super) const DIRECT_ALIGNMENT: usize = 4096;

/// Bytes that lie where direct I/O needs them.
pub(super) type Aligned = AVec<u8, ConstAlign<DIRECT_ALIGNMENT>>;

/// What a transfer moves.
pub(super) enum Buffer {
    Anywhere(Vec<u8>),
    Aligned(Aligned),
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer::Anywhere(Vec::new())
    }
}

impl Buffer {
    /// Takes the content of `bytes`, and the bytes themselves if they may lie anywhere.
    pub(super) fn new(bytes: Vec<u8>, direct: bool) -> Buffer {
        if direct && !is_aligned(&bytes) {
            return Buffer::Aligned(AVec::from_slice(DIRECT_ALIGNMENT, &bytes));
        }
        Buffer::Anywhere(bytes)
    }

    pub(super) fn content(&self) -> &[u8] {
        match self {
            Buffer::Anywhere(bytes) => bytes,
            Buffer::Aligned(bytes) => bytes,
        }
    }

    pub(super) fn content_mut(&mut self) -> &mut [u8] {
        match self {
            Buffer::Anywhere(bytes) => bytes,
            Buffer::Aligned(bytes) => bytes,
        }
    }

    pub(super) fn into_vec(self) -> Vec<u8> {
        match self {
            Buffer::Anywhere(bytes) => bytes,
            Buffer::Aligned(bytes) => bytes.to_vec(),
        }
    }
}

/// `len` zeroes.
pub(super) fn zeroes(len: usize) -> Aligned {
    avec![[DIRECT_ALIGNMENT]| 0; len]
}

pub(super) fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().align_offset(DIRECT_ALIGNMENT) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_keep_their_content_and_are_aligned_where_needed() {
        for len in [0, 1, 512, 4096, 10000] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            for direct in [false, true] {
                let buffer = Buffer::new(bytes.clone(), direct);
                assert!(!direct || len == 0 || is_aligned(buffer.content()));
                assert_eq!(buffer.content(), bytes);
                assert_eq!(buffer.into_vec(), bytes);
            }
        }
    }
}
