"""A job under way: units of work wait, and drives take them when they are idle."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ray

from toroid._errors import DriveError, MissingError
from toroid._program import Compiled
from toroid._progress import Progress, reporter
from toroid._query import EncryptedParts
from toroid._status import JobStatus
from toroid.ray._job import Job
from toroid.ray._keeper import Unsent
from toroid.ray._places import Cell, MissingRows, Rows, Shard, gaps, shown
from toroid.ray._tree import Branch, trees
from toroid.ray._workers import MAX_FAILURES, Workers

if TYPE_CHECKING:
    from toroid.ray._table import ShardedTable

#: Drives that may compute a row that is verified: with three, the one that is wrong is known.
MAX_COPIES = 3
#: A unit is given to another drive, too, once it takes so many times the median of the last ones.
STEAL_AFTER = 2.0
LAST = 101
#: How long a loop over calls waits at most before it looks round, and how often drives are looked at, in seconds.
LOOK = 0.5
#: A sum that takes so many seconds, and longer than a unit, is given up.
SUM_SECONDS = 2.0


@dataclass(eq=False)
class Unit:
    """A range of rows that a drive computes in one call, and the drives that do so or have done so."""

    cell: Cell
    first: int
    end: int
    copies: int = 1
    running: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    failures: Counter[str] = field(default_factory=Counter)
    #: The shards that drives read the rows from.
    shards: dict[str, Shard] = field(default_factory=dict)
    started: float = 0.0
    #: What its result is added up in, if that happens on the drives.
    branch: Branch | None = None

    @property
    def rows(self) -> Rows:
        """From the first row up to, and without, the second number."""
        return self.first, self.end


class Run:
    """A job under way."""

    def __init__(self, table: ShardedTable, compiled: Compiled, columns: Mapping[str, str], rows: Rows, job: Job) -> None:
        self._table = table
        self._cluster = table.cluster
        self._compiled = compiled
        # Its tables take too much room to go with every unit.
        self._program = [ray.put(compiled)]
        self._columns = dict(columns)
        self._rows = rows
        self._job = job
        self._cells = table.cells
        self._waiting: dict[Rows, deque[Unit]] = {}
        # The queues that have units which a drive may take.
        self._queues: dict[str, list[deque[Unit]]] = {}
        self._checks: list[Unit] = []
        # Units that are computed: by whom, and the result, if it is an object of its own.
        self._calls: dict[Any, tuple[Unit, str, Any]] = {}
        # Sums that drives make: who makes them, the result, and since when.
        self._sums: dict[Any, tuple[Branch, str, Any, float]] = {}
        self._units: dict[Branch, Unit] = {}
        self._seconds: deque[float] = deque(maxlen=LAST)
        # Of units that nodes compute: who sends the rows.
        self._senders: dict[Any, str] = {}
        self._workers = Workers(table, table._silent)
        # When drives are looked at again.
        self._look = 0.0
        self._finished = 0
        # Rows that were done when it began, and units done, given out again, and taken over from a slow drive.
        self._resumed = 0
        self._units_done = 0
        self._retries = 0
        self._stolen = 0
        self._began = self._cluster._now()

    def run(self, progress: Progress) -> EncryptedParts:
        """Computes the rows, and gives their results in order."""
        report = reporter(progress)
        units = list(self._cut())
        if absent := gaps(self._rows, [*(unit.rows for unit in units), *self._job.done]):
            raise self._missing(absent)
        self._choose(units)
        self._plant(units)
        self._queue(units)
        total = self._rows[1] - self._rows[0]
        self._finished = self._resumed = total - sum(unit.end - unit.first for unit in units)
        while True:
            if self._table.cells is not self._cells:
                self._follow()
            self._occupy()
            if not self._sums and not (self._calls and self._is_needed()):
                break
            before = self._finished
            for call in self._cluster._wait([*self._calls, *self._sums]):
                self._ended(call)
            self._fall_late()
            self._give_up_silent()
            if report is not None and self._finished != before:
                report("compute", self._finished, total)
        for branch in {branch for leaf in self._units for branch in leaf.above() if branch.result is not None}:
            self._deliver(branch)
        if absent := gaps(self._rows, self._job.done):
            raise self._missing(absent)
        chosen = sorted(self._job.chosen) if self._table._settings.verify else []
        if lonely := [rows for rows in chosen if len(self._job.done.get(rows, (0, 0))) < 2]:
            raise self._not_compared(lonely)
        return EncryptedParts(tuple((end - first, by_drive) for (first, end), by_drive in sorted(self._job.done.items())))

    @property
    def table(self) -> str:
        """The name of the table."""
        return self._table.name

    def status(self) -> JobStatus:
        """How far it is."""
        seconds = self._cluster._now() - self._began
        total, done = self._rows[1] - self._rows[0], self._finished
        computed = done - self._resumed
        running = {id(unit) for unit, _, _ in list(self._calls.values())}
        return JobStatus(
            self.table,
            total,
            done,
            units_waiting=sum(map(len, list(self._waiting.values()))),
            units_running=len(running),
            units_done=self._units_done,
            retries=self._retries,
            stolen=self._stolen,
            seconds=seconds,
            seconds_left=seconds * (total - done) / computed if computed > 0 else None,
        )

    def doing(self, worker: str) -> tuple[Rows, float] | None:
        """The rows that a drive or node computes, and since how many seconds; none if it is idle."""
        for unit, drive, _ in list(self._calls.values()):
            if drive == worker:
                return unit.rows, self._cluster._now() - unit.started
        return None

    def has_lost(self, worker: str) -> bool:
        """Whether it has given up a drive or node."""
        return not self._workers.is_alive(worker)

    def _cut(self) -> Iterator[Unit]:
        """The units of work for the rows that are not done."""
        size = self._table.unit_rows(self._compiled)
        done = sorted(self._job.done)
        for cell in self._cells:
            start, end = max(cell.first, self._rows[0]), min(cell.end, self._rows[1])
            # Drives may have had other rows when the job began.
            ranges = gaps((start, end), [(max(start, first), min(end, last)) for first, last in done if first < end and start < last]) if start < end else []
            for low, high in ranges:
                for first in range(low, high, size):
                    yield Unit(cell, first, min(first + size, high))

    def _choose(self, units: Sequence[Unit]) -> None:
        """Picks the units that several drives compute."""
        share = self._table._settings.verify
        if not share:
            return
        # Drives must not know which rows are compared.
        known = [unit for unit in units if unit.rows in self._job.chosen]
        others = [unit for unit in units if unit.rows not in self._job.chosen]
        picked = random.SystemRandom().sample(others, max(0, math.ceil(share * len(units)) - len(known)))
        self._job.choose([unit.rows for unit in picked])
        for unit in [*known, *picked]:
            unit.copies = min(MAX_COPIES, len(unit.cell.drives))
        self._checks = list(self._left_to_check())

    def _left_to_check(self) -> Iterator[Unit]:
        """Units that were chosen when the job was at work before, and have a result, but not those to compare it with."""
        for (first, end), by_drive in self._job.done.items():
            if (first, end) not in self._job.chosen:
                continue
            for cell in self._cells:
                if cell.first <= first and end <= cell.end:
                    yield Unit(cell, first, end, min(MAX_COPIES, len(cell.drives)), done=set(by_drive))

    def _plant(self, units: Sequence[Unit]) -> None:
        """Has neighbours added up on the drives, as far as the program adds up rows. What a file keeps, or what is compared, comes one by one."""
        group = self._compiled.group
        if group is None or self._job.is_kept:
            return
        single = {unit.first: unit for unit in units if unit.copies == 1}
        for leaves in trees([unit.rows for unit in single.values()], group):
            for leaf in leaves:
                self._units[leaf] = single[leaf.first]
                single[leaf.first].branch = leaf

    def _queue(self, units: Sequence[Unit]) -> None:
        for unit in units:
            self._waiting.setdefault((unit.cell.first, unit.cell.end), deque()).append(unit)
        self._index()

    def _index(self) -> None:
        self._queues = {}
        for cell in self._cells:
            queue = self._waiting.setdefault((cell.first, cell.end), deque())
            for drive in cell.drives:
                self._queues.setdefault(drive, []).append(queue)

    def _follow(self) -> None:
        """Takes note of rows that went to other drives."""
        self._cells = self._table.cells
        waiting = [unit for queue in self._waiting.values() for unit in queue]
        self._waiting = {}
        for unit in waiting:
            for part in self._parts(unit):
                self._waiting.setdefault((part.cell.first, part.cell.end), deque()).append(part)
        for unit in [*self._checks, *(unit for unit, _, _ in self._calls.values())]:
            # Parts of its rows may be on several drives now; whoever computes it needs all of them.
            inside = next((cell for cell in self._cells if cell.first <= unit.first < cell.end), None)
            held = () if inside is None else inside.held
            unit.cell = Cell(unit.first, unit.end, tuple((drive, shard) for drive, shard in held if shard.covers(*unit.rows)))
        self._index()

    def _parts(self, unit: Unit) -> list[Unit]:
        """A unit whose rows may now be on several drives: as several ones."""
        inside = [(cell, max(cell.first, unit.first), min(cell.end, unit.end)) for cell in self._cells if cell.first < unit.end and unit.first < cell.end]
        if [(first, end) for _, first, end in inside] == [unit.rows]:
            unit.cell = inside[0][0]
            return [unit]
        if unit.branch is not None:
            self._fall(unit.branch)
        if unit.rows in self._job.chosen:
            self._job.choose([(first, end) for _, first, end in inside])
        return [Unit(cell, first, end, min(unit.copies, len(cell.drives))) for cell, first, end in inside]

    def _occupy(self) -> None:
        """Gives units to whoever is idle: first to those who have the rows."""
        busy = {drive for _, drive, _ in self._calls.values()}
        for worker in self._workers.names:
            if worker not in busy and self._workers.is_alive(worker) and (chosen := self._next(worker)) is not None:
                self._start(chosen, worker)

    def _is_needed(self) -> bool:
        """Whether something under way is still needed, and is no second try of what another drive has done meanwhile."""
        return bool(any(self._waiting.values()) or self._checks or any(len(unit.done) < unit.copies for unit, _, _ in self._calls.values()))

    def _may_take(self, worker: str, unit: Unit) -> bool:
        """Whether a drive has the rows, or can get them, and has neither computed them, nor is about to, nor has failed with them too often."""
        has = worker in unit.cell.drives or (bool(unit.cell.drives) and worker in self._cluster.nodes)
        return has and worker not in unit.done | unit.running and unit.failures[worker] < MAX_FAILURES

    def _next(self, worker: str) -> Unit | None:
        own = self._waiting.values() if worker in self._cluster.nodes else self._queues.get(worker, ())
        for queue in sorted(own, key=len, reverse=True):
            chosen = next((unit for unit in queue if self._may_take(worker, unit)), None)
            if chosen is not None:
                queue.remove(chosen)
                return chosen
        self._checks = [unit for unit in self._checks if len(unit.done | unit.running) < unit.copies and self._can_be_checked(unit)]
        for check in self._checks:
            if self._may_take(worker, check):
                return check
        if not self._seconds:
            return None
        slow = self._cluster._now() - STEAL_AFTER * statistics.median(self._seconds)
        late = [unit for unit, _, _ in self._calls.values() if not unit.done and len(unit.running) == 1 and unit.started < slow]
        taken = next((unit for unit in sorted(late, key=lambda unit: unit.started) if self._may_take(worker, unit)), None)
        self._stolen += taken is not None
        return taken

    def _can_be_checked(self, unit: Unit) -> bool:
        return any(self._workers.is_alive(drive) and self._may_take(drive, unit) for drive in unit.cell.drives)

    def _start(self, unit: Unit, worker: str) -> None:
        if not unit.running and not unit.done and unit.copies > 1:
            self._checks.append(unit)
        unit.running.add(worker)
        unit.started = self._cluster._now()
        # A result that is added up elsewhere is an object of its own, so that it need not come here.
        kept = "" if unit.branch is None else "kept_"
        try:
            sender = worker
            if worker in self._cluster.nodes:
                sender, call = self._pass(unit, worker, kept)
            else:
                shard = unit.cell.on(worker)
                assert shard is not None
                unit.shards[worker] = shard
                rows = (unit.first - shard.first, unit.end - shard.first)
                call = self._cluster._submit(worker, f"{kept}compute", shard.name, self._program, self._columns, rows)
        except DriveError as error:
            # It has left just now.
            unit.running.discard(worker)
            self._failed(unit, worker, error)
            return
        status, result = call if kept else (call, None)
        self._calls[status] = (unit, worker, result)
        if sender != worker:
            self._senders[status] = sender

    def _pass(self, unit: Unit, node: str, kept: str) -> tuple[str, Any]:
        """Has a drive send rows to a node that computes them; gives the drive and the call."""
        drives = [drive for drive in unit.cell.drives if self._workers.is_alive(drive)] or unit.cell.drives
        source = drives[unit.first % len(drives)]
        shard = unit.cell.on(source)
        assert shard is not None
        rows = (unit.first - shard.first, unit.end - shard.first)
        sent = self._cluster._submit(source, "rows", shard.name, rows, sorted(set(self._columns.values())))
        keys = self._cluster._keys[self._table.key_id]
        return source, self._cluster._submit(node, f"{kept}pass", sent, (*keys, self._table.key_id), self._program, self._columns)

    def _ended(self, call: Any) -> None:
        """Takes what a call gave."""
        if call in self._sums:
            branch, drive, result, _ = self._sums.pop(call)
            if isinstance(self._cluster._answer(drive, call), Exception):
                self._fall(branch)
            else:
                # Both are in the sum, and must not count once more.
                for child in branch.children:
                    child.take()
                self._rise(branch, drive, result)
            return
        unit, drive, result = self._calls.pop(call)
        self._senders.pop(call, None)
        unit.running.discard(drive)
        answer = self._cluster._answer(drive, call)
        if isinstance(answer, Exception):
            self._failed(unit, drive, answer)
            return
        self._workers.succeeded(drive, unit.end - unit.first)
        self._seconds.append(self._cluster._now() - unit.started)
        is_first = not unit.done
        unit.done.add(drive)
        if is_first:
            self._finished += unit.end - unit.first
            self._units_done += 1
        if unit.branch is None:
            # What a drive was still at when another one had taken its unit over is left out.
            if is_first or unit.copies > 1:
                self._job.record(unit.rows, drive, answer)
        elif is_first:
            self._rise(unit.branch, drive, result)

    def _rise(self, branch: Branch, drive: str, result: Any) -> None:
        """Has a result added to that of its neighbour, once both are there; the last sum comes here."""
        branch.result, branch.drive = result, drive
        parent = branch.parent
        if parent is None or parent.has_fallen:
            self._deliver(branch)
            return
        left, right = parent.children
        if left.result is None or right.result is None:
            return
        # The plan of as many rows says what noise the sum has, so that a shard has to have them.
        able = {drive: shard for cell in self._cells for drive, shard in cell.held if shard.end - shard.first >= parent.end - parent.first}
        maker = next((drive for drive in (left.drive, right.drive, *able) if drive in able), None)
        if maker is None:
            self._fall(parent)
            return
        shard = able[maker]
        rows = (left.end - left.first, right.end - right.first)
        try:
            call, result = self._cluster._submit(maker, "kept_add", shard.name, self._program, self._columns, rows, left.result, right.result)
        except DriveError:
            self._fall(parent)
            return
        self._sums[call] = (parent, maker, result, self._cluster._now())

    def _fall(self, branch: Branch) -> None:
        """Gives up a sum: what it would have been made of comes here one by one."""
        for part in branch.fall():
            self._deliver(part)

    def _fall_late(self) -> None:
        """Gives up sums that take longer than a unit, since who makes them may stand still."""
        if not self._sums:
            return
        least = self._cluster._now() - max([SUM_SECONDS, *([statistics.median(self._seconds)] if self._seconds else [])])
        for call in [call for call, (_, _, _, started) in self._sums.items() if started < least]:
            self._fall(self._sums.pop(call)[0])

    def _give_up_silent(self) -> None:
        """Gives the units of drives that stand still to others, and takes drives back that answer again."""
        if self._cluster._now() < self._look:
            return
        self._look = self._cluster._now() + LOOK
        self._workers.take_back()
        for call, (unit, worker, _) in list(self._calls.items()):
            # Rows for a node come from a drive.
            sender = self._senders.get(call, worker)
            silent = next((name for name in (worker, sender) if self._cluster._is_silent(name)), None)
            if silent is None:
                continue
            del self._calls[call]
            unit.running.discard(worker)
            error = self._cluster._silence(silent)
            self._failed(unit, worker, error if silent == worker else Unsent(str(error)))
            self._workers.give_up(silent)

    def _deliver(self, branch: Branch) -> None:
        """Takes a result here, or has its rows computed again."""
        answer = self._cluster._answer(branch.drive, branch.take())
        if not isinstance(answer, Exception):
            self._job.record((branch.first, branch.end), branch.drive, answer)
            return
        branch.fall()
        for leaf in branch.leaves():
            if leaf.parent is not None:
                leaf.parent.has_fallen = True
            unit = self._units[leaf]
            self._finished -= unit.end - unit.first
            self._units_done -= 1
            unit.done.clear()
            self._again(unit)

    def _again(self, unit: Unit) -> None:
        self._retries += 1
        for part in self._parts(unit):
            self._waiting.setdefault((part.cell.first, part.cell.end), deque()).append(part)
        self._index()

    def _failed(self, unit: Unit, worker: str, error: Exception) -> None:
        self._workers.failed(worker, error)
        if not self._has_moved(unit, worker, error):
            unit.failures[worker] += 1
            self._workers.blame(worker, error)
        if unit.done or unit.running:
            # It is still to be compared, by this drive or another one.
            if unit.copies > 1 and unit not in self._checks:
                self._checks.append(unit)
            return
        self._checks = [other for other in self._checks if other is not unit]
        self._again(unit)

    def _has_moved(self, unit: Unit, worker: str, error: Exception) -> bool:
        """Whether a drive lacked the rows because they have moved since it was asked."""
        if not isinstance(error, MissingError) or worker not in unit.shards:
            return False
        now = {cell.on(worker) for cell in self._table.cells if cell.first < unit.end and unit.first < cell.end}
        return now != {unit.shards[worker]}

    def _not_compared(self, rows: Sequence[Rows]) -> DriveError:
        lonely = ", ".join(f"{first}..{end} ({', '.join(self._job.done[first, end])})" for first, end in rows)
        error = self._workers.error(DriveError, f"rows of table {self._table.name} were to be compared, and one drive alone has computed them: {lonely}")
        error.add_note("A job with a file keeps the results: resume it once the drives are back, or with verify=0, which compares nothing.")
        return error

    def _missing(self, rows: Sequence[Rows]) -> MissingRows:
        message = f"no drive could compute the rows {shown(rows)} of table {self._table.name}"
        return self._workers.error(MissingRows, message, rows=tuple(rows), reasons=self._workers.reasons)
