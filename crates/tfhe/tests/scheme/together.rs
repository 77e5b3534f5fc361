//! Columns that are encrypted together: their seeds, their bytes, and bytes that are none.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::LazyLock;

use crate::common::crc32c;
use proptest::prelude::*;
use toroid_tfhe::column::{
    Column, ColumnBytesBuilder, ColumnForm, ColumnGroup, GroupColumn, GroupSeed, rows_per_chunk,
};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::{MESSAGE4, MESSAGE14, ParamSet, TINY, TINY_WOPBS, TINY32};
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::{MaskSeed, SEED_BYTES};

fn encrypt(
    client: &ClientKey,
    columns: &[(Encoding, Vec<i64>)],
    rng: &mut Csprng,
) -> ColumnGroup<'static> {
    let params = ParamSet::by_id(client.params().id).unwrap();
    let mut group = GroupSeed::generate(rng);
    let mut encrypt = |(encoding, numbers): &(Encoding, Vec<i64>)| {
        let first = group.taken();
        let mut builder = ColumnBytesBuilder::new(params, 1);
        for numbers in numbers.chunks(rows_per_chunk(params)) {
            let seed = group.next_chunk();
            let chunk = client.encrypt_chunk_of(numbers, *encoding, seed, rng);
            builder
                .push_chunk(ColumnForm::Seeded, numbers.len(), &chunk.unwrap())
                .unwrap();
        }
        GroupColumn {
            encoding: *encoding,
            rows: numbers.len() as u64,
            first,
            bytes: Cow::Owned(builder.finish().unwrap()),
        }
    };
    let columns = columns.iter().map(&mut encrypt).collect();
    ColumnGroup {
        params,
        tag: [7; 12],
        seed: group.seed(),
        columns,
    }
}

fn decrypt(client: &ClientKey, column: &GroupColumn<'_>) -> Vec<i64> {
    let parts = Column::new(client.params(), &column.bytes).unwrap();
    let chunks = 0..parts.header().segments().len();
    let decrypted = chunks.map(|number| {
        let chunk = parts.chunk_of(number).unwrap();
        client.decrypt_chunk(&chunk, column.encoding).unwrap()
    });
    decrypted.flatten().collect()
}

fn small_group(params: &ParamSet) -> (ClientKey, Vec<(Encoding, Vec<i64>)>, ColumnGroup<'static>) {
    let mut rng = Csprng::from_seed([3; 32]);
    let client = ClientKey::generate(params, &mut rng);
    let [unsigned, signed] = [false, true].map(|signed| Encoding::new(3, signed).unwrap());
    let long: Vec<i64> = (0..1500).map(|row| row % 8).collect();
    let columns = vec![
        (unsigned, vec![1, 2, 3]),
        (unsigned, vec![7, 0, 1]),
        (signed, vec![-4, 3, 0]),
        (unsigned, long),
    ];
    let group = encrypt(&client, &columns, &mut rng);
    (client, columns, group)
}

#[test]
fn columns_come_back_whole_and_in_parts() {
    for params in [&TINY, &TINY32, &TINY_WOPBS] {
        let (client, columns, group) = small_group(params);
        let bytes = group.to_bytes().unwrap();
        let read = ColumnGroup::from_bytes(&bytes).unwrap();
        assert_eq!(read, group, "{}", params.name);
        for (column, (_, numbers)) in read.columns.iter().zip(&columns) {
            assert_eq!(&decrypt(&client, column), numbers);
        }
        let mut part = read;
        part.columns.swap(0, 2);
        part.columns.remove(1);
        let again = ColumnGroup::from_bytes(&part.to_bytes().unwrap()).unwrap();
        assert_eq!(again, part, "{}", params.name);
    }
}

#[test]
fn every_chunk_has_a_seed_of_its_own() {
    let (_, _, group) = small_group(&TINY_WOPBS);
    let mut seeds = HashSet::from([*group.seed.as_bytes()]);
    for column in &group.columns {
        let parts = Column::new(&TINY_WOPBS, &column.bytes).unwrap();
        for number in 0..parts.header().segments().len() {
            let chunk = parts.chunk_bytes(number).unwrap();
            let seed: [u8; SEED_BYTES] = chunk[..SEED_BYTES].try_into().unwrap();
            assert!(seeds.insert(seed));
        }
    }
    assert_eq!(
        seeds.len(),
        1 + 3 + 1500usize.div_ceil(TINY_WOPBS.ring_degree)
    );
}

/// By an implementation of ChaCha20 from its specification.
#[test]
fn seeds_of_chunks_are_the_known_answers() {
    let seed = MaskSeed::from_bytes(std::array::from_fn(|i| i as u8));
    let found = [0, 3].map(|number| crc32c(seed.of_chunk(number).as_bytes()));
    assert_eq!(found, [0xf373_f7ea, 0xe193_0fb9]);
}

#[test]
fn a_row_of_many_columns_is_small() {
    let mut rng = Csprng::from_seed([4; 32]);
    let bytes = |params: &ParamSet, columns: usize, bits: u32, rng: &mut Csprng| {
        let client = ClientKey::generate(params, rng);
        let encoding = Encoding::new(bits, false).unwrap();
        let columns = vec![(encoding, vec![1]); columns];
        encrypt(&client, &columns, rng).to_bytes().unwrap().len()
    };
    // A number of 16 bits in digits of two; rows of features.
    assert_eq!(bytes(&MESSAGE4, 8, 4, &mut rng), 116);
    assert_eq!(bytes(&MESSAGE14, 9, 14, &mut rng), 147);
    assert_eq!(bytes(&MESSAGE14, 20, 14, &mut rng), 224);
}

/// With the checksum that these bytes have.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - 4;
    let crc = crc32c(&bytes[..end]);
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn what_is_no_group_is_refused() {
    let (_, _, group) = small_group(&TINY);
    let bytes = group.to_bytes().unwrap();
    for end in (0..200).chain(bytes.len() - 50..bytes.len()) {
        assert!(ColumnGroup::from_bytes(&bytes[..end]).is_err(), "{end}");
        if end >= 4 {
            assert!(ColumnGroup::from_bytes(&sealed(bytes[..end].to_vec())).is_err());
        }
    }
    let run = 56;
    for (at, value) in [
        (0, &b"TCOL"[..]),
        (4, &[2, 0]),
        (6, &[99, 0]),
        (8, &[0, 0, 0, 0]),
        (8, &[255; 4]),
        (run, &[255; 8]),
        (run + 8, &[0; 8]),
        (run + 8, &[255; 8]),
        (run + 16, &[0; 4]),
        (run + 16, &[255; 4]),
        (run + 20, &[0]),
        (run + 20, &[77]),
        (run + 21, &[2]),
        (run + 22, &[1]),
    ] {
        let mut changed = bytes.clone();
        changed[at..at + value.len()].copy_from_slice(value);
        assert!(ColumnGroup::from_bytes(&changed).is_err(), "{at}");
        assert!(
            ColumnGroup::from_bytes(&sealed(changed)).is_err(),
            "{at}: {value:?}"
        );
    }
    let longer = [&bytes[..], &[0; 4]].concat();
    assert!(ColumnGroup::from_bytes(&sealed(longer)).is_err());
    // Columns of other groups, and such as have changed.
    let mut mixed = group.clone();
    mixed.seed = mixed.seed.of_chunk(9);
    assert!(mixed.to_bytes().is_err());
    let mut moved = group.clone();
    moved.columns[0].first = 1;
    assert!(moved.to_bytes().is_err());
    let mut shorter = group;
    shorter.columns[0].rows = 2;
    assert!(shorter.to_bytes().is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_a_group_or_refused(head: [u8; 120], keep in 0..120usize) {
        static BYTES: LazyLock<Vec<u8>> =
            LazyLock::new(|| small_group(&TINY).2.to_bytes().unwrap());
        let mut bytes = BYTES.clone();
        bytes[keep..120].copy_from_slice(&head[keep..]);
        if let Ok(group) = ColumnGroup::from_bytes(&sealed(bytes)) {
            prop_assert!(!group.columns.is_empty());
        }
    }
}
