//! `toroid demo`: Tables 5 and 6 of the platform paper, from keys to the decrypted product.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;
use toroid_client::blob::BlobStat;
use toroid_client::drive::create_image;
use toroid_client::location::Location;
use toroid_drive::image::{FormatOptions, display_size};
use toroid_isa::{Instruction, KeyKind, VrNumber, VrType};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::KeyForm;

use super::drive::Metadata;
use super::{DEFAULT_SET, parse_param_set};
use crate::backend::{BackendArgs, Computing, Peer, Simulated};
use crate::drive_args::HostArgs;
use crate::machine;
use crate::opened::Opened;
use crate::output::{Output, power_of_two};
use crate::recorder::{Issued, Purpose};
use crate::{progress, secret};

/// Arguments of `toroid demo`.
#[derive(clap::Args)]
pub struct Args {
    /// First factor; random if not given.
    #[arg(short, allow_negative_numbers = true)]
    x: Option<i64>,
    /// Second factor; random if not given.
    #[arg(short, allow_negative_numbers = true)]
    y: Option<i64>,
    /// Parameter set (see `toroid params`).
    #[arg(long, default_value = DEFAULT_SET, value_parser = parse_param_set)]
    params: &'static ParamSet,
    /// How secure computing metadata reaches the drive; by default in the second half. An existing drive decides this itself.
    #[arg(long, value_enum, conflicts_with = "drive")]
    metadata: Option<Metadata>,
    /// Where to make the drive image; a temporary file, removed at the end, if not given.
    #[arg(long, conflicts_with = "drive")]
    image: Option<PathBuf>,
    /// Use an existing drive in place of a fresh image: an image, nvme+tcp://HOST:PORT/NQN, or a block device that is one. What the
    /// demo stores there is deleted at the end.
    #[arg(long)]
    drive: Option<Location>,
    /// Key id. By default the first one that an existing drive stores nothing for.
    #[arg(long)]
    key_id: Option<u32>,
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    host: HostArgs,
}

/// The program of Table 5 with the registers of Table 6.
const PROGRAM: &str = "\
.reg r1 = cor:0     ; temporary register, then the result
.reg r2 = cor:1     ; x
.reg r3 = cow:2     ; y, whose write triggers the program
.tv sq4 @0 = x*x/4
mov r1, r2
homadd r1, r3
bootstrap sq4, r1
homsub r2, r3
bootstrap sq4, r2
homsub r1, r2
return r1
";

/// Times of the platform paper, milliseconds: Tables 11 to 13.
const PAPER_BOOTSTRAP: f64 = 249.96;
const PAPER_HOM_ADD: f64 = 0.124;
const PAPER_HOM_SUB: f64 = 0.124;
const PAPER_PROGRAM: f64 = 500.39;
const PAPER_TOTAL: f64 = 502.28;
const PAPER_RYZEN: f64 = 3970.0;
/// What they were measured with (sections 5 and 6).
const PAPER_RING_DEGREE: usize = 16384;
const PAPER_CLOCK_MHZ: u32 = 200;
const PAPER_ENGINE: Peer = Peer {
    heading: "paper, n = 800, N = 16384, 200 MHz (Table 11)",
    times: &[
        ("Bootstrap", PAPER_BOOTSTRAP),
        ("HomAdd", PAPER_HOM_ADD),
        ("HomSub", PAPER_HOM_SUB),
    ],
};

/// What a set can multiply: the sum and the difference enter a function of p bits, the product leaves over the whole torus.
struct Ranges {
    sums: RangeInclusive<i64>,
    products: RangeInclusive<i64>,
}

impl Ranges {
    fn new(encoding: Encoding) -> Ranges {
        let inclusive = |range: std::ops::Range<i64>| range.start..=range.end - 1;
        Ranges {
            sums: inclusive(encoding.messages()),
            products: inclusive(encoding.outputs()),
        }
    }

    fn check(&self, x: i64, y: i64, params: &ParamSet) -> anyhow::Result<()> {
        let whole = |what: &str, value: i128, range: &RangeInclusive<i64>| {
            anyhow::ensure!(
                i64::try_from(value).is_ok_and(|value| range.contains(&value)),
                "{what} = {value} is outside {}..={}, the range of parameter set {}",
                range.start(),
                range.end(),
                params.name
            );
            Ok(())
        };
        let (x, y) = (i128::from(x), i128::from(y));
        whole("x", x, &self.sums)?;
        whole("y", y, &self.sums)?;
        whole("x + y", x + y, &self.sums)?;
        whole("x - y", x - y, &self.sums)?;
        whole("x * y", x * y, &self.products)
    }
}

/// The factors: as given, or random ones that the set can multiply.
fn factors(args: &Args, ranges: &Ranges, rng: &mut Csprng) -> anyhow::Result<(i64, i64)> {
    let largest = *ranges.products.end();
    let one = |given: Option<i64>, other: Option<i64>, rng: &mut Csprng| {
        given.unwrap_or_else(|| {
            // Not far beyond what the product has room for: of all factors in range few would do.
            let most = match other {
                Some(other) => largest / other.saturating_abs().max(1),
                None => largest.isqrt(),
            };
            let most = most.clamp(0, *ranges.sums.end());
            let count = (2 * most + 1).cast_unsigned();
            (rng.next_u64() % count).cast_signed() - most
        })
    };
    if let (Some(x), Some(y)) = (args.x, args.y) {
        ranges.check(x, y, args.params)?;
        return Ok((x, y));
    }
    /// Tries after which a given factor is taken to have no partner.
    const TRIES: usize = 10_000;
    for _ in 0..TRIES {
        let (x, y) = (one(args.x, args.y, rng), one(args.y, args.x, rng));
        if ranges.check(x, y, args.params).is_ok() {
            return Ok((x, y));
        }
    }
    // Zero goes with everything in the range: the given factor itself is outside.
    ranges.check(args.x.unwrap_or(0), args.y.unwrap_or(0), args.params)?;
    Ok((args.x.unwrap_or(0), args.y.unwrap_or(0)))
}

/// Commands of one kind of a step of Table 6.
#[derive(Default)]
struct Sum {
    commands: usize,
    bytes: u64,
    time: Duration,
}

impl Sum {
    fn of(issued: &[Issued], purpose: Purpose) -> Sum {
        issued
            .iter()
            .filter(|issued| issued.purpose == purpose)
            .fold(Sum::default(), |sum, issued| Sum {
                commands: sum.commands + 1,
                bytes: sum.bytes + issued.bytes,
                time: sum.time + issued.duration,
            })
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Prints steps of Table 6 as they are done, and keeps them.
struct Table<'a> {
    output: &'a Output,
    /// Whether metadata goes beside the data.
    beside: bool,
    number: usize,
    rows: Vec<serde_json::Value>,
}

impl Table<'_> {
    /// Two commands of Table 6: the metadata's and the data's.
    fn step(&mut self, verb: &str, metadata: &str, data: &str, comment: &str, issued: &[Issued]) {
        let sums = [
            (
                format!("{verb}({metadata})"),
                Sum::of(issued, Purpose::Metadata),
                "metadata",
            ),
            (
                format!("{verb}({data})"),
                Sum::of(issued, Purpose::Data),
                comment,
            ),
        ];
        for (command, sum, comment) in sums {
            self.number += 1;
            let carried = self.beside && comment == "metadata";
            let figures = if carried {
                "travels with the data".to_owned()
            } else {
                format!(
                    "{:>6} × {:>10} {:>10.3} ms",
                    sum.commands,
                    display_size(sum.bytes.checked_div(sum.commands as u64).unwrap_or(0)),
                    milliseconds(sum.time)
                )
            };
            self.output.line(format!(
                "{:>3}  {command:<17} {comment:<38} {figures}",
                self.number
            ));
            self.rows.push(json!({
                "number": self.number,
                "command": command,
                "comment": comment,
                "nvme_commands": sum.commands,
                "bytes": sum.bytes,
                "ms": milliseconds(sum.time),
            }));
        }
    }
}

/// Mean time of the program's instructions of one kind.
fn mean(
    instructions: &[toroid_engine::InstructionTiming],
    wanted: impl Fn(&Instruction) -> bool,
) -> Option<f64> {
    let times: Vec<f64> = instructions
        .iter()
        .filter(|timing| wanted(&timing.instruction))
        .map(|timing| milliseconds(timing.duration))
        .collect();
    (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
}

/// Runs the demo.
pub fn run(args: &Args, output: &Output) -> anyhow::Result<()> {
    let started = Instant::now();
    let params = args.params;
    if params.message_bits == 0 {
        let integers = ParamSet::ALL.iter().filter(|set| set.message_bits > 0);
        let names: Vec<_> = integers.map(|set| set.name).collect();
        anyhow::bail!(
            "parameter set {} is for Boolean gates; the demo multiplies integers: take one of {}",
            params.name,
            names.join(", ")
        );
    }
    let computing = args.backend.choose(args.drive.as_ref(), output)?;
    let encoding = Encoding::new(params.message_bits, true)?;
    let ranges = Ranges::new(encoding);
    let mut rng = Csprng::from_os()?;
    let (x, y) = factors(args, &ranges, &mut rng)?;
    let expected = x * y;
    if let Some(simulated) = &computing.simulated {
        simulated.prepare(params)?;
    }

    let security = if params.is_insecure() {
        "INSECURE".to_owned()
    } else {
        format!("{}-bit security", params.security.bits)
    };
    output.line(format!(
        "x = {x}, y = {y}; parameter set {} ({security}, n = {}, N = {}); {}",
        params.name,
        params.lwe_dimension,
        params.ring_degree,
        machine::describe()
    ));
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let location = match &args.drive {
        Some(location) => location.clone(),
        None => {
            let image = args.image.clone();
            let image = image.unwrap_or_else(|| folder.path().join("demo.img"));
            let keys = KeyForm::Seeded.bootstrapping_key_bytes(params)
                + KeyForm::Seeded.key_switching_key_bytes(params);
            let options = FormatOptions {
                // A power of two that holds the keys and leaves room for the rest.
                size: (keys + (256 << 20)).next_power_of_two(),
                metadata_mode: args.metadata.unwrap_or(Metadata::SecondHalf).into(),
                label: "toroid demo".to_owned(),
                ..FormatOptions::default()
            };
            create_image(&image, options)?;
            Location::Image(image)
        }
    };
    let opened = Opened::open(&location, &args.host, &computing, None)?;
    let key_id = match args.key_id {
        Some(key_id) => key_id,
        None => free_key_id(&opened)?,
    };
    if let Some(sc) = stored(&opened, key_id).first().and_then(|blob| blob.sc) {
        anyhow::bail!(
            "key id {key_id} is in use on {location}, which stores {}: give another with --key-id",
            sc.vr()
        );
    }
    if args.drive.is_some() {
        output.line(format!("{location}, key id {key_id}"));
    }
    let outcome = multiply(args, output, &opened, key_id, (x, y), encoding, &mut rng);
    if args.drive.is_some() {
        for blob in stored(&opened, key_id) {
            // The drive may be out of reach by now; what went wrong comes first.
            let deleted = opened
                .drive
                .wait(opened.session().store().delete_blob(blob.id));
            if let Err(error) = deleted {
                output.note(format!("{} stays on {location}: {error}", blob.name));
            }
        }
    }
    let closed = opened.close();
    let outcome = outcome?;
    closed?;

    let total_ms = milliseconds(started.elapsed());
    let log2_p_fail = outcome.log2_p_fail;
    let value = json!({
        "x": x,
        "y": y,
        "result": outcome.result,
        "expected": expected,
        "correct": outcome.result == expected,
        "p_fail": log2_p_fail.exp2(),
        "log2_p_fail": log2_p_fail,
        "drive": args.drive.as_ref().map(Location::to_string),
        "key_id": key_id,
        "params": params.name,
        "security_bits": params.security.bits,
        "arithmetic": arithmetic_of(args, &computing),
        "bootstrap_ms": outcome.bootstrap_ms,
        "hom_add_ms": outcome.hom_add_ms,
        "hom_sub_ms": outcome.hom_sub_ms,
        "program_ms": outcome.program_ms,
        "trigger_ms": outcome.trigger_ms,
        "total_ms": total_ms,
        "peak_rss_mb": machine::peak_rss_mib(),
        "machine": machine::describe(),
        "commands": outcome.rows,
        "rtl": computing.simulated.as_ref().map(|simulated| simulated.value(params)),
        "paper": {
            "ring_degree": PAPER_RING_DEGREE,
            "clock_mhz": PAPER_CLOCK_MHZ,
            "bootstrap_ms": PAPER_BOOTSTRAP,
            "hom_add_ms": PAPER_HOM_ADD,
            "hom_sub_ms": PAPER_HOM_SUB,
            "program_ms": PAPER_PROGRAM,
            "trigger_ms": PAPER_TOTAL,
            "bootstrap_ryzen_9_5950x_ms": PAPER_RYZEN,
        },
    });
    output.result(&value, || {
        let mut text = match &computing.simulated {
            Some(simulated) => simulated_times(simulated, params, &outcome),
            None => times(&outcome),
        };
        text += &format!(
            "\n\ndecrypted: {x} × {y} = {}{}",
            outcome.result,
            if outcome.result == expected {
                ""
            } else {
                "  WRONG"
            }
        );
        text += &format!("\nfailure probability {}", power_of_two(log2_p_fail));
        text += &format!("\n{:.1} s in all", total_ms / 1e3);
        if let Some(peak) = machine::peak_rss_mib() {
            text += &format!(", peak memory {peak:.0} MiB");
        }
        text
    })?;
    anyhow::ensure!(
        outcome.result == expected,
        "the decrypted result {} is not {x} · {y} = {expected}",
        outcome.result
    );
    Ok(())
}

/// The times of the program's parts, beside those of the paper.
fn times(outcome: &Outcome) -> String {
    let row = |what: &str, ours: Option<f64>, paper: f64| {
        let ours = ours.map_or("-".to_owned(), |ours| format!("{ours:.3} ms"));
        format!("\n{what:<42} {ours:>14} {paper:>11.3} ms")
    };
    let mut text = format!("\n{:<42} {:>14} {:>14}", "time", "here", "paper (FPGA)");
    text += &row(
        "Bootstrap (Tables 11, 12)",
        outcome.bootstrap_ms,
        PAPER_BOOTSTRAP,
    );
    text += &row("HomAdd (Table 11)", outcome.hom_add_ms, PAPER_HOM_ADD);
    text += &row("HomSub (Table 11)", outcome.hom_sub_ms, PAPER_HOM_SUB);
    text += &row(
        "program of Table 5 (Table 13)",
        outcome.program_ms,
        PAPER_PROGRAM,
    );
    text += &row(
        "the Write that triggers it (Table 13)",
        Some(outcome.trigger_ms),
        PAPER_TOTAL,
    );
    text + &format!(
        "\nthe paper's software (TFHEpp, Ryzen 9 5950X, 16 cores): {:.2} s a Bootstrap",
        PAPER_RYZEN / 1e3
    )
}

/// The cycles of the simulated engine, with their time at its clock beside the paper's.
fn simulated_times(simulated: &Simulated, params: &ParamSet, outcome: &Outcome) -> String {
    let mut text = format!("\n{}", simulated.table(params, Some(&PAPER_ENGINE)));
    if params.ring_degree != PAPER_RING_DEGREE {
        text += "\nthe paper's N is another: engines compare by sets of the same N";
    }
    if let Some(program_ms) = outcome.program_ms {
        text += &format!("\nthe program took {:.1} s of simulation", program_ms / 1e3);
    }
    text
}

/// What the drive stores for a key id.
fn stored(opened: &Opened, key_id: u32) -> Vec<BlobStat> {
    let mut blobs = opened.session().store().list();
    blobs.retain(|blob| blob.sc.is_some_and(|sc| sc.vr().key_id() == key_id));
    blobs
}

/// The first key id that the drive stores nothing for.
fn free_key_id(opened: &Opened) -> anyhow::Result<u32> {
    let blobs = opened.session().store().list();
    let used: HashSet<u32> = blobs
        .iter()
        .filter_map(|blob| Some(blob.sc?.vr().key_id()))
        .collect();
    (0..=VrNumber::MAX_KEY_ID)
        .find(|key_id| !used.contains(key_id))
        .context("every key id is in use")
}

/// The arithmetic, where it is for this program to choose.
fn arithmetic_of(args: &Args, computing: &Computing) -> Option<String> {
    match &args.drive {
        None | Some(Location::Image(_)) => Some(computing.backend.arithmetic().to_string()),
        _ => None,
    }
}

struct Outcome {
    result: i64,
    log2_p_fail: f64,
    bootstrap_ms: Option<f64>,
    hom_add_ms: Option<f64>,
    hom_sub_ms: Option<f64>,
    program_ms: Option<f64>,
    trigger_ms: f64,
    rows: Vec<serde_json::Value>,
}

fn multiply(
    args: &Args,
    output: &Output,
    opened: &Opened,
    key_id: u32,
    (x, y): (i64, i64),
    encoding: Encoding,
    rng: &mut Csprng,
) -> anyhow::Result<Outcome> {
    let params = args.params;
    let session = opened.session();
    // The key never leaves this process.
    secret::guard_process();
    let client = ClientKey::generate(params, rng);
    let assembly = toroid_isa::assemble_for(key_id, PROGRAM).context("the program of Table 5")?;
    let namespace = opened.drive.info().namespace(opened.drive.nsid());
    opened.recorder.take();
    let mut table = Table {
        output,
        beside: namespace.is_some_and(|namespace| namespace.metadata_size() > 0),
        number: 0,
        rows: Vec::new(),
    };
    output.line("\nTable 6, command by command; keys are generated as they are written:");

    let md = |ty: u8, data_id: u32| format!("MD({ty},{key_id},{data_id})");
    for (kind, metadata, data, comment, message) in [
        (
            KeyKind::Bootstrapping,
            &md(2, 1),
            "k0",
            "BKNTT: bootstrapping key",
            "bootstrapping key",
        ),
        (
            KeyKind::KeySwitching,
            &md(2, 2),
            "k1",
            "KSK: key-switching key",
            "key-switching key",
        ),
    ] {
        let bar = progress::bar(output, message);
        opened.wait(session.generate_key(key_id, &client, kind, &progress::report_to(&bar)))?;
        bar.finish_and_clear();
        table.step("Write", metadata, data, comment, &opened.recorder.take());
    }
    for vector in &assembly.test_vectors {
        opened.wait(session.put_test_vector(params, vector))?;
    }
    table.step(
        "Write",
        &md(1, 0),
        "v0",
        "TV1: test vector of f(x) = x²/4",
        &opened.recorder.take(),
    );
    opened.wait(session.put_program(key_id, params, &assembly.program))?;
    table.step(
        "Write",
        &md(0, 0),
        "p",
        "PRG: the program of Table 5",
        &opened.recorder.take(),
    );

    let x_register = VrNumber::new(VrType::LweCor, key_id, 1)?;
    let y_register = VrNumber::new(VrType::LweCow, key_id, 2)?;
    let sample = client.encrypt_from(encoding, x, rng)?;
    opened.wait(session.put_sample(x_register, &sample))?;
    table.step(
        "Write",
        &md(3, 1),
        "s1",
        "TLWE-CoR: x",
        &opened.recorder.take(),
    );
    let sample = client.encrypt_from(encoding, y, rng)?;
    opened.wait(session.put_sample(y_register, &sample))?;
    let issued = opened.recorder.take();
    let trigger_ms = milliseconds(Sum::of(&issued, Purpose::Data).time);
    table.step(
        "Write",
        &md(4, 2),
        "s2",
        "TLWE-CoW: y; runs the program",
        &issued,
    );
    let stored = opened.wait(session.get_sample(y_register))?;
    table.step(
        "Read",
        &md(4, 2),
        "s2",
        "TLWE-CoW: the result",
        &opened.recorder.take(),
    );

    anyhow::ensure!(
        stored.computed,
        "the drive stored y, but ran no program: it is not a computational drive"
    );
    // A drive that is not in this process does not tell what each instruction took.
    let run = opened.program_run();
    let time = |wanted: fn(&Instruction) -> bool| mean(&run.as_ref()?.instructions, wanted);
    Ok(Outcome {
        // Whatever its failure probability is: it is shown beside the product.
        result: client.decrypt_above(&stored.ciphertext, 0.0)?,
        log2_p_fail: stored.ciphertext.log2_failure(),
        bootstrap_ms: time(|i| matches!(i, Instruction::Bootstrap { .. })),
        hom_add_ms: time(|i| matches!(i, Instruction::HomAdd { .. })),
        hom_sub_ms: time(|i| matches!(i, Instruction::HomSub { .. })),
        program_ms: run.as_ref().map(|run| milliseconds(run.duration)),
        trigger_ms,
        rows: table.rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroid_tfhe::params::{MESSAGE7, MESSAGE14, MESSAGE16, PAPER};

    #[test]
    fn ranges_are_those_of_the_message_width() {
        let ranges = Ranges::new(Encoding::new(7, true).unwrap());
        assert!(ranges.check(7, -5, &MESSAGE7).is_ok());
        assert!(ranges.check(-16, 8, &MESSAGE7).is_ok());
        assert!(
            ranges.check(16, 8, &MESSAGE7).is_err(),
            "128 is the first product too large"
        );
        assert!(ranges.check(40, 24, &MESSAGE7).is_err());
        assert!(ranges.check(i64::MAX, i64::MIN, &MESSAGE7).is_err());
        let ranges = Ranges::new(Encoding::new(4, true).unwrap());
        assert!(ranges.check(5, -2, &PAPER).is_ok());
        assert!(ranges.check(7, 7, &PAPER).is_err());
        let ranges = Ranges::new(Encoding::new(14, true).unwrap());
        // All whose squares over 4 fit, and more.
        for (x, y) in [
            (90, 91),
            (-100, -77),
            (100, -77),
            (181, 0),
            (-127, 129),
            (4096, 3),
        ] {
            assert!(ranges.check(x, y, &MESSAGE14).is_ok(), "{x}, {y}");
        }
        assert!(ranges.check(-128, -128, &MESSAGE14).is_err());
        assert!(ranges.check(4096, 4096, &MESSAGE14).is_err());
    }

    #[test]
    fn random_factors_are_in_range() {
        let args = |params, x, y| Args {
            x,
            y,
            params,
            metadata: None,
            image: None,
            drive: None,
            key_id: None,
            backend: BackendArgs::default(),
            host: HostArgs::default(),
        };
        let ranges = Ranges::new(Encoding::new(7, true).unwrap());
        let mut rng = Csprng::from_seed([1; 32]);
        for _ in 0..200 {
            let (x, y) = factors(&args(&MESSAGE7, None, None), &ranges, &mut rng).unwrap();
            ranges.check(x, y, &MESSAGE7).unwrap();
            let (x, y) = factors(&args(&MESSAGE7, Some(60), None), &ranges, &mut rng).unwrap();
            assert_eq!(x, 60);
            ranges.check(x, y, &MESSAGE7).unwrap();
        }
        for given in [Some(70), Some(i64::MIN), Some(i64::MAX)] {
            assert!(factors(&args(&MESSAGE7, given, None), &ranges, &mut rng).is_err());
        }
        assert!(factors(&args(&MESSAGE7, None, Some(-70)), &ranges, &mut rng).is_err());
        let ranges = Ranges::new(Encoding::new(16, true).unwrap());
        let nonzero = (0..200).filter(|_| {
            let (x, y) =
                factors(&args(&MESSAGE16, Some(-30_000), None), &ranges, &mut rng).unwrap();
            ranges.check(x, y, &MESSAGE16).unwrap();
            y != 0
        });
        assert!(nonzero.count() > 100);
    }
}
