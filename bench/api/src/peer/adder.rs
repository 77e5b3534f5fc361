use tfhe::boolean::prelude::{BinaryBooleanGates, Ciphertext, ServerKey, gen_keys};

use crate::clock::Clock;

fn add(key: &ServerKey, a: &[Ciphertext], b: &[Ciphertext]) -> Vec<Ciphertext> {
    let mut carry = key.and(&a[0], &b[0]);
    let mut sum = vec![key.xor(&a[0], &b[0])];
    for (a, b) in a.iter().zip(b).skip(1) {
        let half = key.xor(a, b);
        sum.push(key.xor(&half, &carry));
        carry = key.mux(&half, &carry, a);
    }
    sum
}

pub fn run(clock: &mut Clock) -> i64 {
    let (client, server) = gen_keys();
    clock.lap("keys");
    let encrypt = |number: u64| -> Vec<_> {
        (0..8)
            .map(|bit| client.encrypt(number >> bit & 1 == 1))
            .collect()
    };
    let (a, b) = (encrypt(115), encrypt(87));
    clock.lap("encryption");
    let sum = add(&server, &a, &b);
    clock.lap("computation");
    let mut number = 0;
    for (place, bit) in sum.iter().enumerate() {
        number |= i64::from(client.decrypt(bit)) << place;
    }
    number
}
