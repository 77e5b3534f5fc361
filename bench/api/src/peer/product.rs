use tfhe::prelude::*;
use tfhe::{ConfigBuilder, FheInt8, generate_keys, set_server_key};

use crate::clock::Clock;

pub fn run(clock: &mut Clock) -> Result<i64, tfhe::Error> {
    let (client, server) = generate_keys(ConfigBuilder::default().build());
    clock.lap("keys");
    let (x, y) = (
        FheInt8::try_encrypt(-9i8, &client)?,
        FheInt8::try_encrypt(11i8, &client)?,
    );
    set_server_key(server);
    clock.lap("encryption");
    let product = x * y;
    clock.lap("computation");
    let result: i8 = product.decrypt(&client);
    Ok(result.into())
}
