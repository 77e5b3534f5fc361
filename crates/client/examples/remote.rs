//! The product of two encrypted integers, computed by a drive behind NVMe/TCP:
//! `cargo run -p toroid-client --example remote -- nvme+tcp://127.0.0.1:4420/nqn.2024-01.io.example:drive [KEY_ID]`,
//! after `toroid drive format drive.img` and `toroid drive serve drive.img --nqn nqn.2024-01.io.example:drive`.
//!
//! Objects of the key id, 0 if not given, are replaced. The parameter set `tiny` makes it quick and protects nothing.

use std::error::Error;
use std::sync::Arc;

use toroid_client::session::Session;
use toroid_drive::bridge::status::VENDOR_STATUSES;
use toroid_isa::{KeyKind, VrNumber, VrType};
use toroid_nvme::Controller;
use toroid_nvme::fabrics::{ConnectOptions, RemoteController};
use toroid_nvme::tcp::{self, Address};
use toroid_task::Progress;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::TINY;
use toroid_tfhe::random::Csprng;

const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:6c2d1d3e-6b6f-4f0e-9a51-0a7f0c6f0e01";
const HOST_ID: [u8; 16] = 0x6c2d_1d3e_6b6f_4f0e_9a51_0a7f_0c6f_0e01_u128.to_be_bytes();

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
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address: Address = arguments
        .next()
        .ok_or("expected the address of a drive: nvme+tcp://HOST:PORT/NQN")?
        .parse()?;
    let key_id: u32 = arguments.next().map_or(Ok(0), |text| text.parse())?;

    // The status codes of the drive's own are told in its words.
    let options = ConnectOptions {
        vendor_statuses: VENDOR_STATUSES,
        ..ConnectOptions::new(HOST_NQN, HOST_ID)
    };
    let host = Arc::new(tcp::connect(&address, &options).await?);
    let product = multiply(&host, key_id, (-3, 2)).await;
    if product.is_err() {
        // Beyond the status of a command that failed, the drive has a reason in words.
        if let Some((_, status, reason)) = host.reasons().await?.into_iter().next() {
            eprintln!("the drive's latest failure: {status}: {reason}");
        }
    }
    println!("-3 * 2 = {}", product?);
    Ok(())
}

async fn multiply(
    host: &Arc<RemoteController>,
    key_id: u32,
    (x, y): (i64, i64),
) -> Result<i64, Box<dyn Error>> {
    let namespace = host.controller().namespaces.first();
    let nsid = namespace.ok_or("the drive shows no namespace")?.nsid();
    let session = Session::open(Arc::clone(host) as Arc<dyn Controller>, nsid).await?;
    let mut rng = Csprng::from_os()?;
    let client = ClientKey::generate(&TINY, &mut rng);
    let encoding = Encoding::new(TINY.message_bits, true)?;
    for kind in [KeyKind::Bootstrapping, KeyKind::KeySwitching] {
        session
            .generate_key(key_id, &client, kind, &Progress::none())
            .await?;
    }
    let assembly = toroid_isa::assemble(&format!(".key {key_id}\n{PROGRAM}"))?;
    for vector in &assembly.test_vectors {
        session.put_test_vector(&TINY, vector).await?;
    }
    session
        .put_program(key_id, &TINY, &assembly.program)
        .await?;

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
    Ok(client.decrypt_sample(&stored.bytes, encoding)?)
}
