//! The square root of a number of 16 bits, by one call: `cargo run --release -p toroid-tfhe --example wide`.

use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::params::MESSAGE16;

fn main() -> Result<(), toroid_tfhe::TfheError> {
    let (client, server) = toroid_tfhe::generate(&MESSAGE16)?;
    let unsigned = Encoding::new(16, false)?;
    let number = client.encrypt_with(unsigned, 54_321)?;
    let [root, rest] = server.apply_many([&|n| n.isqrt(), &|n| n - n.isqrt().pow(2)], &number)?;
    let (root, rest) = (client.decrypt(&root)?, client.decrypt(&rest)?);
    println!("54321 = {root}² + {rest}");
    assert_eq!(root * root + rest, 54_321);
    Ok(())
}
