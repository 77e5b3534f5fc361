"""What long calls show of how far they are."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

Report = Callable[[str, int, int], object]
Progress = bool | Report | None
T = TypeVar("T")


class _Line:
    """One line that is written over, on the terminal or in a notebook's output."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._shown = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        is_last = done >= total
        if not is_last and now - self._shown < 0.1:
            return
        self._shown = now
        share = 100 * done // total if total else 100
        end = "\n" if is_last else ""
        print(f"\r{stage}: {done} of {total} ({share} %), {now - self._started:.1f} s", end=end, file=sys.stderr, flush=True)


def reporter(progress: Progress) -> Report | None:
    """The callable for an argument `progress`: True shows a line, a callable is called with the stage, the steps done and the steps in total."""
    if progress is True:
        return _Line()
    if progress is None or progress is False:
        return None
    if not callable(progress):
        raise TypeError(f"progress is a {type(progress).__name__}; expected True, False or a callable of (stage, done, total)")
    return progress


class _Cancellable:
    """Progress of a call that a task awaits. It raises in the call's thread once the task is cancelled: the native module asks `check` time and again."""

    def __init__(self, report: Report | None) -> None:
        self._report = report
        self.cancelled = threading.Event()

    def __call__(self, stage: str, done: int, total: int) -> None:
        self.check()
        if self._report is not None:
            self._report(stage, done, total)

    def check(self) -> None:
        if self.cancelled.is_set():
            raise asyncio.CancelledError


async def awaited(call: Callable[..., T], *arguments: Any, progress: Progress = None, **options: Any) -> T:
    """Awaits a long call that takes `progress`. Cancelling the task ends the call as Ctrl-C ends it without a task, and waits for that."""
    report = _Cancellable(reporter(progress))
    thread = asyncio.ensure_future(asyncio.to_thread(call, *arguments, progress=report, **options))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        report.cancelled.set()
        await asyncio.wait([thread])
        if not thread.cancelled():
            # Whatever it was, the task is cancelled.
            thread.exception()
        raise
