//! Programs on columns of a named ring, from a client key to numbers again.

#![allow(clippy::unwrap_used)]

use toroid_rns::batch::{Batch, Step, Turns, key_bytes, write_keys};
use toroid_rns::ring_set::{RingSet, TINY_RING};
use toroid_rns::stored::{Layout, Statement, StoredColumn};
use toroid_rns::table::Table;
use toroid_rns::{Ciphertext, SecretKey};
use toroid_task::{CancelToken, Cancelled, Progress};
use toroid_tfhe::ClientKey;
use toroid_tfhe::params::TINY_WOPBS;
use toroid_tfhe::random::Csprng;

const SET: &RingSet = &TINY_RING;

/// At once, until cancelled.
struct AtOnce(CancelToken);

impl Turns for AtOnce {
    fn turn(&self, _: u64, work: &mut (dyn FnMut() + Send)) -> Result<(), Cancelled> {
        self.0.check()?;
        work();
        Ok(())
    }
}

fn encrypt(secret: &SecretKey, messages: &[u32], rng: &mut Csprng) -> StoredColumn {
    let place = (Layout::plain(4), SET.seeded_width);
    StoredColumn::encrypt_in(secret, place, messages, rng).unwrap()
}

fn store(value: &Ciphertext, secret: &SecretKey, rows: usize) -> StoredColumn {
    let place = (Layout::plain(4), SET.computed_width);
    let statement = Statement {
        log2_variance: Some(-30.0),
        log2_failure: None,
    };
    StoredColumn::of_ciphertext_in(value, place, rows, *secret.tag(), statement).unwrap()
}

#[test]
fn programs_on_columns_give_what_an_interpreter_gives() {
    let mut rng = Csprng::from_seed([19; 32]);
    let client = ClientKey::generate(&TINY_WOPBS, &mut rng);
    let secret = SecretKey::derive(SET, &client).unwrap();
    // The same client key has the same secrets, another has others.
    assert_eq!(SecretKey::derive(SET, &client).unwrap().tag(), secret.tag());
    let other = ClientKey::generate(&TINY_WOPBS, &mut rng);
    let other = SecretKey::derive(SET, &other).unwrap();
    assert_ne!(other.tag(), secret.tag());

    let file = write_keys(Vec::new(), SET, &secret, &mut rng, &Progress::none()).unwrap();
    assert_eq!(file.len() as u64, key_bytes(SET).unwrap());
    let batch = Batch::read_from(file.as_slice(), &Progress::none()).unwrap();
    assert_eq!((batch.set(), batch.tag()), (SET, secret.tag()));
    assert!(Batch::read_from(&file[..file.len() - 9], &Progress::none()).is_err());

    let rows = 200;
    let x: Vec<u32> = (0..rows).map(|row| row * 7 % 16).collect();
    let y: Vec<u32> = (0..rows).map(|row| row * row % 16).collect();
    let columns = [&x, &y].map(|messages| encrypt(&secret, messages, &mut rng));
    let f = |m: u32| (m * m + 3) % 16;
    let g = |m: u32| 15 - m;
    let table = |f: &dyn Fn(u32) -> u32| Table::new(4, 4, (0..16).map(f).collect()).unwrap();
    // f(x - y + 5) + 2·g(x - y + 5), then f of y and that.
    let steps = [
        Step::Input(0),
        Step::Input(1),
        Step::Sub(0, 1),
        Step::AddConstant(2, 5, 4),
        Step::Tables(3, vec![table(&f), table(&g)]),
        Step::Multiply(5, 2),
        Step::Add(4, 6),
    ];
    let turns = AtOnce(CancelToken::new());
    let inputs = [&columns[0], &columns[1]];
    let value = batch.run(&inputs, &steps, 7, &turns).unwrap();
    let stored = store(&value, &secret, rows as usize);
    let d = |row: usize| (x[row] + 16 - y[row] + 5) % 16;
    let expected = |row: usize| (f(d(row)) + 2 * g(d(row))) % 16;
    let expected: Vec<u32> = (0..rows as usize).map(expected).collect();
    assert_eq!(stored.decrypt(&secret).unwrap(), expected);
    // What was stored is an input again.
    let bytes = stored.to_bytes();
    let computed = StoredColumn::computed_bytes(SET.params(), SET.computed_width, rows as usize);
    assert_eq!(bytes.len(), computed);
    let stored = StoredColumn::from_bytes(&bytes).unwrap();
    let again = [Step::Input(0), Step::Tables(0, vec![table(&f)])];
    let value = batch.run(&[&stored], &again, 1, &turns).unwrap();
    let expected: Vec<u32> = expected.into_iter().map(f).collect();
    let found = store(&value, &secret, rows as usize).decrypt(&secret);
    assert_eq!(found.unwrap(), expected);

    // What is no program, other keys, and the end.
    let run = |steps: &[Step], input: &StoredColumn, output| {
        let error = batch.run(&[input], steps, output, &turns).unwrap_err();
        error.to_string()
    };
    assert!(run(&[Step::Input(1)], &columns[0], 0).contains("reads input 1"));
    assert!(run(&[Step::Input(0)], &columns[0], 1).contains("makes no value 1"));
    assert!(run(&[Step::Add(0, 1)], &columns[0], 0).contains("value 0"));
    let wrong = vec![Table::new(3, 4, vec![0; 8]).unwrap()];
    let steps = [Step::Input(0), Step::Tables(0, wrong)];
    assert!(run(&steps, &columns[0], 1).contains("8 values"));
    let theirs = encrypt(&other, &x, &mut rng);
    assert!(run(&[Step::Input(0)], &theirs, 0).contains("another key"));
    turns.0.cancel();
    let stopped = batch.run(&[&stored], &again, 1, &turns).unwrap_err();
    assert!(stopped.to_string().contains("cancelled"), "{stopped}");
}
