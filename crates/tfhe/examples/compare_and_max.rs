//! Functions of two arguments, by one bootstrap each: `cargo run --release -p toroid-tfhe --example compare_and_max`.
//!
//! Two numbers of 3 and 4 bits share the 7 bits that the set bootstraps.

use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::params::MESSAGE7;

fn main() -> Result<(), toroid_tfhe::TfheError> {
    let (client, server) = toroid_tfhe::generate(&MESSAGE7)?;
    let (upper, both) = (Encoding::new(3, false)?, Encoding::new(7, false)?);
    for (x, y) in [(5, 12), (6, 2), (7, 7)] {
        let a = client.encrypt_with(upper, x)?; // 0 to 7
        let b = client.encrypt_with(both, y)?; // 0 to 15
        let larger = server.apply2(|x, y| i64::from(x > y), &a, &b)?;
        let maximum = server.apply2(|x, y| x.max(y), &a, &b)?;
        let (larger, maximum) = (client.decrypt(&larger)? == 1, client.decrypt(&maximum)?);
        println!("{x} > {y}: {larger}; the larger is {maximum}");
        assert_eq!((larger, maximum), (x > y, x.max(y)));
    }
    Ok(())
}
