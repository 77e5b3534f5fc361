//! Ring columns from the command line: programs over them against a plain interpreter, kills, and what is refused.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;
mod serving;

use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use common::Place;
use serving::{Numbers, Server};

/// Rows of two full ciphertexts of a tiny ring and a part of a third.
const ROWS: usize = 600;

/// A ring for tests, and the bits of its messages.
#[derive(Clone, Copy)]
struct Ring {
    name: &'static str,
    bits: u32,
}

/// Tables in one pass.
const NARROW: Ring = Ring {
    name: "tiny-ring",
    bits: 4,
};

/// Tables in two passes.
const WIDE: Ring = Ring {
    name: "tiny-ring9",
    bits: 9,
};

impl Ring {
    fn modulus(self) -> i64 {
        1 << self.bits
    }

    /// x - y + 5 to f and g, and the sum of f and twice g, modulo 2^bits.
    fn program(self) -> String {
        let (bits, modulus) = (self.bits, self.modulus());
        format!(
            "\
.reg x = cor:0
.reg y = cor:1
.tv f unsigned in={bits} out={bits} = (x * 5 + 3) % {modulus}
.tv g unsigned in={bits} out={bits} = x > 9 ? x - 9 : 0

    homsub x, y
    homintadd x, 5
    mov y, x
    bootstrap f, x
    bootstrap g, y
    homintmult y, 2
    homadd x, y
    return x
"
        )
    }

    fn interpret(self, x: &[i64], y: &[i64]) -> Vec<i64> {
        let modulus = self.modulus();
        let row = |(x, y): (&i64, &i64)| {
            let d = (x - y + 5).rem_euclid(modulus);
            let g = if d > 9 { d - 9 } else { 0 };
            ((d * 5 + 3) % modulus + 2 * g) % modulus
        };
        x.iter().zip(y).map(row).collect()
    }

    fn random_numbers(self, seed: u64, count: usize) -> Vec<i64> {
        let (mut random, modulus) = (Numbers(seed), self.modulus().cast_unsigned());
        (0..count)
            .map(|_| random.below(modulus).cast_signed())
            .collect()
    }

    /// Options of `column put`.
    fn options(self) -> String {
        format!("--ring {} --bits {} --unsigned", self.name, self.bits)
    }

    /// A drive with a ring key and ring columns x and y, without any key of samples.
    fn drive(self) -> (Place, Vec<i64>, Vec<i64>) {
        let place = Place::new();
        place.ok("keys generate --params tiny-wopbs --unencrypted --client-only");
        place.ok("drive format d.img --size 256MiB --swap 16MiB --metadata nvme");
        let keys = place.json(&format!("column keys d.img --ring {}", self.name));
        assert_eq!(keys["ring"], self.name);
        let (x, y) = (self.random_numbers(1, ROWS), self.random_numbers(2, ROWS));
        for (name, rows) in [("x", &x), ("y", &y)] {
            let put = place.column(name, rows, &self.options());
            assert_eq!(put["rows"], ROWS);
            assert_eq!(
                (&put["ring"], &put["pieces"]),
                (&self.name.into(), &3.into())
            );
        }
        fs::write(place.path("p.tasm"), self.program()).unwrap();
        (place, x, y)
    }
}

impl Place {
    fn column(&self, name: &str, numbers: &[i64], options: &str) -> serde_json::Value {
        let mut text = String::new();
        for number in numbers {
            writeln!(text, "{number}").unwrap();
        }
        fs::write(self.path("numbers"), text).unwrap();
        self.json(&format!("column put d.img {name} numbers {options}"))
    }

    fn rows(&self, name: &str, range: &str) -> Vec<i64> {
        let got = self.json(&format!("column get d.img {name} {range}"));
        let rows = got["rows"].as_array().unwrap().iter();
        rows.map(|row| row.as_i64().unwrap()).collect()
    }

    fn listed(&self, name: &str) -> Option<serde_json::Value> {
        let listed = self.json("column list d.img");
        let mut columns = listed["columns"].as_array().unwrap().iter();
        columns.find(|column| column["column"] == name).cloned()
    }
}

const MAP: &str = "p.tasm --input x=x --input y=y --output o";

#[test]
fn a_program_on_ring_columns_gives_what_an_interpreter_gives() {
    computes(NARROW);
}

#[test]
fn a_program_of_wide_tables_gives_what_an_interpreter_gives() {
    computes(WIDE);
}

fn computes(ring: Ring) {
    let (place, x, y) = ring.drive();
    assert_eq!(place.rows("x", ""), x);
    assert_eq!(place.rows("x", "--rows 250..520"), x[250..520]);

    let plan = place.json(&format!("map d.img {MAP} --estimate"));
    assert_eq!(
        (&plan["route"], &plan["rows"]),
        (&"ring".into(), &ROWS.into())
    );
    assert_eq!(plan["bootstraps"], 2 * ROWS);
    assert!(plan["log2_p_fail"].as_f64().unwrap() < -100.0, "{plan}");
    let done = place.json(&format!("map d.img {MAP}"));
    assert_eq!(
        (&done["computed"], &done["commands"]),
        (&ROWS.into(), &3.into())
    );
    assert_eq!(
        (&done["route"], &done["complete"]),
        (&"ring".into(), &true.into())
    );
    let expected = ring.interpret(&x, &y);
    assert_eq!(place.rows("o", ""), expected);
    // The same again computes nothing, and a result is an input.
    assert_eq!(place.json(&format!("map d.img {MAP}"))["computed"], 0);
    let again = "map d.img p.tasm --input x=o --input y=y --output o2";
    place.ok(again);
    assert_eq!(place.rows("o2", ""), ring.interpret(&expected, &y));

    // A part of the rows, of three ciphertexts, of a fresh and of a computed column.
    let part = "map d.img p.tasm --input x=o --input y=y --output part --rows 200..530";
    let done = place.json(part);
    assert_eq!((&done["rows"], &done["pieces"]), (&330.into(), &3.into()));
    let right = ring.interpret(&expected[200..530], &y[200..530]);
    assert_eq!(place.rows("part", ""), right);

    // Appended rows are ciphertexts of their own, and another result.
    let more = ring.random_numbers(3, 40);
    let put = place.column("x", &more, "--append");
    assert_eq!((&put["rows"], &put["pieces"]), (&640.into(), &4.into()));
    place.column("y", &more, "--append");
    place.fails(1, &format!("map d.img {MAP}"), &["something else"]);
    let done = place.json(&format!("map d.img {MAP} --replace"));
    assert_eq!(done["commands"], 4);
    let [x, y] = [x, y].map(|rows| [rows, more.clone()].concat());
    assert_eq!(place.rows("o", ""), ring.interpret(&x, &y));
}

#[test]
fn a_map_of_ring_columns_survives_kills_and_cancellations() {
    survives(NARROW);
}

#[test]
fn a_map_of_wide_tables_survives_kills_and_cancellations() {
    survives(WIDE);
}

/// The process, with the drive in it, is killed again and again, or told to stop by Ctrl-C. What is there afterwards are whole ciphertexts, with the
/// record of how many; a run that could stop by itself leaves nothing else, and the same command goes on.
fn survives(ring: Ring) {
    let (place, x, y) = ring.drive();
    let map = format!("map d.img {MAP}");
    let (mut stops, mut before) = (0, 0);
    // A fast machine ends a run in a tenth of a second.
    for (round, wait) in [20, 60, 120, 300, 450, 600, 800, 1000]
        .into_iter()
        .enumerate()
    {
        let mut child = place
            .command(&format!("-q {map}"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(wait));
        if child.try_wait().unwrap().is_some() {
            break;
        }
        // Ctrl-C does nothing special before the program has begun to listen.
        let interrupted = round % 2 == 1 && wait >= 300;
        let ended = if interrupted {
            let kill = format!("kill -INT {}", child.id());
            Command::new("sh").args(["-c", &kill]).status().unwrap();
            child.wait().unwrap().code()
        } else {
            child.kill().unwrap();
            child.wait().unwrap().code()
        };
        if ended == Some(0) {
            break;
        }
        assert_eq!(ended, interrupted.then_some(130));
        stops += 1;
        if interrupted {
            // The functions of a run go with it.
            let keys = ["key:0:3", "key:0:4"].map(str::to_owned);
            assert_eq!(place.registers("d.img"), keys);
        }
        let Some(column) = place.listed("o") else {
            assert_eq!(before, 0, "the output is gone");
            continue;
        };
        let done = column["done"].as_u64().unwrap();
        assert!(done >= before && (done % 256 == 0 || done == ROWS as u64));
        assert_eq!(column["rows"], done);
        before = done;
        let right = ring.interpret(&x, &y);
        assert_eq!(place.rows("o", ""), right[..done as usize]);
    }
    assert!(stops > 0, "the run was never stopped");
    let ended = place.json(&map);
    assert!(ended["computed"].as_u64().unwrap() <= ROWS as u64 - before);
    assert_eq!(place.rows("o", ""), ring.interpret(&x, &y));
}

#[test]
fn ring_columns_over_tcp() {
    for ring in [NARROW, WIDE] {
        let (place, x, y) = ring.drive();
        let server = Server::start(
            &place.path("d.img"),
            &["--experimental-computational-programs"],
        );
        // The server has not loaded the ring key: the host finds out, and has it loaded.
        let done = place.json(&format!("map {} {MAP}", server.address));
        assert_eq!(
            (&done["computed"], &done["route"]),
            (&ROWS.into(), &"ring".into())
        );
        drop(server);
        assert_eq!(place.rows("o", ""), ring.interpret(&x, &y));
    }
}

/// Sums of groups and of whole columns, of numbers and of functions of them, in one ciphertext and in several.
#[test]
fn sums_of_rows() {
    sums(NARROW);
    sums(WIDE);
}

fn sums(ring: Ring) {
    let (place, ..) = ring.drive();
    let modulus = ring.modulus();
    let x: Vec<i64> = ring.random_numbers(4, 592);
    place.column("s", &x, &ring.options());
    let bits = ring.bits;
    let header = format!(
        ".reg x = cor:0\n.tv odd unsigned in={bits} out={bits} = x % 2\n.tv up unsigned in={bits} out={bits} = x + 1\n"
    );
    let run = |text: &str, options: &str| {
        fs::write(
            place.path("s.tasm"),
            format!("{header}{text}    return x\n"),
        )
        .unwrap();
        let map = format!("map d.img s.tasm --input x=s --output sums --replace {options}");
        let done = place.json(&map);
        (done, place.rows("sums", "--max-failure 2^-40"))
    };
    let groups = |size: usize, f: &dyn Fn(i64) -> i64| -> Vec<i64> {
        let sums = x
            .chunks(size)
            .map(|rows| rows.iter().map(|x| f(*x)).sum::<i64>());
        sums.map(|sum| sum % modulus).collect()
    };
    let (done, sums) = run("    homsum x, 4\n", "");
    assert_eq!((&done["rows"], &done["pieces"]), (&148.into(), &3.into()));
    assert_eq!(sums, groups(4, &|x| x));
    // A sum of sums, a function of a sum, and a sum of functions.
    let (_, sums) = run(
        "    homsum x, 4\n    homsum x, 2\n    homintmult x, 3\n",
        "",
    );
    assert_eq!(sums, groups(8, &|x| 3 * x));
    let (_, sums) = run("    homsum x, 2\n    bootstrap up, x\n", "");
    let up = groups(2, &|x| x).into_iter().map(|x| (x + 1) % modulus);
    assert_eq!(sums, up.collect::<Vec<_>>());
    let (_, sums) = run("    bootstrap odd, x\n    homsum x, 8\n", "");
    assert_eq!(sums, groups(8, &|x| x % 2));
    // The sum of all rows of all ciphertexts.
    let (done, sums) = run("    homsum x, 0\n", "");
    assert_eq!((&done["rows"], &done["commands"]), (&1.into(), &3.into()));
    assert_eq!(sums, groups(592, &|x| x));
    let (_, sums) = run("    bootstrap odd, x\n    homsum x, 0\n", "");
    assert_eq!(sums, groups(592, &|x| x % 2));
    // Groups that end within a ciphertext's last rows, or that no pieces are made of.
    place.column("t", &x[..6], &ring.options());
    for (column, size) in [("s", 32), ("s", 3), ("t", 3)] {
        let text = format!(".reg x = cor:0\n    homsum x, {size}\n    return x\n");
        fs::write(place.path("s.tasm"), text).unwrap();
        let map = format!("map d.img s.tasm --input x={column} --output sums --replace");
        place.fails(1, &map, &["2, 4, 8"]);
    }
    // A function of the sum of several ciphertexts, which no command has.
    let text = format!("{header}    homsum x, 0\n    bootstrap up, x\n    return x\n");
    fs::write(place.path("s.tasm"), text).unwrap();
    let map = "map d.img s.tasm --input x=s --output sums --replace";
    place.fails(1, map, &["those of one ciphertext"]);
}

#[test]
fn more_inputs_than_a_command_has_are_refused() {
    let (place, ..) = NARROW.drive();
    let (mut program, mut inputs) = (String::new(), String::new());
    for number in 0..70 {
        writeln!(program, ".reg x{number} = cor:{number}").unwrap();
        write!(inputs, " --input x{number}=x").unwrap();
    }
    fs::write(place.path("m.tasm"), program + "    return x0\n").unwrap();
    for estimate in ["", " --estimate"] {
        let map = format!("map d.img m.tasm{inputs} --output o{estimate}");
        place.fails(1, &map, &["the number of inputs"]);
    }
}

/// Functions of two columns, in the forms that a program has for them: of one message with both, of a message that is one's upper bits and the
/// other's lower ones, and of two narrow messages, one of which a function brings to its place.
#[test]
fn a_function_of_two_columns() {
    let (place, ..) = WIDE.drive();
    let mut random = Numbers(11);
    let mut draw = |modulus: u64| -> Vec<i64> {
        (0..300)
            .map(|_| random.below(modulus).cast_signed())
            .collect()
    };
    let (x, y) = (draw(32), draw(16));
    for (name, rows, bits) in [("x5", &x, 5), ("x9", &x, 9), ("y4", &y, 4), ("y9", &y, 9)] {
        let options = format!("--ring {} --bits {bits} --unsigned", WIDE.name);
        place.column(name, rows, &options);
    }
    let map = |[x_bits, y_bits]: [u32; 2], body: &str| {
        let program = format!(
            "\
.reg x = cor:0
.reg y = cor:1
.tv lower   unsigned in=4   out=9 = x
.tv product unsigned in=5+4 out=9 = x * y
.tv ratio   unsigned in=5+4 out=5 = y == 0 ? 0 : x / y

{body}
    return x
"
        );
        fs::write(place.path("two.tasm"), program).unwrap();
        let inputs = format!("--input x=x{x_bits} --input y=y{y_bits}");
        let map = format!("map d.img two.tasm {inputs} --output o --replace");
        let plan = place.json(&format!("{map} --estimate"));
        let log2_failure = plan["log2_p_fail"].as_f64().unwrap();
        assert!(log2_failure < -120.0, "{plan}");
        place.ok(&map);
        (plan["bootstraps"].clone(), place.rows("o", ""))
    };
    let pairs = x.iter().zip(&y);
    let products: Vec<i64> = pairs.clone().map(|(x, y)| x * y).collect();
    let packed = "    homintmult x, 16\n    homadd x, y\n    bootstrap product, x";
    assert_eq!(map([9, 9], packed), (300.into(), products.clone()));
    let upper = "    homadd x, y\n    bootstrap product, x";
    assert_eq!(map([5, 9], upper), (300.into(), products.clone()));
    // What brings y to its place is no bootstrap of its own.
    let narrow = format!("    bootstrap lower, y\n{upper}");
    assert_eq!(map([5, 4], &narrow), (300.into(), products));
    let both = "    bootstrap lower, y\n    homadd x, y\n    bootstrap [product, ratio], [y, x], x\n    homadd x, y\n    homintadd x, 3";
    let ratio = |x: i64, y: i64| if y == 0 { 0 } else { x / y };
    let sums = pairs.map(|(&x, &y)| (16 * ratio(x, y) + x * y + 3) % 512);
    assert_eq!(map([5, 4], both), (600.into(), sums.collect()));
}

/// The rows that an encrypted column of 0 and 1 selects, and those that a function of another column selects.
#[test]
fn rows_that_a_column_selects() {
    let (place, ..) = WIDE.drive();
    let x: Vec<i64> = WIDE.random_numbers(12, 300).iter().map(|x| x / 2).collect();
    let kept: Vec<i64> = x.iter().map(|x| (x * 7 + x / 3) % 2).collect();
    place.column("values", &x, &WIDE.options());
    let one_bit = format!("--ring {} --bits 1 --unsigned", WIDE.name);
    place.column("kept", &kept, &one_bit);
    let program = "\
.reg kept = cor:0
.reg x    = cor:1
.tv select unsigned in=1+8 out=9 = x ? y : 0

    homadd kept, x
    bootstrap select, kept
    return kept
";
    fs::write(place.path("select.tasm"), program).unwrap();
    let map = "map d.img select.tasm --input kept=kept --input x=values --output o";
    place.ok(map);
    let selected: Vec<i64> = x.iter().zip(&kept).map(|(x, kept)| x * kept).collect();
    assert_eq!(place.rows("o", ""), selected);
    place.ok(&format!("{map} --replace --rows 10..290"));
    assert_eq!(place.rows("o", ""), selected[10..290]);
}

impl Place {
    /// A file of which rows count.
    fn kept(&self, kept: &[bool]) {
        let text: String = kept
            .iter()
            .map(|kept| format!("{}\n", u8::from(*kept)))
            .collect();
        fs::write(self.path("kept"), text).unwrap();
    }
}

/// The rows that a file of 1 and 0 keeps: functions and sums of functions, and what leaves out no rows.
#[test]
fn rows_that_a_file_keeps() {
    for ring in [NARROW, WIDE] {
        let (place, x, y) = ring.drive();
        // The second ciphertext has no row that counts.
        let kept: Vec<bool> = (0..ROWS)
            .map(|row| row % 3 != 1 && row / 256 != 1)
            .collect();
        place.kept(&kept);
        let all = ring.interpret(&x, &y);
        let in_rows = |rows: &[i64]| -> Vec<i64> {
            let rows = rows.iter().zip(&kept);
            rows.map(|(x, kept)| if *kept { *x } else { 0 }).collect()
        };
        let map = "map d.img p.tasm --input x=x --input y=y --output o";
        let masked = format!("{map} --where kept");
        let plain = place.json(&format!("{map} --estimate"));
        let estimate = place.json(&format!("{masked} --estimate"));
        assert!(
            estimate["log2_p_fail"].as_f64() >= plain["log2_p_fail"].as_f64(),
            "{estimate} {plain}"
        );
        let done = place.json(&masked);
        assert_eq!(
            (&done["computed"], &done["commands"]),
            (&ROWS.into(), &3.into())
        );
        assert_eq!(place.rows("o", ""), in_rows(&all));
        // The same rows are done, and others are another result.
        assert_eq!(place.json(&masked)["computed"], 0);
        place.fails(1, map, &["something else than the result"]);
        place.ok(&format!("{map} --replace"));
        assert_eq!(place.rows("o", ""), all);

        let bits = ring.bits;
        let write = |body: &str| {
            let text = format!(
                ".reg x = cor:0\n.tv up unsigned in={bits} out={bits} = x + 1\n{body}    return x\n"
            );
            fs::write(place.path("s.tasm"), text).unwrap();
        };
        let map = "map d.img s.tasm --input x=x --output s --replace --where kept";
        write("    bootstrap up, x\n    homsum x, 0\n");
        place.ok(map);
        let up: Vec<i64> = x.iter().map(|x| x + 1).collect();
        let sum: i64 = in_rows(&up).iter().sum();
        assert_eq!(
            place.rows("s", "--max-failure 2^-40"),
            [sum % ring.modulus()]
        );
        // Other rows than there are, no bits, and what leaves out no rows.
        place.fails(
            1,
            &format!("{map} --rows 0..100"),
            &["kept or left out", "100", "600"],
        );
        fs::write(place.path("bad"), "1\n2\n").unwrap();
        let bad = "map d.img s.tasm --input x=x --output s --where bad";
        place.fails(2, bad, &["2 for row 1", "expected 1"]);
        for body in [
            "    homsum x, 0\n",
            "    bootstrap up, x\n    homintadd x, 1\n",
        ] {
            write(body);
            place.fails(1, map, &["left out would not be 0"]);
        }
        // Columns of samples go by ciphertexts then.
        write("    bootstrap up, x\n");
        let numbers: Vec<i64> = x.iter().map(|x| x / 2).collect();
        place.column("samples", &numbers, &format!("--bits {bits} --unsigned"));
        let map = "map d.img s.tasm --input x=samples --output t --where kept";
        place.fails(
            1,
            &format!("{map} --way samples"),
            &["by ciphertexts alone"],
        );
        let estimate = place.json(&format!("{map} --estimate"));
        assert!(
            estimate["why"].as_str().unwrap().contains("left out"),
            "{estimate}"
        );
        place.ok(map);
        let up: Vec<i64> = numbers.iter().map(|x| x + 1).collect();
        assert_eq!(place.rows("t", ""), in_rows(&up));
        let samples = format!("{map} --replace --result samples");
        place.fails(1, &samples, &["ciphertext 1", "none"]);
        let kept: Vec<bool> = (0..ROWS).map(|row| row % 3 != 1).collect();
        place.kept(&kept);
        place.ok(&samples);
        let expected = up.iter().zip(&kept);
        let expected = expected.map(|(x, kept)| if *kept { *x } else { 0 });
        assert_eq!(place.rows("t", ""), expected.collect::<Vec<_>>());
    }
}

#[test]
fn what_ring_columns_refuse() {
    let (place, x, _) = NARROW.drive();
    place.column("s", &x, "--bits 4 --unsigned");
    place.fails(
        1,
        "map d.img p.tasm --input x=x --input y=s --output o",
        &["column s", "ring column"],
    );
    // Other rows, other keys, rows that are not there, a program that moves rows, rows in the place of others, and wide numbers.
    place.column("short", &x[..40], &NARROW.options());
    place.fails(
        1,
        "map d.img p.tasm --input x=x --input y=short --output o",
        &["column short", "rows"],
    );
    place.fails(1, &format!("map d.img {MAP} --rows 9..601"), &["600"]);
    fs::write(
        place.path("sum.tasm"),
        ".reg x = cor:0\n    lower x, 2\n    return x\n",
    )
    .unwrap();
    place.fails(
        1,
        "map d.img sum.tasm --input x=x --output o",
        &["stay where they are"],
    );
    place.fails(2, "column put d.img x numbers --at 3", &["replaced"]);
    place.fails(
        2,
        "column put d.img w numbers --ring tiny-ring --bits 5",
        &["at most 4 bits"],
    );
    place.fails(
        2,
        "column put d.img w numbers --ring ring8 --bits 4",
        &["ring8 and tiny-wopbs"],
    );
    place.fails(2, "column keys d.img --ring ring9", &["tiny-ring9"]);
    // A key of another ring than the columns.
    place.column("w", &x[..40], "--form ring --bits 4 --unsigned");
    let other = "map d.img p.tasm --input x=w --input y=w --output o";
    place.fails(1, other, &["tiny-ring9"]);
    place.ok("keys generate --params tiny-wopbs --unencrypted --client-only --out other");
    let said = place.run("column get d.img x --key other/client.key");
    assert_ne!(said.code, Some(0));
    let said = place.run("column put d.img x numbers --append --key other/client.key");
    assert_ne!(said.code, Some(0));
    // Without a ring key the message says what to do.
    place.ok("drive format e.img --size 64MiB --swap 16MiB --metadata nvme");
    place.ok("column put e.img x numbers --ring tiny-ring --bits 4 --unsigned");
    place.ok("column put e.img y numbers --ring tiny-ring --bits 4 --unsigned");
    place.fails(1, &format!("map e.img {MAP}"), &["toroid column keys"]);
}

/// Samples become ring columns on the drive where the request says so, with the result in either form; what is done is known again.
#[test]
fn samples_go_by_ciphertexts_and_back() {
    for ring in [NARROW, WIDE] {
        let (place, x, y) = ring.drive();
        let bits = ring.bits;
        for (name, rows) in [("a", &x), ("b", &y)] {
            place.column(name, rows, &format!("--bits {bits} --unsigned"));
        }
        let (modulus, program) = (ring.modulus(), ring.program());
        fs::write(
            place.path("w.tasm"),
            program.replace("    return x\n", "    bootstrap f, x\n    return x\n"),
        )
        .unwrap();
        let f = |x: i64| (x * 5 + 3) % modulus;
        let expected: Vec<i64> = ring.interpret(&x, &y).into_iter().map(f).collect();
        let map = "map d.img w.tasm --input x=a --input y=b --way ring";
        // No ring key is needed to say what a run takes; the drive has both.
        let plan = place.json(&format!("{map} --output r --estimate"));
        assert_eq!(
            (&plan["route"], &plan["ring"]),
            (&"ring".into(), &ring.name.into())
        );
        assert!(
            plan["why"].as_str().unwrap().contains("asked for"),
            "{plan}"
        );
        assert!(plan["log2_p_fail"].as_f64().unwrap() < -100.0, "{plan}");
        for (output, form) in [("r", ""), ("s", "--result samples")] {
            let map = format!("{map} --output {output} {form}");
            let done = place.json(&map);
            assert_eq!(
                (&done["computed"], &done["commands"]),
                (&ROWS.into(), &3.into())
            );
            assert_eq!(done["ring"].is_null(), output == "s", "{done}");
            assert_eq!(place.rows(output, ""), expected, "{output}");
            assert_eq!(place.json(&map)["computed"], 0);
        }
        // A result in the ring goes on there, and becomes samples.
        fs::write(
            place.path("f.tasm"),
            format!(".reg x = cor:0\n.tv f unsigned in={bits} out={bits} = (x * 5 + 3) % {modulus}\n    bootstrap f, x\n    return x\n"),
        )
        .unwrap();
        let twice: Vec<i64> = expected.iter().map(|x| f(*x)).collect();
        for (output, form) in [("rr", ""), ("rs", "--result samples")] {
            place.ok(&format!(
                "map d.img f.tasm --input x=r --output {output} {form}"
            ));
            assert_eq!(place.rows(output, ""), twice, "{output}");
        }
        // Parts begin with a chunk, of 128 rows.
        let part = "map d.img f.tasm --input x=a --way ring --output part";
        place.ok(&format!("{part} --rows 128..300"));
        let right: Vec<i64> = x[128..300].iter().map(|x| f(*x)).collect();
        assert_eq!(place.rows("part", ""), right);
        place.fails(
            1,
            &format!("{part} --rows 100..300 --replace"),
            &["whole chunks"],
        );
    }
}

/// The way is that which is asked for, or the reason why not is clear.
#[test]
fn a_way_that_there_is_not_is_refused_and_never_chosen() {
    let (place, x, _) = NARROW.drive();
    place.column("s", &x, "--bits 4 --unsigned");
    let f =
        ".reg x = cor:0\n.tv f unsigned in=4 out=4 = 15 - x\n    bootstrap f, x\n    return x\n";
    fs::write(place.path("f.tasm"), f).unwrap();
    let why = |options: &str, words: &str| {
        let map = format!("map d.img f.tasm --input x=s --output o --estimate {options}");
        let plan = place.json(&map);
        assert_eq!(plan["route"], "samples", "{plan}");
        assert!(plan["why"].as_str().unwrap().contains(words), "{plan}");
    };
    why("", "no times of tiny-wopbs and tiny-ring");
    why("--way samples", "asked for");
    let map = "map d.img f.tasm --output o";
    place.fails(
        2,
        &format!("{map} --input x=x --way samples"),
        &["by ciphertexts"],
    );
    place.fails(
        1,
        &format!("{map} --input x=s --way samples --result ring"),
        &["form of the result"],
    );
    // The rows of a column that came as ciphertexts do not stand as those of samples.
    place.fails(
        1,
        &format!("{map} --input x=x --result samples"),
        &[
            "2 pieces",
            "put as ciphertexts",
            "put the numbers as samples",
        ],
    );
    // Another key id has no keys; rows that are appended stand in a chunk of their own.
    place.column("t", &x, "--bits 4 --unsigned --key-id 1");
    place.fails(
        1,
        &format!("{map} --key-id 1 --input x=t --way ring"),
        &["needs conversion keys", "toroid column keys"],
    );
    let two = "map d.img p.tasm --output o --way ring --input x=s --input y=t";
    place.fails(1, two, &["key id"]);
    place.column("s", &x[..40], "--append");
    place.fails(
        1,
        &format!("{map} --input x=s --way ring"),
        &["whole chunks"],
    );
    why("", "column s: the rows of a chunk that go along");
    why("", "whole chunks");
    // Rows of two pieces have no sum of all.
    place.column("u", &x[..256], "--bits 4 --unsigned");
    let sum = f.replace("    return", "    homsum x, 0\n    return");
    fs::write(place.path("sum.tasm"), sum).unwrap();
    place.fails(
        1,
        "map d.img sum.tasm --input x=u --output o --way ring",
        &["sums of 256 of 256 rows, which stand in 2 pieces of at most 128"],
    );
    // Nothing is computed where nothing makes samples of the result.
    place.ok("map d.img f.tasm --input x=u --output r --way ring");
    place.ok("delete d.img key:0:4");
    for estimate in ["", " --estimate"] {
        place.fails(
            1,
            &format!("map d.img f.tasm --input x=r --output o --result samples{estimate}"),
            &["needs conversion keys", "toroid column keys"],
        );
    }
}

/// A key id goes to another client key once all keys of the former one are replaced or deleted.
#[test]
fn keys_that_would_stay_are_named() {
    let (place, ..) = NARROW.drive();
    place.ok("keys generate --params tiny-wopbs --unencrypted --out other");
    let put = "put d.img other/bootstrapping.key other/key-switching.key --replace";
    place.fails(1, put, &["of another client key would stay"]);
    place.ok("column keys d.img --key other/client.key --ring tiny-ring --replace");
    place.ok(put);
    place.fails(
        1,
        "column keys d.img --ring tiny-ring --replace",
        &["key:0:1 of another client key would stay"],
    );
}

/// A cause that an error states itself is not said twice.
#[test]
fn errors_of_runs_are_said_once() {
    let (place, ..) = NARROW.drive();
    let text = ".reg x = cor:0\n    homsum x, 3\n    return x\n";
    fs::write(place.path("s.tasm"), text).unwrap();
    let said = place.run("map d.img s.tasm --input x=x --output o");
    assert_eq!(said.err.matches("2, 4, 8").count(), 1, "{}", said.err);
}

/// What both ways take by the documented times, and from how many rows on a ciphertext takes less: of the smallest ring that has the messages, where
/// the columns are in none.
#[test]
fn estimates_of_both_ways() {
    let place = Place::new();
    place.ok("keys generate --params message16 --unencrypted --client-only");
    place.ok("drive format d.img --size 64MiB --swap 16MiB --metadata nvme");
    let numbers: Vec<i64> = (0..100).collect();
    // The documented times: a row takes 10.5 ms a bit and 52.1 ms. docs/results/column-engine.md: what a ciphertext takes.
    for (ring, bits, row, ciphertext, break_even) in [
        ("ring8", 8, 0.1361, 9.23, 68),
        ("ring12", 12, 0.1781, 29.02, 163),
        ("ring16", 16, 0.2201, 51.06, 232),
    ] {
        let form = format!("--unsigned --bits {bits}");
        place.column(
            &format!("x{bits}"),
            &numbers,
            &format!("{form} --ring {ring}"),
        );
        place.column(&format!("s{bits}"), &numbers, &form);
        let program = format!(
            ".reg x = cor:0\n.tv f unsigned in={bits} out={bits} = {} - x\n    bootstrap f, x\n    return x\n",
            (1 << bits) - 1
        );
        fs::write(place.path("f.tasm"), program).unwrap();
        for (column, route) in [("x", "ring"), ("s", "samples")] {
            let map = format!(
                "map d.img f.tasm --input x={column}{bits} --output o --estimate --cores 1"
            );
            let plan = place.json(&map);
            assert_eq!(
                (&plan["route"], &plan["ring"]),
                (&route.into(), &ring.into())
            );
            let seconds = |way: &str| plan[format!("seconds_by_{way}")].as_f64().unwrap();
            assert!((seconds("samples") - 100.0 * row).abs() < 0.1, "{plan}");
            assert!((seconds("ring") - ciphertext).abs() < 0.1, "{plan}");
            assert_eq!(plan["seconds"].as_f64(), Some(seconds(route)));
            assert_eq!(plan["break_even_rows"], break_even);
            let why = plan["why"].as_str().unwrap();
            assert!(why.contains(&format!("{break_even} rows")), "{why}");
        }
    }
}

/// What a process took.
#[derive(Default)]
struct Took {
    peak_mib: u64,
    processor_seconds: u64,
}

/// Runs a line to its end; its JSON, and what /proc says of it.
fn watched(place: &Place, line: &str) -> (serde_json::Value, Took) {
    let command = place.command(&format!("--json {line}"));
    let mut child = { command }.stdout(Stdio::piped()).spawn().unwrap();
    let folder = format!("/proc/{}", child.id());
    let mut took = Took::default();
    while child.try_wait().unwrap().is_none() {
        let status = fs::read_to_string(format!("{folder}/status")).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
        took.peak_mib = kib.map_or(took.peak_mib, |kib| kib >> 10);
        let stat = fs::read_to_string(format!("{folder}/stat")).unwrap_or_default();
        // Behind the name, user and system time are fields 12 and 13, in hundredths of a second.
        let fields: Vec<u64> = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        if let Some([user, system]) = fields.get(11..13) {
            took.processor_seconds = (user + system) / 100;
        }
        thread::sleep(Duration::from_millis(100));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{line}");
    (serde_json::from_slice(&output.stdout).unwrap(), took)
}

/// Whole columns of 65,536 rows from upload to decryption, one function and two, in every ring:
/// `cargo test --release -p toroid --test ring_columns -- --ignored --nocapture`. It takes minutes, 7 GB of memory, and 3 GB of a disk.
/// `RINGS=ring16` picks one. `docs/results/column-map.md` has its last result.
#[test]
#[ignore = "takes minutes and 7 GB of memory"]
fn full_columns() {
    let wanted = std::env::var("RINGS").unwrap_or_else(|_| "ring8 ring12 ring16".to_owned());
    for (name, bits) in [("ring8", 8u32), ("ring12", 12), ("ring16", 16)] {
        if !wanted.split_whitespace().any(|ring| ring == name) {
            continue;
        }
        let place = Place::new();
        place.ok("keys generate --params message16 --unencrypted --client-only");
        place.ok("drive format d.img --size 4GiB --swap 16MiB --metadata nvme");
        let keys = place.json(&format!("column keys d.img --ring {name}"));
        let (bytes, seconds) = (&keys["bytes"], &keys["seconds"]);
        println!("{name}: key {bytes} bytes in {seconds} s");
        // Every message, in another order than theirs.
        let modulus = 1i64 << bits;
        let numbers: Vec<i64> = (0..65536)
            .map(|row| row * 40503 % 65536 % modulus)
            .collect();
        let put = place.column(
            "x",
            &numbers,
            &format!("--ring {name} --bits {bits} --unsigned"),
        );
        let header = format!(
            "\
.reg x = cor:0
.reg y = cor:1
.tv f unsigned in={bits} out={bits} = (x * x + 40503 * (x / 3)) % {modulus}
.tv g unsigned in={bits} out={bits} = x > 99 ? {modulus} - x : x * 5 % {modulus}

    mov y, x
"
        );
        let f = |x: i64| (x * x + 40503 * (x / 3)) % modulus;
        let g = |x: i64| if x > 99 { modulus - x } else { x * 5 % modulus };
        let one = numbers.iter().map(|&x| f(x)).collect::<Vec<_>>();
        let two = numbers.iter().map(|&x| (f(x) + g(x)) % modulus);
        let two = two.collect::<Vec<_>>();
        for (output, text, expected) in [
            ("one", "    bootstrap f, x\n", one),
            (
                "two",
                "    bootstrap f, x\n    bootstrap g, y\n    homadd x, y\n",
                two,
            ),
        ] {
            fs::write(
                place.path("p.tasm"),
                format!("{header}{text}    return x\n"),
            )
            .unwrap();
            let map = format!("map d.img p.tasm --input x=x --output {output}");
            let (done, took) = watched(&place, &map);
            let (seconds, failure) = (&done["seconds"], &done["log2_p_fail"]);
            let bytes = put["bytes"].as_u64().unwrap() + done["bytes"].as_u64().unwrap();
            let found = place.rows(output, "");
            let wrong = wrong_rows(&found, &expected);
            println!(
                "{name}, {output}: {seconds} s, {} s of processors, {} MiB at most, {bytes} bytes of columns, 2^{failure}, {wrong} of {} rows wrong",
                took.processor_seconds,
                took.peak_mib,
                found.len()
            );
            assert_eq!((wrong, found.len()), (0, expected.len()));
            assert!(bytes <= 16_000_000);
        }
    }
}

/// How many rows are not as they should be.
fn wrong_rows(found: &[i64], expected: &[i64]) -> usize {
    let pairs = found.iter().zip(expected);
    pairs.filter(|(found, right)| found != right).count()
}

/// A whole column of samples of `message16` by one ciphertext of `ring16`, with the result in either form, as [`full_columns`] runs:
/// `cargo test --release -p toroid --test ring_columns -- --ignored --nocapture full_samples`.
#[test]
#[ignore = "takes minutes and 10 GB of memory"]
fn full_samples_by_ciphertexts() {
    let place = Place::new();
    place.ok("keys generate --params message16 --unencrypted --client-only");
    place.ok("drive format d.img --size 4GiB --swap 16MiB --metadata nvme");
    let keys = place.json("column keys d.img");
    println!(
        "{}: conversion key {} bytes",
        keys["ring"], keys["conversion_bytes"]
    );
    let numbers: Vec<i64> = (0..65536).map(|row| row * 40503 % 65536).collect();
    place.column("s", &numbers, "--unsigned");
    let f = |x: i64| (x * x + 40503 * (x / 3)) % 65536;
    let text = ".reg x = cor:0\n.tv f unsigned in=16 out=16 = (x * x + 40503 * (x / 3)) % 65536\n    bootstrap f, x\n    return x\n";
    fs::write(place.path("f.tasm"), text).unwrap();
    let expected: Vec<i64> = numbers.iter().map(|&x| f(x)).collect();
    for (output, form) in [("ring", ""), ("samples", "--result samples")] {
        let map = format!("map d.img f.tasm --input x=s --output {output} {form}");
        let (done, took) = watched(&place, &map);
        // The cheaper way is chosen without being asked for.
        assert_eq!(done["route"], "ring", "{done}");
        let found = place.rows(output, "");
        let wrong = wrong_rows(&found, &expected);
        println!(
            "to {output}: {} s, {} s of processors, {} MiB at most, {} bytes, 2^{}, {wrong} of {} rows wrong",
            done["seconds"],
            took.processor_seconds,
            took.peak_mib,
            done["bytes"],
            done["log2_p_fail"],
            found.len()
        );
        assert_eq!((wrong, found.len()), (0, expected.len()));
    }
}

#[test]
fn a_ledger_binds_ring_columns_and_what_is_made_of_them() {
    let (place, x, y) = NARROW.drive();
    for (name, rows) in [("a", &x), ("b", &y)] {
        let form = format!("{} --ledger l", NARROW.options());
        place.column(name, rows, &form);
    }
    let map = "map d.img p.tasm --input x=a --input y=b --output o --ledger l";
    place.ok(map);
    assert_eq!(place.rows("o", "--ledger l"), NARROW.interpret(&x, &y));
    assert_eq!(place.json(map)["computed"], 0);
    // The rows of a part, which an append to the inputs does not change, are those of the inputs in the ledger.
    let part = "map d.img p.tasm --input x=a --input y=b --output part --rows 300..310 --ledger l";
    place.ok(part);
    let ledger = fs::read(place.path("l")).unwrap();
    assert!(String::from_utf8_lossy(&ledger).contains("300..310"));
    // A sum of all ciphertexts, which stands in the place of the one before.
    let total = ".reg x = cor:0\n    homsum x, 0\n    return x\n";
    fs::write(place.path("t.tasm"), total).unwrap();
    place.ok("map d.img t.tasm --input x=a --output t --ledger l");
    let sum = x.iter().sum::<i64>() % NARROW.modulus();
    assert_eq!(place.rows("t", "--ledger l --max-failure 2^-20"), [sum]);
    let earlier = fs::read(place.path("d.img")).unwrap();
    for name in ["a", "b"] {
        place.column(name, &x[..40], "--append --ledger l");
    }
    assert_eq!(place.json(part)["computed"], 0);
    let again = place.json(&format!("{map} --replace"));
    assert_eq!(again["computed"], ROWS + 40);
    let expected = [
        NARROW.interpret(&x, &y),
        NARROW.interpret(&x[..40], &x[..40]),
    ]
    .concat();
    assert_eq!(place.rows("o", "--ledger l"), expected);
    // The drive of before, and columns that were put without the ledger.
    fs::write(place.path("d.img"), earlier).unwrap();
    let words: &[&str] = &["cannot be trusted", "this client has put version"];
    for name in ["a", "o"] {
        place.fails(1, &format!("column get d.img {name} --ledger l"), words);
    }
    let words: &[&str] = &["not what this client put there"];
    place.fails(1, "column get d.img x --ledger l", words);
}
