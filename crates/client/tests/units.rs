//! Programs over columns, unit of rows by unit of rows: the rows of the result are those of one run, whatever the units, and after whatever
//! interruption.
#![cfg(feature = "image")]
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use toroid_client::blob::BlobError;
use toroid_client::columns::{
    ColumnError, EncryptedRows, MapPlan, MapReport, MapRequest, Reason, Route, Way,
};
use toroid_client::prelude::*;
use toroid_client::session::{Session, SessionError};
use toroid_drive::image::{FormatOptions, Image};
use toroid_drive::{Computational, ComputationalConfig, DriveConfig};
use toroid_engine::backend::cpu::CpuBackend;
use toroid_nvme::Controller;
use toroid_rns::ring_set::TINY_RING;
use toroid_task::{CancelToken, Progress};
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::params::{ParamSet, TINY_WOPBS};

/// What the torus has of 4-bit messages.
const TORUS: i64 = 32;

/// A program on the columns x and y, and what its result is.
struct Case {
    body: &'static str,
    meaning: fn(&[i64], &[i64]) -> Vec<i64>,
}

fn f(m: i64) -> i64 {
    (m * 5 + 3) % 16
}

fn g(m: i64) -> i64 {
    15 - m
}

fn total(rows: impl IntoIterator<Item = i64>) -> i64 {
    rows.into_iter().sum::<i64>().rem_euclid(TORUS)
}

/// Two results of each row, side by side.
const TWO: Case = Case {
    body: "bootstrap f, x\nbootstrap g, y\njoin x, y, 1",
    meaning: |x, y| x.iter().zip(y).flat_map(|(x, y)| [f(*x), g(*y)]).collect(),
};

/// Three results of each row, and the last one twice: the number of results is a power of two.
const THREE: Case = Case {
    body: "mov z, x\nhomadd z, y\nbootstrap f, x\nmov last, z\njoin x, y, 1\njoin z, last, 1\njoin x, z, 2",
    meaning: |x, y| {
        let rows = x.iter().zip(y);
        rows.flat_map(|(x, y)| [f(*x), *y, x + y, x + y]).collect()
    },
};

/// Two sums of every three rows, the last ones of those that are left.
const GROUPS: Case = Case {
    body: "bootstrap f, x\nhomsum x, 3\nhomsum y, 3\njoin x, y, 1",
    meaning: |x, y| {
        let groups = x.chunks(3).zip(y.chunks(3));
        groups
            .flat_map(|(x, y)| [total(x.iter().map(|x| f(*x))), total(y.iter().copied())])
            .collect()
    },
};

/// Sums of every three of the rows that stand side by side, so that some have rows of x and y.
const ACROSS: Case = Case {
    body: "join x, y, 1\nhomsum x, 3",
    meaning: |x, y| {
        let rows: Vec<i64> = x.iter().zip(y).flat_map(|(x, y)| [*x, *y]).collect();
        rows.chunks(3)
            .map(|rows| total(rows.iter().copied()))
            .collect()
    },
};

/// The halves of every four rows, exchanged.
const EXCHANGED: Case = Case {
    body: "mov y, x\nlower x, 2\nupper y, 2\njoin y, x, 2\nmov x, y",
    meaning: |x, _| {
        let groups = x.chunks(4);
        groups
            .flat_map(|rows| [&rows[2..], &rows[..2]].concat())
            .collect()
    },
};

/// A sum of all rows.
const TOTAL: Case = Case {
    body: "bootstrap f, x\nhomsum x, 0",
    meaning: |x, _| vec![total(x.iter().map(|x| f(*x)))],
};

/// Four sums of all rows, one of them twice.
const TOTALS: Case = Case {
    body: "mov z, x\nhomadd z, y\nbootstrap f, x\nhomsum x, 0\nhomsum y, 0\nhomsum z, 0\nmov last, z\n\
           join x, y, 1\njoin z, last, 1\njoin x, z, 2",
    meaning: |x, y| {
        let (all_x, all_y) = (total(x.iter().copied()), total(y.iter().copied()));
        let both = (all_x + all_y) % TORUS;
        vec![total(x.iter().map(|x| f(*x))), all_y, both, both]
    },
};

struct Place {
    folder: tempfile::TempDir,
    client: ClientKey,
    x: Vec<i64>,
    y: Vec<i64>,
}

impl Place {
    /// A drive with columns x and y of so many rows.
    fn new(params: &'static ParamSet, rows: i64) -> Place {
        let folder = tempfile::tempdir().unwrap();
        let client = ClientKey::generate(params, &mut Csprng::from_os().unwrap());
        let options = FormatOptions {
            size: 64 << 20,
            swap: 16 << 20,
            ..FormatOptions::default()
        };
        let image = folder.path().join("drive.img");
        Drive::create(&image, options).unwrap();
        let drive = Drive::open(image.as_path()).unwrap();
        drive.put_keys(&client).unwrap();
        let x: Vec<i64> = (0..rows).map(|row| row * 7 % 16).collect();
        let y: Vec<i64> = (0..rows).map(|row| (row * 3 + 1) % 16).collect();
        let encoding = Encoding::new(4, false).unwrap();
        let none = Progress::none();
        for (name, numbers) in [("x", &x), ("y", &y)] {
            let rows = EncryptedRows::encrypt(&client, encoding, numbers, &none).unwrap();
            let created = drive.session().create_column(name, 0, &rows, &none);
            drive.wait(created).unwrap();
        }
        drive.close().unwrap();
        Place {
            folder,
            client,
            x,
            y,
        }
    }

    /// The drive in a file of this name, with its keys in place.
    fn open(&self, name: &str) -> Drive {
        let drive = Drive::open(self.folder.path().join(name).as_path()).unwrap();
        let none = Progress::none();
        drive.wait(drive.session().load(0, &none)).unwrap();
        drive
    }

    fn expected(&self, case: &Case) -> Vec<i64> {
        (case.meaning)(&self.x, &self.y)
    }
}

/// Does something with a request to run the program with this output, in units of so many rows.
fn with<T>(
    case: &Case,
    output: &str,
    unit: Option<u64>,
    call: impl FnOnce(&MapRequest<'_>) -> T,
) -> T {
    let text = format!(
        ".reg x = cor:0\n.reg y = cor:1\n.reg z = cor:2\n.reg last = cor:3\n\
         .tv f unsigned in=4 out=4 = (x * 5 + 3) % 16\n.tv g unsigned in=4 out=4 = 15 - x\n{}\nreturn x\n",
        case.body
    );
    let program = toroid_isa::assemble(&text).unwrap();
    let inputs = ["x", "y"].map(|name| (name, name));
    call(&MapRequest {
        program: &program,
        inputs: &inputs,
        rows: None,
        output,
        replace: false,
        unit,
        way: Way::Samples,
        form: None,
        kept: None,
    })
}

fn plan(drive: &Drive, case: &Case, output: &str, unit: Option<u64>) -> MapPlan {
    let plan = with(case, output, unit, |request| {
        drive.wait(drive.session().plan_map(request))
    });
    plan.unwrap()
}

fn run(
    drive: &Drive,
    (case, output, unit): (&Case, &str, Option<u64>),
    progress: &Progress,
) -> Result<MapReport, SessionError> {
    with(case, output, unit, |request| {
        drive.wait(drive.session().map(request, progress))
    })
}

fn rows(drive: &Drive, client: &ClientKey, output: &str) -> Vec<i64> {
    let none = Progress::none();
    let read = drive.wait(drive.session().read_rows(output, None, &none));
    read.unwrap().decrypt(client).unwrap()
}

/// One command, and units of several sizes, of which the last has the rest.
fn check_units(params: &'static ParamSet) {
    let place = Place::new(params, 52);
    let drive = place.open("drive.img");
    let cases = [
        ("two", &TWO, 1),
        ("three", &THREE, 1),
        ("groups", &GROUPS, 3),
        ("across", &ACROSS, 3),
        ("exchanged", &EXCHANGED, 4),
        ("total", &TOTAL, 1),
        ("totals", &TOTALS, 1),
    ];
    for (name, case, step) in cases {
        for unit in [52, 24, 15, 5] {
            let output = format!("{name}.{unit}");
            let plan = plan(&drive, case, &output, Some(unit));
            let own = if unit == 52 {
                52
            } else {
                (unit / step).max(1) * step
            };
            assert_eq!(plan.commands, 52_u64.div_ceil(own), "{output}");
            let report = run(&drive, (case, &output, Some(unit)), &Progress::none()).unwrap();
            assert!(report.commands >= plan.commands, "{output}");
            assert_eq!(report.output.rows, plan.output_rows(), "{output}");
            let (stated, planned) = (report.output.log2_failure(), plan.log2_failure());
            assert!(
                stated <= planned + 0.01 + 1e-5 * planned.abs(),
                "{output}: {stated}, {planned} planned"
            );
            assert_eq!(
                rows(&drive, &place.client, &output),
                place.expected(case),
                "{output}"
            );
        }
    }
}

#[test]
fn units_leave_the_rows_of_one_run() {
    check_units(&TINY);
}

#[test]
fn units_leave_the_rows_of_one_run_packed() {
    check_units(&TINY_WOPBS);
}

/// A run is told to stop after so many units. Of the drive at that moment there is a copy, as of one whose process was killed.
fn stopped(place: &Place, case: &Case, units: u64) {
    const UNIT: u64 = 6;
    let drive = place.open("drive.img");
    let token = CancelToken::new();
    let (cancel, seen) = (token.clone(), Arc::new(AtomicU64::new(0)));
    let (of_run, folder) = (Arc::clone(&seen), place.folder.path().to_owned());
    let copy = move || std::fs::copy(folder.join("drive.img"), folder.join("killed.img")).unwrap();
    let progress = Progress::new(move |what, done, _| {
        if what == "map" {
            of_run.store(done, Ordering::Relaxed);
            if done == units * UNIT {
                copy();
                cancel.cancel();
            }
        }
    });
    let progress = progress.with_cancel(token);
    let output = format!("stopped.{units}");
    let ended = run(&drive, (case, &output, Some(UNIT)), &progress);
    let is_cancelled = matches!(ended, Err(SessionError::Blob(BlobError::Cancelled)));
    assert!(is_cancelled, "{ended:?}");
    assert_eq!(seen.load(Ordering::Relaxed), units * UNIT);
    // Neither does anybody take it for a whole one, nor is it computed twice.
    let of_output = Case {
        body: "homadd x, y",
        meaning: |_, _| Vec::new(),
    };
    drive.close().unwrap();
    for name in ["drive.img", "killed.img"] {
        let drive = place.open(name);
        let known = plan(&drive, case, &output, Some(UNIT));
        assert_eq!(
            (known.done, known.complete),
            (units * UNIT, false),
            "{name}"
        );
        let inputs = [("x", output.as_str()), ("y", "y")];
        let unfinished = with(&of_output, "other", None, |request| {
            let request = MapRequest {
                inputs: &inputs,
                ..request.clone()
            };
            drive.wait(drive.session().plan_map(&request))
        });
        let is_unfinished = matches!(
            unfinished,
            Err(SessionError::Column {
                source: ColumnError::Unfinished,
                ..
            })
        );
        assert!(is_unfinished, "{unfinished:?}");
        // The units may be others.
        let report = run(&drive, (case, &output, Some(9)), &Progress::none()).unwrap();
        assert_eq!(report.computed, report.rows - units * UNIT, "{name}");
        assert_eq!(
            rows(&drive, &place.client, &output),
            place.expected(case),
            "{name}"
        );
        let again = run(&drive, (case, &output, None), &Progress::none()).unwrap();
        assert_eq!((again.computed, again.commands), (0, 0), "{name}");
        drive.close().unwrap();
    }
}

#[test]
fn a_run_that_was_stopped_goes_on_behind_its_last_unit() {
    let place = Place::new(&TINY, 40);
    for (case, units) in [(&TWO, 1), (&THREE, 3), (&GROUPS, 2), (&TOTALS, 4)] {
        stopped(&place, case, units);
    }
}

#[test]
fn columns_that_one_command_has_no_room_for_run_in_several() {
    const ROWS: i64 = 2500;
    let place = Place::new(&TINY, ROWS);
    let drive = place.open("drive.img");
    let case = Case {
        body: "mov z, x\nhomadd z, y\nhomintadd x, 1\nmov last, z\njoin x, y, 1\njoin z, last, 1\njoin x, z, 2",
        meaning: |x, y| {
            let rows = x.iter().zip(y);
            rows.flat_map(|(x, y)| [x + 1, *y, x + y, x + y]).collect()
        },
    };
    let plan = plan(&drive, &case, "o", None);
    // A command has 2 MiB.
    let bytes = 4 * ROWS as u64 * TINY.lwe_bytes() as u64;
    assert!(
        bytes > 2 << 20 && plan.commands > bytes >> 21,
        "{}",
        plan.commands
    );
    let report = run(&drive, (&case, "o", None), &Progress::none()).unwrap();
    assert_eq!(
        (report.commands, report.output.rows),
        (plan.commands, plan.output_rows())
    );
    assert_eq!(rows(&drive, &place.client, "o"), place.expected(&case));
}

/// The result of a program on a range of rows.
fn part(drive: &Drive, case: &Case, rows: &Range<u64>) -> EncryptedRows {
    let none = Progress::none();
    let output = format!("rows {}..{}", rows.start, rows.end);
    with(case, &output, None, |request| {
        let request = MapRequest {
            rows: Some(rows.clone()),
            replace: true,
            ..request.clone()
        };
        drive.wait(drive.session().map(&request, &none)).unwrap();
        let read = drive.session().read_rows(&output, None, &none);
        drive.wait(read).unwrap()
    })
}

fn added(
    drive: &Drive,
    case: &Case,
    parts: &[(&EncryptedRows, u64)],
) -> Result<EncryptedRows, SessionError> {
    let none = Progress::none();
    with(case, "sum", None, |request| {
        drive.wait(drive.session().add_results(request, parts, &none))
    })
}

/// Sums of ranges of rows make the sum of all rows, in any order and nested in any way.
fn check_added(params: &'static ParamSet) {
    let place = Place::new(params, 52);
    let drive = place.open("drive.img");
    for case in [&TOTAL, &TOTALS] {
        let ranges = [21..52, 0..20, 20..21];
        let parts = ranges.each_ref().map(|rows| part(&drive, case, rows));
        let [(late, of_late), (early, of_early), (one, of_one)] =
            [0, 1, 2].map(|place| (&parts[place], ranges[place].end - ranges[place].start));
        let at_once = added(
            &drive,
            case,
            &[(late, of_late), (early, of_early), (one, of_one)],
        )
        .unwrap();
        let front = added(&drive, case, &[(early, of_early), (one, of_one)]).unwrap();
        let nested = added(
            &drive,
            case,
            &[(&front, of_early + of_one), (late, of_late)],
        )
        .unwrap();
        let of_one_run = part(&drive, case, &(0..52)).log2_failure();
        for sum in [&at_once, &nested] {
            assert_eq!(sum.decrypt(&place.client).unwrap(), place.expected(case));
            // Packing is of the same keys in all parts, so that their deviations add up.
            assert!(
                of_one_run - 1e-3 <= sum.log2_failure() && sum.log2_failure() < of_one_run / 2.0,
                "{}, and {of_one_run} of one run",
                sum.log2_failure()
            );
        }
        // Noise that a part states beyond that of the program is not lost.
        assert!(nested.log2_failure() >= at_once.log2_failure() - 1e-3);
    }
}

#[test]
fn results_of_ranges_add_up() {
    check_added(&TINY);
}

#[test]
fn results_of_ranges_add_up_packed() {
    check_added(&TINY_WOPBS);
}

#[test]
fn results_that_make_no_sum_are_refused() {
    let place = Place::new(&TINY, 12);
    let drive = place.open("drive.img");
    let [front, back] = [0..6, 6..12].map(|rows| part(&drive, &TOTAL, &rows));
    let is_mismatch = |sum: Result<EncryptedRows, SessionError>| {
        let source = match sum {
            Err(SessionError::Column { source, .. }) => source,
            other => panic!("{other:?}"),
        };
        assert!(matches!(source, ColumnError::Mismatch { .. }), "{source:?}");
    };
    assert!(added(&drive, &TOTAL, &[]).is_err());
    // A program that keeps what it computes of groups, or of rows, adds up no more than that.
    let groups = [0..6, 6..12].map(|rows| part(&drive, &GROUPS, &rows));
    is_mismatch(added(&drive, &GROUPS, &[(&groups[0], 6), (&groups[1], 6)]));
    // Results of another program have other rows.
    is_mismatch(added(&drive, &TOTALS, &[(&front, 6), (&back, 6)]));
    // Another client's results are not added to ours.
    let stranger = Place::new(&TINY, 12);
    let other = part(&stranger.open("drive.img"), &TOTAL, &(6..12));
    assert!(added(&drive, &TOTAL, &[(&front, 6), (&other, 6)]).is_err());
}

/// Runs of one session, several at a time, whose functions are partly the same. Each has a program of its own, and another one for sums.
#[test]
fn runs_of_one_session_leave_each_other_alone() {
    let place = Place::new(&TINY, 30);
    let drive = place.open("drive.img");
    let cases = [&TWO, &TOTALS, &GROUPS, &TOTAL];
    std::thread::scope(|scope| {
        for (thread, case) in cases.into_iter().enumerate() {
            let (drive, place) = (&drive, &place);
            scope.spawn(move || {
                for round in 0..4 {
                    let output = format!("{thread}.{round}");
                    run(drive, (case, &output, Some(10)), &Progress::none()).unwrap();
                    let found = rows(drive, &place.client, &output);
                    assert_eq!(found, place.expected(case), "{output}");
                }
            });
        }
    });
    // Nothing is left of them but their results.
    let blobs = drive.session().store().list();
    let functions = blobs.iter().filter(|blob| blob.name.starts_with("tv:"));
    assert_eq!(functions.count(), 0, "{blobs:?}");
    drive.close().unwrap();
}

/// Ciphertexts of a ring have no smaller units. Where they have no room with their result, the plan says so, and rows go sample by sample.
#[test]
fn ciphertexts_without_room_are_never_chosen() {
    const CASE: Case = Case {
        body: "homadd x, y\nbootstrap f, x",
        meaning: |x, y| x.iter().zip(y).map(|(x, y)| f(x + y)).collect(),
    };
    let place = Place::new(&TINY_WOPBS, 52);
    let none = Progress::none();
    let drive = place.open("drive.img");
    let session = drive.session();
    let ring = session.generate_ring_key(0, &place.client, &TINY_RING, &none);
    drive.wait(ring).unwrap();
    let conversion = session.generate_conversion_key(0, &place.client, &TINY_RING, &none);
    drive.wait(conversion).unwrap();
    drive.close().unwrap();

    let image = Image::open(&place.folder.path().join("drive.img")).unwrap();
    let backend = Arc::new(CpuBackend::new(ArithmeticKind::Fft));
    let drive = toroid_drive::Drive::open(image, DriveConfig::new(backend)).unwrap();
    let drive = Arc::new(drive);
    // Two pages for each of 16 programs.
    let mut config = ComputationalConfig::default();
    config.memories[0].1 = 16 * 2 * 4096;
    let inner = Arc::clone(&drive) as Arc<dyn Controller>;
    let attached = Computational::new(config)
        .and_then(|computational| computational.attach(inner, drive.own_controller()));
    let controller = Arc::new(attached.unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().build().unwrap();
    let session = runtime.block_on(Session::open(controller, 1)).unwrap();
    let plan = |way: Way| {
        with(&CASE, "o", None, |request| {
            let request = MapRequest {
                way,
                ..request.clone()
            };
            runtime.block_on(session.plan_map(&request))
        })
    };
    let Err(SessionError::Column { source, .. }) = plan(Way::Ring) else {
        panic!("two columns and their result fit two pages");
    };
    assert!(matches!(
        source,
        ColumnError::Memory {
            needed: 12288,
            room: 8192,
            ..
        }
    ));
    let chosen = plan(Way::Auto).unwrap();
    assert_eq!(chosen.route, Route::Samples);
    assert_eq!(chosen.reason, Reason::NoOther(source.to_string()));
}
