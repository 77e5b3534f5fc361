"""Encrypted columns and tables: numbers split into digits as their layout says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from toroid._core import EncryptedRows
from toroid._errors import DamagedError, KeyMismatch, RangeError, RowsError

_TYPES = {
    f"{sign}{bits}": (0, 2**bits - 1) if sign == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64) for sign in "ui"
}


@dataclass(frozen=True)
class Digit:
    """A digit of a number: its bits, whether it has a sign, and the bits of the number below it."""

    bits: int
    signed: bool
    shift: int


@dataclass(frozen=True)
class Layout:
    """How the numbers of an interval are encrypted: as digits, the lowest first."""

    low: int
    high: int
    digits: tuple[Digit, ...]

    @staticmethod
    def of(low: int, high: int, single_bits: int, digit_bits: int) -> Layout:
        """The layout for digits of so many bits, where a digit alone may have `single_bits`. It depends on nothing else."""
        signed = low < 0
        bits = max(1, max((value if value >= 0 else ~value).bit_length() for value in (low, high)) + signed)
        if bits <= single_bits:
            return Layout(low, high, (Digit(bits, signed, 0),))
        digits = tuple(Digit(min(digit_bits, bits - shift), signed and shift + digit_bits >= bits, shift) for shift in range(0, bits, digit_bits))
        return Layout(low, high, digits)

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
        if (self.low, self.high) == (0, 1):
            return total.astype(np.bool_)
        return total.astype(np.min_scalar_type(self.low) if self.low < 0 and -self.low > self.high else _dtype(self.low, self.high))


def _dtype(low: int, high: int) -> np.dtype[Any]:
    """The narrowest type that holds an interval."""
    for name, (least, most) in _TYPES.items():
        if least <= low and high <= most:
            return np.dtype(name.replace("u", "uint") if name[0] == "u" else name.replace("i", "int"))
    raise RangeError(f"{low}..{high} is wider than 64 bits")


def interval_of(kind: object) -> tuple[int, int]:
    """The interval of a type: a pair of its ends, a name such as u16, or an object with `low` and `high`."""
    if isinstance(kind, str) and kind in _TYPES:
        return _TYPES[kind]
    if kind == "bool" or kind is bool:
        return (0, 1)
    if isinstance(kind, tuple) and len(kind) == 2 and all(isinstance(end, int) for end in kind) and kind[0] <= kind[1]:
        return kind
    low, high = getattr(kind, "low", None), getattr(kind, "high", None)
    if isinstance(low, int) and isinstance(high, int):
        return (low, high)
    raise TypeError(f"{kind!r} is no type of a column; expected u8 to u64, i8 to i64, bool, or a pair of the least and the greatest number")


def numbers_of(name: str, values: object, kind: object = None) -> tuple[npt.NDArray[Any], tuple[int, int]]:
    """The numbers of a column, and the interval that their type has. A type that is not given is the narrowest that holds them, or that of an array."""
    array = np.asarray(values)
    if array.size == 0:
        raise RowsError(f"{name} has no rows; a column has at least one")
    if array.ndim != 1:
        raise TypeError(f"{name}: {array.ndim} dimensions; a column has one")
    if array.dtype == np.bool_:
        array, own = array.astype(np.uint8), (0, 1)
    elif array.dtype.kind in "iu":
        least, most = int(array.min()), int(array.max())
        wide = array.dtype.itemsize == 8
        dtype = _dtype(least, most) if wide else array.dtype
        info = np.iinfo(dtype)
        own = (int(info.min), int(info.max))
    else:
        raise TypeError(f"{name}: values of type {array.dtype}; a column has integers or booleans: scale and round them, or give each a number first")
    if kind is not None:
        own = interval_of(kind)
        outside = np.flatnonzero((array < own[0]) | (array > own[1]))
        if outside.size:
            raise RangeError(f"{name}: the number in row {outside[0]} is outside {own[0]}..{own[1]}")
    return array, own


def columns_of(data: object) -> dict[str, object] | None:
    """The columns of a table by their names: of a mapping, or of what has names of columns, as data frames of pandas, polars and pyarrow do."""
    if isinstance(data, Mapping):
        return {str(name): values for name, values in data.items()}
    names = getattr(data, "column_names", None)
    if names is None:
        names = getattr(data, "columns", None)
    if names is None or isinstance(data, np.ndarray) or not hasattr(data, "__getitem__"):
        return None
    names = list(names)
    if not all(isinstance(name, str) for name in names):
        raise TypeError("names of columns are text")
    return {name: data[name] for name in names}


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

    def __repr__(self) -> str:
        return f"<EncryptedColumn: {len(self)} rows of {self.params}>"


class EncryptedTable(Mapping[str, EncryptedColumn]):
    """Encrypted columns of as many rows each, by their names."""

    def __init__(self, columns: Mapping[str, EncryptedColumn]) -> None:
        self._columns = dict(columns)
        lengths = {len(column) for column in self._columns.values()}
        if len(lengths) != 1:
            raise ValueError("the columns of a table have the same number of rows, and there is at least one column")
        if len({column.params for column in self._columns.values()}) != 1:
            raise KeyMismatch("the columns of a table have the same parameter set")

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

    def __repr__(self) -> str:
        return f"<EncryptedTable: {len(self)} columns, {self.rows} rows>"


# A digit of a column of a table, on the drive: TABLE/PLACE COLUMN LOW..HIGH DIGIT/DIGITS BITS(u|s)@SHIFT. It stands in the name, which a ledger
# binds to the client's key, so that nobody else can give the digits another meaning.
_STORED = re.compile(
    r"(?P<table>[^/]+)/(?P<place>\d+) (?P<column>.+) (?P<low>-?\d+)\.\.(?P<high>-?\d+) (?P<digit>\d+)/(?P<digits>\d+) (?P<bits>\d+)(?P<sign>[us])@(?P<shift>\d+)"
)


def check_name(name: str) -> None:
    """Refuses what is no name of a table."""
    if not isinstance(name, str):
        raise TypeError(f"a table's name is text, not {type(name).__name__}")
    if not name or "/" in name or any(not character.isprintable() for character in name):
        raise ValueError(f"{name!r} is no name of a table: it is not empty, and has neither / nor control characters")


def stored_names(table: str, place: int, column: str, layout: Layout) -> list[str]:
    """The names of a column's digits on the drive."""
    count = len(layout.digits)
    return [
        f"{table}/{place:02} {column} {layout.low}..{layout.high} {number}/{count} {digit.bits}{'s' if digit.signed else 'u'}@{digit.shift}"
        for number, digit in enumerate(layout.digits)
    ]


@dataclass(frozen=True)
class StoredColumn:
    """A column of a table on a drive: its layout, and the names of its digits there."""

    layout: Layout
    names: tuple[str, ...]
    rows: int
    params: str
    key_id: int = 0


def stored_tables(columns: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, dict[str, StoredColumn]], dict[str, DamagedError]]:
    """The tables that the columns of a drive make up, by their names, and what is wrong with those that lack digits or cannot be read."""
    found: dict[str, dict[tuple[int, str], list[tuple[int, int, Digit, str, tuple[int, int]]]]] = {}
    for name in columns:
        match = _STORED.fullmatch(name)
        if match is None:
            continue
        digit = Digit(int(match["bits"]), match["sign"] == "s", int(match["shift"]))
        interval = (int(match["low"]), int(match["high"]))
        place = (int(match["place"]), match["column"])
        found.setdefault(match["table"], {}).setdefault(place, []).append((int(match["digit"]), int(match["digits"]), digit, name, interval))
    tables: dict[str, dict[str, StoredColumn]] = {}
    damaged: dict[str, DamagedError] = {}
    for table, parts in found.items():
        for (_, column), digits in sorted(parts.items()):
            digits.sort()
            if [number for number, *_ in digits] != list(range(digits[0][1])):
                reason = f"column {column} of table {table} lacks digits: an upload ended early; delete the table and upload it again"
                damaged.setdefault(table, DamagedError(reason))
                continue
            names = tuple(name for *_, name, _ in digits)
            errors = [columns[name]["error"] for name in names if "error" in columns[name]]
            if errors:
                damaged.setdefault(table, DamagedError(f"column {column} of table {table}: {errors[0]}"))
                continue
            low, high = digits[0][4]
            layout = Layout(low, high, tuple(digit for _, _, digit, _, _ in digits))
            rows = min(int(columns[name]["rows"]) for name in names)
            tables.setdefault(table, {})[column] = StoredColumn(layout, names, rows, str(columns[names[0]]["params"]), int(columns[names[0]]["key_id"]))
    return {name: found for name, found in tables.items() if name not in damaged}, damaged
