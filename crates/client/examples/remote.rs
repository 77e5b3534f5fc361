//! The product of two encrypted integers, computed by a drive on the network:
//! `cargo run -p toroid-client --no-default-features --example remote -- nvme+tcp://127.0.0.1:4420/nqn.2024-01.io.example:drive [KEY_ID]`,
//! after `toroid drive format drive.img` and `toroid drive serve drive.img --nqn nqn.2024-01.io.example:drive`.
//!
//! The program replaces what the drive stores for the key id, 0 if not given. The parameter set `tiny` makes it quick and protects nothing.

use toroid_client::prelude::*;

/// x·y = (x+y)²/4 - (x-y)²/4. The write of y, a compute-on-write register, runs it.
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let location = arguments
        .next()
        .ok_or("expected the address of a drive: nvme+tcp://HOST:PORT/NQN")?;
    let key_id = arguments.next().map_or(Ok(0), |text| text.parse())?;

    let client = ClientKey::generate(&TINY, &mut Csprng::from_os()?);
    let drive = Drive::options().key_id(key_id).open(location.as_str())?;
    drive.put_keys(&client)?;
    let (x, y) = (client.encrypt(-3)?, client.encrypt(2)?);
    // Beyond the status of a command that fails, the error has the drive's reason in words.
    let outputs = drive.run(PROGRAM, &[("x", &x), ("y", &y)])?;
    println!("-3 * 2 = {}", client.decrypt(&outputs["product"])?);
    Ok(())
}
