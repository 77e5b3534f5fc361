//! What a server tells of itself: metrics in the OpenMetrics text format, and health.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use serde_json::{Value, json};
use toroid_engine::backend::Backend;
use toroid_nvme::fabrics::Target;

use super::counters::{BOUNDS_US, COMMANDS, Counters, KINDS, STATUSES};
use super::drives::Served;
use super::figures::{Bootstraps, Commands, Connections, DriveFigures, Figures, Host, Running};

/// Where every figure comes from.
pub struct Sources {
    /// When the server began.
    pub started: Instant,
    /// Of commands.
    pub counters: Arc<Counters>,
    /// Of connections.
    pub target: Arc<Target>,
    /// Of drives.
    pub drives: Arc<Vec<Served>>,
    /// Of bootstraps.
    pub backend: Arc<dyn Backend>,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

/// Makes the text of the metrics.
pub fn registry(sources: Arc<Sources>) -> Registry {
    let mut registry = Registry::with_prefix("toroid");
    registry.register_collector(Box::new(sources));
    registry
}

/// Whether all is well, and the reasons.
pub fn health(sources: &Sources) -> (bool, Value) {
    let figures = Figures::of(sources);
    let drives: Vec<Value> = figures
        .drives
        .iter()
        .map(|drive| {
            json!({
                "subsystem": drive.subsystem,
                "nsid": drive.nsid,
                "read_only": drive.read_only,
                "media_errors": drive.media_errors,
            })
        })
        .collect();
    let value = json!({
        "ok": figures.ok,
        "version": figures.version,
        "uptime_seconds": figures.uptime_seconds as u64,
        "stopping": figures.stopping,
        "connections": figures.connections.now,
        "controllers": figures.connections.controllers,
        "drives": drives,
    });
    (figures.ok, value)
}

type Labels<'a> = [(&'a str, String)];

/// One metric family while it is written.
struct Family<'a>(MetricEncoder<'a>);

impl Family<'_> {
    fn counter(&mut self, labels: &Labels<'_>, value: u64) -> fmt::Result {
        let mut metric = self.0.encode_family(&labels)?;
        metric.encode_counter::<NoLabelSet, u64, u64>(&value, None)
    }

    fn seconds(&mut self, labels: &Labels<'_>, value: f64) -> fmt::Result {
        let mut metric = self.0.encode_family(&labels)?;
        metric.encode_counter::<NoLabelSet, f64, u64>(&value, None)
    }

    fn gauge(&mut self, labels: &Labels<'_>, value: u64) -> fmt::Result {
        self.0.encode_family(&labels)?.encode_gauge(&signed(value))
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The text of one scrape.
struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    fn family(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        unit: Option<&Unit>,
        write: impl FnOnce(&mut Family<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let encoder = self.0.encode_descriptor(name, help, unit, kind)?;
        write(&mut Family(encoder))
    }

    fn counters(
        &mut self,
        name: &str,
        help: &str,
        write: impl FnOnce(&mut Family<'_>) -> fmt::Result,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Counter, None, write)
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.counters(name, help, |family| {
            family
                .0
                .encode_counter::<NoLabelSet, u64, u64>(&value, None)
        })
    }

    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        write: impl FnOnce(&mut Family<'_>) -> fmt::Result,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Gauge, None, write)
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.gauges(name, help, |family| family.0.encode_gauge(&signed(value)))
    }
}

impl Collector for Sources {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut page = Page(encoder);
        page.gauges("build_info", "Always 1; the version", |family| {
            let version = [("version", env!("CARGO_PKG_VERSION").to_owned())];
            family.gauge(&version, 1)
        })?;
        let figures = Figures::of(self);
        page.gauge(
            "uptime_seconds",
            "Seconds since the server began",
            figures.uptime_seconds as u64,
        )?;
        if let Some(bytes) = figures.memory.process_bytes {
            let help = "Main memory that the process takes";
            page.gauge("process_resident_bytes", help, bytes)?;
        }
        connections(&figures.connections, &mut page)?;
        self.commands(&figures.commands, &mut page)?;
        bootstraps(&figures.bootstraps, &mut page)?;
        drives(&figures.drives, &mut page)
    }
}

impl Sources {
    fn commands(&self, of: &Commands, page: &mut Page<'_>) -> fmt::Result {
        let counts = self.counters.snapshot();
        page.counters(
            "commands",
            "Completed I/O commands by command and class of status",
            |family| {
                for (command, row) in COMMANDS.iter().zip(&counts.completed) {
                    for (status, count) in STATUSES.iter().zip(row) {
                        // Failures appear when there are some.
                        if *count > 0 || *status == "success" {
                            let labels = [
                                ("command", (*command).to_owned()),
                                ("status", (*status).to_owned()),
                            ];
                            family.counter(&labels, *count)?;
                        }
                    }
                }
                Ok(())
            },
        )?;
        page.gauge(
            "commands_in_flight",
            "I/O commands that have not completed",
            of.in_flight,
        )?;
        page.counter(
            "commands_abandoned",
            "I/O commands whose connection ended before they completed",
            of.abandoned,
        )?;
        page.counter(
            "read_bytes",
            "Bytes of data and metadata that went to hosts",
            of.read_bytes,
        )?;
        page.counter(
            "written_bytes",
            "Bytes of data and metadata of successful writes",
            of.written_bytes,
        )?;
        page.family(
            "command_duration",
            "Time of I/O commands; compute: those that ran a program",
            MetricType::Histogram,
            Some(&Unit::Seconds),
            |family| {
                for (kind, (buckets, sum)) in KINDS.iter().zip(&counts.times) {
                    let bounds = BOUNDS_US.iter().map(|bound| *bound as f64 / 1e6);
                    let bounds = bounds.chain([f64::INFINITY]);
                    let buckets: Vec<(f64, u64)> = bounds.zip(buckets.iter().copied()).collect();
                    let count = buckets.iter().map(|(_, count)| count).sum();
                    let labels = [("kind", (*kind).to_owned())];
                    let labels: &Labels<'_> = &labels;
                    family
                        .0
                        .encode_family(&labels)?
                        .encode_histogram::<NoLabelSet>(sum.as_secs_f64(), count, &buckets, None)?;
                }
                Ok(())
            },
        )
    }
}

fn connections(of: &Connections, page: &mut Page<'_>) -> fmt::Result {
    page.gauge("connections", "Connections now", of.now)?;
    page.gauge(
        "connection_bytes",
        "Data, input and output that connections hold now",
        of.bytes,
    )?;
    page.gauge("controllers", "Controllers now", of.controllers)?;
    page.counter("connections_accepted", "Connections ever made", of.accepted)?;
    page.counter(
        "connections_refused",
        "Connect commands and authentications that were refused",
        of.refused,
    )?;
    page.counter(
        "connections_failed",
        "Connections that ended with a protocol error, a time-out or a stall, or that were cut",
        of.failed,
    )
}

fn bootstraps(of: &Bootstraps, page: &mut Page<'_>) -> fmt::Result {
    page.gauge(
        "bootstraps_waiting",
        "Calls of the arithmetic that wait for cores",
        of.waiting,
    )?;
    page.counter(
        "bootstrap_batches",
        "Passes over keys, each for one bootstrap or several",
        of.batches,
    )?;
    page.counter(
        "bootstraps_batched",
        "Bootstraps done together with those of another program",
        of.batched,
    )
}

fn drives(drives: &[DriveFigures], page: &mut Page<'_>) -> fmt::Result {
    type Figure = fn(&DriveFigures) -> u64;
    let counters: [(&str, &str, Figure); 6] = [
        (
            "rows",
            "Rows that programs have computed, as far as they are",
            |of| of.rows,
        ),
        (
            "bootstraps",
            "Bootstraps that programs have done, as far as they are",
            |of| of.bootstraps,
        ),
        ("pages_in", "Pages read from the swap area", |of| {
            of.pages_in
        }),
        ("pages_out", "Pages written to the swap area", |of| {
            of.pages_out
        }),
        (
            "register_bytes",
            "Bytes of objects that went into virtual registers",
            |of| of.register_bytes,
        ),
        ("media_errors", "Commands that the medium refused", |of| {
            of.media_errors
        }),
    ];
    for (name, help, figure) in counters {
        page.counters(name, help, |family| {
            for drive in drives {
                family.counter(&labels(drive), figure(drive))?;
            }
            Ok(())
        })?;
    }
    page.counters("programs", "Programs by result", |family| {
        for drive in drives {
            let programs = &drive.programs;
            for (result, count) in [("ran", programs.ran), ("failed", programs.failed)] {
                let result = [("result", result.to_owned())];
                family.counter(&[&labels(drive)[..], &result].concat(), count)?;
            }
        }
        Ok(())
    })?;
    page.family(
        "program_time",
        "Time of programs that ran to their end",
        MetricType::Counter,
        Some(&Unit::Seconds),
        |family| {
            for drive in drives {
                family.seconds(&labels(drive), drive.programs.seconds)?;
            }
            Ok(())
        },
    )?;
    let gauges: [(&str, &str, Figure); 10] = [
        ("programs_running", "Programs under way", |of| {
            of.programs.running
        }),
        (
            "programs_waiting",
            "Triggers that wait for a thread or for another program",
            |of| of.programs.waiting,
        ),
        ("resident_bytes", "Main memory that samples take", |of| {
            of.memory.samples_bytes
        }),
        (
            "resident_limit_bytes",
            "Main memory that samples may take",
            |of| of.memory.samples_limit,
        ),
        ("swapped_bytes", "Swap area that samples take", |of| {
            of.memory.swapped_bytes
        }),
        ("swap_bytes", "Swap area in all", |of| of.memory.swap_bytes),
        (
            "keys_bytes",
            "Main memory that keys, test vectors and programs take",
            |of| of.memory.keys_bytes,
        ),
        (
            "keys_limit_bytes",
            "Main memory that keys, test vectors and programs may take",
            |of| of.memory.keys_limit,
        ),
        ("image_bytes", "Size of the image", |of| of.space.bytes),
        ("hosts_known", "Hosts whose work is counted", |of| {
            of.hosts_known
        }),
    ];
    for (name, help, figure) in gauges {
        page.gauges(name, help, |family| {
            for drive in drives {
                family.gauge(&labels(drive), figure(drive))?;
            }
            Ok(())
        })?;
    }
    type Known = fn(&DriveFigures) -> Option<u64>;
    let known: [(&str, &str, Known); 2] = [
        ("image_used_bytes", "Space that an image file takes", |of| {
            of.space.used_bytes
        }),
        (
            "image_free_bytes",
            "Free space in the file system of an image file",
            |of| of.space.free_bytes,
        ),
    ];
    for (name, help, figure) in known {
        page.gauges(name, help, |family| {
            for drive in drives {
                if let Some(value) = figure(drive) {
                    family.gauge(&labels(drive), value)?;
                }
            }
            Ok(())
        })?;
    }
    type OfRun = fn(&Running) -> u64;
    let of_runs: [(&str, &str, OfRun); 3] = [
        ("running_rows", "Rows of programs under way", |of| of.rows),
        (
            "running_rows_done",
            "Rows of programs under way that are done",
            |of| of.rows_done,
        ),
        (
            "running_bootstraps_done",
            "Bootstraps of programs under way that are done",
            |of| of.bootstraps_done,
        ),
    ];
    for (name, help, figure) in of_runs {
        page.gauges(name, help, |family| {
            for drive in drives {
                let sum = drive.running.iter().map(figure).sum();
                family.gauge(&labels(drive), sum)?;
            }
            Ok(())
        })?;
    }
    page.gauges(
        "drive_read_only",
        "1 after a flush has failed: the drive refuses writes",
        |family| {
            for drive in drives {
                family.gauge(&labels(drive), drive.read_only.into())?;
            }
            Ok(())
        },
    )?;
    type HostFigure = fn(&Host) -> u64;
    let by_host: [(&str, &str, HostFigure); 6] = [
        ("host_rows", "Rows of programs by host", |of| of.rows),
        ("host_bootstraps", "Bootstraps by host", |of| of.bootstraps),
        ("host_programs", "Programs by host", |of| of.programs),
        ("host_read_bytes", "Bytes of data read by host", |of| {
            of.read_bytes
        }),
        (
            "host_written_bytes",
            "Bytes of data written by host",
            |of| of.written_bytes,
        ),
        ("host_failures", "Failed commands by host", |of| of.failures),
    ];
    for (name, help, figure) in by_host {
        page.counters(name, help, |family| {
            for drive in drives {
                for host in &drive.hosts {
                    let name = [("host", host.host.clone())];
                    let labels = [&labels(drive)[..], &name].concat();
                    family.counter(&labels, figure(host))?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn labels(drive: &DriveFigures) -> [(&'static str, String); 2] {
    [
        ("subsystem", drive.subsystem.clone()),
        ("nsid", drive.nsid.to_string()),
    ]
}
