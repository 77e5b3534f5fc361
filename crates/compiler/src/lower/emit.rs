//! The program's text.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use super::noise::Placement;
use super::samples::{BaseId, Combo, Origin, TaskId};
use crate::error::Error;

/// The most functions of one `bootstrap` line.
const MOST_FUNCTIONS: usize = 64;

/// Tables of more values than this are formulas where a simple one gives them.
const SHORT_TABLE: usize = 64;

/// The program's text, with the sign of its result's messages.
pub(super) struct Program {
    pub(super) text: String,
    pub(super) is_signed: bool,
}

/// Writes a program: the samples that results need, the results, and how their rows stand in one column.
pub(super) struct Writer<'a> {
    placement: &'a Placement,
    /// Registers of inputs with their messages' signs, in the order of the inputs.
    inputs: &'a [(String, bool)],
    /// Data ids of the registers, by their names.
    registers: BTreeMap<String, u32>,
    vectors: String,
    known_vectors: HashMap<(String, u32, u32), String>,
    body: String,
    has_zero: bool,
}

impl<'a> Writer<'a> {
    pub(super) fn new(placement: &'a Placement, inputs: &'a [(String, bool)]) -> Writer<'a> {
        Writer {
            placement,
            inputs,
            registers: BTreeMap::new(),
            vectors: String::new(),
            known_vectors: HashMap::new(),
            body: String::new(),
            has_zero: false,
        }
    }

    /// The whole text. `group` is there for sums of so many rows.
    pub(super) fn write(mut self, group: Option<u64>) -> Result<Program, Error> {
        let placement = self.placement;
        for (register, _) in self.inputs {
            self.register(register);
        }
        let mut functions: BTreeMap<TaskId, Vec<BaseId>> = BTreeMap::new();
        for (base, place) in placement.places.iter().enumerate() {
            if let (Origin::Function(task, _), 1..) = (&placement.samples.bases[base].origin, place)
            {
                functions.entry(*task).or_default().push(base);
            }
        }
        for task in &placement.order {
            if let Some(bases) = functions.get(task) {
                self.task(*task, bases)?;
            }
        }
        let is_signed = self.inputs.iter().any(|(_, signed)| *signed);
        let results = self.results(is_signed, group)?;
        self.join(results);
        let mut text = String::new();
        for (name, id) in &self.registers {
            let _ = writeln!(text, ".reg {name} = cor:{id}");
        }
        text.push_str(&self.vectors);
        text.push('\n');
        text.push_str(&self.body);
        Ok(Program { text, is_signed })
    }

    fn register(&mut self, name: &str) {
        let next = self.registers.len() as u32;
        self.registers.entry(name.to_owned()).or_insert(next);
    }

    fn line(&mut self, line: &str) {
        let _ = writeln!(self.body, "    {line}");
    }

    fn name(&self, base: BaseId) -> String {
        match &self.placement.samples.bases[base].origin {
            Origin::Input(register) => register.clone(),
            Origin::Function(..) => format!("s{base}"),
        }
    }

    /// Bits and sign of what stands in a base's register, by the engine's rules.
    fn encoding(&self, base: BaseId) -> (u32, bool) {
        match &self.placement.samples.bases[base].origin {
            Origin::Input(register) => {
                let mut inputs = self.inputs.iter();
                let signed = inputs.find(|(name, _)| name == register);
                (
                    self.placement.samples.width(),
                    signed.is_some_and(|(_, signed)| *signed),
                )
            }
            Origin::Function(..) => (self.placement.places[base], false),
        }
    }

    /// Writes a combination at a place into a register, without its constant; gives the encoding that the register has then.
    fn combine(&mut self, register: &str, combo: &Combo, place: u32) -> Result<(u32, bool), Error> {
        self.register(register);
        let mut encoding = (0, false);
        // What is added as it is comes first, so that it need not be copied.
        let mut terms: Vec<(BaseId, i128)> = Vec::new();
        for (base, weight) in &combo.terms {
            terms.push((*base, self.placement.factor(*base, *weight, place)));
        }
        for (number, (base, factor)) in terms.into_iter().enumerate() {
            let name = self.name(base);
            let (bits, signed) = self.encoding(base);
            encoding = (encoding.0.max(bits), encoding.1 || signed);
            let times = i32::try_from(factor)
                .map_err(|_| Error::new(format!("a sample cannot be multiplied by {factor}")))?;
            match (number, times) {
                (0, 1) => self.line(&format!("mov {register}, {name}")),
                (0, _) => {
                    self.line(&format!("mov {register}, {name}"));
                    self.line(&format!("homintmult {register}, {times}"));
                }
                (_, 1) => self.line(&format!("homadd {register}, {name}")),
                (_, -1) => self.line(&format!("homsub {register}, {name}")),
                _ => {
                    self.register("multiple");
                    self.line(&format!("mov multiple, {name}"));
                    self.line(&format!("homintmult multiple, {times}"));
                    self.line(&format!("homadd {register}, multiple"));
                }
            }
        }
        Ok(encoding)
    }

    /// Adds nothing, so that messages have the set's width, and a sign if an input has one. What has no terms becomes nothing.
    fn widen(&mut self, register: &str, has_terms: bool) -> Result<(), Error> {
        let signed = self.inputs.iter().find(|(_, signed)| *signed);
        let source = signed.or(self.inputs.first());
        let (source, _) = source
            .ok_or_else(|| Error::new("the program reads no input").with_help("declare one"))?;
        if !self.has_zero {
            self.has_zero = true;
            self.register("zero");
            // It must come before all that reads it.
            let zero = format!("    mov zero, {source}\n    homsub zero, {source}\n");
            self.body.insert_str(0, &zero);
        }
        let operation = if has_terms { "homadd" } else { "mov" };
        self.line(&format!("{operation} {register}, zero"));
        Ok(())
    }

    fn task(&mut self, task: TaskId, bases: &[BaseId]) -> Result<(), Error> {
        let placement = self.placement;
        let of_task = &placement.samples.tasks[task];
        let place = match &of_task.location {
            Some(location) => format!("{location}: {}", of_task.what),
            None => of_task.what.clone(),
        };
        // A name of a file may have line ends, and a comment has none.
        let place = format!("    ; {}\n", place.replace(char::is_control, " "));
        self.body.push_str(&place);
        let (bits, _) = self.combine("read", &of_task.combo, of_task.bits)?;
        let count = 1_i128 << of_task.bits;
        let mut distance = of_task.combo.constant - of_task.low;
        if !placement.samples.params.is_wide() {
            // The padding bit must be clear, so that the lowest message is 0.
            distance = distance.rem_euclid(2 * count);
            if distance != 0 {
                let mut bits = bits;
                if bits < of_task.bits {
                    self.widen("read", true)?;
                    bits = placement.samples.width();
                }
                let sum = centred(distance << (bits - of_task.bits), bits);
                self.line(&format!("homintadd read, {sum}"));
            }
            distance = 0;
        }
        let distance = distance.rem_euclid(count);
        for bases in bases.chunks(MOST_FUNCTIONS) {
            let (mut vectors, mut registers) = (Vec::new(), Vec::new());
            for base in bases {
                let Origin::Function(_, entries) = &placement.samples.bases[*base].origin else {
                    continue;
                };
                let out = placement.places[*base];
                vectors.push(self.vector(entries, (of_task.bits, out), distance));
                let name = self.name(*base);
                self.register(&name);
                registers.push(name);
            }
            match (vectors.as_slice(), registers.as_slice()) {
                ([vector], [register]) => {
                    self.line(&format!("mov {register}, read"));
                    self.line(&format!("bootstrap {vector}, {register}"));
                }
                _ => {
                    let (vectors, registers) = (vectors.join(", "), registers.join(", "));
                    self.line(&format!("bootstrap [{vectors}], [{registers}], read"));
                }
            }
        }
        Ok(())
    }

    /// The test vector of a function, whose lowest message is read as -distance.
    fn vector(&mut self, entries: &Arc<[i64]>, (bits, out): (u32, u32), distance: i128) -> String {
        let count = 1_i128 << bits;
        let function = formula(entries, bits, distance).unwrap_or_else(|| {
            let modulus = 2_i64 << out;
            let mut table = String::from("[");
            for index in 0..count {
                let message = (index + distance).rem_euclid(count);
                let entry = usize::try_from(message)
                    .ok()
                    .and_then(|message| entries.get(message));
                let separator = if index == 0 { "" } else { "," };
                let value = entry.map_or(0, |entry| entry.rem_euclid(modulus));
                let _ = write!(table, "{separator}{value}");
            }
            table + "]"
        });
        let next = format!("t{}", self.known_vectors.len());
        let key = (function, bits, out);
        if let Some(name) = self.known_vectors.get(&key) {
            return name.clone();
        }
        let _ = writeln!(
            self.vectors,
            ".tv {next} unsigned in={bits} out={out} = {}",
            key.0
        );
        self.known_vectors.insert(key, next.clone());
        next
    }

    fn results(&mut self, is_signed: bool, group: Option<u64>) -> Result<Vec<String>, Error> {
        let placement = self.placement;
        let width = placement.samples.width();
        let mut registers = Vec::new();
        for (number, combo) in placement.results.iter().enumerate() {
            let register = format!("result{number}");
            let _ = writeln!(self.body, "    ; row {number} of the result");
            let encoding = self.combine(&register, combo, width)?;
            if encoding != (width, is_signed) {
                self.widen(&register, !combo.terms.is_empty())?;
            }
            let constant = centred(combo.constant, width);
            if constant != 0 {
                self.line(&format!("homintadd {register}, {constant}"));
            }
            if let Some(group) = group {
                self.line(&format!("homsum {register}, {group}"));
            }
            registers.push(register);
        }
        Ok(registers)
    }

    /// Puts the rows of the results one behind the other.
    fn join(&mut self, mut registers: Vec<String>) {
        let count = registers.len().next_power_of_two();
        if let Some(last) = registers.last().cloned() {
            for number in registers.len()..count {
                let copy = format!("result{number}");
                self.register(&copy);
                self.line(&format!("mov {copy}, {last}"));
                registers.push(copy);
            }
        }
        let mut distance = 1;
        while registers.len() > 1 {
            let mut joined = Vec::with_capacity(registers.len() / 2);
            for pair in registers.chunks(2) {
                if let [first, second] = pair {
                    self.line(&format!("join {first}, {second}, {distance}"));
                    joined.push(first.clone());
                }
            }
            registers = joined;
            distance *= 2;
        }
        if let Some(register) = registers.first() {
            self.line(&format!("return {register}"));
        }
    }
}

/// The number that equals `value` modulo 2^(bits+1), with a magnitude of at most 2^bits.
fn centred(value: i128, bits: u32) -> i128 {
    let half = 1_i128 << bits;
    (value + half).rem_euclid(2 * half) - half
}

/// Some bits of the message as a formula, if that is what long tables hold.
fn formula(entries: &[i64], bits: u32, distance: i128) -> Option<String> {
    if entries.len() <= SHORT_TABLE {
        return None;
    }
    let most = entries.iter().max()?;
    let mask = (1_i64 << (i64::BITS - most.leading_zeros())) - 1;
    let is_piece = |shift: u32| {
        let mut messages = (0_i64..).zip(entries);
        messages.all(|(message, entry)| *entry == (message >> shift) & mask)
    };
    let shift = (0..bits).find(|shift| is_piece(*shift))?;
    let count = 1_i128 << bits;
    let message = if distance == 0 {
        "x".to_owned()
    } else {
        format!("((x + {distance}) % {count})")
    };
    Some(format!("({message} >> {shift}) & {mask}"))
}
