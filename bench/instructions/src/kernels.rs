//! The kernels that are counted, each prepared outside of the count and run once inside it.

use toroid_ring::dft::DftPlan;
use toroid_ring::fft::{AlignedVec, FftPlan, KeyFormat};
use toroid_ring::goldilocks::P;
use toroid_ring::ntt::NttPlan;
use toroid_ring::prime::ntt_primes;
use toroid_ring::prime_ntt::{Ntt32Plan, Ntt50Plan, Ntt63Plan};
use toroid_ring::simd::SimdLevel;
use toroid_task::{CancelToken, Progress};
use toroid_tfhe::arithmetic::{Arithmetic, Fft, Ntt};
use toroid_tfhe::bootstrap::{BootstrappingKey, Run};
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::glwe;
use toroid_tfhe::key_switch::Switch;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::lwe::words_from_bytes;
use toroid_tfhe::modulus::{Goldilocks, Modulus};
use toroid_tfhe::params::{ParamSet, TINY, TINY32};
use toroid_tfhe::random::Csprng;

/// What counting can fail with.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// One kernel, ready to run.
type Work = Box<dyn FnMut() -> Result<(), Error>>;

/// A kernel's name and its preparation.
pub struct Kernel {
    pub name: &'static str,
    prepare: fn() -> Result<Work, Error>,
}

impl Kernel {
    /// Runs the kernel twice, the second time in [`counted`]: what happens only once in a process is done by then.
    pub fn run(&self) -> Result<(), Error> {
        let mut work = (self.prepare)()?;
        work()?;
        counted(&mut work)
    }
}

/// The function that Callgrind counts, with all that it calls.
#[inline(never)]
fn counted(work: &mut Work) -> Result<(), Error> {
    work()
}

/// Every kernel.
pub static ALL: &[Kernel] = &[
    Kernel {
        name: "ntt-2048",
        prepare: || ntt::<2048>(NttPlan::forward),
    },
    Kernel {
        name: "ntt-16384",
        prepare: || ntt::<16384>(NttPlan::forward),
    },
    Kernel {
        name: "intt-16384",
        prepare: || ntt::<16384>(NttPlan::inverse),
    },
    Kernel {
        name: "ntt31-16384",
        prepare: || {
            let q = prime(30)?;
            let plan = Ntt32Plan::new(N, q)?;
            let mut a = words(N, q);
            Ok(Box::new(move || {
                plan.forward(bytemuck::cast_slice_mut(&mut a));
                Ok(())
            }))
        },
    },
    Kernel {
        name: "ntt50-16384",
        prepare: || ntt50(Ntt50Plan::forward),
    },
    Kernel {
        name: "intt50-16384",
        prepare: || ntt50(Ntt50Plan::inverse),
    },
    Kernel {
        name: "ntt62-16384",
        prepare: || {
            let q = prime(62)?;
            let plan = Ntt63Plan::new(N, q)?;
            let mut a = words(N, q);
            Ok(Box::new(move || {
                plan.forward(bytemuck::cast_slice_mut(&mut a));
                Ok(())
            }))
        },
    },
    Kernel {
        name: "fft-16384",
        prepare: || {
            let plan = FftPlan::new(N)?;
            let (coefficients, mut spectrum) = (numbers(N), AlignedVec::zeroed(N));
            Ok(Box::new(move || {
                plan.forward(&coefficients, &mut spectrum);
                Ok(())
            }))
        },
    },
    Kernel {
        name: "ifft-16384",
        prepare: || {
            let plan = FftPlan::new(N)?;
            let (mut spectrum, mut coefficients) = (numbers(N), AlignedVec::zeroed(N));
            Ok(Box::new(move || {
                plan.inverse(&mut spectrum, &mut coefficients);
                Ok(())
            }))
        },
    },
    Kernel {
        name: "fft-product-16384",
        prepare: || {
            let plan = FftPlan::new(N)?;
            let coefficients = numbers(N);
            let (mut scratch, mut sums) = (AlignedVec::zeroed(N), AlignedVec::zeroed(2 * N));
            let format = KeyFormat::Fixed;
            let mut key = AlignedVec::zeroed(format.row_bytes(N, 2) / 8);
            plan.pack_key(format, &numbers(2 * N), bytemuck::cast_slice_mut(&mut key));
            Ok(Box::new(move || {
                let key = bytemuck::cast_slice(&key);
                plan.forward_mul_add::<true>(
                    &coefficients[..],
                    &mut scratch,
                    format,
                    key,
                    &mut sums,
                );
                Ok(())
            }))
        },
    },
    Kernel {
        name: "dft-21845",
        prepare: || dft(DftPlan::forward),
    },
    Kernel {
        name: "idft-21845",
        prepare: || dft(DftPlan::inverse),
    },
    Kernel {
        name: "blind-rotation-fft",
        prepare: || blind_rotation::<Fft>(false),
    },
    Kernel {
        name: "blind-rotation-unrolled",
        prepare: || blind_rotation::<Fft>(true),
    },
    Kernel {
        name: "blind-rotation-ntt",
        prepare: || blind_rotation::<Ntt>(false),
    },
    Kernel {
        name: "key-switch",
        prepare: || key_switch(1),
    },
    Kernel {
        name: "key-switch-8",
        prepare: || key_switch(8),
    },
    Kernel {
        name: "encryption",
        prepare: || encryption(&TINY, OURS),
    },
    Kernel {
        name: "encryption-other",
        prepare: || encryption(&TINY, OTHERS),
    },
    Kernel {
        name: "encryption-32",
        prepare: || encryption(&TINY32, OURS),
    },
    Kernel {
        name: "encryption-32-other",
        prepare: || encryption(&TINY32, OTHERS),
    },
    Kernel {
        name: "decryption",
        prepare: || decryption(&TINY, OURS),
    },
    Kernel {
        name: "decryption-other",
        prepare: || decryption(&TINY, OTHERS),
    },
    Kernel {
        name: "decryption-32",
        prepare: || decryption(&TINY32, OURS),
    },
    Kernel {
        name: "decryption-32-other",
        prepare: || decryption(&TINY32, OTHERS),
    },
];

/// Kernels that differ in their secrets alone, so that they must take the same number of instructions.
pub const SAME: [[&str; 2]; 4] = [
    ["encryption", "encryption-other"],
    ["encryption-32", "encryption-32-other"],
    ["decryption", "decryption-other"],
    ["decryption-32", "decryption-32-other"],
];

/// Seed of a client key and of the noise under it, and a message.
type Secrets = (u8, i64);

const OURS: Secrets = (7, 1);
const OTHERS: Secrets = (8, 6);

fn encryption(params: &ParamSet, (seed, message): Secrets) -> Result<Work, Error> {
    let (client, mut rng) = client(params, seed);
    let encoding = encoding(params)?;
    Ok(Box::new(move || {
        client.encrypt_sample(message, encoding, &mut rng)?;
        Ok(())
    }))
}

fn decryption(params: &ParamSet, (seed, message): Secrets) -> Result<Work, Error> {
    let (client, mut rng) = client(params, seed);
    let encoding = encoding(params)?;
    let sample = client.encrypt_sample(message, encoding, &mut rng)?;
    Ok(Box::new(move || {
        let found = client.decrypt_sample(&sample, encoding)?;
        match found == message {
            true => Ok(()),
            false => Err(format!("{message} decrypts to {found}").into()),
        }
    }))
}

/// Ring degree of the transforms.
const N: usize = 16384;

/// Some numbers, the same in every process.
fn numbers(n: usize) -> AlignedVec {
    let values: Vec<f64> = (0..n).map(|i| ((i * 37) % 64) as f64 - 31.5).collect();
    AlignedVec::from_slice(&values)
}

/// Some words below `q`, in room for `n` words of 64 bits on a line of the cache; of words of 32 bits, twice as many, of
/// which the second half is 0.
fn words(n: usize, q: u64) -> AlignedVec {
    let word = |i: usize| (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % q;
    let mut words = AlignedVec::zeroed(n);
    if q < 1 << 32 {
        words = AlignedVec::zeroed(n.div_ceil(2));
        let out: &mut [u32] = bytemuck::cast_slice_mut(&mut words);
        for (i, out) in out[..n].iter_mut().enumerate() {
            *out = word(i) as u32;
        }
    } else {
        let out: &mut [u64] = bytemuck::cast_slice_mut(&mut words);
        for (i, out) in out.iter_mut().enumerate() {
            *out = word(i);
        }
    }
    words
}

/// The largest prime of some bits that degree N allows.
fn prime(bits: u32) -> Result<u64, Error> {
    ntt_primes(N, 1 << bits)
        .next()
        .ok_or_else(|| format!("no prime of {bits} bits").into())
}

fn ntt<const DEGREE: usize>(transform: fn(&NttPlan, &mut [u64])) -> Result<Work, Error> {
    let plan = NttPlan::new(DEGREE)?;
    let mut a = words(DEGREE, P);
    Ok(Box::new(move || {
        transform(&plan, bytemuck::cast_slice_mut(&mut a));
        Ok(())
    }))
}

fn ntt50(transform: fn(&Ntt50Plan, &mut [u64])) -> Result<Work, Error> {
    let q = prime(50)?;
    let plan = Ntt50Plan::new(N, q)?;
    let mut a = words(N, q);
    Ok(Box::new(move || {
        transform(&plan, bytemuck::cast_slice_mut(&mut a));
        Ok(())
    }))
}

fn dft(transform: fn(&DftPlan, &mut [u32], &mut [u32])) -> Result<Work, Error> {
    const LENGTH: usize = 21845;
    // 1 modulo 256·21845, as Rader's convolutions need.
    const PRIME: u32 = 2_141_858_561;
    let plan = DftPlan::new(LENGTH, PRIME)?;
    let mut a = words(LENGTH, u64::from(PRIME));
    let mut scratch = AlignedVec::zeroed(plan.scratch_len().div_ceil(2));
    Ok(Box::new(move || {
        let data: &mut [u32] = bytemuck::cast_slice_mut(&mut a);
        transform(
            &plan,
            &mut data[..LENGTH],
            bytemuck::cast_slice_mut(&mut scratch),
        );
        Ok(())
    }))
}

/// A client key that is the same in every process.
fn client(params: &ParamSet, seed: u8) -> (ClientKey, Csprng) {
    let mut rng = Csprng::from_seed([seed; 32]);
    (ClientKey::generate(params, &mut rng), rng)
}

fn encoding(params: &ParamSet) -> Result<Encoding, Error> {
    Ok(Encoding::new(params.message_bits, false)?)
}

/// A blind rotation of the set `tiny`.
fn blind_rotation<A: Arithmetic<Goldilocks>>(unrolled: bool) -> Result<Work, Error> {
    let (client, mut rng) = client(&TINY, OURS.0);
    let progress = Progress::none();
    let simd = SimdLevel::best();
    let key: BootstrappingKey<Goldilocks, A> = if unrolled {
        client.loaded_unrolled_bootstrapping_key(simd, &mut rng, &progress)?
    } else {
        client.loaded_bootstrapping_key(simd, &mut rng, &progress)?
    };
    let encoding = encoding(&TINY)?;
    let table: Vec<u64> = encoding
        .messages()
        .map(|message| Goldilocks::encode(message, encoding.bits() + 1))
        .collect();
    let test_vector = glwe::test_vector::<Goldilocks>(&TINY, encoding, &table)?;
    let bytes = client.encrypt_sample(1, encoding, &mut rng)?;
    let sample = words_from_bytes::<Goldilocks>("a sample", &TINY, &bytes, TINY.lwe_words())?;
    let mut out = vec![0u64; TINY.extracted_dimension() + 1];
    Ok(Box::new(move || {
        Ok(key.blind_rotate(&test_vector, &sample, &mut out, &CancelToken::new())?)
    }))
}

/// Key switches of some samples of the set `tiny` together.
fn key_switch(count: usize) -> Result<Work, Error> {
    let (client, mut rng) = client(&TINY, OURS.0);
    let simd = SimdLevel::best();
    let progress = Progress::none();
    let key = client.loaded_key_switching_key::<Goldilocks>(simd, &mut rng, &progress)?;
    let words = TINY.extracted_dimension() + 1;
    let mut extracted = vec![0u64; count * words];
    rng.fill_uniform::<Goldilocks>(&mut extracted);
    let mut out = vec![0u64; count * TINY.lwe_words()];
    Ok(Box::new(move || {
        let mut switches: Vec<_> = extracted
            .chunks_exact(words)
            .zip(out.chunks_exact_mut(TINY.lwe_words()))
            .map(|(extracted, out)| Switch { extracted, out })
            .collect();
        Ok(key.switch_all(&mut switches, Run::with_threads(1))?)
    }))
}
