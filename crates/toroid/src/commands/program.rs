//! `toroid asm` and `toroid disasm`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::json;
use toroid_client::session::test_vector_bytes;
use toroid_isa::{Assembly, AssumePresent};
use toroid_tfhe::params::ParamSet;

use super::{DEFAULT_SET, parse_param_set, read_limited, write_file};
use crate::output::Output;

/// Stack slots that a program may count on everywhere: the engine's default.
const STACK_SLOTS: usize = 256;

/// Arguments of `toroid asm`.
#[derive(clap::Args)]
pub struct AsmArgs {
    /// The program's text.
    source: PathBuf,
    /// File for the binary program.
    #[arg(long, short)]
    out: Option<PathBuf>,
    /// Parameter set to check the test vectors with.
    #[arg(long, default_value = DEFAULT_SET, value_parser = parse_param_set)]
    params: &'static ParamSet,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
}

/// Arguments of `toroid disasm`.
#[derive(clap::Args)]
pub struct DisasmArgs {
    /// A binary program.
    program: PathBuf,
}

/// Assembles a source file, with the files of values beside it, and verifies the program as far as it goes without a drive.
pub fn assemble_file(path: &Path) -> anyhow::Result<Assembly> {
    assemble_file_for(0, path)
}

/// The same for another key id where the text names none.
pub fn assemble_file_for(key_id: u32, path: &Path) -> anyhow::Result<Assembly> {
    let bytes = read_limited(path, toroid_isa::MAX_SOURCE_BYTES, "a program")?;
    let text = String::from_utf8(bytes)
        .with_context(|| format!("{} is not the text of a program", path.display()))?;
    let mut assembly = match toroid_isa::assemble_for(key_id, &text) {
        Ok(assembly) => assembly,
        Err(errors) => bail!("{}:\n{errors}", path.display()),
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    toroid_client::tables::read_files(&mut assembly, folder)
        .with_context(|| path.display().to_string())?;
    let environment = AssumePresent {
        stack_slots: STACK_SLOTS,
    };
    if let Err(errors) = toroid_isa::verify(&assembly.program, &environment, Some(&assembly)) {
        let reasons: Vec<String> = errors.iter().map(ToString::to_string).collect();
        bail!("{}:\n{}", path.display(), reasons.join("\n"));
    }
    Ok(assembly)
}

/// Runs `toroid asm`.
pub fn assemble(args: &AsmArgs, output: &Output) -> anyhow::Result<()> {
    let assembly = assemble_file(&args.source)?;
    let mut vectors = Vec::new();
    for vector in &assembly.test_vectors {
        let (_, _, report) = test_vector_bytes(args.params, vector)?;
        if report.wrapped > 0 {
            output.note(format!(
                "test vector {}: {} of {} values leave {} bits and padding, and stand modulo {}",
                report.name,
                report.wrapped,
                report.entries,
                report.bits.1,
                2u64 << report.bits.1
            ));
        }
        vectors.push(json!({
            "name": report.name,
            "register": report.vr.to_string(),
            "wrapped": report.wrapped,
            "entries": report.entries,
        }));
    }
    let bytes = toroid_isa::encode(&assembly.program);
    if let Some(out) = &args.out {
        write_file(out, args.force, false, |writer| {
            Ok(writer.write_all(&bytes)?)
        })?;
    }
    let value = json!({
        "instructions": assembly.program.len(),
        "bootstraps": assembly.program.bootstrap_count(),
        "bytes": bytes.len(),
        "test_vectors": vectors,
        "file": args.out.as_ref().map(|path| path.display().to_string()),
    });
    output.result(&value, || {
        format!(
            "{}: instructions: {}, bootstraps among them: {}; {} bytes; test vectors: {}",
            args.source.display(),
            assembly.program.len(),
            assembly.program.bootstrap_count(),
            bytes.len(),
            assembly.test_vectors.len()
        )
    })
}

/// Runs `toroid disasm`.
pub fn disassemble(args: &DisasmArgs, output: &Output) -> anyhow::Result<()> {
    let shown = args.program.display();
    let bytes = read_limited(&args.program, toroid_isa::MAX_ENCODED_BYTES, "a program")?;
    let program = toroid_isa::decode(&bytes).with_context(|| shown.to_string())?;
    let text = toroid_isa::disassemble(&program, &Default::default());
    output.result(&json!({ "text": text }), || text.trim_end().to_owned())
}
