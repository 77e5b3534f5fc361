//! The computational drive: bridge between host, SSD and engine, secure computing metadata, paging to the SSD.

pub mod image;
pub mod metadata;
pub mod ssd;
