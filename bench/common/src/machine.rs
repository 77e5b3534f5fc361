//! The machine and the time of a measurement.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Error;

/// When and where something was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// In UTC.
    pub date: String,
    /// See [`describe`].
    pub machine: String,
}

impl Measured {
    /// Now, on this machine.
    pub fn now() -> Measured {
        Measured {
            date: date(),
            machine: describe(),
        }
    }

    /// Both in one line.
    pub fn line(&self) -> String {
        format!("{}, {}", self.date, self.machine)
    }
}

/// The date and time in UTC.
pub fn date() -> String {
    let now = jiff::Timestamp::now();
    now.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// Processors and kernel in a few words.
pub fn describe() -> String {
    format!(
        "{} processors ({}), Linux {}",
        processors(),
        processor(),
        kernel()
    )
}

/// The processor's name.
pub fn processor() -> String {
    let field = |line: &str| {
        let (_, name) = line.strip_prefix("model name")?.split_once(':')?;
        Some(name.trim().to_owned())
    };
    let name = read("/proc/cpuinfo").lines().find_map(field);
    name.unwrap_or_else(|| "unknown processor".to_owned())
}

/// Processors that this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The kernel's release.
pub fn kernel() -> String {
    read("/proc/sys/kernel/osrelease").trim().to_owned()
}

/// Load averages of 1, 5 and 15 minutes.
pub fn load_average() -> String {
    let text = read("/proc/loadavg");
    text.split_whitespace()
        .take(3)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The contents of a file of the system; nothing if it cannot be read.
pub fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Peak resident memory of this process in bytes (VmHWM).
pub fn peak_memory() -> Option<u64> {
    let status = read("/proc/self/status");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Processor time of all threads of this process so far, in hundredths of a second.
///
/// # Errors
/// The system does not tell.
pub fn processor_time() -> Result<Duration, Error> {
    let stat = read("/proc/self/stat");
    // The fields behind the name, which may hold blanks: the 12th and 13th are user and system time.
    let (_, behind) = stat.rsplit_once(')').ok_or("no time of this process")?;
    let times = behind.split_whitespace().skip(11).take(2);
    let ticks = times.map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    // Ticks of a process are hundredths of a second on every Linux.
    Ok(Duration::from_millis(10 * ticks))
}
