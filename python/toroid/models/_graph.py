"""The text of a graph, statement by statement."""

from __future__ import annotations

from collections.abc import Iterable


class GraphText:
    """Writes the statements of a graph; values are named `_0`, `_1`, … and no input's name begins so."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._values = 0

    def input(self, name: str, low: int, high: int) -> str:
        self._lines.append(f"input {name}: {low}..{high}")
        return name

    def _value(self, expression: str) -> str:
        name = f"_{self._values}"
        self._values += 1
        self._lines.append(f"{name} = {expression}")
        return name

    def table(self, argument: str, entries: Iterable[int]) -> str:
        return self._value(f"table({argument}, [{', '.join(map(str, entries))}])")

    def linear(self, terms: Iterable[tuple[int, str]], constant: int = 0) -> str:
        """Σ weight·value + constant; terms of weight 0 fall away."""
        text = "".join(f" {'-' if weight < 0 else '+'} {abs(weight)}*{name}" for weight, name in terms if weight)
        if constant or not text:
            text += f" {'-' if constant < 0 else '+'} {abs(constant)}"
        return self._value(text.removeprefix(" + ").strip() if text.startswith(" +") else "-" + text[3:])

    def output(self, name: str, value: str) -> None:
        self._lines.append(f"output {name} = {value}")

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"
