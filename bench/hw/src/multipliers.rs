//! Every form of a multiplier of polynomials modulo x^N + 1, at the same lengths and the same modulus.

use std::path::Path;

use serde::Serialize;
use serde_json::json;
use toroid_bench_common::machine::Measured;
use toroid_bench_common::{Error, pages};
use toroid_cores::{Core, Values, find, ntt_elastic};
use toroid_ring::goldilocks::P;
use toroid_sim::model::Design;

use crate::measured::{counted, once, steps, synthesized, synthesized_design};
use crate::row::{Area, Row};
use crate::sdf;
use toroid_task::Progress;

const LOG_N: [u64; 3] = [8, 10, 12];

/// A multiplier made of cores.
struct Form {
    name: String,
    /// From the first word of a product's factors in to its last word out.
    cycles: u64,
    /// From a product to the next.
    interval: u64,
    /// Cores with how many of each.
    parts: Vec<(&'static Core, Values, u64)>,
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
fn cycles(core: &Core, values: &Values, what: &str) -> Result<u64, Error> {
    let timing = core.configure(values)?.timing();
    let found = timing.rows().find(|cycles| cycles.what == what);
    Ok(found
        .ok_or_else(|| format!("{} has no formula of: {what}", core.name))?
        .cycles)
}

/// A core with these values.
fn with(name: &str, given: &[(&'static str, u64)]) -> Result<(&'static Core, Values), Error> {
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
        cycles: (factors - 1) * beats + latency(&forward)? - beats
            + cycles(product, &of_product, "latency")?
            + latency(&back)?,
        interval: factors * beats,
        parts: vec![
            (core, forward, 3 - factors),
            (core, back, 1),
            (product, of_product, lanes),
        ],
        modules: if is_parallel {
            Vec::new()
        } else {
            vec![values_memory(lanes, beats)?]
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

fn sum(form: &Form, work: &Path) -> Result<Area, Error> {
    let mut sum = Area::default();
    for (core, values, count) in &form.parts {
        sum.add(*count, synthesized(*core, values, work)?);
    }
    for (name, design) in &form.modules {
        sum.add(1, synthesized_design(name, design, true, work)?);
    }
    Ok(sum)
}

/// Compares a core with the library, with and without stalls, and its cycles with the formula, once.
fn test(core: &Core, values: &Values, work: &Path) -> Result<(), Error> {
    let design = core.configure(values)?.design()?;
    once("tested", &design, work, || {
        let outcome = toroid_cores::test(core, values, 1, 1, None, &Progress::none())?;
        counted(&outcome).map_err(|error| format!("{}: {error}", core.name).into())
    })?;
    Ok(())
}

/// Every form at every length; what is kept in `work` is not measured again.
pub fn page(work: &Path, out: Option<&Path>) -> Result<(), Error> {
    let all = LOG_N.map(|log_n| Ok((1u64 << log_n, forms(log_n, work)?)));
    let all = all.into_iter().collect::<Result<Vec<_>, Error>>()?;
    let bar = steps(all.iter().map(|(_, forms)| forms.len() as u64).sum())?;
    let (mut rows, mut lengths) = (Vec::new(), Vec::new());
    for (n, forms) in &all {
        let (mut shown, mut least) = (Vec::new(), Vec::new());
        for form in forms {
            bar.set_message(format!("N = {n}: {}", form.name));
            for (core, values, _) in &form.parts {
                test(*core, values, work)?;
            }
            let area = sum(form, work)?;
            let (dsp, lut) = (area.dsp as f64, area.luts());
            let (cycles, interval) = (form.cycles as f64, form.interval as f64);
            for (what, value, unit) in [
                ("cycles", cycles, "cycles"),
                ("interval", interval, "cycles"),
                ("LUT", lut, "LUTs"),
                ("FF", area.ff as f64, "flip-flops"),
                ("DSP48E1", dsp, "slices"),
                ("BRAM of 36 Kbit", area.bram, "blocks"),
                ("cycles x DSP", cycles * dsp, "cycles"),
                ("interval x DSP", interval * dsp, "cycles"),
                ("interval x LUT", interval * lut, "cycles"),
            ] {
                let name = format!("N = {n}, {}: {what}", form.name);
                rows.push(Row::new(name, value, unit).noted(form.how));
                Least::add(&mut least, what, value, &form.name);
            }
            shown.push(json!({
                "name": form.name,
                "cycles": form.cycles,
                "interval": form.interval,
                "area": area,
                "words": form.words,
                "orders": form.orders,
                "how": form.how,
            }));
            bar.inc(1);
        }
        lengths.push(json!({"n": n, "forms": shown, "least": least}));
    }
    bar.finish_and_clear();
    let data = json!({"measured": Measured::now(), "lengths": lengths});
    pages::publish("hw-multipliers", &rows, &data, out)?;
    Ok(())
}

/// The least of something, and the forms that have it.
#[derive(Serialize)]
struct Least<'a> {
    what: &'static str,
    value: f64,
    forms: Vec<&'a str>,
}

impl<'a> Least<'a> {
    /// Takes a form into account.
    fn add(all: &mut Vec<Least<'a>>, what: &'static str, value: f64, form: &'a str) {
        let forms = vec![form];
        match all.iter_mut().find(|least| least.what == what) {
            Some(least) if least.value > value => *least = Least { what, value, forms },
            Some(least) if least.value == value => least.forms.push(form),
            Some(_) => {}
            None => all.push(Least { what, value, forms }),
        }
    }
}
