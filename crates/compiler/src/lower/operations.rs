//! What each operation of a graph becomes: a combination of samples, functions of them, or arithmetic on digits.

use std::collections::HashMap;

use super::digits::{Digits, Radix};
use super::samples::{Combo, Samples};
use crate::compiled::{CompiledInput, Layout, Options};
use crate::error::Error;
use crate::graph::{BitOperation, Comparison, Graph, Node, Op, Width};
use crate::interval::Interval;

/// How a number is there.
#[derive(Clone, Debug)]
pub(super) enum Form {
    /// As one sample.
    Single(Combo),
    /// In digits, before carries are made up.
    Digits(Digits),
}

/// A graph on its way to samples.
pub(super) struct Operations<'g> {
    graph: &'g Graph,
    pub(super) samples: Samples,
    pub(super) radix: Radix,
    forms: Vec<Form>,
    canonical: HashMap<Node, Digits>,
    /// Whether a value is a result and nothing else.
    only_result: Vec<bool>,
    pub(super) inputs: Vec<CompiledInput>,
}

impl<'g> Operations<'g> {
    /// Results are wider than what functions read by the bit of padding, if `reads_results` does not say that functions read them.
    pub(super) fn new(
        graph: &'g Graph,
        samples: Samples,
        radix: Radix,
        reads_results: bool,
    ) -> Operations<'g> {
        let mut only_result = vec![!reads_results; graph.len()];
        for node in graph.nodes() {
            if !matches!(graph.op(node), Op::Sum(_)) {
                for operand in graph.op(node).operands() {
                    only_result[operand.index()] = false;
                }
            }
        }
        Operations {
            graph,
            samples,
            radix,
            forms: Vec::with_capacity(graph.len()),
            canonical: HashMap::new(),
            only_result,
            inputs: Vec::new(),
        }
    }

    /// Lowers all statements.
    pub(super) fn lower(&mut self, options: &Options) -> Result<(), Error> {
        for node in self.graph.nodes() {
            self.samples.cancel.check()?;
            self.samples.location = self.graph.location(node).cloned();
            self.samples.what = self.graph.show(node);
            let form = self.statement(node, options).map_err(|error| {
                let mut shown = self.graph.error(node, error.message);
                shown.help = error.help;
                shown
            })?;
            self.forms.push(form);
        }
        Ok(())
    }

    /// The samples of a result: each with the power of two that it counts.
    pub(super) fn result(&self, node: Node) -> Vec<(u32, Combo)> {
        match &self.forms[node.index()] {
            Form::Single(combo) => vec![(0, combo.clone())],
            Form::Digits(digits) => (0..)
                .zip(digits)
                .map(|(place, digit)| (place * self.radix.bits, digit.clone()))
                .collect(),
        }
    }

    fn width(&self) -> u32 {
        self.samples.width()
    }

    /// The number as one sample that functions read, if it is narrow enough.
    fn single(&self, node: Node) -> Option<Combo> {
        let interval = self.graph.interval(node);
        if interval.bits() > self.width() {
            return None;
        }
        match &self.forms[node.index()] {
            Form::Single(combo) => Some(combo.clone()),
            Form::Digits(digits) => {
                let mut sum = Combo::constant(0);
                for (place, digit) in digits.iter().enumerate() {
                    sum = sum.plus(digit, 1 << (self.radix.bits * place as u32));
                }
                Some(sum.within(interval))
            }
        }
    }

    /// The number in digits, before carries are made up.
    fn digits(&mut self, node: Node) -> Result<Digits, Error> {
        let interval = self.graph.interval(node);
        match &self.forms[node.index()] {
            Form::Single(combo) if combo.known().is_none() && combo.bits() <= self.radix.bits => {
                Ok(vec![combo.clone()])
            }
            Form::Single(_) => self.canonical(node),
            Form::Digits(digits) => {
                let small = digits
                    .iter()
                    .all(|digit| digit.bits() <= self.radix.bits + 1);
                if small && digits.len() <= self.radix.count(interval) {
                    Ok(digits.clone())
                } else {
                    self.canonical(node)
                }
            }
        }
    }

    /// The number in canonical digits.
    fn canonical(&mut self, node: Node) -> Result<Digits, Error> {
        if let Some(known) = self.canonical.get(&node) {
            return Ok(known.clone());
        }
        let digits = match self.forms[node.index()].clone() {
            Form::Single(combo) => self.radix.split(&mut self.samples, &combo)?,
            Form::Digits(digits) => {
                let interval = self.graph.interval(node);
                let mut digits =
                    self.radix
                        .normalize(&mut self.samples, &digits, Some(interval))?;
                if let Some(top) = digits.pop() {
                    digits.extend(self.radix.split(&mut self.samples, &top)?);
                }
                digits
            }
        };
        self.canonical.insert(node, digits.clone());
        Ok(digits)
    }

    /// Digits that hold a number of this interval as one sample where that is what they are.
    fn form(&self, node: Node, digits: Digits) -> Form {
        match <[Combo; 1]>::try_from(digits) {
            Ok([combo]) => Form::Single(combo.within(self.graph.interval(node))),
            Err(digits) => Form::Digits(digits),
        }
    }

    /// The same of digits that may be more than the number's interval has: what exceeds them cancels.
    fn fitted(&mut self, node: Node, digits: Digits) -> Result<Form, Error> {
        let interval = self.graph.interval(node);
        if digits.len() <= self.radix.count(interval) {
            return Ok(self.form(node, digits));
        }
        let digits = self
            .radix
            .normalize(&mut self.samples, &digits, Some(interval))?;
        Ok(self.form(node, digits))
    }

    fn statement(&mut self, node: Node, options: &Options) -> Result<Form, Error> {
        let graph = self.graph;
        let interval = graph.interval(node);
        match *graph.op(node) {
            Op::Input { ref name, interval } => self.input(name, interval, options),
            Op::Constant(value) => Ok(Form::Single(Combo::constant(value))),
            Op::Linear {
                ref terms,
                constant,
            } => self.linear(node, terms, constant),
            Op::Multiply(x, y) => self.multiply(node, x, y),
            Op::Divide(x, divisor) => match self.single(x) {
                Some(combo) => self.table(node, &combo, |value| value.div_euclid(divisor)),
                None => {
                    let (quotient, _) = self.divide(x, divisor, true)?;
                    Ok(self.form(node, quotient))
                }
            },
            Op::Remainder(x, divisor) => match self.single(x) {
                Some(combo) => self.table(node, &combo, |value| value.rem_euclid(divisor)),
                None => {
                    let (_, remainder) = self.divide(x, divisor, false)?;
                    Ok(self.form(node, remainder))
                }
            },
            Op::Compare(comparison, x, y) => {
                let combo = self.compare(comparison, x, y)?;
                Ok(Form::Single(combo.within(interval)))
            }
            Op::Min(x, y) => self.extreme(node, x, y, true),
            Op::Max(x, y) => self.extreme(node, x, y, false),
            Op::Absolute(x) => self.absolute(node, x),
            Op::Select(d, x, y) => {
                let choice = self
                    .single(d)
                    .ok_or_else(|| self.samples.error("a choice is 0 or 1"))?;
                self.select(node, &choice, x, y)
            }
            Op::Bits(operation, x, y) => self.bits(node, operation, x, y),
            Op::Wrap(x, width) => self.wrap(node, x, width),
            Op::Table(x, ref entries) => {
                let combo = self.single(x).ok_or_else(|| {
                    self.samples
                        .error(format!(
                            "the table's argument has {} bits, and functions of {} read {}",
                            graph.interval(x).bits(),
                            self.samples.params.name,
                            self.width()
                        ))
                        .with_help("take a parameter set of wider functions")
                })?;
                let low = graph.interval(x).low;
                self.table(node, &combo, |value| entries[(value - low) as usize])
            }
            Op::Table2(x, y, ref entries) => {
                let (xs, ys) = (graph.interval(x), graph.interval(y));
                let places = ys.count() as usize;
                let (a, b) = match (self.single(x), self.single(y)) {
                    (Some(a), Some(b)) if a.bits() + b.bits() <= self.width() => (a, b),
                    _ => {
                        return Err(self
                            .samples
                            .error(format!(
                                "the table's arguments have {} and {} bits, and functions of {} read {}",
                                xs.bits(),
                                ys.bits(),
                                self.samples.params.name,
                                self.width()
                            ))
                            .with_help("take a parameter set of wider functions"));
                    }
                };
                let entry = |x: i128, y: i128| {
                    entries[(x - xs.low) as usize * places + (y - ys.low) as usize]
                };
                if let Some(value) = a.known() {
                    return self.table(node, &b, |y| entry(value, y));
                }
                if let Some(value) = b.known() {
                    return self.table(node, &a, |x| entry(x, value));
                }
                let (both, bits) = Samples::pair(&a, &b);
                self.table(node, &both, |m| {
                    let y = (m & ((1 << bits) - 1)) + b.interval.low;
                    entry(m >> bits, y.min(b.interval.high))
                })
            }
            // What is summed is the value itself; the rows are added when it is returned.
            Op::Sum(x) => Ok(self.forms[x.index()].clone()),
        }
    }

    fn input(&mut self, name: &str, interval: Interval, options: &Options) -> Result<Form, Error> {
        let layout = match options.inputs.get(name) {
            Some(layout) => layout.clone(),
            None => Layout::of(interval, self.width(), self.radix.bits),
        };
        let wide = layout.digits.iter().find(|digit| digit.bits > self.width());
        if let Some(digit) = wide {
            return Err(self.samples.error(format!(
                "column `{name}` has digits of {} bits, and messages of {} have {}",
                digit.bits,
                self.samples.params.name,
                self.width()
            )));
        }
        let number = self.inputs.len();
        let mut registers = Vec::new();
        let mut digits = Vec::new();
        for (place, digit) in layout.digits.iter().enumerate() {
            let register = format!("in{number}_{place}");
            let count = 1_i128 << digit.bits;
            let low = if digit.signed { -(count / 2) } else { 0 };
            let mut values = Interval {
                low,
                high: low + count - 1,
            };
            if place + 1 == layout.digits.len() {
                values = Interval {
                    low: interval.low >> digit.shift,
                    high: interval.high >> digit.shift,
                };
            }
            let above = digit.shift + digit.bits;
            let combo = if interval.low >> above == interval.high >> above {
                // The digits above are the same for all numbers.
                let of = |number: i128| {
                    values.low + ((number >> digit.shift) - values.low).rem_euclid(count)
                };
                let (low, high) = (of(interval.low), of(interval.high));
                if low == high && interval.low != interval.high {
                    Combo::constant(low)
                } else {
                    self.samples.input(register.clone(), Interval { low, high })
                }
            } else {
                self.samples.input(register.clone(), values)
            };
            digits.push((digit.shift, combo));
            registers.push(register);
        }
        self.inputs.push(CompiledInput {
            name: name.to_owned(),
            interval,
            layout,
            registers,
        });
        if let [(_, combo)] = digits.as_slice() {
            return Ok(Form::Single(combo.clone()));
        }
        let expected = |place: usize| place as u32 * self.radix.bits;
        if digits
            .iter()
            .enumerate()
            .all(|(place, (shift, _))| *shift == expected(place))
        {
            return Ok(Form::Digits(
                digits.into_iter().map(|(_, combo)| combo).collect(),
            ));
        }
        // A column that was encrypted with other digits.
        let mut number = vec![Combo::constant(0)];
        for (shift, combo) in digits {
            let (place, rest) = (shift / self.radix.bits, shift % self.radix.bits);
            let pieces = self
                .radix
                .pieces(&mut self.samples, &combo, |value| value << rest)?;
            self.radix
                .add(&mut self.samples, &mut number, (&pieces, 1, place as usize))?;
        }
        Ok(Form::Digits(number))
    }

    /// A function of one sample, as one sample or in digits.
    fn table(
        &mut self,
        node: Node,
        combo: &Combo,
        function: impl Fn(i128) -> i128,
    ) -> Result<Form, Error> {
        if self.graph.interval(node).bits() <= self.width() {
            return Ok(Form::Single(self.samples.function(combo, function)?));
        }
        let digits = self.radix.pieces(&mut self.samples, combo, function)?;
        Ok(self.form(node, digits))
    }

    fn linear(
        &mut self,
        node: Node,
        terms: &[(Node, i128)],
        constant: i128,
    ) -> Result<Form, Error> {
        let interval = self.graph.interval(node);
        let room = self.width() + u32::from(self.only_result[node.index()]);
        let singles: Option<Vec<Combo>> = if interval.bits() <= room {
            terms.iter().map(|(term, _)| self.single(*term)).collect()
        } else {
            None
        };
        if let Some(singles) = singles {
            let mut sum = Combo::constant(constant);
            for (combo, (_, weight)) in singles.iter().zip(terms) {
                sum = sum.plus(combo, *weight);
            }
            return Ok(Form::Single(sum.within(interval)));
        }
        let mut number = vec![Combo::constant(0)];
        for (term, weight) in terms {
            let digits = self.digits(*term)?;
            let product = self.radix.scaled(&mut self.samples, &digits, *weight)?;
            self.radix
                .add(&mut self.samples, &mut number, (&product, 1, 0))?;
        }
        let known = self.radix.offset(Vec::new(), constant);
        self.radix
            .add(&mut self.samples, &mut number, (&known, 1, 0))?;
        self.fitted(node, number)
    }

    fn multiply(&mut self, node: Node, x: Node, y: Node) -> Result<Form, Error> {
        if x == y
            && let Some(combo) = self.single(x)
        {
            return self.table(node, &combo, |value| value * value);
        }
        if let (Some(a), Some(b)) = (self.single(x), self.single(y))
            && a.bits() + b.bits() <= self.width()
            && self.graph.interval(node).bits() <= self.width()
        {
            let product = self.samples.function2(&a, &b, |x, y| x * y)?;
            return Ok(Form::Single(product));
        }
        let (xs, ys) = (self.canonical(x)?, self.canonical(y)?);
        let mut number = vec![Combo::constant(0)];
        for (i, a) in xs.iter().enumerate() {
            for (j, b) in ys.iter().enumerate() {
                if x == y && j < i {
                    continue;
                }
                let twice = if x == y && i != j { 2 } else { 1 };
                let pieces = if x == y && i == j {
                    self.radix
                        .pieces(&mut self.samples, a, |value| value * value)?
                } else {
                    self.pieces2(a, b, |x, y| twice * x * y)?
                };
                self.radix
                    .add(&mut self.samples, &mut number, (&pieces, 1, i + j))?;
            }
        }
        self.fitted(node, number)
    }

    /// The digits of a function of two samples.
    fn pieces2(
        &mut self,
        a: &Combo,
        b: &Combo,
        function: impl Fn(i128, i128) -> i128,
    ) -> Result<Digits, Error> {
        if let Some(value) = a.known() {
            return self
                .radix
                .pieces(&mut self.samples, b, |b| function(value, b));
        }
        if let Some(value) = b.known() {
            return self
                .radix
                .pieces(&mut self.samples, a, |a| function(a, value));
        }
        let (both, bits) = Samples::pair(a, b);
        let Interval { low, high } = b.interval;
        self.radix.pieces(&mut self.samples, &both, |m| {
            let y = (m & ((1 << bits) - 1)) + low;
            function(m >> bits, y.min(high))
        })
    }

    /// x - y in digits, before carries are made up.
    fn difference(&mut self, x: Node, y: Node) -> Result<Digits, Error> {
        let (xs, ys) = (self.digits(x)?, self.digits(y)?);
        let mut difference = xs;
        self.radix
            .add(&mut self.samples, &mut difference, (&ys, -1, 0))?;
        Ok(difference)
    }

    /// x - y as one sample that functions read, if it is narrow enough.
    fn narrow_difference(&self, x: Node, y: Node) -> Option<Combo> {
        let difference = self.single(x)?.plus(&self.single(y)?, -1);
        (difference.bits() <= self.width()).then_some(difference)
    }

    fn compare(&mut self, comparison: Comparison, x: Node, y: Node) -> Result<Combo, Error> {
        if let Some(difference) = self.narrow_difference(x, y) {
            return self
                .samples
                .function(&difference, |value| comparison.holds(value, 0).into());
        }
        let is_order = matches!(comparison, Comparison::Less | Comparison::LessEqual);
        let (first, second) = match comparison {
            Comparison::LessEqual => (y, x),
            _ => (x, y),
        };
        let difference = self.difference(first, second)?;
        let flag = if is_order {
            self.radix.is_negative(&mut self.samples, &difference)?
        } else {
            self.radix.is_nonzero(&mut self.samples, &difference)?
        };
        Ok(match comparison {
            Comparison::Less | Comparison::NotEqual => flag,
            Comparison::LessEqual | Comparison::Equal => flag.times(-1).offset(1),
        })
    }

    fn extreme(&mut self, node: Node, x: Node, y: Node, least: bool) -> Result<Form, Error> {
        if let (Some(difference), Some(other)) = (self.narrow_difference(x, y), self.single(y)) {
            let bound = |value: i128| if least { value.min(0) } else { value.max(0) };
            let part = self.samples.function(&difference, bound)?;
            let sum = other.plus(&part, 1).within(self.graph.interval(node));
            return Ok(Form::Single(sum));
        }
        let choice = if least {
            self.compare(Comparison::Less, x, y)?
        } else {
            self.compare(Comparison::Less, y, x)?
        };
        self.select(node, &choice, x, y)
    }

    fn absolute(&mut self, node: Node, x: Node) -> Result<Form, Error> {
        if let Some(combo) = self.single(x) {
            return self.table(node, &combo, i128::abs);
        }
        let digits = self.canonical(x)?;
        let negative = self.radix.is_negative(&mut self.samples, &digits)?;
        let mut magnitude = Vec::with_capacity(digits.len());
        for digit in &digits {
            let turned = |sign: i128, value: i128| if sign == 1 { -value } else { value };
            magnitude.push(self.samples.function2(&negative, digit, turned)?);
        }
        Ok(Form::Digits(magnitude))
    }

    /// x if the choice is 1, y if it is 0: y + choice·(x - y), digit by digit.
    fn select(&mut self, node: Node, choice: &Combo, x: Node, y: Node) -> Result<Form, Error> {
        if let Some(value) = choice.known() {
            let chosen = if value == 1 { x } else { y };
            return Ok(self.forms[chosen.index()].clone());
        }
        let interval = self.graph.interval(node);
        if let (Some(a), Some(b)) = (self.single(x), self.single(y))
            && interval.bits() <= self.width()
        {
            let difference = a.plus(&b, -1);
            if difference.bits() < self.width() {
                let part = self
                    .samples
                    .function2(choice, &difference, |choice, value| choice * value)?;
                return Ok(Form::Single(b.plus(&part, 1).within(interval)));
            }
        }
        let (mut xs, mut ys) = (self.canonical(x)?, self.canonical(y)?);
        let count = xs.len().max(ys.len());
        xs.resize(count, Combo::constant(0));
        ys.resize(count, Combo::constant(0));
        let mut number = Vec::with_capacity(count);
        for (a, b) in xs.iter().zip(&ys) {
            let difference = a.plus(b, -1);
            let either = a.interval.union(b.interval);
            let digit = if difference.bits() < self.width() {
                let part = self
                    .samples
                    .function2(choice, &difference, |choice, value| choice * value)?;
                b.plus(&part, 1).within(either)
            } else {
                // Each for itself, where the difference is too wide.
                let first = self
                    .samples
                    .function2(choice, a, |choice, value| choice * value)?;
                let second = self
                    .samples
                    .function2(choice, b, |choice, value| (1 - choice) * value)?;
                first.plus(&second, 1).within(either)
            };
            number.push(digit);
        }
        Ok(self.form(node, number))
    }

    fn bits(
        &mut self,
        node: Node,
        operation: BitOperation,
        x: Node,
        y: Node,
    ) -> Result<Form, Error> {
        let interval = self.graph.interval(node);
        if let (Some(a), Some(b)) = (self.single(x), self.single(y))
            && a.bits() + b.bits() <= self.width()
            && interval.bits() <= self.width()
        {
            let value = self
                .samples
                .function2(&a, &b, |x, y| operation.apply(x, y))?;
            return Ok(Form::Single(value));
        }
        let (xs, ys) = (self.canonical(x)?, self.canonical(y)?);
        let count = xs.len().max(ys.len());
        let base = self.radix.base();
        // Beyond its highest digit a number has that of its sign.
        let bits = self.radix.bits;
        let digit_of = |digits: &Digits, place: usize| match digits.get(place) {
            Some(digit) => (digit.clone(), 0),
            None => {
                let last = digits.len() - 1;
                (digits[last].clone(), bits * (place - last) as u32)
            }
        };
        let mut number = Vec::with_capacity(count);
        for place in 0..count {
            let ((a, above_a), (b, above_b)) = (digit_of(&xs, place), digit_of(&ys, place));
            let is_last = place + 1 == count;
            let apply = |x: i128, y: i128| {
                let value = operation.apply(x >> above_a, y >> above_b);
                if is_last {
                    value
                } else {
                    value.rem_euclid(base)
                }
            };
            let digit = if x == y && a == b {
                self.samples.function(&a, |x| apply(x, x))?
            } else {
                self.samples.function2(&a, &b, apply)?
            };
            number.push(digit);
        }
        self.fitted(node, number)
    }

    fn wrap(&mut self, node: Node, x: Node, width: Width) -> Result<Form, Error> {
        if let Some(combo) = self.single(x) {
            return self.table(node, &combo, |value| width.wrap(value));
        }
        let mut digits = match self.forms[x.index()].clone() {
            Form::Digits(digits) => digits,
            Form::Single(_) => self.canonical(x)?,
        };
        let below = (width.bits() - 1) / self.radix.bits;
        let top_bits = width.bits() - below * self.radix.bits;
        let places = below as usize + 1;
        digits.truncate(places);
        digits.resize(places, Combo::constant(0));
        // Carries go up to the highest digit that stays; its own leave the number.
        let mut carry = Combo::constant(0);
        let mut number = Vec::with_capacity(places);
        let top = Width::new(top_bits, width.is_signed())
            .ok_or_else(|| self.samples.error("a number wraps to 1 to 64 bits"))?;
        for (place, digit) in digits.iter().enumerate() {
            let sum = digit.plus(&carry, 1);
            if place + 1 == places {
                number.push(self.samples.function(&sum, |value| top.wrap(value))?);
            } else {
                let (digit, next) = self.radix.carry(&mut self.samples, &sum)?;
                number.push(digit);
                carry = next;
            }
        }
        self.fitted(node, number)
    }

    /// Quotient and remainder by a positive constant, in digits; the quotient only where it is asked for.
    fn divide(
        &mut self,
        x: Node,
        divisor: i128,
        quotient: bool,
    ) -> Result<(Digits, Digits), Error> {
        let digits = self.canonical(x)?;
        let interval = self.graph.interval(x);
        if divisor.count_ones() == 1 {
            return self.shift(&digits, divisor.trailing_zeros(), quotient);
        }
        let mut factors = Vec::new();
        let most = 1 << (self.width() - 1);
        let mut rest = divisor;
        while rest >= most {
            let factor = (2..most).rev().find(|factor| rest % factor == 0);
            let factor = factor.ok_or_else(|| {
                self.samples
                    .error(format!(
                        "no way is known to divide by {divisor} with functions of {} bits",
                        self.width()
                    ))
                    .with_help("divide by a power of two, or by a product of smaller numbers")
            })?;
            factors.push(factor);
            rest /= factor;
        }
        if rest > 1 || factors.is_empty() {
            factors.push(rest);
        }
        // x = (…(q·f_n + r_n)…)·f_1 + r_1: the remainder is r_1 + f_1·(r_2 + …).
        let mut number = digits;
        let mut values = interval;
        let mut remainder: Digits = vec![Combo::constant(0)];
        let mut weight = 1;
        let last = factors.len();
        for (place, factor) in factors.into_iter().enumerate() {
            let wanted = quotient || place + 1 < last;
            let (whole, part) = self.divide_digits(&number, factor, wanted)?;
            if !quotient {
                let part = self.radix.split(&mut self.samples, &part)?;
                let part = self.radix.scaled(&mut self.samples, &part, weight)?;
                self.radix
                    .add(&mut self.samples, &mut remainder, (&part, 1, 0))?;
                weight *= factor;
            }
            values = values.divide(factor);
            if place + 1 < last {
                number = self
                    .radix
                    .normalize(&mut self.samples, &whole, Some(values))?;
            } else {
                number = whole;
            }
        }
        let quotient = if quotient {
            self.radix
                .normalize(&mut self.samples, &number, Some(values))?
        } else {
            Vec::new()
        };
        Ok((quotient, remainder))
    }

    /// Quotient and remainder of canonical digits by 2^bits; one of them is empty.
    fn shift(
        &mut self,
        digits: &Digits,
        bits: u32,
        quotient: bool,
    ) -> Result<(Digits, Digits), Error> {
        let (places, rest) = ((bits / self.radix.bits) as usize, bits % self.radix.bits);
        let top = digits.len() - 1;
        let mask = (1 << rest) - 1;
        if quotient {
            let above = digits.get(places..).unwrap_or_default();
            let mut whole = Vec::with_capacity(above.len());
            for (place, digit) in above.iter().enumerate() {
                let mut sum = self.samples.function(digit, |value| value >> rest)?;
                if let Some(next) = above.get(place + 1) {
                    let low = self.samples.function(next, |value| value & mask)?;
                    sum = sum.plus(&low, 1 << (self.radix.bits - rest));
                }
                whole.push(sum);
            }
            if whole.is_empty() {
                // All digits leave; the sign stays.
                let beyond = bits - top as u32 * self.radix.bits;
                let sign = self
                    .samples
                    .function(&digits[top], |value| value >> beyond)?;
                whole.push(sign);
            }
            return Ok((whole, Vec::new()));
        }
        let mut part = Vec::new();
        for place in 0..=places {
            let mask = if place < places {
                self.radix.base() - 1
            } else {
                mask
            };
            let (digit, above) = if place <= top {
                (&digits[place], 0)
            } else {
                (&digits[top], self.radix.bits * (place - top) as u32)
            };
            let digit = self
                .samples
                .function(digit, |value| (value >> above) & mask)?;
            part.push(digit);
        }
        Ok((Vec::new(), part))
    }

    /// Long division of canonical digits by a divisor that leaves functions a bit at least.
    fn divide_digits(
        &mut self,
        digits: &Digits,
        divisor: i128,
        wanted: bool,
    ) -> Result<(Digits, Combo), Error> {
        let of_remainder = i128::BITS - (divisor - 1).leading_zeros();
        let room = self.width().saturating_sub(of_remainder).max(1);
        // So many bits at a time.
        let step = (1..=self.radix.bits)
            .rev()
            .find(|step| *step <= room && self.radix.bits.is_multiple_of(*step))
            .unwrap_or(1);
        let mut remainder = Combo::constant(0);
        let mut quotient = Vec::new();
        for (place, digit) in digits.iter().enumerate().rev() {
            let is_top = place + 1 == digits.len();
            let pieces = if is_top {
                vec![(0, digit.clone())]
            } else {
                let mut pieces = Vec::new();
                for shift in (0..self.radix.bits).step_by(step as usize).rev() {
                    let mask = (1 << step) - 1;
                    let piece = if step == self.radix.bits {
                        digit.clone()
                    } else {
                        self.samples
                            .function(digit, |value| (value >> shift) & mask)?
                    };
                    pieces.push((shift, piece));
                }
                pieces
            };
            let mut whole = Combo::constant(0);
            for (shift, piece) in pieces {
                let rest = if is_top {
                    piece
                } else {
                    remainder.times(1 << step).plus(&piece, 1)
                };
                if wanted {
                    let part = self
                        .samples
                        .function(&rest, |value| value.div_euclid(divisor))?;
                    whole = whole.plus(&part, 1 << shift);
                }
                remainder = self
                    .samples
                    .function(&rest, |value| value.rem_euclid(divisor))?;
            }
            quotient.push(whole);
        }
        quotient.reverse();
        Ok((quotient, remainder))
    }
}

/// Registers of the inputs in their order, with their messages' signs.
pub(super) fn signs(inputs: &[CompiledInput]) -> Vec<(String, bool)> {
    let digits = inputs.iter().flat_map(|input| {
        let digits = input.layout.digits.iter();
        input
            .registers
            .iter()
            .cloned()
            .zip(digits.map(|digit| digit.signed))
    });
    digits.collect()
}
