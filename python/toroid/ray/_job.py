"""The file of a job: results of ranges of rows, with which it goes on after its process has ended."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from toroid import _core
from toroid._errors import BusyError, DamagedError, Error, ExistsError, FileError
from toroid._program import Compiled
from toroid._query import Finish
from toroid.ray._places import Rows

#: The version of the files of jobs.
JOB_VERSION = 1

#: The types of what the first line of a job's file has.
_HEADER: dict[str, type | tuple[type, ...]] = {
    "toroid job": int,
    "locations": list,
    "table": str,
    "upload": str,
    "compiled": str,
    "columns": dict,
    "rows": list,
    "unit_seconds": (int, float),
    "unit_rows": (int, type(None)),
    "verify": (int, float),
    "finish": (dict, type(None)),
}


def _header(found: Any) -> dict[str, Any]:
    """The first line of a job's file, if it is one."""
    if not isinstance(found, dict) or "toroid job" not in found:
        raise ValueError("its first line is no job")
    if found["toroid job"] != JOB_VERSION:
        raise ValueError(f"its version is {found['toroid job']!r}, and this Toroid reads version {JOB_VERSION}")
    if wrong := [name for name, kind in _HEADER.items() if not isinstance(found.get(name, ...), kind)]:
        raise ValueError(f"its first line lacks {wrong[0]}")
    _rows(found["rows"])
    Compiled(found["compiled"])
    if found["finish"] is not None:
        Finish.of(found["finish"])
    return found


def _rows(found: Any) -> Rows:
    """A range of rows that a line of a job's file has."""
    first, end = found
    if not (isinstance(first, int) and isinstance(end, int) and 0 <= first < end):
        raise ValueError(f"it has the range of rows {found}")
    return first, end


def _matters(name: str, value: Any) -> Any:
    """What of a value of the first line makes one job differ from another: the comments of a program name the lines of the caller, which do not."""
    if name != "compiled":
        return value
    return json.loads(value) | {"program": Compiled(value).code}


def _line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values).encode() + b"\n"


class Job:
    """The results of ranges of rows, by the drives that computed them, and which ranges are to be compared: in a file if there is one, with a line for
    the job, one for each result and one for each choice."""

    def __init__(self, header: Mapping[str, Any], path: Path | None = None, file: Any = None) -> None:
        self.header = header
        self._path = path
        self.done: dict[Rows, dict[str, _core.EncryptedRows]] = {}
        # Ranges whose results are to be compared.
        self.chosen: set[Rows] = set()
        self._file = file

    @staticmethod
    def open(path: Path | None, header: Mapping[str, Any] | None) -> Job:
        """The job of a file, which becomes that of the header if it is new; without a header it is there already."""
        if path is None:
            return Job(header or {})
        try:
            descriptor = os.open(path, os.O_RDWR | (0 if header is None else os.O_CREAT), 0o600)
        except OSError as error:
            raise FileError(f"{path}: {error.strerror}") from error
        file = os.fdopen(descriptor, "r+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            text = file.read()
            # The last line may have been cut where the process ended.
            whole = text.rfind(b"\n") + 1
            lines = text[:whole].split(b"\n")[:-1]
            found: Mapping[str, Any]
            if lines:
                found = _header(json.loads(lines[0]))
            elif header is not None and _line(header).startswith(text):
                found = header
            else:
                raise ValueError("its first line is no job")
            # Where the drives are now, and how the work is cut, changes no result.
            free = ("locations", "unit_seconds", "unit_rows", "verify")
            if header is not None and any(_matters(name, found[name]) != _matters(name, value) for name, value in header.items() if name not in free):
                raise ExistsError(f"{path} is the file of another job: give another name, or delete it")
            job = Job(found, path, file)
            for line in lines[1:]:
                job._read(json.loads(line))
            job._check_ranges()
            # Now it is certain that the file is a job, and nobody else's.
            file.seek(whole)
            file.truncate()
            if not lines:
                job._write(found)
            return job
        except BlockingIOError as error:
            file.close()
            raise BusyError(f"{path}: another process works on this job") from error
        except (ValueError, TypeError, KeyError, IndexError) as error:
            file.close()
            raise error if isinstance(error, Error) else DamagedError(f"{path} is no file of a job: {error}") from error
        except BaseException:
            file.close()
            raise

    def _read(self, record: Any) -> None:
        """Takes a line of the file."""
        if isinstance(record, dict) and "verify" in record:
            self.chosen.update(_rows(rows) for rows in record["verify"])
            return
        if not isinstance(record, dict) or not isinstance(record["drive"], str):
            raise TypeError("a line of it is no result of a drive")
        rows = _rows(record["rows"])
        self.done.setdefault(rows, {})[record["drive"]] = _core.EncryptedRows.from_bytes(base64.b64decode(record["result"]))

    def _check_ranges(self) -> None:
        """Refuses results that would count twice, or that are of other rows."""
        start, end = self.header["rows"]
        for first, last in sorted(self.done):
            if first < start or last > end:
                raise ValueError(f"it has a result of the rows {first}..{last}, which overlap others or are not of the job")
            start = last

    def choose(self, ranges: Sequence[Rows]) -> None:
        """Keeps which ranges are to be compared, so that they still are when the job goes on."""
        if ranges:
            self.chosen.update(ranges)
            self._write({"verify": ranges})

    def record(self, rows: Rows, drive: str, result: _core.EncryptedRows) -> None:
        """Keeps a result, durably if there is a file.

        Raises:
            FileError: The file cannot be written.
        """
        self.done.setdefault(rows, {})[drive] = result
        if self.is_kept:
            self._write({"rows": rows, "drive": drive, "result": base64.b64encode(result.to_bytes()).decode()})

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        try:
            self._file.write(_line(line))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise FileError(f"{self._path}: {error.strerror}; the job goes on from there once it can be written") from error

    @property
    def is_kept(self) -> bool:
        """Whether it has a file."""
        return self._file is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._file is not None:
            # What could not be written cannot be written now either, and its error is on its way.
            with contextlib.suppress(OSError):
                self._file.close()
