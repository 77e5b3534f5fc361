//! What this machine can do at most, and what that means for a row.
//!
//! The clock and the speed of reading are measured at the start of a run. The rest is a model, in the constants below: the
//! vector units of Zen 4, where an operation on 512 bits takes per cycle of two units of 256 bits. A processor with more
//! units (two 512-bit multipliers) can come in below these bounds; nothing else can.

use serde::{Deserialize, Serialize};
use toroid_bench_common::speed;
use toroid_tfhe::params::{ModulusKind, ParamSet, StageParams};

/// Fused multiply-adds of 512 bits per cycle, two operations each on eight f64.
const FLOPS_PER_CYCLE: f64 = 16.0;
/// Multiplications of eight words of 64 bits (vpmadd52, vpmuludq, vpmullq) or sixteen of 32 (vpmulld) per cycle.
const MULTIPLICATIONS_PER_CYCLE: f64 = 1.0;
/// Additions, comparisons and selections of eight words of 64 bits per cycle.
const SIMPLE_PER_CYCLE: f64 = 2.0;
/// Words of 64 bits in a vector.
const LANES: f64 = 8.0;

/// What was measured of the machine.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Machine {
    /// Cycles per second, from a chain of dependent operations of one cycle each.
    pub clock: f64,
    /// Bytes per second that one thread reads from memory.
    pub read: f64,
    /// The same of two threads together.
    pub read_by_two: f64,
}

/// The least time that a row can take on this machine.
pub struct Bound {
    /// Seconds.
    pub seconds: f64,
    /// What takes that time.
    pub by: String,
}

impl Machine {
    /// Measures this machine.
    pub fn measure() -> Machine {
        Machine {
            clock: speed::clock(),
            read: speed::read(1),
            read_by_two: speed::read(2),
        }
    }

    fn seconds_of_flops(&self, flops: f64) -> f64 {
        flops / FLOPS_PER_CYCLE / self.clock
    }
}

/// log2 N butterflies for every two of N words.
fn butterflies(n: usize) -> f64 {
    n as f64 / 2.0 * f64::from(n.trailing_zeros())
}

/// Operations of a complex FFT of N/2 points: 5·M·log2 M. The twist of a negacyclic transform joins its multiplications.
fn fft_flops(n: usize) -> f64 {
    let points = n as f64 / 2.0;
    5.0 * points * points.log2()
}

/// Cycles of the additions of a Goldilocks NTT: twiddles of the last six levels of each pass are shifts, but every
/// butterfly has an addition and a subtraction modulo p, of three operations each (sum, carry, correction).
fn goldilocks_cycles(n: usize) -> f64 {
    6.0 * butterflies(n) / LANES / SIMPLE_PER_CYCLE
}

/// A complex FFT of N/2 points.
pub fn fft(machine: &Machine, n: usize) -> Bound {
    Bound {
        seconds: machine.seconds_of_flops(fft_flops(n)),
        by: format!(
            "5·M·log2 M operations on f64 (M = {}), {FLOPS_PER_CYCLE} per cycle",
            n / 2
        ),
    }
}

/// An NTT over the Goldilocks prime.
pub fn goldilocks(machine: &Machine, n: usize) -> Bound {
    Bound {
        seconds: goldilocks_cycles(n) / machine.clock,
        by: format!(
            "the additions modulo p of {} butterflies, 6 vector operations for 8 of them, {SIMPLE_PER_CYCLE} per cycle; twiddles free",
            butterflies(n)
        ),
    }
}

/// An NTT modulo a prime, whose butterflies have a number of vector multiplications for `lanes` of them.
pub fn prime(machine: &Machine, n: usize, multiplications: f64, lanes: f64, what: &str) -> Bound {
    let cycles = butterflies(n) * multiplications / lanes / MULTIPLICATIONS_PER_CYCLE;
    Bound {
        seconds: cycles / machine.clock,
        by: format!(
            "{} butterflies, {multiplications} {what} for {lanes} of them, {MULTIPLICATIONS_PER_CYCLE} per cycle",
            butterflies(n)
        ),
    }
}

/// The DFT of 21845 = 5·17·257 points: by Rader a transform of p points is two of p - 1 and p - 1 products.
pub fn dft_21845(machine: &Machine) -> Bound {
    const LENGTH: usize = 21845;
    let products: f64 = [5usize, 17, 257]
        .into_iter()
        .map(|prime| {
            let n = prime - 1;
            // Of the butterflies of n points, n - 1 multiply by one.
            let transform = butterflies(n) - (n - 1) as f64;
            (LENGTH / prime) as f64 * (2.0 * transform + n as f64)
        })
        .sum();
    let cycles = products * 4.0 / (2.0 * LANES) / MULTIPLICATIONS_PER_CYCLE;
    Bound {
        seconds: cycles / machine.clock,
        by: format!(
            "{products} products modulo q that prime factors and Rader leave, 4 vector multiplications for 16 of them, \
             {MULTIPLICATIONS_PER_CYCLE} per cycle"
        ),
    }
}

/// Polynomials that one CMux by `rows` rows transforms, and products of a transformed digit with a column of the key.
fn polynomials(params: &StageParams, rows: usize) -> (f64, f64) {
    let columns = params.glwe_dimension + 1;
    ((rows + columns) as f64, (rows * columns) as f64)
}

/// Operations on f64 of such a CMux.
fn cmux_flops(params: &StageParams, rows: usize) -> f64 {
    let n = params.ring_degree;
    let (transforms, products) = polynomials(params, rows);
    // Four multiplications and four additions a complex multiply-add.
    transforms * fft_flops(n) + products * 8.0 * (n as f64 / 2.0)
}

/// The same of a blind rotation, or of one product with every sample of a key.
fn rotation_flops(params: &StageParams) -> f64 {
    params.lwe_dimension as f64 * cmux_flops(params, params.ggsw_rows())
}

/// Samples that are rotated together, and threads that do it.
#[derive(Clone, Copy)]
pub struct Load {
    /// Samples that stream the key together.
    pub batch: usize,
    /// Threads.
    pub threads: usize,
}

/// One sample on one thread.
pub const SINGLE: Load = Load {
    batch: 1,
    threads: 1,
};

/// The longer of arithmetic and reading the key.
fn longer(
    machine: &Machine,
    (arithmetic, operations): (f64, String),
    key_bytes: u64,
    load: Load,
) -> Bound {
    let arithmetic = arithmetic / load.threads as f64;
    let bandwidth = if load.threads == 1 {
        machine.read
    } else {
        machine.read_by_two
    };
    let reading = key_bytes as f64 / load.batch as f64 / bandwidth;
    let threads = if load.threads == 1 {
        String::new()
    } else {
        format!(" on {} threads", load.threads)
    };
    let (arithmetic_ms, reading_ms) = (1e3 * arithmetic, 1e3 * reading);
    Bound {
        seconds: arithmetic.max(reading),
        by: if arithmetic >= reading {
            format!("{operations}{threads}; reading the key would take {reading_ms:.1} ms")
        } else {
            format!("reading the key{threads}; {operations} would take {arithmetic_ms:.1} ms")
        },
    }
}

/// Blind rotation by f64 FFT.
pub fn fft_rotation(machine: &Machine, params: &ParamSet, key_bytes: u64, load: Load) -> Bound {
    longer(
        machine,
        floating(machine, rotation_flops(params)),
        key_bytes,
        load,
    )
}

/// Seconds of operations on f64, and what they are.
fn floating(machine: &Machine, flops: f64) -> (f64, String) {
    let text = format!(
        "{:.2}·10^9 operations on f64, {FLOPS_PER_CYCLE} per cycle",
        flops / 1e9
    );
    (machine.seconds_of_flops(flops), text)
}

/// One function of a sample at a set of wide functions, with as many bits as the message: for every bit an extraction and products by the
/// keys between rings, for every digit of the result a look-up and a refresh.
pub fn wopbs_function(machine: &Machine, params: &ParamSet) -> Bound {
    let wopbs = params.wopbs.expect("a set of wide functions");
    let bits = params.message_bits;
    let digits = wopbs.digits(bits).len() as f64;
    let circuit = &wopbs.circuit;
    let leaves = (1u64 << bits) as f64 / params.ring_degree as f64;
    // Half of the CMuxes choose between known polynomials, whose masks are 0.
    let look_up = leaves / 2.0
        * cmux_flops(
            circuit,
            circuit.body_gadget.map_or(0, |gadget| gadget.levels),
        )
        + (leaves / 2.0 - 1.0 + f64::from(params.ring_degree.trailing_zeros()))
            * cmux_flops(circuit, circuit.ggsw_rows());
    let of_bit = rotation_flops(&wopbs.extract)
        + circuit.gadget.levels as f64 * rotation_flops(&wopbs.switch);
    let of_digit = look_up + rotation_flops(&wopbs.refresh);
    // All digits are refreshed together.
    let read = u64::from(bits) * wopbs.extract.ggsw_list_bytes() + wopbs.refresh.ggsw_list_bytes();
    longer(
        machine,
        floating(machine, f64::from(bits) * of_bit + digits * of_digit),
        read,
        SINGLE,
    )
}

/// Exact blind rotation by f64 FFT of the halves of key words: twice the products, and twice the transforms back.
pub fn halves_rotation(machine: &Machine, params: &ParamSet, key_bytes: u64) -> Bound {
    let n = params.ring_degree;
    let (transforms, products) = polynomials(params, params.ggsw_rows());
    let columns = (params.glwe_dimension + 1) as f64;
    let step = (transforms + columns) * fft_flops(n) + 2.0 * products * 8.0 * (n as f64 / 2.0);
    let flops = params.lwe_dimension as f64 * step;
    longer(machine, floating(machine, flops), key_bytes, SINGLE)
}

/// Blind rotation by f64 FFT, then the key switch, which reads its key once.
pub fn bootstrap(machine: &Machine, params: &ParamSet, key_bytes: u64) -> Bound {
    let rotation = fft_rotation(machine, params, key_bytes, SINGLE);
    with_key_switch(machine, params, rotation)
}

/// The same by an unrolled key: half the steps, each with three times the products, whose sums are multiplied by powers of X.
pub fn unrolled_bootstrap(
    machine: &Machine,
    params: &ParamSet,
    key_bytes: u64,
    load: Load,
) -> Bound {
    let points = params.ring_degree as f64 / 2.0;
    let (transforms, products) = polynomials(params, params.ggsw_rows());
    let columns = (params.glwe_dimension + 1) as f64;
    let step =
        transforms * fft_flops(params.ring_degree) + 3.0 * (products + columns) * 8.0 * points;
    let flops = params.lwe_dimension.div_ceil(2) as f64 * step;
    let rotation = longer(machine, floating(machine, flops), key_bytes, load);
    with_key_switch(machine, params, rotation)
}

fn with_key_switch(machine: &Machine, params: &ParamSet, mut bound: Bound) -> Bound {
    let switching = params.key_switching_key_bytes() as f64 / machine.read;
    bound.seconds += switching;
    bound.by = format!(
        "{}; then {:.2} ms to read the key-switching key",
        bound.by,
        1e3 * switching
    );
    bound
}

/// Generation of the bootstrapping key: the transforms of a product with the secret key for every row, and those of the
/// row into the form that it is used in. Randomness is free here.
pub fn key_generation(machine: &Machine, params: &ParamSet, threads: usize) -> Bound {
    let n = params.ring_degree;
    let word_cycles = match params.modulus {
        // One prime below 2^50 holds a product of words of the torus with bits.
        ModulusKind::Torus32 => 3.0 * butterflies(n) / LANES / MULTIPLICATIONS_PER_CYCLE,
        ModulusKind::Goldilocks => goldilocks_cycles(n),
    };
    let rows = (params.lwe_dimension * params.ggsw_rows()) as f64;
    let columns = (params.glwe_dimension + 1) as f64;
    let row =
        columns * word_cycles / machine.clock + columns * machine.seconds_of_flops(fft_flops(n));
    Bound {
        seconds: rows * row / threads as f64,
        by: format!(
            "{columns} NTTs and {columns} FFTs for each of {rows} rows; randomness and rounding come on top"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroid_tfhe::params::{MESSAGE16, PAPER};

    const ZEN4: Machine = Machine {
        clock: 3.69e9,
        read: 32e9,
        read_by_two: 40e9,
    };

    fn near(bound: &Bound, seconds: f64) -> bool {
        (bound.seconds / seconds - 1.0).abs() < 0.05
    }

    #[test]
    fn transforms_of_16384_have_the_bounds_worked_out_by_hand() {
        assert!(near(&fft(&ZEN4, 16384), 9.0e-6));
        assert!(near(&prime(&ZEN4, 16384, 3.0, 8.0, ""), 11.6e-6));
        assert!(near(&dft_21845(&ZEN4), 16.5e-6));
    }

    #[test]
    fn a_wide_function_has_the_bound_worked_out_by_hand() {
        // 16 times 174.3·10^6 for an extraction and 3·5.1·10^6 for products between rings; 4 times 21.5·10^6 for a look-up
        // and 315.9·10^6 for a refresh.
        let bound = wopbs_function(&ZEN4, &MESSAGE16);
        assert!(near(&bound, 74.2e-3), "{}", bound.seconds);
    }

    #[test]
    fn the_longer_of_arithmetic_and_reading_bounds_a_rotation() {
        let bytes = 2_097_152_000;
        let single = fft_rotation(&ZEN4, &PAPER, bytes, SINGLE);
        assert!(near(&single, 104e-3), "{}", single.seconds);
        let slow_memory = Machine { read: 10e9, ..ZEN4 };
        let single = fft_rotation(&slow_memory, &PAPER, bytes, SINGLE);
        assert!(near(&single, 209.7e-3) && single.by.starts_with("reading"));
        let batch = Load {
            batch: 8,
            threads: 1,
        };
        assert!(near(
            &fft_rotation(&slow_memory, &PAPER, bytes, batch),
            104e-3
        ));
    }
}
