//! A drive that this process serves on loopback, and its client.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use toroid_bench_common::Error;
use toroid_drive::image::{self, FormatOptions, Image};
use toroid_drive::{Drive, DriveConfig};
use toroid_engine::backend::cpu::CpuBackend;
use toroid_nvme::Controller;
use toroid_nvme::fabrics::auth::{AuthHash, TlsKey, TlsKeyError};
use toroid_nvme::fabrics::{
    AllowedHost, ConnectOptions, Hosts, Limits, RemoteController, Subsystem, Target, TlsMode,
};
use toroid_nvme::tcp::{Address, Connector, Digests, Listener, serve};

const NQN: &str = "nqn.2024-01.io.example:bench";
/// A host whose connections are plain, and one whose connections are encrypted.
const PLAIN: &str = "nqn.2024-01.io.example:client";
const ENCRYPTED: &str = "nqn.2024-01.io.example:tls-client";

/// The key of [`ENCRYPTED`].
static KEY: LazyLock<Result<TlsKey, TlsKeyError>> =
    LazyLock::new(|| TlsKey::generate(AuthHash::Sha256));

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
        hosts: Hosts::Listed(vec![
            AllowedHost::new(PLAIN),
            AllowedHost {
                tls_key: Some(KEY.clone()?),
                ..AllowedHost::new(ENCRYPTED)
            },
        ]),
    };
    let target = Target::new(vec![subsystem], Limits::default(), None)?;
    let runtime = runtime()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        started.send((listener.local_addr()?, drive))?;
        let listener = Listener::new(listener, TlsMode::Allowed);
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

/// Connects to a drive that [`serve_here`] serves, without TLS.
pub async fn connect(address: SocketAddr, digests: Digests) -> Result<RemoteController, Error> {
    let options = ConnectOptions::new(PLAIN, [1; 16]);
    connect_with(address, digests, options).await
}

/// Connects to a drive that [`serve_here`] serves, by TLS.
pub async fn connect_encrypted(address: SocketAddr) -> Result<RemoteController, Error> {
    let mut options = ConnectOptions::new(ENCRYPTED, [2; 16]);
    options.tls_key = Some(KEY.clone()?);
    connect_with(address, Digests::default(), options).await
}

async fn connect_with(
    address: SocketAddr,
    digests: Digests,
    options: ConnectOptions,
) -> Result<RemoteController, Error> {
    let address = Address {
        host: address.ip().to_string(),
        port: address.port(),
        nqn: NQN.to_owned(),
    };
    let connector = Connector { address, digests };
    Ok(connector.connect(&options).await?)
}
