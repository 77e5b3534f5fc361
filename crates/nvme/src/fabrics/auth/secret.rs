//! Secrets and their representation (Base Specification, "Secret Representation" and "Transformed Key").

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64, Encoding};
use thiserror::Error;
use zeroize::Zeroizing;

use super::AuthHash;

const PREFIX: &str = "DHHC-1:";
const CRC_LEN: usize = 4;
const KEY_LABEL: &[u8] = b"NVMe-over-Fabrics";

/// Why a text is not `PREFIX:HH:BASE64:`.
pub(super) enum TextError {
    Form,
    Base64,
}

impl From<TextError> for SecretError {
    fn from(error: TextError) -> SecretError {
        match error {
            TextError::Form => SecretError::Form,
            TextError::Base64 => SecretError::Base64,
        }
    }
}

/// What a text holds.
pub(super) struct Decoded<'a> {
    /// Identifier of the hash function.
    pub(super) id: &'a str,
    /// The key, of any length.
    pub(super) key: Zeroizing<Vec<u8>>,
    /// Whether the checksum is the key's.
    pub(super) intact: bool,
}

/// The text of a key that is transformed with the hash function `transform`.
pub(super) fn encode(prefix: &str, transform: Option<AuthHash>, key: &[u8]) -> Zeroizing<String> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(key.len() + CRC_LEN));
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(&crc32fast::hash(key).to_le_bytes());
    let base64 = Zeroizing::new(Base64::encode_string(&bytes));
    let id = transform.map_or(0, AuthHash::id);
    Zeroizing::new(format!("{prefix}{id:02}:{}:", *base64))
}

/// Reads what [`encode`] writes.
pub(super) fn decode<'a>(prefix: &str, text: &'a str) -> Result<Decoded<'a>, TextError> {
    let (id, base64) = text
        .strip_prefix(prefix)
        .and_then(|rest| rest.strip_suffix(':'))
        .and_then(|rest| rest.split_once(':'))
        .ok_or(TextError::Form)?;
    let bytes = Zeroizing::new(Base64::decode_vec(base64).map_err(|_| TextError::Base64)?);
    let (key, crc) = bytes.split_at(bytes.len().saturating_sub(CRC_LEN));
    Ok(Decoded {
        id,
        key: Zeroizing::new(key.to_vec()),
        intact: crc == crc32fast::hash(key).to_le_bytes(),
    })
}

/// Key of a host or of a subsystem, `DHHC-1:HH:...:` in text. It is cleared when dropped, and `Debug` hides it.
#[derive(Clone)]
pub struct Secret {
    transform: Option<AuthHash>,
    key: Zeroizing<Vec<u8>>,
}

/// Why a text is not a [`Secret`], or a key cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SecretError {
    /// The text does not have the form of a secret.
    #[error("expected a secret of the form DHHC-1:HH:BASE64:")]
    Form,
    /// An unknown hash function.
    #[error("expected 00, 01, 02 or 03 as hash function of a secret")]
    Hash,
    /// The key is not in Base64.
    #[error("the key of a secret is not in Base64")]
    Base64,
    /// The key has a length that the specification does not allow.
    #[error("expected a key of 32, 48 or 64 bytes, found {0}")]
    Length(usize),
    /// The checksum after the key is not the key's.
    #[error("the CRC-32 of a secret is wrong: a character of it is mistyped or missing")]
    Checksum,
    /// The operating system gave no random numbers.
    #[error("no random numbers from the operating system")]
    Random,
}

impl Secret {
    /// The secret of `key`, 32, 48 or 64 bytes long, which is transformed with the hash function `transform` before use.
    pub fn new(transform: Option<AuthHash>, key: &[u8]) -> Result<Secret, SecretError> {
        check_len(key.len())?;
        Ok(Secret {
            transform,
            key: Zeroizing::new(key.to_vec()),
        })
    }

    /// A random secret that is transformed with `hash`, as long as its output.
    pub fn generate(hash: AuthHash) -> Result<Secret, SecretError> {
        let mut key = Zeroizing::new(vec![0; hash.output_len()]);
        getrandom::fill(&mut key).map_err(|_| SecretError::Random)?;
        Ok(Secret {
            transform: Some(hash),
            key,
        })
    }

    /// The text `DHHC-1:HH:BASE64:`, which holds the key in clear; [`FromStr`] reads it.
    pub fn to_text(&self) -> Zeroizing<String> {
        encode(PREFIX, self.transform, &self.key)
    }

    /// The key that HMACs of the entity `nqn` are computed with.
    pub(super) fn transformed(&self, nqn: &str) -> Zeroizing<Vec<u8>> {
        match self.transform {
            None => self.key.clone(),
            Some(hash) => hash.hmac(&self.key, &[nqn.as_bytes(), KEY_LABEL]),
        }
    }
}

impl FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Secret, SecretError> {
        let decoded = decode(PREFIX, text)?;
        let transform = match decoded.id {
            "00" => None,
            "01" => Some(AuthHash::Sha256),
            "02" => Some(AuthHash::Sha384),
            "03" => Some(AuthHash::Sha512),
            _ => return Err(SecretError::Hash),
        };
        let secret = Secret::new(transform, &decoded.key)?;
        if !decoded.intact {
            return Err(SecretError::Checksum);
        }
        Ok(secret)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret")
            .field("transform", &self.transform)
            .finish_non_exhaustive()
    }
}

fn check_len(len: usize) -> Result<(), SecretError> {
    if AuthHash::ALL.iter().any(|hash| hash.output_len() == len) {
        Ok(())
    } else {
        Err(SecretError::Length(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";

    /// What `nvme gen-dhchap-key --hmac=H --nqn=NQN --secret=000102...` of nvme-cli 2.3 prints for a key of the hash's length: the key
    /// transformed for NQN, in the representation of a secret.
    const NVME_CLI: [(Option<AuthHash>, &str); 4] = [
        (
            None,
            "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
        ),
        (
            Some(AuthHash::Sha256),
            "DHHC-1:01:bOHk6jHoMxpP5YJr/eF6XNOGuPAzh0iRniebpsVb9ydqVuR5:",
        ),
        (
            Some(AuthHash::Sha384),
            "DHHC-1:02:JzgkyQ7IBRNgZgoVJQTRqDZ62Hnj5/kZ+vrrqjiE4TzoZZv5ycVS5cOLCiZ1bQfVVxJqow==:",
        ),
        (
            Some(AuthHash::Sha512),
            "DHHC-1:03:D+Ucidhr9Oh00yaKCrMLB2s2c/hsojlyxwni12p59UZ78f4YQ6UMpEcQG4yaPnLJFkljK+euytryvvQe2rYShiu0Vv0=:",
        ),
    ];

    fn counting_key(len: usize) -> Vec<u8> {
        (0..len as u8).collect()
    }

    #[test]
    fn representation_and_transformation_are_those_of_nvme_cli() {
        for (transform, text) in NVME_CLI {
            let len = transform.map_or(32, AuthHash::output_len);
            let key = Secret::new(transform, &counting_key(len)).unwrap();
            let printed: Secret = text.parse().unwrap();
            assert_eq!(printed.transform, transform);
            assert_eq!(printed.key, key.transformed(NQN));
            assert_eq!(*printed.to_text(), text);
        }
    }

    #[test]
    fn transformation_depends_on_the_name() {
        let secret = Secret::new(Some(AuthHash::Sha256), &counting_key(32)).unwrap();
        assert_ne!(secret.transformed(NQN), secret.transformed("nqn.other"));
    }

    #[test]
    fn says_what_is_wrong_with_a_text() {
        let good = NVME_CLI[0].1;
        let crc_of_short = crc32fast::hash(&[0; 31]).to_le_bytes();
        let short = Base64::encode_string(&[&[0; 31], &crc_of_short[..]].concat());
        let cases = [
            ("", SecretError::Form),
            ("DHHC-1", SecretError::Form),
            ("DHHC-1:", SecretError::Form),
            ("DHHC-1::", SecretError::Form),
            (good.trim_end_matches(':'), SecretError::Form),
            (&good.replace("DHHC-1", "DHHC-2"), SecretError::Form),
            (&good.replace(":00:", ":04:"), SecretError::Hash),
            (&good.replace(":00:", ":0:"), SecretError::Hash),
            (&good.replace("AAEC", "AAE*"), SecretError::Base64),
            (&good.replace("AAEC", "AAED"), SecretError::Checksum),
            (&good.replace("AAEC", ""), SecretError::Length(29)),
            ("DHHC-1:00::", SecretError::Length(0)),
            (&format!("DHHC-1:00:{short}:"), SecretError::Length(31)),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse::<Secret>().unwrap_err(), expected, "{text}");
        }
        assert_eq!(
            Secret::new(None, &[0; 16]).unwrap_err(),
            SecretError::Length(16)
        );
    }

    #[test]
    fn generated_secrets_differ_and_survive_text() {
        for hash in AuthHash::ALL {
            let secret = Secret::generate(hash).unwrap();
            assert_eq!(secret.key.len(), hash.output_len());
            assert_ne!(secret.key, Secret::generate(hash).unwrap().key);
            let read: Secret = secret.to_text().parse().unwrap();
            assert_eq!((read.transform, &read.key), (Some(hash), &secret.key));
        }
    }

    #[test]
    fn debug_hides_the_key() {
        let secret = Secret::new(None, &[0xAB; 32]).unwrap();
        assert_eq!(format!("{secret:?}"), "Secret { transform: None, .. }");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(DHHC-1:)?(0[0-4]:)?[A-Za-z0-9+/=:é]{0,100}:?") {
            let _ = text.parse::<Secret>();
        }
    }
}
