"""A cluster whose drives answer at once and take recorded times, on a clock that leaps over them.

What is real: Ray, one actor a drive, the session of each with a drive in its process, the columns on it, the plan of every unit on these columns, the
scheduling, the results that travel, and every second in which the client's process works or waits for Ray. What is simulated: the arithmetic. A unit ends
when the seconds have passed that the engine's recorded times give for it on one core, give or take some per cent; its result is that of another unit of the
same program, which was computed once. The clock is that of the process, and is put forward to the end of the next unit whenever the process would wait for
it. What several drives on machines of their own would do at the same time, the actors do one after the other on this machine, and it counts in full.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
import toroid
from toroid.ray import Cluster
from toroid.ray._keeper import Keeper, program_of
from toroid.ray._run import LOOK


@dataclass(frozen=True)
class Timed:
    """The result of a call, and how many seconds it is to take."""

    seconds: float
    result: Any


class Recorded(Keeper):
    """Keeps a drive of its own process, and computes nothing on it."""

    def __init__(self, _location: str | None, _options: Mapping[str, Any], patience: float) -> None:
        super().__init__(None, {}, patience)
        self._result: Any = None
        self._add_seconds = 0.0
        self._seconds: dict[tuple[str, int], float] = {}

    def _give(self, _drive: Any, result: bytes, add_seconds: float) -> None:
        """Takes the result that all units have, and the seconds of a sum."""
        self._result, self._add_seconds = toroid.EncryptedRows.from_bytes(result), add_seconds

    def _compute(self, drive: Any, shard: str, program: Sequence[Any], columns: Mapping[str, str], rows: tuple[int, int]) -> Timed:
        compiled = program_of(program[0])
        key = (compiled.program, rows[1] - rows[0])
        if key not in self._seconds:
            table = drive.table(shard)
            inputs = compiled.registers({name: table.columns[column].names for name, column in columns.items()})
            self._seconds[key] = drive.core.estimate(compiled.program, inputs, "result", rows, key_id=table.key_id)["seconds"]
        return Timed(self._seconds[key], self._result)

    def _add(self, _drive: Any, _shard: str, _program: Sequence[Any], _columns: Mapping[str, str], _rows: Sequence[int], *_parts: Any) -> Timed:
        return Timed(self._add_seconds, self._result)

    @ray.method(num_returns=2)
    def kept(self, action: str, *arguments: Any) -> tuple[Any, Any]:
        return _apart(self.call(action, *arguments))

    @ray.method(num_returns=2, concurrency_group="beside")
    def kept_beside(self, action: str, *arguments: Any) -> tuple[Any, Any]:
        return _apart(self.beside(action, *arguments))


def _apart(answer: Any) -> tuple[Any, Any]:
    return (Timed(answer.seconds, None), answer.result) if isinstance(answer, Timed) else (answer, None)


class SimulatedCluster(Cluster):
    """A cluster of drives that take recorded times.

    Args:
        drives: How many there are.
        result: The result that every unit has, as bytes.
        add_seconds: Seconds in which a drive adds up two results.
        spread: By which share of it the time of a unit is longer or shorter at most.
    """

    _keeper = Recorded

    def __init__(self, drives: int, result: bytes, add_seconds: float, spread: float) -> None:
        self._leapt = 0.0
        self._spread = spread
        self._add_seconds = add_seconds
        # Seconds of units by their numbers of rows, as drives have told them.
        self._known: dict[int, float] = {}
        self._ends: dict[Any, float] = {}
        # Units of a size that no drive has told of yet.
        self._unknown: dict[Any, tuple[int, str, float]] = {}
        self._free: dict[str, float] = {}
        super().__init__([f"simulated://{number}" for number in range(drives)])
        self._all("give", result, add_seconds)

    def _now(self) -> float:
        return super()._now() + self._leapt

    def _submit(self, location: str, action: str, *arguments: Any) -> Any:
        call = super()._submit(location, action, *arguments)
        status = call[0] if isinstance(call, list | tuple) else call
        match action.removeprefix("kept_"):
            case "compute":
                first, end = arguments[-1]
                factor = 1 + self._spread * random.Random(f"{location} {first}").uniform(-1, 1)
                if end - first in self._known:
                    self._begin(status, location, factor * self._known[end - first])
                else:
                    self._unknown[status] = (end - first, location, factor)
            case "add":
                self._ends[status] = self._now() + self._add_seconds
        return call

    def _begin(self, status: Any, location: str, seconds: float) -> None:
        # A drive does one thing after the other.
        self._ends[status] = self._free[location] = max(self._now(), self._free.get(location, 0.0)) + seconds

    def _wait(self, calls: Sequence[Any]) -> list[Any]:
        # What this costs a client counts.
        ray.wait(list(calls), num_returns=1, timeout=LOOK)
        for status, (rows, location, factor) in list(self._unknown.items()):
            self._known[rows] = ray.get(status).seconds
            del self._unknown[status]
            self._begin(status, location, factor * self._known[rows])
        first = min(calls, key=self._ends.__getitem__)
        # It has been answered long ago, or the wait counts.
        ray.wait([first])
        self._leapt += max(0.0, self._ends[first] - self._now())
        now = self._now()
        return [call for call in calls if self._ends[call] <= now]

    def _answer(self, location: str, call: Any) -> Any:
        self._ends.pop(call, None)
        answer = super()._answer(location, call)
        return answer.result if isinstance(answer, Timed) else answer

    def _is_silent(self, name: str) -> bool:
        # The clock leaps, and no drive stands still for that.
        return False

    def status(self) -> Any:
        return replace(super().status(), simulated=True)
