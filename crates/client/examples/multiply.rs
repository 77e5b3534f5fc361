//! The product of two encrypted integers, computed by a drive in this process: `cargo run -p toroid-client --example multiply`.
//!
//! The parameter set `tiny` makes it quick and protects nothing; `message7` works the same way.

use std::sync::Arc;

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
use toroid_tfhe::params::TINY;
use toroid_tfhe::random::Csprng;

/// x·y = (x+y)²/4 - (x-y)²/4; writing y runs it.
const PROGRAM: &str = "
    .reg x       = cor:1
    .reg y       = cow:2
    .reg product = cor:0
    .tv  sq4     = x*x/4
        mov       product, x
        homadd    product, y
        bootstrap sq4, product
        homsub    x, y
        bootstrap sq4, x
        homsub    product, x
        return    product
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The side that is not trusted: an SSD and an engine behind an NVMe controller.
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("drive.img");
    let options = FormatOptions {
        size: 64 << 20,
        swap: 16 << 20,
        ..FormatOptions::default()
    };
    image::format(&path, &options)?;
    let config = DriveConfig::new(Arc::new(CpuBackend::new(ArithmeticKind::Fft)));
    let drive = Arc::new(Drive::open(Image::open(&path)?, config)?);

    // The client's side: a blob store on namespace 1, and the key.
    let session = Session::format(drive.clone(), 1, blob::FormatOptions::default()).await?;
    let mut rng = Csprng::from_os()?;
    let client = ClientKey::generate(&TINY, &mut rng);
    let encoding = Encoding::new(TINY.message_bits, true)?;

    // Public keys, the function x²/4 and the program go to their virtual registers, all of key id 0.
    let key_id = 0;
    for kind in [KeyKind::Bootstrapping, KeyKind::KeySwitching] {
        session
            .generate_key(key_id, &client, kind, &Progress::none())
            .await?;
    }
    let assembly = toroid_isa::assemble(PROGRAM)?;
    for vector in &assembly.test_vectors {
        session.put_test_vector(&TINY, vector).await?;
    }
    session
        .put_program(key_id, &TINY, &assembly.program)
        .await?;

    let (x, y) = (-3, 2);
    let x_register = VrNumber::new(VrType::LweCor, key_id, 1)?;
    let y_register = VrNumber::new(VrType::LweCow, key_id, 2)?;
    let sample = client.encrypt_sample(x, encoding, &mut rng)?;
    session
        .put_sample(x_register, &TINY, &sample, encoding, (None, None))
        .await?;
    // Compute-on-write: the drive runs the program, and the product takes the place of y.
    let sample = client.encrypt_sample(y, encoding, &mut rng)?;
    session
        .put_sample(y_register, &TINY, &sample, encoding, (None, None))
        .await?;
    let stored = session.get_sample(y_register).await?;
    drive.shutdown()?;

    let product = client.decrypt_sample(&stored.bytes, encoding)?;
    let log2_failure = stored.log2_failure(encoding);
    println!("{x} * {y} = {product}, failure probability 2^{log2_failure:.1}");
    if product != x * y {
        return Err(format!("expected {}", x * y).into());
    }
    Ok(())
}
