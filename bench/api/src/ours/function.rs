use toroid_tfhe::{TfheError, encoding::Encoding, generate, params::MESSAGE4};

use crate::clock::Clock;

pub fn run(clock: &mut Clock) -> Result<i64, TfheError> {
    let (client, server) = generate(&MESSAGE4)?;
    clock.lap("keys");
    let x = client.encrypt_with(Encoding::new(4, false)?, 13)?;
    clock.lap("encryption");
    let y = server.apply(|x| x * x % 16, &x)?;
    clock.lap("computation");
    client.decrypt(&y)
}
