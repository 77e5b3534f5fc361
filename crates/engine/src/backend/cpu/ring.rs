//! Ring columns on the processor.

use std::any::Any;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use toroid_isa::KeyKind;
use toroid_rns::batch::{Batch, Input, Turns};
use toroid_rns::format::FormatError;
use toroid_rns::ring_set::RingSet;
use toroid_rns::samples::{Padding, SampleKeys};
use toroid_rns::stored::StoredColumn;
use toroid_rns::{Ciphertext, RnsError};
use toroid_task::{Cancelled, Progress};
use toroid_tfhe::params::ParamSet;

use super::super::schedule::Call;
use super::CpuBackend;
use crate::backend::{
    BackendError, KeySink, LoadedKey, RingMade, RingOperand, RingProgram, RingTarget,
};
use crate::requester::Requester;

/// Pieces of a key that wait for its reader.
const WAITING: usize = 4;

/// A ring key that is loaded.
pub(super) struct RingKey {
    params: ParamSet,
    pub(super) batch: Batch,
}

impl LoadedKey for RingKey {
    fn params(&self) -> &ParamSet {
        &self.params
    }

    fn kind(&self) -> KeyKind {
        KeyKind::Ring
    }

    fn bytes(&self) -> u64 {
        self.batch.memory()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn ring_set(&self) -> Option<&'static RingSet> {
        Some(self.batch.set())
    }
}

/// A conversion key that is loaded.
pub(super) struct ConversionKey {
    params: ParamSet,
    set: &'static RingSet,
    keys: SampleKeys,
}

impl ConversionKey {
    /// Reads the keys between a ring and samples of a set.
    fn read<R: Read>(params: &ParamSet, inner: R) -> Result<ConversionKey, FormatError> {
        let (set, keys) = SampleKeys::read_of_set(inner, &Progress::none())?;
        keys.expect_set(params)?;
        Ok(ConversionKey {
            params: *params,
            set,
            keys,
        })
    }
}

impl LoadedKey for ConversionKey {
    fn params(&self) -> &ParamSet {
        &self.params
    }

    fn kind(&self) -> KeyKind {
        KeyKind::Conversion
    }

    fn bytes(&self) -> u64 {
        self.keys.memory()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn ring_set(&self) -> Option<&'static RingSet> {
        Some(self.set)
    }
}

/// The bytes of a key as its reader takes them.
struct Pieces {
    receiver: Receiver<Vec<u8>>,
    piece: Vec<u8>,
    at: usize,
}

impl Read for Pieces {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            match self.receiver.recv() {
                Ok(piece) => (self.piece, self.at) = (piece, 0),
                Err(_) => return Ok(0),
            }
        }
        let rest = &self.piece[self.at..];
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        Ok(count)
    }
}

/// Hands the bytes of a key to a thread that reads and expands them as they come. Without the sink, the thread ends.
pub(super) struct RingSink {
    sender: Option<SyncSender<Vec<u8>>>,
    reader: Option<JoinHandle<Result<Arc<dyn LoadedKey>, FormatError>>>,
}

impl RingSink {
    /// A sink for a key of [`KeyKind::Conversion`], or else of [`KeyKind::Ring`].
    pub(super) fn new(params: &ParamSet, kind: KeyKind) -> Result<RingSink, BackendError> {
        let (sender, receiver) = sync_channel(WAITING);
        let pieces = Pieces {
            receiver,
            piece: Vec::new(),
            at: 0,
        };
        let params = *params;
        let read = move || -> Result<Arc<dyn LoadedKey>, FormatError> {
            Ok(match kind {
                KeyKind::Conversion => Arc::new(ConversionKey::read(&params, pieces)?),
                _ => {
                    let batch = Batch::read_from(pieces, &Progress::none())?;
                    Arc::new(RingKey { params, batch })
                }
            })
        };
        let reader = Builder::new().name("ring key".to_owned()).spawn(read);
        let reader = reader.map_err(|error| BackendError::Failed {
            reason: error.to_string(),
        })?;
        Ok(RingSink {
            sender: Some(sender),
            reader: Some(reader),
        })
    }

    /// What the reader has made.
    fn end(&mut self) -> Result<Arc<dyn LoadedKey>, BackendError> {
        self.sender = None;
        let ended = self.reader.take().map(JoinHandle::join);
        match ended {
            Some(Ok(Ok(key))) => Ok(key),
            Some(Ok(Err(error))) => Err(BackendError::MalformedKey {
                reason: error.to_string(),
            }),
            Some(Err(_)) | None => Err(BackendError::Failed {
                reason: "reading a ring key ended early".to_owned(),
            }),
        }
    }
}

impl KeySink for RingSink {
    fn write(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        let sent = self.sender.as_ref().map(|to| to.send(bytes.to_vec()));
        match sent {
            Some(Ok(())) => Ok(()),
            // The reader has found something that is wrong, or more bytes than it wants.
            _ => match self.end() {
                Ok(_) => Err(BackendError::MalformedKey {
                    reason: "bytes follow a ring key".to_owned(),
                }),
                Err(error) => Err(error),
            },
        }
    }

    fn finish(mut self: Box<Self>) -> Result<Arc<dyn LoadedKey>, BackendError> {
        self.end()
    }
}

/// Turns at the back end's cores, as slices of bootstraps have them: other tenants come between the operations of a table.
struct Cores<'a> {
    backend: &'a CpuBackend,
    requester: Requester<'a>,
    key: usize,
}

impl Turns for Cores<'_> {
    fn turn(&self, cost: u64, work: &mut (dyn FnMut() + Send)) -> Result<(), Cancelled> {
        let scheduler = &self.backend.scheduler;
        let call = Call {
            tenant: self.requester.tenant,
            cancel: self.requester.cancel,
            keys: [self.key; 2],
            tasks: &[],
            cost,
            slots: scheduler.slots(),
            most: 1,
        };
        let done = scheduler.run(&call, &mut [], |pass, _| {
            let pool = self.backend.pool(pass.slots)?;
            pool.install(work);
            Ok(())
        });
        done.map_err(|_| Cancelled)
    }
}

impl From<FormatError> for BackendError {
    fn from(error: FormatError) -> BackendError {
        match error {
            FormatError::Rns(RnsError::Cancelled(_)) => BackendError::Cancelled,
            error => BackendError::Failed {
                reason: error.to_string(),
            },
        }
    }
}

pub(super) fn run(
    backend: &CpuBackend,
    (key, conversion): (&RingKey, Option<&ConversionKey>),
    operands: &[RingOperand<'_>],
    program: &RingProgram<'_>,
    requester: Requester<'_>,
) -> Result<RingMade, BackendError> {
    let turns = Cores {
        backend,
        requester,
        key: std::ptr::from_ref(key).addr(),
    };
    let batch = &key.batch;
    let converting = || {
        conversion.ok_or_else(|| BackendError::Failed {
            reason: "samples without a conversion key".to_owned(),
        })
    };
    let mut inputs = Vec::with_capacity(operands.len());
    for operand in operands {
        inputs.push(match operand {
            RingOperand::Column(column) => Input::Column(column),
            RingOperand::Samples(chunks) => Input::Samples(chunks, &converting()?.keys),
        });
    }
    let value: Ciphertext = batch.run(&inputs, program.steps, program.output, &turns)?;
    Ok(match program.target {
        RingTarget::Column(place, statement) => {
            let tag = *batch.tag();
            let rows = program.rows;
            let made = StoredColumn::of_ciphertext_in(&value, place, rows, tag, statement);
            RingMade::Column(made?)
        }
        RingTarget::Samples => {
            let keys = &converting()?.keys;
            RingMade::Samples(keys.to_chunks(&value, Padding::Keep)?)
        }
    })
}
