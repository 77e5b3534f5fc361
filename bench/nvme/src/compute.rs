//! What the drive costs on top of the bootstraps of a command that triggers a program.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use toroid_bench_common::Error;
use toroid_client::blob;
use toroid_client::session::Session;
use toroid_drive::bridge::Effect;
use toroid_drive::image::{FormatOptions, MetadataMode};
use toroid_isa::{Instruction, VrNumber, VrType};
use toroid_nvme::fabrics::RemoteController;
use toroid_nvme::tcp::Digests;
use toroid_nvme::{Controller, ControllerInfo, Request, Response};
use toroid_task::Progress;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::MESSAGE7;
use toroid_tfhe::random::Csprng;

use toroid_nvme_bench::loopback::{connect, make_image, runtime, serve_here};
use toroid_nvme_bench::row::Row;

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
const KEY_ID: u32 = 0;
const RUNS: usize = 21;
/// One percent of a bootstrap.
const BAR: f64 = 0.01;

/// Notes how long commands that ran a program took.
struct Timed {
    controller: RemoteController,
    triggered: Mutex<Vec<Duration>>,
}

impl Controller for Timed {
    fn submit(&self, request: Request) -> BoxFuture<'_, Response> {
        Box::pin(async move {
            let start = Instant::now();
            let response = self.controller.submit(request).await;
            if Effect::of(&response.cqe) == Some(Effect::Computed) {
                let mut triggered = self
                    .triggered
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                triggered.push(start.elapsed());
            }
            response
        })
    }

    fn info(&self) -> &ControllerInfo {
        self.controller.info()
    }
}

/// A command's time at its host, over TCP, less that of its program's bootstraps, as a share of one bootstrap.
pub fn row(folder: Option<&Path>) -> Result<Row, Error> {
    eprintln!("measuring a command that triggers a program …");
    let options = FormatOptions {
        size: 2 << 30,
        swap: 16 << 20,
        metadata_mode: MetadataMode::SecondHalf,
        // As large as those of the blob store.
        cluster_blocks: 256,
        ..FormatOptions::default()
    };
    let (_folder, path) = make_image(folder, &options)?;
    let (started, address) = std::sync::mpsc::channel();
    let all = rustix::thread::CpuSet::new();
    let all =
        (0..std::thread::available_parallelism()?.get().max(2)).fold(all, |mut all, processor| {
            all.set(processor);
            all
        });
    rustix::thread::sched_setaffinity(None, &all)?;
    std::thread::spawn(move || {
        if let Err(error) = serve_here(&path, started) {
            eprintln!("target: {error}");
        }
    });
    let (address, drive) = address.recv()?;
    let (mut overheads, mut bootstraps) = (Vec::new(), Vec::new());
    runtime()?.block_on(async {
        let timed = Arc::new(Timed {
            controller: connect(address, Digests::default()).await?,
            triggered: Mutex::default(),
        });
        let controller = Arc::clone(&timed) as Arc<dyn Controller>;
        let session = Session::format(
            controller,
            1,
            blob::FormatOptions {
                cluster_bytes: 256 * 4096,
                ..blob::FormatOptions::default()
            },
        )
        .await?;
        let mut rng = Csprng::from_os()?;
        let client = ClientKey::generate(&MESSAGE7, &mut rng);
        session.put_keys(KEY_ID, &client, &Progress::none()).await?;
        let assembly = toroid_isa::assemble(PROGRAM)?;
        for vector in &assembly.test_vectors {
            session.put_test_vector(&MESSAGE7, vector).await?;
        }
        for run in 0..=RUNS as i64 {
            let x = VrNumber::new(VrType::LweCor, KEY_ID, 1)?;
            let y = VrNumber::new(VrType::LweCow, KEY_ID, 2)?;
            session.put_sample(x, &client.encrypt(5)?).await?;
            if run == 0 {
                session
                    .put_program(KEY_ID, &MESSAGE7, &assembly.program)
                    .await?;
            }
            session.put_sample(y, &client.encrypt(run % 5 - 2)?).await?;
            let taken = timed
                .triggered
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop();
            let (Some(taken), Some(program)) = (taken, drive.program_runs().pop()) else {
                return Err(Error::from("the program did not run"));
            };
            let timings: Vec<Duration> = program
                .instructions
                .iter()
                .filter(|timing| matches!(timing.instruction, Instruction::Bootstrap { .. }))
                .map(|timing| timing.duration)
                .collect();
            let inside: Duration = timings.iter().sum();
            // The first run touches memory for the first time.
            if run > 0 {
                let one = inside.as_secs_f64() / timings.len() as f64;
                overheads.push(taken.saturating_sub(inside).as_secs_f64() / one);
                bootstraps.push(one);
            }
        }
        Ok(())
    })?;
    bootstraps.sort_by(f64::total_cmp);
    let median = bootstraps.get(RUNS / 2).copied().unwrap_or(f64::NAN);
    let note = format!(
        "x·y of two encrypted 7-bit integers (`message7`), the write of y over TCP: the command's time at its host less that of its two bootstraps, {:.1} ms each in the median.",
        median * 1e3
    );
    Ok(Row::cost(
        "drive's part of a compute-on-write command",
        overheads,
        BAR,
        note,
    ))
}
