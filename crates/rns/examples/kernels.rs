//! Times of the operations at N = 65536, on one thread, beside what a model of this machine's kernels gives:
//! `cargo run --release -p toroid-rns --example kernels`.
//!
//! Its parameters have no stated security. The model counts transforms, products and base conversions at the speed of each
//! alone.

use std::time::Instant;

use toroid_rns::automorphism::rotation_exponent;
use toroid_rns::{
    Automorphism, Basis, Ciphertext, Context, EvaluationKeys, Form, KeyRequest, Plaintext,
    RnsError, RnsParams, RnsPoly, SecretKey,
};
use toroid_task::Progress;
use toroid_tfhe::random::Csprng;

const DEGREE: usize = 1 << 16;
const LIMBS: usize = 25;
const DIGIT: usize = 7;

/// Milliseconds that this thread was on a core, so that other processes count little; of the day where Unix does not tell.
fn clock(start: Instant) -> f64 {
    #[cfg(unix)]
    {
        let _ = start;
        let on_core = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        on_core.tv_sec as f64 * 1e3 + on_core.tv_nsec as f64 / 1e6
    }
    #[cfg(not(unix))]
    {
        start.elapsed().as_secs_f64() * 1e3
    }
}

/// The shortest of some runs, in milliseconds.
fn time<T>(mut run: impl FnMut() -> T) -> f64 {
    let one = |_| {
        let start = Instant::now();
        let before = clock(start);
        std::hint::black_box(run());
        clock(start) - before
    };
    (0..7).map(one).fold(f64::INFINITY, f64::min)
}

fn line(what: &str, limbs: usize, ms: f64, model: Option<f64>) {
    let model = model.map_or_else(String::new, |model| format!("{model:.1}"));
    println!("{what:<34} {limbs:>5} {ms:>10.3} {model:>8}");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let context = Context::new(RnsParams::uniform(DEGREE, LIMBS, DIGIT)?)?;
    let mut rng = Csprng::from_os()?;
    let secret = SecretKey::generate(&context, &mut rng);
    let request = KeyRequest {
        relinearization: Some(LIMBS),
        rotations: vec![(1, LIMBS)],
        mod_raise: true,
        ..KeyRequest::default()
    };
    let start = Instant::now();
    let keys = EvaluationKeys::generate(&secret, &request, &mut rng, &Progress::none())?;
    println!(
        "N = {DEGREE}, log2 QP = {:.0}, {}; keys of {} MiB in {:.1} s",
        context.params().log2_qp(),
        context.simd(),
        keys.memory() >> 20,
        start.elapsed().as_secs_f64()
    );
    println!(
        "{:<34} {:>5} {:>10} {:>8}",
        "operation", "limbs", "ms", "model"
    );

    let mut poly = RnsPoly::zero(&context, Basis::chain(1), Form::Coefficients);
    let forward = time(|| {
        let mut values = poly.clone();
        values.to_values();
        values
    });
    line("copy and NTT", 1, forward, None);
    poly.to_values();
    let inverse = time(|| {
        let mut coefficients = poly.clone();
        coefficients.to_coefficients();
        coefficients
    });
    line("copy, INTT and scaling", 1, inverse, None);
    let other = poly.clone();
    line("product", 1, time(|| poly.mul_assign(&other)), None);
    let automorphism = Automorphism::new(&context, rotation_exponent(DEGREE, 1));
    line(
        "automorphism",
        1,
        time(|| poly.automorphism(&automorphism)),
        None,
    );

    let fresh = |limbs: usize, rng: &mut Csprng| -> Result<Ciphertext, RnsError> {
        let zero = RnsPoly::zero(&context, Basis::chain(limbs), Form::Values);
        secret.encrypt(&Plaintext::new(zero, 1.0), rng)
    };
    for (limbs, model) in [(25, 31.0), (12, 12.0), (5, 5.0)] {
        let x = fresh(limbs, &mut rng)?;
        let hoist = time(|| keys.hoist(&x).is_ok());
        let hoisted = keys.hoist(&x)?;
        let rotate = time(|| hoisted.rotate(1).is_ok());
        line("digits, shared by rotations", limbs, hoist, None);
        line("rotation of shared digits", limbs, rotate, None);
        line(
            "rotation",
            limbs,
            time(|| keys.rotate(&x, 1).is_ok()),
            Some(model),
        );
        line(
            "product before relinearization",
            limbs,
            time(|| x.tensor(&x).is_ok()),
            None,
        );
        line("product", limbs, time(|| keys.mul(&x, &x).is_ok()), None);
        let rescale = time(|| x.clone().rescale(1).is_ok());
        line("copy and rescaling", limbs, rescale, None);
    }
    let x = fresh(1, &mut rng)?;
    line(
        "mod-raise",
        LIMBS,
        time(|| keys.mod_raise(&x).is_ok()),
        None,
    );
    Ok(())
}
