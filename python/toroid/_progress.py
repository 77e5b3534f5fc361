"""What long calls show of how far they are, and their twins that a task awaits."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import html
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, ParamSpec, TypeVar

from toroid import _notebook
from toroid._cancel import cancelled
from toroid._lines import caller, located
from toroid._notebook import Output

Report = Callable[[str, int, int], object]
Progress = bool | Report | None
P = ParamSpec("P")
T = TypeVar("T")


class _Line:
    """One line for each stage, which is written over on a terminal; a bar in a notebook."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._shown = 0.0
        self._is_notebook = _notebook.is_there()
        self._output = Output()

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        is_last = done >= total
        if not is_last and now - self._shown < 0.1:
            return
        self._shown = now
        share = 100 * done // total if total else 100
        text = f"{stage}: {done} of {total} ({share} %), {now - self._started:.1f} s"
        if not self._is_notebook:
            print(f"\r{text}", end="\n" if is_last else "", file=sys.stderr, flush=True)
            return
        self._output.show(f'<progress value="{share}" max="100"></progress> {html.escape(text)}')
        if is_last:
            self._output = Output()


def reporter(progress: Progress) -> Report | None:
    """The callable for an argument `progress`: True shows a line, or a bar in a notebook, a callable is called with the stage, the steps done and the steps in total."""
    if progress is True:
        return _Line()
    if progress is None or progress is False:
        return None
    if not callable(progress):
        raise TypeError(f"progress is a {type(progress).__name__}; expected True, False or a callable of (stage, done, total)")
    return progress


def in_turn(progress: Progress, calls: int) -> Iterator[Report | None]:
    """The callables for so many calls of as many steps, one after the other: together they count as one."""
    report = reporter(progress)
    for call in range(calls):
        yield None if report is None else functools.partial(_in_turn, report, call, calls)


def _in_turn(report: Report, call: int, calls: int, stage: str, done: int, total: int) -> None:
    report(stage, call * total + done, calls * total)


def twin(call: Callable[P, T], discard: Callable[..., object] | None = None) -> Callable[P, Coroutine[Any, Any, T]]:
    """The twin of a long call, to await: it takes the same arguments, and runs the call in a thread of its own. Cancelling the task ends the call, and
    waits for that. Where the call has ended already, `discard` gets its result, which nobody else does, with the arguments given by name."""

    @functools.wraps(call)
    def awaitable(*arguments: P.args, **options: P.kwargs) -> Coroutine[Any, Any, T]:
        # Errors name the line of this call, which no frame of the other thread knows.
        made = functools.partial(located, caller(), functools.partial(call, *arguments, **options))
        return _awaited(made, None if discard is None else functools.partial(discard, **options))

    name = call.__name__
    awaitable.__name__ = f"a{name}"
    awaitable.__qualname__ = f"{call.__qualname__.removesuffix(name)}a{name}"
    awaitable.__doc__ = f"`{name}`, to await. Cancelling the task ends the call as Ctrl-C does, and waits for that."
    return awaitable


async def _awaited(call: Callable[[], T], discard: Callable[[T], object] | None) -> T:
    asked = threading.Event()

    def run() -> T:
        # The thread has a context of its own.
        cancelled.set(asked)
        return call()

    # Refuses a caller without a loop before there is anything to await.
    loop = asyncio.get_running_loop()
    thread = loop.create_task(asyncio.to_thread(run))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        asked.set()
        # Whatever an error is, here or there, the task is cancelled.
        if await _error_of(thread) is None and discard is not None:
            await _error_of(loop.create_task(asyncio.to_thread(discard, thread.result())))
        raise


async def _error_of(thread: asyncio.Task[Any]) -> BaseException | None:
    """How a thread ends. Who cancels the task again waits for that as well."""
    while not thread.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([thread])
    return asyncio.CancelledError() if thread.cancelled() else thread.exception()
