"""Outputs of a notebook that are shown again and again."""

from __future__ import annotations

import importlib
import sys
from typing import Any


def is_there() -> bool:
    """Whether a notebook shows what is displayed: its front end updates outputs, and that of IPython in a terminal does not."""
    notebook = sys.modules.get("IPython")
    shell = notebook.get_ipython() if notebook is not None else None
    return shell is not None and hasattr(shell, "kernel")


class Output:
    """An output of the cell that runs, which each text replaces."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, text: str) -> None:
        """Shows a text in HTML."""
        # No dependency of the package: it is there in a notebook.
        shown: Any = importlib.import_module("IPython.display")
        if self._handle is None:
            self._handle = shown.display(shown.HTML(text), display_id=True)
        else:
            self._handle.update(shown.HTML(text))
