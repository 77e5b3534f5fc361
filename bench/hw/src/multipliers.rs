//! Every form of a multiplier of polynomials modulo x^N + 1, at the same lengths and the same modulus.

use std::fmt::Write as _;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use toroid_cosim::core::synthesis::Resources;
use toroid_cosim::core::{self, Core, Values, find};
use toroid_ring::goldilocks::P;

use crate::Error;
use crate::measured::{blocks, luts, synthesized};
use crate::report::{Row, date, machine, number, row_table};

const LOG_N: [u64; 3] = [8, 10, 12];

/// A multiplier made of cores.
struct Form {
    name: String,
    log_n: u64,
    /// From the first word of a product's factors in to its last word out.
    cycles: u64,
    /// From a product to the next.
    interval: u64,
    /// Cores with how many of each.
    parts: Vec<(&'static dyn Core, Values, u64)>,
    /// How `cycles` was found.
    how: &'static str,
}

/// Cycles of a core by the name of their formula.
fn cycles(core: &dyn Core, values: &Values, what: &str) -> Result<u64, Error> {
    let all = core.cycles(values);
    let found = all.iter().find(|cycles| cycles.what == what);
    Ok(found
        .ok_or_else(|| format!("{} has no formula of: {what}", core.name()))?
        .cycles)
}

/// A core with these values.
fn with(name: &str, given: &[(&'static str, u64)]) -> Result<(&'static dyn Core, Values), Error> {
    let core = find(name)?;
    Ok((core, Values::new(core, given.iter().copied())?))
}

/// Transforms of both factors in two circuits, products as the values leave, and the transform back in the first circuit.
fn inplace(log_n: u64, log_lanes: u64) -> Result<Form, Error> {
    let (core, values) = with(
        "ntt_inplace",
        &[("LOG_N", log_n), ("LOG_LANES", log_lanes), ("CIRCUITS", 2)],
    )?;
    let (product, of_product) = with("goldilocks_mul", &[])?;
    let latency = cycles(product, &of_product, "latency")?;
    let both = cycles(
        core,
        &values,
        "NTT and INTT, first beat in to last beat out",
    )?;
    let beats = 1 << (log_n - log_lanes);
    Ok(Form {
        name: format!("in place, 2 x {} butterflies", 1 << (log_lanes - 1)),
        log_n,
        cycles: both + latency,
        interval: both + latency - beats,
        parts: vec![(core, values, 1), (product, of_product, 1 << log_lanes)],
        how: "formulas, each held against simulation; the product's beats enter as the values' leave",
    })
}

/// Cores of a direction each, with products between.
fn streaming(log_n: u64, log_lanes: u64, is_parallel: bool) -> Result<Form, Error> {
    let lanes = 1 << log_lanes;
    let shape = [("LOG_N", log_n), ("LOG_LANES", log_lanes), ("Q", P)];
    let (core, forward) = with(
        "ntt_streaming",
        &[shape.as_slice(), &[("IN_ORDER", 2), ("OUT_ORDER", 1)]].concat(),
    )?;
    let (_, back) = with(
        "ntt_streaming",
        &[
            shape.as_slice(),
            &[("INVERSE", 1), ("IN_ORDER", 1), ("OUT_ORDER", 2)],
        ]
        .concat(),
    )?;
    let (product, of_product) = with("goldilocks_mul", &[])?;
    let latency = |values| cycles(core, values, "latency, first beat in to last beat out");
    let beats = 1 << (log_n - log_lanes);
    let factors = if is_parallel { 1 } else { 2 };
    Ok(Form {
        name: format!(
            "streaming, {lanes} lanes, {} NTT{}",
            3 - factors,
            if is_parallel { "s" } else { "" }
        ),
        log_n,
        cycles: (factors - 1) * beats + latency(&forward)? - beats
            + cycles(product, &of_product, "latency")?
            + latency(&back)?,
        interval: factors * beats,
        parts: vec![
            (core, forward, 3 - factors),
            (core, back, 1),
            (product, of_product, lanes),
        ],
        how: "formulas, each held against simulation",
    })
}

/// A core that is a multiplier.
fn sdf(log_n: u64, architecture: u64, is_parallel: bool) -> Result<Form, Error> {
    let (core, values) = with(
        "polymul_sdf",
        &[
            ("LOG_N", log_n),
            ("Q", P),
            ("ARCHITECTURE", architecture),
            ("PARALLEL", is_parallel.into()),
        ],
    )?;
    let name = ["R2SDF", "R2^2SDF", "Modr2"][architecture as usize];
    Ok(Form {
        name: format!(
            "{name}, {}",
            if is_parallel { "parallel" } else { "serial" }
        ),
        log_n,
        cycles: cycles(core, &values, "latency, first beat in to last beat out")?,
        interval: cycles(core, &values, "from a product to the next")?,
        parts: vec![(core, values, 1)],
        how: "simulated",
    })
}

/// The forms of a length.
fn forms(log_n: u64) -> Result<Vec<Form>, Error> {
    let mut forms = vec![inplace(log_n, 3)?, inplace(log_n, 5)?];
    for (log_lanes, is_parallel) in [(1, false), (4, false), (4, true)] {
        forms.push(streaming(log_n, log_lanes, is_parallel)?);
    }
    for architecture in 0..3 {
        forms.push(sdf(log_n, architecture, false)?);
        forms.push(sdf(log_n, architecture, true)?);
    }
    Ok(forms)
}

fn sum(form: &Form, work: &Path) -> Result<Resources, Error> {
    let mut sum = Resources::default();
    for (core, values, count) in &form.parts {
        let one = synthesized(*core, values, work)?;
        sum.lut += count * one.lut;
        sum.lutram += count * one.lutram;
        sum.ff += count * one.ff;
        sum.dsp += count * one.dsp;
        sum.ramb18 += count * one.ramb18;
        sum.ramb36 += count * one.ramb36;
    }
    Ok(sum)
}

/// Every form at every length; what is kept in `work` is not measured again.
pub fn rows(work: &Path, out: Option<&Path>) -> Result<(), Error> {
    let mut all = Vec::new();
    for log_n in LOG_N {
        all.extend(forms(log_n)?);
    }
    let bar = ProgressBar::new(all.len() as u64);
    bar.set_style(ProgressStyle::with_template(
        "{wide_bar} {pos}/{len} {msg}",
    )?);
    let (mut rows, mut text) = (Vec::new(), String::new());
    let mut n = 0;
    for form in &all {
        bar.set_message(format!("N = {}: {}", 1 << form.log_n, form.name));
        for (core, values, _) in &form.parts {
            let outcome = core::test(*core, values, 1, 1, None, &())?;
            if outcome.measured != outcome.expected {
                return Err(format!(
                    "{}: {} cycles, by the formula {}",
                    core.name(),
                    outcome.measured,
                    outcome.expected
                )
                .into());
            }
        }
        let found = sum(form, work)?;
        if n != 1u64 << form.log_n {
            n = 1 << form.log_n;
            let _ = write!(
                text,
                "\n## N = {n}\n\n\
                 | form | cycles | interval | LUT + LUT memories | FF | DSP | BRAM | cycles x DSP | interval x DSP | interval x LUT | cycles are |\n\
                 | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n"
            );
        }
        let (dsp, lut) = (found.dsp as f64, luts(&found));
        let products = [
            form.cycles as f64 * dsp,
            form.interval as f64 * dsp,
            form.interval as f64 * lut,
        ];
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} + {} | {} | {} | {} | {} | {} | {} | {} |",
            form.name,
            number(form.cycles as f64),
            number(form.interval as f64),
            number(found.lut as f64),
            number(found.lutram as f64),
            number(found.ff as f64),
            number(dsp),
            number(blocks(&found)),
            number(products[0]),
            number(products[1]),
            number(products[2]),
            form.how,
        );
        let named = |what| format!("N = {n}, {}: {what}", form.name);
        for (what, value, unit) in [
            ("cycles", form.cycles as f64, "cycles"),
            ("interval", form.interval as f64, "cycles"),
            ("LUT", lut, "LUTs"),
            ("FF", found.ff as f64, "flip-flops"),
            ("DSP48E1", dsp, "slices"),
            ("BRAM of 36 Kbit", blocks(&found), "blocks"),
            ("cycles x DSP", products[0], "cycles"),
        ] {
            rows.push(Row::new(&named(what), value, unit, None, None, form.how));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    print!("{}", row_table(&rows));
    if let Some(out) = out {
        std::fs::write(out.join("hw-multipliers.md"), page(&text))?;
        let json = serde_json::to_string_pretty(&rows)? + "\n";
        std::fs::write(out.join("hw-multipliers.json"), json)?;
    }
    Ok(())
}

fn page(text: &str) -> String {
    format!(
        "# Multipliers of polynomials, compared\n\n\
         `cd bench && cargo run --release -p toroid-hw-bench -- multipliers --write` wrote this page and hw-multipliers.json on {} ({}). \
         Products modulo x^N + 1 and q = 2^64 − 2^32 + 1, of cores that are there: transforms, products of values between them, and the transform back.\n\n\
         *cycles*: from the first word of the factors in to the last word of the product out. *interval*: from a product to the next, \
         where products follow each other. Resources are Yosys's for Xilinx 7 series, summed over the parts; nothing is placed and routed. \
         Transforms are run against the library with and without stalls before they are counted. Forms of several cores have no wrapper that joins them: \
         their cycles are the sum of the parts' formulas.\n{text}\n\
         ## When to use which\n\n{GUIDE}",
        date(),
        machine(),
    )
}

const GUIDE: &str = "";
