use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::gates::Gate;
use toroid_tfhe::params::{GATE, TINY, TINY_WOPBS, TINY32};
use toroid_tfhe::{Ciphertext, ServerKey, TfheError};

use crate::keys;

type Method = fn(&ServerKey, &Ciphertext, &Ciphertext) -> Result<Ciphertext, TfheError>;

const METHODS: [(Gate, Method); 6] = [
    (Gate::And, ServerKey::and),
    (Gate::Nand, ServerKey::nand),
    (Gate::Or, ServerKey::or),
    (Gate::Nor, ServerKey::nor),
    (Gate::Xor, ServerKey::xor),
    (Gate::Xnor, ServerKey::xnor),
];

#[test]
fn gates_have_their_truth_tables() {
    for params in [&GATE, &TINY, &TINY32] {
        let (client, server) = keys(params, ArithmeticKind::Fft, 2);
        let bits = [false, true].map(|bit| (bit, client.encrypt_bit(bit).unwrap()));
        for (a, x) in &bits {
            let not = server.not(x).unwrap();
            assert_eq!(client.decrypt_bit(&not).unwrap(), !a);
            assert_eq!(client.decrypt_bit(&!x).unwrap(), !a);
            for (b, y) in &bits {
                let mut together = Vec::new();
                for (gate, method) in METHODS {
                    let z = method(&server, x, y).unwrap();
                    assert_eq!(
                        client.decrypt_bit(&z).unwrap(),
                        gate.plain(*a, *b),
                        "{gate:?}"
                    );
                    assert_eq!(z.encoding(), None);
                    assert!(z.log2_failure() < -40.0, "{gate:?} {}", z.log2_failure());
                    together.push((gate, x, y));
                }
                for ((gate, ..), z) in together.iter().zip(server.gates(&together).unwrap()) {
                    assert_eq!(client.decrypt_bit(&z).unwrap(), gate.plain(*a, *b));
                }
                for (c, z) in &bits {
                    let chosen = server.mux(z, x, y).unwrap();
                    let expected = if *c { a } else { b };
                    assert_eq!(client.decrypt_bit(&chosen).unwrap(), *expected);
                    let again = server.xor(&chosen, x).unwrap();
                    assert_eq!(client.decrypt_bit(&again).unwrap(), expected != a);
                }
            }
        }
    }
}

#[test]
fn sets_of_wide_functions_have_no_gates() {
    let (client, server) = keys(&TINY_WOPBS, ArithmeticKind::Fft, 2);
    let x = client.encrypt_bit(true).unwrap();
    assert!(matches!(
        server.and(&x, &x),
        Err(TfheError::NoGates("tiny-wopbs"))
    ));
}

#[test]
fn gates_of_multiplexed_bits_fail_as_rarely_as_the_set_promises() {
    let (client, server) = keys(&GATE, ArithmeticKind::Fft, 4);
    let (x, y) = (
        client.encrypt_bit(true).unwrap(),
        client.encrypt_bit(false).unwrap(),
    );
    let chosen = [
        server.mux(&x, &y, &x).unwrap(),
        server.mux(&y, &y, &x).unwrap(),
    ];
    let z = server.nand(&chosen[0], &chosen[1]).unwrap();
    assert!(client.decrypt_bit(&z).unwrap());
    let failure = z.noise().log2_failure();
    assert!(failure < -128.0, "{failure}");
}

#[test]
fn gates_of_bootstrapped_bits_fail_as_rarely_as_the_set_promises() {
    let (client, server) = keys(&GATE, ArithmeticKind::Fft, 3);
    let (x, y) = (
        client.encrypt_bit(true).unwrap(),
        client.encrypt_bit(false).unwrap(),
    );
    let results = server
        .gates(&[(Gate::Nand, &x, &x), (Gate::Or, &x, &y)])
        .unwrap();
    let z = server.xor(&results[0], &results[1]).unwrap();
    assert!(client.decrypt_bit(&z).unwrap());
    assert!(
        z.noise().log2_failure() < -125.0,
        "{}",
        z.noise().log2_failure()
    );
}
