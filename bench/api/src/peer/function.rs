use tfhe::shortint::gen_keys;
use tfhe::shortint::parameters::v1_4::V1_4_PARAM_MESSAGE_4_CARRY_0_KS_PBS_GAUSSIAN_2M128;

use crate::clock::Clock;

pub fn run(clock: &mut Clock) -> i64 {
    let (client, server) = gen_keys(V1_4_PARAM_MESSAGE_4_CARRY_0_KS_PBS_GAUSSIAN_2M128);
    clock.lap("keys");
    let x = client.encrypt(13);
    clock.lap("encryption");
    let table = server.generate_lookup_table(|x| x * x % 16);
    let y = server.apply_lookup_table(&x, &table);
    clock.lap("computation");
    client.decrypt(&y) as i64
}
