//! `--backend gpu` and `auto`, and `toroid gpu`: without a device, and on the driver that runs kernels on the processor.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;
mod serving;
#[path = "../../gpu/tests/common/shim.rs"]
mod shim;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Place, Said};
use serde_json::Value;
use serving::Server;
use shim::driver;

const VARIABLE: &str = "TOROID_CUDA_DRIVER";
const NOWHERE: &str = "/nowhere/libcuda.so";
const REASON: &str = "no CUDA driver: /nowhere/libcuda.so does not exist";

impl Place {
    /// A command that finds this driver.
    fn with(&self, driver: &str, line: &str) -> Command {
        let mut command = self.command(line);
        command.env(VARIABLE, driver);
        command
    }

    fn said(&self, driver: &Path, line: &str) -> Said {
        let command = &mut self.with(driver.to_str().unwrap(), line);
        let said: Said = command.output().unwrap().into();
        assert_eq!(said.code, Some(0), "toroid {line}: {}", said.err);
        said
    }

    fn refused(&self, line: &str, code: i32) -> Said {
        let said: Said = self.with(NOWHERE, line).output().unwrap().into();
        assert_eq!(said.code, Some(code), "toroid {line}: {}", said.err);
        said
    }
}

#[test]
fn without_a_device_gpu_fails_and_auto_takes_the_processor() {
    let place = Place::prepared("nvme");
    place.column("x", "1\n2\n");
    let refusal = format!("--backend gpu: {REASON}; install NVIDIA's driver 525 or newer");
    fs::write(
        place.path("gpu.toml"),
        "backend = \"gpu\"\n[[subsystem]]\n[[subsystem.namespace]]\nimage = \"d.img\"\n",
    )
    .unwrap();
    fs::write(place.path("f.tasm"), PROGRAM).unwrap();
    for line in [
        "demo --params tiny --backend gpu",
        "drive serve d.img --backend gpu --listen 127.0.0.1:0",
        "drive serve --config gpu.toml --listen 127.0.0.1:0",
        "map d.img f.tasm --input x=x --output y --backend gpu",
        "column run d.img cor:0:0 numbers --backend gpu",
    ] {
        let said = place.refused(line, 1);
        assert!(said.err.contains(&refusal), "toroid {line}: {}", said.err);
        assert!(said.err.contains("--backend auto"), "{}", said.err);
    }
    // What a drive that is there already, or a file of another kind, cannot mean.
    for (line, words) in [
        (
            "drive serve d.img --backend cuda",
            "expected cpu, gpu or auto",
        ),
        (
            "map nvme+tcp://127.0.0.1:1/nqn.2024-01.io.example:drive f.tasm --input x=x --output y --backend gpu",
            "--backend gpu is for an image",
        ),
    ] {
        let said = place.refused(line, 2);
        assert!(said.err.contains(words), "toroid {line}: {}", said.err);
    }
    let bad = fs::read_to_string(place.path("gpu.toml")).unwrap();
    fs::write(place.path("bad.toml"), bad.replace("\"gpu\"", "\"rtl\"")).unwrap();
    let said = place.refused("drive serve --config bad.toml --check", 1);
    let words = "bad.toml:1: \"rtl\" is no back end; expected cpu, gpu or auto";
    assert!(said.err.contains(words), "{}", said.err);
    let said = place.refused("--json drive serve --config gpu.toml --check", 0);
    let checked: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(checked["backend"], "gpu");

    for line in [
        "demo --params tiny --backend auto",
        "map d.img f.tasm --input x=x --output y --backend auto",
    ] {
        let said = place.refused(line, 0);
        let note = format!("computing on the processor: {REASON}");
        assert!(said.err.contains(&note), "toroid {line}: {}", said.err);
    }
    assert_eq!(place.rows("y"), [2, 3]);
}

#[test]
fn without_a_device_info_and_bench_fail_and_name_what_they_skip() {
    let place = Place::new();
    let said = place.refused("--json gpu info", 1);
    let value: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(value["computes"], false);
    assert!(value["reason"].as_str().unwrap().starts_with(REASON));
    assert!(said.err.contains(REASON), "{}", said.err);
    let said = place.refused("gpu bench --params paper,gate", 1);
    for check in [
        "SKIPPED paper, fft: latency and amortized time",
        "SKIPPED paper, fft: noise beside its formula",
        "SKIPPED paper, ntt: bits beside the processor's",
        "SKIPPED gate, ntt: chains of bootstraps",
        "SKIPPED gate, fft: the same alone and in batches",
        "SKIPPED column engine",
    ] {
        assert!(said.out.contains(check), "{check} is not in {}", said.out);
    }
    assert!(said.err.contains("nothing was measured"), "{}", said.err);
}

/// One more, on 4 bits.
const PROGRAM: &str = ".reg x = cor:0\n.tv f unsigned = (x + 1) % 16\nbootstrap f, x\nreturn x\n";

impl Place {
    fn column(&self, name: &str, numbers: &str) {
        fs::write(self.path("numbers"), numbers).unwrap();
        self.ok(&format!("column put d.img {name} numbers --unsigned"));
    }

    fn rows(&self, name: &str) -> Vec<i64> {
        let got = self.json(&format!("column get d.img {name}"));
        let rows = got["rows"].as_array().unwrap().iter();
        rows.map(|row| row.as_i64().unwrap()).collect()
    }
}

#[test]
fn served_drives_and_maps_compute_by_the_kernels() {
    let Some(driver) = driver() else { return };
    let place = Place::prepared("nvme");
    place.column("x", "0\n5\n15\n");
    fs::write(place.path("f.tasm"), PROGRAM).unwrap();
    let said = place.said(
        driver,
        "map d.img f.tasm --input x=x --output y --backend auto --arithmetic ntt",
    );
    assert!(
        said.err.contains("computing on the GPU: processor"),
        "{}",
        said.err
    );
    assert_eq!(place.rows("y"), [1, 6, 0]);

    let image = place.path("d.img");
    let mut serve = place.with(
        driver.to_str().unwrap(),
        "--json drive serve --backend gpu --listen 127.0.0.1:0 --nqn nqn.2024-01.io.example:drive --log-level error",
    );
    serve.arg(image);
    let server = Server::of(serve);
    let demo = place.json(&format!(
        "demo --drive {} --params tiny -x 3 -y -2 --key-id 5",
        server.address
    ));
    assert_eq!(demo["result"], -6);
}

#[test]
fn info_and_bench_work_and_say_that_there_is_no_device() {
    let Some(driver) = driver() else { return };
    let place = Place::new();
    let info: Value = serde_json::from_str(&place.said(driver, "--json gpu info").out).unwrap();
    assert_eq!(
        (&info["simulated"], &info["computes"]),
        (&true.into(), &true.into())
    );
    assert_eq!(info["devices"][0]["kernels"], "sm_90");
    assert_eq!(info["devices"][0]["refused"], Value::Null);
    assert!(place.said(driver, "gpu info").out.contains("NOT A DEVICE"));

    let line = "--json gpu bench --params tiny --quick --batches 3 --seed 1 --write results";
    let said = place.said(driver, line);
    assert!(said.err.contains("NOT A DEVICE"), "{}", said.err);
    let bench: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(bench["is_device"], false);
    let figures = bench["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 2);
    for figures in figures {
        assert_eq!(
            (&figures["wrong"], &figures["different"]),
            (&0.into(), &0.into())
        );
        assert_eq!(figures["repeated"], 8);
        assert_eq!(figures["gpu"].as_array().unwrap().len(), 2);
    }
    assert!(figures[0]["noise"]["ratio"].as_f64().unwrap() > 0.0);
    assert_eq!(figures[1]["chain_steps"], 16 * 32);
    let rows = fs::read_to_string(place.path("results/gpu.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&rows).unwrap(), bench["rows"]);
    let data = fs::read_to_string(place.path("results/data/gpu.json")).unwrap();
    let data: Value = serde_json::from_str(&data).unwrap();
    assert_eq!(data["figures"], bench["figures"]);

    // Results in the tree are of devices.
    fs::create_dir_all(place.path("docs/results")).unwrap();
    let line = "gpu bench --params tiny --quick --write docs/results";
    let command = &mut place.with(driver.to_str().unwrap(), line);
    let said: Said = command.output().unwrap().into();
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(
        said.err.contains("results of devices alone"),
        "{}",
        said.err
    );
}
