//! Pre-shared keys of TLS (NVMe TCP Transport Specification 1.1, "Transport Layer Security"; TP 8018): their text, what both sides derive from
//! them, and the identities under which a host offers them.

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64, Encoding};
use subtle::ConstantTimeEq;
use thiserror::Error;
use zeroize::Zeroizing;

use super::AuthHash;
use super::secret::{TextError, decode, encode};

const PREFIX: &str = "NVMeTLSkey-1:";
const DIGEST_LABEL: &[u8] = b" NVMe-over-Fabrics";
const RETAINED_LABEL: &str = "HostNQN";
const TLS_LABEL: &str = "nvme-tls-psk";

/// The key that a host and a subsystem share for TLS, `NVMeTLSkey-1:HH:...:` in text: the specification's configured PSK. It is cleared when
/// dropped, and `Debug` hides it.
#[derive(Clone)]
pub struct TlsKey {
    transform: Option<AuthHash>,
    key: Zeroizing<Vec<u8>>,
}

/// Why a text is not a [`TlsKey`], or bytes cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TlsKeyError {
    /// The text does not have the form of a key.
    #[error("expected a TLS key of the form NVMeTLSkey-1:HH:BASE64:")]
    Form,
    /// Not a hash function of a cipher suite.
    #[error("expected 00, 01 (SHA-256) or 02 (SHA-384) as hash function of a TLS key")]
    Hash,
    /// The key is not in Base64.
    #[error("the TLS key is not in Base64")]
    Base64,
    /// The key is not as long as the output of its hash function.
    #[error("expected a TLS key of 32 bytes for SHA-256 or 48 bytes for SHA-384, found {0}")]
    Length(usize),
    /// The checksum after the key is not the key's.
    #[error("the CRC-32 of the TLS key is wrong: a character of it is mistyped or missing")]
    Checksum,
    /// The operating system gave no random numbers.
    #[error("no random numbers from the operating system")]
    Random,
}

impl From<TextError> for TlsKeyError {
    fn from(error: TextError) -> TlsKeyError {
        match error {
            TextError::Form => TlsKeyError::Form,
            TextError::Base64 => TlsKeyError::Base64,
        }
    }
}

/// What TLS takes: a secret of 32 or 48 bytes, and the identity under which the host offers it.
#[derive(Clone)]
pub struct TlsPsk {
    /// `NVMe1R01 HOSTNQN SUBNQN DIGEST`.
    pub identity: String,
    /// Hash function of the cipher suite: SHA-256 or SHA-384.
    pub hash: AuthHash,
    /// The secret.
    pub secret: Zeroizing<Vec<u8>>,
}

/// A key that both sides have from an authentication: the specification's generated PSK (TP 8025). It is cleared when dropped.
#[derive(Clone)]
pub struct GeneratedKey {
    pub(super) hash: AuthHash,
    pub(super) key: Zeroizing<Vec<u8>>,
}

impl GeneratedKey {
    /// What the host `host_nqn` offers to the subsystem `sub_nqn`.
    pub fn psk(&self, host_nqn: &str, sub_nqn: &str) -> TlsPsk {
        let names = Names {
            host: host_nqn,
            sub: sub_nqn,
        };
        version_1('G', self.hash, &self.key, names, Expansion::Standard)
    }
}

impl fmt::Debug for GeneratedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GeneratedKey").finish_non_exhaustive()
    }
}

/// Two NQNs that a key is for.
#[derive(Clone, Copy)]
struct Names<'a> {
    host: &'a str,
    sub: &'a str,
}

/// How the information of HKDF-Expand is written.
#[derive(Clone, Copy)]
enum Expansion {
    /// The HkdfLabel of RFC 8446, section 7.1, as the specification wants it.
    Standard,
    /// That of libnvme before 1.16: the length with its low byte first, and no lengths of label and context.
    Libnvme,
}

impl TlsKey {
    /// The key `key`, which is transformed for its host with the hash function `transform` before use; SHA-256 with 32 bytes, SHA-384 with 48.
    pub fn new(transform: Option<AuthHash>, key: &[u8]) -> Result<TlsKey, TlsKeyError> {
        let fits = match transform {
            None => cipher_hash(key.len()).is_some(),
            Some(AuthHash::Sha512) => return Err(TlsKeyError::Hash),
            Some(hash) => hash.output_len() == key.len(),
        };
        if !fits {
            return Err(TlsKeyError::Length(key.len()));
        }
        Ok(TlsKey {
            transform,
            key: Zeroizing::new(key.to_vec()),
        })
    }

    /// A random key for cipher suites with `hash`, SHA-256 or SHA-384.
    pub fn generate(hash: AuthHash) -> Result<TlsKey, TlsKeyError> {
        let mut key = Zeroizing::new(vec![0; hash.output_len()]);
        getrandom::fill(&mut key).map_err(|_| TlsKeyError::Random)?;
        TlsKey::new(Some(hash), &key)
    }

    /// The text `NVMeTLSkey-1:HH:BASE64:`, which holds the key in clear; [`FromStr`] reads it.
    pub fn to_text(&self) -> Zeroizing<String> {
        encode(PREFIX, self.transform, &self.key)
    }

    /// Hash function of the cipher suites that the key is for.
    pub fn hash(&self) -> AuthHash {
        let hash = self.transform.or_else(|| cipher_hash(self.key.len()));
        hash.unwrap_or(AuthHash::Sha256)
    }

    /// Whether another key has the same bytes, so that its owner can derive what this one's does.
    pub(in crate::fabrics) fn has_bytes_of(&self, other: &TlsKey) -> bool {
        self.key.ct_eq(&other.key).into()
    }

    /// What the host `host_nqn` offers to the subsystem `sub_nqn`: identity version 1.
    pub fn psk(&self, host_nqn: &str, sub_nqn: &str) -> TlsPsk {
        let names = Names {
            host: host_nqn,
            sub: sub_nqn,
        };
        let retained = self.retained(names, Expansion::Standard);
        version_1('R', self.hash(), &retained, names, Expansion::Standard)
    }

    /// All that the host `host_nqn` may offer to the subsystem `sub_nqn` with this key: identity version 1, the same as libnvme before 1.16
    /// derives it, and, unless the names are too long for it, version 0.
    pub fn accepted(&self, host_nqn: &str, sub_nqn: &str) -> Vec<TlsPsk> {
        let names = Names {
            host: host_nqn,
            sub: sub_nqn,
        };
        let mut accepted: Vec<TlsPsk> = Vec::new();
        for expansion in [Expansion::Standard, Expansion::Libnvme] {
            let retained = self.retained(names, expansion);
            let psk = version_1('R', self.hash(), &retained, names, expansion);
            // A key without transformation has one digest, and the standard's derivation goes first.
            if accepted.iter().all(|other| other.identity != psk.identity) {
                accepted.push(psk);
            }
        }
        accepted.extend(self.version_0(names));
        accepted
    }

    /// The specification's retained PSK.
    fn retained(&self, names: Names<'_>, expansion: Expansion) -> Zeroizing<Vec<u8>> {
        match self.transform {
            None => self.key.clone(),
            Some(hash) => derive(
                hash,
                &self.key,
                RETAINED_LABEL,
                names.host.as_bytes(),
                expansion,
            ),
        }
    }

    /// `None` where the names are too long for the context of HKDF-Expand-Label.
    fn version_0(&self, names: Names<'_>) -> Option<TlsPsk> {
        let hash = self.hash();
        let Names { host, sub } = names;
        let identity = format!("NVMe0R{:02} {host} {sub}", hash.id());
        if identity.len() > usize::from(u8::MAX) {
            return None;
        }
        let retained = self.retained(names, Expansion::Standard);
        Some(TlsPsk {
            secret: derive(
                hash,
                &retained,
                TLS_LABEL,
                identity.as_bytes(),
                Expansion::Standard,
            ),
            identity,
            hash,
        })
    }
}

/// A PSK with an identity of version 1, from a retained (`R`) or generated (`G`) one.
fn version_1(
    kind: char,
    hash: AuthHash,
    input: &[u8],
    names: Names<'_>,
    expansion: Expansion,
) -> TlsPsk {
    let Names { host, sub } = names;
    let digest = hash.hmac(
        input,
        &[host.as_bytes(), b" ", sub.as_bytes(), DIGEST_LABEL],
    );
    let digest = Base64::encode_string(&digest);
    let id = hash.id();
    let context = format!("{id:02} {digest}");
    TlsPsk {
        identity: format!("NVMe1{kind}{id:02} {host} {sub} {digest}"),
        hash,
        secret: derive(hash, input, TLS_LABEL, context.as_bytes(), expansion),
    }
}

/// HKDF-Extract without salt, then HKDF-Expand-Label to the length of `hash`, which takes one block.
fn derive(
    hash: AuthHash,
    input: &[u8],
    label: &str,
    context: &[u8],
    expansion: Expansion,
) -> Zeroizing<Vec<u8>> {
    let prk = hash.hmac(&[], &[input]);
    let length = hash.output_len() as u16;
    match expansion {
        Expansion::Standard => {
            let label_len = "tls13 ".len() + label.len();
            hash.hmac(
                &prk,
                &[
                    &length.to_be_bytes(),
                    &[label_len as u8],
                    b"tls13 ",
                    label.as_bytes(),
                    &[context.len() as u8],
                    context,
                    &[1],
                ],
            )
        }
        Expansion::Libnvme => hash.hmac(
            &prk,
            &[
                &length.to_le_bytes(),
                b"tls13 ",
                label.as_bytes(),
                context,
                &[1],
            ],
        ),
    }
}

/// The hash function whose output has a length, if cipher suites have it.
fn cipher_hash(len: usize) -> Option<AuthHash> {
    [AuthHash::Sha256, AuthHash::Sha384]
        .into_iter()
        .find(|hash| hash.output_len() == len)
}

impl FromStr for TlsKey {
    type Err = TlsKeyError;

    fn from_str(text: &str) -> Result<TlsKey, TlsKeyError> {
        let decoded = decode(PREFIX, text)?;
        let transform = match decoded.id {
            "00" => None,
            "01" => Some(AuthHash::Sha256),
            "02" => Some(AuthHash::Sha384),
            _ => return Err(TlsKeyError::Hash),
        };
        let key = TlsKey::new(transform, &decoded.key)?;
        if !decoded.intact {
            return Err(TlsKeyError::Checksum);
        }
        Ok(key)
    }
}

impl fmt::Debug for TlsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsKey")
            .field("transform", &self.transform)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for TlsPsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsPsk")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOST: &str = "nqn.psk-test-host";
    const SUB: &str = "nqn.psk-test-subsys";

    /// Keys and identities of version 1 that libnvme 1.16 tests itself with: as the specification has them, and as libnvme had them before.
    const LIBNVME: [(&str, &str, &str); 2] = [
        (
            "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:",
            "NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU=",
            "NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys 66GuqV08TsAGII39teWUfwQwizjv06Jy8jOcX3NAAzM=",
        ),
        (
            "NVMeTLSkey-1:02:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:",
            "NVMe1R02 nqn.psk-test-host nqn.psk-test-subsys QhW2+Rp6RzHlNtCslyRxMnwJ11tKKhz8JCAQpQ+XUD8f9td1VeH5h53yz2wKJG1a",
            "NVMe1R02 nqn.psk-test-host nqn.psk-test-subsys RsKmYJ3nAn1ApjjMloJFbAkLPivONDAX/xW327YBUsn2eGShXSjCZvBaOxscLqmz",
        ),
    ];

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn identities_are_those_of_libnvme() {
        for (text, identity, former) in LIBNVME {
            let key: TlsKey = text.parse().unwrap();
            assert_eq!(*key.to_text(), text);
            assert_eq!(key.psk(HOST, SUB).identity, identity);
            let accepted = key.accepted(HOST, SUB);
            let identities: Vec<&str> = accepted.iter().map(|psk| psk.identity.as_str()).collect();
            let version_0 = format!("NVMe0R{:02} {HOST} {SUB}", key.hash().id());
            assert_eq!(identities, [identity, former, &version_0]);
            assert!(
                accepted
                    .iter()
                    .all(|psk| psk.secret.len() == psk.hash.output_len())
            );
        }
    }

    #[test]
    fn keys_and_former_identities_are_those_of_nvme_cli() {
        // What `nvme gen-tls-key --secret=000102...` and `nvme check-tls-key --identity=1` of nvme-cli 2.13 print.
        const CLI_HOST: &str =
            "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
        const CLI_SUB: &str = "nqn.2026-11.example.toroid:guest";
        let known = [
            (
                AuthHash::Sha256,
                "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
                "jh6w/drKsgtbez5taIOv4V8zDN4D20/aIrqD11B69Zg=",
            ),
            (
                AuthHash::Sha384,
                "NVMeTLSkey-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:",
                "w93HAKlr6uJbRe6LySTR+CgXvV4pS2P78MIdnUGTRlKV1wUZOcjDCChgPv3siWXh",
            ),
        ];
        for (hash, text, digest) in known {
            let bytes: Vec<u8> = (0..hash.output_len() as u8).collect();
            let key = TlsKey::new(Some(hash), &bytes).unwrap();
            assert_eq!(*key.to_text(), text);
            let identity = format!("NVMe1R{:02} {CLI_HOST} {CLI_SUB} {digest}", hash.id());
            assert_eq!(key.accepted(CLI_HOST, CLI_SUB)[1].identity, identity);
        }
    }

    #[test]
    fn derived_secrets_are_those_of_linux() {
        // Values of Linux's own tests (drivers/nvme/common/tests/auth_kunit.c): generated PSK, its digest and the TLS PSK.
        let names = Names {
            host: "hostnqn",
            sub: "subsysnqn",
        };
        let known = [
            (
                AuthHash::Sha256,
                "1733c59fa7f48fcf37f5f26fc4ff0268ad4f78e030f4f3b0bfd1d47e7bb1447a",
                "OldoKuTfKddMuyCznAZojkWD7P4D9/AtzDzLimtOxqI=",
                "3c17da628474a04d2247c4cab47968c915388193f7c071bd9489cc3666cd7cc8",
            ),
            (
                AuthHash::Sha384,
                "f14b2dd3234c459694d3bc63f8968bd6b37c2c6de849e22e118749001ce4bbe8640b9e3a748cb11ce4b1d71d359cce39",
                "cffMWk8TSS7HOQebjgYEIkrPrjWPV4JE5cdPB8WhEvY4JBW5YynKyv66XscN4A9n",
                "2774753233537b3fa50eb7d16a8e43457d85f4906c005b2236616c5d80939d0898fff15bb8b77119d2be0aac423e7590",
            ),
        ];
        for (hash, generated, digest, secret) in known {
            let bytes: Vec<u8> = (0..generated.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&generated[at..at + 2], 16).unwrap())
                .collect();
            // Session key and challenges of those tests.
            let len = hash.output_len() as u8;
            let session: Vec<u8> = (b'A'..b'A' + len).collect();
            let [first, second]: [Vec<u8>; 2] =
                [(0..len).collect(), (0..len).map(|i| 0xFF - i).collect()];
            let key = hash.hmac(&session, &[&first, &second]);
            assert_eq!(*key, bytes);
            let psk = GeneratedKey { hash, key }.psk(names.host, names.sub);
            let id = hash.id();
            assert_eq!(
                psk.identity,
                format!("NVMe1G{id:02} hostnqn subsysnqn {digest}")
            );
            assert_eq!(hex(&psk.secret), secret);
        }
    }

    #[test]
    fn secrets_of_version_0_are_those_of_rfc_8446() {
        // The specification's formulas with HKDF-Expand-Label of RFC 8446, computed with Python's hmac and hashlib; OpenSSL's TLS13-KDF gives the
        // same. The identity is the context of the second derivation.
        let known = [
            "05c6503551ad136e6ee32e6eeb3f6d500b69701d84ec71e328f65c7f51566f68",
            "f42ba63824cdfe421914c582921f85b5b5b7e2d4df084caeedc9be20b212e8bb0fe8a23e9d59a1c8fc6449da4970a78d",
        ];
        for ((text, ..), secret) in LIBNVME.iter().zip(known) {
            let key: TlsKey = text.parse().unwrap();
            let psk = key.accepted(HOST, SUB).pop().unwrap();
            assert_eq!(
                psk.identity,
                format!("NVMe0R{:02} {HOST} {SUB}", key.hash().id())
            );
            assert_eq!(hex(&psk.secret), secret);
        }
    }

    #[test]
    fn a_key_without_transformation_is_used_as_it_is() {
        let text = "NVMeTLSkey-1:00:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
        let key: TlsKey = text.parse().unwrap();
        assert_eq!(*key.to_text(), text);
        assert_eq!(key.hash(), AuthHash::Sha256);
        // One digest, so one identity of version 1.
        assert_eq!(key.accepted(HOST, SUB).len(), 2);
        let transformed: TlsKey = LIBNVME[0].0.parse().unwrap();
        assert_ne!(
            key.psk(HOST, SUB).identity,
            transformed.psk(HOST, SUB).identity
        );
    }

    #[test]
    fn long_names_have_no_identity_of_version_0() {
        let key: TlsKey = LIBNVME[0].0.parse().unwrap();
        let long = format!("nqn.{}", "x".repeat(219));
        assert_eq!(key.accepted(&long, &long).len(), 2);
    }

    #[test]
    fn secrets_depend_on_host_and_subsystem() {
        let key: TlsKey = LIBNVME[0].0.parse().unwrap();
        let secrets = [(HOST, SUB), (HOST, "nqn.other"), ("nqn.other", SUB)]
            .map(|(host, sub)| key.psk(host, sub).secret);
        assert!(secrets[0] != secrets[1] && secrets[0] != secrets[2] && secrets[1] != secrets[2]);
    }

    #[test]
    fn says_what_is_wrong_with_a_text() {
        let good = LIBNVME[0].0;
        let cases = [
            ("", TlsKeyError::Form),
            ("NVMeTLSkey-1::", TlsKeyError::Form),
            (good.trim_end_matches(':'), TlsKeyError::Form),
            (&good.replace("key-1", "key-2"), TlsKeyError::Form),
            (&good.replace(":01:", ":03:"), TlsKeyError::Hash),
            (&good.replace(":01:", ":1:"), TlsKeyError::Hash),
            // 32 bytes are not for SHA-384.
            (&good.replace(":01:", ":02:"), TlsKeyError::Length(32)),
            (&good.replace("VRLb", "VRL*"), TlsKeyError::Base64),
            (&good.replace("VRLb", "VRLc"), TlsKeyError::Checksum),
            ("NVMeTLSkey-1:01::", TlsKeyError::Length(0)),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse::<TlsKey>().unwrap_err(), expected, "{text}");
        }
        assert_eq!(
            TlsKey::generate(AuthHash::Sha512).unwrap_err(),
            TlsKeyError::Hash
        );
    }

    #[test]
    fn generated_keys_differ_and_debug_hides_them() {
        for hash in [AuthHash::Sha256, AuthHash::Sha384] {
            let key = TlsKey::generate(hash).unwrap();
            assert_ne!(key.key, TlsKey::generate(hash).unwrap().key);
            let read: TlsKey = key.to_text().parse().unwrap();
            assert_eq!((read.hash(), &read.key), (hash, &key.key));
        }
        let key = TlsKey::new(None, &[0xAB; 32]).unwrap();
        assert_eq!(format!("{key:?}"), "TlsKey { transform: None, .. }");
        let shown = format!("{:?}", key.psk(HOST, SUB));
        assert!(shown.contains(HOST) && !shown.contains("secret"), "{shown}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(NVMeTLSkey-1:)?(0[0-4]:)?[A-Za-z0-9+/=:é]{0,100}:?") {
            let _ = text.parse::<TlsKey>();
        }
    }
}
