//! Sums of rows of input columns, which the source adds up, against sums of samples.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::ops::Range;
use std::sync::Arc;

use common::{COMMAND, config, cor, vr};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::{
    Attributes, CancelToken, Checkpoint, ColumnBytes, ColumnInput, Engine, MapJob, MapSink,
    MemorySwap, RowError, RowSource,
};
use toroid_isa::assemble;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::column::{
    Column, ColumnBytesBuilder, ColumnForm, ColumnHeader, assemble as put_together, expand,
};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::{ParamSet, TINY, TINY_WOPBS, TINY32};
use toroid_tfhe::random::Csprng;

/// The same rows, which know no better way to a sum.
struct Plain<'a>(&'a ColumnBytes<'a>);

impl RowSource for Plain<'_> {
    fn read(&self, rows: Range<u64>, samples: &mut [u8]) -> Result<(), RowError> {
        self.0.read(rows, samples)
    }

    fn number(&self) -> u64 {
        self.0.number()
    }
}

/// Keeps what it is given.
#[derive(Default)]
struct Kept {
    outputs: Vec<Vec<u8>>,
    checkpoints: Vec<Checkpoint>,
}

impl MapSink for Kept {
    fn take(&mut self, output: usize, _: u64, samples: &[u8]) -> Result<(), RowError> {
        if self.outputs.len() <= output {
            self.outputs.resize(output + 1, Vec::new());
        }
        self.outputs[output].extend_from_slice(samples);
        Ok(())
    }

    fn reached(&mut self, checkpoint: &Checkpoint) -> Result<(), RowError> {
        self.checkpoints.push(checkpoint.clone());
        Ok(())
    }
}

const ENCODING: (u32, bool) = (4, false);

/// A column of 300 rows in seeded and expanded chunks, some rows of which were replaced by others.
fn column(params: &ParamSet) -> (ClientKey, Vec<u8>, Vec<i64>) {
    let mut rng = Csprng::from_seed([3; 32]);
    let client = ClientKey::generate(params, &mut rng);
    let encoding = Encoding::new(ENCODING.0, ENCODING.1).unwrap();
    let mut builder = ColumnBytesBuilder::new(params, 3);
    let mut values: Vec<i64> = (0..300).map(|row| i64::from(row % 11 == 3)).collect();
    for (rows, form) in
        values
            .chunks(100)
            .zip([ColumnForm::Seeded, ColumnForm::Seeded, ColumnForm::Expanded])
    {
        let seeded = client.encrypt_chunk(rows, encoding, &mut rng).unwrap();
        let mut samples = vec![0; rows.len() * params.lwe_bytes()];
        let whole = 0..rows.len();
        expand(
            params,
            ColumnForm::Seeded,
            &seeded,
            rows.len(),
            whole,
            &mut samples,
        )
        .unwrap();
        let chunk = if form == ColumnForm::Seeded {
            seeded
        } else {
            samples
        };
        builder.push_chunk(form, rows.len(), &chunk).unwrap();
    }
    let bytes = builder.finish().unwrap();
    let column = Column::new(params, &bytes).unwrap();
    let mut header: ColumnHeader = column.header().clone();
    for (at, from) in [(40..43, 210..213), (90..120, 3..33)] {
        let with = header.slice(from.clone()).unwrap();
        header.replace(at.clone(), with).unwrap();
        let [at, from] = [at, from].map(|rows| rows.start as usize..rows.end as usize);
        let with = values[from].to_vec();
        values.splice(at, with);
    }
    let chunk_of = |segment| {
        let segments = column.header().segments();
        let index = segments.iter().position(|of| of.shares_chunk(segment));
        column.chunk_bytes(index.unwrap()).unwrap()
    };
    let segments = header.segments().iter();
    let bytes = put_together(params, segments.map(|of| (*of, chunk_of(of)))).unwrap();
    (client, bytes, values)
}

const SETS: [&ParamSet; 3] = [&TINY_WOPBS, &TINY, &TINY32];

#[test]
fn sums_are_those_of_samples_word_by_word() {
    for params in SETS {
        let (client, bytes, values) = column(params);
        let source = ColumnBytes::new(params, &bytes).unwrap();
        let encoding = Encoding::new(ENCODING.0, ENCODING.1).unwrap();
        let mut runner = TestRunner::deterministic();
        let ranges = (0..=300u64, 0..=300u64);
        for _ in 0..40 {
            let (a, b) = ranges.new_tree(&mut runner).unwrap().current();
            let rows = a.min(b)..a.max(b);
            let [mut fast, mut plain] = [(); 2].map(|()| vec![7; params.lwe_bytes()]);
            source.sum(params, rows.clone(), &mut fast).unwrap();
            Plain(&source)
                .sum(params, rows.clone(), &mut plain)
                .unwrap();
            assert_eq!(fast, plain, "{} {rows:?}", params.name);
            let total: i64 = values[a.min(b) as usize..a.max(b) as usize].iter().sum();
            if total < 32 {
                assert_eq!(client.decrypt_sample(&fast, encoding).unwrap(), total);
            }
        }
        let mut room = vec![0; params.lwe_bytes()];
        assert!(source.sum(params, 299..301, &mut room).is_err());
        assert!(source.sum(params, 300..301, &mut room).is_err());
    }
}

#[test]
fn programs_give_the_same_whoever_adds_up() {
    for params in SETS {
        let (_, bytes, _) = column(params);
        let source = ColumnBytes::new(params, &bytes).unwrap();
        let backend = Arc::new(CpuBackend::new(ArithmeticKind::Ntt));
        let engine = Engine::new(config(8 << 20), backend, Arc::new(MemorySwap::new()));
        let mut sums_of_seven = Vec::new();
        for (program, outputs) in [
            ("homsum cor:0, 0\nreturn cor:0", 1),
            ("homsum cor:0, 7\nreturn cor:0", 1),
            ("homsum cor:0, 1\nreturn cor:0", 1),
            ("homsum cor:0, 1000\nhomintadd cor:0, 1\nreturn cor:0", 1),
            // Rows that are made reach the sum as samples.
            ("homintmult cor:0, 1\nhomsum cor:0, 7\nreturn cor:0", 1),
            // The column itself is read, too, and given back; a sum is added to its rows; others move.
            (
                "mov cor:1, cor:0\nhomsum cor:1, 0\nhomadd cor:1, cor:0\nmov cor:2, cor:0\nhomsum cor:2, 50\nreturn cor:1",
                3,
            ),
            (
                "mov cor:1, cor:0\nlower cor:1, 50\nhomsum cor:0, 100\nmov cor:2, cor:1\nhomsum cor:2, 2\nreturn cor:0",
                3,
            ),
        ] {
            let of_seven = program.contains("cor:0, 7");
            let program = assemble(program).unwrap().program;
            let outputs: Vec<_> = (0..outputs).map(|id| cor(0, id)).collect();
            let run = |source: &dyn RowSource, memory: u64| {
                let inputs = [ColumnInput {
                    vr: cor(0, 0),
                    params,
                    rows: 300,
                    attributes: Attributes::default(),
                    source,
                }];
                let job = MapJob {
                    program_vr: vr("prg:0:0"),
                    program: &program,
                    inputs: &inputs,
                    outputs: &outputs,
                    memory,
                };
                let mut kept = Kept::default();
                let facts = engine.map(COMMAND, &job, None, &mut kept, &CancelToken::new());
                facts.unwrap();
                kept
            };
            let expected = run(&Plain(&source), 1 << 20);
            assert!(expected.outputs.iter().all(|output| !output.is_empty()));
            for memory in [1 << 20, 9 * params.lwe_bytes() as u64] {
                let found = run(&source, memory);
                assert!(
                    found.outputs == expected.outputs,
                    "{} {program:?}",
                    params.name
                );
            }
            if of_seven {
                sums_of_seven.push(expected.outputs);
            }
        }
        assert!(sums_of_seven.len() == 2 && sums_of_seven[0] == sums_of_seven[1]);
    }
}
