//! What the blob store promises when its process is killed or the power goes, at any moment of a random load.
//!
//! `power_cuts` runs in memory: the controller stops at a random command, each unflushed block survives in a random version,
//! and the store is mounted again. `kill_a_few` and `kill_200` kill a real process with SIGKILL while it works on a file.
//! The long one is run by `cargo test -p toroid-client --release --test crash -- --ignored --nocapture kill_200`.
//! `a_key_of_two_gigabytes` streams one object of that size through a store in a file, which needs 2.2 GB of disk.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Notify;
use toroid_client::blob::{BlobError, BlobId, BlobStore, FormatOptions, NewBlob};
use toroid_drive::ssd::{FileSsd, Ssd};
use toroid_isa::VrType;
use toroid_isa::metadata::ScMetadata;
use toroid_nvme::testing::RamController;
use toroid_nvme::{
    self as nvme, Command, Controller, ControllerInfo, Request, Response, Sqe, Status,
};
use toroid_task::{CancelToken, Progress};

/// What a blob is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    Empty,
    /// Content that follows from `seed`, with secure computing metadata that names it or without.
    Full {
        seed: u64,
        size: usize,
        sc: bool,
    },
    /// Plain content of which an update has replaced what is from `at` on.
    Updated {
        seed: u64,
        at: usize,
        tail: u64,
        size: usize,
    },
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Absent => write!(f, "absent"),
            State::Empty => write!(f, "empty"),
            State::Full { seed, size, sc } => write!(f, "{seed}:{size}:{sc}"),
            State::Updated {
                seed,
                at,
                tail,
                size,
            } => write!(f, "updated:{seed}:{at}:{tail}:{size}"),
        }
    }
}

impl State {
    fn parse(text: &str) -> State {
        match text {
            "absent" => State::Absent,
            "empty" => State::Empty,
            _ if text.starts_with("updated:") => {
                let mut numbers = text.split(':').skip(1).map(|n| n.parse::<u64>().unwrap());
                let mut next = || numbers.next().unwrap();
                State::Updated {
                    seed: next(),
                    at: next() as usize,
                    tail: next(),
                    size: next() as usize,
                }
            }
            _ => {
                let mut parts = text.split(':');
                let mut next = || parts.next().unwrap();
                State::Full {
                    seed: next().parse().unwrap(),
                    size: next().parse().unwrap(),
                    sc: next() == "true",
                }
            }
        }
    }

    fn data(&self) -> Vec<u8> {
        match *self {
            State::Full { seed, size, .. } => pattern(seed, size),
            State::Updated {
                seed,
                at,
                tail,
                size,
            } => [pattern(seed, at), pattern(tail, size - at)].concat(),
            _ => Vec::new(),
        }
    }

    /// A state that an update leads to; only plain content has one.
    fn updated(&self, rng: &mut Rng, max_size: u64) -> Option<State> {
        let (seed, kept) = match *self {
            State::Full {
                seed,
                size,
                sc: false,
            } => (seed, size),
            State::Updated { seed, at, .. } => (seed, at),
            _ => return None,
        };
        // An append, or a replacement of what may be most of the content.
        let at = kept - (rng.below(kept as u64 + 1) * rng.below(2)) as usize;
        let size = (at as u64 + rng.below(4000)).min(max_size) as usize;
        Some(State::Updated {
            seed,
            at,
            tail: rng.next(),
            size: size.max(at),
        })
    }

    fn sc(&self) -> Option<ScMetadata> {
        match *self {
            State::Full {
                seed,
                size,
                sc: true,
            } => {
                let types = [VrType::Tv, VrType::LweCor, VrType::LweCow];
                let ty = types[(seed % 3) as usize];
                Some(sc(ty, seed as u32, size as u64))
            }
            _ => None,
        }
    }
}

/// What is known of a blob from outside the store: the state acknowledged last, and the one that a call under way leads to.
#[derive(Clone, Copy, Debug)]
struct Known {
    acknowledged: State,
    begun: Option<State>,
}

type Model = BTreeMap<String, Known>;

/// What the load tells the outside.
enum Event {
    Begin(String, State),
    Acknowledge(String),
    Fail(String),
}

impl Event {
    fn apply(self, model: &mut Model) {
        match self {
            Event::Begin(name, state) => {
                let known = model.entry(name).or_insert(Known {
                    acknowledged: State::Absent,
                    begun: None,
                });
                known.begun = Some(state);
            }
            Event::Acknowledge(name) => {
                let known = model.get_mut(&name).unwrap();
                known.acknowledged = known.begun.take().unwrap();
            }
            Event::Fail(name) => model.get_mut(&name).unwrap().begun = None,
        }
    }

    fn parse(line: &str) -> Option<Event> {
        let mut words = line.split(' ');
        let (kind, name) = (words.next()?, words.next()?.to_owned());
        match kind {
            "begin" => Some(Event::Begin(name, State::parse(words.next()?))),
            "ack" => Some(Event::Acknowledge(name)),
            "fail" => Some(Event::Fail(name)),
            _ => None,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Begin(name, state) => write!(f, "begin {name} {state}"),
            Event::Acknowledge(name) => write!(f, "ack {name}"),
            Event::Fail(name) => write!(f, "fail {name}"),
        }
    }
}

/// Works on the blobs whose names start with `prefix`, as `rng` says, for ever.
async fn load(
    store: BlobStore,
    prefix: String,
    mut rng: Rng,
    max_size: u64,
    tell: impl Fn(Event),
) -> BlobError {
    // The last is the state, where it is known.
    let mut mine: Vec<(String, BlobId, State)> = store
        .list()
        .into_iter()
        .filter(|stat| stat.name.starts_with(&prefix))
        .map(|stat| (stat.name, stat.id, State::Absent))
        .collect();
    loop {
        if mine.is_empty() || rng.below(6) == 0 && mine.len() < 8 {
            let name = format!("{prefix}{:x}", rng.next());
            tell(Event::Begin(name.clone(), State::Empty));
            let blob = NewBlob {
                name: name.clone(),
                sc: None,
            };
            match store.create_blob(blob).await {
                Ok(id) => {
                    tell(Event::Acknowledge(name.clone()));
                    mine.push((name, id, State::Empty));
                }
                Err(BlobError::NoMetadataPages { .. }) => tell(Event::Fail(name)),
                Err(error) => return error,
            }
            continue;
        }
        let at = rng.below(mine.len() as u64) as usize;
        let (name, id, former) = mine[at].clone();
        match rng.below(11) {
            0 => {
                tell(Event::Begin(name.clone(), State::Absent));
                if let Err(error) = store.delete_blob(id).await {
                    return error;
                }
                tell(Event::Acknowledge(name));
                mine.swap_remove(at);
            }
            1 => {
                // A read must be of one piece; which is for the check after the crash.
                if let Err(error) = store.read_blob(id, &Progress::none()).await {
                    return error;
                }
            }
            how => {
                let size = rng.below(max_size) as usize;
                let full = State::Full {
                    seed: rng.next(),
                    size,
                    sc: rng.below(2) == 0 && size > 0,
                };
                let updated = former.updated(&mut rng, max_size);
                let state = updated.filter(|_| how >= 6 || how <= 3 && rng.below(2) == 0);
                let state = state.unwrap_or(full);
                tell(Event::Begin(name.clone(), state));
                let cancel = CancelToken::new();
                let progress = match how {
                    2 => {
                        let stop = rng.below(max_size);
                        let own = cancel.clone();
                        Progress::new(move |_, done, _| {
                            if done >= stop {
                                own.cancel();
                            }
                        })
                    }
                    _ => Progress::none(),
                }
                .with_cancel(cancel);
                let write = write(&store, id, state, progress);
                if how == 3 {
                    // Abandoned after a while, at an await of its own choice; the store may finish it or not.
                    let turns = rng.below(60);
                    let patience = async {
                        for _ in 0..turns {
                            tokio::task::yield_now().await;
                        }
                    };
                    tokio::select! {
                        biased;
                        done = write => match done {
                            Ok(()) => {
                                tell(Event::Acknowledge(name));
                                mine[at].2 = state;
                            }
                            Err(BlobError::NoSpace { .. } | BlobError::NoMetadataPages { .. }) => tell(Event::Fail(name)),
                            Err(error) => return error,
                        },
                        () = patience => {
                            mine.swap_remove(at);
                        }
                    }
                    continue;
                }
                match write.await {
                    Ok(()) => {
                        tell(Event::Acknowledge(name));
                        mine[at].2 = state;
                    }
                    Err(
                        BlobError::NoSpace { .. }
                        | BlobError::NoMetadataPages { .. }
                        | BlobError::Cancelled,
                    ) => tell(Event::Fail(name)),
                    Err(error) => return error,
                }
            }
        }
    }
}

async fn write(
    store: &BlobStore,
    id: BlobId,
    state: State,
    progress: Progress,
) -> Result<(), BlobError> {
    let data = state.data();
    if let State::Updated { at, size, .. } = state {
        let expected = store.stat(id)?.sequence;
        let pieces = vec![(at as u64, data[at..].to_vec())];
        let updated = store.update(id, expected, size as u64, pieces, &progress);
        return updated.await.map(drop);
    }
    let writer = store
        .writer_with_sc(id, data.len() as u64, state.sc())
        .await?;
    let mut writer = writer.with_progress(progress);
    for piece in data.chunks(1500) {
        writer.write(piece).await?;
    }
    writer.commit().await.map(drop)
}

/// Holds the mounted store against the model, which then knows again in what state everything is.
async fn verify(store: &BlobStore, model: &mut Model, what: &str) {
    let mut found = BTreeMap::new();
    let mut clusters = 0;
    for stat in store.list() {
        clusters += stat.clusters;
        let name = stat.name.clone();
        assert!(model.contains_key(&name), "{what}: {name} was never made");
        assert!(found.insert(name, stat).is_none(), "{what}: two of a name");
    }
    for (name, known) in model.iter_mut() {
        let possible = [Some(known.acknowledged), known.begun];
        let is = |state: State| possible.contains(&Some(state));
        let state = match found.get(name) {
            None => State::Absent,
            Some(stat) if !stat.written => State::Empty,
            Some(stat) => {
                let read = store.read_blob(stat.id, &Progress::none()).await;
                let read = read.unwrap_or_else(|e| panic!("{what}: {name}: {e}"));
                let state = possible.into_iter().flatten().find(|state| {
                    matches!(state, State::Full { .. } | State::Updated { .. })
                        && state.data() == read.data
                        && state.sc() == stat.sc
                });
                let Some(state) = state else {
                    panic!("{what}: {name} is none of {known:?}: {stat:?}");
                };
                let identity = |sc: ScMetadata| (sc.vr(), sc.size(), sc.offset());
                assert_eq!(
                    read.sc.map(identity),
                    state.sc().map(identity),
                    "{what}: {name}: metadata on the drive"
                );
                state
            }
        };
        assert!(is(state), "{what}: {name} is {state:?}, not of {known:?}");
        *known = Known {
            acknowledged: state,
            begun: None,
        };
    }
    model.retain(|_, known| known.acknowledged != State::Absent);
    let info = store.info().await;
    assert_eq!(info.free_clusters + clusters, info.clusters, "{what}: leak");
}

/// A controller in memory that stops for ever at a random command.
struct Mortal {
    ram: Arc<RamController>,
    /// Commands until then.
    left: AtomicI64,
    rng: AtomicU64,
    stopped: Notify,
}

impl Mortal {
    fn random(&self, below: u64) -> u64 {
        Rng(self.rng.fetch_add(0x1234_5678_9ABC_DEF1, Ordering::SeqCst)).below(below)
    }

    async fn run(&self, request: Request) -> Response {
        for _ in 0..self.random(3) {
            tokio::task::yield_now().await;
        }
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        if left > 0 {
            return self.ram.submit(request).await;
        }
        if left == 0 && self.random(2) == 0 {
            // The one under way may have reached the cache, but no one learns of it.
            self.ram.submit(request).await;
        }
        self.stopped.notify_one();
        std::future::pending().await
    }
}

impl Controller for Mortal {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        self.run(request).boxed()
    }

    fn info(&self) -> &ControllerInfo {
        self.ram.info()
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().build().unwrap();
    runtime.block_on(future)
}

/// LBAs of clusters that hold plain data must carry no metadata in the second half, whatever was there before.
async fn verify_second_half(ram: &Arc<RamController>, store: &BlobStore, what: &str) {
    let half = ram.info().namespaces[0].blocks() / 2;
    for stat in store.list().into_iter().filter(|stat| stat.sc.is_none()) {
        let before = ram.submitted().len();
        store.read_blob(stat.id, &Progress::none()).await.unwrap();
        for sqe in &ram.submitted()[before..] {
            let Ok(Command::Read(io)) = Command::parse(sqe) else {
                continue;
            };
            let read = nvme::read_blocks(&**ram, 1, io.slba + half, 1)
                .await
                .unwrap();
            assert!(read.data.iter().all(|&b| b == 0), "{what}: {}", stat.name);
        }
    }
}

/// Formats a store, then runs and cuts it `cuts` times; gives the number of acknowledged changes.
fn power_cuts_with(seed: u64, cuts: u64) -> u64 {
    let mut rng = Rng(seed);
    let metadata_size = if seed.is_multiple_of(2) { 0 } else { 64 };
    let ram = Arc::new(ram(1024, metadata_size, 1024));
    let options = FormatOptions {
        cluster_bytes: 1024 << rng.below(2),
        metadata_pages: Some(24 + rng.below(100) as u32),
    };
    block_on(BlobStore::format(ram.clone(), 1, options).map(Result::unwrap));
    let model = Arc::new(Mutex::new(Model::new()));
    let acknowledged = Arc::new(AtomicU64::new(0));
    for cut in 0..cuts {
        let what = format!("seed {seed}, cut {cut}");
        let most = [50, 300, 1500][rng.below(3) as usize];
        let mortal = Arc::new(Mortal {
            ram: ram.clone(),
            left: AtomicI64::new(rng.below(most) as i64),
            rng: AtomicU64::new(rng.next()),
            stopped: Notify::new(),
        });
        let tasks = 1 + rng.below(3);
        block_on(async {
            let work = async {
                let store = BlobStore::mount(mortal.clone(), 1, Default::default()).await;
                let store = store.unwrap_or_else(|e| panic!("{what}: {e}"));
                let loads = (0..tasks).map(|task| {
                    let (model, acknowledged) = (model.clone(), acknowledged.clone());
                    let tell = move |event: Event| {
                        if matches!(event, Event::Acknowledge(_)) {
                            acknowledged.fetch_add(1, Ordering::SeqCst);
                        }
                        event.apply(&mut model.lock().unwrap());
                    };
                    let rng = Rng(rng.next());
                    load(store.clone(), format!("{task}-"), rng, 12_000, tell)
                });
                futures::future::select_all(loads.map(Box::pin)).await.0
            };
            tokio::select! {
                error = work => panic!("{what}: {error}"),
                () = mortal.stopped.notified() => {}
            }
        });
        ram.crash_with(|_, _, versions| rng.below(versions as u64 + 1) as usize);
        block_on(async {
            let store = BlobStore::mount(ram.clone(), 1, Default::default()).await;
            let store = store.unwrap_or_else(|e| panic!("{what}: {e}"));
            let mut after = std::mem::take(&mut *model.lock().unwrap());
            verify(&store, &mut after, &what).await;
            *model.lock().unwrap() = after;
            if metadata_size == 0 {
                verify_second_half(&ram, &store, &what).await;
            }
        });
    }
    acknowledged.load(Ordering::SeqCst)
}

#[test]
fn power_cuts() {
    let seeds = 500;
    let acknowledged: u64 = (0..seeds).map(|seed| power_cuts_with(seed, 3)).sum();
    println!(
        "{} cuts, {acknowledged} acknowledged changes, none lost",
        3 * seeds
    );
    assert!(acknowledged > 10 * seeds);
}

/// A controller without compute over files: logical blocks in one, their metadata, if any, in another.
struct FileController {
    info: ControllerInfo,
    data: FileSsd,
    metadata: Option<FileSsd>,
}

impl FileController {
    fn open(dir: &Path, metadata_size: u16) -> Arc<FileController> {
        FileController::with_info(dir, info(1 << 14, metadata_size, 16 << 10))
    }

    fn with_info(dir: &Path, info: ControllerInfo) -> Arc<FileController> {
        let metadata_size = info.namespaces[0].metadata_size();
        let blocks = info.namespaces[0].blocks();
        let open = |name: &str, block_size: u32| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            let file: File = options.open(dir.join(name)).unwrap();
            file.set_len(blocks * u64::from(block_size)).unwrap();
            FileSsd::new(file, block_size, blocks).unwrap()
        };
        Arc::new(FileController {
            data: open("data", info.namespaces[0].block_size()),
            metadata: (metadata_size > 0).then(|| open("metadata", u32::from(metadata_size))),
            info,
        })
    }

    fn execute(&self, request: &Request) -> Result<Response, Status> {
        let mut response = Response::success(request.sqe.cid.get());
        let ssds = [Some(&self.data), self.metadata.as_ref()];
        let ssds = ssds.into_iter().flatten();
        match self.info.check(request)? {
            Command::Read(io) => {
                let mut out = Vec::new();
                for ssd in ssds {
                    let mut bytes = vec![0; (io.blocks * ssd.block_size()) as usize];
                    ssd.read(io.slba, &mut bytes).map_err(|e| e.status())?;
                    out.push(bytes);
                }
                response.metadata = if out.len() > 1 {
                    out.remove(1)
                } else {
                    Vec::new()
                };
                response.data = out.remove(0);
            }
            Command::Write(io) => {
                for (ssd, bytes) in ssds.zip([&request.data, &request.metadata]) {
                    ssd.write(io.slba, bytes, io.fua).map_err(|e| e.status())?;
                }
            }
            Command::WriteZeroes { io, .. } => {
                for ssd in ssds {
                    let count = u64::from(io.blocks);
                    ssd.write_zeroes(io.slba, count).map_err(|e| e.status())?;
                }
            }
            Command::Flush { .. } => {
                for ssd in ssds {
                    ssd.flush().map_err(|e| e.status())?;
                }
            }
            _ => return Err(Status::INVALID_OPCODE),
        }
        Ok(response)
    }
}

impl Controller for FileController {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        let response = self.execute(&request).unwrap_or_else(|status| {
            let Sqe { cid, .. } = request.sqe;
            Response::failure(cid.get(), status, true)
        });
        futures::future::ready(response).boxed()
    }

    fn info(&self) -> &ControllerInfo {
        &self.info
    }
}

const WORKER_DIR: &str = "TOROID_CRASH_WORKER_DIR";
const WORKER_METADATA: &str = "TOROID_CRASH_WORKER_METADATA";
const WORKER_SEED: &str = "TOROID_CRASH_WORKER_SEED";

/// The process that is killed: this test, run with the variables above set. Without them it has nothing to do.
#[test]
fn crash_worker() {
    let Ok(dir) = std::env::var(WORKER_DIR) else {
        return;
    };
    let number = |name| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let controller = FileController::open(Path::new(&dir), number(WORKER_METADATA) as u16);
    let seed = number(WORKER_SEED);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = mount(&controller).await;
        println!("\nmounted");
        let loads = (0..3).map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                let rng = Rng(seed ^ task << 60);
                let tell = |event: Event| println!("{event}");
                panic!(
                    "{}",
                    load(store, format!("{task}-"), rng, 100_000, tell).await
                );
            })
        });
        let first: Result<(), _> = futures::future::select_all(loads).await.0;
        first.unwrap();
    });
}

fn kill(kills: u64, metadata_size: u16) {
    let dir = tempfile::tempdir().unwrap();
    let controller = FileController::open(dir.path(), metadata_size);
    block_on(format(&controller, 8192));
    drop(controller);
    let mut rng = Rng(u64::from(std::process::id()));
    let mut model = Model::new();
    let mut acknowledged = 0;
    for round in 0..kills {
        let mut child = Process::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash_worker", "--nocapture"])
            .env(WORKER_DIR, dir.path())
            .env(WORKER_METADATA, metadata_size.to_string())
            .env(WORKER_SEED, rng.next().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // A store that does not mount ends the child, and with it its output.
        assert!(
            lines.any(|line| line.unwrap() == "mounted"),
            "kill {round}: not mounted"
        );
        let wait = Duration::from_micros(rng.below(150_000));
        let killer = std::thread::spawn(move || {
            std::thread::sleep(wait);
            let died = child.try_wait().unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            died
        });
        for line in lines {
            // The last line may have been cut short by the kill only if the pipe was full, since a line is one write.
            if let Some(event) = Event::parse(&line.unwrap()) {
                acknowledged += u64::from(matches!(event, Event::Acknowledge(_)));
                event.apply(&mut model);
            }
        }
        assert_eq!(
            killer.join().unwrap(),
            None,
            "kill {round}: ended by itself"
        );
        let what = format!("kill {round}");
        block_on(async {
            let controller = FileController::open(dir.path(), metadata_size);
            verify(&mount(&controller).await, &mut model, &what).await;
        });
    }
    println!("{kills} kills, {acknowledged} acknowledged changes, none lost");
    assert!(acknowledged > kills);
}

#[test]
fn kill_a_few() {
    kill(6, 0);
    kill(6, 64);
}

#[test]
#[ignore = "takes about a minute"]
fn kill_200() {
    kill(120, 0);
    kill(120, 64);
}

/// Peak of the resident memory of this process, MiB.
#[cfg(target_os = "linux")]
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib >> 10
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "writes 2.1 GB"]
fn a_key_of_two_gigabytes() {
    let dir = tempfile::tempdir().unwrap();
    let mut info = info(1, 0, 1 << 20);
    info.namespaces = vec![toroid_nvme::Namespace::new(1, 4096, 1 << 21, 0).unwrap()];
    let controller = FileController::with_info(dir.path(), info);
    let size: u64 = 800 * 16_384 * 5 * 4 * 8;
    let piece = pattern(1, 3_000_001);
    block_on(async {
        let store = format(&controller, 1 << 20).await;
        let before = peak_memory();
        let blob = NewBlob {
            name: "bootstrapping key".into(),
            sc: Some(sc(VrType::Key, 1, size)),
        };
        let start = std::time::Instant::now();
        let id = store.create_blob(blob).await.unwrap();
        let mut writer = store.writer(id, size).await.unwrap();
        let mut left = size as usize;
        while left > 0 {
            let now = left.min(piece.len());
            writer.write(&piece[..now]).await.unwrap();
            left -= now;
        }
        let stat = writer.commit().await.unwrap();
        let written = start.elapsed();
        assert_eq!(
            (stat.size, u64::from(stat.clusters)),
            (size, size.div_ceil(1 << 20))
        );
        let start = std::time::Instant::now();
        let store = mount(&controller).await;
        let mut reader = store.reader(id).unwrap();
        let mut seen = 0;
        // The reader checks the content against the checksum.
        while let Some(chunk) = reader.next_chunk().await.unwrap() {
            seen += chunk.len() as u64;
        }
        assert_eq!(seen, size);
        let read = start.elapsed();
        let grown = peak_memory() - before;
        println!(
            "{size} bytes written in {written:.1?}, read in {read:.1?}, {grown} MiB of memory"
        );
        assert!(grown < 32, "{grown} MiB");
        store.delete_blob(id).await.unwrap();
    });
}
