"""Questions to a table: which rows, which values, and what becomes of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from toroid import _core
from toroid._errors import MissingError, UntrustedError
from toroid._expr import Aggregate, Expr, as_expr, col, count
from toroid._progress import Progress, awaited
from toroid._trace import Graph, Value, index_of, located, refuse, select

if TYPE_CHECKING:
    from toroid._client import Client
    from toroid._drive import BaseTable
    from toroid._program import Compiled, Cost

#: The most values that a key of groups may have: each is a function of the key.
MAX_GROUPS = 256


@dataclass(frozen=True)
class Finish:
    """What becomes of the outputs of a question's program once they are decrypted. It is plain data, so that it can be stored.

    `results` are the names of the results and what they are: value, sum, count or mean. `groups` are the values of the key `key`; one group without a key.
    `known` are outputs that do not depend on encrypted numbers, `has_where` tells whether rows come with the condition, `bins` are those of a histogram.
    """

    results: tuple[tuple[str, str], ...]
    groups: tuple[int, ...] = (0,)
    key: str | None = None
    known: Mapping[str, int] = field(default_factory=dict)
    has_where: bool = False
    bins: tuple[tuple[int, int], ...] | None = None

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
        )

    def __call__(self, outputs: Mapping[str, list[int]]) -> dict[str, Any]:
        """The answer from the outputs by their names."""
        if any(kind == "value" for _, kind in self.results):
            found = {name: _array(outputs[f"r{place}"]) for place, (name, _) in enumerate(self.results)}
            return {**found, "where": np.array(outputs["where"], dtype=np.bool_)} if self.has_where else found

        def number(name: str) -> int:
            return self.known[name] if name in self.known else outputs[name][0]

        found = {} if self.key is None else {self.key: np.array(self.groups)}
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
            found[name] = _array(column) if self.key is not None else column[0]
        if self.bins is None:
            return found
        low, high = zip(*self.bins, strict=True)
        return {"low": np.array(low), "high": np.array(high), "count": np.array([found[name] for name, _ in self.results])}


@dataclass(frozen=True)
class _Plan:
    """A graph, and what becomes of its outputs once they are decrypted."""

    graph: str
    inputs: tuple[str, ...]
    finish: Finish


class Query:
    """A question to a table. Nothing runs before [Query.run][]; each method gives a new question."""

    def __init__(
        self, table: BaseTable, condition: Expr | None = None, key: Expr | None = None, results: Mapping[str, Expr | Aggregate] | None = None
    ) -> None:
        self._table = table
        self._condition = condition
        self._key = key
        self._results = results

    def where(self, condition: Expr) -> Query:
        """Counts only rows for which the condition holds, beside the conditions that there are. The drive does not learn which they are."""
        both = condition if self._condition is None else self._condition & condition
        return Query(self._table, both, self._key, self._results)

    def group_by(self, key: str | Expr) -> Query:
        """Aggregates the rows of each value of a key on their own. The key has at most 256 possible values."""
        return Query(self._table, self._condition, col(key) if isinstance(key, str) else key, self._results)

    def agg(self, **results: Aggregate) -> Query:
        """Makes sums, counts and means, by the names that they shall have."""
        for name, result in results.items():
            if not isinstance(result, Aggregate):
                raise TypeError(f"{name} is no sum, count or mean: write toroid.col({name!r}).sum(), or toroid.count()")
        return self._with(results)

    def select(self, *columns: str | Expr, **named: Expr) -> Query:
        """Computes values of every row. Rows for which a condition does not hold are there, too, since nobody but the client knows them: the result
        has a column `where` that says whether it holds."""
        results: dict[str, Expr | Aggregate] = {}
        for column in columns:
            expression = col(column) if isinstance(column, str) else column
            results[expression.name] = expression
        results.update({name: as_expr(expression) for name, expression in named.items()})
        if self._key is not None:
            raise ValueError("groups have sums, counts and means: use agg")
        return self._with(results)

    def histogram(self, column: str | Expr, edges: list[int]) -> Query:
        """Counts the rows between neighbours of ascending edges, the lower one included: `edges[0] <= value < edges[1]` and so on.

        The result has the columns `low`, `high` and `count`.
        """
        if len(edges) < 2 or any(low >= high for low, high in itertools.pairwise(edges)):
            raise ValueError("edges of a histogram ascend, and there are at least two")
        return _Histogram(self._table, self._condition, col(column) if isinstance(column, str) else column, tuple(edges))

    def _with(self, results: Mapping[str, Expr | Aggregate]) -> Query:
        if not results:
            raise ValueError("the question asks for nothing")
        for name in results:
            if not name.isascii() or not name.isidentifier():
                raise ValueError(f"{name!r} cannot name a result: names are ASCII identifiers")
        return Query(self._table, self._condition, self._key, results)

    def _start(self) -> tuple[Graph, dict[str, Value]]:
        """A graph with the columns that the question looks at."""
        graph, values = Graph(), {}
        wanted = [self._condition, self._key, *(self._results or {}).values()]
        named = {name: line for expression in wanted if expression is not None for name, line in expression.columns.items()}
        for place, name in enumerate(sorted(named)):
            column = self._table.columns.get(name)
            if column is None:
                file, line = named[name]
                raise MissingError(f"{file}:{line}: table {self._table.name} has no column {name}; it has {', '.join(self._table.columns)}")
            values[name] = graph.input(f"c{place}", column.layout.low, column.layout.high)
        return graph, values

    def _plan(self) -> _Plan:
        if self._results is None:
            raise ValueError("the question asks for nothing: add agg, select or histogram")
        graph, values = self._start()
        holds = None if self._condition is None else graph.value(self._condition.of(values))
        if any(isinstance(result, Aggregate) for result in self._results.values()):
            finish = self._aggregates(graph, values, holds)
        else:
            finish = self._values(graph, values, holds)
        return _Plan(graph.text(), tuple(values), finish)

    def _values(self, graph: Graph, values: Mapping[str, Value], holds: Value | None) -> Finish:
        results = dict(self._results or {})
        for place, expression in enumerate(results.values()):
            assert isinstance(expression, Expr)
            graph.output(f"r{place}", graph.value(expression.of(values)))
        if holds is not None:
            graph.output("where", holds)
        return Finish(tuple((name, "value") for name in results), has_where=holds is not None)

    def _aggregates(self, graph: Graph, values: Mapping[str, Value], holds: Value | None) -> Finish:
        groups: list[tuple[int | None, Value | None]] = [(None, holds)]
        if self._key is not None:
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
            groups = [(number, _both(key == number, holds)) for number in range(interval.low, interval.high + 1)]
        rows = self._table.rows
        known: dict[str, int] = {}

        def total(name: str, value: Value | int) -> None:
            if isinstance(value, Value):
                graph.output(name, graph.sum(value))
            else:
                known[name] = value * rows

        for group, (_, member) in enumerate(groups):
            counted = False
            for place, result in enumerate((self._results or {}).values()):
                assert isinstance(result, Aggregate)
                if result.of is not None:
                    value = result.of.of(values)
                    total(f"s{group}_{place}", value if member is None else select(member, value, 0))
                if result.kind != "sum" and not counted:
                    counted = True
                    total(f"n{group}", 1 if member is None else member)
        kinds = [(name, result.kind) for name, result in (self._results or {}).items() if isinstance(result, Aggregate)]
        if self._key is None:
            return Finish(tuple(kinds), known=known)
        return Finish(tuple(kinds), tuple(number for number, _ in groups if number is not None), self._key.name, known)

    def simulate(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """What the question gives, in clear and exactly, of columns of plain numbers by their names.

        Raises:
            GraphError: A number lies outside the type of its column.
        """
        plan = self._plan()
        columns = {f"c{place}": [index_of(number) for number in data[name]] for place, name in enumerate(plan.inputs)}
        return plan.finish(_core.evaluate(plan.graph, columns))

    def compile(self, log2_failure: float = -128.0) -> Compiled:
        """The program of the drive.

        Args:
            log2_failure: log2 of the probability that what is computed of a row may be wrong with; the client refuses results that are wrong with more
                than 2^-64, all rows together.

        Raises:
            GraphError: The parameter set of the table cannot compute it.
        """
        return self._compiled(self._plan(), log2_failure)

    def _compiled(self, plan: _Plan, log2_failure: float) -> Compiled:
        from toroid._program import Compiled

        layouts = {f"c{place}": self._table.columns[name].layout.described() for place, name in enumerate(plan.inputs)}
        # A bound for all rows together, as a row's.
        rows = self._table.rows
        bound = log2_failure + float(np.log2(rows))
        options = {"sets": [self._table.params], "rows": rows, "log2_failure": min(bound, 0.0), "inputs": layouts}
        return Compiled(_core.compile(plan.graph, json.dumps(options)))

    def explain(self, log2_failure: float = -128.0, *, format: str = "text") -> str:
        """What the question computes and costs: with the format "text" the graph, its costs and the program of the drive, with "svg" a picture of the
        graph. `log2_failure` and the errors are those of [Query.compile][]; another format raises ValueError."""
        from toroid._program import explained

        plan = self._plan()
        return explained(plan.graph, self._compiled(plan, log2_failure), format)

    def cost(self, log2_failure: float = -128.0) -> Cost:
        """What a row costs, before anything runs; options are those of [Query.compile][]."""
        return self.compile(log2_failure).cost

    def run(self, *, log2_failure: float = -128.0, progress: Progress = None) -> Answer:
        """Has the drive compute the answer, which `client.decrypt` reads.

        Args:
            log2_failure: As [Query.compile][] has it.
            progress: True for a line that shows how far it is, or a callable of the stage, the steps done and those in total.

        Raises:
            GraphError: As [Query.compile][] has it.
            DriveError: The drive does not do it. Ctrl-C ends the run with KeyboardInterrupt; the same call then goes on where it was.
        """
        plan = self._plan()
        compiled = self._compiled(plan, log2_failure)
        columns = {f"c{place}": name for place, name in enumerate(plan.inputs)}
        encrypted = self._table.compute(compiled, columns, None, progress, plan.finish)
        return Answer(compiled, encrypted, self._table.rows, plan.finish)

    async def arun(self, **options: Any) -> Answer:
        """`run`, to await. Cancelling the task ends the run, as Ctrl-C does."""
        return await awaited(self.run, **options)

    def __repr__(self) -> str:
        parts = [f"table {self._table.name}"]
        if self._condition is not None:
            parts.append(f"where {self._condition.name}")
        if self._key is not None:
            parts.append(f"by {self._key.name}")
        parts.extend(f"{name} = {result.name}" for name, result in (self._results or {}).items())
        return f"<Query: {', '.join(parts)}>"


class _Histogram(Query):
    def __init__(self, table: BaseTable, condition: Expr | None, value: Expr, edges: tuple[int, ...]) -> None:
        super().__init__(table, condition, None, {"count": count()})
        self._value = value
        self._edges = edges

    def _plan(self) -> _Plan:
        bins = list(itertools.pairwise(self._edges))
        results = {f"bin{place}": Aggregate("sum", self._between(low, high)) for place, (low, high) in enumerate(bins)}
        plan = Query(self._table, self._condition, None, results)._plan()
        return replace(plan, finish=replace(plan.finish, bins=tuple(bins)))

    def _between(self, low: int, high: int) -> Expr:
        return (self._value >= low) & (self._value < high)


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
    It can be pickled."""

    compiled: Compiled
    encrypted: _core.EncryptedRows | EncryptedParts
    rows: int
    finish: Finish

    def __toroid_decrypt__(self, client: Client, max_log2_failure: float) -> dict[str, Any]:
        return self.finish(decrypted(client, self.compiled, self.encrypted, self.rows, max_log2_failure))

    def __repr__(self) -> str:
        return f"<Answer: of {self.rows} rows of {self.compiled.params}>"


def _both(one: Value, other: Value | None) -> Value:
    return one if other is None else one & other


def _array(numbers: list[Any]) -> Any:
    if any(isinstance(number, float) for number in numbers):
        return np.array(numbers, dtype=np.float64)
    fits = all(-(1 << 63) <= number < 1 << 63 for number in numbers)
    return np.array(numbers, dtype=np.int64) if fits else numbers
