//! The product of two encrypted integers: `cargo run --release -p toroid-client --example multiply`.
//! x·y = (x+y)²/4 - (x-y)²/4; the write of y, whose register computes on write, runs the program.

use toroid_client::prelude::*;

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
        return    product";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The secret key stays on this side; the drive gets public keys, the program and ciphertexts.
    let client = ClientKey::generate(&MESSAGE8, &mut Csprng::from_os()?);
    let drive = Drive::temporary()?; // Drive::open takes a path or nvme+tcp://HOST:PORT/NQN
    drive.put_keys(&client)?;
    let (x, y) = (client.encrypt(-3)?, client.encrypt(2)?);
    let outputs = drive.run(PROGRAM, &[("x", &x), ("y", &y)])?;
    println!("-3 * 2 = {}", client.decrypt(&outputs["product"])?);
    Ok(())
}
