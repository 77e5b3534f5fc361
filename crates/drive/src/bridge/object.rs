//! The part of an object that a command carries.

use toroid_engine::{Attributes, Part, RunOutcome, check_size};
use toroid_isa::VrType;
use toroid_isa::metadata::ScMetadata;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::noise::Noise;
use toroid_tfhe::params::ParamSet;

use super::carrier::Description;
use super::command::Context;
use super::status::{Fault, METADATA_INVALID, PROGRAM_REFUSED, TRIGGER_SPLIT, WRONG_PARAMETERS};

/// The part of an object that a command carries.
#[derive(Clone, Copy)]
pub(crate) struct Object {
    pub(crate) description: Description,
    pub(crate) params: &'static ParamSet,
    /// Bytes of the object in the command; what follows in the last block is padding.
    pub(crate) len: usize,
}

/// Checks what the metadata says of the object as a whole; gives its parameter set.
pub(crate) fn check(sc: &ScMetadata) -> Result<&'static ParamSet, Fault> {
    let params = ParamSet::by_id(sc.params()).ok_or_else(|| {
        Fault::new(
            WRONG_PARAMETERS,
            format!("parameter set {} of {} is unknown", sc.params(), sc.vr()),
        )
    })?;
    // The engine checks a program's size itself: a read delivers what it refuses. A column has any size.
    if sc.vr().ty() != VrType::Prg && !sc.column() {
        check_size(sc.vr(), params, sc.size())?;
    }
    Ok(params)
}

/// The encoding of messages of `bits` bits, where the metadata states that, else of `unstated` bits; none for 0 bits. Keys and
/// programs have no messages.
fn encoding(
    (sc, params): (&ScMetadata, &ParamSet),
    bits: u8,
    unstated: u32,
) -> Result<Option<Encoding>, Fault> {
    let bits = match (sc.vr().ty(), bits) {
        (VrType::Key | VrType::Prg, _) => 0,
        (_, 0) => unstated,
        (_, bits) => bits.into(),
    };
    if bits == 0 {
        return Ok(None);
    }
    let wrong = |error| Fault::new(METADATA_INVALID, format!("{}: {error}", sc.vr()));
    let encoding = match sc.vr().ty() {
        VrType::Tv => Encoding::new(bits, sc.signed()),
        _ => Encoding::of_samples(params, bits, sc.signed()),
    };
    encoding.map(Some).map_err(wrong)
}

/// What the metadata states of an object of this set.
pub(crate) fn attributes(sc: &ScMetadata, params: &ParamSet) -> Result<Attributes, Fault> {
    let of_set = match sc.vr().ty() {
        VrType::Tv => params.message_bits,
        _ => 0,
    };
    Ok(Attributes {
        encoding: encoding((sc, params), sc.message_bits(), of_set)?,
        output: encoding((sc, params), sc.output_bits(), 0)?,
        log2_variance: sc.log2_variance().map(f64::from),
        log2_failure: sc.log2_p_fail().map(f64::from),
        computed: sc.computed(),
        key_tag: sc.key_tag(),
    })
}

/// The metadata with what a program's result has: its encoding, noise and failure probability, and that it was computed.
pub(crate) fn with_result(
    sc: ScMetadata,
    encoding: Option<Encoding>,
    noise: &Noise,
) -> Result<ScMetadata, Fault> {
    let bits = encoding.map_or(0, |encoding| encoding.bits() as u8);
    // A logarithm of 0 would read as "not stated", which is the opposite of what it says.
    let stated = |log2: f64| Some(log2.min(-f64::from(f32::EPSILON)));
    Ok(sc
        .with_message(bits, encoding.is_some_and(Encoding::is_signed))?
        .with_noise(
            stated(noise.variance().log2()),
            stated(noise.log2_failure()),
        )
        .with_computed(true))
}

impl Object {
    /// The object whose part these blocks hold, if the host may use it.
    pub(crate) fn of(
        context: &Context,
        description: Description,
        bytes: usize,
    ) -> Result<Object, Fault> {
        let sc = &description.sc;
        context.keys().check_register(sc.vr())?;
        Ok(Object {
            description,
            params: check(sc)?,
            len: usize::try_from(sc.remaining()).map_or(bytes, |left| left.min(bytes)),
        })
    }

    pub(crate) fn sc(&self) -> &ScMetadata {
        &self.description.sc
    }

    /// The part as the engine takes it. `data` are the blocks of the command.
    pub(crate) fn part<'a>(&self, context: &Context, data: &'a [u8]) -> Result<Part<'a>, Fault> {
        let sc = self.sc();
        Ok(Part {
            context: context.paging(),
            vr: sc.vr(),
            params: self.params,
            total_size: sc.size(),
            offset: sc.offset(),
            bytes: &data[..self.len],
            attributes: attributes(sc, self.params)?,
        })
    }

    /// A program's result can only take the place of a sample, or column, that is all there. No column comes in parts.
    pub(crate) fn check_whole(&self) -> Result<(), Fault> {
        let sc = self.sc();
        if sc.offset() == 0 && self.len as u64 == sc.size() {
            return Ok(());
        }
        let what = if sc.column() {
            "a column"
        } else {
            "a sample that triggers a program"
        };
        Err(Fault::new(
            TRIGGER_SPLIT,
            format!(
                "{} bytes from byte {} of {}; {what} must come whole in one command, {} bytes",
                self.len,
                sc.offset(),
                sc.vr(),
                sc.size()
            ),
        ))
    }

    /// Metadata of the result that takes the sample's place.
    pub(crate) fn result(&self, outcome: &RunOutcome) -> Result<ScMetadata, Fault> {
        if outcome.bytes.len() != self.len || outcome.params.id != self.params.id {
            return Err(Fault::new(
                PROGRAM_REFUSED,
                format!(
                    "the program returned {} of parameter set {}; expected {}, like {}",
                    outcome.returned,
                    outcome.params.name,
                    self.params.name,
                    self.sc().vr()
                ),
            ));
        }
        with_result(*self.sc(), outcome.encoding, &outcome.noise)
    }
}
