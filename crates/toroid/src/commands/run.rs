//! `toroid run`: compute-on-write and compute-on-read.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use toroid_client::drive::Verifier;
use toroid_client::session::{ComputedEntry, Outputs, SessionError, predicted_noise, result_name};
use toroid_drive::bridge::status::KEY_MISSING;
use toroid_isa::{VrNumber, VrType};
use toroid_nvme::Status;
use toroid_tfhe::Ciphertext;

use super::objects::{params_on_drive, read_sample, report_sample, save_sample};
use super::program::assemble_file;
use crate::backend::BackendArgs;
use crate::drive_args::DriveArgs;
use crate::ledger_args::LedgerArgs;
use crate::opened::Opened;
use crate::output::{Output, usage};
use crate::progress;

/// Arguments of `toroid run`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    drive: DriveArgs,
    #[command(flatten)]
    ledger: LedgerArgs,
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
    #[command(flatten)]
    verify: VerifyArgs,
}

/// Options that have the result computed again.
#[derive(clap::Args)]
struct VerifyArgs {
    /// Compute the result again here, by this program's text, and refuse any other. The drive must compute by --arithmetic ntt.
    #[arg(long, value_name = "PROGRAM")]
    verify: Option<PathBuf>,
    /// An input of the program for --verify that is not the sample of --write: its name in the text and its sample.
    #[arg(long = "input", value_name = "NAME=FILE", requires = "verify", value_parser = parse_input)]
    inputs: Vec<(String, PathBuf)>,
    /// Folder of the public keys that the drive has, for --verify.
    #[arg(
        long,
        value_name = "FOLDER",
        default_value = "keys",
        requires = "verify"
    )]
    public_keys: PathBuf,
    /// Share of the runs that --verify picks, at random, from 0 to 1.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, requires = "verify", value_parser = parse_share)]
    share: f64,
}

fn parse_input(text: &str) -> Result<(String, PathBuf), String> {
    let (name, file) = text.split_once('=').ok_or("expected NAME=FILE")?;
    Ok((name.to_owned(), file.into()))
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok();
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

impl VerifyArgs {
    /// Refuses a result that is not what the program gives, and states no less noise of it than follows from the program and its inputs.
    /// `written` is the sample of --write, in its register.
    fn check(
        &self,
        register: VrNumber,
        written: Option<&Ciphertext>,
        result: Ciphertext,
        output: &Output,
    ) -> anyhow::Result<Ciphertext> {
        let Some(path) = &self.verify else {
            return Ok(result);
        };
        let program = assemble_file(path)?;
        let files = self.inputs.iter();
        let files = files.map(|(name, file)| Ok((name.as_str(), read_sample(file)?)));
        let files = files.collect::<anyhow::Result<Vec<_>>>()?;
        let mut inputs: Vec<_> = files.iter().map(|(name, sample)| (*name, sample)).collect();
        let mut names = program.registers.iter();
        let trigger = names.find(|(_, named)| **named == register);
        inputs.extend(trigger.and_then(|(name, _)| Some((name.as_str(), written?))));
        let verifier = Verifier::new(&self.public_keys, register.key_id())?.with_share(self.share);
        let results = Outputs::from([(result_name(&program)?, result.clone())]);
        if verifier.check(&program, &inputs, &results)? {
            output.note("the result is what the program gives, computed again here");
        }
        Ok(match predicted_noise(&program, &inputs) {
            Some(noise) => result.with_noise_of_at_least(&noise),
            None => result,
        })
    }
}

/// Whether a trigger may have failed because keys are missing. A block device does not tell, so that any internal error may mean it.
pub(super) fn lacks_keys(error: &SessionError) -> bool {
    error
        .status()
        .is_some_and(|status| [KEY_MISSING, Status::INTERNAL_ERROR].contains(&status))
}

/// Has the drive load its registers of a key id.
pub(super) fn load(
    opened: &Opened,
    key_id: u32,
    with_keys: bool,
    output: &Output,
) -> anyhow::Result<()> {
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
    let ledger = args.ledger.open(output)?;
    let opened = Opened::open(location, &args.drive.host, &computing, ledger)?;
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
    let call = async || session.trigger(register, trigger.as_ref()).await;
    // A drive that others use usually holds its keys already, and they take long to load.
    load(&opened, register.key_id(), !opened.is_shared(), output)?;
    // To read the program loads it, which comes after what it uses.
    let written = trigger.as_ref().and_then(Ciphertext::encoding);
    opened.wait(session.check_trigger(register, written))?;
    let started = Instant::now();
    let mut result = opened.drive.wait(call());
    if opened.is_shared() && result.as_ref().is_err_and(lacks_keys) {
        load(&opened, register.key_id(), true, output)?;
        result = opened.drive.wait(call());
    }
    let trigger_ms = started.elapsed().as_secs_f64() * 1e3;
    let (mut result, entry) = opened.wait(async { result })?;
    if let Some(origin) = entry.as_ref().and_then(ComputedEntry::origin) {
        let inputs = origin.inputs.iter();
        let inputs = inputs.map(|(subject, version)| format!("{subject} version {version}"));
        let inputs: Vec<_> = inputs.collect();
        output.note(format!("computed from {}", inputs.join(", ")));
    }
    match opened.program_run() {
        Some(run) => output.line(format!(
            "{} instructions in {:.1} ms",
            run.instructions.len(),
            run.duration.as_secs_f64() * 1e3
        )),
        None => output.line(format!("the drive answered after {trigger_ms:.1} ms")),
    }
    let verify = &args.verify;
    result.ciphertext = verify.check(register, trigger.as_ref(), result.ciphertext, output)?;
    opened.session().accept(entry)?;
    opened.close()?;
    // A drive keeps the start of tags alone: the result has that of the sample that was written.
    if let Some(tag) = trigger.as_ref().and_then(Ciphertext::tag) {
        result.ciphertext = result.ciphertext.with_tag(*tag);
    }
    save_sample(&args.out, args.force, &result.ciphertext)?;
    report_sample(&args.out, &result, computing.simulated.as_ref(), output)
}
