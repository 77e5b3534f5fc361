//! Keys: the bytes as they came, and what devices hold of them.
//!
//! A key keeps its bytes on the host, so that a device may drop what it made of them: for another key, where memory is short, or with a
//! lost context. It is made again when the key is used next.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rayon::prelude::*;
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::backend::{Backend, BackendError, KeySink, LoadedKey};
use toroid_isa::KeyKind;
use toroid_ring::goldilocks;
use toroid_ring::ntt::NttPlan;
use toroid_ring::simd::SimdLevel;
use toroid_tfhe::TfheError;
use toroid_tfhe::bootstrap::{RowLoader, RowReceiver};
use toroid_tfhe::key_loader::{
    KeyLoader, PartsLoader, SeededKeySwitchingKeyLoader, SeededRowLoader,
};
use toroid_tfhe::key_switch::{KeySwitchingKey, KeySwitchingKeyLoader};
use toroid_tfhe::modulus::Modulus;
use toroid_tfhe::params::{ModulusKind, ParamSet, StageParams};
use toroid_tfhe::seeded::KeyForm;
use toroid_tfhe::with_modulus;

use crate::abi::LoadArgs;
use crate::device::{Buffer, Context, Device, Event, Pinned, Stream};
use crate::driver::Address;
use crate::error::GpuError;
use crate::shape::{SetShape, Shape};

/// Bytes of a key that are converted in one go.
const PIECE: usize = 1 << 20;

/// A device and the keys that it holds.
pub(crate) struct Store {
    pub(crate) device: Device,
    places: Mutex<Vec<Weak<Place>>>,
    /// Counts uses of keys.
    clock: AtomicU64,
}

/// What one device holds of a key.
#[derive(Default)]
struct Place {
    buffer: Mutex<Option<Arc<Buffer>>>,
    /// The clock at its last use.
    used: AtomicU64,
}

impl Store {
    pub(crate) fn new(device: Device) -> Store {
        Store {
            device,
            places: Mutex::default(),
            clock: AtomicU64::new(0),
        }
    }

    /// Memory of the device, for which keys that nobody uses at the moment make room, the least recently used first.
    pub(crate) fn allocate(&self, context: &Context, bytes: usize) -> Result<Buffer, GpuError> {
        loop {
            match context.allocate(bytes) {
                Err(GpuError::Memory { .. }) if context.drop_lanes() || self.drop_key(context) => {}
                done => return done,
            }
        }
    }

    /// Drops the least recently used key of those that nobody uses at the moment; whether there was one.
    pub(crate) fn drop_key(&self, context: &Context) -> bool {
        let mut places = self.places.lock();
        places.retain(|place| place.strong_count() > 0);
        let mut held: Vec<Arc<Place>> = places.iter().filter_map(Weak::upgrade).collect();
        held.sort_by_key(|place| place.used.load(Ordering::Relaxed));
        held.iter().any(|place| {
            // Who loads it at the moment holds the lock.
            let Some(mut buffer) = place.buffer.try_lock() else {
                return false;
            };
            let idle =
                |buffer: &mut Arc<Buffer>| buffer.is_in(context) && Arc::strong_count(buffer) == 1;
            buffer.take_if(idle).is_some()
        })
    }
}

/// A key of a set whose bootstraps devices do.
pub(crate) struct GpuKey {
    params: ParamSet,
    kind: KeyKind,
    shape: SetShape,
    form: KeyForm,
    /// As they came.
    bytes: Vec<u8>,
    /// On each device.
    places: Vec<Arc<Place>>,
    /// As the processor uses it, from the first time on that it does.
    host: Mutex<Option<Arc<dyn LoadedKey>>>,
}

impl GpuKey {
    pub(crate) fn shape(&self) -> &SetShape {
        &self.shape
    }

    /// The key as the processor uses it, for what devices do not do.
    pub(crate) fn on_host(&self, cpu: &CpuBackend) -> Result<Arc<dyn LoadedKey>, BackendError> {
        let mut host = self.host.lock();
        if let Some(key) = &*host {
            return Ok(Arc::clone(key));
        }
        let mut sink = cpu.begin_key(&self.params, self.kind, self.form)?;
        for piece in self.bytes.chunks(PIECE) {
            sink.write(piece)?;
        }
        Ok(Arc::clone(host.insert(sink.finish()?)))
    }

    /// Whether this device holds it.
    pub(crate) fn is_on(&self, device: usize) -> bool {
        let place = self.places[device].buffer.try_lock();
        place.is_none_or(|buffer| buffer.is_some())
    }

    /// What a device holds of it, made where it holds nothing. `context` is open.
    pub(crate) fn on(
        &self,
        stores: &Arc<[Store]>,
        device: usize,
        context: &Arc<Context>,
    ) -> Result<Arc<Buffer>, GpuError> {
        let (store, place) = (&stores[device], &self.places[device]);
        place.used.store(
            store.clock.fetch_add(1, Ordering::Relaxed),
            Ordering::Relaxed,
        );
        let mut held = place.buffer.lock();
        if let Some(buffer) = held.as_ref().filter(|buffer| buffer.is_in(context)) {
            return Ok(Arc::clone(buffer));
        }
        *held = None;
        let target = Arc::new(store.allocate(context, self.shape.bytes(self.kind))?);
        let on = Target {
            stores: Arc::clone(stores),
            device,
            context: Arc::clone(context),
            buffer: Arc::clone(&target),
            offset: 0,
        };
        let mut loading = self.begin(&on)?;
        for piece in self.bytes.chunks(PIECE) {
            loading.write(piece)?;
        }
        loading.finish()?;
        *held = Some(Arc::clone(&target));
        Ok(target)
    }
}

impl LoadedKey for GpuKey {
    fn params(&self) -> &ParamSet {
        &self.params
    }

    fn kind(&self) -> KeyKind {
        self.kind
    }

    fn bytes(&self) -> u64 {
        self.shape.bytes(self.kind) as u64
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Where a key is loaded to.
#[derive(Clone)]
struct Target {
    stores: Arc<[Store]>,
    device: usize,
    context: Arc<Context>,
    buffer: Arc<Buffer>,
    /// Where in the buffer.
    offset: usize,
}

impl Target {
    fn address(&self) -> Address {
        self.buffer.address() + self.offset as u64
    }
}

/// Takes a key's bytes to a device.
trait Loading: Send {
    fn write(&mut self, bytes: &[u8]) -> Result<(), GpuError>;
    fn finish(self: Box<Self>) -> Result<(), GpuError>;
}

impl GpuKey {
    /// Begins to load it into a buffer; the target's context is open.
    fn begin(&self, target: &Target) -> Result<Box<dyn Loading>, GpuError> {
        with_modulus!(self.params.modulus, M => match self.kind {
            KeyKind::KeySwitching => self.begin_switching::<M>(target),
            _ => self.begin_rows::<M>(target),
        })
    }

    /// The stage's part of the key: its shape, and where it is loaded to.
    fn part(&self, stage: &StageParams, target: &Target) -> Result<(Shape, Target), GpuError> {
        let mut parts = self.shape.parts(self.kind).into_iter();
        let part = parts.find(|(shape, _)| shape.params() == stage);
        let (shape, offset) =
            part.ok_or_else(|| GpuError::Unsupported(format!("{}: a key of it", stage.name)))?;
        let target = Target {
            offset,
            ..target.clone()
        };
        Ok((shape, target))
    }

    fn begin_rows<M: Modulus>(&self, target: &Target) -> Result<Box<dyn Loading>, GpuError> {
        let (params, form) = (&self.params, self.form);
        let rows = |stage: &StageParams| -> Result<_, GpuError> {
            let (shape, target) = self.part(stage, target)?;
            let upload = Upload::<M>::new(&shape, &target)?;
            Ok(RowLoader::with_receiver(stage, upload)?)
        };
        let seeded = |stage: &StageParams| -> Result<_, GpuError> {
            Ok(SeededRowLoader::with_loader(form, rows(stage)?))
        };
        Ok(match form {
            KeyForm::Expanded => Box::new(PartsLoader::bootstrapping(params, form, rows)?),
            KeyForm::Seeded | KeyForm::SeededWords => {
                Box::new(PartsLoader::bootstrapping(params, form, seeded)?)
            }
        })
    }

    fn begin_switching<M: Modulus>(&self, target: &Target) -> Result<Box<dyn Loading>, GpuError> {
        let simd = SimdLevel::best();
        let (params, form) = (&self.params, self.form);
        let expanded = |stage: &StageParams| -> Result<_, GpuError> {
            let (_, target) = self.part(stage, target)?;
            let loader = KeySwitchingKeyLoader::<M>::new(stage, simd)?;
            Ok(Switching { loader, target })
        };
        let seeded = |stage: &StageParams| -> Result<_, GpuError> {
            let (_, target) = self.part(stage, target)?;
            let loader = SeededKeySwitchingKeyLoader::<M>::new(stage, simd)?;
            Ok(Switching { loader, target })
        };
        Ok(match form {
            KeyForm::Expanded => Box::new(PartsLoader::key_switching(params, form, expanded)?),
            KeyForm::Seeded | KeyForm::SeededWords => {
                Box::new(PartsLoader::key_switching(params, form, seeded)?)
            }
        })
    }
}

impl<L: KeyLoader<Key = (), Error = GpuError> + Send> Loading for PartsLoader<L> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), GpuError> {
        KeyLoader::write(self, bytes)
    }

    fn finish(self: Box<Self>) -> Result<(), GpuError> {
        KeyLoader::finish(*self).map(drop)
    }
}

/// A key-switching key, which goes to the device as it is once it is whole.
struct Switching<L> {
    loader: L,
    target: Target,
}

impl<M, L> KeyLoader for Switching<L>
where
    M: Modulus,
    L: KeyLoader<Key = KeySwitchingKey<M>, Error = TfheError>,
{
    type Key = ();
    type Error = GpuError;

    fn write(&mut self, bytes: &[u8]) -> Result<(), GpuError> {
        Ok(self.loader.write(bytes)?)
    }

    fn finish(self) -> Result<(), GpuError> {
        let Switching { loader, target } = self;
        let key = loader.finish()?;
        let _open = target.context.enter()?;
        let stream = target.context.stream()?;
        // SAFETY: the target has room for the part, and the words stay where they are until they have been copied.
        unsafe { stream.upload(target.address(), bytemuck::cast_slice(key.words()))? };
        stream.synchronize()
    }
}

/// Rows of a bootstrapping key on their way: two batches of them, so that the device converts one while the host prepares another.
struct Upload<M> {
    shape: Shape,
    plan: NttPlan,
    target: Target,
    stream: Stream,
    batches: [Option<Batch>; 2],
    /// Which is next.
    next: usize,
    modulus: PhantomData<M>,
}

/// Field words of some polynomials, here and on the device.
struct Batch {
    host: Pinned,
    source: Buffer,
    /// Reached when the device has converted them.
    done: Event,
}

impl<M: Modulus> Upload<M> {
    fn new(shape: &Shape, target: &Target) -> Result<Upload<M>, GpuError> {
        let plan = NttPlan::new(shape.params().ring_degree).map_err(TfheError::from)?;
        Ok(Upload {
            shape: *shape,
            plan,
            target: target.clone(),
            stream: target.context.stream()?,
            batches: [None, None],
            next: 0,
            modulus: PhantomData,
        })
    }

    /// Has `fill` write the field words of rows, and sends them on.
    fn send(
        &mut self,
        first: usize,
        words: usize,
        fill: impl FnOnce(&mut [u64]),
    ) -> Result<(), GpuError> {
        let context = Arc::clone(&self.target.context);
        let _open = context.enter()?;
        let place = &mut self.batches[self.next];
        self.next = 1 - self.next;
        let mut batch = match place.take() {
            Some(batch) if batch.source.bytes() >= 8 * words => {
                batch.done.synchronize()?;
                batch
            }
            former => {
                // The device may still read from a batch that is too small.
                self.stream.synchronize()?;
                drop(former);
                Batch {
                    host: context.allocate_pinned(8 * words)?,
                    source: self.target.stores[self.target.device].allocate(&context, 8 * words)?,
                    done: context.event()?,
                }
            }
        };
        fill(&mut batch.host.words_mut()[..words]);
        let params = self.shape.params();
        let polynomials = words / params.ring_degree;
        let twiddles = context.twiddles(self.shape.is_complex(), self.shape.points())?;
        let arguments = LoadArgs {
            source: batch.source.address(),
            key: self.target.address(),
            twiddles: twiddles.forward.address(),
            first: (first * (params.glwe_dimension + 1)) as u64,
            count: polynomials as u32,
            reserved: 0,
            stage: self.shape.stage,
        };
        let kernel = context.kernel(&self.shape.kernel_name("load"))?;
        let launch = self.shape.load(polynomials);
        context.allow(kernel, &launch)?;
        let bytes = bytemuck::cast_slice(&batch.host.words::<u64>()[..words]);
        // SAFETY: the batch stays as it is until `done` is reached; the loader hands on rows of the key only, for which the target has
        // room.
        unsafe {
            self.stream.upload(batch.source.address(), bytes)?;
            self.stream.launch(kernel, &launch, &arguments)?;
        }
        self.stream.record(&batch.done)?;
        *place = Some(batch);
        Ok(())
    }
}

impl<M: Modulus> RowReceiver<M> for Upload<M> {
    type Key = ();
    type Error = GpuError;

    fn coefficients(&mut self, first: usize, rows: &[M::Word]) -> Result<(), GpuError> {
        self.send(first, rows.len(), |words| {
            words
                .par_iter_mut()
                .zip(rows.par_iter())
                .with_min_len(1 << 14)
                .for_each(|(word, row)| *word = M::to_goldilocks(*row));
        })
    }

    fn canonical(&mut self, first: usize, rows: &mut [u64]) -> Result<(), GpuError> {
        let plan = &self.plan;
        rows.par_chunks_exact_mut(plan.degree())
            .for_each(|polynomial| {
                plan.inverse(polynomial);
                if M::KIND == ModulusKind::Torus32 {
                    // Elements that are no words, which only a malformed key has, count modulo 2^32, as on the processor.
                    for word in polynomial {
                        let centered = M::centered(M::from_goldilocks(*word));
                        *word = goldilocks::from_signed(centered);
                    }
                }
            });
        self.send(first, rows.len(), |words| words.copy_from_slice(rows))
    }

    fn finish(self) -> Result<(), GpuError> {
        let _open = self.target.context.enter()?;
        self.stream.synchronize()
    }
}

/// Takes a key's bytes as they come, and has a device convert them at the same time.
pub(crate) struct Sink {
    stores: Arc<[Store]>,
    device: usize,
    key: GpuKey,
    /// From the first bytes on.
    started: Option<Started>,
}

struct Started {
    target: Target,
    loading: Box<dyn Loading>,
}

impl Sink {
    pub(crate) fn new(
        stores: &Arc<[Store]>,
        device: usize,
        params: &ParamSet,
        kind: KeyKind,
        (shape, form): (SetShape, KeyForm),
    ) -> Sink {
        Sink {
            stores: Arc::clone(stores),
            device,
            key: GpuKey {
                params: *params,
                kind,
                shape,
                form,
                bytes: Vec::new(),
                places: stores.iter().map(|_| Arc::default()).collect(),
                host: Mutex::default(),
            },
            started: None,
        }
    }

    fn start(&self) -> Result<Started, GpuError> {
        let store = &self.stores[self.device];
        let context = store.device.context()?;
        let open = context.enter()?;
        let GpuKey { shape, kind, .. } = &self.key;
        let buffer = Arc::new(store.allocate(&context, shape.bytes(*kind))?);
        let target = Target {
            stores: Arc::clone(&self.stores),
            device: self.device,
            context: Arc::clone(&context),
            buffer,
            offset: 0,
        };
        let loading = self.key.begin(&target)?;
        drop(open);
        Ok(Started { target, loading })
    }

    fn started(&mut self) -> Result<&mut Started, GpuError> {
        let started = match self.started.take() {
            Some(started) => started,
            None => {
                // All at once, though the system gives it as it is used: a vector that grows would hold the key twice.
                let GpuKey { params, form, .. } = &self.key;
                let bytes = match self.key.kind {
                    KeyKind::KeySwitching => form.key_switching_key_bytes(params),
                    _ => form.bootstrapping_key_bytes(params),
                };
                self.key.bytes.reserve_exact(bytes as usize);
                self.start()?
            }
        };
        Ok(self.started.insert(started))
    }
}

impl KeySink for Sink {
    fn write(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        let started = self.started()?;
        started.loading.write(bytes)?;
        self.key.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Arc<dyn LoadedKey>, BackendError> {
        self.started()?;
        let Sink {
            stores,
            device,
            key,
            started,
        } = *self;
        if let Some(Started { target, loading }) = started {
            loading.finish()?;
            let place = &key.places[device];
            *place.buffer.lock() = Some(target.buffer);
            let now = stores[device].clock.fetch_add(1, Ordering::Relaxed);
            place.used.store(now, Ordering::Relaxed);
        }
        for (store, place) in stores.iter().zip(&key.places) {
            store.places.lock().push(Arc::downgrade(place));
        }
        Ok(Arc::new(key))
    }
}
