"""The lines that the user wrote, which errors name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep

#: A file and a line that the user wrote.
Place = tuple[str, int]


def caller() -> Place:
    """The file and the line that the user wrote: that of the innermost call from outside of this package, or that of [located][] if that is nearer."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        if frame.f_code is located.__code__:
            place: Place = frame.f_locals["place"]
            return place
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def located(place: Place, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Calls a function in the name of a line that was written before, such as that of an expression of columns."""
    return function(*arguments, **named)
