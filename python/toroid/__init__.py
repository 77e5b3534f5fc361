"""Computing on encrypted columns where they are stored."""

from toroid import _core
from toroid._client import Client
from toroid._columns import EncryptedColumn, EncryptedTable
from toroid._core import EncryptedRows, PublicKeys
from toroid._drive import Drive, Table, open
from toroid._errors import *  # noqa: F403
from toroid._errors import __all__ as _errors

__version__: str = _core.__version__

__all__ = ["Client", "Drive", "EncryptedColumn", "EncryptedRows", "EncryptedTable", "PublicKeys", "Table", "__version__", "open", *_errors]
