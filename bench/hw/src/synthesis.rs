//! What synthesis makes of a whole engine.
//!
//! Slang makes a module of every instance, so that the whole flattened takes Yosys hours, and whole with its modules maps 64 equal butterflies 64
//! times. So every module that there are many of, or that is large, is mapped once, by itself; those above it are mapped with black boxes in their place; and counts
//! are summed up as often as the netlists have the boxes. Nothing is optimized across these borders, all of which are registers at the output.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use toroid_bench_common::Error;
use toroid_cores::engine::{self, Form};
use toroid_cores::sources;
use toroid_sim::toolchain::python;
use toroid_task::Progress;

const SCRIPT: &str = include_str!("../../../hw/tools/piece.py");

/// Modules that are mapped by themselves, with those that they take for black boxes.
const TOPS: [(&str, &[&str]); 10] = [
    (
        "engine",
        &["engine_circuit", "memory_reader", "memory_writer", "rom"],
    ),
    (
        "engine_circuit",
        &[
            "butterfly_integrated",
            "digit_unit",
            "row_rotator",
            "xor_network",
            "ram_sdp",
        ],
    ),
    (
        "engine_streaming",
        &[
            "blind_rotation",
            "key_switch",
            "sample_unit",
            "memory_reader",
            "memory_writer",
        ],
    ),
    (
        "blind_rotation",
        &[
            "accumulator",
            "lane_rotator",
            "stream_transform",
            "rotation_difference",
            "rotation_sum",
            "digit_unit",
            "digit_twist",
            "product_lane",
            "ram_sdp",
        ],
    ),
    ("accumulator", &["ram_sdp"]),
    (
        "stream_transform",
        &[
            "stream_reversal",
            "stream_dft",
            "stream_reduce",
            "stream_transpose",
            "goldilocks_mul",
            "rom",
        ],
    ),
    ("stream_dft", &["shift_butterfly", "root_product"]),
    ("stream_transpose", &["xor_network", "ram_sdp"]),
    ("key_switch", &["switch_word", "ram_sdp"]),
    ("sample_unit", &["ram_sdp"]),
];

/// A module that is mapped by itself.
#[derive(Clone, Debug, PartialEq)]
struct Piece {
    top: String,
    /// Names and literals.
    parameters: Vec<(String, String)>,
    /// How often the whole has it.
    instances: u64,
}

impl Piece {
    /// What all pieces have in common that differ in a constant only.
    fn group(&self) -> (&str, Vec<&(String, String)>) {
        let parameters = self.parameters.iter();
        let parameters = parameters.filter(|(name, _)| !CONSTANTS.contains(&name.as_str()));
        (&self.top, parameters.collect())
    }

    fn boxes(&self) -> &'static [&'static str] {
        TOPS.iter()
            .find(|(top, _)| *top == self.top)
            .map_or(&[], |(_, boxes)| boxes)
    }

    fn files(&self, rom: &str) -> Vec<(&'static str, String)> {
        if self.parameters.iter().any(|(name, _)| name == "FILE") {
            vec![(ROM, rom.to_owned())]
        } else {
            Vec::new()
        }
    }
}

/// The file of the table of twiddles.
const ROM: &str = "twiddles.hex";

/// Parameters in which modules of one kind differ: constants that words are multiplied by, or that are taken from sums.
const CONSTANTS: [&str; 3] = ["EXPONENT", "CONSTANTS", "OFFSETS"];

/// Parameters that can be given as numbers; those of enumerated types are left at their defaults, as the engine does.
const SIMPLE: [&str; 4] = [
    "parameter int ",
    "parameter bit ",
    "parameter logic ",
    "parameter string ",
];

/// What is not mapped yet, and where.
struct Place<'a> {
    python: &'a Path,
    folder: &'a Path,
    rom: &'a str,
    timeout: Duration,
}

impl Place<'_> {
    /// Runs the script on a piece in a folder of its own, which it gives.
    fn script(
        &self,
        piece: &Piece,
        name: &str,
        is_elaborated_only: bool,
        bar: &ProgressBar,
    ) -> Result<PathBuf, Error> {
        let place = self.folder.join(name);
        let design = toroid_cores::sources::design(&piece.top)?;
        for (name, text) in &design.sources {
            let file = place.join(name);
            std::fs::create_dir_all(file.parent().unwrap_or(&place))?;
            std::fs::write(file, text)?;
        }
        for (name, text) in piece.files(self.rom) {
            std::fs::write(place.join(name), text)?;
        }
        let job = serde_json::json!({
            "top": piece.top,
            "parameters": piece.parameters,
            "boxes": piece.boxes(),
            "elaborate": is_elaborated_only,
            "sources": design.sources.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        });
        std::fs::write(place.join("piece.json"), job.to_string())?;
        std::fs::write(place.join("piece.py"), SCRIPT)?;
        run(self.python, &place, "piece.py", self.timeout, bar)?;
        Ok(place)
    }

    /// The pieces that a piece is made of besides its own logic, from the elaborated netlist.
    fn below(&self, piece: &Piece, bar: &ProgressBar) -> Result<Vec<Piece>, Error> {
        let place = self.script(piece, &format!("{}-boxes", piece.top), true, bar)?;
        let text = std::fs::read_to_string(place.join("boxes.json"))?;
        let boxes: Vec<(String, BTreeMap<String, String>, u64)> = serde_json::from_str(&text)?;
        std::fs::remove_dir_all(&place)?;
        boxes
            .into_iter()
            .map(|(top, parameters, count)| {
                let source = sources::FILES
                    .iter()
                    .find(|(path, _)| path.ends_with(&format!("/{top}.sv")));
                let (_, source) = source.ok_or_else(|| format!("there is no module {top}"))?;
                let is_set = |name: &str| {
                    let mut lines = source
                        .lines()
                        .map(str::trim)
                        .filter(|line| SIMPLE.iter().any(|kind| line.starts_with(kind)));
                    // The formatter aligns what stands behind the name.
                    lines.any(|line| {
                        let before = line.split('=').next().unwrap_or_default();
                        before.split_whitespace().next_back() == Some(name)
                    })
                };
                // A table is that of its `rom`, which is a black box above.
                let is_table = |name: &str| name == "TWIDDLE_FILE";
                let parameters = parameters
                    .into_iter()
                    .filter(|(name, _)| is_set(name) && !is_table(name));
                let literal = |(name, bits): (String, String)| {
                    let value = match name.as_str() {
                        "FILE" => format!("\"{ROM}\""),
                        _ => format!("{}'b{bits}", bits.len()),
                    };
                    (name, value)
                };
                Ok(Piece {
                    top,
                    parameters: parameters.map(literal).collect(),
                    instances: count * piece.instances,
                })
            })
            .collect()
    }
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

    /// Adds so many of the like.
    pub fn add(&mut self, other: Resources, times: u64) {
        self.lut += times * other.lut;
        self.lut_memory += times * other.lut_memory;
        self.ff += times * other.ff;
        self.dsp += times * other.dsp;
        self.ramb18 += times * other.ramb18;
    }

    /// The mean, rounded.
    fn mean(all: impl Iterator<Item = Resources>) -> Option<Resources> {
        let (mut sum, mut count) = (Resources::default(), 0);
        for each in all {
            sum.add(each, 1);
            count += 1;
        }
        let part = |all: u64| (all + count / 2) / count;
        (count > 0).then(|| Resources {
            lut: part(sum.lut),
            lut_memory: part(sum.lut_memory),
            ff: part(sum.ff),
            dsp: part(sum.dsp),
            ramb18: part(sum.ramb18),
        })
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
    /// Whether it is the mean of others, which differ in a constant only.
    #[serde(default)]
    pub is_mean: bool,
}

/// The resources of an engine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Whole {
    /// log2 of the ring degree.
    pub log_n: u32,
    /// log2 of the lanes of a circuit, or of the words a cycle through the streaming engine's transform.
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
    files: Vec<String>,
    cells: BTreeMap<String, u64>,
}

/// How the work is done.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Pieces at once.
    pub jobs: usize,
    /// The longest that a piece may take.
    pub timeout: Duration,
    /// Of pieces that differ in a constant only, one in so many is mapped; all of them, if they are at most one more.
    pub one_in: usize,
}

/// What the result for an engine is kept under.
pub fn name(form: Form, log_n: u32, log_lanes: u32) -> String {
    let form = match form {
        Form::InPlace => "",
        Form::Streaming => "-streaming",
    };
    format!("synthesis{form}-{log_n}-{log_lanes}")
}

/// Maps the pieces, or takes them from `work`, and sums them up.
pub fn synthesize(
    form: Form,
    log_n: u32,
    log_lanes: u32,
    work: &Path,
    limits: Limits,
) -> Result<Whole, Error> {
    let rom = match engine::design_of(form, log_n, log_lanes)?
        .files
        .into_iter()
        .next()
    {
        Some((_, contents)) => String::from_utf8(contents)?,
        None => return Err("the engine has no table of twiddles".into()),
    };
    let folder = work.join(name(form, log_n, log_lanes));
    std::fs::create_dir_all(&folder)?;
    let python = python(toroid_cores::tools::SYNTHESIS, &Progress::none())?;
    let place = Place {
        python: &python,
        folder: &folder,
        rom: &rom,
        timeout: limits.timeout,
    };
    let bars = MultiProgress::new();
    let spinner = |what: &str| {
        let bar = bars.add(ProgressBar::new_spinner());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar
    };
    let mut all = vec![Piece {
        top: match form {
            Form::InPlace => "engine",
            Form::Streaming => "engine_streaming",
        }
        .to_owned(),
        parameters: vec![
            ("LOG_N".to_owned(), log_n.to_string()),
            ("LOG_LANES".to_owned(), log_lanes.to_string()),
        ],
        instances: 1,
    }];
    let bar = spinner("elaborating");
    let mut index = 0;
    while let Some(piece) = all.get(index).cloned() {
        if !piece.boxes().is_empty() {
            all.extend(place.below(&piece, &bar)?);
        }
        index += 1;
    }
    bar.finish_and_clear();

    let is_mapped = |index: usize| {
        let group = all[index].group();
        let like = |pieces: &[Piece]| {
            let like = pieces.iter().filter(|piece| piece.group() == group);
            like.count()
        };
        like(&all) <= limits.one_in + 1 || like(&all[..index]).is_multiple_of(limits.one_in)
    };
    // The engine itself, which stands first, comes last.
    let wanted = all.iter().enumerate();
    let queue = Mutex::new(
        wanted
            .filter(|(index, _)| is_mapped(*index))
            .collect::<Vec<_>>(),
    );
    let found = Mutex::new(BTreeMap::new());
    let worker = || {
        loop {
            let Some((index, piece)) = queue
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .pop()
            else {
                break;
            };
            let bar = spinner(&piece.top);
            let result = map(piece, index, &place, &bar).map_err(|error| error.to_string());
            bar.finish_and_clear();
            match &result {
                Ok(resources) => eprintln!("{} {} {resources:?}", piece.instances, piece.top),
                Err(error) => eprintln!("{}: {error}", piece.top),
            }
            found
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .insert(index, result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..limits.jobs.max(1) {
            scope.spawn(worker);
        }
    });
    let mut whole = Whole {
        log_n,
        log_lanes,
        ..Whole::default()
    };
    let found = found
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    for (index, piece) in all.iter().enumerate() {
        let (each, is_mean) = match found.get(&index) {
            Some(Ok(each)) => (*each, false),
            Some(Err(error)) => {
                whole.failed.push(format!("{}: {error}", piece.top));
                continue;
            }
            None => {
                let of_group = found.iter().filter_map(|(&other, result)| {
                    let is_like = all[other].group() == piece.group();
                    result.as_ref().ok().copied().filter(|_| is_like)
                });
                let Some(mean) = Resources::mean(of_group) else {
                    whole.failed.push(format!("{}: not mapped", piece.top));
                    continue;
                };
                (mean, true)
            }
        };
        whole.total.add(each, piece.instances);
        whole.pieces.push(Mapped {
            module: piece.top.clone(),
            instances: piece.instances,
            each,
            is_mean,
        });
    }
    Ok(whole)
}

fn map(piece: &Piece, index: usize, place: &Place, bar: &ProgressBar) -> Result<Resources, Error> {
    // What is inside a black box does not matter.
    let shown: Vec<(&str, &str)> = sources::FILES
        .iter()
        .map(|&(path, text)| {
            let module = path
                .rsplit('/')
                .next()
                .and_then(|file| file.strip_suffix(".sv"));
            let is_box = module.is_some_and(|module| piece.boxes().contains(&module));
            (path, if is_box { "" } else { text })
        })
        .collect();
    let kept = Kept {
        parameters: piece.parameters.clone(),
        script: SCRIPT.to_owned(),
        sources: toroid_sim::sources::closure(&shown, &piece.top)?,
        files: piece
            .files(place.rom)
            .into_iter()
            .map(|(_, text)| text)
            .collect(),
        cells: BTreeMap::new(),
    };
    let name = format!("{}-{index}", piece.top);
    let path = place.folder.join(format!("{name}.json"));
    if let Ok(text) = std::fs::read_to_string(&path)
        && let Ok(mut before) = serde_json::from_str::<Kept>(&text)
    {
        let cells = std::mem::take(&mut before.cells);
        if before == kept {
            return Ok(Resources::of(&cells));
        }
    }
    let folder = place.script(piece, &name, false, bar)?;
    let cells = serde_json::from_str(&std::fs::read_to_string(folder.join("cells.json"))?)?;
    let kept = Kept { cells, ..kept };
    std::fs::write(&path, serde_json::to_string(&kept)?)?;
    // Netlists of the large pieces are hundreds of megabytes.
    std::fs::remove_dir_all(&folder)?;
    Ok(Resources::of(&kept.cells))
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
            let end = lines[lines.len().saturating_sub(6)..].join("\n");
            return Err(format!("{script} ended with {status}\n{end}").into());
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
