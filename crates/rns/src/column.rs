//! Columns: numbers of up to 17 bits (16, and one of padding) in the coefficients of a ciphertext of one limb.
//!
//! A message m of b bits stands in its coefficient as the integer nearest to m·q_0/2^b. Sums and integer weights of columns are
//! sums and weights of ciphertexts, modulo 2^b.

use std::sync::Arc;

use toroid_tfhe::random::Csprng;

use crate::RnsError;
use crate::ciphertext::{Ciphertext, Plaintext};
use crate::context::{Basis, Context};
use crate::poly::RnsPoly;
use crate::secret::SecretKey;

/// The most bits of a message.
pub const MAX_BITS: u32 = 17;

/// What is wrong with the messages of a column.
#[derive(Debug, thiserror::Error)]
pub enum ColumnError {
    /// Messages of no bits, or more than [`MAX_BITS`].
    #[error("a column of {0} bits; messages have 1 to {MAX_BITS}")]
    Bits(u32),
    /// A message that has too many bits.
    #[error("row {row}: {message} has more than {bits} bits")]
    Message {
        /// Place of the message.
        row: usize,
        /// The message.
        message: u32,
        /// Bits of messages.
        bits: u32,
    },
    /// From the ring layer.
    #[error(transparent)]
    Rns(#[from] RnsError),
}

fn check_bits(bits: u32) -> Result<(), ColumnError> {
    if (1..=MAX_BITS).contains(&bits) {
        Ok(())
    } else {
        Err(ColumnError::Bits(bits))
    }
}

/// The plaintext of N messages of `bits` each.
///
/// # Errors
/// [`ColumnError::Bits`]; [`ColumnError::Message`]; [`RnsError::Length`] unless there are N messages.
pub fn encode(
    context: &Arc<Context>,
    bits: u32,
    messages: &[u32],
) -> Result<Plaintext, ColumnError> {
    check_bits(bits)?;
    if let Some(row) = messages.iter().position(|message| message >> bits != 0) {
        return Err(ColumnError::Message {
            row,
            message: messages[row],
            bits,
        });
    }
    let q = context.params().chain[0];
    // Below 2^67, and the quotient below q.
    let half = 1u128 << (bits - 1);
    let integers: Vec<i64> = messages
        .iter()
        .map(|&message| ((u128::from(message) * u128::from(q) + half) >> bits) as i64)
        .collect();
    let poly = RnsPoly::from_i64(context, Basis::chain(1), &integers)?;
    Ok(Plaintext::new(poly, q as f64))
}

/// Encrypts N messages of `bits` each.
///
/// # Errors
/// As [`encode`].
pub fn encrypt(
    secret: &SecretKey,
    bits: u32,
    messages: &[u32],
    rng: &mut Csprng,
) -> Result<Ciphertext, ColumnError> {
    let plaintext = encode(secret.context(), bits, messages)?;
    Ok(secret.encrypt(&plaintext, rng)?)
}

/// The messages of a column, each the nearest to its coefficient. Noise is rounded away and never leaves this function.
///
/// # Errors
/// [`ColumnError::Bits`]; [`RnsError::Limbs`] for a ciphertext of more than one limb; [`RnsError::Context`].
pub fn decrypt(
    secret: &SecretKey,
    bits: u32,
    column: &Ciphertext,
) -> Result<Vec<u32>, ColumnError> {
    check_bits(bits)?;
    if column.limbs() != 1 {
        return Err(ColumnError::Rns(RnsError::Limbs {
            what: "a column",
            needed: 1,
            found: column.limbs(),
        }));
    }
    let q = i128::from(secret.context().params().chain[0]);
    let phase = secret.decrypt(column)?;
    let messages = phase.poly().to_i128().into_iter().map(|x| {
        let nearest = ((x << (bits + 1)) + q).div_euclid(2 * q);
        nearest.rem_euclid(1 << bits) as u32
    });
    Ok(messages.collect())
}
