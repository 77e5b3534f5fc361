//! What can go wrong in the scheme.

use std::ops::Range;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
pub enum TfheError {
    /// The operating system gave no entropy.
    #[error("the operating system's random generator failed: {0}")]
    Entropy(String),
    /// A client key that this passphrase does not decrypt.
    #[error("the passphrase is wrong, or somebody changed the file")]
    Passphrase,
    /// A message width that no encoding takes.
    #[error("a message has 1 to 16 bits, not {0}")]
    MessageBits(u32),
    /// A message width that samples of a set do not carry.
    #[error("a sample of {params} carries messages of 1 to {most} bits, not {bits}")]
    SampleBits {
        /// Bits asked for.
        bits: u32,
        /// The most that such samples carry.
        most: u32,
        /// Name of the set.
        params: &'static str,
    },
    /// A message outside the range of its encoding. The error does not name it, since errors get into logs.
    #[error("a message is outside {}..={}", range.start, range.end - 1)]
    MessageRange {
        /// The messages that the encoding takes.
        range: Range<i64>,
    },
    /// A message width that the ring is too small for.
    #[error(
        "a function of {bits} bits needs a ring of degree {needed} at least; {params} has {found}"
    )]
    FunctionTooWide {
        /// Bits asked for.
        bits: u32,
        /// Degree needed.
        needed: usize,
        /// Degree of the set.
        found: usize,
        /// Name of the set.
        params: &'static str,
    },
    /// A message wider than the set's wide functions take.
    #[error("a message of {bits} bits is too wide for {params}, which takes {found} at most")]
    MessageTooWide {
        /// Bits asked for.
        bits: u32,
        /// Bits of the set.
        found: u32,
        /// Name of the set.
        params: &'static str,
    },
    /// A set without an unrolled bootstrapping key.
    #[error("{0} has no unrolled bootstrapping key: sets of wide functions have none")]
    NotUnrolled(&'static str),
    /// A set without wide functions.
    #[error("{0} has no wide functions")]
    NotWopbs(&'static str),
    /// Something has the wrong length for its parameter set.
    #[error("{what} of {params} takes {expected} bytes, not {found}")]
    Length {
        /// What it is.
        what: &'static str,
        /// Name of the parameter set.
        params: &'static str,
        /// Bytes expected.
        expected: u64,
        /// Bytes found.
        found: u64,
    },
    /// A word is not below the modulus.
    #[error("{what}: word {index} is not below the modulus")]
    NotCanonical {
        /// What it is.
        what: &'static str,
        /// Position of the word.
        index: u64,
    },
    /// Two objects belong to different parameter sets.
    #[error("{what} is for parameter set {found}, not {expected}")]
    ParamsMismatch {
        /// What it is.
        what: &'static str,
        /// The set expected.
        expected: String,
        /// The set found.
        found: String,
    },
    /// A set that has no Boolean gates.
    #[error("{0} has no Boolean gates")]
    NoGates(&'static str),
    /// An object belongs to another client key.
    #[error("{0} belongs to another client key")]
    KeyMismatch(&'static str),
    /// Nothing is secret here: a sample without a mask, or a key of zeros.
    #[error("{0}, so that it encrypts nothing")]
    NotEncrypted(&'static str),
    /// A result is more likely to be wrong than decryption allows.
    #[error("the failure probability is 2^{log2:.1}, above the limit of 2^{max_log2:.1}")]
    FailureProbability {
        /// log2 of the probability; 0 where no noise is stated.
        log2: f64,
        /// log2 of the limit.
        max_log2: f64,
    },
    /// A ciphertext has another encoding than the operation takes.
    #[error("the ciphertext is {found}, not {expected}")]
    EncodingMismatch {
        /// The encoding expected.
        expected: String,
        /// The encoding found.
        found: String,
    },
    /// The set's modulus does not fit the type that was asked for.
    #[error("parameter set {0} has another ciphertext modulus")]
    ModulusMismatch(&'static str),
    /// A gadget that words of the modulus have no room for.
    #[error(
        "{levels} digits of {log2_base} bits: a key switch takes 1 to 63 bits of a word, in digits of 1 to 24"
    )]
    Gadget {
        /// Digits.
        levels: usize,
        /// Bits of each.
        log2_base: u32,
    },
    /// A coefficient that a message cannot go to.
    #[error("coefficient {index}: {params} takes one message at each of 0 to {}", degree - 1)]
    Coefficient {
        /// The coefficient.
        index: usize,
        /// Degree of the set.
        degree: usize,
        /// Name of the set.
        params: &'static str,
    },
    /// A form of columns that a set does not have.
    #[error("columns of {params} have no {form} form")]
    NoForm {
        /// The form.
        form: &'static str,
        /// Name of the set.
        params: &'static str,
    },
    /// A chunk without rows, or with too many.
    #[error("a chunk of {params} has 1 to {most} rows, not {rows}")]
    ChunkRows {
        /// Rows asked for.
        rows: usize,
        /// The most that a chunk has.
        most: usize,
        /// Name of the set.
        params: &'static str,
    },
    /// Rows that a chunk does not have.
    #[error("rows {}..{} of a chunk that has {of} rows", rows.start, rows.end)]
    Rows {
        /// Rows asked for.
        rows: Range<usize>,
        /// Rows of the chunk.
        of: usize,
    },
    /// Rows that a column does not have.
    #[error("rows {}..{} of a column that has {of} rows", rows.start, rows.end)]
    ColumnRows {
        /// Rows asked for.
        rows: Range<u64>,
        /// Rows of the column.
        of: u64,
    },
    /// A seed for encryption in a process that was forked from the one which made it.
    #[error(
        "this process was forked after the seed was made, and must not encrypt under it as well: encrypt with a new one"
    )]
    Forked,
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A file or stream is not what it should be.
    #[error("{0}")]
    Format(String),
    /// From the transforms.
    #[error(transparent)]
    Ring(#[from] toroid_ring::RingError),
}
