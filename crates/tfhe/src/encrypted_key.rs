//! Client keys in files, encrypted under a passphrase.
//!
//! The file is an object of [`crate::serialize`] whose payload is
//!
//! | bytes | field |
//! | --- | --- |
//! | 0-1 | version, 1: Argon2id 1.3 and XChaCha20-Poly1305 |
//! | 2-3 | lanes of Argon2id |
//! | 4-7 | its memory, KiB |
//! | 8-11 | its passes |
//! | 12-27 | its salt, random |
//! | 28-51 | nonce of the cipher, random |
//! | 52- | the packed key bits of an unencrypted file, encrypted |
//! | the last 16 | tag of Poly1305 |
//!
//! Argon2id (RFC 9106) makes the cipher's 32-byte key from the passphrase's bytes and the salt. The associated data are the file's header and
//! bytes 0-51, so that whoever changes the parameter set or the key's tag is found out as well.

use std::io::{Read, Write};

use argon2::{Algorithm, Argon2, Block, Params, Version};
use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use zeroize::Zeroizing;

use crate::TfheError;
use crate::keys::ClientKey;
use crate::random::Csprng;
use crate::serialize::{
    self, ENCRYPTION_HEAD_BYTES, ENCRYPTION_TAG_BYTES, Header, Kind, ObjectReader,
};

const VERSION: u16 = 1;
const SALT_BYTES: usize = 16;
const NONCE_BYTES: usize = 24;

/// What each guess of a passphrase costs: the parameters of Argon2id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Memory in KiB, at least 8 for each lane.
    pub memory_kib: u32,
    /// Passes over the memory.
    pub passes: u32,
    /// Lanes, which an attacker can fill side by side.
    pub lanes: u16,
}

impl Default for Cost {
    /// The second recommended option of RFC 9106: 64 MiB, 3 passes, 4 lanes.
    fn default() -> Cost {
        Cost {
            memory_kib: 64 << 10,
            passes: 3,
            lanes: 4,
        }
    }
}

impl Cost {
    /// What a file may ask of its reader: 2 GiB, as the first recommended option of RFC 9106 does, and 64 passes.
    const MOST: Cost = Cost {
        memory_kib: 2 << 20,
        passes: 64,
        lanes: 64,
    };

    fn check(self) -> Result<Params, TfheError> {
        let most = Cost::MOST;
        if self.memory_kib > most.memory_kib || self.passes > most.passes || self.lanes > most.lanes
        {
            return Err(TfheError::Format(format!(
                "Argon2id with {} KiB, {} passes and {} lanes is beyond the limits of {} KiB, {} and {}",
                self.memory_kib, self.passes, self.lanes, most.memory_kib, most.passes, most.lanes
            )));
        }
        Params::new(self.memory_kib, self.passes, self.lanes.into(), Some(32)).map_err(refused)
    }

    /// The cipher under a passphrase's key.
    fn cipher(self, passphrase: &[u8], salt: &[u8]) -> Result<XChaCha20Poly1305, TfheError> {
        let params = self.check()?;
        let mut memory = Zeroizing::new(vec![Block::default(); params.block_count()]);
        let mut key = Zeroizing::new([0; 32]);
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into_with_memory(passphrase, salt, key.as_mut(), memory.as_mut_slice())
            .map_err(refused)?;
        Ok(XChaCha20Poly1305::new((&*key).into()))
    }
}

fn refused(error: argon2::Error) -> TfheError {
    TfheError::Format(format!("Argon2id: {error}"))
}

fn associated_data(header: &Header, head: &[u8]) -> Vec<u8> {
    [header.to_bytes().as_slice(), head].concat()
}

/// Writes secret keys, encrypted. Salt and nonce come from `rng`.
///
/// # Errors
/// [`TfheError::Io`]; [`TfheError::Format`] for an empty passphrase or a cost beyond the limits.
pub fn write<W: Write>(
    inner: W,
    key: &ClientKey,
    passphrase: &[u8],
    cost: Cost,
    rng: &mut Csprng,
) -> Result<W, TfheError> {
    if passphrase.is_empty() {
        return Err(TfheError::Format("the passphrase is empty".into()));
    }
    let header = Header::new(Kind::EncryptedClientKey, key.params(), *key.tag());
    let salt: [u8; SALT_BYTES] = rng.public_bytes();
    let nonce: [u8; NONCE_BYTES] = rng.public_bytes();
    let head = [
        &VERSION.to_le_bytes()[..],
        &cost.lanes.to_le_bytes(),
        &cost.memory_kib.to_le_bytes(),
        &cost.passes.to_le_bytes(),
        &salt,
        &nonce,
    ]
    .concat();
    let cipher = cost.cipher(passphrase, &salt)?;
    let mut bits = key.to_packed_bits();
    let tag = cipher
        .encrypt_inout_detached(
            &nonce.into(),
            &associated_data(&header, &head),
            bits.as_mut_slice().into(),
        )
        .expect("the cipher takes 256 GiB");
    serialize::write_object(inner, &header, &[&head, &bits[..], &tag].concat())
}

/// Reads secret keys that [`write()`] encrypted, from a reader that has read the file's header.
///
/// # Errors
/// [`TfheError::Passphrase`] for another passphrase or a file that somebody changed; [`TfheError::Io`]; [`TfheError::Format`] for a file of
/// another kind, damage, another version, or a cost beyond the limits.
pub fn read<R: Read>(reader: ObjectReader<R>, passphrase: &[u8]) -> Result<ClientKey, TfheError> {
    reader.header().expect(Kind::EncryptedClientKey)?;
    let (header, mut payload) = reader.read_all()?;
    let (head, rest) = payload.split_at_mut(ENCRYPTION_HEAD_BYTES);
    let (bits, tag) = rest.split_at_mut(rest.len() - ENCRYPTION_TAG_BYTES);
    let (numbers, random) = head.split_at(ENCRYPTION_HEAD_BYTES - SALT_BYTES - NONCE_BYTES);
    let (salt, nonce) = random.split_at(SALT_BYTES);
    let u16_at = |at: usize| u16::from_le_bytes([numbers[at], numbers[at + 1]]);
    let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
    if u16_at(0) != VERSION {
        return Err(TfheError::Format(format!(
            "the client key is encrypted in the way {}; this program knows the way {VERSION}",
            u16_at(0)
        )));
    }
    let cost = Cost {
        lanes: u16_at(2),
        memory_kib: u32_at(4),
        passes: u32_at(8),
    };
    let cipher = cost.cipher(passphrase, salt)?;
    let nonce: [u8; NONCE_BYTES] = nonce.try_into().expect("the head ends with the nonce");
    let tag: [u8; ENCRYPTION_TAG_BYTES] =
        (&*tag).try_into().expect("the payload ends with the tag");
    cipher
        .decrypt_inout_detached(
            &nonce.into(),
            &associated_data(&header, head),
            (&mut *bits).into(),
            &tag.into(),
        )
        .map_err(|_| TfheError::Passphrase)?;
    ClientKey::from_packed_bits(&header.params, header.tag, bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{MESSAGE7, TINY};
    use crate::serialize::ENCRYPTION_BYTES;

    const QUICK: Cost = Cost {
        memory_kib: 32,
        passes: 1,
        lanes: 2,
    };

    fn file() -> (ClientKey, Vec<u8>) {
        let mut rng = Csprng::from_seed([1; 32]);
        let key = ClientKey::generate(&TINY, &mut rng);
        let file = write(Vec::new(), &key, b"open sesame", QUICK, &mut rng).unwrap();
        (key, file)
    }

    fn opened(file: &[u8], passphrase: &[u8]) -> Result<ClientKey, TfheError> {
        read(ObjectReader::new(file)?, passphrase)
    }

    #[test]
    fn an_encrypted_key_comes_back_with_its_passphrase_alone() {
        let (key, file) = file();
        let back = opened(&file, b"open sesame").unwrap();
        assert_eq!(*back.to_packed_bits(), *key.to_packed_bits());
        assert_eq!(back.tag(), key.tag());
        for wrong in [&b""[..], b"open sesame ", b"Open sesame"] {
            let error = opened(&file, wrong).unwrap_err();
            assert!(matches!(error, TfheError::Passphrase), "{error}");
        }
        assert_eq!(ENCRYPTION_BYTES, 68);
        let bits = key.to_packed_bits();
        assert!(
            !file
                .windows(8)
                .any(|window| bits.windows(8).any(|bits| bits == window))
        );
    }

    #[test]
    fn a_changed_file_is_refused_though_its_checksums_match() {
        let (_, file) = file();
        let (header, payload) = ObjectReader::new(file.as_slice())
            .unwrap()
            .read_all()
            .unwrap();
        let refused = |header: &Header, payload: &[u8]| {
            let file = serialize::write_object(Vec::new(), header, payload).unwrap();
            opened(&file, b"open sesame").unwrap_err()
        };
        for at in [12, 27, 28, 51, 52, payload.len() - 17, payload.len() - 1] {
            let mut changed = payload.to_vec();
            changed[at] ^= 1;
            let error = refused(&header, &changed);
            assert!(matches!(error, TfheError::Passphrase), "byte {at}: {error}");
        }
        let other = Header {
            tag: [9; 16],
            ..header.clone()
        };
        assert!(matches!(refused(&other, &payload), TfheError::Passphrase));
    }

    #[test]
    fn a_file_cannot_ask_for_all_of_the_memory() {
        let (_, file) = file();
        let (header, payload) = ObjectReader::new(file.as_slice())
            .unwrap()
            .read_all()
            .unwrap();
        for (at, byte, words) in [
            (0, 2, "the way 2"),
            (3, 1, "lanes"),
            (7, 1, "KiB"),
            (11, 1, "passes"),
            (8, 0, "Argon2id"),
            (2, 0, "Argon2id"),
        ] {
            let mut changed = payload.to_vec();
            changed[at] = byte;
            let file = serialize::write_object(Vec::new(), &header, &changed).unwrap();
            let error = opened(&file, b"open sesame").unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn the_format_is_the_one_that_files_have() {
        // Made by this program; the layout and both algorithms are a promise.
        let key = ClientKey::generate(&TINY, &mut Csprng::from_seed([2; 32]));
        let mut rng = Csprng::from_seed([3; 32]);
        let file = write(Vec::new(), &key, b"x", Cost::default(), &mut rng).unwrap();
        assert_eq!(&file[8..12], &[1, 0, 8, 0]);
        assert_eq!(&file[64..76], &[1, 0, 4, 0, 0, 0, 1, 0, 3, 0, 0, 0]);
        let bytes = Kind::EncryptedClientKey.payload_bytes(&MESSAGE7);
        assert_eq!(bytes, 68 + (1060u64 + 16384).div_ceil(8));
    }

    #[test]
    fn an_empty_passphrase_is_refused() {
        let mut rng = Csprng::from_seed([1; 32]);
        let key = ClientKey::generate(&TINY, &mut rng);
        assert!(write(Vec::new(), &key, b"", QUICK, &mut rng).is_err());
    }
}
