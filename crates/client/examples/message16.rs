//! 16-bit functions of an array of encrypted numbers, on a drive in this process:
//! `cargo run --release -p toroid-client --example message16 [NUMBERS]`.
//!
//! Every number is written to the drive in its turn. The drive reads its 16 bits once for two functions, the root of
//! `examples/isqrt16.tasm` and the S-box of `examples/sbox16.tasm`; the image of the number comes back, and the roots add up on
//! the drive, whose sum a second program returns at the end.

use std::io::Write;
use std::time::Instant;

use toroid_client::prelude::*;

/// The test vectors have the registers that the two examples give them.
const PROGRAM: &str = "
    .reg x     = cow:1
    .reg root  = cor:2
    .reg total = cor:3
    .reg isqrt = tv:1
    .reg sbox  = tv:2
        bootstrap [isqrt, sbox], [root, x], x
        homadd    total, root
        return    x
";

/// Any write to x returns the sum of the roots.
const TOTAL: &str = "
    .reg x     = cow:1
    .reg total = cor:3
        return total
";

/// So that the sum of all roots is a message.
const MOST_NUMBERS: usize = 256;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = match std::env::args().nth(1) {
        Some(count) => count.parse::<usize>()?,
        None => 6,
    };
    if !(1..=MOST_NUMBERS).contains(&count) {
        return Err(format!("{count} numbers, 1 to {MOST_NUMBERS} expected").into());
    }

    let started = Instant::now();
    let mut rng = Csprng::from_os()?;
    let client = ClientKey::generate(&MESSAGE16, &mut rng);
    let drive = Drive::temporary()?;
    drive.put_keys(&client)?;
    println!(
        "keys on the drive: {:.2} s",
        started.elapsed().as_secs_f64()
    );

    let mut tables = Vec::new();
    for text in [
        include_str!("../../../examples/isqrt16.tasm"),
        include_str!("../../../examples/sbox16.tasm"),
    ] {
        for vector in &drive.install(&MESSAGE16, text)?.test_vectors {
            tables.push(vector.table(MESSAGE16.message_bits)?);
        }
    }
    let [isqrt, sbox] = tables.as_slice() else {
        return Err("one function a file expected".into());
    };
    let program = drive.install(&MESSAGE16, PROGRAM)?;
    let encoding = Encoding::new(MESSAGE16.message_bits, false)?;
    let zero = client.encrypt_with(encoding, 0)?;
    drive.complete(drive.session().put_sample("cor:0:3".parse()?, &zero))?;

    let started = Instant::now();
    let mut sum = 0;
    for index in 1..=count {
        let number = rng.next_u64() as u16;
        let sample = client.encrypt_with(encoding, number.into())?;
        let begun = Instant::now();
        let outputs = drive.call(&program, &[("x", &sample)])?;
        let took = begun.elapsed();
        let image = client.decrypt(&outputs["x"])?;
        println!(
            "{index:>3} of {count}: {number:>5} -> {image:>5}, {:.3} s for two functions, failure probability 2^{:.1}",
            took.as_secs_f64(),
            outputs["x"].log2_failure()
        );
        std::io::stdout().flush()?;
        let expected = sbox[usize::from(number)];
        if image != expected {
            return Err(format!("expected {expected}").into());
        }
        sum += isqrt[usize::from(number)];
    }
    let seconds = started.elapsed().as_secs_f64();

    let total = &drive.run(TOTAL, &[("x", &zero)])?["total"];
    let found = client.decrypt(total)?;
    println!(
        "sum of the roots: {found}, failure probability 2^{:.1}",
        total.log2_failure()
    );
    println!(
        "{count} numbers in {seconds:.2} s, {:.3} s a function",
        seconds / (2 * count) as f64
    );
    if found != sum {
        return Err(format!("expected {sum}").into());
    }
    Ok(())
}
