//! `toroid drive map` and `toroid reserve`: where objects lie on a drive, for those who write and read their blocks themselves.

use anyhow::Context;
use serde_json::{Value, json};
use toroid_client::blob::{BlobStat, Placement};
use toroid_isa::VrNumber;
use toroid_tfhe::params::ParamSet;

use super::objects::{check_params, params_on_drive};
use super::parse_param_set;
use crate::drive_args::DriveArgs;
use crate::opened::Opened;
use crate::output::{Output, usage};

/// Arguments of `toroid drive map`.
#[derive(clap::Args)]
pub struct MapArgs {
    #[command(flatten)]
    drive: DriveArgs,
    /// Register of the object, such as cow:0:2; all objects if not given.
    register: Option<VrNumber>,
}

/// Arguments of `toroid reserve`.
#[derive(clap::Args)]
pub struct ReserveArgs {
    #[command(flatten)]
    drive: DriveArgs,
    /// Register of the sample or column, such as cow:0:2.
    register: VrNumber,
    /// Room for a column, an object of so many bytes, in place of a sample.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    column: Option<u64>,
    /// Parameter set of the sample; that of the key id's objects on the drive if not given.
    #[arg(long, value_parser = parse_param_set)]
    params: Option<&'static ParamSet>,
}

fn placement(opened: &Opened, blob: &BlobStat) -> anyhow::Result<Vec<Placement>> {
    Ok(opened.session().store().placement(blob.id)?)
}

fn row(blob: &BlobStat, run: &Placement) -> Value {
    let params = blob.sc.and_then(|sc| ParamSet::by_id(sc.params()));
    json!({
        "register": blob.sc.map(|sc| sc.vr().to_string()),
        "name": blob.name,
        "params": params.map(|params| params.name),
        "bytes": blob.size,
        "cluster": run.cluster,
        "lba": run.lba,
        "blocks": run.blocks,
        "metadata_lba": run.metadata_lba,
    })
}

/// Prints where objects lie: of an object of several clusters the first in text, unless `all`, and each in JSON.
fn report(opened: Opened, blobs: &[BlobStat], all: bool, output: &Output) -> anyhow::Result<()> {
    let nsid = opened.drive.nsid();
    let namespace = opened.drive.info().namespace(nsid);
    let block_bytes = namespace.context("the namespace is gone")?.block_size();
    let mut rows = Vec::new();
    let mut text = format!(
        "namespace {nsid}, blocks of {block_bytes} bytes\n{:<12} {:>13} {:>9} {:>11} {:>7} {:>13}",
        "register", "bytes", "cluster", "LBA", "blocks", "metadata LBA"
    );
    for blob in blobs {
        let register = blob.sc.map_or("-".to_owned(), |sc| sc.vr().to_string());
        let runs = placement(&opened, blob)?;
        for (i, run) in runs.iter().enumerate() {
            rows.push(row(blob, run));
            if i > 0 && !all {
                continue;
            }
            let metadata = run
                .metadata_lba
                .map_or("with the data".to_owned(), |lba| lba.to_string());
            text += &format!(
                "\n{register:<12} {:>13} {:>9} {:>11} {:>7} {metadata:>13}",
                blob.size, run.cluster, run.lba, run.blocks
            );
        }
        if runs.len() > 1 && !all {
            text += &format!("  and {} clusters more", runs.len() - 1);
        }
    }
    opened.close()?;
    let value = json!({ "nsid": nsid, "block_bytes": block_bytes, "objects": rows });
    output.result(&value, || text)
}

/// Runs `toroid drive map`.
pub fn map(args: &MapArgs, output: &Output) -> anyhow::Result<()> {
    let opened = args.drive.open_read_only()?;
    let blobs: Vec<BlobStat> = match args.register {
        Some(register) => {
            let found = opened.session().find(register);
            vec![found.with_context(|| format!("nothing is stored for {register}"))?]
        }
        None => {
            let mut blobs = opened.session().store().list();
            blobs.retain(|blob| blob.written);
            blobs
        }
    };
    report(opened, &blobs, args.register.is_some(), output)
}

/// Runs `toroid reserve`.
pub fn reserve(args: &ReserveArgs, output: &Output) -> anyhow::Result<()> {
    let register = args.register;
    if !register.ty().is_sample() {
        return Err(usage(format!(
            "{register} is not a register of a sample; expected cow:KEY:DATA or cor:KEY:DATA"
        )));
    }
    let opened = args.drive.open()?;
    let params = args
        .params
        .map_or_else(|| params_on_drive(&opened, register.key_id()), Ok)?;
    check_params(&opened, register, params)?;
    let session = opened.session();
    let stat = match args.column {
        Some(bytes) => opened.wait(session.reserve_rows(register, params, bytes))?,
        None => opened.wait(session.reserve(register, params))?,
    };
    report(opened, &[stat], true, output)
}
