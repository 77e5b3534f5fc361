//! The server, a process of its own, and what it uses.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use toroid_nvme::tcp::Address;

use crate::{Failure, Options, blocks};

const BLOCKS: &str = "nqn.2024-01.io.example:blocks";
const COMPUTING: &str = "nqn.2024-01.io.example:computing";

/// `toroid drive serve`, with a folder for its images and the files of its clients.
pub struct Server {
    process: Process,
    toroid: PathBuf,
    /// The drive whose blocks are read and written.
    pub blocks: Address,
    /// The drive that computes.
    pub computing: Address,
    pub folder: PathBuf,
}

/// Memory in KiB, and open connections.
#[derive(Clone, Copy)]
pub struct Usage {
    pub resident: u64,
    /// Without pages of files.
    pub anonymous: u64,
    pub sockets: usize,
}

/// A process that ends when this is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Server {
    pub fn start(options: &Options) -> Result<Server, Failure> {
        let folder = std::env::temp_dir().join(format!("toroid-soak-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let toroid = std::path::absolute(&options.toroid)?;
        let format = |image: &str, size: String, swap: &str| {
            let mut command = Command::new(&toroid);
            command.args(["-q", "drive", "format", image, "--size", &size]);
            command.args(["--swap", swap]).current_dir(&folder);
            succeeds(&mut command)
        };
        let bytes = blocks::bytes(options);
        format("blocks.img", format!("{}KiB", bytes / 1024), "1MiB")?;
        format("computing.img", "256MiB".to_owned(), "16MiB")?;
        let configuration = format!(
            "listen = \"127.0.0.1:0\"\n\
             [[subsystem]]\n\
             nqn = \"{BLOCKS}\"\n\
             namespace = [{{ image = \"blocks.img\" }}]\n\
             [[subsystem]]\n\
             nqn = \"{COMPUTING}\"\n\
             experimental_computational_programs = true\n\
             namespace = [{{ image = \"computing.img\" }}]\n"
        );
        std::fs::write(folder.join("serve.toml"), configuration)?;
        let child = Command::new(&toroid)
            .args(["drive", "serve", "--config", "serve.toml"])
            .args(["--log-level", "error"])
            .current_dir(&folder)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut process = Process(child);
        let output = process.0.stdout.take().ok_or("the server has no output")?;
        let (blocks, computing) = addresses(output)?;
        Ok(Server {
            process,
            toroid,
            blocks,
            computing,
            folder,
        })
    }

    /// Runs `toroid` with these words in the folder; its output.
    pub fn toroid(&self, line: &str) -> Result<String, Failure> {
        let mut command = Command::new(&self.toroid);
        command.args(line.split_whitespace());
        command.current_dir(&self.folder);
        command.env("XDG_CONFIG_HOME", self.folder.join("config"));
        succeeds(&mut command)
    }

    pub fn usage(&self) -> Result<Usage, Failure> {
        let process = Path::new("/proc").join(self.process.0.id().to_string());
        let status = std::fs::read_to_string(process.join("status"))?;
        let figure = |name: &str| -> Result<u64, Failure> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next());
            Ok(number.ok_or(format!("no {name}"))?.parse()?)
        };
        let is_socket = |file: &std::fs::DirEntry| {
            let target = std::fs::read_link(file.path());
            target.is_ok_and(|target| target.to_string_lossy().starts_with("socket:"))
        };
        let files = std::fs::read_dir(process.join("fd"))?.flatten();
        Ok(Usage {
            resident: figure("VmRSS:")?,
            anonymous: figure("RssAnon:")?,
            // Without the socket that listens.
            sockets: files.filter(is_socket).count().saturating_sub(1),
        })
    }
}

/// Runs a command that must succeed; its output.
fn succeeds(command: &mut Command) -> Result<String, Failure> {
    let output = command.output()?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?}: {reason}").into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The addresses of both drives, from the server's first lines.
fn addresses(output: impl std::io::Read) -> Result<(Address, Address), Failure> {
    let (mut blocks, mut computing) = (None, None);
    for line in BufReader::new(output).lines() {
        for word in line?.split_whitespace() {
            match word.parse::<Address>() {
                Ok(address) if address.nqn == BLOCKS => blocks = Some(address),
                Ok(address) if address.nqn == COMPUTING => computing = Some(address),
                _ => {}
            }
        }
        if let (Some(blocks), Some(computing)) = (&blocks, &computing) {
            return Ok((blocks.clone(), computing.clone()));
        }
    }
    Err("the server told no addresses".into())
}
