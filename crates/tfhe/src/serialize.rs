//! Versioned, checksummed, streaming files of every object.
//!
//! A file is a header of 64 bytes, then the payload in chunks of 1 MiB (the last one shorter), each followed by the
//! CRC-32C of its number (u64) and its bytes. Nothing follows the last chunk. All integers are little-endian.
//!
//! | bytes | header field |
//! | --- | --- |
//! | 0-7 | magic `TOROIDOB` |
//! | 8-9 | version, 1 |
//! | 10-11 | kind; other crates have kinds from 32 on, with a [`Frame`] for a header |
//! | 12-13 | parameter set; 0 for an object of none |
//! | 14 | message bits p; 0 where it does not apply |
//! | 15 | 1 for signed messages |
//! | 16-23 | payload bytes |
//! | 24-39 | tag of the client key that the object belongs to |
//! | 40-43 | f32 log2 of the noise variance; 0 not stated |
//! | 44-47 | f32 log2 of the failure probability; 0 not stated |
//! | 48-59 | 0 |
//! | 60-63 | CRC-32C of bytes 0-59 |

use std::io::{ErrorKind, Read, Write};

use zeroize::Zeroizing;

use crate::TfheError;
use crate::encoding::Encoding;
use crate::keys::{ClientKey, KeyTag};
use crate::params::ParamSet;
use crate::seeded::KeyForm;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 64;
/// Payload bytes of a full chunk.
pub const CHUNK_BYTES: usize = 1 << 20;
/// Version that this library writes, and the newest that it reads.
pub const VERSION: u16 = 1;

/// Bytes of an encrypted client key before its ciphertext ([`crate::encrypted_key`]).
pub(crate) const ENCRYPTION_HEAD_BYTES: usize = 52;
/// Bytes behind it.
pub(crate) const ENCRYPTION_TAG_BYTES: usize = 16;
/// What encryption adds to the packed key bits.
pub(crate) const ENCRYPTION_BYTES: usize = ENCRYPTION_HEAD_BYTES + ENCRYPTION_TAG_BYTES;

const MAGIC: [u8; 8] = *b"TOROIDOB";

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Secret keys.
    ClientKey,
    /// BKNTT, expanded.
    BootstrappingKey,
    /// KSK, expanded.
    KeySwitchingKey,
    /// A test vector.
    TestVector,
    /// One LWE sample.
    Sample,
    /// A bootstrapping key as seed and packed bodies.
    SeededBootstrappingKey,
    /// A bootstrapping key as seed and bodies in whole words.
    SeededWordsBootstrappingKey,
    /// A key-switching key as seed and bodies.
    SeededKeySwitchingKey,
    /// Secret keys under a passphrase ([`crate::encrypted_key`]).
    EncryptedClientKey,
    /// An unrolled bootstrapping key as seed and packed bodies.
    UnrolledBootstrappingKey,
}

impl Kind {
    const ALL: [(Kind, u16, &'static str); 10] = [
        (Kind::ClientKey, 1, "client key"),
        (Kind::BootstrappingKey, 2, "bootstrapping key"),
        (Kind::KeySwitchingKey, 3, "key-switching key"),
        (Kind::TestVector, 4, "test vector"),
        (Kind::Sample, 5, "LWE sample"),
        (Kind::SeededBootstrappingKey, 9, "seeded bootstrapping key"),
        (Kind::SeededKeySwitchingKey, 7, "seeded key-switching key"),
        (Kind::EncryptedClientKey, 8, "encrypted client key"),
        (
            Kind::SeededWordsBootstrappingKey,
            6,
            "seeded bootstrapping key of whole words",
        ),
        (
            Kind::UnrolledBootstrappingKey,
            10,
            "unrolled bootstrapping key",
        ),
    ];

    fn entry(self) -> (Kind, u16, &'static str) {
        let index = match self {
            Kind::ClientKey => 0,
            Kind::BootstrappingKey => 1,
            Kind::KeySwitchingKey => 2,
            Kind::TestVector => 3,
            Kind::Sample => 4,
            Kind::SeededBootstrappingKey => 5,
            Kind::SeededKeySwitchingKey => 6,
            Kind::EncryptedClientKey => 7,
            Kind::SeededWordsBootstrappingKey => 8,
            Kind::UnrolledBootstrappingKey => 9,
        };
        Self::ALL[index]
    }

    /// A bootstrapping key of this form.
    #[must_use]
    pub const fn bootstrapping_key(form: KeyForm) -> Kind {
        match form {
            KeyForm::Seeded => Kind::SeededBootstrappingKey,
            KeyForm::SeededWords => Kind::SeededWordsBootstrappingKey,
            KeyForm::Expanded => Kind::BootstrappingKey,
        }
    }

    /// A key-switching key of this form.
    #[must_use]
    pub const fn key_switching_key(form: KeyForm) -> Kind {
        match form {
            KeyForm::Seeded | KeyForm::SeededWords => Kind::SeededKeySwitchingKey,
            KeyForm::Expanded => Kind::KeySwitchingKey,
        }
    }

    /// The form of the public key that such an object holds, if it is one of three; the other kinds hold none.
    #[must_use]
    pub const fn key_form(self) -> Option<KeyForm> {
        match self {
            Kind::BootstrappingKey | Kind::KeySwitchingKey => Some(KeyForm::Expanded),
            Kind::SeededBootstrappingKey | Kind::SeededKeySwitchingKey => Some(KeyForm::Seeded),
            Kind::SeededWordsBootstrappingKey => Some(KeyForm::SeededWords),
            Kind::ClientKey
            | Kind::EncryptedClientKey
            | Kind::TestVector
            | Kind::Sample
            | Kind::UnrolledBootstrappingKey => None,
        }
    }

    /// Whether such an object holds a key-switching key.
    #[must_use]
    pub const fn is_key_switching_key(self) -> bool {
        matches!(self, Kind::KeySwitchingKey | Kind::SeededKeySwitchingKey)
    }

    /// The object's name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.entry().2
    }

    /// Payload bytes of such an object.
    #[must_use]
    pub fn payload_bytes(self, params: &ParamSet) -> u64 {
        match self {
            Kind::ClientKey => ClientKey::packed_bytes(params) as u64,
            Kind::EncryptedClientKey => (ENCRYPTION_BYTES + ClientKey::packed_bytes(params)) as u64,
            Kind::BootstrappingKey => params.bootstrapping_key_bytes(),
            Kind::KeySwitchingKey => params.key_switching_key_bytes(),
            Kind::SeededBootstrappingKey => KeyForm::Seeded.bootstrapping_key_bytes(params),
            Kind::SeededWordsBootstrappingKey => {
                KeyForm::SeededWords.bootstrapping_key_bytes(params)
            }
            Kind::SeededKeySwitchingKey => KeyForm::Seeded.key_switching_key_bytes(params),
            Kind::UnrolledBootstrappingKey => KeyForm::Seeded.ggsw_list_bytes(&params.unrolled()),
            Kind::TestVector => params.test_vector_bytes() as u64,
            Kind::Sample => params.lwe_bytes() as u64,
        }
    }
}

/// What the headers of all objects have, also of those that other crates define.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Number of the kind of object.
    pub kind: u16,
    /// Identifier of the parameter set; 0 for objects of none.
    pub params: u16,
    /// Bytes 14 and 15.
    pub encoding: [u8; 2],
    /// Payload bytes.
    pub payload: u64,
    /// Tag of the client key.
    pub tag: KeyTag,
    /// Bytes 40 to 59.
    pub rest: [u8; 20],
}

impl Frame {
    /// Bytes of the whole file.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + self.payload + 4 * self.payload.div_ceil(CHUNK_BYTES as u64)
    }

    /// The 64 bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.kind.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.params.to_le_bytes());
        bytes[14..16].copy_from_slice(&self.encoding);
        bytes[16..24].copy_from_slice(&self.payload.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.tag);
        bytes[40..60].copy_from_slice(&self.rest);
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the 64 bytes.
    ///
    /// # Errors
    /// [`TfheError::Format`] for bytes that are no header, damage, or another version.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<Frame, TfheError> {
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        if bytes[..8] != MAGIC {
            return Err(format_error(
                "not a Toroid file: it does not begin with TOROIDOB",
            ));
        }
        if bytes[60..] != crc32c::crc32c(&bytes[..60]).to_le_bytes() {
            return Err(format_error(
                "the header is damaged: its checksum does not match",
            ));
        }
        let version = u16_at(8);
        if version != VERSION {
            return Err(format_error(format!(
                "the file has version {version}; this program reads version {VERSION}"
            )));
        }
        let mut payload = [0; 8];
        payload.copy_from_slice(&bytes[16..24]);
        let mut frame = Frame {
            kind: u16_at(10),
            params: u16_at(12),
            encoding: [bytes[14], bytes[15]],
            payload: u64::from_le_bytes(payload),
            tag: [0; 16],
            rest: [0; 20],
        };
        frame.tag.copy_from_slice(&bytes[24..40]);
        frame.rest.copy_from_slice(&bytes[40..60]);
        Ok(frame)
    }
}

/// The header of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// What follows.
    pub kind: Kind,
    /// Its parameter set.
    pub params: ParamSet,
    /// Message encoding of a sample, or of a test vector's input.
    pub encoding: Option<Encoding>,
    /// Tag of the client key.
    pub tag: KeyTag,
    /// log2 of the noise variance over the torus, if stated.
    pub log2_variance: Option<f32>,
    /// log2 of the failure probability behind a sample, if stated.
    pub log2_failure: Option<f32>,
}

fn format_error(text: impl Into<String>) -> TfheError {
    TfheError::Format(text.into())
}

/// A logarithm of a variance or probability as a header states it: below 0 and finite. A probability of 1 is stated as
/// just below, since 0 stands for nothing.
fn statement(log2: Option<f32>) -> f32 {
    log2.map_or(0.0, |log2| log2.clamp(f32::MIN, -f32::MIN_POSITIVE))
}

/// A finite figure below 0, or nothing.
fn stated(bytes: [u8; 4]) -> Result<Option<f32>, TfheError> {
    let value = f32::from_le_bytes(bytes);
    match value {
        0.0 => Ok(None),
        _ if value.is_finite() && value < 0.0 => Ok(Some(value)),
        _ => Err(format_error(
            "the header states a noise figure that is not a finite number below 0",
        )),
    }
}

impl Header {
    /// A header without message encoding and noise figures.
    #[must_use]
    pub fn new(kind: Kind, params: &ParamSet, tag: KeyTag) -> Header {
        Header {
            kind,
            params: *params,
            encoding: None,
            tag,
            log2_variance: None,
            log2_failure: None,
        }
    }

    fn frame(&self) -> Frame {
        let encoding = self.encoding.map_or([0; 2], |encoding| {
            [encoding.bits() as u8, u8::from(encoding.is_signed())]
        });
        let mut rest = [0; 20];
        rest[..4].copy_from_slice(&statement(self.log2_variance).to_le_bytes());
        rest[4..8].copy_from_slice(&statement(self.log2_failure).to_le_bytes());
        Frame {
            kind: self.kind.entry().1,
            params: self.params.id,
            encoding,
            payload: self.kind.payload_bytes(&self.params),
            tag: self.tag,
            rest,
        }
    }

    /// Bytes of the whole file.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.frame().file_bytes()
    }

    /// The 64 bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        self.frame().to_bytes()
    }

    /// Reads the 64 bytes.
    ///
    /// # Errors
    /// [`TfheError::Format`] that says what is wrong.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<Header, TfheError> {
        let frame = Frame::from_bytes(bytes)?;
        let four = |at: usize| [0, 1, 2, 3].map(|i| frame.rest[at + i]);
        let (kind, ..) = Kind::ALL
            .into_iter()
            .find(|(_, number, _)| *number == frame.kind)
            .ok_or_else(|| format_error(format!("unknown kind of object: {}", frame.kind)))?;
        let params = ParamSet::by_id(frame.params)
            .ok_or_else(|| format_error(format!("unknown parameter set: {}", frame.params)))?;
        let encoding = match frame.encoding {
            [0, 0] => None,
            [bits, signed @ (0 | 1)] => Some(match kind {
                Kind::Sample => Encoding::of_samples(params, bits.into(), signed == 1)?,
                _ => Encoding::new(bits.into(), signed == 1)?,
            }),
            [_, signed] => {
                return Err(format_error(format!(
                    "the signed flag is {signed}, not 0 or 1"
                )));
            }
        };
        let expected = kind.payload_bytes(params);
        if frame.payload != expected {
            return Err(TfheError::Length {
                what: kind.name(),
                params: params.name,
                expected,
                found: frame.payload,
            });
        }
        if frame.rest[8..].iter().any(|byte| *byte != 0) {
            return Err(format_error("reserved bytes of the header are not 0"));
        }
        Ok(Header {
            kind,
            params: *params,
            encoding,
            tag: frame.tag,
            log2_variance: stated(four(0))?,
            log2_failure: stated(four(4))?,
        })
    }

    /// Refuses an object of another kind.
    ///
    /// # Errors
    /// [`TfheError::Format`].
    pub fn expect(&self, kind: Kind) -> Result<(), TfheError> {
        if self.kind == kind {
            Ok(())
        } else {
            Err(format_error(format!(
                "this is a {}, not a {}",
                self.kind.name(),
                kind.name()
            )))
        }
    }
}

fn chunk_crc(index: u64, data: &[u8]) -> [u8; 4] {
    crc32c::crc32c_append(crc32c::crc32c(&index.to_le_bytes()), data).to_le_bytes()
}

/// Writes the header of an object, then its payload as a stream; holds one chunk.
pub struct ObjectWriter<W: Write> {
    inner: W,
    chunk: Zeroizing<Vec<u8>>,
    index: u64,
    left: u64,
}

impl<W: Write> ObjectWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// [`TfheError::Io`].
    pub fn new(inner: W, header: &Header) -> Result<Self, TfheError> {
        Self::with_frame(inner, &header.frame())
    }

    /// Writes the header of an object of another crate.
    ///
    /// # Errors
    /// [`TfheError::Io`].
    pub fn with_frame(mut inner: W, frame: &Frame) -> Result<Self, TfheError> {
        inner.write_all(&frame.to_bytes())?;
        Ok(ObjectWriter {
            inner,
            chunk: Zeroizing::new(Vec::with_capacity(CHUNK_BYTES)),
            index: 0,
            left: frame.payload,
        })
    }

    /// Takes the next payload bytes.
    ///
    /// # Errors
    /// [`TfheError::Io`]; [`TfheError::Format`] beyond the length that the header states.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), TfheError> {
        self.left = self
            .left
            .checked_sub(bytes.len() as u64)
            .ok_or_else(|| format_error("more payload than the header states"))?;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK_BYTES - self.chunk.len()));
            self.chunk.extend_from_slice(now);
            bytes = later;
            if self.chunk.len() == CHUNK_BYTES {
                self.flush_chunk()?;
            }
        }
        Ok(())
    }

    fn flush_chunk(&mut self) -> Result<(), TfheError> {
        self.inner.write_all(&self.chunk)?;
        self.inner.write_all(&chunk_crc(self.index, &self.chunk))?;
        self.index += 1;
        self.chunk.clear();
        Ok(())
    }

    /// Writes what is left and hands the stream back.
    ///
    /// # Errors
    /// [`TfheError::Io`]; [`TfheError::Format`] where payload is missing.
    pub fn finish(mut self) -> Result<W, TfheError> {
        if self.left != 0 {
            return Err(format_error(format!(
                "{} bytes of payload are missing",
                self.left
            )));
        }
        if !self.chunk.is_empty() {
            self.flush_chunk()?;
        }
        self.inner.flush()?;
        Ok(self.inner)
    }
}

fn read_exact(inner: &mut impl Read, bytes: &mut [u8], what: &str) -> Result<(), TfheError> {
    inner.read_exact(bytes).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => format_error(format!("the file ends in the middle of {what}")),
        _ => TfheError::Io(error),
    })
}

/// The payload of an object as a stream: every chunk is checked before its bytes are handed out.
pub struct Payload<R: Read> {
    inner: R,
    chunk: Zeroizing<Vec<u8>>,
    /// Bytes of the chunk that [`Payload::fill`] has handed out.
    used: usize,
    index: u64,
    left: u64,
}

impl<R: Read> Payload<R> {
    /// Reads the header of an object of any crate.
    ///
    /// # Errors
    /// [`TfheError::Io`]; [`TfheError::Format`].
    pub fn open(mut inner: R) -> Result<(Frame, Self), TfheError> {
        let mut bytes = [0; HEADER_BYTES];
        read_exact(&mut inner, &mut bytes, "its header")?;
        let frame = Frame::from_bytes(&bytes)?;
        let payload = Self::new(inner, frame.payload);
        Ok((frame, payload))
    }

    fn new(inner: R, left: u64) -> Self {
        Payload {
            inner,
            chunk: Zeroizing::new(Vec::new()),
            used: 0,
            index: 0,
            left,
        }
    }

    /// Reads the next chunk; false after the last one, once the stream has been seen to end there.
    fn advance(&mut self) -> Result<bool, TfheError> {
        if self.left == 0 {
            return match read_exact(&mut self.inner, &mut [0], "nothing") {
                Err(TfheError::Format(_)) => Ok(false),
                Err(error) => Err(error),
                Ok(()) => Err(format_error("bytes follow the end of the object")),
            };
        }
        let bytes = self.left.min(CHUNK_BYTES as u64) as usize;
        self.chunk.resize(bytes, 0);
        self.used = 0;
        let mut crc = [0; 4];
        read_exact(&mut self.inner, &mut self.chunk, "its payload")?;
        read_exact(&mut self.inner, &mut crc, "a checksum")?;
        if crc != chunk_crc(self.index, &self.chunk) {
            return Err(format_error(format!(
                "chunk {} is damaged: its checksum does not match",
                self.index
            )));
        }
        self.index += 1;
        self.left -= bytes as u64;
        Ok(true)
    }

    /// Fills `out` with the next bytes of the payload.
    ///
    /// # Errors
    /// [`TfheError::Io`]; [`TfheError::Format`] for damage, or fewer bytes.
    pub fn fill(&mut self, mut out: &mut [u8]) -> Result<(), TfheError> {
        while !out.is_empty() {
            if self.used == self.chunk.len() && !self.advance()? {
                return Err(format_error("the payload is shorter than what it holds"));
            }
            let count = out.len().min(self.chunk.len() - self.used);
            let (now, later) = out.split_at_mut(count);
            now.copy_from_slice(&self.chunk[self.used..self.used + count]);
            self.used += count;
            out = later;
        }
        Ok(())
    }

    /// Sees to it that payload and stream end here.
    ///
    /// # Errors
    /// [`TfheError::Io`]; [`TfheError::Format`] where bytes follow.
    pub fn finish(mut self) -> Result<(), TfheError> {
        if self.used != self.chunk.len() || self.advance()? {
            return Err(format_error("the payload is longer than what it holds"));
        }
        Ok(())
    }
}

/// Reads one object as a stream, checking every chunk before its bytes are handed out.
pub struct ObjectReader<R: Read> {
    header: Header,
    payload: Payload<R>,
}

impl<R: Read> ObjectReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`TfheError::Io`], [`TfheError::Format`].
    pub fn new(mut inner: R) -> Result<Self, TfheError> {
        let mut bytes = [0; HEADER_BYTES];
        read_exact(&mut inner, &mut bytes, "its header")?;
        let header = Header::from_bytes(&bytes)?;
        let left = header.kind.payload_bytes(&header.params);
        Ok(ObjectReader {
            header,
            payload: Payload::new(inner, left),
        })
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next chunk of payload; `None` after the last one, once the stream has been seen to end there.
    ///
    /// # Errors
    /// [`TfheError::Io`], [`TfheError::Format`].
    pub fn next_chunk(&mut self) -> Result<Option<&[u8]>, TfheError> {
        let more = self.payload.advance()?;
        Ok(more.then_some(self.payload.chunk.as_slice()))
    }

    /// The whole payload of a small object.
    ///
    /// # Errors
    /// [`TfheError::Io`], [`TfheError::Format`].
    pub fn read_all(mut self) -> Result<(Header, Zeroizing<Vec<u8>>), TfheError> {
        // Room for all of a secret from the start: a vector that grows leaves copies behind. The rest is public, and takes
        // memory no sooner than its bytes are there.
        let room = self.payload.left.min(CHUNK_BYTES as u64) as usize;
        let mut payload = Zeroizing::new(Vec::with_capacity(room));
        while let Some(chunk) = self.next_chunk()? {
            payload.extend_from_slice(chunk);
        }
        Ok((self.header, payload))
    }
}

/// Writes a small object in one go.
///
/// # Errors
/// [`TfheError::Io`], [`TfheError::Format`] for a payload of the wrong length.
pub fn write_object<W: Write>(inner: W, header: &Header, payload: &[u8]) -> Result<W, TfheError> {
    let mut writer = ObjectWriter::new(inner, header)?;
    writer.write(payload)?;
    writer.finish()
}

/// Writes secret keys. The caller sees to it that nobody else can read them.
///
/// # Errors
/// [`TfheError::Io`].
pub fn write_client_key<W: Write>(inner: W, key: &ClientKey) -> Result<W, TfheError> {
    let header = Header::new(Kind::ClientKey, key.params(), *key.tag());
    write_object(inner, &header, &key.to_packed_bits())
}

/// Reads secret keys that are not encrypted.
///
/// # Errors
/// [`TfheError::Io`]; [`TfheError::Format`], also for bits that are no key: zeros alone, or bits behind the last one.
pub fn read_client_key<R: Read>(inner: R) -> Result<ClientKey, TfheError> {
    client_key(ObjectReader::new(inner)?)
}

/// Reads secret keys that are not encrypted, from a reader that has read the file's header.
///
/// # Errors
/// As [`read_client_key`].
pub fn client_key<R: Read>(reader: ObjectReader<R>) -> Result<ClientKey, TfheError> {
    reader.header().expect(Kind::ClientKey)?;
    let (header, payload) = reader.read_all()?;
    ClientKey::from_packed_bits(&header.params, header.tag, &payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{GATE, MESSAGE7, TINY, TINY32};
    use crate::random::Csprng;
    use proptest::prelude::*;

    fn sample_file() -> Vec<u8> {
        let header = Header {
            encoding: Some(Encoding::new(4, true).unwrap()),
            log2_variance: Some(-25.5),
            log2_failure: Some(-64.0),
            ..Header::new(Kind::Sample, &TINY, [7; 16])
        };
        write_object(Vec::new(), &header, &vec![5; TINY.lwe_bytes()]).unwrap()
    }

    #[test]
    fn client_keys_round_trip() {
        for params in [&TINY, &TINY32] {
            let key = ClientKey::generate(params, &mut Csprng::from_seed([1; 32]));
            let file = write_client_key(Vec::new(), &key).unwrap();
            let back = read_client_key(file.as_slice()).unwrap();
            assert_eq!(back.tag(), key.tag());
            assert_eq!(back.params().name, params.name);
            assert_eq!(back.lwe().bits(), key.lwe().bits());
            assert_eq!(back.glwe().bits(), key.glwe().bits());
        }
    }

    #[test]
    fn objects_of_several_chunks_round_trip() {
        let header = Header::new(Kind::KeySwitchingKey, &GATE, [3; 16]);
        let bytes = GATE.key_switching_key_bytes();
        assert!(bytes > 2 * CHUNK_BYTES as u64);
        let payload: Vec<u8> = (0..bytes).map(|i| (i * i % 251) as u8).collect();
        let mut writer = ObjectWriter::new(Vec::new(), &header).unwrap();
        for piece in payload.chunks(100_003) {
            writer.write(piece).unwrap();
        }
        let file = writer.finish().unwrap();
        let (found, back) = ObjectReader::new(file.as_slice())
            .unwrap()
            .read_all()
            .unwrap();
        assert_eq!(found, header);
        assert!(*back == payload);

        // Two chunks in each other's place: each checksum is bound to its position.
        let mut swapped = file.clone();
        let unit = CHUNK_BYTES + 4;
        swapped[64..64 + unit].copy_from_slice(&file[64 + unit..64 + 2 * unit]);
        swapped[64 + unit..64 + 2 * unit].copy_from_slice(&file[64..64 + unit]);
        assert!(
            ObjectReader::new(swapped.as_slice())
                .unwrap()
                .read_all()
                .is_err()
        );
    }

    #[test]
    fn wrong_payload_lengths_are_refused() {
        let header = Header::new(Kind::Sample, &TINY, [0; 16]);
        for length in [0, TINY.lwe_bytes() - 1, TINY.lwe_bytes() + 1] {
            assert!(write_object(Vec::new(), &header, &vec![0; length]).is_err());
        }
        let file = sample_file();
        assert!(
            ObjectReader::new(&file[..file.len() - 1])
                .unwrap()
                .read_all()
                .is_err()
        );
        let longer = [file.as_slice(), &[0]].concat();
        assert!(
            ObjectReader::new(longer.as_slice())
                .unwrap()
                .read_all()
                .is_err()
        );
        assert!(read_client_key(file.as_slice()).is_err());
    }

    #[test]
    fn headers_say_what_they_hold() {
        let header = Header {
            encoding: Some(Encoding::new(7, true).unwrap()),
            log2_variance: Some(-26.25),
            log2_failure: Some(-66.5),
            ..Header::new(Kind::Sample, &MESSAGE7, [9; 16])
        };
        assert_eq!(Header::from_bytes(&header.to_bytes()).unwrap(), header);
    }

    #[test]
    fn keys_of_zeros_and_stray_bits_are_refused() {
        let key = ClientKey::generate(&MESSAGE7, &mut Csprng::from_seed([1; 32]));
        let header = Header::new(Kind::ClientKey, &MESSAGE7, *key.tag());
        let refused = |bits: &[u8], words: &str| {
            let file = write_object(Vec::new(), &header, bits).unwrap();
            let error = read_client_key(file.as_slice()).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        let bits = key.to_packed_bits();
        refused(&vec![0; bits.len()], "0");
        // The LWE key alone, in 132.5 bytes, and the GLWE key alone.
        let mut zeros = bits.to_vec();
        zeros[..132].fill(0);
        zeros[132] &= 0xf0;
        refused(&zeros, "all bits of a secret key are 0");
        zeros.copy_from_slice(&bits);
        zeros[132] &= 0x0f;
        zeros[133..].fill(0);
        refused(&zeros, "all bits of a secret key are 0");
        let mut stray = bits.to_vec();
        *stray.last_mut().unwrap() |= 0x80;
        refused(&stray, "follow the end");
    }

    #[test]
    fn a_secret_is_read_into_room_for_all_of_it() {
        let key = ClientKey::generate(&MESSAGE7, &mut Csprng::from_seed([1; 32]));
        let file = write_client_key(Vec::new(), &key).unwrap();
        let (_, payload) = ObjectReader::new(file.as_slice())
            .unwrap()
            .read_all()
            .unwrap();
        assert_eq!(payload.capacity(), payload.len());
        for set in ParamSet::ALL {
            assert!(Kind::EncryptedClientKey.payload_bytes(set) < CHUNK_BYTES as u64);
        }
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_found(at in 0usize..64 + 33 * 8 + 4, bit in 0u8..8) {
            let mut file = sample_file();
            prop_assert_eq!(file.len(), 64 + 33 * 8 + 4);
            file[at] ^= 1 << bit;
            prop_assert!(ObjectReader::new(file.as_slice()).and_then(ObjectReader::read_all).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = ObjectReader::new(bytes.as_slice()).and_then(ObjectReader::read_all);
            let with_magic = [&MAGIC[..], &bytes].concat();
            let _ = read_client_key(with_magic.as_slice());
        }
    }
}
