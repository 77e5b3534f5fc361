//! What synthesis makes of the whole engine.
//!
//! Slang makes a module of every instance, so that the whole flattened takes Yosys hours, and whole with its modules maps 64 equal butterflies 64
//! times. So every module that there are many of is mapped once, by itself; those above it are mapped with black boxes in their place; and counts
//! are summed up as often as the netlists have the boxes. Nothing is optimized across these borders, all of which are registers at the output.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use toroid_cosim::engine;
use toroid_cosim::model::{Design, Value};
use toroid_cosim::sources;
use toroid_cosim::toolchain::{Group, python};

use crate::Error;

const SCRIPT: &str = include_str!("../../../hw/tools/piece.py");

/// A module that is mapped by itself.
#[derive(Clone, Debug)]
struct Piece {
    top: &'static str,
    parameters: Vec<(&'static str, Value)>,
    boxes: &'static [&'static str],
}

/// The pieces of an engine, those on top last.
fn pieces(log_n: u32, log_lanes: u32) -> Vec<Piece> {
    let of = |top, parameters: &[(&'static str, u64)], boxes| Piece {
        top,
        parameters: parameters
            .iter()
            .map(|&(name, value)| (name, Value::Int(value)))
            .collect(),
        boxes,
    };
    let (n, lanes) = (u64::from(log_n), u64::from(log_lanes));
    let width = (64 << lanes).min(1024);
    let ports = (64 << lanes) / width;
    let mut rom = of("rom", &[("WIDTH", 32 << lanes)], &[]);
    rom.parameters
        .push(("FILE", Value::File("twiddles.hex".to_owned())));
    vec![
        of("butterfly_integrated", &[], &[]),
        of("digit_unit", &[], &[]),
        of(
            "ram_sdp",
            &[("WIDTH", 64), ("DEPTH", 4 << (n - lanes))],
            &[],
        ),
        rom,
        of("memory_reader", &[("PORTS", ports), ("WIDTH", width)], &[]),
        of("memory_writer", &[("PORTS", ports), ("WIDTH", width)], &[]),
        of("xor_network", &[("LOG_LANES", lanes)], &[]),
        of("row_rotator", &[("LOG_LANES", lanes - 1)], &[]),
        of(
            "engine_circuit",
            &[("LOG_N", n), ("LOG_LANES", lanes)],
            &[
                "butterfly_integrated",
                "digit_unit",
                "row_rotator",
                "xor_network",
                "ram_sdp",
            ],
        ),
        of(
            "engine",
            &[("LOG_N", n), ("LOG_LANES", lanes)],
            &["engine_circuit", "memory_reader", "memory_writer", "rom"],
        ),
    ]
}

/// Counts of resources of Xilinx 7 series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    /// Look-up tables of logic, Yosys's inverters among them.
    pub lut: u64,
    /// Look-up tables that are memories or shift registers.
    pub lut_memory: u64,
    /// Flip-flops.
    pub ff: u64,
    /// DSP slices.
    pub dsp: u64,
    /// Block memories of 18 Kbit; one of 36 Kbit counts twice.
    pub ramb18: u64,
}

impl Resources {
    /// Of counts of cells by their names; carry chains, wide multiplexers and constants count nothing.
    fn of(cells: &BTreeMap<String, u64>) -> Resources {
        let mut sum = Resources::default();
        for (kind, &count) in cells {
            match kind.as_str() {
                "LUT1" | "LUT2" | "LUT3" | "LUT4" | "LUT5" | "LUT6" | "INV" => sum.lut += count,
                "SRL16E" | "SRLC16E" | "SRLC32E" | "RAM32X1S" | "RAM64X1S" => {
                    sum.lut_memory += count
                }
                "RAM32X1D" | "RAM64X1D" => sum.lut_memory += 2 * count,
                "RAM32M" | "RAM64M" | "RAM128X1D" => sum.lut_memory += 4 * count,
                "FDRE" | "FDSE" | "FDCE" | "FDPE" => sum.ff += count,
                "DSP48E1" => sum.dsp += count,
                "RAMB18E1" => sum.ramb18 += count,
                "RAMB36E1" => sum.ramb18 += 2 * count,
                _ => {}
            }
        }
        sum
    }

    fn add(&mut self, other: Resources, times: u64) {
        self.lut += times * other.lut;
        self.lut_memory += times * other.lut_memory;
        self.ff += times * other.ff;
        self.dsp += times * other.dsp;
        self.ramb18 += times * other.ramb18;
    }

    /// All look-up tables.
    pub fn luts(self) -> u64 {
        self.lut + self.lut_memory
    }

    /// Block memories of 36 Kbit.
    pub fn ramb36(self) -> f64 {
        self.ramb18 as f64 / 2.0
    }
}

/// A piece, and how often the whole has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mapped {
    /// The module.
    pub module: String,
    /// Its instances in the whole engine.
    pub instances: u64,
    /// One of them, without its black boxes.
    pub each: Resources,
}

/// The engine's resources.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Whole {
    /// log2 of the ring degree.
    pub log_n: u32,
    /// log2 of the lanes of a circuit.
    pub log_lanes: u32,
    /// By module.
    pub pieces: Vec<Mapped>,
    /// All of them.
    pub total: Resources,
    /// Pieces that failed or took too long, and why: the total lacks them.
    pub failed: Vec<String>,
}

/// What a piece's result is kept with: it is made again where any of this changed.
#[derive(PartialEq, Serialize, Deserialize)]
struct Kept {
    parameters: Vec<(String, String)>,
    script: String,
    sources: Vec<(String, String)>,
    rom: String,
    cells: BTreeMap<String, u64>,
}

/// How the work is done.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Pieces at once.
    pub jobs: usize,
    /// The longest that a piece may take.
    pub timeout: Duration,
}

/// Maps the pieces, or takes them from `work`, and sums them up.
pub fn synthesize(log_n: u32, log_lanes: u32, work: &Path, limits: Limits) -> Result<Whole, Error> {
    let rom = match engine::design_of(log_n, log_lanes)?
        .files
        .into_iter()
        .next()
    {
        Some((_, contents)) => String::from_utf8(contents)?,
        None => return Err("the engine has no table of twiddles".into()),
    };
    let folder = work.join(format!("synthesis-{log_n}-{log_lanes}"));
    std::fs::create_dir_all(&folder)?;
    let python = python(Group::Synthesis, &())?;
    let all = pieces(log_n, log_lanes);
    let queue = Mutex::new(all.iter().rev().collect::<Vec<_>>());
    let found = Mutex::new(BTreeMap::new());
    let bars = MultiProgress::new();
    let worker = || {
        loop {
            let Some(piece) = queue
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .pop()
            else {
                break;
            };
            let bar = bars.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
                bar.set_style(style);
            }
            bar.set_message(piece.top);
            let result = map(piece, &rom, &folder, &python, limits.timeout, &bar)
                .map_err(|error| error.to_string());
            bar.finish_and_clear();
            match &result {
                Ok(cells) => eprintln!("{}: {:?}", piece.top, Resources::of(cells)),
                Err(error) => eprintln!("{}: {error}", piece.top),
            }
            found
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .insert(piece.top, result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..limits.jobs.max(1) {
            scope.spawn(worker);
        }
    });
    let found = found
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(sum(&all, &found, log_n, log_lanes))
}

/// The pieces and their sum as a table.
pub fn table(whole: &Whole) -> String {
    let mut text = "| module | instances | LUT | LUT as memory | FF | DSP | RAMB36 |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n".to_owned();
    let mut row = |name: &str, instances: &str, each: Resources| {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {name} | {instances} | {} | {} | {} | {} | {} |",
            each.lut,
            each.lut_memory,
            each.ff,
            each.dsp,
            each.ramb36()
        );
    };
    for piece in &whole.pieces {
        row(
            &format!("`{}`", piece.module),
            &piece.instances.to_string(),
            piece.each,
        );
    }
    row("the whole engine", "1", whole.total);
    text
}

fn sum(
    all: &[Piece],
    found: &BTreeMap<&'static str, Result<BTreeMap<String, u64>, String>>,
    log_n: u32,
    log_lanes: u32,
) -> Whole {
    let mut whole = Whole {
        log_n,
        log_lanes,
        ..Whole::default()
    };
    let mut instances: BTreeMap<&str, u64> = BTreeMap::from([("engine", 1)]);
    // From the top down, so that a module's instances are known before it.
    for piece in all.iter().rev() {
        let count = instances.get(piece.top).copied().unwrap_or(0);
        match found.get(piece.top) {
            Some(Ok(cells)) => {
                for name in piece.boxes {
                    *instances.entry(name).or_default() +=
                        count * cells.get(*name).copied().unwrap_or(0);
                }
                let each = Resources::of(cells);
                whole.total.add(each, count);
                whole.pieces.push(Mapped {
                    module: piece.top.to_owned(),
                    instances: count,
                    each,
                });
            }
            Some(Err(error)) => whole.failed.push(format!("{}: {error}", piece.top)),
            None => whole.failed.push(format!("{}: not mapped", piece.top)),
        }
    }
    whole
}

fn map(
    piece: &Piece,
    rom: &str,
    folder: &Path,
    python: &Path,
    timeout: Duration,
    bar: &ProgressBar,
) -> Result<BTreeMap<String, u64>, Error> {
    let mut parameters: Vec<(String, String)> = piece
        .parameters
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.literal(Path::new(""))))
        .collect();
    let is_rom = piece.top == "rom";
    if is_rom {
        parameters.push(("DEPTH".to_owned(), rom.lines().count().to_string()));
    }
    // What is inside a black box does not matter.
    let shown: Vec<(&str, &str)> = sources::FILES
        .iter()
        .map(|&(path, text)| {
            let module = path
                .rsplit('/')
                .next()
                .and_then(|file| file.strip_suffix(".sv"));
            let is_box = module.is_some_and(|module| piece.boxes.contains(&module));
            (path, if is_box { "" } else { text })
        })
        .collect();
    let kept = Kept {
        parameters,
        script: SCRIPT.to_owned(),
        sources: sources::closure_of(&shown, piece.top)?,
        rom: if is_rom {
            rom.to_owned()
        } else {
            String::new()
        },
        cells: BTreeMap::new(),
    };
    let path = folder.join(format!("{}.json", piece.top));
    if let Ok(text) = std::fs::read_to_string(&path)
        && let Ok(mut before) = serde_json::from_str::<Kept>(&text)
    {
        let cells = std::mem::take(&mut before.cells);
        if before == kept {
            return Ok(cells);
        }
    }

    let place = folder.join(piece.top);
    let design = Design::of(piece.top)?;
    for (name, text) in &design.sources {
        let file = place.join(name);
        std::fs::create_dir_all(file.parent().unwrap_or(&place))?;
        std::fs::write(file, text)?;
    }
    if is_rom {
        std::fs::write(place.join("twiddles.hex"), rom)?;
    }
    let job = serde_json::json!({
        "top": piece.top,
        "parameters": kept.parameters,
        "boxes": piece.boxes,
        "sources": design.sources.iter().map(|(name, _)| name).collect::<Vec<_>>(),
    });
    std::fs::write(place.join("piece.json"), job.to_string())?;
    std::fs::write(place.join("piece.py"), SCRIPT)?;
    run(python, &place, "piece.py", timeout, bar)?;
    let cells = serde_json::from_str(&std::fs::read_to_string(place.join("cells.json"))?)?;
    let kept = Kept { cells, ..kept };
    std::fs::write(&path, serde_json::to_string(&kept)?)?;
    // Netlists of the large pieces are hundreds of megabytes.
    std::fs::remove_dir_all(&place)?;
    Ok(kept.cells)
}

/// Runs a script in a folder, its output in `output.txt` there.
pub fn run(
    python: &Path,
    folder: &Path,
    script: &str,
    timeout: Duration,
    bar: &ProgressBar,
) -> Result<(), Error> {
    let log: PathBuf = folder.join("output.txt");
    let output = std::fs::File::create(&log)?;
    let mut child = Command::new(python)
        .arg(script)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            if status.success() {
                return Ok(());
            }
            let text = std::fs::read_to_string(&log)?;
            let lines: Vec<&str> = text.lines().collect();
            return Err(lines[lines.len().saturating_sub(6)..].join("\n").into());
        }
        if start.elapsed() > timeout {
            child.kill()?;
            child.wait()?;
            return Err(format!("no result after {} s (see --timeout)", timeout.as_secs()).into());
        }
        bar.tick();
        std::thread::sleep(Duration::from_millis(100));
    }
}
