//! What a server tells of itself: metrics in the OpenMetrics text format, and health.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use serde_json::{Value, json};
use toroid_drive::HostStatistics;
use toroid_drive::bridge::DriveStatistics;
use toroid_engine::backend::Backend;
use toroid_nvme::Controller;
use toroid_nvme::fabrics::Target;

use super::counters::{BOUNDS_US, COMMANDS, Counters, KINDS, STATUSES};
use super::drives::Served;

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
    let mut ok = !sources.target.is_closing();
    let drives: Vec<Value> = sources
        .drives
        .iter()
        .map(|served| {
            let health = served.drive.health();
            ok &= !health.read_only;
            json!({
                "subsystem": served.subsystem,
                "nsid": served.nsid,
                "read_only": health.read_only,
                "media_errors": health.media_errors,
            })
        })
        .collect();
    let statistics = sources.target.statistics();
    let value = json!({
        "ok": ok,
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": sources.started.elapsed().as_secs(),
        "stopping": sources.target.is_closing(),
        "connections": statistics.connections,
        "controllers": statistics.controllers,
        "drives": drives,
    });
    (ok, value)
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
        page.gauge(
            "uptime_seconds",
            "Seconds since the server began",
            self.started.elapsed().as_secs(),
        )?;
        self.connections(&mut page)?;
        self.commands(&mut page)?;
        self.drives(&mut page)
    }
}

impl Sources {
    fn connections(&self, page: &mut Page<'_>) -> fmt::Result {
        let target = self.target.statistics();
        page.gauge("connections", "Connections now", target.connections)?;
        page.gauge(
            "connection_bytes",
            "Data, input and output that connections hold now",
            target.bytes_in_flight,
        )?;
        page.gauge("controllers", "Controllers now", target.controllers)?;
        page.counter(
            "connections_accepted",
            "Connections ever made",
            target.accepted,
        )?;
        page.counter(
            "connections_refused",
            "Connect commands and authentications that were refused",
            target.refused,
        )?;
        page.counter(
            "connections_failed",
            "Connections that ended with a protocol error, a time-out or a stall, or that were cut",
            target.failed,
        )
    }

    fn commands(&self, page: &mut Page<'_>) -> fmt::Result {
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
            counts.in_flight,
        )?;
        page.counter(
            "commands_abandoned",
            "I/O commands whose connection ended before they completed",
            counts.abandoned,
        )?;
        page.counter(
            "read_bytes",
            "Bytes of data and metadata that went to hosts",
            counts.bytes_read,
        )?;
        page.counter(
            "written_bytes",
            "Bytes of data and metadata of successful writes",
            counts.bytes_written,
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

    fn drives(&self, page: &mut Page<'_>) -> fmt::Result {
        let backend = self.backend.statistics();
        page.gauge(
            "bootstraps_waiting",
            "Calls of the arithmetic that wait for cores",
            backend.waiting,
        )?;
        page.counter(
            "bootstrap_batches",
            "Passes over keys, each for one bootstrap or several",
            backend.batches,
        )?;
        page.counter(
            "bootstraps_batched",
            "Bootstraps done together with those of another program",
            backend.batched,
        )?;
        let all: Vec<(&Served, DriveStatistics)> = self
            .drives
            .iter()
            .map(|served| (served, served.drive.statistics()))
            .collect();
        type Figure = fn(&DriveStatistics) -> u64;
        let counters: [(&str, &str, Figure); 5] = [
            ("bootstraps", "Bootstraps done", |s| s.bootstraps),
            ("pages_in", "Pages read from the swap area", |s| {
                s.paging.page_ins
            }),
            ("pages_out", "Pages written to the swap area", |s| {
                s.paging.page_outs
            }),
            (
                "register_bytes",
                "Bytes of objects that went into virtual registers",
                |s| s.bytes_stored,
            ),
            ("media_errors", "Commands that the medium refused", |s| {
                s.media_errors
            }),
        ];
        for (name, help, figure) in counters {
            page.counters(name, help, |family| {
                for (served, statistics) in &all {
                    family.counter(&labels(served), figure(statistics))?;
                }
                Ok(())
            })?;
        }
        page.counters("programs", "Programs by result", |family| {
            for (served, statistics) in &all {
                let programs = statistics.programs.values();
                let (ran, failed) = programs.fold((0, 0), |(ran, failed), program| {
                    (ran + program.runs, failed + program.failures)
                });
                for (result, count) in [("ran", ran), ("failed", failed)] {
                    let result = [("result", result.to_owned())];
                    family.counter(&[&labels(served)[..], &result].concat(), count)?;
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
                for (served, statistics) in &all {
                    let times = statistics.programs.values().map(|program| program.total);
                    let time: std::time::Duration = times.sum();
                    family.seconds(&labels(served), time.as_secs_f64())?;
                }
                Ok(())
            },
        )?;
        let gauges: [(&str, &str, Figure); 4] = [
            (
                "programs_waiting",
                "Triggers that wait for a thread or for another program",
                |s| s.waiting_programs as u64,
            ),
            ("resident_bytes", "Main memory that samples take", |s| {
                s.paging.resident_bytes
            }),
            ("swapped_bytes", "Swap area that samples take", |s| {
                s.paging.swapped_bytes
            }),
            ("hosts_known", "Hosts whose work is counted", |s| {
                s.hosts.keys().filter(|name| !name.is_empty()).count() as u64
            }),
        ];
        for (name, help, figure) in gauges {
            page.gauges(name, help, |family| {
                for (served, statistics) in &all {
                    family.gauge(&labels(served), figure(statistics))?;
                }
                Ok(())
            })?;
        }
        page.gauges(
            "drive_read_only",
            "1 after a flush has failed: the drive refuses writes",
            |family| {
                for (served, _) in &all {
                    let read_only = served.drive.health().read_only;
                    family.gauge(&labels(served), read_only.into())?;
                }
                Ok(())
            },
        )?;
        type HostFigure = fn(&HostStatistics) -> u64;
        let by_host: [(&str, &str, HostFigure); 5] = [
            ("host_bootstraps", "Bootstraps by host", |s| s.bootstraps),
            ("host_programs", "Programs by host", |s| s.programs),
            ("host_read_bytes", "Bytes of data read by host", |s| {
                s.bytes_read
            }),
            ("host_written_bytes", "Bytes of data written by host", |s| {
                s.bytes_written
            }),
            ("host_failures", "Failed commands by host", |s| s.failed),
        ];
        for (name, help, figure) in by_host {
            page.counters(name, help, |family| {
                for (served, statistics) in &all {
                    for (host, of_host) in &statistics.hosts {
                        // The drive's own name is empty.
                        if !host.is_empty() {
                            let host = [("host", host.clone())];
                            let labels = [&labels(served)[..], &host].concat();
                            family.counter(&labels, figure(of_host))?;
                        }
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

fn labels(served: &Served) -> [(&'static str, String); 2] {
    [
        ("subsystem", served.subsystem.clone()),
        ("nsid", served.nsid.to_string()),
    ]
}
