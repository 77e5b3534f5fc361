"""Graphs of operations on encrypted integers, written down by calling functions with values that record what is done to them."""

from __future__ import annotations

import functools
import operator
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, SupportsIndex

import numpy as np

from toroid import _core
from toroid._cancel import check
from toroid._errors import GraphError
from toroid._lines import caller, located
from toroid._types import Range, range_of, wrap_name

#: The most entries of a table.
MAX_TABLE_ENTRIES = 1 << 16

#: The most operations of a program: as many as one of the drive has instructions.
MAX_OPERATIONS = 1 << 20


def refusal(message: str, **attributes: object) -> GraphError:
    """An error that names the user's line."""
    file, line = caller()
    where = f"{file}:{line}"
    return GraphError(f"{where}: {message}", line=where, **attributes)


def refuse(message: str, **attributes: object) -> NoReturn:
    """Raises an error that names the user's line.

    Raises:
        GraphError: Always.
    """
    raise refusal(message, **attributes)


class Graph:
    """The statements of a program, in the text form that the compiler reads."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._statements = _core.Statements("")
        self._names: set[str] = set()
        self._values = 0

    def input(self, name: str, low: int, high: int) -> Value:
        """An input with values from `low` to `high`.

        Raises:
            GraphError: The name is no identifier, begins with `_`, or is taken.
        """
        if not name.isascii() or not name.isidentifier() or name.startswith("_") or name in self._names:
            refuse(f"`{name}` cannot name an input: names are ASCII identifiers without a leading `_`, each once")
        self._names.add(name)
        self._write(f"input {name}: {low}..{high}")
        return Value(self, name)

    def output(self, name: str, value: Value | int) -> None:
        """Names a result of the program."""
        value = self.value(value)
        self._write(f"output {name} = {value._name}")

    def constant(self, number: int) -> Value:
        """A number that is known to everybody."""
        return self.record(str(number))

    def record(self, expression: str) -> Value:
        """A value for an expression of the text form.

        Raises:
            GraphError: There are more than a program of the drive can have.
        """
        if self._values >= MAX_OPERATIONS:
            refuse(
                f"a program has at most {MAX_OPERATIONS} operations",
                help="look for a loop that does not end: it would need a condition that is known to everybody",
            )
        name = f"_{self._values}"
        self._values += 1
        self._write(f"{name} = {expression}")
        return Value(self, name)

    def value(self, operand: Value | int) -> Value:
        """The operand as a value of this graph."""
        if isinstance(operand, Value):
            if operand._graph is not self:
                refuse("values of two programs do not go together")
            return operand
        return self.constant(_integer(operand))

    def include(self, text: str, arguments: Mapping[str, Value], mask: Value | None = None) -> dict[str, Value]:
        """Writes down the statements of another graph, with values of this one in the place of its inputs, and gives its outputs by their names. The
        statements keep the lines that they were made from. With a mask outputs are 0 in rows where it is 0, and sums have nothing of these.

        Raises:
            GraphError: A value may lie outside the interval of its input, or a statement is none.
        """
        names: dict[str, str] = {}
        outputs: dict[str, Value] = {}
        sums: set[str] = set()
        before = _core.Statements(text) if _TABLE.search(text) else None
        for line in text.splitlines():
            if not line.partition("#")[0].strip():
                continue
            match = _STATEMENT.fullmatch(line)
            if match is None:
                refuse(f"`{line}` is no statement of a graph")
            name, written = match["name"], match["expression"]
            if match["kind"] == "input":
                low, high = (int(bound.replace(" ", "")) for bound in written.split(".."))
                check_within(f"input `{name}` of the program", arguments[name].interval, Range(low, high))
                names[name] = arguments[name]._name
            elif match["kind"] == "output":
                value = Value(self, names[written]) if written in names else self.constant(int(written.replace(" ", "")))
                outputs[name] = value if mask is None or written in sums else select(mask, value, 0)
            else:
                table = _TABLE.fullmatch(written)
                if (total := _SUM.fullmatch(written)) and mask is not None:
                    sums.add(name)
                    expression = f"sum({select(mask, Value(self, names[total['operand']]), 0)._name})"
                elif table is None or before is None:
                    expression = _renamed(written, names)
                else:
                    expression = self._part_of_table(before, table, names)
                if match["file"] is None:
                    made = self.record(expression)
                else:
                    file = re.sub(r"\\(.)", r"\1", match["file"])
                    made = located((file, int(match["line"])), self.record, expression)
                names[name] = made._name
        return outputs

    def _part_of_table(self, statements: _core.Statements, table: re.Match[str], names: Mapping[str, str]) -> str:
        """The table of another graph for the values that its operands can have in this one."""
        operands = [operand for operand in (table["first"], table["second"]) if operand is not None]
        entries = [int(entry.replace(" ", "")) for entry in table["entries"].split(",")]
        places, rows = [], 1
        for operand in operands:
            before = Range(*statements.interval(operand))
            now = Value(self, names[operand]).interval
            check_within(f"value `{operand}` of the program", now, before)
            places.append(range(now.low - before.low, now.high - before.low + 1))
            rows = before.high - before.low + 1
        chosen = places[0] if len(places) == 1 else [first * rows + second for first in places[0] for second in places[1]]
        return f"table({', '.join(names[operand] for operand in operands)}, [{', '.join(str(entries[place]) for place in chosen)}])"

    def sum(self, value: Value) -> Value:
        """The sum of all rows of a column; it can only be an output."""
        return self.record(f"sum({self.value(value)._name})")

    def text(self) -> str:
        """The graph in text form."""
        return "\n".join(self._lines) + "\n"

    def interval(self, value: Value) -> Range:
        """What a value may be."""
        return Range(*self._statements.interval(value._name))

    def _write(self, statement: str) -> None:
        file, line = caller()
        file = "".join(letter for letter in file if letter.isprintable() and letter not in '"\\')
        located_statement = f'{statement} @ "{file}":{line}'
        self._statements.add(located_statement)
        self._lines.append(located_statement)


#: A statement of the text form, with the place that it was made from.
_STATEMENT = re.compile(
    r"""\s*(?:(?P<kind>input|output)\s+)?(?P<name>\w+)\s*[:=]\s*(?P<expression>[^@#]*?)\s*"""
    r"""(?:@\s*"(?P<file>(?:[^"\\]|\\.)*)"\s*:\s*(?P<line>\d+)\s*)?(?:\#.*)?"""
)
_TABLE = re.compile(r"table\s*\(\s*(?P<first>[A-Za-z_]\w*)\s*,\s*(?:(?P<second>[A-Za-z_]\w*)\s*,\s*)?\[(?P<entries>[^\]]*)\]\s*\)")
_SUM = re.compile(r"sum\s*\(\s*(?P<operand>[A-Za-z_]\w*)\s*\)")
_WRAP = re.compile(r"(?P<operand>wrap\s*\(.*),(?P<type>[^,]*)")
#: A name, of no function.
_NAME = re.compile(r"\b[A-Za-z_]\w*\b(?!\s*\()")


def _renamed(expression: str, names: Mapping[str, str]) -> str:
    """An expression of the text form, with other names of its values."""
    wrapped = _WRAP.fullmatch(expression)
    if wrapped is not None:
        return f"{_renamed(wrapped['operand'], names)},{wrapped['type']}"
    return _NAME.sub(lambda match: names.get(match[0], match[0]), expression)


def check_within(what: str, found: Range, numbers: Range) -> None:
    """Refuses a value that may lie outside an interval."""
    if found.low < numbers.low or found.high > numbers.high:
        refuse(
            f"{what} is {numbers}, and the value lies in {found}",
            interval=str(found),
            help="widen the argument's type, or narrow the value by toroid.wrap, minimum or maximum",
        )


def _integer(operand: object) -> int:
    """A number that a program may have as a constant."""
    if isinstance(operand, float):
        refuse(f"programs compute with integers, and {operand} is none: scale it, or use //")
    try:
        return index_of(operand)
    except TypeError:
        refuse(f"programs compute with integers, not with {type(operand).__name__}")


def integer_of(what: str, number: object) -> int:
    """An integer or a boolean that somebody gives, as a number of Python.

    Raises:
        TypeError: It is neither; the message says what it is of.
    """
    try:
        return index_of(number)
    except TypeError:
        raise TypeError(f"{what} is {reprlib.repr(number)}; expected an integer or a boolean") from None


def index_of(number: Any) -> int:
    """An integer or a boolean, of Python or of numpy, as a number of Python.

    Raises:
        TypeError: It is neither.
    """
    return int(number) if isinstance(number, np.bool_) else operator.index(number)


class Value:
    """An integer that a program computes with, and nobody but the client can read.

    It takes `+ - * // % << >> & | ^`, comparisons, `abs`, and a table by [Value.table][]. Nothing that needs to know the number works on it:
    `if`, `while`, `int()`, `float()`, an index.
    """

    __slots__ = ("_graph", "_name")
    __hash__ = None  # type: ignore[assignment]
    # numpy leaves operations with its arrays to this class.
    __array_ufunc__ = None

    def __init__(self, graph: Graph, name: str) -> None:
        self._graph = graph
        self._name = name

    @property
    def interval(self) -> Range:
        """The values that it may have."""
        return self._graph.interval(self)

    def __repr__(self) -> str:
        return f"<encrypted {self._name}>"

    def table(self, function: Callable[[int], int] | Sequence[int] | Mapping[int, int]) -> Value:
        """What a function of one number makes of it: by a list with one entry for each value from the lowest, by a dictionary with one for each value, or by
        calling it with each.

        Raises:
            GraphError: The value has more than 65,536 possible numbers, the function raises, or gives something else than an integer, or a dictionary lacks
                a value.
            TypeError: The entries have no order, or there are none.
        """
        interval = self.interval
        if interval.high - interval.low >= MAX_TABLE_ENTRIES:
            refuse(
                f"a table has at most {MAX_TABLE_ENTRIES} entries, and the value lies in {interval}",
                interval=str(interval),
                help="narrow the value first, for example by // or toroid.wrap",
            )
        if isinstance(function, set | frozenset):
            raise TypeError(f"the entries of a table have an order, and those of a {type(function).__name__} have none")
        if isinstance(function, Mapping):
            numbers = range(interval.low, interval.high + 1)
            if lacking := [number for number in numbers if number not in function]:
                refuse(f"the dictionary has no entry for {lacking[0]}, and the value lies in {interval}", interval=str(interval))
            entries = [_integer(function[number]) for number in numbers]
        elif callable(function):
            entries = [entry_of(function, (number,)) for number in range(interval.low, interval.high + 1)]
        elif isinstance(function, Iterable):
            entries = [_integer(number) for number in function]
        else:
            raise TypeError(f"a table is made of a function, a list or a dictionary, not of {type(function).__name__}")
        return self._graph.record(f"table({self._name}, [{', '.join(map(str, entries))}])")

    def _linear(self, own: int, other: object, weight: int, sign: str = "+") -> Value:
        if isinstance(other, Value):
            self._graph.value(other)
            first = f"{own}*{self._name}" if own >= 0 else f"-{-own}*{self._name}"
            return self._graph.record(f"{first} {'+' if weight >= 0 else '-'} {abs(weight)}*{other._name}")
        number = weight * _integer(other)
        first = f"{own}*{self._name}" if own >= 0 else f"-{-own}*{self._name}"
        return self._graph.record(f"{first} {'+' if number >= 0 else '-'} {abs(number)}")

    def _binary(self, symbol: str, other: object, reflected: bool = False) -> Value:
        name = self._graph.value(other)._name if isinstance(other, Value) else str(_integer(other))
        left, right = (name, self._name) if reflected else (self._name, name)
        return self._graph.record(f"{left} {symbol} {right}")

    def _by_constant(self, symbol: str, other: object) -> Value:
        if isinstance(other, Value):
            refuse(f"the right side of {symbol} must be a number that is known to everybody")
        return self._graph.record(f"{self._name} {symbol} {_integer(other)}")

    def __add__(self, other: Value | int) -> Value:
        return self._linear(1, other, 1)

    __radd__ = __add__

    def __sub__(self, other: Value | int) -> Value:
        return self._linear(1, other, -1)

    def __rsub__(self, other: int) -> Value:
        return self._linear(-1, other, 1)

    def __neg__(self) -> Value:
        return self._graph.record(f"-{self._name}")

    def __pos__(self) -> Value:
        return self

    def __invert__(self) -> Value:
        return self._linear(-1, 1, -1)

    def __mul__(self, other: Value | int) -> Value:
        if isinstance(other, Value):
            return self._binary("*", other)
        number = _integer(other)
        if number == 0:
            return self._graph.constant(0)
        return self._graph.record(f"{'-' if number < 0 else ''}{abs(number)}*{self._name}")

    __rmul__ = __mul__

    def __floordiv__(self, other: int) -> Value:
        return self._by_constant("//", other)

    def __mod__(self, other: int) -> Value:
        return self._by_constant("%", other)

    def __lshift__(self, other: int) -> Value:
        return self._by_constant("<<", other)

    def __rshift__(self, other: int) -> Value:
        return self._by_constant(">>", other)

    def __and__(self, other: Value | int) -> Value:
        return self._binary("&", other)

    def __or__(self, other: Value | int) -> Value:
        return self._binary("|", other)

    def __xor__(self, other: Value | int) -> Value:
        return self._binary("^", other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __lt__(self, other: Value | int) -> Value:
        return self._binary("<", other)

    def __le__(self, other: Value | int) -> Value:
        return self._binary("<=", other)

    def __gt__(self, other: Value | int) -> Value:
        return self._binary(">", other)

    def __ge__(self, other: Value | int) -> Value:
        return self._binary(">=", other)

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return self._binary("==", other)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return self._binary("!=", other)

    def __abs__(self) -> Value:
        return self._graph.record(f"abs({self._name})")

    def __bool__(self) -> bool:
        raise self._unknown("`if`, `while`, `and`, `or` and `not` need", "use toroid.select(condition, then, otherwise), & and |")

    def __int__(self) -> int:
        raise self._unknown("int() needs", "keep the value as it is: it is an integer")

    def __index__(self) -> int:
        raise self._unknown("an index needs", "use value.table(list)")

    def __float__(self) -> float:
        raise self._unknown("float() needs", "programs compute with integers: scale instead")

    def __truediv__(self, _other: object) -> Value:
        refuse("/ gives fractions, and programs compute with integers: use //")

    def __rtruediv__(self, _other: object) -> Value:
        refuse("/ gives fractions, and programs compute with integers: use a table")

    def __rfloordiv__(self, _other: object) -> Value:
        refuse("programs divide by numbers that are known to everybody: use a table of the divisor")

    def __rmod__(self, _other: object) -> Value:
        refuse("programs divide by numbers that are known to everybody: use a table of the divisor")

    def __rlshift__(self, _other: object) -> Value:
        refuse("programs shift by numbers that are known to everybody: use a table of the distance")

    __rrshift__ = __rlshift__

    def __pow__(self, exponent: SupportsIndex) -> Value:
        if isinstance(exponent, Value):
            refuse("the exponent must be a number that is known to everybody")
        power = _integer(exponent)
        if power < 1:
            refuse(f"the exponent must be at least 1, not {power}")
        result, square = None, self
        while power:
            if power & 1:
                result = square if result is None else result * square
            power >>= 1
            if power:
                square = square * square
        return self if result is None else result

    def __iter__(self) -> NoReturn:
        refuse("an encrypted number has no elements")

    def _unknown(self, what: str, instead: str) -> GraphError:
        interval = self.interval
        return refusal(f"{what} the number, which is encrypted (it lies in {interval}): {instead}", interval=str(interval), help=instead)


def where_of(function: Callable[..., Any]) -> str:
    """The file and the line of a function."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def entry_of(function: Callable[..., Any], arguments: tuple[int, ...], by_name: Sequence[str] = ()) -> int:
    """What a function makes of numbers, the last of which go by names, as an entry of a table.

    Raises:
        GraphError: It raises, or gives no integer.
    """
    check()
    where = where_of(function)
    call = f"{getattr(function, '__name__', 'the function')}({', '.join(map(str, arguments))})"
    try:
        split = len(arguments) - len(by_name)
        result = function(*arguments[:split], **dict(zip(by_name, arguments[split:], strict=True)))
    except Exception as error:
        message = f"{where}: {call} raises {type(error).__name__}: {error}"
        raise GraphError(message, line=where, help="return a number for every value of the argument's type") from error
    try:
        return index_of(result)
    except TypeError:
        message = f"{where}: {call} gives {type(result).__name__}, not an integer"
        raise GraphError(message, line=where, help="round the result, for example by int() or //") from None


def graph_of(operands: Iterable[object]) -> Graph | None:
    """The graph of the operands that are encrypted; none where all are plain numbers."""
    for operand in operands:
        if isinstance(operand, Value):
            return operand._graph
    return None


def _of_expressions(function: Callable[..., Any], name: str, operands: Iterable[object]) -> Any:
    """The function of expressions of columns as such an expression; none where no operand is one."""
    from toroid._expr import applied

    return applied(function, name, tuple(operands))


def _of_several(name: str, plain: Callable[..., int], operands: tuple[Value | int, ...]) -> Any:
    if (expression := _of_expressions(functools.partial(_several, name, plain), name, operands)) is not None:
        return expression
    graph = graph_of(operands)
    if not operands:
        refuse(f"there is no {name} of no values")
    if graph is None:
        return plain([_integer(operand) for operand in operands])
    result = graph.value(operands[0])
    for operand in operands[1:]:
        result = graph.record(f"{name}({result._name}, {graph.value(operand)._name})")
    return result


def _several(name: str, plain: Callable[..., int], *operands: Value | int) -> Any:
    return _of_several(name, plain, operands)


def minimum(*operands: Value | int) -> Any:
    """The smallest of several values; of plain numbers a plain number."""
    return _of_several("min", min, operands)


def maximum(*operands: Value | int) -> Any:
    """The largest of several values; of plain numbers a plain number."""
    return _of_several("max", max, operands)


def select(condition: Value | int, then: Value | int, otherwise: Value | int) -> Any:
    """`then` where the condition is 1, `otherwise` where it is 0. Both are computed."""
    if (expression := _of_expressions(select, "select", (condition, then, otherwise))) is not None:
        return expression
    graph = graph_of((condition, then, otherwise))
    if not isinstance(condition, Value):
        known = _integer(condition)
        if known not in (0, 1):
            refuse(f"a condition is 0 or 1, and not {known}")
        chosen = then if known else otherwise
        return _integer(chosen) if graph is None else graph.value(chosen)
    assert graph is not None
    names = ", ".join(graph.value(operand)._name for operand in (condition, then, otherwise))
    return graph.record(f"select({names})")


def wrap(value: Value | int, numbers: Any) -> Any:
    """The number of a type that equals the value modulo 2^bits, as machine integers do: `wrap(x + y, toroid.u8)`.

    Raises:
        ValueError: The type is not one of whole bits.
    """
    width = wrap_name(numbers)
    if (expression := _of_expressions(functools.partial(wrap, numbers=range_of(numbers)), f"wrap_{width}", (value,))) is not None:
        return expression
    if isinstance(value, Value):
        return value._graph.record(f"wrap({value._name}, {width})")
    number, bits = _integer(value), int(width[1:])
    number %= 1 << bits
    return number - (1 << bits) if width[0] == "i" and number >> (bits - 1) else number


def dot(values: Iterable[Value | int], weights: Iterable[int]) -> Any:
    """Σ weight·value, with weights that everybody knows.

    Raises:
        ValueError: There are more of one than of the other.
        TypeError: They are no lists.
    """
    if not isinstance(values, Iterable) or not isinstance(weights, Iterable):
        raise TypeError("values and weights are lists, and a matrix is a list of rows")
    values, weights = list(values), list(weights)
    if len(values) != len(weights):
        raise ValueError(f"there are {len(values)} values and {len(weights)} weights")
    pairs = list(zip(values, weights, strict=True))
    known = [weight for _, weight in pairs]
    if (expression := _of_expressions(functools.partial(_weighted, known), "dot", (value for value, _ in pairs))) is not None:
        return expression
    graph = graph_of(value for value, _ in pairs)
    if graph is None:
        return sum(_integer(value) * _integer(weight) for value, weight in pairs)
    text, constant = "", 0
    for value, weight in pairs:
        number = _integer(weight)
        if isinstance(value, Value):
            graph.value(value)
            if number:
                text += f" {'-' if number < 0 else '+'} {abs(number)}*{value._name}"
        else:
            constant += number * _integer(value)
    if not text:
        return graph.constant(constant)
    if constant:
        text += f" {'-' if constant < 0 else '+'} {abs(constant)}"
    return graph.record(text[3:] if text.startswith(" + ") else "-" + text[3:])


def _weighted(weights: Sequence[int], *values: Value | int) -> Any:
    return dot(values, weights)


def matmul(weights: Iterable[Iterable[int]], values: Sequence[Value | int]) -> list[Any]:
    """The product of a matrix that everybody knows, given by its rows, and a vector of values."""
    return [dot(values, row) for row in weights]
