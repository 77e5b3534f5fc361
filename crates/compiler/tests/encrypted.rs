//! Compiled programs on encrypted rows of a drive, against the meaning of their graphs.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::collections::BTreeMap;

use toroid_client::columns::{EncryptedRows, MapRequest, Way};
use toroid_client::drive::Drive;
use toroid_compiler::{Compiled, Graph, Options, compile};
use toroid_task::Progress;
use toroid_tfhe::ClientKey;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::params::ParamSet;
use toroid_tfhe::random::Csprng;

struct Place {
    client: ClientKey,
    drive: Drive,
}

impl Place {
    fn new(set: &str) -> Place {
        let params = ParamSet::by_name(set).unwrap();
        let client = ClientKey::generate(params, &mut Csprng::from_os().unwrap());
        let drive = Drive::temporary().unwrap();
        drive.put_keys(&client).unwrap();
        Place { client, drive }
    }

    /// The outputs of a compiled program for these rows, which go to the drive encrypted.
    fn run(
        &self,
        compiled: &Compiled,
        columns: &BTreeMap<&str, Vec<i128>>,
        prefix: &str,
    ) -> BTreeMap<String, Vec<i128>> {
        let none = Progress::none();
        let session = self.drive.session();
        let bits = self.client.params().message_bits;
        let mut inputs = Vec::new();
        let mut rows = 0;
        for input in &compiled.inputs {
            let digits = input.layout.digits.iter().zip(&input.registers);
            for (place, (digit, register)) in digits.enumerate() {
                let numbers: Vec<i64> = columns[&*input.name]
                    .iter()
                    .map(|value| input.layout.split(*value).unwrap()[place])
                    .collect();
                rows = numbers.len() as u64;
                let encoding = Encoding::new(bits, digit.signed).unwrap();
                let encrypted =
                    EncryptedRows::encrypt(&self.client, encoding, &numbers, &none).unwrap();
                let column = format!("{prefix}.{register}");
                let created = session.create_column(&column, 0, &encrypted, &none);
                self.drive.wait(created).unwrap();
                inputs.push((register.clone(), column));
            }
        }
        let assembly = toroid_isa::assemble(&compiled.program).unwrap();
        let inputs: Vec<(&str, &str)> = inputs
            .iter()
            .map(|(register, column)| (&**register, &**column))
            .collect();
        let output = format!("{prefix}.result");
        let request = MapRequest {
            program: &assembly,
            inputs: &inputs,
            rows: None,
            output: &output,
            replace: false,
            unit: None,
            way: Way::Samples,
            form: None,
            kept: None,
        };
        let plan = self.drive.wait(session.plan_map(&request)).unwrap();
        // The compiler promises for all rows what the client expects of one.
        assert!(
            plan.log2_failure() <= compiled.cost.log2_failure + 0.01,
            "{} {}",
            plan.log2_failure(),
            compiled.cost.log2_failure
        );
        self.drive.wait(session.map(&request, &none)).unwrap();
        let read = self.drive.wait(session.read_rows(&output, None, &none));
        let results = read.unwrap().decrypt(&self.client).unwrap();
        compiled.decode(&results, rows).unwrap()
    }

    fn check(&self, text: &str, columns: &BTreeMap<&str, Vec<i128>>, prefix: &str) {
        let graph = Graph::parse(text).unwrap();
        let rows = columns.values().next().unwrap().len() as u64;
        let options = Options {
            sets: vec![self.client.params().name.to_owned()],
            rows,
            log2_failure: -64.0,
            ..Options::default()
        };
        let compiled = compile(&graph, &options).unwrap();
        let slices = columns.iter().map(|(name, rows)| (*name, rows.as_slice()));
        let expected = graph.evaluate_columns(&slices.collect()).unwrap();
        let found = self.run(&compiled, columns, prefix);
        assert_eq!(found, expected, "{}", compiled.program);
    }
}

/// Rows of a column: numbers from low to high in no order, both among them.
fn rows(count: usize, low: i128, high: i128, step: i128) -> Vec<i128> {
    let mut rows: Vec<i128> = (0..count as i128)
        .map(|row| low + (row * step) % (high - low + 1))
        .collect();
    rows[0] = high;
    rows[1] = low;
    rows
}

const ONE_DIGIT: &str = "
    input x: 0..15
    input y: -8..7
    double = table(x, [0, 3, 1, 2, 9, 8, 7, 7, 1, 0, 15, 14, 13, 2, 4, 5])
    low = x & 3
    sign = y < 0
    least = min(low, 2)
    both = low + sign
    output double = double
    output least = least
    output both = both
    output sign = sign
    output y = y
";

#[test]
fn tables_of_one_digit_give_what_they_mean() {
    let columns = BTreeMap::from([("x", rows(40, 0, 15, 7)), ("y", rows(40, -8, 7, 5))]);
    for set in ["tiny", "tiny-wopbs"] {
        Place::new(set).check(ONE_DIGIT, &columns, set);
    }
}

const WIDE: &str = "
    input x: 0..65535
    input y: -128..127
    z = 3*x - y + 7
    p = x * y
    q = x // 10
    r = x % 10
    less = y < r
    least = min(p, z)
    chosen = select(less, x, z)
    bits = x ^ 4660
    w = wrap(z, i9)
    magnitude = abs(p)
    output z = z
    output least = least
    output q = q
    output chosen = chosen
    output bits = bits
    output w = w
    output magnitude = magnitude
";

#[test]
fn operations_on_digits_give_what_they_mean() {
    let columns = BTreeMap::from([
        ("x", rows(12, 0, 65535, 9173)),
        ("y", rows(12, -128, 127, 53)),
    ]);
    for set in ["tiny-wopbs", "tiny"] {
        Place::new(set).check(WIDE, &columns, set);
    }
}

#[test]
fn numbers_of_24_bits_are_compared_and_added() {
    let text = "
        input x: 0..16777215
        input y: -8388608..8388607
        sum = x + y
        less = x < y
        low = wrap(sum, u24)
        output less = less
        output low = low
    ";
    let columns = BTreeMap::from([
        ("x", rows(6, 0, 16_777_215, 0x34_5671)),
        ("y", rows(6, -8_388_608, 8_388_607, 0x65_4327)),
    ]);
    Place::new("tiny-wopbs").check(text, &columns, "wide");
}

#[test]
fn sums_of_encrypted_rows_are_those_of_all() {
    let text = "
        input x: 0..200
        input y: -8..7
        big = x > 100
        total = sum(x)
        count = sum(big)
        other = sum(y)
        output total = total
        output count = count
        output other = other
    ";
    let columns = BTreeMap::from([("x", rows(150, 0, 200, 37)), ("y", rows(150, -8, 7, 5))]);
    Place::new("tiny-wopbs").check(text, &columns, "sums");
}
