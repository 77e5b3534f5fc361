//! Objects on their way to a drive.

use std::io::{BufWriter, Read, Write};

use tokio::sync::mpsc;
use toroid_isa::metadata::ScMetadata;
use toroid_isa::{KeyKind, Program, TestVector, VrNumber};
use toroid_rns::format::FormatError;
use toroid_rns::ring_set::RingSet;
use toroid_rns::samples::{GADGET, SampleKeys};
use toroid_rns::{SecretKey, batch};
use toroid_task::Progress;
use toroid_tfhe::keys::KeyTag;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::Csprng;
use toroid_tfhe::seeded::KeyForm;
use toroid_tfhe::serialize::ObjectReader;
use toroid_tfhe::{Ciphertext, ClientKey, TfheError};

use super::{SessionError, TestVectorReport, public_key, sample_metadata, test_vector_bytes};
use crate::blob::BlobWriter;
use crate::ledger::{Digest, ObjectDigest};

/// Something to put into a register of a drive ([`Session::put`](super::Session::put)).
pub struct Object<'a> {
    sc: ScMetadata,
    content: Content<'a>,
}

enum Content<'a> {
    Bytes(Vec<u8>),
    File(Box<dyn Chunks + Send + 'a>),
    Key(&'a ClientKey, KeyKind),
    RingKey(&'a ClientKey, &'static RingSet),
    ConversionKey(&'a ClientKey, &'static RingSet),
}

/// The payload of an object's file, piece by piece.
trait Chunks {
    fn next(&mut self) -> Result<Option<&[u8]>, TfheError>;
}

impl<R: Read> Chunks for ObjectReader<R> {
    fn next(&mut self) -> Result<Option<&[u8]>, TfheError> {
        self.next_chunk()
    }
}

impl<'a> Object<'a> {
    /// A public key that is generated on its way, on all cores and seeded. A few GGSW samples a thread are in memory at a time, never
    /// the key.
    ///
    /// # Errors
    /// [`SessionError::Register`].
    pub fn generated_key(
        key_id: u32,
        client: &'a ClientKey,
        kind: KeyKind,
    ) -> Result<Object<'a>, SessionError> {
        let sc = key_metadata(key_id, client.params(), kind, KeyForm::Seeded, client.tag())?;
        let content = Content::Key(client, kind);
        Ok(Object { sc, content })
    }

    /// The key by which a drive computes on ring columns, generated on its way, on all cores.
    ///
    /// # Errors
    /// [`SessionError::Register`], [`SessionError::Tfhe`] for a ring that cannot be.
    pub fn ring_key(
        key_id: u32,
        client: &'a ClientKey,
        set: &'static RingSet,
    ) -> Result<Object<'a>, SessionError> {
        let size = batch::key_bytes(set).map_err(of_ring)?;
        let vr = VrNumber::key(key_id, KeyKind::Ring)?;
        let sc = ScMetadata::new(vr, client.params().id, size)?;
        Ok(Object {
            sc: sc.with_key_tag(super::tag_start(client.tag())),
            content: Content::RingKey(client, set),
        })
    }

    /// The keys by which columns change between samples and ring columns on a drive, generated on their way. Their metadata have the bits of the ring's
    /// messages.
    ///
    /// # Errors
    /// [`SessionError::Register`], [`SessionError::Tfhe`] for samples that do not become columns of the ring.
    pub fn conversion_key(
        key_id: u32,
        client: &'a ClientKey,
        set: &'static RingSet,
    ) -> Result<Object<'a>, SessionError> {
        let size = SampleKeys::file_bytes(set, client.params()).map_err(of_ring)?;
        let vr = VrNumber::key(key_id, KeyKind::Conversion)?;
        let sc = ScMetadata::new(vr, client.params().id, size)?;
        let sc = sc.with_message(set.bits() as u8, false)?;
        Ok(Object {
            sc: sc.with_key_tag(super::tag_start(client.tag())),
            content: Content::ConversionKey(client, set),
        })
    }

    /// A public key from its file, in the form that it has there.
    ///
    /// # Errors
    /// [`SessionError::Tfhe`] for a file of something else, [`SessionError::Register`].
    pub fn key<R: Read + Send + 'a>(
        key_id: u32,
        reader: ObjectReader<R>,
    ) -> Result<Object<'a>, SessionError> {
        let header = reader.header();
        let (kind, form) = public_key(header.kind).ok_or_else(|| {
            TfheError::Format(format!(
                "a {} is not a public key that drives take",
                header.kind.name()
            ))
        })?;
        let sc = key_metadata(key_id, &header.params, kind, form, &header.tag)?;
        let content = Content::File(Box::new(reader));
        Ok(Object { sc, content })
    }

    /// A program's test vector for a parameter set.
    ///
    /// # Errors
    /// [`SessionError::TestVector`] where the expression fails at some input or the values stand in a file that has not been
    /// read ([`crate::tables::read_files`]), [`SessionError::TestVectorWidth`].
    pub fn test_vector(
        params: &ParamSet,
        vector: &TestVector,
    ) -> Result<(Object<'static>, TestVectorReport), SessionError> {
        let (bytes, input, report) = test_vector_bytes(params, vector)?;
        let sc = ScMetadata::new(vector.vr, params.id, bytes.len() as u64)?
            .with_message(input.bits() as u8, input.is_signed())?
            .with_output_bits(report.bits.1 as u8)?;
        let content = Content::Bytes(bytes);
        Ok((Object { sc, content }, report))
    }

    /// A program, for the program register of its key id.
    ///
    /// # Errors
    /// [`SessionError::Register`], [`SessionError::Metadata`].
    pub fn program(
        key_id: u32,
        params: &ParamSet,
        program: &Program,
    ) -> Result<Object<'static>, SessionError> {
        let bytes = toroid_isa::encode(program);
        let sc = ScMetadata::new(VrNumber::program(key_id)?, params.id, bytes.len() as u64)?;
        let content = Content::Bytes(bytes);
        Ok(Object { sc, content })
    }

    /// A sample, for a register.
    ///
    /// # Errors
    /// [`SessionError::WrongType`], [`SessionError::Metadata`].
    pub fn sample(vr: VrNumber, sample: &Ciphertext) -> Result<Object<'static>, SessionError> {
        let sc = sample_metadata(vr, sample)?;
        let content = Content::Bytes(sample.sample().to_vec());
        Ok(Object { sc, content })
    }

    /// What these bytes are by their metadata.
    pub(crate) fn of_bytes(sc: ScMetadata, bytes: Vec<u8>) -> Object<'static> {
        let content = Content::Bytes(bytes);
        Object { sc, content }
    }

    /// The same test vector for another register.
    #[cfg(feature = "image")]
    pub(crate) fn for_register(self, vr: VrNumber) -> Result<Object<'a>, SessionError> {
        let sc = ScMetadata::new(vr, self.sc.params(), self.sc.size())?
            .with_message(self.sc.message_bits(), self.sc.signed())?
            .with_output_bits(self.sc.output_bits())?;
        Ok(Object { sc, ..self })
    }

    /// What the drive is told of it.
    #[must_use]
    pub fn metadata(&self) -> &ScMetadata {
        &self.sc
    }

    /// The content, where it is in memory: of anything but a key.
    #[cfg(feature = "image")]
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Hands the content to the drive. Returns the digest of it with the metadata.
    pub(super) async fn write(self, writer: &mut BlobWriter) -> Result<Digest, SessionError> {
        let mut digest = ObjectDigest::new(&self.sc);
        match self.content {
            Content::Bytes(bytes) => {
                digest.update(&bytes);
                writer.write(&bytes).await?;
            }
            Content::File(mut reader) => {
                let vr = self.sc.vr();
                let failed = |source| SessionError::Source { vr, source };
                while let Some(chunk) = reader.next().map_err(failed)? {
                    digest.update(chunk);
                    writer.write(chunk).await?;
                }
            }
            Content::Key(client, kind) => {
                let client = client.clone();
                let generate = move |sink| key(&client, kind, sink);
                generated(writer, &mut digest, generate).await?;
            }
            Content::RingKey(client, set) => {
                let client = client.clone();
                let generate = move |sink| ring_key(&client, set, sink);
                generated(writer, &mut digest, generate).await?;
            }
            Content::ConversionKey(client, set) => {
                let client = client.clone();
                let generate = move |sink| conversion_key(&client, set, sink);
                generated(writer, &mut digest, generate).await?;
            }
        }
        Ok(digest.finish())
    }
}

/// Hands over a key that `generate` writes into a sink, as it comes.
async fn generated(
    writer: &mut BlobWriter,
    digest: &mut ObjectDigest,
    generate: impl FnOnce(Sink) -> Result<(), TfheError> + Send + 'static,
) -> Result<(), SessionError> {
    let (sender, mut receiver) = mpsc::channel::<Vec<u8>>(1);
    let task = tokio::task::spawn_blocking(move || generate(Sink(sender)));
    while let Some(bytes) = receiver.recv().await {
        digest.update(&bytes);
        writer.write(&bytes).await?;
    }
    Ok(task.await??)
}

/// The bytes of a key on their way to whoever writes them. That one looks at the cancellation token; when it stops, the sink is closed.
struct Sink(mpsc::Sender<Vec<u8>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let sent = self.0.blocking_send(bytes.to_vec());
        sent.map_err(|_| std::io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Generates a key of samples.
fn key(client: &ClientKey, kind: KeyKind, mut sink: Sink) -> Result<(), TfheError> {
    let mut rng = Csprng::from_os()?;
    let (form, progress) = (KeyForm::Seeded, Progress::none());
    let mut sink = |bytes: &[u8]| sink.write_all(bytes).map_err(|_| TfheError::Cancelled);
    match kind {
        KeyKind::Bootstrapping => client.bootstrapping_key(form, &mut rng, &progress, &mut sink),
        KeyKind::KeySwitching => client.key_switching_key(form, &mut rng, &progress, &mut sink),
        KeyKind::Ring | KeyKind::Conversion => {
            let reason = format!("a {kind} has another source");
            Err(TfheError::Format(reason))
        }
    }
}

/// Generates a ring key.
fn ring_key(client: &ClientKey, set: &RingSet, sink: Sink) -> Result<(), TfheError> {
    let mut rng = Csprng::from_os()?;
    let secret = SecretKey::derive(set, client).map_err(|error| of_ring(error.into()))?;
    let buffered = BufWriter::with_capacity(1 << 20, sink);
    let written = batch::write_keys(buffered, set, &secret, &mut rng, &Progress::none());
    Ok(written.map_err(of_ring)?.flush()?)
}

/// Generates the keys between samples and ring columns.
fn conversion_key(client: &ClientKey, set: &RingSet, sink: Sink) -> Result<(), TfheError> {
    let mut rng = Csprng::from_os()?;
    let secret = SecretKey::derive(set, client).map_err(|error| of_ring(error.into()))?;
    let keys = SampleKeys::generate(client, &secret, GADGET, &mut rng).map_err(of_ring)?;
    let buffered = BufWriter::with_capacity(1 << 20, sink);
    let written = keys.write_to(buffered, &Progress::none());
    Ok(written.map_err(of_ring)?.flush()?)
}

fn of_ring(error: FormatError) -> TfheError {
    match error {
        FormatError::File(error) => error,
        error => TfheError::Format(error.to_string()),
    }
}

fn key_metadata(
    key_id: u32,
    params: &ParamSet,
    kind: KeyKind,
    form: KeyForm,
    tag: &KeyTag,
) -> Result<ScMetadata, SessionError> {
    let size = match kind {
        KeyKind::Bootstrapping => form.bootstrapping_key_bytes(params),
        KeyKind::KeySwitching => form.key_switching_key_bytes(params),
        KeyKind::Ring | KeyKind::Conversion => {
            let vr = VrNumber::key(key_id, kind)?;
            return Err(SessionError::WrongType(vr, "keys of samples"));
        }
    };
    let sc = ScMetadata::new(VrNumber::key(key_id, kind)?, params.id, size)?;
    Ok(sc.with_key_tag(super::tag_start(tag)))
}
