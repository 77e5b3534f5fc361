//! Columns of plain numbers, for the tests of runs on columns.

use std::ops::Range;

use toroid_engine::backend::testing::{decode_sample, encode_sample};
use toroid_engine::{Checkpoint, MapSink, RowError, RowSource};
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::fingerprint;

/// A column of trivial samples of messages of `bits` bits.
pub struct Messages {
    pub params: &'static ParamSet,
    pub bits: u32,
    pub values: Vec<i64>,
}

impl RowSource for Messages {
    fn read(&self, rows: Range<u64>, samples: &mut [u8]) -> Result<(), RowError> {
        let values = &self.values[rows.start as usize..rows.end as usize];
        for (value, sample) in values
            .iter()
            .zip(samples.chunks_exact_mut(self.params.lwe_bytes()))
        {
            sample.copy_from_slice(&encode_sample(self.params, *value, self.bits));
        }
        Ok(())
    }

    fn number(&self) -> u64 {
        let all: Vec<u8> = self
            .values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        fingerprint(&all)
    }
}

/// Decodes the rows that it is given, and ends the run at the checkpoints that it is told.
pub struct Taker {
    params: &'static ParamSet,
    /// The messages of each output, of its own width.
    pub columns: Vec<Vec<u64>>,
    pub checkpoint: Checkpoint,
    /// Widths of the outputs' messages; the set's where there are none.
    pub widths: Vec<u32>,
    /// Checkpoints until the run ends.
    pub left: Option<usize>,
}

impl Taker {
    pub fn new(params: &'static ParamSet) -> Taker {
        Taker {
            params,
            columns: Vec::new(),
            checkpoint: Checkpoint::default(),
            widths: Vec::new(),
            left: None,
        }
    }
}

impl MapSink for Taker {
    fn take(&mut self, output: usize, first: u64, samples: &[u8]) -> Result<(), RowError> {
        self.columns
            .resize(self.columns.len().max(output + 1), Vec::new());
        let column = &mut self.columns[output];
        assert_eq!(column.len() as u64, first, "rows come in their order, once");
        let width = self.widths.get(output).copied();
        let bits = width.unwrap_or(self.params.message_bits);
        let samples = samples.chunks_exact(self.params.lwe_bytes());
        column.extend(samples.map(|sample| decode_sample(self.params, sample, bits)));
        Ok(())
    }

    fn reached(&mut self, checkpoint: &Checkpoint) -> Result<(), RowError> {
        self.checkpoint = checkpoint.clone();
        match &mut self.left {
            Some(0) => Err(RowError::Refused("stopped by the test".to_owned())),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}
