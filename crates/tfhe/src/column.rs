//! Columns of encrypted numbers: many numbers in one ciphertext, small at rest and on the wire.
//!
//! A column is stored in *chunks* of up to [`rows_per_chunk`] consecutive rows. A chunk has one of three forms
//! ([`ColumnForm`]), and any row of it is an LWE sample as every other:
//!
//! * *Seeded*: fresh from the client. A seed stands for the masks ([`MaskSeed::expand_chunk`]), and each row has a body of
//!   [`seeded_width`] bits: 3 to 7 bytes a number. For a set for wide functions a chunk is a GLWE sample, row i being
//!   coefficient i; for any other set each row has a mask of its own under the one seed.
//! * *Packed*: computed; sets for wide functions alone. A GLWE sample that a bootstrapping key packed
//!   ([`crate::any_key::AnyBootstrappingKey::pack_chunk`]), switched to a modulus 2^w of [`packed_width`] bits: its masks, which all rows share, and a
//!   body a row. 9 to 12 bytes a number in a full chunk.
//! * *Expanded*: each row as the LWE sample that it is, 4 to 16 kilobytes a number.
//!
//! The bytes of a column ([`Column`]) are a header ([`ColumnHeader`]) and its chunks, of any forms. The header is a directory of segments ([`Segment`]),
//! each of them consecutive rows of one chunk, so that a column at rest takes and changes rows without a chunk being written again. [`Chunk`] is a chunk in memory: it gives rows, sums of rows, and sums of chunks, without expanding any other row.
//!
//! ```
//! use toroid_tfhe::column::{Chunk, ColumnForm};
//! use toroid_tfhe::encoding::Encoding;
//! use toroid_tfhe::{ClientKey, params::TINY_WOPBS, random::Csprng};
//!
//! let mut rng = Csprng::from_os()?;
//! let client = ClientKey::generate(&TINY_WOPBS, &mut rng); // it protects nothing: use MESSAGE16
//! let encoding = Encoding::new(9, true)?;
//! let bytes = client.encrypt_chunk(&[-3, 100, 255], encoding, &mut rng)?;
//!
//! let chunk = Chunk::new(&TINY_WOPBS, ColumnForm::Seeded, &bytes, 3)?; // without the client key, from here on
//! let last = chunk.sum(2..3)?; // an LWE sample
//! let sum = chunk.sum(0..2)?;
//!
//! assert_eq!(client.decrypt_sample(&last, encoding)?, 255);
//! assert_eq!(client.decrypt_sample(&sum, encoding)?, 97);
//! assert_eq!(client.decrypt_chunk(&chunk, encoding)?, [-3, 100, 255]);
//! # Ok::<(), toroid_tfhe::TfheError>(())
//! ```

mod chunk;
mod client;
mod form;
mod group;
mod header;
mod noise;
mod object;
mod pack;
mod segment;
mod sum;

pub use chunk::{Chunk, expand};
pub use form::{ColumnForm, chunk_bytes, rows_per_chunk};
pub use group::{ChunkSeed, ColumnGroup, GroupColumn, GroupSeed};
pub use header::ColumnHeader;
pub use noise::{packed_rounding, packed_variance, packed_width, seeded_width};
pub use object::{Column, ColumnBytesBuilder, assemble, column_bytes, put_header};
pub(crate) use pack::pack;
pub use segment::Segment;
pub use sum::RowSum;

#[cfg(doc)]
use crate::seeded::MaskSeed;
