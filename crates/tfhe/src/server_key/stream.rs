//! Server keys as bytes, and client keys, in the files of [`crate::serialize`].

use std::io::{Read, Write};

use toroid_ring::simd::SimdLevel;
use toroid_task::Progress;
use zeroize::Zeroizing;

use super::ServerKey;
use crate::TfheError;
use crate::any_key::AnyKeyLoader;
use crate::arithmetic::ArithmeticKind;
use crate::encrypted_key::{self, Cost};
use crate::key_loader::KeyLoader;
use crate::keys::{ClientKey, StageKey};
use crate::random::Csprng;
use crate::seeded::KeyForm;
use crate::serialize::{self, HEADER_BYTES, Header, Kind, ObjectReader, ObjectWriter};

impl ServerKey {
    /// Reads a server key: the files of a bootstrapping and a key-switching key of one client key, one after the other,
    /// in any order and form. [`ClientKey::write_server_key`] writes them so; for two files of their own,
    /// [`Read::chain`] them. The keys are loaded as they are read.
    ///
    /// # Errors
    /// [`TfheError::Io`]; [`TfheError::Format`] for anything else than these two; [`TfheError::ParamsMismatch`] and
    /// [`TfheError::KeyMismatch`] for keys that do not belong together; [`TfheError::NotCanonical`].
    pub fn read_from<R: Read>(
        mut reader: R,
        arithmetic: ArithmeticKind,
    ) -> Result<ServerKey, TfheError> {
        let simd = SimdLevel::best();
        let (mut bootstrapping, mut key_switching) = (None, None);
        let mut first: Option<Header> = None;
        for _ in 0..2 {
            let mut bytes = [0; HEADER_BYTES];
            reader.read_exact(&mut bytes)?;
            let header = Header::from_bytes(&bytes)?;
            if let Some(first) = &first {
                belongs_to(&header, first)?;
            }
            let rest = (&mut reader).take(header.file_bytes() - HEADER_BYTES as u64);
            let object = ObjectReader::new(bytes.as_slice().chain(rest))?;
            let params = &header.params;
            match (header.kind.key_form(), header.kind.is_key_switching_key()) {
                (Some(form), false) if bootstrapping.is_none() => {
                    let loader = AnyKeyLoader::bootstrapping(params, arithmetic, form, simd)?;
                    bootstrapping = Some(load(object, loader)?);
                }
                (None, _)
                    if header.kind == Kind::UnrolledBootstrappingKey && bootstrapping.is_none() =>
                {
                    let loader = AnyKeyLoader::unrolled_bootstrapping(params, arithmetic, simd)?;
                    bootstrapping = Some(load(object, loader)?);
                }
                (Some(form), true) if key_switching.is_none() => {
                    let loader = AnyKeyLoader::key_switching(params, form, simd)?;
                    key_switching = Some(load(object, loader)?);
                }
                _ => {
                    let name = header.kind.name();
                    let text = format!("a {name} is not what a server key needs here");
                    return Err(TfheError::Format(text));
                }
            }
            first = Some(header);
        }
        match (first, bootstrapping, key_switching) {
            (Some(header), Some(bootstrapping), Some(key_switching)) => {
                Ok(ServerKey::new(header.tag, bootstrapping, key_switching))
            }
            _ => unreachable!("two objects of two kinds were read"),
        }
    }

    /// The server key that [`ClientKey::server_key_bytes`] wrote, for computing by FFT.
    ///
    /// # Errors
    /// As [`ServerKey::read_from`].
    pub fn from_bytes(bytes: &[u8]) -> Result<ServerKey, TfheError> {
        ServerKey::read_from(bytes, ArithmeticKind::Fft)
    }
}

fn belongs_to(header: &Header, first: &Header) -> Result<(), TfheError> {
    if header.params != first.params {
        return Err(TfheError::ParamsMismatch {
            what: header.kind.name(),
            expected: first.params.name.to_owned(),
            found: header.params.name.to_owned(),
        });
    }
    if header.tag != first.tag {
        return Err(TfheError::KeyMismatch(header.kind.name()));
    }
    Ok(())
}

fn load<R: Read, L: KeyLoader<Error = TfheError>>(
    mut object: ObjectReader<R>,
    mut loader: L,
) -> Result<L::Key, TfheError> {
    while let Some(chunk) = object.next_chunk()? {
        loader.write(chunk)?;
    }
    loader.finish()
}

impl ClientKey {
    /// Writes a server key as it is generated, with the operating system's generator: a bootstrapping key, then a
    /// key-switching key, both in the form that is small.
    ///
    /// ```
    /// # use toroid_tfhe::{ClientKey, ServerKey, params::TINY, random::Csprng};
    /// # let client = ClientKey::generate(&TINY, &mut Csprng::from_os()?);
    /// let server = ServerKey::from_bytes(&client.server_key_bytes()?)?;
    /// let x = server.apply(|x| 2 * x, &client.encrypt(3)?)?;
    /// assert_eq!(client.decrypt(&x)?, 6);
    /// # Ok::<(), toroid_tfhe::TfheError>(())
    /// ```
    ///
    /// # Errors
    /// [`TfheError::Io`], [`TfheError::Entropy`].
    pub fn server_key_bytes(&self) -> Result<Vec<u8>, TfheError> {
        let mut rng = Csprng::from_os()?;
        self.write_server_key(Vec::new(), KeyForm::Seeded, &mut rng, &Progress::none())
    }

    /// Writes a server key as it is generated: a bootstrapping key, then a key-switching key, both in this form. It takes a
    /// few megabytes of memory whatever the size of the key.
    ///
    /// # Errors
    /// [`TfheError::Io`], [`TfheError::Cancelled`].
    pub fn write_server_key<W: Write>(
        &self,
        writer: W,
        form: KeyForm,
        rng: &mut Csprng,
        progress: &Progress,
    ) -> Result<W, TfheError> {
        let (kind, parts) = (Kind::bootstrapping_key(form), self.bootstrapping_stages());
        self.write_keys(writer, kind, &parts, form, rng, progress)
    }

    /// Writes a server key as it is generated: an unrolled bootstrapping key, then a key-switching key, both in the form that is small.
    /// [`ServerKey::read_from`] reads it.
    ///
    /// # Errors
    /// [`TfheError::NotUnrolled`] for a set of wide functions, [`TfheError::Io`], [`TfheError::Cancelled`].
    pub fn write_unrolled_server_key<W: Write>(
        &self,
        writer: W,
        rng: &mut Csprng,
        progress: &Progress,
    ) -> Result<W, TfheError> {
        let (kind, parts) = (Kind::UnrolledBootstrappingKey, [self.unrolled_stage()?]);
        self.write_keys(writer, kind, &parts, KeyForm::Seeded, rng, progress)
    }

    fn write_keys<W: Write>(
        &self,
        writer: W,
        kind: Kind,
        parts: &[StageKey<'_>],
        form: KeyForm,
        rng: &mut Csprng,
        progress: &Progress,
    ) -> Result<W, TfheError> {
        let header = Header::new(kind, self.params(), *self.tag());
        let mut object = ObjectWriter::new(writer, &header)?;
        self.ggsw_lists(parts, form, rng, progress, &mut |bytes| object.write(bytes))?;
        let writer = object.finish()?;

        let kind = Kind::key_switching_key(form);
        let header = Header { kind, ..header };
        let mut object = ObjectWriter::new(writer, &header)?;
        self.key_switching_key(form, rng, progress, &mut |bytes| object.write(bytes))?;
        object.finish()
    }

    /// The file of this key, encrypted under a passphrase ([`encrypted_key`]), with the default cost.
    ///
    /// ```
    /// # use toroid_tfhe::{ClientKey, params::TINY, random::Csprng};
    /// # let client = ClientKey::generate(&TINY, &mut Csprng::from_os()?);
    /// let file = client.to_encrypted_bytes("correct horse battery staple")?;
    /// let back = ClientKey::from_encrypted_bytes(&file, "correct horse battery staple")?;
    /// assert_eq!(back.decrypt(&client.encrypt(3)?)?, 3);
    /// # Ok::<(), toroid_tfhe::TfheError>(())
    /// ```
    ///
    /// # Errors
    /// [`TfheError::Format`] for an empty passphrase, [`TfheError::Entropy`].
    pub fn to_encrypted_bytes(&self, passphrase: &str) -> Result<Vec<u8>, TfheError> {
        let (cost, mut rng) = (Cost::default(), Csprng::from_os()?);
        encrypted_key::write(Vec::new(), self, passphrase.as_bytes(), cost, &mut rng)
    }

    /// The client key that [`ClientKey::to_encrypted_bytes`] wrote.
    ///
    /// # Errors
    /// [`TfheError::Passphrase`], [`TfheError::Format`].
    pub fn from_encrypted_bytes(bytes: &[u8], passphrase: &str) -> Result<ClientKey, TfheError> {
        encrypted_key::read(ObjectReader::new(bytes)?, passphrase.as_bytes())
    }

    /// The file of this key ([`serialize`]), not encrypted. Whoever has it can decrypt.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let header = Header::new(Kind::ClientKey, self.params(), *self.tag());
        // Room for all from the start: a vector that grows leaves secrets behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(header.file_bytes() as usize));
        serialize::write_client_key(&mut *bytes, self)
            .expect("memory takes a payload of the right length");
        bytes
    }

    /// The client key that [`ClientKey::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`TfheError::Format`].
    pub fn from_bytes(bytes: &[u8]) -> Result<ClientKey, TfheError> {
        serialize::read_client_key(bytes)
    }
}
