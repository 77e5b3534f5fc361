//! The cores against the library, and the folders that are made of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;
use toroid_cores::vectors::{Outcome, Streams, Vectors};
use toroid_cores::{
    Configured, Core, CoreError, Cycles, Parameter, Timing, Values, find, package, test,
};
use toroid_sim::model::{Design, Model, Options};
use toroid_sim::stream::Beat;
use toroid_sim::toolchain::{Toolchain, tests_are_skipped};
use toroid_task::Progress;

fn run(name: &str, given: &[(&str, u64)]) -> Outcome {
    let core = find(name).unwrap();
    let values = Values::new(core, given.iter().copied()).unwrap();
    test(core, &values, 20_000, 3, None, &Progress::none()).unwrap()
}

#[test]
fn arithmetic_is_the_librarys() {
    if tests_are_skipped() {
        return;
    }
    for name in ["goldilocks_mul", "butterfly_integrated"] {
        for tiles in [[24, 17], [18, 18], [33, 64]] {
            let outcome = run(name, &[("TILE_A", tiles[0]), ("TILE_B", tiles[1])]);
            assert_eq!(outcome.compared, 20_000);
            assert_eq!(outcome.measured, outcome.expected, "{name} {tiles:?}");
        }
    }
}

#[test]
fn differences_and_other_latencies_show() {
    if tests_are_skipped() {
        return;
    }
    let core = find("goldilocks_mul").unwrap();
    let values = Values::new(core, []).unwrap();
    let options = Options::quick_random();
    let model = Model::build(
        &core.configure(&values).unwrap().design().unwrap(),
        &options,
    )
    .unwrap();
    let Some(Vectors::Pipeline(pipeline)) = core.configure(&values).unwrap().vectors(500, 1) else {
        panic!("no pipeline");
    };
    let mut wrong = pipeline.clone();
    wrong.rows[77].1[0] ^= 1;
    let mut simulation = model.start_random(5).unwrap();
    let error = Vectors::Pipeline(wrong)
        .run(&mut simulation, 1, &Progress::none())
        .unwrap_err();
    assert!(matches!(error, CoreError::Wrong(_)));
    let text = error.to_string();
    assert!(
        text.starts_with("1 of 500 results differ from the library; row 77: of a_i 0x"),
        "{text}"
    );
    let mut late = pipeline;
    late.latency += 2;
    let outcome = Vectors::Pipeline(late)
        .run(&mut simulation, 1, &Progress::none())
        .unwrap();
    assert_eq!(outcome.measured + 2, outcome.expected);
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let Err(error) = find("none") else {
        panic!("found")
    };
    assert!(error.is_usage());
    assert!(
        error
            .to_string()
            .contains("butterfly_integrated, engine, engine_streaming, goldilocks_mul")
    );
    let core = find("goldilocks_mul").unwrap();
    let message = |given: &[(&str, u64)]| {
        Values::new(core, given.iter().copied())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        message(&[("TILE", 1)]),
        "goldilocks_mul has no parameter TILE; it has TILE_A, TILE_B, KARATSUBA"
    );
    assert_eq!(
        message(&[("TILE_A", 1)]),
        "goldilocks_mul: TILE_A must be from 2 to 64, not 1"
    );
    assert_eq!(
        message(&[("TILE_A", 9), ("TILE_A", 9)]),
        "parameter TILE_A is given twice"
    );
}

const SOURCE: &str = "
module increment #(
    parameter int BYTES = 3
) (
    input  logic               clk_i,
    input  logic               rst_ni,
    input  logic               in_tvalid,
    output logic               in_tready,
    input  logic [8*BYTES-1:0] in_tdata,
    input  logic               in_tlast,
    input  logic               in_tuser,
    output logic               out_tvalid_o,
    input  logic               out_tready_i,
    output logic [8*BYTES-1:0] out_tdata_o,
    output logic               out_tlast_o
);
  assign in_tready = !out_tvalid_o || out_tready_i;
  always_ff @(posedge clk_i) begin
    if (in_tready) begin
      for (int i = 0; i < BYTES; i++) out_tdata_o[8*i+:8] <= in_tdata[8*i+:8] + 8'd1 + {7'd0, in_tuser};
      out_tlast_o <= in_tlast;
    end
    if (!rst_ni) out_tvalid_o <= 1'b0;
    else if (in_tready) out_tvalid_o <= in_tvalid;
  end
endmodule
";

/// A core with streams that is small: it adds one to every byte, a beat later.
static INCREMENT: Core = Core::new("increment", "one more", &[BYTES], |values| {
    let bytes = values["BYTES"];
    Ok(Box::new(Bytes { bytes }))
});

const BYTES: Parameter = Parameter {
    name: "BYTES",
    doc: "bytes of a beat",
    default: 3,
    range: 1..=64,
};

/// [`INCREMENT`] for beats of so many bytes.
struct Bytes {
    bytes: u64,
}

impl Configured for Bytes {
    fn design(&self) -> Result<Design, CoreError> {
        let design = Design {
            top: "increment".to_owned(),
            sources: vec![("increment.sv".to_owned(), SOURCE.to_owned())],
            ..Design::default()
        };
        Ok(design.with("BYTES", self.bytes))
    }

    fn timing(&self) -> Timing {
        Timing::only(Cycles {
            what: "100 beats",
            formula: "101",
            cycles: 101,
        })
    }

    fn vectors(&self, _count: usize, seed: u64) -> Option<Vectors> {
        let bytes = self.bytes;
        let beat = |i: u64, more: u64| {
            let data = (0..bytes)
                .map(|j| (seed + 7 * i + j + more) as u8)
                .collect();
            Beat {
                data,
                last: i % 10 == 9,
                user: 0,
            }
        };
        Some(Vectors::Streams(Streams {
            input: "in",
            output: "out",
            sent: (0..100).map(|i| beat(i, 0).with_user(i & 1)).collect(),
            expected: (0..100).map(|i| beat(i, 1 + (i & 1))).collect(),
            user_bits: 1,
            cycles: 101,
        }))
    }
}

#[test]
fn cores_with_streams_run_at_full_speed_and_with_stalls() {
    if tests_are_skipped() {
        return;
    }
    for bytes in [3, 12] {
        let values = Values::new(&INCREMENT, [("BYTES", bytes)]).unwrap();
        let outcome = test(&INCREMENT, &values, 1, 1, None, &Progress::none()).unwrap();
        assert_eq!(
            (outcome.compared, outcome.measured, outcome.expected),
            (200, 101, 101)
        );
    }
}

/// A call of the compiler for what Verilator makes of testbenches.
fn compiler() -> Command {
    let toolchain = Toolchain::find(&Progress::none()).unwrap();
    let include = toolchain.verilator.root.join("include");
    let mut compile = toolchain.compiler.command();
    compile
        .args([
            "-std=gnu++20",
            "-w",
            "-O0",
            "-DVM_TRACE=0",
            "-DVM_COVERAGE=0",
            "-DVM_SC=0",
        ])
        .args([
            "-DVM_TRACE_VCD=0",
            "-DVM_TRACE_FST=0",
            "-DVM_TRACE_SAIF=0",
            "-DVERILATOR=1",
        ])
        .args(["-DVM_TIMING=1", "-pthread", "-I"])
        .arg(&include)
        .arg("-I")
        .arg(include.join("vltstd"));
    if !toolchain.compiler.version().contains("clang") {
        compile.arg("-fcoroutines");
    }
    compile
}

/// The objects of the run-time of testbenches, made once for all tests.
fn runtime() -> &'static [PathBuf] {
    static MADE: OnceLock<(TempDir, Vec<PathBuf>)> = OnceLock::new();
    let (_, objects) = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let include = Toolchain::find(&Progress::none())
            .unwrap()
            .verilator
            .root
            .join("include");
        let names = ["verilated", "verilated_threads", "verilated_timing"];
        let mut calls = Vec::new();
        let objects = names.map(|name| {
            let object = folder.path().join(format!("{name}.o"));
            let mut compile = compiler();
            compile
                .arg("-c")
                .arg(include.join(format!("{name}.cpp")))
                .arg("-o")
                .arg(&object);
            calls.push(compile.spawn().unwrap());
            object
        });
        for mut call in calls {
            assert!(call.wait().unwrap().success());
        }
        (folder, objects.to_vec())
    });
    objects
}

/// Compiles a folder's testbench as `verilator --binary --timing` does.
fn simulate(folder: &Path, top: &str, sources: &[String]) -> Command {
    let status = Toolchain::find(&Progress::none())
        .unwrap()
        .verilator
        .command()
        .current_dir(folder)
        .args([
            "--cc", "--main", "--exe", "--timing", "--quiet", "-Mdir", "obj_dir",
        ])
        .args(["--prefix", "Vtb", "--top-module", top])
        .args(sources)
        .status()
        .unwrap();
    assert!(status.success());
    let mut all = String::new();
    for entry in std::fs::read_dir(folder.join("obj_dir")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "cpp") {
            all += &format!(
                "#include {:?}\n",
                path.file_name().unwrap().to_str().unwrap()
            );
        }
    }
    std::fs::write(folder.join("obj_dir/all.cc"), all).unwrap();
    let mut compile = compiler();
    compile
        .current_dir(folder)
        .args(["-I", "obj_dir", "-o", "simulation", "obj_dir/all.cc"])
        .args(runtime());
    assert!(compile.status().unwrap().success());
    let mut command = Command::new(folder.join("simulation"));
    command.current_dir(folder);
    command
}

fn check_folder(core: &Core, given: &[(&'static str, u64)], table: &str) {
    let folder = tempfile::tempdir().unwrap();
    let values = Values::new(core, given.iter().copied()).unwrap();
    let files = package::files(core, &values, 200, 1).unwrap();
    package::write(&files, folder.path(), false).unwrap();
    let again = package::write(&files, folder.path(), false).unwrap_err();
    assert!(again.to_string().contains("--force"), "{again}");
    package::write(&files, folder.path(), true).unwrap();
    let top = package::module(core, &values);
    let list = std::fs::read_to_string(folder.path().join("sources.f")).unwrap();
    let sources = list.lines().filter(|line| line.ends_with(".sv"));
    let bench = format!("tb/{top}_tb.sv");
    let sources: Vec<String> = sources.map(str::to_owned).chain([bench]).collect();
    let mut simulation = simulate(folder.path(), &format!("{top}_tb"), &sources);
    let said = simulation.output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.status.success() && text.contains("PASS"), "{text}");
    // A result that is not the core's.
    let path = folder.path().join(table);
    let mut rows = std::fs::read_to_string(&path).unwrap().into_bytes();
    let digit = rows.len() - 2;
    rows[digit] = if rows[digit] == b'0' { b'1' } else { b'0' };
    std::fs::write(&path, rows).unwrap();
    let said = simulation.output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(!said.status.success() && text.contains("FAIL"), "{text}");
}

#[test]
fn folders_of_pipelines_test_themselves() {
    if !tests_are_skipped() {
        check_folder(find("butterfly_integrated").unwrap(), &[], "tb/vectors.hex");
    }
}

#[test]
fn folders_of_streams_test_themselves() {
    if !tests_are_skipped() {
        check_folder(&INCREMENT, &[], "tb/expected.hex");
        check_folder(find("permutation").unwrap(), &[], "tb/expected.hex");
        // tuser of four bits, and files that share the start of their names.
        let several = [
            ("LOG_N", 4),
            ("LOG_LANES", 1),
            ("LOG_N_MIN", 2),
            ("Q_2", 132_120_577),
            ("Q_3", 786_433),
            ("IN_ORDER", 2),
        ];
        let streaming = find("ntt_streaming").unwrap();
        check_folder(streaming, &several, "tb/expected.hex");
        let plain = [("LOG_N", 3), ("LOG_LANES", 1)];
        check_folder(streaming, &plain, "tb/expected.hex");
        let rader = [("M", 15), ("Q", 7681)];
        check_folder(find("ntt_rader").unwrap(), &rader, "tb/expected.hex");
        // Two input streams.
        let products = [("ARCHITECTURE", 0), ("LOG_N", 3)];
        check_folder(find("polymul_sdf").unwrap(), &products, "tb/expected.hex");
    }
}

#[test]
fn folders_with_two_streams_at_the_input_test_themselves() {
    if !tests_are_skipped() {
        let few = [("LOG_LANES", 2), ("WORD", 12)];
        check_folder(find("ntt_elastic").unwrap(), &few, "tb/expected.hex");
    }
}
