"""Drives, and the tables on them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import operator
import os
import re
import reprlib
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from toroid import _core
from toroid._cancel import check
from toroid._client import Client
from toroid._columns import (
    EncryptedColumn,
    EncryptedTable,
    StoredColumn,
    check_name,
    examined_tables,
    numbers_of,
    stored_names,
    stored_tables,
    stored_version,
)
from toroid._errors import BusyError, Error, ExistsError, FileError, FullError, KeyMismatch, MissingError, OptionError, RowsError
from toroid._expr import Aggregate, Expr
from toroid._progress import Progress, in_turn, reporter, twin
from toroid._query import EncryptedParts, Finish, Query
from toroid._rounds import Stored
from toroid._text import check_text

if TYPE_CHECKING:
    from toroid._program import Compiled
    from toroid._rounds import Rounds

#: How a program goes over columns: sample by sample, by ciphertexts of a ring, or what takes less time.
Way = Literal["auto", "samples", "ring"]

#: Options of drives on the network.
_ENVIRONMENT = ("host_nqn", "host_id", "host_secret", "controller_secret", "tls_key", "nsid")

#: Seconds after which who waits for a turn looks whether the call was cancelled.
PATIENCE = 0.05

#: What a question or a program keeps on a drive until it ends: the results of rounds, and a result itself. `call` is that whose turn it is.
_LEFT = re.compile("(?P<call>(round|result) [0-9a-f]{32})( .*)?")


class BaseTable(ABC):
    """A table that questions and programs run on: columns by their names."""

    def __init__(self, name: str, columns: dict[str, StoredColumn]) -> None:
        self.name = name
        self.columns = columns

    @property
    def rows(self) -> int:
        """The rows that all columns have."""
        return min(column.rows for column in self.columns.values())

    @property
    def params(self) -> str:
        """The parameter set of its columns."""
        return next(iter(self.columns.values())).params

    @property
    def key_id(self) -> int:
        """The key id that its columns are stored under."""
        return next(iter(self.columns.values())).key_id

    def chosen(self, rows: tuple[int, int] | None) -> tuple[int, int]:
        """The rows from the first of a pair up to, and without, the second; all if not given.

        Raises:
            RowsError: The table does not have them, or there are none.
            TypeError: They are no pair of integers.
        """
        first, end = (0, self.rows) if rows is None else pair_of(rows)
        if not 0 <= first < end <= self.rows:
            raise RowsError(f"table {self.name} has the rows 0..{self.rows}, and not {first}..{end}")
        return first, end

    def _fitting(self, data: EncryptedTable | EncryptedColumn) -> EncryptedTable:
        """Rows to put behind those of the table.

        Raises:
            KeyMismatch: They have other columns, or numbers of other types.
        """
        added = as_table(data)
        if list(added) != list(self.columns):
            raise KeyMismatch(f"table {self.name} has the columns {', '.join(self.columns)}, and the rows have {', '.join(added)}")
        for name, column in self.columns.items():
            if added[name].layout != column.layout:
                raise KeyMismatch(f"column {name} has numbers of another type: give client.encrypt the types of the table")
        return added

    def where(self, condition: Expr) -> Query:
        """A question to the rows for which a condition holds: `table.where(toroid.col("salary") > 30_000)`."""
        return Query(self).where(condition)

    def group_by(self, key: str | Expr) -> Query:
        """A question to the rows of each value of a key."""
        return Query(self).group_by(key)

    def agg(self, **results: Aggregate) -> Query:
        """A question for sums, counts, means, least and greatest values over all rows."""
        return Query(self).agg(**results)

    def select(self, *columns: str | Expr, **named: Expr) -> Query:
        """A question for values of every row."""
        return Query(self).select(*columns, **named)

    def histogram(self, column: str | Expr, edges: list[int]) -> Query:
        """A question for how many values lie between neighbours of ascending edges."""
        return Query(self).histogram(column, edges)

    def join(self, other: object, on: str, *, how: Literal["inner", "left"] = "inner", fill: int | None = None) -> Query:
        """A question that takes the columns of a small table beside its own, as [Query.join][toroid.Query.join] has it."""
        return Query(self).join(other, on, how=how, fill=fill)

    def sort(self, by: str | Expr, *, descending: bool = False) -> Query:
        """A question for the rows in the order of a key, as [Query.sort][toroid.Query.sort] has it."""
        return Query(self).sort(by, descending=descending)

    def top_k(self, count: int, by: str | Expr, *, descending: bool = True) -> Query:
        """A question for the rows of the greatest keys, or of the least, as [Query.top_k][toroid.Query.top_k] has it."""
        return Query(self).top_k(count, by, descending=descending)

    @abstractmethod
    def compute(
        self,
        compiled: Compiled,
        columns: Mapping[str, str],
        rows: tuple[int, int] | None,
        progress: Progress,
        finish: Finish | None = None,
        *,
        way: Way = "auto",
    ) -> _core.EncryptedRows | EncryptedParts:
        """Runs a program of the drive on columns by the names of its inputs; `finish` is what a question makes of the result."""

    @abstractmethod
    def compare(self, rounds: Rounds, log2_failure: float, progress: Progress) -> tuple[list[list[_core.EncryptedRows]], float]:
        """Does the rounds of a question that compares rows: for each network the words of the rows that are wanted, and log2 of the probability that some
        round went wrong."""

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.rows} rows of {self.params}>"


class Table(BaseTable):
    """A table on a drive: columns by their names."""

    def __init__(self, drive: Drive, name: str, columns: dict[str, StoredColumn]) -> None:
        super().__init__(name, columns)
        self.drive = drive

    def compute(
        self,
        compiled: Compiled,
        columns: Mapping[str, str],
        rows: tuple[int, int] | None,
        progress: Progress,
        finish: Finish | None = None,
        *,
        way: Way = "auto",
    ) -> _core.EncryptedRows:
        """Runs a program on columns of the table, and takes its result from the drive. All rows are those that the table had when it was looked up.

        The name of the result follows from what is computed, so that a call that was interrupted goes on where it was.
        """
        rows = self.chosen(rows)
        inputs = {name: self.columns[column].names for name, column in columns.items()}
        self._check_stored({stored for names in inputs.values() for stored in names})
        digest = hashlib.sha256(json.dumps([compiled.code, inputs, rows], sort_keys=True).encode()).hexdigest()
        output = f"result {digest[:32]}"
        # A result is read, appended and pickled as samples, whatever way it came.
        options: dict[str, Any] = {"rows": rows, "key_id": self.key_id, "progress": progress, "way": way, "result": "samples"}
        with self.drive.turn(output):
            try:
                self.drive.run(compiled.program, compiled.registers(inputs), output, **options)
            except ExistsError:
                # An interrupted run has left it, and the columns were replaced since.
                self.drive.run(compiled.program, compiled.registers(inputs), output, replace=True, **options)
            encrypted = self.drive.core.get_column(output, None, None)
            self.drive.core.delete(output)
        return encrypted

    def compare(self, rounds: Rounds, log2_failure: float, progress: Progress) -> tuple[list[list[_core.EncryptedRows]], float]:
        """Does the rounds of a question that compares rows. What was interrupted goes on where it was."""
        self._check_stored({stored for column in self.columns.values() for stored in column.names})
        machine = Stored(self, rounds, log2_failure)
        report = reporter(progress)
        with self.drive.turn(machine.name):
            found = rounds.play(machine, lambda done, total: None if report is None else report("compare", done, total))
            machine.clean()
        return found, machine.log2_failure

    def append(self, data: EncryptedTable | EncryptedColumn, progress: Progress = None) -> None:
        """Puts rows behind those of the table as it is on the drive now. Each digit is appended as a whole or not at all.

        Raises:
            RowsError: An append ended early, so that digits have different numbers of rows: those that all have are as they were, and the table can be
                uploaded again.
            KeyMismatch: The rows have other columns, or numbers of other types.
        """
        with self.drive.turn(f"table {self.name}"):
            have = dict(self.drive.core.columns())
            self.columns = self.drive.table_of(self.name, have).columns
            added = self._fitting(data)
            for name, column in self.columns.items():
                if any(have[stored]["rows"] != self.rows for stored in column.names):
                    raise RowsError(f"column {name} has more rows than the others, since an append ended early: upload the table again with replace=True")
            digits = [digit for name, column in self.columns.items() for digit in zip(column.names, added[name].digits, strict=True)]
            for (stored, rows), report in zip(digits, in_turn(progress, len(digits)), strict=True):
                have[stored] = self.drive.core.append(stored, rows, report)
            self.columns = self.drive.table_of(self.name, have).columns

    def _check_stored(self, names: set[str]) -> None:
        """Refuses columns that have fewer rows than when the table was looked up: those of a single row would go with every row of the others.

        Raises:
            RowsError: They have.
            MissingError: They are there no more.
        """
        have = self.drive.core.columns()
        for stored in names:
            if stored not in have:
                raise MissingError(f"table {self.name} was deleted or replaced since it was looked up: look it up again")
            if have[stored].get("rows", self.rows) < self.rows:
                raise RowsError(f"table {self.name} was uploaded again since it was looked up, with fewer rows: look it up again")

    def download(self, rows: tuple[int, int] | None = None, progress: Progress = None) -> EncryptedTable:
        """The encrypted rows from the first of a pair up to, and without, the second; all if not given.

        Raises:
            RowsError: The table does not have them.
        """
        chosen = self.chosen(rows)
        reports = in_turn(progress, sum(len(column.names) for column in self.columns.values()))
        return EncryptedTable(
            {
                name: EncryptedColumn(column.layout, tuple(self.drive.core.get_column(stored, chosen, next(reports)) for stored in column.names))
                for name, column in self.columns.items()
            }
        )

    aappend = twin(append)
    adownload = twin(download)


class Turn:
    """A lock, for which who waits can be cancelled.

    Raises:
        BusyError: The thread has it already, as when a callable of `progress` asks what is being computed.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._owner: int | None = None

    def acquire(self, blocking: bool = True) -> bool:
        """Takes the lock, if it is free or once it is."""
        if blocking and self._owner == threading.get_ident():
            raise BusyError(f"{self._what} is at work in this thread already")
        while not self._lock.acquire(blocking, PATIENCE if blocking else -1):
            if not blocking:
                return False
            check()
        self._owner = threading.get_ident()
        return True

    def release(self) -> None:
        """Gives it back."""
        self._owner = None
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.release()


class Drive:
    """An open drive. Its calls may come from several threads at once."""

    def __init__(self, core: _core.Drive) -> None:
        self.core = core
        self._guard = threading.Lock()
        self._turns: weakref.WeakValueDictionary[str, Turn] = weakref.WeakValueDictionary()

    def turn(self, what: str) -> Turn:
        """A lock for who computes the column `what`, reads and deletes it, or changes a table. Equal questions of several threads have the same."""
        with self._guard:
            return self._turns.setdefault(what, Turn(what))

    def install(self, keys: _core.PublicKeys, key_id: int = 0, progress: Progress = None, *, replace: bool = False) -> None:
        """Stores the public keys of a client, unless they are there already.

        Args:
            keys: The keys.
            key_id: The key id of the tables that they are for.
            progress: True for a line that shows how far it is, or a callable of the stage, the steps done and those in total.
            replace: Whether keys of another client are replaced. Questions and programs no longer run on its tables.

        Raises:
            KeyMismatch: Another client has keys or tables under the key id.
            OptionError: There is no such key id.
            TypeError: The keys are none.
        """
        if not isinstance(keys, _core.PublicKeys):
            raise TypeError(f"keys are what client.public_keys() gives, and not a {type(keys).__name__}")
        check_key_id(key_id)
        if self.core.has_keys(keys.tag, key_id):
            return
        try:
            self.core.put_keys(keys, key_id, reporter(progress), replace)
        except KeyMismatch as error:
            if not replace:
                error.add_note("Give another key_id, to upload as well, or replace=True.")
            raise

    def install_ring_keys(
        self, client: Client, ring: str | None = None, *, key_id: int = 0, replace: bool = False, progress: Progress = None
    ) -> dict[str, Any]:
        """Makes the keys by which programs go over whole columns by ciphertexts of a ring, on the drive as they come. They are public, and take hundreds of
        megabytes there for sets that protect something.

        Args:
            client: The client whose columns they are for.
            ring: The name of the ring, such as "ring16"; that which has the messages of the client's parameter set if not given.
            key_id: The key id of the tables that they are for.
            replace: Whether keys of another client, or of another ring, are replaced.
            progress: True for a line that shows how far it is, or a callable of the stage, the steps done and those in total.

        Returns:
            The name of the ring, and the bytes of its key and of that for conversions.

        Raises:
            OptionError: There is no such ring or key id, or it is for tests and the client is not.
            KeyMismatch: Another client has keys or tables under the key id.
            TypeError: What is given is no client.
        """
        check_client(client)
        check_key_id(key_id)
        if ring is not None:
            check_text("ring", ring)
        return self.core.put_ring_keys(client.key, ring, key_id, reporter(progress), replace)

    def upload(
        self, name: str, data: EncryptedTable | EncryptedColumn, *, replace: bool = False, key_id: int = 0, progress: Progress = None
    ) -> Table:
        """Makes a table of encrypted columns. A column alone becomes a table of the column `value`.

        Args:
            name: The table's name.
            data: The columns.
            replace: Whether the table takes the place of one of this name, which stays until all rows are there: the drive has room for both.
            key_id: The key id of the public keys that compute with it.
            progress: True for a line that shows how far it is, or a callable of the stage, the steps done and those in total.

        Raises:
            ExistsError: There is a table of this name.
            ValueError: A name is none, or is too long; or there is no such key id.
            DriveError: The drive does not do it, for example because it is full. What was put is deleted; a table of before is as it was.
        """
        check_name(name)
        check_key_id(key_id)
        table = as_table(data)
        with self.turn(f"table {name}"):
            self._put(name, table, replace, key_id, progress)
        return self.table(name)

    def _put(self, name: str, table: EncryptedTable, replace: bool, key_id: int, progress: Progress) -> None:
        former = self._stored(name)
        if former and not replace:
            raise ExistsError(f"the drive has a table {name} already: give another name, or replace=True")
        version = 1 + max(number for number, _, _ in former.values()) if former else 0
        digits: list[tuple[str, _core.EncryptedRows]] = []
        for place, (column, encrypted) in enumerate(table.items()):
            digits.extend(zip(stored_names(name, version, place, len(table), column, encrypted.layout), encrypted.digits, strict=True))
        put: list[str] = []
        try:
            # The first place comes last: with it the table is there.
            for (stored, rows), report in zip(reversed(digits), in_turn(progress, len(digits)), strict=True):
                put.append(stored)
                self.core.put_column(stored, rows, False, key_id, report)
        except BaseException as error:
            if isinstance(error, ExistsError):
                # Another session puts the same table at the moment: the column is its.
                put.pop()
            for stored in reversed(put):
                # What failed may have left nothing, or the drive may no longer be there.
                with contextlib.suppress(Error):
                    self.core.delete(stored)
            if isinstance(error, FullError) and former:
                error.add_note(f"Table {name} is as it was. Delete it first where the drive has no room for both.")
            raise
        for stored in former:
            self.core.delete(stored)

    def _stored(self, name: str) -> dict[str, tuple[int, int, int]]:
        """What the drive has of a table, in the order to delete it in: the latest version first, and of each the first place."""
        found = {stored: stored_version(stored) or (0, 0, 0) for stored in self.core.columns() if stored.startswith(f"{name}/")}
        return dict(sorted(found.items(), key=lambda item: (-item[1][0], *item[1][1:])))

    def tables(self) -> dict[str, Table]:
        """The tables on the drive by their names, whoever put them there. A table that lacks digits, or whose columns cannot be read, is none;
        [Drive.table][] says what is wrong with it."""
        return {name: Table(self, name, columns) for name, columns in stored_tables(self.core.columns()).items()}

    def table(self, name: str) -> Table:
        """A table on the drive.

        Raises:
            MissingError: There is none of this name.
            DamagedError: It lacks columns or digits, because an upload ended early, or a column cannot be read.
        """
        return self.table_of(name, self.core.columns())

    def table_of(self, name: str, columns: Mapping[str, Mapping[str, Any]]) -> Table:
        """A table of the columns that the drive has, as [Drive.columns][] gives them; otherwise as [Drive.table][]."""
        own = {stored: stat for stored, stat in columns.items() if stored.startswith(f"{name}/")}
        tables, damaged = examined_tables(own)
        if name in damaged:
            raise damaged[name]
        if name not in tables:
            raise MissingError(f"the drive has no table {name}")
        return Table(self, name, tables[name])

    def __getitem__(self, name: str) -> Table:
        return self.table(name)

    def __contains__(self, name: object) -> bool:
        return name in self.tables()

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())

    def columns(self) -> dict[str, dict[str, Any]]:
        """What the drive has of every column, the digits of tables and results of programs included."""
        return self.core.columns()

    def delete(self, name: str) -> None:
        """Deletes a table, or a column that belongs to none."""
        own = list(self._stored(name)) or [stored for stored in self.core.columns() if stored == name]
        if not own:
            raise MissingError(f"the drive has neither a table nor a column {name}")
        for stored in own:
            self.core.delete(stored)

    def clean(self) -> list[str]:
        """Deletes what questions and programs left that did not end: they keep what is computed, so that the same call goes on where it was, and another
        one starts anew. What calls through this object compute at the moment stays. Other sessions are not known here: call it while none of them
        computes.

        Returns:
            The names of the columns that were deleted.
        """
        deleted = []
        for stored in self.core.columns():
            match = _LEFT.fullmatch(stored)
            if match is None:
                continue
            turn = self.turn(match["call"])
            if not turn.acquire(blocking=False):
                continue
            try:
                self.core.delete(stored)
            except MissingError:
                # The call that made it has ended since.
                continue
            finally:
                turn.release()
            deleted.append(stored)
        return deleted

    def info(self) -> dict[str, Any]:
        """What the drive is, and how full."""
        return self.core.info()

    def run(
        self,
        program: str,
        inputs: dict[str, str],
        output: str,
        *,
        rows: tuple[int, int] | None = None,
        unit: int | None = None,
        replace: bool = False,
        key_id: int = 0,
        way: Way = "auto",
        result: Literal["samples", "ring"] | None = None,
        where: Sequence[int] | np.ndarray | None = None,
        progress: Progress = None,
    ) -> dict[str, Any]:
        """Runs the text of a program on columns of the drive, with the result as another column.

        Args:
            program: The program, in the language of the drive.
            inputs: The columns by the names of the program's registers.
            output: The name of the result.
            rows: The rows from the first of a pair up to, and without, the second; all if not given.
            unit: Rows of a command of the drive; as many as it likes if not given.
            replace: Whether the result takes the place of a column of this name.
            key_id: The key id of the columns.
            way: As [GraphProgram.run][toroid.GraphProgram.run] has it.
            result: The form of the result; that which the way leaves, if not given.
            where: A 1 for each of the rows that counts, and a 0 for each other, which the drive sees: the result is 0 in the others, and sums have nothing of them.
                It takes ring keys. Where the drive must not see them, an encrypted column says so: by `where` of
                [GraphProgram.run][toroid.GraphProgram.run], or as one more input of the program.
            progress: True for a line that shows how far it is, or a callable of the stage, the steps done and those in total.

        Returns:
            What the drive has of the result.

        Raises:
            ProgramError: The program is none.
            ExistsError: There is a column of the result's name.
            MissingError: A column is not there.
            RowsError: `where` has another number of rows.
            OptionError: `where` has something else than 0 and 1, or the way is "samples".
            Error: `where` is given, and the result or a sum would have something of other rows: no function comes before it, or the drive leaves out no rows.
            TypeError: An argument has another type.
        """
        if not isinstance(inputs, Mapping):
            raise TypeError(f"inputs is a dict of columns by the names of registers, not {type(inputs).__name__}")
        for what, text in (("program", program), ("output", output), ("way", way), *(("column", column) for column in inputs.values())):
            check_text(what, text)
        check_key_id(key_id)
        chosen = None if rows is None else pair_of(rows)
        kept = None if where is None else _kept_of(where, way)
        return self.core.map(program, dict(inputs), output, chosen, unit, replace, key_id, reporter(progress), way, result, kept)

    def close(self) -> None:
        """Ends the drive's work and makes everything durable."""
        self.core.close()

    ainstall = twin(install)
    ainstall_ring_keys = twin(install_ring_keys)
    aupload = twin(upload)
    atables = twin(tables)
    atable = twin(table)
    acolumns = twin(columns)
    adelete = twin(delete)
    aclean = twin(clean)
    ainfo = twin(info)
    arun = twin(run)
    aclose = twin(close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return repr(self.core)


def pair_of(rows: object) -> tuple[int, int]:
    """The first row of a pair, and the row behind its last one.

    Raises:
        TypeError: It is no pair of integers.
    """
    if not isinstance(rows, tuple | list | range) or len(rows) != 2 or not all(hasattr(row, "__index__") for row in rows):
        raise TypeError(f"rows is {reprlib.repr(rows)}; expected a pair of the first row and the one behind the last, such as (0, 10)")
    return operator.index(rows[0]), operator.index(rows[1])


def _kept_of(where: object, way: Way) -> list[bool]:
    """Which rows count, of a 1 for each that does and a 0 for each other.

    Raises:
        OptionError: There is something else than 0 and 1, or rows are to go sample by sample.
        RowsError: There are none.
        TypeError: They are no column of numbers.
    """
    if isinstance(where, str | Expr):
        raise TypeError(
            "where has a 1 for each row that counts and a 0 for each other, which the drive sees. An encrypted column goes with where= of a program on a "
            "table, such as program.run(table, where=\"kept\"), or as one more input of the program's text"
        )
    numbers, _, _ = numbers_of("where", where)
    if wrong := np.flatnonzero((numbers != 0) & (numbers != 1)).tolist():
        raise OptionError(f"where has {numbers[wrong[0]]} for row {wrong[0]}; expected 1 for a row that counts, or 0")
    if way == "samples":
        raise OptionError('where leaves out rows of runs by ciphertexts of a ring alone: take way="ring" or "auto", with the drive\'s ring keys')
    kept: list[bool] = (numbers == 1).tolist()
    return kept


def check_key_id(key_id: object) -> None:
    """Refuses what is no key id.

    Raises:
        OptionError: It is no integer, or out of range.
    """
    if not hasattr(key_id, "__index__") or not 0 <= operator.index(key_id) <= _core.MAX_KEY_ID:
        raise OptionError(f"key_id is {key_id!r}; expected a number from 0 to {_core.MAX_KEY_ID}")


def check_client(client: object) -> None:
    """Refuses what is no client."""
    if not isinstance(client, Client):
        raise TypeError(f"client is what toroid.Client.generate or load gives, and not a {type(client).__name__}")


def place_of(location: object) -> str:
    """A path or an address as text.

    Raises:
        TypeError: It is none.
        ValueError: It cannot be written as UTF-8.
    """
    if not isinstance(location, str | os.PathLike):
        raise TypeError(f"location is a path or an address, not {type(location).__name__}")
    place = os.fspath(location)
    check_text("location", place)
    return place


def as_table(data: EncryptedTable | EncryptedColumn) -> EncryptedTable:
    """A table of encrypted columns; a column alone is its column `value`."""
    if isinstance(data, EncryptedTable):
        return data
    if isinstance(data, EncryptedColumn):
        return EncryptedTable({"value": data})
    raise TypeError(f"a {type(data).__name__} is not encrypted: client.encrypt makes a table of it")


def open(
    location: str | os.PathLike[str] | None = None,
    *,
    create: str | bool | None = None,
    overwrite: bool = False,
    ledger: str | os.PathLike[str] | None = None,
    client: Client | None = None,
    new_store: bool = False,
    read_only: bool = False,
    concatenate: bool = False,
    **host: Any,
) -> Drive:
    """Opens a drive: the path of an image, `nvme+tcp://HOST:PORT/NQN`, a block device, or, without a location, a temporary drive in this process.

    `create` makes an image of this size, such as "4GiB", or of the usual size if it is True. With `overwrite` it may take the place of another one, which stays
    until the new one is complete: whenever the call fails, is interrupted or, awaited, is cancelled, the one or the other is there as a whole, and no new image
    where none was. `ledger` is the file that binds what is put to the key of
    `client`, so the two go together. Drives on the network take `host_nqn`, `host_id`, `nsid`, and the files `host_secret`, `controller_secret` and
    `tls_key`; those that are not given come from TOROID_HOST_NQN and so on, as the command line has them.

    Raises:
        FileError: `create` finds a file there, and `overwrite` is not given.
        OptionError: There is no such option, or it does not go with the location or the other options: a temporary drive has none.
        TypeError: The location, the client or an option has another type.
        ValueError: The location or an option is no text.
    """
    if create is not None and not isinstance(create, str | bool):
        raise OptionError(f'create={create!r} is no size such as "4GiB", and not True')
    if client is not None:
        check_client(client)
        if ledger is None:
            raise OptionError("a client goes with a ledger: give ledger, the file that binds what is put to its key")
    if location is None:
        chosen = {"create": create, "overwrite": overwrite, "ledger": ledger, "client": client, "new_store": new_store}
        chosen.update(read_only=read_only, concatenate=concatenate, **host)
        given = [name for name, value in chosen.items() if value is not None and value is not False]
        if given:
            raise OptionError(f"{given[0]} needs a location: a drive without one is temporary, in this process, and has no options")
        return Drive(_core.Drive.temporary())
    if overwrite and create in (None, False):
        raise OptionError("overwrite=True replaces an image by a new one: give create, too")
    place = place_of(location)
    options = _host_options("://" in place, host)
    options.update(new_store=new_store, read_only=read_only, concatenate=concatenate)
    if ledger is not None:
        options["ledger"] = os.fspath(ledger)
        options["client"] = None if client is None else client.key
    if isinstance(create, str) or create:
        size = create if isinstance(create, str) else None
        if os.path.exists(place) and not overwrite:
            raise FileError(f"there is a file {place} already: open it without create, or give overwrite=True to lose what it has")
        return Drive(_core.Drive.create(place, size, overwrite=overwrite, **options))
    return Drive(_core.Drive.open(place, **options))


def _host_options(is_remote: bool, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a drive on the network: those that are given, and of others those of the environment.

    Raises:
        OptionError: One is no number, or no path, as it should be.
        ValueError: One is no text.
    """
    options: dict[str, Any] = {}
    if is_remote:
        options = {name: os.environ.get(f"TOROID_{name.upper()}") for name in _ENVIRONMENT}
        if options["nsid"] is not None:
            if not options["nsid"].isdecimal():
                raise OptionError(f"TOROID_NSID is {options['nsid']!r}; expected the number of a namespace")
            options["nsid"] = int(options["nsid"])
    options.update(given)
    nsid = options.get("nsid")
    if nsid is not None and not (hasattr(nsid, "__index__") and 1 <= operator.index(nsid) < 1 << 32):
        raise OptionError(f"nsid is {nsid!r}; expected the number of a namespace")
    for name in ("host_nqn", "host_secret", "controller_secret", "tls_key"):
        value = options.get(name)
        if value is not None and not isinstance(value, str if name == "host_nqn" else str | os.PathLike):
            raise OptionError(f"{name} is {'text' if name == 'host_nqn' else 'the path of a file'}, not {type(value).__name__}")
    for name, value in options.items():
        if isinstance(value, str):
            check_text(name, value)
    return options


def _discard(drive: Drive, *, create: str | bool | None = None, overwrite: bool = False, **_: Any) -> None:
    """Undoes an opening whose drive nobody got."""
    drive.close()
    if create not in (None, False) and not overwrite:
        os.remove(drive.core.location)


aopen = twin(open, _discard)
