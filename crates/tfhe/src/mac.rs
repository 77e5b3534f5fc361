//! Message authentication codes of a client, under keys that follow from its client key.
//!
//! ```
//! use toroid_tfhe::{ClientKey, params::TINY, random::Csprng};
//!
//! let client = ClientKey::generate(&TINY, &mut Csprng::from_os()?); // TINY protects nothing: it is for tests
//! let key = client.mac_key("an example");
//! let code = key.code(&[b"register 1", b"version 2"]);
//! assert!(key.verify(&[b"register 1", b"version 2"], &code));
//! assert!(!key.verify(&[b"register 12", b"version "], &code));
//! # Ok::<(), toroid_tfhe::TfheError>(())
//! ```

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::keys::{ClientKey, KeyTag};

/// A message authentication code: HMAC-SHA-256, 32 bytes.
pub type Code = [u8; 32];

/// A key for message authentication codes of one purpose.
#[derive(Clone)]
pub struct MacKey {
    tag: KeyTag,
    key: Zeroizing<Code>,
}

impl std::fmt::Debug for MacKey {
    /// The public part only.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MacKey")
            .field("tag", &self.tag)
            .finish_non_exhaustive()
    }
}

impl ClientKey {
    /// The key for codes of this purpose: HKDF-SHA-256 (RFC 5869) of all key bits, with the tag as salt and the purpose as info. It says
    /// nothing of the client key, nor of the keys for other purposes.
    #[must_use]
    pub fn mac_key(&self, purpose: &str) -> MacKey {
        let bits = self.to_packed_bits();
        let extracted = Zeroizing::new(hmac(self.tag(), &[&bits]));
        // One block of output, which is number 1.
        let expanded = hmac(&*extracted, &[purpose.as_bytes(), &[1]]);
        MacKey {
            tag: *self.tag(),
            key: Zeroizing::new(expanded),
        }
    }
}

impl MacKey {
    /// The tag of the client key.
    #[must_use]
    pub fn tag(&self) -> &KeyTag {
        &self.tag
    }

    /// The code of a list of byte strings.
    #[must_use]
    pub fn code(&self, parts: &[&[u8]]) -> Code {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// Whether a code, or at least 16 bytes from its start, is that of a list of byte strings; in constant time.
    #[must_use]
    pub fn verify(&self, parts: &[&[u8]], code: &[u8]) -> bool {
        code.len() >= 16 && self.mac(parts).verify_truncated_left(code).is_ok()
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = keyed(&*self.key);
        for part in parts {
            // With its length, so that no other list gives the same bytes.
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> Code {
    let mut mac = keyed(key);
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::TINY;
    use crate::random::Csprng;

    #[test]
    fn derivation_is_hkdf() {
        // RFC 5869, test case 1: the first 32 bytes of the output.
        let hex = |text: &str| -> Vec<u8> {
            let digits = text.as_bytes().chunks(2);
            digits
                .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
                .collect()
        };
        let extracted = hmac(&hex("000102030405060708090a0b0c"), &[&[0x0b; 22]]);
        let expanded = hmac(&extracted, &[&hex("f0f1f2f3f4f5f6f7f8f9"), &[1]]);
        let expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf";
        assert_eq!(expanded.to_vec(), hex(expected));
    }

    #[test]
    fn keys_differ_by_client_and_purpose() {
        let mut rng = Csprng::from_os().unwrap();
        let [one, other] = [(); 2].map(|()| ClientKey::generate(&TINY, &mut rng));
        let code = one.mac_key("a").code(&[b"x"]);
        assert!(one.mac_key("a").verify(&[b"x"], &code));
        assert!(one.mac_key("a").verify(&[b"x"], &code[..16]));
        for wrong in [one.mac_key("b"), other.mac_key("a")] {
            assert!(!wrong.verify(&[b"x"], &code));
        }
        for (parts, code) in [
            (&[&b"x"[..]][..], &code[..15]),
            (&[b"x", b""], &code[..]),
            (&[b"y"], &code[..]),
        ] {
            assert!(!one.mac_key("a").verify(parts, code));
        }
    }
}
