//! `toroid run`: compute-on-write and compute-on-read.

use std::path::PathBuf;

use anyhow::Context;
use toroid_isa::{VrNumber, VrType};
use toroid_tfhe::noise;

use super::keys::NO_TAG;
use super::objects::{header_noise, read_sample, report_sample, sample_encoding, save_sample};
use crate::host::Opened;
use crate::output::Output;
use crate::progress;

/// Arguments of `toroid run`.
#[derive(clap::Args)]
pub struct Args {
    /// The drive image, with keys, test vectors, program and the other samples on it.
    image: PathBuf,
    /// Register whose access triggers the program: cow:KEY:DATA is written, cor:KEY:DATA is read.
    register: VrNumber,
    /// The sample to write into a cow register.
    #[arg(long, short)]
    write: Option<PathBuf>,
    /// File for the result.
    #[arg(long, short)]
    out: PathBuf,
    /// Exact integer arithmetic (NTT) instead of the f64 FFT.
    #[arg(long)]
    exact: bool,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
}

/// Loads the drive's registers, triggers the program and fetches the result.
pub fn run(args: &Args, output: &Output) -> anyhow::Result<()> {
    let register = args.register;
    let trigger = match (register.ty(), &args.write) {
        (VrType::TlweCow, Some(path)) => Some((path, read_sample(path)?)),
        (VrType::TlweCow, None) => {
            anyhow::bail!("{register} triggers when it is written: give --write SAMPLE")
        }
        (VrType::TlweCor, None) => None,
        (VrType::TlweCor, Some(_)) => {
            anyhow::bail!("{register} triggers when it is read: leave out --write")
        }
        _ => anyhow::bail!(
            "{register} is no register of a sample; expected cow:KEY:DATA or cor:KEY:DATA"
        ),
    };
    anyhow::ensure!(
        args.force || !args.out.exists(),
        "{} exists; --force replaces it",
        args.out.display()
    );
    let path = if args.exact {
        noise::Path::Exact
    } else {
        noise::Path::Fast
    };
    let opened = Opened::open(&args.image, path)?;
    let session = &opened.session;
    let bar = progress::bar(output, "loading virtual registers");
    opened
        .wait(session.load(register.key_id(), &progress::transfer(&bar)))
        .context("cannot load the drive's registers")?;
    bar.finish_and_clear();
    if let Some(entry) = opened.drive.error_log().first() {
        anyhow::bail!("the drive could not load a register: {}", entry.reason);
    }
    anyhow::ensure!(
        session
            .find(VrNumber::program(register.key_id())?)
            .is_some(),
        "the drive has no program for key id {}: put one there first",
        register.key_id()
    );
    let mut tag = NO_TAG;
    if let Some((path, (header, bytes))) = trigger {
        tag = header.tag;
        let encoding = sample_encoding(&header, path)?;
        opened.wait(session.put_sample(
            register,
            header.params,
            &bytes,
            encoding,
            header_noise(&header),
        ))?;
    }
    let result = opened.wait(session.get_sample(register))?;
    anyhow::ensure!(
        result.sc.computed(),
        "the drive did not run a program for {register}"
    );
    if let Some(last) = opened.drive.program_runs().last() {
        output.line(format!(
            "{} instructions in {:.1} ms",
            last.instructions.len(),
            last.duration.as_secs_f64() * 1e3
        ));
    }
    opened.close()?;
    save_sample(&args.out, args.force, &result, tag)?;
    report_sample(&args.out, &result, output)
}
