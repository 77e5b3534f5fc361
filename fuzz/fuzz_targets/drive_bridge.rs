//! Arbitrary sequences of commands, data and secure computing metadata against a drive in memory: every command completes,
//! what succeeds did what it says, and what fails leaves registers and namespace as they were.
//!
//! The back end has no cryptography, so that programs run to their ends in no time; the drive has no threads, and its SSD tells what
//! a command changed. The first byte chooses how metadata travels, whether the drive begins with keys, a test vector and a program,
//! and whether the SSD is asynchronous. With 255 the drive has threads and commands overlap, which is slow; those are only checked for
//! completing.
#![no_main]

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use futures::executor::block_on;
use futures::future::BoxFuture;
use libfuzzer_sys::fuzz_target;
use toroid_drive::bridge::Effect;
use toroid_drive::image::{FormatOptions, Image, MetadataMode};
use toroid_drive::ssd::{Ssd, SsdError};
use toroid_drive::{Drive, DriveConfig};
use toroid_engine::backend::testing::{PlaintextBackend, encode_sample, test_vector};
use toroid_engine::{Attributes, KeyForm, KeyKind, PagingContext, Part};
use toroid_fuzz::{Input, repeat};
use toroid_isa::metadata::ScMetadata;
use toroid_isa::{VrNumber, VrType, assemble, encode};
use toroid_nvme::{Command, Controller, Request, Response, Sqe, Status};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::noise::Noise;
use toroid_tfhe::params::{ParamSet, StageParams, TINY, TINY32};
use zerocopy::FromBytes;

const BLOCK: usize = 512;
/// Blocks of data: of the namespace, or of its first half.
const BLOCKS: u64 = 256;
const CLUSTER: u64 = 16;
const SWAP: u64 = 64 << 10;
const MDTS: u32 = 16384;
/// Most commands of one input, and most that overlap.
const MAX_COMMANDS: usize = 24;
const MAX_IN_FLIGHT: usize = 4;

/// Table 5 of the platform paper, for messages that are not signed.
const MULTIPLY: &str = "
    .reg x = cor:0:1
    .reg y = cow:0:2
    .reg product = cor:0:0
    .tv square4 @0 = x*x/4
    mov product, x
    homadd product, y
    bootstrap square4, product
    homsub x, y
    bootstrap square4, x
    homsub product, x
    return product
";
const WITH_STACK: &str = "
    .reg y = cow:0:2
    .reg other = cor:0:3
    push y
    homintmult y, 3
    pop other
    homadd y, other
    return y
";
const RETURN_TRIGGER: &str = "
    .reg x = cor:0:1
    homintmult x, -1
    return x
";

static PROGRAMS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    [MULTIPLY, WITH_STACK, RETURN_TRIGGER]
        .map(|text| encode(&assemble(text).expect("sound programs").program))
        .to_vec()
});
/// The back end counts the bytes of keys, and does not use them, but the drive takes their fingerprints: those that it begins with are the keys
/// of a set like [`TINY`] with the least of them.
static LEAST: ParamSet = ParamSet {
    stage: StageParams {
        lwe_dimension: 1,
        ..TINY.stage
    },
    ..TINY
};
static KEY: LazyLock<Vec<u8>> = LazyLock::new(|| vec![0; 1 << 20]);
static SQUARE4: LazyLock<Vec<u8>> = LazyLock::new(|| test_vector(&TINY, 4, |x| x * x / 4));

/// Memory of the SSD of the input before, all zero: to fetch and clear fresh memory takes as long as some inputs.
static SPARE: Mutex<Option<Vec<u8>>> = Mutex::new(None);

/// An SSD that tells what has changed since it was asked to watch, and fails when it is told to.
struct FuzzSsd {
    blocks: u64,
    asynchronous: bool,
    state: Mutex<Contents>,
}

struct Contents {
    bytes: Vec<u8>,
    /// Blocks that are not as the SSD was made, more than once perhaps.
    dirty: Vec<u64>,
    /// What the blocks that were changed since held.
    before: BTreeMap<u64, Vec<u8>>,
    /// Changes that pass before one is done in part, how many of its bytes are, and whether there is no space.
    change_fault: Option<(u64, usize, bool)>,
    /// Reads that pass before one fails.
    read_fault: Option<u64>,
}

impl FuzzSsd {
    fn new(blocks: u64, asynchronous: bool) -> FuzzSsd {
        FuzzSsd {
            blocks,
            asynchronous,
            state: Mutex::new(Contents {
                bytes: SPARE
                    .lock()
                    .ok()
                    .and_then(|mut spare| spare.take())
                    .unwrap_or_else(|| vec![0; blocks as usize * BLOCK]),
                dirty: Vec::new(),
                before: BTreeMap::new(),
                change_fault: None,
                read_fault: None,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, Contents> {
        self.state.lock().expect("nobody panics with the lock")
    }

    fn watch(&self) {
        self.state().before.clear();
    }

    /// Whether the blocks below `end` are as they were.
    fn is_as_before(&self, end: u64) -> bool {
        let state = self.state();
        state.before.range(..end).all(|(lba, before)| {
            let at = *lba as usize * BLOCK;
            state.bytes[at..at + BLOCK] == before[..]
        })
    }

    fn heal(&self) {
        let mut state = self.state();
        (state.change_fault, state.read_fault) = (None, None);
    }

    fn range(&self, lba: u64, count: u64) -> Result<Range<usize>, SsdError> {
        let end = lba.checked_add(count).filter(|end| *end <= self.blocks);
        let end = end.ok_or(SsdError::OutOfRange {
            lba,
            count,
            blocks: self.blocks,
        })?;
        Ok(lba as usize * BLOCK..end as usize * BLOCK)
    }

    /// Puts bytes, or zeroes, into blocks.
    fn change(&self, lba: u64, count: u64, new: Option<&[u8]>) -> Result<(), SsdError> {
        let range = self.range(lba, count)?;
        let mut state = self.state();
        let Contents {
            bytes,
            dirty,
            before,
            ..
        } = &mut *state;
        dirty.extend(lba..lba + count);
        for lba in lba..lba + count {
            let at = lba as usize * BLOCK;
            before
                .entry(lba)
                .or_insert_with(|| bytes[at..at + BLOCK].to_vec());
        }
        let mut done = range.len();
        let mut error = None;
        match state.change_fault {
            Some((0, part, full)) => {
                state.change_fault = None;
                done = done.min(part);
                let source = std::io::Error::other("a fault");
                error = Some(match full {
                    true => SsdError::Full { lba, source },
                    false => SsdError::Write { lba, source },
                });
            }
            Some((passing, ..)) => {
                state.change_fault = state
                    .change_fault
                    .map(|(_, part, full)| (passing - 1, part, full));
            }
            None => {}
        }
        let target = &mut state.bytes[range][..done];
        match new {
            Some(new) => target.copy_from_slice(&new[..done]),
            None => target.fill(0),
        }
        error.map_or(Ok(()), Err)
    }
}

impl Drop for FuzzSsd {
    /// Leaves its memory, zero again, for the SSD of the next input.
    fn drop(&mut self) {
        let Ok(state) = self.state.get_mut() else {
            return;
        };
        let mut bytes = std::mem::take(&mut state.bytes);
        for lba in state.dirty.drain(..) {
            bytes[lba as usize * BLOCK..][..BLOCK].fill(0);
        }
        if let Ok(mut spare) = SPARE.lock() {
            *spare = Some(bytes);
        }
    }
}

struct Shared(Arc<FuzzSsd>);

impl Ssd for Shared {
    fn block_size(&self) -> u32 {
        BLOCK as u32
    }
    fn blocks(&self) -> u64 {
        self.0.blocks
    }
    fn read(&self, lba: u64, buf: &mut [u8]) -> Result<(), SsdError> {
        let range = self.0.range(lba, (buf.len() / BLOCK) as u64)?;
        let mut state = self.0.state();
        let fails = state.read_fault == Some(0);
        state.read_fault = state.read_fault.and_then(|passing| passing.checked_sub(1));
        if fails {
            let source = std::io::Error::other("a fault");
            return Err(SsdError::Read { lba, source });
        }
        buf.copy_from_slice(&state.bytes[range]);
        Ok(())
    }
    fn write(&self, lba: u64, data: &[u8], _: bool) -> Result<(), SsdError> {
        self.0.change(lba, (data.len() / BLOCK) as u64, Some(data))
    }
    fn flush(&self) -> Result<(), SsdError> {
        Ok(())
    }
    fn write_zeroes(&self, lba: u64, count: u64) -> Result<(), SsdError> {
        self.0.change(lba, count, None)
    }
    fn is_asynchronous(&self) -> bool {
        self.0.asynchronous
    }
}

/// What a failed command must leave as it was beside the blocks: registers, keys aside, for the first part of a key drops the key that
/// it replaces.
type Registers = Vec<(VrNumber, Vec<u8>, Facts)>;
/// Parameter set, size, encoding, whether a program wrote it, and noise.
type Facts = (u16, u64, Option<Encoding>, bool, Option<Noise>);

struct Bench {
    drive: Drive,
    ssd: Arc<FuzzSsd>,
    mode: MetadataMode,
    next_cid: u16,
}

impl Bench {
    fn new(mode: MetadataMode, loaded: bool, asynchronous: bool, threads: bool) -> Bench {
        let blocks = 4 * BLOCKS + SWAP / BLOCK as u64;
        let ssd = Arc::new(FuzzSsd::new(blocks, asynchronous));
        let options = FormatOptions {
            block_size: BLOCK as u32,
            size: BLOCKS * BLOCK as u64,
            metadata_mode: mode,
            cluster_blocks: CLUSTER as u32,
            swap: SWAP,
            ..FormatOptions::default()
        };
        let image = Image::format_on(Box::new(Shared(Arc::clone(&ssd))), &options);
        let config = DriveConfig {
            // A few samples, so that others are paged out.
            paged_bytes: 16 << 10,
            persistent_bytes: 4 << 20,
            stack_slots: 2,
            mdts_bytes: MDTS,
            backend: Arc::new(PlaintextBackend::new()),
        };
        let image = image.expect("possible sizes");
        let drive = if threads {
            Drive::open(image, config)
        } else {
            Drive::open_without_threads(image, config)
        };
        let drive = drive.expect("threads");
        let bench = Bench {
            drive,
            ssd,
            mode,
            next_cid: 1,
        };
        if loaded {
            for kind in [KeyKind::Bootstrapping, KeyKind::KeySwitching] {
                let bytes = match kind {
                    KeyKind::Bootstrapping => LEAST.bootstrapping_key_bytes(),
                    KeyKind::KeySwitching => LEAST.key_switching_key_bytes(),
                    KeyKind::Ring | KeyKind::Conversion => 0,
                };
                let vr = VrNumber::key(0, kind).expect("key id 0");
                bench.store(vr, &LEAST, &KEY[..bytes as usize]);
            }
            let square4 = VrNumber::new(VrType::Tv, 0, 0).expect("key id 0");
            bench.store(square4, &TINY, &SQUARE4);
            bench.store(VrNumber::program(0).expect("key id 0"), &TINY, &PROGRAMS[0]);
        }
        bench
    }

    fn store(&self, vr: VrNumber, params: &'static ParamSet, bytes: &[u8]) {
        let part = Part {
            context: PagingContext::default(),
            vr,
            params,
            total_size: bytes.len() as u64,
            offset: 0,
            bytes,
            attributes: Attributes {
                encoding: Encoding::new(TINY.message_bits, false).ok(),
                ..Attributes::default()
            },
        };
        self.drive
            .engine()
            .store_part(&part)
            .expect("a sound object");
    }

    /// Blocks of the namespace as they are on the SSD, and their NVMe metadata.
    fn blocks(&self, lba: u64, count: u64) -> (Vec<u8>, Vec<u8>) {
        let image = self.drive.image();
        let mut data = vec![0; count as usize * BLOCK];
        let mut metadata = vec![0; count as usize * usize::from(image.info().metadata_size())];
        let read = image.read_blocks(lba, &mut data, &mut metadata);
        read.expect("blocks that exist");
        (data, metadata)
    }

    fn registers(&self) -> Registers {
        let engine = self.drive.engine();
        let mut registers = Vec::new();
        for info in engine.list() {
            if info.vr.ty() == VrType::Key {
                continue;
            }
            let bytes = if info.vr.ty().is_sample() {
                let sample = engine.read_sample(PagingContext::default(), info.vr);
                sample.expect("the register has content").bytes
            } else {
                Vec::new()
            };
            let facts = (
                info.params.id,
                info.bytes,
                info.encoding,
                info.computed,
                info.noise,
            );
            registers.push((info.vr, bytes, facts));
        }
        registers
    }

    /// Submits a command, waits for it and compares what happened with its status; gives the registers after it.
    fn submit(&self, before: &Registers, request: Request) -> Registers {
        self.ssd.watch();
        let response = block_on(self.drive.submit(request.clone()));
        // Forgets a fault that the command has not met.
        self.ssd.heal();
        check_completion(&request, &response);
        let status = response.cqe.status();
        let sqe = request.sqe;
        let command = Command::parse(&sqe);
        let after = self.registers();
        let image = self.drive.image().info();
        let namespace = image.blocks() * (BLOCK as u64 + u64::from(image.metadata_size()));
        // Behind the header, and before the swap area.
        let blocks_as_before = self.ssd.is_as_before(1 + namespace / BLOCK as u64);
        if !status.is_success() {
            let mut errors = self.drive.errors().into_iter();
            let detail = errors.find(|error| error.command.cid == sqe.cid);
            assert!(detail.is_some(), "{sqe}: {status}");
            assert!(!Drive::explain(status).is_empty());
            // A deallocation may stop half-way where the SSD fails.
            let deallocation = matches!(command, Ok(Command::DatasetManagement { .. }));
            assert!(
                deallocation || blocks_as_before && *before == after,
                "{sqe}: {status} with an effect: {detail:?}"
            );
            return after;
        }
        let command = command.expect("it succeeded");
        if let Command::Read(_) | Command::Compare(_) | Command::Flush { .. } = command {
            assert!(blocks_as_before, "{sqe} changed blocks");
        }
        let (Command::Read(io) | Command::Write(io)) = command else {
            return after;
        };
        let effect = Effect::of(&response.cqe).expect("one of the effects");
        let (stored, stored_metadata) = self.blocks(io.slba, io.blocks.into());
        if let Command::Write(_) = command {
            if effect == Effect::Computed {
                assert!(
                    stored != request.data
                        || stored_metadata != request.metadata
                        || self.mode == MetadataMode::SecondHalf
                );
            } else {
                assert!(
                    stored == request.data && stored_metadata == request.metadata,
                    "{sqe}"
                );
            }
        } else if effect != Effect::Computed
            && (self.mode == MetadataMode::NvmeMetadata || io.slba < BLOCKS)
        {
            assert!(
                stored == response.data && stored_metadata == response.metadata,
                "{sqe}"
            );
        }
        after
    }
}

fn check_completion(request: &Request, response: &Response) {
    assert_eq!(response.cqe.cid, request.sqe.cid);
    let status = response.cqe.status();
    assert_ne!(status, Status::INTERNAL_ERROR);
    match Command::parse(&request.sqe) {
        Ok(Command::Read(io)) if status.is_success() => {
            assert_eq!(response.data.len(), io.blocks as usize * BLOCK);
            assert!(matches!(
                response.metadata.len() / io.blocks as usize,
                0 | 64
            ));
        }
        _ => assert!(response.data.is_empty() && response.metadata.is_empty()),
    }
}

fn params(choice: u8) -> &'static ParamSet {
    if choice & 7 == 7 { &TINY32 } else { &TINY }
}

/// A register, most often one that the programs use.
fn register(input: &mut Input) -> VrNumber {
    let choice = input.u8();
    let named = match choice % 12 {
        0..=2 => VrNumber::new(VrType::LweCow, 0, 2),
        3 | 4 => VrNumber::new(VrType::LweCor, 0, 1),
        5 => VrNumber::new(VrType::Tv, 0, 0),
        6 => VrNumber::program(0),
        7 => VrNumber::key(0, KeyKind::Bootstrapping),
        8 => VrNumber::from_u64(input.u64()),
        _ => {
            let ty = VrType::ALL[usize::from(choice / 12) % 5];
            VrNumber::new(ty, u32::from(input.u8() & 1), u32::from(input.u8() & 7))
        }
    };
    named.unwrap_or(VrNumber::program(0).expect("key id 0"))
}

/// An object for the register.
fn object(vr: VrNumber, params: &ParamSet, input: &mut Input) -> Vec<u8> {
    let choice = input.u8();
    let arbitrary = choice >> 6 == 3;
    match vr.ty() {
        VrType::Prg if arbitrary => {
            let records = input.bytes(24 * usize::from(choice & 15));
            let records = &records[..records.len() / 24 * 24];
            let mut program = b"TSCP\x01\0\0\0".to_vec();
            program.extend_from_slice(&(records.len() as u32 / 24).to_le_bytes());
            program.extend_from_slice(&crc32c::crc32c(records).to_le_bytes());
            program.extend_from_slice(records);
            program
        }
        VrType::Prg => PROGRAMS[usize::from(choice) % PROGRAMS.len()].clone(),
        VrType::Tv if arbitrary => repeat(input.bytes(8), params.test_vector_bytes()),
        VrType::Tv => test_vector(params, params.message_bits, |x| x ^ u64::from(choice & 7)),
        VrType::Key => vec![0; 32768],
        _ if arbitrary => repeat(input.bytes(16), params.lwe_bytes()),
        _ => encode_sample(params, (choice & 15).into(), params.message_bits),
    }
}

fn metadata_of(vr: VrNumber, params: &ParamSet, size: u64, choice: u8) -> Option<ScMetadata> {
    let bits = match choice & 3 {
        0 | 1 => params.message_bits as u8,
        2 => 0,
        _ => choice >> 2 & 31,
    };
    let sc = ScMetadata::new(vr, params.id, size).ok()?;
    let sc = sc.with_message(bits, choice & 0x80 != 0).ok()?;
    let sc = sc.with_output_bits(choice >> 4 & 3).ok()?;
    Some(sc.with_noise((choice & 0x40 != 0).then(|| -f64::from(choice)), None))
}

impl Bench {
    fn sqe(&mut self, sqe: impl FnOnce(u16) -> Sqe) -> Sqe {
        self.next_cid = self.next_cid.wrapping_add(1);
        sqe(self.next_cid)
    }

    fn lba(&self, input: &mut Input) -> u64 {
        let lba = u64::from(input.u8());
        let half = if self.mode == MetadataMode::SecondHalf {
            BLOCKS
        } else {
            0
        };
        match lba {
            // Few places, so that commands meet.
            0..=127 => lba % 4 * CLUSTER,
            128..=191 => lba % 32,
            192..=223 => half + lba % 4 * CLUSTER,
            _ => lba + half - 2,
        }
    }

    /// A request of the driver's own making, bit-true to what a host would send, but for what `choice` breaks.
    fn write_object(&mut self, input: &mut Input) -> Vec<Request> {
        let choice = input.u8();
        let params = params(choice >> 3);
        let vr = register(input);
        let bytes = object(vr, params, input);
        let size = match (vr.ty(), choice & 7) {
            (VrType::Key, 1 | 2) => KeyForm::Seeded.bootstrapping_key_bytes(params),
            (VrType::Key, _) => params.bootstrapping_key_bytes(),
            (_, 7) => input.u32().into(),
            _ => bytes.len() as u64,
        };
        let lba = self.lba(input);
        let Some(sc) = metadata_of(vr, params, size, input.u8()) else {
            return Vec::new();
        };
        let whole = bytes.len().div_ceil(BLOCK) as u64;
        let skipped = if choice & 0x40 != 0 {
            u64::from(input.u8()) % (whole + 1)
        } else {
            0
        };
        let most = if choice & 0x80 != 0 {
            u64::from(input.u8() & 31)
        } else {
            whole
        };
        let count = (whole - skipped)
            .min(most)
            .clamp(1, u64::from(MDTS) / BLOCK as u64);
        let mut data = bytes[bytes.len().min(skipped as usize * BLOCK)..].to_vec();
        data.resize(count as usize * BLOCK, 0);
        let at = |block: u64| {
            sc.with_offset((skipped + block) * BLOCK as u64)
                .unwrap_or(sc)
        };
        let mut requests = Vec::new();
        let mut metadata = Vec::new();
        match self.mode {
            MetadataMode::NvmeMetadata => {
                metadata = (0..count).flat_map(|block| at(block).to_bytes()).collect();
                if choice & 6 == 6 {
                    let at = usize::from(input.u16()) % metadata.len();
                    metadata[at] ^= input.u8();
                }
            }
            MetadataMode::SecondHalf => {
                let mut head = at(0).with_blocks(count as u32).to_bytes().to_vec();
                if choice & 6 == 6 {
                    head[usize::from(input.u8() & 63)] ^= input.u8();
                }
                head.resize(BLOCK, 0);
                let sqe = self.sqe(|cid| Sqe::write(cid, 1, lba + BLOCKS, 0));
                requests.push(Request {
                    sqe,
                    data: head,
                    metadata: Vec::new(),
                });
            }
        }
        let sqe = self.sqe(|cid| Sqe::write(cid, 1, lba, count as u16 - 1));
        requests.push(Request {
            sqe,
            data,
            metadata,
        });
        requests
    }

    /// Writes to the second half: metadata for blocks that are there already, several at a time.
    fn register_blocks(&mut self, input: &mut Input) -> Request {
        let lba = self.lba(input);
        let count = u64::from(1 + input.u8() % 4);
        let mut data = Vec::new();
        for _ in 0..count {
            let choice = input.u8();
            let mut block = match choice & 3 {
                0 => Vec::new(),
                1 => input.bytes(64).to_vec(),
                _ => {
                    let size = TINY.lwe_bytes() as u64;
                    let sc = metadata_of(register(input), &TINY, size, choice);
                    let blocks = u32::from(choice >> 2 & 31);
                    sc.map_or(Vec::new(), |sc| sc.with_blocks(blocks).to_bytes().to_vec())
                }
            };
            block.resize(BLOCK, 0);
            data.extend(block);
        }
        let sqe = self.sqe(|cid| Sqe::write(cid, 1, lba % BLOCKS + BLOCKS, count as u16 - 1));
        Request {
            sqe,
            data,
            metadata: Vec::new(),
        }
    }

    /// Any 64 bytes, with buffers that fit or not.
    fn arbitrary(&mut self, input: &mut Input) -> Request {
        let choice = input.u8();
        let bytes: [u8; 64] = input.array();
        let mut sqe = Sqe::read_from_bytes(&bytes).expect("64 bytes");
        if choice & 1 != 0 {
            sqe.opcode = [0, 1, 2, 5, 8, 9][usize::from(sqe.opcode % 6)];
            sqe.flags = 0;
            sqe.nsid = 1.into();
            sqe.cdw10 = (sqe.cdw10.get() & 0x1FF).into();
            sqe.cdw11 = (sqe.cdw11.get() & 4).into();
            sqe.cdw12 = (sqe.cdw12.get() & 0x4000_001F).into();
        }
        // The error log is looked up by it.
        sqe.cid = self.sqe(|cid| Sqe::flush(cid, 1)).cid;
        let (data, metadata) = match Command::parse(&sqe) {
            _ if choice & 2 != 0 => (input.u16().into(), input.u8().into()),
            Ok(Command::Write(io) | Command::Compare(io)) if io.blocks <= 64 => (
                io.blocks as usize * BLOCK,
                io.blocks as usize * usize::from(self.drive.image().info().metadata_size()),
            ),
            Ok(Command::DatasetManagement { ranges, .. }) => (usize::from(ranges) * 16, 0),
            _ => (0, 0),
        };
        let pattern = usize::from(choice >> 2);
        Request {
            sqe,
            data: repeat(input.bytes(pattern), data),
            metadata: repeat(input.bytes(pattern & 7), metadata),
        }
    }

    fn requests(&mut self, input: &mut Input) -> Vec<Request> {
        let what = input.u8();
        let metadata_size = usize::from(self.drive.image().info().metadata_size());
        match what % 16 {
            0..=5 => self.write_object(input),
            6..=8 => {
                let lba = self.lba(input);
                let sqe = self.sqe(|cid| Sqe::read(cid, 1, lba, u16::from(what >> 4)));
                vec![Request::new(sqe)]
            }
            9 => vec![self.register_blocks(input)],
            10 => {
                let lba = self.lba(input);
                let sqe = self.sqe(|cid| Sqe::write_zeroes(cid, 1, lba, u16::from(what >> 4)));
                vec![Request::new(sqe)]
            }
            11 => {
                let ranges = what >> 6;
                let data = repeat(input.bytes(16), 16 * (usize::from(ranges) + 1));
                let data = data.chunks(16).flat_map(|range| {
                    // Attributes, then a length and a place that may exist.
                    let mut range = range.to_vec();
                    range[5..8].fill(0);
                    range[10..].fill(0);
                    range[9] &= 1;
                    range
                });
                let data = data.collect();
                let sqe = self.sqe(|cid| Sqe::deallocate(cid, 1, ranges));
                vec![Request {
                    sqe,
                    data,
                    metadata: Vec::new(),
                }]
            }
            12 => {
                let lba = self.lba(input);
                let blocks = u64::from(what >> 4) + 1;
                let exists = lba + blocks <= self.drive.image().info().blocks();
                let (mut data, metadata) = if exists {
                    self.blocks(lba, blocks)
                } else {
                    let len = blocks as usize;
                    (vec![0; len * BLOCK], vec![0; len * metadata_size])
                };
                data[0] ^= input.u8() & 1;
                let sqe = self.sqe(|cid| Sqe::compare(cid, 1, lba, blocks as u16 - 1));
                vec![Request {
                    sqe,
                    data,
                    metadata,
                }]
            }
            13 => {
                let sqe = self.sqe(|cid| Sqe::flush(cid, 1));
                vec![Request::new(sqe)]
            }
            _ => vec![self.arbitrary(input)],
        }
    }

    /// Sets a fault of the SSD that the next command may meet.
    fn set_fault(&self, input: &mut Input) {
        let choice = input.u8();
        let nth = u64::from(choice >> 4 & 3);
        let bytes = usize::from(input.u8()) * 4;
        let mut state = self.ssd.state();
        match choice & 7 {
            0 => state.change_fault = Some((nth, 0, false)),
            1 => state.change_fault = Some((nth, bytes, true)),
            2 => state.change_fault = Some((nth, bytes, false)),
            3 => state.read_fault = Some(nth),
            _ => {}
        }
    }
}

fn one_after_the_other(bench: &mut Bench, faults: bool, input: &mut Input) {
    let mut registers = bench.registers();
    for _ in 0..MAX_COMMANDS {
        if input.is_empty() {
            return;
        }
        for request in bench.requests(input) {
            if faults {
                bench.set_fault(input);
            }
            registers = bench.submit(&registers, request);
        }
    }
}

fn overlapping(bench: &mut Bench, input: &mut Input) {
    let mut pending: VecDeque<(Request, BoxFuture<'_, Response>)> = VecDeque::new();
    let mut requests = Vec::new();
    for _ in 0..MAX_COMMANDS {
        if input.is_empty() {
            break;
        }
        requests.extend(bench.requests(input));
    }
    for request in requests {
        if request.sqe.cid.get() % 5 == 4 {
            bench.drive.cancel(request.sqe.cid.get() - 1);
        }
        pending.push_back((request.clone(), bench.drive.submit(request)));
        if pending.len() > MAX_IN_FLIGHT
            && let Some((request, response)) = pending.pop_front()
        {
            check_completion(&request, &block_on(response));
        }
    }
    for (request, response) in pending {
        check_completion(&request, &block_on(response));
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let choice = input.u8();
    let mode = if choice & 1 == 0 {
        MetadataMode::NvmeMetadata
    } else {
        MetadataMode::SecondHalf
    };
    let overlap = choice == 255;
    let mut bench = Bench::new(mode, choice & 2 != 0, choice & 8 != 0, overlap);
    if overlap {
        overlapping(&mut bench, &mut input);
    } else {
        one_after_the_other(&mut bench, choice & 4 != 0, &mut input);
    }
    bench.drive.shutdown().expect("memory");
});
