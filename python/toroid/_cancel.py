"""How calls learn that the task which awaits them was cancelled."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

#: Set once the task is cancelled that awaits the call of this thread.
cancelled: ContextVar[threading.Event | None] = ContextVar("cancelled", default=None)


def check() -> None:
    """Ends a call whose task was cancelled, as Ctrl-C ends one without a task: once, so that the call can put things right. The native module asks time
    and again, and so does what takes long elsewhere.

    Raises:
        CancelledError: The task was cancelled.
    """
    asked = cancelled.get()
    if asked is not None and asked.is_set():
        asked.clear()
        raise asyncio.CancelledError
