//! `toroid compile`: graphs of integer operations to programs.

use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use toroid_compiler::{Compiled, Cost, Graph, MAX_SOURCE_BYTES, Options, compile};
use toroid_tfhe::params::ParamSet;

use super::{parse_param_set, read_limited};
use crate::output::{Output, power_of_two, usage};

/// Arguments of `toroid compile`.
#[derive(clap::Args)]
pub struct Args {
    /// The graph's text; - for the standard input.
    graph: PathBuf,
    /// Parameter set to compile for; given several times, the cheapest is taken. Without it, one of those for integers is.
    #[arg(long, value_name = "SET", value_parser = parse_param_set)]
    params: Vec<&'static ParamSet>,
    /// log2 of the failure probability that the results of all rows together may have.
    #[arg(long, value_name = "LOG2", default_value_t = Options::default().log2_failure, allow_negative_numbers = true)]
    log2_failure: f64,
    /// Rows of the columns that the program is for; a sum is one of so many.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    /// Compile the graph as it is written, without trying simpler ones of the same meaning.
    #[arg(long)]
    as_written: bool,
}

/// The text of a graph, and how errors name where it is from.
fn read(path: &Path) -> anyhow::Result<(String, String)> {
    let is_stdin = path == Path::new("-");
    let name = if is_stdin {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    };
    let bytes = if is_stdin {
        let mut bytes = Vec::new();
        let most = MAX_SOURCE_BYTES as u64 + 1;
        std::io::stdin()
            .take(most)
            .read_to_end(&mut bytes)
            .context("cannot read the standard input")?;
        bytes
    } else {
        read_limited(path, MAX_SOURCE_BYTES, "a graph")?
    };
    let text = String::from_utf8(bytes).with_context(|| format!("{name} is not text"))?;
    Ok((text, name))
}

/// Runs `toroid compile`.
pub fn run(args: &Args, output: &Output) -> anyhow::Result<()> {
    if args.log2_failure.is_nan() || args.log2_failure > 0.0 {
        return Err(usage(format!(
            "--log2-failure {} is no probability; it is 0 or negative",
            args.log2_failure
        )));
    }
    let (text, name) = read(&args.graph)?;
    let graph = Graph::parse_file(&text, &name)?;
    let mut options = Options {
        rows: args.rows,
        log2_failure: args.log2_failure,
        simplify: !args.as_written,
        ..Options::default()
    };
    if !args.params.is_empty() {
        let names = args.params.iter().map(|set| set.name.to_owned());
        options.sets = names.collect();
    }
    let compiled = compile(&graph, &options)?;
    output.result(&compiled, || shown(&compiled))
}

/// The program with what it costs and how its columns stand, as comments, so that the whole text assembles.
fn shown(compiled: &Compiled) -> String {
    let mut text = String::new();
    for line in remarks(compiled).lines() {
        let _ = writeln!(text, "; {line}");
    }
    text.push('\n');
    text.push_str(compiled.program.trim_end());
    text
}

fn remarks(compiled: &Compiled) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}: {}", compiled.set, cost(&compiled.cost));
    for other in &compiled.alternatives {
        match (&other.cost, &other.refused) {
            _ if other.set == compiled.set => {}
            (Some(other_cost), _) => {
                let _ = writeln!(text, "{}: {}", other.set, cost(other_cost));
            }
            (None, refused) => {
                let refused = refused.as_deref().unwrap_or_default();
                let _ = writeln!(text, "{} is not possible: {refused}", other.set);
            }
        }
    }
    for input in &compiled.inputs {
        let digits = input.registers.iter().zip(&input.layout.digits);
        let digits = digits.map(|(register, digit)| {
            let sign = if digit.signed { " with a sign" } else { "" };
            format!(
                "{register} has {} bits{sign} from bit {} on",
                digit.bits, digit.shift
            )
        });
        let digits: Vec<String> = digits.collect();
        let _ = writeln!(
            text,
            "input {}, {}: {}",
            input.name,
            input.interval,
            digits.join(", ")
        );
    }
    for output in &compiled.outputs {
        let parts = output.parts.iter().map(|part| {
            format!(
                "{} times {} bits of row {} from bit {} on",
                part.factor, part.bits, part.row, part.shift
            )
        });
        let mut summands: Vec<String> = parts.collect();
        if output.offset != 0 || summands.is_empty() {
            summands.push(output.offset.to_string());
        }
        if output.offset_per_row != 0 {
            summands.push(format!("{} for each row", output.offset_per_row));
        }
        let sum = if output.sum {
            ", the sum of all rows"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "output {}{sum}: {}",
            output.name,
            summands.join(" + ")
        );
    }
    let of = match compiled.group {
        Some(group) => format!("group of {group} rows"),
        None => "row".to_owned(),
    };
    let _ = writeln!(
        text,
        "rows of the result for each {of} of the inputs: {}",
        compiled.result_rows
    );
    text
}

fn cost(cost: &Cost) -> String {
    format!(
        "{} functions of {} samples a row, {:.3} s on one core; failure {}; keys of {:.1} MB; {} bytes of inputs and {} of results a row",
        cost.bootstraps,
        cost.tasks,
        cost.seconds_per_row,
        power_of_two(cost.log2_failure),
        cost.key_bytes as f64 / 1e6,
        cost.input_bytes_per_row,
        cost.result_bytes_per_row
    )
}
