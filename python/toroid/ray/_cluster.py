"""Drives of a Ray cluster, and the tables on them."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import ray

from toroid import _core
from toroid._board import Board
from toroid._cancel import check
from toroid._columns import EncryptedColumn, EncryptedTable, check_name, examined_tables
from toroid._drive import as_table, check_key_id, place_of
from toroid._drive import open as open_drive
from toroid._errors import ClosedError, DriveError, ExistsError, FullError, KeyMismatch, MissingError, OptionError
from toroid._progress import Progress, reporter, twin
from toroid._status import ClusterStatus
from toroid._trace import integer_of
from toroid.ray._figures import Figures
from toroid.ray._keeper import Keeper, Pulse, actor, submit
from toroid.ray._moves import Mover
from toroid.ray._places import Cell, MissingRows, Shard, cells_of, cut, gaps, rows_of, shown, why
from toroid.ray._run import LOOK
from toroid.ray._table import ShardedTable, is_number

#: Options of [toroid.open][] that the drives of a cluster take.
OPTIONS = frozenset({"concatenate", "controller_secret", "host_id", "host_nqn", "host_secret", "new_store", "nsid", "read_only", "tls_key"})


def _place(location: str | os.PathLike[str]) -> str:
    """A location as another process understands it, whose folder may be another."""
    place = place_of(location)
    return place if "://" in place else os.path.abspath(place)


def _has_token() -> bool:
    """Whether the Ray that this process is connected to admits only those who have its token."""
    from ray._raylet import AuthenticationMode, get_authentication_mode  # type: ignore[attr-defined]

    return bool(get_authentication_mode() == AuthenticationMode.TOKEN)


class Cluster:
    """Drives of a Ray cluster, each kept by one actor.

    Args:
        locations: Images, served drives (`nvme+tcp://HOST:PORT/NQN`) or block devices, as [toroid.open][] takes them. An image is opened on the node
            that the actor runs on.
        patience: Seconds for which an actor tries to open a drive that cannot be opened.
        deadline: Seconds in which a drive answers a small question, whatever else it does. One that does not counts as gone until it answers.
        placement: Options of Ray for the actor of a location, such as `{"resources": {"drive-a": 1}}`, which let it run on the drive's node.
        insecure: Whether a Ray cluster without a token is taken, in which whoever reaches it runs programs, with the sessions of the drives. Otherwise it
            is refused.
        options: Options of [toroid.open][] for all drives. A ledger needs the client's key, which must not leave the client's process, so there is none.

    A process that is not connected to a Ray connects to the one that runs on this machine, or starts one there, which admits only those who have its token.
    A cluster that `ray start` made has a token only if there was one at its start.

    Raises:
        OptionError: The Ray cluster has no token, or there is no such option.
        TypeError: The locations are no list of paths and addresses.
        ValueError: A location stands there twice, or `placement` has another one; patience or deadline are no seconds.
    """

    #: What keeps a drive.
    _keeper: type[Keeper] = Keeper

    def __init__(
        self,
        locations: Sequence[str | os.PathLike[str]],
        *,
        patience: float = 10.0,
        deadline: float = 30.0,
        placement: Mapping[str, Mapping[str, Any]] | None = None,
        insecure: bool = False,
        **options: Any,
    ) -> None:
        if isinstance(locations, str | bytes | os.PathLike):
            raise TypeError(f"a cluster has a list of locations, such as [{os.fspath(locations)!r}]")
        if not isinstance(locations, Iterable):
            raise TypeError(f"a cluster has a list of locations, not {type(locations).__name__}")
        for what, seconds in (("patience", patience), ("deadline", deadline)):
            if not is_number(seconds) or not 0 <= seconds < math.inf:
                raise ValueError(f"{what} is {seconds!r}; expected seconds")
        self.locations = tuple(_place(location) for location in locations)
        placed = {_place(location): dict(chosen) for location, chosen in (placement or {}).items()}
        if not self.locations or len(set(self.locations)) != len(self.locations):
            raise ValueError("a cluster has at least one drive, and each of them once")
        if unplaced := [place for place in placed if place not in self.locations]:
            raise ValueError(f"placement has {unplaced[0]}, which is no location of the cluster")
        if refused := sorted({"client", "ledger", "create", "overwrite"} & set(options)):
            raise ValueError(f"the drives of a cluster are opened by other processes, again after each failure, so {refused[0]} is no option of theirs")
        if unknown := sorted(set(options) - OPTIONS):
            raise OptionError(f"there is no option {unknown[0]} of a drive of a cluster; there are {', '.join(sorted(OPTIONS))}")
        if not ray.is_initialized():
            ray.init()
        if not _has_token():
            if not insecure:
                raise OptionError(
                    "this Ray cluster has no token: whoever reaches it runs programs there, with the sessions of the drives. Run `ray get-auth-token "
                    "--generate` and start it, and this process, with RAY_AUTH_MODE=token; or take it as it is with insecure=True"
                )
            warnings.warn("this Ray cluster has no token: whoever reaches it runs programs there, with the sessions of the drives", stacklevel=2)
        self._options = dict(options)
        self._patience = patience
        self._deadline = deadline
        self._pulses: dict[str, Pulse] = {}
        self._kind = actor(self._keeper)
        self._figures = Figures(self._now)
        #: The names of nodes that compute rows of drives.
        self.nodes: tuple[str, ...] = ()
        self._actors: dict[str, Any] = {}
        for location in self.locations:
            self._start(location, location, placed.get(location, {}))
        # Public keys by their ids: the object that holds them, and their tag.
        self._keys: dict[int, tuple[list[Any], str]] = {}
        # Where the rows of tables are that were moved or added to, by their names and uploads.
        self._cells: dict[tuple[str, str], tuple[Cell, ...]] = {}
        # Who changes which rows a table has, or where they are, has its lock.
        self._changing: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)
        # Who changes which drives there are, or moves rows of all tables, has this lock, and takes those of tables behind it.
        self._joining = threading.RLock()
        self._leaving: frozenset[str] = frozenset()

    def _start(self, name: str, location: str | None, placement: Mapping[str, Any]) -> None:
        held = self._kind.options(**placement).remote(location, self._options, self._patience)
        self._pulses[name] = Pulse(held, self._deadline, self._now)
        self._actors[name] = held

    def install(self, keys: _core.PublicKeys, key_id: int = 0, *, replace: bool = False) -> list[str]:
        """Stores the public keys of a client on the drives that lack them, and gives the locations of those. The keys enter Ray's object store once.

        `replace` tells whether keys of another client are replaced. Questions and programs no longer run on its tables.

        Raises:
            KeyMismatch: Another client has keys or tables under the key id.
        """
        if not isinstance(keys, _core.PublicKeys):
            raise TypeError(f"a {type(keys).__name__} is no public keys: client.public_keys() gives them")
        check_key_id(key_id)
        held = [ray.put(keys.to_bytes())]
        done = self._all("install", held, keys.tag, key_id, replace)
        self._keys[key_id] = (held, keys.tag)
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
        """Spreads a table over the drives by its rows: in as many shards as there are drives, if not given, each on `replicas` drives. Where a drive is full,
        another one takes its shard."""
        check_name(name)
        check_key_id(key_id)
        table = as_table(data)
        with self._changing[name]:
            drives = self._staying
            count = min(len(drives) if shards is None else integer_of("shards", shards), table.rows)
            replicas = integer_of("replicas", replicas)
            if count < 1 or not 1 <= replicas <= len(drives):
                raise ValueError(f"there is at least one shard, and from 1 to {len(drives)} replicas, as many as drives")
            former = self._shards_on_drives(name)
            if former and not replace:
                raise ExistsError(f"the cluster has a table {name} already: give another name, or replace=True")
            upload = f"{time.time_ns():016x}"
            places = [Shard(name, upload, first, end, table.rows, replicas) for first, end in cut(table.rows, count)]
            self._put(table, places, drives, key_id)
            self._discard(former)
            return self.table(name)

    @property
    def _staying(self) -> tuple[str, ...]:
        """The drives that take rows: those that are not about to leave."""
        return tuple(location for location in self.locations if location not in self._leaving)

    def _discard(self, shards: Mapping[str, Sequence[str]]) -> None:
        """Deletes shards from drives."""
        for location, names in shards.items():
            for shard in names:
                self._ask(location, "discard", shard)

    def _put(self, rows: EncryptedTable, shards: Sequence[Shard], locations: Sequence[str], key_id: int) -> None:
        """Stores rows as shards, each on as many drives as it says that have room: all of them, or none. The first shard goes to the first drives, the next
        one begins at the next drive."""
        begin = shards[0].first
        calls: list[tuple[str, Any, Shard]] = []
        try:
            # A drive of this process cuts columns: it knows how to, and keeps them as small as they came.
            with open_drive() as cutter:
                whole = cutter.upload("table", rows)
                left: list[tuple[Shard, Any, list[str]]] = []
                for number, shard in enumerate(shards):
                    turn = number % len(locations)
                    drives = [*locations[turn:], *locations[:turn]]
                    part = ray.put(whole.download((shard.first - begin, shard.end - begin)))
                    calls.extend((drive, self._submit(drive, "upload", shard.name, part, key_id), shard) for drive in drives[: shard.copies])
                    left.append((shard, part, drives[shard.copies :]))
                parts = {shard: (part, drives) for shard, part, drives in left}
                place = 0
                while place < len(calls):
                    drive, call, shard = calls[place]
                    place += 1
                    try:
                        self._got(drive, call)
                    except FullError:
                        part, others = parts[shard]
                        if not others:
                            raise
                        other = others.pop(0)
                        calls.append((other, self._submit(other, "upload", shard.name, part, key_id), shard))
        except BaseException:
            # Shards without the others are no table, and those of before are still there. Drives that are gone keep theirs, which `tables` passes over.
            for drive, call, _ in calls:
                self._answer(drive, call)
            with contextlib.suppress(DriveError):
                for drive, _, shard in calls:
                    self._answer(drive, self._submit(drive, "discard", shard.name))
            raise

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
        uploads: dict[str, dict[str, dict[str, list[Shard]]]] = {}
        columns: dict[Shard, Any] = {}
        answers = self._columns_on_drives()
        silent = {location: str(held) for location, held in answers.items() if isinstance(held, Exception)}
        all_answer = not silent
        for location, held in answers.items():
            if isinstance(held, Exception):
                continue
            whole, damaged = examined_tables(held)
            # Another drive may have their rows whole.
            wrong = {stored: str(error) for stored, error in damaged.items() if (shard := Shard.of(stored)) is not None and name in (None, shard.table)}
            silent.update((location, error) for error in wrong.values())
            for stored, found in whole.items():
                shard = Shard.of(stored)
                if shard is not None and name in (None, shard.table):
                    uploads.setdefault(shard.table, {}).setdefault(shard.upload, {}).setdefault(location, []).append(shard)
                    columns[shard] = found
        tables = {}
        for table, of_table in uploads.items():
            # An upload that was interrupted lacks rows, and the table that it was to replace is still there. If drives are away, the rows may be theirs:
            # then rows of before must not pass for the table.
            rows = {upload: rows_of([shard for shards in on.values() for shard in shards], all_answer) for upload, on in of_table.items()}
            cells = {upload: cells_of(on, rows[upload]) for upload, on in of_table.items()}
            whole_uploads = [upload for upload, own in cells.items() if all_answer and not gaps((0, rows[upload]), [(cell.first, cell.end) for cell in own])]
            chosen = max(whole_uploads or of_table)
            first = cells[chosen][0].held[0][1]
            own_columns = {column: replace(stored, rows=rows[chosen]) for column, stored in columns[first].items()}
            tables[table] = ShardedTable(self, table, own_columns, chosen, cells[chosen], silent)
        return tables

    def __getitem__(self, name: str) -> ShardedTable:
        return self.table(name)

    def __contains__(self, name: object) -> bool:
        return name in self.tables()

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())

    def delete(self, name: str) -> None:
        """Deletes a table from all drives that answer."""
        with self._changing[name]:
            found = self._shards_on_drives(name)
            if not found:
                raise MissingError(f"the drives of the cluster that answer have no table {name}")
            self._discard(found)

    def info(self) -> dict[str, dict[str, Any] | Exception]:
        """What each drive is, and how full, or the error of one that does not answer."""
        return self._answers("info")

    def status(self) -> ClusterStatus:
        """Which drive computes what, how far jobs are, what was given out again: the figures of now, for which no drive is asked.

        `toroid.watch(cluster)` shows them in a terminal or a notebook.
        """
        silent = {name for name, pulse in list(self._pulses.items()) if pulse.is_silent}
        states = {**dict.fromkeys(self._leaving, "leaving"), **dict.fromkeys(silent, "silent")}
        return self._figures.status(self.locations, self.nodes, states)

    def board(self, host: str = "127.0.0.1", port: int = 0) -> Board:
        """Serves a page for the browser with the figures of `status`, until it is closed. There is no authentication, so that it is for this machine unless
        another address is given."""
        return Board(self.status, host, port)

    def add_drive(self, location: str | os.PathLike[str], *, placement: Mapping[str, Any] | None = None, progress: Progress = None) -> None:
        """Takes a drive into the cluster, and moves rows of all tables to it, as `rebalance` does. Jobs go on, and the drive takes part in them. The public
        keys of the tables have to be installed by this object, so that it can give them to the drive.

        Args:
            location: An image, a served drive or a block device, which no other cluster has.
            placement: Options of Ray for its actor, such as `{"resources": {"drive-a": 1}}`.
            progress: True for a line that shows how far it is, or a callable of the stage, the rows moved and those in total.

        Raises:
            ExistsError: The cluster has the drive already.
            KeyMismatch: This object has not installed the public keys of a table, or the drive has those of another client.
            DriveError: The drive cannot be opened, and the cluster is as it was; or a drive failed while rows were moved: `rebalance` goes on.
        """
        place = _place(location)
        with self._joining:
            if place in self._actors:
                raise ExistsError(f"the cluster has drive {place} already")
            if lacking := sorted(name for name, table in self.tables().items() if table.key_id not in self._keys):
                raise KeyMismatch(f"a new drive needs the public keys of table {lacking[0]}: install them by this cluster first")
            self._start(place, place, placement or {})
            try:
                self._ask(place, "info")
                for key_id, (held, tag) in self._keys.items():
                    self._ask(place, "install", held, tag, key_id, False)
            except BaseException:
                self._stop(place)
                raise
            self.locations = (*self.locations, place)
            self.rebalance(progress)

    def remove_drive(self, location: str | os.PathLike[str], *, progress: Progress = None) -> None:
        """Takes a drive out of the cluster, once its rows are on others: as many drives as before have each row. Jobs go on meanwhile. The drive may be one
        that no longer answers; then other drives give its rows.

        Args:
            location: The drive.
            progress: True for a line that shows how far it is, or a callable of the stage, the rows moved and those in total.

        Raises:
            MissingError: The cluster has no such drive.
            ValueError: Too few drives would be left for as many copies as a table has.
            FullError: The others have no room. The drive stays, as it does after every other error; the same call goes on where it was.
            MissingRows: The drive does not answer, and it alone has some rows.
        """
        place = _place(location)
        with self._joining:
            if place not in self.locations:
                raise MissingError(f"the cluster has no drive {place}; it has {', '.join(self.locations)}")
            self._leaving |= {place}
            try:
                # Uploads and appends that have begun may give it rows; later ones do not.
                for lock in list(self._changing.values()):
                    with lock:
                        pass
                staying = self._staying
                tables = self.tables() if staying else {}
                copies = max((cell.copies for table in tables.values() for cell in table._cells), default=1)
                if len(staying) < copies:
                    held = f"rows are to be on {copies} drives" if staying else "a cluster has at least one drive"
                    raise ValueError(f"drive {place} cannot leave: {held}, and {len(staying)} would be left")
                self._move(tables.values(), staying, progress)
                self.locations = tuple(other for other in self.locations if other != place)
            finally:
                self._leaving -= {place}
            self._stop(place)

    def rebalance(self, progress: Progress = None) -> None:
        """Moves rows of all tables so that drives have nearly as many, and as many drives have each row as the upload said. What moves that ended early
        left is put right. Jobs go on meanwhile.

        Args:
            progress: True for a line that shows how far it is, or a callable of the stage, the rows moved and those in total.

        Raises:
            FullError: There is no room for some rows. All rows are where they were, or have moved.
            MissingRows: No drive has some rows.
            DriveError: A drive does not answer. If it is gone for good, `remove_drive` makes copies of what it had.
        """
        with self._joining:
            self._move(self.tables().values(), self._staying, progress)

    def _move(self, tables: Iterable[ShardedTable], drives: Sequence[str], progress: Progress) -> None:
        """Moves all rows to drives, evenly."""
        report = reporter(progress)
        for found in tables:
            with self._changing[found.name]:
                table = self.tables(found.name).get(found.name)
                # It was deleted meanwhile.
                if table is None:
                    continue
                away = {drive: str(error) for drive, error in self._columns_on_drives().items() if isinstance(error, Exception)}
                if needed := {drive: reason for drive, reason in away.items() if drive in drives}:
                    raise DriveError(f"rows are moved when all drives answer, since one may have rows that seem to be missing: {why(needed)}")
                if absent := gaps((0, table.rows), [(cell.first, cell.end) for cell in table._cells]):
                    raise MissingRows(f"no drive that answers has the rows {shown(absent)} of table {table.name}", rows=tuple(absent), reasons=away)
                mover = Mover(table, drives, report)
                mover.run()
                mover.leave()

    def add_node(self, name: str | None = None, *, placement: Mapping[str, Any] | None = None) -> str:
        """Starts an actor that has no rows and computes those of busy drives, and gives its name. Drives send it the rows of a unit, and Ray's object
        store has the public keys for it, so they have to be installed by this object.

        Args:
            name: What errors and figures call it; `node 1` and so on if not given.
            placement: Options of Ray for the actor, such as `{"resources": {"compute": 1}}`.

        Raises:
            ExistsError: A drive or node has this name.
        """
        if name is None:
            name = next(free for number in itertools.count(1) if (free := f"node {number}") not in self._actors)
        if name in self._actors:
            raise ExistsError(f"the cluster has {name} already: give another name")
        self._start(name, None, placement or {})
        self.nodes = (*self.nodes, name)
        return name

    def remove_node(self, name: str) -> None:
        """Ends a node, after the unit that it is at; jobs go on without it.

        Raises:
            MissingError: There is no such node.
        """
        if name not in self.nodes:
            raise MissingError(f"the cluster has no node {name}; it has {', '.join(self.nodes) or 'none'}")
        self.nodes = tuple(other for other in self.nodes if other != name)
        self._stop(name)

    def close(self) -> None:
        """Ends the sessions and the actors."""
        for name in list(self._actors):
            self._stop(name)

    ainstall = twin(install)
    aupload = twin(upload)
    atable = twin(table)
    atables = twin(tables)
    adelete = twin(delete)
    ainfo = twin(info)
    aadd_drive = twin(add_drive)
    aremove_drive = twin(remove_drive)
    arebalance = twin(rebalance)
    aremove_node = twin(remove_node)
    aclose = twin(close)

    def _stop(self, name: str) -> None:
        """Ends an actor, after the call that it is at."""
        held = self._actors.pop(name)
        # An actor that is gone has no session, and one that stands still keeps its own.
        self._answer(name, held.close.remote())
        del self._pulses[name]
        ray.kill(held)

    def _submit(self, location: str, action: str, *arguments: Any) -> Any:
        """Asks the actor of a drive. All that goes to drives goes through here."""
        held = self._actors.get(location)
        if held is None:
            raise DriveError(f"drive {location} has left the cluster") if self._actors else ClosedError("the cluster was closed")
        return submit(held, action, arguments)

    def _answer(self, location: str, call: Any) -> Any:
        """What a call gave, or the error that it ended with."""
        try:
            while True:
                check()
                try:
                    answer = ray.get(call, timeout=LOOK)
                    if (pulse := self._pulses.get(location)) is not None:
                        pulse.has_started = True
                    return answer
                except ray.exceptions.GetTimeoutError:
                    if self._is_silent(location):
                        return self._silence(location)
        except (ray.exceptions.RayActorError, ray.exceptions.RaySystemError) as error:
            return DriveError(f"the actor of drive {location} is gone: {error}")
        except ray.exceptions.RayError as error:
            return DriveError(f"Ray has no answer of the actor of drive {location}: {error}")

    def _is_silent(self, name: str) -> bool:
        """Whether a drive or node has not answered a small question in time."""
        pulse = self._pulses.get(name)
        return pulse is not None and pulse.look()

    def _silence(self, name: str) -> DriveError:
        return DriveError(f"drive {name} stands still: it has not answered a small question for {self._deadline:g} s")

    def _wait(self, calls: Sequence[Any]) -> list[Any]:
        """Calls that have ended; none if none has for a while."""
        check()
        ready, _ = ray.wait(list(calls), num_returns=1, timeout=LOOK)
        return list(ready)

    def _now(self) -> float:
        """Seconds on a clock that only goes on."""
        return time.monotonic()

    def _got(self, location: str, call: Any) -> Any:
        answer = self._answer(location, call)
        if isinstance(answer, Exception):
            answer.add_note(f"on drive {location}")
            raise answer
        return answer

    def _ask(self, location: str, action: str, *arguments: Any) -> Any:
        return self._got(location, self._submit(location, action, *arguments))

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
            raise DriveError("no drive of the cluster answers: " + why(answers))
        return answers

    def _shards_on_drives(self, name: str) -> dict[str, list[str]]:
        found: dict[str, set[str]] = {}
        for location, columns in self._columns_on_drives().items():
            for stored in () if isinstance(columns, Exception) else columns:
                shard = Shard.of(stored.split("/", 1)[0])
                if shard is not None and shard.table == name:
                    found.setdefault(location, set()).add(shard.name)
        return {location: sorted(names) for location, names in found.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<Cluster: {', '.join(self.locations)}>"
