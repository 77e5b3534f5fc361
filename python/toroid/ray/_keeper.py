"""The actors that keep drives."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from toroid import _core
from toroid._columns import EncryptedTable
from toroid._drive import Drive
from toroid._drive import open as open_drive
from toroid._errors import DamagedError, DriveError, Error, MissingError, NoiseError
from toroid._program import Compiled

#: Actions that take little time.
_BESIDE = ("rows", "add")
#: Seconds for an actor to start, which may wait for a machine.
START_SECONDS = 300.0
#: The table of the rows that a node that only computes is at.
_PASSING = "rows"


class Keeper:
    """Keeps the session of a drive, in a process of Ray. Its calls are idempotent, so that Ray may repeat them."""

    def __init__(self, location: str | None, options: Mapping[str, Any], patience: float) -> None:
        self._location = location
        self._options = dict(options)
        self._patience = patience
        self._drive: Drive | None = None
        self._opening = threading.Lock()
        # A drive does not close while it is asked whether it is there.
        self._probing = threading.Lock()

    def call(self, action: str, *arguments: Any) -> Any:
        """Does something with the drive: what it gives, or the error that it is, which stays whole on this way."""
        had_session = self._drive is not None
        try:
            return getattr(self, f"_{action}")(self._opened(), *arguments)
        except DriveError as error:
            self._drop()
            # A drive that was started again refuses what comes by a session of before.
            return self.call(action, *arguments) if had_session else error
        # An error that Ray carried would pass for one of the actor.
        except Exception as error:  # noqa: BLE001
            return error

    @ray.method(concurrency_group="beside")  # type: ignore[untyped-decorator]
    def beside(self, action: str, *arguments: Any) -> Any:
        """Does something small while the drive computes."""
        try:
            return getattr(self, f"_{action}")(self._opened(), *arguments)
        except Exception as error:  # noqa: BLE001
            return error

    @ray.method(num_returns=2)  # type: ignore[untyped-decorator]
    def kept(self, action: str, *arguments: Any) -> tuple[Exception | None, Any]:
        """The same as `call`, with the error and the result as two objects."""
        return _apart(self.call(action, *arguments))

    @ray.method(num_returns=2, concurrency_group="beside")  # type: ignore[untyped-decorator]
    def kept_beside(self, action: str, *arguments: Any) -> tuple[Exception | None, Any]:
        """The same as `beside`, with the error and the result as two objects."""
        return _apart(self.beside(action, *arguments))

    def close(self) -> None:
        """Ends the session."""
        self._drop()

    @ray.method(concurrency_group="pulse")  # type: ignore[untyped-decorator]
    def probe(self) -> None:
        """Has the drive answer something small, whatever else it does. How it answers is the matter of other calls."""
        with self._probing, contextlib.suppress(Error):
            if self._drive is not None:
                self._drive.core.probe()

    @ray.method(concurrency_group="beside")  # type: ignore[untyped-decorator]
    def pid(self) -> int:
        """The process."""
        return os.getpid()

    def _opened(self) -> Drive:
        with self._opening:
            if self._drive is None:
                self._drive = self._open()
            return self._drive

    def _open(self) -> Drive:
        if self._location is None:
            return open_drive()
        # The drive may start just now, or its last session may be about to end.
        end = time.monotonic() + self._patience
        while True:
            try:
                return open_drive(self._location, **self._options)
            except DriveError:
                if time.monotonic() >= end:
                    raise
                time.sleep(0.1)

    def _drop(self) -> None:
        with self._probing:
            drive, self._drive = self._drive, None
            if drive is not None:
                # A session that has failed may fail to end, too.
                with contextlib.suppress(Error):
                    drive.close()

    @staticmethod
    def _install(drive: Drive, keys: Sequence[Any], tag: str, key_id: int, replace: bool) -> bool:
        # The object is fetched for a drive that lacks the keys, and for no other.
        if drive.core.has_keys(tag, key_id):
            return False
        drive.install(_core.PublicKeys.from_bytes(ray.get(keys[0])), key_id, replace=replace)
        return True

    @staticmethod
    def _upload(drive: Drive, name: str, table: EncryptedTable, key_id: int) -> None:
        drive.upload(name, given(table), replace=True, key_id=key_id)

    @staticmethod
    def _receive(drive: Drive, name: str, table: EncryptedTable, key_id: int) -> None:
        """Stores rows of another drive as they are.

        Raises:
            DamagedError: The drive gives something else back.
        """
        sent = given(table)
        stored = drive.upload(name, sent, replace=True, key_id=key_id).download()
        for column, rows in sent.items():
            if [digit.to_bytes() for digit in rows.digits] != [digit.to_bytes() for digit in stored[column].digits]:
                raise DamagedError(f"column {column} of {name} is not what was copied")

    @staticmethod
    def _keep(drive: Drive, name: str, part: str, rows: tuple[int, int], key_id: int) -> None:
        """Stores some rows of a shard as another one."""
        Keeper._receive(drive, part, Keeper._rows(drive, name, rows, None), key_id)

    @staticmethod
    def _rows(drive: Drive, name: str, rows: tuple[int, int], columns: Sequence[str] | None) -> EncryptedTable:
        table = drive.table(name)
        if columns is not None:
            table.columns = {column: table.columns[column] for column in columns}
        return table.download(rows)

    @staticmethod
    def _columns(drive: Drive) -> dict[str, dict[str, Any]]:
        columns = drive.columns()
        errors = [stat["error"] for stat in columns.values() if "error" in stat]
        if errors and len(errors) == len(columns):
            raise DriveError(errors[0])
        return columns

    @staticmethod
    def _discard(drive: Drive, name: str) -> None:
        """Deletes a table that may be gone already."""
        with contextlib.suppress(MissingError):
            drive.delete(name)

    @staticmethod
    def _info(drive: Drive) -> dict[str, Any]:
        return drive.info()

    @staticmethod
    def _compute(drive: Drive, shard: str, program: Sequence[Any], columns: Mapping[str, str], rows: tuple[int, int]) -> Any:
        return drive.table(shard).compute(program_of(program[0]), columns, rows, None, way="samples")

    @staticmethod
    def _pass(drive: Drive, table: Any, keys: tuple[Sequence[Any], str, int], program: Sequence[Any], columns: Mapping[str, str]) -> Any:
        """Computes rows that came from another drive, and keeps nothing of them."""
        if isinstance(table, Exception):
            raise Unsent(f"the rows did not come: {table}") from table
        held, tag, key_id = keys
        Keeper._install(drive, held, tag, key_id, True)
        return Keeper._compare(drive, _PASSING, table, key_id, program, columns)

    @staticmethod
    def _compare(drive: Drive, name: str, table: EncryptedTable, key_id: int, program: Sequence[Any], columns: Mapping[str, str]) -> Any:
        """Computes rows that the drive has for no longer than that."""
        stored = drive.upload(name, table, replace=True, key_id=key_id)
        try:
            return stored.compute(program_of(program[0]), columns, None, None, way="samples")
        finally:
            # An error in computing says more than one of a drive that is gone.
            with contextlib.suppress(Error):
                drive.delete(name)

    @staticmethod
    def _add(drive: Drive, shard: str, program: Sequence[Any], columns: Mapping[str, str], rows: Sequence[int], *parts: Any) -> Any:
        """The sum of results, each of so many rows.

        Raises:
            NoiseError: It would be wrong with a probability that the program does not allow.
        """
        compiled = program_of(program[0])
        stored = drive.table(shard).columns
        inputs = compiled.registers({name: stored[column].names for name, column in columns.items()})
        key_id = next(iter(stored.values())).key_id
        added = drive.core.add_results(compiled.program, inputs, list(zip(map(given, parts), rows, strict=True)), key_id)
        # Metadata rounds what it states.
        if added.log2_failure > max(compiled.cost.log2_failure, *(part.log2_failure for part in parts)) + 1:
            raise NoiseError(f"the sum of {sum(rows)} rows is wrong with a probability of 2^{added.log2_failure:.1f}")
        return added


@functools.lru_cache(maxsize=4)
def program_of(held: Any) -> Compiled:
    """The program that an object of Ray is, which is fetched and read once for all units of a job."""
    found: Compiled = ray.get(held)
    return found


class Unsent(DriveError):
    """Rows that a drive was to send to a node did not come."""


def given(value: Any) -> Any:
    """What another drive gave, or the error that it is."""
    if isinstance(value, Exception):
        raise value
    return value


def _apart(answer: Any) -> tuple[Exception | None, Any]:
    return (answer, None) if isinstance(answer, Exception) else (None, answer)


class Pulse:
    """Whether an actor and its drive are there: they answer a small question within so many seconds, whatever else they do."""

    def __init__(self, held: Any, deadline: float, now: Callable[[], float]) -> None:
        self._held = held
        self._deadline = deadline
        self._now = now
        self._guard = threading.Lock()
        self._call: Any = None
        #: Whether it has ever answered anything.
        self.has_started = False
        # When the question under way was asked, or the last one was answered.
        self._since = now()
        #: What the last look found.
        self.is_silent = False

    def look(self) -> bool:
        """Whether a question has had no answer for too long. Asks one, if none is under way and the last answer is not of just now."""
        with self._guard:
            now = self._now()
            if self._call is not None and ray.wait([self._call], timeout=0)[0]:
                # Where the actor has ended, its calls say so.
                self._call, self._since, self.is_silent, self.has_started = None, now, False, True
            elif self._call is not None:
                self.is_silent = now - self._since > (self._deadline if self.has_started else max(self._deadline, START_SECONDS))
            elif now - self._since > self._deadline / 4:
                self._call, self._since = self._held.probe.remote(), now
            return self.is_silent


def submit(held: Any, action: str, arguments: Sequence[Any]) -> Any:
    """Asks an actor, which does one thing after the other, and small ones beside. What is kept comes as two objects, of the error and of the result."""
    kept = action.startswith("kept_")
    action = action.removeprefix("kept_")
    beside = action in _BESIDE
    method = (held.kept_beside if beside else held.kept) if kept else held.beside if beside else held.call
    return method.remote(action, *arguments)


def actor(kind: type[Keeper]) -> Any:
    """The actor class of a kind of keepers."""
    return ray.remote(max_restarts=-1, max_task_retries=3, num_cpus=0, concurrency_groups={"beside": 1, "pulse": 1})(kind)
