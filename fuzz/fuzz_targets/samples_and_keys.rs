//! Samples, keys, chunks and whole columns from arbitrary bytes: words that are not below q and wrong lengths are refused, in
//! whatever pieces the bytes come, and nothing else is.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use toroid_fuzz::{Input, alone, repeat};
use toroid_ring::simd::SimdLevel;
use toroid_tfhe::TfheError;
use toroid_tfhe::arithmetic::{Arithmetic, Fft, Ntt};
use toroid_tfhe::bootstrap::BootstrappingKeyLoader;
use toroid_tfhe::column::{
    self, Chunk, Column, ColumnForm, ColumnGroup, ColumnHeader, assemble, chunk_bytes,
};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::key_loader::{SeededBootstrappingKeyLoader, SeededKeySwitchingKeyLoader};
use toroid_tfhe::key_switch::KeySwitchingKeyLoader;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::lwe::words_from_bytes;
use toroid_tfhe::modulus::{Goldilocks, Modulus, Torus32};
use toroid_tfhe::params::{ModulusKind, ParamSet, StageParams, TINY, TINY_WOPBS, TINY32};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::{KeyForm, SEED_BYTES};

/// Sets whose keys load in no time, of more rows than a loader converts at once.
static MICRO: ParamSet = micro(TINY);
static MICRO32: ParamSet = micro(TINY32);

const fn micro(params: ParamSet) -> ParamSet {
    ParamSet {
        stage: StageParams {
            lwe_dimension: 20,
            ring_degree: 64,
            ..params.stage
        },
        ..params
    }
}

const P: u64 = 0xFFFF_FFFF_0000_0001;
/// Most pieces that a key comes in.
const MAX_PIECES: usize = 24;

fn canonical(modulus: ModulusKind, bytes: &[u8]) -> bool {
    match modulus {
        ModulusKind::Torus32 => true,
        ModulusKind::Goldilocks => bytes
            .chunks_exact(8)
            .all(|word| word.try_into().map(u64::from_le_bytes).is_ok_and(|w| w < P)),
    }
}

/// Whether coefficients of so many bytes, the leading ones of their words, are below the modulus.
fn leading_canonical(modulus: ModulusKind, bytes: &[u8], width: usize) -> bool {
    let words = bytes.chunks_exact(width).flat_map(|leading| {
        let mut word = [0; 8];
        word[8 - width..].copy_from_slice(leading);
        word
    });
    modulus == ModulusKind::Torus32 || canonical(modulus, &words.collect::<Vec<_>>())
}

fn words<M: Modulus>(params: &ParamSet, bytes: &[u8]) {
    let word = size_of::<M::Word>();
    let expected = bytes.len().is_multiple_of(word) && canonical(M::KIND, bytes);
    let read = words_from_bytes::<M>("a sample", params, bytes, bytes.len() / word);
    assert_eq!(read.is_ok(), expected);
    assert!(read.is_err() || read.is_ok_and(|words| words.len() == bytes.len() / word));
    let sample = words_from_bytes::<M>("a LWE sample", params, bytes, params.lwe_words());
    assert_eq!(
        sample.is_ok(),
        expected && bytes.len() == params.lwe_bytes()
    );
}

fn decrypt(params: &ParamSet, keys: &OnceLock<ClientKey>, input: &mut Input) {
    let key = keys.get_or_init(|| ClientKey::generate(params, &mut Csprng::from_seed([7; 32])));
    let (bits, signed, whole) = (input.u8(), input.u8() & 1 != 0, input.u8() & 1 != 0);
    let bytes = input.rest();
    let sample = if whole {
        repeat(bytes, params.lwe_bytes())
    } else {
        bytes.to_vec()
    };
    let expected = sample.len() == params.lwe_bytes() && canonical(params.modulus, &sample);
    match key.phase(&sample) {
        Ok(phase) => assert!(expected && (-0.5..=0.5).contains(&phase)),
        Err(_) => assert!(!expected),
    }
    assert_eq!(key.decrypt_bit_sample(&sample).is_ok(), expected);
    let Ok(encoding) = Encoding::of_samples(params, bits.into(), signed) else {
        return;
    };
    match key.decrypt_sample(&sample, encoding) {
        Ok(message) => assert!(expected && encoding.outputs().contains(&message)),
        Err(_) => assert!(!expected),
    }
}

/// Whether the bits of these bytes from bit `used` on are 0.
fn ends(bytes: &[u8], used: usize) -> bool {
    used.is_multiple_of(8) || bytes.last().is_some_and(|last| last >> (used % 8) == 0)
}

/// Reads a chunk of a column, and takes a row out of it in each way.
fn chunk(params: &ParamSet, keys: &OnceLock<ClientKey>, input: &mut Input) {
    let key = keys.get_or_init(|| ClientKey::generate(params, &mut Csprng::from_seed([7; 32])));
    let form = ColumnForm::ALL[usize::from(input.u8()) % 3];
    let rows = match form {
        ColumnForm::Expanded => usize::from(input.u8() & 3),
        // More would take the time of other inputs.
        ColumnForm::Seeded | ColumnForm::Packed => usize::from(input.u8() & 31),
    };
    let (row, whole, last) = (usize::from(input.u8()), input.u8() & 1 != 0, input.u8());
    let expected = chunk_bytes(params, form, rows);
    let mut bytes = match expected {
        Ok(len) if whole => repeat(input.rest(), len),
        _ => input.rest().to_vec(),
    };
    if let Some(end) = bytes.last_mut().filter(|_| whole) {
        *end = last;
    }
    let taken = expected.is_ok_and(|len| len == bytes.len())
        && match form {
            ColumnForm::Seeded => ends(&bytes, rows * column::seeded_width(params) as usize),
            ColumnForm::Packed => column::packed_width(params).is_some_and(|width| {
                ends(
                    &bytes,
                    (params.extracted_dimension() + rows) * width as usize,
                )
            }),
            ColumnForm::Expanded => canonical(params.modulus, &bytes),
        };
    let mut room = vec![0; params.lwe_bytes()];
    let direct = column::expand(params, form, &bytes, rows, row..row + 1, &mut room);
    let Ok(chunk) = Chunk::new(params, form, &bytes, rows) else {
        // Words of other rows are not looked at.
        assert!(!taken && (direct.is_err() || form == ColumnForm::Expanded));
        return;
    };
    assert!(taken && direct.is_ok() == (row < rows));
    let sum = chunk.sum(row..row + 1);
    assert_eq!(sum.is_ok(), row < rows);
    assert!(sum.is_err() || sum.is_ok_and(|sum| sum == room));
    if form == ColumnForm::Packed {
        assert_eq!(chunk.packed(), Some(bytes));
    }
    if let Ok(encoding) = Encoding::new(params.message_bits, last & 1 != 0) {
        match key.decrypt_chunk(&chunk, encoding) {
            Ok(messages) => assert_eq!(messages.len(), rows),
            // A mask of zeros, which a seed does not make.
            Err(TfheError::NotEncrypted(_)) => assert!(form != ColumnForm::Seeded),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads a column, with its header's checksum corrected for some of the inputs. It is read as what it writes, and parts of it are columns.
fn whole_column(params: &ParamSet, input: &mut Input) {
    let (sealed, from, to) = (input.u8() & 1 != 0, input.u16(), input.u16());
    let mut bytes = input.rest().to_vec();
    let begins = ColumnHeader::byte_len_of(&bytes);
    let len = begins.ok().and_then(|len| usize::try_from(len).ok());
    if let Some(len) = len.filter(|len| sealed && *len <= bytes.len()) {
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..28]), &bytes[32..len]);
        bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    }
    let Ok((header, used)) = ColumnHeader::from_bytes(params, &bytes) else {
        assert!(Column::new(params, &bytes).is_err());
        return;
    };
    assert_eq!(
        (len, header.to_bytes()),
        (Some(used), bytes[..used].to_vec())
    );
    let rows = u64::from(from)..u64::from(to);
    let Ok(cut) = header.slice(rows.clone()) else {
        assert!(rows.start > rows.end || rows.end > header.rows());
        return;
    };
    assert_eq!(
        rows.end - rows.start,
        cut.iter().map(|of| u64::from(of.rows)).sum()
    );
    let mut same = header.clone();
    same.replace(rows.clone(), cut.clone())
        .expect("as many rows");
    assert_eq!(same.rows(), header.rows());
    assert_eq!(same.slice(rows.clone()).ok(), Some(cut.clone()));
    let Ok(column) = Column::new(params, &bytes) else {
        return;
    };
    let chunks = cut.iter().filter_map(|segment| {
        let index = header
            .segments()
            .iter()
            .position(|of| of.shares_chunk(segment))?;
        assert!(column.chunk_bytes(index).is_ok());
        column.chunk_of(index).ok()?;
        Some((*segment, column.chunk_bytes(index).ok()?))
    });
    let chunks: Vec<_> = chunks.collect();
    if chunks.len() == cut.len() && !cut.is_empty() {
        let part = assemble(params, chunks).expect("segments of a column");
        let part = Column::new(params, &part).map(|part| part.header().rows());
        assert_eq!(part.ok(), Some(rows.end - rows.start));
    }
}

/// Columns that were encrypted together, with the checksum that they have: they come back, or are refused.
fn group(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    if let Ok(group) = ColumnGroup::from_bytes(&bytes) {
        let again = group.to_bytes().expect("columns of one group");
        assert_eq!(ColumnGroup::from_bytes(&again).ok().as_ref(), Some(&group));
    }
}

/// Feeds a loader in pieces. It must take exactly the canonical bytes that have room, refuse a piece without any trace of
/// it, and give the key if and only if the bytes that it took are the whole key.
fn load<L, K>(
    mut loader: L,
    key_bytes: u64,
    (modulus, width): (ModulusKind, usize),
    input: &mut Input,
    write: fn(&mut L, &[u8]) -> Result<(), TfheError>,
    finish: fn(L) -> Result<K, TfheError>,
) {
    let key_bytes = key_bytes as usize;
    let mut taken: Vec<u8> = Vec::new();
    for _ in 0..MAX_PIECES {
        if input.is_empty() {
            break;
        }
        let choice = input.u8();
        let left = key_bytes - taken.len();
        let len = match choice & 7 {
            0 => left,
            1 => left + 1,
            2 => left.saturating_sub(1 + usize::from(choice >> 5)),
            3 => usize::from(input.u8()) * 256,
            4 => usize::from(input.u16()),
            _ => usize::from(input.u8()),
        };
        let piece = match choice >> 3 & 3 {
            0 => vec![0; len],
            1 => vec![0xFF; len],
            _ => {
                let pattern = usize::from(input.u8());
                repeat(input.bytes(pattern), len)
            }
        };
        let before = taken.len();
        taken.extend_from_slice(&piece);
        match write(&mut loader, &piece) {
            Ok(()) => assert!(taken.len() <= key_bytes),
            Err(TfheError::Length { .. }) => {
                assert!(taken.len() > key_bytes);
                taken.truncate(before);
            }
            Err(TfheError::NotCanonical { .. }) => {
                // The piece may have completed a word that began in an earlier one.
                assert!(!leading_canonical(modulus, &taken, width));
                taken.truncate(before);
            }
            Err(other) => panic!("{other}"),
        }
    }
    let whole = taken.len() == key_bytes;
    assert_eq!(finish(loader).is_ok(), whole);
    assert!(!whole || leading_canonical(modulus, &taken, width));
}

fn bootstrapping<M: Modulus, A: Arithmetic<M>>(params: &ParamSet, input: &mut Input) {
    let loader = BootstrappingKeyLoader::<M, A>::new(params, SimdLevel::best());
    load(
        loader.expect("the modulus is the set's"),
        params.bootstrapping_key_bytes(),
        // In the NTT domain, whatever the modulus of the samples.
        (ModulusKind::Goldilocks, 8),
        input,
        BootstrappingKeyLoader::write,
        BootstrappingKeyLoader::finish,
    );
}

fn key_switching<M: Modulus>(params: &ParamSet, input: &mut Input) {
    let loader = KeySwitchingKeyLoader::<M>::new(params, SimdLevel::best());
    load(
        loader.expect("the modulus is the set's"),
        params.key_switching_key_bytes(),
        // Words of 32 bits, whatever the modulus of the samples.
        (ModulusKind::Torus32, 4),
        input,
        KeySwitchingKeyLoader::write,
        KeySwitchingKeyLoader::finish,
    );
}

fn seeded_bootstrapping<M: Modulus, A: Arithmetic<M>>(params: &ParamSet, input: &mut Input) {
    let (form, loader, bits) = if input.u8() & 1 == 0 {
        let loader = SeededBootstrappingKeyLoader::<M, A>::new(params, SimdLevel::best());
        (KeyForm::Seeded, loader, params.body_bits)
    } else {
        let loader = SeededBootstrappingKeyLoader::<M, A>::of_words(params, SimdLevel::best());
        (KeyForm::SeededWords, loader, 64)
    };
    // Of the Goldilocks set, whose coefficients are whole bytes.
    let width = bits as usize / 8;
    load_seeded(
        loader.expect("the modulus is the set's"),
        form.bootstrapping_key_bytes(params),
        (M::KIND, width),
        input,
        SeededBootstrappingKeyLoader::write,
        SeededBootstrappingKeyLoader::finish,
    );
}

fn seeded_key_switching<M: Modulus>(params: &ParamSet, input: &mut Input) {
    let loader = SeededKeySwitchingKeyLoader::<M>::new(params, SimdLevel::best());
    load_seeded(
        loader.expect("the modulus is the set's"),
        KeyForm::Seeded.key_switching_key_bytes(params),
        (ModulusKind::Torus32, 4),
        input,
        SeededKeySwitchingKeyLoader::write,
        SeededKeySwitchingKeyLoader::finish,
    );
}

/// [`load`] after a seed, in two pieces.
fn load_seeded<L, K>(
    mut loader: L,
    key_bytes: u64,
    words: (ModulusKind, usize),
    input: &mut Input,
    write: fn(&mut L, &[u8]) -> Result<(), TfheError>,
    finish: fn(L) -> Result<K, TfheError>,
) {
    let seed: [u8; SEED_BYTES] = input.array();
    let (first, second) = seed.split_at(usize::from(input.u8()) % SEED_BYTES);
    for piece in [first, second] {
        write(&mut loader, piece).expect("any seed is one");
    }
    let bodies = key_bytes - SEED_BYTES as u64;
    load(loader, bodies, words, input, write, finish);
}

static KEY: OnceLock<ClientKey> = OnceLock::new();
static KEY32: OnceLock<ClientKey> = OnceLock::new();
static WIDE_KEY: OnceLock<ClientKey> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    alone();
    let input = &mut Input::new(data);
    match input.u8() % 21 {
        0 => words::<Goldilocks>(&TINY, input.rest()),
        1 => words::<Torus32>(&TINY32, input.rest()),
        2 | 3 => decrypt(&TINY, &KEY, input),
        4 => decrypt(&TINY32, &KEY32, input),
        5 => bootstrapping::<Goldilocks, Ntt>(&MICRO, input),
        6 => bootstrapping::<Torus32, Ntt>(&MICRO32, input),
        7 => bootstrapping::<Goldilocks, Fft>(&MICRO, input),
        8 => key_switching::<Goldilocks>(&MICRO, input),
        9 => key_switching::<Torus32>(&MICRO32, input),
        10 => seeded_bootstrapping::<Goldilocks, Ntt>(&MICRO, input),
        11 => seeded_bootstrapping::<Torus32, Fft>(&MICRO32, input),
        12 => seeded_key_switching::<Goldilocks>(&MICRO, input),
        13 => seeded_key_switching::<Torus32>(&MICRO32, input),
        14 | 15 => chunk(&TINY_WOPBS, &WIDE_KEY, input),
        16 => chunk(&TINY, &KEY, input),
        17 => chunk(&TINY32, &KEY32, input),
        18 => whole_column(&TINY_WOPBS, input),
        19 => group(input.rest()),
        _ => whole_column(&TINY32, input),
    }
});
