//! A program on a drive in this process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use toroid_bench_common::{Error, machine};
use toroid_client::blob;
use toroid_client::session::Session;
use toroid_drive::image::{self, FormatOptions, Image};
use toroid_drive::{Drive, DriveConfig};
use toroid_engine::backend::cpu::CpuBackend;
use toroid_isa::{Instruction, VrNumber, VrType};
use toroid_task::Progress;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::MESSAGE7;
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::KeyForm;

use crate::measure::{Measurement, interleave};
use crate::row::{Row, Settings};

/// x·y = (x+y)²/4 - (x-y)²/4, Table 5 of the platform paper; writing y runs it.
const PROGRAM: &str = "
    .reg x       = cor:1
    .reg y       = cow:2
    .reg product = cor:0
    .tv  sq4     = x*x/4
        mov       product, x
        homadd    product, y
        bootstrap sq4, product
        homsub    x, y
        bootstrap sq4, x
        homsub    product, x
        return    product
";

/// The drive, the client's store on it, and two numbers.
struct Platform {
    runtime: tokio::runtime::Runtime,
    drive: Arc<Drive>,
    session: Session,
    client: ClientKey,
    encoding: Encoding,
    rng: Csprng,
    // Deletes the image when everything else is done.
    _folder: tempfile::TempDir,
}

const KEY_ID: u32 = 0;
const FACTORS: (i64, i64) = (-5, 6);

impl Platform {
    fn new() -> Result<Platform, Error> {
        let params = &MESSAGE7;
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("drive.img");
        let keys = KeyForm::Seeded.bootstrapping_key_bytes(params)
            + KeyForm::Seeded.key_switching_key_bytes(params);
        let options = FormatOptions {
            size: (keys + (256 << 20)).next_power_of_two(),
            ..FormatOptions::default()
        };
        image::format(&path, &options)?;
        let config = DriveConfig::new(Arc::new(CpuBackend::new(ArithmeticKind::Fft)));
        let drive = Arc::new(Drive::open(Image::open(&path)?, config)?);
        let runtime = tokio::runtime::Runtime::new()?;
        let mut rng = Csprng::from_os()?;
        let client = ClientKey::generate(params, &mut rng);
        let session = runtime.block_on(async {
            let session = Session::format(drive.clone(), 1, blob::FormatOptions::default()).await?;
            session.put_keys(KEY_ID, &client, &Progress::none()).await?;
            let assembly = toroid_isa::assemble(PROGRAM)?;
            session.install(params, &assembly).await?;
            Ok::<_, Error>(session)
        })?;
        Ok(Platform {
            runtime,
            drive,
            session,
            encoding: Encoding::new(params.message_bits, true)?,
            client,
            rng,
            _folder: folder,
        })
    }

    fn put(&mut self, register: VrNumber, value: i64) -> Result<Duration, Error> {
        let sample = self
            .client
            .encrypt_from(self.encoding, value, &mut self.rng)?;
        let started = Instant::now();
        self.runtime
            .block_on(self.session.put_sample(register, &sample))?;
        Ok(started.elapsed())
    }

    /// Time of the write of y, which runs the program.
    fn multiply(&mut self) -> Result<Duration, Error> {
        let x = VrNumber::new(VrType::LweCor, KEY_ID, 1)?;
        let y = VrNumber::new(VrType::LweCow, KEY_ID, 2)?;
        self.put(x, FACTORS.0)?;
        let time = self.put(y, FACTORS.1)?;
        let stored = self.runtime.block_on(self.session.get_sample(y))?;
        let product = self.client.decrypt(&stored.ciphertext)?;
        if product != FACTORS.0 * FACTORS.1 {
            return Err(format!("{} * {} gave {product}", FACTORS.0, FACTORS.1).into());
        }
        Ok(time)
    }

    /// Time of the faster bootstrap of the last program.
    fn bootstrap(&self) -> Result<Duration, Error> {
        let runs = self.drive.program_runs();
        runs.last()
            .into_iter()
            .flat_map(|run| &run.instructions)
            .filter(|timing| matches!(timing.instruction, Instruction::Bootstrap { .. }))
            .map(|timing| timing.duration)
            .min()
            .ok_or_else(|| "the drive knows of no bootstrap".into())
    }
}

/// The product of two encrypted numbers, against one bootstrap of the same program.
pub fn multiply(row: &Row, settings: &Settings) -> Result<Measurement, Error> {
    let platform = std::cell::RefCell::new(Platform::new()?);
    platform.borrow_mut().multiply()?;
    let peak = machine::peak_memory();
    let mut measurement = interleave(
        row.runs(settings),
        || platform.borrow_mut().multiply(),
        || platform.borrow().bootstrap(),
    )?;
    platform.into_inner().drive.shutdown()?;
    measurement.processor = None;
    measurement.our_peak = peak;
    measurement.note = "both figures come from the same runs: the whole write as the host sees it, and the drive's own \
                        time of a bootstrap within it"
        .to_owned();
    Ok(measurement)
}
