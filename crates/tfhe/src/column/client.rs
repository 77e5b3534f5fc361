//! Encryption and decryption of chunks.

use zeroize::Zeroizing;

use crate::TfheError;
use crate::bits;
use crate::encoding::Encoding;
use crate::glwe::RowMaker;
use crate::keys::ClientKey;
use crate::modulus::Modulus;
use crate::random::Csprng;
use crate::seeded::MaskSeed;
use crate::with_modulus;

use super::chunk::{Chunk, Layout, Rows, Words};
use super::form::{ColumnForm, chunk_bytes};
use super::group::ChunkSeed;
use super::noise::seeded_width;

impl ClientKey {
    /// Encrypts consecutive rows of a column as a seeded chunk ([`ColumnForm::Seeded`]), under a fresh seed. Each row has the noise of
    /// a fresh sample.
    ///
    /// # Errors
    /// [`TfheError::ChunkRows`] for no messages or more than a chunk has rows, [`TfheError::MessageRange`].
    pub fn encrypt_chunk(
        &self,
        messages: &[i64],
        encoding: Encoding,
        rng: &mut Csprng,
    ) -> Result<Vec<u8>, TfheError> {
        self.encrypt_under(messages, encoding, MaskSeed::generate(rng), rng)
    }

    /// Encrypts consecutive rows of a column as [`ClientKey::encrypt_chunk`] does, under a seed of chunks that are encrypted together.
    ///
    /// # Errors
    /// Those of [`ClientKey::encrypt_chunk`]; [`TfheError::Forked`] in another process than that which made the seed.
    pub fn encrypt_chunk_of(
        &self,
        messages: &[i64],
        encoding: Encoding,
        seed: ChunkSeed,
        rng: &mut Csprng,
    ) -> Result<Vec<u8>, TfheError> {
        self.encrypt_under(messages, encoding, seed.use_up()?, rng)
    }

    fn encrypt_under(
        &self,
        messages: &[i64],
        encoding: Encoding,
        seed: MaskSeed,
        rng: &mut Csprng,
    ) -> Result<Vec<u8>, TfheError> {
        let params = self.params();
        let len = chunk_bytes(params, ColumnForm::Seeded, messages.len())?;
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(seed.as_bytes());
        with_modulus!(params.modulus, M => {
            let bodies = self.bodies::<M>(messages, encoding, &seed, rng)?;
            let width = seeded_width(params);
            let narrow = bodies.iter().map(|body| M::decode(*body, width));
            bits::write(narrow, width, &mut bytes);
        });
        Ok(bytes)
    }

    fn bodies<M: Modulus>(
        &self,
        messages: &[i64],
        encoding: Encoding,
        seed: &MaskSeed,
        rng: &mut Csprng,
    ) -> Result<Vec<M::Word>, TfheError> {
        let params = self.params();
        // Room for all from the start: a vector that grows leaves secrets behind.
        let mut encoded = Zeroizing::new(Vec::with_capacity(messages.len()));
        for message in messages {
            encoded.push(encoding.encode::<M>(*message)?);
        }
        if params.is_wide() {
            let maker = RowMaker::new(params, self.glwe())?;
            let mut masks = vec![M::Word::default(); params.extracted_dimension()];
            seed.expand_chunk::<M>(0, &mut masks);
            let mut bodies = vec![M::Word::default(); params.ring_degree];
            maker.body_of_zero::<M>(&masks, None, &mut bodies, rng);
            bodies.truncate(messages.len());
            for (body, message) in bodies.iter_mut().zip(encoded.iter()) {
                *body = M::add(*body, *message);
            }
            return Ok(bodies);
        }
        rng.add_noise::<M>(params.log2_lwe_noise, &mut encoded);
        let mut mask = vec![M::Word::default(); params.lwe_dimension];
        let of_row = |(number, message): (u64, &M::Word)| {
            seed.expand_chunk::<M>(number, &mut mask);
            M::add_masked(*message, self.lwe().mask_product::<M>(&mask))
        };
        Ok((0..).zip(encoded.iter()).map(of_row).collect())
    }

    /// Decrypts all rows of a chunk, over the whole torus ([`Encoding::outputs`]): rows that share masks by one product of polynomials
    /// for all of them.
    ///
    /// # Errors
    /// [`TfheError::ParamsMismatch`] for a chunk of another set, [`TfheError::NotEncrypted`] for a row that comes without a mask, or a
    /// key of zeros.
    pub fn decrypt_chunk(&self, chunk: &Chunk, encoding: Encoding) -> Result<Vec<i64>, TfheError> {
        if chunk.params() != self.params() {
            return Err(TfheError::ParamsMismatch {
                what: "the chunk",
                expected: self.params().name.to_owned(),
                found: chunk.params().name.to_owned(),
            });
        }
        match chunk.words() {
            Words::Torus32(rows) => self.decrypt_rows(rows, encoding),
            Words::Goldilocks(rows) => self.decrypt_rows(rows, encoding),
        }
    }

    fn decrypt_rows<M: Modulus>(
        &self,
        rows: &Rows<M>,
        encoding: Encoding,
    ) -> Result<Vec<i64>, TfheError> {
        let params = self.params();
        self.check_secret()?;
        if rows.has_trivial_row(params) {
            return Err(TfheError::NotEncrypted("a row of the column has no mask"));
        }
        if let Layout::Shared(words) = &rows.layout {
            let mut sample = words.clone();
            sample.resize(params.glwe_words(), M::Word::default());
            let phases = RowMaker::new(params, self.glwe())?.phase::<M>(&sample);
            let phases = Zeroizing::new(phases);
            let of_rows = phases.iter().take(rows.count);
            return Ok(of_rows.map(|phase| encoding.decode::<M>(*phase)).collect());
        }
        let mut sample = vec![M::Word::default(); params.lwe_words()];
        let of_row = |row: usize| {
            rows.sample(params, row, &mut sample);
            encoding.decode::<M>(self.lwe().phase::<M>(&sample))
        };
        Ok((0..rows.count).map(of_row).collect())
    }
}
