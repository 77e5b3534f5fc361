#![doc = include_str!("../README.md")]

pub mod device;
pub mod model;
pub mod page;
pub mod pareto;
pub mod published;

use device::{Amounts, DEVICES, Device};
use model::Model;
use toroid_cores::cost::Figures;
use toroid_cores::transform::{Transform, TransformError};
use toroid_cores::{Configured, Values, families};

/// What can be wrong with what is asked for.
#[derive(Debug, thiserror::Error)]
pub enum ExploreError {
    /// There is no such transform.
    #[error(transparent)]
    Transform(#[from] TransformError),
    /// There is no such device.
    #[error("there is no device {name}; there are {names}")]
    Device {
        /// The name asked for.
        name: String,
        /// The names that there are.
        names: String,
    },
    /// There is no such family.
    #[error("there is no family {name}; there are {names}")]
    Family {
        /// The name asked for.
        name: String,
        /// The names that there are.
        names: String,
    },
    /// A clock or bandwidth that is not a positive number.
    #[error("{what} must be a positive number of {unit}, not {found}")]
    NotPositive {
        /// What it is of.
        what: &'static str,
        /// Its unit.
        unit: &'static str,
        /// What was given.
        found: f64,
    },
}

/// What the best setting has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// The least time from the first word in to the last out.
    Latency,
    /// The most transforms a second.
    Throughput,
    /// The least share of the device, of the resource of which it takes the largest.
    Area,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The transform.
    pub transform: Transform,
    /// The device.
    pub device: &'static Device,
    /// The clock in MHz.
    pub clock_mhz: f64,
    /// Whether the clock is the device's default.
    pub is_clock_assumed: bool,
    /// What input and output together may take at most, in GB/s (10^9 bytes).
    pub bandwidth: Option<f64>,
    /// What decides the rank.
    pub goal: Goal,
    /// Only this family.
    pub family: Option<&'static str>,
}

impl Request {
    /// Of names as users give them.
    ///
    /// # Errors
    /// If there is no such device or family, or a number is not positive.
    pub fn new(
        transform: Transform,
        device: &str,
        clock_mhz: Option<f64>,
        bandwidth: Option<f64>,
        goal: Goal,
        family: Option<&str>,
    ) -> Result<Request, ExploreError> {
        let found = device::find(device).ok_or_else(|| ExploreError::Device {
            name: device.to_owned(),
            names: list(DEVICES.iter().map(|device| device.name)),
        })?;
        let family = family
            .map(|name| {
                let mut names = families().map(|(core, _)| core.name);
                names
                    .find(|known| *known == name)
                    .ok_or_else(|| ExploreError::Family {
                        name: name.to_owned(),
                        names: list(families().map(|(core, _)| core.name)),
                    })
            })
            .transpose()?;
        let positive = |what, unit, value: Option<f64>| match value {
            Some(found) if !(found.is_finite() && found > 0.0) => {
                Err(ExploreError::NotPositive { what, unit, found })
            }
            _ => Ok(value),
        };
        let clock = positive("the clock", "MHz", clock_mhz)?;
        Ok(Request {
            transform,
            device: found,
            clock_mhz: clock.unwrap_or(found.clock_mhz),
            is_clock_assumed: clock.is_none(),
            bandwidth: positive("the bandwidth", "GB/s", bandwidth)?,
            goal,
            family,
        })
    }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// A setting with what it costs and reaches for the request.
#[derive(Clone, Debug)]
pub struct Point {
    /// The core's name.
    pub core: &'static str,
    /// Its parameters.
    pub values: Values,
    /// What is known without synthesis.
    pub figures: Figures,
    /// What it takes of the device: DSP slices exactly, the rest by the model.
    pub amounts: Amounts,
    /// From the first word in to the last out, in microseconds.
    pub latency_us: f64,
    /// Transforms a second, back to back.
    pub throughput: f64,
    /// What input and output take together while beats follow each other in every cycle, in GB/s.
    pub bandwidth: f64,
    /// What does not suffice for it, each with the share that it would take; nothing where it is feasible.
    pub bounds: Vec<(&'static str, f64)>,
    /// Whether it is feasible, and no other feasible setting is as good in latency, throughput, DSP slices and look-up tables
    /// and better in one of them. Of settings that differ in how many of the same circuit stand side by side, only the one
    /// that the goal prefers is.
    pub is_on_front: bool,
    /// Whether it is not on the front only because the same circuit is there in another number.
    pub is_copy: bool,
}

impl Point {
    fn of(request: &Request, model: &Model, values: Values, figures: Figures) -> Point {
        let cycles_a_second = request.clock_mhz * 1e6;
        let amounts = model.amounts(&figures);
        let bytes = figures.word_bits.div_ceil(8) * (figures.words_in + figures.words_out);
        let bandwidth = bytes as f64 * cycles_a_second / 1e9;
        let mut bounds = request.device.amounts.exceeded_by(&amounts);
        if let Some(most) = request.bandwidth.filter(|most| bandwidth > *most) {
            bounds.push(("bandwidth", bandwidth / most));
        }
        Point {
            core: model.core,
            latency_us: figures.latency as f64 / request.clock_mhz,
            throughput: figures.transforms as f64 * cycles_a_second / figures.interval as f64,
            values,
            figures,
            amounts,
            bandwidth,
            bounds,
            is_on_front: false,
            is_copy: false,
        }
    }

    /// What settings share of which each has the same circuit in another number: its figures by circuit.
    fn circuit(&self) -> impl PartialEq + use<> {
        let figures = &self.figures;
        let each = |count: u64| count as f64 / figures.transforms as f64;
        (
            self.core,
            figures.orders,
            [figures.latency, figures.interval, figures.word_bits],
            [figures.butterflies, figures.words_in, figures.dsp].map(each),
        )
    }

    /// Whether the device and the bandwidth suffice.
    pub fn is_feasible(&self) -> bool {
        self.bounds.is_empty()
    }

    /// The largest share of a resource of the device that it takes.
    pub fn share(&self, device: &Device) -> f64 {
        let pairs = self.amounts.named().into_iter().zip(device.amounts.named());
        pairs
            .map(|((_, taken), (_, there))| taken / there)
            .fold(0.0, f64::max)
    }

    /// How far it is beyond what bounds it: the largest of the shares.
    fn excess(&self) -> f64 {
        self.bounds
            .iter()
            .map(|(_, share)| *share)
            .fold(0.0, f64::max)
    }

    /// The command that writes this core.
    pub fn command(&self) -> String {
        let parameters: String = self
            .values
            .iter()
            .map(|(name, value)| format!(" --param {name}={value}"))
            .collect();
        format!(
            "toroid core make {}{parameters} --out {}",
            self.core, self.core
        )
    }
}

/// Every setting there is, ranked.
#[derive(Clone, Debug)]
pub struct Exploration {
    /// What was asked for.
    pub request: Request,
    /// The front by the goal, then other feasible settings by the goal, then those that do not fit, nearest first.
    pub points: Vec<Point>,
    /// The families that have no setting for it, and why.
    pub refused: Vec<(&'static str, String)>,
    /// The models of the families that have.
    pub models: Vec<&'static Model>,
}

/// Finds every setting of every core that computes the request's transform, the Pareto front among them, and ranks them.
///
/// Cycles come from the formulas that simulation checks, DSP slices from a formula that every synthesis run checks, look-up
/// tables, flip-flops and block memories from a [`Model`] fitted to synthesis runs. The clock is the request's: to place
/// and route every setting would take hours.
pub fn explore(request: Request) -> Exploration {
    let mut points = Vec::new();
    let mut refused = Vec::new();
    let mut models = Vec::new();
    let technology = request.device.technology;
    for (core, family) in families() {
        let name = core.name;
        if request.family.is_some_and(|wanted| wanted != name) {
            continue;
        }
        let settings = match (family.settings)(&request.transform, technology) {
            Ok(settings) => settings,
            Err(reason) => {
                refused.push((name, reason));
                continue;
            }
        };
        let Some(model) = Model::find(name, technology) else {
            refused.push((
                name,
                format!("was never synthesized for {}", technology.name()),
            ));
            continue;
        };
        models.push(model);
        for values in settings {
            let configured = core.configure(&values).ok();
            let cost = |configured: Box<dyn Configured>| {
                configured.cost(technology, Some(&request.transform))
            };
            if let Some(figures) = configured.and_then(cost) {
                points.push(Point::of(&request, model, values, figures));
            }
        }
    }
    rank(&request, &mut points);
    Exploration {
        request,
        points,
        refused,
        models,
    }
}

/// Finds the front and puts the points in order.
fn rank(request: &Request, points: &mut [Point]) {
    let feasible: Vec<usize> = (0..points.len())
        .filter(|&i| points[i].is_feasible())
        .collect();
    let coordinates: Vec<[f64; 4]> = feasible
        .iter()
        .map(|&i| {
            let point = &points[i];
            [
                point.latency_us,
                -point.throughput,
                point.amounts.dsp,
                point.amounts.lut,
            ]
        })
        .collect();
    for (i, is_on_front) in feasible.into_iter().zip(pareto::front(&coordinates)) {
        points[i].is_on_front = is_on_front;
    }
    // More circuits only give more throughput for more of everything else.
    let is_preferred = |a: &Point, b: &Point| match request.goal {
        Goal::Throughput => a.figures.transforms > b.figures.transforms,
        Goal::Latency | Goal::Area => a.figures.transforms < b.figures.transforms,
    };
    let copies: Vec<usize> = (0..points.len())
        .filter(|&i| points[i].is_on_front)
        .filter(|&i| {
            let (this, circuit) = (&points[i], points[i].circuit());
            points.iter().any(|other| {
                other.is_on_front && is_preferred(other, this) && other.circuit() == circuit
            })
        })
        .collect();
    for i in copies {
        (points[i].is_on_front, points[i].is_copy) = (false, true);
    }
    let key = |point: &Point| {
        let wanted = match request.goal {
            Goal::Latency => point.latency_us,
            Goal::Throughput => -point.throughput,
            Goal::Area => point.share(request.device),
        };
        let group = match (point.is_feasible(), point.is_on_front) {
            (_, true) => 0.0,
            (true, false) => 1.0,
            (false, false) => 2.0,
        };
        [group, point.excess(), wanted, point.amounts.lut]
    };
    points.sort_by(|a, b| {
        let pairs = key(a).into_iter().zip(key(b));
        pairs.fold(std::cmp::Ordering::Equal, |order, (a, b)| {
            order.then(a.total_cmp(&b))
        })
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroid_cores::transform::Ring;
    use toroid_ring::goldilocks::P;

    fn request(device: &str, bandwidth: Option<f64>, goal: Goal) -> Request {
        let transform = Transform::new(4096, P, Ring::Negacyclic).unwrap();
        Request::new(transform, device, None, bandwidth, goal, None).unwrap()
    }

    #[test]
    fn the_front_is_ranked_by_the_goal() {
        for goal in [Goal::Latency, Goal::Throughput, Goal::Area] {
            let found = explore(request("xcu250", None, goal));
            let front: Vec<&Point> = found
                .points
                .iter()
                .filter(|point| point.is_on_front)
                .collect();
            assert!(front.len() > 2);
            assert!(
                found.points[..front.len()]
                    .iter()
                    .all(|point| point.is_on_front)
            );
            let best = front[0];
            for point in found.points.iter().filter(|point| point.is_feasible()) {
                assert!(match goal {
                    Goal::Latency => best.latency_us <= point.latency_us,
                    Goal::Throughput => best.throughput >= point.throughput,
                    Goal::Area =>
                        best.share(found.request.device) <= point.share(found.request.device),
                });
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_last_with_what_bounds_it() {
        let all = explore(request("xcu250", None, Goal::Latency));
        let small = explore(request("xc7a200t", None, Goal::Latency));
        assert_eq!(all.points.len(), small.points.len());
        let fits = |found: &Exploration| {
            found
                .points
                .iter()
                .filter(|point| point.is_feasible())
                .count()
        };
        assert!(fits(&small) < fits(&all));
        let mut excess = 0.0;
        for point in &small.points {
            assert!(!point.is_on_front || point.is_feasible());
            assert_eq!(
                point.is_feasible(),
                point.share(small.request.device) <= 1.0
            );
            assert!(point.excess() >= excess);
            excess = point.excess();
        }
        assert!(
            small
                .points
                .last()
                .unwrap()
                .bounds
                .iter()
                .any(|(name, share)| *name == "DSP" && *share > 1.0)
        );

        let narrow = explore(request("xcu250", Some(13.0), Goal::Latency));
        for point in &narrow.points {
            // Words of 8 bytes at 200 MHz.
            let words = point.figures.words_in + point.figures.words_out;
            let needed = 1.6 * words as f64;
            assert!((point.bandwidth - needed).abs() < 1e-9);
            let is_cut = point.bounds.iter().any(|(name, _)| *name == "bandwidth");
            assert_eq!(is_cut, needed > 13.0);
        }
        assert!(fits(&narrow) > 0);
    }

    #[test]
    fn a_modulus_that_no_core_has_leaves_reasons() {
        let transform = Transform::new(4096, 268_369_921, Ring::Negacyclic).unwrap();
        let request = Request::new(
            transform,
            "xcu250",
            None,
            None,
            Goal::Area,
            Some("ntt_inplace"),
        )
        .unwrap();
        let found = explore(request);
        assert!(found.points.is_empty());
        assert_eq!(found.refused[0].0, "ntt_inplace");
    }

    #[test]
    fn copies_of_a_circuit_stand_for_each_other() {
        for goal in [Goal::Latency, Goal::Throughput, Goal::Area] {
            let found = explore(request("xcu250", None, goal));
            let front = || found.points.iter().filter(|point| point.is_on_front);
            for point in front() {
                let same = front().filter(|other| other.circuit() == point.circuit());
                assert_eq!(same.count(), 1);
            }
            for point in found.points.iter().filter(|point| point.is_copy) {
                let other = front().find(|other| other.circuit() == point.circuit());
                let (this, other) = (point.figures.transforms, other.unwrap().figures.transforms);
                assert_eq!(this < other, goal == Goal::Throughput);
                assert_ne!(this, other);
            }
        }
    }

    #[test]
    fn commands_are_those_that_make_takes() {
        let transform = Transform::new(4096, P, Ring::Negacyclic).unwrap();
        let family = Some("ntt_inplace");
        let request =
            Request::new(transform, "xc7vx690t", None, None, Goal::Latency, family).unwrap();
        let found = explore(request);
        let command = found.points[0].command();
        assert!(
            command.starts_with("toroid core make ntt_inplace --param CIRCUITS="),
            "{command}"
        );
        assert!(
            command.contains("--param LOG_N=12") && command.ends_with("--out ntt_inplace"),
            "{command}"
        );
    }

    #[test]
    fn wrong_requests_are_refused() {
        let transform = Transform::new(4096, P, Ring::Negacyclic).unwrap();
        let refusal = |device, clock, bandwidth, family| {
            Request::new(
                transform.clone(),
                device,
                clock,
                bandwidth,
                Goal::Area,
                family,
            )
            .unwrap_err()
            .to_string()
        };
        assert!(refusal("xc7", None, None, None).contains("xc7vx690t, xc7vx980t"));
        assert!(refusal("xcu250", Some(0.0), None, None).contains("positive number of MHz"));
        assert!(refusal("xcu250", Some(f64::NAN), None, None).contains("NaN"));
        assert!(refusal("xcu250", None, Some(-1.0), None).contains("GB/s, not -1"));
        assert!(refusal("xcu250", None, None, Some("fft")).contains("ntt_inplace"));
    }
}
