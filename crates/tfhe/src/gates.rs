//! Gate bootstrapping: Boolean gates on bits encoded as ±1/8, one bootstrap a gate.

use crate::TfheError;
use crate::arithmetic::Arithmetic;
use crate::bootstrap::{BootstrappingKey, Run, bootstrap};
use crate::key_switch::KeySwitchingKey;
use crate::lwe;
use crate::modulus::Modulus;
use crate::params::StageParams;

/// A Boolean gate of two inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gate {
    /// Both.
    And,
    /// Not both.
    Nand,
    /// At least one.
    Or,
    /// None.
    Nor,
    /// Exactly one.
    Xor,
    /// Both or none.
    Xnor,
}

impl Gate {
    /// Every gate.
    pub const ALL: [Gate; 6] = [
        Gate::And,
        Gate::Nand,
        Gate::Or,
        Gate::Nor,
        Gate::Xor,
        Gate::Xnor,
    ];

    /// The gate on plain bits.
    #[must_use]
    pub fn plain(self, a: bool, b: bool) -> bool {
        match self {
            Gate::And => a && b,
            Gate::Nand => !(a && b),
            Gate::Or => a || b,
            Gate::Nor => !(a || b),
            Gate::Xor => a != b,
            Gate::Xnor => a == b,
        }
    }

    /// The gate is the sign of `offset/8 + factor·(a + b)`.
    pub(crate) fn combination(self) -> (i64, i32) {
        match self {
            Gate::And => (-1, 1),
            Gate::Nand => (1, -1),
            Gate::Or => (1, 1),
            Gate::Nor => (-1, -1),
            Gate::Xor => (2, 2),
            Gate::Xnor => (-2, -2),
        }
    }
}

/// The test vector of every gate: 1/8 for positive phases, -1/8 for negative ones.
#[must_use]
pub fn test_vector<M: Modulus>(params: &StageParams) -> Vec<M::Word> {
    let mut vector = vec![M::Word::default(); params.glwe_words()];
    vector[params.extracted_dimension()..].fill(M::encode(1, 3));
    vector
}

/// Evaluates a gate on two samples (n+1 words each).
///
/// # Errors
/// Those of [`bootstrap`].
pub fn evaluate<M: Modulus, A: Arithmetic<M>>(
    gate: Gate,
    bootstrapping: &BootstrappingKey<M, A>,
    key_switching: &KeySwitchingKey<M>,
    a: &[M::Word],
    b: &[M::Word],
) -> Result<Vec<M::Word>, TfheError> {
    let params = bootstrapping.params();
    let (offset, factor) = gate.combination();
    let mut sample = a.to_vec();
    lwe::add_assign::<M>(&mut sample, b);
    lwe::mul_assign::<M>(&mut sample, factor);
    lwe::add_assign::<M>(
        &mut sample,
        &lwe::trivial::<M>(params, M::encode(offset, 3)),
    );
    bootstrap(
        bootstrapping,
        key_switching,
        &test_vector::<M>(params),
        &mut sample,
        Run::with_threads(1),
    )?;
    Ok(sample)
}

/// Not: the negated sample, without a bootstrap.
pub fn not<M: Modulus>(sample: &mut [M::Word]) {
    lwe::mul_assign::<M>(sample, -1);
}
