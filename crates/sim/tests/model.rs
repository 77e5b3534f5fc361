//! Designs become models, and models run.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use toroid_sim::model::{Design, Model, ModelError, Options, Value};
use toroid_sim::simulation::SimulationError;
use toroid_sim::toolchain::tests_are_skipped;
use toroid_task::Progress;

const QUICK: Options = Options {
    trace: false,
    random_start: false,
    quick: true,
};

const PROBE: &str = r#"
module probe #(
    parameter int unsigned WIDTH = 8,
    parameter logic [99:0] BIG = 100'd1,
    parameter logic [63:0] Q = 64'd3,
    parameter string ROM = "",
    parameter string WORD = "none"
) (
    input  logic             clk_i,
    input  logic             rst_ni,
    input  logic             a__b_i,
    input  logic [WIDTH-1:0] narrow_i,
    input  logic [63:0]      address_i,
    input  logic [99:0]      wide_i,
    output logic [WIDTH-1:0] sum_o,
    output logic [WIDTH-1:0] after_o,
    output logic [99:0]      wide_o,
    output logic [63:0]      q_o,
    output logic [15:0]      rom_o,
    output logic [31:0]      start_o,
    output logic             match_o
);
  initial begin
    if (WIDTH > 32) $fatal(1, "probe: WIDTH must be from 1 to 32, not %0d", WIDTH);
  end
  logic [15:0] rom[4];
  logic [31:0] never_q;
  initial if (ROM != "") $readmemh(ROM, rom);
  assign after_o = narrow_i + WIDTH'(1);
  assign wide_o = wide_i ^ BIG;
  assign q_o = Q;
  assign match_o = WORD == "secret" && a__b_i;
  assign start_o = never_q;
  always_ff @(posedge clk_i) begin
    never_q <= never_q;
    rom_o <= rom[address_i[1:0]];
    if (!rst_ni) sum_o <= '0;
    else sum_o <= sum_o + narrow_i;
    if (rst_ni && narrow_i == WIDTH'(99)) $fatal(1, "probe: 99 came");
  end
endmodule
"#;

fn probe() -> Design {
    Design {
        top: "probe".to_owned(),
        sources: vec![("lib/probe.sv".to_owned(), PROBE.to_owned())],
        ..Design::default()
    }
}

#[test]
fn parameters_files_ports_and_the_clock() {
    if tests_are_skipped() {
        return;
    }
    let design = probe()
        .with("WIDTH", 12u64)
        .with(
            "BIG",
            Value::Bits {
                width: 100,
                hex: "f00000000deadbeef12345678".to_owned(),
            },
        )
        .with("Q", 0xffff_ffff_0000_0001u64)
        .with("WORD", "secret")
        .with_file("ROM", "roms/rom.hex", b"11\n22\n33\n44\n".to_vec());
    let model = Model::build(&design, &QUICK).unwrap();
    let names: Vec<&str> = model.ports().iter().map(|(name, _)| &**name).collect();
    assert!(names.contains(&"a__b_i") && names.len() == 13, "{names:?}");
    let mut simulation = model.start().unwrap();
    let narrow = simulation.input("narrow_i", 12).unwrap();
    let sum = simulation.output("sum_o", 12).unwrap();
    let after = simulation.output("after_o", 12).unwrap();
    let wide = simulation.input("wide_i", 100).unwrap();
    let wide_out = simulation.output("wide_o", 100).unwrap();
    let address = simulation.input("address_i", 64).unwrap();
    let rom = simulation.output("rom_o", 16).unwrap();
    let flag = simulation.input("a__b_i", 1).unwrap();
    let matches = simulation.port("match_o").unwrap();

    simulation.reset(2).unwrap();
    assert_eq!(simulation.cycles(), 2);
    // Bits above the width are dropped, and combinational outputs follow before the edge.
    simulation.set(narrow, 0x1ffe);
    simulation.set(flag, 1);
    simulation.words_mut(wide).copy_from_slice(&[1, 2, 3, 4]);
    simulation.settle().unwrap();
    assert_eq!(simulation.get(after), 0xfff);
    assert_eq!(simulation.get(sum), 0);
    assert_eq!(simulation.get(matches), 1);
    assert_eq!(
        simulation.get(simulation.port("q_o").unwrap()),
        0xffff_ffff_0000_0001
    );
    let big = [0x1234_5678u32, 0xdead_beef, 0, 0xf];
    let expected: Vec<u32> = big.iter().zip([1, 2, 3, 4]).map(|(a, b)| a ^ b).collect();
    assert_eq!(simulation.words(wide_out), expected);
    let mut bytes = [0xaa; 14];
    simulation.read_bytes(wide_out, &mut bytes);
    assert_eq!(bytes[..4], expected[0].to_le_bytes());
    assert_eq!(bytes[12..], [expected[3] as u8, 0]);
    simulation.write_bytes(wide, &[0xff; 20]);
    assert_eq!(simulation.words(wide), [u32::MAX, u32::MAX, u32::MAX, 0xf]);

    simulation.tick().unwrap();
    assert_eq!(simulation.get(sum), 0xffe);
    simulation.ticks(2).unwrap();
    assert_eq!(simulation.get(sum), 0xffa);
    for (i, expected) in [0x11, 0x22, 0x33, 0x44].into_iter().enumerate() {
        simulation.set(address, i as u64);
        simulation.tick().unwrap();
        assert_eq!(simulation.get(rom), expected);
    }
    assert_eq!(simulation.cycles(), 9);
    simulation.reset(1).unwrap();
    assert_eq!(simulation.get(sum), 0);

    let missing = simulation.port("none_i").unwrap_err().to_string();
    assert!(
        missing.contains("no port none_i; there are clk_i, rst_ni"),
        "{missing}"
    );
    let form = simulation.input("sum_o", 8).unwrap_err().to_string();
    assert!(
        form.contains("expected an input of 8 bits, found an output of 12 bits"),
        "{form}"
    );
    assert_eq!(
        simulation.trace_to("x.vcd".as_ref()),
        Err(SimulationError::Option("trace"))
    );
    assert_eq!(
        model.start_random(1).unwrap_err(),
        SimulationError::Option("random_start")
    );

    // A model is the same whoever builds it, and its simulations know nothing of each other.
    let again = Model::build(&design, &QUICK).unwrap();
    let mut other = again.start().unwrap();
    other.set(narrow, 5);
    thread::spawn(move || {
        other.tick().unwrap();
        assert_eq!(other.get(sum), 5);
    })
    .join()
    .unwrap();
    assert_eq!(simulation.get(sum), 0);

    // What the design says when it stops, and that it stays so.
    simulation.set(narrow, 99);
    let error = simulation.tick().unwrap_err();
    let SimulationError::Stopped { cycle, message, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*cycle, 10);
    assert!(message.contains("probe: 99 came"), "{message}");
    assert!(simulation.tick().is_err());
}

#[test]
fn refusals_say_what_the_design_says() {
    if tests_are_skipped() {
        return;
    }
    let message = |design: &Design| match Model::build(design, &QUICK) {
        Err(ModelError::Elaboration { message, .. }) => message,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        message(&probe().with("WIDTH", 33u64)),
        "probe: WIDTH must be from 1 to 32, not 33"
    );
    // The sentence counts, though the rest of the module does not fit the parameter either.
    let mut wrong = probe().with("WIDTH", 40u64);
    wrong.sources[0].1 = PROBE.replace(
        "sum_o <= sum_o + narrow_i",
        "sum_o <= 8'(sum_o) + 70'(narrow_i)",
    );
    assert_eq!(message(&wrong), "probe: WIDTH must be from 1 to 32, not 40");

    let mut generated = probe();
    generated.sources[0].1 = PROBE.replace(
        "  logic [15:0] rom[4];",
        "  if (WIDTH == 9) $fatal(1, \"probe: 9: never\");\n  logic [15:0] rom[4];",
    );
    assert_eq!(message(&generated.with("WIDTH", 9u64)), "probe: 9: never");

    let unknown = message(&probe().with("DEPTH", 9u64));
    assert!(unknown.contains("DEPTH"), "{unknown}");
    let mut broken = probe();
    broken.sources[0].1 = PROBE.replace("endmodule", "");
    assert!(message(&broken).contains("syntax error"));
    let mut lint = probe();
    lint.sources[0].1 = PROBE.replace("sum_o + narrow_i", "70'(narrow_i)");
    assert!(message(&lint).contains("WIDTHTRUNC"));
    let mut unpacked = probe();
    unpacked.sources[0].1 = PROBE.replace("a__b_i,", "a__b_i, input logic u_i[2],");
    assert!(message(&unpacked).contains("unpacked"));

    let mut outside = probe();
    outside.sources[0].0 = "../probe.sv".to_owned();
    assert!(matches!(
        Model::build(&outside, &QUICK),
        Err(ModelError::FileName(_))
    ));

    // A file that lacks shows when the simulation starts.
    let mut design = probe();
    design = design.with("ROM", "/nowhere/rom.hex");
    let model = Model::build(&design, &QUICK).unwrap();
    let error = model.start().unwrap_err().to_string();
    assert!(error.contains("/nowhere/rom.hex"), "{error}");
}

#[test]
fn random_starts_repeat_and_waveforms_are_written() {
    if tests_are_skipped() {
        return;
    }
    let options = Options {
        trace: true,
        random_start: true,
        ..QUICK
    };
    let model = Model::build(&probe(), &options).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let start = |seed: u32| {
        let mut simulation = model.start_random(seed).unwrap();
        simulation.tick().unwrap();
        simulation.get(simulation.port("start_o").unwrap())
    };
    assert_eq!(start(1), start(1));
    assert_ne!(start(1), start(2));
    let path = folder.path().join("waves.vcd");
    let mut simulation = model.start().unwrap();
    assert_eq!(simulation.get(simulation.port("start_o").unwrap()), 0);
    simulation.trace_to(&path).unwrap();
    simulation.ticks(3).unwrap();
    drop(simulation);
    let waves = std::fs::read_to_string(&path).unwrap();
    assert!(
        waves.contains("narrow_i") && waves.contains("#5"),
        "{waves}"
    );
}

#[test]
fn a_model_is_made_once_and_can_be_cancelled() {
    if tests_are_skipped() {
        return;
    }
    // Never made before: the text holds the time.
    let now = std::time::SystemTime::now();
    let mut design = probe();
    design.sources[0].1 += &format!(
        "// {:?}\n",
        now.duration_since(std::time::UNIX_EPOCH).unwrap()
    );
    // Found beforehand, so that what is cancelled is the model's own making.
    toroid_sim::toolchain::Toolchain::find(&Progress::none()).unwrap();
    let cancelled = Progress::none();
    cancelled.cancel_token().cancel();
    let error = Model::build_with(&design, &QUICK, &cancelled).unwrap_err();
    assert!(error.is_cancelled(), "{error}");

    let makers = thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let steps = Arc::new(AtomicU64::new(0));
                    let counted = Arc::clone(&steps);
                    let progress = Progress::new(move |_, _, _| {
                        counted.fetch_add(1, Ordering::Relaxed);
                    });
                    let model = Model::build_with(&design, &QUICK, &progress).unwrap();
                    model.start().unwrap();
                    steps.load(Ordering::Relaxed)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .filter(|steps| *steps > 0)
            .count()
    });
    assert_eq!(makers, 1);
}
