//! Keys, programs and columns, by commands of `toroid`, and reads that trigger a program.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use toroid_nvme::fabrics::ConnectOptions;
use toroid_nvme::{Controller, Request, Sqe, Status, tcp};

use crate::server::Server;
use crate::{Counters, Failure, LIMIT, Numbers, add, timed};

/// By a write of y: the larger of x and y.
const MAXIMUM: &str = "
.reg x = cor:1
.reg y = cow:2
.tv positive = max(x, 0)
    homsub    x, y
    bootstrap positive, x
    homadd    x, y
    return    x
";
/// By a read of x, under a key id of its own.
const SQUARE: &str = "
.key 1
.reg x = cor:1
.tv square = x * x / 8
    bootstrap square, x
    return    x
";
/// Over a column.
const AFFINE: &str = "
.reg x = cor:0
.tv affine unsigned = (x * 5 + 3) % 16
    bootstrap affine, x
    return    x
";
/// Rows of the column.
const ROWS: usize = 300;
/// What belongs to the keys that are replaced, but for columns.
const OF_KEYS: &str = "key:0:1 key:0:2 tv:0:0 prg:0:0 cor:0:1 cow:0:2";
/// The key id of reads that trigger a program; the other one's keys are replaced.
const OF_READS: &str = "--key-id 1";

/// What reads trigger is prepared once.
pub fn prepare(server: &Server) -> Result<(), Failure> {
    let write = |name: &str, text: &str| std::fs::write(server.folder.join(name), text);
    write("maximum.tasm", MAXIMUM)?;
    write("square.tasm", SQUARE)?;
    write("affine.tasm", AFFINE)?;
    let drive = &server.computing;
    for line in [
        "keys generate --params tiny --unencrypted --out fixed".to_owned(),
        format!(
            "put {drive} fixed/bootstrapping.key fixed/key-switching.key square.tasm {OF_READS}"
        ),
        "encrypt 3 --key fixed/client.key --out fixed.ct".to_owned(),
        format!("put {drive} fixed.ct --as cor:1:1"),
        format!("run {drive} cor:1:1 --out square.ct"),
    ] {
        server.toroid(&format!("-q {line}"))?;
    }
    let result = server.toroid("decrypt square.ct --key fixed/client.key")?;
    is("the square's eighth", first(&result), "1")?;
    new_keys(server)
}

fn first(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

fn is(what: &str, found: &str, expected: &str) -> Result<(), Failure> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what} is {found:?}, not {expected:?}").into())
}

/// New keys, and the program for them.
fn new_keys(server: &Server) -> Result<(), Failure> {
    let drive = &server.computing;
    server.toroid("-q keys generate --params tiny --unencrypted --force")?;
    server.toroid(&format!(
        "-q put {drive} keys/bootstrapping.key keys/key-switching.key maximum.tasm"
    ))?;
    Ok(())
}

/// Rounds of commands until `end`, with new keys after every `keys` of them.
pub fn work(
    server: &Server,
    end: Instant,
    pause: Duration,
    keys: u64,
    counters: &Counters,
) -> Result<(), Failure> {
    let mut numbers = Numbers(11);
    let mut round = 0;
    while Instant::now() < end {
        round += 1;
        if round % keys == 0 {
            let drive = &server.computing;
            server.toroid(&format!("-q delete {drive} {OF_KEYS}"))?;
            new_keys(server)?;
            add(&counters.keys, 1);
        }
        program(server, &mut numbers)?;
        add(&counters.programs, 1);
        column(server, &mut numbers)?;
        add(&counters.rows, ROWS as u64);
        std::thread::sleep(pause.min(end.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

/// Runs the program by a write.
fn program(server: &Server, numbers: &mut Numbers) -> Result<(), Failure> {
    let drive = &server.computing;
    let mut number = || numbers.below(8).cast_signed() - 4;
    let (x, y) = (number(), number());
    for line in [
        format!("encrypt {x} --out x.ct --force"),
        format!("encrypt {y} --out y.ct --force"),
        format!("put {drive} x.ct --as cor:0:1"),
        format!("run {drive} cow:0:2 --write y.ct --out maximum.ct --force"),
    ] {
        server.toroid(&format!("-q {line}"))?;
    }
    let result = server.toroid("decrypt maximum.ct")?;
    is("the maximum", first(&result), &x.max(y).to_string())
}

/// Runs the program over a column.
fn column(server: &Server, numbers: &mut Numbers) -> Result<(), Failure> {
    let drive = &server.computing;
    let rows: Vec<u64> = (0..ROWS).map(|_| numbers.below(16)).collect();
    let (mut text, mut expected) = (String::new(), String::new());
    for row in &rows {
        writeln!(text, "{row}")?;
        writeln!(expected, "{}", (row * 5 + 3) % 16)?;
    }
    std::fs::write(server.folder.join("numbers"), text)?;
    for line in [
        format!("column put {drive} x numbers --unsigned"),
        format!("map {drive} affine.tasm --input x=x --output y"),
        format!("column get {drive} y --out results --force"),
        format!("column delete {drive} x"),
        format!("column delete {drive} y"),
    ] {
        server.toroid(&format!("-q {line}"))?;
    }
    let results = std::fs::read_to_string(server.folder.join("results"))?;
    is("the column", &results, &expected)
}

/// Reads that trigger the program, one after the other, until `end`.
pub async fn trigger(
    server: Arc<Server>,
    end: Instant,
    pause: Duration,
    counters: Arc<Counters>,
) -> Result<(), Failure> {
    let map = server.toroid(&format!("drive map {}", server.computing))?;
    let row = map.lines().find(|line| line.starts_with("cor:1:1"));
    let columns: Vec<u64> = row
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let [_, _, lba, blocks, _] = columns[..] else {
        return Err(format!("no place of the sample in {map:?}").into());
    };
    let options = ConnectOptions {
        timeout: LIMIT,
        ..ConnectOptions::new("nqn.2024-01.io.example:reader", [97; 16])
    };
    let controller = tcp::connect(&server.computing, &options).await?;
    while Instant::now() < end {
        let request = Request::new(Sqe::read(0, 1, lba, (blocks - 1) as u16));
        let response = timed(controller.submit(request), &counters.worst).await?;
        if response.cqe.status() != Status::SUCCESS {
            return Err(format!("a read that triggers: {}", response.cqe.status()).into());
        }
        add(&counters.triggered_reads, 1);
        tokio::time::sleep(pause).await;
    }
    Ok(())
}
