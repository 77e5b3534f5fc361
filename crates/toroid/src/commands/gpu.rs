//! `toroid gpu`: the GPUs of this machine, and what they measure.

mod bench;
mod page;

use anyhow::anyhow;
use serde_json::{Value, json};
use toroid_drive::image::display_size;
use toroid_gpu::{DeviceInfo, DriverInfo, GpuBackend, GpuError, GpuOptions};
use toroid_tfhe::arithmetic::ArithmeticKind;

use crate::output::Output;

/// Arguments of `toroid gpu`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Show the driver and its devices, and why those that cannot compute are refused. Fails where none computes.
    Info,
    /// Measure bootstraps on the GPUs beside the processor, and check every result.
    #[command(
        after_help = "Examples:\n  toroid gpu bench\n  toroid gpu bench --params paper --arithmetic fft --batches 1,64\n  toroid gpu bench --quick --write results"
    )]
    Bench(bench::Args),
}

/// Runs `toroid gpu`.
pub fn run(command: &Command, output: &Output) -> anyhow::Result<()> {
    match command {
        Command::Info => info(output),
        Command::Bench(args) => bench::run(args, output),
    }
}

/// An error with what would help.
fn with_help(error: &GpuError) -> String {
    match error.help() {
        Some(help) => format!("{error}; {help}"),
        None => error.to_string(),
    }
}

fn version(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn value(device: &DeviceInfo, failure: Option<&str>) -> Value {
    let (major, minor) = device.capability;
    json!({
        "ordinal": device.ordinal,
        "name": device.name,
        "capability": format!("{major}.{minor}"),
        "processors": device.processors,
        "memory_bytes": device.memory,
        "shared_memory_bytes": device.shared_memory,
        "clock_hz": device.clock,
        "multiply_adds_per_second": device.multiply_adds,
        "bandwidth_bytes_per_second": device.bandwidth,
        "kernels": device.image().map(|image| image.to_string()),
        "kernels_sha256": device.image().map(toroid_gpu::Image::hash),
        "refused": failure,
    })
}

fn line(device: &DeviceInfo, failure: Option<&str>) -> String {
    let (major, minor) = device.capability;
    let kernels = match (failure, device.image()) {
        (Some(reason), _) => format!("refused: {reason}"),
        (None, Some(image)) => format!("takes the kernels for {image}"),
        (None, None) => "takes no kernels".to_owned(),
    };
    format!(
        "{}  {}, compute capability {major}.{minor}, {} multiprocessors at {:.2} GHz, {} of memory at {:.2} TB/s, {:.2} f64 TFLOP/s\n   {kernels}",
        device.ordinal,
        device.name,
        device.processors,
        device.clock as f64 / 1e9,
        display_size(device.memory),
        device.bandwidth as f64 / 1e12,
        2.0 * device.multiply_adds as f64 / 1e12,
    )
}

fn info(output: &Output) -> anyhow::Result<()> {
    let options = GpuOptions::default();
    let asked = DriverInfo::ask(&options);
    // What goes wrong with the kernels on a device that could run them shows when a back end is made.
    let made = GpuBackend::new(ArithmeticKind::default(), &options);
    let failure = made.err().map(|error| with_help(&error));
    let value = match &asked {
        Ok(driver) => {
            let devices = driver.devices.iter();
            let devices: Vec<Value> = devices
                .map(|device| value(device, device.refusal().or(failure.clone()).as_deref()))
                .collect();
            json!({
                "driver": version(driver.version),
                "simulated": driver.simulated,
                "devices": devices,
                "computes": failure.is_none(),
                "reason": failure,
            })
        }
        Err(_) => json!({ "driver": null, "devices": [], "computes": false, "reason": failure }),
    };
    output.result(&value, || match &asked {
        Ok(driver) => {
            let mut lines = vec![format!("CUDA driver {}", version(driver.version))];
            if driver.simulated {
                lines.push(NOT_A_DEVICE.to_owned());
            }
            let devices = driver.devices.iter();
            lines.extend(
                devices.map(|device| line(device, device.refusal().or(failure.clone()).as_deref())),
            );
            lines.join("\n")
        }
        Err(_) => "no CUDA driver that computes".to_owned(),
    })?;
    failure.map_or(Ok(()), |reason| Err(anyhow!(reason)))
}

/// What is said of the driver that tests use.
const NOT_A_DEVICE: &str =
    "NOT A DEVICE: this driver runs the kernels on the processor, for tests; its times say nothing";
