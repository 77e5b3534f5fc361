//! `toroid drive serve` as a process of its own.
#![allow(dead_code, reason = "each test uses its part")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use toroid_nvme::fabrics::ConnectOptions;
use toroid_nvme::tcp::Address;

pub const HOST: &str = "nqn.2024-01.io.example:host";
const NQN: &str = "nqn.2024-01.io.example:drive";

/// The program.
pub fn toroid() -> Command {
    Command::new(env!("CARGO_BIN_EXE_toroid"))
}

/// A server that is killed, as hard as can be, when it is dropped.
pub struct Server {
    child: Child,
    pub address: Address,
}

impl Server {
    /// Serves an image on a free port of loopback.
    pub fn start(image: &Path, options: &[&str]) -> Server {
        let mut command = toroid();
        command.args(["--json", "drive", "serve", "--listen", "127.0.0.1:0"]);
        command.args(["--nqn", NQN, "--log-level", "error"]);
        command.args(options).arg(image);
        Server::of(command)
    }

    /// The server that `command` starts, perhaps after other work.
    pub fn of(mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut first)
            .unwrap();
        let said: Value =
            serde_json::from_str(&first).unwrap_or_else(|_| panic!("{command:?}: {first:?}"));
        let address = said["drives"][0].as_str().unwrap().parse().unwrap();
        Server { child, address }
    }

    /// Its standard input, if it was asked for.
    pub fn input(&mut self) -> &mut std::process::ChildStdin {
        self.child.stdin.as_mut().unwrap()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn options(number: u8) -> ConnectOptions {
    ConnectOptions::new(format!("{HOST}-{number}"), [number; 16])
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// Numbers that a test can repeat.
pub struct Numbers(pub u64);

impl Numbers {
    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        // xorshift64*.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end
    }
}
