//! The engine as a page: what the other commands found, beside what the platform paper reports.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toroid_bench_common::Error;
use toroid_bench_common::machine::{self, Measured};
use toroid_bench_common::pages::{self, kept};
use toroid_cores::engine::{Form, Shape, formula};
use toroid_tfhe::params::PAPER;

use crate::bootstrap::EQUAL;
use crate::energy::Estimate;
use crate::operations::Operations;
use crate::row::Row;
use crate::synthesis::{self, Mapped, Resources, Whole};

/// log2 of the lanes of a circuit in the setting that is reported: 64 butterflies each.
pub const LOG_LANES: u32 = 7;

/// log2 of the words a cycle through the streaming engine's transform in the setting that is reported.
pub const STREAMING_LOG_LANES: u32 = 6;

/// Clock of the paper's engine and of ours in MHz.
const CLOCK: f64 = 200.0;

/// The paper's bootstrap in milliseconds.
const BOOTSTRAP: f64 = 249.96;

/// How the names of the streaming engine's rows begin.
const STREAMING: &str = "streaming engine: ";

/// What a log of a bootstrap calls its setting.
pub fn setting(shape: Shape) -> String {
    let params = shape.params;
    let width = match shape.form {
        Form::InPlace => format!("{} butterflies", 2 * shape.vector()),
        Form::Streaming => format!("{} words a cycle", shape.vector()),
    };
    format!(
        "{}: n = {}, N = {}, {width}",
        params.name, params.lwe_dimension, params.ring_degree
    )
}

/// Cycles of a bootstrap, found and by the formula, from its log. The log must be of the whole set `paper` and of the reported setting.
fn logged(log: &str, shape: Shape) -> Option<(f64, f64)> {
    let setting = setting(shape) + ",";
    let is_equal = |line: &str| EQUAL.iter().any(|equal| line.starts_with(equal));
    if !log.lines().any(|line| line.starts_with(&setting)) || !log.lines().any(is_equal) {
        return None;
    }
    let line = log.lines().find_map(|line| line.strip_prefix("cycles: "))?;
    let (found, rest) = line.split_once(" (formula: ")?;
    Some((found.parse().ok()?, rest.split_once(')')?.0.parse().ok()?))
}

/// A log, and the cycles of its bootstrap, found and by the formula.
struct Logged {
    lines: Vec<String>,
    cycles: Option<(f64, f64)>,
}

/// Reads a log, or leaves it out.
fn read(log: &Path, shape: Shape) -> Option<Logged> {
    let text = optional(
        std::fs::read_to_string(log).map_err(|error| format!("{}: {error}", log.display()).into()),
    )?;
    let cycles = logged(&text, shape);
    if cycles.is_none() {
        eprintln!(
            "left out: {} is of no whole bootstrap of {}",
            log.display(),
            setting(shape)
        );
    }
    Some(Logged {
        lines: text.lines().map(str::to_owned).collect(),
        cycles,
    })
}

/// Makes the page from what is in `work`, and the streaming engine's part from its log.
pub fn page(
    work: &Path,
    log: &Path,
    streaming_log: &Path,
    out: Option<&Path>,
) -> Result<(), Error> {
    let shape = Shape::new(&PAPER, LOG_LANES)?;
    let whole: Whole = found(
        work,
        &synthesis::name(Form::InPlace, shape.log_n(), LOG_LANES),
        "synth",
    )?;
    let operations: Option<Operations> = optional(found(work, "operations", "operations"));
    let estimate: Option<Estimate> = optional(found(work, "energy", "energy"));
    let log = read(log, shape);
    let bootstrap = log.as_ref().and_then(|log| log.cycles);
    let rows = rows(&whole, operations.as_ref(), estimate.as_ref(), bootstrap);
    let parts = formula::bootstrap(shape);
    let data = json!({
        "measured": Measured::now(),
        "mhz": CLOCK,
        "log_lanes": LOG_LANES,
        "butterflies": shape.vector(),
        "sizes": {
            "key": shape.bytes(shape.key_beats() as u64),
            "switch": shape.bytes(shape.switch_beats() as u64),
            "sample": shape.bytes(shape.lwe_rows() as u64),
            "beat": shape.bytes(1),
        },
        "pieces": whole.pieces,
        "total": whole.total,
        "failed": whole.failed,
        "bootstrap": bootstrap.map(|(cycles, _)| json!({"cycles": cycles, "log": log.map(|log| log.lines)})),
        "operations": operations,
        "formula": {
            "transforms": parts.count * parts.steps.transforms,
            "products": parts.count * parts.steps.products,
            "vectors": parts.count * parts.steps.vectors,
            "switch": parts.switch,
            "start": parts.start,
            "total": parts.total(),
        },
        "energy": estimate.map(|estimate| energy(&estimate)),
    });
    publish(rows, data, work, streaming_log, out)
}

/// Makes the page from the figures that it has in `figures`, and the streaming engine's part from its log and from what is in `work`.
pub fn page_again(
    work: &Path,
    figures: &Path,
    streaming_log: &Path,
    out: Option<&Path>,
) -> Result<(), Error> {
    let mut rows: Vec<Row> = kept(figures, "hw-engine")?;
    rows.retain(|row| !row.is_of(STREAMING));
    let data = kept(&figures.join("data"), "hw-engine")?;
    publish(rows, data, work, streaming_log, out)
}

/// Makes the page from all but the streaming engine's part, and that from its log and its synthesis. Where that is not in `work`, it is the one in `data`.
fn publish(
    mut rows: Vec<Row>,
    mut data: Value,
    work: &Path,
    streaming_log: &Path,
    out: Option<&Path>,
) -> Result<(), Error> {
    let shape = Shape::of(Form::Streaming, &PAPER, STREAMING_LOG_LANES)?;
    data["streaming"] = Value::Null;
    if let Some(Logged {
        lines,
        cycles: Some((cycles, formula)),
    }) = read(streaming_log, shape)
    {
        let name = |what: &str| format!("{STREAMING}{what}");
        let parts = formula::bootstrap(shape);
        let mut what = format!(
            "{} words a cycle; equal to the integer arithmetic",
            shape.vector()
        );
        if parts.total() as f64 != formula {
            what += &format!(
                "; the engine has changed since, and takes {} cycles by its formula of today",
                parts.total()
            );
        }
        rows.extend([
            Row::new(
                name("bootstrap at `paper`, simulated whole"),
                cycles,
                "cycles",
            )
            .beside(BOOTSTRAP * CLOCK * 1e3)
            .noted(what),
            Row::new(name("bootstrap at 200 MHz"), cycles / CLOCK / 1e3, "ms").beside(BOOTSTRAP),
            off(name("simulated bootstrap off its formula"), cycles, formula),
        ]);
        data["streaming"] = json!({
            "words": shape.vector(),
            "cycles": cycles,
            "step": parts.steps.total(),
            "switch": parts.switch,
            "log": lines,
        });
    }
    let name = synthesis::name(Form::Streaming, shape.log_n(), STREAMING_LOG_LANES);
    let before = data["streaming_resources"].take();
    let resources = match optional::<Whole>(found(work, &name, "synth --streaming")) {
        Some(whole) => Some(StreamingResources::of(&whole)),
        None => serde_json::from_value(before)?,
    };
    if let Some(resources) = resources {
        if resources.failed.is_empty() {
            rows.extend(resource_rows(resources.total, STREAMING));
        }
        data["streaming_resources"] = json!(resources);
    }
    pages::publish("hw-engine", &rows, &data, out)?;
    Ok(())
}

/// Resources of the streaming engine by module, whatever the parameters of its instances.
#[derive(Serialize, Deserialize)]
struct StreamingResources {
    date: String,
    modules: Vec<Module>,
    total: Resources,
    failed: Vec<String>,
}

/// All instances of a module, without their black boxes.
#[derive(Serialize, Deserialize)]
struct Module {
    module: String,
    instances: u64,
    /// Different parameters among them.
    kinds: u64,
    /// Kinds that were mapped; the others are taken for the mean of those that differ from them in a constant only.
    mapped: u64,
    all: Resources,
}

impl StreamingResources {
    fn of(whole: &Whole) -> StreamingResources {
        let mut modules: Vec<Module> = Vec::new();
        for Mapped {
            module,
            instances,
            each,
            is_mean,
        } in &whole.pieces
        {
            let at = modules.iter().position(|of| of.module == *module);
            let at = at.unwrap_or_else(|| {
                modules.push(Module {
                    module: module.clone(),
                    instances: 0,
                    kinds: 0,
                    mapped: 0,
                    all: Resources::default(),
                });
                modules.len() - 1
            });
            let of = &mut modules[at];
            of.instances += instances;
            of.kinds += 1;
            of.mapped += u64::from(!is_mean);
            of.all.add(*each, *instances);
        }
        StreamingResources {
            date: machine::date(),
            modules,
            total: whole.total,
            failed: whole.failed.clone(),
        }
    }
}

/// How far a simulation is from its formula.
fn off(what: impl Into<String>, found: f64, formula: f64) -> Row {
    Row::new(what, (found / formula - 1.0).abs() * 100.0, "%").at_most(1.0)
}

/// A result of another command.
fn found<T: serde::de::DeserializeOwned>(
    work: &Path,
    name: &str,
    command: &str,
) -> Result<T, Error> {
    kept(work, name).map_err(|error| format!("{error}; the command `{command}` makes it").into())
}

/// Leaves out what is missing, and says so.
fn optional<T>(result: Result<T, Error>) -> Option<T> {
    result
        .inspect_err(|error| eprintln!("left out: {error}"))
        .ok()
}

/// The estimate as the page has it.
fn energy(estimate: &Estimate) -> serde_json::Value {
    let blocks = estimate.blocks.iter().flat_map(|(name, block)| {
        block.runs.iter().map(move |(operation, run)| {
            json!({
                "name": name,
                "cells": block.cells,
                "flip_flops": block.flip_flops,
                "square_micrometres": block.area_um2,
                "operation": operation,
                "toggles": run.toggles_per_net,
                "picojoules": run.range().times(1e12),
            })
        })
    });
    let parts = estimate.parts.iter().map(|part| {
        json!({
            "name": part.name,
            "count": part.count,
            "picojoules": part.each.times(1e12),
            "millijoules": part.all.times(1e3),
        })
    });
    json!({
        "blocks": blocks.collect::<Vec<_>>(),
        "parts": parts.collect::<Vec<_>>(),
        "total": estimate.total,
        "seconds": estimate.cycles as f64 / CLOCK / 1e6,
    })
}

/// Resources beside the paper's, under names that begin with `of`.
fn resource_rows(total: Resources, of: &str) -> [Row; 4] {
    [
        Row::new(format!("{of}DSP48E1"), total.dsp as f64, "slices")
            .beside(1549.0)
            .at_most(1549.0),
        Row::new(format!("{of}LUT"), total.luts() as f64, "LUTs")
            .beside(461_123.0)
            .at_most(461_000.0)
            .noted(format!(
                "{} logic, {} memories and shift registers; Yosys for xc7, not placed",
                total.lut, total.lut_memory
            )),
        Row::new(format!("{of}FF"), total.ff as f64, "flip-flops").beside(615_303.0),
        Row::new(format!("{of}BRAM of 36 Kbit"), total.ramb36(), "blocks")
            .beside(1023.5)
            .noted("the paper's engine has 64 URAM blocks besides"),
    ]
}

fn rows(
    whole: &Whole,
    operations: Option<&Operations>,
    estimate: Option<&Estimate>,
    bootstrap: Option<(f64, f64)>,
) -> Vec<Row> {
    let mut rows = Vec::new();
    if let Some(found) = operations {
        let pair = |name: &str, cycles: u64| {
            Row::new(name, cycles as f64, "cycles")
                .beside(7168.0)
                .at_most(7168.0 * 1.01)
                .noted("ntt_inplace, 2 circuits of 16 butterflies, words loaded and unloaded not counted")
        };
        rows.extend([
            pair("pair of 16384-point NTTs", found.forward_pair),
            pair("pair of 16384-point INTTs", found.inverse_pair),
        ]);
    }
    if let Some((cycles, formula)) = bootstrap {
        rows.extend([
            Row::new("bootstrap at `paper`, simulated whole", cycles, "cycles")
                .beside(BOOTSTRAP * CLOCK * 1e3)
                .at_most(20e6)
                .noted("2 circuits of 64 butterflies; equal to the integer arithmetic"),
            Row::new("bootstrap at 200 MHz", cycles / CLOCK / 1e3, "ms").beside(BOOTSTRAP),
            off("simulated bootstrap off its formula", cycles, formula),
        ]);
    }
    if let Some(found) = operations {
        rows.extend([
            Row::new("CMux at `paper`", found.step as f64, "cycles")
                .beside(BOOTSTRAP * CLOCK * 1e3 / 800.0)
                .noted("difference of bootstraps of two steps and one; the paper's is its bootstrap / 800"),
            off("simulated CMux off its formula", found.step as f64, found.step_formula as f64),
        ]);
        for (name, cycles, paper) in [
            ("HomAdd", found.hom_add, 124.0),
            ("HomSub", found.hom_sub, 124.0),
            ("HomIntMult", found.hom_int_mult, 90.0),
        ] {
            let row = Row::new(name, cycles as f64 / CLOCK, "µs");
            rows.push(row.beside(paper).at_most(5.0).noted(format!(
                "{cycles} cycles from command to response at 200 MHz; the paper's includes its processors' work"
            )));
        }
    }
    if whole.failed.is_empty() {
        rows.extend(resource_rows(whole.total, ""));
    }
    if let Some(estimate) = estimate {
        let (low, high) = (estimate.total.low, estimate.total.high);
        let name = "energy of a bootstrap, estimated, geometric mean of its range";
        rows.push(Row::new(name, (low * high).sqrt(), "J").beside(14.80).noted(format!(
            "between {low:.3} and {high:.3} J: 45 nm cells, without main memory, clock of the board, or anything but the engine; the reference is a board"
        )));
    }
    rows
}
