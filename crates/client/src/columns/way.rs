//! Which way a program goes over columns: sample by sample, or by ciphertexts of a ring.

use toroid_engine::backend::recorded::RecordedTimes;
use toroid_rns::ring_set::RingSet;
use toroid_rns::search::LOG2_FAILURE;
use toroid_tfhe::encoding::Encoding;

use super::map::{MapPlan, Route};

/// The way that a program is to go over columns of samples. Ring columns have one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Sample by sample.
    Samples,
    /// By ciphertexts of the ring of the drive's keys: samples become ring columns on the drive.
    Ring,
    /// By ciphertexts where that gives the same numbers, fails no more often than ring columns promise, and takes less time by the documented
    /// times; else sample by sample.
    #[default]
    Auto,
}

/// The form of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowForm {
    /// Samples.
    Samples,
    /// Ciphertexts of a ring.
    Ring,
}

/// Why a run goes its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its columns are ring columns.
    RingColumns,
    /// The request says so.
    Asked,
    /// A run of the same request has begun that way.
    Begun,
    /// It takes less time by the documented times.
    Times,
    /// There is no other way, because of this.
    NoOther(String),
}

/// What the documented times make of a plan, either way, as if nothing were done yet.
#[derive(Clone, Debug)]
pub struct WayTimes {
    /// Seconds sample by sample; `None` for a parameter set without such times.
    pub samples: Option<f64>,
    /// The ring of the plan or, where there is none, the smallest one that has the program's messages.
    pub ring: Option<&'static RingSet>,
    /// Seconds by ciphertexts of that ring; `None` without such times.
    pub batch: Option<f64>,
    /// The fewest rows that take no longer by one ciphertext.
    pub break_even: Option<u64>,
}

impl WayTimes {
    /// The times of a plan on so many cores.
    #[must_use]
    pub fn new(plan: &MapPlan, cores: usize) -> WayTimes {
        let times = RecordedTimes::documented(cores);
        let tasks: Vec<(u32, usize)> = plan
            .facts
            .tasks
            .iter()
            .map(|task| (task.input_bits, task.functions))
            .collect();
        let all = plan.facts.tasks.iter().flat_map(|task| {
            let rows = task.rows as usize;
            std::iter::repeat_n((task.input_bits, task.functions), rows)
        });
        let samples = times.estimate(plan.params, all).ok();
        let ring = plan.ring.or_else(|| {
            let output = plan.facts.outputs.first();
            let output = output.and_then(|output| output.encoding);
            let output = output.map_or(0, Encoding::bits);
            let bits = tasks.iter().map(|(bits, _)| *bits).fold(output, u32::max);
            RingSet::for_bits(bits, plan.params.is_insecure())
        });
        let ciphertexts = match (plan.route, ring) {
            (Route::Samples, Some(set)) => plan.rows.div_ceil(set.rows() as u64),
            _ => plan.commands,
        };
        let ciphertext = ring.and_then(|set| {
            let functions = plan.facts.on_ciphertext.iter();
            times.ciphertext(set, functions.copied()).ok()
        });
        let break_even = ring.filter(|_| !tasks.is_empty()).and_then(|set| {
            let functions = &plan.facts.on_ciphertext;
            let rows = times.break_even(plan.params, set, (&tasks, functions));
            rows.ok().flatten()
        });
        WayTimes {
            samples: samples.map(|time| time.as_secs_f64()),
            ring,
            batch: ciphertext.map(|time| time.as_secs_f64() * ciphertexts as f64),
            break_even,
        }
    }
}

/// Seconds of what is left of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimesLeft {
    /// Sample by sample.
    pub samples: Option<f64>,
    /// By ciphertexts.
    pub batch: Option<f64>,
    /// By the way of the plan.
    pub seconds: Option<f64>,
}

impl WayTimes {
    /// The times of the rows that are not done.
    #[must_use]
    pub fn left(&self, plan: &MapPlan) -> TimesLeft {
        let share = (plan.rows - plan.done) as f64 / plan.rows.max(1) as f64;
        let [samples, batch] = [self.samples, self.batch].map(|way| way.map(|all| all * share));
        let seconds = match plan.route {
            Route::Samples => samples,
            Route::Ring(_) => batch,
        };
        TimesLeft {
            samples,
            batch,
            seconds,
        }
    }

    /// The way that a plan goes, and why, in words.
    #[must_use]
    pub fn why(&self, plan: &MapPlan) -> String {
        let ring = self.ring.map_or("a ring", |set| set.name);
        let from = |what: &str| match self.break_even {
            Some(rows) => format!("; {what} {rows} rows"),
            None => String::new(),
        };
        let (how, also) = match plan.route {
            Route::Samples => (
                "sample by sample".to_owned(),
                from(&format!("ring columns of {ring} would take less time from")),
            ),
            Route::Ring(set) => (
                format!(
                    "by ciphertexts of {} with up to {} rows",
                    set.name,
                    set.rows()
                ),
                from("samples would take less time below"),
            ),
        };
        let because = match &plan.reason {
            Reason::NoOther(reason) => reason.clone(),
            Reason::Begun => "a run of the same request has begun so".to_owned(),
            Reason::Times => format!("{} rows take less time so", plan.rows),
            Reason::Asked => "this way was asked for".to_owned(),
            Reason::RingColumns => "the columns are ring columns".to_owned(),
        };
        format!("{how}, since {because}{also}")
    }
}

/// Why a plan by samples is better than that by ciphertexts of a ring; nothing where it is not.
pub(super) fn against_ring(samples: &MapPlan, ring: &MapPlan) -> Option<Reason> {
    let functions: usize = ring.facts.on_ciphertext.iter().sum();
    let no_other = |what: String| Some(Reason::NoOther(what));
    if functions == 0 {
        return no_other("the program applies no function".to_owned());
    }
    // What a table promises, for each of them.
    let most = LOG2_FAILURE + (functions as f64).log2();
    let log2_failure = ring.log2_failure();
    let is_low = log2_failure <= most;
    if !is_low {
        return no_other(format!(
            "these samples have too much noise for a table of a ring, where a row would be wrong with probability 2^{log2_failure:.1}"
        ));
    }
    let times = WayTimes::new(ring, 1);
    match (times.samples, times.batch) {
        (Some(by_samples), Some(by_ring)) if by_ring <= by_samples => None,
        (Some(_), Some(_)) => Some(Reason::Times),
        _ => {
            let set = times.ring.map_or("a ring", |set| set.name);
            let params = samples.params.name;
            no_other(format!("no times of {params} and {set} are documented"))
        }
    }
}
