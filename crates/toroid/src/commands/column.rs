//! `toroid column` and `toroid map`: columns of numbers on a drive, and programs over them. `column run`, `pack` and `unpack` are for columns that
//! are the objects of registers.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, ensure};
use clap::Subcommand;
use serde_json::{Value, json};
use toroid_client::blob::BlobError;
use toroid_client::columns::{
    ColumnStat, EncryptedRows, MapPlan, MapRequest, RingRows, Route, RowForm, TimesLeft, Way,
    WayTimes, result_bytes,
};
use toroid_client::raw;
use toroid_client::session::SessionError;
use toroid_drive::image::display_size;
use toroid_isa::{Assembly, KeyKind, VrNumber, VrType};
use toroid_rns::ring_set::RingSet;
use toroid_task::Progress;
use toroid_tfhe::ClientKey;
use toroid_tfhe::ciphertext::MAX_LOG2_FAILURE;
use toroid_tfhe::encoding::Encoding;
use zeroize::Zeroizing;

use super::keys::read_client_key;
use super::program::assemble_file_for;
use super::raw::{BlockFiles, PackedFiles};
use super::run::{lacks_keys, load};
use super::sample::parse_log2_probability;
use super::write_file;
use crate::backend::ComputeArgs;
use crate::drive_args::DriveArgs;
use crate::interrupt;
use crate::ledger_args::{LedgerArgs, LedgerFile};
use crate::opened::Opened;
use crate::output::{Output, duration, power_of_two, usage};
use crate::passphrase::PassphraseArgs;
use crate::progress;

/// Most bytes of a file of numbers.
const MAX_NUMBERS_BYTES: u64 = 4 << 30;

/// `toroid column`.
#[derive(Subcommand)]
pub enum Command {
    /// Encrypt numbers into a new column, or onto the end of one, or in the place of rows.
    Put(PutArgs),
    /// Decrypt rows of a column.
    Get(GetArgs),
    /// Make the keys by which a drive computes on ring columns and converts samples to them, and put them on the drive as they come.
    Keys(KeysArgs),
    /// List the columns of a drive.
    List(ListArgs),
    /// Delete a column.
    Delete(DeleteArgs),
    /// Trigger a program by writing or reading a column as the object of a register.
    Run(Box<RunArgs>),
    /// Put a column and its secure computing metadata into blocks.
    Pack(Box<PackArgs>),
    /// Decrypt a column in blocks that were read.
    Unpack(UnpackArgs),
}

/// Arguments of `toroid column put`.
#[derive(clap::Args)]
pub struct PutArgs {
    #[command(flatten)]
    drive: DriveArgs,
    /// Name of the column.
    name: String,
    /// File of the numbers, one a line; - for standard input.
    numbers: PathBuf,
    /// The client key.
    #[arg(long, short, default_value = "keys/client.key")]
    key: PathBuf,
    #[command(flatten)]
    passphrase: PassphraseArgs,
    #[command(flatten)]
    ledger: LedgerFile,
    /// Message bits beside the padding bit; the column's or the parameter set's width if not given.
    #[arg(long, short)]
    bits: Option<u32>,
    /// Unsigned numbers, 0 to 2^bits - 1, instead of signed ones, in a new column.
    #[arg(long, conflicts_with_all = ["append", "at"])]
    unsigned: bool,
    /// Key id of the keys that compute on a new column.
    #[arg(long, default_value_t = 0, conflicts_with_all = ["append", "at"])]
    key_id: u32,
    /// Form of a new column: seeded samples, or ciphertexts of a ring, on which tables take far less time a row.
    #[arg(long, value_enum, default_value_t, conflicts_with_all = ["append", "at"])]
    form: Form,
    /// The ring of a new ring column, which must be that of the drive's ring key; the one for the parameter set's width if not given.
    #[arg(long, value_parser = parse_ring, conflicts_with_all = ["append", "at"])]
    ring: Option<&'static RingSet>,
    /// Append to a column that is there.
    #[arg(long)]
    append: bool,
    /// Replace as many rows of a column that is there, from this one on.
    #[arg(long, value_name = "ROW", conflicts_with = "append")]
    at: Option<u64>,
}

/// Form of a new column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// Samples, 7 to 8 bytes each.
    #[default]
    Seeded,
    /// Ciphertexts of a ring, 2.75 to 4.5 bytes a row.
    Ring,
}

/// Arguments of `toroid column keys`.
#[derive(clap::Args)]
pub struct KeysArgs {
    #[command(flatten)]
    drive: DriveArgs,
    #[command(flatten)]
    client: KeyArgs,
    /// Key id of the columns.
    #[arg(long, default_value_t = 0)]
    key_id: u32,
    /// The ring; the one for the width of the client key's parameter set if not given.
    #[arg(long, value_parser = parse_ring)]
    ring: Option<&'static RingSet>,
    /// Replace keys of another client key for ring columns. Programs no longer run on its ring columns.
    #[arg(long)]
    replace: bool,
}

/// Arguments of `toroid column get`.
#[derive(clap::Args)]
pub struct GetArgs {
    #[command(flatten)]
    drive: DriveArgs,
    /// Name of the column.
    #[arg(required_unless_present = "register")]
    name: Option<String>,
    /// The column in a register, in place of one with a name. An image triggers nothing by that.
    #[arg(long, conflicts_with_all = ["name", "rows"])]
    register: Option<VrNumber>,
    #[command(flatten)]
    client: KeyArgs,
    #[command(flatten)]
    ledger: LedgerFile,
    /// Rows FROM..TO, counted from 0, without the last; all of them if not given.
    #[arg(long, value_parser = parse_rows)]
    rows: Option<Rows>,
    #[command(flatten)]
    numbers: DecryptArgs,
}

/// The client key.
#[derive(clap::Args)]
struct KeyArgs {
    /// The client key.
    #[arg(long, short, default_value = "keys/client.key")]
    key: PathBuf,
    #[command(flatten)]
    passphrase: PassphraseArgs,
}

/// Where decrypted numbers go, and which are decrypted.
#[derive(clap::Args)]
struct DecryptArgs {
    /// File for the numbers, one a line; standard output if not given.
    #[arg(long, short)]
    out: Option<PathBuf>,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
    /// Decrypt up to this failure probability of a row, such as 2^-40 or 0.001; 1 takes rows whose noise nobody states, too.
    #[arg(long, default_value = "2^-64", value_parser = parse_log2_probability, allow_hyphen_values = true)]
    max_failure: f64,
}

/// What numbers are.
#[derive(clap::Args)]
struct EncodingArgs {
    /// Message bits beside the padding bit; the parameter set's width if not given.
    #[arg(long, short)]
    bits: Option<u32>,
    /// Unsigned numbers, 0 to 2^bits - 1, instead of signed ones.
    #[arg(long)]
    unsigned: bool,
}

/// Arguments of `toroid column run`.
#[derive(clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    drive: DriveArgs,
    /// Register whose access triggers the program: cow:KEY:DATA is written, cor:KEY:DATA is read.
    register: VrNumber,
    /// File of the numbers to write into the register first, one a line; - for standard input. A cor register may hold a column already.
    numbers: Option<PathBuf>,
    #[command(flatten)]
    client: KeyArgs,
    #[command(flatten)]
    ledger: LedgerFile,
    #[command(flatten)]
    encoding: EncodingArgs,
    #[command(flatten)]
    compute: ComputeArgs,
    #[command(flatten)]
    result: DecryptArgs,
}

/// Arguments of `toroid column pack`.
#[derive(clap::Args)]
pub struct PackArgs {
    /// File of the numbers, one a line; - for standard input.
    numbers: PathBuf,
    /// Register that the column is for, such as cor:0:1 or cow:0:2.
    register: VrNumber,
    #[command(flatten)]
    client: KeyArgs,
    #[command(flatten)]
    encoding: EncodingArgs,
    /// Bytes of the object, with room for the result behind the column; as many as a result of the same rows has if not given.
    #[arg(long, value_name = "BYTES")]
    room: Option<u64>,
    #[command(flatten)]
    files: PackedFiles,
}

/// Arguments of `toroid column unpack`.
#[derive(clap::Args)]
pub struct UnpackArgs {
    #[command(flatten)]
    files: BlockFiles,
    #[command(flatten)]
    client: KeyArgs,
    #[command(flatten)]
    result: DecryptArgs,
}

/// Arguments of `toroid column list`.
#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    drive: DriveArgs,
    #[command(flatten)]
    ledger: LedgerArgs,
}

/// Arguments of `toroid column delete`.
#[derive(clap::Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    drive: DriveArgs,
    #[command(flatten)]
    ledger: LedgerArgs,
    /// Names of columns.
    #[arg(required = true)]
    names: Vec<String>,
}

/// Arguments of `toroid map`.
#[derive(clap::Args)]
pub struct MapArgs {
    #[command(flatten)]
    drive: DriveArgs,
    #[command(flatten)]
    ledger: LedgerArgs,
    /// The program's text.
    program: PathBuf,
    /// A register of the program and the column that stands in it; repeat it for more of them.
    #[arg(long = "input", short, value_name = "REGISTER=COLUMN", required = true, value_parser = parse_input)]
    inputs: Vec<(String, String)>,
    /// Name of the column that the result becomes.
    #[arg(long, short)]
    output: String,
    /// Rows FROM..TO of the columns, counted from 0, without the last; all of them if not given. A column of one row goes with all.
    #[arg(long, value_parser = parse_rows)]
    rows: Option<Rows>,
    /// File that says which of these rows count: a 1 for each that does and a 0 for each other, one a line; - for standard input. The result has 0 in the
    /// others, and sums have nothing of them. The drive sees the file. Rows go by ciphertexts then.
    #[arg(long = "where", value_name = "FILE")]
    kept: Option<PathBuf>,
    /// Key id of the program's registers.
    #[arg(long, default_value_t = 0)]
    key_id: u32,
    /// Rows that the drive works on in one command; a run that is interrupted loses at most these.
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(1..))]
    unit: Option<u64>,
    /// Which way to go over columns of samples: one by one, by ciphertexts of a ring, or what takes less time.
    #[arg(long, value_enum, default_value_t)]
    way: WayArg,
    /// The form of the result; that which the way leaves if not given.
    #[arg(long, value_enum, value_name = "FORM")]
    result: Option<ResultArg>,
    #[command(flatten)]
    compute: ComputeArgs,
    /// Replace a column of the output's name that holds something else.
    #[arg(long)]
    replace: bool,
    /// Say what it takes and how likely it fails, and run nothing.
    #[arg(long)]
    estimate: bool,
    /// Cores to estimate for; those of this machine if not given.
    #[arg(long, requires = "estimate")]
    cores: Option<usize>,
}

/// The way over columns of samples.
#[derive(Clone, Copy, Default, clap::ValueEnum)]
enum WayArg {
    /// Sample by sample.
    Samples,
    /// By ciphertexts of the ring of the drive's keys, which samples become part of.
    Ring,
    /// That which takes less time by the documented times, where both give the same.
    #[default]
    Auto,
}

impl From<WayArg> for Way {
    fn from(way: WayArg) -> Way {
        match way {
            WayArg::Samples => Way::Samples,
            WayArg::Ring => Way::Ring,
            WayArg::Auto => Way::Auto,
        }
    }
}

/// The form of a result.
#[derive(Clone, Copy, clap::ValueEnum)]
enum ResultArg {
    /// Samples.
    Samples,
    /// A ring column.
    Ring,
}

impl From<ResultArg> for RowForm {
    fn from(form: ResultArg) -> RowForm {
        match form {
            ResultArg::Samples => RowForm::Samples,
            ResultArg::Ring => RowForm::Ring,
        }
    }
}

/// A range of rows.
#[derive(Clone, Debug)]
pub struct Rows(Range<u64>);

fn parse_rows(text: &str) -> Result<Rows, String> {
    let expected = || format!("{text:?} is no range of rows; expected FROM..TO, such as 0..100");
    let (from, to) = text.split_once("..").ok_or_else(expected)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| expected());
    let rows = number(from)?..number(to)?;
    if rows.is_empty() {
        return Err(format!("{text} has no rows"));
    }
    Ok(Rows(rows))
}

fn parse_input(text: &str) -> Result<(String, String), String> {
    let (register, column) = text.split_once('=').ok_or("expected REGISTER=COLUMN")?;
    Ok((register.to_owned(), column.to_owned()))
}

/// Runs a command on columns.
pub fn run(command: &Command, output: &Output) -> anyhow::Result<()> {
    match command {
        Command::Put(args) => put(args, output),
        Command::Get(args) => get(args, output),
        Command::Keys(args) => keys(args, output),
        Command::List(args) => list(args, output),
        Command::Delete(args) => delete(args, output),
        Command::Run(args) => trigger(args, output),
        Command::Pack(args) => pack(args, output),
        Command::Unpack(args) => unpack(args, output),
    }
}

/// The numbers of a file, one a line.
fn read_numbers(path: &Path) -> anyhow::Result<Zeroizing<Vec<i64>>> {
    let shown = path.display();
    let mut text = Zeroizing::new(String::new());
    let read = if path == Path::new("-") {
        std::io::stdin()
            .take(MAX_NUMBERS_BYTES)
            .read_to_string(&mut text)
    } else {
        super::open(path)?
            .take(MAX_NUMBERS_BYTES)
            .read_to_string(&mut text)
    };
    let bytes = read.with_context(|| format!("cannot read {shown}"))?;
    ensure!(
        (bytes as u64) < MAX_NUMBERS_BYTES,
        "{shown} has 4 GiB or more"
    );
    let mut numbers = Zeroizing::new(Vec::with_capacity(text.lines().count()));
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        let number = text.parse::<i64>().ok().with_context(|| {
            format!("{shown}, line {line}: not an integer; expected one number a line")
        })?;
        numbers.push(number);
    }
    ensure!(!numbers.is_empty(), "{shown} has no numbers");
    Ok(numbers)
}

/// Which rows count, of a file of 1 and 0.
fn read_kept(path: &Path) -> anyhow::Result<Vec<bool>> {
    let numbers = read_numbers(path)?;
    let rows = numbers.iter().enumerate();
    rows.map(|(row, number)| match number {
        0 | 1 => Ok(*number == 1),
        _ => Err(usage(format!(
            "{}: {number} for row {row}; expected 1 for a row that counts, or 0",
            path.display()
        ))),
    })
    .collect()
}

/// A failure of decryption as such, which has an exit code of its own.
fn own(error: SessionError) -> anyhow::Error {
    match error {
        SessionError::Tfhe(error) => error.into(),
        error => error.into(),
    }
}

fn put(args: &PutArgs, output: &Output) -> anyhow::Result<()> {
    let numbers = read_numbers(&args.numbers)?;
    let client = read_client_key(&args.key, &args.passphrase, output)?;
    let opened = args.drive.open_with(args.ledger.open_or_make(&client)?)?;
    let session = opened.session();
    if let Some(stat) = put_ring(args, &opened, (&client, &numbers), output)? {
        opened.close()?;
        return output.result(&described(&stat), || line(&stat));
    }
    let changes = args.append || args.at.is_some();
    let stated = match changes {
        true => wait(&opened, session.column(&args.name))?.stat().encoding,
        false => {
            let columns = opened.drive.wait(session.columns());
            ensure!(
                !columns.contains_key(&args.name),
                "column {}: the drive has such a column already",
                args.name
            );
            None
        }
    };
    let bits = args.bits.or(stated.map(Encoding::bits));
    let bits = bits.unwrap_or(client.params().message_bits.max(1));
    let signed = stated.map_or(!args.unsigned, Encoding::is_signed);
    let encoding = Encoding::of_samples(client.params(), bits, signed)?;
    let rows = encrypt(&client, encoding, &numbers, output)?;
    let bar = progress::bar(output, "writing");
    let progress = progress::report_to(&bar);
    let name = &args.name;
    let started = Instant::now();
    let stat = match (args.append, args.at) {
        (true, _) => wait(&opened, session.append_rows(name, &rows, &progress))?,
        (_, Some(first)) => wait(&opened, session.replace_rows(name, first, &rows, &progress))?,
        _ => wait(
            &opened,
            session.create_column(name, args.key_id, &rows, &progress),
        )?,
    };
    let seconds = started.elapsed().as_secs_f64();
    bar.finish_and_clear();
    opened.close()?;
    let mut value = described(&stat);
    value["seconds"] = json!(seconds);
    output.result(&value, || line(&stat))
}

fn parse_ring(name: &str) -> Result<&'static RingSet, String> {
    RingSet::by_name(name).ok_or_else(|| {
        let names: Vec<&str> = RingSet::ALL.into_iter().map(|set| set.name).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// The ring of a client key's columns: the one that was asked for, or that which has all messages of the key's parameter set.
fn ring_of(
    client: &ClientKey,
    wanted: Option<&'static RingSet>,
) -> anyhow::Result<&'static RingSet> {
    RingSet::of_client(client.params(), wanted).map_err(|error| usage(error.to_string()))
}

/// Puts rows into a ring column; nothing of those of samples.
fn put_ring(
    args: &PutArgs,
    opened: &Opened,
    (client, numbers): (&ClientKey, &[i64]),
    output: &Output,
) -> anyhow::Result<Option<ColumnStat>> {
    let session = opened.session();
    let changes = args.append || args.at.is_some();
    let former = match (changes, args.form) {
        (true, _) => match wait(opened, session.ring_column(&args.name))? {
            Some(column) => Some(column.stat()),
            None => return Ok(None),
        },
        (false, Form::Seeded) if args.ring.is_none() => return Ok(None),
        (false, _) => None,
    };
    if args.at.is_some() {
        return Err(usage(
            "rows of a ring column cannot be replaced: put them into another column".to_owned(),
        ));
    }
    let known = former
        .as_ref()
        .and_then(|stat| Some((stat.ring?, stat.encoding?)));
    let (set, encoding) = match known {
        Some((set, encoding)) => {
            let bits = args.bits.unwrap_or(encoding.bits());
            (set, Encoding::new(bits, encoding.is_signed())?)
        }
        None => {
            let bits = args.bits.unwrap_or(client.params().message_bits.max(1));
            let set = ring_of(client, args.ring)?;
            if bits > set.bits() {
                let (name, most) = (set.name, set.bits());
                return Err(usage(format!(
                    "columns of {name} have numbers of at most {most} bits, not {bits}"
                )));
            }
            (set, Encoding::new(bits, !args.unsigned)?)
        }
    };
    let bar = progress::counter(output, "encrypting");
    let progress = progress::report_to(&bar);
    let rows = RingRows::encrypt(client, (set, encoding), numbers, &progress).map_err(own)?;
    bar.finish_and_clear();
    let bar = progress::bar(output, "writing");
    let (name, progress) = (&args.name, progress::report_to(&bar));
    let stat = match former {
        Some(_) => wait(opened, session.append_ring_rows(name, &rows, &progress))?,
        None => wait(
            opened,
            session.create_ring_column(name, args.key_id, &rows, &progress),
        )?,
    };
    bar.finish_and_clear();
    Ok(Some(stat))
}

fn keys(args: &KeysArgs, output: &Output) -> anyhow::Result<()> {
    let client = args.client.read(output)?;
    let set = ring_of(&client, args.ring)?;
    let opened = args.drive.open()?;
    let bar = progress::bar(output, "ring key");
    let started = Instant::now();
    let progress = progress::report_to(&bar);
    let session = opened.session();
    let put = session.put_ring_keys(args.key_id, (&client, set), args.replace, &progress);
    let (stat, conversion) = wait(&opened, put)?;
    bar.finish_and_clear();
    let seconds = started.elapsed().as_secs_f64();
    opened.close()?;
    let (ring, conversion) = (stat.size, conversion.map_or(0, |stat| stat.size));
    let value = json!({
        "ring": set.name,
        "key_id": args.key_id,
        "bytes": ring,
        "conversion_bytes": conversion,
        "seconds": seconds,
    });
    output.result(&value, || {
        let (size, time) = (display_size(ring), duration(seconds));
        let beside = match conversion {
            0 => String::new(),
            bytes => format!(", with a conversion key of {}", display_size(bytes)),
        };
        format!(
            "ring key of {}, key id {}: {size}{beside} in {time}",
            set.name, args.key_id
        )
    })
}

impl KeyArgs {
    fn read(&self, output: &Output) -> anyhow::Result<ClientKey> {
        read_client_key(&self.key, &self.passphrase, output)
    }
}

impl EncodingArgs {
    /// Encrypts the numbers of a file.
    fn encrypt(
        &self,
        numbers: &Path,
        client: &ClientKey,
        output: &Output,
    ) -> anyhow::Result<EncryptedRows> {
        let bits = self.bits.unwrap_or(client.params().message_bits.max(1));
        let encoding = Encoding::of_samples(client.params(), bits, !self.unsigned)?;
        encrypt(client, encoding, &read_numbers(numbers)?, output)
    }
}

fn encrypt(
    client: &ClientKey,
    encoding: Encoding,
    numbers: &[i64],
    output: &Output,
) -> anyhow::Result<EncryptedRows> {
    let bar = progress::counter(output, "encrypting");
    let rows = EncryptedRows::encrypt(client, encoding, numbers, &progress::report_to(&bar));
    let rows = rows.map_err(own)?;
    bar.finish_and_clear();
    let log2 = rows.log2_failure();
    ensure!(
        log2 <= MAX_LOG2_FAILURE,
        "numbers of {} bits drown in the noise of {}: each would be wrong with probability {}; give fewer --bits",
        encoding.bits(),
        client.params().name,
        power_of_two(log2)
    );
    Ok(rows)
}

/// Shows a bar while `decrypt` works.
fn decrypting<T>(output: &Output, decrypt: impl FnOnce(&Progress) -> T) -> T {
    let bar = progress::bar(output, "decrypting");
    let decrypted = decrypt(&progress::report_to(&bar));
    bar.finish_and_clear();
    decrypted
}

impl DecryptArgs {
    fn check(&self) -> anyhow::Result<()> {
        match &self.out {
            Some(out) => super::refuse_existing(out, self.force),
            None => Ok(()),
        }
    }

    /// Decrypts rows, and gives their numbers.
    fn report(
        &self,
        (name, rows): (&str, &EncryptedRows),
        client: &ClientKey,
        output: &Output,
    ) -> anyhow::Result<()> {
        let numbers = decrypting(output, |progress| {
            rows.decrypt_above(client, self.max_failure, progress)
        });
        self.give((name, numbers), rows.log2_failure(), output)
    }

    /// Gives numbers that were decrypted.
    fn give(
        &self,
        (name, numbers): (&str, Result<Vec<i64>, SessionError>),
        log2: f64,
        output: &Output,
    ) -> anyhow::Result<()> {
        let numbers = numbers.map_err(own);
        let numbers = numbers.with_context(|| {
            format!("column {name} is not decrypted (--max-failure sets another limit)")
        })?;
        let mut text = String::new();
        for number in &numbers {
            let _ = writeln!(text, "{number}");
        }
        match &self.out {
            Some(out) => {
                write_file(out, self.force, true, |writer| {
                    Ok(std::io::Write::write_all(writer, text.as_bytes())?)
                })?;
                let shown = out.display().to_string();
                let value = json!({ "file": shown, "rows": numbers.len(), "log2_p_fail": log2 });
                output.result(&value, || {
                    let probability = power_of_two(log2);
                    let rows = counted(numbers.len() as u64);
                    format!("{shown}: {rows} (failure probability of each {probability})")
                })
            }
            None => {
                let value = json!({ "rows": numbers, "log2_p_fail": log2 });
                output.result(&value, || text.trim_end().to_owned())
            }
        }
    }
}

fn get(args: &GetArgs, output: &Output) -> anyhow::Result<()> {
    args.numbers.check()?;
    let client = args.client.read(output)?;
    let ledger = args.ledger.open(&client)?;
    let opened = args.drive.open_read_only_with(ledger)?;
    let rows = args.rows.clone().map(|rows| rows.0);
    if let Some(register) = args.register {
        let rows = wait(&opened, opened.session().get_rows(register))?;
        let name = register.to_string();
        return args.numbers.report((&name, &rows), &client, output);
    }
    let name = args.name.as_deref().unwrap_or_default();
    let bar = progress::counter(output, "reading");
    let progress = progress::report_to(&bar);
    if let Some(column) = wait(&opened, opened.session().ring_column(name))? {
        let stat = column.stat();
        note_unfinished(&stat, output);
        let all = rows.unwrap_or(0..stat.rows);
        let rows = wait(&opened, column.rows(all, &progress))?;
        bar.finish_and_clear();
        let numbers = decrypting(output, |progress| {
            rows.decrypt_above(&client, args.numbers.max_failure, progress)
        });
        return args
            .numbers
            .give((name, numbers), rows.log2_failure(), output);
    }
    let column = wait(&opened, opened.session().column(name))?;
    let stat = column.stat();
    note_unfinished(&stat, output);
    let rows = wait(
        &opened,
        column.rows(rows.unwrap_or(0..stat.rows), &progress),
    )?;
    bar.finish_and_clear();
    args.numbers.report((name, &rows), &client, output)
}

fn note_unfinished(stat: &ColumnStat, output: &Output) {
    if let Some(job) = stat.job.filter(|job| !job.complete) {
        output.note(format!(
            "the run that fills {} is not complete: it has done {} of {} rows",
            stat.name, job.done, job.total
        ));
    }
}

/// Triggers a program by a column, as `toroid run` does by a sample.
fn trigger(args: &RunArgs, output: &Output) -> anyhow::Result<()> {
    let register = args.register;
    match (register.ty(), &args.numbers) {
        (VrType::LweCow, None) => {
            return Err(usage(format!(
                "{register} triggers when it is written: give a file of numbers"
            )));
        }
        (VrType::LweCow | VrType::LweCor, _) => {}
        _ => {
            return Err(usage(format!(
                "{register} is not a register of samples; expected cow:KEY:DATA or cor:KEY:DATA"
            )));
        }
    }
    args.result.check()?;
    let client = args.client.read(output)?;
    let rows = args.numbers.as_ref().map(|numbers| {
        let rows = args.encoding.encrypt(numbers, &client, output)?;
        anyhow::Ok(rows)
    });
    let rows = rows.transpose()?;
    let computing = args.compute.choose(&args.drive.location, output)?;
    let ledger = args.ledger.open(&client)?;
    let opened = args.drive.open_to_compute(&computing, ledger)?;
    let session = opened.session();
    let key_id = register.key_id();
    // A drive that others use usually holds its keys already, and they take long to load.
    load(&opened, key_id, !opened.is_shared(), output)?;
    let written = rows.as_ref().and_then(EncryptedRows::encoding);
    opened.wait(session.check_trigger(register, written))?;
    let bar = progress::bar(output, "computing");
    let progress = progress::report_to(&bar);
    let call = async || {
        session
            .trigger_rows(register, rows.as_ref(), &progress)
            .await
    };
    let mut result = opened.drive.wait(call());
    if opened.is_shared() && result.as_ref().is_err_and(lacks_keys) {
        load(&opened, key_id, true, output)?;
        result = opened.drive.wait(call());
    }
    let result = wait(&opened, async { result })?;
    bar.finish_and_clear();
    opened.close()?;
    let name = register.to_string();
    args.result.report((&name, &result), &client, output)
}

fn pack(args: &PackArgs, output: &Output) -> anyhow::Result<()> {
    args.files.check()?;
    let client = args.client.read(output)?;
    let rows = args.encoding.encrypt(&args.numbers, &client, output)?;
    let room = match args.room {
        Some(room) => room,
        None => result_bytes(rows.params(), rows.len())?,
    };
    let (sc, object) = rows.object(args.register, room)?;
    args.files.write(&sc, (&object, rows.params()), output)
}

fn unpack(args: &UnpackArgs, output: &Output) -> anyhow::Result<()> {
    args.result.check()?;
    let client = args.client.read(output)?;
    let rows = args.files.read(raw::unpack_rows)?;
    args.result
        .report(("in the blocks", &rows), &client, output)
}

fn described(stat: &ColumnStat) -> Value {
    let [seeded, packed, expanded] = stat.forms;
    json!({
        "column": stat.name,
        "rows": stat.rows,
        "params": stat.params.name,
        "ring": stat.ring.map(|set| set.name),
        "key_id": stat.key_id,
        "message_bits": stat.encoding.map(Encoding::bits),
        "signed": stat.encoding.map(Encoding::is_signed),
        "computed": stat.computed,
        "bytes": stat.bytes,
        "pieces": stat.pieces,
        "seeded": seeded,
        "packed": packed,
        "expanded": expanded,
        "log2_variance": stat.noise.log2_variance,
        "log2_p_fail_behind": stat.noise.log2_failure,
        "complete": stat.job.is_none_or(|job| job.complete),
        "done": stat.job.map(|job| job.done),
        "of": stat.job.map(|job| job.total),
    })
}

fn counted(rows: u64) -> String {
    match rows {
        1 => "1 row".to_owned(),
        rows => format!("{rows} rows"),
    }
}

fn line(stat: &ColumnStat) -> String {
    let encoding = match stat.encoding {
        Some(encoding) if encoding.is_signed() => format!("{} bits signed", encoding.bits()),
        Some(encoding) => format!("{} bits unsigned", encoding.bits()),
        None => "no encoding".to_owned(),
    };
    let rows = counted(stat.rows);
    let names = ["seeded", "packed", "expanded"];
    let forms = names.iter().zip(stat.forms).filter(|(_, rows)| *rows > 0);
    let mut forms: Vec<String> = forms.map(|(name, rows)| format!("{rows} {name}")).collect();
    if let Some(set) = stat.ring {
        let ciphertexts = match stat.pieces {
            1 => "1 ciphertext".to_owned(),
            pieces => format!("{pieces} ciphertexts"),
        };
        forms.push(format!("{ciphertexts} of {}", set.name));
    }
    let unfinished = match stat.job {
        Some(job) if !job.complete => {
            format!("; a run has done {} of {} rows", job.done, job.total)
        }
        _ => String::new(),
    };
    format!(
        "{}: {rows} of {encoding}, {}, key id {}, {} ({}){unfinished}",
        stat.name,
        stat.params.name,
        stat.key_id,
        display_size(stat.bytes),
        forms.join(", ")
    )
}

fn list(args: &ListArgs, output: &Output) -> anyhow::Result<()> {
    let ledger = args.ledger.open(output)?;
    let opened = args.drive.open_read_only_with(ledger)?;
    let columns = opened.drive.wait(opened.session().columns());
    let value = columns.iter().map(|(name, column)| match column {
        Ok(stat) => described(stat),
        Err(error) => json!({ "column": name, "error": reason(error) }),
    });
    let value: Vec<Value> = value.collect();
    output.result(&json!({ "columns": value }), || {
        if columns.is_empty() {
            return "no columns".to_owned();
        }
        let lines = columns.iter().map(|(name, column)| match column {
            Ok(stat) => line(stat),
            Err(error) => format!("{name}: {}", reason(error)),
        });
        lines.collect::<Vec<_>>().join("\n")
    })?;
    let refused = columns.iter().filter(|(_, column)| column.is_err()).count();
    if refused > 0 {
        anyhow::bail!("{refused} of {} columns cannot be used", columns.len());
    }
    Ok(())
}

/// Why a column cannot be read, without its name.
fn reason(error: &SessionError) -> String {
    match error {
        SessionError::Column { source, .. } => source.to_string(),
        error => error.to_string(),
    }
}

/// Runs a call on columns to its end. A refusal here has nothing to do with what the drive has logged.
fn wait<T>(
    opened: &Opened,
    call: impl Future<Output = Result<T, SessionError>>,
) -> anyhow::Result<T> {
    match opened.drive.wait(call) {
        Err(error @ SessionError::Column { .. }) => Err(error.into()),
        result => opened.wait(async { result }),
    }
}

fn delete(args: &DeleteArgs, output: &Output) -> anyhow::Result<()> {
    let opened = args.drive.open_with(args.ledger.open(output)?)?;
    let names: BTreeSet<&str> = args.names.iter().map(String::as_str).collect();
    // All of them or, where a name is mistyped, none.
    for name in &names {
        opened.session().find_column(name)?;
    }
    for name in &names {
        wait(&opened, opened.session().delete_column(name))?;
    }
    opened.close()?;
    let names = Vec::from_iter(names);
    output.result(&json!({ "deleted": names }), || {
        format!("deleted {}", names.join(", "))
    })
}

fn estimate(args: &MapArgs, plan: &MapPlan, output: &Output) -> anyhow::Result<()> {
    let cores = match args.cores {
        Some(0) => return Err(usage("an estimate needs at least one core")),
        Some(cores) => cores,
        None => std::thread::available_parallelism()?.get(),
    };
    let ways = WayTimes::new(plan, cores);
    let left = plan.rows - plan.done;
    let TimesLeft {
        samples,
        batch,
        seconds,
    } = ways.left(plan);
    let rate = seconds
        .filter(|seconds| *seconds > 0.0)
        .map(|seconds| left as f64 / seconds);
    let log2_failure = plan.log2_failure();
    let why = ways.why(plan);
    let value = json!({
        "params": plan.params.name,
        "ring": ways.ring.map(|set| set.name),
        "route": plan.route.name(),
        "why": why,
        "rows": plan.rows,
        "done": plan.done,
        "output_rows": plan.output_rows(),
        "bootstraps": plan.facts.bootstraps,
        "cores": cores,
        "seconds": seconds,
        "seconds_by_samples": samples,
        "seconds_by_ring": batch,
        "break_even_rows": ways.break_even,
        "rows_per_second": rate,
        "log2_p_fail": log2_failure,
    });
    output.result(&value, || {
        let mut text = format!(
            "{} in, {} out; {} bootstraps of {}\n{why}\n",
            counted(plan.rows),
            counted(plan.output_rows()),
            plan.facts.bootstraps,
            plan.params.name
        );
        if plan.done > 0 {
            let _ = writeln!(text, "{} rows are done", plan.done);
        }
        let _ = match (seconds, rate) {
            (Some(seconds), Some(rate)) => writeln!(
                text,
                "about {} on {cores} cores of the documented machines, {rate:.2} rows a second",
                duration(seconds)
            ),
            (Some(_), None) => writeln!(
                text,
                "no bootstraps are left, so the time is that of additions"
            ),
            (None, _) => {
                let name = match plan.route {
                    Route::Samples => plan.params.name,
                    Route::Ring(set) => set.name,
                };
                writeln!(text, "no times of {name} are documented")
            }
        };
        let other = match plan.route {
            Route::Samples => batch.zip(ways.ring.map(|set| set.name)),
            Route::Ring(_) => samples.zip(Some(plan.params.name)),
        };
        if let Some((seconds, name)) = other.filter(|_| rate.is_some()) {
            let seconds = duration(seconds);
            let _ = writeln!(text, "the other way, by {name}, would take about {seconds}");
        }
        let _ = write!(
            text,
            "a row of the result is wrong with probability {}",
            power_of_two(log2_failure)
        );
        text
    })
}

/// Has the drive load the keys of a run by ciphertexts.
fn load_ring(opened: &Opened, key_id: u32, converts: bool, output: &Output) -> anyhow::Result<()> {
    let bar = progress::bar(output, "loading the ring key");
    let progress = progress::report_to(&bar);
    let loaded = opened.session().load_ring_keys(key_id, converts, &progress);
    match opened.drive.wait(loaded) {
        Err(SessionError::Missing(vr)) => {
            let mut kinds = KeyKind::ALL.into_iter();
            let kind = kinds.find(|kind| kind.data_id() == vr.data_id());
            let kind = kind.unwrap_or(KeyKind::Ring);
            anyhow::bail!("the drive has no {kind} in {vr}: make it by toroid column keys")
        }
        loaded => wait(opened, async { loaded })?,
    };
    bar.finish_and_clear();
    Ok(())
}

/// Names the register in which nothing stands.
fn without_input(error: anyhow::Error, program: &Assembly) -> anyhow::Error {
    let Some(SessionError::Missing(missing)) = error.downcast_ref() else {
        return error;
    };
    let named = program.registers.iter().find(|(_, vr)| *vr == missing);
    let Some((name, vr)) = named.filter(|(_, vr)| vr.ty().is_sample()) else {
        return error;
    };
    let reason = format!(
        "no column stands in register {name}, and no sample in {vr}: give --input {name}=COLUMN, or put a sample there"
    );
    error.context(reason)
}

/// `toroid map`.
pub fn map(args: &MapArgs, output: &Output) -> anyhow::Result<()> {
    let program = assemble_file_for(args.key_id, &args.program)?;
    let inputs: Vec<(&str, &str)> = args
        .inputs
        .iter()
        .map(|(register, column)| (register.as_str(), column.as_str()))
        .collect();
    let kept = args.kept.as_deref().map(read_kept).transpose()?;
    let request = MapRequest {
        program: &program,
        inputs: &inputs,
        rows: args.rows.clone().map(|rows| rows.0),
        output: &args.output,
        replace: args.replace,
        unit: args.unit,
        way: args.way.into(),
        form: args.result.map(Into::into),
        kept: kept.as_deref(),
    };
    let ledger = args.ledger.open(output)?;
    let opened = match args.estimate {
        true => args.drive.open_read_only_with(ledger)?,
        false => {
            let computing = args.compute.choose(&args.drive.location, output)?;
            args.drive.open_to_compute(&computing, ledger)?
        }
    };
    let session = opened.session();
    let plan = wait(&opened, session.plan_map(&request));
    let plan = plan.map_err(|error| without_input(error, &program))?;
    if let (WayArg::Samples, Route::Ring(_)) = (args.way, plan.route) {
        return Err(usage(
            "ring columns go by ciphertexts: leave out --way samples".to_owned(),
        ));
    }
    if args.estimate {
        return estimate(args, &plan, output);
    }
    let of_inputs = inputs
        .first()
        .and_then(|(name, _)| program.registers.get(*name));
    let key_id = of_inputs.map_or(args.key_id, |register| register.key_id());
    let load = || match plan.route {
        Route::Samples => load(&opened, key_id, true, output),
        Route::Ring(_) => load_ring(&opened, key_id, plan.converts, output),
    };
    if !plan.complete && !opened.is_shared() {
        load()?;
    }
    let started = Instant::now();
    let bar = progress::counter(output, "computing rows");
    let progress = progress::report_to(&bar);
    let call = async || session.map(&request, &progress).await;
    let mut report = opened.drive.wait(call());
    // A drive that others use usually holds its keys already, and they take long to load.
    if opened.is_shared() && report.as_ref().is_err_and(lacks_keys) {
        load()?;
        report = opened.drive.wait(call());
    }
    let report = wait(&opened, async { report });
    bar.finish_and_clear();
    let report = report.inspect_err(|error| {
        let source = error.downcast_ref();
        let taken = matches!(
            source,
            Some(SessionError::Blob(BlobError::MountedElsewhere))
        );
        if taken || interrupt::is_interrupted() {
            output.note("rows that are done stay; the same command goes on behind them");
        }
    })?;
    let seconds = started.elapsed().as_secs_f64();
    opened.close()?;
    let mut value = described(&report.output);
    value["computed"] = json!(report.computed);
    value["commands"] = json!(report.commands);
    let why = WayTimes::new(&plan, 1).why(&plan);
    value["route"] = json!(plan.route.name());
    value["why"] = json!(why);
    value["seconds"] = json!(seconds);
    let log2_failure = report.output.log2_failure();
    value["log2_p_fail"] = json!(log2_failure);
    output.result(&value, || {
        let computed = match report.computed {
            0 => "nothing was left to compute".to_owned(),
            rows => format!("{} in {}", counted(rows), duration(seconds)),
        };
        format!(
            "{}\n{computed}, {why}; a row is wrong with probability {}",
            line(&report.output),
            power_of_two(log2_failure)
        )
    })
}
