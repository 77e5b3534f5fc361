//! `toroid drive top`: what a served drive does, again and again.

use std::io::{IsTerminal, Read, Write, stdout};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use toroid_drive::image::display_size;

use crate::interrupt;
use crate::output::{Output, duration};
use crate::serve::figures::{DriveFigures, Figures};

/// Time for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most bytes of an answer: some thousands of programs and hosts.
const MOST: u64 = 16 << 20;

/// Arguments of `toroid drive top`.
#[derive(clap::Args)]
pub struct Args {
    /// Where the server tells its metrics: HOST:PORT, a port of this machine, or the URL that it prints.
    address: Metrics,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = interval)]
    interval: f64,
    /// How many looks; until Ctrl-C if not given.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected 0.01 to 86400 seconds".to_owned()),
    }
}

/// Where metrics are: host and port.
#[derive(Clone, Debug)]
struct Metrics {
    host: String,
    port: u16,
}

impl FromStr for Metrics {
    type Err = String;

    fn from_str(text: &str) -> Result<Metrics, String> {
        let place = text.strip_prefix("http://").unwrap_or(text);
        let place = place.trim_end_matches('/');
        let place = place.strip_suffix("/metrics").unwrap_or(place);
        let (host, port) = place.rsplit_once(':').unwrap_or(("127.0.0.1", place));
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match port.parse() {
            Ok(port) if !host.is_empty() && !host.contains(['/', ' ']) => {
                let host = host.to_owned();
                Ok(Metrics { host, port })
            }
            _ => Err(format!(
                "{text:?} is no address of metrics; expected HOST:PORT, or a port"
            )),
        }
    }
}

impl Metrics {
    fn ask(&self) -> anyhow::Result<Figures> {
        let shown = format!("{}:{}", self.host, self.port);
        let answer = self
            .get("/status")
            .with_context(|| format!("{shown} does not answer"))?;
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .with_context(|| format!("{shown} does not answer as a server of metrics does"))?;
        let status = head.lines().next().unwrap_or_default();
        if status.split(' ').nth(1) != Some("200") {
            bail!("{shown} answers {status:?}: is it a server of Toroid of this version?");
        }
        let figures = serde_json::from_str(body);
        figures.with_context(|| format!("{shown} gives no figures of a drive"))
    }

    fn get(&self, path: &str) -> anyhow::Result<String> {
        let mut last = anyhow!("the name {} has no address", self.host);
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(mut stream) => {
                    stream.set_read_timeout(Some(PATIENCE))?;
                    stream.set_write_timeout(Some(PATIENCE))?;
                    let host = match self.host.contains(':') {
                        true => format!("[{}]", self.host),
                        false => self.host.clone(),
                    };
                    // The server closes the connection of this version of HTTP behind its answer.
                    write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n")?;
                    let mut answer = String::new();
                    stream.take(MOST).read_to_string(&mut answer)?;
                    return Ok(answer);
                }
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }
}

/// Shows the figures until it is interrupted.
pub fn run(args: &Args, output: &Output) -> anyhow::Result<()> {
    interrupt::expect();
    let mut last: Option<Figures> = None;
    let mut seen = Instant::now();
    let mut looks = 0;
    loop {
        match args.address.ask() {
            Ok(figures) => {
                seen = Instant::now();
                output.result(&figures, || screen(&text(&figures, last.as_ref())))?;
                last = Some(figures);
            }
            // Whoever was there may come back.
            Err(error) if last.is_some() => {
                let silent = duration(seen.elapsed().as_secs_f64());
                output.line(screen(&format!("no answer for {silent}: {error:#}")));
            }
            Err(error) => return Err(error),
        }
        looks += 1;
        let end = Instant::now() + Duration::from_secs_f64(args.interval);
        loop {
            if args.count == Some(looks) || interrupt::token().is_cancelled() {
                return Ok(());
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
    }
}

/// A text that takes the place of the one before, on a terminal.
fn screen(text: &str) -> String {
    // What hosts are called and why commands failed must not steer the terminal.
    let plain: String = text
        .chars()
        .map(|c| if c.is_control() && c != '\n' { ' ' } else { c })
        .collect();
    if stdout().is_terminal() {
        format!("\x1b[H\x1b[J{plain}")
    } else {
        plain
    }
}

fn text(now: &Figures, before: Option<&Figures>) -> String {
    let state = match now {
        Figures { stopping: true, .. } => "stopping",
        Figures { ok: true, .. } => "serving",
        _ => "a drive is read-only",
    };
    let memory = now.memory.process_bytes.map(display_size);
    let mut lines = vec![format!(
        "toroid {}, {state} for {}: {} connections, {} commands in flight, {} bootstraps waiting, {} of memory",
        now.version,
        duration(now.uptime_seconds),
        now.connections.now,
        now.commands.in_flight,
        now.bootstraps.waiting,
        memory.unwrap_or_else(|| "an unknown amount".to_owned()),
    )];
    let seconds = before.map(|before| now.uptime_seconds - before.uptime_seconds);
    for (place, drive) in now.drives.iter().enumerate() {
        // A server that was started again counts from 0.
        let earlier = before
            .filter(|before| before.drives.len() == now.drives.len())
            .and_then(|before| before.drives.get(place));
        let since = earlier.zip(seconds).filter(|(_, seconds)| *seconds > 0.0);
        describe(drive, since, &mut lines);
    }
    lines.join("\n")
}

fn describe(drive: &DriveFigures, since: Option<(&DriveFigures, f64)>, lines: &mut Vec<String>) {
    let rate = |figure: fn(&DriveFigures) -> u64| match since {
        Some((before, seconds)) => {
            let risen = figure(drive).saturating_sub(figure(before)) as f64;
            format!("{:.1} a second", risen / seconds)
        }
        None => format!("{} in all", figure(drive)),
    };
    let (programs, memory, space) = (&drive.programs, &drive.memory, &drive.space);
    let of = |used: u64, all: u64| format!("{} of {}", display_size(used), display_size(all));
    let read_only = if drive.read_only { ", READ-ONLY" } else { "" };
    lines.push(String::new());
    lines.push(format!("{} {}{read_only}", drive.subsystem, drive.nsid));
    lines.push(format!(
        "  programs {} running, {} waiting, {} ran, {} failed",
        programs.running, programs.waiting, programs.ran, programs.failed
    ));
    lines.push(format!(
        "  rows {}, bootstraps {}, pages in {}, out {}",
        rate(|of| of.rows),
        rate(|of| of.bootstraps),
        rate(|of| of.pages_in),
        rate(|of| of.pages_out),
    ));
    lines.push(format!(
        "  samples {}, swapped {}, keys {}",
        of(memory.samples_bytes, memory.samples_limit),
        of(memory.swapped_bytes, memory.swap_bytes),
        of(memory.keys_bytes, memory.keys_limit),
    ));
    let used = space.used_bytes.map(|used| of(used, space.bytes));
    let free = space.free_bytes.map(display_size);
    lines.push(format!(
        "  space {}{}",
        used.unwrap_or_else(|| display_size(space.bytes)),
        free.map_or_else(String::new, |free| format!(", {free} free beside it")),
    ));
    for run in &drive.running {
        let left = run.seconds_left.map(duration);
        lines.push(format!(
            "  > {} of {}: {} of {} rows, {} bootstraps, for {}{}",
            run.program,
            if run.host.is_empty() {
                "the drive"
            } else {
                &run.host
            },
            run.rows_done,
            run.rows,
            run.bootstraps_done,
            duration(run.seconds),
            left.map_or_else(String::new, |left| format!(", {left} left")),
        ));
    }
    for host in &drive.hosts {
        lines.push(format!(
            "  @ {}: {} programs, {} rows, {} bootstraps, {} read, {} written, {} failures",
            host.host,
            host.programs,
            host.rows,
            host.bootstraps,
            display_size(host.read_bytes),
            display_size(host.written_bytes),
            host.failures
        ));
    }
    for error in drive.errors.iter().take(5) {
        lines.push(format!(
            "  ! {} {}: {}",
            error.count, error.status, error.reason
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, host, port) in [
            ("9464", "127.0.0.1", 9464),
            ("drive.example:9464", "drive.example", 9464),
            ("http://127.0.0.1:9464/metrics", "127.0.0.1", 9464),
            ("http://[::1]:80/", "::1", 80),
        ] {
            let found: Metrics = text.parse().unwrap();
            assert_eq!((found.host.as_str(), found.port), (host, port), "{text}");
        }
        for bad in [
            "",
            "drive.example",
            ":9464",
            "a:99999",
            "nvme+tcp://a:4420/nqn",
            "a b:1",
        ] {
            assert!(bad.parse::<Metrics>().is_err(), "{bad}");
        }
    }

    #[test]
    fn text_from_hosts_does_not_steer_the_terminal() {
        assert!(!screen("\x1b[2J\r").contains(['\x1b', '\r']));
    }
}
