use toroid_tfhe::{TfheError, generate, params::MESSAGE8};

use crate::clock::Clock;

pub fn run(clock: &mut Clock) -> Result<i64, TfheError> {
    let (client, server) = generate(&MESSAGE8)?;
    clock.lap("keys");
    let (x, y) = (client.encrypt(-9)?, client.encrypt(11)?);
    clock.lap("encryption");
    let quarters = server.apply_batch(|x| x * x / 4, &[&x + &y, &x - &y])?;
    let product = &quarters[0] - &quarters[1];
    clock.lap("computation");
    client.decrypt(&product)
}
