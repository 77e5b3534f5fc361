//! `toroid keys`: generation, inspection, passphrases.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use serde_json::json;
use toroid_client::session::public_key;
use toroid_isa::KeyKind;
use toroid_nvme::fabrics::auth::{AuthHash, Secret, TlsKey};
use toroid_task::Progress;
use toroid_tfhe::encrypted_key::{self, Cost};
use toroid_tfhe::key_bits;
use toroid_tfhe::keys::{ClientKey, KeyTag, Sink};
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::KeyForm;
use toroid_tfhe::serialize::{self, Header, Kind, ObjectReader, ObjectWriter};
use zeroize::Zeroizing;

use super::{DEFAULT_SET, Staged, former, parse_param_set, place_set, refuse_existing, write_file};
use crate::output::Output;
use crate::passphrase::{NewPassphraseArgs, PassphraseArgs};
use crate::{interrupt, progress, secret};

/// Subcommands of `toroid keys`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Make a client key and the public keys that a drive computes with.
    Generate(GenerateArgs),
    /// Show what a file holds, and check it.
    Info(InfoArgs),
    /// Give a client key another passphrase, or none.
    Passphrase(ChangeArgs),
    /// Write the bits of a client key as text, for other programs to read.
    Export(ExportArgs),
    /// Make a client key of bits in text, and the public keys that go with it.
    Import(ImportArgs),
    /// Make a secret by which a host, or a drive's controller, authenticates over NVMe/TCP.
    HostSecret(HostSecretArgs),
    /// Make a pre-shared key with which a host and a subsystem encrypt NVMe/TCP by TLS.
    TlsKey(TlsKeyArgs),
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

/// Arguments of `toroid keys tls-key`.
#[derive(clap::Args)]
pub struct TlsKeyArgs {
    /// The file, readable by its owner alone.
    #[arg(long, short)]
    out: PathBuf,
    /// Hash function of the cipher suites that the key is for, and its length.
    #[arg(long, value_enum, default_value_t = TlsKeyHash::Sha256)]
    hash: TlsKeyHash,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
}

/// Hash function of a TLS key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TlsKeyHash {
    /// 32 bytes, for TLS_AES_128_GCM_SHA256.
    Sha256,
    /// 48 bytes, for TLS_AES_256_GCM_SHA384.
    Sha384,
}

impl From<TlsKeyHash> for AuthHash {
    fn from(hash: TlsKeyHash) -> AuthHash {
        match hash {
            TlsKeyHash::Sha256 => AuthHash::Sha256,
            TlsKeyHash::Sha384 => AuthHash::Sha384,
        }
    }
}

/// Arguments of `toroid keys generate`.
#[derive(clap::Args)]
pub struct GenerateArgs {
    /// Parameter set (see `toroid params`).
    #[arg(long, default_value = DEFAULT_SET, value_parser = parse_param_set)]
    params: &'static ParamSet,
    #[command(flatten)]
    keys: KeySetArgs,
}

/// Options of commands that write a set of keys.
#[derive(clap::Args)]
pub struct KeySetArgs {
    /// Folder for client.key, bootstrapping.key and key-switching.key; made if it is not there.
    #[arg(long, short, default_value = "keys")]
    out: PathBuf,
    /// The client key alone.
    #[arg(long)]
    client_only: bool,
    /// Write public keys with all their words instead of seed and bodies: two to five times as large, both together.
    #[arg(long)]
    expanded: bool,
    /// Write the client key without a passphrase: whoever reads the file can decrypt.
    #[arg(long)]
    unencrypted: bool,
    #[command(flatten)]
    passphrase: PassphraseArgs,
    /// Replace existing files.
    #[arg(long)]
    force: bool,
}

/// Arguments of `toroid keys export`.
#[derive(clap::Args)]
pub struct ExportArgs {
    /// The client key, encrypted or not.
    #[arg(default_value = "keys/client.key")]
    key: PathBuf,
    #[command(flatten)]
    passphrase: PassphraseArgs,
    /// The file, readable by its owner alone: it is not encrypted.
    #[arg(long, short)]
    out: PathBuf,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
}

/// Arguments of `toroid keys import`.
#[derive(clap::Args)]
pub struct ImportArgs {
    /// The text, in a file that is closed to others (mode 600).
    bits: PathBuf,
    #[command(flatten)]
    keys: KeySetArgs,
}

/// Arguments of `toroid keys passphrase`.
#[derive(clap::Args)]
pub struct ChangeArgs {
    /// The client key, encrypted or not.
    #[arg(default_value = "keys/client.key")]
    key: PathBuf,
    #[command(flatten)]
    passphrase: PassphraseArgs,
    #[command(flatten)]
    new: NewPassphraseArgs,
    /// Write the client key without a passphrase: whoever reads the file can decrypt.
    #[arg(long)]
    unencrypted: bool,
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
        Command::Generate(args) => make(&args.keys, output, |rng| {
            Ok(ClientKey::generate(args.params, rng))
        }),
        Command::Info(args) => info(args, output),
        Command::Passphrase(args) => change_passphrase(args, output),
        Command::Export(args) => export(args, output),
        Command::Import(args) => make(&args.keys, output, |rng| read_bits(&args.bits, rng)),
        Command::HostSecret(args) => host_secret(args, output),
        Command::TlsKey(args) => tls_key(args, output),
    }
}

fn host_secret(args: &HostSecretArgs, output: &Output) -> anyhow::Result<()> {
    let hash = AuthHash::from(args.hash);
    let secret = Secret::generate(hash)?;
    write_line(&args.out, args.force, &secret.to_text())?;
    let shown = args.out.display().to_string();
    output.result(&json!({ "file": shown, "hash": hash.to_string() }), || {
        format!("{shown}: secret for {hash}; keep it secret, on the host and on the drive's side")
    })
}

fn tls_key(args: &TlsKeyArgs, output: &Output) -> anyhow::Result<()> {
    let hash = AuthHash::from(args.hash);
    let key = TlsKey::generate(hash)?;
    write_line(&args.out, args.force, &key.to_text())?;
    let shown = args.out.display().to_string();
    output.result(&json!({ "file": shown, "hash": hash.to_string() }), || {
        format!("{shown}: TLS key for {hash}; keep it secret, on the host and on the drive's side")
    })
}

/// Writes a secret text as a file's only line.
fn write_line(path: &Path, force: bool, text: &str) -> anyhow::Result<()> {
    write_file(path, force, true, |writer| {
        writer.write_all(text.as_bytes())?;
        writer.write_all(b"\n")?;
        Ok(())
    })
}

/// Reads a client key, encrypted or not.
pub fn read_client_key(
    path: &Path,
    passphrase: &PassphraseArgs,
    output: &Output,
) -> anyhow::Result<ClientKey> {
    secret::guard_process();
    let shown = || path.display().to_string();
    // Unbuffered: a buffer would keep the key after use.
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let reader = ObjectReader::new(&file).with_context(shown)?;
    let kind = reader.header().kind;
    // Other kinds are no secret, and refused as what they are.
    if [Kind::ClientKey, Kind::EncryptedClientKey].contains(&kind) {
        secret::check(&file, path)?;
    }
    let client = if kind == Kind::EncryptedClientKey {
        encrypted_key::read(reader, passphrase.get(path)?.as_bytes())
    } else {
        serialize::client_key(reader)
    }
    .with_context(shown)?;
    note_unlocked(&client, output);
    Ok(client)
}

fn note_unlocked(client: &ClientKey, output: &Output) {
    if !client.is_locked() {
        output.note("the client key may be swapped out: this process may not lock enough memory (ulimit -l)");
    }
}

/// Writes a client key, encrypted if there is a passphrase.
fn write_client_key(
    writer: impl Write,
    client: &ClientKey,
    passphrase: Option<&str>,
    rng: &mut Csprng,
) -> anyhow::Result<()> {
    match passphrase {
        Some(passphrase) => {
            let cost = Cost::default();
            encrypted_key::write(writer, client, passphrase.as_bytes(), cost, rng)?;
        }
        None => {
            serialize::write_client_key(writer, client)?;
        }
    }
    Ok(())
}

fn change_passphrase(args: &ChangeArgs, output: &Output) -> anyhow::Result<()> {
    let client = read_client_key(&args.key, &args.passphrase, output)?;
    let passphrase = (!args.unencrypted)
        .then(|| args.new.choose(&args.key))
        .transpose()?;
    let passphrase = passphrase.as_ref().map(|passphrase| passphrase.as_str());
    write_file(&args.key, true, true, |writer| {
        write_client_key(writer, &client, passphrase, &mut Csprng::from_os()?)
    })?;
    let shown = args.key.display().to_string();
    let value = json!({ "file": shown, "encrypted": !args.unencrypted });
    output.result(&value, || {
        if args.unencrypted {
            format!("{shown} is not encrypted any more: whoever reads it can decrypt")
        } else {
            format!("{shown} is encrypted under the new passphrase")
        }
    })
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

fn export(args: &ExportArgs, output: &Output) -> anyhow::Result<()> {
    refuse_existing(&args.out, args.force)?;
    let client = read_client_key(&args.key, &args.passphrase, output)?;
    write_file(&args.out, args.force, true, |writer| {
        Ok(writer.write_all(key_bits::to_text(&client).as_bytes())?)
    })?;
    let shown = args.out.display().to_string();
    let params = client.params().name;
    let value = json!({ "file": shown, "params": params, "tag": tag_text(client.tag()) });
    output.result(&value, || {
        format!("{shown}: the bits of a client key of parameter set {params}; they are not encrypted: whoever reads them can decrypt")
    })
}

/// Reads the client key of a text.
fn read_bits(path: &Path, rng: &mut Csprng) -> anyhow::Result<ClientKey> {
    let shown = path.display();
    // Room for all of it from the start: a buffer that grows leaves copies behind.
    let mut text = Zeroizing::new(String::with_capacity(key_bits::MAX_TEXT));
    let mut file = secret::open(path)?.take(key_bits::MAX_TEXT as u64);
    file.read_to_string(&mut text)
        .with_context(|| format!("cannot read {shown}"))?;
    key_bits::from_text(&text, rng).with_context(|| shown.to_string())
}

/// Makes a set of keys of the client key that `client` gives.
fn make(
    args: &KeySetArgs,
    output: &Output,
    client: impl FnOnce(&mut Csprng) -> anyhow::Result<ClientKey>,
) -> anyhow::Result<()> {
    let form = if args.expanded {
        KeyForm::Expanded
    } else {
        KeyForm::Seeded
    };
    let client_path = args.out.join("client.key");
    let public: &[_] = &[
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
    let public = if args.client_only { &[] } else { public };
    // The client key first: where it is, the others are.
    let paths: Vec<PathBuf> = std::iter::once(client_path.clone())
        .chain(public.iter().map(|(_, name, _)| args.out.join(name)))
        .collect();
    // Refused before the work, not after it.
    for path in &paths {
        refuse_existing(path, args.force)?;
        let former = former(path);
        anyhow::ensure!(
            !former.exists(),
            "{former} exists: a generation of keys ended before it had replaced {path}; move {former} back, or remove it if {path} is \
             the key that you want",
            former = former.display(),
            path = path.display()
        );
    }
    let passphrase = (!args.unencrypted)
        .then(|| args.passphrase.choose(&client_path))
        .transpose()?;
    let passphrase = passphrase.as_ref().map(|passphrase| passphrase.as_str());

    secret::guard_process();
    let started = Instant::now();
    let mut rng = Csprng::from_os()?;
    let client = client(&mut rng)?;
    let params = client.params();
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make {}", args.out.display()))?;
    note_unlocked(&client, output);
    let mut set = vec![Staged::write(&client_path, true, |writer| {
        write_client_key(writer, &client, passphrase, &mut rng)
    })?];
    for (kind, name, message) in public {
        set.push(Staged::write(&args.out.join(name), false, |writer| {
            let header = Header::new(*kind, params, *client.tag());
            let mut object = ObjectWriter::new(writer, &header)?;
            let bar = progress::bar(output, message);
            generate_public(
                &client,
                *kind,
                &mut rng,
                &progress::report_to(&bar),
                &mut |bytes| object.write(bytes),
            )?;
            object.finish()?;
            bar.finish();
            Ok(())
        })?);
    }
    place_set(set, args.force)?;

    let seconds = started.elapsed().as_secs_f64();
    let names: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let value = json!({
        "params": params.name,
        "tag": tag_text(client.tag()),
        "files": names,
        "seconds": seconds,
        "security_bits": params.security.bits,
        "encrypted": !args.unencrypted,
    });
    output.result(&value, || {
        let warning = if params.is_insecure() {
            "\nwarning: this set is for tests and protects nothing".to_owned()
        } else if params.security.bits < 128 {
            format!(
                "\nwarning: this set has {} bits of security, less than the usual 128",
                params.security.bits
            )
        } else {
            String::new()
        };
        let kept = if args.unencrypted {
            "secret, it is not encrypted"
        } else {
            "secret, and its passphrase in mind"
        };
        format!(
            "{} in {seconds:.1} s, parameter set {}, tag {}{warning}\nKeep {} {kept}; the others are for the drive.",
            names.join(", "),
            params.name,
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
        Some((KeyKind::Ring | KeyKind::Conversion, _)) | None => {
            anyhow::bail!("a {} is not a public key", kind.name())
        }
    }
    Ok(())
}

fn info(args: &InfoArgs, output: &Output) -> anyhow::Result<()> {
    let shown = args.file.display();
    // Unbuffered: it may be a client key, and chunks are large.
    let file = File::open(&args.file).with_context(|| format!("cannot open {shown}"))?;
    let mut reader = ObjectReader::new(file).with_context(|| shown.to_string())?;
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
