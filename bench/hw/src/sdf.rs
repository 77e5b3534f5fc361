//! The transforms and multipliers by single-delay feedback, at the settings of their thesis and at larger ones.

use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::json;
use toroid_bench_common::machine::Measured;
use toroid_bench_common::{Error, pages};
use toroid_cores::ntt_sdf::Architecture;
use toroid_cores::{Core, Values, find, ntt_sdf, polymul_sdf};
use toroid_ring::goldilocks;

use crate::energy::{CYCLES, Range};
use crate::measured::{Cycles, Shape, simulated, synthesized};
use crate::row::{Area, Row};
use crate::sdf_energy::{self, Blocks};

/// Of one architecture and N of Table 4.1: cycles, microjoules, BRAM, DSP, FF, LUT.
type Paper = [f64; 6];

/// Table 4.1: N = 64 to 1024 of R2SDF, R2^2SDF and Modr2.
const TRANSFORMS: [[Paper; 5]; 3] = [
    [
        [347.0, 0.16, 15.0, 35.0, 1_024.0, 2_820.0],
        [673.0, 0.36, 17.0, 40.0, 2_206.0, 3_110.0],
        [1_318.0, 0.81, 19.0, 45.0, 2_585.0, 3_572.0],
        [2_603.0, 1.75, 21.0, 50.0, 2_969.0, 4_086.0],
        [5_168.0, 3.59, 23.0, 55.0, 3_095.0, 4_508.0],
    ],
    [
        [329.0, 0.24, 15.0, 41.0, 1_784.0, 3_001.0],
        [772.0, 0.60, 32.0, 44.0, 2_834.0, 3_316.0],
        [1_260.0, 1.25, 36.0, 57.0, 3_408.0, 4_014.0],
        [2_992.0, 3.09, 42.0, 60.0, 4_074.0, 4_732.0],
        [4_920.0, 5.57, 44.0, 66.0, 4_396.0, 5_160.0],
    ],
    [
        [212.0, 0.13, 4.0, 35.0, 3_389.0, 4_440.0],
        [401.0, 0.44, 41.0, 40.0, 5_650.0, 4_861.0],
        [731.0, 0.91, 46.0, 45.0, 6_586.0, 5_771.0],
        [1_381.0, 1.95, 52.0, 54.0, 7_559.0, 6_789.0],
        [2_671.0, 4.58, 57.0, 55.0, 8_566.0, 7_760.0],
    ],
];

/// Table 5.1: N = 64 to 1024, serial and parallel, of Modr2: cycles, microjoules.
const PRODUCTS: [[[f64; 2]; 5]; 2] = [
    [
        [636.0, 0.4],
        [1_203.0, 1.33],
        [2_193.0, 2.72],
        [4_143.0, 5.87],
        [8_013.0, 13.74],
    ],
    [
        [354.0, 0.66],
        [656.0, 1.69],
        [1_184.0, 3.89],
        [2_224.0, 9.61],
        [4_288.0, 20.22],
    ],
];

/// Most cycles, of the thesis' ones.
const FACTOR: f64 = 0.6;

/// The modulus of the thesis; above its sizes a prime of the form 2^i - 2^j + 1 that has the roots of unity.
fn modulus(log_n: u64) -> u64 {
    match log_n {
        ..=8 => 7_681,
        9..=11 => 12_289,
        _ => 786_433,
    }
}

/// What the thesis has of a setting.
#[derive(Clone, Copy, Serialize)]
struct Thesis {
    cycles: f64,
    microjoules: f64,
    /// Of transforms alone.
    #[serde(flatten)]
    area: Option<ThesisArea>,
}

#[derive(Clone, Copy, Serialize)]
struct ThesisArea {
    bram: f64,
    dsp: f64,
    ff: f64,
    lut: f64,
}

impl Thesis {
    fn of_transform(architecture: usize, log_n: u64) -> Option<Thesis> {
        let row = TRANSFORMS[architecture].get(log_n.checked_sub(6)? as usize)?;
        let [cycles, microjoules, bram, dsp, ff, lut] = *row;
        Some(Thesis {
            cycles,
            microjoules,
            area: Some(ThesisArea { bram, dsp, ff, lut }),
        })
    }

    fn of_product(is_parallel: bool, log_n: u64) -> Option<Thesis> {
        let row = PRODUCTS[usize::from(is_parallel)].get(log_n.checked_sub(6)? as usize)?;
        let [cycles, microjoules] = *row;
        Some(Thesis {
            cycles,
            microjoules,
            area: None,
        })
    }

    fn most_cycles(&self) -> f64 {
        (self.cycles * FACTOR * 10.0).round() / 10.0
    }
}

/// A setting with what was measured of it.
#[derive(Serialize)]
struct Entry {
    architecture: &'static str,
    n: u64,
    /// The order of values, the reduction, or how factors enter.
    kind: &'static str,
    q: u64,
    cycles: Cycles,
    /// Nothing if it was not synthesized.
    area: Option<Area>,
    thesis: Option<Thesis>,
}

impl Entry {
    fn cycles_row(&self, what: &str) -> Row {
        let row = Row::new(
            format!("{what}: cycles"),
            self.cycles.latency as f64,
            "cycles",
        );
        match self.thesis {
            Some(thesis) => row.beside(thesis.cycles),
            None => row,
        }
    }

    /// Cycles and resources of a transform against those of the thesis.
    fn transform_rows(&self, what: &str) -> Vec<Row> {
        let Some((thesis, paper)) = self.thesis.and_then(|thesis| Some((thesis, thesis.area?)))
        else {
            return vec![self.cycles_row(what)];
        };
        let mut rows = vec![self.cycles_row(what).at_most(thesis.most_cycles())];
        if let Some(area) = self.area {
            let [dsp, lut, ff, bram] = area.rows(what);
            rows.extend([
                dsp.beside(paper.dsp).at_most(paper.dsp),
                lut.beside(paper.lut).at_most(paper.lut),
                ff.beside(paper.ff),
                bram.beside(paper.bram),
            ]);
        }
        rows
    }
}

type Given = Vec<(&'static str, u64)>;

/// Cycles of a core of this kind; what is kept of it in `work` is not simulated again.
pub fn simulate(core: &Core, values: &Values, work: &Path) -> Result<Cycles, Error> {
    let (beats, count) = if core.name == "ntt_sdf" {
        let plan = ntt_sdf::plan(values)?;
        ([plan.beats(), plan.beats()], 4)
    } else {
        let plan = polymul_sdf::plan(values)?;
        ([plan.interval(), plan.forward().beats()], 3)
    };
    let latency = formula(core, values)?.latency;
    let shape = Shape {
        beats,
        count,
        latency,
    };
    simulated(core, values, &shape, work)
}

/// Cycles by the formula.
fn formula(core: &Core, values: &Values) -> Result<Cycles, Error> {
    let timing = core.configure(values)?.timing();
    let of = |count: Option<toroid_cores::Cycles>| count.map_or(0, |count| count.cycles);
    Ok(Cycles {
        latency: of(timing.latency),
        interval: of(timing.interval),
    })
}

struct Bench<'a> {
    work: &'a Path,
    bar: ProgressBar,
    /// Measure only some of the settings; the formula stands for the others, and nothing is written.
    share: Option<(usize, usize)>,
    count: usize,
}

impl Bench<'_> {
    /// Measures a setting, `maps` with synthesis.
    fn measure(
        &mut self,
        name: &'static str,
        given: &Given,
        maps: bool,
    ) -> Result<(Cycles, Option<Area>), Error> {
        let list: Vec<String> = given
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        self.bar.set_message(format!("{name} {}", list.join(" ")));
        self.count += 1;
        let core = find(name)?;
        let values = Values::new(core, given.iter().copied())?;
        let is_mine = self
            .share
            .is_none_or(|(part, parts)| self.count % parts == part);
        if !is_mine {
            return Ok((formula(core, &values)?, None));
        }
        let fail = |error: Error| -> Error { format!("{name} {}: {error}", list.join(" ")).into() };
        let cycles = simulate(core, &values, self.work).map_err(fail)?;
        let area = maps.then(|| synthesized(core, &values, self.work));
        let area = area.transpose().map_err(fail)?;
        self.bar.inc(1);
        Ok((cycles, area))
    }

    fn transform(
        &mut self,
        architecture: usize,
        log_n: u64,
        kind: &'static str,
        more: Option<(&'static str, u64)>,
        maps: bool,
    ) -> Result<Entry, Error> {
        let q = modulus(log_n);
        let mut given = given(architecture, log_n, q);
        given.extend(more);
        let (cycles, area) = self.measure("ntt_sdf", &given, maps)?;
        Ok(Entry {
            architecture: name_of(architecture),
            n: 1 << log_n,
            kind,
            q,
            cycles,
            area,
            thesis: Thesis::of_transform(architecture, log_n),
        })
    }

    fn product(
        &mut self,
        architecture: usize,
        log_n: u64,
        is_parallel: bool,
        q: u64,
        maps: bool,
    ) -> Result<Entry, Error> {
        let mut given = given(architecture, log_n, q);
        given.push(("PARALLEL", is_parallel.into()));
        let (cycles, area) = self.measure("polymul_sdf", &given, maps)?;
        Ok(Entry {
            architecture: name_of(architecture),
            n: 1 << log_n,
            kind: if is_parallel { "parallel" } else { "serial" },
            q,
            cycles,
            area,
            thesis: Thesis::of_product(is_parallel, log_n).filter(|_| q != goldilocks::P),
        })
    }
}

fn given(architecture: usize, log_n: u64, q: u64) -> Given {
    vec![
        ("ARCHITECTURE", architecture as u64),
        ("LOG_N", log_n),
        ("Q", q),
    ]
}

fn name_of(architecture: usize) -> &'static str {
    Architecture::ALL[architecture].name()
}

/// Everything; what is kept in `work` is not measured again. With `share`, only every so many of the settings are measured, and
/// nothing is written.
pub fn page(work: &Path, out: Option<&Path>, share: Option<(usize, usize)>) -> Result<(), Error> {
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template(
        "{spinner} {pos} {elapsed} {msg}",
    )?);
    let mut bench = Bench {
        work,
        bar,
        share,
        count: 0,
    };
    let mut rows = Vec::new();

    // Table 4.1, in both orders of values.
    let mut transforms = Vec::new();
    for architecture in 0..3 {
        for log_n in 6..=10 {
            for (natural, kind) in [(0, "bit-reversed"), (1, "natural")] {
                let order = Some(("NATURAL", natural));
                let entry = bench.transform(architecture, log_n, kind, order, true)?;
                let Entry {
                    architecture, n, ..
                } = entry;
                rows.extend(
                    entry.transform_rows(&format!("{architecture}, N = {n}, {kind} values")),
                );
                transforms.push(entry);
            }
        }
    }

    // The thesis' own reductions.
    let mut reductions = Vec::new();
    for architecture in 0..3 {
        for log_n in [8, 10] {
            for (reduction, kind) in [(2, "Montgomery"), (3, "Barrett")] {
                let reduction = Some(("REDUCTION", reduction));
                let entry = bench.transform(architecture, log_n, kind, reduction, true)?;
                let Entry {
                    architecture, n, ..
                } = entry;
                rows.extend(entry.transform_rows(&format!("{architecture}, N = {n}, {kind}")));
                reductions.push(entry);
            }
        }
    }

    // Table 5.1, Modr2 being what it has.
    let mut products = Vec::new();
    for architecture in [2, 0, 1] {
        for is_parallel in [false, true] {
            for log_n in 6..=10 {
                let is_modr2 = architecture == 2;
                let maps = is_modr2 || log_n == 10;
                let entry =
                    bench.product(architecture, log_n, is_parallel, modulus(log_n), maps)?;
                let Entry {
                    architecture,
                    n,
                    kind,
                    ..
                } = entry;
                let row = entry.cycles_row(&format!("{architecture} product, {kind}, N = {n}"));
                rows.push(match entry.thesis {
                    Some(thesis) if is_modr2 => row.at_most(thesis.most_cycles()),
                    _ => row.noted("the reference is Modr2's, two words per cycle"),
                });
                products.push(entry);
            }
        }
    }

    // Larger ones, mapped up to 4096.
    let mut larger = Vec::new();
    for architecture in 0..3 {
        for log_n in 11..=15 {
            let entry = bench.transform(architecture, log_n, "bit-reversed", None, log_n <= 12)?;
            let Entry {
                architecture, n, ..
            } = entry;
            rows.push(entry.cycles_row(&format!("{architecture}, N = {n}")));
            larger.push(entry);
        }
    }

    // The Goldilocks prime.
    let mut wide = Vec::new();
    for architecture in [2, 0, 1] {
        for log_n in [8, 10, 12] {
            for is_parallel in [false, true] {
                let maps = architecture == 2 || !is_parallel || architecture == 0 && log_n == 10;
                let entry = bench.product(architecture, log_n, is_parallel, goldilocks::P, maps)?;
                let Entry {
                    architecture,
                    n,
                    kind,
                    ..
                } = entry;
                let what = format!("{architecture} product, {kind}, N = {n}, q = 2^64 - 2^32 + 1");
                let interval = entry.cycles.interval as f64;
                rows.push(entry.cycles_row(&what));
                rows.push(Row::new(format!("{what}: interval"), interval, "cycles"));
                rows.extend(entry.area.iter().flat_map(|area| area.rows(&what)));
                wide.push(entry);
            }
        }
    }

    // The first part has the blocks of the estimate besides.
    let needs_blocks = share.is_none_or(|(part, _)| part == 0);
    let blocks = needs_blocks.then(|| sdf_energy::blocks(work, &bench.bar));
    let blocks = blocks.transpose()?;
    bench.bar.finish_and_clear();
    let (None, Some(blocks)) = (share, blocks) else {
        return Ok(());
    };
    let energy = energy(&blocks, &transforms, &mut rows)?;
    let shown = blocks.iter().zip([7_681, 12_289]).flat_map(|(blocks, q)| {
        blocks.table().into_iter().map(move |(name, block)| {
            json!({
                "name": name,
                "q": q,
                "cells": block.cells,
                "flip_flops": block.flip_flops,
                "square_micrometres": block.area_um2,
            })
        })
    });
    let data = json!({
        "measured": Measured::now(),
        "simulated_cycles": CYCLES,
        "transforms": transforms,
        "reductions": reductions,
        "products": products,
        "larger": larger,
        "wide": wide,
        "energy": energy,
        "blocks": shown.collect::<Vec<_>>(),
    });
    pages::publish("hw-sdf", &rows, &data, out)?;
    Ok(())
}

/// Microjoules of a setting of the thesis.
#[derive(Serialize)]
struct Energy {
    architecture: &'static str,
    n: u64,
    ntt: Range,
    serial: Range,
    parallel: Range,
    thesis: ThesisEnergy,
}

#[derive(Serialize)]
struct ThesisEnergy {
    ntt: f64,
    serial: f64,
    parallel: f64,
}

fn energy(
    blocks: &[Blocks; 2],
    transforms: &[Entry],
    rows: &mut Vec<Row>,
) -> Result<Vec<Energy>, Error> {
    let mut all = Vec::new();
    for entry in transforms
        .iter()
        .filter(|entry| entry.kind == "bit-reversed")
    {
        let log_n = entry.n.ilog2();
        let name = entry.architecture;
        let architecture = Architecture::ALL
            .into_iter()
            .find(|architecture| architecture.name() == name)
            .ok_or("no such architecture")?;
        let of = &blocks[usize::from(log_n > 8)];
        let registers = entry.area.ok_or("a transform was not synthesized")?.ff;
        let product = |is_parallel| of.product(architecture, log_n, is_parallel, registers);
        let thesis_product = |is_parallel| {
            let thesis = Thesis::of_product(is_parallel, log_n.into());
            thesis.map_or(f64::NAN, |thesis| thesis.microjoules)
        };
        let energy = Energy {
            architecture: name,
            n: entry.n,
            ntt: of
                .transform(architecture, log_n, false, registers)?
                .times(1e6),
            serial: product(false)?.times(1e6),
            parallel: product(true)?.times(1e6),
            thesis: ThesisEnergy {
                ntt: entry.thesis.map_or(f64::NAN, |thesis| thesis.microjoules),
                serial: thesis_product(false),
                parallel: thesis_product(true),
            },
        };
        let of_modr2 = if architecture == Architecture::Modr2 {
            ""
        } else {
            ", of Modr2"
        };
        for (what, Range { low, high }, reference, note) in [
            ("an NTT", energy.ntt, energy.thesis.ntt, ""),
            (
                "a serial product",
                energy.serial,
                energy.thesis.serial,
                of_modr2,
            ),
            (
                "a parallel product",
                energy.parallel,
                energy.thesis.parallel,
                of_modr2,
            ),
        ] {
            let name = format!(
                "{name}, N = {}: energy of {what}, estimated, geometric mean of its range",
                entry.n
            );
            rows.push(Row::new(name, (low * high).sqrt(), "µJ").beside(reference).noted(format!(
                "between {low:.3} and {high:.3} µJ: 45 nm cells; the reference is an FPGA{note}"
            )));
        }
        all.push(energy);
    }
    Ok(all)
}
