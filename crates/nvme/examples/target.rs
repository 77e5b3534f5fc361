//! A target with a namespace in memory:
//! `cargo run --release -p toroid-nvme --example target -- 127.0.0.1:4420 nqn.2024-01.io.example:memory [HOST_NQN SECRET [CONTROLLER_SECRET]]`
//!
//! With a host and its secret (`nvme gen-dhchap-key` makes one), only this host gets in, and must authenticate.

use std::error::Error;
use std::sync::Arc;

use tokio::net::TcpListener;
use toroid_nvme::fabrics::{AllowedHost, Hosts, Limits, Subsystem, Target};
use toroid_nvme::tcp::serve;
use toroid_nvme::testing::RamController;
use toroid_nvme::{Controller, Namespace};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or("127.0.0.1:4420".into());
    let nqn = arguments
        .next()
        .unwrap_or("nqn.2024-01.io.example:memory".into());
    let hosts = match arguments.next() {
        None => Hosts::Any,
        Some(host) => Hosts::Listed(vec![AllowedHost {
            secret: arguments.next().map(|text| text.parse()).transpose()?,
            controller_secret: arguments.next().map(|text| text.parse()).transpose()?,
            ..AllowedHost::new(host)
        }]),
    };
    let namespace = Namespace::new(1, 4096, 1 << 18, 0)?.with_nguid([1; 16]);
    let memory = Arc::new(RamController::new(namespace));
    let subsystem = Subsystem {
        nqn,
        storage: Arc::new(move |_: &str| Ok(Arc::clone(&memory) as Arc<dyn Controller>)),
        hosts,
    };
    let target = Target::new(vec![subsystem], Limits::default(), None)?;
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    serve(listener, target, 256, std::future::pending()).await?;
    Ok(())
}
