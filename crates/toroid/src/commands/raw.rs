//! `toroid raw`: samples as the blocks that `dd` and passthrough commands move, in place of `put` and `get`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;
use toroid_client::raw::{self, RawError};
use toroid_client::session::sample_metadata;
use toroid_isa::VrNumber;
use toroid_isa::metadata::ScMetadata;
use toroid_tfhe::params::ParamSet;

use super::objects::{read_sample, report_sample, save_sample};
use super::write_file;
use crate::output::{Output, usage};

/// The longest file of blocks that is read: far more than a sample, or a column of one command, takes.
const MAX_BYTES: usize = 64 << 20;

/// Subcommands of `toroid raw`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Put a sample and its secure computing metadata into blocks.
    Pack(PackArgs),
    /// Take a sample from blocks that were read.
    Unpack(UnpackArgs),
}

/// Files for the blocks of an object.
#[derive(clap::Args)]
pub(super) struct PackedFiles {
    /// File for the blocks of the object.
    #[arg(long)]
    out_data: Option<PathBuf>,
    /// File for the block that describes it in the second half of the LBA space.
    #[arg(long)]
    out_metadata: Option<PathBuf>,
    /// File for the object as extended logical blocks: each followed by its 64 bytes of metadata.
    #[arg(long)]
    extended: Option<PathBuf>,
    /// Bytes of a logical block.
    #[arg(long, default_value_t = 4096)]
    block_size: u32,
    /// Replace existing files.
    #[arg(long)]
    force: bool,
}

/// Files of blocks that were read.
#[derive(clap::Args)]
pub(super) struct BlockFiles {
    /// Blocks of the object.
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
}

/// Arguments of `toroid raw pack`.
#[derive(clap::Args)]
pub struct PackArgs {
    /// A sample's file.
    sample: PathBuf,
    /// Register that it is for, such as cor:0:1 or cow:0:2.
    register: VrNumber,
    #[command(flatten)]
    files: PackedFiles,
}

/// Arguments of `toroid raw unpack`.
#[derive(clap::Args)]
pub struct UnpackArgs {
    #[command(flatten)]
    files: BlockFiles,
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

impl PackedFiles {
    /// Refuses to write nothing, or to replace files.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let files = [&self.out_data, &self.out_metadata, &self.extended];
        if files.iter().all(|file| file.is_none()) {
            return Err(usage(
                "nothing to write: give --out-data and --out-metadata, or --extended",
            ));
        }
        for path in files.into_iter().flatten() {
            anyhow::ensure!(
                self.force || !path.exists(),
                "{} exists; --force replaces it",
                path.display()
            );
        }
        Ok(())
    }

    /// Writes an object of a parameter set as blocks, and reports them.
    pub(super) fn write(
        &self,
        sc: &ScMetadata,
        (object, params): (&[u8], &ParamSet),
        output: &Output,
    ) -> anyhow::Result<()> {
        let packed = raw::pack(sc, object, self.block_size)?;
        let write = |path: &Option<PathBuf>, bytes: &[u8]| match path {
            Some(path) => write_file(path, self.force, false, |writer| {
                Ok(writer.write_all(bytes)?)
            }),
            None => Ok(()),
        };
        write(&self.out_data, &packed.data)?;
        write(&self.out_metadata, &packed.metadata_block)?;
        write(&self.extended, &packed.extended)?;
        let blocks = packed.data.len() / self.block_size as usize;
        let register = sc.vr();
        let value = json!({
            "register": register.to_string(),
            "params": params.name,
            "block_bytes": self.block_size,
            "blocks": blocks,
            "data_bytes": packed.data.len(),
            "extended_bytes": packed.extended.len(),
        });
        output.result(&value, || {
            format!(
                "{blocks} blocks of {} bytes for {register}",
                self.block_size
            )
        })
    }
}

impl BlockFiles {
    /// What `take` makes of the data and the metadata.
    pub(super) fn read<T>(
        &self,
        take: impl Fn(&[u8], &[u8]) -> Result<T, RawError>,
    ) -> anyhow::Result<T> {
        match (&self.extended, &self.data, &self.metadata) {
            (Some(path), ..) => raw::split_extended(&read(path)?, self.block_size)
                .and_then(|(data, metadata)| take(&data, &metadata))
                .with_context(|| path.display().to_string()),
            (None, Some(data), Some(metadata)) => take(&read(data)?, &read(metadata)?)
                .with_context(|| format!("{}, {}", data.display(), metadata.display())),
            _ => Err(usage("give DATA and METADATA, or --extended")),
        }
    }
}

fn pack(args: &PackArgs, output: &Output) -> anyhow::Result<()> {
    args.files.check()?;
    let sample = read_sample(&args.sample)?;
    let sc = sample_metadata(args.register, &sample)?;
    let object = (sample.sample(), sample.params());
    args.files.write(&sc, object, output)
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    super::read_limited(path, MAX_BYTES, "blocks of an object")
}

fn unpack(args: &UnpackArgs, output: &Output) -> anyhow::Result<()> {
    let sample = args.files.read(raw::unpack)?;
    save_sample(&args.out, args.force, &sample.ciphertext)?;
    report_sample(&args.out, &sample, None, output)
}
