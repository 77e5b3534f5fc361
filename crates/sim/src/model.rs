//! Designs, verilated and compiled at run time into models that this process loads.
//!
//! A model is made once for a design, its parameters, the options and the tools, and kept in the
//! [cache folder](crate::toolchain::cache_folder); processes that want the same one wait for the first that makes it.

mod library;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use toroid_task::Progress;

pub use library::Port;
pub(crate) use library::{Instance, ModelLibrary};

use crate::process::{Lock, ProcessError, run, run_all};
use crate::sources::{self, UnknownModule};
use crate::toolchain::{ToolError, Toolchain, cache_folder, file_error, hash};

/// A value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// An integer. Above 32 bits it is written with 64.
    Int(u64),
    /// Bits of any width, as hexadecimal digits without prefix.
    Bits {
        /// The width.
        width: u32,
        /// The digits, highest first.
        hex: String,
    },
    /// A string.
    Text(String),
    /// The path of one of [`Design::files`], given by its name.
    File(String),
}

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        Value::Int(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Value {
        Value::Int(value.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl Value {
    /// As SystemVerilog writes it, with files in `folder`.
    pub fn literal(&self, folder: &Path) -> String {
        let quoted =
            |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        match self {
            Value::Int(value) if *value <= i32::MAX as u64 => value.to_string(),
            Value::Int(value) if *value <= u32::MAX.into() => format!("32'h{value:x}"),
            Value::Int(value) => format!("64'h{value:x}"),
            Value::Bits { width, hex } => format!("{width}'h{hex}"),
            Value::Text(text) => quoted(text),
            Value::File(name) => quoted(&folder.join(name).to_string_lossy()),
        }
    }
}

/// What to simulate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Design {
    /// The module on top.
    pub top: String,
    /// File names and texts of the sources, packages before their users.
    pub sources: Vec<(String, String)>,
    /// Names and contents of files that the design reads, such as ROMs in the form of `$readmemh`.
    pub files: Vec<(String, Vec<u8>)>,
    /// Parameters of the module on top; others keep their defaults.
    pub parameters: Vec<(String, Value)>,
}

impl Design {
    /// A module with its defaults, of files as [`sources::closure`] takes them.
    ///
    /// # Errors
    /// If there is no such module.
    pub fn of<P: AsRef<str>, T: AsRef<str>>(
        top: &str,
        files: &[(P, T)],
    ) -> Result<Design, UnknownModule> {
        Ok(Design {
            top: top.to_owned(),
            sources: sources::closure(files, top)?,
            ..Design::default()
        })
    }

    /// With a parameter.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Design {
        self.parameters.push((name.to_owned(), value.into()));
        self
    }

    /// With a file for a parameter that takes its path.
    #[must_use]
    pub fn with_file(mut self, parameter: &str, name: &str, contents: Vec<u8>) -> Design {
        self.parameters
            .push((parameter.to_owned(), Value::File(name.to_owned())));
        self.files.push((name.to_owned(), contents));
        self
    }
}

/// How a model is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// It can write waveforms, which costs speed.
    pub trace: bool,
    /// Registers and memories begin with random contents, of the seed of [`Model::start_random`], instead of 0.
    pub random_start: bool,
    /// Compile fast (-O1) rather than for speed (-O2): for tests of some ten thousand cycles.
    pub quick: bool,
}

impl Options {
    /// For tests of any state that registers and memories may be in after power-up.
    pub const fn quick_random() -> Options {
        Options {
            trace: false,
            random_start: true,
            quick: true,
        }
    }
}

/// Why there is no model.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The tools cannot be had.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The design is refused: by its own `$fatal`, whose sentence this is, or by Verilator.
    #[error("{top} cannot be elaborated: {message}")]
    Elaboration {
        /// The module on top.
        top: String,
        /// What the module or Verilator says.
        message: String,
    },
    /// A name of a source or file leads out of its folder.
    #[error("{0:?} cannot name a file of a design: expected a relative path without ..")]
    FileName(String),
    /// The simulator's C++ could not be compiled.
    #[error("the C++ of {top} could not be compiled: {output}")]
    Compile {
        /// The module on top.
        top: String,
        /// The compiler's words.
        output: String,
    },
    /// The compiled model could not be loaded.
    #[error("the model of {top} could not be loaded: {reason}")]
    Load {
        /// The module on top.
        top: String,
        /// Why.
        reason: libloading::Error,
    },
}

impl From<ProcessError> for ModelError {
    fn from(error: ProcessError) -> ModelError {
        ModelError::Tool(error.into())
    }
}

impl ModelError {
    /// Whether someone cancelled the work.
    pub fn is_cancelled(&self) -> bool {
        matches!(
            self,
            ModelError::Tool(ToolError::Process(ProcessError::Cancelled(_)))
        )
    }
}

/// A compiled design, from which simulations start.
#[derive(Clone)]
pub struct Model {
    compiled: Arc<ModelLibrary>,
    top: Arc<str>,
    options: Options,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("top", &self.top)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Changes with what this file makes of the same design.
const FORM: &str = "3";

const SHIM: &str = include_str!("model/shim.cpp");

/// Declared in front of everything, as Verilator's run-time prints by it.
const PRINT: &str = "int toroid_print(const char* format, ...);\n";

/// What generated C++ begins with: precompiled, as it takes longer than a small model itself.
const PREFIX: &str = "#include \"print.h\"\n#include \"verilated.h\"\n";

/// Generated C++ goes to the compiler in pieces of at least this many bytes, so that processors share the work.
const UNIT_BYTES: usize = 300_000;

/// Models that are loaded, by their keys: a library that is loaded twice is the same one.
static LOADED: LazyLock<Mutex<HashMap<String, Weak<ModelLibrary>>>> = LazyLock::new(Mutex::default);

impl Model {
    /// Makes a model, or takes it from the cache.
    ///
    /// # Errors
    /// See [`ModelError`].
    pub fn build(design: &Design, options: &Options) -> Result<Model, ModelError> {
        Model::build_with(design, options, &Progress::none())
    }

    /// [`Model::build`], which reports to `progress` and ends when that is cancelled.
    ///
    /// # Errors
    /// See [`ModelError`].
    pub fn build_with(
        design: &Design,
        options: &Options,
        progress: &Progress,
    ) -> Result<Model, ModelError> {
        let toolchain = Toolchain::find(progress)?;
        let cache = cache_folder()?;
        let build = Build {
            design,
            options,
            toolchain,
            progress,
            folder: PathBuf::new(),
        };
        let key = build.key(&cache);
        let folder = cache.join("models").join(&key);
        let path = folder.join("model.so");
        if !path.exists() {
            let _lock = Lock::take(&folder.with_extension("lock"), progress)?;
            if !path.exists() {
                Build { folder, ..build }.make(&path)?;
            }
        }
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let library = match loaded.get(&key).and_then(Weak::upgrade) {
            Some(library) => library,
            None => {
                let library = ModelLibrary::load(&path).map_err(|reason| ModelError::Load {
                    top: design.top.clone(),
                    reason,
                })?;
                loaded.insert(key, Arc::downgrade(&library));
                library
            }
        };
        Ok(Model {
            compiled: library,
            top: design.top.as_str().into(),
            options: *options,
        })
    }

    /// The module on top.
    pub fn top(&self) -> &str {
        &self.top
    }

    /// The ports with their names, in the order of the module.
    pub fn ports(&self) -> &[(String, Port)] {
        self.compiled.ports()
    }

    pub(crate) fn compiled(&self) -> &Arc<ModelLibrary> {
        &self.compiled
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }
}

struct Build<'a> {
    design: &'a Design,
    options: &'a Options,
    toolchain: &'a Toolchain,
    progress: &'a Progress,
    folder: PathBuf,
}

/// Of generated code, what the shim has to know.
struct Generated {
    /// Files by whether they are on the fast path.
    files: Vec<(PathBuf, bool)>,
    /// Rows of the shim's table of ports.
    ports: String,
}

impl Build<'_> {
    /// Everything that the model depends on, the place of its data files among it.
    fn key(&self, cache: &Path) -> String {
        let Build {
            design,
            options,
            toolchain,
            ..
        } = self;
        let head = format!(
            "{FORM} {} {} {options:?} {} {:?}",
            toolchain.verilator.version,
            toolchain.compiler.version(),
            design.top,
            design.parameters,
        );
        let place = cache.to_string_lossy();
        let mut parts: Vec<&[u8]> = vec![head.as_bytes(), SHIM.as_bytes(), place.as_bytes()];
        for (name, text) in &design.sources {
            parts.extend([name.as_bytes(), text.as_bytes()]);
        }
        for (name, contents) in &design.files {
            parts.extend([name.as_bytes(), contents]);
        }
        format!("{}-{}", design.top, hash(parts))
    }

    fn make(&self, path: &Path) -> Result<(), ModelError> {
        // What a process left that ended before it was done.
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder).map_err(file_error(&self.folder))?;
        }
        let built = self.compile().and_then(|library| {
            fs::rename(&library, path).map_err(file_error(path))?;
            Ok(())
        });
        let work = self.work();
        match &built {
            Ok(()) => fs::remove_dir_all(&work).map_err(file_error(&work))?,
            // The error matters more than files that stay.
            Err(_) => drop(fs::remove_dir_all(&self.folder)),
        }
        built
    }

    fn work(&self) -> PathBuf {
        self.folder.join("work")
    }

    fn write(&self, folder: &Path, name: &str, contents: &[u8]) -> Result<PathBuf, ModelError> {
        use std::path::Component;
        let relative = Path::new(name);
        let plain = |component| matches!(component, Component::Normal(_));
        if name.is_empty() || !relative.components().all(plain) {
            return Err(ModelError::FileName(name.to_owned()));
        }
        let path = folder.join(relative);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(file_error(parent))?;
        fs::write(&path, contents).map_err(file_error(&path))?;
        Ok(path)
    }

    /// Makes the library in the work folder.
    fn compile(&self) -> Result<PathBuf, ModelError> {
        let work = self.work();
        fs::create_dir_all(&work).map_err(file_error(&work))?;
        for (name, contents) in &self.design.files {
            self.write(&self.folder.join("data"), name, contents)?;
        }
        for (name, text) in &self.design.sources {
            self.write(&work, name, text.as_bytes())?;
        }
        self.progress.report("verilating", 0, 1);
        let (succeeded, output) = self.verilate(&[])?;
        let cpp = work.join("cpp");
        if !succeeded {
            let message = match fatal_of_lint(&output, &self.design.top) {
                Some(message) => message,
                // A wrong parameter may make the rest of the module wrong before its own sentence is reached.
                None => {
                    let relaxed = self.verilate(&["-Wno-lint", "-Wno-fatal"])?.0;
                    let sentence = if relaxed {
                        fatal_of_initial(&cpp)?
                    } else {
                        None
                    };
                    sentence.unwrap_or_else(|| errors(&output))
                }
            };
            return Err(self.refused(message));
        }
        if let Some(message) = fatal_of_initial(&cpp)? {
            return Err(self.refused(message));
        }
        self.progress.report("verilating", 1, 1);
        let generated = self.read_generated(&cpp)?;
        let header = format!(
            "#define TOP_HEADER \"Vtop.h\"\n#define ROOT_HEADER \"Vtop___024root.h\"\n#define TRACE {}\n#define PORTS {}\n",
            u32::from(self.options.trace),
            generated.ports
        );
        let shim = work.join("toroid_shim.cpp");
        fs::write(&shim, format!("{header}{SHIM}")).map_err(file_error(&shim))?;

        let mut objects = self.runtime()?;
        let mut calls = Vec::new();
        for (i, (unit, level)) in self.units(&generated, &shim)?.into_iter().enumerate() {
            let object = work.join(format!("unit{i}.o"));
            calls.push((unit, object.clone(), level, self.prefix(level)?));
            objects.push(object);
        }
        let compile = || {
            let commands = calls
                .iter()
                .map(|(unit, object, level, prefix)| {
                    self.compiler_call(unit, object, level, prefix)
                })
                .collect();
            self.compile_all(commands, "compiling the model")
        };
        match compile() {
            // A precompiled header may be of headers that the machine has no more.
            Err(ModelError::Compile { .. }) => {
                for (.., prefix) in &calls {
                    drop(fs::remove_file(precompiled(prefix)));
                }
                compile()?;
            }
            other => other?,
        }
        let library = work.join("model.so");
        let mut link = self.toolchain.compiler.command();
        link.args(["-shared", "-fPIC", "-pthread", "-o"])
            .arg(&library)
            .args(&objects);
        self.compile_all(vec![link], "linking the model")?;
        Ok(library)
    }

    fn refused(&self, message: String) -> ModelError {
        ModelError::Elaboration {
            top: self.design.top.clone(),
            message,
        }
    }

    fn verilate(&self, more: &[&str]) -> Result<(bool, String), ModelError> {
        let work = self.work();
        let initial = match self.options.random_start {
            true => ["--x-assign", "unique", "--x-initial", "unique"],
            false => ["--x-assign", "fast", "--x-initial", "fast"],
        };
        let mut command = self.toolchain.verilator.command();
        command
            .current_dir(&work)
            .args(["--cc", "--quiet", "-O3", "--assert", "--prefix", "Vtop"])
            .args(["--output-split", "5000", "--output-split-cfuncs", "500"])
            .args(["--Mdir", "cpp", "--top-module", &self.design.top])
            .args(initial)
            .args(more);
        if self.options.trace {
            command.args(["--trace-vcd", "--trace-structs"]);
        }
        let data = self.folder.join("data");
        for (name, value) in &self.design.parameters {
            command.arg(format!("-G{name}={}", value.literal(&data)));
        }
        command.args(self.design.sources.iter().map(|(name, _)| name));
        let finished = run(&mut command, self.progress)?;
        Ok((finished.status.success(), finished.output))
    }

    fn read_generated(&self, cpp: &Path) -> Result<Generated, ModelError> {
        let header = cpp.join("Vtop.h");
        let text = fs::read_to_string(&header).map_err(file_error(&header))?;
        let mut ports = String::new();
        for line in text.lines() {
            ports += &self.port_row(line.trim())?;
        }
        let mut files = Vec::new();
        for entry in fs::read_dir(cpp).map_err(file_error(cpp))? {
            let path = entry.map_err(file_error(cpp))?.path();
            if path.extension().is_some_and(|extension| extension == "cpp") {
                let slow = path
                    .file_stem()
                    .is_some_and(|stem| stem.to_string_lossy().ends_with("Slow"));
                files.push((path, !slow));
            }
        }
        files.sort();
        Ok(Generated { files, ports })
    }

    /// A row of the table of ports from a line of the generated header: `VL_IN16(&a_i,15,0);`, of wide ports with the
    /// number of words after it.
    fn port_row(&self, line: &str) -> Result<String, ModelError> {
        if line.starts_with("VlUnpacked<") && line.contains('&') && line.ends_with(';') {
            let message = format!("ports that are unpacked arrays are not supported: {line}");
            return Err(self.refused(message));
        }
        let Some((kind, rest)) = line.split_once("(&") else {
            return Ok(String::new());
        };
        let Some(kind) = kind.strip_prefix("VL_") else {
            return Ok(String::new());
        };
        let (output, size) = match (kind.strip_prefix("IN"), kind.strip_prefix("OUT")) {
            _ if kind.starts_with("INOUT") => {
                let message = "ports of both directions are not supported".to_owned();
                return Err(self.refused(message));
            }
            (Some(size), _) => (0, size),
            (_, Some(size)) => (1, size),
            _ => return Ok(String::new()),
        };
        let mut fields = rest.trim_end_matches(");").split(',');
        let (Some(member), Some(high), Some(low)) = (fields.next(), fields.next(), fields.next())
        else {
            return Ok(String::new());
        };
        let number = |text: &str| text.trim().parse::<i64>().unwrap_or(0);
        let bits = (number(high) - number(low)).unsigned_abs() + 1;
        let bytes = match size {
            "8" => 1,
            "16" => 2,
            "" => 4,
            "64" => 8,
            _ => bits.div_ceil(32) * 4,
        };
        let name = member.replace("___05F", "__");
        Ok(format!(
            "{{\"{name}\", offsetof(Vtop___024root, {member}), {bits}, {bytes}, {output}}}, "
        ))
    }

    /// Generated files in pieces that are worth a call of the compiler, with their optimization.
    fn units(
        &self,
        generated: &Generated,
        shim: &Path,
    ) -> Result<Vec<(PathBuf, &'static str)>, ModelError> {
        let mut units = Vec::new();
        let levels: &[&str] = match self.options.quick {
            true => &["-O1"],
            false => &["-O2", "-O1"],
        };
        for (i, level) in levels.iter().enumerate() {
            let mut text = String::new();
            let mut bytes = 0;
            let mut flush = |text: &mut String| -> Result<(), ModelError> {
                let path = self.work().join(format!("unit{}.cpp", units.len()));
                fs::write(&path, std::mem::take(text)).map_err(file_error(&path))?;
                units.push((path, *level));
                Ok(())
            };
            for (path, is_fast) in &generated.files {
                if levels.len() > 1 && *is_fast != (i == 0) {
                    continue;
                }
                let size = fs::metadata(path).map_err(file_error(path))?.len() as usize;
                let _ = writeln!(text, "#include {:?}", path.display().to_string());
                bytes += size;
                if bytes >= UNIT_BYTES {
                    flush(&mut text)?;
                    bytes = 0;
                }
            }
            if i == 0 {
                let _ = writeln!(text, "#include {:?}", shim.display().to_string());
            }
            if !text.is_empty() {
                flush(&mut text)?;
            }
        }
        Ok(units)
    }

    /// A call of the compiler, with a header in front of the source.
    fn compiler_call(&self, source: &Path, object: &Path, level: &str, header: &Path) -> Command {
        let root = self.toolchain.verilator.root.join("include");
        let trace = u32::from(self.options.trace);
        let mut command = self.toolchain.compiler.command();
        command
            .args([
                "-std=c++20",
                "-fPIC",
                "-fvisibility=hidden",
                "-w",
                level,
                "-c",
            ])
            .arg(source)
            .arg("-o")
            .arg(object)
            .args([
                "-DVERILATOR=1",
                "-DVM_COVERAGE=0",
                "-DVM_SC=0",
                "-DVM_TIMING=0",
            ])
            .args(["-DVM_TRACE_FST=0", "-DVM_TRACE_SAIF=0"])
            .arg(format!("-DVM_TRACE={trace}"))
            .arg(format!("-DVM_TRACE_VCD={trace}"))
            .args([
                "-DVL_USER_FINISH",
                "-DVL_USER_STOP",
                "-DVL_USER_FATAL",
                "-DVL_USER_WARN",
            ])
            .args(["-DVL_PRINTF=toroid_print", "-include"])
            .arg(header);
        for include in [self.work().join("cpp"), root.clone(), root.join("vltstd")] {
            command.arg("-I").arg(include);
        }
        // With g++, statics of inline functions would else be shared by all models of the process.
        if !self.is_clang() {
            command.arg("-fno-gnu-unique");
        }
        command
    }

    fn is_clang(&self) -> bool {
        self.toolchain.compiler.version().contains("clang")
    }

    fn compile_all(&self, commands: Vec<Command>, what: &str) -> Result<(), ModelError> {
        match run_all(commands, what, self.progress)? {
            None => Ok(()),
            Some(failed) => Err(ModelError::Compile {
                top: self.design.top.clone(),
                output: failed.output,
            }),
        }
    }

    /// The folder of the compiled run-time, beside those of the models.
    fn runtime_folder(&self) -> PathBuf {
        let toolchain = self.toolchain;
        let key = hash([
            FORM.as_bytes(),
            toolchain.verilator.version.as_bytes(),
            toolchain.compiler.version().as_bytes(),
        ]);
        let models = self.folder.parent().unwrap_or(&self.folder);
        models.join(format!("runtime-{key}"))
    }

    /// The header in front of generated C++, precompiled if that can be done: g++ crashes on precompiled headers.
    fn prefix(&self, level: &str) -> Result<PathBuf, ModelError> {
        let folder = self.runtime_folder();
        let suffix = if self.options.trace { "-trace" } else { "" };
        let header = folder.join(format!("prefix{level}{suffix}.hpp"));
        let _lock = Lock::take(&folder.with_extension("lock"), self.progress)?;
        if header.exists() {
            return Ok(header);
        }
        fs::write(&header, PREFIX).map_err(file_error(&header))?;
        if self.is_clang() {
            let partial = header.with_extension("partial");
            let print = folder.join("print.h");
            let mut command = self.compiler_call(&header, &partial, level, &print);
            command.args(["-Xclang", "-fno-pch-timestamp"]);
            let made = self.compile_all(vec![command], "compiling the simulator's headers");
            match made {
                Ok(()) => drop(fs::rename(partial, precompiled(&header))),
                Err(error) if error.is_cancelled() => {
                    // The next model is to have it.
                    drop(fs::remove_file(&header));
                    return Err(error);
                }
                // Without it, compiling only takes longer.
                Err(_) => {}
            }
        }
        Ok(header)
    }

    /// The objects of Verilator's run-time, compiled once for all models.
    fn runtime(&self) -> Result<Vec<PathBuf>, ModelError> {
        let folder = self.runtime_folder();
        let mut sources = vec!["verilated", "verilated_threads"];
        if self.options.trace {
            sources.push("verilated_vcd_c");
        }
        let suffix = if self.options.trace { "-trace" } else { "" };
        let object = |name: &str| folder.join(format!("{name}{suffix}.o"));
        let _lock = Lock::take(&folder.with_extension("lock"), self.progress)?;
        fs::create_dir_all(&folder).map_err(file_error(&folder))?;
        let print = folder.join("print.h");
        if !print.exists() {
            fs::write(&print, PRINT).map_err(file_error(&print))?;
        }
        let include = self.toolchain.verilator.root.join("include");
        let mut commands = Vec::new();
        let mut made = Vec::new();
        for name in sources.iter().filter(|name| !object(name).exists()) {
            let partial = object(name).with_extension("partial");
            let source = include.join(format!("{name}.cpp"));
            commands.push(self.compiler_call(&source, &partial, "-O2", &print));
            made.push((partial, object(name)));
        }
        if !commands.is_empty() {
            self.compile_all(commands, "compiling the simulator's run-time")?;
        }
        for (partial, whole) in made {
            fs::rename(&partial, &whole).map_err(file_error(&whole))?;
        }
        Ok(sources.into_iter().map(object).collect())
    }
}

/// Where compilers look for a header's precompiled form.
fn precompiled(header: &Path) -> PathBuf {
    header.with_extension("hpp.gch")
}

/// The sentence of a `$fatal` or `$error` outside of a procedure, in what Verilator said: that of the module on top before
/// those of the modules that it sets wrongly in consequence.
fn fatal_of_lint(output: &str, top: &str) -> Option<String> {
    let marks = [
        "%Warning-USERFATAL: ",
        "%Error-USERFATAL: ",
        "%Warning-USERERROR: ",
        "%Error-USERERROR: ",
    ];
    let sentence = |line: &str| {
        let rest = marks.iter().find_map(|mark| line.strip_prefix(mark))?;
        // Behind file, line and column.
        Some(rest.splitn(4, ':').nth(3).unwrap_or(rest).trim().to_owned())
    };
    let mut sentences: Vec<String> = output.lines().filter_map(sentence).collect();
    let of_top = |sentence: &String| sentence.starts_with(&format!("{top}:"));
    let best = sentences.iter().position(of_top).unwrap_or(0);
    (!sentences.is_empty()).then(|| sentences.swap_remove(best))
}

/// What Verilator said, without its advice.
fn errors(output: &str) -> String {
    let lines: Vec<&str> = output
        .lines()
        .filter(|line| line.starts_with('%') && !line.starts_with("%Error: Exiting"))
        .collect();
    match lines.is_empty() {
        true => output.trim().to_owned(),
        false => lines.join("\n"),
    }
}

/// The sentence of the first `$fatal` that an `initial` block reaches whatever happens: an `if` over constants is gone
/// from the generated code.
fn fatal_of_initial(cpp: &Path) -> Result<Option<String>, ModelError> {
    for entry in fs::read_dir(cpp).map_err(file_error(cpp))? {
        let path = entry.map_err(file_error(cpp))?.path();
        let slow = path.to_string_lossy().ends_with("Slow.cpp");
        if !slow {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(file_error(&path))?;
        if let Some(message) = unconditional_fatal(&text) {
            return Ok(Some(message));
        }
    }
    Ok(None)
}

fn unconditional_fatal(text: &str) -> Option<String> {
    const MARK: &str = "Assertion failed in %m: ";
    let mut depth = 0i32;
    let mut initial = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if depth == 0 && line.ends_with('{') {
            initial = line.contains("_eval_initial");
        }
        if depth == 1 && initial && line.contains("VL_WRITEF") && line.contains("%%Fatal") {
            // Long literals go on in the next lines.
            let mut call = line.to_owned();
            while !call.trim_end().ends_with(';') {
                call += lines.next()?.trim();
            }
            let literal = string_literal(&call)?;
            let sentence = literal
                .split_once(MARK)
                .map_or(literal.as_str(), |(_, rest)| rest);
            return Some(sentence.trim().replace("%%", "%"));
        }
        depth += match (
            line.trim_end().ends_with('{'),
            line.trim_start().starts_with('}'),
        ) {
            (true, false) => 1,
            (false, true) => -1,
            _ => 0,
        };
    }
    None
}

/// The first string literal of a line of C++, with those that continue it.
fn string_literal(code: &str) -> Option<String> {
    let mut text = String::new();
    let mut chars = code[code.find('"')?..].chars().peekable();
    while chars.next_if_eq(&'"').is_some() {
        while let Some(c) = chars.next() {
            match c {
                '"' => break,
                '\\' => match chars.next()? {
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    other => text.push(other),
                },
                other => text.push(other),
            }
        }
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_those_of_the_language() {
        let folder = Path::new("/cache");
        let cases = [
            (Value::Int(7), "7"),
            (Value::Int(0xffff_ffff), "32'hffffffff"),
            (Value::Int(1 << 40), "64'h10000000000"),
            (Value::Text("a\"b\\".to_owned()), r#""a\"b\\""#),
            (Value::File("rom.hex".to_owned()), "\"/cache/rom.hex\""),
        ];
        for (value, expected) in cases {
            assert_eq!(value.literal(folder), expected);
        }
    }

    #[test]
    fn the_module_on_top_is_heard_first() {
        let output = "%Warning-USERFATAL: a.sv:8:1: part: WIDTH must be positive\n  ... In instance 'whole.i_part'\n\
                      %Warning-USERFATAL: b.sv:9:3: whole: N must be 1 to 8, not 9: never\n";
        let heard = |top| fatal_of_lint(output, top);
        assert_eq!(
            heard("whole").as_deref(),
            Some("whole: N must be 1 to 8, not 9: never")
        );
        assert_eq!(
            heard("other").as_deref(),
            Some("part: WIDTH must be positive")
        );
        assert_eq!(fatal_of_lint("%Error: no", "whole"), None);
    }

    #[test]
    fn a_fatal_counts_where_nothing_guards_it() {
        let code = |body: &str| format!("void Vtop___024root___eval_initial(int x) {{\n{body}}}\n");
        let call = "    VL_WRITEF_NX(\"[%0t] %%Fatal: t.sv:4: Assertion failed in %m: t: W must \"\n        \"be 8, not 9\\n\",3);\n";
        assert_eq!(
            unconditional_fatal(&code(call)).as_deref(),
            Some("t: W must be 8, not 9")
        );
        let guarded = format!("    if (x) {{\n{call}    }}\n");
        assert_eq!(unconditional_fatal(&code(&guarded)), None);
        let elsewhere = code(call).replace("_eval_initial", "_eval_act");
        assert_eq!(unconditional_fatal(&elsewhere), None);
    }
}
