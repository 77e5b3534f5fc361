//! The directories of columns: segments against a list of rows, and malformed bytes.

use std::ops::Range;

use crate::common::crc32c as crc32c_of;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use toroid_tfhe::TfheError;
use toroid_tfhe::column::{
    Column, ColumnBytesBuilder, ColumnForm, ColumnHeader, Segment, assemble, chunk_bytes,
    column_bytes, put_header, rows_per_chunk,
};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::{MESSAGE16, ParamSet, TINY, TINY_WOPBS};
use toroid_tfhe::random::Csprng;

const PARAMS: &ParamSet = &TINY_WOPBS;

/// A row: the offset of its chunk, and its place there.
type Row = (u64, u32);

fn rows_of(segments: &[Segment]) -> Vec<Row> {
    let rows = |segment: &Segment| {
        let offset = segment.offset;
        segment
            .rows_in_chunk()
            .map(move |row| (offset, row as u32))
            .collect::<Vec<_>>()
    };
    segments.iter().flat_map(rows).collect()
}

prop_compose! {
    fn segment()(
        form in prop::sample::select(&ColumnForm::ALL[..]),
        offset: u32,
        chunk_rows in 1..=128u32,
        first: Index,
        rows: Index,
        crc32c: u32,
    ) -> Segment {
        let first = first.index(chunk_rows as usize) as u32;
        let rows = 1 + rows.index((chunk_rows - first) as usize) as u32;
        Segment { offset: offset.into(), form, chunk_rows, first, rows, crc32c }
    }
}

#[derive(Clone, Debug)]
enum Change {
    Push(Segment),
    Replace(Index, Index, Vec<Segment>),
    /// Rows of the column itself, in the place of others.
    Copy((Index, Index), (Index, Index)),
    Keep(Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    let range = || (any::<Index>(), any::<Index>());
    prop_oneof![
        segment().prop_map(Change::Push),
        (range(), vec(segment(), 0..3)).prop_map(|((a, b), with)| Change::Replace(a, b, with)),
        (range(), range()).prop_map(|(to, from)| Change::Copy(to, from)),
        range().prop_map(|(a, b)| Change::Keep(a, b)),
    ]
}

fn range(a: &Index, b: &Index, rows: usize) -> Range<usize> {
    let [a, b] = [a, b].map(|index| index.index(rows + 1));
    a.min(b)..a.max(b)
}

fn wide(range: &Range<usize>) -> Range<u64> {
    range.start as u64..range.end as u64
}

fn check(header: &ColumnHeader, model: &[Row]) -> Result<(), TestCaseError> {
    prop_assert_eq!(&rows_of(header.segments()), model);
    prop_assert_eq!(header.rows(), model.len() as u64);
    for (row, expected) in (0..).zip(model) {
        let (index, within) = header.locate(row).unwrap();
        let segment = &header.segments()[index];
        prop_assert_eq!(&(segment.offset, segment.first + within), expected);
        prop_assert!(header.rows_of(index).unwrap().contains(&row));
    }
    prop_assert_eq!(header.locate(header.rows()), None);
    prop_assert_eq!(header.locate(u64::MAX), None);
    prop_assert_eq!(header.rows_of(header.segments().len()), None);
    let bytes = header.to_bytes();
    prop_assert_eq!(bytes.len() as u64, header.byte_len());
    prop_assert_eq!(
        ColumnHeader::byte_len_of(&bytes[..32]).unwrap(),
        header.byte_len()
    );
    let followed = [&bytes[..], &[7; 9]].concat();
    let (read, used) = ColumnHeader::from_bytes(PARAMS, &followed).unwrap();
    prop_assert_eq!(used, bytes.len());
    prop_assert_eq!(&read, header);
    Ok(())
}

proptest! {
    #[test]
    fn segments_are_a_list_of_rows(first in vec(segment(), 1..4), changes in vec(change(), 0..12)) {
        let mut model = rows_of(&first);
        let mut header = ColumnHeader::new(PARAMS, first).unwrap();
        check(&header, &model)?;
        for change in changes {
            let before = header.clone();
            let (to, with) = match change {
                Change::Push(segment) => {
                    header.push(segment).unwrap();
                    model.extend(rows_of(&[segment]));
                    check(&header, &model)?;
                    continue;
                }
                Change::Replace(a, b, with) => (range(&a, &b, model.len()), with),
                Change::Copy((a, b), (c, d)) => {
                    let from = range(&c, &d, model.len());
                    (range(&a, &b, model.len()), header.slice(wide(&from)).unwrap())
                }
                Change::Keep(a, b) => {
                    let kept = range(&a, &b, model.len());
                    (0..model.len(), header.slice(wide(&kept)).unwrap())
                }
            };
            prop_assert_eq!(rows_of(&header.slice(wide(&to)).unwrap()), model[to.clone()].to_vec());
            let mut changed = model.clone();
            changed.splice(to.clone(), rows_of(&with));
            let result = header.replace(wide(&to), with);
            prop_assert_eq!(result.is_ok(), !changed.is_empty());
            if result.is_ok() {
                model = changed;
            } else {
                prop_assert_eq!(&header, &before);
            }
            check(&header, &model)?;
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in vec(any::<u8>(), 0..200), begins: bool) {
        if begins && bytes.len() >= 8 {
            bytes[..8].copy_from_slice(b"TCOL\x01\0\0\0");
        }
        let _ = ColumnHeader::byte_len_of(&bytes);
        prop_assert!(ColumnHeader::from_bytes(PARAMS, &bytes).is_err());
        prop_assert!(Column::new(PARAMS, &bytes).is_err());
    }
}

const SEGMENT: Segment = Segment {
    offset: 64,
    form: ColumnForm::Packed,
    chunk_rows: 128,
    first: 3,
    rows: 100,
    crc32c: 7,
};

#[test]
fn a_header_has_one_form() {
    let header = ColumnHeader::new(PARAMS, vec![SEGMENT, SEGMENT]).unwrap();
    let bytes = header.to_bytes();
    let expected = [
        &b"TCOL\x01\0\0\0\xc8\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0"[..],
        &bytes[28..32],
        &b"\x40\0\0\0\0\0\0\0\x03\0\0\0\x64\0\0\0\x80\0\0\0\x07\0\0\0\x01\0\0\0\0\0\0\0".repeat(2),
    ];
    assert_eq!(bytes, expected.concat());
    assert!(ColumnHeader::begins(&bytes));
    for place in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1 << bit;
            let refused = ColumnHeader::from_bytes(PARAMS, &damaged);
            assert!(refused.is_err(), "byte {place}");
        }
    }
    for length in 0..bytes.len() {
        assert!(ColumnHeader::from_bytes(PARAMS, &bytes[..length]).is_err());
        assert_eq!(
            ColumnHeader::byte_len_of(&bytes[..length]).is_ok(),
            length >= 32
        );
    }
}

/// A header with its checksum corrected.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc32c_of(&[&bytes[..28], &bytes[32..]].concat());
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn what_a_checksum_does_not_notice_is_refused() {
    let header = ColumnHeader::new(PARAMS, vec![SEGMENT]).unwrap().to_bytes();
    assert!(ColumnHeader::from_bytes(PARAMS, &sealed(header.clone())).is_ok());
    let reason = |at: usize, with: &[u8]| {
        let mut bytes = header.clone();
        bytes[at..at + with.len()].copy_from_slice(with);
        let refused = ColumnHeader::from_bytes(PARAMS, &sealed(bytes));
        refused.unwrap_err().to_string()
    };
    for (at, with, expected) in [
        (4, &[2][..], "column version 2; expected 1"),
        (6, &[1], "reserved bytes of a column's header are not 0"),
        (27, &[1], "reserved bytes of a column's header are not 0"),
        (
            8,
            &[99],
            "a column of 99 rows, the segments of which have 100",
        ),
        (16, &[0], "a column of 0 rows; expected at least 1"),
        (16, &[2], "a column of 64 bytes; its header alone has 96"),
        (
            16,
            &[0xff; 4],
            "a column of 64 bytes; its header alone has 137438953472",
        ),
        (40, &[29], "rows 29..129 of a chunk that has 128 rows"),
        (
            40,
            &[0xff; 8],
            "rows 4294967295..8589934590 of a chunk that has 128 rows",
        ),
        (44, &[0], "rows 3..3 of a chunk that has 128 rows"),
        (
            48,
            &[129],
            "a chunk of tiny-wopbs has 1 to 128 rows, not 129",
        ),
        (56, &[3], "column form 3; expected 0 to 2"),
        (57, &[1], "reserved bytes of a column's segment are not 0"),
    ] {
        assert_eq!(reason(at, with), expected, "{at}");
    }
    assert!(reason(32, &[0xff; 8]).ends_with("ends beyond 2^64 bytes"));
    let refused = ColumnHeader::from_bytes(&TINY, &header).unwrap_err();
    assert_eq!(refused.to_string(), "columns of tiny have no packed form");
}

#[test]
fn what_no_column_has_changes_nothing() {
    let mut header = ColumnHeader::new(PARAMS, vec![SEGMENT]).unwrap();
    let before = header.clone();
    let none = Segment { rows: 0, ..SEGMENT };
    assert!(ColumnHeader::new(PARAMS, Vec::new()).is_err());
    assert!(ColumnHeader::new(PARAMS, vec![none]).is_err());
    assert!(header.push(none).is_err());
    assert!(header.replace(0..1, vec![SEGMENT, none]).is_err());
    assert!(header.replace(0..100, Vec::new()).is_err());
    for rows in [0..101, 101..101, Range { start: 5, end: 4 }, 0..u64::MAX] {
        assert!(matches!(
            header.slice(rows.clone()),
            Err(TfheError::ColumnRows { of: 100, .. })
        ));
        assert!(header.replace(rows, vec![SEGMENT]).is_err());
    }
    assert_eq!(header, before);
}

/// Seeded chunks of these numbers of rows, messages counted on, with the client key.
fn chunks(rows: &[usize]) -> (ClientKey, Vec<Vec<u8>>) {
    let mut rng = Csprng::from_seed([5; 32]);
    let client = ClientKey::generate(PARAMS, &mut rng);
    let mut next = 0i64..;
    let chunks = rows.iter().map(|rows| {
        let messages: Vec<i64> = next.by_ref().take(*rows).collect();
        client
            .encrypt_chunk(&messages, encoding(), &mut rng)
            .unwrap()
    });
    let chunks = chunks.collect();
    (client, chunks)
}

fn encoding() -> Encoding {
    Encoding::new(9, false).unwrap()
}

fn messages(client: &ClientKey, column: &Column<'_>) -> Vec<i64> {
    let segments = column.header().segments().iter().enumerate();
    let of_segment = |(index, segment): (usize, &Segment)| {
        let chunk = column.chunk_of(index).unwrap();
        client.decrypt_chunk(&chunk, encoding()).unwrap()[segment.rows_in_chunk()].to_vec()
    };
    segments.flat_map(of_segment).collect()
}

#[test]
fn columns_are_cut_and_put_together() {
    let (client, chunks) = chunks(&[128, 128, 20]);
    let mut builder = ColumnBytesBuilder::new(PARAMS, 3);
    for (chunk, rows) in chunks.iter().zip([128, 128, 20]) {
        builder.push_chunk(ColumnForm::Seeded, rows, chunk).unwrap();
    }
    let bytes = builder.finish().unwrap();
    let length = column_bytes(PARAMS, ColumnForm::Seeded, 276).unwrap();
    assert_eq!(bytes.len() as u64, length);
    let column = Column::new(PARAMS, &bytes).unwrap();
    assert_eq!(messages(&client, &column), (0..276).collect::<Vec<_>>());

    // Rows 100 to 260, with row 130 replaced by row 5.
    let mut header = column.header().clone();
    let fifth = header.slice(5..6).unwrap();
    header.replace(130..131, fifth).unwrap();
    let mut stored = bytes.clone();
    let room = header.byte_len() as usize - column.header().byte_len() as usize;
    stored.splice(0..0, vec![0; room]);
    let moved = header.segments().iter().map(|segment| Segment {
        offset: segment.offset + room as u64,
        ..*segment
    });
    let moved: Vec<Segment> = moved.collect();
    let header = ColumnHeader::new(PARAMS, moved.clone()).unwrap();
    assert_eq!(ColumnHeader::byte_len_for(moved.len()), header.byte_len());
    // A header that reaches into the first chunk, and one that ends behind the last byte.
    for len in [room, 40] {
        assert!(put_header(PARAMS, moved.clone(), stored[room..][..len].to_vec()).is_err());
    }
    let stored = put_header(PARAMS, moved, stored).unwrap();
    let stored = Column::new(PARAMS, &stored).unwrap();
    let mut expected: Vec<i64> = (0..276).collect();
    expected[130] = 5;
    assert_eq!(messages(&client, &stored), expected);

    let cut = header.slice(100..260).unwrap();
    assert_eq!(cut.len(), 5);
    let with_bytes = cut.iter().map(|segment| {
        let (index, place) = (0..)
            .zip(header.segments())
            .find(|(_, of)| of.shares_chunk(segment))
            .unwrap();
        assert_eq!(place.offset, segment.offset);
        (*segment, stored.chunk_bytes(index).unwrap())
    });
    let cut = assemble(PARAMS, with_bytes).unwrap();
    // Each chunk is there once, though five segments name the three of them.
    let of_chunks: usize = chunks.iter().map(Vec::len).sum();
    assert_eq!(cut.len(), 32 + 5 * 32 + of_chunks);
    let cut = Column::new(PARAMS, &cut).unwrap();
    assert_eq!(messages(&client, &cut), expected[100..260]);
}

#[test]
fn room_for_another_number_of_segments_moves_the_chunks() {
    let (client, chunks) = chunks(&[128, 3]);
    let made = [0, 1, 2, 5].map(|room| {
        let mut builder = ColumnBytesBuilder::new(PARAMS, room);
        for (chunk, rows) in chunks.iter().zip([128, 3]) {
            builder.push_chunk(ColumnForm::Seeded, rows, chunk).unwrap();
        }
        builder.finish().unwrap()
    });
    assert!(made.iter().all(|bytes| *bytes == made[0]));
    let column = Column::new(PARAMS, &made[0]).unwrap();
    assert_eq!(messages(&client, &column), (0..131).collect::<Vec<_>>());
    assert!(ColumnBytesBuilder::new(PARAMS, 1).finish().is_err());
}

#[test]
fn chunks_that_are_damaged_or_stand_elsewhere_are_refused() {
    let (_, chunks) = chunks(&[9, 9]);
    let whole = |offset: u64, chunk: &[u8]| {
        Segment::of_chunk(PARAMS, ColumnForm::Seeded, 9, offset, chunk).unwrap()
    };
    let mut builder = ColumnBytesBuilder::new(PARAMS, 1);
    assert!(
        builder
            .push_chunk(ColumnForm::Seeded, 8, &chunks[0])
            .is_err()
    );
    assert!(builder.push_chunk(ColumnForm::Seeded, 0, &[]).is_err());
    assert!(builder.push(whole(0, &chunks[0]), &chunks[1]).is_err());
    assert!(builder.push(whole(0, &chunks[0]), &chunks[0][1..]).is_err());
    builder.push(whole(0, &chunks[0]), &chunks[0]).unwrap();
    let bytes = builder.finish().unwrap();
    let length = bytes.len();
    assert!(Column::new(PARAMS, &bytes).unwrap().chunk_of(1).is_err());
    for place in 64..length {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1;
        let column = Column::new(PARAMS, &damaged).unwrap();
        assert!(column.chunk_of(0).is_err(), "byte {place}");
    }
    for length in 0..length {
        assert!(Column::new(PARAMS, &bytes[..length]).is_err());
    }
    // Bytes between and behind chunks are nobody's.
    let placed = |offsets: &[u64]| {
        let segments = offsets.iter().map(|offset| whole(*offset, &chunks[0]));
        let header = ColumnHeader::new(PARAMS, segments.collect()).unwrap();
        let mut bytes = header.to_bytes();
        bytes.resize(1000, 0);
        Column::new(PARAMS, &bytes).map(|column| column.header().rows())
    };
    let len = chunks[0].len() as u64;
    assert_eq!(placed(&[300]).unwrap(), 9);
    assert_eq!(placed(&[300, 300, 300 + len]).unwrap(), 27);
    for (at, why) in [
        (&[63][..], "in the header"),
        (&[0], "in the header"),
        (&[300, 299 + len], "in another chunk"),
        (&[1001 - len], "ends at byte 1001"),
        (&[1 << 40], "ends at byte"),
    ] {
        let refused = placed(at).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    // The same bytes are one chunk, of one form.
    let other = Segment {
        crc32c: 0,
        ..whole(300, &chunks[0])
    };
    let header = ColumnHeader::new(PARAMS, vec![whole(300, &chunks[0]), other]).unwrap();
    let mut bytes = header.to_bytes();
    bytes.resize(1000, 0);
    assert!(Column::new(PARAMS, &bytes).is_err());
}

#[test]
fn sizes_of_whole_columns() {
    // A million numbers of 16 bits: 7.1 MB seeded, 11.4 MB packed.
    let million = |form| column_bytes(&MESSAGE16, form, 1_000_000).unwrap();
    let chunks = 977;
    let rest = 1_000_000 - 976 * 1024;
    for (form, full) in [(ColumnForm::Seeded, 7_072), (ColumnForm::Packed, 11_520)] {
        let last = chunk_bytes(&MESSAGE16, form, rest).unwrap() as u64;
        assert_eq!(million(form), 32 + 32 * chunks + 976 * full + last);
    }
    let full = rows_per_chunk(PARAMS) as u64;
    for rows in [1, 2, full - 1, full, full + 1, 5 * full] {
        let bytes = column_bytes(PARAMS, ColumnForm::Expanded, rows).unwrap();
        let header = 32 + 32 * rows.div_ceil(full);
        assert_eq!(bytes, header + rows * PARAMS.lwe_bytes() as u64);
    }
    assert!(column_bytes(PARAMS, ColumnForm::Seeded, 0).is_err());
    assert!(column_bytes(&TINY, ColumnForm::Packed, 2000).is_err());
    // More rows than any memory has: no overflow.
    assert_eq!(
        column_bytes(PARAMS, ColumnForm::Expanded, u64::MAX).unwrap(),
        u64::MAX
    );
}
