//! Samples and columns as the blocks that a host writes and reads itself, with `dd` or passthrough commands, in place of a session.
//!
//! A sample, or a column with room for a result, is padded to whole blocks. What describes it travels as a block of its own in the second half of the LBA space, before the
//! data, or as 64 bytes after each block: an *extended* logical block, as a Linux passes it through `/dev/ng0n1`. Where the
//! blocks go, [`Session::reserve`](crate::session::Session::reserve) and [`BlobStore::placement`](crate::blob::BlobStore::placement) tell.

use thiserror::Error;
use toroid_isa::metadata::{MetadataError, ScMetadata};
use toroid_tfhe::TfheError;

use crate::columns::{ColumnError, EncryptedRows};
use crate::session::StoredSample;

/// Why blocks are not a sample, or a sample cannot be put into blocks.
#[derive(Debug, Error)]
pub enum RawError {
    /// The metadata is not valid.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The scheme refused.
    #[error(transparent)]
    Tfhe(#[from] TfheError),
    /// The block size is none that a namespace has.
    #[error("blocks of {0} bytes; expected a power of two from 512 to 65536")]
    BlockSize(u32),
    /// The object is not as long as its metadata says.
    #[error("an object of {found} bytes; expected {expected}, as its metadata says")]
    Length {
        /// Bytes that the metadata states.
        expected: u64,
        /// Bytes found.
        found: usize,
    },
    /// Not a whole number of extended blocks.
    #[error("{found} bytes; expected a multiple of {block}, the size of a block with its metadata")]
    Partial {
        /// Bytes of an extended block.
        block: usize,
        /// Bytes found.
        found: usize,
    },
    /// The metadata says that there is none: plain data.
    #[error("there is no secure computing metadata: these blocks are plain data")]
    Plain,
    /// The blocks do not belong to one object.
    #[error("block {block} does not continue the object of block 0")]
    Discontinuous {
        /// Number of the block.
        block: usize,
    },
    /// They are not a column.
    #[error(transparent)]
    Column(#[from] ColumnError),
    /// An object of another type, or of a parameter set that does not exist or has samples of another size.
    #[error("{0} is not a sample of a known parameter set")]
    NoSample(String),
}

/// A sample or a column as blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Its data, padded with zeroes to whole blocks.
    pub data: Vec<u8>,
    /// The block that describes it in the second half of the LBA space.
    pub metadata_block: Vec<u8>,
    /// Its data as extended logical blocks: each followed by its 64 bytes of metadata.
    pub extended: Vec<u8>,
}

fn check_block_size(block_size: u32) -> Result<usize, RawError> {
    if block_size.is_power_of_two() && (512..=1 << 16).contains(&block_size) {
        Ok(block_size as usize)
    } else {
        Err(RawError::BlockSize(block_size))
    }
}

/// Puts a sample, or a column ([`EncryptedRows::object`]), into logical blocks of `block_size` bytes. `sc` describes it as a whole.
///
/// # Errors
/// [`RawError::BlockSize`], [`RawError::Length`].
pub fn pack(sc: &ScMetadata, object: &[u8], block_size: u32) -> Result<Packed, RawError> {
    let size = check_block_size(block_size)?;
    if object.is_empty() || object.len() as u64 != sc.size() {
        return Err(RawError::Length {
            expected: sc.size(),
            found: object.len(),
        });
    }
    let blocks = object.len().div_ceil(size);
    let mut data = object.to_vec();
    data.resize(blocks * size, 0);
    let whole = sc.with_offset(0)?;
    let mut metadata_block = whole.with_blocks(blocks as u32).to_bytes().to_vec();
    metadata_block.resize(size, 0);
    let mut extended = Vec::with_capacity(blocks * (size + ScMetadata::SIZE));
    for (block, bytes) in data.chunks_exact(size).enumerate() {
        let sc = whole.with_offset((block * size) as u64)?.with_blocks(0);
        extended.extend_from_slice(bytes);
        extended.extend_from_slice(&sc.to_bytes());
    }
    Ok(Packed {
        data,
        metadata_block,
        extended,
    })
}

/// What describes blocks that were read.
fn described(metadata: &[u8]) -> Result<ScMetadata, RawError> {
    let metadata = metadata.get(..ScMetadata::SIZE).unwrap_or(metadata);
    ScMetadata::from_bytes(metadata)?.ok_or(RawError::Plain)
}

/// The sample in blocks that were read, described by `metadata`: 64 bytes, or a block that begins with them.
///
/// # Errors
/// Where the metadata is invalid or absent, or the data is not that of a sample.
pub fn unpack(data: &[u8], metadata: &[u8]) -> Result<StoredSample, RawError> {
    let sc = described(metadata)?;
    let no_sample = || RawError::NoSample(sc.to_string());
    if !sc.vr().ty().is_sample() || sc.column() || sc.offset() != 0 {
        return Err(no_sample());
    }
    let bytes = usize::try_from(sc.size())
        .ok()
        .and_then(|size| data.get(..size))
        .ok_or(RawError::Length {
            expected: sc.size(),
            found: data.len(),
        })?;
    StoredSample::new(sc, bytes)?.ok_or_else(no_sample)
}

/// The column in blocks that were read, described by `metadata` as in [`unpack`].
///
/// # Errors
/// Where the metadata is invalid or absent, or the data is not that of a column.
pub fn unpack_rows(data: &[u8], metadata: &[u8]) -> Result<EncryptedRows, RawError> {
    Ok(EncryptedRows::from_object(&described(metadata)?, data)?)
}

/// The data of extended logical blocks, whose data part has `block_size` bytes, and the metadata of the first.
///
/// # Errors
/// [`RawError::BlockSize`], [`RawError::Partial`], [`RawError::Discontinuous`], and those of the metadata.
pub fn split_extended(extended: &[u8], block_size: u32) -> Result<(Vec<u8>, Vec<u8>), RawError> {
    let size = check_block_size(block_size)?;
    let block = size + ScMetadata::SIZE;
    if extended.is_empty() || !extended.len().is_multiple_of(block) {
        return Err(RawError::Partial {
            block,
            found: extended.len(),
        });
    }
    let (mut data, mut first) = (Vec::with_capacity(extended.len()), None);
    for (number, block) in extended.chunks_exact(block).enumerate() {
        let (bytes, metadata) = block.split_at(size);
        data.extend_from_slice(bytes);
        match first {
            None => first = Some(metadata),
            Some(first) => {
                let sc = ScMetadata::from_bytes(first)?.ok_or(RawError::Plain)?;
                let offset = (number * size) as u64;
                // Blocks beyond the object may hold anything.
                if offset < sc.size() && sc.with_offset(offset)?.to_bytes() != metadata {
                    return Err(RawError::Discontinuous { block: number });
                }
            }
        }
    }
    Ok((data, first.unwrap_or_default().to_vec()))
}

/// [`unpack`] for extended logical blocks.
///
/// # Errors
/// Those of [`unpack`] and [`split_extended`].
pub fn unpack_extended(extended: &[u8], block_size: u32) -> Result<StoredSample, RawError> {
    let (data, metadata) = split_extended(extended, block_size)?;
    unpack(&data, &metadata)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use toroid_isa::VrNumber;
    use toroid_tfhe::noise::StatedNoise;
    use toroid_tfhe::params::{ParamSet, TINY, TINY_WOPBS};

    use super::*;

    fn sample(params: &ParamSet, register: &str, seed: u8) -> (ScMetadata, Vec<u8>) {
        let bytes = (0..params.lwe_bytes())
            .map(|i| (i * 7) as u8 ^ seed)
            .collect::<Vec<_>>();
        let vr: VrNumber = register.parse().unwrap();
        let sc = ScMetadata::new(vr, params.id, bytes.len() as u64)
            .and_then(|sc| sc.with_message(3, true))
            .unwrap()
            .with_noise(Some(-40.0), Some(-100.0));
        (sc, bytes)
    }

    proptest! {
        #[test]
        fn round_trip(seed: u8, log2_block in 9u32..17, wopbs: bool) {
            let params = if wopbs { &TINY_WOPBS } else { &TINY };
            let (sc, bytes) = sample(params, "cow:3:2", seed);
            let block = 1 << log2_block;
            let packed = pack(&sc, &bytes, block).unwrap();
            prop_assert_eq!(packed.data.len() % block as usize, 0);
            prop_assert_eq!(packed.metadata_block.len(), block as usize);
            for stored in [
                unpack(&packed.data, &packed.metadata_block).unwrap(),
                unpack_extended(&packed.extended, block).unwrap(),
            ] {
                prop_assert_eq!(stored.register, sc.vr());
                prop_assert_eq!(stored.computed, sc.computed());
                let found = stored.ciphertext;
                prop_assert_eq!(found.params(), params);
                prop_assert_eq!(found.sample(), &bytes[..]);
                let encoding = found.encoding().unwrap();
                prop_assert_eq!((encoding.bits(), encoding.is_signed()), (3, true));
                let StatedNoise { log2_variance, log2_failure } = found.stated_noise();
                prop_assert!((log2_variance.unwrap() + 40.0).abs() < 1e-6);
                prop_assert_eq!(log2_failure, Some(-100.0));
            }
        }

        #[test]
        fn any_bytes_unpack_or_fail(data: Vec<u8>, metadata: Vec<u8>) {
            let _ = unpack(&data, &metadata);
            let _ = unpack_extended(&data, 512);
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        let (sc, bytes) = sample(&TINY_WOPBS, "cor:0:1", 1);
        assert!(matches!(
            pack(&sc, &bytes, 1000),
            Err(RawError::BlockSize(1000))
        ));
        assert!(matches!(
            pack(&sc, &bytes[1..], 512),
            Err(RawError::Length { .. })
        ));
        let packed = pack(&sc, &bytes, 512).unwrap();
        assert!(matches!(
            unpack(&packed.data, &[0; 512]),
            Err(RawError::Plain)
        ));
        assert!(matches!(
            unpack(&packed.data[..512], &packed.metadata_block),
            Err(RawError::Length { .. })
        ));
        assert!(matches!(
            unpack_extended(&packed.extended[1..], 512),
            Err(RawError::Partial { .. })
        ));
        let mut swapped = packed.extended.clone();
        swapped[576 + 512 + 24] ^= 1;
        assert!(matches!(
            unpack_extended(&swapped, 512),
            Err(RawError::Discontinuous { block: 1 })
        ));
        let vector = ScMetadata::new("tv:0:0".parse().unwrap(), TINY.id, 600).unwrap();
        let error = unpack(&[0; 1024], &vector.to_bytes()).unwrap_err();
        assert!(error.to_string().contains("not a sample"), "{error}");
    }
}
