//! `toroid encrypt` and `toroid decrypt`.

use std::path::PathBuf;

use anyhow::Context;
use serde_json::json;
use toroid_tfhe::Ciphertext;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::noise::StatedNoise;
use toroid_tfhe::serialize::{Kind, ObjectReader};

use super::keys::{NO_TAG, read_client_key, tag_text};
use super::{open, write_file};
use crate::output::{Output, power_of_two};
use crate::passphrase::PassphraseArgs;

/// Arguments of `toroid encrypt`.
#[derive(clap::Args)]
pub struct EncryptArgs {
    /// The integer.
    #[arg(allow_negative_numbers = true, value_parser = parse_message)]
    message: i64,
    /// The client key.
    #[arg(long, short, default_value = "keys/client.key")]
    key: PathBuf,
    #[command(flatten)]
    passphrase: PassphraseArgs,
    /// Message bits beside the padding bit; the parameter set's width if not given.
    #[arg(long, short)]
    bits: Option<u32>,
    /// Unsigned messages, 0 to 2^bits - 1, instead of signed ones.
    #[arg(long)]
    unsigned: bool,
    /// File for the sample.
    #[arg(long, short)]
    out: PathBuf,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
}

/// Arguments of `toroid decrypt`.
#[derive(clap::Args)]
pub struct DecryptArgs {
    /// A sample's file.
    sample: PathBuf,
    /// The client key.
    #[arg(long, short, default_value = "keys/client.key")]
    key: PathBuf,
    #[command(flatten)]
    passphrase: PassphraseArgs,
    /// Message bits; what the file states if not given.
    #[arg(long, short)]
    bits: Option<u32>,
    /// Unsigned messages; what the file states if not given.
    #[arg(long)]
    unsigned: bool,
    /// Decrypt up to this failure probability, such as 2^-40 or 0.001; 1 takes a sample whose noise nobody states, too.
    #[arg(long, default_value = "2^-64", value_parser = parse_log2_probability, allow_hyphen_values = true)]
    max_failure: f64,
}

fn parse_message(text: &str) -> Result<i64, String> {
    let fraction = "messages are integers: scale it, such as 3.5 to 35 tenths";
    text.parse().map_err(|_| match text.parse::<f64>() {
        Ok(number) if number.fract() != 0.0 => fraction.to_owned(),
        _ => "expected an integer, such as 3 or -2".to_owned(),
    })
}

/// log2 of a probability.
pub(super) fn parse_log2_probability(text: &str) -> Result<f64, String> {
    let log2 = match text.strip_prefix("2^") {
        Some(exponent) => exponent.parse::<f64>().ok(),
        None => text.parse().ok().map(f64::log2),
    };
    log2.filter(|log2| *log2 <= 0.0)
        .ok_or_else(|| "a probability expected, such as 2^-40 or 0.001".to_owned())
}

/// Encrypts a message into a file.
pub fn encrypt(args: &EncryptArgs, output: &Output) -> anyhow::Result<()> {
    let client = read_client_key(&args.key, &args.passphrase, output)?;
    let params = client.params();
    let bits = args.bits.unwrap_or(params.message_bits.max(1));
    let encoding = Encoding::of_samples(params, bits, !args.unsigned)?;
    let ciphertext = client.encrypt_with(encoding, args.message)?;
    write_file(&args.out, args.force, false, |writer| {
        ciphertext.write_to(writer)?;
        Ok(())
    })?;
    let shown = args.out.display().to_string();
    let value = json!({ "file": shown, "params": params.name, "message_bits": bits, "signed": !args.unsigned });
    output.result(&value, || {
        format!(
            "{shown}: a sample of {} bytes, parameter set {}",
            ciphertext.sample().len(),
            params.name
        )
    })
}

/// Decrypts a sample's file.
pub fn decrypt(args: &DecryptArgs, output: &Output) -> anyhow::Result<()> {
    let client = read_client_key(&args.key, &args.passphrase, output)?;
    let shown = args.sample.display().to_string();
    let reader = ObjectReader::new(open(&args.sample)?).with_context(|| shown.clone())?;
    let header = reader.header().clone();
    header.expect(Kind::Sample).with_context(|| shown.clone())?;
    anyhow::ensure!(
        &header.params == client.params(),
        "{shown} is of parameter set {}, the key of {}",
        header.params.name,
        client.params().name
    );
    anyhow::ensure!(
        [NO_TAG, *client.tag()].contains(&header.tag),
        "{shown} belongs to the key with tag {}, this key has tag {}",
        tag_text(&header.tag),
        tag_text(client.tag())
    );
    let (_, bytes) = reader.read_all().with_context(|| shown.clone())?;
    let stated = header.encoding;
    let bits = args
        .bits
        .or(stated.map(Encoding::bits))
        .context("the file states no message width: give --bits")?;
    let signed = !args.unsigned && stated.is_none_or(Encoding::is_signed);
    let encoding = Encoding::of_samples(&header.params, bits, signed)?;
    let noise = StatedNoise {
        log2_variance: header.log2_variance.map(f64::from),
        log2_failure: header.log2_failure.map(f64::from),
    };
    let ciphertext = Ciphertext::from_sample(&header.params, Some(encoding), &bytes, noise)?;
    let log2_p_fail = ciphertext.log2_failure();
    let message = client
        .decrypt_above(&ciphertext, args.max_failure)
        .with_context(|| match noise.log2_variance {
            None => format!("{shown} does not state its noise: --max-failure 1 decrypts it anyway"),
            Some(_) => format!("{shown} is not decrypted (--max-failure sets another limit)"),
        })?;
    let value = json!({
        "message": message,
        "message_bits": bits,
        "signed": signed,
        "p_fail": log2_p_fail.exp2(),
        "log2_p_fail": log2_p_fail,
    });
    output.result(&value, || {
        format!(
            "{message} (failure probability {})",
            power_of_two(log2_p_fail)
        )
    })
}
