//! Inputs take the intervals of the columns that they read, and all values those that follow.

use std::collections::BTreeMap;

use toroid_task::CancelToken;

use super::Rewrite;
use crate::compiled::Layout;
use crate::error::Error;
use crate::graph::{Graph, Op};
use crate::interval::Interval;

/// The graph on columns of these layouts, by the names of its inputs.
///
/// # Errors
/// A layout that is none, or that holds no number of its input.
pub(crate) fn narrow(
    graph: &Graph,
    layouts: &BTreeMap<String, Layout>,
    cancel: &CancelToken,
) -> Result<Graph, Error> {
    Rewrite::run(graph, cancel, |rewrite, node| {
        let mut op = rewrite.op(node)?;
        if let Op::Input { name, interval } = &mut op
            && let Some(layout) = layouts.get(&**name)
        {
            let held = layout.interval().ok_or_else(|| {
                graph.error(
                    node,
                    format!(
                        "the digits of column `{name}` do not follow each other from bit 0, with 64 bits at most and a sign in the highest alone"
                    ),
                )
            })?;
            let (low, high) = (interval.low.max(held.low), interval.high.min(held.high));
            if low > high {
                let message =
                    format!("column `{name}` holds {held}, and the program takes {interval}");
                return Err(graph
                    .error(node, message)
                    .with_help("encrypt the column for the values that the program takes"));
            }
            *interval = Interval { low, high };
        }
        rewrite.new.add(op).map(Some)
    })
}
