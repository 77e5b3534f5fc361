//! The rows of the page.

use serde::Serialize;

use crate::ours::Figures;
use crate::peer;
use crate::samples::Sample;

/// The part of the page that a row stands in.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Tables, each against its bar.
    Tables,
    /// Tables beside those of OpenFHE.
    Peer,
    /// Columns beside single samples.
    Samples,
}

/// A row of the page.
pub type Row = toroid_bench_common::row::Row<Part>;

/// The largest milliseconds a value, on one thread, that meet the target.
const BARS: [(u32, f64); 3] = [(1, 0.06), (8, 0.20), (16, 1.5)];
/// The same for the column after the first.
const NEXT_BARS: [(u32, f64); 2] = [(8, 0.12), (16, 0.9)];
/// The largest share that a further table may take of the first.
const FURTHER: f64 = 0.25;

fn threads(count: usize) -> &'static str {
    match count {
        1 => "one thread",
        2 => "two threads",
        _ => "more threads",
    }
}

/// The rows of one measurement.
pub fn tables(ours: &Figures, peer: Option<&peer::Figures>) -> Vec<Row> {
    let name = format!("{} bits, {}", ours.bits, threads(ours.threads));
    let each = |seconds: f64, values: usize| seconds * 1e3 / values as f64;
    let (first, further) = (
        each(ours.first_s, ours.values),
        each(ours.further_s, ours.values),
    );
    let mut row = Row::new(Part::Tables, &name, first, "ms");
    let mut next = Row::new(
        Part::Tables,
        format!("{name}, the next column"),
        each(ours.next_s, ours.values),
        "ms",
    )
    .beside("the first", first);
    if ours.threads == 1 {
        let bar_of = |bars: &[(u32, f64)]| {
            let bar = bars.iter().find(|(bits, _)| *bits == ours.bits);
            bar.map(|(_, bar)| *bar)
        };
        if let Some(bar) = bar_of(&BARS) {
            row = row.at_most(bar);
        }
        if let Some(bar) = bar_of(&NEXT_BARS) {
            next = next.at_most(bar);
        }
    }
    let mut share = Row::new(
        Part::Tables,
        format!("{name}, a further table"),
        further,
        "ms",
    );
    share = share.beside("the first", first);
    if ours.bits == 16 {
        share = share.ratio_at_most(FURTHER);
    }
    let mut rows = vec![row, share, next];
    if let Some(peer) = peer {
        let theirs = |lap: peer::Lap| each(lap.wall_s, peer.values);
        rows.push(
            Row::new(Part::Peer, &name, first, "ms")
                .beside("`EvalFBT`", theirs(peer.table))
                .ratio_at_most(1.0),
        );
        rows.push(
            Row::new(
                Part::Peer,
                format!("{name}, a further table"),
                further,
                "ms",
            )
            .beside("`EvalMVB`", theirs(peer.further))
            .ratio_at_most(1.0),
        );
    }
    rows
}

/// From how many values on a column is cheaper than single samples, on one thread.
pub fn break_even(samples: &[Sample], engines: &[Figures]) -> Vec<Row> {
    let mut rows = Vec::new();
    for sample in samples {
        let engine = engines
            .iter()
            .find(|engine| engine.bits == sample.bits && engine.threads == 1);
        let Some(engine) = engine else { continue };
        let value = engine.first_s * 1e3 / engine.values as f64;
        let ways = [
            ("a sample of ours", sample.milliseconds),
            (sample.peer.as_str(), sample.peer_milliseconds),
        ];
        for (way, milliseconds) in ways {
            let values = (engine.first_s * 1e3 / milliseconds).ceil();
            rows.push(
                Row::new(Part::Samples, format!("{} bits", sample.bits), value, "ms")
                    .beside(way, milliseconds)
                    .note(format!("{values}")),
            );
        }
    }
    rows
}
