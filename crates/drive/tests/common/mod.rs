//! What the tests of the bridge share.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Condvar, Mutex};

use futures::executor::block_on;
use toroid_drive::bridge::Effect;
use toroid_drive::image::{FormatOptions, Image, MetadataMode};
use toroid_drive::ssd::{Done, MemSsd, Operation, Ssd, SsdError};
use toroid_drive::{Drive, DriveConfig};
use toroid_engine::PagingContext;
use toroid_engine::backend::testing::{PlaintextBackend, encode_sample, test_vector};
use toroid_engine::{Backend, KeyKind};
use toroid_isa::metadata::ScMetadata;
use toroid_isa::{VrNumber, assemble, encode};
use toroid_nvme::{Controller, ErrorInformation, Request, Response, Sqe, Status};
use toroid_tfhe::params::TINY;

pub const NVME: MetadataMode = MetadataMode::NvmeMetadata;
pub const SECOND_HALF: MetadataMode = MetadataMode::SecondHalf;
pub const MODES: [MetadataMode; 2] = [NVME, SECOND_HALF];

pub const BLOCK: usize = 512;
/// Blocks a cluster.
pub const CLUSTER: u64 = 64;
/// Blocks of data: of the namespace, or of its first half.
pub const BLOCKS: u64 = 4096;

pub const X: &str = "cor:0:1";
pub const Y: &str = "cow:0:2";
/// Where the tests put things: all at the beginning of a cluster.
pub const X_LBA: u64 = 0;
pub const Y_LBA: u64 = CLUSTER;
pub const TV_LBA: u64 = 2 * CLUSTER;
pub const PROGRAM_LBA: u64 = 3 * CLUSTER;
pub const KSK_LBA: u64 = 4 * CLUSTER;
pub const BKNTT_LBA: u64 = 32 * CLUSTER;
/// 15 clusters that nothing else uses.
pub const FREE_LBA: u64 = 17 * CLUSTER;

/// Table 5: x·y = (x+y)²/4 - (x-y)²/4, for x >= y since messages are unsigned here.
pub const TABLE_5: &str = "
    .reg r1 = cor:0:9
    .reg r2 = cor:0:1
    .reg r3 = cow:0:2
    .tv square4 = x*x/4
    mov r1, r2
    homadd r1, r3
    bootstrap square4, r1
    homsub r2, r3
    bootstrap square4, r2
    homsub r1, r2
    return r1
";

/// First block of the swap area.
pub fn swap_start(mode: MetadataMode) -> u64 {
    match mode {
        MetadataMode::NvmeMetadata => 1 + BLOCKS + BLOCKS * 64 / BLOCK as u64,
        MetadataMode::SecondHalf => 1 + 2 * BLOCKS,
    }
}

/// A memory SSD that the test can still reach when an image has it.
pub struct Shared(pub Arc<dyn Ssd>);

impl Ssd for Shared {
    fn block_size(&self) -> u32 {
        self.0.block_size()
    }
    fn blocks(&self) -> u64 {
        self.0.blocks()
    }
    fn read(&self, lba: u64, buf: &mut [u8]) -> Result<(), SsdError> {
        self.0.read(lba, buf)
    }
    fn write(&self, lba: u64, data: &[u8], fua: bool) -> Result<(), SsdError> {
        self.0.write(lba, data, fua)
    }
    fn flush(&self) -> Result<(), SsdError> {
        self.0.flush()
    }
    fn write_zeroes(&self, lba: u64, count: u64) -> Result<(), SsdError> {
        self.0.write_zeroes(lba, count)
    }
    fn try_read_now(&self, lba: u64, buf: &mut [u8]) -> Result<bool, SsdError> {
        self.0.try_read_now(lba, buf)
    }
    fn is_asynchronous(&self) -> bool {
        self.0.is_asynchronous()
    }
    fn submit(&self, operation: Operation, done: Done) {
        self.0.submit(operation, done);
    }
}

pub fn vr(text: &str) -> VrNumber {
    text.parse().unwrap()
}

pub fn message(m: i64) -> Vec<u8> {
    encode_sample(&TINY, m, TINY.message_bits)
}

/// Metadata of an object of `tiny` with 4 message bits.
pub fn sc(vr: VrNumber, bytes: &[u8]) -> ScMetadata {
    let metadata = ScMetadata::new(vr, TINY.id, bytes.len() as u64).unwrap();
    // A sample that states no noise could be anything.
    let fresh = vr.ty().is_sample().then(|| TINY.lwe_variance().log2());
    metadata
        .with_message(TINY.message_bits as u8, false)
        .unwrap()
        .with_noise(fresh, None)
}

pub fn options(mode: MetadataMode) -> FormatOptions {
    FormatOptions {
        block_size: BLOCK as u32,
        size: BLOCKS * BLOCK as u64,
        metadata_mode: mode,
        cluster_blocks: CLUSTER as u32,
        swap: 4 << 20,
        ..FormatOptions::default()
    }
}

pub fn config(backend: Arc<dyn Backend>) -> DriveConfig {
    DriveConfig {
        paged_bytes: 1 << 20,
        persistent_bytes: 64 << 20,
        stack_slots: 4,
        mdts_bytes: 32768,
        ..DriveConfig::new(backend)
    }
}

pub fn memory_ssd() -> Arc<MemSsd> {
    Arc::new(MemSsd::new(
        BLOCK as u32,
        3 * BLOCKS + (4 << 20) / BLOCK as u64,
    ))
}

/// Registers (number, content, what is known of them), data and metadata.
pub type State = (Vec<(VrNumber, Vec<u8>, String)>, Vec<u8>, Vec<u8>);

/// A drive on an SSD in memory, with what Table 6 needs.
pub struct Bench {
    pub drive: Arc<Drive>,
    pub ssd: Arc<MemSsd>,
    pub mode: MetadataMode,
    pub config: DriveConfig,
    pub tv: VrNumber,
    pub test_vector: Vec<u8>,
    pub program: Vec<u8>,
}

impl Bench {
    pub fn new(mode: MetadataMode) -> Bench {
        Bench::with(mode, |_| ())
    }

    pub fn with(mode: MetadataMode, edit: impl FnOnce(&mut DriveConfig)) -> Bench {
        let ssd = memory_ssd();
        Bench::on(mode, Arc::clone(&ssd) as _, ssd, edit)
    }

    /// On `ssd`, which may be a wrapper of `memory`.
    pub fn on(
        mode: MetadataMode,
        ssd: Arc<dyn Ssd>,
        memory: Arc<MemSsd>,
        edit: impl FnOnce(&mut DriveConfig),
    ) -> Bench {
        let mut config = config(Arc::new(PlaintextBackend::new()));
        edit(&mut config);
        let image = Image::format_on(Box::new(Shared(ssd)), &options(mode)).unwrap();
        let assembly = assemble(TABLE_5).unwrap();
        Bench {
            drive: Arc::new(Drive::open(image, config.clone()).unwrap()),
            ssd: memory,
            mode,
            config,
            tv: assembly.test_vectors[0].vr,
            test_vector: test_vector(&TINY, 4, |m| m * m / 4),
            program: encode(&assembly.program),
        }
    }

    /// The same drive after a restart.
    pub fn reopen(self) -> Bench {
        self.drive.shutdown().unwrap();
        let image = Image::open_on(Box::new(Shared(self.ssd.clone()))).unwrap();
        Bench {
            drive: Arc::new(Drive::open(image, self.config.clone()).unwrap()),
            ..self
        }
    }

    pub fn submit(&self, request: Request) -> Response {
        block_on(self.drive.submit(request))
    }

    /// The newest failure of a command with this identifier.
    pub fn last_error(&self, cid: u16) -> Option<ErrorInformation> {
        let mut errors = self.drive.errors().into_iter();
        errors.find(|entry| entry.command.cid.get() == cid)
    }

    /// The response of a command that must succeed.
    pub fn succeed(&self, request: Request) -> Response {
        let sqe = request.sqe;
        let response = self.submit(request);
        let status = response.cqe.status();
        assert!(
            status.is_success(),
            "{sqe}: {status}: {:?}",
            self.last_error(sqe.cid.get())
        );
        response
    }

    /// The status of a command that must fail.
    pub fn fail(&self, request: Request) -> Status {
        let response = self.submit(request);
        assert!(!response.cqe.status().is_success());
        assert!(response.data.is_empty() && response.metadata.is_empty());
        response.cqe.status()
    }

    /// The requests that write `bytes` with metadata at `lba`: the last of them carries the data.
    pub fn requests(&self, lba: u64, sc: ScMetadata, bytes: &[u8]) -> Vec<Request> {
        let mut requests = Vec::new();
        let blocks = bytes.len().div_ceil(BLOCK) as u64;
        let mut done = 0;
        while done < blocks {
            let now = (blocks - done)
                .min(CLUSTER - (lba + done) % CLUSTER)
                .min(u64::from(self.config.mdts_bytes) / BLOCK as u64);
            let part = sc.with_offset(sc.offset() + done * BLOCK as u64).unwrap();
            if self.mode == SECOND_HALF {
                let part = part.with_blocks(now as u32);
                requests.push(second_half(lba + done, &part.to_bytes()));
            }
            let end = bytes.len().min((done + now) as usize * BLOCK);
            let mut data = bytes[done as usize * BLOCK..end].to_vec();
            data.resize(now as usize * BLOCK, 0);
            requests.push(Request {
                sqe: Sqe::write(CID, 1, lba + done, now as u16 - 1),
                data,
                metadata: self.metadata(part, now),
            });
            done += now;
        }
        requests
    }

    /// NVMe metadata of `blocks` blocks; empty in the second-half form.
    pub fn metadata(&self, first: ScMetadata, blocks: u64) -> Vec<u8> {
        if self.mode == SECOND_HALF {
            return Vec::new();
        }
        (0..blocks)
            .flat_map(|block| {
                first
                    .with_offset(first.offset() + block * BLOCK as u64)
                    .unwrap()
                    .to_bytes()
            })
            .collect()
    }

    pub fn write_object(&self, lba: u64, sc: ScMetadata, bytes: &[u8]) -> Effect {
        let mut effect = Effect::None;
        for request in self.requests(lba, sc, bytes) {
            effect = Effect::of(&self.succeed(request).cqe).unwrap();
        }
        effect
    }

    pub fn write_sample(&self, lba: u64, register: &str, bytes: &[u8]) -> Effect {
        self.write_object(lba, sc(vr(register), bytes), bytes)
    }

    /// The last write of an object, which must fail.
    pub fn fail_object(&self, lba: u64, sc: ScMetadata, bytes: &[u8]) -> Status {
        let mut requests = self.requests(lba, sc, bytes);
        let last = requests.pop().unwrap();
        for request in requests {
            self.succeed(request);
        }
        self.fail(last)
    }

    /// Data of `len` bytes, and the metadata, which the second-half form reads afterwards.
    pub fn read_object(&self, lba: u64, len: usize) -> (Vec<u8>, Option<ScMetadata>, Effect) {
        let mut response = self.succeed(read(lba, len));
        let effect = Effect::of(&response.cqe).unwrap();
        let metadata = match self.mode {
            MetadataMode::NvmeMetadata => response.metadata,
            MetadataMode::SecondHalf => self.succeed(read(lba + BLOCKS, 1)).data,
        };
        response.data.truncate(len);
        let metadata = ScMetadata::from_bytes(&metadata[..64]).unwrap();
        (response.data, metadata, effect)
    }

    pub fn write_plain(&self, lba: u64, data: &[u8]) {
        let blocks = data.len() / BLOCK;
        let metadata = vec![0; if self.mode == NVME { blocks * 64 } else { 0 }];
        self.succeed(Request {
            sqe: Sqe::write(CID, 1, lba, blocks as u16 - 1),
            data: data.to_vec(),
            metadata,
        });
    }

    pub fn read_plain(&self, lba: u64, blocks: usize) -> Vec<u8> {
        self.succeed(read(lba, blocks * BLOCK)).data
    }

    pub fn upload_keys(&self) {
        for (lba, kind, bytes) in [
            (
                BKNTT_LBA,
                KeyKind::Bootstrapping,
                TINY.bootstrapping_key_bytes(),
            ),
            (
                KSK_LBA,
                KeyKind::KeySwitching,
                TINY.key_switching_key_bytes(),
            ),
        ] {
            let bytes = vec![0; bytes as usize];
            let sc = sc(VrNumber::key(0, kind).unwrap(), &bytes);
            assert_eq!(self.write_object(lba, sc, &bytes), Effect::Stored);
        }
    }

    /// Keys, test vector and program.
    pub fn upload(&self) {
        self.upload_keys();
        self.write_object(TV_LBA, sc(self.tv, &self.test_vector), &self.test_vector);
        self.write_object(PROGRAM_LBA, sc(vr("prg:0:0"), &self.program), &self.program);
    }

    pub fn sample(&self, register: &str) -> Vec<u8> {
        let engine = self.drive.engine();
        let sample = engine.read_sample(PagingContext::default(), vr(register));
        sample.unwrap().bytes
    }

    /// Everything that a failed command must leave as it was: registers, and every block of the namespace.
    pub fn state(&self) -> State {
        let engine = self.drive.engine();
        let registers = engine.list().into_iter().map(|info| {
            let bytes = if info.vr.ty().is_sample() {
                engine
                    .read_sample(PagingContext::default(), info.vr)
                    .unwrap()
                    .bytes
            } else {
                Vec::new()
            };
            let facts = format!("{:?} {} {:?}", info.params.name, info.computed, info.noise);
            (info.vr, bytes, facts)
        });
        let image = self.drive.image();
        let blocks = image.info().blocks() as usize;
        let mut data = vec![0; blocks * BLOCK];
        let mut metadata = vec![0; blocks * usize::from(image.info().metadata_size())];
        image.read_blocks(0, &mut data, &mut metadata).unwrap();
        (registers.collect(), data, metadata)
    }
}

/// Command identifier of the tests' commands.
pub const CID: u16 = 0x77;

pub fn read(lba: u64, bytes: usize) -> Request {
    let blocks = bytes.div_ceil(BLOCK) as u16;
    Request::new(Sqe::read(CID, 1, lba, blocks - 1))
}

/// A write of one block of the second half that begins with `head`.
pub fn second_half(lba: u64, head: &[u8]) -> Request {
    let mut data = head.to_vec();
    data.resize(BLOCK, 0);
    Request {
        sqe: Sqe::write(CID, 1, lba + BLOCKS, 0),
        data,
        metadata: Vec::new(),
    }
}

/// An SSD on which writes from a block on wait while it is closed.
pub struct SlowSsd {
    inner: Arc<MemSsd>,
    from: u64,
    closed: Mutex<bool>,
    changed: Condvar,
}

impl SlowSsd {
    pub fn new(inner: Arc<MemSsd>, from: u64) -> SlowSsd {
        SlowSsd {
            inner,
            from,
            closed: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    pub fn close(&self) {
        *self.closed.lock().unwrap() = true;
    }

    pub fn open(&self) {
        *self.closed.lock().unwrap() = false;
        self.changed.notify_all();
    }
}

impl Ssd for SlowSsd {
    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn read(&self, lba: u64, buf: &mut [u8]) -> Result<(), SsdError> {
        self.inner.read(lba, buf)
    }
    fn write(&self, lba: u64, data: &[u8], fua: bool) -> Result<(), SsdError> {
        if lba >= self.from {
            let closed = self.closed.lock().unwrap();
            drop(self.changed.wait_while(closed, |closed| *closed).unwrap());
        }
        self.inner.write(lba, data, fua)
    }
    fn flush(&self) -> Result<(), SsdError> {
        self.inner.flush()
    }
    fn write_zeroes(&self, lba: u64, count: u64) -> Result<(), SsdError> {
        self.inner.write_zeroes(lba, count)
    }
}

/// Waits for something that another thread brings about.
pub fn wait_until(mut done: impl FnMut() -> bool) {
    for _ in 0..600_000 {
        if done() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    panic!("it never happened");
}
