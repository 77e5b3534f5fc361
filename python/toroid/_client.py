"""The client, which alone can decrypt."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, NoReturn, overload

import numpy.typing as npt

from toroid import _core
from toroid._columns import EncryptedColumn, EncryptedTable, Layout, check_rows, columns_of, numbers_of, put_together
from toroid._errors import FileError, OptionError, PassphraseError
from toroid._progress import Progress, reporter, twin
from toroid._text import check_text, has_surrogate
from toroid._types import limit_of

DEFAULT_SET = "message16"
MAX_LOG2_FAILURE = -64.0
VARIABLE = "TOROID_PASSPHRASE"


def _passphrase(given: str | None) -> str | None:
    chosen = given if given is not None else os.environ.get(VARIABLE)
    if chosen is not None:
        _check_passphrase(chosen)
    return chosen


def _check_passphrase(passphrase: object) -> None:
    if not isinstance(passphrase, str):
        raise TypeError(f"a passphrase is text, not {type(passphrase).__name__}")
    # The error of a conversion to UTF-8 would have the passphrase in it.
    if has_surrogate(passphrase):
        raise PassphraseError("a passphrase is text, and this one has a surrogate, which is no character")


class Client:
    """A client with its secret key, which stays in this process."""

    def __init__(self, key: _core.ClientKey) -> None:
        self._key = key

    @staticmethod
    def generate(params: str = DEFAULT_SET) -> Client:
        """Makes a client with a new key for a parameter set."""
        check_text("parameter set", params)
        return Client(_core.ClientKey.generate(params))

    @staticmethod
    def load(path: str | os.PathLike[str] = "keys/client.key", passphrase: str | None = None) -> Client:
        """Reads the key of a file of `save` or of `toroid keys generate`. The passphrase is that of TOROID_PASSPHRASE, if it is not given."""
        return Client(_core.ClientKey.load(Path(path), _passphrase(passphrase)))

    def save(self, path: str | os.PathLike[str], passphrase: str | None = None, *, replace: bool = False, unencrypted: bool = False) -> None:
        """Writes the key to a file, encrypted under a passphrase: the given one, or that of TOROID_PASSPHRASE.

        Raises:
            OptionError: There is a passphrase, and the key is not to be encrypted.
            PassphraseError: There is none, or it is no text.
            FileError: There is such a file already, or it cannot be written.
        """
        if unencrypted and passphrase is not None:
            raise OptionError("unencrypted=True writes the key in the clear, and a passphrase encrypts it: give one of them")
        chosen = None if unencrypted else _passphrase(passphrase)
        if not chosen and not unencrypted:
            raise PassphraseError(f"there is no passphrase to encrypt the key with: give passphrase or {VARIABLE}, or unencrypted=True")
        if Path(path).exists() and not replace:
            raise FileError(f"there is a file {os.fspath(path)} already: give another path, or replace=True")
        self._key.save(Path(path), chosen, replace)

    def dumps(self, passphrase: str) -> bytes:
        """The key as bytes, encrypted under a passphrase.

        Raises:
            PassphraseError: The passphrase is empty, or no text.
        """
        _check_passphrase(passphrase)
        if not passphrase:
            raise PassphraseError("an empty passphrase protects nothing")
        return self._key.dumps(passphrase)

    @staticmethod
    def loads(data: bytes, passphrase: str) -> Client:
        """The client whose key `dumps` gave."""
        _check_passphrase(passphrase)
        return Client(_core.ClientKey.loads(data, passphrase))

    @property
    def key(self) -> _core.ClientKey:
        """The key."""
        return self._key

    @property
    def params(self) -> str:
        """The name of the parameter set."""
        return self._key.params

    @property
    def tag(self) -> str:
        """What tells the objects of this client from those of others. It is no secret."""
        return self._key.tag

    def public_keys(self, progress: Progress = None) -> _core.PublicKeys:
        """The keys with which a drive computes."""
        return self._key.public_keys(reporter(progress))

    def encrypt(
        self,
        data: object,
        types: Mapping[str, object] | object = None,
        *,
        digit_bits: int | None = None,
        progress: Progress = None,
    ) -> EncryptedColumn | EncryptedTable:
        """Encrypts a column of integers or booleans, or a table of them: arrays, lists and dicts of them, columns and data frames of pandas, polars and
        pyarrow, and any object that hands out capsules in Arrow's format (`__arrow_c_stream__`, `__arrow_c_array__`). A missing value is refused.

        `types` gives the type of a column, or those of a table's columns by their names: a name such as "u16", a type such as `toroid.u12` or
        `numpy.uint16`, or a pair of the least and the greatest number. The interval of the type is public. Numbers wider than a message of the parameter
        set become digits of `digit_bits` bits, half a message if not given.

        Decrypted numbers have the type of numpy that they were given with, be it by a narrower array or by `types`; others are int64, or uint64 where the
        interval ends above it.
        """
        columns = columns_of(data)
        if columns is None:
            return self._encrypt({"the column": data}, {"the column": types}, digit_bits, progress)["the column"]
        if types is not None and not isinstance(types, Mapping):
            raise TypeError("the types of a table are a dict by the names of its columns")
        given: Mapping[str, object] = types or {}
        unknown = [name for name in given if name not in columns]
        if unknown:
            raise ValueError(f"types has {unknown[0]!r}, which is no column of the table")
        return EncryptedTable(self._encrypt(columns, given, digit_bits, progress))

    def _encrypt(
        self, columns: Mapping[str, object], kinds: Mapping[str, object], digit_bits: int | None, progress: Progress
    ) -> dict[str, EncryptedColumn]:
        """Columns that are encrypted together."""
        bits = self._key.message_bits
        if digit_bits is not None and not (hasattr(digit_bits, "__index__") and 1 <= digit_bits <= bits):
            raise OptionError(f"digit_bits is {digit_bits!r}, and a message of {self.params} has 1 to {bits} bits")
        read = {name: numbers_of(name, values, kinds.get(name)) for name, values in columns.items()}
        check_rows({name: numbers for name, (numbers, _, _) in read.items()})
        layouts = {}
        parts = []
        for name, (numbers, (low, high), dtype) in read.items():
            layout = layouts[name] = Layout.of(low, high, bits, digit_bits or max(1, bits // 2), dtype)
            parts += [(messages, bits, digit.signed) for digit, messages in zip(layout.digits, layout.split(numbers), strict=True)]
        return put_together(layouts, self._key.encrypt_columns(parts, reporter(progress)))

    @overload
    def decrypt(self, data: EncryptedColumn | _core.EncryptedRows, *, max_log2_failure: float = ...) -> npt.NDArray[Any]: ...
    @overload
    def decrypt(self, data: EncryptedTable, *, max_log2_failure: float = ...) -> dict[str, npt.NDArray[Any]]: ...
    @overload
    def decrypt(self, data: object, *, max_log2_failure: float = ...) -> Any: ...
    def decrypt(self, data: object, *, max_log2_failure: float = MAX_LOG2_FAILURE) -> Any:
        """Decrypts a column to an array, a table to a dict of arrays, and the result of a query to what the query gives.

        A result that is wrong with a probability above 2^`max_log2_failure` is refused.

        Raises:
            NoiseError: It is.
            KeyMismatch: It belongs to another client.
            OptionError: `max_log2_failure` is not a number.
            TypeError: What is given is nothing encrypted, or `max_log2_failure` no number.
        """
        max_log2_failure = limit_of(max_log2_failure)
        if isinstance(data, _core.EncryptedRows):
            return self._key.decrypt_column(data, max_log2_failure)
        if isinstance(data, EncryptedColumn):
            return data.layout.join([self._key.decrypt_column(rows, max_log2_failure) for rows in data.digits])
        if isinstance(data, EncryptedTable):
            return {name: self.decrypt(column, max_log2_failure=max_log2_failure) for name, column in data.items()}
        decrypt = getattr(data, "__toroid_decrypt__", None)
        if decrypt is None:
            raise TypeError(f"a {type(data).__name__} is nothing encrypted")
        return decrypt(self, max_log2_failure)

    agenerate = staticmethod(twin(generate))
    aload = staticmethod(twin(load))
    asave = twin(save)
    adumps = twin(dumps)
    aloads = staticmethod(twin(loads))
    apublic_keys = twin(public_keys)
    aencrypt = twin(encrypt)
    # A type with the overloads of `decrypt` cannot be written down.
    adecrypt: Callable[..., Coroutine[Any, Any, Any]] = twin(decrypt)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client has a secret key and is not pickled: client.dumps(passphrase) gives it encrypted, and Client.loads reads it")

    def __repr__(self) -> str:
        return f"<Client: {self.params}, tag {self.tag}>"
