//! Lists of GGSW samples, loaded for one [`Arithmetic`], and their external products.
//!
//! A bootstrapping key is such a list, and so are the bits of a wide function's message. The rows of all samples are one
//! stream, which a blind rotation reads once, front to back.

use std::marker::PhantomData;
use std::ops::Range;
use std::slice::{ChunksExact, ChunksExactMut};

use toroid_ring::simd::SimdLevel;

use crate::TfheError;
use crate::arithmetic::{Arithmetic, WordOf};
use crate::glwe;
use crate::lwe::add_words;
use crate::memory::Buffer;
use crate::modulus::{AlternatingFields, DigitField, DigitFields, Modulus};
use crate::parallel;
use crate::params::StageParams;

/// GGSW samples, each of its rows of k+1 polynomials.
pub(crate) struct GgswList<M: Modulus, A: Arithmetic<M>> {
    params: StageParams,
    arithmetic: A,
    simd: SimdLevel,
    count: usize,
    /// Whether products take [`AlternatingFields`].
    alternating: bool,
    /// Whether three samples stand for two bits s and t: of s·(1-t), (1-s)·t and s·t.
    unrolled: bool,
    rows: Buffer,
    modulus: PhantomData<M>,
}

/// Loads rows of k+1 polynomials in the coefficient domain into the first of `out`, in parallel.
pub(crate) fn load_rows<M: Modulus, A: Arithmetic<M>>(
    arithmetic: &A,
    simd: SimdLevel,
    params: &StageParams,
    rows: &[M::Word],
    out: &mut [u8],
) {
    let row_words = params.glwe_words();
    let row_bytes = arithmetic.row_bytes();
    let group = rows_together(rows.len() / row_words);
    let groups = out
        .chunks_mut(group * row_bytes)
        .zip(rows.chunks(group * row_words));
    parallel::for_each(groups, |_, (out, rows)| {
        let mut loader = RowLoader::new(arithmetic, simd, params);
        let rows = rows.chunks_exact(row_words);
        for (out, words) in out.chunks_exact_mut(row_bytes).zip(rows) {
            loader.load(words, out);
        }
    });
}

/// How many of `rows` rows a thread loads before it takes others: several groups for each thread, which share their memory.
fn rows_together(rows: usize) -> usize {
    rows.div_ceil(4 * rayon::current_num_threads()).max(1)
}

/// Brings rows from the coefficient domain to the form in which an arithmetic computes with them.
struct RowLoader<'a, M: Modulus, A: Arithmetic<M>> {
    arithmetic: &'a A,
    simd: SimdLevel,
    row: Vec<u64>,
    scratch: Vec<A::Scalar>,
    modulus: PhantomData<M>,
}

/// What an arithmetic needs to load a row.
fn scratch_of_row<M: Modulus, A: Arithmetic<M>>(params: &StageParams) -> Vec<A::Scalar> {
    vec![A::Scalar::default(); A::sums_per_column(params) * params.glwe_words()]
}

impl<'a, M: Modulus, A: Arithmetic<M>> RowLoader<'a, M, A> {
    fn new(arithmetic: &'a A, simd: SimdLevel, params: &StageParams) -> Self {
        RowLoader {
            arithmetic,
            simd,
            row: vec![0; params.glwe_words()],
            scratch: scratch_of_row::<M, A>(params),
            modulus: PhantomData,
        }
    }

    fn load(&mut self, words: &[M::Word], out: &mut [u8]) {
        glwe::lift::<M>(self.simd, &mut self.row, words);
        self.arithmetic
            .load_coefficients(&mut self.row, &mut self.scratch, out);
    }
}

impl<M: Modulus, A: Arithmetic<M>> GgswList<M, A> {
    /// Room for `count` GGSW samples, with the kernels of `simd`; zeroes until they are loaded.
    pub(crate) fn new(
        params: &StageParams,
        count: usize,
        simd: SimdLevel,
    ) -> Result<Self, TfheError> {
        let arithmetic = A::new(params, simd)?;
        let bytes = count * params.ggsw_rows() * arithmetic.row_bytes();
        Ok(GgswList {
            params: *params,
            arithmetic,
            simd,
            count,
            alternating: false,
            unrolled: false,
            rows: Buffer::new(bytes / 8)?,
            modulus: PhantomData,
        })
    }

    /// With digits that have no mean: for samples whose rows share their noise, as those of circuit bootstrapping do.
    pub(crate) fn with_alternating_digits(self) -> Self {
        GgswList {
            alternating: true,
            ..self
        }
    }

    /// Room for the samples of an unrolled bootstrapping key.
    pub(crate) fn unrolled(params: &StageParams, simd: SimdLevel) -> Result<Self, TfheError> {
        Ok(GgswList {
            unrolled: true,
            ..GgswList::new(params, params.unrolled_samples(), simd)?
        })
    }

    /// Whether three samples stand for two bits.
    pub(crate) fn is_unrolled(&self) -> bool {
        self.unrolled
    }

    /// The most threads that one blind rotation can use: one for each row of an external product, and a single one for an unrolled key.
    pub(crate) fn most_members(&self) -> usize {
        if self.unrolled {
            1
        } else {
            self.params.ggsw_rows()
        }
    }

    /// The dimensions and gadgets.
    pub(crate) fn params(&self) -> &StageParams {
        &self.params
    }

    /// The kernels that it was made for.
    pub(crate) fn simd(&self) -> SimdLevel {
        self.simd
    }

    /// What computes with the rows.
    pub(crate) fn arithmetic(&self) -> &A {
        &self.arithmetic
    }

    /// Number of samples.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Bytes of memory that the samples take.
    pub(crate) fn memory(&self) -> u64 {
        self.rows.bytes().len() as u64
    }

    /// The loaded rows of all samples.
    pub(crate) fn rows(&self) -> ChunksExact<'_, u8> {
        self.rows.bytes().chunks_exact(self.arithmetic.row_bytes())
    }

    /// As [`Self::rows`], in words, to be written to.
    pub(crate) fn rows_mut(&mut self) -> ChunksExactMut<'_, u64> {
        let row_bytes = self.arithmetic.row_bytes();
        self.rows.words_mut().chunks_exact_mut(row_bytes / 8)
    }

    /// Loads rows in the coefficient domain, the first of which is row `first` of the list.
    pub(crate) fn load_rows(&mut self, first: usize, rows: &[M::Word]) {
        let out = &mut self.rows.bytes_mut()[first * self.arithmetic.row_bytes()..];
        load_rows(&self.arithmetic, self.simd, &self.params, rows, out);
    }

    /// Loads rows in the canonical form (BKNTT), the first of which is row `first` of the list; they are destroyed.
    pub(crate) fn load_canonical_rows(&mut self, first: usize, rows: &mut [u64]) {
        let row_words = self.params.glwe_words();
        let row_bytes = self.arithmetic.row_bytes();
        let arithmetic = &self.arithmetic;
        let group = rows_together(rows.len() / row_words);
        let groups = self.rows.bytes_mut()[first * row_bytes..]
            .chunks_mut(group * row_bytes)
            .zip(rows.chunks_mut(group * row_words));
        parallel::for_each(groups, |_, (out, rows)| {
            let mut scratch = scratch_of_row::<M, A>(&self.params);
            let rows = rows.chunks_exact_mut(row_words);
            for (out, row) in out.chunks_exact_mut(row_bytes).zip(rows) {
                arithmetic.load(row, &mut scratch, out);
            }
        });
    }

    /// Once all rows are loaded, brings them to the order in which products read them: that of an unrolled list may be another than the one of
    /// [`Self::rows`].
    pub(crate) fn finish(&mut self) {
        if !self.unrolled {
            return;
        }
        let bytes = 3 * self.params.ggsw_rows() * self.arithmetic.row_bytes();
        let arithmetic = &self.arithmetic;
        let pairs = self.rows.bytes_mut().chunks_exact_mut(bytes);
        parallel::for_each(pairs, |_, rows| arithmetic.gather_pair(rows));
    }

    /// Loads the rows of sample `index`, in the coefficient domain, on the calling thread: it takes microseconds.
    pub(crate) fn load_sample(&mut self, index: usize, rows: &[M::Word]) {
        let row_words = self.params.glwe_words();
        let row_bytes = self.arithmetic.row_bytes();
        let first = index * self.params.ggsw_rows() * row_bytes;
        let mut loader = RowLoader::new(&self.arithmetic, self.simd, &self.params);
        self.rows.bytes_mut()[first..]
            .chunks_exact_mut(row_bytes)
            .zip(rows.chunks_exact(row_words))
            .for_each(|(out, words)| loader.load(words, out));
    }

    /// The products of some rows of sample `index` with the digits of a GLWE sample, summed up in `work.sums`; `write_component`
    /// writes the component of the GLWE sample that it is asked for.
    pub(crate) fn products(
        &self,
        index: usize,
        rows: Range<usize>,
        write_component: impl Fn(usize, &mut [WordOf<M, A>]),
        work: &mut Workspace<'_, M, A>,
    ) {
        let row_bytes = self.arithmetic.row_bytes();
        let first = rows.start;
        let keys = &self.rows.bytes()[(index * self.params.ggsw_rows() + first) * row_bytes..];
        for (row, key) in rows.zip(keys.chunks_exact(row_bytes)) {
            let (component, gadget, level) = self.params.ggsw_row(row);
            if row == first || level == 0 {
                write_component(component, work.difference);
            }
            let fields = if self.alternating {
                DigitFields::Alternating(AlternatingFields::new(M::KIND, gadget, level))
            } else {
                DigitField::new(M::KIND, gadget, level).into()
            };
            self.arithmetic.mul_add_digits(
                work.difference,
                fields,
                key,
                work.scratch,
                work.sums,
                row == first,
            );
        }
    }

    /// acc += what the products of one external product sum up to; the sums are destroyed.
    pub(crate) fn add_sums(&self, work: &mut Workspace<'_, M, A>, acc: &mut [WordOf<M, A>]) {
        self.add_columns(work.sums, acc);
    }

    fn add_columns(&self, sums: &mut [A::Scalar], acc: &mut [WordOf<M, A>]) {
        let n = self.params.ring_degree;
        let sums = sums.chunks_exact_mut(A::sums_per_column(&self.params) * n);
        for (sum, words) in sums.zip(acc.chunks_exact_mut(n)) {
            self.arithmetic.inverse_add(sum, words);
        }
    }

    /// Turns `acc` by X^e_0·X^e_1, each as far as the bit of an unrolled key says: acc += Σ (X^e_i - 1)·(acc ⊡ sample i) for the
    /// three samples of pair `pair`, with e_2 = e_0 + e_1.
    pub(crate) fn turn_by_pair(
        &self,
        pair: usize,
        exponents: [usize; 2],
        acc: &mut [WordOf<M, A>],
        memory: &mut PairMemory<M, A>,
    ) {
        let params = &self.params;
        let n = params.ring_degree;
        let bytes = 3 * params.ggsw_rows() * self.arithmetic.row_bytes();
        let keys = &self.rows.bytes()[pair * bytes..][..bytes];
        let mut work = Workspace::<M, A>::new(params, &mut memory.work);
        let digits = bytemuck::cast_slice_mut(memory.digits.words_mut());
        if self
            .arithmetic
            .pair_product(params, acc, keys, exponents, digits, work.sums)
        {
            return self.add_columns(work.sums, acc);
        }
        let (product, total) = memory.words.split_at_mut(params.glwe_words());
        total.fill(WordOf::<M, A>::default());
        let [a, b] = exponents;
        for (sample, exponent) in [a, b, (a + b) % (2 * n)].into_iter().enumerate() {
            let component = |index: usize, out: &mut [WordOf<M, A>]| {
                out.copy_from_slice(&acc[index * n..][..n]);
            };
            self.products(
                3 * pair + sample,
                0..params.ggsw_rows(),
                component,
                &mut work,
            );
            product.fill(WordOf::<M, A>::default());
            self.add_sums(&mut work, product);
            for (total, product) in total.chunks_exact_mut(n).zip(product.chunks_exact(n)) {
                glwe::rotate_sub::<A::Words>(self.simd, work.difference, product, exponent);
                add_words::<A::Words>(self.simd, total, work.difference);
            }
        }
        add_words::<A::Words>(self.simd, acc, total);
    }
}

/// One thread's working memory for [`GgswList::turn_by_pair`].
pub(crate) struct PairMemory<M: Modulus, A: Arithmetic<M>> {
    work: Buffer,
    digits: Buffer,
    words: Vec<WordOf<M, A>>,
}

impl<M: Modulus, A: Arithmetic<M>> PairMemory<M, A> {
    pub(crate) fn new(params: &StageParams) -> Result<Self, TfheError> {
        Ok(PairMemory {
            work: Workspace::<M, A>::memory(params)?,
            digits: Buffer::new(params.ggsw_rows() * params.ring_degree)?,
            words: vec![WordOf::<M, A>::default(); 2 * params.glwe_words()],
        })
    }
}

/// Slices of one thread's working memory, each on a line of the cache.
pub(crate) struct Workspace<'a, M: Modulus, A: Arithmetic<M>> {
    pub(crate) difference: &'a mut [WordOf<M, A>],
    pub(crate) scratch: &'a mut [A::Scalar],
    pub(crate) sums: &'a mut [A::Scalar],
}

impl<'a, M: Modulus, A: Arithmetic<M>> Workspace<'a, M, A> {
    /// Memory for a workspace.
    pub(crate) fn memory(params: &StageParams) -> Result<Buffer, TfheError> {
        let scalars = A::sums_per_column(params) * (params.glwe_words() + params.ring_degree);
        Buffer::new(scalars + params.ring_degree)
    }

    pub(crate) fn new(params: &StageParams, memory: &'a mut Buffer) -> Self {
        let n = params.ring_degree;
        let sums = A::sums_per_column(params);
        let scalars = sums * (params.glwe_words() + n);
        let (scalars, words) = memory.words_mut().split_at_mut(scalars);
        let scalars: &mut [A::Scalar] = bytemuck::cast_slice_mut(scalars);
        // The team of a rotation adds up the sums of a column there.
        let (scratch, sums) = scalars.split_at_mut(sums * n);
        let words: &mut [WordOf<M, A>] = bytemuck::cast_slice_mut(words);
        Workspace {
            difference: &mut words[..n],
            scratch,
            sums,
        }
    }
}
