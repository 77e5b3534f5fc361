//! What a client notices of a drive that does not give back the columns that it was given.

use std::ops::Range;

use toroid_client::columns::{ColumnError, EncryptedRows, MapReport, MapRequest, RingRows, Way};
use toroid_client::ledger::Subject;
use toroid_rns::ring_set::{RingSet, TINY_RING};
use toroid_tfhe::ciphertext::MAX_LOG2_FAILURE;
use toroid_tfhe::column::{ColumnHeader, Segment};
use toroid_tfhe::params::TINY_WOPBS;

use super::*;

/// Where the header of a column begins, and the directory of a ring column.
const HEADER: usize = 128;
/// Where the record of a run says whether it is complete.
const COMPLETE: usize = 68;

fn encoding() -> Encoding {
    Encoding::new(4, false).unwrap()
}

impl Place {
    fn encrypted(&self, numbers: &[i64]) -> EncryptedRows {
        EncryptedRows::encrypt(&self.client, encoding(), numbers, &Progress::none()).unwrap()
    }

    fn encrypted_ring(&self, numbers: &[i64]) -> RingRows {
        let form: (&'static RingSet, Encoding) = (&TINY_RING, encoding());
        RingRows::encrypt(&self.client, form, numbers, &Progress::none()).unwrap()
    }

    /// Does something as the client, with its ledger.
    fn session<T>(&self, work: impl AsyncFnOnce(&Session, &Progress) -> T) -> T {
        let drive = self.open();
        let done = drive.wait(work(drive.session(), &Progress::none()));
        drive.close().unwrap();
        done
    }

    fn column(&self, name: &str, numbers: &[i64]) {
        let rows = self.encrypted(numbers);
        let created = self.session(async |session, none| {
            let created = session.create_column(name, 0, &rows, none);
            created.await.map(drop)
        });
        created.unwrap();
    }

    fn append(&self, name: &str, numbers: &[i64]) {
        let rows = self.encrypted(numbers);
        let appended = self.session(async |session, none| {
            let appended = session.append_rows(name, &rows, none);
            appended.await.map(drop)
        });
        appended.unwrap();
    }

    fn replace(&self, name: &str, first: u64, numbers: &[i64]) {
        let rows = self.encrypted(numbers);
        let replaced = self.session(async |session, none| {
            let replaced = session.replace_rows(name, first, &rows, none);
            replaced.await.map(drop)
        });
        replaced.unwrap();
    }

    fn rows_of(&self, name: &str, rows: Option<Range<u64>>) -> Result<Vec<i64>, SessionError> {
        let rows = self.session(async |session, none| {
            let rows = session.read_rows(name, rows, none);
            rows.await
        });
        rows?.decrypt_above(&self.client, MAX_LOG2_FAILURE, &Progress::none())
    }

    fn rows(&self, name: &str) -> Vec<i64> {
        self.rows_of(name, None).unwrap()
    }

    fn ring_rows(&self, name: &str) -> Result<Vec<i64>, SessionError> {
        let rows = self.session(async |session, none| {
            let column = session.ring_column(name).await?.unwrap();
            let all = 0..column.stat().rows;
            column.rows(all, none).await
        });
        rows?.decrypt_above(&self.client, MAX_LOG2_FAILURE, &Progress::none())
    }

    /// The blob of a column, as an attacker sees it.
    fn blob_of(&self, name: &str) -> Vec<u8> {
        let drive = Drive::open(self.image().as_path()).unwrap();
        let store = drive.session().store().clone();
        let name = format!("column:{name}");
        let blob = store.list().into_iter().find(|blob| blob.name == name);
        let none = Progress::none();
        let read = store.read_blob(blob.unwrap().id, &none);
        let data = drive.wait(read).unwrap().data;
        drive.close().unwrap();
        data
    }

    /// Writes a column's blob behind the client's back.
    fn plant_column(&self, name: &str, bytes: &[u8]) {
        let drive = Drive::open(self.image().as_path()).unwrap();
        let store = drive.session().store().clone();
        let name = format!("column:{name}");
        let blob = store.list().into_iter().find(|blob| blob.name == name);
        drive.wait(async {
            let writer = store.writer(blob.unwrap().id, bytes.len() as u64);
            let mut writer = writer.await.unwrap();
            writer.write(bytes).await.unwrap();
            writer.commit().await.unwrap();
        });
        drive.close().unwrap();
    }

    /// Runs a program with a table on column x, two rows at a time.
    fn map(&self, expression: &str, output: &str) -> Result<MapReport, SessionError> {
        let text = format!(
            ".reg x = cor:0\n.tv f unsigned in=4 out=4 = {expression}\n    bootstrap f, x\n    return x\n"
        );
        let program = toroid_isa::assemble(&text).unwrap();
        let request = MapRequest {
            program: &program,
            inputs: &[("x", "x")],
            rows: None,
            output,
            replace: true,
            unit: Some(2),
            way: Way::Samples,
            form: None,
            kept: None,
        };
        self.session(async |session, none| {
            session.load(0, none).await?;
            session.map(&request, none).await
        })
    }
}

/// Why a column cannot be trusted.
fn untrusted<T: std::fmt::Debug>(result: Result<T, SessionError>, column: &str) -> LedgerFault {
    match result {
        Err(SessionError::Column {
            name,
            source: ColumnError::Untrusted(fault),
        }) => {
            assert_eq!(name, column);
            fault
        }
        other => panic!("{other:?}"),
    }
}

/// The bytes of a column of `tiny` with other segments, whose checksum is right.
fn with_segments(bytes: &[u8], change: impl FnOnce(&mut Vec<Segment>)) -> Vec<u8> {
    let (header, len) = ColumnHeader::from_bytes(&TINY, &bytes[HEADER..]).unwrap();
    let mut segments = header.segments().to_vec();
    change(&mut segments);
    let header = ColumnHeader::new(&TINY, segments).unwrap().to_bytes();
    assert_eq!(header.len(), len);
    let mut bytes = bytes.to_vec();
    bytes[HEADER..HEADER + len].copy_from_slice(&header);
    bytes
}

#[test]
fn replayed_columns_and_rolled_back_appends_are_noticed() {
    let place = Place::new();
    place.column("x", &[1, 2, 3]);
    let first = place.blob_of("x");
    place.append("x", &[4, 5]);
    let appended = place.blob_of("x");
    place.replace("x", 1, &[9]);
    let newest = place.blob_of("x");
    assert_eq!(place.rows("x"), [1, 9, 3, 4, 5]);
    // The column before the append; the row that was replaced, put back.
    for (found, bytes) in [(1, &first), (2, &appended)] {
        place.plant_column("x", bytes);
        let rolled_back = LedgerFault::RolledBack { found, newest: 3 };
        assert_eq!(untrusted(place.rows_of("x", None), "x"), rolled_back);
        // Nothing is made of it either.
        let rows = place.encrypted(&[6]);
        let appended = place.session(async |session, none| {
            let appended = session.append_rows("x", &rows, none);
            appended.await
        });
        assert_eq!(untrusted(appended, "x"), rolled_back);
    }
    // What only the key is there to notice, it does not.
    let ledger = fs::read(place.file()).unwrap();
    fs::remove_file(place.file()).unwrap();
    assert_eq!(place.rows("x"), [1, 2, 3, 4, 5]);
    fs::write(place.file(), ledger).unwrap();
    place.plant_column("x", &newest);
    assert_eq!(place.rows("x"), [1, 9, 3, 4, 5]);
}

#[test]
fn what_others_change_after_a_session_that_only_reads_was_opened_is_no_rollback() {
    let place = Place::new();
    place.column("x", &[1, 2, 3]);
    let copy = place.folder.path().join("copy.img");
    fs::copy(place.image(), &copy).unwrap();
    let options = Drive::options().ledger(place.ledger()).read_only();
    let early = options.open(copy.as_path()).unwrap();
    place.append("x", &[4]);
    let none = Progress::none();
    let rows = early.wait(early.session().read_rows("x", None, &none));
    let rows = rows.unwrap();
    let numbers = rows.decrypt_above(&place.client, MAX_LOG2_FAILURE, &none);
    assert_eq!(numbers.unwrap(), [1, 2, 3]);
    early.close().unwrap();
    // Whoever opens it now knows better.
    let options = Drive::options().ledger(place.ledger()).read_only();
    let late = options.open(copy.as_path()).unwrap();
    let rows = late.wait(late.session().read_rows("x", None, &none));
    let rolled_back = LedgerFault::RolledBack {
        found: 1,
        newest: 2,
    };
    assert_eq!(untrusted(rows, "x"), rolled_back);
}

#[test]
fn a_deleted_column_does_not_come_back() {
    let place = Place::new();
    place.column("x y = z", &[1, 2, 3]);
    let image = fs::read(place.image()).unwrap();
    place
        .session(async |session, _| session.delete_column("x y = z").await)
        .unwrap();
    let deleted = fs::read(place.image()).unwrap();
    fs::write(place.image(), image).unwrap();
    let gone = LedgerFault::Gone { found: 1 };
    assert_eq!(untrusted(place.rows_of("x y = z", None), "x y = z"), gone);
    // Another one of the name counts on.
    fs::write(place.image(), deleted).unwrap();
    place.column("x y = z", &[4]);
    assert_eq!(place.rows("x y = z"), [4]);
}

#[test]
fn swapped_columns_are_noticed_even_without_the_ledger_file() {
    let place = Place::new();
    place.column("x", &[1, 2, 3]);
    place.column("y", &[4, 5, 6]);
    place.plant_column("x", &place.blob_of("y"));
    for _ in 0..2 {
        assert_eq!(
            untrusted(place.rows_of("x", None), "x"),
            LedgerFault::Changed
        );
        let _ = fs::remove_file(place.file());
    }
    assert_eq!(place.rows("y"), [4, 5, 6]);
}

#[test]
fn exchanged_and_changed_rows_are_noticed() {
    let place = Place::new();
    place.column("x", &[1, 2, 3]);
    place.append("x", &[4, 5, 6]);
    let honest = place.blob_of("x");
    let (header, len) = ColumnHeader::from_bytes(&TINY, &honest[HEADER..]).unwrap();
    let [one, other] = [0, 1].map(|at| {
        let chunk = header.segments()[at].chunk_place(&TINY).unwrap();
        HEADER + chunk.start as usize..HEADER + chunk.end as usize
    });
    // The chunks change places, in the directory or where they stand; the checksums are right.
    let exchanged = with_segments(&honest, |segments| segments.swap(0, 1));
    let places = with_segments(&honest, |segments| {
        let (one, other) = (segments[0], segments[1]);
        (segments[0].offset, segments[0].crc32c) = (other.offset, other.crc32c);
        (segments[1].offset, segments[1].crc32c) = (one.offset, one.crc32c);
    });
    let mut chunks = with_segments(&honest, |segments| {
        let (one, other) = (segments[0].crc32c, segments[1].crc32c);
        (segments[0].crc32c, segments[1].crc32c) = (other, one);
    });
    chunks[one.clone()].copy_from_slice(&honest[other.clone()]);
    chunks[other.clone()].copy_from_slice(&honest[one.clone()]);
    // A row less and a row twice; figures of noise, and the binding.
    let fewer = with_segments(&honest, |segments| segments[0].rows = 2);
    let twice = with_segments(&honest, |segments| segments[1] = segments[0]);
    let sc = ScMetadata::from_bytes(&honest[..64]);
    let sc = sc.unwrap().unwrap();
    let with_metadata = |sc: ScMetadata| [&sc.to_bytes()[..], &honest[64..]].concat();
    let quiet = with_metadata(sc.with_noise(Some(-60.0), None));
    let unknown = with_metadata(sc.with_noise(None, None));
    let bound = HEADER + len;
    assert_eq!(&honest[bound..bound + 4], b"TBND");
    let mut unbound = honest.clone();
    unbound[bound..bound + 4].fill(0);
    let changed_at = |at: usize| {
        let mut bytes = honest.clone();
        bytes[at] ^= 1;
        bytes
    };
    let attacks = [
        exchanged,
        places,
        chunks,
        fewer,
        twice,
        quiet,
        unknown,
        unbound,
        changed_at(bound + 16),
        changed_at(bound + 32),
    ];
    for (number, bytes) in attacks.iter().enumerate() {
        place.plant_column("x", bytes);
        let found = place.rows_of("x", None);
        // A digest of the newest version needs no code; the digest of a chunk is a part of it.
        if number == 8 {
            assert_eq!(found.unwrap(), [1, 2, 3, 4, 5, 6]);
            let ledger = fs::read(place.file()).unwrap();
            fs::remove_file(place.file()).unwrap();
            let found = place.rows_of("x", None);
            assert_eq!(untrusted(found, "x"), LedgerFault::Changed);
            fs::write(place.file(), ledger).unwrap();
            continue;
        }
        assert_eq!(untrusted(found, "x"), LedgerFault::Changed, "{number}");
    }
    // A chunk that was changed, with its checksum, does not keep others from being read.
    let mut changed = honest.clone();
    changed[other.end - 1] ^= 1;
    let crc32c = crc32c::crc32c(&changed[other]);
    let changed = with_segments(&changed, |segments| segments[1].crc32c = crc32c);
    place.plant_column("x", &changed);
    assert_eq!(place.rows_of("x", Some(0..3)).unwrap(), [1, 2, 3]);
    let found = place.rows_of("x", Some(2..4));
    assert_eq!(untrusted(found, "x"), LedgerFault::Changed);
    // Without a ledger nothing of that is noticed.
    let drive = Drive::open(place.image().as_path()).unwrap();
    drive
        .wait(drive.session().read_rows("x", None, &Progress::none()))
        .unwrap();
}

#[test]
fn outputs_of_programs_are_bound_to_program_and_inputs() {
    let place = Place::new();
    let drive = place.open();
    drive.put_keys(&place.client).unwrap();
    drive.close().unwrap();
    place.column("x", &[1, 2, 3, 4, 5]);
    place.append("x", &[6]);
    let early = place.blob_of("x");
    let mapped = place.map("15 - x", "o").unwrap();
    assert_eq!((mapped.computed, mapped.output.rows), (6, 6));
    assert_eq!(place.rows("o"), [14, 13, 12, 11, 10, 9]);
    place.map("x + 1", "p").unwrap();
    assert_eq!(place.rows("p"), [2, 3, 4, 5, 6, 7]);
    let entry = |name: &str| {
        let store = place.session(async |session, _| session.store().uuid());
        let ledger = place.ledger();
        let ledger = ledger.lock().unwrap();
        let entry = ledger.entry(store, Subject::Column(name.to_owned()));
        entry.unwrap().clone()
    };
    let [o, p] = ["o", "p"].map(|name| entry(name).origin.unwrap());
    assert_ne!(o.program, p.program);
    for origin in [&o, &p] {
        assert_eq!(origin.rows, Some(0..6));
        let columns = (Subject::Column("x".to_owned()), 2);
        assert!(origin.inputs.contains(&columns), "{origin:?}");
        let is_table = |input: &Subject| matches!(input, Subject::Register(vr) if vr.ty() == toroid_isa::VrType::Tv);
        assert!(origin.inputs.iter().any(|(input, _)| is_table(input)));
    }
    // The output of another program; a run that says that it is not complete, which would compute again.
    let honest = place.blob_of("o");
    let mut incomplete = honest.clone();
    assert_eq!(incomplete[COMPLETE], 1);
    incomplete[COMPLETE] = 0;
    let crc = crc32c::crc32c(&incomplete[64..124]).to_le_bytes();
    incomplete[124..128].copy_from_slice(&crc);
    for bytes in [place.blob_of("p"), incomplete] {
        place.plant_column("o", &bytes);
        assert_eq!(
            untrusted(place.rows_of("o", None), "o"),
            LedgerFault::Changed
        );
    }
    place.plant_column("o", &honest);
    assert_eq!(place.map("15 - x", "o").unwrap().computed, 0);
    // An earlier input is noticed before anything runs, an earlier output when it is read.
    place.replace("x", 0, &[7]);
    let late = place.blob_of("x");
    place.plant_column("x", &early);
    let rolled_back = LedgerFault::RolledBack {
        found: 2,
        newest: 3,
    };
    assert_eq!(untrusted(place.map("15 - x", "o"), "x"), rolled_back);
    place.plant_column("x", &late);
    assert_eq!(place.map("15 - x", "o").unwrap().computed, 6);
    assert_eq!(place.rows("o"), [8, 13, 12, 11, 10, 9]);
    place.plant_column("o", &honest);
    let found = place.rows_of("o", None);
    assert!(matches!(
        untrusted(found, "o"),
        LedgerFault::RolledBack { .. }
    ));
}

#[test]
fn a_column_that_is_written_anew_stays_bound() {
    let place = Place::new();
    let ledger = Arc::new(Mutex::new(Ledger::in_memory(&place.client)));
    let drive = place.open_with(ledger);
    let session = drive.session();
    let numbers: Vec<i64> = (0..1500).map(|row| row % 16).collect();
    let (rows, one) = (place.encrypted(&numbers), place.encrypted(&[5]));
    let none = Progress::none();
    drive
        .wait(session.create_column("x", 0, &rows, &none))
        .unwrap();
    // Each leaves another chunk, until the head has no room for them.
    let mut expected = numbers;
    let first = session_place(&place, &drive);
    let mut moved = false;
    for row in (0..1500).step_by(2).take(720) {
        drive
            .wait(session.replace_rows("x", row, &one, &none))
            .unwrap();
        expected[row as usize] = 5;
        moved = moved || row % 200 == 0 && session_place(&place, &drive) != first;
    }
    assert!(moved);
    let read = drive.wait(session.read_rows("x", None, &none)).unwrap();
    assert_eq!(read.decrypt(&place.client).unwrap(), expected);
}

/// Where the first chunk of column x stands.
fn session_place(place: &Place, drive: &Drive) -> u64 {
    let params = place.client.params();
    let store = drive.session().store();
    let mut blobs = store.list().into_iter();
    let blob = blobs.find(|blob| blob.name == "column:x").unwrap();
    let none = Progress::none();
    let read = store.read_blob(blob.id, &none);
    let bytes = drive.wait(read).unwrap().data;
    let (header, _) = ColumnHeader::from_bytes(params, &bytes[HEADER..]).unwrap();
    let offsets = header.segments().iter().map(|segment| segment.offset);
    offsets.min().unwrap()
}

#[test]
fn ring_columns_are_bound() {
    let place = Place::of(&TINY_WOPBS);
    let create = |name: &str, numbers: &[i64]| {
        let rows = place.encrypted_ring(numbers);
        let created = place.session(async |session, none| {
            let created = session.create_ring_column(name, 0, &rows, none);
            created.await.map(drop)
        });
        created.unwrap();
    };
    create("x", &[1, 2, 3]);
    create("y", &[4, 5, 6]);
    let first = place.blob_of("x");
    let more = place.encrypted_ring(&[7, 8, 9]);
    place
        .session(async |session, none| {
            let appended = session.append_ring_rows("x", &more, none);
            appended.await.map(drop)
        })
        .unwrap();
    let honest = place.blob_of("x");
    assert_eq!(place.ring_rows("x").unwrap(), [1, 2, 3, 7, 8, 9]);
    // The ciphertexts change places: places and checksums in the directory.
    let mut exchanged = honest.clone();
    let entries = HEADER + 16;
    let [one, other] = [0, 1].map(|at| honest[entries + 24 * at..][..24].to_vec());
    assert_eq!(one[8..16], other[8..16], "bytes and rows");
    exchanged[entries..entries + 24].copy_from_slice(&other);
    exchanged[entries + 24..entries + 48].copy_from_slice(&one);
    let crc = crc32c::crc32c(&exchanged[HEADER..HEADER + 12]);
    let crc = crc32c::crc32c_append(crc, &exchanged[entries..entries + 48]);
    exchanged[HEADER + 12..entries].copy_from_slice(&crc.to_le_bytes());
    let rolled_back = LedgerFault::RolledBack {
        found: 1,
        newest: 2,
    };
    for (bytes, fault) in [
        (first, rolled_back),
        (place.blob_of("y"), LedgerFault::Changed),
        (exchanged, LedgerFault::Changed),
    ] {
        place.plant_column("x", &bytes);
        assert_eq!(untrusted(place.ring_rows("x"), "x"), fault);
    }
    place.plant_column("x", &honest);
    assert_eq!(place.ring_rows("x").unwrap(), [1, 2, 3, 7, 8, 9]);
    // A column of samples in the place of one of a ring.
    place.column("s", &[1, 2, 3]);
    place.plant_column("x", &place.blob_of("s"));
    let as_samples = place.rows_of("x", None);
    assert_eq!(untrusted(as_samples, "x"), LedgerFault::Changed);
}
