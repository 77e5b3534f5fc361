//! Hosts that come and go.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use toroid_nvme::fabrics::ConnectOptions;
use toroid_nvme::{read_blocks, tcp};

use crate::server::Server;
use crate::{Counters, Failure, Numbers, add};

/// Blocks that a host which leaves in the middle asks for.
const MANY: u64 = 256;

/// Visits with pauses until `end`: hosts that read and say goodbye, that leave in the middle of a read, and peers that send nonsense.
pub async fn come(
    server: Arc<Server>,
    end: Instant,
    pause: Duration,
    counters: Arc<Counters>,
) -> Result<(), Failure> {
    let mut numbers = Numbers(7);
    let address = &server.blocks;
    let options = ConnectOptions::new("nqn.2024-01.io.example:visitor", [98; 16]);
    while Instant::now() < end {
        match numbers.below(3) {
            0 => {
                let controller = tcp::connect(address, &options).await?;
                read_blocks(&controller, 1, 0, 1).await?;
                controller.disconnect();
            }
            1 => {
                let controller = tcp::connect(address, &options).await?;
                let read = read_blocks(&controller, 1, 0, MANY);
                // Whatever came of it.
                let _ = tokio::time::timeout(Duration::from_micros(200), read).await;
            }
            _ => {
                let mut stream = TcpStream::connect((&*address.host, address.port)).await?;
                let length = 1 + numbers.below(300) as usize;
                let nonsense: Vec<u8> = (0..length).map(|_| numbers.below(256) as u8).collect();
                stream.write_all(&nonsense).await?;
            }
        }
        add(&counters.visits, 1);
        tokio::time::sleep(pause).await;
    }
    Ok(())
}
