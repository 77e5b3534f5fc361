//! A column on a drive: on an image in this process, and over NVMe/TCP on loopback.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt, TryStreamExt};
use toroid_bench_common::Error;
use toroid_client::blob;
use toroid_client::columns::{EncryptedRows, MapRequest, Way};
use toroid_client::drive::Drive;
use toroid_client::session::Session;
use toroid_drive::image::{FormatOptions, MetadataMode};
use toroid_nvme::fabrics::RemoteController;
use toroid_nvme::tcp::Digests;
use toroid_nvme::{Controller, flush, read_blocks, write_blocks};
use toroid_nvme_bench::load::{BLOCK, Load};
use toroid_nvme_bench::loopback::{connect, make_image, runtime, serve_here};
use toroid_nvme_bench::row::Unit;
use toroid_task::Progress;
use toroid_tfhe::column::{ColumnForm, column_bytes};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::ParamSet;

use crate::numbers::numbers;
use crate::row::{Part, Row};

/// Times that everything is done.
pub const RUNS: usize = 5;
/// Rows that are appended at a time.
const APPENDED: usize = 1000;
const KEY_ID: u32 = 0;
/// Rows of a sum: those of more would have too much noise for the bits that their sum needs.
const SUMMED: usize = 1 << 16;
const SUM: &str = ".reg x = cor:0\n    homsum x, 65536\n    return x\n";
/// How long plain commands run at a time.
const PLAIN: Duration = Duration::from_secs(1);
/// Bytes of a plain command.
const PLAIN_BYTES: u64 = 128 << 10;
/// Plain commands on their way at a time.
const PLAIN_DEPTH: usize = 16;
/// Columns are to move at this share of the rate of plain commands.
const RATE_BAR: f64 = 0.5;

/// What a column is made of.
pub struct Numbers {
    /// Bits of a number.
    pub bits: u32,
    /// Wide enough for the sum of [`SUMMED`] of them.
    pub encoding: Encoding,
    values: Vec<i64>,
}

impl Numbers {
    pub fn new(params: &ParamSet, count: usize) -> Result<Numbers, Error> {
        let bits = params.message_bits.min(16);
        Ok(Numbers {
            bits,
            encoding: Encoding::of_samples(params, bits + SUMMED.ilog2(), false)?,
            values: numbers(count, 1 << bits),
        })
    }
}

fn seconds<T, E>(call: impl FnOnce() -> Result<T, E>) -> Result<(f64, T), E> {
    let start = Instant::now();
    let result = call()?;
    Ok((start.elapsed().as_secs_f64(), result))
}

fn best(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

fn check(what: &str, holds: bool) -> Result<(), Error> {
    match holds {
        true => Ok(()),
        false => Err(format!("{what} decrypts to something else").into()),
    }
}

fn row(name: &str, ours: f64, unit: &'static str) -> Row {
    eprintln!("{name}: {ours:.3} {unit}");
    Row::new(Part::Storage, name, ours, unit)
}

/// The rows of a drive in this process.
pub fn on_an_image(client: &ClientKey, numbers: &Numbers) -> Result<Vec<Row>, Error> {
    let none = Progress::none();
    let (encoding, mut plain) = (numbers.encoding, numbers.values.clone());
    let count = plain.len() as f64;
    let drive = Drive::temporary()?;
    let session = drive.session();
    let encrypt = |plain: &[i64]| EncryptedRows::encrypt(client, encoding, plain, &none);
    eprintln!("keeping {count} rows on an image …");
    let (mut encrypted, mut stored, mut read) = (Vec::new(), Vec::new(), Vec::new());
    let mut bytes = 0.0;
    for run in 0..RUNS {
        let (taken, rows) = seconds(|| encrypt(&plain))?;
        encrypted.push(taken);
        if run > 0 {
            drive.wait(session.delete_column("x"))?;
        }
        let create = session.create_column("x", KEY_ID, &rows, &none);
        let (taken, stat) = seconds(|| drive.wait(create))?;
        stored.push(taken);
        bytes = stat.bytes as f64;
        let get = || -> Result<Vec<i64>, Error> {
            let rows = drive.wait(session.read_rows("x", None, &none))?;
            Ok(rows.decrypt(client)?)
        };
        let (taken, found) = seconds(get)?;
        read.push(taken);
        check("the column", found == plain)?;
    }
    let (mut appended, mut replaced, mut summed) = (Vec::new(), Vec::new(), Vec::new());
    let program = toroid_isa::assemble(SUM)?;
    for run in 0..RUNS {
        let more: Vec<i64> = plain.iter().take(APPENDED).copied().collect();
        let rows = encrypt(&more)?;
        let append = session.append_rows("x", &rows, &none);
        appended.push(seconds(|| drive.wait(append))?.0);
        plain.extend(&more);
        let (at, value) = (plain.len() * (2 * run + 1) / (2 * RUNS), run as i64);
        let rows = encrypt(&[value])?;
        let replace = session.replace_rows("x", at as u64, &rows, &none);
        replaced.push(seconds(|| drive.wait(replace))?.0);
        plain[at] = value;
        // Each sum is that of other rows, and nothing is kept of it.
        let output = format!("sum{run}");
        let request = MapRequest {
            program: &program,
            inputs: &[("x", "x")],
            rows: None,
            output: &output,
            replace: false,
            unit: None,
            way: Way::Samples,
            form: None,
            kept: None,
        };
        summed.push(seconds(|| drive.wait(session.map(&request, &none)))?.0);
        let sum = drive.wait(session.read_rows(&output, None, &none))?;
        let expected = plain.chunks(SUMMED).map(|rows| rows.iter().sum());
        let expected: Vec<i64> = expected.collect();
        check("the sum", sum.decrypt(client)? == expected)?;
    }
    let rows = drive.wait(session.read_rows("x", None, &none))?;
    check("the changed column", rows.decrypt(client)? == plain)?;
    drive.close()?;
    Ok(vec![
        row(
            "encrypted, all cores",
            count / best(&encrypted),
            "numbers/s",
        ),
        row("stored on an image", bytes / best(&stored) / 1e6, "MB/s"),
        row(
            "read back and decrypted, all cores",
            count / best(&read),
            "numbers/s",
        ),
        row("1,000 rows appended", 1e3 * median(appended), "ms"),
        row("one row replaced", 1e3 * median(replaced), "ms"),
        row("all rows summed on the drive", median(summed), "s"),
    ])
}

/// Plain commands that go on for a while, in MB/s.
async fn steady(host: &RemoteController, write: bool) -> Result<f64, Error> {
    let load = Load {
        name: "plain commands",
        depth: PLAIN_DEPTH,
        bytes: PLAIN_BYTES,
        write,
        unit: Unit::Bytes,
        bar: None,
        host,
    };
    Ok(load.rate(PLAIN).await? / 1e6)
}

/// Plain commands that move so many bytes, one behind the other, in MB/s. A Flush ends writes, so that they are as durable as a column.
async fn as_many(host: &RemoteController, bytes: u64, write: bool) -> Result<f64, Error> {
    let commands = bytes.div_ceil(PLAIN_BYTES);
    let data = vec![7; PLAIN_BYTES as usize];
    // What others wrote before is not counted.
    flush(host, 1).await?;
    let start = Instant::now();
    let submitted = (0..commands).map(|command| {
        let (blocks, data) = (PLAIN_BYTES / BLOCK, &data);
        async move {
            let slba = command * blocks;
            match write {
                true => write_blocks(host, 1, slba, data, &[], false).await,
                false => read_blocks(host, 1, slba, blocks).await.map(drop),
            }
        }
    });
    let ended = stream::iter(submitted).buffer_unordered(PLAIN_DEPTH);
    ended.try_collect::<()>().await?;
    if write {
        flush(host, 1).await?;
    }
    Ok((commands * PLAIN_BYTES) as f64 / start.elapsed().as_secs_f64() / 1e6)
}

/// The rows of a drive over NVMe/TCP, beside plain commands on the same connection.
pub fn over_tcp(client: &ClientKey, numbers: &Numbers) -> Result<Vec<Row>, Error> {
    eprintln!("moving columns over NVMe/TCP …");
    let options = FormatOptions {
        size: 1 << 30,
        swap: 16 << 20,
        metadata_mode: MetadataMode::SecondHalf,
        cluster_blocks: 256,
        ..FormatOptions::default()
    };
    let (_folder, path) = make_image(None, &options)?;
    let (started, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        if let Err(error) = serve_here(&path, started) {
            eprintln!("target: {error}");
        }
    });
    let (address, _drive) = address.recv()?;
    let none = Progress::none();
    let rows = EncryptedRows::encrypt(client, numbers.encoding, &numbers.values, &none)?;
    runtime()?.block_on(async {
        let host = connect(address, Digests::default()).await?;
        let size = column_bytes(rows.params(), ColumnForm::Seeded, rows.len())?;
        // Of writes, then of reads.
        let (mut steadily, mut at_once) = ([0.0f64; 2], [0.0f64; 2]);
        for (number, write) in [(0, true), (1, false)] {
            for _ in 0..RUNS {
                steadily[number] = steadily[number].max(steady(&host, write).await?);
                at_once[number] = at_once[number].max(as_many(&host, size, write).await?);
            }
        }
        let store = blob::FormatOptions {
            cluster_bytes: 256 * 4096,
            ..blob::FormatOptions::default()
        };
        let controller = Arc::new(host) as Arc<dyn Controller>;
        let session = Session::format(controller, 1, store).await?;
        let (mut up, mut down) = (Vec::new(), Vec::new());
        let mut bytes = 0.0;
        for run in 0..RUNS {
            if run > 0 {
                session.delete_column("x").await?;
            }
            let start = Instant::now();
            let stat = session.create_column("x", KEY_ID, &rows, &none).await?;
            up.push(start.elapsed().as_secs_f64());
            bytes = stat.bytes as f64 / 1e6;
            let start = Instant::now();
            let found = session.read_rows("x", None, &none).await?;
            down.push(start.elapsed().as_secs_f64());
            check("the column", found.decrypt(client)? == numbers.values)?;
        }
        let mut table = Vec::new();
        for (number, times) in [up, down].iter().enumerate() {
            let what = ["uploaded over NVMe/TCP", "downloaded over NVMe/TCP"][number];
            let peers = [
                ["plain writes, not durable", "plain reads"][number],
                ["as many bytes and a Flush", "as many bytes"][number],
            ];
            let (rates, names) = (
                [steadily[number], at_once[number]],
                [what.to_owned(), format!("{what}, like for like")],
            );
            for ((name, peer), peer_rate) in names.iter().zip(peers).zip(rates) {
                let row = row(name, bytes / best(times), "MB/s");
                table.push(row.beside(peer, peer_rate).ratio_at_least(RATE_BAR));
            }
        }
        Ok(table)
    })
}
