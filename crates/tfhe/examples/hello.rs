//! A function of a sum: `cargo run --release -p toroid-tfhe --example hello`.

use toroid_tfhe::params::MESSAGE8;

fn main() -> Result<(), toroid_tfhe::TfheError> {
    let (client, server) = toroid_tfhe::generate(&MESSAGE8)?;
    let (a, b) = (client.encrypt(5)?, client.encrypt(3)?);
    let c = server.apply(|x| x * x / 4, &(a + b))?;
    println!("(5 + 3)² / 4 = {}", client.decrypt(&c)?);
    Ok(())
}
