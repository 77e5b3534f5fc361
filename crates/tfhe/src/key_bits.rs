//! Client keys as text that any program can read: the bits of each secret key as characters `0` and `1`.
//!
//! ```text
//! toroid key bits 1
//! params message4
//! tag 00112233445566778899aabbccddeeff
//! lwe 0110…
//! glwe 1010…
//! ```
//!
//! Each line ends with a line feed. A line `lwe` for each of [`ClientKey::small_keys`]: character i belongs to mask word i. A line `glwe` for each of the k
//! polynomials of the GLWE key: character i belongs to X^i. The tag names the key in files and on drives; `-` stands for a new one.

use std::fmt::Write as _;

use zeroize::Zeroizing;

use crate::TfheError;
use crate::keys::{ClientKey, KeyTag};
use crate::params::ParamSet;
use crate::random::Csprng;

const MAGIC: &str = "toroid key bits 1";

/// More than the text of any client key has.
pub const MAX_TEXT: usize = 1 << 16;

/// The text of a client key.
#[must_use]
pub fn to_text(key: &ClientKey) -> Zeroizing<String> {
    // Room for all of it: a text that grows leaves copies behind.
    let mut text = Zeroizing::new(String::with_capacity(MAX_TEXT));
    text.push_str(MAGIC);
    // Writing to a string does not fail.
    let _ = write!(text, "\nparams {}\ntag ", key.params().name);
    for byte in key.tag() {
        let _ = write!(text, "{byte:02x}");
    }
    let lwe = key.small_keys().iter().map(|key| ("\nlwe ", key.bits()));
    let glwe = key.glwe();
    let glwe = glwe.bits().chunks(glwe.ring_degree());
    for (name, bits) in lwe.chain(glwe.map(|bits| ("\nglwe ", bits))) {
        text.push_str(name);
        text.extend(bits.iter().map(|bit| char::from(b'0' + *bit as u8)));
    }
    text.push('\n');
    text
}

/// The client key of a text. A new tag comes from `rng`.
///
/// # Errors
/// [`TfheError::Format`] for anything else than [`to_text`] writes: an unknown set, other lines, keys of other lengths, keys of zeros alone.
pub fn from_text(text: &str, rng: &mut Csprng) -> Result<ClientKey, TfheError> {
    let malformed = |what: &str| TfheError::Format(format!("the key bits {what}"));
    let mut lines = text.split('\n');
    let mut word = |name: &str| {
        let line = lines.next().and_then(|line| line.strip_prefix(name));
        line.ok_or_else(|| malformed(&format!("lack the line {:?}", name.trim_end())))
    };
    if !word(MAGIC)?.is_empty() {
        return Err(malformed("are of a version that is not known"));
    }
    let name = word("params ")?;
    let params = ParamSet::by_name(name);
    let params = params.ok_or_else(|| {
        malformed(&format!(
            "are of the parameter set {name:?}, which there is not"
        ))
    })?;
    let tag = match word("tag ")? {
        "-" => rng.public_bytes(),
        digits => tag(digits)
            .ok_or_else(|| malformed("have a tag that is not 32 hexadecimal digits or -"))?,
    };
    let lwe = params.key_switching_parts().into_iter();
    let lwe = lwe.map(|part| ("lwe ", part.lwe_dimension));
    let polynomials = params.extracted_dimension() / params.ring_degree;
    let glwe = std::iter::repeat_n(("glwe ", params.ring_degree), polynomials);
    let mut packed = Zeroizing::new(vec![0; ClientKey::packed_bytes(params)]);
    let mut at = 0;
    for (name, expected) in lwe.chain(glwe) {
        let bits = word(name)?.as_bytes();
        if bits.len() != expected {
            let found = bits.len();
            return Err(malformed(&format!(
                "have a key of {found} bits in a line {:?}; {} has {expected} there",
                name.trim_end(),
                params.name
            )));
        }
        for bit in bits {
            match bit {
                b'0' | b'1' => packed[at / 8] |= (bit - b'0') << (at % 8),
                _ => return Err(malformed("have characters other than 0 and 1")),
            }
            at += 1;
        }
    }
    if lines.next() != Some("") || lines.next().is_some() {
        return Err(malformed(
            "go on after the last key, or end without a line feed",
        ));
    }
    ClientKey::from_packed_bits(params, tag, &packed)
}

fn tag(digits: &str) -> Option<KeyTag> {
    let digits: &[u8; 32] = digits.as_bytes().try_into().ok()?;
    let mut tag = KeyTag::default();
    for (byte, pair) in tag.iter_mut().zip(digits.chunks(2)) {
        let [high, low] = [pair[0], pair[1]].map(|digit| char::from(digit).to_digit(16));
        *byte = (high? << 4 | low?) as u8;
    }
    Some(tag)
}
