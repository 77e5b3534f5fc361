//! The programs of `examples/columns` over rows, by the engine.

use std::sync::Arc;
use std::time::Instant;

use toroid_bench_common::{Error, machine};
use toroid_client::session::test_vector_bytes;
use toroid_engine::backend::cpu::CpuBackend;
use toroid_engine::{
    Attributes, CancelToken, ColumnBytes, ColumnInput, Engine, EngineConfig, KeyForm, KeyKind,
    MadeColumn, MapJob, MemorySwap, PagingContext, Part as EnginePart, StoreOutcome,
};
use toroid_isa::{Assembly, VrNumber, assemble, encode};
use toroid_task::Progress;
use toroid_tfhe::TfheError;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::column::{Column, ColumnBytesBuilder, ColumnForm, rows_per_chunk};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::Csprng;

use crate::numbers::numbers;
use crate::row::{Part, Row};

const FILTER: &str = include_str!("../../../examples/columns/filter.tasm");
const GROUPS: &str = include_str!("../../../examples/columns/groups.tasm");
const HISTOGRAM: &str = include_str!("../../../examples/columns/histogram.tasm");
const MEMBER: &str = include_str!("../../../examples/columns/member.tasm");
const SORT64: &str = include_str!("../../../examples/columns/sort64.tasm");
const DETECTOR: &str = include_str!("../../../examples/columns/detector.tasm");

/// Rows that an example works on, where it does not say how many it takes.
const FEW: usize = 16;
const KEY_ID: u32 = 0;
const COMMAND: PagingContext = PagingContext {
    command_id: 1,
    queue: 1,
};
/// As a drive has.
const TILE_BYTES: u64 = 64 << 20;
/// The most bytes of a result.
const ROOM: u64 = 64 << 20;
/// Two cores are to take at most this share of the time of one, times two.
const SPEED_UP_BAR: f64 = 0.53;

/// An engine with keys on so many cores, and the client of the keys.
struct Lab<'a> {
    client: &'a ClientKey,
    params: &'static ParamSet,
    engine: Engine,
}

/// What a run took, in seconds.
#[derive(Clone, Copy)]
struct Taken {
    wall: f64,
    processor: f64,
}

/// Rows for a register of a program: its name, the encoding, the numbers.
type Input<'a> = (&'a str, Encoding, &'a [i64]);

/// A column of a result, decrypted.
type Numbers = Vec<i64>;

impl<'a> Lab<'a> {
    fn new(client: &'a ClientKey, cores: usize) -> Result<Lab<'a>, Error> {
        let params = ParamSet::by_id(client.params().id).ok_or("no documented parameter set")?;
        let backend = CpuBackend::with_cores(ArithmeticKind::Fft, cores);
        let engine = Engine::new(
            EngineConfig::default(),
            Arc::new(backend),
            Arc::new(MemorySwap::new()),
        );
        let lab = Lab {
            client,
            params,
            engine,
        };
        lab.put_key(KeyKind::Bootstrapping)?;
        lab.put_key(KeyKind::KeySwitching)?;
        Ok(lab)
    }

    fn put_key(&self, kind: KeyKind) -> Result<(), Error> {
        let (form, params) = (KeyForm::Seeded, self.params);
        let total_size = match kind {
            KeyKind::Bootstrapping => form.bootstrapping_key_bytes(params),
            KeyKind::KeySwitching => form.key_switching_key_bytes(params),
            KeyKind::Ring | KeyKind::Conversion => {
                return Err("keys of rings have another source".into());
            }
        };
        let vr = VrNumber::key(KEY_ID, kind)?;
        let mut offset = 0;
        let mut put = |bytes: &[u8]| {
            let part = EnginePart {
                context: COMMAND,
                vr,
                params,
                total_size,
                offset,
                bytes,
                attributes: Attributes::default(),
            };
            let stored = self.engine.store_part(&part);
            stored.map_err(|error| TfheError::Format(error.to_string()))?;
            offset += bytes.len() as u64;
            Ok(())
        };
        let (mut rng, progress) = (Csprng::from_os()?, Progress::none());
        match kind {
            KeyKind::Bootstrapping => {
                self.client
                    .bootstrapping_key(form, &mut rng, &progress, &mut put)?;
            }
            KeyKind::KeySwitching => {
                self.client
                    .key_switching_key(form, &mut rng, &progress, &mut put)?;
            }
            KeyKind::Ring | KeyKind::Conversion => {}
        }
        Ok(())
    }

    fn part<'b>(&self, vr: VrNumber, bytes: &'b [u8], attributes: Attributes) -> EnginePart<'b> {
        EnginePart {
            context: COMMAND,
            vr,
            params: self.params,
            total_size: bytes.len() as u64,
            offset: 0,
            bytes,
            attributes,
        }
    }

    fn put(&self, vr: VrNumber, bytes: &[u8], attributes: Attributes) -> Result<(), Error> {
        match self.engine.store_part(&self.part(vr, bytes, attributes))? {
            StoreOutcome::Complete => Ok(()),
            outcome => Err(format!("{vr}: {outcome:?}").into()),
        }
    }

    /// A program, with its functions in the engine.
    fn assemble(&self, text: &str) -> Result<Assembly, Error> {
        let assembly = assemble(text)?;
        for vector in &assembly.test_vectors {
            let (bytes, input, report) = test_vector_bytes(self.params, vector)?;
            let attributes = Attributes {
                encoding: Some(input),
                output: Some(Encoding::new(report.bits.1, vector.signed)?),
                ..Attributes::default()
            };
            self.put(vector.vr, &bytes, attributes)?;
        }
        Ok(assembly)
    }

    /// What is stated of fresh samples.
    fn fresh(&self, encoding: Encoding) -> Attributes {
        Attributes {
            encoding: Some(encoding),
            log2_variance: Some(self.params.lwe_variance().log2()),
            ..Attributes::default()
        }
    }

    fn encrypt(&self, encoding: Encoding, numbers: &[i64]) -> Result<Vec<u8>, Error> {
        let mut rng = Csprng::from_os()?;
        let full = rows_per_chunk(self.params);
        let mut builder = ColumnBytesBuilder::new(self.params, numbers.len().div_ceil(full));
        for numbers in numbers.chunks(full) {
            let chunk = self.client.encrypt_chunk(numbers, encoding, &mut rng)?;
            builder.push_chunk(ColumnForm::Seeded, numbers.len(), &chunk)?;
        }
        Ok(builder.finish()?)
    }

    fn decrypt(&self, made: &MadeColumn) -> Result<Numbers, Error> {
        let encoding = made.facts.encoding.ok_or("a result without an encoding")?;
        if made.facts.rows == 1 {
            return Ok(vec![self.client.decrypt_sample(&made.bytes, encoding)?]);
        }
        let column = Column::new(self.params, &made.bytes)?;
        let mut numbers = Vec::new();
        for (number, segment) in column.header().segments().iter().enumerate() {
            let chunk = column.chunk_of(number)?;
            let all = self.client.decrypt_chunk(&chunk, encoding)?;
            numbers.extend(all.get(segment.rows_in_chunk()).unwrap_or_default());
        }
        Ok(numbers)
    }

    /// Runs a program on rows, with the results in these registers packed as a drive would.
    fn run(
        &self,
        text: &str,
        inputs: &[Input<'_>],
        outputs: &[&str],
    ) -> Result<(Vec<Numbers>, Taken), Error> {
        let assembly = self.assemble(text)?;
        let register = |name: &str| {
            let register = assembly.registers.get(name).copied();
            register.ok_or_else(|| Error::from(format!("no register {name}")))
        };
        let mut columns = Vec::new();
        for (_, encoding, numbers) in inputs {
            columns.push(self.encrypt(*encoding, numbers)?);
        }
        let mut sources = Vec::new();
        for bytes in &columns {
            sources.push(ColumnBytes::new(self.params, bytes)?);
        }
        let mut job_inputs = Vec::new();
        for ((name, encoding, numbers), source) in inputs.iter().zip(&sources) {
            job_inputs.push(ColumnInput {
                vr: register(name)?,
                params: self.params,
                rows: numbers.len() as u64,
                attributes: self.fresh(*encoding),
                source,
            });
        }
        let outputs = outputs.iter().map(|name| register(name));
        let outputs: Vec<VrNumber> = outputs.collect::<Result<_, _>>()?;
        let job = MapJob {
            program_vr: VrNumber::program(KEY_ID)?,
            program: &assembly.program,
            inputs: &job_inputs,
            outputs: &outputs,
            memory: TILE_BYTES,
        };
        let cancel = CancelToken::new();
        let (start, before) = (Instant::now(), machine::processor_time()?);
        let (made, _) = self.engine.map_to_columns(COMMAND, &job, ROOM, &cancel)?;
        let taken = Taken {
            wall: start.elapsed().as_secs_f64(),
            processor: (machine::processor_time()? - before).as_secs_f64(),
        };
        let results = made.iter().map(|made| self.decrypt(made));
        Ok((results.collect::<Result<_, _>>()?, taken))
    }

    /// The sum of the numbers above 100, and how many these are.
    fn filter(&self, x: &[i64]) -> Result<Taken, Error> {
        let inputs = [("x", Encoding::new(8, false)?, x)];
        let (found, taken) = self.run(FILTER, &inputs, &["x", "count"])?;
        let kept = |value: &i64| if *value > 100 { *value } else { 0 };
        let count = x.iter().filter(|value| **value > 100).count() as i64;
        check("filter", &found, &[sums(x.iter().map(kept)), vec![count]])?;
        Ok(taken)
    }

    fn groups(&self) -> Result<Row, Error> {
        let (keys, values) = (numbers(FEW, 8), numbers(FEW, 256));
        let inputs: [Input<'_>; 2] = [
            ("key", Encoding::new(3, false)?, &keys),
            ("value", Encoding::new(11, false)?, &values),
        ];
        let names = [
            "key", "sum1", "sum2", "sum3", "sum4", "sum5", "sum6", "sum7",
        ];
        let (found, taken) = self.run(GROUPS, &inputs, &names)?;
        let group = |wanted| {
            let rows = keys.iter().zip(&values);
            sums(rows.map(move |(key, value)| if *key == wanted { *value } else { 0 }))
        };
        let expected: Vec<Numbers> = (0..8).map(group).collect();
        check("groups", &found, &expected)?;
        Ok(example(
            "groups",
            FEW,
            taken.wall,
            "8 functions of 3+8 bits",
        ))
    }

    fn histogram(&self) -> Result<Row, Error> {
        let x = numbers(FEW, 256);
        let bins: Vec<String> = (1..16).map(|bin| format!("bin{bin}")).collect();
        let names: Vec<&str> = ["x"]
            .into_iter()
            .chain(bins.iter().map(String::as_str))
            .collect();
        let (found, taken) = self.run(HISTOGRAM, &[("x", Encoding::new(8, false)?, &x)], &names)?;
        let count = |bin| vec![x.iter().filter(|value| **value / 16 == bin).count() as i64];
        let expected: Vec<Numbers> = (0..16).map(count).collect();
        check("histogram", &found, &expected)?;
        Ok(example(
            "histogram",
            FEW,
            taken.wall,
            "16 functions of 8 bits",
        ))
    }

    fn member(&self) -> Result<Row, Error> {
        let set = numbers(FEW, 256);
        let wanted = [set.first().copied().unwrap_or_default()];
        let encoding = Encoding::new(10, true)?;
        let inputs: [Input<'_>; 2] = [("set", encoding, &set), ("x", encoding, &wanted)];
        let (found, taken) = self.run(MEMBER, &inputs, &["set"])?;
        let times = set.iter().filter(|value| wanted.contains(value)).count();
        check("member", &found, &[vec![times as i64]])?;
        Ok(example("member", FEW, taken.wall, "a function of 10 bits"))
    }

    fn sort64(&self) -> Result<Row, Error> {
        let x = numbers(64, 256);
        let inputs = [("low", Encoding::new(16, false)?, x.as_slice())];
        let (found, taken) = self.run(SORT64, &inputs, &["low", "median", "top"])?;
        let mut sorted = x.clone();
        sorted.sort_unstable();
        let (median, top) = (vec![sorted[32]], sorted[56..].to_vec());
        check("sort64", &found, &[sorted, median, top])?;
        let what = format!("672 times 4 functions of 8+8 bits, {:.0} s", taken.wall);
        Ok(example("sort64", x.len(), taken.wall, &what))
    }

    /// Writes that run a program each.
    fn detector(&self) -> Result<Row, Error> {
        let assembly = self.assemble(DETECTOR)?;
        let registers = &assembly.registers;
        let (Some(total), Some(y)) = (registers.get("total"), registers.get("y")) else {
            return Err("the detector lacks a register".into());
        };
        let program = VrNumber::program(KEY_ID)?;
        let bytes = encode(&assembly.program);
        self.put(program, &bytes, Attributes::default())?;
        let encoding = Encoding::new(9, false)?;
        let mut rng = Csprng::from_os()?;
        let mut sample = |value| self.client.encrypt_sample(value, encoding, &mut rng);
        self.put(*total, &sample(0)?, self.fresh(encoding))?;
        let (mut sum, mut wall) = (0, 0.0);
        for value in numbers(FEW, 256) {
            let bytes = sample(value)?;
            let part = self.part(*y, &bytes, self.fresh(encoding));
            let cancel = CancelToken::new();
            let start = Instant::now();
            let outcome = self.engine.store_part_and_run(&part, &cancel)?;
            wall += start.elapsed().as_secs_f64();
            let outcome = outcome.ok_or("the detector did not run")?;
            let found = self.client.decrypt_sample(&outcome.bytes, encoding)?;
            sum += value;
            let alarm = sum > 200;
            check("detector", &[vec![found]], &[vec![alarm.into()]])?;
            if alarm {
                sum = 0;
            }
        }
        let what = "writes of a single number, 2 functions of 9 bits each";
        Ok(example("detector", FEW, wall, what))
    }
}

fn sums(values: impl Iterator<Item = i64>) -> Numbers {
    let values: Numbers = values.collect();
    values.chunks(16).map(|rows| rows.iter().sum()).collect()
}

fn check(name: &str, found: &[Numbers], expected: &[Numbers]) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{name} gave {found:?}, where {expected:?} is right").into())
}

fn example(name: &str, rows: usize, wall: f64, what: &str) -> Row {
    let rate = rows as f64 / wall;
    eprintln!("{name}: {rate:.2} rows/s");
    let note = format!("{rows} rows: {what}");
    Row::new(Part::Examples, format!("`{name}.tasm`"), rate, "rows/s").note(note)
}

/// The filter on so many rows, on one core and on all, and the other examples on a few.
pub fn measure(client: &ClientKey, rows: usize, quick: bool) -> Result<Vec<Row>, Error> {
    let x = numbers(rows, 256);
    let cores = machine::processors();
    let on = |cores| -> Result<(Lab<'_>, Taken), Error> {
        eprintln!("filtering {rows} rows on {cores} of the cores …");
        let lab = Lab::new(client, cores)?;
        // Memory is touched for the first time by rows that do not count.
        lab.filter(x.get(..cores).unwrap_or(&x))?;
        let taken = lab.filter(&x)?;
        let each = 1000.0 / rows as f64;
        let (wall, processor) = (each * taken.wall, each * taken.processor);
        eprintln!("{wall:.1} ms a row, {processor:.1} ms of processors");
        let taken = Taken { wall, processor };
        Ok((lab, taken))
    };
    let (_, one) = on(1)?;
    let (lab, all) = on(cores)?;
    let peak = machine::peak_memory().unwrap_or_default();
    let row = |what: &str, ours| Row::new(Part::Filter, format!("a row, {what}"), ours, "ms");
    let bar = 2.0 * SPEED_UP_BAR / cores as f64;
    let mut table = vec![
        row("one core", one.wall),
        row(&format!("{cores} cores"), all.wall)
            .beside("one core", one.wall)
            .ratio_at_most(bar),
        row("processor time on one core", one.processor),
        row(&format!("processor time on {cores} cores"), all.processor)
            .beside("on one core", one.processor),
        Row::new(
            Part::Filter,
            "peak memory of the process",
            peak as f64 / f64::from(1 << 20),
            "MiB",
        )
        .at_most(1024.0),
    ];
    let rate = 1000.0 / all.wall;
    let filter = Row::new(Part::Examples, "`filter.tasm`", rate, "rows/s");
    table.push(filter.note(format!("{rows} rows: 2 functions of 8 bits")));
    if !quick {
        eprintln!("running the examples …");
        table.extend([
            lab.groups()?,
            lab.histogram()?,
            lab.member()?,
            lab.detector()?,
            lab.sort64()?,
        ]);
    }
    Ok(table)
}
