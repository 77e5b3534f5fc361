//! What a client notices of a drive that does not give back what it was given.
#![cfg(feature = "image")]
#![allow(clippy::unwrap_used)]

#[path = "ledger/columns.rs"]
mod columns;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use tempfile::TempDir;
use toroid_client::ledger::{Ledger, LedgerError, LedgerFault};
use toroid_client::prelude::*;
use toroid_client::session::{StoredSample, sample_metadata};
use toroid_drive::image::FormatOptions;
use toroid_isa::VrNumber;
use toroid_isa::metadata::ScMetadata;
use toroid_nvme::{Controller, ControllerInfo, Request, Response};

const PROGRAM: &str = "
    .reg x = cor:1
    .reg y = cow:2
    .tv  f = x + 1
        homadd    y, x
        bootstrap f, y
        return    y
";

/// A client and a drive in a file, which an attacker has too.
struct Place {
    folder: TempDir,
    client: ClientKey,
}

fn vr(text: &str) -> VrNumber {
    text.parse().unwrap()
}

impl Place {
    fn new() -> Place {
        Place::of(&TINY)
    }

    fn of(params: &'static ParamSet) -> Place {
        let place = Place {
            folder: tempfile::tempdir().unwrap(),
            client: ClientKey::generate(params, &mut Csprng::from_os().unwrap()),
        };
        let options = FormatOptions {
            size: 64 << 20,
            swap: 16 << 20,
            ..FormatOptions::default()
        };
        Drive::create(place.image(), options).unwrap();
        place
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("drive.img")
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("ledger")
    }

    fn ledger(&self) -> Arc<Mutex<Ledger>> {
        Arc::new(Mutex::new(Ledger::open(&self.client, self.file()).unwrap()))
    }

    fn open_with(&self, ledger: Arc<Mutex<Ledger>>) -> Drive {
        let options = Drive::options().ledger(ledger);
        options.open(self.image().as_path()).unwrap()
    }

    /// The drive as its client opens it.
    fn open(&self) -> Drive {
        self.open_with(self.ledger())
    }

    fn put(&self, register: &str, message: i64) {
        let sample = self.client.encrypt(message).unwrap();
        let drive = self.open();
        drive
            .wait(drive.session().put_sample(vr(register), &sample))
            .unwrap();
        drive.close().unwrap();
    }

    fn get(&self, register: &str) -> Result<i64, SessionError> {
        let drive = self.open();
        let got = drive.wait(drive.session().get_sample(vr(register)));
        drive.close().unwrap();
        Ok(self.client.decrypt(&got?.ciphertext).unwrap())
    }

    fn fault(&self, register: &str) -> LedgerFault {
        match self.get(register) {
            Err(SessionError::Untrusted { vr: found, source }) => {
                assert_eq!(found, vr(register));
                source
            }
            other => panic!("{other:?}"),
        }
    }

    /// Puts an object into a register behind the client's back, under a name that pleases.
    fn plant(&self, register: &str, name: &str, sc: ScMetadata, data: &[u8]) {
        let drive = Drive::open(self.image().as_path()).unwrap();
        let store = drive.session().store().clone();
        drive.wait(async {
            let blob = store.find_by_sc(vr(register)).pop().unwrap();
            let writer = store.writer_with_sc(blob.id, sc.size(), Some(sc));
            let mut writer = writer.await.unwrap().with_name(name.to_owned()).unwrap();
            writer.write(data).await.unwrap();
            writer.commit().await.unwrap();
        });
        drive.close().unwrap();
    }

    /// Name, metadata and content of a register, as an attacker sees them.
    fn stored(&self, register: &str) -> (String, ScMetadata, Vec<u8>) {
        let drive = Drive::open(self.image().as_path()).unwrap();
        let store = drive.session().store().clone();
        let found = drive.wait(async {
            let blob = store.find_by_sc(vr(register)).pop().unwrap();
            let read = store.read_blob(blob.id, &Progress::none()).await.unwrap();
            let sc = read.sc.unwrap().with_blocks(0);
            (blob.name, sc, read.data)
        });
        drive.close().unwrap();
        found
    }
}

fn of_register(sc: &ScMetadata, register: &str) -> ScMetadata {
    let mut bytes = sc.to_bytes();
    let other = ScMetadata::new(vr(register), sc.params(), sc.size()).unwrap();
    bytes[8..16].copy_from_slice(&other.to_bytes()[8..16]);
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    ScMetadata::from_bytes(&bytes).unwrap().unwrap()
}

#[test]
fn what_was_put_comes_back_also_without_the_ledger_file() {
    let place = Place::new();
    place.put("cor:0:1", 3);
    place.put("cor:0:1", -2);
    place.put("cor:0:2", 1);
    assert_eq!(place.get("cor:0:1").unwrap(), -2);
    assert_eq!(place.get("cor:0:2").unwrap(), 1);
    // Another machine of the same client goes on where this one stood, and this one follows.
    let here = fs::read(place.file()).unwrap();
    fs::remove_file(place.file()).unwrap();
    assert_eq!(place.get("cor:0:1").unwrap(), -2);
    place.put("cor:0:1", 2);
    let (name, sc, data) = place.stored("cor:0:1");
    place.put("cor:0:1", 1);
    fs::write(place.file(), here).unwrap();
    assert_eq!(place.get("cor:0:1").unwrap(), 1);
    // What it has followed counts from then on.
    place.plant("cor:0:1", &name, sc, &data);
    let rolled_back = LedgerFault::RolledBack {
        found: 3,
        newest: 4,
    };
    assert_eq!(place.fault("cor:0:1"), rolled_back);
}

#[test]
fn two_processes_share_a_ledger() {
    let place = Place::new();
    place.put("cor:0:1", 3);
    // Opened before the other process puts.
    let early = place.ledger();
    place.put("cor:0:1", -2);
    let (name, sc, data) = place.stored("cor:0:1");
    place.put("cor:0:1", 1);
    let drive = place.open_with(early);
    let sample = place.client.encrypt(2).unwrap();
    drive
        .wait(drive.session().put_sample(vr("cor:0:2"), &sample))
        .unwrap();
    drive.close().unwrap();
    place.plant("cor:0:1", &name, sc, &data);
    let rolled_back = LedgerFault::RolledBack {
        found: 2,
        newest: 3,
    };
    assert_eq!(place.fault("cor:0:1"), rolled_back);
    assert_eq!(place.get("cor:0:2").unwrap(), 2);
}

#[test]
fn replayed_and_rolled_back_samples_are_noticed() {
    let place = Place::new();
    place.put("cor:0:1", 3);
    let (name, sc, data) = place.stored("cor:0:1");
    let whole_image = fs::read(place.image()).unwrap();
    place.put("cor:0:1", -2);
    let rolled_back = LedgerFault::RolledBack {
        found: 1,
        newest: 2,
    };
    place.plant("cor:0:1", &name, sc, &data);
    assert_eq!(place.fault("cor:0:1"), rolled_back);
    fs::write(place.image(), whole_image).unwrap();
    assert_eq!(place.fault("cor:0:1"), rolled_back);
    // What only the key is there to notice, it does not.
    fs::remove_file(place.file()).unwrap();
    assert_eq!(place.get("cor:0:1").unwrap(), 3);
}

#[test]
fn a_deleted_sample_does_not_come_back() {
    let place = Place::new();
    place.put("cor:0:1", 3);
    let image = fs::read(place.image()).unwrap();
    let drive = place.open();
    drive.wait(drive.session().delete(vr("cor:0:1"))).unwrap();
    drive.close().unwrap();
    fs::write(place.image(), image).unwrap();
    assert_eq!(place.fault("cor:0:1"), LedgerFault::Gone { found: 1 });
}

#[test]
fn swapped_samples_are_noticed_even_without_the_ledger_file() {
    let place = Place::new();
    place.put("cor:0:1", 3);
    place.put("cor:0:2", -2);
    let (first, _, _) = place.stored("cor:0:1");
    let (second, sc, data) = place.stored("cor:0:2");
    for name in [second.clone(), second.replace("cor:0:2", "cor:0:1"), first] {
        place.plant("cor:0:1", &name, of_register(&sc, "cor:0:1"), &data);
        assert_eq!(place.fault("cor:0:1"), LedgerFault::Changed);
        let ledger = fs::read(place.file()).unwrap();
        fs::remove_file(place.file()).unwrap();
        assert_eq!(place.fault("cor:0:1"), LedgerFault::Changed);
        fs::write(place.file(), ledger).unwrap();
    }
}

#[test]
fn planted_samples_are_noticed() {
    let place = Place::new();
    place.put("cor:0:1", 3);
    let (name, sc, data) = place.stored("cor:0:1");
    // A plaintext: no mask.
    let mut trivial = data.clone();
    let mask = 8 * TINY.lwe_dimension;
    trivial[..mask].fill(0);
    // A sample of another client, with its own tag and with ours.
    let other = ClientKey::generate(&TINY, &mut Csprng::from_os().unwrap());
    let theirs = other.encrypt(3).unwrap();
    let their_sc = sample_metadata(vr("cor:0:1"), &theirs).unwrap();
    // Ours without its figures of noise, and as a result.
    for (sc, data, fault) in [
        (sc, &trivial[..], LedgerFault::Changed),
        (their_sc, theirs.sample(), LedgerFault::Changed),
        (sc, theirs.sample(), LedgerFault::Changed),
        (sc.with_noise(None, None), &data, LedgerFault::Changed),
        (sc.with_noise(Some(-9.0), None), &data, LedgerFault::Changed),
        (sc.with_computed(true), &data, LedgerFault::UnknownResult),
    ] {
        place.plant("cor:0:1", &name, sc, data);
        assert_eq!(place.fault("cor:0:1"), fault, "{sc:?}");
    }
    place.plant("cor:0:1", &name, sc, &data);
    assert_eq!(place.get("cor:0:1").unwrap(), 3);
}

/// Runs the program on x and y with the ledger.
fn run(place: &Place, x: i64, y: i64) -> i64 {
    let drive = place.open();
    drive.load().unwrap();
    let [x, y] = [x, y].map(|message| place.client.encrypt(message).unwrap());
    let outputs = drive.run(PROGRAM, &[("x", &x), ("y", &y)]).unwrap();
    drive.close().unwrap();
    place.client.decrypt(&outputs["y"]).unwrap()
}

#[test]
fn results_are_bound_to_program_and_inputs() {
    let place = Place::new();
    let drive = place.open();
    drive.put_keys(&place.client).unwrap();
    drive.close().unwrap();
    assert_eq!(run(&place, 1, 2), 4);
    assert_eq!(place.get("cow:0:2").unwrap(), 4);
    let (name, sc, data) = place.stored("cow:0:2");
    assert!(sc.computed());
    assert_eq!(run(&place, -1, 2), 2);
    assert_eq!(place.get("cow:0:2").unwrap(), 2);
    {
        let ledger = place.ledger();
        let ledger = ledger.lock().unwrap();
        let store = Drive::open(place.image().as_path()).unwrap();
        let store = store.session().store().uuid();
        let origin = ledger.entry(store, vr("cow:0:2")).unwrap().origin.clone();
        let origin = origin.unwrap();
        let versions = [("tv:0:0", 2), ("cor:0:1", 2), ("cow:0:2", 2)];
        let versions = versions.map(|(register, version)| (vr(register).into(), version));
        assert_eq!(origin.inputs, versions);
    }
    // The result of the earlier run, and one that no run gave.
    place.plant("cow:0:2", &name, sc, &data);
    assert_eq!(place.fault("cow:0:2"), LedgerFault::UnknownResult);
    // Another program in the place of ours is noticed before it gets the samples.
    let drive = Drive::open(place.image().as_path()).unwrap();
    let other = PROGRAM.replace("homadd", "homsub");
    drive.install(&TINY, &other).unwrap();
    drive.close().unwrap();
    let drive = place.open();
    assert_eq!(
        loaded(&drive),
        Err((vr("cow:0:2"), LedgerFault::UnknownResult))
    );
    let y = place.client.encrypt(1).unwrap();
    let call = drive.wait(drive.session().trigger(vr("cow:0:2"), Some(&y)));
    assert_eq!(
        fault(call.map(drop)),
        Err((vr("prg:0:0"), LedgerFault::Changed))
    );
}

/// What cannot be trusted, and why.
fn fault(result: Result<(), SessionError>) -> Result<(), (VrNumber, LedgerFault)> {
    result.map_err(|error| match error {
        SessionError::Untrusted { vr, source } => (vr, source),
        other => panic!("{other}"),
    })
}

fn loaded(drive: &Drive) -> Result<(), (VrNumber, LedgerFault)> {
    let session = drive.session();
    fault(drive.wait(session.load(0, &Progress::none())).map(drop))
}

#[test]
fn keys_and_operands_are_checked_when_they_are_loaded() {
    let place = Place::new();
    let drive = place.open();
    drive.put_keys(&place.client).unwrap();
    drive.install(&TINY, PROGRAM).unwrap();
    drive.close().unwrap();
    place.put("cor:0:1", 3);
    let first = place.stored("cor:0:1");
    place.put("cor:0:1", 2);
    loaded(&place.open()).unwrap();
    // Other keys of the same client, an earlier operand, another function.
    let other = Place {
        folder: tempfile::tempdir().unwrap(),
        client: place.client.clone(),
    };
    let size = FormatOptions {
        size: 64 << 20,
        swap: 16 << 20,
        ..FormatOptions::default()
    };
    let drive = Drive::create(other.image(), size).unwrap();
    drive.put_keys(&place.client).unwrap();
    drive
        .install(&TINY, &PROGRAM.replace("x + 1", "x + 2"))
        .unwrap();
    drive.close().unwrap();
    let rolled_back = LedgerFault::RolledBack {
        found: 1,
        newest: 2,
    };
    let bootstrapping = "key:0:1";
    for (register, (name, sc, data), expected) in [
        ("cor:0:1", first, rolled_back),
        (
            bootstrapping,
            other.stored(bootstrapping),
            LedgerFault::Changed,
        ),
        ("tv:0:0", other.stored("tv:0:0"), LedgerFault::Changed),
    ] {
        let ours = place.stored(register);
        place.plant(register, &name, sc, &data);
        assert_eq!(loaded(&place.open()), Err((vr(register), expected)));
        place.plant(register, &ours.0, ours.1, &ours.2);
        loaded(&place.open()).unwrap();
    }
}

#[test]
fn what_the_drive_states_of_operands_does_not_count() {
    let place = Place::new();
    let drive = place.open();
    drive.put_keys(&place.client).unwrap();
    drive.install(&TINY, PROGRAM).unwrap();
    drive.close().unwrap();
    let trigger = || {
        let drive = place.open();
        drive.load().unwrap();
        let y = place.client.encrypt(1).unwrap();
        let run = drive.wait(drive.session().trigger(vr("cow:0:2"), Some(&y)));
        drive.close().unwrap();
        run
    };
    // An operand that the ledger does not know: nothing is known of the result either.
    let x = place.client.encrypt(1).unwrap();
    let drive = Drive::open(place.image().as_path()).unwrap();
    drive
        .wait(drive.session().put_sample(vr("cor:0:1"), &x))
        .unwrap();
    drive.close().unwrap();
    let result = trigger().unwrap().0.ciphertext;
    assert!(result.noise().log2_failure() > -1e-6);
    assert!(place.client.decrypt(&result).is_err());
    // One that is as it was put.
    place.put("cor:0:1", 1);
    let honest = trigger().unwrap().0.ciphertext;
    assert_eq!(place.client.decrypt(&honest).unwrap(), 3);
    // Records of another version and of less noise: noticed before anything is computed.
    let (name, sc, data) = place.stored("cor:0:1");
    let small = sc.with_noise(Some(-60.0), None);
    for (name, sc, expected) in [
        (name.clone(), small, LedgerFault::Changed),
        (
            name.replacen(" 1 ", " 0 ", 1),
            sc,
            LedgerFault::RolledBack {
                found: 0,
                newest: 1,
            },
        ),
        ("mine".to_owned(), sc, LedgerFault::Changed),
    ] {
        place.plant("cor:0:1", &name, sc, &data);
        let drive = place.open();
        let y = place.client.encrypt(1).unwrap();
        let run = drive.wait(drive.session().trigger(vr("cow:0:2"), Some(&y)));
        assert_eq!(
            fault(run.map(drop)),
            Err((vr("cor:0:1"), expected)),
            "{name} {sc:?}"
        );
        drive.close().unwrap();
    }
}

#[test]
fn a_version_is_given_away_before_the_drive_gets_its_object() {
    let place = Place::new();
    let image = fs::read(place.image()).unwrap();
    // The ledger's file as it stands when the drive gets the object.
    let (file, copy) = (place.file(), place.folder.path().join("copy"));
    let copied = copy.clone();
    let options = Drive::options()
        .ledger(place.ledger())
        .wrap(move |controller| {
            let (file, copy) = (file.clone(), copied.clone());
            Arc::new(Watching {
                controller,
                look: Box::new(move || {
                    let _ = fs::copy(&file, &copy);
                }),
            }) as Arc<dyn Controller>
        });
    let drive = options.open(place.image().as_path()).unwrap();
    let x = place.client.encrypt(1).unwrap();
    drive
        .wait(drive.session().put_sample(vr("cor:0:1"), &x))
        .unwrap();
    let interrupted = fs::read(&copy).unwrap();
    drive.close().unwrap();
    // The client died before it entered the object. It finds it when it looks again; unless the drive hides it.
    fs::write(place.file(), &interrupted).unwrap();
    assert_eq!(place.get("cor:0:1").unwrap(), 1);
    fs::write(place.file(), &interrupted).unwrap();
    let stored = place.stored("cor:0:1");
    fs::write(place.image(), image).unwrap();
    place.put("cor:0:1", 2);
    let (name, _, _) = place.stored("cor:0:1");
    assert!(name.starts_with("cor:0:1 2 "), "{name}");
    place.plant("cor:0:1", &stored.0, stored.1, &stored.2);
    let rolled_back = LedgerFault::RolledBack {
        found: 1,
        newest: 2,
    };
    assert_eq!(place.fault("cor:0:1"), rolled_back);
}

#[test]
fn another_store_in_the_place_of_one_is_noticed() {
    let (here, there) = (Place::new(), Place::new());
    here.put("cor:0:1", 3);
    fs::copy(there.image(), here.image()).unwrap();
    let options = Drive::options().ledger(here.ledger());
    let refused = options.open(here.image().as_path()).err().unwrap();
    assert!(
        matches!(refused, DriveError::OtherStore { .. }),
        "{refused}"
    );
    // Nor by another way to write the path; unless its client says so, once.
    let roundabout = here.folder.path().join(".").join("drive.img");
    assert!(options.open(roundabout.as_path()).is_err());
    options
        .clone()
        .new_store()
        .open(here.image().as_path())
        .unwrap();
    options.open(here.image().as_path()).unwrap();
    assert!(matches!(here.get("cor:0:1"), Err(SessionError::Missing(_))));
}

#[test]
fn a_ledger_is_of_one_client_key_and_shows_changes() {
    let place = Place::new();
    place.put("cor:0:1", 3);
    let opened = |client: &ClientKey, path: &Path| Ledger::open(client, path).map(drop);
    let other = ClientKey::generate(&TINY, &mut Csprng::from_os().unwrap());
    let refused = |result| matches!(result, Err(LedgerError::NotOurs(_)));
    assert!(refused(opened(&other, &place.file())));
    let text = fs::read_to_string(place.file()).unwrap();
    assert!(text.starts_with("toroid ledger 4\n"));
    let changes = [
        text.replace(" 1 ", " 2 "),
        text.replace("cor:0:1", "cor:0:2"),
        text[..text.len() - 1].to_owned(),
        text.lines().take(1).collect(),
        format!("{text}\n"),
        String::new(),
        "é".to_owned(),
    ];
    for change in changes {
        fs::write(place.file(), &change).unwrap();
        assert!(refused(opened(&place.client, &place.file())), "{change:?}");
    }
    fs::write(place.file(), &text).unwrap();
    opened(&place.client, &place.file()).unwrap();
    fs::write(place.file(), [0xff]).unwrap();
    assert!(refused(opened(&place.client, &place.file())));
}

/// A drive that changes what it says of results.
struct Lying {
    controller: Arc<dyn Controller>,
    lie: fn(ScMetadata) -> ScMetadata,
}

impl Controller for Lying {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        let completion = self.controller.submit(request);
        Box::pin(async move {
            let mut response = completion.await;
            let (blocks, _) = response.metadata.as_chunks_mut();
            for block in blocks {
                if let Ok(Some(sc)) = ScMetadata::from_bytes(block)
                    && sc.computed()
                {
                    *block = (self.lie)(sc).to_bytes();
                }
            }
            response
        })
    }

    fn info(&self) -> &ControllerInfo {
        self.controller.info()
    }
}

/// A drive whose client looks around at each command.
struct Watching {
    controller: Arc<dyn Controller>,
    look: Box<dyn Fn() + Send + Sync>,
}

impl Controller for Watching {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        (self.look)();
        self.controller.submit(request)
    }

    fn info(&self) -> &ControllerInfo {
        self.controller.info()
    }
}

/// What a run of the program gives whose drive lies.
fn run_with(lie: fn(ScMetadata) -> ScMetadata) -> Result<StoredSample, SessionError> {
    let place = Place::new();
    let options = Drive::options()
        .wrap(move |controller| Arc::new(Lying { controller, lie }) as Arc<dyn Controller>);
    let drive = options.open(place.image().as_path()).unwrap();
    drive.put_keys(&place.client).unwrap();
    drive.install(&TINY, PROGRAM).unwrap();
    let [x, y] = [1, 2].map(|message| place.client.encrypt(message).unwrap());
    let session = drive.session();
    drive.wait(session.put_sample(vr("cor:0:1"), &x)).unwrap();
    let run = drive.wait(session.trigger(vr("cow:0:2"), Some(&y)));
    // The result of that run stands there; nothing triggers another.
    let again = drive.wait(session.trigger(vr("cow:0:2"), None));
    assert!(
        matches!(again, Err(SessionError::NotComputed(_))),
        "{again:?}"
    );
    run.map(|(result, _)| result)
}

#[test]
fn a_result_of_a_run_has_the_noise_that_follows_from_the_program() {
    let honest = run_with(|sc| sc).unwrap().ciphertext;
    let lying = run_with(|sc| sc.with_noise(Some(-50.0), Some(-1000.0))).unwrap();
    let lying = lying.ciphertext;
    assert!(lying.noise().variance() > 0.99 * honest.noise().variance());
    assert!((lying.noise().log2_failure() - honest.noise().log2_failure()).abs() < 0.1);
}

#[test]
fn a_result_that_is_read_again_has_the_noise_that_follows_from_the_program() {
    let place = Place::new();
    let lie = |sc: ScMetadata| sc.with_noise(Some(-50.0), Some(-1000.0));
    let options = Drive::options()
        .ledger(place.ledger())
        .wrap(move |controller| Arc::new(Lying { controller, lie }) as Arc<dyn Controller>);
    let drive = options.open(place.image().as_path()).unwrap();
    drive.put_keys(&place.client).unwrap();
    let [x, y] = [1, 2].map(|message| place.client.encrypt(message).unwrap());
    let outputs = drive.run(PROGRAM, &[("x", &x), ("y", &y)]).unwrap();
    let again = drive.wait(drive.session().get_sample(vr("cow:0:2")));
    let (first, again) = (&outputs["y"], again.unwrap().ciphertext);
    assert!(again.noise().variance() > 0.99 * first.noise().variance());
    assert!((again.noise().log2_failure() - first.noise().log2_failure()).abs() < 0.1);
    assert!(again.noise().log2_failure() > -1000.0);
}

#[test]
fn a_result_that_is_put_again_shares_its_noise_with_others() {
    let place = Place::new();
    let drive = Drive::open(place.image().as_path()).unwrap();
    drive.put_keys(&place.client).unwrap();
    let [x, y] = [1, 2].map(|message| place.client.encrypt(message).unwrap());
    let outputs = drive.run(PROGRAM, &[("x", &x), ("y", &y)]).unwrap();
    let one = &outputs["y"];
    let three = &(one + one) + one;
    // By way of files, which keep nothing but the figures.
    let [one, three] = [one, &three].map(|c| Ciphertext::from_bytes(&c.to_bytes()).unwrap());
    let sum = "
        .reg x = cor:1
        .reg y = cow:2
            homadd y, x
            return y
    ";
    let outputs = drive.run(sum, &[("x", &one), ("y", &three)]).unwrap();
    let ratio = outputs["y"].noise().variance() / one.noise().variance();
    assert!((ratio - 16.0).abs() < 0.01, "{ratio}");
    // So the drive states it, too.
    let stored = drive
        .wait(drive.session().get_sample(vr("cow:0:2")))
        .unwrap();
    let ratio = stored.ciphertext.noise().variance() / one.noise().variance();
    assert!((ratio - 16.0).abs() < 0.01, "{ratio}");
}

#[test]
fn a_result_that_states_no_client_key_is_refused() {
    let error = run_with(|sc| sc.with_key_tag([0; 12])).unwrap_err();
    assert!(error.to_string().contains("states none"), "{error}");
    let error = run_with(|sc| sc.with_key_tag([7; 12])).unwrap_err();
    assert!(error.to_string().contains("key"), "{error}");
}
