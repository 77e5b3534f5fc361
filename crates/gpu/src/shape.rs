//! How a parameter set is laid out on a device, and in which shapes its kernels are launched.

use toroid_isa::KeyKind;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::params::{ModulusKind, ModulusSwitch, ParamSet, StageParams, WopbsParams};

use crate::abi::{self, MAX_ROWS, POINT_ROWS, Stage};
use crate::device::{Context, Kernel};
use crate::driver::{LaunchShape, Together};
use crate::error::GpuError;

/// The arithmetic of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arithmetic {
    Fft32,
    Fft64,
    Split32,
    Ntt64,
}

/// How blocks do a blind rotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// As suits the set and the number of rotations.
    #[default]
    Auto,
    /// A block each.
    Solo,
    /// So many blocks together: 2, 4, 8 or 16.
    Group(u32),
}

/// A stage in one arithmetic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    arithmetic: Arithmetic,
    params: StageParams,
    pub(crate) stage: Stage,
}

/// The largest ring degree of which a block alone does a rotation.
const SOLO_DEGREE: usize = 2048;
/// The fewest points of a row.
const COLUMNS: usize = 8;
/// Sizes of groups, and the one of them that gives the most where not all rotations run at once.
const GROUPS: [u32; 4] = [16, 8, 4, 2];
const THROUGHPUT_GROUP: u32 = 4;
/// Threads of a block, as the kernels' launch bounds have them.
const LOAD_THREADS: u32 = 384;
const SOLO_THREADS: u32 = 128;
const GROUP_THREADS: u32 = 320;
const THREADS: u32 = 256;

/// How rotations are launched.
#[derive(Clone, Copy)]
pub(crate) struct Rotation {
    pub(crate) kernel: Kernel,
    pub(crate) launch: LaunchShape,
    /// Blocks that do one together.
    pub(crate) group: u32,
    pub(crate) groups: u32,
    pub(crate) at_once: u32,
}

/// A line of blocks for so many entries, for each of `lines` lines.
fn blocks_for(entries: usize, lines: usize) -> LaunchShape {
    LaunchShape {
        grid: [entries.div_ceil(THREADS as usize) as u32, lines as u32, 1],
        block: THREADS,
        shared: 0,
        together: Together::No,
    }
}

impl Shape {
    /// The layout of a stage.
    pub(crate) fn new(params: &StageParams, arithmetic: ArithmeticKind) -> Result<Shape, GpuError> {
        let unsupported =
            |what: String| Err(GpuError::Unsupported(format!("{}: {what}", params.name)));
        if !(1..=2).contains(&params.glwe_dimension) {
            return unsupported(format!(
                "{} mask components, 1 or 2 are done",
                params.glwe_dimension
            ));
        }
        if params.ggsw_rows() > MAX_ROWS || params.key_switch.levels > MAX_ROWS {
            return unsupported(format!("more than {MAX_ROWS} digits"));
        }
        if params.key_switch.log2_base > 8 {
            return unsupported("digits of a key switch above 8 bits".to_owned());
        }
        let shape = Shape {
            arithmetic: match (arithmetic, params.modulus) {
                (ArithmeticKind::Fft, ModulusKind::Torus32) => Arithmetic::Fft32,
                (ArithmeticKind::Fft, ModulusKind::Goldilocks) => Arithmetic::Fft64,
                (ArithmeticKind::Ntt, ModulusKind::Torus32) => Arithmetic::Split32,
                (ArithmeticKind::Ntt, ModulusKind::Goldilocks) => Arithmetic::Ntt64,
            },
            params: *params,
            stage: Stage::new(params),
        };
        if shape.columns() < COLUMNS {
            return unsupported(format!("a transform of {} points", shape.points()));
        }
        Ok(shape)
    }

    pub(crate) fn params(&self) -> &StageParams {
        &self.params
    }

    /// The name of a kernel for this arithmetic.
    pub(crate) fn kernel_name(&self, what: &str) -> String {
        let arithmetic = match self.arithmetic {
            Arithmetic::Fft32 => "fft32",
            Arithmetic::Fft64 => "fft64",
            Arithmetic::Split32 => "split32",
            Arithmetic::Ntt64 => "ntt64",
        };
        format!("{what}_{arithmetic}")
    }

    /// Whether points are complex numbers, else field elements.
    pub(crate) fn is_complex(&self) -> bool {
        self.arithmetic != Arithmetic::Ntt64
    }

    /// Points of a polynomial's transform.
    pub(crate) fn points(&self) -> usize {
        if self.is_complex() {
            self.params.ring_degree / 2
        } else {
            self.params.ring_degree
        }
    }

    fn point_bytes(&self) -> usize {
        if self.is_complex() { 16 } else { 8 }
    }

    /// Points in a row of them.
    fn columns(&self) -> usize {
        self.points() / POINT_ROWS
    }

    /// A row's points in shared memory, apart so that threads do not wait for each other.
    fn padded_columns(&self) -> usize {
        self.columns() + self.columns() / 8
    }

    fn halves(&self) -> usize {
        if self.arithmetic == Arithmetic::Split32 {
            2
        } else {
            1
        }
    }

    fn components(&self) -> usize {
        self.params.glwe_dimension + 1
    }

    /// Sums of products in an external product.
    pub(crate) fn sums(&self) -> usize {
        self.components() * self.halves()
    }

    /// Polynomials of points that a block holds at the same time.
    fn held(&self) -> usize {
        self.params.ggsw_rows().max(self.sums())
    }

    /// Bytes of a GGSW sample on the device.
    pub(crate) fn sample_bytes(&self) -> usize {
        self.params.ggsw_rows() * self.sums() * self.points() * self.point_bytes()
    }

    /// Bytes of all GGSW samples on the device.
    pub(crate) fn key_bytes(&self) -> usize {
        self.params.lwe_dimension * self.sample_bytes()
    }

    /// Bytes of the stage's part of a key on the device.
    fn bytes(&self, kind: KeyKind) -> usize {
        match kind {
            KeyKind::KeySwitching => self.params.key_switching_bytes() as usize,
            _ => self.key_bytes(),
        }
    }

    /// Bytes of an accumulator.
    pub(crate) fn accumulator_bytes(&self) -> usize {
        self.params.glwe_words() * self.params.modulus.word_bytes()
    }

    /// Shared memory of a block alone that does products: points, and so many words behind them.
    fn alone_bytes(&self, words: usize) -> usize {
        POINT_ROWS * self.held() * self.padded_columns() * self.point_bytes()
            + words * self.params.modulus.word_bytes()
    }

    /// Bytes that a group exchanges points through.
    pub(crate) fn exchange_bytes(&self) -> usize {
        (self.params.ggsw_rows() + self.sums()) * self.points() * self.point_bytes()
    }

    /// The shape of a launch that loads so many polynomials of a key.
    pub(crate) fn load(&self, polynomials: usize) -> LaunchShape {
        LaunchShape {
            grid: [polynomials as u32, 1, 1],
            block: LOAD_THREADS,
            shared: (POINT_ROWS * self.padded_columns() * self.point_bytes()) as u32,
            together: Together::No,
        }
    }

    /// The shape of the launches that make accumulators and read digits from them.
    pub(crate) fn accumulators(&self, jobs: usize) -> LaunchShape {
        blocks_for(self.params.glwe_words(), jobs)
    }

    /// The shape of the launch that makes samples.
    pub(crate) fn samples(&self, jobs: usize) -> LaunchShape {
        blocks_for(self.params.lwe_words(), jobs)
    }

    /// The shape of the launch that sums up the rows of a key-switching key, cut so that all processors have work.
    pub(crate) fn switch(&self, processors: u32, jobs: usize) -> LaunchShape {
        /// The fewest rows for which a block is worth its while.
        const ROWS: usize = 64;
        /// Blocks that a processor should have.
        const BLOCKS: usize = 4;
        let mut launch = blocks_for(self.params.lwe_words(), 1);
        launch.grid[2] = (jobs as u32).div_ceil(abi::SWITCH_JOBS);
        let others = (launch.grid[0] * launch.grid[2]) as usize;
        let wanted = (BLOCKS * processors as usize).div_ceil(others);
        let most = self.params.key_switching_samples().div_ceil(ROWS);
        launch.grid[1] = wanted.min(most).max(1) as u32;
        launch
    }

    fn solo(&self, context: &Context, jobs: usize) -> Result<Option<Rotation>, GpuError> {
        let shared = self.alone_bytes(self.params.glwe_words());
        if shared > context.info().shared_memory as usize {
            return Ok(None);
        }
        let k = self.params.glwe_dimension;
        let kernel = context.kernel(&format!("{}_k{k}_solo", self.kernel_name("rotate")))?;
        let mut launch = LaunchShape {
            grid: [1; 3],
            block: SOLO_THREADS,
            shared: shared as u32,
            together: Together::No,
        };
        let at_once = context.groups_at_once(kernel, &launch)?;
        launch.grid[0] = at_once.clamp(1, jobs.max(1) as u32);
        Ok((at_once > 0).then_some(Rotation {
            kernel,
            launch,
            group: 1,
            groups: launch.grid[0],
            at_once: POINT_ROWS as u32,
        }))
    }

    /// Rotations by groups of this size, with how many of them run at once.
    fn grouped(
        &self,
        context: &Context,
        group: u32,
        jobs: usize,
    ) -> Result<Option<(Rotation, u32)>, GpuError> {
        let columns = self.columns() / group as usize;
        // The kernels for groups have one mask component.
        if self.params.glwe_dimension != 1 || columns == 0 {
            return Ok(None);
        }
        let words = self.components() * self.params.ring_degree / group as usize
            * self.params.modulus.word_bytes();
        let row = self.held() * self.padded_columns() * self.point_bytes();
        let own_rows = POINT_ROWS as u32 / group;
        let shared = |at_once: u32| at_once as usize * row + words;
        let fits = |at_once: &u32| {
            own_rows.is_multiple_of(*at_once)
                && shared(*at_once) <= context.info().shared_memory as usize
        };
        let Some(at_once) = (1..=own_rows).rev().find(fits) else {
            return Ok(None);
        };
        let (wait, together) = if context.has_clusters() {
            ("cluster", Together::Clusters(group))
        } else {
            ("flags", Together::All)
        };
        let kernel = context.kernel(&format!("{}_k1_{wait}", self.kernel_name("rotate")))?;
        let mut launch = LaunchShape {
            grid: [group, 1, 1],
            block: GROUP_THREADS,
            shared: shared(at_once) as u32,
            together,
        };
        let at_the_same_time = match together {
            Together::Clusters(_) => context.groups_at_once(kernel, &launch)?,
            Together::No | Together::All => context.groups_at_once(kernel, &launch)? / group,
        };
        let groups = at_the_same_time.min(jobs.max(1) as u32);
        launch.grid[0] = group * groups;
        let rotation = Rotation {
            kernel,
            launch,
            group,
            groups,
            at_once,
        };
        Ok((groups > 0).then_some((rotation, at_the_same_time)))
    }

    /// How `jobs` rotations are launched.
    pub(crate) fn rotation(
        &self,
        context: &Context,
        grouping: Grouping,
        jobs: usize,
    ) -> Result<Rotation, GpuError> {
        let rotation = match grouping {
            Grouping::Solo => self.solo(context, jobs)?,
            Grouping::Group(size) if GROUPS.contains(&size) => self
                .grouped(context, size, jobs)?
                .map(|(rotation, _)| rotation),
            Grouping::Group(_) => None,
            Grouping::Auto => self.suitable(context, jobs)?,
        };
        let Some(rotation) = rotation else {
            return Err(GpuError::Unsupported(format!(
                "{}: no block of {} has room for a rotation",
                self.params.name,
                context.info().name
            )));
        };
        context.allow(rotation.kernel, &rotation.launch)?;
        Ok(rotation)
    }

    fn suitable(&self, context: &Context, jobs: usize) -> Result<Option<Rotation>, GpuError> {
        if self.params.ring_degree <= SOLO_DEGREE || self.params.glwe_dimension != 1 {
            let solo = self.solo(context, jobs)?;
            if solo.is_some() {
                return Ok(solo);
            }
        }
        let mut best = None;
        for group in GROUPS {
            let Some((rotation, at_once)) = self.grouped(context, group, jobs)? else {
                continue;
            };
            if at_once as usize >= jobs {
                return Ok(Some(rotation));
            }
            // Larger groups come first; those below the best size only stand in for it.
            if group >= THROUGHPUT_GROUP || best.is_none() {
                best = Some(rotation);
            }
        }
        Ok(best)
    }
}

/// The stages of a wide function in one arithmetic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WideShape {
    pub(crate) extract: Shape,
    pub(crate) refresh: Shape,
    pub(crate) switch: Shape,
    pub(crate) circuit: Shape,
}

impl WideShape {
    fn new(stages: &WopbsParams, arithmetic: ArithmeticKind) -> Result<WideShape, GpuError> {
        let shape = |params: &StageParams| -> Result<Shape, GpuError> {
            let compensated = params.modulus_switch == ModulusSwitch::MeanCompensated;
            let is_done = params.modulus == ModulusKind::Goldilocks
                && params.glwe_dimension == 2
                && compensated;
            if is_done {
                return Shape::new(params, arithmetic);
            }
            Err(GpuError::Unsupported(format!(
                "{}: wide functions of another kind",
                params.name
            )))
        };
        let levels = stages.circuit.gadget.levels;
        if levels > abi::MAX_LEVELS {
            return Err(GpuError::Unsupported(format!(
                "{}: {levels} levels",
                stages.circuit.name
            )));
        }
        Ok(WideShape {
            extract: shape(&stages.extract)?,
            refresh: shape(&stages.refresh)?,
            switch: shape(&stages.switch)?,
            circuit: shape(&stages.circuit)?,
        })
    }

    /// The most shared memory that a block takes.
    fn shared(&self) -> usize {
        let rotations = [&self.extract, &self.refresh, &self.circuit];
        let rotations = rotations.map(|shape| shape.alone_bytes(shape.params.glwe_words()));
        let most = rotations.into_iter().max().unwrap_or_default();
        most.max(self.circuits(1).shared as usize)
    }

    /// The shape of the launch that makes the rows of so many GGSW samples.
    pub(crate) fn circuits(&self, jobs: usize) -> LaunchShape {
        let params = &self.switch.params;
        LaunchShape {
            grid: [self.circuit.params.gadget.levels as u32, jobs as u32, 1],
            block: SOLO_THREADS,
            // A sample, and its body before a step of the trace.
            shared: self
                .switch
                .alone_bytes(params.glwe_words() + params.ring_degree) as u32,
            together: Together::No,
        }
    }

    /// The shape of the launch of so many CMuxes for each job.
    pub(crate) fn selections(&self, nodes: usize, jobs: usize) -> LaunchShape {
        LaunchShape {
            grid: [nodes as u32, jobs as u32, 1],
            block: SOLO_THREADS,
            shared: self.circuit.alone_bytes(0) as u32,
            together: Together::No,
        }
    }

    /// The shape of the launch that makes exponents.
    pub(crate) fn exponents(&self, jobs: usize) -> LaunchShape {
        LaunchShape {
            grid: [jobs as u32, 1, 1],
            block: THREADS,
            shared: 16 * THREADS,
            together: Together::No,
        }
    }

    /// The shape of launches that share the words of samples of dimension k·N.
    pub(crate) fn samples(&self, jobs: usize) -> LaunchShape {
        blocks_for(self.extract.params.extracted_dimension() + 1, jobs)
    }
}

/// A set in one arithmetic.
#[derive(Clone, Debug)]
pub(crate) enum SetShape {
    Programmable(Box<Shape>),
    Wide(Box<WideShape>),
}

/// Bytes that the memory of each array is a multiple of.
pub(crate) const ALIGNMENT: usize = 256;

impl SetShape {
    /// The layout of a set, on devices that give a block so much shared memory; `None` where the processor does its wide functions.
    pub(crate) fn new(
        params: &ParamSet,
        arithmetic: ArithmeticKind,
        shared_memory: usize,
    ) -> Result<Option<SetShape>, GpuError> {
        let Some(stages) = params.wopbs else {
            return Shape::new(params, arithmetic)
                .map(|shape| Some(SetShape::Programmable(Box::new(shape))));
        };
        match WideShape::new(stages, arithmetic) {
            Ok(shape) if shape.shared() <= shared_memory => {
                Ok(Some(SetShape::Wide(Box::new(shape))))
            }
            Ok(_) | Err(GpuError::Unsupported(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The parts of a key, each with where it begins in the device's memory.
    pub(crate) fn parts(&self, kind: KeyKind) -> Vec<(Shape, usize)> {
        let shapes = match self {
            SetShape::Programmable(shape) => vec![**shape],
            SetShape::Wide(shape) if kind == KeyKind::KeySwitching => {
                vec![shape.extract, shape.refresh]
            }
            SetShape::Wide(shape) => vec![shape.extract, shape.refresh, shape.switch],
        };
        let mut end = 0;
        let parts = shapes.into_iter().map(|shape| {
            let at = end;
            end += shape.bytes(kind).next_multiple_of(ALIGNMENT);
            (shape, at)
        });
        parts.collect()
    }

    /// Bytes of a key on a device.
    pub(crate) fn bytes(&self, kind: KeyKind) -> usize {
        let parts = self.parts(kind);
        parts.last().map_or(0, |(shape, at)| at + shape.bytes(kind))
    }
}
