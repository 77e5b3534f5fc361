//! Results that are computed again.
#![cfg(feature = "image")]
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use toroid_client::drive::{PUBLIC_KEY_FILES, Verifier};
use toroid_client::prelude::*;
use toroid_drive::image::FormatOptions;
use toroid_engine::backend::cpu::CpuBackend;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::seeded::KeyForm;
use toroid_tfhe::serialize::{Header, Kind, ObjectWriter};

const PROGRAM: &str = "
    .reg x = cor:1
    .reg y = cow:2
    .tv  f = x + 1
        homadd    y, x
        bootstrap f, y
        return    y
";

fn write_key_files(folder: &Path, client: &ClientKey) {
    let kinds = [Kind::SeededBootstrappingKey, Kind::SeededKeySwitchingKey];
    for (name, kind) in PUBLIC_KEY_FILES.into_iter().zip(kinds) {
        let header = Header::new(kind, client.params(), *client.tag());
        let file = File::create(folder.join(name)).unwrap();
        let mut object = ObjectWriter::new(file, &header).unwrap();
        let mut rng = Csprng::from_os().unwrap();
        let (form, quiet) = (KeyForm::Seeded, Progress::none());
        let mut sink = |bytes: &[u8]| object.write(bytes);
        match kind {
            Kind::SeededBootstrappingKey => {
                client.bootstrapping_key(form, &mut rng, &quiet, &mut sink)
            }
            _ => client.key_switching_key(form, &mut rng, &quiet, &mut sink),
        }
        .unwrap();
        object.finish().unwrap();
    }
}

#[test]
fn a_drive_that_runs_another_program_or_on_other_inputs_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let client = ClientKey::generate(&TINY, &mut Csprng::from_os().unwrap());
    write_key_files(folder.path(), &client);
    let image = folder.path().join("drive.img");
    Drive::create(&image, FormatOptions::default()).unwrap();
    let verifier = Arc::new(Verifier::new(folder.path(), 0).unwrap());
    let [x, y] = [1, 2].map(|message| client.encrypt(message).unwrap());
    let inputs = [("x", &x), ("y", &y)];
    for (arithmetic, honest) in [(ArithmeticKind::Ntt, true), (ArithmeticKind::Fft, false)] {
        let options = Drive::options().backend(Arc::new(CpuBackend::new(arithmetic)));
        let drive = options
            .verifier(Arc::clone(&verifier))
            .open(image.as_path())
            .unwrap();
        drive.put_key_files(folder.path()).unwrap();
        match drive.run(PROGRAM, &inputs) {
            Ok(outputs) => assert!(honest && client.decrypt(&outputs["y"]).unwrap() == 4),
            Err(DriveError::WrongResult(name)) => assert!(!honest && name == "y"),
            Err(error) => panic!("{error}"),
        }
        drive.close().unwrap();
    }
    // Another program behind the client's back, another input, another result that means the same.
    let options = Drive::options().backend(Arc::new(CpuBackend::new(ArithmeticKind::Ntt)));
    let drive = options.open(image.as_path()).unwrap();
    drive.load().unwrap();
    let program = drive.install(&TINY, PROGRAM).unwrap();
    let results = drive.call(&program, &inputs).unwrap();
    assert!(verifier.check(&program, &inputs, &results).unwrap());
    let other = drive
        .install(&TINY, &PROGRAM.replace("homadd", "homsub"))
        .unwrap();
    let wrong = drive.call(&other, &inputs).unwrap();
    let noticed = |results: &Outputs| {
        let checked = verifier.check(&program, &inputs, results);
        matches!(checked, Err(DriveError::WrongResult(_)))
    };
    assert!(noticed(&wrong));
    let again = client.encrypt(1).unwrap();
    let program = drive.install(&TINY, PROGRAM).unwrap();
    let wrong = drive.call(&program, &[("x", &again), ("y", &y)]).unwrap();
    assert_eq!(client.decrypt(&wrong["y"]).unwrap(), 4);
    assert!(noticed(&wrong));
    assert!(noticed(&Outputs::from([(
        "y".to_owned(),
        client.encrypt(4).unwrap()
    )])));
    assert!(noticed(&Outputs::new()));
}

#[test]
fn a_share_is_picked_at_random() {
    let folder = tempfile::tempdir().unwrap();
    let client = ClientKey::generate(&TINY, &mut Csprng::from_os().unwrap());
    write_key_files(folder.path(), &client);
    let program = toroid_isa::assemble(PROGRAM).unwrap();
    let [x, y] = [1, 2].map(|message| client.encrypt(message).unwrap());
    let inputs = [("x", &x), ("y", &y)];
    let wrong = Outputs::new();
    let verifier = Verifier::new(folder.path(), 0).unwrap().with_share(0.0);
    assert!(!verifier.check(&program, &inputs, &wrong).unwrap());
    let mut verifier = verifier;
    for no_share in [f64::NAN, -1.0, 2.0] {
        verifier = verifier.with_share(no_share);
        assert!(verifier.check(&program, &inputs, &wrong).is_err());
    }
    let verifier = verifier.with_share(0.5);
    let checks = (0..60).map(|_| verifier.check(&program, &inputs, &wrong));
    let caught = checks.filter(Result::is_err);
    // Outside with a probability of 2^-28.
    assert!((8..=52).contains(&caught.count()));
}
