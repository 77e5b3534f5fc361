"""The exceptions of this package."""

from __future__ import annotations

__all__ = [
    "BusyError",
    "ClosedError",
    "DamagedError",
    "DriveError",
    "Error",
    "ExistsError",
    "FileError",
    "FullError",
    "GraphError",
    "KeyMismatch",
    "MissingError",
    "NoiseError",
    "OptionError",
    "ParamsError",
    "PassphraseError",
    "ProgramError",
    "RangeError",
    "ReadOnlyError",
    "RowsError",
    "UntrustedError",
    "WidthError",
]


class Error(Exception):
    """What this package raises is of this class, but for wrong types (TypeError), wrong arguments (ValueError) and KeyboardInterrupt."""

    def __init__(self, message: str = "", **attributes: object) -> None:
        super().__init__(message)
        for name, value in attributes.items():
            setattr(self, name, value)


class DriveError(Error):
    """The drive did not do what it was asked for. `status` is the status of the command, `reason` what the drive has logged, where there is one."""

    status: str | None = None
    reason: str | None = None


class FullError(DriveError):
    """The drive has no room."""


class ClosedError(DriveError):
    """The drive was closed."""


class BusyError(DriveError):
    """A call on the drive is running."""


class ReadOnlyError(DriveError):
    """The drive was opened for reading only."""


class UntrustedError(DriveError):
    """A drive gave something else than what this client put there, or than other drives did of the same rows: then `drives` are those that may be
    wrong."""

    drives: tuple[str, ...] = ()


class MissingError(Error, KeyError):
    """The drive has no column, or no table, of this name."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class ExistsError(Error):
    """The drive has something of this name already."""


class DamagedError(Error):
    """Bytes are not what they should be: a file, a pickle, or a column on a drive."""


class FileError(Error, OSError):
    """A file cannot be read or written, or is open to others though it holds a secret."""


class PassphraseError(Error):
    """A passphrase is wrong, or missing."""


class KeyMismatch(Error):
    """Keys and data belong to different client keys, or to different parameter sets."""


class NoiseError(Error):
    """A result would be wrong with a greater probability than is allowed."""


class OptionError(Error, ValueError):
    """An option is wrong."""


class ParamsError(Error, ValueError):
    """There is no such parameter set, or it cannot do what it is asked for."""


class RangeError(Error, ValueError):
    """A number is outside the range of its column."""


class RowsError(Error, IndexError):
    """A column does not have these rows."""


class ProgramError(Error, ValueError):
    """The text of a program is wrong."""


class WidthError(Error, ValueError):
    """A value is too wide. `line` is the line of the source, where it is known."""

    line: str | None = None


class GraphError(Error, ValueError):
    """A program cannot be compiled. `line` is the line of the source, `interval` what the values may be, `help` what would help."""

    line: str | None = None
    interval: str | None = None
    help: str | None = None
