"""Ordinary functions as programs: `@toroid.table` evaluates a function on every value, `@toroid.program` records what it does."""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from toroid import _core
from toroid._client import Client
from toroid._columns import Layout
from toroid._drive import BaseTable, Way
from toroid._errors import GraphError, MissingError
from toroid._expr import Expr, applied
from toroid._picture import Part, picture
from toroid._progress import Progress, twin
from toroid._query import EncryptedParts, condition_of, decrypted, dtype_of
from toroid._trace import MAX_TABLE_ENTRIES, Graph, Value, check_within, entry_of, graph_of, index_of, integer_of, where_of
from toroid._types import Range, failure_of, len_of, range_of


@dataclass(frozen=True)
class _Signature:
    """The arguments of a function: their intervals, the numbers that stand for those which are not given, those that go by name alone, and the interval of
    the result, where an annotation has it."""

    ranges: dict[str, Range]
    defaults: dict[str, int]
    by_name: tuple[str, ...]
    result: Range | None

    @staticmethod
    def of(function: Callable[..., Any], given: Mapping[str, Any]) -> _Signature:
        """From annotations, and from types that are given beside them.

        Raises:
            GraphError: An argument has no type, or a default of another type; or the function is none that gives its result when it is called.
            TypeError: It is no function.
        """
        if not callable(function):
            raise TypeError(f"tables and programs are made of functions, and {function!r} is none")
        where = where_of(function)

        def refused(message: str) -> GraphError:
            return GraphError(f"{where}: {message}", line=where)

        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise refused(f"{function.__name__} is async, or a generator: give an ordinary function, which returns what it computes")
        try:
            annotations = inspect.get_annotations(function, eval_str=True)
            parameters = inspect.signature(function).parameters
        except Exception as error:
            # An annotation may be text, which is any code.
            raise refused(f"an annotation, or an argument, cannot be read: {type(error).__name__}: {error}") from error
        ranges, defaults, by_name = {}, {}, []
        for name, parameter in parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise refused(f"{function.__name__} takes any number of arguments, and a program has a fixed number")
            found = range_of(given.get(name, annotations.get(name)))
            if found is None:
                raise refused(f"argument `{name}` needs a type such as toroid.u16, or Annotated[int, toroid.Range(low, high)]")
            ranges[name] = found
            if parameter.default is not parameter.empty:
                try:
                    defaults[name] = index_of(parameter.default)
                except TypeError:
                    raise refused(f"argument `{name}` is {found}, and its default is {parameter.default!r}") from None
                if defaults[name] not in found:
                    raise refused(f"argument `{name}` is {found}, and its default is {defaults[name]}")
            if parameter.kind is parameter.KEYWORD_ONLY:
                by_name.append(name)
        if unknown := sorted(set(given) - set(ranges)):
            raise refused(f"{function.__name__} has no argument `{unknown[0]}`")
        return _Signature(ranges, defaults, tuple(by_name), range_of(annotations.get("return")))


def _bound(function: str, ranges: Mapping[str, Range], defaults: Mapping[str, int], arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by their names, in their order; those that are not given have their defaults.

    Raises:
        TypeError: An argument is missing, unknown, or given twice.
    """
    if len(arguments) > len(ranges):
        raise TypeError(f"{function} takes {len(ranges)} arguments, not {len(arguments)}")
    given = dict(zip(ranges, arguments, strict=False))
    for name, argument in named.items():
        if name not in ranges:
            raise TypeError(f"{function} has no argument {name}; its arguments are {', '.join(ranges)}")
        if name in given:
            raise TypeError(f"argument {name} of {function} is given twice")
        given[name] = argument
    given = {**defaults, **given}
    if missing := [name for name in ranges if name not in given]:
        raise TypeError(f"{function} lacks its argument {missing[0]}")
    return {name: given[name] for name in ranges}


def _name_of(made: Table | Program) -> str | None:
    """The name by which another process finds what was made of a function: that of the function, if its module has it there."""
    found: Any = None if made.__module__ == "__main__" else sys.modules.get(made.__module__)
    for part in made.__qualname__.split("."):
        found = getattr(found, part, None)
    return made.__qualname__ if found is made else None


class Table:
    """A function of one number, or of two, as a table of its values. It can be pickled.

    Args:
        function: The function. It is called once with every value, or with every pair, when the table is first used; it is neither async nor a generator.
        out: The type of the results; the annotation of the result, or nothing, if not given.

    Raises:
        GraphError: An argument has no type, or there are more than 65,536 values; when it is used: the function raises, gives no integer, or one
            outside `out`.
    """

    __name__: str
    __qualname__: str

    def __init__(self, function: Callable[..., Any], out: Any = None) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        signature = _Signature.of(function, {})
        self._ranges, self._defaults, self._by_name = signature.ranges, signature.defaults, signature.by_name
        self._out = signature.result if out is None else range_of(out)
        where = where_of(function)
        if out is not None and self._out is None:
            raise GraphError(f"{where}: out={out!r} is no type such as toroid.u16", line=where)
        if len(self._ranges) not in (1, 2):
            raise GraphError(f"{where}: a table has one argument or two, not {len(self._ranges)}", line=where, help="use @toroid.program")
        entries = 1
        for numbers in self._ranges.values():
            entries *= len_of(numbers)
        if entries > MAX_TABLE_ENTRIES:
            raise GraphError(
                f"{where}: the arguments have {entries} values, and a table has at most {MAX_TABLE_ENTRIES} entries",
                line=where,
                help="take narrower types, or @toroid.program",
            )

    @functools.cached_property
    def entries(self) -> list[int]:
        """The function's value for each argument from the lowest; of two arguments for each first one all of the second."""
        first, *rest = (range(numbers.low, numbers.high + 1) for numbers in self._ranges.values())
        arguments = [(x,) for x in first] if not rest else [(x, y) for x in first for y in rest[0]]
        entries = []
        for numbers in arguments:
            entry = entry_of(self._function, numbers, self._by_name)
            if self._out is not None and entry not in self._out:
                where, shown = where_of(self._function), ", ".join(map(str, numbers))
                raise GraphError(
                    f"{where}: {self._function.__name__}({shown}) is {entry}, outside {self._out}",
                    line=where,
                    interval=str(self._out),
                    help="take a wider `out`",
                )
            entries.append(entry)
        return entries

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The function's value: a number of numbers, an encrypted value of encrypted ones. What is not given has its default.

        Raises:
            TypeError: An argument is missing, unknown, or given twice.
            GraphError: An argument may lie outside its type.
        """
        arguments = tuple(_bound(self.__name__, self._ranges, self._defaults, arguments, named).values())
        if (expression := applied(self, self.__name__, arguments)) is not None:
            return expression
        graph = graph_of(arguments)
        if graph is None:
            return self._plain(arguments)
        values = []
        for (name, numbers), argument in zip(self._ranges.items(), arguments, strict=True):
            value = graph.value(argument)
            found = value.interval
            check_within(f"argument `{name}` of {self.__name__}", found, numbers)
            values.append((value, numbers, found))
        # The table of the values that the arguments can have.
        places = [range(found.low - numbers.low, found.high - numbers.low + 1) for _, numbers, found in values]
        names = ", ".join(value._name for value, _, _ in values)
        entries = self.entries
        if len(values) == 1:
            chosen: Iterable[int] = (entries[place] for place in places[0])
        else:
            row = len_of(values[1][1])
            chosen = (entries[x * row + y] for x in places[0] for y in places[1])
        return graph.record(f"table({names}, [{', '.join(map(str, chosen))}])")

    @staticmethod
    def _of_entries(name: str, ranges: dict[str, Range], defaults: dict[str, int], out: Range | None, entries: list[int]) -> Table:
        """A table without its function."""
        made = Table.__new__(Table)
        made.__name__ = made.__qualname__ = name
        made._ranges, made._defaults, made._out, made.entries = ranges, defaults, out, entries
        return made

    def __reduce__(self) -> str | tuple[Callable[..., Table], tuple[Any, ...]]:
        return _name_of(self) or (Table._of_entries, (self.__name__, self._ranges, self._defaults, self._out, self.entries))

    def __copy__(self) -> Table:
        return self

    def __deepcopy__(self, _memo: object) -> Table:
        return self

    def _plain(self, arguments: Sequence[Any]) -> int:
        place = 0
        for (name, numbers), argument in zip(self._ranges.items(), arguments, strict=True):
            number = integer_of(f"argument `{name}` of {self.__name__}", argument)
            if number not in numbers:
                raise ValueError(f"argument `{name}` of {self.__name__} is {numbers}, not {number}")
            place = place * len_of(numbers) + number - numbers.low
        return self.entries[place]

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}: {numbers}" for name, numbers in self._ranges.items())
        return f"<table {self.__name__}({arguments})>"


@dataclass(frozen=True)
class Cost:
    """What a program takes for a row: functions applied, seconds on one core of the machine whose times are documented, log2 of the probability
    that a result of the row is wrong, bytes of keys, of inputs and of results."""

    params: str
    bootstraps: int
    tasks: int
    seconds_per_row: float
    log2_failure: float
    key_bytes: int
    input_bytes_per_row: int
    result_bytes_per_row: int

    def __str__(self) -> str:
        return (
            f"{self.bootstraps} functions of {self.tasks} samples a row with {self.params}: {self.seconds_per_row:.3g} s on one core; "
            f"failure 2^{self.log2_failure:.1f}; keys {self.key_bytes / 1e6:.1f} MB, inputs {self.input_bytes_per_row} and results "
            f"{self.result_bytes_per_row} bytes a row"
        )


class Compiled:
    """A program of the drive, with how its inputs are encrypted and its results are read. It can be pickled."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._facts: dict[str, Any] = json.loads(text)

    @property
    def params(self) -> str:
        """The parameter set."""
        return str(self._facts["set"])

    @property
    def program(self) -> str:
        """The text of the program, in the language of the drive."""
        return str(self._facts["program"])

    @property
    def code(self) -> list[str]:
        """The lines of the program without those of comments, which name the lines of the caller: what tells one computation from another."""
        return [line for line in self.program.splitlines() if not line.lstrip().startswith(";")]

    @property
    def cost(self) -> Cost:
        """What a row costs."""
        return Cost(self.params, **self._facts["cost"])

    @property
    def alternatives(self) -> dict[str, Cost | str]:
        """What the program costs with each parameter set that was asked for, or why it is refused there."""
        return {
            each["set"]: Cost(each["set"], **each["cost"]) if each["cost"] is not None else str(each["refused"]) for each in self._facts["alternatives"]
        }

    @property
    def sums(self) -> frozenset[str]:
        """The names of the outputs that are sums of all rows."""
        return frozenset(output["name"] for output in self._facts["outputs"] if output["sum"])

    def dtype(self, output: str, rows: int) -> str:
        """Numpy's name of the type of an output of so many rows."""
        found = next(each for each in self._facts["outputs"] if each["name"] == output)
        times = rows if found["sum"] else 1
        return dtype_of(found["interval"]["low"] * times, found["interval"]["high"] * times)

    @property
    def group(self) -> int | None:
        """How many rows at most the drive adds up in one row of the result; nothing without sums."""
        return self._facts["group"] or None

    def explain(self) -> str:
        """What the program does and costs, as text: the cost and that of other parameter sets, how inputs are encrypted, where results stand, and
        the program of the drive, whose comments name the lines that its parts come from."""
        lines = [f"cost: {self.cost}"]
        lines.extend(f"  {name}: {cost}" for name, cost in self.alternatives.items() if name != self.params)
        for given in self._facts["inputs"]:
            interval, digits = given["interval"], given["layout"]["digits"]
            shown = ", ".join(f"{digit['bits']} bits{' with a sign' if digit['signed'] else ''} from bit {digit['shift']} on" for digit in digits)
            lines.append(f"input {given['name']}, {interval['low']}..{interval['high']}: {shown}")
        for output in self._facts["outputs"]:
            parts = ", ".join(f"{part['bits']} bits of row {part['row']} from bit {part['shift']} on, times {part['factor']}" for part in output["parts"])
            lines.append(f"output {output['name']}{', the sum of all rows' if output['sum'] else ''}: {parts or 'a constant'}")
        lines.append(f"a result has {self._facts['result_rows']} rows for each {'group of ' + str(self._facts['group']) if self._facts['group'] else 'row'}")
        return "\n".join([*lines, "", self.program])

    @property
    def result_rows(self) -> int:
        """Rows of the result for each row of the inputs."""
        return int(self._facts["result_rows"])

    def places(self, output: str, digits: Sequence[tuple[int, int]]) -> list[int]:
        """The rows of the result that the digits of an output stand in, each in one of its own, of their bits and those below them.

        Raises:
            GraphError: They do not.
        """
        found = next(each for each in self._facts["outputs"] if each["name"] == output)
        parts = {part["factor"]: part for part in found["parts"]}
        places = []
        for bits, shift in digits:
            part = parts.pop(1 << shift, None)
            if part is None or part["shift"] or part["bits"] > bits:
                break
            places.append(int(part["row"]))
        if parts or found["offset"] or len(places) < len(digits):
            raise GraphError(f"output {output} of the program has other digits than its inputs have: {found['parts']}")
        return places

    def registers(self, inputs: Mapping[str, Sequence[str]]) -> dict[str, str]:
        """The columns of the drive that stand in the program's registers, from those of the digits of each input."""
        found: dict[str, str] = {}
        for given in self._facts["inputs"]:
            found.update(zip(given["registers"], inputs[given["name"]], strict=True))
        return found

    def decode(self, numbers: Any, rows: int) -> dict[str, list[int]]:
        """The outputs from the decrypted numbers of a result of as many rows of the inputs."""
        return _core.decode(self._text, numbers, rows)

    def __reduce__(self) -> tuple[type[Compiled], tuple[str]]:
        return (Compiled, (self._text,))

    def __repr__(self) -> str:
        return f"<Compiled: {self.cost}>"


@dataclass(frozen=True, repr=False)
class Result:
    """The encrypted results of a program: `client.decrypt` makes arrays of them, by the names of the outputs. It can be pickled."""

    compiled: Compiled
    encrypted: _core.EncryptedRows | EncryptedParts
    rows: int

    def __toroid_decrypt__(self, client: Client, max_log2_failure: float) -> Any:
        found = decrypted(client, self.compiled, self.encrypted, self.rows, max_log2_failure)
        outputs = {name: np.array(column, dtype=self.compiled.dtype(name, self.rows)) for name, column in found.items()}
        return outputs["result"] if list(outputs) == ["result"] else outputs

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        return f"<Result: {self.rows} rows of {self.compiled.params}>"


def explained(graph: str, compiled: Compiled, format: str) -> str:
    """A graph and the program that it became, as text or as a picture.

    Raises:
        ValueError: There is no such format.
    """
    if format == "text":
        return f"{graph}\n{compiled.explain()}"
    if format == "svg":
        return picture(Part(graph, str(compiled.cost), compiled.program))
    raise ValueError(f"format is 'text' or 'svg', not {format!r}")


class GraphProgram:
    """A program from the text of a graph.

    Args:
        text: The graph, in the text form of the compiler.
        inputs: Its inputs, with the values that they may have.
        outputs: The names of its outputs.
        where: The place that made it, for errors.
        defaults: The numbers that inputs have where they are not given.
    """

    def __init__(self, text: str, inputs: Mapping[str, Range], outputs: Sequence[str], where: str, defaults: Mapping[str, int] | None = None) -> None:
        self._text = text
        self._ranges = dict(inputs)
        self._outputs = list(outputs)
        self._where = where
        self._defaults = dict(defaults or {})

    @property
    def inputs(self) -> dict[str, Range]:
        """The arguments, with the values that they may have."""
        return dict(self._ranges)

    @property
    def outputs(self) -> list[str]:
        """The names of the results."""
        return list(self._outputs)

    @property
    def text(self) -> str:
        """The graph as recorded, in the text form of the compiler."""
        return self._text

    def simulate(self, *arguments: Any, **columns: Any) -> Any:
        """What the program computes, in clear and exactly: of numbers a number, of columns a column.

        Args:
            arguments: Numbers, or one-dimensional columns of equally many, in the order of the function's arguments.
            columns: The same by their names.

        Returns:
            The result; a dictionary of results where the program has several. Columns are arrays of int64, of uint64 where the result may be above it, or of
            objects where neither has all its values.

        Raises:
            TypeError: An argument is missing, unknown, or given twice, or has something else than integers.
            GraphError: A number lies outside its type.
        """
        bound = self._bind(arguments, columns)
        are_numbers = not any(map(_is_column, bound.values()))
        given = {}
        for name, column in bound.items():
            if not _is_column(column):
                given[name] = [integer_of(f"argument `{name}`", column)]
            else:
                given[name] = [integer_of(f"argument `{name}`: the number in row {row}", number) for row, number in enumerate(column)]
        rows = max((len(column) for column in given.values()), default=1)
        # A number goes with every row of a column.
        for name, column in given.items():
            if len(column) == 1:
                given[name] = column * rows
        results = _core.evaluate(self._text, given)
        statements = _core.Statements(self._text)

        def shown_of(name: str, column: list[int]) -> Any:
            if are_numbers:
                return column[0]
            # A sum of rows is one number.
            times = 1 if len(column) == rows else rows
            low, high = statements.output_interval(name)
            return np.array(column, dtype=dtype_of(low * times, high * times))

        shown = {name: shown_of(name, column) for name, column in results.items()}
        return shown["result"] if self._outputs == ["result"] else shown

    def compile(
        self,
        table: BaseTable | None = None,
        *,
        params: str | Sequence[str] | None = None,
        log2_failure: float = -128.0,
        where: str | Expr | None = None,
        **columns: str,
    ) -> Compiled:
        """The program of the drive.

        Args:
            table: A table whose columns become the inputs, as they are encrypted there. Without it the compiler chooses. An input with a default is that
                number, unless `columns` names a column for it.
            params: The parameter set, or those to choose from; that of the table if not given.
            log2_failure: log2 of the probability that the results of a row may be wrong with.
            where: As [GraphProgram.run][] has it.
            columns: The names of the columns, where they are not those of the inputs.

        Raises:
            GraphError: No parameter set can compute it; the message names the line, what the values may be, and what would help.
            MissingError: The table lacks a column.
            OptionError: `log2_failure` is above 0 or not finite.
            TypeError: A further argument names no input, or there is no table to take its column from.
        """
        if table is not None:
            _check_table(table)
        graph, inputs = self._of_columns(table, columns, where)
        options: dict[str, Any] = {"log2_failure": failure_of(log2_failure)}
        if params is None and table is not None:
            params = table.params
        if params is not None:
            if not isinstance(params, str | Sequence):
                raise TypeError(f"params is the name of a parameter set, or a list of names, not {type(params).__name__}")
            options["sets"] = [params] if isinstance(params, str) else list(params)
        if table is not None:
            options["inputs"] = {name: self._layout(table, name, column).described() for name, column in inputs.items()}
        return Compiled(_core.compile(graph, json.dumps(options)))

    def _inputs(self, columns: Mapping[str, str]) -> list[str]:
        """The inputs that columns become, if those of some are named.

        Raises:
            TypeError: An input is named that there is not.
        """
        if unknown := [name for name in columns if name not in self._ranges]:
            raise TypeError(f"{unknown[0]} is neither an option nor an input; inputs are {', '.join(self._ranges)}")
        return [name for name in self._ranges if name in columns or name not in self._defaults]

    def _of_columns(self, table: BaseTable | None, columns: Mapping[str, str], where: str | Expr | None) -> tuple[str, dict[str, str]]:
        """The graph, in which inputs that no column becomes are numbers that everybody knows, and results are 0 in rows that do not count; with the columns
        by the names of its inputs."""
        inputs = {name: columns.get(name, name) for name in self._inputs(columns)}
        if columns and table is None:
            raise TypeError(f"{next(iter(columns))} names a column: give the table that has it")
        if where is None and len(inputs) == len(self._ranges):
            return self._text, inputs
        graph = Graph()
        condition = None if where is None else condition_of(where)
        looked_at = {} if condition is None else condition.columns
        if table is None and condition is not None:
            raise TypeError(f"where looks at column {next(iter(looked_at), '')}: give the table that has it")

        def value_of(name: str, numbers: Range) -> Value:
            if name not in inputs:
                return graph.constant(self._defaults[name])
            if table is not None and inputs[name] in looked_at:
                # What is narrower in the table is narrower for the condition too.
                layout = self._layout(table, name, inputs[name])
                numbers = Range(layout.low, layout.high)
            return graph.input(name, numbers.low, numbers.high)

        values = {name: value_of(name, numbers) for name, numbers in self._ranges.items()}
        mask = None
        if table is not None and condition is not None:
            by_column = {column: values[name] for name, column in inputs.items()}
            for column, (file, line) in looked_at.items():
                if column not in table.columns:
                    raise MissingError(f"{file}:{line}: table {table.name} has no column {column} for where; it has {', '.join(table.columns)}")
                if column not in by_column:
                    name = next(name for place in itertools.count() if (name := f"where{place}") not in self._ranges and name not in inputs)
                    layout = table.columns[column].layout
                    by_column[column] = graph.input(name, layout.low, layout.high)
                    inputs[name] = column
            mask = graph.value(condition.of(by_column))
        for name, value in graph.include(self._text, values, mask).items():
            graph.output(name, value)
        return graph.text(), inputs

    def _layout(self, table: BaseTable, name: str, column: str) -> Layout:
        if column not in table.columns:
            raise MissingError(f"table {table.name} has no column {column}: give {name}=… as the name of one")
        layout: Layout = table.columns[column].layout
        numbers = self._ranges.get(name, Range(layout.low, layout.high))
        if layout.low < numbers.low or layout.high > numbers.high:
            raise GraphError(
                f"{self._where}: argument `{name}` is {numbers}, and column {column} has numbers in {layout.low}..{layout.high}",
                line=self._where,
                interval=f"{layout.low}..{layout.high}",
                help="widen the argument's type",
            )
        return layout

    def run(
        self,
        table: BaseTable,
        *,
        rows: tuple[int, int] | None = None,
        log2_failure: float = -128.0,
        progress: Progress = None,
        way: Way = "auto",
        where: str | Expr | None = None,
        **columns: str,
    ) -> Result:
        """Runs the program on the rows of a table, and gives its encrypted results.

        Args:
            table: The table, whose columns become the inputs of the same names. An input with a default is that number, unless `columns` names a column for
                it.
            rows: The rows from the first of a pair up to, and without, the second; all if not given.
            log2_failure: log2 of the probability that the results of a row may be wrong with.
            progress: True for a line that shows how far it is, or a callable of the stage, the steps done and those in total.
            way: "samples" to go sample by sample, "ring" by whole ciphertexts of a ring, "auto" for what takes less time by the documented times.
            where: The name of a column that is 0 or 1, or a condition such as `toroid.col("dept") == 2`: results are 0 in rows where it is 0, and sums have
                nothing of them. It is computed with, so that the drive does not learn which rows count.
            columns: The names of the columns, where they are not those of the inputs.

        Raises:
            GraphError: As [GraphProgram.compile][] has it.
            OptionError: As [GraphProgram.compile][] has it, or there is no such way.
            Error: The way is "ring", and the drive lacks the ring keys, or the program or its columns do not go that way.
            RowsError: The table does not have these rows.
            TypeError: As [GraphProgram.compile][] has it, or `where` is neither text nor a condition.
            DriveError: The drive does not do it. Ctrl-C ends the run with KeyboardInterrupt; the same call then goes on where it was.
        """
        _check_table(table)
        _, chosen = self._of_columns(table, columns, where)
        first, end = table.chosen(rows)
        compiled = self.compile(table, log2_failure=log2_failure, where=where, **columns)
        return Result(compiled, table.compute(compiled, chosen, (first, end), progress, way=way), end - first)

    def explain(self, table: BaseTable | None = None, *, format: str = "text", **options: Any) -> str:
        """What the program does and costs; further options are those of [GraphProgram.compile][].

        Args:
            table: As [GraphProgram.compile][] has it.
            format: "text" for the graph, its costs and the program of the drive; "svg" for a picture of the graph, with the bits of all values and
                the functions that bootstraps apply for them.

        Raises:
            ValueError: There is no such format.
            GraphError: As [GraphProgram.compile][] has it.
        """
        columns = {name: column for name, column in options.items() if name not in _OPTIONS}
        compiled = self.compile(table, **options)
        return explained(self._of_columns(table, columns, options.get("where"))[0], compiled, format)

    def _repr_svg_(self) -> str:
        """What a notebook shows: the graph, which needs no compilation."""
        return picture(Part(self._text))

    def cost(self, table: BaseTable | None = None, **options: Any) -> Cost:
        """What a row costs, before anything is encrypted; options are those of [GraphProgram.compile][]."""
        return self.compile(table, **options).cost

    asimulate = twin(simulate)
    acompile = twin(compile)
    arun = twin(run)
    aexplain = twin(explain)
    acost = twin(cost)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Within another program: its operations become part of that. Of expressions of columns: an expression. Of plain numbers:
        [GraphProgram.simulate][].

        Raises:
            GraphError: A value may lie outside the type of its argument.
        """
        operands = (*arguments, *named.values())
        name = getattr(self, "__name__", "program")
        if (expression := applied(functools.partial(_called, self, len(arguments), tuple(named)), name, operands)) is not None:
            return expression
        graph = graph_of(operands)
        return self.simulate(*arguments, **named) if graph is None else self._within(graph, arguments, named)

    def _within(self, graph: Graph, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """The results as values of another graph."""
        values = {name: graph.value(argument) for name, argument in self._bind(arguments, named).items()}
        outputs = graph.include(self._text, values)
        return outputs["result"] if self._outputs == ["result"] else outputs

    def _bind(self, arguments: Sequence[Any], columns: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by the names of the inputs."""
        return _bound(getattr(self, "__name__", "the program"), self._ranges, self._defaults, arguments, columns)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {numbers}" for name, numbers in self._ranges.items())
        return f"<{type(self).__name__}({inputs})>"


#: Names of arguments that would hide what `run`, `compile` and their like take.
_OPTIONS = {
    name
    for call in (GraphProgram.run, GraphProgram.compile, GraphProgram.cost, GraphProgram.explain)
    for name, parameter in inspect.signature(call).parameters.items()
    if parameter.kind is not parameter.VAR_KEYWORD
}


def _is_column(argument: object) -> bool:
    """Whether an argument has a number in each of its rows."""
    return isinstance(argument, Iterable) and not isinstance(argument, str | bytes | Mapping) and getattr(argument, "ndim", 1) > 0


def _check_table(table: object) -> None:
    """Refuses what programs do not run on."""
    if not isinstance(table, BaseTable):
        raise TypeError(f"a program runs on a table of a drive, and not on a {type(table).__name__}: drive.upload and drive.table give one")


def _called(program: GraphProgram, count: int, names: Sequence[str], *operands: Any) -> Any:
    """A program of so many arguments by their places, and others by their names."""
    return program(*operands[:count], **dict(zip(names, operands[count:], strict=True)))


class Program(GraphProgram):
    """A function that mixes encrypted values, as a graph of operations.

    The function runs once, with values that record what is done to them. It returns a value, a tuple of values, or a dictionary of them; the
    outputs are named `result`, `result0`, `result1`, …, or by the dictionary's keys.

    It can be pickled: one that a module names by this name, and any other as the [GraphProgram][toroid.GraphProgram] that was recorded.

    Args:
        function: The function.
        types: Types of arguments, in the place of annotations.

    Raises:
        GraphError: An argument has no type, or the function does something that programs cannot do; the message names the line.
    """

    __name__: str
    __qualname__: str

    def __init__(self, function: Callable[..., Any], **types: Any) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        signature = _Signature.of(function, types)
        if taken := [name for name in signature.ranges if name in _OPTIONS]:
            where = where_of(function)
            raise GraphError(f"{where}: argument `{taken[0]}` has the name of an option of `run` or `compile`: give it another one", line=where)
        graph = Graph()
        values = {name: graph.input(name, numbers.low, numbers.high) for name, numbers in signature.ranges.items()}
        self._by_name = signature.by_name
        outputs = self._named(self._returned(values))
        for name, value in outputs.items():
            graph.output(name, value)
        super().__init__(graph.text(), signature.ranges, list(outputs), where_of(function), signature.defaults)

    def _named(self, returned: Any) -> dict[str, Any]:
        where = where_of(self._function)
        if isinstance(returned, Mapping):
            named = {str(name): value for name, value in returned.items()}
        elif isinstance(returned, tuple | list):
            named = {f"result{place}": value for place, value in enumerate(returned)}
        else:
            named = {"result": returned}
        if not named or any(value is None for value in named.values()):
            raise GraphError(f"{where}: {self._function.__name__} returns nothing", line=where, help="return the value that the program computes")
        for name in named:
            if not name.isascii() or not name.isidentifier():
                raise GraphError(f"{where}: `{name}` cannot name an output: names are ASCII identifiers", line=where)
        return named

    def _within(self, graph: Graph, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        bound = self._bind(arguments, named)
        for name, argument in bound.items():
            # A number that is known to everybody stays one.
            found = graph.value(argument).interval if isinstance(argument, Value) else Range(*2 * (index_of(argument),))
            check_within(f"argument `{name}` of {self.__name__}", found, self._ranges[name])
        return self._returned(bound)

    def _returned(self, values: Mapping[str, Any]) -> Any:
        """What the function returns of values by the names of its arguments."""
        by_place = [value for name, value in values.items() if name not in self._by_name]
        return self._function(*by_place, **{name: values[name] for name in self._by_name})

    def __reduce__(self) -> str | tuple[type[GraphProgram], tuple[Any, ...]]:
        return _name_of(self) or (GraphProgram, (self._text, self._ranges, self._outputs, self._where, self._defaults))

    def __copy__(self) -> Program:
        return self

    def __deepcopy__(self, _memo: object) -> Program:
        return self

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}: {numbers}" for name, numbers in self._ranges.items())
        return f"<program {self._function.__name__}({arguments})>"


@overload
def table(function: Callable[..., Any], /) -> Table: ...
@overload
def table(*, out: Any = None) -> Callable[[Callable[..., Any]], Table]: ...
def table(function: Callable[..., Any] | None = None, /, *, out: Any = None) -> Any:
    """Makes a [Table][toroid.Table] of a function of one number of up to 16 bits, or of two of together as many.

    The function is called with every value of its arguments' types, so that branches, loops, dictionaries and models all work in it.
    """
    return Table(function, out) if function is not None else lambda function: Table(function, out)


@overload
def program(function: Callable[..., Any], /) -> Program: ...
@overload
def program(**types: Any) -> Callable[[Callable[..., Any]], Program]: ...
def program(function: Callable[..., Any] | None = None, /, **types: Any) -> Any:
    """Makes a [Program][toroid.Program] of a function of encrypted values; types of arguments may be given here instead of by annotations."""
    return Program(function) if function is not None else lambda function: Program(function, **types)
