"""Computing on encrypted columns where they are stored."""

from toroid import _core
from toroid._client import Client
from toroid._columns import EncryptedColumn, EncryptedTable
from toroid._core import EncryptedRows, PublicKeys
from toroid._drive import Drive, Table, open
from toroid._errors import *
from toroid._errors import __all__ as _errors
from toroid._program import Compiled, Cost, Program, Result, program, table
from toroid._trace import Value, dot, matmul, maximum, minimum, select, wrap
from toroid._types import Range, i4, i8, i12, i16, i32, i64, u1, u2, u4, u8, u12, u16, u32, u64

__version__: str = _core.__version__

__all__ = [
    "Client",
    "Compiled",
    "Cost",
    "Drive",
    "EncryptedColumn",
    "EncryptedRows",
    "EncryptedTable",
    "Program",
    "PublicKeys",
    "Range",
    "Result",
    "Table",
    "Value",
    "__version__",
    "dot",
    "i4",
    "i8",
    "i12",
    "i16",
    "i32",
    "i64",
    "matmul",
    "maximum",
    "minimum",
    "open",
    "program",
    "select",
    "table",
    "u1",
    "u2",
    "u4",
    "u8",
    "u12",
    "u16",
    "u32",
    "u64",
    "wrap",
    *_errors,
]
