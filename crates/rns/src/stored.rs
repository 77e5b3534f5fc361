//! Columns at rest: few bytes a number, in one of two forms.
//!
//! - *Seeded*: fresh from the client. A seed stands for the mask modulo q_0, and each row has a body of w bits ([`seeded_width`]).
//! - *Computed*: mask and bodies at the modulus 2^w ([`computed_width`]).
//!
//! A word v of w bits stands for the residue modulo q_0 nearest to v·q_0/2^w. What the rounding costs is in
//! [`crate::modulus_switch`]. The bytes of a column:
//!
//! | bytes | field | meaning |
//! | --- | --- | --- |
//! | 0-3 | magic | `RCOL` |
//! | 4-5 | version | 1 |
//! | 6 | form | 0 seeded, 1 computed |
//! | 7 | width | w |
//! | 8 | bits | b, of a message |
//! | 9 | padding | bits of padding above it, 0 or 1: a message m stands at m/2^(bits + padding) |
//! | 10 | pieces | log2 of the number r of interleaved pieces |
//! | 11 | | 0 |
//! | 12-15 | rows | 1 to N |
//! | 16-23 | parameters | their tag ([`RnsParams::tag`](crate::RnsParams::tag)) |
//! | 24-39 | key | the tag of the secrets |
//! | 40-43 | log2 variance | f32, of the noise of a row in turns squared, rounding included; 0 not stated |
//! | 44-47 | log2 failure | f32, the failure probability of all that led to the column; 0 not stated |
//! | 48-51 | log2 N | u32 |
//! | 52-55 | | 0 |
//! | 56-59 | CRC-32C | of all bytes behind the header |
//! | 60-63 | CRC-32C | of bytes 0 to 59 |
//!
//! Behind that, a seeded column has 32 bytes of seed and ⌈rows·w/8⌉ of bodies, a computed one ⌈(N + rows)·w/8⌉: the mask's
//! coefficients, then the bodies. Values stand in w bits each, without gaps ([`toroid_tfhe::bits`]). Row ρ is coefficient
//! (ρ mod N/r)·r + ⌊ρ/(N/r)⌋: with one piece, coefficient ρ. Coefficients of no row have no body, and a reader takes 0 for it.

use std::ops::Range;
use std::sync::Arc;

use toroid_tfhe::bits;
use toroid_tfhe::keys::KeyTag;
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::{MaskSeed, SEED_BYTES};

use crate::ciphertext::{Ciphertext, SeededCiphertext};
use crate::column::{self, ColumnError};
use crate::context::{Basis, Context};
use crate::format::{FormatError, expect, field};
use crate::modulus_switch::{
    MAX_WIDTH, ModulusSwitch, body_variance, computed_width, pair_variance, seeded_width,
};
use crate::noise;
use crate::params::{MAX_DEGREE, MIN_DEGREE, RnsParams};
use crate::poly::{Form, RnsPoly};
use crate::secret::SecretKey;

const OBJECT: &str = "a column at rest";
const MAGIC: [u8; 4] = *b"RCOL";
const VERSION: u16 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;

/// How messages stand in the coefficients of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// b, the bits of a message: 1 to 16.
    pub bits: u32,
    /// Whether a bit of padding is left above them, as samples have it: a message m stands at m/2^(b+1) then, else at m/2^b.
    pub padding: bool,
    /// log2 of the number of interleaved pieces: those of samples ([`crate::samples`]); 0 for rows in the order of coefficients.
    pub log2_pieces: u32,
}

impl Layout {
    /// Messages of `bits` bits without padding, in the order of coefficients.
    #[must_use]
    pub fn plain(bits: u32) -> Layout {
        Layout {
            bits,
            padding: false,
            log2_pieces: 0,
        }
    }

    /// Whether messages have so many bits and no padding, whatever the pieces.
    #[must_use]
    pub fn is_plain(&self, bits: u32) -> bool {
        self.bits == bits && !self.padding
    }

    /// log2 of the distance between messages is minus this.
    #[must_use]
    pub fn places(&self) -> u32 {
        self.bits + u32::from(self.padding)
    }

    /// The coefficient that a row is, at ring degree N.
    #[must_use]
    pub fn coefficient(&self, degree: usize, row: usize) -> usize {
        let log2_rows = degree.ilog2() - self.log2_pieces;
        ((row & ((1 << log2_rows) - 1)) << self.log2_pieces) | (row >> log2_rows)
    }

    fn check(&self, degree: usize) -> Result<(), FormatError> {
        if !(1..column::MAX_BITS).contains(&self.bits) {
            let problem = format!("is {}, not 1 to {}", self.bits, column::MAX_BITS - 1);
            return Err(field(OBJECT, "the number of bits", problem));
        }
        if self.log2_pieces > degree.ilog2() {
            let problem = format!("is 2^{}, more than N", self.log2_pieces);
            return Err(field(OBJECT, "the number of pieces", problem));
        }
        Ok(())
    }
}

/// What is known of a column's rows, beside their layout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statement {
    /// log2 of the variance of a row's noise in turns squared, if stated.
    pub log2_variance: Option<f32>,
    /// log2 of the failure probability of all that led to the column, if stated.
    pub log2_failure: Option<f32>,
}

#[derive(Clone, Debug, PartialEq)]
enum Mask {
    Seed(MaskSeed),
    /// N words.
    Words(Vec<u64>),
}

/// A column as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredColumn {
    layout: Layout,
    statement: Statement,
    degree: usize,
    width: u32,
    params: [u8; 8],
    tag: KeyTag,
    mask: Mask,
    /// A word of `width` bits for each row, in the order of rows.
    bodies: Vec<u64>,
}

/// A figure as a header states it: below 0 and finite, or 0.
fn stated(log2: Option<f32>) -> f32 {
    log2.map_or(0.0, |log2| log2.clamp(f32::MIN, -f32::MIN_POSITIVE))
}

fn read_stated(name: &'static str, bytes: [u8; 4]) -> Result<Option<f32>, FormatError> {
    let value = f32::from_le_bytes(bytes);
    match value.to_bits() {
        0 => Ok(None),
        _ if value.is_finite() && value <= -f32::MIN_POSITIVE => Ok(Some(value)),
        _ => Err(field(OBJECT, name, format!("is {value}"))),
    }
}

fn check_rows(degree: usize, rows: usize) -> Result<(), FormatError> {
    if (1..=degree).contains(&rows) {
        return Ok(());
    }
    let problem = format!("is {rows}, not 1 to {degree}");
    Err(field(OBJECT, "the number of rows", problem))
}

fn check_width(layout: Layout, width: u32) -> Result<(), FormatError> {
    if (layout.places()..=MAX_WIDTH).contains(&width) {
        return Ok(());
    }
    let problem = format!("is {width}, not {} to {MAX_WIDTH}", layout.places());
    Err(field(OBJECT, "the width of a word", problem))
}

impl StoredColumn {
    /// Encrypts up to N messages as a seeded column; rows behind them have 0.
    ///
    /// # Errors
    /// [`FormatError::Field`] for a layout or a number of messages that there is none of; [`FormatError::Column`] for a message of too many bits.
    pub fn encrypt(
        secret: &SecretKey,
        layout: Layout,
        messages: &[u32],
        rng: &mut Csprng,
    ) -> Result<StoredColumn, FormatError> {
        layout.check(secret.context().degree())?;
        let width = seeded_width(secret.context().params(), layout.places());
        StoredColumn::encrypt_in(secret, (layout, width), messages, rng)
    }

    /// The same in words of `width` bits: wider ones than reading needs leave less noise.
    ///
    /// # Errors
    /// As [`StoredColumn::encrypt`]; [`FormatError::Field`] for a width that no column has.
    pub fn encrypt_in(
        secret: &SecretKey,
        (layout, width): (Layout, u32),
        messages: &[u32],
        rng: &mut Csprng,
    ) -> Result<StoredColumn, FormatError> {
        let context = secret.context();
        let (params, degree) = (context.params(), context.degree());
        layout.check(degree)?;
        check_width(layout, width)?;
        check_rows(degree, messages.len())?;
        let mut placed = vec![0; degree];
        for (row, message) in messages.iter().enumerate() {
            if message >> layout.bits != 0 {
                let (message, bits) = (*message, layout.bits);
                return Err(ColumnError::Message { row, message, bits }.into());
            }
            placed[layout.coefficient(degree, row)] = *message;
        }
        let plaintext = column::encode(context, layout.places(), &placed)?;
        let fresh = secret.encrypt_seeded(&plaintext, rng)?;
        let q = params.chain[0] as f64;
        let variance = noise::fresh(params) / (q * q) + body_variance(width);
        let mut column = StoredColumn {
            layout,
            statement: Statement {
                log2_variance: Some(variance.log2() as f32),
                log2_failure: None,
            },
            degree,
            width,
            params: params.tag(),
            tag: *secret.tag(),
            mask: Mask::Seed(fresh.seed),
            bodies: Vec::new(),
        };
        column.bodies = column.round_bodies(&fresh.b, messages.len());
        Ok(column)
    }

    /// A ciphertext of one limb as a computed column of `rows` rows. `tag` is that of its secrets; `statement` what is known of the
    /// ciphertext, to which the rounding is added.
    ///
    /// # Errors
    /// [`FormatError::Field`] for a layout, a number of rows or of limbs that there is none of.
    pub fn of_ciphertext(
        ciphertext: &Ciphertext,
        layout: Layout,
        rows: usize,
        tag: KeyTag,
        statement: Statement,
    ) -> Result<StoredColumn, FormatError> {
        let context = ciphertext.context();
        layout.check(context.degree())?;
        let width = computed_width(context.params(), layout.places());
        StoredColumn::of_ciphertext_in(ciphertext, (layout, width), rows, tag, statement)
    }

    /// The same in words of `width` bits: wider ones than reading needs leave less noise.
    ///
    /// # Errors
    /// As [`StoredColumn::of_ciphertext`]; [`FormatError::Field`] for a width that no column has.
    pub fn of_ciphertext_in(
        ciphertext: &Ciphertext,
        (layout, width): (Layout, u32),
        rows: usize,
        tag: KeyTag,
        statement: Statement,
    ) -> Result<StoredColumn, FormatError> {
        let context = ciphertext.context();
        let (params, degree) = (context.params(), context.degree());
        layout.check(degree)?;
        check_width(layout, width)?;
        check_rows(degree, rows)?;
        expect(OBJECT, "the number of limbs", 1, ciphertext.limbs())?;
        let rounded = |variance: f32| {
            let sum = f64::from(variance).exp2() + pair_variance(params, width);
            sum.log2() as f32
        };
        let mut mask = ciphertext.a().clone();
        mask.to_coefficients();
        let mut words = mask.words().to_vec();
        ModulusSwitch::new(params.chain[0], 1 << width).apply_all(&mut words);
        let mut column = StoredColumn {
            layout,
            statement: Statement {
                log2_variance: statement.log2_variance.map(rounded),
                ..statement
            },
            degree,
            width,
            params: params.tag(),
            tag,
            mask: Mask::Words(words),
            bodies: Vec::new(),
        };
        column.bodies = column.round_bodies(ciphertext.b(), rows);
        Ok(column)
    }

    /// The bodies of the first rows, rounded.
    fn round_bodies(&self, b: &RnsPoly, rows: usize) -> Vec<u64> {
        let mut b = b.clone();
        b.to_coefficients();
        let switch = ModulusSwitch::new(b.prime(0), 1 << self.width);
        let words = b.words();
        let body = |row| switch.apply(words[self.layout.coefficient(self.degree, row)]);
        (0..rows).map(body).collect()
    }

    /// The column as a ciphertext of one limb. Rounding to q_0 adds [`noise::rounding`] units of q_0 squared to a computed
    /// column's noise, and 1/12 to a seeded one's. Coefficients of no row decrypt to anything.
    ///
    /// # Errors
    /// [`FormatError::Field`] for a column of other parameters.
    pub fn to_ciphertext(&self, context: &Arc<Context>) -> Result<Ciphertext, FormatError> {
        let params = context.params();
        if !self.is_of(params) {
            let problem = "names others than those of the context";
            return Err(field(OBJECT, "the tag of its parameters", problem));
        }
        let (q, basis) = (params.chain[0], Basis::chain(1));
        let switch = ModulusSwitch::new(1 << self.width, q);
        let mut b = RnsPoly::zero(context, basis, Form::Coefficients);
        for (row, body) in self.bodies.iter().enumerate() {
            b.words_mut()[self.layout.coefficient(self.degree, row)] = switch.apply(*body);
        }
        b.to_values();
        let scale = q as f64;
        match &self.mask {
            Mask::Seed(seed) => {
                let seed = *seed;
                Ok(SeededCiphertext { b, seed, scale }.expand())
            }
            Mask::Words(words) => {
                let mut a = RnsPoly::raw(context, basis, Form::Coefficients);
                a.words_mut().copy_from_slice(words);
                switch.apply_all(a.words_mut());
                Ok(Ciphertext::new(b, a, scale)?)
            }
        }
    }

    /// Some of its rows as a computed column in words of `width` bits, of which the first of them is row 0. Rows of several pieces have no
    /// such parts.
    ///
    /// # Errors
    /// [`FormatError::Field`] for rows that are not there, several pieces, a width that no column has, and a column of other parameters.
    pub fn slice_in(
        &self,
        context: &Arc<Context>,
        rows: Range<usize>,
        width: u32,
    ) -> Result<StoredColumn, FormatError> {
        if rows.is_empty() || rows.end > self.rows() || self.layout.log2_pieces != 0 {
            let (of, pieces) = (self.rows(), self.layout.log2_pieces);
            let problem = format!("is {rows:?} of {of} in 2^{pieces} pieces");
            return Err(field(OBJECT, "a range of rows", problem));
        }
        let mut ciphertext = self.to_ciphertext(context)?;
        ciphertext.mul_monomial(-(rows.start as i64));
        let place = (self.layout, width);
        StoredColumn::of_ciphertext_in(&ciphertext, place, rows.len(), self.tag, self.statement)
    }

    /// The messages of all rows; of rows with padding, its bit above the message's.
    ///
    /// # Errors
    /// [`FormatError::Field`] for a column of other parameters or another key.
    pub fn decrypt(&self, secret: &SecretKey) -> Result<Vec<u32>, FormatError> {
        if self.tag != *secret.tag() {
            let problem = "names another key";
            return Err(field(OBJECT, "the tag of its key", problem));
        }
        let ciphertext = self.to_ciphertext(secret.context())?;
        let messages = column::decrypt(secret, self.layout.places(), &ciphertext)?;
        let rows = 0..self.rows();
        Ok(rows
            .map(|row| messages[self.layout.coefficient(self.degree, row)])
            .collect())
    }

    /// How messages stand.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// What is known of the rows.
    #[must_use]
    pub fn statement(&self) -> Statement {
        self.statement
    }

    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.bodies.len()
    }

    /// Bits of a word.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Whether the column is one of these parameters.
    #[must_use]
    pub fn is_of(&self, params: &RnsParams) -> bool {
        self.params == params.tag() && self.degree == params.degree
    }

    /// Bytes of a computed column of so many rows in words of `width` bits.
    #[must_use]
    pub fn computed_bytes(params: &RnsParams, width: u32, rows: usize) -> usize {
        HEADER_BYTES + Self::body_bytes(params.degree, rows, width, false)
    }

    /// Whether a seed stands for the mask.
    #[must_use]
    pub fn is_seeded(&self) -> bool {
        matches!(self.mask, Mask::Seed(_))
    }

    /// The tag of the secrets.
    #[must_use]
    pub fn tag(&self) -> &KeyTag {
        &self.tag
    }

    /// `self + other`, modulo 2^w: no rounding. Variances add up, for noise that is independent.
    ///
    /// # Errors
    /// [`FormatError::Field`] for a seeded column, and for two that differ in parameters, key, layout, width or rows.
    pub fn add_assign(&mut self, other: &StoredColumn) -> Result<(), FormatError> {
        let same = self.layout == other.layout
            && (self.params, self.tag) == (other.params, other.tag)
            && (self.width, self.rows()) == (other.width, other.rows());
        let (Mask::Words(own), Mask::Words(mask), true) = (&mut self.mask, &other.mask, same)
        else {
            return Err(field(
                OBJECT,
                "an operand of a sum",
                "is seeded, or has another layout, width, key or number of rows",
            ));
        };
        let most = (1 << self.width) - 1;
        let pairs = own.iter_mut().chain(&mut self.bodies);
        for (word, other) in pairs.zip(mask.iter().chain(&other.bodies)) {
            *word = (*word + other) & most;
        }
        let (own, other) = (&mut self.statement, &other.statement);
        own.log2_variance = both(own.log2_variance, other.log2_variance);
        own.log2_failure = both(own.log2_failure, other.log2_failure);
        Ok(())
    }

    /// `factor·self`, modulo 2^w: no rounding. The variance is multiplied by the factor's square.
    ///
    /// # Errors
    /// [`FormatError::Field`] for a seeded column.
    pub fn mul_assign(&mut self, factor: i32) -> Result<(), FormatError> {
        let Mask::Words(own) = &mut self.mask else {
            return Err(field(OBJECT, "an operand of a product", "is seeded"));
        };
        let most = (1 << self.width) - 1;
        let factor = i64::from(factor).cast_unsigned();
        for word in own.iter_mut().chain(&mut self.bodies) {
            *word = word.wrapping_mul(factor) & most;
        }
        let square = 2.0 * f64::from(factor.cast_signed() as i32).abs().log2();
        let grown = |log2: f32| (f64::from(log2) + square.max(f64::from(f32::MIN))) as f32;
        self.statement.log2_variance = self.statement.log2_variance.map(grown);
        Ok(())
    }

    /// Each row becomes the sum of `count` rows of its piece from it on, modulo 2^w: the column times Σ X^(-ri), which takes neither
    /// keys nor rounding. Rows of which fewer follow decrypt to anything. So row 0 is the sum of a column of one piece and `count` rows,
    /// and every `count`-th row is that of a group.
    ///
    /// The variance is multiplied by `count`: exact for noise that is independent from row to row. That of rounding is so on average
    /// over secrets. Under one secret, it is Σ W_k²/12 for the sums W_k of `count` coefficients of the secret each, with signs; where `count` is N,
    /// these move together, and one secret in a hundred has four times the average.
    ///
    /// # Errors
    /// [`FormatError::Field`] for a seeded column, and for no rows or more than a piece has.
    pub fn sum_windows(&mut self, count: usize) -> Result<(), FormatError> {
        let rows = self.degree >> self.layout.log2_pieces;
        let Mask::Words(words) = &mut self.mask else {
            return Err(field(OBJECT, "an operand of sums", "is seeded"));
        };
        if !(1..=rows).contains(&count) {
            let problem = format!("is {count}, not 1 to {rows}");
            return Err(field(OBJECT, "the number of rows of a sum", problem));
        }
        let (pieces, most) = (self.degree / rows, (1 << self.width) - 1);
        for piece in 0..pieces {
            let own = words.iter().skip(piece).step_by(pieces).copied();
            let sums = windows(&own.collect::<Vec<_>>(), count, most);
            for (word, sum) in words.iter_mut().skip(piece).step_by(pieces).zip(sums) {
                *word = sum;
            }
        }
        for bodies in self.bodies.chunks_mut(rows) {
            let mut own = bodies.to_vec();
            own.resize(rows, 0);
            for (body, sum) in bodies.iter_mut().zip(windows(&own, count, most)) {
                *body = sum;
            }
        }
        let grown = |log2: f32| (f64::from(log2) + (count as f64).log2()) as f32;
        let statement = &mut self.statement;
        statement.log2_variance = statement.log2_variance.map(grown);
        statement.log2_failure = statement.log2_failure.map(grown);
        Ok(())
    }

    /// Bytes of a column.
    fn body_bytes(degree: usize, rows: usize, width: u32, seeded: bool) -> usize {
        if seeded {
            SEED_BYTES + bits::bytes(rows, width)
        } else {
            bits::bytes(degree + rows, width)
        }
    }

    /// The column as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let seeded = self.is_seeded();
        let body = Self::body_bytes(self.degree, self.rows(), self.width, seeded);
        let mut bytes = vec![0; HEADER_BYTES];
        bytes.reserve(body);
        match &self.mask {
            Mask::Seed(seed) => {
                bytes.extend_from_slice(seed.as_bytes());
                bits::write(self.bodies.iter().copied(), self.width, &mut bytes);
            }
            Mask::Words(words) => {
                let words = words.iter().chain(&self.bodies).copied();
                bits::write(words, self.width, &mut bytes);
            }
        }
        let mut crc = crc32c::crc32c(&bytes[HEADER_BYTES..]);
        let header = &mut bytes[..HEADER_BYTES];
        header[..4].copy_from_slice(&MAGIC);
        header[4..6].copy_from_slice(&VERSION.to_le_bytes());
        header[6] = u8::from(!seeded);
        header[7] = self.width as u8;
        header[8] = self.layout.bits as u8;
        header[9] = u8::from(self.layout.padding);
        header[10] = self.layout.log2_pieces as u8;
        header[12..16].copy_from_slice(&(self.bodies.len() as u32).to_le_bytes());
        header[16..24].copy_from_slice(&self.params);
        header[24..40].copy_from_slice(&self.tag);
        header[40..44].copy_from_slice(&stated(self.statement.log2_variance).to_le_bytes());
        header[44..48].copy_from_slice(&stated(self.statement.log2_failure).to_le_bytes());
        header[48..52].copy_from_slice(&self.degree.ilog2().to_le_bytes());
        header[56..60].copy_from_slice(&crc.to_le_bytes());
        crc = crc32c::crc32c(&header[..60]);
        header[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a column.
    ///
    /// # Errors
    /// [`FormatError::Field`] with what is wrong; [`FormatError::File`] for bits behind the last word.
    pub fn from_bytes(bytes: &[u8]) -> Result<StoredColumn, FormatError> {
        let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            let problem = format!("has {} bytes, not {HEADER_BYTES}", bytes.len());
            return Err(field(OBJECT, "the header", problem));
        };
        let four = |at: usize| [0, 1, 2, 3].map(|i| header[at + i]);
        let u32_at = |at: usize| u32::from_le_bytes(four(at));
        if header[..4] != MAGIC {
            return Err(field(OBJECT, "the beginning", "is not RCOL"));
        }
        if u32_at(60) != crc32c::crc32c(&header[..60]) {
            return Err(field(OBJECT, "the header", "is damaged"));
        }
        let version = u16::from_le_bytes([header[4], header[5]]);
        expect(OBJECT, "the version", VERSION, version)?;
        if header[11] != 0 || header[52..56] != [0; 4] {
            return Err(field(OBJECT, "reserved bytes of the header", "are not 0"));
        }
        let flag = |at: usize, name: &str| match header[at] {
            flag @ (0 | 1) => Ok(flag == 1),
            value => Err(field(OBJECT, name, format!("is {value}, not 0 or 1"))),
        };
        let seeded = !flag(6, "the form")?;
        let log2_degree = u32_at(48);
        if !(MIN_DEGREE.ilog2()..=MAX_DEGREE.ilog2()).contains(&log2_degree) {
            let problem = format!("is 2^{log2_degree}");
            return Err(field(OBJECT, "the ring degree", problem));
        }
        let degree = 1usize << log2_degree;
        let layout = Layout {
            bits: header[8].into(),
            padding: flag(9, "the padding")?,
            log2_pieces: header[10].into(),
        };
        layout.check(degree)?;
        let width = u32::from(header[7]);
        check_width(layout, width)?;
        let rows = u32_at(12) as usize;
        check_rows(degree, rows)?;
        let expected = Self::body_bytes(degree, rows, width, seeded);
        let name = "the number of bytes behind the header";
        expect(OBJECT, name, expected, body.len())?;
        if u32_at(56) != crc32c::crc32c(body) {
            return Err(field(OBJECT, "the content", "is damaged"));
        }
        let statement = Statement {
            log2_variance: read_stated("the variance of the noise", four(40))?,
            log2_failure: read_stated("the failure probability", four(44))?,
        };
        let read = |bytes: &[u8], count: usize| {
            let mut words = Vec::with_capacity(count);
            bits::read(bytes, width, count, OBJECT, |word| words.push(word))?;
            Ok::<_, FormatError>(words)
        };
        let (mask, bodies) = match body.split_first_chunk::<SEED_BYTES>() {
            Some((seed, rest)) if seeded => {
                (Mask::Seed(MaskSeed::from_bytes(*seed)), read(rest, rows)?)
            }
            _ => {
                let mut words = read(body, degree + rows)?;
                let bodies = words.split_off(degree);
                (Mask::Words(words), bodies)
            }
        };
        let mut column = StoredColumn {
            layout,
            statement,
            degree,
            width,
            params: [0; 8],
            tag: [0; 16],
            mask,
            bodies,
        };
        column.params.copy_from_slice(&header[16..24]);
        column.tag.copy_from_slice(&header[24..40]);
        Ok(column)
    }
}

/// The sums of `count` words from each on, modulo `most` + 1; words behind the end are those of the beginning, negated.
fn windows(words: &[u64], count: usize, most: u64) -> Vec<u64> {
    let mut sum = words[..count]
        .iter()
        .fold(0u64, |sum, word| sum.wrapping_add(*word));
    let sums = (0..words.len()).map(|at| {
        let now = sum & most;
        let next = at + count;
        let entering = match words.get(next) {
            Some(word) => *word,
            None => words[next - words.len()].wrapping_neg(),
        };
        sum = sum.wrapping_sub(words[at]).wrapping_add(entering);
        now
    });
    sums.collect()
}

/// log2 of the sum of what two figures stand for, where both are stated.
fn both(own: Option<f32>, other: Option<f32>) -> Option<f32> {
    let (own, other) = (f64::from(own?), f64::from(other?));
    Some(toroid_tfhe::noise::log2_add(own, other) as f32)
}

/// The variance of a row of a computed column that is made of rows of this variance: in turns squared.
#[must_use]
pub fn computed_variance(params: &RnsParams, layout: Layout, variance: f64) -> f64 {
    variance + pair_variance(params, computed_width(params, layout.places()))
}
