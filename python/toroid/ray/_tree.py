"""Results that drives add up, pair by pair, as a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Branch:
    """A range of rows whose result is one: that of a unit of work, or the sum of two neighbours. A branch falls where a sum is not made: then what it
    would have been made of stands for itself."""

    first: int
    end: int
    children: tuple[Branch, ...] = ()
    parent: Branch | None = field(default=None, repr=False)
    has_fallen: bool = False
    #: The object of Ray that is the result, once it is there and until it is taken.
    result: Any = None
    #: The drive that made it.
    drive: str = ""

    def leaves(self) -> Iterator[Branch]:
        """The units, in their order."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def above(self) -> Iterator[Branch]:
        """It, and what is made of it."""
        node: Branch | None = self
        while node is not None:
            yield node
            node = node.parent

    def take(self) -> Any:
        """The result, which is no longer kept here."""
        result, self.result = self.result, None
        return result

    def fall(self) -> list[Branch]:
        """Makes neither this sum nor those of it; gives the results that stand for themselves now."""
        found: list[Branch] = []
        for node in self.above():
            node.has_fallen = True
            found.extend(child for child in node.children if child.result is not None)
        return found


def trees(leaves: Iterable[tuple[int, int]], most: int) -> Iterator[list[Branch]]:
    """The leaves of a tree for every run of neighbours of at most so many rows, each given by its first row, and the one after its last, in their order,
    wherever the rows are. A run of one is none."""
    run: list[Branch] = []
    for first, end in leaves:
        if run and (first != run[-1].end or end - run[0].first > most):
            if len(run) > 1:
                yield _grown(run)
            run = []
        run.append(Branch(first, end))
    if len(run) > 1:
        yield _grown(run)


def _grown(leaves: list[Branch]) -> list[Branch]:
    """Puts the branches on leaves."""
    level: Sequence[Branch] = leaves
    while len(level) > 1:
        upper: list[Branch] = []
        for place in range(0, len(level), 2):
            pair = tuple(level[place : place + 2])
            if len(pair) == 1:
                upper.extend(pair)
                continue
            branch = Branch(pair[0].first, pair[1].end, pair)
            for child in pair:
                child.parent = branch
            upper.append(branch)
        level = upper
    return leaves
