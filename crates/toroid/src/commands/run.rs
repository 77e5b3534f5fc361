//! `toroid run`: compute-on-write and compute-on-read.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use toroid_client::session::SessionError;
use toroid_drive::bridge::status::KEY_MISSING;
use toroid_isa::{VrNumber, VrType};
use toroid_nvme::Status;
use toroid_tfhe::Ciphertext;

use super::objects::{params_on_drive, read_sample, report_sample, save_sample};
use crate::backend::BackendArgs;
use crate::drive_args::DriveArgs;
use crate::opened::{Opened, status_of};
use crate::output::{Output, usage};
use crate::progress;

/// Arguments of `toroid run`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    drive: DriveArgs,
    /// Register whose access triggers the program: cow:KEY:DATA is written, cor:KEY:DATA is read.
    register: VrNumber,
    /// The sample to write into a cow register.
    #[arg(long, short)]
    write: Option<PathBuf>,
    /// File for the result.
    #[arg(long, short)]
    out: PathBuf,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    backend: BackendArgs,
}

/// Whether a trigger may have failed because keys are missing. A block device does not tell, so that any internal error may mean it.
fn lacks_keys(error: &SessionError) -> bool {
    status_of(error).is_some_and(|status| [KEY_MISSING, Status::INTERNAL_ERROR].contains(&status))
}

/// Has the drive load its registers of a key id.
fn load(opened: &Opened, key_id: u32, with_keys: bool, output: &Output) -> anyhow::Result<()> {
    let session = opened.session();
    let bar = progress::bar(output, "loading virtual registers");
    let progress = progress::report_to(&bar);
    // Earlier failures do not count as failures of the load.
    opened.drive.new_failure();
    let loaded = if opened.is_shared() {
        opened.wait(session.reload(key_id, with_keys, &progress))
    } else {
        opened.wait(session.load(key_id, &progress))
    };
    loaded.context("cannot load the drive's registers")?;
    bar.finish_and_clear();
    // The log of a shared drive has failures of others; there the trigger tells what is missing.
    match opened.drive.new_failure() {
        Some(reason) if !opened.is_shared() => {
            anyhow::bail!("the drive could not load a register: {reason}")
        }
        _ => Ok(()),
    }
}

/// Loads the drive's registers, triggers the program and fetches the result.
pub fn run(args: &Args, output: &Output) -> anyhow::Result<()> {
    let register = args.register;
    let trigger = match (register.ty(), &args.write) {
        (VrType::LweCow, Some(path)) => Some(read_sample(path)?),
        (VrType::LweCow, None) => {
            return Err(usage(format!(
                "{register} triggers when it is written: give --write SAMPLE"
            )));
        }
        (VrType::LweCor, None) => None,
        (VrType::LweCor, Some(_)) => {
            return Err(usage(format!(
                "{register} triggers when it is read: leave out --write"
            )));
        }
        _ => {
            return Err(usage(format!(
                "{register} is not a register of a sample; expected cow:KEY:DATA or cor:KEY:DATA"
            )));
        }
    };
    anyhow::ensure!(
        args.force || !args.out.exists(),
        "{} exists; --force replaces it",
        args.out.display()
    );
    let location = &args.drive.location;
    let computing = args.backend.choose(Some(location), output)?;
    let opened = Opened::open(location, &args.drive.host, &computing)?;
    let session = opened.session();
    anyhow::ensure!(
        session
            .find(VrNumber::program(register.key_id())?)
            .is_some(),
        "the drive has no program for key id {}: put one there first",
        register.key_id()
    );
    if let Some(simulated) = &computing.simulated {
        simulated.prepare(params_on_drive(&opened, register.key_id())?)?;
    }
    let call = async || {
        if let Some(sample) = &trigger {
            session.put_sample(register, sample).await?;
        }
        session.get_sample(register).await
    };
    // A drive that others use usually holds its keys already, and they take long to load.
    load(&opened, register.key_id(), !opened.is_shared(), output)?;
    // To read the program loads it, which comes after what it uses.
    let written = trigger.as_ref().and_then(Ciphertext::encoding);
    opened.wait(session.check_width(register, written))?;
    let started = Instant::now();
    let mut result = opened.drive.wait(call());
    if opened.is_shared() && result.as_ref().is_err_and(lacks_keys) {
        load(&opened, register.key_id(), true, output)?;
        result = opened.drive.wait(call());
    }
    let trigger_ms = started.elapsed().as_secs_f64() * 1e3;
    let mut result = opened.wait(async { result })?;
    anyhow::ensure!(
        result.computed,
        "the drive did not run a program for {register}"
    );
    match opened.program_run() {
        Some(run) => output.line(format!(
            "{} instructions in {:.1} ms",
            run.instructions.len(),
            run.duration.as_secs_f64() * 1e3
        )),
        None => output.line(format!("the drive answered after {trigger_ms:.1} ms")),
    }
    opened.close()?;
    // A drive keeps the start of tags alone: the result has that of the sample that was written.
    if let Some(tag) = trigger.as_ref().and_then(Ciphertext::tag) {
        result.ciphertext = result.ciphertext.with_tag(*tag);
    }
    save_sample(&args.out, args.force, &result.ciphertext)?;
    report_sample(&args.out, &result, computing.simulated.as_ref(), output)
}
