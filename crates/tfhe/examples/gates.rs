//! An adder of two numbers of 8 bits, out of Boolean gates: `cargo run --release -p toroid-tfhe --example gates`.

use toroid_tfhe::gates::Gate;
use toroid_tfhe::params::GATE;
use toroid_tfhe::{Ciphertext, ServerKey, TfheError};

fn main() -> Result<(), TfheError> {
    let (client, server) = toroid_tfhe::generate(&GATE)?;
    let encrypt = |number: u8| -> Result<Vec<Ciphertext>, TfheError> {
        (0..8)
            .map(|bit| client.encrypt_bit(number >> bit & 1 == 1))
            .collect()
    };
    let sum = add(&server, &encrypt(151)?, &encrypt(87)?)?;
    let mut number = 0;
    for (place, bit) in sum.iter().enumerate() {
        number |= i32::from(client.decrypt_bit(bit)?) << place;
    }
    println!("151 + 87 = {number}");
    assert_eq!(number, 151 + 87);
    Ok(())
}

/// The sum of two numbers, from the lowest bit up, with one bit more than they have.
fn add(
    server: &ServerKey,
    a: &[Ciphertext],
    b: &[Ciphertext],
) -> Result<Vec<Ciphertext>, TfheError> {
    // The gates that need no carry, all together.
    let mut gates = Vec::new();
    for (x, y) in a.iter().zip(b) {
        gates.extend([(Gate::Xor, x, y), (Gate::And, x, y)]);
    }
    let halves = server.gates(&gates)?;

    let mut sum = vec![halves[0].clone()];
    let mut carry = halves[1].clone();
    for half in halves.chunks(2).skip(1) {
        let (bit, both) = (&half[0], &half[1]);
        let with_carry = server.gates(&[(Gate::Xor, bit, &carry), (Gate::And, bit, &carry)])?;
        sum.push(with_carry[0].clone());
        carry = server.or(both, &with_carry[1])?;
    }
    sum.push(carry);
    Ok(sum)
}
