"""What drives and jobs of a cluster do, as figures."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from toroid._status import ClusterStatus, DriveStatus, JobStatus

if TYPE_CHECKING:
    from toroid.ray._compare import Comparison
    from toroid.ray._run import Run

#: Jobs that have ended and are still told of.
ENDED = 8


@dataclass
class Tally:
    """What a drive has done since the cluster was opened."""

    rows: int = 0
    units: int = 0
    failures: int = 0
    reason: str | None = None


class Figures:
    """Counts what drives and jobs do. Any thread may ask for the figures."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._opened = now()
        self._runs: list[Run | Comparison] = []
        self._ended: deque[JobStatus] = deque(maxlen=ENDED)
        self._tallies: dict[str, Tally] = {}

    @contextlib.contextmanager
    def of(self, run: Run | Comparison) -> Iterator[None]:
        """Tells of a job while it runs, and how it ended."""
        self._runs.append(run)
        state = "failed"
        try:
            yield
            state = "done"
        finally:
            # The job itself has results, which must not be kept for figures.
            self._ended.append(replace(run.status(), state=state, seconds_left=None))
            self._runs.remove(run)

    def tally(self, worker: str) -> Tally:
        """The counts of a drive or node."""
        return self._tallies.setdefault(worker, Tally())

    def status(self, drives: Sequence[str], nodes: Sequence[str], states: Mapping[str, str] = MappingProxyType({})) -> ClusterStatus:
        """The figures of now. `states` has the states of drives that jobs do not know, which count where the drive does nothing."""
        runs = list(self._runs)
        workers = [self._worker(name, "drive", runs) for name in drives] + [self._worker(name, "compute", runs) for name in nodes]
        workers = [worker if worker.state == "computing" else replace(worker, state=states.get(worker.name, worker.state)) for worker in workers]
        return ClusterStatus(workers, [*(run.status() for run in runs), *self._ended], self._now() - self._opened)

    def _worker(self, name: str, role: str, runs: Sequence[Run | Comparison]) -> DriveStatus:
        tally = self.tally(name)
        counts = DriveStatus(name, role, "idle", None, None, None, tally.rows, tally.units, tally.failures, tally.reason)
        for run in runs:
            if (found := run.doing(name)) is not None:
                rows, seconds = found
                return replace(counts, state="computing", work=run.table, rows=rows, seconds=seconds)
        # A drive that a job has given up may still serve another one.
        return replace(counts, state="lost") if any(run.has_lost(name) for run in runs) else counts
