//! What can be wrong with the setting of a transform.

use crate::order::Order;
use crate::order::network::PermutationError;

/// What is wrong with a setting of a core.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// log2 of the words of a polynomial, of the longest if there are several.
    #[error("log2 of the words of a polynomial must be 2 to 15, not {0}")]
    Length(u32),
    /// The sizes do not go together.
    #[error(
        "1 <= log2 of the lanes ({lanes}) <= log2 of the shortest polynomial ({shortest}) <= log2 of the longest ({longest}) is needed"
    )]
    Size {
        /// log2 of the lanes.
        lanes: u32,
        /// log2 of the words of the shortest polynomial.
        shortest: u32,
        /// log2 of the words of the longest.
        longest: u32,
    },
    /// There is no transform modulo this number.
    #[error("modulus {number}, {modulus}, is not a prime of 4 to 64 bits that is 1 modulo {order}")]
    Modulus {
        /// Which of the moduli, from 0 on.
        number: usize,
        /// The number.
        modulus: u64,
        /// The order of the root of unity.
        order: u64,
    },
    /// Other orders are for one degree and one modulus.
    #[error(
        "with several degrees or moduli, an NTT or INTT goes from halves side by side to bit-reversed order, or back"
    )]
    Orders,
    /// An order that another core has.
    #[error("words in {} order are not taken or given by this core", .0.name())]
    Order(Order),
    /// From 1 to 16 moduli.
    #[error("1 to 16 moduli are needed, not {0}")]
    Moduli(usize),
    /// The modulus has not the form.
    #[error(
        "a reduction by the form of the modulus needs one of 2^i - 2^j + 1, j < i - 1, and Barrett's one modulus"
    )]
    Form,
    /// No network.
    #[error(transparent)]
    Permutation(#[from] PermutationError),
}
