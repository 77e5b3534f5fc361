"""Questions that compare rows, over the drives of a cluster: each round is cut into ranges of pairs, which idle drives take."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ray

from toroid import _core
from toroid._columns import EncryptedColumn, EncryptedTable
from toroid._errors import DriveError, FullError
from toroid._program import Compiled
from toroid._progress import Progress, reporter
from toroid._rounds import BLOCK_ROWS, Cell, Encrypted, Rounds, cut_words, gathered
from toroid._status import JobStatus
from toroid.ray._places import Rows
from toroid.ray._workers import MAX_FAILURES, Workers

if TYPE_CHECKING:
    from toroid.ray._table import ShardedTable

#: Ranges of a round for each drive, so that a slow one holds the others up less.
RANGES = 2


@dataclass(eq=False)
class Part:
    """A range of pairs that a drive computes in one call."""

    first: int
    end: int
    failures: Counter[str] = field(default_factory=Counter)


class Comparison(Encrypted):
    """A question that compares rows, under way. The client's process keeps the words between rounds, and drives keep nothing of them."""

    def __init__(self, table: ShardedTable, rounds: Rounds, log2_failure: float) -> None:
        super().__init__(rounds, log2_failure)
        self._table = table
        self._cluster = table.cluster
        self._workers = Workers(table)
        self.block = BLOCK_ROWS * len(self._workers.names)
        # Their tables take too much room to go with every range.
        self._sent = {step: [ray.put(compiled)] for step, compiled in self._programs.items()}
        self._calls: dict[Any, tuple[Part, str, float]] = {}
        self._waiting: deque[Part] = deque()
        self._columns: dict[str, EncryptedColumn] = {}
        self._total = sum(network.comparisons for network in rounds.networks)
        self._compared = 0
        self._parts_done = 0
        self._retries = 0
        self._began = self._cluster._now()

    def all_rounds(self, progress: Progress) -> list[list[_core.EncryptedRows]]:
        """Does all rounds: for each network the words of the rows that are wanted."""
        report = reporter(progress)

        def told(done: int, total: int) -> None:
            self._compared = done
            if report is not None:
                report("compare", done, total)

        return self._rounds.play(self, told)

    @property
    def table(self) -> str:
        """The name of the table."""
        return self._table.name

    def status(self) -> JobStatus:
        """How far it is: its rows are comparisons."""
        seconds = self._cluster._now() - self._began
        return JobStatus(
            self.table,
            self._total,
            self._compared,
            units_waiting=len(self._waiting),
            units_running=len(self._calls),
            units_done=self._parts_done,
            retries=self._retries,
            seconds=seconds,
            seconds_left=seconds * (self._total - self._compared) / self._compared if self._compared else None,
        )

    def doing(self, worker: str) -> tuple[Rows, float] | None:
        """The pairs of a round that a drive or node compares, and since how many seconds; none if it is idle."""
        for part, drive, started in list(self._calls.values()):
            if drive == worker:
                return (part.first, part.end), self._cluster._now() - started
        return None

    def has_lost(self, worker: str) -> bool:
        """Whether it has given up a drive or node."""
        return not self._workers.is_alive(worker)

    def _column(self, name: str, place: int) -> _core.EncryptedRows:
        if name not in self._columns:
            self._columns[name] = self._table.of_columns([name]).download()[name]
        return self._columns[name].digits[place]

    def _prepare(self, compiled: Compiled, columns: Mapping[str, str]) -> Iterator[tuple[_core.EncryptedRows, int]]:
        for size, by_drive in self._table.compute(compiled, columns, None, None).parts:
            yield next(iter(by_drive.values())), size

    def _compute(self, step: tuple[int, int], inputs: Mapping[str, list[list[Cell]]], rows: int) -> _core.EncryptedRows:
        size = min(self._table.unit_rows(self._programs[step]), math.ceil(rows / (RANGES * len(self._workers.names))))
        self._waiting = deque(Part(first, min(first + size, rows)) for first in range(0, rows, size))
        found: dict[Part, _core.EncryptedRows] = {}
        try:
            while self._waiting or self._calls:
                self._occupy(step, inputs)
                if not self._calls:
                    raise self._workers.error(DriveError, f"no drive could compare rows of table {self.table}")
                for call in self._cluster._wait(list(self._calls)):
                    part, worker, _ = self._calls.pop(call)
                    self._ended(part, worker, self._cluster._answer(worker, call), found)
                self._give_up_silent()
        finally:
            # What is still computed after an error has no use.
            self._calls.clear()
        parts = sorted(found, key=lambda part: part.first)
        return _core.EncryptedRows.gather([(found[part], 0, len(found[part])) for part in parts])

    def _occupy(self, step: tuple[int, int], inputs: Mapping[str, list[list[Cell]]]) -> None:
        """Gives ranges to whoever is idle."""
        busy = {worker for _, worker, _ in self._calls.values()}
        for worker in self._workers.names:
            if worker in busy or not self._workers.is_alive(worker):
                continue
            part = next((part for part in self._waiting if part.failures[worker] < MAX_FAILURES), None)
            if part is None:
                continue
            self._waiting.remove(part)
            try:
                call = self._submit(step, cut_words(inputs, part.first, part.end), f"{self.name} {part.first}", worker)
            except DriveError as error:
                # It has left just now.
                self._failed(part, worker, error)
                continue
            self._calls[call] = (part, worker, self._cluster._now())

    def _submit(self, step: tuple[int, int], words: Mapping[str, list[list[Cell]]], name: str, worker: str) -> Any:
        network = self._rounds.networks[step[0]]
        layouts = self._rounds.layouts(network.steps[step[1]], network)
        pairs = EncryptedTable(
            {given: EncryptedColumn(layouts[given], tuple(gathered(cells, counted=True) for cells in own)) for given, own in words.items()}
        )
        columns = {given: given for given in words}
        key_id = self._table.key_id
        if worker in self._cluster.nodes:
            return self._cluster._submit(worker, "pass", pairs, (*self._cluster._keys[key_id], key_id), self._sent[step], columns)
        return self._cluster._submit(worker, "compare", name, pairs, key_id, self._sent[step], columns)

    def _ended(self, part: Part, worker: str, answer: Any, found: dict[Part, _core.EncryptedRows]) -> None:
        """Takes what a call gave."""
        if isinstance(answer, FullError) and part.end - part.first > 1:
            middle = (part.first + part.end) // 2
            self._waiting.extend([Part(part.first, middle), Part(middle, part.end)])
        elif isinstance(answer, Exception):
            self._failed(part, worker, answer)
        else:
            found[part] = answer
            self._parts_done += 1
            self._workers.succeeded(worker, part.end - part.first)

    def _failed(self, part: Part, worker: str, error: Exception) -> None:
        self._workers.failed(worker, error)
        self._workers.blame(worker, error)
        part.failures[worker] += 1
        self._retries += 1
        self._waiting.append(part)

    def _give_up_silent(self) -> None:
        """Gives the ranges of drives that stand still to others, and takes drives back that answer again."""
        self._workers.take_back()
        for call, (part, worker, _) in list(self._calls.items()):
            if self._cluster._is_silent(worker):
                del self._calls[call]
                self._failed(part, worker, self._cluster._silence(worker))
                self._workers.give_up(worker)
