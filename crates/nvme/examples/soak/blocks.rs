//! Reads, writes, compares and flushes of blocks whose contents are known.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use toroid_nvme::fabrics::{ConnectOptions, RemoteController};
use toroid_nvme::{Controller, Request, Sqe, Status, admin, tcp, write_zeroes};

use crate::server::Server;
use crate::{Counters, Failure, LIMIT, Numbers, Options, add, timed};

const BLOCK: usize = 4096;
/// Blocks of each of the commands' places.
const BLOCKS: u64 = 16;
/// Controllers that one host may have.
const CONTROLLERS_PER_HOST: usize = 8;

/// Of the image that has room for all places.
pub fn bytes(options: &Options) -> u64 {
    blocks(options) * BLOCK as u64
}

fn blocks(options: &Options) -> u64 {
    (options.connections * options.commands) as u64 * BLOCKS
}

/// Writes zeroes over what formatting has put there.
pub async fn clear(server: &Server, options: &Options) -> Result<(), Failure> {
    let connect = ConnectOptions::new("nqn.2024-01.io.example:host", [99; 16]);
    let controller = tcp::connect(&server.blocks, &connect).await?;
    Ok(write_zeroes(&controller, 1, 0, blocks(options)).await?)
}

/// Connects all hosts. Their commands run until `end`, and a Keep Alive ten times per second beside them.
pub async fn start(
    server: &Server,
    options: &Options,
    end: Instant,
    counters: &Arc<Counters>,
    tasks: &mut JoinSet<Result<(), Failure>>,
) -> Result<(), Failure> {
    let pause = Duration::from_millis(options.pause);
    let commands = options.commands;
    let mut first = None;
    for number in 0..options.connections {
        let id = (number / CONTROLLERS_PER_HOST) as u8 + 1;
        let connect = ConnectOptions {
            queue_entries: commands as u16 + 1,
            timeout: LIMIT,
            ..ConnectOptions::new(format!("nqn.2024-01.io.example:host-{id}"), [id; 16])
        };
        let controller = Arc::new(tcp::connect(&server.blocks, &connect).await?);
        first.get_or_insert_with(|| Arc::clone(&controller));
        for i in 0..commands {
            let start = ((number * commands + i) as u64) * BLOCKS;
            let (controller, counters) = (Arc::clone(&controller), Arc::clone(counters));
            tasks.spawn(place(controller, start, end, pause, counters));
        }
    }
    let first = first.ok_or("no connections")?;
    tasks.spawn(keep_alive(first, end, Arc::clone(counters)));
    Ok(())
}

async fn keep_alive(
    controller: Arc<RemoteController>,
    end: Instant,
    counters: Arc<Counters>,
) -> Result<(), Failure> {
    while Instant::now() < end {
        let request = Request::new(Sqe {
            opcode: admin::opcode::KEEP_ALIVE,
            ..Sqe::default()
        });
        let response = timed(controller.admin(request), &counters.keep_alive_worst).await?;
        if response.cqe.status() != Status::SUCCESS {
            return Err("Keep Alive failed".into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Content of a block: it tells its place and its version.
fn put(lba: u64, version: u64, data: &mut Vec<u8>) {
    for _ in 0..BLOCK / 16 {
        data.extend_from_slice(&lba.to_le_bytes());
        data.extend_from_slice(&version.to_le_bytes());
    }
}

/// Commands at one place, one after the other, until `end`.
async fn place(
    controller: Arc<RemoteController>,
    start: u64,
    end: Instant,
    pause: Duration,
    counters: Arc<Counters>,
) -> Result<(), Failure> {
    let mut versions = [0u64; BLOCKS as usize];
    let mut numbers = Numbers(start << 1 | 1);
    let mut version = 0;
    while Instant::now() < end {
        let first = numbers.below(BLOCKS);
        let most = if numbers.below(8) == 0 { BLOCKS } else { 2 };
        let count = (1 + numbers.below(most)).min(BLOCKS - first);
        let range = first as usize..(first + count) as usize;
        let (slba, nlb) = (start + first, (count - 1) as u16);
        let choice = numbers.below(1000);
        let (sqe, counter) = match choice {
            0..=1 => (Sqe::flush(0, 1), &counters.flushes),
            2..=80 => (Sqe::compare(0, 1, slba, nlb), &counters.compares),
            81..=540 => (Sqe::write(0, 1, slba, nlb), &counters.writes),
            _ => (Sqe::read(0, 1, slba, nlb), &counters.reads),
        };
        let writes = (81..=540).contains(&choice);
        if writes {
            version += 1;
            versions[range.clone()].fill(version);
        }
        let mut content = Vec::new();
        for (lba, version) in (slba..).zip(&versions[range]) {
            match version {
                0 => content.resize(content.len() + BLOCK, 0),
                version => put(lba, *version, &mut content),
            }
        }
        // Every eighth comparison is with something else.
        let differs = (2..=80).contains(&choice) && choice.is_multiple_of(8);
        if differs {
            content[0] ^= 0x55;
        }
        let data = if (2..=540).contains(&choice) {
            content.clone()
        } else {
            Vec::new()
        };
        let request = Request {
            sqe,
            data,
            metadata: Vec::new(),
        };
        let response = timed(controller.submit(request), &counters.worst).await?;
        let expected = if differs {
            Status::COMPARE_FAILURE
        } else {
            Status::SUCCESS
        };
        if response.cqe.status() != expected {
            return Err(format!("{sqe}: {}", response.cqe.status()).into());
        }
        if choice > 540 && response.data != content {
            return Err(format!("{sqe}: not what was written").into());
        }
        add(counter, 1);
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
    Ok(())
}
