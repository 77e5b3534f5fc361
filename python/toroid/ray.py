"""Encrypted tables over the drives of a Ray cluster: `pip install 'toroid[ray]'`.

One actor a drive owns its session. Rows, keys and programs go to the drives; results of ranges of rows come back, and the client alone decrypts them and
adds them up. Nothing here takes a client, so that its key cannot enter an object of Ray.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import json
import math
import os
import random
import re
import statistics
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from numbers import Real
from pathlib import Path
from types import TracebackType
from typing import Any, Self

try:
    import ray
except ImportError as error:
    raise ImportError("toroid.ray needs Ray: pip install 'toroid[ray]'") from error

from toroid import _core
from toroid._columns import EncryptedColumn, EncryptedTable, StoredColumn, check_name, examined_tables
from toroid._drive import BaseTable, Drive, as_table
from toroid._drive import open as open_drive
from toroid._errors import BusyError, ClosedError, DamagedError, DriveError, Error, ExistsError, FileError, MissingError, OptionError, RowsError
from toroid._program import Compiled, Result
from toroid._progress import Progress, reporter
from toroid._query import Answer, EncryptedParts, Finish
from toroid._trace import index_of

__all__ = ["Cluster", "MissingRows", "ShardedTable", "resume"]

#: Drives that may compute a row that is verified: with three, the one that is wrong is known.
MAX_COPIES = 3
#: Failures of a drive with a unit after which it gets the unit no more; and so many in a row, none of them an answer of the drive, end it for the job.
MAX_FAILURES = 2
#: A unit is given to another drive, too, once it takes so many times the median of the others.
STEAL_AFTER = 2.0
#: Options of [toroid.open][] that the drives of a cluster take.
OPTIONS = frozenset({"concatenate", "controller_secret", "host_id", "host_nqn", "host_secret", "new_store", "nsid", "read_only", "tls_key"})
#: The version of the files of jobs.
JOB_VERSION = 1

# A table's shard on a drive is a table of this name: the table, when it was uploaded, its rows, and how many there are.
_SHARD = re.compile(r"(?P<table>.+) (?P<upload>[0-9a-f]{16}) rows (?P<first>\d+)\.\.(?P<end>\d+) of (?P<total>\d+)")


class MissingRows(DriveError):
    """No drive could compute some rows. `rows` are their ranges, `reasons` what was wrong with each drive, by its location."""

    rows: tuple[tuple[int, int], ...] = ()
    reasons: Mapping[str, str] = {}


class _Keeper:
    """Keeps the session of a drive, in a process of Ray. Its calls are idempotent, so that Ray may repeat them."""

    def __init__(self, location: str, options: Mapping[str, Any], patience: float) -> None:
        self._location = location
        self._options = dict(options)
        self._patience = patience
        self._drive: Drive | None = None

    def call(self, action: str, *arguments: Any) -> Any:
        """Does something with the drive: what it gives, or the error that it is, which stays whole on this way."""
        had_session = self._drive is not None
        try:
            if self._drive is None:
                self._drive = self._open()
            return getattr(self, f"_{action}")(self._drive, *arguments)
        except DriveError as error:
            self._drop()
            # A drive that was started again refuses what comes by a session of before.
            return self.call(action, *arguments) if had_session else error
        # An error that Ray carried would pass for one of the actor.
        except Exception as error:  # noqa: BLE001
            return error

    def close(self) -> None:
        """Ends the session."""
        self._drop()

    def pid(self) -> int:
        """The process."""
        return os.getpid()

    def _open(self) -> Drive:
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
        drive.upload(name, table, replace=True, key_id=key_id)

    @staticmethod
    def _columns(drive: Drive) -> dict[str, dict[str, Any]]:
        columns = drive.columns()
        errors = [stat["error"] for stat in columns.values() if "error" in stat]
        if errors and len(errors) == len(columns):
            raise DriveError(errors[0])
        return columns

    @staticmethod
    def _delete(drive: Drive, name: str) -> None:
        drive.delete(name)

    @staticmethod
    def _info(drive: Drive) -> dict[str, Any]:
        return drive.info()

    @staticmethod
    def _compute(drive: Drive, shard: str, compiled: Compiled, columns: Mapping[str, str], rows: tuple[int, int]) -> Any:
        return drive.table(shard).compute(compiled, columns, rows, None)


def _place(location: str | os.PathLike[str]) -> str:
    """A location as another process understands it, whose folder may be another."""
    place = os.fspath(location)
    return place if "://" in place else os.path.abspath(place)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_shard_of(stored: str, name: str | None) -> bool:
    """Whether a table on a drive is a shard of the table of a cluster; of any, without a name."""
    match = _SHARD.fullmatch(stored)
    return match is not None and name in (None, match["table"])


def _has_all_rows(places: Iterable[tuple[int, int, int]]) -> bool:
    """Whether shards, by their first row, the one after their last, and the rows of the table, are all of it."""
    total = max(total for _, _, total in places)
    return not _gaps((0, total), [(first, end) for first, end, _ in places])


@dataclass(frozen=True)
class _Shard:
    """Rows of a table from `first` up to, and without, `end`, and the drives that have them."""

    name: str
    first: int
    end: int
    drives: tuple[str, ...]


@dataclass(frozen=True)
class _Settings:
    job: Path | None = None
    unit_seconds: float = 7.5
    unit_rows: int | None = None
    verify: float = 0.0


@dataclass(eq=False)
class _Unit:
    """A range of rows that a drive computes in one call, and the drives that do so or have done so."""

    shard: _Shard
    first: int
    end: int
    copies: int = 1
    running: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    failures: Counter[str] = field(default_factory=Counter)
    started: float = 0.0


class Cluster:
    """Drives of a Ray cluster, each kept by one actor.

    Args:
        locations: Images, served drives (`nvme+tcp://HOST:PORT/NQN`) or block devices, as [toroid.open][] takes them. An image is opened on the node
            that the actor runs on.
        patience: Seconds for which an actor tries to open a drive that cannot be opened.
        placement: Options of Ray for the actor of a location, such as `{"resources": {"drive-a": 1}}`, which let it run on the drive's node.
        options: Options of [toroid.open][] for all drives. A ledger needs the client's key, which must not leave the client's process, so there is none.

    Ray is started on this machine, if the process is not connected to a cluster. It then admits only those who have its token. A cluster that `ray start`
    made has a token only if there was one at its start: without it, whoever reaches the cluster runs programs there, with the sessions of the drives.
    """

    def __init__(
        self,
        locations: Sequence[str | os.PathLike[str]],
        *,
        patience: float = 10.0,
        placement: Mapping[str, Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        if isinstance(locations, str | bytes | os.PathLike):
            raise TypeError(f"a cluster has a list of locations, such as [{os.fspath(locations)!r}]")
        self.locations = tuple(_place(location) for location in locations)
        placed = {_place(location): dict(chosen) for location, chosen in (placement or {}).items()}
        if not self.locations or len(set(self.locations)) != len(self.locations):
            raise ValueError("a cluster has at least one drive, and each of them once")
        if refused := sorted({"client", "ledger", "create", "overwrite"} & set(options)):
            raise ValueError(f"the drives of a cluster are opened by other processes, again after each failure, so {refused[0]} is no option of theirs")
        if unknown := sorted(set(options) - OPTIONS):
            raise OptionError(f"there is no option {unknown[0]} of a drive of a cluster; there are {', '.join(sorted(OPTIONS))}")
        if not ray.is_initialized():
            ray.init()
        kind = ray.remote(max_restarts=-1, max_task_retries=3, num_cpus=0)(_Keeper)
        self._actors: dict[str, Any] = {
            location: kind.options(**placed.get(location, {})).remote(location, options, patience) for location in self.locations
        }

    def install(self, keys: _core.PublicKeys, key_id: int = 0, *, replace: bool = False) -> list[str]:
        """Stores the public keys of a client on the drives that lack them, and gives the locations of those. The keys enter Ray's object store once.

        `replace` tells whether keys of another client are replaced. Questions and programs no longer run on its tables.

        Raises:
            KeyMismatch: Another client has keys or tables under the key id.
        """
        held = ray.put(keys.to_bytes())
        done = self._all("install", [held], keys.tag, key_id, replace)
        return [location for location, is_new in done.items() if is_new]

    def upload(
        self,
        name: str,
        data: EncryptedTable | EncryptedColumn,
        *,
        shards: int | None = None,
        replicas: int = 1,
        replace: bool = False,
        key_id: int = 0,
    ) -> ShardedTable:
        """Spreads a table over the drives by its rows: in as many shards as there are drives, if not given, each on `replicas` drives."""
        check_name(name)
        table = as_table(data)
        count = min(len(self.locations) if shards is None else shards, table.rows)
        if count < 1 or not 1 <= replicas <= len(self.locations):
            raise ValueError(f"there is at least one shard, and from 1 to {len(self.locations)} replicas, as many as drives")
        former = self._shards_on_drives(name)
        if former and not replace:
            raise ExistsError(f"the cluster has a table {name} already: give another name, or replace=True")
        upload = f"{time.time_ns():016x}"
        ends = [table.rows * number // count for number in range(count + 1)]
        calls: list[tuple[str, Any]] = []
        try:
            # A drive of this process cuts columns: it knows how to, and keeps them as small as they came.
            with open_drive() as cutter:
                whole = cutter.upload("table", table)
                for number, (first, end) in enumerate(itertools.pairwise(ends)):
                    part = ray.put(whole.download((first, end)))
                    shard = f"{name} {upload} rows {first}..{end} of {table.rows}"
                    for replica in range(replicas):
                        location = self.locations[(number + replica) % len(self.locations)]
                        calls.append((location, self._submit(location, "upload", shard, part, key_id)))
                for location, call in calls:
                    self._got(location, call)
        except BaseException:
            # Shards without the others are no table, and those of before are still there. Drives that are gone keep theirs, which `tables` passes over.
            for location, call in calls:
                self._answer(location, call)
            with contextlib.suppress(DriveError):
                for location, names in self._shards_on_drives(name).items():
                    for shard in set(names) - set(former.get(location, ())):
                        self._answer(location, self._submit(location, "delete", shard))
            raise
        for location, names in former.items():
            for shard in names:
                self._got(location, self._submit(location, "delete", shard))
        return self.table(name)

    def table(self, name: str) -> ShardedTable:
        """A table of the cluster. Drives that do not answer have none of it, until they answer again."""
        found = self.tables(name)
        if name not in found:
            raise MissingError(f"the drives of the cluster that answer have no table {name}")
        return found[name]

    def tables(self, name: str | None = None) -> dict[str, ShardedTable]:
        """The tables of the cluster by their names; that of one name, if it is given.

        Raises:
            DriveError: No drive answers.
        """
        shards: dict[str, dict[str, dict[tuple[int, int, int], list[str]]]] = {}
        columns: dict[str, dict[str, StoredColumn]] = {}
        answers = self._columns_on_drives()
        silent = {location: str(held) for location, held in answers.items() if isinstance(held, Exception)}
        all_answer = not silent
        for location, held in answers.items():
            if isinstance(held, Exception):
                continue
            whole, damaged = examined_tables(held)
            # Another drive may have their rows whole.
            silent.update((location, str(error)) for shard, error in damaged.items() if _is_shard_of(shard, name))
            for shard, found in whole.items():
                match = _SHARD.fullmatch(shard)
                if match is None or not _is_shard_of(shard, name):
                    continue
                place = (int(match["first"]), int(match["end"]), int(match["total"]))
                shards.setdefault(match["table"], {}).setdefault(match["upload"], {}).setdefault(place, []).append(location)
                columns[f"{match['table']} {match['upload']}"] = found
        tables = {}
        for table, uploads in shards.items():
            # An upload that was interrupted lacks rows, and the table that it was to replace is still there. If drives are away, the rows may be theirs:
            # then rows of before must not pass for the table.
            whole_uploads = [item for item in uploads.items() if all_answer and _has_all_rows(item[1])]
            upload, places = max(whole_uploads or uploads.items())
            held_by = [
                _Shard(f"{table} {upload} rows {first}..{end} of {total}", first, end, tuple(locations))
                for (first, end, total), locations in sorted(places.items())
            ]
            total = next(iter(places))[2]
            own_columns = {column: replace(stored, rows=total) for column, stored in columns[f"{table} {upload}"].items()}
            tables[table] = ShardedTable(self, table, own_columns, held_by, silent)
        return tables

    def __getitem__(self, name: str) -> ShardedTable:
        return self.table(name)

    def __contains__(self, name: object) -> bool:
        return name in self.tables()

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())

    def delete(self, name: str) -> None:
        """Deletes a table from all drives that answer."""
        found = self._shards_on_drives(name)
        if not found:
            raise MissingError(f"the drives of the cluster that answer have no table {name}")
        for location, names in found.items():
            for shard in names:
                self._got(location, self._submit(location, "delete", shard))

    def info(self) -> dict[str, dict[str, Any] | Exception]:
        """What each drive is, and how full, or the error of one that does not answer."""
        return self._answers("info")

    def close(self) -> None:
        """Ends the sessions and the actors."""
        for actor in self._actors.values():
            # An actor that is gone has no session.
            with contextlib.suppress(ray.exceptions.RayError):
                ray.get(actor.close.remote())
            ray.kill(actor)
        self._actors = {}

    def _submit(self, location: str, action: str, *arguments: Any) -> Any:
        """Asks the actor of a drive. All that goes to drives goes through here."""
        if not self._actors:
            raise ClosedError("the cluster was closed")
        return self._actors[location].call.remote(action, *arguments)

    def _answer(self, location: str, call: Any) -> Any:
        """What a call gave, or the error that it ended with."""
        try:
            return ray.get(call)
        except (ray.exceptions.RayActorError, ray.exceptions.RaySystemError) as error:
            return DriveError(f"the actor of drive {location} is gone: {error}")
        except ray.exceptions.RayError as error:
            return DriveError(f"Ray has no answer of the actor of drive {location}: {error}")

    def _got(self, location: str, call: Any) -> Any:
        answer = self._answer(location, call)
        if isinstance(answer, Exception):
            answer.add_note(f"on drive {location}")
            raise answer
        return answer

    def _answers(self, action: str, *arguments: Any) -> dict[str, Any]:
        calls = {location: self._submit(location, action, *arguments) for location in self.locations}
        return {location: self._answer(location, call) for location, call in calls.items()}

    def _all(self, action: str, *arguments: Any) -> dict[str, Any]:
        calls = {location: self._submit(location, action, *arguments) for location in self.locations}
        return {location: self._got(location, call) for location, call in calls.items()}

    def _columns_on_drives(self) -> dict[str, Any]:
        """What each drive has, or its error.

        Raises:
            DriveError: No drive answers.
        """
        answers = self._answers("columns")
        if all(isinstance(held, Exception) for held in answers.values()):
            raise DriveError("no drive of the cluster answers: " + "; ".join(f"{location}: {error}" for location, error in answers.items()))
        return answers

    def _shards_on_drives(self, name: str) -> dict[str, list[str]]:
        found: dict[str, set[str]] = {}
        for location, columns in self._columns_on_drives().items():
            for stored in () if isinstance(columns, Exception) else columns:
                shard = stored.split("/", 1)[0]
                if _is_shard_of(shard, name):
                    found.setdefault(location, set()).add(shard)
        return {location: sorted(names) for location, names in found.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Cluster: {', '.join(self.locations)}>"


class ShardedTable(BaseTable):
    """A table over the drives of a cluster. Questions and programs run on it as on a table of one drive."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        columns: dict[str, StoredColumn],
        shards: Sequence[_Shard],
        silent: Mapping[str, str],
        settings: _Settings | None = None,
    ) -> None:
        super().__init__(name, columns)
        self.cluster = cluster
        self._shards = tuple(shards)
        # Rows that were uploaded later are another table, though its name is the same.
        match = _SHARD.fullmatch(self._shards[0].name)
        assert match is not None
        self._upload = match["upload"]
        self._silent = dict(silent)
        self._settings = settings or _Settings()

    @property
    def shards(self) -> dict[tuple[int, int], tuple[str, ...]]:
        """The locations of the drives that have the rows from the first of a pair up to, and without, the second."""
        return {(shard.first, shard.end): shard.drives for shard in self._shards}

    def options(
        self,
        *,
        job: str | os.PathLike[str] | None = None,
        unit_seconds: float | None = None,
        unit_rows: int | None = None,
        verify: float | None = None,
    ) -> ShardedTable:
        """The same table with other ways to compute.

        Args:
            job: A file for results of ranges of rows, with which `resume`, or the same call, goes on after the process has ended. It has no secrets.
            unit_seconds: Seconds of one core that a unit of work is meant to take, by the cost of a row; 7.5 if not given.
            unit_rows: Rows of a unit of work, in place of that.
            verify: The share of the rows that up to three drives compute, for `client.decrypt` to compare; every shard needs a
                second drive: upload with `replicas=2`, or with 3 to know which drive is wrong.

        Raises:
            DriveError: `verify` needs drives that do not answer.
        """
        if unit_seconds is not None and not (_is_number(unit_seconds) and 0 < unit_seconds < math.inf):
            raise ValueError(f"unit_seconds is {unit_seconds!r}, and a unit takes some seconds, more than 0")
        if unit_rows is not None:
            try:
                unit_rows = index_of(unit_rows)
            except TypeError:
                raise TypeError(f"unit_rows is {unit_rows!r}, and a unit has a whole number of rows") from None
            if unit_rows < 1:
                raise ValueError(f"unit_rows is {unit_rows}, and a unit has at least one row")
        if verify is not None and not (_is_number(verify) and 0 <= verify <= 1):
            raise ValueError(f"verify is {verify!r}, and a share of the rows lies from 0 to 1")
        changes: dict[str, Any] = {"unit_seconds": unit_seconds, "unit_rows": unit_rows, "verify": verify, "job": None if job is None else Path(job)}
        settings = replace(self._settings, **{name: value for name, value in changes.items() if value is not None})
        # Numbers of numpy do not go into the file of a job.
        settings = replace(settings, unit_seconds=float(settings.unit_seconds), verify=float(settings.verify))
        if settings.verify and any(len(shard.drives) < 2 for shard in self._shards):
            if self._silent:
                why = "; ".join(f"{drive}: {reason}" for drive, reason in self._silent.items())
                raise DriveError(f"verify needs a second drive with the rows, and drives are away ({why}); verify=0 compares nothing")
            raise ValueError("verify needs a second drive with the rows: upload the table with replicas=2, or 3 to know which drive is wrong")
        return ShardedTable(self.cluster, self.name, self.columns, self._shards, self._silent, settings)

    def compute(
        self, compiled: Compiled, columns: Mapping[str, str], rows: tuple[int, int] | None, progress: Progress, finish: Finish | None = None
    ) -> EncryptedParts:
        """Runs a program on the drives, in units of rows.

        Raises:
            MissingRows: No drive could compute some rows.
            ExistsError: The file of the job is that of another job.
        """
        first, end = rows or (0, self.rows)
        if not 0 <= first < end <= self.rows:
            raise RowsError(f"table {self.name} has the rows 0..{self.rows}, and not {first}..{end}")
        header = {
            "toroid job": JOB_VERSION,
            "locations": self.cluster.locations,
            "table": self.name,
            "upload": self._upload,
            "compiled": compiled.__reduce__()[1][0],
            "columns": dict(columns),
            "rows": [first, end],
            "unit_seconds": self._settings.unit_seconds,
            "unit_rows": self._settings.unit_rows,
            "verify": self._settings.verify,
            "finish": None if finish is None else asdict(finish),
        }
        with _Job.open(self._settings.job, json.loads(json.dumps(header))) as job:
            return _Run(self, compiled, columns, (first, end), job).run(progress)

    def _units(self, compiled: Compiled, rows: tuple[int, int], done: Sequence[tuple[int, int]]) -> Iterator[_Unit]:
        """The units of work for the rows that are not done."""
        size = self._settings.unit_rows
        if size is None:
            size = max(1, int(self._settings.unit_seconds / max(compiled.cost.seconds_per_row, 1e-6)))
            if compiled.group is not None and size > compiled.group:
                # No more rows of results than the sums of whole groups have.
                size -= size % compiled.group
        for shard in self._shards:
            start, end = max(shard.first, rows[0]), min(shard.end, rows[1])
            inside = [(low, high) for low, high in sorted(done) if start <= low and high <= end]
            for low, high in [*inside, (end, end)]:
                for first in range(start, low, size):
                    yield _Unit(shard, first, min(first + size, low))
                start = high


class _Run:
    """A job under way: units wait by shards, drives take them when they are idle."""

    def __init__(self, table: ShardedTable, compiled: Compiled, columns: Mapping[str, str], rows: tuple[int, int], job: _Job) -> None:
        self._table = table
        self._cluster = table.cluster
        self._compiled = compiled
        self._columns = dict(columns)
        self._rows = rows
        self._job = job
        self._waiting: dict[_Shard, deque[_Unit]] = {}
        self._checks: list[_Unit] = []
        self._calls: dict[Any, tuple[_Unit, str]] = {}
        self._seconds: list[float] = []
        self._failures: dict[str, int] = dict.fromkeys(self._cluster.locations, 0)
        self._reasons: dict[str, str] = dict(table._silent)
        self._last: Exception | None = None

    def run(self, progress: Progress) -> EncryptedParts:
        """Computes the rows, and gives their results in order."""
        report = reporter(progress)
        units = list(self._table._units(self._compiled, self._rows, list(self._job.done)))
        if absent := _gaps(self._rows, [*((unit.first, unit.end) for unit in units), *self._job.done]):
            raise self._missing(absent)
        for unit in units:
            self._waiting.setdefault(unit.shard, deque()).append(unit)
        share = self._table._settings.verify
        # Drives must not know which rows are compared.
        if share:
            known = [unit for unit in units if (unit.first, unit.end) in self._job.chosen]
            others = [unit for unit in units if (unit.first, unit.end) not in self._job.chosen]
            picked = random.SystemRandom().sample(others, max(0, math.ceil(share * len(units)) - len(known)))
            self._job.choose([(unit.first, unit.end) for unit in picked])
            for unit in [*known, *picked]:
                unit.copies = min(MAX_COPIES, len(unit.shard.drives))
            self._checks = list(self._left_to_check())
        total = self._rows[1] - self._rows[0]
        finished = total - sum(unit.end - unit.first for unit in units)
        while True:
            busy = {drive for _, drive in self._calls.values()}
            for drive in self._cluster.locations:
                if drive not in busy and self._is_alive(drive) and (chosen := self._next(drive)) is not None:
                    self._start(chosen, drive)
            if not self._calls or not (any(self._waiting.values()) or self._checks or any(self._counts(unit) for unit, _ in self._calls.values())):
                break
            ready, _ = ray.wait(list(self._calls), num_returns=1, timeout=0.5)
            for call in ready:
                unit, drive = self._calls.pop(call)
                unit.running.discard(drive)
                answer = self._cluster._answer(drive, call)
                if isinstance(answer, Exception):
                    self._failed(unit, drive, answer)
                    continue
                self._failures[drive] = 0
                self._seconds.append(time.monotonic() - unit.started)
                is_first = not unit.done
                unit.done.add(drive)
                self._job.record((unit.first, unit.end), drive, answer)
                if is_first:
                    finished += unit.end - unit.first
                    if report is not None:
                        report("compute", finished, total)
        if absent := _gaps(self._rows, list(self._job.done)):
            raise self._missing(absent)
        if share and (lonely := [rows for rows in sorted(self._job.chosen) if len(self._job.done.get(rows, (0, 0))) < 2]):
            raise self._not_compared(lonely)
        return EncryptedParts(tuple((end - first, by_drive) for (first, end), by_drive in sorted(self._job.done.items())))

    def _left_to_check(self) -> Iterator[_Unit]:
        """Units that were chosen when the job was at work before, and have a result, but not those to compare it with."""
        for (first, end), by_drive in self._job.done.items():
            if (first, end) not in self._job.chosen:
                continue
            for shard in self._table._shards:
                if shard.first <= first and end <= shard.end:
                    yield _Unit(shard, first, end, min(MAX_COPIES, len(shard.drives)), done=set(by_drive))

    def _is_alive(self, drive: str) -> bool:
        return self._failures[drive] < MAX_FAILURES

    @staticmethod
    def _may_take(drive: str, unit: _Unit) -> bool:
        """Whether a drive has the rows, and has neither computed them, nor is about to, nor has failed with them too often."""
        return drive in unit.shard.drives and drive not in unit.done | unit.running and unit.failures[drive] < MAX_FAILURES

    @staticmethod
    def _counts(unit: _Unit) -> bool:
        """Whether something under way is still needed, and is no second try of what another drive has done meanwhile."""
        return len(unit.done) < unit.copies

    def _next(self, drive: str) -> _Unit | None:
        own = [units for units in self._waiting.values() if any(self._may_take(drive, unit) for unit in units)]
        if own:
            units = max(own, key=len)
            chosen = next(unit for unit in units if self._may_take(drive, unit))
            units.remove(chosen)
            return chosen
        self._checks = [unit for unit in self._checks if len(unit.done | unit.running) < unit.copies and self._can_be_checked(unit)]
        for check in self._checks:
            if self._may_take(drive, check):
                return check
        if not self._seconds:
            return None
        slow = time.monotonic() - STEAL_AFTER * statistics.median(self._seconds)
        late = [unit for unit, _ in self._calls.values() if not unit.done and len(unit.running) == 1 and unit.started < slow]
        return next((unit for unit in sorted(late, key=lambda unit: unit.started) if self._may_take(drive, unit)), None)

    def _can_be_checked(self, unit: _Unit) -> bool:
        return any(self._is_alive(drive) and self._may_take(drive, unit) for drive in unit.shard.drives)

    def _start(self, unit: _Unit, drive: str) -> None:
        if not unit.running and not unit.done and unit.copies > 1:
            self._checks.append(unit)
        unit.running.add(drive)
        unit.started = time.monotonic()
        shard = unit.shard
        rows = (unit.first - shard.first, unit.end - shard.first)
        self._calls[self._cluster._submit(drive, "compute", shard.name, self._compiled, self._columns, rows)] = (unit, drive)

    def _failed(self, unit: _Unit, drive: str, error: Exception) -> None:
        # A drive that says what is wrong is there, and other units may do.
        is_answer = not isinstance(error, DriveError) or error.status is not None
        self._failures[drive] = 0 if is_answer else self._failures[drive] + 1
        unit.failures[drive] += 1
        self._reasons[drive] = str(error)
        self._last = error
        if unit.done or unit.running:
            return
        self._checks = [other for other in self._checks if other is not unit]
        self._waiting[unit.shard].append(unit)

    def _not_compared(self, rows: list[tuple[int, int]]) -> DriveError:
        shown = ", ".join(f"{first}..{end} ({', '.join(self._job.done[first, end])})" for first, end in rows)
        why = "; ".join(f"{drive}: {reason}" for drive, reason in self._reasons.items())
        error = DriveError(
            f"rows of table {self._table.name} were to be compared, and one drive alone has computed them: {shown}" + (f" ({why})" if why else ""),
            reason=getattr(self._last, "reason", None),
            status=getattr(self._last, "status", None),
        )
        error.add_note("A job with a file keeps the results: resume it once the drives are back, or with verify=0, which compares nothing.")
        error.__cause__ = self._last
        return error

    def _missing(self, rows: list[tuple[int, int]]) -> MissingRows:
        shown = ", ".join(f"{first}..{end}" for first, end in rows)
        why = "; ".join(f"{drive}: {reason}" for drive, reason in self._reasons.items())
        error = MissingRows(
            f"no drive could compute the rows {shown} of table {self._table.name}" + (f" ({why})" if why else ""),
            rows=tuple(rows),
            reasons=self._reasons,
            reason=getattr(self._last, "reason", None),
            status=getattr(self._last, "status", None),
        )
        error.__cause__ = self._last
        return error


def _gaps(rows: tuple[int, int], ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """What ranges that do not overlap leave out."""
    found, start = [], rows[0]
    for first, end in [*sorted(ranges), (rows[1], rows[1])]:
        if first > start:
            found.append((start, first))
        start = max(start, end)
    return found


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


def _rows(found: Any) -> tuple[int, int]:
    """A range of rows that a line of a job's file has."""
    first, end = found
    if not (isinstance(first, int) and isinstance(end, int) and 0 <= first < end):
        raise ValueError(f"it has the range of rows {found}")
    return first, end


def _matters(name: str, value: Any) -> Any:
    """What of a value of the first line makes one job differ from another: the comments of a program name the lines of the caller, which do not."""
    if name != "compiled":
        return value
    facts = json.loads(value)
    facts["program"] = [line for line in facts["program"].splitlines() if not line.lstrip().startswith(";")]
    return facts


def _line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values).encode() + b"\n"


class _Job:
    """The results of ranges of rows, by the drives that computed them, and which ranges are to be compared: in a file if there is one, with a line for
    the job, one for each result and one for each choice."""

    def __init__(self, header: Mapping[str, Any], file: Any = None) -> None:
        self.header = header
        self.done: dict[tuple[int, int], dict[str, _core.EncryptedRows]] = {}
        # Ranges whose results are to be compared.
        self.chosen: set[tuple[int, int]] = set()
        self._file = file

    @staticmethod
    def open(path: Path | None, header: Mapping[str, Any] | None) -> _Job:
        """The job of a file, which becomes that of the header if it is new; without a header it is there already."""
        if path is None:
            return _Job(header or {})
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
            job = _Job(found, file)
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

    def choose(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Keeps which ranges are to be compared, so that they still are when the job goes on."""
        if ranges:
            self.chosen.update(ranges)
            self._write({"verify": ranges})

    def record(self, rows: tuple[int, int], drive: str, result: _core.EncryptedRows) -> None:
        """Keeps a result, durably if there is a file."""
        self.done.setdefault(rows, {})[drive] = result
        self._write({"rows": rows, "drive": drive, "result": base64.b64encode(result.to_bytes()).decode()})

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._file.write(_line(line))
            self._file.flush()
            os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()


def resume(
    job: str | os.PathLike[str], cluster: Cluster | None = None, *, progress: Progress = None, verify: float | None = None, **options: Any
) -> Answer | Result:
    """Goes on with the job of a file where its process ended, and gives what the call would have given.

    Args:
        job: The file that `ShardedTable.options` named.
        cluster: The drives; if not given, those of the job, with options as [Cluster][toroid.ray.Cluster] has them.
        progress: True for a line that shows how far it is, or a callable of the stage, the rows done and those in total.
        verify: The share of the rows that are still to do which drives compute for `client.decrypt` to compare, in place of that of the job. With 0
            rows that the job chose before are not compared either.

    Raises:
        MissingRows: No drive could compute some rows.
        DriveError: Rows that were to be compared could not be.
        MissingError: The table was deleted, or uploaded again, since.
    """
    with _Job.open(Path(job), None) as found:
        header = found.header
    own = cluster or Cluster(header["locations"], **options)
    try:
        table = own.table(header["table"])
        if table._upload != header["upload"]:
            raise MissingError(f"table {table.name} was uploaded again since, and {os.fspath(job)} is a job on the rows of before")
        compiled = Compiled(header["compiled"])
        ways = {name: header[name] for name in ("unit_seconds", "unit_rows", "verify")}
        if verify is not None:
            ways["verify"] = verify
        finish = None if header["finish"] is None else Finish.of(header["finish"])
        rows = (header["rows"][0], header["rows"][1])
        encrypted = table.options(job=job, **ways).compute(compiled, header["columns"], rows, progress, finish)
    finally:
        if cluster is None:
            own.close()
    count = rows[1] - rows[0]
    return Result(compiled, encrypted, count) if finish is None else Answer(compiled, encrypted, count, finish)
