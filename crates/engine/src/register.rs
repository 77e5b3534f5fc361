//! Facts about a virtual register, beside its content.

use std::cmp::Ordering;

use toroid_isa::metadata::KeyTagStart;
use toroid_isa::{HEADER_BYTES, KeyKind, MAX_ENCODED_BYTES, VrNumber, VrType};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::noise::{Noise, StatedNoise};
use toroid_tfhe::params::{ModulusKind, ParamSet};
use toroid_tfhe::seeded::KeyForm;

use crate::address::{PageTableEntry, VirtualAddress};
use crate::error::EngineError;

/// What the metadata of an object says of it; of a key or a program only the key tag counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Attributes {
    /// Encoding of a sample, or of a test vector's input; `None`: unknown, or a Boolean gate's.
    pub encoding: Option<Encoding>,
    /// Encoding of a test vector's output values; `None`: that of its input.
    pub output: Option<Encoding>,
    /// Whether a program made a sample.
    pub computed: bool,
    /// log2 of a sample's noise variance over the torus, at least that of a fresh encryption. Without it the sample may be anything, and
    /// what a program makes of it fails with probability 1.
    pub log2_variance: Option<f64>,
    /// log2 of the probability that some bootstrap behind a sample failed; without it, none did.
    pub log2_failure: Option<f64>,
    /// Start of the tag of the client key that a key or a sample belongs to; `None`: not stated.
    pub key_tag: Option<KeyTagStart>,
}

impl Attributes {
    pub(crate) fn check(&self, vr: VrNumber) -> Result<(), EngineError> {
        // Half of the torus is the largest error there is, and probabilities are at most 1.
        for (what, value) in [
            ("log2 variance", self.log2_variance),
            ("log2 failure probability", self.log2_failure),
        ] {
            if let Some(found) = value
                && !matches!(
                    found.partial_cmp(&0.0),
                    Some(Ordering::Less | Ordering::Equal)
                )
            {
                return Err(EngineError::Attribute {
                    vr,
                    what,
                    expected: "a number that is at most 0",
                    found,
                });
            }
        }
        Ok(())
    }

    pub(crate) fn noise(&self, params: &ParamSet) -> Noise {
        let stated = StatedNoise {
            log2_variance: self.log2_variance,
            log2_failure: self.log2_failure,
        };
        stated.stored(params, self.computed)
    }
}

/// Whether two statements of noise are the same but for the rounding of metadata.
pub(crate) fn same_statement(a: &Noise, b: &Noise) -> bool {
    let close = |a: f64, b: f64| a == b || (a - b).abs() < 1e-3;
    close(a.variance().log2(), b.variance().log2()) && close(a.log2_failure(), b.log2_failure())
}

/// What a function takes whose test vector states this input, if any. Without a stated width it has the set's, and so it has with one
/// that no table of wide functions has; sets made for gates have none.
pub(crate) fn function_input(params: &ParamSet, stated: Option<Encoding>) -> Option<Encoding> {
    stated
        .filter(|input| !params.is_wide() || input.bits() <= params.message_bits)
        .or_else(|| Encoding::new(params.message_bits, false).ok())
}

/// A virtual register as [`crate::Engine::list`] shows it.
#[derive(Clone, Debug)]
pub struct RegisterInfo {
    /// Its number.
    pub vr: VrNumber,
    /// Its parameter set.
    pub params: &'static ParamSet,
    /// Size of its content in the form of Table 3, bytes.
    pub bytes: u64,
    /// Where it begins in the virtual address space.
    pub address: VirtualAddress,
    /// Its page table entry, if it is a sample.
    pub page: Option<PageTableEntry>,
    /// Encoding of its message; `None`: unknown, or a Boolean gate's.
    pub encoding: Option<Encoding>,
    /// Whether a program wrote it.
    pub computed: bool,
    /// Noise and failure probability, if it is a sample.
    pub noise: Option<Noise>,
}

/// Which key the register holds, if Table 3 has a key with its data id.
pub(crate) fn key_kind(vr: VrNumber) -> Option<KeyKind> {
    KeyKind::ALL
        .into_iter()
        .find(|kind| vr.ty() == VrType::Key && kind.data_id() == vr.data_id())
}

/// Whether the register holds a key of the ring layer.
pub(crate) fn is_of_ring(vr: VrNumber) -> bool {
    matches!(key_kind(vr), Some(KeyKind::Ring | KeyKind::Conversion))
}

/// Most bytes of a key of the ring layer.
const MAX_RING_KEY_BYTES: u64 = 4 << 30;

/// Bytes of a key object. Forms of the same size have the same bytes. `None` for a key of the ring layer, whose ring has its own.
fn key_bytes(kind: KeyKind, form: KeyForm, params: &ParamSet) -> Option<u64> {
    match kind {
        KeyKind::Bootstrapping => Some(form.bootstrapping_key_bytes(params)),
        KeyKind::KeySwitching => Some(form.key_switching_key_bytes(params)),
        KeyKind::Ring | KeyKind::Conversion => None,
    }
}

/// The form of a key object of this size.
pub(crate) fn key_form(kind: KeyKind, params: &ParamSet, size: u64) -> Option<KeyForm> {
    KeyForm::ALL
        .into_iter()
        .find(|form| key_bytes(kind, *form, params) == Some(size))
}

/// Size of a register's content in bytes (Table 3); `None` for programs and keys of the ring layer, whose size is their own, and for data ids
/// that the table does not have.
#[must_use]
pub fn register_bytes(vr: VrNumber, params: &ParamSet) -> Option<u64> {
    match vr.ty() {
        VrType::Prg => None,
        VrType::Tv => Some(params.test_vector_bytes() as u64),
        VrType::Key => key_kind(vr).and_then(|kind| key_bytes(kind, KeyForm::Expanded, params)),
        VrType::LweCor | VrType::LweCow => Some(params.lwe_bytes() as u64),
    }
}

/// Checks that the register exists and that an object of this size can be stored in it. A key may come expanded, as Table 3
/// has it, or seeded; its size tells.
///
/// # Errors
/// [`EngineError::Size`], [`EngineError::ProgramSize`], [`EngineError::DataId`].
pub fn check_size(vr: VrNumber, params: &ParamSet, found: u64) -> Result<(), EngineError> {
    if vr.ty() == VrType::Prg {
        if vr.data_id() != 0 {
            return Err(EngineError::DataId {
                vr,
                expected: "a program's data id is 0",
            });
        }
        let (least, most) = (HEADER_BYTES as u64, MAX_ENCODED_BYTES as u64);
        if !(least..=most).contains(&found) {
            return Err(EngineError::ProgramSize {
                vr,
                least,
                most,
                found,
            });
        }
        return Ok(());
    }
    if is_of_ring(vr) {
        // What is in it says how long it is; its reader finds out.
        if !(1..=MAX_RING_KEY_BYTES).contains(&found) {
            return Err(EngineError::Size {
                vr,
                params: params.name,
                expected: MAX_RING_KEY_BYTES,
                seeded: None,
                found,
            });
        }
        return Ok(());
    }
    let Some(expected) = register_bytes(vr, params) else {
        return Err(EngineError::DataId {
            vr,
            expected: "the data id of a key is 1 (bootstrapping key), 2 (key-switching key), 3 (ring key) or 4 (conversion key)",
        });
    };
    let kind = key_kind(vr);
    if found != expected && kind.is_none_or(|kind| key_form(kind, params, found).is_none()) {
        let seeded = kind.and_then(|kind| key_bytes(kind, KeyForm::Seeded, params));
        return Err(EngineError::Size {
            vr,
            params: params.name,
            expected,
            seeded,
            found,
        });
    }
    Ok(())
}

/// Checks that every word of a sample or test vector is below the modulus.
pub(crate) fn check_words(
    vr: VrNumber,
    params: &ParamSet,
    bytes: &[u8],
) -> Result<(), EngineError> {
    /// p = 2^64 - 2^32 + 1.
    const GOLDILOCKS: u64 = 0xffff_ffff_0000_0001;
    match params.modulus {
        ModulusKind::Torus32 => Ok(()),
        ModulusKind::Goldilocks => {
            let (words, _) = bytes.as_chunks::<8>();
            match words
                .iter()
                .map(|word| u64::from_le_bytes(*word))
                .enumerate()
                .find(|(_, word)| *word >= GOLDILOCKS)
            {
                Some((index, found)) => Err(EngineError::NotCanonical { vr, index, found }),
                None => Ok(()),
            }
        }
    }
}
