//! Files of parameters and keys.
//!
//! They are objects as [`toroid_tfhe::serialize`] writes them: a header of 64 bytes, then chunks with checksums. The kinds are those of
//! [`Kind`]; the header's parameter set is 0, or that of the samples which the keys convert. Every payload begins with the
//! parameters:
//!
//! | bytes | field |
//! | --- | --- |
//! | 0-3 | N |
//! | 4 | primes of the chain, l |
//! | 5 | special primes, k |
//! | 6 | primes of a digit |
//! | 7 | 0 |
//! | 8-11 | weight of the sparse secret |
//! | 12-15 | 0 |
//! | 16-23 | standard deviation of the noise, f64 |
//! | 24- | q_0, …, q_(l-1), p_0, …, p_(k-1), a u64 each |
//!
//! What follows is described at the functions that write it: [`write_secret_key`],
//! [`EvaluationKeys::write_to`](crate::EvaluationKeys::write_to), [`SampleKeys::write_to`](crate::samples::SampleKeys::write_to).
//!
//! Residues modulo a prime of b bits stand in b bits each, the lowest first, without gaps ([`toroid_tfhe::bits`]).

use std::fmt::Display;
use std::io::{Read, Write};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use toroid_task::Cancelled;
use toroid_tfhe::keys::KeyTag;
use toroid_tfhe::seeded::{MaskSeed, SEED_BYTES};
use toroid_tfhe::serialize::{Frame, ObjectWriter, Payload};
use toroid_tfhe::{TfheError, bits};
use zeroize::Zeroizing;

use crate::RnsError;
use crate::column::ColumnError;
use crate::context::Context;
use crate::params::RnsParams;
use crate::secret::{SECRET_BITS, SecretKey, pack};

/// What is wrong with a file, or with what should become one.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// Reading or writing failed, or the file is damaged.
    #[error(transparent)]
    File(#[from] TfheError),
    /// The content is refused by the ring layer.
    #[error(transparent)]
    Rns(#[from] RnsError),
    /// The messages of a column are refused.
    #[error(transparent)]
    Column(#[from] ColumnError),
    /// A field of the content is not what it should be.
    #[error("{object}: {field} {problem}")]
    Field {
        /// What is read or written.
        object: &'static str,
        /// The field.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl From<Cancelled> for FormatError {
    fn from(cancelled: Cancelled) -> FormatError {
        FormatError::Rns(cancelled.into())
    }
}

impl From<std::io::Error> for FormatError {
    fn from(error: std::io::Error) -> FormatError {
        FormatError::File(error.into())
    }
}

/// The error of a field.
pub(crate) fn field(
    object: &'static str,
    field: impl Into<String>,
    problem: impl Into<String>,
) -> FormatError {
    FormatError::Field {
        object,
        field: field.into(),
        problem: problem.into(),
    }
}

/// Refuses a field that should have another value.
pub(crate) fn expect<T: PartialEq + Display>(
    object: &'static str,
    name: &str,
    expected: T,
    found: T,
) -> Result<(), FormatError> {
    if found == expected {
        Ok(())
    } else {
        let problem = format!("is {found}, not {expected}");
        Err(field(object, name, problem))
    }
}

/// What a file of this crate holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Parameters alone.
    Parameters,
    /// The secrets of a user.
    SecretKey,
    /// Evaluation keys, seeded.
    EvaluationKeys,
    /// The keys between samples and columns, seeded.
    SampleKeys,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 4] = [
        Kind::Parameters,
        Kind::SecretKey,
        Kind::EvaluationKeys,
        Kind::SampleKeys,
    ];

    /// The number of the kind in a header.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Kind::Parameters => 32,
            Kind::SecretKey => 33,
            Kind::EvaluationKeys => 34,
            Kind::SampleKeys => 35,
        }
    }

    /// The object's name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Parameters => "ring parameters",
            Kind::SecretKey => "ring secret key",
            Kind::EvaluationKeys => "ring evaluation keys",
            Kind::SampleKeys => "keys between samples and columns",
        }
    }
}

/// Bytes of parameters before the primes.
const FIXED_PARAMS: usize = 24;

fn params_bytes(params: &RnsParams) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FIXED_PARAMS + 8 * params.chain.len());
    bytes.extend_from_slice(&(params.degree as u32).to_le_bytes());
    let counts = [
        params.chain.len(),
        params.special.len(),
        params.digit_limbs,
        0,
    ];
    bytes.extend(counts.map(|count| count as u8));
    bytes.extend_from_slice(&(params.encapsulation_weight as u32).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&params.sigma.to_le_bytes());
    for prime in params.chain.iter().chain(&params.special) {
        bytes.extend_from_slice(&prime.to_le_bytes());
    }
    bytes
}

fn read_params<R: Read>(
    object: &'static str,
    payload: &mut Payload<R>,
) -> Result<RnsParams, FormatError> {
    let mut fixed = [0; FIXED_PARAMS];
    payload.fill(&mut fixed)?;
    let u32_at = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| fixed[at + i]));
    if fixed[7] != 0 || fixed[12..16] != [0; 4] {
        return Err(field(
            object,
            "reserved bytes of the parameters",
            "are not 0",
        ));
    }
    let (chain, special) = (usize::from(fixed[4]), usize::from(fixed[5]));
    let mut primes = vec![0u8; 8 * (chain + special)];
    payload.fill(&mut primes)?;
    let mut primes = primes.as_chunks::<8>().0.iter();
    let mut take = |count: usize| {
        let primes = primes.by_ref().take(count);
        primes.map(|bytes| u64::from_le_bytes(*bytes)).collect()
    };
    let params = RnsParams {
        degree: u32_at(0) as usize,
        chain: take(chain),
        special: take(special),
        digit_limbs: fixed[6].into(),
        sigma: f64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| fixed[16 + i])),
        encapsulation_weight: u32_at(8) as usize,
    };
    params.validate()?;
    Ok(params)
}

impl RnsParams {
    /// A name of these parameters: the first 8 bytes of the SHA-256 of their bytes in files.
    #[must_use]
    pub fn tag(&self) -> [u8; 8] {
        let digest: [u8; 32] = Sha256::digest(params_bytes(self)).into();
        [0, 1, 2, 3, 4, 5, 6, 7].map(|i| digest[i])
    }
}

/// Bytes of a file with so many bytes of payload behind the parameters.
pub(crate) fn file_bytes(params: &RnsParams, rest: u64) -> u64 {
    let frame = Frame {
        kind: Kind::EvaluationKeys.number(),
        params: 0,
        encoding: [0; 2],
        payload: params_bytes(params).len() as u64 + rest,
        tag: [0; 16],
        rest: [0; 20],
    };
    frame.file_bytes()
}

/// Begins a file: writes header and parameters. `rest` is what follows in the payload; `set` the parameter set of samples, or 0.
pub(crate) fn begin<W: Write>(
    inner: W,
    kind: Kind,
    set: u16,
    tag: KeyTag,
    params: &RnsParams,
    rest: u64,
) -> Result<ObjectWriter<W>, FormatError> {
    let bytes = params_bytes(params);
    let frame = Frame {
        kind: kind.number(),
        params: set,
        encoding: [0; 2],
        payload: bytes.len() as u64 + rest,
        tag,
        rest: [0; 20],
    };
    let mut writer = ObjectWriter::with_frame(inner, &frame)?;
    writer.write(&bytes)?;
    Ok(writer)
}

/// A file of this crate, read as far as its parameters.
pub struct Reader<R: Read> {
    kind: Kind,
    set: u16,
    tag: KeyTag,
    params: RnsParams,
    /// Bytes of payload behind the parameters.
    rest: u64,
    payload: Payload<R>,
}

impl<R: Read> Reader<R> {
    /// Reads header and parameters.
    ///
    /// # Errors
    /// [`FormatError::File`] for damage, and what is no such file; [`FormatError::Field`]; [`FormatError::Rns`] for parameters
    /// that break a rule.
    pub fn new(inner: R) -> Result<Reader<R>, FormatError> {
        let (frame, mut payload) = Payload::open(inner)?;
        let kind = Kind::ALL
            .into_iter()
            .find(|kind| kind.number() == frame.kind);
        let kind = kind.ok_or_else(|| {
            let problem = format!("is {}, which is none of the ring layer's", frame.kind);
            field("the file", "its kind of object", problem)
        })?;
        let object = kind.name();
        if frame.encoding != [0; 2] || frame.rest != [0; 20] {
            return Err(field(object, "reserved bytes of the header", "are not 0"));
        }
        if kind != Kind::SampleKeys {
            expect(object, "the parameter set of samples", 0, frame.params)?;
        }
        let params = read_params(object, &mut payload)?;
        let own = params_bytes(&params).len() as u64;
        let rest = frame
            .payload
            .checked_sub(own)
            .ok_or_else(|| field(object, "the payload", "ends within the parameters"))?;
        Ok(Reader {
            kind,
            set: frame.params,
            tag: frame.tag,
            params,
            rest,
            payload,
        })
    }

    /// What the file holds.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The tag of the secrets that the object belongs to.
    #[must_use]
    pub fn tag(&self) -> &KeyTag {
        &self.tag
    }

    /// The parameters.
    #[must_use]
    pub fn params(&self) -> &RnsParams {
        &self.params
    }

    /// The identifier of the parameter set of samples, or 0.
    pub(crate) fn set(&self) -> u16 {
        self.set
    }

    /// The parameters of a file that has nothing else.
    ///
    /// # Errors
    /// [`FormatError::Field`] for another kind; [`FormatError::File`] where bytes follow.
    pub fn into_params(self) -> Result<RnsParams, FormatError> {
        self.expect_kind(Kind::Parameters)?;
        if self.tag != [0; 16] {
            return Err(field(
                Kind::Parameters.name(),
                "the tag of a key",
                "is not 0",
            ));
        }
        self.payload.finish()?;
        Ok(self.params)
    }

    pub(crate) fn expect_kind(&self, kind: Kind) -> Result<(), FormatError> {
        expect("the file", "its content", kind.name(), self.kind.name())
    }

    /// Refuses a payload of another length.
    pub(crate) fn expect_rest(&self, expected: u64) -> Result<(), FormatError> {
        let name = "the number of bytes behind the parameters";
        expect(self.kind.name(), name, expected, self.rest)
    }

    /// Refuses parameters other than those of a context, and says in which field they differ.
    ///
    /// # Errors
    /// [`FormatError::Field`].
    pub fn expect_context(&self, context: &Context) -> Result<(), FormatError> {
        let (ours, theirs, object) = (context.params(), &self.params, self.kind.name());
        expect(object, "the ring degree", ours.degree, theirs.degree)?;
        let counts = [&ours.chain, &theirs.chain].map(Vec::len);
        expect(
            object,
            "the number of primes of the chain",
            counts[0],
            counts[1],
        )?;
        let counts = [&ours.special, &theirs.special].map(Vec::len);
        expect(object, "the number of special primes", counts[0], counts[1])?;
        let pairs = ours.chain.iter().chain(&ours.special);
        let pairs = pairs.zip(theirs.chain.iter().chain(&theirs.special));
        for (number, (ours, theirs)) in pairs.enumerate() {
            expect(object, &format!("prime number {number}"), ours, theirs)?;
        }
        let name = "the number of primes of a digit";
        expect(object, name, ours.digit_limbs, theirs.digit_limbs)?;
        expect(
            object,
            "the deviation of the noise",
            ours.sigma,
            theirs.sigma,
        )?;
        let weights = [ours, theirs].map(|params| params.encapsulation_weight);
        expect(
            object,
            "the weight of the sparse secret",
            weights[0],
            weights[1],
        )
    }

    /// The next bytes of the payload.
    pub(crate) fn fill(&mut self, out: &mut [u8]) -> Result<(), FormatError> {
        Ok(self.payload.fill(out)?)
    }

    /// The next bytes of the payload, as many as there are in `N`.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn seed(&mut self) -> Result<MaskSeed, FormatError> {
        Ok(MaskSeed::from_bytes(self.array::<SEED_BYTES>()?))
    }

    pub(crate) fn finish(self) -> Result<(), FormatError> {
        Ok(self.payload.finish()?)
    }
}

/// Writes parameters.
///
/// # Errors
/// [`FormatError::File`] where writing fails.
pub fn write_params<W: Write>(inner: W, params: &RnsParams) -> Result<W, FormatError> {
    let writer = begin(inner, Kind::Parameters, 0, [0; 16], params, 0)?;
    Ok(writer.finish()?)
}

fn secret_bytes(degree: usize) -> usize {
    bits::bytes(degree, SECRET_BITS)
}

/// Writes secret keys: behind the parameters the N coefficients of the main secret, then those of the sparse one, two bits each: 0,
/// 1, 2 for -1, 0, 1. The caller sees to it that nobody else can read them.
///
/// # Errors
/// [`FormatError::File`] where writing fails.
pub fn write_secret_key<W: Write>(inner: W, key: &SecretKey) -> Result<W, FormatError> {
    let params = key.context().params();
    let len = secret_bytes(params.degree);
    let rest = 2 * len as u64;
    let mut writer = begin(inner, Kind::SecretKey, 0, *key.tag(), params, rest)?;
    for coefficients in key.coefficients() {
        writer.write(&pack(&coefficients))?;
    }
    Ok(writer.finish()?)
}

/// Reads secret keys into a context of their parameters.
///
/// # Errors
/// [`FormatError::File`] for damage; [`FormatError::Field`] for another kind, another context, coefficients that are no secret,
/// and a tag that is not theirs.
pub fn read_secret_key<R: Read>(
    mut reader: Reader<R>,
    context: &Arc<Context>,
) -> Result<SecretKey, FormatError> {
    reader.expect_kind(Kind::SecretKey)?;
    reader.expect_context(context)?;
    let (object, degree) = (Kind::SecretKey.name(), context.degree());
    let len = secret_bytes(degree);
    reader.expect_rest(2 * len as u64)?;
    let mut read = |name: &str| {
        let mut bytes = Zeroizing::new(vec![0; len]);
        reader.fill(&mut bytes)?;
        let mut coefficients = Zeroizing::new(Vec::with_capacity(degree));
        bits::read(&bytes, SECRET_BITS, degree, object, |code| {
            coefficients.push(code.cast_signed() - 1);
        })?;
        // Sums, not a search: where a coefficient stands stays unseen.
        let beyond: i64 = coefficients.iter().map(|c| i64::from(*c > 1)).sum();
        if beyond != 0 {
            return Err(field(object, name, "has a coefficient other than -1, 0, 1"));
        }
        let weight: i64 = coefficients.iter().map(|c| c * c).sum();
        Ok((coefficients, weight))
    };
    let (main, weight) = read("the main secret")?;
    if weight == 0 {
        return Err(field(object, "the main secret", "is 0"));
    }
    let (sparse, weight) = read("the sparse secret")?;
    let expected = context.params().encapsulation_weight as i64;
    expect(object, "the weight of the sparse secret", expected, weight)?;
    let tag = *reader.tag();
    reader.finish()?;
    let key = SecretKey::from_coefficients(context, &main, &sparse)?;
    if *key.tag() != tag {
        return Err(field(object, "the tag", "is not that of the secrets"));
    }
    Ok(key)
}

/// Bits of a residue modulo a prime.
fn residue_bits(prime: u64) -> u32 {
    prime.ilog2() + 1
}

/// Bytes of `count` residues.
pub(crate) fn residue_bytes(prime: u64, count: usize) -> usize {
    bits::bytes(count, residue_bits(prime))
}

/// Appends residues to `out`.
pub(crate) fn write_residues(prime: u64, words: &[u64], out: &mut Vec<u8>) {
    bits::write(words.iter().copied(), residue_bits(prime), out);
}

/// Reads as many residues as there are in `words` from [`residue_bytes`] of `bytes`.
pub(crate) fn read_residues(
    object: &'static str,
    name: impl Fn() -> String,
    prime: u64,
    bytes: &[u8],
    words: &mut [u64],
) -> Result<(), FormatError> {
    let count = words.len();
    let mut places = words.iter_mut();
    let mut largest = 0;
    bits::read(bytes, residue_bits(prime), count, object, |value| {
        largest = value.max(largest);
        if let Some(place) = places.next() {
            *place = value;
        }
    })?;
    if largest >= prime {
        let problem = format!("has a residue {largest} modulo {prime}");
        return Err(field(object, name(), problem));
    }
    Ok(())
}
