"""Expressions of columns, which questions to tables are made of."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toroid._lines import Place, caller, located
from toroid._trace import Value, index_of, integer_of

#: The most letters of an expression that are shown, but for its last part.
LETTERS = 4000


class Expr:
    """A value of every row, of the columns of a table: `col("salary") // 100`. It takes the operations of [Value][toroid.Value], and can be pickled."""

    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None

    def __init__(self, apply: Callable[..., Any], name: str, parts: tuple[Expr, ...] = (), columns: Mapping[str, Place] | None = None) -> None:
        """An expression.

        Args:
            apply: What makes the value: of the values of the parts, or of those of the columns by their names if there are no parts.
            name: How it is written, with `{}` for each part.
            parts: The expressions that it is made of.
            columns: The columns that it looks at, each with a line that names it; if not given, those of the parts.
        """
        if columns is None:
            columns = {column: place for part in parts for column, place in part.columns.items()}
        self._apply = apply
        self._written = name
        self._parts = parts
        self._columns = columns
        self._place = caller()

    def of(self, values: Mapping[str, Value]) -> Any:
        """The value, of those of the columns. What is wrong with it names the line that the expression was written on."""
        found: dict[int, Any] = {}
        for expression in self._all():
            arguments = [found[id(part)] for part in expression._parts] or [values]
            found[id(expression)] = located(expression._place, expression._apply, *arguments)
        return found[id(self)]

    def _all(self) -> Iterator[Expr]:
        """All parts, each once and behind its own parts. An expression may be nested deeper than calls of Python may be, such as one that a loop makes."""
        found: set[int] = set()
        waiting = [self]
        while waiting:
            expression = waiting[-1]
            missing = [part for part in expression._parts if id(part) not in found]
            if missing:
                waiting.extend(reversed(missing))
                continue
            waiting.pop()
            if id(expression) not in found:
                found.add(id(expression))
                yield expression

    def __reduce__(self) -> tuple[Callable[..., Expr], tuple[Any, ...]]:
        numbers: dict[int, int] = {}
        parts = []
        for expression in self._all():
            numbers[id(expression)] = len(numbers)
            own = tuple(numbers[id(part)] for part in expression._parts)
            parts.append((expression._apply, expression._written, own, None if own else dict(expression._columns), expression._place))
        return _of_parts, (tuple(parts),)

    @property
    def columns(self) -> Mapping[str, Place]:
        """The columns that it looks at, each with a line that names it."""
        return self._columns

    @property
    def place(self) -> Place:
        """The file and the line that it was written on."""
        return self._place

    @property
    def name(self) -> str:
        """How it is written, which ends in `…` after some thousand letters; of a column its name."""
        shown, letters = [], 0
        waiting: list[Expr | str] = [self]
        while waiting and letters <= LETTERS:
            expression = waiting.pop()
            if isinstance(expression, str):
                shown.append(expression)
                letters += len(expression)
            elif not expression._parts:
                waiting.append(expression._written)
            else:
                first, *texts = expression._written.split("{}")
                for part, text in zip(reversed(expression._parts), reversed(texts), strict=True):
                    waiting.extend((text, part))
                waiting.append(first)
        return "".join(shown) + ("…" if waiting else "")

    def table(self, function: Callable[[int], int]) -> Expr:
        """A Python function of the value, as [Value.table][toroid.Value.table] has it. A pickle of the expression has the function as pickles have
        functions, by its module and name: a `@toroid.table` goes without them."""
        return Expr(functools.partial(_looked_up, function), f"{getattr(function, '__name__', 'function')}({{}})", (self,))

    def isin(self, numbers: Iterable[int]) -> Expr:
        """Whether the value is one of several numbers: 1 or 0, by one table."""
        if not isinstance(numbers, Iterable):
            raise TypeError(f"isin takes several numbers, such as [1, 2], not {type(numbers).__name__}")
        wanted = frozenset(integer_of("a number of isin", number) for number in numbers)
        return Expr(functools.partial(_looked_up, functools.partial(_is_in, wanted)), "isin({})", (self,))

    def sum(self) -> Aggregate:
        """The sum over the rows."""
        return Aggregate("sum", self)

    def mean(self) -> Aggregate:
        """The mean over the rows: their sum and their number, which the client divides. It is not a number where there are none."""
        return Aggregate("mean", self)

    def min(self) -> Aggregate:
        """The least value of the rows; None where there are no rows.

        Rows are compared with each other, in about log2 n rounds of together n - 1 comparisons; a condition, a key of groups or an expression costs
        functions of every row before that. Each group has comparisons of its own.
        """
        return Aggregate("min", self)

    def max(self) -> Aggregate:
        """The greatest value of the rows, at the cost of [Expr.min][toroid.Expr.min]; None where there are no rows."""
        return Aggregate("max", self)

    def _binary(self, symbol: str, apply: Callable[[Any, Any], Any], other: object, reflected: bool = False) -> Expr:
        right = as_expr(other)
        first, second = (right, self) if reflected else (self, right)
        return Expr(apply, f"({{}} {symbol} {{}})", (first, second))

    def __add__(self, other: object) -> Expr:
        return self._binary("+", operator.add, other)

    def __radd__(self, other: object) -> Expr:
        return self._binary("+", operator.add, other, True)

    def __sub__(self, other: object) -> Expr:
        return self._binary("-", operator.sub, other)

    def __rsub__(self, other: object) -> Expr:
        return self._binary("-", operator.sub, other, True)

    def __mul__(self, other: object) -> Expr:
        return self._binary("*", operator.mul, other)

    def __rmul__(self, other: object) -> Expr:
        return self._binary("*", operator.mul, other, True)

    def __floordiv__(self, other: object) -> Expr:
        return self._binary("//", operator.floordiv, other)

    def __truediv__(self, other: object) -> Expr:
        return self._binary("/", operator.truediv, other)

    def __mod__(self, other: object) -> Expr:
        return self._binary("%", operator.mod, other)

    def __lshift__(self, other: object) -> Expr:
        return self._binary("<<", operator.lshift, other)

    def __rshift__(self, other: object) -> Expr:
        return self._binary(">>", operator.rshift, other)

    def __and__(self, other: object) -> Expr:
        return self._binary("&", operator.and_, other)

    def __or__(self, other: object) -> Expr:
        return self._binary("|", operator.or_, other)

    def __xor__(self, other: object) -> Expr:
        return self._binary("^", operator.xor, other)

    def __pow__(self, other: object) -> Expr:
        return self._binary("**", operator.pow, other)

    def __rfloordiv__(self, other: object) -> Expr:
        return self._binary("//", operator.floordiv, other, True)

    def __rmod__(self, other: object) -> Expr:
        return self._binary("%", operator.mod, other, True)

    def __rand__(self, other: object) -> Expr:
        return self._binary("&", operator.and_, other, True)

    def __ror__(self, other: object) -> Expr:
        return self._binary("|", operator.or_, other, True)

    def __rxor__(self, other: object) -> Expr:
        return self._binary("^", operator.xor, other, True)

    def __lt__(self, other: object) -> Expr:
        return self._binary("<", operator.lt, other)

    def __le__(self, other: object) -> Expr:
        return self._binary("<=", operator.le, other)

    def __gt__(self, other: object) -> Expr:
        return self._binary(">", operator.gt, other)

    def __ge__(self, other: object) -> Expr:
        return self._binary(">=", operator.ge, other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return self._binary("==", operator.eq, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return self._binary("!=", operator.ne, other)

    def __neg__(self) -> Expr:
        return Expr(operator.neg, "-{}", (self,))

    def __invert__(self) -> Expr:
        """The rows for which a condition does not hold; of other numbers all bits are inverted, as `~x` is -x - 1 elsewhere."""
        return Expr(_inverted, "~{}", (self,))

    def __abs__(self) -> Expr:
        return Expr(abs, "abs({})", (self,))

    def __bool__(self) -> bool:
        raise TypeError("an expression of columns is neither true nor false: write & for `and`, | for `or`, ~ for `not`, with parentheses")

    def __repr__(self) -> str:
        return f"<Expr: {self.name}>"


@dataclass(frozen=True)
class Aggregate:
    """What becomes of the values of all rows: a sum, a mean, the least or the greatest value, or the number of rows."""

    kind: str
    of: Expr | None = None

    @property
    def columns(self) -> Mapping[str, Place]:
        """The columns that it looks at, each with a line that names it."""
        return {} if self.of is None else self.of.columns

    @property
    def name(self) -> str:
        """How it is written."""
        return f"{self.kind}({'' if self.of is None else self.of.name})"


def col(name: str) -> Expr:
    """A column of a table, by its name.

    Raises:
        TypeError: The name is no text.
    """
    if not isinstance(name, str):
        raise TypeError(f"a column's name is text, not {type(name).__name__}")
    return Expr(operator.itemgetter(name), name, columns={name: caller()})


def count() -> Aggregate:
    """The number of rows."""
    return Aggregate("count")


def is_condition(value: Any) -> bool:
    """Whether a value, or a plain number, is 0 or 1 whatever is encrypted."""
    if isinstance(value, Value):
        return 0 <= value.interval.low and value.interval.high <= 1
    return index_of(value) in (0, 1)


def as_expr(value: object) -> Expr:
    """An expression, or a number that everybody knows as one."""
    if isinstance(value, Expr):
        return value
    return Expr(functools.partial(_known, value), str(value))


def applied(function: Callable[..., Any], name: str, arguments: tuple[Any, ...]) -> Expr | None:
    """A function of expressions as an expression; none where no argument is one."""
    if not any(isinstance(argument, Expr) for argument in arguments):
        return None
    parts = tuple(as_expr(argument) for argument in arguments)
    return Expr(function, f"{name}({', '.join(['{}'] * len(parts))})", parts)


def _of_parts(parts: Iterable[tuple[Callable[..., Any], str, tuple[int, ...], Mapping[str, Place] | None, Place]]) -> Expr:
    """The last of expressions that are each made of some of those before."""
    made: list[Expr] = []
    for apply, written, numbers, columns, place in parts:
        expression = Expr(apply, written, tuple(made[number] for number in numbers), columns)
        expression._place = place
        made.append(expression)
    return made[-1]


# What expressions apply has names, so that it can be pickled.


def _known(number: object, _values: Mapping[str, Value]) -> object:
    return number


def _looked_up(function: Callable[[int], int], value: Value) -> Value:
    return value.table(function)


def _is_in(numbers: frozenset[int], number: int) -> int:
    return int(number in numbers)


def _inverted(value: Any) -> Any:
    return 1 - value if is_condition(value) else ~value
