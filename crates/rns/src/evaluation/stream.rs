//! Evaluation keys in files, row by row.
//!
//! The payload, behind the parameters ([`crate::format`]): the number of keys (u32) and 4 bytes 0; a directory; the rows. The
//! directory has 40 bytes for each key:
//!
//! | bytes | field |
//! | --- | --- |
//! | 0 | use: 0 relinearization, 1 automorphism, 2 to the sparse secret, 3 from the sparse secret |
//! | 1 | limbs of the ciphertexts that it serves |
//! | 2-3 | 0 |
//! | 4-7 | g of an automorphism X -> X^g; else 0 |
//! | 8-39 | seed of the masks |
//!
//! Keys stand in the order of their uses, automorphisms in that of g. A row is the values of b modulo each prime of the key. The
//! values of row j's mask modulo prime number i, counted along chain and special primes, are the words of
//! [`MaskSeed::expand_residues`] number j·2^16 + i.

use std::io::{Read, Write};
use std::sync::Arc;

use toroid_task::Progress;
use toroid_tfhe::parallel;
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::{MaskSeed, SEED_BYTES};

use crate::automorphism::Automorphism;
use crate::ciphertext::expand_mask;
use crate::context::{Basis, Context};
use crate::format::{self, FormatError, Kind, Reader, field};
use crate::key_switch::KeySwitchKey;
use crate::poly::{Form, RnsPoly};
use crate::secret::SecretKey;

use super::{EvaluationKeys, KeyRequest, Use, plans};

const OBJECT: &str = Kind::EvaluationKeys.name();
/// Bytes of the number of keys, and of a key in the directory.
const COUNT_BYTES: usize = 8;
const ENTRY_BYTES: usize = 8 + SEED_BYTES;

/// A use as the directory has it: without the tables of an automorphism.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Purpose {
    Relinearize,
    Galois(usize),
    Enter,
    Leave,
}

/// A key as the directory has it.
struct Entry {
    purpose: Purpose,
    basis: Basis,
    seed: MaskSeed,
}

impl From<&Use> for Purpose {
    fn from(purpose: &Use) -> Purpose {
        match purpose {
            Use::Relinearize => Purpose::Relinearize,
            Use::Galois(automorphism) => Purpose::Galois(automorphism.exponent()),
            Use::Enter => Purpose::Enter,
            Use::Leave => Purpose::Leave,
        }
    }
}

impl Purpose {
    fn code(self) -> u8 {
        match self {
            Purpose::Relinearize => 0,
            Purpose::Galois(_) => 1,
            Purpose::Enter => 2,
            Purpose::Leave => 3,
        }
    }

    fn exponent(self) -> usize {
        match self {
            Purpose::Galois(exponent) => exponent,
            Purpose::Relinearize | Purpose::Enter | Purpose::Leave => 0,
        }
    }

    /// The words that name the key in errors.
    fn name(self) -> String {
        match self {
            Purpose::Relinearize => "the key of products".to_owned(),
            Purpose::Galois(exponent) => format!("the key of X -> X^{exponent}"),
            Purpose::Enter => "the key to the sparse secret".to_owned(),
            Purpose::Leave => "the key from the sparse secret".to_owned(),
        }
    }

    /// The basis of such a key for ciphertexts of so many limbs.
    fn basis(self, context: &Context, limbs: usize) -> Basis {
        let special = match self {
            Purpose::Enter => 1,
            _ => context.full_basis().special,
        };
        Basis {
            chain: limbs,
            special,
        }
    }

    fn to_use(self, context: &Arc<Context>) -> Use {
        match self {
            Purpose::Relinearize => Use::Relinearize,
            Purpose::Galois(exponent) => Use::Galois(Automorphism::new(context, exponent)),
            Purpose::Enter => Use::Enter,
            Purpose::Leave => Use::Leave,
        }
    }
}

impl Entry {
    fn rows(&self, context: &Context) -> usize {
        match self.purpose {
            Purpose::Leave => 1,
            _ => KeySwitchKey::digits(context, self.basis).len(),
        }
    }

    /// Bytes of one row.
    fn row_bytes(&self, context: &Context) -> usize {
        let primes = (0..self.basis.limbs()).map(|limb| context.prime(self.basis, limb));
        primes
            .map(|prime| format::residue_bytes(prime, context.degree()))
            .sum()
    }

    fn to_bytes(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[0] = self.purpose.code();
        bytes[1] = self.basis.chain as u8;
        bytes[4..8].copy_from_slice(&(self.purpose.exponent() as u32).to_le_bytes());
        bytes[8..].copy_from_slice(self.seed.as_bytes());
        bytes
    }

    /// Reads a key of the directory, which number `index` is.
    fn from_bytes(
        context: &Arc<Context>,
        index: usize,
        bytes: &[u8; ENTRY_BYTES],
    ) -> Result<Entry, FormatError> {
        let wrong = |name: &str, problem: String| {
            Err(field(
                OBJECT,
                format!("{name} of key number {index}"),
                problem,
            ))
        };
        if bytes[2..4] != [0; 2] {
            return wrong("a reserved byte", "is not 0".to_owned());
        }
        let degree = context.degree();
        let exponent = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) as usize;
        let purpose = match bytes[0] {
            0 => Purpose::Relinearize,
            1 if exponent % 2 == 1 && (2..2 * degree).contains(&exponent) => {
                Purpose::Galois(exponent)
            }
            1 => return wrong("the exponent", format!("is {exponent}")),
            2 => Purpose::Enter,
            3 => Purpose::Leave,
            code => return wrong("the use", format!("is {code}")),
        };
        if purpose.exponent() != exponent {
            return wrong("the exponent", format!("is {exponent}, not 0"));
        }
        let (all, limbs) = (context.limbs(), usize::from(bytes[1]));
        let allowed = match purpose {
            Purpose::Relinearize | Purpose::Galois(_) => 1..=all,
            Purpose::Enter => 1..=1,
            Purpose::Leave => all..=all,
        };
        if !allowed.contains(&limbs) {
            let (least, most) = (allowed.start(), allowed.end());
            let problem = format!("is {limbs}, not {least} to {most}");
            return wrong("the number of limbs", problem);
        }
        let mut seed = [0; SEED_BYTES];
        seed.copy_from_slice(&bytes[8..]);
        Ok(Entry {
            purpose,
            basis: purpose.basis(context, limbs),
            seed: MaskSeed::from_bytes(seed),
        })
    }
}

/// Refuses keys in another order than that of the format, keys that are there twice, and half a mod-raise.
fn check_order(entries: &[Entry]) -> Result<(), FormatError> {
    let mut pairs = entries.windows(2);
    if let Some(index) = pairs.position(|pair| pair[0].purpose >= pair[1].purpose) {
        let name = format!("key number {}", index + 1);
        return Err(field(OBJECT, name, "does not come behind the one before"));
    }
    let raising = entries
        .iter()
        .filter(|entry| entry.purpose >= Purpose::Enter);
    match raising.count() {
        0 | 2 => Ok(()),
        _ => Err(field(
            OBJECT,
            "a mod-raise",
            "has one of its two keys alone",
        )),
    }
}

/// The bodies of a row in bytes.
fn pack_row(body: &RnsPoly) -> Vec<u8> {
    let mut bytes = Vec::new();
    for limb in 0..body.limbs() {
        format::write_residues(body.prime(limb), body.limb(limb), &mut bytes);
    }
    bytes
}

/// Row `row` of a key, the bodies of which are these bytes.
fn unpack_row(
    context: &Arc<Context>,
    entry: &Entry,
    row: usize,
    bytes: &[u8],
) -> Result<[RnsPoly; 2], FormatError> {
    let mut b = RnsPoly::raw(context, entry.basis, Form::Values);
    let mut rest = bytes;
    for limb in 0..entry.basis.limbs() {
        let prime = b.prime(limb);
        let (own, later) = rest.split_at(format::residue_bytes(prime, context.degree()));
        let name = || format!("row {row} of {}", entry.purpose.name());
        format::read_residues(OBJECT, name, prime, own, b.limb_mut(limb))?;
        rest = later;
    }
    let mut a = RnsPoly::raw(context, entry.basis, Form::Values);
    expand_mask(&mut a, &entry.seed, row);
    Ok([b, a])
}

/// Rows that are made at a time: one for each thread, so that few are in memory twice.
fn batch() -> usize {
    rayon::current_num_threads().max(1)
}

/// Writes header and directory, then the rows that `make` gives for the numbers of a key and a row, a batch at a time.
fn write<W: Write>(
    inner: W,
    secret_tag: &[u8; 16],
    context: &Context,
    entries: &[Entry],
    progress: &Progress,
    mut make: impl FnMut(&[(usize, usize)]) -> Result<Vec<Vec<u8>>, FormatError>,
) -> Result<W, FormatError> {
    let rows = entries.iter().map(|entry| entry.rows(context));
    let places: Vec<(usize, usize)> = rows
        .enumerate()
        .flat_map(|(key, rows)| (0..rows).map(move |row| (key, row)))
        .collect();
    let rest = payload_bytes(context, entries);
    let params = context.params();
    let mut writer = format::begin(inner, Kind::EvaluationKeys, 0, *secret_tag, params, rest)?;
    let mut count = [0; COUNT_BYTES];
    count[..4].copy_from_slice(&(entries.len() as u32).to_le_bytes());
    writer.write(&count)?;
    for entry in entries {
        writer.write(&entry.to_bytes())?;
    }
    let (mut done, total) = (0, places.len() as u64);
    for places in places.chunks(batch()) {
        progress.check()?;
        for bytes in make(places)? {
            writer.write(&bytes)?;
        }
        done += places.len() as u64;
        progress.report("writing evaluation keys", done, total);
    }
    Ok(writer.finish()?)
}

/// Bytes of the payload behind the parameters.
fn payload_bytes(context: &Context, entries: &[Entry]) -> u64 {
    let rows = entries.iter().map(|entry| {
        let rows = entry.rows(context) * entry.row_bytes(context);
        (ENTRY_BYTES + rows) as u64
    });
    COUNT_BYTES as u64 + rows.sum::<u64>()
}

impl EvaluationKeys {
    /// Writes the keys row by row, with the rows of a batch of threads in memory beside them.
    ///
    /// # Errors
    /// [`FormatError::File`] where writing fails; [`FormatError::Rns`] once cancelled.
    pub fn write_to<W: Write>(&self, inner: W, progress: &Progress) -> Result<W, FormatError> {
        let context = &self.context;
        let mut keys: Vec<(Purpose, &KeySwitchKey)> = Vec::new();
        keys.extend(
            self.relinearization
                .iter()
                .map(|key| (Purpose::Relinearize, key)),
        );
        for (exponent, galois) in &self.galois {
            keys.push((Purpose::Galois(*exponent), &galois.key));
        }
        if let Some(raise) = &self.encapsulation {
            keys.push((Purpose::Enter, &raise.enter));
            keys.push((Purpose::Leave, &raise.leave));
        }
        let entry = |(purpose, key): &(Purpose, &KeySwitchKey)| Entry {
            purpose: *purpose,
            basis: purpose.basis(context, key.limbs()),
            seed: *key.seed(),
        };
        let entries: Vec<Entry> = keys.iter().map(entry).collect();
        write(inner, &self.tag, context, &entries, progress, |places| {
            let body = |(key, row): &(usize, usize)| pack_row(&keys[*key].1.rows()[*row][0]);
            Ok(parallel::map(places, |_, place| body(place)))
        })
    }

    /// Bytes of the file of a request's keys.
    ///
    /// # Errors
    /// [`FormatError::Rns`] for keys of no limbs, or of more than the context has.
    pub fn file_bytes(context: &Context, request: &KeyRequest) -> Result<u64, FormatError> {
        let full = context.full_basis().chain;
        let products = request.relinearization.map(|l| (Purpose::Relinearize, l));
        let automorphisms = request.automorphisms(context.degree()).into_iter();
        let automorphisms = automorphisms.map(|(exponent, l)| (Purpose::Galois(exponent), l));
        let raise = [(Purpose::Enter, 1), (Purpose::Leave, full)];
        let raise = raise.into_iter().filter(|_| request.mod_raise);
        let uses = products.into_iter().chain(automorphisms).chain(raise);
        let entries = uses.map(|(purpose, limbs)| {
            KeySwitchKey::basis(context, limbs)?;
            Ok(Entry {
                purpose,
                basis: purpose.basis(context, limbs),
                seed: MaskSeed::from_bytes([0; SEED_BYTES]),
            })
        });
        let entries = entries.collect::<Result<Vec<Entry>, FormatError>>()?;
        let rest = payload_bytes(context, &entries);
        Ok(format::file_bytes(context.params(), rest))
    }

    /// Generates the keys of a request and writes them, a batch of rows at a time: the same bytes as [`EvaluationKeys::generate`] and
    /// [`EvaluationKeys::write_to`], without the set in memory.
    ///
    /// # Errors
    /// Those of both.
    pub fn generate_to<W: Write>(
        inner: W,
        secret: &SecretKey,
        request: &KeyRequest,
        rng: &mut Csprng,
        progress: &Progress,
    ) -> Result<W, FormatError> {
        let context = secret.context();
        let plans = plans(secret, request)?;
        let seeds: Vec<MaskSeed> = plans.iter().map(|_| MaskSeed::generate(rng)).collect();
        let entry = |(plan, seed): (&super::Plan, &MaskSeed)| Entry {
            purpose: Purpose::from(&plan.purpose),
            basis: plan.basis,
            seed: *seed,
        };
        let entries: Vec<Entry> = plans.iter().zip(&seeds).map(entry).collect();
        write(inner, secret.tag(), context, &entries, progress, |places| {
            let jobs = places.iter().map(|place| (*place, rng.fork()));
            let body = |((key, row), mut rng): ((usize, usize), Csprng)| {
                let (plan, seed) = (&plans[key], &seeds[key]);
                let (payload, secret) = (plan.payload.poly(), plan.secret.poly());
                let place = (row, plan.digits[row].clone());
                let [b, _] = KeySwitchKey::row(payload, secret, plan.basis, place, seed, &mut rng)?;
                Ok(pack_row(&b))
            };
            let rows = parallel::map(jobs, |_, job| body(job));
            rows.into_iter().collect()
        })
    }

    /// Reads keys into a context of their parameters, row by row.
    ///
    /// # Errors
    /// [`FormatError::File`] for damage; [`FormatError::Field`] for another kind, another context, and fields that are not what
    /// they should be; [`FormatError::Rns`] once cancelled.
    pub fn read_from<R: Read>(
        mut reader: Reader<R>,
        context: &Arc<Context>,
        progress: &Progress,
    ) -> Result<EvaluationKeys, FormatError> {
        reader.expect_kind(Kind::EvaluationKeys)?;
        reader.expect_context(context)?;
        let count: [u8; COUNT_BYTES] = reader.array()?;
        if count[4..] != [0; 4] {
            return Err(field(
                OBJECT,
                "reserved bytes of the directory",
                "are not 0",
            ));
        }
        let count = u32::from_le_bytes([count[0], count[1], count[2], count[3]]) as usize;
        // Products, a mod-raise, and each automorphism but X -> X.
        let most = context.degree() + 2;
        if count > most {
            let problem = format!("is {count}, not {most} at most");
            return Err(field(OBJECT, "the number of keys", problem));
        }
        let mut entries = Vec::new();
        for index in 0..count {
            entries.push(Entry::from_bytes(context, index, &reader.array()?)?);
        }
        check_order(&entries)?;
        reader.expect_rest(payload_bytes(context, &entries))?;
        let total = entries.iter().map(|entry| entry.rows(context) as u64).sum();
        let mut keys = EvaluationKeys::empty(context, *reader.tag());
        let (mut enter, mut done) = (None, 0);
        for entry in entries {
            let numbers: Vec<usize> = (0..entry.rows(context)).collect();
            let mut rows = Vec::with_capacity(numbers.len());
            for numbers in numbers.chunks(batch()) {
                progress.check()?;
                let mut bytes = Vec::with_capacity(numbers.len());
                for number in numbers {
                    let mut body = vec![0; entry.row_bytes(context)];
                    reader.fill(&mut body)?;
                    bytes.push((*number, body));
                }
                let read = parallel::map(&bytes, |_, (number, body)| {
                    unpack_row(context, &entry, *number, body)
                });
                for row in read {
                    rows.push(row?);
                }
                done += numbers.len() as u64;
                progress.report("reading evaluation keys", done, total);
            }
            let key = KeySwitchKey::from_rows(entry.basis, entry.seed, rows);
            keys.insert(entry.purpose.to_use(context), key, &mut enter);
        }
        reader.finish()?;
        Ok(keys)
    }
}
