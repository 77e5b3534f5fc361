//! `toroid raw`: samples as the blocks that `dd` and passthrough commands move, in place of `put` and `get`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;
use toroid_client::raw;
use toroid_client::session::sample_metadata;
use toroid_isa::VrNumber;

use super::objects::{read_sample, report_sample, save_sample};
use super::write_file;
use crate::output::{Output, usage};

/// The longest file of blocks that is read: far more than a sample takes.
const MAX_BYTES: usize = 64 << 20;

/// Subcommands of `toroid raw`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Put a sample and its secure computing metadata into blocks.
    Pack(PackArgs),
    /// Take a sample from blocks that were read.
    Unpack(UnpackArgs),
}

/// Arguments of `toroid raw pack`.
#[derive(clap::Args)]
pub struct PackArgs {
    /// A sample's file.
    sample: PathBuf,
    /// Register that it is for, such as cor:0:1 or cow:0:2.
    register: VrNumber,
    /// File for the blocks of the sample.
    #[arg(long)]
    out_data: Option<PathBuf>,
    /// File for the block that describes it in the second half of the LBA space.
    #[arg(long)]
    out_metadata: Option<PathBuf>,
    /// File for the sample as extended logical blocks: each followed by its 64 bytes of metadata.
    #[arg(long)]
    extended: Option<PathBuf>,
    /// Bytes of a logical block.
    #[arg(long, default_value_t = 4096)]
    block_size: u32,
    /// Replace existing files.
    #[arg(long)]
    force: bool,
}

/// Arguments of `toroid raw unpack`.
#[derive(clap::Args)]
pub struct UnpackArgs {
    /// Blocks of the sample.
    #[arg(required_unless_present = "extended")]
    data: Option<PathBuf>,
    /// The block that describes it, from the second half of the LBA space.
    #[arg(required_unless_present = "extended")]
    metadata: Option<PathBuf>,
    /// Extended logical blocks, in place of the two.
    #[arg(long, conflicts_with_all = ["data", "metadata"])]
    extended: Option<PathBuf>,
    /// Bytes of a logical block.
    #[arg(long, default_value_t = 4096)]
    block_size: u32,
    /// File for the sample.
    #[arg(long, short)]
    out: PathBuf,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
}

/// Runs a subcommand.
pub fn run(command: &Command, output: &Output) -> anyhow::Result<()> {
    match command {
        Command::Pack(args) => pack(args, output),
        Command::Unpack(args) => unpack(args, output),
    }
}

fn pack(args: &PackArgs, output: &Output) -> anyhow::Result<()> {
    let files = [&args.out_data, &args.out_metadata, &args.extended];
    if files.iter().all(|file| file.is_none()) {
        return Err(usage(
            "nothing to write: give --out-data and --out-metadata, or --extended",
        ));
    }
    for path in files.into_iter().flatten() {
        anyhow::ensure!(
            args.force || !path.exists(),
            "{} exists; --force replaces it",
            path.display()
        );
    }
    let sample = read_sample(&args.sample)?;
    let sc = sample_metadata(args.register, &sample)?;
    let packed = raw::pack(&sc, sample.sample(), args.block_size)?;
    let write = |path: &Option<PathBuf>, bytes: &[u8]| match path {
        Some(path) => write_file(path, args.force, false, |writer| {
            Ok(writer.write_all(bytes)?)
        }),
        None => Ok(()),
    };
    write(&args.out_data, &packed.data)?;
    write(&args.out_metadata, &packed.metadata_block)?;
    write(&args.extended, &packed.extended)?;
    let blocks = packed.data.len() / args.block_size as usize;
    let value = json!({
        "register": args.register.to_string(),
        "params": sample.params().name,
        "block_bytes": args.block_size,
        "blocks": blocks,
        "data_bytes": packed.data.len(),
        "extended_bytes": packed.extended.len(),
    });
    output.result(&value, || {
        format!(
            "{blocks} blocks of {} bytes for {}",
            args.block_size, args.register
        )
    })
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    super::read_limited(path, MAX_BYTES, "blocks of a sample")
}

fn unpack(args: &UnpackArgs, output: &Output) -> anyhow::Result<()> {
    let sample = match (&args.extended, &args.data, &args.metadata) {
        (Some(path), ..) => raw::unpack_extended(&read(path)?, args.block_size)
            .with_context(|| path.display().to_string())?,
        (None, Some(data), Some(metadata)) => raw::unpack(&read(data)?, &read(metadata)?)
            .with_context(|| format!("{}, {}", data.display(), metadata.display()))?,
        _ => return Err(usage("give DATA and METADATA, or --extended")),
    };
    save_sample(&args.out, args.force, &sample.ciphertext)?;
    report_sample(&args.out, &sample, None, output)
}
