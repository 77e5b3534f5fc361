//! The picture: a bar a row, the peer at 1, or the limit where there is no peer.

use std::fmt::Write as _;

use crate::report::{Outcome, figure};

const WIDTH: f64 = 960.0;
const ROW: f64 = 30.0;
const NAMES: f64 = 190.0;
const VALUES: f64 = 230.0;
const PLOT: f64 = WIDTH - NAMES - VALUES;

/// Rows whose peer is no equal: their bar is at more than the peer's time.
fn is_other_work(outcome: &Outcome) -> bool {
    outcome.bar.is_some_and(|bar| bar > 1.0)
}

/// What the picture has at 1; none for rows with nothing to compare with, which it leaves out.
fn unit(outcome: &Outcome) -> Option<f64> {
    outcome.peer_value.or(outcome.limit)
}

/// Draws all outcomes: first those against a peer that does the same work, then the others on a scale of their own, last
/// those that have a limit alone.
pub fn draw(outcomes: &[Outcome]) -> String {
    let (compared, limited): (Vec<_>, Vec<_>) =
        outcomes.iter().partition(|o| o.peer_value.is_some());
    let (others, same): (Vec<_>, Vec<_>) = compared.into_iter().partition(|o| is_other_work(o));
    let mut body = String::new();
    let mut y = 96.0;
    panel(
        &mut body,
        &mut y,
        "Ours, where the peer is 1",
        &same,
        1.25,
        0.25,
    );
    panel(
        &mut body,
        &mut y,
        "Against a smaller piece of work, whose time is 1",
        &others,
        5.0,
        1.0,
    );
    let limited: Vec<_> = limited.into_iter().filter(|o| o.limit.is_some()).collect();
    panel(
        &mut body,
        &mut y,
        "Ours, where the limit is 1",
        &limited,
        1.25,
        0.25,
    );
    let height = y - 28.0;
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="system-ui, sans-serif" font-size="13" role="img">
<title>Ours, peer, limit and bound of the rows of the CPU benchmarks</title>
<style>
.ground {{ fill: #ffffff }} .text {{ fill: #1f2328 }} .faint {{ fill: #59636e }}
.grid {{ stroke: #d1d9e0 }} .peer {{ stroke: #1f2328; stroke-width: 2 }}
.holds {{ fill: #1a7f37 }} .fails {{ fill: #cf222e }} .free {{ fill: #0969da }}
.bar {{ stroke: #9a6700; stroke-width: 3 }} .bound {{ fill: #1f2328; stroke: #ffffff }}
@media (prefers-color-scheme: dark) {{
.ground {{ fill: #0d1117 }} .text {{ fill: #e6edf3 }} .faint {{ fill: #9198a1 }}
.grid {{ stroke: #3d444d }} .peer {{ stroke: #e6edf3 }}
.holds {{ fill: #2ea043 }} .fails {{ fill: #da3633 }} .free {{ fill: #388bfd }}
.bar {{ stroke: #e3b341 }} .bound {{ fill: #e6edf3; stroke: #0d1117 }}
}}
</style>
<rect class="ground" width="{WIDTH}" height="{height}"/>
<text class="text" x="16" y="28" font-size="18" font-weight="600">CPU benchmarks: ours against the peer</text>
<g transform="translate(16 52)">
<rect class="holds" width="22" height="12" y="-10"/><text class="faint" x="28">ours, bar holds</text>
<rect class="fails" width="22" height="12" x="148" y="-10"/><text class="faint" x="176">ours, bar missed</text>
<rect class="free" width="22" height="12" x="304" y="-10"/><text class="faint" x="332">ours, no bar</text>
<line class="peer" x1="440" x2="440" y1="-13" y2="4"/><text class="faint" x="450">peer</text>
<line class="bar" x1="506" x2="506" y1="-13" y2="4"/><text class="faint" x="516">bar or limit</text>
<path class="bound" d="M622 -11 l6 7 l-6 7 l-6 -7 z"/><text class="faint" x="636">bound of the machine (by a model of Zen 4)</text>
</g>
{body}</svg>
"#
    )
}

/// One panel from `y` on, with a scale from 0 to `end`.
fn panel(body: &mut String, y: &mut f64, title: &str, rows: &[&Outcome], end: f64, step: f64) {
    if rows.is_empty() {
        return;
    }
    let x = |ratio: f64| NAMES + PLOT * ratio.clamp(0.0, end) / end;
    let _ = writeln!(
        body,
        r#"<text class="text" x="16" y="{}" font-weight="600">{title}</text>"#,
        *y - 8.0
    );
    let (top, bottom) = (*y + 4.0, *y + 4.0 + ROW * rows.len() as f64);
    let ticks = (end / step).round() as usize;
    for tick in 0..=ticks {
        let value = tick as f64 * step;
        let at = x(value);
        let _ = writeln!(
            body,
            r#"<line class="grid" x1="{at:.1}" x2="{at:.1}" y1="{top}" y2="{bottom}"/><text class="faint" x="{at:.1}" y="{}" text-anchor="middle" font-size="11">{value}</text>"#,
            bottom + 14.0
        );
    }
    let one = x(1.0);
    let _ = writeln!(
        body,
        r#"<line class="peer" x1="{one:.1}" x2="{one:.1}" y1="{top}" y2="{bottom}"/>"#
    );
    let rows = rows.iter().filter_map(|row| Some((row, unit(row)?)));
    for (index, (row, unit)) in rows.enumerate() {
        let ratio = row.ours / unit;
        let middle = top + ROW * (index as f64 + 0.5);
        let class = match row.holds {
            Some(true) => "holds",
            Some(false) => "fails",
            None => "free",
        };
        let _ = writeln!(
            body,
            r#"<text class="text" x="{}" y="{}" text-anchor="end">{}</text><rect class="{class}" x="{NAMES}" y="{}" width="{:.1}" height="16"/>"#,
            NAMES - 8.0,
            middle + 4.5,
            row.row,
            middle - 8.0,
            x(ratio) - NAMES,
        );
        let limit = row.limit.map(|limit| limit / unit);
        for bar in row.bar.into_iter().chain(limit) {
            let at = x(bar);
            let _ = writeln!(
                body,
                r#"<line class="bar" x1="{at:.1}" x2="{at:.1}" y1="{}" y2="{}"/>"#,
                middle - 12.0,
                middle + 12.0
            );
        }
        if let Some(bound) = row.bound {
            let _ = writeln!(
                body,
                r#"<path class="bound" d="M{:.1} {:.1} l6 7 l-6 7 l-6 -7 z"/>"#,
                x(bound / unit),
                middle - 7.0
            );
        }
        let _ = writeln!(
            body,
            r#"<text class="faint" x="{}" y="{}" font-size="12">{:.3}: {} of {} {}{}</text>"#,
            NAMES + PLOT + 12.0,
            middle + 4.5,
            ratio,
            figure(row.ours),
            figure(unit),
            row.unit,
            if row.holds == Some(false) {
                ", missed"
            } else {
                ""
            }
        );
    }
    *y = bottom + 58.0;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::measure::Measurement;
    use crate::rows;

    #[test]
    fn every_row_has_its_bar() {
        let machine = Machine {
            clock: 3.7e9,
            read: 32e9,
            read_by_two: 40e9,
        };
        let mut outcomes = Vec::new();
        for row in rows::ALL {
            let measurement = Measurement {
                ours: vec![0.6],
                peer: vec![1.0],
                ..Measurement::default()
            };
            outcomes.push(Outcome::new(row, &machine, measurement, &outcomes));
        }
        let drawn = draw(&outcomes);
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
    }
}
