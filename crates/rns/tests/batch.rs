//! Programs on columns of a named ring, from a client key to numbers again.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::sync::Arc;

use toroid_rns::batch::{Batch, Step, Turns, key_bytes, write_keys};
use toroid_rns::modulus_switch::{body_variance, pair_variance};
use toroid_rns::ring_set::{RingSet, TINY_RING, TINY_RING9};
use toroid_rns::stored::{Layout, Statement, StoredColumn};
use toroid_rns::table::Table;
use toroid_rns::{Ciphertext, Context, EvaluationKeys, KeyRequest, RnsParams, SecretKey};
use toroid_task::{CancelToken, Cancelled, Progress};
use toroid_tfhe::ClientKey;
use toroid_tfhe::params::TINY_WOPBS;
use toroid_tfhe::random::Csprng;

const SET: &RingSet = &TINY_RING;

/// At once, until cancelled.
struct AtOnce(CancelToken);

/// At once, until so many turns are done.
struct Until(Cell<u32>);

impl Turns for Until {
    fn turn(&self, _: u64, work: &mut (dyn FnMut() + Send)) -> Result<(), Cancelled> {
        let left = self.0.get().checked_sub(1).ok_or(Cancelled)?;
        self.0.set(left);
        work();
        Ok(())
    }
}

impl Turns for AtOnce {
    fn turn(&self, _: u64, work: &mut (dyn FnMut() + Send)) -> Result<(), Cancelled> {
        self.0.check()?;
        work();
        Ok(())
    }
}

fn encrypt(set: &RingSet, secret: &SecretKey, messages: &[u32], rng: &mut Csprng) -> StoredColumn {
    let place = (Layout::plain(set.bits()), set.seeded_width);
    StoredColumn::encrypt_in(secret, place, messages, rng).unwrap()
}

fn store(set: &RingSet, value: &Ciphertext, secret: &SecretKey, rows: usize) -> StoredColumn {
    let place = (Layout::plain(set.bits()), set.computed_width);
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
    let columns = [&x, &y].map(|messages| encrypt(SET, &secret, messages, &mut rng));
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
    let stored = store(SET, &value, &secret, rows as usize);
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
    let found = store(SET, &value, &secret, rows as usize).decrypt(&secret);
    assert_eq!(found.unwrap(), expected);

    // Functions and a constant in some rows alone: the others have 0, or what they had.
    let kept: Vec<bool> = (0..SET.rows()).map(|row| row % 3 == 1).collect();
    let kept: Arc<[bool]> = kept.into();
    let in_rows = |step: Step| Step::InRows(Arc::clone(&kept), Box::new(step));
    let steps = [
        Step::Input(0),
        in_rows(Step::Tables(0, vec![table(&f), table(&g)])),
        Step::Add(1, 2),
        in_rows(Step::AddConstant(3, 3, 4)),
    ];
    let value = batch.run(&[&columns[0]], &steps, 4, &turns).unwrap();
    let found = store(SET, &value, &secret, rows as usize).decrypt(&secret);
    let expected = x.iter().zip(&*kept).map(|(&x, &kept)| match kept {
        true => (f(x) + g(x) + 3) % 16,
        false => 0,
    });
    assert_eq!(found.unwrap(), expected.collect::<Vec<_>>());

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
    let of_two = [Step::Input(0), Step::TablesOfTwo([0, 0], vec![table(&f)])];
    assert!(run(&of_two, &columns[0], 1).contains("tiny-ring has none"));
    let no_rows = |step: Step| {
        [
            Step::Input(0),
            Step::InRows(Arc::new([true]), Box::new(step)),
        ]
    };
    let step = Step::Tables(0, vec![table(&f)]);
    assert!(run(&no_rows(step), &columns[0], 1).contains("among 1 rows, not 256"));
    let step = in_rows(Step::Multiply(0, 2));
    assert!(run(&[Step::Input(0), step], &columns[0], 1).contains("none of tables"));
    let theirs = encrypt(SET, &other, &x, &mut rng);
    assert!(run(&[Step::Input(0)], &theirs, 0).contains("another key"));
    turns.0.cancel();
    let stopped = batch.run(&[&stored], &again, 1, &turns).unwrap_err();
    assert!(stopped.to_string().contains("cancelled"), "{stopped}");
}

/// A set that loses a prime or gets another keeps its name and number, so that files of before are refused by their parameters.
#[test]
fn keys_and_columns_of_another_version_of_a_ring_are_refused() {
    let mut rng = Csprng::from_seed([23; 32]);
    let client = ClientKey::generate(&TINY_WOPBS, &mut rng);
    let secret = SecretKey::derive(SET, &client).unwrap();
    let file = write_keys(Vec::new(), SET, &secret, &mut rng, &Progress::none()).unwrap();
    let batch = Batch::read_from(file.as_slice(), &Progress::none()).unwrap();

    let mut params: RnsParams = SET.params().clone();
    params.chain.pop();
    let other = SecretKey::generate(&Context::new(params).unwrap(), &mut rng);
    let request = KeyRequest {
        conjugation: Some(1),
        ..KeyRequest::default()
    };
    let none = Progress::none();
    let keys = EvaluationKeys::generate_to(Vec::new(), &other, &request, &mut rng, &none).unwrap();
    let error = Batch::read_from(keys.as_slice(), &none).err().unwrap();
    let error = error.to_string();
    assert!(error.contains("ring evaluation keys"), "{error}");
    assert!(error.contains("make the keys again"), "{error}");

    let column = encrypt(SET, &other, &[1, 2, 3], &mut rng);
    let column = StoredColumn::from_bytes(&column.to_bytes()).unwrap();
    let turns = AtOnce(CancelToken::new());
    let error = batch.run(&[&column], &[Step::Input(0)], 0, &turns);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("tiny-ring in this version"), "{error}");
    assert!(error.contains("encrypt the column again"), "{error}");
}

/// Tables in two passes: several of one column, of a pair of columns in one message, and of a result that was stored.
#[test]
fn wide_tables_on_columns_give_what_an_interpreter_gives() {
    let set = &TINY_RING9;
    let mut rng = Csprng::from_seed([29; 32]);
    let client = ClientKey::generate(&TINY_WOPBS, &mut rng);
    let secret = SecretKey::derive(set, &client).unwrap();
    let file = write_keys(Vec::new(), set, &secret, &mut rng, &Progress::none()).unwrap();
    let batch = Batch::read_from(file.as_slice(), &Progress::none()).unwrap();
    assert_eq!(batch.set(), set);
    let rows = set.rows();
    let all: Vec<u32> = (0..rows as u32).map(|row| (2 * row + 1) % 512).collect();
    let (x, y): (Vec<u32>, Vec<u32>) = (0..rows as u32)
        .map(|row| (row % 32, row * row % 16))
        .unzip();
    let columns = [&all, &x, &y].map(|messages| encrypt(set, &secret, messages, &mut rng));
    let inputs = columns.each_ref();
    let table = |f: &dyn Fn(u32) -> u32| Table::new(9, 9, (0..512).map(f).collect()).unwrap();
    let mixed = |m: u32| m.wrapping_mul(m).wrapping_mul(0x9e37_79b9) >> 23;
    let (square, down) = (|m: u32| m * m % 512, |m: u32| 511 - m);
    let divide = |m: u32| (m >> 4) * 16 / (m % 16 + 1);
    let steps = [
        Step::Input(0),
        Step::Tables(0, vec![table(&mixed), table(&square), table(&down)]),
        Step::Add(1, 3),
        Step::Input(1),
        Step::Multiply(5, 16),
        Step::Input(2),
        Step::Add(6, 7),
        Step::Tables(8, vec![table(&divide)]),
    ];
    let turns = AtOnce(CancelToken::new());
    let run = |output| {
        let value = batch.run(&inputs, &steps, output, &turns).unwrap();
        store(set, &value, &secret, rows)
    };
    let sums: Vec<u32> = all.iter().map(|&m| (mixed(m) + down(m)) % 512).collect();
    let first = run(4);
    assert_eq!(first.decrypt(&secret).unwrap(), sums);
    let squares: Vec<u32> = all.iter().map(|&m| square(m)).collect();
    assert_eq!(run(2).decrypt(&secret).unwrap(), squares);
    let quotients = x.iter().zip(&y).map(|(x, y)| divide(x << 4 | y));
    assert_eq!(
        run(9).decrypt(&secret).unwrap(),
        quotients.collect::<Vec<_>>()
    );
    // What was stored is an input again.
    let stored = StoredColumn::from_bytes(&first.to_bytes()).unwrap();
    let again = [Step::Input(0), Step::Tables(0, vec![table(&mixed)])];
    let value = batch.run(&[&stored], &again, 1, &turns).unwrap();
    let found = store(set, &value, &secret, rows).decrypt(&secret);
    assert_eq!(
        found.unwrap(),
        sums.into_iter().map(mixed).collect::<Vec<_>>()
    );
    // A table of two columns, whose messages have all bits of its parts, or fewer.
    let bits = [set.bits_of_two().unwrap(), [3, 4]];
    for [high, low] in bits {
        let narrow = [(&x, high), (&y, low)].map(|(messages, bits)| {
            let messages: Vec<u32> = messages.iter().map(|m| m % (1 << bits)).collect();
            let place = (Layout::plain(bits), set.seeded_width);
            let column = StoredColumn::encrypt_in(&secret, place, &messages, &mut rng).unwrap();
            (messages, column)
        });
        let [(x, x_column), (y, y_column)] = &narrow;
        let both = vec![table(&mixed), table(&divide)];
        let steps = [
            Step::Input(0),
            Step::Input(1),
            Step::TablesOfTwo([0, 1], both),
        ];
        for (output, f) in [(2, &mixed as &dyn Fn(u32) -> u32), (3, &divide)] {
            let value = batch.run(&[x_column, y_column], &steps, output, &turns);
            let found = store(set, &value.unwrap(), &secret, rows).decrypt(&secret);
            let index = |(x, y): (&u32, &u32)| f(x << (9 - high) | y << (4 - low));
            let right: Vec<u32> = x.iter().zip(y).map(index).collect();
            assert_eq!(found.unwrap(), right);
        }
    }
    // A run that is stopped in either pass, or in the table, ends at once.
    let endless = Until(Cell::new(u32::MAX));
    batch.run(&[&stored], &again, 1, &endless).unwrap();
    let all = u32::MAX - endless.0.get();
    for left in [0, 3, all / 2, all - 1] {
        let until = Until(Cell::new(left));
        let stopped = batch.run(&[&stored], &again, 1, &until).unwrap_err();
        assert!(stopped.to_string().contains("cancelled"), "{stopped}");
        assert_eq!(until.0.get(), 0);
    }
}

/// Sums of `count` rows have `count` times the variance: exactly so where rows were rounded one by one, on average over secrets where a mask was.
#[test]
fn sums_of_rows_have_the_noise_of_the_formula() {
    let mut rng = Csprng::from_seed([31; 32]);
    let client = ClientKey::generate(&TINY_WOPBS, &mut rng);
    let secret = SecretKey::derive(SET, &client).unwrap();
    let file = write_keys(Vec::new(), SET, &secret, &mut rng, &Progress::none()).unwrap();
    let batch = Batch::read_from(file.as_slice(), &Progress::none()).unwrap();
    let turns = AtOnce(CancelToken::new());
    let q = SET.params().chain[0] as f64;
    let rows = SET.rows();
    let input = [Step::Input(0)];
    let (body, pair) = (
        body_variance(SET.seeded_width),
        pair_variance(SET.params(), SET.computed_width),
    );
    for (count, stride, computed) in [(64, 0, false), (8, 2, false), (4, 0, true), (4, 3, true)] {
        let steps = [Step::Input(0), Step::Sum(0, count, stride)];
        let (mut squares, mut sums) = (0.0, 0);
        for _ in 0..40 {
            let mut column = encrypt(SET, &secret, &vec![0; rows], &mut rng);
            if computed {
                let value = batch.run(&[&column], &input, 0, &turns).unwrap();
                column = store(SET, &value, &secret, rows);
            }
            let value = batch.run(&[&column], &steps, 1, &turns).unwrap();
            let phase = secret.decrypt(&value).unwrap().poly().to_i128();
            // Sums of rows that are all there.
            for &x in &phase[..rows - ((count - 1) << stride)] {
                squares += (x as f64 / q).powi(2);
                sums += 1;
            }
        }
        let row = if computed { body + pair } else { body };
        let ratio = squares / f64::from(sums) / (count as f64 * row);
        assert!((0.7..1.4).contains(&ratio), "{count} rows: {ratio}");
    }
    let refused = [Step::Input(0), Step::Sum(0, rows / 2 + 1, 1)];
    let column = encrypt(SET, &secret, &[1, 2], &mut rng);
    let error = batch.run(&[&column], &refused, 1, &turns).unwrap_err();
    assert!(error.to_string().contains("sums up"), "{error}");
}
