//! Arithmetic that cores share: products in tiles, reductions, the library's transforms.

mod product;
mod reduction;
mod reference;
mod words;

pub(crate) use product::{Product, is_short, mul_latency};
pub use reduction::{Reduction, folds};
pub(crate) use reduction::{montgomery_word, solinas};
pub(crate) use reference::{root, transform};
pub(crate) use words::{hex_of, index_bits};

use toroid_ring::prime::is_prime;

/// The primes next to `q` that are 1 modulo `order`, below and above, in words.
pub(crate) fn nearest_primes(q: u64, order: u64) -> String {
    let multiple = q.saturating_sub(1) / order;
    let at = |k: u64| {
        k.checked_mul(order)
            .and_then(|product| product.checked_add(1))
    };
    let is_usable = |q: &u64| is_prime(*q);
    let below = (1..=multiple).rev().filter_map(at).find(is_usable);
    let above = (multiple + 1..).map_while(at).find(is_usable);
    match (below, above) {
        (Some(below), Some(above)) => format!("{below} and {above}"),
        (Some(only), None) | (None, Some(only)) => only.to_string(),
        (None, None) => "none of 64 bits".to_owned(),
    }
}
