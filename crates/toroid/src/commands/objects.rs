//! `toroid put` and `toroid get`.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::json;
use toroid_client::session::{Object, SessionError, StoredSample, public_key};
use toroid_isa::{Instruction, Program, TestVector, VrNumber};
use toroid_tfhe::Ciphertext;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::serialize::{HEADER_BYTES, Header, Kind, ObjectReader};

use super::program::assemble_file;
use super::{open, parse_param_set, read_limited, write_file};
use crate::backend::Simulated;
use crate::drive_args::DriveArgs;
use crate::ledger_args::LedgerArgs;
use crate::opened::Opened;
use crate::output::{Output, power_of_two, usage};
use crate::progress;

/// Arguments of `toroid put`.
#[derive(clap::Args)]
pub struct PutArgs {
    #[command(flatten)]
    drive: DriveArgs,
    #[command(flatten)]
    ledger: LedgerArgs,
    /// Keys, samples, programs (text or binary), in any number.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Register of a sample, such as cor:0:1 or cow:0:2 (type, key id, data id).
    #[arg(long = "as")]
    register: Option<VrNumber>,
    /// Key id for keys and programs.
    #[arg(long, default_value_t = 0)]
    key_id: u32,
    /// Parameter set of a program; that of the key id's objects on the drive if not given.
    #[arg(long, value_parser = parse_param_set)]
    params: Option<&'static ParamSet>,
    /// Replace keys of another client key. Programs no longer run on its columns.
    #[arg(long)]
    replace: bool,
}

/// Arguments of `toroid get`.
#[derive(clap::Args)]
pub struct GetArgs {
    #[command(flatten)]
    drive: DriveArgs,
    #[command(flatten)]
    ledger: LedgerArgs,
    /// Register of the sample, such as cow:0:2.
    register: VrNumber,
    /// File for the sample.
    #[arg(long, short)]
    out: PathBuf,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
}

/// Arguments of `toroid delete`.
#[derive(clap::Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    drive: DriveArgs,
    #[command(flatten)]
    ledger: LedgerArgs,
    /// Registers, such as cow:0:2, tv:0:0, prg:0:0 or key:0:1.
    #[arg(required = true)]
    registers: Vec<VrNumber>,
}

/// Reads a sample's file.
pub fn read_sample(path: &Path) -> anyhow::Result<Ciphertext> {
    let shown = || path.display().to_string();
    let sample = Ciphertext::read_from(open(path)?).with_context(shown)?;
    anyhow::ensure!(
        sample.encoding().is_some(),
        "{} states no message width",
        path.display()
    );
    Ok(sample)
}

/// Writes a sample to a file, with its noise and failure probability.
pub fn save_sample(path: &Path, force: bool, sample: &Ciphertext) -> anyhow::Result<()> {
    write_file(path, force, false, |writer| {
        sample.write_to(writer)?;
        Ok(())
    })
}

/// A file that can go to a drive, with what can be checked without the drive checked.
enum Content {
    Key(VrNumber, ParamSet),
    Sample(VrNumber, ParamSet),
    Program(Program, Vec<TestVector>),
}

fn content(path: &Path, args: &PutArgs) -> anyhow::Result<Content> {
    let shown = || path.display().to_string();
    let mut start = Vec::new();
    open(path)?
        .take(HEADER_BYTES as u64)
        .read_to_end(&mut start)
        .with_context(|| format!("cannot read {}", path.display()))?;
    if start.starts_with(b"TOROIDOB") {
        let bytes: [u8; HEADER_BYTES] = start
            .try_into()
            .map_err(|_| anyhow::anyhow!("{}: the file ends in its header", path.display()))?;
        let header = Header::from_bytes(&bytes).with_context(shown)?;
        if let Some((kind, _)) = public_key(header.kind) {
            let register = VrNumber::key(args.key_id, kind)?;
            return Ok(Content::Key(register, header.params));
        }
        return match header.kind {
            Kind::Sample => {
                let register = args.register.with_context(|| {
                    format!(
                        "{}: a sample needs its register: give --as, such as --as cor:0:1",
                        path.display()
                    )
                })?;
                Ok(Content::Sample(register, header.params))
            }
            kind => {
                bail!(
                    "{}: a {} does not go to a drive",
                    path.display(),
                    kind.name()
                )
            }
        };
    }
    let (program, test_vectors) = if start.starts_with(b"TSCP") {
        let bytes = read_limited(path, toroid_isa::MAX_ENCODED_BYTES, "a program")?;
        (toroid_isa::decode(&bytes).with_context(shown)?, Vec::new())
    } else {
        let assembly = assemble_file(path)?;
        (assembly.program, assembly.test_vectors)
    };
    if let Some(Instruction::Return { n }) = program.instructions().last() {
        anyhow::ensure!(
            n.key_id() == args.key_id,
            "{}: the program returns {n}, but is put for key id {}: give --key-id {}, or begin its text with .key {}",
            path.display(),
            args.key_id,
            n.key_id(),
            args.key_id
        );
    }
    Ok(Content::Program(program, test_vectors))
}

/// The parameter set that a key id is in use with on the drive.
pub fn params_on_drive(opened: &Opened, key_id: u32) -> anyhow::Result<&'static ParamSet> {
    opened
        .session()
        .store()
        .list()
        .iter()
        .filter_map(|blob| blob.sc)
        .find(|sc| sc.vr().key_id() == key_id)
        .and_then(|sc| ParamSet::by_id(sc.params()))
        .with_context(|| format!("the drive holds nothing of key id {key_id} yet: give --params"))
}

/// Refuses an object of another parameter set than the one that its key id is in use with on the drive: the registers
/// are empty when a command opens the drive, so that it would not notice before the program is run.
pub fn check_params(opened: &Opened, register: VrNumber, params: &ParamSet) -> anyhow::Result<()> {
    let other = opened
        .session()
        .store()
        .list()
        .iter()
        .filter_map(|blob| blob.sc)
        .filter(|sc| sc.vr().key_id() == register.key_id() && sc.vr() != register)
        .filter_map(|sc| ParamSet::by_id(sc.params()))
        .find(|set| set.id != params.id);
    if let Some(other) = other {
        bail!(
            "{register} would be of parameter set {}, but key id {} is in use with {} on this drive",
            params.name,
            register.key_id(),
            other.name
        );
    }
    Ok(())
}

/// Runs `toroid put`.
pub fn put(args: &PutArgs, output: &Output) -> anyhow::Result<()> {
    // All that can be refused without the drive is refused before anything is written.
    let contents = args
        .files
        .iter()
        .map(|path| Ok((path, content(path, args)?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let samples = contents
        .iter()
        .filter(|(_, content)| matches!(content, Content::Sample(..)))
        .count();
    if samples > 1 {
        return Err(usage(format!(
            "{samples} samples for one register: put them one by one"
        )));
    }
    if let (Some(register), 0) = (args.register, samples) {
        return Err(usage(format!(
            "--as {register} is for a sample, and there is none: programs and keys take their registers from --key-id"
        )));
    }
    let opened = args.drive.open_with(args.ledger.open_or_make(output)?)?;
    let others = contents.iter().filter_map(|(_, content)| match content {
        Content::Key(register, params) | Content::Sample(register, params) => {
            Some((*register, params.id))
        }
        Content::Program(..) => None,
    });
    let others: Vec<(VrNumber, u16)> = others.collect();
    let mut objects = Vec::new();
    let mut stored = Vec::new();
    for (path, content) in contents {
        let shown = path.display().to_string();
        let of_file = objects_of(args, &opened, path, content, &others);
        let of_file = of_file.with_context(|| shown.clone())?;
        for object in of_file {
            let register = object.metadata().vr();
            stored.push(json!({ "file": shown, "register": register.to_string() }));
            objects.push(object);
        }
    }
    let bar = progress::bar(output, "put");
    let progress = progress::report_to(&bar);
    let session = opened.session();
    let put = match args.replace {
        true => opened.wait(session.replace(objects, &progress)),
        false => opened.wait(session.put(objects, &progress)),
    };
    put.map_err(|error| match error.downcast_ref() {
        Some(SessionError::Source { vr, .. }) => {
            let register = vr.to_string();
            let mut rows = stored.iter();
            let row = rows.find(|row| row["register"] == register.as_str());
            let file = row.and_then(|row| row["file"].as_str());
            let shown = file.unwrap_or_default().to_owned();
            error.context(shown)
        }
        _ => error,
    })?;
    bar.finish_and_clear();
    opened.close()?;
    let value = json!({ "stored": stored });
    output.result(&value, || {
        let lines: Vec<String> = stored
            .iter()
            .map(|row| {
                format!(
                    "{} <- {}",
                    row["register"].as_str().unwrap_or(""),
                    row["file"].as_str().unwrap_or("")
                )
            })
            .collect();
        lines.join("\n")
    })
}

/// What a file brings to the drive.
fn objects_of(
    args: &PutArgs,
    opened: &Opened,
    path: &Path,
    content: Content,
    others: &[(VrNumber, u16)],
) -> anyhow::Result<Vec<Object<'static>>> {
    let of_key_id = |key_id| {
        let other = others.iter().find(|(vr, _)| vr.key_id() == key_id);
        other.and_then(|(_, params)| ParamSet::by_id(*params))
    };
    let check = |register: VrNumber, params: &ParamSet| {
        if let Some(other) = of_key_id(register.key_id()).filter(|other| other.id != params.id) {
            bail!(
                "{register} would be of parameter set {}, but another file for key id {} is of {}",
                params.name,
                register.key_id(),
                other.name
            );
        }
        check_params(opened, register, params)
    };
    match content {
        Content::Key(register, params) => {
            let reader = ObjectReader::new(open(path)?)?;
            check(register, &params)?;
            Ok(vec![Object::key(args.key_id, reader)?])
        }
        Content::Sample(register, params) => {
            let sample = read_sample(path)?;
            check(register, &params)?;
            Ok(vec![Object::sample(register, &sample)?])
        }
        Content::Program(program, test_vectors) => {
            let params = args
                .params
                .or_else(|| of_key_id(args.key_id))
                .map_or_else(|| params_on_drive(opened, args.key_id), Ok)?;
            let register = VrNumber::program(args.key_id)?;
            check(register, params)?;
            let mut objects = Vec::with_capacity(test_vectors.len() + 1);
            for vector in &test_vectors {
                check(vector.vr, params)?;
                objects.push(Object::test_vector(params, vector)?.0);
            }
            objects.push(Object::program(args.key_id, params, &program)?);
            Ok(objects)
        }
    }
}

/// Runs `toroid delete`.
pub fn delete(args: &DeleteArgs, output: &Output) -> anyhow::Result<()> {
    let opened = args.drive.open_with(args.ledger.open(output)?)?;
    let registers: BTreeSet<VrNumber> = args.registers.iter().copied().collect();
    // All of them or, where a number is mistyped, none.
    for register in &registers {
        let session = opened.session();
        session
            .find(*register)
            .ok_or(SessionError::Missing(*register))?;
    }
    for register in &registers {
        opened.wait(opened.session().delete(*register))?;
    }
    opened.close()?;
    let names: Vec<String> = registers.iter().map(ToString::to_string).collect();
    output.result(&json!({ "deleted": names }), || {
        format!("deleted {}", names.join(", "))
    })
}

/// Runs `toroid get`.
pub fn get(args: &GetArgs, output: &Output) -> anyhow::Result<()> {
    if !args.register.ty().is_sample() {
        return Err(usage(format!(
            "{} is not a register of a sample: only samples are fetched",
            args.register
        )));
    }
    anyhow::ensure!(
        args.force || !args.out.exists(),
        "{} exists; --force replaces it",
        args.out.display()
    );
    let opened = args.drive.open_for_reads(args.ledger.open(output)?)?;
    let sample = opened.wait(opened.session().get_sample(args.register))?;
    opened.close()?;
    save_sample(&args.out, args.force, &sample.ciphertext)?;
    report_sample(&args.out, &sample, None, output)
}

/// Prints where a sample went and what its decryption may be trusted; with what the simulated engine tells, if that made it.
pub fn report_sample(
    path: &Path,
    sample: &StoredSample,
    simulated: Option<&Simulated>,
    output: &Output,
) -> anyhow::Result<()> {
    let shown = path.display().to_string();
    let ciphertext = &sample.ciphertext;
    let log2_p_fail = ciphertext.encoding().map(|_| ciphertext.log2_failure());
    let mut value = json!({
        "file": shown,
        "register": sample.register.to_string(),
        "params": ciphertext.params().name,
        "computed": sample.computed,
        "log2_variance": ciphertext.noise().variance().log2(),
        "log2_p_fail": log2_p_fail,
    });
    if let Some(simulated) = simulated {
        value["rtl"] = simulated.value(ciphertext.params());
    }
    output.result(&value, || {
        let origin = if sample.computed {
            "computed by the drive"
        } else {
            "as it was stored"
        };
        let trust = log2_p_fail.map_or(String::new(), |log2| {
            format!(", failure probability {}", power_of_two(log2))
        });
        let table = simulated.map_or(String::new(), |simulated| {
            format!("{}\n", simulated.table(ciphertext.params(), None))
        });
        format!(
            "{table}{shown}: the sample of {}, {origin}{trust}",
            sample.register
        )
    })
}
