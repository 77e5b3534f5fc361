"""What long calls show of how far they are."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

Report = Callable[[str, int, int], object]
Progress = bool | Report | None


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
