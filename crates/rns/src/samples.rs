//! Samples to columns, and columns to samples.
//!
//! Chunks of a set for wide functions ([`toroid_tfhe::column`]) are GLWE samples of degree n under k polynomials s_c of bits. r = N/n of
//! them, chunk j multiplied by X^j once X stands for X^r in it, add up to one sample (B, A_1, …, A_k) of degree N under the
//! secrets s_c(X^r), whose coefficient i·r + j is row i of chunk j: B - Σ A_c·s_c(X^r). Key switches lead from there to the main
//! secret S of the ring, and back:
//!
//! 1. Each mask is rounded to w = l·β bits and cut into l signed digits of β bits ([`Gadget`]).
//! 2. The digits meet the key's rows modulo p_0, the first special prime: for the value g = round(p_0·2^(βi)/2^w) of digit i and the
//!    payload t, minus the secret that the mask stands under, encryptions of g·t under the other secret.
//! 3. The result goes to q_0, or to the Goldilocks prime.
//!
//! Security: a key to columns is RLWE of degree N under the ternary main secret, at a modulus of 50 bits where
//! [`largest_modulus`](crate::search::largest_modulus) has 1736 for N = 65536. A key to samples is N/n module-LWE samples
//! of dimension k·n = 2048 for each row, under secrets of bits: at a modulus of 50 bits, noise of 4 units is 2^-48 of it, above
//! the 2^-49.75 from which [`toroid_tfhe::params`] counts 128 bits at that dimension. Both take circular security for granted,
//! as evaluation keys do.
//!
//! A message m of b bits stands at m/2^(b+1) in samples, which have a bit of padding, and at m/2^b in columns without. [`Padding`] says
//! what becomes of it.

use std::io::{Read, Write};
use std::sync::Arc;

use toroid_ring::goldilocks;
use toroid_task::Progress;
use toroid_tfhe::column::{Chunk, rows_per_chunk};
use toroid_tfhe::keys::{ClientKey, KeyTag};
use toroid_tfhe::params::{Gadget, ModulusKind, ParamSet};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::MaskSeed;
use zeroize::Zeroizing;

use crate::ciphertext::{Ciphertext, expand_mask};
use crate::context::{Basis, Context};
use crate::format::{self, FormatError, Kind, Reader, expect, field};
use crate::modulus_switch::ModulusSwitch;
use crate::noise;
use crate::params::RnsParams;
use crate::poly::{Form, RnsPoly};
use crate::ring_set::RingSet;
use crate::secret::{SecretKey, SecretPoly};

const OBJECT: &str = Kind::SampleKeys.name();

/// The smallest deviation of noise under the secrets of samples, in units of p_0: that of the parameter sets.
const LEAST_SIGMA: f64 = 4.0;

/// The most bits of a mask that is cut into digits.
const MAX_WIDTH: usize = 48;

/// Three digits of eleven bits: rounding and keys add less than 2^-26 turns to a row at N = 65536.
pub const GADGET: Gadget = Gadget {
    levels: 3,
    log2_base: 11,
};

/// What becomes of the padding bit of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Padding {
    /// It stays: a column has m at m/2^(b+1), as samples have it.
    Keep,
    /// Columns have m at m/2^b. Samples are doubled on their way to columns. Columns are halved on their way to samples, which
    /// leaves a random bit in the padding: wide functions ignore it, decryption does not.
    Drop,
}

/// Residues modulo p_0 alone.
const SWITCHING: Basis = Basis {
    chain: 0,
    special: 1,
};

/// Encryptions (b, a_1, …, a_k) of a gadget's values of some payloads: a row for each digit of each payload.
struct SwitchKey {
    seed: MaskSeed,
    /// Each b, then its masks, in values.
    rows: Vec<Vec<RnsPoly>>,
}

/// g_i = round(p_0·2^(βi)/2^w), the lowest digit first, and by how much that is off.
fn gadget_values(gadget: Gadget, prime: u64) -> Vec<(u64, f64)> {
    let width = gadget.levels as u32 * gadget.log2_base;
    let value = |level: usize| {
        let shift = width - level as u32 * gadget.log2_base;
        let (rest, half) = (prime & ((1 << shift) - 1), 1 << (shift - 1));
        let nearest = (prime + half) >> shift;
        let unit = f64::from(shift).exp2();
        let off = if rest >= half {
            unit - rest as f64
        } else {
            rest as f64
        };
        (nearest, off / unit)
    };
    (0..gadget.levels).map(value).collect()
}

impl SwitchKey {
    /// A key for payloads under secrets, all in values modulo p_0.
    fn generate(
        payloads: &[SecretPoly],
        secrets: &[SecretPoly],
        gadget: Gadget,
        sigma: f64,
        rng: &mut Csprng,
    ) -> Result<SwitchKey, FormatError> {
        let context = Arc::clone(payloads[0].poly().context());
        let seed = MaskSeed::generate(rng);
        let values = gadget_values(gadget, context.prime(SWITCHING, 0));
        let mut rows = Vec::with_capacity(payloads.len() * values.len());
        for payload in payloads {
            for (value, _) in &values {
                let mut noise = Zeroizing::new(vec![0; context.degree()]);
                rng.fill_gaussian(sigma, &mut noise);
                let mut b = RnsPoly::from_i64(&context, SWITCHING, &noise)?;
                b.to_values();
                let mut term = SecretPoly::new(payload.poly().clone());
                term.poly_mut().mul_scalar((*value).into());
                b.add_assign(term.poly());
                let masks = Self::masks(&context, &seed, rows.len(), secrets.len());
                for (mask, secret) in masks.iter().zip(secrets) {
                    b.mul_add_assign(mask, secret.poly());
                }
                rows.push([vec![b], masks].concat());
            }
        }
        Ok(SwitchKey { seed, rows })
    }

    /// The masks of a row: polynomials row·k to row·k + k - 1 of the seed.
    fn masks(context: &Arc<Context>, seed: &MaskSeed, row: usize, count: usize) -> Vec<RnsPoly> {
        let mask = |index: usize| {
            let mut mask = RnsPoly::raw(context, SWITCHING, Form::Values);
            expand_mask(&mut mask, seed, row * count + index);
            mask
        };
        (0..count).map(mask).collect()
    }

    /// For masks modulo `modulus`, in coefficients: the sum of their digits times the rows, in coefficients modulo p_0. With the body it
    /// has the masks' own phase, brought to p_0.
    fn multiply(
        &self,
        context: &Arc<Context>,
        gadget: Gadget,
        modulus: u64,
        masks: &[Vec<u64>],
    ) -> Result<Vec<RnsPoly>, FormatError> {
        let (levels, log2_base) = (gadget.levels, gadget.log2_base);
        let switch = ModulusSwitch::new(modulus, 1 << (levels as u32 * log2_base));
        let half = 1i64 << (log2_base - 1);
        // Half a base at every level makes the digits unsigned.
        let offset: i64 = (0..levels as u32).map(|i| half << (i * log2_base)).sum();
        let outputs = self.rows[0].len();
        let mut sums = vec![RnsPoly::zero(context, SWITCHING, Form::Values); outputs];
        let mut rows = self.rows.iter();
        for mask in masks {
            let shifted: Vec<i64> = mask
                .iter()
                .map(|word| switch.apply(*word).cast_signed() + offset)
                .collect();
            for (level, row) in (0..levels as u32).zip(rows.by_ref()) {
                let digits = shifted
                    .iter()
                    .map(|word| ((word >> (level * log2_base)) & (2 * half - 1)) - half);
                let digits: Vec<i64> = digits.collect();
                let mut digit = RnsPoly::from_i64(context, SWITCHING, &digits)?;
                digit.to_values();
                for (sum, part) in sums.iter_mut().zip(row) {
                    sum.mul_add_assign(&digit, part);
                }
            }
        }
        sums.iter_mut().for_each(RnsPoly::to_coefficients);
        Ok(sums)
    }
}

/// The keys between samples of a parameter set under one client key and columns under one secret key. They are public.
pub struct SampleKeys {
    context: Arc<Context>,
    set: ParamSet,
    tag: KeyTag,
    client: KeyTag,
    gadget: Gadget,
    to_columns: SwitchKey,
    to_samples: SwitchKey,
}

/// Refuses sets whose samples do not make columns, and gadgets without room.
fn check(params: &RnsParams, set: &ParamSet, gadget: Gadget) -> Result<(), FormatError> {
    if !set.is_wide() || set.modulus != ModulusKind::Goldilocks {
        let problem = format!("is {}, which has no shared masks", set.name);
        return Err(field(OBJECT, "the parameter set of samples", problem));
    }
    if set.ring_degree > params.degree {
        let problem = format!("is {}, more than {}", set.ring_degree, params.degree);
        return Err(field(OBJECT, "the ring degree of samples", problem));
    }
    let most = MAX_WIDTH.min(params.special[0].ilog2() as usize - 1);
    let digits = (1..=most).contains(&gadget.levels) && (1..=24).contains(&gadget.log2_base);
    if !digits || gadget.levels * gadget.log2_base as usize > most {
        let (levels, base) = (gadget.levels, gadget.log2_base);
        let problem = format!("has {levels} digits of {base} bits, not {most} bits at most");
        return Err(field(OBJECT, "the gadget", problem));
    }
    Ok(())
}

/// The deviation of the noise of keys to samples, in units of p_0.
fn sample_sigma(params: &RnsParams, set: &ParamSet) -> f64 {
    let units = set.log2_glwe_noise.exp2() * params.special[0] as f64;
    units.max(LEAST_SIGMA)
}

impl SampleKeys {
    /// Generates both keys.
    ///
    /// # Errors
    /// [`FormatError::Field`] for a set without wide functions, one of a larger ring, and a gadget without room.
    pub fn generate(
        client: &ClientKey,
        secret: &SecretKey,
        gadget: Gadget,
        rng: &mut Csprng,
    ) -> Result<SampleKeys, FormatError> {
        let (context, set) = (secret.context(), client.params());
        let params = context.params();
        check(params, set, gadget)?;
        let pieces = params.degree / set.ring_degree;
        let of_samples = |sign: i64| {
            let of_polynomial = |bits: &[u64]| {
                let mut spread = Zeroizing::new(vec![0; params.degree]);
                for (bit, place) in bits.iter().zip(spread.iter_mut().step_by(pieces)) {
                    *place = sign * bit.cast_signed();
                }
                SecretPoly::from_coefficients(context, SWITCHING, &spread)
            };
            let polynomials = client.glwe().bits().chunks_exact(set.ring_degree);
            polynomials
                .map(of_polynomial)
                .collect::<Result<Vec<_>, _>>()
        };
        let main = SecretPoly::new(secret.main().in_basis(SWITCHING));
        let mut negated = SecretPoly::new(main.poly().clone());
        negated.poly_mut().neg_assign();
        let sigma = sample_sigma(params, set);
        let to_samples = [&[negated][..], &of_samples(1)?];
        Ok(SampleKeys {
            context: Arc::clone(context),
            set: *set,
            tag: *secret.tag(),
            client: *client.tag(),
            gadget,
            to_columns: SwitchKey::generate(&of_samples(-1)?, &[main], gadget, params.sigma, rng)?,
            to_samples: SwitchKey::generate(to_samples[0], to_samples[1], gadget, sigma, rng)?,
        })
    }

    /// The context of the columns.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The parameter set of the samples.
    #[must_use]
    pub fn set(&self) -> &ParamSet {
        &self.set
    }

    /// Refuses keys of samples of another parameter set.
    ///
    /// # Errors
    /// [`FormatError::Field`].
    pub fn expect_set(&self, set: &ParamSet) -> Result<(), FormatError> {
        expect(
            OBJECT,
            "the parameter set of samples",
            set.name,
            self.set.name,
        )
    }

    /// The tag of the columns' secrets.
    #[must_use]
    pub fn tag(&self) -> &KeyTag {
        &self.tag
    }

    /// The tag of the samples' client key.
    #[must_use]
    pub fn client_tag(&self) -> &KeyTag {
        &self.client
    }

    /// Words of both keys in memory.
    pub(crate) fn words(&self) -> u64 {
        let rows = self.to_columns.rows.iter().chain(&self.to_samples.rows);
        rows.map(|row| (row.len() * self.context.degree()) as u64)
            .sum()
    }

    /// Bytes of memory that they take.
    #[must_use]
    pub fn memory(&self) -> u64 {
        8 * self.words()
    }

    /// N/n, the chunks of a full column.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.context.degree() / self.set.ring_degree
    }

    fn special(&self) -> u64 {
        self.context.prime(SWITCHING, 0)
    }

    /// A column of the rows of up to N/n chunks, one after the other, as [`crate::stored::Layout`] has them with N/n pieces.
    /// Coefficients of no row decrypt to anything.
    ///
    /// # Errors
    /// [`FormatError::Field`] for chunks of another set, chunks whose rows share no masks, and too many.
    pub fn to_column(&self, chunks: &[Chunk], padding: Padding) -> Result<Ciphertext, FormatError> {
        let (context, pieces) = (&self.context, self.pieces());
        let (n, k) = (self.set.ring_degree, self.set.glwe_dimension);
        if chunks.len() > pieces {
            let problem = format!("are {}, more than {pieces}", chunks.len());
            return Err(field("a column of samples", "the chunks", problem));
        }
        // The masks, then the body.
        let mut parts = vec![vec![0; context.degree()]; k + 1];
        for (piece, chunk) in chunks.iter().enumerate() {
            let words = chunk.glwe().filter(|_| *chunk.params() == self.set);
            let words = words.ok_or_else(|| {
                let problem = format!("is no packed or seeded chunk of {}", self.set.name);
                field("a column of samples", format!("chunk {piece}"), problem)
            })?;
            for (part, words) in parts.iter_mut().zip(words.chunks(n)) {
                for (place, word) in part.iter_mut().skip(piece).step_by(pieces).zip(words) {
                    *place = *word;
                }
            }
        }
        if padding == Padding::Drop {
            for word in parts.iter_mut().flatten() {
                let (sum, carry) = word.overflowing_add(*word);
                let reduced = sum.wrapping_sub(goldilocks::P);
                *word = if carry || sum >= goldilocks::P {
                    reduced
                } else {
                    sum
                };
            }
        }
        let body = parts.pop().unwrap_or_default();
        let key = &self.to_columns;
        let mut sums = key.multiply(context, self.gadget, goldilocks::P, &parts)?;
        self.add_body(&mut sums[0], goldilocks::P, &body);
        let q = context.params().chain[0];
        let switch = ModulusSwitch::new(self.special(), q);
        let parts = sums.iter().map(|sum| {
            let mut part = RnsPoly::raw(context, Basis::chain(1), Form::Coefficients);
            part.words_mut().copy_from_slice(sum.words());
            switch.apply_all(part.words_mut());
            part
        });
        let mut parts = parts.collect::<Vec<_>>().into_iter();
        match (parts.next(), parts.next()) {
            (Some(b), Some(a)) => Ok(Ciphertext::new(b, a, q as f64)?),
            _ => unreachable!("a row of a key to columns has two polynomials"),
        }
    }

    /// Adds a body modulo `modulus`, brought to p_0.
    fn add_body(&self, sum: &mut RnsPoly, modulus: u64, body: &[u64]) {
        let special = self.special();
        let switch = ModulusSwitch::new(modulus, special);
        for (sum, word) in sum.words_mut().iter_mut().zip(body) {
            *sum = toroid_ring::prime::add(*sum, switch.apply(*word), special);
        }
    }

    /// The N/n chunks of a column of one limb, of n rows each, as [`SampleKeys::to_column`] takes them: the samples of any set for
    /// wide functions' first stage.
    ///
    /// # Errors
    /// [`FormatError::Field`] for more limbs, or another context.
    pub fn to_chunks(
        &self,
        column: &Ciphertext,
        padding: Padding,
    ) -> Result<Vec<Chunk>, FormatError> {
        let context = &self.context;
        if !Arc::ptr_eq(context, column.context()) {
            return Err(crate::RnsError::Context.into());
        }
        expect("a column", "the number of limbs", 1, column.limbs())?;
        let [mut b, mut a] = [column.b().clone(), column.a().clone()];
        b.to_coefficients();
        a.to_coefficients();
        let (q, masks) = (b.prime(0), [a.words().to_vec()]);
        let mut sums = self.to_samples.multiply(context, self.gadget, q, &masks)?;
        self.add_body(&mut sums[0], q, b.words());
        let special = self.special();
        if padding == Padding::Drop {
            for word in sums.iter_mut().flat_map(RnsPoly::words_mut) {
                // Odd words take the odd prime with them: the half modulo p_0.
                *word = (*word + (*word & 1) * special) >> 1;
            }
        }
        let (n, pieces) = (self.set.ring_degree, self.pieces());
        let switch = ModulusSwitch::new(special, goldilocks::P);
        sums.rotate_left(1);
        let chunk = |piece: usize| {
            let mut words = Vec::with_capacity(sums.len() * n);
            for part in &sums {
                let own = part.words().iter().skip(piece).step_by(pieces);
                words.extend(own.map(|word| switch.apply(*word)));
            }
            Ok(Chunk::from_glwe(&self.set, words)?)
        };
        (0..pieces).map(chunk).collect()
    }

    /// Bytes of the bodies of a row.
    fn row_bytes(context: &Context) -> usize {
        format::residue_bytes(context.prime(SWITCHING, 0), context.degree())
    }

    /// Bytes of the payload behind the parameters.
    fn payload_bytes(context: &Context, set: &ParamSet, gadget: Gadget) -> u64 {
        let rows = (set.glwe_dimension + 1) * gadget.levels;
        (FIXED_BYTES + 2 * 32 + rows * Self::row_bytes(context)) as u64
    }

    /// Writes the keys. The header has the parameter set of the samples and the tag of the columns' secrets. Behind the ring's
    /// parameters stand the tag of the samples' client key (16 bytes), l, β and 6 bytes 0; then, for the key to columns and for
    /// that to samples, a seed of 32 bytes and the bodies of the rows, k·l and l, as values modulo p_0 ([`crate::format`]). The masks of row j
    /// are the polynomials of the seed from j on, from j·k on for samples, numbered as those of evaluation keys are.
    ///
    /// # Errors
    /// [`FormatError::File`] where writing fails; [`FormatError::Rns`] once cancelled.
    pub fn write_to<W: Write>(&self, inner: W, progress: &Progress) -> Result<W, FormatError> {
        let context = &self.context;
        let rest = Self::payload_bytes(context, &self.set, self.gadget);
        let params = context.params();
        let mut writer =
            format::begin(inner, Kind::SampleKeys, self.set.id, self.tag, params, rest)?;
        let mut fixed = [0; FIXED_BYTES];
        fixed[..16].copy_from_slice(&self.client);
        fixed[16] = self.gadget.levels as u8;
        fixed[17] = self.gadget.log2_base as u8;
        writer.write(&fixed)?;
        let total = (self.to_columns.rows.len() + self.to_samples.rows.len()) as u64;
        let mut done = 0;
        for key in [&self.to_columns, &self.to_samples] {
            writer.write(key.seed.as_bytes())?;
            for row in &key.rows {
                progress.check()?;
                let mut bytes = Vec::with_capacity(Self::row_bytes(context));
                format::write_residues(self.special(), row[0].words(), &mut bytes);
                writer.write(&bytes)?;
                done += 1;
                progress.report("writing keys of samples", done, total);
            }
        }
        Ok(writer.finish()?)
    }

    /// Bytes of the file of the keys with [`GADGET`] between columns of a ring and samples of a set.
    ///
    /// # Errors
    /// Those of [`SampleKeys::generate`] and of [`RingSet::context`].
    pub fn file_bytes(ring: &RingSet, set: &ParamSet) -> Result<u64, FormatError> {
        check(ring.params(), set, GADGET)?;
        let context = ring.context()?;
        let rest = Self::payload_bytes(&context, set, GADGET);
        Ok(format::file_bytes(ring.params(), rest))
    }

    /// Reads keys with [`GADGET`] of a ring by name.
    ///
    /// # Errors
    /// [`FormatError::Field`] for parameters of no ring and for another gadget; those of [`SampleKeys::read_from`].
    pub fn read_of_set<R: Read>(
        inner: R,
        progress: &Progress,
    ) -> Result<(&'static RingSet, SampleKeys), FormatError> {
        let reader = Reader::new(inner)?;
        reader.expect_kind(Kind::SampleKeys)?;
        let ring = RingSet::of_file(Kind::SampleKeys, reader.params())?;
        let keys = SampleKeys::read_from(reader, &ring.context()?, progress)?;
        if keys.gadget != GADGET {
            let (levels, base) = (keys.gadget.levels, keys.gadget.log2_base);
            let problem = format!(
                "has {levels} digits of {base} bits, not {} of {}",
                GADGET.levels, GADGET.log2_base
            );
            return Err(field(OBJECT, "the gadget", problem));
        }
        Ok((ring, keys))
    }

    /// Reads keys into a context of their parameters.
    ///
    /// # Errors
    /// [`FormatError::File`] for damage; [`FormatError::Field`] for another kind, another context, and fields that are not what
    /// they should be; [`FormatError::Rns`] once cancelled.
    pub fn read_from<R: Read>(
        mut reader: Reader<R>,
        context: &Arc<Context>,
        progress: &Progress,
    ) -> Result<SampleKeys, FormatError> {
        reader.expect_kind(Kind::SampleKeys)?;
        reader.expect_context(context)?;
        let id = reader.set();
        let set = *ParamSet::by_id(id).ok_or_else(|| {
            let problem = format!("has the unknown identifier {id}");
            field(OBJECT, "the parameter set of samples", problem)
        })?;
        let fixed: [u8; FIXED_BYTES] = reader.array()?;
        if fixed[18..] != [0; 6] {
            return Err(field(OBJECT, "reserved bytes", "are not 0"));
        }
        let gadget = Gadget {
            levels: fixed[16].into(),
            log2_base: fixed[17].into(),
        };
        check(context.params(), &set, gadget)?;
        reader.expect_rest(Self::payload_bytes(context, &set, gadget))?;
        let (k, mut done) = (set.glwe_dimension, 0);
        let total = ((k + 1) * gadget.levels) as u64;
        let mut read = |name: &str, payloads: usize, secrets: usize| {
            let seed = reader.seed()?;
            let mut rows = Vec::with_capacity(payloads * gadget.levels);
            let mut bytes = vec![0; Self::row_bytes(context)];
            for number in 0..payloads * gadget.levels {
                progress.check()?;
                reader.fill(&mut bytes)?;
                let mut b = RnsPoly::raw(context, SWITCHING, Form::Values);
                let prime = b.prime(0);
                let row = || format!("row {number} of the key to {name}");
                format::read_residues(OBJECT, row, prime, &bytes, b.words_mut())?;
                let masks = SwitchKey::masks(context, &seed, number, secrets);
                rows.push([vec![b], masks].concat());
                done += 1;
                progress.report("reading keys of samples", done, total);
            }
            Ok::<_, FormatError>(SwitchKey { seed, rows })
        };
        let (to_columns, to_samples) = (read("columns", k, 1)?, read("samples", 1, k)?);
        let mut client = [0; 16];
        client.copy_from_slice(&fixed[..16]);
        let tag = *reader.tag();
        reader.finish()?;
        Ok(SampleKeys {
            context: Arc::clone(context),
            set,
            tag,
            client,
            gadget,
            to_columns,
            to_samples,
        })
    }
}

/// Bytes of the client key's tag and of the gadget.
const FIXED_BYTES: usize = 24;

/// What switching a phase from under secrets to under others adds, in turns squared: from `masks` masks under secrets of squared
/// norm `norm` each, by keys of deviation `sigma`.
///
/// Digits have a mean square of (B² + 2)/12. Each of the k·l products of a digit and a row adds N of them times the row's noise, and
/// times the secret where the gadget's value was rounded by δ; rounding to w bits adds norm/12 for each mask, the body's 1/12.
fn switch_variance(params: &RnsParams, gadget: Gadget, masks: usize, norm: f64, sigma: f64) -> f64 {
    let prime = params.special[0];
    let unit = (prime as f64).recip().powi(2);
    let base = f64::from(gadget.log2_base).exp2();
    let digit = (base * base + 2.0) / 12.0;
    let row = params.degree as f64 * (sigma * sigma + 1.0 / 12.0);
    let off: f64 = gadget_values(gadget, prime)
        .iter()
        .map(|(_, off)| off * off)
        .sum();
    let rows = gadget.levels as f64 * row + off * norm;
    let width = gadget.levels as f64 * f64::from(gadget.log2_base);
    let rounding = norm / 12.0 * (-2.0 * width).exp2();
    masks as f64 * (digit * rows * unit + rounding) + unit / 12.0
}

/// What remains of the padding: the factor on a variance to columns, that to samples being its inverse.
fn gain(padding: Padding) -> f64 {
    match padding {
        Padding::Keep => 1.0,
        Padding::Drop => 4.0,
    }
}

/// Variance of a row of [`SampleKeys::to_column`], for samples of variance `samples`: both in turns squared.
///
/// Half of the bits of s_c are 1: its squared norm is n/2. The last rounding, to q_0, is that of a key switch.
#[must_use]
pub fn column_variance(
    params: &RnsParams,
    set: &ParamSet,
    gadget: Gadget,
    padding: Padding,
    samples: f64,
) -> f64 {
    let norm = set.ring_degree as f64 / 2.0;
    let q = params.chain[0] as f64;
    gain(padding) * samples
        + switch_variance(params, gadget, set.glwe_dimension, norm, params.sigma)
        + noise::rounding(params.secret_norm()) / (q * q)
}

/// Variance of a row of [`SampleKeys::to_chunks`], for a column of variance `column`: both in turns squared.
#[must_use]
pub fn sample_variance(
    params: &RnsParams,
    set: &ParamSet,
    gadget: Gadget,
    padding: Padding,
    column: f64,
) -> f64 {
    let sigma = sample_sigma(params, set);
    let switched = column + switch_variance(params, gadget, 1, params.secret_norm(), sigma);
    let words = 1.0 + rows_per_chunk(set) as f64 * set.glwe_dimension as f64 / 2.0;
    switched / gain(padding) + words / 12.0 * (goldilocks::P as f64).powi(-2)
}
