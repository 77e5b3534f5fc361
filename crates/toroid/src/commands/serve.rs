//! `toroid drive serve`: drives as NVMe subsystems on the network.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use toroid_drive::image::Image;
use toroid_drive::{Drive, DriveConfig};
use toroid_engine::backend::cpu::CpuBackend;
use toroid_nvme::Host;
use toroid_nvme::tcp::server;
use toroid_nvme::tcp::target::{Hosts, Limits, Subsystem, Target};
use toroid_tfhe::noise;

use crate::interrupt;
use crate::output::Output;

/// Arguments of `toroid drive serve`.
#[derive(clap::Args)]
pub struct Args {
    /// The drive image.
    image: PathBuf,
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1:4420")]
    listen: SocketAddr,
    /// NQN of the subsystem.
    #[arg(long)]
    nqn: String,
}

/// Serves until it is interrupted.
pub fn run(args: &Args, output: &Output) -> anyhow::Result<()> {
    let image = Image::open(&args.image).map_err(crate::host::of_image(&args.image))?;
    let config = DriveConfig::new(Arc::new(CpuBackend::new(noise::Path::Fast)));
    let drive = Arc::new(Drive::open(image, config)?);
    let behind = Arc::clone(&drive);
    let subsystem = Subsystem {
        nqn: args.nqn.clone(),
        storage: Arc::new(move |_: &str| Ok(Arc::clone(&behind) as Arc<dyn Host>)),
        hosts: Hosts::Any,
    };
    let target = Target::new(vec![subsystem], Limits::default(), None)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(args.listen)
            .await
            .with_context(|| format!("cannot listen on {}", args.listen))?;
        output.line(format!("{} at nvme+tcp://{}", args.nqn, args.listen));
        let token = interrupt::token();
        server::serve(listener, target, 1024, token.cancelled())
            .await
            .context("cannot accept connections")
    })?;
    drive.shutdown()?;
    Ok(())
}
