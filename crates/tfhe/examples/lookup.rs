//! A table of 256 entries read at an encrypted place: `cargo run --release -p toroid-tfhe --example lookup`.
//!
//! The server sees neither the place nor the entry. An entry is too wide for one ciphertext, so two tables are read.

use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::params::MESSAGE8;

fn main() -> Result<(), toroid_tfhe::TfheError> {
    let (client, server) = toroid_tfhe::generate(&MESSAGE8)?;
    let primes: Vec<i64> = (2..)
        .filter(|n| (2..*n).all(|d| n % d != 0))
        .take(256)
        .collect();

    let unsigned = Encoding::new(8, false)?;
    let place = client.encrypt_with(unsigned, 99)?;
    let entry = |n: i64| primes[n as usize];
    let [upper, lower] = server.apply_many([&|n| entry(n) / 100, &|n| entry(n) % 100], &place)?;

    let prime = 100 * client.decrypt(&upper)? + client.decrypt(&lower)?;
    println!("prime number 100 is {prime}");
    println!("wrong with probability 2^{:.0}", upper.log2_failure());
    assert_eq!(prime, primes[99]);
    Ok(())
}
