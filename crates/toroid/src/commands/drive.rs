//! `toroid drive`: images.

use std::path::PathBuf;

use serde_json::json;
use toroid_drive::image::{self, FormatOptions, MetadataMode, display_size, parse_size};
use toroid_tfhe::noise;
use toroid_tfhe::params::ParamSet;

use crate::host::{self, Opened};
use crate::output::Output;

/// Subcommands of `toroid drive`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Make a drive image: a sparse file that stands for the SSD.
    Format(FormatArgs),
    /// Show what an image is and what is stored on it.
    Info(InfoArgs),
    /// Serve a drive over NVMe/TCP.
    Serve(super::serve::Args),
}

/// How secure computing metadata reaches the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Metadata {
    /// In the second half of the LBA space: works with any SSD and host.
    SecondHalf,
    /// As NVMe metadata, 64 bytes a block.
    Nvme,
}

impl From<Metadata> for MetadataMode {
    fn from(metadata: Metadata) -> MetadataMode {
        match metadata {
            Metadata::SecondHalf => MetadataMode::SecondHalf,
            Metadata::Nvme => MetadataMode::NvmeMetadata,
        }
    }
}

/// Arguments of `toroid drive format`.
#[derive(clap::Args)]
pub struct FormatArgs {
    /// The image file.
    image: PathBuf,
    /// Space for data, such as 8GiB; takes room on disk only as it is used.
    #[arg(long, default_value = "8GiB", value_parser = size)]
    size: u64,
    /// Space for pages that leave the drive's memory.
    #[arg(long, default_value = "1GiB", value_parser = size)]
    swap: u64,
    /// How secure computing metadata travels.
    #[arg(long, value_enum, default_value_t = Metadata::SecondHalf)]
    metadata: Metadata,
    /// A name for people.
    #[arg(long, default_value = "")]
    label: String,
    /// Replace an existing image.
    #[arg(long)]
    force: bool,
}

/// Arguments of `toroid drive info`.
#[derive(clap::Args)]
pub struct InfoArgs {
    /// The image file.
    image: PathBuf,
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

/// Runs a subcommand.
pub fn run(command: &Command, output: &Output) -> anyhow::Result<()> {
    match command {
        Command::Format(args) => format(args, output),
        Command::Info(args) => info(args, output),
        Command::Serve(args) => super::serve::run(args, output),
    }
}

fn format(args: &FormatArgs, output: &Output) -> anyhow::Result<()> {
    let options = FormatOptions {
        size: args.size,
        swap: args.swap,
        metadata_mode: args.metadata.into(),
        label: args.label.clone(),
        overwrite: args.force,
        ..FormatOptions::default()
    };
    anyhow::ensure!(
        args.force || !args.image.exists(),
        "{} exists; --force replaces it",
        args.image.display()
    );
    host::format(&args.image, options)?;
    let shown = args.image.display().to_string();
    let value = json!({ "image": shown, "size": args.size, "swap": args.swap });
    output.result(&value, || {
        format!(
            "{shown}: {} for data, {} of swap",
            display_size(args.size),
            display_size(args.swap)
        )
    })
}

fn info(args: &InfoArgs, output: &Output) -> anyhow::Result<()> {
    let shown = args.image.display().to_string();
    let header = image::info(&args.image).map_err(host::of_image(&args.image))?;
    let opened = Opened::open(&args.image, noise::Path::Fast)?;
    let store = opened
        .wait(async { Ok::<_, std::convert::Infallible>(opened.session.store().info().await) })?;
    let mut blobs = opened.session.store().list();
    // A write that failed leaves a blob without content, for the next write to use.
    blobs.retain(|blob| blob.written);
    let rows: Vec<_> = blobs
        .iter()
        .map(|blob| {
            json!({
                "id": blob.id.0,
                "name": blob.name,
                "bytes": blob.size,
                "register": blob.sc.map(|sc| sc.vr().to_string()),
                "params": blob.sc.and_then(|sc| ParamSet::by_id(sc.params())).map(|set| set.name),
            })
        })
        .collect();
    let mode = match header.metadata_mode() {
        MetadataMode::NvmeMetadata => "NVMe metadata",
        MetadataMode::SecondHalf => "second half of the LBA space",
    };
    let free = u64::from(store.free_clusters) * store.cluster_bytes;
    let value = json!({
        "image": shown,
        "uuid": header.uuid(),
        "label": header.label(),
        "block_bytes": header.block_size(),
        "data_bytes": u64::from(store.clusters) * store.cluster_bytes,
        "free_bytes": free,
        "metadata": mode,
        "blobs": rows,
    });
    opened.close()?;
    output.result(&value, || {
        let mut text = format!(
            "{shown}: {}, blocks of {} bytes, {} free of {}\nsecure computing metadata: {mode}",
            header.uuid(),
            header.block_size(),
            display_size(free),
            display_size(u64::from(store.clusters) * store.cluster_bytes),
        );
        if !header.label().is_empty() {
            text += &format!("\nlabel {}", header.label());
        }
        for blob in &blobs {
            let (register, params) = blob.sc.map_or((String::new(), ""), |sc| {
                (
                    sc.vr().to_string(),
                    ParamSet::by_id(sc.params()).map_or("?", |set| set.name),
                )
            });
            text += &format!(
                "\n{register:<12} {params:<9} {:>13} bytes  {}",
                blob.size, blob.name
            );
        }
        text
    })
}
