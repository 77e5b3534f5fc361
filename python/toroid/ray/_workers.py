"""Whom a job asks: drives and nodes, and those that it has given up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from toroid._errors import DriveError
from toroid.ray._keeper import Unsent
from toroid.ray._places import why

if TYPE_CHECKING:
    from toroid.ray._table import ShardedTable

#: Failures of a drive with a unit after which it gets the unit no more; and so many in a row, none of them an answer of the drive, end it for the job.
MAX_FAILURES = 2

E = TypeVar("E", bound=DriveError)


class Workers:
    """The drives and nodes that compute rows of a table, as a job has come to know them."""

    def __init__(self, table: ShardedTable, reasons: Mapping[str, str] | None = None) -> None:
        self._table = table
        self._cluster = table.cluster
        self._failures: Counter[str] = Counter()
        self._silent: set[str] = set()
        #: What was wrong with those that failed.
        self.reasons: dict[str, str] = dict(reasons or {})
        self._last: Exception | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All that there are: those that have rows come first. Nodes need the public keys."""
        nodes = self._cluster.nodes if self._table.key_id in self._cluster._keys else ()
        return (*self._cluster.locations, *nodes)

    def is_alive(self, worker: str) -> bool:
        """Whether the job has not given it up."""
        return self._failures[worker] < MAX_FAILURES

    def succeeded(self, worker: str, rows: int) -> None:
        """Takes note of a unit that it has computed."""
        self._failures[worker] = 0
        tally = self._cluster._figures.tally(worker)
        tally.rows += rows
        tally.units += 1

    def failed(self, worker: str, error: Exception) -> None:
        """Takes note of a failure."""
        # A drive that says what is wrong is there, and other units may do. What did not reach a node is no fault of it.
        is_answer = not isinstance(error, DriveError) or error.status is not None or isinstance(error, Unsent)
        self._failures[worker] = 0 if is_answer else self._failures[worker] + 1

    def blame(self, worker: str, error: Exception) -> None:
        """Keeps what was wrong with it, for errors and figures."""
        self.reasons[worker] = str(error)
        self._last = error
        tally = self._cluster._figures.tally(worker)
        tally.failures, tally.reason = tally.failures + 1, str(error)

    def give_up(self, worker: str) -> None:
        """Gives up one that stands still, until it answers again."""
        self._silent.add(worker)
        self._failures[worker] = MAX_FAILURES

    def take_back(self) -> None:
        """Takes back those that stood still and answer again."""
        for worker in [worker for worker in self._silent if not self._cluster._is_silent(worker)]:
            self._silent.discard(worker)
            self._failures[worker] = 0

    def error(self, kind: type[E], message: str, **attributes: Any) -> E:
        """An error for what none of them did, which says what was wrong with each."""
        error = kind(
            message + (f" ({why(self.reasons)})" if self.reasons else ""),
            reason=getattr(self._last, "reason", None),
            status=getattr(self._last, "status", None),
            **attributes,
        )
        error.__cause__ = self._last
        return error
