"""Encrypted columns and tables: numbers split into digits as their layout says."""

from __future__ import annotations

import itertools
import math
import operator
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from toroid import _arrow
from toroid._core import EncryptedRows
from toroid._errors import DamagedError, KeyMismatch, RangeError, RowsError
from toroid._types import NAMED, Range, range_of

#: The intervals of numpy's types, the narrowest first.
_NUMPY = {
    "bool": (0, 1),
    **{
        f"{sign}int{bits}": (int(np.iinfo(f"{sign}int{bits}").min), int(np.iinfo(f"{sign}int{bits}").max))
        for bits in (8, 16, 32, 64)
        for sign in ("u", "")
    },
}


@dataclass(frozen=True)
class Digit:
    """A digit of a number: its bits, whether it has a sign, and the bits of the number below it."""

    bits: int
    signed: bool
    shift: int


@dataclass(frozen=True)
class Layout:
    """How the numbers of an interval are encrypted: as digits, the lowest first. `dtype` is numpy's type of the numbers, if they were given with one;
    decrypted numbers have it, or else that of 64 bits."""

    low: int
    high: int
    digits: tuple[Digit, ...]
    dtype: str | None = field(default=None, compare=False)

    @staticmethod
    def of(low: int, high: int, single_bits: int, digit_bits: int, dtype: str | None = None) -> Layout:
        """The layout for digits of so many bits, where a digit alone may have `single_bits`. It depends on nothing else."""
        signed = low < 0
        bits = max(1, max((value if value >= 0 else ~value).bit_length() for value in (low, high)) + signed)
        if bits <= single_bits:
            return Layout(low, high, (Digit(bits, signed, 0),), dtype)
        digits = tuple(Digit(min(digit_bits, bits - shift), signed and shift + digit_bits >= bits, shift) for shift in range(0, bits, digit_bits))
        return Layout(low, high, digits, dtype)

    def described(self) -> dict[str, Any]:
        """The layout as options of a compilation have it."""
        return {"digits": [asdict(digit) for digit in self.digits]}

    def split(self, numbers: npt.NDArray[Any]) -> list[npt.NDArray[np.int64]]:
        """The digits of numbers, the lowest first."""
        # Masks of digits do not fit into narrow types with a sign.
        numbers = numbers if numbers.dtype == np.uint64 else numbers.astype(np.int64)
        digits = []
        for digit in self.digits:
            low = (numbers >> digit.shift) & ((1 << digit.bits) - 1)
            message = low.astype(np.int64)
            if digit.signed:
                message = np.where(message >> (digit.bits - 1), message - (1 << digit.bits), message)
            digits.append(message)
        return digits

    def join(self, digits: list[npt.NDArray[np.int64]]) -> npt.NDArray[Any]:
        """The numbers of digits."""
        kind = np.uint64 if self.high >= 2**63 else np.int64
        total = np.zeros(len(digits[0]), dtype=kind)
        for digit, messages in zip(self.digits, digits, strict=True):
            total += messages.astype(kind) << kind(digit.shift)
        return total if self.dtype is None else total.astype(self.dtype)


def interval_of(kind: object) -> tuple[tuple[int, int], str | None]:
    """The interval of a type, and numpy's name of the type where it has one. A type is a name such as u16 or uint16, an annotation such as `toroid.u16`, a
    type of numpy, a pair of its ends, or an object with `low` and `high`, as a Range is.

    Raises:
        TypeError: It is none of these.
    """
    if isinstance(kind, str) and kind in NAMED:
        return _named(NAMED[kind])
    if isinstance(kind, np.dtype) or (isinstance(kind, type) and issubclass(kind, np.generic | bool)):
        kind = np.dtype(kind).name
    if isinstance(kind, str) and kind in _NUMPY:
        return _NUMPY[kind], kind
    if isinstance(kind, tuple | list) and len(kind) == 2 and all(hasattr(end, "__index__") for end in kind):
        ends = operator.index(kind[0]), operator.index(kind[1])
        if ends[0] <= ends[1]:
            return ends, None
    low, high = getattr(kind, "low", None), getattr(kind, "high", None)
    if isinstance(low, int) and isinstance(high, int):
        return (low, high), None
    if (found := range_of(kind)) is not None:
        return _named(found)
    raise TypeError(
        f"{kind!r} is no type of a column; expected a name such as u16 or i8, a type such as toroid.u16, numpy.uint16 or bool, or a pair of the least and "
        "the greatest number"
    )


def _named(numbers: Range) -> tuple[tuple[int, int], str | None]:
    interval = (numbers.low, numbers.high)
    # One bit is a number, unless it is called a boolean.
    named = [name for name, own in _NUMPY.items() if own == interval and name != "bool"]
    return interval, named[0] if named else None


def numbers_of(name: str, values: object, kind: object = None) -> tuple[npt.NDArray[Any], tuple[int, int], str | None]:
    """The numbers of a column, the interval that their type has, and numpy's name of the type, if they were given with one. A type that is not given is
    the narrowest that holds them, or that of an array.

    Raises:
        TypeError: They are no column of integers or booleans, or `kind` is no type.
        RangeError: A number is outside the type, or the type is wider than 64 bits.
        RowsError: There are none.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(_arrow.missing(name, int(np.flatnonzero(np.ma.getmaskarray(values))[0])))
    read = None if isinstance(values, np.ndarray) else _arrow.read(values, name)
    if isinstance(read, dict):
        raise TypeError(f"{name}: a table of {len(read)} columns, where one column is expected")
    try:
        array = np.asarray(values) if read is None else read
    except ValueError as error:
        raise TypeError(f"{name}: its rows are of several shapes, and a column has one number in each: {error}") from None
    if array.dtype.kind in "fO":
        array = _exactly(name, values, array)
    if array.size == 0:
        raise RowsError(f"{name} has no rows; a column has at least one")
    if array.ndim == 0:
        raise TypeError(f"{name}: expected a list or an array, not {type(values).__name__}")
    if array.ndim != 1:
        raise TypeError(f"{name}: {array.ndim} dimensions; a column has one")
    dtype: str | None
    if array.dtype == np.bool_:
        array, own, dtype = array.astype(np.uint8), (0, 1), "bool"
    elif array.dtype.kind in "iu":
        least, most = int(array.min()), int(array.max())
        # Numbers of 64 bits are what Python and numpy make of any; nobody chose that width.
        dtype = array.dtype.name if array.dtype.itemsize < 8 else None
        narrowest = (name for name, (low, high) in _NUMPY.items() if name != "bool" and low <= least and most <= high)
        own = _NUMPY[dtype or next(narrowest)]
        if dtype is None and most < 2**63 <= own[1]:
            # They come back as they mostly were: with a sign, so that calculations do not overflow.
            own = (0, 2**63 - 1)
    else:
        _refuse_missing(name, array)
        raise TypeError(f"{name}: values of type {array.dtype}; a column has integers or booleans: scale and round them, or give each a number first")
    if kind is not None:
        own, dtype = interval_of(kind)
        _refuse_wide(name, *own)
        outside = np.flatnonzero((array < own[0]) | (array > own[1]))
        if outside.size:
            raise RangeError(f"{name}: the number in row {outside[0]} is outside {own[0]}..{own[1]}")
    return array, own, dtype


def _refuse_wide(name: str, low: int, high: int) -> None:
    if not (-(2**63) <= low and high < 2**63) and not (0 <= low and high < 2**64):
        raise RangeError(f"{name}: {low}..{high} is wider than 64 bits; columns have numbers of i64 or of u64")


def _exactly(name: str, values: object, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same as integers where numpy made objects, or floating-point numbers, of integers alone."""
    numbers = list(values) if isinstance(values, list | tuple) else array.tolist() if array.dtype == object and array.ndim == 1 else []
    if not numbers or not all(isinstance(number, int | np.integer | np.bool_) for number in numbers):
        return array
    integers = [int(number) for number in numbers]
    least, most = min(integers), max(integers)
    _refuse_wide(name, least, most)
    return np.array(integers, dtype=np.int64 if most < 2**63 else np.uint64)


def _refuse_missing(name: str, array: npt.NDArray[Any]) -> None:
    """Refuses values that stand for none: None, pandas.NA, and what is not a number."""
    for row, value in enumerate(array.tolist()):
        if value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value)):
            raise ValueError(_arrow.missing(name, row))


def columns_of(data: object) -> dict[str, object] | None:
    """The columns of a table by their names: of a mapping, of what has names of columns, as data frames of pandas, polars and pyarrow do, or of any other
    object that hands out a table in Arrow's format. None of a single column.

    Raises:
        TypeError: A name is no text, or the columns of a frame are still to be computed.
        ValueError: Two columns have one name.
    """
    if isinstance(data, Mapping):
        _arrow.refuse_twice([str(name) for name in data])
        return {str(name): values for name, values in data.items()}
    if hasattr(data, "collect"):
        raise TypeError(f"the columns of a {type(data).__name__} are still to be computed: give what its `collect` returns")
    names = getattr(data, "column_names", None)
    if names is None:
        names = getattr(data, "columns", None)
    if names is None or isinstance(data, np.ndarray) or not hasattr(data, "__getitem__"):
        read = _arrow.read(data, "the column")
        return dict(read) if isinstance(read, dict) else None
    names = list(names)
    if not all(isinstance(name, str) for name in names):
        raise TypeError("names of columns are text")
    _arrow.refuse_twice(names)
    return {name: data[name] for name in names}


def check_rows(columns: Mapping[str, Sized]) -> None:
    """Refuses columns that make no table.

    Raises:
        ValueError: They have different numbers of rows, or there are none.
    """
    if not columns:
        raise ValueError("a table has at least one column")
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"columns have different numbers of rows: {', '.join(f'{name} {size}' for name, size in sizes.items())}")


@dataclass(frozen=True, repr=False)
class EncryptedColumn:
    """The encrypted numbers of a column: rows of each digit."""

    layout: Layout
    digits: tuple[EncryptedRows, ...]

    @property
    def params(self) -> str:
        """The parameter set."""
        return self.digits[0].params

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(rows.nbytes for rows in self.digits)

    def __len__(self) -> int:
        return len(self.digits[0])

    def __reduce__(self) -> tuple[Callable[..., EncryptedColumn], tuple[object, ...]]:
        return _column, (self.layout, _bytes_of(self.digits))

    def __repr__(self) -> str:
        return f"<EncryptedColumn: {len(self)} rows of {self.params}>"


def put_together(layouts: Mapping[str, Layout], digits: Sequence[EncryptedRows]) -> dict[str, EncryptedColumn]:
    """Columns of these layouts from all their digits, one column behind the other."""
    rest = iter(digits)
    return {name: EncryptedColumn(layout, tuple(itertools.islice(rest, len(layout.digits)))) for name, layout in layouts.items()}


def _bytes_of(digits: Sequence[EncryptedRows]) -> bytes | tuple[EncryptedRows, ...]:
    """Digits for another process: those that were encrypted together as bytes that share what they have in common, others as they are."""
    together = EncryptedRows.together(digits)
    return tuple(digits) if together is None else together


def _digits_of(digits: bytes | tuple[EncryptedRows, ...]) -> Sequence[EncryptedRows]:
    return EncryptedRows.apart(digits) if isinstance(digits, bytes) else digits


def _column(layout: Layout, digits: bytes | tuple[EncryptedRows, ...]) -> EncryptedColumn:
    return EncryptedColumn(layout, tuple(_digits_of(digits)))


def _table(layouts: Mapping[str, Layout], digits: bytes | tuple[EncryptedRows, ...]) -> EncryptedTable:
    return EncryptedTable(put_together(layouts, _digits_of(digits)))


class EncryptedTable(Mapping[str, EncryptedColumn]):
    """Encrypted columns of as many rows each, by their names.

    Raises:
        ValueError: They have different numbers of rows, or there are none.
        KeyMismatch: They have several parameter sets, or are of several clients.
    """

    def __init__(self, columns: Mapping[str, EncryptedColumn]) -> None:
        self._columns = dict(columns)
        for name, column in self._columns.items():
            if not isinstance(column, EncryptedColumn):
                raise TypeError(f"column {name} is a {type(column).__name__}, which is not encrypted: client.encrypt makes columns")
        check_rows(self._columns)
        if len({column.params for column in self._columns.values()}) != 1:
            raise KeyMismatch("the columns of a table have the same parameter set")
        clients: dict[str, str] = {}
        for name, column in self._columns.items():
            clients.update((digit.tag, name) for digit in column.digits if digit.tag is not None)
        if len(clients) > 1:
            one, other, *_ = clients.values()
            raise KeyMismatch(f"the columns of a table are those of one client, and {one} and {other} were encrypted by two")

    def __getitem__(self, name: str) -> EncryptedColumn:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(next(iter(self._columns.values())))

    def __reduce__(self) -> tuple[Callable[..., EncryptedTable], tuple[object, ...]]:
        layouts = {name: column.layout for name, column in self.items()}
        return _table, (layouts, _bytes_of([digit for column in self.values() for digit in column.digits]))

    def __repr__(self) -> str:
        return f"<EncryptedTable: {len(self)} columns, {self.rows} rows>"


# A digit of a column of a table, on the drive: TABLE/VERSION.PLACE/COLUMNS COLUMN TYPE DIGIT/DIGITS BITS(u|s)@SHIFT, where TYPE is numpy's name or
# LOW..HIGH, and the first version is not written. It stands in the name, which a ledger binds to the client's key, so that nobody else can give the digits
# another meaning, or leave columns out. Tables of before do not state how many columns they have.
#
# What replaces a table is its next version. Place 0 is written last and deleted first, so that a version with all places is whole, and the lowest whole
# version is the table: that of before until its replacement is complete.
_STORED = re.compile(
    r"(?P<table>[^/]+)/(?:(?P<version>\d+)\.)?(?P<place>\d+)(?:/(?P<columns>\d+))? (?P<column>.+) "
    r"(?:(?P<dtype>bool|u?int(?:8|16|32|64))|(?P<low>-?\d+)\.\.(?P<high>-?\d+)) "
    r"(?P<digit>\d+)/(?P<digits>\d+) (?P<bits>\d+)(?P<sign>[us])@(?P<shift>\d+)"
)

#: The bytes that a name on the drive has at most.
_MAX_NAME_BYTES = 248


def check_name(name: str) -> None:
    """Refuses what is no name of a table."""
    if not isinstance(name, str):
        raise TypeError(f"a table's name is text, not {type(name).__name__}")
    if not name or "/" in name or any(not character.isprintable() for character in name):
        raise ValueError(f"{name!r} is no name of a table: it is not empty, and has neither / nor control characters")


def stored_names(table: str, version: int, place: int, columns: int, column: str, layout: Layout) -> list[str]:
    """The names of the digits on the drive of a column, which has this place among so many.

    Raises:
        ValueError: The column's name is empty, has control characters or surrogates, or is too long.
    """
    if not column or any(unicodedata.category(character) in ("Cc", "Cs") for character in column):
        raise ValueError(f"{column!r} is no name of a column: it is not empty, and has neither control characters nor surrogates")
    count = len(layout.digits)
    first = f"{table}/{f'{version}.' if version else ''}{place:02}/{columns} {column} {layout.dtype or f'{layout.low}..{layout.high}'}"
    names = [f"{first} {number}/{count} {digit.bits}{'s' if digit.signed else 'u'}@{digit.shift}" for number, digit in enumerate(layout.digits)]
    too_long = max(len(name.encode()) for name in names) - _MAX_NAME_BYTES
    if too_long > 0:
        raise ValueError(f"the names of table {table} and column {column} are together {too_long} bytes too long")
    return names


def stored_version(name: str) -> tuple[int, int, int] | None:
    """The version, the place and the digit that a name on the drive stands for; none where it is that of no table."""
    match = _STORED.fullmatch(name)
    return None if match is None else (int(match["version"] or 0), int(match["place"]), int(match["digit"]))


@dataclass(frozen=True)
class StoredColumn:
    """A column of a table on a drive: its layout, and the names of its digits there."""

    layout: Layout
    names: tuple[str, ...]
    rows: int
    params: str
    key_id: int = 0


def stored_tables(columns: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, StoredColumn]]:
    """The tables that the columns of a drive make up, by their names. What a writer left incomplete, or what cannot be read, is none."""
    return examined_tables(columns)[0]


def examined_tables(columns: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, dict[str, StoredColumn]], dict[str, DamagedError]]:
    """The tables that the columns of a drive make up, by their names, and what is wrong with those that lack digits or cannot be read."""
    found: dict[str, dict[int, dict[tuple[int, str], list[tuple[int, re.Match[str]]]]]] = {}
    for name in columns:
        match = _STORED.fullmatch(name)
        if match is not None:
            version = found.setdefault(match["table"], {}).setdefault(int(match["version"] or 0), {})
            version.setdefault((int(match["place"]), match["column"]), []).append((int(match["digit"]), match))
    tables: dict[str, dict[str, StoredColumn]] = {}
    damaged: dict[str, DamagedError] = {}
    for table, versions in found.items():
        for _, parts in sorted(versions.items()):
            try:
                tables[table] = _whole(table, parts, columns)
                break
            except DamagedError as error:
                damaged.setdefault(table, error)
    return tables, {table: error for table, error in damaged.items() if table not in tables}


def _whole(
    table: str, parts: Mapping[tuple[int, str], list[tuple[int, re.Match[str]]]], columns: Mapping[str, Mapping[str, Any]]
) -> dict[str, StoredColumn]:
    """The columns of a version of a table.

    Raises:
        DamagedError: It lacks columns or digits, or one cannot be read.
    """
    again = "an upload ended early; delete the table and upload it again"
    stated = {match["columns"] for digits in parts.values() for _, match in digits}
    if [place for place, _ in sorted(parts)] != list(range(len(parts))) or stated not in ({str(len(parts))}, {None}):
        raise DamagedError(f"table {table} lacks columns: {again}")
    whole = {}
    for (_, column), unordered in sorted(parts.items()):
        digits = [match for _, match in sorted(unordered, key=lambda digit: digit[0])]
        first = digits[0]
        if [int(match["digit"]) for match in digits] != list(range(int(first["digits"]))):
            raise DamagedError(f"column {column} of table {table} lacks digits: {again}")
        names = tuple(match[0] for match in digits)
        for name in names:
            if "error" in columns[name]:
                raise DamagedError(f"column {column} of table {table}: {columns[name]['error']}")
        low, high = _NUMPY[first["dtype"]] if first["dtype"] else (int(first["low"]), int(first["high"]))
        split = tuple(Digit(int(match["bits"]), match["sign"] == "s", int(match["shift"])) for match in digits)
        rows = min(int(columns[name]["rows"]) for name in names)
        stat = columns[names[0]]
        whole[column] = StoredColumn(Layout(low, high, split, first["dtype"]), names, rows, str(stat["params"]), int(stat["key_id"]))
    return whole
