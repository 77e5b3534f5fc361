//! Every form of a multiplier of polynomials modulo x^N + 1, at the same lengths and the same modulus.

use std::fmt::Write as _;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use toroid_cosim::core::synthesis::Resources;
use toroid_cosim::core::{self, Core, Values, find, ntt_elastic};
use toroid_cosim::model::Design;
use toroid_ring::goldilocks::P;

use crate::Error;
use crate::measured::{blocks, luts, synthesized, synthesized_design};
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
    /// Products of values modulo any q, of `ntt_elastic`'s multiplier, beside them.
    products: Option<Design>,
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
        products: None,
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
        products: None,
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
        products: None,
        how: "simulated",
    })
}

/// One core for all three transforms, with products and an order of values for the transform back between.
fn elastic(log_n: u32, log_lanes: u32) -> Result<Form, Error> {
    let (core, values) = with("ntt_elastic", &[("LOG_LANES", log_lanes.into())])?;
    let plan = ntt_elastic::plan(&values)?;
    let lanes = plan.lanes();
    let beats = plan.beats(log_n);
    let places = |index: &dyn Fn(usize, usize) -> usize| -> Vec<usize> {
        let places = (0..beats as usize).flat_map(|beat| (0..lanes).map(move |lane| (beat, lane)));
        places.map(|(beat, lane)| index(beat, lane)).collect()
    };
    let values_leave = places(&|beat, lane| plan.output_index(log_n, beat, lane));
    let mut place_of = vec![0; values_leave.len()];
    for (place, index) in values_leave.into_iter().enumerate() {
        place_of[index] = place;
    }
    let values_enter = places(&|beat, lane| plan.input_index(log_n, beat, lane));
    let list = values_enter
        .into_iter()
        .map(|index| place_of[index])
        .collect();
    let network = find("permutation")?;
    let of_network = Values::new(
        network,
        [
            ("LOG_LANES", log_lanes.into()),
            ("LOG_BEATS", u64::from(log_n - log_lanes)),
            ("KIND", 3),
        ],
    )?
    .with_list(network, list)?;
    let setting = plan.setting();
    let product = Design::of("montgomery_column")?
        .with("COUNT", lanes as u64)
        .with("WORD", u64::from(setting.word));
    let waits = plan.mul_latency() + cycles(network, &of_network, "a beat, latency")?;
    Ok(Form {
        name: format!("elastic, {lanes} lanes, any q"),
        log_n: log_n.into(),
        cycles: 2 * plan.latency(log_n) + waits,
        interval: 3 * beats,
        parts: vec![(core, values, 1), (network, of_network, 1)],
        products: Some(product),
        how: "formulas, each held against simulation",
    })
}

/// The forms of a length.
fn forms(log_n: u64) -> Result<Vec<Form>, Error> {
    let lanes = if log_n < 10 { 3 } else { 4 };
    let mut forms = vec![
        inplace(log_n, 4)?,
        streaming(log_n, 4, false)?,
        elastic(log_n as u32, lanes)?,
    ];
    for (architecture, is_parallel) in [(2, false), (2, true), (0, false), (1, false)] {
        forms.push(sdf(log_n, architecture, is_parallel)?);
    }
    Ok(forms)
}

fn sum(form: &Form, work: &Path) -> Result<Resources, Error> {
    let mut sum = Resources::default();
    let mut add = |count: u64, one: Resources| {
        sum.lut += count * one.lut;
        sum.lutram += count * one.lutram;
        sum.ff += count * one.ff;
        sum.dsp += count * one.dsp;
        sum.ramb18 += count * one.ramb18;
        sum.ramb36 += count * one.ramb36;
    };
    for (core, values, count) in &form.parts {
        add(*count, synthesized(*core, values, work)?);
    }
    if let Some(design) = &form.products {
        add(
            1,
            synthesized_design("montgomery_column", design, true, work)?,
        );
    }
    Ok(sum)
}

/// Every form at every length; what is kept in `work` is not measured again.
pub fn rows(work: &Path, results: &Path, write: bool) -> Result<(), Error> {
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
        // The elastic core is simulated by a command of its own, which takes minutes.
        let simulated = form
            .parts
            .iter()
            .filter(|(core, ..)| core.name() != "ntt_elastic");
        for (core, values, _) in simulated {
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
    if write {
        std::fs::write(results.join("hw-multipliers.md"), page(&text))?;
        let json = serde_json::to_string_pretty(&rows)? + "\n";
        std::fs::write(results.join("hw-multipliers.json"), json)?;
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

const GUIDE: &str = "- Least time of one product, and moduli that are fixed: **streaming**, half to a third of the time of the others, at the most multipliers of a fixed modulus.\n- Least area for a steady stream of products: **Modr2, parallel** has the least interval x DSP and interval x LUT at N = 256 and 1024.\n- Least cycles x DSP of a lone product: **Modr2, serial** at N = 256, **in place** at N = 1024, by a little, and **in place** among those counted at N = 4096.\n- Least multipliers and one word a cycle: **R2SDF**; its DSP slices are not much fewer, as products and canonical words at 64 bits cost the same.\n- A modulus, length or kind that changes with each transform: **elastic** only; at a fixed modulus it takes more multipliers and more time than streaming.\n- Transforms that share a memory with other work, or the greatest lengths on few blocks: **in place**.\n";
