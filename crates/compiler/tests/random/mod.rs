//! Random graphs with rows of inputs for them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use toroid_compiler::Graph;

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn within(&mut self, low: i128, high: i128) -> i128 {
        // The bounds come often.
        match self.below(6) {
            0 => low,
            1 => high,
            _ => low + i128::from(self.next()) % (high - low + 1),
        }
    }
}

/// Rows of all inputs.
pub fn random_rows<'g>(
    random: &mut Random,
    graph: &'g Graph,
    rows: usize,
) -> BTreeMap<&'g str, Vec<i128>> {
    graph
        .inputs()
        .map(|(name, node)| {
            let interval = graph.interval(node);
            let row = |_| random.within(interval.low, interval.high);
            (name, (0..rows).map(row).collect())
        })
        .collect()
}

/// A random graph with inputs of these bits.
pub fn random_graph(random: &mut Random, bits: u32, statements: usize) -> Graph {
    random_graph_of(random, (bits, statements), |random| {
        if random.below(2) == 0 {
            (0, (1_i128 << bits) - 1)
        } else {
            (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1)
        }
    })
}

/// A random graph with inputs of these intervals; what it computes with has at most these bits.
pub fn random_graph_of(
    random: &mut Random,
    (bits, statements): (u32, usize),
    interval: impl Fn(&mut Random) -> (i128, i128),
) -> Graph {
    loop {
        let mut text = String::new();
        let mut names = Vec::new();
        for input in ["x", "y", "z"] {
            let (low, high) = interval(random);
            let _ = writeln!(text, "input {input}: {low}..{high}");
            names.push(input.to_owned());
        }
        let mut flags: Vec<String> = Vec::new();
        for number in 0..statements {
            let mut value = || names[random.below(names.len() as u64) as usize].clone();
            let (a, b) = (value(), value());
            let name = format!("v{number}");
            let constant = 1 + random.below(1 << bits.min(6));
            let expression = match random.below(14) {
                0 => format!("{a} + {b}"),
                1 => format!("{a} - {b}"),
                2 => format!("{}*{a} - {b} + {constant}", 1 + random.below(5)),
                3 => format!("min({a}, {b})"),
                4 => format!("max({a}, {b})"),
                5 => format!("{a} // {constant}"),
                6 => format!("{a} % {constant}"),
                7 => format!("{a} {} {b}", ["&", "|", "^"][random.below(3) as usize]),
                8 => format!("abs({a})"),
                9 => {
                    let sign = ["u", "i"][random.below(2) as usize];
                    format!("wrap({a}, {sign}{})", 1 + random.below(u64::from(bits)))
                }
                10 if !flags.is_empty() => {
                    let flag = &flags[random.below(flags.len() as u64) as usize];
                    format!("select({flag}, {a}, {b})")
                }
                11 => format!("{a} >> {}", random.below(u64::from(bits) + 2)),
                12 => format!("{a} * {b}"),
                _ => {
                    let symbols = ["<", "<=", ">", ">=", "==", "!="];
                    flags.push(name.clone());
                    format!("{a} {} {b}", symbols[random.below(6) as usize])
                }
            };
            let _ = writeln!(text, "{name} = {expression}");
            names.push(name);
        }
        for (number, name) in names.iter().rev().take(3).enumerate() {
            let _ = writeln!(text, "output o{number} = {name}");
        }
        // What grows beyond all bounds is refused.
        if let Ok(graph) = Graph::parse(&text) {
            return graph;
        }
    }
}
