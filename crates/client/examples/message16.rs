//! 16-bit functions of an array of encrypted numbers, on a drive in this process:
//! `cargo run --release -p toroid-client --example message16 [NUMBERS]`.
//!
//! Every number is written to the drive in its turn. The drive reads its 16 bits once for two functions, the root of
//! `examples/isqrt16.tasm` and the S-box of `examples/sbox16.tasm`; the image of the number comes back, and the roots add up on
//! the drive, whose sum a second program returns at the end.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use toroid_client::blob;
use toroid_client::session::Session;
use toroid_drive::image::{self, FormatOptions, Image};
use toroid_drive::{Drive, DriveConfig};
use toroid_engine::backend::cpu::CpuBackend;
use toroid_isa::{KeyKind, VrNumber, VrType};
use toroid_task::Progress;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::MESSAGE16;
use toroid_tfhe::random::Csprng;

/// The test vectors have the registers that the two examples give them.
const PROGRAM: &str = "
    .reg x     = cow:1
    .reg root  = cor:2
    .reg total = cor:3
    .reg isqrt = tv:1
    .reg sbox  = tv:2
        bootstrap [isqrt, sbox], [root, x], x
        homadd    total, root
        return    x
";

const TOTAL: &str = "
    .reg total = cor:3
        return total
";

/// So that the sum of all roots is a message.
const MOST_NUMBERS: usize = 256;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = match std::env::args().nth(1) {
        Some(count) => count.parse::<usize>()?,
        None => 6,
    };
    if !(1..=MOST_NUMBERS).contains(&count) {
        return Err(format!("{count} numbers, 1 to {MOST_NUMBERS} expected").into());
    }

    let folder = tempfile::tempdir()?;
    let path = folder.path().join("drive.img");
    image::format(&path, &FormatOptions::default())?;
    let config = DriveConfig::new(Arc::new(CpuBackend::new(ArithmeticKind::Fft)));
    let drive = Arc::new(Drive::open(Image::open(&path)?, config)?);
    let session = Session::format(drive.clone(), 1, blob::FormatOptions::default()).await?;

    let started = Instant::now();
    let mut rng = Csprng::from_os()?;
    let client = ClientKey::generate(&MESSAGE16, &mut rng);
    let key_id = 0;
    for kind in [KeyKind::Bootstrapping, KeyKind::KeySwitching] {
        session
            .generate_key(key_id, &client, kind, &Progress::none())
            .await?;
    }
    println!(
        "keys on the drive: {:.2} s",
        started.elapsed().as_secs_f64()
    );

    let mut tables = Vec::new();
    for text in [
        include_str!("../../../examples/isqrt16.tasm"),
        include_str!("../../../examples/sbox16.tasm"),
    ] {
        for vector in &toroid_isa::assemble(text)?.test_vectors {
            session.put_test_vector(&MESSAGE16, vector).await?;
            tables.push(vector.table(MESSAGE16.message_bits)?);
        }
    }
    let [isqrt, sbox] = tables.as_slice() else {
        return Err("one function a file expected".into());
    };
    let assembly = toroid_isa::assemble(PROGRAM)?;
    session
        .put_program(key_id, &MESSAGE16, &assembly.program)
        .await?;

    let encoding = Encoding::new(MESSAGE16.message_bits, false)?;
    let x = VrNumber::new(VrType::LweCow, key_id, 1)?;
    let total = VrNumber::new(VrType::LweCor, key_id, 3)?;
    let zero = client.encrypt_sample(0, encoding, &mut rng)?;
    session
        .put_sample(total, &MESSAGE16, &zero, encoding, (None, None))
        .await?;

    let started = Instant::now();
    let mut sum = 0;
    for index in 1..=count {
        let number = rng.next_u64() as u16;
        let sample = client.encrypt_sample(number.into(), encoding, &mut rng)?;
        let begun = Instant::now();
        session
            .put_sample(x, &MESSAGE16, &sample, encoding, (None, None))
            .await?;
        let took = begun.elapsed();
        let stored = session.get_sample(x).await?;
        let image = client.decrypt_sample(&stored.bytes, encoding)?;
        println!(
            "{index:>3} of {count}: {number:>5} -> {image:>5}, {:.3} s for two functions, failure probability 2^{:.1}",
            took.as_secs_f64(),
            stored.log2_failure(encoding)
        );
        std::io::stdout().flush()?;
        let expected = sbox[usize::from(number)];
        if image != expected {
            return Err(format!("expected {expected}").into());
        }
        sum += isqrt[usize::from(number)];
    }
    let seconds = started.elapsed().as_secs_f64();

    // Any write to x returns the sum now.
    let assembly = toroid_isa::assemble(TOTAL)?;
    session
        .put_program(key_id, &MESSAGE16, &assembly.program)
        .await?;
    session
        .put_sample(x, &MESSAGE16, &zero, encoding, (None, None))
        .await?;
    let stored = session.get_sample(x).await?;
    drive.shutdown()?;
    let found = client.decrypt_sample(&stored.bytes, encoding)?;
    println!(
        "sum of the roots: {found}, failure probability 2^{:.1}",
        stored.log2_failure(encoding)
    );
    println!(
        "{count} numbers in {seconds:.2} s, {:.3} s a function",
        seconds / (2 * count) as f64
    );
    if found != sum {
        return Err(format!("expected {sum}").into());
    }
    Ok(())
}
