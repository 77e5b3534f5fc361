//! A row with its figures, judged.

use serde::Serialize;
use toroid_bench_common::pages::figure;

use crate::machine::Machine;
use crate::measure::{Measurement, best, median};
use crate::row::{Limit, Row, Unit};

/// A row with its figures.
#[derive(Serialize)]
pub struct Outcome {
    pub row: &'static str,
    /// Best time of ours, in `unit`.
    pub ours: f64,
    pub unit: &'static str,
    /// None for rows without one, as in all that is compared with it.
    pub peer: Option<&'static str>,
    /// Best time of the peer, in `unit`.
    pub peer_value: Option<f64>,
    /// Best of ours over best of the peer.
    pub ratio: Option<f64>,
    /// The largest ratio that meets the target; none for rows without one.
    pub bar: Option<f64>,
    /// The largest best of ours that meets the target, in `unit`; none for rows without one.
    pub limit: Option<f64>,
    /// Whether bar and limit are met; none for rows without either.
    pub holds: Option<bool>,
    /// The least that this machine allows, in `unit`.
    pub bound: Option<f64>,
    /// The bound over best of ours.
    bound_over_ours: Option<f64>,
    bound_by: Option<String>,
    ours_median: f64,
    peer_median: Option<f64>,
    ratio_of_medians: Option<f64>,
    runs: usize,
    /// None for rows of several threads.
    waited: Option<f64>,
    our_peak_bytes: Option<u64>,
    note: String,
    title: &'static str,
}

impl Outcome {
    /// The figures of a measurement, after `earlier` rows.
    pub fn new(
        row: &Row,
        machine: &Machine,
        measurement: Measurement,
        earlier: &[Outcome],
    ) -> Outcome {
        let (unit, scale) = match row.unit {
            Unit::Seconds => ("s", 1.0),
            Unit::Milliseconds => ("ms", 1e3),
            Unit::Microseconds => ("us", 1e6),
            Unit::Gigabytes => ("GB", 1e-9),
            Unit::Megabytes => ("MB", 1e-6),
        };
        let ours = &measurement.ours;
        let peer = row.peer.map(|_| &measurement.peer);
        let ratio = peer.map(|peer| best(ours) / best(peer));
        let limit = match row.limit {
            Some(Limit::Value(value)) => Some(value),
            Some(Limit::Row(name)) => earlier
                .iter()
                .find(|outcome| outcome.row == name)
                .map(|outcome| outcome.ours),
            None => None,
        };
        let judged = [
            ratio.zip(row.bar),
            limit.map(|limit| (best(ours) * scale, limit)),
        ];
        let bound = row.bound.map(|bound| bound(machine, &measurement));
        Outcome {
            row: row.name,
            ours: best(ours) * scale,
            unit,
            peer: row.peer,
            peer_value: peer.map(|peer| best(peer) * scale),
            ratio,
            bar: row.bar,
            limit,
            holds: judged
                .into_iter()
                .flatten()
                .map(|(value, largest)| value <= largest)
                .reduce(|all, holds| all && holds),
            bound: bound.as_ref().map(|bound| bound.seconds * scale),
            bound_over_ours: bound.as_ref().map(|bound| bound.seconds / best(ours)),
            bound_by: bound.map(|bound| bound.by),
            ours_median: median(ours) * scale,
            peer_median: peer.map(|peer| median(peer) * scale),
            ratio_of_medians: peer.map(|peer| median(ours) / median(peer)),
            runs: ours.len(),
            waited: measurement.waited(),
            our_peak_bytes: measurement.our_peak,
            note: measurement.note,
            title: row.title,
        }
    }

    /// The row in a few words, for those who wait.
    pub fn line(&self) -> String {
        let peer = self.peer_value.zip(self.ratio);
        let peer = peer.map_or_else(String::new, |(peer, ratio)| {
            format!(", peer {} {}, ratio {ratio:.3}", figure(peer), self.unit)
        });
        format!("{}: {} {}{peer}", self.row, figure(self.ours), self.unit)
    }
}

#[cfg(test)]
mod tests {
    use toroid_bench_common::{Error, pages};

    use super::*;
    use crate::environment::Environment;
    use crate::rows;

    const MACHINE: Machine = Machine {
        clock: 1e9,
        read: 1e9,
        read_by_two: 1e9,
    };

    fn measured(ours: f64) -> Measurement {
        Measurement {
            ours: vec![9.0, ours],
            peer: vec![1.0, 5.0],
            ..Measurement::default()
        }
    }

    #[test]
    fn bars_are_judged_on_the_ratio_of_bests() -> Result<(), Error> {
        let row = rows::ALL
            .iter()
            .find(|row| row.bar.is_some())
            .ok_or("no row with a bar")?;
        let bar = row.bar.ok_or("no bar")?;
        let outcome = |ours: f64| Outcome::new(row, &MACHINE, measured(ours), &[]);
        assert_eq!(outcome(bar * 0.99).holds, Some(true));
        assert_eq!(outcome(bar * 1.01).holds, Some(false));
        let values: serde_json::Value = serde_json::to_value([outcome(bar)])?;
        for key in [
            "row",
            "ours",
            "unit",
            "peer",
            "peer_value",
            "ratio",
            "bar",
            "limit",
            "holds",
        ] {
            assert!(values[0].get(key).is_some(), "{key}");
        }
        Ok(())
    }

    #[test]
    fn limits_are_judged_on_the_best_of_ours() {
        let row = |name, bar, limit| Row {
            name,
            bar,
            limit,
            unit: Unit::Seconds,
            bound: None,
            ..rows::ALL[0]
        };
        let earlier = Outcome::new(&row("earlier", None, None), &MACHINE, measured(0.5), &[]);
        assert_eq!(earlier.holds, None);
        let earlier = [earlier];
        let holds = |bar, limit, ours| {
            let row = row("judged", bar, Some(limit));
            Outcome::new(&row, &MACHINE, measured(ours), &earlier).holds
        };
        for limit in [Limit::Value(0.5), Limit::Row("earlier")] {
            assert_eq!(holds(None, limit, 0.49), Some(true));
            assert_eq!(holds(None, limit, 0.51), Some(false));
            assert_eq!(holds(Some(0.4), limit, 0.49), Some(false));
        }
        assert_eq!(holds(None, Limit::Row("not measured"), 0.49), None);
    }

    #[test]
    fn a_row_without_a_peer_is_compared_with_nothing() -> Result<(), Error> {
        let row = Row {
            peer: None,
            ..rows::ALL[0]
        };
        let alone = Measurement {
            peer: Vec::new(),
            ..measured(1.0)
        };
        let outcome = Outcome::new(&row, &MACHINE, alone, &[]);
        assert_eq!((outcome.ratio, outcome.holds), (None, None));
        let page = made(&[outcome], ".md")?;
        let cells: Vec<_> = page
            .lines()
            .filter(|line| line.starts_with('|'))
            .map(|line| line.matches('|').count())
            .collect();
        assert_eq!((cells.len(), cells[1]), (3, cells[0]));
        assert_eq!(cells[2], cells[0]);
        Ok(())
    }

    #[test]
    fn every_row_has_its_bar() -> Result<(), Error> {
        let mut outcomes = Vec::new();
        for row in rows::ALL {
            let measurement = Measurement {
                ours: vec![0.6],
                peer: vec![1.0],
                ..Measurement::default()
            };
            outcomes.push(Outcome::new(row, &MACHINE, measurement, &outcomes));
        }
        let drawn = made(&outcomes, ".svg")?;
        for row in rows::ALL {
            let compared = row.peer.is_some() || row.limit.is_some();
            let name = format!(">{}<", row.name);
            assert_eq!(drawn.contains(&name), compared, "{}", row.name);
        }
        let bars = rows::ALL.iter().filter(|row| row.bar.is_some()).count();
        let limits = rows::ALL.iter().filter(|row| row.limit.is_some()).count();
        // One more in the legend.
        assert_eq!(
            drawn.matches("<line class=\"bar\"").count(),
            bars + limits + 1
        );
        Ok(())
    }

    /// The page or the picture of outcomes.
    fn made(outcomes: &[Outcome], extension: &str) -> Result<String, Error> {
        let data = serde_json::to_value(Environment::look(MACHINE))?;
        let made = pages::render("cpu", &serde_json::to_value(outcomes)?, &data)?;
        let page = made.into_iter().find(|page| page.file.ends_with(extension));
        Ok(page.ok_or("no such page")?.text)
    }
}
