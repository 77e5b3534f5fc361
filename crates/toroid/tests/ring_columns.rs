//! Ring columns from the command line: programs over them against a plain interpreter, kills, and what is refused.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;
mod serving;

use std::fmt::Write as _;
use std::fs;
use std::thread;
use std::time::Duration;

use common::Place;
use serving::{Numbers, Server};

/// Rows of two full ciphertexts of `tiny-ring` and a part of a third.
const ROWS: usize = 600;

/// x - y + 5 to f and g, and f of the sum of these: messages of 4 bits, modulo 16.
const PROGRAM: &str = "\
.reg x = cor:0
.reg y = cor:1
.tv f unsigned in=4 out=4 = (x * 5 + 3) % 16
.tv g unsigned in=4 out=4 = x > 9 ? x - 9 : 0

    homsub x, y
    homintadd x, 5
    mov y, x
    bootstrap f, x
    bootstrap g, y
    homintmult y, 2
    homadd x, y
    return x
";

fn interpret(x: &[i64], y: &[i64]) -> Vec<i64> {
    let row = |(x, y): (&i64, &i64)| {
        let d = (x - y + 5).rem_euclid(16);
        let g = if d > 9 { d - 9 } else { 0 };
        ((d * 5 + 3) % 16 + 2 * g) % 16
    };
    x.iter().zip(y).map(row).collect()
}

fn random_numbers(seed: u64, count: usize) -> Vec<i64> {
    let mut random = Numbers(seed);
    (0..count).map(|_| random.below(16).cast_signed()).collect()
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

/// A drive with a ring key and ring columns x and y, without any key of samples.
fn drive() -> (Place, Vec<i64>, Vec<i64>) {
    let place = Place::new();
    place.ok("keys generate --params tiny-wopbs --unencrypted --client-only");
    place.ok("drive format d.img --size 256MiB --swap 16MiB --metadata nvme");
    let keys = place.json("column keys d.img");
    assert_eq!(keys["ring"], "tiny-ring");
    let (x, y) = (random_numbers(1, ROWS), random_numbers(2, ROWS));
    for (name, rows) in [("x", &x), ("y", &y)] {
        let put = place.column(name, rows, "--form ring --bits 4 --unsigned");
        assert_eq!(put["rows"], ROWS);
        assert_eq!(
            (&put["ring"], &put["pieces"]),
            (&"tiny-ring".into(), &3.into())
        );
    }
    fs::write(place.path("p.tasm"), PROGRAM).unwrap();
    (place, x, y)
}

const MAP: &str = "p.tasm --input x=x --input y=y --output o";

#[test]
fn a_program_on_ring_columns_gives_what_an_interpreter_gives() {
    let (place, x, y) = drive();
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
    let expected = interpret(&x, &y);
    assert_eq!(place.rows("o", ""), expected);
    // The same again computes nothing, and a result is an input.
    assert_eq!(place.json(&format!("map d.img {MAP}"))["computed"], 0);
    let again = "map d.img p.tasm --input x=o --input y=y --output o2";
    place.ok(again);
    assert_eq!(place.rows("o2", ""), interpret(&expected, &y));

    // Appended rows are ciphertexts of their own, and another result.
    let more = random_numbers(3, 40);
    let put = place.column("x", &more, "--append");
    assert_eq!((&put["rows"], &put["pieces"]), (&640.into(), &4.into()));
    place.column("y", &more, "--append");
    place.fails(1, &format!("map d.img {MAP}"), &["something else"]);
    let done = place.json(&format!("map d.img {MAP} --replace"));
    assert_eq!(done["commands"], 4);
    let [x, y] = [x, y].map(|rows| [rows, more.clone()].concat());
    assert_eq!(place.rows("o", ""), interpret(&x, &y));
}

/// The process, with the drive in it, is killed again and again.
#[test]
fn a_map_of_ring_columns_survives_kills() {
    let (place, x, y) = drive();
    let (mut kills, mut before) = (0, 0);
    for wait in [150, 300, 450, 600, 800, 1000] {
        let mut child = place
            .command(&format!("-q map d.img {MAP}"))
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(wait));
        if child.try_wait().unwrap().is_some() {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        let Some(column) = place.listed("o") else {
            assert_eq!(before, 0, "the output is gone");
            continue;
        };
        let done = column["done"].as_u64().unwrap();
        assert!(done >= before && (done % 256 == 0 || done == ROWS as u64));
        assert_eq!(column["rows"], done);
        before = done;
    }
    assert!(kills > 0, "the run was never killed");
    let ended = place.json(&format!("map d.img {MAP}"));
    assert!(ended["computed"].as_u64().unwrap() <= ROWS as u64 - before);
    assert_eq!(place.rows("o", ""), interpret(&x, &y));
}

#[test]
fn ring_columns_over_tcp() {
    let (place, x, y) = drive();
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
    assert_eq!(place.rows("o", ""), interpret(&x, &y));
}

#[test]
fn what_ring_columns_refuse() {
    let (place, x, _) = drive();
    place.column("s", &x, "--bits 4 --unsigned");
    place.fails(
        1,
        "map d.img p.tasm --input x=x --input y=s --output o",
        &["column s", "ring column"],
    );
    // Other rows, other keys, a part of the rows, a program that moves rows, rows in the place of others, and wide numbers.
    place.column("short", &x[..40], "--form ring --bits 4 --unsigned");
    place.fails(
        1,
        "map d.img p.tasm --input x=x --input y=short --output o",
        &["column short", "rows"],
    );
    place.fails(1, &format!("map d.img {MAP} --rows 0..9"), &["all"]);
    fs::write(
        place.path("sum.tasm"),
        ".reg x = cor:0\n    homsum x, 2\n    return x\n",
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
        "column put d.img w numbers --form ring --bits 5",
        &["at most 4 bits"],
    );
    place.ok("keys generate --params tiny-wopbs --unencrypted --client-only --out other");
    let said = place.run("column get d.img x --key other/client.key");
    assert_ne!(said.code, Some(0));
    let said = place.run("column put d.img x numbers --append --key other/client.key");
    assert_ne!(said.code, Some(0));
    // Without a ring key the message says what to do.
    place.ok("drive format e.img --size 64MiB --swap 16MiB --metadata nvme");
    place.ok("column put e.img x numbers --form ring --bits 4 --unsigned");
    place.ok("column put e.img y numbers --form ring --bits 4 --unsigned");
    place.fails(1, &format!("map e.img {MAP}"), &["toroid column keys"]);
}
