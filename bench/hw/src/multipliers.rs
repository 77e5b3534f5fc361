//! Every form of a multiplier of polynomials modulo x^N + 1, at the same lengths and the same modulus.

use std::fmt::Write as _;
use std::path::Path;

use toroid_cores::synthesis::Resources;
use toroid_cores::{Core, Values, find, ntt_elastic};
use toroid_ring::goldilocks::P;
use toroid_sim::model::Design;

use crate::Error;
use crate::measured::{blocks, counted, luts, once, steps, synthesized, synthesized_design};
use crate::report::{Row, date, machine, number, publish, row_table};
use crate::sdf;

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
    /// Modules of the library beside them.
    modules: Vec<(&'static str, Design)>,
    /// The orders of the factors' coefficients and of the product's.
    orders: [&'static str; 2],
    /// Words of 64 bits that must come from outside in every cycle.
    words: u64,
    /// How `cycles` was found.
    how: &'static str,
}

/// Cycles that are sums of the parts' formulas.
const SUMS: &str = "sums of the parts' formulas, each part run against the library";

/// The memory for the first factor's values, until those of the second leave.
fn values_memory(lanes: u64, beats: u64) -> Result<(&'static str, Design), Error> {
    let memory = toroid_cores::sources::design("ram_sdp")?
        .with("WIDTH", 64 * lanes)
        .with("DEPTH", beats)
        .with("OUTPUT_REGISTER", 0u64);
    Ok(("ram_sdp", memory))
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
        modules: Vec::new(),
        orders: ["natural", "natural"],
        words: 2 << log_lanes,
        how: SUMS,
    })
}

/// Cores of a direction each, with products between; with one for the NTTs, factors enter in turn.
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
        modules: match is_parallel {
            true => Vec::new(),
            false => vec![values_memory(lanes, beats)?],
        },
        orders: ["halves", "halves"],
        words: lanes * (3 - factors),
        how: SUMS,
    })
}

/// A core that is a multiplier; what is kept of it in `work` is not simulated again.
fn sdf(log_n: u64, architecture: u64, is_parallel: bool, work: &Path) -> Result<Form, Error> {
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
    let found = sdf::simulate(core, &values, work)?;
    let lanes = if architecture == 2 { 2 } else { 1 };
    let order = if architecture == 2 {
        "halves"
    } else {
        "natural"
    };
    Ok(Form {
        name: format!(
            "{name}, {}",
            if is_parallel { "parallel" } else { "serial" }
        ),
        log_n,
        cycles: found.latency,
        interval: found.interval,
        parts: vec![(core, values, 1)],
        modules: Vec::new(),
        orders: [order, order],
        words: lanes << u32::from(is_parallel),
        how: "counted in simulation",
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
    let product = toroid_cores::sources::design("montgomery_column")?
        .with("COUNT", lanes as u64)
        .with("WORD", u64::from(setting.word));
    let waits = plan.mul_latency() + cycles(network, &of_network, "a beat, latency")?;
    Ok(Form {
        name: format!("elastic, {lanes} lanes, any q"),
        log_n: log_n.into(),
        cycles: 2 * plan.latency(log_n) + waits,
        interval: 3 * beats,
        parts: vec![(core, values, 1), (network, of_network, 1)],
        modules: vec![
            ("montgomery_column", product),
            values_memory(lanes as u64, beats)?,
        ],
        orders: ["strided", "strided, swapped"],
        // Two of factors.
        words: lanes as u64 + 2,
        how: SUMS,
    })
}

/// The forms of a length.
fn forms(log_n: u64, work: &Path) -> Result<Vec<Form>, Error> {
    let lanes = if log_n < 10 { 3 } else { 4 };
    let mut forms = vec![
        inplace(log_n, 4)?,
        streaming(log_n, 4, false)?,
        streaming(log_n, 4, true)?,
        elastic(log_n as u32, lanes)?,
    ];
    for (architecture, is_parallel) in [(2, false), (2, true), (0, false), (1, false)] {
        forms.push(sdf(log_n, architecture, is_parallel, work)?);
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
    for (name, design) in &form.modules {
        add(1, synthesized_design(name, design, true, work)?);
    }
    Ok(sum)
}

/// Compares a core with the library, with and without stalls, and its cycles with the formula, once.
fn test(core: &dyn Core, values: &Values, work: &Path) -> Result<(), Error> {
    let design = core.design(values)?;
    once("tested", &design, work, || {
        let outcome = toroid_cores::test(core, values, 1, 1, None, &())?;
        counted(&outcome).map_err(|error| format!("{}: {error}", core.name()).into())
    })?;
    Ok(())
}

/// Every form at every length; what is kept in `work` is not measured again.
pub fn rows(work: &Path, out: Option<&Path>) -> Result<(), Error> {
    let mut all = Vec::new();
    for log_n in LOG_N {
        all.extend(forms(log_n, work)?);
    }
    let bar = steps(all.len() as u64)?;
    let (mut rows, mut text) = (Vec::new(), String::new());
    let mut n = 0;
    // Of a length: the least of each column.
    let mut least: Vec<Least> = Vec::new();
    for (place, form) in all.iter().enumerate() {
        bar.set_message(format!("N = {}: {}", 1 << form.log_n, form.name));
        for (core, values, _) in &form.parts {
            test(*core, values, work)?;
        }
        let found = sum(form, work)?;
        if n != 1u64 << form.log_n {
            n = 1 << form.log_n;
            least.clear();
            let _ = write!(
                text,
                "\n## N = {n}\n\n\
                 | form | cycles | interval | LUT + LUT memories | FF | DSP | BRAM | cycles x DSP | interval x DSP | interval x LUT | words in a cycle | order in, out | cycles are |\n\
                 | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |\n"
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
            "| {} | {} | {} | {} + {} | {} | {} | {} | {} | {} | {} | {} | {}; {} | {} |",
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
            form.words,
            form.orders[0],
            form.orders[1],
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
            ("interval x DSP", products[1], "cycles"),
            ("interval x LUT", products[2], "cycles"),
        ] {
            rows.push(Row::new(&named(what), value, unit, None, None, form.how));
            match least.iter_mut().find(|least| least.what == what) {
                Some(least) if least.value > value => {
                    (least.value, least.forms) = (value, vec![form.name.as_str()]);
                }
                Some(least) if least.value == value => least.forms.push(form.name.as_str()),
                Some(_) => {}
                None => least.push(Least {
                    what,
                    value,
                    forms: vec![form.name.as_str()],
                }),
            }
        }
        if all
            .get(place + 1)
            .is_none_or(|next| next.log_n != form.log_n)
        {
            text += "\nThe least of each, of these forms:\n\n";
            for Least { what, value, forms } in &least {
                let _ = writeln!(text, "- {what}: {}: {}", forms.join("; "), number(*value));
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    print!("{}", row_table(&rows));
    if let Some(out) = out {
        publish(out, "hw-multipliers", &page(&text), &rows)?;
    }
    Ok(())
}

/// The least of something, and the forms that have it.
struct Least<'a> {
    what: &'static str,
    value: f64,
    forms: Vec<&'a str>,
}

fn page(text: &str) -> String {
    format!(
        "# Multipliers of polynomials, compared\n\n\
         `cd bench && cargo run --release -p toroid-hw-bench -- multipliers --write` wrote this page and hw-multipliers.json on {} ({}). \
         Products modulo x^N + 1 and q = 2^64 − 2^32 + 1, of cores that are there: transforms, products of values between them, and the transform back.\n\n\
         *cycles*: from the first word of the factors in to the last word of the product out. *interval*: from a product to the next, \
         where products follow each other. Resources are Yosys's for Xilinx 7 series, summed over the parts; nothing is placed and routed. \
         Every core is run against the library with and without stalls before it is counted. Forms of several cores have no wrapper that joins them: \
         their cycles are sums of the parts' formulas. A form with one NTT has a memory for the first factor's values besides; the wires, counters and handshakes that would join parts are not counted. \
         *words in a cycle*: of 64 bits, at the most; two of the elastic core's are of its twiddles, which somebody else must make or store. *order*: of the coefficients that enter and leave \
         ([the cores' documents](../../hw/README.md) say what they are); what brings another order to them is not counted either.\n{text}\n\
         ## When to use which\n\n{GUIDE}",
        date(),
        machine(),
    )
}

/// What follows from what the cores are; which has the least of something is found from the rows.
const GUIDE: &str = "\
- A product in the least time, at a modulus that is fixed: **streaming**, with two NTTs if 32 words can enter in a cycle.
- A steady stream of products: **streaming** and **Modr2** with two NTTs each, which have the same multipliers all the time at work; the number of words that enter and leave in a cycle decides between them.
- Now and then a product, on few multipliers that then stand idle: **Modr2, serial**, and **in place**; see cycles x DSP.
- The least area, where one word a cycle is enough: **R2SDF** and **R2^2SDF**, serial.
- A modulus, length or kind that changes with each transform: **elastic** only; at a fixed modulus and on as many lanes, streaming takes fewer multipliers and less time.
- Transforms that share a memory with other work: **in place**.
";
