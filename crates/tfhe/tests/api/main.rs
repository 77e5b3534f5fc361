//! Tests of the keys and ciphertexts that applications use.

mod ciphertexts;
