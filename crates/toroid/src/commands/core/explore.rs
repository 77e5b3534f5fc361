//! `toroid core explore`: the settings of cores that compute a transform, on a device.

use std::path::PathBuf;

use toroid_cores::order::Order;
use toroid_cores::transform::{Direction, Ring, Transform};
use toroid_explore::model::{Errors, Model};
use toroid_explore::{Exploration, ExploreError, Goal, Point, Request, explore};

use super::parse_number;
use crate::output::{Output, usage};

/// Arguments of `toroid core explore`.
#[derive(clap::Args)]
pub struct ExploreArgs {
    /// Words of a transform: a power of two, or a product of two or more of 3, 5, 17 and 257
    #[arg(long)]
    n: u64,
    /// The modulus, a prime with a root of unity of order 2n, or n for a cyclic transform.
    #[arg(long, value_parser = parse_number)]
    q: u64,
    /// The device: xc7vx690t, xc7vx980t, xcvu47p, xcu250, xcu280, xc7a200t or ecp5-85k.
    #[arg(long, default_value = "xc7vx690t")]
    device: String,
    /// What input and output may take together, in GB/s [default: any].
    #[arg(long, value_name = "GB/s", allow_negative_numbers = true)]
    bandwidth: Option<f64>,
    /// The clock in MHz, which is assumed to be reached [default: 200, for ECP5 100].
    #[arg(long, value_name = "MHz", allow_negative_numbers = true)]
    clock: Option<f64>,
    /// What ranks settings; area is the largest share of a resource of the device.
    #[arg(long, value_enum, default_value_t = GoalName::Latency)]
    goal: GoalName,
    /// Only settings of this core.
    #[arg(long, value_name = "CORE")]
    family: Option<String>,
    /// From coefficients to values, or back.
    #[arg(long, value_enum, default_value_t = DirectionName::Forward)]
    direction: DirectionName,
    /// Modulo X^n + 1 or X^n - 1.
    #[arg(long, value_enum, default_value_t = RingName::Negacyclic)]
    ring: RingName,
    /// The order of the words that enter [default: any].
    #[arg(long, value_enum)]
    input_order: Option<OrderName>,
    /// The order of the words that leave [default: any].
    #[arg(long, value_enum)]
    output_order: Option<OrderName>,
    /// Show settings that are dominated or do not fit, too.
    #[arg(long)]
    all: bool,
    /// Write a page with plots to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Replace an existing page.
    #[arg(long, requires = "html")]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum GoalName {
    Latency,
    Throughput,
    Area,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum DirectionName {
    Forward,
    Inverse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum RingName {
    Negacyclic,
    Cyclic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum OrderName {
    Natural,
    BitReversed,
    Halves,
}

impl From<OrderName> for Order {
    fn from(name: OrderName) -> Order {
        match name {
            OrderName::Natural => Order::Natural,
            OrderName::BitReversed => Order::BitReversed,
            OrderName::Halves => Order::Halves,
        }
    }
}

impl ExploreArgs {
    fn request(&self) -> Result<Request, ExploreError> {
        let ring = match self.ring {
            RingName::Negacyclic => Ring::Negacyclic,
            RingName::Cyclic => Ring::Cyclic,
        };
        let mut transform = Transform::new(self.n, self.q, ring)?;
        transform.direction = match self.direction {
            DirectionName::Forward => Direction::Forward,
            DirectionName::Inverse => Direction::Inverse,
        };
        transform.input = self.input_order.map(Order::from);
        transform.output = self.output_order.map(Order::from);
        let goal = match self.goal {
            GoalName::Latency => Goal::Latency,
            GoalName::Throughput => Goal::Throughput,
            GoalName::Area => Goal::Area,
        };
        Request::new(
            transform,
            &self.device,
            self.clock,
            self.bandwidth,
            goal,
            self.family.as_deref(),
        )
    }
}

/// Runs `toroid core explore`.
pub fn run(args: &ExploreArgs, output: &Output) -> anyhow::Result<()> {
    let request = args.request().map_err(|error| usage(error.to_string()))?;
    if let Some(path) = &args.html {
        anyhow::ensure!(
            args.force || !path.exists(),
            "{} exists; --force replaces it",
            path.display()
        );
    }
    let found = explore(request);
    if let Some(path) = &args.html {
        std::fs::write(path, found.to_html())
            .map_err(|error| anyhow::anyhow!("cannot write {}: {error}", path.display()))?;
    }
    output.result(&found.to_json(), || {
        let mut text = text(&found, args.all);
        if let Some(path) = &args.html {
            text += &format!("\n{}: the page", path.display());
        }
        text
    })
}

/// So many of the settings that do not fit are shown where none does.
const NEAREST: usize = 5;

/// So many of the front are shown.
const ROWS: usize = 15;

fn text(found: &Exploration, all: bool) -> String {
    let Request {
        transform,
        device,
        clock_mhz,
        is_clock_assumed,
        bandwidth,
        ..
    } = &found.request;
    let mut text = format!(
        "N = {}, q = {}, {}{} on {}, {clock_mhz} MHz{}, {}",
        transform.n(),
        transform.q(),
        match transform.ring {
            Ring::Negacyclic => "negacyclic",
            Ring::Cyclic => "cyclic",
        },
        match transform.direction {
            Direction::Forward => " NTT",
            Direction::Inverse => " INTT",
        },
        device.title,
        if *is_clock_assumed { " (assumed)" } else { "" },
        match bandwidth {
            Some(bandwidth) => format!("{bandwidth} GB/s"),
            None => "any bandwidth".to_owned(),
        }
    );
    for (core, reason) in &found.refused {
        text += &format!("\n{core} {reason}");
    }
    if found.points.is_empty() {
        return text + "\nno core has a setting for it";
    }
    let count = |is: &dyn Fn(&Point) -> bool| found.points.iter().filter(|point| is(point)).count();
    let feasible = count(&Point::is_feasible);
    let front = count(&|point| point.is_on_front);
    text += &format!(
        "\n{} settings: {feasible} fit, {front} of them on the Pareto front of latency, throughput, DSP and LUT{}\n",
        found.points.len(),
        if all || found.points.len() == front.min(ROWS) {
            String::new()
        } else if front > ROWS {
            format!("; {ROWS} are shown (--all shows the others)")
        } else {
            " (--all shows the others)".to_owned()
        },
    );
    let shown = match (all, feasible) {
        (true, _) => found.points.len(),
        (false, 0) => NEAREST.min(found.points.len()),
        _ => front.min(ROWS),
    };
    text += &table(found, &found.points[..shown]);
    for model in &found.models {
        text += &format!("\n{}", errors(model));
    }
    if let Some(best) = found.points.first().filter(|point| point.is_feasible()) {
        text += &format!("\n{}", best.command());
    }
    text
}

/// Names of parameters in which settings of a core differ.
fn varied(points: &[Point], core: &str) -> Vec<&'static str> {
    let own: Vec<&Point> = points.iter().filter(|point| point.core == core).collect();
    let Some(first) = own.first() else {
        return Vec::new();
    };
    first
        .values
        .iter()
        .filter(|(name, value)| {
            own.iter()
                .any(|point| point.values.get(name) != Some(*value))
        })
        .map(|(name, _)| name)
        .collect()
}

/// A count with a letter for thousands or millions.
fn short(value: f64) -> String {
    match value {
        _ if value >= 1e6 => format!("{:.2} M", value / 1e6),
        _ if value >= 1e3 => format!("{:.1} k", value / 1e3),
        _ => format!("{value:.0}"),
    }
}

fn table(found: &Exploration, shown: &[Point]) -> String {
    let device = found.request.device;
    let head = [
        "rank",
        "core",
        "parameters",
        "cycles",
        "us",
        "per s",
        "LUT",
        "%",
        "FF",
        "%",
        "BRAM36",
        "%",
        "DSP",
        "%",
        "GB/s",
        "bound",
    ];
    // The others are numbers.
    const LEFT: [usize; 3] = [1, 2, 15];
    let mut rows = vec![head.map(str::to_owned)];
    for (i, point) in shown.iter().enumerate() {
        let parameters: Vec<String> = varied(&found.points, point.core)
            .into_iter()
            .map(|name| format!("{name}={}", point.values[name]))
            .collect();
        let bounds: Vec<String> = point
            .bounds
            .iter()
            .map(|(what, share)| format!("{what} {:.0} %", 100.0 * share))
            .collect();
        let share = |taken: f64, there: f64| format!("{:.1}", 100.0 * taken / there);
        let (amounts, there) = (&point.amounts, &device.amounts);
        rows.push([
            (i + 1).to_string(),
            point.core.to_owned(),
            parameters.join(" "),
            point.figures.latency.to_string(),
            format!("{:.2}", point.latency_us),
            short(point.throughput),
            format!("{:.0}", amounts.lut),
            share(amounts.lut, there.lut),
            format!("{:.0}", amounts.ff),
            share(amounts.ff, there.ff),
            format!("{}", amounts.bram36),
            share(amounts.bram36, there.bram36),
            format!("{:.0}", amounts.dsp),
            share(amounts.dsp, there.dsp),
            format!("{:.1}", point.bandwidth),
            bounds.join(", "),
        ]);
    }
    let widths: Vec<usize> = (0..head.len())
        .map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0))
        .collect();
    let lines = rows.iter().map(|row| {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            if LEFT.contains(&column) {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// How far a model is off.
fn errors(model: &Model) -> String {
    let percent = |errors: &Errors| {
        format!(
            "{:.1} % (at most {:.1} %)",
            100.0 * errors.median,
            100.0 * errors.maximum
        )
    };
    format!(
        "{} on {}: LUT off by {}, FF {}, BRAM36 {}, on {} held-out synthesis runs; DSP {} on {}; cycles exact; \
         fitted up to {} butterflies, checked up to {}",
        model.core,
        model.technology.name(),
        percent(&model.lut.held_out),
        percent(&model.ff.held_out),
        percent(&model.bram36.held_out),
        model.lut.held_out.runs,
        match model.dsp.maximum {
            0.0 => "exact".to_owned(),
            _ => format!("off by {}", percent(&model.dsp)),
        },
        model.dsp.runs,
        model.largest_fitted,
        model.largest,
    )
}
