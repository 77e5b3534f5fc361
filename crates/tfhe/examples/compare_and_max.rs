//! Functions of two arguments, by one bootstrap each: `cargo run --release -p toroid-tfhe --example compare_and_max`.
//!
//! Two numbers of 4 bits share the 8 bits that the set bootstraps.

use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::params::MESSAGE8;

fn main() -> Result<(), toroid_tfhe::TfheError> {
    let (client, server) = toroid_tfhe::generate(&MESSAGE8)?;
    let (upper, both) = (Encoding::new(4, false)?, Encoding::new(8, false)?);
    for (x, y) in [(5, 12), (6, 2), (7, 7)] {
        let a = client.encrypt_with(upper, x)?; // 0 to 15
        let b = client.encrypt_with(both, y)?; // 0 to 15
        let larger = server.apply2(|x, y| i64::from(x > y), &a, &b)?;
        let maximum = server.apply2(|x, y| x.max(y), &a, &b)?;
        let (larger, maximum) = (client.decrypt(&larger)? == 1, client.decrypt(&maximum)?);
        println!("{x} > {y}: {larger}; the larger is {maximum}");
        assert_eq!((larger, maximum), (x > y, x.max(y)));
    }
    Ok(())
}
