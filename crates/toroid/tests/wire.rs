//! Drives over NVMe/TCP: the same results as in process, by the client and by the blocks that `dd` would move.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use toroid_drive::image::Image;
use toroid_drive::{Drive, DriveConfig};
use toroid_engine::backend::cpu::CpuBackend;
use toroid_nvme::fabrics::auth::{AuthHash, Secret};
use toroid_nvme::fabrics::{
    AllowedHost, ConnectOptions, Hosts, Limits, RemoteController, Subsystem, Target,
};
use toroid_nvme::tcp::{self, Address, serve};
use toroid_nvme::{Controller, read_blocks, write_blocks};
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::serialize::{Header, ObjectReader};

use common::Place;

const NQN: &str = "nqn.2024-01.io.example:drive";
const HOST: &str = "nqn.2024-01.io.example:host";
const BLOCK: usize = 4096;

/// A drive that this process serves, in integer arithmetic.
struct Served {
    address: SocketAddr,
    drive: Arc<Drive>,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<std::io::Result<()>>>,
    runtime: Runtime,
}

impl Served {
    fn new(image: &Path, hosts: Hosts) -> Served {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let config = DriveConfig::new(Arc::new(CpuBackend::new(ArithmeticKind::Ntt)));
        let drive = Arc::new(Drive::open(Image::open(image).unwrap(), config).unwrap());
        let behind = Arc::clone(&drive);
        let subsystem = Subsystem {
            nqn: NQN.into(),
            storage: Arc::new(move |_: &str| Ok(Arc::clone(&behind) as Arc<dyn Controller>)),
            hosts,
        };
        let target = Target::new(vec![subsystem], Limits::default(), None).unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = runtime.spawn(serve(listener, target, 64, async {
            let _ = stopped.await;
        }));
        Served {
            address,
            drive,
            stop: Some(stop),
            task: Some(task),
            runtime,
        }
    }

    fn url(&self) -> String {
        format!("nvme+tcp://{}/{NQN}", self.address)
    }

    fn connect(&self) -> RemoteController {
        let address: Address = self.url().parse().unwrap();
        let options = ConnectOptions::new(HOST, [7; 16]);
        self.runtime
            .block_on(tcp::connect(&address, &options))
            .unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
        if let Some(task) = self.task.take() {
            let _ = self.runtime.block_on(task);
        }
        self.drive.shutdown().unwrap();
    }
}

fn sample(path: &Path) -> (Header, Vec<u8>) {
    let (header, bytes) = ObjectReader::new(File::open(path).unwrap())
        .unwrap()
        .read_all()
        .unwrap();
    (header, bytes.to_vec())
}

/// Samples whose words, noise and failure probability are the same; a drive does not keep whole tags.
fn assert_same(place: &Place, one: &str, other: &str) {
    let (one, other) = (sample(&place.path(one)), sample(&place.path(other)));
    assert!(one.1 == other.1, "the words differ");
    let figures = |header: &Header| {
        (
            header.params.name,
            header.encoding,
            header.log2_variance,
            header.log2_failure,
        )
    };
    assert_eq!(figures(&one.0), figures(&other.0));
}

const KEYS: &str = "keys/bootstrapping.key keys/key-switching.key";

fn place() -> Place {
    let place = Place::new();
    place.ok("keys generate --params tiny --unencrypted");
    place.ok("encrypt 3 --out x.ct");
    place.ok("encrypt -2 --out y.ct");
    place.copy_example("crates/isa/examples/multiply.tasm");
    place
}

fn format(place: &Place, image: &str, metadata: &str) {
    place.ok(&format!(
        "drive format {image} --size 32MiB --swap 16MiB --metadata {metadata}"
    ));
}

#[test]
fn every_way_gives_the_same_result() {
    let place = place();
    format(&place, "local.img", "second-half");
    place.ok(&format!("put local.img {KEYS} multiply.tasm"));
    place.ok("put local.img x.ct --as cor:0:1");
    place.ok("run local.img cow:0:2 --write y.ct --out local.ct --arithmetic ntt");
    // With what the drive states of it: `run` states what follows from the program, where that is worse.
    place.ok("get local.img cow:0:2 --out stored.ct");
    assert_eq!(place.decrypted("local.ct"), -6);
    for metadata in ["second-half", "nvme"] {
        let image = format!("{metadata}.img");
        format(&place, &image, metadata);
        {
            let served = Served::new(&place.path(&image), Hosts::Any);
            let url = served.url();
            place.ok(&format!("put {url} {KEYS} multiply.tasm"));
            place.ok(&format!("put {url} x.ct --as cor:0:1"));
            place.ok(&format!("run {url} cow:0:2 --write y.ct --out first.ct"));
            assert_same(&place, "local.ct", "first.ct");
            // The program has used up the register of x, and is loaded when x is read again.
            place.ok(&format!("run {url} cow:0:2 --write y.ct --out second.ct"));
            assert_same(&place, "local.ct", "second.ct");
            place.ok(&format!("get {url} cow:0:2 --out got.ct"));
            assert_same(&place, "stored.ct", "got.ct");
        }
        // Another run of the drive: its registers are empty, and the keys must be loaded.
        let served = Served::new(&place.path(&image), Hosts::Any);
        let url = served.url();
        place.ok(&format!(
            "run {url} cow:0:2 --write y.ct --out third.ct --digests header,data"
        ));
        assert_same(&place, "local.ct", "third.ct");
        for name in ["first", "second", "third", "got"] {
            fs::remove_file(place.path(&format!("{name}.ct"))).unwrap();
        }
    }
}

/// What a host does that has nothing but the blocks.
#[test]
fn blocks_alone_compute() {
    let place = place();
    format(&place, "local.img", "second-half");
    place.ok(&format!("put local.img {KEYS} multiply.tasm"));
    place.ok("put local.img x.ct --as cor:0:1");
    place.ok("run local.img cow:0:2 --write y.ct --out local.ct --arithmetic ntt");
    // With what the drive states of it: `run` states what follows from the program, where that is worse.
    place.ok("get local.img cow:0:2 --out stored.ct");
    for (name, register) in [("x", "cor:0:1"), ("y", "cow:0:2")] {
        place.ok(&format!(
            "raw pack {name}.ct {register} --out-data {name}.data --out-metadata {name}.meta --extended {name}.ext"
        ));
    }
    for metadata in ["second-half", "nvme"] {
        let image = format!("{metadata}.img");
        format(&place, &image, metadata);
        let served = Served::new(&place.path(&image), Hosts::Any);
        let url = served.url();
        place.ok(&format!("put {url} {KEYS} multiply.tasm"));
        let controller = served.connect();
        let read = |name: &str| fs::read(place.path(name)).unwrap();
        let mut at = Value::Null;
        for (name, register) in [("x", "cor:0:1"), ("y", "cow:0:2")] {
            let reserved = place.json(&format!("reserve {url} {register}"));
            assert_eq!(reserved, place.json(&format!("drive map {url} {register}")));
            // Room that is there stays where it is.
            assert_eq!(reserved, place.json(&format!("reserve {url} {register}")));
            at = reserved["objects"][0].clone();
            let lba = at["lba"].as_u64().unwrap();
            let write = |lba, data: Vec<u8>, metadata: Vec<u8>| {
                served
                    .runtime
                    .block_on(write_blocks(&controller, 1, lba, &data, &metadata, false))
                    .unwrap();
            };
            match at["metadata_lba"].as_u64() {
                Some(metadata_lba) => {
                    write(metadata_lba, read(&format!("{name}.meta")), Vec::new());
                    write(lba, read(&format!("{name}.data")), Vec::new());
                }
                None => {
                    let extended = read(&format!("{name}.ext"));
                    let (data, metadata): (Vec<_>, Vec<_>) = extended
                        .chunks_exact(BLOCK + 64)
                        .map(|block| block.split_at(BLOCK))
                        .unzip();
                    write(lba, data.concat(), metadata.concat());
                }
            }
        }
        let blocks = |lba: &str| {
            let lba = at[lba].as_u64().unwrap();
            served
                .runtime
                .block_on(read_blocks(
                    &controller,
                    1,
                    lba,
                    at["blocks"].as_u64().unwrap(),
                ))
                .unwrap()
        };
        let result = blocks("lba");
        if metadata == "second-half" {
            fs::write(place.path("r.data"), result.data).unwrap();
            fs::write(place.path("r.meta"), blocks("metadata_lba").data).unwrap();
            place.ok("raw unpack r.data r.meta --out r.ct --force");
        } else {
            let (data, metadata) = (result.data.chunks(BLOCK), result.metadata.chunks(64));
            let extended: Vec<u8> = data
                .zip(metadata)
                .flat_map(|(d, m)| [d, m].concat())
                .collect();
            fs::write(place.path("r.ext"), extended).unwrap();
            place.ok("raw unpack --extended r.ext --out r.ct --force");
        }
        assert_same(&place, "stored.ct", "r.ct");
        assert_eq!(place.decrypted("r.ct"), -6);
        drop(controller);
        // What was written without the store is an object of the store.
        place.ok(&format!("get {url} cow:0:2 --out got.ct --force"));
        assert_same(&place, "stored.ct", "got.ct");
    }
}

/// The same with a column: its result stands in the same blocks.
#[test]
fn blocks_alone_compute_on_a_column() {
    let place = place();
    let numbers: Vec<i64> = (0..40).map(|row| row * 5 % 11 - 5).collect();
    let text: Vec<String> = numbers.iter().map(i64::to_string).collect();
    fs::write(place.path("numbers"), text.join("\n")).unwrap();
    fs::write(
        place.path("each.tasm"),
        ".reg x = cow:2\n.tv f = x > 1 ? x - 1 : 0\nbootstrap f, x\nreturn x\n",
    )
    .unwrap();
    let packed =
        "column pack numbers cow:0:2 --out-data c.data --out-metadata c.meta --extended c.ext";
    let blocks = place.json(packed)["blocks"].as_u64().unwrap();
    place.fails(1, packed, &["--force"]);
    let bytes = blocks * BLOCK as u64;
    for metadata in ["second-half", "nvme"] {
        let image = format!("{metadata}.img");
        format(&place, &image, metadata);
        let served = Served::new(&place.path(&image), Hosts::Any);
        let url = served.url();
        place.ok(&format!("put {url} {KEYS} each.tasm"));
        let reserve = format!("reserve {url} cow:0:2 --column {bytes}");
        let at = place.json(&reserve)["objects"][0].clone();
        assert_eq!(at["blocks"], blocks);
        let controller = served.connect();
        let (lba, metadata_lba) = (at["lba"].as_u64().unwrap(), at["metadata_lba"].as_u64());
        let write = |lba, data: &[u8], metadata: &[u8]| {
            let write = write_blocks(&controller, 1, lba, data, metadata, false);
            served.runtime.block_on(write).unwrap();
        };
        let read = |lba, blocks| {
            let read = read_blocks(&controller, 1, lba, blocks);
            served.runtime.block_on(read).unwrap()
        };
        let file = |name: &str| fs::read(place.path(name)).unwrap();
        let expected: Vec<i64> = numbers.iter().map(|x| (x - 1).max(0)).collect();
        let unpack = match metadata_lba {
            Some(metadata_lba) => {
                write(metadata_lba, &file("c.meta"), &[]);
                write(lba, &file("c.data"), &[]);
                fs::write(place.path("r.data"), read(lba, blocks).data).unwrap();
                fs::write(place.path("r.meta"), read(metadata_lba, 1).data).unwrap();
                place.fails(
                    1,
                    "raw unpack r.data r.meta --out r.ct",
                    &["is not a sample"],
                );
                "column unpack r.data r.meta"
            }
            None => {
                let extended = file("c.ext");
                let (data, metadata): (Vec<_>, Vec<_>) = extended
                    .chunks_exact(BLOCK + 64)
                    .map(|block| block.split_at(BLOCK))
                    .unzip();
                write(lba, &data.concat(), &metadata.concat());
                let result = read(lba, blocks);
                let (data, metadata) = (result.data.chunks(BLOCK), result.metadata.chunks(64));
                let extended = data.zip(metadata).flat_map(|(d, m)| [d, m].concat());
                fs::write(place.path("r.ext"), extended.collect::<Vec<_>>()).unwrap();
                "column unpack --extended r.ext"
            }
        };
        let found = place.json(unpack);
        assert_eq!(found["rows"], serde_json::json!(expected));
    }
}

/// As docs/guides/wire.md has it: what the map lists, 256 KiB at a time, the program last.
#[test]
fn a_host_loads_a_drive_again_by_reading_its_blocks() {
    let place = place();
    format(&place, "d.img", "second-half");
    let (objects, y) = {
        let served = Served::new(&place.path("d.img"), Hosts::Any);
        let url = served.url();
        place.ok(&format!("put {url} {KEYS} multiply.tasm"));
        place.ok(&format!("put {url} x.ct --as cor:0:1"));
        let map = place.json(&format!("drive map {url}"));
        let reserved = place.json(&format!("reserve {url} cow:0:2"));
        (map["objects"].clone(), reserved["objects"][0].clone())
    };
    place.ok("raw pack y.ct cow:0:2 --out-data y.data --out-metadata y.meta");
    let served = Served::new(&place.path("d.img"), Hosts::Any);
    let host = served.connect();
    let read = |lba, blocks| {
        let read = read_blocks(&host, 1, lba, blocks);
        served.runtime.block_on(read).unwrap().data
    };
    let mut objects = objects.as_array().unwrap().clone();
    objects.sort_by_key(|object| object["register"].as_str().unwrap().starts_with("prg"));
    assert_eq!(objects.len(), 5);
    for object in &objects {
        let number = |name: &str| object[name].as_u64().unwrap();
        for start in (0..number("blocks")).step_by(64) {
            let blocks = (number("blocks") - start).min(64);
            read(number("lba") + start, blocks);
        }
    }
    assert_eq!(served.drive.engine().list().len(), 5);
    let number = |name: &str| y[name].as_u64().unwrap();
    for (lba, file) in [("metadata_lba", "y.meta"), ("lba", "y.data")] {
        let data = fs::read(place.path(file)).unwrap();
        let write = write_blocks(&host, 1, number(lba), &data, &[], false);
        served.runtime.block_on(write).unwrap();
    }
    fs::write(place.path("r.data"), read(number("lba"), number("blocks"))).unwrap();
    fs::write(place.path("r.meta"), read(number("metadata_lba"), 1)).unwrap();
    place.ok("raw unpack r.data r.meta --out r.ct");
    assert_eq!(place.decrypted("r.ct"), -6);
}

#[test]
fn the_demo_runs_on_a_drive_that_is_there() {
    let place = Place::new();
    for metadata in ["second-half", "nvme"] {
        let image = format!("{metadata}.img");
        format(&place, &image, metadata);
        let demo = |drive: &str, options: &str| {
            let value = place.json(&format!(
                "demo --drive {drive} --params tiny -x 3 -y -2 {options}"
            ));
            assert_eq!(value["result"], -6, "{value}");
            value
        };
        assert!(demo(&image, "")["program_ms"].as_f64().unwrap() > 0.0);
        let served = Served::new(&place.path(&image), Hosts::Any);
        let url = served.url();
        for options in ["", "--digests header", "--key-id 77"] {
            let value = demo(&url, options);
            let key_id = if options.contains("77") { 77 } else { 0 };
            assert_eq!(value["key_id"], key_id);
            assert!(value["trigger_ms"].as_f64().unwrap() > 0.0);
            assert_eq!(value["program_ms"], Value::Null);
            assert_eq!(value["commands"].as_array().unwrap().len(), 14);
        }
        assert_eq!(place.registers(&url), [] as [&str; 0]);
    }
    // Made once, for this user.
    let id = fs::read_to_string(place.path("config/toroid/hostid"));
    if !Path::new("/etc/nvme/hostnqn").exists() {
        assert_eq!(id.unwrap().trim().len(), 36);
    }
    place.fails(2, "demo --drive a.img --image b.img", &["--image"]);
}

#[test]
fn a_drive_elsewhere_says_what_is_wrong() {
    let place = place();
    format(&place, "d.img", "second-half");
    let served = Served::new(&place.path("d.img"), Hosts::Any);
    let (url, port) = (served.url(), served.address.port());
    let found = place.json(&format!("drive discover nvme+tcp://127.0.0.1:{port}"));
    assert_eq!(found["drives"][0]["drive"], url);
    place.ok(&format!("put {url} multiply.tasm --params tiny"));
    place.ok(&format!("put {url} x.ct --as cor:0:1"));
    for (code, line, words) in [
        // The drive's own words, not only the status.
        (
            1,
            format!("run {url} cow:0:2 --write y.ct --out r.ct"),
            &["bootstrapping key", "cannot run"][..],
        ),
        (
            2,
            format!("run {url} cow:0:2 --write y.ct --out r.ct --arithmetic ntt"),
            &["--arithmetic ntt"],
        ),
        (1, format!("get {url} cow:0:9 --out r.ct"), &["cow:0:9"]),
        (
            1,
            format!("drive info {url} --nsid 5"),
            &["no namespace 5", "1"],
        ),
        (1, format!("drive info {url}2"), &["no subsystem"]),
        (
            2,
            format!("drive info nvme+tcp://127.0.0.1:{port}"),
            &["names no drive", "drive discover"],
        ),
        (
            2,
            "drive info http://127.0.0.1/".to_owned(),
            &["nvme+tcp://HOST:PORT/NQN"],
        ),
        (
            1,
            format!("drive info nvme+tcp://127.0.0.1:1/{NQN}"),
            &["cannot connect", "refused"],
        ),
        (1, format!("drive format {url}"), &["--force"]),
        (
            2,
            format!("drive format {url} --force --size 1GiB"),
            &["--size"],
        ),
        (2, format!("drive info {url} --host-id 12"), &["not a UUID"]),
        (
            2,
            format!("reserve {url} tv:0:1"),
            &["tv:0:1", "cow:KEY:DATA"],
        ),
        (
            1,
            format!("reserve {url} cow:9:1"),
            &["key id 9", "--params"],
        ),
        (2, "raw pack x.ct cor:0:1".to_owned(), &["--out-data"]),
        (
            1,
            "raw unpack x.ct y.ct --out r.ct".to_owned(),
            &["x.ct", "TSCM"],
        ),
    ] {
        place.fails(code, &line, words);
    }
    assert!(!place.path("r.ct").exists());
    place.ok(&format!("drive format {url} --force"));
    assert_eq!(place.registers(&url), [] as [&str; 0]);
    assert_eq!(
        place.json(&format!("drive map {url}"))["objects"],
        Value::Array(Vec::new())
    );
}

#[test]
fn hosts_and_drives_authenticate() {
    let place = place();
    format(&place, "d.img", "nvme");
    let secrets = [(); 2].map(|()| Secret::generate(AuthHash::Sha256).unwrap());
    for (name, secret) in ["host", "controller"].into_iter().zip(&secrets) {
        let path = place.path(name);
        fs::write(&path, secret.to_text().as_bytes()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let [secret, controller_secret] = secrets.map(Some);
    let allowed = AllowedHost {
        secret,
        controller_secret,
        ..AllowedHost::new(HOST)
    };
    let served = Served::new(&place.path("d.img"), Hosts::Listed(vec![allowed]));
    let url = served.url();
    let both = "--host-secret host --controller-secret controller";
    place.ok(&format!(
        "put {url} x.ct --as cor:0:1 --host-nqn {HOST} {both}"
    ));
    for (options, word) in [
        (both.to_owned(), "does not admit host"),
        (format!("--host-nqn {HOST}"), "secret"),
        (
            format!("--host-nqn {HOST} --host-secret controller"),
            "authentication",
        ),
        (
            format!("--host-nqn {HOST} --host-secret host --controller-secret host"),
            "authentication",
        ),
        (format!("--host-nqn {HOST} --host-secret x.ct"), "x.ct"),
    ] {
        place.fails(1, &format!("drive info {url} {options}"), &[word]);
    }
}
