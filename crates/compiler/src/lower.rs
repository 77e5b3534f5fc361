//! From a graph to a program: for each parameter set that may be taken, and then the one that costs least.

mod digits;
mod emit;
mod noise;
mod operations;
mod samples;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use toroid_engine::backend::recorded::RecordedTimes;
use toroid_engine::{ColumnFacts, Forecast, MapFacts, packed_noise};
use toroid_isa::{Assembly, VrNumber};
use toroid_task::CancelToken;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::noise::{Noise, log2_decoding_failure};
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::seeded::KeyForm;

use self::digits::Radix;
use self::emit::Writer;
use self::noise::{Placement, Weakest};
use self::operations::Operations;
use self::samples::{Combo, Samples};
use crate::compiled::{
    Alternative, Compiled, CompiledInput, CompiledOutput, Cost, MAX_COLUMNS, Options, Part,
};
use crate::error::Error;
use crate::graph::{Graph, Op};
use crate::interval::Interval;
use crate::simplify::{Pass, narrow};

/// Milliseconds of a function with sets for tests, of which no times are recorded.
const TEST_SET_MS: f64 = 1.0;

/// The least logarithm of a probability that is told apart from others.
const LEAST_LOG2: f64 = -10_000.0;

/// Sums are made in groups of so many rows, where their numbers can be taken apart for it. A drive computes a group in one command, which a run
/// that goes on does not begin in the middle of, so that groups have no more.
const WANTED_GROUP: u64 = 256;

/// Compiles a graph: simplifies it, lowers it for each of the sets of the options, and takes the program that costs least.
///
/// # Errors
/// What no set can compute, with the place in the program, and sets and layouts that do not exist or do not fit.
pub fn compile(graph: &Graph, options: &Options) -> Result<Compiled, Error> {
    compile_until(graph, options, &CancelToken::new())
}

/// As [`compile`], until the token is cancelled.
///
/// # Errors
/// As [`compile`], and that it was cancelled.
pub fn compile_until(
    graph: &Graph,
    options: &Options,
    cancel: &CancelToken,
) -> Result<Compiled, Error> {
    if graph.outputs().is_empty() {
        return Err(Error::new("the graph has no output").with_help("add `output NAME = VALUE`"));
    }
    if graph.inputs().next().is_none() {
        return Err(Error::new("the graph has no input")
            .with_help("what depends on no encrypted number needs no drive"));
    }
    if options.log2_failure.is_nan() || options.log2_failure > 0.0 {
        return Err(Error::new(format!(
            "2^{} is no failure probability",
            options.log2_failure
        ))
        .with_help("`log2_failure` is 0 or negative"));
    }
    if let Some(name) = options
        .inputs
        .keys()
        .find(|name| graph.find_input(name).is_none())
    {
        return Err(Error::new(format!("the graph has no input `{name}`")));
    }
    let graph = &narrow(graph, &options.inputs, cancel)?;
    let mut best: Option<Compiled> = None;
    let mut alternatives = Vec::new();
    let mut refusals = Vec::new();
    for name in &options.sets {
        let params = ParamSet::by_name(name)
            .filter(|params| params.message_bits > 0)
            .ok_or_else(|| {
                Error::new(format!("there is no parameter set `{name}` for integers"))
            })?;
        let compiled = compile_for(graph, params, (options, cancel));
        cancel.check()?;
        match compiled {
            Ok(compiled) => {
                alternatives.push(Alternative {
                    set: params.name.to_owned(),
                    cost: Some(compiled.cost),
                    refused: None,
                });
                let seconds = |compiled: &Compiled| compiled.cost.seconds_per_row;
                if best
                    .as_ref()
                    .is_none_or(|best| seconds(&compiled) < seconds(best))
                {
                    best = Some(compiled);
                }
            }
            Err(error) => {
                alternatives.push(Alternative {
                    set: params.name.to_owned(),
                    cost: None,
                    refused: Some(error.to_string()),
                });
                refusals.push(error);
            }
        }
    }
    match best {
        Some(best) => Ok(Compiled {
            alternatives,
            ..best
        }),
        // The first set asked for is the one that most can be computed with.
        None => Err(refusals
            .into_iter()
            .next()
            .unwrap_or_else(|| Error::new("no parameter set was given to choose from"))),
    }
}

/// Compiles for one set: the graph as it is written, and simpler ones of the same meaning, of which the cheapest stays.
fn compile_for(
    graph: &Graph,
    params: &'static ParamSet,
    (options, cancel): (&Options, &CancelToken),
) -> Result<Compiled, Error> {
    let mut best = compile_as_it_is(graph, params, (options, cancel));
    if !options.simplify {
        return best;
    }
    // Tables of two values save functions, but theirs read more bits, so that only the costs tell.
    let without_pairs: Vec<Pass> = Pass::ALL
        .into_iter()
        .filter(|pass| *pass != Pass::FuseTwo)
        .collect();
    let mut tried = vec![graph.clone()];
    for passes in [without_pairs.as_slice(), &Pass::ALL] {
        let simpler = graph.simplify_until(passes, params.message_bits, cancel)?;
        if tried.contains(&simpler) {
            continue;
        }
        if let Ok(compiled) = compile_as_it_is(&simpler, params, (options, cancel)) {
            let is_better = best.as_ref().map_or(true, |best| {
                compiled.cost.seconds_per_row < best.cost.seconds_per_row
            });
            if is_better {
                best = Ok(compiled);
            }
        }
        tried.push(simpler);
    }
    best
}

/// Compiles a graph for one set without a change.
fn compile_as_it_is(
    graph: &Graph,
    params: &'static ParamSet,
    (options, cancel): (&Options, &CancelToken),
) -> Result<Compiled, Error> {
    let digit_bits = options.digit_bits.unwrap_or(params.message_bits / 2).max(1);
    if digit_bits > params.message_bits / 2 {
        return Err(Error::new(format!(
            "digits of {digit_bits} bits leave functions of two of them no room; {} takes at most {}",
            params.name,
            params.message_bits / 2
        )));
    }
    let rows = options.rows.max(1);
    let is_sum = is_sum(graph)?;
    let mut limit = is_sum.then_some(rows);
    // Samples are made anew where a reader fails more often than is allowed. Only if that is not enough must each reader have its share: what is made
    // anew takes a function and fails, too.
    let mut is_shared = false;
    loop {
        let (lowered, weakest) = lower(
            graph,
            params,
            (options, digit_bits, cancel),
            (limit, is_shared),
        )?;
        let parts = match lowered.group {
            Some(group) => rows.div_ceil(group),
            None => rows,
        };
        let log2_failure = lowered.cost.log2_failure + (parts as f64).log2();
        // A bound of 1 or more promises nothing, whatever is allowed.
        if log2_failure < 0.0 && log2_failure <= options.log2_failure {
            let mut compiled = lowered;
            compiled.cost.log2_failure = log2_failure;
            return Ok(compiled);
        }
        is_shared = !is_shared;
        if is_shared {
            continue;
        }
        match lowered.group {
            Some(group) if group > 1 => limit = Some(group / 2),
            _ => {
                let mut help = "allow more with `log2_failure`, or take another parameter set or narrower numbers".to_owned();
                let results = format!(
                    "some result of {rows} row{}",
                    if rows == 1 { "" } else { "s" }
                );
                let allowed = format!("where 2^{:.0} is allowed", options.log2_failure);
                let mut error = Error::new(if log2_failure < 0.0 {
                    format!(
                        "with {} {results} is wrong with a probability of 2^{log2_failure:.0}, {allowed}",
                        params.name
                    )
                } else {
                    format!(
                        "with {} the probabilities that {results} is wrong add up to 1 or more, which promises nothing, {allowed}",
                        params.name
                    )
                });
                if let Some(weakest) = weakest {
                    let _ = write!(
                        help,
                        "; of {} functions the most doubtful is one of {}, which fails with 2^{:.0}",
                        lowered.cost.bootstraps,
                        weakest.what,
                        weakest.log2_failure.min(0.0)
                    );
                    error = error.at(weakest.location.as_ref());
                }
                return Err(error.with_help(help));
            }
        }
    }
}

/// Whether the outputs are sums of rows. All are or none is, since they stand in one column.
fn is_sum(graph: &Graph) -> Result<bool, Error> {
    let mut sums = graph
        .outputs()
        .iter()
        .map(|output| matches!(graph.op(output.node), Op::Sum(_)));
    let first = sums.next().unwrap_or(false);
    if sums.all(|sum| sum == first) {
        Ok(first)
    } else {
        Err(
            Error::new("sums of rows and results of single rows stand in different columns")
                .with_help("compile them as two programs"),
        )
    }
}

/// A field of a result's sample.
struct Field {
    output: usize,
    combo: Combo,
    /// The least number, which is taken off.
    least: i128,
    /// The power of two that it counts.
    weight: u32,
    bits: u32,
}

fn lower(
    graph: &Graph,
    params: &'static ParamSet,
    (options, digit_bits, cancel): (&Options, u32, &CancelToken),
    (limit, is_shared): (Option<u64>, bool),
) -> Result<(Compiled, Option<Weakest>), Error> {
    let samples = Samples::new(params, cancel.clone());
    let radix = Radix { bits: digit_bits };
    // Functions read the results that programs have as inputs, and not the bit of padding.
    let feeds_programs = options.repeated || options.separate;
    let mut operations = Operations::new(graph, samples, radix, feeds_programs);
    operations.lower(options)?;
    let mut outputs: Vec<CompiledOutput> = Vec::new();
    let mut found = Vec::new();
    for (number, output) in graph.outputs().iter().enumerate() {
        outputs.push(CompiledOutput {
            name: output.name.to_string(),
            interval: graph.interval(output.node),
            parts: Vec::new(),
            offset: 0,
            sum: limit.is_some(),
            offset_per_row: 0,
        });
        for (weight, combo) in operations.result(output.node) {
            found.push((number, weight, combo));
        }
    }
    let inputs = std::mem::take(&mut operations.inputs);
    let mut samples = operations.samples;
    let room = params.message_bits + u32::from(!feeds_programs);
    // An input of another program has no offset, unless it can be negative.
    let stored = |combo: &Combo| Interval {
        low: match options.separate {
            true => combo.interval.low.min(0),
            false => combo.interval.low,
        },
        ..combo.interval
    };
    let widest = |found: &[(usize, u32, Combo)]| {
        let widths = found.iter().map(|(_, _, combo)| stored(combo).bits());
        widths.max().unwrap_or(1)
    };
    // Numbers of many bits leave no room for sums of many rows, and those far from zero none for themselves: they are taken apart.
    let pieces = match limit {
        Some(rows) => {
            let wanted = rows.min(WANTED_GROUP).next_power_of_two().trailing_zeros();
            let most = room.saturating_sub(wanted).max(1);
            Some((most, most))
        }
        None => options.separate.then_some((room, digit_bits)),
    };
    if let Some((most, bits)) = pieces {
        let mut taken = Vec::new();
        for (number, weight, combo) in found {
            if stored(&combo).bits() <= most || combo.bits() > params.message_bits {
                taken.push((number, weight, combo));
                continue;
            }
            let pieces = Radix { bits }.split(&mut samples, &combo)?;
            for (place, piece) in (0..).zip(pieces) {
                taken.push((number, weight + place * bits, piece));
            }
        }
        found = taken;
    }
    // The largest group whose sums fit, and a command.
    let group = limit.map(|rows| {
        let left = room.saturating_sub(widest(&found));
        rows.min(1_u64 << left).clamp(1, WANTED_GROUP)
    });
    let summands = i128::from(group.unwrap_or(1));
    let mut fields = Vec::new();
    for (output, weight, combo) in found {
        let Some(of_output) = outputs.get_mut(output) else {
            continue;
        };
        let least = stored(&combo).low;
        if limit.is_some() {
            of_output.offset_per_row += least << weight;
        } else {
            of_output.offset += least << weight;
        }
        let span = (combo.interval.high - least) * summands;
        // A constant that another program reads has its row all the same.
        if span == 0 && !options.separate {
            continue;
        }
        fields.push(Field {
            output,
            least,
            weight,
            bits: (i128::BITS - span.leading_zeros()).max(1),
            combo,
        });
    }
    // Side by side, each with the width of all its values.
    let mut results: Vec<(u32, Combo)> = Vec::new();
    for field in &fields {
        if field.bits > room {
            let node = graph.outputs()[field.output].node;
            return Err(graph
                .error(
                    node,
                    format!(
                        "a result has {} bits, and a row of {} holds {room}",
                        field.bits, params.name
                    ),
                )
                .with_help("take a parameter set of wider messages"));
        }
        let mut shared = results.iter();
        let place = shared.position(|(used, _)| !options.separate && used + field.bits <= room);
        let row = place.unwrap_or(results.len());
        if place.is_none() {
            results.push((0, Combo::constant(0)));
        }
        let (used, sum) = &mut results[row];
        *sum = sum.plus(&field.combo.offset(-field.least), 1 << *used);
        outputs[field.output].parts.push(Part {
            row: row as u64,
            shift: *used,
            bits: field.bits,
            factor: 1 << field.weight,
        });
        *used += field.bits;
    }
    let registers: Vec<(String, bool)> = operations::signs(&inputs);
    if results.is_empty() {
        // Nothing depends on an input; some row must stand there all the same.
        let first = samples
            .bases
            .iter()
            .position(|base| matches!(base.origin, samples::Origin::Input(_)));
        let interval = first.map(|base| samples.bases[base].interval);
        if let (Some(base), Some(interval)) = (first, interval) {
            let combo = Combo {
                terms: BTreeMap::from([(base, 1)]),
                constant: 0,
                interval,
            };
            results.push((0, combo));
        }
    }
    let results = results.into_iter().map(|(_, combo)| combo.seen(room));
    let results = results.collect();
    let mut placement = Placement::new(samples, results, group.unwrap_or(1), options);
    let shares = placement.samples.tasks.len() as f64 + 2.0;
    let rows = options.rows.max(1) as f64;
    let share = if is_shared {
        (shares * rows).log2() + 2.0
    } else {
        rows.log2()
    };
    placement.settle(options.log2_failure - share)?;
    let program = Writer::new(&placement, &registers).write(group)?;
    let result_rows = placement.results.len().next_power_of_two() as u64;
    let assembly = toroid_isa::assemble(&program.text).map_err(|error| internal(&error))?;
    let read = columns_read(&assembly, &inputs)?;
    let inputs_of_forecast = (&registers[..], placement.input_noise());
    let facts = forecast(&assembly, params, inputs_of_forecast, group.unwrap_or(1))?;
    let cost = cost(params, &facts, (read, result_rows, group))?;
    let compiled = Compiled {
        set: params.name.to_owned(),
        program: program.text,
        inputs,
        outputs,
        result_rows,
        group,
        result_bits: params.message_bits,
        result_signed: program.is_signed,
        cost,
        alternatives: Vec::new(),
    };
    Ok((compiled, placement.weakest()))
}

fn internal(error: &dyn std::fmt::Display) -> Error {
    Error::new(format!("the program that was made is refused: {error}"))
}

/// How many columns of digits a program reads.
///
/// # Errors
/// More than a run takes.
fn columns_read(assembly: &Assembly, inputs: &[CompiledInput]) -> Result<usize, Error> {
    let read = assembly.program.registers_read();
    let is_read = |register: &&String| {
        let register = assembly.registers.get(*register);
        register.is_some_and(|register| read.contains(register))
    };
    let counts: Vec<(&str, usize)> = inputs
        .iter()
        .map(|input| {
            let digits = input.registers.iter().filter(is_read).count();
            (&*input.name, digits)
        })
        .collect();
    let count = counts.iter().map(|(_, digits)| digits).sum();
    if count > MAX_COLUMNS {
        let counts: Vec<String> = counts
            .iter()
            .map(|(name, digits)| format!("`{name}` {digits}"))
            .collect();
        return Err(Error::new(format!(
            "the program reads {count} columns of digits, and a run takes {MAX_COLUMNS}: {}",
            counts.join(", ")
        ))
        .with_help(
            "take a parameter set of wider messages, narrower or fewer inputs, or several programs",
        ));
    }
    Ok(count)
}

/// What the engine will do with a program on rows of this noise, with enough of them for two groups.
fn forecast(
    assembly: &Assembly,
    params: &'static ParamSet,
    (registers, noise): (&[(String, bool)], Noise),
    group: u64,
) -> Result<MapFacts, Error> {
    let mut inputs = BTreeMap::new();
    for (number, (name, signed)) in (1..).zip(registers) {
        let Some(register) = assembly.registers.get(name) else {
            continue;
        };
        let encoding = Encoding::new(params.message_bits, *signed);
        let facts = ColumnFacts {
            rows: 2 * group,
            noise: noise.clone(),
            encoding: Some(encoding.map_err(|error| internal(&error))?),
            number,
        };
        inputs.insert(*register, facts);
    }
    let mut functions = BTreeMap::new();
    for vector in &assembly.test_vectors {
        let encoding = |bits: Option<u32>| {
            Encoding::new(bits.unwrap_or(params.message_bits), vector.signed).ok()
        };
        functions.insert(vector.vr, (encoding(vector.p_in), encoding(vector.p_out)));
    }
    let program_vr = VrNumber::program(0).map_err(|error| internal(&error))?;
    let forecast = Forecast {
        program_vr,
        program: &assembly.program,
        params,
        arithmetic: ArithmeticKind::Fft,
        inputs: &inputs,
        functions: &|vr| functions.get(&vr).copied().unwrap_or_default(),
    };
    forecast.facts().map_err(|error| internal(&error))
}

fn cost(
    params: &'static ParamSet,
    facts: &MapFacts,
    (columns, result_rows, group): (usize, u64, Option<u64>),
) -> Result<Cost, Error> {
    let output = facts
        .outputs
        .first()
        .ok_or_else(|| Error::new("the program that was made has no result"))?;
    let packed = packed_noise(params, ArithmeticKind::Fft, &output.noise);
    let packed = packed_noise(params, ArithmeticKind::Fft, &packed);
    let bits = output.encoding.map_or(params.message_bits, Encoding::bits);
    // The packed rows' noise comes with the failures behind them.
    let variance = packed.variance().max(output.noise.variance());
    let of_row = log2_decoding_failure(bits, variance, packed.log2_failure());
    let times = RecordedTimes::documented(1);
    let mut seconds = 0.0;
    let mut bootstraps = 0;
    for task in &facts.tasks {
        let time = times.task(params, task.input_bits, task.functions);
        seconds += time.map_or_else(
            |_| {
                let work = task.functions as f64 + f64::from(task.input_bits);
                TEST_SET_MS * work / 1000.0
            },
            |time| time.as_secs_f64(),
        );
        bootstraps += task.functions as u64;
    }
    let sample = params.lwe_bytes() as u64;
    Ok(Cost {
        bootstraps,
        tasks: facts.tasks.len() as u64,
        seconds_per_row: seconds,
        log2_failure: (of_row + (result_rows as f64).log2()).max(LEAST_LOG2),
        key_bytes: KeyForm::Seeded.bootstrapping_key_bytes(params)
            + KeyForm::Seeded.key_switching_key_bytes(params),
        input_bytes_per_row: columns as u64 * params.modulus.word_bytes() as u64,
        result_bytes_per_row: (sample * result_rows).div_ceil(group.unwrap_or(1)),
    })
}
