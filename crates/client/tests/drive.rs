//! Drives by their location, and programs as calls.
#![cfg(feature = "image")]
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::{Cursor, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use toroid_client::blob::BlobError;
use toroid_client::columns::{ColumnError, EncryptedRows};
use toroid_client::drive::{NewImage, PUBLIC_KEY_FILES, create_image};
use toroid_client::ledger::Ledger;
use toroid_client::prelude::*;
use toroid_client::session::Object;
use toroid_drive::bridge::status::TRIGGER_SPLIT;
use toroid_drive::image::{FormatOptions, MetadataMode};
use toroid_isa::{KeyKind, VrNumber};
use toroid_nvme::{Controller, ControllerInfo, Request, Response, Status, opcode};
use toroid_tfhe::keys::KeyTag;
use toroid_tfhe::seeded::KeyForm;
use toroid_tfhe::serialize::{Header, Kind, ObjectReader, ObjectWriter};

const ADD: &str = "
    .reg x = cor:1
    .reg y = cor:2
    .tv  f = x + 1
        homadd    x, y
        bootstrap f, x
        return    x
";

fn client() -> ClientKey {
    ClientKey::generate(&TINY, &mut Csprng::from_os().unwrap())
}

fn small(metadata_mode: MetadataMode) -> FormatOptions {
    FormatOptions {
        size: 64 << 20,
        swap: 16 << 20,
        metadata_mode,
        ..FormatOptions::default()
    }
}

#[test]
fn an_image_keeps_what_was_put_and_computes_when_it_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive.img");
    let client = client();
    for mode in [MetadataMode::SecondHalf, MetadataMode::NvmeMetadata] {
        let options = FormatOptions {
            overwrite: true,
            ..small(mode)
        };
        let drive = Drive::create(&path, options).unwrap();
        drive.put_keys(&client).unwrap();
        let program = drive.install(&TINY, ADD).unwrap();
        drive.close().unwrap();

        let drive = Drive::open(path.as_path()).unwrap();
        assert!(drive.load().unwrap() > 0);
        let (x, y) = (client.encrypt(1).unwrap(), client.encrypt(-2).unwrap());
        // y is read, and what comes is the register that the program returns.
        let outputs = drive.call(&program, &[("x", &x), ("y", &y)]).unwrap();
        assert_eq!(client.decrypt(&outputs["x"]).unwrap(), 0);
        drive.close().unwrap();
    }
}

/// A public key of `client` in its file, as `toroid keys generate` writes it.
fn write_key_file(folder: &Path, name: &str, kind: Kind, client: &ClientKey) {
    write_key(File::create(folder.join(name)).unwrap(), kind, client);
}

fn write_key(to: impl Write, kind: Kind, client: &ClientKey) {
    let header = Header::new(kind, client.params(), *client.tag());
    let mut object = ObjectWriter::new(to, &header).unwrap();
    let mut rng = Csprng::from_os().unwrap();
    let (form, quiet) = (KeyForm::Seeded, Progress::none());
    let mut sink = |bytes: &[u8]| object.write(bytes);
    if kind == Kind::SeededBootstrappingKey {
        client.bootstrapping_key(form, &mut rng, &quiet, &mut sink)
    } else {
        client.key_switching_key(form, &mut rng, &quiet, &mut sink)
    }
    .unwrap();
    object.finish().unwrap();
}

#[test]
fn a_drive_takes_the_key_files_of_one_client() {
    let folder = tempfile::tempdir().unwrap();
    let (client, drive) = (client(), Drive::temporary().unwrap());
    let missing = drive.put_key_files(folder.path()).unwrap_err();
    assert!(matches!(missing, DriveError::File { .. }), "{missing}");
    let other = ClientKey::generate(&TINY, &mut Csprng::from_os().unwrap());
    let [bootstrapping, key_switching] = PUBLIC_KEY_FILES;
    let (first, second) = (Kind::SeededBootstrappingKey, Kind::SeededKeySwitchingKey);
    write_key_file(folder.path(), bootstrapping, first, &client);
    write_key_file(folder.path(), key_switching, second, &other);
    let error = drive.put_key_files(folder.path()).unwrap_err();
    assert!(error.to_string().contains("another client key"), "{error}");

    write_key_file(folder.path(), key_switching, second, &client);
    drive.put_key_files(folder.path()).unwrap();
    let (x, y) = (client.encrypt(1).unwrap(), client.encrypt(-2).unwrap());
    let outputs = drive.run(ADD, &[("y", &y), ("x", &x)]).unwrap();
    assert_eq!(client.decrypt(&outputs["x"]).unwrap(), 0);
}

#[test]
fn compute_on_read_returns_the_named_register() {
    let (client, drive) = (client(), Drive::temporary().unwrap());
    drive.put_keys(&client).unwrap();
    let (x, y) = (client.encrypt(1).unwrap(), client.encrypt(-2).unwrap());
    let outputs = drive.run(ADD, &[("y", &y), ("x", &x)]).unwrap();
    assert_eq!(outputs.len(), 1);
    let sum = &outputs["x"];
    assert_eq!(sum.tag().map(KeyTag::as_slice), Some(&client.tag()[..]));
    assert_eq!(client.decrypt(sum).unwrap(), 0);
    assert!(sum.log2_failure() < -20.0);
}

#[test]
fn a_key_id_separates_programs_and_keys() {
    let client = client();
    let drive = Drive::temporary().unwrap();
    drive.put_keys(&client).unwrap();
    let seven = format!(".key 7\n{ADD}");
    let (x, y) = (client.encrypt(0).unwrap(), client.encrypt(1).unwrap());
    let inputs = [("y", &y), ("x", &x)];
    let error = drive.run(&seven, &inputs).unwrap_err();
    // The drive's reason is in the error.
    let DriveError::Failed { reason, .. } = error else {
        panic!("{error:?}");
    };
    assert!(reason.contains("key"), "{reason}");
    assert_eq!(
        client
            .decrypt(&drive.run(ADD, &inputs).unwrap()["x"])
            .unwrap(),
        2
    );
}

#[test]
fn wrong_inputs_are_refused_before_anything_is_written() {
    let (client, other) = (client(), client());
    let drive = Drive::temporary().unwrap();
    let program = drive.install(&TINY, ADD).unwrap();
    let (x, y) = (client.encrypt(0).unwrap(), other.encrypt(1).unwrap());
    let refused = |inputs: &[(&str, &Ciphertext)]| match drive.call(&program, inputs) {
        Err(DriveError::Session(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refused(&[]), SessionError::Triggers(0)));
    assert!(matches!(
        refused(&[("z", &x)]),
        SessionError::NoSuchRegister(name) if name == "z"
    ));
    assert!(matches!(
        refused(&[("x", &x), ("y", &y)]),
        SessionError::Tfhe(TfheError::KeyMismatch(_))
    ));
    assert!(drive.session().find("cor:0:1".parse().unwrap()).is_none());
    assert!(matches!(
        drive.run("return", &[("x", &x)]),
        Err(DriveError::Assemble(_))
    ));
}

#[test]
fn locations_that_are_no_drive_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive.img");
    assert!(matches!(
        Drive::open(path.as_path()),
        Err(DriveError::ImageFile(_))
    ));
    std::fs::write(&path, [0; 8192]).unwrap();
    assert!(matches!(
        Drive::open(path.as_path()),
        Err(DriveError::Image { .. })
    ));
    assert!(matches!(
        Drive::open("http://localhost/"),
        Err(DriveError::Address(_))
    ));
    assert!(matches!(
        Drive::open("nvme+tcp://localhost:1"),
        Err(DriveError::Discovery(_))
    ));
    create_image(
        &path,
        FormatOptions {
            overwrite: true,
            ..small(MetadataMode::SecondHalf)
        },
    )
    .unwrap();
    assert!(matches!(
        Drive::options().nsid(3).open(path.as_path()),
        Err(DriveError::UnknownNamespace { nsid: 3, .. })
    ));
    let open = Drive::open(path.as_path()).unwrap();
    assert!(matches!(
        Drive::open(path.as_path()),
        Err(DriveError::ImageFile(_))
    ));
    drop(open);
    let formatted = Drive::options().format(path.as_path(), false);
    assert!(matches!(formatted, Err(DriveError::HoldsStore(_))));
    Drive::options().format(path.as_path(), true).unwrap();
}

#[test]
fn an_image_that_is_not_placed_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive.img");
    let options = FormatOptions {
        overwrite: true,
        ..small(MetadataMode::SecondHalf)
    };
    drop(NewImage::make(&path, options.clone()).unwrap());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);

    NewImage::make(&path, options.clone())
        .unwrap()
        .place()
        .unwrap();
    let identifier = || {
        Drive::open(path.as_path())
            .unwrap()
            .session()
            .store()
            .uuid()
    };
    let former = identifier();
    drop(NewImage::make(&path, options.clone()).unwrap());
    assert_eq!(identifier(), former);
    let again = NewImage::make(&path, small(MetadataMode::SecondHalf));
    assert!(matches!(again, Err(DriveError::ImageFile(_))));
    assert_eq!(identifier(), former);
    NewImage::make(&path, options).unwrap().place().unwrap();
    assert_ne!(identifier(), former);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn a_cancelled_token_stops_work() {
    let cancel = CancelToken::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive.img");
    create_image(&path, small(MetadataMode::SecondHalf)).unwrap();
    let drive = Drive::options()
        .cancel(cancel.clone())
        .open(path.as_path())
        .unwrap();
    cancel.cancel();
    let put = drive.put_keys(&client());
    assert!(matches!(
        put,
        Err(DriveError::Session(SessionError::Blob(
            BlobError::Cancelled
        )))
    ));
}

#[test]
fn pages_show_the_example() {
    let example = include_str!("../examples/multiply.rs");
    let program = &example[example.find("use toroid_client").unwrap()..];
    assert!(include_str!("../../../README.md").contains(program));
    assert!(include_str!("../../../docs/start.md").contains(program));
    assert!(program.lines().count() <= 25);
    assert_eq!(program.matches("use ").count(), 1);
}

#[test]
fn columns_trigger_programs_as_samples_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive.img");
    let client = client();
    let encoding = Encoding::new(4, true).unwrap();
    let encrypted = |numbers: &[i64]| {
        EncryptedRows::encrypt(&client, encoding, numbers, &Progress::none()).unwrap()
    };
    let quiet = Progress::none();
    let numbers: Vec<i64> = (0..90).map(|row| row * 5 % 12 - 6).collect();
    let rows = encrypted(&numbers);
    for mode in [MetadataMode::SecondHalf, MetadataMode::NvmeMetadata] {
        let options = FormatOptions {
            overwrite: true,
            ..small(mode)
        };
        let drive = Drive::create(&path, options).unwrap();
        drive.put_keys(&client).unwrap();
        let (column, single): (VrNumber, VrNumber) =
            ("cow:0:2".parse().unwrap(), "cor:0:1".parse().unwrap());
        let on_write = "
            .reg x = cow:2
            .reg y = cor:1
            .tv  f = x + 1
                homadd    x, y
                bootstrap f, x
                return    x
        ";
        drive.install(&TINY, on_write).unwrap();
        let session = drive.session();
        drive
            .wait(session.put_sample(single, &client.encrypt(1).unwrap()))
            .unwrap();
        let trigger = |register, rows: Option<&EncryptedRows>| {
            drive.wait(session.trigger_rows(register, rows, &quiet))
        };
        let result = trigger(column, Some(&rows)).unwrap();
        let expected: Vec<i64> = numbers.iter().map(|x| x + 2).collect();
        assert_eq!(result.decrypt(&client).unwrap(), expected);
        assert!(result.log2_failure() < -64.0);
        // The result stands in the place of the column; no sample is there.
        let again = drive.wait(session.get_rows(column)).unwrap();
        assert_eq!(again.decrypt(&client).unwrap(), expected);
        assert!(drive.wait(session.get_sample(column)).is_err());
        assert!(drive.wait(session.get_rows(single)).is_err());
        // A sum is a column of one row.
        drive
            .install(&TINY, "homsum cow:2, 0\nreturn cow:2")
            .unwrap();
        let few = encrypted(&[1, -3, 4]);
        let sum = trigger(column, Some(&few)).unwrap();
        assert_eq!(sum.decrypt(&client).unwrap(), [2]);
        // A column as a blob of its own, from what was computed.
        drive
            .wait(session.create_column("sum", 0, &sum, &quiet))
            .unwrap();
        // Compute-on-read, of what was put before there was the program: no load brings it to a register.
        let on_read = "
            .reg x = cor:1
            .tv  f = 1 - x
                bootstrap f, x
                return    x
        ";
        let program = drive.install(&TINY, on_read).unwrap();
        assert_eq!(program.test_vectors.len(), 1);
        let flipped: Vec<i64> = numbers.iter().map(|x| 1 - x).collect();
        assert_eq!(
            trigger(single, Some(&rows))
                .unwrap()
                .decrypt(&client)
                .unwrap(),
            flipped
        );
        drive.close().unwrap();

        let drive = Drive::open(path.as_path()).unwrap();
        drive.load().unwrap();
        let session = drive.session();
        let reload = session.reload(0, false, &quiet);
        assert!(drive.wait(reload).unwrap() > 0);
        let read = session.trigger_rows(single, None, &quiet);
        let read = drive.wait(read).unwrap();
        assert_eq!(read.decrypt(&client).unwrap(), flipped);
        // What cannot be: rows that do not fit the program, another client key, and a column of several commands.
        let read = session.trigger_rows(column, None, &quiet);
        let not_there = drive.wait(read).unwrap_err();
        assert!(
            matches!(not_there, SessionError::NotComputed(_)),
            "{not_there}"
        );
        let other = ClientKey::generate(&TINY, &mut Csprng::from_os().unwrap());
        let others = EncryptedRows::encrypt(&other, encoding, &[1, 2], &quiet).unwrap();
        let put = drive.wait(session.put_rows(column, &others, 0, &quiet));
        assert!(matches!(put, Err(SessionError::KeyTag { .. })));
        let put = drive.wait(session.put_rows(column, &rows, 3 << 20, &quiet));
        let status = put.unwrap_err().status();
        assert_eq!(status, Some(TRIGGER_SPLIT));
        drive.close().unwrap();
    }
}

#[test]
fn rows_are_gathered_in_any_order() {
    let client = client();
    let encrypt = |client: &ClientKey, numbers: &[i64], signed| {
        let encoding = Encoding::new(4, signed).unwrap();
        EncryptedRows::encrypt(client, encoding, numbers, &Progress::none()).unwrap()
    };
    let one = encrypt(&client, &[0, 1, 2, 3], false);
    let other = encrypt(&client, &[4, 5, 6], false);
    let ranges = [(&other, 1..3), (&one, 3..4), (&one, 0..2), (&one, 3..4)];
    let gathered = EncryptedRows::gather(&ranges, None).unwrap();
    assert_eq!(gathered.len(), 6);
    assert_eq!(gathered.decrypt(&client).unwrap(), [5, 6, 3, 0, 1, 3]);
    // Errors of a row that stands there twice add up.
    assert!(gathered.is_computed());
    assert!(
        !EncryptedRows::gather(&ranges[..3], None)
            .unwrap()
            .is_computed()
    );

    let signed = encrypt(&client, &[7], true);
    let both = [(&signed, 0..1), (&one, 2..3)];
    let refused = EncryptedRows::gather(&both, None).unwrap_err();
    assert!(matches!(refused, SessionError::Column { .. }), "{refused}");
    let gathered = EncryptedRows::gather(&both, Some(false)).unwrap();
    assert!(!gathered.encoding().unwrap().is_signed());
    assert_eq!(gathered.decrypt(&client).unwrap(), [7, 2]);

    let stranger = ClientKey::generate(&TINY, &mut Csprng::from_os().unwrap());
    let theirs = encrypt(&stranger, &[1], false);
    assert!(EncryptedRows::gather(&[(&one, 0..1), (&theirs, 0..1)], None).is_err());
    assert!(EncryptedRows::gather(&[(&one, 3..5)], None).is_err());
    assert!(EncryptedRows::gather(&[(&one, 2..2)], None).is_err());
    assert!(EncryptedRows::gather(&[], None).is_err());
}

#[test]
fn a_ledger_takes_columns_of_registers() {
    let folder = tempfile::tempdir().unwrap();
    let client = client();
    let ledger = Arc::new(Mutex::new(Ledger::in_memory(&client)));
    let options = OpenOptions::new().ledger(Arc::clone(&ledger));
    let path = folder.path().join("drive.img");
    Drive::create(&path, small(MetadataMode::NvmeMetadata))
        .unwrap()
        .close()
        .unwrap();
    let drive = options.open(path.as_path()).unwrap();
    drive.put_keys(&client).unwrap();
    drive
        .install(&TINY, "homintadd cow:2, 3\nreturn cow:2")
        .unwrap();
    let encoding = Encoding::new(4, true).unwrap();
    let quiet = Progress::none();
    let rows = EncryptedRows::encrypt(&client, encoding, &[-2, 1], &quiet).unwrap();
    let session = drive.session();
    let register = "cow:0:2".parse().unwrap();
    let result = drive
        .wait(session.trigger_rows(register, Some(&rows), &quiet))
        .unwrap();
    assert_eq!(result.decrypt(&client).unwrap(), [1, 4]);
    let again = drive.wait(session.get_rows(register)).unwrap();
    assert_eq!(again.decrypt(&client).unwrap(), [1, 4]);
    // A result that nobody accepted is not taken.
    drive
        .wait(session.put_rows(register, &rows, 1 << 12, &quiet))
        .unwrap();
    let untrusted = drive.wait(session.get_rows(register)).unwrap_err();
    assert!(matches!(untrusted, SessionError::Untrusted { .. }));
    drive.close().unwrap();
}

#[test]
fn of_columns_that_are_made_at_once_under_a_name_one_stays() {
    let client = client();
    let drive = Drive::temporary().unwrap();
    let session = drive.session();
    let (encoding, quiet) = (Encoding::new(4, true).unwrap(), Progress::none());
    let columns = [vec![1; 20], vec![2; 30]];
    let columns =
        columns.map(|numbers| EncryptedRows::encrypt(&client, encoding, &numbers, &quiet).unwrap());
    let [first, second] = columns
        .each_ref()
        .map(|rows| session.create_column("x", 0, rows, &quiet));
    let made = drive.wait(async { futures::join!(first, second) });
    let (stays, refused, rows) = match made {
        (Ok(stays), Err(refused)) => (stays, refused, &columns[0]),
        (Err(refused), Ok(stays)) => (stays, refused, &columns[1]),
        other => panic!("{other:?}"),
    };
    let SessionError::Column { name, source } = refused else {
        panic!("{refused}");
    };
    assert_eq!((name.as_str(), stays.rows), ("x", rows.len()));
    assert!(matches!(source, ColumnError::Exists));
    let read = drive.wait(session.read_rows("x", None, &quiet)).unwrap();
    let expected = rows.decrypt(&client).unwrap();
    assert_eq!(read.decrypt(&client).unwrap(), expected);
    // Nothing is left of the other.
    drive.wait(session.delete_column("x")).unwrap();
    assert!(session.store().list().is_empty());
    drive.close().unwrap();
}

/// The registers that something is stored for.
fn registers(session: &Session) -> Vec<VrNumber> {
    let blobs = session.store().list().into_iter();
    blobs.filter_map(|blob| Some(blob.sc?.vr())).collect()
}

/// A drive that cannot read while `fails`.
struct Unreadable {
    controller: Arc<dyn Controller>,
    fails: Arc<AtomicBool>,
}

impl Controller for Unreadable {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        if request.sqe.opcode == opcode::READ && self.fails.load(Ordering::Relaxed) {
            let status = Status::UNRECOVERED_READ_ERROR;
            let failed = Response::failure(request.sqe.cid.get(), status, true);
            return Box::pin(async { failed });
        }
        self.controller.submit(request)
    }

    fn info(&self) -> &ControllerInfo {
        self.controller.info()
    }
}

#[test]
fn keys_come_to_no_key_id_whose_columns_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive.img");
    Drive::create(&path, small(MetadataMode::SecondHalf)).unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let options = Drive::options().wrap({
        let fails = fails.clone();
        move |controller| {
            let fails = fails.clone();
            Arc::new(Unreadable { controller, fails }) as Arc<dyn Controller>
        }
    });
    let drive = options.open(path.as_path()).unwrap();
    let (client, other) = (client(), client());
    let encoding = Encoding::new(4, false).unwrap();
    let quiet = Progress::none();
    let rows = EncryptedRows::encrypt(&client, encoding, &[1, 2, 3], &quiet).unwrap();
    let session = drive.session();
    drive
        .wait(session.create_column("c", 0, &rows, &quiet))
        .unwrap();
    for unreadable in [true, false] {
        fails.store(unreadable, Ordering::Relaxed);
        let refused = drive.put_keys(&other).unwrap_err().to_string();
        fails.store(false, Ordering::Relaxed);
        assert_eq!(refused.contains("column c"), !unreadable, "{refused}");
        assert!(registers(session).is_empty());
    }
    drive.put_keys(&client).unwrap();
}

/// A reader that does something before it gives its last byte.
struct Interrupted<F>(Cursor<Vec<u8>>, Option<F>);

impl<F: FnOnce()> Read for Interrupted<F> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let rest = self.0.get_ref().len() as u64 - self.0.position();
        if rest <= into.len() as u64
            && let Some(act) = self.1.take()
        {
            act();
        }
        self.0.read(into)
    }
}

#[test]
fn keys_of_another_client_that_come_during_an_upload_end_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive.img");
    let drive = Drive::create(&path, small(MetadataMode::SecondHalf)).unwrap();
    let (client, other) = (client(), client());
    let quiet = Progress::none();
    let mut file = Vec::new();
    write_key(&mut file, Kind::SeededBootstrappingKey, &client);
    let session = drive.session();
    let switching = Object::generated_key(0, &other, KeyKind::KeySwitching).unwrap();
    let meanwhile = || {
        let put = || drive.wait(session.put(vec![switching], &quiet));
        let put = std::thread::scope(|scope| scope.spawn(put).join().unwrap());
        assert_eq!(put.unwrap().len(), 1);
    };
    let reader = ObjectReader::new(Interrupted(Cursor::new(file), Some(meanwhile))).unwrap();
    let key = Object::key(0, reader).unwrap();
    let refused = drive.wait(session.put(vec![key], &quiet)).unwrap_err();
    assert!(matches!(refused, SessionError::KeyTag { .. }), "{refused}");
    assert_eq!(
        registers(session),
        [VrNumber::key(0, KeyKind::KeySwitching).unwrap()]
    );
}
