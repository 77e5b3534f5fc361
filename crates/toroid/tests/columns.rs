//! Columns from the command line: programs over them against a plain interpreter, kills, changes of rows, and what is refused.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;
mod serving;

use std::fmt::Write as _;
use std::fs;
use std::thread;
use std::time::Duration;

use common::Place;
use serving::{Numbers, Server};

/// What the torus has of 4-bit messages.
const TORUS: i64 = 32;

impl Place {
    fn column(&self, name: &str, numbers: &[i64], options: &str) {
        let mut text = String::new();
        for number in numbers {
            writeln!(text, "{number}").unwrap();
        }
        fs::write(self.path("numbers"), text).unwrap();
        self.ok(&format!("column put d.img {name} numbers {options}"));
    }

    fn rows(&self, name: &str, range: &str) -> Vec<i64> {
        let got = self.json(&format!("column get d.img {name} {range}"));
        let rows = got["rows"].as_array().unwrap().iter();
        rows.map(|row| row.as_i64().unwrap()).collect()
    }
}

/// An instruction on the registers x, y and s.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// One of the functions, of a register.
    Apply(usize, usize),
    Add(usize, usize),
    Sub(usize, usize),
    Times(usize, i64),
    Plus(usize, i64),
    Move(usize, usize),
    /// Sums of so many rows of x, at the end.
    Sum(usize),
}

const NAMES: [&str; 3] = ["x", "y", "s"];
/// Name, expression and meaning.
type Function = (&'static str, &'static str, fn(i64) -> i64);

const FUNCTIONS: [Function; 3] = [
    ("f", "(x * 5 + 3) % 16", |m| (m * 5 + 3) % 16),
    ("g", "x > 9 ? x - 9 : 0", |m| if m > 9 { m - 9 } else { 0 }),
    ("h", "15 - x", |m| 15 - m),
];

fn below(random: &mut Numbers, end: u64) -> usize {
    random.below(end) as usize
}

fn random_program(random: &mut Numbers) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..2 + random.below(4) {
        let (a, b) = (below(random, 2), below(random, 3));
        steps.push(match random.below(9) {
            0..4 => Step::Apply(below(random, 3), a),
            4 => Step::Add(a, b),
            // Columns that may be the same would leave nothing encrypted.
            5 => Step::Sub(a, 2),
            6 => Step::Times(a, [-2, -1, 2, 3][below(random, 4)]),
            7 => Step::Plus(a, random.below(18).cast_signed() - 9),
            // A column does not become a single sample, so that sums have rows.
            _ => Step::Move(a, 1 - a),
        });
    }
    steps.push(Step::Apply(0, 0));
    match random.below(4) {
        0 => steps.push(Step::Sum(0)),
        1 => steps.push(Step::Sum(2 + below(random, 5))),
        _ => {}
    }
    steps
}

fn text_of(steps: &[Step]) -> String {
    let mut text = ".reg x = cor:0\n.reg y = cor:1\n.reg s = cor:2\n".to_owned();
    for (name, expression, _) in FUNCTIONS {
        writeln!(text, ".tv {name} unsigned = {expression}").unwrap();
    }
    for step in steps {
        let n = |register: usize| NAMES[register];
        let line = match *step {
            Step::Apply(function, a) => format!("bootstrap {}, {}", FUNCTIONS[function].0, n(a)),
            Step::Add(a, b) => format!("homadd {}, {}", n(a), n(b)),
            Step::Sub(a, b) => format!("homsub {}, {}", n(a), n(b)),
            Step::Times(a, v) => format!("homintmult {}, {v}", n(a)),
            Step::Plus(a, v) => format!("homintadd {}, {v}", n(a)),
            Step::Move(a, b) => format!("mov {}, {}", n(a), n(b)),
            Step::Sum(g) => format!("homsum x, {g}"),
        };
        writeln!(text, "    {line}").unwrap();
    }
    text + "    return x\n"
}

/// What the program makes of plain numbers.
fn interpret(steps: &[Step], x: &[i64], y: &[i64], s: i64) -> Vec<i64> {
    let rows = x.iter().zip(y).map(|(x, y)| {
        let mut registers = [*x, *y, s];
        for step in steps {
            let (register, value) = match *step {
                Step::Apply(function, a) => {
                    let f = FUNCTIONS[function].2;
                    let value = registers[a];
                    // Beyond half of the torus a function has the opposite sign.
                    let value = if value < 16 { f(value) } else { -f(value - 16) };
                    (a, value)
                }
                Step::Add(a, b) => (a, registers[a] + registers[b]),
                Step::Sub(a, b) => (a, registers[a] - registers[b]),
                Step::Times(a, v) => (a, registers[a] * v),
                Step::Plus(a, v) => (a, registers[a] + v),
                Step::Move(a, b) => (a, registers[b]),
                Step::Sum(_) => break,
            };
            registers[register] = value.rem_euclid(TORUS);
        }
        registers[0]
    });
    let rows: Vec<i64> = rows.collect();
    match steps.last() {
        Some(Step::Sum(g)) => {
            let group = if *g == 0 { rows.len() } else { *g };
            let sums = rows.chunks(group).map(|rows| rows.iter().sum::<i64>());
            sums.map(|sum| sum.rem_euclid(TORUS)).collect()
        }
        _ => rows,
    }
}

fn random_numbers(random: &mut Numbers, count: usize) -> Vec<i64> {
    (0..count).map(|_| random.below(16).cast_signed()).collect()
}

/// A drive with columns x, y of this many rows and s of one.
fn drive_with(rows: usize, random: &mut Numbers) -> (Place, Vec<i64>, Vec<i64>, i64) {
    let place = Place::prepared("nvme");
    let (x, y) = (random_numbers(random, rows), random_numbers(random, rows));
    let s = random.below(16).cast_signed();
    place.column("x", &x, "--unsigned");
    place.column("y", &y, "--unsigned");
    place.column("s", &[s], "--unsigned");
    (place, x, y, s)
}

const INPUTS: &str = "--input x=x --input y=y --input s=s";

#[test]
fn random_programs_on_random_rows_give_what_an_interpreter_gives() {
    let mut random = Numbers(18);
    let (place, x, y, s) = drive_with(900, &mut random);
    let mut ran = 0;
    let mut case = 0;
    while ran < 12 {
        case += 1;
        assert!(case < 200, "too few programs have little noise");
        let steps = random_program(&mut random);
        fs::write(place.path("p.tasm"), text_of(&steps)).unwrap();
        let start = below(&mut random, 800);
        let end = start + 1 + below(&mut random, 99);
        let unit = 1 + random.below(69);
        let line = format!(
            "map d.img p.tasm {INPUTS} --output o{case} --rows {start}..{end} --unit {unit}"
        );
        let plan = place.json(&format!("{line} --estimate"));
        if plan["log2_p_fail"].as_f64().unwrap() > -150.0 {
            continue;
        }
        ran += 1;
        let done = place.json(&line);
        let expected = interpret(&steps, &x[start..end], &y[start..end], s);
        assert_eq!(place.rows(&format!("o{case}"), ""), expected, "{steps:?}");
        assert_eq!(plan["output_rows"], expected.len());
        assert_eq!(
            (&done["rows"], &done["complete"]),
            (&plan["output_rows"], &true.into())
        );
        // The same again computes nothing.
        assert_eq!(place.json(&line)["computed"], 0);
    }
}

/// The process, with the drive in it, is killed again and again. What a unit has committed stays, and is not computed again.
#[test]
fn a_map_of_10000_rows_survives_kills() {
    const ROWS: usize = 10_000;
    const UNIT: u64 = 256;
    let mut random = Numbers(19);
    let (place, x, y, s) = drive_with(ROWS, &mut random);
    let steps = [
        Step::Apply(1, 0),
        Step::Add(0, 2),
        Step::Apply(0, 0),
        Step::Sub(0, 1),
        Step::Apply(2, 0),
    ];
    fs::write(place.path("p.tasm"), text_of(&steps)).unwrap();
    let line = format!("map d.img p.tasm {INPUTS} --output o --unit {UNIT}");
    let expected = interpret(&steps, &x, &y, s);
    let mut before = 0;
    let mut kills = 0;
    while kills < 8 {
        let mut child = place.command(&format!("-q {line}")).spawn().unwrap();
        thread::sleep(Duration::from_millis(100 + random.below(1400)));
        if let Some(status) = child.try_wait().unwrap() {
            // It was faster than the kill, and did all that was left.
            assert!(status.success());
            before = ROWS as u64;
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        let listed = place.json("column list d.img");
        let mut columns = listed["columns"].as_array().unwrap().iter();
        let Some(column) = columns.find(|column| column["column"] == "o") else {
            assert_eq!(before, 0, "the output is gone");
            continue;
        };
        let done = column["done"].as_u64().unwrap();
        assert!(done >= before && (done % UNIT == 0 || done == ROWS as u64));
        assert_eq!(column["rows"], done);
        let start = before.saturating_sub(10);
        if done > start {
            let range = format!("--rows {start}..{done}");
            let of_range = &expected[start as usize..done as usize];
            assert_eq!(place.rows("o", &range), of_range);
        }
        before = done;
    }
    assert!(kills > 0, "the run was never killed");
    let ended = place.json(&line);
    assert_eq!(ended["computed"], ROWS as u64 - before);
    assert_eq!(place.rows("o", ""), expected);
    assert_eq!(place.json(&line)["computed"], 0);
}

/// First the server is killed, then the host that has the run: both times the same command goes on.
#[test]
fn a_map_over_tcp_goes_on_after_kills_on_either_side() {
    let mut random = Numbers(20);
    let (place, x, y, s) = drive_with(3000, &mut random);
    let steps = [
        Step::Apply(0, 0),
        Step::Add(0, 1),
        Step::Apply(1, 0),
        Step::Sum(3),
    ];
    fs::write(place.path("p.tasm"), text_of(&steps)).unwrap();
    let serve = |options: &[&str]| Server::start(&place.path("d.img"), options);
    let line = |server: &Server, unit: u64| {
        let address = &server.address;
        format!("map {address} p.tasm {INPUTS} --output o --unit {unit}")
    };
    let server = serve(&[]);
    place.fails(
        1,
        &line(&server, 60),
        &["--experimental-computational-programs"],
    );
    drop(server);
    let mut done = 0;
    for kill_server in [true, false] {
        let server = serve(&["--experimental-computational-programs"]);
        let mut child = place
            .command(&format!("-q {}", line(&server, 60)))
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(700));
        if kill_server {
            drop(server);
            child.wait().unwrap();
        } else {
            child.kill().unwrap();
            child.wait().unwrap();
            drop(server);
        }
        let listed = place.json("column list d.img");
        let mut columns = listed["columns"].as_array().unwrap().iter();
        let column = columns.find(|column| column["column"] == "o");
        let now = column.map_or(0, |column| column["done"].as_u64().unwrap());
        assert!(now >= done, "{now} rows after {done}");
        done = now;
    }
    let server = serve(&["--experimental-computational-programs"]);
    // More killed hosts than there are program indices.
    for _ in 0..17 {
        let mut child = place
            .command(&format!("-q {}", line(&server, 3000)))
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(150));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // The unit may be another one.
    let ended = place.json(&line(&server, 300));
    assert_eq!(ended["computed"], 3000 - done);
    drop(server);
    assert_eq!(place.rows("o", ""), interpret(&steps, &x, &y, s));
}

#[test]
fn rows_are_appended_and_replaced() {
    let place = Place::prepared("second-half");
    let mut model: Vec<i64> = (0..3000).map(|row| row % 16 - 8).collect();
    place.column("x", &model, "");
    place.column("x", &[7, -8, 7], "--append");
    model.extend([7, -8, 7]);
    place.column("x", &[5; 40], "--at 1010");
    model[1010..1050].fill(5);
    place.column("x", &[-5], "--at 1020");
    model[1020] = -5;
    assert_eq!(place.rows("x", ""), model);
    assert_eq!(place.rows("x", "--rows 1009..1022"), model[1009..1022]);
    let listed = place.json("column list d.img");
    assert_eq!(listed["columns"][0]["rows"], 3003);
    assert_eq!(listed["columns"][0]["seeded"], 3003);
    place.ok("column get d.img x --out numbers.txt");
    let text = fs::read_to_string(place.path("numbers.txt")).unwrap();
    assert_eq!(text.lines().count(), 3003);
    let words: &[&str] = &["column y", "no such column"];
    place.fails(1, "column delete d.img x y", words);
    place.ok("column delete d.img x x");
    place.fails(1, "column get d.img x", &["column x", "no such column"]);
}

/// The pieces that small units leave are packed again, and sums of units are added up.
#[test]
fn damaged_chunks_are_noticed() {
    let place = Place::prepared("nvme");
    place.column("x", &[1, 2, 3], "--unsigned");
    place.column("x", &[4, 5], "--append");
    let mut image = fs::read(place.path("d.img")).unwrap();
    // The first chunk stands 64 KiB behind the beginning of the blob, where 128 bytes come before the header. The version before is still there.
    let windows = image.windows(4).enumerate();
    let headers = windows.filter_map(|(at, bytes)| (bytes == b"TCOL").then_some(at));
    for header in headers.collect::<Vec<_>>() {
        image[header - 128 + (64 << 10) + 40] ^= 1;
    }
    fs::write(place.path("d.img"), image).unwrap();
    let words = ["column x", "damaged", "checksum"];
    place.fails(1, "column get d.img x", &words);
    // Other chunks are not read.
    assert_eq!(place.rows("x", "--rows 3..5"), [4, 5]);
    place.fails(1, "column get d.img x --rows 2..4", &words);
    // Nor is a column that the program does not look at.
    place.column("y", &[1, 2, 3, 4, 5], "--unsigned");
    let map = "map d.img p.tasm --input x=y --input y=x --output z";
    fs::write(place.path("p.tasm"), text_of(&[Step::Plus(0, 1)])).unwrap();
    place.ok(map);
    assert_eq!(place.rows("z", ""), [2, 3, 4, 5, 6]);
    fs::write(place.path("p.tasm"), text_of(&[Step::Add(0, 1)])).unwrap();
    place.fails(1, &format!("{map} --replace"), &words);
}

#[test]
fn units_leave_whole_chunks_behind() {
    let place = Place::new();
    place.ok("keys generate --params tiny-wopbs --unencrypted");
    place.ok("drive format d.img --size 256MiB --swap 16MiB");
    place.ok("put d.img keys/bootstrapping.key keys/key-switching.key");
    let numbers: Vec<i64> = (0..301).map(|row| row * 7 % 256).collect();
    place.column("x", &numbers, "--unsigned");
    let program = ".reg x = cor:0\n.tv f unsigned = x > 200 ? 511 - x : x + 9\n bootstrap f, x\n";
    fs::write(place.path("p.tasm"), format!("{program} return x\n")).unwrap();
    fs::write(
        place.path("s.tasm"),
        format!("{program} homsum x, 7\n return x\n"),
    )
    .unwrap();
    let f = |x: &i64| if *x > 200 { 511 - x } else { x + 9 };
    let expected: Vec<i64> = numbers.iter().map(f).collect();
    for (unit, pieces) in [(50, 3), (150, 3), (400, 3)] {
        let line = format!("map d.img p.tasm --input x=x --output o{unit} --unit {unit}");
        let done = place.json(&line);
        assert_eq!(
            (&done["packed"], &done["pieces"]),
            (&301.into(), &pieces.into())
        );
        assert_eq!(place.rows(&format!("o{unit}"), ""), expected);
        assert_eq!(place.json(&line)["computed"], 0);
    }
    // Units whose result is one row.
    let done = place.json("map d.img s.tasm --input x=x --output s --unit 7");
    assert_eq!((&done["rows"], &done["expanded"]), (&43.into(), &0.into()));
    let sums = expected
        .chunks(7)
        .map(|rows| rows.iter().sum::<i64>() % 1024);
    assert_eq!(place.rows("s", ""), sums.collect::<Vec<_>>());
    // More sums of units than the drive's memory has room for.
    fs::write(
        place.path("t.tasm"),
        ".reg x = cor:0\n homsum x, 0\n return x\n",
    )
    .unwrap();
    place.column("ones", &[1; 600], "--unsigned");
    place.ok("map d.img t.tasm --input x=ones --output t --unit 1");
    assert_eq!(place.rows("t", "--max-failure 1"), [600]);
    // A message of another width than the function takes.
    place.column("narrow", &[1, 2, 3], "--unsigned --bits 4");
    let words = ["4 bits", "9 bits"];
    place.fails(1, "map d.img p.tasm --input x=narrow --output n", &words);
}

#[test]
fn sums_of_all_rows_take_any_number_of_units() {
    let place = Place::prepared("nvme");
    let numbers = [1; 130];
    place.column("x", &numbers, "--unsigned");
    fs::write(place.path("p.tasm"), text_of(&[Step::Sum(0)])).unwrap();
    let plan = place.json("map d.img p.tasm --input x=x --output one --estimate");
    let units = place.json("map d.img p.tasm --input x=x --output units --unit 1 --estimate");
    let (one, many) = (&plan["log2_p_fail"], &units["log2_p_fail"]);
    assert!(
        one.as_f64().unwrap() < many.as_f64().unwrap(),
        "{one} {many}"
    );
    let done = place.json("map d.img p.tasm --input x=x --output units --unit 4");
    assert_eq!(
        (&done["rows"], &done["complete"]),
        (&1.into(), &true.into())
    );
    assert_eq!(place.rows("units", "--max-failure 1"), [130 % TORUS]);
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let place = Place::prepared("nvme");
    place.column("x", &[1, 2, 3], "--unsigned");
    place.column("z", &[1, 2], "--unsigned");
    place.column("signed", &[1, -2, 3], "");
    fs::write(place.path("p.tasm"), text_of(&[Step::Add(0, 1)])).unwrap();
    let put = |numbers: &str, words: &[&str], line: &str| {
        fs::write(place.path("numbers"), numbers).unwrap();
        place.fails(1, &format!("column put d.img {line}"), words);
    };
    put("1\n", &["column x", "such a column already"], "x numbers");
    put("1\n2.5\n", &["line 2", "not an integer"], "y numbers");
    put("\n\n", &["no numbers"], "y numbers");
    put("16\n", &["outside 0..=15"], "x numbers --append");
    put("1\n", &["no such column"], "y numbers --append");
    put("1\n2\n", &["column x", "rows 2..4"], "x numbers --at 2");
    put("1\n", &["encoding"], "x numbers --append --bits 3");
    put("1\n", &["column's name"], "a\u{1}b numbers");
    put("1\n", &["noise of tiny", "--bits"], "y numbers --bits 40");
    place.ok("keys generate --params tiny --unencrypted --out other");
    put(
        "1\n",
        &["another client key"],
        "x numbers --append --key other/client.key",
    );
    let failing = [
        (2, "column get d.img x --rows 3..2", "no rows"),
        (2, "column get d.img x --rows 3", "FROM..TO"),
        (
            1,
            "column get d.img x --rows 1..4",
            "rows 1..4 of a column of 3",
        ),
        (
            1,
            "column get d.img x --key other/client.key",
            "another client key",
        ),
        (2, "map d.img p.tasm --output o", "--input"),
        (
            2,
            "map d.img p.tasm --input x --output o",
            "REGISTER=COLUMN",
        ),
        (
            1,
            "map d.img p.tasm --input x=x --input y=z --output o",
            "number of rows",
        ),
        (
            1,
            "map d.img p.tasm --input x=x --output o",
            "no column stands in register y, and no sample in cor:0:1",
        ),
        (
            1,
            "map d.img p.tasm --input w=x --output o",
            "no register w",
        ),
        (
            1,
            "map d.img p.tasm --input x=x --input x=z --output o",
            "two objects",
        ),
        (
            1,
            "map d.img p.tasm --input x=x --input y=x --output x",
            "an input of this run",
        ),
        (
            1,
            "map d.img p.tasm --input x=x --input y=x --output z",
            "something else",
        ),
        (
            1,
            "map d.img p.tasm --key-id 3 --input x=x --input y=x --output o",
            "key id",
        ),
        (
            2,
            "map d.img p.tasm --input x=x --input y=x --output o --unit 0",
            "--unit",
        ),
    ];
    for (code, line, words) in failing {
        place.fails(code, line, &[words]);
    }
    let rows = |name: &str| place.rows(name, "");
    assert_eq!((rows("x"), rows("z")), (vec![1, 2, 3], vec![1, 2]));
    assert_eq!(rows("signed"), [1, -2, 3]);
    // With --replace the other column goes, and the same program of other rows is another result.
    let line = "map d.img p.tasm --input x=x --input y=x --output z --replace";
    place.ok(line);
    assert_eq!(rows("z"), [2, 4, 6]);
    assert_eq!(place.json(line)["computed"], 0);
    place.column("x", &[9], "--at 1");
    place.fails(
        1,
        line.strip_suffix(" --replace").unwrap(),
        &["something else"],
    );
    place.ok(line);
    assert_eq!(rows("z"), [2, 18, 6]);
    // A result that was changed is not the program's any more.
    place.column("z", &[1], "--append");
    place.fails(
        1,
        line.strip_suffix(" --replace").unwrap(),
        &["something else"],
    );
    place.ok(line);
    assert_eq!(rows("z"), [2, 18, 6]);
    // The program's tables were in registers of their own, and are gone.
    let registers = place.registers("d.img");
    assert!(
        !registers.iter().any(|register| register.starts_with("tv")),
        "{registers:?}"
    );
}

#[test]
fn columns_in_registers_trigger_programs() {
    for metadata in ["second-half", "nvme"] {
        let place = Place::prepared(metadata);
        let numbers: Vec<i64> = (0..60).map(|row| row * 7 % 13 - 6).collect();
        let text: Vec<String> = numbers.iter().map(i64::to_string).collect();
        fs::write(place.path("numbers"), text.join("\n")).unwrap();
        fs::write(
            place.path("write.tasm"),
            ".reg x = cow:2\n.reg y = cor:1\n.tv f = x < 0 ? 0 - x : x\n\
             bootstrap f, x\nhomadd x, y\nreturn x\n",
        )
        .unwrap();
        place.ok("put d.img write.tasm");
        place.ok("put d.img three.ct --as cor:0:1");
        let rows = |line: &str| -> Vec<i64> {
            let got = place.json(line);
            let rows = got["rows"].as_array().unwrap().iter();
            rows.map(|row| row.as_i64().unwrap()).collect()
        };
        let expected: Vec<i64> = numbers.iter().map(|x| x.abs() + 3).collect();
        assert_eq!(rows("column run d.img cow:0:2 numbers"), expected);
        assert_eq!(rows("column get d.img --register cow:0:2"), expected);
        place.fails(1, "get d.img cow:0:2 --out r.ct", &["a column of"]);
        // Compute-on-read of numbers that are put first, and then stay.
        fs::write(
            place.path("read.tasm"),
            ".reg x = cor:7\n.tv f = x + 1\nbootstrap f, x\nreturn x\n",
        )
        .unwrap();
        place.ok("put d.img read.tasm");
        let expected: Vec<i64> = numbers.iter().map(|x| x + 1).collect();
        assert_eq!(rows("column run d.img cor:0:7 numbers"), expected);
        assert_eq!(rows("column run d.img cor:0:7"), expected);
        assert_eq!(rows("column get d.img --register cor:0:7"), numbers);
        let out = place.ok("column run d.img cor:0:7 --out result");
        assert!(out.contains("60 rows"), "{out}");
        let written = fs::read_to_string(place.path("result")).unwrap();
        assert_eq!(written.lines().count(), 60);
        place.fails(1, "column run d.img cor:0:7 --out result", &["--force"]);
        place.fails(2, "column run d.img cow:0:2", &["a file of numbers"]);
        place.fails(2, "column run d.img tv:0:2 numbers", &["not a register"]);
        place.fails(
            1,
            "column run d.img cow:0:2 numbers",
            &["does not read cow:0:2"],
        );
        place.ok("delete d.img cor:0:7");
        place.fails(1, "column run d.img cor:0:7", &["cor:0:7"]);
        // Rows that a command does not carry.
        let many = vec!["1"; 5000].join("\n");
        fs::write(place.path("many"), many).unwrap();
        place.fails(
            1,
            "column run d.img cor:0:7 many",
            &["must come whole in one command"],
        );
    }
}

#[test]
fn a_ledger_notices_what_a_drive_gives_in_place_of_columns() {
    let place = Place::prepared("nvme");
    place.column("x", &[1, 2, 3], "--unsigned --ledger l");
    let yesterday = fs::read(place.path("d.img")).unwrap();
    place.column("x", &[4, 5], "--append --ledger l");
    fs::write(
        place.path("p.tasm"),
        ".reg x = cor:0\n.tv f unsigned = 15 - x\nbootstrap f, x\nreturn x\n",
    )
    .unwrap();
    let map = "map d.img p.tasm --input x=x --output o --unit 2 --ledger l";
    assert_eq!(place.json(map)["computed"], 5);
    assert_eq!(place.rows("o", "--ledger l"), [14, 13, 12, 11, 10]);
    assert_eq!(place.json(map)["computed"], 0);
    // The drive of yesterday.
    fs::write(place.path("d.img"), yesterday).unwrap();
    let words: &[&str] = &["column x", "version 1"];
    place.fails(1, "column get d.img x --ledger l", words);
    place.fails(1, map, words);
    place.fails(1, &format!("{map} --estimate"), words);
    place.fails(1, "column put d.img x numbers --append --ledger l", words);
    let words: &[&str] = &["1 of 1 columns cannot be used"];
    place.fails(1, "column list d.img --ledger l", words);
    assert_eq!(place.rows("x", ""), [1, 2, 3]);
    // One that was put without a ledger, and a ledger whose name is mistyped.
    place.column("plain", &[1], "--unsigned");
    let words: &[&str] = &["not what this client put there"];
    place.fails(1, "column get d.img plain --ledger l", words);
    let words: &[&str] = &["ledger ll does not exist"];
    place.fails(1, "column get d.img x --ledger ll", words);
    place.ok("column delete d.img x --ledger l");
    place.column("x", &[6], "--unsigned --ledger l");
    assert_eq!(place.rows("x", "--ledger l"), [6]);
    // In registers, with a program that the same client has put.
    fs::write(
        place.path("write.tasm"),
        ".reg x = cow:2\n.tv f unsigned = 15 - x\nbootstrap f, x\nreturn x\n",
    )
    .unwrap();
    place.ok("put d.img write.tasm --ledger l");
    fs::write(place.path("numbers"), "1\n2\n").unwrap();
    place.ok("column run d.img cow:0:2 numbers --unsigned --out r --ledger l");
    let read = "column get d.img --register cow:0:2 --ledger l";
    assert_eq!(place.ok(read).trim(), "14\n13");
    place.ok("put d.img write.tasm");
    let untrusted: &[&str] = &["tv:0:0", "cannot be trusted"];
    let run = "column run d.img cow:0:2 numbers --unsigned --out s --ledger l";
    place.fails(1, run, untrusted);
}
