//! `toroid drive`: makes, describes, finds and serves drives.

use std::path::Path;

use anyhow::{Context, anyhow};
use serde_json::json;
use toroid_client::blob::BlobError;
use toroid_client::drive::{DriveError, create_image};
use toroid_client::location::Location;
use toroid_client::session::SessionError;
use toroid_drive::image::{self, FormatOptions, ImageInfo, MetadataMode, display_size, parse_size};
use toroid_nvme::Namespace;
use toroid_nvme::fabrics::DISCOVERY_NQN;
use toroid_nvme::tcp::Address;
use toroid_tfhe::params::ParamSet;

use super::map;
use crate::drive_args::{DriveArgs, HostArgs};
use crate::opened::Opened;
use crate::output::{Output, usage};

/// Subcommands of `toroid drive`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Make a drive image, a sparse file that stands for the SSD; or a blob store on an existing drive.
    Format(FormatArgs),
    /// Show what a drive is and what is stored on it.
    Info(InfoArgs),
    /// Show where on a drive its objects lie: for dd and nvme-cli.
    Map(map::MapArgs),
    /// Ask which drives there are at an address.
    Discover(DiscoverArgs),
    /// Serve a drive over NVMe/TCP.
    Serve(super::serve::Args),
    /// Watch what a served drive does: programs, rows and bootstraps a second, memory, space, hosts, failures.
    Top(super::top::Args),
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
    #[command(flatten)]
    drive: DriveArgs,
    /// Space for data, such as 4GiB; takes room on disk only as it is used. 8GiB if not given. For images, as the next three.
    #[arg(long, value_parser = size)]
    size: Option<u64>,
    /// Space for pages that leave the drive's memory; 1GiB if not given.
    #[arg(long, value_parser = size)]
    swap: Option<u64>,
    /// How secure computing metadata travels; in the second half if not given.
    #[arg(long, value_enum)]
    metadata: Option<Metadata>,
    /// A name for people.
    #[arg(long)]
    label: Option<String>,
    /// On a block device: make an image of it, the SSD of a drive in this process; otherwise the device is taken for an existing drive.
    #[arg(long)]
    ssd: bool,
    /// Replace an existing image or store.
    #[arg(long)]
    force: bool,
}

/// Arguments of `toroid drive info`.
#[derive(clap::Args)]
pub struct InfoArgs {
    #[command(flatten)]
    drive: DriveArgs,
}

/// Arguments of `toroid drive discover`.
#[derive(clap::Args)]
pub struct DiscoverArgs {
    /// Where to ask: nvme+tcp://HOST:PORT.
    address: Address,
    #[command(flatten)]
    host: HostArgs,
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

/// Runs a subcommand.
pub fn run(command: &Command, output: &Output) -> anyhow::Result<()> {
    match command {
        Command::Format(args) => format(args, output),
        Command::Info(args) => info(args, output),
        Command::Map(args) => map::map(args, output),
        Command::Discover(args) => discovered(args, output),
        Command::Serve(args) => super::serve::run(args, output),
        Command::Top(args) => super::top::run(args, output),
    }
}

fn format(args: &FormatArgs, output: &Output) -> anyhow::Result<()> {
    let DriveArgs { location, host } = &args.drive;
    let image = match location {
        Location::Image(path) => Some(path),
        Location::Device(path) if args.ssd => Some(path),
        _ => None,
    };
    let Some(path) = image else {
        let for_images = [
            ("--size", args.size.is_some()),
            ("--swap", args.swap.is_some()),
            ("--metadata", args.metadata.is_some()),
            ("--label", args.label.is_some()),
            ("--ssd", args.ssd),
        ];
        if let Some((option, _)) = for_images.into_iter().find(|(_, given)| *given) {
            return Err(usage(format!(
                "{option} is for images: {location} is a drive that has its sizes, and gets a new blob store only"
            )));
        }
        let formatted = host.options()?.format(location.clone(), args.force);
        formatted.map_err(|error| match error {
            DriveError::HoldsStore(location) => {
                anyhow!("{location} holds a blob store; --force replaces it")
            }
            DriveError::MayHold { location, source } => anyhow::Error::new(source).context(
                format!("{location} may hold something; --force replaces it"),
            ),
            error => error.into(),
        })?;
        let value = json!({ "drive": location.to_string() });
        return output.result(&value, || format!("{location}: an empty blob store"));
    };
    let defaults = FormatOptions::default();
    let options = FormatOptions {
        size: args.size.unwrap_or(defaults.size),
        swap: args.swap.unwrap_or(defaults.swap),
        metadata_mode: args.metadata.unwrap_or(Metadata::SecondHalf).into(),
        label: args.label.clone().unwrap_or_default(),
        overwrite: args.force,
        ..defaults
    };
    for (option, size) in [("--size", options.size), ("--swap", options.swap)] {
        if size < u64::from(options.block_size) {
            return Err(usage(format!(
                "{option} of {size} bytes; expected at least one block of {} bytes, and a unit, such as 64MiB",
                options.block_size
            )));
        }
    }
    anyhow::ensure!(
        args.force || !path.exists(),
        "{} exists; --force replaces it",
        path.display()
    );
    let (size, swap) = (options.size, options.swap);
    create_image(path, options).map_err(|error| {
        let too_small = match &error {
            DriveError::Format { source, .. } => {
                matches!(**source, SessionError::Blob(BlobError::Unsuitable(_)))
            }
            _ => false,
        };
        let error = anyhow::Error::new(error);
        if too_small {
            let size = display_size(size);
            error.context(format!("a drive of {size} is too small for keys and samples; expected a larger --size, such as 64MiB for tests"))
        } else {
            error
        }
    })?;
    let shown = path.display().to_string();
    let value = json!({ "image": shown, "size": size, "swap": swap });
    output.result(&value, || {
        format!(
            "{shown}: {} for data, {} of swap",
            display_size(size),
            display_size(swap)
        )
    })
}

/// What can be told of the drive itself, in words and as JSON.
fn describe(header: Option<(&Path, ImageInfo)>, opened: &Opened) -> (String, serde_json::Value) {
    if let Some((path, header)) = header {
        let mut text = header.uuid();
        if !header.label().is_empty() {
            text += &format!(", label {}", header.label());
        }
        let value = json!({ "image": path.display().to_string(), "uuid": header.uuid(), "label": header.label() });
        return (text, value);
    }
    let info = opened.drive.info();
    let text = [&info.model, &info.firmware, &info.serial]
        .into_iter()
        .filter(|text| !text.is_empty())
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    let value = json!({
        "model": info.model,
        "firmware": info.firmware,
        "serial": info.serial,
        "mdts_bytes": info.mdts_bytes,
    });
    (text, value)
}

fn info(args: &InfoArgs, output: &Output) -> anyhow::Result<()> {
    let location = &args.drive.location;
    let header = match location {
        Location::Image(path) => {
            let header = image::info(path).map_err(|source| DriveError::of_image(path, source))?;
            Some((path.as_path(), header))
        }
        _ => None,
    };
    let opened = args.drive.open_read_only()?;
    let (described, mut value) = describe(header, &opened);
    let nsid = opened.drive.nsid();
    let namespace: Namespace = opened
        .drive
        .info()
        .namespace(nsid)
        .context("the namespace is gone")?
        .clone();
    let store = opened.drive.wait(opened.session().store().info());
    let mut blobs = opened.session().store().list();
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
    let mode = match namespace.metadata_size() {
        0 => "second half of the LBA space",
        _ => "NVMe metadata",
    };
    let free = u64::from(store.free_clusters) * store.cluster_bytes;
    let size = u64::from(store.clusters) * store.cluster_bytes;
    let common = json!({
        "drive": location.to_string(),
        "nsid": nsid,
        "block_bytes": namespace.block_size(),
        "data_bytes": size,
        "free_bytes": free,
        "metadata": mode,
        "blobs": rows,
    });
    if let (Some(value), serde_json::Value::Object(common)) = (value.as_object_mut(), common) {
        value.extend(common);
    }
    opened.close()?;
    output.result(&value, || {
        let mut text = format!(
            "{location}: {described}\nblocks of {} bytes, {} free of {}\nsecure computing metadata: {mode}",
            namespace.block_size(),
            display_size(free),
            display_size(size),
        );
        for blob in &blobs {
            let (register, params) = blob.sc.map_or((String::new(), ""), |sc| {
                (
                    sc.vr().to_string(),
                    ParamSet::by_id(sc.params()).map_or("?", |set| set.name),
                )
            });
            // Sessions name an object by its register, before what a ledger adds.
            let named = blob.name.split(' ').next();
            let name = if named == Some(&register) { "" } else { &blob.name };
            let line = format!("{register:<12} {params:<9} {:>13} bytes  {name}", blob.size);
            text += &format!("\n{}", line.trim_end());
        }
        text
    })
}

fn discovered(args: &DiscoverArgs, output: &Output) -> anyhow::Result<()> {
    let address = &args.address;
    let options = args.host.options()?;
    let entries = options
        .discover(address)
        .with_context(|| format!("cannot ask {}:{}", address.host, address.port))?;
    let drives: Vec<Address> = entries
        .iter()
        .filter_map(|entry| {
            Some(Address {
                host: entry.traddr(),
                port: entry.trsvcid().parse().ok()?,
                nqn: entry.subnqn()?.to_owned(),
            })
        })
        .filter(|drive| drive.nqn != DISCOVERY_NQN)
        .collect();
    let rows: Vec<_> = drives
        .iter()
        .map(|drive| {
            json!({ "drive": drive.to_string(), "nqn": drive.nqn, "host": drive.host, "port": drive.port })
        })
        .collect();
    output.result(&json!({ "drives": rows }), || {
        if drives.is_empty() {
            return format!("{}:{} shows this host no drive", address.host, address.port);
        }
        let lines: Vec<String> = drives.iter().map(Address::to_string).collect();
        lines.join("\n")
    })
}
