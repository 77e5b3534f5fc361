//! A product in the ring of BGV, Z_q\[x\]/Φ_m(x), whose transforms the simulated core `ntt_rader` computes:
//! `cargo run --release -p toroid-cores --example cyclotomic_product -- [M [Q]]`.
//!
//! The values of both factors at the m-th roots of unity come from two forward transforms of the core, their products go
//! back by an inverse one, and the remainder modulo Φ_m is left to the library: `Plan::multiply`. The result is compared with the ring
//! product of the library and, up to m = 1285, with a product by the definition.

use std::process::ExitCode;
use std::time::Instant;

use toroid_cores::Values;
use toroid_cores::ntt_rader::least_modulus;
use toroid_cores::ntt_rader::{CORE, Product, plan};
use toroid_ring::cyclotomic::CyclotomicRing;
use toroid_sim::model::{Model, Options};
use toroid_sim::random::Random;

type Error = Box<dyn std::error::Error>;

/// Lengths up to which the product is computed by its definition, too.
const NAIVE: usize = 1285;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let m = arguments.next().transpose()?.unwrap_or(85);
    let q = match arguments.next().transpose()? {
        Some(q) => q,
        None => least_modulus(m)?,
    };
    let values = Values::new(&CORE, [("M", m), ("Q", q)])?;
    let plan = plan(&values)?;
    let ring = CyclotomicRing::with_plan(plan.dft().clone())?;
    let mut random = Random::new(m ^ q);
    let mut element = || -> Vec<u32> {
        let word = |_| random.below(q) as u32;
        (0..ring.degree()).map(word).collect()
    };
    let (a, b) = (element(), element());

    let start = Instant::now();
    let model = Model::build(&CORE.configure(&values)?.design()?, &Options::default())?;
    let built = start.elapsed().as_secs_f64();
    let mut simulation = model.start()?;
    simulation.reset(4)?;
    let Product {
        words: product,
        cycles,
    } = plan.multiply(&mut simulation, &a, &b)?;
    if product != ring.mul(&a, &b) {
        return Err("the product differs from the library's".into());
    }
    let mut compared = "the library's".to_owned();
    if ring.index() <= NAIVE {
        if product != naive(&a, &b, ring.polynomial(), q) {
            return Err("the product differs from that by the definition".into());
        }
        compared += " and that by the definition";
    }
    println!(
        "m = {m}, q = {q}: a product modulo Phi_m, of degree {}, by three transforms on the core: {cycles} cycles, equal to {compared}",
        ring.degree()
    );
    println!(
        "model made in {built:.1} s, simulated in {:.1} s",
        start.elapsed().as_secs_f64() - built
    );
    Ok(())
}

/// Of two elements, by the schoolbook and long division.
fn naive(a: &[u32], b: &[u32], divisor: &[i64], q: u64) -> Vec<u32> {
    let mut sums = vec![0u64; a.len() + b.len() - 1];
    for (i, &a) in a.iter().enumerate() {
        for (j, &b) in b.iter().enumerate() {
            sums[i + j] = (sums[i + j] + u64::from(a) * u64::from(b)) % q;
        }
    }
    let degree = divisor.len() - 1;
    for top in (degree..sums.len()).rev() {
        let quotient = sums[top];
        for (i, &c) in divisor.iter().enumerate() {
            let c = c.rem_euclid(q as i64) as u64;
            let place = &mut sums[top - degree + i];
            *place = (*place + (q - quotient * c % q)) % q;
        }
    }
    sums[..degree].iter().map(|&word| word as u32).collect()
}
