//! A wide function beside busy processes: what one thread takes, two, and as many as a drive takes by itself.
//!
//! `cargo run --release -p toroid-bench-scheme --bin load -- [SET [RUNS [write]]]` in `bench/`. For each number of busy
//! processes and of threads it takes RUNS functions one after another, by the clock on the wall; the numbers of threads take turns, three
//! times each. `write` replaces the page `docs/results/load.md` and its figures.
//!
//! The busy processes have the priority of the benchmark. Others should be quiet.

use std::path::Path;
use std::process::{Child, Command};
use std::time::Instant;

use serde::Serialize;
use toroid_bench_common::{Error, machine, pages};
use toroid_ring::simd::SimdLevel;
use toroid_task::Progress;
use toroid_tfhe::arithmetic::Fft;
use toroid_tfhe::bootstrap::Run;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::modulus::{Goldilocks, Modulus};
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::Csprng;

/// Busy processes beside the function.
const BUSY: [usize; 4] = [0, 1, 2, 4];
/// How often each number of threads has its turn.
const TURNS: usize = 3;
/// The argument that makes a process a busy one.
const SPIN: &str = "spin";

/// Milliseconds on the wall.
#[derive(Serialize)]
struct Time {
    best: f64,
    median: f64,
}

/// A row of the page.
#[derive(Serialize)]
struct Row {
    busy: usize,
    one: Time,
    two: Time,
    automatic: Time,
}

/// What else the page shows.
#[derive(Serialize)]
struct Data {
    date: String,
    machine: String,
    load: String,
    set: String,
    runs: usize,
    threads: usize,
}

/// Processes that do nothing, as fast as they can; they end with this.
struct Busy(Vec<Child>);

impl Busy {
    fn start(count: usize) -> Result<Busy, Error> {
        let mut all = Busy(Vec::new());
        for _ in 0..count {
            let program = std::env::current_exe()?;
            all.0.push(Command::new(program).arg(SPIN).spawn()?);
        }
        Ok(all)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that is gone already is what we want.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (name, runs, write) = match arguments[..] {
        [SPIN] => loop {
            std::hint::spin_loop();
        },
        [] => ("message16", 12, false),
        [name] => (name, 12, false),
        [name, runs] => (name, runs.parse()?, false),
        [name, runs, "write"] => (name, runs.parse()?, true),
        _ => return Err("usage: [SET [RUNS [write]]]".into()),
    };
    let params = ParamSet::by_name(name)
        .filter(|set| set.is_wide())
        .ok_or_else(|| format!("{name} has no wide functions"))?;
    let load = machine::load_average();
    let threads = machine::processors();
    let rows = measure(params, runs, threads)?;
    let data = Data {
        date: machine::date(),
        machine: machine::describe(),
        load,
        set: name.to_owned(),
        runs: runs * TURNS,
        threads,
    };
    let out = write.then_some(Path::new(pages::RESULTS));
    pages::publish("load", &rows, &data, out)?;
    Ok(())
}

fn measure(params: &ParamSet, runs: usize, automatic: usize) -> Result<Vec<Row>, Error> {
    let mut rng = Csprng::from_os()?;
    let client = ClientKey::generate(params, &mut rng);
    let progress = Progress::none();
    let key = client.loaded_wopbs_key::<Goldilocks, Fft>(SimdLevel::best(), &mut rng, &progress)?;
    let switching =
        client.loaded_wopbs_key_switching_key(SimdLevel::best(), &mut rng, &progress)?;
    let p = params.message_bits;
    let table: Vec<u64> = (0..1i64 << p)
        .map(|value| Goldilocks::encode(value, p + 1))
        .collect();
    let mut sample = vec![0; params.lwe_words()];
    client.lwe().encrypt_into::<Goldilocks>(
        &mut sample,
        Goldilocks::encode(1, p + 1),
        params.log2_lwe_noise,
        &mut rng,
    );
    let function = |threads: usize| -> Result<f64, Error> {
        let started = Instant::now();
        key.bootstrap(
            &switching,
            &[&table],
            p,
            &sample,
            Run::with_threads(threads),
        )?;
        Ok(1000.0 * started.elapsed().as_secs_f64())
    };
    let mut rows = Vec::new();
    for busy in BUSY {
        let _busy = Busy::start(busy)?;
        // What a busy machine teaches and what its caches hold belongs to all.
        function(1)?;
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..TURNS {
            for (threads, times) in [1, 2, automatic].into_iter().zip(&mut times) {
                for _ in 0..runs {
                    times.push(function(threads)?);
                }
            }
        }
        let [one, two, automatic] = times.map(summary);
        eprintln!(
            "{busy} busy: {:.1}, {:.1}, {:.1} ms; best {:.1}, {:.1}, {:.1} ms",
            one.median, two.median, automatic.median, one.best, two.best, automatic.best
        );
        rows.push(Row {
            busy,
            one,
            two,
            automatic,
        });
    }
    Ok(rows)
}

fn summary(mut times: Vec<f64>) -> Time {
    times.sort_by(f64::total_cmp);
    Time {
        best: times[0],
        median: times[times.len() / 2],
    }
}
