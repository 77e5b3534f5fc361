"""Questions to a table: which rows, which values, and what becomes of them."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from toroid import _core
from toroid._columns import check_rows, columns_of, numbers_of
from toroid._errors import MissingError, NoiseError, UntrustedError
from toroid._expr import Aggregate, Expr, as_expr, col, count, is_condition
from toroid._lines import caller, located
from toroid._progress import Progress, twin
from toroid._rounds import Carried, Compared, CompiledRounds, Key, Network, Rounds, RoundsCost, Words
from toroid._trace import Graph, Value, index_of, integer_of, refuse, select
from toroid._types import failure_of

if TYPE_CHECKING:
    from toroid._client import Client
    from toroid._drive import BaseTable, Way
    from toroid._program import Compiled, Cost

#: The most values that a key of groups may have: each is a function of the key.
MAX_GROUPS = 256

#: Why a question has no program.
KNOWN = "the answer is known without a program, as simulate gives it: it depends on no encrypted number"


@dataclass(frozen=True)
class Finish:
    """What becomes of the outputs of a question's program once they are decrypted. It is plain data, so that it can be stored.

    `results` are the names of the results and what they are: value, sum, count or mean. `groups` are the values of the key `key`; one group without a key.
    `known` are outputs that do not depend on encrypted numbers, `has_where` tells whether rows come with the condition, `bins` are those of a histogram.
    `dtypes` are numpy's names of the types of results that are columns; of those that it does not have int64.
    """

    results: tuple[tuple[str, str], ...]
    groups: tuple[int, ...] = (0,)
    key: str | None = None
    known: Mapping[str, int] = field(default_factory=dict)
    has_where: bool = False
    bins: tuple[tuple[int, int], ...] | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(facts: Mapping[str, Any]) -> Finish:
        """The same from what `dataclasses.asdict` and JSON have made of it."""
        bins = facts["bins"]
        return Finish(
            tuple((name, kind) for name, kind in facts["results"]),
            tuple(facts["groups"]),
            facts["key"],
            dict(facts["known"]),
            facts["has_where"],
            None if bins is None else tuple((low, high) for low, high in bins),
            dict(facts["dtypes"]),
        )

    def __call__(self, outputs: Mapping[str, list[int]]) -> dict[str, Any]:
        """The answer from the outputs by their names."""
        if any(kind == "value" for _, kind in self.results):
            found = {name: np.array(outputs[f"r{place}"], dtype=self.dtypes.get(name, "int64")) for place, (name, _) in enumerate(self.results)}
            return {**found, "where": np.array(outputs["where"], dtype=np.bool_)} if self.has_where else found

        def number(name: str) -> int:
            # A simulation of no rows has no numbers, and their sum is 0.
            return self.known[name] if name in self.known else next(iter(outputs[name]), 0)

        found = {} if self.key is None else {self.key: _integers(self.groups)}
        for place, (name, kind) in enumerate(self.results):
            column: list[Any] = []
            for group in range(len(self.groups)):
                if kind == "count":
                    column.append(number(f"n{group}"))
                elif kind == "sum":
                    column.append(number(f"s{group}_{place}"))
                else:
                    members = number(f"n{group}")
                    column.append(number(f"s{group}_{place}") / members if members else float("nan"))
            found[name] = np.array(column, dtype=self.dtypes.get(name, "int64")) if self.key is not None else column[0]
        if self.bins is None:
            return found
        low, high = zip(*self.bins, strict=True)
        return {"low": _integers(low), "high": _integers(high), "count": np.array([found[name] for name, _ in self.results])}


@dataclass(frozen=True)
class Extremes:
    """What becomes of the rows that networks brought to the front: least and greatest values, beside what else the question asks for.

    `results` are the names of all results, `compared` those of them that are least or greatest values, each with its place among the networks and its key
    for every group; of the greatest ones rows that count have the key's weight, and of the least ones the others. `rows` is 1, or 0 where there are no
    rows.
    """

    results: tuple[str, ...]
    compared: Mapping[str, tuple[bool, tuple[tuple[int, Key], ...]]]
    sums: Finish
    groups: tuple[int, ...] | None
    key: str | None
    rows: int

    def __call__(self, outputs: Mapping[str, list[int]], words: Compared) -> dict[str, Any]:
        """The answer from the outputs of the other program by their names, and from the words of each network."""
        others = self.sums(outputs)
        found: dict[str, Any] = {} if self.key is None or self.groups is None else {self.key: _integers(self.groups)}
        for name in self.results:
            if name not in self.compared:
                found[name] = others[name]
                continue
            is_max, keys = self.compared[name]
            column: list[int | None] = []
            for place, key in keys:
                read = key.read(words[place], self.rows)
                column.append(next((number for number, is_last in read if key.weight is None or is_last == is_max), None))
            dtype = dtype_of(*hull(key.interval for _, key in keys))
            # None has no other type.
            found[name] = column[0] if self.key is None else np.array(column, dtype=object if None in column else dtype)
        return found


@dataclass(frozen=True)
class Sorted:
    """What becomes of rows that a network has sorted: the numbers of columns, each by the places of its words, or by those of the key."""

    columns: Mapping[str, tuple[Carried, int, int] | None]
    key: Key
    key_words: int
    rows: int
    counting: bool | None

    def __call__(self, _outputs: Mapping[str, list[int]], words: Compared) -> dict[str, Any]:
        """The answer, of the words of the network, without the rows that do not count."""
        keys = self.key.read(words[0][: self.key_words], self.rows)
        there = [row for row, (_, is_last) in enumerate(keys) if self.counting is None or is_last == self.counting]
        found = {}
        for name, place in self.columns.items():
            if place is None:
                numbers, interval = [number for number, _ in keys], self.key.interval
            else:
                carried, first, end = place
                numbers, interval = carried.joined(words[0][first:end], self.rows), carried.interval
            found[name] = np.array([numbers[row] for row in there], dtype=dtype_of(*interval))
        return found


@dataclass(frozen=True)
class _Plan:
    """A graph, if it has outputs, and what becomes of them once they are decrypted."""

    graph: str | None
    inputs: tuple[str, ...]
    finish: Finish
    rounds: Rounds | None = None
    compared: Extremes | Sorted | None = None


class Query:
    """A question to a table. Nothing runs before [Query.run][]; each method gives a new question."""

    def __init__(
        self,
        table: BaseTable,
        condition: Expr | None = None,
        key: Expr | None = None,
        results: Mapping[str, Expr | Aggregate] | None = None,
        joined: Mapping[str, Expr] | None = None,
    ) -> None:
        self._table = table
        self._condition = condition
        self._key = key
        self._results = results
        self._joined = dict(joined or {})

    def where(self, condition: Expr) -> Query:
        """Counts only rows for which the condition holds, beside the conditions that there are. The drive does not learn which they are.

        A condition is 0 or 1, as comparisons are; another number is refused with its line once the question is compiled.
        """
        condition = _condition(condition)
        both = condition if self._condition is None else self._condition & condition
        return self._next(condition=both)

    def group_by(self, key: str | Expr) -> Query:
        """Aggregates the rows of each value of a key on their own. The key has at most 256 possible values."""
        if not isinstance(key, (str, Expr)):
            raise _wrong_key("a key of groups", key)
        if self._key is not None:
            raise ValueError(f"the question has the key {self._key.name} already")
        return self._next(key=col(key) if isinstance(key, str) else key)

    def agg(self, **results: Aggregate) -> Query:
        """Makes sums, counts, means, least and greatest values, by the names that they shall have."""
        for name, result in results.items():
            if not isinstance(result, Aggregate):
                raise TypeError(f"{name} is no sum, count, mean, min or max: write toroid.col({name!r}).sum(), or toroid.count()")
        return self._with(results)

    def select(self, *columns: str | Expr, **named: Expr) -> Query:
        """Computes values of every row. Rows for which a condition does not hold are there, too, since nobody but the client knows them: the result
        has a column `where` that says whether it holds."""
        results: dict[str, Expr | Aggregate] = {}
        for column in columns:
            expression = col(column) if isinstance(column, str) else column
            if not isinstance(expression, Expr):
                raise TypeError(f"select takes columns and expressions, not {type(expression).__name__}")
            if expression.name in results or expression.name in named:
                raise ValueError(f"two results have the name {expression.name}")
            results[expression.name] = expression
        for name, value in named.items():
            if isinstance(value, Aggregate):
                raise TypeError(f"{name} is of all rows, and select computes values of each: use agg")
            if isinstance(value, str):
                raise TypeError(f"{name} is text: write toroid.col({value!r}) for the values of a column")
            results[name] = value if isinstance(value, Expr) else as_expr(integer_of(name, value))
        if self._key is not None:
            raise ValueError("groups have sums, counts, means, least and greatest values: use agg")
        return self._with(results)

    def histogram(self, column: str | Expr, edges: Sequence[int]) -> Query:
        """Counts the rows between neighbours of ascending edges, the lower one included: `edges[0] <= value < edges[1]` and so on.

        The result has the columns `low`, `high` and `count`.
        """
        if not isinstance(column, (str, Expr)):
            raise TypeError(f"a histogram is of a column or an expression, not {type(column).__name__}")
        try:
            edges = [index_of(edge) for edge in edges]
        except TypeError:
            raise TypeError("the edges of a histogram are a list of integers") from None
        if self._key is not None:
            raise ValueError("a histogram has no groups: add a condition for each of them with where")
        if len(edges) < 2 or any(low >= high for low, high in itertools.pairwise(edges)):
            raise ValueError("edges of a histogram ascend, and there are at least two")
        return _Histogram(self._next(), col(column) if isinstance(column, str) else column, tuple(edges))

    def sort(self, by: str | Expr, *, descending: bool = False) -> Query:
        """Sorts rows by a column or an expression: those of [Query.select][], or all columns of the table. Rows that a condition does not hold for are left
        out by the client. Rows of equal keys stand in any order.

        Rows are compared in log2 n (log2 n + 1) / 2 rounds, of n / 2 comparisons or fewer, by a network that does not depend on the numbers: the drive
        does not learn the order. A pair costs the lesser and the greater key, and a choice for each digit of what goes along; look at [Query.cost][] first.
        """
        return _Sorted(self._next(), by, descending, None)

    def top_k(self, count: int, by: str | Expr, *, descending: bool = True) -> Query:
        """The rows of the greatest keys, the greatest one first, or with `descending=False` those of the least; otherwise as [Query.sort][], with fewer
        comparisons. There are fewer rows where a condition holds for fewer."""
        try:
            count = index_of(count)
        except TypeError:
            raise TypeError(f"top_k takes how many rows are wanted, and then by what; {count!r} is no number of rows") from None
        if count < 1:
            raise ValueError(f"the first {count} rows are none: ask for at least one")
        return _Sorted(self._next(), by, descending, count)

    def join(self, other: object, on: str, *, how: Literal["inner", "left"] = "inner", fill: int | None = None) -> Query:
        """Adds the columns of a small table that is not encrypted, by the values of a column: what follows takes them as columns of the table.

        Each becomes a table of functions of the encrypted key, so that the drive does not learn which rows go together.

        Args:
            other: A dict of columns of integers, or a data frame, with the column `on` and others. No key stands there twice.
            on: The name of the column of keys in both tables. That of the encrypted one has at most 65,536 possible values.
            how: What becomes of rows whose key the other table lacks: "inner" does not count them, as a condition would do, and "left" gives them `fill`.
            fill: The number that such rows have in each column that is added, 0 if not given. There is none with "inner".

        Raises:
            ValueError: A key stands in two rows, a column is there already, or `fill` is given with "inner".
            TypeError: The other table has no column `on`, or `fill` is no integer.
            GraphError: Once the question is compiled: a key is none that the encrypted column may have, or that has too many values.
        """
        if how not in ("inner", "left"):
            raise ValueError(f"how is {how!r}; expected 'inner' or 'left'")
        if fill is not None and how == "inner":
            raise ValueError("fill is for rows whose key the other table lacks, which how='inner' does not count: leave it out, or write how='left'")
        try:
            missing = 0 if fill is None else index_of(fill)
        except TypeError:
            raise TypeError(f"fill is {fill!r}; expected an integer") from None
        columns = columns_of(other)
        if columns is None or on not in columns:
            raise TypeError(f"the table to join is a dict of columns, or a data frame, with the column {on} among them")
        if taken := next((name for name in columns if name != on and (name in self._table.columns or name in self._joined)), None):
            raise ValueError(f"there is a column {taken} already: give that of the table to join another name")
        numbers = {name: [int(number) for number in numbers_of(name, column)[0]] for name, column in columns.items()}
        keys = numbers.pop(on)
        if lengths := [name for name, column in numbers.items() if len(column) != len(keys)]:
            raise ValueError(f"column {lengths[0]} of the table to join has {len(numbers[lengths[0]])} rows, and there are {len(keys)} keys")
        rows: dict[int, int] = {}
        for row, key in enumerate(keys):
            if rows.setdefault(key, row) != row:
                raise ValueError(f"key {key} stands in rows {rows[key]} and {row} of the table to join, and each key stands there once")

        place = {on: caller()}
        joined = {
            name: Expr(_looked_up(on, rows, column, missing if how == "left" else min(column)), name, columns=place) for name, column in numbers.items()
        }
        question = self._next(joined={**self._joined, **joined})
        there = Expr(_looked_up(on, rows, [1] * len(keys), 0), f"{on} in the joined table", columns=place)
        return question.where(there) if how == "inner" else question

    def _with(self, results: Mapping[str, Expr | Aggregate]) -> Query:
        if not results:
            raise ValueError("the question asks for nothing")
        for name in results:
            if not name.isascii() or not name.isidentifier():
                raise ValueError(f"{name!r} cannot name a result: names are ASCII identifiers")
        if self._results is not None:
            raise ValueError("the question asks for something already: make another one for the rest")
        return self._next(results=results)

    def _next(self, **changed: Any) -> Query:
        """The question with another condition, key or results."""
        if type(self) is not Query:
            raise ValueError("sort, top_k and histogram are the last part of a question: write where and select before them")
        kept = {"condition": self._condition, "key": self._key, "results": self._results, "joined": self._joined}
        return Query(self._table, **{**kept, **changed})

    def _start(
        self, results: Mapping[str, Expr | Aggregate] | None = None, by: Expr | None = None
    ) -> tuple[Graph, dict[str, Value], tuple[str, ...]]:
        """A graph with the columns that the question looks at for some of its results, or for all, and for what its rows are sorted by: their values, and
        those of the table that are inputs."""
        graph = Graph()
        values: dict[str, Value] = {}
        inputs: list[str] = []

        def enter(expression: Expr | Aggregate) -> None:
            for name, (file, line) in sorted(expression.columns.items()):
                if name in values:
                    continue
                if name in self._joined:
                    enter(self._joined[name])
                    values[name] = self._joined[name].of(values)
                    continue
                column = self._table.columns.get(name)
                if column is None:
                    there = ", ".join([*self._table.columns, *self._joined])
                    raise MissingError(f"{file}:{line}: table {self._table.name} has no column {name}; it has {there}")
                values[name] = graph.input(f"c{len(inputs)}", column.layout.low, column.layout.high)
                inputs.append(name)

        for expression in [self._condition, self._key, by, *((self._results if results is None else results) or {}).values()]:
            if expression is not None:
                enter(expression)
        return graph, values, tuple(inputs)

    def _plan(self, rows: int | None = None) -> _Plan:
        """How the question is computed, of so many rows; those of the table if not given."""
        if self._results is None:
            raise ValueError("the question asks for nothing: add agg, select or histogram")
        if self._key is not None and self._key.name in self._results:
            raise ValueError(f"a result has the name of the key, {self._key.name}: give it another one")
        if any(isinstance(result, Aggregate) for result in self._results.values()):
            return self._aggregates(self._table.rows if rows is None else rows)
        return self._values()

    def _values(self) -> _Plan:
        graph, values, inputs = self._start()
        results = dict(self._results or {})
        if not inputs:
            raise ValueError("the question selects numbers that depend on no column")
        if self._condition is not None and "where" in results:
            raise ValueError("a result has the name where, which says whether the condition holds: give it another one")
        holds = None if self._condition is None else graph.value(self._condition.of(values))
        dtypes = {}
        for place, (name, expression) in enumerate(results.items()):
            assert isinstance(expression, Expr)
            value = graph.value(expression.of(values))
            dtypes[name] = dtype_of(value.interval.low, value.interval.high)
            graph.output(f"r{place}", value)
        if holds is not None:
            graph.output("where", holds)
        return _Plan(graph.text(), inputs, Finish(tuple((name, "value") for name in results), has_where=holds is not None, dtypes=dtypes))

    def _members(self, graph: Graph, values: Mapping[str, Value]) -> list[tuple[int | None, Value | None]]:
        """The groups, each with the number that is 1 for its rows; none where it has all rows."""
        holds = None if self._condition is None else graph.value(self._condition.of(values))
        if self._key is None:
            return [(None, holds)]
        key = graph.value(self._key.of(values))
        interval = key.interval
        if interval.high - interval.low >= MAX_GROUPS:
            located(
                self._key.place,
                refuse,
                f"the key of the groups lies in {interval}, and it has at most {MAX_GROUPS} values",
                interval=str(interval),
                help="encrypt the key with a narrower type, or group by a part of it, such as col(...) // 100",
            )
        return [(number, _both(key == number, holds)) for number in range(interval.low, interval.high + 1)]

    def _aggregates(self, rows: int) -> _Plan:
        results = {name: result for name, result in (self._results or {}).items() if isinstance(result, Aggregate)}
        sums = {name: result for name, result in results.items() if result.kind in ("sum", "count", "mean")}
        graph, values, inputs = self._start(sums)
        groups = self._members(graph, values)
        known: dict[str, int] = {}
        unknown: list[str] = []

        totals: dict[str, list[tuple[int, int]]] = {name: [] for name, result in sums.items() if result.kind == "sum"}

        def total(name: str, value: Value | int) -> tuple[int, int]:
            if isinstance(value, Value):
                unknown.append(name)
                graph.output(name, graph.sum(value))
                return value.interval.low * rows, value.interval.high * rows
            known[name] = value * rows
            return known[name], known[name]

        for group, (_, member) in enumerate(groups):
            counted = False
            for place, (own, result) in enumerate(sums.items()):
                if result.of is not None:
                    value = result.of.of(values)
                    interval = total(f"s{group}_{place}", value if member is None else select(member, value, 0))
                    totals.get(own, []).append(interval)
                if result.kind != "sum" and not counted:
                    counted = True
                    total(f"n{group}", 1 if member is None else member)
        kinds = tuple((name, result.kind) for name, result in sums.items())
        numbers = None if self._key is None else tuple(number for number, _ in groups if number is not None)
        key = None if self._key is None else self._key.name
        dtypes = {name: dtype_of(*hull(intervals)) for name, intervals in totals.items()}
        dtypes.update((name, "float64") for name, result in sums.items() if result.kind == "mean")
        finish = Finish(kinds, known=known, dtypes=dtypes) if numbers is None else Finish(kinds, numbers, key, known, dtypes=dtypes)
        plan = _Plan(graph.text() if unknown else None, inputs if unknown else (), finish)
        if len(sums) == len(results):
            return plan
        rounds, compared = self._extremes({name: result for name, result in results.items() if name not in sums}, rows)
        return replace(plan, rounds=rounds, compared=Extremes(tuple(results), compared, finish, numbers, key, min(rows, 1)))

    def _extremes(self, results: Mapping[str, Aggregate], rows: int) -> tuple[Rounds, dict[str, tuple[bool, tuple[tuple[int, Key], ...]]]]:
        """The comparisons that give least and greatest values, and where each of them stands for every group."""
        graph, values, inputs = self._start(results)
        words = Words(self._table, graph, _message_bits(self._table))
        groups = self._members(graph, values)
        networks: list[Network] = []
        places: dict[str, tuple[bool, tuple[tuple[int, Key], ...]]] = {}
        for name, result in results.items():
            assert result.of is not None
            is_max = result.kind == "max"
            keys = []
            for _, member in groups:
                # Rows that count are the last ones, of which the greatest is found, or the first ones.
                last = member if member is None or is_max else 1 - member
                key, own = words.of_key(result.of.of(values), _plain_column(result.of, self._table), last)
                keys.append((len(networks), key))
                networks.append(located(result.of.place, Network.of, key.carried, (), own, rows, 1, is_max))
            places[name] = (is_max, tuple(keys))
        return words.rounds(inputs, networks), places

    def _counting(self, where: str | Expr | None) -> Query:
        """The question to the rows that a column of 0 and 1, or a condition, says: values of the others are 0, and nothing else has anything of them."""
        if where is None:
            return self
        mask = condition_of(where)
        question = copy.copy(self)
        values = {name: result for name, result in (self._results or {}).items() if isinstance(result, Expr)}
        if type(self) is Query and values and len(values) == len(self._results or {}):
            question._results = {name: Expr(_masked, "select({}, {}, 0)", (mask, result)) for name, result in values.items()}
            question._condition = None if self._condition is None else self._condition & mask
        else:
            question._condition = mask if self._condition is None else self._condition & mask
        return question

    def simulate(self, data: object, *, where: str | Expr | None = None) -> dict[str, Any]:
        """What the question gives, in clear and exactly, of columns of plain numbers by their names: a dict, or a data frame. `where` is that of
        [Query.run][].

        Raises:
            GraphError: A number lies outside the type of its column.
            MissingError: There are no numbers of a column that the question looks at.
            TypeError: A number is no integer, or the data are no columns.
            ValueError: The columns have different numbers of rows.
        """
        data = _plain_columns(data)
        plan = self._counting(where)._plan(next((len(column) for column in data.values()), None))
        compared = () if plan.rounds is None else sorted({*plan.rounds.columns, *plan.rounds.stored.values()})
        numbers = {name: self._simulated(name, data) for name in dict.fromkeys([*plan.inputs, *compared])}
        outputs: Mapping[str, list[int]] = {}
        if plan.graph is not None:
            outputs = _core.evaluate(plan.graph, {f"c{place}": numbers[name] for place, name in enumerate(plan.inputs)})
        if plan.rounds is None or plan.compared is None:
            return plan.finish(outputs)
        return plan.compared(outputs, plan.rounds.simulate(numbers))

    def _simulated(self, name: str, data: Mapping[str, Any]) -> list[int]:
        """The numbers of a column to simulate the question with, refused where they are none of its type."""
        if name not in data:
            raise MissingError(f"the question looks at column {name}, and there are no numbers of it")
        layout = self._table.columns[name].layout
        numbers = []
        for row, given in enumerate(data[name]):
            number = integer_of(f"{name}: the number in row {row}", given)
            if not layout.low <= number <= layout.high:
                interval = f"{layout.low}..{layout.high}"
                refuse(f"{name}: the number in row {row} is {number}, outside {interval}, the column's type", interval=interval)
            numbers.append(number)
        return numbers

    def compile(self, log2_failure: float = -128.0, *, where: str | Expr | None = None) -> Compiled | CompiledRounds:
        """The program of the drive; the programs of a question that compares rows with each other.

        Args:
            log2_failure: log2 of the probability that what is computed of a row, or of two rows that are compared, may be wrong with; the client refuses
                results with a row that is wrong with more than 2^-64, and compared rows where some comparison of all is.
            where: As [Query.run][] has it.

        Raises:
            GraphError: The parameter set of the table cannot compute it.
        """
        plan = self._counting(where)._plan()
        compiled = self._compiled(plan, log2_failure)
        if plan.rounds is None:
            if compiled is None:
                raise ValueError(KNOWN)
            return compiled
        rounds = plan.rounds.compile(log2_failure)
        return rounds if compiled is None else replace(rounds, programs=((self._table.rows, compiled), *rounds.programs))

    def _compiled(self, plan: _Plan, log2_failure: float) -> Compiled | None:
        from toroid._program import Compiled

        if plan.graph is None:
            return None
        layouts = {f"c{place}": self._table.columns[name].layout.described() for place, name in enumerate(plan.inputs)}
        # A bound for all rows together, as a row's.
        rows = self._table.rows
        bound = failure_of(log2_failure) + float(np.log2(rows))
        options = {"sets": [self._table.params], "rows": rows, "log2_failure": min(bound, 0.0), "inputs": layouts}
        return Compiled(_core.compile(plan.graph, json.dumps(options)))

    def explain(self, log2_failure: float = -128.0, *, format: str = "text", where: str | Expr | None = None) -> str:
        """What the question computes and costs: with the format "text" the graph, its costs and the program of the drive, with "svg" a picture of the
        graph; of a question that compares rows the graphs of all its programs. `log2_failure`, `where` and the errors are those of [Query.compile][]; another format raises ValueError."""
        from toroid._program import explained

        plan = self._counting(where)._plan()
        compiled = self.compile(log2_failure, where=where)
        if not isinstance(compiled, CompiledRounds):
            return explained(plan.graph or "", compiled, format)
        graphs = [*([] if plan.graph is None else [plan.graph]), *([] if plan.rounds is None else [step.graph for step in plan.rounds.steps])]
        return compiled.explained(graphs, format)

    def cost(self, log2_failure: float = -128.0, *, where: str | Expr | None = None) -> Cost | RoundsCost:
        """What a row costs, before anything runs; of a question that compares rows with each other what all rows cost. Options are those of
        [Query.compile][]."""
        return self.compile(log2_failure, where=where).cost

    def run(self, *, log2_failure: float = -128.0, progress: Progress = None, way: Way = "auto", where: str | Expr | None = None) -> Answer | ComparedAnswer:
        """Has the drive compute the answer, which `client.decrypt` reads.

        Args:
            log2_failure: As [Query.compile][] has it.
            progress: True for a line that shows how far it is, or a callable of the stage, the steps done and those in total.
            way: As [GraphProgram.run][toroid.GraphProgram.run] has it; rows are compared sample by sample in any case.
            where: A column that is 0 or 1, or a condition, of the rows that count, as [GraphProgram.run][toroid.GraphProgram.run] has it: the values of the
                others are 0, as is the column `where` of a question with conditions, and sums, counts, sorted rows and all else have nothing of them.

        Raises:
            GraphError: As [Query.compile][] has it.
            OptionError: There is no such way.
            Error: The way is "ring", and the drive lacks the ring keys, or the question or its columns do not go that way.
            DriveError: The drive does not do it. Ctrl-C ends the run with KeyboardInterrupt; the same call then goes on where it was.
        """
        plan = self._counting(where)._plan()
        compiled = self._compiled(plan, log2_failure)
        columns = {f"c{place}": name for place, name in enumerate(plan.inputs)}
        compared = None if plan.rounds is None else self._table.compare(plan.rounds, log2_failure, progress)
        other = None
        if compiled is not None:
            other = Answer(compiled, self._table.compute(compiled, columns, None, progress, plan.finish, way=way), self._table.rows, plan.finish)
        if compared is not None and plan.compared is not None:
            words, of_rounds = compared
            return ComparedAnswer(other, words, self._table.rows, plan.compared, of_rounds)
        return Answer(None, None, self._table.rows, plan.finish) if other is None else other

    asimulate = twin(simulate)
    acompile = twin(compile)
    aexplain = twin(explain)
    acost = twin(cost)
    arun = twin(run)

    def __repr__(self) -> str:
        parts = [f"table {self._table.name}"]
        if self._condition is not None:
            parts.append(f"where {self._condition.name}")
        if self._key is not None:
            parts.append(f"by {self._key.name}")
        parts.extend(f"{name} = {result.name}" for name, result in (self._results or {}).items())
        return f"<Query: {', '.join(parts)}>"


class _Histogram(Query):
    def __init__(self, question: Query, value: Expr, edges: tuple[int, ...]) -> None:
        super().__init__(question._table, question._condition, None, {"count": count()}, question._joined)
        self._value = value
        self._edges = edges

    def _plan(self, rows: int | None = None) -> _Plan:
        bins = list(itertools.pairwise(self._edges))
        results = {f"bin{place}": Aggregate("sum", self._between(low, high)) for place, (low, high) in enumerate(bins)}
        plan = Query(self._table, self._condition, None, results, self._joined)._plan(rows)
        return replace(plan, finish=replace(plan.finish, bins=tuple(bins)))

    def _between(self, low: int, high: int) -> Expr:
        return (self._value >= low) & (self._value < high)


class _Sorted(Query):
    def __init__(self, question: Query, by: str | Expr, descending: bool, count: int | None) -> None:
        if question._key is not None or any(isinstance(result, Aggregate) for result in (question._results or {}).values()):
            raise ValueError("rows are sorted, and aggregates are not: sort the answer once it is decrypted")
        table = question._table
        results = question._results or {name: col(name) for name in [*table.columns, *question._joined]}
        super().__init__(table, question._condition, None, results, question._joined)
        if not isinstance(by, (str, Expr)):
            raise _wrong_key("what rows are sorted by", by)
        self._by = col(by) if isinstance(by, str) else by
        self._descending = descending
        self._count = count

    def _plan(self, rows: int | None = None) -> _Plan:
        table = self._table
        rows = table.rows if rows is None else rows
        count = min(rows, self._count or rows)
        results = {name: result for name, result in (self._results or {}).items() if isinstance(result, Expr)}
        graph, values, inputs = self._start(results, self._by)
        words = Words(table, graph, _message_bits(table))
        plain = _plain_column(self._by, table)
        last = None
        if self._condition is not None:
            # Rows that count come first, whichever way the keys go.
            holds = graph.value(self._condition.of(values))
            last = holds if self._descending else 1 - holds
        key, own = words.of_key(self._by.of(values), plain, last)
        numbers = list(own)
        places: dict[str, tuple[Carried, int, int] | None] = {}
        for name, result in results.items():
            column = _plain_column(result, table)
            if column is not None and column == plain:
                places[name] = None
                continue
            carried, added = (words.of_column(column) if column is not None else None) or words.of_value(graph.value(result.of(values)))
            places[name] = (carried, len(numbers), len(numbers) + len(added))
            numbers.extend(added)
        payload = [words.digits[number] for number in numbers[len(own) :]]
        network = located(self._by.place, Network.of, key.carried, payload, numbers, rows, count, self._descending)
        compared = Sorted(places, key, len(own), count, None if last is None else self._descending)
        return _Plan(None, (), Finish(()), words.rounds(inputs, [network]), compared)


@dataclass(frozen=True)
class EncryptedParts:
    """The results of ranges of rows, in their order: what the drives of a cluster give. Each is the number of rows and their encrypted results, by the
    drives that computed them: the first one counts, and the others check it."""

    parts: tuple[tuple[int, Mapping[str, _core.EncryptedRows]], ...]


def decrypted(
    client: Client, compiled: Compiled, encrypted: _core.EncryptedRows | EncryptedParts, rows: int, max_log2_failure: float
) -> dict[str, list[int]]:
    """The outputs of a program by their names. Sums of ranges of rows add up.

    Raises:
        UntrustedError: Drives that computed the same rows differ.
    """

    def decoded(part: _core.EncryptedRows, size: int) -> dict[str, list[int]]:
        return compiled.decode(client.decrypt(part, max_log2_failure=max_log2_failure), size)

    if isinstance(encrypted, _core.EncryptedRows):
        return decoded(encrypted, rows)
    found: list[dict[str, list[int]]] = []
    first = 0
    for size, by_drive in encrypted.parts:
        copies = {drive: decoded(part, size) for drive, part in by_drive.items()}
        _agree(copies, (first, first + size))
        found.append(next(iter(copies.values())))
        first += size
    return {
        name: [sum(part[name][0] for part in found)] if name in compiled.sums else [number for part in found for number in part[name]]
        for name in found[0]
    }


def _agree(copies: Mapping[str, dict[str, list[int]]], rows: tuple[int, int]) -> None:
    """Refuses results of the same rows that differ. The drives that are alone against most of the others are named, or all if there is no majority."""
    votes = list(copies.values())
    if all(vote == votes[0] for vote in votes):
        return
    against = [drive for drive, vote in copies.items() if 2 * votes.count(vote) <= len(votes)]
    raise UntrustedError(
        f"drives differ on rows {rows[0]}..{rows[1]}: " + (f"{against[0]} is wrong" if len(against) == 1 else f"one of {', '.join(against)} is wrong"),
        drives=tuple(against),
    )


@dataclass(frozen=True, repr=False)
class Answer:
    """The encrypted answer to a question: `client.decrypt` makes a dictionary of it, of numbers, or of arrays where there are groups or rows.
    It can be pickled. There is nothing encrypted in it where the answer depends on no encrypted number, such as the number of all rows."""

    compiled: Compiled | None
    encrypted: _core.EncryptedRows | EncryptedParts | None
    rows: int
    finish: Finish

    def __toroid_decrypt__(self, client: Client, max_log2_failure: float) -> dict[str, Any]:
        if self.compiled is None or self.encrypted is None:
            return self.finish({})
        return self.finish(decrypted(client, self.compiled, self.encrypted, self.rows, max_log2_failure))

    def __repr__(self) -> str:
        return f"<Answer: of {self.rows} rows{'' if self.compiled is None else f' of {self.compiled.params}'}>"


@dataclass(frozen=True, repr=False)
class ComparedAnswer:
    """The encrypted answer to a question that compares rows with each other, which `client.decrypt` reads as it does an [Answer][toroid.Answer]. It can be
    pickled. `log2_failure` is log2 of the probability that the drive did something wrong with some rows, all rounds together."""

    other: Answer | None
    words: list[list[_core.EncryptedRows]]
    rows: int
    finish: Extremes | Sorted
    log2_failure: float

    def __toroid_decrypt__(self, client: Client, max_log2_failure: float) -> dict[str, Any]:
        if self.log2_failure > max_log2_failure:
            raise NoiseError(f"some comparison is wrong with a probability of 2^{self.log2_failure:.1f}, above the limit of 2^{max_log2_failure:.1f}")
        outputs: Mapping[str, list[int]] = {}
        if self.other is not None and self.other.compiled is not None and self.other.encrypted is not None:
            outputs = decrypted(client, self.other.compiled, self.other.encrypted, self.other.rows, max_log2_failure)
        words = [[np.asarray(client.decrypt(rows, max_log2_failure=max_log2_failure)).tolist() for rows in network] for network in self.words]
        return self.finish(outputs, words)

    def __repr__(self) -> str:
        return f"<ComparedAnswer: of {self.rows} rows>"


def _wrong_key(what: str, key: object) -> TypeError:
    """The refusal of a key that is neither a column nor an expression."""
    return TypeError(
        f"{what} is a column or an expression, not {type(key).__name__}: several columns make one key, such as col(\"a\") * 10 + col(\"b\")"
    )


def _condition(expression: object) -> Expr:
    """A condition, refused where it may be another number than 0 and 1."""
    if not isinstance(expression, Expr):
        raise TypeError(f"a condition compares columns, such as col(\"salary\") > 1000; it is no {type(expression).__name__}")

    def checked(value: Any) -> Any:
        if not is_condition(value):
            interval = str(value.interval) if isinstance(value, Value) else str(value)
            refuse(f"the condition {expression.name} is {interval}, and a condition is 0 or 1", interval=interval, help="compare it, for example with `!= 0`")
        return value

    return Expr(checked, "{}", (expression,))


def condition_of(where: object) -> Expr:
    """The condition by which rows count, of the name of a column, or one as it is.

    Raises:
        TypeError: It is neither.
    """
    if isinstance(where, str):
        return _condition(col(where))
    if isinstance(where, Expr):
        return _condition(where)
    raise TypeError(
        f"where is the name of a column of 0 and 1, or a condition, not {type(where).__name__}: encrypt a mask as one more column of the table; "
        "one that the drive may see goes with Drive.run"
    )


def _plain_columns(data: object) -> dict[str, Sequence[Any]]:
    """Columns of plain numbers by their names, of a dict or a data frame.

    Raises:
        TypeError: They are none.
        ValueError: The columns have different numbers of rows.
    """
    columns = columns_of(data)
    if columns is None:
        raise TypeError(f"a simulation takes a dict of columns of plain numbers, or a data frame, not {type(data).__name__}")
    found: dict[str, Any] = {}
    for name, column in columns.items():
        # Columns of frames have elements of their own kinds.
        found[name] = np.asarray(column) if hasattr(column, "__array__") else column
        if not hasattr(column, "__len__") or getattr(found[name], "ndim", 1) != 1:
            raise TypeError(f"{name}: expected a list or an array of one dimension, not {type(column).__name__}")
    if found:
        check_rows(found)
    return found


def _masked(mask: Any, value: Any) -> Any:
    return select(mask, value, 0)


def _both(one: Value, other: Value | None) -> Value:
    return one if other is None else one & other


def _looked_up(on: str, rows: Mapping[int, int], column: Sequence[int], missing: int) -> Callable[[Mapping[str, Value]], Value]:
    """The number of a column in the row of an encrypted key, or another one where no row has it."""

    def of(values: Mapping[str, Value]) -> Value:
        interval = values[on].interval
        outside = [key for key in rows if key not in interval]
        if outside:
            refuse(f"key {outside[0]} of the table to join is outside {interval}, where those of column {on} lie", interval=str(interval))
        return values[on].table(lambda key: column[rows[key]] if key in rows else missing)

    return of


def _message_bits(table: BaseTable) -> int:
    """The bits of a message of a table's parameter set."""
    return next(bits for name, bits, _ in _core.parameter_sets() if name == table.params)


def _plain_column(expression: Expr, table: BaseTable) -> str | None:
    """The column that an expression is, if it is one and nothing else."""
    return expression.name if list(expression.columns) == [expression.name] and expression.name in table.columns else None


def dtype_of(low: int, high: int) -> str:
    """Numpy's name of the type of numbers from `low` to `high`: int64, or uint64 where they end above it; objects where neither has them all."""
    if -(1 << 63) <= low and high < 1 << 63:
        return "int64"
    return "uint64" if 0 <= low and high < 1 << 64 else "object"


def _integers(numbers: Sequence[int]) -> np.ndarray:
    """Numbers that everybody knows as an array. Of some below and some above 2^63 numpy itself would make floating-point numbers."""
    return np.array(numbers, dtype=dtype_of(min(numbers), max(numbers)))


def hull(intervals: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """The least interval that has all of some."""
    lows, highs = zip(*intervals, strict=True)
    return min(lows), max(highs)
