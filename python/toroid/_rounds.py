"""Questions whose rows are compared with each other: rounds of one program on pairs of rows, by a network that is the same whatever the numbers are.

A value of a row is carried from round to round as *words*: digits without a sign, each a row of an encrypted column. A round gathers the words of its
pairs, which needs no key, and the drive computes those of the lesser and the greater row of each pair.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from toroid import _core
from toroid._columns import Digit, Layout
from toroid._errors import FullError
from toroid._picture import Part, picture
from toroid._trace import Graph, Value, maximum, minimum, refuse, select
from toroid._types import Range, failure_of

if TYPE_CHECKING:
    from toroid._drive import BaseTable, Table
    from toroid._program import Compiled

#: Pairs of rows that one command of a drive works on: a question that was interrupted has no more of them to do again.
BLOCK_ROWS = 256

#: The columns that one command of the drive takes, beside that of its result.
MAX_COLUMNS = 15

Pair = tuple[int, int]


def network(rows: int, first: int) -> tuple[list[list[Pair]], list[int]]:
    """The pairs of rows whose comparison sorts the least `first` of so many rows, and where these then stand, the least one first.

    No row is in two pairs of a round. The lesser row of a pair takes the first place of the two. Of the networks below it is the one with the fewest
    comparisons, without those that nothing wanted depends on.
    """
    networks = [(_sorting(list(range(rows))), list(range(rows)))]
    if 2 * first <= rows:
        networks.append(_selecting(rows, 1 << (first - 1).bit_length()))
    needed = [(_needed(rounds, order[:first]), order[:first]) for rounds, order in networks]
    return min(needed, key=lambda found: sum(len(pairs) for pairs in found[0]))


def _sorting(places: Sequence[int]) -> list[list[Pair]]:
    """Sorts the rows at these places: Batcher's merge exchange, which takes any number of rows."""
    rows = len(places)
    top = 1 << max(0, (rows - 1).bit_length() - 1)
    rounds: list[list[Pair]] = []
    step = top
    while step:
        distance, low, rest = step, top, 0
        while True:
            rounds.append([(places[row], places[row + distance]) for row in range(rows - distance) if row & step == rest])
            if low == step:
                break
            distance, low, rest = low - step, low // 2, step
        step //= 2
    return rounds


def _selecting(rows: int, block: int) -> tuple[list[list[Pair]], list[int]]:
    """Sorts blocks of a power of two of rows, and then two blocks at a time into one of the least rows of both, until one is left."""
    blocks: list[list[int | None]] = [list(range(start, min(start + block, rows))) for start in range(0, rows, block)]
    rounds = _together([_sorting([place for place in each if place is not None]) for each in blocks])
    # A row that is not there counts as the greatest.
    blocks[-1] += [None] * (block - len(blocks[-1]))
    while len(blocks) > 1:
        merged = [_merged(one, other) for one, other in zip(blocks[::2], blocks[1::2], strict=False)]
        rounds += _together([pairs for pairs, _ in merged])
        blocks = [least for _, least in merged] + blocks[2 * len(merged) :]
    return rounds, [place for place in blocks[0] if place is not None]


def _merged(one: Sequence[int | None], other: Sequence[int | None]) -> tuple[list[list[Pair]], list[int | None]]:
    """The least rows of two sorted blocks, sorted: the lesser of each row and the one that mirrors it rise and fall once, which a bitonic merge sorts."""
    places = list(one)
    rounds: list[list[Pair]] = [[]]
    for number, mirrored in enumerate(reversed(other)):
        own = places[number]
        if own is None:
            places[number] = mirrored
        elif mirrored is not None:
            rounds[0].append((own, mirrored))
    distance = len(places) // 2
    while distance:
        pairs: list[Pair] = []
        for number in range(len(places)):
            if number & distance:
                continue
            low, high = places[number], places[number + distance]
            if low is None:
                places[number], places[number + distance] = high, low
            elif high is not None:
                pairs.append((low, high))
        rounds.append(pairs)
        distance //= 2
    return rounds, places


def _together(networks: Sequence[list[list[Pair]]]) -> list[list[Pair]]:
    """Networks of different rows, at the same time."""
    return [[pair for pairs in rounds for pair in pairs] for rounds in itertools.zip_longest(*networks, fillvalue=[])]


def _needed(rounds: Sequence[list[Pair]], first: Sequence[int]) -> list[list[Pair]]:
    """The pairs that the rows at some places depend on in the end."""
    wanted = set(first)
    needed: list[list[Pair]] = []
    for pairs in reversed(rounds):
        chosen = [pair for pair in pairs if pair[0] in wanted or pair[1] in wanted]
        wanted.update(row for pair in chosen for row in pair)
        if chosen:
            needed.append(chosen)
    return needed[::-1]


def single_bits(message_bits: int, is_key: bool) -> int:
    """The bits of a number that goes from round to round as a whole: the difference of two keys has one more, and that of other numbers is read with the
    choice between them; with wide messages fewer are read than a message has."""
    most = message_bits - 1 if is_key else message_bits - 2
    return max(1, min(most, max(8, message_bits // 2 + 1)))


@dataclass(frozen=True)
class Carried:
    """How a value goes from round to round: as the digits of what it has above `low`; none where it has one value alone."""

    low: int
    layout: Layout

    @staticmethod
    def of(low: int, high: int, message_bits: int, is_key: bool) -> Carried:
        """One digit where the noise of results lets a drive read differences, or else digits of half a message, of which there are two at least."""
        if low == high:
            return Carried(low, Layout(0, 0, ()))
        span, single = high - low, single_bits(message_bits, is_key)
        if is_key and span.bit_length() > single:
            # In numbers of a whole message and more the compiler compares digit by digit.
            span = max(span, (1 << message_bits) - 1)
        return Carried(low, Layout.of(0, span, single, max(1, message_bits // 2)))

    @property
    def span(self) -> int:
        """The greatest number above `low`."""
        return self.layout.high

    @property
    def interval(self) -> tuple[int, int]:
        """The values that it may have."""
        return self.low, self.low + self.span

    def digits(self, graph: Graph, value: Value | int) -> list[Value]:
        """The digits of a value of a graph."""
        above = graph.value(value) - self.low
        if len(self.layout.digits) == 1:
            return [above]
        last = len(self.layout.digits) - 1
        return [
            above >> digit.shift if place == last else (above >> digit.shift) & ((1 << digit.bits) - 1)
            for place, digit in enumerate(self.layout.digits)
        ]

    def joined(self, words: Sequence[Sequence[int]], rows: int) -> list[int]:
        """The values of so many rows, of their digits."""
        values = [self.low] * rows
        for digit, messages in zip(self.layout.digits, words, strict=True):
            mask = (1 << digit.bits) - 1
            values = [value + ((int(message) & mask) << digit.shift) for value, message in zip(values, messages, strict=True)]
        return values


@dataclass(frozen=True)
class Step:
    """A program of a round, or that which makes the words: its graph, and the words that its inputs and outputs are.

    An output of several words has as many digits.
    """

    graph: str
    inputs: Mapping[str, tuple[int, ...]]
    outputs: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Network:
    """A network of comparisons: the numbers of the words that go through it, those of the key first, its rounds, where the wanted rows stand in the end,
    and the programs for a pair."""

    key: Carried
    words: tuple[int, ...]
    rounds: tuple[tuple[Pair, ...], ...]
    order: tuple[int, ...]
    steps: tuple[Step, ...]

    @property
    def comparisons(self) -> int:
        """Pairs of all rounds."""
        return sum(len(pairs) for pairs in self.rounds)

    @staticmethod
    def of(key: Carried, payload: Sequence[Digit], words: Sequence[int], rows: int, first: int, is_descending: bool) -> Network:
        """The network that brings `first` rows to the front.

        Args:
            key: What is compared.
            payload: The digits of what goes along with it.
            words: The numbers of the key's words, and of those of the payload behind them.
            rows: How many rows there are.
            first: How many of them are wanted.
            is_descending: Whether the greatest key comes first.

        Raises:
            GraphError: The key has too many digits for one command of the drive.
        """
        digits = len(key.layout.digits)
        if 2 * digits > MAX_COLUMNS:
            refuse(
                f"the values to compare have {digits} digits, and a command of the drive takes those of two values, {MAX_COLUMNS} together",
                interval=f"{key.low}..{key.low + key.span}",
                help="encrypt the column with a narrower type, or compare a part of it, such as col(...) // 1000",
            )
        # Keys that have one value alone are sorted, and so are no rows, which only a simulation has.
        rounds, order = network(rows, first) if digits and rows else ([], list(range(min(rows, first))))
        told = tuple(tuple(pairs) for pairs in rounds)
        if not rounds:
            return Network(key, tuple(words), told, tuple(order), ())
        # Where one row is wanted, nothing becomes of the other one of a pair.
        is_exchange = first > 1
        own, rest = list(words[:digits]), list(zip(words[digits:], payload, strict=True))
        room = (MAX_COLUMNS - 2 * digits) // 2
        steps = []
        graph = Graph()
        one, other = graph.input("a", 0, key.span), graph.input("b", 0, key.span)
        inputs, outputs = {"a": tuple(own), "b": tuple(own)}, {"l": tuple(own)}
        graph.output("l", maximum(one, other) if is_descending else minimum(one, other))
        if is_exchange:
            graph.output("h", minimum(one, other) if is_descending else maximum(one, other))
            outputs["h"] = tuple(own)
        swaps: Value = one < other if is_descending else other < one
        Network._exchange(graph, swaps, rest[:room], is_exchange, inputs, outputs)
        rest = rest[room:]
        if rest:
            graph.output("s", swaps)
            outputs["s"] = ()
        steps.append(Step(graph.text(), inputs, outputs))
        room = (MAX_COLUMNS - 1) // 2
        for start in range(0, len(rest), room):
            graph = Graph()
            swaps = graph.input("s", 0, 1)
            inputs, outputs = {"s": ()}, {}
            Network._exchange(graph, swaps, rest[start : start + room], is_exchange, inputs, outputs)
            steps.append(Step(graph.text(), inputs, outputs))
        return Network(key, tuple(words), told, tuple(order), tuple(steps))

    @staticmethod
    def _exchange(
        graph: Graph,
        swaps: Value,
        payload: Sequence[tuple[int, Digit]],
        is_exchange: bool,
        inputs: dict[str, tuple[int, ...]],
        outputs: dict[str, tuple[int, ...]],
    ) -> None:
        """Puts the words that go along into the places of the lesser and the greater row."""
        for word, digit in payload:
            most = (1 << digit.bits) - 1
            one, other = graph.input(f"a{word}", 0, most), graph.input(f"b{word}", 0, most)
            inputs[f"a{word}"] = inputs[f"b{word}"] = (word,)
            graph.output(f"l{word}", select(swaps, other, one))
            outputs[f"l{word}"] = (word,)
            if is_exchange:
                graph.output(f"h{word}", select(swaps, one, other))
                outputs[f"h{word}"] = (word,)


@dataclass(frozen=True)
class RoundsCost:
    """What a question whose rows are compared takes in all: comparisons of two rows in rounds, functions applied and the samples that they are applied to,
    seconds on one core of the machine whose times are documented, log2 of the probability that any number of the answer is wrong, bytes of keys."""

    params: str
    rounds: int
    comparisons: int
    bootstraps: int
    tasks: int
    seconds: float
    log2_failure: float
    key_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.comparisons} comparisons in {self.rounds} rounds: {self.bootstraps} functions of {self.tasks} samples with {self.params}, "
            f"{self.seconds:.3g} s on one core; failure 2^{self.log2_failure:.1f}; keys {self.key_bytes / 1e6:.1f} MB"
        )


@dataclass(frozen=True)
class CompiledRounds:
    """The parameter set and the programs of a question whose rows are compared, each with how many rows it is run on in all; there are none where
    there is nothing to compare. It can be pickled."""

    params: str
    programs: tuple[tuple[int, Compiled], ...]
    rounds: int
    comparisons: int

    @property
    def cost(self) -> RoundsCost:
        """What the question takes in all."""
        costs = [(rows, compiled.cost) for rows, compiled in self.programs]
        failure = sum(2.0**cost.log2_failure for _, cost in costs)
        return RoundsCost(
            self.params,
            self.rounds,
            self.comparisons,
            sum(rows * cost.bootstraps for rows, cost in costs),
            sum(rows * cost.tasks for rows, cost in costs),
            sum(rows * cost.seconds_per_row for rows, cost in costs),
            min(0.0, math.log2(failure)) if failure else -math.inf,
            max((cost.key_bytes for _, cost in costs), default=0),
        )

    def explain(self) -> str:
        """What the programs do and cost, as text, as [Compiled.explain][toroid.Compiled.explain] has it for each of them."""
        parts = [f"cost: {self.cost}"]
        parts.extend(f"{self._title(number)}\n{compiled.explain()}" for number, (_, compiled) in enumerate(self.programs))
        return "\n\n".join(parts)

    def explained(self, graphs: Sequence[str], format: str) -> str:
        """The programs with the graphs that they are made of, as text or as a picture.

        Raises:
            ValueError: There is no such format.
        """
        if format == "text":
            return "\n".join([*graphs, self.explain()])
        if format == "svg":
            parts = [
                Part(graph, f"{self._title(number)}; {compiled.cost}", compiled.program)
                for number, (graph, (_, compiled)) in enumerate(zip(graphs, self.programs, strict=True))
            ]
            return picture(*parts, title=str(self.cost))
        raise ValueError(f"format is 'text' or 'svg', not {format!r}")

    def _title(self, number: int) -> str:
        return f"program {number}, of {self.programs[number][0]} rows or pairs of rows"


#: The words of each network, one after the other, decrypted: numbers of each row that is wanted.
Compared = list[list[list[int]]]

#: A word of a row: its place in rows of the drive, or its number in clear.
Cell = Any


class _Machine(Protocol):
    """What computes words."""

    #: Pairs of rows that it takes at a time.
    block: int

    def words(self) -> list[list[Cell]]: ...

    def run(self, step: tuple[int, int], inputs: Mapping[str, list[list[Cell]]], rows: int) -> Mapping[str, list[list[Cell]]]: ...

    def column(self, cells: list[Cell]) -> Any: ...


@dataclass(frozen=True)
class Rounds:
    """A question whose rows are compared: the words of every row, and the networks that they go through.

    Words are columns of the table as they are, or outputs of the program `prepare`.
    """

    table: BaseTable
    columns: tuple[str, ...]
    prepare: Step | None
    stored: Mapping[int, str]
    digits: tuple[Digit, ...]
    networks: tuple[Network, ...]

    @property
    def steps(self) -> list[Step]:
        """The graphs of all programs."""
        prepare = [] if self.prepare is None else [self.prepare]
        return [*prepare, *(step for network in self.networks for step in network.steps)]

    def compile(self, log2_failure: float) -> CompiledRounds:
        """The programs, for rows, and pairs of rows, each wrong with 2^log2_failure."""
        programs = [] if self.prepare is None else [(self.table.rows, self.prepared(log2_failure))]
        for network in self.networks:
            programs.extend((network.comparisons, self.compared(step, network, log2_failure)) for step in network.steps)
        return CompiledRounds(
            self.table.params,
            tuple(programs),
            sum(len(network.rounds) for network in self.networks),
            sum(network.comparisons for network in self.networks),
        )

    def _options(self, rows: int, log2_failure: float, layouts: Mapping[str, Layout], is_repeated: bool) -> str:
        bound = min(failure_of(log2_failure) + math.log2(rows), 0.0)
        described = {name: layout.described() for name, layout in layouts.items()}
        options = {"sets": [self.table.params], "rows": rows, "log2_failure": bound, "inputs": described, "separate": True, "repeated": is_repeated}
        return json.dumps(options)

    def prepared(self, log2_failure: float) -> Compiled:
        """The program that makes words of rows."""
        from toroid._program import Compiled

        assert self.prepare is not None
        layouts = {name: self.table.columns[column].layout for name, column in zip(self.prepare.inputs, self.columns, strict=True)}
        return Compiled(_core.compile(self.prepare.graph, self._options(self.table.rows, log2_failure, layouts, False)))

    def layouts(self, step: Step, network: Network) -> dict[str, Layout]:
        """How the inputs of a program for pairs of rows are encrypted."""
        layouts = {}
        for name, words in step.inputs.items():
            digits = tuple(self.digits[word] for word in words)
            if name in ("a", "b"):
                layouts[name] = network.key.layout
            elif words:
                layouts[name] = Layout(0, (1 << digits[0].bits) - 1, (Digit(digits[0].bits, False, 0),))
            else:
                layouts[name] = Layout(0, 1, (Digit(1, False, 0),))
        return layouts

    def compared(self, step: Step, network: Network, log2_failure: float) -> Compiled:
        """The program of a step for pairs of rows."""
        from toroid._program import Compiled

        return Compiled(_core.compile(step.graph, self._options(network.comparisons, log2_failure, self.layouts(step, network), True)))

    def play(self, machine: _Machine, report: Callable[[int, int], object]) -> list[list[Any]]:
        """Has a machine do all rounds: for each network the words of the rows that are wanted."""
        total = sum(network.comparisons for network in self.networks)
        done = 0
        start = machine.words()
        found = []
        for number, network in enumerate(self.networks):
            words = {word: list(start[word]) for word in network.words}
            for pairs in network.rounds:
                for block in range(0, len(pairs), machine.block):
                    chosen = pairs[block : block + machine.block]
                    self._exchange(machine, number, chosen, words)
                    done += len(chosen)
                    report(done, total)
            found.append([machine.column([words[word][row] for row in network.order]) for word in network.words])
        return found

    def _exchange(self, machine: _Machine, number: int, pairs: Sequence[Pair], words: dict[int, list[Cell]]) -> None:
        """Compares the rows of pairs, and puts what becomes of them in their places."""
        swaps: list[list[Cell]] = []
        after: list[tuple[int, int, list[Cell]]] = []
        for place, step in enumerate(self.networks[number].steps):
            inputs = {}
            for name, own in step.inputs.items():
                side = 0 if name[0] == "a" else 1
                inputs[name] = [[words[word][pair[side]] for pair in pairs] for word in own] if own else swaps
            outputs = machine.run((number, place), inputs, len(pairs))
            for name, own in step.outputs.items():
                if own:
                    after.extend((0 if name[0] == "l" else 1, word, cells) for word, cells in zip(own, outputs[name], strict=True))
                else:
                    swaps = outputs[name]
        for side, word, cells in after:
            for pair, cell in zip(pairs, cells, strict=True):
                words[word][pair[side]] = cell

    def simulate(self, data: Mapping[str, list[int]]) -> list[list[list[int]]]:
        """What the words of the wanted rows are, of columns of plain numbers of their types by their names."""
        return self.play(_Clear(self, data), lambda _done, _total: None)


class _Clear:
    """Computes in clear, by the graphs that the programs of a drive are made of."""

    block = BLOCK_ROWS

    def __init__(self, rounds: Rounds, data: Mapping[str, list[int]]) -> None:
        self._rounds = rounds
        self._data = data

    def words(self) -> list[list[Cell]]:
        rounds = self._rounds
        found: dict[int, list[int]] = {}
        for word, name in rounds.stored.items():
            digit = rounds.digits[word]
            found[word] = [(number >> digit.shift) & ((1 << digit.bits) - 1) for number in self._data[name]]
        if rounds.prepare is not None:
            inputs = {name: self._data[column] for name, column in zip(rounds.prepare.inputs, rounds.columns, strict=True)}
            outputs = _core.evaluate(rounds.prepare.graph, inputs)
            found.update((words[0], outputs[name]) for name, words in rounds.prepare.outputs.items())
        return [found[word] for word in range(len(rounds.digits))]

    def run(self, step: tuple[int, int], inputs: Mapping[str, list[list[Cell]]], rows: int) -> Mapping[str, list[list[Cell]]]:
        network = self._rounds.networks[step[0]]
        program = network.steps[step[1]]
        # Digits of the key count as many as they do; other inputs are single words.
        joined = {name: network.key.joined(words, rows) if name in ("a", "b") else words[0] for name, words in inputs.items()}
        above = {name: [number - network.key.low for number in numbers] if name in ("a", "b") else numbers for name, numbers in joined.items()}
        outputs = _core.evaluate(program.graph, above)
        return {
            name: [[(n >> d.shift) & ((1 << d.bits) - 1) for n in numbers] for d in network.key.layout.digits] if name in ("l", "h") else [numbers]
            for name, numbers in outputs.items()
        }

    def column(self, cells: list[Cell]) -> Any:
        return cells


class Encrypted(ABC):
    """Computes with encrypted words. A cell is the number of a row of encrypted rows."""

    block = BLOCK_ROWS

    def __init__(self, rounds: Rounds, log2_failure: float) -> None:
        self._rounds = rounds
        self._prepared = None if rounds.prepare is None else rounds.prepared(log2_failure)
        self._programs = {
            (number, place): rounds.compared(step, network, log2_failure)
            for number, network in enumerate(rounds.networks)
            for place, step in enumerate(network.steps)
        }
        columns = [rounds.table.columns[name].names for name in sorted({*rounds.columns, *rounds.stored.values()})]
        programs = [each.code for each in [self._prepared, *self._programs.values()] if each is not None]
        told = json.dumps([columns, rounds.table.rows, programs, [network.rounds for network in rounds.networks]])
        self._digest = hashlib.sha256(told.encode()).hexdigest()[:32]
        self._failures: list[float] = []

    @property
    def log2_failure(self) -> float:
        """log2 of the probability that a result of some round is wrong. Every round counts once: its inputs do not state what was before."""
        return min(0.0, math.log2(sum(2.0**failure for failure in self._failures) or 2.0**-1074))

    @property
    def name(self) -> str:
        """What the names of its columns on a drive begin with."""
        return f"round {self._digest}"

    @abstractmethod
    def _column(self, name: str, place: int) -> _core.EncryptedRows:
        """All rows of a digit of a column."""

    @abstractmethod
    def _prepare(self, compiled: Compiled, columns: Mapping[str, str]) -> Iterator[tuple[_core.EncryptedRows, int]]:
        """Makes words of the table's rows: the results of ranges of rows, in their order, and how many rows each has."""

    @abstractmethod
    def _compute(self, step: tuple[int, int], inputs: Mapping[str, list[list[Cell]]], rows: int) -> _core.EncryptedRows:
        """Runs a program on pairs of rows."""

    def words(self) -> list[list[Cell]]:
        """The words of all rows."""
        rounds, table = self._rounds, self._rounds.table
        found: dict[int, list[Cell]] = {}
        for word, name in rounds.stored.items():
            place = [digit.shift for digit in table.columns[name].layout.digits].index(rounds.digits[word].shift)
            rows = self._column(name, place)
            found[word] = [(rows, row) for row in range(table.rows)]
        if rounds.prepare is not None and self._prepared is not None:
            for words in rounds.prepare.outputs.values():
                found[words[0]] = []
            for results, size in self._prepare(self._prepared, dict(zip(rounds.prepare.inputs, rounds.columns, strict=True))):
                self._count(results)
                cells = self._cells(self._prepared, rounds.prepare, results, size)
                for name, words in rounds.prepare.outputs.items():
                    found[words[0]].extend(cells[name][0])
        return [found[word] for word in range(len(rounds.digits))]

    def run(self, step: tuple[int, int], inputs: Mapping[str, list[list[Cell]]], rows: int) -> Mapping[str, list[list[Cell]]]:
        """Runs a program on pairs of rows, and gives the words that it makes."""
        try:
            results = self._compute(step, inputs, rows)
        except FullError:
            if rows == 1:
                raise
            # Rows that come from many places bring as many chunks, and the drive's memory may have room for those of fewer rows.
            halves = [(0, rows // 2), (rows // 2, rows)]
            parts = [self.run(step, cut_words(inputs, first, end), end - first) for first, end in halves]
            return {name: [one + other for one, other in zip(parts[0][name], parts[1][name], strict=True)] for name in parts[0]}
        self._count(results)
        return self._cells(self._programs[step], self._rounds.networks[step[0]].steps[step[1]], results, rows)

    def _count(self, results: _core.EncryptedRows) -> None:
        self._failures.append(results.log2_failure + math.log2(len(results)))

    def _cells(self, compiled: Compiled, program: Step, results: _core.EncryptedRows, rows: int) -> dict[str, list[list[Cell]]]:
        found: dict[str, list[list[Cell]]] = {}
        for name, words in program.outputs.items():
            digits = [self._rounds.digits[word] for word in words] or [Digit(1, False, 0)]
            base = digits[0].shift if len(digits) == 1 else 0
            places = compiled.places(name, [(digit.bits, digit.shift - base) for digit in digits])
            found[name] = [[(results, row * compiled.result_rows + place) for row in range(rows)] for place in places]
        return found

    def column(self, cells: list[Cell]) -> Any:
        """The encrypted rows that cells stand for."""
        return gathered(cells)


class Stored(Encrypted):
    """Computes on a drive.

    The results of rounds stay on the drive until the last one, under names that follow from the question, so that a call that was interrupted goes on
    where it was.
    """

    def __init__(self, table: Table, rounds: Rounds, log2_failure: float) -> None:
        super().__init__(rounds, log2_failure)
        self._table = table
        self._drive = table.drive
        self._made: list[str] = []

    def _column(self, name: str, place: int) -> _core.EncryptedRows:
        return self._drive.core.get_column(self._table.columns[name].names[place], (0, self._table.rows), None)

    def _prepare(self, compiled: Compiled, columns: Mapping[str, str]) -> Iterator[tuple[_core.EncryptedRows, int]]:
        inputs = {name: self._table.columns[column].names for name, column in columns.items()}
        block = max(1, BLOCK_ROWS // compiled.result_rows)
        for start in range(0, self._table.rows, block):
            end = min(start + block, self._table.rows)
            yield self._map(compiled, compiled.registers(inputs), (start, end)), end - start

    def _compute(self, step: tuple[int, int], inputs: Mapping[str, list[list[Cell]]], _rows: int) -> _core.EncryptedRows:
        compiled = self._programs[step]
        number = len(self._made)
        names: dict[str, tuple[str, ...]] = {}
        put: list[str] = []
        try:
            for name, words in inputs.items():
                names[name] = tuple(f"{self.name} {number} {name} {place}" for place in range(len(words)))
                for stored, cells in zip(names[name], words, strict=True):
                    self._drive.core.put_column(stored, gathered(cells, counted=True), True, self._table.key_id)
                    put.append(stored)
            return self._map(compiled, compiled.registers(names), None)
        finally:
            for stored in put:
                self._drive.core.delete(stored)

    def _map(self, compiled: Compiled, registers: dict[str, str], rows: tuple[int, int] | None) -> _core.EncryptedRows:
        output = f"{self.name} {len(self._made)}"
        self._drive.run(compiled.program, registers, output, rows=rows, replace=True, key_id=self._table.key_id, way="samples")
        self._made.append(output)
        return self._drive.core.get_column(output, None, None)

    def clean(self) -> None:
        """Deletes the results of rounds."""
        for name in self._made:
            self._drive.core.delete(name)


def cut_words(inputs: Mapping[str, list[list[Cell]]], first: int, end: int) -> dict[str, list[list[Cell]]]:
    """The words of some pairs of rows."""
    return {name: [cells[first:end] for cells in words] for name, words in inputs.items()}


def gathered(cells: Sequence[tuple[_core.EncryptedRows, int]], *, counted: bool = False) -> _core.EncryptedRows:
    """Encrypted rows from several places, one behind the other; with `counted` they state nothing of bootstraps behind them."""

    def ranges() -> Iterator[tuple[_core.EncryptedRows, int, int]]:
        rows, first = cells[0]
        end = first
        for each, row in cells:
            if each is not rows or row != end:
                yield rows, first, end
                rows, first, end = each, row, row
            end += 1
        yield rows, first, end

    return _core.EncryptedRows.gather(list(ranges()), False, counted)


@dataclass(frozen=True)
class Key:
    """What is compared: a value, and, with the weight `weight` above it, whether the row comes behind those without. Without rows of both kinds there is no
    weight."""

    carried: Carried
    weight: int | None

    @property
    def interval(self) -> tuple[int, int]:
        """The values that it may have, without the weight."""
        low, high = self.carried.interval
        return (low, high) if self.weight is None else (low, low + self.weight - 1)

    def read(self, words: Sequence[Sequence[int]], rows: int) -> list[tuple[int, bool]]:
        """The values of so many rows, each with whether it has the weight."""
        low, weight = self.carried.low, self.weight
        numbers = self.carried.joined(words, rows)
        if weight is None:
            return [(number, False) for number in numbers]
        return [(number - weight, True) if number - low >= weight else (number, False) for number in numbers]


@dataclass
class Words:
    """Collects the words of a question's values."""

    table: BaseTable
    graph: Graph
    message_bits: int
    digits: list[Digit] = field(default_factory=list)
    stored: dict[int, str] = field(default_factory=dict)
    made: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def of_column(self, name: str, is_key: bool = False) -> tuple[Carried, list[int]] | None:
        """The words of a column as they are encrypted; none where they are encrypted in another way than rounds need, or where what its numbers have above
        the least one takes fewer words."""
        layout = self.table.columns[name].layout
        carried = Carried.of(min(layout.low, 0), layout.high, self.message_bits, is_key)
        if carried.low or carried.layout.digits != layout.digits:
            return None
        above = Carried.of(layout.low, layout.high, self.message_bits, is_key)
        if len(above.layout.digits) < len(layout.digits):
            return None
        words = self._take(carried)
        self.stored.update(dict.fromkeys(words, name))
        return carried, words

    def of_value(self, value: Value | int, numbers: Range | None = None, is_key: bool = False) -> tuple[Carried, list[int]]:
        """The words of a value of the graph, which becomes an output for each of them; those that all of some numbers need, if they are given."""
        known = self.graph.value(value)
        interval = numbers or known.interval
        carried = Carried.of(interval.low, interval.high, self.message_bits, is_key)
        words = self._take(carried)
        for word, digit in zip(words, carried.digits(self.graph, known) if words else (), strict=True):
            self.graph.output(f"w{word}", digit)
            self.made[f"w{word}"] = (word,)
        return carried, words

    def of_key(self, value: Value | int, column: str | None, last: Value | None) -> tuple[Key, list[int]]:
        """The words of what is compared: of a value, or of the column that it is as a whole, if that serves; above all others where `last` is 1."""
        if last is None:
            carried, words = (self.of_column(column, is_key=True) if column is not None else None) or self.of_value(value, is_key=True)
            return Key(carried, None), words
        known = self.graph.value(value)
        interval = known.interval
        span = interval.high - interval.low
        # Where one word has no room for both, the weight is a bit above all digits.
        has_room = (2 * span + 1).bit_length() <= single_bits(self.message_bits, is_key=True)
        weight = span + 1 if has_room else 1 << span.bit_length()
        carried, words = self.of_value(known + last * weight, Range(interval.low, interval.low + 2 * weight - 1), is_key=True)
        return Key(carried, weight), words

    def _take(self, carried: Carried) -> list[int]:
        first = len(self.digits)
        self.digits.extend(carried.layout.digits)
        return list(range(first, len(self.digits)))

    def rounds(self, columns: Sequence[str], networks: Sequence[Network]) -> Rounds:
        """The question, of the columns that are the graph's inputs."""
        inputs: dict[str, tuple[int, ...]] = {f"c{place}": () for place in range(len(columns))}
        prepare = Step(self.graph.text(), inputs, self.made) if self.made else None
        used = tuple(columns) if prepare else ()
        return Rounds(self.table, used, prepare, self.stored, tuple(self.digits), tuple(networks))
