//! A drive that this process serves on loopback, and its client.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toroid_bench_common::Error;
use toroid_drive::image::{self, FormatOptions, Image};
use toroid_drive::{Drive, DriveConfig};
use toroid_engine::backend::cpu::CpuBackend;
use toroid_nvme::Controller;
use toroid_nvme::fabrics::{ConnectOptions, Hosts, Limits, RemoteController, Subsystem, Target};
use toroid_nvme::tcp::{Address, Connector, Digests, serve};

const NQN: &str = "nqn.2024-01.io.example:bench";

/// Makes an image in a folder of its own, which disappears when the result is dropped.
pub fn make_image(
    folder: Option<&Path>,
    options: &FormatOptions,
) -> Result<(tempfile::TempDir, PathBuf), Error> {
    let folder = match folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let path = folder.path().join("drive.img");
    image::format(&path, options)?;
    Ok((folder, path))
}

/// Serves a drive on loopback from the calling thread until the process ends, and sends its address to `started`.
pub fn serve_here(
    path: &Path,
    started: std::sync::mpsc::Sender<(SocketAddr, Arc<Drive>)>,
) -> Result<(), Error> {
    let backend = CpuBackend::new(toroid_tfhe::arithmetic::ArithmeticKind::Fft);
    let drive = Drive::open(Image::open(path)?, DriveConfig::new(Arc::new(backend)))?;
    let drive = Arc::new(drive);
    let behind = Arc::clone(&drive);
    let subsystem = Subsystem {
        nqn: NQN.to_owned(),
        storage: Arc::new(move |_: &str| Ok(Arc::clone(&behind) as Arc<dyn Controller>)),
        hosts: Hosts::Any,
    };
    let target = Target::new(vec![subsystem], Limits::default(), None)?;
    let runtime = runtime()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        started.send((listener.local_addr()?, drive))?;
        serve(listener, target, 64, std::future::pending()).await?;
        Ok(())
    })
}

/// A runtime on the calling thread.
pub fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?)
}

/// Connects to a drive that [`serve_here`] serves.
pub async fn connect(address: SocketAddr, digests: Digests) -> Result<RemoteController, Error> {
    let address = Address {
        host: address.ip().to_string(),
        port: address.port(),
        nqn: NQN.to_owned(),
    };
    let options = ConnectOptions::new("nqn.2024-01.io.example:client", [1; 16]);
    let connector = Connector { address, digests };
    Ok(connector.connect(&options).await?)
}
