"""Columns from other libraries without a copy through their objects: the C data interface of Apache Arrow, read with ctypes.

Whoever has columns hands out a capsule around a structure of pointers (`__arrow_c_stream__`, `__arrow_c_array__`). Integers and booleans are copied out of
its buffers here, so that no library of Arrow is needed. Structures and formats: https://arrow.apache.org/docs/format/CDataInterface.html
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]


class _Schema(ctypes.Structure):
    """What the values of an array are."""


_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(_Schema))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ("private_data", ctypes.c_void_p),
]


class _Array(ctypes.Structure):
    """Values, in buffers; of a table the columns, as children."""


_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ("private_data", ctypes.c_void_p),
]


class _Stream(ctypes.Structure):
    """Arrays of one schema, one after the other."""

    _fields_ = [
        ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Schema))),
        ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Array))),
        ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)),
        ("release", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("private_data", ctypes.c_void_p),
    ]


#: The types of numbers by their formats. Booleans are bits.
_FORMATS = {b"c": np.int8, b"C": np.uint8, b"s": np.int16, b"S": np.uint16, b"i": np.int32, b"I": np.uint32, b"l": np.int64, b"L": np.uint64}
_BOOLEANS = b"b"
_NULLS = b"n"
_TABLE = b"+s"


def read(data: object, name: str) -> dict[str, Numbers] | Numbers | None:
    """The columns of a table by their names, or the numbers of a single column, which is called `name` in errors; None of what is neither, of a single
    column of something else than integers and booleans, and of what needs a package that is not there.

    Raises:
        TypeError: A column of a table has neither integers nor booleans, nor has a single one that numpy cannot read either, or a dictionary stands for its
            values.
        ValueError: A number is missing, or two columns have one name.
    """
    try:
        if hasattr(data, "__arrow_c_stream__"):
            capsule = data.__arrow_c_stream__()
            return _of_stream(_pointer(capsule, b"arrow_array_stream", _Stream), name, hasattr(data, "__array__"))
        if hasattr(data, "__arrow_c_array__"):
            schema, array = data.__arrow_c_array__()
            pieces = iter([_pointer(array, b"arrow_array", _Array)])
            return _of_pieces(_pointer(schema, b"arrow_schema", _Schema), pieces, name, hasattr(data, "__array__"))
    except ImportError:
        # pandas has the method, and leaves the work to pyarrow.
        return None
    return None


def missing(name: str, row: int) -> str:
    """What an error says of a row without a value."""
    return f"{name}: row {row} has no value, and an encrypted column has one in every row: fill it, or leave the row out"


def refuse_twice(names: Sequence[str]) -> None:
    """Refuses names of columns that stand there twice.

    Raises:
        ValueError: One does.
    """
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ValueError(f"two columns have the name {name}: give one of them another name")


def _pointer(capsule: object, kind: bytes, structure: type[Any]) -> Any:
    """The structure in a capsule, which releases it once nobody has the capsule any more."""
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    found = structure.from_address(address(capsule, kind))
    found.capsule = capsule
    return found


def _of_stream(stream: Any, name: str, is_array: bool) -> dict[str, Numbers] | Numbers | None:
    place = ctypes.addressof(stream)

    def filled(fill: Callable[..., int], structure: Any) -> Any:
        if fill(place, ctypes.byref(structure)):
            reason = stream.get_last_error(place)
            raise ValueError(f"{name}: the stream of Arrow arrays failed: {reason.decode(errors='replace') if reason else 'no reason given'}")
        return structure

    def pieces() -> Iterator[Any]:
        while True:
            array = filled(stream.get_next, _Array())
            # A stream ends with an array that nobody has to release.
            if not array.release:
                return
            try:
                yield array
            finally:
                array.release(ctypes.addressof(array))

    schema = filled(stream.get_schema, _Schema())
    try:
        return _of_pieces(schema, pieces(), name, is_array)
    finally:
        schema.release(ctypes.addressof(schema))


def _of_pieces(schema: Any, pieces: Iterator[Any], name: str, is_array: bool) -> dict[str, Numbers] | Numbers | None:
    if schema.format != _TABLE:
        # A format that begins so is a library's own, such as that of integers of 128 bits, which numpy cannot read either.
        if is_array and not schema.format.startswith(b"_") and schema.format not in (*_FORMATS, _BOOLEANS, _NULLS):
            return None
        column = _Column(schema, name)
        for array in pieces:
            column.add(array, array.offset, array.length)
        return column.numbers()
    columns = []
    for number in range(schema.n_children):
        child = schema.children[number].contents
        columns.append(_Column(child, (child.name or b"").decode()))
    refuse_twice([column.name for column in columns])
    for array in pieces:
        for number, column in enumerate(columns):
            child = array.children[number].contents
            column.check(array, array.offset, array.length)
            column.add(child, child.offset + array.offset, array.length)
    return {column.name: column.numbers() for column in columns}


class _Column:
    """Collects the numbers of a column from the pieces that it comes in."""

    def __init__(self, schema: Any, name: str) -> None:
        self.name = name
        self._format: bytes = schema.format
        if schema.dictionary:
            raise TypeError(f"{name}: a dictionary stands for its values; give the numbers themselves")
        if self._format not in _FORMATS and self._format not in (_BOOLEANS, _NULLS):
            raise TypeError(
                f"{name}: values of Arrow's type {self._format.decode(errors='replace')!r}; a column has integers or booleans: scale and round them, or give "
                "each a number first"
            )
        self._parts: list[Numbers] = []
        self._rows = 0

    def check(self, array: Any, first: int, count: int) -> None:
        """Refuses missing values."""
        if self._format == _NULLS and count:
            self._refuse(0)
        if not array.null_count or not array.n_buffers or not array.buffers[0] or not count:
            return
        there = _bits(array.buffers[0], first, count)
        if not there.all():
            self._refuse(int(np.argmin(there)))

    def _refuse(self, row: int) -> None:
        raise ValueError(missing(self.name, self._rows + row))

    def add(self, array: Any, first: int, count: int) -> None:
        """Copies numbers out of an array."""
        self.check(array, first, count)
        if not count:
            return
        if self._format == _BOOLEANS:
            self._parts.append(_bits(array.buffers[1], first, count))
        else:
            dtype = np.dtype(_FORMATS[self._format])
            memory = _bytes(array.buffers[1] + first * dtype.itemsize, count * dtype.itemsize)
            self._parts.append(np.frombuffer(memory, dtype=dtype).copy())
        self._rows += count

    def numbers(self) -> Numbers:
        """The numbers of all pieces."""
        dtype = np.bool_ if self._format == _BOOLEANS else _FORMATS.get(self._format, np.int8)
        return np.concatenate(self._parts) if self._parts else np.zeros(0, dtype=dtype)


def _bytes(address: int, count: int) -> Any:
    return (ctypes.c_uint8 * count).from_address(address)


def _bits(address: int, first: int, count: int) -> Numbers:
    """Bits from the lowest of each byte on."""
    start = first // 8
    memory = np.frombuffer(_bytes(address + start, (first + count + 7) // 8 - start), dtype=np.uint8)
    bits = np.unpackbits(memory, bitorder="little")[first - 8 * start :][:count]
    return bits.astype(np.bool_)
