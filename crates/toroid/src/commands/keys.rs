//! `toroid keys`: generation and inspection.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use serde_json::json;
use toroid_client::session::public_key;
use toroid_isa::KeyKind;
use toroid_nvme::fabrics::auth::{AuthHash, Secret};
use toroid_task::Progress;
use toroid_tfhe::keys::{ClientKey, KeyTag, Sink};
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::KeyForm;
use toroid_tfhe::serialize::{self, Header, Kind, ObjectReader, ObjectWriter};

use super::{open, parse_param_set, write_file};
use crate::interrupt;
use crate::output::Output;
use crate::progress;

/// Subcommands of `toroid keys`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Make a client key and the public keys that a drive computes with.
    Generate(GenerateArgs),
    /// Show what a file holds, and check it.
    Info(InfoArgs),
    /// Make a secret by which a host, or a drive's controller, authenticates over NVMe/TCP.
    HostSecret(HostSecretArgs),
}

/// Arguments of `toroid keys host-secret`.
#[derive(clap::Args)]
pub struct HostSecretArgs {
    /// The file, readable by its owner alone.
    #[arg(long, short)]
    out: PathBuf,
    /// Hash function that the secret is for, and its length.
    #[arg(long, value_enum, default_value_t = SecretHash::Sha256)]
    hash: SecretHash,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
}

/// Hash function of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SecretHash {
    /// 32 bytes.
    Sha256,
    /// 48 bytes.
    Sha384,
    /// 64 bytes.
    Sha512,
}

impl From<SecretHash> for AuthHash {
    fn from(hash: SecretHash) -> AuthHash {
        match hash {
            SecretHash::Sha256 => AuthHash::Sha256,
            SecretHash::Sha384 => AuthHash::Sha384,
            SecretHash::Sha512 => AuthHash::Sha512,
        }
    }
}

/// Arguments of `toroid keys generate`.
#[derive(clap::Args)]
pub struct GenerateArgs {
    /// Parameter set (see `toroid params`).
    #[arg(long, default_value = "message7", value_parser = parse_param_set)]
    params: &'static ParamSet,
    /// Folder for client.key, bootstrapping.key and key-switching.key; made if it is not there.
    #[arg(long, short, default_value = "keys")]
    out: PathBuf,
    /// The client key alone.
    #[arg(long)]
    client_only: bool,
    /// Write public keys with all their words instead of seed and bodies: two to five times as large, both together.
    #[arg(long)]
    expanded: bool,
    /// Replace existing files.
    #[arg(long)]
    force: bool,
}

/// Arguments of `toroid keys info`.
#[derive(clap::Args)]
pub struct InfoArgs {
    /// A file of this program: key, sample or test vector.
    file: PathBuf,
}

/// Runs a subcommand.
pub fn run(command: &Command, output: &Output) -> anyhow::Result<()> {
    match command {
        Command::Generate(args) => generate(args, output),
        Command::Info(args) => info(args, output),
        Command::HostSecret(args) => host_secret(args, output),
    }
}

fn host_secret(args: &HostSecretArgs, output: &Output) -> anyhow::Result<()> {
    let hash = AuthHash::from(args.hash);
    let secret = Secret::generate(hash)?;
    write_file(&args.out, args.force, true, |writer| {
        writer.write_all(secret.to_text().as_bytes())?;
        writer.write_all(b"\n")?;
        Ok(())
    })?;
    let shown = args.out.display().to_string();
    output.result(&json!({ "file": shown, "hash": hash.to_string() }), || {
        format!("{shown}: secret for {hash}; keep it secret, on the host and on the drive's side")
    })
}

/// Reads a client key.
pub fn read_client_key(path: &Path) -> anyhow::Result<ClientKey> {
    // Unbuffered: a buffer would keep the key after use.
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    serialize::read_client_key(file).with_context(|| path.display().to_string())
}

/// Stands in a file that does not say which client key it belongs to: a sample that a drive gave back.
pub const NO_TAG: KeyTag = [0; 16];

/// The tag for people.
pub fn tag_text(tag: &KeyTag) -> String {
    if *tag == NO_TAG {
        return "not stated".to_owned();
    }
    tag.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn generate(args: &GenerateArgs, output: &Output) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make {}", args.out.display()))?;
    let started = Instant::now();
    let mut rng = Csprng::from_os()?;
    let client = ClientKey::generate(args.params, &mut rng);
    let client_path = args.out.join("client.key");
    let mut files = Vec::new();
    let form = if args.expanded {
        KeyForm::Expanded
    } else {
        KeyForm::Seeded
    };
    let public = [
        (
            Kind::bootstrapping_key(form),
            "bootstrapping.key",
            "bootstrapping key",
        ),
        (
            Kind::key_switching_key(form),
            "key-switching.key",
            "key-switching key",
        ),
    ];
    // Refused before the work, not after it.
    for path in public
        .iter()
        .map(|(_, name, _)| args.out.join(name))
        .chain([client_path.clone()])
    {
        anyhow::ensure!(
            args.force || !path.exists(),
            "{} exists; --force replaces it",
            path.display()
        );
    }
    let mut make = || -> anyhow::Result<()> {
        write_file(&client_path, args.force, true, |writer| {
            serialize::write_client_key(writer, &client)?;
            Ok(())
        })?;
        files.push(client_path.clone());
        if !args.client_only {
            for (kind, name, message) in public {
                let path = args.out.join(name);
                write_file(&path, args.force, false, |writer| {
                    let header = Header::new(kind, args.params, *client.tag());
                    let mut object = ObjectWriter::new(writer, &header)?;
                    let bar = progress::bar(output, message);
                    generate_public(
                        &client,
                        kind,
                        &mut rng,
                        &progress::report_to(&bar),
                        &mut |bytes| object.write(bytes),
                    )?;
                    object.finish()?;
                    bar.finish();
                    Ok(())
                })?;
                files.push(path);
            }
        }
        Ok(())
    };
    let made = make();
    if made.is_err() {
        // Keys are of use together only, and in the way of the next try.
        for path in &files {
            let _ = std::fs::remove_file(path);
        }
    }
    made?;
    let seconds = started.elapsed().as_secs_f64();
    let names: Vec<String> = files
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let value = json!({
        "params": args.params.name,
        "tag": tag_text(client.tag()),
        "files": names,
        "seconds": seconds,
        "security_bits": args.params.security.bits,
    });
    output.result(&value, || {
        let warning = if args.params.is_insecure() {
            "\nwarning: this set is for tests and protects nothing"
        } else {
            ""
        };
        format!(
            "{} in {seconds:.1} s, parameter set {}, tag {}{warning}\nKeep {} secret; the others are for the drive.",
            names.join(", "),
            args.params.name,
            tag_text(client.tag()),
            client_path.display()
        )
    })
}

fn generate_public(
    client: &ClientKey,
    kind: Kind,
    rng: &mut Csprng,
    progress: &Progress,
    sink: &mut Sink<'_>,
) -> anyhow::Result<()> {
    match public_key(kind) {
        Some((KeyKind::Bootstrapping, form)) => {
            client.bootstrapping_key(form, rng, progress, sink)?;
        }
        Some((KeyKind::KeySwitching, form)) => {
            client.key_switching_key(form, rng, progress, sink)?;
        }
        None => anyhow::bail!("a {} is not a public key", kind.name()),
    }
    Ok(())
}

fn info(args: &InfoArgs, output: &Output) -> anyhow::Result<()> {
    let shown = args.file.display();
    let mut reader = ObjectReader::new(open(&args.file)?).with_context(|| shown.to_string())?;
    let header = reader.header().clone();
    let total = header.kind.payload_bytes(&header.params);
    let bar = progress::bar(output, "checking");
    let mut done = 0;
    while let Some(chunk) = reader.next_chunk().with_context(|| shown.to_string())? {
        anyhow::ensure!(!interrupt::token().is_cancelled(), "cancelled");
        done += chunk.len() as u64;
        progress::advance(&bar, done, total);
    }
    bar.finish_and_clear();
    let value = json!({
        "file": shown.to_string(),
        "kind": header.kind.name(),
        "params": header.params.name,
        "tag": tag_text(&header.tag),
        "payload_bytes": total,
        "message_bits": header.encoding.map(|encoding| encoding.bits()),
        "signed": header.encoding.map(|encoding| encoding.is_signed()),
        "log2_variance": header.log2_variance,
        "log2_p_fail": header.log2_failure,
    });
    output.result(&value, || {
        let mut text = format!(
            "{shown}: {} of parameter set {}, {total} bytes, tag {}; all checksums match",
            header.kind.name(),
            header.params.name,
            tag_text(&header.tag)
        );
        if let Some(encoding) = header.encoding {
            let sign = if encoding.is_signed() {
                "signed"
            } else {
                "unsigned"
            };
            text += &format!("\n{sign} messages of {} bits", encoding.bits());
        }
        text
    })
}
